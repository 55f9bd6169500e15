"""The SPI over HBase's Thrift 1 gateways, with happybase's protocol files; without replicas.

DIVERGENCES from the SPI, each because of the protocol:

- No replica can be addressed: TIMELINE, replica ids and meta replicas are refused; ``thrift2:`` has them.
- A call has one timestamp: a put whose cells have several is made in several calls, one after the other.
- Several versions can be read of single columns only; a scan returns the newest version in its time range.
- Only "all versions up to a time" can be deleted, of a column, a family or a row; nothing is atomic over puts and
  deletes; a check compares one column for equality and puts one cell.
- ``mutateRows`` applies all puts and then all deletes: where a row comes twice in a batch, more calls keep its order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, ClassVar

from metaclient.backend import (
    Action,
    MetaPage,
    MetaRow,
    MetaScan,
    Outcome,
    ScanPage,
)
from metaclient.errors import BackendFault, MetaClientError, TableNotFound, Unsupported
from metaclient.keys import column_sort_key, printable
from metaclient.model import (
    LATEST_TIMESTAMP,
    META_TABLE,
    Append,
    Cell,
    CellType,
    Check,
    CompareOp,
    Delete,
    Durability,
    FamilyDescriptor,
    Get,
    Increment,
    MetaReplica,
    Mutation,
    Put,
    RegionLocation,
    Result,
    RowMutations,
    Scan,
    ServerName,
    TableDescriptor,
)
from metaclient.runtime import Runtime
from metaclient.wire.thrift.idl import thrift1
from metaclient.wire.thrift.structs import meta_row, widest
from metaclient_thrift.binary import Rows1
from metaclient_thrift.channel import Channel
from metaclient_thrift.gateway_backend import GatewayBackend
from metaclient_thrift.happybase_errors import adapt_error
from metaclient_thrift.ranges import WireRange, wire_range
from metaclient_thrift.requests import encode_get1, encode_put1
from metaclient_thrift.url import Gateway

__all__ = ["Thrift1Backend"]

T = thrift1()
_TTL_FOREVER = 0x7FFFFFFF
_NO_ATTRIBUTES: dict[bytes, bytes] = {}


@dataclass(slots=True)
class _Thrift1Scanner:
    """A scanner on one gateway. ``held`` is a piece of a row that may have more pieces on the next page."""

    gateway: Gateway
    number: int
    table: bytes
    scan: Scan
    range: WireRange
    left: int | None
    held: list[Result] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Write:
    """A part of a batch that one ``mutateRows`` can hold: one row, one timestamp, only puts or only deletes."""

    row: bytes
    timestamp: int
    is_delete: bool
    mutations: tuple[Any, ...]


class _Thrift1Client:
    """The calls of Thrift 1 by name, as happybase's ``connection.client`` has them.

    A scanner lives at the gateway that opened it: with several gateways in the url, bare scanner calls may fail.
    """

    def __init__(self, channel: Channel, runtime: Runtime, timeout_s: float) -> None:
        self._channel = channel
        self._runtime = runtime
        self._timeout_s = timeout_s

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method not in T.Hbase.thrift_services:
            raise AttributeError(f"Thrift 1 has no call {method!r}")

        def call(*args: Any, **named: Any) -> Any:
            fields = [field[1] for _, field in sorted(getattr(T.Hbase, f"{method}_args").thrift_spec.items())]
            given = [*args, *(named.pop(name, None) for name in fields[len(args) :])]
            if named or len(given) > len(fields):
                raise TypeError(f"{method}() takes the arguments {', '.join(fields)}")
            deadline = self._runtime.now() + self._timeout_s
            is_write = not method.startswith(("get", "scanner", "is"))
            try:
                return self._channel.call(method, *given, deadline=deadline, is_write=is_write)
            except MetaClientError as error:
                adapt_error(error)
                raise

        return call


class Thrift1Backend(GatewayBackend):
    """The SPI over Thrift 1; see the module's docstring.

    It has more than 30 methods because the SPI has, and happybase's errors and client are added to it.
    """

    name = "thrift1"
    _server_type = 1  # TThriftServerType.ONE, which happybase's copy of the protocol does not have
    _service = T.Hbase
    _decodes_text = False
    _reader = Rows1
    _abilities: ClassVar = {
        "meta_replicas": False,
        "region_replicas": False,
        "row_mutations": False,
        "create_with_splits": False,
        "region_replication": False,
        "family_scopes": False,
    }

    def _result_of(self, wire: Any) -> Result:
        columns = wire.columns or {}
        if any(cell.value is None for cell in columns.values()):  # thriftpy2 skips a field of the wrong type
            raise BackendFault("the gateway sent a cell without its value: its answer is corrupt")
        in_order = sorted(columns, key=column_sort_key)
        return Result(wire.row, [Cell(one, columns[one].timestamp, columns[one].value) for one in in_order])

    # -- happybase ---------------------------------------------------------------------------------------------

    def adapt_error(self, error: MetaClientError) -> None:
        """Make the error an instance of the class that happybase raises, too."""
        adapt_error(error)

    def thrift_client(self, timeout_s: float) -> object:
        """Return an object with the calls of the protocol, each with this timeout."""
        return _Thrift1Client(self._channel, self._runtime, timeout_s)

    # -- hbase:meta --------------------------------------------------------------------------------------------

    def meta_replicas(self, deadline: float) -> Sequence[MetaReplica]:
        """Return the primary alone, which is all that the gateway reads; its start code is unknown."""
        found = self._call("getTableRegions", META_TABLE, deadline=deadline, table=META_TABLE)
        servers = {one.name: one.serverName.decode() for one in found if one.serverName}
        ports = {one.name: one.port for one in found}
        name = MetaReplica(0).region_name
        return [MetaReplica(0, ServerName(servers[name], ports[name]) if name in servers else None)]

    def read_meta(self, replica: MetaReplica, scan: MetaScan, deadline: float) -> MetaPage:
        if replica.replica_id != 0:
            raise _no_replicas()
        if scan.start_row and scan.start_row == scan.stop_row:
            return MetaPage(_meta_rows([self.get(None, META_TABLE, Get(scan.start_row, scan.families), deadline)]))
        data = Scan(
            scan.start_row,
            scan.stop_row,
            is_reversed=scan.is_reversed,
            columns=scan.families,
            caching=scan.limit,
            limit=scan.limit,
        )
        range_ = WireRange(META_TABLE, scan.start_row, scan.stop_row, scan.is_reversed)
        return MetaPage(_meta_rows(self._opened(META_TABLE, data, range_, deadline).rows))

    # -- reading -----------------------------------------------------------------------------------------------

    def get(self, place: RegionLocation | None, table: bytes, get: Get, deadline: float) -> Result:
        _check_place(place)
        if get.filter is not None:
            cells = self._filtered(table, get, deadline)
        elif get.max_versions != 1:
            cells = self._versions(table, get, deadline)
        else:
            found = self._newest(table, get, deadline)
            cells = _since(found[0].cells, get.min_timestamp) if found else []
        if get.existence_only:
            return Result(get.row, (), exists=bool(cells))
        return Result(get.row, cells)

    def _newest(self, table: bytes, get: Get, deadline: float) -> list[Result]:
        columns = widest(get.columns) or None
        if get.max_timestamp == LATEST_TIMESTAMP:
            request = encode_get1(table, get.row) if columns is None else None
            args: tuple[object, ...] = (table, get.row, columns, _NO_ATTRIBUTES)
            return self._rows("getRowWithColumns", lambda: args, deadline, table, request=request)
        args = (table, get.row, columns, get.max_timestamp, _NO_ATTRIBUTES)
        return self._rows("getRowWithColumnsTs", lambda: args, deadline, table)

    def _filtered(self, table: bytes, get: Get, deadline: float) -> list[Cell]:
        """Get a row with a filter by a scan of that row: a Thrift 1 get has no filter."""
        scan = Scan(
            get.row,
            get.row,
            include_stop=True,
            columns=get.columns,
            max_versions=get.max_versions,
            min_timestamp=get.min_timestamp,
            max_timestamp=get.max_timestamp,
            filter=get.filter,
            limit=1,
            caching=1,
        )
        rows = self.scan_open(None, table, scan, deadline).rows
        return list(rows[0].cells) if rows else []

    def _versions(self, table: bytes, get: Get, deadline: float) -> list[Cell]:
        is_family = len(get.columns) == 1 and b":" not in get.columns[0]  # whose cells come without their qualifiers
        if not get.columns or (not is_family and any(b":" not in column for column in get.columns)):
            raise Unsupported("Thrift 1 reads several versions of single columns only: name them, or use thrift2:")
        made: list[Cell] = []
        for column in sorted(set(get.columns), key=column_sort_key):
            if get.max_timestamp == LATEST_TIMESTAMP:
                args: tuple[object, ...] = (table, get.row, column, get.max_versions, _NO_ATTRIBUTES)
                found = self._call("getVer", *args, deadline=deadline, table=table)
            else:
                args = (table, get.row, column, get.max_timestamp, get.max_versions, _NO_ATTRIBUTES)
                found = self._call("getVerTs", *args, deadline=deadline, table=table)
            made += [Cell(column, one.timestamp, one.value) for one in found if one.timestamp >= get.min_timestamp]
        return made

    def scan_open(self, place: RegionLocation | None, table: bytes, scan: Scan, deadline: float) -> ScanPage:
        _check_place(place)
        if scan.max_versions != 1 or scan.is_raw:
            raise Unsupported(
                "a Thrift 1 scan shows the newest version of each cell and no delete markers: use thrift2:"
            )
        return self._opened(table, scan, wire_range(table, scan, place.region if place is not None else None), deadline)

    def _opened(self, table: bytes, scan: Scan, range_: WireRange, deadline: float) -> ScanPage:
        if range_.is_empty or scan.limit == 0:
            return ScanPage((), None, True)
        wanted = scan.caching if scan.limit is None else min(scan.caching, scan.limit)
        wire = T.TScan(
            startRow=range_.start,
            stopRow=range_.stop or None,
            timestamp=None if scan.max_timestamp == LATEST_TIMESTAMP else scan.max_timestamp,
            columns=widest(scan.columns) or None,
            caching=wanted,
            filterString=scan.filter,
            batchSize=scan.batch,
            reversed=scan.is_reversed,
        )
        number, gateway = self._channel.call_at(
            "scannerOpenWithScan", table, wire, _NO_ATTRIBUTES, deadline=deadline, table=table
        )
        scanner = _Thrift1Scanner(gateway, number, table, scan, range_, scan.limit)
        try:
            return self.scan_next(scanner, wanted + (range_.dropped is not None), deadline)
        except MetaClientError:
            self._close_quietly(scanner, deadline)
            raise

    def scan_next(self, scanner: object, rows: int, deadline: float) -> ScanPage:
        """Return the next page; fewer pieces than requested mean the end of the scan."""
        assert isinstance(scanner, _Thrift1Scanner)
        args = (scanner.number, rows)
        found = self._rows("scannerGetList", lambda: args, deadline, scanner.table, only=scanner.gateway)
        is_end = len(found) < rows or scanner.range.is_beyond(found[-1].row)
        kept = self._pieces(scanner, found, is_end)
        if scanner.left is not None:
            kept, is_end = _limited(scanner, kept, is_end)
        if is_end:
            self._close_quietly(scanner, deadline)
        return ScanPage(kept, None if is_end else scanner, is_end)

    def _pieces(self, scanner: _Thrift1Scanner, found: list[Result], is_end: bool) -> list[Result]:
        """Return the results. With ``batch``, a result is partial if the next is of its row; the last one is held."""
        range_, low = scanner.range, scanner.scan.min_timestamp
        if range_.dropped is not None or range_.floor is not None:
            found = [one for one in found if one.row != range_.dropped and not range_.is_beyond(one.row)]
        if scanner.scan.batch is not None:
            rows = scanner.held + found
            scanner.held = [] if is_end else rows[-1:]
            followers: list[Result | None] = [*rows[1:], None] if is_end else [*rows[1:]]
            found = [
                one._replace(is_partial=after is not None and after.row == one.row)
                for one, after in zip(rows, followers, strict=False)
            ]
        if low == 0:
            return found
        made = [one._replace(cells=_since(one.cells, low)) for one in found]
        return [result for result in made if result.cells]

    def scan_close(self, scanner: object, deadline: float) -> None:
        assert isinstance(scanner, _Thrift1Scanner)
        self._call("scannerClose", scanner.number, deadline=deadline, table=scanner.table, only=scanner.gateway)

    # -- writing -----------------------------------------------------------------------------------------------

    def mutate(self, place: RegionLocation | None, table: bytes, mutation: Mutation, deadline: float) -> Result | None:
        match mutation:
            case Put() if all(cell.timestamp == LATEST_TIMESTAMP for cell in mutation.cells):
                self._put(table, mutation, deadline)
            case Put() | Delete():
                self._apply(table, self._writes(table, [mutation], deadline), deadline)
            case RowMutations():
                raise Unsupported("Thrift 1 cannot change a row by puts and deletes at once: use thrift2:")
            case Increment():
                return self._increment(table, mutation, deadline)
            case Append():
                return self._append(table, mutation, deadline)
        return None

    def _put(self, table: bytes, put: Put, deadline: float) -> None:
        """Put one row at the server's time, as most puts are."""

        def args() -> tuple[object, ...]:
            mutations = [_put_mutation(cell, put.durability) for cell in put.cells]
            return table, [T.BatchMutation(row=put.row, mutations=mutations)], _NO_ATTRIBUTES

        self._call_void("mutateRows", args, lambda: encode_put1(table, put), deadline, table)

    def _increment(self, table: bytes, increment: Increment, deadline: float) -> Result:
        if len(increment.amounts) != 1:
            raise Unsupported("Thrift 1 increments one counter at a time: use thrift2:")
        ((column, amount),) = increment.amounts
        total = self._write("atomicIncrement", table, increment.row, column, amount, deadline=deadline)
        value = int(total).to_bytes(8, "big", signed=True)
        return Result(increment.row, (Cell(column, self._runtime.time_ms(), value),))

    def _append(self, table: bytes, append: Append, deadline: float) -> Result:
        columns = [column for column, _ in append.values]
        wire = T.TAppend(table=table, row=append.row, columns=columns, values=[value for _, value in append.values])
        found = self._call("append", wire, deadline=deadline, table=table, is_write=True)
        by_column = zip(sorted(columns, key=column_sort_key), found, strict=False)  # the reply has cells without names
        return Result(append.row, tuple(Cell(column, one.timestamp, one.value) for column, one in by_column))

    def check_and_mutate(
        self, place: RegionLocation | None, table: bytes, check: Check, mutation: Mutation, deadline: float
    ) -> bool:
        is_simple = (
            isinstance(mutation, Put)
            and len(mutation.cells) == 1
            and mutation.cells[0].timestamp == LATEST_TIMESTAMP
            and check.op is CompareOp.EQUAL
        )
        if not is_simple:
            raise Unsupported("Thrift 1 checks one column for equality and then puts one cell: use thrift2: for more")
        assert isinstance(mutation, Put)
        wire = _put_mutation(mutation.cells[0], mutation.durability)
        args = (check.row, check.column, check.value, wire, _NO_ATTRIBUTES)
        return bool(self._write("checkAndPut", table, *args, deadline=deadline))

    # -- many rows ---------------------------------------------------------------------------------------------

    def batch(
        self, server: ServerName | None, table: bytes, actions: Sequence[Action], deadline: float
    ) -> Sequence[Outcome]:
        operations = [action.operation for action in actions]
        outcomes: list[Outcome] = [None] * len(actions)
        gets = {at: one for at, one in enumerate(operations) if isinstance(one, Get)}
        for at, result in zip(gets, self._get_many(table, list(gets.values()), deadline), strict=True):
            outcomes[at] = result
        plain = [one for one in operations if isinstance(one, Put | Delete)]
        self._apply(table, self._writes(table, plain, deadline), deadline)
        for at, one in enumerate(operations):
            if isinstance(one, Increment | Append | RowMutations):
                try:
                    outcomes[at] = self.mutate(None, table, one, deadline)
                except MetaClientError as error:
                    error.may_have_applied = error.may_have_applied or bool(plain) or at > 0
                    raise
        return outcomes

    def _get_many(self, table: bytes, gets: Sequence[Get], deadline: float) -> list[Result]:
        first = gets[0] if gets else None
        is_alike = first is not None and all(
            one.filter is None
            and one.max_versions == 1
            and (one.columns, one.min_timestamp, one.max_timestamp, one.existence_only)
            == (first.columns, first.min_timestamp, first.max_timestamp, first.existence_only)
            for one in gets
        )
        if first is None or not is_alike or len(gets) == 1:
            return [self.get(None, table, one, deadline) for one in gets]
        rows, columns = [one.row for one in gets], widest(first.columns) or None
        if first.max_timestamp == LATEST_TIMESTAMP:
            args: tuple[object, ...] = (table, rows, columns, _NO_ATTRIBUTES)
            found = self._rows("getRowsWithColumns", lambda: args, deadline, table)
        else:
            args = (table, rows, columns, first.max_timestamp, _NO_ATTRIBUTES)
            found = self._rows("getRowsWithColumnsTs", lambda: args, deadline, table)
        by_row = {one.row: _since(one.cells, first.min_timestamp) for one in found}
        if first.existence_only:
            return [Result(row, (), exists=bool(by_row.get(row))) for row in rows]
        return [Result(row, by_row.get(row, ())) for row in rows]

    def _writes(self, table: bytes, operations: Sequence[Put | Delete], deadline: float) -> list[_Write]:
        made: list[_Write] = []
        families: list[bytes] | None = None
        for one in operations:
            if isinstance(one, Put):
                made += _puts(one)
            else:
                if not one.cells and families is None:
                    families = [family.name for family in self.describe_table(table, deadline).families]
                made += _deletes(one, families or [])
        rows = [one.row for one in operations]
        if len(set(rows)) == len(rows):  # no row occurs twice: the order does not matter
            made.sort(key=lambda one: (one.is_delete, one.timestamp))
        return made

    def _apply(self, table: bytes, writes: Sequence[_Write], deadline: float) -> None:
        is_first = True
        for (_, timestamp), run in groupby(writes, key=lambda one: (one.is_delete, one.timestamp)):
            rows = [T.BatchMutation(row=one.row, mutations=list(one.mutations)) for one in run]
            try:
                if timestamp == LATEST_TIMESTAMP:
                    self._write("mutateRows", table, rows, _NO_ATTRIBUTES, deadline=deadline)
                else:
                    self._write("mutateRowsTs", table, rows, timestamp, _NO_ATTRIBUTES, deadline=deadline)
            except MetaClientError as error:
                error.may_have_applied = error.may_have_applied or not is_first
                raise
            is_first = False

    # -- admin -------------------------------------------------------------------------------------------------

    def table_names(self, deadline: float) -> Sequence[bytes]:
        return sorted(self._call("getTableNames", deadline=deadline))

    def describe_table(self, table: bytes, deadline: float) -> TableDescriptor:
        found = self._call("getColumnDescriptors", table, deadline=deadline, table=table)
        if not found:
            raise TableNotFound(f"table {printable(table)!r} does not exist")
        return TableDescriptor(table, tuple(_family_from(found[name]) for name in sorted(found, key=column_sort_key)))

    def create_table(self, descriptor: TableDescriptor, splits: Sequence[bytes], deadline: float) -> None:
        if splits or descriptor.region_replication != 1:
            raise Unsupported("Thrift 1 creates tables of one region with one replica: use thrift2:")
        families = [_family_of(family) for family in descriptor.families]
        self._write("createTable", descriptor.name, families, deadline=deadline)

    def delete_table(self, table: bytes, deadline: float) -> None:
        self._write("deleteTable", table, deadline=deadline)

    def enable_table(self, table: bytes, deadline: float) -> None:
        self._write("enableTable", table, deadline=deadline)

    def disable_table(self, table: bytes, deadline: float) -> None:
        self._write("disableTable", table, deadline=deadline)

    def is_table_enabled(self, table: bytes, deadline: float) -> bool:
        return bool(self._call("isTableEnabled", table, deadline=deadline, table=table))

    def compact_table(self, table: bytes, major: bool, deadline: float) -> None:
        self._write("majorCompact" if major else "compact", table, deadline=deadline)


