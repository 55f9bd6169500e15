"""The schema arguments of users: families and split keys of a new table, and the changes of an existing one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from metaclient import keys
from metaclient.errors import ConfigError, NoSuchFamily
from metaclient.model import TTL_FOREVER, FamilyDescriptor, TableDescriptor

__all__ = [
    "TableChange",
    "check_region_replication",
    "family_from_options",
    "namespace_name",
    "split_points",
    "table_change",
]

#: Versions per family by default: happybase's default, which its programs rely on (HBase's own default is 1).
HAPPYBASE_MAX_VERSIONS = 3
#: HBase's LOCAL, GLOBAL and SERIAL.
REPLICATION_SCOPES = (0, 1, 2)
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
    plain = _family_name(name)
    return FamilyDescriptor(plain, **{"max_versions": HAPPYBASE_MAX_VERSIONS, **_settings(plain, options)})


def _family_name(name: bytes | str) -> bytes:
    return keys.column_name(keys.as_bytes(name, "families").rstrip(b":"), "families", family_only_ok=True)


def _settings(family: bytes, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a family as fields of FamilyDescriptor."""
    fields: dict[str, Any] = {}
    for option, value in options.items():
        if option not in _FAMILY_OPTIONS:
            near = difflib.get_close_matches(str(option), _FAMILY_OPTIONS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(_FAMILY_OPTIONS)}"
            raise ConfigError(f"family {keys.printable(family)!r} has an unknown option {option!r}: {hint}")
        field = _FAMILY_OPTIONS[option]
        if field is not None:
            fields[field] = value.decode() if isinstance(value, bytes) else value
    if fields.get("time_to_live_s") in (-1, 0, TTL_FOREVER):  # happybase's and HBase's values for "for ever"
        fields["time_to_live_s"] = None
    scope = fields.get("replication_scope", 0)
    if isinstance(scope, bool) or scope not in REPLICATION_SCOPES:
        raise ValueError(
            f"family {keys.printable(family)!r}: replication_scope must be 0 (not shipped), 1 (shipped to peers) or 2 "
            f"(stored, and not shipped by HBase), got {scope!r}"
        )
    return fields


@dataclass(frozen=True, slots=True)
class TableChange:
    """The settings of a table that change; all others stay as they are, also those that this client does not know.

    ``families`` maps the name of a family to the fields of FamilyDescriptor that change. A family that the table does
    not have is added. The ``dropped`` families are deleted with their data.
    """

    table: bytes
    families: Mapping[bytes, Mapping[str, Any]]
    dropped: tuple[bytes, ...] = ()
    region_replication: int | None = None

    def check(self, families: Iterable[bytes]) -> None:
        """Raise NoSuchFamily if a dropped family is not among ``families``, which the table has."""
        known = sorted(families)
        for name in self.dropped:
            if name not in known:
                raise NoSuchFamily(
                    f"table {keys.printable(self.table)!r} has no family {keys.printable(name)!r}, so it cannot be "
                    f"dropped; it has {', '.join(map(keys.printable, known))}"
                )

    def new_family(self, name: bytes) -> FamilyDescriptor:
        """Return the family that is added under this name."""
        return FamilyDescriptor(name, **{"max_versions": HAPPYBASE_MAX_VERSIONS, **self.families[name]})

    def applied_to(self, descriptor: TableDescriptor) -> TableDescriptor:
        """Return the descriptor with the change.

        >>> one = TableDescriptor(b"t", (FamilyDescriptor(b"a"), FamilyDescriptor(b"old")))
        >>> change = TableChange(b"t", {b"a": {"max_versions": 9}}, dropped=(b"old",), region_replication=3)
        >>> new = change.applied_to(one)
        >>> new.region_replication, [(family.name, family.max_versions) for family in new.families]
        (3, [(b'a', 9)])
        """
        self.check(family.name for family in descriptor.families)
        kept = [family for family in descriptor.families if family.name not in self.dropped]
        known = {family.name for family in kept}
        return replace(
            descriptor,
            families=(
                *(replace(family, **self.families.get(family.name, {})) for family in kept),
                *(self.new_family(name) for name in self.families if name not in known),
            ),
            region_replication=self.region_replication or descriptor.region_replication,
        )


def table_change(
    table: bytes,
    families: Mapping[Any, Mapping[str, Any] | None] | None,
    drop_families: Sequence[bytes | str],
    region_replication: int | None,
) -> TableChange:
    """Return a change from the arguments of :meth:`metaclient.Connection.alter_table`, checked."""
    if families is not None and not isinstance(families, Mapping):
        raise TypeError(f"'families' must map family names to options, got {type(families).__name__}")
    if isinstance(drop_families, bytes | str):
        raise TypeError("'drop_families' must be a list of family names, got one")
    check_region_replication(region_replication)
    changed: dict[bytes, dict[str, Any]] = {}
    for name, options in (families or {}).items():
        plain = _family_name(name)
        changed[plain] = _settings(plain, options or {})
    dropped = tuple(dict.fromkeys(_family_name(name) for name in drop_families))
    both = [name for name in dropped if name in changed]
    if both:
        raise ValueError(f"family {keys.printable(both[0])!r} is in 'families' and in 'drop_families'")
    if not changed and not dropped and region_replication is None:
        raise ValueError(
            f"nothing of table {keys.printable(table)!r} would change: give families, drop_families or "
            "region_replication"
        )
    return TableChange(table, changed, dropped, region_replication)


def check_region_replication(value: int | None) -> None:
    """Raise ValueError unless it is a number from 1 on, or None."""
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ValueError(f"'region_replication' must be a number from 1 on, got {value!r}")


def namespace_name(name: str) -> str:
    """Return a checked name of a namespace: letters, digits and underscores (TableName.isLegalNamespaceName)."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a namespace must be text, got {type(name).__name__}")
    if not name or not all(character.isalnum() or character == "_" for character in name):
        raise ValueError(f"{name!r} is no name of a namespace: it may have letters, digits and underscores")
    return name
