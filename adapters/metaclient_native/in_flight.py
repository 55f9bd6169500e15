"""Calls in flight on a connection, the errors that end them, and the rule for retiring a silent connection."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from metaclient.errors import (
    CallTimeout,
    ConnectionClosed,
    MetaClientError,
    Overloaded,
    ServerUnreachable,
    Unsupported,
    translated,
)
from metaclient.protobuf import ProtocolError
from metaclient.runtime import Pending
from metaclient.runtime.waiting import Waiter
from metaclient.wire.rpc.framing import Response
from metaclient_native import errors
from metaclient_native.request import Request

if TYPE_CHECKING:
    from metaclient_native.connection import Connection
    from metaclient_native.loop_calls import LoopCall

__all__ = [
    "DOUBT_S",
    "UNASKED",
    "DirectCall",
    "InFlight",
    "PendingCall",
    "Unasked",
    "explain_abandoned",
    "explain_bad_response",
    "explain_end",
    "explain_exception",
    "explain_full",
    "explain_inherited",
    "explain_nested",
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


class Unasked(enum.Enum):
    """The answer of a connection that has not made a direct call."""

    UNASKED = "unasked"


UNASKED: Final = Unasked.UNASKED


class DirectCall(Generic[T]):
    """A call in flight whose own thread waits for the response and decodes it.

    ``waiter`` is None if that thread reads the connection, or has stopped waiting; otherwise the reader wakes it, or
    the thread of the call whose ``next_woken`` is this one. ``is_queued`` allows that.
    ``successor`` is the call that stands for this one after its thread has left it in flight.
    """

    __slots__ = (
        "begun",
        "error",
        "is_done",
        "is_queued",
        "next_woken",
        "request",
        "response",
        "successor",
        "waiter",
    )
    response: Response

    def __init__(self, request: Request[T], begun: float) -> None:
        self.request = request
        self.begun = begun
        self.is_done = False
        self.error: BaseException | None = None
        self.waiter: Waiter | None = None
        self.is_queued = False
        self.next_woken: DirectCall[Any] | None = None
        self.successor: PendingCall[T] | None = None

    def leave(self, connection: Connection, call_id: int) -> PendingCall[T] | None:
        """Return a call that any thread can wait for, and that ends when this one does; None if this one has ended.

        This call stays in the table. The reader sets ``is_done`` and then looks for a successor, while this thread sets
        the successor and then looks at ``is_done``: so no response is lost between them.
        """
        left = PendingCall(connection, self.request, self.begun)
        left.call_id = call_id
        self.successor = left
        return None if self.is_done else left

    def deliver(self, response: Response, last: DirectCall[Any] | None) -> DirectCall[Any] | None:
        """Wake the thread of this call, or let that of ``last`` wake it; return the call whose thread wakes the next.

        The reader sets ``next_woken`` and then looks at ``waiter``, while a thread that resumes resets ``waiter`` and
        then looks at ``next_woken``: so no thread is forgotten between them.
        """
        self.response = response
        if self.waiter is None or not self.is_queued:
            self.wake()
            return last
        if last is None:
            self.wake()
            return self
        self.is_done = True
        last.next_woken = self
        if last.waiter is None:
            self.wake()
        return self

    def fail(self, error: BaseException) -> None:
        """End the call with an error, unless its response was delivered. An interrupted wake-up is repeated."""
        self._fail(error)
        if self.successor is not None:
            self.successor.fail(error)

    def _orphan(self, error: BaseException) -> None:
        """End the call in a child process, where its thread is missing."""
        self._fail(error)
        if self.successor is not None:
            self.successor._orphan(error)

    def _fail(self, error: BaseException) -> None:
        if not self.is_done:
            self.error = error
        self.wake()

    def wake(self) -> None:
        self.is_done = True
        waiter = self.waiter
        if waiter is not None:
            waiter.wake()

    def decode(self, address: str) -> T:
        """Return the decoded response, or raise the error, of a call that is done."""
        request, error = self.request, self.error
        if error is None:
            response = self.response
            if response.exception is None:
                try:
                    return request.decode(response)
                except Exception as raised:
                    error = explain_bad_response(raised, request, address)
            else:
                error = explain_exception(response.exception, request, address)
        self.error = None
        try:
            raise error
        finally:
            del error  # error -> traceback -> this frame -> error would be a cycle for every failed call


#: A call in the table of a connection.
InFlight: TypeAlias = "PendingCall[Any] | DirectCall[Any] | LoopCall[Any]"


def explain_timeout(request: Request[Any]) -> CallTimeout:
    """Return the error of a call that was sent and got no response before its deadline."""
    return CallTimeout(f"{request.what}: no answer within its time", may_have_applied=request.is_write)


def explain_abandoned(address: str, error: BaseException) -> ServerUnreachable:
    """Return the error of the calls whose connection was closed because ``error`` interrupted another call on it."""
    return ServerUnreachable(
        f"the connection to {address} was closed because another call on it was interrupted: {error!r}"
    )


def explain_full(address: str, calls: int, queued_bytes: int) -> Overloaded:
    """Return the error of a call that was not made, because too many are in flight."""
    return Overloaded(
        f"{calls} calls to {address} are in flight and {queued_bytes} bytes are not sent yet: the server is slower "
        "than its callers, so make fewer calls at once"
    )


def explain_nested(address: str, request: Request[Any], *, may_have_applied: bool) -> Unsupported:
    """Return the error of a call by a signal handler that has interrupted a thread in the middle of another call."""
    return Unsupported(
        f"{request.what} at {address} cannot be answered: a signal handler (or a finalizer) makes it while its thread "
        "reads the answer to another call. Let the handler set a flag, and make the call afterwards",
        may_have_applied=may_have_applied,
    )


def explain_inherited(address: str, request: Request[Any]) -> ServerUnreachable:
    """Return the error of a call in flight, in a child process of the process that made it."""
    text = f"{request.what} at {address} was sent by the parent of this process (os.fork)"
    return ServerUnreachable(text, may_have_applied=request.is_write)


def explain_end(
    cause: BaseException, request: Request[Any], peer: tuple[str, str], *, was_sent: bool, has_answered: bool
) -> MetaClientError:
    """Return the error of one call that ends with its connection; ``peer`` are the address and the service."""
    is_write, what = request.is_write and was_sent, request.what
    address, service = peer
    match cause:
        case ConnectionClosed():
            made: MetaClientError = ConnectionClosed(str(cause), may_have_applied=is_write)
        case TimeoutError():
            made = CallTimeout(f"{address} did not take {what}: {cause}", may_have_applied=is_write)
        case EOFError() | ConnectionResetError() | BrokenPipeError():
            made = errors.explain_hang_up(address, service, what, has_answered=has_answered, is_write=is_write)
        case MetaClientError():
            made = type(cause)(str(cause), may_have_applied=is_write, detail=cause.detail)
        case _:
            made = translated(cause, is_write=is_write)
    made.__cause__ = cause
    return made


def explain_exception(exception: Mapping[str, Any], request: Request[Any], address: str) -> MetaClientError:
    """Return the error of a call to which the server answered with an exception."""
    return errors.translate_exception(exception, f"{request.what} at {address}", is_write=request.is_write)


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
