"""The table of a write: made with splits, emptied only when that was asked for, or refused with advice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from metaclient import ConfigError, Connection, NoSuchFamily, TableNotFound, Unsupported
from metaclient.runtime import SimRuntime
from metaclient_fake import FakeCluster
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


def test_what_cannot_be_made_again_is_not_deleted(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend without splits must say so before the table is gone."""
    from dataclasses import replace

    connection.create_table("t", {"cf": {}}, splits=[b"g"])
    monkeypatch.setattr(connection._backend, "capabilities", replace(connection.capabilities, create_with_splits=False))
    with pytest.raises(Unsupported, match="cannot create a table with splits"):
        destination.prepare(connection, b"t", [b"cf"], options(hbase_spark_write_truncate="true"), overwrite=True)
    assert starts(connection) == [b"", b"g"]


def test_a_copy_has_renamed_families(connection: Connection) -> None:
    connection.create_table("t", {"a": {"max_versions": 3}, "b": {}}, splits=[b"m"])
    destination.copy_of(connection, b"t", connection, b"u", {b"a": b"z"})
    assert starts(connection, "u") == [b"", b"m"]
    assert [(family.name, family.max_versions) for family in connection.engine.describe(b"u").families] == [(b"z", 3)]
