"""The formats of a command's output: a table for people, JSON, JSON lines and tab-separated values for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

__all__ = ["Output", "print_jsonl", "print_stream", "print_table", "print_tsv", "stdout_console"]

T = TypeVar("T")

#: Items of a stream that are aligned as one table: a terminal shows a whole default scan as one, a pipe gets its
#: first lines early.
PAGE_ITEMS_TERMINAL, PAGE_ITEMS_PIPE = 1000, 100
#: The width of a table that no terminal bounds: rich needs a number, and no cell is folded below it.
PIPE_COLUMNS = 1_000_000
#: A tab or a line break inside a cell would be read as the end of the cell.
_TSV_ESCAPES = str.maketrans({"\t": "\\t", "\n": "\\n", "\r": "\\r"})


class Output(StrEnum):
    """The format of a command's standard output."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    TSV = "tsv"


def stdout_console() -> Console:
    """Return a console that folds lines at the width of the terminal, and not at all in a pipe or a file.

    A ``COLUMNS`` in the environment is obeyed in both cases.
    """
    is_bounded = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(highlight=False, width=None if is_bounded else PIPE_COLUMNS)


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    is_continued: bool = False,
    widths: Sequence[int] = (),
) -> list[int]:
    """Print an aligned table and return the widths of its columns.

    ``is_continued`` leaves the title and the header out; ``widths`` are the smallest widths, those of the page before.
    """
    cells = [[Text("" if cell is None else str(cell)) for cell in row] for row in rows]  # Text: no markup is read
    floor = list(widths) or [0] * len(columns)
    found = [
        max([least, 0 if is_continued else len(column), *(row[at].cell_len for row in cells)])
        for at, (column, least) in enumerate(zip(columns, floor, strict=True))
    ]
    console = stdout_console()
    made = RichTable(
        title=None if is_continued or not title else Text(title, style="italic"),
        title_justify="left",
        show_edge=False,
        pad_edge=False,
        show_header=not is_continued,
    )
    for column, width in zip(columns, found, strict=True):
        made.add_column(Text(column), overflow="fold", min_width=width if is_continued else None)
    for row in cells:
        made.add_row(*row)
    with console.capture() as captured:
        console.print(made)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())  # rich fills the last column with spaces
    return found


def print_tsv(rows: Iterable[Sequence[object]]) -> None:
    """Print one line per row, with tabs between the cells; a tab or line break of a cell is escaped."""
    for row in rows:
        click.echo("\t".join(_tsv_cell(cell) for cell in row))


def _tsv_cell(cell: object) -> str:
    """
    >>> _tsv_cell(None), _tsv_cell(True), _tsv_cell({"a": [1]})
    ('', 'true', '{"a": [1]}')
    """
    if cell is None:
        return ""
    text = json.dumps(cell) if isinstance(cell, dict | list | tuple | bool) else str(cell)
    return text.translate(_TSV_ESCAPES)


def print_jsonl(documents: Iterable[Mapping[str, Any]]) -> None:
    """Print one JSON document per line."""
    for document in documents:
        click.echo(json.dumps(document))


def print_stream(
    output: Output,
    columns: Sequence[str],
    items: Iterable[T],
    *,
    title: str,
    document: Callable[[T], Mapping[str, Any]],
    lines: Callable[[T], Sequence[Sequence[object]]],
) -> None:
    """Print items while they arrive: JSON lines and tab-separated values at once, a table in pages of aligned lines.

    ``document`` is an item's JSON document, ``lines`` are its lines of the table.
    """
    if output is Output.JSONL:
        print_jsonl(map(document, items))
        return
    if output is Output.TSV:
        print_tsv([columns])
        for item in items:
            print_tsv(lines(item))
        return
    size = PAGE_ITEMS_TERMINAL if sys.stdout.isatty() else PAGE_ITEMS_PIPE
    iterator = iter(items)
    page = list(islice(iterator, size))
    widths = print_table(title, columns, [line for item in page for line in lines(item)])
    while len(page) == size and (page := list(islice(iterator, size))):
        rows = [line for item in page for line in lines(item)]
        widths = print_table(title, columns, rows, is_continued=True, widths=widths)
