"""The SPI: the operations of an adapter, each at the location that the caller passes.

A backend never chooses a location. ``metaclient`` decides, once for every backend, which meta replica and which region
replica is called, when to hedge, when to retry, and which location is called after an error. Therefore:

1. One call is one attempt. A backend does not retry (a gateway that retries itself declares it in ``Capabilities``).
2. A call either blocks and returns its answer, or returns a :class:`~metaclient.runtime.Pending` that will be
   completed later (pipelined protocols). The executor accepts both.
3. Each call gets ``deadline``, an instant of ``runtime.now()``. A backend with ``honours_deadline`` returns by the
   deadline or raises :class:`~metaclient.errors.CallTimeout`, and may be called in the user's thread. A backend without
   ``honours_deadline`` may hang: its calls run on worker threads and are abandoned at the deadline.
4. Failures are raised as the errors of :mod:`metaclient.errors`. ``OSError`` and ``TimeoutError`` are translated;
   any other exception becomes a :class:`~metaclient.errors.BackendFault`.
5. ``close()`` makes every call in progress end soon, with :class:`~metaclient.errors.ConnectionClosed`.

``place`` is the :class:`~metaclient.model.RegionLocation` of the call. A gateway (``addressing=GATEWAY``) finds the
region itself: it gets ``None`` for the primary, and otherwise uses only ``place.region.replica_id``.

It has more than 600 lines because the whole SPI, with what backends may have beyond it, is in one place.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from metaclient.cluster_status import ClusterStatus, ServerCheck
from metaclient.config.tokens import Token
from metaclient.errors import MetaClientError
from metaclient.model import (
    Append,
    Check,
    Delete,
    Durability,
    Get,
    Identity,
    Increment,
    MetaReplica,
    Mutation,
    Put,
    PutCells,
    RegionLocation,
    Result,
    RowMutations,
    Scan,
    ServerName,
    TableDescriptor,
)
from metaclient.replication_peers import Peer, PeerConfig, PeerState, ReplicationStatus
from metaclient.runtime import Pending, Runtime
from metaclient.table_schema import TableChange

if TYPE_CHECKING:
    import pyarrow

    from metaclient.wire.exposure import ListenerProtection
    from metaclient.wire.rpc.receiving import Receiver
    from metaclient.wire.rpc.replication import ShippedEntry

__all__ = [
    "Action",
    "Addressing",
    "Answer",
    "Backend",
    "BackendFactory",
    "BatchSemantics",
    "BulkLoadBackend",
    "BulkLoads",
    "Capabilities",
    "CellBackend",
    "CellPage",
    "ChangeBackend",
    "ChangeHost",
    "ChangeWorker",
    "ClusterObservation",
    "Direct",
    "DirectBackend",
    "HappybaseBackend",
    "IdentityAdmin",
    "IdentityBackend",
    "MetaPage",
    "MetaRow",
    "MetaScan",
    "ObservableBackend",
    "Outcome",
    "PutPage",
    "PutPageBackend",
    "ReplicatingBackend",
    "ReplicationAdmin",
    "ReplicationSinks",
    "ScanPage",
    "SchemaBackend",
    "VersionedBackend",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
#: Blocking backends return the value, pipelined ones a Pending.
Answer: TypeAlias = T | Pending[T]


class Addressing(enum.Enum):
    """The component that finds the server of a region."""

    SERVER = "server"  # metaclient: every data call goes to the location that the locator found
    GATEWAY = "gateway"  # the gateway: a STRONG call must not cost a meta lookup of the client


class BatchSemantics(enum.Enum):
    """The outcomes that the client gets for a batch with failures."""

    PER_ROW = "per_row"  # an outcome per action
    ALL_OR_ERROR = "all_or_error"  # one error, and any of the actions may have been applied


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The features of a backend; the client refuses others with a clear error."""

    addressing: Addressing = Addressing.SERVER
    meta_replicas: bool = True  # read_meta can be pointed at a meta replica
    region_replicas: bool = True  # reads can be pointed at a region replica, and are marked stale
    batch: BatchSemantics = BatchSemantics.PER_ROW
    honours_deadline: bool = True
    is_pipelined: bool = False  # calls do not block: they return a Pending; many are in flight on one connection
    is_remote: bool = False  # calls leave this process: the client can work while a server does
    can_cancel: bool = False  # Pending.cancel() really cancels the call
    retries_inside_s: float = 0.0  # the longest time of one call because of a gateway's own retries
    check_and_mutate: bool = True
    row_mutations: bool = True
    append: bool = True
    reversed_scan: bool = True
    filters: bool = True
    create_with_splits: bool = True
    region_replication: bool = True  # create_table can set it
    family_scopes: bool = True  # create_table can set the replication scope of a family, describe_table returns it
    cell_ttl: bool = False  # Put.ttl_ms is honoured
    nonces: bool = False  # a server applies an Increment or Append with a nonce at most once
    direct: bool = False  # a DirectBackend, too: a caller that only waits makes the call in its own thread
    cell_pages: bool = False  # a CellBackend, too: scans can be read as cells in Arrow
    put_pages: bool = False  # a PutPageBackend, too: puts can be given in Arrow
    replica_lag: bool = False  # results and pages of secondaries have ``lag_s``, measured before the read
    schema: bool = False  # a SchemaBackend, too: tables can be altered and truncated, namespaces listed and changed
    replication: bool = False  # a ReplicatingBackend, too: the peers of the cluster can be listed and changed
    bulk_load: bool = False  # a BulkLoadBackend, too: store files can be handed over to regions


