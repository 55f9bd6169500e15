"""Computes the order of the cells of several sorted batches, and where rows, families, columns and versions begin.

Row keys and names of columns become numbers in their order, so that all later steps compare numbers:

1. Each distinct row of a batch gets its rank among the rows of all batches; each qualifier its rank among all names.
2. Row, family and qualifier of a cell are then one number. The batches are sorted by it already, and numpy's stable
   sort merges them, the newest batch first.
3. Cells of one column that are not in the order of their versions (timestamp, type and sequence id, descending) are
   rare: an old file has a newer timestamp. Then all cells are sorted by these numbers, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from metaclient.hfile.key_values import SEQUENCE
from metaclient.hfile.order import changes, row_order
from metaclient.wire.cell_arrays import libraries

if TYPE_CHECKING:
    import pyarrow

__all__ = ["CellOrder", "order_cells"]


@dataclass(frozen=True, slots=True)
class CellOrder:
    """Cells in HBase's order. The arrays have one element per cell, in this order.

    ``order`` has the position of each cell in the batches, one after the other; None if the cells are in order as they
    are. ``families`` and ``qualifiers`` have the index of each cell's name in ``family_names`` and ``qualifier_names``.
    The others are True for the first cell of each row, family of a row, column, and version of a column.
    """

    order: Any
    family_names: list[bytes]
    qualifier_names: pyarrow.Array
    families: Any
    qualifiers: Any
    stamps: Any
    kinds: Any
    row_starts: Any
    family_starts: Any
    column_starts: Any
    version_starts: Any

    def sorted(self, values: Any) -> Any:
        """Return numbers per cell of the batches in the order of the cells."""
        return values if self.order is None else values[self.order]


def order_cells(parts: Sequence[pyarrow.RecordBatch]) -> CellOrder:
    """Return the order of the cells of sorted batches, of which the first is the newest.

    Of cells that are equal in everything but the value, the one of the newest batch is first.
    """
    np, _ = libraries()
    family_names, families = _encoded([part["family"] for part in parts])
    qualifier_names, qualifiers = _encoded([part["qualifier"] for part in parts])
    stamps, kinds = (_together(parts, name) for name in ("timestamp", "type"))
    if len(parts) == 1:
        order = None
        row_starts = changes(parts[0]["row"])
        family_starts = row_starts | _differs(np, families)
        column_starts = family_starts | _differs(np, qualifiers)
    else:
        rows = _row_ranks([part["row"] for part in parts])
        of_family = rows * len(family_names) + _ranks(family_names)[families]
        columns = of_family * len(qualifier_names) + _ranks(qualifier_names)[qualifiers]
        order = _merged_order(parts, columns, stamps, kinds)
        stamps, kinds, families, qualifiers = (each[order] for each in (stamps, kinds, families, qualifiers))
        row_starts, family_starts, column_starts = (_differs(np, each[order]) for each in (rows, of_family, columns))
    return CellOrder(
        order=order,
        family_names=family_names.to_pylist(),
        qualifier_names=qualifier_names,
        families=families,
        qualifiers=qualifiers,
        stamps=stamps,
        kinds=kinds,
        row_starts=row_starts,
        family_starts=family_starts,
        column_starts=column_starts,
        version_starts=column_starts | _differs(np, stamps),
    )


def _merged_order(parts: Sequence[pyarrow.RecordBatch], columns: Any, stamps: Any, kinds: Any) -> Any:
    """Return the positions of the cells in their order; ``columns`` are numbers of row, family and qualifier."""
    np, _ = libraries()
    order = np.argsort(columns, kind="stable")
    in_order, newest_first = columns[order], stamps[order]
    if ((in_order[1:] == in_order[:-1]) & (newest_first[1:] >= newest_first[:-1])).any():
        sources = np.concatenate([np.full(part.num_rows, number) for number, part in enumerate(parts)])
        order = np.lexsort((sources, ~_together(parts, SEQUENCE), ~kinds, ~stamps, columns))
    return order


def _together(parts: Sequence[pyarrow.RecordBatch], name: str) -> Any:
    np, _ = libraries()
    values = [part[name].to_numpy() for part in parts]
    return values[0] if len(values) == 1 else np.concatenate(values)


def _differs(np: Any, numbers: Any) -> Any:
    """Return True for each number that differs from the one before, and for the first."""
    made = np.ones(len(numbers), dtype=bool)
    made[1:] = numbers[1:] != numbers[:-1]
    return made


def _row_ranks(rows: Sequence[pyarrow.Array]) -> Any:
    """Return the rank of each cell's row among all rows; the cells of a row are adjacent in each array."""
    np, arrow = libraries()
    starts = [changes(each) for each in rows]
    firsts = [each.filter(arrow.array(is_new)) for each, is_new in zip(rows, starts, strict=True)]
    if all(each.equals(firsts[0]) for each in firsts[1:]):
        return np.concatenate([np.cumsum(is_new) - 1 for is_new in starts])
    distinct, codes = _encoded(firsts)
    ranks = _ranks(distinct)[codes]
    borders = np.cumsum([0, *map(len, firsts)])
    return np.concatenate([ranks[at + np.cumsum(is_new) - 1] for at, is_new in zip(borders, starts, strict=False)])


def _encoded(values: Sequence[pyarrow.Array]) -> tuple[pyarrow.Array, Any]:
    """Return the distinct values, and the index of each value among them."""
    _, arrow = libraries()
    encoded = (values[0] if len(values) == 1 else arrow.concat_arrays(values)).dictionary_encode()
    return encoded.dictionary, encoded.indices.to_numpy()


def _ranks(distinct: pyarrow.Array) -> Any:
    """Return the rank of each of these values in their order."""
    np, _ = libraries()
    order = row_order(distinct)
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    return ranks
