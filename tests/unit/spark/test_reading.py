"""Splits are read whole and once, whatever became of the regions since they were planned; no needless lookups."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from metaclient import Connection
from metaclient.backend import Capabilities
from metaclient.connection import connect_to
from metaclient.errors import ConfigError
from metaclient.runtime import SimRuntime
from metaclient.testing import ScriptedBackend
from metaclient_fake import FakeCluster
from spark_connector import clients
from spark_connector.conditions.sql_text import parse_where
from spark_connector.planning.query import COUNT_FILTER, Query
from spark_connector.planning.splits import TableSplit, plan
from spark_connector.reading import split_reader as reading
from spark_connector.reading.split_reader import count_split, read_split
from spark_connector.settings.options import Options

ROWS = 40
SPLITS = [b"r10", b"r20", b"r30"]
CATALOG = json.dumps(
    {
        "table": {"namespace": "default", "name": "t"},
        "rowkey": "key",
        "columns": {
            "id": {"cf": "rowkey", "col": "key", "type": "string"},
            "i": {"cf": "cf", "col": "i", "type": "int"},
            "name": {"cf": "cf", "col": "name", "type": "string"},
        },
    }
)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(servers=3, meta_replicas=3, seed=1) as made:
        with made.connect() as connection:
            connection.create_table("t", {"cf": {"max_versions": 3}}, splits=SPLITS, region_replication=2)
            with connection.table("t").batch() as batch:
                for i in range(ROWS):
                    data = {b"cf:i": i.to_bytes(4, "big")}
                    batch.put(b"r%02d" % i, {**data, b"cf:name": b"n%d" % i} if i % 2 else data)
        yield made


@pytest.fixture
def connection(cluster: FakeCluster) -> Iterator[Connection]:
    with cluster.connect() as made:
        yield made


def query(where: str | None = None, schema: Any = None, **options: object) -> Query:
    given = {"url": "thrift2://nowhere:1", "catalog": CATALOG, **{name: str(value) for name, value in options.items()}}
    return Query.of(Options.parse(given), schema, parse_where(where) if where else None)


def rows(
    connection: Connection, made: Query, splits: list[TableSplit] | None = None, **kw: Any
) -> list[dict[str, Any]]:
    splits = plan(connection, made) if splits is None else splits
    found = [
        row for split in splits for batch in read_split(connection, made, split, **kw) for row in batch.to_pylist()
    ]
    return sorted(found, key=lambda row: json.dumps(row, default=str))


def everything() -> list[dict[str, Any]]:
    return [{"id": f"r{i:02d}", "i": i, "name": f"n{i}" if i % 2 else None} for i in range(ROWS)]


def by_id(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda row: str(row["id"]))


def lookups(connection: Connection) -> dict[str, int]:
    return dict(connection.stats()["meta"]["reads_by_replica"])


def test_all_rows_once(connection: Connection) -> None:
    assert by_id(rows(connection, query())) == everything()


def test_pages_of_one_row_are_the_same_rows(connection: Connection) -> None:
    assert by_id(rows(connection, query(**{"hbase.spark.query.cachedrows": 1}))) == everything()


def test_rows_in_pieces_are_put_together(connection: Connection) -> None:
    assert by_id(rows(connection, query(**{"hbase.spark.query.batchsize": 1}))) == everything()


@pytest.mark.parametrize("limit", [0, 1, 7, 15, ROWS + 1])
def test_a_limit_holds_for_each_split(connection: Connection, limit: int) -> None:
    made = query(**{"hbase.spark.query.limit": limit})
    assert len(rows(connection, made)) == sum(min(limit, 10) for _ in range(4))
    assert len(rows(connection, made, plan(connection, made, whole=True))) == min(limit, ROWS)


def test_points_come_by_multi_get_and_in_batches(connection: Connection) -> None:
    made = query("id IN ('r01', 'r11', 'r12', 'r39', 'nobody')", **{"hbase.spark.bulkget.size": 1})
    splits = plan(connection, made)
    assert not any(split.ranges for split in splits)
    assert [row["id"] for row in by_id(rows(connection, made, splits))] == ["r01", "r11", "r12", "r39"]


def test_the_empty_split_reads_nothing_and_asks_nobody(connection: Connection) -> None:
    assert rows(connection, query(), [TableSplit()]) == []
    assert lookups(connection) == {}


# -- a condition of the option is exact -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "condition",
    ["i IN (3, 4) OR id = 'r25'", "name IS NULL AND i > 30", "id LIKE '%5'", "i = 3", "NOT (i < 38)", "name = 'n9'"],
)
def test_where_as_an_option_gives_exactly_its_rows(connection: Connection, condition: str) -> None:
    """What can be pushed is a superset; nobody tests the rows of a data source again."""
    from spark_connector.conditions.condition import evaluate
    from spark_connector.conditions.expressions import bind

    made = query(**{"hbase.spark.query.where": condition})
    bound = bind(parse_where(condition), made.catalog)
    assert by_id(rows(connection, made)) == [row for row in everything() if evaluate(bound, row)]


def test_where_as_an_option_may_use_columns_that_are_not_read(connection: Connection) -> None:
    from pyspark.sql.types import StringType, StructField, StructType

    made = query(
        schema=StructType([StructField("name", StringType())]), **{"hbase.spark.query.where": "i = 7 OR id = 'r09'"}
    )
    assert rows(connection, made) == [{"name": "n7"}, {"name": "n9"}]


def test_the_limit_is_of_rows_that_pass_the_condition(connection: Connection) -> None:
    made = query(**{"hbase.spark.query.where": "id LIKE '%5'", "hbase.spark.query.limit": 3})
    assert len(rows(connection, made, plan(connection, made, whole=True))) == 3


# -- other layouts and times ------------------------------------------------------------------------------------


def test_cells_with_versions_and_their_times(connection: Connection) -> None:
    for version in (1000, 2000):
        connection.table("t").put(b"v", {b"cf:i": b"%d" % version}, timestamp=version)
    made = query(
        **{
            "hbase.spark.query.layout": "cells",
            "hbase.spark.query.maxVersions": 5,
            "hbase.spark.query.prefix": "v",
            "hbase.spark.query.columns": "cf:i",
        }
    )
    found = rows(connection, made)
    assert [(row["row"], row["qualifier"], row["timestamp"], row["value"]) for row in found] == [
        (b"v", b"i", 1000, b"1000"),
        (b"v", b"i", 2000, b"2000"),
    ]
    older = query(
        **{"hbase.spark.query.prefix": "v", "hbase.spark.query.timerange.end": 1500, "hbase.spark.query.layout": "map"}
    )
    assert [dict(row["columns"]) for row in rows(connection, older)] == [{"cf:i": b"1000"}]


def test_raw_shows_delete_markers(connection: Connection) -> None:
    connection.table("t").put(b"v", {b"cf:i": b"1"}, timestamp=1000)
    connection.table("t").delete(b"v", [b"cf:i"], timestamp=1000)
    made = query(
        **{"hbase.spark.query.layout": "raw", "hbase.spark.query.prefix": "v", "hbase.spark.query.maxVersions": 9}
    )
    assert sorted(row["type"] for row in rows(connection, made)) == ["DELETE_COLUMN", "PUT"]


def test_a_condition_on_another_layout_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"layout=columns"):
        query("i = 3", **{"hbase.spark.query.layout": "cells"})


def test_a_column_that_is_none_is_named() -> None:
    with pytest.raises((ConfigError, ValueError), match=r"hbase\.spark\.query\.columns"):
        query(**{"hbase.spark.query.layout": "cells", "hbase.spark.query.columns": "c:f:"[:1] + "/x:y"})


# -- counting ------------------------------------------------------------------------------------


def test_counting_sends_one_number_a_region(connection: Connection) -> None:
    made = query()
    counts = [one for split in plan(connection, made) for one in count_split(connection, made, split)]
    assert sorted((one.start, one.rows) for one in counts) == [(b"", 10), (b"r10", 10), (b"r20", 10), (b"r30", 10)]
    assert made.counting().filter == COUNT_FILTER
    assert made.counting().columns == ()


def test_counting_what_passes_a_filter_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be counted on the server"):
        query("i = 3").counting()


# -- regions that are not where they were -----------------------------------------------------------------------------


def other_server(cluster: FakeCluster, region: str) -> str:
    at = cluster.status()["regions"][region]["server"]
    return next(server for server in cluster.servers() if server not in str(at))


def test_stale_hints_are_found_out_and_repaired(cluster: FakeCluster, connection: Connection) -> None:
    """Planned, then moved, split and merged: the splits are ranges, and where they are is looked for again."""
    made = query()
    splits = plan(connection, made)
    regions = cluster.regions("t")
    cluster.split(regions[0], b"r05")
    cluster.move(regions[1], other_server(cluster, regions[1]))
    cluster.merge(regions[2], regions[3])
    with cluster.connect() as other:
        assert by_id(rows(other, made, splits)) == everything()


@pytest.mark.parametrize("what", ["split", "move"])
def test_a_region_that_changes_between_two_pages(cluster: FakeCluster, connection: Connection, what: str) -> None:
    made = query(**{"hbase.spark.query.cachedrows": 2})
    split = next(one for one in plan(connection, made) if one.ranges[0].start == b"r10")
    found = reading.results_of(connection, made, split)
    seen = [next(found)[0].row for _ in range(3)]
    region = cluster.regions("t")[1]
    if what == "split":
        cluster.split(region, b"r15")
    else:
        cluster.move(region, other_server(cluster, region))
    seen += [result.row for result, _ in found]
    assert seen == [b"r%02d" % i for i in range(10, 20)]


def test_closing_early_closes_the_servers_scanner(cluster: FakeCluster, connection: Connection) -> None:
    made = query(**{"hbase.spark.query.cachedrows": 2})
    batches = read_split(connection, made, plan(connection, made)[0])
    scanners: Callable[[], int] = lambda: sum(one["scanners"] for one in cluster.status()["servers"].values())  # noqa: E731
    first = reading.results_of(connection, made, plan(connection, made)[0])
    next(first)
    assert scanners() == 1
    first.close()
    assert scanners() == 0
    batches.close()  # type: ignore[attr-defined]  # never started: nothing to close


# -- lookups ------------------------------------------------------------------------------------


def test_with_shipped_locations_a_task_makes_no_lookup(cluster: FakeCluster, connection: Connection) -> None:
    made = query()
    splits = plan(connection, made)
    with cluster.connect() as worker:
        assert len(rows(worker, made, splits)) == ROWS
        assert lookups(worker) == {}
        assert worker.stats()["meta"]["refreshes"] == 0  # the registry was not asked either


def test_in_lookup_mode_each_task_finds_its_own_range(cluster: FakeCluster, connection: Connection) -> None:
    made = query(**{"hbase.spark.locations": "lookup"})
    splits = plan(connection, made)
    with cluster.connect() as worker:
        assert len(rows(worker, made, splits)) == ROWS
        found = lookups(worker)
    assert sum(found.values()) == len(splits)
    assert "0" not in found
    assert abs(found["1"] - found["2"]) <= 1  # in turn


def test_a_task_that_runs_again_does_not_trust_what_it_was_told(
    cluster: FakeCluster, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = query()
    split = plan(connection, made)[0]
    with cluster.connect() as worker:
        slept: list[float] = []
        monkeypatch.setattr(worker._runtime, "sleep", slept.append)
        assert len(rows(worker, made, [split], attempt=1)) == 10
        assert sum(lookups(worker).values()) == 1
        assert len(slept) == 1
        assert 0 <= slept[0] <= clients.JITTER_S


def test_pauses_of_tasks_that_run_again_differ(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that dies fails a thousand tasks at once: they must not all ask hbase:meta at once."""
    slept: list[float] = []
    for _ in range(8):
        with cluster.connect() as worker:
            monkeypatch.setattr(worker._runtime, "sleep", slept.append)
            reading.learn_locations(worker, query(), TableSplit(points=(b"r",)), attempt=1)
    assert len(set(slept)) == 8


