"""``table``, a DataFrame of an HBase table with column pruning, key ranges, value filters and locality; and ``write``.

Spark's API for Python data sources has no column pruning and no locality, and its filter push-down has a defect (see
:mod:`spark_connector.source`). Therefore :func:`table` does not use it: each call plans the read, the splits become the
rows of a binary DataFrame with a preferred host each, and ``mapInArrow`` converts each split into the rows of its
regions. That needs Spark's JVM in the same session. With Spark Connect the same read is a new ``load()`` of the data
source ``hbase``, without locality.

In both cases Spark also tests the condition on the returned rows, so a push-down that is too wide costs time and never
adds rows. With a JVM, Spark gets the text as it was given and parses it with the session's settings. With Connect,
Spark would parse the text at the first action, when the settings may have changed; there the test is made from the
bound values.
"""

from __future__ import annotations

import difflib
import json
import logging
import pickle
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from metaclient import keys
from metaclient.columns.layouts import Layout
from metaclient.errors import ConfigError, Unsupported
from spark_connector import clients, lookup_counts
from spark_connector.conditions import dialect
from spark_connector.conditions.condition import And, Expression, columns_of, opaque_parts, quoted_name, to_sql
from spark_connector.conditions.expressions import bind, to_column
from spark_connector.conditions.pushdown import superset
from spark_connector.conditions.sql_text import parse_where
from spark_connector.planning import splits as planning
from spark_connector.planning.query import Query
from spark_connector.planning.read_schema import schema_of
from spark_connector.reading.plan_text import plan_text
from spark_connector.reading.planned import check_read_families, planned_read
from spark_connector.reading.sampled import sample_table
from spark_connector.schema.catalog import Catalog
from spark_connector.schema.columns import mapping_of
from spark_connector.settings.option_uses import Use, check_read, check_written
from spark_connector.settings.options import Options, field_named
from spark_connector.settings.progress import Progress, watch
from spark_connector.settings.session import has_jvm
from spark_connector.tables.catalog import HBaseCatalog, install
from spark_connector.tables.hosts import executors_for
from spark_connector.tables.jvm import SessionJvm, has_callbacks
from spark_connector.tables.scans import HBaseTable, dataframe_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = [
    "SplitReader",
    "given_options",
    "known_name",
    "map_splits",
    "option_name",
    "register",
    "table",
    "use",
    "write",
]

_log = logging.getLogger(__name__)

#: A catalog that is only a name: HBase's names of tables, with a namespace.
_TABLE_NAME = re.compile(r"(?:[\w]+:)?[\w.][\w.-]*")

#: Reads a split in a worker; the second argument goes to ``tasks.connected``.
SplitReader: TypeAlias = "Callable[[planning.TableSplit, lookup_counts.Report | None], Iterator[pa.RecordBatch]]"


def register(spark: SparkSession) -> None:
    """Register the data source ``hbase`` with a session, and count the session's meta lookups from now on.

    Needed only if the package is on the workers' path and not installed: otherwise Spark finds the data source. Lookups
    are not counted if the session's configuration has ``spark.hbase.lookups=off``.
    """
    _register(spark)
    lookup_counts.collect(spark)


def _register(spark: SparkSession) -> None:
    from pyspark.errors import AnalysisException

    from spark_connector.source import HBaseSource

    try:
        spark.dataSource.register(HBaseSource)
    except AnalysisException as error:
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(
            error
        ):  # Spark 4.0 refuses a second registration; later versions do not
            raise


def table(
    spark: SparkSession,
    catalog: str | Mapping[str, object] | None,
    *,
    url: str | None = None,
    columns: Sequence[str] | None = None,
    where: str | Expression | None = None,
    limit: int | None = None,
    **options: object,
) -> DataFrame:
    """Return a DataFrame of an HBase table that reads only the given columns and rows.

    ``catalog`` is hbase-connectors' JSON (text or a mapping), the name of a table, or None if options name the table.
    For a name without ``hbase.columns.mapping`` the schema is guessed from some rows, and printed as a catalog to keep.
    Without ``columns``, ``where`` and ``limit`` Spark's optimizer plans each query of the DataFrame: its filters,
    columns and limits reach HBase. With them the read is planned now, with locality. ``columns`` are names of the
    catalog. ``where`` is Spark SQL (``AND OR NOT IN BETWEEN LIKE IS NULL`` and comparisons), parsed with the
    session's settings at the time of the call, or an expression of :func:`spark_connector.col`; ConfigError if it
    cannot be pushed down. ``limit`` is the largest number of rows of the DataFrame. Further ``options`` are those of
    the data source, with ``_`` for ``.`` (``hbase_spark_query_readreplica=True``), or under their own names with
    ``**{"hbase.spark.query.readreplica": True}``.

        df = hbase.table(spark, catalog, url="thrift2://gateway:9090", columns=["name"], where="id IN (1, 2)")
    """
    given = _with_sampled(given_options(catalog, url, options))
    if columns is not None and isinstance(columns, str):
        raise ConfigError(f"columns must be a list of names, got the text {columns!r}: write [{columns!r}]")
    parsed = Options.parse(given).resolved()
    check_read(given, parsed, Use.TABLE)
    if limit is not None and parsed.limit is not None:
        raise ConfigError("limit is given twice: as an argument and as option hbase.spark.query.limit")
    clients.check_reachable(parsed.connection_url)
    lookup_counts.collect(spark, parsed.counts_lookups)
    is_described = any(each is not None for each in (columns, where, limit, parsed.where, parsed.limit))
    if not is_described and has_callbacks(spark):
        return _planned_by_spark(spark, given, parsed)
    if has_jvm(spark):
        return _planned_here(spark, parsed, columns, where, limit)
    return _loaded(spark, given, parsed, columns, where, limit)


