"""A stream of changes on Spark's standalone cluster: a fake HBase that is served and published, a receiver, a spool."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import metaclient
from metaclient import Connection
from metaclient.runtime import ThreadRuntime
from metaclient.testing import FakeCluster
from metaclient.wire import publication
from tests.spark.patience import patiently
from tests.spark.releases import HAS_READ_LIMITS, needs_sinks
from tests.spark.test_jobs import raw_cells
from tests.test_readme import examples
from tests.unit.replication.zookeeper_server import ZooKeeperServer

pytest.importorskip("kazoo")

WAIT_S = 240.0
SOON = {"peer_replication_retry_pause_s": 0.02, "peer_replication_retry_multiplier_max": 2}
FAMILIES = {"d": {"replication_scope": 1, "max_versions": 1000, "keep_deleted_cells": "TRUE"}}


@pytest.fixture
def runtime() -> Iterator[ThreadRuntime]:
    with ThreadRuntime(name="test") as made:
        yield made


@pytest.fixture
def url(runtime: ThreadRuntime, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A fake cluster that is, as far as a client can tell, an HBase."""
    monkeypatch.setattr(publication, "PERIOD_S", 0.02)
    zookeeper = ZooKeeperServer(runtime)
    with FakeCluster(servers=2, meta_replicas=1, config=SOON) as cluster:
        key = zookeeper.key("/hbase")
        cluster.serve(thrift1_port=None, thrift2_port=None, rpc_port=0).publish(key)
        yield f"hbase://{key.rpartition(':')[0]}/hbase"
    zookeeper.close()


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    with metaclient.connect(url) as made:
        made.create_table("t", FAMILIES, splits=[b"5"])
        yield made


def wait_until(runtime: ThreadRuntime, is_true: Callable[[], bool], query: Any = None) -> None:
    until = runtime.now() + WAIT_S
    while not is_true():
        if query is not None and query.exception() is not None:
            raise query.exception()
        assert runtime.now() < until
        runtime.sleep(0.05)


def stream(spark: Any, spool: Path, **options: Any) -> Any:
    given = {"hbase.spark.stream.source": "wal", "hbase.spark.stream.spool": str(spool), **options}
    return spark.readStream.format("hbase").options(**given).load()


def test_driver_receives_and_goes_on_from_its_checkpoint(
    spark: Any, runtime: ThreadRuntime, connection: Connection, url: str, tmp_path: Path
) -> None:
    seen: list[tuple[int, bytes, int]] = []
    table = connection.table("t")

    def collect(batch: Any, number: int) -> None:
        seen.extend((number, bytes(row.row), row.sequence) for row in batch.collect())

    def start() -> Any:
        frame = stream(
            spark, tmp_path / "spool", url=url, **{"hbase.table": "t", "hbase.spark.stream.receiver": "driver"}
        )
        writer = frame.writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.trigger(processingTime="2 seconds").start()

    query = start()
    try:
        wait_until(runtime, lambda: (tmp_path / "spool" / "driver" / "position").exists(), query)
        for number in range(10):
            table.put(b"%d" % number, {b"d:name": b"first"})
        wait_until(runtime, lambda: len(seen) >= 10, query)
    finally:
        query.stop()
    for number in range(10):  # while nothing runs: the cluster keeps them
        table.put(b"%d" % number, {b"d:name": b"second"})
    table.delete(b"3")
    query = start()
    try:
        wait_until(runtime, lambda: len(seen) >= 21, query)
    finally:
        query.stop()
    once = set(seen)  # a batch that was stopped before its commit runs again, with its number and its rows
    assert sorted(row for _, row, _ in once) == sorted([b"%d" % number for number in range(10)] * 2 + [b"3"])
    assert len({(row, sequence) for _, row, sequence in once}) == 21