def _no_replicas() -> Unsupported:
    return Unsupported("Thrift 1 cannot address replicas: use thrift2:")


def _check_place(place: RegionLocation | None) -> None:
    if place is not None and place.region.replica_id != 0:
        raise _no_replicas()


def _since(cells: Sequence[Cell], min_timestamp: int) -> list[Cell]:
    return [cell for cell in cells if cell.timestamp >= min_timestamp] if min_timestamp else list(cells)


def _limited(scanner: _Thrift1Scanner, rows: list[Result], is_end: bool) -> tuple[list[Result], bool]:
    """Return the page up to the scan's limit, which Thrift 1 does not have; the pieces of one row count as one."""
    assert scanner.left is not None
    kept: list[Result] = []
    for result in rows:
        if scanner.left == 0:
            return kept, True
        kept.append(result)
        scanner.left -= not result.is_partial
    return kept, is_end or scanner.left == 0


def _meta_rows(results: Sequence[Result]) -> tuple[MetaRow, ...]:
    return tuple(meta_row(one) for one in results if one.cells)


def _put_mutation(cell: Cell, durability: Durability) -> Any:
    return T.Mutation(
        isDelete=False, column=cell.column, value=cell.value, writeToWAL=durability is not Durability.SKIP_WAL
    )


def _puts(put: Put) -> list[_Write]:
    by_time: dict[int, list[Any]] = {}
    for cell in put.cells:
        by_time.setdefault(cell.timestamp, []).append(_put_mutation(cell, put.durability))
    return [_Write(put.row, timestamp, False, tuple(made)) for timestamp, made in by_time.items()]


