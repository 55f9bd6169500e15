"""Measures how far region replicas are behind, on backends that do not report it, by a canary row in each region.

MongoDB's max staleness and the heartbeat tables of MySQL work alike. The clocks of processes and servers are not
compared. Each round of a watcher:

1. Reads the canary row of each region at the primary. The read begins at the instant ``t`` of this process, and shows
   the cell timestamp ``shown``.
2. Writes the time into each canary row, with a cell timestamp above ``shown``, unless another process does that
   (``read_only``).
3. Reads the canary row at each secondary, which shows the cell timestamp ``s``.

A cell with a timestamp above ``shown`` was not at the primary at the instant ``t``, so it was applied later. Every
write that was acknowledged before ``t`` was applied earlier. A replica applies edits in the order of its primary.
Therefore::

    a secondary that shows s is complete up to the latest t whose shown < s

The rule holds for several writers, for writers with wrong clocks, and for processes that only read.

It needs replicas that apply edits in order, as HBase 2 does. The sink of HBase 3 (``RegionReplicationSink``) drops the
edits of a replica that cannot be reached, and sends later edits before the flush that replaces the dropped ones has
ended: during such a flush the bound is too low.

>>> readings = CanaryReadings()
>>> readings.add(10.0, 500)  # at the instant 10 the primary shows the cell of the time 500
>>> readings.add(11.0, 600)
>>> readings.add(12.0, 700)
>>> readings.complete_as_of(600), readings.complete_as_of(700), readings.complete_as_of(800)
(10.0, 11.0, 12.0)
>>> readings.complete_as_of(500) is None  # nothing is known of the time before the first reading
True
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import islice
from types import TracebackType
from typing import Protocol

from metaclient import keys
from metaclient.errors import MetaClientError
from metaclient.model import Cell, Get, Put, RegionInfo, RegionLocation, RegionLocations, Result
from metaclient.runtime import Runtime

__all__ = ["CANARY", "CanaryCalls", "CanaryReadings", "FreshnessWatcher", "canary_row"]

_log = logging.getLogger(__name__)

#: The qualifier of the canary's cell, and the end of the key of its row.
CANARY = b"metaclient.canary"
#: How many timestamps are remembered per region: a replica that is further behind than so many rounds is unknown.
READINGS_MAX = 100
#: Regions per batch: the most rows of one call, as in a page of hbase:meta.
REGIONS_PER_BATCH = 1000
#: The shortest deadline of a batch: below it, a garbage collection would count as a failure.
DEADLINE_S_MIN = 1.0


def canary_row(region: RegionInfo) -> bytes | None:
    r"""Return the key of the region's canary row; None for a region that can have no row.

    It is the start key, a zero byte and the word ``metaclient.canary``. Where that is not inside of the region, or is
    too long for a key, it is the start key: the canary is then a cell of a row that the application may use.

    >>> canary_row(RegionInfo(b"t")), canary_row(RegionInfo(b"t", b"m", b"n"))
    (b'\x00metaclient.canary', b'm\x00metaclient.canary')
    >>> canary_row(RegionInfo(b"t", b"m", b"m\x00")), canary_row(RegionInfo(b"t", b"", b"\x00"))
    (b'm', None)
    """
    row = region.start_key + b"\x00" + CANARY
    if len(row) <= keys.ROW_LENGTH_MAX and region.contains(row):
        return row
    return region.start_key or None


class CanaryReadings:
    """What the primary of one region has shown: cell timestamp -> the latest instant at which a read of it began."""

    __slots__ = ("_begun", "_deleted")

    def __init__(self) -> None:
        self._begun: dict[int, float] = {}
        self._deleted = 0  # the highest timestamp that was deleted: a replica may still show it

    def add(self, begun: float, shown: int) -> None:
        """Record a STRONG read that began at an instant and showed a cell timestamp; 0 if there was no cell."""
        if self._begun and shown < max(self._begun):
            self._deleted = max(self._begun)
            self._begun.clear()
        if not shown:
            return  # a cell may have been deleted before: what replicas show of it proves nothing
        self._begun[shown] = begun
        if len(self._begun) > READINGS_MAX:
            del self._begun[min(self._begun)]

    def complete_as_of(self, shown: int) -> float | None:
        """Return the instant up to which a replica is complete that shows this timestamp; None if it is not known."""
        if shown <= self._deleted:
            return None
        return max((begun for earlier, begun in self._begun.items() if earlier < shown), default=None)


class CanaryCalls(Protocol):
    """The calls of a connection that a watcher makes; every outcome is a result or an error."""

    def walk_regions(self, table: bytes, deadline: float) -> Iterator[RegionLocations]:
        """Iterate over the regions of a table in the order of keys; cached locations cost no call."""
        ...

    def get_each(
        self, table: bytes, gets: Sequence[Get], replica_id: int, deadline: float
    ) -> Sequence[tuple[object, RegionLocation | None]]:
        """Read rows at one replica id; return an outcome and a location per row."""
        ...

    def put_each(self, table: bytes, puts: Sequence[Put], deadline: float) -> Sequence[object]:
        """Write rows; return an outcome per row."""
        ...

    def learn_lag(self, place: RegionLocation, as_of: float) -> None:
        """Record that every write acknowledged before ``as_of`` is in this replica."""
        ...


class FreshnessWatcher:
    """Measures the lag of a table's replicas in the background until it is closed; see the module's docstring.

    A context manager. It ends with its connection. A round that fails in part is logged and counted, and the next round
    tries again: splits, merges and moves are followed, because each round begins with the current regions.
    """

    def __init__(
        self,
        calls: CanaryCalls,
        runtime: Runtime,
        table: bytes,
        family: bytes,
        *,
        interval_s: float,
        is_read_only: bool,
        timeout_s: float,
    ) -> None:
        self.table = table
        self.interval_s = interval_s
        self.is_read_only = is_read_only
        #: Rounds so far, and the reads and writes of canary rows that have failed.
        self.rounds = 0
        self.failures = 0
        self._calls = calls
        self._runtime = runtime
        self._column = family + b":" + CANARY
        self._timeout_s = min(max(interval_s, DEADLINE_S_MIN), timeout_s)
        self._readings: dict[bytes, CanaryReadings] = {}  # by canary row; only the watcher's task uses it
        self._lock = runtime.lock()
        self._wake = runtime.condition(self._lock)
        self._is_closed = False  # guarded by the lock
        self._task = runtime.start_daemon(self._run, name="watch-freshness")

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "read only" if self.is_read_only else "writes"
        return f"<metaclient.FreshnessWatcher {keys.printable(self.table)} every {self.interval_s:g} s, {state}>"

    @property
    def is_closed(self) -> bool:
        """True if it no longer measures."""
        return self._is_closed

    def close(self) -> None:
        """Stop measuring; what is known grows older from now on. The round in progress may still end. Idempotent."""
        with self._lock:
            self._is_closed = True
            self._wake.notify_all()

    def __enter__(self) -> FreshnessWatcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- rounds ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_closed:
            due = self._runtime.now() + self.interval_s
            try:
                self._round()
            except MetaClientError as error:
                if error.ends_connection:
                    self.close()
                    return
                self._count_failure(error)
            self.rounds += 1
            with self._lock:
                while not self._is_closed and self._runtime.now() < due:
                    self._wake.wait(due)

    def _round(self) -> None:
        failures = self.failures
        regions = self._regions()
        rows: set[bytes] = set()
        while some := list(islice(regions, REGIONS_PER_BATCH)):
            canaries = {row: entry for entry in some if (row := canary_row(entry.region)) is not None}
            rows.update(canaries)
            self._measure(canaries)
        if self.failures == failures:
            for gone in self._readings.keys() - rows:
                del self._readings[gone]

    def _regions(self) -> Iterator[RegionLocations]:
        """Iterate over the regions up to the first one that cannot be located."""
        try:
            yield from self._calls.walk_regions(self.table, self._deadline())
        except MetaClientError as error:
            if error.ends_connection:
                raise
            self._count_failure(error)

    def _deadline(self) -> float:
        return self._runtime.now() + self._timeout_s

    def _measure(self, canaries: dict[bytes, RegionLocations]) -> None:
        gets = [Get(row, (self._column,)) for row in canaries]
        begun = self._runtime.now()
        primaries = self._calls.get_each(self.table, gets, 0, self._deadline())
        shown: dict[bytes, int] = {}
        for get, (outcome, _) in zip(gets, primaries, strict=True):
            if isinstance(outcome, Result):
                shown[get.row] = self._timestamp(outcome)
                self._readings.setdefault(get.row, CanaryReadings()).add(begun, shown[get.row])
            else:
                self._count_failure(outcome)
        if not self.is_read_only and shown:
            self._write(shown)
        for replica_id in range(1, max((len(entry.replicas) for entry in canaries.values()), default=0)):
            of_replica = [get for get in gets if replica_id < len(canaries[get.row].replicas)]
            self._read_replica(of_replica, replica_id)

    def _write(self, shown: dict[bytes, int]) -> None:
        now_ms = self._runtime.time_ms()
        value = b"%d" % now_ms
        puts = [Put(row, (Cell(self._column, max(now_ms, before + 1), value),)) for row, before in shown.items()]
        for outcome in self._calls.put_each(self.table, puts, self._deadline()):
            if outcome is not None:
                self._count_failure(outcome)

    def _read_replica(self, gets: Sequence[Get], replica_id: int) -> None:
        answers = self._calls.get_each(self.table, gets, replica_id, self._deadline())
        for get, (outcome, place) in zip(gets, answers, strict=True):
            if not isinstance(outcome, Result) or place is None:
                self._count_failure(outcome)
                continue
            readings = self._readings.get(get.row)
            as_of = None if readings is None else readings.complete_as_of(self._timestamp(outcome))
            if as_of is not None:
                self._calls.learn_lag(place, as_of)

    def _timestamp(self, result: Result) -> int:
        return max((cell.timestamp for cell in result.cells if cell.column == self._column), default=0)

    def _count_failure(self, error: object) -> None:
        self.failures += 1
        _log.debug("a canary row of table %s was not read or written: %s", keys.printable(self.table), error)
