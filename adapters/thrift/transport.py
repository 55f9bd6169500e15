"""One connection to one gateway: sockets that end with their call's deadline, and Thrift on top of them.

A deadline is an instant, and each call has its own, so the socket's time-out is set before a call and again whenever a
reply arrives in pieces. On plain sockets that is the kernel's own (``SO_RCVTIMEO``): Python's costs a poll a read,
a tenth of a small call. TLS needs Python's.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import ssl
from collections.abc import Callable, Sequence
from http.client import HTTPConnection, HTTPException
from struct import Struct
from typing import Any, Protocol, TypeVar

from thriftpy2._compat import CYTHON
from thriftpy2.protocol import TBinaryProtocol, TCompactProtocol
from thriftpy2.thrift import TClient, TMessageType
from thriftpy2.transport import TBufferedTransport, TFramedTransport

from adapters.thrift.binary import Incoming, NotOurs, RowReader
from adapters.thrift.requests import void_reply
from adapters.thrift.url import Gateway, ThriftUrl
from metaclient.errors import ServerUnreachable

__all__ = ["Link", "Stream", "dial"]

T = TypeVar("T")

#: A page of a scan arrives in a few reads instead of hundreds.
BUFFER_BYTES = 64 * 1024
#: The time-out in force is kept while it is this close to the wanted one: a system call less for most calls.
SLACK = 0.95
TIMEOUT_S_MIN = 0.001
#: More than any page of ours; what announces more than that is no Thrift.
FRAME_BYTES_MAX = 1 << 30
_frame_size = Struct(">I")
_timeval = Struct("ll")
#: The replies of most writes, whole.
_NOTHING_TO_SAY = frozenset(void_reply(method) for method in ("put", "putMultiple", "mutateRows"))


class Stream(Protocol):
    """What Thrift's buffers need below them, and what the pool needs."""

    def begin(self, deadline: float) -> None:
        """The next call must be over by then."""
        ...

    def read(self, size: int) -> bytes: ...

    def write(self, data: bytes) -> None: ...

    def flush(self) -> None: ...

    @property
    def is_pipelined(self) -> bool:
        """Whether a call can be sent before the one before it is answered."""
        ...

    def is_usable(self) -> bool:
        """False when the other side has hung up, or said something that nobody asked for."""
        ...

    def close(self) -> None: ...


