"""A user's filter sees what it looks at before columns are chosen, and a limit counts rows of the DataFrame."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("numpy")
pytest.importorskip("pyspark")

import metaclient
from metaclient import Connection
from metaclient.errors import ConfigError
from metaclient_fake import FakeCluster
from spark_connector.conditions.sql_text import parse_where
from spark_connector.planning.query import Query
from spark_connector.planning.splits import plan
from spark_connector.planning.user_filter import looks_of
from spark_connector.reading.split_reader import read_split, results_of
from spark_connector.settings.options import Options

CATALOG = json.dumps(
    {
        "table": {"namespace": "default", "name": "t"},
        "rowkey": "key",
        "columns": {
            "id": {"cf": "rowkey", "col": "key", "type": "string"},
            "name": {"cf": "d", "col": "name", "type": "string"},
            "age": {"cf": "d", "col": "age", "type": "string"},
            "more": {"cf": "m", "type": "map<string,binary>"},
        },
    }
)
IN_CATALOG = {b"d:name": "name", b"d:age": "age"}
ROWS = 12

#: Every filter of HBase's filter language that depends on cells, and some of them together.
FILTERS = [
    "SingleColumnValueFilter('d','name',=,'binary:n3',true,true)",
    "SingleColumnValueFilter('d','name',=,'binary:n3',false,true)",
    "SingleColumnValueFilter('d','hidden',=,'binary:h1',true,true)",
    "SingleColumnValueFilter('e','x',=,'binary:x2',true,true)",
    "SingleColumnValueFilter('nowhere','x',=,'binary:x2',false,true)",
    "SingleColumnValueExcludeFilter('d','name',=,'binary:n3',true,true)",
    "DependentColumnFilter('d','name')",
    "DependentColumnFilter('d','hidden',true)",
    "ColumnValueFilter('d','name',=,'binary:n3')",
    "ValueFilter(=,'binary:n3')",
    "QualifierFilter(=,'binary:name')",
    "QualifierFilter(=,'binary:hidden')",
    "FamilyFilter(=,'binary:e')",
    "FamilyFilter(=,'binary:m')",
    "ColumnPrefixFilter('n')",
    "MultipleColumnPrefixFilter('n','h')",
    "ColumnRangeFilter('b',true,'i',true)",
    "TimestampsFilter(1003)",
    "KeyOnlyFilter()",
    "FirstKeyOnlyFilter()",
    "ColumnPaginationFilter(1,1)",
    "SKIP ValueFilter(!=,'binary:x2')",
    "SKIP ValueFilter(!=,'binary:h1')",
    "RowFilter(=,'substring:7')",
    "PrefixFilter('r0')",
    "InclusiveStopFilter('r04')",
    "RowFilter(>,'binary:r03') AND SingleColumnValueFilter('d','hidden',=,'binary:h1',true,true)",
    "SingleColumnValueFilter('d','name',=,'binary:n3') OR SingleColumnValueFilter('e','x',=,'binary:x2')",
    "(ColumnPrefixFilter('a') AND ValueFilter(=,'substring:1')) OR FirstKeyOnlyFilter()",
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(servers=2, seed=1) as made:
        made.serve(thrift1_port=None, thrift2_port=None, rpc_port=0)
        with made.connect() as connection:
            connection.create_table("t", {"d": {"max_versions": 3}, "e": {}, "m": {}}, splits=[b"r06"])
            table = connection.table("t")
            for i in range(ROWS):
                row = {b"d:age": b"%d" % (i % 4)}
                row |= {b"d:name": b"n%d" % i} if i % 2 else {}
                row |= {b"d:hidden": b"h%d" % (i % 3)} if i % 3 else {}
                row |= {b"e:x": b"x%d" % i} if i % 2 == 0 else {}
                row |= {b"m:k": b"v%d" % i} if i % 5 == 0 else {}
                table.put(b"r%02d" % i, row, timestamp=1000 + i)
            table.put(b"r03", {b"d:age": b"older"}, timestamp=900)
            table.put(b"r20", {b"d:hidden": b"h1", b"e:x": b"x2"}, timestamp=1003)  # none of the catalog's columns
        yield made


@pytest.fixture(params=["rows", "pages of cells"])
def connection(cluster: FakeCluster, request: pytest.FixtureRequest) -> Iterator[Connection]:
    """Both ways in which a read can get its cells."""
    native = f"hbase+rpc://127.0.0.1:{cluster.rpc_port}"
    with cluster.connect() if request.param == "rows" else metaclient.connect(native) as made:
        yield made


def query(columns: list[str] | None = None, where: str | None = None, **options: object) -> Query:
    named = {"catalog": CATALOG} if "hbase.table" not in options else {}
    parsed = Options.parse({"url": "thrift2://nowhere:1", **named, **{n: str(v) for n, v in options.items()}})
    made = Query.of(parsed, None, parse_where(where) if where else None)
    if columns is None:
        return made
    schema = type(made.schema)([made.schema[name] for name in columns])
    return Query.of(parsed, schema, parse_where(where) if where else None)


def rows(connection: Connection, made: Query, *, whole: bool = False) -> list[dict[str, Any]]:
    splits = sorted(plan(connection, made, whole=whole), key=lambda split: (split.ranges, split.points))
    return [row for split in splits for batch in read_split(connection, made, split) for row in batch.to_pylist()]


def filtered_then_projected(connection: Connection, text: str, columns: list[str]) -> list[dict[str, Any]]:
    """The rows that HBase lets through, and of each the columns."""
    found = []
    for key, cells in connection.table("t").scan(filter=text):
        row: dict[str, Any] = {"id": key.decode(), "name": None, "age": None}
        row |= {IN_CATALOG[name]: value.decode() for name, value in cells.items() if name in IN_CATALOG}
        row["more"] = [(b"k", value) for name, value in cells.items() if name == b"m:k"] or None
        if row["name"] is not None or row["age"] is not None or row["more"] is not None:
            found.append({name: row[name] for name in columns})
    return found


def plain(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Maps with binary keys, whichever kind the catalog gives them."""
    return [
        {name: [(b"k", one) for _, one in value] if name == "more" and value else value for name, value in row.items()}
        for row in found
    ]


