"""Serves one Thrift service: takes a call off the wire, runs the handler's method, answers as HBase's libthrift does.

===================================  ===============================================================================
what happens                         what the client gets
===================================  ===============================================================================
a declared Thrift exception          that exception
a :class:`MetaClientError`           what ``failure`` makes of it: a declared exception, or an internal error
any other exception of the handler   TApplicationException 6, ``Internal error processing METHOD``
an unknown method                    TApplicationException 1, ``Invalid method name: 'METHOD'``; the connection goes on
a missing required field             TApplicationException 7, and the connection is closed
bytes that are no message            the connection is closed
===================================  ===============================================================================
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from thriftpy2.thrift import TApplicationException, TException, TMessageType, TType

from metaclient.errors import ConnectionClosed, MetaClientError
from metaclient.wire.listener import Client
from metaclient_fake.front.pending_bytes import PendingBytes
from metaclient_fake.front.wire import MESSAGE_BYTES_MAX, MESSAGE_S, BadMessage, ClientTransport, check_dialect

__all__ = ["IllegalArgument", "Service"]

_log = logging.getLogger(__name__)
_PROTOCOL_ERROR = 7  # TApplicationException.PROTOCOL_ERROR in libthrift


class IllegalArgument(Exception):
    """A Java runtime exception in the gateway: the client gets an internal error, the text is logged."""


@dataclass(frozen=True, slots=True)
class _Method:
    """The prepared types of one method of the service."""

    name: str
    arguments: Any
    result: Any
    names: tuple[str, ...]
    raises: tuple[tuple[str, type[Exception]], ...]
    handler: Callable[..., Any]
    has_value: bool


class Service:
    """A Thrift service and its handler. ``failure(method, args, error)`` translates a MetaClientError as HBase does."""

    def __init__(
        self,
        service: Any,
        handler: object,
        *,
        failure: Callable[[str, Any, MetaClientError], Exception],
        now: Callable[[], float],
        pending: PendingBytes,
        transport: str = "auto",
        protocol: str = "auto",
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        message_s: float = MESSAGE_S,
    ) -> None:
        check_dialect(transport, protocol)
        self._failure = failure
        self._wire_options: dict[str, Any] = {
            "now": now,
            "pending": pending,
            "transport": transport,
            "protocol": protocol,
            "message_bytes_max": message_bytes_max,
            "message_s": message_s,
        }
        self._methods = {name: _method(service, name, getattr(handler, name)) for name in service.thrift_services}

    def serve(self, sock: Client) -> None:
        """Serve one client until it hangs up, or sends a message that cannot be answered."""
        wire = ClientTransport(sock, **self._wire_options)
        try:
            protocol = wire.open()
            while protocol is not None:
                self._answer(wire, protocol)
                wire.begin()
        except EOFError:
            return
        except BadMessage as error:
            _log.debug("a client was disconnected: %s", error)
        finally:
            wire.close()

    def _answer(self, wire: ClientTransport, protocol: Any) -> None:
        """Answer one call. Raises BadMessage when the message cannot be read."""
        try:
            name, kind, number = protocol.read_message_begin()
            method = self._methods.get(name)
            if kind not in (TMessageType.CALL, TMessageType.ONEWAY):
                raise BadMessage(f"a message of type {kind} is no call")
            if method is None:
                protocol.skip(TType.STRUCT)
                said = TApplicationException(TApplicationException.UNKNOWN_METHOD, f"Invalid method name: '{name}'")
                _reply(protocol, name, TMessageType.EXCEPTION, number, said)
                return
            arguments = method.arguments()
            arguments.read(protocol)
        except (OSError, EOFError, BadMessage):
            raise
        except Exception as error:  # decoders raise various errors for malformed bytes
            raise BadMessage(f"a message cannot be read: {type(error).__name__}: {error}") from error
        self._run(wire, protocol, method, arguments, number)

    def _run(self, wire: ClientTransport, protocol: Any, method: _Method, arguments: Any, number: int) -> None:
        result = method.result()
        try:
            value = method.handler(*[getattr(arguments, name) for name in method.names])
            if method.has_value:
                result.success = value
        except ConnectionClosed:
            raise  # the cluster is closed: so are its gateways
        except Exception as raised:
            said = self._said(method, arguments, raised)
            if isinstance(said, TApplicationException):
                _reply(protocol, method.name, TMessageType.EXCEPTION, number, said)
                if said.type == _PROTOCOL_ERROR:
                    raise BadMessage(str(said.message)) from raised
                return
            setattr(result, next(field for field, kind in method.raises if isinstance(said, kind)), said)
        try:
            _reply(protocol, method.name, TMessageType.REPLY, number, result)
        except (OSError, EOFError):
            raise
        except Exception:
            _log.exception("the answer to %s cannot be written", method.name)
            wire.discard_reply()
            _reply(protocol, method.name, TMessageType.EXCEPTION, number, _internal(method.name))

    def _said(self, method: _Method, arguments: Any, raised: Exception) -> Exception:
        """Return the exception for the client: one that this method declares, or a TApplicationException."""
        error = raised
        if isinstance(raised, MetaClientError):
            error = self._failure(method.name, arguments, raised)
        if any(isinstance(error, kind) for _, kind in method.raises):
            return error
        missing = _missing(arguments)
        if missing is not None:
            return TApplicationException(_PROTOCOL_ERROR, f"Required field '{missing}' was not present!")
        if not isinstance(error, IllegalArgument | MetaClientError | TException):
            _log.error("%s failed inside of the gateway", method.name, exc_info=error)
        else:
            _log.debug("%s is refused with an internal error: %s", method.name, error)
        return _internal(method.name)


def _method(service: Any, name: str, handler: Callable[..., Any]) -> _Method:
    arguments, result = getattr(service, f"{name}_args"), getattr(service, f"{name}_result")
    fields = [result.thrift_spec[number] for number in sorted(result.thrift_spec)]
    return _Method(
        name,
        arguments,
        result,
        tuple(spec[1] for spec in arguments.thrift_spec.values()),
        tuple((spec[1], spec[2]) for spec in fields if spec[1] != "success"),
        handler,
        any(spec[1] == "success" for spec in fields),
    )


def _reply(protocol: Any, name: str, kind: int, number: int, body: Any) -> None:
    protocol.write_message_begin(name, kind, number)
    body.write(protocol)
    protocol.write_message_end()
    protocol.trans.flush()


def _internal(name: str) -> TApplicationException:
    return TApplicationException(TApplicationException.INTERNAL_ERROR, f"Internal error processing {name}")


def _missing(struct: Any) -> str | None:
    """Return the first missing required field of a struct or of its inner structs. Called only after a failure."""
    for spec in struct.thrift_spec.values():
        value, is_required = getattr(struct, spec[1], None), spec[-1]
        if value is None:
            if is_required is True:
                return str(spec[1])
            continue
        for below in value if isinstance(value, list) else (value,):
            found = _missing(below) if hasattr(below, "thrift_spec") else None
            if found is not None:
                return found
    return None
