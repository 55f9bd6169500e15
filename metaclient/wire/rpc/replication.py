"""Entries of a write-ahead log as ``AdminService.ReplicateWALEntry`` carries them from one cluster to another.

The request has the keys of the entries (ReplicateWALEntryRequest, HBase 2.6 and 3.0), and the cell block has their
cells. ``associated_cell_count`` of an entry is the number of cells that the entry takes from the block. The keys are
encoded and decoded without a field table, because each shipped edit has one: a field table takes 10 us per key, this
module 2 us for a key that shares its region, table, scopes and clusters with an earlier one.

DIVERGENCES from HBase's ReplicationSink (2.6.1): cells that belong to no entry raise a :class:`ProtocolError` (HBase
ignores them, and the edits would be lost), and the tags of cells are skipped.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

from metaclient.model import Cell
from metaclient.protobuf import Message, ProtocolError, delimited, read_varint, skip_field, varint
from metaclient.wire.rpc.cellblock import decode_counted, encode_cells

__all__ = [
    "CODEC_WITH_TAGS",
    "REPLICATE_WAL_ENTRY",
    "KeyColumns",
    "MissingCells",
    "Scope",
    "ShippedEntry",
    "WalKey",
    "append_keys",
    "decode_key_columns",
    "decode_keys",
    "decode_replicate",
    "encode_replicate",
    "known_name",
    "known_rest",
]

K = TypeVar("K")
V = TypeVar("V")
#: The method of AdminService.
REPLICATE_WAL_ENTRY = "ReplicateWALEntry"
#: The codec that sources name in their connection header: hbase.replication.rpc.codec.
CODEC_WITH_TAGS = "org.apache.hadoop.hbase.codec.KeyValueCodecWithTags"

_LONG = (1 << 64) - 1
_new = tuple.__new__
# Most keys differ from others of the same region only in sequence id and write time. The parts before and after these
# two are encoded and decoded once.
_begins: dict[tuple[str, bytes], bytes] = {}
_ends: dict[tuple[object, object], bytes] = {}
_decoded_begins: dict[bytes, tuple[str, bytes]] = {}
_decoded_ends: dict[bytes, tuple[tuple[tuple[bytes, int], ...], tuple[uuid.UUID, ...], tuple[int, int] | None]] = {}
_CACHED_MAX = 1024
_CACHED_BYTES_MAX = 256

# The tags of a message's fields: number << 3 | wire type.
_ENTRY, _CLUSTER_ID, _NAMESPACE_DIR, _ARCHIVE_DIR = b"\x0a", b"\x12", b"\x1a", b"\x22"
_KEY, _CELL_COUNT = b"\x0a", b"\x18"
_REGION, _TABLE, _SEQUENCE_ID, _WRITE_TIME = b"\x0a", b"\x12", b"\x18", b"\x20"
_KEY_TAGS = frozenset({0x0A, 0x12, 0x18, 0x20})
_SCOPES, _CLUSTER_IDS, _NONCE_GROUP, _NONCE = b"\x32", b"\x42", b"\x48", b"\x50"
#: For the texts of errors; the fields are handled below.
_REQUEST_MESSAGE = Message("ReplicateWALEntryRequest")
_ENTRY_MESSAGE = Message("WALEntry")
_KEY_MESSAGE = Message("WALKey")
_SCOPE_MESSAGE = Message("FamilyScope")
_UUID_MESSAGE = Message("UUID")


class Scope(enum.IntEnum):
    """REPLICATION_SCOPE of a family. Sources ship GLOBAL families only (HBase 2.x and 3.x)."""

    LOCAL = 0
    GLOBAL = 1
    SERIAL = 2  # accepted by HBase's table checks, and not replicated: serial replication is a flag of the peer


class MissingCells(ProtocolError):
    """The entries of a request have more cells than its cell block, or the block is missing."""


class WalKey(NamedTuple):
    """The key of a log entry: its region and table, its number in the region, and the clusters that it passed."""

    region: str  # the encoded name: 32 hexadecimal digits
    table: bytes
    sequence_id: int
    write_time_ms: int
    scopes: tuple[tuple[bytes, int], ...] = ()  # the families of the table that are not LOCAL
    cluster_ids: tuple[uuid.UUID, ...] = ()  # in the order in which the clusters shipped the entry
    nonce: tuple[int, int] | None = None  # group and nonce of an increment or append


class ShippedEntry(NamedTuple):
    """One log entry on its way to another cluster: its key, and (row, cell) in the order of the log."""

    key: WalKey
    cells: tuple[tuple[bytes, Cell], ...]


class KeyColumns(NamedTuple):
    """The keys of many entries, by column."""

    names: list[tuple[str, bytes]]  # region and table
    sequence_ids: list[int]
    write_times_ms: list[int]
    rests: list[tuple[tuple[tuple[bytes, int], ...], tuple[uuid.UUID, ...], tuple[int, int] | None]]  # scopes, ...
    counts: list[int]  # of cells


def encode_replicate(
    entries: Iterable[ShippedEntry],
    *,
    cluster_id: str = "",
    namespace_dir: str | None = None,
    archive_dir: str | None = None,
) -> tuple[bytes, bytes]:
    """Return the request for these entries and its cell block.

    ``cluster_id`` and the two folders are used for bulk loads only; HBase's sources always send the three of them.

    >>> key = WalKey("0" * 32, b"t", 4, 1000, ((b"cf", 1),))
    >>> param, block = encode_replicate([ShippedEntry(key, ((b"r", Cell(b"cf:q", 7, b"v")),))])
    >>> decode_replicate(param, block)[0].key == key
    True
    """
    parts: list[bytes] = []
    block: list[bytes] = []
    for key, cells in entries:
        parts += (_ENTRY, delimited(_KEY + delimited(_encode_key(key)) + _CELL_COUNT + varint(len(cells))))
        block += [encode_cells(row, (cell,)) for row, cell in cells]
    parts += (_CLUSTER_ID, delimited(cluster_id.encode()))
    for tag, folder in ((_NAMESPACE_DIR, namespace_dir), (_ARCHIVE_DIR, archive_dir)):
        if folder is not None:
            parts += (tag, delimited(folder.encode()))
    return b"".join(parts), b"".join(block)


def _encode_key(key: WalKey) -> bytes:
    region, table, sequence_id, write_time_ms, scopes, cluster_ids, nonce = key
    begin = _begins.get((region, table))
    if begin is None:
        begin = _REGION + delimited(region.encode("latin-1")) + _TABLE + delimited(table) + _SEQUENCE_ID
        _remember(_begins, (region, table), begin, len(begin))
    end = _ends.get((scopes, cluster_ids))
    if end is None:
        end = _encode_end(scopes, cluster_ids)
        _remember(_ends, (scopes, cluster_ids), end, len(end))
    made = begin + varint(sequence_id & _LONG) + _WRITE_TIME + varint(write_time_ms & _LONG) + end
    if nonce is not None:
        made += _NONCE_GROUP + varint(nonce[0] & _LONG) + _NONCE + varint(nonce[1] & _LONG)
    return made


def _encode_end(scopes: Iterable[tuple[bytes, int]], cluster_ids: Iterable[uuid.UUID]) -> bytes:
    parts: list[bytes] = []
    for family, scope in scopes:
        parts += (_SCOPES, delimited(b"\x0a" + delimited(family) + b"\x10" + varint(scope)))
    for one in cluster_ids:
        parts += (_CLUSTER_IDS, delimited(b"\x08" + varint(one.int & _LONG) + b"\x10" + varint(one.int >> 64)))
    return b"".join(parts)


def decode_replicate(param: bytes, block: bytes) -> list[ShippedEntry]:
    """Return the entries of a request.

    Raise :class:`MissingCells`, with the text of HBase's sink, when the cell block has fewer cells than the entries
    count, and :class:`ProtocolError` for other bytes that are no such request.
    """
    made: list[ShippedEntry] = []
    block_at = 0
    for key, count in decode_keys(param):
        cells, block_at = _take_cells(block, block_at, count)
        made.append(_new(ShippedEntry, (key, cells)))
    if block_at != len(block):
        raise ProtocolError(f"the cell block has {len(block) - block_at} bytes that belong to no log entry")
    return made


def decode_keys(param: bytes) -> list[tuple[WalKey, int]]:
    """Return the keys of the entries of a request, each with the number of cells that it takes from the block."""
    made: list[tuple[WalKey, int]] = []
    at, end = 0, len(param)
    while at < end:
        if param[at] != 0x0A:
            tag, at = read_varint(param, at, end)
            at = skip_field(_REQUEST_MESSAGE, tag, param, at, end)
            continue
        at, stop = _field(_REQUEST_MESSAGE, param, at + 1, end)
        made.append(_decode_entry(param, at, stop))
        at = stop
    return made


def decode_key_columns(param: bytes) -> KeyColumns:
    """Return the keys of the entries of a request, as :func:`decode_keys` does, without an object per entry."""
    made: KeyColumns = KeyColumns([], [], [], [], [])
    append_keys(made, param, 0, len(param))
    return made


def append_keys(made: KeyColumns, param: bytes, at: int, entries_max: int) -> tuple[int, int]:
    """Append the keys of the next entries of a request; return the begin of the last entry, and its end.

    The begin is the end, if the request has no further entry.
    """
    add_name, add_sequence, add_time = made.names.append, made.sequence_ids.append, made.write_times_ms.append
    add_rest, add_count = made.rests.append, made.counts.append
    end = last = len(param)
    while at < end and entries_max:
        last = at
        if param[at] != 0x0A:
            tag, at = read_varint(param, at, end)
            at = skip_field(_REQUEST_MESSAGE, tag, param, at, end)
            last = at
            continue
        at, stop = _field(_REQUEST_MESSAGE, param, at + 1, end)
        fields = _decode_known(param, at, stop)
        if fields is None:
            key, count = _decode_entry(param, at, stop)
            fields = key[:2], key.sequence_id, key.write_time_ms, key[4:], count
        name, sequence, time, rest, count = fields
        add_name(name)
        add_sequence(sequence)
        add_time(time)
        add_rest(rest)
        add_count(count)
        at = stop
        entries_max -= 1
    return last, at


def known_name(data: bytes) -> tuple[str, bytes] | None:
    """Return the region and the table that these bytes of a key hold, if they were decoded before."""
    return _decoded_begins.get(data)


def known_rest(data: bytes) -> object | None:
    """Return scopes, cluster ids and nonce that these bytes of a key hold, if they were decoded before."""
    return _decoded_ends.get(data)


def _decode_known(data: bytes, at: int, end: int) -> tuple[Any, int, int, Any, int] | None:
    """Return the parts of an entry whose key is as that of an earlier one; None if it must be decoded field by field.

    The numbers are read without a call each: a sequence id of at most three bytes, a time of six (2004 to 2109).
    """
    try:
        size, key = data[at + 1], at + 2
        if size > 0x7F:
            size, key = size & 0x7F | data[key] << 7, key + 1
        stop = key + size
        tail = key + 2 + data[key + 1]
        tail += 2 + data[tail + 1]
        name = _decoded_begins.get(data[key:tail])
        if name is None or data[at] != 0x0A or stop + 2 != end or data[stop] != 0x18 or data[tail] != 0x18:
            return None
        count = data[stop + 1]
        sequence, second, third = data[tail + 1 : tail + 4]
        if sequence < 0x80:
            tail += 2
        elif second < 0x80:
            sequence, tail = sequence & 0x7F | second << 7, tail + 3
        elif third < 0x80:
            sequence, tail = sequence & 0x7F | (second & 0x7F) << 7 | third << 14, tail + 4
        else:
            return None
        tag, one, two, three, four, five, six = data[tail : tail + 7]
    except (IndexError, ValueError):  # a shorter key
        return None
    rest = _decoded_ends.get(data[tail + 7 : stop])
    if rest is None or count > 0x7F or six > 0x7F or tag != 0x20 or not one & two & three & four & five & 0x80:
        return None
    time = one & 0x7F | (two & 0x7F) << 7 | (three & 0x7F) << 14 | (four & 0x7F) << 21 | (five & 0x7F) << 28 | six << 35
    return name, sequence, time, rest, count


def _field(message: Message, data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return where the bytes of a field begin and end whose length stands at ``at``."""
    size = data[at] if at < end else 0x80
    at += 1
    if size > 0x7F:
        size, at = read_varint(data, at - 1, end)
    if at + size > end:
        raise ProtocolError(f"{message.name} is cut short: a field ends at byte {at + size} of {end}")
    return at, at + size


