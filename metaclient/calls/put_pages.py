"""Writes pages of puts: the whole page at once if the backend supports it, and row by row otherwise or after an error.

Pages are for writers of very many rows, few of which fail. The first attempt writes the whole page. After any error (a
region has moved, a row is too big), :func:`metaclient.calls.multi.batch` writes the rows again, with the configured
retries, and determines which of them cannot be written. A put may be written twice.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from metaclient import keys
from metaclient.backend import PutPage, PutPageBackend
from metaclient.calls import multi
from metaclient.calls.operations import Operations
from metaclient.errors import Disposition, MetaClientError
from metaclient.model import RegionLocation

if TYPE_CHECKING:
    import pyarrow

__all__ = ["PageRows", "put_page"]


class PageRows:
    """The rows of a page as a sequence for binary search; only the rows that are read become Python bytes."""

    def __init__(self, rows: pyarrow.LargeBinaryArray) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> bytes:
        row: bytes = self._rows[index].as_py()
        return row


def put_page(operations: Operations, table: bytes, page: PutPage) -> dict[bytes, MetaClientError]:
    """Write a page whose rows are sorted; return the rows that could not be written, with their errors.

    Raises only when the connection is unusable.
    """
    if not len(page):
        return {}
    deadline = operations.deadline(table)
    backend = operations.backend
    if not (backend.capabilities.put_pages and isinstance(backend, PutPageBackend)):
        return _by_rows(operations, table, page, deadline)
    begun = operations.runtime.now()
    try:
        _at_once(operations, backend, table, page, deadline)
    except MetaClientError as error:
        if error.ends_connection:
            raise
        first = error
    else:
        operations.retrier.budget.on_success()
        return {}
    if first.disposition is Disposition.FATAL:  # perhaps the error of a single row: find out which
        return _by_rows(operations, table, page, deadline, first)
    try:
        return operations.retrier.resume(
            first,
            lambda: _by_rows(operations, table, page, deadline, first),
            begun=begun,
            deadline=deadline,
            what=lambda: f"{len(page)} puts on table '{keys.printable(table)}'",
            on_failure=operations.learner(table, deadline),
        )
    except MetaClientError as error:
        if error.ends_connection:
            raise
        return dict.fromkeys(page.rows.to_pylist(), error)


def _at_once(operations: Operations, backend: PutPageBackend, table: bytes, page: PutPage, deadline: float) -> None:
    """Write the page with one call per run of neighbouring rows on one server; usually there is one call."""
    begin = 0
    for server, run in groupby(_places(operations, table, page, deadline), key=lambda one: one[0] and one[0].server):
        places = list(run)
        end = begin + sum(rows for _, rows in places)
        until = min(deadline, operations.runtime.now() + operations.config.rpc_write_timeout_s)
        try:
            operations.executor.call(
                backend.put_page, server, table, page.part(begin, end), places, deadline=until, is_write=True
            )
        except MetaClientError as error:
            if error.place is None:
                error.place = places[0][0]
            if begin or not error.precedes_execution:
                error.may_have_applied = True  # one error for all rows: some rows may be written
            raise
        begin = end
        if server is not None:
            operations.hedging.answered(server)
        for place, _ in places:
            operations.locator.confirm(place)


def _places(
    operations: Operations, table: bytes, page: PutPage, deadline: float
) -> list[tuple[RegionLocation | None, int]]:
    """Return the locations of the rows and the number of rows at each; one cache lookup per region."""
    rows = PageRows(page.rows)
    found: list[tuple[RegionLocation | None, int]] = []
    begin = 0
    while begin < len(rows):
        place = operations.place(table, rows[begin], deadline)
        end = keys.count_before_end(rows, b"" if place is None else place.region.end_key, begin)
        found.append((place, end - begin))
        begin = end
    return found


def _by_rows(
    operations: Operations, table: bytes, page: PutPage, deadline: float, before: MetaClientError | None = None
) -> dict[bytes, MetaClientError]:
    """Write the rows with an outcome per row. ``before`` is the error of the page, which may be partly applied."""
    puts = page.puts()
    failed: dict[bytes, MetaClientError] = {}
    for put, outcome in zip(puts, multi.batch(operations, table, puts, deadline), strict=True):
        if isinstance(outcome, MetaClientError):
            outcome.may_have_applied = outcome.may_have_applied or (before is not None and before.may_have_applied)
            failed[put.row] = outcome
    return failed
