"""The commands ``hbase up|down|status|kill|pause|resume|stop|start``: run a real HBase on this machine.

The cluster itself comes from the entry point ``hbase`` of the group ``metaclient.clusters``: this package imports no
adapter. The cluster's folder records its processes, so that one command finds the cluster that another has started.
"""

from __future__ import annotations

from typing import Any

import click

from metaclient.cli.session import CommandSession, clusterless
from metaclient.testing.clusters import cluster_class
from metaclient.wording import counted

__all__ = ["hbase"]

_folder = click.option(
    "--folder",
    type=click.Path(file_okay=False),
    default=None,
    envvar="METACLIENT_HBASE_FOLDER",
    help="The folder of the cluster's data and logs; each folder is a cluster of its own.",
)


def _running(folder: str | None) -> Any:
    clusters = cluster_class("hbase")
    return clusters.at(folder or clusters.default_folder())


@click.group()
def hbase() -> None:
    """Run a real HBase on this machine, from Maven packages."""


@hbase.command()
@click.option("--version", default="2.6.1", show_default=True, help="HBase's version: 2.6.1 or 3.0.0-alpha-4.")
@click.option("--region-servers", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--meta-replicas", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--secure", is_flag=True, help="With Kerberos: two users, alice (a superuser) and bob, and a KDC.")
@click.option("--tls", is_flag=True, help="With TLS beside plaintext, and a certificate for clients.")
@_folder
@clusterless
def up(
    session: CommandSession,
    *,
    version: str,
    region_servers: int,
    meta_replicas: int,
    secure: bool,
    tls: bool,
    folder: str | None,
) -> None:
    """Start a cluster and keep it running; `down` ends it."""
    clusters = cluster_class("hbase")
    place = folder or clusters.default_folder()
    cluster = clusters(version, region_servers, meta_replicas, folder=place, secure=secure, tls=tls)
    cluster.up()
    started_s = cluster.start_s
    status = cluster.status()
    cluster.leave()
    session.document({**status, "start_s": round(started_s, 1)})
    _show(session, status)
    session.say(f"up in {started_s:.0f} s; try: metaclient meta --url {status['thrift2_url']}")
    for line in cluster.instructions():
        session.say(line)


@hbase.command()
@_folder
@clusterless
def down(session: CommandSession, folder: str | None) -> None:
    """End the cluster and remove its data; its logs are kept."""
    cluster = _running(folder)
    ended = [process["name"] for process in cluster.status()["processes"] if process["state"] != "down"]
    cluster.down()
    text = f"{counted(len(ended), 'process', 'processes')} ended; their logs are kept in {cluster.folder}"
    session.done({"ended": ended, "folder": str(cluster.folder)}, text)


@hbase.command()
@_folder
@clusterless
def status(session: CommandSession, folder: str | None) -> None:
    """Show the processes of the cluster and its addresses."""
    found = _running(folder).status()
    session.document(found)
    _show(session, found)


def _show(session: CommandSession, status: dict[str, Any]) -> None:
    rows = [
        (process["name"], process["state"], process["port"], process["pid"], process["log"])
        for process in status["processes"]
    ]
    session.table(f"HBase {status['version']}", ("process", "state", "port", "pid", "log"), rows)
    for name in ("thrift2_url", "thrift1_url", "native_url", "zookeeper"):
        session.say(f"{name:<12} {status[name]}")


def _fault(name: str, done: str, text: str) -> click.Command:
    """Return a command that calls the method ``name`` of the cluster for one process."""

    @click.command(name=name, help=text)
    @click.argument("process")
    @_folder
    @clusterless
    def fault(session: CommandSession, process: str, folder: str | None) -> None:
        cluster = _running(folder)
        at = process
        if process.startswith("meta:"):
            at = cluster.meta_server(_replica_id(process))
        getattr(cluster, name)(at)
        session.done({done: at}, f"{at} {done}")
        cluster.leave()

    return fault


def _replica_id(text: str) -> int:
    digits = text.partition(":")[2]
    if not digits.isdigit():
        raise click.UsageError(f"after 'meta:' comes the id of a meta replica, got {digits!r}")
    return int(digits)


_PROCESS = "PROCESS is a name that `status` shows, or meta:N for the server of meta replica N."
for _command in (
    _fault("kill", "killed", f"Kill a process (SIGKILL). {_PROCESS}"),
    _fault("pause", "paused", f"Hang a process (SIGSTOP). {_PROCESS}"),
    _fault("resume", "resumed", f"Continue a paused process (SIGCONT). {_PROCESS}"),
    _fault("stop", "stopped", f"Ask a process to end (SIGTERM) and wait for it. {_PROCESS}"),
    _fault("start", "started", f"Start a process that was killed, on its old port. {_PROCESS}"),
):
    hbase.add_command(_command)
