"""A table of Spark's catalog interface (``SupportsRead``, ``SupportsWrite``) that reads and writes one HBase table.

Spark's API for Python data sources has no column pruning, and keeps one pushed reader per ``load()``. Here Spark's
optimizer talks to the Java interfaces below the data sources instead, implemented by Python objects on the driver:

1. For each scan of each query Spark asks the table for a new :class:`HBaseScanBuilder`. It gets the filters, the
   columns and the limit of that scan alone, so that no state is shared between queries.
2. All filters stay with Spark as well, which tests the returned rows. A limit is applied again by Spark.
3. The scan is planned in the driver's Python, once. Tasks run through Spark's own classes for Python data sources
   (``PythonInputPartition``, ``PythonPartitionReaderFactory``), so that executors need nothing new.
4. A runtime filter of a join (dynamic partition pruning) makes the scan plan again, with fewer ranges and rows. Spark
   passes it and asks for the new plan in one thread; another thread that uses the same scan does not get that plan.
5. Tasks prefer the hosts of their regions (:mod:`.hosts`).
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from metaclient import keys
from metaclient.columns.layouts import Layout
from metaclient.errors import ConfigError, MetaClientError
from metaclient.runtime import ThreadRuntime
from spark_connector import clients, lookup_counts
from spark_connector.conditions.condition import And, Expression
from spark_connector.conditions.expressions import bind
from spark_connector.conditions.spark_filters import condition_of
from spark_connector.planning import splits as planning
from spark_connector.planning.query import Query
from spark_connector.planning.read_schema import schema_of
from spark_connector.reading.plan_text import plan_text
from spark_connector.reading.planned import planned_read
from spark_connector.settings.option_uses import Use, check_read, check_written
from spark_connector.settings.options import Options
from spark_connector.tables.hosts import executors_for, hosted_partitions
from spark_connector.tables.jvm import JavaProxy, SessionJvm, spark_version

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from metaclient.columns.types import DataType

__all__ = ["HBaseTable", "dataframe_of"]

_log = logging.getLogger(__name__)
#: Locks only; it starts no thread.
_runtime = ThreadRuntime(name="spark-scans")

_CATALOG = "org.apache.spark.sql.connector.catalog"
_READ = "org.apache.spark.sql.connector.read"
_FILTER = "org.apache.spark.sql.sources.Filter"
_SOURCE = "hbase"
#: The versions in which Spark calls ``filter``, then ``toBatch``, in one thread; tests/spark runs on each of them.
_RUNTIME_FILTERS = ((4, 0), (4, 1), (4, 2), (4, 3))
_WORKER_LOGGING = "spark.sql.pyspark.worker.logging.enabled"


class HBaseTable(JavaProxy):
    """One HBase table with a catalog, as Spark's ``Table``. It has no state but its options.

    With ``has_hosts`` the tasks of a scan prefer the hosts of their regions.
    """

    class Java:
        implements = (f"{_CATALOG}.SupportsRead", f"{_CATALOG}.SupportsWrite")

    def __init__(
        self, java: SessionJvm, given: Mapping[str, str], name: str | None = None, *, has_hosts: bool = True
    ) -> None:
        super().__init__(java)
        self._has_hosts = has_hosts
        self._given = {key.lower(): value for key, value in given.items()}
        options = Options.parse(self._given).resolved()
        clients.check_reachable(options.connection_url)
        catalog = options.catalog()
        self._schema = schema_of(catalog, options)
        self._struct = java.struct(self._schema)
        self._name = name or f"{_SOURCE}.{keys.printable(catalog.table).replace(':', '.')}"
        self._source = java.named("org.apache.spark.sql.execution.datasources.v2.python").PythonDataSourceV2()
        self._source.setShortName(_SOURCE)

    def name(self) -> str:
        return self._name

    def toString(self) -> str:
        return self._name

    def schema(self) -> Any:
        return self._struct

    def properties(self) -> Any:
        made = self._java.jvm.java.util.HashMap()
        made.put("provider", _SOURCE)
        return made

    def capabilities(self) -> Any:
        known = self._java.named(_CATALOG).TableCapability
        made = self._java.jvm.java.util.HashSet()
        for each in (known.BATCH_READ, known.BATCH_WRITE, known.TRUNCATE):
            made.add(each)
        return made

    def newScanBuilder(self, options: Any) -> HBaseScanBuilder:
        """Return the builder of one scan; ``options`` are those of the query (``WITH``, ``spark.read.option``)."""
        given = self._with(options)
        parsed = Options.parse(given).resolved()
        check_read(given, parsed, Use.LOAD)
        if schema_of(parsed.catalog(), parsed) != self._schema:
            raise ConfigError(
                f"table {self._name}: an option of this query changes the columns of the table, which Spark has read "
                "already: give it to spark_connector.table, or to a view of its own"
            )
        request = _Request(parsed, self._schema, has_hosts=self._has_hosts)
        return HBaseScanBuilder(self._java, request, self._source, self._name)

    def newWriteBuilder(self, info: Any) -> Any:
        """Return Spark's own builder for writes of Python data sources, with the options of this table."""
        given = self._with(info.options())
        check_written(given, Use.WRITE)
        java = self._java
        empty = java.jvm.java.util.Optional.empty()
        with_options = java.jvm.org.apache.spark.sql.connector.write.LogicalWriteInfoImpl(
            info.queryId(), info.schema(), java.options(given), empty, empty
        )
        python = java.named("org.apache.spark.sql.execution.datasources.v2.python")
        return python.PythonWriteBuilder(self._new_source(), _SOURCE, with_options)

    def _new_source(self) -> Any:
        """Return a new Java object of the data source: it keeps the writer or reader that it has made."""
        made = self._java.named("org.apache.spark.sql.execution.datasources.v2.python").PythonDataSourceV2()
        made.setShortName(_SOURCE)
        return made

    def _with(self, options: Any) -> dict[str, str]:
        more = {key.lower(): value for key, value in self._java.strings(options).items()}
        return {**self._given, **more}


