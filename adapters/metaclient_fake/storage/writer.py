"""Decides how mutations are applied to a region: in which order, under which sequence id, with which outcome.

A write, in order (HRegion.doMiniBatchMutate): checks; a sequence id from MVCC; append to the log; sync; memstore;
MVCC completes, which notifies the replicas and then moves the read point. The region's update lock is held throughout,
so read-modify-write needs no row locks, and a write whose sync fails never reaches the memstore.

DIVERGENCE from HBase: one update lock instead of row locks; nothing under it blocks, as the log is memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING
from uuid import UUID

from metaclient import keys
from metaclient.backend import Outcome
from metaclient.errors import MetaClientError, RequestRefused
from metaclient.model import (
    LATEST_TIMESTAMP,
    Append,
    Cell,
    Check,
    Delete,
    Durability,
    Increment,
    Mutation,
    Put,
    Result,
    RowMutations,
    TableDescriptor,
)
from metaclient_fake.storage.mutations import Edit, Mutations, is_met
from metaclient_fake.storage.packed_lane import PackedLane
from metaclient_fake.storage.packed_row import PackedRow, is_packable, packed
from metaclient_fake.storage.query_matcher import StoreQuery
from metaclient_fake.storage.region_log import RegionLog
from metaclient_fake.storage.store import read_row
from metaclient_fake.storage.wal import LoggedRow, WalEntry

if TYPE_CHECKING:
    from metaclient_fake.storage.region import Region

__all__ = ["Writer"]


class _Held:
    """A lock that does nothing, for calls whose caller already holds the update lock."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass

    def __enter__(self) -> bool:
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


_HELD = _Held()
_INVALID_DURABILITY = "org.apache.hadoop.hbase.regionserver.InvalidMutationDurabilityException"


