"""The table of a write: made with splits, emptied only when that was asked for, or refused with advice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from metaclient import ConfigError, Connection, NoSuchFamily, TableNotFound, Unsupported
from metaclient.runtime import SimRuntime
from metaclient_fake import FakeCluster
from spark_connector.planning import table_facts
from spark_connector.settings.options import Options
from spark_connector.writing import destination


@pytest.fixture
def connection() -> Iterator[Connection]:
    with SimRuntime(seed=1) as runtime, FakeCluster(runtime=runtime) as cluster, cluster.connect() as made:
        yield made


def options(**given: str) -> Options:
    return Options.parse(
        {"url": "thrift2://gateway:9090", **{name.replace("_", "."): text for name, text in given.items()}}
    )


def starts(connection: Connection, table: str = "t") -> list[bytes]:
    return [entry.region.start_key for entry in connection.regions(table)]


def test_a_missing_table_is_not_made_in_silence(connection: Connection) -> None:
    with pytest.raises(TableNotFound, match=r"'t' does not exist.*newtable.*hbase\.spark\.write\.splits"):
        destination.prepare(connection, b"t", [b"cf"], options())
    assert connection.tables() == []


def test_a_new_table_has_the_catalogs_families_and_regions_between_the_ends(connection: Connection) -> None:
    destination.prepare(connection, b"t", [b"b", b"a", b"a"], options(newtable="5", regionStart="a", regionEnd="d"))
    assert starts(connection) == [b"", b"a", b"b", b"c", b"d"]
    assert sorted(connection.table("t").families()) == [b"a", b"b"]


@pytest.mark.parametrize(("regions", "expected"), [("1", 1), ("2", 2), ("3", 3), ("4", 4), ("50", 50)])
def test_a_new_table_has_as_many_regions_as_asked(connection: Connection, regions: str, expected: int) -> None:
    destination.prepare(connection, b"t", [b"cf"], options(newtable=regions))
    assert len(starts(connection)) == expected


def test_a_new_table_is_cut_at_given_keys(connection: Connection) -> None:
    destination.prepare(connection, b"t", [b"cf"], options(hbase_spark_write_splits="m,c,\\x00\\x01"))
    assert starts(connection) == [b"", b"\x00\x01", b"c", b"m"]


def test_a_table_that_is_there_is_left_as_it_is(connection: Connection) -> None:
    connection.create_table("t", {"cf": {}}, splits=[b"x"])
    destination.prepare(connection, b"t", [b"cf"], options(newtable="9"))
    assert starts(connection) == [b"", b"x"]


def test_too_narrow_a_range_for_so_many_regions(connection: Connection) -> None:
    with pytest.raises(ConfigError, match="newtable = 9"):
        destination.prepare(connection, b"t", [b"cf"], options(newtable="9", regionStart="a", regionEnd="a\\x00"))
    with pytest.raises(ConfigError, match="regionStart must be before regionEnd"):
        destination.prepare(connection, b"t", [b"cf"], options(newtable="9", regionStart="z", regionEnd="a"))


def test_a_missing_family_is_named_before_any_row_is_sent(connection: Connection) -> None:
    connection.create_table("t", {"cf": {}, "d": {}})
    with pytest.raises(NoSuchFamily, match=r"no family 'x'.*it has cf, d"):
        destination.prepare(connection, b"t", [b"cf", b"x"], options())


def test_overwrite_is_refused_unless_truncating_was_said(connection: Connection) -> None:
    connection.create_table("t", {"cf": {}})
    connection.table("t").put(b"r", {b"cf:a": b"1"})
    with pytest.raises(ConfigError, match=r"hbase\.spark\.write\.truncate=true"):
        destination.prepare(connection, b"t", [b"cf"], options(), overwrite=True)
    assert connection.table("t").row(b"r") == {b"cf:a": b"1"}


def test_truncating_keeps_settings_and_regions(connection: Connection) -> None:
    connection.create_table(
        "t", {"cf": {"max_versions": 7, "time_to_live": 100}}, splits=[b"g", b"p"], region_replication=2
    )
    connection.table("t").put(b"r", {b"cf:a": b"1"})
    before = connection.engine.describe(b"t")
    destination.prepare(connection, b"t", [b"cf"], options(hbase_spark_write_truncate="true"), overwrite=True)
    assert list(connection.table("t").scan()) == []
    assert starts(connection) == [b"", b"g", b"p"]
    assert connection.engine.describe(b"t") == before


@pytest.mark.parametrize("has_call", [False, True])
def test_truncating_keeps_the_regions_while_copies_of_meta_have_those_of_an_earlier_table(has_call: bool) -> None:
    """The table was deleted and created with other regions, and the secondaries do not show that yet."""
    with (
        SimRuntime(seed=1) as runtime,
        FakeCluster(runtime=runtime, meta_replicas=3) as cluster,
        cluster.connect(meta_mode="LoadBalance") as connection,
    ):
        set_truncates(connection, has_call)
        connection.create_table("t", {"cf": {}}, splits=[b"a", b"b", b"c"])
        cluster.wait_until_replicated(60)
        for replica_id in (1, 2):
            cluster.partition(cluster.meta_server(), cluster.meta_server(replica_id))
        connection.delete_table("t", disable=True)
        connection.create_table("t", {"cf": {}}, splits=[b"m"])
        assert starts(connection) == [b"", b"a", b"b", b"c"], "the copies that are read show the earlier table"
        destination.prepare(connection, b"t", [b"cf"], options(hbase_spark_write_truncate="true"), overwrite=True)
        found = connection.engine.regions(b"t", at_primary=True)
        assert [entry.region.start_key for entry in found] == [b"", b"m"]


def set_truncates(connection: Connection, has_call: bool) -> None:
    """Let the backend have the call that truncates, or not, as Thrift 1."""
    connection._backend.capabilities = replace(connection.capabilities, schema=has_call)


@pytest.mark.parametrize("has_call", [False, True])
def test_truncated_table_is_planned_anew(connection: Connection, has_call: bool) -> None:
    set_truncates(connection, has_call)
    connection.create_table("t", {"cf": {}})
    before = table_facts.regions_of(connection, b"t")
    destination.prepare(connection, b"t", [b"cf"], options(hbase_spark_write_truncate="true"), overwrite=True)
    assert table_facts.regions_of(connection, b"t") != before


def test_what_cannot_be_made_again_is_not_deleted(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend without splits must say so before the table is gone."""
    connection.create_table("t", {"cf": {}}, splits=[b"g"])
    lacks = replace(connection.capabilities, create_with_splits=False, schema=False)
    monkeypatch.setattr(connection._backend, "capabilities", lacks)
    with pytest.raises(Unsupported, match="cannot create a table with splits"):
        destination.prepare(connection, b"t", [b"cf"], options(hbase_spark_write_truncate="true"), overwrite=True)
    assert starts(connection) == [b"", b"g"]


def test_a_copy_has_renamed_families(connection: Connection) -> None:
    connection.create_table("t", {"a": {"max_versions": 3}, "b": {}}, splits=[b"m"])
    destination.copy_of(connection, b"t", connection, b"u", {b"a": b"z"})
    assert starts(connection, "u") == [b"", b"m"]
    assert [(family.name, family.max_versions) for family in connection.engine.describe(b"u").families] == [(b"z", 3)]