@pytest.mark.parametrize("columns", [["id", "age"], ["id"], ["name"], ["more"], ["id", "name", "age", "more"]], ids=str)
@pytest.mark.parametrize("text", FILTERS)
def test_columns_that_are_not_read_do_not_hide_cells_from_a_users_filter(
    connection: Connection, text: str, columns: list[str]
) -> None:
    made = query(columns, **{"hbase.spark.query.filter": text})
    assert plain(rows(connection, made)) == filtered_then_projected(connection, text, columns)


@pytest.mark.parametrize("text", FILTERS)
def test_families_that_are_not_read_do_not_hide_cells_from_a_users_filter(connection: Connection, text: str) -> None:
    """The layouts that need no catalog choose families and columns, too."""
    made = query(
        **{
            "hbase.table": "t",
            "hbase.spark.query.layout": "cells",
            "hbase.spark.query.columns": "d:age,m",
            "hbase.spark.query.filter": text,
        }
    )
    expected = [
        (key, name)
        for key, cells in connection.table("t").scan(filter=text)
        for name in sorted(cells)
        if name in (b"d:age", b"m:k")
    ]
    found = [(row["row"], row["family"].encode() + b":" + row["qualifier"]) for row in rows(connection, made)]
    assert found == expected


@pytest.mark.parametrize("text", FILTERS)
def test_rows_that_are_got_one_by_one_are_filtered_whole(connection: Connection, text: str) -> None:
    keys = ["r02", "r03", "r07", "r20"]
    made = query(["id", "age"], f"id IN ({', '.join(map(repr, keys))})", **{"hbase.spark.query.filter": text})
    assert made.pushed.points
    expected = [row for row in filtered_then_projected(connection, text, ["id", "age"]) if row["id"] in keys]
    assert rows(connection, made) == expected


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("KeyOnlyFilter()", "name = ''"),
        ("QualifierFilter(=,'binary:age')", "name IS NULL"),
        ("SingleColumnValueExcludeFilter('d','name',=,'binary:n3')", "name IS NULL"),
        ("FirstKeyOnlyFilter()", "name = 'n3'"),
        ("SingleColumnValueFilter('d','hidden',=,'binary:h1',true,true)", "age = '1'"),
    ],
)
def test_a_condition_is_tested_on_what_a_users_filter_lets_through(
    connection: Connection, text: str, where: str
) -> None:
    from spark_connector.conditions.condition import evaluate
    from spark_connector.conditions.expressions import bind

    made = query(["id"], **{"hbase.spark.query.filter": text, "hbase.spark.query.where": where})
    condition = bind(parse_where(where), made.catalog)
    all_columns = ["id", "name", "age", "more"]
    whole = filtered_then_projected(connection, text, all_columns)
    assert rows(connection, made) == [{"id": row["id"]} for row in whole if evaluate(condition, row) is True]


