"""The commands ``changes list|create|remove|status|tail|receive|doctor``: subscriptions to the changes of tables."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import click

from metaclient.changes import Change, Changes, SubscriptionInfo, Subscriptions
from metaclient.changes.doctor import WAIT_S, SubscriptionStatus, examine, repair, status_of
from metaclient.changes.receiver import SPOOL_BYTES_MAX, SpoolReceiver, open_receiver
from metaclient.cli.output import Output, print_tsv
from metaclient.cli.session import CommandSession, common, from_text, to_text, until_signal
from metaclient.wording import counted

__all__ = ["changes"]

#: How long a receiver may take to end: one fsync.
_END_S = 30.0
#: How often a tail without changes looks for a signal.
_LOOK_S = 0.25
_PROTECTION = (
    click.option("--cert", help="Listen with TLS: a PEM file with certificate and key."),
    click.option("--key", help="The PEM file of the key, if --cert has none."),
    click.option("--client-ca", help="Region servers need a certificate of this authority (PEM)."),
    click.option("--allow-insecure", is_flag=True, help="Listen for other machines without TLS and certificates."),
)


def _protected(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that protect the listening socket; their names are those of ``FeedOptions``."""
    for option in reversed(_PROTECTION):
        command = option(command)
    return command


@click.group()
def changes() -> None:
    """Subscriptions to the changes of tables; see docs/changes.md.

    A subscription makes the cluster keep its logs until its workers have taken their changes. One that is forgotten
    fills the disk of the cluster: remove it.
    """


@changes.command("list")
@common
def list_subscriptions(session: CommandSession) -> None:
    """List the subscriptions, with the logs that the cluster keeps for each.

    \b
    metaclient changes list --url hbase://zk1:2181
    """
    with session.connect() as connection:
        found = [status_of(connection, info) for info in Subscriptions(connection).list()]
    session.document({"subscriptions": [_document(one) for one in found]}, rows="subscriptions")
    columns = ("name", "tables", "serial", "workers", "logs kept", "behind ms")
    session.table("", columns, [_line(one) for one in found])
    for one in found:
        if one.is_forgotten:
            session.say(
                f"warning: {one.info.name} has no workers, and the cluster keeps {counted(one.log_queue, 'log')} for "
                "it; they pile up until its disk is full"
            )
    session.say(counted(len(found), "subscription"))


@changes.command()
@click.argument("name")
@click.argument("tables", nargs=-1, required=True)
@click.option("--serial/--no-serial", default=False, help="Have HBase deliver each row's changes in order.")
@click.option("--since", type=float, help="Begin with what was stored since then: seconds since the epoch.")
@common
def create(session: CommandSession, name: str, tables: tuple[str, ...], serial: bool, since: float | None) -> None:
    """Make a subscription NAME to TABLES. The cluster keeps its logs for it from now on, with and without workers.

    \b
    metaclient changes create search-index users orders --url hbase://zk1:2181
    """
    with session.connect() as connection:
        wanted = [from_text(table) for table in tables]
        info = Subscriptions(connection).create(name, wanted, serial=serial, since=since)
    text = f"{name} was made; the cluster keeps its logs for it until `metaclient changes remove {name}`"
    session.done(_info_document(info), text)


@changes.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common
def remove(session: CommandSession, name: str, yes: bool) -> None:
    """Remove a subscription: changes that were not delivered are lost.

    \b
    metaclient changes remove search-index --yes
    """
    session.confirm(yes, "changes remove", f"Remove {name}? Changes that were not delivered are lost")
    with session.connect() as connection:
        Subscriptions(connection).remove(name)
    session.done({"removed": name}, f"{name} was removed")


@changes.command()
@click.argument("name")
@common
def status(session: CommandSession, name: str) -> None:
    """Show the workers of a subscription, and its queues on the region servers.

    \b
    metaclient changes status search-index --json
    """
    with session.connect() as connection:
        found = status_of(connection, Subscriptions(connection).get(name))
    session.document(_document(found))
    columns = ("server", "queue", "logs kept", "behind ms", "shipped")
    rows = [(one.server.address, one.queue_id, one.log_queue, one.lag_ms, one.edits_shipped) for one in found.sources]
    session.table(name, columns, rows)
    session.say(f"workers: {', '.join(found.workers) or 'none'}")
    if found.is_forgotten:
        session.say(f"warning: without workers, {counted(found.log_queue, 'log')} and more are kept on the disk")


