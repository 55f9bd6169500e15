"""Counts written cells that stay hidden, because HBase has newer cells of the same row and column.

All cells of a job have one timestamp, the driver's time at its start. If the clock of a region server is ahead, and an
earlier writer let the server set its timestamps, these cells are newer: a read returns them, and the written ones are
not seen. HBase accepts such a put without an error.

The check is a multi-get of the cells after the job's timestamp, without their values. Store files that have no newer
cell are not read for it. ``hbase.spark.write.hidden`` is ``sample`` (the first :data:`SAMPLE_ROWS` rows of each task),
``count`` (all rows: one get per written row) or ``off``.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING

from metaclient.columns.layouts import Layout
from metaclient.errors import MetaClientError
from metaclient.keys import printable
from metaclient.model import Consistency, Get
from spark_connector.writing.mutations import row_keys_of

if TYPE_CHECKING:
    import pyarrow as pa

    from metaclient import Connection
    from spark_connector.schema.catalog import Catalog
    from spark_connector.settings.options import Options

__all__ = ["SAMPLE_ROWS", "HiddenCheck"]

_log = logging.getLogger(__name__)
#: Rows per task that are checked by default.
SAMPLE_ROWS = 100
_KEYS_ONLY = b"KeyOnlyFilter()"


class HiddenCheck:
    """Checks the rows of one task; ``rows`` is the number of rows checked, ``cells`` that of newer cells."""

    def __init__(
        self, connection: Connection, catalog: Catalog, options: Options, timestamp: int, *, mode: str
    ) -> None:
        self._connection = connection
        self._catalog = catalog
        self._timestamp = timestamp
        self._gets = options.bulkget_size
        given = options.write_timestamp
        is_one = given.column is None and not given.is_servers
        is_put = options.write_operation == "put" and options.layout is Layout.COLUMNS
        limits = {"off": 0, "sample": SAMPLE_ROWS, "count": None}
        self._left = limits[mode] if is_one and is_put else 0  # rows; None: all
        self.rows = 0
        self.cells = 0

    def take(self, batch: pa.RecordBatch) -> None:
        """Check the rows of a batch that is written."""
        if self._left == 0:
            return
        batch = batch if self._left is None else batch.slice(0, self._left)
        names = [name for name in batch.schema.names if name in self._catalog.names]
        by_part = {self._catalog.field(name): name for name in names}
        keys = row_keys_of([batch.column(by_part[part]) for part in self._catalog.key], self._catalog)
        rows = iter(sorted({key for key in keys if key is not None}))  # the write itself refuses rows without a key
        columns = self._catalog.cells_of(names)
        while some := list(islice(rows, self._gets)):
            self._ask([Get(row, columns, min_timestamp=self._timestamp + 1, filter=_KEYS_ONLY) for row in some])
        if self._left:
            self._left -= batch.num_rows

    def _ask(self, gets: list[Get]) -> None:
        try:
            found = list(self._connection.engine.get_many(self._catalog.table, gets, Consistency.STRONG))
        except MetaClientError as error:  # the write goes on: it has retries and an error of its own
            _log.info("rows of table %s are not checked for newer cells: %s", printable(self._catalog.table), error)
            self._left = 0
            return
        self.rows += len(gets)
        self.cells += sum(len(result.cells) for result, _ in found)