@dataclass(frozen=True, slots=True)
class MetaScan:
    """One page of hbase:meta, in meta's own order of rows (``keys.meta_sort_key``), both ends inclusive.

    ``limit`` is the largest number of rows. A page is read with one call, so that a lookup costs one RPC.
    """

    start_row: bytes
    stop_row: bytes
    is_reversed: bool
    limit: int
    families: tuple[bytes, ...] = (b"info",)


@dataclass(frozen=True, slots=True)
class MetaRow:
    """A row of hbase:meta, not yet parsed: column -> newest value."""

    row: bytes
    columns: Mapping[bytes, bytes]


@dataclass(frozen=True, slots=True)
class MetaPage:
    """Rows in the order of the scan; ``is_stale`` as the serving region marked them, ``lag_s`` as in ``Row``."""

    rows: tuple[MetaRow, ...]
    is_stale: bool = False
    lag_s: float | None = None


@dataclass(frozen=True, slots=True)
class ScanPage:
    """A page of a scan.

    ``scanner`` is the handle for the next page, or None when the server has closed it. ``is_end_of_region``: this
    region (or, behind a gateway, the whole range) has no more rows for the scan. If ``scanner`` is None and
    ``is_end_of_region`` is False, the scanner was lost: the client reopens it after the last row. ``is_end_of_scan``: a
    filter has ended the whole scan. ``lag_s`` is as in ``Row``, and also bounds the age of an empty page.
    """

    rows: Sequence[Result]
    scanner: object | None
    is_end_of_region: bool
    is_stale: bool = False
    is_end_of_scan: bool = False
    lag_s: float | None = None


@dataclass(frozen=True, slots=True)
class CellPage:
    """A page of a scan as cells in Arrow, without an object per cell or row. The other fields are as in ``ScanPage``.

    ``cells`` has the columns ``row``, ``family``, ``qualifier`` (binary), ``timestamp`` (int64, milliseconds),
    ``type`` (uint8, the codes of :class:`~metaclient.model.CellType`) and ``value`` (binary), none of them null, sorted
    as HBase sorts cells. ``rows`` is the number of rows. The rows are complete, and not more than the rest of the
    scan's limit. ``first_row`` and ``last_row`` are the first and the last row (b"" if there are no rows).
    """

    cells: pyarrow.RecordBatch
    rows: int
    first_row: bytes
    last_row: bytes
    scanner: object | None
    is_end_of_region: bool
    is_stale: bool = False
    is_end_of_scan: bool = False
    lag_s: float | None = None


