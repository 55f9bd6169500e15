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
    session.document({"tables": names}, rows="tables")
    session.table("", ("table",), [(name,) for name in names])
    session.say(counted(len(names), "table"))


@click.command()
@click.argument("table")
@click.argument("families", nargs=-1, required=True)
@click.option("--split", "splits", multiple=True, help="A row at which a region starts; may be repeated.")
@click.option("--replicas", type=click.IntRange(min=1), default=1, show_default=True, help="Copies of each region.")
@click.option("--versions", type=click.IntRange(min=1), default=1, show_default=True, help="Versions kept per cell.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    metavar="[FAMILY=]SCOPE",
    help="1: replicated to peers; of all families, or of one: --scope cf=1; may be repeated.  [default: 0]",
)
@common
def create(
    session: CommandSession,
    table: str,
    families: Sequence[str],
    *,
    splits: Sequence[str],
    replicas: int,
    versions: int,
    scopes: Sequence[str],
) -> None:
    """Create TABLE with column FAMILIES. --scope is HBase's REPLICATION_SCOPE.

    \b
    metaclient create orders cf cache --scope cf=1
    """
    by_family = _scopes(scopes, families)
    with session.connect() as connection:
        connection.create_table(
            table,
            {family: _family_options(versions, by_family[family]) for family in families},
            splits=[from_text(split) for split in splits] or None,
            region_replication=replicas,
        )
    document = {"created": table, "regions": len(splits) + 1, "region_replication": replicas}
    session.done(document, f"{table} created with {counted(len(splits) + 1, 'region')}")


def _scopes(texts: Sequence[str], families: Sequence[str]) -> dict[str, int]:
    """Return the scope of each family; a later option overrides an earlier one.

    >>> _scopes(["1", "cache=0"], ["cf", "cache"])
    {'cf': 1, 'cache': 0}
    """
    found = dict.fromkeys(families, 0)
    for text in texts:
        family, _, scope = text.rpartition("=")
        if scope not in ("0", "1", "2"):
            raise click.UsageError(f"--scope is 0, 1 or 2, or FAMILY=SCOPE, got {text!r}")
        if family and family not in found:
            raise click.UsageError(f"--scope {text}: {family!r} is none of the families {', '.join(families)}")
        found |= dict.fromkeys([family] if family else families, int(scope))
    return found


def _family_options(versions: int, scope: int) -> dict[str, int]:
    """Return the options of a family; a scope of 0 is left out, because Thrift 1 cannot set one."""
    return {"max_versions": versions, "replication_scope": scope} if scope else {"max_versions": versions}


@click.command()
@click.argument("table")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@common
def drop(session: CommandSession, table: str, yes: bool) -> None:
    """Disable and delete TABLE with all its data."""
    session.confirm(yes, "drop", f"Delete {table} and all its data?")
    with session.connect() as connection:
        connection.delete_table(table, disable=True)
    session.done({"dropped": table}, f"{table} dropped")
