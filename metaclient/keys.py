r"""Decides which range contains a row, how regions are named, and how hbase:meta is sorted and searched.

Ranges are half-open ``[start, end)`` and ``b""`` is "unbounded" on either side; no other module compares ends.

A region's name is ``table,start,id[_REPL].md5.``: the id in decimal, the replica (only if > 0) in four upper-case hex
digits, the MD5 over all bytes before the dot. hbase:meta keeps the old form, without the suffix. The start key may
contain commas, so a name is split at its first and at its last comma.

hbase:meta is sorted by (table, start key, rest), not by plain bytes: ``t,a,1`` comes before ``t,a\x00,1``. A lookup is
a scan backwards from a key that is greater than every region name with that start key and less than the next.

Mirrors RegionInfo, TableName, MetaCellComparator, JenkinsHash and Bytes.toStringBinary of HBase 2.6 and 3.0.

DIVERGENCES
- Search keys are cut to the 32767 bytes that HBase accepts as a row; the Java client sends them and fails.
- Letters outside of ASCII: any combining mark is allowed in a table's name, Java has a list; the server decides.
- A region's name with one comma, an id that is not a number or an incomplete suffix is an error here, but not in Java.
"""

from __future__ import annotations

import re
import unicodedata
from binascii import hexlify
from bisect import bisect_left
from functools import lru_cache
from hashlib import md5
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import SupportsLenAndGetItem

__all__ = [
    "REPLICA_ID_MAX",
    "ROW_LENGTH_MAX",
    "column_name",
    "column_sort_key",
    "contains",
    "contains_before",
    "count_before_end",
    "earlier_end",
    "encoded_region_name",
    "ends_before_or_at",
    "meta_prefix_range",
    "meta_region_name",
    "meta_search_key",
    "meta_search_key_before",
    "meta_sort_key",
    "meta_table_start",
    "meta_table_stop",
    "next_row",
    "overlaps",
    "parse_region_name",
    "prefix_stop",
    "printable",
    "region_name",
    "row_key",
    "sorts_before",
    "table_name",
]

#: HConstants.MAX_ROW_LENGTH: a row's length is a signed 16-bit number on the wire.
ROW_LENGTH_MAX = 32767
#: MutableRegionInfo.MAX_REPLICA_ID: four hex digits.
REPLICA_ID_MAX = 0xFFFF
#: A family's length is a signed byte on the wire (KeyValue).
_FAMILY_LENGTH_MAX = 127
#: Region names are rows of hbase:meta: two commas, up to 20 bytes of id, 5 of replica and 34 of suffix must fit, too.
_TABLE_LENGTH_MAX = ROW_LENGTH_MAX - 61

_META_TABLE = b"hbase:meta"
_META_REGION_ID = 1
_DEFAULT_NAMESPACE = b"default:"
_SUFFIX_LENGTH = 34  # a dot, 32 hex digits, a dot
_ID_FIRST = b"00000000000000"  # HConstants.ZEROES
_ID_LAST = b"99999999999999"  # HConstants.NINES: greater than ids, which are times in ms, until the year 5138

_SUFFIX = re.compile(rb"\.[0-9a-f]{32}\.")
_ID = re.compile(rb"(-?[0-9]{1,19})(?:_([0-9A-F]{4}))?")
_TABLE = re.compile(rb"(?:[A-Za-z0-9_]+:)?[A-Za-z0-9_][A-Za-z0-9_.-]*")
_FAMILY = re.compile(rb"(?!\.|recovered\.edits\Z)[^\x00-\x1f\x7f:/\\]{1,127}", re.DOTALL)
_PRINTABLE = tuple(chr(b) if 32 <= b < 127 and b != 92 else f"\\x{b:02X}" for b in range(256))


# ---- ranges


def contains(start: bytes, end: bytes, row: bytes) -> bool:
    """Return True if ``row`` is in ``[start, end)``.

    >>> contains(b"b", b"d", b"b"), contains(b"b", b"d", b"d"), contains(b"b", b"", b"zz")
    (True, False, True)
    """
    return start <= row and (row < end or not end)


def contains_before(start: bytes, end: bytes, row: bytes) -> bool:
    """Return True if the keys just before ``row`` are in ``[start, end)``; ``b""`` is the end of the table.

    >>> contains_before(b"b", b"d", b"d"), contains_before(b"b", b"d", b"b"), contains_before(b"b", b"", b"")
    (True, False, True)
    """
    return not end if not row else start < row and (row <= end or not end)


