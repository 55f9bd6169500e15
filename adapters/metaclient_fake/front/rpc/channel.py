"""The server's side of one connection of HBase's RPC: preamble, header, then calls, answered in any order.

A call that does not wait is run by the thread that read it. A call that may wait (a fault, a slow or hung server, a
procedure) runs in its own task, so that it does not delay the next calls on the same connection.

As in HBase 2.6: for an unknown service the connection is closed without a response; a call whose deadline has passed,
or whose server does not answer, gets no response.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from metaclient.errors import (
    AccessDenied,
    CallTimeout,
    ConnectionClosed,
    MetaClientError,
    Overloaded,
    ServerUnreachable,
)
from metaclient.model import Identity
from metaclient.protobuf import ProtocolError
from metaclient.runtime import Lock, Runtime
from metaclient.wire.listener import Client, hang_up
from metaclient.wire.rpc import framing
from metaclient.wire.rpc.greeting import allow_simple, receive_header, receive_preamble
from metaclient.wire.sasl.messages import SASL_EXCEPTION, encode_refusal
from metaclient_fake.front.pending_bytes import PendingBytes
from metaclient_fake.front.rpc.addresses import Addresses
from metaclient_fake.front.rpc.errors import DO_NOT_RETRY, Thrown, thrown
from metaclient_fake.front.rpc.tokens import IssuedTokens

__all__ = ["Answer", "Channel", "Endpoint", "Incoming", "Methods"]

logger = logging.getLogger(__name__)

_READ_BYTES = 64 * 1024
#: Reads of a client that was refused; a header and its first calls fit into a few.
_DRAINED_READS_MAX = 64
#: The timeout of a call whose request has none (hbase.rpc.timeout).
_DEFAULT_TIMEOUT_S = 60.0
_TOO_BIG = "org.apache.hadoop.hbase.exceptions.RequestTooBigException"
_QUEUE_FULL = "org.apache.hadoop.hbase.CallQueueTooBigException"


class Answer(NamedTuple):
    """The response message, and the cells for the cell block after it."""

    param: bytes = b""
    cells: bytes = b""


@dataclass(frozen=True, slots=True)
class Incoming:
    """A decoded call, the argument of a service's method."""

    param: bytes
    cells: bytes
    deadline: float
    has_codec: bool  # else cells are inside the messages
    identity: Identity  # the user of the connection, and how it was authenticated


class Methods(Protocol):
    """A service: its methods by HBase's names."""

    def method(self, name: str) -> Callable[[Incoming], Answer] | None: ...

    def may_wait(self, name: str) -> bool:
        """Return True if this call may take long even without faults."""
        ...


class Endpoint(Protocol):
    """One server of the cluster behind one listening socket."""

    services: Mapping[str, Methods]

    def listens(self) -> bool:
        """Return True if a server listens here."""
        ...

    @property
    def is_quick(self) -> bool:
        """True if calls do not wait: no fault, delay or queue is active."""
        ...


