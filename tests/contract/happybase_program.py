"""What happybase's own suite asks of a gateway, in our own words: a class that takes any ``happybase`` and any cluster.

``import metaclient as happybase`` must pass it on every backend, and plain happybase on the fake's Thrift 1. A subclass
brings the fixture ``program``. happybase's suite is a smoke test: what it does not look at is below it, from
``test_timestamp_is_an_exclusive_bound`` on.
"""
# ruff: noqa: PT011 - each happybase words its errors in its own way; their kind is what programs rely on

from __future__ import annotations

import itertools
import os
import random
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest
from thriftpy2.thrift import TException

import metaclient
from metaclient import MetaClientError

__all__ = ["HappybaseProgram", "Program", "WithCompaction"]

_numbers = itertools.count(1)
FAMILIES: dict[str, dict[str, Any]] = {"cf1:": {}, "cf2": {}, "cf3": {"max_versions": 1}}
MANY_VERSIONS = {"cf1:": {"max_versions": 3}, "cf2": {"max_versions": 3}, "cf3": {"max_versions": 1}}


@dataclass(frozen=True)
class Program:
    """A happybase and what its ``Connection`` is made with."""

    happybase: ModuleType
    options: dict[str, Any] = field(default_factory=dict)

    def connection(self, **more: Any) -> Any:
        return self.happybase.Connection(**{**self.options, **more})

    @property
    def error(self) -> type[Exception]:
        """What a call that the gateway refuses raises."""
        return MetaClientError if self.happybase is metaclient else TException

    def break_off(self, connection: Any) -> None:
        """Close the socket below a connection of a pool, as a network would; ours has none that one could hold."""
        transport = getattr(connection, "transport", None)
        if transport is not None:
            transport.close()

    def pool(self, size: Any) -> Any:
        return self.happybase.ConnectionPool(size=size, **self.options)


