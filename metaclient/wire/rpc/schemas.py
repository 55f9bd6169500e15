"""Converts descriptors of tables and families to HBase's schemas and back: settings to text attributes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from metaclient.model import TTL_FOREVER, FamilyDescriptor, TableDescriptor
from metaclient.wire.rpc.names import table_from, table_message

__all__ = ["family_from", "family_message", "table_schema_from", "table_schema_message"]

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


def family_message(family: FamilyDescriptor) -> dict[str, Any]:
    """
    >>> family_from(family_message(FamilyDescriptor(b"cf", max_versions=3))) == FamilyDescriptor(b"cf", max_versions=3)
    True
    """
    attributes = {
        "VERSIONS": str(family.max_versions),
        "MIN_VERSIONS": str(family.min_versions),
        "TTL": str(TTL_FOREVER if family.time_to_live_s is None else family.time_to_live_s),
        "KEEP_DELETED_CELLS": family.keep_deleted_cells.upper(),
        "COMPRESSION": family.compression.upper(),
        "BLOOMFILTER": family.bloom_filter_type.upper(),
        "IN_MEMORY": _flag(family.in_memory),
        "BLOCKCACHE": _flag(family.block_cache_enabled),
        "REPLICATION_SCOPE": str(family.replication_scope),
        **dict(family.attributes),
    }
    return {"name": family.name, "attributes": _pairs(attributes)}


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
