"""Converts gets, scans and their results to messages and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from metaclient.errors import Unsupported
from metaclient.model import LATEST_TIMESTAMP, Cell, CellType, Get, Result, Scan
from metaclient.wire.rpc import filters
from metaclient.wire.rpc.cellblock import decode_cells

__all__ = ["columns_message", "get_from", "get_message", "result_from", "result_message", "scan_from", "scan_message"]

#: The attribute of raw scans, which return delete markers (Scan.RAW_ATTR), and a Java true.
_RAW = "_raw_"
_TRUE = b"\xff"
#: Fields that Get and Scan of ``metaclient.model`` do not have.
_GET_ONLY = ("store_limit", "store_offset", "closest_row_before", "cf_time_range")
_SCAN_ONLY = ("store_limit", "store_offset", "cf_time_range")
_MAX_VERSIONS = 0x7FFFFFFF


def columns_message(columns: Sequence[bytes]) -> list[dict[str, Any]]:
    """Return the columns by family, in the order of their first occurrence; a whole family replaces its columns."""
    families: dict[bytes, list[bytes] | None] = {}
    for column in columns:
        family, colon, qualifier = column.partition(b":")
        if not colon:
            families[family] = None
            continue
        wanted = families.setdefault(family, [])
        if wanted is not None and qualifier not in wanted:
            wanted.append(qualifier)
    return [{"family": family, "qualifier": sorted(wanted or ())} for family, wanted in families.items()]


def _columns_from(message: Mapping[str, Any]) -> tuple[bytes, ...]:
    found: list[bytes] = []
    for column in message.get("column", ()):
        qualifiers = column.get("qualifier")
        if qualifiers:
            found += [column["family"] + b":" + qualifier for qualifier in qualifiers]
        else:
            found.append(column["family"])
    return tuple(found)


def _common(query: Get | Scan) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if query.columns:
        made["column"] = columns_message(query.columns)
    if query.filter is not None:
        made["filter"] = filters.from_text(query.filter)
    if query.min_timestamp or query.max_timestamp != LATEST_TIMESTAMP:
        made["time_range"] = {"from": query.min_timestamp, "to": query.max_timestamp}
    if query.max_versions != 1:
        made["max_versions"] = query.max_versions
    return made


def _common_from(message: Mapping[str, Any], only: tuple[str, ...]) -> dict[str, Any]:
    for name in only:
        if message.get(name):
            raise Unsupported(f"the field {name} of a query is not supported")
    time_range = message.get("time_range", {})
    return {
        "columns": _columns_from(message),
        "max_versions": min(message.get("max_versions", 1), _MAX_VERSIONS),
        "min_timestamp": time_range.get("from", 0),
        "max_timestamp": time_range.get("to", LATEST_TIMESTAMP),
        "filter": filters.to_text(message["filter"]) if "filter" in message else None,
    }


def get_message(get: Get) -> dict[str, Any]:
    """
    >>> get_from(get_message(Get(b"r", (b"cf:a", b"d")))) == Get(b"r", (b"cf:a", b"d"))
    True
    """
    made = {"row": get.row, **_common(get)}
    if get.existence_only:
        made["existence_only"] = True
    return made


def get_from(message: Mapping[str, Any]) -> Get:
    """Return the Get of a message; Unsupported for fields that Get does not have."""
    common = _common_from(message, _GET_ONLY)
    return Get(message["row"], existence_only=message.get("existence_only", False), **common)


def scan_message(scan: Scan, *, max_result_bytes: int, read_type: int = 0, mvcc_read_point: int = 0) -> dict[str, Any]:
    """Return the message of a Scan, without ``limit`` and ``caching``, which are fields of the ScanRequest."""
    made = _common(scan)
    if scan.start_row:
        made["start_row"] = scan.start_row
    if scan.stop_row:
        made["stop_row"] = scan.stop_row
    if scan.is_raw:
        made["attribute"] = [{"name": _RAW, "value": _TRUE}]
    if scan.batch is not None:
        made["batch_size"] = scan.batch
    if not scan.cache_blocks:
        made["cache_blocks"] = False
    made["max_result_size"] = max_result_bytes
    if scan.is_reversed:
        made["reversed"] = True
    if mvcc_read_point:
        made["mvcc_read_point"] = mvcc_read_point
    if not scan.include_start:
        made["include_start_row"] = False
    if scan.include_stop:
        made["include_stop_row"] = True
    if read_type:
        made["readType"] = read_type
    return made


def scan_from(message: Mapping[str, Any], *, limit: int = 0, caching: int = 0) -> Scan:
    """Return the Scan of a message; ``limit`` (0 = none) and ``caching`` are limit_of_rows and number_of_rows."""
    raw = any(one["name"] == _RAW and one.get("value") == _TRUE for one in message.get("attribute", ()))
    return Scan(
        message.get("start_row", b""),
        message.get("stop_row", b""),
        include_start=message.get("include_start_row", True),
        include_stop=message.get("include_stop_row", False),
        is_reversed=message.get("reversed", False),
        limit=limit or None,
        caching=caching or message.get("caching", 0) or Scan().caching,
        batch=message.get("batch_size") or None,
        is_raw=raw,
        cache_blocks=message.get("cache_blocks", True),
        **_common_from(message, _SCAN_ONLY),
    )


def result_message(result: Result, *, with_cells: bool) -> dict[str, Any]:
    """Return the message of a result: with its cells, for a client without a codec, or with their number only."""
    made: dict[str, Any] = {}
    if with_cells:
        made["cell"] = [_cell_message(result.row, cell) for cell in result.cells]
    else:
        made["associated_cell_count"] = len(result.cells)
    if result.exists is not None:
        made["exists"] = result.exists
    if result.is_stale:
        made["stale"] = True
    if result.is_partial:
        made["partial"] = True
    return made


def _cell_message(row: bytes, cell: Cell) -> dict[str, Any]:
    family, _, qualifier = cell.column.partition(b":")
    return {
        "row": row,
        "family": family,
        "qualifier": qualifier,
        "timestamp": cell.timestamp,
        "cell_type": int(cell.type),
        "value": cell.value,
    }


def result_from(message: Mapping[str, Any], row: bytes, data: bytes, at: int, end: int) -> tuple[Result, int]:
    """Return a result, whose cells are in the message or in the block ``data[at:end]``, and the offset after them."""
    cells: list[Cell] = []
    for one in message.get("cell", ()):
        row = one.get("row", row)
        column = one.get("family", b"") + b":" + one.get("qualifier", b"")
        kind = CellType(one.get("cell_type", CellType.PUT))
        cells.append(Cell(column, one.get("timestamp", 0), one.get("value", b""), kind))
    count = message.get("associated_cell_count", 0)
    if count > 0:
        row, more, at = decode_cells(data, at, end, count)
        cells += more
    return (
        Result(row, cells, message.get("stale", False), message.get("partial", False), exists=message.get("exists")),
        at,
    )
