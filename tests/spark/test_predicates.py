"""Random conditions: ``table(where=P)`` keeps the rows that ``where(P)`` of a plain DataFrame keeps, or refuses P.

Spark tests all conditions on the same rows, which HBase has not filtered. On our side the real planning and the real
reading run in this process, on both protocols, without a job for each condition:

1. ``table(where=P)`` reads what it pushes down, and Spark tests P itself on that. So every row of Spark's answer must
   have been read.
2. The option ``hbase.spark.query.where``: nothing tests P after the reading. So exactly Spark's answer must be read.
3. Connect: the option has the part of P that can be pushed, and Spark tests a column that is made of the bound values.

``METACLIENT_PREDICATES_SEED`` is another seed. What fails is printed with its seed, table and settings.
"""

from __future__ import annotations

import datetime
import json
import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from functools import reduce
from typing import Any

import pytest

import spark_connector as hbase_connector
from metaclient.errors import ConfigError
from metaclient_fake import FakeCluster
from spark_connector import clients, dataframe
from spark_connector.conditions import coercion
from spark_connector.conditions.condition import Comparison, Expression, In, opaque_parts, to_sql
from spark_connector.conditions.expressions import to_column
from spark_connector.conditions.pushdown import superset
from spark_connector.planning.query import Query
from spark_connector.planning.splits import plan
from spark_connector.reading.split_reader import read_split
from spark_connector.settings.options import Options
from tests.spark.predicates import CODERS, Predicates, RandomTable, table

SEED = int(os.environ.get("METACLIENT_PREDICATES_SEED", "15"))
ROWS = 40
#: Conditions for each coder and each of the settings.
CONDITIONS = 80
#: Of all conditions that Spark accepts, so many may be refused by ``table``, and by the option that knows no session.
REFUSED_BY_TABLE_MAX = 0.10
REFUSED_BY_OPTION_MAX = 0.25

