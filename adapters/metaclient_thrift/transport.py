"""One connection to one gateway: sockets that end with their call's deadline, and Thrift on top of them.

A deadline is an instant, and each call has its own, so the socket's time-out is set before a call and again whenever a
reply arrives in pieces. On plain sockets that is the kernel's own (``SO_RCVTIMEO``): Python's costs a poll a read,
a tenth of a small call. TLS needs Python's.
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import ssl
from collections.abc import Callable, Sequence
from http.client import HTTPConnection, HTTPException
from struct import Struct
from typing import Any, Protocol, TypeVar

from thriftpy2._compat import CYTHON
from thriftpy2.protocol import TBinaryProtocol, TCompactProtocol
from thriftpy2.thrift import TMessageType
from thriftpy2.transport import TBufferedTransport, TFramedTransport

from metaclient.errors import ServerUnreachable
from metaclient.runtime import close_descriptor, refuse_green_threads
from metaclient.wire.stream import end_when_unacknowledged
from metaclient.wire.thrift.idl import server_type
from metaclient.wire.thrift.message_walk import MalformedMessage, walk_of
from metaclient_thrift.binary import Incoming, NotOurs, RowReader
from metaclient_thrift.messages import NotThrift, call_head, next_number, pack_number, read_reply, reply_head
from metaclient_thrift.url import Gateway, ThriftUrl

__all__ = ["Link", "Stream", "dial"]

T = TypeVar("T")

#: A page of a scan arrives in a few reads instead of hundreds.
BUFFER_BYTES = 64 * 1024
#: The time-out in force is kept while it is this close to the wanted one: a system call less for most calls.
SLACK = 0.95
TIMEOUT_S_MIN = 0.001
#: The size of a reply at most, however it is framed: as much as of HBase's RPC (hbase.ipc.max.request.size).
REPLY_BYTES_MAX = 256 << 20
#: One read of a socket: Python makes room for as much as is asked for.
_READ_BYTES_MAX = 4 << 20
#: As much of a stranger's first answer as it takes to recognise it.
_FIRST_BYTES = 1024
_frame_size = Struct(">I")
_timeval = Struct("ll")
_FIRST_NUMBER = pack_number(1)


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

    def leave_to_parent(self) -> None:
        """In a child process: close our descriptor and send nothing, so that the parent's connection goes on."""
        ...


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
        poll = select.poll()  # 0.4 us; to peek and be told that there is nothing takes four times as long
        poll.register(sock, select.POLLIN)
        self._events = poll.poll

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
        """Send all of it. Not ``sendall``, which starts the time anew with each piece that the gateway takes."""
        try:
            sent = self._socket.send(data)
            if sent < len(data):
                view = memoryview(data)
                while sent < len(data):
                    self._set_timeout()
                    sent += self._socket.send(view[sent:])
        except BlockingIOError as error:
            raise TimeoutError("the gateway took nothing within the call's time") from error

    def flush(self) -> None:
        """Thrift's buffers call it; a socket has nothing to flush."""

    def is_usable(self) -> bool:
        # Bytes that can be read are an end, or an answer that nobody asked for; of TLS, too.
        return not self._events(0) and not (self._is_tls and self._socket.pending())  # type: ignore[attr-defined]  # an SSLSocket has it

    def close(self) -> None:
        # A thread that is waiting in recv() wakes up at shutdown, not at close.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        self._socket.close()

    def leave_to_parent(self) -> None:
        close_descriptor(self._socket)


class _TimedSocket(socket.socket):
    """A socket each of whose reads and writes has the time that remains of the call; ``left_s`` is set by its owner."""

    left_s: Callable[[], float]

    def recv_into(self, *args: Any) -> int:
        self.settimeout(self.left_s())
        return super().recv_into(*args)

    def sendall(self, data: Any, flags: int = 0) -> None:
        self.settimeout(self.left_s())  # Python's own loop keeps it for the whole
        super().sendall(data, flags)


class _TimedHTTPConnection(HTTPConnection):
    """Python's timeout is of each read: a reply that drips would never end."""

    left_s: Callable[[], float]

    def connect(self) -> None:
        super().connect()
        plain: socket.socket = self.sock
        timed = _TimedSocket(plain.family, plain.type, plain.proto, fileno=plain.detach())
        timed.left_s = self.left_s
        self.sock = timed


class HttpStream:
    """Each call is the body of a POST; requests of one connection follow one another."""

    is_pipelined = False

    def __init__(self, gateway: Gateway, path: str, now: Callable[[], float]) -> None:
        self._connection = _TimedHTTPConnection(gateway.host, gateway.port)
        self._connection.left_s = self._left_s
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

    def _left_s(self) -> float:
        left_s = self._deadline - self._now()
        if left_s <= 0:
            raise TimeoutError("the call's time was over")
        return left_s

    def _set_timeout(self) -> None:
        self._connection.timeout = self._left_s()

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
            self._reply = answer.read(REPLY_BYTES_MAX + 1)
            if len(self._reply) > REPLY_BYTES_MAX:
                raise _too_long()
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

    def leave_to_parent(self) -> None:
        if self._connection.sock is not None:
            close_descriptor(self._connection.sock)