def _deletes(delete: Delete, families: Sequence[bytes]) -> list[_Write]:
    writes_to_wal = delete.durability is not Durability.SKIP_WAL
    marks = delete.cells or tuple(Cell(one, delete.timestamp, b"", CellType.DELETE_FAMILY) for one in families)
    by_time: dict[int, list[Any]] = {}
    for mark in marks:
        if mark.type not in (CellType.DELETE_COLUMN, CellType.DELETE_FAMILY):
            raise Unsupported("Thrift 1 deletes all versions up to a time, not a single one: use thrift2:")
        made = T.Mutation(isDelete=True, column=mark.column, writeToWAL=writes_to_wal)
        by_time.setdefault(mark.timestamp, []).append(made)
    return [_Write(delete.row, timestamp, True, tuple(made)) for timestamp, made in by_time.items()]


def _family_of(family: FamilyDescriptor) -> Any:
    default = FamilyDescriptor(family.name)
    for name in ("min_versions", "keep_deleted_cells", "replication_scope"):
        if getattr(family, name) != getattr(default, name):
            raise Unsupported(f"Thrift 1 cannot set {name} of a family: use thrift2:")
    return T.ColumnDescriptor(
        name=family.name + b":",
        maxVersions=family.max_versions,
        compression=family.compression.upper(),
        inMemory=family.in_memory,
        bloomFilterType=family.bloom_filter_type.upper(),
        blockCacheEnabled=family.block_cache_enabled,
        timeToLive=_TTL_FOREVER if family.time_to_live_s is None else family.time_to_live_s,
    )


def _family_from(family: Any) -> FamilyDescriptor:
    ttl = family.timeToLive
    return FamilyDescriptor(
        family.name.rstrip(b":"),
        max_versions=family.maxVersions,
        time_to_live_s=None if ttl <= 0 or ttl == _TTL_FOREVER else ttl,
        compression=_text(family.compression),
        bloom_filter_type=_text(family.bloomFilterType),
        in_memory=bool(family.inMemory),
        block_cache_enabled=bool(family.blockCacheEnabled),
    )


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
