"""Counts the rows of a scan whose rows may be returned in pieces (``Scan.batch``)."""

from __future__ import annotations

from collections.abc import Sequence

from metaclient.model import Result, Scan

__all__ = ["RowLimit", "row_limit"]


class RowLimit:
    """The number of rows that a scan may still return. The pieces of a row count once.

    A row ends with a piece that is not partial, or when another row begins: a server marks a piece as partial when more
    pieces *may* follow (RSRpcServices of HBase 2.6.1 counts the same way).

    >>> limit = RowLimit(1)
    >>> limit.take([Result(b"a", (), is_partial=True), Result(b"b")])
    [Result(row=b'a', cells=(), is_stale=False, is_partial=True, lag_s=None, exists=None)]
    >>> limit.left
    0
    """

    __slots__ = ("_begun", "left")

    def __init__(self, rows: int) -> None:
        self.left = rows
        self._begun: bytes | None = None  # the row whose last piece was partial

    @property
    def is_reached(self) -> bool:
        """True when no other row may be returned: the last row has ended, or has begun."""
        return self.left <= (self._begun is not None)

    def take_all(self, rows: int) -> bool:
        """Count this many whole rows and return True if all of them are within the limit; else return False."""
        if self._begun is not None or rows > self.left:
            return False
        self.left -= rows
        return True

    def take(self, results: Sequence[Result]) -> list[Result]:
        """Return the results that are within the limit, and count them."""
        taken: list[Result] = []
        for result in results:
            if self._begun is not None and result.row != self._begun:
                self.left -= 1
                self._begun = None
            if self.left <= 0:
                break
            taken.append(result)
            self._begun = result.row if result.is_partial else None
            self.left -= not result.is_partial
        return taken


def row_limit(scan: Scan) -> RowLimit | None:
    """Return the limit of ``scan``; None when the scan has no limit."""
    return None if scan.limit is None else RowLimit(scan.limit)
