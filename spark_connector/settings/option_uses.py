"""Which options each use of the connector honours. All others are refused there: no option is accepted and ignored.

A use is a function of the package, or a request of Spark to the data source. An option that a use does not honour is an
error that names the uses which do. ``tests/unit/spark/test_option_uses.py`` checks every pair.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping

from metaclient.columns.layouts import Layout
from metaclient.errors import ConfigError
from spark_connector.settings.options import Options, field_named, option_of

__all__ = ["HONOURED", "Use", "check_read", "check_use", "check_written"]


class Use(enum.Enum):
    """The uses; the value is the name of the use in error messages."""

    TABLE = "spark_connector.table"
    LOAD = "spark.read.format('hbase')"
    JOIN = "spark_connector.join"
    REPARTITION = "spark_connector.repartition"
    ROW_COUNT = "row_count"
    COPY_TABLE = "copy_table"
    VERIFY = "verify_replication and hash_table"
    WRITE = "writes"
    BULK_LOAD = "bulk_load"
    SNAPSHOT = "snapshot"
    STREAM_READ = "streams"
    STREAM_CHANGES = "streams with hbase.spark.stream.source=wal"
    STREAM_WRITE = "streams into HBase"


_CLUSTER = frozenset({"url", "config_location", "lookups"})
_ALWAYS = _CLUSTER | {"locations", "gc_freeze"}
_NAMES_TABLE = frozenset({"catalog_text", "table", "columns_mapping", "layout_name", "encoder"})
_ROWS = frozenset({"startrow", "stoprow", "prefix", "ranges"})
_TIMES = frozenset({"timestamp", "timerange_start", "timerange_end"})
_SCANS = frozenset({"cache_blocks", "cached_rows"})
_TASKS = frozenset({"partition_split_mb", "partition_min_mb", "partition_max"})
_REPLICAS = frozenset({"read_replica", "max_staleness_s"})
_PROVENANCE = _REPLICAS | {"stale_column", "replica_column"}
_CONDITION = frozenset({"where", "pushdown_column_filter"})
_SENDING = frozenset(
    {"write_batch_rows", "write_batch_bytes", "write_concurrency", "write_rate_mb", "write_durability"}
)
_WRITING = _SENDING | {
    "new_table",
    "region_start",
    "region_end",
    "write_splits",
    "write_timestamp",
    "write_ttl_ms",
    "write_nulls",
    "write_operation",
    "write_at_least_once",
}
_RECEIVING = frozenset(
    {
        "stream_spool",
        "stream_receiver",
        "stream_name",
        "stream_host",
        "stream_port",
        "stream_allow_insecure",
        "stream_spool_mb",
    }
)
_GETS = frozenset({"bulkget_size"})
_READS = (
    _ALWAYS
    | _NAMES_TABLE
    | _ROWS
    | _TIMES
    | _SCANS
    | _TASKS
    | _PROVENANCE
    | _CONDITION
    | _GETS
    | {"columns", "filter", "limit", "max_versions", "bad_value", "batch_size"}
)
_JOBS = _ALWAYS | _ROWS | _TIMES | _SCANS | _TASKS | {"columns", "locality"}

#: Fields of :class:`~spark_connector.settings.options.Options`, by use.
HONOURED: Mapping[Use, Collection[str]] = {
    Use.TABLE: _READS | {"locality"},
    Use.LOAD: _READS,
    Use.JOIN: _READS - _SCANS - _TASKS - {"limit", "batch_size"},
    Use.REPARTITION: _CLUSTER | (_NAMES_TABLE - {"layout_name"}),
    Use.ROW_COUNT: _JOBS | _REPLICAS,
    Use.COPY_TABLE: _JOBS | _SENDING | _REPLICAS | {"filter", "batch_size"},
    Use.VERIFY: _JOBS | _GETS | {"filter", "batch_size"},
    Use.WRITE: _ALWAYS | _NAMES_TABLE | _WRITING | {"write_hidden", "write_truncate"},
    Use.BULK_LOAD: _NAMES_TABLE | (_WRITING - _SENDING - {"write_at_least_once"}) | {"url", "config_location"},
    Use.SNAPSHOT: _NAMES_TABLE | _ROWS | _TIMES | {"columns", "max_versions", "bad_value"},
    Use.STREAM_READ: _ALWAYS
    | _ROWS
    | _SCANS
    | _TASKS
    | _PROVENANCE
    | {"catalog_text", "table", "layout_name", "columns", "filter", "batch_size"}
    | {"max_rows_per_trigger", "starting_timestamp", "stream_lag_ms", "stream_source"},
    Use.STREAM_CHANGES: _NAMES_TABLE
    | _RECEIVING
    | {"url", "config_location", "bad_value", "max_bytes_per_trigger", "stream_source"},
    Use.STREAM_WRITE: _ALWAYS | _NAMES_TABLE | _WRITING,
}

_ADVICE = {
    (Use.WRITE, "timestamp"): "use hbase.spark.write.timestamp",
    (Use.STREAM_WRITE, "timestamp"): "use hbase.spark.write.timestamp",
    (Use.STREAM_READ, "timestamp"): "use startingTimestamp",
    (Use.STREAM_READ, "timerange_start"): "use startingTimestamp",
    (Use.STREAM_READ, "timerange_end"): "use startingTimestamp",
    (Use.STREAM_READ, "limit"): "use maxRowsPerTrigger",
    (Use.STREAM_READ, "max_versions"): "it reads all versions",
    (Use.STREAM_READ, "max_bytes_per_trigger"): "use maxRowsPerTrigger",
    (Use.STREAM_CHANGES, "max_rows_per_trigger"): "use maxBytesPerTrigger",
    (Use.STREAM_CHANGES, "starting_timestamp"): "a subscription begins at its creation; `metaclient changes receive "
    "--since` reads what was stored before",
    (Use.ROW_COUNT, "filter"): "rows that pass a filter cannot be counted on the server: read and count them in Spark",
    (Use.BULK_LOAD, "write_durability"): "a bulk load writes no log: its files are durable",
    (Use.SNAPSHOT, "url"): "a snapshot is read from files: give root=, HBase's hbase.rootdir",
    (Use.SNAPSHOT, "filter"): "no server applies it: filter the DataFrame",
    (Use.SNAPSHOT, "where"): "use where=",
    (Use.COPY_TABLE, "max_versions"): "use versions=",
    (Use.VERIFY, "max_versions"): "use versions=",
    (Use.LOAD, "locality"): "Spark gives data sources in Python no locality: use spark_connector.table",
}


def check_use(given: Iterable[str], use: Use) -> None:
    """Raise ConfigError for the first of these option names (in any case) that the use does not honour."""
    for name in given:
        field = field_named(name)
        if field is not None and field not in HONOURED[use]:
            raise ConfigError(f"option {option_of(field)} is not for {use.value}: {_advice(use, field)}")


def _advice(use: Use, field: str) -> str:
    others = [other.value for other in Use if field in HONOURED[other]]
    return _ADVICE.get((use, field)) or f"it is for {', '.join(others)}"


def check_read(given: Collection[str], options: Options, use: Use) -> None:
    """Raise ConfigError for an option that the use, or the layout of the read, does not honour."""
    check_use(given, use)
    fields = {field_named(name) for name in given}
    for field in ("encoder", "bad_value"):
        if field in fields and options.layout is not Layout.COLUMNS:
            raise ConfigError(
                f"option {option_of(field)} is for the layout columns: layout {options.layout.value} decodes nothing"
            )
    if options.max_versions > 1 and not options.layout.has_a_row_per_cell and options.filter is None:
        raise ConfigError(
            f"option {option_of('max_versions')} = {options.max_versions}: layout {options.layout.value} shows the "
            "newest version only: use hbase.spark.query.layout=cells"
        )


def check_written(given: Collection[str], use: Use) -> None:
    """Raise ConfigError for an option that the use does not honour, or that another option of the write must enable."""
    check_use(given, use)
    fields = {field_named(name) for name in given}
    for field in ("region_start", "region_end"):
        if field in fields and "new_table" not in fields:
            raise ConfigError(f"option {option_of(field)} needs newtable: it sets the split points of a new table")
