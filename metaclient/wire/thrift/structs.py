"""Converts values of ``metaclient.model`` to Thrift 2's structs and back; pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from metaclient.backend import MetaRow
from metaclient.errors import BackendFault, Unsupported
from metaclient.model import (
    LATEST_TIMESTAMP,
    TTL_FOREVER,
    Append,
    Cell,
    CellType,
    CompareOp,
    Delete,
    Durability,
    FamilyDescriptor,
    Get,
    Increment,
    Mutation,
    Put,
    Result,
    RowMutations,
    Scan,
    TableDescriptor,
)
from metaclient.table_schema import TableChange
from metaclient.wire.thrift.idl import thrift2

__all__ = [
    "COMPARE",
    "append_of",
    "changed_descriptor",
    "deletes_of",
    "family_from",
    "get_of",
    "increment_of",
    "is_plain",
    "meta_row",
    "put_of",
    "result_of",
    "row_mutations_of",
    "scan_of",
    "table_descriptor_from",
    "table_descriptor_of",
    "table_name_from",
    "table_name_of",
    "widest",
]

T = thrift2()

#: A Check is *stored* OP *given*; HBase compares the given value with the stored one, so the operators are mirrored.
COMPARE: dict[CompareOp, int] = {
    CompareOp.LESS: T.TCompareOp.GREATER,
    CompareOp.LESS_OR_EQUAL: T.TCompareOp.GREATER_OR_EQUAL,
    CompareOp.EQUAL: T.TCompareOp.EQUAL,
    CompareOp.NOT_EQUAL: T.TCompareOp.NOT_EQUAL,
    CompareOp.GREATER_OR_EQUAL: T.TCompareOp.LESS_OR_EQUAL,
    CompareOp.GREATER: T.TCompareOp.LESS,
}
_DELETE_TYPES = {
    CellType.DELETE: T.TDeleteType.DELETE_COLUMN,
    CellType.DELETE_COLUMN: T.TDeleteType.DELETE_COLUMNS,
    CellType.DELETE_FAMILY: T.TDeleteType.DELETE_FAMILY,
    CellType.DELETE_FAMILY_VERSION: T.TDeleteType.DELETE_FAMILY_VERSION,
}
_TYPES = {int(one): one for one in CellType}
_REGION_REPLICATION = b"REGION_REPLICATION"
_READ_ONLY = b"READONLY"
#: The attribute of a mutation with the time to live of its cells (Mutation.OP_ATTRIBUTE_TTL).
_TTL = b"_ttl"
#: The attribute of raw scans, which return delete markers (Scan.RAW_ATTR), and a Java true.
_RAW = {b"_raw_": b"\xff"}


# -- reading -------------------------------------------------------------------------------------------------------


def widest(columns: Sequence[bytes]) -> list[bytes]:
    """Return the columns without those whose whole family is listed: in HBase a later column would narrow the family.

    >>> widest([b"cf", b"cf:a", b"d:b"])
    [b'cf', b'd:b']
    """
    families = {column for column in columns if b":" not in column}
    return [one for one in columns if b":" not in one or one.partition(b":")[0] not in families]


def _columns(columns: Sequence[bytes]) -> list[Any] | None:
    if not columns:
        return None
    made = []
    for column in widest(columns):
        family, colon, qualifier = column.partition(b":")
        made.append(T.TColumn(family=family, qualifier=qualifier if colon else None))
    return made


def _time_range(low: int, high: int) -> Any:
    return None if low == 0 and high == LATEST_TIMESTAMP else T.TTimeRange(minStamp=low, maxStamp=high)


def get_of(get: Get, replica_id: int | None) -> Any:
    """Return the TGet; ``replica_id`` None is the primary. A replica needs TIMELINE and its id."""
    made = T.TGet(get.row)
    if get.columns:
        made.columns = _columns(get.columns)
    if get.max_versions != 1:
        made.maxVersions = get.max_versions
    if get.min_timestamp or get.max_timestamp != LATEST_TIMESTAMP:
        made.timeRange = _time_range(get.min_timestamp, get.max_timestamp)
    if get.filter is not None:
        made.filterString = get.filter
    if replica_id is not None:
        made.consistency = T.TConsistency.TIMELINE
        made.targetReplicaId = replica_id
    return made


def is_plain(get: Get) -> bool:
    """Return True for a get of the newest version of every cell of a row, without other settings."""
    return (
        not get.columns
        and get.max_versions == 1
        and get.filter is None
        and get.min_timestamp == 0
        and get.max_timestamp == LATEST_TIMESTAMP
    )


def meta_row(result: Result) -> MetaRow:
    return MetaRow(result.row, {cell.column: cell.value for cell in result.cells})


def scan_of(scan: Scan, start: bytes, stop: bytes, replica_id: int | None) -> Any:
    """Return the TScan; its ends are Thrift's: start inclusive, stop exclusive, in the direction of the scan."""
    made = T.TScan(startRow=start, stopRow=stop, maxVersions=scan.max_versions, caching=scan.caching)
    made.columns = _columns(scan.columns)
    made.timeRange = _time_range(scan.min_timestamp, scan.max_timestamp)
    made.filterString = scan.filter
    made.batchSize = scan.batch
    made.limit = scan.limit
    if scan.is_reversed:
        made.reversed = True
    if scan.is_raw:
        made.attributes = _RAW
    if not scan.cache_blocks:
        made.cacheBlocks = False
    if replica_id is not None:
        made.consistency = T.TConsistency.TIMELINE
        made.targetReplicaId = replica_id
    return made