class SocketStream:
    """A plain or TLS socket under deadlines."""

    is_pipelined = True

    def __init__(self, sock: socket.socket, now: Callable[[], float]) -> None:
        self._socket = sock
        self._now = now
        self._is_tls = isinstance(sock, ssl.SSLSocket)
        self._deadline = 0.0
        self._timeout_s = 0.0
        self._reads = 0
        self._recv = sock.recv

    def begin(self, deadline: float) -> None:
        self._deadline = deadline
        self._reads = 0
        self._set_timeout()

    def _set_timeout(self) -> None:
        left_s = self._deadline - self._now()
        if left_s <= 0:
            raise TimeoutError("the call's time was over")
        if left_s * SLACK <= self._timeout_s <= left_s:
            return
        self._timeout_s = max(left_s, TIMEOUT_S_MIN)
        if self._is_tls:
            self._socket.settimeout(self._timeout_s)
            return
        seconds, rest = divmod(self._timeout_s, 1.0)
        packed = _timeval.pack(int(seconds), max(1, int(rest * 1e6)))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, packed)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, packed)

    def read(self, size: int) -> bytes:
        if self._reads:  # a reply in pieces must not start the time anew with each of them
            self._set_timeout()
        self._reads += 1
        try:
            data = self._recv(size)
        except BlockingIOError as error:
            raise TimeoutError("no answer within the call's time") from error
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, "the gateway closed the connection")
        return data

    def write(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except BlockingIOError as error:
            raise TimeoutError("the gateway took nothing within the call's time") from error

    def flush(self) -> None:
        """Thrift's buffers call it; a socket has nothing to flush."""

    def is_usable(self) -> bool:
        if self._is_tls:  # under a time-out of Python's a peek would wait for it
            self._socket.setblocking(False)
            self._timeout_s = 0.0
        try:
            # The SSL layer cannot peek; what is below it says the same: silence, data that nobody asked for, or an end.
            socket.socket.recv(self._socket, 1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        # A thread that is waiting in recv() wakes up at shutdown, not at close.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        self._socket.close()


class HttpStream:
    """Each call is the body of a POST; requests of one connection follow one another."""

    is_pipelined = False

    def __init__(self, gateway: Gateway, path: str, now: Callable[[], float]) -> None:
        self._connection = HTTPConnection(gateway.host, gateway.port)
        self._path = path
        self._now = now
        self._deadline = 0.0
        self._request = bytearray()
        self._reply = b""
        self._at = 0

    def begin(self, deadline: float) -> None:
        self._deadline = deadline
        self._request.clear()
        self._reply, self._at = b"", 0
        self._set_timeout()

    def _set_timeout(self) -> None:
        left_s = self._deadline - self._now()
        if left_s <= 0:
            raise TimeoutError("the call's time was over")
        self._connection.timeout = left_s
        if self._connection.sock is not None:
            self._connection.sock.settimeout(left_s)

    def connect(self) -> None:
        self._connection.connect()
        self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def write(self, data: bytes) -> None:
        self._request += data

    def flush(self) -> None:
        headers = {"Content-Type": "application/x-thrift", "Accept": "application/x-thrift"}
        try:
            self._connection.request("POST", self._path, bytes(self._request), headers)
            answer = self._connection.getresponse()
            self._reply = answer.read()
        except HTTPException as error:
            raise ConnectionResetError(errno.ECONNRESET, f"no HTTP answer: {error!r}") from error
        if answer.status != 200:
            raise ConnectionError(f"the gateway answered HTTP {answer.status} {answer.reason}")

    def read(self, size: int) -> bytes:
        data = self._reply[self._at : self._at + size]
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, "the HTTP answer ends too early")
        self._at += len(data)
        return data

    def is_usable(self) -> bool:
        sock = self._connection.sock
        if sock is None:
            return True  # it is opened again by the next request
        sock.setblocking(False)
        try:
            sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        sock = self._connection.sock
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._connection.close()


class Reply:
    """A reply as it arrives; in a frame all of it is read before it is looked at.

    ``begun`` is what came behind the reply before. Of the last one that was asked for, nothing more may come.
    """

    def __init__(self, stream: Stream, *, is_framed: bool, begun: bytes = b"", is_last: bool = True) -> None:
        self._stream = stream
        self._is_framed = is_framed
        self._is_last = is_last
        self.data = self._frame() if is_framed else begun or stream.read(BUFFER_BYTES)

    def _frame(self) -> bytes:
        size = _frame_size.unpack(self._exactly(_frame_size.size))[0]
        if size > FRAME_BYTES_MAX:
            raise ConnectionError(f"the gateway announces {size} bytes, more than the {FRAME_BYTES_MAX} of any answer")
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            parts.append(self._stream.read(size))
            size -= len(parts[-1])
        return b"".join(parts)

    def more(self, at: int) -> bytes:
        if self._is_framed:
            raise ConnectionError("the gateway's answer ends too early")
        # As much as there is again: a long row is looked at a few times, not once for each packet.
        self.data = self.data[at:] + self._stream.read(max(BUFFER_BYTES, len(self.data)))
        return self.data

    def end(self, at: int) -> None:
        self.data = self.data[at:]
        if self.data and (self._is_last or self._is_framed):
            raise ConnectionError("the gateway sent more than one answer")

    def read(self, size: int) -> bytes:
        """For thriftpy2, when it has to read the whole message after all."""
        if not self.data and not self._is_framed:
            return self._stream.read(size)
        data, self.data = self.data[:size], self.data[size:]
        return data


class Link:
    """A connection in use: Thrift's client on a stream, and the gateway at its other end.

    ``rows`` reads rows by hand; None where the protocol is not the binary one, and the client must be asked. ``owed``
    are replies that will still come: who meets them would take them for answers to something else.
    """

    __slots__ = ("_is_framed", "client", "gateway", "idle_since", "owed", "rows", "stream")

    def __init__(
        self, gateway: Gateway, stream: Stream, client: Any, *, rows: RowReader | None = None, is_framed: bool = False
    ) -> None:
        self.gateway = gateway
        self.stream = stream
        self.client = client
        self.rows = rows
        self.idle_since = 0.0
        self.owed = 0
        self._is_framed = is_framed

    def ask(self, method: str, request: bytes | tuple[object, ...], read: Callable[[Incoming, RowReader], T]) -> T:
        """Send a request, written by hand or as arguments, and read the reply by hand."""
        self._send(method, request)
        return self._answer(method, Reply(self.stream, is_framed=self._is_framed), read)

    def ask_each(
        self,
        method: str,
        requests: Sequence[bytes | tuple[object, ...]],
        read: Callable[[Incoming, RowReader], T],
    ) -> list[T]:
        """Send all requests, then read the replies: the gateway is at work on the next while one is read.

        The first error is raised, and the replies behind it are owed.
        """
        if not self.stream.is_pipelined:
            return [self.ask(method, request, read) for request in requests]
        self.owed = len(requests)
        for request in requests:
            self._send(method, request)
        answers: list[T] = []
        begun = b""
        while self.owed:
            self.owed -= 1
            reply = Reply(self.stream, is_framed=self._is_framed, begun=begun, is_last=not self.owed)
            answers.append(self._answer(method, reply, read))
            begun = reply.data
        return answers

    def _answer(self, method: str, reply: Reply, read: Callable[[Incoming, RowReader], T]) -> T:
        assert self.rows is not None
        try:
            return read(reply, self.rows)
        except NotOurs:
            self._received(method, reply)  # mostly an error, which it raises
            raise ConnectionError(f"the gateway's answer to {method} cannot be read") from None

    def say(self, method: str, request: bytes) -> None:
        """Send a request that was written by hand, whose reply is nothing or an error."""
        self._send(method, request)
        self._received(method, Reply(self.stream, is_framed=self._is_framed))

    def _send(self, method: str, request: bytes | tuple[object, ...]) -> None:
        if isinstance(request, bytes):
            self.stream.write(_frame_size.pack(len(request)) + request if self._is_framed else request)
            self.stream.flush()
            return
        protocol = self.client._oprot
        protocol.write_message_begin(method, TMessageType.CALL, 0)
        getattr(self.client._service, f"{method}_args")(*request).write(protocol)
        protocol.write_message_end()
        protocol.trans.flush()

    def _received(self, method: str, reply: Reply) -> Any:
        if reply.data in _NOTHING_TO_SAY:
            return None
        protocol = _protocol(reply, decodes_text=self.client._iprot.decode_response)
        return TClient(self.client._service, protocol)._recv(method)

    def close(self) -> None:
        self.stream.close()


def dial(
    url: ThriftUrl,
    gateway: Gateway,
    service: Any,
    *,
    rows: Callable[[], RowReader],
    decodes_text: bool,
    now: Callable[[], float],
    deadline: float,
) -> Link:
    """Connect to a gateway; every failure is ServerUnreachable, because nothing was sent yet."""
    try:
        stream = _http(url, gateway, now, deadline) if url.is_http else _tcp(url, gateway, now, deadline)
    except (OSError, ssl.SSLError) as error:
        raise ServerUnreachable(f"the Thrift gateway {gateway} cannot be reached: {error}") from error
    protocol = _protocol(stream, is_framed=url.is_framed, is_compact=url.is_compact, decodes_text=decodes_text)
    client = TClient(service, protocol)
    return Link(gateway, stream, client, rows=None if url.is_compact else rows(), is_framed=url.is_framed)


def _protocol(stream: Any, *, decodes_text: bool, is_framed: bool = False, is_compact: bool = False) -> Any:
    buffered: Any = TFramedTransport if is_framed else TBufferedTransport  # which class depends on the platform
    transport = buffered(stream, BUFFER_BYTES) if CYTHON else buffered(stream)
    protocol: Any = TCompactProtocol if is_compact else TBinaryProtocol
    return protocol(transport, decode_response=decodes_text)


def _tcp(url: ThriftUrl, gateway: Gateway, now: Callable[[], float], deadline: float) -> SocketStream:
    left_s = max(deadline - now(), TIMEOUT_S_MIN)
    sock = socket.create_connection((gateway.host, gateway.port), left_s)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if url.is_tls:
            sock = _tls(url).wrap_socket(sock, server_hostname=gateway.host)
        else:
            sock.settimeout(None)  # from here on the kernel's own time-outs
    except BaseException:
        sock.close()
        raise
    return SocketStream(sock, now)


def _tls(url: ThriftUrl) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=url.ca_file)
    if not url.verifies:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _http(url: ThriftUrl, gateway: Gateway, now: Callable[[], float], deadline: float) -> HttpStream:
    stream = HttpStream(gateway, url.path, now)
    stream.begin(deadline)
    stream.connect()
    return stream
