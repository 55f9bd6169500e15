"""Decides what any backend must do: a pytest class that the author of a backend subclasses.

    from metaclient.testing import BackendContract

    class TestMyBackend(BackendContract):
        @pytest.fixture
        def backend_connection(self):
            with metaclient.connect("mine://host") as connection:
                yield connection

That is all; every ``test_...`` method is inherited. What the tests rely on:

1. Everything goes through the public client, so that a backend is judged by what its users see.
2. Each test makes tables of its own, under names that no other test or run has, and deletes them: the cluster may be
   shared, real, and already full of tables.
3. Writes that must be told apart have timestamps of their own; where the server's clock matters, it is asked until it
   has moved on. Nothing sleeps, and no clock of this process is read.
4. What a backend says that it cannot do (``Capabilities``) is skipped with that reason, or must raise ``Unsupported``.

Hooks, all optional: :meth:`BackendContract.disturb` flushes, moves or splits a table between two steps of a test, and
must not change what a reader sees; :meth:`BackendContract.replicate` waits until secondaries have caught up;
the fixture ``table_connection`` is another way to the same cluster, for a backend that cannot make tables of several
regions itself.

Facts of HBase that look like bugs and are kept (each has its test): a delete hides puts of its own timestamp, also
later ones; an empty value counts as absent for a check; the empty qualifier is a column; an increment is written at
least a millisecond after the value that it replaces.
"""

from __future__ import annotations

import itertools
import os
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, ClassVar, Protocol, TypeVar

import pytest

from metaclient import keys
from metaclient.backend import BatchSemantics, PutPage
from metaclient.calls import multi
from metaclient.calls.put_pages import put_page
from metaclient.connection import Connection
from metaclient.errors import (
    BatchError,
    MetaClientError,
    NoSuchFamily,
    TableDisabled,
    TableExists,
    TableNotDisabled,
    TableNotFound,
    Unsupported,
)
from metaclient.model import LATEST_TIMESTAMP, CompareOp, Consistency, Durability, Scan
from metaclient.scanner import CellScanner, TableScanner
from metaclient.table import Table

__all__ = ["BackendContract"]

T = TypeVar("T")
Families = Mapping[str, Mapping[str, Any] | None]

#: Two families: one that keeps versions, one with a single one.
FAMILIES: Families = {"cf": {"max_versions": 5}, "other": {"max_versions": 1}}
#: A name of HBase may be long; pytest's names are longer.
NAME_LENGTH_MAX = 60
#: Asking the server for its time costs a call: no clock stands still for that many.
CLOCK_PROBES_MAX = 100_000
ROW_LENGTH_MAX = 32_767
MEGABYTE = 1024 * 1024
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

#: Keys that break naive parsing of region names, C strings and signed comparisons. In HBase's order.
UGLY_KEYS = (
    b"\x00",
    b"\x00\x00",
    b" ",
    b",",
    b",,",
    b"a",
    b"a\x00",
    b"a,1600000000000.",
    b"a,b",
    b"a,b,c",
    b"a\\x00",
    b"a\x7f",
    b"a\x80",
    b"a\xff",
    b"a\xff\xff",
    b"b",
    "ключ".encode(),
    b"\xff",
    b"\xff\xff",
)
UGLY_SPLITS = (b",", b"a\x00", b"a,b", b"a\xff", b"\xff")
LETTERS = tuple(bytes((letter,)) for letter in range(ord("a"), ord("z") + 1))
LETTER_SPLITS = (b"e", b"j", b"o", b"t")

_runs = itertools.count(1)


class TableMaker(Protocol):
    """Makes a table with a name of its own, which is deleted after the test."""

    def __call__(
        self, families: Families = FAMILIES, *, splits: Sequence[bytes] = (), region_replication: int = 1
    ) -> Table: ...


# -- what several tests use ------------------------------------------------------------------------------------


def needs(connection: Connection, capability: str) -> None:
    """Skip the test, with a reason, unless the backend says that it can do this."""
    if not getattr(connection.capabilities, capability):
        pytest.skip(f"the backend says that it cannot do: {capability}")


def scanned(table: Table, **options: Any) -> list[tuple[bytes, dict[bytes, Any]]]:
    return [(key, dict(row)) for key, row in table.scan(**options)]


def scanned_keys(table: Table, **options: Any) -> list[bytes]:
    return [key for key, _ in table.scan(**options)]


def fill(table: Table, row_keys: Sequence[bytes], column: bytes = b"cf:q", timestamp: int = 1) -> None:
    """One cell a row; the value is the key in brackets."""
    with table.batch(timestamp=timestamp) as batch:
        for key in row_keys:
            batch.put(key, {column: b"<" + key + b">"})


def put_versions(table: Table, row: bytes, column: bytes, *timestamps: int) -> None:
    """A version at each timestamp, in the order given; its value is the timestamp in decimal."""
    for timestamp in timestamps:
        table.put(row, {column: b"%d" % timestamp}, timestamp=timestamp)


def server_time_ms(table: Table, row: bytes) -> int:
    """The time of the server that has this row, by a put beside it."""
    probe = row + b"\x00probe"
    table.put(probe, {b"cf:probe": b""})
    stamp: int = table.row(probe, include_timestamp=True)[b"cf:probe"][1]
    return stamp


def until_clock_moves(table: Table, row: bytes) -> int:
    """Return when the server's clock has moved on: what is written from now on is newer than all before."""
    begun = server_time_ms(table, row)
    for _ in range(CLOCK_PROBES_MAX):
        now = server_time_ms(table, row)
        if now > begun:
            return now
    pytest.fail(f"the server's clock has stood at {begun} ms for {CLOCK_PROBES_MAX} puts")


def together(connection: Connection, *functions: Callable[[], T]) -> list[T]:
    """Run functions concurrently, on whatever the connection runs on; their answers in order."""
    tasks = [connection._runtime.start(function, name="contract") for function in functions]
    return [task.result() for task in tasks]


def errors_of(error: MetaClientError) -> list[MetaClientError]:
    """The error itself, or those of its rows."""
    return list(error.failed.values()) if isinstance(error, BatchError) else [error]


class _Contract:
    """What the parts below have in common: tables and hooks."""

    def disturb(self, connection: Connection, table: Table) -> None:
        """Override: flush, compact, move or split this table. Called between the steps of most tests.

        Nothing that a reader sees may change. A major compaction is allowed: no test depends on delete markers that
        were there before a disturbance.
        """

    def replicate(self, connection: Connection, table: Table) -> bool:
        """Override: wait until the table's secondaries show all that was written, and return True."""
        return False

    #: Whether the tables of a test may stay: where the cluster goes as a whole, and deleting one takes long.
    leaves_tables: ClassVar[bool] = False

    @pytest.fixture
    def table_connection(self, backend_connection: Connection) -> Connection:
        """Override: who makes the tables that this backend cannot make itself."""
        return backend_connection

    @pytest.fixture
    def make_table(
        self, backend_connection: Connection, table_connection: Connection, request: pytest.FixtureRequest
    ) -> Iterator[TableMaker]:
        made: list[bytes] = []

        def make(families: Families = FAMILIES, *, splits: Sequence[bytes] = (), region_replication: int = 1) -> Table:
            if region_replication > 1:
                needs(backend_connection, "region_replication")
            can_split = backend_connection.capabilities.create_with_splits
            maker = table_connection if splits and not can_split else backend_connection
            if splits:
                needs(maker, "create_with_splits")
            while True:
                name = self.fresh_name(request.node.name)
                with suppress(TableExists):  # left behind by a run that was killed
                    maker.create_table(
                        name, families, splits=list(splits) or None, region_replication=region_replication
                    )
                    made.append(name)
                    return backend_connection.table(name)

        yield make
        for name in made if not self.leaves_tables else ():
            with suppress(TableNotFound):
                backend_connection.delete_table(name, disable=True)

    @pytest.fixture
    def table(self, make_table: TableMaker) -> Table:
        """A table of one region with the two families of ``FAMILIES``."""
        return make_table()

    @pytest.fixture
    def wide_table(self, make_table: TableMaker) -> Table:
        """A table of five regions with a row for each letter."""
        table = make_table(splits=LETTER_SPLITS)
        fill(table, LETTERS)
        self.disturb(table.connection, table)
        return table

    def fresh_name(self, hint: str) -> bytes:
        """A table name that nobody has used; ``hint`` tells people which test it belongs to."""
        plain = re.sub(r"[^A-Za-z0-9_]", "_", hint)[:NAME_LENGTH_MAX]
        return f"contract_{os.getpid()}_{next(_runs)}_{plain}".encode()


# -- cells -----------------------------------------------------------------------------------------------------


