"""Groups the rows of a page that have the same columns, so that they can be read without a Result per row.

Most rows of a table have the same columns. A reader that needs only keys and values (``Table.scan``) takes them from
:class:`AlikeRows`, whose values are unpacked when they are read. For all other readers a page is a sequence of results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any, overload

from metaclient.model import PutCells, Result

__all__ = ["AlikeRows", "RowRuns"]

_new = tuple.__new__


class _Results(Sequence[Result]):
    """A sequence of results that is equal to a list or tuple of the same results."""

    __slots__ = ()

    @overload
    def __getitem__(self, index: int) -> Result: ...

    @overload
    def __getitem__(self, index: slice) -> list[Result]: ...

    def __getitem__(self, index: int | slice) -> Result | list[Result]:
        return list(self)[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Results | list | tuple) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # equal to a list, which has no hash

    def __repr__(self) -> str:
        return repr(list(self))


class AlikeRows(_Results):
    """Complete rows with the same columns; all cells are puts.

    ``values`` and ``timestamps`` begin a new iteration over the rows each time they are called, and return one tuple
    per row, in the order of ``columns``.

    >>> rows = AlikeRows([b"a", b"b"], (b"f:q",), lambda: iter([(b"1",), (b"2",)]), lambda: iter([(7,), (8,)]))
    >>> rows[1].row, rows[1].cells[0].value, rows[1].cells[0].timestamp
    (b'b', b'2', 8)
    """

    __slots__ = ("columns", "is_stale", "keys", "timestamps", "values")

    def __init__(
        self,
        keys: list[bytes],
        columns: tuple[bytes, ...],
        values: Callable[[], Iterator[tuple[Any, ...]]],
        timestamps: Callable[[], Iterator[tuple[Any, ...]]],
        *,
        is_stale: bool = False,
    ) -> None:
        self.keys = keys
        self.columns = columns
        self.values = values
        self.timestamps = timestamps
        self.is_stale = is_stale

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[Result]:
        cells = map(PutCells, repeat(self.columns), self.timestamps(), self.values())
        is_stale = self.is_stale
        for row, each in zip(self.keys, cells, strict=True):
            yield _new(Result, (row, each, is_stale, False, None, None))


class RowRuns(_Results):
    """The rows of a page, as runs of rows with the same columns and of other results.

    >>> rows = AlikeRows([b"a"], (b"f:q",), lambda: iter([(b"1",)]), lambda: iter([(7,)]))
    >>> page = RowRuns([rows, [Result(b"b")]])
    >>> len(page), [result.row for result in page]
    (2, [b'a', b'b'])
    """

    __slots__ = ("_count", "_decode", "_runs")

    def __init__(self, runs: list[AlikeRows | list[Result]]) -> None:
        self._runs = runs
        self._decode: Callable[[], list[AlikeRows | list[Result]]] | None = None
        self._count = sum(map(len, runs))

    @classmethod
    def undecoded(cls, count: int, decode: Callable[[], list[AlikeRows | list[Result]]]) -> RowRuns:
        """Return rows that ``decode`` decodes when they are first read; ``count`` is their number.

        So a scan can request the following page before it spends time on this one. An error of ``decode`` is raised to
        the first reader of the rows.

        >>> rows = RowRuns.undecoded(1, lambda: [[Result(b"a")]])
        >>> len(rows), [result.row for result in rows]
        (1, [b'a'])
        """
        made = cls([])
        made._count, made._decode = count, decode
        return made

    def decode(self) -> None:
        """Decode the rows now; without effect if they are decoded."""
        decode = self._decode
        if decode is not None:
            self._runs = decode()
            self._decode = None

    @property
    def runs(self) -> list[AlikeRows | list[Result]]:
        self.decode()
        return self._runs

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Result]:
        return chain.from_iterable(self.runs)

    @property
    def last_row(self) -> bytes:
        """The key of the last row; there must be one."""
        last = next(run for run in reversed(self.runs) if len(run))
        return last.keys[-1] if isinstance(last, AlikeRows) else last[-1].row
