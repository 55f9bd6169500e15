"""Writes DataFrames: puts, deletes and increments, sent by the workers, prepared once on the driver.

1. ``HBaseWriter()`` runs on the driver: it checks schema and catalog, prepares the table (:mod:`.destination`), fixes
   *one timestamp for the job*, and reads the locations of the table's regions. The tasks get all of that by pickle.
2. A task sends its rows by :class:`~spark_connector.writing.sending.Sender`. Because the timestamp is the job's, a task
   that runs again, or twice at the same time (speculation), writes the same cells again: there is one version. Two rows
   of the DataFrame with one key write the same cells, and the result is undefined. With
   ``hbase.spark.write.timestamp=server`` each cell gets the time at which its server writes it; then a repeated task
   adds a version.
3. A repeated increment counts twice, and Spark repeats tasks. Therefore increments are refused unless
   ``hbase.spark.write.atleastonce=true`` accepts that.
4. A cell with the job's timestamp may become visible as late as the end of the job. A stream that reads the table
   (:mod:`.streaming`) waits ``hbase.spark.stream.lag.ms`` for such cells. A job that took longer than the default logs
   a warning.
5. Cells that are newer than the job's timestamp hide the written ones: the clock of a server, or of an earlier writer,
   was ahead of the driver's. Each task checks some of its rows for such cells (``hbase.spark.write.hidden``), and
   ``commit`` logs a warning with their number.
6. ``abort`` does not get from Spark what failed or killed tasks wrote. It logs the timestamp, by which the cells can be
   found.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from metaclient import keys
from metaclient.errors import ConfigError
from metaclient.model import LATEST_TIMESTAMP
from metaclient.runtime import ThreadRuntime
from metaclient.wording import counted
from spark_connector import clients, lookup_counts
from spark_connector.planning.location_map import Learner, LocationMap, ship_locations
from spark_connector.reading.batch_shape import arrow_schema
from spark_connector.reading.tasks import attempt_number, connected
from spark_connector.settings.options import Options
from spark_connector.writing import destination
from spark_connector.writing.hidden_cells import HiddenCheck
from spark_connector.writing.mutations import check_writable, pages_from_batch, rows_from_batch
from spark_connector.writing.sending import Sender

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from metaclient import Connection
    from spark_connector.schema.catalog import Catalog

__all__ = ["HBaseWriter", "WriteMessage"]

_log = logging.getLogger(__name__)
#: Clock only; it starts no thread.
_runtime = ThreadRuntime(name="spark-writer")
MB = 1 << 20
#: The time that a stream waits for late cells by default.
STREAM_LAG_MS = Options().stream_lag_ms
#: If most tasks write to more servers than this, the log advises spark_connector.repartition.
SERVERS_PER_TASK = 2


@dataclass(frozen=True)
class WriteMessage(WriterCommitMessage):
    """The numbers of rows, cells and bytes that one task has written."""

    partition: int
    attempt: int
    rows: int
    cells: int
    bytes: int
    batches: int
    retries: int
    servers: int
    checked: int = 0  # rows that were checked for newer cells
    hidden: int = 0  # written cells with a newer one


class HBaseWriter(DataSourceArrowWriter):
    """``df.write.format("hbase")``; created on the driver, pickled to the tasks and to the process that commits."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        options = options.resolved()
        clients.check_reachable(options.connection_url)
        self._options = options
        self._catalog: Catalog = options.catalog()
        self._table = self._catalog.table
        check_write(schema, self._catalog, options, overwrite=overwrite)
        self.timestamp = _timestamp_of(options)
        #: True if the timestamp is the time at which the write began.
        self.is_stamped_by_time = options.write_timestamp.is_job
        with clients.lease(options) as connection:
            destination.prepare(
                connection,
                self._table,
                self._catalog.families(),
                options,
                overwrite=overwrite,
                salt=self._catalog.salt,
                has_ttl=self._catalog.has_ttl,
            )
            self._locations = ship_locations(connection, self._table, options)
        self._planned = lookup_counts.planned()

    # -- in a task ---------------------------------------------------------------------------------------------------

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteMessage:
        """Write one partition."""
        return self.write_at(iterator, self.timestamp, hidden=self._options.write_hidden)

    def write_at(self, batches: Iterator[pa.RecordBatch], timestamp: int, *, hidden: str = "off") -> WriteMessage:
        """Write one partition with this timestamp; a stream has one per micro-batch.

        ``hidden`` is a value of ``hbase.spark.write.hidden``.
        """
        first = next(batches, None)
        if first is None:
            return _message(None)
        options, catalog = self._options, self._catalog
        with (
            connected(options, self._planned) as connection,
            sender_of(connection, self._locations, options) as sender,
        ):
            check = HiddenCheck(connection, catalog, options, timestamp, mode=hidden)
            for batch in chain([first], batches):
                check.take(batch)
                pages = pages_from_batch(batch, catalog, options, timestamp)
                if pages is not None:
                    for page in pages:
                        sender.extend_page(page)
                else:
                    sender.extend(rows_from_batch(batch, catalog, options, timestamp))
        message = replace(_message(sender), checked=check.rows, hidden=check.cells)
        _log.info("partition %d wrote %s", message.partition, _told([message]))
        return message

    def stamp(self, timestamp: int) -> HBaseWriter:
        """Set the timestamp, and return the writer."""
        self.timestamp = timestamp
        return self

    # -- on the driver, at the end -----------------------------------------------------------------------------------

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the sums of all tasks, which have succeeded."""
        done = [one for one in messages if isinstance(one, WriteMessage)]
        _log.info("wrote %s to table %s, timestamp %s", _told(done), keys.printable(self._table), self._stamp())
        self._warn_of_streams()
        self._warn_of_hidden(sum(one.hidden for one in done), sum(one.checked for one in done))
        scattered = [one for one in done if one.servers > SERVERS_PER_TASK]
        if 2 * len(scattered) > len(done):
            _log.info("most tasks wrote to several servers: spark_connector.repartition would make fewer calls")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log that a task has failed for good; the cells that tasks have written stay in the table."""
        done = [one for one in messages if isinstance(one, WriteMessage)]
        _log.error(
            "the write to table %s failed: %d of %d tasks had ended and wrote %s, others may have written in "
            "part; all cells of this job have timestamp %s%s",
            keys.printable(self._table),
            len(done),
            len(messages),
            _told(done),
            self._stamp(),
            self._advice_after_failure(),
        )

    def _advice_after_failure(self) -> str:
        """Return how to replace the cells of a failed job.

        A delete of a null hides all cells up to its timestamp, also a value that the job writes in a second run with
        the same timestamp.
        """
        if self._options.write_timestamp.is_servers:
            return ""
        if self._options.write_nulls == "delete":
            return (
                "; to replace them, write again with a later timestamp: with this one, a null that was deleted would "
                "hide a value that is written in its place"
            )
        return "; to replace them, write again with this timestamp as hbase.spark.write.timestamp"

    def _warn_of_streams(self) -> None:
        """Log a warning if the write took longer than streams of the table wait by default."""
        took_ms = _runtime.time_ms() - self.timestamp
        if self.is_stamped_by_time and took_ms > STREAM_LAG_MS:
            _log.warning(
                "the write to table %s took %d ms and all its cells have the timestamp of its beginning: a stream of "
                "the table (readStream.format('hbase')) has missed the late ones if its hbase.spark.stream.lag.ms is "
                "less than that. Set the lag higher, or write with hbase.spark.write.timestamp=server",
                keys.printable(self._table),
                took_ms,
            )

    def _warn_of_hidden(self, cells: int, rows: int) -> None:
        """Log a warning if reads do not return the written cells, because newer ones are there."""
        if cells:
            _log.warning(
                "%s of table %s in %s checked stay hidden: there are newer ones than timestamp %s. The clock of a "
                "server, or of the writer of these cells, is ahead of the driver's; or they were written meanwhile. "
                "Write with hbase.spark.write.timestamp=server, or with a later timestamp in milliseconds",
                counted(cells, "written cell"),
                keys.printable(self._table),
                counted(rows, "row"),
                self._stamp(),
            )

    def _stamp(self) -> str:
        given = self._options.write_timestamp
        if given.is_servers:
            return "of the servers"
        return f"of column {given.column}" if given.column is not None else str(self.timestamp)