def result_of(row: bytes, result: Any) -> Result:
    """Return the Result; ``row`` is the requested row, which a TResult without cells does not have."""
    cells = [
        Cell(one.family + b":" + one.qualifier, one.timestamp, one.value)
        if one.type is None or one.type == CellType.PUT
        else Cell(one.family + b":" + one.qualifier, one.timestamp, one.value, _TYPES.get(one.type, CellType.PUT))
        for one in map(_whole, result.columnValues or ())
    ]
    return Result(result.row or row, cells, bool(result.stale), bool(result.partial))


def _whole(cell: Any) -> Any:
    """Return a TColumnValue that has its required fields: thriftpy2 leaves out a field that has the wrong type."""
    if cell.family is None or cell.qualifier is None or cell.value is None:
        raise BackendFault("the gateway sent a cell without its family, qualifier or value: its answer is corrupt")
    return cell


# -- writing -------------------------------------------------------------------------------------------------------


def _durability(durability: Durability) -> int | None:
    return None if durability is Durability.USE_DEFAULT else int(durability.value)


def _timestamp(timestamp: int) -> int | None:
    return None if timestamp == LATEST_TIMESTAMP else timestamp


def _values(cells: Iterable[Cell]) -> list[Any]:
    value_type = T.TColumnValue
    made = []
    for cell in cells:
        family, _, qualifier = cell.column.partition(b":")
        made.append(value_type(family, qualifier, cell.value, _timestamp(cell.timestamp)))
    return made


def put_of(put: Put) -> Any:
    made = T.TPut(row=put.row, columnValues=_values(put.cells), durability=_durability(put.durability))
    if put.ttl_ms is not None:
        made.attributes = {_TTL: put.ttl_ms.to_bytes(8, "big")}
    return made


def deletes_of(delete: Delete) -> list[Any]:
    """Return a TDelete per kind of marker, because the kind is a field of the struct and not of its columns.

    Markers of one family are in separate structs: in one struct the last would replace the others (Delete.addFamily).
    """
    durability = _durability(delete.durability)
    if not delete.cells:
        return [T.TDelete(row=delete.row, timestamp=_timestamp(delete.timestamp), durability=durability)]
    by_type: dict[tuple[CellType, int], list[Any]] = {}
    markers: Counter[bytes] = Counter()
    for cell in delete.cells:
        if cell.type is CellType.DELETE_FAMILY_VERSION and cell.timestamp == LATEST_TIMESTAMP:
            raise Unsupported("deleting one version of a family needs its timestamp")
        family, colon, qualifier = cell.column.partition(b":")
        column = T.TColumn(family, qualifier if colon else None, _timestamp(cell.timestamp))
        kind = _marker(cell.type, bool(colon))
        by_type.setdefault((kind, markers[family] if kind is CellType.DELETE_FAMILY else 0), []).append(column)
        markers[family] += kind is CellType.DELETE_FAMILY
    return [
        T.TDelete(row=delete.row, columns=columns, deleteType=_DELETE_TYPES[kind], durability=durability)
        for (kind, _), columns in by_type.items()
    ]


def _marker(kind: CellType, is_column: bool) -> CellType:
    """Return the type of a marker; a column without a qualifier is deleted as a family."""
    if is_column or kind in (CellType.DELETE_FAMILY, CellType.DELETE_FAMILY_VERSION):
        return kind
    return CellType.DELETE_FAMILY


def increment_of(increment: Increment) -> Any:
    columns = []
    for column, amount in increment.amounts:
        family, _, qualifier = column.partition(b":")
        columns.append(T.TColumnIncrement(family, qualifier, amount))
    return T.TIncrement(row=increment.row, columns=columns, durability=_durability(increment.durability))


def append_of(append: Append) -> Any:
    cells = [Cell(column, LATEST_TIMESTAMP, value) for column, value in append.values]
    return T.TAppend(row=append.row, columns=_values(cells), durability=_durability(append.durability))


def row_mutations_of(mutation: Mutation) -> Any:
    """Return the TRowMutations of puts and deletes of one row, which are applied atomically."""
    parts = mutation.mutations if isinstance(mutation, RowMutations) else (mutation,)
    made: list[Any] = []
    for part in parts:
        if isinstance(part, Put):
            made.append(T.TMutation(put=put_of(part)))
        elif isinstance(part, Delete):
            made += [T.TMutation(deleteSingle=one) for one in deletes_of(part)]
        else:
            raise Unsupported(f"Thrift 2 has no {type(part).__name__.lower()} inside of a checked or atomic change")
    return T.TRowMutations(row=mutation.row, mutations=made)


