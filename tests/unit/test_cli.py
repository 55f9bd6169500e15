"""The command line: one JSON document, exit codes, and errors that say what to do."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st

from metaclient.cli import main
from metaclient.cli.doctor import examine
from metaclient.cli.session import from_text, to_text
from metaclient.connection import Connection, connect
from metaclient.runtime import SimRuntime
from metaclient_fake import FakeCluster
from tests.command_runner import command_runner

URL = "fake:cli-tests"


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """A named cluster outlives each command's own connection."""
    with connect(URL) as connection:
        connection.create_table("t", {"cf": {"max_versions": 3}}, splits=[b"m"])
        connection.table("t").put(b"a", {b"cf:x": b"1"})
        connection.table("t").put(b"z\x00", {b"cf:y": b"\xff"})
        yield


def run(*arguments: str, url: str = URL) -> Result:
    return command_runner().invoke(main, [*arguments, "--url", url])


def document(*arguments: str) -> dict:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stdout + result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (["demo"], "--url"),
        (["demo"], "--meta-mode"),
        (["fake", "serve"], "--url"),
        (["fake", "serve"], "--meta-mode"),
        (["hbase", "up"], "--url"),
        (["hbase", "status"], "--meta-mode"),
        (["hbase", "kill", "master"], "--url"),
    ],
)
def test_option_without_meaning_is_no_option_of_the_command(command: list[str], option: str) -> None:
    result = command_runner().invoke(main, [*command, option, "fake:"])
    assert result.exit_code == 2
    assert f"No such option '{option}'" in (result.stdout + result.stderr).replace(f": {option}", f" '{option}'")
    assert option not in command_runner().invoke(main, [*command, "--help"]).stdout


def test_url_of_the_environment_does_not_stop_commands_without_a_cluster(tmp_path: Path) -> None:
    result = command_runner().invoke(
        main, ["hbase", "status", "--folder", str(tmp_path)], env={"METACLIENT_URL": "thrift2://gw"}
    )
    assert "metaclient hbase up" in result.stderr


def test_get_prints_one_json_document_with_where_the_row_came_from() -> None:
    found = document("get", "t", "a")
    assert found["cells"]["cf:x"]["value"] == "1"
    assert (found["stale"], found["replica_id"]) == (False, 0)
    assert found["server"]


def test_bytes_go_in_and_come_out_escaped() -> None:
    assert document("get", "t", r"z\x00")["cells"]["cf:y"]["value"] == r"\xFF"


def test_put_then_scan_then_delete() -> None:
    assert document("put", "t", "new", "cf:a=1", "cf:b=x=y")["written"] == 2
    rows = document("scan", "t", "--prefix", "new")["rows"]
    assert {name: cell["value"] for name, cell in rows[0]["cells"].items()} == {"cf:a": "1", "cf:b": "x=y"}
    document("delete", "t", "new")
    assert document("get", "t", "new")["found"] is False


def test_scan_in_reverse_with_a_limit() -> None:
    rows = document("scan", "t", "--reverse", "--limit", "1")["rows"]
    assert [row["row"] for row in rows] == [r"z\x00"]


def test_create_lists_locates_and_drops() -> None:
    document("create", "made", "cf", "--split", "g", "--split", "p", "--versions", "2")
    assert "made" in document("tables")["tables"]
    regions = document("regions", "made")["regions"]
    assert [(region["start"], region["end"]) for region in regions] == [("", "g"), ("g", "p"), ("p", "")]
    assert document("locate", "made", "h")["start"] == "g"
    document("drop", "made", "--yes")
    assert "made" not in document("tables")["tables"]


def test_meta_counts_who_served_the_lookups() -> None:
    found = document("meta", "--lookups", "10", "--table", "t")
    served = {replica["id"]: replica["lookups"] for replica in found["replicas"]}
    assert found["mode"] == "LoadBalance"
    assert sum(served.values()) >= 10


def test_meta_table_wraps_no_cell_on_a_terminal_of_80_columns() -> None:
    result = run("meta", "--lookups", "10", "--table", "t")
    rows = [line for line in result.stdout.splitlines() if "healthy" in line]
    assert len(rows) == 3
    for replica_id, line in enumerate(rows):
        assert re.match(rf"{replica_id} +│ rs\d+:16020 +│ healthy +│ \d+ +│ \d+% ", line), line
    assert result.stdout.splitlines()[-3:] == rows, "a cell continues on a line of its own"


