"""The SPI over HBase's own RPC: every call is sent to the server that the locator returns.

Calls return a :class:`~metaclient_native.in_flight.PendingCall`; one connection has many of them in flight, and a
thread that waits for a single call reads its response itself. A replica is addressed by its own region name at its own
server. The response says whether a secondary sent it.

DIVERGENCES from HBase's Java client
- A meta lookup is one call, with ``limit`` and ``close_scanner`` set: no scanner stays open.
- A ``next`` that failed is never retried: HBase 3 answers a repeated ``next`` with a success without rows.
- Changes of one row in one batch keep their order; each of them costs one call.
- A scan that is reopened reads at a new point in time; the Java client keeps the old one inside of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import lru_cache, partial
from typing import Protocol, TypeVar

from metaclient import keys
from metaclient.backend import (
    Action,
    Answer,
    AwaitedAnswer,
    Capabilities,
    CellPage,
    ChangeHost,
    ClusterObservation,
    MetaPage,
    MetaRow,
    MetaScan,
    Outcome,
    PutPage,
    ScanPage,
)
from metaclient.config import Config
from metaclient.config.hbase_properties import warn_unread
from metaclient.errors import ConfigError, MetaClientError, RegionOffline, ServerUnreachable, Unsupported
from metaclient.many_gets import GetActions
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
from metaclient.protobuf import ProtocolError, decode, delimited, encode
from metaclient.row_limit import row_limit
from metaclient.runtime import Pending, Runtime
from metaclient.table_schema import TableChange
from metaclient.wire.reply_limit import read_reply_bytes_max
from metaclient.wire.rpc.cellblock import decode_results
from metaclient.wire.rpc.framing import Response
from metaclient.wire.rpc.messages import MUTATE_REQUEST, MUTATE_RESPONSE, READ_PREAD, SCAN, SCAN_REQUEST
from metaclient.wire.rpc.mutations import condition_message
from metaclient.wire.rpc.queries import result_from, scan_message
from metaclient.wire.stream import Dial, dial
from metaclient_native.admin import Admin
from metaclient_native.batches import (
    MultiCall,
    PageCall,
    Steps,
    explain_missing_place,
    pick_changed_columns,
    split_into_steps,
)
from metaclient_native.bulk_loads import BulkLoadCalls
from metaclient_native.calls import decode_get, decode_scan, encode_get, encode_mutate, encode_region
from metaclient_native.change_host import ZooKeeperChangeHost
from metaclient_native.connections import Connections
from metaclient_native.get_calls import GetCall
from metaclient_native.identity import IdentityCalls
from metaclient_native.registry_rpc import RpcRegistry
from metaclient_native.registry_zk import ZooKeeperRegistry
from metaclient_native.replication import ReplicationCalls
from metaclient_native.request import Request
from metaclient_native.scanners import SYSTEM_PRIORITY, ScannerCalls, decode_nothing
from metaclient_native.scans import (
    Scanner,
    encode_open,
    make_empty_cell_page,
    read_cell_page,
    read_first_page,
    read_page,
)
from metaclient_native.security import Security
from metaclient_native.url import PROPERTIES, NativeUrl

__all__ = ["NativeBackend"]

T = TypeVar("T")
_SYSTEM = b"hbase:"
_SCAN, _SCAN_START = SCAN_REQUEST.tag("scan"), SCAN.tag("start_row")
_new = tuple.__new__
#: Bytes of one page of hbase:meta; the row of a region has about a kilobyte.
META_PAGE_BYTES_MAX = 32 * 1024 * 1024


class Registry(Protocol):
    """The source of the locations of hbase:meta and of the active master."""

    def meta_replicas(self, deadline: float) -> list[MetaReplica]: ...

    def active_master(self, deadline: float) -> ServerName: ...

    def cluster_id(self, deadline: float) -> str | None: ...

    def live_servers(self, deadline: float) -> list[ServerName] | None:
        """Return the live region servers; None if only the master knows them."""
        ...

    def explain(self, error: MetaClientError) -> MetaClientError:
        """Return the error to raise for a first contact that failed: this one, or one that names the right url."""
        ...

    def close(self) -> None: ...


class NativeBackend:
    """HBase's own RPC; see the module's docstring.

    ``admin`` has the calls of the master beyond the SPI: moves, splits, merges, flushes, sizes of regions.
    ``dial`` makes the streams of the connections: plain TCP unless it is given.

    It has more than 30 methods because it implements the whole SPI of backends, most of them in a line or two.
    """

    name = "hbase"
    capabilities = Capabilities(
        honours_deadline=True,
        is_pipelined=True,
        is_remote=True,
        can_cancel=True,
        cell_ttl=True,
        nonces=True,
        cell_pages=True,
        put_pages=True,
        direct=True,
        schema=True,
        replication=True,
        bulk_load=True,
    )

    _nonce_group: int

    def __init__(
        self,
        url: str,
        *,
        runtime: Runtime,
        properties: Mapping[str, str] | None = None,
        config: Config | None = None,
        dial: Dial = dial,
    ) -> None:
        parsed = NativeUrl.parse(url, properties)
        warn_unread(properties or {}, PROPERTIES, "HBase's own RPC")
        self._runtime = runtime
        self._connections = Connections(
            runtime,
            self._make_security(properties or {}, parsed, config),
            dial=dial,
            reply_bytes_max=read_reply_bytes_max(properties or {}),
        )
        self._registry: Registry
        if parsed.is_rpc:
            self._registry = RpcRegistry(parsed.endpoints, self._connections, runtime)
        else:
            self._registry = ZooKeeperRegistry(parsed.endpoints, parsed.znode_parent, runtime)
        self._call_server = self._ask_server = self._connections.call_server
        self.admin = Admin(self._registry, self._connections, runtime, self._meta_rows)
        self.replication_admin = ReplicationCalls(self.admin, self._connections, self._registry)
        self.bulk_loads = BulkLoadCalls(self._connections)
        self.identity = IdentityCalls(self._connections, self._registry.meta_replicas)
        self._change_host = (
            None
            if parsed.is_rpc
            else ZooKeeperChangeHost(parsed.endpoints, parsed.znode_parent, runtime, self.replication_admin)
        )
        self._scanners = ScannerCalls(self._connections, runtime)
        self.direct = copy(self)
        self.direct._ask_server = self._connections.ask_server  # type: ignore[assignment]  # may return the result itself
        self._draw_nonce_group()
        runtime.on_fork(self._draw_nonce_group)

    def _make_security(self, properties: Mapping[str, str], parsed: NativeUrl, config: Config | None) -> Security:
        """Return the authentication; ConfigError if tokens of several clusters are given and ZooKeeper is not asked."""
        security = Security.of(properties, user=parsed.user, config=config)
        clusters = sorted({token.cluster_id for token in security.settings.tokens})
        if len(clusters) < 2:
            return security
        if parsed.is_rpc:
            raise ConfigError(
                f"HADOOP_TOKEN_FILE_LOCATION has tokens of the clusters {', '.join(clusters)}, and hbase+rpc:// does "
                "not know the cluster's id before it has a connection: give token=, or use hbase:// (ZooKeeper)"
            )
        return replace(security, find_cluster_id=lambda deadline: self._registry.cluster_id(deadline))

    def _draw_nonce_group(self) -> None:
        """Draw a group, at first and in a child process: for a server, a nonce of the parent's group is a retry."""
        self._nonce_group = group = self._runtime.rng.getrandbits(63)
        self.direct._nonce_group = group

    def __repr__(self) -> str:
        return f"<NativeBackend {self._registry!r}>"

    def open(self, deadline: float) -> None:
        """Ask the registry; fail now if its address is unreachable or does not speak HBase's protocol."""
        try:
            self._registry.meta_replicas(deadline)
        except (ProtocolError, ServerUnreachable) as error:
            raise self._registry.explain(error) from error

    def close(self) -> None:
        self._scanners.forget_all()
        self._connections.close()
        if self._change_host is not None:
            self._change_host.close()
        self._registry.close()

    @property
    def change_host(self) -> ChangeHost:
        if self._change_host is None:
            raise Unsupported(
                "a subscription to changes needs the cluster's ZooKeeper, where region servers find its workers: "
                "connect with hbase:// instead of hbase+rpc://"
            )
        return self._change_host

    @property
    def observation(self) -> ClusterObservation:
        return self.admin

    def connections(self) -> dict[str, dict[str, object]]:
        """Return state, calls in flight and late answers per connection, as JSON values."""
        return self._connections.status()

    # -- hbase:meta ----------------------------------------------------------------------------------------------------

    def meta_replicas(self, deadline: float) -> Sequence[MetaReplica]:
        return self._registry.meta_replicas(deadline)

    def read_meta(self, replica: MetaReplica, scan: MetaScan, deadline: float) -> Answer[MetaPage]:
        """Read a page of hbase:meta in one call: a get for one row, else a scan whose scanner is closed at once."""
        server = replica.server
        if server is None:
            raise RegionOffline(f"hbase:meta replica {replica.replica_id} is on no server")
        if scan.start_row and scan.start_row == scan.stop_row:
            param = encode_get(replica.region_name, Get(scan.start_row, scan.families))
            method, decode_page = b"Get", _decode_meta_get
        else:
            param, method, decode_page = _encode_meta_scan(replica.region_name, scan), b"Scan", _decode_meta_scan
        what = "read of hbase:meta"
        return self._ask_server(server, Request(method, param, decode_page, deadline, what, priority=SYSTEM_PRIORITY))

    def _meta_rows(self, scan: MetaScan, deadline: float) -> tuple[MetaRow, ...]:
        """Return a page of the primary meta region, for admin calls on all regions of a table."""
        primary = next((one for one in self._registry.meta_replicas(deadline) if one.replica_id == 0), MetaReplica(0))
        answer = self.read_meta(primary, scan, deadline)
        page = answer.result(deadline) if isinstance(answer, Pending) else answer
        return page.rows

    # -- reading -------------------------------------------------------------------------------------------------------

    def get(self, place: RegionLocation | None, table: bytes, get: Get, deadline: float) -> Answer[Result]:
        if place is None:
            raise explain_missing_place()
        return self._ask_server(place.server, _get_request(place, table, get, deadline))

    def get_until(
        self, place: RegionLocation | None, table: bytes, get: Get, deadline: float, until: float
    ) -> Answer[Result]:
        """See :class:`~metaclient.backend.Direct`."""
        if place is None:
            raise explain_missing_place()
        return self._connections.ask_server(place.server, _get_request(place, table, get, deadline), until)

    def start_get(self, place: RegionLocation, table: bytes, get: Get, deadline: float) -> AwaitedAnswer[Result] | None:
        """See :class:`~metaclient.backend.StartingBackend`."""
        return self._connections.start_server(place.server, _get_request(place, table, get, deadline))

    def scan_open(self, place: RegionLocation | None, table: bytes, scan: Scan, deadline: float) -> Answer[ScanPage]:
        if place is None:
            raise explain_missing_place()
        if scan.limit == 0 or _is_empty(table, scan):
            return ScanPage((), None, True, place.replica_id != 0, is_end_of_scan=True)
        server = place.server
        scanner = Scanner(server, scan, limit=row_limit(scan), priority=_priority(table), is_lost=True)
        return self._scanners.open(scanner, encode_open(place.region_name, scan), deadline, read_first_page)

    def scan_open_cells(
        self, place: RegionLocation | None, table: bytes, scan: Scan, deadline: float
    ) -> Answer[CellPage]:
        """Open a scanner as ``scan_open`` does; the page holds its cells in Arrow, for bulk readers."""
        if place is None:
            raise explain_missing_place()
        if scan.limit == 0 or _is_empty(table, scan):
            return make_empty_cell_page(is_stale=place.replica_id != 0)
        scanner = Scanner(place.server, scan, limit=row_limit(scan), priority=_priority(table), is_lost=True)
        return self._scanners.open(scanner, encode_open(place.region_name, scan), deadline, read_cell_page)

    def scan_next_cells(self, scanner: object, rows: int, deadline: float) -> Pending[CellPage]:
        """Return the next page of a scanner that ``scan_open_cells`` opened."""
        assert isinstance(scanner, Scanner), "a scanner of this backend"
        return self._scanners.fetch_next(scanner, rows, deadline, read_cell_page)

    def scan_next(self, scanner: object, rows: int, deadline: float) -> Answer[ScanPage]:
        assert isinstance(scanner, Scanner), "a scanner of this backend"
        return self._scanners.fetch_next(scanner, rows, deadline, read_page)

    def scan_close(self, scanner: object, deadline: float) -> None:
        """Send the close without waiting for its response: a scanner that stays open ends with its lease."""
        assert isinstance(scanner, Scanner), "a scanner of this backend"
        self._scanners.close(scanner, deadline)

    # -- writing -------------------------------------------------------------------------------------------------------

    def mutate(
        self, place: RegionLocation | None, table: bytes, mutation: Mutation, deadline: float
    ) -> Answer[Result | None]:
        if place is None:
            raise explain_missing_place()
        decode_result: Callable[[Response], Result | None]
        if isinstance(mutation, RowMutations):
            if not mutation.mutations:
                return None
            multi = MultiCall([Action(place, mutation)], nonce_group=self._nonce_group, what="mutate_row")
            method, param, cells = b"Multi", multi.param, multi.cells
            decode_result = multi.raise_first_error
        else:
            method = b"Mutate"
            param, cells = encode_mutate(place.region_name, mutation, self._nonce_group)
            if isinstance(mutation, Increment | Append):
                decode_result = partial(_decode_changed, mutation)
            else:
                decode_result = decode_nothing
        return self._ask_server(
            place.server,
            Request(method, param, decode_result, deadline, "mutate", cells, _priority(table), is_write=True),
        )

    def check_and_mutate(
        self, place: RegionLocation | None, table: bytes, check: Check, mutation: Mutation, deadline: float
    ) -> Answer[bool]:
        if place is None:
            raise explain_missing_place()
        decode_outcome: Callable[[Response], bool]
        if isinstance(mutation, RowMutations):
            action = Action(place, mutation)
            multi = MultiCall([action], nonce_group=self._nonce_group, check=check, what="check_and_mutate")
            method, param, cells, decode_outcome = b"Multi", multi.param, multi.cells, multi.decode_processed
        else:
            method, decode_outcome = b"Mutate", _decode_processed
            param, cells = encode_mutate(place.region_name, mutation, self._nonce_group)
            param += encode(MUTATE_REQUEST, {"condition": condition_message(check)})
        what = "check_and_mutate"
        return self._call_server(
            place.server, Request(method, param, decode_outcome, deadline, what, cells, _priority(table), is_write=True)
        )

    def batch(
        self, server: ServerName | None, table: bytes, actions: Sequence[Action], deadline: float
    ) -> Answer[Sequence[Outcome]]:
        if server is None:
            raise explain_missing_place()
        if not actions:
            return []
        if isinstance(actions, GetActions) and actions.has_different_regions:
            return self._many_gets(server, table, actions, deadline)
        steps = split_into_steps(actions)
        if len(steps) == 1:
            return self._multi(server, table, actions, deadline)
        following = Steps(lambda some: self._multi(server, table, some, deadline), actions, steps)
        return following.begin(self._runtime.pending(name="batch"))

    def put_page(
        self,
        server: ServerName | None,
        table: bytes,
        page: PutPage,
        places: Sequence[tuple[RegionLocation | None, int]],
        deadline: float,
    ) -> Pending[None]:
        if server is None:
            raise explain_missing_place()
        call = PageCall(page, places)
        request = Request(
            b"Multi", call.param, call.raise_first_error, deadline, "batch", call.cells, _priority(table), is_write=True
        )
        return self._call_server(server, request)

    def _multi(
        self, server: ServerName, table: bytes, actions: Sequence[Action], deadline: float
    ) -> Pending[Sequence[Outcome]]:
        multi = MultiCall(actions, nonce_group=self._nonce_group)
        is_write = any(not isinstance(action.operation, Get) for action in actions)
        request: Request[Sequence[Outcome]] = Request(
            b"Multi", multi.param, multi.decode_outcomes, deadline, "batch", multi.cells, _priority(table), is_write
        )
        return self._call_server(server, request)

    def _many_gets(
        self, server: ServerName, table: bytes, actions: GetActions, deadline: float
    ) -> Pending[Sequence[Outcome]]:
        call = GetCall(actions)
        return self._call_server(
            server, Request(b"Multi", call.param, call.decode_outcomes, deadline, "batch", priority=_priority(table))
        )

    # -- admin ---------------------------------------------------------------------------------------------------------

    def hbase_version(self, deadline: float) -> str:
        return self.admin.hbase_version(deadline)

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

    def alter_table(self, table: bytes, change: TableChange, deadline: float) -> None:
        self.admin.alter_table(change, deadline)

    def truncate_table(self, table: bytes, preserve_splits: bool, deadline: float) -> None:
        self.admin.truncate_table(table, deadline, preserve_splits=preserve_splits)

    def namespaces(self, deadline: float) -> Sequence[str]:
        return self.admin.namespaces(deadline)

    def create_namespace(self, name: str, deadline: float) -> None:
        self.admin.create_namespace(name, deadline)

    def delete_namespace(self, name: str, deadline: float) -> None:
        self.admin.delete_namespace(name, deadline)

    def region_sizes(
        self, table: bytes, deadline: float, servers: Sequence[ServerName] | None = None
    ) -> dict[bytes, int]:
        """Return the bytes of each region by its name, for Spark's planning. Beyond the SPI."""
        return self.admin.region_sizes(table, deadline, servers)


