"""Decides which sources a region server runs: one per peer for its own logs, one per queue that it claimed.

Mirrors ``ReplicationSourceManager`` and ``PeerProcedureHandlerImpl`` of HBase 2.6.1 and 3.0:

- A new peer gets the current log of the server, from its beginning, with edits that are older than the peer.
- A roll adds the new log to the queue of every peer; the source reads on to it.
- A stored position removes the older logs of the same group from the queue.
- Disabling a peer, and a change of its tables, namespaces or serial flag, ends its sources and makes new ones. A source
  for the server's own logs then starts at offset 0 of its first log (behaviour "2.6", which ships the whole log again)
  or at the stored position ("3.0"). A source of a claimed queue starts at the stored position in both.
- A queue that cannot be written any more ends the server: another server has claimed it.

Two locks, in this order: ``_changes`` is held over a whole change of a peer or a claim, also while sources stop;
``_lock`` guards the maps and is held over short steps only. Sources call back with neither of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from metaclient.model import ServerName
from metaclient.replication_peers import Peer, PeerState, SourceLoad
from metaclient.runtime import Runtime
from metaclient_fake.config.replication import PeerReplicationConfig
from metaclient_fake.coordination.znodes import NoNode
from metaclient_fake.replication.batches import StorePosition
from metaclient_fake.replication.peer_rules import is_key_config_equal
from metaclient_fake.replication.peer_store import PeerStore
from metaclient_fake.replication.queues import QueueId, QueueStore, is_meta_wal, wal_group

__all__ = ["RunningSource", "SourceFactory", "SourceManager"]

logger = logging.getLogger(__name__)


class RunningSource(Protocol):
    """A source as the manager sees it."""

    def start(self) -> None:
        """Start its tasks; return at once."""
        ...

    def stop(self) -> None:
        """Have its tasks end; return at once. Idempotent."""
        ...

    def wait_ended(self, deadline: float) -> bool:
        """Wait until all of its tasks have ended; False at the deadline."""
        ...

    def enqueue(self, wal: str) -> None:
        """Read this new log after the others of its group; return at once."""
        ...

    def load(self) -> SourceLoad: ...


class SourceFactory(Protocol):
    """Makes the source of a queue. ``positions`` are its logs, oldest first, and where to begin in each."""

    def __call__(
        self,
        queue: QueueId,
        peer: Callable[[], Peer],
        positions: Mapping[str, int],
        *,
        store: StorePosition,
        finished: Callable[[], None],
    ) -> RunningSource:
        """``peer`` returns the peer as it is now; ``finished`` is for a claimed queue that has been read to its end."""
        ...


class _Running:
    """A queue and its source. ``wals`` is guarded by the manager's lock; a stopped one stores nothing any more."""

    __slots__ = ("is_stopped", "queue", "source", "wals")

    def __init__(self, queue: QueueId, wals: list[str]) -> None:
        self.queue = queue
        self.wals = wals
        self.source: RunningSource | None = None
        self.is_stopped = False