SETTINGS: dict[str, dict[str, str]] = {
    "default": {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"},
    "without ANSI": {
        "spark.sql.ansi.enabled": "false",
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.parser.escapedStringLiterals": "true",
    },
    "strict": {
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "Asia/Kolkata",
        "spark.sql.caseSensitive": "true",
        "spark.sql.timestampType": "TIMESTAMP_NTZ",
    },
}


@contextmanager
def settings(spark: Any, wanted: dict[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


@dataclass
class Tally:
    """What was compared, and what differed."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def check(self, what: str, condition: str, found: set[int], right: set[int], *, may_be_more: bool) -> None:
        self.counts[what] += 1
        if right <= found if may_be_more else right == found:
            return
        missing, more = sorted(right - found)[:4], sorted(found - right)[:4]
        self.faults.append(f"{what}: {condition}: missing {missing}, more {more}")


@pytest.mark.essential
def test_conditions_keep_the_rows_that_spark_keeps(spark: Any) -> None:
    tally = compare(spark, SEED)
    print(f"seed {SEED}: {dict(tally.counts)}")
    assert not tally.faults, f"METACLIENT_PREDICATES_SEED={SEED}\n" + "\n".join(tally.faults[:20])
    accepted = tally.counts["conditions"] - tally.counts["refused by Spark"]
    assert accepted > 0.9 * tally.counts["conditions"]
    assert tally.counts["refused by table"] < REFUSED_BY_TABLE_MAX * accepted
    assert tally.counts["refused by option"] < REFUSED_BY_OPTION_MAX * accepted
    assert tally.counts["rows read"] < 0.7 * tally.counts["rows there"], "little was pushed down"


#: Conditions that were answered in another way than Spark does.
ONCE_WRONG = (
    "l IN (0.1D, 9007199254740993)",
    "ts = TIMESTAMP '2024-01-01 00:00:00'",
    "ts >= '2024-03-10 02:30:00'",
    "f = 0.1F",
    r"s = '\101'",
    r"s = '\U00000041'",
    "f = 16777217",
    "i < 99999999999999999999",
)


@pytest.mark.essential
@pytest.mark.parametrize("name", ["default", "without ANSI"])
def test_a_dataframe_of_a_condition_that_was_answered_wrongly_has_sparks_rows(spark: Any, name: str) -> None:
    """The whole way, with a job: all conditions are branches of one union."""
    from pyspark.sql.functions import lit

    with FakeCluster(servers=2, meta_replicas=2) as cluster, settings(spark, SETTINGS[name]):
        url = str(cluster.serve(thrift1_port=None).thrift2_url)
        made = table(random.Random(SEED), "t", "orderedbytes", 4 * ROWS)
        _put(cluster, "t", made)
        catalog = json.dumps(made.catalog)
        reference = _reference(spark, Options.parse({"url": url, "catalog": catalog}))
        right = _answers(reference, ONCE_WRONG)
        frames = [
            hbase_connector.table(spark, catalog, url=url, columns=["id"], where=text, hbase_spark_partition_max=1)
            for text in ONCE_WRONG
        ]
        found: list[set[int]] = [set() for _ in ONCE_WRONG]
        branches = [df.select(lit(n), "id") for n, df in enumerate(frames)]
        for number, one in reduce(lambda a, b: a.union(b), branches).collect():
            found[number].add(one)
    assert dict(zip(ONCE_WRONG, found, strict=True)) == dict(zip(ONCE_WRONG, right, strict=True))
    assert all(found[:4])


@pytest.mark.essential
def test_a_decimal_in_a_column_is_a_literal_to_spark(spark: Any) -> None:
    """A cast to a decimal would make Spark round 1E-22 to the digits that a BIGINT leaves: to 0."""
    df = spark.createDataFrame([(0,)], "l bigint")
    assert df.where(to_column(Comparison("l", "<", Decimal("1E-22")))).collect()


@pytest.mark.essential
def test_an_instant_in_a_column_keeps_its_zone_where_timestamps_have_none(spark: Any) -> None:
    moment = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    with settings(spark, SETTINGS["strict"]):
        df = spark.createDataFrame([(moment,)], "ts timestamp_ltz")
        assert df.where(to_column(Comparison("ts", "=", moment))).collect()


def _put(cluster: FakeCluster, name: str, made: RandomTable) -> None:
    with cluster.connect() as connection:
        connection.create_table(name, {"c": {}, "g": {}}, splits=[sorted(made.rows)[len(made.rows) // 2]])
        with connection.table(name).batch() as batch:
            for row, cells in made.rows.items():
                batch.put(row, cells)


def test_the_comparison_fires_when_a_list_is_compared_value_by_value(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coercion, "listed", lambda name, type, values, is_ansi: In(name, values))
    assert compare(spark, SEED, coders=("orderedbytes",)).faults


def compare(spark: Any, seed: int, coders: Sequence[str] = CODERS) -> Tally:
    """All coders, settings and protocols with one seed."""
    chance, tally = random.Random(seed), Tally()
    with FakeCluster(servers=2, meta_replicas=2) as cluster:
        front = cluster.serve(thrift1_port=None, rpc_port=0)
        for coder in coders:
            made = table(chance, f"t_{coder}", coder, ROWS)
            _put(cluster, f"t_{coder}", made)
            for name, wanted in SETTINGS.items():
                with settings(spark, wanted):
                    predicates = Predicates(chance, made.catalog, any_case=name != "strict")
                    texts = [predicates.condition() for _ in range(CONDITIONS)]
                    urls = [str(front.thrift2_url), str(front.rpc_url)]
                    _compare_table(spark, json.dumps(made.catalog), urls, texts, f"{coder}, {name}", tally)
    return tally


def _compare_table(
    spark: Any, catalog: str, urls: Sequence[str], texts: Sequence[str], where: str, tally: Tally
) -> None:
    options = [Options.parse({"url": url, "catalog": catalog}) for url in urls]
    has_raw_strings = spark.conf.get("spark.sql.parser.escapedStringLiterals") == "true"
    reference = _reference(spark, options[0])
    planned = {text: _planned(spark, options[0], text) for text in texts}
    right = _answers(reference, texts)
    ours = {text: query for text, query in planned.items() if query is not None}
    clear = {text: to_column(bound) for text, (_, bound) in ours.items() if not list(opaque_parts(bound))}
    columns = dict(zip(clear, _answers(reference, list(clear.values())), strict=True))
    for text, answer in zip(texts, right, strict=True):
        tally.counts["conditions"] += 1
        if answer is None:
            tally.counts["refused by Spark"] += 1
        elif text not in ours:
            tally.counts["refused by table"] += 1
            tally.counts["refused by option"] += 1
        else:
            shown = f"{where}: {text}"
            one, other = options if tally.counts["conditions"] % 2 else options[::-1]  # each protocol has its turn
            _check_pushed(one, *ours[text], answer, shown, tally)
            if text in columns:
                tally.check("column", shown, columns[text] or set(), answer, may_be_more=False)
            if not has_raw_strings or not ("\\" in text or "''" in text):  # the option is read as Spark's defaults are
                _check_option(other, text, answer, shown, tally)


def _planned(spark: Any, options: Options, text: str) -> tuple[Query, Expression] | None:
    """What ``table`` reads; None if it refuses the condition."""
    try:
        query, conditions, _ = dataframe._query(spark, options, ["id"], text)
    except ConfigError:
        return None
    return query, conditions[0].bound


def _check_pushed(options: Options, query: Query, bound: Expression, right: set[int], shown: str, tally: Tally) -> None:
    found = _read(options, query)
    tally.counts["rows read"] += len(found)
    tally.counts["rows there"] += ROWS
    tally.check("table", shown, found, right, may_be_more=True)
    if tally.counts["conditions"] % 4:
        return
    pushed = to_sql(superset(bound))
    try:
        query = _by_option(options, pushed)
    except ConfigError as error:
        tally.faults.append(f"Connect: {shown} -> {pushed}: refused: {error}")
        return
    tally.check("Connect", f"{shown} -> {pushed}", _read(options, query), right, may_be_more=True)


def _check_option(options: Options, text: str, right: set[int], shown: str, tally: Tally) -> None:
    try:
        query = _by_option(options, text)
    except ConfigError:
        tally.counts["refused by option"] += 1
        return
    tally.check("option", shown, _read(options, query), right, may_be_more=False)


def _by_option(options: Options, text: str) -> Query:
    from dataclasses import replace

    made = replace(options, where=text)
    full = Query.of(made).schema
    return Query.of(made, type(full)([full["id"]]))


def _read(options: Options, query: Query) -> set[int]:
    """The ids that tasks would read."""
    with clients.lease(options) as connection:
        batches = [each for split in plan(connection, query) for each in read_split(connection, query, split)]
    ids = [one for batch in batches for one in batch.column("id").to_pylist()]
    assert len(set(ids)) == len(ids), "a row came twice"
    return set(ids)


def _reference(spark: Any, options: Options) -> Any:
    """All rows, as a plain DataFrame."""
    import pyarrow as pa

    query = Query.of(options)
    with clients.lease(options) as connection:
        batches = [each for split in plan(connection, query) for each in read_split(connection, query, split)]
    rows = pa.Table.from_batches(batches)
    assert rows.num_rows >= ROWS
    return spark.createDataFrame(rows, query.schema)


def _answers(reference: Any, conditions: Sequence[Any]) -> list[set[int] | None]:
    """The ids for which each condition is true; None where Spark refuses it. One query for as many as it accepts."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as f

    if not conditions:
        return []
    made = [f.expr(each) if isinstance(each, str) else each for each in conditions]
    try:
        rows = reference.select("id", *(each.alias(f"c{n}") for n, each in enumerate(made))).collect()
    except PySparkException:
        if len(conditions) == 1:
            return [None]
        middle = len(conditions) // 2
        return _answers(reference, conditions[:middle]) + _answers(reference, conditions[middle:])
    return [{row[0] for row in rows if row[n + 1] is True} for n in range(len(conditions))]