def _take_cells(block: bytes, at: int, count: int) -> tuple[tuple[tuple[bytes, Cell], ...], int]:
    """Return the next ``count`` cells of the block with their rows, and where they end."""
    if count and not block:
        raise MissingCells('Cannot invoke "org.apache.hadoop.hbase.CellScanner.advance()" because "cells" is null')
    made, at = decode_counted(block, at, len(block), count)
    if len(made) < count:
        raise MissingCells(f"Expected={count}, index={len(made)}")
    return tuple(made), at


def _decode_entry(data: bytes, at: int, end: int) -> tuple[WalKey, int]:
    """Return the key of a WALEntry and the number of its cells. ``key_value_bytes`` are ignored, as HBase does."""
    key: WalKey | None = None
    count = 0
    while at < end:
        tag = data[at]
        if tag == 0x0A:
            at, stop = _field(_ENTRY_MESSAGE, data, at + 1, end)
            key, at = _decode_key(data, at, stop), stop
        elif tag == 0x18:
            count, at = read_varint(data, at + 1, end)
        else:
            tag, at = read_varint(data, at, end)
            at = skip_field(_ENTRY_MESSAGE, tag, data, at, end)
    if key is None:
        raise ProtocolError("WALEntry without its field 'key'")
    return key, 0 if count >> 63 else count  # an int32: HBase's loop over a negative count takes no cell


