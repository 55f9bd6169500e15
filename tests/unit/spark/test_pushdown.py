"""What is pushed for which condition: ranges, points, filters, and the columns that a scan must ask for."""

from __future__ import annotations

import struct

import pytest

from spark_connector.conditions import key_ranges as key_ranges_module
from spark_connector.conditions.condition import Constant, Expression, In, col
from spark_connector.conditions.expressions import bind
from spark_connector.conditions.pushdown import FILTER_BYTES_MAX, Pushed, push, scan_columns, without_not
from spark_connector.conditions.sql_text import parse_where
from spark_connector.schema.catalog import Catalog
from spark_connector.schema.ranges import EVERYTHING, KeyRange


def pushed(catalog: Catalog, where: str | Expression) -> Pushed:
    condition = parse_where(where) if isinstance(where, str) else where
    return push(bind(condition, catalog), catalog)


def ranges(*pairs: tuple[bytes, bytes]) -> tuple[KeyRange, ...]:
    return tuple(KeyRange(start, stop) for start, stop in pairs)


def four(number: int) -> bytes:
    return struct.pack(">i", number)


TEXT = Catalog.from_mapping("t", "k STRING :k, i INT f:i, s STRING f:s, d DOUBLE g:d, b BINARY g:b")
NUMBER = Catalog.from_mapping("t", "k INT :k, i INT f:i")
PARTS = Catalog.from_mapping("t", "a STRING :a, b INT :b, c STRING :c, v INT f:v")
SORTED = Catalog.from_mapping("t", "k DOUBLE :k, v INT f:v", default_coder="orderedbytes")
FLOATS = Catalog.from_mapping("t", "k DOUBLE :k, v INT f:v")
SIGN = b"\x80"


@pytest.mark.parametrize(
    ("catalog", "where", "expected", "points"),
    [
        (TEXT, "i = 1", EVERYTHING, ()),
        (TEXT, "k = 'a'", (), (b"a",)),
        (TEXT, "k IN ('b', 'a', NULL)", (), (b"a", b"b")),
        (TEXT, "k > 'a' AND k <= 'c'", ranges((b"a\0", b"c\0")), ()),
        (TEXT, "k BETWEEN 'a' AND 'b' OR k > 'x'", ranges((b"a", b"b\0"), (b"x\0", b"")), ()),
        (TEXT, "k LIKE 'ab%'", ranges((b"ab", b"ac")), ()),
        (TEXT, "k LIKE 'ab%x_'", ranges((b"ab", b"ac")), ()),
        (TEXT, "k LIKE 'ab'", (), (b"ab",)),
        (TEXT, "k LIKE '%b'", EVERYTHING, ()),
        (TEXT, "NOT k < 'm'", ranges((b"m", b"")), ()),
        (TEXT, "k = 'a' OR i = 1", EVERYTHING, ()),
        (TEXT, "k = 'a' AND i = 1", (), (b"a",)),
        (TEXT, "k = 'a' AND k = 'b'", (), ()),
        (TEXT, "k <> 'a'", EVERYTHING, ()),
        (TEXT, "k IS NOT NULL", EVERYTHING, ()),
        (TEXT, "k = NULL", (), ()),
        (TEXT, "k NOT IN ('a', NULL)", (), ()),
        (TEXT, "NOT (k >= 'b' OR k < 'a')", ranges((b"a", b"b")), ()),
        (NUMBER, "k = -1", (), (b"\xff" * 4,)),
        (NUMBER, "k >= 5", ranges((four(5), SIGN)), ()),
        (NUMBER, "k < 5", ranges((b"", four(5)), (SIGN, b"")), ()),
        (NUMBER, "k > -3", ranges((b"", SIGN), (four(-3) + b"\0", b"")), ()),
        (NUMBER, "k <= -3", ranges((SIGN, four(-3) + b"\0")), ()),
        (NUMBER, "k BETWEEN -1 AND 1", ranges((b"", four(1) + b"\0"), (four(-1), b"")), ()),
        (NUMBER, "k > 3.5 AND k < 4.5", ranges((four(3) + b"\0", four(4) + b"\0")), ()),
        (NUMBER, "k > 99999999999", (), ()),
        (NUMBER, "k < 99999999999", EVERYTHING, ()),
        (PARTS, "a = 'x'", ranges((b"x\0", b"x\1")), ()),
        (PARTS, "a = 'x' AND b = 7", ranges((b"x\0" + four(7), b"x\0" + four(8))), ()),
        (PARTS, "a = 'x' AND b = 7 AND c = 'z'", (), (b"x\0" + four(7) + b"z",)),
        (PARTS, "a = 'x' AND b = 7 AND c LIKE 'z%'", ranges((b"x\0" + four(7) + b"z", b"x\0" + four(7) + b"{")), ()),
        (PARTS, "a = 'x' AND b >= 7", ranges((b"x\0" + four(7), b"x\0" + SIGN)), ()),
        (PARTS, "a = 'x' AND c = 'z'", ranges((b"x\0", b"x\1")), ()),
        (PARTS, "b = 7", EVERYTHING, ()),
        (PARTS, "a IN ('x', 'y') AND b = 7", ranges(*((p + four(7), p + four(8)) for p in (b"x\0", b"y\0"))), ()),
        (PARTS, "a > 'x'", ranges((b"x\1", b"")), ()),
        (PARTS, "a LIKE 'x%'", ranges((b"x", b"y")), ()),
        (
            PARTS,
            "(a = 'x' AND b = 1) OR (a = 'y' AND b = 2)",
            ranges((b"x\0" + four(1), b"x\0" + four(2)), (b"y\0" + four(2), b"y\0" + four(3))),
            (),
        ),
        (FLOATS, "k > 1.5", EVERYTHING, ()),
        (FLOATS, "k = 1.5", EVERYTHING, ()),
        (SORTED, "k <= 1.5", ranges((b"", b"\x31\xbf\xf8" + bytes(6) + b"\0")), ()),
    ],
)
def test_row_keys(catalog: Catalog, where: str, expected: tuple[KeyRange, ...], points: tuple[bytes, ...]) -> None:
    found = pushed(catalog, where)
    assert (found.ranges, found.points) == (expected, points)


