"""RowCounter: counts rows inside of the tasks, which return one line per region to Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from metaclient.errors import MetaClientError
from metaclient.wording import counted
from spark_connector import lookup_counts
from spark_connector.jobs.splits import Key, RowChoice, plan_splits, run_on_splits, scan_options
from spark_connector.planning import splits as planning
from spark_connector.planning.query import Query
from spark_connector.reading import split_reader as reading
from spark_connector.reading.tasks import attempt_number, connected
from spark_connector.settings.option_uses import Use
from spark_connector.settings.progress import Progress, watch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from spark_connector.dataframe import SplitReader

__all__ = ["UnexpectedCount", "counts", "row_count"]

#: The line that a task returns per region.
SCHEMA = "start binary, stop binary, rows bigint"


class UnexpectedCount(MetaClientError):
    """The table does not have the expected number of rows; ``rows`` is the number that was counted."""

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
    """Return the number of rows of a table, or of a range of it.

    The servers send only the key of each row's first cell, and a task returns one number per region to Spark. With
    ``starttime`` and ``endtime`` (exclusive, ms) only rows with a cell of that time are counted. If ``expected`` is
    given and the number is another one, :class:`UnexpectedCount` is raised.

        hbase.row_count(spark, "users", url="thrift2://gateway:9090", prefix="2026-")
    """
    parsed = scan_options(
        table,
        url,
        options,
        Use.ROW_COUNT,
        rows=RowChoice(startrow, stoprow, prefix),
        times=(starttime, endtime),
    )
    query = Query.of(parsed)
    splits = plan_splits(spark, query)
    with watch(spark, f"row_count {parsed.table}", len(splits), progress):
        rows = sum(int(line.rows) for line in counts(spark, query, splits).collect())
    if expected is not None and rows != expected:
        raise UnexpectedCount(
            f"table {parsed.table!r} has {counted(rows, 'row')}, not the expected {expected}", rows=rows
        )
    return rows


def counts(spark: SparkSession, query: Query, splits: list[planning.TableSplit]) -> DataFrame:
    """Return a DataFrame with one line per region: its start, its stop, and the number of its rows."""
    return run_on_splits(spark, SCHEMA, splits, _counter(query), query.options)


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
