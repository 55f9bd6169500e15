"""HFiles, the store files of HBase, and snapshots, which are lists of them: written and read without a server.

An HFile holds sorted cells of one family of one region. Bulk loads write such files and hand them over to the region
servers (``Engine.bulk_load``); readers of snapshots merge them as a region server would.

It needs numpy and pyarrow, as Spark does. Format 3 is written and read; features that cannot be read are refused by
name.
"""

from __future__ import annotations

from metaclient.hfile.errors import CorruptFile, FileMissing
from metaclient.hfile.files import StoragePath
from metaclient.hfile.order import concatenated, merge_rows, row_order, sort_cells
from metaclient.hfile.reader import HFile, find_row, open_hfile
from metaclient.hfile.snapshot import SnapshotRegion, StoredSnapshot, read_region, read_snapshot
from metaclient.hfile.visible import CellSelection, FamilyRules
from metaclient.hfile.writer import FileSettings, HFileWriter, cells_of_page

__all__ = [
    "CellSelection",
    "CorruptFile",
    "FamilyRules",
    "FileMissing",
    "FileSettings",
    "HFile",
    "HFileWriter",
    "SnapshotRegion",
    "StoragePath",
    "StoredSnapshot",
    "cells_of_page",
    "concatenated",
    "find_row",
    "merge_rows",
    "open_hfile",
    "read_region",
    "read_snapshot",
    "row_order",
    "sort_cells",
]
