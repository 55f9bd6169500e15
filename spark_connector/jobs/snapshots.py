"""Reads snapshots: each task reads the store files of one region, and no server is asked.

The driver reads the snapshot's manifest. A task opens the files of its region, merges them as a region server would
(:mod:`metaclient.hfile.snapshot`), and decodes the cells to columns as a scan does.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from metaclient import keys
from metaclient.backend import CellPage
from metaclient.columns.layouts import Layout
from metaclient.columns.page_batches import batches_from_cells
from metaclient.errors import ConfigError, NoSuchFamily
from metaclient.hfile import (
    CellSelection,
    FamilyRules,
    SnapshotRegion,
    StoragePath,
    StoredSnapshot,
    read_region,
    read_snapshot,
)
from metaclient.hfile.order import changes
from metaclient.model import RegionLocation
from metaclient.runtime import ThreadRuntime
from spark_connector.conditions import dialect
from spark_connector.conditions.condition import Expression, columns_of, quoted_name
from spark_connector.conditions.expressions import bind, to_column
from spark_connector.conditions.sql_text import parse_where
from spark_connector.dataframe import given_options, known_name
from spark_connector.planning.query import Query
from spark_connector.planning.read_schema import schema_of
from spark_connector.reading.batch_shape import spark_shape
from spark_connector.schema.ranges import KeyRange, intersection
from spark_connector.settings.option_uses import Use, check_read, check_use
from spark_connector.settings.options import Options
from spark_connector.settings.session import has_jvm

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["snapshot"]

#: Clock only; it starts no thread.
_runtime = ThreadRuntime(name="spark-snapshot")


@dataclass(frozen=True, slots=True)
class _RegionPart:
    """What one task reads: a region, and the ranges of its rows."""

    region: SnapshotRegion
    ranges: tuple[KeyRange, ...]


def snapshot(
    spark: SparkSession,
    name: str,
    *,
    root: str,
    catalog: str | Mapping[str, object] | None = None,
    columns: Sequence[str] | None = None,
    where: str | Expression | None = None,
    **options: object,
) -> DataFrame:
    """Return a DataFrame of a snapshot, read from HBase's files without a call to its servers.

    ``root`` is HBase's root folder (``hbase.rootdir``), such as ``hdfs://namenode:8020/hbase``, which Spark's executors
    must be able to read. ``catalog``, ``columns``, ``where`` and the options of rows, times, layouts and versions are
    those of :func:`spark_connector.table`; without a catalog the layout is ``map``. Conditions on the row key choose
    the blocks that are read; Spark tests all conditions on the returned rows.

        df = hbase.snapshot(spark, "users-monday", root="hdfs://namenode:8020/hbase", catalog=catalog)
    """
    if columns is not None and isinstance(columns, str):
        raise ConfigError(f"columns must be a list of names, got the text {columns!r}: write [{columns!r}]")
    given = given_options(catalog, None, options)
    check_use(given, Use.SNAPSHOT)
    found = read_snapshot(StoragePath.of(root), name)
    parsed = _options_of(found, given)
    words = dialect.of_session(spark)
    condition = None
    if where is not None:
        parsed_where = parse_where(where, words) if isinstance(where, str) else where
        condition = bind(parsed_where, parsed.catalog(), words)
    schema, wanted = _schemas(parsed, columns, condition)
    query = Query.of(parsed, schema, condition)
    df = _planned(spark, query, found)
    if condition is not None:
        df = df.where(where if isinstance(where, str) and has_jvm(spark) else to_column(condition))
    return df if wanted is None else df.select(*map(quoted_name, wanted))


def _options_of(found: StoredSnapshot, given: dict[str, str]) -> Options:
    """Return the options of the read; ConfigError for a catalog of another table."""
    by_name = {name.lower() for name in given}
    if not by_name & {"hbase.table", "catalog"}:
        given["hbase.table"] = keys.printable(found.table.name)
        if not by_name & {"hbase.spark.query.layout", "hbase.columns.mapping"}:
            given["hbase.spark.query.layout"] = Layout.MAP.value
    parsed = Options.parse(given).resolved()
    check_read(given, parsed, Use.SNAPSHOT)
    named = parsed.catalog().table
    if named != found.table.name:
        raise ConfigError(
            f"snapshot {found.name!r} is of table {keys.printable(found.table.name)!r}, the catalog of "
            f"{keys.printable(named)!r}: give the right snapshot or catalog"
        )
    if parsed.layout is Layout.RAW:
        raise ConfigError(
            "layout raw is not for snapshots: deleted cells and markers are not returned; use layout cells"
        )
    return replace(parsed, pushdown_column_filter=False)


def _schemas(
    options: Options, columns: Sequence[str] | None, condition: Expression | None
) -> tuple[StructType, list[str] | None]:
    """Return the schema of the columns that are read, and the columns to keep after the condition; None for all."""
    full = schema_of(options.catalog(), options)
    if columns is None:
        return full, None
    wanted = [known_name(name, full.fieldNames()) for name in columns]
    if not wanted:
        raise ConfigError("columns is empty: leave it out for all of them, or name some")
    tested = [options.catalog().field(name).name for name in columns_of(condition)] if condition is not None else []
    return type(full)([full[name] for name in dict.fromkeys([*wanted, *tested])]), wanted


def _planned(spark: SparkSession, query: Query, found: StoredSnapshot) -> DataFrame:
    from_ms, to_ms = query.options.time_range()
    selection = CellSelection(query.columns, query.options.max_versions, from_ms, to_ms, _runtime.time_ms())
    rules = _rules(found, selection)
    ranges = query.pushed.ranges
    parts: list[_RegionPart] = []
    for region in found.regions:
        chosen = intersection([KeyRange(region.info.start_key, region.info.end_key)], ranges)
        if chosen:
            parts.append(_RegionPart(region, chosen))
    blobs = [pickle.dumps(part) for part in parts]
    schema = query.schema

    def read_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                pages = _pages(pickle.loads(blobs[number]), rules, selection)  # pickled a few lines above
                yield from batches_from_cells(pages, spark_shape(query.catalog, schema, query.options))

    return spark.range(0, len(blobs), 1, max(len(blobs), 1)).mapInArrow(read_all, schema)


def _rules(found: StoredSnapshot, selection: CellSelection) -> dict[bytes, FamilyRules]:
    """Return the rules of the families that are read; refuse families whose cells follow other rules."""
    wanted = selection.families()
    rules: dict[bytes, FamilyRules] = {}
    for family in found.table.families:
        if wanted is None or family.name in wanted:
            where = f"family {keys.printable(family.name)} of snapshot {found.name!r}"
            rules[family.name] = FamilyRules.of(where, family)
    missing = sorted((wanted or frozenset()) - rules.keys())
    if missing:
        there = ", ".join(keys.printable(family.name) for family in found.table.families)
        raise NoSuchFamily(f"snapshot {found.name!r} has no family {keys.printable(missing[0])!r}; it has {there}")
    return rules


def _pages(
    part: _RegionPart, rules: Mapping[bytes, FamilyRules], selection: CellSelection
) -> Iterator[tuple[CellPage, RegionLocation | None]]:
    """Yield the cells of a part as the pages of a scan."""
    for where in part.ranges:
        for cells in read_region(part.region, rules, selection, start=where.start, stop=where.stop):
            rows = cells["row"]
            count = int(changes(rows).sum())
            first, last = rows[0].as_py(), rows[-1].as_py()
            yield CellPage(cells, count, first, last, None, is_end_of_region=False), None
