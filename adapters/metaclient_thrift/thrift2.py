"""The SPI over HBase's Thrift 2 gateways: meta and data at a chosen replica, with thriftpy2.

DIVERGENCES from the SPI, each because of the protocol:

- A replica is addressed by its id *and* TIMELINE; with STRONG a gateway ignores the id. Gateways before 2.4
  ignore it in scans: an answer that should be stale and is not is refused, not returned as a replica's.
- ``getMultiple`` ignores replicas, so reads of many rows at a replica are single gets.
- There is no compaction, no nonce, and no outcome per row of a batch.
- A check for presence compares with an *empty* value: HBase itself treats an empty value as absent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import Any, ClassVar, Generic, TypeVar

from thriftpy2.utils import serialize

from metaclient.backend import Action, CellPage, MetaPage, MetaScan, PutPage, ScanPage, SentPage
from metaclient.errors import BackendFault, MetaClientError, Unsupported
from metaclient.many_gets import FoundRows, GetActions
from metaclient.model import (
    META_TABLE,
    Append,
    Check,
    CompareOp,
    Delete,
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
from metaclient.row_runs import RowRuns
from metaclient.table_schema import TableChange
from metaclient.wire.thrift import structs as cells
from metaclient.wire.thrift.idl import thrift2
from metaclient.wire.thrift.structs import meta_row
from metaclient_thrift.binary import Incoming, RowReader, Rows2
from metaclient_thrift.cell_pages import CellRows, read_cells
from metaclient_thrift.channel import SentCalls
from metaclient_thrift.gateway_backend import GatewayBackend
from metaclient_thrift.link import Link
from metaclient_thrift.ranges import WireRange, wire_range
from metaclient_thrift.requests import encode_get2, encode_gets2, encode_put2, encode_put_page2, encode_puts2
from metaclient_thrift.row_pages import read_page
from metaclient_thrift.url import Gateway

__all__ = ["Thrift2Backend"]

T = thrift2()
P = TypeVar("P", ScanPage, CellPage)
R = TypeVar("R", RowRuns, CellRows)
#: A page of a scan is fetched in this many calls at once, if each has at least so many rows.
PIECES_MAX = 2
PIECE_ROWS_MIN = 100
#: The field ``row`` of a TGet of the empty row.
_EMPTY_ROW_BYTES = 7
_KINDS: dict[type, str] = {Put: "put", Delete: "delete"}  # kinds of which one call can hold several


@dataclass(slots=True)
class _Thrift2Scanner:
    """A scanner on one gateway; other gateways do not have its id."""

    gateway: Gateway
    number: int
    table: bytes
    range: WireRange
    is_stale: bool


@dataclass(frozen=True, slots=True)
class _SentPage(Generic[P]):
    """See :class:`~metaclient.backend.SentPage`."""

    read: Callable[[], P]
    drop: Callable[[], None]


class Thrift2Backend(GatewayBackend):
    """The SPI over Thrift 2; see the module's docstring.

    It has more than 30 methods because it implements the whole SPI of backends, most of them in a few lines.
    """

    name = "thrift2"
    _server_type = T.TThriftServerType.TWO
    _service = T.THBaseService
    _decodes_text = True
    _reader = Rows2
    #: The time to live is an attribute of the put.
    _abilities: ClassVar = {"cell_ttl": True, "cell_pages": True, "put_pages": True, "schema": True}

    def _result_of(self, wire: Any) -> Result:
        return cells.result_of(b"", wire)

    # -- hbase:meta --------------------------------------------------------------------------------------------

    def meta_replicas(self, deadline: float) -> Sequence[MetaReplica]:
        """Return the locations that the gateway reads from the registry, without a read of hbase:meta."""
        found = self._call("getAllRegionLocations", META_TABLE, deadline=deadline, table=META_TABLE)
        return [MetaReplica(one.regionInfo.replicaId or 0, _server(one.serverName)) for one in found]

    def read_meta(self, replica: MetaReplica, scan: MetaScan, deadline: float) -> MetaPage:
        """Read a page of hbase:meta in one call: a get for one row, else a scan that opens, reads and closes."""
        at = replica.replica_id
        if scan.start_row and scan.start_row == scan.stop_row:
            get = cells.get_of(Get(scan.start_row, scan.families), at)
            found = [self._row("get", lambda: (META_TABLE, get), None, deadline, META_TABLE)]
        else:
            wire = self._meta_scan(scan, at)
            found = self._rows("getScannerResults", lambda: (META_TABLE, wire, scan.limit), deadline, META_TABLE)
        rows = tuple(meta_row(one) for one in found if one.cells)
        if any(one.is_stale is (at == 0) for one in found):
            raise _not_honoured(at)
        return MetaPage(rows, is_stale=at != 0)

    def _meta_scan(self, scan: MetaScan, replica_id: int) -> Any:
        # Thrift's stop is exclusive and meta's rows have no successor that could be written down for all of its
        # order. It makes no difference: no row is called "t,," or "t ,,", which is what ranges of meta end with.
        return T.TScan(
            startRow=scan.start_row,
            stopRow=scan.stop_row,
            columns=[T.TColumn(family) for family in scan.families],
            caching=scan.limit,
            limit=scan.limit,
            reversed=scan.is_reversed or None,
            readType=T.TReadType.PREAD,
            consistency=T.TConsistency.TIMELINE,
            targetReplicaId=replica_id,
        )

    # -- reading -----------------------------------------------------------------------------------------------

    def get(self, place: RegionLocation | None, table: bytes, get: Get, deadline: float) -> Result:
        at = None if place is None else place.region.replica_id
        if get.existence_only:
            exists = self._call("exists", table, cells.get_of(get, at), deadline=deadline, table=table)
            return Result(get.row, (), bool(at), exists=exists)
        request = encode_get2(table, get.row) if at is None and cells.is_plain(get) else None
        result = self._row("get", lambda: (table, cells.get_of(get, at)), request, deadline, table)
        if at is not None and result.is_stale is (at == 0):
            raise _not_honoured(at)
        return result if result.row else result._replace(row=get.row)

    def scan_open(self, place: RegionLocation | None, table: bytes, scan: Scan, deadline: float) -> ScanPage:
        at = None if place is None else place.region.replica_id
        range_ = wire_range(table, scan, place.region if place is not None else None)
        if range_.is_empty or scan.limit == 0:
            return ScanPage((), None, True, bool(at))
        wire = cells.scan_of(scan, range_.start, range_.stop, at)
        wanted = scan.caching if scan.limit is None else min(scan.caching, scan.limit)
        if range_.dropped is not None:  # one row too many may come, which does not count
            wire.limit = None if scan.limit is None else scan.limit + 1
            wanted += 1
        if _is_one_call(scan):
            found = self._rows("getScannerResults", lambda: (table, wire, wanted), deadline, table)
            return ScanPage(self._kept(found, range_)[: scan.limit], None, True, bool(at))
        scanner = self._opened(table, wire, range_, bool(at), deadline)
        return self._first(scanner, lambda: self.scan_next(scanner, wanted, deadline), deadline)

    def scan_next(self, scanner: object, rows: int, deadline: float) -> ScanPage:
        """Return the next page; fewer pieces than requested mean the end: the gateway reads until there is none."""
        assert isinstance(scanner, _Thrift2Scanner)
        args = [(scanner.number, piece) for piece in _pieces(rows)]
        return self._scanned(self._page("getScannerRows", args, deadline, scanner), scanner, rows, deadline)

    def send_next(self, scanner: object, rows: int, deadline: float) -> SentPage[ScanPage] | None:
        """See :class:`~metaclient.backend.SendingBackend`."""
        assert isinstance(scanner, _Thrift2Scanner)
        args = [(scanner.number, piece) for piece in _pieces(rows)]
        sent = self._send(args, read_page, deadline, scanner)
        if sent is None:
            return None
        return _SentPage(lambda: self._scanned(_joined(sent.read()), scanner, rows, deadline), sent.drop)

    def _scanned(self, found: RowRuns, scanner: _Thrift2Scanner, rows: int, deadline: float) -> ScanPage:
        """Return the page of the rows that were found when this number of rows was requested."""
        kept = self._kept(found, scanner.range)
        is_end = len(found) < rows or scanner.range.is_beyond(found.last_row)
        if is_end:
            self._close_quietly(scanner, deadline)
        return ScanPage(kept, None if is_end else scanner, is_end, scanner.is_stale)

    def scan_open_cells(self, place: RegionLocation | None, table: bytes, scan: Scan, deadline: float) -> CellPage:
        """Open a scan, forwards only as in all backends, so that no row too many can come."""
        at = None if place is None else place.region.replica_id
        range_ = wire_range(table, scan, place.region if place is not None else None)
        if range_.is_empty or scan.limit == 0:
            return _cell_page(CellRows.of(()), None, is_end=True, is_stale=bool(at))
        wire = cells.scan_of(scan, range_.start, range_.stop, at)
        wanted = scan.caching if scan.limit is None else min(scan.caching, scan.limit)
        if _is_one_call(scan):
            found = self._cells("getScannerResults", (table, wire, wanted), deadline, table)
            return _cell_page(found, None, is_end=True, is_stale=bool(at))
        scanner = self._opened(table, wire, range_, bool(at), deadline)
        return self._first(scanner, lambda: self.scan_next_cells(scanner, wanted, deadline), deadline)

    def scan_next_cells(self, scanner: object, rows: int, deadline: float) -> CellPage:
        """Return the next page of a scanner that :meth:`scan_open_cells` opened."""
        assert isinstance(scanner, _Thrift2Scanner)
        found = self._cells("getScannerRows", (scanner.number, rows), deadline, scanner.table, only=scanner.gateway)
        return self._scanned_cells(found, scanner, rows, deadline)

    def send_next_cells(self, scanner: object, rows: int, deadline: float) -> SentPage[CellPage] | None:
        """See :class:`~metaclient.backend.SendingBackend`."""
        assert isinstance(scanner, _Thrift2Scanner)
        sent = self._send([(scanner.number, rows)], read_cells, deadline, scanner)
        if sent is None:
            return None
        return _SentPage(lambda: self._scanned_cells(sent.read()[0], scanner, rows, deadline), sent.drop)

    def _scanned_cells(self, found: CellRows, scanner: _Thrift2Scanner, rows: int, deadline: float) -> CellPage:
        is_end = found.rows < rows
        if is_end:
            self._close_quietly(scanner, deadline)
        return _cell_page(found, None if is_end else scanner, is_end=is_end, is_stale=scanner.is_stale)

    def _opened(self, table: bytes, wire: Any, range_: WireRange, is_stale: bool, deadline: float) -> _Thrift2Scanner:
        number, gateway = self._channel.call_at("openScanner", table, wire, deadline=deadline, table=table)
        return _Thrift2Scanner(gateway, number, table, range_, is_stale)

    def _first(self, scanner: _Thrift2Scanner, read: Callable[[], P], deadline: float) -> P:
        """Return the first page of a scanner; close the scanner if that fails: the caller does not have it yet."""
        try:
            return read()
        except MetaClientError:
            self._close_quietly(scanner, deadline)
            raise

    def _cells(
        self, method: str, args: tuple[object, ...], deadline: float, table: bytes, only: Gateway | None = None
    ) -> CellRows:
        def ask(link: Link) -> CellRows:
            if link.rows is None:
                return CellRows.of([self._result_of(one) for one in link.call(method, *args)])
            return link.ask(method, args, read_cells)

        return self._channel.ask(ask, method, deadline, table, only=only)[0]

    def _page(
        self, method: str, args: Sequence[tuple[object, ...]], deadline: float, scanner: _Thrift2Scanner
    ) -> RowRuns:
        """Return the rows of several calls, in their order; all calls are sent before the first reply is read."""

        def ask(link: Link) -> RowRuns:
            if link.rows is None:
                return RowRuns([[self._result_of(one) for each in args for one in link.call(method, *each)]])
            return _joined(link.ask_each(method, args, read_page))

        return self._channel.ask(ask, method, deadline, scanner.table, only=scanner.gateway)[0]

    def _send(
        self,
        args: Sequence[tuple[object, ...]],
        read: Callable[[Incoming, RowReader], R],
        deadline: float,
        scanner: _Thrift2Scanner,
    ) -> SentCalls[R] | None:
        table, only = scanner.table, scanner.gateway
        return self._channel.send("getScannerRows", args, read, deadline=deadline, table=table, only=only)

    def _kept(self, found: Sequence[Result], range_: WireRange) -> Sequence[Result]:
        if range_.dropped is None and range_.floor is None:
            return found
        return [one for one in found if one.row != range_.dropped and not range_.is_beyond(one.row)]

    def scan_close(self, scanner: object, deadline: float) -> None:
        assert isinstance(scanner, _Thrift2Scanner)
        self._call("closeScanner", scanner.number, deadline=deadline, table=scanner.table, only=scanner.gateway)

    # -- writing -----------------------------------------------------------------------------------------------

    def mutate(self, place: RegionLocation | None, table: bytes, mutation: Mutation, deadline: float) -> Result | None:
        match mutation:
            case Put():
                put = mutation
                self._call_void(
                    "put", lambda: (table, cells.put_of(put)), lambda: encode_put2(table, put), deadline, table
                )
            case Delete():
                self._delete(table, mutation, deadline)
            case RowMutations():
                if mutation.mutations:
                    self._write("mutateRow", table, cells.row_mutations_of(mutation), deadline=deadline)
            case Increment():
                changed = self._write("increment", table, cells.increment_of(mutation), deadline=deadline)
                return cells.result_of(mutation.row, changed)
            case Append():
                changed = self._write("append", table, cells.append_of(mutation), deadline=deadline)
                return cells.result_of(mutation.row, changed)
        return None

    def _delete(self, table: bytes, delete: Delete, deadline: float) -> None:
        parts = cells.deletes_of(delete)
        if len(parts) == 1:
            self._write("deleteSingle", table, parts[0], deadline=deadline)
        else:  # several kinds of markers: one atomic change
            self._write("mutateRow", table, cells.row_mutations_of(delete), deadline=deadline)

    def check_and_mutate(
        self, place: RegionLocation | None, table: bytes, check: Check, mutation: Mutation, deadline: float
    ) -> bool:
        family, _, qualifier = check.column.partition(b":")
        op, value = cells.COMPARE[check.op], check.value
        if value is None:
            if check.op not in (CompareOp.EQUAL, CompareOp.NOT_EQUAL):
                raise Unsupported("a check without a value can only be for absence (EQUAL) or presence (NOT_EQUAL)")
            value = b""  # an unset value is a null pointer in the gateway; HBase treats empty and absent values alike
        wire = cells.row_mutations_of(mutation)
        args = (table, check.row, family, qualifier, op, value, wire)
        return bool(self._call("checkAndMutate", *args, deadline=deadline, table=table, is_write=True))

    # -- many rows ---------------------------------------------------------------------------------------------

    def batch(
        self, server: ServerName | None, table: bytes, actions: Sequence[Action], deadline: float
    ) -> Sequence[Result | MetaClientError | None]:
        """Send runs of one kind in one call each, in order; after a failure, earlier runs may have been applied."""
        if isinstance(actions, GetActions) and _are_plain(actions):
            return self._many_gets(table, actions.rows, actions.like, deadline)
        outcomes: list[Result | MetaClientError | None] = []
        ordered = _reordered(actions)
        for kind, run in groupby(ordered, key=_kind):
            try:
                outcomes += self._run(kind, table, list(run), deadline)
            except MetaClientError as error:
                error.may_have_applied = error.may_have_applied or any(
                    not isinstance(action.operation, Get) for action in ordered[: len(outcomes)]
                )
                raise
        if ordered is actions:
            return outcomes
        by_action = {id(action): outcome for action, outcome in zip(ordered, outcomes, strict=True)}
        return [by_action[id(action)] for action in actions]

    def _run(
        self, kind: str, table: bytes, actions: list[Action], deadline: float
    ) -> list[Result | MetaClientError | None]:
        operations: list[Any] = [action.operation for action in actions]
        match kind:
            case "get":
                args = (table, [cells.get_of(one, None) for one in operations])
                found = self._rows("getMultiple", lambda: args, deadline, table)
                return [
                    result if result.row else result._replace(row=one.row)
                    for one, result in zip(operations, found, strict=True)
                ]
            case "get at a replica":
                return [self._get_outcome(action, table, deadline) for action in actions]
            case "put":
                self._call_void(
                    "putMultiple",
                    lambda: (table, [cells.put_of(one) for one in operations]),
                    lambda: encode_puts2(table, operations),
                    deadline,
                    table,
                )
            case "delete":
                wires = [wire for one in operations for wire in cells.deletes_of(one)]
                self._write("deleteMultiple", table, wires, deadline=deadline)
            case _:
                return [self.mutate(None, table, one, deadline) for one in operations]
        return [None] * len(actions)

    def put_page(
        self,
        server: ServerName | None,
        table: bytes,
        page: PutPage,
        places: Sequence[tuple[RegionLocation | None, int]],
        deadline: float,
    ) -> None:
        """Write a page of puts; the gateway finds the regions."""
        self._call_void(
            "putMultiple",
            lambda: (table, [cells.put_of(one) for one in page.puts()]),
            lambda: encode_put_page2(table, page),
            deadline,
            table,
        )

    def _many_gets(self, table: bytes, rows: list[bytes], like: Get, deadline: float) -> FoundRows:
        """Read rows at their primaries in one call."""

        def ask(link: Link) -> RowRuns:
            if link.rows is None:
                gets = [cells.get_of(replace(like, row=row), None) for row in rows]
                return RowRuns([[self._result_of(one) for one in link.call("getMultiple", table, gets)]])
            return link.ask("getMultiple", encode_gets2(table, rows, _encode_options(like)), read_page)

        found = self._channel.ask(ask, "getMultiple", deadline, table)[0]
        if len(found) != len(rows):
            raise BackendFault(f"the gateway answered {len(found)} rows for {len(rows)} keys")
        begin = 0
        for run in found.runs:
            if isinstance(run, list):  # the row of a result without cells is not set
                asked = rows[begin : begin + len(run)]
                run[:] = [one if one.row else one._replace(row=row) for one, row in zip(run, asked, strict=True)]
            begin += len(run)
        return FoundRows(rows, found)

    def _get_outcome(self, action: Action, table: bytes, deadline: float) -> Result | MetaClientError:
        assert isinstance(action.operation, Get)
        try:
            return self.get(action.place, table, action.operation, deadline)
        except MetaClientError as error:  # a failed read does not make the other results uncertain
            return error

    # -- admin -------------------------------------------------------------------------------------------------

    def table_names(self, deadline: float) -> Sequence[bytes]:
        found = self._call("getTableNamesByPattern", ".*", False, deadline=deadline)
        return sorted(cells.table_name_from(name) for name in found)

    def describe_table(self, table: bytes, deadline: float) -> TableDescriptor:
        return cells.table_descriptor_from(self._admin("getTableDescriptor", table, deadline, is_write=False))

    def create_table(self, descriptor: TableDescriptor, splits: Sequence[bytes], deadline: float) -> None:
        wire = cells.table_descriptor_of(descriptor)
        keys_ = list(splits) or None
        self._call("createTable", wire, keys_, deadline=deadline, table=descriptor.name, is_write=True)

    def delete_table(self, table: bytes, deadline: float) -> None:
        self._admin("deleteTable", table, deadline)

    def enable_table(self, table: bytes, deadline: float) -> None:
        self._admin("enableTable", table, deadline)

    def disable_table(self, table: bytes, deadline: float) -> None:
        self._admin("disableTable", table, deadline)

    def is_table_enabled(self, table: bytes, deadline: float) -> bool:
        return bool(self._admin("isTableEnabled", table, deadline, is_write=False))

    def _admin(self, method: str, table: bytes, deadline: float, *, is_write: bool = True) -> Any:
        return self._call(method, cells.table_name_of(table), deadline=deadline, table=table, is_write=is_write)

    def compact_table(self, table: bytes, major: bool, deadline: float) -> None:
        raise Unsupported("Thrift 2 has no call for compactions: use thrift1:, hbase:, or HBase's shell")

    def alter_table(self, table: bytes, change: TableChange, deadline: float) -> None:
        """Read the table's descriptor and write it with the change. A change by another client in between is lost."""
        descriptor = self._admin("getTableDescriptor", table, deadline, is_write=False)
        changed = cells.changed_descriptor(descriptor, change)
        self._call("modifyTable", changed, deadline=deadline, table=table, is_write=True)

    def truncate_table(self, table: bytes, preserve_splits: bool, deadline: float) -> None:
        name = cells.table_name_of(table)
        self._call("truncateTable", name, preserve_splits, deadline=deadline, table=table, is_write=True)

    def namespaces(self, deadline: float) -> list[str]:
        return sorted(self._call("listNamespaces", deadline=deadline))

    def create_namespace(self, name: str, deadline: float) -> None:
        self._call("createNamespace", T.TNamespaceDescriptor(name=name), deadline=deadline, is_write=True)

    def delete_namespace(self, name: str, deadline: float) -> None:
        self._call("deleteNamespace", name, deadline=deadline, is_write=True)


