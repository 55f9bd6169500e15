"""The columns of a batch that come from cells: one cell per row, or a whole family as a map."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from metaclient.columns.codecs.base import Codec
from metaclient.columns.rowkey import KeyPart
from metaclient.columns.types import DataType

__all__ = ["CellColumn", "ColumnField", "FamilyColumn", "KeyPart"]


@dataclass(frozen=True, slots=True)
class CellColumn:
    """A column that is one cell."""

    name: str
    column: bytes  # b"family:qualifier"
    type: DataType
    codec: Codec
    ttl_ms: int | None = None  # of the cells that are written


@dataclass(frozen=True, slots=True)
class FamilyColumn:
    """A column that is a whole family: a map of qualifier -> value, of the cells that are not another column."""

    name: str
    family: bytes
    type: DataType  # map<string|binary, T>
    codec: Codec  # of the values
    ttl_ms: int | None = None  # of the cells that are written

    @property
    def value_type(self) -> DataType:
        assert self.type.element is not None
        return self.type.element

    @property
    def has_text_keys(self) -> bool:
        """True if qualifiers are shown as text (see ``key_text.text_of``) and not as binaries."""
        return self.type.key is not None and self.type.key.name == "string"


ColumnField: TypeAlias = KeyPart | CellColumn | FamilyColumn
