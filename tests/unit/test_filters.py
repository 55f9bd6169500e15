"""Filters that are built in Python: their text, and what is refused when they are made."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from metaclient import filters as f
from metaclient.wire import filter_language
from metaclient.wire.filter_arguments import SIGNATURES

BUILT: dict[str, f.Filter] = {
    "PrefixFilter('u')": f.prefix("u"),
    "RowFilter(<, 'binary:m')": f.row() < b"m",
    "RowFilter(=, 'regexstringnocase:^A')": f.row().matches("^A", ignore_case=True),
    "FamilyFilter(=, 'binary:d')": f.family() == b"d",
    "QualifierFilter(!=, 'binary:q')": f.qualifier() != "q",
    "ValueFilter(=, 'substring:it''s')": f.value().contains("it's"),
    "SingleColumnValueFilter('d', 'age', <=, 'binary:a', true, true)": f.column("d:age") <= "a",
    "SingleColumnValueFilter('d', 'a:b', =, 'binary:x:y', false, true)": f.column("d:a:b", missing=True) == "x:y",
    "SingleColumnValueExcludeFilter('d', 'age', >, 'binary:a', true, true)": f.column(b"d:age", hide=True) > b"a",
    "ColumnValueFilter('d', '', =, 'binary:')": f.cell("d:") == b"",
    "ColumnPrefixFilter('a')": f.column_prefix("a", b"a"),
    "MultipleColumnPrefixFilter('a', 'b')": f.column_prefix("b", "a"),
    "ColumnRangeFilter('', true, 'c', false)": f.column_range(stop="c"),
    "ColumnRangeFilter('a', false, '', true)": f.column_range(b"a", include_start=False, include_stop=True),
    "ColumnCountGetFilter(3)": f.column_count(3),
    "ColumnPaginationFilter(3, 5)": f.column_page(3, 5),
    "PageFilter(10)": f.page(10),
    "KeyOnlyFilter(true)": f.keys_only(lengths=True),
    "FirstKeyOnlyFilter()": f.first_cell(),
    "InclusiveStopFilter('m')": f.stop_after("m"),
    "TimestampsFilter(1, 2)": f.timestamps(2, 1, 2),
    "DependentColumnFilter('d', 'q', true)": f.dependent_column("d:q", hide=True),
    "SKIP PrefixFilter('a')": f.skip(f.prefix("a")),
    "WHILE (PrefixFilter('a') OR PageFilter(1))": f.while_(f.prefix("a") | f.page(1)),
    "(PrefixFilter('a') AND PageFilter(1) AND PageFilter(2))": f.prefix("a") & f.page(1) & f.page(2),
    "((PrefixFilter('a') AND PageFilter(1)) OR PageFilter(2))": (f.prefix("a") & f.page(1)) | f.page(2),
}


@pytest.mark.parametrize("text", BUILT)
def test_built_filter_has_the_text_of_hbases_language(text: str) -> None:
    built = BUILT[text]
    assert str(built) == text
    assert bytes(built) == text.encode()
    assert f.parse(text) == built
    assert pickle.loads(pickle.dumps(built)) == built
    assert hash(f.parse(text)) == hash(built)


def test_every_filter_of_hbases_language_can_be_built() -> None:
    texts = " ".join(BUILT)
    assert [name for name in SIGNATURES if f"{name}(" not in texts] == []


def test_numbers_are_compared_as_counters_are_stored() -> None:
    assert bytes(f.value() == -1) == b"ValueFilter(=, 'binary:" + b"\xff" * 8 + b"')"
    assert bytes(f.value() >= 40) == b"ValueFilter(>=, 'binary:\0\0\0\0\0\0\0(')"
    assert f.number(-2, 2) == b"\xff\xfe"


def test_bytes_that_are_no_text_are_sent_as_they_are() -> None:
    built = f.row() >= b"\xff'\x00"
    assert bytes(built) == b"RowFilter(>=, 'binary:\xff''\x00')"
    assert filter_language.parse(bytes(built)) == filter_language.parse(bytes(f.parse(bytes(built))))
    assert str(built) == "RowFilter(>=, 'binary:\\xff''\x00')"


def test_long_chain_is_one_list_and_not_nested() -> None:
    built = f.row() == b"0"
    for number in range(1, 500):
        built |= f.row() == b"%d" % number
    assert bytes(built).count(b"(") == 501


REFUSED: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "comparison without brackets": (lambda: f.prefix("a") & f.row() < b"m", TypeError, "with brackets"),
    "comparison without brackets, first": (lambda: f.row() & f.prefix("a"), TypeError, "with brackets"),
    "and": (lambda: f.prefix("a") and f.prefix("b"), TypeError, "& and |"),
    "chained comparison": (lambda: b"a" < f.row() < b"m", TypeError, "& and |"),  # type: ignore[operator]
    "negation": (lambda: ~f.prefix("a"), TypeError, "opposite"),
    "operand that is text": (lambda: f.prefix("a") & "PageFilter(1)", TypeError, "combines two filters, got str"),
    "truth of what is not compared": (lambda: bool(f.row()), TypeError, "no filter until it is compared"),
    "order of negative numbers": (lambda: f.value() < -1, ValueError, "negative numbers are greater"),
    "number of a wrong type": (lambda: f.page("1"), TypeError, "'page_size' must be a whole number"),  # type: ignore[arg-type]
    "negative number": (lambda: f.page(-1), f.FilterSyntaxError, "must not be negative"),
    "number that is too large": (lambda: f.column_count(2**31), f.FilterSyntaxError, "not between"),
    "value of a wrong type": (lambda: f.value() == 1.5, TypeError, "got float"),
    "number that is too wide": (lambda: f.value() == 2**63, ValueError, "does not fit into 8 bytes"),
    "column without a qualifier": (lambda: f.column("d"), ValueError, "no qualifier"),
    "no prefix": (f.column_prefix, ValueError, "at least one"),
    "no timestamp": (f.timestamps, ValueError, "at least one"),
    "timestamp of a wrong type": (lambda: f.timestamps("x"), TypeError, "must be a whole number"),  # type: ignore[arg-type]
    "skip of text": (lambda: f.skip("x"), TypeError, "got str"),  # type: ignore[arg-type]
    "text that is wrong": (lambda: f.parse("PrefixFilter('a"), f.FilterSyntaxError, "<here>"),
    "key of a dict": (lambda: {f.row(): 1}, TypeError, "unhashable"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_mistake_is_refused_when_the_filter_is_made(name: str) -> None:
    make, error, text = REFUSED[name]
    with pytest.raises(error) as caught:
        make()
    assert text in str(caught.value)


def test_what_is_not_compared_is_refused_by_a_scan() -> None:
    from metaclient.arguments import make_get

    with pytest.raises(TypeError, match="no filter until it is compared"):
        make_get(b"r", None, None, f.row())  # type: ignore[arg-type]
