"""Asks a table for every text of ``filter_texts`` and compares the answers with those of a real HBase."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

from metaclient import Connection
from metaclient.errors import RequestRefused
from metaclient.model import Consistency, Scan
from metaclient.scanner import TableScanner
from tests.spec.filter_texts import DIFFERENCES, FAMILIES, ROWS

#: Row -> cells, as text; or that the filter was refused.
Answer: TypeAlias = Mapping[str, list[str]] | str
REFUSED = "refused"
RECORDED: Mapping[str, Answer] = json.loads((Path(__file__).parent / "data" / "filters-2.6.1.json").read_text())
TABLE = b"filter_texts"


def fill(connection: Connection) -> None:
    """Create the table, unless it is there."""
    if TABLE not in connection.tables():
        connection.create_table(TABLE, FAMILIES)
        for put in ROWS:
            connection.engine.operations.mutate(TABLE, put)


def answer(connection: Connection, text: str) -> Answer:
    """What a scan with this filter gives."""
    scan = Scan(filter=text.encode(), max_versions=3)
    try:
        results = list(TableScanner(connection.engine.operations, TABLE, scan, Consistency.STRONG, None))
    except RequestRefused:
        return REFUSED
    return {
        result.row.decode("latin1"): [
            f"{cell.column.decode('latin1')}@{cell.timestamp}={cell.value.decode('latin1')}" for cell in result.cells
        ]
        for result, _ in results
    }


def unlike(connection: Connection, texts: Iterable[str]) -> dict[str, tuple[Answer, Answer]]:
    """Text -> (recorded, given), where the two differ."""
    given = {text: answer(connection, text) for text in texts}
    return {text: (RECORDED[text], got) for text, got in given.items() if got != RECORDED[text]}


def assert_known_differences(connection: Connection) -> None:
    """What we read and HBase does not is read; what HBase guesses is refused."""
    for text in DIFFERENCES:
        got = answer(connection, text)
        assert (got == REFUSED) is (RECORDED[text] != REFUSED), f"{text}: {got}, HBase: {RECORDED[text]}"
