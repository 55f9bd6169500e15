"""Every option in every use of the connector has an effect there, or is refused. None is accepted and ignored."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark'")

import spark_connector
from metaclient import Connection
from metaclient.connection import connect_to
from metaclient.errors import ConfigError
from metaclient.runtime import ThreadRuntime
from metaclient.testing.scripted import ScriptedBackend
from spark_connector import clients
from spark_connector.jobs import hash_table
from spark_connector.jobs.splits import schema_from
from spark_connector.planning.location_map import LocationMap
from spark_connector.planning.query import Query
from spark_connector.planning.splits import MB, plan
from spark_connector.schema.ranges import KeyRange
from spark_connector.settings.option_uses import HONOURED, Use
from spark_connector.settings.options import Options, option_of
from spark_connector.source import HBaseSource
from spark_connector.writing import destination
from spark_connector.writing.mutations import rows_from_batch
from spark_connector.writing.writer import sender_of

CATALOG = json.dumps(
    {
        "table": {"namespace": "default", "name": "t"},
        "rowkey": "key",
        "columns": {
            "id": {"cf": "rowkey", "col": "key", "type": "string"},
            "a": {"cf": "cf", "col": "a", "type": "string"},
            "n": {"cf": "cf", "col": "n", "type": "bigint"},
        },
    }
)
SCHEMA = schema_from("id string, a string, n bigint")
ALL = sorted(field.name for field in fields(Options) if field.metadata)

#: A value of each option that is not its default, and what must be given with it to mean anything.
EXAMPLES: dict[str, tuple[str, dict[str, str]]] = {
    "url": ("thrift2://other:1", {}),
    "catalog_text": (CATALOG.replace('"t"', '"u"'), {}),
    "table": ("u", {"hbase.columns.mapping": "id STRING :id, a STRING cf:a"}),
    "columns_mapping": ("id STRING :id, b STRING cf:b", {"hbase.table": "t"}),
    "config_location": ("site.xml", {}),
    "locations": ("lookup", {}),
    "lookups": ("off", {}),
    "layout_name": ("map", {}),
    "encoder": ("string", {}),
    "columns": ("a", {}),
    "where": ("n > 3", {}),
    "startrow": ("b", {}),
    "stoprow": ("b", {}),
    "prefix": ("b", {}),
    "ranges": ("b,c", {}),
    "limit": ("3", {}),
    "filter": ("KeyOnlyFilter()", {}),
    "timestamp": ("7", {}),
    "timerange_start": ("7", {}),
    "timerange_end": ("7", {}),
    "max_versions": ("3", {"hbase.spark.query.filter": "ValueFilter(=,'binary:x')"}),
    "bad_value": ("null", {}),
    "read_replica": ("true", {}),
    "stale_column": ("stale", {"hbase.spark.query.readreplica": "true"}),
    "replica_column": ("replica", {"hbase.spark.query.readreplica": "true"}),
    "max_staleness_s": ("5", {"hbase.spark.query.readreplica": "true"}),
    "cache_blocks": ("true", {}),
    "cached_rows": ("7", {}),
    "batch_size": ("7", {}),
    "bulkget_size": ("1", {}),
    "pushdown_column_filter": ("false", {"hbase.spark.query.where": "n > 3"}),
    "partition_split_mb": ("1", {}),
    "partition_min_mb": ("off", {}),
    "partition_max": ("1", {}),
    "locality": ("off", {}),
    "gc_freeze": ("false", {}),
    "new_table": ("7", {}),
    "region_start": ("b", {"newtable": "7"}),
    "region_end": ("y", {"newtable": "7"}),
    "write_splits": ("m", {}),
    "write_batch_rows": ("7", {}),
    "write_batch_bytes": ("7", {}),
    "write_concurrency": ("7", {}),
    "write_rate_mb": ("7", {}),
    "write_timestamp": ("7", {}),
    "write_ttl_ms": ("7", {}),
    "write_durability": ("SKIP_WAL", {}),
    "write_nulls": ("empty", {}),
    "write_operation": ("delete", {}),
    "write_hidden": ("off", {}),
    "write_truncate": ("true", {}),
    "write_at_least_once": ("true", {"hbase.spark.write.operation": "increment"}),
    "max_rows_per_trigger": ("7", {}),
    "starting_timestamp": ("7", {}),
    "stream_lag_ms": ("7", {}),
    "stream_source": ("wal", {}),
    "max_bytes_per_trigger": ("7", {}),
    "stream_spool": ("/elsewhere", {}),
    "stream_receiver": ("driver", {"url": "hbase://127.0.0.1:1"}),
    "stream_name": ("n", {}),
    "stream_host": ("h", {}),
    "stream_port": ("7", {}),
    "stream_allow_insecure": ("true", {}),
    "stream_spool_mb": ("7", {}),
}


def test_every_option_has_an_example_and_a_use() -> None:
    honoured = {field for use in Use for field in HONOURED[use]}
    assert honoured == set(ALL)
    assert set(ALL) <= set(EXAMPLES)


# -- refused -----------------------------------------------------------------------------------------------------------


def source(given: Mapping[str, str]) -> HBaseSource:
    return HBaseSource(given)


def named(given: Mapping[str, str], **more: str) -> dict[str, str]:
    """With a table, and with everything else that this use needs."""
    lower = {name.lower() for name in given}
    base = {"url": "thrift2://127.0.0.1:1"} if "url" not in lower else {}
    base |= {"catalog": CATALOG} if not {"catalog", "hbase.table"} & lower else {}
    return {**base, **more, **given}


def catalog_and_rest(given: dict[str, str]) -> tuple[Any, dict[str, Any]]:
    return given.get("catalog"), {name: value for name, value in given.items() if name != "catalog"}


def called(use: Use, given: dict[str, str]) -> None:
    """Call the real thing; what it refuses, it refuses before it asks anybody."""
    frame: Any = SimpleNamespace(schema=SCHEMA, sparkSession=None)
    keys: Any = SimpleNamespace(schema=schema_from("key string"), sparkSession=None)
    spark: Any = None
    url = given.pop("url", "thrift2://127.0.0.1:1") if use in JOBS else ""
    match use:
        case Use.TABLE:
            catalog, rest = catalog_and_rest(named(given))
            spark_connector.table(spark, catalog, **rest)
        case Use.LOAD:
            source(named(given)).reader(SCHEMA)
        case Use.JOIN:
            catalog, rest = catalog_and_rest(named(given))
            spark_connector.join(keys, catalog, on="key", **rest)
        case Use.REPARTITION:
            catalog, rest = catalog_and_rest(named(given))
            spark_connector.repartition(frame, catalog, **rest)
        case Use.ROW_COUNT:
            spark_connector.row_count(spark, "t", url=url, **given)  # type: ignore[arg-type]
        case Use.COPY_TABLE:
            spark_connector.copy_table(spark, "t", url=url, to_table="u", **given)  # type: ignore[arg-type]
        case Use.VERIFY:
            spark_connector.verify_replication(spark, "t", url=url, peer_table="u", **given)  # type: ignore[arg-type]
        case Use.WRITE:
            catalog, rest = catalog_and_rest(named(given))
            spark_connector.write(frame, catalog, **rest)
        case Use.BULK_LOAD:
            catalog, rest = catalog_and_rest(named(given))
            spark_connector.bulk_load(frame, catalog, staging="/nowhere", **rest)
        case Use.SNAPSHOT:
            catalog, rest = catalog_and_rest(given)
            spark_connector.snapshot(spark, "s", root="/nowhere", catalog=catalog, **rest)
        case Use.STREAM_READ:
            source(named(given, **{"hbase.spark.query.layout": "raw"})).streamReader(SCHEMA)
        case Use.STREAM_CHANGES:
            source(named(given, **WAL)).streamReader(SCHEMA)
        case Use.STREAM_WRITE:
            source(named(given, checkpointLocation="/nowhere")).streamWriter(SCHEMA, False)


WAL = {"hbase.spark.stream.source": "wal", "hbase.spark.stream.spool": "/nowhere"}
JOBS = (Use.ROW_COUNT, Use.COPY_TABLE, Use.VERIFY)


@pytest.mark.parametrize(
    ("use", "field"),
    [pytest.param(use, field, id=f"{use.name}-{field}") for use in Use for field in ALL if field not in HONOURED[use]],
)
def test_an_option_that_a_use_does_not_honour_is_refused_and_not_ignored(use: Use, field: str) -> None:
    value, others = EXAMPLES[field]
    with pytest.raises(ConfigError, match=r"is not for|is given twice") as caught:
        called(use, {**({} if use in JOBS else others), option_of(field): value})
    names = {option_of(field), *others}
    assert any(name in str(caught.value) for name in names)


def test_the_second_function_of_a_use_and_the_writer_of_spark_refuse_alike() -> None:
    with pytest.raises(ConfigError, match="is not for verify_replication and hash_table"):
        hash_table(None, "t", url="thrift2://127.0.0.1:1", hbase_spark_query_limit=5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="is not for writes"):
        source(named({"hbase.spark.query.limit": "5"})).writer(SCHEMA, False)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"hbase.spark.query.layout": "map", "hbase.spark.query.encoder": "string"}, "is for the layout columns"),
        ({"hbase.spark.query.layout": "cells", "hbase.spark.query.badvalue": "null"}, "is for the layout columns"),
        ({"hbase.spark.query.maxVersions": "3"}, "shows the newest version only"),
        ({"hbase.spark.query.maxVersions": "3", "hbase.spark.query.layout": "map"}, "shows the newest version only"),
    ],
)
def test_an_option_that_the_layout_makes_meaningless_is_refused(given: dict[str, str], words: str) -> None:
    for use in (Use.TABLE, Use.LOAD):
        with pytest.raises(ConfigError, match=words):
            called(use, dict(given))


@pytest.mark.parametrize(
    "given",
    [
        {"hbase.spark.write.ttl": "5", "hbase.spark.write.operation": "delete"},
        {"hbase.spark.write.nulls": "empty", "hbase.spark.write.operation": "delete"},
        {
            "hbase.spark.write.timestamp": "5",
            "hbase.spark.write.operation": "increment",
            "hbase.spark.write.atleastonce": "true",
        },
        {"regionstart": "b"},
        {"regionend": "b", "hbase.spark.write.splits": "b"},
    ],
    ids=str,
)
def test_a_setting_that_the_operation_makes_meaningless_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        called(Use.WRITE, dict(given))
    assert next(iter(given)) in str(caught.value).lower()


def test_a_limit_is_not_given_twice() -> None:
    with pytest.raises(ConfigError, match="limit is given twice"):
        spark_connector.table(None, CATALOG, url="thrift2://x:1", limit=3, hbase_spark_query_limit=4)  # type: ignore[arg-type]


# -- honoured ----------------------------------------------------------------------------------------------------------


class SizedBackend(ScriptedBackend):
    """A backend that knows sizes of regions: a small, a middle and a big one."""

    def region_sizes(self, table: bytes, deadline: float, servers: object = None) -> dict[bytes, int]:
        regions = self._tables[table].regions
        return {entry.region.name: size * MB for entry, size in zip(regions, (1, 2, 700), strict=False)}


@pytest.fixture
def connection() -> Iterator[Connection]:
    runtime = ThreadRuntime()
    backend = SizedBackend(runtime, servers=1)
    for table in (b"t", b"u"):
        backend.add_table(table, splits=[b"h", b"p"])
    with connect_to(backend, runtime=runtime, owns_runtime=True) as made:
        for row in (b"a", b"b1", b"c", b"j", b"x"):
            made.table("t").put(row, {b"cf:a": b"1", b"cf:n": b"short" if row == b"x" else b"\0" * 7 + b"\7"})
        yield made


def seen_of_read(connection: Connection, given: dict[str, str], use: Use) -> object:
    """What a read asks for: its splits, scans and gets, and the columns and rows that come of it."""
    if use in JOBS or use is Use.STREAM_READ:
        given = {"hbase.spark.query.layout": "cells", **given}
    options = Options.parse(given).resolved()
    query = Query.of(options)
    query = query.counting() if use is Use.ROW_COUNT else query
    splits = plan(connection, query, whole=query.limit is not None)
    scan = query.scan(KeyRange(b"a", b"b"), options.cached_rows or 5000)
    cut = [(split.ranges, split.points, bool(split.locations)) for split in splits]
    return (
        options.client_key(),
        query.catalog,
        query.schema,
        query.pushed,
        query.kept,
        scan,
        query.get(b"r"),
        (
            query.consistency,
            query.exact,
            query.limit,
            cut,
        ),
    )


def seen_of_write(connection: Connection, given: dict[str, str]) -> object:
    """What a write sends, and where a table that it makes is cut."""
    import pyarrow as pa

    options = Options.parse(given).resolved()
    batch = pa.RecordBatch.from_pydict(
        {"id": ["r"], "a": pa.array([None], pa.string()), "n": pa.array([1], pa.int64())}
    )
    mutations: object = None
    if options.layout.value == "columns" and not options.columns_mapping:
        mutations = list(rows_from_batch(batch, options.catalog(), options, 5))
    sender = sender_of(connection, LocationMap(b"t"), options)
    sending = (sender._batch_rows, sender._batch_bytes, sender._concurrency, sender._pace is None)
    return (
        options.client_key(),
        options.catalog(),
        options.layout,
        mutations,
        sending,
        destination.region_splits(options),
    )


def seen_of_changes(given: dict[str, str]) -> object:
    """What a stream of changes makes of its options before it looks at a spool."""
    made = source({**WAL, **given})
    reader: Any = made.streamReader(made.schema())
    options = made.parsed()
    return (
        options.connection_url,
        options.catalog(),
        made.schema(),
        reader._folder,
        reader._is_received_here,
        reader.getDefaultReadLimit(),
    )


#: Where the effect of an option is shown that cannot be seen in what is asked for.
SHOWN_BY = {
    "bad_value": "tests/unit/spark/test_arrow.py::test_a_bad_cell_is_named_or_null",
    "bulkget_size": "tests/unit/spark/test_reading.py::test_points_come_by_multi_get_and_in_batches",
    "config_location": "tests/unit/spark/test_options.py::test_options_survive_a_pickle_and_key_their_client",
    "gc_freeze": "tests/unit/spark/test_option_uses.py::test_a_worker_freezes_its_objects_unless_told_otherwise",
    "locality": "tests/unit/spark/test_option_uses.py::test_splits_have_hosts_unless_locality_is_off",
    "locations": "tests/unit/spark/test_hbase_writer.py::test_locations_travel_or_do_not",
    "lookups": "tests/unit/spark/test_lookup_counts.py::test_without_counting_no_port_is_opened_and_nothing_is_set",
    "max_rows_per_trigger": "tests/unit/spark/test_stream_reader.py::test_a_limit_cuts_where_it_fits",
    "max_staleness_s": "tests/unit/spark/test_reading.py::test_scans_and_gets_have_the_limit_of_staleness",
    "starting_timestamp": "tests/unit/spark/test_stream_reader.py::test_the_lag_and_the_default_start",
    "stream_allow_insecure": "tests/unit/spark/test_change_source.py"
    "::test_driver_receives_with_the_options_of_the_stream",
    "stream_host": "tests/unit/spark/test_change_source.py::test_driver_receives_with_the_options_of_the_stream",
    "stream_name": "tests/unit/spark/test_change_source.py::test_driver_receives_with_the_options_of_the_stream",
    "stream_port": "tests/unit/spark/test_change_source.py::test_driver_receives_with_the_options_of_the_stream",
    "stream_source": "tests/unit/spark/test_change_source.py::test_layouts_raw_and_cells_have_the_cells_as_they_are",
    "stream_spool_mb": "tests/unit/spark/test_change_source.py::test_driver_receives_with_the_options_of_the_stream",
    "stream_lag_ms": "tests/unit/spark/test_stream_reader.py::test_the_lag_and_the_default_start",
    "write_at_least_once": "tests/unit/spark/test_hbase_writer.py::test_increments_and_deletes",
    "write_hidden": "tests/unit/spark/test_surprises.py::test_cells_that_stay_hidden_are_counted_and_logged",
    "write_truncate": "tests/unit/spark/test_destination.py::test_overwrite_is_refused_unless_truncating_was_said",
}


@pytest.mark.parametrize(
    ("use", "field"),
    [
        pytest.param(use, field, id=f"{use.name}-{field}")
        for use in Use
        for field in sorted(HONOURED[use])
        if field not in SHOWN_BY
    ],
)
def test_an_option_that_a_use_honours_has_an_effect(connection: Connection, use: Use, field: str) -> None:
    value, others = EXAMPLES[field]
    others = dict(others)
    is_write = use in (Use.WRITE, Use.BULK_LOAD, Use.STREAM_WRITE) or (
        use is Use.COPY_TABLE and field.startswith("write_")
    )
    if not is_write and (
        use in JOBS or use is Use.STREAM_READ
    ):  # the layout of cells: columns are families or cells of HBase
        value = {"columns": "cf:a", "layout_name": "raw"}.get(field, value)
        others = {name: text for name, text in others.items() if name != "hbase.columns.mapping"}
        others |= {} if field in ("catalog_text", "table") else {"hbase.table": "t"}
    base = others if field != "table" else {**others, "hbase.table": "t"}
    base = base if field != "columns_mapping" else {**others, "hbase.columns.mapping": "id STRING :id, a STRING cf:a"}
    with_it = {**others, option_of(field): value}
    if use is Use.STREAM_CHANGES and field == "layout_name":
        value, with_it = "raw", {**others, option_of(field): "raw"}
    see: Callable[[dict[str, str]], object] = lambda given: (  # noqa: E731
        seen_of_changes(given)
        if use is Use.STREAM_CHANGES
        else seen_of_write(connection, given)
        if is_write
        else seen_of_read(connection, given, use)
    )
    assert see(named(with_it)) != see(named(base))


@pytest.mark.parametrize("test", sorted(set(SHOWN_BY.values())))
def test_the_tests_that_show_the_other_effects_are_there(test: str, request: pytest.FixtureRequest) -> None:
    path, _, name = test.partition("::")
    assert f"def {name}" in (request.config.rootpath / path).read_text() or not name


def test_a_worker_freezes_its_objects_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    import gc

    frozen: list[bool] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(True))
    for given in ({}, {"hbase.spark.worker.gcfreeze": "false"}):
        monkeypatch.setattr(clients._clients, "is_settled", False)
        clients.settle_worker(Options.parse(given))
    assert frozen == [True]


@pytest.mark.parametrize("locality", ["auto", "off"])
def test_splits_have_hosts_unless_locality_is_off(
    connection: Connection, locality: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark_connector import dataframe

    asked: list[object] = []
    monkeypatch.setattr(dataframe, "executors_for", lambda spark, splits: asked.append(splits) or {})
    monkeypatch.setattr(
        dataframe, "_located", lambda spark, blobs, name=None: SimpleNamespace(mapInArrow=lambda *_: "a DataFrame")
    )
    query = Query.of(Options.parse(named({"hbase.spark.locality": locality})))
    made = dataframe.map_splits(
        None,  # type: ignore[arg-type]  # not asked
        query.schema,
        plan(connection, query),
        dataframe.reader_of(query),
        locality=query.options.locality == "auto",
    )
    assert made == "a DataFrame"  # type: ignore[comparison-overlap]  # it is a stand-in
    assert bool(asked) == (locality == "auto")
