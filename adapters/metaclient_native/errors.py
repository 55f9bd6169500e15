"""Translates what HBase's servers answer into our errors; the classes stand in :mod:`metaclient.wire.java_errors`.

An error of a call has its class in a field of its own and, in ``stack_trace``, the text: ``Class: text`` and a stack
trace when the call ran, the bare text when it did not get that far. An error inside of a batch has only class and text:
no ``do_not_retry``, no host and port, so the class alone decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metaclient.errors import (
    BackendFault,
    MetaClientError,
    Overloaded,
    RegionMoved,
    RequestRefused,
    ServerUnreachable,
    WrongRegion,
)
from metaclient.model import ServerName
from metaclient.wire import java_errors
from metaclient.wire.peers import described, recognised
from metaclient.wire.rpc.protobuf import ProtocolError

__all__ = ["from_batch", "from_exception", "from_procedure", "hung_up", "nonsense", "refused"]

#: A put of a row that is outside of the region: HBase calls it insane, for a get it is WrongRegionException.
_OUT_OF_RANGE = "requested row out of range"
#: HBase's shaded protobuf: a required field is missing. It would be missing again.
_UNINITIALIZED = "UninitializedMessageException"


def from_exception(exception: Mapping[str, Any], what: str, *, is_write: bool) -> MetaClientError:
    """Our error for an ExceptionResponse."""
    java_class = exception.get("exception_class_name", "")
    detail = exception.get("stack_trace", "")
    made = _made(java_class, detail, what, is_write=is_write, is_final=exception.get("do_not_retry"))
    if isinstance(made, RegionMoved) and made.server is None and exception.get("hostname"):
        made.server = ServerName(exception["hostname"], exception.get("port", 0))
    if exception.get("server_overloaded") and not isinstance(made, Overloaded):
        made = Overloaded(str(made), may_have_applied=made.may_have_applied, detail=made.detail)
    return made


def from_batch(exception: Mapping[str, Any], what: str, *, is_write: bool) -> MetaClientError:
    """Our error for a NameBytesPair of a batch's answer."""
    text = exception.get("value", b"").decode(errors="replace")
    return _made(exception["name"], text, what, is_write=is_write, is_final=None)


def from_procedure(exception: Mapping[str, Any], what: str) -> MetaClientError:
    """Our error for what a procedure of the master ended with (a ForeignExceptionMessage)."""
    told = exception.get("generic_exception", {})
    return _made(told.get("class_name", ""), told.get("message", ""), what, is_write=False, is_final=True)


def _made(java_class: str, detail: str, what: str, *, is_write: bool, is_final: bool | None) -> MetaClientError:
    said = detail.removeprefix(java_class).removeprefix(":").strip()
    kind = java_errors.error_class(java_class, said)
    if _OUT_OF_RANGE in said.lower():
        kind = WrongRegion
    if kind is None and java_class.endswith(_UNINITIALIZED):
        kind = RequestRefused
    if kind is None:
        kind = RequestRefused if is_final else BackendFault
    line = java_errors.one_line(f"{java_errors.simple_name(java_class)}: {said}" if said else java_class) or "no text"
    applied = is_write and not java_errors.is_certainly_not_applied(kind, java_class, said)
    return java_errors.made(kind, f"{what}: {line}", may_have_applied=applied, detail=detail or None)


def hung_up(address: str, service: str, what: str, *, has_answered: bool, is_write: bool) -> ServerUnreachable:
    """The other side closed the connection. Before its first answer that is how HBase refuses, without a word."""
    text = f"{address} closed the connection during {what}"
    if not has_answered:
        text = (
            f"{address} closed the connection before its first answer to {what}: it is going down, or it refuses us. "
            f"HBase refuses so, without a word, when it has no {service} (a master is no region server), does not know "
            "the cell codec, or wants Kerberos or TLS; its log says which. A server that is no HBase may do so, too"
        )
    return ServerUnreachable(text, may_have_applied=is_write)


def nonsense(error: ProtocolError, address: str, first: bytes | None) -> ProtocolError:
    """What a server sent is no answer. ``first`` is how its first answer begins: it may be no server of HBase."""
    peer = recognised(first) if first else None
    if peer is None:
        return ProtocolError(f"{address} does not speak HBase's RPC, or not any more: {error}")
    return ProtocolError(f"{address} does not speak HBase's RPC: {described(address, peer)}")


def refused(exception: Mapping[str, Any], address: str, service: str) -> MetaClientError:
    """The server's word about the connection itself: a preamble or header that it does not accept."""
    said = java_errors.one_line(exception.get("stack_trace", "")) or exception.get("exception_class_name", "no reason")
    return RequestRefused(
        f"{address} refuses our connection to its {service}: {said}", detail=exception.get("stack_trace")
    )
