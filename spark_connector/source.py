"""The data source ``hbase``: the classes that Spark calls for ``spark.read.format("hbase")``, ``df.write`` and streams.

Spark calls each method in another process, so the attributes of ``self`` must be picklable. These classes adapt
:mod:`spark_connector.planning.splits` and :mod:`spark_connector.reading.split_reader` to Spark's interface.

Filters of Spark are not pushed down: no reader here has ``pushFilters``. Spark reuses the reader of one query for all
later queries on the same DataFrame, so that ``df.where("i = 1").count()`` and then ``df.count()`` would both be 1 (seen
in 4.1 and 4.3). The second query does not call Python at all, so that a source cannot detect it. The option
``hbase.spark.query.where`` and ``spark_connector.table(where=...)`` push conditions down without this defect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamReader, DataSourceWriter
    from pyspark.sql.types import StructType

    from spark_connector.planning.splits import TableSplit
    from spark_connector.settings.option_uses import Use
    from spark_connector.settings.options import Options

__all__ = ["HBasePartition", "HBaseReader", "HBaseSource"]


class HBaseSource(DataSource):
    """``spark.read.format("hbase").option("url", ...).option("catalog", ...).load()``."""

    @classmethod
    def name(cls) -> str:
        return "hbase"

    def parsed(self, use: Use | None = None) -> Options:
        """Return the options; with a ``use``, raise ConfigError for options that the use does not honour."""
        from spark_connector.settings.option_uses import Use, check_read, check_use, check_written
        from spark_connector.settings.options import Options

        _refuse_catalog_tables(self.options)
        parsed = Options.parse(self.options).resolved()
        if use is Use.LOAD:
            check_read(self.options, parsed, use)
        elif use in (Use.WRITE, Use.STREAM_WRITE):
            check_written(self.options, use)
        elif use is not None:
            check_use(self.options, use)
        return parsed

    def schema(self) -> StructType:
        from spark_connector.planning.read_schema import schema_of
        from spark_connector.streaming.change_layouts import change_schema

        options = self.parsed()
        if options.stream_source == "wal":
            return change_schema(options)
        return schema_of(options.catalog(), options)

    def reader(self, schema: StructType) -> HBaseReader:
        from spark_connector.settings.option_uses import Use

        return HBaseReader(_with_columns(self.parsed(Use.LOAD), schema), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from spark_connector.settings.option_uses import Use
        from spark_connector.writing.writer import HBaseWriter

        return HBaseWriter(_with_columns(self.parsed(Use.WRITE), schema), schema, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from spark_connector.settings.option_uses import Use
        from spark_connector.streaming.change_source import ChangeStreamReader
        from spark_connector.streaming.source_and_sink import HBaseStreamReader

        if self.parsed().stream_source == "wal":
            return ChangeStreamReader(self.parsed(Use.STREAM_CHANGES), schema)
        return HBaseStreamReader(self.parsed(Use.STREAM_READ), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        from spark_connector.settings.option_uses import Use
        from spark_connector.streaming.source_and_sink import stream_writer

        checkpoint = {name.lower(): value for name, value in self.options.items()}.get("checkpointlocation")
        return stream_writer(self.parsed(Use.STREAM_WRITE), schema, overwrite, checkpoint)


def _with_columns(options: Options, schema: StructType) -> Options:
    """Return the options with a mapping of columns, made from a user's schema if there is neither one nor a catalog."""
    from metaclient.columns.layouts import Layout
    from spark_connector.schema.columns import mapping_of

    is_mapped = options.catalog_text is not None or options.columns_mapping is not None
    if is_mapped or options.table is None or options.layout is not Layout.COLUMNS:
        return options
    return replace(options, columns_mapping=mapping_of(schema))


#: Spark adds them to the options of CREATE TABLE (TableCatalog.PROP_PROVIDER and PROP_OWNER), and nowhere else.
_CREATE_TABLE = frozenset({"provider", "owner"})
_USE_A_VIEW = (
    "Write CREATE TEMPORARY VIEW ... USING hbase OPTIONS (url '...', catalog '...') instead, or "
    "spark.read.format('hbase').options(...).load().createOrReplaceTempView(...)"
)


def _refuse_catalog_tables(options: Mapping[str, str]) -> None:
    """Raise ConfigError for ``CREATE TABLE ... USING hbase``, and for a table that was made by it with columns.

    Spark's catalog keeps no options of a table whose source is in Python (seen in 4.3), and so hands none to its reader
    or writer. With columns in the statement it does not call the source at all before the first use.
    """
    from metaclient.errors import ConfigError

    if {name.lower() for name in options} >= _CREATE_TABLE:
        raise ConfigError(
            "CREATE TABLE ... USING hbase makes a table that cannot be read: Spark does not keep the options of "
            f"tables of Python data sources. {_USE_A_VIEW}"
        )
    if not options:
        raise ConfigError(
            "this read or write has no options, url and catalog are missing. If its table was made by CREATE TABLE ... "
            f"USING hbase: Spark does not keep the options of tables of Python data sources. {_USE_A_VIEW}; or give "
            "them with each query: SELECT ... FROM name WITH (url = '...', catalog = '...')"
        )


class HBasePartition(InputPartition):
    """A split; the first partition of a read also carries the planner's reads of hbase:meta so far."""

    def __init__(self, split: TableSplit, planned: Mapping[str, Mapping[str, int]] | None = None) -> None:
        super().__init__(split)
        self.planned = planned


class HBaseReader(DataSourceReader):
    """A batch read: plans on the driver, reads in the workers."""

    def __init__(self, options: Options, schema: StructType) -> None:
        from spark_connector.clients import check_reachable
        from spark_connector.planning.query import Query

        check_reachable(options.connection_url)
        self._query = Query.of(options, schema)

    def partitions(self) -> list[InputPartition]:
        from spark_connector import clients, lookup_counts
        from spark_connector.reading.planned import planned_read

        query = self._query
        with clients.lease(query.options) as connection:
            splits = planned_read(connection, query, whole=query.limit is not None)
        first, *rest = splits
        return [HBasePartition(first, lookup_counts.planned()), *map(HBasePartition, rest)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from spark_connector.reading.tasks import read_in_task

        split = partition.value
        if split is None:  # Spark's own partition, for an empty plan
            return
        yield from read_in_task(self._query, split, getattr(partition, "planned", None))
