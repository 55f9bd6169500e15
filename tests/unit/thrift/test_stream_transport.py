"""When a connection is looked at before it is used again, and how frames are taken from what has arrived."""

from __future__ import annotations

from metaclient_thrift.link import Reply
from metaclient_thrift.transports import PAUSE_S, StreamTransport


class Stream:
    """A stream whose peer sends these pieces, and that counts how often it was asked whether it is silent."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = list(pieces)
        self.looks = 0

    def read(self, size_max: int, deadline: float) -> bytes | None:
        piece = self.pieces.pop(0)
        if len(piece) > size_max:
            self.pieces.insert(0, piece[size_max:])
        return piece[:size_max]

    def write(self, data: bytes, deadline: float) -> None: ...

    def is_silent(self) -> bool:
        self.looks += 1
        return not self.pieces

    def close(self) -> None: ...

    def leave_to_parent(self) -> None: ...


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_connection_is_looked_at_only_after_a_pause() -> None:
    stream, clock = Stream(b"reply", b"hang-up"), Clock()
    transport = StreamTransport(stream, clock)
    assert not transport.is_usable(), "it was never read: it is looked at"
    transport.begin(clock() + 1)
    transport.read(100)
    clock.now_s += PAUSE_S / 2
    assert transport.is_usable()
    clock.now_s += PAUSE_S
    assert not transport.is_usable()
    assert stream.looks == 2


def framed(message: bytes) -> bytes:
    return len(message).to_bytes(4, "big") + message


def test_frames_are_the_same_in_any_pieces_and_the_rest_belongs_to_no_call() -> None:
    whole = framed(b"one") + framed(b"second") + b"rest"
    for cut in range(1, len(whole)):
        clock = Clock()
        transport = StreamTransport(Stream(whole[:cut], whole[cut:]), clock)
        transport.begin(clock() + 1)
        first = Reply(transport, b"", is_framed=True)
        assert first.data == b"one"
        first.end(3)
        second = Reply(transport, b"", is_framed=True, begun=first.data)
        assert second.data == b"second"
        second.end(6)
        assert b"rest".startswith(second.data)
