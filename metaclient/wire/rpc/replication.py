"""Entries of a write-ahead log as ``AdminService.ReplicateWALEntry`` carries them from one cluster to another.

The request has the keys of the entries (ReplicateWALEntryRequest, HBase 2.6 and 3.0), and the cell block has their
cells. ``associated_cell_count`` of an entry is the number of cells that the entry takes from the block. The keys are
encoded and decoded without a field table, because each shipped edit has one: the table's decoder takes 29 us per key,
this one a third of that.

DIVERGENCES from HBase's ReplicationSink (2.6.1): cells that belong to no entry raise a :class:`ProtocolError` (HBase
ignores them, and the edits would be lost), and the tags of cells are skipped.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from metaclient.model import Cell
from metaclient.wire.rpc.cellblock import decode_cells, encode_cells
from metaclient.wire.rpc.protobuf import Message, ProtocolError, delimited, read_varint, skip_field, varint

__all__ = [
    "CODEC_WITH_TAGS",
    "REPLICATE_WAL_ENTRY",
    "MissingCells",
    "Scope",
    "ShippedEntry",
    "WalKey",
    "decode_replicate",
    "encode_replicate",
]

T = TypeVar("T")
#: The method of AdminService.
REPLICATE_WAL_ENTRY = "ReplicateWALEntry"
#: The codec that sources name in their connection header: hbase.replication.rpc.codec.
CODEC_WITH_TAGS = "org.apache.hadoop.hbase.codec.KeyValueCodecWithTags"

_LONG = (1 << 64) - 1
#: Scopes and cluster ids that were decoded before: a table has one list of scopes, and clusters are few.
_scopes: dict[bytes, tuple[bytes, int]] = {}
_uuids: dict[bytes, uuid.UUID] = {}
_CACHED_MAX = 1024
_CACHED_BYTES_MAX = 256

# The tags of a message's fields: number << 3 | wire type.
_ENTRY, _CLUSTER_ID, _NAMESPACE_DIR, _ARCHIVE_DIR = b"\x0a", b"\x12", b"\x1a", b"\x22"
_KEY, _CELL_COUNT = b"\x0a", b"\x18"
_REGION, _TABLE, _SEQUENCE_ID, _WRITE_TIME = b"\x0a", b"\x12", b"\x18", b"\x20"
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
    parts = [_REGION, delimited(region.encode("latin-1")), _TABLE, delimited(table)]
    parts += (_SEQUENCE_ID, varint(sequence_id & _LONG), _WRITE_TIME, varint(write_time_ms & _LONG))
    for family, scope in scopes:
        parts += (_SCOPES, delimited(b"\x0a" + delimited(family) + b"\x10" + varint(scope)))
    for one in cluster_ids:
        parts += (_CLUSTER_IDS, delimited(b"\x08" + varint(one.int & _LONG) + b"\x10" + varint(one.int >> 64)))
    if nonce is not None:
        parts += (_NONCE_GROUP, varint(nonce[0] & _LONG), _NONCE, varint(nonce[1] & _LONG))
    return b"".join(parts)


def decode_replicate(param: bytes, block: bytes) -> list[ShippedEntry]:
    """Return the entries of a request.

    Raise :class:`MissingCells`, with the text of HBase's sink, when the cell block has fewer cells than the entries
    count, and :class:`ProtocolError` for other bytes that are no such request.
    """
    made: list[ShippedEntry] = []
    at, end, block_at = 0, len(param), 0
    while at < end:
        tag, at = read_varint(param, at, end)
        if tag != 0x0A:
            at = skip_field(_REQUEST_MESSAGE, tag, param, at, end)
            continue
        at, stop = _field(_REQUEST_MESSAGE, param, at, end)
        key, count = _decode_entry(param, at, stop)
        cells, block_at = _take_cells(block, block_at, count)
        made.append(ShippedEntry(key, cells))
        at = stop
    if block_at != len(block):
        raise ProtocolError(f"the cell block has {len(block) - block_at} bytes that belong to no log entry")
    return made


def _field(message: Message, data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return where the bytes of a field begin and end whose length stands at ``at``."""
    size, at = read_varint(data, at, end)
    if at + size > end:
        raise ProtocolError(f"{message.name} is cut short: a field ends at byte {at + size} of {end}")
    return at, at + size


def _take_cells(block: bytes, at: int, count: int) -> tuple[tuple[tuple[bytes, Cell], ...], int]:
    """Return the next ``count`` cells of the block with their rows, and where they end."""
    if count and not block:
        raise MissingCells('Cannot invoke "org.apache.hadoop.hbase.CellScanner.advance()" because "cells" is null')
    made: list[tuple[bytes, Cell]] = []
    end = len(block)
    for index in range(count):
        if at >= end:
            raise MissingCells(f"Expected={count}, index={index}")
        row, cells, at = decode_cells(block, at, end, 1)
        made.append((row, cells[0]))
    return tuple(made), at


def _decode_entry(data: bytes, at: int, end: int) -> tuple[WalKey, int]:
    """Return the key of a WALEntry and the number of its cells. ``key_value_bytes`` are ignored, as HBase does."""
    key: WalKey | None = None
    count = 0
    while at < end:
        tag, at = read_varint(data, at, end)
        if tag == 0x0A:
            at, stop = _field(_ENTRY_MESSAGE, data, at, end)
            key, at = _decode_key(data, at, stop), stop
        elif tag == 0x18:
            count, at = read_varint(data, at, end)
        else:
            at = skip_field(_ENTRY_MESSAGE, tag, data, at, end)
    if key is None:
        raise ProtocolError("WALEntry without its field 'key'")
    return key, 0 if count >> 63 else count  # an int32: HBase's loop over a negative count takes no cell


def _decode_key(data: bytes, at: int, end: int) -> WalKey:
    texts: dict[int, bytes] = {}
    numbers: dict[int, int] = {}
    scopes: list[tuple[bytes, int]] = []
    cluster_ids: list[uuid.UUID] = []
    while at < end:
        tag, at = read_varint(data, at, end)
        if tag in (0x18, 0x20, 0x48, 0x50):
            numbers[tag], at = read_varint(data, at, end)
        elif tag in (0x0A, 0x12, 0x32, 0x42):
            at, stop = _field(_KEY_MESSAGE, data, at, end)
            value, at = data[at:stop], stop
            if tag == 0x32:
                scopes.append(_scopes.get(value) or _decode_scope(value))
            elif tag == 0x42:
                cluster_ids.append(_uuids.get(value) or _decode_uuid(value))
            else:
                texts[tag] = value
        else:
            at = skip_field(_KEY_MESSAGE, tag, data, at, end)
    nonce = (numbers.get(0x48, 0), numbers.get(0x50, 0)) if 0x48 in numbers or 0x50 in numbers else None
    try:
        return WalKey(
            texts[0x0A].decode("latin-1"),
            texts[0x12],
            numbers[0x18],
            numbers[0x20],
            tuple(scopes),
            tuple(cluster_ids),
            nonce,
        )
    except KeyError as error:
        raise ProtocolError(f"WALKey without its field number {error.args[0] >> 3}") from error


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
    made = (family, scope)
    _remember(_scopes, data, made)
    return made


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
    made = uuid.UUID(int=halves[0x10] << 64 | halves[0x08])
    _remember(_uuids, data, made)
    return made


def _remember(cache: dict[bytes, T], data: bytes, value: T) -> None:
    if len(data) > _CACHED_BYTES_MAX:
        return
    if len(cache) >= _CACHED_MAX:
        cache.clear()
    cache[data] = value
