"""A subscription: a replication peer of the cluster whose servers are this process and its siblings.

HBase has no word for a subscription; it sees a peer. The peer's ``configuration`` marks it as ours and holds what must
outlive its workers, so that nothing is stored elsewhere:

=================================  ================================================================================
``metaclient.changes.name``        the name; the id of the peer is the same with ``_`` for ``-``, which HBase refuses
``metaclient.changes.created_ms``  edits that were written before are not delivered: a new peer gets the current log
                                   of each server from its beginning, and HBase 2.x sends it again after some changes
``metaclient.changes.snapshot``    ``pending:MS`` or ``done:MS`` of a subscription that was made with ``since=``
=================================  ================================================================================

The cluster id of the peer is derived from the name, so that it is the same after every restart.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import NAMESPACE_URL, uuid5

from metaclient import keys
from metaclient.backend import ChangeBackend, ChangeHost, ChangeWorker
from metaclient.changes.snapshot import TableSnapshot
from metaclient.engine import Engine
from metaclient.errors import AccessDenied, BackendFault, MetaClientError, RequestRefused, Unsupported
from metaclient.replication_peers import Peer, PeerState, SourceLoad
from metaclient.wire.exposure import ListenerProtection
from metaclient.wire.rpc.receiving import Receiver
from metaclient.wire.rpc.replication import Scope

if TYPE_CHECKING:
    from metaclient.connection import Connection

__all__ = ["Subscription", "SubscriptionInfo", "Subscriptions", "change_host", "checked_name", "instant_ms"]

logger = logging.getLogger(__name__)

NAME, CREATED, SNAPSHOT = (f"metaclient.changes.{key}" for key in ("name", "created_ms", "snapshot"))
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
#: For one step at ZooKeeper or the master: longer than a session of ZooKeeper, so that a lost one can be replaced.
HOST_TIMEOUT_S = 30.0
_PENDING, _DONE = "pending", "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionInfo:
    """A subscription as the cluster stores it."""

    name: str
    peer_id: str
    tables: tuple[bytes, ...]
    serial: bool
    created_ms: int
    is_enabled: bool
    snapshot: str = ""  # "pending:MS" or "done:MS"

    @property
    def snapshot_from_ms(self) -> int | None:
        """The instant from which tables are still to be read; None if there is no snapshot, or it is complete."""
        state, _, from_ms = self.snapshot.partition(":")
        return int(from_ms) if state == _PENDING else None


def checked_name(name: object) -> str:
    """Return the name of a subscription, or raise ValueError."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            f"'name' must be letters, digits, '_', '.' and '-', at most 63 of them, the first a letter or a digit; "
            f"got {name!r}"
        )
    return name


def peer_id_of(name: str) -> str:
    """
    >>> peer_id_of("search-index")
    'search_index'
    """
    return name.replace("-", "_")


def cluster_id_of(name: str) -> str:
    return str(uuid5(NAMESPACE_URL, f"metaclient-changes:{name}"))


def instant_ms(since: datetime | float | None) -> int | None:
    """Return ``since`` in milliseconds since the epoch; ValueError for anything else than an instant.

    >>> instant_ms(1.5), instant_ms(None)
    (1500, None)
    """
    if since is None:
        return None
    if isinstance(since, datetime):
        if since.tzinfo is None:
            raise ValueError(f"'since' must have a time zone (datetime.now(UTC), for example), got {since!r}")
        since = since.timestamp()
    if isinstance(since, bool) or not isinstance(since, int | float) or not 0 <= since < 1e11:
        raise ValueError(f"'since' must be a datetime or seconds since the epoch, got {since!r}")
    return round(since * 1000)


def host_deadline(engine: Engine) -> float:
    """Return the deadline of a call of ZooKeeper or of the master that starts now."""
    return engine.runtime.now() + min(engine.config.operation_timeout_s, HOST_TIMEOUT_S)