@changes.command()
@click.argument("table")
@click.option("--name", required=True, help="The subscription; made if there is none, and it stays.")
@click.option("--serial/--no-serial", default=False, help="As in `changes create`.")
@click.option("--state", type=click.Path(dir_okay=False), help="A file that removes repeats over restarts.")
@click.option("--host", help="The name or address of this machine that region servers reach.  [default: found out]")
@click.option("--port", type=click.IntRange(0, 65_535), default=0, help="The port to listen at; 0 is any free one.")
@_protected
@click.option("--count", type=click.IntRange(min=1), help="End after so many changes.")
@click.option("--for", "seconds", type=click.FloatRange(min=0.0), help="End when no change comes for so many seconds.")
@common
def tail(
    session: CommandSession,
    table: str,
    *,
    name: str,
    serial: bool,
    state: str | None,
    host: str | None,
    port: int,
    count: int | None,
    seconds: float | None,
    **protection: Any,
) -> None:
    """Print the changes of a table as they are written, until Ctrl-C or SIGTERM; with --json, one document per line.

    The subscription stays, so that the next tail goes on where this one ended. Remove it when it is no longer needed.

    \b
    metaclient changes tail users --name look --url hbase://zk1:2181
    metaclient changes remove look
    """
    with session.connect() as connection:
        feed = connection.changes(
            from_text(table), name=name, serial=serial, state=state, host=host, port=port, **protection
        )
        with feed, until_signal(connection.engine.runtime) as ended:
            click.echo(f"waiting for changes of {table} as {name}; Ctrl-C ends it", err=True)
            for change in islice(_changes_until(feed, ended, connection.engine.runtime, seconds), count):
                _print_change(session, change)
                change.commit()


def _changes_until(feed: Changes, ended: Any, runtime: Any, seconds: float | None) -> Iterator[Change]:
    """Yield changes until a signal, or until none has come for so many seconds."""
    since = runtime.now()
    while not ended.is_done:
        left_s = _LOOK_S if seconds is None else since + seconds - runtime.now()
        change = feed.poll(max(0.0, min(left_s, _LOOK_S)))
        if change is not None:
            yield change
            since = runtime.now()
        elif left_s <= _LOOK_S and seconds is not None:
            return


@changes.command()
@click.argument("tables", nargs=-1)
@click.option("--name", required=True, help="The subscription; with TABLES it is made if there is none, and it stays.")
@click.option("--spool", required=True, type=click.Path(file_okay=False, path_type=Path), help="The folder.")
@click.option("--worker", help="The folder of this process in the spool.  [default: the name of this machine]")
@click.option("--serial/--no-serial", default=False, help="As in `changes create`.")
@click.option("--since", type=float, help="As in `changes create`.")
@click.option(
    "--max-mb",
    type=click.FloatRange(min=0.0, min_open=True),
    default=SPOOL_BYTES_MAX / (1 << 20),
    show_default=True,
    help="The bound of this worker's files; when it is reached, HBase keeps the changes.",
)
@click.option("--host", help="The name or address of this machine that region servers reach.  [default: found out]")
@click.option("--port", type=click.IntRange(0, 65_535), default=0, help="The port to listen at; 0 is any free one.")
@_protected
@common
def receive(
    session: CommandSession,
    tables: tuple[str, ...],
    *,
    name: str,
    spool: Path,
    worker: str | None,
    serial: bool,
    since: float | None,
    max_mb: float,
    host: str | None,
    port: int,
    **protection: Any,
) -> None:
    """Receive changes into a spool, from which Spark reads them, until Ctrl-C or SIGTERM.

    Each call of a region server is written to a file of the folder, made durable, and then answered. The folder is read
    and emptied by a stream of Spark with hbase.spark.stream.source=wal. It may be on a file system that is shared by
    several workers, each with a name of its own (--worker).

    \b
    metaclient changes receive users --name lake --spool /data/lake --url hbase://zk1:2181
    """
    with session.connect() as connection:
        receiver = open_receiver(
            connection,
            spool,
            name=name,
            worker=worker or machine_name(),
            tables=[from_text(table) for table in tables],
            serial=serial,
            since=since,
            spool_bytes_max=max(1, int(max_mb * (1 << 20))),
            options={"host": host, "port": port, **protection},
        )
        with receiver:
            _receive(session, connection.engine.runtime, receiver)
        counts = receiver.stats()
    document = {"received": counts["delivered"], "repeated": counts["repeated"], "bytes": counts["spooled_bytes"]}
    session.document(document)
    session.say(f"received {counted(counts['delivered'], 'change')}, {counts['repeated']} repeats left out")