def test_timeline_reads_tell_which_replica_answered(cluster: FakeCluster, connection: Connection) -> None:
    cluster.wait_until_replicated(30)
    made = query(
        **{
            "hbase.spark.query.readreplica": "true",
            "hbase.spark.query.stalecolumn": "stale",
            "hbase.spark.query.replicacolumn": "replica",
        }
    )
    found = rows(connection, made)
    assert len(found) == ROWS
    assert {(row["stale"], row["replica"]) for row in found} <= {(False, 0), (True, 1)}


def test_scans_and_gets_have_the_limit_of_staleness(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[object] = []
    engine = connection.engine
    for name in ("scan_rows", "get_many"):
        right = getattr(engine, name)
        monkeypatch.setattr(
            engine,
            name,
            lambda *a, right=right, **named: given.append(named["max_staleness_s"]) or right(*a, **named),
        )
    replicas = {"hbase.spark.query.readreplica": "true"}
    assert len(rows(connection, query(**replicas, **{"hbase.spark.query.maxstaleness": "5"}))) == ROWS
    assert set(given) == {5.0}
    given.clear()
    list(reading.get_rows(connection, query(**replicas, **{"hbase.spark.query.maxstaleness": "7"}), [b"r1"]))
    assert given == [7.0]
    given.clear()
    rows(connection, query())
    assert set(given) == {None}


@pytest.mark.parametrize("where", [None, "id IN ('r01', 'r11', 'r12')"], ids=["scan", "multi-get"])
def test_executor_that_knows_nothing_of_the_lag_reads_the_slow_primaries(where: str | None) -> None:
    """A task on a real HBase has no canary. Without the limit, the replicas answer for the slow primaries."""
    with SimRuntime(seed=1) as runtime:
        backend = ScriptedBackend(runtime, capabilities=Capabilities(filters=False), latency_s=0.001)
        backend.add_table("t", splits=SPLITS, region_replication=2)
        with connect_to(backend, runtime=runtime, hedge_delay="fixed", hedge_budget_burst=1000) as connection:
            for key in (b"r01", b"r11", b"r12"):
                connection.table("t").put(key, {b"cf:i": b"\0\0\0\1"})
            backend.on("scan_open", replica=0).delays(3.0)
            backend.on("batch", when=lambda call: not call.argument[0].place.replica_id).delays(3.0)  # type: ignore[index]  # a list of actions
            options = {"hbase.spark.query.readreplica": "true", "hbase.spark.query.replicacolumn": "replica"}
            unlimited = rows(connection, query(where, **options))
            limited = rows(connection, query(where, **options, **{"hbase.spark.query.maxstaleness": "60"}))
    assert [row["replica"] for row in unlimited] == [1] * 3
    assert [row["replica"] for row in limited] == [0] * 3


def test_a_query_can_be_pickled(connection: Connection) -> None:
    import pickle

    made = query("i > 3 AND id LIKE 'r1%'")
    again = pickle.loads(pickle.dumps(made))
    assert by_id(rows(connection, again)) == by_id(rows(connection, made))
    assert replace(again, schema=None) == replace(made, schema=None)
