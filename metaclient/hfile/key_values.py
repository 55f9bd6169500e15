"""Cells as the data blocks of an HFile hold them, encoded and decoded for many cells at once.

::

    int32 key length | int32 value length
    int16 row length | row | int8 family length | family | qualifier | int64 timestamp | int8 type | value
    [int16 length of the tags | tags]    if the file has tags
    [vlong sequence id]                  if the file has sequence ids

The decoder works as :mod:`metaclient.wire.rpc.arrow` does for cell blocks: as long as rows have the same lengths as the
row before, numpy computes their offsets; otherwise cells are read one by one.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from metaclient.hfile.errors import CorruptFile
from metaclient.hfile.vints import SIZES
from metaclient.wire.cell_arrays import (
    COLUMNS,
    count_repeats,
    joined,
    libraries,
    numbers,
    sizes,
    slices,
    taken,
)

if TYPE_CHECKING:
    import pyarrow

__all__ = ["SEQUENCE", "TAGS", "CellLayout", "decode_cells", "encode_cells", "encode_columns", "last_key"]

#: The columns that a decoded batch has after those of ``cell_arrays.COLUMNS``; tags only if the file has some.
SEQUENCE, TAGS = "sequence", "tags"
_HEAD = struct.Struct(">iiH")
_HEAD_BYTES = _HEAD.size
_HEADS = [("key", ">i4"), ("value", ">i4"), ("row", ">u2")]
_SHORT = struct.Struct(">H")
#: Row length, family length, timestamp and type: the bytes of a key without row, family and qualifier.
_KEY_BYTES_MIN = 12
_TAIL_BYTES = 9
_PARTS = 7
_ROW, _FAMILY, _QUALIFIER, _TAIL, _VALUE, _SUFFIX = 0, 2, 3, 4, 5, 6
#: Offsets in Arrow are numbers of 32 bits.
DATA_BYTES_MAX = 0x7FFFFFFF
_PATTERN_MAX = 256
_CELL_BYTES_GUESSED = 512
_PAYING = 400
_FAILURES_MAX = 2
_STRETCH_MIN = 256
_GROWTH = 8
ROW_BYTES_MAX = 0x7FFF


@dataclass(frozen=True, slots=True)
class CellLayout:
    """What follows the value of each cell of a file."""

    has_tags: bool = False
    has_sequence: bool = True


# -- encoding ------------------------------------------------------------------------------------------------------


def encode_cells(cells: pyarrow.RecordBatch, suffix: bytes) -> pyarrow.LargeBinaryArray:
    """Return the bytes of each cell; ``suffix`` is what follows each value.

    >>> import pyarrow
    >>> binary = [pyarrow.array([one], pyarrow.large_binary()) for one in (b"r", b"f", b"q")]
    >>> stamp, kind, value = pyarrow.array([7]), pyarrow.array([4], pyarrow.uint8()), binary[0]
    >>> batch = pyarrow.RecordBatch.from_arrays([*binary, stamp, kind, value], names=list(COLUMNS))
    >>> encode_cells(batch, b"\\0")[0].as_py().hex()
    '0000000f000000010001720166710000000000000007047200'
    """
    np, arrow = libraries()
    binary = arrow.large_binary()
    row, family, qualifier, value = (cells[name].cast(binary) for name in ("row", "family", "qualifier", "value"))
    heads = np.empty(len(row), dtype=_HEADS)
    heads["row"] = row_bytes = sizes(row)
    family_bytes = sizes(family)
    heads["key"] = row_bytes + family_bytes + sizes(qualifier) + _KEY_BYTES_MIN
    heads["value"] = sizes(value)
    tails = _tails(np, cells["timestamp"].to_numpy(), cells["type"].to_numpy())
    return joined(numbers(heads), row, numbers(family_bytes.astype(np.uint8)), family, qualifier, tails, value, suffix)


def encode_columns(
    rows: pyarrow.LargeBinaryArray,
    stamps: Any,
    columns: list[tuple[bytes, bytes, pyarrow.LargeBinaryArray]],
    suffix: bytes,
) -> pyarrow.LargeBinaryArray:
    """Return the bytes of all cells of each row: puts of these columns (family, qualifier, values), sorted by name.

    A null is no cell. ``stamps`` are the rows' timestamps, as numpy's int64.
    """
    np, _ = libraries()
    row_bytes = sizes(rows)
    tails = _tails(np, stamps, np.full(len(rows), 4, dtype=np.uint8))
    parts: list[pyarrow.LargeBinaryArray | bytes] = []
    for family, qualifier, values in columns:
        heads = np.empty(len(rows), dtype=_HEADS)
        heads["row"] = row_bytes
        heads["key"] = row_bytes + (_KEY_BYTES_MIN + len(family) + len(qualifier))
        heads["value"] = sizes(values)
        name = bytes([len(family)]) + family + qualifier
        cell = (numbers(heads), rows, name, tails, values, suffix)
        parts += (joined(*cell),) if values.null_count else cell
    return joined(*parts)


def _tails(np: Any, stamps: Any, kinds: Any) -> pyarrow.LargeBinaryArray:
    made = np.empty(len(stamps), dtype=[("timestamp", ">i8"), ("type", "u1")])
    made["timestamp"], made["type"] = stamps, kinds
    return numbers(made)


def last_key(data: bytes | memoryview, layout: CellLayout, where: str) -> bytes:
    """Return the key of the last of these cells."""
    at = last = 0
    while at < len(data):
        last, at = at, _next_cell(data, at, len(data), layout, where)
    (key_bytes,) = struct.unpack_from(">i", data, last)
    return bytes(data[last + 8 : last + 8 + key_bytes])


# -- decoding ------------------------------------------------------------------------------------------------------


def decode_cells(data: bytes, layout: CellLayout, where: str, *, with_sequence: bool = True) -> pyarrow.RecordBatch:
    """Return the cells of data blocks as a record batch: ``cell_arrays.COLUMNS``, then the sequence id, then the tags.

    The sequence ids are 0 if they are not asked for. CorruptFile unless the last cell ends with the data.
    """
    np, arrow = libraries()
    if len(data) > DATA_BYTES_MAX:
        raise CorruptFile(f"{where}: {len(data)} bytes of cells are too many for one batch")
    block = np.frombuffer(data, dtype=np.uint8)
    borders = _find_borders(np, data, block, layout, where)
    tails = taken(np, block, borders[_TAIL::_PARTS], _TAIL_BYTES)
    count = len(tails)
    stamps = np.ascontiguousarray(tails[:, :8]).view(">i8").ravel().astype(np.int64)
    kinds = np.ascontiguousarray(tails[:, 8])
    of_cell = np.arange(0, count * _PARTS, _PARTS, dtype=np.int32)
    wanted = np.concatenate([of_cell + part for part in (_ROW, _FAMILY, _QUALIFIER, _VALUE)])
    found = slices(data, np.append(borders, np.int32(len(data))), arrow.array(wanted))
    row, family, qualifier, value = (found.slice(number * count, count) for number in range(4))
    suffix = borders[_SUFFIX::_PARTS].astype(np.int64)
    arrays = [row, family, qualifier, arrow.array(stamps), arrow.array(kinds), value]
    names = [*COLUMNS, SEQUENCE]
    if layout.has_tags:
        lengths = np.ascontiguousarray(taken(np, block, suffix, 2)).view(">u2").ravel().astype(np.int64)
        suffix = suffix + 2
        tags = _tags(np, arrow, data, suffix, lengths)
        suffix = suffix + lengths
    has_numbers = with_sequence and layout.has_sequence
    arrays.append(arrow.array(_sequences(np, block, suffix) if has_numbers else np.zeros(count, np.int64)))
    if layout.has_tags:
        arrays.append(tags)
        names.append(TAGS)
    return arrow.RecordBatch.from_arrays(arrays, names=names)


def _tags(np: Any, arrow: Any, data: bytes, starts: Any, lengths: Any) -> pyarrow.Array:
    if not lengths.any():
        return arrow.array([b""], arrow.binary()).take(arrow.array(np.zeros(len(lengths), dtype=np.int64)))
    parts = [data[at : at + size] for at, size in zip(starts.tolist(), lengths.tolist(), strict=True)]
    return arrow.array(parts, arrow.binary())


def _sequences(np: Any, block: Any, starts: Any) -> Any:
    """Return the numbers of variable length at these offsets; see :mod:`metaclient.hfile.vints`."""
    first = block[starts]
    lengths = np.frombuffer(SIZES, dtype=np.uint8)[first]
    made = first.view(np.int8).astype(np.int64)
    for size in np.unique(lengths).tolist():
        if size == 1:
            continue
        chosen = np.flatnonzero(lengths == size)
        raw = np.zeros((len(chosen), 8), dtype=np.uint8)
        raw[:, 9 - size :] = taken(np, block, starts[chosen] + 1, size - 1)
        values = raw.view(">i8").ravel().astype(np.int64)
        made[chosen] = np.where(first[chosen] < 256 - 120, ~values, values)
    return made


def _find_borders(np: Any, data: bytes, block: Any, layout: CellLayout, where: str) -> Any:
    """Return the borders of all cells, seven per cell."""
    found: list[Any] = []
    at, end = 0, len(data)
    failures, stretch = 0, _STRETCH_MIN
    while at < end:
        row = _RowPattern.read(data, at, layout, where)
        times = (end - at) // row.size
        alike = 1
        if row.size <= len(row.borders) // _PARTS * _CELL_BYTES_GUESSED:
            alike = count_repeats(np, block[at : at + times * row.size].reshape(times, row.size), row.is_length)
        shifts = np.arange(0, alike * row.size, row.size, dtype=np.int32)
        found.append(np.add.outer(shifts, np.array(row.borders, dtype=np.int32)).ravel())
        at += alike * row.size
        if (alike - 1) * len(row.borders) > _PAYING * _PARTS:
            failures, stretch = 0, _STRETCH_MIN
            continue
        failures += 1
        if failures >= _FAILURES_MAX and at < end:
            starts, at = _read_starts(data, at, stretch, layout, where)
            found.append(_compute_borders(np, block, starts, at, layout, where))
            stretch *= _GROWTH
    return found[0] if len(found) == 1 else np.concatenate([*found, np.zeros(0, dtype=np.int32)])


@dataclass(frozen=True, slots=True)
class _RowPattern:
    """The lengths of a row, which the following rows may share."""

    borders: list[int]
    is_length: bytearray  # of each byte
    size: int

    @classmethod
    def read(cls, data: bytes, at: int, layout: CellLayout, where: str) -> _RowPattern:
        begin, row, end = at, b"", len(data)
        borders: list[int] = []
        is_length = bytearray()
        while at < end and len(borders) < _PATTERN_MAX * _PARTS:
            if row and data[at + 8 : at + 8 + len(row)] != row:
                break
            behind = _next_cell(data, at, end, layout, where)
            key_bytes, value_bytes, row_bytes = _HEAD.unpack_from(data, at)
            row_end = at + _HEAD_BYTES + row_bytes
            row = row or data[at + 8 : row_end]
            tail = at + 8 + key_bytes - _TAIL_BYTES
            value_end = tail + _TAIL_BYTES + value_bytes
            borders += (
                at + _HEAD_BYTES,
                row_end,
                row_end + 1,
                row_end + 1 + data[row_end],
                tail,
                tail + _TAIL_BYTES,
                value_end,
            )
            lengths = bytearray(behind - at)
            lengths[:_HEAD_BYTES] = b"\1" * _HEAD_BYTES
            lengths[row_end - at] = 1
            suffix = value_end - at
            if layout.has_tags:
                lengths[suffix : suffix + 2] = b"\1\1"
                suffix += 2 + _SHORT.unpack_from(data, value_end)[0]
            if layout.has_sequence:
                lengths[suffix] = 1  # the first byte has the length of the number
            is_length += lengths
            at = behind
        return cls(borders, is_length, at - begin)


def _next_cell(data: bytes | memoryview, at: int, end: int, layout: CellLayout, where: str) -> int:
    """Return where the cell at this offset ends; CorruptFile if its lengths contradict each other or the data."""
    try:
        key_bytes, value_bytes, row_bytes = _HEAD.unpack_from(data, at)
        row_end = at + _HEAD_BYTES + row_bytes
        behind = at + 8 + key_bytes + value_bytes
        if value_bytes < 0 or row_bytes + data[row_end] + _KEY_BYTES_MIN > key_bytes:
            raise _torn(where, at, end)
        if layout.has_tags:
            behind += 2 + _SHORT.unpack_from(data, behind)[0]
        if layout.has_sequence:
            behind += SIZES[data[behind]]
    except (struct.error, IndexError) as error:
        raise _torn(where, at, end) from error
    if behind > end:
        raise _torn(where, at, end)
    return int(behind)


def _read_starts(data: bytes, at: int, count: int, layout: CellLayout, where: str) -> tuple[list[int], int]:
    """Return the offsets of the next cells, at most ``count``, and the end of the last one."""
    starts: list[int] = []
    append, lengths_at, sizes_of, end = starts.append, struct.Struct(">II").unpack_from, SIZES, len(data)
    has_tags, has_sequence = layout.has_tags, layout.has_sequence
    try:
        while at < end and count:
            append(at)
            key_bytes, value_bytes = lengths_at(data, at)
            at += 8 + key_bytes + value_bytes
            if has_tags:
                at += 2 + (data[at] << 8) + data[at + 1]
            if has_sequence:
                at += sizes_of[data[at]]
            count -= 1
    except (struct.error, IndexError) as error:
        raise _torn(where, starts[-1], end) from error
    if at > end:
        raise _torn(where, starts[-1], end)
    return starts, at


def _compute_borders(np: Any, block: Any, cells: list[int], end: int, layout: CellLayout, where: str) -> Any:
    """Return the borders of the cells at these offsets; the last cell ends at ``end``."""
    starts = np.array(cells, dtype=np.int64)
    if len(block) < _HEAD_BYTES or (starts > len(block) - _HEAD_BYTES).any():
        raise _torn(where, int(starts[-1]), end)
    head = taken(np, block, starts, _HEAD_BYTES).view(np.dtype(_HEADS)).ravel()
    row_end = starts + head["row"] + _HEAD_BYTES
    family_end = block.take(row_end, mode="clip") + (row_end + 1)
    tail = starts + head["key"].astype(np.int64) + (8 - _TAIL_BYTES)
    value_at = tail + _TAIL_BYTES
    value_end = value_at + head["value"]
    behind = np.append(starts[1:], end)
    # Each suffix was within its cell when the offsets were read; keys and values are compared here.
    is_good = (family_end <= tail) & (value_end <= behind) & (head["value"] >= 0)
    if not is_good.all():
        raise _torn(where, int(starts[~is_good][0]), end)
    parts = [starts + _HEAD_BYTES, row_end, row_end + 1, family_end, tail, value_at, value_end]
    return np.stack(parts, axis=1, dtype=np.int32, casting="same_kind").ravel()


def _torn(where: str, at: int, end: int) -> CorruptFile:
    return CorruptFile(f"{where}: the cell at byte {at} of {end} is torn")