def overlaps(start_a: bytes, end_a: bytes, start_b: bytes, end_b: bytes) -> bool:
    """Return True if two ranges, neither of them empty, share a row.

    >>> overlaps(b"", b"g", b"g", b""), overlaps(b"", b"h", b"g", b"")
    (False, True)
    """
    return (not end_b or start_a < end_b) and (not end_a or start_b < end_a)


def ends_before_or_at(end: bytes, row_or_start: bytes) -> bool:
    """Return True if a range with this end has no row at or after ``row_or_start``.

    >>> ends_before_or_at(b"g", b"g"), ends_before_or_at(b"g", b"f"), ends_before_or_at(b"", b"g")
    (True, False, False)
    """
    return end != b"" and end <= row_or_start


def earlier_end(end_a: bytes, end_b: bytes) -> bytes:
    """Return the end of the intersection of two ranges.

    >>> earlier_end(b"g", b""), earlier_end(b"g", b"f"), earlier_end(b"", b"")
    (b'g', b'f', b'')
    """
    return min(end_a, end_b) if end_a and end_b else end_a or end_b


def count_before_end(rows: SupportsLenAndGetItem[bytes], end: bytes, first: int = 0) -> int:
    """Return the number of rows before ``end``; the rows are sorted as bytes, and the first ``first`` are before it.

    >>> count_before_end([b"a", b"b", b"c"], b"c"), count_before_end([b"a", b"b", b"c"], b"")
    (2, 3)
    """
    return bisect_left(rows, end, first) if end else len(rows)


def sorts_before(table: bytes, row: bytes, other: bytes) -> bool:
    r"""Return True if ``row`` sorts before ``other``: as bytes, and in hbase:meta by the order of hbase:meta.

    >>> sorts_before(b"t", b"t,a,1", b"t,a\0,1"), sorts_before(b"hbase:meta", b"t,a,1", b"t,a\0,1")
    (False, True)
    """
    if table == _META_TABLE:
        return meta_sort_key(row) < meta_sort_key(other)
    return row < other


def next_row(row: bytes, table: bytes = b"") -> bytes:
    r"""Return the smallest row after ``row``; in hbase:meta, the regions of a table follow the row of its state.

    >>> next_row(b"a"), next_row(b"a", b"hbase:meta")
    (b'a\x00', b'a,,')
    """
    if table == _META_TABLE and b"," not in row:
        return meta_table_start(row)
    return row + b"\0"


def prefix_stop(prefix: bytes) -> bytes:
    r"""Return the exclusive stop of a scan over all rows with this prefix; ``b""`` is the end of the table.

    >>> prefix_stop(b"ab"), prefix_stop(b"a\xff\xff"), prefix_stop(b"\xff")
    (b'ac', b'b', b'')
    """
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes((stem[-1] + 1,)) if stem else b""


def meta_prefix_range(prefix: bytes) -> tuple[bytes, bytes]:
    r"""Return start and exclusive stop of a scan of hbase:meta over all rows with this prefix.

    hbase:meta is sorted by table, start key and region id, not by bytes. A row key without a second comma sorts as if
    the whole key were the id: behind the regions with this start key. So the bounds ``t,a`` and ``t,b`` would leave out
    the region that starts at ``a`` and include the one that starts at ``b``.

    >>> meta_prefix_range(b"t,a"), meta_prefix_range(b"t,"), meta_prefix_range(b"t")
    ((b't,a,', b't,b,'), (b't,,', b't ,,'), (b't', b'u'))

    Raises ValueError for a prefix with two commas. Its rows are not adjacent: ``t,a,1`` is the beginning of the region
    ids 1... of the start key ``a``, and of the start keys ``a,1...``.
    """
    table, comma, start_key = prefix.partition(b",")
    if not comma:
        return prefix, prefix_stop(prefix)
    if b"," in start_key:
        raise ValueError(
            f"'row_prefix' {printable(prefix)} has two commas: its rows are not adjacent in hbase:meta, "
            "which is sorted by table, start key and region id; use 'row_start' and 'row_stop'"
        )
    after = prefix_stop(start_key)
    return prefix + b",", b"%b,%b," % (table, after) if after else meta_table_stop(table)


# ---- names of regions


def region_name(table: bytes, start_key: bytes, region_id: int, replica_id: int = 0) -> bytes:
    """Return the full name of a region, as HBase computes it (costs an MD5).

    >>> region_name(b"t1", b"row-050", 1600000000000, 1)
    b't1,row-050,1600000000000_0001.0fe8f14a38d31117b05fa243a2ae6b67.'
    >>> region_name(b"hbase:meta", b"", 1)
    b'hbase:meta,,1'
    """
    if replica_id == 0:
        name = b"%b,%b,%d" % (table, start_key, region_id)
    elif 0 < replica_id <= REPLICA_ID_MAX:
        name = b"%b,%b,%d_%04X" % (table, start_key, region_id, replica_id)
    else:
        raise ValueError(f"a replica id is 0 to {REPLICA_ID_MAX}, got {replica_id}")
    if table == _META_TABLE:
        return name
    # The hash is not used for security: FIPS builds refuse MD5 without the flag.
    return b"%b.%b." % (name, hexlify(md5(name, usedforsecurity=False).digest()))