def single(column: str, operator: str, value: bytes, missing: bytes = b"true") -> bytes:
    family, _, qualifier = column.encode().partition(b":")
    return b"SingleColumnValueFilter('%b','%b',%b,'%b',%b,true)" % (
        family,
        qualifier,
        operator.encode(),
        value,
        missing,
    )


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("s = 'x'", single("f:s", "=", b"binary:x")),
        ("s = 'it\\'s'", single("f:s", "=", b"binary:it''s")),
        ("s <> 'x'", single("f:s", "!=", b"binary:x")),
        ("s > 'x' AND s <= 'y'", b"(%b AND %b)" % (single("f:s", ">", b"binary:x"), single("f:s", "<=", b"binary:y"))),
        ("s IN ('x', 'y')", b"(%b OR %b)" % (single("f:s", "=", b"binary:x"), single("f:s", "=", b"binary:y"))),
        ("s LIKE 'x%'", single("f:s", "=", b"binaryprefix:x")),
        ("s LIKE '%x'", single("f:s", ">=", b"binary:")),
        ("s NOT LIKE 'x%'", single("f:s", ">=", b"binary:")),
        ("s IS NULL", single("f:s", "<", b"binary:", b"false")),
        ("s IS NOT NULL", single("f:s", ">=", b"binary:")),
        ("i >= 5", b"(%b AND %b)" % (single("f:i", ">=", b"binary:" + four(5)), single("f:i", "<", b"binary:\x80"))),
        ("i < 0", single("f:i", ">=", b"binary:\x80")),
        ("i > 99999999999", single("f:i", "<", b"binary:")),
        ("d > 1.5", single("g:d", ">=", b"binary:")),  # at least it must be there
        ("d <> 1.5", single("g:d", "!=", b"binary:" + struct.pack(">d", 1.5))),
        ("k = 'a' OR s = 'x'", None),
        ("k = 'a' AND s = 'x'", single("f:s", "=", b"binary:x")),
        (
            "s = 'x' OR i IS NULL",
            b"(%b OR %b)" % (single("f:s", "=", b"binary:x"), single("f:i", "=", b"binary:", b"false")),
        ),  # an empty cell of a number is null, too
        (
            "NOT (s <=> 'x')",
            b"(%b OR %b)" % (single("f:s", "<", b"binary:", b"false"), single("f:s", "!=", b"binary:x")),
        ),
    ],
)
def test_filters(where: str, expected: bytes | None) -> None:
    assert pushed(TEXT, where).filter == expected


def test_columns_of_a_filter_and_what_must_be_there() -> None:
    found = pushed(TEXT, "s = 'x' AND (i = 1 OR d IS NULL) AND k > 'a'")
    assert found.filter_columns == (b"f:i", b"f:s", b"g:d")
    assert found.present == {b"f:s"}
    assert found.columns == ("s", "i", "d", "k")