@pytest.mark.parametrize(
    "arguments",
    [("get", "t", "a"), ("scan", "t"), ("tables",), ("regions", "t"), ("locate", "t", "a"), ("meta",)],
    ids=lambda arguments: arguments[0],
)
def test_people_get_text_and_exit_code_0(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 0
    assert result.stdout.strip()


def test_a_failure_is_exit_code_1_with_the_error_as_json_and_as_a_line() -> None:
    result = run("get", "nope", "a", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["error"] == "TableNotFound"
    assert result.stderr.startswith("TableNotFound: ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("get", "t", ""), "row"),
        (("get", "t", r"\xZZ"), "hexadecimal"),
        (("put", "t", "r", "cf:a"), "COLUMN=VALUE"),
        (("put", "t", "r", "nofamily=1"), "family"),
        (("drop", "t", "--json"), "--yes"),
        (("get", "t", "a", "--consistency", "EVENTUAL"), "timeline"),
    ],
)
def test_wrong_use_is_exit_code_2_and_says_what_is_right(arguments: tuple[str, ...], words: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert words.lower() in result.stderr.lower()  # click 8.1 writes choices as they are declared, 8.2 in lower case


def test_an_unknown_url_names_the_known_ones() -> None:
    result = run("tables", url="hbse:")
    assert result.exit_code in (1, 2)
    assert "no backend is registered" in result.stderr


def test_commands_of_other_packages_are_listed_and_found() -> None:
    assert "bench" in command_runner().invoke(main, ["--help"]).stdout
    assert command_runner().invoke(main, ["bench", "--help"]).exit_code == 0


def test_the_demo_shows_all_modes_and_that_ours_leaves_the_primary_alone() -> None:
    """README: "LoadBalance ... 0 %" of the storm at the primary, and no failed lookup in trouble."""
    result = command_runner().invoke(main, ["demo", "--json"])
    assert result.exit_code == 0, result.stdout + result.stderr
    modes = {mode["mode"]: mode for mode in json.loads(result.stdout)["modes"]}
    assert set(modes) == {"None (the default)", "HedgedRead", "Java's LoadBalance", "LoadBalance"}
    ours, default, java = modes["LoadBalance"], modes["None (the default)"], modes["Java's LoadBalance"]
    assert ours["primary_share"] <= 0.01
    assert default["primary_share"] == 1.0
    assert 0.2 < java["primary_share"] < 0.5
    assert ours["lookups_failed"] == 0
    assert ours["longest_wait_s"] < 2.0 < default["longest_wait_s"]
    assert min(ours["lookups_per_second"][:-1]) > 0
    assert 0 in java["lookups_per_second"]


@given(st.binary())
def test_text_and_bytes_are_each_others_inverse(data: bytes) -> None:
    assert from_text(to_text(data)) == data


def test_a_broken_escape_is_wrong_use() -> None:
    with pytest.raises(click.UsageError, match="hexadecimal"):
        from_text(r"\x4")


def test_doctor_finds_a_healthy_cluster_good() -> None:
    with connect("fake:doctor-good?servers=5&meta_replicas=3") as connection:
        connection.create_table("t", {"cf": {}}, splits=[b"m"])
        result = run("doctor", "--json", url="fake:doctor-good")
        assert result.exit_code == 0
        verdicts = json.loads(result.stdout)["verdicts"]
        assert {verdict["level"] for verdict in verdicts} == {"good"}, verdicts
        assert [verdict["about"] for verdict in verdicts][2:5] == ["replica 0", "replica 1", "replica 2"]
        assert "2 rows read, all equal to the primary" in verdicts[3]["found"]


def test_doctor_names_the_copy_that_cannot_be_read_and_fails() -> None:
    with (
        SimRuntime() as runtime,
        FakeCluster(servers=4, meta_replicas=3, runtime=runtime) as cluster,
        cluster.connect(operation_timeout_s=5) as connection,
    ):
        connection.create_table("t", {"cf": {}})
        cluster.pause(cluster.meta_server(2), keeps_session=True)
        levels = {verdict.about: verdict.level for verdict in examine(connection)}
    assert (levels["replica 1"], levels["replica 2"]) == ("good", "bad")


def test_doctor_tells_a_lagging_copy_what_to_set() -> None:
    with (
        SimRuntime() as runtime,
        FakeCluster(servers=4, meta_replicas=2, runtime=runtime) as cluster,
        cluster.connect() as connection,
    ):
        cluster.partition(cluster.meta_server(0), cluster.meta_server(1))
        connection.create_table("t", {"cf": {}})
        found = [verdict for verdict in examine(connection) if verdict.about == "replica 1"]
    assert found[0].level == "warning"
    assert "hbase.region.replica.replication.catalog.enabled" in found[0].advice


def test_doctor_of_a_cluster_with_one_copy_says_what_to_set() -> None:
    result = run("doctor", url="fake:?meta_replicas=1")
    assert result.exit_code == 0
    assert "the registry names 1 meta replica\n" in result.stdout
    assert "alter 'hbase:meta', {REGION_REPLICATION => 3}" in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("reported", "given", "advised", "not_advised"),
    [
        ("2.6.1", None, "alter 'hbase:meta', {REGION_REPLICATION => 3}", "hbase.meta.replica.count"),
        ("3.0.0-alpha-4", None, "metaclient alter hbase:meta --replicas 3", "hbase.meta.replica.count"),
        ("2.3.7", None, "hbase.meta.replica.count=3", "alter 'hbase:meta'"),
        (None, "2.3.7", "hbase.meta.replica.count=3", "alter 'hbase:meta'"),
        (None, "2.4.0", "alter 'hbase:meta'", "hbase.meta.replica.count"),
        (None, None, "before 2.4: set hbase.meta.replica.count=3", "nothing else"),
    ],
)
def test_doctor_advises_by_the_version_of_hbase(
    monkeypatch: pytest.MonkeyPatch, reported: str | None, given: str | None, advised: str, not_advised: str
) -> None:
    """HBASE-18070 and the alteration of hbase:meta came with 2.4; before, the master reads a property."""
    monkeypatch.setattr(Connection, "hbase_version", lambda self: reported)
    options = ["--hbase-version", given] if given else []
    result = run("doctor", *options, url="fake:?meta_replicas=1")
    shown = " ".join(result.stdout.split())
    assert advised in shown
    assert not_advised not in shown
    assert f"HBase {reported or given or 'of unknown version'}" in shown


@pytest.mark.parametrize(
    ("reported", "advised"),
    [
        ("2.6.1", "hbase.region.replica.replication.catalog.enabled=true"),
        ("2.2.5", "hbase.regionserver.meta.storefile.refresh.period=30000"),
    ],
)
def test_doctor_advises_how_copies_become_fresh(monkeypatch: pytest.MonkeyPatch, reported: str, advised: str) -> None:
    monkeypatch.setattr(Connection, "hbase_version", lambda self: reported)
    with (
        SimRuntime() as runtime,
        FakeCluster(servers=4, meta_replicas=2, runtime=runtime) as cluster,
        cluster.connect() as connection,
    ):
        cluster.partition(cluster.meta_server(0), cluster.meta_server(1))
        connection.create_table("t", {"cf": {}})
        (found,) = [verdict for verdict in examine(connection) if verdict.about == "replica 1"]
    assert advised in found.advice


def test_doctor_refuses_a_version_that_is_none() -> None:
    result = run("doctor", "--hbase-version", "new")
    assert result.exit_code == 2
    assert "a version of HBase is like 2.6.1, got 'new'" in result.stderr


def test_a_scan_that_stops_at_its_limit_says_that_there_is_more_and_how_to_see_it() -> None:
    result = run("scan", "t", "--limit", "1")
    assert "1 row\n" in result.stdout
    assert "there are more rows" in result.stderr
    assert r"--start 'z\x00'" in result.stderr
    assert [row["row"] for row in document("scan", "t", "--start", r"z\x00")["rows"]] == [r"z\x00"]


@pytest.mark.parametrize(("limit", "rows", "following"), [("1", 1, r"z\x00"), ("2", 2, None), ("1000", 2, None)])
def test_a_scan_as_json_names_the_row_that_follows(limit: str, rows: int, following: str | None) -> None:
    found = document("scan", "t", "--limit", limit)
    assert (len(found["rows"]), found["next"]) == (rows, following)
    assert ("there are more rows" in run("scan", "t", "--limit", limit, "--json").stderr) is (rows == 1)


def test_a_complete_scan_says_nothing_about_more() -> None:
    assert "more rows" not in run("scan", "t").stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("tables",), "1 table\n"),
        (("get", "t", "a"), "1 cell from"),
        (("put", "t", "a", "cf:x=1"), "1 cell written"),
        (("scan", "t", "--prefix", "a"), "1 row\n"),
        (("create", "singular", "cf"), "created with 1 region\n"),
        (("regions", "singular"), "1 region replica\n"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_one_is_singular(arguments: tuple[str, ...], words: str) -> None:
    assert words in run(*arguments).stdout