def write(
    df: DataFrame,
    catalog: str | Mapping[str, object] | None,
    *,
    url: str | None = None,
    mode: str = "append",
    progress: Progress | bool | None = None,
    **options: object,
) -> None:
    """Write a DataFrame to an HBase table.

    ``catalog`` is hbase-connectors' JSON (text or a mapping), the name of a table if the columns of the DataFrame are
    named ``family:qualifier`` (but one: the row key), or None if options name the table (other layouts). ``progress``
    is a function of (done, all) tasks, True for a bar, or None for a bar if standard error is a terminal.
    ``mode`` is ``append`` (adds cells, and replaces existing ones) or ``overwrite`` (first deletes all rows; it needs
    ``hbase_spark_write_truncate=True``). Further ``options`` are those of the data source, with ``_`` for ``.``. With
    rows sorted by key (``df.repartitionByRange("id")``) each task writes to fewer servers.

        hbase.write(df, catalog, url="thrift2://gateway:9090", hbase_spark_write_durability="ASYNC_WAL")
    """
    from spark_connector.writing.writer import check_write  # needs pyspark's data sources

    if mode not in ("append", "overwrite"):
        raise ConfigError(f"mode must be append or overwrite, got {mode!r}")
    given = given_options(catalog, url, options)
    parsed = Options.parse(given).resolved()
    if parsed.catalog_text is None and parsed.columns_mapping is None and parsed.layout is Layout.COLUMNS:
        given["hbase.columns.mapping"] = mapping_of(df.schema)
        parsed = Options.parse(given).resolved()
    check_written(given, Use.WRITE)
    clients.check_reachable(parsed.connection_url)
    check_write(df.schema, parsed.catalog(), parsed, overwrite=mode == "overwrite")
    spark = df.sparkSession
    _find_source(spark)
    lookup_counts.collect(spark, parsed.counts_lookups)
    with watch(spark, f"write to {keys.printable(parsed.catalog().table)}", None, progress):
        df.write.format("hbase").mode(mode).options(**given).save()


def use(
    spark: SparkSession,
    *,
    url: str | None = None,
    name: str = "hbase",
    catalogs: Mapping[str, str | Mapping[str, object]] | None = None,
    **options: object,
) -> None:
    """Make the tables of a cluster a catalog of the session: ``spark.table("hbase.users")``, ``SHOW TABLES IN hbase``.

    ``catalogs`` has the catalog (JSON) of tables, by name; the schema of other tables is guessed from some rows at the
    first use. ``options`` are those of the data source, for all tables. Raises Unsupported for Spark Connect, whose
    server cannot call Python objects of the client.

        hbase.use(spark, url="thrift2://gateway:9090", catalogs={"users": catalog})
        spark.sql("SELECT name FROM hbase.users WHERE id = 'u1'")
    """
    if not has_callbacks(spark):
        raise Unsupported(
            "a catalog of HBase tables needs a classic session with pinned threads (PYSPARK_PIN_THREAD, the default); "
            "with Spark Connect, use CREATE TEMPORARY VIEW ... USING hbase OPTIONS (...)"
        )
    given = given_options(None, url, options)
    texts = {table: text if isinstance(text, str) else json.dumps(text) for table, text in dict(catalogs or {}).items()}
    _find_source(spark)
    lookup_counts.collect(spark)
    java = SessionJvm(spark)
    install(java, HBaseCatalog(java, name, given, texts), name)


