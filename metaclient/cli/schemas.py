"""The commands ``describe``, ``alter``, ``truncate``, ``namespaces`` and ``count``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

from metaclient import filters
from metaclient.cli.session import CommandSession, common, from_text, to_text
from metaclient.model import FamilyDescriptor
from metaclient.wording import counted

__all__ = ["alter", "count", "describe", "namespaces", "truncate"]

#: Rows between two progress reports of ``count`` on a terminal.
PROGRESS_ROWS = 10_000


@click.command()
@click.argument("table")
@common
def describe(session: CommandSession, table: str) -> None:
    """Show the settings of TABLE and of its families."""
    with session.connect() as connection:
        found = connection.describe_table(table)
        is_enabled = connection.is_table_enabled(table)
    families = {to_text(family.name): _family_settings(family) for family in found.families}
    document = {
        "table": table,
        "enabled": is_enabled,
        "region_replication": found.region_replication,
        "read_only": found.is_read_only,
        "families": families,
        "attributes": dict(found.attributes),
    }
    session.document(document)
    names = list(dict.fromkeys(name for settings in families.values() for name in settings))
    rows = [(name, *(settings.get(name, "") for name in names)) for name, settings in families.items()]
    session.table(table, ("family", *names), rows)
    for name, value in found.attributes:
        session.say(f"{name} = {value}")
    state = "enabled" if is_enabled else "disabled"
    read_only = ", read-only" if found.is_read_only else ""
    session.say(f"{state}{read_only}, {counted(found.region_replication, 'copy', 'copies')} of each region")


def _family_settings(family: FamilyDescriptor) -> dict[str, Any]:
    return {
        "max_versions": family.max_versions,
        "min_versions": family.min_versions,
        "time_to_live": family.time_to_live_s,
        "compression": family.compression,
        "bloom_filter_type": family.bloom_filter_type,
        "in_memory": family.in_memory,
        "block_cache_enabled": family.block_cache_enabled,
        "keep_deleted_cells": family.keep_deleted_cells,
        "replication_scope": family.replication_scope,
        **dict(family.attributes),
    }


@click.command()
@click.argument("table")
@click.argument("settings", nargs=-1, metavar="[FAMILY:OPTION=VALUE]...")
@click.option("--replicas", type=click.IntRange(min=1), help="Copies of each region (REGION_REPLICATION).")
@click.option("--add-family", "added", multiple=True, help="A new family; may be repeated.")
@click.option("--drop-family", "dropped", multiple=True, help="A family to delete with its data; may be repeated.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation before families are deleted.")
@common
def alter(
    session: CommandSession,
    table: str,
    *,
    settings: Sequence[str],
    replicas: int | None,
    added: Sequence[str],
    dropped: Sequence[str],
    yes: bool,
) -> None:
    """Change settings of TABLE; all others stay.

    `metaclient alter users --replicas 2`, `metaclient alter users info:max_versions=5 info:time_to_live=86400`.
    `metaclient alter hbase:meta --replicas 3` gives HBase 2.4 and later three copies of hbase:meta.
    """
    families: dict[str, dict[str, Any]] = {name: {} for name in added}
    for setting in settings:
        family, option, value = _parse_setting(setting)
        families.setdefault(family, {})[option] = value
    if dropped:
        session.confirm(yes, "alter --drop-family", f"Delete {', '.join(dropped)} of {table} and all their data?")
    with session.connect() as connection:
        known = {to_text(family.name) for family in connection.describe_table(table).families}
        unknown = [name for name in families if name not in known and name not in added]
        if unknown:
            raise click.UsageError(f"{table} has no family {unknown[0]!r}: --add-family {unknown[0]} adds it")
        connection.alter_table(table, families or None, drop_families=dropped, region_replication=replicas)
    session.done({"altered": table}, f"{table} altered")


def _parse_setting(setting: str) -> tuple[str, str, int | bool | str]:
    """
    >>> _parse_setting("cf:max_versions=5"), _parse_setting("cf:in_memory=true")
    (('cf', 'max_versions', 5), ('cf', 'in_memory', True))
    """
    name, sign, text = setting.partition("=")
    family, colon, option = name.partition(":")
    if not sign or not colon or not family or not option:
        raise click.UsageError(f"a setting is FAMILY:OPTION=VALUE, such as cf:max_versions=5, got {setting!r}")
    if text.lower() in ("true", "false") and option != "keep_deleted_cells":
        return family, option, text.lower() == "true"
    return family, option, int(text) if text.lstrip("-").isdigit() else text


@click.command()
@click.argument("table")
@click.option("--preserve-splits/--no-preserve-splits", default=True, show_default=True, help="Keep its regions.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@common
def truncate(session: CommandSession, table: str, preserve_splits: bool, yes: bool) -> None:
    """Delete all rows of TABLE; its settings stay."""
    session.confirm(yes, "truncate", f"Delete all rows of {table}?")
    with session.connect() as connection:
        connection.truncate_table(table, preserve_splits=preserve_splits)
    session.done({"truncated": table, "preserved_splits": preserve_splits}, f"{table} truncated")


@click.group()
def namespaces() -> None:
    """List, create and delete namespaces."""


@namespaces.command("list")
@common
def list_namespaces(session: CommandSession) -> None:
    """List the namespaces."""
    with session.connect() as connection:
        names = connection.namespaces()
    session.document({"namespaces": names}, rows="namespaces")
    session.table("", ("namespace",), [(name,) for name in names])
    session.say(counted(len(names), "namespace"))


@namespaces.command("create")
@click.argument("name")
@common
def create_namespace(session: CommandSession, name: str) -> None:
    """Create the namespace NAME."""
    with session.connect() as connection:
        connection.create_namespace(name)
    session.done({"created": name}, f"namespace {name} created")


@namespaces.command("delete")
@click.argument("name")
@common
def delete_namespace(session: CommandSession, name: str) -> None:
    """Delete the namespace NAME, which must have no tables."""
    with session.connect() as connection:
        connection.delete_namespace(name)
    session.done({"deleted": name}, f"namespace {name} deleted")


@click.command()
@click.argument("table")
@click.option("--start", default="", help="First row.")
@click.option("--stop", default="", help="Row before which the count ends.")
@click.option("--prefix", help="Only rows that start with this prefix.")
@common
def count(session: CommandSession, table: str, start: str, stop: str, prefix: str | None) -> None:
    """Count the rows of TABLE. Each row is read without its values."""
    with session.connect() as connection:
        rows = connection.table(table).scan(
            from_text(start) or None,
            from_text(stop) or None,
            row_prefix=from_text(prefix) if prefix is not None else None,
            filter=filters.first_cell() & filters.keys_only(),
        )
        found = _counted_rows(rows, is_shown=session.is_for_people and sys.stderr.isatty())
    session.done({"table": table, "rows": found}, counted(found, "row"))


def _counted_rows(rows: Iterable[object], *, is_shown: bool) -> int:
    """Return the number of rows; ``is_shown``: report it on standard error from time to time."""
    number = 0
    for number, _ in enumerate(rows, 1):  # the last number is the result
        if is_shown and number % PROGRESS_ROWS == 0:
            click.echo(f"\r{number:,} rows", nl=False, err=True)
    if is_shown:
        click.echo("\r\x1b[K", nl=False, err=True)
    return number
