"""Spark Connect: the session has no JVM of its own, and everything works without locality."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.spark.connect_program import ROWS
from tests.spark.served import Served

pytest.importorskip("grpc", reason="Spark Connect needs the extra 'connect'")

#: It starts a JVM and, for each kind of job, Python workers; a hang must not hold up the other tests.
WAIT_S_MAX = 240


@pytest.mark.essential
def test_everything_works_by_connect(hbase: Served) -> None:
    with hbase.connect() as connection:
        connection.create_table("t", {"cf": {}}, splits=[b"200", b"400"])
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.connect_program", hbase.url],
            capture_output=True,
            text=True,
            timeout=WAIT_S_MAX,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout.splitlines()[-1])
        assert len(list(connection.table("copy").scan())) == ROWS
    lookups = found.pop("lookups")
    assert found == {
        "is_connect": True,
        "loaded": ROWS,
        "high": [str(number) for number in range(590, 600)],
        "one load, two filters": [1, 3],
        "one table, two filters": [1, 4],
        "joined": [{"id": "007", "i": 7, "name": "n-7"}],
        "counted": ROWS,
        "copied": ROWS,
    }
    assert lookups["total"] > 0
    assert "0" not in lookups["reads_by_replica"]
