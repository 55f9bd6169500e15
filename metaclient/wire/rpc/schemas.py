"""Converts descriptors of tables and families to HBase's schemas and back: settings to text attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from metaclient.model import TTL_FOREVER, FamilyDescriptor, TableDescriptor
from metaclient.table_schema import TableChange
from metaclient.wire.rpc.names import table_from, table_message

__all__ = ["changed_schema", "family_from", "family_message", "table_schema_from", "table_schema_message"]

#: The attributes that HBase writes into every family; only other values are kept.
_FAMILY_DEFAULTS = {
    "BLOCKSIZE": ("65536", "64KB (65536B)", "65536 B (64KB)"),
    "DATA_BLOCK_ENCODING": ("NONE",),
    "CACHE_DATA_ON_WRITE": ("false",),
    "CACHE_INDEX_ON_WRITE": ("false",),
    "CACHE_BLOOMS_ON_WRITE": ("false",),
    "CACHE_DATA_IN_L1": ("false",),
    "EVICT_BLOCKS_ON_CLOSE": ("false",),
    "PREFETCH_BLOCKS_ON_OPEN": ("false",),
    "NEW_VERSION_BEHAVIOR": ("false",),
    "COMPRESS_TAGS": ("true",),
    "INDEX_BLOCK_ENCODING": ("NONE",),
}
#: Attributes that HBase sets on a table by itself.
_TABLE_NOTES = frozenset({"IS_META", "hbase.store.file-tracker.impl", "IS_ROOT"})


def _pairs(attributes: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"first": name.encode(), "second": value.encode()} for name, value in attributes.items()]


def _attributes(pairs: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    return {one["first"].decode(errors="replace"): one["second"].decode(errors="replace") for one in pairs}


def _flag(value: bool) -> str:
    return "true" if value else "false"


#: Field of FamilyDescriptor -> HBase's attribute, and its text.
_SETTINGS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "max_versions": ("VERSIONS", str),
    "min_versions": ("MIN_VERSIONS", str),
    "time_to_live_s": ("TTL", lambda seconds: str(TTL_FOREVER if seconds is None else seconds)),
    "keep_deleted_cells": ("KEEP_DELETED_CELLS", str.upper),
    "compression": ("COMPRESSION", str.upper),
    "bloom_filter_type": ("BLOOMFILTER", str.upper),
    "in_memory": ("IN_MEMORY", _flag),
    "block_cache_enabled": ("BLOCKCACHE", _flag),
    "replication_scope": ("REPLICATION_SCOPE", str),
}


def family_message(family: FamilyDescriptor) -> dict[str, Any]:
    """
    >>> family_from(family_message(FamilyDescriptor(b"cf", max_versions=3))) == FamilyDescriptor(b"cf", max_versions=3)
    True
    """
    settings = _attributes_of({field: getattr(family, field) for field in _SETTINGS})
    return {"name": family.name, "attributes": _pairs({**settings, **dict(family.attributes)})}


def _attributes_of(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return fields of FamilyDescriptor as HBase's attributes."""
    made = {}
    for field, value in settings.items():
        name, as_text = _SETTINGS[field]
        made[name] = as_text(value)
    return made


def family_from(message: Mapping[str, Any]) -> FamilyDescriptor:
    found = _attributes(message.get("attributes", ()))
    found |= {one["name"]: one["value"] for one in message.get("configuration", ())}
    take = found.pop
    ttl = take("TTL", "FOREVER")
    return FamilyDescriptor(
        message["name"],
        max_versions=_number(take("VERSIONS", "1"), 1),
        min_versions=_number(take("MIN_VERSIONS", "0"), 0),
        time_to_live_s=None if not ttl.isdigit() or int(ttl) >= TTL_FOREVER else int(ttl),
        keep_deleted_cells=take("KEEP_DELETED_CELLS", "FALSE").upper(),
        compression=take("COMPRESSION", "NONE").upper(),
        bloom_filter_type=take("BLOOMFILTER", "ROW").upper(),
        in_memory=take("IN_MEMORY", "false").lower() == "true",
        block_cache_enabled=take("BLOCKCACHE", "true").lower() == "true",
        replication_scope=_number(take("REPLICATION_SCOPE", "0"), 0),
        attributes=tuple(
            sorted((name, value) for name, value in found.items() if value not in _FAMILY_DEFAULTS.get(name, ()))
        ),
    )


def _number(text: str, default: int) -> int:
    return int(text) if text.lstrip("-").isdigit() else default


def table_schema_message(descriptor: TableDescriptor) -> dict[str, Any]:
    attributes = dict(descriptor.attributes)
    if descriptor.region_replication != 1:
        attributes["REGION_REPLICATION"] = str(descriptor.region_replication)
    if descriptor.is_read_only:
        attributes["READONLY"] = "true"
    return {
        "table_name": table_message(descriptor.name),
        "attributes": _pairs(attributes),
        "column_families": [family_message(family) for family in descriptor.families],
    }


def table_schema_from(message: Mapping[str, Any]) -> TableDescriptor:
    found = _attributes(message.get("attributes", ()))
    found |= {one["name"]: one["value"] for one in message.get("configuration", ())}
    return TableDescriptor(
        table_from(message["table_name"]),
        tuple(family_from(family) for family in message.get("column_families", ())),
        region_replication=_number(found.pop("REGION_REPLICATION", "1"), 1),
        is_read_only=found.pop("READONLY", "false").lower() == "true",
        attributes=tuple(sorted((name, value) for name, value in found.items() if name not in _TABLE_NOTES)),
    )


def changed_schema(schema: Mapping[str, Any], change: TableChange) -> dict[str, Any]:
    """Return a table schema with the change; every attribute that the change does not name stays, byte for byte."""
    families = schema.get("column_families", ())
    change.check(family["name"] for family in families)
    kept = [_changed_family(family, change) for family in families if family["name"] not in change.dropped]
    known = {family["name"] for family in kept}
    added = [family_message(change.new_family(name)) for name in change.families if name not in known]
    attributes = schema.get("attributes", ())
    if change.region_replication is not None:
        attributes = _with_values(attributes, {"REGION_REPLICATION": str(change.region_replication)})
    return {**schema, "attributes": attributes, "column_families": [*kept, *added]}


def _changed_family(family: Mapping[str, Any], change: TableChange) -> Mapping[str, Any]:
    settings = change.families.get(family["name"])
    if not settings:
        return family
    return {**family, "attributes": _with_values(family.get("attributes", ()), _attributes_of(settings))}


def _with_values(pairs: Iterable[Mapping[str, Any]], values: Mapping[str, str]) -> list[Mapping[str, Any]]:
    new = {name.encode() for name in values}
    return [*(one for one in pairs if one["first"] not in new), *_pairs(values)]
