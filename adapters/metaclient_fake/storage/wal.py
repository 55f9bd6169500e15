"""Stores a server's write-ahead log: the appended entries, which of them are synced, and which regions need them.

Mirrors the behaviour of ``FSHLog`` and ``SequenceIdAccounting``: entries become durable at ``sync``, a crash
loses the entries that were not synced, a fenced log (lease recovery during log splitting) refuses appends.
A log consists of files; a file whose entries are all flushed moves to the archive at the next roll.

A file keeps the entries of each region together, for recovery, and the order of all appends, for replication
(:mod:`wal_reader`). An entry of one packed row is kept as that row, which the memstore has anyway, and made again for
each reader: a log costs 24 bytes per row.
"""

from __future__ import annotations

import enum
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias
from urllib.parse import quote
from uuid import UUID

from metaclient.errors import ServerStopped
from metaclient.model import Cell
from metaclient_fake.storage.cells import cells_size
from metaclient_fake.storage.packed_row import PackedRow
from metaclient_fake.storage.wal_reader import WalReader

__all__ = [
    "ROLL_BYTES",
    "FileEnd",
    "LoggedEntry",
    "LoggedRow",
    "Marker",
    "MarkerKind",
    "RegionEdits",
    "Scopes",
    "Wal",
    "WalEntry",
    "WalFile",
    "bytes_of",
    "entry_overhead_bytes",
    "family_of",
    "no_clock",
    "row_key",
]

#: hbase.regionserver.logroll.multiplier (0.5) of twice an HDFS block of 128 MiB.
ROLL_BYTES = 128 * 1024 * 1024
#: The end of the name of the log of hbase:meta, and of its files (AbstractFSWALProvider.META_WAL_PROVIDER_ID).
META_SUFFIX = ".meta"
#: The size of an entry whose cells have not been counted.
UNKNOWN_BYTES = -1

#: The cells that one write put into one row of one family: packed, or the row and the memstore's own cells.
LoggedRow: TypeAlias = PackedRow | tuple[bytes, tuple[Cell, ...]]

#: The replication scope of every family of the table that is not LOCAL, whether the entry touches the family or not.
Scopes: TypeAlias = tuple[tuple[bytes, int], ...]


def row_key(logged: LoggedRow) -> bytes:
    return logged.row if isinstance(logged, PackedRow) else logged[0]


def family_of(logged: LoggedRow) -> bytes:
    return logged.family if isinstance(logged, PackedRow) else logged[1][0].family


def bytes_of(logged: LoggedRow) -> int:
    """Return the bytes of the cells."""
    return logged.size if isinstance(logged, PackedRow) else cells_size(len(logged[0]), logged[1])


class MarkerKind(enum.Enum):
    """Kinds of entries that record an event of a region instead of data (``WALEdit`` meta edits)."""

    START_FLUSH = "START_FLUSH"
    COMMIT_FLUSH = "COMMIT_FLUSH"
    ABORT_FLUSH = "ABORT_FLUSH"
    CANNOT_FLUSH = "CANNOT_FLUSH"
    REGION_OPEN = "REGION_OPEN"
    REGION_CLOSE = "REGION_CLOSE"
    COMPACTION = "COMPACTION"
    BULK_LOAD = "BULK_LOAD"


@dataclass(frozen=True, slots=True)
class Marker:
    """The event of a region; ``flush_sequence_id`` is -1 for CANNOT_FLUSH, the open sequence id for REGION_OPEN."""

    kind: MarkerKind
    flush_sequence_id: int = -1
    families: tuple[bytes, ...] = ()
    files: tuple[str, ...] = ()


class WalEntry(NamedTuple):
    """One atomic change of one region. :attr:`edits` lists its cells.

    A named tuple because each write of a region with replicas makes one: a frozen dataclass takes four times as long.
    """

    region: str  # the primary's encoded name
    table: bytes
    sequence_id: int
    write_time_ms: int
    rows: tuple[LoggedRow, ...] = ()
    marker: Marker | None = None
    cell_bytes: int = UNKNOWN_BYTES  # of all cells, if the writer has counted them; ``data_bytes`` counts if not
    nonce: tuple[int, int] | None = None  # group and nonce of the increment or append, to recognise a repetition
    scopes: Scopes = ()
    cluster_ids: tuple[
        UUID, ...
    ] = ()  # the clusters that had applied a replicated change before; () for a client's own

    @property
    def data_bytes(self) -> int:
        """The bytes of all cells."""
        if self.cell_bytes != UNKNOWN_BYTES:
            return self.cell_bytes
        return sum([bytes_of(row) for row in self.rows])

    @property
    def edits(self) -> tuple[tuple[bytes, Cell], ...]:
        return tuple(
            (row_key(row), cell) for row in self.rows for cell in (row.cells if isinstance(row, PackedRow) else row[1])
        )

    @property
    def size(self) -> int:
        """The serialised size, precise enough for buffers and log rolls (the fake's keys are smaller than HBase's)."""
        return entry_overhead_bytes(self.region, self.table) + self.data_bytes


