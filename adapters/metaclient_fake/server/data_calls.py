"""Decides what a region server answers to clients: gets, writes, batches, scans, and reads of hbase:meta.

Mirrors the client methods of RSRpcServices (3.x). They are called through :class:`metaclient_fake.network.call.Call`,
or directly by the backend when no partition, delay or queue is in the way.

DIVERGENCE: a region over its flush size is flushed by the writer that crossed the limit, not by a flusher thread.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from metaclient import keys
from metaclient.backend import Action, MetaPage, MetaScan, Outcome, ScanPage
from metaclient.errors import RequestRefused, ServerStopped, WrongRegion
from metaclient.model import Append, Check, Delete, Get, Increment, Mutation, Put, Result, Scan
from metaclient.runtime import Runtime
from metaclient_fake.server.multi import run_batch
from metaclient_fake.server.nonces import Nonces
from metaclient_fake.server.peers import Peers
from metaclient_fake.server.scanners import ScannerHandle, Scanners
from metaclient_fake.storage.meta_index import Tear, TornScanner
from metaclient_fake.storage.stand_ins import ClosingRegion, EmptyRegion, Hosted

if TYPE_CHECKING:
    from metaclient_fake.server.region_server import RegionServer

__all__ = ["DataCalls"]

_WITH_NONCE = (Increment, Append)
_SANITY = "org.apache.hadoop.hbase.exceptions.FailedSanityCheckException"
#: A counter that is further ahead has a timestamp that a client chose; the server does not wait for that.
COUNTER_AHEAD_MS_MAX = 100
_WHOLE = Scan()


class DataCalls:
    """The calls of clients on one region server."""

    def __init__(
        self, server: RegionServer, runtime: Runtime, peers: Peers, scanners: Scanners, nonces: Nonces
    ) -> None:
        self.server = server
        self._runtime = runtime
        self._peers = peers
        self._scanners = scanners
        self._nonces = nonces
        # The server's maps: every call reads them.
        self._online = server.online
        self._regions = server.regions
        self._meta_indexes = server.meta_indexes
        #: Calls and actions by region. Not exact: two threads that count at the same moment may count once.
        self.requests: defaultdict[bytes, int] = defaultdict(int)

    def get(self, region_name: bytes, get: Get) -> Result:
        return self._get(region_name, self._hosted(region_name), get)

    def _get(self, region_name: bytes, hosted: Hosted, get: Get) -> Result:
        if hosted.is_primary:
            return hosted.get(get)
        as_of = self._complete_as_of(region_name, hosted, get.columns)
        result = hosted.get(get)
        return result._replace(lag_s=self.lag_s(as_of))

    def complete_as_of(self, region_name: bytes, families: frozenset[bytes] | None = None) -> float | None:
        """Return an instant: a read that begins after this call has every edit that was acknowledged before it.

        None when no such instant is known. The order matters: first the primary is asked, then this copy whether it is
        the one that the primary means, then the row is read. Edits that arrive in between only make the read newer.
        """
        return self.server.secondaries.complete_as_of(region_name, self._peers.acknowledged(region_name, families))

    def _complete_as_of(self, region_name: bytes, hosted: Hosted, columns: Sequence[bytes]) -> float | None:
        if isinstance(hosted, EmptyRegion):
            return None
        # All families of user tables are pushed.
        is_meta = columns and region_name in self._meta_indexes
        families = frozenset([name.partition(b":")[0] for name in columns]) if is_meta else None
        return self.complete_as_of(region_name, families)

    def lag_s(self, as_of: float | None) -> float | None:
        """Return the age of ``as_of``. Called after the read, so that edits acknowledged during it are covered."""
        return None if as_of is None else self._runtime.now() - as_of

    def mutate(self, region_name: bytes, mutation: Mutation, nonce_group: int = 0) -> Result | None:
        hosted = self._online.get(region_name) or self._hosted(region_name)
        self.requests[region_name] += 1
        index = self._meta_indexes.get(region_name)
        if index is None:
            result = self._mutated(hosted, mutation, nonce_group)
        else:
            with index.changing((mutation.row,)):
                result = self._mutated(hosted, mutation, nonce_group)
        self._flush_if_full(region_name)
        if result is not None and result.cells:
            self._let_clock_catch_up(result)
        return result

    def _mutated(self, hosted: Hosted, mutation: Mutation, nonce_group: int) -> Result | None:
        try:
            if type(mutation) in _WITH_NONCE:
                return self._mutate_once(hosted, mutation, nonce_group)  # type: ignore[arg-type]  # was looked at
            return hosted.mutate(mutation)
        except WrongRegion as error:
            raise _failed_sanity_check(error) from error
        except ServerStopped as error:
            raise self.server.lost_wal(error) from error

    def _mutate_once(self, hosted: Hosted, mutation: Increment | Append, nonce_group: int) -> Result | None:
        if mutation.nonce is None:
            return hosted.mutate(mutation)
        return self._nonces.once(
            (nonce_group, mutation.nonce),
            lambda is_repetition: hosted.mutate(mutation, nonce_group=nonce_group, is_repetition=is_repetition),
        )

    def _let_clock_catch_up(self, result: Result) -> None:
        """Wait until the clock has reached the timestamp of a counter.

        A counter's new value is a millisecond newer than the old one, so it may be ahead of the clock. A real server's
        log takes longer than that. Without the wait, a put that follows would be older than the counter it replaces.
        """
        ahead_ms = max(cell.timestamp for cell in result.cells) - self.server.time_ms()
        if 0 < ahead_ms <= COUNTER_AHEAD_MS_MAX:
            self._runtime.sleep(ahead_ms / 1000)

    def check_and_mutate(self, region_name: bytes, check: Check, mutation: Mutation, nonce_group: int = 0) -> bool:
        if check.row != mutation.row:
            raise RequestRefused(
                f"the check is on row {keys.printable(check.row)}, the mutation on {keys.printable(mutation.row)}"
            )
        hosted = self._hosted(region_name)
        with self._announced(region_name, (mutation.row,)):
            try:
                applied = self._check_once(hosted, check, mutation, nonce_group)
            except WrongRegion as error:
                raise _failed_sanity_check(error) from error
            except ServerStopped as error:
                raise self.server.lost_wal(error) from error
        if applied:
            self._flush_if_full(region_name)
        return applied

    def _check_once(self, hosted: Hosted, check: Check, mutation: Mutation, nonce_group: int) -> bool:
        """Run a check-and-mutate at most once per nonce; a check that fails does not use up the nonce."""
        nonce = mutation.nonce if isinstance(mutation, _WITH_NONCE) else None
        if nonce is None:
            return hosted.check_and_mutate(check, mutation)
        return self._nonces.once(
            (nonce_group, nonce),
            lambda is_repetition: hosted.check_and_mutate(
                check, mutation, nonce_group=nonce_group, is_repetition=is_repetition
            ),
            is_applied=bool,
        )

    def batch(self, actions: Sequence[Action], nonce_group: int = 0) -> list[Outcome]:
        """Run a multi request; return an outcome per action."""
        mutate = partial(self.mutate, nonce_group=nonce_group) if nonce_group else self.mutate
        return run_batch(actions, find=self._hosted, get=self._get, mutate=mutate, apply=self._apply)

    def _apply(self, region_name: bytes, hosted: Hosted, mutations: Sequence[Put | Delete]) -> list[Outcome]:
        with self._announced(region_name, [mutation.row for mutation in mutations]):
            outcomes = hosted.batch(mutations)
        self._flush_if_full(region_name)
        return [self._as_seen_by_client(outcome) for outcome in outcomes]

    def _as_seen_by_client(self, outcome: Outcome) -> Outcome:
        """Translate an error of the storage to the error that HBase returns."""
        if isinstance(outcome, ServerStopped):
            return self.server.lost_wal(outcome)
        return _failed_sanity_check(outcome) if isinstance(outcome, WrongRegion) else outcome

    def _hosted(self, region_name: bytes) -> Hosted:
        hosted = self._online.get(region_name)
        if hosted is None:
            raise self.server.assignments.unavailable(region_name)
        self.requests[region_name] += 1
        return hosted

    def requests_by_region(self) -> dict[bytes, int]:
        """Return the number of calls and actions of each region that is online; forget the others."""
        for gone in [name for name in list(self.requests) if name not in self._online]:
            self.requests.pop(gone, None)
        return dict(self.requests)

    def _announced(self, region_name: bytes, rows: Sequence[bytes]) -> AbstractContextManager[None]:
        """Announce a change to the index over the region, if it is a copy of hbase:meta."""
        index = self._meta_indexes.get(region_name)
        return nullcontext() if index is None else index.changing(rows)

    def _flush_if_full(self, region_name: bytes) -> None:
        region = self._regions.get(region_name)
        if region is not None and region.memstore_bytes > region.flush_bytes:
            self.server.flusher.flush_region(region)

    # -- scans -------------------------------------------------------------------------------------------------

    def scan_open(self, region_name: bytes, scan: Scan) -> ScanPage:
        hosted = self._hosted(region_name)
        is_stale = not hosted.is_primary
        # A scanner returns the data of the moment at which it was opened, however late its pages are read.
        as_of = self._complete_as_of(region_name, hosted, scan.columns) if is_stale else None
        index = self._meta_indexes.get(region_name)
        if index is None:
            return self._scanners.open(hosted.scanner(scan), region_name, scan, is_stale, as_of)
        self._count_meta_page(region_name)
        if index.is_torn:
            torn = TornScanner(hosted.scanner(scan), index, scan)
            return self._scanners.open(torn, region_name, scan, is_stale, None)
        return self._scanners.open(hosted.scanner(scan), region_name, scan, is_stale, as_of)

    def scan_next(self, handle: ScannerHandle, rows: int) -> ScanPage:
        self.requests[handle.region_name] += 1
        if handle.region_name in self._meta_indexes:
            self._count_meta_page(handle.region_name)
        return self._scanners.next(handle, rows, self.server.assignments.is_serving)

    def scan_renew(self, handle: ScannerHandle) -> ScannerHandle:
        return self._scanners.renew(handle, self.server.assignments.is_serving)

    def scan_close(self, handle: ScannerHandle) -> None:
        self._scanners.close(handle)

    def _count_meta_page(self, region_name: bytes) -> None:
        """Count a page of a scan of hbase:meta as a lookup, because other clients look regions up by such scans."""
        region = self._regions.get(region_name)
        if region is not None:
            self._peers.count_meta_read(region.info.replica_id)

    # -- hbase:meta --------------------------------------------------------------------------------------------

    def read_meta(self, replica_id: int, scan: MetaScan) -> MetaPage:
        name = keys.meta_region_name(replica_id)
        hosted = self._hosted(name)
        self._peers.count_meta_read(replica_id)
        is_stale = replica_id > 0
        if isinstance(hosted, ClosingRegion | EmptyRegion):
            hosted.scanner(_WHOLE)
            return MetaPage((), is_stale)
        self._regions[name].check_readable()
        index = self._meta_indexes[name]
        as_of = self.complete_as_of(name, frozenset(scan.families) or None) if is_stale else None
        was_torn = index.is_torn
        rows = index.page(scan)
        return MetaPage(rows, is_stale, None if was_torn or index.is_torn else self.lag_s(as_of))

    def get_meta(self, replica_id: int, get: Get) -> Result:
        """Return one row of hbase:meta with versions and timestamps; it counts as a lookup."""
        self._peers.count_meta_read(replica_id)
        return self.get(keys.meta_region_name(replica_id), get)

    def tear_meta(self, replica_id: int, tear: Tear) -> None:
        index = self._meta_indexes.get(keys.meta_region_name(replica_id))
        if index is not None:
            index.tear(tear)


def _failed_sanity_check(error: WrongRegion) -> RequestRefused:
    """Return the error for a write to a row outside of the region: HBase 2.6.1 refuses it for good."""
    return RequestRefused(str(error), detail=_SANITY)
