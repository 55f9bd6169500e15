"""A table: happybase's methods, plus consistency, replicas and atomic row operations.

Arguments of users are checked and converted to bytes here. A wrong argument raises an error at once, which names the
argument and the correction.

It has more than 600 lines because happybase has all calls of a table in one class, and overloads repeat arguments.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

from metaclient import keys
from metaclient.arguments import (
    Columns,
    Data,
    FilterLike,
    amount_of,
    cells_of,
    columns_of,
    level_of,
    make_delete,
    make_get,
    make_put,
    make_scan,
    max_staleness_of,
    max_timestamp_of,
    point_at_filter,
    timestamp_of,
    value_of,
)
from metaclient.attempts import PINNED, PRIMARY
from metaclient.batch import Batch
from metaclient.calls.operations import Placed
from metaclient.calls.started import StartedGet
from metaclient.engine import Life
from metaclient.errors import BackendFault, MetaClientError, Unsupported
from metaclient.many_gets import Gets, PlacedRows
from metaclient.model import (
    LATEST_TIMESTAMP,
    META_TABLE,
    TTL_FOREVER,
    Append,
    Check,
    CompareOp,
    Consistency,
    Delete,
    Get,
    Increment,
    Put,
    PutCells,
    RegionInfo,
    RegionLocation,
    Result,
    Row,
    RowMutations,
    ServerName,
)
from metaclient.row_runs import AlikeRows
from metaclient.scanner import TableScanner
from metaclient.table_columns import TableColumns
from metaclient.telemetry import Observed

if TYPE_CHECKING:
    from metaclient.connection import Connection

__all__ = ["Table"]

_int64 = Struct(">q")
#: The largest i32 of happybase; HBase reads it as "all versions".
ALL_VERSIONS = 2**31 - 1
_CLOSED = Life.CLOSED
_new_row: Callable[[type[Row[Any]]], Row[Any]] = dict.__new__


class ReadOptions(TypedDict, total=False):
    """The options of every read: which replicas may answer, and how old an answer may be."""

    consistency: Consistency | str | None
    replica_id: int | None
    max_staleness: float | None


class RowOptions(ReadOptions, total=False):
    """The options of a read of one row."""

    filter: FilterLike


class _Default(int):
    """A default value that differs in type from the same number given by the user."""

    __slots__ = ()


#: happybase's number of rows per page; without an explicit value the setting ``scan_caching`` is used.
BATCH_SIZE = _Default(1000)


class Table(TableColumns):
    """A table of a connection; created by :meth:`Connection.table`, which makes no call.

    It has more than 30 methods because each read has an overload per type of its result.

    >>> import metaclient
    >>> with metaclient.connect("scripted:") as connection:
    ...     connection.create_table("t", {"cf": {}})
    ...     table = connection.table("t")
    ...     table.put(b"r1", {b"cf:a": b"1"})
    ...     row = table.row(b"r1")
    ...     print(row, row.stale)
    {b'cf:a': b'1'} False
    """

    _reads_primary = True  # by a read without options

    def __init__(self, name: bytes, connection: Connection) -> None:
        self.name = name
        self.connection = connection
        self._engine = connection.engine

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} name={self.name!r}>"

    # -- descriptions ----------------------------------------------------------------------------------------

    def families(self) -> dict[bytes, dict[str, Any]]:
        """Return the settings by column family, under happybase's names, and ``replication_scope``.

        Thrift 1 does not report the scope: there the name is missing.
        """
        descriptor = self._engine.describe(self.name)
        has_scopes = self._engine.capabilities.family_scopes
        return {
            family.name: {
                "name": family.name + b":",
                "max_versions": family.max_versions,
                "compression": family.compression.encode(),
                "in_memory": family.in_memory,
                "bloom_filter_type": family.bloom_filter_type.encode(),
                "bloom_filter_vector_size": 0,
                "bloom_filter_nb_hashes": 0,
                "block_cache_enabled": family.block_cache_enabled,
                "time_to_live": family.time_to_live_s if family.time_to_live_s is not None else TTL_FOREVER,
                **({"replication_scope": family.replication_scope} if has_scopes else {}),
            }
            for family in descriptor.families
        }

    def regions(self) -> list[dict[str, Any]]:
        """Return the table's regions, one entry per replica, under happybase's names."""
        return [
            {
                "start_key": location.region.start_key,
                "end_key": location.region.end_key,
                "id": location.region.region_id,
                "name": location.region_name,
                "version": 1,
                "server_name": location.server.host.encode(),
                "port": location.server.port,
            }
            for entry in self._engine.regions(self.name)
            for location in entry.placed()
        ]

    # -- reading ---------------------------------------------------------------------------------------------

    @overload
    def row(
        self,
        row: bytes | str,
        columns: Columns = None,
        timestamp: int | None = None,
        include_timestamp: Literal[False] = False,
        **options: Unpack[RowOptions],
    ) -> Row: ...

    @overload
    def row(
        self,
        row: bytes | str,
        columns: Columns = None,
        timestamp: int | None = None,
        *,
        include_timestamp: Literal[True],
        **options: Unpack[RowOptions],
    ) -> Row[tuple[bytes, int]]: ...

    @overload
    def row(
        self,
        row: bytes | str,
        columns: Columns = None,
        timestamp: int | None = None,
        include_timestamp: bool = False,
        **options: Unpack[RowOptions],
    ) -> Row[Any]: ...

    def row(
        self,
        row: bytes | str,
        columns: Columns = None,
        timestamp: int | None = None,
        include_timestamp: bool = False,
        *,
        consistency: Consistency | str | None = None,
        replica_id: int | None = None,
        filter: FilterLike = None,
        max_staleness: float | None = None,
    ) -> Row[Any]:
        """Read one row: column -> value, or -> (value, timestamp) with ``include_timestamp``.

        ``columns`` are ``b"cf"`` (the family) or ``b"cf:q"``; ``timestamp`` is the exclusive upper bound of versions. A
        missing row is an empty ``Row``. ``Row.stale`` is True if a secondary answered.

        ``max_staleness``, in seconds, is for TIMELINE reads, here and in the methods below: no answer lacks a write
        that was acknowledged longer before. A replica that may be further behind, or whose lag is unknown, is not
        called, and the primary is. The default is ``max_staleness_s`` of the connection; ``math.inf`` is no limit.
        """
        if type(row) is not bytes or not 0 < len(row) <= keys.ROW_LENGTH_MAX:
            row = keys.row_key(row)
        get = (
            Get(row)
            if columns is None and timestamp is None and filter is None
            else make_get(row, columns, timestamp, filter)
        )
        engine = self._engine
        if filter is not None:
            self._needs("filters", "filters")
        is_plain = consistency is None and replica_id is None and max_staleness is None and self._reads_primary
        if engine.life is _CLOSED or engine.telemetry.is_on or not is_plain:
            level, replica_id = self._level(consistency, replica_id)
            limit_s = self._limit_s(max_staleness, level, replica_id)
            with engine.observed("row", self.name) as seen:
                result, place = engine.get(self.name, get, level, replica_id, limit_s)
                _answered(seen, result, place)
                return _row(result, place, include_timestamp)
        try:
            result, place = engine.get_strong(self.name, get)
        except MetaClientError as error:
            point_at_filter(error, get.filter)
            raise
        return _row(result, place, include_timestamp)

    def _start_row(
        self,
        row: bytes | str,
        columns: Columns = None,
        timestamp: int | None = None,
        include_timestamp: bool = False,
        **options: Any,
    ) -> StartedGet[Row[Any]] | None:
        """Start :meth:`row` on an event loop, without waiting; None if only :meth:`row` can do it."""
        engine = self._engine
        if options or engine.life is _CLOSED or engine.telemetry.is_on or not self._reads_primary:
            return None
        key = keys.row_key(row)
        get = Get(key) if columns is None and timestamp is None else make_get(key, columns, timestamp, None)
        return engine.start_get(self.name, get, _timed_row if include_timestamp else _plain_row)

    def _level(self, consistency: Consistency | str | None, replica_id: int | None) -> tuple[Consistency, int | None]:
        """Return the consistency and the replica id of a read with these arguments."""
        return level_of(consistency, replica_id)

    def _limit_s(self, max_staleness: float | None, level: Consistency, replica_id: int | None) -> float | None:
        return max_staleness_of(max_staleness, level, replica_id, self.connection.config.max_staleness_s)

    @overload
    def rows(
        self,
        rows: Sequence[bytes | str],
        columns: Columns = None,
        timestamp: int | None = None,
        include_timestamp: Literal[False] = False,
        **options: Unpack[ReadOptions],
    ) -> list[tuple[bytes, Row]]: ...

    @overload
    def rows(
        self,
        rows: Sequence[bytes | str],
        columns: Columns = None,
        timestamp: int | None = None,
        *,
        include_timestamp: Literal[True],
        **options: Unpack[ReadOptions],
    ) -> list[tuple[bytes, Row[tuple[bytes, int]]]]: ...

    @overload
    def rows(
        self,
        rows: Sequence[bytes | str],
        columns: Columns = None,
        timestamp: int | None = None,
        include_timestamp: bool = False,
        **options: Unpack[ReadOptions],
    ) -> list[tuple[bytes, Row[Any]]]: ...

    def rows(
        self,
        rows: Sequence[bytes | str],
        columns: Columns = None,
        timestamp: int | None = None,
        include_timestamp: bool = False,
        *,
        consistency: Consistency | str | None = None,
        replica_id: int | None = None,
        max_staleness: float | None = None,
    ) -> list[tuple[bytes, Row[Any]]]:
        """Read many rows, one call per server; return (row key, row) of those that exist, in the order given.

        A key that is given twice is returned twice.
        """
        if isinstance(rows, bytes | str) or not isinstance(rows, Iterable):
            raise TypeError(f"'rows' must be a list of row keys, got one {type(rows).__name__}; did you mean row()?")
        names, until = columns_of(columns), max_timestamp_of(timestamp)
        longest = keys.ROW_LENGTH_MAX
        wanted = [row if type(row) is bytes and 0 < len(row) <= longest else keys.row_key(row, "rows") for row in rows]
        level, replica_id = self._level(consistency, replica_id)
        limit_s = self._limit_s(max_staleness, level, replica_id)
        with self._engine.observed("rows", self.name):
            if not wanted:
                return {}  # type: ignore[return-value]  # happybase returns an empty dict here, too
            gets = Gets(wanted, Get(b"", names, max_timestamp=until))
            found = self._engine.get_many(self.name, gets, level, replica_id, limit_s)
            if isinstance(found, PlacedRows):
                return _placed_rows(wanted, found, include_timestamp)
            return [
                (row, _row(result, place, include_timestamp))
                for row, (result, place) in zip(wanted, found, strict=True)
                if result.cells
            ]

    @overload
    def cells(
        self,
        row: bytes | str,
        column: bytes | str,
        versions: int | None = None,
        timestamp: int | None = None,
        include_timestamp: Literal[False] = False,
        **options: Unpack[ReadOptions],
    ) -> list[bytes]: ...

    @overload
    def cells(
        self,
        row: bytes | str,
        column: bytes | str,
        versions: int | None = None,
        timestamp: int | None = None,
        *,
        include_timestamp: Literal[True],
        **options: Unpack[ReadOptions],
    ) -> list[tuple[bytes, int]]: ...

    @overload
    def cells(
        self,
        row: bytes | str,
        column: bytes | str,
        versions: int | None = None,
        timestamp: int | None = None,
        include_timestamp: bool = False,
        **options: Unpack[ReadOptions],
    ) -> list[Any]: ...

    def cells(
        self,
        row: bytes | str,
        column: bytes | str,
        versions: int | None = None,
        timestamp: int | None = None,
        include_timestamp: bool = False,
        *,
        consistency: Consistency | str | None = None,
        replica_id: int | None = None,
        max_staleness: float | None = None,
    ) -> list[Any]:
        """Return versions of one column, newest first: values, or (value, timestamp) pairs."""
        if versions is None:
            versions = ALL_VERSIONS
        elif not isinstance(versions, int) or isinstance(versions, bool):
            raise TypeError(f"'versions' must be a number or None, got {versions!r}")
        elif versions < 1:
            raise ValueError(f"'versions' must be at least 1 (or None), got {versions}")
        name = keys.column_name(column, "column", family_only_ok=True)
        get = Get(keys.row_key(row), (name,), max_versions=versions, max_timestamp=max_timestamp_of(timestamp))
        level, replica_id = self._level(consistency, replica_id)
        limit_s = self._limit_s(max_staleness, level, replica_id)
        with self._engine.observed("cells", self.name) as seen:
            result, place = self._engine.get(self.name, get, level, replica_id, limit_s)
            _answered(seen, result, place)
        return [(cell.value, cell.timestamp) if include_timestamp else cell.value for cell in result.cells]

    def exists(
        self,
        row: bytes | str,
        columns: Columns = None,
        *,
        consistency: Consistency | str | None = None,
        replica_id: int | None = None,
        max_staleness: float | None = None,
    ) -> bool:
        """Return True if the row has a cell (in these columns)."""
        plain = make_get(keys.row_key(row), columns, None, None)
        get = Get(plain.row, plain.columns, existence_only=True)
        level, replica_id = self._level(consistency, replica_id)
        limit_s = self._limit_s(max_staleness, level, replica_id)
        with self._engine.observed("exists", self.name) as seen:
            result, place = self._engine.get(self.name, get, level, replica_id, limit_s)
            _answered(seen, result, place)
        return result.exists if result.exists is not None else bool(result.cells)

    @overload
    def scan(
        self,
        row_start: bytes | str | None = None,
        row_stop: bytes | str | None = None,
        row_prefix: bytes | str | None = None,
        columns: Columns = None,
        filter: FilterLike = None,
        timestamp: int | None = None,
        include_timestamp: Literal[False] = False,
        batch_size: int = BATCH_SIZE,
        scan_batching: int | None = None,
        limit: int | None = None,
        sorted_columns: Literal[False] = False,
        reverse: bool = False,
        **options: Unpack[ReadOptions],
    ) -> Iterator[tuple[bytes, Row]]: ...

    @overload
    def scan(
        self,
        row_start: bytes | str | None = None,
        row_stop: bytes | str | None = None,
        row_prefix: bytes | str | None = None,
        columns: Columns = None,
        filter: FilterLike = None,
        timestamp: int | None = None,
        *,
        include_timestamp: Literal[True],
        batch_size: int = BATCH_SIZE,
        scan_batching: int | None = None,
        limit: int | None = None,
        sorted_columns: Literal[False] = False,
        reverse: bool = False,
        **options: Unpack[ReadOptions],
    ) -> Iterator[tuple[bytes, Row[tuple[bytes, int]]]]: ...

    @overload
    def scan(
        self,
        row_start: bytes | str | None = None,
        row_stop: bytes | str | None = None,
        row_prefix: bytes | str | None = None,
        columns: Columns = None,
        filter: FilterLike = None,
        timestamp: int | None = None,
        include_timestamp: bool = False,
        batch_size: int = BATCH_SIZE,
        scan_batching: int | None = None,
        limit: int | None = None,
        sorted_columns: bool = False,
        reverse: bool = False,
        **options: Unpack[ReadOptions],
    ) -> Iterator[tuple[bytes, Row[Any] | OrderedDict[bytes, Any]]]: ...

    def scan(
        self,
        row_start: bytes | str | None = None,
        row_stop: bytes | str | None = None,
        row_prefix: bytes | str | None = None,
        columns: Columns = None,
        filter: FilterLike = None,
        timestamp: int | None = None,
        include_timestamp: bool = False,
        batch_size: int = BATCH_SIZE,
        scan_batching: int | None = None,
        limit: int | None = None,
        sorted_columns: bool = False,
        reverse: bool = False,
        *,
        consistency: Consistency | str | None = None,
        replica_id: int | None = None,
        max_staleness: float | None = None,
    ) -> Iterator[tuple[bytes, Row[Any] | OrderedDict[bytes, Any]]]:
        """Iterate over (row key, row) of a range ``[row_start, row_stop)``, or of a prefix.

        ``reverse``: from ``row_start`` (inclusive, the upper end) down to ``row_stop`` (exclusive). ``limit`` is the
        number of results; with ``scan_batching`` a row may have several results. A page has ``batch_size`` rows
        (default: ``hbase.client.scanner.caching``) or ``hbase.client.scanner.max.result.size`` bytes,
        whichever is less. Errors in arguments are raised here, not at the first row. Closing the iterator early closes
        the server's scanner.
        """
        config = self.connection.config
        rows = config.scan_caching if batch_size is BATCH_SIZE else batch_size
        scan = make_scan(
            row_start,
            row_stop,
            row_prefix,
            columns=columns,
            filter=filter,
            timestamp=timestamp,
            batch_size=rows,
            scan_batching=scan_batching,
            limit=limit,
            reverse=reverse,
            is_meta=self.name == META_TABLE,
        )
        scan = replace(scan, max_result_bytes=config.scan_max_result_bytes)
        level, replica_id = self._level(consistency, replica_id)
        limit_s = self._limit_s(max_staleness, level, replica_id)
        if reverse:
            self._needs("reversed_scan", "scans in reverse")
        if filter is not None:
            self._needs("filters", "filters")
        self._engine.check_open()
        scanner = self._engine.scan_rows(self.name, scan, level, replica_id, limit_s)
        return self._scanned(scanner, include_timestamp, sorted_columns, scan.filter)

    def _scanned(
        self, scanner: TableScanner, include_timestamp: bool, sorted_columns: bool, filter_text: bytes | None
    ) -> Iterator[tuple[bytes, Row[Any] | OrderedDict[bytes, Any]]]:
        engine = self._engine
        telemetry = engine.telemetry
        # Not the current span, because the caller does other work between two rows.
        observed = telemetry.operation("scan", self.name, is_current=False) if telemetry.is_on else nullcontext()
        try:
            with observed:
                for run, place in scanner.runs():
                    if type(run) is AlikeRows and not include_timestamp and not sorted_columns:
                        rows: Iterator[tuple[bytes, Row[Any] | OrderedDict[bytes, Any]]] = _alike_rows(run, place)
                    else:
                        rows = _single_rows(run, place, include_timestamp, sorted_columns)
                    for each in rows:
                        yield each
                        if engine.life is _CLOSED:
                            engine.check_open()
        except MetaClientError as error:
            point_at_filter(error, filter_text)
            engine.adapt(error)
            raise
        finally:
            scanner.close()

    # -- writing ---------------------------------------------------------------------------------------------

    def put(
        self,
        row: bytes | str,
        data: Data,
        timestamp: int | None = None,
        wal: bool = True,
    ) -> None:
        """Store column -> value in one row, atomically; without columns nothing is written, as in happybase."""
        if not data and isinstance(data, Mapping):
            keys.row_key(row)
            self._engine.check_open()
            return
        put = make_put(row, data, LATEST_TIMESTAMP if timestamp is None else timestamp_of(timestamp), wal)
        engine = self._engine
        if engine.life is _CLOSED or engine.telemetry.is_on:
            with engine.observed("put", self.name):
                engine.mutate(self.name, put)
        else:
            engine.mutate(self.name, put)

    def delete(self, row: bytes | str, columns: Columns = None, timestamp: int | None = None, wal: bool = True) -> None:
        """Delete the row, or all versions (up to ``timestamp``) of these columns or families of it."""
        delete = make_delete(row, columns, timestamp_of(timestamp), wal)
        with self._engine.observed("delete", self.name):
            self._engine.mutate(self.name, delete)

    def batch(
        self,
        timestamp: int | None = None,
        batch_size: int | None = None,
        transaction: bool = False,
        wal: bool = True,
    ) -> Batch:
        """Collect puts and deletes and send them together; see :class:`Batch`."""
        self._engine.check_open()
        return Batch(self, timestamp, batch_size, transaction, wal)

    def append(self, row: bytes | str, data: Data) -> Row:
        """Append to values of one row, atomically; return the new values. Retried as :meth:`counter_inc` is."""
        self._needs("append", "append")
        append = Append(
            keys.row_key(row), tuple((cell.column, cell.value) for cell in cells_of(data, LATEST_TIMESTAMP))
        )
        with self._engine.observed("append", self.name):
            result = self._engine.mutate(self.name, append)
        return _row(result or Result(append.row), None, False)

    def mutate_row(
        self,
        row: bytes | str,
        put: Data | None = None,
        delete: Columns = None,
        timestamp: int | None = None,
        wal: bool = True,
    ) -> None:
        """Delete columns of a row and put others, atomically; the put is applied after the delete."""
        self._needs("row_mutations", "atomic row mutations")
        mutations: list[Put | Delete] = []
        if delete is not None:
            mutations.append(make_delete(row, delete, timestamp_of(timestamp), wal))
        if put is not None:
            mutations.append(make_put(row, put, timestamp_of(timestamp), wal))
        if not mutations:
            raise ValueError("mutate_row() needs 'put', 'delete' or both")
        with self._engine.observed("mutate_row", self.name):
            self._engine.mutate(self.name, RowMutations(mutations[0].row, tuple(mutations)))

    def check_and_put(
        self,
        row: bytes | str,
        column: bytes | str,
        value: bytes | str | None,
        data: Data,
        timestamp: int | None = None,
        wal: bool = True,
        *,
        op: CompareOp | str = CompareOp.EQUAL,
    ) -> bool:
        """Put if *stored value* ``op`` ``value`` holds (None: if the column is absent); return True if it was put."""
        check = self._check(row, column, value, op)
        put = make_put(row, data, timestamp_of(timestamp), wal)
        with self._engine.observed("check_and_put", self.name):
            return self._engine.check_and_mutate(self.name, check, put)

    def check_and_delete(
        self,
        row: bytes | str,
        column: bytes | str,
        value: bytes | str | None,
        columns: Columns = None,
        timestamp: int | None = None,
        wal: bool = True,
        *,
        op: CompareOp | str = CompareOp.EQUAL,
    ) -> bool:
        """Delete if *stored value* ``op`` ``value`` holds (None: if the column is absent); return True if deleted."""
        check = self._check(row, column, value, op)
        delete = make_delete(row, columns, timestamp_of(timestamp), wal)
        with self._engine.observed("check_and_delete", self.name):
            return self._engine.check_and_mutate(self.name, check, delete)

    def _check(self, row: bytes | str, column: bytes | str, value: bytes | str | None, op: CompareOp | str) -> Check:
        self._needs("check_and_mutate", "check-and-mutate")
        if isinstance(op, str):
            try:
                op = CompareOp(op)
            except ValueError:
                raise ValueError(f"'op' must be one of {', '.join(o.value for o in CompareOp)}, got {op!r}") from None
        data = None if value is None else value_of(value, "value")
        return Check(keys.row_key(row), keys.column_name(column, "column", family_only_ok=False), data, op)

    def _needs(self, capability: str, what: str) -> None:
        if not getattr(self.connection.capabilities, capability):
            raise Unsupported(f"the backend {self._engine.backend.name!r} has no {what}")

    # -- counters --------------------------------------------------------------------------------------------

    def counter_get(self, row: bytes | str, column: bytes | str) -> int:
        """Return the counter's value; a missing counter is created with 0 (as in happybase)."""
        return self.counter_inc(row, column, value=0)

    def counter_set(self, row: bytes | str, column: bytes | str, value: int = 0) -> None:
        """Set a counter; use :meth:`counter_inc` to change one."""
        self.put(row, {column: _int64.pack(amount_of(value))})

    def counter_inc(self, row: bytes | str, column: bytes | str, value: int = 1) -> int:
        """Add to a counter, atomically; return the new value.

        If the increment may have been applied, it is retried only with a nonce (``hbase:`` urls), with which the server
        applies it at most once. A retry usually returns the increment's own value, but may return a later one. Set
        ``nonces=False`` if values must be unique.
        """
        name = keys.column_name(column, "column", family_only_ok=False)
        increment = Increment(keys.row_key(row), ((name, amount_of(value)),))
        with self._engine.observed("counter_inc", self.name):
            result = self._engine.mutate(self.name, increment)
        try:
            values = {cell.column: cell.value for cell in result.cells} if result is not None else {}
            return int(_int64.unpack(values[name])[0])
        except (LookupError, TypeError, AttributeError, struct_error) as error:
            text = f"the backend answered no 64-bit value of '{keys.printable(name)}' to an increment"
            raise BackendFault(text, may_have_applied=True) from error

    def counter_dec(self, row: bytes | str, column: bytes | str, value: int = 1) -> int:
        """Subtract from a counter, atomically; return the new value."""
        return self.counter_inc(row, column, -amount_of(value))


