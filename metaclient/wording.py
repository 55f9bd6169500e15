"""Texts for people: a number with its noun, and tables in plain text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = ["Version", "counted", "text_table"]


class Version(str):
    """A version as text that is ordered by its numbers, also beside a plain text.

    >>> Version("0.10.0") > "0.9", Version("0.10.0") < "1.3.0", Version("0.10.0") == "0.10.0"
    (True, True, True)
    """

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return _numbers(self) < _numbers(other)

    def __le__(self, other: str) -> bool:
        return _numbers(self) <= _numbers(other)

    def __gt__(self, other: str) -> bool:
        return not self <= other

    def __ge__(self, other: str) -> bool:
        return not self < other


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return the count with its noun; ``plural`` is for nouns whose plural is not formed with an s.

    >>> counted(1, "row"), counted(0, "row"), counted(2, "copy", "copies")
    ('1 row', '0 rows', '2 copies')
    """
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def text_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return the lines of a table in plain text; numbers are aligned to the right.

    >>> print("\\n".join(text_table(("counter", "rows"), [("GOODROWS", 3), ("BAD", 10)])))
    counter   rows
    GOODROWS     3
    BAD         10
    """
    lines = [tuple(header), *(tuple(row) for row in rows)]
    widths = [max(len(str(cell)) for cell in column) for column in zip(*lines, strict=True)]
    return ["  ".join(map(_aligned, line, widths)).rstrip() for line in lines]


def _aligned(cell: object, width: int) -> str:
    return str(cell).rjust(width) if isinstance(cell, int) else str(cell).ljust(width)
