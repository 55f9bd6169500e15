"""Starts, races and drains calls: the only place where a plan becomes action.

``call`` makes one attempt. On a blocking backend that honours deadlines it runs in the caller's own thread, so that a
STRONG read costs no hand-over. A pipelined answer is waited for. A backend that may hang is called on a worker thread
and abandoned at the deadline; abandoned calls are bounded, because each holds a thread until the backend lets go of
it.

What comes out of a call is an error of our tree, and an honest one: a deadline that passed inside a call is that
call's time-out, not the operation's end, and a write that timed out, broke or was cut off by ``close`` may have been
applied, whatever the backend says.

``race`` carries out a plan of legs:

1. Start the first leg. Start the next when its time has come (a hedge needs the budget's leave) or when every leg that
   was started has failed.
2. The first *success* wins. A failure, or an answer that ``accept`` refuses, is collected and never ends the race while
   another leg is running or waiting. (HBase 3 lets the first completion win, even when it is an error.)
3. Losers are cancelled where the transport can, else drained in the background and counted; what a late winner brought
   (an open scanner) is handed to ``discard``.
4. When nothing is left, the primary's error is raised, else the last one. A FATAL error of the primary is final at
   once.
5. A leg for which there is no room *here* says nothing about its replica: the observer does not hear of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic, Protocol, TypeVar, cast

from metaclient.attempts.plan import Leg
from metaclient.backend import Answer, Capabilities
from metaclient.errors import (
    BackendFault,
    CallTimeout,
    ConnectionClosed,
    DeadlineExceeded,
    Disposition,
    MetaClientError,
    Overloaded,
    translated,
)
from metaclient.runtime import Pending, Runtime

__all__ = ["Executor", "RaceObserver", "Won", "told"]

T = TypeVar("T")


class _Place(Protocol):
    """Where a leg goes: a meta replica or a region replica."""

    @property
    def replica_id(self) -> int: ...


P = TypeVar("P", bound=_Place)
P_contra = TypeVar("P_contra", bound=_Place, contravariant=True)


@dataclass(frozen=True, slots=True)
class Won(Generic[P, T]):
    """The race's outcome: whose answer it is, how long that leg took, and how many hedges were started.

    ``outran`` are the places that were asked and had neither answered nor failed yet: without any, a replica that
    answered replaced a primary that had failed.
    """

    leg: Leg[P]
    value: T
    latency_s: float
    hedges: int
    outran: tuple[P, ...] = ()


class RaceObserver(Protocol[P_contra]):
    """Receives the outcome of each leg, for health and counters."""

    def leg_succeeded(self, place: P_contra, latency_s: float) -> None: ...

    def leg_failed(self, place: P_contra, error: MetaClientError, latency_s: float) -> None: ...


class _NoRoomError(Overloaded):
    """A bound of the executor was reached: the call was not made."""


class _Running(Generic[P, T]):
    """A leg in flight."""

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
        self._can_cancel = capabilities.can_cancel and capabilities.is_pipelined  # a thread cannot be taken back
        self._abandoned_max = abandoned_max
        self._begin()
        runtime.on_fork(self._begin)

    def _begin(self) -> None:
        """Start without calls in flight: at first, and in a child process."""
        self._lock = self._runtime.lock()
        # Guarded by the lock:
        self._abandoned: set[Pending[Any]] = set()
        self.drained = 0
        self.cancelled = 0

    @property
    def abandoned(self) -> int:
        """The number of abandoned calls that still hold a thread or a connection."""
        return len(self._abandoned)

    # -- one call --------------------------------------------------------------------------------------------

    def call(
        self,
        function: Callable[..., Answer[T]],
        *args: object,
        deadline: float,
        is_write: bool = False,
        discard: Callable[[T], None] | None = None,
    ) -> T:
        """Make one attempt; ``deadline`` is passed as the last argument. Raises only errors of our tree.

        ``discard`` gets the answer if it arrives after the caller has stopped waiting.
        """
        try:
            if not self._inline:
                return self._awaited(self.begin(function, *args, deadline), deadline, discard)
            if self._pipelined:
                self._check_room()
            answer = function(*args, deadline)
            return answer if not isinstance(answer, Pending) else self._awaited(answer, deadline, discard)
        except Exception as error:
            made = told(error, is_write=is_write)
            try:
                raise made from made.__cause__
            finally:
                del made  # error -> traceback -> this frame -> error would be a cycle for every failed call

    def awaited(self, pending: Pending[T], deadline: float, *, is_write: bool = False) -> T:
        """Wait for a call that was started; abandon it at the deadline. Raises as ``call`` does."""
        try:
            return self._awaited(pending, deadline, None)
        except Exception as error:
            made = told(error, is_write=is_write)
            try:
                raise made from made.__cause__
            finally:
                del made  # error -> traceback -> this frame -> error would be a cycle for every failed call

    def _awaited(self, pending: Pending[T], deadline: float, discard: Callable[[T], None] | None) -> T:
        try:
            is_over = self._runtime.wait_first((pending,), deadline) is not None
        except BaseException:  # interrupted: nobody waits for it any more
            self.abandon(pending, discard)
            raise
        if not is_over:
            self.abandon(pending, discard)
            raise CallTimeout("no answer within its time")
        return pending.result()

    def begin(self, function: Callable[..., Answer[T]], *args: object) -> Pending[T]:
        """Start a call without blocking the caller: a blocking backend runs on a worker thread."""
        self._check_room()
        if not self._pipelined:
            try:
                return self._runtime.start(_blocking, function, *args, name="call")
            except Overloaded as error:
                raise _NoRoomError(str(error)) from error
        answer = function(*args)
        if isinstance(answer, Pending):
            return answer
        done: Pending[T] = self._runtime.pending()
        done.complete(answer)
        return done

    def _check_room(self) -> None:
        if len(self._abandoned) >= self._abandoned_max:
            self._forget_ended()
        if len(self._abandoned) >= self._abandoned_max:
            raise _NoRoomError(
                f"{len(self._abandoned)} calls that were given up on still hang in the backend "
                f"(abandoned_calls_max={self._abandoned_max}); it is not called again until some of them end"
            )

    def abandon(
        self, pending: Pending[T], discard: Callable[[T], None] | None = None, *, is_watched: bool = False
    ) -> None:
        """Abandon a call: cancel it if the transport can, else count it until it ends.

        A call that still waits for a thread is never made: a write must not be applied after its caller got an error.
        A watched call continues, because its end is observed.
        """
        if discard is not None:
            pending.on_done(lambda done: _hand_over(done, discard))
        if pending.is_done:
            return
        is_taken_back = self._can_cancel and not is_watched
        with self._lock:
            if is_taken_back:
                self.cancelled += 1
            else:
                self._abandoned.add(pending)
        if not is_watched:
            pending.cancel()
        if not is_taken_back:
            pending.on_done(self._reclaimed)

    def _reclaimed(self, pending: Pending[T]) -> None:
        with self._lock:
            self._abandoned.discard(pending)
            self.drained += 1

    def _forget_ended(self) -> None:
        """Forget calls that have ended and did not report it: an interrupt came before they were asked to."""
        with self._lock:
            self._abandoned = {pending for pending in self._abandoned if not pending.is_done}

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
        watch: Callable[[P, Pending[T], float], bool] | None = None,
        ask_again_s: float = float("inf"),
    ) -> Won[P, T]:
        """Carry out a plan; see the module's docstring.

        ``reorder`` may change the remaining legs after a failure. ``watch`` is called with each outrun call and its
        start time, and returns True if the call shall continue. A hedge that was not allowed asks again after
        ``ask_again_s``.
        """
        race = _Race(self, call, deadline, observer, accept, allow_hedge, discard, reorder, watch, ask_again_s)
        try:
            return race.run_in_turn(list(legs)) if self._inline and _is_sequential(legs) else race.run(list(legs))
        finally:
            race.errors.clear()  # each error holds the frames of its call, and those hold the race


def _blocking(function: Callable[..., Answer[T]], *args: object) -> T:
    """Return the answer, also of a backend that sometimes returns a Pending; the deadline is the last argument."""
    answer = function(*args)
    return answer if not isinstance(answer, Pending) else answer.result(cast("float", args[-1]))


def told(error: BaseException, *, is_write: bool = False) -> MetaClientError:
    """Return the error of our tree for an exception of a call: see the module's docstring."""
    if isinstance(error, DeadlineExceeded):
        made: MetaClientError = CallTimeout(str(error))
        made.__cause__ = error
    else:
        made = translated(error, is_write=is_write)
    if is_write and isinstance(made, CallTimeout | BackendFault | ConnectionClosed):
        made.may_have_applied = True
    return made


