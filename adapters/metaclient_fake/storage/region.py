"""Stores one replica of one region and decides what may be read from it and written to it (HRegion).

A read takes ``_view`` (all sources of all families, one reference) and then the read point, in this order. Together
they are a consistent snapshot, because a source that was replaced since is no longer written to. Reads take the update
lock only for rows that are being written to; no operation under the lock blocks.

The parts: :mod:`writer` (mutations), :mod:`flush`, :mod:`compaction`, :mod:`bulk_load`, :mod:`replica` (secondaries),
:mod:`region_log` (sequence ids, log, hand-over to replicas).

DIVERGENCE from HBase: a row outside of the region is WrongRegion for reads and writes alike (HBase refuses such a put
for good).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence

from metaclient import keys
from metaclient.backend import Outcome
from metaclient.errors import (
    NotServingRegion,
    ReadsDisabled,
    RegionTooBusy,
    RequestRefused,
    WrongRegion,
)
from metaclient.model import (
    Cell,
    Check,
    Get,
    Mutation,
    RegionInfo,
    Result,
    Scan,
    TableDescriptor,
)
from metaclient.runtime import Runtime
from metaclient_fake.config.storage import StorageConfig
from metaclient_fake.storage.bulk_load import bulk_load
from metaclient_fake.storage.cells import PlainRow, row_of
from metaclient_fake.storage.compaction import Compactor
from metaclient_fake.storage.filesystem import FileSystem, row_order
from metaclient_fake.storage.filters import filtered_row, parse
from metaclient_fake.storage.flush import FlushOutcome, FlushResult, RegionFlusher
from metaclient_fake.storage.mutations import Mutations
from metaclient_fake.storage.packed_row import PackedRow
from metaclient_fake.storage.queries import Queries
from metaclient_fake.storage.query_matcher import StoreQuery
from metaclient_fake.storage.region_log import CommitHook, RegionLog, replication_scopes
from metaclient_fake.storage.replica import Follower
from metaclient_fake.storage.scanner import RegionScanner, RowReader
from metaclient_fake.storage.store import CellSources, Store, read_row
from metaclient_fake.storage.store_file import StoreFile
from metaclient_fake.storage.wal import LoggedEntry, Marker, MarkerKind, Wal, WalEntry, family_of
from metaclient_fake.storage.writer import Writer

__all__ = ["Region", "RegionPhase"]

_WHOLE_ROW = Get(b"")  # the newest version of every column


class RegionPhase(enum.Enum):
    """The states of a region on one server, in the order in which they follow each other."""

    OPEN = "OPEN"
    CLOSING = "CLOSING"
    CLOSED = "CLOSED"


class Region:
    """One replica of a region, open on one server. Made by :meth:`open`.

    It has more than 30 methods because servers and replicas hold this one object. Writes, flushes, compactions, bulk
    loads and replay are forwarded to their own modules, in a line or two.

    Guarded by ``update_lock``: the memstores, MVCC's writes, ``_view``, the flush flag and the state. Read without it:
    ``_view``, ``read_point``, ``state``.
    """

    def __init__(
        self,
        info: RegionInfo,
        descriptor: TableDescriptor,
        filesystem: FileSystem,
        *,
        wal: Wal | None,
        runtime: Runtime,
        config: StorageConfig,
        on_commit: CommitHook | None,
        time_ms: Callable[[], int] | None,
    ) -> None:
        self.info = info
        self.descriptor = descriptor
        self.filesystem = filesystem
        self.runtime = runtime
        self.config = config
        self.is_primary = info.replica_id == 0
        self.row_order = row_order(info.table)
        self.time_ms = time_ms or runtime.time_ms
        self.update_lock = runtime.lock()
        self.state = RegionPhase.OPEN
        self.reads_enabled = True
        self.open_seqnum = -1
        self.memstore_bytes = 0
        self._is_read_only = not self.is_primary or descriptor.is_read_only
        self.flush_bytes = config.flush_bytes
        self._blocking_bytes = config.blocking_bytes
        self._directory = filesystem.region(info)
        self._start_key, self._end_key = info.start_key, info.end_key
        self.log = RegionLog(
            self._directory.region,
            info.table,
            wal=wal,
            on_commit=on_commit,
            time_ms=self.time_ms,
            scopes=replication_scopes(descriptor),
            on_marker=self._marked if config.counts_markers_on_recovery else None,
        )
        # HBase keeps the stores in the order of the families' bytes; results follow it.
        families = sorted(descriptor.families, key=lambda family: family.name)
        self.stores = [Store(family, self._directory, self.row_order) for family in families]
        self._stores_by_name = {store.name: store for store in self.stores}
        self.mutations = Mutations(descriptor, self.stores, config.cell_bytes_max)
        self._queries = Queries(self.stores, self.mutations)
        self._writer = Writer(self, self.mutations, self.log)
        self._flusher = RegionFlusher(self)
        self._compactor = Compactor(self)
        self._follower = Follower(self)
        self._scanners: dict[int, RegionScanner | RowReader] = {}
        self._view: tuple[CellSources, ...] = tuple(store.sources for store in self.stores)

    @classmethod
    def open(
        cls,
        info: RegionInfo,
        descriptor: TableDescriptor,
        filesystem: FileSystem,
        *,
        wal: Wal | None,
        runtime: Runtime,
        config: StorageConfig | None = None,
        recovered: Sequence[WalEntry] = (),
        on_commit: CommitHook | None = None,
        time_ms: Callable[[], int] | None = None,
    ) -> Region:
        """Open a region from its directory.

        The primary replays ``recovered`` (entries of a dead server's log), flushes them, and writes an open marker. A
        secondary has no log and shares the primary's files. ``on_commit`` is called for each data entry and each marker
        that is sent to replicas, in sequence order, under the update lock: it must not block or call back.
        ``time_ms`` replaces the runtime's wall clock (a server with a skewed one).
        """
        region = cls(
            info,
            descriptor,
            filesystem,
            wal=wal if info.replica_id == 0 else None,
            runtime=runtime,
            config=config or StorageConfig(),
            on_commit=on_commit if info.replica_id == 0 else None,
            time_ms=time_ms,
        )
        with region.update_lock:
            region._initialise(recovered if region.is_primary else ())
        return region

    def _initialise(self, recovered: Sequence[WalEntry]) -> None:
        newest = max([store.file_sequence_id for store in self.stores], default=-1)
        newest = max(newest, self._replay_recovered(recovered))
        marked = self._directory.marker_sequence_id if self.is_primary else -1
        next_id = max(newest, self._directory.sequence_id, marked) + 1
        self.log.mvcc.advance_to(next_id)
        self.open_seqnum = next_id
        self._follower.opened(next_id, newest)
        if not self.is_primary:
            return
        self._directory.sequence_id = next_id - 1
        if self.memstore_bytes:
            snapshots = self._flusher.take_snapshots(self.stores)
            self._flusher.swap(self.stores, self._flusher.files_of(self.stores, snapshots, newest))
        self.files_are_complete(self.runtime.now())
        self.log.mark(self._event(MarkerKind.REGION_OPEN, self.open_seqnum))

    def _replay_recovered(self, recovered: Sequence[WalEntry]) -> int:
        """Apply the entries that no file has (per family, as HBase does); return the highest sequence id.

        Markers count by :meth:`_marked`. HBase does not write them to the recovered edits, except for those of
        compactions (AbstractRecoveredEditsOutputSink.keepRegionEvent), so it gives their ids again.
        """
        covered = {store.name: store.file_sequence_id for store in self.stores}
        for entry in sorted(recovered, key=lambda entry: entry.sequence_id):
            self.apply_replayed(entry, covered)
        kept = [one for one in recovered if one.marker is None or one.marker.kind is MarkerKind.COMPACTION]
        return max([entry.sequence_id for entry in kept], default=-1)

    def _marked(self, sequence_id: int) -> None:
        """Store the id of a marker beside the region's files, because its log may be archived before a crash."""
        self._directory.marker_sequence_id = max(self._directory.marker_sequence_id, sequence_id)

    def _event(self, kind: MarkerKind, sequence_id: int) -> Marker:
        """Return a marker that lists all families and files."""
        families = tuple(store.name for store in self.stores)
        return Marker(kind, sequence_id, families, tuple(file.name for store in self.stores for file in store.files))

    # --- state ------------------------------------------------------------------------------------------------------

    @property
    def read_point(self) -> int:
        return self.log.mvcc.read_point

    @property
    def store_file_bytes(self) -> int:
        return sum(file.size for store in self.stores for file in store.files)

    @property
    def store_files(self) -> int:
        return sum(len(store.files) for store in self.stores)

    @property
    def needs_flush(self) -> bool:
        return self.memstore_bytes > self.flush_bytes

    @property
    def is_flushing(self) -> bool:
        return self._flusher.is_running or self._follower.is_flush_prepared

    @property
    def is_open(self) -> bool:
        return self.state is RegionPhase.OPEN

    @property
    def has_references(self) -> bool:
        return self._directory.has_references()

    def check_readable(self) -> None:
        """Raise the error that HBase raises when the region cannot be read now."""
        if self.state is not RegionPhase.OPEN:
            raise NotServingRegion(f"{self} is {self.state.value.lower()}")
        if not self.reads_enabled:
            raise ReadsDisabled(f"{self}: reads are disabled until the primary has flushed")
        if not self.is_primary:
            self._check_files()

    def _check_files(self) -> None:
        """Raise NotServingRegion if a file is deleted, because the replica refreshed too late (HBASE-13651)."""
        if any(file.is_deleted for store in self.stores for file in store.files):
            raise NotServingRegion(f"{self}: a store file is gone from the archive; refresh or reopen")

    def _check_row(self, row: bytes) -> None:
        if not keys.contains(self._start_key, self._end_key, row):
            start, end = keys.printable(self._start_key), keys.printable(self._end_key)
            raise WrongRegion(f"row {keys.printable(row)} is not in [{start}, {end}) of {self}")

    def check_writable(self, row: bytes) -> None:
        """Raise the error that HBase raises when this row cannot be written now."""
        if self.state is not RegionPhase.OPEN:
            raise NotServingRegion(f"{self} is {self.state.value.lower()}")
        if self._is_read_only:
            raise RequestRefused(f"{self}: region is read only")
        if self.memstore_bytes > self._blocking_bytes:
            raise RegionTooBusy(
                f"{self}: the memstore holds {self.memstore_bytes} bytes, more than {self._blocking_bytes}; "
                "it must be flushed first"
            )
        end = self._end_key
        if row < self._start_key or (end and row >= end):
            self._check_row(row)

    # --- reads ------------------------------------------------------------------------------------------------------

    def get(self, get: Get) -> Result:
        """Return the current row; a result without cells when there is none."""
        self.check_readable()
        row = get.row
        self._check_row(row)
        queries = self._queries.of(get)
        view = self._view
        read_point = self.log.mvcc.read_point
        if get.filter is not None:
            families = [self._read(view[i], row, query, read_point) for i, query in queries]
            condition = parse(get.filter)
            cells: Sequence[Cell] = filtered_row(condition, row, families, get.max_versions) if any(families) else ()
        elif len(queries) == 1:
            index, query = queries[0]
            cells = self._read(view[index], row, query, read_point)
        else:
            cells = [cell for i, query in queries for cell in self._read(view[i], row, query, read_point)]
        if get.existence_only:
            return Result(row, (), not self.is_primary, exists=bool(cells))
        return Result(row, cells if type(cells) is tuple else tuple(cells), not self.is_primary)

    def _read(self, sources: CellSources, row: bytes, query: StoreQuery, read_point: int) -> Sequence[Cell]:
        now_ms = self.time_ms() if query.time_to_live_ms is not None else 0
        return read_row(sources, row, query, read_point=read_point, now_ms=now_ms, lock=self.update_lock)

    def scanner(self, scan: Scan) -> RegionScanner:
        """Return a scanner over the part of the range that is in this region, at the current read point."""
        self.check_readable()
        queries = self._queries.of(scan)
        with self.update_lock:
            view = self._view
            asked = [(view[i], query) for i, query in queries]
            families = [self.stores[i].name for i, _ in queries]
            scanner = RegionScanner(self, scan, families, asked, self.log.mvcc.read_point)
            self._scanners[id(scanner)] = scanner
        return scanner

    def row_reader(self) -> RowReader:
        """Return a reader of single rows, newest versions of all columns, at the current read point."""
        self.check_readable()
        queries = self._queries.of(_WHOLE_ROW)
        with self.update_lock:
            view = self._view
            reader = RowReader(self, [(view[i], query) for i, query in queries], self.log.mvcc.read_point)
            self._scanners[id(reader)] = reader
        return reader

    def scanner_closed(self, scanner: RegionScanner | RowReader) -> None:
        self._scanners.pop(id(scanner), None)

    def smallest_read_point(self) -> int:
        """Return the oldest read point of all open scanners; the region's read point if there are none."""
        return min([scanner.read_point for scanner in self._scanners.values()], default=self.log.mvcc.read_point)

    # --- writes -----------------------------------------------------------------------------------------------------

    def mutate(self, mutation: Mutation, *, nonce_group: int = 0, is_repetition: bool = False) -> Result | None:
        """Apply one mutation to its row atomically.

        Returns the new values for an increment or append, None otherwise. A repetition of an increment or append is
        not applied: the current values are returned. ``nonce_group`` is logged beside the mutation's nonce.
        """
        with self.update_lock:
            return self._writer.mutate(mutation, nonce_group, is_repetition)

    def batch(self, mutations: Sequence[Mutation]) -> list[Outcome]:
        """Return one outcome per mutation. Neighbouring puts and deletes share one sequence id and one sync."""
        with self.update_lock:
            return self._writer.batch(mutations)

    def check_and_mutate(
        self, check: Check, mutation: Mutation, *, nonce_group: int = 0, is_repetition: bool = False
    ) -> bool:
        """Apply ``mutation`` if the check holds, atomically; return True if it was applied."""
        with self.update_lock:
            return self._writer.check_and_mutate(check, mutation, nonce_group=nonce_group, is_repetition=is_repetition)

    # --- upkeep -----------------------------------------------------------------------------------------------------

    def flush(self, families: Sequence[bytes] | None = None, *, writes_marker: bool = True) -> FlushResult:
        """Write the memstore to files (HRegion.flushcache). ``writes_marker``: log CANNOT_FLUSH if there is nothing."""
        if not self.is_primary:
            return FlushResult(FlushOutcome.CANNOT_FLUSH, reason="a secondary owns no files")
        return self._flusher.flush(families, writes_marker=writes_marker)

    def compact(self, major: bool = False, family: bytes | None = None) -> bool:
        """Replace files of one family or of each family by one file; return True if files were replaced."""
        if not self.is_primary:
            return False
        stores = [self.mutations.store(family)] if family is not None else self.stores
        done = [self._compactor.compact(store, major=major) for store in stores]
        return any(done)

    def bulk_load(self, rows: Mapping[bytes, Sequence[Cell]] | Iterable[tuple[bytes, Sequence[Cell]]]) -> None:
        """Add rows as files, without log and memstore: atomically, and durable.

        The memstore is flushed first, so that the loaded cells are newer than the existing ones.
        """
        if self.memstore_bytes:
            self.flush()
        bulk_load(self, rows.items() if isinstance(rows, Mapping) else rows)

    def replace_files(self, store: Store, removed: Sequence[StoreFile], added: StoreFile) -> None:
        """Swap files of a family, in directory and store; the lock is held. Call :meth:`publish` afterwards."""
        store.files = self._directory.replace(store.name, removed, (added,), self.runtime.now())

    def files_are_complete(self, as_of: float) -> None:
        """Note that the listed files have everything that was acknowledged before ``as_of``; the lock is held."""
        known = self._directory.complete_as_of
        self._directory.complete_as_of = as_of if known is None else max(known, as_of)

    @property
    def files_complete_as_of(self) -> float | None:
        """The directory's ``complete_as_of``; a secondary that lists the files later has at least those edits."""
        return self._directory.complete_as_of

    def publish(self) -> None:
        """Let readers see changed sources, all at once; the lock is held."""
        self._view = tuple([store.sources for store in self.stores])
        self.memstore_bytes = sum([store.memstore.size for store in self.stores])

    def stop_serving(self) -> None:
        """Refuse all further calls except :meth:`close`; the lock is held."""
        if self.state is RegionPhase.OPEN:
            self.state = RegionPhase.CLOSING

    # --- secondaries ------------------------------------------------------------------------------------------------

    @property
    def last_replayed_sequence_id(self) -> int:
        return self._follower.last_replayed_sequence_id

    @property
    def last_replayed_open_sequence_id(self) -> int:
        return self._follower.last_replayed_open_sequence_id

    def refresh_store_files(self) -> bool:
        """List the primary's current files; return True if memory was freed."""
        if self.is_primary:
            return False
        with self.update_lock:
            return self._follower.refresh()

    def replay(self, entry: LoggedEntry) -> bool:
        """Apply one entry of the primary to this secondary; return False when the entry is old."""
        if self.is_primary:
            raise RequestRefused(f"{self}: entries are replayed on secondaries only")
        with self.update_lock:
            return self._follower.replay(entry)

    def follow_anew(self, sequence_id: int) -> None:
        """Drop all memstore data before the first entry of a new primary (see :mod:`replica`)."""
        with self.update_lock:
            self._follower.restart(sequence_id)

    def apply_replayed(self, entry: LoggedEntry, covered: Mapping[bytes, int] | None = None) -> None:
        """Add an entry's cells to the memstores, except the cells that the files have; the lock is held."""
        for logged in entry.rows:
            if isinstance(logged, PackedRow):
                sequence_id, row, family, size = logged.parts()
                made: PlainRow = logged
            else:
                row, sequence_id, family = logged[0], entry.sequence_id, family_of(logged)
                made = row_of(row, logged[1], sequence_id)
                size = made.size
            store = self._stores_by_name.get(family)
            if store is None or (covered is not None and sequence_id <= covered[family]):
                continue  # the family was dropped since, or flushed
            if isinstance(made, PackedRow):
                store.memstore.active.add_packed(row, made, sequence_id, size)
            else:
                store.memstore.active.add(row, made.cells, sequence_id, size, made.is_plain)
            self.memstore_bytes += size

    # --- split, close -----------------------------------------------------------------------------------------------

    def split_point(self) -> bytes | None:
        """Return the row in the middle, by size, of the biggest family; None when there is no row to split at."""
        with self.update_lock:
            store = max(self.stores, key=lambda store: store.size)
            sizes: dict[bytes, int] = {}
            for source in store.sources:
                for row, found in source.rows.items():
                    sizes[row] = sizes.get(row, 0) + found.size
        ordered = sorted(sizes, key=self.row_order)
        half, seen = sum(sizes.values()) / 2, 0
        for row in ordered:
            if seen >= half:
                return row
            seen += sizes[row]
        return ordered[-1] if len(ordered) > 1 else None

    def close(self, *, abort: bool = False) -> int:
        """Stop serving. The primary, unless ``abort``, flushes, logs a close marker and stores its sequence id.

        Returns the last sequence id. A second call has no effect.
        """
        with self.update_lock:
            if self.state is RegionPhase.CLOSED:
                return self.read_point
            self.state = RegionPhase.CLOSING
            self.log.on_commit = None  # replicas list the files of the last flush at the next open marker
            if not abort:
                self._flusher.wait_until_done()
        if self.is_primary and not abort:
            self._write_out()
        with self.update_lock:
            self.state = RegionPhase.CLOSED
            for scanner in list(self._scanners.values()):
                scanner.close()
            return self.read_point

    def _write_out(self) -> None:
        """Write what an orderly close leaves: the flushed files, the close marker, the last sequence id."""
        if self.memstore_bytes:
            self._flusher.flush(None, writes_marker=False, closing=True)
        with self.update_lock:
            self.log.mark(self._event(MarkerKind.REGION_CLOSE, self.read_point), is_told=False)
            self._directory.sequence_id = max(self._directory.sequence_id, self.read_point)
            self.log.forget()

    def __repr__(self) -> str:
        replica = f" replica {self.info.replica_id}" if self.info.replica_id else ""
        return f"region {self.log.region}{replica} of {keys.printable(self.info.table)}"