@dataclass(frozen=True, slots=True)
class PutPage:
    """Puts of the same columns, in Arrow, without an object per cell or row.

    All arrays are equally long. ``rows`` and the ``values`` of each of the ``columns`` are of type large_binary,
    ``timestamps`` are int64, one for all cells of a row. A row has no cell where a value is null, and has at least one.
    """

    rows: pyarrow.LargeBinaryArray
    timestamps: pyarrow.Int64Array
    columns: tuple[bytes, ...]
    values: tuple[pyarrow.LargeBinaryArray, ...]
    durability: Durability = Durability.USE_DEFAULT
    ttl_ms: int | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def changed(self, change: Callable[[pyarrow.Array], pyarrow.Array]) -> PutPage:
        """Return the page with the result of ``change`` for each array."""
        values = tuple(change(one) for one in self.values)
        return replace(self, rows=change(self.rows), timestamps=change(self.timestamps), values=values)

    def part(self, begin: int, end: int) -> PutPage:
        """Return the rows from ``begin`` to ``end`` (exclusive), without copying them."""
        return self.changed(lambda array: array.slice(begin, end - begin))

    def puts(self) -> list[Put]:
        """Return the rows as a list of puts."""
        made: list[Put] = []
        stamps: tuple[int, ...] = ()
        cells = zip(*(one.to_pylist() for one in self.values), strict=True)
        for row, stamp, values in zip(self.rows.to_pylist(), self.timestamps.to_pylist(), cells, strict=True):
            if stamps[:1] != (stamp,):
                stamps = (stamp,) * len(self.columns)
            there = PutCells(self.columns, stamps, values)
            if None in values:
                pairs = [(name, value) for name, value in zip(self.columns, values, strict=True) if value is not None]
                names, some = zip(*pairs, strict=True)
                there = PutCells(names, stamps[: len(names)], some)
            made.append(Put(row, there, self.durability, self.ttl_ms))
        return made


@dataclass(frozen=True, slots=True)
class Action:
    """One operation of a batch and its place (None behind a gateway)."""

    place: RegionLocation | None
    operation: Get | Put | Delete | Increment | Append | RowMutations


#: The outcome of one action: a Result (reads, increments, appends), None (other writes), or the error.
Outcome: TypeAlias = Result | MetaClientError | None