def _row(result: Result, place: RegionLocation | None, include_timestamp: bool) -> Row[Any]:
    row: Row[Any] = _new_row(Row)  # filled in place, because this runs for every row of a scan
    cells = result.cells
    try:
        if include_timestamp:
            for cell in cells:
                row[cell[0]] = (cell[2], cell[1])
        elif type(cells) is PutCells:
            row |= zip(cells.columns, cells.values)  # noqa: B905  # both have a length, and the keyword costs time
        else:
            for cell in cells:
                row[cell[0]] = cell[2]
    except (TypeError, LookupError) as error:
        raise BackendFault(f"the backend returned a row with an invalid cell: {error}") from error
    row.stale = result.is_stale
    row.lag_s = result.lag_s
    row.replica_id, row.server, row.region, row.why = _origin(place)
    return row


def _plain_row(placed: Placed) -> Row:
    return _row(*placed, include_timestamp=False)


def _timed_row(placed: Placed) -> Row[tuple[bytes, int]]:
    return _row(*placed, include_timestamp=True)


def _single_rows(
    results: Sequence[Result], place: RegionLocation | None, include_timestamp: bool, sorted_columns: bool
) -> Iterator[tuple[bytes, Row[Any] | OrderedDict[bytes, Any]]]:
    for result in results:
        row = _row(result, place, include_timestamp)
        # happybase promises an OrderedDict here; cells arrive in HBase's order, which is sorted.
        yield result.row, OrderedDict(row) if sorted_columns else row


