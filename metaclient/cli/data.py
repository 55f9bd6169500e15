"""The commands ``get``, ``put``, ``delete`` and ``scan``: read and write rows."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, TypeVar

import click

from metaclient.cli.session import CommandSession, common, from_text, to_text
from metaclient.model import Row
from metaclient.wording import counted

__all__ = ["delete", "get", "put", "scan"]

F = TypeVar("F", bound=Callable[..., Any])


def _read_options(command: F) -> F:
    command = click.option("--replica", type=click.IntRange(min=0), help="Read this replica only.")(command)
    return click.option(
        "--consistency", type=click.Choice(["STRONG", "TIMELINE"], case_sensitive=False), help="STRONG by default."
    )(command)


def _as_json(key: bytes, row: Row) -> dict[str, Any]:
    return {
        "row": to_text(key),
        "cells": {to_text(column): {"value": to_text(value), "timestamp": at} for column, (value, at) in row.items()},
        "stale": row.stale,
        "replica_id": row.replica_id,
        "server": str(row.server) if row.server is not None else None,
    }


def _shown(row: Row) -> list[tuple[str, int, str]]:
    return [(to_text(column), at, to_text(value)) for column, (value, at) in row.items()]


@click.command()
@click.argument("table")
@click.argument("row")
@click.argument("columns", nargs=-1)
@_read_options
@common
def get(
    session: CommandSession, table: str, row: str, columns: Sequence[str], consistency: str | None, replica: int | None
) -> None:
    """Read one ROW of TABLE; \\xNN is one byte in hexadecimal."""
    with session.connect() as connection:
        found = connection.table(table).row(
            from_text(row),
            [from_text(column) for column in columns] or None,
            include_timestamp=True,
            consistency=consistency,
            replica_id=replica,
        )
    session.document({"table": table, "found": bool(found), **_as_json(from_text(row), found)})
    session.table(f"{table} {row}", ("column", "timestamp", "value"), _shown(found))
    source = f"replica {found.replica_id} on {found.server}" if found.server else "the gateway"
    session.say(f"{counted(len(found), 'cell')} from {source}{', possibly stale' if found.stale else ''}")


@click.command()
@click.argument("table")
@click.argument("row")
@click.argument("cells", nargs=-1, required=True, metavar="COLUMN=VALUE...")
@click.option("--timestamp", type=click.IntRange(min=0), help="In milliseconds; default: the server's time.")
@common
def put(session: CommandSession, table: str, row: str, cells: Sequence[str], timestamp: int | None) -> None:
    """Write cells to one ROW of TABLE."""
    data: dict[bytes | str, bytes | str] = {}
    for cell in cells:
        column, sign, value = cell.partition("=")
        if not sign:
            raise click.UsageError(f"a cell is COLUMN=VALUE, got {cell!r}")
        data[from_text(column)] = from_text(value)
    with session.connect() as connection:
        connection.table(table).put(from_text(row), data, timestamp=timestamp)
    session.document({"table": table, "row": row, "written": len(data)})
    session.say(f"{counted(len(data), 'cell')} written")


@click.command()
@click.argument("table")
@click.argument("row")
@click.argument("columns", nargs=-1)
@common
def delete(session: CommandSession, table: str, row: str, columns: Sequence[str]) -> None:
    """Delete one ROW of TABLE, or only some COLUMNS of it."""
    with session.connect() as connection:
        connection.table(table).delete(from_text(row), [from_text(column) for column in columns] or None)
    session.document({"table": table, "row": row, "deleted": list(columns) or "row"})
    session.say("deleted")


@click.command()
@click.argument("table")
@click.option("--start", default="", help="First row.")
@click.option("--stop", default="", help="Row before which the scan ends.")
@click.option("--prefix", help="Only rows that start with this prefix.")
@click.option("--column", "columns", multiple=True, help="Family or family:qualifier; may be repeated.")
@click.option("--filter", "filter_text", help="A filter in HBase's filter language.")
@click.option("--limit", type=click.IntRange(min=1), default=1000, show_default=True, help="Maximum number of rows.")
@click.option("--reverse", is_flag=True, help="Scan in descending order, from START.")
@_read_options
@common
def scan(
    session: CommandSession,
    table: str,
    start: str,
    stop: str,
    prefix: str | None,
    columns: Sequence[str],
    filter_text: str | None,
    limit: int,
    reverse: bool,
    consistency: str | None,
    replica: int | None,
) -> None:
    """Read a range of rows of TABLE."""
    with session.connect() as connection:
        found = connection.table(table).scan(
            from_text(start) or None,
            from_text(stop) or None,
            row_prefix=from_text(prefix) if prefix is not None else None,
            columns=[from_text(column) for column in columns] or None,
            filter=filter_text,
            include_timestamp=True,
            limit=limit + 1,  # one more than is shown, to find out whether there are more rows
            reverse=reverse,
            consistency=consistency,
            replica_id=replica,
        )
        rows = [(key, row) for key, row in islice(found, limit + 1) if isinstance(row, Row)]
    following = to_text(rows.pop()[0]) if len(rows) > limit else None
    session.document({"table": table, "rows": [_as_json(key, row) for key, row in rows], "next": following})
    session.table(
        table,
        ("row", "column", "timestamp", "value"),
        [(to_text(key), *cell) for key, row in rows for cell in _shown(row)],
    )
    stale = sum(row.stale for _, row in rows)
    session.say(f"{counted(len(rows), 'row')}{f', {stale} of them possibly stale' if stale else ''}")
    if following is not None:
        onward = f"--start {shlex.quote(following)} continues from here"
        click.echo(f"there are more rows: --limit shows more than {limit}, {onward}", err=True)
