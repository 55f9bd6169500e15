"""One call of HBase's RPC as a value, before a connection has given it a call id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from metaclient.wire.rpc.framing import Response

__all__ = ["Request", "ServiceAddress"]

T = TypeVar("T")


class ServiceAddress(NamedTuple):
    """One service of one server: a connection serves exactly one of them."""

    host: str
    port: int
    service: str


class Request(NamedTuple, Generic[T]):
    """What is sent (method, parameter, cell block, priority), how the response is decoded, and until when.

    ``what`` is the operation's name in error messages. ``keeps_late`` says that a response is decoded even if it comes
    after the call was cancelled, because the decoder changes the state of a scanner.
    """

    method: bytes
    param: bytes
    decode: Callable[[Response], T]
    deadline: float
    what: str
    cells: bytes = b""
    priority: int = 0
    is_write: bool = False
    keeps_late: bool = False
