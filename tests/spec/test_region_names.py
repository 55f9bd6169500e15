"""Names of regions, the order of hbase:meta and the keys that search it: worked examples, then properties."""

from __future__ import annotations

import bisect
import functools
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from metaclient import keys

DATA: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "region_names.json").read_text("utf-8"))

TABLES = st.sampled_from([b"t", b"t1", b"t-y", b"t.x", b"t_", b"ns1:t", b"hbase:namespace", "tä".encode()])
#: Few letters, so that keys are often prefixes of each other, and all those that could be mistaken for structure.
NASTY = st.lists(st.sampled_from([b",", b"\0", b"a", b"b", b"9", b":", b".", b"_", b" ", b"\xff"]), max_size=6).map(
    b"".join
)
START_KEYS = st.one_of(NASTY, st.binary(max_size=40))
#: Times in ms, between the ids of the search keys.
REGION_IDS = st.integers(1, 99999999999998)


def latin(text: str) -> bytes:
    return text.encode("latin-1")


# ---- names


@pytest.mark.parametrize("case", DATA["names"], ids=lambda case: case["name"])
def test_region_name_and_encoded_name(case: dict[str, Any]) -> None:
    table, start, name = latin(case["table"]), latin(case["start"]), latin(case["name"])
    assert keys.region_name(table, start, case["id"], case["replica"]) == name
    assert len(name) == case["length"]
    assert keys.encoded_region_name(name) == case["encoded"]
    assert keys.parse_region_name(name) == (table, start, case["id"], case["replica"])


def test_meta_region_names_are_those_of_the_table() -> None:
    meta = [case for case in DATA["names"] if case["table"] == "hbase:meta"]
    assert [keys.meta_region_name(case["replica"]) for case in meta] == [latin(case["name"]) for case in meta]


@pytest.mark.parametrize("case", DATA["broken_names"], ids=lambda case: repr(case["name"]))
def test_broken_name_is_refused_with_its_fault(case: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=case["fault"]):
        keys.parse_region_name(latin(case["name"]))


@pytest.mark.parametrize("name", [b".", b"t1,a,1.", b"0f66090624927db18e5c2d8176c836d0."])
def test_encoded_name_of_a_crippled_suffix_is_refused(name: bytes) -> None:
    with pytest.raises(ValueError, match="ends with a dot"):
        keys.encoded_region_name(name)


@pytest.mark.parametrize("replica_id", [-1, 0x10000])
def test_replica_that_does_not_fit_four_digits_is_refused(replica_id: int) -> None:
    with pytest.raises(ValueError, match="replica id"):
        keys.region_name(b"t", b"", 1, replica_id)


@given(TABLES, START_KEYS, st.integers(-(2**63), 2**63 - 1), st.integers(0, keys.REPLICA_ID_MAX))
def test_name_parses_to_what_it_was_made_of(table: bytes, start: bytes, region_id: int, replica_id: int) -> None:
    name = keys.region_name(table, start, region_id, replica_id)
    assert keys.parse_region_name(name) == (table, start, region_id, replica_id)
    assert keys.parse_region_name(name[:-34]) == (table, start, region_id, replica_id)
    assert name.endswith(b".%b." % keys.encoded_region_name(name).encode())


@given(st.one_of(st.binary(), NASTY))
def test_parsing_garbage_raises_value_error_only(name: bytes) -> None:
    try:
        table, _, _, replica_id = keys.parse_region_name(name)
    except ValueError:
        return
    assert table
    assert 0 <= replica_id <= keys.REPLICA_ID_MAX


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0xDEADBEEF),  # driver5() of lookup3.c
        (b"Four score and seven years ago", 0x17770551),  # driver5() of lookup3.c
        # Computed with a C version: the last block may be a full one.
        (b"a", 0x58D68708),
        (b"12345678901", 0x7A7947D1),
        (b"123456789012", 0xB578F5B0),
        (b"123456789012345678901234", 0xCAFCBCA6),
    ],
)
def test_lookup3(data: bytes, expected: int) -> None:
    assert keys._lookup3(data) == expected


