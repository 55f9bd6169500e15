"""Every filter that we push gives what the same filter gives in Spark on the same rows: random data, many conditions.

Spark evaluates each condition on a copy of the rows that HBase has never seen. One job answers all conditions of an
example: each is one branch of a union, planned on its own.
"""

from __future__ import annotations

import json
import random
import struct
from functools import reduce
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import spark_connector as hbase_connector

ROWS = 150
CONDITIONS = 16

CATALOG = json.dumps(
    {
        "table": {"namespace": "default", "name": "t"},
        "rowkey": "city:number",
        "columns": {
            "city": {"cf": "rowkey", "col": "city", "type": "string", "length": "3"},
            "number": {"cf": "rowkey", "col": "number", "type": "int"},
            "i": {"cf": "cf", "col": "i", "type": "int"},
            "l": {"cf": "cf", "col": "l", "type": "bigint"},
            "d": {"cf": "cf", "col": "d", "type": "double"},
            "s": {"cf": "cf", "col": "s", "type": "string"},
            "b": {"cf": "g", "col": "b", "type": "boolean"},
            "x": {"cf": "g", "col": "x", "type": "binary"},
        },
    }
)
CITIES = ["aaa", "abc", "abd", "bcd", "zzz"]
TEXTS = ["", "a", "ab", "abc", "b%", "b_", "é", "zz"]
NUMBERS = [-(2**31), -1000, -2, -1, 0, 1, 2, 999, 2**31 - 1]
DOUBLES = [float("-inf"), -1.5, -0.0, 0.0, 0.25, 3.0, float("inf"), float("nan")]
BINARIES = [b"", b"\x00", b"a", b"ab", b"\xff\xff"]


def some_rows(chance: random.Random) -> list[tuple[Any, ...]]:
    """Rows with distinct keys; each cell but one is missing now and then."""
    found: dict[tuple[str, int], tuple[Any, ...]] = {}
    while len(found) < ROWS:
        key = (chance.choice(CITIES), chance.choice([*NUMBERS, *range(20)]))
        cells = [
            chance.choice([*NUMBERS, *range(5)]),
            chance.choice([*NUMBERS, 2**62, -(2**62)]),
            chance.choice(DOUBLES),
            chance.choice(TEXTS),
            chance.choice([True, False]),
            bytearray(chance.choice(BINARIES)),
        ]
        maybe = [None if chance.random() < 0.25 else cell for cell in cells]
        if all(cell is None for cell in maybe):
            maybe[0] = 7  # a row of HBase has a cell
        found[key] = (*key, *maybe)
        if len(found) == len(CITIES) * len({*NUMBERS, *range(20)}):
            break
    return list(found.values())


def put_all(served: Any, rows: list[tuple[Any, ...]], table: str = "t") -> None:
    encode = (
        lambda v: struct.pack(">i", v),
        lambda v: struct.pack(">q", v),
        lambda v: struct.pack(">d", v),
        lambda v: v.encode(),
        lambda v: b"\xff" if v else b"\x00",
        bytes,
    )
    columns = (b"cf:i", b"cf:l", b"cf:d", b"cf:s", b"g:b", b"g:x")
    with served.connect() as connection:
        connection.create_table(table, {"cf": {}, "g": {}}, splits=[b"abc", b"abd\x80", b"bcd"])
        with connection.table(table).batch() as batch:
            for city, number, *cells in rows:
                data = {c: e(v) for c, e, v in zip(columns, encode, cells, strict=True) if v is not None}
                batch.put(city.encode() + struct.pack(">i", number), data)


def literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return repr(value)