def meta_region_name(replica_id: int = 0) -> bytes:
    """Return the name of the only region of hbase:meta.

    >>> meta_region_name(), meta_region_name(10)
    (b'hbase:meta,,1', b'hbase:meta,,1_000A')
    """
    return region_name(_META_TABLE, b"", _META_REGION_ID, replica_id)


def encoded_region_name(name: bytes) -> str:
    """Return the short name of a region: the MD5 at the end of its name, or a hash of an old-form name (hbase:meta).

    >>> encoded_region_name(b"t1,row-050,1600000000000.0f66090624927db18e5c2d8176c836d0.")
    '0f66090624927db18e5c2d8176c836d0'
    >>> encoded_region_name(b"hbase:meta,,1_0001")
    '534574363'
    """
    stem = _without_suffix(name)
    if stem == name:
        return str(_absolute32(_lookup3(name)))
    return name[len(stem) + 1 : -1].decode("ascii")


def parse_region_name(name: bytes) -> tuple[bytes, bytes, int, int]:
    """Return table, start key, region id and replica id of a name with or without ``.md5.`` (which is not recomputed).

    >>> parse_region_name(b"t1,a,b,1600000000000_000A.a6a29e06a1503a54504629fb53a68079.")
    (b't1', b'a,b', 1600000000000, 10)

    Raises ValueError, which names the fault.
    """
    stem = _without_suffix(name)
    first, last = stem.find(b","), stem.rfind(b",")
    if first == last:
        raise ValueError(
            f"region name '{printable(name)}' has {'no comma' if first < 0 else 'only one comma'}, not two"
        )
    if first == 0:
        raise ValueError(f"region name '{printable(name)}' has no table before its first comma")
    match = _ID.fullmatch(stem, last + 1)
    if match is None:
        raise ValueError(
            f"region name '{printable(name)}' ends with '{printable(stem[last + 1 :])}', not with id[_replica]"
        )
    return stem[:first], stem[first + 1 : last], int(match[1]), int(match[2] or b"0", 16)


def _without_suffix(name: bytes) -> bytes:
    if not name.endswith(b"."):
        return name
    if not _SUFFIX.fullmatch(name, max(0, len(name) - _SUFFIX_LENGTH)):
        raise ValueError(f"region name '{printable(name)}' ends with a dot, but not with .md5.")
    return name[:-_SUFFIX_LENGTH]


# ---- hbase:meta: order and search keys


def meta_sort_key(row: bytes) -> tuple[bytes, bool, bytes, bytes]:
    r"""Return a key that sorts rows of hbase:meta as HBase does; accepts any bytes.

    >>> sorted([b"t,a\0,1", b"t,a,1", b"t,,1", b"t"], key=meta_sort_key)
    [b't', b't,,1', b't,a,1', b't,a\x00,1']
    """
    first = row.find(b",")
    if first < 0:
        return row, False, b"", b""
    last = row.rfind(b",")
    if first == last:
        # Without a second comma MetaCellComparator uses the whole row as the id. The same is done here.
        return row[:first], True, row[first + 1 :], row
    return row[:first], True, row[first + 1 : last], row[last + 1 :]


def meta_search_key(table: bytes, row: bytes) -> bytes:
    """Return the (inclusive) start of a reversed scan of hbase:meta that finds the region of ``row``.

    The key is cut to the longest row that HBase accepts. The result is still exact: a longer start key would not fit
    into a region's name.

    >>> meta_search_key(b"t1", b"row-051")
    b't1,row-051,99999999999999'
    """
    return b"%b,%b,%b" % (table, _cut(table, row), _ID_LAST)


def meta_search_key_before(table: bytes, row: bytes) -> bytes:
    r"""Return the start of a reversed scan of hbase:meta that finds the last region with rows before ``row``.

    ``b""`` is the end of the table and gives the last region. Region ids are times. A region with the id 0 that starts
    at ``row`` would sort before this key and would be found instead.

    >>> meta_search_key_before(b"t1", b"row-050"), meta_search_key_before(b"t1", b"")
    (b't1,row-050,00000000000000', b't1\x00')
    """
    if not row:
        return table + b"\0"
    return b"%b,%b,%b" % (table, _cut(table, row), _ID_FIRST)