def entry_overhead_bytes(region: str, table: bytes) -> int:
    """Return the bytes that an entry adds to its cells."""
    return len(region) + len(table) + 32


_new_entry: Callable[..., WalEntry] = tuple.__new__

#: The form in which the log and the replicas keep an entry: a packed row stands for the entry that wrote nothing else.
LoggedEntry: TypeAlias = WalEntry | PackedRow


class RegionEdits:
    """The entries of one region in one file of a log, in sequence order. Written under that region's update lock."""

    __slots__ = ("_scopes", "entries", "highest", "region", "synced", "table", "times")

    def __init__(self, region: str, table: bytes, scopes: Scopes = ()) -> None:
        self.region = region
        self.table = table
        #: The scopes of packed rows from an index on. A table that is altered changes them within one file.
        self._scopes: list[tuple[int, Scopes]] = [(0, scopes)]
        #: A packed row stands for an entry that has no other row.
        self.entries: list[LoggedEntry] = []
        self.times = array("q")  # write_time_ms of each
        self.highest = -1  # sequence id of the newest data; markers have no data to flush
        self.synced = 0  # number of entries that survive a crash

    def set_scopes(self, scopes: Scopes) -> None:
        """Set the scopes of the packed rows that follow."""
        if self._scopes[-1][1] != scopes:
            self._scopes.append((len(self.entries), scopes))

    def _scopes_at(self, index: int) -> Scopes:
        return next(scopes for since, scopes in reversed(self._scopes) if since <= index)

    def entry(self, index: int) -> WalEntry:
        """Return one entry."""
        kept = self.entries[index]
        if isinstance(kept, PackedRow):
            scopes = self._scopes[0][1] if len(self._scopes) == 1 else self._scopes_at(index)
            number, now_ms = kept.sequence_id, self.times[index]
            return _new_entry(
                WalEntry, (self.region, self.table, number, now_ms, (kept,), None, kept.size, None, scopes, ())
            )
        return kept

    def read(self, count: int) -> list[WalEntry]:
        """Return the first ``count`` entries."""
        return [self.entry(index) for index in range(count)]


class FileEnd(NamedTuple):
    """Where a closed file ends."""

    slots: int  # the number of entries of ``WalFile.order`` that count
    #: Of each region, the number of entries that survived the crash; None when the file was rolled, which loses none.
    kept: dict[RegionEdits, int] | None = None


