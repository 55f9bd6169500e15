"""Decodes the keys of many log entries with numpy: as ``decode_key_columns``, at a third of its cost.

1. An entry is decoded alone. It is the *pattern* of the entries after it.
2. numpy cuts the following bytes at the pattern's length, and compares them with the pattern. All bits must be equal,
   but those of the region's name, of the sequence id and of the write time. The highest bit of each byte of the two
   numbers must be equal, because it tells where a number ends.
3. As far as they are equal, numpy computes the two numbers of all entries; each name is looked up in the dictionary of
   the names that were decoded before. The first entry that differs is the next pattern.

If few entries are alike, more of them are decoded alone before the next comparison.
"""

from __future__ import annotations

from typing import Any

from metaclient.protobuf import ProtocolError, read_varint
from metaclient.wire.cell_arrays import libraries
from metaclient.wire.rpc.replication import KeyColumns, append_keys, known_name, known_rest

__all__ = ["decode_key_arrays"]

#: Entries that are compared in one go. After fewer than _PAYING alike ones, up to _ALONE_MAX are decoded alone.
_COMPARED_MAX = 4096
_PAYING = 16
_ALONE_MAX = 1024
#: A varint of more bytes does not fit into a signed number of 64 bits.
_VARINT_MAX = 9


def decode_key_arrays(param: bytes) -> KeyColumns:
    """Return what ``decode_key_columns`` returns; the same errors are raised.

    >>> from metaclient.wire.rpc.replication import ShippedEntry, WalKey, decode_key_columns, encode_replicate
    >>> keys = [WalKey("0" * 32, b"t", number, 1_700_000_000_000) for number in range(130)]
    >>> param, _ = encode_replicate([ShippedEntry(key, ()) for key in keys])
    >>> decode_key_arrays(param) == decode_key_columns(param)
    True
    """
    np, _ = libraries()
    made = KeyColumns([], [], [], [], [])
    block = np.frombuffer(param or b"\0", dtype=np.uint8)
    at, end, alone = 0, len(param), 1
    while at < end:
        last, at = append_keys(made, param, at, alone)
        found = _append_alike(np, made, param, block, last, at)
        at += found * (at - last)
        alone = 1 if found >= _PAYING else min(2 * alone, _ALONE_MAX)
    return made


def _append_alike(np: Any, made: KeyColumns, param: bytes, block: Any, begin: int, end: int) -> int:
    """Append the entries from ``end`` on that are as the one from ``begin`` to ``end``; return their number."""
    size = end - begin
    times = min((len(param) - end) // size, _COMPARED_MAX) if size else 0
    pattern = _Pattern.of(param, begin, end) if times else None
    if pattern is None:
        return 0
    rows = block[end : end + times * size].reshape(times, size)
    mask = np.frombuffer(pattern.mask, dtype=np.uint8)
    differs = ((rows ^ block[begin:end]) & mask).any(axis=1)
    alike = int(differs.argmax()) if differs.any() else times
    names = []
    for at in range(end + pattern.names[0], end + pattern.names[0] + alike * size, size):
        name = known_name(param[at : at + pattern.names[1]])
        if name is None:
            break
        names.append(name)
    alike = len(names)
    made.names.extend(names)
    made.sequence_ids.extend(_numbers(np, rows[:alike], pattern.sequence))
    made.write_times_ms.extend(_numbers(np, rows[:alike], pattern.time))
    made.rests.extend(made.rests[-1:] * alike)
    made.counts.extend(made.counts[-1:] * alike)
    return alike


def _numbers(np: Any, rows: Any, at: slice) -> list[int]:
    """Return the varint of each row."""
    digits = (rows[:, at] & 0x7F).astype(np.int64)
    found: list[int] = (digits << np.arange(0, 7 * digits.shape[1], 7)).sum(axis=1).tolist()
    return found


class _Pattern:
    """Where the parts of an entry are, relative to its begin, and the bits that a following entry must have, too."""

    __slots__ = ("mask", "names", "sequence", "time")

    def __init__(self, size: int, region: slice, names: tuple[int, int], sequence: slice, time: slice) -> None:
        self.names = names  # offset and length of region and table
        self.sequence = sequence
        self.time = time
        self.mask = bytearray(b"\xff" * size)
        for part, bits in ((region, b"\0"), (sequence, b"\x80"), (time, b"\x80")):
            self.mask[part] = bits * (part.stop - part.start)

    @classmethod
    def of(cls, param: bytes, begin: int, end: int) -> _Pattern | None:
        """Return the pattern of an entry that was decoded; None if its fields are not in the usual order."""
        entry = param[begin:end]
        try:
            body = _varint_end(entry, 1)
            key = _varint_end(entry, body + 1)
            region_end = key + 2 + entry[key + 1]
            names_end = region_end + 2 + entry[region_end + 1]
            sequence = slice(names_end + 1, _varint_end(entry, names_end + 1))
            time = slice(sequence.stop + 1, _varint_end(entry, sequence.stop + 1))
            tags = bytes([entry[at] for at in (0, body, key, region_end, names_end, sequence.stop)])
            lengths = entry[key + 1] | entry[region_end + 1]
            key_end = read_varint(entry, body + 1, len(entry))[0] + key
            is_plain = entry[key_end] == 0x18 and _varint_end(entry, key_end + 1) == len(entry)
        except (IndexError, ProtocolError):
            return None
        if tags != b"\x0a\x0a\x0a\x12\x18\x20" or lengths > 0x7F or not is_plain:
            return None
        if time.stop > key_end or known_rest(entry[time.stop : key_end]) is None:
            return None  # the rest of the key may have a second sequence id
        if max(part.stop - part.start for part in (sequence, time)) > _VARINT_MAX:
            return None
        return cls(len(entry), slice(key + 2, region_end), (key, names_end - key), sequence, time)


def _varint_end(data: bytes, at: int) -> int:
    while data[at] > 0x7F:
        at += 1
    return at + 1
