"""A stream in memory: what the server has sent is a list of pieces, and what the client writes is kept."""

from __future__ import annotations

from collections.abc import Callable


class ScriptedStream:
    """``pieces`` arrive one per read; then the stream ends, or is silent until the deadline if ``is_open``.

    ``answer`` is called with each write and returns pieces that arrive after it.
    """

    def __init__(
        self, *pieces: bytes, is_open: bool = False, answer: Callable[[bytes], list[bytes]] = lambda data: []
    ) -> None:
        self.pieces = list(pieces)
        self.is_open = is_open
        self.written: list[bytes] = []
        self.is_closed = False
        self.now_s = 0.0
        self.asked = 0  # the most bytes that one read asked for
        self._answer = answer

    def now(self) -> float:
        return self.now_s

    def read(self, size_max: int, deadline: float) -> bytes | None:
        self.asked = max(self.asked, size_max)
        if not self.pieces:
            if not self.is_open:
                return b""
            self.now_s = deadline
            return None
        piece = self.pieces.pop(0)
        if len(piece) > size_max:
            self.pieces.insert(0, piece[size_max:])
        return piece[:size_max]

    def write(self, data: bytes, deadline: float) -> None:
        self.written.append(data)
        self.pieces += self._answer(data)

    def is_silent(self) -> bool:
        return not self.pieces and self.is_open

    def close(self) -> None:
        self.is_closed = True

    def leave_to_parent(self) -> None:
        self.is_closed = True
