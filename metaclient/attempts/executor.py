"""Starts, races and drains calls: the only module that carries out plans.

``call`` makes one attempt. On a blocking backend that honours deadlines it runs in the caller's own thread, so that a
STRONG read needs no switch of threads. On a pipelined backend the caller waits for the response. A backend that may
hang is called on a worker thread and the call is abandoned at the deadline. The number of abandoned calls is bounded,
because each holds a thread until the backend returns.

A call raises only subclasses of MetaClientError. A deadline that passed inside a call is raised as the CallTimeout of
that call, because the operation may still have time. A write that timed out, lost its connection or was cut off by
``close`` is marked ``may_have_applied``, whatever the backend reports.

A race carries out a plan of legs. A :class:`Contest` defines which calls a leg makes and what their outcomes mean:
``race`` runs the contest for one answer (a row, a page, a lookup); ``run_contest`` runs any other contest (many rows,
where a leg makes one call per server).

1. Start the first leg. Start the next leg when its time has come (a hedge needs the permission of the budget) or when
   every call that was started has failed.
2. The first *success* wins. A failure, or an answer that ``accept`` refuses, is collected and never ends the race while
   another leg is running or waiting. (HBase 3 lets the first completion win, even when it is an error.)
3. Calls that lost are cancelled if the transport can cancel, else drained in the background and counted. A response
   that arrives later or is refused (and may have opened a scanner) is passed to ``discard``.
4. When no leg is left, the error of the primary is raised, or the last error if the primary was not called. A FATAL
   error of the primary is raised at once.
5. A leg that is not started because a bound of the executor was reached is no evidence about its replica: the observer
   is not called.

Most races are won by their first call before another leg is due. Therefore the first call of a race for one answer is
made on its own (`Executor.open`), and the race is created only when that call has failed, was refused, or has not been
answered when the second leg is due. The race then continues with this `Opening`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Generic, TypeVar, cast

from metaclient.attempts.contest import (
    Contest,
    FirstAnswer,
    NoRoomError,
    Opening,
    RaceCall,
    RaceObserver,
    Target,
    Won,
    refusal_of,
)
from metaclient.attempts.plan import Leg, postponed
from metaclient.backend import Answer, Capabilities, SentPage
from metaclient.errors import CallTimeout, MetaClientError, Overloaded, note_interrupt, translated
from metaclient.runtime import Pending, Runtime

__all__ = ["Executor", "told"]

T = TypeVar("T")


L = TypeVar("L")
C = TypeVar("C", bound=RaceCall[Any, Any])
P = TypeVar("P", bound=Target)


class Executor:
    """Runs the calls of one connection."""

    def __init__(self, runtime: Runtime, capabilities: Capabilities, *, abandoned_max: int) -> None:
        self._runtime = runtime
        self._inline = capabilities.honours_deadline or capabilities.is_pipelined
        self._pipelined = capabilities.is_pipelined
        self._can_cancel = capabilities.can_cancel and capabilities.is_pipelined  # a thread cannot be cancelled
        self._abandoned_max = abandoned_max
        self._begin()
        runtime.on_fork(self._begin)

    def _begin(self) -> None:
        """Start without calls in flight, here and in a forked child."""
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
        """Make one attempt; ``deadline`` is passed as the last argument. Raises only subclasses of MetaClientError.

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
        except BaseException as interrupt:
            note_interrupt(interrupt, is_write=is_write)
            raise

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
        except BaseException as interrupt:
            note_interrupt(interrupt, is_write=is_write)
            raise

    def _awaited(self, pending: Pending[T], deadline: float, discard: Callable[[T], None] | None) -> T:
        try:
            is_over = self._runtime.wait_first((pending,), deadline) is not None
        except BaseException:  # interrupted: the caller has stopped waiting
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
                raise NoRoomError(str(error)) from error
        answer = function(*args)
        if isinstance(answer, Pending):
            return answer
        done: Pending[T] = self._runtime.pending()
        done.complete(answer)
        return done

    def begin_sent(self, sent: SentPage[T]) -> Pending[T]:
        """Read a page that was requested on a worker thread; drop it if no thread can read it."""
        try:
            self._check_room()
            pending = self._runtime.start(sent.read, name="call")
        except BaseException as error:
            sent.drop()
            if isinstance(error, Overloaded) and not isinstance(error, NoRoomError):
                raise NoRoomError(str(error)) from error
            raise
        pending.on_done(lambda _: sent.drop())  # a task that is cancelled before it begins does not read
        return pending

    def _check_room(self) -> None:
        if len(self._abandoned) >= self._abandoned_max:
            self._forget_ended()
        if len(self._abandoned) >= self._abandoned_max:
            raise NoRoomError(
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
        """Remove calls that have ended without a callback: an interrupt came before ``on_done`` was called."""
        with self._lock:
            self._abandoned = {pending for pending in self._abandoned if not pending.is_done}

    # -- many calls, one answer ------------------------------------------------------------------------------

    def race(
        self,
        legs: Sequence[Leg[P]],
        function: Callable[..., Answer[T]],
        *args: object,
        deadline: float,
        observer: RaceObserver[P],
        accept: Callable[[P, T], MetaClientError | None] | None = None,
        allow_hedge: Callable[[int], bool] = lambda _: True,
        discard: Callable[[T], None] | None = None,
        reorder: Callable[[MetaClientError, list[Leg[P]]], list[Leg[P]]] | None = None,
        watch: Callable[[P, Pending[T], float], bool] | None = None,
        ask_again_s: float = float("inf"),
        opening: Opening[T] | None = None,
        direct: Callable[..., Answer[T]] | None = None,
    ) -> Won[P, T]:
        """Carry out a plan whose legs call ``function(place, *args, deadline)``; see the module's docstring.

        ``reorder`` may change the remaining legs after a failure. ``watch`` is called with each outrun call and its
        start time, and returns True if the call shall continue. After a refused hedge, permission is requested again
        after 1, 2, 4 and 8 delays and so on, at least every ``ask_again_s``; never if that is infinite. ``opening`` is
        the call of the first leg, if it was made already. ``direct``, which may block, is for legs that never overlap.
        """
        is_sequential = opening is None and self._inline and _is_sequential(legs)
        if is_sequential:
            function = direct or function
        elif opening is None:
            opening = self._open_plan(legs, function, args, deadline, discard)
        refusal: MetaClientError | None = None
        if opening is not None and opening.is_answered:
            first, value = legs[0], cast("T", opening.answer)
            refusal = refusal_of(accept, first.place, value)
            if refusal is None:
                latency_s = self._runtime.now() - opening.started
                observer.leg_succeeded(first.place, latency_s)
                return Won(first, value, latency_s, 0)
        contest: FirstAnswer[P, T] = FirstAnswer(
            self._runtime,
            function,
            args=args,
            observer=observer,
            accept=accept,
            allow_hedge=allow_hedge,
            discard=discard,
            reorder=reorder,
            watch=watch,
        )
        race = _Race(self, contest, legs, deadline=deadline, ask_again_s=ask_again_s)
        try:
            if is_sequential:
                race.run_in_turn()
            else:
                race.run(opening, refusal)
            if contest.won is None:
                raise contest.verdict()
            return contest.won
        finally:
            contest.errors.clear()  # each error holds the frames of its call, and those hold the race
            if opening is not None:
                opening.error = None

    def _open_plan(
        self,
        legs: Sequence[Leg[P]],
        function: Callable[..., Answer[T]],
        args: tuple[object, ...],
        deadline: float,
        discard: Callable[[T], None] | None,
    ) -> Opening[T] | None:
        """Make the call of the first leg; None if there is no time for it."""
        started = self._runtime.now()
        if not legs or started >= deadline:
            return None
        until = call_deadline = min(deadline, started + legs[0].timeout_s)
        if len(legs) > 1:
            until = min(until, started + legs[1].after_s)
        args = function, legs[0].place, *args, call_deadline
        answer = self.open(self.begin, args, until, started, discard)
        return answer if isinstance(answer, Opening) else Opening(started, answer)

    def open(
        self,
        function: Callable[..., Answer[T]],
        args: tuple[object, ...],
        until: float,
        started: float,
        discard: Callable[[T], None] | None = None,
    ) -> T | Opening[T]:
        """Make the first call of a race, ``function(*args)``, and return its answer if it arrives until ``until``.

        An Opening is returned for a call that is still in flight and for one that has failed: the race continues.
        """
        pending: Pending[T] | None = None
        try:
            if len(self._abandoned) >= self._abandoned_max:
                self._check_room()
            answer = function(*args)
            if not isinstance(answer, Pending):
                return answer
            pending = answer
            return pending.result() if self._is_done_by(pending, until) else Opening(started, pending)
        except Exception as error:
            return Opening(started, None, error)
        except BaseException:  # interrupted: the caller has stopped waiting
            if pending is not None:
                self.abandon(pending, discard)
            raise

    def _is_done_by(self, pending: Pending[T], until: float) -> bool:
        if pending.is_done:
            return True
        return self._runtime.now() < until and self._runtime.wait_first((pending,), until) is not None

    def run_contest(
        self, legs: Sequence[Leg[L]], contest: Contest[L, C], *, deadline: float, ask_again_s: float = float("inf")
    ) -> None:
        """Carry out a plan until the contest is over or no leg is left."""
        _Race(self, contest, legs, deadline=deadline, ask_again_s=ask_again_s).run()


def _blocking(function: Callable[..., Answer[T]], *args: object) -> T:
    """Return the answer, and wait for it if the backend returns a Pending; the deadline is the last argument."""
    answer = function(*args)
    return answer if not isinstance(answer, Pending) else answer.result(cast("float", args[-1]))


def told(error: BaseException, *, is_write: bool = False) -> MetaClientError:
    """Return the MetaClientError for an exception of a call, as the module's docstring describes."""
    made = translated(error, is_write=is_write)
    if made.is_deadline:
        made = CallTimeout(str(error))
        made.__cause__ = error
    if is_write and made.hides_outcome:
        made.may_have_applied = True
    return made


def _is_sequential(legs: Sequence[Leg[P]]) -> bool:
    """Return True if each leg times out before the next one starts, so that no two legs run at once."""
    return all(before.after_s + before.timeout_s <= leg.after_s for before, leg in pairwise(legs))


class _Race(Generic[L, C]):
    """One race, from the start of its first leg until the contest is over."""

    def __init__(
        self,
        executor: Executor,
        contest: Contest[L, C],
        legs: Sequence[Leg[L]],
        *,
        deadline: float,
        ask_again_s: float,
    ) -> None:
        self._executor = executor
        self._runtime = executor._runtime
        self._contest = contest
        self._deadline = deadline
        self._ask_again_s = ask_again_s
        self._waiting: list[Leg[L]] = list(legs)
        self._running: list[C] = []

    # -- one after the other, in the caller's thread ---------------------------------------------------------

    def run_in_turn(self) -> None:
        """Run a plan in which no two calls run at the same time."""
        contest = self._contest
        while self._waiting and not contest.is_over:
            leg = self._waiting.pop(0)
            for call in contest.calls_of(leg, is_hedge=False):
                now = self._runtime.now()
                if now >= self._deadline:
                    contest.ran_out_of_time(leg)
                    return
                self._time(call, now)
                try:
                    value = self._executor.call(
                        call.function,
                        *call.args,
                        deadline=call.deadline,
                        is_write=contest.is_write,
                        discard=contest.discard,
                    )
                except MetaClientError as error:
                    self._waiting = contest.failed(call, error, self._waiting)
                else:
                    self._waiting = contest.succeeded(call, value, self._waiting, ())

    # -- side by side ----------------------------------------------------------------------------------------

    def run(self, opening: Opening[Any] | None = None, refusal: MetaClientError | None = None) -> None:
        """Run the race; ``opening`` is the call of the first leg, if it was made; ``refusal``: see `_enter`."""
        begun = self._runtime.now() if opening is None else opening.started
        try:
            if opening is not None:
                self._enter(opening, refusal)
            while True:
                self._collect()  # first: an answer that arrives at the end of the delay needs no hedge
                if self._contest.is_over:
                    return
                self._start_due(begun)
                if not self._running and not self._waiting:
                    return
                self._wait(begun)
        except BaseException as error:
            if not isinstance(error, Exception):
                note_interrupt(error, is_write=self._contest.is_write)
            raise
        finally:
            self._drop_losers()

    def _enter(self, opening: Opening[Any], refusal: MetaClientError | None) -> None:
        """Enter the call of the first leg with its outcome so far; ``refusal``: why its answer is not accepted."""
        contest = self._contest
        (call,) = contest.calls_of(self._waiting.pop(0), is_hedge=False)
        self._time(call, opening.started)
        if opening.error is not None:
            self._failed(call, opening.error)
        elif refusal is not None:
            if contest.discard is not None:
                contest.discard(opening.answer)
            self._waiting = contest.failed(call, refusal, self._waiting)
        else:
            assert isinstance(opening.answer, Pending), "an accepted answer ends the race"
            call.pending = opening.answer
            self._running.append(call)

    def _start_due(self, begun: float) -> None:
        while self._waiting:
            leg = self._waiting[0]
            now = self._runtime.now()
            by_failure = not self._running
            if not by_failure and now < begun + leg.after_s:
                return
            if now >= self._deadline:
                self._contest.ran_out_of_time(leg)
                self._waiting.clear()
                return
            # A leg that replaces failed legs is no hedge: no other call is in flight.
            is_hedge = leg.is_hedge and not by_failure
            calls = self._contest.calls_of(leg, is_hedge=is_hedge)
            if calls and is_hedge and not self._contest.allow_hedge(len(calls)):
                self._waiting = postponed(self._waiting, now - begun, wait_s_max=self._ask_again_s)
                return
            self._waiting.pop(0)
            for call in calls:
                self._begin(call)

    def _begin(self, call: C) -> None:
        self._time(call, self._runtime.now())
        try:
            call.pending = self._executor.begin(call.function, *call.args, call.deadline)
        except Exception as error:
            self._failed(call, error)
        else:
            self._running.append(call)

    def _time(self, call: C, now: float) -> None:
        call.started = now
        call.deadline = min(self._deadline, now + call.leg.timeout_s)

    def _failed(self, call: C, error: BaseException) -> None:
        made = told(error, is_write=self._contest.is_write)
        self._waiting = self._contest.failed(call, made, self._waiting)

    def _collect(self) -> None:
        """Process the calls that have ended, in the order of the plan, until the race is over."""
        now = self._runtime.now()
        for call in list(self._running):
            pending = call.pending
            assert pending is not None
            if pending.is_done:
                self._running.remove(call)
                error = pending.error()
                if error is not None:
                    self._failed(call, error)
                    continue
                self._waiting = self._contest.succeeded(call, pending.result(), self._waiting, self._running)
                if self._contest.is_over:
                    return
            elif now >= call.deadline:
                self._running.remove(call)
                self._executor.abandon(pending, self._contest.discard)
                self._failed(call, CallTimeout("no answer within its time"))

    def _wait(self, begun: float) -> None:
        """Wait until a call ends, a call times out, or the next leg is due."""
        instants = [call.deadline for call in self._running]
        if self._waiting and self._waiting[0].after_s != float("inf"):
            instants.append(begun + self._waiting[0].after_s)
        if self._running:
            self._runtime.wait_first([call.pending for call in self._running if call.pending], min(instants))

    def _drop_losers(self) -> None:
        for call in self._running:
            assert call.pending is not None
            is_watched = self._contest.outran(call)
            self._executor.abandon(call.pending, self._contest.discard, is_watched=is_watched)


def _hand_over(pending: Pending[T], discard: Callable[[T], None]) -> None:
    if pending.error() is None:
        discard(pending.result())
