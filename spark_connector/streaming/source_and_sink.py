"""Structured Streaming: a source of changed cells by their timestamps, and an idempotent sink.

**Source.** A micro-batch has the cells of all regions with timestamps in ``[t0, t1)``, read by raw scans. The offset is
``{"ts": t1}``, and ``t1`` is the current time minus ``hbase.spark.stream.lag.ms``. The source needs no support of the
servers; it does not read the write-ahead log. It is complete if each cell is visible at most the lag after its
timestamp (clocks may differ by the lag, too). A cell that is written later, with an older timestamp, is missed. Batch
writes and sinks of this package are such writers: by default their cells have the time at which the job, or the
micro-batch, began. The lag must be longer than they take, or they must use ``hbase.spark.write.timestamp=server``.
Versions beyond the family's limit, and deleted cells, are visible until a (major) compaction removes them.

``maxRowsPerTrigger`` is a number of cells. The number of cells in a time range is known only after a scan. Therefore
each batch first reads the *keys* of all cells that are due, and ends at the timestamp that fits. That is exact, but the
next batch reads the remaining keys again. Cells of one millisecond are in one batch, which may exceed the limit.

**Sink.** The cells of micro-batch N get the time that Spark wrote for it into the checkpoint before it ran
(:mod:`spark_connector.streaming.checkpoint`), or ``hbase.spark.write.timestamp`` + N. A batch that is run again, after
a failure or a restart, writes the same cells with the same timestamps: effectively once. With the servers' timestamps
it is at least once: a batch that is run again adds versions.
"""

from __future__ import annotations

import heapq
import logging
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from metaclient import keys
from metaclient.columns.layouts import Layout
from metaclient.errors import ConfigError
from metaclient.model import LATEST_TIMESTAMP
from metaclient.runtime import ThreadRuntime
from metaclient.table import ALL_VERSIONS
from spark_connector import clients, lookup_counts
from spark_connector.planning import splits as planning
from spark_connector.planning.query import Query
from spark_connector.reading import split_reader as reading
from spark_connector.reading.tasks import read_in_task
from spark_connector.settings.option_values import WriteTimestamp
from spark_connector.settings.tokens import TokenParcel
from spark_connector.streaming.checkpoint import BatchTime, batch_time
from spark_connector.writing.writer import HBaseWriter, WriteMessage

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow
except ImportError:  # before 4.2: no read limits, and no Trigger.AvailableNow
    SupportsTriggerAvailableNow = object  # type: ignore[assignment,misc]  # a base class that adds nothing
try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # before 4.1
    DataSourceStreamArrowWriter = None  # type: ignore[assignment,misc]  # checked before it is used

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

    from spark_connector.settings.options import Options

__all__ = ["ChangesPartition", "HBaseStreamReader", "stream_writer"]

_log = logging.getLogger(__name__)
_runtime = ThreadRuntime(name="spark-streaming")  # clock only; it starts no thread

#: The largest maxRowsPerTrigger: the driver keeps so many timestamps in memory.
ROWS_PER_TRIGGER_MAX = 10_000_000
_KEYS_ONLY = b"KeyOnlyFilter()"
#: The local property of a task with the id of its micro-batch (MicroBatchExecution.BATCH_ID_KEY).
_BATCH_ID = "streaming.sql.batchId"


def _warn_of_misses(options: Options) -> None:
    """Say, once per new query, what a stream over timestamps can miss."""
    warnings.warn(
        f"this stream of table {keys.printable(options.catalog().table)} reads cells by their timestamps. It misses "
        f"every cell whose timestamp is older than {options.stream_lag_ms} ms when it is written "
        "(hbase.spark.stream.lag.ms), and what a compaction removes before. hbase.spark.stream.source=wal misses "
        "nothing; if no replication peer may be added, write with hbase.spark.write.timestamp=server, which is never "
        "missed (docs/changes.md)",
        MissingChangesWarning,
        stacklevel=2,
    )


class MissingChangesWarning(UserWarning):
    """A stream over timestamps begins, which can miss changes."""


