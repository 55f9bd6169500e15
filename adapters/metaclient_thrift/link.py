"""One connection to one gateway: Thrift's calls on a transport, and replies that are read within bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BytesIO
from struct import Struct
from typing import Any, NoReturn, TypeVar

from thriftpy2._compat import CYTHON
from thriftpy2.protocol import TBinaryProtocol, TCompactProtocol
from thriftpy2.thrift import TMessageType
from thriftpy2.transport import TBufferedTransport, TFramedTransport

from metaclient.wire.reply_limit import REPLY_BYTES_MAX, explain_reply_limit
from metaclient.wire.thrift.idl import server_type
from metaclient.wire.thrift.message_walk import MalformedMessage, walk_of
from metaclient_thrift.binary import Incoming, NotOurs, RowReader
from metaclient_thrift.messages import NotThrift, call_head, next_number, pack_number, read_reply, reply_head
from metaclient_thrift.transports import Transport, explain_long_reply
from metaclient_thrift.url import Gateway, ThriftUrl

__all__ = ["Link", "Reply", "make_link"]

T = TypeVar("T")

#: A page of a scan arrives in a few reads instead of hundreds.
BUFFER_BYTES = 64 * 1024
#: The bytes of one read: Python allocates as many as are asked for.
_READ_BYTES_MAX = 4 << 20
#: As many of a peer's first bytes as are needed to recognise its protocol.
_FIRST_BYTES = 1024
_frame_size = Struct(">I")
_FIRST_NUMBER = pack_number(1)


class Reply:
    """A reply as it arrives; a framed reply is read to its end before it is decoded.

    ``head`` are the first bytes of the reply to this call in the binary protocol: type, method and sequence id.
    ``begun`` are the bytes that came after the previous reply. Bytes that remain in ``data`` when the reply was decoded
    belong to no call so far; before that, those that came after a frame are in ``surplus``.
    A reply of more than ``bytes_max`` bytes is a ConnectionError.
    """

    __slots__ = ("_bytes_max", "_is_framed", "_left", "_transport", "data", "head", "surplus")

    def __init__(
        self,
        transport: Transport,
        head: bytes,
        *,
        is_framed: bool,
        begun: bytes = b"",
        bytes_max: int = REPLY_BYTES_MAX,
    ) -> None:
        self._transport = transport
        self._bytes_max = bytes_max
        self._is_framed = is_framed
        self.head = head
        self.surplus = b""
        self.data = begun or transport.read(BUFFER_BYTES)
        if is_framed:
            self._read_frame()
        self._left = bytes_max - len(self.data)

    def _read_frame(self) -> None:
        """Read the frame whose first bytes are ``data`` into ``data``, and what has arrived after it into ``surplus``.

        The rest of a long frame is read into a BytesIO, which returns it without a copy: it is in memory only once.
        """
        data = self.data
        while len(data) < _frame_size.size:
            data += self._transport.read(BUFFER_BYTES)
        size = _frame_size.unpack_from(data)[0]
        if size > self._bytes_max:
            text = f"the gateway announces a reply of {size} bytes; {explain_reply_limit(self._bytes_max)}"
            raise NotThrift(text, data[:_FIRST_BYTES] if self.head.endswith(_FIRST_NUMBER) else b"")
        end = _frame_size.size + size
        if len(data) >= end:
            self.data, self.surplus = data[_frame_size.size : end], data[end:]
            return
        whole = BytesIO()
        left = size - whole.write(memoryview(data)[_frame_size.size :])
        while left:
            left -= whole.write(self._transport.read(min(left, _READ_BYTES_MAX)))
        self.data = whole.getvalue()

    def more(self, at: int) -> bytes:
        if self._is_framed:
            raise ConnectionError("the gateway's answer ends too early")
        if self._left <= 0:
            raise explain_long_reply(self._bytes_max)
        # As many bytes as have arrived already: a long row is decoded a few times, not once per packet.
        found = self._transport.read(min(max(BUFFER_BYTES, len(self.data)), _READ_BYTES_MAX))
        self._left -= len(found)
        self.data = self.data[at:] + found
        return self.data

    def end(self, at: int) -> None:
        self.data = self.data[at:]
        if self._is_framed:
            if self.data:
                raise ConnectionError("the gateway sent a frame that is longer than its message")
            self.data = self.surplus

    def take_message(self, *, is_compact: bool) -> bytes:
        """Return the whole message for thriftpy2, after its bounds were checked; NotThrift if it is no message."""
        walk = walk_of(self._bytes_max, is_compact=is_compact)
        try:
            while (end := walk.end(self.data)) is None:
                self.more(0)
        except MalformedMessage as error:
            is_first = error.is_head and self.head.endswith(_FIRST_NUMBER)
            kind = "not in the Thrift protocol that the url names" if error.is_head else "malformed"
            raise NotThrift(f"the answer is {kind}: {error}", self.data[:_FIRST_BYTES] if is_first else b"") from error
        message, self.data = self.data[:end], self.data[end:] + self.surplus
        return message


class _Source:
    """The source of thriftpy2's buffer: one whole message at a time."""

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
    """A connection to one gateway: Thrift's calls on a transport.

    ``rows`` reads rows without thriftpy2; None where the protocol is not the binary one, and thriftpy2 must read them.

    Each call has a sequence id, and its reply must have the same (``messages``). ``owed`` counts replies that are still
    to come, and ``has_surplus`` is True if bytes came after the last reply. In both cases the connection is not reused.
    """

    __slots__ = (
        "_buffer",
        "_incoming",
        "_is_compact",
        "_is_framed",
        "_number",
        "_outgoing",
        "_reply_bytes_max",
        "_service",
        "_source",
        "gateway",
        "has_surplus",
        "owed",
        "rows",
        "transport",
    )

    def __init__(
        self,
        gateway: Gateway,
        transport: Transport,
        service: Any,
        *,
        rows: RowReader | None = None,
        is_framed: bool = False,
        is_compact: bool = False,
        decodes_text: bool = True,
        reply_bytes_max: int = REPLY_BYTES_MAX,
    ) -> None:
        self._reply_bytes_max = reply_bytes_max
        self.gateway = gateway
        self.transport = transport
        self.rows = rows
        self.owed = 0
        self.has_surplus = False
        self._service = service
        self._is_framed = is_framed
        self._is_compact = is_compact
        self._number = 0
        self._source = _Source()
        self._buffer = _make_buffer(self._source)
        protocol: Any = TCompactProtocol if is_compact else TBinaryProtocol
        self._incoming = protocol(self._buffer, decode_response=decodes_text)
        self._outgoing = protocol(_make_buffer(transport, is_framed=is_framed), decode_response=decodes_text)

    @property
    def is_in_step(self) -> bool:
        """False if the next bytes that arrive may belong to a call that has ended."""
        return not self.owed and not self.has_surplus

    def server_type(self) -> Any:
        """Return which service the gateway serves, by the one call that Thrift 1 and Thrift 2 share since 2.3."""
        service, self._service = self._service, server_type()
        try:
            return self.call("getThriftServerType")
        finally:
            self._service = service

    def call(self, method: str, *args: object) -> Any:
        """Make a call that thriftpy2 encodes and decodes."""
        number, head = self._send(method, args)
        return self._receive(method, number, self._begin_reply(head))

    def ask(self, method: str, request: bytes | tuple[object, ...], read: Callable[[Incoming, RowReader], T]) -> T:
        """Send a request, as encoded arguments or as objects, and read the reply without thriftpy2."""
        assert self.rows is not None
        number, head = self._send(method, request)
        reply = Reply(self.transport, head, is_framed=self._is_framed, bytes_max=self._reply_bytes_max)
        try:
            answer = read(reply, self.rows)
        except NotOurs:
            self._raise_other(method, number, reply)
        if reply.data:
            self.has_surplus = True
        return answer

    def ask_each(
        self,
        method: str,
        requests: Sequence[bytes | tuple[object, ...]],
        read: Callable[[Incoming, RowReader], T],
    ) -> list[T]:
        """Send all requests, then read the replies: the gateway works on the next one while a reply is read.

        The first error is raised; ``owed`` then counts the replies after it.
        """
        if not self.transport.is_pipelined:
            return [self.ask(method, request, read) for request in requests]
        return self.read_each(method, self.send_each(method, requests), read)

    def send_each(self, method: str, requests: Sequence[bytes | tuple[object, ...]]) -> list[tuple[int, bytes]]:
        """Send all requests; return, for `read_each`, the sequence id of each and the first bytes of its reply."""
        self.owed = len(requests)
        return [self._send(method, request) for request in requests]

    def read_each(
        self, method: str, sent: Sequence[tuple[int, bytes]], read: Callable[[Incoming, RowReader], T]
    ) -> list[T]:
        """Read the replies to requests that were sent, as `ask_each` does."""
        answers: list[T] = []
        begun = b""
        for number, head in sent:
            self.owed -= 1
            reply = self._begin_reply(head, begun)
            answers.append(self._read_answer(method, number, reply, read))
            begun = reply.data
        self.has_surplus = bool(begun)
        return answers

    def _read_answer(self, method: str, number: int, reply: Reply, read: Callable[[Incoming, RowReader], T]) -> T:
        assert self.rows is not None
        try:
            return read(reply, self.rows)
        except NotOurs:
            self._raise_other(method, number, reply)

    def _raise_other(self, method: str, number: int, reply: Reply) -> NoReturn:
        """Raise the error that a reply carries; ConnectionError if it carries none."""
        self._receive(method, number, reply)
        raise ConnectionError(f"the gateway's answer to {method} cannot be read") from None

    def call_void(self, method: str, request: bytes) -> None:
        """Send a request, as encoded arguments, whose reply is void or an error."""
        number, head = self._send(method, request)
        reply = self._begin_reply(head)
        if reply.surplus or reply.data != head + b"\0":  # a void reply has no more bytes
            self._receive(method, number, reply)

    def _send(self, method: str, request: bytes | tuple[object, ...]) -> tuple[int, bytes]:
        """Send a call; return its sequence id, and the first bytes of its reply in the binary protocol."""
        number = self._number = next_number(self._number)
        packed = pack_number(number)
        if isinstance(request, bytes):
            head = call_head(method)
            if self._is_framed:
                size = _frame_size.pack(len(head) + len(packed) + len(request))
                self.transport.write(b"%b%b%b%b" % (size, head, packed, request))
            else:
                self.transport.write(b"%b%b%b" % (head, packed, request))
            self.transport.flush()
        else:
            protocol = self._outgoing
            protocol.write_message_begin(method, TMessageType.CALL, number)
            getattr(self._service, f"{method}_args")(*request).write(protocol)
            protocol.write_message_end()
            protocol.trans.flush()
        return number, reply_head(method) + packed

    def _begin_reply(self, head: bytes, begun: bytes = b"") -> Reply:
        return Reply(self.transport, head, is_framed=self._is_framed, begun=begun, bytes_max=self._reply_bytes_max)

    def _receive(self, method: str, number: int, reply: Reply) -> Any:
        """Read a whole reply with thriftpy2, and note bytes after it in ``has_surplus``."""
        message = reply.take_message(is_compact=self._is_compact)
        self.has_surplus = self.has_surplus or bool(reply.data)
        self._source.set_message(message)
        try:
            return read_reply(self._incoming, self._service, method, number, message)
        finally:
            self._source.set_message(b"")
            self._buffer.clean()

    def close(self) -> None:
        self.transport.close()


def make_link(
    url: ThriftUrl,
    gateway: Gateway,
    service: Any,
    *,
    rows: Callable[[], RowReader],
    decodes_text: bool,
    transport: Transport,
) -> Link:
    """Return the link of a connected transport, for the service and the dialect of the url."""
    return Link(
        gateway,
        transport,
        service,
        rows=None if url.is_compact else rows(),
        is_framed=url.is_framed,
        is_compact=url.is_compact,
        decodes_text=decodes_text,
        reply_bytes_max=url.reply_bytes_max,
    )


def _make_buffer(source: Any, *, is_framed: bool = False) -> Any:
    buffered: Any = TFramedTransport if is_framed else TBufferedTransport  # compiled or not, by the platform
    return buffered(source, BUFFER_BYTES) if CYTHON else buffered(source)