def test_absolute_value_is_that_of_32_bits() -> None:
    assert [keys._absolute32(value) for value in (5, 0xFFFFFFFB, 0x80000000)] == [5, 5, -(2**31)]


# ---- order


@pytest.mark.parametrize("rows", DATA["orders"]["meta"])
def test_meta_order(rows: list[str]) -> None:
    expected = [latin(row) for row in rows]
    shuffled = random.Random(7).sample(expected, len(expected))
    assert sorted(shuffled, key=keys.meta_sort_key) == expected


@pytest.mark.parametrize("rows", DATA["orders"]["plain"])
def test_plain_byte_order_is_another_one(rows: list[str]) -> None:
    plain = sorted(latin(row) for row in rows)
    assert plain == [latin(row) for row in rows]
    assert sorted(plain, key=keys.meta_sort_key) == plain[::-1]


def compare_rows(left: bytes, right: bytes) -> int:
    """MetaCellComparator.compareRows, comma by comma as it is written there."""
    first = [row.find(b",") for row in (left, right)]
    heads = [row if at < 0 else row[:at] for row, at in zip((left, right), first, strict=True)]
    if heads[0] != heads[1]:
        return -1 if heads[0] < heads[1] else 1
    if first[0] < 0 or first[1] < 0:
        return (first[0] >= 0) - (first[1] >= 0)
    tails = [row[at + 1 :] for row, at in zip((left, right), first, strict=True)]
    far = [tail.rfind(b",") for tail in tails]
    middles = [tail if at < 0 else tail[:at] for tail, at in zip(tails, far, strict=True)]
    if middles[0] != middles[1]:
        return -1 if middles[0] < middles[1] else 1
    pairs = zip((left, right), tails, far, strict=True)
    ids = [row if at < 0 else tail[at + 1 :] for row, tail, at in pairs]
    return (ids[0] > ids[1]) - (ids[0] < ids[1])


@given(st.lists(st.one_of(NASTY, st.binary(max_size=12)), max_size=12))
def test_meta_order_is_that_of_the_java_comparator(rows: list[bytes]) -> None:
    by_java = sorted(rows, key=functools.cmp_to_key(compare_rows))
    assert sorted(rows, key=keys.meta_sort_key) == by_java


def test_table_start_and_stop_are_those_of_java() -> None:
    assert (keys.meta_table_start(b"t1"), keys.meta_table_stop(b"t1")) == (b"t1,,", b"t1 ,,")


@given(TABLES, TABLES, START_KEYS, REGION_IDS, st.integers(0, 3))
def test_table_start_and_stop_enclose_exactly_the_regions_of_a_table(
    table: bytes, other: bytes, start: bytes, region_id: int, replica_id: int
) -> None:
    name = keys.meta_sort_key(keys.region_name(other, start, region_id, replica_id))
    low, high = keys.meta_sort_key(keys.meta_table_start(table)), keys.meta_sort_key(keys.meta_table_stop(table))
    assert (low <= name < high) == (table == other)
    assert keys.meta_sort_key(table) < low  # the row of the table's state


# ---- search


class Meta:
    """hbase:meta as a sorted list of region names."""

    def __init__(self, names: Sequence[bytes]) -> None:
        self.names = sorted(names, key=keys.meta_sort_key)
        self.order = [keys.meta_sort_key(name) for name in self.names]

    def reversed_scan(self, start_row: bytes, stop_row: bytes) -> bytes | None:
        """The first row going backwards, both ends inclusive."""
        at = bisect.bisect_right(self.order, keys.meta_sort_key(start_row)) - 1
        return self.names[at] if at >= 0 and self.order[at] >= keys.meta_sort_key(stop_row) else None

    def start_found(self, table: bytes, key: bytes) -> bytes | None:
        name = self.reversed_scan(key, keys.meta_table_start(table))
        return None if name is None else keys.parse_region_name(name)[1]


