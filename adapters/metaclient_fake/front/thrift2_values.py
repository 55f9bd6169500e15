"""Converts Thrift 2's structs to the model's values, and results to structs (``metaclient.wire.thrift``: for clients).

As in HBase's ThriftUtilities (2.6): a get's ``timestamp`` overrides its ``timeRange``, timestamps of a get's columns
are ignored, result cells have their type, a result without cells has no row.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from metaclient.errors import Unsupported
from metaclient.keys import ROW_LENGTH_MAX
from metaclient.model import (
    LATEST_TIMESTAMP,
    Append,
    Cell,
    CellType,
    Check,
    CompareOp,
    Delete,
    Durability,
    Get,
    Increment,
    Put,
    Result,
    RowMutations,
    Scan,
)
from metaclient.protobuf import ProtocolError, decode
from metaclient.wire.rpc import filters
from metaclient.wire.rpc.messages import FILTER
from metaclient.wire.thrift.idl import thrift2
from metaclient.wire.thrift.structs import COMPARE
from metaclient_fake.front.service import IllegalArgument
from metaclient_fake.storage.filters import FilterSyntaxError, parse

__all__ = [
    "append_from",
    "check_from",
    "check_row",
    "delete_from",
    "get_from",
    "increment_from",
    "narrowed",
    "parsed_filter",
    "put_from",
    "replica_of",
    "result_to",
    "row_mutations_from",
    "scan_from",
    "time_of",
    "windowed",
]

T = thrift2()
#: The caching of a scan that sets none. HBase's default is as many rows as fit in 2 MB; here the page limit does that.
SCAN_CACHING = 1000
_RAW = b"_raw_"
_TTL = b"_ttl"  # Mutation.OP_ATTRIBUTE_TTL
_FALSE = (b"", b"\x00")  # Bytes.toBoolean
_COMPARE = {wire: ours for ours, wire in COMPARE.items()}
_MARKERS = {
    T.TDeleteType.DELETE_COLUMN: CellType.DELETE,
    T.TDeleteType.DELETE_COLUMNS: CellType.DELETE_COLUMN,
    T.TDeleteType.DELETE_FAMILY: CellType.DELETE_FAMILY,
    T.TDeleteType.DELETE_FAMILY_VERSION: CellType.DELETE_FAMILY_VERSION,
}
_FAMILY_MARKERS = (CellType.DELETE_FAMILY, CellType.DELETE_FAMILY_VERSION)
_DURABILITIES = {one.value: one for one in Durability}
_PUT = int(CellType.PUT)


def check_row(row: bytes) -> bytes:
    """Check a row as Mutation.checkRow of the Java client does, before the request is sent."""
    if not 0 < len(row) <= ROW_LENGTH_MAX:
        raise IllegalArgument(f"Row length {len(row)} is not between 1 and {ROW_LENGTH_MAX}")
    return row


# -- reading -------------------------------------------------------------------------------------------------------


def _columns(columns: Sequence[Any] | None) -> tuple[bytes, ...]:
    if not columns:
        return ()
    return narrowed([one.family if one.qualifier is None else one.family + b":" + one.qualifier for one in columns])


def narrowed(columns: Sequence[bytes] | None) -> tuple[bytes, ...]:
    """Apply Get.addFamily and addColumn in order: a column replaces its family, a family replaces its columns.

    >>> narrowed([b"cf", b"cf:a", b"d:b", b"d"])
    (b'cf:a', b'd')
    """
    by_family: dict[bytes, list[bytes]] = {}
    for one in columns or ():
        family, colon, _ = one.partition(b":")
        known = by_family.setdefault(family, [])
        if not colon or known == [family]:
            known.clear()
        known.append(one)
    return tuple(one for known in by_family.values() for one in known)


def _times(struct: Any) -> tuple[int, int]:
    timestamp = getattr(struct, "timestamp", None)
    if timestamp is not None:
        return timestamp, timestamp + 1
    if struct.timeRange is not None:
        low, high = struct.timeRange.minStamp, struct.timeRange.maxStamp
        if low < 0 or high < low:
            raise IllegalArgument(f"Timestamp cannot be negative, and {high} must not be before {low}")
        return low, high
    return 0, LATEST_TIMESTAMP


def parsed_filter(text: bytes | None) -> bytes | None:
    """Return the filter's text if it is valid: the Java client parses it before the request is sent."""
    if text is None:
        return None
    try:
        parse(text)
    except FilterSyntaxError as error:
        raise IllegalArgument(f"Incorrect Filter String: {error}") from error
    return text


def _filter(struct: Any) -> bytes | None:
    """Return the filter as text; the Java object that HBase's own Thrift client sends has priority."""
    if struct.filterBytes is None:
        return parsed_filter(struct.filterString)
    try:
        return filters.to_text(decode(FILTER, struct.filterBytes))
    except ProtocolError as error:
        raise IllegalArgument(f"filterBytes hold no filter: {error}") from error


def get_from(get: Any) -> Get:
    low, high = _times(get)
    versions = get.maxVersions
    if versions is not None and versions <= 0:
        raise IllegalArgument("maxVersions must be positive")
    return Get(
        check_row(get.row),
        _columns(get.columns),
        1 if versions is None else versions,
        low,
        high,
        _filter(get),
        bool(get.existence_only),
    )


def replica_of(struct: Any) -> tuple[bool, int | None]:
    """Return True for TIMELINE, and the requested replica id or None."""
    target = struct.targetReplicaId
    return struct.consistency == T.TConsistency.TIMELINE, None if target is None or target < 0 else target


