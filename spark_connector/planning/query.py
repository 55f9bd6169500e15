"""What one read asks HBase for: made from the options on the driver, and pickled to all tasks of the read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from metaclient import keys
from metaclient.columns.layouts import Layout
from metaclient.columns.projection import Projection
from metaclient.errors import ConfigError
from metaclient.model import Consistency, Get, Scan
from spark_connector.conditions.condition import And, Expression, columns_of, opaque_parts, to_sql
from spark_connector.conditions.expressions import bind
from spark_connector.conditions.pushdown import Pushed, push, scan_columns
from spark_connector.conditions.sql_text import parse_where
from spark_connector.planning.read_schema import schema_of
from spark_connector.planning.user_filter import looks_of
from spark_connector.schema.catalog import Catalog
from spark_connector.schema.ranges import KeyRange, bytes_of
from spark_connector.schema.salt import salted_ranges
from spark_connector.settings.options import Options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["COUNT_FILTER", "Query"]

#: RowCounter's filter: one cell per row, without its value.
COUNT_FILTER = b"(FirstKeyOnlyFilter() AND KeyOnlyFilter())"


@dataclass(frozen=True, slots=True)
class Query:
    """A read of one table: ``pushed`` has the rows, ``columns`` and ``filter`` choose the cells of each row."""

    options: Options
    catalog: Catalog
    schema: StructType
    pushed: Pushed
    columns: tuple[bytes, ...] = ()
    filter: bytes | None = None
    kept: Projection | None = None  # the columns to keep after the filter; None: all that were fetched
    limit: int | None = None  # rows of the DataFrame per split; the planner applies it to the whole read
    exact: Expression | None = None  # rows must also pass this in the worker, because Spark does not test it

    @classmethod
    def of(cls, options: Options, schema: StructType | None = None, condition: Expression | None = None) -> Query:
        """Return the query of these options; ``schema``, which Spark passes to a reader, chooses the columns.

        ``condition`` is pushed down as far as possible, and the caller must test the returned rows. The condition of
        ``hbase.spark.query.where`` is tested by the workers. Raises ``ConfigError`` for options that do not fit.
        """
        options = options.resolved()
        catalog = options.catalog()
        full = schema_of(catalog, replace(options, columns=()) if options.layout is Layout.COLUMNS else options)
        schema = schema_of(catalog, options) if schema is None else _checked(schema, full)
        exact = _testable(_bound(parse_where(options.where), options, catalog)) if options.where is not None else None
        both = [] if exact is None else [exact]
        both += [] if condition is None else [_bound(condition, options, catalog)]
        salt = catalog.salt if options.layout is Layout.COLUMNS else 0  # other layouts have the rows as stored
        pushed = push(
            And(tuple(both)) if len(both) == 2 else both[0] if both else None,
            catalog,
            value_filters=options.pushdown_column_filter,
            bad_values_are_null=options.bad_values_are_null,
        ).within(salted_ranges(options.key_ranges(), salt))
        names = [*schema.fieldNames(), *(columns_of(exact) if exact is not None else ())]
        fetched = _fetched(options, catalog, names, pushed)
        return cls(
            options, catalog, schema, pushed, fetched.columns, fetched.filter, fetched.kept, options.limit, exact
        )

    @property
    def read_schema(self) -> StructType:
        """The schema, followed by the columns that only the test of :attr:`exact` needs."""
        names = self.schema.fieldNames()
        more = [name for name in columns_of(self.exact) if name not in names] if self.exact is not None else []
        if not more:
            return self.schema
        return type(self.schema)([*self.schema.fields, *self.catalog.select(more).schema().fields])

    @property
    def table(self) -> bytes:
        return self.catalog.table

    @property
    def consistency(self) -> Consistency:
        return Consistency.TIMELINE if self.options.read_replica else Consistency.STRONG

    @property
    def is_in_pieces(self) -> bool:
        """True if long rows are read in pieces. HBase refuses pieces together with a filter of whole rows."""
        return self.options.batch_size is not None and self.filter is None

    @property
    def _scan_limit(self) -> int | None:
        """The limit of a scan, if every row that it returns is at least one row of the DataFrame."""
        return None if self.is_in_pieces or self.kept is not None else self.limit

    def limited(self, limit: int | None) -> Query:
        return replace(self, limit=limit)

    def counting(self) -> Query:
        """Return a query of the same rows with as few bytes per row as possible."""
        if self.filter is not None or self.exact is not None:
            raise ConfigError("rows that pass a filter cannot be counted on the server: read and count them in Spark")
        # Columns of a catalog do not choose rows. Columns of the option hbase.spark.query.columns do.
        columns = () if self.options.layout is Layout.COLUMNS else self.columns
        return replace(self, columns=columns, filter=COUNT_FILTER, limit=None)

    def scan(self, where: KeyRange, caching: int) -> Scan:
        """Return the scan of one range."""
        options = self.options
        from_ms, to_ms = options.time_range()
        return Scan(
            start_row=where.start,
            stop_row=where.stop,
            columns=self.columns,
            max_versions=options.max_versions,
            min_timestamp=from_ms,
            max_timestamp=to_ms,
            filter=self.filter,
            limit=self._scan_limit,
            caching=caching,
            batch=options.batch_size if self.is_in_pieces else None,
            is_raw=options.layout is Layout.RAW,
            cache_blocks=options.cache_blocks,
        )

    def get(self, row: bytes) -> Get:
        """Return the get of one row."""
        from_ms, to_ms = self.options.time_range()
        return Get(
            row,
            self.columns,
            max_versions=self.options.max_versions,
            min_timestamp=from_ms,
            max_timestamp=to_ms,
            filter=self.filter,
        )


def _bound(condition: Expression, options: Options, catalog: Catalog) -> Expression:
    if options.layout is not Layout.COLUMNS:
        raise ConfigError(
            f"a condition needs hbase.spark.query.layout=columns, not {options.layout.value}: use "
            "hbase.spark.query.startrow, .stoprow, .prefix, .ranges or .filter there"
        )
    return bind(condition, catalog)


def _testable(condition: Expression) -> Expression:
    """Return the condition; raise ConfigError if only Spark can test a part of it."""
    for part in opaque_parts(condition):
        raise ConfigError(f"where: {to_sql(part)}: {part.reason}; or use spark_connector.table(where=...)")
    return condition


@dataclass(frozen=True, slots=True)
class _Fetched:
    """The columns and filter of a Scan or Get, and the columns to keep of its results."""

    columns: tuple[bytes, ...]
    filter: bytes | None
    kept: Projection | None = None


def _fetched(options: Options, catalog: Catalog, names: Sequence[str], pushed: Pushed) -> _Fetched:
    if options.filter is None:
        return _columns(options, catalog, names, pushed)
    text = options.filter.encode()
    looks = looks_of(text)
    if looks.is_row_key_only:
        found = _columns(options, catalog, names, pushed)
        return replace(found, filter=_both_filters(text, found.filter))
    # The condition applies to the rows that pass the filter. A filter that drops or changes cells would make the
    # condition's own filter test other cells than Spark does, so the condition's filter is not sent.
    wanted = catalog.cells_of(catalog.names) if options.layout is Layout.COLUMNS else _column_options(options)
    if not wanted:
        return _Fetched((), text)
    kept = Projection.to(wanted)
    if looks.columns is None or not kept.families_of_all() >= {name.partition(b":")[0] for name in looks.columns}:
        return _Fetched((), text, kept)  # a scan must not name a family that the table may not have
    missing = tuple(name for name in looks.columns if not kept.keeps(name))
    return _Fetched((*wanted, *missing), text, kept if missing else None)


def _columns(options: Options, catalog: Catalog, names: Sequence[str], pushed: Pushed) -> _Fetched:
    if options.layout is not Layout.COLUMNS:
        return _Fetched(_column_options(options), pushed.filter)
    extra = {options.stale_column, options.replica_column}
    wanted = scan_columns(catalog, [name for name in dict.fromkeys(names) if name not in extra], pushed)
    return _Fetched(wanted.columns, wanted.filter)


def _column_options(options: Options) -> tuple[bytes, ...]:
    """Return the families and columns of ``hbase.spark.query.columns`` (layouts without a catalog); () for all."""
    what = "hbase.spark.query.columns"
    return tuple(keys.column_name(bytes_of(name, what), what, family_only_ok=True) for name in options.columns)


def _checked(schema: StructType, full: StructType) -> StructType:
    """Return the user's schema, which may omit and reorder columns; raise ConfigError if it changes a type."""
    known = {field.name.lower(): field for field in full.fields}
    for field in schema.fields:
        declared = known.get(field.name.lower())
        if declared is None:
            raise ConfigError(
                f"column {field.name!r} of the schema is not in the catalog, which has {', '.join(full.fieldNames())}"
            )
        if declared.dataType != field.dataType:
            raise ConfigError(
                f"column {field.name!r} is {field.dataType.simpleString()} in the schema and "
                f"{declared.dataType.simpleString()} in the catalog: declare the catalog's type and cast later"
            )
    return schema


def _both_filters(one: bytes, other: bytes | None) -> bytes:
    return one if other is None else b"(" + one + b") AND (" + other + b")"
