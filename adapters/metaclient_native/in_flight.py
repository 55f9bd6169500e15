"""Calls in flight on a connection, the errors that end them, and the rule for retiring a silent connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from metaclient.errors import CallTimeout, MetaClientError, ServerUnreachable
from metaclient.protobuf import ProtocolError
from metaclient.runtime import Pending
from metaclient_native.request import Request

if TYPE_CHECKING:
    from metaclient_native.connection import Connection

__all__ = [
    "DOUBT_S",
    "DirectCall",
    "InFlight",
    "PendingCall",
    "explain_abandoned",
    "explain_bad_response",
    "explain_timeout",
    "is_silent_too_long",
]

T = TypeVar("T")
#: After this long without a response, the connection is checked for a hang-up before the next call is sent on it.
DOUBT_S = 1.0
#: A connection is retired after a silence of this many times the duration of a call: one call and its retry.
SILENT_CALLS = 2


def is_silent_too_long(*, asked_at: float, answered_at: float, now: float, call_s: float) -> bool:
    """Return True if nothing has arrived for ``SILENT_CALLS`` times a call's time since the first unanswered request.

    >>> is_silent_too_long(asked_at=10.0, answered_at=9.9, now=10.5, call_s=0.5)
    False
    >>> is_silent_too_long(asked_at=10.0, answered_at=9.9, now=11.1, call_s=0.5)
    True
    """
    return asked_at > answered_at and now - asked_at >= max(DOUBT_S, SILENT_CALLS * call_s)


class PendingCall(Pending[T]):
    """A call in flight that any thread can wait for, or attach a callback to."""

    __slots__ = ("begun", "call_id", "connection", "request")

    def __init__(self, connection: Connection, request: Request[T], begun: float) -> None:
        super().__init__(connection._blocking)
        self.connection = connection
        self.request = request
        self.begun = begun
        self.call_id = 0

    def send(self) -> None:
        """Send the call now, before a thread waits for it."""
        self.connection.flush(self.request.deadline)

    def help(self, deadline: float | None) -> None:
        self.connection._drive(self, self.request.deadline if deadline is None else deadline)

    def on_done(self, callback: Callable[[Pending[T]], object]) -> None:
        super().on_done(callback)
        if not self._is_done:
            self.send()
            self.connection._want_reader()

    def cancel(self) -> None:
        super().cancel()
        if not self.request.keeps_late:
            self.connection._forget(self)
        self.connection._check_silence(self)


class DirectCall(Generic[T]):
    """A call in flight whose own thread reads the response. No other thread can wait for it."""

    __slots__ = ("begun", "error", "is_done", "request", "value")
    value: T

    def __init__(self, request: Request[T], begun: float) -> None:
        self.request = request
        self.begun = begun
        self.is_done = False
        self.error: BaseException | None = None

    def complete(self, value: T) -> None:
        self.value = value
        self.is_done = True

    def fail(self, error: BaseException) -> None:
        self.error = error
        self.is_done = True

    _orphan = fail


#: A call in the table of a connection.
InFlight: TypeAlias = PendingCall[Any] | DirectCall[Any]


def explain_timeout(request: Request[Any]) -> CallTimeout:
    """Return the error of a call that was sent and got no response before its deadline."""
    return CallTimeout(f"{request.what}: no answer within its time", may_have_applied=request.is_write)


def explain_abandoned(address: str, error: BaseException) -> ServerUnreachable:
    """Return the error of the calls whose connection was closed because ``error`` interrupted another call on it."""
    return ServerUnreachable(
        f"the connection to {address} was closed because another call on it was interrupted: {error!r}"
    )


def explain_bad_response(error: Exception, request: Request[Any], address: str) -> MetaClientError:
    """Return the error of a call whose response could not be decoded; the server may have applied the call."""
    if isinstance(error, MetaClientError) and not isinstance(error, ProtocolError):
        return error
    made = ProtocolError(
        f"{request.what} at {address}: the response cannot be decoded: {type(error).__name__}: {error}",
        may_have_applied=request.is_write,
    )
    made.__cause__ = error
    return made
