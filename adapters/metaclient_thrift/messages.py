"""The heads of Thrift messages: each call has a sequence id of its own, and a reply must carry the id of its call.

A gateway (libthrift's ``TBaseProcessor`` and ``ProcessFunction``) copies the name and the sequence id of a call into
its reply, and into the exception that it answers instead. A reply with another id or another name belongs to another
call: a proxy between client and gateway has repeated, lost or reordered replies, and every later reply of that
connection would be one call late. Such a connection must not be used again.
"""

from __future__ import annotations

from functools import cache
from struct import Struct
from typing import Any

from thriftpy2.thrift import TApplicationException, TMessageType
from thriftpy2.transport import TTransportException

__all__ = [
    "NotThrift",
    "WrongReply",
    "call_head",
    "next_number",
    "pack_number",
    "read_reply",
    "reply_head",
]

_CALL, _REPLY = 0x80010001, 0x80010002
_uint = Struct(">I")
pack_number = Struct(">i").pack
#: A sequence id is a signed number of 32 bits.
_NUMBER_MAX = 0x7FFFFFFF


class WrongReply(ConnectionError):
    """A reply that belongs to another call. The connection is out of step, and must be closed."""


class NotThrift(ConnectionError):
    """The bytes are no message of the Thrift protocol that the url names.

    ``first`` are the first bytes, if this is the first reply of its connection: then the server may be no gateway.
    """

    def __init__(self, text: str, first: bytes = b"") -> None:
        super().__init__(text)
        self.first = first


def next_number(number: int) -> int:
    """Return the next sequence id, never 0: that is the id in replies to clients that do not use sequence ids.

    >>> next_number(0), next_number(0x7FFFFFFF)
    (1, 1)
    """
    return 1 if number >= _NUMBER_MAX else number + 1


@cache
def call_head(method: str) -> bytes:
    """Return the head of a call in the binary protocol, up to its sequence id. There are some hundred methods."""
    return _head(_CALL, method)


@cache
def reply_head(method: str) -> bytes:
    """Return the head that a reply has in the binary protocol, up to its sequence id."""
    return _head(_REPLY, method)


def _head(kind: int, method: str) -> bytes:
    return _uint.pack(kind) + _uint.pack(len(method)) + method.encode()


def read_reply(protocol: Any, service: Any, method: str, number: int, first: bytes) -> Any:
    """Read one reply with thriftpy2: return its value, or raise the exception that it carries.

    WrongReply when it is the reply to another call. NotThrift when it is no reply; ``first`` is how it begins.
    """
    _check_head(protocol, method, number, first)
    result = getattr(service, f"{method}_result")()
    try:
        result.read(protocol)
        protocol.read_message_end()
    except (OSError, EOFError, TTransportException):
        raise
    except Exception as error:  # decoders raise various errors for malformed bytes
        raise NotThrift(f"the gateway's answer to {method} cannot be read: {type(error).__name__}: {error}") from error
    value = getattr(result, "success", None)
    if value is not None:
        return value
    for name, raised in result.__dict__.items():
        if name != "success" and raised:
            raise raised
    if hasattr(result, "success"):
        raise TApplicationException(TApplicationException.MISSING_RESULT, f"{method} was answered without a result")
    return None


def _check_head(protocol: Any, method: str, number: int, first: bytes) -> None:
    """Read the head and compare it with the call's; raise the gateway's exception if the reply is one."""
    try:
        name, kind, found = protocol.read_message_begin()
    except (OSError, EOFError, TTransportException):
        raise
    except Exception as error:  # each of thriftpy2's protocols has its own error for this
        text = f"the answer is no message of the Thrift protocol that the url names: it begins with {first[:16]!r}"
        raise NotThrift(text, first if number == 1 else b"") from error
    name = name.decode(errors="replace") if isinstance(name, bytes) else name
    if (name, found) != (method, number):
        raise WrongReply(
            f"a reply to call {found} of {name!r} arrived instead of that to call {number} of {method!r}: replies are "
            "repeated, lost or reordered on the way, so that this connection is given up"
        )
    if kind == TMessageType.EXCEPTION:
        raised = TApplicationException()
        raised.read(protocol)
        protocol.read_message_end()
        raise raised
    if kind != TMessageType.REPLY:
        raise WrongReply(f"a message of type {kind} arrived instead of the reply to call {number} of {method!r}")
