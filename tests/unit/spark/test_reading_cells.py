"""Splits read by HBase's own RPC, cell blocks into Arrow, give the rows that the cluster gives in process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("numpy")
pytest.importorskip("pyspark")

import metaclient
from metaclient import Connection
from metaclient.columns.decoding import BadCellError
from metaclient.engine import Engine
from metaclient_fake import FakeCluster
from spark_connector.conditions.sql_text import parse_where
from spark_connector.planning.query import Query
from spark_connector.planning.splits import TableSplit, plan
from spark_connector.reading.batch_shape import arrow_schema
from spark_connector.reading.split_reader import count_split, read_split
from spark_connector.schema.ranges import KeyRange
from spark_connector.settings.options import Options

ROWS = 40
SPLITS = [b"r10", b"r20", b"r30"]
#: Nothing here takes a second; a machine that is busy with other things may.
WAIT_S = 60.0
CATALOG = json.dumps(
    {
        "table": {"namespace": "default", "name": "t"},
        "rowkey": "key",
        "columns": {
            "id": {"cf": "rowkey", "col": "key", "type": "string"},
            "i": {"cf": "cf", "col": "i", "type": "int"},
            "name": {"cf": "cf", "col": "name", "type": "string"},
            "rest": {"cf": "cf", "type": "map<string,binary>"},
            "big": {"cf": "big", "col": "b", "type": "binary"},
        },
    }
)
TIMELINE = {
    "hbase.spark.query.readreplica": "true",
    "hbase.spark.query.stalecolumn": "stale",
    "hbase.spark.query.replicacolumn": "replica",
}


@pytest.fixture(scope="module")
def filled() -> Iterator[FakeCluster]:
    """A cluster that the tests with this fixture only read."""
    with FakeCluster(servers=3, meta_replicas=3, seed=1) as made:
        made.serve(thrift1_port=None, thrift2_port=None, rpc_port=0)
        fill(made)
        yield made


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(servers=3, meta_replicas=3, seed=1) as made:
        made.serve(thrift1_port=None, thrift2_port=None, rpc_port=0)
        fill(made)
        yield made


def fill(cluster: FakeCluster) -> None:
    with cluster.connect() as connection:
        families: dict[str, Any] = {"cf": {"max_versions": 3}, "big": {}}
        connection.create_table("t", families, splits=SPLITS, region_replication=2)
        table = connection.table("t")
        for i in range(ROWS):
            for version in range(1 + i % 3):
                row = {b"cf:i": (i * 10 + version).to_bytes(4, "big")}
                row |= {b"cf:name": b"n%d" % i} if i % 2 else {}
                row |= {b"cf:x%d" % i: b"", b"cf:\xff": b"%d" % version} if i % 5 == 0 else {}
                row |= {b"big:b": b"b" * 3000} if i % 7 == 0 else {}
                table.put(b"r%02d" % i, row, timestamp=1000 + version)
        table.delete(b"r07", columns=[b"cf:i"], timestamp=1500)
    cluster.wait_until_replicated(WAIT_S)


def native(cluster: FakeCluster) -> Connection:
    return metaclient.connect(f"hbase+rpc://127.0.0.1:{cluster.rpc_port}")


def query(where: str | None = None, **options: object) -> Query:
    given = {"url": "thrift2://nowhere:1", "catalog": CATALOG, **{name: str(value) for name, value in options.items()}}
    return Query.of(Options.parse(given), None, parse_where(where) if where else None)


def rows(connection: Connection, made: Query, splits: list[TableSplit] | None = None) -> list[str]:
    """Of all splits, in their order of keys; as text, so that they can be compared and sorted."""
    splits = plan(connection, made) if splits is None else splits
    splits = sorted(splits, key=lambda split: [where.start for where in split.ranges])
    found = []
    for split in splits:
        for batch in read_split(connection, made, split):
            batch.validate(full=True)
            assert batch.schema == arrow_schema(made.schema)
            found += batch.to_pylist()
    return [repr(row) for row in found]


@pytest.fixture
def only_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail the test if rows are scanned instead of cells."""

    def never(*_: object) -> Any:
        raise AssertionError("rows were scanned")

    monkeypatch.setattr(Engine, "scan_rows", never)


