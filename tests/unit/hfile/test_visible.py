"""Merged store files show the cells that a plain, cell-by-cell version of HBase's rules shows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaclient.errors import Unsupported
from metaclient.hfile import FamilyRules, merge_rows
from metaclient.hfile.order import sort_cells
from metaclient.hfile.snapshot import _newest_first
from metaclient.hfile.visible import CellSelection, visible_cells
from metaclient.model import CellType, FamilyDescriptor
from tests.unit.hfile.cells import PUT, StoredCell, batch_of, cells_from, stored_cells

FAMILIES = (b"d", b"e")


def expected(
    cells: list[StoredCell], rules: dict[bytes, FamilyRules], asked: CellSelection
) -> list[tuple[object, ...]]:
    """Return the visible cells, by the rules of visible.py's docstring, one cell at a time."""
    made: list[tuple[object, ...]] = []
    counts: dict[tuple[bytes, ...], int] = {}
    seen: set[tuple[object, ...]] = set()
    for cell in sorted(cells, key=StoredCell.key):
        rule = rules[cell.family]
        if cell.type != PUT or not asked.min_timestamp <= cell.timestamp < asked.max_timestamp:
            continue
        markers = [one for one in cells if one.type != PUT and (one.row, one.family) == (cell.row, cell.family)]
        of_column = [one for one in markers if one.qualifier == cell.qualifier]
        if (
            any(one.type == CellType.DELETE_FAMILY and cell.timestamp <= one.timestamp for one in markers)
            or any(one.type == CellType.DELETE_FAMILY_VERSION and cell.timestamp == one.timestamp for one in markers)
            or any(one.type == CellType.DELETE_COLUMN and cell.timestamp <= one.timestamp for one in of_column)
            or any(one.type == CellType.DELETE and cell.timestamp == one.timestamp for one in of_column)
        ):
            continue
        name = cell.family + b":" + cell.qualifier
        if asked.columns and name not in asked.columns and cell.family not in asked.columns:
            continue
        version = (cell.row, name, cell.timestamp)
        is_expired = rule.ttl_ms is not None and cell.timestamp < asked.now_ms - rule.ttl_ms
        if version in seen or (is_expired and not rule.min_versions):
            continue
        seen.add(version)
        rank = counts[cell.row, name] = counts.get((cell.row, name), 0) + 1
        if rank <= min(rule.max_versions, asked.max_versions) and not (is_expired and rank > rule.min_versions):
            made.append(cell[:-1])
    return made


@given(
    st.lists(st.lists(stored_cells(FAMILIES, sequences=True), max_size=25), min_size=1, max_size=4),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from([None, 2]),
    st.integers(0, 1),
    st.sampled_from([(), (b"d",), (b"d:a", b"e:b"), (b"d:a", b"e")]),
    st.integers(1, 4),
)
def test_merged_files_show_what_hbase_shows(
    files: list[list[StoredCell]],
    kept: int,
    versions: int,
    ttl_ms: int | None,
    min_versions: int,
    columns: tuple[bytes, ...],
    batch_rows: int,
) -> None:
    # Cells of one key and sequence id in two files would make the newest file count; each file has its own ids here.
    numbered = [
        [cell._replace(sequence=cell.sequence * 10 + number) for cell in cells] for number, cells in enumerate(files)
    ]
    unique = [sorted({cell.key(): cell for cell in cells}.values(), key=StoredCell.key) for cells in numbered]
    rules = {name: FamilyRules(kept, min_versions, ttl_ms) for name in FAMILIES}
    asked = CellSelection(columns, versions, 0, 4, now_ms=4)
    streams = [
        iter([batch_of(cells[at : at + batch_rows], with_sequence=True) for at in range(0, len(cells), batch_rows)])
        for cells in unique
    ]
    found = [visible_cells(cells, rules, asked, "x") for cells in merge_rows(streams, _newest_first)]
    assert [cell[:-1] for cell in cells_from(found)] == expected(
        [one for cells in unique for one in cells], rules, asked
    )


def test_equal_cells_of_two_files_show_the_newer_file() -> None:
    old, new = (
        batch_of([StoredCell(b"r", b"d", b"q", 1, PUT, value)], with_sequence=True) for value in (b"old", b"new")
    )
    merged = list(merge_rows([iter([old]), iter([new])], _newest_first))
    (cell,) = cells_from([visible_cells(one, {b"d": FamilyRules()}, CellSelection(), "x") for one in merged])
    assert cell.value == b"new"


@given(st.lists(stored_cells(FAMILIES), max_size=40))
def test_cells_are_sorted_as_hbase_sorts_them(cells: list[StoredCell]) -> None:
    found = cells_from([sort_cells(batch_of(cells))])
    assert found == sorted(cells, key=StoredCell.key)


@pytest.mark.parametrize(("name", "shown"), [("IS_MOB", "MOB"), ("NEW_VERSION_BEHAVIOR", "NEW_VERSION_BEHAVIOR")])
def test_family_with_other_rules_is_refused_by_name(name: str, shown: str) -> None:
    with pytest.raises(Unsupported, match=shown):
        FamilyRules.of("family d", FamilyDescriptor(b"d", attributes=((name, "true"),)))