def _is_sequential(legs: Sequence[Leg[P]]) -> bool:
    """Return True if each leg times out before the next one starts, so that no two legs run at once."""
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
        watch: Callable[[P, Pending[T], float], bool] | None,
        ask_again_s: float,
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
        self._watch = watch
        self._ask_again_s = ask_again_s
        self._waiting: list[Leg[P]] = []
        self._running: list[_Running[P, T]] = []
        self.errors: list[tuple[Leg[P], MetaClientError]] = []
        self._hedges = 0

    # -- one after the other, in the caller's thread ---------------------------------------------------------

    def run_in_turn(self, legs: list[Leg[P]]) -> Won[P, T]:
        self._waiting = legs
        while self._waiting:
            leg = self._waiting.pop(0)
            started = self._runtime.now()
            if started >= self._deadline:
                self.errors.append((leg, DeadlineExceeded("no time left for another try")))
                break
            until = min(self._deadline, started + leg.timeout_s)
            try:
                value = self._executor.call(self._call, leg.place, deadline=until, discard=self._discard)
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
                won = self._collect()  # first: an answer that comes with the delay's end needs no hedge
                if won is not None:
                    return won
                self._start_due(begun)
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
                self.errors.append((leg, DeadlineExceeded("no time left for another try")))
                self._waiting.clear()
                return
            self._waiting.pop(0)
            # A leg that replaces failed ones is no hedge: nothing else is under way.
            if leg.is_hedge and not by_failure:
                if not self._allow_hedge():
                    again_s = now - begun + self._ask_again_s
                    self._waiting.insert(0, Leg(leg.place, again_s, leg.timeout_s, leg.is_hedge))
                    return
                self._hedges += 1
            self._begin(leg, now)

    def _begin(self, leg: Leg[P], now: float) -> None:
        until = min(self._deadline, now + leg.timeout_s)
        try:
            answer = self._executor.begin(self._call, leg.place, until)
        except Exception as error:
            self._failed(leg, told(error), now)
            return
        self._running.append(_Running(leg, answer, now, until))

    def _collect(self) -> Won[P, T] | None:
        """Process every leg that has ended, in the order of the plan."""
        now = self._runtime.now()
        for running in list(self._running):
            if running.pending.is_done:
                self._running.remove(running)
                error = running.pending.error()
                if error is not None:
                    self._failed(running.leg, told(error), running.started)
                    continue
                won = self._judged(running.leg, running.pending.result(), running.started)
                if won is not None:
                    return won
            elif now >= running.deadline:
                self._running.remove(running)
                self._executor.abandon(running.pending, self._discard)
                self._failed(running.leg, CallTimeout("no answer within its time"), running.started)
        return None

    def _judged(self, leg: Leg[P], value: T, started: float) -> Won[P, T] | None:
        latency_s = self._runtime.now() - started
        refusal = self._refusal(leg.place, value)
        if refusal is not None:
            self._failed(leg, refusal, started)
            return None
        self._observer.leg_succeeded(leg.place, latency_s)
        return Won(leg, value, latency_s, self._hedges, tuple(running.leg.place for running in self._running))

    def _refusal(self, place: P, value: T) -> MetaClientError | None:
        if self._accept is None:
            return None
        try:
            return self._accept(place, value)
        except MetaClientError:
            raise
        except Exception as error:  # the check of the answer itself failed
            return translated(error)

    def _failed(self, leg: Leg[P], error: MetaClientError, started: float) -> None:
        self.errors.append((leg, error))
        if isinstance(error, _NoRoomError):
            return
        self._observer.leg_failed(leg.place, error, self._runtime.now() - started)
        if leg.place.replica_id == 0 and error.disposition is Disposition.FATAL:
            raise error
        if self._reorder is not None:
            self._waiting = self._reorder(error, self._waiting)

    def _wait(self, begun: float) -> None:
        """Wait until a leg ends, a leg times out, or the next one is due."""
        instants = [running.deadline for running in self._running]
        if self._waiting and self._waiting[0].after_s != float("inf"):
            instants.append(begun + self._waiting[0].after_s)
        if self._running:
            self._runtime.wait_first([running.pending for running in self._running], min(instants))

    def _drop_losers(self) -> None:
        for running in self._running:
            is_watched = self._watch is not None and self._watch(running.leg.place, running.pending, running.started)
            self._executor.abandon(running.pending, self._discard, is_watched=is_watched)

    def _verdict(self) -> MetaClientError:
        primary = [error for leg, error in self.errors if leg.place.replica_id == 0]
        if primary or self.errors:
            return (primary or [self.errors[-1][1]])[0]
        return DeadlineExceeded("no time left")


def _hand_over(pending: Pending[T], discard: Callable[[T], None]) -> None:
    if pending.error() is None:
        discard(pending.result())