def change_host(connection: Connection) -> ChangeHost:
    """Return the part of the backend that makes this process a peer; Unsupported if the backend has none."""
    backend = connection.engine.backend
    if not isinstance(backend, ChangeBackend):
        raise Unsupported(
            f"the backend {backend.name!r} cannot subscribe to changes: connect with hbase:// (ZooKeeper) to the same "
            "cluster"
        )
    return backend.change_host


class Subscription:
    """An open subscription, as a feed uses it."""

    def __init__(self, connection: Connection, info: SubscriptionInfo, *, is_new: bool = False) -> None:
        """``is_new``: the subscription was made by the caller just now."""
        self._connection = connection
        self._info = info
        self.is_new = is_new
        self.name = info.name
        self.tables = info.tables
        self.created_ms = info.created_ms
        self.snapshot_from_ms = info.snapshot_from_ms

    def join(
        self,
        receiver: Receiver,
        *,
        host: str | None,
        port: int,
        bind: str | None,
        protection: ListenerProtection | None = None,
    ) -> ChangeWorker:
        """Listen, and publish the address."""
        engine, info = self._connection.engine, self._info
        until = host_deadline(engine)
        cluster_id = cluster_id_of(self.name)
        where = change_host(self._connection)
        where.prepare(info.peer_id, cluster_id, until)  # another process may have removed them with its peer
        return where.join(
            info.peer_id, cluster_id, receiver, until, host=host, port=port, bind=bind, protection=protection
        )

    def open_snapshot(self) -> TableSnapshot:
        engine = self._connection.engine
        families = {table: replicated_families(self._connection, table) for table in self.tables}
        return TableSnapshot(engine, families, self.snapshot_from_ms or 0)

    def finish_snapshot(self) -> None:
        """Store that the snapshot was processed: no worker reads it again."""
        done = f"{_DONE}:{self.snapshot_from_ms}"
        self._connection.replication.update(self._info.peer_id, configuration={SNAPSHOT: done})
        self.snapshot_from_ms = None

    def remove_if_new(self) -> None:
        """Remove the subscription if it was made with this object."""
        if self.is_new:
            Subscriptions(self._connection).remove(self.name)

    def blocked_sources(self, at_least_s: float, own_address: str) -> list[str]:
        """Return the servers that have had edits for this subscription for so long, if ``own_address`` is alone."""
        engine, peer_id = self._connection.engine, self._info.peer_id
        others = change_host(self._connection).workers(peer_id, host_deadline(engine))
        if any(other != own_address for other in others):
            return []
        loads = sources_of(self._connection, peer_id)
        return sorted({str(load.server) for load in loads if is_waiting(load, at_least_s)})


def is_waiting(load: SourceLoad, at_least_s: float) -> bool:
    """Return True if a queue has an edit that has waited for so long."""
    return load.lag_ms >= at_least_s * 1000


def sources_of(connection: Connection, peer_id: str) -> list[SourceLoad]:
    return [load for status in connection.replication.status() for load in status.sources if load.peer_id == peer_id]


def replicated_families(connection: Connection, table: bytes) -> list[bytes]:
    """Return the families of a table that HBase ships; RequestRefused if there are none."""
    descriptor = connection.engine.describe(table)
    shipped = [one.name for one in descriptor.families if one.replication_scope == Scope.GLOBAL]
    if not shipped:
        shown = keys.printable(table)
        family = keys.printable(descriptor.families[0].name) if descriptor.families else "cf"
        raise RequestRefused(
            f"no family of table {shown!r} is replicated, so that HBase ships none of its changes: set "
            f"REPLICATION_SCOPE to 1, in HBase's shell with alter '{shown}', {{NAME => '{family}', "
            "REPLICATION_SCOPE => 1}, or with replication_scope=1 in create_table()"
        )
    return shipped