class Writer:
    """Applies mutations. Guarded by the region's update lock, which every caller holds."""

    def __init__(self, region: Region, mutations: Mutations, log: RegionLog) -> None:
        self._region = region
        self._mutations = mutations
        self._log = log
        self._default_durability = _table_durability(region.descriptor)
        synced = [one for one in Durability if self._resolved(one) in (Durability.SYNC_WAL, Durability.FSYNC_WAL)]
        self._lane = PackedLane(region, mutations.known_columns, log, synced)
        self._refuses_skip_wal = region.config.refuses_skip_wal_of_replicated and bool(log.scopes)
        self._last_ms = 0

    def mutate(
        self, mutation: Mutation, nonce_group: int = 0, is_repetition: bool = False, *, not_before_ms: int = 0
    ) -> Result | None:
        """Apply one mutation; return the new values of an increment or append.

        ``is_repetition``: an increment or append was applied before, and only its current values are read.
        ``not_before_ms``: the minimum timestamp of puts that have none, even if the server's clock is behind it.
        """
        region = self._region
        region.check_writable(mutation.row)
        now_ms = region.time_ms()
        if now_ms == self._last_ms:
            now_ms = self._last_ms  # all cells of one millisecond share one object, which saves 32 bytes per row
        else:
            self._last_ms = now_ms
        put_ms = now_ms if now_ms > not_before_ms else not_before_ms
        if isinstance(mutation, Put):
            ids = mutation.cluster_ids
            if ids or len(mutation.cells) != 1 or not self._lane.put(mutation, now_ms, put_ms):
                self._apply(self._edits(mutation, now_ms, put_ms), mutation.durability, now_ms, cluster_ids=ids)
            return None
        if isinstance(mutation, Delete | RowMutations):
            edits, durability = self._edits(mutation, now_ms, put_ms), self._durability_of(mutation)
            self._apply(edits, durability, now_ms, cluster_ids=_cluster_ids(mutation))
            return None
        if is_repetition:
            return Result(mutation.row, self._current_values(mutation))
        if isinstance(mutation, Increment):
            edits, cells = self._mutations.increment(mutation, now_ms, self._newest)
        else:
            edits, cells = self._mutations.append(mutation, now_ms, self._newest)
        self._check_durability(mutation.durability, edits)
        nonce = None if mutation.nonce is None else (nonce_group, mutation.nonce)
        self._apply(edits, mutation.durability, now_ms, nonce=nonce)
        self._forget_older(edits)
        return Result(mutation.row, tuple(cells))

    def _edits(self, mutation: Put | Delete | RowMutations, now_ms: int, put_ms: int) -> list[Edit]:
        if isinstance(mutation, RowMutations):
            self._mutations.check_rows(mutation)
            return [edit for part in mutation.mutations for edit in self._edits(part, now_ms, put_ms)]
        if isinstance(mutation, Put):
            edits = self._mutations.put(mutation, put_ms)
        else:
            edits = self._mutations.delete(mutation, now_ms, self._newest)
        if mutation.cells:  # HRegion.prepareDelete does not check the families of a delete of the whole row
            self._check_durability(mutation.durability, edits)
        return edits

    def _check_durability(self, durability: Durability, edits: Sequence[Edit]) -> None:
        """Raise RequestRefused for a SKIP_WAL write to a replicated family (HRegion.checkFamily, 3.0.0).

        Only the mutation's own durability counts, not the table's.
        """
        if durability is not Durability.SKIP_WAL or not self._refuses_skip_wal:
            return
        for store, *_ in edits:
            if store.family.replication_scope:
                family = keys.printable(store.name)
                raise RequestRefused(
                    f"Mutation's durability is SKIP_WAL but table's column family {family} need replication",
                    detail=_INVALID_DURABILITY,
                )

    def _durability_of(self, mutation: Delete | RowMutations) -> Durability:
        """Return the strongest durability that a part requests."""
        parts = mutation.mutations if isinstance(mutation, RowMutations) else (mutation,)
        wanted = [self._resolved(part.durability) for part in parts]
        return max(wanted, key=_strength, default=Durability.USE_DEFAULT)

    def _resolved(self, durability: Durability) -> Durability:
        return self._default_durability if durability is Durability.USE_DEFAULT else durability

    def _newest(self, row: bytes, column: bytes, versions: int) -> Sequence[Cell]:
        """Return the current newest cells of a column; the lock is held."""
        store, column = self._mutations.column(column)
        query = StoreQuery.of(
            store.family,
            columns=frozenset((column,)),
            max_versions=versions,
            min_timestamp=0,
            max_timestamp=LATEST_TIMESTAMP,
            is_raw=False,
            has_filter=False,
        )
        return read_row(
            store.sources, row, query, read_point=self._log.mvcc.write_point, now_ms=self._region.time_ms(), lock=_HELD
        )

    def _current_values(self, mutation: Increment | Append) -> tuple[Cell, ...]:
        pairs = mutation.amounts if isinstance(mutation, Increment) else mutation.values
        columns = sorted((column for column, _ in pairs), key=keys.column_sort_key)
        return tuple(cell for column in columns for cell in self._newest(mutation.row, column, 1))

    def _apply(
        self,
        edits: Sequence[Edit],
        durability: Durability,
        now_ms: int,
        unlogged: Sequence[Edit] = (),
        nonce: tuple[int, int] | None = None,
        cluster_ids: tuple[UUID, ...] = (),
    ) -> None:
        """Log and apply edits under one sequence id, and complete it; the lock is held. ``unlogged`` ones skip the log.

        A failure completes the sequence id without data, so that later writes become readable.
        """
        if durability is Durability.USE_DEFAULT:
            durability = self._default_durability
        if durability is Durability.SKIP_WAL:
            edits, unlogged = (), [*edits, *unlogged]
        log = self._log
        hook = log.on_commit
        entry: WalEntry | None = None
        sequence_id = log.mvcc.begin()
        try:
            logged = tuple([_logged(edit, sequence_id) for edit in edits])
            if edits:
                entry = log.entry(sequence_id, logged, now_ms, _bytes_of(edits), nonce, cluster_ids)
                log.append(entry, is_synced=durability is not Durability.ASYNC_WAL)
            if unlogged:
                logged += tuple([_logged(edit, sequence_id) for edit in unlogged])
                edits, entry = [*edits, *unlogged], None
            for (store, row, _, size, is_plain), kept in zip(edits, logged, strict=True):
                if isinstance(kept, PackedRow):
                    store.memstore.active.add_packed(row, kept, sequence_id, size)
                else:
                    store.memstore.active.add(row, kept[1], sequence_id, size, is_plain)
                self._region.memstore_bytes += size
            if entry is None and hook is not None:
                entry = log.entry(sequence_id, logged, now_ms, _bytes_of(edits))
        except BaseException:
            log.mvcc.complete(sequence_id)
            raise
        if hook is None or entry is None:
            log.mvcc.complete(sequence_id)
        else:
            log.mvcc.complete_and_tell(sequence_id, hook, entry, entry.cell_bytes)

    def _forget_older(self, edits: Sequence[Edit]) -> None:
        """Keep one version of each counter in the memstore, as HBase's upsert does for families of one version."""
        smallest = self._region.smallest_read_point()
        for store, row, cells, _, _ in edits:
            if store.family.max_versions == 1:
                for cell in cells:
                    store.memstore.active.forget_older(row, cell.column, smallest)
        self._region.memstore_bytes = sum([store.memstore.size for store in self._region.stores])

    def batch(self, mutations: Sequence[Mutation]) -> list[Outcome]:
        """Return one outcome per mutation. Neighbouring puts and deletes share one sequence id and one sync.

        Unless their cluster ids differ: those belong to a log entry. (DIVERGENCE: HBase gives all mutations of a batch
        the cluster ids of the first one; its sinks send only batches in which they are equal.)
        """
        outcomes: list[Outcome] = [None] * len(mutations)
        index = 0
        while index < len(mutations):
            if isinstance(mutations[index], Put | Delete):
                index = self._mini_batch(mutations, index, outcomes)
            else:
                outcomes[index] = self._outcome(mutations[index])
                index += 1
        return outcomes

    def _outcome(self, mutation: Mutation) -> Outcome:
        try:
            return self.mutate(mutation)
        except MetaClientError as error:
            return error

    def _mini_batch(self, mutations: Sequence[Mutation], start: int, outcomes: list[Outcome]) -> int:
        """Apply the puts and deletes from ``start`` on together; return the index of the next other mutation."""
        now_ms = self._last_ms = self._region.time_ms()
        groups: dict[bool, list[Edit]] = {True: [], False: []}  # True: edits that are written to the log
        applied: list[int] = []
        durability = Durability.SKIP_WAL
        index, cluster_ids = start, _cluster_ids(mutations[start])
        while index < len(mutations):
            mutation = mutations[index]
            if not isinstance(mutation, Put | Delete) or mutation.cluster_ids != cluster_ids:
                break
            wanted = self._resolved(mutation.durability)
            try:
                self._region.check_writable(mutation.row)
                groups[wanted is not Durability.SKIP_WAL] += self._edits(mutation, now_ms, now_ms)
                applied.append(index)
                durability = max(durability, wanted, key=_strength)
            except MetaClientError as error:
                outcomes[index] = error
            index += 1
        try:
            if applied:
                self._apply(groups[True], durability, now_ms, groups[False], cluster_ids=cluster_ids)
        except MetaClientError as error:
            for failed in applied:
                outcomes[failed] = error
        return index

    def check_and_mutate(
        self, check: Check, mutation: Mutation, *, nonce_group: int = 0, is_repetition: bool = False
    ) -> bool:
        """Apply ``mutation`` if the check holds, atomically; return True if it was applied."""
        if check.row != mutation.row:
            raise RequestRefused(
                f"a check of row {keys.printable(check.row)} cannot guard row {keys.printable(mutation.row)}"
            )
        self._region.check_writable(check.row)
        stored = self._newest(check.row, check.column, 1)
        if not is_met(check, stored):
            return False
        # A put that passed its check must not get an older timestamp than the value that was checked (HBASE-14054).
        not_before_ms = stored[0].timestamp if stored else 0
        self.mutate(mutation, nonce_group, is_repetition, not_before_ms=not_before_ms)
        return True


