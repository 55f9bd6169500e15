"""Rows that come in pieces (``Scan.batch``), on every backend: also where a piece is marked as partial and is the last.

HBase marks a full piece as partial when anything is stored behind it, seen by a reader or not.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

import metaclient
from metaclient import Connection
from metaclient.backend import ScanPage
from metaclient.errors import ScannerLost
from metaclient.model import Cell, CellType, Consistency, Delete, Put, Result, Scan
from metaclient.row_limit import RowLimit
from metaclient.scanner import TableScanner
from metaclient_fake import FakeCluster

TABLE = b"pieces"
BACKENDS = ["fake", "thrift2", "thrift1", "native"]
#: Before a scanner is opened again.
QUICK = {"hbase.client.pause": "1"}
#: Every row is two columns to a reader. Behind them are: nothing, an older version, a deleted column.
ROWS = (b"r1", b"r2", b"r3", b"r4")


@pytest.fixture(scope="module")
def connections() -> Iterator[Mapping[str, Connection]]:
    with FakeCluster(servers=1) as cluster:
        cluster.serve(thrift1_port=0, thrift2_port=0, rpc_port=0)
        with (
            cluster.connect(config=QUICK) as fake,
            metaclient.connect(f"thrift1://127.0.0.1:{cluster.thrift1_port}", config=QUICK) as thrift1,
            metaclient.connect(f"thrift2://127.0.0.1:{cluster.thrift2_port}", config=QUICK) as thrift2,
            metaclient.connect(f"hbase+rpc://127.0.0.1:{cluster.rpc_port}", config=QUICK) as native,
        ):
            fake.create_table(TABLE, {"a": {"max_versions": 3}})
            write = fake.engine.operations.mutate
            for row in ROWS:
                write(TABLE, Put(row, (Cell(b"a:p", 5, b"1"), Cell(b"a:q", 5, b"2"))))
            write(TABLE, Put(b"r2", (Cell(b"a:q", 4, b"old"),)))
            write(TABLE, Put(b"r3", (Cell(b"a:z", 5, b"gone"),)))
            write(TABLE, Delete(b"r3", (Cell(b"a:z", 5, b"", CellType.DELETE_COLUMN),)))
            yield {"fake": fake, "thrift1": thrift1, "thrift2": thrift2, "native": native}


def scanned(
    connection: Connection, scan: Scan, after_each: Callable[[TableScanner], None] | None = None
) -> list[Result]:
    scanner = TableScanner(connection.engine.operations, TABLE, scan, Consistency.STRONG, None)
    found: list[Result] = []
    for result, _ in scanner:
        found.append(result)
        assert len(found) < 100, "a scan without end"
        if after_each is not None:
            after_each(scanner)
    return found


def lose(scanner: TableScanner) -> None:
    """Close the scanner on the server: the client finds out at its next call."""
    if scanner._scanner is not None:
        operations = scanner._operations
        with contextlib.suppress(ScannerLost):  # it was closed behind an earlier result of the same page
            operations.backend.scan_close(scanner._scanner, operations.runtime.now() + 30)


def plain(results: list[Result]) -> list[tuple[bytes, list[bytes]]]:
    return [(result.row, [cell.column for cell in result.cells]) for result in results]


@pytest.mark.parametrize("name", ["fake", "thrift2", "native"])
def test_full_piece_is_partial_when_anything_is_stored_behind_it(
    connections: Mapping[str, Connection], name: str
) -> None:
    pieces = scanned(connections[name], Scan(batch=2))
    assert [(piece.row, piece.is_partial) for piece in pieces] == [
        (b"r1", False),
        (b"r2", True),
        (b"r3", True),
        (b"r4", False),
    ]


@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("name", BACKENDS)
def test_pieces_are_the_same_whenever_a_scanner_is_lost(
    connections: Mapping[str, Connection], name: str, batch: int, is_reversed: bool
) -> None:
    """A lost scanner is opened again at the row of a partial piece, and what comes again is left out."""
    connection = connections[name]
    for caching in (1, 2, 3):
        scan = Scan(batch=batch, caching=caching, is_reversed=is_reversed)
        expected = plain(scanned(connections["fake"], scan))
        assert plain(scanned(connection, scan)) == expected
        assert plain(scanned(connection, scan, lose)) == expected


@pytest.mark.parametrize("name", BACKENDS)
def test_limit_with_a_lost_scanner_behind_a_last_piece_marked_partial(
    connections: Mapping[str, Connection], name: str
) -> None:
    """The server counts the row that is read again: with the same limit it would send nothing that is new."""
    connection = connections[name]
    everything = {batch: plain(scanned(connections["fake"], Scan(batch=batch))) for batch in (1, 2)}
    for batch, expected in everything.items():
        for limit in range(1, len(expected) + 2):
            scan = Scan(batch=batch, limit=limit, caching=1)
            assert plain(scanned(connection, scan)) == expected[:limit]
            assert plain(scanned(connection, scan, lose)) == expected[:limit], (batch, limit)


def test_server_that_closes_a_scanner_without_a_row_repeats_no_piece(connections: Mapping[str, Connection]) -> None:
    """The scanner that is opened next repeats the whole row: also the pieces that the closed one had repeated."""
    connection = connections["fake"]
    scan = Scan(batch=1, caching=1)
    expected = plain(scanned(connection, scan))
    pages = itertools.count()
    asked: list[TableScanner] = []

    def lose_once_more(scanner: TableScanner) -> None:
        if not asked:
            asked.append(scanner)
            real = scanner._next_page

            def next_page(handle: object, rows: int, deadline: float) -> Any:
                return ScanPage((), None, False) if next(pages) % 3 == 2 else real(handle, rows, deadline)

            scanner._next_page = next_page
        lose(scanner)

    assert plain(scanned(connection, scan, lose_once_more)) == expected
    assert next(pages) > 3


def test_limit_counts_a_row_when_another_one_begins() -> None:
    limit = RowLimit(2)
    pieces = [Result(b"a", is_partial=True), Result(b"a", is_partial=True), Result(b"b", is_partial=True), Result(b"c")]
    assert limit.take(pieces[:2]) == pieces[:2]
    assert (limit.left, limit.is_reached) == (2, False)
    assert limit.take(pieces[2:]) == pieces[2:3]
    assert (limit.left, limit.is_reached) == (0, True)
    begun = RowLimit(1)
    begun.take(pieces[:1])
    assert (begun.left, begun.is_reached) == (1, True)
