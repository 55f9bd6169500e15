"""Remembers which log entries were committed, so that an entry that HBase sends again is recognised.

HBase sends entries again when an answer was lost or late, when a server crashed, and (2.x) from the start of the
current log when a peer is disabled and enabled. The key of an entry is its region and its sequence number. The numbers
of a region have gaps, which prove nothing: an edit with a number in a gap may still come, from the backlog of another
server. Therefore the memory is exact: it holds the numbers themselves, as runs of adjacent ones.

The memory is bounded. What is forgotten, the lowest numbers of a region and the oldest regions first, is delivered
again if HBase sends it again; it is never mistaken for a repeat.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise

__all__ = ["Repeats"]

#: Runs per region, and over all regions: about 100 bytes each. A region whose families are all replicated has one run
#: per time that it was opened.
RUNS_MAX_OF_REGION = 8192
RUNS_MAX = 262_144


class _Runs:
    """The numbers of one region: run ``i`` is ``starts[i]`` to ``ends[i]``, both inclusive, in ascending order."""

    __slots__ = ("ends", "starts")

    def __init__(self, starts: list[int] | None = None, ends: list[int] | None = None) -> None:
        self.starts = starts or []
        self.ends = ends or []

    def has(self, number: int) -> bool:
        index = bisect_right(self.starts, number) - 1
        return index >= 0 and number <= self.ends[index]

    def add(self, number: int) -> int:
        """Add a number that is not there; return by how much the number of runs has changed."""
        starts, ends = self.starts, self.ends
        index = bisect_right(starts, number)
        joins_left = index > 0 and ends[index - 1] == number - 1
        joins_right = index < len(starts) and starts[index] == number + 1
        if joins_left and joins_right:
            ends[index - 1] = ends.pop(index)
            del starts[index]
            return -1
        if joins_left:
            ends[index - 1] = number
            return 0
        if joins_right:
            starts[index] = number
            return 0
        starts.insert(index, number)
        ends.insert(index, number)
        return 1


class Repeats:
    """The committed entries of a subscription, by region. The owner guards it with a lock.

    >>> repeats = Repeats()
    >>> repeats.add("r", 4), repeats.add("r", 6), repeats.add("r", 5)
    (None, None, None)
    >>> repeats.has("r", 5), repeats.has("r", 7), repeats.dump()
    (True, False, {'r': [[4, 6]]})
    """

    def __init__(self, *, runs_max: int = RUNS_MAX, runs_max_of_region: int = RUNS_MAX_OF_REGION) -> None:
        self._runs_max = runs_max
        self._runs_max_of_region = runs_max_of_region
        self._regions: dict[str, _Runs] = {}
        self._count = 0
        self.forgotten = 0  # runs

    def has(self, region: str, sequence: int) -> bool:
        runs = self._regions.get(region)
        return runs is not None and bool(runs.ends) and sequence <= runs.ends[-1] and runs.has(sequence)

    def add(self, region: str, sequence: int) -> None:
        """Remember an entry. One that is known already changes nothing."""
        runs = self._regions.get(region)
        if runs is None:
            runs = self._regions[region] = _Runs()
        ends = runs.ends
        if ends and ends[-1] == sequence - 1:  # most entries follow the one before
            ends[-1] = sequence
            return
        if runs.has(sequence):
            return
        self._count += runs.add(sequence)
        if len(ends) > self._runs_max_of_region:
            self._drop_lowest(runs)
        while self._count > self._runs_max:
            self._drop_oldest(region)

    def _drop_lowest(self, runs: _Runs) -> None:
        del runs.starts[0], runs.ends[0]
        self._count -= 1
        self.forgotten += 1

    def _drop_oldest(self, keep: str) -> None:
        """Forget the region that is known longest, or the lowest run of the only one."""
        oldest = next(iter(self._regions))
        if oldest == keep:
            runs = self._regions.pop(oldest)
            self._regions[oldest] = runs  # as the newest
            if len(self._regions) == 1:
                self._drop_lowest(runs)
            return
        dropped = len(self._regions.pop(oldest).starts)
        self._count -= dropped
        self.forgotten += dropped

    # -- over restarts -------------------------------------------------------------------------------------------------

    def dump(self) -> dict[str, list[list[int]]]:
        """Return all runs, by region, oldest region first."""
        return {
            region: [list(run) for run in zip(runs.starts, runs.ends, strict=True)]
            for region, runs in self._regions.items()
        }

    def load(self, regions: Iterable[tuple[str, Iterable[Iterable[int]]]]) -> None:
        """Take over what :meth:`dump` returned; ValueError if it is something else."""
        for region, runs in regions:
            pairs = [tuple(run) for run in runs]
            flat = [number for pair in pairs for number in pair]
            is_sorted = all(one <= two for one, two in pairwise(flat))
            if not all(len(pair) == 2 for pair in pairs) or not is_sorted:
                raise ValueError(f"the runs of region {region!r} are not ascending pairs of numbers")
            self._regions[str(region)] = _Runs([pair[0] for pair in pairs], [pair[1] for pair in pairs])
            self._count += len(pairs)
