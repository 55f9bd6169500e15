"""The wheel as a stranger gets it: installed without extras into a fresh environment, run in an empty folder.

Every command of ``metaclient`` ends with an answer or with one line that says what to install or to write, never with
a traceback. A command that is added to the tree must be added to ``RUNS``.
"""

import dataclasses
import json
import os
import signal
import subprocess
import venv
import zipfile
from pathlib import Path

import pytest

from tests.wheels import INSTALL_S, built_wheel

pytestmark = pytest.mark.slow

#: Of one command, on a machine that does much else; the slowest takes two seconds by itself.
COMMAND_S = 120

#: Prints the path of every command, and how its --help ends, as one JSON document.
WALK = """
import json, sys
import click
from click.testing import CliRunner
from metaclient.cli import main

found = []
def walk(command, path):
    result = CliRunner().invoke(main, [*path, "--help"])
    is_group = isinstance(command, click.Group)
    found.append({"path": path, "is_group": is_group, "code": result.exit_code, "error": repr(result.exception)})
    if is_group:
        context = click.Context(command)
        for name in command.list_commands(context):
            walk(command.get_command(context, name), [*path, name])
walk(main, [])
json.dump(found, sys.stdout)
"""

SIM = "pip install 'hbase-metaclient[sim]'"
SPARK = "pip install 'hbase-metaclient[spark]'"
NATIVE = "pip install 'hbase-metaclient[native]'"
BENCH = "pip install 'hbase-metaclient[bench]'"
GATEWAY = "--url thrift2://127.0.0.1:1"
FAKE = "--url fake:"

#: Arguments -> exit code and what the output must say.
RUNS: dict[str, tuple[int, str]] = {
    "tables": (2, "METACLIENT_URL"),
    "doctor --config site": (2, "hbase.zookeeper.quorum"),
    f"tables {FAKE}": (0, "0 tables"),
    f"watch {FAKE} --for 1": (0, "Replicas of hbase:meta"),
    "tables --url hbase://127.0.0.1:1": (1, NATIVE),
    "tables --url thrift2://127.0.0.1:1": (1, "127.0.0.1:1"),
    "tables --url 127.0.0.1:9090": (1, "thrift2://127.0.0.1:9090"),
    f"create t cf {FAKE}": (0, "metaclient fake serve"),
    f"get t r {FAKE}": (1, "TableNotFound"),
    f"put t r cf:a=1 {FAKE}": (1, "TableNotFound"),
    f"delete t r {FAKE}": (1, "TableNotFound"),
    f"scan t {FAKE}": (1, "TableNotFound"),
    f"describe t {FAKE}": (1, "TableNotFound"),
    f"alter t --replicas 2 {FAKE}": (1, "TableNotFound"),
    f"truncate t --yes {FAKE}": (1, "TableNotFound"),
    f"count t {FAKE}": (1, "TableNotFound"),
    f"namespaces list {FAKE}": (0, "default"),
    f"namespaces create own {FAKE}": (0, "own created"),
    f"namespaces delete own {FAKE}": (1, "own"),
    f"drop t --yes {FAKE}": (1, "TableNotFound"),
    f"locate t r {FAKE}": (1, "TableNotFound"),
    f"regions t {FAKE}": (1, "TableNotFound"),
    f"meta {FAKE}": (0, "LoadBalance"),
    f"doctor {FAKE}": (0, "replica 0"),
    f"changes list {FAKE}": (0, "0 subscriptions"),
    f"changes create n t {FAKE}": (1, "TableNotFound"),
    f"changes remove n --yes {FAKE}": (1, "RequestRefused"),
    f"changes status n {FAKE}": (1, "RequestRefused"),
    f"changes tail t --name n {FAKE}": (1, "TableNotFound"),
    f"changes receive t --name n --spool spool {FAKE}": (1, "TableNotFound"),
    f"changes doctor {FAKE}": (0, "nothing is wrong"),
    f"replication list {FAKE}": (0, "0 peers"),
    f"whoami {FAKE}": (1, "hbase+rpc://"),
    f"replication add west nonsense {FAKE}": (1, "Invalid cluster key: nonsense"),
    f"replication update west --bandwidth 1 {FAKE}": (1, "RequestRefused"),
    f"replication enable west {FAKE}": (1, "RequestRefused"),
    f"replication disable west {FAKE}": (1, "RequestRefused"),
    f"replication remove west --yes {FAKE}": (1, "RequestRefused"),
    f"replication status {FAKE}": (0, "server"),
    "replication verify fake: fake: t": (1, "TableNotFound"),
    f"shell {FAKE} -e list": (0, "0 tables"),
    "completion bash": (0, "_METACLIENT_COMPLETE"),
    "demo": (1, SIM),
    "sim run --seeds 1": (1, SIM),
    "sim replay 1": (1, SIM),
    "sim defects": (0, "defect"),
    "bench list": (0, "fake-calls"),
    "bench run meta-balance --quick": (1, SIM),
    "bench run fake-calls --quick": (1, BENCH),
    f"spark row-count t {GATEWAY}": (1, SPARK),
    f"spark copy-table t {GATEWAY}": (1, SPARK),
    f"spark verify-replication t {GATEWAY}": (1, SPARK),
    f"spark read t {GATEWAY}": (1, SPARK),
    "hbase up": (1, "Maven"),
    "hbase down": (1, "metaclient hbase up"),
    "hbase status": (1, "metaclient hbase up"),
    "hbase kill rs1": (1, "metaclient hbase up"),
    "hbase pause rs1": (1, "metaclient hbase up"),
    "hbase resume rs1": (1, "metaclient hbase up"),
    "hbase stop rs1": (1, "metaclient hbase up"),
    "hbase start rs1": (1, "metaclient hbase up"),
}
#: Until a signal ends it; it has a test of its own.
ENDLESS = ["fake", "serve"]


