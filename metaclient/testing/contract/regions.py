"""The contract of backends: regions and their locations."""

from __future__ import annotations

from itertools import pairwise

import pytest

from metaclient import keys
from metaclient.connection import Connection
from metaclient.table import Table
from metaclient.testing.contract.suite import (
    LETTER_SPLITS,
    LETTERS,
    ROW_LENGTH_MAX,
    UGLY_KEYS,
    UGLY_SPLITS,
    ContractSuite,
    TableMaker,
    fill,
    scanned_keys,
)

__all__ = ["Regions"]


class Regions(ContractSuite):
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