LAYOUTS = [
    {},
    {"hbase.spark.query.columns": "i"},
    {"hbase.spark.query.layout": "map"},
    {"hbase.spark.query.layout": "map", "hbase.spark.query.maxVersions": 3},
    {"hbase.spark.query.layout": "cells", "hbase.spark.query.maxVersions": 3},
    {"hbase.spark.query.layout": "raw", "hbase.spark.query.maxVersions": 9},
    {"hbase.spark.query.maxVersions": 3},
    {"hbase.spark.query.timerange.end": 1001},
]


@pytest.mark.parametrize("options", LAYOUTS, ids=str)
@pytest.mark.parametrize("caching", [None, 1, 7])
def test_same_rows_as_in_process(filled: FakeCluster, options: dict[str, object], caching: int | None) -> None:
    more = {} if caching is None else {"hbase.spark.query.cachedrows": caching}
    made = query(**options, **more)
    with filled.connect() as direct, native(filled) as connection:
        wanted, found = rows(direct, made), rows(connection, made)
    assert len(wanted) >= ROWS
    assert found == wanted


@pytest.mark.parametrize("options", LAYOUTS, ids=str)
@pytest.mark.parametrize("limit", [0, 1, 7, 13, 1000])
def test_limits_of_a_split_count_rows(filled: FakeCluster, options: dict[str, object], limit: int) -> None:
    """Also over the borders of ranges, and with rows that were asked for by their keys behind them."""
    made = query(**options, **{"hbase.spark.query.limit": limit})
    split = TableSplit(ranges=(KeyRange(b"r02", b"r06"), KeyRange(b"r15", b"r22")), points=(b"r30", b"r35", b"none"))
    with filled.connect() as direct, native(filled) as connection:
        wanted, found = rows(direct, made, [split]), rows(connection, made, [split])
    assert (limit == 0) == (wanted == [])
    assert found == wanted


@pytest.mark.usefixtures("only_cells")
def test_cells_take_their_own_road(filled: FakeCluster) -> None:
    with native(filled) as connection:
        assert len(rows(connection, query())) == ROWS
        assert len(rows(connection, query(**TIMELINE))) == ROWS
        counts = [one for split in plan(connection, query()) for one in count_split(connection, query(), split)]
    assert sum(one.rows for one in counts) == ROWS


