"""Decodes the cells of log entries, with their tags, into the rows that an entry changes.

As :mod:`metaclient.wire.rpc.cellblock`, with the row, the family and the qualifier apart, and with tags.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import repeat
from typing import Any, TypeAlias

from metaclient.changes.change import ChangeCell, Tag
from metaclient.model import CellType
from metaclient.protobuf import ProtocolError
from metaclient.wire.rpc.cellblock import skip_cells
from metaclient.wire.rpc.replication import KeyColumns, decode_key_columns

__all__ = ["decode_call_keys", "decode_rows", "decode_tags"]

_HEAD = struct.Struct(">iiiH")
_HEAD_BYTES = _HEAD.size
#: A key without row, family and qualifier.
_KEY_BYTES_MIN = 12
_new = tuple.__new__
_PUT = CellType.PUT
_TYPES = {int(one): one for one in CellType}
#: unpack(data, at) -> row, name, timestamp, type, value; the size of the cell; the size of its tags.
_TaggedShape: TypeAlias = tuple[Callable[[bytes, int], tuple[Any, ...]], int, int]
#: The four lengths of a cell -> its layout: the cells of a table have few layouts.
_shapes: dict[bytes, _TaggedShape] = {}
_SHAPES_MAX = 4096
#: family length, family, qualifier -> (family, qualifier): a table has few names.
_names: dict[bytes, tuple[bytes, bytes]] = {}
_NAMES_MAX = 4096
_NAME_BYTES_MAX = 128

ChangedRows: TypeAlias = list[tuple[bytes, tuple[ChangeCell, ...]]]


def decode_call_keys(
    param: bytes, cells: bytes, decode: Callable[[bytes], KeyColumns] = decode_key_columns
) -> KeyColumns:
    """Decode the keys of a call; ProtocolError if its cells are not exactly as many as the keys count."""
    keys = decode(param)
    if skip_cells(cells, 0, len(cells), sum(keys.counts)) != len(cells):
        raise ProtocolError("the cell block has more cells than its log entries")
    return keys


def decode_rows(data: bytes, at: int, end: int, count: int) -> tuple[ChangedRows, int]:
    """Decode ``count`` cells: return each row with its cells, in the order of the rows' first cells, and the end.

    The cells of a row keep their order. A row has one element, also if its cells are not adjacent.
    """
    shapes, names, new = _shapes.get, _names.get, _new
    rows: dict[bytes, list[ChangeCell]] = {}
    try:
        for _ in repeat(None, count):
            head = data[at : at + _HEAD_BYTES]
            unpack, size, tag_size = shapes(head) or _shape(head)
            row, name, timestamp, kind, value = unpack(data, at)
            at += size
            tags = decode_tags(data, at - tag_size, at) if tag_size else ()
            family, qualifier = names(name) or _name(name)
            cell = new(ChangeCell, (family, qualifier, timestamp, _PUT if kind == 4 else _TYPES[kind], value, tags))
            if count == 1:
                if at > end:
                    raise _torn(at, end)
                return [(row, (cell,))], at
            if row in rows:
                rows[row].append(cell)
            else:
                rows[row] = [cell]
    except struct.error as error:
        raise _torn(at, end) from error
    except KeyError as error:
        raise ProtocolError(f"a cell has the unknown type {error}") from error
    if at > end:
        raise _torn(at, end)
    return [(row, tuple(cells)) for row, cells in rows.items()], at


def _shape(head: bytes) -> _TaggedShape:
    total, key_length, value_length, row_length = _HEAD.unpack(head)
    name_length = key_length - row_length - _KEY_BYTES_MIN + 1
    extra = total - 8 - key_length - value_length
    if name_length < 1 or value_length < 0 or extra < 0:
        raise ProtocolError(
            f"a cell of {total} bytes with a key of {key_length}, a value of {value_length} and a row of {row_length}"
        )
    unpack = struct.Struct(f">{_HEAD_BYTES}x{row_length}s{name_length}sqB{value_length}s").unpack_from
    if len(_shapes) >= _SHAPES_MAX:
        _shapes.clear()
    made = _shapes[head] = (unpack, 4 + total, extra)
    return made


def _name(raw: bytes) -> tuple[bytes, bytes]:
    family_end = 1 + raw[0]
    if family_end > len(raw):
        raise ProtocolError("a cell whose family is longer than its key")
    made = raw[1:family_end], raw[family_end:]
    if len(raw) <= _NAME_BYTES_MAX:
        if len(_names) >= _NAMES_MAX:
            _names.clear()
        _names[raw] = made
    return made


def decode_tags(data: bytes, at: int, end: int) -> tuple[Tag, ...]:
    """Decode the tags of a cell: the length of all of them, then length, type and bytes of each.

    >>> decode_tags(bytes.fromhex("0005 0003 01 6162"), 0, 7)
    (Tag(type=1, value=b'ab'),)
    """
    if end > len(data) or end - at < 2 or int.from_bytes(data[at : at + 2], "big") != end - at - 2:
        raise ProtocolError(f"the tags of a cell do not fill the {end - at} bytes after its value")
    at += 2
    made: list[Tag] = []
    while at < end:
        size = int.from_bytes(data[at : at + 2], "big")
        if size < 1 or at + 2 + size > end:
            raise ProtocolError(f"a tag of {size} bytes ends after the tags of its cell")
        made.append(Tag(data[at + 2], data[at + 3 : at + 2 + size]))
        at += 2 + size
    return tuple(made)


def _torn(at: int, end: int) -> ProtocolError:
    return ProtocolError(f"the cell block is cut short or torn at byte {at} of {end}")