def test_null_is_not_absence_where_nulls_can_be_written_or_bad_values_are_null() -> None:
    catalog = Catalog.from_mapping("t", "k STRING :k, s STRING f:s", default_coder="phoenix")
    assert pushed(catalog, "s IS NULL").filter is None
    assert push(bind(col("s").is_null(), TEXT), TEXT, bad_values_are_null=True).filter is None


def test_filters_can_be_switched_off_and_qualifiers_that_cannot_be_written_get_none() -> None:
    condition = bind(col("s") == "x", TEXT)
    assert push(condition, TEXT, value_filters=False).filter is None
    columns = {"k": {"cf": "rowkey", "col": "k", "type": "string"}}
    for qualifier in ("", "'q"):
        odd = {**columns, "s": {"cf": "f", "col": qualifier, "type": "string"}}
        catalog = Catalog.parse({"table": {"name": "t"}, "rowkey": "k", "columns": odd})
        assert push(bind(col("s") == "x", catalog), catalog).filter is None


def test_large_conditions_stay_bounded() -> None:
    many = pushed(TEXT, In("s", tuple(f"{n:06d}" for n in range(5000))))
    assert many.filter is not None
    assert len(many.filter) < FILTER_BYTES_MAX
    wide = col("s") == "x"
    for number in range(2000):
        wide = wide & (col("b") != bytes([number % 256]) * 20)
    found = pushed(TEXT, wide)
    assert found.filter is not None
    assert len(found.filter) < 2 * FILTER_BYTES_MAX


def test_many_ranges_are_covered_by_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_ranges_module, "RANGES_MAX", 10)
    monkeypatch.setattr(key_ranges_module, "POINTS_MAX", 20)
    points = pushed(TEXT, In("k", tuple(f"{n:03d}" for n in range(100))))
    assert not points.points
    assert len(points.ranges) <= 10
    assert all(any(each.contains(f"{n:03d}".encode()) for each in points.ranges) for n in range(100))
    parts = pushed(PARTS, In("a", tuple("abcdefghijklmnop")) & In("b", tuple(range(10))) & (col("c") > "x"))
    assert len(parts.ranges) <= 20


def test_within_keeps_to_the_ranges_that_are_asked_for() -> None:
    found = pushed(TEXT, "k IN ('a', 'c') OR k > 'm'").within([KeyRange(b"b", b"p")])
    assert (found.ranges, found.points) == (ranges((b"m\0", b"p")), (b"c",))
    nothing = pushed(TEXT, "k = 'a'").within([KeyRange(b"b", b"")])
    assert (nothing.ranges, nothing.points) == ((), ())


@pytest.mark.parametrize(
    ("where", "names", "columns", "filter"),
    [
        (None, ["k", "i", "s", "d", "b"], (b"f:i", b"f:s", b"g:b", b"g:d"), None),
        (None, ["k"], (b"f:i", b"f:s", b"g:b", b"g:d"), b"(FirstKeyOnlyFilter() AND KeyOnlyFilter())"),
        (
            None,
            ["k", "i"],
            (b"f:i", b"f:s", b"g:b", b"g:d"),
            b"(FirstKeyOnlyFilter() OR QualifierFilter(=,'binary:i'))",
        ),
        ("s = 'x'", ["k", "s"], (b"f:s",), single("f:s", "=", b"binary:x")),
        ("s = 'x'", ["k", "i"], (b"f:i", b"f:s"), single("f:s", "=", b"binary:x")),
        (
            "s IS NULL",
            ["i", "s"],
            (b"f:i", b"f:s", b"g:b", b"g:d"),
            b"(%b AND (FirstKeyOnlyFilter() OR QualifierFilter(=,'binary:i') OR QualifierFilter(=,'binary:s')))"
            % single("f:s", "<", b"binary:", b"false"),
        ),
    ],
)
def test_pruned_scans(where: str | None, names: list[str], columns: tuple[bytes, ...], filter: bytes | None) -> None:
    found = scan_columns(TEXT, names, Pushed() if where is None else pushed(TEXT, where))
    assert (found.columns, found.filter) == (columns, filter)


@pytest.mark.parametrize(
    ("where", "expected"),
    [("NOT TRUE", False), ("NULL OR FALSE", False), ("NOT NULL", False), ("TRUE AND NOT FALSE", True)],
)
def test_constants_fold(where: str, expected: bool) -> None:
    assert without_not(parse_where(where)) == Constant(expected)
