"""Transports below Thrift's calls, in Thrift's sense of the word: a stream, or HTTP requests on a stream.

A call begins with its deadline. The stream below (:mod:`metaclient.wire.stream`) is made by a `Dial`: plain TCP, TLS,
or the one that was passed to the backend.
"""

from __future__ import annotations

import errno
import io
import ssl
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any, Protocol, cast

from metaclient.errors import AccessDenied, ServerUnreachable
from metaclient.runtime import Runtime
from metaclient.wire.dials import choose_dial
from metaclient.wire.reply_limit import REPLY_BYTES_MAX, explain_reply_limit
from metaclient.wire.stream import Dial, Stream
from metaclient_thrift.security import GatewaySecurity, Negotiation
from metaclient_thrift.url import Gateway, ThriftUrl

__all__ = ["HttpTransport", "StreamTransport", "Transport", "connect", "dial_of", "explain_long_reply"]

#: For so long after a read, a stream is taken for open and silent. What it carries is checked with each reply anyway.
PAUSE_S = 0.02
#: The bytes of one read of an HTTP body.
_READ_BYTES = 1 << 20


class Transport(Protocol):
    """What Thrift's buffers and the pool of connections call."""

    def begin(self, deadline: float) -> None:
        """Begin a call with its deadline; TimeoutError if that has passed."""
        ...

    def read(self, size: int) -> bytes: ...

    def write(self, data: bytes) -> None: ...

    def flush(self) -> None: ...

    @property
    def is_pipelined(self) -> bool:
        """True if a call can be sent before the reply to the previous one has arrived."""
        ...

    def is_usable(self) -> bool:
        """Return False if the gateway has hung up, or has sent bytes that belong to no call."""
        ...

    def close(self) -> None: ...

    def leave_to_parent(self) -> None:
        """In a child process: release this process's descriptor and send nothing, so that the parent can go on."""
        ...


class StreamTransport:
    """Calls on a stream, each with its own deadline."""

    is_pipelined = True

    def __init__(self, stream: Stream, now: Callable[[], float]) -> None:
        self._stream = stream
        self._read, self._write = stream.read, stream.write
        self._now = now
        self._read_at = float("-inf")
        self._deadline = 0.0

    def begin(self, deadline: float) -> None:
        if deadline <= self._now():
            raise TimeoutError("the deadline of the call had passed")
        self._deadline = deadline

    def read(self, size: int) -> bytes:
        data = self._read(size, self._deadline) or _read(self._stream, size, self._deadline, self._now)
        self._read_at = self._now()
        return data

    def is_usable(self) -> bool:
        """Look at the stream only after a pause.

        The look is a system call, during which another thread may take Python's global lock: that costs more than the
        look itself.
        """
        return self._now() - self._read_at < PAUSE_S or self._stream.is_silent()

    def write(self, data: bytes) -> None:
        self._write(data, self._deadline)

    def flush(self) -> None:
        """Do nothing, for Thrift's buffers: a stream does not buffer."""

    def close(self) -> None:
        self._stream.close()

    def leave_to_parent(self) -> None:
        self._stream.leave_to_parent()


def _read(stream: Stream, size: int, deadline: float, now: Callable[[], float]) -> bytes:
    """Return the bytes that have arrived; TimeoutError at the deadline, ConnectionResetError at the end."""
    while (data := stream.read(size, deadline)) is None:
        if now() >= deadline:
            raise TimeoutError("no answer within the call's time")
    if not data:
        raise ConnectionResetError(errno.ECONNRESET, "the gateway closed the connection")
    return data


class _StreamSocket:
    """A stream with the methods of a socket that ``http.client`` calls; ``HttpTransport`` closes the stream."""

    def __init__(self, stream: Stream, deadline: Callable[[], float], now: Callable[[], float]) -> None:
        self._stream = stream
        self._deadline = deadline
        self._now = now

    def sendall(self, data: bytes) -> None:
        self._stream.write(data, self._deadline())

    def receive(self, size: int) -> bytes:
        return _read(self._stream, size, self._deadline(), self._now)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_ResponseFile(self))

    def close(self) -> None:
        """Do nothing: ``http.client`` closes the socket before it has read the last response."""


class _ResponseFile(io.RawIOBase):
    """The bytes of one HTTP response; closing it leaves the stream open for the next request."""

    def __init__(self, sock: _StreamSocket) -> None:
        super().__init__()
        self._socket = sock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._socket.receive(len(buffer))
        except ConnectionResetError:
            return 0  # the end of the stream; ``http.client`` decides whether it is too early
        buffer[: len(data)] = data
        return len(data)