def _is_one_call(scan: Scan) -> bool:
    """Return True if the whole scan fits into one page: then one call opens, reads and closes it."""
    return scan.limit is not None and scan.limit <= scan.caching and scan.batch is None


def _joined(pages: Sequence[RowRuns]) -> RowRuns:
    return RowRuns([run for page in pages for run in page.runs])


def _pieces(rows: int) -> list[int]:
    """Return the number of calls for a page, which are sent at once."""
    count = max(1, min(PIECES_MAX, rows // PIECE_ROWS_MIN))
    return [rows * (number + 1) // count - rows * number // count for number in range(count)]


def _cell_page(found: CellRows, scanner: _Thrift2Scanner | None, *, is_end: bool, is_stale: bool) -> CellPage:
    is_stale = found.is_stale if found.rows else is_stale
    return CellPage(found.cells, found.rows, found.first_row, found.last_row, scanner, is_end, is_stale)


def _server(name: Any) -> ServerName | None:
    if name is None or not name.hostName:
        return None
    return ServerName(name.hostName, name.port or 0, name.startCode or -1)


def _not_honoured(replica_id: int) -> MetaClientError:
    if replica_id == 0:
        return BackendFault("the gateway was asked for the primary and a secondary answered")
    return Unsupported(
        f"the gateway was asked for replica {replica_id} and the primary answered: "
        "Thrift gateways honour replica ids in scans from HBase 2.4 on, in gets from 2.2 on"
    )


def _kind(action: Action) -> str:
    operation = action.operation
    if isinstance(operation, Get):
        is_plain = (action.place is None or action.place.region.replica_id == 0) and not operation.existence_only
        return "get" if is_plain else "get at a replica"
    return _KINDS.get(type(operation), "other")


def _are_plain(actions: GetActions) -> bool:
    """Return True if ``getMultiple`` can answer the gets: it reads primaries, and cells."""
    return not actions.like.existence_only and all(
        place is None or place.region.replica_id == 0 for place, _ in actions.places
    )


@lru_cache(maxsize=64)
def _encode_options(like: Get) -> bytes:
    """Return the fields of a TGet after its row, which is empty."""
    return b"" if cells.is_plain(like) else serialize(cells.get_of(like, None))[_EMPTY_ROW_BYTES:-1]


def _reordered(actions: Sequence[Action]) -> Sequence[Action]:
    """Return the actions by kind, so that there are few calls; unchanged if a row occurs twice, whose order matters."""
    if {type(action.operation) for action in actions} == {Put}:
        return actions
    rows = [action.operation.row for action in actions if not isinstance(action.operation, Get)]
    return actions if len(set(rows)) != len(rows) else sorted(actions, key=_kind)