def _decode_key(data: bytes, at: int, end: int) -> WalKey:
    """Return a WALKey. The fields of one that HBase writes are in order; any other order takes the long way."""
    stop = at + 2 + data[at + 1] if at + 2 <= end else end  # of the region, if its length has one byte
    stop += 2 + data[stop + 1] if stop + 2 <= end else 0  # of the table, too
    known = _decoded_begins.get(data[at:stop])
    if known is None or stop >= end or data[stop] != 0x18:
        return _decode_fields(data, at, end)
    sequence_id, stop = read_varint(data, stop + 1, end)
    if stop >= end or data[stop] != 0x20:
        return _decode_fields(data, at, end)
    write_time_ms, stop = read_varint(data, stop + 1, end)
    rest = _decoded_ends.get(data[stop:end])
    if rest is None:
        return _decode_fields(data, at, end)
    return _new(WalKey, (*known, sequence_id, write_time_ms, *rest))


def _decode_fields(data: bytes, at: int, end: int) -> WalKey:
    begun = at
    texts: dict[int, bytes] = {}
    numbers: dict[int, int] = {}
    scopes: list[tuple[bytes, int]] = []
    cluster_ids: list[uuid.UUID] = []
    ends: dict[int, int] = {}
    order: list[int] = []
    while at < end:
        tag, at = read_varint(data, at, end)
        order.append(tag)
        if tag in (0x18, 0x20, 0x48, 0x50):
            numbers[tag], at = read_varint(data, at, end)
        elif tag in (0x0A, 0x12, 0x32, 0x42):
            at, stop = _field(_KEY_MESSAGE, data, at, end)
            value, at = data[at:stop], stop
            if tag == 0x32:
                scopes.append(_decode_scope(value))
            elif tag == 0x42:
                cluster_ids.append(_decode_uuid(value))
            else:
                texts[tag] = value
        else:
            at = skip_field(_KEY_MESSAGE, tag, data, at, end)
        ends[tag] = at
    try:
        named = (texts[0x0A].decode("latin-1"), texts[0x12])
        ids = (numbers[0x18], numbers[0x20])
    except KeyError as error:
        raise ProtocolError(f"WALKey without its field number {error.args[0] >> 3}") from error
    nonce = (numbers.get(0x48, 0), numbers.get(0x50, 0)) if 0x48 in numbers or 0x50 in numbers else None
    rest = (tuple(scopes), tuple(cluster_ids), nonce)
    if order[:4] == [0x0A, 0x12, 0x18, 0x20] and not _KEY_TAGS.intersection(order[4:]):
        _remember(_decoded_begins, data[begun : ends[0x12]], named, ends[0x12] - begun)
        if nonce is None:
            _remember(_decoded_ends, data[ends[0x20] : end], rest, end - ends[0x20])
    return _new(WalKey, (*named, *ids, *rest))


