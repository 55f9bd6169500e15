"""The rules of a race, without its timing: the calls of each leg, what their outcomes mean, and which leg has won.

:mod:`metaclient.attempts.executor` runs a contest. `FirstAnswer` is the contest for one answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from metaclient.attempts.plan import Leg
from metaclient.backend import Answer
from metaclient.errors import DeadlineExceeded, Disposition, MetaClientError, Overloaded, translated
from metaclient.runtime import Pending, Runtime

__all__ = [
    "Contest",
    "FirstAnswer",
    "NoRoomError",
    "Opening",
    "RaceCall",
    "RaceObserver",
    "Target",
    "Won",
    "refusal_of",
]

T = TypeVar("T")


class Target(Protocol):
    """The target of a leg: a meta replica or a region replica."""

    @property
    def replica_id(self) -> int: ...


L = TypeVar("L")
C = TypeVar("C", bound="RaceCall[Any, Any]")
P = TypeVar("P", bound=Target)
P_contra = TypeVar("P_contra", bound=Target, contravariant=True)


@dataclass(frozen=True, slots=True)
class Won(Generic[P, T]):
    """The outcome of a race: the leg that won, its answer and latency, and the number of hedges that were started.

    ``outran`` are the places that were called and had neither answered nor failed yet. If it is empty and a secondary
    won, the primary had failed or was not called.
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


class NoRoomError(Overloaded):
    """The call was not made, because a bound of the executor was reached."""


@dataclass(slots=True, eq=False)
class RaceCall(Generic[L, T]):
    """One call of a race; ``function`` gets ``args`` and the deadline. The race fills in the other fields."""

    leg: Leg[L]
    function: Callable[..., Answer[T]]
    args: tuple[object, ...]
    started: float = 0.0
    deadline: float = 0.0
    pending: Pending[T] | None = None


class Opening(Generic[T]):
    """The first call of a race, which was made before the race: when it started, and its outcome so far.

    ``answer`` is a Pending while the call is in flight; None beside an error.
    """

    __slots__ = ("answer", "error", "started")

    def __init__(self, started: float, answer: Answer[T] | None, error: BaseException | None = None) -> None:
        self.started = started
        self.answer = answer
        self.error = error

    @property
    def is_answered(self) -> bool:
        return self.error is None and not isinstance(self.answer, Pending)


class Contest(Protocol[L, C]):
    """The rules of a race: the calls of each leg, and what their outcomes mean. Called by one thread."""

    is_write: bool
    discard: Callable[[Any], None] | None

    @property
    def is_over(self) -> bool:
        """True if no other answer is needed."""

    def calls_of(self, leg: Leg[L], *, is_hedge: bool) -> Sequence[C]:
        """Return the calls that a leg makes now; a hedge runs beside other calls."""

    def allow_hedge(self, calls: int) -> bool:
        """Return True if that many extra calls may be made now."""

    def succeeded(self, call: C, value: Any, waiting: list[Leg[L]], running: Sequence[C]) -> list[Leg[L]]:
        """Process an answer; return the legs that still wait."""

    def failed(self, call: C, error: MetaClientError, waiting: list[Leg[L]]) -> list[Leg[L]]:
        """Process a failure; return the legs that still wait. May raise to end the race."""

    def ran_out_of_time(self, leg: Leg[L]) -> None:
        """Record that this leg was not started, because the deadline had passed."""

    def outran(self, call: C) -> bool:
        """Record a call that was outrun; return True if it shall continue."""


class FirstAnswer(Generic[P, T]):
    """The contest for one answer: the first success that is accepted wins."""

    is_write = False

    def __init__(
        self,
        runtime: Runtime,
        function: Callable[..., Answer[T]],
        *,
        args: tuple[object, ...],
        observer: RaceObserver[P],
        accept: Callable[[P, T], MetaClientError | None] | None,
        allow_hedge: Callable[[int], bool],
        discard: Callable[[T], None] | None,
        reorder: Callable[[MetaClientError, list[Leg[P]]], list[Leg[P]]] | None,
        watch: Callable[[P, Pending[T], float], bool] | None,
    ) -> None:
        self._now = runtime.now
        self._function = function
        self._args = args
        self._observer = observer
        self._accept = accept
        self._allow_hedge = allow_hedge
        self.discard = discard
        self._reorder = reorder
        self._watch = watch
        self._hedges = 0
        self.errors: list[tuple[Leg[P], MetaClientError]] = []
        self.won: Won[P, T] | None = None

    @property
    def is_over(self) -> bool:
        return self.won is not None

    def calls_of(self, leg: Leg[P], *, is_hedge: bool) -> Sequence[RaceCall[P, T]]:
        return (RaceCall(leg, self._function, (leg.place, *self._args)),)

    def allow_hedge(self, calls: int) -> bool:
        is_allowed = self._allow_hedge(calls)
        self._hedges += is_allowed
        return is_allowed

    def succeeded(
        self, call: RaceCall[P, T], value: T, waiting: list[Leg[P]], running: Sequence[RaceCall[P, T]]
    ) -> list[Leg[P]]:
        leg, latency_s = call.leg, self._now() - call.started
        refusal = refusal_of(self._accept, leg.place, value)
        if refusal is not None:
            if self.discard is not None:
                self.discard(value)  # an answer that is refused may have an open scanner
            return self.failed(call, refusal, waiting)
        self._observer.leg_succeeded(leg.place, latency_s)
        self.won = Won(leg, value, latency_s, self._hedges, tuple(other.leg.place for other in running))
        return waiting

    def failed(self, call: RaceCall[P, T], error: MetaClientError, waiting: list[Leg[P]]) -> list[Leg[P]]:
        place = call.leg.place
        self.errors.append((call.leg, error))
        if isinstance(error, NoRoomError):
            return waiting
        self._observer.leg_failed(place, error, self._now() - call.started)
        if place.replica_id == 0 and error.disposition is Disposition.FATAL:
            raise error
        return waiting if self._reorder is None else self._reorder(error, waiting)

    def ran_out_of_time(self, leg: Leg[P]) -> None:
        self.errors.append((leg, DeadlineExceeded("no time left for another try")))

    def outran(self, call: RaceCall[P, T]) -> bool:
        if self._watch is None or call.pending is None:
            return False
        return self._watch(call.leg.place, call.pending, call.started)

    def verdict(self) -> MetaClientError:
        """Return the error of a race that no leg won: the error of the primary, else the last error."""
        primary = [error for leg, error in self.errors if leg.place.replica_id == 0]
        if primary or self.errors:
            return (primary or [self.errors[-1][1]])[0]
        return DeadlineExceeded("no time left")


def refusal_of(accept: Callable[[P, T], MetaClientError | None] | None, place: P, value: T) -> MetaClientError | None:
    """Return the reason not to use this answer; None if it is accepted."""
    if accept is None:
        return None
    try:
        return accept(place, value)
    except MetaClientError:
        raise
    except Exception as error:  # the check of the answer itself failed
        return translated(error)