class WalFile:
    """One file of a log: the entries of each region, the order of all appends, and how big they are.

    A file is open until a roll, a crash or a close sets ``is_closed`` and then ``end``, once and for all. A thread that
    appended an entry meanwhile finds by ``end`` whether the file contains the entry.
    """

    __slots__ = (
        "_archivings",
        "_ends",
        "_measured",
        "archived_at_s",
        "is_closed",
        "name",
        "order",
        "regions",
        "size",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.regions: dict[str, RegionEdits] = {}
        #: The region of each entry, in the order of the appends: the n-th mention of a region is its n-th entry.
        self.order: list[RegionEdits] = []
        self.size = 0  # bytes of all appended entries; ``durable_size`` has those that a reader gets
        self.archived_at_s: float | None = None
        self.is_closed = False
        self._ends: dict[None, FileEnd] = {}  # at most one: ``setdefault`` is atomic, so the first closer decides
        self._measured: list[WalReader] = []
        #: Holds one token until the file is archived. ``list.pop`` is atomic, so only one thread archives the file.
        self._archivings: list[None] = [None]

    def __len__(self) -> int:
        return sum([self.durable(edits) if self.is_closed else len(edits.entries) for edits in self._all_edits()])

    @property
    def slots(self) -> int:
        """The number of entries in the file, with those that are not durable yet and those that a crash lost."""
        end = self.end
        return len(self.order) if end is None else end.slots

    def _all_edits(self) -> list[RegionEdits]:
        return list(self.regions.values())  # a copy: other regions may append their first entry meanwhile

    def edits_of(self, region: str, table: bytes, scopes: Scopes) -> RegionEdits:
        found = self.regions.get(region)
        if found is None:
            found = self.regions.setdefault(region, RegionEdits(region, table, scopes))
        return found

    @property
    def end(self) -> FileEnd | None:
        """Where the file ends; None while it is open."""
        return self._ends.get(None)

    def close_whole(self) -> FileEnd:
        """Close the file with all its entries, which are durable by that (roll)."""
        self.is_closed = True  # first: an entry that is appended before this line is counted by the next one
        return self._ends.setdefault(None, FileEnd(len(self.order)))

    def close_torn(self) -> int:
        """Close the file without the entries that were not synced (crash); return their number."""
        if self.is_closed:
            return 0
        self.is_closed = True
        kept = {edits: edits.synced for edits in self._all_edits()}
        end = self._ends.setdefault(None, FileEnd(len(self.order), kept))
        return end.slots - len(self) if end.kept is kept else 0

    def take_archiving(self) -> bool:
        """Return True for the first caller only: the caller must archive the file."""
        try:
            self._archivings.pop()
        except IndexError:
            return False
        return True

    def durable(self, edits: RegionEdits) -> int:
        """Return how many entries of one region are durable. The cost is a walk over ``order`` if the file is closed.

        A writer that was interrupted may have added an entry to ``edits`` that is not in ``order`` before the end.
        """
        end = self.end
        if end is None:
            return edits.synced
        contained = self.order[: end.slots].count(edits)
        return contained if end.kept is None else min(contained, end.kept.get(edits, 0))

    @property
    def durable_size(self) -> int:
        """The position after the last entry that a reader gets now. Walks over the entries since the last call."""
        try:
            reader = self._measured.pop()
        except IndexError:  # the first call, or another thread is measuring
            reader = WalReader(self)
        while reader.read() is not None:
            pass
        self._measured[:] = [reader]
        return reader.position

    def __repr__(self) -> str:
        return f"WalFile({self.name!r}, {len(self)} entries, {self.size} bytes)"


def no_clock() -> int:
    """The time of logs that are made without a clock: their files are numbered from 0."""
    return 0


class Wal:
    """The log of one server (hbase:meta has one of its own). Lives in the file system: it survives its server.

    Appends of one region come in sequence order under that region's lock; those of different regions may interleave.
    There is no lock here: each region writes to a list of its own, and then adds itself to the file's order. Rolls take
    turns (``_roll_turns``), and readers get all files as one tuple. The two remaining races (an append with a roll, an
    append with a crash) are handled in :meth:`append_logged` and :meth:`_sync`.

    The names of files are those of ``AbstractFSWAL``: ``host%2C16020%2C1700000000000.1700000000123``, with ``.meta``
    before and after the time for the log of hbase:meta. The number is the time of creation, or one more than the last.
    """

    def __init__(
        self, name: str = "wal", *, roll_bytes: int = ROLL_BYTES, time_ms: Callable[[], int] = no_clock
    ) -> None:
        self.name = name
        self._roll_bytes = roll_bytes
        self._time_ms = time_ms
        self._file_number = -1
        #: The file that is being written. Always the last of ``_files``, except inside of a roll.
        self._file = self._new_file()
        #: All files, oldest first, replaced as a whole. Those before the last are synced as a whole.
        self._files: tuple[WalFile, ...] = (self._file,)
        #: Holds one token while no thread rolls. ``list.pop`` is atomic, so only one thread gets the token.
        self._roll_turns: list[None] = [None]
        self._flushed: dict[str, int] = {}
        self._scopes: dict[str, Scopes] = {}  # of open regions
        self._late: set[RegionEdits] = set()  # with entries that their writer did not sync
        self._closed_because: str | None = None
        #: Called before each sync: a place for tests and faults to delay it or to make it fail.
        self.before_sync: Callable[[], None] | None = None
        #: Called with each file that is not needed for recovery any more.
        self.on_archive: Callable[[WalFile], None] | None = None
        #: Called with each new file, before the first entry can be in it. An exception prevents the roll. The caller
        #: may hold the update lock of a region, so a listener must not write to a table.
        self.on_roll: list[Callable[[WalFile], None]] = []

    def _new_file(self) -> WalFile:
        self._file_number = max(self._file_number + 1, self._time_ms())
        prefix = quote(self.name, safe="*")
        return WalFile(f"{prefix}.{self._file_number}{META_SUFFIX if prefix.endswith(META_SUFFIX) else ''}")

    @property
    def is_closed(self) -> bool:
        return self._closed_because is not None

    @property
    def files(self) -> tuple[WalFile, ...]:
        """The files that hold something unflushed, oldest first, the one being written last."""
        return self._files

    @property
    def unsynced(self) -> int:
        """How many entries a crash would lose now."""
        file = self._file
        return 0 if file.is_closed else sum(len(edits.entries) - edits.synced for edits in list(file.regions.values()))

    def append(self, entry: WalEntry, *, is_synced: bool = True) -> None:
        """Add an entry. It is durable when this returns if ``is_synced``, otherwise after the next :meth:`sync`."""
        logged: LoggedEntry = entry
        if entry.nonce is None and not entry.cluster_ids and len(entry.rows) == 1:
            only = entry.rows[0]
            logged = only if isinstance(only, PackedRow) else entry
        self.append_logged(
            entry.region,
            entry.table,
            logged,
            entry.sequence_id,
            entry.write_time_ms,
            entry.size,
            is_synced=is_synced,
        )

    def append_logged(
        self,
        region: str,
        table: bytes,
        logged: LoggedEntry,
        sequence_id: int,
        now_ms: int,
        size: int,
        *,
        is_synced: bool = True,
    ) -> None:
        """Add an entry in the form that the log keeps. ``size`` counts the whole entry, as ``WalEntry.size`` does."""
        if self._closed_because is not None:
            raise ServerStopped(f"cannot append to {self.name}: {self._closed_because}")
        file = self._file
        edits = file.regions.get(region) or file.edits_of(region, table, self._scopes.get(region, ()))
        if logged.marker is None:
            # Before ``order``: a roll that counts this entry must see that the entry needs a flush.
            edits.highest = sequence_id
        edits.entries.append(logged)
        edits.times.append(now_ms)
        file.order.append(edits)
        file.size += size
        if file.is_closed and not self._is_contained(file, edits):
            # Another region's thread rolled the log meanwhile, and this entry came after the end of the old file.
            file.size -= size
            self.append_logged(region, table, logged, sequence_id, now_ms, size, is_synced=is_synced)
        elif not is_synced:
            self._late.add(edits)
        elif self.before_sync is not None or self._late or file.size > self._roll_bytes:
            self._sync(edits)
        else:  # what _sync does when there is no hook, no unsynced entry of another writer and no full file
            edits.synced = len(edits.entries)
            if self._closed_because is not None:
                raise self._unsyncable()

    def _is_contained(self, closed: WalFile, edits: RegionEdits) -> bool:
        """Return True if a closed file contains the newest entry of ``edits``; if not, take the entry back.

        The caller has the region's lock. Its entry is the only one of the region that may stand after the end, because
        the next file is in place before a roll closes this one.
        """
        if self._closed_because is not None:
            raise self._unsyncable()
        end = closed.close_whole()  # does nothing if the thread that rolls has set the end
        if edits not in closed.order[end.slots :]:
            return True
        edits.times.pop()
        edits.entries.pop()
        return False

    def sync(self) -> None:
        """Make everything appended so far durable."""
        self._sync(None)

    def _sync(self, edits: RegionEdits | None) -> None:
        """Sync the entries of one region, and all entries whose writers did not wait for a sync."""
        if self.before_sync is not None:
            try:
                self.before_sync()
            except BaseException:
                if edits is not None:
                    self._late.add(edits)  # the entry stays in the file: the next sync of any region makes it durable
                raise
        if edits is not None:
            edits.synced = len(edits.entries)
        while self._late:
            try:
                late = self._late.pop()
            except KeyError:  # another region's thread took the last one, and syncs it
                break
            late.synced = len(late.entries)
        if self._closed_because is not None:  # checked last: a crash in between must not count as a success
            raise self._unsyncable()
        file = self._file
        if file.size > self._roll_bytes:
            self._roll(file)

    def _unsyncable(self) -> ServerStopped:
        return ServerStopped(f"cannot sync {self.name}: {self._closed_because}", may_have_applied=True)

    def set_scopes(self, region: str, scopes: Scopes) -> None:
        """Set the scopes of the packed rows of a region, which opens: an alteration of its table reopens a region."""
        self._scopes[region] = scopes  # before the file: a roll in between takes them from here
        edits = self._file.regions.get(region)
        if edits is not None:
            edits.set_scopes(scopes)

    def flushed(self, region: str, sequence_id: int) -> None:
        """Record that all entries of ``region`` up to ``sequence_id`` are in store files and not needed any more."""
        self._flushed[region] = max(sequence_id, self._flushed.get(region, -1))

    def forget(self, region: str) -> None:
        """Record that no entry of ``region`` is needed any more, because it was flushed and closed."""
        kept = [file.regions[region].highest for file in self.files if region in file.regions]
        self._flushed[region] = max(kept, default=-1)
        self._scopes.pop(region, None)

    def roll(self) -> list[WalFile]:
        """Begin a new file; return the files that were archived because all their entries are flushed.

        Returns an empty list without a new file when another thread is rolling the log, or when the log is closed.
        """
        return self._roll(self._file)

    def _roll(self, full: WalFile) -> list[WalFile]:
        """Begin a new file after ``full``, unless another thread has done so."""
        try:
            self._roll_turns.pop()
        except IndexError:  # another thread is rolling
            return []
        try:
            if full is not self._file or self.is_closed:
                return []
            return self._roll_in_turn()
        finally:
            self._roll_turns.append(None)

    def _roll_in_turn(self) -> list[WalFile]:
        """Swap the files; the caller has the turn.

        Whether a file is flushed is checked after the old file is closed, and once per file: a writer whose entry comes
        too late for the old file appends it to the new one, and a flush that ends meanwhile cannot remove a file from
        the log without archiving it.
        """
        made = self._new_file()
        for listener in self.on_roll:
            listener(made)
        old = self._files
        self._files = (*old, made)
        self._file = made
        old[-1].close_whole()
        if self._closed_because is not None:  # the crash, and the recovery after it, may have missed the new file
            made.close_torn()
            self._archive([made])
        done: list[WalFile] = []
        kept: list[WalFile] = []
        for file in old:
            (done if self._is_flushed(file) else kept).append(file)
        self._archive(done)
        self._files = (*kept, made)
        return done

    def _archive(self, files: Sequence[WalFile]) -> None:
        if self.on_archive is not None:
            for file in files:
                self.on_archive(file)

    def _is_flushed(self, file: WalFile) -> bool:
        flushed = self._flushed
        return all(flushed.get(region, -1) >= edits.highest for region, edits in list(file.regions.items()))

    def regions_to_flush(self, files_max: int) -> list[str]:
        """Return the regions that still need the oldest file, if there are too many (hbase.regionserver.maxlogs)."""
        old = self._files[:-1]
        if len(old) <= files_max:
            return []
        flushed, oldest = self._flushed, list(old[0].regions.items())
        return [region for region, edits in oldest if flushed.get(region, -1) < edits.highest]

    def crash(self, reason: str = "its server crashed") -> int:
        """Drop the entries that were not synced and refuse appends; return the number of lost entries. Idempotent."""
        if self._closed_because is not None:
            return 0
        self._closed_because = reason
        return sum([file.close_torn() for file in self._files])

    def fence(self) -> int:
        """Refuse appends of a server that may still be alive, so that the log can be split (lease recovery)."""
        return self.crash("it was fenced: its server was declared dead")

    def close(self) -> None:
        """Sync, then refuse appends."""
        if self._closed_because is None:
            self.sync()
            self.crash("it was closed")

    def entries(self) -> Iterator[WalEntry]:
        """Yield all durable entries that are still kept, in the order of their appends."""
        for file in self._files:
            reader = WalReader(file)
            while (entry := reader.read()) is not None:
                yield entry

    def entries_for(self, encoded_region: str) -> list[WalEntry]:
        """Return the durable entries of one region, for its recovery."""
        found = [(file, file.regions[encoded_region]) for file in self.files if encoded_region in file.regions]
        return [entry for file, edits in found for entry in edits.read(file.durable(edits))]

    def by_region(self) -> dict[str, list[WalEntry]]:
        """Return the durable entries of every region (WALSplitter)."""
        grouped: dict[str, list[WalEntry]] = {}
        for entry in self.entries():
            grouped.setdefault(entry.region, []).append(entry)
        return grouped

    def __repr__(self) -> str:
        state = self._closed_because or "open"
        return f"Wal({self.name!r}, {len(self.files)} files, {self.unsynced} unsynced, {state})"