def windowed(get: Any, result: Result) -> Result:
    """Apply ``storeLimit`` (at least one) and ``storeOffset`` to the cells of each family."""
    if get.storeLimit is None and get.storeOffset is None:
        return result
    start = get.storeOffset or 0
    stop = None if get.storeLimit is None or get.storeLimit < 0 else start + max(1, get.storeLimit)
    kept: list[Cell] = []
    for _, cells in groupby(result.cells, key=lambda cell: cell.family):
        kept += list(cells)[start:stop]
    return result._replace(cells=kept)


def scan_from(scan: Any) -> Scan:
    if scan.colFamTimeRangeMap:
        raise Unsupported("the fake's gateway has no time ranges by family (colFamTimeRangeMap)")
    low, high = _times(scan)
    versions = scan.maxVersions
    return Scan(
        scan.startRow or b"",
        scan.stopRow or b"",
        is_reversed=bool(scan.reversed),
        columns=_columns(scan.columns),
        max_versions=1 if versions is None else max(1, versions),
        min_timestamp=low,
        max_timestamp=high,
        filter=_filter(scan),
        limit=scan.limit if scan.limit is not None and scan.limit > 0 else None,
        caching=scan.caching if scan.caching is not None and scan.caching > 0 else SCAN_CACHING,
        batch=scan.batchSize if scan.batchSize is not None and scan.batchSize > 0 else None,
        is_raw=(scan.attributes or {}).get(_RAW, b"") not in _FALSE,
    )


def result_to(result: Result) -> Any:
    value_type = T.TColumnValue
    made = []
    for column, timestamp, value, kind in result.cells:
        family, _, qualifier = column.partition(b":")
        made.append(value_type(family, qualifier, value, timestamp, None, _PUT if kind is CellType.PUT else int(kind)))
    return T.TResult(result.row if made else None, made, result.is_stale, result.is_partial)


# -- writing -------------------------------------------------------------------------------------------------------


def _durability(value: int | None) -> Durability:
    return Durability.USE_DEFAULT if value is None else _DURABILITIES.get(value, Durability.USE_DEFAULT)


def _column(family: bytes, qualifier: bytes | None) -> bytes:
    return family + b":" + (qualifier or b"")


def time_of(timestamp: int | None, default: int = LATEST_TIMESTAMP) -> int:
    """Return the time of a cell or a mutation; the gateway's Put, Delete and KeyValue refuse a negative one."""
    if timestamp is None:
        return default
    if timestamp < 0:
        raise IllegalArgument(f"Timestamp cannot be negative. ts={timestamp}")
    return timestamp


def put_from(put: Any) -> Put:
    if not put.columnValues:
        raise IllegalArgument("No columns to insert")
    if _TTL in (put.attributes or {}):
        raise Unsupported("the fake has no TTL of single cells: set one on the family")
    default = time_of(put.timestamp)
    cells = tuple(
        Cell(one.family + b":" + one.qualifier, time_of(one.timestamp, default), one.value) for one in put.columnValues
    )
    return Put(check_row(put.row), cells, _durability(put.durability))


def delete_from(delete: Any) -> Delete:
    """Return the delete that ThriftUtilities.deleteFromThrift makes.

    The delete's own timestamp is for the whole row: if columns are set, even to none, it is ignored. Delete.addFamily
    replaces earlier markers of that family, so that the last timestamp of a family wins.
    """
    durability = _durability(delete.durability)
    if delete.columns is None:
        timestamp = time_of(delete.timestamp)
        return Delete(check_row(delete.row), (), timestamp, durability)
    marker = _MARKERS.get(T.TDeleteType.DELETE_COLUMNS if delete.deleteType is None else delete.deleteType)
    if marker is None:
        raise IllegalArgument(f"DeleteType {delete.deleteType} is unknown")
    cells = [_mark(one, marker) for one in delete.columns]
    if marker is CellType.DELETE_FAMILY:
        cells = list({cell.column: cell for cell in cells}.values())
    return Delete(check_row(delete.row), tuple(cells), LATEST_TIMESTAMP, durability)


def _mark(column: Any, marker: CellType) -> Cell:
    if column.timestamp is None and marker is CellType.DELETE_FAMILY_VERSION:
        raise IllegalArgument("deleting one version of a family needs its timestamp")
    timestamp = time_of(column.timestamp)
    name = column.family if marker in _FAMILY_MARKERS else _column(column.family, column.qualifier)
    return Cell(name, timestamp, b"", marker)


def increment_from(increment: Any) -> Increment:
    amounts = tuple((_column(one.family, one.qualifier), one.amount) for one in increment.columns)
    return Increment(check_row(increment.row), amounts, _durability(increment.durability))


def append_from(append: Any) -> Append:
    values = tuple((_column(one.family, one.qualifier), one.value) for one in append.columns)
    return Append(check_row(append.row), values, _durability(append.durability))


def row_mutations_from(mutations: Any) -> RowMutations:
    made: list[Put | Delete] = []
    for one in mutations.mutations:
        if one.put is not None:
            made.append(put_from(one.put))
        elif one.deleteSingle is not None:
            made.append(delete_from(one.deleteSingle))
        else:
            raise IllegalArgument("a mutation is neither a put nor a delete")
    if any(one.row != mutations.row for one in made):
        raise IllegalArgument("the rows of the mutations differ")
    return RowMutations(check_row(mutations.row), tuple(made))


def check_from(row: bytes, family: bytes, qualifier: bytes | None, value: bytes | None, compare: int | None) -> Check:
    """Return a check; ``compare`` None means EQUAL, ``value`` None means that the column must not exist."""
    op = CompareOp.EQUAL if compare is None else _COMPARE.get(compare)
    if op is None:
        raise IllegalArgument(f"Unknown Compare op {compare}")
    return Check(check_row(row), _column(family, qualifier), value, op)
