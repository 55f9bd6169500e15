"""Structured Streaming: the source of changes from HBase's log (``hbase.spark.stream.source=wal``), over a spool.

HBase pushes changes and forgets them when they are answered; Spark pulls, and reads a batch again after a failure.
Between them stands a receiver with a spool (:mod:`metaclient.changes.receiver`):

- ``external``: ``metaclient changes receive`` runs on its own. Each executor reads the folder of the spool
  (``hbase.spark.stream.spool``), which must be mounted at the same path everywhere.
- ``driver``: the driver's Python process of the query receives, and its partitions carry the bytes of the calls: for
  small streams. The folder is on the driver's disk, and a query that is started again must find it there.

An offset is ``{"spool": ID, "workers": {NAME: [SEGMENT, BYTE]}}``. A batch between two offsets always has the same
rows. ``commit`` deletes the segments before an offset.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from metaclient.changes.spool import Position, Spool, SpoolError, SpoolSlice, read_calls
from metaclient.errors import ConfigError
from spark_connector.streaming.change_layouts import change_batches, change_schema, with_change_layout
from spark_connector.streaming.driver_receiver import DriverReceiver

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, SupportsTriggerAvailableNow
except ImportError:  # before 4.2: no read limits, and no Trigger.AvailableNow
    SupportsTriggerAvailableNow = object  # type: ignore[assignment,misc]  # a base class that adds nothing

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from spark_connector.settings.options import Options

__all__ = ["ChangeStreamReader", "SpoolPartition"]

#: The most bytes of a spool that one task reads.
_TASK_BYTES = 32 << 20
#: The default of maxBytesPerTrigger if the driver receives: partitions carry so many bytes through the driver.
_DRIVER_BYTES = 16 << 20


class SpoolPartition(InputPartition):
    """Calls of a spool: where they are, and their bytes if the driver sends them."""

    def __init__(self, part: SpoolSlice, data: bytes | None = None) -> None:
        super().__init__(part)
        self.data = data


class ChangeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """``spark.readStream.format("hbase").option("hbase.spark.stream.source", "wal")``; see the module's docstring."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options = with_change_layout(options)
        wanted = change_schema(options)
        if schema != wanted:
            raise ConfigError(
                f"a stream of changes has the columns {wanted.simpleString()}: leave .schema(...) out and select later"
            )
        self._table = options.catalog().table
        self._is_received_here = _is_received_here(options)
        if self._is_received_here and options.connection_url.partition(":")[0] != "hbase":
            raise ConfigError(
                "the driver receives changes from hbase:// only: connect so, or start `metaclient changes receive` and "
                "give hbase.spark.stream.spool"
            )
        self._folder = _folder(options)
        self._until: dict[str, Position] | None = None  # of Trigger.AvailableNow
        self._opened: Spool | None = None
        self._receiver: DriverReceiver | None = None

    # -- offsets -------------------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Return the start of a query that has no checkpoint: everything that is in the spool."""
        return self._document({})

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        """Return the end of the next batch. Spark before 4.2 calls it without arguments."""
        bytes_max = getattr(limit, "max_bytes", None)
        if bytes_max is None and start is None and self._options.max_bytes_per_trigger is not None:
            raise ConfigError(
                "option maxBytesPerTrigger needs Spark 4.2 or newer: older versions do not support read limits"
            )
        begin = self._positions(start) if start is not None else {}
        end = self._end() if self._until is None else self._until
        if bytes_max is not None:
            end = self._spool().limit(begin, end, bytes_max)
        return self._document({**begin, **end})

    def getDefaultReadLimit(self) -> Any:
        given = self._options.max_bytes_per_trigger
        if given is None and self._is_received_here:
            given = _DRIVER_BYTES
        return ReadAllAvailable() if given is None else ReadMaxBytes(given)

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the end of the spool; Spark shows it in the query's progress."""
        return self._document(self._end())

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the query at what is in the spool now."""
        self._until = self._end()

    def _end(self) -> dict[str, Position]:
        spool = self._spool()
        if self._receiver is not None:
            self._receiver.check()
        return spool.end()

    def _document(self, positions: Mapping[str, Position]) -> dict[str, Any]:
        return {"spool": self._spool().id, "workers": {name: list(positions[name]) for name in sorted(positions)}}

    def _positions(self, offset: Mapping[str, Any]) -> dict[str, Position]:
        """Return the positions of an offset; SpoolError if it belongs to another spool."""
        spool = self._spool()
        if offset.get("spool") != spool.id:
            raise SpoolError(
                f"the checkpoint belongs to another spool than {spool.folder} (id {offset.get('spool')!r}, not "
                f"{spool.id!r}): changes between the two may be missing. Restore the folder, or begin with a new "
                "checkpoint and read the table once"
            )
        return {name: Position(*position) for name, position in offset["workers"].items()}

    # -- batches -------------------------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return a partition per worker, segment and 32 MB."""
        spool = self._spool()
        parts = spool.slices(self._positions(start), self._positions(end))
        pieces = [piece for part in parts for piece in spool.cut(part, _TASK_BYTES)]
        return [SpoolPartition(piece, spool.copy(piece) if self._is_received_here else None) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the changes of one partition, in a task."""
        if not isinstance(partition, SpoolPartition):  # Spark passes its own partition for an empty batch
            return
        part: SpoolSlice = partition.value
        if partition.data is None:
            calls = Spool(self._folder).read(part)
        else:
            calls = read_calls(io.BytesIO(partition.data), part)
        yield from change_batches(calls, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Delete the segments that end before the offset: Spark reads them no more."""
        self._spool().commit(self._positions(end))

    def stop(self) -> None:
        """End the receiver, if this process has one."""
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.close()

    # -- the spool -----------------------------------------------------------------------------------------------------

    def _spool(self) -> Spool:
        """Return the spool; the first call starts the receiver if it is the driver's."""
        if self._opened is None:
            if self._is_received_here and self._receiver is None:
                self._receiver = DriverReceiver(self._options, _name(self._options), self._table, self._folder)
            self._opened = Spool(self._folder)
            if self._table not in self._opened.tables:
                known = ", ".join(repr(table) for table in self._opened.tables)
                raise ConfigError(f"the spool {self._folder} has no changes of table {self._table!r}, only of {known}")
        return self._opened


def _is_received_here(options: Options) -> bool:
    if options.stream_receiver == "external" and options.stream_spool is None:
        raise ConfigError(
            "option hbase.spark.stream.receiver=external needs hbase.spark.stream.spool, which is missing"
        )
    is_here = options.stream_receiver == "driver" or (
        options.stream_receiver == "auto" and options.stream_spool is None
    )
    given = options.stream_name or options.stream_host or options.stream_port
    if given and not is_here:
        raise ConfigError(
            "options hbase.spark.stream.name, .host and .port are for hbase.spark.stream.receiver=driver: an external "
            "receiver has them in its command"
        )
    return is_here


def _name(options: Options) -> str:
    if options.stream_name is not None:
        return options.stream_name
    table = options.catalog().table.decode("latin-1")
    return "spark-" + re.sub(r"[^A-Za-z0-9_.]", "_", table)[:50]


def _folder(options: Options) -> Path:
    """Return the folder of the spool; by default one per subscription below the user's state folder."""
    if options.stream_spool is not None:
        return Path(options.stream_spool)
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "metaclient" / "spools" / _name(options)
