"""Stores what a session has seen and written, by range of rows, and decides which replicas may answer it.

For each range a session keeps a *floor*: an instant at which everything that the session has seen or written there was
stored at the primary. It also keeps the *copy* that is known to contain all of it, if that is a secondary. A secondary
may answer a read in one of three cases:

1. the session has neither read nor written the range;
2. the secondary is that copy, at the same server and of the same region: a copy does not go back in time;
3. the secondary is known to contain every write that was acknowledged up to an instant later than the floor.

The primary may always answer. Its answer, and every write, raises the floor to the present and removes the copy: the
range is pinned to the primary. An answer that case 3 permits moves the pin back. Copies are compared with the region
and the server's start code, so that a copy that was moved, split, merged or restarted is another copy; the floor is an
instant and applies to every region that has the rows.

>>> one, two = Copy(b"", b"", 1, 1, ServerName("rs1", 16020)), Copy(b"", b"", 1, 2, ServerName("rs2", 16020))
>>> seen = after_read(None, one, now=10.0)
>>> contains_all(seen, one), contains_all(seen, two), contains_all(seen, two, as_of=11.0)
(True, False, True)
>>> seen = after_write(seen, now=20.0)
>>> contains_all(seen, one), contains_all(seen, one, as_of=19.0), contains_all(seen, one, as_of=20.5)
(False, False, True)
>>> after_read(seen, one, as_of=20.5, now=21.0).copy == one
True
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from metaclient import keys
from metaclient.model import RegionLocation, ServerName

__all__ = ["NEVER", "PINS_MAX", "Copy", "Pins", "Seen", "after_read", "after_write", "contains_all"]

#: A floor that no replica reaches: for writes that are not replicated.
NEVER: Final = float("inf")
#: Instants are sums and differences of floats; writes of the same instant are not included in "up to".
ROUNDING_S: Final = 1e-6
#: Ranges per session: about 0.5 KB each. Above it the oldest are replaced by one floor for all other rows.
PINS_MAX: Final = 1024
#: The share of ranges that are dropped at once, so that dropping costs little per range.
_DROPPED: Final = 8


class Copy(NamedTuple):
    """A replica of a region at one start of one server."""

    start_key: bytes
    end_key: bytes
    region_id: int
    replica_id: int
    server: ServerName

    @classmethod
    def of(cls, place: RegionLocation) -> Copy:
        region = place.region
        return cls(region.start_key, region.end_key, region.region_id, region.replica_id, place.server)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a session has seen of some rows: the floor, and the secondary that is known to contain all of it, if any."""

    floor: float
    copy: Copy | None = None


def contains_all(seen: Seen | None, copy: Copy, as_of: float | None = None) -> bool:
    """Return True if this secondary contains all that the session has seen.

    ``as_of``: the secondary is known to contain every write that was acknowledged before this instant.
    """
    if seen is None or seen.copy == copy:
        return True
    return as_of is not None and as_of > seen.floor + ROUNDING_S


def after_read(seen: Seen | None, copy: Copy | None, *, as_of: float | None = None, now: float) -> Seen:
    """Return what the session has seen after an answer of a secondary, or of the primary (``copy`` is None)."""
    floor = now if seen is None else max(now, seen.floor)
    return Seen(floor, copy if copy is not None and contains_all(seen, copy, as_of) else None)


def after_write(seen: Seen | None, *, now: float, is_replicated: bool = True) -> Seen:
    """Return what the session has seen after a write, whatever its outcome was."""
    if not is_replicated:
        return Seen(NEVER)
    return Seen(now if seen is None else max(now, seen.floor))


def _merged(all_seen: Iterable[Seen]) -> Seen | None:
    """Return what was seen of several ranges together."""
    merged: Seen | None = None
    for seen in all_seen:
        if merged is None:
            merged = seen
        else:
            copy = seen.copy if seen.copy == merged.copy else None
            merged = Seen(max(merged.floor, seen.floor), copy)
    return merged


@dataclass(slots=True)
class _Ranges:
    """The ranges of one table: disjoint, in order; an end of ``b""`` is the end of the table."""

    starts: list[bytes] = field(default_factory=list)
    ends: list[bytes] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)

    def overlapping(self, start: bytes, end: bytes) -> tuple[int, int]:
        """Return the indexes ``[first, last)`` of the ranges that have rows in ``[start, end)``."""
        first = bisect_right(self.starts, start) - 1
        if first < 0 or (self.ends[first] and self.ends[first] <= start):
            first += 1
        return first, max(first, bisect_left(self.starts, end) if end else len(self.starts))

    def has_gap(self, start: bytes, end: bytes, first: int, last: int) -> bool:
        """Return True if some rows of ``[start, end)`` are in none of these ranges."""
        at = start
        for index in range(first, last):
            if self.starts[index] > at:
                return True
            at = self.ends[index]
            if not at:
                return False
        return first == last or keys.earlier_end(at, end) != end

    def replace(self, first: int, last: int, ranges: Iterable[tuple[bytes, bytes, Seen]]) -> None:
        made = list(ranges)
        self.starts[first:last] = [start for start, _, _ in made]
        self.ends[first:last] = [end for _, end, _ in made]
        self.seen[first:last] = [seen for _, _, seen in made]


