"""Gets that differ only in their rows, and their answers, without an object per row.

A read of many rows makes millions of them. A backend that takes the keys of :class:`GetActions` at once, and answers
:class:`FoundRows`, makes no object per row. For all other backends and callers these classes are plain sequences of
gets, actions and results, which are made when they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar, overload

from metaclient.backend import Action
from metaclient.model import Get, RegionLocation, Result
from metaclient.row_runs import RowRuns

__all__ = ["FoundRows", "GetActions", "Gets", "PlacedRows"]

T = TypeVar("T")


class _Made(Sequence[T]):
    """A sequence whose items are made when the first of them is read."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: list[T] | None = None

    def _make(self) -> Iterable[T]:
        raise NotImplementedError

    @property
    def items(self) -> list[T]:
        """All items as a list."""
        if self._items is None:
            self._items = list(self._make())
        return self._items

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> list[T]: ...

    def __getitem__(self, index: int | slice) -> T | list[T]:
        return self.items[index]

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Made | list | tuple) and self.items == list(other)

    __hash__ = None  # type: ignore[assignment]  # equal to a list, which has no hash

    def __repr__(self) -> str:
        return repr(self.items)


def _gets_like(like: Get, rows: Iterable[bytes]) -> list[Get]:
    options = like.columns, like.max_versions, like.min_timestamp, like.max_timestamp, like.filter, like.existence_only
    return [Get(row, *options) for row in rows]


class Gets(_Made[Get]):
    """Gets of ``rows`` that have the options of ``like``, a get of the row ``b""``.

    >>> Gets([b"a", b"b"], Get(b"", (b"f",)))[1].row
    b'b'
    """

    __slots__ = ("like", "rows")

    def __init__(self, rows: list[bytes], like: Get) -> None:
        super().__init__()
        self.rows = rows
        self.like = like

    def __len__(self) -> int:
        return len(self.rows)

    def _make(self) -> Iterable[Get]:
        return _gets_like(self.like, self.rows)


class GetActions(_Made[Action]):
    """The gets of one call. ``places`` are their locations, each with the number of its rows, in the order of rows.

    >>> [(action.place, action.operation.row) for action in GetActions([b"a", b"b"], Get(b""), [(None, 2)])]
    [(None, b'a'), (None, b'b')]
    """

    __slots__ = ("like", "places", "rows")

    def __init__(self, rows: list[bytes], like: Get, places: Sequence[tuple[RegionLocation | None, int]]) -> None:
        super().__init__()
        self.rows = rows
        self.like = like
        self.places = places

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def has_different_regions(self) -> bool:
        """True if no two of ``places`` are of the same region, as when a region was opened again meanwhile."""
        return len({place.region_name if place is not None else b"" for place, _ in self.places}) == len(self.places)

    def _make(self) -> Iterable[Action]:
        places = [place for place, count in self.places for _ in range(count)]
        return map(Action, places, _gets_like(self.like, self.rows))


class FoundRows(_Made[Result]):
    """The results of the gets of ``rows``: the rows that exist as runs, with their indexes among ``rows``.

    ``indexes`` None: ``runs`` have a result for each row, also for those that do not exist.

    >>> from metaclient.row_runs import AlikeRows
    >>> runs = RowRuns([AlikeRows([b"b"], (b"f:q",), lambda: iter([(b"1",)]), lambda: iter([(7,)]))])
    >>> [len(result.cells) for result in FoundRows([b"a", b"b"], runs, [1])]
    [0, 1]
    """

    __slots__ = ("indexes", "rows", "runs")

    def __init__(self, rows: list[bytes], runs: RowRuns, indexes: list[int] | None = None) -> None:
        super().__init__()
        self.rows = rows
        self.runs = runs
        self.indexes = indexes

    def __len__(self) -> int:
        return len(self.rows)

    def _make(self) -> Iterable[Result]:
        if self.indexes is None:
            return self.runs
        made = [Result(row) for row in self.rows]
        for index, result in zip(self.indexes, self.runs, strict=True):
            made[index] = result
        return made


class PlacedRows(_Made[tuple[Result, "RegionLocation | None"]]):
    """The results of many gets with their locations, by the calls that answered them.

    ``parts`` are, for each call, the indexes of its gets, their locations and their results. Each get is in one part.
    """

    __slots__ = ("_count", "parts")

    def __init__(self, count: int, parts: Sequence[tuple[list[int], list[RegionLocation | None], FoundRows]]) -> None:
        super().__init__()
        self._count = count
        self.parts = parts

    def __len__(self) -> int:
        return self._count

    def _make(self) -> Iterable[tuple[Result, RegionLocation | None]]:
        made: dict[int, tuple[Result, RegionLocation | None]] = {}
        for indexes, places, found in self.parts:
            made.update(zip(indexes, zip(found, places, strict=True), strict=True))
        return [made[index] for index in range(self._count)]
