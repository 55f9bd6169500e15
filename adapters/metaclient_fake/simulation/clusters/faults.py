"""Applies faults to several clusters: to the servers and regions of one of them, to a link between two, to a peer.

The faults of one cluster are those of :mod:`metaclient_fake.simulation.injector`. ``pick`` chooses the cluster or the
link first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from metaclient_fake.simulation.injector import NO_UNDO, FaultRunner, Struck, Undo
from metaclient_fake.simulation.schedule import KINDS, Fault

if TYPE_CHECKING:
    from metaclient_fake.simulation.clusters.world import ClustersWorld, Side

__all__ = ["LINK_KINDS", "SIDE_KINDS", "ClustersInjector"]

#: The faults of one cluster.
SIDE_KINDS = (
    "kill",
    "restart",
    "stop",
    "pause",
    "slow",
    "partition",
    "one_way",
    "lose",
    "delay",
    "repeat",
    "split",
    "merge",
    "move",
    "flush",
    "balance",
    "full_queue",
    "stall_flushes",
)
#: The faults of links and peers -> what each does.
LINK_KINDS: Mapping[str, str] = {
    "link_cut": "two clusters do not reach each other",
    "link_one_way": "a cluster does not reach another, whose answers would arrive",
    "link_lose": "some messages from a cluster to another are lost",
    "link_lose_answers": "some answers of the sinks are lost",
    "link_delay": "some messages from a cluster to another are late",
    "link_repeat": "calls from a cluster to another arrive twice",
    "peer_disabled": "a peer is disabled, and enabled again later",
    "peer_changed": "the tables that a peer excludes change, so that its sources are made anew",
    "logs_rolled": "all servers of a cluster roll their logs",
    "write_burst": "some hundred puts in quick succession: a batch of a source is cut into several calls",
}
#: Up to 100 entries are one call (``HBaseInterClusterReplicationEndpoint``), and each of the servers gets a part.
_BURST_PUTS_MAX = 900


class ClustersInjector(FaultRunner):
    """The faults of one run."""

    def __init__(self, world: ClustersWorld) -> None:
        super().__init__(world.runtime)
        self._world = world
        self._changes = 0

    def inject(self, fault: Fault, struck: Struck) -> Undo:
        if fault.kind in LINK_KINDS:
            links = self._world.spec.links
            source, target = links[fault.pick % len(links)]
            struck.detail = f"{source} -> {target}"
            undo: Undo | None = getattr(self, f"_{fault.kind}")(fault, self._world.sides[source], target)
            return undo or NO_UNDO
        sides = list(self._world.sides.values())
        side = sides[fault.pick % len(sides)]
        undo = side.injector.inject(replace(fault, pick=fault.pick // len(sides)), struck)
        struck.detail = f"{side.name}: {struck.detail}"
        return undo

    # -- links ---------------------------------------------------------------------------------------------------

    def _link_cut(self, fault: Fault, source: Side, target: str) -> Undo:
        network = source.cluster.network
        made = network.partition(source.name, target)
        return lambda: network.mend(made)

    def _link_one_way(self, fault: Fault, source: Side, target: str) -> Undo:
        network = source.cluster.network
        made = network.partition(source.name, target, is_one_way=True)
        return lambda: network.mend(made)

    def _link_lose(self, fault: Fault, source: Side, target: str) -> Undo:
        faults = source.cluster.faults
        rule = faults.lose_messages(source.name, target, 0.1 + 0.8 * fault.amount)
        return lambda: faults.end(rule)

    def _link_lose_answers(self, fault: Fault, source: Side, target: str) -> Undo:
        faults = source.cluster.faults
        rule = faults.lose_messages(target, source.name, 0.1 + 0.8 * fault.amount)
        return lambda: faults.end(rule)

    def _link_delay(self, fault: Fault, source: Side, target: str) -> Undo:
        faults = source.cluster.faults
        rule = faults.reorder_messages(source.name, target, 0.05 + 4 * fault.amount * fault.amount)
        return lambda: faults.end(rule)

    def _link_repeat(self, fault: Fault, source: Side, target: str) -> Undo:
        faults = source.cluster.faults
        repeated = faults.repeat_messages(source.name, target, 0.1 + 0.8 * fault.amount)
        jittered = faults.reorder_messages(source.name, target, 0.5)

        def undo() -> None:
            faults.end(repeated)
            faults.end(jittered)

        return undo

    # -- peers and logs ------------------------------------------------------------------------------------------

    def _peer_disabled(self, fault: Fault, source: Side, target: str) -> Undo:
        source.peers.disable(target)
        return lambda: source.peers.enable(target)

    def _peer_changed(self, fault: Fault, source: Side, target: str) -> None:
        self._changes += 1
        source.peers.update(target, exclude_tables={f"none{self._changes}": []})

    def _logs_rolled(self, fault: Fault, source: Side, target: str) -> None:
        for server in list(source.cluster.servers_by_host.values()):
            if server.is_running:
                server.flusher.roll_logs(1)

    def _write_burst(self, fault: Fault, source: Side, target: str) -> None:
        self._world.write_burst(source, round(_BURST_PUTS_MAX * fault.amount))


assert set(SIDE_KINDS) <= set(KINDS), "each fault of one cluster is one that its injector has"
_missing = [kind for kind in LINK_KINDS if not hasattr(ClustersInjector, f"_{kind}")]
assert not _missing, f"kinds of faults without a method of ClustersInjector: {_missing}"