class _Cells(_Contract):
    def test_put_then_row_returns_what_was_written(self, table: Table) -> None:
        table.put(b"r", {b"cf:a": b"1", b"cf:b": b"2", b"other:c": b"3"})
        self.disturb(table.connection, table)
        assert table.row(b"r") == {b"cf:a": b"1", b"cf:b": b"2", b"other:c": b"3"}

    def test_missing_row_is_empty_and_not_an_error(self, table: Table) -> None:
        assert table.row(b"nobody") == {}
        table.put(b"r", {b"cf:a": b"1"})
        assert table.row(b"nobody") == {}
        assert table.row(b"nobody", columns=[b"cf:a"]) == {}

    def test_missing_column_is_left_out(self, table: Table) -> None:
        table.put(b"r", {b"cf:a": b"1"})
        assert table.row(b"r", columns=[b"cf:a", b"cf:nothing"]) == {b"cf:a": b"1"}
        assert table.row(b"r", columns=[b"cf:nothing"]) == {}

    def test_text_is_the_same_as_its_utf8(self, table: Table) -> None:
        table.put("zeile-ß", {"cf:größe": "groß"})
        assert table.row("zeile-ß".encode()) == {"cf:größe".encode(): "groß".encode()}
        assert table.row("zeile-ß", columns=["cf:größe"]) == {"cf:größe".encode(): "groß".encode()}

    def test_empty_value_is_a_value_and_not_a_missing_column(self, table: Table) -> None:
        table.put(b"r", {b"cf:empty": b""})
        self.disturb(table.connection, table)
        assert table.row(b"r") == {b"cf:empty": b""}
        assert table.cells(b"r", b"cf:empty") == [b""]
        assert table.exists(b"r")
        assert scanned(table) == [(b"r", {b"cf:empty": b""})]

    def test_empty_qualifier_is_a_column_of_its_own(self, table: Table) -> None:
        table.put(b"r", {b"cf:": b"empty", b"cf:a": b"a"})
        self.disturb(table.connection, table)
        assert table.row(b"r") == {b"cf:": b"empty", b"cf:a": b"a"}
        assert table.row(b"r", columns=[b"cf:"]) == {b"cf:": b"empty"}
        assert table.row(b"r", columns=[b"cf"]) == {b"cf:": b"empty", b"cf:a": b"a"}
        assert scanned(table, columns=[b"cf:"]) == [(b"r", {b"cf:": b"empty"})]

    def test_family_means_all_its_columns_and_none_of_another(self, table: Table) -> None:
        table.put(b"r", {b"cf:a": b"1", b"cf:b": b"2", b"other:a": b"3"})
        assert table.row(b"r", columns=[b"cf"]) == {b"cf:a": b"1", b"cf:b": b"2"}
        assert table.row(b"r", columns=[b"other", b"cf:b"]) == {b"cf:b": b"2", b"other:a": b"3"}

    def test_family_and_one_of_its_columns_is_the_family(self, table: Table) -> None:
        table.put(b"r", {b"cf:a": b"1", b"cf:b": b"2"})
        assert table.row(b"r", columns=[b"cf:a", b"cf"]) == {b"cf:a": b"1", b"cf:b": b"2"}
        assert table.row(b"r", columns=[b"cf", b"cf:a"]) == {b"cf:a": b"1", b"cf:b": b"2"}

    def test_names_that_are_prefixes_of_others_are_not_mixed_up(self, make_table: TableMaker) -> None:
        table = make_table({"f": {}, "ff": {}})
        table.put(b"r", {b"f:q": b"1", b"f:qq": b"2", b"ff:q": b"3"})
        table.put(b"rr", {b"f:q": b"4"})
        self.disturb(table.connection, table)
        assert table.row(b"r", columns=[b"f"]) == {b"f:q": b"1", b"f:qq": b"2"}
        assert table.row(b"r", columns=[b"f:q"]) == {b"f:q": b"1"}
        assert table.row(b"r", columns=[b"ff"]) == {b"ff:q": b"3"}
        assert table.row(b"rr") == {b"f:q": b"4"}

    def test_qualifiers_of_any_bytes_survive(self, table: Table) -> None:
        columns: dict[bytes | str, bytes | str] = {
            b"cf:" + name: name
            for name in (b":", b"a:b", b"\x00", b"\xff", b",", b" ", bytes(range(256)), "Maß".encode())
        }
        table.put(b"r", columns)
        self.disturb(table.connection, table)
        assert table.row(b"r") == columns
        for column, value in columns.items():
            assert table.row(b"r", columns=[column]) == {column: value}

    def test_put_leaves_columns_that_it_does_not_name(self, table: Table) -> None:
        table.put(b"r", {b"cf:a": b"old", b"cf:b": b"old", b"other:c": b"old"}, timestamp=1)
        self.disturb(table.connection, table)
        table.put(b"r", {b"cf:b": b"new"}, timestamp=2)
        assert table.row(b"r") == {b"cf:a": b"old", b"cf:b": b"new", b"other:c": b"old"}

    def test_values_of_any_bytes_survive(self, table: Table) -> None:
        every_byte = bytes(range(256)) * 3
        table.put(b"r", {b"cf:a": every_byte})
        self.disturb(table.connection, table)
        assert table.row(b"r") == {b"cf:a": every_byte}

    def test_value_of_a_megabyte_survives(self, table: Table) -> None:
        big = bytes(range(256)) * (MEGABYTE // 256)
        table.put(b"r", {b"cf:big": big, b"cf:small": b"s"})
        self.disturb(table.connection, table)
        assert table.row(b"r") == {b"cf:big": big, b"cf:small": b"s"}
        assert scanned(table) == [(b"r", {b"cf:big": big, b"cf:small": b"s"})]

    def test_row_of_two_thousand_columns_comes_back_whole_and_in_order(self, table: Table) -> None:
        columns = {b"cf:%05d" % number: b"%d" % number for number in range(2000)}
        table.put(b"r", dict(reversed(columns.items())))
        self.disturb(table.connection, table)
        assert list(table.row(b"r").items()) == list(columns.items())

    def test_row_keys_of_any_bytes_survive_over_borders_of_any_bytes(self, make_table: TableMaker) -> None:
        table = make_table(splits=UGLY_SPLITS)
        fill(table, UGLY_KEYS)
        self.disturb(table.connection, table)
        for key in UGLY_KEYS:
            assert table.row(key) == {b"cf:q": b"<" + key + b">"}
        assert scanned_keys(table) == sorted(UGLY_KEYS)
        assert [key for key, _ in table.rows(UGLY_KEYS[::-1])] == list(UGLY_KEYS[::-1])

    def test_longest_row_key_can_be_written_found_and_passed(self, make_table: TableMaker) -> None:
        table = make_table(splits=[b"k" * 100])
        longest = [b"a" * ROW_LENGTH_MAX, b"k" * ROW_LENGTH_MAX, b"\xff" * ROW_LENGTH_MAX]
        fill(table, [b"a", b"z", *longest])
        self.disturb(table.connection, table)
        for key in longest:
            assert table.row(key, columns=[b"cf:q"]) == {b"cf:q": b"<" + key + b">"}
        assert scanned_keys(table, batch_size=1) == sorted([b"a", b"z", *longest])

    def test_row_key_that_hbase_cannot_hold_is_refused_before_it_is_sent(self, table: Table) -> None:
        for key in (b"", b"a" * (ROW_LENGTH_MAX + 1)):
            with pytest.raises(ValueError, match="row"):
                table.put(key, {b"cf:q": b"1"})
        assert scanned_keys(table) == []

    def test_rows_whose_keys_are_prefixes_of_each_other_are_different_rows(self, table: Table) -> None:
        row_keys = [b"a", b"a\x00", b"aa", b"aaa", b"b"]
        fill(table, row_keys)
        table.delete(b"aa")
        self.disturb(table.connection, table)
        assert scanned_keys(table) == [b"a", b"a\x00", b"aaa", b"b"]

    def test_put_that_skips_the_log_is_readable_at_once(self, table: Table) -> None:
        table.put(b"r", {b"cf:a": b"1"}, wal=False)
        assert table.row(b"r") == {b"cf:a": b"1"}

    def test_unknown_family_in_a_put_writes_nothing_of_it(self, table: Table) -> None:
        with pytest.raises(NoSuchFamily) as caught:
            table.put(b"r", {b"cf:a": b"1", b"nope:a": b"1"})
        assert not caught.value.may_have_applied
        assert table.row(b"r") == {}

    @pytest.mark.parametrize(
        "kind", ["row", "rows", "cells", "exists", "scan", "delete", "increment", "append", "check"]
    )
    def test_unknown_family_is_an_error_and_not_an_empty_answer(self, table: Table, kind: str) -> None:
        table.put(b"r", {b"cf:a": b"1"})
        if kind in ("append", "check"):
            needs(table.connection, "append" if kind == "append" else "check_and_mutate")
        calls: dict[str, Callable[[], object]] = {
            "row": lambda: table.row(b"r", columns=[b"nope:a"]),
            "rows": lambda: table.rows([b"r"], columns=[b"nope"]),
            "cells": lambda: table.cells(b"r", b"nope:a"),
            "exists": lambda: table.exists(b"r", columns=[b"nope:a"]),
            "scan": lambda: list(table.scan(columns=[b"nope:a"])),
            "delete": lambda: table.delete(b"r", columns=[b"nope:a"]),
            "increment": lambda: table.counter_inc(b"r", b"nope:a"),
            "append": lambda: table.append(b"r", {b"nope:a": b"x"}),
            "check": lambda: table.check_and_put(b"r", b"nope:a", b"1", {b"cf:a": b"2"}),
        }
        with pytest.raises(NoSuchFamily):
            calls[kind]()
        assert table.row(b"r") == {b"cf:a": b"1"}

    def test_exists_tells_rows_and_columns_apart_without_reading_values(self, table: Table) -> None:
        table.put(b"r", {b"cf:a": b""})
        self.disturb(table.connection, table)
        assert table.exists(b"r")
        assert table.exists(b"r", columns=[b"cf"])
        assert table.exists(b"r", columns=[b"cf:nothing", b"cf:a"])
        assert not table.exists(b"r", columns=[b"cf:nothing"])
        assert not table.exists(b"r", columns=[b"other"])
        assert not table.exists(b"nobody")

    def test_row_says_where_it_came_from_and_a_strong_read_is_never_stale(self, table: Table) -> None:
        table.put(b"r", {b"cf:a": b"1"})
        row = table.row(b"r", consistency="STRONG")
        assert (row.stale, row.replica_id) == (False, 0)


# -- versions and times ----------------------------------------------------------------------------------------


class _Versions(_Contract):
    def test_explicit_timestamp_comes_back(self, table: Table) -> None:
        table.put(b"r", {b"cf:a": b"1"}, timestamp=1234567890123)
        self.disturb(table.connection, table)
        assert table.row(b"r", include_timestamp=True) == {b"cf:a": (b"1", 1234567890123)}
        assert table.cells(b"r", b"cf:a", include_timestamp=True) == [(b"1", 1234567890123)]
        assert scanned(table, include_timestamp=True) == [(b"r", {b"cf:a": (b"1", 1234567890123)})]
        assert [dict(row) for _, row in table.rows([b"r"], include_timestamp=True)] == [
            {b"cf:a": (b"1", 1234567890123)}
        ]

    def test_without_a_timestamp_the_server_gives_one_that_does_not_go_back(self, table: Table) -> None:
        stamps = []
        for number in range(5):
            table.put(b"r", {b"cf:a": b"%d" % number})
            value, stamp = table.row(b"r", include_timestamp=True)[b"cf:a"]
            assert value == b"%d" % number
            stamps.append(stamp)
        assert stamps[0] > 0
        assert stamps == sorted(stamps)

    def test_newest_timestamp_wins_and_not_the_last_write(self, table: Table) -> None:
        put_versions(table, b"r", b"cf:a", 20, 10)
        self.disturb(table.connection, table)
        assert table.row(b"r") == {b"cf:a": b"20"}

    def test_of_two_writes_at_one_timestamp_the_last_one_wins(self, table: Table) -> None:
        table.put(b"r", {b"cf:a": b"first"}, timestamp=10)
        self.disturb(table.connection, table)
        table.put(b"r", {b"cf:a": b"second"}, timestamp=10)
        self.disturb(table.connection, table)
        assert table.cells(b"r", b"cf:a", include_timestamp=True) == [(b"second", 10)]

    def test_versions_come_newest_first_whatever_the_order_of_writing(self, table: Table) -> None:
        put_versions(table, b"r", b"cf:a", 30, 10)
        self.disturb(table.connection, table)
        put_versions(table, b"r", b"cf:a", 40, 20)
        assert table.cells(b"r", b"cf:a", include_timestamp=True) == [
            (b"40", 40),
            (b"30", 30),
            (b"20", 20),
            (b"10", 10),
        ]
        assert table.cells(b"r", b"cf:a", versions=2) == [b"40", b"30"]
        assert table.cells(b"r", b"cf:a", versions=100) == [b"40", b"30", b"20", b"10"]

    def test_timestamp_is_an_exclusive_upper_bound(self, table: Table) -> None:
        put_versions(table, b"r", b"cf:a", 10, 20)
        self.disturb(table.connection, table)
        for bound, seen in ((10, {}), (11, {b"cf:a": b"10"}), (20, {b"cf:a": b"10"}), (21, {b"cf:a": b"20"})):
            assert table.row(b"r", timestamp=bound) == seen, bound
            assert dict(table.rows([b"r"], timestamp=bound)) == ({b"r": seen} if seen else {}), bound
            assert dict(scanned(table, timestamp=bound)) == ({b"r": seen} if seen else {}), bound
        assert table.cells(b"r", b"cf:a", timestamp=20) == [b"10"]
        assert table.cells(b"r", b"cf:a", timestamp=10) == []

    def test_timestamp_bound_and_number_of_versions_count_together(self, table: Table) -> None:
        put_versions(table, b"r", b"cf:a", 10, 20, 30, 40)
        self.disturb(table.connection, table)
        assert table.cells(b"r", b"cf:a", versions=2, timestamp=31) == [b"30", b"20"]
        assert table.cells(b"r", b"cf:a", versions=1, timestamp=30) == [b"20"]

    def test_timestamp_zero_is_a_time_like_any_other(self, table: Table) -> None:
        table.put(b"r", {b"cf:a": b"0"}, timestamp=0)
        assert table.row(b"r", include_timestamp=True) == {b"cf:a": (b"0", 0)}
        assert table.row(b"r", timestamp=0) == {}
        assert table.row(b"r", timestamp=1) == {b"cf:a": b"0"}

    @pytest.mark.parametrize("max_versions", [1, 2, 3])
    def test_family_keeps_as_many_versions_as_it_says(self, make_table: TableMaker, max_versions: int) -> None:
        table = make_table({"cf": {"max_versions": max_versions}})
        put_versions(table, b"r", b"cf:a", 10, 30, 20, 50, 40)
        expected = [b"50", b"40", b"30", b"20", b"10"][:max_versions]
        assert table.cells(b"r", b"cf:a") == expected
        self.disturb(table.connection, table)
        assert table.cells(b"r", b"cf:a") == expected
        assert table.families()[b"cf"]["max_versions"] == max_versions

    def test_versions_of_one_column_do_not_count_for_another(self, table: Table) -> None:
        for timestamp in range(1, 6):
            table.put(b"r", {b"cf:a": b"a%d" % timestamp, b"cf:b": b"b%d" % timestamp}, timestamp=timestamp)
        self.disturb(table.connection, table)
        assert table.cells(b"r", b"cf:a") == [b"a5", b"a4", b"a3", b"a2", b"a1"]
        assert table.cells(b"r", b"cf:b", versions=2) == [b"b5", b"b4"]

    def test_cells_of_what_is_not_there_are_no_cells(self, table: Table) -> None:
        assert table.cells(b"nobody", b"cf:a") == []
        table.put(b"r", {b"cf:a": b"1"})
        assert table.cells(b"r", b"cf:nothing") == []

    def test_cell_older_than_the_time_to_live_is_not_shown(self, make_table: TableMaker) -> None:
        table = make_table({"cf": {}, "short": {"time_to_live": 3600, "max_versions": 3}})
        now_ms = server_time_ms(table, b"r")
        table.put(b"r", {b"short:a": b"old"}, timestamp=now_ms - 2 * 3_600_000)
        assert table.row(b"r") == {}
        table.put(b"r", {b"short:a": b"fresh"}, timestamp=now_ms - 60_000)
        self.disturb(table.connection, table)
        assert table.cells(b"r", b"short:a") == [b"fresh"]
        assert dict(scanned(table, columns=[b"short"])) == {b"r": {b"short:a": b"fresh"}}


# -- many rows by key ------------------------------------------------------------------------------------------


class _Rows(_Contract):
    def test_rows_come_in_the_order_asked_for(self, wide_table: Table) -> None:
        asked = [b"z", b"a", b"m", b"e", b"d", b"t", b"c", b"b"]
        found = wide_table.rows(asked)
        assert [(key, dict(row)) for key, row in found] == [(key, {b"cf:q": b"<" + key + b">"}) for key in asked]

    def test_rows_that_do_not_exist_are_left_out(self, wide_table: Table) -> None:
        found = wide_table.rows([b"c", b"nobody", b"a", b"zz"])
        assert [(key, dict(row)) for key, row in found] == [(b"c", {b"cf:q": b"<c>"}), (b"a", {b"cf:q": b"<a>"})]
        assert wide_table.rows([b"nobody"]) == []

    def test_row_asked_for_twice_comes_twice(self, wide_table: Table) -> None:
        found = wide_table.rows([b"a", b"z", b"a"])
        assert [(key, row[b"cf:q"]) for key, row in found] == [(b"a", b"<a>"), (b"z", b"<z>"), (b"a", b"<a>")]

    def test_no_rows_asked_for_are_no_rows(self, table: Table) -> None:
        assert not table.rows([])

    def test_rows_take_columns_and_leave_out_rows_without_them(self, table: Table) -> None:
        table.put(b"a", {b"cf:x": b"1", b"cf:y": b"2"})
        table.put(b"b", {b"cf:y": b"3"})
        table.put(b"c", {b"other:x": b"4"})
        self.disturb(table.connection, table)
        found = table.rows([b"a", b"b", b"c"], columns=[b"cf:x", b"other"])
        assert [(key, dict(row)) for key, row in found] == [(b"a", {b"cf:x": b"1"}), (b"c", {b"other:x": b"4"})]

    def test_five_hundred_rows_over_all_regions_in_one_call(self, make_table: TableMaker) -> None:
        table = make_table(splits=[b"1", b"2", b"3", b"4"])
        row_keys = [b"%03d" % number for number in range(500)]
        fill(table, row_keys)
        self.disturb(table.connection, table)
        found = table.rows(row_keys[::-1])
        assert [(key, dict(row)) for key, row in found] == [
            (key, {b"cf:q": b"<" + key + b">"}) for key in row_keys[::-1]
        ]


# -- deletes ---------------------------------------------------------------------------------------------------


class _Deletes(_Contract):
    def test_delete_of_a_row_takes_all_families_and_versions(self, table: Table) -> None:
        put_versions(table, b"r", b"cf:a", 10, 20)
        table.put(b"r", {b"other:b": b"1"}, timestamp=15)
        self.disturb(table.connection, table)
        table.delete(b"r")
        assert table.row(b"r") == {}
        assert table.cells(b"r", b"cf:a") == []
        assert not table.exists(b"r")
        self.disturb(table.connection, table)
        assert scanned(table) == []

    def test_delete_of_a_family_leaves_the_other_one(self, table: Table) -> None:
        table.put(b"r", {b"cf:a": b"1", b"cf:": b"2", b"other:a": b"3"}, timestamp=10)
        self.disturb(table.connection, table)
        table.delete(b"r", columns=[b"cf"])
        self.disturb(table.connection, table)
        assert table.row(b"r") == {b"other:a": b"3"}

    def test_delete_of_a_column_takes_all_versions_and_no_other_column(self, table: Table) -> None:
        put_versions(table, b"r", b"cf:a", 10, 20, 30)
        table.put(b"r", {b"cf:aa": b"1", b"cf:": b"2"}, timestamp=10)
        self.disturb(table.connection, table)
        table.delete(b"r", columns=[b"cf:a"])
        assert table.cells(b"r", b"cf:a") == []
        self.disturb(table.connection, table)
        assert table.row(b"r") == {b"cf:": b"2", b"cf:aa": b"1"}

    def test_delete_of_the_empty_qualifier_is_not_a_delete_of_the_family(self, table: Table) -> None:
        table.put(b"r", {b"cf:": b"1", b"cf:a": b"2"}, timestamp=10)
        table.delete(b"r", columns=[b"cf:"])
        self.disturb(table.connection, table)
        assert table.row(b"r") == {b"cf:a": b"2"}

    def test_delete_with_a_timestamp_takes_that_version_and_older_ones(self, table: Table) -> None:
        put_versions(table, b"r", b"cf:a", 10, 20, 30)
        self.disturb(table.connection, table)
        table.delete(b"r", columns=[b"cf:a"], timestamp=20)
        self.disturb(table.connection, table)
        assert table.cells(b"r", b"cf:a") == [b"30"]

    def test_delete_of_a_family_with_a_timestamp_keeps_newer_cells(self, table: Table) -> None:
        put_versions(table, b"r", b"cf:a", 10, 20)
        put_versions(table, b"r", b"cf:b", 5, 15)
        put_versions(table, b"r", b"other:c", 5)
        table.delete(b"r", columns=[b"cf"], timestamp=15)
        self.disturb(table.connection, table)
        assert table.row(b"r") == {b"cf:a": b"20", b"other:c": b"5"}
        assert table.cells(b"r", b"cf:a") == [b"20"]

    def test_delete_of_a_row_with_a_timestamp_keeps_newer_cells(self, table: Table) -> None:
        put_versions(table, b"r", b"cf:a", 10, 20)
        put_versions(table, b"r", b"other:b", 10)
        self.disturb(table.connection, table)
        table.delete(b"r", timestamp=10)
        self.disturb(table.connection, table)
        assert table.row(b"r") == {b"cf:a": b"20"}
        assert table.cells(b"r", b"cf:a") == [b"20"]

    def test_older_version_does_not_come_back_when_the_newest_is_deleted(self, table: Table) -> None:
        put_versions(table, b"r", b"other:a", 10, 20)
        self.disturb(table.connection, table)
        table.delete(b"r", columns=[b"other:a"], timestamp=20)
        assert table.row(b"r") == {}
        self.disturb(table.connection, table)
        assert table.row(b"r") == {}

    def test_put_with_a_newer_timestamp_survives_an_earlier_delete(self, table: Table) -> None:
        put_versions(table, b"r", b"cf:a", 10)
        table.delete(b"r", timestamp=20)
        self.disturb(table.connection, table)
        put_versions(table, b"r", b"cf:a", 21)
        self.disturb(table.connection, table)
        assert table.cells(b"r", b"cf:a", include_timestamp=True) == [(b"21", 21)]

    @pytest.mark.parametrize("what", ["row", "family", "column"])
    def test_put_with_an_older_timestamp_stays_hidden_by_an_earlier_delete(self, table: Table, what: str) -> None:
        """A marker hides what is older than itself, also what is written later (until it is compacted away)."""
        columns = {"row": None, "family": [b"cf"], "column": [b"cf:a"]}[what]
        table.delete(b"r", columns=columns, timestamp=20)
        put_versions(table, b"r", b"cf:a", 19)
        assert table.row(b"r") == {}
        put_versions(table, b"r", b"cf:a", 21)
        assert table.cells(b"r", b"cf:a") == [b"21"]
        self.disturb(table.connection, table)
        assert table.cells(b"r", b"cf:a") == [b"21"]

    def test_delete_hides_a_put_of_the_same_timestamp_whichever_came_first(self, table: Table) -> None:
        put_versions(table, b"before", b"cf:a", 10)
        table.delete(b"before", columns=[b"cf:a"], timestamp=10)
        table.delete(b"after", columns=[b"cf:a"], timestamp=10)
        put_versions(table, b"after", b"cf:a", 10)
        assert table.row(b"before") == {}
        assert table.row(b"after") == {}
        self.disturb(table.connection, table)
        assert scanned(table) == []

    def test_put_after_a_delete_is_seen_when_the_clock_has_moved_on(self, table: Table) -> None:
        table.put(b"r", {b"cf:a": b"old"})
        table.delete(b"r")
        until_clock_moves(table, b"r")
        table.put(b"r", {b"cf:a": b"new"})
        self.disturb(table.connection, table)
        assert table.row(b"r") == {b"cf:a": b"new"}
        assert table.cells(b"r", b"cf:a") == [b"new"]

    def test_delete_of_what_is_not_there_is_no_error(self, table: Table) -> None:
        table.put(b"r", {b"cf:a": b"1"}, timestamp=1)
        table.delete(b"nobody")
        table.delete(b"nobody", columns=[b"cf:a", b"other"])
        table.delete(b"r", columns=[b"cf:nothing"])
        assert scanned(table) == [(b"r", {b"cf:a": b"1"})]

    def test_delete_in_the_past_hides_nothing_newer_from_a_bounded_read(self, table: Table) -> None:
        put_versions(table, b"r", b"cf:a", 10, 20, 30)
        table.delete(b"r", columns=[b"cf:a"], timestamp=10)
        self.disturb(table.connection, table)
        assert table.cells(b"r", b"cf:a", timestamp=30) == [b"20"]
        assert table.row(b"r", timestamp=11) == {}

    def test_deleted_rows_are_gone_from_scans_and_counts(self, wide_table: Table) -> None:
        with wide_table.batch() as batch:
            for key in LETTERS[1:]:
                batch.delete(key)
        self.disturb(wide_table.connection, wide_table)
        assert scanned_keys(wide_table) == [b"a"]
        assert scanned_keys(wide_table, limit=5) == [b"a"]
        assert wide_table.rows(LETTERS[:3]) == [(b"a", {b"cf:q": b"<a>"})]


# -- batches ---------------------------------------------------------------------------------------------------


class _Batches(_Contract):
    def test_batch_over_all_regions_arrives_whole(self, make_table: TableMaker) -> None:
        table = make_table(splits=LETTER_SPLITS)
        row_keys = [letter + b"%02d" % number for letter in LETTERS for number in range(10)]
        with table.batch() as batch:
            for key in row_keys:
                batch.put(key, {b"cf:q": key, b"other:q": key})
        self.disturb(table.connection, table)
        assert scanned(table) == [(key, {b"cf:q": key, b"other:q": key}) for key in row_keys]

    def test_batch_mixes_puts_and_deletes_of_rows_families_and_columns(self, table: Table) -> None:
        for key in (b"a", b"b", b"c", b"d"):
            table.put(key, {b"cf:x": b"old", b"cf:y": b"old", b"other:z": b"old"}, timestamp=1)
        self.disturb(table.connection, table)
        with table.batch(timestamp=2) as batch:
            batch.put(b"a", {b"cf:x": b"new"})
            batch.delete(b"b")
            batch.delete(b"c", [b"cf"])
            batch.delete(b"d", [b"cf:x", b"other:z"])
        self.disturb(table.connection, table)
        assert scanned(table) == [
            (b"a", {b"cf:x": b"new", b"cf:y": b"old", b"other:z": b"old"}),
            (b"c", {b"other:z": b"old"}),
            (b"d", {b"cf:y": b"old"}),
        ]

    def test_batch_of_one_row_puts_and_deletes_different_columns(self, table: Table) -> None:
        table.put(b"r", {b"cf:a": b"1", b"cf:b": b"1"}, timestamp=1)
        with table.batch(timestamp=2) as batch:
            batch.delete(b"r", [b"cf:a"])
            batch.put(b"r", {b"cf:b": b"2"})
            batch.put(b"r", {b"cf:c": b"2"})
        self.disturb(table.connection, table)
        assert table.row(b"r") == {b"cf:b": b"2", b"cf:c": b"2"}

    def test_last_put_of_a_column_in_a_batch_wins(self, table: Table) -> None:
        with table.batch() as batch:
            for number in range(5):
                batch.put(b"r", {b"cf:a": b"%d" % number})
        self.disturb(table.connection, table)
        assert table.row(b"r") == {b"cf:a": b"4"}

    def test_delete_in_a_batch_hides_a_put_of_the_same_column_and_time(self, table: Table) -> None:
        """One timestamp for both, and a delete hides its own timestamp: HBase has no order within it."""
        with table.batch(timestamp=10) as batch:
            batch.delete(b"r", [b"cf:a"])
            batch.put(b"r", {b"cf:a": b"1"})
        assert table.row(b"r") == {}

    def test_failed_rows_of_a_batch_are_named_and_the_others_stand(self, make_table: TableMaker) -> None:
        table = make_table(splits=LETTER_SPLITS)
        if table.connection.capabilities.batch is not BatchSemantics.PER_ROW:
            pytest.skip("the backend has one outcome for a whole batch")
        batch = table.batch()
        for key in LETTERS:
            family = b"nope" if key in (b"c", b"p") else b"cf"
            batch.put(key, {family + b":q": key})
        with pytest.raises(BatchError) as caught:
            batch.send()
        assert sorted(caught.value.failed) == [b"c", b"p"]
        assert all(isinstance(error, NoSuchFamily) for error in caught.value.failed.values())
        assert not caught.value.may_have_applied
        self.disturb(table.connection, table)
        assert scanned_keys(table) == [key for key in LETTERS if key not in (b"c", b"p")]

    def test_failed_row_of_a_batch_keeps_none_of_its_mutations(self, table: Table) -> None:
        needs(table.connection, "row_mutations")
        table.put(b"bad", {b"cf:keep": b"1"}, timestamp=1)
        batch = table.batch()
        batch.delete(b"bad", [b"cf:keep"])
        batch.put(b"bad", {b"nope:a": b"1"})
        batch.put(b"good", {b"cf:a": b"1"})
        with pytest.raises(BatchError) as caught:
            batch.send()
        assert b"bad" in caught.value.failed
        assert table.row(b"bad") == {b"cf:keep": b"1"}

    def test_batch_with_a_size_sends_on_the_way(self, table: Table) -> None:
        batch = table.batch(batch_size=2)
        batch.put(b"a", {b"cf:q": b"1"})
        assert scanned_keys(table) == []
        batch.put(b"b", {b"cf:q": b"1"})
        assert scanned_keys(table) == [b"a", b"b"]
        batch.put(b"c", {b"cf:q": b"1"})
        batch.send()
        assert scanned_keys(table) == [b"a", b"b", b"c"]

    def test_batch_as_a_transaction_sends_nothing_after_an_error(self, table: Table) -> None:
        def fail(transaction: bool) -> None:
            with table.batch(transaction=transaction) as batch:
                batch.put(b"a", {b"cf:q": b"1"})
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail(transaction=True)
        assert scanned_keys(table) == []
        with pytest.raises(ZeroDivisionError):
            fail(transaction=False)
        assert scanned_keys(table) == [b"a"]

    def test_empty_batch_is_no_error(self, table: Table) -> None:
        with table.batch():
            pass
        assert scanned_keys(table) == []

    def test_batch_of_four_thousand_rows(self, make_table: TableMaker) -> None:
        table = make_table(splits=[b"1", b"2", b"3"])
        row_keys = [b"%04d" % number for number in range(4000)]
        fill(table, row_keys)
        self.disturb(table.connection, table)
        assert scanned_keys(table, batch_size=333) == row_keys


# -- counters and appends --------------------------------------------------------------------------------------


class _Counters(_Contract):
    def test_missing_counter_starts_at_zero_and_reading_it_makes_it(self, table: Table) -> None:
        assert table.counter_get(b"r", b"cf:n") == 0
        assert table.row(b"r") == {b"cf:n": bytes(8)}
        assert table.counter_inc(b"s", b"cf:n") == 1

    def test_counter_goes_up_and_down_and_below_zero(self, table: Table) -> None:
        assert table.counter_inc(b"r", b"cf:n", 5) == 5
        self.disturb(table.connection, table)
        assert table.counter_dec(b"r", b"cf:n", 7) == -2
        assert table.counter_inc(b"r", b"cf:n", -1) == -3
        assert table.counter_inc(b"r", b"cf:n", 0) == -3
        self.disturb(table.connection, table)
        assert table.counter_get(b"r", b"cf:n") == -3

    def test_counter_is_eight_bytes_big_endian_shared_with_puts(self, table: Table) -> None:
        table.put(b"r", {b"cf:n": (1000).to_bytes(8, "big")})
        assert table.counter_inc(b"r", b"cf:n") == 1001
        assert table.row(b"r") == {b"cf:n": (1001).to_bytes(8, "big")}
        table.counter_inc(b"r", b"cf:n", -1002)
        assert table.row(b"r") == {b"cf:n": b"\xff" * 8}

    def test_counter_can_be_set_and_then_counts_on(self, table: Table) -> None:
        table.counter_set(b"r", b"cf:n", -40)
        self.disturb(table.connection, table)
        assert table.counter_inc(b"r", b"cf:n", 42) == 2

    def test_counter_holds_sixty_four_bits_and_wraps_as_java_does(self, table: Table) -> None:
        table.counter_set(b"r", b"cf:n", INT64_MAX)
        assert table.counter_get(b"r", b"cf:n") == INT64_MAX
        assert table.counter_inc(b"r", b"cf:n") == INT64_MIN
        assert table.counter_dec(b"r", b"cf:n") == INT64_MAX
        assert table.counter_inc(b"s", b"cf:n", INT64_MIN) == INT64_MIN

    @pytest.mark.parametrize("value", [b"7", b"", b"123456789"])
    def test_value_that_is_no_counter_is_refused_and_left_alone(self, table: Table, value: bytes) -> None:
        table.put(b"r", {b"cf:n": value, b"cf:other": b"x"})
        with pytest.raises(MetaClientError) as caught:
            table.counter_inc(b"r", b"cf:n")
        assert not caught.value.may_have_applied
        assert table.row(b"r") == {b"cf:n": value, b"cf:other": b"x"}

    def test_empty_qualifier_counts(self, table: Table) -> None:
        assert table.counter_inc(b"r", b"cf:") == 1
        assert table.counter_inc(b"r", b"cf:") == 2
        assert table.row(b"r") == {b"cf:": (2).to_bytes(8, "big")}

    def test_counters_of_one_row_do_not_disturb_each_other(self, table: Table) -> None:
        for number in range(1, 4):
            table.counter_inc(b"r", b"cf:n%d" % number, number)
        self.disturb(table.connection, table)
        assert [table.counter_inc(b"r", b"cf:n%d" % number) for number in range(1, 4)] == [2, 3, 4]

    def test_deleted_counter_starts_again_at_zero(self, table: Table) -> None:
        table.counter_set(b"r", b"cf:n", 10)
        table.delete(b"r", columns=[b"cf:n"])
        until_clock_moves(table, b"r")
        assert table.counter_inc(b"r", b"cf:n") == 1
        self.disturb(table.connection, table)
        assert table.counter_get(b"r", b"cf:n") == 1

    def test_concurrent_increments_lose_nothing(self, table: Table) -> None:
        def count() -> list[int]:
            return [table.counter_inc(b"r", b"cf:n") for _ in range(20)]

        seen = together(table.connection, count, count, count, count)
        assert sorted(value for values in seen for value in values) == list(range(1, 81))
        assert table.counter_get(b"r", b"cf:n") == 80

    def test_increment_is_not_hidden_behind_a_value_from_the_future(self, table: Table) -> None:
        future_ms = server_time_ms(table, b"r") + 3_600_000
        table.put(b"r", {b"cf:n": (5).to_bytes(8, "big")}, timestamp=future_ms)
        assert table.counter_inc(b"r", b"cf:n") == 6
        assert table.row(b"r") == {b"cf:n": (6).to_bytes(8, "big")}
        assert table.counter_inc(b"r", b"cf:n") == 7

    def test_increment_is_a_version_of_its_own_whatever_the_clock_says(self, table: Table) -> None:
        """HBASE-18546: it is written at least a millisecond after the value that it replaces."""
        future_ms = server_time_ms(table, b"r") + 3_600_000
        table.put(b"r", {b"cf:n": (5).to_bytes(8, "big")}, timestamp=future_ms)
        table.counter_inc(b"r", b"cf:n")
        table.counter_inc(b"r", b"cf:n")
        assert table.cells(b"r", b"cf:n", include_timestamp=True) == [
            ((7).to_bytes(8, "big"), future_ms + 2),
            ((6).to_bytes(8, "big"), future_ms + 1),
            ((5).to_bytes(8, "big"), future_ms),
        ]

    def test_append_is_a_version_of_its_own_whatever_the_clock_says(self, table: Table) -> None:
        needs(table.connection, "append")
        future_ms = server_time_ms(table, b"r") + 3_600_000
        table.put(b"r", {b"cf:a": b"a"}, timestamp=future_ms)
        table.append(b"r", {b"cf:a": b"b"})
        assert table.cells(b"r", b"cf:a", include_timestamp=True) == [(b"ab", future_ms + 1), (b"a", future_ms)]

    def test_append_makes_and_extends_and_returns_the_new_values(self, table: Table) -> None:
        needs(table.connection, "append")
        assert table.append(b"r", {b"cf:a": b"one"}) == {b"cf:a": b"one"}
        self.disturb(table.connection, table)
        assert table.append(b"r", {b"cf:a": b" two", b"cf:b": b"new"}) == {b"cf:a": b"one two", b"cf:b": b"new"}
        assert table.append(b"r", {b"cf:a": b""}) == {b"cf:a": b"one two"}
        assert table.row(b"r") == {b"cf:a": b"one two", b"cf:b": b"new"}

    def test_append_to_several_families_answers_each_value_under_its_own_column(self, make_table: TableMaker) -> None:
        table = make_table({"cf1": {}, "cf": {}})
        columns = [b"cf:a", b"cf:b", b"cf1:a"]
        for times in (1, 2):
            found = table.append(b"r", {column: column for column in reversed(columns)})
            assert list(found.items()) == [(column, column * times) for column in columns]

    def test_append_after_a_delete_starts_anew(self, table: Table) -> None:
        needs(table.connection, "append")
        table.append(b"r", {b"cf:a": b"old"})
        table.delete(b"r")
        until_clock_moves(table, b"r")
        assert table.append(b"r", {b"cf:a": b"new"}) == {b"cf:a": b"new"}

    def test_concurrent_appends_lose_nothing(self, table: Table) -> None:
        needs(table.connection, "append")

        def write(mark: bytes) -> Callable[[], None]:
            def run() -> None:
                for _ in range(10):
                    table.append(b"r", {b"cf:a": mark})

            return run

        together(table.connection, write(b"a"), write(b"b"), write(b"c"))
        value: bytes = table.row(b"r")[b"cf:a"]
        assert sorted(value) == sorted(b"a" * 10 + b"b" * 10 + b"c" * 10)


# -- check and mutate ------------------------------------------------------------------------------------------

#: op -> does it hold when the stored value is (less than, equal to, greater than) the given one?
OPERATORS = [
    (CompareOp.LESS, (True, False, False)),
    (CompareOp.LESS_OR_EQUAL, (True, True, False)),
    (CompareOp.EQUAL, (False, True, False)),
    (CompareOp.NOT_EQUAL, (True, False, True)),
    (CompareOp.GREATER_OR_EQUAL, (False, True, True)),
    (CompareOp.GREATER, (False, False, True)),
]


class _Checks(_Contract):
    @pytest.fixture
    def checked(self, table: Table) -> Table:
        needs(table.connection, "check_and_mutate")
        return table

    @pytest.mark.parametrize(("op", "holds"), OPERATORS, ids=[op.name for op, _ in OPERATORS])
    def test_check_compares_stored_with_given_and_not_the_other_way(
        self, checked: Table, op: CompareOp, holds: tuple[bool, bool, bool]
    ) -> None:
        """The wire has it the other way round (given OP stored): adapters turn it."""
        for stored, expected in zip((b"4", b"5", b"6"), holds, strict=True):
            checked.put(stored, {b"cf:a": stored}, timestamp=1)
            self.disturb(checked.connection, checked)
            assert _check(checked, stored, b"cf:a", b"5", op) is expected, stored
            assert (b"cf:done" in checked.row(stored)) is expected, stored

    def test_check_compares_bytes_and_not_numbers_or_letters(self, checked: Table) -> None:
        checked.put(b"r", {b"cf:a": b"10"})
        assert _check(checked, b"r", b"cf:a", b"9", CompareOp.LESS)
        assert _check(checked, b"r", b"cf:a", b"1", CompareOp.GREATER)
        assert _check(checked, b"r", b"cf:a", b"100", CompareOp.LESS)
        checked.put(b"s", {b"cf:a": b"\xff"})
        assert _check(checked, b"s", b"cf:a", b"\x7f", CompareOp.GREATER)

    def test_absence_check_is_true_once(self, checked: Table) -> None:
        assert checked.check_and_put(b"r", b"cf:a", None, {b"cf:a": b"first"})
        self.disturb(checked.connection, checked)
        assert not checked.check_and_put(b"r", b"cf:a", None, {b"cf:a": b"second"})
        assert checked.row(b"r") == {b"cf:a": b"first"}

    def test_absence_check_turned_round_asks_for_presence(self, checked: Table) -> None:
        assert not _check(checked, b"r", b"cf:a", None, CompareOp.NOT_EQUAL)
        checked.put(b"r", {b"cf:a": b"1"})
        assert _check(checked, b"r", b"cf:a", None, CompareOp.NOT_EQUAL)

    @pytest.mark.parametrize("op", list(CompareOp), ids=[op.name for op in CompareOp])
    def test_absent_column_passes_no_check_against_a_value(self, checked: Table, op: CompareOp) -> None:
        """Not even NOT_EQUAL: HBase compares only what is there."""
        checked.put(b"r", {b"cf:other": b"1"})
        assert not _check(checked, b"r", b"cf:a", b"5", op)
        assert checked.row(b"r") == {b"cf:other": b"1"}

    def test_empty_value_counts_as_absent_for_checks(self, checked: Table) -> None:
        """HRegion: a comparator without bytes asks for absence, and a stored value without bytes grants it."""
        checked.put(b"empty", {b"cf:a": b""})
        checked.put(b"full", {b"cf:a": b"1"})
        for given in (None, b""):
            assert _check(checked, b"empty", b"cf:a", given, CompareOp.EQUAL), given
            assert not _check(checked, b"empty", b"cf:a", given, CompareOp.NOT_EQUAL), given
            assert not _check(checked, b"full", b"cf:a", given, CompareOp.EQUAL), given
            assert _check(checked, b"full", b"cf:a", given, CompareOp.NOT_EQUAL), given
            assert not _check(checked, b"nobody", b"cf:a", given, CompareOp.NOT_EQUAL), given
        assert _check(checked, b"nobody", b"cf:a", b"", CompareOp.EQUAL)

    def test_check_looks_at_the_newest_version_and_not_at_the_last_write(self, checked: Table) -> None:
        put_versions(checked, b"r", b"cf:a", 20, 10)
        assert not _check(checked, b"r", b"cf:a", b"10", CompareOp.EQUAL)
        assert _check(checked, b"r", b"cf:a", b"20", CompareOp.EQUAL)

    def test_failed_check_changes_nothing(self, checked: Table) -> None:
        checked.put(b"r", {b"cf:a": b"1"}, timestamp=1)
        assert not checked.check_and_put(b"r", b"cf:a", b"2", {b"cf:a": b"3", b"other:b": b"3"})
        assert not checked.check_and_delete(b"r", b"cf:a", b"2")
        self.disturb(checked.connection, checked)
        assert checked.cells(b"r", b"cf:a") == [b"1"]
        assert checked.row(b"r") == {b"cf:a": b"1"}

    def test_check_and_put_writes_all_columns_with_the_timestamp_given(self, checked: Table) -> None:
        checked.put(b"r", {b"cf:a": b"1"}, timestamp=1)
        assert checked.check_and_put(b"r", b"cf:a", b"1", {b"cf:a": b"2", b"other:b": b"2"}, timestamp=2)
        self.disturb(checked.connection, checked)
        assert checked.row(b"r", include_timestamp=True) == {b"cf:a": (b"2", 2), b"other:b": (b"2", 2)}

    def test_check_and_delete_deletes_the_row_or_the_columns_named(self, checked: Table) -> None:
        for key in (b"a", b"b", b"c"):
            checked.put(key, {b"cf:a": b"1", b"cf:b": b"1", b"other:c": b"1"}, timestamp=1)
        assert _supported(lambda: checked.check_and_delete(b"a", b"cf:a", b"1"))
        assert checked.check_and_delete(b"b", b"cf:a", b"1", columns=[b"cf:b", b"other"])
        assert not checked.check_and_delete(b"c", b"cf:a", b"2")
        self.disturb(checked.connection, checked)
        assert scanned(checked) == [
            (b"b", {b"cf:a": b"1"}),
            (b"c", {b"cf:a": b"1", b"cf:b": b"1", b"other:c": b"1"}),
        ]

    def test_checked_put_is_not_hidden_behind_a_value_from_the_future(self, checked: Table) -> None:
        """HBASE-14054: a put that passed its check is written no earlier than the value that it was checked against."""
        future_ms = server_time_ms(checked, b"r") + 3_600_000
        checked.put(b"r", {b"cf:a": b"1"}, timestamp=future_ms)
        assert checked.check_and_put(b"r", b"cf:a", b"1", {b"cf:a": b"2"})
        assert checked.row(b"r") == {b"cf:a": b"2"}

    def test_one_of_many_concurrent_checks_wins(self, checked: Table) -> None:
        def claim(owner: bytes) -> Callable[[], bool]:
            return lambda: checked.check_and_put(b"r", b"cf:owner", None, {b"cf:owner": owner})

        won = together(checked.connection, *[claim(b"%d" % number) for number in range(6)])
        assert sum(won) == 1
        assert checked.row(b"r") == {b"cf:owner": b"%d" % won.index(True)}


def _supported(call: Callable[[], T]) -> T:
    """Some gateways know only a few checks, and say so."""
    try:
        return call()
    except Unsupported as error:
        pytest.skip(str(error))


def _check(table: Table, row: bytes, column: bytes, given: bytes | None, op: CompareOp) -> bool:
    return _supported(lambda: table.check_and_put(row, column, given, {b"cf:done": b"yes"}, op=op))


# -- atomic rows -----------------------------------------------------------------------------------------------


class _AtomicRows(_Contract):
    def test_row_mutation_puts_and_deletes_together(self, table: Table) -> None:
        needs(table.connection, "row_mutations")
        table.put(b"r", {b"cf:a": b"1", b"other:b": b"1"}, timestamp=1)
        table.mutate_row(b"r", put={b"cf:c": b"2"}, delete=[b"cf:a", b"other"], timestamp=2)
        self.disturb(table.connection, table)
        assert table.row(b"r") == {b"cf:c": b"2"}

    def test_row_mutation_with_one_bad_part_applies_none(self, table: Table) -> None:
        needs(table.connection, "row_mutations")
        table.put(b"r", {b"cf:a": b"1"}, timestamp=1)
        with pytest.raises(NoSuchFamily):
            table.mutate_row(b"r", put={b"nope:x": b"2"}, delete=[b"cf:a"])
        with pytest.raises(NoSuchFamily):
            table.mutate_row(b"r", put={b"cf:a": b"2"}, delete=[b"nope:x"])
        assert table.row(b"r") == {b"cf:a": b"1"}

    def test_reader_never_sees_half_of_a_put(self, table: Table) -> None:
        columns = [b"cf:a", b"cf:b", b"other:c"]
        table.put(b"r", dict.fromkeys(columns, b"0"))

        seen: list[set[bytes]] = []

        def write() -> None:
            for number in range(1, 40):
                table.put(b"r", dict.fromkeys(columns, b"%d" % number), timestamp=10**13 + number)

        def read() -> None:
            seen.extend(set(table.row(b"r").values()) for _ in range(40))

        def scan() -> None:
            seen.extend(set(row.values()) for _ in range(20) for _, row in table.scan())

        together(table.connection, write, read, scan)
        assert len(seen) == 60
        assert all(len(values) == 1 for values in seen)

    def test_reader_never_sees_half_of_a_row_mutation(self, table: Table) -> None:
        """A token moves between two columns: exactly one of them has it at any time."""
        needs(table.connection, "row_mutations")
        places = [b"cf:left", b"cf:right"]
        table.put(b"r", {places[0]: b"token"}, timestamp=1)
        seen: list[int] = []

        def move() -> None:
            for number in range(2, 40):
                source, target = places[number % 2], places[(number + 1) % 2]
                table.mutate_row(b"r", put={target: b"token"}, delete=[source], timestamp=number)

        def read() -> None:
            seen.extend(len(table.row(b"r")) for _ in range(60))

        together(table.connection, move, read)
        assert len(seen) == 60
        assert set(seen) == {1}


# -- scans -----------------------------------------------------------------------------------------------------


class _Scans(_Contract):
    def test_empty_table_scans_to_nothing(self, make_table: TableMaker) -> None:
        table = make_table(splits=[b"m"])
        self.disturb(table.connection, table)
        assert scanned(table) == []
        assert scanned(table, row_start=b"a", row_stop=b"z", limit=1) == []

    def test_rows_come_in_the_order_of_unsigned_bytes(self, table: Table) -> None:
        row_keys = [bytes((first, second)) for first in (0, 1, 127, 128, 255) for second in (0, 127, 128, 255)]
        fill(table, row_keys[::-1])
        self.disturb(table.connection, table)
        assert scanned_keys(table) == row_keys

    def test_scan_over_all_regions_sees_each_row_once(self, wide_table: Table) -> None:
        assert scanned(wide_table) == [(key, {b"cf:q": b"<" + key + b">"}) for key in LETTERS]

    @pytest.mark.parametrize(
        ("start", "stop"),
        [
            (b"c", b"h"),
            (b"e", b"j"),
            (b"d", b"e"),
            (b"e", b"f"),
            (b"dz", b"ez"),
            (b"", b"e"),
            (b"t", b""),
            (b"zz", b""),
            (b"", b"a"),
            (b"h", b"h"),
            (b"h", b"c"),
        ],
    )
    def test_start_is_inclusive_and_stop_exclusive_wherever_the_borders_are(
        self, wide_table: Table, start: bytes, stop: bytes
    ) -> None:
        expected = [key for key in LETTERS if start <= key and (key < stop or not stop)]
        assert scanned_keys(wide_table, row_start=start or None, row_stop=stop or None) == expected

    @pytest.mark.parametrize("prefix", [b"a", b"aa", b"a\xff", b"\xff", b"\xff\xff", b"nothing", b"b"])
    def test_prefix_takes_all_its_rows_and_no_other(self, make_table: TableMaker, prefix: bytes) -> None:
        table = make_table(splits=[b"a\xff", b"b"])
        row_keys = [
            b"a",
            b"aa",
            b"aaa",
            b"ab",
            b"a\xff",
            b"a\xffa",
            b"a\xff\xff",
            b"b",
            b"\xfe",
            b"\xff",
            b"\xff\xff\x00",
        ]
        fill(table, row_keys)
        self.disturb(table.connection, table)
        expected = sorted(key for key in row_keys if key.startswith(prefix))
        assert scanned_keys(table, row_prefix=prefix) == expected
        if table.connection.capabilities.reversed_scan:
            assert scanned_keys(table, row_prefix=prefix, reverse=True) == expected[::-1]

    def test_reversed_scan_over_all_regions_sees_each_row_once(self, wide_table: Table) -> None:
        needs(wide_table.connection, "reversed_scan")
        assert scanned_keys(wide_table, reverse=True) == list(LETTERS[::-1])
        assert scanned_keys(wide_table, reverse=True, batch_size=1) == list(LETTERS[::-1])

    @pytest.mark.parametrize(
        ("start", "stop"),
        [(b"h", b"c"), (b"j", b"e"), (b"e", b"d"), (b"iz", b"dz"), (b"zz", b"y"), (b"b", b""), (b"c", b"h")],
    )
    def test_reversed_scan_starts_inclusive_at_the_upper_end(
        self, wide_table: Table, start: bytes, stop: bytes
    ) -> None:
        needs(wide_table.connection, "reversed_scan")
        expected = [key for key in LETTERS[::-1] if key <= start and key > stop]
        assert scanned_keys(wide_table, row_start=start, row_stop=stop or None, reverse=True) == expected

    def test_reversed_scan_where_it_cannot_be_done_is_refused(self, table: Table) -> None:
        if table.connection.capabilities.reversed_scan:
            pytest.skip("the backend can scan in reverse")
        with pytest.raises(Unsupported):
            list(table.scan(reverse=True))

    @pytest.mark.parametrize("limit", [1, 4, 5, 25, 26, 1000])
    def test_limit_counts_over_all_regions(self, wide_table: Table, limit: int) -> None:
        assert scanned_keys(wide_table, limit=limit) == list(LETTERS[:limit])
        assert scanned_keys(wide_table, limit=limit, batch_size=3) == list(LETTERS[:limit])
        if wide_table.connection.capabilities.reversed_scan:
            assert scanned_keys(wide_table, limit=limit, reverse=True) == list(LETTERS[::-1][:limit])

    @pytest.mark.parametrize("batch_size", [1, 2, 7, 26, 1000])
    def test_page_size_does_not_change_the_answer(self, wide_table: Table, batch_size: int) -> None:
        assert scanned_keys(wide_table, batch_size=batch_size) == list(LETTERS)
        assert scanned_keys(wide_table, batch_size=batch_size, row_start=b"d", row_stop=b"u") == list(LETTERS[3:20])

    def test_scan_batching_cuts_rows_into_pieces_that_add_up(self, table: Table) -> None:
        for key, count in ((b"a", 5), (b"b", 1), (b"c", 4)):
            table.put(key, {b"cf:%d" % number: key for number in range(count)})
        self.disturb(table.connection, table)
        pieces = scanned(table, scan_batching=2)
        assert [(key, len(piece)) for key, piece in pieces] == [
            (b"a", 2),
            (b"a", 2),
            (b"a", 1),
            (b"b", 1),
            (b"c", 2),
            (b"c", 2),
        ]
        assert [column for key, piece in pieces if key == b"a" for column in piece] == [b"cf:%d" % n for n in range(5)]

    def test_scan_batching_goes_on_where_it_was_after_a_disturbance(self, table: Table) -> None:
        for key in (b"a", b"b"):
            table.put(key, {b"cf:%02d" % number: b"%d" % number for number in range(10)})
        seen: list[tuple[bytes, bytes]] = []
        for number, (key, piece) in enumerate(table.scan(scan_batching=3, batch_size=1)):
            seen += [(key, column) for column in piece]
            if number == 1:
                self.disturb(table.connection, table)
        assert seen == [(key, b"cf:%02d" % number) for key in (b"a", b"b") for number in range(10)]

    def test_scan_goes_on_after_the_last_row_when_regions_move_under_it(self, wide_table: Table) -> None:
        seen = []
        for number, (key, _) in enumerate(wide_table.scan(batch_size=2)):
            seen.append(key)
            if number in (2, 9):
                self.disturb(wide_table.connection, wide_table)
        assert seen == list(LETTERS)

    def test_reversed_scan_goes_on_when_regions_move_under_it(self, wide_table: Table) -> None:
        needs(wide_table.connection, "reversed_scan")
        seen = []
        for number, (key, _) in enumerate(wide_table.scan(batch_size=2, reverse=True)):
            seen.append(key)
            if number in (2, 9):
                self.disturb(wide_table.connection, wide_table)
        assert seen == list(LETTERS[::-1])

    def test_columns_of_a_scan_leave_out_rows_that_have_none_of_them(self, table: Table) -> None:
        table.put(b"a", {b"cf:x": b"1", b"cf:y": b"2"})
        table.put(b"b", {b"cf:y": b"3"})
        table.put(b"c", {b"other:x": b"4"})
        self.disturb(table.connection, table)
        assert scanned(table, columns=[b"cf:x"]) == [(b"a", {b"cf:x": b"1"})]
        assert scanned(table, columns=[b"cf:x"], limit=3) == [(b"a", {b"cf:x": b"1"})]
        assert scanned(table, columns=[b"cf"]) == [(b"a", {b"cf:x": b"1", b"cf:y": b"2"}), (b"b", {b"cf:y": b"3"})]
        assert scanned(table, columns=[b"other", b"cf:y"], limit=2) == [
            (b"a", {b"cf:y": b"2"}),
            (b"b", {b"cf:y": b"3"}),
        ]

    def test_sorted_columns_come_as_an_ordered_dictionary(self, table: Table) -> None:
        table.put(b"r", {b"other:a": b"1", b"cf:b": b"2", b"cf:a": b"3"})
        [(_, row)] = list(table.scan(sorted_columns=True))
        assert isinstance(row, OrderedDict)
        assert list(row) == [b"cf:a", b"cf:b", b"other:a"]

    def test_family_whose_name_begins_with_another_ones_does_not_come_first(self, make_table: TableMaker) -> None:
        """HBase sorts by family and then by qualifier: as one string ``cf1:z`` would come before ``cf:a``."""
        table = make_table({"cf1": {}, "cf": {}, "cf-x": {}})
        columns = [b"cf:", b"cf:a", b"cf:\xff", b"cf-x:m", b"cf1:a", b"cf1:z"]
        for row in (b"r1", b"r2", b"r3"):
            table.put(row, dict.fromkeys(reversed(columns), row))
        self.disturb(table.connection, table)
        for row in (b"r1", b"r2", b"r3"):
            assert list(table.row(row)) == columns
        assert [list(row) for _, row in table.scan(sorted_columns=True)] == [columns] * 3
        assert [list(row) for _, row in table.rows([b"r1", b"r3"])] == [columns] * 2
        assert list(table.row(b"r1", columns=[b"cf1:z", b"cf:a"])) == [b"cf:a", b"cf1:z"]

    def test_scan_that_is_left_in_the_middle_disturbs_nobody(self, wide_table: Table) -> None:
        scan = wide_table.scan(batch_size=2)
        assert next(iter(scan))[0] == b"a"
        scan.close()  # type: ignore[attr-defined]  # a generator, which the signature need not promise
        assert scanned_keys(wide_table) == list(LETTERS)

    def test_two_scans_at_once_do_not_share_a_position(self, wide_table: Table) -> None:
        first, second = wide_table.scan(batch_size=2), wide_table.scan(batch_size=3, row_start=b"n")
        pairs = list(zip(first, second, strict=False))
        assert [key for (key, _), _ in pairs] == list(LETTERS[:13])
        assert [key for _, (key, _) in pairs] == list(LETTERS[13:])

    def test_page_with_more_than_fits_into_one_answer_comes_whole(self, table: Table) -> None:
        value = b"v" * (MEGABYTE // 2)
        row_keys = [b"%02d" % number for number in range(12)]
        for key in row_keys:
            table.put(key, {b"cf:a": value, b"cf:b": key})
        self.disturb(table.connection, table)
        found = scanned(table)
        assert [key for key, _ in found] == row_keys
        assert all(row == {b"cf:a": value, b"cf:b": key} for key, row in found)

    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"limit": 7},
            {"limit": 3, "caching": 3},
            {"start_row": b"05", "stop_row": b"20", "include_start": False, "include_stop": True},
            {"columns": (b"cf:b", b"other")},
            {"max_versions": 3},
            {"start_row": b"zz"},
        ],
        ids=lambda options: "-".join(options) or "all",
    )
    def test_pages_of_cells_hold_what_rows_hold(self, table: Table, options: dict[str, Any]) -> None:
        needs(table.connection, "cell_pages")
        pytest.importorskip("numpy")
        pytest.importorskip("pyarrow")
        for number in range(30):
            row = {b"cf:a": b"v" * (number % 4), b"cf:b": b"\x0b\0\1" * number, b"other:": b"%d" % number}
            table.put(b"%02d" % number, {column: row[column] for column in list(row)[number % 2 :]}, timestamp=5)
            table.put(b"%02d" % number, {b"cf:a": b"older"}, timestamp=4)
        self.disturb(table.connection, table)
        scan = Scan(**{"caching": 4, **options})
        operations = table.connection._operations
        rows = [
            (result.row, cell.family, cell.qualifier, cell.timestamp, int(cell.type), cell.value)
            for result, _ in TableScanner(operations, table.name, scan, Consistency.STRONG, None)
            for cell in result.cells
        ]
        pages = [page for page, _ in CellScanner(operations, table.name, scan, Consistency.STRONG, None)]
        assert [tuple(cell.values()) for page in pages for cell in page.cells.to_pylist()] == rows
        assert sum(page.rows for page in pages) == len({row for row, *_ in rows})

    @pytest.mark.parametrize("is_timed", [True, False])
    def test_pages_of_puts_write_what_puts_write(self, make_table: TableMaker, is_timed: bool) -> None:
        """Rows of several regions; a value that is empty, and some that are not there."""
        by_page, by_rows = make_table(splits=LETTER_SPLITS), make_table(splits=LETTER_SPLITS)
        needs(by_page.connection, "put_pages")
        pytest.importorskip("numpy")
        arrow = pytest.importorskip("pyarrow")
        rows = sorted([*LETTERS, b"\x00", b"\xff\xff", b"k" * 200])
        values = [
            [None if number % 5 == 1 else b"1-" + row for number, row in enumerate(rows)],
            [None if number % 7 == 2 else b"" for number, _ in enumerate(rows)],
            rows,
        ]
        page = PutPage(
            arrow.array(rows, arrow.large_binary()),
            arrow.array([5 + number % 2 if is_timed else LATEST_TIMESTAMP for number, _ in enumerate(rows)]),
            (b"cf:a", b"cf:", b"other:b"),
            tuple(arrow.array(column, arrow.large_binary()) for column in values),
            Durability.SKIP_WAL,
        )
        self.disturb(by_page.connection, by_page)
        assert put_page(by_page.connection._operations, by_page.name, page) == {}
        assert multi.batch(by_rows.connection._operations, by_rows.name, page.puts()) == [None] * len(rows)
        assert scanned(by_page, include_timestamp=is_timed) == scanned(by_rows, include_timestamp=is_timed)
        there = [3 - given.count(None) for given in zip(*values, strict=True)]
        assert [len(row) for _, row in scanned(by_page)] == there

    def test_rows_written_during_a_scan_do_not_repeat_or_hide_others(self, wide_table: Table) -> None:
        seen = []
        for number, (key, _) in enumerate(wide_table.scan(batch_size=1)):
            seen.append(key)
            wide_table.put(b"a%d" % number, {b"cf:q": b"behind"})
            wide_table.put(key, {b"cf:new": b"x"})
        assert [key for key in seen if key in LETTERS] == list(LETTERS)
        assert len(seen) == len(set(seen))


