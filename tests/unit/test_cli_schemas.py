"""The commands that describe and change tables and namespaces, and that count rows."""

import json
from collections.abc import Iterator
from itertools import count

import pytest
from click.testing import Result

from metaclient.cli import main
from metaclient.connection import connect
from tests.command_runner import command_runner

URL = "fake:cli-schemas"
NUMBERS = count(1)


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with connect(URL):
        yield


@pytest.fixture
def table() -> str:
    """A table of four rows, whose name no other test has."""
    name = f"t{next(NUMBERS)}"
    with connect(URL) as connection:
        connection.create_table(name, {"cf": {"max_versions": 2}, "old": {}}, splits=[b"m"])
        for row in (b"a", b"b", b"x", b"y"):
            connection.table(name).put(row, {b"cf:q": b"1", b"old:q": b"2"})
    return name


def run(*arguments: str, url: str = URL, answer: str = "") -> Result:
    return command_runner().invoke(main, [*arguments, "--url", url], input=answer)


def document(*arguments: str) -> dict:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stdout + result.stderr
    return json.loads(result.stdout)


def test_describe_shows_what_create_was_given(table: str) -> None:
    found = document("describe", table)
    assert found["enabled"] is True
    assert found["region_replication"] == 1
    assert {name: settings["max_versions"] for name, settings in found["families"].items()} == {"cf": 2, "old": 3}
    assert "1 copy of each region" in run("describe", table).stdout


def test_alter_changes_what_is_named_and_nothing_else(table: str) -> None:
    document("alter", table, "cf:max_versions=5", "cf:in_memory=true", "--replicas", "2", "--add-family", "new")
    found = document("describe", table)
    assert found["region_replication"] == 2
    assert sorted(found["families"]) == ["cf", "new", "old"]
    assert (found["families"]["cf"]["max_versions"], found["families"]["cf"]["in_memory"]) == (5, True)
    assert found["families"]["cf"]["time_to_live"] is None
    assert document("count", table)["rows"] == 4


def test_family_is_dropped_only_when_the_user_agrees(table: str) -> None:
    assert run("alter", table, "--drop-family", "old", answer="n\n").exit_code == 1
    assert sorted(document("describe", table)["families"]) == ["cf", "old"]
    refused = run("alter", table, "--drop-family", "old", "--json")
    assert (refused.exit_code, "--yes" in refused.stderr) == (2, True)
    document("alter", table, "--drop-family", "old", "--yes")
    assert sorted(document("describe", table)["families"]) == ["cf"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cf"], "FAMILY:OPTION=VALUE"),
        (["cf:max_version=3"], "did you mean 'max_versions'"),
        (["typo:max_versions=3"], "--add-family typo"),
        ([], "nothing of table"),
    ],
)
def test_wrong_use_of_alter_says_what_to_write(table: str, arguments: list[str], message: str) -> None:
    result = run("alter", table, *arguments)
    assert result.exit_code in (1, 2)
    assert message in result.stderr
    assert document("describe", table)["families"]["cf"]["max_versions"] == 2


@pytest.mark.parametrize(("option", "regions"), [("--preserve-splits", 2), ("--no-preserve-splits", 1)])
def test_truncate_deletes_the_rows(table: str, option: str, regions: int) -> None:
    assert run("truncate", table, answer="n\n").exit_code == 1
    assert document("count", table)["rows"] == 4
    document("truncate", table, option, "--yes")
    assert document("count", table)["rows"] == 0
    with connect(URL, meta_mode="None") as connection:
        assert len(connection.regions(table)) == regions


def test_count_takes_a_range_and_a_prefix(table: str) -> None:
    assert document("count", table, "--start", "b")["rows"] == 3
    assert document("count", table, "--start", "b", "--stop", "y")["rows"] == 2
    assert document("count", table, "--prefix", "x")["rows"] == 1
    assert "4 rows" in run("count", table).stdout


def test_namespaces_are_created_listed_and_deleted() -> None:
    document("namespaces", "create", "own")
    assert document("namespaces", "list")["namespaces"] == ["default", "hbase", "own"]
    assert "default" in run("namespaces", "list").stdout
    document("namespaces", "delete", "own")
    assert document("namespaces", "list")["namespaces"] == ["default", "hbase"]
    assert "letters, digits" in run("namespaces", "create", "a b").stderr
