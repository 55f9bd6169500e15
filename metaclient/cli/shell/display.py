"""Shows values of the shell: rows, scans, regions and descriptors as tables, everything else as Python does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from metaclient.cli.output import Output, print_jsonl, print_table, print_tsv
from metaclient.cli.session import to_text
from metaclient.cli.shell.verbs import Names, ShownScan
from metaclient.meta.health_tracker import MetaReplicaStatus
from metaclient.model import RegionLocation, Row, TableDescriptor
from metaclient.wording import counted

__all__ = ["show"]


def show(value: object, output: Output) -> None:
    """Print a value that the code in the shell has returned; None is not printed."""
    if value is None:
        return
    if isinstance(value, ShownScan):
        _show_scan(value, output)
    elif isinstance(value, Row):
        _print(output, "", ("column", "value"), [(to_text(column), _value(cell)) for column, cell in value.items()])
        source = f"replica {value.replica_id} on {value.server}" if value.server else "the gateway"
        _note(output, f"{counted(len(value), 'cell')} from {source}{', possibly stale' if value.stale else ''}")
    elif isinstance(value, Names):
        _print(output, "", (value.column,), [(name,) for name in value])
        _note(output, counted(len(value), value.column))
    elif isinstance(value, TableDescriptor):
        _show_descriptor(value, output)
    elif isinstance(value, RegionLocation):
        _show_regions([value], output)
    elif isinstance(value, list) and value and all(isinstance(one, RegionLocation) for one in value):
        _show_regions(value, output)
    elif isinstance(value, list) and value and all(isinstance(one, MetaReplicaStatus) for one in value):
        rows = [asdict(one) for one in value]
        _print(output, "hbase:meta", list(rows[0]), [list(row.values()) for row in rows])
    else:
        click.echo(value if isinstance(value, str) else repr(value))


def _show_scan(scan: ShownScan, output: Output) -> None:
    rows, has_more = scan.shown()
    cells = [(to_text(key), to_text(column), _value(cell)) for key, row in rows for column, cell in row.items()]
    _print(output, scan.table, ("row", "column", "value"), cells)
    more = (
        "; there are more: scan(..., limit=1000) shows 1000 rows, a loop over scan(...) reads all" if has_more else ""
    )
    _note(output, f"{counted(len(rows), 'row')}{more}")


def _show_regions(locations: Sequence[RegionLocation], output: Output) -> None:
    rows = [
        (
            to_text(one.region.start_key),
            to_text(one.region.end_key),
            one.replica_id,
            one.server.address,
            one.region.encoded_name,
        )
        for one in locations
    ]
    _print(output, to_text(locations[0].region.table), ("start", "end", "replica", "server", "region"), rows)


def _show_descriptor(table: TableDescriptor, output: Output) -> None:
    rows = [
        (to_text(one.name), one.max_versions, one.time_to_live_s, one.compression, one.replication_scope)
        for one in table.families
    ]
    columns = ("family", "max_versions", "time_to_live", "compression", "replication_scope")
    _print(output, to_text(table.name), columns, rows)
    _note(output, f"{counted(table.region_replication, 'copy', 'copies')} of each region")


def _value(cell: Any) -> str:
    if isinstance(cell, tuple):
        value, timestamp = cell
        return f"{to_text(value)}  (timestamp {timestamp})"
    return to_text(cell)


def _print(output: Output, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    if output is Output.TABLE:
        print_table(title, columns, rows)
    elif output is Output.TSV:
        print_tsv([columns, *rows])
    else:
        print_jsonl(dict(zip(columns, row, strict=True)) for row in rows)


def _note(output: Output, text: str) -> None:
    if output is Output.TABLE:
        click.echo(text)