class Channel:
    """Serves one client; :meth:`serve` is called once."""

    def __init__(
        self,
        endpoint: Endpoint,
        runtime: Runtime,
        addresses: Addresses,
        *,
        cluster_id: str,
        pending: PendingBytes,
        tokens: IssuedTokens | None = None,
    ) -> None:
        """``pending`` bounds a frame, and the incomplete frames of all clients. With ``tokens``, clients need one."""
        self._tokens = tokens
        self._endpoint = endpoint
        self._runtime = runtime
        self._addresses = addresses
        self._cluster_id = cluster_id
        self._pending = pending
        self._lock: Lock = runtime.lock()  # guards writing
        self._has_codec = False
        self._identity = Identity("", "SIMPLE")

    def serve(self, sock: Client) -> None:
        """Serve until the client hangs up or the server stops; the listener closes the socket."""
        if not self._endpoint.listens():
            return
        client = self._preamble_read(sock)
        methods = self._greeted(client) if client is not None else None
        if client is None or methods is None:
            return
        try:
            self._serve_calls(client, methods)
        finally:
            self._pending.hold(client, 0)

    def _serve_calls(self, sock: Client, methods: Methods) -> None:
        reader = framing.FrameReader(self._pending.bytes_max)
        while data := sock.recv(_READ_BYTES):
            try:
                for frame in reader.feed(data):
                    if not self._endpoint.listens():
                        return
                    self._receive(sock, methods, frame)
                self._pending.hold(sock, reader.buffered)
            except ProtocolError as error:
                logger.debug("a client sent bytes that are not a call: %s", error)
                self._send(sock, Thrown(_TOO_BIG, str(error), do_not_retry=True).frame(0))
                return

    def _greeted(self, sock: Client) -> Methods | None:
        """Read the header; return the requested service, None if the connection must be closed."""
        greeting = receive_header(sock)
        if greeting is None:
            return None
        self._has_codec = greeting.has_codec
        if self._tokens is None:
            self._identity = Identity(greeting.user or "", "SIMPLE")
        return self._endpoint.services.get(greeting.service)

    def _preamble_read(self, sock: Client) -> Client | None:
        """Read the preamble and authenticate; return the client to read and write, None if it is refused."""
        auth = receive_preamble(sock, self._cluster_id)
        if auth is None:
            return None
        if self._tokens is not None:
            return self._authenticated(sock, auth, self._tokens)
        allow_simple(sock, auth)
        return sock

    def _authenticated(self, sock: Client, auth: int, tokens: IssuedTokens) -> Client | None:
        """Authenticate by a token; refuse simple authentication and Kerberos with HBase's words."""
        if auth == framing.AUTH_DIGEST:
            authenticated = tokens.authenticate(sock)
            if authenticated is None:
                return None
            client, username = authenticated
            self._identity = Identity(username, "TOKEN")
            return client
        if auth == framing.AUTH_KERBEROS:
            self._send(sock, encode_refusal(SASL_EXCEPTION, "GSS initiate failed"))
        else:
            denied = Thrown(AccessDenied.java_class or "", "Authentication is required", do_not_retry=True)
            self._send(sock, denied.frame(framing.CONNECTION_CALL_ID))
            _drain(sock)
        return None

    # -- calls -------------------------------------------------------------------------------------------------

    def _receive(self, sock: Client, methods: Methods, frame: bytes) -> None:
        request = framing.parse_request(frame)
        method = methods.method(request.method)
        if method is None:
            text = f"java.lang.UnsupportedOperationException: {request.method}"
            self._send(sock, Thrown(DO_NOT_RETRY, text, do_not_retry=True).frame(request.call_id))
            return
        if not request.has_param:
            text = "Invalid request header: should have param set in it"
            self._send(sock, Thrown(DO_NOT_RETRY, text, do_not_retry=True).frame(request.call_id))
            return
        timeout_s = request.timeout_ms / 1000 if request.timeout_ms else _DEFAULT_TIMEOUT_S
        deadline = self._runtime.now() + timeout_s
        call = Incoming(request.param, request.cells, deadline, self._has_codec, self._identity)
        if self._endpoint.is_quick and not methods.may_wait(request.method):
            self._run(sock, method, call, request.call_id)
            return
        try:
            self._runtime.start(self._run_apart, sock, method, call, request.call_id, name="rpc-call")
        except Overloaded as error:
            self._send(sock, Thrown(_QUEUE_FULL, str(error), is_overloaded=True).frame(request.call_id))

    def _run_apart(self, sock: Client, method: Callable[[Incoming], Answer], call: Incoming, call_id: int) -> None:
        try:
            self._run(sock, method, call, call_id)
        except OSError as error:
            logger.debug("the client disconnected: %r", error)
            hang_up(sock)

    def _run(self, sock: Client, method: Callable[[Incoming], Answer], call: Incoming, call_id: int) -> None:
        """Run the method and send its response; raise OSError when the client, or the server, is gone."""
        try:
            param, cells = method(call)
        except CallTimeout as error:
            logger.debug("no response is sent, as in HBase: %s", error)
        except (ServerUnreachable, ConnectionClosed) as error:
            raise ConnectionResetError(str(error)) from error
        except MetaClientError as error:
            self._send(sock, thrown(error, self._addresses).frame(call_id))
        except OSError:
            raise
        except Exception as error:  # a defect of the fake, or an unexpected message: as HBase's CallRunner does
            logger.exception("a call failed inside of the server")
            text = f"{type(error).__name__}: {error}"
            self._send(sock, Thrown(DO_NOT_RETRY, text, do_not_retry=True).frame(call_id))
        else:
            self._send(sock, framing.response(call_id, param, cells))

    def _send(self, sock: Client, data: bytes) -> None:
        """Send a response in one write, under the lock: responses of several tasks must not interleave."""
        with self._lock:
            sock.sendall(data)


def _drain(sock: Client) -> None:
    """Read what the client has sent, until it hangs up: closing before that would discard the refusal on its way."""
    for _ in range(_DRAINED_READS_MAX):
        if not sock.recv(_READ_BYTES):
            return