@runtime_checkable
class Backend(Protocol):
    """The interface between ``metaclient`` and a cluster. See the module's docstring for the rules."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    def open(self, deadline: float) -> None: ...

    def close(self) -> None: ...

    # -- hbase:meta ----------------------------------------------------------------------------------------

    def meta_replicas(self, deadline: float) -> Answer[Sequence[MetaReplica]]:
        """Read the meta replicas from the registry; the primary (id 0) is always one of them."""
        ...

    def read_meta(self, replica: MetaReplica, scan: MetaScan, deadline: float) -> Answer[MetaPage]:
        """Read one page of hbase:meta at this replica only."""
        ...

    # -- data ----------------------------------------------------------------------------------------------

    def get(self, place: RegionLocation | None, table: bytes, get: Get, deadline: float) -> Answer[Result]: ...

    def mutate(
        self, place: RegionLocation | None, table: bytes, mutation: Mutation, deadline: float
    ) -> Answer[Result | None]:
        """Apply one mutation; return the new cells of an Increment or Append."""
        ...

    def check_and_mutate(
        self, place: RegionLocation | None, table: bytes, check: Check, mutation: Mutation, deadline: float
    ) -> Answer[bool]:
        """Apply the mutation if the check holds, atomically; return True if it was applied."""
        ...

    def batch(
        self, server: ServerName | None, table: bytes, actions: Sequence[Action], deadline: float
    ) -> Answer[Sequence[Outcome]]:
        """Run many actions of one table on one server; return an outcome per action, in the same order.

        Gets may run in any order with the writes. With ``ALL_OR_ERROR`` a failure is raised instead. A read of many
        rows may pass :class:`~metaclient.many_gets.GetActions`; :class:`~metaclient.many_gets.FoundRows` may answer it.
        """
        ...

    def scan_open(self, place: RegionLocation | None, table: bytes, scan: Scan, deadline: float) -> Answer[ScanPage]:
        """Open a scanner on one region (the whole range behind a gateway) and return its first page."""
        ...

    def scan_next(self, scanner: object, rows: int, deadline: float) -> Answer[ScanPage]:
        """Return the next page of at most ``rows`` rows; never called concurrently, never repeated after an error."""
        ...

    def scan_close(self, scanner: object, deadline: float) -> None: ...

    # -- admin ---------------------------------------------------------------------------------------------

    def table_names(self, deadline: float) -> Sequence[bytes]: ...

    def describe_table(self, table: bytes, deadline: float) -> TableDescriptor: ...

    def create_table(self, descriptor: TableDescriptor, splits: Sequence[bytes], deadline: float) -> None: ...

    def delete_table(self, table: bytes, deadline: float) -> None: ...

    def enable_table(self, table: bytes, deadline: float) -> None: ...

    def disable_table(self, table: bytes, deadline: float) -> None: ...

    def is_table_enabled(self, table: bytes, deadline: float) -> bool: ...

    def compact_table(self, table: bytes, major: bool, deadline: float) -> None: ...


@runtime_checkable
class CellBackend(Protocol):
    """The additional calls of a backend with ``Capabilities.cell_pages``, for readers of many rows such as Spark.

    The rules of :class:`Backend` hold. The scans go forward and have no ``batch``; a scanner that was opened here is
    read by ``scan_next_cells`` and closed by ``scan_close``. Only these calls need numpy and pyarrow.
    """

    def scan_open_cells(
        self, place: RegionLocation | None, table: bytes, scan: Scan, deadline: float
    ) -> Answer[CellPage]:
        """Open a scanner and return its first page, as ``scan_open`` does."""
        ...

    def scan_next_cells(self, scanner: object, rows: int, deadline: float) -> Answer[CellPage]:
        """Return the next page, as ``scan_next`` does."""
        ...


@runtime_checkable
class PutPageBackend(Protocol):
    """The additional call of a backend with ``Capabilities.put_pages``, for writers of many rows such as Spark.

    The rules of :class:`Backend` hold. Only this call needs numpy and pyarrow.
    """

    def put_page(
        self,
        server: ServerName | None,
        table: bytes,
        page: PutPage,
        places: Sequence[tuple[RegionLocation | None, int]],
        deadline: float,
    ) -> Answer[None]:
        """Write a page at one server; each location has the number of its rows, in their order.

        An error may leave some rows written and others not.
        """
        ...


class BulkLoads(Protocol):
    """The calls of a bulk load. The rules of :class:`Backend` hold."""

    def prepare(self, place: RegionLocation, table: bytes, deadline: float) -> Answer[str]:
        """Return the token of a new load: a folder, in which servers keep its files until they are loaded."""
        ...

    def load(
        self, place: RegionLocation, files: Sequence[tuple[bytes, str]], token: str, deadline: float
    ) -> Answer[bool]:
        """Add files (family, url) to a region, all or none. False if the region did not take them, as after a split."""
        ...

    def clean_up(self, place: RegionLocation, token: str, deadline: float) -> Answer[None]:
        """Delete the folder of a load."""
        ...


@runtime_checkable
class BulkLoadBackend(Protocol):
    """The additional part of a backend with ``Capabilities.bulk_load``."""

    @property
    def bulk_loads(self) -> BulkLoads: ...


@runtime_checkable
class SchemaBackend(Protocol):
    """The additional calls of a backend with ``Capabilities.schema``. The rules of :class:`Backend` hold.

    A change returns when the cluster has made it; RequestRefused has HBase's text.
    """

    def alter_table(self, table: bytes, change: TableChange, deadline: float) -> None:
        """Change a table. Settings that the change does not name stay, also those that the client does not know."""
        ...

    def truncate_table(self, table: bytes, preserve_splits: bool, deadline: float) -> None:
        """Delete all rows of a disabled table, and enable it."""
        ...

    def namespaces(self, deadline: float) -> Sequence[str]: ...

    def create_namespace(self, name: str, deadline: float) -> None: ...

    def delete_namespace(self, name: str, deadline: float) -> None: ...


class Direct(Protocol):
    """Calls of :class:`Backend` that may block, in the caller's thread and until the deadline at most."""

    def read_meta(self, replica: MetaReplica, scan: MetaScan, deadline: float) -> Answer[MetaPage]: ...

    def get(self, place: RegionLocation | None, table: bytes, get: Get, deadline: float) -> Answer[Result]: ...

    def get_until(
        self, place: RegionLocation | None, table: bytes, get: Get, deadline: float, until: float
    ) -> Answer[Result]:
        """Read a row; block until the instant ``until`` at most, and then return the call in flight as a Pending.

        For TIMELINE reads: another replica is called when the first has not answered at that instant.
        """
        ...

    def mutate(
        self, place: RegionLocation | None, table: bytes, mutation: Mutation, deadline: float
    ) -> Answer[Result | None]: ...


@runtime_checkable
class DirectBackend(Protocol):
    """The additional attribute of a pipelined backend with ``Capabilities.direct``, for callers that wait for one call.

    A direct call creates no ``Pending`` (which could be awaited, cancelled or passed to another thread), and so saves
    most of the cost of a call.
    """

    direct: Direct