@dataclass(frozen=True, slots=True)
class _Request:
    """What one scan was asked for by the optimizer."""

    options: Options
    schema: StructType
    condition: Expression | None = None
    limit: int | None = None
    has_hosts: bool = True

    def query(self, more: Expression | None = None) -> Query:
        """Return the query, with a further condition that the rows must pass."""
        both = tuple(each for each in (self.condition, more) if each is not None)
        condition = And(both) if len(both) == 2 else both[0] if both else None
        query = Query.of(self.options, self.schema, condition)
        return query if self.limit is None else query.limited(self.limit)


class HBaseScanBuilder(JavaProxy):
    """Collects the filters, columns and limit of one scan."""

    class Java:
        implements = (
            f"{_READ}.SupportsPushDownFilters",
            f"{_READ}.SupportsPushDownRequiredColumns",
            f"{_READ}.SupportsPushDownLimit",
        )

    def __init__(self, java: SessionJvm, whole: _Request, source: Any, name: str) -> None:
        super().__init__(java)
        self._whole, self._source, self._name = whole, source, name
        self._options, self._full, self._schema = whole.options, whole.schema, whole.schema
        self._condition: Expression | None = None
        self._limit: int | None = None
        self._filters: list[Any] = []

    def pushFilters(self, filters: Any) -> Any:
        """Use the filters as far as possible, and return all of them: Spark tests the returned rows, too."""
        if self._options.layout is Layout.COLUMNS and self._options.limit is None:  # that limit comes before filters
            self._filters = list(filters)
            self._condition = _usable(condition_of(self._filters, _types(self._options), self._java.jvm), self._options)
        return filters

    def pushedFilters(self) -> Any:
        return self._java.array(_FILTER, self._filters if self._condition is not None else ())

    def pruneColumns(self, required: Any) -> None:
        """Keep the columns that the query needs; at least one, because Spark 4.0 counts no rows without a column."""
        if self._options.layout is Layout.COLUMNS:
            wanted = self._java.schema(required).fieldNames() or self._full.fieldNames()[:1]
            self._schema = type(self._full)([self._full[name] for name in wanted])

    def pushLimit(self, limit: int) -> bool:
        """Use the limit for each split. Spark passes none to a scan whose rows it filters."""
        if self._options.limit is not None:
            return False
        self._limit = limit
        return True

    def isPartiallyPushed(self) -> bool:
        return True

    def build(self) -> HBaseScan:
        request = replace(self._whole, schema=self._schema, condition=self._condition, limit=self._limit)
        return HBaseScan(self._java, request, self._source, self._name)


class HBaseScan(JavaProxy):
    """One scan of a query; planned at the first use."""

    class Java:
        implements = (f"{_READ}.SupportsRuntimeFiltering",)

    def __init__(self, java: SessionJvm, request: _Request, source: Any, name: str) -> None:
        super().__init__(java)
        self._request, self._source, self._name = request, source, name
        self.has_hosts = request.has_hosts
        self.query = request.query()
        self._lock = _runtime.lock()  # guards the fields below
        self._splits: list[planning.TableSplit] | None = None
        self._batch: Any = None
        self._runtime: dict[int, Expression | None] = {}  # Java thread -> the filter that it has just passed

    def readSchema(self) -> Any:
        return self._java.struct(self.query.schema)

    def description(self) -> str:
        """Return what the scan reads and which servers serve it, for ``explain()`` and Spark's web page."""
        try:
            return plan_text(self.query, self.splits())
        except MetaClientError as error:  # the action raises it; explain() shows the rest
            return f"{plan_text(self.query, None)}, not planned: {type(error).__name__}: {error}"

    def toString(self) -> str:
        return f"HBase scan of {self._name}"

    def supportedCustomMetrics(self) -> Any:
        return self._source.source().createPythonMetrics()

    def splits(self) -> list[planning.TableSplit]:
        """Return the splits without runtime filters; planned once."""
        with self._lock:
            if self._splits is None:
                self._splits = _planned(self.query)
            return self._splits

    def toBatch(self) -> Any:
        thread = self._java.thread_id()
        with self._lock:
            if thread in self._runtime:
                narrower = self._request.query(self._runtime.pop(thread))
                return HBaseBatch(self._java, self, narrower, self._source)
            if self._batch is None:  # one proxy, so that equal plans compare as equal
                self._batch = self._java.one_proxy(HBaseBatch(self._java, self, None, self._source))
            return self._batch

    # -- runtime filters

    def filterAttributes(self) -> Any:
        """Return the columns of the row key that are read: a filter of other columns would not save a scan."""
        names = [part.name for part in self.query.catalog.key if part.name in self.query.schema.fieldNames()]
        is_offered = (
            spark_version(self._java.spark) in _RUNTIME_FILTERS
            and self._request.options.layout is Layout.COLUMNS
            and self.query.limit is None
        )
        column = self._java.jvm.org.apache.spark.sql.connector.expressions.Expressions.column
        return self._java.array(
            "org.apache.spark.sql.connector.expressions.NamedReference",
            [column(f"`{name.replace('`', '``')}`") for name in names] if is_offered else (),
        )

    def filter(self, predicates: Any) -> None:
        """Remember a runtime filter for the next ``toBatch`` of the calling thread."""
        filters = self._java.jvm.org.apache.spark.sql.internal.connector.PredicateUtils.toV1(predicates)
        options = self._request.options
        condition = _usable(condition_of(filters, _types(options), self._java.jvm), options)
        with self._lock:
            self._runtime[self._java.thread_id()] = condition