def given_options(
    catalog: str | Mapping[str, object] | None, url: str | None, options: Mapping[str, object]
) -> dict[str, str]:
    """Return the arguments of a function as options of the data source; ``Options.parse`` checks the names."""
    given = {option_name(name): _text(value) for name, value in options.items() if value is not None}
    text = catalog if catalog is None or isinstance(catalog, str) else json.dumps(catalog)
    is_name = text is not None and _TABLE_NAME.fullmatch(text.strip()) is not None
    arguments = {"hbase.table" if is_name else "catalog": text, "url": url}
    for name, value in arguments.items():
        if value is not None:
            if name in map(str.lower, given):
                raise ConfigError(f"option {name} is given twice: as an argument and as an option")
            given[name] = value
    return given


def _with_sampled(given: dict[str, str]) -> dict[str, str]:
    """Return the options; those of a table without any mapping of columns get a sampled catalog, which is printed."""
    options = Options.parse(given)
    is_mapped = options.catalog_text is not None or options.columns_mapping is not None
    if is_mapped or options.table is None or options.layout is not Layout.COLUMNS:
        return given
    clients.check_reachable(options.connection_url)
    with clients.lease(options.resolved()) as connection:
        sample = sample_table(connection, options.table)
    sys.stdout.write(f"{sample.text()}\n")
    kept = {name: value for name, value in given.items() if field_named(name) != "table"}
    return {**kept, "catalog": json.dumps(sample.catalog())}


def option_name(argument: str) -> str:
    """Return the option name of a keyword argument: its underscores become dots, unless it has dots already.

    >>> option_name("hbase_spark_query_prefix"), option_name("hbase.spark.query.prefix")
    ('hbase.spark.query.prefix', 'hbase.spark.query.prefix')
    """
    return argument if "." in argument else argument.replace("_", ".")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# -- sessions with a JVM ---------------------------------------------------------------------------------------------


def _planned_by_spark(spark: SparkSession, given: Mapping[str, str], options: Options) -> DataFrame:
    """Return a DataFrame whose scans Spark's optimizer plans, each with the filters and columns of its query."""
    _find_source(spark)
    with clients.lease(options) as connection:
        check_read_families(connection, Query.of(options))
    kept = {name: value for name, value in given.items() if field_named(name) != "locality"}
    java = SessionJvm(spark)
    df: DataFrame = dataframe_of(HBaseTable(java, kept, has_hosts=options.locality == "auto"), java)
    return df


def _find_source(spark: SparkSession) -> None:
    """Register the data source unless Spark finds it by itself."""
    from importlib.util import find_spec

    if find_spec("pyspark_hbase") is None:
        register(spark)


def _planned_here(
    spark: SparkSession,
    options: Options,
    columns: Sequence[str] | None,
    where: str | Expression | None,
    limit: int | None,
) -> DataFrame:
    query, conditions, wanted = _query(spark, options, columns, where)
    limit = options.limit if limit is None else limit
    # The limit counts rows that pass the condition, and Spark makes the exact test: Spark stops the read.
    query = query.limited(limit if not conditions else None)
    with clients.lease(options) as connection:
        splits = planned_read(connection, query)
    locality = options.locality == "auto"
    df = map_splits(spark, query.schema, splits, reader_of(query), locality=locality, name=plan_text(query, splits))
    tests = [each.given if isinstance(each.given, str) else each.column() for each in conditions]
    return _finished(df, tests, wanted, limit)


@dataclass(frozen=True, slots=True)
class _Condition:
    """A condition as given, the same bound in the session's dialect, and the columns that it reads."""

    given: str | Expression
    bound: Expression
    columns: tuple[str, ...]

    def column(self) -> SparkColumn:
        """Return the condition as a pyspark column that does not depend on the session's settings."""
        for part in opaque_parts(self.bound):
            if isinstance(self.given, str):
                raise ConfigError(f"where: {to_sql(part)}: {part.reason}; or put it into df.where(...)")
        return to_column(self.bound)


def _query(
    spark: SparkSession, options: Options, columns: Sequence[str] | None, where: str | Expression | None
) -> tuple[Query, list[_Condition], list[str] | None]:
    """Return the query, the conditions that Spark has to test, and the columns to keep at the end."""
    catalog = options.catalog()
    given = [each for each in (options.where, where) if each is not None]
    options = replace(options, where=None)  # Spark tests it faster than a worker
    conditions = _bound(spark, given, catalog)
    condition = _all_of(conditions) if conditions else None
    full = schema_of(catalog, options)
    if columns is None:
        return Query.of(options, full, condition), conditions, None
    wanted = [known_name(name, full.fieldNames()) for name in columns]
    if not wanted:
        raise ConfigError("columns is empty: leave it out for all of them, or name some")
    read = dict.fromkeys([*wanted, *(name for each in conditions for name in each.columns)])
    schema = type(full)([full[name] for name in read])
    return Query.of(options, schema, condition), conditions, wanted