# -- requests and responses --------------------------------------------------------------------------------------------


def _get_request(place: RegionLocation, table: bytes, get: Get, deadline: float) -> Request[Result]:
    param, decode_result = encode_get(place.region_name, get), partial(decode_get, get.row)
    priority = SYSTEM_PRIORITY if table.startswith(_SYSTEM) else 0
    # Without the call of Request.__new__, which takes 0.4 us, one hundredth of a get.
    return _new(Request, (b"Get", param, decode_result, deadline, "get", b"", priority, False, False))


def _is_empty(table: bytes, scan: Scan) -> bool:
    """Return True if the range holds no row. HBase reads a range whose ends are the same row as a get of that row."""
    if not scan.start_row or not scan.stop_row:
        return False
    if scan.start_row == scan.stop_row:
        return not (scan.include_start and scan.include_stop)
    first, last = (scan.stop_row, scan.start_row) if scan.is_reversed else (scan.start_row, scan.stop_row)
    return keys.sorts_before(table, last, first)


def _priority(table: bytes) -> int:
    return SYSTEM_PRIORITY if table.startswith(_SYSTEM) else 0


def _decode_changed(mutation: Increment | Append, response: Response) -> Result:
    message = decode(MUTATE_RESPONSE, response.data, response.at, response.end)
    data = response.data
    result, _ = result_from(message.get("result", {}), mutation.row, data, response.end, len(data))
    return pick_changed_columns(result, mutation)