class HttpTransport:
    """Each call is the body of a POST. A request is sent after the response to the one before it."""

    is_pipelined = False

    def __init__(
        self,
        gateway: Gateway,
        path: str,
        *,
        dial: Dial,
        now: Callable[[], float],
        reply_bytes_max: int = REPLY_BYTES_MAX,
        negotiation: Negotiation | None = None,
    ) -> None:
        self._negotiation = negotiation
        self._gateway = gateway
        self._connection = HTTPConnection(gateway.host, gateway.port)
        self._path = path
        self._dial = dial
        self._now = now
        self._reply_bytes_max = reply_bytes_max
        self._stream: Stream | None = None
        self._deadline = 0.0
        self._request = bytearray()
        self._reply = b""
        self._at = 0

    def begin(self, deadline: float) -> None:
        if deadline <= self._now():
            raise TimeoutError("the deadline of the call had passed")
        self._deadline = deadline
        self._request.clear()
        self._reply, self._at = b"", 0

    def connect(self) -> None:
        stream = self._stream = self._dial(self._gateway.host, self._gateway.port, self._now, self._deadline)
        self._connection.sock = cast("Any", _StreamSocket(stream, lambda: self._deadline, self._now))

    def write(self, data: bytes) -> None:
        self._request += data

    def flush(self) -> None:
        request = bytes(self._request)
        self._request.clear()  # a page of a scan is several requests, one after the other
        self._reply, self._at = b"", 0
        negotiation = self._negotiation
        headers = {"Content-Type": "application/x-thrift", "Accept": "application/x-thrift"}
        if negotiation is not None:
            headers |= negotiation.headers()
        if self._connection.sock is None:  # the gateway closed the connection after the last response
            self.close()
            try:
                self.connect()
            except ServerUnreachable as error:
                raise ConnectionError(str(error)) from error
        try:
            self._connection.request("POST", self._path, request, headers)
            answer = self._connection.getresponse()
            self._reply = self._read_body(answer)
        except HTTPException as error:
            raise ConnectionResetError(errno.ECONNRESET, f"no HTTP answer: {error!r}") from error
        if negotiation is not None:
            negotiation.check_answer(answer.status, answer.getheader("WWW-Authenticate"))
        if answer.status == 500 and "doAs" in headers:
            raise AccessDenied(
                f"the gateway {self._gateway} does not let this user act as {headers['doAs']} (HTTP 500): it needs "
                "hbase.thrift.support.proxyuser=true, and hadoop.proxyuser.USER.hosts and .groups in its core-site.xml"
            )
        if answer.status != 200:
            raise ConnectionError(f"the gateway answered HTTP {answer.status} {answer.reason}")

    def _read_body(self, answer: HTTPResponse) -> bytes:
        """Return the body; BytesIO returns it without a copy, so that it is in memory only once."""
        body = io.BytesIO()
        while data := answer.read(_READ_BYTES):
            body.write(data)
            if body.tell() > self._reply_bytes_max:
                raise explain_long_reply(self._reply_bytes_max)
        return body.getvalue()

    def read(self, size: int) -> bytes:
        data = self._reply[self._at : self._at + size]
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, "the HTTP answer ends too early")
        self._at += len(data)
        return data

    def is_usable(self) -> bool:
        if self._connection.sock is None or self._stream is None:
            return True  # the next request connects again
        return self._stream.is_silent()

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._connection.close()

    def leave_to_parent(self) -> None:
        if self._stream is not None:
            self._stream.leave_to_parent()


def explain_long_reply(bytes_max: int) -> ConnectionError:
    """Return the error for a reply of more than ``bytes_max`` bytes."""
    return ConnectionError(f"the gateway's answer has more than {bytes_max} bytes: {explain_reply_limit(bytes_max)}")


def connect(
    url: ThriftUrl,
    gateway: Gateway,
    *,
    now: Callable[[], float],
    deadline: float,
    dial: Dial,
    security: GatewaySecurity | None = None,
) -> Transport:
    """Connect to a gateway with ``dial``; every failure of the network is ServerUnreachable."""
    try:
        if url.is_http:
            http = HttpTransport(
                gateway,
                url.path,
                dial=dial,
                now=now,
                reply_bytes_max=url.reply_bytes_max,
                negotiation=Negotiation(security or GatewaySecurity(), gateway),
            )
            http.begin(deadline)
            http.connect()
            return http
        return StreamTransport(dial(gateway.host, gateway.port, now, deadline), now)
    except ServerUnreachable as error:
        hint = f" (if it does not use TLS: thrift2://{gateway})" if isinstance(error.__cause__, ssl.SSLError) else ""
        raise ServerUnreachable(f"the Thrift gateway {error}{hint}") from error.__cause__
    except TimeoutError as error:
        raise ServerUnreachable(f"the Thrift gateway {gateway} cannot be reached: {error}") from error


def dial_of(url: ThriftUrl, security: GatewaySecurity, runtime: Runtime) -> Dial:
    """Return the `Dial` of a url: plain TCP or TLS, with the handshake of SASL if the url has it."""
    below = choose_dial(runtime, security.make_context if url.is_tls else None)
    return security.make_dial(url, below, runtime)