def test_rows_in_pieces_take_the_other_road(filled: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    made = query(**{"hbase.spark.query.batchsize": 1})
    with native(filled) as connection:
        wanted = rows(connection, query())
        monkeypatch.setattr(Engine, "scan_cells", None)
        assert rows(connection, made) == wanted


def test_a_backend_without_pages_of_cells_takes_the_other_road(
    filled: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "scan_cells", None)
    with filled.connect() as direct:
        assert len(rows(direct, query())) == ROWS


@pytest.mark.parametrize(
    "condition", ["i IN (30, 31) OR id = 'r25'", "name IS NULL AND i > 300", "id LIKE '%5'", "id IN ('r01', 'r12')"]
)
@pytest.mark.parametrize("limit", [None, 2])
@pytest.mark.parametrize("is_exact", [False, True])
def test_conditions_pass_the_same_rows(filled: FakeCluster, condition: str, limit: int | None, is_exact: bool) -> None:
    more = {} if limit is None else {"hbase.spark.query.limit": limit}
    made = query(**{"hbase.spark.query.where": condition}, **more) if is_exact else query(condition, **more)
    with filled.connect() as direct, native(filled) as connection:
        # The same splits for both, as a limit is of each; where their regions are, each finds out for itself.
        splits = [replace(split, locations=()) for split in plan(direct, made)]
        wanted, found = rows(direct, made, splits), rows(connection, made, splits)
    assert wanted
    assert found == wanted


def test_timeline_tells_which_replica_answered(filled: FakeCluster) -> None:
    made = query(**TIMELINE)
    with native(filled) as connection:
        batches = [batch for split in plan(connection, made) for batch in read_split(connection, made, split)]
    found = [row for batch in batches for row in batch.to_pylist()]
    assert len(found) == ROWS
    assert {(row["stale"], row["replica"]) for row in found} <= {(False, 0), (True, 1)}


def test_replicas_answer_when_the_primary_is_silent(cluster: FakeCluster) -> None:
    """TIMELINE: each region's pages come from one replica, and say so."""
    made = query(**TIMELINE)
    with native(cluster) as connection:
        rows(connection, made)  # so that it knows where everything is
        region = cluster.regions("t")[0]
        at = str(cluster.status()["regions"][region]["server"])
        cluster.pause(next(server for server in cluster.servers() if server in at), keeps_session=True)
        first = TableSplit(ranges=(KeyRange(b"", b"r10"),))
        found = [row for batch in read_split(connection, made, first) for row in batch.to_pylist()]
        cluster.heal()
    assert len(found) == 10
    assert {(row["stale"], row["replica"]) for row in found} == {(True, 1)}


# -- bad days ----------------------------------------------------------------------------------------------------------


def other_server(cluster: FakeCluster, region: str) -> str:
    at = cluster.status()["regions"][region]["server"]
    return next(server for server in cluster.servers() if server not in str(at))


def test_stale_hints_are_found_out_and_repaired(cluster: FakeCluster) -> None:
    made = query()
    with native(cluster) as connection:
        splits = plan(connection, made)
        wanted = rows(connection, made, splits)
        regions = cluster.regions("t")
        cluster.split(regions[0], b"r05")
        cluster.move(regions[1], other_server(cluster, regions[1]))
        cluster.merge(regions[2], regions[3])
        with native(cluster) as other:
            assert rows(other, made, splits) == wanted


@pytest.mark.parametrize("what", ["split", "move"])
def test_a_region_that_changes_between_two_batches(
    cluster: FakeCluster, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metaclient.columns.page_batches.ROWS_MIN", 1)
    made = query(**{"hbase.spark.query.cachedrows": 2})
    with native(cluster) as connection:
        batches = read_split(connection, made, TableSplit(ranges=(KeyRange(b"r10", b"r20"),)))
        seen = next(batches)["id"].to_pylist()
        region = cluster.regions("t")[1]
        if what == "split":
            cluster.split(region, b"r15")
        else:
            cluster.move(region, other_server(cluster, region))
        for batch in batches:
            seen += batch["id"].to_pylist()
    assert seen == [f"r{number}" for number in range(10, 20)]


def test_closing_early_closes_the_servers_scanner(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metaclient.columns.page_batches.ROWS_MIN", 1)
    made = query(**{"hbase.spark.query.cachedrows": 2})

    def scanners() -> int:
        return sum(one["scanners"] for one in cluster.status()["servers"].values())

    with native(cluster) as connection:
        batches: Any = read_split(connection, made, plan(connection, made)[0])
        next(batches)
        assert scanners() == 1
        batches.close()
        runtime = connection._runtime
        until = runtime.now() + WAIT_S  # nobody waits for the answer to a close
        while scanners() and runtime.now() < until:
            runtime.sleep(0.01)
        assert scanners() == 0


def test_a_bad_cell_is_named(cluster: FakeCluster) -> None:
    with native(cluster) as connection:
        connection.table("t").put(b"r15", {b"cf:i": b"\x01\x02\x03"}, timestamp=2000)
        with pytest.raises(BadCellError, match=r"table t, column i \(cf:i\), row r15: int takes 4 bytes.*x01.x02.x03"):
            rows(connection, query())
        found = rows(connection, query(**{"hbase.spark.query.badvalue": "null"}))
    assert sum("'i': None" in row for row in found) == 2  # this one, and the deleted one
