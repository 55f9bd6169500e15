"""Data block encodings: what a plain encoder makes of cells, written after HBase's classes, is decoded to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaclient.hfile import CorruptFile
from metaclient.hfile.encodings import decode_encoded
from metaclient.hfile.key_values import CellLayout, decode_cells, encode_cells
from metaclient.hfile.vints import encode_vint
from metaclient.protobuf import varint
from tests.unit.hfile.cells import StoredCell, batch_of, cells_from, stored_cells

SIZE = bytes(4)


def key_of(cell: StoredCell) -> bytes:
    head = len(cell.row).to_bytes(2, "big") + cell.row + bytes([len(cell.family)]) + cell.family + cell.qualifier
    return head + cell.timestamp.to_bytes(8, "big") + bytes([cell.type])


def common(one: bytes, two: bytes) -> int:
    return next(
        (at for at, pair in enumerate(zip(one, two, strict=False)) if pair[0] != pair[1]), min(len(one), len(two))
    )


def suffix(cell: StoredCell) -> bytes:
    return varint(2) + b"tt" + encode_vint(cell.sequence)


def prefix(cells: Sequence[StoredCell]) -> bytes:
    made, last = b"\0\2" + SIZE, b""
    for cell in cells:
        key = key_of(cell)
        shared = common(key, last)
        made += varint(len(key) - shared) + varint(len(cell.value)) + varint(shared)
        made += key[shared:] + cell.value + suffix(cell)
        last = key
    return made


def rest_of_key(cell: StoredCell, last: bytes) -> tuple[int, bytes]:
    """Return the common bytes before the timestamp, and row and qualifier behind them; the family is left out."""
    key = key_of(cell)
    shared = common(key[:-9], last[:-9]) if last else 0
    row_end = 2 + len(cell.row)
    if shared < row_end:
        return shared, key[shared:row_end] + cell.qualifier
    shared = max(shared, row_end + 1 + len(cell.family))
    return shared, key[shared:-9]


def diff(cells: Sequence[StoredCell]) -> bytes:
    made = b"\0\3" + SIZE + bytes([len(cells[0].family)]) + cells[0].family
    last: StoredCell | None = None
    for cell in cells:
        key, before = key_of(cell), b"" if last is None else key_of(last)
        number, flag = cell.timestamp, 0
        if last is not None:
            flag = (len(key) == len(before)) | (len(cell.value) == len(last.value)) << 1 | (cell.type == last.type) << 2
            change = last.timestamp - cell.timestamp
            if size_of(abs(change)) < size_of(number):
                number, flag = abs(change), flag | 8 | (0x80 if change < 0 else 0)
        flag |= (size_of(number) - 1) << 4
        shared, rest = rest_of_key(cell, before)
        made += bytes([flag]) + (b"" if flag & 1 else varint(len(key)))
        made += (b"" if flag & 2 else varint(len(cell.value))) + varint(shared) + rest
        made += number.to_bytes(size_of(number), "little") + (b"" if flag & 4 else bytes([cell.type]))
        made += cell.value + suffix(cell)
        last = cell
    return made


def size_of(number: int) -> int:
    return max((number.bit_length() + 7) // 8, 1)


def fast_diff(cells: Sequence[StoredCell]) -> bytes:
    made, last = b"\0\4" + SIZE, None
    for cell in cells:
        key = key_of(cell)
        if last is None:
            made += b"\0" + varint(len(key)) + varint(len(cell.value)) + b"\0" + key + cell.value + suffix(cell)
            last = cell
            continue
        before = key_of(last)
        stamps = min(common(key[-9:-1], before[-9:-1]), 7)
        flag = stamps | (len(key) == len(before)) << 3 | (len(cell.value) == len(last.value)) << 4
        flag |= (cell.type == last.type) << 5 | (cell.value == last.value) << 6
        shared, rest = rest_of_key(cell, before)
        made += bytes([flag]) + (b"" if flag & 8 else varint(len(key)))
        made += (b"" if flag & 16 else varint(len(cell.value))) + varint(shared) + rest + key[-9 + stamps : -1]
        made += (b"" if flag & 32 else key[-1:]) + (b"" if flag & 64 else cell.value) + suffix(cell)
        last = cell
    return made


def row_index(cells: Sequence[StoredCell]) -> bytes:
    plain = [
        one.as_py() + b"\0\2tt" + encode_vint(cell.sequence)
        for one, cell in zip(encode_cells(batch_of(cells), b""), cells, strict=True)
    ]
    data = b"".join(plain)
    return b"\0\7" + data + b"\0\0\0\1" + SIZE + len(data).to_bytes(4, "big")


@pytest.mark.parametrize("encode", [prefix, diff, fast_diff, row_index])
@given(st.lists(stored_cells(sequences=True), min_size=1, max_size=30))
def test_encoded_cells_come_back(encode: Callable[[Sequence[StoredCell]], bytes], cells: list[StoredCell]) -> None:
    ordered = sorted({cell.key(): cell for cell in cells}.values(), key=StoredCell.key)
    ordered = [cell._replace(timestamp=cell.timestamp * 1000) for cell in ordered]
    layout = CellLayout(has_tags=True)
    batch = decode_cells(decode_encoded(encode(ordered), layout, "f"), layout, "f")
    assert cells_from([batch]) == [cell._replace(sequence=0) for cell in ordered]
    assert batch["sequence"].to_pylist() == [cell.sequence for cell in ordered]
    assert set(batch["tags"].to_pylist()) == {b"tt"}


def test_unknown_encoding_is_named() -> None:
    with pytest.raises(CorruptFile, match="unknown encoding 0063"):
        decode_encoded(b"\0\x63" + SIZE, CellLayout(), "f")
