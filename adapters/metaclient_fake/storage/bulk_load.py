"""Decides how rows enter a region as files, past log and memstore (HRegion.bulkLoadHFiles)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from metaclient.model import LATEST_TIMESTAMP, Cell
from metaclient_fake.storage.cells import row_of
from metaclient_fake.storage.mutations import check_timestamp
from metaclient_fake.storage.store_file import StoreFile
from metaclient_fake.storage.wal import Marker, MarkerKind

if TYPE_CHECKING:
    from metaclient_fake.storage.region import Region

__all__ = ["bulk_load"]


def bulk_load(region: Region, rows: Iterable[tuple[bytes, Sequence[Cell]]]) -> None:
    """Add the rows of all families at once; the caller has flushed, so that they are the newest."""
    pairs = list(rows)
    with region.update_lock:
        families = _by_family(region, pairs)
        sequence_id = region.log.use_up()
        made = {family: _file(region, part, sequence_id) for family, part in families.items()}
        names = tuple(file.name for file in made.values())
        region.log.mark(Marker(MarkerKind.BULK_LOAD, sequence_id, tuple(made), names))
        for family, file in made.items():
            region.replace_files(region.mutations.store(family), (), file)
        region.publish()


def _by_family(region: Region, pairs: Sequence[tuple[bytes, Sequence[Cell]]]) -> dict[bytes, dict[bytes, list[Cell]]]:
    """Return family -> row -> cells, checked, with the server's time for cells without a timestamp."""
    now_ms = region.time_ms()
    families: dict[bytes, dict[bytes, list[Cell]]] = {}
    for row, cells in pairs:
        region.check_writable(row)
        for cell in cells:
            store, column = region.mutations.column(cell.column)
            check_timestamp(row, column, cell.timestamp)
            stamp = now_ms if cell.timestamp == LATEST_TIMESTAMP else cell.timestamp
            made = Cell(column, stamp, cell.value, cell.type)
            families.setdefault(store.name, {}).setdefault(row, []).append(made)
    return families


def _file(region: Region, part: Mapping[bytes, Sequence[Cell]], sequence_id: int) -> StoreFile:
    rows = {row: row_of(row, tuple(sorted(cells, key=_order)), sequence_id) for row, cells in part.items()}
    name = region.filesystem.file_name()
    keys = sorted(rows, key=region.row_order)
    return StoreFile.of(name, sequence_id, rows, keys=keys, is_bulk_loaded=True)


def _order(cell: Cell) -> tuple[bytes, int, int]:
    return (cell.column, -cell.timestamp, -cell.type)
