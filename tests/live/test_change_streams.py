"""Streams of Spark over the changes of a real HBase: regions move, split and merge; servers, receivers and queries end.

Three subscriptions of one table have a receiver and a spool each. The first one is read cell by cell, the second one is
written to another table by our sink, and the third one to a lake by the code of docs/changes.md.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="streams need the extra 'spark'")

from metaclient import Connection
from metaclient.changes import Subscriptions
from metaclient.errors import ConfigError
from metaclient.model import CellType
from metaclient_bench.spark_cluster import SparkCluster
from metaclient_local_hbase import LocalHBase
from spark_connector.settings.session import ensure_java
from tests.live.load import WAIT_S_MAX, left_out, unwatched, wait_until
from tests.live.test_changes import (
    SPLITS,
    Receiver,
    Writer,
    cells_of,
    disturb,
    raw_cells,
    remove,
    state_by_sequence,
    stored_state,
)
from tests.spark.patience import TOO_SLOW, patiently
from tests.spark.releases import HAS_READ_LIMITS, needs_sinks
from tests.test_readme import examples

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "changes.md"
FAMILIES = {"cf": {"replication_scope": 1, "max_versions": 1_000_000, "keep_deleted_cells": "TRUE"}, "local": {}}
#: Between two writes: micro-batches take seconds, and the processor is needed for them.
PAUSE_S = 0.03
CELL = ("row", "family", "qualifier", "timestamp", "type", "value")


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """A session on a standalone cluster of two executors."""
    import spark_connector

    try:
        ensure_java()
    except ConfigError as error:
        left_out(str(error))
    with unwatched():
        cluster = SparkCluster(workers=2)
    with cluster:
        with unwatched():
            session = cluster.session("changes")
        session.sparkContext.setLogLevel("ERROR")
        spark_connector.register(session)
        yield session
        session.stop()


@pytest.fixture
def tables(native: Connection) -> Iterator[tuple[bytes, bytes]]:
    """The table that is written, and an empty one with the same families."""
    made = f"changes_{native.engine.runtime.time_ms()}".encode()
    both = made, made + b"_copy"
    for name in both:
        native.create_table(name, FAMILIES, splits=SPLITS)
    yield both
    for name in both:
        native.delete_table(name, disable=True)


class Query:
    """A query of micro-batches. It is stopped, and started again from its checkpoint."""

    def __init__(self, start: Callable[[], Any]) -> None:
        self._start = start
        self._query = start()
        self.slow_starts = 0

    def check(self) -> None:
        """Raise the error of the query; start it again if Spark was not patient enough with its Python process.

        The callers have deadlines, so that the number of starts has a bound.
        """
        if self._has_ended():
            self.slow_starts += 1
            self._query = self._start()

    def stop(self) -> None:
        self._query.stop()

    def start_again(self) -> None:
        self.stop()
        self._has_ended()
        self._query = self._start()

    def _has_ended(self) -> bool:
        """Return True if the query has failed because its Python process was slow; raise other errors."""
        error = self._query.exception()
        if error is not None and TOO_SLOW not in str(error):
            raise error
        return error is not None


class Cells:
    """The cells that a query has delivered, by micro-batch."""

    def __init__(self) -> None:
        self._batches: dict[int, list[tuple[Any, ...]]] = {}
        self.again = 0

    def collect(self, frame: Any, number: int) -> None:
        """Store a micro-batch. One that runs again must have the same rows."""
        rows = sorted(
            (*map(_plain, row[:-2]), *row[-2:]) for row in frame.select(*CELL, "region", "sequence").collect()
        )
        if number in self._batches:
            self.again += 1
            assert self._batches[number] == rows, f"micro-batch {number} has other rows than in its first run"
        self._batches[number] = rows

    def changes(self) -> list[Any]:
        """Return row, region, sequence and cells of each change; the cells of a change may be in several entries."""
        rows = [row for batch in list(self._batches.values()) for row in batch]
        return [(row[0], row[6], row[7], [(*row[1:4], int(CellType[row[4]]), row[5])]) for row in rows]


def _plain(value: object) -> object:
    return bytes(value).decode() if isinstance(value, bytes | bytearray) else value


def stream(spark: Any, table: bytes, **options: str) -> Any:
    given = {"hbase.spark.stream.source": "wal", "hbase.table": table.decode(), **options}
    return spark.readStream.format("hbase").options(**given).load()


def to_end(query: Any) -> None:
    try:
        assert query.awaitTermination(WAIT_S_MAX)
    finally:
        query.stop()


class Lake:
    """The lake of the guide. Each :meth:`take` runs its code from the checkpoint, to the present end of the spool."""

    def __init__(self, spark: Any, folder: Path, table: bytes) -> None:
        found = examples(GUIDE.read_text(encoding="utf-8"))
        self._codes = [example.code for example in found if example.skip == "needs Spark"]
        assert len(self._codes) == 2
        columns = {"name": "a", "city": "b"}
        catalog = {
            "table": {"name": table.decode()},
            "rowkey": "id",
            "columns": {
                "id": {"cf": "rowkey", "col": "id", "type": "string"},
                **{name: {"cf": "cf", "col": column, "type": "string"} for name, column in columns.items()},
            },
        }
        places = {"spool": folder / "spool", "lake": folder / "lake", "checkpoint": folder / "checkpoint"}
        self._names = {"spark": spark, "catalog": json.dumps(catalog), **{key: str(at) for key, at in places.items()}}

    def take(self) -> None:
        for code in self._codes:
            patiently(lambda code=code: exec(code, self._names))  # type: ignore[misc]  # a default binds the variable

    def state(self) -> dict[str, dict[str, str]]:
        return {
            row.id: {name: value for name, value in (("cf:a", row.name), ("cf:b", row.city)) if value is not None}
            for row in self._names["rows_of_lake"]().collect()
        }


def invented(found: set[tuple[object, ...]], expected: set[tuple[object, ...]]) -> set[tuple[object, ...]]:
    """Return the puts that the table does not have. Its compactions, as after a split, remove delete markers."""
    return {cell for cell in found - expected if cell[4] == CellType.PUT}


@needs_sinks
def test_streams_deliver_every_edit_over_moves_a_split_a_merge_and_killed_processes(
    spark: Any, hbase: LocalHBase, native: Connection, tables: tuple[bytes, bytes], tmp_path: Path, capsys: Any
) -> None:
    table, copy = tables
    runtime = native.engine.runtime
    folders = {kind: tmp_path / kind for kind in ("cells", "copy", "lake")}
    names = {kind: f"{kind}-{table.decode()}" for kind in folders}
    receivers: list[Receiver] = []
    seen, lake, queries = Cells(), Lake(spark, folders["lake"], table), []

    def start_cells() -> Any:
        frame = stream(spark, table, **{"hbase.spark.stream.spool": str(folders["cells"] / "spool")})
        writer = frame.writeStream.foreachBatch(seen.collect).option("checkpointLocation", f"{folders['cells']}/at")
        return writer.trigger(processingTime="2 seconds").start()

    def copy_now() -> None:
        spool = {"hbase.spark.stream.spool": str(folders["copy"] / "spool")}
        if HAS_READ_LIMITS:
            spool["maxBytesPerTrigger"] = "1000000"
        writer = stream(spark, table, **spool).select(*CELL).writeStream.format("hbase")
        writer = writer.option("url", native.url).option("hbase.table", copy.decode())
        writer = writer.option("hbase.spark.query.layout", "raw").option("checkpointLocation", f"{folders['copy']}/at")
        patiently(lambda: to_end(writer.trigger(availableNow=True).start()))

    def kill_consumers() -> None:
        for receiver in receivers:
            receiver.kill_and_start()
        queries[0].start_again()
        copy_now()
        lake.take()

    with unwatched():
        try:
            for kind, folder in folders.items():
                folder.mkdir()
                Subscriptions(native).create(names[kind], [table])
                receivers.append(Receiver(folder, native.url, table, names[kind], serial=False))
            writer = Writer(native, table, pause_s=PAUSE_S)
            for folder in folders.values():
                wait_until((folder / "spool" / "w0" / "position").exists, "the receivers", runtime)
            queries.append(Query(start_cells))

            def wait_for(is_so: Callable[[], bool], what: str) -> None:
                def is_checked() -> bool:
                    queries[0].check()
                    for receiver in receivers:
                        receiver.check_runs()
                    return is_so()

                wait_until(is_checked, what, runtime)

            wait_for(lambda: bool(seen.changes()), "the first change")
            disturb(hbase, native, table, writer, kill_consumers)
            queries[0].start_again()
            writer.write_more()
            writer.stop()
            expected, state = raw_cells(native, table), stored_state(native, table)
            wait_for(lambda: cells_of(seen.changes()) >= expected, "every edit")
            queries[0].stop()
            found = seen.changes()
            assert invented(cells_of(found), expected) == set()
            assert [cell for cell, count in Counter(map(str, found)).items() if count > 1] == []
            assert state_by_sequence(found) == state

            def is_copied() -> bool:
                copy_now()
                return raw_cells(native, copy) >= expected

            def is_in_lake() -> bool:
                lake.take()
                return lake.state() == state

            wait_until(is_copied, "every cell in the copy", runtime)
            assert invented(raw_cells(native, copy), expected) == set()
            assert stored_state(native, copy) == state
            wait_until(is_in_lake, "the lake to equal the table", runtime)
            with capsys.disabled():
                print(
                    f"\nHBase {hbase.version}, Spark {spark.version}: {writer.done} rows written, {len(expected)} "
                    f"cells stored, {len(found)} cells delivered once each; {seen.again} micro-batches ran again, "
                    f"{queries[0].slow_starts} slow starts of the query"
                )
        finally:
            for query in queries:
                query.stop()
            for receiver in receivers:
                receiver.end()
            for name in names.values():
                remove(native, name)
