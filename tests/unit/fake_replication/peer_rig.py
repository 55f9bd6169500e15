"""Region servers with source managers, a master that procedures can use, and sources that a test drives by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from metaclient.errors import ServerUnreachable
from metaclient.model import ServerName
from metaclient.replication_peers import Peer, PeerConfig, PeerState, SourceLoad
from metaclient.runtime import SimRuntime
from metaclient_fake.config.replication import PeerReplicationConfig, parse_base_config
from metaclient_fake.coordination.znodes import Znodes
from metaclient_fake.replication.batches import StorePosition
from metaclient_fake.replication.claims import QueueClaims
from metaclient_fake.replication.log_cleaner import LogCleaner
from metaclient_fake.replication.manager import SourceManager
from metaclient_fake.replication.peer_procedures import PeerProcedures
from metaclient_fake.replication.peer_store import PeerStore
from metaclient_fake.replication.pushed_ids import PushedIds
from metaclient_fake.replication.queues import QueueId, QueueStore
from metaclient_fake.replication.server_tasks import ServerTasks

KEY = "west:2181:/hbase"
CONFIG = PeerConfig(cluster_key=KEY)


class ScriptedSource:
    """A source that ships nothing by itself: the test stores positions in its name."""

    def __init__(
        self,
        server: ScriptedServer,
        queue: QueueId,
        peer: Callable[[], Peer],
        positions: Mapping[str, int],
        *,
        store: StorePosition,
        finished: Callable[[], None],
    ) -> None:
        self.server = server
        self.queue = queue
        self.peer = peer
        self.positions = dict(positions)
        self.store = store
        self.finished = finished
        self.is_started = False
        self.is_stopped = False

    @property
    def wals(self) -> list[str]:
        return list(self.positions)

    def start(self) -> None:
        self.is_started = True

    def stop(self) -> None:
        self.is_stopped = True

    def wait_ended(self, deadline: float) -> bool:
        """End as slowly as the server says."""
        runtime = self.server.rig.runtime
        ends_at = runtime.now() + self.server.stop_s
        runtime.sleep(min(ends_at, deadline) - runtime.now())
        return ends_at <= deadline

    def enqueue(self, wal: str) -> None:
        self.positions[wal] = 0

    def load(self) -> SourceLoad:
        raise NotImplementedError("the tests of loads use real sources")


class ScriptedServer:
    """A region server: a log that rolls, and a source manager."""

    def __init__(self, rig: Rig, name: ServerName) -> None:
        self.rig = rig
        self.name = name
        self.stop_s = 0.0
        self.is_reachable = True
        self.aborts: list[str] = []
        self.wals = [f"{name.host}.1"]
        self.made: list[ScriptedSource] = []
        self.manager = SourceManager(
            name,
            runtime=rig.runtime,
            peers=rig.store,
            queues=rig.queues,
            config=rig.config,
            current_wals=lambda: self.wals[-1:],
            make_source=self._make_source,
            abort=self.aborts.append,
        )

    def _make_source(self, *args: Any, **options: Any) -> ScriptedSource:
        self.made.append(ScriptedSource(self, *args, **options))
        return self.made[-1]

    def running(self) -> list[ScriptedSource]:
        return [source for source in self.made if source.is_started and not source.is_stopped]

    def source(self, queue: str) -> ScriptedSource:
        """Return the running source of a queue, by the queue's text."""
        (found,) = [source for source in self.running() if source.queue.text == queue]
        return found

    def roll(self) -> str:
        self.wals.append(f"{self.name.host}.{len(self.wals) + 1}")
        self.manager.log_rolled(self.wals[-1])
        return self.wals[-1]


class Rig:
    """One cluster. The runtime, the nodes and the settings may be planted."""

    cluster_id = "own"

    def __init__(self, runtime: SimRuntime, config: PeerReplicationConfig | None = None, base_config: str = "") -> None:
        self.runtime = runtime
        self.config = config or PeerReplicationConfig()
        self.znodes = Znodes(runtime)
        self.store = PeerStore(self.znodes)
        self.pushed = PushedIds(self.znodes)
        self.queues = QueueStore(self.znodes, self.pushed)
        self.cleaner = LogCleaner(self.queues)
        self.live: dict[ServerName, ScriptedServer] = {}
        self.cluster_ids: dict[str, str] = {}
        self._tasks: ServerTasks[ScriptedServer] = ServerTasks(runtime, self)
        self.claims: QueueClaims[ScriptedServer] = QueueClaims(
            runtime, self.queues, self, lambda server, queue: server.manager.claim(queue)
        )
        self.procedures = self.new_master(base_config)

    def new_master(self, base_config: str = "") -> PeerProcedures:
        """Return the procedures of a master that starts now, on the same nodes."""
        return PeerProcedures(
            self.runtime,
            self,
            store=self.store,
            queues=self.queues,
            pushed=self.pushed,
            base_config=parse_base_config(base_config),
        )

    # -- the master --------------------------------------------------------------------------------------------

    def call(self, server: ScriptedServer, function: Callable[[], Any]) -> Any:
        if not server.is_reachable:
            raise ServerUnreachable(f"{server.name} is not reachable")
        return function()

    def pause(self, seconds: float) -> None:
        self.runtime.sleep(seconds)

    def refresh(self, peer_id: str) -> None:
        self._tasks.run_on_all(lambda server: server.manager.refresh(peer_id), "refresh-peer")

    def cluster_id_of(self, cluster_key: str) -> str | None:
        return self.cluster_ids.get(cluster_key)

    # -- servers -----------------------------------------------------------------------------------------------

    def start(self, host: str) -> ScriptedServer:
        """Start a server in the order of the fake: peers, registration, peers again."""
        server = ScriptedServer(self, ServerName(host, 16020, len(self.live) + 1))
        server.manager.refresh_all()
        self.live[server.name] = server
        server.manager.refresh_all()
        return server

    def kill(self, server: ScriptedServer) -> None:
        """Kill a server, and let others claim its queues."""
        self.live.pop(server.name, None)
        server.manager.stop()
        self.claims.run(server.name)

    def add(self, peer_id: str, config: PeerConfig = CONFIG, state: PeerState = PeerState.ENABLED) -> None:
        self.procedures.add(peer_id, config, state)