class Reply:
    """A reply as it arrives; in a frame all of it is read before it is looked at.

    ``head`` is how the reply to this call begins in the binary protocol: its type, its method and its sequence id.
    ``begun`` is what came behind the reply before. What is left in ``data`` at the end belongs to no call so far.
    A reply of more than ``REPLY_BYTES_MAX`` bytes is a ConnectionError.
    """

    __slots__ = ("_is_framed", "_left", "_stream", "data", "head")

    def __init__(self, stream: Stream, head: bytes, *, is_framed: bool, begun: bytes = b"") -> None:
        self._stream = stream
        self._is_framed = is_framed
        self.head = head
        self.data = self._frame() if is_framed else begun or stream.read(BUFFER_BYTES)
        self._left = REPLY_BYTES_MAX - len(self.data)

    def _frame(self) -> bytes:
        head = self._exactly(_frame_size.size)
        size = _frame_size.unpack(head)[0]
        if size > REPLY_BYTES_MAX:
            text = f"the gateway announces {size} bytes, more than the {REPLY_BYTES_MAX} of any answer"
            raise NotThrift(text, head if self.head.endswith(_FIRST_NUMBER) else b"")
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            parts.append(self._stream.read(min(size, _READ_BYTES_MAX)))
            size -= len(parts[-1])
        return b"".join(parts)

    def more(self, at: int) -> bytes:
        if self._is_framed:
            raise ConnectionError("the gateway's answer ends too early")
        if self._left <= 0:
            raise _too_long()
        # As much as there is again: a long row is looked at a few times, not once for each packet.
        found = self._stream.read(min(max(BUFFER_BYTES, len(self.data)), _READ_BYTES_MAX))
        self._left -= len(found)
        self.data = self.data[at:] + found
        return self.data

    def end(self, at: int) -> None:
        self.data = self.data[at:]
        if self.data and self._is_framed:
            raise ConnectionError("the gateway sent a frame that goes on behind its message")

    def take_message(self, *, is_compact: bool) -> bytes:
        """Return the whole message for thriftpy2, which reads only what was walked; NotThrift if it is none."""
        walk = walk_of(REPLY_BYTES_MAX, is_compact=is_compact)
        try:
            while (end := walk.end(self.data)) is None:
                self.more(0)
        except MalformedMessage as error:
            is_first = error.is_head and self.head.endswith(_FIRST_NUMBER)
            kind = "no message of the Thrift protocol that the url names" if error.is_head else "malformed"
            raise NotThrift(f"the answer is {kind}: {error}", self.data[:_FIRST_BYTES] if is_first else b"") from error
        message, self.data = self.data[:end], self.data[end:]
        return message


def _too_long() -> ConnectionError:
    return ConnectionError(f"the gateway's answer has more than {REPLY_BYTES_MAX} bytes: ask for fewer rows at once")


class _Source:
    """The bytes that thriftpy2's buffer reads: one whole message, and nothing between two of them."""

    __slots__ = ("_at", "_message")

    def __init__(self) -> None:
        self._message = b""
        self._at = 0

    def set_message(self, message: bytes) -> None:
        self._message, self._at = message, 0

    def read(self, size: int) -> bytes:
        data = self._message[self._at : self._at + size]
        self._at += len(data)
        return data


