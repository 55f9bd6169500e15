"""Decides, for the reads of one session, which secondaries are called and which of their answers are accepted.

The rules are in :mod:`metaclient.freshness.pins`. This module supplies the instant up to which a secondary is known to
be complete, from the first of these sources that has one:

1. the answer itself, where the backend states its age (``Row.lag_s``);
2. ``known_as_of``, what the connection has learned about the replica before the call, from earlier answers or from a
   canary (:mod:`metaclient.freshness.canary`);
3. ``replica_lag_max_s``, a bound that the user states: no replica is ever further behind.

A secondary that may contain everything is called, and its answer is checked before it is returned. An answer that
cannot be shown to contain everything that the session has seen is refused, and the primary is called. Refused answers
cost a call, so that a secondary whose last stated lag would lead to a refusal is not called, and a backend that has
once answered without a lag is not expected to state one later.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from metaclient import keys
from metaclient.errors import TooStale
from metaclient.freshness import tokens
from metaclient.freshness.pins import Copy, Pins, Seen, after_read, after_write, contains_all
from metaclient.model import RegionLocation
from metaclient.runtime import Runtime

__all__ = ["RangeReads", "RowReads", "SessionState"]

#: How many replicas' last lags are remembered; the oldest is forgotten first, and costs at most one refused answer.
LAGS_MAX = 1024


def _unknown(place: RegionLocation) -> float | None:
    return None


class SessionState:
    """What one session has seen, and its counters; threads may share it."""

    def __init__(
        self,
        runtime: Runtime,
        pins: Pins,
        *,
        replica_lag_max_s: float | None = None,
        known_as_of: Callable[[RegionLocation], float | None] = _unknown,
    ) -> None:
        self._runtime = runtime
        self._now = runtime.now
        self._replica_lag_max_s = replica_lag_max_s
        self._known_as_of = known_as_of
        self._renew_lock()
        runtime.on_fork(self._renew_lock)
        # Guarded by the lock:
        self._pins = pins
        self._lags_s: dict[Copy, float] = {}
        self._states_lag: bool | None = None  # None until a secondary has answered
        self._counts = {"primary": 0, "replica": 0, "undecided": 0, "refused": 0, "moved_back": 0}

    def _renew_lock(self) -> None:
        self._lock = self._runtime.lock()

    def token(self) -> bytes:
        """Return what was seen so far, for a session in another process."""
        with self._lock:
            return tokens.encode(self._pins)

    def counts(self) -> dict[str, int]:
        """Return the counters."""
        with self._lock:
            return {**self._counts, "ranges": len(self._pins), "dropped": self._pins.dropped}

    # -- recording -------------------------------------------------------------------------------------------

    def wrote(self, table: bytes, start: bytes, end: bytes, *, is_replicated: bool) -> None:
        """Record a write of rows in ``[start, end)`` that has ended, whatever its outcome was."""
        change = partial(after_write, now=self._now(), is_replicated=is_replicated)
        with self._lock:
            self._pins.update(table, start, end, change)

    def saw(self, table: bytes, start: bytes, end: bytes, copy: Copy | None, as_of: float | None) -> None:
        """Record an answer about rows in ``[start, end)``; ``copy`` is None if the primary answered."""
        now = self._now()

        def change(seen: Seen | None) -> Seen:
            after = after_read(seen, copy, as_of=as_of, now=now)
            self._counts["moved_back"] += after.copy is not None and seen is not None and seen.copy is None
            return after

        with self._lock:
            self._counts["primary" if copy is None else "replica"] += 1
            self._pins.update(table, start, end, change)

    # -- decisions -------------------------------------------------------------------------------------------

    def known_as_of(self, place: RegionLocation) -> float | None:
        """Return the instant up to which a secondary is known to be complete."""
        return self._known_as_of(place)

    def may_call(
        self, place: RegionLocation, start: bytes, end: bytes | None, known_as_of: float | None = None
    ) -> bool:
        """Return True if the secondary may contain all that was seen of the rows ``[start, end)``."""
        copy, now = Copy.of(place), self._now()
        with self._lock:
            seen = self._pins.seen(place.region.table, start, end)
            if contains_all(seen, copy, known_as_of):
                return True
            lag_s = self._lags_s.get(copy, self._replica_lag_max_s)
            if lag_s is None:
                is_permitted = self._states_lag is not False  # nothing is known yet: its answer will be checked
            else:
                is_permitted = contains_all(seen, copy, now - lag_s)
            if not is_permitted:
                self._counts["undecided"] += 1
            return is_permitted

    def accepted(
        self,
        place: RegionLocation,
        start: bytes,
        end: bytes | None,
        lag_s: float | None,
        *,
        since: float,
        known_as_of: float | None = None,
    ) -> tuple[bool, float | None]:
        """Return whether the answer of a secondary contains all that was seen, and up to when it is complete.

        ``known_as_of`` must have been read before the call: what is learned later may be about edits that arrived
        after the row was read.
        """
        copy = Copy.of(place)
        with self._lock:
            self._learn(copy, lag_s)
            stated_s = lag_s if lag_s is not None else self._replica_lag_max_s
            instants = (known_as_of, None if stated_s is None else since - stated_s)
            as_of = max((instant for instant in instants if instant is not None), default=None)
            is_accepted = contains_all(self._pins.seen(place.region.table, start, end), copy, as_of)
            if not is_accepted:
                self._counts["refused"] += 1
            return is_accepted, as_of

    def _learn(self, copy: Copy, lag_s: float | None) -> None:
        if lag_s is None:
            self._states_lag = bool(self._states_lag)
            return
        self._states_lag = True
        self._lags_s.pop(copy, None)
        self._lags_s[copy] = lag_s
        if len(self._lags_s) > LAGS_MAX:
            del self._lags_s[next(iter(self._lags_s))]


class _Reads:
    """The guard of one read: keeps up to when the accepted answers are complete."""

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self._as_of: dict[Copy, float | None] = {}
        self._known_before: dict[Copy, float | None] = {}

    def _range(self, place: RegionLocation, row: bytes) -> tuple[bytes, bytes | None]:
        raise NotImplementedError

    def may_call(self, place: RegionLocation, row: bytes) -> bool:
        """Return True if this secondary may contain all that the session has seen."""
        known = self._known_before[Copy.of(place)] = self._state.known_as_of(place)
        return self._state.may_call(place, *self._range(place, row), known)

    def refusal(self, place: RegionLocation, row: bytes, lag_s: float | None, *, since: float) -> TooStale | None:
        """Return None if the answer contains all that the session has seen, else the reason."""
        copy = Copy.of(place)
        is_accepted, as_of = self._state.accepted(
            place, *self._range(place, row), lag_s, since=since, known_as_of=self._known_before.get(copy)
        )
        if is_accepted:
            self._as_of[copy] = as_of
            return None
        return TooStale(
            f"replica {place.replica_id} at {place.server} may lack what this session has seen of region "
            f"{keys.printable(place.region_name)}"
        )


class RowReads(_Reads):
    """The guard of reads of single rows."""

    def _range(self, place: RegionLocation, row: bytes) -> tuple[bytes, bytes | None]:
        return row, None

    def saw(self, place: RegionLocation) -> None:
        """Record the answer of one location."""
        region = place.region
        copy = Copy.of(place) if region.replica_id else None
        as_of = None if copy is None else self._as_of.get(copy)
        self._state.saw(region.table, region.start_key, region.end_key, copy, as_of)


class RangeReads(_Reads):
    """The guard of a scan: a secondary must contain all that was seen of its region."""

    def __init__(self, state: SessionState, table: bytes, start: bytes, end: bytes) -> None:
        super().__init__(state)
        self._table = table
        self._start = start
        self._end = end

    def _range(self, place: RegionLocation, row: bytes) -> tuple[bytes, bytes | None]:
        return place.region.start_key, place.region.end_key

    def saw_page(self, place: RegionLocation | None, lag_s: float | None, *, since: float) -> None:
        """Record a page; the scanner of a gateway reads the primaries of the whole range."""
        if place is None:
            self._state.saw(self._table, self._start, self._end, None, None)
            return
        region = place.region
        copy = Copy.of(place) if region.replica_id else None
        # Not of this page: a scanner shows the rows of the instant at which it was opened.
        as_of = None if copy is None else self._as_of.get(copy)
        self._state.saw(region.table, region.start_key, region.end_key, copy, as_of)
