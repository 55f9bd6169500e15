"""The commands ``locate``, ``regions`` and ``meta``: locations of regions, and the replicas of hbase:meta."""

from __future__ import annotations

from dataclasses import asdict

import click

from metaclient.cli.session import CommandSession, common, from_text, to_text
from metaclient.model import RegionLocation, ServerName
from metaclient.wording import counted

__all__ = ["locate", "meta", "regions"]


def _as_json(location: RegionLocation) -> dict[str, object]:
    region = location.region
    return {
        "table": to_text(region.table),
        "start": to_text(region.start_key),
        "end": to_text(region.end_key),
        "region": region.encoded_name,
        "replica_id": region.replica_id,
        "server": str(location.server),
        "seqnum": location.seqnum,
    }


@click.command()
@click.argument("table")
@click.argument("row")
@click.option(
    "--replica", type=click.IntRange(min=0), default=0, show_default=True, help="Which replica of the region."
)
@common
def locate(session: CommandSession, table: str, row: str, replica: int) -> None:
    """Show the region of a ROW and its server."""
    with session.connect() as connection:
        location = connection.locate(table, from_text(row), replica_id=replica)
    region = location.region
    bounds = f"[{to_text(region.start_key)}, {to_text(region.end_key)})"
    text = f"{location.server.address}  region {region.encoded_name} {bounds} replica {region.replica_id}"
    session.done(_as_json(location), text)


@click.command()
@click.argument("table")
@common
def regions(session: CommandSession, table: str) -> None:
    """List the regions of TABLE and their replicas."""
    with session.connect() as connection:
        found = [location for entry in connection.regions(table) for location in entry.placed()]
    session.document({"table": table, "regions": [_as_json(location) for location in found]}, rows="regions")
    session.table(
        table,
        ("start", "end", "replica", "server", "region"),
        [
            (
                to_text(at.region.start_key),
                to_text(at.region.end_key),
                at.replica_id,
                at.server.address,
                at.region.encoded_name,
            )
            for at in found
        ],
    )
    session.say(counted(len(found), "region replica"))


@click.command()
@click.option("--lookups", type=click.IntRange(min=0), default=0, help="Make this many lookups first.")
@click.option("--table", help="The table of these lookups; default: all tables in turn.")
@common
def meta(session: CommandSession, lookups: int, table: str | None) -> None:
    """Show the replicas of hbase:meta, their health, and their shares of this client's lookups."""
    with session.connect() as connection:
        connection.meta_replicas()
        if lookups:
            names = [table] if table else [to_text(name) for name in connection.tables()]
            for number in range(lookups if names else 0):
                connection.locate(names[number % len(names)], b"", reload=True)
        replicas = connection.meta_replicas()
        mode = connection.meta_mode.value
    session.document({"mode": mode, "replicas": [asdict(replica) for replica in replicas]}, rows="replicas")
    total = sum(replica.lookups for replica in replicas) or 1
    session.table(
        f"hbase:meta, mode {mode}",
        ("id", "server", "state", "lookups", "share", "errors", "latency ms", "lag ms"),
        [
            (
                replica.id,
                None if replica.server is None else ServerName.parse(replica.server).address,
                replica.state,
                replica.lookups,
                f"{replica.lookups / total:.0%}",
                replica.errors,
                _rounded(replica.latency_ms),
                _rounded(replica.lag_ms),
            )
            for replica in replicas
        ],
    )


def _rounded(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else round(milliseconds, 1)
