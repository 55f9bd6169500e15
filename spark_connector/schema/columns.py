"""A mapping of columns from their names alone: ``d:name`` is a cell, the one name without a colon is the row key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metaclient.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["mapping_of"]


def mapping_of(schema: StructType) -> str:
    """Return ``hbase.columns.mapping`` for a schema such as ``id string, `d:name` string``; else raise ConfigError."""
    keys_found = [field.name for field in schema.fields if ":" not in field.name]
    if len(keys_found) != 1:
        said = f"it has {', '.join(keys_found)}" if keys_found else "it has none"
        raise ConfigError(
            "a schema without a catalog needs columns named `family:qualifier`, and one column without a colon, "
            f"which is the row key ({said}): rename the columns, or give hbase.columns.mapping"
        )
    parts: list[str] = []
    for field in schema.fields:
        if any(letter.isspace() or letter == "," for letter in field.name):
            raise ConfigError(f"column {field.name!r}: a name with a space or comma needs a catalog")
        cell = field.name if ":" in field.name else f":{field.name}"
        parts.append(f"{field.name} {field.dataType.simpleString()} {cell}")
    return ", ".join(parts)
