"""What a connection does for the tasks of an event loop: calls without a greenlet, and reading by callbacks.

The other half of a connection is for callers that may block, which are greenlets here. See `connection.py`.
"""

from __future__ import annotations

import enum
from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from metaclient.runtime import Runtime
from metaclient.runtime.waiting import Condition
from metaclient.wire.rpc import framing
from metaclient_native.in_flight import DOUBT_S, InFlight
from metaclient_native.request import Request
from metaclient_native.sending import SendingHalf

if TYPE_CHECKING:  # the import of asyncio takes as long as that of metaclient
    from metaclient.runtime.event_loop import AsyncioRuntime
    from metaclient.wire.loop_stream import LoopStream
    from metaclient_native.loop_calls import DeadlineAlarm, LoopCall

__all__ = ["CALLS_MAX", "CALL_IDS", "ROUND_S", "LoopHalf", "State"]

T = TypeVar("T")
#: How long the reading task waits for bytes before it looks for calls whose deadline has passed.
ROUND_S = 1.0
#: Calls in flight; more are refused.
CALLS_MAX = 10_000
CALL_IDS = 0x7FFFFFFF


class State(enum.Enum):
    """The states of a connection, in their order; a connection never returns to an earlier one."""

    CONNECTING = "connecting"
    OPEN = "open"
    RETIRED = "retired"
    CLOSED = "closed"


class _Loop(NamedTuple):
    """The classes and objects that only a connection on an event loop has."""

    runtime: AsyncioRuntime
    alarm: DeadlineAlarm
    call: type[LoopCall[Any]]
    stream: type[LoopStream]


def _loop_of(connection: LoopHalf, runtime: Runtime) -> _Loop:
    from metaclient.wire.loop_stream import LoopStream
    from metaclient_native.loop_calls import DeadlineAlarm, LoopCall

    on_loop = cast("AsyncioRuntime", runtime)
    return _Loop(on_loop, DeadlineAlarm(connection, on_loop), LoopCall, LoopStream)


class LoopHalf(SendingHalf):
    """See the module's docstring. The base class of a connection."""

    address: str
    _ids: Iterator[int]
    _news: Condition
    _state: State
    _asked_at: float
    _is_wanted: bool

    def __init__(self, runtime: Runtime) -> None:
        super().__init__()
        self._now = runtime.now
        self._loop = None if runtime.callers_help else _loop_of(self, runtime)

    @abstractmethod
    def fail_overdue(self) -> None:
        """Fail the calls whose deadline has passed."""

    @abstractmethod
    def _check_silence(self, call: InFlight) -> None:
        """Retire the connection if it was silent for too long."""

    @abstractmethod
    def _retire_if_silent(self, now: float, call_s: float) -> None:
        """Retire the connection if it was silent for too long."""

    @abstractmethod
    def _want_reader(self) -> None:
        """Let the task read."""

    @abstractmethod
    def _read(self, deadline: float) -> None:
        """Read once and complete the calls whose responses are whole."""

    def start(self, request: Request[T]) -> LoopCall[T] | None:
        """Make a call that a task of an event loop awaits; None, without any effect, if that would have to wait.

        A call on a new connection waits, a call after a silence, and one that the kernel does not take at once.
        """
        now, loop, stream = self._now(), self._loop, self._stream
        deadline = request.deadline
        timeout_ms = int((deadline - now) * 1000)
        if loop is None or timeout_ms <= 0 or self._is_sending or self._queue or len(self._calls) >= CALLS_MAX:
            return None
        if now - self._answered_at > DOUBT_S:
            if not self._calls:
                return None
            self._retire_if_silent(now, deadline - now)
        if self._state is not State.OPEN or not isinstance(stream, loop.stream):
            return None
        call_id = next(self._ids) & CALL_IDS
        frame = framing.request(call_id, request.method, request.param, request.cells, request.priority, timeout_ms)
        if not stream.has_room(len(frame)):
            return None
        call = loop.call(self, loop.runtime, call_id, request, now)
        if self._asked_at <= self._answered_at:
            self._asked_at = now
        self._calls[call_id] = call
        try:
            stream.write(frame, deadline)
        except OSError as error:
            self._end(error)
        if not self._is_wanted:
            self._want_reader()
        if deadline < loop.alarm.instant:
            loop.alarm.ring_at(deadline)
        return call

    def forget(self, call: LoopCall[T]) -> None:
        """Drop a call whose task was cancelled."""
        self._calls.pop(call.call_id, None)
        self._check_silence(call)

    def calls_in_flight(self) -> list[InFlight]:
        return list(self._calls.values())

    def _read_by_callbacks(self) -> None:
        """On an event loop: let callbacks read while calls are made, because each switch to this task costs time."""
        loop, stream = self._loop, self._stream
        if loop is None or not isinstance(stream, loop.stream):
            return
        stream.receiver = self._read_arrived
        try:
            while self._state is State.OPEN and (self._calls or self._now() - self._answered_at < ROUND_S):
                with self._lock:
                    self._news.wait(self._now() + ROUND_S)
                self.fail_overdue()
        finally:
            stream.receiver = None

    def _read_arrived(self) -> None:
        """Read what has arrived, without waiting for more."""
        loop, stream = self._loop, self._stream
        assert loop is not None, "only a stream of an event loop calls this"
        while self._state is not State.CLOSED and isinstance(stream, loop.stream) and stream.is_ready:
            self._read(self._now())
