"""Ranges, and the checks at the front door: what users write as table, row and column."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaclient import Connection, connect, keys

ROWS = st.binary(max_size=3)
#: All keys of up to two letters: small enough to look at every row of a range.
UNIVERSE = [bytes(k) for k in ((), *((a,) for a in b"abc"), *((a, b) for a in b"abc" for b in b"abc"))]
KEYS = st.sampled_from(UNIVERSE)


def rows_of(start: bytes, end: bytes) -> set[bytes]:
    return {row for row in UNIVERSE if start <= row and (end == b"" or row < end)}


# ---- ranges


@given(KEYS, KEYS, KEYS)
def test_contains_is_half_open(start: bytes, end: bytes, row: bytes) -> None:
    assert keys.contains(start, end, row) == (row in rows_of(start, end))


@given(KEYS, KEYS, KEYS, KEYS)
def test_overlaps_means_a_shared_row(start_a: bytes, end_a: bytes, start_b: bytes, end_b: bytes) -> None:
    rows_a, rows_b = rows_of(start_a, end_a), rows_of(start_b, end_b)
    if rows_a and rows_b:
        assert keys.overlaps(start_a, end_a, start_b, end_b) == bool(rows_a & rows_b)
        assert keys.overlaps(start_b, end_b, start_a, end_a) == keys.overlaps(start_a, end_a, start_b, end_b)


@given(KEYS, KEYS)
def test_ends_before_or_at_means_no_row_from_there_on(end: bytes, row: bytes) -> None:
    assert keys.ends_before_or_at(end, row) == (not rows_of(row, b"") & rows_of(b"", end))


@given(KEYS, KEYS, KEYS)
def test_earlier_end_is_the_end_of_the_intersection(start: bytes, end_a: bytes, end_b: bytes) -> None:
    assert rows_of(start, keys.earlier_end(end_a, end_b)) == rows_of(start, end_a) & rows_of(start, end_b)


@given(ROWS, ROWS)
def test_nothing_sorts_between_a_row_and_the_next(row: bytes, other: bytes) -> None:
    assert row < keys.next_row(row)
    assert not row < other < keys.next_row(row)


@given(st.binary(max_size=3), st.binary(max_size=5))
def test_prefix_stop_separates_the_rows_with_the_prefix(prefix: bytes, row: bytes) -> None:
    assert keys.contains(prefix, keys.prefix_stop(prefix), row) == row.startswith(prefix)


@pytest.mark.parametrize(
    ("prefix", "stop"),
    [
        (b"", b""),
        (b"a", b"b"),
        (b"a\xff", b"b"),
        (b"\xff\xff", b""),
        (b"a\xfe", b"a\xff"),
        (b"\0", b"\1"),
        (b"\xffa\xff", b"\xffb"),
    ],
)
def test_prefix_stop(prefix: bytes, stop: bytes) -> None:
    assert keys.prefix_stop(prefix) == stop


# ---- tables


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("t1", b"t1"),
        (b"t1", b"t1"),
        ("default:t1", b"t1"),
        ("ns1:orders", b"ns1:orders"),
        ("hbase:meta", b"hbase:meta"),
        ("_a.b-c", b"_a.b-c"),
        ("9", b"9"),
        ("tä", "tä".encode()),
        ("名前:表", "名前:表".encode()),
        ("ns:zookeeper2", b"ns:zookeeper2"),
        ("t" * 32706, b"t" * 32706),
    ],
)
def test_legal_table_names(value: str | bytes, name: bytes) -> None:
    assert keys.table_name(value) == name
    assert keys.table_name(name) == name


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("", "must not be empty"),
        ("ns1:", "nothing after its namespace"),
        (":t1", "empty namespace"),
        (".t1", "must not start with '.'"),
        ("-t1", "must not start with '-'"),
        ("ns1:-t1", "must not start with '-'"),
        ("t 1", "has ' '"),
        ("t,1", "has ','"),
        ("t/1", "has '/'"),
        ("t1\n", r"has '\\n'"),
        ("a:b:c", "has ':' in its namespace"),
        ("n-s:t", "has '-' in its namespace"),
        ("zookeeper", "called zookeeper"),
        ("ns1:zookeeper", "called zookeeper"),
        ("zookeeper:t1", "called zookeeper"),
        ("t\U0001d538", "has '\U0001d538'"),  # a letter to Unicode, two surrogates to TableName
        (b"t\xff", "not UTF-8 at byte 1"),
        ("t" * 32707, "the limit is 32706"),
        ("t\ud800", "cannot be written as UTF-8"),
    ],
)
def test_illegal_table_names_are_refused_with_their_fault(value: str | bytes, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        keys.table_name(value)


@given(st.one_of(st.text(max_size=8), st.binary(max_size=8)))
def test_an_accepted_table_name_cannot_be_mistaken_in_a_region_name(value: str | bytes) -> None:
    try:
        name = keys.table_name(value)
    except ValueError:
        return
    assert b"," not in name
    assert b" " not in name
    assert name.count(b":") <= 1
    assert keys.table_name(name) == name


@pytest.mark.parametrize("value", [None, 7, bytearray(b"t1"), ["t1"]])
def test_other_types_are_refused_by_name(value: object) -> None:
    with pytest.raises(TypeError, match=f"'table' must be bytes or text, got {type(value).__name__}"):
        keys.table_name(value)  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(TypeError, match="'row_start' must be"):
        keys.row_key(value, "row_start")  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(TypeError, match="'column' must be"):
        keys.column_name(value, family_only_ok=True)  # type: ignore[arg-type]  # the point of the test


# ---- rows


def test_row_key_takes_text_and_bytes_up_to_the_limit() -> None:
    assert keys.row_key("zeile-ü") == "zeile-ü".encode()
    assert keys.row_key(b"\0\xff") == b"\0\xff"
    assert len(keys.row_key(b"r" * 32767)) == 32767


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("", "row must not be empty"),
        (b"", "row must not be empty"),
        (b"r" * 32768, "has 32768 bytes"),
        ("\ud800", "UTF-8"),
    ],
)
def test_impossible_rows_are_refused(value: str | bytes, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        keys.row_key(value)


# ---- columns


@pytest.mark.parametrize(
    "value", ["cf:q", "cf:", "cf:a:b", "cf:\0", "f.g:q", "f" * 127 + ":q", "ä:q", "recovered.edits2:q"]
)
def test_legal_columns(value: str) -> None:
    assert keys.column_name(value, family_only_ok=False) == value.encode()
    assert keys.column_name(value.encode(), family_only_ok=True) == value.encode()


def test_a_family_alone_only_where_it_makes_sense() -> None:
    assert keys.column_name("cf", family_only_ok=True) == b"cf"
    with pytest.raises(ValueError, match="columns 'cf' has no qualifier: write 'family:name'"):
        keys.column_name("cf", "columns", family_only_ok=False)


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("", "family before the colon is missing"),
        (":q", "family before the colon is missing"),
        (".cf:q", "start with a period"),
        ("c/f:q", "control characters"),
        ("c\\f:q", "control characters"),
        ("c\nf:q", "control characters"),
        ("cf\n:q", "control characters"),
        ("c\x7ff:q", "control characters"),
        ("recovered.edits:q", "recovered.edits"),
        ("f" * 128 + ":q", "has 128 bytes"),
    ],
)
def test_illegal_families_are_refused_with_their_fault(value: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        keys.column_name(value, family_only_ok=True)


# ---- for people


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", ""),
        (b"row-1", "row-1"),
        (b"a\0\n\x7f\xff~ ", r"a\x00\x0A\x7F\xFF~ "),
        (b"\\", r"\x5C"),
        (b"x" * 64, "x" * 64),
        (b"x" * 65, "x" * 64 + "…"),
    ],
)
def test_printable(data: bytes, text: str) -> None:
    assert keys.printable(data) == text


@given(st.binary(max_size=100))
def test_printable_without_cut_says_all(data: bytes) -> None:
    text = keys.printable(data, 100)
    assert text.encode().decode("unicode_escape").encode("latin-1") == data


@pytest.mark.parametrize(
    "call",
    [
        lambda connection, text: connection.locate("t", text),
        lambda connection, text: connection.table("t").scan(row_start=text),
        lambda connection, text: connection.table("t").put(b"r", {b"cf:a": text}),
        lambda connection, text: connection.table("t").row(text),
    ],
)
def test_a_lone_surrogate_is_refused_by_name_in_every_argument(call: Callable[[Connection, str], object]) -> None:
    """``str.encode`` alone raises UnicodeEncodeError, which does not name the argument."""
    with connect("scripted:") as connection:
        connection.create_table("t", {"cf": {}})
        with pytest.raises(ValueError, match="cannot be written as UTF-8"):
            call(connection, "a\ud800")
