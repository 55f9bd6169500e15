"""Decides whether an entry may be pushed to a serial peer now, so that a region's edits arrive in their order.

The edits of a region are in the logs of all servers that had it open. Its barriers (:mod:`.barriers`) cut its sequence
ids into ranges, and each range is in the logs of one server. For an entry with sequence id ``s``, with the sorted
barriers ``B``, and ``k`` = how many of them are at most ``s``:

1. ``s`` is below the known end of a range that may be pushed: yes, without a read of hbase:meta.
2. ``s`` follows the entry that was checked before: yes, without a read.
3. ``k = 0``: yes. The entry is older than the first barrier.
4. ``k = 1``: every parent with barriers must have pushed up to its last barrier - 1.
5. ``k > 1``: the region must have pushed up to ``B[k-1] - 1``, the end of the range before.
6. ``k = |B|`` and the region is OPENING: no. The marker of an open is logged before its barrier is in hbase:meta, so
   the entry may belong to the next range.

Mirrors ``SerialReplicationChecker`` (HBase 2.6). DIVERGENCE: HBase forgets what it knows of a region that was not used
for a day; here the number of regions is bounded. Whatever is forgotten is read again from hbase:meta.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from metaclient import keys
from metaclient.replication_peers import BlockedRegion
from metaclient_fake.replication.barriers import Barriers
from metaclient_fake.storage.wal import WalEntry

__all__ = ["BarrierReads", "SerialChecker"]

#: Regions whose ranges are remembered.
_REGIONS_MAX = 10_000
_OPENING = "OPENING"


class BarrierReads(Protocol):
    """The reads of hbase:meta that the check needs; see :class:`.barriers.MetaBarriers`."""

    def of_entry(self, entry: WalEntry) -> Barriers: ...

    def of_region(self, name: bytes) -> Barriers: ...


class _Known:
    """What is known of a region: the last entry that may be pushed, and the end of its range if it has one."""

    __slots__ = ("last", "under")

    def __init__(self, last: int, under: int | None) -> None:
        self.last = last
        self.under = under


class SerialChecker:
    """The check of one log group of one source, used by its reader only.

    ``pushed`` returns the last sequence id of a region (by its encoded name) that the peer has acknowledged, or -1.
    """

    def __init__(self, barriers: BarrierReads, pushed: Callable[[str], int]) -> None:
        self._barriers = barriers
        self._pushed = pushed
        self._known: OrderedDict[str, _Known] = OrderedDict()

    def may_push(self, entry: WalEntry) -> bool:
        """Return True if the entry may be pushed now. Errors of the reads are raised: the caller asks again later."""
        return self.blocked_by(entry) is None

    def blocked_by(self, entry: WalEntry) -> BlockedRegion | None:
        """Return what the entry waits for; None if it may be pushed now. Raises as :meth:`may_push`."""
        waits_for = None if self._is_known_to_follow(entry) else self._check(entry)
        if waits_for is None:
            return None
        return BlockedRegion(region=entry.region, sequence_id=entry.sequence_id, waits_for=waits_for)

    def _is_known_to_follow(self, entry: WalEntry) -> bool:
        known = self._known.get(entry.region)
        if known is None:
            return False
        if known.under is not None:
            if entry.sequence_id < known.under:
                return True
            known.under = None
        if entry.sequence_id == known.last + 1:
            known.last += 1
            return True
        return False

    def _check(self, entry: WalEntry) -> str | None:
        found = self._barriers.of_entry(entry)
        barriers = found.barriers
        index = bisect_right(barriers, entry.sequence_id)
        if index == 0:
            return None
        if index == 1:
            waits_for = next(filter(None, map(self._unfinished_parent, found.parents)), None)
        else:
            waits_for = self._unfinished_range(entry.region, barriers[index - 1])
        is_last = index == len(barriers)
        if waits_for is None and is_last and found.state == _OPENING:
            waits_for = f"region {entry.region} to be OPEN; it is OPENING"
        if waits_for is None:
            self._remember(entry, None if is_last else barriers[index])
        return waits_for

    def _unfinished_parent(self, name: bytes) -> str | None:
        barriers = self._barriers.of_region(name).barriers
        return self._unfinished_range(keys.encoded_region_name(name), barriers[-1]) if barriers else None

    def _unfinished_range(self, region: str, end: int) -> str | None:
        """Return None if everything before the barrier ``end`` is pushed: a region opens with its last id + 1."""
        pushed = self._pushed(region)
        if pushed >= end - 1:
            return None
        return f"region {region} to be shipped up to sequence id {end - 1}; it is shipped up to {pushed}"

    def _remember(self, entry: WalEntry, under: int | None) -> None:
        self._known[entry.region] = _Known(entry.sequence_id, under)
        self._known.move_to_end(entry.region)
        if len(self._known) > _REGIONS_MAX:
            self._known.popitem(last=False)
