"""Translates exceptions of HBase's servers into MetaClientErrors; :mod:`metaclient.wire.java_errors` has the table.

The exception of a call has its class in one field and its text in another (``stack_trace``): ``Class: text`` and a
stack trace if the call was started, only the text if it was not. An exception inside of a batch has only class and
text, and neither ``do_not_retry`` nor host and port, so its class alone decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metaclient.errors import (
    AccessDenied,
    AuthenticationFailed,
    BackendFault,
    MetaClientError,
    Overloaded,
    RegionMoved,
    RequestRefused,
    ServerUnreachable,
    WrongRegion,
)
from metaclient.model import ServerName
from metaclient.protobuf import ProtocolError
from metaclient.wire import java_errors
from metaclient.wire.peers import describe_peer, recognise_peer
from metaclient.wire.sasl.messages import SaslRefused

__all__ = [
    "explain_hang_up",
    "explain_no_frame",
    "explain_refusal",
    "explain_sasl_refusal",
    "translate_batch_error",
    "translate_exception",
    "translate_procedure_error",
]

#: The text for a put whose row is outside of the region: a FailedSanityCheckException, where a get has
#: WrongRegionException.
_OUT_OF_RANGE = "requested row out of range"
#: HBase's shaded protobuf: a required field is missing. A retry would send the same message.
_UNINITIALIZED = "UninitializedMessageException"


def translate_exception(exception: Mapping[str, Any], what: str, *, is_write: bool) -> MetaClientError:
    """Return the MetaClientError for an ExceptionResponse."""
    java_class = exception.get("exception_class_name", "")
    detail = exception.get("stack_trace", "")
    made = _translate(java_class, detail, what, is_write=is_write, is_final=exception.get("do_not_retry"))
    if isinstance(made, RegionMoved) and made.server is None and exception.get("hostname"):
        made.server = ServerName(exception["hostname"], exception.get("port", 0))
    if exception.get("server_overloaded") and not isinstance(made, Overloaded):
        made = Overloaded(str(made), may_have_applied=made.may_have_applied, detail=made.detail)
    return made


def translate_batch_error(exception: Mapping[str, Any], what: str, *, is_write: bool) -> MetaClientError:
    """Return the MetaClientError for a NameBytesPair in the response to a batch."""
    text = exception.get("value", b"").decode(errors="replace")
    return _translate(exception["name"], text, what, is_write=is_write, is_final=None)


def translate_procedure_error(exception: Mapping[str, Any], what: str) -> MetaClientError:
    """Return the MetaClientError for the ForeignExceptionMessage of a failed procedure of the master."""
    cause = exception.get("generic_exception", {})
    return _translate(cause.get("class_name", ""), cause.get("message", ""), what, is_write=False, is_final=True)


def _translate(java_class: str, detail: str, what: str, *, is_write: bool, is_final: bool | None) -> MetaClientError:
    text = detail.removeprefix(java_class).removeprefix(":").strip()
    kind = java_errors.error_class(java_class, text)
    if _OUT_OF_RANGE in text.lower():
        kind = WrongRegion
    if kind is None and java_class.endswith(_UNINITIALIZED):
        kind = RequestRefused
    if kind is None:
        kind = RequestRefused if is_final else BackendFault
    line = java_errors.one_line(f"{java_errors.simple_name(java_class)}: {text}" if text else java_class) or "no text"
    applied = is_write and not java_errors.is_certainly_not_applied(kind, java_class, text)
    return java_errors.make_error(kind, f"{what}: {line}", may_have_applied=applied, detail=detail or None)


_USES_KERBEROS = (
    "the cluster uses Kerberos; set hbase.security.authentication=kerberos (config= takes its hbase-site.xml), or give "
    "token="
)


def explain_hang_up(address: str, service: str, what: str, *, has_answered: bool, is_write: bool) -> ServerUnreachable:
    """Return the error for a connection that the server closed; before its first response, HBase refuses so."""
    text = f"{address} closed the connection during {what}"
    if not has_answered:
        text = (
            f"{address} closed the connection before its first answer to {what}: it is going down, or it refuses "
            f"this client. HBase closes the connection without an error when the server has no {service} (a master is "
            "no region server), does not know the cell codec, or requires Kerberos "
            "(hbase.security.authentication), TLS (hbase.client.netty.tls.enabled) or another client certificate; look "
            "into the server's log. "
            "A server that is not HBase may do the same"
        )
    return ServerUnreachable(text, may_have_applied=is_write)


def explain_no_frame(error: ProtocolError, address: str, first: bytes | None) -> ProtocolError:
    """Return the error for bytes that are no frame; ``first`` are the server's first bytes, which show its protocol."""
    peer = recognise_peer(first) if first else None
    if peer is None:
        return ProtocolError(f"{address} does not speak HBase's RPC, or not any more: {error}")
    return ProtocolError(f"{address} does not speak HBase's RPC: {describe_peer(address, peer)}")


def explain_sasl_refusal(refused: SaslRefused, *, address: str, service: str, identity: str) -> AuthenticationFailed:
    """Return the error for a server that refused the handshake: its reason, and what to check."""
    reason = f"{java_errors.simple_name(refused.java_class_name)}: {java_errors.one_line(str(refused))}"
    advice = "look into the server's log for the reason"
    if "expired" in reason:
        advice = "fetch a new token with connection.delegation_token()"
    elif "Mismatched response" in reason or "InvalidToken" in reason:
        advice = "the token is not of this cluster, or was changed: fetch a new one"
    elif "GSS initiate failed" in reason:
        advice = (
            "the server's own principal may be another one: check hbase.master.kerberos.principal and "
            "hbase.regionserver.kerberos.principal; its log has the reason"
        )
    return AuthenticationFailed(
        f"{address} refuses {identity} for its {service}: {reason}; {advice}", detail=str(refused)
    )


def explain_refusal(exception: Mapping[str, Any], address: str, service: str) -> MetaClientError:
    """Return the error for a server that does not accept the preamble or the connection header."""
    text = java_errors.one_line(exception.get("stack_trace", "")) or exception.get("exception_class_name", "no reason")
    if exception.get("exception_class_name") == AccessDenied.java_class:
        return _explain_denied(text, address, exception.get("stack_trace"))
    return RequestRefused(
        f"{address} refuses the connection to its {service}: {text}", detail=exception.get("stack_trace")
    )


def explain_missing_authentication(address: str, service: str) -> AuthenticationFailed:
    """Return the error for a secure server that closed a simple connection without an answer, as HBase 3.0 does."""
    return AuthenticationFailed(
        f"{address} closed the connection to its {service} without an answer, because it requires authentication: "
        f"{_USES_KERBEROS}"
    )


def _explain_denied(text: str, address: str, detail: str | None) -> MetaClientError:
    """Return the error for a secure server that got no authentication, or a user that it may not impersonate."""
    if "impersonate" in text:
        return AccessDenied(
            f"{address}: {text}; the servers' core-site.xml must allow it: hadoop.proxyuser.USER.hosts and .groups",
            detail=detail,
        )
    return AuthenticationFailed(f"{address}: {text}: {_USES_KERBEROS}", detail=detail)
