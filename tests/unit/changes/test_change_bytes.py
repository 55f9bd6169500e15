"""Log entries as HBase sends them become rows with cells and tags; other bytes become one kind of error."""

import struct
import uuid
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaclient.changes.change import Tag
from metaclient.changes.decoding import decode_rows, decode_tags
from metaclient.model import Cell, CellType
from metaclient.protobuf import ProtocolError
from metaclient.wire.rpc.cellblock import encode_cells
from metaclient.wire.rpc.key_arrays import decode_key_arrays
from metaclient.wire.rpc.replication import (
    ShippedEntry,
    WalKey,
    decode_key_columns,
    decode_keys,
    encode_replicate,
)

REGION = "0123456789abcdef0123456789abcdef"


def tagged(row: bytes, cell: Cell, tags: bytes) -> bytes:
    """Return a cell with tags, as KeyValueCodecWithTags writes it."""
    plain = encode_cells(row, [cell])[4:]
    body = plain + struct.pack(">H", len(tags)) + tags
    return struct.pack(">i", len(body)) + body


def test_rows_of_a_batch_that_are_interleaved_are_one_change_each() -> None:
    one, two, three = Cell(b"f:a", 1, b"1"), Cell(b"f:a", 2, b"2"), Cell(b"f:", 3, b"", CellType.DELETE_FAMILY)
    block = encode_cells(b"x", [one]) + encode_cells(b"y", [two]) + encode_cells(b"x", [three])
    rows, end = decode_rows(block, 0, len(block), 3)
    assert [(row, [cell.timestamp for cell in cells]) for row, cells in rows] == [(b"x", [1, 3]), (b"y", [2])]
    assert end == len(block)
    deleted = rows[0][1][1]
    assert (deleted.family, deleted.qualifier, deleted.type, deleted.is_delete) == (b"f", b"", 14, True)


def test_tags_are_not_part_of_the_value() -> None:
    block = tagged(b"r", Cell(b"f:q", 7, b"value"), bytes.fromhex("0003 08 6162 0002 07 63"))
    ((row, (cell,)),), _ = decode_rows(block, 0, len(block), 1)
    assert (row, cell.value, cell.tags) == (b"r", b"value", (Tag(8, b"ab"), Tag(7, b"c")))


@pytest.mark.parametrize("data", ["00", "0004 0003 01 61", "0003 0009 01", "0002 0000", "0005 0002 01 61 00"])
def test_torn_tags_are_a_protocol_error(data: str) -> None:
    raw = bytes.fromhex(data)
    with pytest.raises(ProtocolError):
        decode_tags(raw, 0, len(raw))


@given(st.binary(max_size=80), st.integers(1, 3))
def test_bytes_that_are_no_cells_are_a_protocol_error_or_rows(data: bytes, count: int) -> None:
    with suppress(ProtocolError):
        decode_rows(data, 0, len(data), count)


numbers = st.one_of(st.integers(0, 127), st.integers(128, 1 << 22), st.integers(0, (1 << 63) - 1))
keys = st.builds(
    WalKey,
    st.just(REGION),
    st.sampled_from([b"t", b"ns:table"]),
    numbers,
    st.one_of(numbers, st.integers(1 << 40, 1 << 41)),
    st.sampled_from([(), ((b"cf", 1),), ((b"cf", 1), (b"d", 2))]),
    st.sampled_from([(), (uuid.UUID(int=7),), (uuid.UUID(int=1 << 127), uuid.UUID(int=3))]),
    st.sampled_from([None, (1, 2)]),
)


@given(st.lists(st.tuples(keys, st.integers(0, 200)), max_size=6))
def test_keys_by_column_are_those_of_the_entries(found: list[tuple[WalKey, int]]) -> None:
    cell = (b"r", Cell(b"cf:q", 1, b""))
    param, _ = encode_replicate([ShippedEntry(key, (cell,) * count) for key, count in found])
    for _ in range(2):  # the second time with the parts of the first in memory
        columns = decode_key_columns(param)
        names, sequences, times, rests, counts = columns
        assert [key for key, _ in decode_keys(param)] == [
            WalKey(*name, sequence, time, *rest)
            for name, sequence, time, rest in zip(names, sequences, times, rests, strict=True)
        ]
        assert counts == [count for _, count in found]


