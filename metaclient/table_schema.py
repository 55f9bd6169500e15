"""The schema arguments of users: families and split keys of a new table."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from metaclient import keys
from metaclient.errors import ConfigError
from metaclient.model import TTL_FOREVER, FamilyDescriptor

__all__ = ["family_from_options", "split_points"]

#: Versions per family by default: happybase's default, which its programs rely on (HBase's own default is 1).
HAPPYBASE_MAX_VERSIONS = 3
#: The options of column families, happybase's and others: argument -> field of FamilyDescriptor.
_FAMILY_OPTIONS = {
    "max_versions": "max_versions",
    "min_versions": "min_versions",
    "time_to_live": "time_to_live_s",
    "compression": "compression",
    "in_memory": "in_memory",
    "bloom_filter_type": "bloom_filter_type",
    "block_cache_enabled": "block_cache_enabled",
    "keep_deleted_cells": "keep_deleted_cells",
    "replication_scope": "replication_scope",
    # Accepted and without effect since HBase 0.92, as in happybase:
    "bloom_filter_vector_size": None,
    "bloom_filter_nb_hashes": None,
}


def split_points(splits: Sequence[bytes | str] | None) -> list[bytes]:
    if splits is None:
        return []
    if isinstance(splits, bytes | str):
        raise TypeError("'splits' must be a list of row keys, got one")
    points = [keys.row_key(point, "splits") for point in splits]
    if len(set(points)) != len(points):
        raise ValueError("'splits' names a row key twice")
    return sorted(points)


def family_from_options(name: bytes | str, options: Mapping[str, Any]) -> FamilyDescriptor:
    plain = keys.column_name(keys.as_bytes(name, "families").rstrip(b":"), "families", family_only_ok=True)
    fields: dict[str, Any] = {}
    for option, value in options.items():
        if option not in _FAMILY_OPTIONS:
            near = difflib.get_close_matches(str(option), _FAMILY_OPTIONS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(_FAMILY_OPTIONS)}"
            raise ConfigError(f"family {keys.printable(plain)!r} has an unknown option {option!r}: {hint}")
        field = _FAMILY_OPTIONS[option]
        if field is not None:
            fields[field] = value.decode() if isinstance(value, bytes) else value
    fields.setdefault("max_versions", HAPPYBASE_MAX_VERSIONS)
    if fields.get("time_to_live_s") in (-1, 0, TTL_FOREVER):  # happybase's and HBase's values for "for ever"
        fields["time_to_live_s"] = None
    return FamilyDescriptor(plain, **fields)
