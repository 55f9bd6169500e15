"""Random conditions: ``table(where=P)`` keeps the rows that ``where(P)`` of a plain DataFrame keeps, or refuses P.

Spark tests all conditions on the same rows in a DataFrame in memory, which HBase has never seen. On our side the real
planning, reading and writing run in this process, on both protocols, without a job for each condition:

0. What is read of a whole table is the DataFrame in memory, and what a write of that DataFrame makes are the table's
   cells.
1. ``table(where=P)`` reads what it pushes down, and Spark tests P itself on that. So every row of Spark's answer must
   have been read.
2. The option ``hbase.spark.query.where``: nothing tests P after the reading. So exactly Spark's answer must be read.
3. Some conditions run as jobs: ``table(where=P)`` and a ``load()`` with the option, in one union for each coder.
4. Connect: the option has the part of P that can be pushed, and Spark tests a column that is made of the bound values.

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

import pyarrow as pa
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
from spark_connector.reading.batch_shape import arrow_schema
from spark_connector.reading.split_reader import read_split
from spark_connector.schema.catalog import Catalog
from spark_connector.settings.options import Options
from spark_connector.writing.writer import HBaseWriter
from tests.spark.predicates import CODERS, Predicates, RandomTable, table

SEED = int(os.environ.get("METACLIENT_PREDICATES_SEED", "15"))
ROWS = 40
#: Conditions for each coder and each of the settings.
CONDITIONS = 80
#: Conditions for each coder that run as jobs, in both ways of reading.
JOBS = 3
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
        right = _answers(_in_memory(spark, made), ONCE_WRONG)
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
            urls = [str(front.thrift2_url), str(front.rpc_url)]
            _compare_values(cluster, made, urls, coder, tally)
            jobs_in = chance.choice(list(SETTINGS))
            for name, wanted in SETTINGS.items():
                with settings(spark, wanted):
                    predicates = Predicates(chance, made.catalog, any_case=name != "strict")
                    texts = [predicates.condition() for _ in range(CONDITIONS)]
                    _compare_table(spark, made, urls, texts, f"{coder}, {name}", tally)
                    if name == jobs_in:
                        _compare_jobs(spark, made, urls, texts, f"{coder}, {name}", tally)
    return tally


def _compare_values(cluster: FakeCluster, made: RandomTable, urls: Sequence[str], coder: str, tally: Tally) -> None:
    """Read the whole table and write the rows in memory, by both protocols, and compare with what was put."""
    schema = Catalog.parse(made.catalog).schema()
    in_memory = pa.RecordBatch.from_pylist(made.values, schema=arrow_schema(schema))
    expected = sorted(map(_shown, in_memory.to_pylist()))
    for url in urls:
        options = Options.parse({"url": url, "catalog": json.dumps(made.catalog)})
        query = Query.of(options)
        found = sorted(_shown(row) for batch in _batches(options, query) for row in batch.to_pylist())
        tally.counts["values"] += len(found)
        if found != expected:
            different = next((pair for pair in zip(found, expected, strict=False) if pair[0] != pair[1]), None)
            tally.faults.append(f"{coder}, {url}: {len(found)} rows are read, {len(expected)} are there: {different}")
        copy = {**made.catalog, "table": {"name": f"{made.catalog['table']['name']}_{urls.index(url)}"}}
        to = Options.parse({"url": url, "catalog": json.dumps(copy), "hbase.spark.write.splits": "\\x02"})
        HBaseWriter(to, schema, False).write(iter([in_memory]))
        with cluster.connect() as connection:
            written = dict(connection.table(copy["table"]["name"]).scan())
        if written != made.rows:
            tally.faults.append(f"{coder}, {url}: the cells of a write are not those of the coder")


def _shown(row: dict[str, Any]) -> str:
    """The values of a row, in which NaN is equal to itself and -0.0 is not 0.0."""
    return repr([(name, row[name]) for name in sorted(row)])


def _compare_jobs(
    spark: Any, made: RandomTable, urls: Sequence[str], texts: Sequence[str], where: str, tally: Tally
) -> None:
    """Run some of the conditions in one job: by ``table`` with the first protocol, by ``load`` with the second."""
    from pyspark.sql.functions import lit

    catalog = json.dumps(made.catalog)
    options = Options.parse({"url": urls[0], "catalog": catalog})
    right = dict(zip(texts, _answers(_in_memory(spark, made), texts), strict=True))
    frames: list[tuple[str, str, Any]] = []
    for text in texts:
        if right[text] is None or len(frames) >= 2 * JOBS or _planned(spark, options, text) is None:
            continue
        try:
            _testable_by_option(options, text)
        except ConfigError:
            continue
        one = {"hbase_spark_partition_max": 1}
        frames.append((text, "table", hbase_connector.table(spark, catalog, url=urls[0], where=text, **one)))
        loading = spark.read.format("hbase").option("url", urls[1]).option("catalog", catalog)
        loading = loading.option("hbase.spark.query.where", text).option("hbase.spark.partition.max", 1)
        frames.append((text, "load", loading.load()))
    found: list[set[int]] = [set() for _ in frames]
    branches = [df.select(lit(number), "id") for number, (_, _, df) in enumerate(frames)]
    for number, one in reduce(lambda a, b: a.union(b), branches).collect():
        found[number].add(one)
    for (text, kind, _), ids in zip(frames, found, strict=True):
        tally.check(f"job, {kind}", f"{where}: {text}", ids, right[text] or set(), may_be_more=False)


def _testable_by_option(options: Options, text: str) -> None:
    """Raise ConfigError if the option, which knows no session, refuses the condition or may read it in another way."""
    if "\\" in text or "''" in text:
        raise ConfigError("how strings are read depends on the session")
    _by_option(options, text)


def _compare_table(
    spark: Any, made: RandomTable, urls: Sequence[str], texts: Sequence[str], where: str, tally: Tally
) -> None:
    catalog = json.dumps(made.catalog)
    options = [Options.parse({"url": url, "catalog": catalog}) for url in urls]
    has_raw_strings = spark.conf.get("spark.sql.parser.escapedStringLiterals") == "true"
    reference = _in_memory(spark, made)
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
    ids = [one for batch in _batches(options, query) for one in batch.column("id").to_pylist()]
    assert len(set(ids)) == len(ids), "a row came twice"
    return set(ids)


def _batches(options: Options, query: Query) -> list[pa.RecordBatch]:
    """What tasks would read."""
    with clients.lease(options) as connection:
        return [each for split in plan(connection, query) for each in read_split(connection, query, split)]


def _in_memory(spark: Any, made: RandomTable) -> Any:
    """The rows as a DataFrame that does not come from HBase."""
    schema = Catalog.parse(made.catalog).schema()
    return spark.createDataFrame(pa.Table.from_pylist(made.values, schema=arrow_schema(schema)), schema)


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
