"""Random structures of Thrift 2, as clients in any language may send them: fields set or not, columns twice."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from metaclient.wire.thrift.idl import thrift2

T = thrift2()
#: A method of THBaseService and its arguments after the table.
Call = tuple[str, tuple[Any, ...]]

ROWS = st.sampled_from([b"1", b"1", b"2", b"3"])
FAMILIES = st.sampled_from([b"a", b"a", b"b", b"k"])
QUALIFIERS = st.sampled_from([b"p", b"p", b"q", b""])
VALUES = st.sampled_from([b"", b"1", b"2", b"\x00" * 7 + b"\x05"])
STAMPS = st.one_of(st.none(), st.integers(1, 9))
RANGES = st.one_of(st.none(), st.tuples(st.integers(0, 5), st.integers(5, 10)).map(lambda pair: T.TTimeRange(*pair)))


@st.composite
def columns(draw: st.DrawFn) -> Any:
    return T.TColumn(draw(FAMILIES), draw(st.one_of(st.none(), QUALIFIERS)), draw(STAMPS))


@st.composite
def full_columns(draw: st.DrawFn) -> Any:
    return T.TColumn(draw(FAMILIES), draw(QUALIFIERS), draw(STAMPS))


@st.composite
def values(draw: st.DrawFn) -> Any:
    return T.TColumnValue(draw(FAMILIES), draw(QUALIFIERS), draw(VALUES), draw(STAMPS))


@st.composite
def puts(draw: st.DrawFn, row: bytes | None = None) -> Any:
    return T.TPut(row or draw(ROWS), draw(st.lists(values(), min_size=1, max_size=4)), draw(STAMPS))


@st.composite
def deletes(draw: st.DrawFn, row: bytes | None = None) -> Any:
    kind = draw(st.sampled_from([None, 0, 1, 2, 2, 2, 3]))
    wanted = columns() if kind in (2, 3) else full_columns()
    chosen = draw(st.one_of(st.none(), st.lists(wanted, max_size=4)))
    made = T.TDelete(row or draw(ROWS), chosen, draw(STAMPS))
    if kind is not None:
        made.deleteType = kind
    return made


@st.composite
def increments(draw: st.DrawFn) -> Any:
    amounts = st.builds(T.TColumnIncrement, FAMILIES, QUALIFIERS, st.integers(-3, 3))
    chosen = draw(st.lists(amounts, min_size=1, max_size=3))
    return T.TIncrement(draw(ROWS), chosen, returnResults=draw(st.sampled_from([None, True, False])))


@st.composite
def appends(draw: st.DrawFn) -> Any:
    chosen = draw(st.lists(values(), min_size=1, max_size=3))
    return T.TAppend(draw(ROWS), chosen, returnResults=draw(st.sampled_from([None, True, False])))


@st.composite
def row_mutations(draw: st.DrawFn, row: bytes | None = None) -> Any:
    key = row or draw(ROWS)
    put, delete = puts(key).map(lambda one: T.TMutation(put=one)), deletes(key).map(lambda one: T.TMutation(None, one))
    return T.TRowMutations(key, draw(st.lists(st.one_of(put, delete), min_size=1, max_size=3)))


@st.composite
def gets(draw: st.DrawFn) -> Any:
    made = T.TGet(draw(ROWS), draw(st.one_of(st.none(), st.lists(columns(), max_size=3))))
    made.timestamp, made.timeRange = draw(STAMPS), draw(RANGES)
    made.maxVersions = draw(st.one_of(st.none(), st.integers(1, 4)))
    made.storeLimit = draw(st.sampled_from([None, None, None, 0, 1, 2]))
    made.storeOffset = draw(st.sampled_from([None, None, None, 0, 1]))
    return made


@st.composite
def scans(draw: st.DrawFn) -> Any:
    made = T.TScan(b"0", b"9", draw(st.one_of(st.none(), st.lists(columns(), max_size=3))))
    if draw(st.booleans()):
        made.startRow, made.stopRow, made.reversed = b"9", b"0", True
    made.caching = draw(st.sampled_from([None, 1, 2, 100]))
    made.maxVersions = draw(st.sampled_from([None, 1, 2, 4]))
    made.timeRange = draw(RANGES)
    made.batchSize = draw(st.sampled_from([None, None, 1, 2]))
    made.limit = draw(st.sampled_from([None, None, 1, 2, 3]))
    return made


@st.composite
def checks(draw: st.DrawFn) -> Call:
    row = draw(ROWS)
    where, value = (row, draw(FAMILIES), draw(QUALIFIERS)), draw(VALUES)
    match draw(st.sampled_from(["checkAndPut", "checkAndDelete", "checkAndMutate"])):
        case "checkAndPut":
            return "checkAndPut", (*where, draw(st.one_of(st.none(), st.just(value))), draw(puts(row)))
        case "checkAndDelete":
            return "checkAndDelete", (*where, draw(st.one_of(st.none(), st.just(value))), draw(deletes(row)))
    return "checkAndMutate", (*where, draw(st.integers(0, 5)), value, draw(row_mutations(row)))


def _calls(method: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Call]:
    return st.tuples(st.just(method), st.tuples(*arguments))


WRITES = st.one_of(
    _calls("put", puts()),
    _calls("put", puts()),
    _calls("putMultiple", st.lists(puts(), min_size=1, max_size=3, unique_by=lambda one: one.row)),
    _calls("deleteSingle", deletes()),
    _calls("deleteSingle", deletes()),
    _calls("deleteMultiple", st.lists(deletes(), min_size=1, max_size=3, unique_by=lambda one: one.row)),
    _calls("increment", increments()),
    _calls("append", appends()),
    _calls("mutateRow", row_mutations()),
    checks(),
)
READS = st.one_of(
    _calls("get", gets()),
    _calls("exists", gets()),
    _calls("getMultiple", st.lists(gets(), min_size=1, max_size=3)),
    _calls("existsAll", st.lists(gets(), min_size=1, max_size=3)),
    _calls("getScannerResults", scans(), st.sampled_from([1, 3, 100])),
)
CALLS = st.lists(st.one_of(WRITES, WRITES, READS), min_size=1, max_size=15)
EVERYTHING: Call = ("getScannerResults", (T.TScan(b"0", b"9", maxVersions=100), 1000))
