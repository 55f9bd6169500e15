"""Stores a server's write-ahead log: what was appended, what of it is synced, and which regions still need it.

Mirrors ``FSHLog`` and ``SequenceIdAccounting`` as far as a region can tell: entries become durable at ``sync``, a crash
loses the tail that was not synced, a log that was taken away (lease recovery during log splitting) refuses to grow.
A log consists of files; a file whose entries are all flushed moves to the archive at the next roll.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from adapters.fake.storage.cells import cells_size
from metaclient.errors import ServerStopped
from metaclient.model import Cell

__all__ = ["Marker", "MarkerKind", "Wal", "WalEntry", "WalFile"]

#: hbase.regionserver.logroll.multiplier (0.5) of twice an HDFS block of 128 MiB.
ROLL_BYTES = 128 * 1024 * 1024
#: Of an entry whose cells nobody has counted yet.
UNKNOWN_BYTES = -1


class MarkerKind(enum.Enum):
    """Entries that tell about a region instead of carrying its data (``WALEdit`` meta edits)."""

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
    """What a marker says; ``flush_sequence_id`` is -1 for CANNOT_FLUSH, the open sequence id for REGION_OPEN."""

    kind: MarkerKind
    flush_sequence_id: int = -1
    families: tuple[bytes, ...] = ()
    files: tuple[str, ...] = ()


class WalEntry(NamedTuple):
    """One atomic change of one region. ``rows`` holds the memstore's own cell tuples; :attr:`edits` flattens them.

    A named tuple because each write makes one: a frozen dataclass takes four times as long to make.
    """

    region: str  # the primary's encoded name
    table: bytes
    sequence_id: int
    write_time_ms: int
    rows: tuple[tuple[bytes, tuple[Cell, ...]], ...] = ()
    marker: Marker | None = None
    cell_bytes: int = UNKNOWN_BYTES  # of all cells, where the writer has counted them; ``data_bytes`` always knows

    @property
    def data_bytes(self) -> int:
        """The bytes of all cells."""
        if self.cell_bytes != UNKNOWN_BYTES:
            return self.cell_bytes
        return sum([cells_size(len(row), cells) for row, cells in self.rows])

    @property
    def edits(self) -> tuple[tuple[bytes, Cell], ...]:
        return tuple((row, cell) for row, cells in self.rows for cell in cells)

    @property
    def size(self) -> int:
        """The serialised size, near enough for buffers and log rolls (keys of ours are smaller than HBase's)."""
        return len(self.region) + len(self.table) + 32 + self.data_bytes


class WalFile:
    """One file of a log: entries in order of append, and the highest sequence id of each region's data."""

    __slots__ = ("archived_at_s", "entries", "highest", "name", "size")

    def __init__(self, name: str) -> None:
        self.name = name
        self.entries: list[WalEntry] = []
        self.highest: dict[str, int] = {}
        self.size = 0
        self.archived_at_s: float | None = None

    def __repr__(self) -> str:
        return f"WalFile({self.name!r}, {len(self.entries)} entries, {self.size} bytes)"


class Wal:
    """The log of one server (hbase:meta has one of its own). Lives in the file system: it survives its server.

    Appends of one region come in sequence order under that region's lock; those of different regions may interleave.
    There is no lock here: ``list.append`` is atomic, and the two races that remain (with a roll, with a crash) are
    settled where they are noted.
    """

    def __init__(self, name: str = "wal", *, roll_bytes: int = ROLL_BYTES) -> None:
        self.name = name
        self._roll_bytes = roll_bytes
        self._rolls = 0
        self._file = WalFile(f"{name}.0")
        self._old_files: list[WalFile] = []
        self._flushed: dict[str, int] = {}
        self._synced = 0  # entries of the current file; files that were rolled are synced
        self._closed_because: str | None = None
        #: Called before each sync: a place for tests and faults to delay it or to make it fail.
        self.before_sync: Callable[[], None] | None = None
        #: Called with each file that nobody needs for recovery any more.
        self.on_archive: Callable[[WalFile], None] | None = None

    @property
    def is_closed(self) -> bool:
        return self._closed_because is not None

    @property
    def files(self) -> tuple[WalFile, ...]:
        """The files that hold something unflushed, oldest first, the one being written last."""
        return (*self._old_files, self._file)

    @property
    def unsynced(self) -> int:
        """How many entries a crash would lose now."""
        return len(self._file.entries) - self._synced

    def append(self, entry: WalEntry, size: int | None = None) -> None:
        """Add an entry; it is durable after the next :meth:`sync`. ``size`` saves counting it again."""
        if self._closed_because is not None:
            raise ServerStopped(f"cannot append to {self.name}: {self._closed_because}")
        file = self._file
        file.entries.append(entry)
        if entry.rows:  # markers hold nothing that a flush must save
            file.highest[entry.region] = entry.sequence_id
        file.size += entry.size if size is None else size
        if file is not self._file:
            # Another region's thread rolled the log meanwhile, and the old file may be archived without this entry
            # being flushed. Twice in the log does no harm: replaying it writes the same cells.
            self.append(entry, size)

    def sync(self) -> None:
        """Make everything appended so far durable."""
        if self.before_sync is not None:
            self.before_sync()
        self._synced = len(self._file.entries)
        if self._closed_because is not None:  # asked last: a crash in between must not be taken for a success
            raise ServerStopped(f"cannot sync {self.name}: {self._closed_because}", may_have_applied=True)
        if self._file.size > self._roll_bytes:
            self.roll()

    def flushed(self, region: str, sequence_id: int) -> None:
        """Everything of ``region`` up to ``sequence_id`` is in store files: the log need not keep it."""
        self._flushed[region] = max(sequence_id, self._flushed.get(region, -1))

    def forget(self, region: str) -> None:
        """The region was closed in order: nothing of it needs this log."""
        self._flushed[region] = max((file.highest.get(region, -1) for file in self.files), default=-1)

    def roll(self) -> list[WalFile]:
        """Begin a new file; returns the files that went to the archive because all in them is flushed."""
        self._rolls += 1
        if self._file.entries:
            self._old_files.append(self._file)
        self._file = WalFile(f"{self.name}.{self._rolls}")
        self._synced = 0
        done = [file for file in self._old_files if self._is_flushed(file)]
        self._old_files = [file for file in self._old_files if not self._is_flushed(file)]
        for file in done if self.on_archive is not None else ():
            assert self.on_archive is not None
            self.on_archive(file)
        return done

    def _is_flushed(self, file: WalFile) -> bool:
        flushed = self._flushed
        return all(flushed.get(region, -1) >= highest for region, highest in file.highest.items())

    def regions_to_flush(self, files_max: int) -> list[str]:
        """Whose edits keep the oldest file, when there are too many files (hbase.regionserver.maxlogs)."""
        if len(self._old_files) <= files_max:
            return []
        flushed = self._flushed
        return [region for region, highest in self._old_files[0].highest.items() if flushed.get(region, -1) < highest]

    def crash(self, reason: str = "its server crashed") -> int:
        """Lose what was not synced and refuse anything more; the number of entries lost. Idempotent."""
        if self._closed_because is not None:
            return 0
        self._closed_because = reason
        lost = self.unsynced
        del self._file.entries[self._synced :]
        return lost

    def fence(self) -> int:
        """Take the log away from a server that may still be alive, so that it can be split (lease recovery)."""
        return self.crash("it was fenced: its server was declared dead")

    def close(self) -> None:
        """Sync and end in order."""
        if self._closed_because is None:
            self.sync()
            self._closed_because = "it was closed"

    def entries(self) -> Iterator[WalEntry]:
        """All durable entries that are still kept, in order of append."""
        for file in self._old_files:
            yield from file.entries
        yield from self._file.entries[: self._synced]

    def entries_for(self, encoded_region: str) -> list[WalEntry]:
        """The durable entries of one region, for its recovery."""
        return [entry for entry in self.entries() if entry.region == encoded_region]

    def by_region(self) -> dict[str, list[WalEntry]]:
        """The durable entries of every region, in one pass (WALSplitter)."""
        grouped: dict[str, list[WalEntry]] = {}
        for entry in self.entries():
            grouped.setdefault(entry.region, []).append(entry)
        return grouped

    def __repr__(self) -> str:
        state = self._closed_because or "open"
        return f"Wal({self.name!r}, {len(self.files)} files, {self.unsynced} unsynced, {state})"