class ChangesPartition(InputPartition):
    """The changes of one split between two instants."""

    def __init__(
        self,
        split: planning.TableSplit,
        start: int,
        end: int,
        planned: lookup_counts.Report | None = None,
        *,
        token: TokenParcel | None = None,
    ) -> None:
        super().__init__(split)
        self.start = start
        self.end = end
        self.planned = planned
        #: The reader is pickled once per query; its partitions bring newer tokens.
        self.token = token


class HBaseStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """``spark.readStream.format("hbase").option("hbase.spark.query.layout", "raw")``; see the module's docstring."""

    def __init__(self, options: Options, schema: StructType) -> None:
        clients.check_reachable(options.connection_url)
        if options.layout not in (Layout.RAW, Layout.CELLS):
            raise ConfigError(
                "a stream reads changed cells: set hbase.spark.query.layout=raw (with delete markers) or cells, "
                f"not {options.layout.value}"
            )
        for given, name in (
            (options.timestamp, "timestamp"),
            (options.timerange_start, "timerange.start"),
            (options.timerange_end, "timerange.end"),
            (options.limit, "limit"),
        ):
            if given is not None:
                raise ConfigError(f"option hbase.spark.query.{name} is not for streams: use startingTimestamp")
        limit = options.max_rows_per_trigger
        if limit is not None and limit > ROWS_PER_TRIGGER_MAX:
            raise ConfigError(f"option maxRowsPerTrigger = {limit}: at most {ROWS_PER_TRIGGER_MAX}")
        self._query = Query.of(replace(options, max_versions=ALL_VERSIONS), schema)
        self._until: int | None = None  # of Trigger.AvailableNow

    # -- offsets -----------------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, int]:
        """Return the start of a query that has no checkpoint yet."""
        _warn_of_misses(self._query.options)
        given = self._query.options.starting_timestamp
        return {"ts": _runtime.time_ms() if given is None else given}

    def latestOffset(self, start: dict[str, int] | None = None, limit: Any = None) -> dict[str, int]:
        """Return the end of the next batch. Spark before 4.2 calls it without arguments."""
        rows = getattr(limit, "max_rows", None)
        if rows is None and start is None and self._query.options.max_rows_per_trigger is not None:
            raise ConfigError(
                "option maxRowsPerTrigger needs Spark 4.2 or newer: older versions do not support read limits"
            )
        due = _runtime.time_ms() - self._query.options.stream_lag_ms if self._until is None else self._until
        begin = start["ts"] if start is not None else 0
        if due <= begin:
            return {"ts": begin} if start is not None else {"ts": max(due, self.initialOffset()["ts"])}
        return {"ts": due if rows is None else self._fitting(begin, due, rows)}

    def getDefaultReadLimit(self) -> Any:
        rows = self._query.options.max_rows_per_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def reportLatestOffset(self) -> dict[str, int]:
        """Return the end of the next batch without limits; Spark shows it in the query's progress."""
        return {"ts": _runtime.time_ms() - self._query.options.stream_lag_ms}

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the query at the current time minus the lag."""
        self._until = _runtime.time_ms() - self._query.options.stream_lag_ms

    def _fitting(self, start: int, due: int, rows: int) -> int:
        """Return the latest end with at most ``rows`` cells before it; it is at least 1 ms after the first cell."""
        query = self._between(start, due)
        query = replace(
            query, filter=_KEYS_ONLY if query.filter is None else b"(%b) AND %b" % (query.filter, _KEYS_ONLY)
        )
        earliest: list[int] = []  # a heap of negated timestamps: the rows + 1 earliest ones
        with clients.lease(query.options) as connection:
            split = planning.TableSplit(ranges=query.pushed.ranges)
            for result, _ in reading.results_of(connection, query, split):
                for cell in result.cells:
                    if len(earliest) <= rows:
                        heapq.heappush(earliest, -cell.timestamp)
                    elif cell.timestamp < -earliest[0]:
                        heapq.heapreplace(earliest, -cell.timestamp)
        if len(earliest) <= rows:
            return due
        beyond = -earliest[0]  # the first cell that does not fit: its millisecond belongs to the next batch
        first = -max(earliest)
        if beyond > first:
            return beyond
        _log.info("more than %d cells have timestamp %d: they are one batch", rows, first)
        return first + 1

    # -- batches -----------------------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Return a partition per split of the current regions."""
        begin, stop = start["ts"], end["ts"]
        if stop <= begin:
            return []
        query = self._query
        with clients.lease(query.options) as connection:
            splits = planning.plan(connection, query)
        first, *rest = splits
        token = TokenParcel(query.options)
        return [
            ChangesPartition(first, begin, stop, lookup_counts.planned(), token=token),
            *(ChangesPartition(split, begin, stop, token=token) for split in rest),
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the changes of one split, in a task."""
        if isinstance(partition, ChangesPartition):  # Spark passes its own partition for an empty batch
            yield from read_in_task(self._between(partition.start, partition.end), partition.value, partition.planned)

    def _between(self, start: int, end: int) -> Query:
        query = self._query
        return replace(query, options=replace(query.options, timerange_start=start, timerange_end=end))

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: the reader keeps no state per batch."""

    def stop(self) -> None:
        """Do nothing: nothing runs between batches, and idle clients are closed by age."""


# -- the sink --------------------------------------------------------------------------------------------------------


def stream_writer(options: Options, schema: StructType, overwrite: bool, checkpoint: str | None = None) -> Any:
    """Return the sink of a stream; raise ConfigError if Spark has no sinks that take Arrow."""
    if DataSourceStreamArrowWriter is None:
        raise ConfigError("a stream into HBase needs Spark 4.1 or newer: use foreachBatch with spark_connector.write")
    return _StreamWriter(options, schema, overwrite, checkpoint)


class _Batch:
    """The timestamps of the cells of a micro-batch; created on the driver, once per batch."""

    def __init__(self, options: Options, checkpoint: str | None) -> None:
        given = options.write_timestamp
        self._base = given.ms
        self._is_servers = given.is_servers
        needs_time = given.ms is None and not given.is_servers
        self._time: BatchTime | None = batch_time(checkpoint) if needs_time else None

    @property
    def is_time(self) -> bool:
        """True if the timestamp is the time at which the micro-batch began."""
        return self._time is not None

    def timestamp(self, batch_id: int) -> int:
        if self._is_servers:
            return LATEST_TIMESTAMP
        if self._time is None:
            assert self._base is not None
            return self._base + batch_id
        if self._time.id != batch_id:
            raise ConfigError(
                f"micro-batch {batch_id} runs, and the checkpoint's latest is {self._time.id}: is it of another query? "
                "Give hbase.spark.write.timestamp as milliseconds, to which the batch id is added"
            )
        return self._time.timestamp


def _running_batch() -> int:
    """Return the id of the micro-batch that this task belongs to."""
    from pyspark import TaskContext

    context = TaskContext.get()
    known = context.getLocalProperty(_BATCH_ID) if context is not None else None
    if known is None:
        raise ConfigError(
            f"this task has no local property {_BATCH_ID}, the id of its micro-batch: a stream cannot be written"
        )
    return int(known)


if DataSourceStreamArrowWriter is not None:

    class _StreamWriter(DataSourceStreamArrowWriter):
        """Writes one micro-batch as :class:`HBaseWriter` does, with the batch's timestamp.

        In mode ``complete`` each batch puts the whole result. Nothing is deleted, because its groups never disappear.
        """

        def __init__(self, options: Options, schema: StructType, overwrite: bool, checkpoint: str | None) -> None:
            self._batch = _Batch(options, checkpoint)
            given = options.write_timestamp
            # The batch's timestamp is an argument of each call.
            plain = options if given.ms is None else replace(options, write_timestamp=WriteTimestamp())
            self._writer = HBaseWriter(plain, schema, overwrite=False)
            self._writer.is_stamped_by_time = self._batch.is_time and given.column is None

        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteMessage:
            return self._writer.write_at(iterator, self._batch.timestamp(_running_batch()))

        def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
            self._writer.stamp(self._batch.timestamp(batchId)).commit(messages)

        def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
            _log.warning("micro-batch %d failed; when Spark runs it again, it writes the same cells", batchId)
            self._writer.stamp(self._batch.timestamp(batchId)).abort(messages)