def meta_table_start(table: bytes) -> bytes:
    """Return a key that sorts before every region of the table, and after its ``table:state`` row.

    >>> meta_table_start(b"t1")
    b't1,,'
    """
    return table + b",,"


def meta_table_stop(table: bytes) -> bytes:
    """Return a key between the last region of the table and the next table (a space sorts before all name characters).

    >>> meta_table_stop(b"t1")
    b't1 ,,'
    """
    return table + b" ,,"


def _cut(table: bytes, row: bytes) -> bytes:
    room = ROW_LENGTH_MAX - len(table) - 2 - len(_ID_LAST)
    assert room > 0, f"a table name of {len(table)} bytes has passed table_name()"
    return row[:room]


# ---- names and keys from users


def table_name(value: str | bytes) -> bytes:
    """Return a table's name as HBase writes it, without ``default:``.

    >>> table_name("default:t1"), table_name(b"ns1:orders")
    (b't1', b'ns1:orders')

    Raises TypeError for anything else than text or bytes, and ValueError for names that HBase's TableName refuses.
    """
    name = as_bytes(value, "table")
    if not _TABLE.fullmatch(name) or name.endswith(b"zookeeper") or name.startswith(b"zookeeper:"):
        _check_table(name)
    if len(name) > _TABLE_LENGTH_MAX:
        raise ValueError(f"table name '{printable(name)}' has {len(name)} bytes, the limit is {_TABLE_LENGTH_MAX}")
    return name.removeprefix(_DEFAULT_NAMESPACE)


def row_key(value: str | bytes, argument: str = "row") -> bytes:
    """Return a row key as bytes: text becomes UTF-8. ``argument`` is its name in error messages.

    >>> row_key("row-1")
    b'row-1'

    Raises TypeError for anything else than text or bytes, ValueError when empty or too long for HBase.
    """
    row = as_bytes(value, argument)
    if not row:
        raise ValueError(f"{argument} must not be empty: HBase has no such row")
    if len(row) > ROW_LENGTH_MAX:
        raise ValueError(f"{argument} '{printable(row)}' has {len(row)} bytes, the limit is {ROW_LENGTH_MAX}")
    return row


def column_name(value: str | bytes, argument: str = "column", *, family_only_ok: bool) -> bytes:
    """Return a column ``family:qualifier``, or (where ``family_only_ok``) a whole family without the colon, as bytes.

    >>> column_name("cf:a:b", family_only_ok=False), column_name(b"cf", family_only_ok=True)
    (b'cf:a:b', b'cf')

    ``cf:`` is the column with the empty qualifier. Raises TypeError or ValueError as :func:`row_key` does.
    """
    column = as_bytes(value, argument)
    colon = column.find(b":")
    if colon < 0 and not family_only_ok:
        raise ValueError(
            f"{argument} '{printable(column)}' has no qualifier: write 'family:name', or 'family:' for the empty one"
        )
    family = column if colon < 0 else column[:colon]
    if not _is_family(family):
        raise ValueError(f"{argument} '{printable(column)}': {_family_fault(family)}")
    return column


def column_sort_key(column: bytes) -> tuple[bytes, bytes, bytes]:
    """Return a key that sorts columns as HBase does: by the bytes of the family, then by those of the qualifier.

    As one string ``cf1:z`` would come before ``cf:a``, because ``1`` is less than the colon.

    >>> sorted([b"cf1:z", b"cf:b", b"cf:a", b"cf"], key=column_sort_key)
    [b'cf', b'cf:a', b'cf:b', b'cf1:z']
    """
    return column.partition(b":")


def printable(data: bytes, limit: int = 64) -> str:
    r"""Return bytes as readable text, as Bytes.toStringBinary does; text of more than ``limit`` bytes ends with "…".

    >>> print(printable(b"row\x00\xffz\\"), printable(b"abcdef", 3))
    row\x00\xFFz\x5C abc…
    """
    if len(data) > limit:
        return "".join(_PRINTABLE[byte] for byte in data[:limit]) + "…"
    return "".join(_PRINTABLE[byte] for byte in data)


def as_bytes(value: str | bytes, argument: str) -> bytes:
    """Return text as UTF-8, and bytes as they are; TypeError for anything else, ValueError for a lone surrogate."""
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise TypeError(f"{argument!r} must be bytes or text, got {type(value).__name__}")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{argument} {value[:64]!r} cannot be written as UTF-8: {error.reason}") from error


