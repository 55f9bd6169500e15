"""Reads one split by scans and multi-gets of the client, and yields record batches. Needs no Spark.

The client handles faults: it finds a region again that moved, split or lost its server, and continues the scan after
the last row. This module decides how a task gets the locations of its regions:

- ``hbase.spark.locations=ship``: they are in the split. A task that runs again does not use them, because they may be
  the reason of the first failure. It looks its regions up after a random pause: the death of a server fails many tasks
  at the same time, and their lookups must not reach hbase:meta all at once.
- ``lookup``: the task reads the locations of its range from hbase:meta, about ten regions per page, at the meta replica
  whose turn it is.

It also decides how cells are read: as Arrow arrays (``page_batches``) from a backend that has pages of cells, as rows
of Python objects (``row_batches``) from other backends and for rows in pieces. The batches have the same rows.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from typing import TYPE_CHECKING

from metaclient import Connection
from metaclient.backend import CellPage
from metaclient.columns.page_batches import batches_from_cells
from metaclient.columns.row_batches import batches_from_results
from metaclient.model import Consistency, RegionLocation, Result
from spark_connector import clients
from spark_connector.conditions.condition import evaluate
from spark_connector.planning.query import Query
from spark_connector.planning.splits import TableSplit
from spark_connector.reading.batch_shape import spark_shape
from spark_connector.schema.ranges import KeyRange, union

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_connector.conditions.condition import Expression

__all__ = ["RangeCount", "count_split", "get_rows", "learn_locations", "passing", "read_split", "results_of"]

#: Rows per page by default: at 100 bytes per row this is HBase's page size of 2 MB (happybase's default is 1000).
CACHING = 5000

Placed = tuple[Result, RegionLocation | None]
Rows = Generator[Placed, None, None]
Pages = Generator[tuple[CellPage, RegionLocation | None], None, None]
Batches = Generator["pa.RecordBatch", None, None]


@dataclass(frozen=True, slots=True)
class RangeCount:
    """The number of rows of a range, which was in one region when it was planned."""

    start: bytes
    stop: bytes
    rows: int


def read_split(
    connection: Connection, query: Query, split: TableSplit, *, attempt: int = 0
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a split as record batches of the query's schema; none for an empty split.

    The query's limit is a number of rows of the DataFrame: rows of HBase in the layouts ``columns`` and ``map``, cells
    in ``cells`` and ``raw``. It counts rows that pass the condition, and rows are never cut.

    ``attempt`` is Spark's number of this attempt of the task. Closing the iterator closes the server's scanner.
    """
    if query.limit == 0:
        return
    read = _read if query.exact is None else _tested
    with closing(read(connection, query, split, attempt)) as batches:
        yield from batches if query.limit is None else _first_rows_of(batches, query.limit)