def _bound(spark: SparkSession, given: Sequence[str | Expression], catalog: Catalog) -> list[_Condition]:
    if not given:
        return []
    words = dialect.of_session(spark)
    parsed = [parse_where(each, words) if isinstance(each, str) else each for each in given]
    return [
        _Condition(one, bind(each, catalog, words), tuple(catalog.field(name).name for name in columns_of(each)))
        for one, each in zip(given, parsed, strict=True)
    ]


def _all_of(conditions: Sequence[_Condition]) -> Expression:
    return conditions[0].bound if len(conditions) == 1 else And(tuple(each.bound for each in conditions))


def known_name(name: str, names: Sequence[str]) -> str:
    """Return the schema's spelling of a column name; raise ConfigError, with the nearest name, if there is none."""
    by_lower = {known.lower(): known for known in names}
    found = name if name in names else by_lower.get(name.lower())
    if found is None:
        near = difflib.get_close_matches(name, names, 1, 0.5)
        advice = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
        raise ConfigError(f"columns: there is no column {name!r}; {advice}")
    return found


def _finished(
    df: DataFrame, tests: Sequence[str | SparkColumn], wanted: list[str] | None, limit: int | None
) -> DataFrame:
    for test in tests:
        df = df.where(test)
    if wanted is not None:
        df = df.select(*map(quoted_name, wanted))
    return df if limit is None else df.limit(limit)


def reader_of(query: Query) -> SplitReader:
    """Return the function that reads a split in a worker."""

    def read(split: planning.TableSplit, planned: lookup_counts.Report | None) -> Iterator[pa.RecordBatch]:
        from spark_connector.reading.tasks import read_in_task

        return read_in_task(query, split, planned)

    return read


def map_splits(
    spark: SparkSession,
    schema: StructType,
    splits: Sequence[planning.TableSplit],
    read: SplitReader,
    *,
    locality: bool,
    name: str | None = None,
) -> DataFrame:
    """Return a DataFrame of the batches that ``read`` yields, one task per split, on the split's host if possible.

    ``read(split, planned)`` runs in a worker and yields record batches of ``schema``; ``planned`` goes to
    ``tasks.connected``. ``explain()`` and Spark's web page show the ``name``.
    """
    hosts = executors_for(spark, splits) if locality else {}
    first, *rest = splits
    blobs = [(pickle.dumps((first, lookup_counts.planned())), first.host)]
    blobs += [(pickle.dumps((split, None)), split.host) for split in rest]
    located = _located(spark, [(blob, hosts.get(host)) for blob, host in blobs], name)

    def read_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for blob in batch.column(0).to_pylist():
                split, planned = pickle.loads(blob)  # pickled a few lines above
                yield from read(split, planned)

    return located.mapInArrow(read_all, schema)


def _located(spark: SparkSession, blobs: Sequence[tuple[bytes, str | None]], name: str | None) -> DataFrame:
    """Return a DataFrame with one binary column, and one partition per blob with the blob's host as preference."""
    from pyspark.sql import DataFrame

    jvm = _jvm(spark)
    sequences = {
        host: jvm.PythonUtils.toSeq([host] if host is not None else []) for host in {host for _, host in blobs}
    }
    pairs = jvm.java.util.ArrayList()
    for blob, host in blobs:
        pairs.add(jvm.scala.Tuple2(bytearray(blob), sequences[host]))
    encoder = jvm.org.apache.spark.sql.Encoders.BINARY()
    rdd = spark.sparkContext._jsc.sc().makeRDD(jvm.PythonUtils.toSeq(pairs), encoder.clsTag())
    if name is not None:
        rdd.setName(name)
    return DataFrame(spark._jsparkSession.createDataset(rdd, encoder).toDF(), spark)


def _jvm(spark: SparkSession) -> Any:
    assert spark._jvm is not None  # callers check has_jvm() first
    return spark._jvm


# -- sessions of Spark Connect ---------------------------------------------------------------------------------------


def _loaded(
    spark: SparkSession,
    given: Mapping[str, str],
    options: Options,
    columns: Sequence[str] | None,
    where: str | Expression | None,
    limit: int | None,
) -> DataFrame:
    """Return a new ``load()`` with the same options, schema and condition, planned by a worker of Spark."""
    query, conditions, wanted = _query(spark, options, columns, where)
    limit = options.limit if limit is None else limit
    kept = {name: value for name, value in given.items() if field_named(name) != "locality"}  # load() has no locality
    reader = spark.read.format("hbase").options(**kept).schema(query.schema)
    if conditions:
        reader = reader.option("hbase.spark.query.where", to_sql(superset(_all_of(conditions))))
    if limit is not None and not conditions:
        reader = reader.option("hbase.spark.query.limit", limit)
    return _finished(reader.load(), [each.column() for each in conditions], wanted, limit)
