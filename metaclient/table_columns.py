"""The methods of a table that read and write columns of Arrow, pandas and polars; docs/columns.md.

Backends with pages of cells (thrift2, native) build no Python object per cell. Rows of the other backends are
converted.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, Unpack

from metaclient import keys
from metaclient.arguments import Columns, FilterLike, make_scan, point_at_filter, timestamp_of
from metaclient.backend import CellPage
from metaclient.columns import puts
from metaclient.columns.batch_shape import BatchShape
from metaclient.columns.frames import nullable_types
from metaclient.columns.page_batches import batches_from_cells
from metaclient.columns.progress import ScanProgress
from metaclient.columns.projection import Projection
from metaclient.columns.put_sizes import parts
from metaclient.columns.row_batches import batches_from_results
from metaclient.columns.schema import ROW, SchemaLike, TableSchema, parse_schema, raw_shape, schema_shape
from metaclient.engine import Life
from metaclient.errors import BatchError, ExtraMissing, MetaClientError
from metaclient.model import LATEST_TIMESTAMP, META_TABLE, Consistency, Durability, Put, RegionLocation, Scan

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow as pa

    from metaclient.columns.puts import ArrowData
    from metaclient.connection import Connection
    from metaclient.engine import Engine

__all__ = ["ColumnScanOptions", "TableColumns"]

#: Rows per page: at 100 bytes per row this is HBase's page size of 2 MB.
CACHING = 5000
#: Rows and bytes of one call of put_arrow: those of a batch of the Spark connector.
PUT_ROWS, PUT_BYTES = 1000, 2 << 20
#: The share of wanted bytes from which whole families are read.
WANTED_SHARE = 0.5
Pages: TypeAlias = Generator[tuple[CellPage, RegionLocation | None], None, None]
_KEYS_ONLY = b"FirstKeyOnlyFilter() AND KeyOnlyFilter()"


class ColumnScanOptions(TypedDict, total=False):
    """The options of ``scan_arrow``, ``to_arrow``, ``to_pandas`` and ``to_polars``."""

    schema: SchemaLike | None
    columns: Columns
    filter: FilterLike
    timestamp: int | None
    batch_size: int
    limit: int | None
    bad_cells: Literal["raise", "null"]
    provenance: bool
    consistency: Consistency | str | None
    replica_id: int | None
    max_staleness: float | None


@dataclass(frozen=True, slots=True)
class _Request:
    """A scan whose arguments are checked."""

    scan: Scan
    shape: BatchShape
    consistency: Consistency
    replica_id: int | None
    max_staleness_s: float | None


class TableColumns:
    """The part of :class:`metaclient.Table` that reads and writes columns."""

    name: bytes
    connection: Connection
    _engine: Engine

    if TYPE_CHECKING:

        def _level(
            self, consistency: Consistency | str | None, replica_id: int | None
        ) -> tuple[Consistency, int | None]: ...

        def _limit_s(self, max_staleness: float | None, level: Consistency, replica_id: int | None) -> float | None: ...

        def _needs(self, capability: str, what: str) -> None: ...

    # -- reading ---------------------------------------------------------------------------------------------

    def scan_arrow(
        self,
        row_start: bytes | str | None = None,
        row_stop: bytes | str | None = None,
        row_prefix: bytes | str | None = None,
        **options: Unpack[ColumnScanOptions],
    ) -> Iterator[pa.RecordBatch]:
        """Iterate over a range ``[row_start, row_stop)``, or a prefix, as record batches of at most 10,000 rows.

        ``schema`` maps columns to types, ``{"row": "string", "d:age": "int", "d:note": ("string", "json")}``: a batch
        has a row per row of HBase, with the newest version of each cell. Rows that have none of these cells are not
        returned, as with ``columns`` of :meth:`scan`. Without a schema a batch has a row per cell: row, family,
        qualifier, timestamp, value; ``columns`` selects.

        A cell that is no value of its type raises, or is null with ``bad_cells="null"``. ``provenance=True`` adds the
        columns ``stale`` and ``replica_id``. The other options are those of :meth:`scan`. Errors in arguments are
        raised here, not at the first batch. Closing the iterator early closes the server's scanner.
        """
        _need("scan_arrow()", "pyarrow", "numpy", extra="arrow")
        return self._batches(self._request(row_start, row_stop, row_prefix, options))

    def to_arrow(
        self,
        row_start: bytes | str | None = None,
        row_stop: bytes | str | None = None,
        row_prefix: bytes | str | None = None,
        **options: Unpack[ColumnScanOptions],
    ) -> pa.Table:
        """Return a range of rows as one Arrow table, with the arguments of :meth:`scan_arrow`.

        While it runs for more than two seconds, and standard error is a terminal, a line shows the progress.
        """
        _need("to_arrow()", "pyarrow", "numpy", extra="arrow")
        import pyarrow as pa

        request = self._request(row_start, row_stop, row_prefix, options)
        batches: list[pa.RecordBatch] = []
        what = f"scan of {keys.printable(self.name)}"
        progress = ScanProgress(what, sys.stderr, self._engine.runtime.now, limit=request.scan.limit)
        try:
            for batch in self._batches(request):
                batches.append(batch)
                progress.add(batch.num_rows, batch.nbytes)
        finally:
            progress.close()
        return pa.Table.from_batches(batches, schema=request.shape.arrow_schema)

    def to_pandas(
        self,
        row_start: bytes | str | None = None,
        row_stop: bytes | str | None = None,
        row_prefix: bytes | str | None = None,
        **options: Unpack[ColumnScanOptions],
    ) -> pandas.DataFrame:
        """Return a range of rows as a DataFrame of pandas, with the arguments of :meth:`scan_arrow`.

        Whole numbers and booleans of a schema have pandas' nullable types (``Int64``, ``boolean``): a missing cell
        makes no float of the others.
        """
        _need("to_pandas()", "pandas", "pyarrow", "numpy", extra="pandas")
        found = self.to_arrow(row_start, row_stop, row_prefix, **options)
        return found.to_pandas(types_mapper=None if options.get("schema") is None else nullable_types().get)

    def to_polars(
        self,
        row_start: bytes | str | None = None,
        row_stop: bytes | str | None = None,
        row_prefix: bytes | str | None = None,
        **options: Unpack[ColumnScanOptions],
    ) -> polars.DataFrame:
        """Return a range of rows as a DataFrame of polars, with the arguments of :meth:`scan_arrow`."""
        _need("to_polars()", "polars", "pyarrow", "numpy", extra="polars")
        import polars

        made = polars.from_arrow(self.to_arrow(row_start, row_stop, row_prefix, **options))
        assert isinstance(made, polars.DataFrame)
        return made

    def _request(
        self,
        row_start: bytes | str | None,
        row_stop: bytes | str | None,
        row_prefix: bytes | str | None,
        options: ColumnScanOptions,
    ) -> _Request:
        unknown = options.keys() - ColumnScanOptions.__annotations__.keys()
        if unknown:
            known = ", ".join(ColumnScanOptions.__annotations__)
            raise TypeError(f"scans of columns have no option {sorted(unknown)[0]!r}; they have {known}")
        given = options.get("schema")
        schema = None if given is None else parse_schema(given)
        columns, filter = options.get("columns"), options.get("filter")
        if schema is not None and columns is not None:
            raise TypeError("'columns' cannot be combined with 'schema', which names the columns")
        if filter is not None:
            self._needs("filters", "filters")
        elif schema is not None and not schema.scanned() and self._engine.capabilities.filters:
            filter = _KEYS_ONLY  # the row keys alone: no values are sent
        scan = make_scan(
            row_start,
            row_stop,
            row_prefix,
            columns=(schema.scanned() or None) if schema is not None else columns,
            filter=filter,
            timestamp=options.get("timestamp"),
            batch_size=options.get("batch_size", min(CACHING, self._engine.config.scan_caching * 5)),
            scan_batching=None,
            limit=options.get("limit"),
            reverse=False,
            is_meta=self.name == META_TABLE,
        )
        level, replica_id = self._level(options.get("consistency"), options.get("replica_id"))
        limit_s = self._limit_s(options.get("max_staleness"), level, replica_id)
        self._engine.check_open()
        scan = replace(scan, max_result_bytes=self._engine.config.scan_max_result_bytes)
        return _Request(scan, self._shape(schema, options), level, replica_id, limit_s)

    def _shape(self, schema: TableSchema | None, options: ColumnScanOptions) -> BatchShape:
        bad_cells, provenance = options.get("bad_cells", "raise"), bool(options.get("provenance", False))
        if bad_cells not in ("raise", "null"):
            raise ValueError(f"'bad_cells' must be 'raise' or 'null', got {bad_cells!r}")
        if schema is None:
            return raw_shape(self.name, provenance=provenance)
        return schema_shape(self.name, schema, bad_are_null=bad_cells == "null", provenance=provenance)

    def _batches(self, request: _Request) -> Generator[pa.RecordBatch, None, None]:
        engine, where = self._engine, (request.consistency, request.replica_id, request.max_staleness_s)
        telemetry = engine.telemetry
        # Not the current span, because the caller does other work between two batches.
        observed: Any = telemetry.operation("scan", self.name, is_current=False) if telemetry.is_on else nullcontext()
        with observed, self._pointing_at_filter(request.scan.filter):
            # hbase:meta is not in the order of bytes, in which pages of cells are checked.
            if engine.capabilities.cell_pages and self.name != META_TABLE:
                with closing(self._pages(request)) as pages:
                    yield from self._while_open(batches_from_cells(pages, request.shape))
            else:
                with closing(engine.scan_rows(self.name, request.scan, *where)) as results:
                    yield from self._while_open(batches_from_results(results, request.shape))

    @contextmanager
    def _pointing_at_filter(self, text: bytes | None) -> Iterator[None]:
        try:
            yield
        except MetaClientError as error:
            point_at_filter(error, text)
            self._engine.adapt(error)
            raise

    def _pages(self, request: _Request) -> Pages:
        """Yield the pages of a scan; read whole families if most of their bytes are wanted.

        Servers search each row for the columns that a scan names, which takes several times as long as to return all
        columns. The first page of whole families decides. A filter sees the named columns only, and a limit counts the
        rows that have one of them, so that both need a scan that names the columns.
        """
        scan, where = request.scan, (request.consistency, request.replica_id, request.max_staleness_s)
        named = [name for name in scan.columns or () if b":" in name]
        if named and scan.filter is None and scan.limit is None:
            kept = Projection.to(scan.columns or ())
            whole = replace(scan, columns=tuple(sorted(kept.families_of_all())))
            with closing(iter(self._engine.scan_cells(self.name, whole, *where))) as pages:
                is_worthwhile: bool | None = None
                for page, place in pages:
                    wanted = kept.of_page(page)
                    if wanted is not None:
                        yield wanted, place
                    if is_worthwhile is None:
                        found = 0 if wanted is None else wanted.cells.nbytes
                        is_worthwhile = found >= page.cells.nbytes * WANTED_SHARE
                        if not is_worthwhile:
                            scan = replace(scan, start_row=page.last_row, include_start=False)
                            break
                else:
                    return
        with closing(iter(self._engine.scan_cells(self.name, scan, *where))) as pages:
            yield from pages

    def _while_open(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            if self._engine.life is Life.CLOSED:
                self._engine.check_open()

    # -- writing ---------------------------------------------------------------------------------------------

    def put_arrow(
        self, data: ArrowData, schema: SchemaLike | None = None, *, timestamp: int | None = None, wal: bool = True
    ) -> int:
        """Write Arrow data, a column ``row`` and a column per cell (``d:age``); return the number of rows written.

        ``data`` is a RecordBatch, a Table, or an iterable of batches. ``schema`` is that of :meth:`scan_arrow`; without
        it the Arrow types decide. Nulls are not written. Data with the columns of raw cells, as :meth:`to_arrow`
        returns them without a schema, is written with the timestamps of its cells.

        Rows are written in calls of about 1,000. If rows of a call cannot be written, :class:`BatchError` names them;
        the calls before it are applied, and the rows after it are not sent.
        """
        _need("put_arrow()", "pyarrow", "numpy", extra="arrow")
        where = f"put_arrow on {keys.printable(self.name)}"
        wanted = None if schema is None else parse_schema(schema)
        stamp = timestamp_of(timestamp)
        durability = Durability.USE_DEFAULT if wal else Durability.SKIP_WAL
        written = 0
        with self._engine.observed("batch", self.name):
            for batch in puts.batches_of(data):
                if wanted is None and puts.is_raw(batch.schema):
                    written += self._put_cells(puts.raw_puts(where, batch, timestamp, durability), written)
                    continue
                fields = puts.inferred_schema(where, batch.schema) if wanted is None else wanted
                at = LATEST_TIMESTAMP if timestamp is None else stamp
                for part in parts(puts.page_of(where, batch, fields, at, durability), PUT_ROWS, PUT_BYTES):
                    self._raise(self._engine.put_page(self.name, part), len(part), written)
                    written += len(part)
        return written

    def put_pandas(
        self,
        frame: pandas.DataFrame,
        schema: SchemaLike | None = None,
        *,
        timestamp: int | None = None,
        wal: bool = True,
    ) -> int:
        """Write a DataFrame of pandas: a column or an index called ``row``, and a column per cell.

        The other arguments and the result are those of :meth:`put_arrow`. NaN, NaT and None are not written.
        """
        _need("put_pandas()", "pandas", "pyarrow", "numpy", extra="pandas")
        import pandas
        import pyarrow as pa

        if not isinstance(frame, pandas.DataFrame):
            raise TypeError(f"put_pandas() takes a DataFrame, got {type(frame).__name__}")
        if ROW not in frame.columns and frame.index.name == ROW:
            frame = frame.reset_index()
        if ROW not in frame.columns:
            raise ValueError(
                "put_pandas() needs the row keys in a column or an index called 'row': "
                "frame.rename(columns={...: 'row'}) or frame.rename_axis('row')"
            )
        data = pa.Table.from_pandas(frame, preserve_index=False)
        return self.put_arrow(data, schema, timestamp=timestamp, wal=wal)

    def _put_cells(self, cells: list[Put], before: int) -> int:
        for begin in range(0, len(cells), PUT_ROWS):
            some = cells[begin : begin + PUT_ROWS]
            outcomes = self._engine.batch(self.name, some)
            failed = {
                put.row: outcome
                for put, outcome in zip(some, outcomes, strict=True)
                if isinstance(outcome, MetaClientError)
            }
            self._raise(failed, len(some), before + begin)
        return len(cells)

    def _raise(self, failed: dict[bytes, MetaClientError], rows: int, before: int) -> None:
        if failed:
            row, error = next(iter(failed.items()))
            raise BatchError(
                f"{len(failed)} of {rows} rows of a call on '{keys.printable(self.name)}' failed, after {before} rows "
                f"were written; the first is '{keys.printable(row)}': {type(error).__name__}: {error}; see .failed",
                failed=failed,
            )


def _need(what: str, *packages: str, extra: str) -> None:
    """Raise ExtraMissing, with the command that installs it, if one of the packages is not installed."""
    for package in packages:
        if find_spec(package) is None:
            raise ExtraMissing.of(what, package, extra=extra)
