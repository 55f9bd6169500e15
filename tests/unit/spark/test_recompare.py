"""Rows that differ are judged again after a pause: what was only late is forgiven. On virtual time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark'")

from metaclient import Connection
from metaclient.runtime import SimRuntime
from metaclient.verification.comparison import Compared, RowVerdict, merged
from metaclient_fake import FakeCluster
from spark_connector.jobs import replication_check as job
from spark_connector.planning.query import Query
from spark_connector.schema.ranges import KeyRange
from spark_connector.settings.options import Options


@pytest.fixture
def connection() -> Iterator[Connection]:
    with SimRuntime(seed=3) as runtime, FakeCluster(runtime=runtime) as cluster, cluster.connect() as made:
        for name in ("t", "u"):
            made.create_table(name, {"cf": {}})
            for number in range(10):
                made.table(name).put(b"r%d" % number, {b"cf:a": b"1"}, timestamp=5)
        yield made


def side(table: str) -> job._Side:
    text = {"url": "thrift2://gateway:9090", "hbase.table": table, "hbase.spark.query.layout": "cells"}
    return job._Side(Query.of(Options.parse(text)))


def compared(connection: Connection, pause_s: float | None) -> list[Compared]:
    source, peer = side("t"), side("u")
    found = merged(source.scanned(connection, KeyRange()), peer.scanned(connection, KeyRange()))
    return list(job._again(found, source, peer, connection, connection, pause_s))


def bad(found: list[Compared]) -> list[Compared]:
    return [one for one in found if one.verdict is not RowVerdict.GOODROWS]


def test_what_arrives_during_the_pause_is_forgiven(connection: Connection) -> None:
    connection.table("t").put(b"r5", {b"cf:a": b"2"}, timestamp=6)
    connection.table("t").put(b"x", {b"cf:a": b"2"}, timestamp=6)

    def replicate() -> None:
        connection._runtime.sleep(5.0)
        connection.table("u").put(b"r5", {b"cf:a": b"2"}, timestamp=6)

    replicating = connection._runtime.start(replicate, name="replicate")
    begun = connection._runtime.now()
    found = compared(connection, 10.0)
    replicating.result()
    assert connection._runtime.now() - begun >= 10.0
    assert bad(found) == [Compared(RowVerdict.ONLY_IN_SOURCE, b"x")]
    assert len(found) == 11


def test_a_row_that_is_gone_on_both_sides_is_equal(connection: Connection) -> None:
    connection.table("t").put(b"x", {b"cf:a": b"2"})

    def remove() -> None:
        connection._runtime.sleep(5.0)
        connection.table("t").delete(b"x")

    connection._runtime.start(remove, name="remove")
    assert bad(compared(connection, 10.0)) == []


def test_without_a_pause_the_first_look_holds(connection: Connection) -> None:
    connection.table("u").put(b"r3", {b"cf:a": b"other"}, timestamp=5)
    assert bad(compared(connection, None)) == [Compared(RowVerdict.CONTENT_DIFFERENT, b"r3")]


def test_rows_wait_in_memory_only_so_many_at_a_time(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "RECOMPARED_AT_ONCE", 3)
    for number in range(10):
        connection.table("u").put(b"r%d" % number, {b"cf:a": b"other"}, timestamp=5)
    begun = connection._runtime.now()
    found = compared(connection, 2.0)
    assert [one.verdict for one in found] == [RowVerdict.CONTENT_DIFFERENT] * 10
    assert connection._runtime.now() - begun >= 4 * 2.0  # 3, 3, 3 and 1
