"""Reads runs of rows that differ only in keys, values and timestamps: all lengths, names and types are the same.

Such rows have one size, so that a byte at the same offset of all rows is one slice with a step of that size. The bytes
that must be equal are compared in all rows at once, and keys and values are unpacked by one ``iter_unpack``. Timestamps
are unpacked only if they are asked for. Cell blocks (:mod:`metaclient.wire.rpc.row_layout`) and pages of Thrift 2
describe their rows by a layout.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain

from metaclient.row_runs import AlikeRows

__all__ = ["ROWS_MIN", "ROW_BYTES_MAX", "FixedLayout"]

#: Fewer rows than this are not worth a comparison (micro benchmark of rows with 1, 3 and 10 cells).
ROWS_MIN = 8
#: The bytes that are compared at a time: they fit into the processor's cache.
_COMPARED_BYTES = 64 * 1024
#: Longer rows are few per page, and their layouts would need much memory.
ROW_BYTES_MAX = _COMPARED_BYTES // ROWS_MIN


class FixedLayout:
    """Where the parts of a row are; all cells are puts.

    ``fixed``: offsets, and the bytes that every row has there. ``key`` and ``values``: (offset, length) of each.
    ``timestamps``: the offset of each; big-endian, eight bytes.

    >>> layout = FixedLayout(4, [(1, b":")], (b"f:q",), key=(0, 1), values=[(2, 2)], timestamps=[])
    >>> page = b"a:v1b:v2c;v3"
    >>> layout.count_alike(page, 0, 3)
    2
    >>> rows = layout.unpack(page, 0, 8)
    >>> rows.keys, list(rows.values())
    ([b'a', b'b'], [(b'v1',), (b'v2',)])
    """

    __slots__ = ("_columns", "_compared", "_keys", "_step", "_timestamps", "_values", "size")

    def __init__(
        self,
        size: int,
        fixed: Iterable[tuple[int, bytes]],
        columns: tuple[bytes, ...],
        *,
        key: tuple[int, int],
        values: Sequence[tuple[int, int]],
        timestamps: Sequence[int],
    ) -> None:
        self.size = size
        self._columns = columns
        self._step = step = _COMPARED_BYTES // size
        compared = [each for offset, expected in fixed for each in enumerate(expected, offset)]
        repeated = {byte: bytes([byte]) * step for _, byte in compared}
        self._compared = tuple((offset, repeated[byte]) for offset, byte in compared)
        self._keys = _picker(size, [(*key, "s")])
        self._values = _picker(size, [(offset, length, "s") for offset, length in values])
        self._timestamps = _picker(size, [(offset, 8, "q") for offset in timestamps])

    def count_alike(self, data: bytes, at: int, rows: int) -> int:
        """Return how many rows from this offset on, at most ``rows``, have this layout."""
        size, step = self.size, self._step
        for begun in range(0, rows, step):
            begin = at + begun * size
            wanted = found = min(step, rows - begun)
            for offset, expected in self._compared:
                column = data[begin + offset : begin + found * size : size]
                if column != (expected if found == step else expected[:found]):
                    found = next(row for row in range(found) if column[row] != expected[row])
            if found < wanted:
                return begun + found
        return rows

    def unpack(self, data: bytes, at: int, end: int, *, is_stale: bool = False) -> AlikeRows:
        """Return the rows at ``data[at:end]``, which have this layout."""
        block = memoryview(data)[at:end]
        return AlikeRows(
            list(chain.from_iterable(self._keys.iter_unpack(block))),
            self._columns,
            partial(self._values.iter_unpack, block),
            partial(self._timestamps.iter_unpack, block),
            is_stale=is_stale,
        )


def _picker(size: int, fields: Iterable[tuple[int, int, str]]) -> struct.Struct:
    """Return the format that takes only these fields, (offset, length, kind) in order, out of ``size`` bytes."""
    parts, at = [">"], 0
    for offset, length, kind in fields:
        parts.append(f"{offset - at}x{length}s" if kind == "s" else f"{offset - at}xq")
        at = offset + length
    return struct.Struct("".join([*parts, f"{size - at}x"]))