# -- tables --------------------------------------------------------------------------------------------------------


def table_name_of(table: bytes) -> Any:
    namespace, colon, qualifier = table.partition(b":")
    return T.TTableName(ns=namespace, qualifier=qualifier) if colon else T.TTableName(ns=b"default", qualifier=table)


def table_name_from(name: Any) -> bytes:
    return name.qualifier if name.ns in (None, b"", b"default") else name.ns + b":" + name.qualifier  # type: ignore[no-any-return]  # thriftpy2 has no types


def table_descriptor_of(descriptor: TableDescriptor) -> Any:
    attributes = {name.encode(): value.encode() for name, value in descriptor.attributes}
    if descriptor.region_replication != 1:
        attributes[_REGION_REPLICATION] = str(descriptor.region_replication).encode()
    if descriptor.is_read_only:
        attributes[_READ_ONLY] = b"true"
    return T.TTableDescriptor(
        tableName=table_name_of(descriptor.name),
        columns=[_family_of(family) for family in descriptor.families],
        attributes=attributes or None,
    )


#: Field of FamilyDescriptor -> field of TColumnFamilyDescriptor, and the function that converts its value.
_SETTINGS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "max_versions": ("maxVersions", int),
    "min_versions": ("minVersions", int),
    "time_to_live_s": ("timeToLive", lambda seconds: TTL_FOREVER if seconds is None else seconds),
    "keep_deleted_cells": ("keepDeletedCells", lambda name: _enum(T.TKeepDeletedCells, name)),
    "compression": ("compressionType", lambda name: _enum(T.TCompressionAlgorithm, name)),
    "bloom_filter_type": ("bloomnFilterType", lambda name: _enum(T.TBloomFilterType, name)),  # Thrift's spelling
    "in_memory": ("inMemory", bool),
    "block_cache_enabled": ("blockCacheEnabled", bool),
    "replication_scope": ("scope", int),
}


def _family_of(family: FamilyDescriptor) -> Any:
    attributes = {name.encode(): value.encode() for name, value in family.attributes} or None
    wire = T.TColumnFamilyDescriptor(name=family.name, attributes=attributes)
    _set_family(wire, {field: getattr(family, field) for field in _SETTINGS})
    return wire


def _set_family(wire: Any, settings: Mapping[str, Any]) -> None:
    for field, value in settings.items():
        name, convert = _SETTINGS[field]
        setattr(wire, name, convert(value))


def changed_descriptor(descriptor: Any, change: TableChange) -> Any:
    """Change a descriptor from a gateway in place and return it; what the change does not name stays."""
    families = descriptor.columns or []
    change.check(family.name for family in families)
    kept = [family for family in families if family.name not in change.dropped]
    for family in kept:
        _set_family(family, change.families.get(family.name, {}))
    known = {family.name for family in kept}
    descriptor.columns = [
        *kept,
        *(_family_of(change.new_family(name)) for name in change.families if name not in known),
    ]
    if change.region_replication is not None:
        attributes = descriptor.attributes or {}
        descriptor.attributes = {**attributes, _REGION_REPLICATION: str(change.region_replication).encode()}
    return descriptor


def _enum(enum: Any, name: str) -> int:
    values: dict[str, int] = enum._NAMES_TO_VALUES
    if name.upper() not in values:
        raise Unsupported(f"Thrift 2 has no {name!r} here; it has {', '.join(values)}")
    return values[name.upper()]


def table_descriptor_from(descriptor: Any) -> TableDescriptor:
    attributes = {name.decode(): value.decode() for name, value in (descriptor.attributes or {}).items()}
    replication = int(attributes.pop("REGION_REPLICATION", "1"))
    is_read_only = attributes.pop("READONLY", "false").lower() == "true"
    return TableDescriptor(
        table_name_from(descriptor.tableName),
        tuple(family_from(family) for family in descriptor.columns or ()),
        replication,
        is_read_only,
        tuple(sorted((name, value) for name, value in attributes.items() if name != "IS_META")),
    )


def family_from(family: Any) -> FamilyDescriptor:
    ttl = family.timeToLive
    return FamilyDescriptor(
        family.name,
        max_versions=family.maxVersions or 1,
        min_versions=family.minVersions or 0,
        time_to_live_s=None if ttl in (None, TTL_FOREVER) or ttl <= 0 else ttl,
        keep_deleted_cells=T.TKeepDeletedCells._VALUES_TO_NAMES.get(family.keepDeletedCells, "FALSE"),
        compression=T.TCompressionAlgorithm._VALUES_TO_NAMES.get(family.compressionType, "NONE"),
        bloom_filter_type=T.TBloomFilterType._VALUES_TO_NAMES.get(family.bloomnFilterType, "ROW"),
        in_memory=bool(family.inMemory),
        block_cache_enabled=family.blockCacheEnabled is not False,
        replication_scope=family.scope or 0,
    )
