"""The SPI over HBase's own RPC: every call goes straight to the server that the locator names.

Calls answer with a :class:`~metaclient_native.connection.Call`, many at once on one connection; whoever waits for one
alone reads the answer itself. A replica is a region with a name of its own, on a server of its own: nothing else says
"read that copy", and the answer says whether it came from a secondary.

DIVERGENCES from HBase's Java client
- A meta lookup is one call, with ``limit`` and ``close_scanner`` set: no scanner stays open.
- A ``next`` that failed is never repeated: HBase 3 answers a repeated one with an empty success.
- Changes of one row in one batch keep their order, at the price of a call for each.
- A scan that is reopened reads at a new point in time; Java carries the old one over inside of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Protocol, TypeVar

from metaclient.backend import (
    Action,
    Answer,
    Capabilities,
    CellPage,
    MetaPage,
    MetaRow,
    MetaScan,
    Outcome,
    PutPage,
    ScanPage,
)
from metaclient.config.hbase_properties import warn_unread
from metaclient.errors import MetaClientError, RegionOffline, ServerUnreachable
from metaclient.model import (
    Append,
    Check,
    Get,
    Increment,
    MetaReplica,
    Mutation,
    RegionLocation,
    Result,
    RowMutations,
    Scan,
    ServerName,
    TableDescriptor,
)
from metaclient.row_limit import row_limit
from metaclient.runtime import Pending, Runtime
from metaclient.wire.rpc.cellblock import decode_results
from metaclient.wire.rpc.framing import Response
from metaclient.wire.rpc.messages import CONDITION, MUTATE_RESPONSE, READ_PREAD, SCAN
from metaclient.wire.rpc.mutations import condition_message
from metaclient.wire.rpc.protobuf import ProtocolError, decode, delimited, encode, varint
from metaclient.wire.rpc.queries import result_from, scan_message
from metaclient_native.admin import Admin
from metaclient_native.batches import MultiCall, PageCall, Steps, in_order, no_place, picked
from metaclient_native.calls import get_param, get_result, mutate_param, region_prefix, scan_answer
from metaclient_native.connections import CLIENT_SERVICE, Connections
from metaclient_native.registry_rpc import RpcRegistry
from metaclient_native.registry_zk import ZooKeeperRegistry
from metaclient_native.scanners import SYSTEM_PRIORITY, Scanners
from metaclient_native.scans import Scanner, cells_of, no_cells, open_param, page_of
from metaclient_native.security import Security
from metaclient_native.url import PROPERTIES, NativeUrl

__all__ = ["NativeBackend"]

T = TypeVar("T")
_SYSTEM = b"hbase:"
#: Of one page of hbase:meta; a region's row has about a kilobyte.
META_PAGE_BYTES_MAX = 32 * 1024 * 1024


class Registry(Protocol):
    """Who knows where hbase:meta and the master are."""

    def meta_replicas(self, deadline: float) -> list[MetaReplica]: ...

    def active_master(self, deadline: float) -> ServerName: ...

    def cluster_id(self, deadline: float) -> str | None: ...

    def close(self) -> None: ...


class NativeBackend:
    """HBase's own RPC; see the module's docstring.

    ``admin`` is what the master can do beyond the SPI: namespaces, moves, splits, merges, flushes, sizes of regions.
    """

    name = "hbase"
    capabilities = Capabilities(
        honours_deadline=True,
        is_pipelined=True,
        can_cancel=True,
        cell_ttl=True,
        nonces=True,
        cell_pages=True,
        put_pages=True,
        direct=True,
    )

    _nonce_group: int

    def __init__(self, url: str, *, runtime: Runtime, properties: Mapping[str, str] | None = None) -> None:
        parsed = NativeUrl.parse(url, properties)
        warn_unread(properties or {}, PROPERTIES, "HBase's own RPC")
        self._runtime = runtime
        self._connections = Connections(runtime, Security.of(properties or {}, user=parsed.user))
        self._registry: Registry
        if parsed.is_rpc:
            self._registry = RpcRegistry(parsed.endpoints, self._connections, runtime)
        else:
            self._registry = ZooKeeperRegistry(parsed.endpoints, parsed.znode_parent, runtime)
        self._call, self._call_at = self._connections.call, self._connections.call_at
        self.admin = Admin(self._registry, self._connections, runtime, self._meta_rows)
        self._scanners = Scanners(self._connections, runtime)
        self._is_direct = False
        self.direct = copy(self)
        self.direct._is_direct = True
        self._draw_nonce_group()
        runtime.on_fork(self._draw_nonce_group)

    def _draw_nonce_group(self) -> None:
        """At first, and in a child process: a server takes a nonce of the parent's group for a repetition."""
        self._nonce_group = group = self._runtime.rng.getrandbits(63)
        self.direct._nonce_group = group

    def __repr__(self) -> str:
        return f"<NativeBackend {self._registry!r}>"

    def open(self, deadline: float) -> None:
        """Reach the registry: who is not there, or no HBase, is told now and not at the first call."""
        try:
            self._registry.meta_replicas(deadline)
        except (ProtocolError, ServerUnreachable) as error:
            if not isinstance(self._registry, RpcRegistry):
                raise
            raise self._registry.explained(error) from error

    def close(self) -> None:
        self._scanners.forget_all()
        self._connections.close()
        self._registry.close()

    def connections(self) -> dict[str, dict[str, object]]:
        """What is known of each connection; JSON-able."""
        return self._connections.status()

    # -- hbase:meta ----------------------------------------------------------------------------------------------------

    def meta_replicas(self, deadline: float) -> Sequence[MetaReplica]:
        return self._registry.meta_replicas(deadline)

    def read_meta(self, replica: MetaReplica, scan: MetaScan, deadline: float) -> Answer[MetaPage]:
        """One call: a get for one row, else a scan that ends with its page."""
        server = replica.server
        if server is None:
            raise RegionOffline(f"hbase:meta replica {replica.replica_id} is on no server")
        if scan.start_row and scan.start_row == scan.stop_row:
            param = get_param(replica.region_name, Get(scan.start_row, scan.families))
            method, read = b"Get", _meta_get
        else:
            param, method, read = _meta_scan_param(replica.region_name, scan), b"Scan", _meta_scan
        return self._call(
            server.host,
            server.port,
            CLIENT_SERVICE,
            method,
            param,
            read,
            deadline,
            priority=SYSTEM_PRIORITY,
            what="read of hbase:meta",
        )

    def _meta_rows(self, scan: MetaScan, deadline: float) -> tuple[MetaRow, ...]:
        """A page of the primary, for admin calls on all regions of a table."""
        primary = next((one for one in self._registry.meta_replicas(deadline) if one.replica_id == 0), MetaReplica(0))
        answer = self.read_meta(primary, scan, deadline)
        page = answer.result(deadline) if isinstance(answer, Pending) else answer
        return page.rows

    # -- reading -------------------------------------------------------------------------------------------------------

    def get(self, place: RegionLocation | None, table: bytes, get: Get, deadline: float) -> Answer[Result]:
        if place is None:
            raise no_place()
        return self._call_at(
            place.server,
            b"Get",
            get_param(place.region_name, get),
            partial(get_result, get.row),
            deadline,
            "get",
            b"",
            SYSTEM_PRIORITY if table.startswith(_SYSTEM) else 0,
            False,
            self._is_direct,
        )

    def scan_open(self, place: RegionLocation | None, table: bytes, scan: Scan, deadline: float) -> Answer[ScanPage]:
        if place is None:
            raise no_place()
        if scan.limit == 0 or _is_empty(scan):
            return ScanPage((), None, True, place.replica_id != 0, is_end_of_scan=True)
        server = place.server
        scanner = Scanner(server, scan, limit=row_limit(scan), priority=_priority(table), is_lost=True)
        return self._scanners.open(scanner, open_param(place.region_name, scan), deadline, page_of)

    def scan_open_cells(
        self, place: RegionLocation | None, table: bytes, scan: Scan, deadline: float
    ) -> Answer[CellPage]:
        """As ``scan_open``, but the page's cells come as Arrow: for bulk readers."""
        if place is None:
            raise no_place()
        if scan.limit == 0 or _is_empty(scan):
            return no_cells(is_stale=place.replica_id != 0)
        scanner = Scanner(place.server, scan, limit=row_limit(scan), priority=_priority(table), is_lost=True)
        return self._scanners.open(scanner, open_param(place.region_name, scan), deadline, cells_of)

    def scan_next_cells(self, scanner: object, rows: int, deadline: float) -> Pending[CellPage]:
        """As ``scan_next``, of a scanner that ``scan_open_cells`` opened."""
        assert isinstance(scanner, Scanner), "a scanner of this backend"
        return self._scanners.following(scanner, rows, deadline, cells_of)

    def scan_next(self, scanner: object, rows: int, deadline: float) -> Answer[ScanPage]:
        assert isinstance(scanner, Scanner), "a scanner of this backend"
        return self._scanners.following(scanner, rows, deadline, page_of)

    def scan_close(self, scanner: object, deadline: float) -> None:
        """Nobody waits for the answer: a scanner that is not closed ends with its lease."""
        assert isinstance(scanner, Scanner), "a scanner of this backend"
        self._scanners.close(scanner, deadline)

    # -- writing -------------------------------------------------------------------------------------------------------

    def mutate(
        self, place: RegionLocation | None, table: bytes, mutation: Mutation, deadline: float
    ) -> Answer[Result | None]:
        if place is None:
            raise no_place()
        read: Callable[[Response], Result | None]
        if isinstance(mutation, RowMutations):
            if not mutation.mutations:
                return None
            multi = MultiCall([Action(place, mutation)], nonce_group=self._nonce_group, what="mutate_row")
            method, param, cells, read = b"Multi", multi.param, multi.cells, lambda response: _only(multi, response)
        else:
            method = b"Mutate"
            param, cells = mutate_param(place.region_name, mutation, self._nonce_group)
            if isinstance(mutation, Increment | Append):
                changed = mutation
                read = lambda response: _changed(changed, response)  # noqa: E731  # beside its siblings
            else:
                read = _nothing
        priority = _priority(table)
        return self._call_at(
            place.server, method, param, read, deadline, "mutate", cells, priority, True, self._is_direct
        )

    def check_and_mutate(
        self, place: RegionLocation | None, table: bytes, check: Check, mutation: Mutation, deadline: float
    ) -> Answer[bool]:
        if place is None:
            raise no_place()
        read: Callable[[Response], bool]
        if isinstance(mutation, RowMutations):
            action = Action(place, mutation)
            multi = MultiCall([action], nonce_group=self._nonce_group, check=check, what="check_and_mutate")
            method, param, cells, read = b"Multi", multi.param, multi.cells, multi.processed
        else:
            method, read = b"Mutate", _processed
            param, cells = mutate_param(place.region_name, mutation, self._nonce_group)
            param += b"\x1a" + delimited(encode(CONDITION, condition_message(check)))
        priority = _priority(table)
        return self._call_at(
            place.server, method, param, read, deadline, "check_and_mutate", cells, priority, is_write=True
        )

    def batch(
        self, server: ServerName | None, table: bytes, actions: Sequence[Action], deadline: float
    ) -> Answer[Sequence[Outcome]]:
        if server is None:
            raise no_place()
        if not actions:
            return []
        steps = in_order(actions)
        if len(steps) == 1:
            return self._multi(server, table, actions, deadline)
        steps_of = Steps(lambda some: self._multi(server, table, some, deadline), actions, steps)
        return steps_of.begin(self._runtime.pending(name="batch"))

    def put_page(
        self,
        server: ServerName | None,
        table: bytes,
        page: PutPage,
        places: Sequence[tuple[RegionLocation | None, int]],
        deadline: float,
    ) -> Pending[None]:
        if server is None:
            raise no_place()
        call = PageCall(page, places)
        return self._multi_at(server, table, call, call.done, deadline, is_write=True)

    def _multi(
        self, server: ServerName, table: bytes, actions: Sequence[Action], deadline: float
    ) -> Pending[Sequence[Outcome]]:
        multi = MultiCall(actions, nonce_group=self._nonce_group)
        is_write = any(not isinstance(action.operation, Get) for action in actions)
        return self._multi_at(server, table, multi, multi.outcomes, deadline, is_write=is_write)

    def _multi_at(
        self,
        server: ServerName,
        table: bytes,
        call: MultiCall | PageCall,
        read: Callable[[Response], T],
        deadline: float,
        *,
        is_write: bool,
    ) -> Pending[T]:
        return self._call(
            server.host,
            server.port,
            CLIENT_SERVICE,
            b"Multi",
            call.param,
            read,
            deadline,
            cells=call.cells,
            priority=_priority(table),
            is_write=is_write,
            what="batch",
        )

    # -- admin ---------------------------------------------------------------------------------------------------------

    def table_names(self, deadline: float) -> Sequence[bytes]:
        return self.admin.table_names(deadline)

    def describe_table(self, table: bytes, deadline: float) -> TableDescriptor:
        return self.admin.describe_table(table, deadline)

    def create_table(self, descriptor: TableDescriptor, splits: Sequence[bytes], deadline: float) -> None:
        self.admin.create_table(descriptor, splits, deadline)

    def delete_table(self, table: bytes, deadline: float) -> None:
        self.admin.delete_table(table, deadline)

    def enable_table(self, table: bytes, deadline: float) -> None:
        self.admin.enable_table(table, deadline)

    def disable_table(self, table: bytes, deadline: float) -> None:
        self.admin.disable_table(table, deadline)

    def is_table_enabled(self, table: bytes, deadline: float) -> bool:
        return self.admin.is_table_enabled(table, deadline)

    def compact_table(self, table: bytes, major: bool, deadline: float) -> None:
        self.admin.compact_table(table, major, deadline)

    def region_sizes(self, table: bytes, deadline: float) -> dict[bytes, int]:
        """Bytes of each region, by its name: what Spark's planning asks for. Beyond the SPI."""
        return self.admin.region_sizes(table, deadline)