def _placed_rows(wanted: Sequence[bytes], found: PlacedRows, include_timestamp: bool) -> list[tuple[bytes, Row[Any]]]:
    """Return (key, row) of the rows that exist, in the order of ``wanted``, as ``_row`` makes them."""
    made: list[Any] = [None] * len(wanted)
    for indexes, places, rows in found.parts:
        if rows.indexes is not None:
            indexes, places = [indexes[each] for each in rows.indexes], [places[each] for each in rows.indexes]
        targets = zip(indexes, places, strict=True)
        for run in rows.runs.runs:
            if isinstance(run, AlikeRows):
                _fill_alike(made, wanted, run, targets, include_timestamp)
                continue
            for result, (index, place) in zip(run, targets, strict=False):
                if result.cells:
                    made[index] = (wanted[index], _row(result, place, include_timestamp))
    return [one for one in made if one is not None] if None in made else made


def _fill_alike(
    made: list[Any],
    wanted: Sequence[bytes],
    run: AlikeRows,
    targets: Iterator[tuple[int, RegionLocation | None]],
    include_timestamp: bool,
) -> None:
    """Set (key, row) of each row of the run at the next index of ``targets``, without a Result per row."""
    new, row_class, columns, is_stale = _new_row, Row, run.columns, run.is_stale
    rows: Iterator[Iterable[Any]] = map(zip, run.values(), run.timestamps()) if include_timestamp else run.values()
    last: object = run  # no place
    for values, (index, place) in zip(rows, targets, strict=False):
        if place is not last:
            replica_id, server, region, why = _origin(place)
            last = place
        row: Row = new(row_class)
        row |= zip(columns, values)  # noqa: B905  # both have the layout's length, and the keyword costs time
        row.stale = is_stale
        row.lag_s = None
        row.replica_id = replica_id
        row.server = server
        row.region = region
        row.why = why
        made[index] = (wanted[index], row)