def _decode_processed(response: Response) -> bool:
    return bool(decode(MUTATE_RESPONSE, response.data, response.at, response.end).get("processed", False))


def _encode_meta_scan(region_name: bytes, scan: MetaScan) -> bytes:
    """Return a ScanRequest for one page of hbase:meta. The lookups of a table differ only in their start row."""
    rest, request = _encode_meta_range(scan.stop_row, scan.families, scan.is_reversed, scan.limit)
    start = _SCAN_START + delimited(scan.start_row) if scan.start_row else b""
    return encode_region(region_name) + _SCAN + delimited(start + rest) + request


@lru_cache(maxsize=1024)
def _encode_meta_range(
    stop_row: bytes, families: tuple[bytes, ...], is_reversed: bool, limit: int
) -> tuple[bytes, bytes]:
    """Return the fields of a Scan of hbase:meta without its start row, and those of its ScanRequest."""
    wanted = Scan(stop_row=stop_row, include_stop=bool(stop_row), is_reversed=is_reversed, columns=families)
    message = scan_message(wanted, max_result_bytes=META_PAGE_BYTES_MAX, read_type=READ_PREAD)
    # The scanner is closed with its first page: no second call is needed.
    fields = {"number_of_rows": limit, "close_scanner": True, "limit_of_rows": limit}
    return encode(SCAN, message), encode(SCAN_REQUEST, fields)


def _decode_meta_scan(response: Response) -> MetaPage:
    data, end = response.data, response.end
    answer = decode_scan(data, response.at, end)
    rows = answer.results or decode_results(data, end, len(data), answer.counts)
    return MetaPage(tuple(_meta_row(row) for row in rows), answer.is_stale)


def _decode_meta_get(response: Response) -> MetaPage:
    found = decode_get(b"", response)
    return MetaPage((_meta_row(found),) if found.cells else (), found.is_stale)


def _meta_row(result: Result) -> MetaRow:
    return MetaRow(result.row, {cell.column: cell.value for cell in result.cells})
