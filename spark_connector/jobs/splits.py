"""Runs a function on each split of a table, in Spark's workers; all jobs use it."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from metaclient.columns.types import parse_type
from metaclient.errors import ConfigError
from spark_connector import clients, lookup_counts
from spark_connector.dataframe import SplitReader, given_options, map_splits
from spark_connector.planning import splits as planning
from spark_connector.planning.query import Query
from spark_connector.schema.ranges import KeyRange, bytes_of, text_of
from spark_connector.schema.types import to_spark
from spark_connector.settings.option_uses import Use, check_use
from spark_connector.settings.options import Options
from spark_connector.settings.session import has_jvm

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["Key", "RowChoice", "plan_splits", "run_on_splits", "scan_options", "schema_from"]

Key = bytes | str


class RowChoice(NamedTuple):
    """The arguments of a job that choose rows; keys are bytes or text (``\\xNN``)."""

    startrow: Key | None = None
    stoprow: Key | None = None
    prefix: Key | None = None
    row_prefixes: Sequence[Key] = ()


def scan_options(
    table: Key,
    url: str | None,
    options: Mapping[str, object],
    use: Use,
    *,
    layout: str = "cells",
    rows: RowChoice = RowChoice(),  # noqa: B008  # it is immutable
    times: tuple[int | None, int | None] = (None, None),
    versions: int | None = None,
    families: Sequence[str] = (),
) -> Options:
    """Return a job's arguments as options of a read; ``times`` are the first and the end (exclusive), in ms."""
    arguments = {
        "hbase.table": table.decode() if isinstance(table, bytes) else table,
        "hbase.spark.query.layout": layout,
        "hbase.spark.query.startrow": _key(rows.startrow),
        "hbase.spark.query.stoprow": _key(rows.stoprow),
        "hbase.spark.query.prefix": _key(rows.prefix),
        "hbase.spark.query.ranges": _prefix_ranges(rows.row_prefixes),
        "hbase.spark.query.timerange.start": times[0],
        "hbase.spark.query.timerange.end": times[1],
        "hbase.spark.query.maxVersions": versions,
        "hbase.spark.query.columns": ",".join(families) or None,
    }
    given = {name.lower(): value for name, value in given_options(None, url, options).items()}
    check_use(given, use)
    for name, value in arguments.items():
        if value is not None:
            if name.lower() in given:
                raise ConfigError(f"option {name} is given twice: as an argument and as an option")
            given[name.lower()] = str(value)
    parsed = Options.parse(given).resolved()
    clients.check_reachable(parsed.connection_url)
    return parsed


def _key(key: Key | None) -> str | None:
    return text_of(key) if isinstance(key, bytes) else key


def _prefix_ranges(prefixes: Sequence[Key]) -> str | None:
    r"""Return the ranges of prefixes as the text of an option, in which a comma and a space of a key are escaped.

    >>> _prefix_ranges([b"a", ","])
    '\\x61,\\x62;\\x2C,\\x2D'
    """
    if isinstance(prefixes, bytes | str):
        raise ConfigError("row_prefixes is a list of prefixes, got one prefix: use prefix")
    wanted = [bytes_of(key, "row_prefixes") if isinstance(key, str) else key for key in prefixes]
    if not all(wanted):
        raise ConfigError("row_prefixes has an empty prefix, which would be every row: leave it out")
    ranges = (KeyRange.of_prefix(key) for key in wanted)
    return ";".join(f"{_escaped(one.start)},{_escaped(one.stop)}" for one in ranges) or None


def _escaped(key: bytes) -> str:
    return "".join(f"\\x{byte:02X}" for byte in key)


def plan_splits(spark: SparkSession, query: Query) -> list[planning.TableSplit]:
    """Return the splits of a job's scan, and count its meta lookups."""
    lookup_counts.collect(spark, query.options.counts_lookups)
    with clients.lease(query.options) as connection:
        return planning.plan(connection, query)


def schema_from(text: str) -> StructType:
    """Return the schema of the text ``name type, name type``; Spark's own parser of such text needs a session.

    >>> schema_from("row binary, rows bigint").simpleString()
    'struct<row:binary,rows:bigint>'
    """
    from pyspark.sql.types import StructType

    fields = ",".join(":".join(field.split()) for field in text.split(","))
    made = to_spark(parse_type(f"struct<{fields}>"))
    assert isinstance(made, StructType)
    return made


def run_on_splits(
    spark: SparkSession, text: str, splits: Sequence[planning.TableSplit], run: SplitReader, options: Options
) -> DataFrame:
    """Return a DataFrame of schema ``text`` with the batches of ``run(split, planned)``, one task per split."""
    schema = schema_from(text)
    if has_jvm(spark):
        return map_splits(spark, schema, splits, run, locality=options.locality == "auto")
    first, *rest = splits
    blobs = [pickle.dumps((first, lookup_counts.planned())), *(pickle.dumps((split, None)) for split in rest)]

    def run_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                split, planned = pickle.loads(blobs[number])  # pickled a few lines above
                yield from run(split, planned)

    return spark.range(0, len(blobs), 1, len(blobs)).mapInArrow(run_all, schema)