def _decode_scope(data: bytes) -> tuple[bytes, int]:
    family: bytes | None = None
    scope: int | None = None
    at, end = 0, len(data)
    while at < end:
        tag, at = read_varint(data, at, end)
        if tag == 0x0A:
            at, stop = _field(_SCOPE_MESSAGE, data, at, end)
            family, at = data[at:stop], stop
        elif tag == 0x10:
            scope, at = read_varint(data, at, end)
        else:
            at = skip_field(_SCOPE_MESSAGE, tag, data, at, end)
    if family is None or scope is None:
        raise ProtocolError("FamilyScope without its family or its scope")
    return family, scope


def _decode_uuid(data: bytes) -> uuid.UUID:
    halves: dict[int, int] = {}
    at, end = 0, len(data)
    while at < end:
        tag, at = read_varint(data, at, end)
        if tag in (0x08, 0x10):
            halves[tag], at = read_varint(data, at, end)
        else:
            at = skip_field(_UUID_MESSAGE, tag, data, at, end)
    if len(halves) != 2:
        raise ProtocolError("UUID without one of its two halves")
    return uuid.UUID(int=halves[0x10] << 64 | halves[0x08])


def _remember(cache: dict[K, V], key: K, value: V, size: int) -> None:
    if size > _CACHED_BYTES_MAX:
        return
    if len(cache) >= _CACHED_MAX:
        cache.clear()
    cache[key] = value