def _alike_rows(run: AlikeRows, place: RegionLocation | None) -> Iterator[tuple[bytes, Row]]:
    """Yield (key, row) as ``_row`` makes them, for many rows and without a Result per row."""
    row_class: type[Row] = Row
    new, columns, is_stale = _new_row, run.columns, run.is_stale
    replica_id, server, region, why = _origin(place)
    for key, values in zip(run.keys, run.values(), strict=True):
        row = new(row_class)
        row |= zip(columns, values)  # noqa: B905  # both have the layout's length, and the keyword costs time
        row.stale = is_stale
        row.lag_s = None
        row.replica_id = replica_id
        row.server = server
        row.region = region
        row.why = why
        yield key, row


def _origin(place: RegionLocation | None) -> tuple[int, ServerName | None, RegionInfo | None, str]:
    """Return the replica, its server and region, and why it was called."""
    if place is None:
        return 0, None, None, PRIMARY
    region = place.region
    return region.replica_id, place.server, region, place.why or (PINNED if region.replica_id else PRIMARY)


def _answered(seen: object, result: Result, place: RegionLocation | None) -> None:
    """Record in the operation's span which replica answered; ``seen`` is None when telemetry is off."""
    if isinstance(seen, Observed):
        seen.answered(place, is_stale=result.is_stale)
