"""``metaclient spark ...``: each command in a process of its own, with Spark in local mode, as people run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TIMEOUT_S = 280


def metaclient(*arguments: str, url: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "COLUMNS": "200"}
    environment.pop("METACLIENT_URL", None)
    command = [sys.executable, "-m", "spark_connector", *arguments]
    if url is not None:
        command += ["--url", url, "--master", "local[2]"]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=environment, cwd=ROOT
    )


ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def table(hbase: Any) -> Any:
    with hbase.connect() as connection:
        connection.create_table("t", {"cf": {}}, splits=[b"r5"])
        for number in range(10):
            connection.table("t").put(b"r%d" % number, {b"cf:name": b"n%d" % number}, timestamp=100)
    return hbase


def document(done: subprocess.CompletedProcess[str]) -> Any:
    """All of standard output is one JSON document."""
    assert done.stdout, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_row_count(table: Any) -> None:
    done = metaclient("row-count", "t", "--start", "r3", "--json", url=table.url)
    assert (done.returncode, document(done)) == (0, {"table": "t", "rows": 7})


def test_a_count_that_was_not_expected_fails(table: Any) -> None:
    done = metaclient("row-count", "t", "--expected", "11", "--json", url=table.url)
    assert done.returncode == 1
    assert document(done)["error"] == "UnexpectedCount"
    assert "has 10 rows, not the expected 11" in done.stderr


def test_copy_then_verify(table: Any) -> None:
    done = metaclient("copy-table", "t", "--to-table", "u", "--create", "--json", url=table.url)
    assert done.returncode == 0, done.stderr[-2000:]
    assert {name: document(done)[name] for name in ("rows", "cells")} == {"rows": 10, "cells": 10}
    with table.connect() as connection:
        connection.table("u").delete(b"r4")
    wrong = metaclient("verify-replication", "t", "--peer-table", "u", "--json", url=table.url)
    assert wrong.returncode == 1
    assert document(wrong)["counters"]["GOODROWS"] == 9
    assert document(wrong)["differences"] == [{"verdict": "ONLY_IN_SOURCE", "row": "r4", "detail": None}]


def test_read_for_people_and_as_json(table: Any, tmp_path: Path, catalog: str) -> None:
    shown = metaclient("read", "t", "--limit", "3", url=table.url)
    assert shown.returncode == 0, shown.stderr[-2000:]
    assert "3 rows" in shown.stdout
    file = tmp_path / "catalog.json"
    file.write_text(catalog)
    given = ("--catalog", str(file), "--columns", "name", "--where", "id >= 'r8'", "--json")
    done = metaclient("read", *given, url=table.url)
    assert document(done) == {"columns": ["name"], "rows": [{"name": "n8"}, {"name": "n9"}]}


def test_a_failure_in_spark_is_one_line(table: Any) -> None:
    done = metaclient("row-count", "nosuch", "--json", url=table.url)
    assert done.returncode == 1
    assert document(done)["error"] == "TableNotFound"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("row-count", "t"), "--url"),
        (("row-count",), "TABLE"),
        (("read", "--url", "thrift2://127.0.0.1:1"), "--catalog"),
        (("row-count", "t", "--url", "thrift2://127.0.0.1:1", "--conf", "x"), "NAME=VALUE"),
    ],
)
def test_wrong_use_is_exit_code_2_and_starts_no_spark(arguments: tuple[str, ...], message: str) -> None:
    done = metaclient(*arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_metaclient_finds_the_command() -> None:
    """``metaclient spark`` is this package's, by entry point."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["metaclient.commands"]["spark"] == "spark_connector.cli:spark"