def _check_table(name: bytes) -> None:
    """Check a name that is not plain ASCII for :func:`table_name`; raise ValueError with the reason for a refusal."""
    shown = f"table name '{printable(name)}'"
    if not name:
        raise ValueError("a table name must not be empty")
    try:
        text = name.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{shown} is not UTF-8 at byte {error.start}") from error
    namespace, colon, qualifier = text.rpartition(":")
    if colon and not namespace:
        raise ValueError(f"{shown} has an empty namespace")
    if not qualifier:
        raise ValueError(f"{shown} has nothing after its namespace")
    if "zookeeper" in (namespace, qualifier):
        raise ValueError(f"{shown}: HBase allows no table or namespace called zookeeper")
    if qualifier[0] in ".-":
        raise ValueError(f"{shown} must not start with {qualifier[0]!r}")
    wrong = next((c for c in namespace if not _is_word(c)), None)
    if wrong is not None:
        raise ValueError(f"{shown} has {wrong!r} in its namespace: letters, digits and '_' are allowed")
    wrong = next((c for c in qualifier if not _is_word(c) and c not in ".-"), None)
    if wrong is not None:
        raise ValueError(f"{shown} has {wrong!r}: letters, digits, '_', '-' and '.' are allowed")


def _is_word(character: str) -> bool:
    # TableName checks UTF-16 units, so it refuses every letter beyond the basic multilingual plane.
    if character > "\uffff":
        return False
    category = unicodedata.category(character)
    return character == "_" or category[0] == "L" or category in ("Nd", "Nl", "Mn", "Mc")


@lru_cache(maxsize=1024)
def _is_family(name: bytes) -> bool:
    """Return True for a valid family name; cached, because it is checked per cell, and a program has few families."""
    return _FAMILY.fullmatch(name) is not None


def _family_fault(family: bytes) -> str:
    if not family:
        return "the family before the colon is missing"
    if len(family) > _FAMILY_LENGTH_MAX:
        return f"the family has {len(family)} bytes, the limit is {_FAMILY_LENGTH_MAX}"
    if family.startswith(b"."):
        return "a family must not start with a period"
    if family == b"recovered.edits":
        return "HBase keeps 'recovered.edits' for itself"
    return "a family must not hold control characters, '/' or '\\'"


# ---- lookup3


def _lookup3(data: bytes) -> int:
    """Return Bob Jenkins' hashlittle() with seed 0, an unsigned 32-bit number."""
    a = b = c = (0xDEADBEEF + len(data)) & 0xFFFFFFFF
    if not data:
        return c
    at = 0
    while len(data) - at > 12:
        a, b, c = _mixed(*_added(a, b, c, data[at : at + 12]))
        at += 12
    a, b, c = _added(a, b, c, data[at:])
    c = ((c ^ b) - _rotated(b, 14)) & 0xFFFFFFFF
    a = ((a ^ c) - _rotated(c, 11)) & 0xFFFFFFFF
    b = ((b ^ a) - _rotated(a, 25)) & 0xFFFFFFFF
    c = ((c ^ b) - _rotated(b, 16)) & 0xFFFFFFFF
    a = ((a ^ c) - _rotated(c, 4)) & 0xFFFFFFFF
    b = ((b ^ a) - _rotated(a, 14)) & 0xFFFFFFFF
    return ((c ^ b) - _rotated(b, 24)) & 0xFFFFFFFF


def _added(a: int, b: int, c: int, block: bytes) -> tuple[int, int, int]:
    return (
        (a + int.from_bytes(block[0:4], "little")) & 0xFFFFFFFF,
        (b + int.from_bytes(block[4:8], "little")) & 0xFFFFFFFF,
        (c + int.from_bytes(block[8:12], "little")) & 0xFFFFFFFF,
    )


def _mixed(a: int, b: int, c: int) -> tuple[int, int, int]:
    for bits_a, bits_b, bits_c in ((4, 6, 8), (16, 19, 4)):
        a, c = ((a - c) & 0xFFFFFFFF) ^ _rotated(c, bits_a), (c + b) & 0xFFFFFFFF
        b, a = ((b - a) & 0xFFFFFFFF) ^ _rotated(a, bits_b), (a + c) & 0xFFFFFFFF
        c, b = ((c - b) & 0xFFFFFFFF) ^ _rotated(b, bits_c), (b + a) & 0xFFFFFFFF
    return a, b, c


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & 0xFFFFFFFF


def _absolute32(value: int) -> int:
    """Return Java's Math.abs of the same 32 bits; the smallest number stays negative, as in Java."""
    signed = value - 0x1_0000_0000 if value & 0x8000_0000 else value
    return signed if signed == -0x8000_0000 else abs(signed)
