"""Random operations on a few rows, for the differential tests: what is sent to the fake and to a real HBase."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from metaclient.model import (
    LATEST_TIMESTAMP,
    Append,
    Cell,
    CellType,
    Check,
    CompareOp,
    Delete,
    Get,
    Increment,
    Put,
    RowMutations,
    Scan,
)
from metaclient_thrift.ranges import wire_range

#: In a filter's text: the prefix that the rows of an example have.
PREFIX = "~~"

#: Some come more often, so that operations meet.
ROWS = st.sampled_from([b"1", b"1", b"1", b"2", b"2", b"2\x00", b"3"])
QUALIFIERS = [b"", b"p", b"pq", b"q", b"\xff"]
KNOWN_COLUMNS = [family + b":" + qualifier for family in (b"a", b"b", b"k") for qualifier in QUALIFIERS]
COLUMNS = st.sampled_from([b"a:p", b"a:p", b"a:p", b"a:q", b"b:p", b"b:p", b"k:p", b"k:p"]) | st.sampled_from(
    KNOWN_COLUMNS
)
ANY_COLUMN = st.one_of(COLUMNS, COLUMNS, COLUMNS, st.just(b"nope:q"))
VALUES = st.sampled_from([b"", b"\x00", b"1", b"2", b"10", b"v", b"\x00" * 7 + b"\x05"])
CHOSEN = st.integers(1, 9)
TIMES = st.one_of(CHOSEN, CHOSEN, st.just(LATEST_TIMESTAMP))


@st.composite
def puts(draw: st.DrawFn, row: bytes | None = None) -> Put:
    chosen = draw(st.lists(st.tuples(ANY_COLUMN, TIMES), min_size=1, max_size=3, unique=True))
    return Put(row or draw(ROWS), tuple(Cell(column, time, draw(VALUES)) for column, time in chosen))


@st.composite
def deletes(draw: st.DrawFn, row: bytes | None = None) -> Delete:
    key = row or draw(ROWS)
    if draw(st.integers(0, 4)) == 0:
        return Delete(key, timestamp=draw(TIMES))
    return Delete(key, tuple(draw(st.lists(markers(), min_size=1, max_size=2))))


@st.composite
def markers(draw: st.DrawFn) -> Cell:
    kind = draw(
        st.sampled_from(
            [CellType.DELETE, CellType.DELETE_COLUMN, CellType.DELETE_FAMILY, CellType.DELETE_FAMILY_VERSION]
        )
    )
    column = draw(ANY_COLUMN)
    if kind in (CellType.DELETE_FAMILY, CellType.DELETE_FAMILY_VERSION):
        column = column.partition(b":")[0]
    return Cell(column, draw(CHOSEN if kind is CellType.DELETE_FAMILY_VERSION else TIMES), b"", kind)


@st.composite
def row_mutations(draw: st.DrawFn) -> RowMutations:
    row = draw(ROWS)
    return RowMutations(row, tuple(draw(st.lists(st.one_of(puts(row), deletes(row)), min_size=1, max_size=3))))


@st.composite
def increments(draw: st.DrawFn) -> Increment:
    amounts = draw(st.dictionaries(ANY_COLUMN, st.integers(-3, 3), min_size=1, max_size=2))
    return Increment(draw(ROWS), tuple(amounts.items()))


@st.composite
def appends(draw: st.DrawFn) -> Append:
    values = draw(st.dictionaries(ANY_COLUMN, VALUES, min_size=1, max_size=2))
    return Append(draw(ROWS), tuple(values.items()))


@dataclass(frozen=True, slots=True)
class Checked:
    check: Check
    mutation: Put | Delete | RowMutations


@st.composite
def checked(draw: st.DrawFn) -> Checked:
    row = draw(ROWS)
    value = draw(st.one_of(st.none(), VALUES))
    op = draw(st.sampled_from([CompareOp.EQUAL, CompareOp.NOT_EQUAL] if value is None else list(CompareOp)))
    change = draw(st.one_of(puts(row), deletes(row), row_mutations().map(lambda made: _of_row(made, row))))
    return Checked(Check(row, draw(COLUMNS), value, op), change)


def _of_row(made: RowMutations, row: bytes) -> RowMutations:
    return RowMutations(row, tuple(replace(one, row=row) for one in made.mutations))


COMPARISONS = st.sampled_from(["<", "<=", "=", "!=", ">=", ">"])
COMPARATORS = st.sampled_from(
    ["binary:1", "binary:v", "binary:", "binaryprefix:1", "substring:0", "regexstring:^[0-9]+$", "binary:zz"]
)
FAMILY_TEXTS = st.sampled_from(["a", "a", "b", "k"])
QUALIFIER_TEXTS = st.sampled_from(["p", "pq", "q", "", "z"])
FLAGS = st.sampled_from(["true", "false"])


ROW_TEXTS = st.sampled_from(["0", "1", "2", "2\x00", "3", "4"])


def _cell_filters() -> st.SearchStrategy[str]:
    """Filters that need no whole rows, and so may be combined with ``batch``."""
    return st.one_of(
        st.sampled_from(["KeyOnlyFilter()", "KeyOnlyFilter(true)", "FirstKeyOnlyFilter()"]),
        st.builds("ColumnPrefixFilter('{}')".format, QUALIFIER_TEXTS),
        st.lists(QUALIFIER_TEXTS, max_size=3, unique=True).map(
            lambda texts: "MultipleColumnPrefixFilter(" + ", ".join(f"'{text}'" for text in texts) + ")"
        ),
        st.builds("ColumnCountGetFilter({})".format, st.integers(1, 4)),
        st.builds("ColumnPaginationFilter({}, {})".format, st.integers(1, 3), st.integers(0, 2)),
        st.builds("TimestampsFilter({}, {})".format, CHOSEN, CHOSEN),
        st.builds("QualifierFilter({}, '{}')".format, COMPARISONS, COMPARATORS),
        st.builds("FamilyFilter({}, 'binary:{}')".format, COMPARISONS, FAMILY_TEXTS),
        st.builds("ValueFilter({}, '{}')".format, COMPARISONS, COMPARATORS),
        st.builds(f"RowFilter({{}}, 'binary:{PREFIX}{{}}')".format, COMPARISONS, ROW_TEXTS),
        st.builds(f"PrefixFilter('{PREFIX}{{}}')".format, ROW_TEXTS),
        st.builds(f"InclusiveStopFilter('{PREFIX}{{}}')".format, ROW_TEXTS),
        st.builds(
            "ColumnValueFilter('{}', '{}', {}, '{}')".format, FAMILY_TEXTS, QUALIFIER_TEXTS, COMPARISONS, COMPARATORS
        ),
        st.builds(
            "ColumnRangeFilter('{}', {}, '{}', {})".format, QUALIFIER_TEXTS, FLAGS, st.sampled_from(["q", "z"]), FLAGS
        ),
    )


def _row_filters() -> st.SearchStrategy[str]:
    """Filters that decide on whole rows."""
    family = FAMILY_TEXTS
    return st.one_of(
        st.builds("PageFilter({})".format, st.integers(0, 3)),
        st.builds(
            "SingleColumnValueFilter('{}', '{}', {}, '{}', {}, {})".format,
            family,
            QUALIFIER_TEXTS,
            COMPARISONS,
            COMPARATORS,
            FLAGS,
            FLAGS,
        ),
        st.builds(
            "SingleColumnValueExcludeFilter('{}', '{}', {}, '{}', {}, {})".format,
            family,
            QUALIFIER_TEXTS,
            COMPARISONS,
            COMPARATORS,
            FLAGS,
            FLAGS,
        ),
        st.builds("DependentColumnFilter('{}', '{}', {})".format, family, QUALIFIER_TEXTS, FLAGS),
        st.builds(
            "DependentColumnFilter('{}', '{}', {}, {}, '{}')".format,
            family,
            QUALIFIER_TEXTS,
            FLAGS,
            COMPARISONS,
            COMPARATORS,
        ),
    )


def _lists(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: "(" + " AND ".join(parts) + ")"),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: "(" + " OR ".join(parts) + ")"),
    )


#: May be combined with ``batch``.
CELL_FILTERS = st.recursive(_cell_filters(), _lists, max_leaves=4)
GOOD_FILTERS = st.recursive(
    st.one_of(_cell_filters(), _row_filters()),
    lambda inner: st.one_of(
        _lists(inner),
        # In brackets: HBase's parser refuses "(A AND SKIP B)", see docs/known-differences.md.
        st.builds("(SKIP {})".format, inner),
        st.builds("(WHILE {})".format, inner),
    ),
    max_leaves=4,
)
FILTERS = st.one_of(*[GOOD_FILTERS] * 9, st.just("NoSuchFilter()"))


@st.composite
def time_ranges(draw: st.DrawFn) -> tuple[int, int]:
    if draw(st.booleans()):
        return 0, LATEST_TIMESTAMP
    low = draw(st.integers(0, 8))
    return low, draw(st.one_of(st.integers(low + 1, 10), st.just(LATEST_TIMESTAMP)))


WANTED = st.one_of(
    st.just(()),
    st.lists(st.one_of(ANY_COLUMN, st.sampled_from([b"a", b"b", b"k"])), min_size=1, max_size=3, unique=True).map(
        tuple
    ),
)


#: A filter that does not parse is found by the gateway, a family that is not there by the region: one at a time.
KNOWN_WANTED = WANTED.filter(lambda columns: b"nope:q" not in columns)


@st.composite
def gets(draw: st.DrawFn) -> Get:
    low, high = draw(time_ranges())
    condition = draw(st.one_of(st.none(), FILTERS.map(str.encode)))
    return Get(
        draw(ROWS),
        draw(WANTED if condition is None else KNOWN_WANTED),
        max_versions=draw(st.integers(1, 4)),
        min_timestamp=low,
        max_timestamp=high,
        filter=condition,
        existence_only=draw(st.integers(0, 5)) == 0,
    )


def scans(
    filters: st.SearchStrategy[str] = FILTERS, batches: st.SearchStrategy[int | None] | None = None
) -> st.SearchStrategy[Scan]:
    """Scans with a filter or without one; by default, pieces only without. No range in which nothing can be.

    Such a range is answered by our own Thrift adapter: that proves nothing about HBase.
    """
    return _scans(filters, batches).filter(lambda scan: not wire_range(b"t", scan).is_empty)


@st.composite
def _scans(draw: st.DrawFn, filters: st.SearchStrategy[str], batches: st.SearchStrategy[int | None] | None) -> Scan:
    low, high = draw(time_ranges())
    condition = draw(st.one_of(st.none(), filters.map(str.encode)))
    if batches is None:
        batches = st.sampled_from([None, None, 1, 2]) if condition is None else st.none()
    is_reversed, is_raw = draw(st.booleans()), draw(st.integers(0, 5)) == 0
    first, last = draw(ROWS), draw(ROWS)
    return Scan(
        max(first, last) if is_reversed else min(first, last),
        min(first, last) if is_reversed else max(first, last),
        include_start=draw(st.booleans()),
        include_stop=draw(st.booleans()),
        is_reversed=is_reversed,
        # One mistake at a time: a raw scan must not name columns, either.
        columns=draw(WANTED if condition is None and not is_raw else KNOWN_WANTED),
        max_versions=draw(st.integers(1, 4)),
        min_timestamp=low,
        max_timestamp=high,
        filter=condition,
        limit=draw(st.one_of(st.none(), st.integers(1, 3))),
        caching=draw(st.sampled_from([1, 2, 1000])),
        batch=draw(batches),
        is_raw=is_raw,
    )


def _wide(scan: Scan) -> Scan:
    """The same scan over all rows of an example."""
    first, last = (b"4", b"0") if scan.is_reversed else (b"0", b"4")
    columns = tuple(column for column in scan.columns if column != b"nope:q" and not (scan.is_raw and b":" in column))
    return replace(scan, start_row=first, stop_row=last, columns=columns)


WRITES = st.one_of(puts(), puts(), deletes(), row_mutations(), increments(), appends(), checked())
OPERATIONS = st.one_of(WRITES, WRITES, gets(), scans())
#: Many rows and versions, much of them deleted again; all of families that there are.
PLAIN_WRITES = st.lists(
    st.one_of(puts(), puts(), puts(), deletes(), deletes()).filter(
        lambda write: not any(cell.family == b"nope" for cell in write.cells)
    ),
    min_size=4,
    max_size=14,
)
#: Scans in both directions over rows of which nothing may be left.
FILTERED_SCANS = st.lists(scans(GOOD_FILTERS).map(_wide), min_size=4, max_size=10)
#: Pieces of rows, with and without filters that take them.
PIECES = st.lists(scans(CELL_FILTERS, st.integers(1, 3)).map(_wide), min_size=4, max_size=10)
