"""Decodes pages of cell blocks by runs of rows that have the same lengths, names and types: all but their data.

1. The layout of a row is taken from its cells, which are decoded, and thereby checked, one by one.
2. The following rows that have this layout are read together (:mod:`metaclient.wire.fixed_layout`).
3. Rows with other lengths are decoded cell by cell, and kept together as long as they have the same columns. All other
   rows are decoded one by one. After each failed comparison more rows are decoded one by one before the next
   comparison, so that failed comparisons cost little.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from itertools import groupby, repeat
from typing import Any

from metaclient.model import CellType, Result
from metaclient.protobuf import ProtocolError
from metaclient.row_runs import AlikeRows, RowRuns
from metaclient.wire.fixed_layout import ROW_BYTES_MAX, ROWS_MIN, FixedLayout
from metaclient.wire.rpc.cellblock import decode_cells, decode_columns

__all__ = ["decode_page", "decode_runs"]

_new = tuple.__new__
_HEAD = struct.Struct(">iiiH")
_HEAD_BYTES = _HEAD.size
#: Timestamp and type, at the end of a key.
_TAIL_BYTES = 9
#: A key without row, family length, family and qualifier: the row's length, timestamp and type.
_KEY_BYTES = 2 + _TAIL_BYTES
_PUT = bytes([CellType.PUT])
_STRETCH_MIN = 16
_STRETCH_MAX = 1024
#: A row with more cells than this is not compared with the following rows.
_CELLS_MAX = 256
_Fixed = tuple[tuple[bytes, bytes], ...]


def decode_page(data: bytes, at: int, end: int, counts: Sequence[int], *, is_stale: bool = False) -> RowRuns:
    """Return the whole rows with these numbers of cells; ProtocolError unless the last one ends with the block."""
    return RowRuns(decode_runs(data, at, end, counts, is_stale=is_stale))


def decode_runs(
    data: bytes, at: int, end: int, counts: Sequence[int], *, is_stale: bool = False
) -> list[AlikeRows | list[Result]]:
    """Return the rows as ``decode_page`` does, as a list of runs."""
    runs: list[AlikeRows | list[Result]] = []
    for count, group in groupby(counts):
        at = _decode_group(runs, data, at, end, count=count, rows=len(list(group)), is_stale=is_stale)
    if at != end:
        raise ProtocolError(f"the cell block has {end - at} bytes that belong to no result")
    return runs


def _decode_group(
    runs: list[AlikeRows | list[Result]], data: bytes, at: int, end: int, *, count: int, rows: int, is_stale: bool
) -> int:
    """Append ``rows`` rows of ``count`` cells to the runs, and return where they end."""
    stretch = _STRETCH_MIN
    while rows:
        if rows >= ROWS_MIN and 0 < count <= _CELLS_MAX and (layout := _find_layout(data, at, end, count)):
            alike = layout.count_alike(data, at, min(rows, (end - at) // layout.size))
            if alike >= ROWS_MIN:
                stop = at + alike * layout.size
                runs.append(layout.unpack(data, at, stop, is_stale=is_stale))
                at, rows, stretch = stop, rows - alike, _STRETCH_MIN
                continue
        single = min(rows, stretch)
        stretch = min(stretch * 2, _STRETCH_MAX)
        if single >= ROWS_MIN and 0 < count <= _CELLS_MAX:
            named, stop = _decode_named(data, at, end, count=count, rows=single, is_stale=is_stale)
            if len(named) >= ROWS_MIN:
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


def _find_layout(data: bytes, at: int, end: int, count: int) -> FixedLayout | None:
    """Return the layout of the row here, if the next row begins like this one and all its cells are puts."""
    head = data[at : at + _HEAD_BYTES]
    _, cells, stop = decode_cells(data, at, end, count)
    if stop - at > ROW_BYTES_MAX or data[stop : stop + _HEAD_BYTES] != head:
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


@lru_cache(maxsize=64)  # the pages of a scan share their layouts
def _make_layout(fixed: _Fixed, columns: tuple[bytes, ...]) -> FixedLayout:
    """Return the layout of a row whose cells, all of them puts, have these heads and names."""
    compared: list[tuple[int, bytes]] = []
    values: list[tuple[int, int]] = []
    timestamps: list[int] = []
    at = 0
    for head, name in fixed:
        total, _, value_length, row_length = _HEAD.unpack(head)
        name_at = at + _HEAD_BYTES + row_length
        tail_at = name_at + len(name)
        compared += [(at, head), (name_at, name), (tail_at + 8, _PUT)]
        values.append((tail_at + _TAIL_BYTES, value_length))
        timestamps.append(tail_at)
        at += 4 + total
    key = (_HEAD_BYTES, _HEAD.unpack(fixed[0][0])[3])
    return FixedLayout(at, compared, columns, key=key, values=values, timestamps=timestamps)
