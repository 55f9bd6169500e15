"""One task of Spark: the worker's client, the attempt number, and the report of meta lookups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from spark_connector import clients, lookup_counts
from spark_connector.reading import split_reader as reading

if TYPE_CHECKING:
    import pyarrow as pa

    from metaclient import Connection
    from spark_connector.planning.query import Query
    from spark_connector.planning.splits import TableSplit
    from spark_connector.settings.options import Options

__all__ = ["attempt_number", "connected", "read_in_task"]


def attempt_number() -> int:
    """Return Spark's number of this attempt of the task: 0, then 1 after a failure; 0 outside of a task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.attemptNumber() if context is not None else 0


@contextmanager
def connected(options: Options, planned: lookup_counts.Report | None = None) -> Iterator[Connection]:
    """Yield this worker's client, and report the lookups of this process to the driver at the end.

    ``planned`` is the result of ``lookup_counts.planned()`` in the planning process; one task of a job carries it.
    """
    try:
        with clients.lease(options) as connection:
            yield connection
    finally:
        lookup_counts.report(_collector() if options.counts_lookups else None, planned)
        clients.settle_worker(options)  # by now all modules that tasks need are imported


def _collector() -> str | None:
    """Return the address for reports: Spark passes the session's configuration to tasks as local properties."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.getLocalProperty(lookup_counts.CONF) if context is not None else None


def read_in_task(
    query: Query, split: TableSplit, planned: lookup_counts.Report | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of a split, read by this worker's client."""
    with connected(query.options, planned) as connection:
        yield from reading.read_split(connection, query, split, attempt=attempt_number())
