"""Decides whether, when and how often a failed operation is retried, by the disposition of its error, with tenacity.

The retry loop starts only after a first failure, so that an operation that succeeds at once does not pay for it. One
operation has one deadline over all attempts; every pause is cut to the remaining time less a millisecond (as HBase
does).

Pause = unit * multiplier * (1 + U[-jitter, jitter)), with HBase's multipliers 1 2 3 5 10 20 40 100 100 100 100 200
200 (the last one repeated). The larger unit is used when the server reports that it is overloaded. A throttled call
waits exactly as long as the server asks for.

Rules:

1. FATAL errors are raised as they are. So is the error of a write that may have been applied and is not idempotent.
2. A deadline that passed inside an attempt (a lookup has its own) ends the attempt, not the operation.
3. A retry needs a token of the budget. Without a token the operation continues to wait: see ``budget.py``.
4. When no attempts are left, RetriesExhausted is raised. When no time is left, or the server asks for a wait that is
   longer than the remaining time, DeadlineExceeded is raised. Every raised error lists the attempts, and
   ``may_have_applied`` is True if any attempt may have been applied.

DIVERGENCES from the Java client: jitter is 50 % in both directions instead of 1 % upwards (with 1 %, a thousand clients
retry at the same moments), there is a budget, and a RegionTooBusyException causes the pause of an overloaded server.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar

from tenacity import RetryCallState, Retrying
from tenacity.retry import retry_if_exception
from tenacity.stop import stop_base
from tenacity.wait import wait_base

from metaclient.attempts.budget import CallBudget
from metaclient.config import Config
from metaclient.errors import (
    Attempt,
    CallTimeout,
    DeadlineExceeded,
    Disposition,
    MetaClientError,
    RetriesExhausted,
)
from metaclient.runtime import Runtime
from metaclient.telemetry import Telemetry
from metaclient.wording import counted

__all__ = ["BACKOFF", "Retrier", "pause_s"]

T = TypeVar("T")
#: True if the operation is idempotent, so that it is safe to retry after an unknown outcome; a function is called
#: after each failure.
Repeatable: TypeAlias = bool | Callable[[], bool]
_log = logging.getLogger(__name__)

#: HConstants.RETRY_BACKOFF
BACKOFF = (1, 2, 3, 5, 10, 20, 40, 100, 100, 100, 100, 200, 200)
#: Part of the remaining time that no pause may use, so that the last attempt has some (HBase: 1 ms).
RESERVE_S = 0.001
#: A shorter time is a rounding error: sleeping for it would not advance the clock.
ROUNDING_S = 1e-6
#: How long an operation without a token of the budget sleeps before it asks again.
STARVED_S = 0.5


def pause_s(failures: int, *, unit_s: float, jitter: float = 0.0, chance: float = 0.5) -> float:
    """Return the pause after that many failures; ``chance`` is a draw from [0, 1).

    >>> [pause_s(n, unit_s=0.1) for n in (1, 2, 3, 4, 5, 14, 15)]
    [0.1, 0.2, 0.3, 0.5, 1.0, 20.0, 20.0]
    """
    multiplier = BACKOFF[min(max(failures, 1), len(BACKOFF)) - 1]
    return round(unit_s * multiplier * (1 + jitter * (2 * chance - 1)), 9)


class Retrier:
    """Runs the attempts of one connection's operations."""

    def __init__(self, runtime: Runtime, config: Config, telemetry: Telemetry, *, inside_s: float = 0.0) -> None:
        self._runtime = runtime
        self._config = config
        self._inside_s = inside_s  # how long a gateway continues a call that the client has abandoned
        self._telemetry = telemetry
        self.budget = CallBudget(ratio=config.retry_budget, burst=config.retry_budget_burst)

    def call(
        self,
        attempt: Callable[[], T],
        *,
        deadline: float,
        what: Callable[[], str],
        is_repeatable: Repeatable = True,
        on_failure: Callable[[MetaClientError, int], None] | None = None,
    ) -> T:
        """Run ``attempt`` until it succeeds, may not be retried, or no time or no attempts are left."""
        begun = self._runtime.now()
        try:
            value = attempt()
        except MetaClientError as error:
            return self.resume(
                error,
                attempt,
                begun=begun,
                deadline=deadline,
                what=what,
                is_repeatable=is_repeatable,
                on_failure=on_failure,
            )
        self.budget.on_success()
        return value

    def resume(
        self,
        first: MetaClientError,
        attempt: Callable[[], T],
        *,
        begun: float,
        deadline: float,
        what: Callable[[], str],
        is_repeatable: Repeatable = True,
        on_failure: Callable[[MetaClientError, int], None] | None = None,
    ) -> T:
        """Continue after a first failure. ``on_failure(error, failures)`` may raise to end the operation at once."""
        return _FailedOperation(
            self,
            first,
            attempt,
            begun=begun,
            deadline=deadline,
            what=what,
            is_repeatable=is_repeatable,
            on_failure=on_failure,
        ).run()


