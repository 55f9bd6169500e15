"""RowCounter: counts rows inside of the tasks; one line for each region crosses to Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from metaclient.errors import MetaClientError
from metaclient.wording import counted
from spark_connector import lookup_counts
from spark_connector.jobs.progress import Progress, watched
from spark_connector.jobs.splits import Key, over_splits, planned_splits, scan_options
from spark_connector.planning import splits as planning
from spark_connector.planning.query import Query
from spark_connector.reading import split_reader as reading
from spark_connector.reading.tasks import attempt_number, connected
from spark_connector.settings.option_uses import Use

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from spark_connector.dataframe import SplitReader

__all__ = ["UnexpectedCount", "counts", "row_count"]

#: What crosses to Spark, once for each region.
SCHEMA = "start binary, stop binary, rows bigint"


class UnexpectedCount(MetaClientError):
    """The table does not have as many rows as was expected; ``rows`` is how many it has."""

    def __init__(self, message: str, *, rows: int) -> None:
        super().__init__(message)
        self.rows = rows


def row_count(
    spark: SparkSession,
    table: Key,
    *,
    url: str | None = None,
    startrow: Key | None = None,
    stoprow: Key | None = None,
    prefix: Key | None = None,
    starttime: int | None = None,
    endtime: int | None = None,
    expected: int | None = None,
    progress: Progress | bool | None = None,
    **options: object,
) -> int:
    """How many rows a table has, or a range of it.

    Of each row only the key of its first cell crosses the wire, and to Spark only one number for each region.
    ``starttime`` and ``endtime`` (exclusive, ms) count rows that have a cell written in between. With ``expected``
    another number is :class:`UnexpectedCount`.

        hbase.row_count(spark, "users", url="thrift2://gateway:9090", prefix="2026-")
    """
    parsed = scan_options(
        table,
        url,
        options,
        Use.ROW_COUNT,
        startrow=startrow,
        stoprow=stoprow,
        prefix=prefix,
        starttime=starttime,
        endtime=endtime,
    )
    query = Query.of(parsed)
    splits = planned_splits(spark, query)
    with watched(spark, f"row_count {parsed.table}", len(splits), progress):
        rows = sum(int(line.rows) for line in counts(spark, query, splits).collect())
    if expected is not None and rows != expected:
        raise UnexpectedCount(
            f"table {parsed.table!r} has {counted(rows, 'row')}, not the expected {expected}", rows=rows
        )
    return rows


def counts(spark: SparkSession, query: Query, splits: list[planning.TableSplit]) -> DataFrame:
    """A line for each region: from where, to where, how many rows."""
    return over_splits(spark, SCHEMA, splits, _counter(query), query.options)


def _counter(query: Query) -> SplitReader:
    def count(split: planning.TableSplit, planned: lookup_counts.Report | None) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        with connected(query.options, planned) as connection:
            found = list(reading.count_split(connection, query, split, attempt=attempt_number()))
        yield pa.record_batch(
            [
                pa.array([one.start for one in found], pa.binary()),
                pa.array([one.stop for one in found], pa.binary()),
                pa.array([one.rows for one in found], pa.int64()),
            ],
            names=["start", "stop", "rows"],
        )

    return count