class Link:
    """A connection in use: Thrift's calls on a stream, and the gateway at its other end.

    ``rows`` reads rows by hand; None where the protocol is not the binary one, and thriftpy2 must read them.

    Each call has a sequence id, and its reply must have the same (``messages``). ``owed`` counts replies that are still
    to come, and ``has_surplus`` says that bytes came behind the last reply. A connection with either is not used again.
    """

    __slots__ = (
        "_buffer",
        "_incoming",
        "_is_compact",
        "_is_framed",
        "_number",
        "_outgoing",
        "_service",
        "_source",
        "gateway",
        "has_surplus",
        "owed",
        "rows",
        "stream",
    )

    def __init__(
        self,
        gateway: Gateway,
        stream: Stream,
        service: Any,
        *,
        rows: RowReader | None = None,
        is_framed: bool = False,
        is_compact: bool = False,
        decodes_text: bool = True,
    ) -> None:
        self.gateway = gateway
        self.stream = stream
        self.rows = rows
        self.owed = 0
        self.has_surplus = False
        self._service = service
        self._is_framed = is_framed
        self._is_compact = is_compact
        self._number = 0
        self._source = _Source()
        self._buffer = _transport(self._source)
        protocol: Any = TCompactProtocol if is_compact else TBinaryProtocol
        self._incoming = protocol(self._buffer, decode_response=decodes_text)
        self._outgoing = protocol(_transport(stream, is_framed=is_framed), decode_response=decodes_text)

    @property
    def is_in_step(self) -> bool:
        """False when the next bytes that arrive may belong to a call that is over."""
        return not self.owed and not self.has_surplus

    def server_type(self) -> Any:
        """Ask the gateway which service it is: the one call that Thrift 1 and Thrift 2 have in common, since 2.3."""
        service, self._service = self._service, server_type()
        try:
            return self.call("getThriftServerType")
        finally:
            self._service = service

    def call(self, method: str, *args: object) -> Any:
        """Make any call, written and read by thriftpy2."""
        number, head = self._send(method, args)
        return self._received(method, number, Reply(self.stream, head, is_framed=self._is_framed))

    def ask(self, method: str, request: bytes | tuple[object, ...], read: Callable[[Incoming, RowReader], T]) -> T:
        """Send a request, with its arguments written by hand or as objects, and read the reply by hand."""
        number, head = self._send(method, request)
        reply = Reply(self.stream, head, is_framed=self._is_framed)
        answer = self._answer(method, number, reply, read)
        if reply.data:
            self.has_surplus = True
        return answer

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
        sent = [self._send(method, request) for request in requests]
        answers: list[T] = []
        begun = b""
        for number, head in sent:
            self.owed -= 1
            reply = Reply(self.stream, head, is_framed=self._is_framed, begun=begun)
            answers.append(self._answer(method, number, reply, read))
            begun = reply.data
        self.has_surplus = bool(begun)
        return answers

    def _answer(self, method: str, number: int, reply: Reply, read: Callable[[Incoming, RowReader], T]) -> T:
        assert self.rows is not None
        try:
            return read(reply, self.rows)
        except NotOurs:
            self._received(method, number, reply)  # mostly an error, which it raises
            raise ConnectionError(f"the gateway's answer to {method} cannot be read") from None

    def say(self, method: str, request: bytes) -> None:
        """Send a request, with its arguments written by hand, whose reply is nothing or an error."""
        number, head = self._send(method, request)
        reply = Reply(self.stream, head, is_framed=self._is_framed)
        if reply.data != head + b"\0":  # the whole reply when there is nothing to say
            self._received(method, number, reply)

    def _send(self, method: str, request: bytes | tuple[object, ...]) -> tuple[int, bytes]:
        """Send a call; return its sequence id, and how its reply begins in the binary protocol."""
        number = self._number = next_number(self._number)
        packed = pack_number(number)
        if isinstance(request, bytes):
            head = call_head(method)
            if self._is_framed:
                size = _frame_size.pack(len(head) + len(packed) + len(request))
                self.stream.write(b"%b%b%b%b" % (size, head, packed, request))
            else:
                self.stream.write(b"%b%b%b" % (head, packed, request))
            self.stream.flush()
        else:
            protocol = self._outgoing
            protocol.write_message_begin(method, TMessageType.CALL, number)
            getattr(self._service, f"{method}_args")(*request).write(protocol)
            protocol.write_message_end()
            protocol.trans.flush()
        return number, reply_head(method) + packed

    def _received(self, method: str, number: int, reply: Reply) -> Any:
        """Read a whole reply with thriftpy2, and notice what stands behind it."""
        message = reply.take_message(is_compact=self._is_compact)
        self.has_surplus = self.has_surplus or bool(reply.data)
        self._source.set_message(message)
        try:
            return read_reply(self._incoming, self._service, method, number, message)
        finally:
            self._source.set_message(b"")
            self._buffer.clean()

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
    refuse_green_threads()  # also when the process was patched after the first connections
    try:
        stream = _http(url, gateway, now, deadline) if url.is_http else _tcp(url, gateway, now, deadline)
    except (OSError, ssl.SSLError) as error:
        hint = f" (if it does not use TLS: thrift2://{gateway})" if isinstance(error, ssl.SSLError) else ""
        raise ServerUnreachable(f"the Thrift gateway {gateway} cannot be reached: {error}{hint}") from error
    return Link(
        gateway,
        stream,
        service,
        rows=None if url.is_compact else rows(),
        is_framed=url.is_framed,
        is_compact=url.is_compact,
        decodes_text=decodes_text,
    )


def _transport(stream: Any, *, is_framed: bool = False) -> Any:
    buffered: Any = TFramedTransport if is_framed else TBufferedTransport  # which class depends on the platform
    return buffered(stream, BUFFER_BYTES) if CYTHON else buffered(stream)


def _tcp(url: ThriftUrl, gateway: Gateway, now: Callable[[], float], deadline: float) -> SocketStream:
    left_s = max(deadline - now(), TIMEOUT_S_MIN)
    sock = socket.create_connection((gateway.host, gateway.port), left_s)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end_when_unacknowledged(sock)
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