class _FailedOperation(Generic[T]):
    """One operation that has failed at least once: tenacity's stop, wait and retry with the clock of the runtime."""

    def __init__(
        self,
        owner: Retrier,
        first: MetaClientError,
        attempt: Callable[[], T],
        *,
        begun: float,
        deadline: float,
        what: Callable[[], str],
        is_repeatable: Repeatable,
        on_failure: Callable[[MetaClientError, int], None] | None,
    ) -> None:
        self._runtime = owner._runtime
        self._config = owner._config
        self._inside_s = owner._inside_s
        self._telemetry = owner._telemetry
        self._budget = owner.budget
        self._first: MetaClientError | None = first
        self._attempt = attempt
        self._begun = begun
        self._deadline = deadline
        self._what = what
        self._is_repeatable = is_repeatable
        self._on_failure = on_failure
        self._attempts: list[Attempt] = []
        self._maybe_applied = False

    def run(self) -> T:
        self._budget.on_first_attempt_failed(self._runtime.now())
        loop = Retrying(
            stop=_Stop(self),
            wait=_Wait(self),
            retry=retry_if_exception(self._may_retry),
            sleep=self._sleep,
            reraise=True,
        )
        try:
            value = loop(self._next)
        except MetaClientError as error:
            final = self._final(error)
            if final.may_have_applied and self._inside_s:
                final.add_note(f"the gateway itself may go on trying, and apply it, for up to {self._inside_s:g} s")
            try:
                raise final from final.__cause__
            finally:
                del final  # error -> traceback -> this frame -> error would be a cycle
        self._budget.on_success()
        return value

    def _next(self) -> T:
        """Raise the first failure, which started the retries; in later calls of tenacity, make an attempt."""
        first, self._first = self._first, None
        try:
            if first is not None:
                raise first
            return self._attempt()
        except MetaClientError as error:
            if not error.is_deadline:
                self._learn(error)
                raise
            if self._left_s() <= 0:
                self._note(error)
                raise
            ended = CallTimeout(str(error))
            ended.place = error.place
            self._learn(ended)
            raise ended from error
        finally:
            del first  # as in run

    def _learn(self, error: MetaClientError) -> None:
        self._note(error)
        if self._on_failure is not None and error.disposition is not Disposition.FATAL:
            self._on_failure(error, len(self._attempts))

    def _note(self, error: MetaClientError) -> None:
        self._maybe_applied = self._maybe_applied or error.may_have_applied
        place = error.place
        self._attempts.append(
            Attempt(
                len(self._attempts) + 1,
                self._runtime.now() - self._begun,
                f"{type(error).__name__}: {error}",
                str(place.server) if place is not None else None,
                place.replica_id if place is not None else None,
            )
        )
        level = logging.WARNING if len(self._attempts) > self._config.start_log_errors else logging.DEBUG
        if _log.isEnabledFor(level):
            # No row and no value in the log: the error that the caller gets names them.
            where = place.server if place is not None else "the cluster"
            _log.log(level, "attempt %d at %s failed: %s", len(self._attempts), where, type(error).__name__)

    def _may_retry(self, error: BaseException) -> bool:
        if not isinstance(error, MetaClientError) or error.disposition is Disposition.FATAL:
            return False
        is_repeatable = self._is_repeatable if isinstance(self._is_repeatable, bool) else self._is_repeatable()
        return is_repeatable or not error.may_have_applied

    def is_over(self, error: MetaClientError) -> bool:
        out_of_attempts = len(self._attempts) > self._config.retries
        return out_of_attempts or self._is_out_of_time(error)

    def _is_out_of_time(self, error: MetaClientError) -> bool:
        left_s = self._left_s()
        return left_s <= 0 or error.wait_s > left_s

    def _left_s(self) -> float:
        left_s = self._deadline - self._runtime.now() - RESERVE_S
        return left_s if left_s >= ROUNDING_S else 0.0

    def pause_s(self, error: MetaClientError) -> float:
        asked_s = error.wait_s
        if asked_s > 0:
            return asked_s
        config = self._config
        unit_s = config.pause_overloaded_s if error.is_overload else config.pause_s
        chance = self._runtime.rng.random()
        wait_s = pause_s(len(self._attempts), unit_s=unit_s, jitter=config.retry_jitter, chance=chance)
        return max(0.0, min(wait_s, self._left_s()))

    def _sleep(self, seconds: float) -> None:
        self._runtime.sleep(seconds)
        while not self._budget.take(self._runtime.now()):
            left_s = self._left_s()
            if left_s <= 0:
                raise DeadlineExceeded("no token of the retry budget was left before its deadline")
            self._runtime.sleep(min(STARVED_S, left_s))
        error = self._attempts[-1].error.partition(":")[0]
        self._telemetry.count("metaclient.retries", error=error)
        self._telemetry.emit("retry", what=self._what(), error=error, failures=len(self._attempts), pause_s=seconds)

    def _final(self, error: MetaClientError) -> MetaClientError:
        """Return the error for the user, with all attempts: one that may not be retried, else the exhausted limit."""
        if not self._may_retry(error) and not error.is_deadline:
            error.attempts = tuple(self._attempts)
            error.may_have_applied = error.may_have_applied or self._maybe_applied
            return error
        out_of_time = error.is_deadline or self._is_out_of_time(error)
        kind: type[MetaClientError] = DeadlineExceeded if out_of_time else RetriesExhausted
        advice = "raise operation_timeout_s" if out_of_time else "raise retries or look at the server"
        elapsed_s = self._runtime.now() - self._begun
        final = kind(
            f"{self._what()}: {counted(len(self._attempts), 'attempt')} in {elapsed_s:.3f} s failed, "
            f"the last with {self._attempts[-1].error}{self._asked(error)}; see .attempts, or {advice}",
            may_have_applied=self._maybe_applied,
            attempts=self._attempts,
            detail=error.detail,
        )
        final.place = error.place
        final.__cause__ = error
        return final

    def _asked(self, error: MetaClientError) -> str:
        asked_s = error.wait_s
        return f", which asks for {asked_s:g} s of the {max(0.0, self._left_s()):.3f} s left" if asked_s else ""


class _Stop(stop_base):
    def __init__(self, operation: _FailedOperation[Any]) -> None:
        self._operation = operation

    def __call__(self, retry_state: RetryCallState) -> bool:
        return self._operation.is_over(_error_of(retry_state))


class _Wait(wait_base):
    def __init__(self, operation: _FailedOperation[Any]) -> None:
        self._operation = operation

    def __call__(self, retry_state: RetryCallState) -> float:
        return self._operation.pause_s(_error_of(retry_state))


def _error_of(state: RetryCallState) -> MetaClientError:
    """Return the failure for which tenacity calls the stop and wait policies."""
    error = state.outcome.exception() if state.outcome is not None else None
    assert isinstance(error, MetaClientError), "tenacity asks only after a failure, and _may_retry takes no other"
    return error
