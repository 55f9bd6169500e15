"""Removes unwanted columns from rows that were read in full, for a filter or because that is faster.

A row without a cell in the wanted columns is left out, as if the scan had asked only for the wanted columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from metaclient.backend import CellPage
from metaclient.model import Result

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Projection"]


@dataclass(frozen=True, slots=True)
class Projection:
    """Columns to keep: ``b"cf"`` is a whole family, ``b"cf:q"`` one column."""

    families: frozenset[bytes]
    columns: frozenset[bytes]

    @classmethod
    def to(cls, columns: Iterable[bytes]) -> Projection:
        wanted = frozenset(columns)
        return cls(frozenset(one for one in wanted if b":" not in one), frozenset(one for one in wanted if b":" in one))

    def families_of_all(self) -> frozenset[bytes]:
        """Return the families of which anything is kept."""
        return self.families | {column.partition(b":")[0] for column in self.columns}

    def keeps(self, column: bytes) -> bool:
        return column in self.columns or column.partition(b":")[0] in self.families

    def of_result(self, result: Result) -> Result | None:
        """Return the row, or the piece of a row, with the wanted cells only; None if it has none."""
        cells = tuple(cell for cell in result.cells if self.keeps(cell.column))
        return result._replace(cells=cells) if cells else None

    def of_page(self, page: CellPage) -> CellPage | None:
        """Return the page with the wanted cells only; None if it has none."""
        import pyarrow.compute as pc

        mask = self._mask(page.cells)
        if pc.all(mask).as_py():
            return page
        kept = page.cells.filter(mask)
        if not kept.num_rows:
            return None
        return replace(page, cells=kept, rows=_row_count(kept["row"]))

    def _mask(self, cells: pa.RecordBatch) -> pa.Array:
        import pyarrow as pa
        import pyarrow.compute as pc

        names = pc.binary_join_element_wise(cells["family"], cells["qualifier"], b":")
        in_families = pc.is_in(cells["family"], pa.array(sorted(self.families), cells["family"].type))
        return pc.or_(in_families, pc.is_in(names, pa.array(sorted(self.columns), names.type)))


def _row_count(rows: pa.Array) -> int:
    """Return the number of different values; equal values are adjacent."""
    import pyarrow.compute as pc

    return 1 + (pc.sum(pc.not_equal(rows[1:], rows[:-1])).as_py() or 0)