class SentPage(Protocol[T_co]):
    """A page that has been requested. ``drop`` gives it up and has no effect after ``read``."""

    def read(self) -> T_co:
        """Wait for the page, until the deadline of its request."""
        ...

    def drop(self) -> None: ...


@runtime_checkable
class SendingBackend(Protocol):
    """Additional methods of a backend whose calls block: request the next page of a scanner without waiting for it.

    A worker thread that makes the whole call sends the request too late: it waits for Python's global lock, until the
    caller has used the page before. The methods return None if the request cannot be sent at once; no call was made.
    """

    def send_next(self, scanner: object, rows: int, deadline: float) -> SentPage[ScanPage] | None: ...

    def send_next_cells(self, scanner: object, rows: int, deadline: float) -> SentPage[CellPage] | None: ...


class AwaitedAnswer(Protocol[T_co]):
    """A call in flight that a task of an event loop awaits, until it is answered, has failed or is at its deadline."""

    def __await__(self) -> Generator[Any, None, None]: ...

    def decode(self) -> bool:
        """Decode the answer of a call that has ended; return False if it has none, or a wrong one, or failed."""
        ...

    def value(self) -> T_co:
        """Return the decoded answer, or raise the error of the call."""
        ...

    def forget(self) -> None:
        """Drop the answer when it arrives, because the task was cancelled."""
        ...


@runtime_checkable
class StartingBackend(Protocol):
    """The additional method of a pipelined backend for tasks of an event loop that await a call without a greenlet."""

    def start_get(self, place: RegionLocation, table: bytes, get: Get, deadline: float) -> AwaitedAnswer[Result] | None:
        """Start to read a row; None, without any effect, if that would have to wait (there is no connection yet)."""
        ...


class ReplicationAdmin(Protocol):
    """The administration of a cluster's replication peers. The rules of :class:`Backend` hold.

    A change returns when every live server has it. A change that the cluster refuses raises
    :class:`~metaclient.errors.RequestRefused` with HBase's text.
    """

    def add_peer(self, peer_id: str, config: PeerConfig, state: PeerState, deadline: float) -> None: ...

    def remove_peer(self, peer_id: str, deadline: float) -> None: ...

    def set_peer_state(self, peer_id: str, state: PeerState, deadline: float) -> None: ...

    def update_peer(self, peer_id: str, config: PeerConfig, deadline: float) -> None:
        """Replace the configuration of a peer, except ``configuration``, to which the given entries are added."""
        ...

    def peers(self, pattern: str | None, deadline: float) -> Sequence[Peer]:
        """Return the peers whose whole id matches a regular expression (None: all), sorted by id."""
        ...

    def peer(self, peer_id: str, deadline: float) -> Peer:
        """Return one peer; RequestRefused if there is none of this id."""
        ...

    def replication_status(self, deadline: float) -> Sequence[ReplicationStatus]:
        """Return the sources and the sink of each live server."""
        ...


@runtime_checkable
class ReplicationSinks(Protocol):
    """The further calls of a ``replication_admin`` whose cluster can be the peer of another cluster."""

    def cluster_id(self, deadline: float) -> str | None:
        """Return the id of the cluster; None if it has none yet."""
        ...

    def live_servers(self, deadline: float) -> Sequence[ServerName]:
        """Return the live region servers. May be called for each batch of entries."""
        ...

    def replicate(self, server: ServerName, entries: Sequence[ShippedEntry], deadline: float) -> None:
        """Ship log entries to a region server, which applies them to its cluster.

        Any server takes the entries of any region. After an error, some of them may have been applied; it is safe to
        ship them again, because their cells have timestamps.
        """
        ...


@runtime_checkable
class ReplicatingBackend(Protocol):
    """The additional attribute of a backend with ``Capabilities.replication``."""

    @property
    def replication_admin(self) -> ReplicationAdmin: ...


@runtime_checkable
class HappybaseBackend(Protocol):
    """The additional methods of a backend that stands for happybase: its errors, and its bare Thrift calls."""

    def adapt_error(self, error: MetaClientError) -> None:
        """Make the error an instance of the class that happybase raises, too."""

    def thrift_client(self, timeout_s: float) -> object:
        """Return an object with the methods of the Thrift service, each of which makes a call."""


class IdentityAdmin(Protocol):
    """The calls that concern the user of a connection."""

    def whoami(self, deadline: float) -> Identity:
        """Return the user that the cluster takes the client for."""
        ...

    def delegation_token(self, deadline: float) -> Token:
        """Fetch a new delegation token of that user."""
        ...


