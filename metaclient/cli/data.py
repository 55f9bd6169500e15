"""The commands ``get``, ``put``, ``delete`` and ``scan``: read and write rows."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import click

from metaclient.cli.output import Output, print_stream
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


def _as_json(key: bytes, row: Row[tuple[bytes, int]]) -> dict[str, Any]:
    return {
        "row": to_text(key),
        "cells": {to_text(column): {"value": to_text(value), "timestamp": at} for column, (value, at) in row.items()},
        "stale": row.stale,
        "replica_id": row.replica_id,
        "server": str(row.server) if row.server is not None else None,
    }


def _shown(row: Row[tuple[bytes, int]]) -> list[tuple[str, int, str]]:
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
    session.done({"table": table, "row": row, "written": len(data)}, f"{counted(len(data), 'cell')} written")


@click.command()
@click.argument("table")
@click.argument("row")
@click.argument("columns", nargs=-1)
@common
def delete(session: CommandSession, table: str, row: str, columns: Sequence[str]) -> None:
    """Delete one ROW of TABLE, or only some COLUMNS of it."""
    with session.connect() as connection:
        connection.table(table).delete(from_text(row), [from_text(column) for column in columns] or None)
    session.done({"table": table, "row": row, "deleted": list(columns) or "row"}, "deleted")


@click.command()
@click.argument("table")
@click.option("--start", default="", help="First row.")
@click.option("--stop", default="", help="Row before which the scan ends.")
@click.option("--prefix", help="Only rows that start with this prefix.")
@click.option("--column", "columns", multiple=True, help="Family or family:qualifier; may be repeated.")
@click.option("--filter", "filter_text", help="A filter in HBase's filter language.")
@click.option(
    "--limit", type=click.IntRange(min=0), default=1000, show_default=True, help="Maximum number of rows; 0: all."
)
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
    """Read a range of rows of TABLE. Only --output json waits for the last row before it prints the first.

    \b
    metaclient scan users --prefix a --column info:name
    metaclient scan users --limit 0 --output jsonl | gzip > users.jsonl.gz
    """
    with session.connect() as connection:
        found = connection.table(table).scan(
            from_text(start) or None,
            from_text(stop) or None,
            row_prefix=from_text(prefix) if prefix is not None else None,
            columns=[from_text(column) for column in columns] or None,
            filter=filter_text,
            include_timestamp=True,
            limit=limit + 1 if limit else None,  # one more than is shown, to find out whether there are more rows
            reverse=reverse,
            consistency=consistency,
            replica_id=replica,
        )
        rows = _RowCounter(found, limit)
        if session.output is Output.JSON:
            documents = [_as_json(key, row) for key, row in rows]
            session.document({"table": table, "rows": documents, "next": rows.following})
        else:
            print_stream(
                session.output,
                ("row", "column", "timestamp", "value"),
                rows,
                title=table,
                document=lambda item: _as_json(*item),
                lines=lambda item: [(to_text(item[0]), *cell) for cell in _shown(item[1])],
            )
    session.say(f"{counted(rows.count, 'row')}{f', {rows.stale} of them possibly stale' if rows.stale else ''}")
    if rows.following is not None:
        onward = f"--start {shlex.quote(rows.following)} continues from here, --limit 0 shows all rows"
        click.echo(f"there are more rows: the scan stopped at its limit of {limit}; {onward}", err=True)


class _RowCounter:
    """Iterates over at most ``limit`` rows of a scan (0: all); counts them, and keeps the key of the row after them."""

    def __init__(self, found: Iterable[tuple[bytes, Mapping[bytes, Any]]], limit: int) -> None:
        self._found = found
        self._limit = limit
        self.count = 0
        self.stale = 0
        self.following: str | None = None

    def __iter__(self) -> Iterator[tuple[bytes, Row[tuple[bytes, int]]]]:
        for key, row in self._found:
            if self._limit and self.count == self._limit:
                self.following = to_text(key)
                return
            assert isinstance(row, Row)
            self.count += 1
            self.stale += row.stale
            yield key, row
