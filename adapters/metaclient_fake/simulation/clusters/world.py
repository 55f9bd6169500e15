"""Stores one run of several clusters: the runtime, the clusters, the writers, the faults, and everything recorded.

The run of a seed:

1. the clusters start, tables and peers are made (nothing is wrong yet);
2. the writers of each cluster work while the faults strike (``spec.duration_s``);
3. everything is healed and every peer is enabled; within :data:`SETTLE_S` all clusters must have the same replicated
   data, and no queue of a dead server may be left;
4. :data:`QUIET_S` later nothing may have changed;
5. writers and clusters close; nothing may be left of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from metaclient.connection import Connection
from metaclient.errors import MetaClientError
from metaclient.model import FamilyDescriptor, TableDescriptor
from metaclient.replication_peers import PeerState
from metaclient.runtime import SimRuntime, Task
from metaclient.runtime.line_preemption import LinePauses
from metaclient_fake.cluster import FakeCluster
from metaclient_fake.replication_admin import administration_of
from metaclient_fake.simulation.calm import heal, start_all, unsettled
from metaclient_fake.simulation.clusters.contents import Contents, contents_of, differences
from metaclient_fake.simulation.clusters.faults import ClustersInjector
from metaclient_fake.simulation.clusters.shipments import Shipments
from metaclient_fake.simulation.clusters.spec import ClustersSpec, WriterSpec
from metaclient_fake.simulation.clusters.writers import LOCAL_FAMILY, TABLE, UNREPLICATED_TABLE, ClusterWriter, Mutation
from metaclient_fake.simulation.history import History
from metaclient_fake.simulation.injector import Injector
from metaclient_fake.simulation.world import RunRecord, WatchedRuntime, cluster_config

__all__ = ["ClustersWorld", "Side"]

#: Simulated seconds until all clusters must be equal after the heal. A source whose quota holds three entries and that
#: pauses for a second after each batch needs 400 s for the bursts of a run; a lost message adds its timeout (60 s).
SETTLE_S = 900.0
#: Longer than the longest pause of a source (10 s), so that an edit that goes round would move again.
QUIET_S = 30.0
_LOOK_S = 2.0
_CALM_BEFORE_S = 2.0


class Side:
    """One of the clusters, as its faults see it (``Afflicted``)."""

    tables = (TABLE,)
    border_rows = tuple(b"%d" % shard for shard in range(1, 10))

    def __init__(self, name: str, cluster: FakeCluster, runtime: SimRuntime) -> None:
        self.name = name
        self.cluster = cluster
        self.runtime = runtime
        self.clients: Sequence[ClusterWriter] = ()
        self.helper: Connection = cluster.connect(client="helper", operation_timeout_s=30.0, rpc_timeout_s=2.0)
        assert cluster.replication_admin is not None, "a cluster that was just made can have peers"
        #: The peers, as the master changes them: a lost answer of the master would take up to 20 minutes to notice.
        self.peers = administration_of(cluster.replication_admin, runtime)
        self.injector = Injector(self)

    def burst(self, pick: int, count: int, size: int) -> None:
        """Put big values in quick succession into the family that is not replicated."""
        table = self.helper.table(TABLE)
        for n in range(count):
            table.put(b"%d-b" % ((pick + n) % 10), {LOCAL_FAMILY + b":big": b"x" * size})

    def left(self) -> list[str]:
        """Return what the cluster has not recovered from, and the queues of dead servers that are left."""
        queues = self.cluster.peer_replication.queues.all_queues()
        live = self.cluster.master.live
        found = unsettled(self.cluster)
        found += [f"the queue {one.text} of {one.server} is left" for one in queues if one.is_recovered]
        found += [f"the queue {one.text} of the dead {one.server} is left" for one in queues if one.server not in live]
        return [f"{self.name}: {text}" for text in found]


class ClustersWorld(RunRecord):
    """One run. ``spec`` decides all of it."""

    def __init__(self, spec: ClustersSpec, shipments: Shipments) -> None:
        super().__init__(WatchedRuntime(spec.seed, preempt=spec.preempt))
        self.spec = spec
        self.shipments = shipments
        #: Of tasks that are preempted between statements; stopped when the heal begins.
        self.pauses = spec.lines.pauses() if spec.lines else LinePauses(0.0, 0.0)
        self.history = History(self.runtime)
        self.mutations: list[Mutation] = []
        self.origins: dict[int, str] = {}  # timestamp -> the cluster whose writer drew it
        self.contents: dict[str, Contents] = {}  # of each cluster, at the end
        self.is_over = False
        self.chaos_from_s = self.chaos_until_s = 0.0
        self._timestamp = 1_000_000
        self.sides: dict[str, Side] = {}
        for name in spec.clusters:
            self.sides[name] = self._made_side(name)
        self.injector = ClustersInjector(self)
        self.clients: list[ClusterWriter] = []
        self.bursts: list[ClusterWriter] = []  # writers that faults have made

    def _made_side(self, name: str) -> Side:
        first = next(iter(self.sides.values()), None)
        cluster = FakeCluster(
            servers=self.spec.servers,
            meta_replicas=1,
            runtime=self.runtime if first is None else None,
            network=None if first is None else first.cluster.network,
            name=name,
            config=cluster_config(self.spec.settings),
        )
        self.shipments.know(name, cluster)
        return Side(name, cluster, self.runtime)

    def next_timestamp(self, origin: str) -> int:
        """Return the next timestamp, from one counter for all writers of all clusters."""
        self._timestamp += 1
        self.origins[self._timestamp] = origin
        return self._timestamp

    # -- the run -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run the first two parts."""
        self._fill()
        self.clients = [ClusterWriter(self, writer) for writer in self.spec.clients]
        for side in self.sides.values():
            side.clients = [writer for writer in self.clients if writer.spec.cluster == side.name]
        tasks = [self.runtime.start(writer.run, name=writer.name) for writer in self.clients]
        self.runtime.sleep(_CALM_BEFORE_S)
        self.chaos_from_s = self.runtime.now()
        self.runtime.start(self.injector.run, self.spec.faults, name="injector")
        self.runtime.sleep(self.spec.duration_s)
        self.chaos_until_s = self.runtime.now()
        self.is_over = True
        self._join(tasks)

    def _join(self, tasks: list[Task[None]]) -> None:
        deadline = self.runtime.now() + 600.0
        for task in tasks:
            if self.runtime.wait_first((task,), deadline) is None:
                self.report("deadlines", f"writer {task.name} does not come to an end")

    def _fill(self) -> None:
        versions = self.spec.versions
        replicated = [FamilyDescriptor(name, max_versions=versions, replication_scope=1) for name in (b"f", b"h")]
        families = (*replicated, FamilyDescriptor(LOCAL_FAMILY))
        for side in self.sides.values():
            splits = self.spec.splits[side.name]
            side.cluster.create_table(TableDescriptor(TABLE.encode(), families), splits)
            unreplicated = TableDescriptor(UNREPLICATED_TABLE.encode(), (FamilyDescriptor(LOCAL_FAMILY),))
            side.cluster.create_table(unreplicated, splits)
        for source, target in self.spec.links:
            key = self.sides[target].cluster.cluster_key
            self.sides[source].peers.add(target, key, serial=self.spec.is_serial)

    def write_burst(self, side: Side, count: int) -> None:
        """Have a client of its own put many rows of a cluster in quick succession."""
        number = len(self.spec.clients) + len(self.bursts)
        writer = ClusterWriter(self, WriterSpec(number, side.name, {"operation_timeout_s": 6.0, "rpc_timeout_s": 2.0}))
        self.bursts.append(writer)
        writer.put_quickly(count)

    # -- the heal ------------------------------------------------------------------------------------------------

    def calm_down(self) -> None:
        """Run the third and the fourth part; violations are reported at once."""
        self.pauses.stop()
        for side in self.sides.values():
            heal(side.cluster)
        if not self._wait_until_equal():
            return
        self.runtime.sleep(QUIET_S)
        self._read_all()
        for text in differences(self)[:5]:
            self.report("equality", f"{QUIET_S:g} s after the clusters were equal: {text}")

    def _wait_until_equal(self) -> bool:
        deadline = self.runtime.now() + SETTLE_S
        while found := self._left():
            if self.runtime.now() >= deadline:
                for checker, text in found[:5]:
                    self.report(checker, f"{SETTLE_S:g} s after the heal: {text}")
                return False
            self.runtime.sleep(_LOOK_S)
            for side in self.sides.values():
                start_all(side.cluster)
        return True

    def _left(self) -> list[tuple[str, str]]:
        """Return what is not well yet: the checker and the text. The data are compared when all else is well."""
        found = [f"{name} is under way" for name in self.injector.running()]
        for side in self.sides.values():
            found += side.left()
            found += self._enabled_again(side)
        if found:
            return [("convergence", text) for text in found]
        try:
            self._read_all()
        except MetaClientError as error:
            return [("convergence", f"a cluster cannot be read: {error}")]
        return [("equality", text) for text in differences(self)]

    def _enabled_again(self, side: Side) -> list[str]:
        """Enable the peers that a fault has left disabled; return them. Peers change one at a time."""
        if self.injector.running():
            return []
        disabled = [peer.id for peer in side.peers.list() if peer.state is PeerState.DISABLED]
        for peer in disabled:
            side.peers.enable(peer)
        return [f"{side.name}: the peer {peer} was disabled" for peer in disabled]

    def _read_all(self) -> None:
        self.contents = {name: contents_of(side.helper) for name, side in self.sides.items()}

    # -- the end -------------------------------------------------------------------------------------------------

    @property
    def active_s(self) -> float:
        """Simulated seconds in which the writers worked."""
        return self.chaos_until_s - self.chaos_from_s + _CALM_BEFORE_S if self.chaos_until_s else 0.0

    def close(self) -> None:
        """Close the clients; what remains is a leak."""
        for writer in (*self.clients, *self.bursts):
            writer.connection.close()
        for side in self.sides.values():
            side.helper.close()
        self.runtime.sleep(1.0)

    def close_clusters(self) -> None:
        for side in reversed(list(self.sides.values())):
            side.cluster.close()
        self.runtime.close()