#: What the wheel puts at the top of site-packages. Names such as "adapters" belong to other projects.
TOP_LEVEL = {
    "metaclient",
    "metaclient_bench",
    "metaclient_fake",
    "metaclient_local_hbase",
    "metaclient_native",
    "metaclient_thrift",
    "pyspark_hbase",  # Spark looks for packages that begin with pyspark_
    "spark_connector",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Installed:
    """An environment that has the wheel and nothing of its extras, and the empty folder to run it in."""

    bin: Path
    folder: Path
    environment: dict[str, str]
    wheel: Path

    def start(self, *arguments: str, program: str = "metaclient") -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self.bin / program), *arguments],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, program: str = "metaclient") -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        with self.start(*arguments, program=program) as running:
            try:
                out, err = running.communicate(timeout=COMMAND_S)
            except subprocess.TimeoutExpired:
                running.kill()
                raise
        return running.returncode, out, err


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    base = tmp_path_factory.mktemp("wheel")
    wheel = built_wheel(base / "dist")
    venv.create(base / "env", with_pip=True)
    folder = base / "empty"
    folder.mkdir()
    (folder / "site").mkdir()
    (folder / "site" / "hbase-site.xml").write_text("<configuration></configuration>\n")
    commands = base / "env" / "bin"
    hidden = ("PYTHON", "METACLIENT", "XDG", "JAVA")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    pip = [str(commands / "python"), "-m", "pip", "install", "--quiet", "--no-input", str(wheel)]
    done = subprocess.run(pip, cwd=folder, env=environment, capture_output=True, text=True, timeout=INSTALL_S)
    assert done.returncode == 0, done.stderr
    # No Java and no Maven: the machine of a stranger.
    poor = {**environment, "PATH": str(commands), "HOME": str(base), "COLUMNS": "200"}
    return Installed(commands, folder, poor, wheel)


def check(outcome: tuple[int, str, str], code: int, words: str) -> None:
    shown = "\n".join(map(str, outcome))
    assert "Traceback" not in shown, shown
    assert outcome[0] == code, shown
    assert words in " ".join(shown.split()), shown


def test_the_wheel_takes_no_name_of_another_project(installed: Installed) -> None:
    with zipfile.ZipFile(installed.wheel) as wheel:
        names = {name.partition("/")[0] for name in wheel.namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == TOP_LEVEL


def test_a_folder_of_the_user_named_adapters_does_no_harm(installed: Installed) -> None:
    """A project with a package ``adapters`` of its own, in the folder that it is run in."""
    for name in ("adapters", "benchmarks"):
        (installed.folder / name).mkdir(exist_ok=True)
        (installed.folder / name / "__init__.py").touch()
    program = "import adapters, metaclient; print(metaclient.connect('fake:').tables())"
    check(installed.run("-c", program, program="python"), 0, "[]")


def test_no_command_is_left_out_and_each_has_help_without_extras(installed: Installed) -> None:
    code, out, err = installed.run("-c", WALK, program="python")
    assert code == 0, err
    found = json.loads(out)
    assert [each for each in found if each["code"] != 0] == []
    leaves = [each["path"] for each in found if not each["is_group"]]
    runs = [words.split() for words in RUNS]
    assert [path for path in leaves if path != ENDLESS and not any(run[: len(path)] == path for run in runs)] == []


@pytest.mark.parametrize("words", [(), ("--help",), ("--version",)], ids=" ".join)
def test_the_first_thing_that_a_stranger_types_works_without_extras(
    installed: Installed, words: tuple[str, ...]
) -> None:
    code, out, err = installed.run(*words)
    assert "Traceback" not in err
    assert code in (0, 2)  # without a command, click shows the help and counts it as wrong use
    assert "metaclient" in out + err


@pytest.mark.parametrize("arguments", RUNS)
def test_a_command_without_its_extra_is_no_traceback(installed: Installed, arguments: str) -> None:
    code, words = RUNS[arguments]
    check(installed.run(*arguments.split()), code, words)


@pytest.mark.parametrize("arguments", ["demo", "sim run --seeds 1", f"spark row-count t {GATEWAY}", "tables"])
def test_what_is_missing_is_one_json_document_too(installed: Installed, arguments: str) -> None:
    code, words = RUNS[arguments]
    outcome = installed.run(*arguments.split(), "--json")
    check(outcome, code, words)
    assert words in json.loads(outcome[1])["message"]


def test_the_fake_is_served_without_extras(installed: Installed) -> None:
    with installed.start("fake", "serve", "--json") as serving:
        try:
            assert serving.stdout is not None
            lines = []
            while not lines or lines[-1].rstrip() != "}":
                lines.append(serving.stdout.readline())
                assert lines[-1], "it ended before it said where it is"
            url = json.loads("".join(lines))["thrift2_url"]
            check(installed.run("create", "t", "cf", "--url", url), 0, "t created with 1 region")
            check(installed.run("tables", "--url", url), 0, "1 table")
        finally:
            serving.send_signal(signal.SIGTERM)
            serving.wait(COMMAND_S)
    assert serving.returncode == 0