def _timestamp_of(options: Options) -> int:
    """Return the timestamp of all cells that have none of their own."""
    given = options.write_timestamp
    if given.is_servers:
        return LATEST_TIMESTAMP
    return _runtime.time_ms() if given.ms is None else given.ms


def check_write(schema: StructType, catalog: Catalog, options: Options, *, overwrite: bool = False) -> None:
    """Raise ConfigError for a write that cannot work, or that needs an option to allow it."""
    check_writable(arrow_schema(schema), catalog, options)
    if options.write_operation == "increment" and not options.write_at_least_once:
        raise ConfigError(
            "increments are not idempotent: Spark runs a task again after a failure, and what it had added before "
            "would be added twice; accept that with hbase.spark.write.atleastonce=true, or add up in Spark and put "
            "the sums"
        )
    if overwrite and options.write_operation != "put":
        raise ConfigError(
            f"mode overwrite empties the table and then puts; with hbase.spark.write.operation="
            f"{options.write_operation} use mode append"
        )


def sender_of(connection: Connection, shipped: LocationMap, options: Options) -> Sender:
    """Return a sender to the table of a map, with the settings of the options; for use in a task."""
    learner = Learner(connection, shipped, attempt=attempt_number())
    return Sender(
        connection,
        shipped.table,
        learn=learner.learn,
        batch_rows=options.write_batch_rows,
        batch_bytes=options.write_batch_bytes,
        concurrency=options.write_concurrency,
        bytes_per_s=None if options.write_rate_mb is None else options.write_rate_mb * MB,
    )


def _message(sender: Sender | None) -> WriteMessage:
    from pyspark import TaskContext

    context = TaskContext.get()
    partition = context.partitionId() if context is not None else 0
    if sender is None:
        return WriteMessage(partition, attempt_number(), 0, 0, 0, 0, 0, 0)
    sent = sender.sent
    return WriteMessage(
        partition,
        attempt_number(),
        sent.rows,
        sent.cells,
        sent.bytes,
        sent.batches,
        sent.retries,
        len(sender.servers),
    )


def _told(messages: list[WriteMessage]) -> str:
    rows, cells, size, retries = (
        sum(getattr(one, name) for one in messages) for name in ("rows", "cells", "bytes", "retries")
    )
    return ", ".join(
        (
            counted(rows, "mutation"),
            counted(cells, "cell"),
            counted(size, "byte"),
            counted(retries, "retry", "retries"),
        )
    )