# -- filters ---------------------------------------------------------------------------------------------------

#: HBase's filter language -> what is left of FILTERED_ROWS (row -> columns).
FILTERED_ROWS: dict[bytes, dict[bytes | str, bytes | str]] = {
    b"a1": {b"cf:n": b"1", b"cf:x": b"red"},
    b"a2": {b"cf:n": b"2", b"cf:x": b"green"},
    b"b1": {b"cf:n": b"3"},
    b"b2": {b"cf:n": b"4", b"cf:x": b"red", b"cf:y": b"blue"},
}
FILTERS: list[tuple[str, dict[bytes, list[bytes]]]] = [
    ("PrefixFilter ('b')", {b"b1": [b"n"], b"b2": [b"n", b"x", b"y"]}),
    ("RowFilter (>, 'binary:a2')", {b"b1": [b"n"], b"b2": [b"n", b"x", b"y"]}),
    ("RowFilter (=, 'substring:1')", {b"a1": [b"n", b"x"], b"b1": [b"n"]}),
    ("RowFilter (=, 'regexstring:^a.*')", {b"a1": [b"n", b"x"], b"a2": [b"n", b"x"]}),
    ("ValueFilter (=, 'binary:red')", {b"a1": [b"x"], b"b2": [b"x"]}),
    ("ValueFilter (>=, 'binary:3')", {b"a1": [b"x"], b"a2": [b"x"], b"b1": [b"n"], b"b2": [b"n", b"x", b"y"]}),
    ("QualifierFilter (!=, 'binary:n')", {b"a1": [b"x"], b"a2": [b"x"], b"b2": [b"x", b"y"]}),
    ("ColumnPrefixFilter ('x')", {b"a1": [b"x"], b"a2": [b"x"], b"b2": [b"x"]}),
    (
        "FamilyFilter (=, 'binary:cf')",
        {b"a1": [b"n", b"x"], b"a2": [b"n", b"x"], b"b1": [b"n"], b"b2": [b"n", b"x", b"y"]},
    ),
    ("FirstKeyOnlyFilter ()", {b"a1": [b"n"], b"a2": [b"n"], b"b1": [b"n"], b"b2": [b"n"]}),
    ("InclusiveStopFilter ('b1')", {b"a1": [b"n", b"x"], b"a2": [b"n", b"x"], b"b1": [b"n"]}),
    # A row without the column passes, unless the filter is told otherwise: the fourth of happybase's blind spots.
    (
        "SingleColumnValueFilter ('cf', 'x', =, 'binary:red')",
        {b"a1": [b"n", b"x"], b"b1": [b"n"], b"b2": [b"n", b"x", b"y"]},
    ),
    (
        "SingleColumnValueFilter ('cf', 'x', =, 'binary:red', true, true)",
        {b"a1": [b"n", b"x"], b"b2": [b"n", b"x", b"y"]},
    ),
    ("SingleColumnValueFilter ('cf', 'n', <, 'binary:2')", {b"a1": [b"n", b"x"]}),
    ("PrefixFilter ('a') AND ValueFilter (=, 'substring:r')", {b"a1": [b"x"], b"a2": [b"x"]}),
    ("PrefixFilter ('a') OR RowFilter (=, 'binary:b1')", {b"a1": [b"n", b"x"], b"a2": [b"n", b"x"], b"b1": [b"n"]}),
    ("SKIP ValueFilter (!=, 'binary:red')", {b"a2": [b"n", b"x"], b"b1": [b"n"]}),
    ("WHILE RowFilter (<, 'binary:b1')", {b"a1": [b"n", b"x"], b"a2": [b"n", b"x"]}),
    ("PrefixFilter ('nothing')", {}),
]