def _first_rows_of(batches: Iterable[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    """Yield batches until they have ``limit`` rows; the last batch is cut."""
    left = limit
    for batch in batches:
        yield batch.slice(0, left)
        left -= batch.num_rows
        if left <= 0:
            return


def _tested(connection: Connection, query: Query, split: TableSplit, attempt: int) -> Batches:
    """Yield the rows that pass the condition, if Spark does not test it afterwards."""
    assert query.exact is not None
    with closing(_read(connection, query.limited(None), split, attempt)) as batches:
        for batch in batches:
            kept = batch.filter(passing(query.exact, batch)).select(query.schema.fieldNames())
            if kept.num_rows:
                yield kept


def passing(condition: Expression, batch: pa.RecordBatch) -> pa.BooleanArray:
    """Return True for each row of a batch for which the condition is true (not false, not unknown)."""
    import pyarrow as pa

    return pa.array([evaluate(condition, row) is True for row in batch.to_pylist()], pa.bool_())


def _read(connection: Connection, query: Query, split: TableSplit, attempt: int) -> Batches:
    """Yield the batches of a split, with the columns that the condition needs; read pages of cells if possible."""
    shape = spark_shape(query.catalog, query.read_schema, query.options)
    if not _has_cells(connection, query):
        with closing(results_of(connection, query, split, attempt=attempt)) as results:
            yield from batches_from_results(results, shape)
        return
    learn_locations(connection, query, split, attempt=attempt)
    with closing(_pages_of(connection, query, split)) as pages:
        yield from batches_from_cells(pages, shape)
    if split.points:
        with closing(get_rows(connection, query, split.points)) as found:
            yield from batches_from_results(_first_rows(found, query.limit), shape)


def _has_cells(connection: Connection, query: Query) -> bool:
    """Return True if the backend has pages of cells in Arrow, and this read can use them."""
    if not connection.capabilities.cell_pages or query.is_in_pieces:
        return False
    return find_spec("numpy") is not None


def count_split(connection: Connection, query: Query, split: TableSplit, *, attempt: int = 0) -> Iterator[RangeCount]:
    """Yield the number of rows of each range of a split; the servers send only the first key of each row."""
    counting = query.counting()
    learn_locations(connection, counting, split, attempt=attempt)
    for where in split.ranges:
        yield RangeCount(where.start, where.stop, _count_of(connection, counting, where))
    if split.points:
        found = sum(1 for _ in get_rows(connection, counting, split.points))
        yield RangeCount(split.points[0], split.points[-1] + b"\0", found)


def _count_of(connection: Connection, counting: Query, where: KeyRange) -> int:
    if _has_cells(connection, counting):
        with closing(_pages(connection, counting, where)) as pages:
            return sum(page.rows for page, _ in pages)
    with closing(_scanned(connection, counting, where)) as results:
        return sum(1 for _ in results)


def results_of(connection: Connection, query: Query, split: TableSplit, *, attempt: int = 0) -> Rows:
    """Yield the rows of a split and the location that each was read from: ranges first, then points, sorted by key.

    With ``hbase.spark.query.batchsize`` the pieces of a row follow each other. The query's limit is a number of rows of
    HBase in every layout, and the last row is complete.
    """
    learn_locations(connection, query, split, attempt=attempt)
    with closing(_all_of(connection, query, split)) as found:
        yield from _first_rows(found, query.limit)


def _first_rows(found: Iterable[Placed], limit: int | None) -> Rows:
    """Yield the results of the first ``limit`` rows, with all pieces of the last row."""
    rows, last = 0, None
    for placed in found:
        row = placed[0].row
        if row != last:
            if rows == limit:
                return
            rows, last = rows + 1, row
        yield placed


def _all_of(connection: Connection, query: Query, split: TableSplit) -> Rows:
    for where in union(split.ranges):  # adjacent regions are one scan
        yield from _scanned(connection, query, where)
    if split.points:
        yield from get_rows(connection, query, split.points)


def _caching(query: Query) -> int:
    """Return the number of rows per page; never more than the limit, which the server may not know."""
    if query.options.cached_rows is not None:
        return query.options.cached_rows
    return CACHING if query.limit is None else max(1, min(CACHING, query.limit))


def _max_staleness_s(connection: Connection, query: Query) -> float | None:
    """Return the limit of staleness of TIMELINE reads: the option, or the default of the connection."""
    if query.consistency is Consistency.STRONG:
        return None
    given_s = query.options.max_staleness_s
    return connection.config.max_staleness_s if given_s is None else given_s


def _scanned(connection: Connection, query: Query, where: KeyRange) -> Rows:
    scan = query.scan(where, _caching(query))
    scanner = connection.engine.scan_rows(
        query.table, scan, query.consistency, max_staleness_s=_max_staleness_s(connection, query)
    )
    yield from _projected(scanner, query)


def _projected(found: Iterable[Placed], query: Query) -> Rows:
    if query.kept is None:
        yield from found
        return
    for result, place in found:
        kept = query.kept.of_result(result)
        if kept is not None:
            yield kept, place


def _pages_of(connection: Connection, query: Query, split: TableSplit) -> Pages:
    """Yield the ranges of a split as pages of cells, in the order of keys, until the limit is reached."""
    left = query.limit
    for where in union(split.ranges):
        with closing(_pages(connection, query.limited(left), where)) as pages:
            for page, place in pages:
                yield page, place
                left = None if left is None else left - page.rows
                if left is not None and left <= 0:
                    return


def _pages(connection: Connection, query: Query, where: KeyRange) -> Pages:
    scan = query.scan(where, _caching(query))
    limit_s = _max_staleness_s(connection, query)
    for page, place in connection.engine.scan_cells(query.table, scan, query.consistency, max_staleness_s=limit_s):
        kept = page if query.kept is None else query.kept.of_page(page)
        if kept is not None:
            yield kept, place


def get_rows(connection: Connection, query: Query, points: Iterable[bytes]) -> Rows:
    """Yield the rows of these keys that exist, and the location that each was read from, by multi-gets."""
    rows = iter(points)
    limit_s = _max_staleness_s(connection, query)
    while some := list(islice(rows, query.options.bulkget_size)):
        gets = [query.get(row) for row in some]
        found = connection.engine.get_many(query.table, gets, query.consistency, max_staleness_s=limit_s)
        yield from _projected(((result, place) for result, place in found if result.cells), query)


# -- locations of regions --------------------------------------------------------------------------------------------


def learn_locations(connection: Connection, query: Query, split: TableSplit, *, attempt: int = 0) -> None:
    """Import the split's locations, or look its regions up; see the module's docstring."""
    if split.is_empty or clients.take_locations(connection, split.locations, attempt=attempt):
        return
    if query.options.locations == "lookup":
        for where in (*union(split.ranges), *(KeyRange.of_row(row) for row in split.points)):
            _look_up(connection, query.table, where)


def _look_up(connection: Connection, table: bytes, where: KeyRange) -> None:
    """Look up all regions of a range, from its end to its start, because pages of hbase:meta are read backwards."""
    engine = connection.engine
    deadline = engine.operations.deadline(table)
    at, is_first = where.stop, True
    while True:
        entry = engine.locate_region_before(table, at, deadline, reload=is_first)
        at, is_first = entry.region.start_key, False
        if at <= where.start:
            return
