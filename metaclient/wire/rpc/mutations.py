"""Converts puts, deletes, increments, appends and checks to messages and back.

Mutations of this client have their cells in the request's cell block. HBase's Java client sends the cells of single
calls in the message. Both are decoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Any
from uuid import UUID

from metaclient.errors import Unsupported
from metaclient.model import (
    LATEST_TIMESTAMP,
    Append,
    Cell,
    CellType,
    Check,
    CompareOp,
    Delete,
    Durability,
    Increment,
    Put,
)
from metaclient.protobuf import ProtocolError
from metaclient.wire.rpc import messages
from metaclient.wire.rpc.cellblock import decode_rows, encode_cells, skip_cells
from metaclient.wire.rpc.filters import COMPARATORS, comparator_message, comparator_value

__all__ = ["MutationError", "condition_from", "condition_message", "mutation_from", "mutation_message"]

#: A Check is *stored* OP *given*; HBase compares the given value with the stored one, so the operators are mirrored.
_COMPARE: dict[CompareOp, int] = {
    CompareOp.LESS: 5,
    CompareOp.LESS_OR_EQUAL: 4,
    CompareOp.EQUAL: 2,
    CompareOp.NOT_EQUAL: 3,
    CompareOp.GREATER_OR_EQUAL: 1,
    CompareOp.GREATER: 0,
}
_COMPARE_BACK = {number: op for op, number in _COMPARE.items()}
_DELETE_TYPES = {
    messages.DELETE_ONE_VERSION: CellType.DELETE,
    messages.DELETE_MULTIPLE_VERSIONS: CellType.DELETE_COLUMN,
    messages.DELETE_FAMILY: CellType.DELETE_FAMILY,
    messages.DELETE_FAMILY_VERSION: CellType.DELETE_FAMILY_VERSION,
}
_DURABILITIES = {int(one.value): one for one in Durability}
_OF_FAMILY = (CellType.DELETE_FAMILY, CellType.DELETE_FAMILY_VERSION)
_AMOUNT_BYTES = 8
#: The attribute of a mutation with the time to live of its cells, in milliseconds.
_TTL = "_ttl"
#: The attribute of a replicated mutation (Mutation.CONSUMED_CLUSTER_IDS): a count, then 16 bytes per cluster id.
_CLUSTER_IDS = "_cs.id"
_COUNT = Struct(">i")
_UUID_BYTES = 16

Simple = Put | Delete | Increment | Append


class MutationError(ProtocolError):
    """A mutation is invalid: a wrong count of cells, an amount that is no number."""


def mutation_message(mutation: Simple) -> tuple[dict[str, Any], bytes]:
    """Return the message of a mutation, and its cells for the cell block.

    >>> message, cells = mutation_message(Put(b"r", (Cell(b"cf:a", 7, b"v"),)))
    >>> mutation_from(message, cells, 0)[0]
    Put(row=b'r', cells=(Cell(column=b'cf:a', timestamp=7, value=b'v', type=<CellType.PUT: 4>),), ...
    """
    made: dict[str, Any] = {"row": mutation.row}
    match mutation:
        case Put(cells=cells):
            kind = messages.MUTATE_PUT
        case Delete():
            kind, cells = messages.MUTATE_DELETE, _markers(mutation)
            made["timestamp"] = mutation.timestamp
        case Increment(amounts=amounts):
            kind = messages.MUTATE_INCREMENT
            cells = tuple(Cell(column, LATEST_TIMESTAMP, _amount(amount)) for column, amount in amounts)
        case Append(values=values):
            kind = messages.MUTATE_APPEND
            cells = tuple(Cell(column, LATEST_TIMESTAMP, value) for column, value in values)
    made["mutate_type"] = kind
    attributes = _attributes(mutation)
    if attributes:
        made["attribute"] = attributes
    if mutation.durability is not Durability.USE_DEFAULT:
        made["durability"] = mutation.durability.value
    made["associated_cell_count"] = len(cells)
    if isinstance(mutation, Increment | Append) and mutation.nonce is not None:
        made["nonce"] = mutation.nonce
    return made, encode_cells(mutation.row, cells)


def _attributes(mutation: Simple) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    if isinstance(mutation, Put) and mutation.ttl_ms is not None:
        made.append({"name": _TTL, "value": mutation.ttl_ms.to_bytes(_AMOUNT_BYTES, "big")})
    if isinstance(mutation, Put | Delete) and mutation.cluster_ids:
        ids = b"".join([one.bytes for one in mutation.cluster_ids])
        made.append({"name": _CLUSTER_IDS, "value": _COUNT.pack(len(mutation.cluster_ids)) + ids})
    return made


def _amount(amount: int) -> bytes:
    try:
        return amount.to_bytes(_AMOUNT_BYTES, "big", signed=True)
    except OverflowError as error:
        raise Unsupported(f"{amount} does not fit into a counter of 64 bits") from error


def _markers(delete: Delete) -> tuple[Cell, ...]:
    """Return the delete markers; a column without a qualifier is deleted as a family."""
    made = []
    for cell in delete.cells:
        kind = cell.type
        if kind is CellType.DELETE_FAMILY_VERSION and cell.timestamp == LATEST_TIMESTAMP:
            raise Unsupported("deleting one version of a family needs its timestamp")
        if b":" not in cell.column and kind not in _OF_FAMILY:
            kind = CellType.DELETE_FAMILY
        made.append(Cell(cell.column, cell.timestamp, b"", kind))
    return tuple(made)


def mutation_from(message: Mapping[str, Any], block: bytes, at: int) -> tuple[Simple, int]:
    """Return a mutation, whose cells are in the message or in the block from ``at`` on, and the offset after them."""
    row: bytes = message.get("row", b"")
    kind = message.get("mutate_type", messages.MUTATE_APPEND)
    cells = list(_cells_of_message(message, kind))
    count = message.get("associated_cell_count", 0)
    if count > 0:
        end = skip_cells(block, at, len(block), count)
        for cell_row, cell in decode_rows(block, at, end):
            row = row or cell_row
            if cell_row != row:
                raise MutationError("a cell of another row than its mutation's")
            cells.append(cell)
        at = end
    return _made(kind, row, cells, message), at


def _made(kind: int, row: bytes, cells: list[Cell], message: Mapping[str, Any]) -> Simple:
    durability = _DURABILITIES.get(message.get("durability", 0))
    if durability is None:
        raise MutationError(f"a mutation of the unknown durability {message['durability']}")
    match kind:
        case messages.MUTATE_PUT:
            return Put(row, tuple(cells), durability, _ttl_from(message), _cluster_ids_from(message))
        case messages.MUTATE_DELETE:
            markers = tuple(cell._replace(column=cell.family) if cell.type in _OF_FAMILY else cell for cell in cells)
            time = _time_from(message, LATEST_TIMESTAMP)
            return Delete(row, markers, time, durability, _cluster_ids_from(message))
        case messages.MUTATE_INCREMENT:
            amounts = tuple((cell.column, _amount_from(cell.value)) for cell in cells)
            return Increment(row, amounts, durability, _nonce_from(message))
        case messages.MUTATE_APPEND:
            values = tuple((cell.column, cell.value) for cell in cells)
            return Append(row, values, durability, _nonce_from(message))
    raise MutationError(f"a mutation of the unknown type {kind}")


def _nonce_from(message: Mapping[str, Any]) -> int | None:
    """Return the nonce; 0 stands for none (HConstants.NO_NONCE)."""
    return message.get("nonce") or None


def _attribute_from(message: Mapping[str, Any], name: str) -> bytes | None:
    return next((one.get("value", b"") for one in message.get("attribute", ()) if one["name"] == name), None)


def _ttl_from(message: Mapping[str, Any]) -> int | None:
    value = _attribute_from(message, _TTL)
    return None if value is None else int.from_bytes(value, "big")


def _cluster_ids_from(message: Mapping[str, Any]) -> tuple[UUID, ...]:
    value = _attribute_from(message, _CLUSTER_IDS)
    if value is None:
        return ()
    count = _COUNT.unpack_from(value)[0] if len(value) >= _COUNT.size else -1
    if count < 0 or len(value) != _COUNT.size + count * _UUID_BYTES:
        raise MutationError(f"the attribute {_CLUSTER_IDS} has {len(value)} bytes, which do not fit its count, {count}")
    starts = range(_COUNT.size, len(value), _UUID_BYTES)
    return tuple(UUID(bytes=value[start : start + _UUID_BYTES]) for start in starts)


def _amount_from(value: bytes) -> int:
    if len(value) != _AMOUNT_BYTES:
        raise MutationError(f"an amount of {len(value)} bytes: a counter has {_AMOUNT_BYTES}")
    return int.from_bytes(value, "big", signed=True)


def _cells_of_message(message: Mapping[str, Any], kind: int) -> list[Cell]:
    found: list[Cell] = []
    latest = _time_from(message, LATEST_TIMESTAMP)
    for column in message.get("column_value", ()):
        for one in column.get("qualifier_value", ()):
            name = column["family"] + b":" + one.get("qualifier", b"")
            cell_type = CellType.PUT
            if kind == messages.MUTATE_DELETE:
                cell_type = _delete_type(one.get("delete_type", messages.DELETE_ONE_VERSION))
            found.append(Cell(name, _time_from(one, latest), one.get("value", b""), cell_type))
    return found


def _delete_type(number: int) -> CellType:
    if number not in _DELETE_TYPES:
        raise MutationError(f"a delete of the unknown type {number}")
    return _DELETE_TYPES[number]


def _time_from(message: Mapping[str, Any], default: int) -> int:
    """Return the timestamp as Java reads it: an unsigned number of 64 bits becomes a long, so 2^64 - 1 is -1."""
    time: int = message.get("timestamp", default)
    return time - (1 << 64) if time >> 63 else time


def condition_message(check: Check) -> dict[str, Any]:
    """Return the Condition of a check on one column."""
    family, _, qualifier = check.column.partition(b":")
    if check.value is None and check.op not in (CompareOp.EQUAL, CompareOp.NOT_EQUAL):
        raise Unsupported("a check without a value can only be for absence (EQUAL) or presence (NOT_EQUAL)")
    comparator = comparator_message(b"null" if check.value is None else b"binary", check.value or b"")
    return {
        "row": check.row,
        "family": family,
        "qualifier": qualifier,
        "compare_type": _COMPARE[check.op],
        "comparator": comparator,
    }


def condition_from(message: Mapping[str, Any]) -> Check:
    """Return the Check of a Condition; Unsupported if it is a filter, or compares with other values than bytes."""
    if "filter" in message or "comparator" not in message:
        raise Unsupported("a condition that is a filter")
    time_range = message.get("time_range", {})  # Java always sends one, usually unbounded
    if time_range.get("from", 0) or time_range.get("to", LATEST_TIMESTAMP) != LATEST_TIMESTAMP:
        raise Unsupported("a condition with a time range")
    name = message["comparator"]["name"]
    if name not in (COMPARATORS[b"binary"], COMPARATORS[b"null"]):
        raise Unsupported(f"a condition with {name}")
    op = _COMPARE_BACK.get(message.get("compare_type", 0))
    if op is None:
        raise Unsupported(f"a condition with the comparison {message.get('compare_type')}")
    column = message.get("family", b"") + b":" + message.get("qualifier", b"")
    return Check(message["row"], column, comparator_value(message["comparator"]), op)