class Pins:
    """What one session has seen, by table and range of rows. It has no lock: its owner guards it.

    A split or a merge needs no special case. What is recorded for the new region replaces the rows of it that older
    ranges had, and takes over what was seen of them.

    >>> pins = Pins()
    >>> pins.update(b"t", b"", b"", lambda seen: after_write(seen, now=1.0))
    >>> pins.update(b"t", b"", b"m", lambda seen: after_write(seen, now=2.0))
    >>> pins.seen(b"t", b"a"), pins.seen(b"t", b"m"), pins.seen(b"t", b"a", b"z"), pins.seen(b"u", b"a")
    (Seen(floor=2.0, copy=None), Seen(floor=1.0, copy=None), Seen(floor=2.0, copy=None), None)

    The number of ranges is bounded. The ranges with the oldest floors are dropped; the newest floor of them is from
    then on that of all rows without a range.

    >>> pins = Pins(ranges_max=2)
    >>> for number, row in enumerate([b"a", b"b", b"c"]):
    ...     pins.update(b"t", row, row + bytes(1), lambda seen: after_write(seen, now=float(number)))
    >>> len(pins), pins.seen(b"t", b"a"), pins.seen(b"t", b"x"), pins.seen(b"t", b"c")
    (2, Seen(floor=0.0, copy=None), Seen(floor=0.0, copy=None), Seen(floor=2.0, copy=None))
    """

    def __init__(self, ranges_max: int = PINS_MAX) -> None:
        self._ranges_max = ranges_max
        self._tables: dict[bytes, _Ranges] = {}
        self._count = 0
        #: What was seen of the rows that are in no range, after ranges were dropped.
        self.elsewhere: Seen | None = None
        self.dropped = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[bytes, bytes, bytes, Seen]]:
        """Iterate over (table, start, end, seen)."""
        for table, ranges in self._tables.items():
            for start, end, seen in zip(ranges.starts, ranges.ends, ranges.seen, strict=True):
                yield table, start, end, seen

    def seen(self, table: bytes, start: bytes, end: bytes | None = None) -> Seen | None:
        """Return what was seen of the rows ``[start, end)``; without an end, of one row."""
        end = start + b"\0" if end is None else end
        ranges = self._tables.get(table)
        if ranges is None:
            return self.elsewhere
        return self._over(ranges, start, end, *ranges.overlapping(start, end))

    def _over(self, ranges: _Ranges, start: bytes, end: bytes, first: int, last: int) -> Seen | None:
        found = ranges.seen[first:last]
        if self.elsewhere is not None and ranges.has_gap(start, end, first, last):
            found.append(self.elsewhere)
        return _merged(found)

    def update(self, table: bytes, start: bytes, end: bytes, change: Callable[[Seen | None], Seen]) -> None:
        """Replace what was seen of the rows ``[start, end)`` by the result of ``change``."""
        ranges = self._tables.setdefault(table, _Ranges())
        first, last = ranges.overlapping(start, end)
        made = [(start, end, change(self._over(ranges, start, end, first, last)))]
        if first < last:
            before, after = ranges.starts[first], ranges.ends[last - 1]
            if before < start:
                made.insert(0, (before, start, ranges.seen[first]))
            if end and (not after or after > end):
                made.append((end, after, ranges.seen[last - 1]))
        self._count += len(made) - (last - first)
        ranges.replace(first, last, made)
        if self._count > self._ranges_max:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        count = self._count - self._ranges_max + self._ranges_max // _DROPPED
        floors = sorted(seen.floor for _, _, _, seen in self)
        floor = floors[count - 1]
        known = self.elsewhere
        self.elsewhere = Seen(floor if known is None else max(floor, known.floor))
        for table, ranges in list(self._tables.items()):
            kept = [
                (start, end, seen)
                for start, end, seen in zip(ranges.starts, ranges.ends, ranges.seen, strict=True)
                if seen.floor > floor
            ]
            self.dropped += len(ranges.starts) - len(kept)
            self._count -= len(ranges.starts) - len(kept)
            ranges.replace(0, len(ranges.starts), kept)
            if not kept:
                del self._tables[table]