class _Filters(_Contract):
    @pytest.mark.parametrize(("text", "left"), FILTERS, ids=[text for text, _ in FILTERS])
    def test_filter_is_applied_and_not_ignored(self, table: Table, text: str, left: dict[bytes, list[bytes]]) -> None:
        needs(table.connection, "filters")
        for key, columns in FILTERED_ROWS.items():
            table.put(key, columns, timestamp=1)
        self.disturb(table.connection, table)
        expected = [
            (key, {b"cf:" + name: FILTERED_ROWS[key][b"cf:" + name] for name in names}) for key, names in left.items()
        ]
        assert scanned(table, filter=text) == expected
        assert scanned(table, filter=text.encode(), batch_size=1) == expected

    def test_filter_and_limit_count_rows_that_pass(self, wide_table: Table) -> None:
        needs(wide_table.connection, "filters")
        text = "RowFilter (=, 'regexstring:[bdfuvz]')"
        assert scanned_keys(wide_table, filter=text) == [b"b", b"d", b"f", b"u", b"v", b"z"]
        assert scanned_keys(wide_table, filter=text, limit=4) == [b"b", b"d", b"f", b"u"]
        assert scanned_keys(wide_table, filter=text, limit=4, batch_size=1) == [b"b", b"d", b"f", b"u"]

    def test_filter_works_in_reverse_over_all_regions(self, wide_table: Table) -> None:
        needs(wide_table.connection, "filters")
        needs(wide_table.connection, "reversed_scan")
        text = "RowFilter (=, 'regexstring:[bdfuvz]')"
        assert scanned_keys(wide_table, filter=text, reverse=True) == [b"z", b"v", b"u", b"f", b"d", b"b"]

    def test_keys_alone_come_without_values(self, wide_table: Table) -> None:
        needs(wide_table.connection, "filters")
        assert scanned(wide_table, filter="KeyOnlyFilter ()") == [(key, {b"cf:q": b""}) for key in LETTERS]

    def test_timestamps_filter_takes_exactly_those_versions(self, table: Table) -> None:
        needs(table.connection, "filters")
        for number in (1, 2, 3):
            put_versions(table, b"%d" % number, b"cf:a", number)
        assert scanned_keys(table, filter="TimestampsFilter (1, 3)") == [b"1", b"3"]

    def test_filter_of_a_single_row(self, table: Table) -> None:
        needs(table.connection, "filters")
        table.put(b"r", {b"cf:a": b"1", b"cf:b": b"2"})
        assert table.row(b"r", filter="ValueFilter (=, 'binary:2')") == {b"cf:b": b"2"}
        assert table.row(b"r", filter="ColumnCountGetFilter (1)") == {b"cf:a": b"1"}
        assert table.row(b"r", filter="PrefixFilter ('x')") == {}

    @pytest.mark.parametrize("text", ["NoSuchFilter ('a')", "PrefixFilter ('a'", "RowFilter (~, 'binary:a')"])
    def test_filter_that_nobody_understands_is_an_error_and_not_everything(self, table: Table, text: str) -> None:
        needs(table.connection, "filters")
        table.put(b"r", {b"cf:a": b"1"})
        with pytest.raises((MetaClientError, ValueError)):
            scanned(table, filter=text)

    def test_filter_where_it_cannot_be_done_is_refused_and_not_ignored(self, table: Table) -> None:
        if table.connection.capabilities.filters:
            pytest.skip("the backend can filter")
        table.put(b"r", {b"cf:a": b"1"})
        with pytest.raises(Unsupported):
            scanned(table, filter="PrefixFilter ('x')")
        with pytest.raises(Unsupported):
            table.row(b"r", filter="PrefixFilter ('x')")


