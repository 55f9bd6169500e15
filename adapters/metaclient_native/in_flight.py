"""Calls in flight on a connection, the errors that end them, and when a silent connection is not trusted any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from metaclient.errors import MetaClientError, ServerUnreachable
from metaclient.runtime import Pending
from metaclient.wire.rpc.framing import Response
from metaclient.wire.rpc.protobuf import ProtocolError

if TYPE_CHECKING:
    from metaclient_native.connection import Connection

__all__ = ["DOUBT_S", "Asked", "Call", "decoded", "given_up", "is_silent_too_long"]

T = TypeVar("T")
#: After so long without an answer it is worth a look whether the server is still there, before a call is trusted to it.
DOUBT_S = 1.0
#: A connection is retired after a silence of so many times the time of a call: one call and its retry.
SILENT_CALLS = 2


def is_silent_too_long(*, asked_at: float, answered_at: float, now: float, call_s: float) -> bool:
    """Return True if nothing has arrived for ``SILENT_CALLS`` times a call's time since the first unanswered request.

    >>> is_silent_too_long(asked_at=10.0, answered_at=9.9, now=10.5, call_s=0.5)
    False
    >>> is_silent_too_long(asked_at=10.0, answered_at=9.9, now=11.1, call_s=0.5)
    True
    """
    return asked_at > answered_at and now - asked_at >= max(DOUBT_S, SILENT_CALLS * call_s)


class Call(Pending[T]):
    """A call under way. ``decode`` understands its answer; ``keeps`` says that a late one still must be looked at."""

    __slots__ = ("begun", "call_id", "connection", "deadline", "decode", "is_write", "keeps", "what")

    def __init__(
        self,
        connection: Connection,
        decode: Callable[[Response], T],
        begun: float,
        deadline: float,
        what: str,
        is_write: bool,
        keeps: bool,
    ) -> None:
        super().__init__(connection._blocking)
        self.connection = connection
        self.begun = begun
        self.decode = decode
        self.deadline = deadline
        self.what = what
        self.is_write = is_write
        self.keeps = keeps
        self.call_id = 0

    def send(self) -> None:
        """Now, though nobody waits for it."""
        self.connection.flush(self.deadline)

    def help(self, deadline: float | None) -> None:
        self.connection._drive(self, self.deadline if deadline is None else deadline)

    def on_done(self, callback: Callable[[Pending[T]], object]) -> None:
        super().on_done(callback)
        if not self._is_done:
            self.send()
            self.connection._attend()

    def cancel(self) -> None:
        super().cancel()
        if not self.keeps:
            self.connection._forget(self)
        self.connection._check_silence(self)


class Asked(Generic[T]):
    """A call whose maker reads the answer itself: as a :class:`Call` to the connection, but nobody can wait for it."""

    __slots__ = ("begun", "deadline", "decode", "error", "is_done", "is_write", "value", "what")
    value: T

    def __init__(
        self, decode: Callable[[Response], T], begun: float, deadline: float, what: str, is_write: bool
    ) -> None:
        self.decode = decode
        self.begun = begun
        self.deadline = deadline
        self.what = what
        self.is_write = is_write
        self.is_done = False
        self.error: BaseException | None = None

    def complete(self, value: T) -> None:
        self.value = value
        self.is_done = True

    def fail(self, error: BaseException) -> None:
        self.error = error
        self.is_done = True

    _orphan = fail


def given_up(address: str, error: BaseException) -> ServerUnreachable:
    return ServerUnreachable(f"the connection to {address} was given up by another call: {error!r}")


def decoded(error: Exception, call: Call[Any] | Asked[Any], address: str) -> MetaClientError:
    """An answer that we do not understand: what we asked for may have been done all the same."""
    if isinstance(error, MetaClientError) and not isinstance(error, ProtocolError):
        return error
    made = ProtocolError(
        f"{call.what} at {address}: the answer makes no sense: {type(error).__name__}: {error}",
        may_have_applied=call.is_write,
    )
    made.__cause__ = error
    return made
