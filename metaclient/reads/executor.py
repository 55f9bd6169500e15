"""Starts, races and drains calls: the only place where a plan becomes action.

``call`` makes one attempt. On a blocking backend that honours deadlines it runs in the caller's own thread, so that a
STRONG read costs no hand-over. A pipelined answer is waited for. A backend that may hang is called on a worker thread
and abandoned at the deadline; abandoned calls are bounded, because each holds a thread until the backend lets go of
it.

``race`` carries out a plan of legs:

1. Start the first leg. Start the next when its time has come (a hedge needs the budget's leave) or when every leg that
   was started has failed.
2. The first *success* wins. A failure, or an answer that ``accept`` refuses, is collected and never ends the race while
   another leg is running or waiting. (HBase 3 lets the first completion win, even when it is an error.)
3. Losers are cancelled where the transport can, else drained in the background and counted; what a late winner brought
   (an open scanner) is handed to ``discard``.
4. When nothing is left, the primary's error is raised, else the last one. A FATAL error of the primary is final at
   once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, Protocol, TypeVar, cast

from metaclient.backend import Answer, Capabilities
from metaclient.errors import CallTimeout, DeadlineExceeded, Disposition, MetaClientError, Overloaded, translated
from metaclient.reads.plan import Leg
from metaclient.runtime import Pending, Runtime

__all__ = ["Executor", "RaceObserver", "Won"]

T = TypeVar("T")


class _Place(Protocol):
    """Where a leg goes: a meta replica or a region replica."""

    @property
    def replica_id(self) -> int: ...


P = TypeVar("P", bound=_Place)
P_contra = TypeVar("P_contra", bound=_Place, contravariant=True)


@dataclass(frozen=True, slots=True)
class Won(Generic[P, T]):
    """The race's outcome: whose answer it is, how long that leg took, and how many hedges were started."""

    leg: Leg[P]
    value: T
    latency_s: float
    hedges: int


class RaceObserver(Protocol[P_contra]):
    """Hears how each leg ended: health and counters live on it."""

    def leg_succeeded(self, place: P_contra, latency_s: float) -> None: ...

    def leg_failed(self, place: P_contra, error: MetaClientError, latency_s: float) -> None: ...


class _Running(Generic[P, T]):
    """A leg under way."""

    __slots__ = ("deadline", "leg", "pending", "started")

    def __init__(self, leg: Leg[P], pending: Pending[T], started: float, deadline: float) -> None:
        self.leg = leg
        self.pending = pending
        self.started = started
        self.deadline = deadline


