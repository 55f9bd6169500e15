"""Every scan of a few small rows, on the fake and on a real HBase: the answers and the marks of their pieces.

The rows have what is rare in random operations: a cell in the place of another one, a column without a qualifier,
markers behind the last cell. Each row is read alone and in front of another row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import pytest

from metaclient.model import Cell, CellType, Delete, Put, Scan
from metaclient_local_hbase import LocalHBase
from tests.live.test_differential import MIRRORED
from tests.live.two_sides import Both, both_sides

ROWS: dict[str, tuple[Put | Delete, ...]] = {
    "one cell": (Put(b"1", (Cell(b"a:p", 1, b"1"),)),),
    "a cell in the place of another": (Put(b"1", (Cell(b"a:p", 1, b"1"),)), Put(b"1", (Cell(b"a:p", 1, b"2"),))),
    "two versions": (Put(b"1", (Cell(b"a:p", 1, b"1"),)), Put(b"1", (Cell(b"a:p", 2, b"2"),))),
    "two columns": (Put(b"1", (Cell(b"a:p", 1, b"1"), Cell(b"a:q", 1, b"2"))),),
    "two families": (Put(b"1", (Cell(b"a:p", 1, b"1"), Cell(b"b:q", 1, b"2"))),),
    "no qualifier": (Put(b"1", (Cell(b"a:", 1, b"1"),)), Put(b"1", (Cell(b"a:", 2, b"1"),))),
    "deleted column": (
        Put(b"1", (Cell(b"a:p", 1, b"1"), Cell(b"a:q", 1, b"2"))),
        Delete(b"1", (Cell(b"a:q", 5, b"", CellType.DELETE_COLUMN),)),
    ),
    "deleted version": (
        Put(b"1", (Cell(b"a:p", 1, b"1"),)),
        Put(b"1", (Cell(b"a:p", 2, b"1"),)),
        Delete(b"1", (Cell(b"a:p", 1, b"", CellType.DELETE),)),
    ),
    "only a marker": (Delete(b"1", (Cell(b"a:p", 5, b"", CellType.DELETE_COLUMN),)),),
    "deleted family": (
        Put(b"1", (Cell(b"a:p", 1, b"1"),)),
        Delete(b"1", (Cell(b"a:", 5, b"", CellType.DELETE_FAMILY),)),
        Put(b"1", (Cell(b"a:q", 9, b"1"),)),
    ),
}
FILTERS = (
    None,
    b"ColumnCountGetFilter(1)",
    b"ColumnCountGetFilter(2)",
    b"ColumnPaginationFilter(1, 0)",
    b"ColumnPaginationFilter(1, 1)",
    b"FirstKeyOnlyFilter()",
    b"KeyOnlyFilter()",
    b"ColumnPrefixFilter('p')",
    b"ColumnCountGetFilter(1) OR KeyOnlyFilter()",
    b"ColumnCountGetFilter(2) AND ColumnPrefixFilter('p')",
)


@pytest.fixture(scope="module")
def both(hbase: LocalHBase) -> Iterator[Callable[[], Both]]:
    if hbase.version != MIRRORED:
        pytest.skip(f"the fake's filters and pieces of rows are those of HBase {MIRRORED}")
    with both_sides(hbase) as begin:
        yield begin


@pytest.mark.parametrize("is_followed", [False, True], ids=["alone", "followed"])
@pytest.mark.parametrize("name", ROWS)
def test_small_row_is_scanned_alike(both: Callable[[], Both], name: str, is_followed: bool) -> None:
    sides = both()
    for write in ROWS[name]:
        sides.compare(write)
    if is_followed:
        sides.compare(Put(b"2", (Cell(b"a:p", 1, b"1"),)))
    choices = product(FILTERS, (1, 2), (1, 3), (False, True), (False, True), ((), (b"a:p",)))
    for condition, batch, versions, is_raw, is_reversed, columns in choices:
        if is_raw and columns:
            continue  # HBase refuses it
        first, last = (b"4", b"0") if is_reversed else (b"0", b"4")
        sides.compare(
            Scan(
                first,
                last,
                is_reversed=is_reversed,
                columns=columns,
                max_versions=versions,
                batch=batch,
                filter=condition,
                is_raw=is_raw,
            )
        )