# -- tables ----------------------------------------------------------------------------------------------------


class _Tables(_Contract):
    def test_new_table_is_listed_enabled_and_described(self, make_table: TableMaker) -> None:
        table = make_table({"cf": {"max_versions": 7}, "g:": None})
        connection = table.connection
        assert table.name in connection.tables()
        assert connection.is_table_enabled(table.name)
        families = table.families()
        assert sorted(families) == [b"cf", b"g"]
        assert families[b"cf"]["max_versions"] == 7
        assert families[b"g"]["name"] == b"g:"

    def test_settings_of_a_family_come_back(self, make_table: TableMaker) -> None:
        table = make_table({"cf": {"time_to_live": 86_400, "in_memory": True, "block_cache_enabled": False}})
        family = table.families()[b"cf"]
        assert (family["time_to_live"], family["in_memory"], family["block_cache_enabled"]) == (86_400, True, False)

    def test_creating_a_table_twice_is_an_error_and_harms_nothing(self, table: Table) -> None:
        table.put(b"r", {b"cf:a": b"1"})
        with pytest.raises(TableExists):
            table.connection.create_table(table.name, {"different": {}})
        assert table.row(b"r") == {b"cf:a": b"1"}
        assert sorted(table.families()) == [b"cf", b"other"]

    def test_enabled_table_cannot_be_deleted(self, table: Table) -> None:
        table.put(b"r", {b"cf:a": b"1"})
        with pytest.raises(TableNotDisabled):
            table.connection.delete_table(table.name)
        assert table.name in table.connection.tables()
        assert table.row(b"r") == {b"cf:a": b"1"}

    def test_deleted_table_is_gone_for_all_calls(self, table: Table) -> None:
        connection = table.connection
        table.put(b"r", {b"cf:a": b"1"})
        connection.disable_table(table.name)
        connection.delete_table(table.name)
        assert table.name not in connection.tables()
        with pytest.raises(TableNotFound):
            table.row(b"r")
        with pytest.raises(TableNotFound):
            connection.is_table_enabled(table.name)

    def test_table_made_again_under_its_old_name_is_empty(self, table: Table) -> None:
        connection = table.connection
        table.put(b"r", {b"cf:a": b"ghost"})
        self.disturb(connection, table)
        connection.delete_table(table.name, disable=True)
        connection.create_table(table.name, {"cf": {}, "fresh": {}})
        assert scanned(table) == []
        table.put(b"r", {b"fresh:a": b"1"})
        assert table.row(b"r") == {b"fresh:a": b"1"}

    @pytest.mark.parametrize("kind", ["row", "rows", "scan", "put", "delete", "batch", "counter", "exists", "cells"])
    def test_disabled_table_answers_nothing(self, table: Table, kind: str) -> None:
        connection = table.connection
        table.put(b"r", {b"cf:a": b"1"})
        connection.disable_table(table.name)
        assert not connection.is_table_enabled(table.name)
        assert table.name in connection.tables()
        with pytest.raises(MetaClientError) as caught:
            _use(table, kind)
        assert {type(error) for error in errors_of(caught.value)} == {TableDisabled}

    def test_table_enabled_again_has_all_its_rows(self, wide_table: Table) -> None:
        connection = wide_table.connection
        connection.disable_table(wide_table.name)
        connection.enable_table(wide_table.name)
        assert connection.is_table_enabled(wide_table.name)
        assert scanned_keys(wide_table) == list(LETTERS)
        wide_table.put(b"new", {b"cf:q": b"1"})
        assert wide_table.row(b"new") == {b"cf:q": b"1"}

    def test_disabling_twice_and_enabling_twice_are_errors(self, table: Table) -> None:
        connection = table.connection
        with pytest.raises(MetaClientError):
            connection.enable_table(table.name)
        connection.disable_table(table.name)
        with pytest.raises(MetaClientError):
            connection.disable_table(table.name)
        connection.enable_table(table.name)
        assert connection.is_table_enabled(table.name)

    @pytest.mark.parametrize("kind", ["row", "rows", "scan", "put", "delete", "batch", "counter", "exists", "cells"])
    def test_missing_table_is_an_error_and_not_an_empty_answer(self, backend_connection: Connection, kind: str) -> None:
        with pytest.raises(MetaClientError) as caught:
            _use(backend_connection.table(self.fresh_name("missing")), kind)
        assert {type(error) for error in errors_of(caught.value)} == {TableNotFound}

    @pytest.mark.parametrize("kind", ["delete", "enable", "disable", "is_enabled", "compact", "families", "locate"])
    def test_missing_table_cannot_be_administered(self, backend_connection: Connection, kind: str) -> None:
        name = self.fresh_name("missing")
        calls: dict[str, Callable[[], object]] = {
            "delete": lambda: backend_connection.delete_table(name),
            "enable": lambda: backend_connection.enable_table(name),
            "disable": lambda: backend_connection.disable_table(name),
            "is_enabled": lambda: backend_connection.is_table_enabled(name),
            "compact": lambda: backend_connection.compact_table(name),
            "families": lambda: backend_connection.table(name).families(),
            "locate": lambda: backend_connection.locate(name, b"r"),
        }
        with pytest.raises(TableNotFound):
            calls[kind]()

    def test_tables_with_similar_names_do_not_share_rows(self, backend_connection: Connection) -> None:
        """In hbase:meta they are neighbours, and ``-`` and ``.`` sort close to the comma that ends a name."""
        base = self.fresh_name("t")
        names = [base, base + b"2", base + b"-1", base + b".x", base + b"_", base + base]
        try:
            for name in names:
                backend_connection.create_table(name, {"cf": {}})
                backend_connection.table(name).put(b"r", {b"cf:a": name})
            for name in names:
                assert scanned(backend_connection.table(name)) == [(b"r", {b"cf:a": name})]
                assert len(backend_connection.regions(name)) == 1
        finally:
            for name in names:
                with suppress(TableNotFound):
                    backend_connection.delete_table(name, disable=True)

    def test_table_with_a_name_beyond_ascii(self, backend_connection: Connection) -> None:
        name = self.fresh_name("t").decode() + "_größe_таблица_表"
        backend_connection.create_table(name, {"cf": {}})
        try:
            assert name.encode() in backend_connection.tables()
            table = backend_connection.table(name)
            table.put(b"r", {b"cf:a": b"1"})
            self.disturb(backend_connection, table)
            assert scanned(table) == [(b"r", {b"cf:a": b"1"})]
        finally:
            backend_connection.delete_table(name, disable=True)

    def test_default_namespace_may_be_written_or_left_out(self, table: Table) -> None:
        table.put(b"r", {b"cf:a": b"1"})
        assert table.connection.table(b"default:" + table.name).row(b"r") == {b"cf:a": b"1"}

    @pytest.mark.parametrize("major", [False, True])
    def test_compaction_changes_nothing_that_can_be_seen(self, wide_table: Table, major: bool) -> None:
        put_versions(wide_table, b"a", b"cf:v", 10, 20, 30)
        wide_table.delete(b"b")
        before = scanned(wide_table, include_timestamp=True)
        wide_table.connection.compact_table(wide_table.name, major=major)
        assert scanned(wide_table, include_timestamp=True) == before
        assert wide_table.cells(b"a", b"cf:v") == [b"30", b"20", b"10"]