def simple(chance: random.Random) -> str:
    column, values = chance.choice(
        [
            ("city", [*CITIES, "ab", "ac"]),
            ("number", [*NUMBERS, 5, 12]),
            ("i", NUMBERS),
            ("l", NUMBERS),
            ("d", [-1.5, 0.0, 0.25, 3.0]),
            ("s", TEXTS),
            ("b", [True, False]),
            ("x", BINARIES),
        ]
    )
    pick = lambda: literal(chance.choice(values))  # noqa: E731 - named for the lines below
    kind = chance.randrange(7)
    if kind == 0 and column in ("city", "s"):
        pattern = chance.choice(["a%", "%b", "%b%", "a%c", "abc", "_b%", "%"])
        return f"{column} {chance.choice(['', 'NOT '])}LIKE '{pattern}'"
    if kind == 1:
        return f"{column} {chance.choice(['', 'NOT '])}IN ({', '.join(pick() for _ in range(chance.randint(1, 4)))})"
    if kind == 2 and column != "b":
        return f"{column} {chance.choice(['', 'NOT '])}BETWEEN {pick()} AND {pick()}"
    if kind == 3:
        return f"{column} IS {chance.choice(['', 'NOT '])}NULL"
    if kind == 4:
        return f"{column} <=> {pick()}"
    return f"{column} {chance.choice(['=', '<>', '<', '<=', '>', '>='] if column != 'b' else ['=', '<>'])} {pick()}"


def condition(chance: random.Random, depth: int = 0) -> str:
    if depth == 3 or chance.random() < 0.35:
        return simple(chance)
    kind = chance.randrange(5)
    if kind == 0:
        return f"NOT ({condition(chance, depth + 1)})"
    word = " OR " if kind < 3 else " AND "
    return "(" + word.join(condition(chance, depth + 1) for _ in range(2)) + ")"


@pytest.mark.essential
# Few examples, since each is two jobs of Spark; each has many conditions. What failed is printed whole: no shrinking.
@settings(max_examples=2, phases=[Phase.generate], suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32 - 1))
def test_what_we_push_down_is_what_spark_would_have_kept(spark: Any, hbase: Any, seed: int) -> None:
    from pyspark.sql.functions import lit

    chance = random.Random(seed)
    rows = some_rows(chance)
    put_all(hbase, rows, f"t{seed}")
    catalog = CATALOG.replace('"name": "t"', f'"name": "t{seed}"')
    whole = hbase_connector.table(spark, catalog, url=hbase.url)
    reference = spark.createDataFrame(rows, whole.schema).coalesce(1).cache()
    conditions = [condition(chance) for _ in range(CONDITIONS)]
    ours = [
        hbase_connector.table(spark, catalog, url=hbase.url, where=text, **{"hbase.spark.partition.max": 1})
        for text in conditions
    ]
    found = _answers([df.select(lit(n), "city", "number") for n, df in enumerate(ours)])
    right = _answers([reference.where(text).select(lit(n), "city", "number") for n, text in enumerate(conditions)])
    reference.unpersist()
    wrong = {
        conditions[n]: {"too many": sorted(found[n] - right[n])[:3], "missing": sorted(right[n] - found[n])[:3]}
        for n in range(CONDITIONS)
        if found[n] != right[n]
    }
    assert not wrong
    assert any(right.values())


def _answers(branches: list[Any]) -> dict[int, set[tuple[str, int]]]:
    """All of them in one job."""
    answers: dict[int, set[tuple[str, int]]] = {n: set() for n in range(len(branches))}
    for which, city, number in reduce(lambda a, b: a.union(b), branches).collect():
        assert (city, number) not in answers[which], "a row came twice"
        answers[which].add((city, number))
    return answers


def test_pushing_down_really_leaves_rows_behind(spark: Any, hbase: Any) -> None:
    """The test above would pass if nothing were pushed; here it is seen that something is."""
    from spark_connector.conditions.sql_text import parse_where
    from spark_connector.planning.query import Query
    from spark_connector.planning.splits import plan
    from spark_connector.reading.split_reader import results_of
    from spark_connector.settings.options import Options

    rows = some_rows(random.Random(1))
    put_all(hbase, rows)
    options = Options.parse({"url": hbase.url, "catalog": CATALOG})
    with hbase.connect() as connection:
        for text in ("city = 'abc'", "city LIKE 'ab%' AND number >= 3", "i = 1", "s IN ('a', 'ab')", "x > X'61'"):
            query = Query.of(options, None, parse_where(text))
            read = sum(1 for split in plan(connection, query) for _ in results_of(connection, query, split))
            assert 0 < read < len(rows) / 2, text