def search_key(table: bytes, case: dict[str, str]) -> bytes:
    if "current" in case:
        return keys.meta_search_key(table, latin(case["current"]))
    return keys.meta_search_key_before(table, latin(case["before"]))


@pytest.mark.parametrize("case", DATA["searches"]["keys"])
def test_search_key(case: dict[str, str]) -> None:
    assert search_key(latin(DATA["searches"]["table"]), case) == latin(case["key"])


@pytest.mark.parametrize("case", DATA["searches"]["found"])
def test_search_finds(case: dict[str, str]) -> None:
    table = latin(DATA["searches"]["table"])
    neighbours = [keys.region_name(other, b"", 1) for other in (b"t", b"t0", b"t1-y", b"t1.x", b"t10", b"t2")]
    starts = [latin(start) for start in DATA["searches"]["starts"]]
    meta = Meta(neighbours + [keys.region_name(table, start, 1600000000000) for start in starts])
    assert meta.start_found(table, search_key(table, case)) == latin(case["start"])


@given(st.sets(START_KEYS, min_size=1, max_size=12), START_KEYS, REGION_IDS, TABLES, TABLES)
@example({b"", b"a", b"a\0", b"a,"}, b"a", 1, b"t", b"t.x")
@example({b"", b",", b",,", b"\0"}, b",", 99999999999998, b"t", b"t")
def test_search_against_a_sorted_model(
    starts: set[bytes], row: bytes, region_id: int, table: bytes, other: bytes
) -> None:
    names = [keys.region_name(table, start, region_id) for start in starts]
    noise = [keys.region_name(other, start, region_id) for start in starts] + [table, other]
    meta = Meta(sorted({*names, *noise}))
    at_or_before = max((start for start in starts if start <= row), default=None)
    assert meta.start_found(table, keys.meta_search_key(table, row)) == at_or_before
    before = max((start for start in starts if start < row or not row), default=None)
    assert meta.start_found(table, keys.meta_search_key_before(table, row)) == before


def test_search_finds_the_daughter_not_the_split_parent() -> None:
    parent, daughter = keys.region_name(b"t", b"g", 1600000000000), keys.region_name(b"t", b"g", 1600000000001)
    meta = Meta([parent, daughter])
    assert meta.reversed_scan(keys.meta_search_key(b"t", b"gg"), keys.meta_table_start(b"t")) == daughter


@pytest.mark.parametrize("table", [b"t", b"ns1:orders", b"n" * 1000])
@pytest.mark.parametrize("length", [32720, 32750, 32767])
def test_search_with_a_row_as_long_as_hbase_allows_stays_a_legal_row_and_finds_the_region(
    table: bytes, length: int
) -> None:
    """A key of more than 32767 bytes fails at the server; the Java client sends it."""
    row = b"g" * length
    longest_start = b"g" * (keys.ROW_LENGTH_MAX - len(keys.region_name(table, b"", 1600000000000)))
    meta = Meta([keys.region_name(table, start, 1600000000000) for start in (b"", b"g", longest_start, b"h")])
    assert max(map(len, meta.names)) == keys.ROW_LENGTH_MAX
    for key in (keys.meta_search_key(table, row), keys.meta_search_key_before(table, row)):
        assert len(key) <= keys.ROW_LENGTH_MAX
        assert meta.start_found(table, key) == longest_start


def test_search_key_is_cut_only_where_it_must_be() -> None:
    longest = b"r" * (keys.ROW_LENGTH_MAX - len(b"t,,99999999999999"))
    assert keys.meta_search_key(b"t", longest) == b"t,%b,99999999999999" % longest
    assert keys.meta_search_key(b"t", longest + b"r") == b"t,%b,99999999999999" % longest
