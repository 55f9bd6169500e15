"""Catalogs: hbase-connectors' JSON and text, what is refused, and composite row keys."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from metaclient.columns.codecs import BadValueError
from metaclient.columns.rowkey import join_parts, split_key
from metaclient.columns.types import parse_type
from metaclient.errors import ConfigError
from spark_connector.planning.read_schema import schema_of
from spark_connector.schema.catalog import Catalog, CellColumn, FamilyColumn
from spark_connector.schema.types import from_spark, to_spark
from spark_connector.settings.options import Options
from tests.unit.spark.strategies import catalogs, values

ORDERS: dict[str, Any] = {
    "table": {"namespace": "shop", "name": "orders", "tableCoder": "PrimitiveType"},
    "rowkey": "region:id",
    "columns": {
        "region": {"cf": "rowkey", "col": "region", "type": "string", "length": "2"},
        "id": {"cf": "rowkey", "col": "id", "type": "bigint"},
        "amount": {"cf": "d", "col": "amount", "type": "decimal(10,2)"},
        "note": {"cf": "d", "col": "note", "type": "string", "coder": "json"},
        "tags": {"cf": "d", "type": "map<string,int>"},
    },
}


def changed(**columns: dict[str, object] | None) -> dict[str, Any]:
    merged = {**ORDERS["columns"], **columns}
    return {**ORDERS, "columns": {name: each for name, each in merged.items() if each is not None}}


def test_the_json_of_hbase_connectors() -> None:
    catalog = Catalog.parse(json.dumps(ORDERS))
    assert catalog.table == b"shop:orders"
    assert [(part.name, part.length, part.is_last) for part in catalog.key] == [("region", 2, False), ("id", 8, True)]
    amount, tags = catalog.field("AMOUNT"), catalog.field("tags")
    assert isinstance(amount, CellColumn)
    assert (amount.column, str(amount.type), amount.codec.name) == (b"d:amount", "decimal(10,2)", "naive")
    assert isinstance(tags, FamilyColumn)
    assert catalog.field("note").codec.name == "json"
    assert catalog.families() == (b"d",)
    assert catalog.cells_of(["region", "amount"]) == (b"d:amount",)
    assert catalog.cells_of(["amount", "tags"]) == (b"d",)  # the family, once
    assert catalog.schema().simpleString() == (
        "struct<region:string,id:bigint,amount:decimal(10,2),note:string,tags:map<string,int>>"
    )
    assert pickle.loads(pickle.dumps(catalog)) == catalog


def test_the_example_in_hbase_connectors_own_comment_but_for_its_avro() -> None:
    text = """{"table":{"namespace":"default", "name":"htable"}, "rowkey":"key1:key2", "columns":{
        "col1":{"cf":"rowkey", "col":"key1", "type":"string"}, "col2":{"cf":"rowkey", "col":"key2", "type":"double"},
        "col3":{"cf":"cf1", "col":"col2", "type":"binary"}, "col4":{"cf":"cf1", "col":"col3", "type":"timestamp"}}}"""
    catalog = Catalog.parse(text)
    assert catalog.table == b"htable"
    assert join_parts(catalog.key, ["ab", 1.5]) == b"ab\0" + b"\x3f\xf8" + bytes(6)


def test_the_older_text() -> None:
    catalog = Catalog.from_mapping("ns:t", "KEY STRING :key, A decimal(5,2) cf:a, B map<string,int> cf:*")
    assert catalog.table == b"ns:t"
    assert catalog.schema().simpleString() == "struct<KEY:string,A:decimal(5,2),B:map<string,int>>"
    assert catalog.cells_of(["A"]) == (b"cf:a",)


def test_the_default_coder_is_the_tables_then_the_options() -> None:
    without = {**ORDERS, "table": {"name": "t"}}
    assert Catalog.parse(without, default_coder="phoenix").field("amount").codec.name == "phoenix"
    assert Catalog.parse(ORDERS, default_coder="phoenix").field("amount").codec.name == "naive"


@pytest.mark.parametrize(
    ("catalog", "words"),
    [
        ('{"table": {"name": "t"},\n "rowkey" "k"}', "no JSON at line 2, column 11"),
        ("", "no JSON at line 1, column 1"),
        ("[]", "a JSON object with table, rowkey and columns"),
        ('{"table": {"name": "t"}, "table": {}}', "one object has 'table' twice"),
        ({}, "table is missing"),
        ({**ORDERS, "table": {}}, "name is missing"),
        ({**ORDERS, "table": {"name": "a b"}}, "catalog:"),
        ({**ORDERS, "rowKey": "x"}, "did you mean rowkey?"),
        ({**ORDERS, "rowkey": ""}, "rowkey is missing"),
        ({**ORDERS, "rowkey": "region:idd"}, "did you mean id?"),
        ({**ORDERS, "rowkey": "region"}, "column id has cf rowkey, but rowkey has no part 'id'"),
        ({**ORDERS, "rowkey": "id:id:region"}, "has a part twice"),
        ({**ORDERS, "columns": {}}, "no columns"),
        (
            changed(amount={"cf": "d", "col": "a", "type": "strng"}),
            "column amount: type 'strng': there is no type strng",
        ),
        (changed(amount={"cf": "d", "col": "a", "type": "strng"}), "did you mean string?"),
        (changed(amount={"cf": "d", "col": "a"}), "column amount: type is missing"),
        (changed(amount={"cf": "d", "type": "int"}), "col (the qualifier) is missing"),
        (changed(amount={"cf": "d", "col": "a", "typ": "int"}), "did you mean type?"),
        (changed(amount={"cf": "a/b", "col": "a", "type": "int"}), "column amount:"),
        (changed(extra={"cf": "d", "col": "amount", "type": "int"}), "amount and extra are the same cell d:amount"),
        (changed(more={"cf": "d", "type": "map<string,int>"}), "tags and more are the same family d"),
        (changed(amount={"cf": "d", "col": "a", "avro": "schema"}), "from_avro"),
        (changed(amount={"cf": "d", "col": "a", "type": "array<int>"}), "naive cannot hold array<int>; json can"),
        (changed(amount={"cf": "d", "col": "a", "type": "int", "coder": "jsn"}), "did you mean json?"),
        (changed(tags={"cf": "d", "type": "map<int,int>"}), "string or binary, not int"),
        (changed(region={"cf": "rowkey", "col": "region", "type": "binary"}), "declare one"),
        (changed(region={"cf": "rowkey", "col": "region", "type": "string", "length": "x"}), "length is 'x'"),
        (changed(id={"cf": "rowkey", "col": "id", "type": "bigint", "length": 4}), "bigint takes 8 bytes"),
    ],
)
def test_what_is_wrong_is_said(catalog: str | dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Catalog.parse(catalog)
    assert words in str(caught.value)


def test_a_column_that_is_not_there_is_named_with_the_nearest() -> None:
    catalog = Catalog.parse(ORDERS)
    with pytest.raises(ConfigError, match="no column amout; did you mean amount"):
        catalog.field("amout")
    with pytest.raises(ConfigError, match="no column x"):
        catalog.select(["id", "x"])


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ("a INT", "is not NAME TYPE FAMILY:QUALIFIER"),
        ("k STRING :k, a INT cf", "is not NAME TYPE FAMILY:QUALIFIER"),
        ("k STRING :k,, a INT cf:a", "a column is empty"),
        ("k STRING :k, k INT cf:a", "is declared twice"),
        ("a INT cf:a", "rowkey is missing"),
    ],
)
def test_wrong_mappings(mapping: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Catalog.from_mapping("t", mapping)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ("map", "struct<row:binary,columns:map<string,binary>>"),
        ("cells", "struct<row:binary,family:string,qualifier:binary,timestamp:bigint,type:string,value:binary>"),
        ("raw", "struct<row:binary,family:string,qualifier:binary,timestamp:bigint,type:string,value:binary>"),
    ],
)
def test_layouts_have_their_schemas(layout: str, expected: str) -> None:
    options = Options.parse({"hbase.spark.query.layout": layout})
    assert schema_of(Catalog.parse(ORDERS), options).simpleString() == expected


def test_columns_can_be_chosen_and_replica_columns_added() -> None:
    given = {
        "hbase.spark.query.columns": "amount,id",
        "hbase.spark.query.readreplica": "true",
        "hbase.spark.query.stalecolumn": "is_stale",
        "hbase.spark.query.replicacolumn": "replica",
    }
    schema = schema_of(Catalog.parse(ORDERS), Options.parse(given))
    assert schema.simpleString() == "struct<amount:decimal(10,2),id:bigint,is_stale:boolean,replica:int>"
    clash = Options.parse({**given, "hbase.spark.query.stalecolumn": "amount"})
    with pytest.raises(ConfigError, match="choose another name"):
        schema_of(Catalog.parse(ORDERS), clash)


@pytest.mark.parametrize(
    "text",
    [
        "boolean",
        "tinyint",
        "smallint",
        "int",
        "bigint",
        "float",
        "double",
        "string",
        "binary",
        "date",
        "timestamp",
        "timestamp_ntz",
        "decimal(5,2)",
        "array<int>",
        "map<string,binary>",
        "struct<a:int,b:array<string>>",
    ],
)
def test_types_go_to_spark_and_back(text: str) -> None:
    assert str(from_spark(to_spark(parse_type(text)))) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("decimal(50)", "1 to 38 digits"),
        ("map<string>", "expected ','"),
        ("int)", "unexpected ')'"),
        ("", "missing at the end"),
    ],
)
def test_wrong_types(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_type(text)
    assert words in str(caught.value)


@given(data=st.data())
def test_a_key_is_split_into_what_it_was_joined_of(data: st.DataObject) -> None:
    catalog = data.draw(catalogs())
    given_values = [data.draw(values(part.type, stored=True)) for part in catalog.key]
    try:
        row = join_parts(catalog.key, given_values)
    except BadValueError:
        return
    parts = split_key(catalog.key, row)
    for part, value, piece in zip(catalog.key, given_values, parts, strict=True):
        decoded = part.decode(piece)
        assert decoded == value or value != value or (isinstance(value, str) and decoded == value.rstrip("\0"))


@pytest.mark.parametrize(
    ("row", "words"),
    [(b"e", "column region takes 2 bytes, 1 left"), (b"eu123", "column id takes 8 bytes, 3 left")],
)
def test_a_key_that_does_not_fit_says_where(row: bytes, words: str) -> None:
    with pytest.raises(BadValueError) as caught:
        split_key(Catalog.parse(ORDERS).key, row)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("values_", "words"),
    [
        (["eur", 1], "column region: the part takes 2 bytes, the value has 3"),
        (["eu", None], "column id: a row key cannot hold null"),
        (["eu", "1"], "column id: '1' (str) is no bigint"),
    ],
)
def test_values_that_make_no_key_name_the_column(values_: list[object], words: str) -> None:
    with pytest.raises(BadValueError) as caught:
        join_parts(Catalog.parse(ORDERS).key, values_)
    assert words in str(caught.value)


def test_a_delimiter_inside_of_a_value_is_refused() -> None:
    catalog = Catalog.from_mapping("t", "a STRING :a, b INT :b")
    with pytest.raises(BadValueError, match="holds the delimiter"):
        join_parts(catalog.key, ["x\0y", 1])