@pytest.mark.parametrize(
    "text",
    ["PageFilter(3)", "WHILE ValueFilter(!=,'binary:x')", "SKIP WHILE KeyOnlyFilter()", "ColumnCountGetFilter(2)"],
)
def test_filters_that_would_answer_for_each_region_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"hbase\.spark\.query\.filter: (PageFilter|WHILE|ColumnCountGetFilter)"):
        query(**{"hbase.spark.query.filter": text})


def test_a_filter_of_the_row_key_costs_no_other_columns() -> None:
    made = query(["id", "age"], "age = '1'", **{"hbase.spark.query.filter": "RowFilter(=,'substring:7')"})
    assert made.kept is None
    assert made.columns == (b"d:age",)
    assert looks_of(b"ValueFilter(=,'binary:SKIP ''PageFilter''')").columns == ()


# -- limits ------------------------------------------------------------------------------------


def everything() -> list[dict[str, Any]]:
    return [
        {
            "id": f"r{i:02d}",
            "name": f"n{i}" if i % 2 else None,
            "age": str(i % 4),
            "more": [(b"k", b"v%d" % i)] if i % 5 == 0 else None,
        }
        for i in range(ROWS)
    ]


@pytest.mark.parametrize("limit", [0, 1, 2, 4, 7, ROWS, ROWS + 5])
@pytest.mark.parametrize("pieces", [None, 1, 2])
def test_a_limit_does_not_count_pieces_of_rows(connection: Connection, limit: int, pieces: int | None) -> None:
    """The last row is whole, too: what is missing in it is missing in HBase."""
    given = {} if pieces is None else {"hbase.spark.query.batchsize": pieces}
    made = query(**{"hbase.spark.query.limit": limit, **given})
    assert made.is_in_pieces == (pieces is not None)
    assert plain(rows(connection, made, whole=True)) == everything()[:limit]


@pytest.mark.parametrize("layout", ["cells", "raw"])
@pytest.mark.parametrize("given", [{}, {"hbase.spark.query.batchsize": 1}], ids=str)
def test_a_limit_counts_cells_where_cells_are_rows(connection: Connection, layout: str, given: dict[str, int]) -> None:
    read = {"hbase.table": "t", "hbase.spark.query.layout": layout, **given}
    all_cells = rows(connection, query(**read))
    assert len(all_cells) > 20
    for limit in (0, 1, 3, 4, len(all_cells) + 1):
        found = rows(connection, query(**read, **{"hbase.spark.query.limit": limit}), whole=True)
        assert found == all_cells[:limit]


def test_a_limit_does_not_count_rows_that_are_dropped_after_the_filter(connection: Connection) -> None:
    """The server is not told of it: it would count row r20, which has no column of the catalog."""
    text = "SKIP ValueFilter(!=,'binary:never')"
    made = query(["id"], **{"hbase.spark.query.filter": text, "hbase.spark.query.limit": 12})
    assert made.scan(made.pushed.ranges[0], 10).limit is None
    assert [row["id"] for row in rows(connection, made, whole=True)] == [f"r{i:02d}" for i in range(ROWS)]


def test_a_limit_holds_over_ranges_and_rows_that_are_got(connection: Connection) -> None:
    where = "id BETWEEN 'r00' AND 'r01' OR id BETWEEN 'r03' AND 'r04' OR id IN ('r07', 'r08', 'r09')"
    for limit in range(9):
        made = query(["id"], where, **{"hbase.spark.query.limit": limit})
        expected = ["r00", "r01", "r03", "r04", "r07", "r08", "r09"][:limit]
        assert [row["id"] for row in rows(connection, made, whole=True)] == expected


def test_a_limit_reads_little_more_than_it_returns(cluster: FakeCluster) -> None:
    """Also where the server cannot be told of it."""
    with cluster.connect() as connection:
        made = query(**{"hbase.spark.query.limit": 2, "hbase.spark.query.batchsize": 1})
        [split] = plan(connection, made, whole=True)
        found = [result.row for result, _ in results_of(connection, made, split)]
        assert sorted(set(found)) == [b"r00", b"r01"]
        assert made.scan(split.ranges[0], 5000).batch == 1
