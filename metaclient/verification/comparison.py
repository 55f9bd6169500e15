"""Compares two sides of a table row by row, in the order of keys; pure functions over the results of scans.

>>> from metaclient.model import Cell
>>> row = lambda key, value: Result(key, (Cell(b"cf:a", 1, value),))
>>> [(found.verdict.name, found.row) for found in merged(
...     [row(b"a", b"1"), row(b"b", b"2"), row(b"c", b"3")],
...     [row(b"b", b"2"), row(b"c", b"4"), row(b"d", b"5")],
... )]
[('ONLY_IN_SOURCE', b'a'), ('GOODROWS', b'b'), ('CONTENT_DIFFERENT', b'c'), ('ONLY_IN_PEER', b'd')]
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from metaclient.model import Cell, Result

__all__ = ["Block", "Compared", "RowVerdict", "blocks", "digest_of", "judged", "merged", "whole_rows"]


class RowVerdict(enum.Enum):
    """VerifyReplication's counters; ``BADROWS`` is the sum of the last three."""

    GOODROWS = "GOODROWS"
    ONLY_IN_SOURCE = "ONLY_IN_SOURCE_TABLE_ROWS"
    ONLY_IN_PEER = "ONLY_IN_PEER_TABLE_ROWS"
    CONTENT_DIFFERENT = "CONTENT_DIFFERENT_ROWS"


class Compared(NamedTuple):
    """A row and the verdict of its comparison."""

    verdict: RowVerdict
    row: bytes


def whole_rows(results: Iterable[Result]) -> Iterator[Result]:
    """Yield whole rows: pieces of one row are joined, and rows without cells are left out."""
    row: bytes | None = None
    cells: list[Cell] = []
    for result in results:
        if result.row != row:
            if row is not None and cells:
                yield Result(row, cells)
            row, cells = result.row, []
        cells += result.cells
    if row is not None and cells:
        yield Result(row, cells)


def judged(source: Result | None, peer: Result | None) -> RowVerdict:
    """Return the verdict on one row: it is equal if all cells are, with timestamps and types; tags are ignored."""
    if source is None or not source.cells:
        return RowVerdict.ONLY_IN_PEER
    if peer is None or not peer.cells:
        return RowVerdict.ONLY_IN_SOURCE
    return RowVerdict.GOODROWS if list(source.cells) == list(peer.cells) else RowVerdict.CONTENT_DIFFERENT


def merged(source: Iterable[Result], peer: Iterable[Result]) -> Iterator[Compared]:
    """Yield the verdict on each row of two sorted sides; each side is read once, in order, and not buffered."""
    left, right = whole_rows(source), whole_rows(peer)
    one, other = next(left, None), next(right, None)
    while one is not None or other is not None:
        if other is None or (one is not None and one.row < other.row):
            assert one is not None
            yield Compared(RowVerdict.ONLY_IN_SOURCE, one.row)
            one = next(left, None)
        elif one is None or other.row < one.row:
            yield Compared(RowVerdict.ONLY_IN_PEER, other.row)
            other = next(right, None)
        else:
            yield Compared(judged(one, other), one.row)
            one, other = next(left, None), next(right, None)


# -- blocks, as in HashTable and SyncTable ---------------------------------------------------------------------------


class Block(NamedTuple):
    """A range of rows of one side: its ends, the number of its rows, and a digest of their cells."""

    start: bytes
    stop: bytes
    rows: int
    digest: bytes


_lengths = Struct(">IIqBI")
_row_length = Struct(">I")


def digest_of(results: Iterable[Result]) -> tuple[int, bytes]:
    """Return the number of rows, and a 128-bit digest of everything that :func:`judged` compares."""
    digest = hashlib.blake2b(digest_size=16)
    rows = 0
    for result in whole_rows(results):
        rows += 1
        _add(digest, result)
    return rows, digest.digest()


def _add(digest: hashlib.blake2b, result: Result) -> None:
    parts = [_row_length.pack(len(result.row)), result.row]
    for cell in result.cells:
        head = _lengths.pack(len(result.cells), len(cell.column), cell.timestamp, int(cell.type), len(cell.value))
        parts += (head, cell.column, cell.value)
    digest.update(b"".join(parts))


def blocks(results: Iterable[Result], start: bytes, stop: bytes, rows_max: int) -> Iterator[Block]:
    """Yield blocks of at most ``rows_max`` rows whose ranges together cover ``[start, stop)`` without gaps."""
    digest = hashlib.blake2b(digest_size=16)
    rows = 0
    for result in whole_rows(results):
        if rows == rows_max:
            yield Block(start, result.row, rows, digest.digest())
            start, rows, digest = result.row, 0, hashlib.blake2b(digest_size=16)
        rows += 1
        _add(digest, result)
    yield Block(start, stop, rows, digest.digest())