class HappybaseProgram:
    """Subclass it and bring ``program``."""

    @pytest.fixture
    def program(self) -> Program:
        raise NotImplementedError

    @pytest.fixture
    def prefix(self) -> str:
        """Of this process's tables: the cluster may be shared."""
        return f"happybase_{os.getpid()}_{next(_numbers)}"

    @pytest.fixture
    def connection(self, program: Program, prefix: str) -> Iterator[Any]:
        connection = program.connection(table_prefix=prefix)
        yield connection
        for name in connection.tables():
            connection.delete_table(name, disable=True)
        connection.close()

    @pytest.fixture
    def table(self, connection: Any) -> Any:
        connection.create_table("test1", families=MANY_VERSIONS)
        return connection.table("test1")

    # -- connections -------------------------------------------------------------------------------------------

    def test_compat_must_be_a_version_that_is_known(self, program: Program) -> None:
        with pytest.raises(ValueError):
            program.connection(compat="0.1.invalid.version")

    def test_transport_and_protocol_must_be_known(self, program: Program) -> None:
        with pytest.raises(ValueError):
            program.connection(transport="millennium")
        with pytest.raises(ValueError):
            program.connection(protocol="falcon")

    def test_timeout_is_taken_and_an_unconnected_connection_connects_at_open(self, program: Program) -> None:
        connection = program.connection(timeout=50_000, autoconnect=False)
        connection.open()
        assert isinstance(connection.tables(), list)
        connection.close()

    def test_prefix_must_be_text_and_is_put_before_names(self, program: Program) -> None:
        with pytest.raises(TypeError):
            program.connection(autoconnect=False, table_prefix=123)
        with pytest.raises(TypeError):
            program.connection(autoconnect=False, table_prefix_separator=2.1)
        connection = program.connection(autoconnect=False, table_prefix="foo")
        assert connection._table_name("bar") == b"foo_bar"
        assert connection.table("bar").name == b"foo_bar"
        assert connection.table("bar", use_prefix=False).name == b"bar"
        other = program.connection(autoconnect=False, table_prefix="foo", table_prefix_separator=".")
        assert other.table("bar").name == b"foo.bar"
        connection.close()
        other.close()

    def test_connection_and_table_can_be_shown(self, connection: Any, table: Any) -> None:
        assert "test1" in repr(table)
        assert str(connection)

    # -- tables ------------------------------------------------------------------------------------------------

    def test_tables_are_listed_without_the_prefix(self, connection: Any, table: Any) -> None:
        assert connection.tables() == [b"test1"]

    def test_table_is_disabled_and_enabled(self, connection: Any, table: Any) -> None:
        assert connection.is_table_enabled("test1")
        connection.disable_table("test1")
        assert not connection.is_table_enabled("test1")
        connection.enable_table("test1")
        assert connection.is_table_enabled("test1")

    def test_regions_are_listed(self, table: Any) -> None:
        (region,) = table.regions()
        assert (region["start_key"], region["end_key"]) == (b"", b"")
        assert region["name"].startswith(table.name)

    def test_table_cannot_be_made_without_families(self, connection: Any) -> None:
        with pytest.raises(ValueError):
            connection.create_table("sometable", families={})
        with pytest.raises(TypeError):
            connection.create_table("sometable", families=0)
        with pytest.raises(TypeError):
            connection.create_table("sometable", families=[])

    def test_families_have_their_names_and_settings(self, table: Any) -> None:
        families = table.families()
        assert set(families) == {b"cf1", b"cf2", b"cf3"}
        for name, settings in families.items():
            assert settings["name"] == name + b":"
        assert families[b"cf1"]["max_versions"] == 3
        assert families[b"cf3"]["max_versions"] == 1

    # -- one row -----------------------------------------------------------------------------------------------

    def test_put_takes_columns_times_and_empty_qualifiers(self, table: Any) -> None:
        table.put(b"r1", {b"cf1:c1": b"v1", b"cf1:c2": b"v2", b"cf2:c3": b"v3"})
        table.put(b"r1", {b"cf1:c4": b"v2"}, timestamp=2345678)
        table.put(b"r1", {b"cf1:": b"empty qualifier"})
        assert table.row(b"r1")[b"cf1:"] == b"empty qualifier"
        assert table.row(b"r1", include_timestamp=True)[b"cf1:c4"] == (b"v2", 2345678)

    def test_counters_count(self, table: Any) -> None:
        row, column = b"row-with-counter", b"cf1:counter"
        assert table.counter_get(row, column) == 0
        assert table.counter_inc(row, column) == 1
        assert table.counter_get(row, column) == 1
        assert table.counter_inc(row, column, 10) == 11
        assert table.counter_dec(row, column, 30) == -19
        table.counter_set(row, column, 0)
        assert table.counter_inc(row, column) == 1
        assert table.counter_dec(row, column) == 0
        table.counter_set(row, column, 1000)
        assert table.counter_inc(row, column, 2) == 1002
        assert table.counter_dec(row, column, 2) == 1000

    def test_row_by_columns_and_times(self, table: Any) -> None:
        with pytest.raises(TypeError):
            table.row(b"row", 123)
        with pytest.raises(TypeError):
            table.row(b"row", timestamp="invalid")
        table.put(b"r", {b"cf1:c1": b"v1old"}, timestamp=1234)
        table.put(b"r", {b"cf1:c1": b"v1new"}, timestamp=3456)
        table.put(b"r", {b"cf1:c2": b"v2", b"cf2:c1": b"v3"}, timestamp=3456)
        assert table.row(b"r") == {b"cf1:c1": b"v1new", b"cf1:c2": b"v2", b"cf2:c1": b"v3"}
        assert table.row(b"r", ["cf1"]) == {b"cf1:c1": b"v1new", b"cf1:c2": b"v2"}
        assert table.row(b"r", ["cf1:c1", "cf2"]) == {b"cf1:c1": b"v1new", b"cf2:c1": b"v3"}
        assert table.row(b"r", timestamp=2345) == {b"cf1:c1": b"v1old"}
        assert table.row(b"r", timestamp=123) == {}
        assert table.row(b"r", ["cf1"], include_timestamp=True) == {
            b"cf1:c1": (b"v1new", 3456),
            b"cf1:c2": (b"v2", 3456),
        }
        assert table.row(b"no-such-row") == {}

    def test_rows_come_in_the_order_asked_for(self, table: Any) -> None:
        with pytest.raises(TypeError):
            table.rows([b"r1"], object())
        with pytest.raises(TypeError):
            table.rows([b"r1"], timestamp="invalid")
        old, new = {b"cf1:c1": b"old", b"cf2:d": b"old"}, {b"cf1:c1": b"new", b"cf2:d": b"new"}
        for row in (b"r1", b"r2", b"r3"):
            table.put(row, old, timestamp=1234)
            table.put(row, new, timestamp=3456)
        assert dict(table.rows([b"r1", b"r2", b"r3"])) == {b"r1": new, b"r2": new, b"r3": new}
        assert dict(table.rows([b"r3", b"r1"], timestamp=2345)) == {b"r1": old, b"r3": old}
        assert table.rows([b"r1"], timestamp=111) == []
        assert not table.rows([])

    def test_cells_are_versions_newest_first(self, table: Any) -> None:
        for stamp, value in ((1234, b"old"), (3456, b"new")):
            table.put(b"r", {b"cf1:c1": value}, timestamp=stamp)
        with pytest.raises(TypeError):
            table.cells(b"r", b"cf1:c1", versions="invalid")
        with pytest.raises(TypeError):
            table.cells(b"r", b"cf1:c1", versions=3, timestamp="invalid")
        with pytest.raises(ValueError):
            table.cells(b"r", b"cf1:c1", versions=0)
        assert table.cells(b"r", b"cf1:c1", versions=1) == [b"new"]
        assert table.cells(b"r", b"cf1:c1") == [b"new", b"old"]
        assert table.cells(b"r", b"cf1:c1", timestamp=2345, include_timestamp=True) == [(b"old", 1234)]

    def test_delete_takes_columns_families_rows_and_times(self, table: Any) -> None:
        data = {b"cf1:col1": b"v1", b"cf1:col2": b"v2", b"cf1:col3": b"v3"}
        table.put(b"r", {b"cf1:col2": b"v2old"}, timestamp=1234)
        table.put(b"r", data)
        table.delete(b"r", [b"cf1:col2"], timestamp=2345)
        assert table.cells(b"r", b"cf1:col2", versions=2) == [b"v2"]
        table.delete(b"r", [b"cf1:col1"])
        assert table.row(b"r") == {b"cf1:col2": b"v2", b"cf1:col3": b"v3"}
        table.delete(b"r", timestamp=12345)
        assert table.row(b"r") == {b"cf1:col2": b"v2", b"cf1:col3": b"v3"}
        table.put(b"r", {b"cf2:x": b"1"})
        table.delete(b"r", ["cf1"])
        assert table.row(b"r") == {b"cf2:x": b"1"}
        table.delete(b"r")
        assert table.row(b"r") == {}

    # -- batches -----------------------------------------------------------------------------------------------

    def test_batch_checks_its_arguments(self, table: Any) -> None:
        with pytest.raises(TypeError):
            table.batch(timestamp="invalid")
        with pytest.raises(ValueError):
            table.batch(batch_size=0)
        with pytest.raises(TypeError):
            table.batch(batch_size=10, transaction=True)

    def test_batch_of_puts_and_deletes(self, table: Any) -> None:
        batch = table.batch()
        batch.put(b"row1", {b"cf1:col1": b"value1", b"cf1:col2": b"value2"})
        batch.put(b"row2", {b"cf1:col1": b"value1", b"cf1:col2": b"value2", b"cf1:col3": b"value3"})
        batch.delete(b"row1", [b"cf1:col4"])
        batch.delete(b"another-row")
        batch.send()
        assert table.row(b"row1") == {b"cf1:col1": b"value1", b"cf1:col2": b"value2"}
        late = table.batch(timestamp=1234567)
        late.put(b"row1", {b"cf1:col5": b"value5"})
        late.send()
        assert table.row(b"row1", [b"cf1:col5"], include_timestamp=True) == {b"cf1:col5": (b"value5", 1234567)}

    def test_batch_as_a_context(self, table: Any) -> None:
        with table.batch() as batch:
            batch.put(b"row4", {b"cf1:col3": b"value3"})
            batch.put(b"row5", {b"cf1:col4": b"value4"})
            batch.put(b"row", {b"cf1:col1": b"value1"})
            batch.delete(b"row", [b"cf1:col4"])
        assert table.row(b"row4") == {b"cf1:col3": b"value3"}
        with suppress(KeyError), table.batch(transaction=True) as batch:
            batch.put(b"row6", {b"cf1:col1": b"never"})
            raise KeyError("nothing of it is sent")
        assert table.row(b"row6") == {}
        with suppress(KeyError), table.batch() as batch:
            batch.put(b"row7", {b"cf1:col1": b"sent all the same"})
            raise KeyError("no transaction")
        assert table.row(b"row7") != {}

    def test_batch_is_sent_in_parts(self, table: Any) -> None:
        with table.batch(batch_size=5) as batch:
            for row in range(23):
                batch.put(b"row-%02d" % row, {b"cf1:a": b"1", b"cf1:b": b"2"})
        assert len(list(table.scan(row_prefix=b"row-"))) == 23

    def test_batch_keeps_the_order_of_one_column(self, table: Any) -> None:
        with table.batch() as batch:
            for value in range(100):
                batch.put(b"row", {b"cf1:c": str(value).encode()})
        assert table.row(b"row") == {b"cf1:c": b"99"}

    def test_batch_of_four_thousand_rows(self, table: Any) -> None:
        with table.batch() as batch:
            for row in range(4000):
                batch.put(b"row-%05d" % row, {b"cf1:%d" % column: b"v" for column in range(4)})
        assert sum(1 for _ in table.scan()) == 4000

    # -- scans -------------------------------------------------------------------------------------------------

    @pytest.fixture
    def scanned(self, table: Any) -> Any:
        with table.batch(timestamp=5000) as batch:
            for row in range(200):
                batch.put(b"row-scan-a%05d" % row, {b"cf1:col1": b"v1", b"cf1:col2": b"v2", b"cf2:col1": b"v1"})
                batch.put(b"row-scan-b%05d" % row, {b"cf1:col1": b"v1"})
        return table

    def test_scan_checks_its_arguments(self, table: Any) -> None:
        with pytest.raises(TypeError):
            list(table.scan(row_prefix=b"foobar", row_start=b"xyz"))
        with pytest.raises(ValueError):
            list(table.scan(batch_size=0))
        with pytest.raises(ValueError):
            list(table.scan(limit=0))
        with pytest.raises(ValueError):
            list(table.scan(scan_batching=0))

    def test_scan_by_range_prefix_columns_and_limit(self, scanned: Any) -> None:
        assert len(list(scanned.scan(row_start=b"row-scan-a00012", row_stop=b"row-scan-a00022"))) == 10
        assert len(list(scanned.scan(row_stop=b"row-scan-a00010"))) == 10
        assert len(list(scanned.scan(row_prefix=b"row-scan-b", limit=10))) == 10
        assert len(list(scanned.scan(row_prefix=b"row-scan-b", batch_size=7))) == 200
        assert len(list(scanned.scan(columns=["cf2:col1"]))) == 200
        assert len(list(scanned.scan(columns=["cf2"], limit=11))) == 11
        assert list(scanned.scan(row_prefix=b"xyz")) == []
        assert list(scanned.scan(timestamp=123)) == []
        key, row = next(iter(scanned.scan(row_prefix=b"row-scan-b", include_timestamp=True)))
        assert (key, row) == (b"row-scan-b00000", {b"cf1:col1": (b"v1", 5000)})

    def test_scan_can_be_given_up(self, scanned: Any) -> None:
        scan = scanned.scan(batch_size=3)
        for _ in range(5):
            next(scan)
        scan.close()
        with pytest.raises(StopIteration):
            next(scan)

    def test_scan_sorts_columns(self, table: Any) -> None:
        columns = [b"cf1:col-%02d" % number for number in range(40)]
        shuffled = list(columns)
        random.Random(5).shuffle(shuffled)
        with table.batch() as batch:
            for column in shuffled:
                batch.put(b"row-sorted", {column: b"v"})
        ((_, row),) = list(table.scan(row_start=b"row-sorted", sorted_columns=True, include_timestamp=False))
        assert isinstance(row, OrderedDict)
        assert list(row) == columns

    def test_scan_in_reverse(self, scanned: Any) -> None:
        found = [key for key, _ in scanned.scan(row_prefix=b"row-scan-b", reverse=True)]
        assert found == [b"row-scan-b%05d" % row for row in reversed(range(200))]
        part = scanned.scan(row_start=b"row-scan-a00010", row_stop=b"row-scan-a00005", reverse=True)
        assert [key for key, _ in part] == [b"row-scan-a%05d" % row for row in (10, 9, 8, 7, 6)]

    def test_scan_with_a_filter(self, table: Any) -> None:
        for row, value in ((b"row1", b"val1"), (b"row2", b"val2"), (b"row3", b"val3")):
            table.put(row, {b"cf1:qual1": value})
        wanted = b"SingleColumnValueFilter ('cf1', 'qual1', =, 'binary:val1')"
        assert list(table.scan(filter=wanted)) == [(b"row1", {b"cf1:qual1": b"val1"})]

    # -- pools -------------------------------------------------------------------------------------------------

    def test_pool_checks_its_size(self, program: Program) -> None:
        with pytest.raises(TypeError):
            program.pool("abc")
        with pytest.raises(ValueError):
            program.pool(0)

    def test_pool_serves_many_threads_and_survives_connections_that_break(self, program: Program) -> None:
        pool = program.pool(3)

        def work(number: int) -> int:
            chance, done = random.Random(number), 0
            for _ in range(25):
                with suppress(KeyError), pool.connection() as connection:
                    connection.tables()
                    done += 1
                    if chance.random() < 0.25:
                        program.break_off(connection)
                        raise KeyError("the user's own trouble")
            return done

        with ThreadPoolExecutor(10) as threads:
            assert sum(threads.map(work, range(10))) == 250

    def test_pool_that_is_empty_says_so(self, program: Program) -> None:
        pool = program.pool(1)

        def ask() -> bool:
            try:
                with pool.connection(timeout=0.1):
                    return True
            except program.happybase.NoConnectionsAvailable:
                return False

        with ThreadPoolExecutor(1) as thread, pool.connection():
            assert thread.submit(ask).result(60) is False
        with ThreadPoolExecutor(1) as thread:
            assert thread.submit(ask).result(60) is True

    def test_pool_gives_a_thread_the_connection_that_it_has(self, program: Program) -> None:
        pool = program.pool(1)
        with pool.connection(timeout=10) as one, pool.connection(timeout=0.1) as other:
            assert one is other

    # -- what the suite does not look at -----------------------------------------------------------------------

    def test_timestamp_is_an_exclusive_bound(self, table: Any) -> None:
        table.put(b"r", {b"cf1:c": b"v"}, timestamp=1000)
        assert table.row(b"r", timestamp=1000) == {}
        assert table.row(b"r", timestamp=1001) == {b"cf1:c": b"v"}
        assert list(table.scan(timestamp=1000)) == []
        assert table.cells(b"r", b"cf1:c", timestamp=1000) == []

    def test_family_keeps_its_number_of_versions(self, table: Any) -> None:
        for stamp in (1, 2, 3, 4):
            table.put(b"r", {b"cf1:c": b"%d" % stamp, b"cf3:c": b"%d" % stamp}, timestamp=stamp)
        assert table.cells(b"r", b"cf1:c") == [b"4", b"3", b"2"]
        assert table.cells(b"r", b"cf3:c") == [b"4"]

    def test_delete_hides_a_put_of_its_own_time(self, table: Any) -> None:
        table.put(b"r", {b"cf1:c": b"v"}, timestamp=1000)
        table.delete(b"r", [b"cf1:c"], timestamp=1000)
        assert table.row(b"r") == {}

    def test_filter_that_excludes_everything_excludes_everything(self, table: Any) -> None:
        table.put(b"r1", {b"cf1:a": b"1"})
        table.put(b"r2", {b"cf1:b": b"1"})
        assert list(table.scan(filter=b"ValueFilter(=, 'binary:2')")) == []
        assert [key for key, _ in table.scan(filter=b"QualifierFilter(=, 'binary:b')")] == [b"r2"]
        # A row without the column stays, unless the filter says otherwise.
        loose = b"SingleColumnValueFilter('cf1', 'a', =, 'binary:1')"
        assert [key for key, _ in table.scan(filter=loose)] == [b"r1", b"r2"]

    def test_missing_rows_are_left_out(self, table: Any) -> None:
        table.put(b"r2", {b"cf1:c": b"v"})
        assert table.rows([b"r1", b"r2", b"r3"]) == [(b"r2", {b"cf1:c": b"v"})]

    def test_disabled_table_cannot_be_read_or_written(self, program: Program, connection: Any, table: Any) -> None:
        connection.disable_table("test1")
        for use in (
            lambda: table.row(b"r"),
            lambda: list(table.scan()),
            lambda: table.put(b"r", {b"cf1:c": b"v"}),
        ):
            with pytest.raises(program.error):
                use()

    def test_table_is_made_once_and_deleted_only_when_disabled(
        self, program: Program, connection: Any, table: Any
    ) -> None:
        with pytest.raises(program.error):
            connection.create_table("test1", families=FAMILIES)
        with pytest.raises(program.error):
            connection.delete_table("test1")
        assert connection.tables() == [b"test1"]

    def test_unknown_family_is_refused(self, program: Program, table: Any) -> None:
        with pytest.raises(program.error):
            table.put(b"r", {b"nope:c": b"v"})
        with pytest.raises(program.error):
            table.row(b"r", ["nope"])

    def test_increments_of_many_threads_are_all_counted(self, program: Program, table: Any) -> None:
        pool = program.pool(4)

        def count(_: int) -> None:
            with pool.connection() as connection:
                own = connection.table(table.name, use_prefix=False)
                for _ in range(20):
                    own.counter_inc(b"r", b"cf1:n")

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(count, range(4)))
        assert table.counter_get(b"r", b"cf1:n") == 80

    def test_rows_without_wal_are_there_as_well(self, table: Any) -> None:
        table.put(b"r", {b"cf1:c": b"v"}, wal=False)
        assert table.row(b"r") == {b"cf1:c": b"v"}

    def test_scan_in_pieces_of_a_row(self, table: Any) -> None:
        table.put(b"r", {b"cf1:%d" % number: b"v" for number in range(5)})
        pieces = [row for _, row in table.scan(scan_batching=2)]
        assert [len(piece) for piece in pieces] == [2, 2, 1]


class WithCompaction:
    """Of those that can: Thrift 2 has no call for it."""

    def test_compaction_is_accepted(self, connection: Any, table: Any) -> None:
        table.put(b"r", {b"cf1:c": b"v"})
        connection.compact_table("test1")
        connection.compact_table("test1", major=True)
        assert table.row(b"r") == {b"cf1:c": b"v"}