class Executor:
    """Runs the calls of one connection."""

    def __init__(self, runtime: Runtime, capabilities: Capabilities, *, abandoned_max: int) -> None:
        self._runtime = runtime
        self._inline = capabilities.honours_deadline or capabilities.is_pipelined
        self._pipelined = capabilities.is_pipelined
        self._can_cancel = capabilities.can_cancel
        self._abandoned_max = abandoned_max
        self._lock = runtime.lock()
        # Guarded by the lock:
        self._abandoned = 0
        self.drained = 0
        self.cancelled = 0

    @property
    def abandoned(self) -> int:
        """Calls that were given up on and still hold a thread or a connection."""
        return self._abandoned

    # -- one call --------------------------------------------------------------------------------------------

    def call(self, function: Callable[..., Answer[T]], *args: object, deadline: float, is_write: bool = False) -> T:
        """Make one attempt; ``deadline`` is passed as the last argument. Raises only errors of our tree."""
        try:
            if self._inline:
                answer = function(*args, deadline)
                if isinstance(answer, Pending):
                    waited: T = self._awaited(answer, deadline, is_write)
                    return waited
                return answer
            return self._awaited(self._begin(function, *args, deadline), deadline, is_write)
        except MetaClientError:
            raise
        except Exception as error:
            raise translated(error, is_write=is_write) from error

    def _awaited(self, pending: Pending[T], deadline: float, is_write: bool) -> T:
        if self._runtime.wait_first((pending,), deadline) is None:
            self._abandon(pending)
            raise CallTimeout("no answer within its time", may_have_applied=is_write)
        return pending.result()

    def _begin(self, function: Callable[..., Answer[T]], *args: object) -> Pending[T]:
        """Start a call that does not block us: pipelined as it is, blocking on a worker."""
        if self._abandoned >= self._abandoned_max:
            raise Overloaded(
                f"{self._abandoned} calls that were given up on still hang in the backend "
                f"(abandoned_calls_max={self._abandoned_max}); it is not called again until some of them end"
            )
        if self._pipelined:
            answer = function(*args)
            if isinstance(answer, Pending):
                return answer
            done: Pending[T] = self._runtime.pending()
            done.complete(answer)
            return done
        return self._runtime.start(cast("Callable[..., T]", function), *args, name="call")

    def _abandon(self, pending: Pending[T]) -> None:
        """Nobody waits for it any more: take it back if the transport can, else count it until it ends."""
        if self._can_cancel:
            pending.cancel()
            self.cancelled += 1
            return
        with self._lock:
            self._abandoned += 1
        pending.on_done(self._reclaimed)

    def _reclaimed(self, pending: Pending[T]) -> None:
        with self._lock:
            self._abandoned -= 1
            self.drained += 1

    # -- many calls, one answer ------------------------------------------------------------------------------

    def race(
        self,
        legs: Sequence[Leg[P]],
        call: Callable[[P, float], Answer[T]],
        *,
        deadline: float,
        observer: RaceObserver[P],
        accept: Callable[[P, T], MetaClientError | None] | None = None,
        allow_hedge: Callable[[], bool] = lambda: True,
        discard: Callable[[T], None] | None = None,
        reorder: Callable[[MetaClientError, list[Leg[P]]], list[Leg[P]]] | None = None,
    ) -> Won[P, T]:
        """Carry out a plan; see the module's docstring. ``reorder`` may change what comes after a failure."""
        race = _Race(self, call, deadline, observer, accept, allow_hedge, discard, reorder)
        if self._inline and _is_sequential(legs):
            return race.run_in_turn(list(legs))
        return race.run(list(legs))


def _is_sequential(legs: Sequence[Leg[P]]) -> bool:
    """True when no two legs may run at once: each ends by its own time before the next would start."""
    return all(before.after_s + before.timeout_s <= leg.after_s for before, leg in pairwise(legs))


