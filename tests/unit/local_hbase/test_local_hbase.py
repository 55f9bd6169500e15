"""What can be said of a local HBase without starting one: its files, its ports, and that nothing outlives us."""

from __future__ import annotations

import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest

from metaclient.cli import main
from metaclient.errors import ConfigError, Unsupported
from metaclient.runtime import ThreadRuntime
from metaclient_local_hbase import LocalHBase, cluster, jmx
from metaclient_local_hbase.death_watch import DeathWatch, kill_all
from metaclient_local_hbase.jars import jar_folder, pom
from metaclient_local_hbase.layout import Layout
from metaclient_local_hbase.ports import LOOPBACK, free_ports
from metaclient_local_hbase.processes import is_stopped, running, send_signal, spawn
from metaclient_local_hbase.settings import command, hbase_site, marker, write_configuration
from metaclient_local_hbase.tools import cache_folder, missing_tools, state_folder
from tests.command_runner import command_runner

#: Where a test waits for what must come: long enough for a busy machine.
PATIENCE_S = 60.0
SLEEPER = "import time; time.sleep(120)"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout.plan(
        tmp_path / "c",
        version="2.6.1",
        region_servers=2,
        meta_replicas=3,
        heap_mb=256,
        session_s=6.0,
        runtime=ThreadRuntime(),
    )


def sleeper(folder: Path, name: str) -> list[str]:
    """A process that looks like one of the cluster's, and only sleeps."""
    return [sys.executable, "-c", SLEEPER, marker(folder), f"-Dmetaclient.process={name}"]


def wait_for(count: int, folder: Path) -> dict[str, int]:
    runtime = ThreadRuntime()
    deadline = runtime.now() + PATIENCE_S
    while len(found := running(marker(folder))) != count and runtime.now() < deadline:
        runtime.sleep(0.02)
    return found


# -- tools and folders ---------------------------------------------------------------------------------------------


def test_missing_tools_say_what_to_install(tmp_path: Path) -> None:
    said = missing_tools(path=str(tmp_path))
    assert said is not None
    assert "openjdk" in said
    assert "maven" in said


def test_up_without_java_is_a_clear_error_and_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unsupported, match="install"):
        LocalHBase(folder=tmp_path / "c").up()
    assert not running(marker(tmp_path / "c"))