def _receive(session: CommandSession, runtime: Any, receiver: SpoolReceiver) -> None:
    """Run the receiver until a signal, or until it fails."""
    with until_signal(runtime) as ended:
        work = runtime.start_daemon(receiver.run, name="receive")
        session.say(f"receiving at {receiver.address or 'the end of the snapshot'}; Ctrl-C ends it")
        runtime.wait_first((ended, work), None)
        receiver.close()
        work.result(runtime.now() + _END_S)


def machine_name() -> str:
    """Return the name of this machine as the name of a worker."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", platform.node()).lstrip("_.-")[:63] or "worker"


@changes.command()
@click.argument("name", required=False)
@click.option("--repair", "repairs", is_flag=True, help="Free regions that are stuck.")
@click.option(
    "--wait",
    type=click.FloatRange(min=0.0),
    default=WAIT_S,
    show_default=True,
    help="Seconds that queues must stand still.",
)
@common
def doctor(session: CommandSession, name: str | None, repairs: bool, wait: float) -> None:
    """Find what is wrong with subscriptions: no workers, late queues, serial regions that are stuck for ever.

    \b
    metaclient changes doctor
    metaclient changes doctor search-index --repair
    """
    with session.connect() as connection:
        found = examine(connection, name, wait_s=wait)
        repaired = [one for one in found if repairs and one.pushed_id is not None]
        for one in repaired:
            repair(connection, one)
    findings = [
        {"name": one.name, "text": one.text, "region": one.region or None, "repaired": one in repaired} for one in found
    ]
    session.document({"findings": findings}, rows="findings")
    if not session.is_for_people:
        session.table("", ("name", "text", "region", "repaired"), [list(one.values()) for one in findings])
    for one in found:
        hint = "" if one.pushed_id is None else " (repaired)" if one in repaired else " (--repair frees it)"
        session.say(f"{one.name}: {one.text}{hint}")
    if not found:
        session.say("nothing is wrong")


def _print_change(session: CommandSession, change: Change) -> None:
    cells: list[dict[str, Any]] = [
        {
            "column": to_text(cell.column),
            "timestamp": cell.timestamp,
            "type": cell.type.name,
            "value": to_text(cell.value),
        }
        for cell in change.cells
    ]
    if session.as_json:
        document = {
            "table": to_text(change.table),
            "row": to_text(change.row),
            "cells": cells,
            "region": change.region,
            "sequence": change.sequence,
            "write_time": change.write_time,
            "cluster_ids": [str(one) for one in change.cluster_ids],
        }
        click.echo(json.dumps(document))
        return
    for cell in cells:
        if session.output is Output.TSV:
            print_tsv([(to_text(change.row), *cell.values())])
            continue
        shown = cell["value"] if cell["type"] == "PUT" else cell["type"]
        click.echo(f"{to_text(change.row)}  {cell['column']}  {cell['timestamp']}  {shown}")


def _info_document(info: SubscriptionInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "peer": info.peer_id,
        "tables": [to_text(table) for table in info.tables],
        "serial": info.serial,
        "created_ms": info.created_ms,
        "enabled": info.is_enabled,
        "snapshot": info.snapshot or None,
    }


def _document(status: SubscriptionStatus) -> dict[str, Any]:
    return {
        **_info_document(status.info),
        "workers": list(status.workers),
        "logs_kept": status.log_queue,
        "behind_ms": status.lag_ms,
        "is_forgotten": status.is_forgotten,
    }


def _line(status: SubscriptionStatus) -> tuple[object, ...]:
    info = status.info
    tables = ", ".join(map(to_text, info.tables))
    return info.name, tables, "yes" if info.serial else "no", len(status.workers), status.log_queue, status.lag_ms
