"""The guessed catalog reads every cell and every row, and never guesses a number from bytes."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark'")

from metaclient.errors import ConfigError, NoSuchFamily, TableNotFound
from metaclient_fake import FakeCluster
from spark_connector.jobs.splits import schema_from
from spark_connector.planning.query import Query
from spark_connector.reading.plan_text import plan_text
from spark_connector.reading.planned import planned_read
from spark_connector.reading.sampled import sample_table
from spark_connector.schema.catalog import Catalog
from spark_connector.schema.columns import mapping_of
from spark_connector.schema.sampling import QUALIFIERS_MAX, sample_of
from spark_connector.settings.options import Options
from spark_connector.source import HBaseSource


def types_of(sample: Any) -> dict[str, str]:
    return {each.name: each.type for each in sample.columns}


def test_text_is_a_string_and_anything_else_binary_with_candidates() -> None:
    rows = [(b"k1", {b"d:n": b"\0\0\0\1", b"d:t": "é".encode()}), (b"k2", {b"d:n": b"\0\0\0\2"})]
    sample = sample_of("t", [b"d"], rows, is_whole=True)
    assert types_of(sample) == {"id": "string", "n": "binary", "t": "string"}
    assert [(each.rows, each.looks) for each in sample.columns] == [
        (2, "text"),
        (2, "4 bytes: int, float?"),
        (1, "text"),
    ]
    assert '"n": {' in sample.text()


def test_a_part_of_a_table_gets_maps_for_the_cells_that_were_not_seen() -> None:
    sample = sample_of("ns:t", [b"d", b"e"], [(b"\xff", {b"d:ID": b"1"})], is_whole=False)
    assert types_of(sample) == {
        "id": "binary",
        "d_ID": "string",
        "d_more": "map<string,binary>",
        "e_more": "map<string,binary>",
    }
    catalog = Catalog.parse(sample.catalog())
    assert catalog.table == b"ns:t"
    assert catalog.families() == {b"d", b"e"} or set(catalog.families()) == {b"d", b"e"}


@pytest.mark.parametrize(
    "qualifiers", [[b"%d" % n for n in range(3)], [b"q%d" % n for n in range(QUALIFIERS_MAX + 1)], [b"\xff"]]
)
def test_qualifiers_that_are_data_become_one_map(qualifiers: list[bytes]) -> None:
    sample = sample_of("t", [b"d"], [(b"k", {b"d:" + each: b"x" for each in qualifiers})], is_whole=True)
    assert types_of(sample) == {"id": "string", "d": "map<string,string>"}
    Catalog.parse(sample.catalog())


def test_a_table_is_sampled_from_several_regions() -> None:
    with FakeCluster(servers=2) as cluster, cluster.connect() as connection:
        connection.create_table("t", {"d": {}}, splits=[b"b", b"c"])
        for row in (b"a1", b"b1", b"c1"):
            connection.table("t").put(row, {b"d:" + row[:1]: b"x"})
        sample = sample_table(connection, "t")
        assert sample.is_whole
        assert list(types_of(sample)) == ["id", "a", "b", "c"]
        with pytest.raises(TableNotFound):
            sample_table(connection, "gone")


def test_planning_a_read_of_a_missing_family_names_the_families() -> None:
    options = {"url": "fake:x", "hbase.table": "t", "hbase.columns.mapping": "id STRING :id, a STRING q:a"}
    query = Query.of(Options.parse(options))
    with FakeCluster(servers=2) as cluster, cluster.connect() as connection:
        with pytest.raises(TableNotFound):
            planned_read(connection, query)
        connection.create_table("t", {"d": {}, "e": {}})
        with pytest.raises(NoSuchFamily, match=r"table 't' has no family 'q' \(it has d, e\).*reads"):
            planned_read(connection, query)


def test_the_text_of_a_plan_has_rows_filter_regions_and_servers() -> None:
    given = {"url": "fake:x", "hbase.table": "t", "hbase.columns.mapping": "id STRING :id, a STRING d:a"}
    query = Query.of(Options.parse({**given, "hbase.spark.query.where": "id >= 'a1' AND a = 'x' AND id < 'b2'"}))
    with FakeCluster(servers=2) as cluster, cluster.connect() as connection:
        connection.create_table("t", {"d": {}}, splits=[b"b"])
        text = plan_text(query, planned_read(connection, query))
    assert text.startswith("HBase t, columns [id, a], rows ['a1', 'b2'), servers' filter SingleColumnValueFilter('d'")
    assert "2 regions of " in text


def test_names_of_columns_can_be_the_mapping() -> None:
    assert mapping_of(schema_from("id string, n int")[:1]) == "id string :id"
    schema = schema_from("id string, n int")
    schema.fields[1].name = schema.names[1] = "d:n"
    assert mapping_of(schema) == "id string :id, d:n int d:n"
    with pytest.raises(ConfigError, match=r"it has id, n.*rename"):
        mapping_of(schema_from("id string, n int"))


def test_a_schema_of_the_user_is_the_mapping_of_a_load() -> None:
    schema = schema_from("id string, n int")
    schema.fields[1].name = schema.names[1] = "d:n"
    reader = HBaseSource({"url": "thrift2://127.0.0.1:1", "hbase.table": "t"}).reader(schema)
    assert reader._query.columns == (b"d:n",)