regions = st.sampled_from([REGION, "f" * 32, "short"])
#: Entries that differ in region and numbers only, as those of a busy table.
runs = st.builds(
    lambda first, region, sequences: [
        (
            key._replace(region=one, sequence_id=key.sequence_id + number, write_time_ms=key.write_time_ms + number),
            count,
        )
        for (key, count), one, number in zip([first] * len(sequences), region * 60, sequences, strict=False)
    ],
    st.tuples(keys, st.integers(0, 300)),
    st.lists(regions, min_size=1, max_size=3),
    st.lists(st.integers(0, 300), max_size=60),
)


@given(st.lists(runs, max_size=4), st.binary(max_size=8))
def test_keys_decoded_with_numpy_are_those_of_the_plain_decoder(
    found: list[list[tuple[WalKey, int]]], trailing: bytes
) -> None:
    param, _ = encode_replicate([ShippedEntry(key, ()) for run in found for key, _ in run], cluster_id="c")
    param += trailing
    for _ in range(2):
        assert outcome(decode_key_arrays, param) == outcome(decode_key_columns, param)


def test_number_that_ends_early_in_an_entry_of_equal_length_is_refused_by_both_decoders() -> None:
    entry, _ = encode_replicate([ShippedEntry(WalKey(REGION, b"t", 300, 1 << 41), ())])
    entry = entry[:-2]  # without the id of the cluster
    at = entry.index(b"\x18\xac\x02\x20") + 1
    damaged = entry[:at] + b"\x2c" + entry[at + 1 :]  # the sequence id has one byte, and the next byte is no tag
    with pytest.raises(ProtocolError):
        decode_key_columns(entry + damaged)
    with pytest.raises(ProtocolError):
        decode_key_arrays(entry + damaged)


@given(st.lists(keys, min_size=1, max_size=2), st.data())
def test_damaged_keys_are_the_same_to_both_decoders(found: list[WalKey], data: st.DataObject) -> None:
    """A damaged entry stands between good ones that are alike."""
    (first, *_), cell = found, (b"r", Cell(b"cf:q", 1, b""))
    entry, _ = encode_replicate([ShippedEntry(first, (cell,))])
    entry = entry[:-2]  # without the id of the cluster
    damaged = bytearray(entry)
    for at in data.draw(st.lists(st.integers(0, len(entry) - 1), max_size=3)):
        damaged[at] = data.draw(st.integers(0, 255))
    extra = b"\x18\x05"  # a second sequence id, which replaces the first one
    key_size, body = entry[3], entry[4:]
    twice = bytes([0x0A, entry[1] + 2, 0x0A, key_size + 2]) + body[:key_size] + extra + body[key_size:]
    entries = [entry] * 3 + [bytes(damaged)] * 3 + ([twice] * 3 if entry[1] < 0x7E and key_size < 0x7E else [])
    other, _ = encode_replicate([ShippedEntry(first._replace(sequence_id=first.sequence_id ^ 1), (cell,))])
    param = b"".join([*entries, other[:-2], twice if len(entries) > 6 else entry])
    assert outcome(decode_key_arrays, param) == outcome(decode_key_columns, param)


def outcome(decode: Any, param: bytes) -> Any:
    """Return the keys, or the text of the error."""
    try:
        return decode(param)
    except ProtocolError as error:
        return str(error)


@given(st.binary(max_size=120))
def test_bytes_that_are_no_keys_are_a_protocol_error_or_keys(data: bytes) -> None:
    for decode in (decode_key_columns, decode_keys, decode_key_arrays):
        with suppress(ProtocolError):
            decode(data)