def test_folders_follow_xdg_and_ignore_relative_ones(tmp_path: Path) -> None:
    assert cache_folder({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "metaclient" / "hbase"
    assert state_folder({"XDG_STATE_HOME": "relative"}) == Path.home() / ".local/state/metaclient/hbase"


def test_slow_download_of_the_jars_leaves_the_processes_their_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime, clock = ThreadRuntime(), [0.0]
    monkeypatch.setattr(runtime, "now", lambda: clock[0])
    hbase = LocalHBase(folder=tmp_path / "c", runtime=runtime)
    left_s: list[float] = []

    def download(*_: object) -> None:
        clock[0] += 10 * cluster.START_S_MAX

    def start_all(_: object, deadline: float) -> None:
        left_s.append(deadline - runtime.now())

    monkeypatch.setattr(cluster, "check_tools", lambda: None)
    monkeypatch.setattr(cluster, "jar_folder", download)
    monkeypatch.setattr(hbase, "_start_all", start_all)
    hbase.up()
    hbase.down()
    assert left_s == [cluster.START_S_MAX]


def test_unknown_version_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"2\.6\.1, 3\.0\.0-alpha-4"):
        jar_folder("1.0")


def test_pom_asks_for_server_and_gateways() -> None:
    names = [one.text for one in ElementTree.fromstring(pom("2.6.1")).iter() if one.tag.endswith("artifactId")]
    assert names == ["local-hbase", "hbase-server", "hbase-thrift"]


# -- layout and settings -------------------------------------------------------------------------------------------


def test_layout_survives_its_file(layout: Layout) -> None:
    layout.folder.mkdir(parents=True)
    assert Layout.load(layout.folder) is None
    layout.save()
    assert Layout.load(layout.folder) == layout


def test_ports_are_all_different(layout: Layout) -> None:
    ports = [port for one in layout.processes for port in (one.port, one.info_port) if port]
    assert len(set(ports)) == len(ports)
    assert len(set(free_ports(50, ThreadRuntime()))) == 50


def test_process_is_found_by_our_name_and_by_hbases(layout: Layout) -> None:
    rs2 = layout.process("rs2")
    assert layout.process(f"localhost:{rs2.port}") is rs2
    assert layout.process(f"localhost,{rs2.port},17") is rs2
    with pytest.raises(ConfigError, match="zookeeper, master, rs1, rs2, thrift1, thrift2"):
        layout.process("rs9")


def test_everything_is_bound_to_loopback(layout: Layout) -> None:
    for process in layout.processes:
        site = hbase_site(layout, process)
        bound = {name: value for name, value in site.items() if "address" in name.lower() or "quorum" in name}
        assert set(bound.values()) == {LOOPBACK}


def test_only_gateways_give_up_early(layout: Layout) -> None:
    """A region server with few retries aborts when it cannot ask for a flush."""
    few = [one.name for one in layout.processes if "hbase.client.retries.number" in hbase_site(layout, one)]
    assert few == ["thrift1", "thrift2"]


@pytest.mark.parametrize(("version", "is_hasty"), [("2.6.1", False), ("3.0.0-alpha-4", True)])
def test_only_servers_of_3_0_retry_in_haste(layout: Layout, version: str, is_hasty: bool) -> None:
    """In 2.6 what replicates to copies ends for good after its retries: they must outlast a restart."""
    site = hbase_site(replace(layout, version=version), layout.process("rs1"))
    assert ("hbase.client.pause" in site) is is_hasty


def test_clients_inside_of_servers_ask_the_master_of_their_own_cluster(layout: Layout) -> None:
    """Those of 3.0 ask the masters, by default at a port where another cluster may listen."""
    master = layout.process("master")
    for process in layout.processes:
        assert hbase_site(layout, process)["hbase.masters"] == f"localhost:{master.port}"


def test_configuration_is_xml_and_first_on_the_class_path(layout: Layout) -> None:
    process = layout.process("rs1")
    folder = write_configuration(layout, process)
    site = ElementTree.parse(folder / "hbase-site.xml").getroot()
    read = {one.findtext("name"): one.findtext("value") for one in site.iter("property")}
    assert read == hbase_site(layout, process)
    arguments = command(layout, process, "/jars/*")
    assert arguments[arguments.index("-cp") + 1] == f"{folder}:/jars/*"
    assert marker(layout.folder) in arguments


def test_options_of_region_servers_come_last_and_are_for_no_other_jvm(layout: Layout, tmp_path: Path) -> None:
    """The last one of two options of a JVM counts."""
    given = replace(layout, folder=tmp_path, region_server_options=("-XX:TieredStopAtLevel=4",))
    given.save()
    assert Layout.load(tmp_path) == given
    for process in given.processes:
        levels = [one for one in command(given, process, "/jars/*") if "TieredStopAtLevel" in one]
        assert levels[-1].endswith("4" if process.name.startswith("rs") else "1"), process


@pytest.mark.parametrize("options", [{"region_servers": 0}, {"meta_replicas": 0}, {"region_servers": "3"}])
def test_wrong_sizes_are_refused(options: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="from 1 on"):
        LocalHBase(folder=tmp_path, **options)  # type: ignore[arg-type]  # that is the test


def test_meta_reads_are_summed_over_servers() -> None:
    key = "Namespace_hbase_table_meta_region_{}_metric_readRequestCount"
    beans = [{key.format("1588230740"): 5}, {key.format("534574363"): 3, key.format("1657623790"): 4}, {}]
    assert jmx.meta_reads(beans, 3) == {0: 5, 1: 3, 2: 4}


def test_server_that_does_not_answer_has_no_metrics() -> None:
    assert jmx.region_metrics(free_ports(1, ThreadRuntime())[0]) == {}


def test_logs_of_an_earlier_run_are_put_aside(tmp_path: Path) -> None:
    """Else a second start would take the first one's "Registered as active master" for its own."""
    cluster = LocalHBase(folder=tmp_path)
    for text in ("first", "second"):
        cluster._make_folder()
        assert list((tmp_path / "logs").iterdir()) == []
        (tmp_path / "logs" / "master.log").write_text(text, encoding="utf-8")
    assert (tmp_path / "logs.previous" / "master.log").read_text(encoding="utf-8") == "first"


def test_data_of_a_stranger_is_never_deleted(tmp_path: Path) -> None:
    """``LocalHBase(folder=X)`` must not delete ``X/data`` because it happens to have that name."""
    precious = tmp_path / "data" / "thesis.txt"
    precious.parent.mkdir()
    precious.write_text("three years", encoding="utf-8")
    cluster = LocalHBase(folder=tmp_path)
    with pytest.raises(ConfigError, match=r"holds files that no local HBase wrote.*name a new or empty folder"):
        cluster._make_folder()
    cluster.down()
    assert precious.read_text(encoding="utf-8") == "three years"


def test_files_of_a_cluster_are_private(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir(mode=0o777)
    cluster = LocalHBase(folder=tmp_path / "c")
    cluster._make_folder()
    assert (tmp_path / "c").stat().st_mode & 0o077 == 0
    child = spawn(
        [sys.executable, "-c", "open('made', 'w'); print('hello')"], tmp_path / "c/logs/x.log", tmp_path / "c"
    )
    child.wait(PATIENCE_S)
    assert (tmp_path / "c" / "made").stat().st_mode & 0o077 == 0


def test_data_goes_when_the_cluster_goes_down(tmp_path: Path) -> None:
    cluster = LocalHBase(folder=tmp_path)
    cluster._make_folder()
    (tmp_path / "data").mkdir()
    cluster.down()
    assert not (tmp_path / "data").exists()
    assert (tmp_path / "logs").exists()


# -- nothing is left running ---------------------------------------------------------------------------------------


def test_only_processes_with_the_mark_are_found_and_killed(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "a", tmp_path / "ab"
    children = [subprocess.Popen(sleeper(ours, "rs1")), subprocess.Popen(sleeper(theirs, "rs1"))]
    try:
        assert wait_for(1, ours) == {"rs1": children[0].pid}
        assert wait_for(1, theirs) == {"rs1": children[1].pid}
        assert kill_all(marker(ours)) == ["rs1"]
        children[0].wait(PATIENCE_S)
        assert wait_for(0, ours) == {}
        assert children[1].poll() is None
    finally:
        for child in children:
            child.kill()
            child.wait()


def test_paused_process_is_seen_as_such_and_can_be_killed(tmp_path: Path) -> None:
    child = subprocess.Popen(sleeper(tmp_path, "rs1"))
    try:
        wait_for(1, tmp_path)
        send_signal(child.pid, signal.SIGSTOP)
        runtime = ThreadRuntime()
        deadline = runtime.now() + PATIENCE_S
        while not is_stopped(child.pid):
            assert runtime.now() < deadline
            runtime.sleep(0.01)
        assert kill_all(marker(tmp_path)) == ["rs1"]
        child.wait(PATIENCE_S)
    finally:
        child.kill()
        child.wait()


STARTER = """
import signal, subprocess, sys, time
from pathlib import Path
from metaclient_local_hbase.death_watch import DeathWatch
from metaclient_local_hbase.settings import marker
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job would inherit "ignored"
folder = Path(sys.argv[1])
watch = DeathWatch(marker(folder))
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)", marker(folder), "-Dmetaclient.process=rs1"],
                 start_new_session=True)
if sys.argv[2] == "leave":
    watch.leave()
print("started", flush=True)  # last: the test may kill us from here on
time.sleep(120)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_processes_die_with_the_one_that_started_them(tmp_path: Path, number: signal.Signals) -> None:
    """ "nothing left running after ``down``, a crash of ours or Ctrl-C"."""
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(tmp_path), "watch"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert starter.stdout is not None
    with starter.stdout:
        assert starter.stdout.readline() == b"started\n"
    assert wait_for(1, tmp_path)
    starter.send_signal(number)
    starter.wait(PATIENCE_S)
    assert wait_for(0, tmp_path) == {}


def test_processes_that_were_left_stay(tmp_path: Path) -> None:
    starter = subprocess.Popen([sys.executable, "-c", STARTER, str(tmp_path), "leave"], stdout=subprocess.PIPE)
    assert starter.stdout is not None
    with starter.stdout:
        assert starter.stdout.readline() == b"started\n"  # leave() has waited for the end of the watch
    assert wait_for(1, tmp_path)
    starter.kill()
    starter.wait(PATIENCE_S)
    assert list(running(marker(tmp_path))) == ["rs1"]
    assert kill_all(marker(tmp_path)) == ["rs1"]


def test_watch_that_was_killed_does_not_hurt(tmp_path: Path) -> None:
    watch = DeathWatch(marker(tmp_path))
    watch._watch.kill()
    watch._watch.wait()
    watch.leave()


# -- the command line ----------------------------------------------------------------------------------------------


def test_commands_without_a_cluster_say_how_to_start_one(tmp_path: Path) -> None:
    for words in (["status"], ["down"], ["kill", "rs1"], ["pause", "rs1"], ["resume", "rs1"]):
        ran = command_runner().invoke(main, ["hbase", *words, "--folder", str(tmp_path)])
        assert ran.exit_code == 1
        assert "metaclient hbase up" in ran.stderr


def test_status_shows_processes_that_are_down(layout: Layout) -> None:
    layout.folder.mkdir(parents=True)
    layout.save()
    ran = command_runner().invoke(main, ["hbase", "status", "--folder", str(layout.folder), "--json"])
    assert ran.exit_code == 0
    assert ran.output.count('"state": "down"') == len(layout.processes)