def _use(table: Table, kind: str) -> object:
    """One call of this kind."""
    calls: dict[str, Callable[[], object]] = {
        "row": lambda: table.row(b"r"),
        "rows": lambda: table.rows([b"r", b"s"]),
        "scan": lambda: list(table.scan()),
        "put": lambda: table.put(b"r", {b"cf:a": b"2"}),
        "delete": lambda: table.delete(b"r"),
        "batch": lambda: _one_row_batch(table),
        "counter": lambda: table.counter_inc(b"r", b"cf:n"),
        "exists": lambda: table.exists(b"r"),
        "cells": lambda: table.cells(b"r", b"cf:a"),
    }
    return calls[kind]()


def _one_row_batch(table: Table) -> None:
    with table.batch() as batch:
        batch.put(b"r", {b"cf:a": b"2"})


# -- regions and where they are --------------------------------------------------------------------------------


class _Regions(_Contract):
    def test_new_table_has_one_region_without_borders(self, table: Table) -> None:
        [region] = table.regions()
        assert (region["start_key"], region["end_key"]) == (b"", b"")
        assert region["name"].startswith(table.name + b",,")
        assert region["server_name"]
        assert region["port"] > 0

    def test_splits_become_borders_in_order(self, make_table: TableMaker) -> None:
        table = make_table(splits=[b"t", b"e", b"o", b"j"])
        regions = table.regions()
        assert [region["start_key"] for region in regions] == [b"", b"e", b"j", b"o", b"t"]
        assert [region["end_key"] for region in regions] == [b"e", b"j", b"o", b"t", b""]
        assert len({region["name"] for region in regions}) == 5

    @pytest.mark.parametrize("splits", [LETTER_SPLITS, UGLY_SPLITS], ids=["letters", "ugly"])
    def test_regions_cover_all_keys_without_gap_or_overlap(
        self, make_table: TableMaker, splits: tuple[bytes, ...]
    ) -> None:
        table = make_table(splits=splits)
        fill(table, LETTERS)
        self.disturb(table.connection, table)
        infos = [entry.region for entry in table.connection.regions(table.name)]
        assert infos[0].start_key == b""
        assert infos[-1].end_key == b""
        assert all(one.end_key == other.start_key for one, other in pairwise(infos))
        assert {info.table for info in infos} == {table.name}

    def test_located_region_holds_the_row_also_at_the_borders(self, make_table: TableMaker) -> None:
        table = make_table(splits=UGLY_SPLITS)
        fill(table, UGLY_KEYS)
        for reload in (False, True):
            self.disturb(table.connection, table)
            for key in (*UGLY_KEYS, *UGLY_SPLITS, b"z" * ROW_LENGTH_MAX):
                location = table.connection.locate(table.name, key, reload=reload)
                assert location.region.contains(key)
                assert location.region.table == table.name
        assert table.connection.locate(table.name, b"").region.start_key == b""

    def test_reloaded_locations_agree_with_the_list_of_regions(self, wide_table: Table) -> None:
        connection = wide_table.connection
        listed = connection.regions(wide_table.name)
        for entry in listed:
            found = connection.locate(wide_table.name, entry.region.start_key, reload=True)
            assert found.region_name == entry.region.name
            assert entry.primary is not None
            assert found.server == entry.primary.server

    def test_warm_up_counts_regions_and_makes_locating_free(self, wide_table: Table) -> None:
        connection = wide_table.connection
        assert connection.warm_up(wide_table.name) == len(connection.regions(wide_table.name)) >= 5
        before = connection.stats()["lookups"]["flights"]
        for key in LETTERS:
            connection.locate(wide_table.name, key)
        assert connection.stats()["lookups"]["flights"] == before

    def test_exported_locations_can_be_imported_and_heal_when_they_are_old(self, wide_table: Table) -> None:
        connection = wide_table.connection
        count = connection.warm_up(wide_table.name)
        exported = connection.export_locations(wide_table.name)
        self.disturb(connection, wide_table)
        assert connection.import_locations(exported) == count
        assert [wide_table.row(key) for key in LETTERS] == [{b"cf:q": b"<" + key + b">"} for key in LETTERS]
        assert scanned_keys(wide_table) == list(LETTERS)

    def test_region_name_can_be_taken_apart(self, make_table: TableMaker) -> None:
        table = make_table(splits=UGLY_SPLITS)
        for entry in table.connection.regions(table.name):
            parsed = keys.parse_region_name(entry.region.name)
            assert parsed == (table.name, entry.region.start_key, entry.region.region_id, 0)

    def test_meta_replicas_start_with_the_primary_which_is_somewhere(self, backend_connection: Connection) -> None:
        replicas = backend_connection.meta_replicas()
        assert replicas[0].id == 0
        assert replicas[0].server is not None


