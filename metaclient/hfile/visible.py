"""Decides which cells of merged store files a reader sees, as a region server does (NormalUserScanQueryMatcher, 2.6.1).

1. A put is hidden by a marker of its family or column that is not older, and by a marker of its own version. Markers
   count whether they were written before or after the put.
2. A put that has expired is hidden, except for the newest ``min_versions``.
3. Of several puts of one version the newest one, by sequence id, remains.
4. Of the versions in the time range, the newest remain: as many as the family keeps, and as the reader asks for.

All steps are computed for many rows at once. Rows are complete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from metaclient.hfile.cell_order import CellOrder, order_cells
from metaclient.hfile.errors import CorruptFile, refuse
from metaclient.hfile.key_values import TAGS
from metaclient.hfile.order import concatenated
from metaclient.model import CellType, FamilyDescriptor
from metaclient.wire.cell_arrays import COLUMNS, libraries

if TYPE_CHECKING:
    import pyarrow

__all__ = ["CellSelection", "FamilyRules", "visible_cells"]

_TTL_TAG = 8
_MAX_STAMP = 2**63 - 1
#: TagType: what a reader must have to interpret a cell.
_REFUSED_TAGS = {
    1: "access control lists per cell",
    2: "visibility labels",
    4: "visibility labels",
    5: "MOB references",
    6: "MOB references",
    7: "MOB references",
}
_TAG_HEAD_BYTES = 3


@dataclass(frozen=True, slots=True)
class FamilyRules:
    """The settings of a family that decide which cells are visible."""

    max_versions: int = 1
    min_versions: int = 0
    ttl_ms: int | None = None

    @classmethod
    def of(cls, where: str, family: FamilyDescriptor) -> FamilyRules:
        """Return the rules of a family; refuse one whose cells follow other rules."""
        named = {name.upper(): value.lower() for name, value in family.attributes}
        if named.get("NEW_VERSION_BEHAVIOR") == "true":
            raise refuse(where, "has NEW_VERSION_BEHAVIOR", "read the table through its servers")
        if named.get("IS_MOB") == "true":
            raise refuse(where, "holds MOB values", "read the table through its servers")
        seconds = family.time_to_live_s
        return cls(family.max_versions, family.min_versions, None if seconds is None else seconds * 1000)


@dataclass(frozen=True, slots=True)
class CellSelection:
    """The cells that a reader asks for: columns (or whole families; none: all), versions, and a time range."""

    columns: tuple[bytes, ...] = ()
    max_versions: int = 1
    min_timestamp: int = 0
    max_timestamp: int = _MAX_STAMP
    now_ms: int = 0

    def families(self) -> frozenset[bytes] | None:
        """Return the families that are needed; None for all."""
        return frozenset(name.partition(b":")[0] for name in self.columns) or None


def visible_cells(
    parts: Sequence[pyarrow.RecordBatch], rules: Mapping[bytes, FamilyRules], selection: CellSelection, where: str
) -> pyarrow.RecordBatch:
    """Return the visible cells of sorted batches with complete rows: ``cell_arrays.COLUMNS`` of the merged cells.

    The first batch is the newest: of cells that are equal in everything but the value, its cell is returned. Cells that
    are not visible are not copied.
    """
    np, _ = libraries()
    cells = order_cells(parts)
    settings = [_rules_of(rules, name, where) for name in cells.family_names]
    codes, stamps, kinds = cells.families, cells.stamps, cells.kinds
    chosen = kinds == CellType.PUT
    if not chosen.all():
        chosen &= ~_deleted(np, stamps, kinds, cells.family_starts, cells.column_starts, cells.version_starts)
    if selection.min_timestamp > 0 or selection.max_timestamp < _MAX_STAMP:
        chosen &= (stamps >= selection.min_timestamp) & (stamps < selection.max_timestamp)
    if TAGS in parts[0].schema.names:
        found = [_expired_by_tag(np, part[TAGS], part["timestamp"], selection.now_ms, where) for part in parts]
        chosen &= ~cells.sorted(np.concatenate(found))
    expired = np.zeros(len(stamps), dtype=bool)
    for code, rule in enumerate(settings):
        if rule.ttl_ms is not None:
            expired |= (codes == code) & (stamps < selection.now_ms - rule.ttl_ms)
    has_expired = bool(expired.any())
    if has_expired:
        keeps_expired = np.array([rule.min_versions > 0 for rule in settings], dtype=bool)
        chosen &= ~expired | keeps_expired[codes]
    if selection.columns:
        chosen &= _asked_for(np, cells, selection.columns)
    if has_expired or not cells.column_starts.all():
        chosen = _first_of_version(np, chosen, cells.version_starts)
        ranks = _ranks_in_column(np, chosen, cells.column_starts)
        limits = np.array([min(rule.max_versions, selection.max_versions) for rule in settings])
        kept = np.array([rule.min_versions for rule in settings])
        chosen &= (ranks < limits[codes]) & ~(expired & (ranks >= kept[codes]))
    return _taken(np, [part.select(list(COLUMNS)) for part in parts], cells.order, chosen)


def _taken(np: Any, parts: Sequence[pyarrow.RecordBatch], order: Any, chosen: Any) -> pyarrow.RecordBatch:
    """Return the chosen cells in their order. Those of each part are copied, and sorted if their order differs."""
    _, arrow = libraries()
    if order is None:
        return parts[0] if chosen.all() else parts[0].filter(arrow.array(chosen))
    is_taken = np.zeros(len(order), dtype=bool)
    is_taken[order] = chosen
    kept: list[pyarrow.RecordBatch] = []
    begin = 0
    for part in parts:
        mask = is_taken[begin : begin + part.num_rows]
        begin += part.num_rows
        if mask.all():
            kept.append(part)
        elif mask.any():
            kept.append(part.filter(arrow.array(mask)))
    if not kept:
        return parts[0].slice(0, 0)
    together = concatenated(kept)
    at = (np.cumsum(is_taken) - 1)[order[chosen]]
    return together if (at[1:] > at[:-1]).all() else together.take(arrow.array(at))


def _rules_of(rules: Mapping[bytes, FamilyRules], name: bytes, where: str) -> FamilyRules:
    found = rules.get(name)
    if found is None:
        raise CorruptFile(f"{where} has cells of a family that the table does not have: {name!r}")
    return found


def _deleted(np: Any, stamps: Any, kinds: Any, family_starts: Any, column_starts: Any, version_starts: Any) -> Any:
    """Return True for each cell that a marker hides; for markers the value has no meaning."""
    is_deleted = np.zeros(len(stamps), dtype=bool)
    for kind, starts in ((CellType.DELETE_FAMILY, family_starts), (CellType.DELETE_COLUMN, column_starts)):
        is_marker = kinds == kind
        if is_marker.any():
            groups = np.cumsum(starts) - 1
            newest = np.full(groups[-1] + 1, -1, dtype=np.int64)
            np.maximum.at(newest, groups[is_marker], stamps[is_marker])
            is_deleted |= stamps <= newest[groups]
    is_marker = kinds == CellType.DELETE
    if is_marker.any():
        groups = np.cumsum(version_starts) - 1
        has_marker = np.zeros(groups[-1] + 1, dtype=bool)
        has_marker[groups[is_marker]] = True
        is_deleted |= has_marker[groups]
    is_marker = kinds == CellType.DELETE_FAMILY_VERSION
    if is_marker.any():
        groups = np.cumsum(family_starts) - 1
        versions = set(zip(groups[is_marker].tolist(), stamps[is_marker].tolist(), strict=True))
        has_marker = np.zeros(groups[-1] + 1, dtype=bool)
        has_marker[groups[is_marker]] = True
        for at in np.flatnonzero(has_marker[groups]).tolist():
            is_deleted[at] |= (int(groups[at]), int(stamps[at])) in versions
    return is_deleted


def _first_of_version(np: Any, chosen: Any, version_starts: Any) -> Any:
    """Return the chosen cells that are the first chosen ones of their version."""
    groups = np.cumsum(version_starts) - 1
    at = np.flatnonzero(chosen)
    of = groups[at]
    is_first = np.ones(len(at), dtype=bool)
    is_first[1:] = of[1:] != of[:-1]
    made = np.zeros(len(chosen), dtype=bool)
    made[at[is_first]] = True
    return made


def _ranks_in_column(np: Any, chosen: Any, column_starts: Any) -> Any:
    """Return how many chosen cells precede each cell in its column."""
    before = np.cumsum(chosen) - chosen
    starts = np.flatnonzero(column_starts)
    return before - before[starts][np.cumsum(column_starts) - 1]


def _asked_for(np: Any, cells: CellOrder, columns: Sequence[bytes]) -> Any:
    """Return True for each cell of the columns and whole families that are asked for."""
    _, arrow = libraries()
    asked = np.zeros(len(cells.families), dtype=bool)
    for code, family in enumerate(cells.family_names):
        if family in columns:
            is_asked = np.ones(len(cells.qualifier_names), dtype=bool)
        else:
            split = [name.partition(b":") for name in columns]
            wanted = arrow.array(
                [qualifier for of, colon, qualifier in split if colon and of == family], arrow.binary()
            )
            is_asked = arrow.compute.is_in(cells.qualifier_names, wanted).to_numpy(zero_copy_only=False)
        asked |= (cells.families == code) & is_asked[cells.qualifiers]
    return asked


def _expired_by_tag(np: Any, tags: pyarrow.Array, timestamps: pyarrow.Array, now_ms: int, where: str) -> Any:
    """Return True for each cell whose own time to live has ended."""
    encoded = tags.dictionary_encode()
    ttls = np.array([_ttl_of(one, where) for one in encoded.dictionary.to_pylist()], dtype=np.int64)
    of_cell = ttls[encoded.indices.to_numpy()]
    return (of_cell >= 0) & (of_cell < now_ms - timestamps.to_numpy())


def _ttl_of(tags: bytes, where: str) -> int:
    """Return the time to live of a cell with these tags, in ms; -1 without one. Refuse tags that hide cells."""
    at, found = 0, -1
    while at < len(tags):
        size = int.from_bytes(tags[at : at + 2], "big")
        if size < 1 or at + 2 + size > len(tags):
            raise CorruptFile(f"{where} has a cell with torn tags")
        kind, value = tags[at + 2], tags[at + _TAG_HEAD_BYTES : at + 2 + size]
        if kind in _REFUSED_TAGS:
            raise refuse(where, f"has {_REFUSED_TAGS[kind]}", "read the table through its servers")
        if kind == _TTL_TAG:
            found = min(int.from_bytes(value, "big"), 2**62)
        at += 2 + size
    return found
