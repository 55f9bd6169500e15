"""The commands ``replication list|add|remove|enable|disable|update|status|verify``: the peers of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click

from metaclient.cli.session import CommandSession, F, common, from_text, to_text
from metaclient.cli.verification import verify
from metaclient.replication_peers import Peer, PeerConfig, ReplicationStatus, SourceLoad, source_load_document
from metaclient.wording import counted

__all__ = ["replication"]


@click.group()
def replication() -> None:
    """Administer the peers to which a cluster replicates, and compare their tables.

    \b
    metaclient replication add west zk9:2181:/hbase --table orders --table ns:users=cf --url hbase://zk1:2181
    metaclient replication status --url hbase://zk1:2181
    metaclient replication verify hbase://zk1:2181 west orders

    Only families with replication scope 1 are shipped: `metaclient create orders cf --scope 1`.
    """


replication.add_command(verify)


def _options(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    def add_all(command: F) -> F:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return add_all


_selection = _options(
    click.option("--table", "tables", multiple=True, help="Ship this table: NAME or NAME=FAMILY,FAMILY; repeatable."),
    click.option("--namespace", "namespaces", multiple=True, help="Ship the tables of this namespace; repeatable."),
    click.option("--exclude-table", "exclude_tables", multiple=True, help="Ship all but this one; as --table."),
    click.option("--exclude-namespace", "exclude_namespaces", multiple=True, help="Ship all but these; repeatable."),
    click.option(
        "--bandwidth", type=click.IntRange(min=0), help="Bytes per second and server; 0 is unlimited.  [default: 0]"
    ),
    click.option(
        "--serial/--no-serial",
        default=None,
        help="Ship each region's edits in their order, over moves and crashes.  [default: no-serial]",
    ),
    click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of the peer; repeatable."),
)


@replication.command("list")
@click.argument("pattern", required=False)
@common
def list_peers(session: CommandSession, pattern: str | None) -> None:
    """List the peers; PATTERN is a regular expression for the whole id.

    \b
    metaclient replication list --url hbase://zk1:2181
    metaclient replication list 'west.*' --json
    """
    with session.connect() as connection:
        peers = connection.replication.list(pattern)
    session.document({"peers": [_document(peer) for peer in peers]}, rows="peers")
    columns = ("peer", "state", "cluster key", "ships", "serial", "bandwidth")
    session.table("", columns, [_line(peer) for peer in peers])
    session.say(counted(len(peers), "peer"))


@replication.command()
@click.argument("peer")
@click.argument("key")
@_selection
@click.option("--endpoint", help="A Java class of the servers that ships the edits.  [default: HBase's own]")
@click.option("--disabled", is_flag=True, help="Keep the logs, and ship nothing until `replication enable`.")
@common
def add(session: CommandSession, peer: str, key: str, endpoint: str | None, disabled: bool, **selection: Any) -> None:
    """Add PEER, the cluster with the cluster KEY, to which all or some tables are shipped.

    KEY is the ZooKeeper quorum, port and parent of the other cluster, as in HBase's shell.

    \b
    metaclient replication add west zk9:2181:/hbase
    metaclient replication add west zk8,zk9:2181:/hbase --table orders --table ns:users=cf --serial
    """
    options = _changes(**selection)
    with session.connect() as connection:
        connection.replication.add(peer, key, endpoint=endpoint, enabled=not disabled, **options)
    session.done({"added": peer, "enabled": not disabled}, f"peer {peer} added{', disabled' if disabled else ''}")


@replication.command()
@click.argument("peer")
@_selection
@click.option("--all-tables", is_flag=True, help="Ship all tables again: forget --table and --namespace.")
@common
def update(session: CommandSession, peer: str, all_tables: bool, **selection: Any) -> None:
    """Change PEER. Options that are not given keep their values; a given list replaces the old one.

    \b
    metaclient replication update west --bandwidth 5000000
    metaclient replication update west --table orders --table users
    metaclient replication update west --all-tables --exclude-table logs
    """
    changes = _changes(**selection)
    if all_tables:
        if "tables" in changes or "namespaces" in changes:
            raise click.UsageError("--all-tables contradicts --table and --namespace")
        changes |= {"tables": {}, "namespaces": (), "replicate_all": True}
    if not changes:
        raise click.UsageError("nothing to change: give at least one option, see --help")
    with session.connect() as connection:
        connection.replication.update(peer, **changes)
    session.done({"updated": peer, "changes": sorted(changes)}, f"peer {peer} updated: {', '.join(sorted(changes))}")


@replication.command()
@click.argument("peer")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@common
def remove(session: CommandSession, peer: str, yes: bool) -> None:
    """Remove PEER. Edits that were not shipped yet are never shipped.

    \b
    metaclient replication remove west --yes
    """
    session.confirm(yes, "remove", f"Remove peer {peer} and the edits that it has not got yet?")
    with session.connect() as connection:
        connection.replication.remove(peer)
    session.done({"removed": peer}, f"peer {peer} removed")


@replication.command()
@click.argument("peer")
@common
def enable(session: CommandSession, peer: str) -> None:
    """Ship to PEER again. HBase 2.x ships the current log of each server from its start.

    \b
    metaclient replication enable west
    """
    with session.connect() as connection:
        connection.replication.enable(peer)
    session.done({"enabled": peer}, f"peer {peer} enabled")


@replication.command()
@click.argument("peer")
@common
def disable(session: CommandSession, peer: str) -> None:
    """Stop shipping to PEER. The servers keep the logs, which take space until the peer is enabled or removed.

    \b
    metaclient replication disable west
    """
    with session.connect() as connection:
        connection.replication.disable(peer)
    session.done({"disabled": peer}, f"peer {peer} disabled")


@replication.command()
@click.option("--peer", "wanted", help="Only this peer.")
@common
def status(session: CommandSession, wanted: str | None) -> None:
    """Show how far each server has shipped to each peer, and what it has applied as a sink.

    \b
    metaclient replication status --url hbase://zk1:2181
    metaclient replication status --peer west --json
    """
    with session.connect() as connection:
        servers = connection.replication.status()
    sources = [load for server in servers for load in server.sources if wanted in (None, load.peer_id)]
    document = {"sources": [source_load_document(load) for load in sources], "sinks": _sinks(servers)}
    session.document(document)
    session.table("sources", _SOURCE_COLUMNS, [_source_line(load) for load in sources])
    for load in sources:
        if load.last_error:
            session.say(f"{load.peer_id} on {load.server.address}: nothing is shipped now: {load.last_error}")
        for one in load.blocked:
            session.say(f"{load.peer_id} on {load.server.address}: region {one.region} waits for {one.waits_for}")
    if wanted is None and session.is_for_people:  # tsv has one table: the sources
        sinks = [(one.server.address, one.sink) for one in servers if one.sink is not None]
        rows = [(address, sink.age_of_last_applied_ms, sink.edits_applied) for address, sink in sinks]
        session.table("sinks", ("server", "age of last applied ms", "applied"), rows)
    session.say(f"{counted(len(servers), 'server')}, {counted(len(sources), 'source')}")


def _changes(
    *,
    tables: Sequence[str],
    namespaces: Sequence[str],
    exclude_tables: Sequence[str],
    exclude_namespaces: Sequence[str],
    bandwidth: int | None,
    serial: bool | None,
    settings: Sequence[str],
) -> dict[str, Any]:
    """Return the options that were given, as arguments of ``Replication.add`` and ``update``."""
    made: dict[str, Any] = {
        "tables": _tables_of(tables),
        "namespaces": [from_text(name) for name in namespaces],
        "exclude_tables": _tables_of(exclude_tables),
        "exclude_namespaces": [from_text(name) for name in exclude_namespaces],
        "configuration": _settings(settings),
    }
    made = {name: value for name, value in made.items() if value}
    if bandwidth is not None:
        made["bandwidth"] = bandwidth
    if serial is not None:
        made["serial"] = serial
    return made


def _tables_of(texts: Iterable[str]) -> dict[bytes, list[bytes]]:
    """
    >>> _tables_of(["orders", "ns:users=cf,d"])
    {b'orders': [], b'ns:users': [b'cf', b'd']}
    """
    made: dict[bytes, list[bytes]] = {}
    for text in texts:
        table, _, families = text.partition("=")
        made[from_text(table)] = [from_text(family) for family in families.split(",") if family]
    return made


def _settings(texts: Iterable[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise click.UsageError(f"--set takes NAME=VALUE, got {name!r}")
    return {name: value for name, _, value in pairs}


def _document(peer: Peer) -> dict[str, Any]:
    config = peer.config
    return {
        "id": peer.id,
        "state": peer.state.name,
        "cluster_key": config.cluster_key,
        "endpoint": config.endpoint,
        "replicate_all": config.replicate_all,
        "tables": _tables_document(config.tables),
        "namespaces": sorted(map(to_text, config.namespaces)),
        "exclude_tables": _tables_document(config.exclude_tables),
        "exclude_namespaces": sorted(map(to_text, config.exclude_namespaces)),
        "bandwidth": config.bandwidth,
        "serial": config.serial,
        "configuration": dict(config.configuration),
    }


def _tables_document(tables: Mapping[bytes, Sequence[bytes]]) -> dict[str, list[str]]:
    return {to_text(table): [to_text(family) for family in families] for table, families in tables.items()}


def _line(peer: Peer) -> tuple[object, ...]:
    config = peer.config
    key = config.cluster_key or config.endpoint
    bandwidth = config.bandwidth or "unlimited"
    return peer.id, peer.state.name, key, _ships(config), "yes" if config.serial else "no", bandwidth


def _ships(config: PeerConfig) -> str:
    """Return the shipped tables for people.

    >>> _ships(PeerConfig(exclude_tables={b"logs": ()}))
    'all tables except logs'
    >>> _ships(PeerConfig(replicate_all=False, tables={b"t": (b"cf", b"d")}, namespaces=frozenset({b"ns"})))
    't=cf,d, namespace ns'
    """
    if config.replicate_all:
        excluded = _selected(config.exclude_tables, config.exclude_namespaces)
        return f"all tables except {excluded}" if excluded else "all tables"
    return _selected(config.tables, config.namespaces) or "nothing"


def _selected(tables: Mapping[bytes, Sequence[bytes]], namespaces: Iterable[bytes]) -> str:
    parts = [
        f"{to_text(table)}={','.join(map(to_text, families))}" if families else to_text(table)
        for table, families in tables.items()
    ]
    return ", ".join([*parts, *(f"namespace {to_text(name)}" for name in sorted(namespaces))])


_SOURCE_COLUMNS = (
    "server",
    "peer",
    "queue",
    "lag ms",
    "logs",
    "edits",
    "bytes",
    "age of last ms",
    "shipped",
    "sinks",
    "failed calls",
    "state",
)


def _source_line(load: SourceLoad) -> tuple[object, ...]:
    """Return the cells of a source; numbers that a real HBase does not report are "-"."""
    queue = load.queue_id if load.is_recovered else ""
    state = "running" if load.is_running else "not running"
    if load.blocked:
        state = "blocked"
    return (
        load.server.address,
        load.peer_id,
        queue,
        load.lag_ms,
        load.log_queue,
        *_if_known(load.queue_edits, load.queue_bytes),
        load.age_of_last_shipped_ms,
        load.edits_shipped,
        ", ".join(sink.address for sink in load.sinks) or "-",
        *_if_known(load.failed_calls),
        state,
    )


def _if_known(*values: int | None) -> tuple[object, ...]:
    return tuple(["-" if value is None else value for value in values])


def _sinks(servers: Iterable[ReplicationStatus]) -> list[dict[str, Any]]:
    return [{"server": str(one.server), **asdict(one.sink)} for one in servers if one.sink is not None]