@pytest.fixture
def receiver(runtime: ThreadRuntime, connection: Connection, url: str, tmp_path: Path) -> Iterator[Any]:
    """The command, which the test kills and starts again."""
    command = [sys.executable, "-m", "metaclient", "changes", "receive", "t", "--name", "lake"]
    command += ["--spool", str(tmp_path / "spool"), "--worker", "w", "--url", url]
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(command))
        wait_until(runtime, lambda: (tmp_path / "spool" / "w" / "position").exists())
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def ended(query: Any) -> None:
    try:
        assert query.awaitTermination(WAIT_S)
    finally:
        query.stop()


@needs_sinks
@pytest.mark.essential
def test_stream_into_our_sink_is_the_same_table_after_kills_and_restarts(
    spark: Any, runtime: ThreadRuntime, connection: Connection, url: str, receiver: Any, tmp_path: Path
) -> None:
    """ "effectively once into our own sink": cells with their own timestamps and markers, in the layout raw."""
    connection.create_table("copy", FAMILIES)
    process = receiver()
    table = connection.table("t")

    def copy_now() -> None:
        limits = {"maxBytesPerTrigger": 6000} if HAS_READ_LIMITS else {}
        frame = stream(spark, tmp_path / "spool", **limits, **{"hbase.table": "t"})
        cells = frame.select("row", "family", "qualifier", "timestamp", "type", "value")
        writer = cells.writeStream.format("hbase").option("url", url).option("hbase.table", "copy")
        writer = writer.option("hbase.spark.query.layout", "raw")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        patiently(lambda: ended(writer.trigger(availableNow=True).start()))

    for number in range(60):
        table.put(b"%02d" % (number % 20), {b"d:name": b"%d" % number})
        if number % 9 == 0:
            table.delete(b"%02d" % (number % 20), [b"d:name"])
        if number == 20:
            copy_now()
        if number == 30:
            process.send_signal(signal.SIGKILL)
            process.wait()
            process = receiver()
    wanted = raw_cells(connection, "t")

    def is_copied() -> bool:
        copy_now()
        return raw_cells(connection, "copy") == wanted

    wait_until(runtime, is_copied)
    assert sum(len(cells) for _, cells in wanted) > 60


GUIDE = Path(__file__).resolve().parents[2] / "docs" / "changes.md"
CATALOG = json.dumps(
    {
        "table": {"name": "t"},
        "rowkey": "id",
        "columns": {
            "id": {"cf": "rowkey", "col": "id", "type": "string"},
            "name": {"cf": "d", "col": "name", "type": "string"},
            "city": {"cf": "d", "col": "city", "type": "string"},
        },
    }
)


def test_upsert_of_the_guide_keeps_a_lake_equal_to_the_table(
    spark: Any, runtime: ThreadRuntime, connection: Connection, receiver: Any, tmp_path: Path
) -> None:
    """The code of docs/changes.md runs as it stands, twice: the second time from its checkpoint."""
    receiver()
    table = connection.table("t")
    codes = [example.code for example in examples(GUIDE.read_text(encoding="utf-8")) if example.skip == "needs Spark"]
    assert len(codes) == 2
    folder = {name: str(tmp_path / name) for name in ("spool", "lake", "checkpoint")}
    namespace: dict[str, Any] = {"spark": spark, "catalog": CATALOG, **folder}

    def lake() -> dict[str, tuple[Any, Any]]:
        for code in codes:
            patiently(lambda code=code: exec(code, namespace))  # type: ignore[misc]  # a default binds the variable
        if not list(Path(folder["lake"]).glob("v*")):
            return {}
        return {row.id: (row.name, row.city) for row in namespace["rows_of_lake"]().collect()}

    table.put(b"1", {b"d:name": b"Ann", b"d:city": b"Bonn"})
    table.put(b"2", {b"d:name": b"Bob", b"d:city": b"Kiel"})
    table.put(b"1", {b"d:name": b"Anna"})
    wait_until(runtime, lambda: lake() == {"1": ("Anna", "Bonn"), "2": ("Bob", "Kiel")})
    table.delete(b"2")
    table.delete(b"1", [b"d:city"])
    table.put(b"3", {b"d:name": b"Cem"})
    wait_until(runtime, lambda: lake() == {"1": ("Anna", None), "3": ("Cem", None)})
