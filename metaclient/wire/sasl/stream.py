"""A stream after a SASL handshake: its data is wrapped by the layer, or sent as it is.

Wrapped data is ``int32 length | wrapped`` in both directions. The frames of HBase's RPC inside are independent of it:
one wrapped message may hold several frames, and a frame several messages.

The first bytes that arrive may be a refusal (see :mod:`metaclient.wire.sasl.messages`).
"""

from __future__ import annotations

from collections.abc import Callable

from metaclient.wire.reply_limit import REPLY_BYTES_MAX, RESULT_BYTES_KEY
from metaclient.wire.rpc.framing import FrameReader
from metaclient.wire.sasl import messages
from metaclient.wire.sasl.handshake import read_refusal
from metaclient.wire.sasl.mechanism import Layer
from metaclient.wire.stream import Stream

__all__ = ["SaslStream"]

READ_BYTES_MIN = 64 * 1024
READ_BYTES_MAX = 1024 * 1024
#: The time for the rest of a refusal whose first bytes have arrived.
REFUSAL_S_MAX = 1.0


class SaslStream:
    """A `Stream` over a `Stream`. Without a layer, only the first read looks at the data."""

    def __init__(
        self,
        stream: Stream,
        layer: Layer | None,
        now: Callable[[], float],
        *,
        explain: Callable[[messages.SaslRefused], Exception] = lambda refused: refused,
        reply_bytes_max: int = REPLY_BYTES_MAX,
        may_be_refused: bool = True,
    ) -> None:
        """``may_be_refused``: the first bytes that arrive may be a refusal of HBase's RPC."""
        self._stream = stream
        self._layer = layer
        self._now = now
        self._explain = explain
        self._first = b""  # of the server, until they are known to be no refusal
        # A wrapped response is longer than the response by less than 100 bytes.
        self._frames = FrameReader(reply_bytes_max + 4096, RESULT_BYTES_KEY)
        self._plain, self._at = b"", 0  # unwrapped; the bytes from this index on are not returned yet
        self.read: Callable[[int, float], bytes | None] = self._read_first if may_be_refused else self._read_wrapped
        self.write: Callable[[bytes, float], None] = stream.write if layer is None else self._write_wrapped

    def _read_first(self, size_max: int, deadline: float) -> bytes | None:
        while len(self._first) < len(messages.FRAME_REFUSED):
            data = self._stream.read(max(1, size_max - len(self._first)), deadline)
            if not data:
                return data  # at the end, fewer than four bytes are no answer
            self._first += data
        first, self._first = self._first, b""
        if first.startswith(messages.FRAME_REFUSED):
            until = self._now() + REFUSAL_S_MAX
            raise self._explain(read_refusal(self._stream, first, self._now, until))
        if self._layer is None:
            self.read = self._stream.read
            return first
        self.read = self._read_wrapped
        self._unwrap(self._layer, first)
        return self._read_wrapped(size_max, deadline)

    def _read_wrapped(self, size_max: int, deadline: float) -> bytes | None:
        layer = self._layer
        assert layer is not None
        while self._at == len(self._plain):
            missing = self._frames.missing
            data = self._stream.read(
                READ_BYTES_MIN if missing < READ_BYTES_MIN else min(missing, READ_BYTES_MAX), deadline
            )
            if not data:
                return data
            self._unwrap(layer, data)
        plain, at = self._plain, self._at
        if at == 0 and len(plain) <= size_max:
            self._plain = b""
            return plain
        self._at = min(at + size_max, len(plain))
        return plain[at : self._at]

    def _unwrap(self, layer: Layer, data: bytes) -> None:
        """Unwrap the messages that are complete now; all earlier data was returned."""
        parts = [layer.unwrap(wrapped) for wrapped in self._frames.feed(data)]
        self._plain, self._at = parts[0] if len(parts) == 1 else b"".join(parts), 0

    def _write_wrapped(self, data: bytes, deadline: float) -> None:
        layer = self._layer
        assert layer is not None
        self._stream.write(messages.encode_token(layer.wrap(data)), deadline)

    def is_silent(self) -> bool:
        return self._at == len(self._plain) and self._stream.is_silent()

    def close(self) -> None:
        self._stream.close()

    def leave_to_parent(self) -> None:
        self._stream.leave_to_parent()