# -- region replicas -------------------------------------------------------------------------------------------


class _Replicas(_Contract):
    def test_timeline_where_it_cannot_be_done_is_refused_and_not_served_strong(self, table: Table) -> None:
        if table.connection.capabilities.region_replicas:
            pytest.skip("the backend can read replicas")
        with pytest.raises(Unsupported):
            table.row(b"r", consistency="TIMELINE")
        with pytest.raises(Unsupported):
            list(table.scan(consistency="TIMELINE"))

    def test_table_with_replicas_has_them_placed(self, make_table: TableMaker) -> None:
        table = self._replicated(make_table, splits=[b"m"])
        entries = table.connection.regions(table.name)
        assert [len(entry.replicas) for entry in entries] == [2, 2]
        primary = table.connection.locate(table.name, b"r")
        secondary = table.connection.locate(table.name, b"r", replica_id=1)
        assert (primary.replica_id, secondary.replica_id) == (0, 1)
        assert secondary.region_name != primary.region_name
        assert secondary.region.start_key == primary.region.start_key

    def test_named_replica_answers_itself_and_is_marked_stale(self, make_table: TableMaker) -> None:
        table = self._replicated(make_table)
        table.put(b"r", {b"cf:a": b"1"})
        row = table.row(b"r", replica_id=1)
        assert (row.stale, row.replica_id) == (True, 1)
        assert row in ({}, {b"cf:a": b"1"})

    def test_replica_never_shows_what_was_not_written(self, make_table: TableMaker) -> None:
        table = self._replicated(make_table)
        for number in range(10):
            table.put(b"r", {b"cf:a": b"%d" % number, b"cf:b": b"%d" % number}, timestamp=number + 1)
            seen = table.row(b"r", replica_id=1)
            assert len(set(seen.values())) <= 1, "half of a put"
            assert set(seen.values()) <= {b"%d" % past for past in range(number + 1)}

    def test_replica_that_caught_up_shows_everything(self, make_table: TableMaker) -> None:
        table = self._replicated(make_table, splits=[b"m"])
        fill(table, LETTERS)
        table.delete(b"b")
        if not self.replicate(table.connection, table):
            pytest.skip("the suite has no way to wait for this backend's replicas (hook: replicate)")
        expected = [key for key in LETTERS if key != b"b"]
        assert table.row(b"a", replica_id=1) == {b"cf:q": b"<a>"}
        assert table.row(b"b", replica_id=1) == {}
        assert table.exists(b"a", replica_id=1)
        assert table.cells(b"a", b"cf:q", replica_id=1) == [b"<a>"]
        found = list(table.scan(replica_id=1))
        assert [key for key, _ in found] == expected
        assert all(getattr(row, "stale", False) for _, row in found)
        many = table.rows(LETTERS, replica_id=1)
        assert [key for key, _ in many] == expected
        assert all((row.stale, row.replica_id) == (True, 1) for _, row in many)
        if table.connection.capabilities.reversed_scan:
            assert scanned_keys(table, replica_id=1, reverse=True) == expected[::-1]

    def test_timeline_read_of_a_healthy_table_answers(self, make_table: TableMaker) -> None:
        table = self._replicated(make_table)
        table.put(b"r", {b"cf:a": b"1"})
        row = table.row(b"r", consistency="TIMELINE")
        assert row.stale == (row.replica_id != 0)
        assert row == {b"cf:a": b"1"} or row.stale
        assert {key for key, _ in table.scan(consistency="TIMELINE")} <= {b"r"}
        assert {key for key, _ in table.rows([b"r"], consistency="TIMELINE")} <= {b"r"}

    def test_strong_read_sees_the_last_write_of_a_table_with_replicas(self, make_table: TableMaker) -> None:
        table = self._replicated(make_table)
        for number in range(20):
            table.put(b"r", {b"cf:a": b"%d" % number})
            row = table.row(b"r", consistency="STRONG")
            assert row == {b"cf:a": b"%d" % number}
            assert not row.stale

    def _replicated(self, make_table: TableMaker, splits: Sequence[bytes] = ()) -> Table:
        table = make_table(splits=splits, region_replication=2)
        needs(table.connection, "region_replicas")
        return table


class BackendContract(
    _Cells,
    _Versions,
    _Rows,
    _Deletes,
    _Batches,
    _Counters,
    _Checks,
    _AtomicRows,
    _Scans,
    _Filters,
    _Tables,
    _Regions,
    _Replicas,
):
    """Everything that a backend must do; see the module's docstring for how to use it."""