@runtime_checkable
class IdentityBackend(Protocol):
    """The additional attribute of a backend whose connections have a user."""

    @property
    def identity(self) -> IdentityAdmin: ...


@runtime_checkable
class VersionedBackend(Protocol):
    """The additional call of a backend whose cluster reports the version of HBase."""

    def hbase_version(self, deadline: float) -> str:
        """Return the version of the active master, such as ``2.6.1``."""
        ...


class ChangeWorker(Protocol):
    """A process that takes log entries of a cluster for one subscription, until it is closed."""

    @property
    def address(self) -> str:
        """``host:port`` as it is published."""
        ...

    def stats(self) -> Mapping[str, int]:
        """Return at least ``clients`` (connected sources) and ``accepted`` (all connections so far)."""
        ...

    def close(self) -> None:
        """Leave the subscription: calls without an answer are sent to other workers. Idempotent."""
        ...


class ChangeHost(Protocol):
    """Makes this process a replication peer of the cluster. The rules of :class:`Backend` hold.

    A subscription has the name of its peer. Its permanent nodes hold the cluster id of the peer; each worker adds its
    address, which goes when the worker does.
    """

    def cluster_key(self, peer_id: str) -> str:
        """Return the cluster key of the subscription's peer."""
        ...

    def prepare(self, peer_id: str, cluster_id: str, deadline: float) -> bool:
        """Create the permanent nodes; return False if they are there. RequestRefused if they have another id."""
        ...

    def withdraw(self, peer_id: str, deadline: float) -> None:
        """Remove the permanent nodes, if they are there."""
        ...

    def workers(self, peer_id: str, deadline: float) -> Sequence[str]:
        """Return the addresses of the workers of a subscription."""
        ...

    def join(
        self,
        peer_id: str,
        cluster_id: str,
        receiver: Receiver,
        deadline: float,
        *,
        host: str | None = None,
        port: int = 0,
        bind: str | None = None,
        protection: ListenerProtection | None = None,
    ) -> ChangeWorker:
        """Listen for the calls of sources, and publish the address. ``host`` is published, ``bind`` is listened at.

        ConfigError if other machines could connect and ``protection`` (None: nothing) does not cover that.
        """
        ...

    def server_time_ms(self, deadline: float) -> int:
        """Return a time that no region server's clock has yet to reach."""
        ...

    def set_pushed_id(self, region: str, peer_id: str, sequence_id: int, deadline: float) -> None:
        """Store that a serial peer has got all edits of a region up to this one: the repair of a stuck region."""
        ...

    def pushed_id(self, region: str, peer_id: str, deadline: float) -> int | None:
        """Return the last edit of a region that a serial peer has got; None if it is not known."""
        ...

    def queue_positions(self, peer_id: str, deadline: float) -> Mapping[str, int]:
        """Return the stored position of each log that is queued for a peer, by ``queue/log``."""
        ...


@runtime_checkable
class ChangeBackend(Protocol):
    """The additional attribute of a backend whose cluster can ship its log to this process."""

    @property
    def change_host(self) -> ChangeHost:
        """Raise Unsupported if this connection cannot, with the reason."""
        ...


class ClusterObservation(Protocol):
    """The calls that show the state of a cluster's servers. The rules of :class:`Backend` hold."""

    def cluster_status(self, deadline: float) -> ClusterStatus:
        """Return the servers and their loads, as of their last reports to the master."""
        ...

    def check_servers(self, servers: Sequence[ServerName], deadline: float) -> Mapping[ServerName, ServerCheck]:
        """Send a small call to each server, all at once; return the outcomes. An error as an answer is an answer."""
        ...


@runtime_checkable
class ObservableBackend(Protocol):
    """The additional attribute of a backend that reaches the master and each region server."""

    @property
    def observation(self) -> ClusterObservation: ...


class BackendFactory(Protocol):
    """The function that an entry point of the group ``metaclient.backends`` names: it makes a backend for a url.

    ``properties`` are HBase's own (hbase-site.xml), for settings of the backend alone. A factory raises
    :class:`~metaclient.errors.ConfigError` for a url that it cannot parse. A factory that has a further parameter
    ``config`` gets the whole :class:`~metaclient.config.Config`, for the options of identity and TLS; for other
    factories these options are refused.
    """

    def __call__(self, url: str, *, runtime: Runtime, properties: Mapping[str, str]) -> Backend: ...