class HBaseBatch(JavaProxy):
    """The tasks of a scan: all of its splits, or those that a runtime filter leaves."""

    class Java:
        implements = (f"{_READ}.Batch",)

    def __init__(self, java: SessionJvm, scan: HBaseScan, narrower: Query | None, source: Any) -> None:
        super().__init__(java)
        self._scan, self._narrower, self._source = scan, narrower, source

    def planInputPartitions(self) -> Any:
        splits = self._scan.splits() if self._narrower is None else _planned(self._narrower)
        first, *rest = splits
        blobs = [pickle.dumps((first, lookup_counts.planned())), *(pickle.dumps((split, None)) for split in rest)]
        hosts = executors_for(self._java.spark, splits) if self._scan.has_hosts else {}
        return hosted_partitions(self._java, blobs, [hosts.get(split.host) for split in splits])

    def createReaderFactory(self) -> Any:
        from pyspark.serializers import CloudPickleSerializer

        java, query = self._java, self._scan.query
        serializer: Any = CloudPickleSerializer
        command = serializer().dumps((_reading(query), query.schema))
        make = java.named("org.apache.spark.sql.execution.datasources.v2.python").PythonPartitionReaderFactory
        given = [self._source.source(), bytearray(command), java.struct(query.schema), _artifacts(java)]
        return make(*given) if spark_version(java.spark) < (4, 1) else make(*given, _worker_logs(java))


def dataframe_of(table: HBaseTable, java: SessionJvm) -> Any:
    """Return a DataFrame of a table that is in no catalog."""
    from pyspark.sql import DataFrame

    nothing = java.nothing()
    relation = java.named("org.apache.spark.sql.execution.datasources.v2").DataSourceV2Relation.create(
        java.one_proxy(table), nothing, nothing
    )
    return DataFrame(java.jvm.org.apache.spark.sql.classic.Dataset.ofRows(java.session, relation), java.spark)


def _types(options: Options) -> Mapping[str, DataType]:
    return {field.name: field.type for field in options.catalog().columns}


def _usable(condition: Expression | None, options: Options) -> Expression | None:
    """Return the condition without the parts that do not fit the catalog (a family's map, a type without order)."""
    if condition is None:
        return None
    catalog = options.catalog()
    parts = condition.parts if isinstance(condition, And) else (condition,)
    kept: list[Expression] = []
    for part in parts:
        try:
            bind(part, catalog)
        except ConfigError:
            _log.debug("a filter is not pushed down", exc_info=True)
        else:
            kept.append(part)
    return None if not kept else kept[0] if len(kept) == 1 else And(tuple(kept))


def _planned(query: Query) -> list[planning.TableSplit]:
    with clients.lease(query.options) as connection:
        return planned_read(connection, query, whole=query.options.limit is not None)


def _reading(query: Query) -> Any:
    """Return the function of a task: pickled splits -> record batches."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from spark_connector.reading.tasks import read_in_task

        for batch in batches:
            for blob in batch.column(0).to_pylist():
                split, planned = pickle.loads(blob)  # pickled by HBaseBatch
                yield from read_in_task(query, split, planned)

    return read


def _artifacts(java: SessionJvm) -> Any:
    """Return the id of the session's artifacts (``spark.addArtifact``), as Spark's own batch does."""
    state = java.jvm.org.apache.spark.JobArtifactSet.getCurrentJobArtifactState()
    return java.jvm.scala.Option.apply(state.get().uuid() if state.isDefined() else None)


def _worker_logs(java: SessionJvm) -> Any:
    is_on = str(java.spark.conf.get(_WORKER_LOGGING, "false")).lower() == "true"
    return java.jvm.scala.Option.apply(java.session.sessionUUID() if is_on else None)
