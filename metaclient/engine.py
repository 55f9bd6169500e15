"""The internal interface of a connection: the calls that tables, batches, Spark, gateways and benchmarks make.

A connection owns one engine. The engine creates the parts (telemetry, executor, retries, reader of hbase:meta, locator,
operations) and offers them as calls on bytes and values of the model. Names are complete (no table prefix) and
arguments are checked by the caller. An engine may change in any release: users call :class:`metaclient.Connection`
and :class:`metaclient.Table`.

``tests/architecture/test_private_names.py`` checks that other packages use no private names of these objects.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from metaclient import keys
from metaclient.attempts import ReadGuard
from metaclient.attempts.executor import Executor
from metaclient.attempts.retry import Retrier
from metaclient.backend import Backend, Capabilities, HappybaseBackend, Outcome, PutPage
from metaclient.calls import multi, put_pages
from metaclient.calls.operations import Operation, Operations, Placed
from metaclient.calls.region_walk import ScanGuard
from metaclient.calls.started import start_get
from metaclient.config import Config
from metaclient.errors import ConnectionClosed, LocationUnknown, MetaClientError
from metaclient.lookup.location_export import decode_locations, export_locations
from metaclient.lookup.locator import Locator
from metaclient.lookup.region_listing import RegionListing
from metaclient.meta.reader import MetaReader
from metaclient.model import (
    Consistency,
    Get,
    MetaReplica,
    Put,
    RegionLocation,
    RegionLocations,
    Scan,
    TableDescriptor,
)
from metaclient.runtime import Closing, Runtime
from metaclient.scanner import CellScanner, TableScanner
from metaclient.telemetry import Telemetry

if TYPE_CHECKING:
    from metaclient.calls.bulk_load import Loaded, StoreFileToLoad
    from metaclient.hfile import FileSettings

__all__ = ["Engine", "Life"]

#: A region that splits or merges between two pages of a listing causes a hole in it; the next listing is complete.
LISTINGS_AGAIN = 2
#: Admin calls that change nothing, so that they may be repeated, and have the timeout of one RPC.
ADMIN_READS = frozenset(
    {
        "tables",
        "describe_table",
        "is_table_enabled",
        "namespaces",
        "hbase_version",
        "whoami",
        "delegation_token",
        "list_replication_peers",
        "get_replication_peer",
        "replication_status",
    }
)
_NOTHING: AbstractContextManager[object] = nullcontext()


#: The calls whose errors happybase's users catch by the classes of Thrift.
ADAPTED = (
    "get",
    "get_strong",
    "mutate",
    "check_and_mutate",
    "get_many",
    "admin",
    "create_table",
    "describe",
    "locate",
    "regions",
)


def _leave(error: MetaClientError) -> None:
    """Change nothing."""


def _adapted(call: Callable[..., Any], adapt: Callable[[MetaClientError], None]) -> Callable[..., Any]:
    """Return the call, with adapted errors."""

    @wraps(call)
    def adapted(*args: Any, **options: Any) -> Any:
        try:
            return call(*args, **options)
        except MetaClientError as error:
            adapt(error)
            raise

    return adapted


class Life(enum.Enum):
    """The states of a connection: NEW, then OPEN, then CLOSED; a new connection may be closed, too."""

    NEW = "new"
    OPEN = "open"
    CLOSED = "closed"


_CLOSED = Life.CLOSED


class Engine:
    """The parts of one connection, and the calls that they make together.

    It has more than 30 methods because connections, tables, Spark, gateways and benchmarks share this one interface;
    most methods only pass a call on to a part.
    """

    def __init__(self, backend: Backend, runtime: Runtime, config: Config) -> None:
        self.begin(backend, runtime, config)

    def begin(self, backend: Backend, runtime: Runtime, config: Config) -> None:
        """Make all parts; again when a closed connection is opened, so that its tables can be used again."""
        self.backend = backend
        self.runtime = runtime
        self.config = config
        self.life = Life.NEW
        self.closing = Closing()
        capabilities = backend.capabilities
        self.telemetry = Telemetry(runtime, backend.name)
        self.executor = Executor(runtime, capabilities, abandoned_max=config.abandoned_calls_max)
        self.retrier = Retrier(runtime, config, self.telemetry, inside_s=capabilities.retries_inside_s)
        self.reader = MetaReader(backend, runtime, config, self.executor, self.telemetry)
        self.locator = Locator(backend, runtime, config, self.reader, self.telemetry)
        self.operations = Operations(
            backend,
            runtime,
            config,
            executor=self.executor,
            locator=self.locator,
            retrier=self.retrier,
            telemetry=self.telemetry,
        )
        # Calls for one row. Bound once: a method around each would take a measurable part of a STRONG call.
        self.get = self.operations.get
        self.get_strong = self.operations.get_strong
        self.mutate = self.operations.mutate
        self.check_and_mutate = self.operations.check_and_mutate
        self.start_get = partial(start_get, self.operations)

        self.adapt: Callable[[MetaClientError], None] = _leave
        if isinstance(backend, HappybaseBackend):
            self.adapt = backend.adapt_error
            for name in ADAPTED:
                setattr(self, name, _adapted(getattr(self, name), backend.adapt_error))

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the backend."""
        return self.backend.capabilities

    # -- every call ------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise ConnectionClosed if the connection is closed."""
        if self.life is _CLOSED:
            self.closing.wait()
            raise ConnectionClosed("this connection is closed: open() it, or make a new one")

    def observed(self, operation: str, table: bytes) -> AbstractContextManager[object]:
        """Return the span of an operation that starts now; raise ConnectionClosed if the connection is closed."""
        if self.life is _CLOSED:
            self.check_open()
        return self.telemetry.operation(operation, table) if self.telemetry.is_on else _NOTHING

    def deadline(self) -> float:
        """Return the deadline of an operation that starts now."""
        return self.runtime.now() + self.config.operation_timeout_s

    def meta_deadline(self) -> float:
        """Return the deadline of an explicit read of hbase:meta or the registry that starts now."""
        return self.runtime.now() + self.config.meta_operation_timeout_s

    # -- many rows -------------------------------------------------------------------------------------------

    def get_many(
        self,
        table: bytes,
        gets: Sequence[Get],
        consistency: Consistency,
        replica_id: int | None = None,
        max_staleness_s: float | None = None,
        *,
        guard: ReadGuard | None = None,
    ) -> Sequence[Placed]:
        """Read many rows; return them in the order of the request, or raise the error of the first failed row."""
        return multi.get_many(self.operations, table, gets, consistency, replica_id, max_staleness_s, guard=guard)

    def get_each(
        self, table: bytes, gets: Sequence[Get], replica_id: int, deadline: float
    ) -> list[tuple[Outcome, RegionLocation | None]]:
        """Read rows at one replica id; return an outcome and a location per row."""
        return multi.get_each(self.operations, table, gets, replica_id, deadline)

    def put_each(self, table: bytes, puts: Sequence[Put], deadline: float) -> list[Outcome]:
        """Write rows; return an outcome per row, None for one that was written."""
        return multi.batch(self.operations, table, puts, deadline)

    def learn_lag(self, place: RegionLocation, as_of: float) -> None:
        """Record that every write acknowledged before ``as_of`` is in this replica."""
        self.operations.hedging.staleness.learn(place, as_of)

    def batch(self, table: bytes, actions: Sequence[Operation]) -> list[Outcome]:
        """Run many operations at their primaries; return an outcome per operation."""
        return multi.batch(self.operations, table, actions)

    def put_page(self, table: bytes, page: PutPage) -> dict[bytes, MetaClientError]:
        """Write a page whose rows are sorted; return the rows that could not be written, with their errors."""
        return put_pages.put_page(self.operations, table, page)

    def bulk_load(
        self, table: bytes, files: Sequence[StoreFileToLoad], settings: Mapping[bytes, FileSettings]
    ) -> Loaded:
        """Hand store files over to the table's regions; see :func:`metaclient.calls.bulk_load.load_files`."""
        from metaclient.calls.bulk_load import load_files  # needs numpy and pyarrow

        self.check_open()
        with self.observed("bulk_load", table):
            return load_files(self.operations, table, files, settings)

    def scan_rows(
        self,
        table: bytes,
        scan: Scan,
        consistency: Consistency,
        replica_id: int | None = None,
        max_staleness_s: float | None = None,
        *,
        guard: ScanGuard | None = None,
    ) -> TableScanner:
        """Return an iterator over (result, location); close it, or iterate to its end."""
        return TableScanner(self.operations, table, scan, consistency, replica_id, max_staleness_s, guard=guard)

    def scan_cells(
        self,
        table: bytes,
        scan: Scan,
        consistency: Consistency,
        replica_id: int | None = None,
        max_staleness_s: float | None = None,
        *,
        guard: ScanGuard | None = None,
    ) -> CellScanner:
        """Return an iterator over (page of cells, location), for a backend with ``Capabilities.cell_pages``."""
        return CellScanner(self.operations, table, scan, consistency, replica_id, max_staleness_s, guard=guard)

    # -- locations -------------------------------------------------------------------------------------------

    def locate(self, table: bytes, row: bytes, replica_id: int = 0, *, reload: bool = False) -> RegionLocation:
        """Return the location of a replica of the row's region; read hbase:meta if it is not cached."""
        begun = self.runtime.now()
        deadline = begun + self.config.meta_operation_timeout_s
        attempt = partial(
            self.locator.locate_region, table, row, deadline=deadline, replica_id=replica_id, reload=reload
        )
        with self.observed("locate", table):
            try:
                entry = attempt()
            except MetaClientError as error:
                entry = self.retrier.resume(
                    error,
                    attempt,
                    begun=begun,
                    deadline=deadline,
                    what=lambda: f"locate row {keys.printable(row)!r} of table {keys.printable(table)!r}",
                )
            else:
                self.retrier.budget.on_success()
        location = entry.at(replica_id)
        assert location is not None
        return location

    def locate_region_before(self, table: bytes, row: bytes, deadline: float, *, reload: bool) -> RegionLocations:
        """Return the region before a row, with retries; b"" is the end of the table."""
        return self.operations.retried(
            lambda: self.locator.locate_region(table, row, deadline=deadline, reload=reload, before=True),
            deadline,
            table,
            "locate",
            row,
        )

    def walk_regions(self, table: bytes, deadline: float) -> Iterator[RegionLocations]:
        """Iterate over the regions of a table in the order of keys; cached locations cost no call.

        A region whose primary has no location now is returned as it is cached.
        """
        row = b""
        while True:
            try:
                entry = self.locator.locate_region(table, row, deadline=deadline)
            except MetaClientError as error:
                known = self.locator.cache.cached_region(table, row)
                if known is None or error.ends_connection:
                    raise
                entry = known
            yield entry
            row = entry.region.end_key
            if not row:
                return

    def cached_location(self, table: bytes, row: bytes) -> RegionLocation | None:
        """Return the cached location of the row's primary; None if it is not cached."""
        return self.locator.cache.cached(table, row)

    def regions(
        self,
        table: bytes,
        on_page: Callable[[int], None] | None = None,
        *,
        complete: bool = False,
        at_primary: bool = False,
    ) -> list[RegionLocations]:
        """Read all regions of a table into the cache and return them; see :meth:`metaclient.Connection.regions`.

        ``at_primary``: read the primary of hbase:meta only. For decisions that cannot be corrected later.
        """
        self.check_open()
        deadline = self.meta_deadline()
        with self.observed("regions", table):
            found = self._listing(table, deadline, on_page, at_primary)
            for _ in range(LISTINGS_AGAIN if complete else 0):
                if found.fault is None:
                    break
                self.runtime.sleep(self.config.pause_s)
                found = self._listing(table, deadline, on_page, at_primary)
            if complete and found.fault is not None:
                raise LocationUnknown(found.fault)
        return list(found.regions)

    def _listing(
        self, table: bytes, deadline: float, on_page: Callable[[int], None] | None, at_primary: bool
    ) -> RegionListing:
        return self.retrier.call(
            lambda: self.locator.listing(table, deadline=deadline, on_page=on_page, at_primary=at_primary),
            deadline=deadline,
            what=lambda: f"list the regions of table {keys.printable(table)!r}",
        )

    def export_locations(self, tables: Sequence[bytes]) -> bytes:
        """Return the cached locations of these tables (none: of all) and of hbase:meta's replicas."""
        self.check_open()
        return export_locations(self.locator.cache, tables, self.known_meta_replicas())

    def import_locations(self, data: bytes) -> int:
        """Add exported locations to the cache; return the number of regions."""
        self.check_open()
        tables, replicas = decode_locations(data)
        self.reader.registry.assume(replicas)
        return self.locator.cache.take(tables)

    def known_meta_replicas(self) -> Sequence[MetaReplica]:
        """Return the replicas of hbase:meta that the registry named last, without a call."""
        return self.reader.registry.known()

    def refresh_meta_replicas(self) -> Sequence[MetaReplica]:
        """Ask the registry for the replicas of hbase:meta."""
        self.check_open()
        deadline = self.meta_deadline()
        return self.retrier.call(
            lambda: self.reader.registry.refresh(deadline),
            deadline=deadline,
            what=lambda: "ask the registry for the meta replicas",
        )

    # -- tables ----------------------------------------------------------------------------------------------

    def describe(self, table: bytes) -> TableDescriptor:
        """Return the descriptor of a table; TableNotFound if there is none."""
        found: TableDescriptor = self.admin("describe_table", self.backend.describe_table, table)
        return found

    def create_table(self, descriptor: TableDescriptor, splits: Sequence[bytes]) -> None:
        """Create a table with these regions."""
        self.admin("create_table", self.backend.create_table, descriptor, splits)

    def admin(self, what: str, call: Callable[..., Any], *args: object) -> Any:
        """Make an admin call.

        It is not repeated if it may have been applied: the second attempt would fail with TableExists, for example.
        """
        self.check_open()
        deadline = self.deadline()
        table = next((arg for arg in args if isinstance(arg, bytes)), b"")
        is_write = what not in ADMIN_READS
        # A read has the timeout of one RPC; a change may take the master as long as the whole operation may take.
        timeout_s = self.config.operation_timeout_s if is_write else self.config.rpc_timeout_s

        def attempt() -> Any:
            until = min(deadline, self.runtime.now() + timeout_s)
            return self.executor.call(call, *args, deadline=until, is_write=is_write)

        with self.observed(what, table):
            return self.retrier.call(
                attempt,
                deadline=deadline,
                what=lambda: f"{what} {keys.printable(table)}".rstrip(),
                is_repeatable=not is_write,
            )

    # -- counters --------------------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Return the counters of this connection, ready for ``json.dumps``."""
        total, cache, executor = self.telemetry.total, self.locator.cache, self.executor
        hits, misses = cache.hits_and_misses()
        reads = self.telemetry.by("metaclient.meta.reads", "replica")
        return {
            "meta_mode": self.reader.mode.value,
            "meta": {
                "reads_by_replica": {str(replica): count for replica, count in sorted(reads.items(), key=str)},
                "fallbacks": total("metaclient.meta.fallbacks"),
                "hedges": total("metaclient.meta.hedges"),
                "ejections": total("metaclient.meta.ejections"),
                "refreshes": total("metaclient.meta.refreshes"),
            },
            "lookups": {"flights": total("metaclient.lookups"), "joined": total("metaclient.lookups.joined")},
            "cache": {
                "hits": hits,
                "misses": misses,
                "regions": cache.regions_cached(),
                "evictions": cache.evictions,
                "lost": total("metaclient.locations.lost"),
                "moved": total("metaclient.locations.moved"),
            },
            "hedges": {
                "started": total("metaclient.hedges"),
                "won": total("metaclient.hedges.won"),
                "failovers": total("metaclient.failovers"),
            },
            "retries": self.retries(),
            "calls": {"abandoned": executor.abandoned, "drained": executor.drained, "cancelled": executor.cancelled},
            "runtime": dict(self.runtime.stats()),
        }

    def retries(self) -> int:
        """Return the number of retries so far."""
        return int(self.telemetry.total("metaclient.retries"))
