"""The commands ``tables``, ``create`` and ``drop``: list, create and delete tables."""

from __future__ import annotations

from collections.abc import Sequence

import click

from metaclient.cli.session import CommandSession, common, from_text, to_text
from metaclient.wording import counted

__all__ = ["create", "drop", "tables"]


@click.command()
@common
def tables(session: CommandSession) -> None:
    """List the tables."""
    with session.connect() as connection:
        names = [to_text(name) for name in connection.tables()]
    session.document({"tables": names})
    session.table("", ("table",), [(name,) for name in names])
    session.say(counted(len(names), "table"))


@click.command()
@click.argument("table")
@click.argument("families", nargs=-1, required=True)
@click.option("--split", "splits", multiple=True, help="A row at which a region starts; may be repeated.")
@click.option("--replicas", type=click.IntRange(min=1), default=1, show_default=True, help="Copies of each region.")
@click.option("--versions", type=click.IntRange(min=1), default=1, show_default=True, help="Versions kept per cell.")
@click.option("--scope", type=click.IntRange(0, 2), default=0, show_default=True, help="1: replicated to peers.")
@common
def create(
    session: CommandSession,
    table: str,
    families: Sequence[str],
    *,
    splits: Sequence[str],
    replicas: int,
    versions: int,
    scope: int,
) -> None:
    """Create TABLE with column FAMILIES. --scope is HBase's REPLICATION_SCOPE of all of them."""
    with session.connect() as connection:
        connection.create_table(
            table,
            {family: _family_options(versions, scope) for family in families},
            splits=[from_text(split) for split in splits] or None,
            region_replication=replicas,
        )
    session.document({"created": table, "regions": len(splits) + 1, "region_replication": replicas})
    session.say(f"{table} created with {counted(len(splits) + 1, 'region')}")


def _family_options(versions: int, scope: int) -> dict[str, int]:
    """Return the options of a family; a scope of 0 is left out, because Thrift 1 cannot set one."""
    return {"max_versions": versions, "replication_scope": scope} if scope else {"max_versions": versions}


@click.command()
@click.argument("table")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@common
def drop(session: CommandSession, table: str, yes: bool) -> None:
    """Disable and delete TABLE with all its data."""
    if not yes and not session.as_json:
        click.confirm(f"Delete {table} and all its data?", abort=True)
    elif not yes:
        raise click.UsageError("drop --json needs --yes: with --json there is no prompt")
    with session.connect() as connection:
        connection.delete_table(table, disable=True)
    session.document({"dropped": table})
    session.say(f"{table} dropped")
