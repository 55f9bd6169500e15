"""One thread reads a wrapped stream while another one writes it, over a socket, with every protection of a token."""

from __future__ import annotations

import socket

import pytest

from metaclient.runtime import ThreadRuntime
from metaclient.wire.rpc.framing import FrameReader
from metaclient.wire.sasl.digest_layers import DigestLayer
from metaclient.wire.sasl.messages import encode_token
from metaclient.wire.sasl.stream import SaslStream
from metaclient.wire.stream import SocketStream

WAIT_S = 60.0
MESSAGES, MESSAGE_BYTES = 300, 20_000


def echo(sock: socket.socket, layer: DigestLayer) -> None:
    """Send each message back when it has arrived, wrapped anew, until the client closes its half."""
    frames = FrameReader()
    while data := sock.recv(1 << 16):
        for wrapped in frames.feed(data):
            sock.sendall(encode_token(layer.wrap(layer.unwrap(wrapped))))


@pytest.mark.parametrize("cipher", [None, "rc4"], ids=["integrity", "privacy"])
def test_reader_and_writer_at_once_carry_the_same_bytes_in_both_directions(cipher: str | None) -> None:
    ours, theirs = (DigestLayer(b"s" * 16, cipher=cipher, is_client=one) for one in (True, False))
    near, far = socket.socketpair()
    content = [bytes((number % 256,)) * (MESSAGE_BYTES + number) for number in range(MESSAGES)]
    total = sum(map(len, content))
    with near, far, ThreadRuntime() as runtime:
        stream = SaslStream(SocketStream(near, runtime.now), ours, runtime.now, may_be_refused=False)
        deadline = runtime.now() + WAIT_S

        def write() -> None:
            for one in content:
                stream.write(one, deadline)

        def read() -> bytes:
            parts, size = [], 0
            while size < total and runtime.now() < deadline:
                part = stream.read(1 << 16, deadline)
                assert part != b""
                if part:
                    parts.append(part)
                    size += len(part)
            return b"".join(parts)

        echoing = runtime.start(echo, far, theirs, name="echo")
        reading, writing = runtime.start(read, name="read"), runtime.start(write, name="write")
        writing.result(deadline)
        assert reading.result(deadline) == b"".join(content)
        near.shutdown(socket.SHUT_WR)
        echoing.result(deadline)
