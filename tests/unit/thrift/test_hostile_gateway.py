"""Replies without bounds: each is refused after a few steps, before memory or time is spent on it."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import pytest
from thriftpy2.protocol import TBinaryProtocol, TCompactProtocol
from thriftpy2.thrift import TMessageType
from thriftpy2.transport import TMemoryBuffer

from metaclient.errors import ConfigError
from metaclient.wire.stream import dial
from metaclient.wire.thrift import message_walk
from metaclient.wire.thrift.idl import thrift2
from metaclient.wire.thrift.message_walk import MalformedMessage, walk_of
from metaclient_thrift import transports
from metaclient_thrift.binary import Rows1, Rows2, read_row, read_rows
from metaclient_thrift.link import Link, Reply
from metaclient_thrift.messages import NotThrift, pack_number, reply_head
from metaclient_thrift.row_pages import read_page
from metaclient_thrift.url import Gateway, ThriftUrl

T2 = thrift2()
BYTES_MAX = 1 << 20
HEAD = reply_head("get") + pack_number(1)
SUCCESS_LIST = b"\x0f\x00\x00"
UNKNOWN_FIELD_LIST = b"\x0f\x00\x63"


class Bytes:
    """A stream that has received some bytes and then an endless number of others; counts what was read."""

    is_pipelined = True

    def __init__(self, data: bytes, endless: bytes = b"") -> None:
        self._data, self._endless = data, endless
        self.taken = 0

    def read(self, size: int) -> bytes:
        found, self._data = self._data[:size], self._data[size:]
        if not found:
            found = self._endless * (size // len(self._endless)) if self._endless else b""
        if not found:
            raise ConnectionResetError("the gateway closed the connection")
        self.taken += len(found)
        return found

    def write(self, data: bytes) -> None: ...

    def flush(self) -> None: ...


def link(stream: Bytes, **options: Any) -> Link:
    return Link(Gateway("h", 1), stream, T2.THBaseService, rows=Rows2(), **options)  # type: ignore[arg-type]  # what it uses


def message(struct_: Any, *, is_compact: bool) -> bytes:
    buffer = TMemoryBuffer()
    protocol = (TCompactProtocol if is_compact else TBinaryProtocol)(buffer)
    protocol.write_message_begin("get", TMessageType.REPLY, 1)
    struct_.write(protocol)
    protocol.write_message_end()
    return bytes(buffer.getvalue())


def a_result() -> Any:
    values = [T2.TColumnValue(b"cf", b"%d" % number, b"v" * number, number, type=4) for number in range(300)]
    result = T2.THBaseService.get_result()
    result.success = T2.TResult(row=b"r", columnValues=values, stale=True, partial=False)
    return result


@pytest.mark.parametrize("is_compact", [False, True])
def test_message_in_any_pieces_ends_where_thriftpy2_ends(is_compact: bool) -> None:
    whole = message(a_result(), is_compact=is_compact)
    walk = walk_of(BYTES_MAX, is_compact=is_compact)
    ends = [walk.end(whole[:size]) for size in range(len(whole))]
    assert set(ends) == {None}
    assert walk.end(whole + b"next") == len(whole)
    at_once = walk_of(BYTES_MAX, is_compact=is_compact)
    assert at_once.end(whole) == len(whole)
    assert walk.steps - at_once.steps <= len(whole), "a walk began anew with each piece"


@pytest.mark.parametrize("field", [SUCCESS_LIST, UNKNOWN_FIELD_LIST])
@pytest.mark.parametrize("kind", [0, 1, 5, 7, 9, 16, 127])
def test_list_of_two_billion_values_without_bytes_is_refused(field: bytes, kind: int) -> None:
    """thriftpy2 counts to 2^31 in C, with the GIL: the whole process stands still."""
    hostile = HEAD + field + struct.pack(">bi", kind, 2**31 - 1) + b"\0"
    walk = walk_of(BYTES_MAX, is_compact=False)
    with pytest.raises(MalformedMessage):
        walk.end(hostile)
    assert walk.steps < 5
    with pytest.raises(NotThrift):
        link(Bytes(hostile)).call("get", b"t", T2.TGet(b"r"))


def test_compact_list_of_two_billion_values_without_bytes_is_refused() -> None:
    hostile = b"\x82\x41\x01\x03get" + b"\x09\x02" + b"\xf0" + b"\xff\xff\xff\xff\x07" + b"\0"
    with pytest.raises(NotThrift):
        link(Bytes(hostile), is_compact=True).call("get", b"t", T2.TGet(b"r"))


ROW = b"\x0b\0\1\0\0\0\1r"


@pytest.mark.parametrize(
    "row",
    [
        b"\x0b\0\1" + struct.pack(">i", -7),
        ROW + b"\x0f\0\2\x0c\0\0\0\1" + b"\x0b\0\1" + struct.pack(">i", -7),
        ROW
        + b"\x0f\0\2\x0c\0\0\0\1"
        + b"\x0b\0\1\0\0\0\1f\x0b\0\2\0\0\0\1q\x0b\0\3"
        + struct.pack(">i", -40)
        + bytes(20),
        ROW + b"\x0f\0\2" + struct.pack(">bi", 12, -1),
        ROW + b"\x0d\0\2" + struct.pack(">bbi", 11, 12, -1),
    ],
)
@pytest.mark.parametrize("rows", [Rows1, Rows2])
def test_negative_length_ends_the_reply_and_never_goes_back(row: bytes, rows: Any) -> None:
    whole = HEAD + b"\x0f\0\0\x0c" + struct.pack(">i", 2**31 - 1) + row
    with pytest.raises(ConnectionError):
        read_rows(Reply(Bytes(whole), HEAD, is_framed=False), rows())  # type: ignore[arg-type]  # what it uses
    with pytest.raises(ConnectionError):
        read_page(Reply(Bytes(whole), HEAD, is_framed=False), rows())  # type: ignore[arg-type]  # what it uses
    with pytest.raises(ConnectionError):
        read_row(Reply(Bytes(HEAD + b"\x0c\0\0" + row), HEAD, is_framed=False), rows())  # type: ignore[arg-type]


def peak_of(call: Any) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(ConnectionError):
            call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


NESTED_LISTS = b"\x0f\0\x20" + b"\x0f\0\x0f\xff\xff" * 200_000
MILLION_BYTES = {
    "nested lists": HEAD + b"\x0c\0\0" + NESTED_LISTS,
    "nested lists of rows": HEAD + b"\x0f\0\0\x0c\0\0\0\1" + NESTED_LISTS,
    "rows of one byte": HEAD + b"\x0f\0\0\x0c" + struct.pack(">i", 10**6) + bytes(10**6),
    "cells of one byte": HEAD + b"\x0c\0\0" + ROW + b"\x0f\0\2\x0c" + struct.pack(">i", 10**6) + bytes(10**6),
    "nested structs": HEAD + b"\x0c\0\0" * 300_000,
}


@pytest.mark.parametrize("name", MILLION_BYTES)
@pytest.mark.parametrize("by", ["hand", "thriftpy2"])
def test_megabyte_that_would_become_gigabytes_of_objects_is_refused(name: str, by: str) -> None:
    hostile = MILLION_BYTES[name]
    read: Any = read_page if hostile.startswith(HEAD + b"\x0f") else read_row

    def call() -> None:
        if by == "hand":
            link(Bytes(hostile)).ask("get", b"", read)
        else:
            link(Bytes(hostile)).call("get", b"t", T2.TGet(b"r"))

    assert peak_of(call) < 64 << 20


@pytest.mark.parametrize("is_compact", [False, True])
def test_endless_unframed_reply_ends_at_the_bound(is_compact: bool) -> None:
    head = b"\x82\x41\x01\x03get" if is_compact else HEAD
    endless = b"\x15\x02" if is_compact else b"\x03\0\1\1"
    stream = Bytes(head, endless)
    with pytest.raises(ConnectionError):
        link(stream, is_compact=is_compact, reply_bytes_max=BYTES_MAX).call("get", b"t", T2.TGet(b"r"))
    assert stream.taken <= 2 * BYTES_MAX


def test_endless_rows_read_by_hand_end_at_the_bound() -> None:
    stream = Bytes(HEAD + b"\x0f\0\0\x0c" + struct.pack(">i", 2**31 - 1), ROW + b"\0")
    bounded = link(stream, reply_bytes_max=BYTES_MAX)
    assert peak_of(lambda: bounded.ask("get", b"", read_rows)) < message_walk.MEMORY_PER_BYTE * BYTES_MAX
    assert stream.taken <= 2 * BYTES_MAX


def test_long_frame_takes_its_length_in_memory_once() -> None:
    size = 32 << 20
    stream = Bytes(struct.pack(">I", size), b"a" * 65_536)
    peak = peak_of(lambda: link(stream, is_framed=True).ask("get", b"", read_row))
    assert stream.taken == size + 4
    assert peak < 1.5 * size  # the buffer is an eighth greater while it grows


def test_longer_replies_are_received_where_the_server_allows_them() -> None:
    with pytest.raises(ConnectionError, match=r"hbase\.server\.scanner\.max\.result\.size"):
        Reply(Bytes(struct.pack(">I", 200 << 20)), HEAD, is_framed=True)  # type: ignore[arg-type]
    url = ThriftUrl.parse("thrift2://gateway", {"hbase.server.scanner.max.result.size": str(400 << 20)})
    assert url.reply_bytes_max > 400 << 20
    with pytest.raises(ConfigError, match="must be a number of bytes"):
        ThriftUrl.parse("thrift2://gateway", {"hbase.server.scanner.max.result.size": "much"})


def test_endless_http_body_ends_at_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    class Answer:
        status, reason, read_bytes = 200, "OK", 0

        def read(self, size: int | None = None) -> bytes:
            assert size is not None, "the whole of an endless body was asked for"
            self.read_bytes += size
            return bytes(size)

    answer = Answer()

    class Connection:
        sock = object()

        def request(self, *args: object) -> None: ...

        def getresponse(self) -> Answer:
            return answer

    stream = transports.HttpTransport(Gateway("h", 1), "/", dial=dial, now=lambda: 0.0, reply_bytes_max=BYTES_MAX)
    stream.begin(1.0)
    monkeypatch.setattr(stream, "_connection", Connection())
    with pytest.raises(ConnectionError, match="more than"):
        stream.flush()
    assert answer.read_bytes <= 2 * BYTES_MAX


@pytest.mark.parametrize(
    "cell",
    [
        b"\x0b\0\1\0\0\0\1f\x0b\0\2\0\0\0\1q\x08\0\3\0\0\0\7\x0a\0\4" + bytes(8) + b"\0",
        b"\x08\0\1\0\0\0\7\x0b\0\2\0\0\0\1q\x0b\0\3\0\0\0\1v\0",
    ],
    ids=["value is a number", "family is a number"],
)
def test_corrupt_cell_never_reaches_the_user_as_a_number(cell: bytes) -> None:
    row = ROW + b"\x0f\0\2\x0c\0\0\0\1" + cell + b"\0"
    with pytest.raises(ConnectionError, match="without its field"):
        link(Bytes(HEAD + b"\x0c\0\0" + row + b"\0")).ask("get", b"", read_row)