class Subscriptions:
    """The subscriptions of a cluster: made, listed and removed. Each is a replication peer."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self) -> _Infos:
        """Return all subscriptions, sorted by name."""
        found = [info for peer in self._peers() if (info := info_of(peer)) is not None]
        return sorted(found, key=lambda info: info.name)

    def get(self, name: str) -> SubscriptionInfo:
        """Return a subscription; RequestRefused if there is none of this name."""
        found = self._find(checked_name(name))
        if found is None:
            known = ", ".join(info.name for info in self.list()) or "none"
            raise RequestRefused(f"there is no subscription {name!r}; there are: {known}")
        return found

    def create(
        self,
        name: str,
        tables: Iterable[bytes | str],
        *,
        serial: bool = False,
        since: datetime | float | None = None,
    ) -> SubscriptionInfo:
        """Make a subscription; RequestRefused if there is one of this name."""
        wanted = _tables(tables)
        if self._find(checked_name(name)) is not None:
            raise RequestRefused(f"there is a subscription {name!r} already")
        return self._create(name, wanted, bool(serial), instant_ms(since))

    def ensure(
        self,
        name: str,
        tables: Iterable[bytes | str],
        *,
        serial: bool = False,
        since: datetime | float | None = None,
    ) -> tuple[SubscriptionInfo, bool]:
        """Return the subscription of this name, and True if it was made now, because there was none.

        RequestRefused if there is one with other tables, in another order, or without the snapshot.
        """
        wanted, from_ms = _tables(tables), instant_ms(since)
        found = self._find(checked_name(name))
        if found is None:
            return self._create(name, wanted, bool(serial), from_ms), True
        self._check_same(found, wanted, bool(serial), from_ms)
        return found, False

    def remove(self, name: str) -> None:
        """Remove a subscription: the cluster keeps no logs for it any more, and changes not delivered are lost."""
        info = self.get(name)
        engine = self._connection.engine
        host = change_host(self._connection)
        workers = host.workers(info.peer_id, host_deadline(engine))
        if workers:
            raise RequestRefused(
                f"the subscription {name!r} has {len(workers)} workers ({', '.join(workers)}): end them first. The "
                "address of a worker that was killed goes when its session with ZooKeeper ends, after some seconds"
            )
        self._connection.replication.remove(info.peer_id)
        host.withdraw(info.peer_id, host_deadline(engine))

    def undo(self, name: str) -> None:
        """Remove a new subscription after an error, which is reported instead of an error of the removal."""
        try:
            self.remove(name)
        except MetaClientError as error:
            logger.warning(
                "the subscription %s was made, and cannot be removed (%s): the cluster keeps its logs for it until "
                "`metaclient changes remove %s`",
                name,
                error,
                name,
            )

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _peers(self) -> _Peers:
        """Return all replication peers; AccessDenied, with the right that is needed, if the master denies it."""
        try:
            return self._connection.replication.list()
        except AccessDenied as error:
            raise AccessDenied(
                f"subscriptions are replication peers, and the master denies this user to list them: {error}. Making, "
                "using and removing a subscription needs the global right ADMIN"
            ) from error

    def _find(self, name: str) -> SubscriptionInfo | None:
        """Return the subscription, None if there is none; RequestRefused if another peer has its id."""
        peer_id = peer_id_of(name)
        peer = next((one for one in self._peers() if one.id == peer_id), None)
        if peer is None:
            return None
        info = info_of(peer)
        key = change_host(self._connection).cluster_key(peer_id)
        if info is None or info.name != name:
            owner = "a replication peer" if info is None else f"the subscription {info.name!r}"
            raise RequestRefused(
                f"the subscription {name!r} needs the id {peer_id!r}, which {owner} has (its cluster key is "
                f"{peer.config.cluster_key!r}): choose another name"
            )
        if peer.config.cluster_key != key:
            raise RequestRefused(
                f"the subscription {name!r} was made with the cluster key {peer.config.cluster_key!r}, and this "
                f"connection has {key!r}: connect with the same ZooKeeper addresses, or remove the subscription first"
            )
        return info

    def _create(self, name: str, tables: Sequence[bytes], serial: bool, from_ms: int | None) -> SubscriptionInfo:
        connection, peer_id = self._connection, peer_id_of(name)
        engine, host = connection.engine, change_host(connection)
        for table in tables:
            replicated_families(connection, table)
        created_ms = host.server_time_ms(host_deadline(engine))
        configuration = {NAME: name, CREATED: str(created_ms)}
        if from_ms is not None:
            configuration[SNAPSHOT] = f"{_PENDING}:{from_ms}"
        has_prepared = host.prepare(peer_id, cluster_id_of(name), host_deadline(engine))
        try:
            connection.replication.add(
                peer_id, host.cluster_key(peer_id), tables=tables, serial=serial, configuration=configuration
            )
        except MetaClientError as error:
            found = self._find_quietly(name)
            if found is not None:
                return found  # another worker has made it at the same time
            if has_prepared:
                self._withdraw_quietly(peer_id)
            if isinstance(error, RequestRefused | BackendFault):  # HBase reports its switch of peers as an IOException
                kind = AccessDenied if isinstance(error, AccessDenied) else RequestRefused
                raise kind(
                    f"the subscription {name!r} was not made, because the master refused its peer: {error}. Adding "
                    "a peer needs the right ADMIN, and the cluster must allow replication and changes of peers"
                ) from error
            raise
        logger.info("the subscription %s was made: the cluster keeps its logs for it until it is removed", name)
        return self.get(name)

    def _find_quietly(self, name: str) -> SubscriptionInfo | None:
        try:
            return self._find(name)
        except MetaClientError:
            return None

    def _withdraw_quietly(self, peer_id: str) -> None:
        """Remove the nodes after an error, which is reported instead of an error of the removal."""
        try:
            change_host(self._connection).withdraw(peer_id, host_deadline(self._connection.engine))
        except MetaClientError as error:
            logger.warning(
                "the nodes of the peer %s stay in ZooKeeper, because they cannot be deleted: %s", peer_id, error
            )

    def _check_same(self, info: SubscriptionInfo, tables: Sequence[bytes], serial: bool, from_ms: int | None) -> None:
        problem = ""
        if set(info.tables) != set(tables):
            problem = f"it has the tables {', '.join(map(keys.printable, info.tables))}"
        elif info.serial != serial:
            problem = f"it was made with serial={info.serial}"
        elif from_ms is not None and not info.snapshot:
            problem = "it was made without since=, and its log begins at its creation"
        elif not info.is_enabled:
            raise RequestRefused(
                f"the subscription {info.name!r} gets no changes, because its peer is disabled: enable it by "
                f"connection.replication.enable({info.peer_id!r}) or `metaclient replication enable {info.peer_id}`"
            )
        if problem:
            raise RequestRefused(
                f"the subscription {info.name!r} is not the one that is asked for: {problem}. Remove it, or choose "
                "another name"
            )


_Infos = list[SubscriptionInfo]
_Peers = list[Peer]


def info_of(peer: Peer) -> SubscriptionInfo | None:
    """Return the subscription that a peer is; None if the peer is another cluster."""
    configuration: Mapping[str, str] = peer.config.configuration
    name = configuration.get(NAME)
    if name is None:
        return None
    created = configuration.get(CREATED, "")
    return SubscriptionInfo(
        name=name,
        peer_id=peer.id,
        tables=tuple(sorted(peer.config.tables)),
        serial=peer.config.serial,
        created_ms=int(created) if created.isdigit() else 0,
        is_enabled=peer.state is PeerState.ENABLED,
        snapshot=configuration.get(SNAPSHOT, ""),
    )


def _tables(tables: Iterable[bytes | str]) -> list[bytes]:
    if isinstance(tables, bytes | str):
        tables = [tables]
    made = sorted({keys.table_name(keys.as_bytes(table, "table")) for table in tables})
    if not made:
        raise ValueError("a subscription needs at least one table")
    return made