class _Race(Generic[P, T]):
    """One race; lives as long as its slowest leg."""

    def __init__(
        self,
        executor: Executor,
        call: Callable[[P, float], Answer[T]],
        deadline: float,
        observer: RaceObserver[P],
        accept: Callable[[P, T], MetaClientError | None] | None,
        allow_hedge: Callable[[], bool],
        discard: Callable[[T], None] | None,
        reorder: Callable[[MetaClientError, list[Leg[P]]], list[Leg[P]]] | None,
    ) -> None:
        self._executor = executor
        self._runtime = executor._runtime
        self._call = call
        self._deadline = deadline
        self._observer = observer
        self._accept = accept
        self._allow_hedge = allow_hedge
        self._discard = discard
        self._reorder = reorder
        self._waiting: list[Leg[P]] = []
        self._running: list[_Running[P, T]] = []
        self._errors: list[tuple[Leg[P], MetaClientError]] = []
        self._hedges = 0

    # -- one after the other, in the caller's thread ---------------------------------------------------------

    def run_in_turn(self, legs: list[Leg[P]]) -> Won[P, T]:
        self._waiting = legs
        while self._waiting:
            leg = self._waiting.pop(0)
            started = self._runtime.now()
            if started >= self._deadline:
                self._errors.append((leg, DeadlineExceeded("no time left for another try")))
                break
            until = min(self._deadline, started + leg.timeout_s)
            try:
                value = self._executor.call(self._call, leg.place, deadline=until)
            except MetaClientError as error:
                self._failed(leg, error, started)
                continue
            won = self._judged(leg, value, started)
            if won is not None:
                return won
        raise self._verdict()

    # -- side by side ----------------------------------------------------------------------------------------

    def run(self, legs: list[Leg[P]]) -> Won[P, T]:
        self._waiting = legs
        begun = self._runtime.now()
        try:
            while True:
                self._start_due(begun)
                won = self._collect()
                if won is not None:
                    return won
                if not self._running and not self._waiting:
                    raise self._verdict()
                self._wait(begun)
        finally:
            self._drop_losers()

    def _start_due(self, begun: float) -> None:
        while self._waiting:
            leg = self._waiting[0]
            now = self._runtime.now()
            by_failure = not self._running
            if not by_failure and now < begun + leg.after_s:
                return
            if now >= self._deadline:
                self._errors.append((leg, DeadlineExceeded("no time left for another try")))
                self._waiting.clear()
                return
            self._waiting.pop(0)
            # A leg that replaces failed ones is no hedge: nothing else is under way.
            if leg.is_hedge and not by_failure:
                if not self._allow_hedge():
                    self._waiting.insert(0, Leg(leg.place, float("inf"), leg.timeout_s, leg.is_hedge))
                    return
                self._hedges += 1
            self._begin(leg, now)

    def _begin(self, leg: Leg[P], now: float) -> None:
        until = min(self._deadline, now + leg.timeout_s)
        try:
            answer = self._executor._begin(self._call, leg.place, until)
        except Exception as error:
            self._failed(leg, translated(error), now)
            return
        self._running.append(_Running(leg, answer, now, until))

    def _collect(self) -> Won[P, T] | None:
        """Judge every leg that has ended, in the order of the plan."""
        now = self._runtime.now()
        for running in list(self._running):
            if running.pending.is_done:
                self._running.remove(running)
                error = running.pending.error()
                if error is not None:
                    self._failed(running.leg, translated(error), running.started)
                    continue
                won = self._judged(running.leg, running.pending.result(), running.started)
                if won is not None:
                    return won
            elif now >= running.deadline:
                self._running.remove(running)
                self._lose(running)
                self._failed(running.leg, CallTimeout("no answer within its time"), running.started)
        return None

    def _judged(self, leg: Leg[P], value: T, started: float) -> Won[P, T] | None:
        refusal = self._accept(leg.place, value) if self._accept is not None else None
        latency_s = self._runtime.now() - started
        if refusal is not None:
            self._failed(leg, refusal, started)
            return None
        self._observer.leg_succeeded(leg.place, latency_s)
        return Won(leg, value, latency_s, self._hedges)

    def _failed(self, leg: Leg[P], error: MetaClientError, started: float) -> None:
        self._errors.append((leg, error))
        self._observer.leg_failed(leg.place, error, self._runtime.now() - started)
        if leg.place.replica_id == 0 and error.disposition is Disposition.FATAL:
            raise error
        if self._reorder is not None:
            self._waiting = self._reorder(error, self._waiting)

    def _wait(self, begun: float) -> None:
        """Until a leg ends, a leg's own time is over, or the next one is due."""
        instants = [running.deadline for running in self._running]
        if self._waiting and self._waiting[0].after_s != float("inf"):
            instants.append(begun + self._waiting[0].after_s)
        if self._running:
            self._runtime.wait_first([running.pending for running in self._running], min(instants))

    def _drop_losers(self) -> None:
        for running in self._running:
            self._lose(running)

    def _lose(self, running: _Running[P, T]) -> None:
        if self._discard is not None:
            discard = self._discard
            running.pending.on_done(lambda pending: _hand_over(pending, discard))
        self._executor._abandon(running.pending)

    def _verdict(self) -> MetaClientError:
        primary = [error for leg, error in self._errors if leg.place.replica_id == 0]
        if primary or self._errors:
            return (primary or [self._errors[-1][1]])[0]
        return DeadlineExceeded("no time left")


def _hand_over(pending: Pending[T], discard: Callable[[T], None]) -> None:
    if pending.error() is None:
        discard(pending.result())
