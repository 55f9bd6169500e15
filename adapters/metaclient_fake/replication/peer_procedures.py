"""Decides how peers are added, changed and removed: the procedures of the master (``ModifyPeerProcedure``, HBase 2.6).

1. Check (:mod:`metaclient_fake.replication.peer_rules`). A refused change has touched nothing.
2. Write the storage. From here on the procedure goes forward only: a failed step is repeated.
3. Refresh every live server, and wait for each of them: old sources have ended when the call returns.
4. For a serial peer: reopen regions and store the pushed ids, so that older edits are not waited for; then enable it.
5. For a removed peer: remove its queues and pushed ids.

DIVERGENCES: changes of peers run one at a time (HBase: one per peer at a time). Peers that cannot be reached are
accepted, as in 3.0; HBase 2.6.1 refuses them when their ZooKeeper does not answer.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from metaclient.errors import ConnectionClosed, Disposition, MetaClientError
from metaclient.replication_peers import Peer, PeerConfig, PeerState
from metaclient.runtime import Runtime
from metaclient_fake.replication import peer_rules
from metaclient_fake.replication.peer_rules import KnownClasses
from metaclient_fake.replication.peer_store import PeerStore
from metaclient_fake.replication.pushed_ids import PushedIds
from metaclient_fake.replication.queues import QueueStore

__all__ = ["PeerCluster", "PeerProcedures", "SerialTables"]

logger = logging.getLogger(__name__)

#: ProcedureUtil: the pauses between attempts of a step grow from 1 s, doubled each time ...
_PAUSE_S = 1.0
#: ... up to this (HBase: 10 minutes).
_PAUSE_S_MAX = 10.0


class PeerCluster(Protocol):
    """The cluster whose peers these are."""

    @property
    def cluster_id(self) -> str: ...

    def cluster_id_of(self, cluster_key: str) -> str | None:
        """Return the id of the cluster at a key; None when it is not known."""
        ...

    def refresh(self, peer_id: str) -> None:
        """Have every live server take over the stored peer; return when all of them have."""
        ...

    def pause(self, seconds: float) -> None:
        """Wait; raise ConnectionClosed when the cluster is closed."""
        ...


class SerialTables(Protocol):
    """The regions of a cluster, for serial peers."""

    def prepare(self, old: PeerConfig | None, new: PeerConfig) -> Mapping[str, int]:
        """Reopen the regions that become serial; return the last barrier - 1 of each, by encoded name."""
        ...

    def removed(self, old: PeerConfig, new: PeerConfig) -> list[str]:
        """Return the regions that are serial with ``old`` and not with ``new``."""
        ...

    def is_serial(self, config: PeerConfig) -> bool:
        """Return True if a peer gets the edits of some tables in order."""
        ...


class PeerProcedures:
    """The peers as the master knows them. ``_turn`` is held over a whole procedure."""

    def __init__(
        self,
        runtime: Runtime,
        cluster: PeerCluster,
        *,
        store: PeerStore,
        queues: QueueStore,
        pushed: PushedIds,
        base_config: Mapping[str, str] | None = None,
        known: KnownClasses | None = None,
        serial: SerialTables | None = None,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._queues = queues
        self._pushed = pushed
        self._base_config = dict(base_config or {})
        self._known = known or KnownClasses()
        self._serial = serial
        self._turn = runtime.lock()
        #: Replaced as a whole, read without a lock.
        self._peers: Mapping[str, Peer] = {}
        self._load()

    def _load(self) -> None:
        """Read the stored peers as a master does at its start: ``hbase.replication.peer.base.config`` wins."""
        for peer_id in self._store.ids():
            peer = self._store.get(peer_id)
            if peer is not None:
                config = peer_rules.with_base_config(peer.config, self._base_config)
                if config != peer.config:
                    self._store.set_config(peer_id, config)
                self._know(replace(peer, config=config))

    # -- questions ---------------------------------------------------------------------------------------------

    def peers(self, pattern: str | None = None) -> list[Peer]:
        """Return the peers whose whole id matches a regular expression, sorted by id."""
        try:
            wanted = re.compile(pattern or ".*", re.DOTALL)
        except re.error as error:
            raise peer_rules.refused(f"{pattern!r} is not a regular expression: {error}") from error
        return [peer for peer_id, peer in sorted(self._peers.items()) if wanted.fullmatch(peer_id)]

    def peer(self, peer_id: str) -> Peer:
        return peer_rules.check_removal(peer_id, self._peers)

    # -- changes -----------------------------------------------------------------------------------------------

    def add(self, peer_id: str, config: PeerConfig, state: PeerState = PeerState.ENABLED) -> None:
        with self._turn:
            config = peer_rules.with_base_config(config, self._base_config)
            peer_rules.check_new_peer(peer_id, config, self._peers, self._known)
            if peer_rules.needs_cluster_key(config):
                other = self._cluster.cluster_id_of(config.cluster_key)
                peer_rules.check_other_cluster(config, other, self._cluster.cluster_id)
            self._check_queues_deleted(peer_id)
            is_serial = self._is_serial(config)
            first = Peer(peer_id, PeerState.DISABLED if is_serial else state, config)
            self._write(first, self._store.add, first)
            self._cluster.refresh(peer_id)
            if is_serial:
                self._make_serial(None, first)
                if state is PeerState.ENABLED:
                    self._change_state(first, state)
            logger.info("replication peer %s was added, %s", peer_id, state.name)

    def remove(self, peer_id: str) -> None:
        with self._turn:
            peer_rules.check_removal(peer_id, self._peers)
            self._retry(lambda: self._store.remove(peer_id))
            self._forget(peer_id)
            self._cluster.refresh(peer_id)
            self._retry(lambda: self._queues.remove_peer(peer_id))
            self._retry(lambda: self._pushed.remove(peer_id))
            logger.info("replication peer %s was removed", peer_id)

    def set_state(self, peer_id: str, state: PeerState) -> None:
        with self._turn:
            peer = peer_rules.check_state_change(peer_id, state, self._peers)
            self._change_state(peer, state)
            logger.info("replication peer %s: %s", peer_id, state.name)

    def update(self, peer_id: str, config: PeerConfig) -> None:
        """Replace the configuration of a peer; its ``configuration`` is merged into the old one."""
        with self._turn:
            old = peer_rules.check_update(peer_id, config, self._peers, self._known)
            new = replace(old, config=peer_rules.merged_update(old.config, config))
            needs_ids = self._is_serial(new.config) and not peer_rules.is_key_config_equal(old.config, new.config)
            # A peer that becomes serial is disabled until its ids are stored: nothing is shipped without order.
            becomes_serial = needs_ids and not old.config.serial and old.state is PeerState.ENABLED
            if becomes_serial:
                self._change_state(old, PeerState.DISABLED)
                new = replace(new, state=PeerState.DISABLED)
            self._write(new, self._store.set_config, peer_id, new.config)
            self._cluster.refresh(peer_id)
            if needs_ids:
                self._make_serial(old.config, new)
            self._drop_ids(old.config, new)
            if becomes_serial:
                self._change_state(new, PeerState.ENABLED)
            logger.info("replication peer %s was updated", peer_id)

    def _is_serial(self, config: PeerConfig) -> bool:
        return self._serial is not None and self._serial.is_serial(config)

    # -- steps -------------------------------------------------------------------------------------------------

    def _check_queues_deleted(self, peer_id: str) -> None:
        """Refuse an id whose queues of an earlier peer are left, because their old logs would be shipped, too."""
        for queue in self._queues.all_queues(peer_id):
            raise peer_rules.refused(
                f"undeleted queue for peerId: {peer_id}, replicator: {queue.server}, queueId: {queue.text}"
            )

    def _change_state(self, peer: Peer, state: PeerState) -> None:
        self._write(replace(peer, state=state), self._store.set_state, peer.id, state)
        self._cluster.refresh(peer.id)

    def _make_serial(self, old: PeerConfig | None, peer: Peer) -> None:
        if self._serial is not None:
            ids = self._serial.prepare(old, peer.config)
            self._retry(
                lambda: self._pushed.set_all(peer.id, {one: number for one, number in ids.items() if number >= 0})
            )

    def _drop_ids(self, old: PeerConfig, peer: Peer) -> None:
        """Remove the pushed ids that no table of the peer needs any more."""
        if old.serial and not self._is_serial(peer.config):
            self._retry(lambda: self._pushed.remove(peer.id))
        elif self._serial is not None and not peer_rules.is_key_config_equal(old, peer.config):
            regions = self._serial.removed(old, peer.config)
            self._retry(lambda: self._pushed.remove(peer.id, regions))

    def _write(self, peer: Peer, write: Callable[..., None], *arguments: object) -> None:
        self._retry(lambda: write(*arguments))
        self._know(peer)

    def _retry(self, step: Callable[[], None]) -> None:
        """Repeat a step until it succeeds. An error that no repetition can cure (FATAL) ends the procedure."""
        pause_s = _PAUSE_S
        while True:
            try:
                step()
            except ConnectionClosed:
                raise
            except MetaClientError as error:
                if error.disposition is Disposition.FATAL:
                    raise
                logger.warning("a step of a replication procedure failed, again in %g s: %s", pause_s, error)
            else:
                return
            self._cluster.pause(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    def _know(self, peer: Peer) -> None:
        self._peers = {**self._peers, peer.id: peer}

    def _forget(self, peer_id: str) -> None:
        self._peers = {known: peer for known, peer in self._peers.items() if known != peer_id}