class SourceManager:
    """The sources of one region server."""

    def __init__(
        self,
        name: ServerName,
        *,
        runtime: Runtime,
        peers: PeerStore,
        queues: QueueStore,
        config: PeerReplicationConfig,
        current_wals: Callable[[], Sequence[str]],
        make_source: SourceFactory | None,
        abort: Callable[[str], None],
    ) -> None:
        self.name = name
        self._runtime = runtime
        self._config = config
        self._store = peers
        self._queues = queues
        self._current_wals = current_wals
        self.make_source = make_source
        self._abort = abort
        self._changes = runtime.lock()
        self._lock = runtime.lock()
        # The fields below are guarded by _lock.
        self._peers: dict[str, Peer] = {}
        self._running: dict[str, _Running] = {}  # by the text of the queue
        self._is_stopped = False

    # -- life --------------------------------------------------------------------------------------------------

    def refresh_all(self) -> None:
        """Take over all peers from the storage: at the start, and again once the master sends changes to the server.

        A change that the master stores between the two reaches the server in one of them.
        """
        for peer in sorted({*self._store.ids(), *self._peers}):
            self.refresh(peer)

    def stop(self) -> None:
        """End all sources, because the server ends. The queues stay: other servers claim them."""
        with self._lock:
            self._is_stopped = True
            running, self._running = list(self._running.values()), {}
            for one in running:
                one.is_stopped = True
        for one in running:
            if one.source is not None:
                one.source.stop()

    # -- peers -------------------------------------------------------------------------------------------------

    def refresh(self, peer_id: str) -> None:
        """Take over one peer as it is stored now: added, changed or removed. Returns when old sources have ended."""
        with self._changes:
            if self._is_stopped:
                return
            known, stored = self._peers.get(peer_id), self._store.get(peer_id)
            if stored is None:
                self._remove(peer_id)
                return
            with self._lock:
                self._peers[peer_id] = stored
            if known is None:
                self._add(stored)
            elif _is_recreated(known, stored):
                self._recreate(peer_id)

    def peer(self, peer_id: str) -> Peer | None:
        """Return the peer as this server knows it."""
        return self._peers.get(peer_id)

    def _add(self, peer: Peer) -> None:
        queue = QueueId(peer.id, self.name)
        with self._lock:
            running = self._running[queue.text] = _Running(queue, [])
            # Under the lock: a roll meanwhile waits, and then adds its log after these.
            for wal in self._current_wals():
                self._add_wal(running, wal)
            source = self._made(running)
        _start(source)

    def _remove(self, peer_id: str) -> None:
        with self._lock:
            self._peers.pop(peer_id, None)
            running = self._take(peer_id)
            for one in running:
                del self._running[one.queue.text]
        self._end(running)
        for one in running:
            self._queues.remove(one.queue)

    def _recreate(self, peer_id: str) -> None:
        """End the sources of a peer and make new ones for the same logs (``refreshSources``)."""
        with self._lock:
            old = self._take(peer_id)
        self._end(old)
        for one in old:
            with self._lock:
                if self._is_stopped:
                    return
                if one.queue.is_recovered and not one.wals:  # it was stopped after it had shipped its last log
                    del self._running[one.queue.text]
                    self._queues.remove(one.queue)
                    continue
                running = self._running[one.queue.text] = _Running(one.queue, one.wals)
                source = self._made(running)
            _start(source)

    def _take(self, peer_id: str) -> list[_Running]:
        """Return what runs for a peer, and have it store nothing any more. The caller holds the lock."""
        found = [one for one in self._running.values() if one.queue.peer == peer_id]
        for one in found:
            one.is_stopped = True
        return found

    def _end(self, running: Sequence[_Running]) -> None:
        """Stop sources and wait until they have ended.

        A source that does not end in time is left alone, as in HBase: what it still ships arrives twice, and it cannot
        store a position any more.
        """
        sources = [one.source for one in running if one.source is not None]
        for source in sources:
            source.stop()
        deadline = self._runtime.now() + self._config.source_stop_timeout_s
        late = sum([not source.wait_ended(deadline) for source in sources])
        if late:
            logger.warning("%s: %d sources did not end in %g s", self.name, late, self._config.source_stop_timeout_s)

    def _made(self, running: _Running) -> RunningSource | None:
        """Make the source of a queue. The caller holds the lock, and starts the source after it.

        Without a function that makes sources the queue is kept, and nothing is shipped.
        """
        if self.make_source is None:
            return None
        queue = running.queue
        peer = self._peers[queue.peer]
        stored = self._queues.positions(queue)
        starts_again = not queue.is_recovered and self._config.behaviour == "2.6"
        positions = {wal: 0 if starts_again else stored.get(wal, 0) for wal in running.wals}

        def store(
            wal: str, position: int, pushed_ids: Mapping[str, int] | None = None, *, is_end_of_file: bool = False
        ) -> None:
            self._store_position(running, wal, position, pushed_ids, is_end_of_file)

        running.source = self.make_source(
            queue,
            lambda: self._peers.get(queue.peer, peer),
            positions,
            store=store,
            finished=lambda: self._finished(running),
        )
        return running.source

    # -- logs --------------------------------------------------------------------------------------------------

    def log_rolled(self, wal: str) -> None:
        """Add a new log of this server to the queue of every peer. Logs of hbase:meta are not replicated."""
        if is_meta_wal(wal):
            return
        with self._lock:
            for running in self._running.values():
                if not running.queue.is_recovered and wal not in running.wals:
                    self._add_wal(running, wal)
                    if running.source is not None and not running.is_stopped:
                        running.source.enqueue(wal)

    def _add_wal(self, running: _Running, wal: str) -> None:
        if not is_meta_wal(wal):
            self._queues.add_wal(running.queue, wal)
            running.wals.append(wal)

    def _store_position(
        self, running: _Running, wal: str, position: int, ids: Mapping[str, int] | None, is_end_of_file: bool
    ) -> None:
        """Store how far a source has come, and remove the logs that it does not need any more."""
        with self._lock:
            if running.is_stopped:
                return  # a new source, or another server, has taken over from the stored position
            try:
                self._queues.set_position(running.queue, wal, position, ids)
            except NoNode as error:
                reason = f"the queue {running.queue.text} cannot be written: {error}"
            else:
                self._remove_older(running, wal, is_end_of_file)
                return
        logger.warning("%s: %s", self.name, reason)
        self._abort(reason)

    def _remove_older(self, running: _Running, wal: str, is_end_of_file: bool) -> None:
        group = [one for one in running.wals if wal_group(one) == wal_group(wal)]
        done = group[: group.index(wal) + is_end_of_file] if wal in group else []
        for one in done:
            self._queues.remove_wal(running.queue, one)
            running.wals.remove(one)

    # -- claimed queues ----------------------------------------------------------------------------------------

    def claim(self, queue: QueueId) -> None:
        """Wait ``replication.sleep.before.failover`` x 1..2, then take over the queue of a dead server, if it is there.

        The wait lets the dead server's last writes end, and gives the peer's removal time to reach this server.
        """
        self._runtime.sleep(self._config.sleep_before_failover_s * (1.0 + self._runtime.rng.random()))
        with self._changes, self._lock:
            if self._is_stopped or queue.peer not in self._peers:
                return
            claimed = self._queues.claim(queue, self.name)
            if claimed is None:
                return
            running = _Running(claimed.queue, list(claimed.positions))
            self._running[claimed.queue.text] = running
            source = self._made(running)
        logger.info("%s: claimed %s of %s, %d logs", self.name, queue.text, queue.server, len(claimed.positions))
        _start(source)

    def _finished(self, running: _Running) -> None:
        """Remove a claimed queue whose logs have all been shipped."""
        with self._lock:
            if running.is_stopped or not running.queue.is_recovered:
                return
            running.is_stopped = True
            self._running.pop(running.queue.text, None)
            self._queues.remove(running.queue)

    # -- what is shown -----------------------------------------------------------------------------------------

    def queues(self) -> list[QueueId]:
        """Return the queues that this server ships."""
        with self._lock:
            return [running.queue for running in self._running.values()]

    def loads(self) -> list[SourceLoad]:
        with self._lock:
            sources = [running.source for running in self._running.values()]
        return [source.load() for source in sources if source is not None]


def _start(source: RunningSource | None) -> None:
    if source is not None:
        source.start()


def _is_recreated(known: Peer, stored: Peer) -> bool:
    is_disabled_now = known.state is PeerState.ENABLED and stored.state is PeerState.DISABLED
    return is_disabled_now or not is_key_config_equal(known.config, stored.config)
