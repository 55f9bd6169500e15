"""The contract of backends: batches of puts and deletes."""

from __future__ import annotations

import pytest

from metaclient.backend import BatchSemantics
from metaclient.errors import BatchError, NoSuchFamily
from metaclient.table import Table
from metaclient.testing.contract.suite import (
    LETTER_SPLITS,
    LETTERS,
    ContractSuite,
    TableMaker,
    fill,
    needs,
    scanned,
    scanned_keys,
)

__all__ = ["Batches"]


class Batches(ContractSuite):
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
        """Both have one timestamp, and a delete hides puts of its own timestamp, whatever their order."""
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
