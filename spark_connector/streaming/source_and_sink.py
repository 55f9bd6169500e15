"""Structured Streaming: a source of changed cells by their timestamps, and a sink that replays do not double.

**Source.** A micro-batch is the cells of all regions with timestamps in ``[t0, t1)``, read by raw scans; the offset is
``{"ts": t1}`` and ``t1`` is now less ``hbase.spark.stream.lag.ms``. It needs nothing of the servers, and is no feed of
the write-ahead log. It is complete for cells whose timestamps are the servers' own, or at most the lag behind when they
are written (clocks may differ by that much, too); a cell that comes later with an older timestamp is missed. Our own
batch writes and sinks are such writers: by default their cells have the time at which the job, or the micro-batch,
began. The lag must be longer than they take, or they write with ``hbase.spark.write.timestamp=server``. Versions
beyond what the family keeps, and what a delete hides, are seen until a (major) compaction removes them.

``maxRowsPerTrigger`` is a number of cells. What a range of time holds is known only by looking, so each batch first
reads the *keys* of all cells that are due and cuts at the timestamp that fits: exact, but what is left over is looked
at again for the next batch. Cells of one millisecond are never separated, so a batch is larger where one has more.

**Sink.** The cells of micro-batch N get the time that Spark wrote for it into the checkpoint before it ran
(:mod:`spark_connector.streaming.checkpoint`), or ``hbase.spark.write.timestamp`` + N. A batch that is run again, after
a failure or a restart, writes the same cells with the same timestamps: effectively once. With the servers' timestamps
it is at least once: a batch that is run again adds versions.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from metaclient.errors import ConfigError
from metaclient.model import LATEST_TIMESTAMP
from metaclient.runtime import ThreadRuntime
from metaclient.table import ALL_VERSIONS
from spark_connector import clients, lookup_counts
from spark_connector.planning import splits as planning
from spark_connector.planning.query import Query
from spark_connector.reading import split_reader as reading
from spark_connector.reading.tasks import read_in_task
from spark_connector.schema.layouts import Layout
from spark_connector.settings.option_values import WriteTimestamp
from spark_connector.streaming.checkpoint import BatchTime, batch_time
from spark_connector.writing.writer import HBaseWriter, WriteMessage

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow
except ImportError:  # before 4.2: no limits, and no end of what is available
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

__all__ = ["ChangesPartition", "HBaseStreamReader", "HBaseStreamWriter"]

_log = logging.getLogger(__name__)
_runtime = ThreadRuntime(name="spark-streaming")  # clock only; it starts no thread

#: The timestamps that a limit keeps in the driver's memory.
ROWS_PER_TRIGGER_MAX = 10_000_000
_KEYS_ONLY = b"KeyOnlyFilter()"
#: Spark tells a task the micro-batch that it belongs to (MicroBatchExecution.BATCH_ID_KEY).
_BATCH_ID = "streaming.sql.batchId"


class ChangesPartition(InputPartition):
    """The changes of one split between two instants."""

    def __init__(
        self, split: planning.TableSplit, start: int, end: int, planned: lookup_counts.Report | None = None
    ) -> None:
        super().__init__(split)
        self.start = start
        self.end = end
        self.planned = planned


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

    # -- offsets -------------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, int]:
        """Where a query begins that has no checkpoint yet."""
        given = self._query.options.starting_timestamp
        return {"ts": _runtime.time_ms() if given is None else given}

    def latestOffset(self, start: dict[str, int] | None = None, limit: Any = None) -> dict[str, int]:
        """Up to where the next batch reads. Spark before 4.2 calls it without arguments."""
        rows = getattr(limit, "max_rows", None)
        if rows is None and start is None and self._query.options.max_rows_per_trigger is not None:
            raise ConfigError(
                "option maxRowsPerTrigger needs Spark 4.2 or newer: before, Spark does not ask for limits"
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
        """What would be due without limits; shown in the query's progress."""
        return {"ts": _runtime.time_ms() - self._query.options.stream_lag_ms}

    def prepareForTriggerAvailableNow(self) -> None:
        """All that is due now, and nothing that comes later."""
        self._until = _runtime.time_ms() - self._query.options.stream_lag_ms

    def _fitting(self, start: int, due: int, rows: int) -> int:
        """The latest instant up to which there are at most that many cells; at least one millisecond is taken."""
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
        beyond = -earliest[0]  # the first cell that does not fit, and all of its millisecond, wait for the next batch
        first = -max(earliest)
        if beyond > first:
            return beyond
        _log.info("more than %d cells have timestamp %d: they are one batch", rows, first)
        return first + 1

    # -- batches -------------------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """One for each region, as they are now."""
        begin, stop = start["ts"], end["ts"]
        if stop <= begin:
            return []
        query = self._query
        with clients.lease(query.options) as connection:
            splits = planning.plan(connection, query)
        first, *rest = splits
        return [
            ChangesPartition(first, begin, stop, lookup_counts.planned()),
            *(ChangesPartition(split, begin, stop) for split in rest),
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task: the changes of one split."""
        if isinstance(partition, ChangesPartition):  # not Spark's own, for a batch without any
            yield from read_in_task(self._between(partition.start, partition.end), partition.value, partition.planned)

    def _between(self, start: int, end: int) -> Query:
        query = self._query
        return replace(query, options=replace(query.options, timerange_start=start, timerange_end=end))

    def commit(self, end: dict[str, int]) -> None:
        """Nothing is kept for a batch."""

    def stop(self) -> None:
        """Nothing runs between batches; clients close by age."""


# -- the sink --------------------------------------------------------------------------------------------------------


def HBaseStreamWriter(options: Options, schema: StructType, overwrite: bool, checkpoint: str | None = None) -> Any:
    """The sink of a stream; a clear error where Spark is too old for one that takes Arrow."""
    if DataSourceStreamArrowWriter is None:
        raise ConfigError("a stream into HBase needs Spark 4.1 or newer: use foreachBatch with spark_connector.write")
    return _StreamWriter(options, schema, overwrite, checkpoint)


class _Batch:
    """Which timestamps the cells of a micro-batch get; made on the driver, once for each batch."""

    def __init__(self, options: Options, checkpoint: str | None) -> None:
        given = options.write_timestamp
        self._base = given.ms
        self._is_servers = given.is_servers
        needs_time = given.ms is None and not given.is_servers
        self._time: BatchTime | None = batch_time(checkpoint) if needs_time else None

    @property
    def is_time(self) -> bool:
        """True where the timestamp says when the micro-batch began."""
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
    """The micro-batch that this task belongs to."""
    from pyspark import TaskContext

    context = TaskContext.get()
    known = context.getLocalProperty(_BATCH_ID) if context is not None else None
    if known is None:
        raise ConfigError(f"Spark does not tell this task its micro-batch ({_BATCH_ID}): a stream cannot be written")
    return int(known)


if DataSourceStreamArrowWriter is not None:

    class _StreamWriter(DataSourceStreamArrowWriter):
        """Made anew for each micro-batch; writes as :class:`HBaseWriter` does, with the batch's timestamp.

        In mode ``complete`` each batch puts the whole result; nothing is deleted, since no group of it ever goes away.
        """

        def __init__(self, options: Options, schema: StructType, overwrite: bool, checkpoint: str | None) -> None:
            self._batch = _Batch(options, checkpoint)
            given = options.write_timestamp
            # The batch's own timestamp is handed over with each call, as a job's is.
            plain = options if given.ms is None else replace(options, write_timestamp=WriteTimestamp())
            self._writer = HBaseWriter(plain, schema, overwrite=False)
            self._writer.is_stamped_by_time = self._batch.is_time and given.column is None

        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteMessage:
            return self._writer.write_at(iterator, self._batch.timestamp(_running_batch()))

        def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
            self._writer.stamp(self._batch.timestamp(batchId)).commit(messages)

        def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
            _log.warning("micro-batch %d failed; run again it writes the same cells", batchId)
            self._writer.stamp(self._batch.timestamp(batchId)).abort(messages)
