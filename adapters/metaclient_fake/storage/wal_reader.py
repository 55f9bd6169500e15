"""Reads one file of a log in the order of its appends, from a position on (``WALEntryStream``).

A position is the number of bytes before an entry, each entry counted by ``WalEntry.size``. It stays valid while the
file grows, after a crash and after the file was archived, so that another server can resume from a stored position.

What a reader may return:

- file open: the durable entries before the first entry that is not durable. A later entry may be durable already (each
  region syncs its own entries), but returning it first would change the order;
- file closed by a roll: all entries;
- file closed by a crash or a fence: the entries that were synced. Entries that the crash lost have no bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from metaclient_fake.storage.wal import RegionEdits, WalEntry, WalFile

__all__ = ["WalReader"]


class WalReader:
    """A position in a file of a log. Used by one thread at a time; writers may append meanwhile."""

    __slots__ = ("_next", "file", "position", "slot")

    def __init__(self, file: WalFile, position: int = 0) -> None:
        """Raise ValueError if no durable entry of ``file`` begins or ends at ``position``."""
        self.file = file
        self.position = 0
        self.slot = 0  # index of the next entry in ``file.order``, which also has the entries that a crash lost
        self._next: dict[RegionEdits, int] = {}  # of each region: the index of its next entry
        while self.position < position and self.read() is not None:
            pass
        if self.position != position:
            raise ValueError(
                f"cannot resume {file.name} at position {position}: no durable entry ends there (the nearest ends at "
                f"{self.position}). The position belongs to another file, or the file was replaced"
            )

    def read(self) -> WalEntry | None:
        """Return the next durable entry and move behind it; None when there is none now."""
        file, order, following = self.file, self.file.order, self._next
        while self.slot < len(order):
            edits = order[self.slot]
            index = following.get(edits, 0)
            is_durable = index < edits.synced
            if file.is_closed:  # checked after ``synced``, so that nothing is returned that a crash loses meanwhile
                end = file.end
                if end is None or self.slot >= end.slots:
                    return None
                is_durable = end.kept is None or index < end.kept.get(edits, 0)
                if not is_durable:  # lost in the crash
                    self._step(edits, index)
                    continue
            if not is_durable:
                return None
            entry = edits.entry(index)
            self._step(edits, index)
            self.position += entry.size
            return entry
        return None

    def _step(self, edits: RegionEdits, index: int) -> None:
        self._next[edits] = index + 1
        self.slot += 1

    @property
    def is_at_end(self) -> bool:
        """True if the file is closed and every entry was read. Only then may the reader go on to the next file."""
        file = self.file
        end = file.end if file.is_closed else None
        if end is None:
            return False
        if end.kept is not None:
            return self._only_lost_entries_follow(end.slots, end.kept)
        return self.slot >= end.slots

    def _only_lost_entries_follow(self, slots: int, kept: dict[RegionEdits, int]) -> bool:
        """Return True if the crash lost all entries from here on. Entries of one region are lost from its tail."""
        order, following = self.file.order, self._next
        return all(
            following.get(edits, 0) >= kept.get(edits, 0) for edits in (order[slot] for slot in range(self.slot, slots))
        )

    def __repr__(self) -> str:
        return f"WalReader({self.file.name!r}, position={self.position}, is_at_end={self.is_at_end})"
