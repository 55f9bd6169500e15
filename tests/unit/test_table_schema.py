"""Changes of tables: the schema of the cluster keeps everything that a change does not name."""

from typing import Any

import pytest

from metaclient.errors import ConfigError, MetaClientError, NoSuchFamily
from metaclient.table_schema import TableChange, table_change
from metaclient.wire.rpc.schemas import changed_schema, table_schema_from
from metaclient_fake import FakeCluster


def schema() -> dict[str, Any]:
    """A schema with settings that this client does not know."""
    return {
        "table_name": {"namespace": b"default", "qualifier": b"t"},
        "attributes": [
            {"first": b"hbase.store.file-tracker.impl", "second": b"FILE"},
            {"first": b"REGION_REPLICATION", "second": b"2"},
        ],
        "column_families": [
            {
                "name": b"cf",
                "attributes": [
                    {"first": b"VERSIONS", "second": b"1"},
                    {"first": b"IS_MOB", "second": b"\xff\xff"},
                    {"first": b"BLOCKSIZE", "second": b"4096"},
                ],
                "configuration": [{"name": "hbase.hstore.engine.class", "value": "x"}],
            },
            {"name": b"old", "attributes": []},
        ],
        "configuration": [{"name": "a", "value": "b"}],
    }


def test_settings_that_the_client_does_not_know_survive_a_change() -> None:
    before = schema()
    after = changed_schema(before, TableChange(b"t", {b"cf": {"max_versions": 4}}, region_replication=3))
    assert before == schema(), "the schema that was read is not changed"
    assert {"first": b"hbase.store.file-tracker.impl", "second": b"FILE"} in after["attributes"]
    assert after["configuration"] == before["configuration"]
    family = after["column_families"][0]
    assert family["configuration"] == before["column_families"][0]["configuration"]
    assert {"first": b"IS_MOB", "second": b"\xff\xff"} in family["attributes"]
    assert {"first": b"BLOCKSIZE", "second": b"4096"} in family["attributes"]
    assert [pair for pair in family["attributes"] if pair["first"] == b"VERSIONS"] == [
        {"first": b"VERSIONS", "second": b"4"}
    ]
    assert table_schema_from(after).region_replication == 3


def test_family_is_added_dropped_and_never_dropped_by_a_typing_mistake() -> None:
    after = changed_schema(schema(), TableChange(b"t", {b"new": {"time_to_live_s": 60}}, dropped=(b"old",)))
    assert [family["name"] for family in after["column_families"]] == [b"cf", b"new"]
    assert table_schema_from(after).families[1].max_versions == 3
    with pytest.raises(NoSuchFamily, match="it has cf, old"):
        changed_schema(schema(), TableChange(b"t", {}, dropped=(b"odl",)))


@pytest.mark.parametrize(
    ("families", "dropped", "replicas", "error", "message"),
    [
        (None, (), None, ValueError, "nothing of table 't' would change"),
        (None, (), 0, ValueError, "from 1 on, got 0"),
        (None, (), True, ValueError, "from 1 on, got True"),
        (["cf"], (), None, TypeError, "must map family names"),
        (None, "cf", None, TypeError, "must be a list of family names"),
        ({"cf": {}}, ("cf:",), None, ValueError, "in 'families' and in 'drop_families'"),
        ({"cf": {"max_version": 3}}, (), None, ConfigError, "did you mean 'max_versions'"),
    ],
)
def test_change_that_says_nothing_or_contradicts_itself_is_refused(
    families: Any, dropped: Any, replicas: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        table_change(b"t", families, dropped, replicas)


def test_failed_truncation_says_that_the_table_is_disabled() -> None:
    with FakeCluster(servers=1) as cluster, cluster.connect() as connection:
        connection.create_table("t", {"cf": {}})

        def fail(*arguments: object) -> None:
            raise MetaClientError("the master is gone")

        connection.engine.backend.truncate_table = fail  # type: ignore[attr-defined]
        with pytest.raises(MetaClientError) as caught:
            connection.truncate_table("t")
        assert "table 't' is disabled: call enable_table(), or truncate it again" in caught.value.__notes__
        assert not connection.is_table_enabled("t")
