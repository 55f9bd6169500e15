"""Layouts: the forms in which rows of HBase become rows of Spark, each with its columns.

``columns``  the catalog's columns; the newest version of each.
``map``      ``row binary, columns map<string,binary>``: a row with all its cells, keys ``cf:q`` (``ranges.text_of``).
``cells``    ``row, family, qualifier, timestamp, type, value``: one row per cell and version.
``raw``      the columns of ``cells`` for a raw scan, with delete markers and the cells that they hide.

``timestamp`` is in milliseconds, as in HBase; ``type`` is PUT, DELETE, DELETE_COLUMN, DELETE_FAMILY or
DELETE_FAMILY_VERSION.
"""

from __future__ import annotations

import enum

from metaclient.columns.types import DataType, parse_type

__all__ = ["CELL_COLUMNS", "MAP_COLUMNS", "Layout"]


class Layout(enum.Enum):
    """The values of ``hbase.spark.query.layout``."""

    COLUMNS = "columns"
    MAP = "map"
    CELLS = "cells"
    RAW = "raw"

    @property
    def has_a_row_per_cell(self) -> bool:
        return self in (Layout.CELLS, Layout.RAW)


MAP_COLUMNS: tuple[tuple[str, DataType], ...] = (
    ("row", parse_type("binary")),
    ("columns", parse_type("map<string,binary>")),
)
CELL_COLUMNS: tuple[tuple[str, DataType], ...] = (
    ("row", parse_type("binary")),
    ("family", parse_type("string")),
    ("qualifier", parse_type("binary")),
    ("timestamp", parse_type("bigint")),
    ("type", parse_type("string")),
    ("value", parse_type("binary")),
)
