"""Calls in flight that tasks of an event loop await, without a greenlet, and the alarm of their deadlines.

A connection has one alarm for all of these calls, at the earliest deadline that it has seen: most calls end long before
their deadline, and a timer for each would cost more than the rest of the wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from metaclient.runtime.timers import Timer
from metaclient.runtime.wakeups import Wakeup
from metaclient.wire.rpc.framing import Response
from metaclient_native.in_flight import explain_bad_response, explain_exception, explain_timeout
from metaclient_native.request import Request

if TYPE_CHECKING:
    from metaclient.runtime.event_loop import AsyncioRuntime
    from metaclient_native.loop_half import LoopHalf

__all__ = ["DeadlineAlarm", "LoopCall"]

T = TypeVar("T")
_NEVER = float("inf")


class LoopCall(Wakeup, Generic[T]):
    """See the module's docstring. A `metaclient.backend.AwaitedAnswer`."""

    __slots__ = ("begun", "call_id", "connection", "error", "request", "response", "result_value")
    response: Response | None
    result_value: T

    def __init__(
        self, connection: LoopHalf, runtime: AsyncioRuntime, call_id: int, request: Request[T], begun: float
    ) -> None:
        super().__init__(runtime.turns)
        self.connection = connection
        self.call_id = call_id
        self.request = request
        self.begun = begun
        self.response = None
        self.error: BaseException | None = None

    def deliver(self, response: Response) -> None:
        self.response = response
        self.wake()

    def fail(self, error: BaseException) -> None:
        if self.response is None:
            self.error = error
        self.wake()

    _orphan = fail

    def decode(self) -> bool:
        response, request = self.response, self.request
        if response is None or response.exception is not None:
            return False
        try:
            self.result_value = request.decode(response)
        except Exception as raised:
            self.error = explain_bad_response(raised, request, self.connection.address)
            return False
        return True

    def value(self) -> T:
        response, error = self.response, self.error
        if error is None and response is not None:
            if response.exception is None:
                return self.result_value
            error = explain_exception(response.exception, self.request, self.connection.address)
        try:
            raise error or explain_timeout(self.request)
        finally:
            del error  # error -> traceback -> this frame -> error would be a cycle for every failed call

    def forget(self) -> None:
        self.connection.forget(self)


class DeadlineAlarm:
    """Fails the calls of a connection that are at their deadline. ``instant`` is when it rings next."""

    def __init__(self, connection: LoopHalf, runtime: AsyncioRuntime) -> None:
        self._connection = connection
        self._runtime = runtime
        self._timer: Timer | None = None
        self.instant = _NEVER

    def ring_at(self, instant: float) -> None:
        """Ring at this instant instead of a later one."""
        self.stop()
        self.instant = instant
        self._timer = self._runtime.alarm(instant, self._ring)

    def _ring(self) -> None:
        self.instant = _NEVER
        self._connection.fail_overdue()
        calls = self._connection.calls_in_flight()
        earliest = min((call.request.deadline for call in calls if isinstance(call, LoopCall)), default=_NEVER)
        if earliest < _NEVER:
            self.ring_at(earliest)

    def stop(self) -> None:
        """Ring no more."""
        if self._timer is not None:
            self._timer.cancel()
