"""Decodes pages of cell blocks by runs of rows that have the same lengths, names and types: all but their data.

1. The layout of a row is taken from its cells, which are decoded, and thereby checked, one by one.
2. The bytes of the following rows that must be equal (lengths, names, types) are compared in all rows at once: one
   slice with a step of a row's size per byte.
3. The keys and values of alike rows are unpacked by one ``iter_unpack``; timestamps only if they are asked for.
4. Rows with other lengths are decoded cell by cell, and kept together as long as they have the same columns. All other
   rows are decoded one by one. After each failed comparison more rows are decoded one by one before the next
   comparison, so that failed comparisons cost little.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from itertools import chain, groupby, repeat
from typing import Any

from metaclient.model import CellType, Result
from metaclient.row_runs import AlikeRows, RowRuns
from metaclient.wire.rpc.cellblock import decode_cells, decode_columns
from metaclient.wire.rpc.protobuf import ProtocolError

__all__ = ["decode_page"]

_new = tuple.__new__
_HEAD = struct.Struct(">iiiH")
_HEAD_BYTES = _HEAD.size
#: Timestamp and type, at the end of a key.
_TAIL_BYTES = 9
#: A key without row, family length, family and qualifier: the row's length, timestamp and type.
_KEY_BYTES = 2 + _TAIL_BYTES
#: Fewer rows than this are not worth a comparison (micro benchmark of rows with 1, 3 and 10 cells).
_ALIKE_MIN = 8
_STRETCH_MIN = 16
_STRETCH_MAX = 1024
#: A row with more cells than this is not compared with the following rows.
_CELLS_MAX = 256
#: The bytes that are compared at a time: they fit into the processor's cache. Rows that are longer than a share of
#: it are few per page, and their layouts would need much memory.
_COMPARED_BYTES = 64 * 1024
_ROW_BYTES_MAX = _COMPARED_BYTES // _ALIKE_MIN
_Fixed = tuple[tuple[bytes, bytes], ...]


def decode_page(data: bytes, at: int, end: int, counts: Sequence[int], *, is_stale: bool = False) -> RowRuns:
    """Return the whole rows with these numbers of cells; ProtocolError unless the last one ends with the block."""
    runs: list[AlikeRows | list[Result]] = []
    for count, group in groupby(counts):
        at = _decode_group(runs, data, at, end, count=count, rows=len(list(group)), is_stale=is_stale)
    if at != end:
        raise ProtocolError(f"the cell block has {end - at} bytes that belong to no result")
    return RowRuns(runs)


def _decode_group(
    runs: list[AlikeRows | list[Result]], data: bytes, at: int, end: int, *, count: int, rows: int, is_stale: bool
) -> int:
    """Append ``rows`` rows of ``count`` cells to the runs, and return where they end."""
    stretch = _STRETCH_MIN
    while rows:
        if rows >= _ALIKE_MIN and 0 < count <= _CELLS_MAX and (layout := _find_layout(data, at, end, count)):
            alike = layout.count_alike(data, at, min(rows, (end - at) // layout.size))
            if alike >= _ALIKE_MIN:
                stop = at + alike * layout.size
                runs.append(layout.unpack(data, at, stop, is_stale=is_stale))
                at, rows, stretch = stop, rows - alike, _STRETCH_MIN
                continue
        single = min(rows, stretch)
        stretch = min(stretch * 2, _STRETCH_MAX)
        if single >= _ALIKE_MIN and 0 < count <= _CELLS_MAX:
            named, stop = _decode_named(data, at, end, count=count, rows=single, is_stale=is_stale)
            if len(named) >= _ALIKE_MIN:
                runs.append(named)
                at, rows = stop, rows - len(named)
                continue
        rows -= single
        results: list[Result] = []
        for _ in repeat(None, single):
            row, cells, at = decode_cells(data, at, end, count)
            results.append(_new(Result, (row, cells, is_stale, False, None, None)))
        runs.append(results)
    return at


def _decode_named(data: bytes, at: int, end: int, *, count: int, rows: int, is_stale: bool) -> tuple[AlikeRows, int]:
    """Return the rows, at most ``rows``, that have the columns of the first one and any lengths; and where they end."""
    _, cells, _ = decode_cells(data, at, end, count)
    columns = tuple(cell.column for cell in cells)
    keys, timestamps, values, stop = decode_columns(data, at, end, count=count, rows=rows)

    def by_rows(of_cells: list[Any]) -> Iterator[tuple[Any, ...]]:
        return zip(*repeat(iter(of_cells), count), strict=True)

    run = AlikeRows(keys, columns, partial(by_rows, values), partial(by_rows, timestamps), is_stale=is_stale)
    return run, stop


def _find_layout(data: bytes, at: int, end: int, count: int) -> _Layout | None:
    """Return the layout of the row here, if the next row begins like this one and all its cells are puts."""
    head = data[at : at + _HEAD_BYTES]
    _, cells, stop = decode_cells(data, at, end, count)
    if stop - at > _ROW_BYTES_MAX or data[stop : stop + _HEAD_BYTES] != head:
        return None
    if any(cell.type is not CellType.PUT for cell in cells):
        return None
    fixed: list[tuple[bytes, bytes]] = []
    for _ in repeat(None, count):
        head = data[at : at + _HEAD_BYTES]
        total, key_length, _, row_length = _HEAD.unpack(head)
        name_at = at + _HEAD_BYTES + row_length
        fixed.append((head, data[name_at : name_at + key_length - row_length - _KEY_BYTES]))
        at += 4 + total
    return _make_layout(tuple(fixed), tuple(cell.column for cell in cells))


class _Layout:
    """The lengths and names of a row's cells, all of them puts."""

    __slots__ = ("_columns", "_compared", "_keys", "_step", "_timestamps", "_values", "size")

    def __init__(self, fixed: _Fixed, columns: tuple[bytes, ...]) -> None:
        compared: list[tuple[int, int]] = []
        values, timestamps = [">"], [">"]
        at = 0
        for head, name in fixed:
            total, _, value_length, row_length = _HEAD.unpack(head)
            name_at = _HEAD_BYTES + row_length
            tail_at = name_at + len(name)
            rest = 4 + total - tail_at - _TAIL_BYTES  # the value, and tags
            compared += enumerate(head, at)
            compared += enumerate(name, at + name_at)
            compared.append((at + tail_at + 8, CellType.PUT))
            values.append(f"{tail_at + _TAIL_BYTES}x{value_length}s{rest - value_length}x")
            timestamps.append(f"{tail_at}xq{1 + rest}x")
            at += 4 + total
        self.size = at
        self._columns = columns
        self._step = step = _COMPARED_BYTES // at
        expected = {byte: bytes([byte]) * step for _, byte in compared}
        self._compared = tuple((offset, expected[byte]) for offset, byte in compared)
        row_length = _HEAD.unpack(fixed[0][0])[3]
        self._keys = struct.Struct(f">{_HEAD_BYTES}x{row_length}s{at - _HEAD_BYTES - row_length}x")
        self._values = struct.Struct("".join(values))
        self._timestamps = struct.Struct("".join(timestamps))

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

    def unpack(self, data: bytes, at: int, end: int, *, is_stale: bool) -> AlikeRows:
        """Return the rows at ``data[at:end]``, which have this layout."""
        block = memoryview(data)[at:end]
        return AlikeRows(
            list(chain.from_iterable(self._keys.iter_unpack(block))),
            self._columns,
            partial(self._values.iter_unpack, block),
            partial(self._timestamps.iter_unpack, block),
            is_stale=is_stale,
        )


@lru_cache(maxsize=64)  # the pages of a scan share their layouts
def _make_layout(fixed: _Fixed, columns: tuple[bytes, ...]) -> _Layout:
    return _Layout(fixed, columns)