# -- answers -----------------------------------------------------------------------------------------------------------


def _is_empty(scan: Scan) -> bool:
    """True when the range holds no row. HBase itself takes one whose ends are the same row for a get of that row."""
    if not scan.start_row or not scan.stop_row:
        return False
    if scan.start_row == scan.stop_row:
        return not (scan.include_start and scan.include_stop)
    return (scan.start_row < scan.stop_row) if scan.is_reversed else (scan.start_row > scan.stop_row)


def _priority(table: bytes) -> int:
    return SYSTEM_PRIORITY if table.startswith(_SYSTEM) else 0


def _nothing(response: Response) -> None:
    """It was done: that is all there is to know."""


def _only(multi: MultiCall, response: Response) -> None:
    outcome = multi.outcomes(response)[0]
    if isinstance(outcome, MetaClientError):
        raise outcome


def _changed(mutation: Increment | Append, response: Response) -> Result:
    message = decode(MUTATE_RESPONSE, response.data, response.at, response.end)
    data = response.data
    result, _ = result_from(message.get("result", {}), mutation.row, data, response.end, len(data))
    return picked(result, mutation)


def _processed(response: Response) -> bool:
    return bool(decode(MUTATE_RESPONSE, response.data, response.at, response.end).get("processed", False))


def _meta_scan_param(region_name: bytes, scan: MetaScan) -> bytes:
    wanted = Scan(
        scan.start_row,
        scan.stop_row,
        include_stop=bool(scan.stop_row),
        is_reversed=scan.is_reversed,
        columns=scan.families,
    )
    message = scan_message(wanted, max_result_bytes=META_PAGE_BYTES_MAX, read_type=READ_PREAD)
    limit = varint(scan.limit)
    # Rows, limit, and "close the scanner behind it": the page is the whole conversation.
    rest = b"\x20" + limit + b"\x28\x01\x58" + limit
    return region_prefix(region_name) + b"\x12" + delimited(encode(SCAN, message)) + rest


def _meta_scan(response: Response) -> MetaPage:
    data, end = response.data, response.end
    answer = scan_answer(data, response.at, end)
    rows = answer.results or decode_results(data, end, len(data), answer.counts)
    return MetaPage(tuple(_meta_row(row) for row in rows), answer.is_stale)


def _meta_get(response: Response) -> MetaPage:
    found = get_result(b"", response)
    return MetaPage((_meta_row(found),) if found.cells else (), found.is_stale)


def _meta_row(result: Result) -> MetaRow:
    return MetaRow(result.row, {cell.column: cell.value for cell in result.cells})