def _logged(edit: Edit, sequence_id: int) -> LoggedRow:
    """Return what the log keeps of an edit: a packed row if the row is new in the memstore, else row and cells."""
    store, row, cells, size, is_plain = edit
    if is_plain and is_packable(cells, size) and row not in store.memstore.active.rows:
        return packed(row, cells, sequence_id)
    return (row, cells)


def _cluster_ids(mutation: Mutation) -> tuple[UUID, ...]:
    """Return the cluster ids of a mutation; those of the first part of RowMutations."""
    if isinstance(mutation, RowMutations):
        return mutation.mutations[0].cluster_ids if mutation.mutations else ()
    return mutation.cluster_ids if isinstance(mutation, Put | Delete) else ()


def _bytes_of(edits: Sequence[Edit]) -> int:
    return edits[0][3] if len(edits) == 1 else sum([edit[3] for edit in edits])


def _strength(durability: Durability) -> int:
    return durability.value


def _table_durability(descriptor: TableDescriptor) -> Durability:
    """Return the table's attribute DURABILITY; SYNC_WAL if it is missing, unknown or USE_DEFAULT."""
    named = dict(descriptor.attributes).get("DURABILITY", "SYNC_WAL").upper()
    found = Durability.__members__.get(named, Durability.SYNC_WAL)
    return Durability.SYNC_WAL if found is Durability.USE_DEFAULT else found
