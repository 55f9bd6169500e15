"""Decides how each rare fault of a real HBase is provoked on a running cluster, at once or on a schedule.

Every fault here was seen on HBase 2.6.1 or 3.0.0-alpha-4. The common ones (kill, pause, slow, partition, ...) are
methods of the cluster itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from metaclient import keys
from metaclient.errors import ConfigError, ConnectionClosed, MetaClientError, RequestRefused
from metaclient.runtime import Task
from metaclient_fake.config.cluster import nearest
from metaclient_fake.master import region_procedures
from metaclient_fake.master.region_states import RegionNode
from metaclient_fake.network.network import EVERYBODY, MessageRule, Partition
from metaclient_fake.server.region_server import RegionServer
from metaclient_fake.storage.meta_index import Tear

if TYPE_CHECKING:
    from metaclient_fake.cluster import FakeCluster

__all__ = ["Faults", "ScheduledFault"]

logger = logging.getLogger(__name__)

#: What a schedule may call on the cluster, and on its faults.
_OF_CLUSTER = (
    "kill",
    "restart",
    "stop",
    "pause",
    "resume",
    "slow",
    "partition",
    "heal",
    "add_server",
    "move",
    "split",
    "merge",
    "flush",
    "compact",
    "balance",
)
_OF_FAULTS = (
    "cut_one_way",
    "lose_messages",
    "delay_messages",
    "reorder_messages",
    "repeat_messages",
    "skew_clock",
    "fill_call_queue",
    "drain_call_queue",
    "stall_flushes",
    "fail_refresh",
    "hold_registry",
    "release_registry",
    "reopen_empty",
    "disable_reads",
    "tear_meta_rows",
    "pile_replicas",
    "move_to_nowhere",
)


@dataclass(frozen=True, slots=True)
class ScheduledFault:
    """``name`` is a method of the cluster or of its faults, called ``at_s`` seconds after the schedule began."""

    at_s: float
    name: str
    arguments: tuple[object, ...] = ()
    options: dict[str, object] = field(default_factory=dict)


class Faults:
    """The rare faults of one cluster (``cluster.faults``)."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    # -- messages, clocks, queues ------------------------------------------------------------------------------

    def cut_one_way(self, source: str, target: str) -> Partition:
        """Cut messages from ``source`` to ``target``; messages of the other direction arrive."""
        return self._cluster.network.partition(self._party(source), self._party(target), is_one_way=True)

    def mend(self, partition: Partition) -> None:
        """End one partition; ``heal()`` ends all of them."""
        self._cluster.network.mend(partition)

    def lose_messages(self, source: str = EVERYBODY, target: str = EVERYBODY, probability: float = 1.0) -> MessageRule:
        """Messages from one party to another vanish; ``heal()`` ends it, or :meth:`end` with what this returned."""
        return self._rule(MessageRule(self._party(source), self._party(target), probability, is_lost=True))

    def delay_messages(
        self, source: str = EVERYBODY, target: str = EVERYBODY, seconds: float = 1.0, probability: float = 1.0
    ) -> MessageRule:
        return self._rule(MessageRule(self._party(source), self._party(target), probability, delay_s=seconds))

    def reorder_messages(
        self, source: str = EVERYBODY, target: str = EVERYBODY, seconds: float = 0.1, probability: float = 1.0
    ) -> MessageRule:
        """Delay each message by a random time from 0 to ``seconds``: a later one may overtake it."""
        return self._rule(MessageRule(self._party(source), self._party(target), probability, jitter_s=seconds))

    def repeat_messages(
        self, source: str = EVERYBODY, target: str = EVERYBODY, probability: float = 1.0
    ) -> MessageRule:
        """Calls arrive twice where the protocol can repeat them: reads, and batches to replicas."""
        return self._rule(MessageRule(self._party(source), self._party(target), probability, is_repeated=True))

    def _rule(self, rule: MessageRule) -> MessageRule:
        self._cluster.network.add_rule(rule)
        return rule

    def _party(self, name: str) -> str:
        return self._cluster.party_named(name)

    def end(self, rule: MessageRule) -> None:
        self._cluster.network.remove_rule(rule)

    def skew_clock(self, server: str, seconds: float) -> None:
        """Skew the wall clock of a server: its cell timestamps are in the past or the future."""
        self._cluster.server_named(server).clock_skew_ms = round(seconds * 1000)

    def fill_call_queue(self, server: str) -> None:
        """Every call is CallQueueTooBig until :meth:`drain_call_queue`."""
        self._stuff(server, True)

    def drain_call_queue(self, server: str) -> None:
        self._stuff(server, False)

    def _stuff(self, server: str, is_stuffed: bool) -> None:
        found = self._cluster.server_named(server)
        found.handlers.is_stuffed = found.meta_handlers.is_stuffed = is_stuffed
        found.update_quick()

    # -- storage -----------------------------------------------------------------------------------------------

    def stall_flushes(self, server: str, is_stalled: bool = True) -> None:
        """Memstores grow until writes are RegionTooBusy."""
        self._cluster.server_named(server).flusher.is_stalled = is_stalled

    def fail_refresh(self, server: str, is_failing: bool = True) -> None:
        """The store file refresher sees no files (HDFS trouble): old data, then reads disabled."""
        self._cluster.server_named(server).secondaries.refresh_fails = is_failing

    # -- the registry ------------------------------------------------------------------------------------------

    def hold_registry(self) -> None:
        """Clients go on hearing where meta *was*."""
        self._cluster.registry.hold()

    def release_registry(self) -> None:
        self._cluster.registry.release()

    # -- replicas ----------------------------------------------------------------------------------------------

    def reopen_empty(self, region: str, replica_id: int, seconds: float) -> None:
        """A secondary re-opens and answers "0 rows, no error, stale" for a while."""
        node = self._secondary(region, replica_id)
        self._cluster.master.run(lambda: region_procedures.reopen(self._cluster.master, node))
        self._host(node).secondaries.pretend_empty(node.name, seconds)

    def disable_reads(self, region: str, replica_id: int, seconds: float) -> None:
        """A secondary refuses reads as it does after each open."""
        node = self._secondary(region, replica_id)
        self._host(node).secondaries.disable_reads(node.name, seconds)

    def tear_meta_rows(self, replica_id: int, seconds: float, *, cells: int = 3, table: str | bytes = b"") -> None:
        """A meta secondary shows only the first cells of each row (HBase 3.0.0-alpha-4: 3 of 16)."""
        node = self._secondary("hbase:meta", replica_id)
        only = keys.table_name(table) if table else b""
        until = self._cluster.runtime.now() + seconds
        self._host(node).calls.tear_meta(replica_id, Tear(until, cells, only))

    def pile_replicas(self, region: str, server: str) -> None:
        """All copies of a range share one server, as after some failovers."""
        primary = self._cluster.node_named(region)
        for node in list(self._cluster.master.states.group_of(primary).nodes):
            self._cluster.move(node.encoded, server)

    def move_to_nowhere(self, region: str, server: str = "nowhere,1,1") -> None:
        """Move a region to a server that does not exist: the old server names it in RegionMoved."""
        self._cluster.move(region, server)

    def _secondary(self, region: str, replica_id: int) -> RegionNode:
        node = self._cluster.node_named(region, replica_id)
        if not node.info.replica_id:
            raise RequestRefused(f"{node.encoded} is a primary: name a replica (1, 2, ...)")
        return node

    def _host(self, node: RegionNode) -> RegionServer:
        return self._cluster.host_of(node)

    # -- schedules ---------------------------------------------------------------------------------------------

    def schedule(self, faults: Iterable[ScheduledFault | Sequence[object]]) -> Task[None]:
        """Run faults at their times, seconds from now; each is ``(at_s, name, *arguments)`` or a ScheduledFault.

        A fault that is refused (killing a dead server) is logged and does not stop the rest.
        """
        planned = sorted((_scheduled(fault) for fault in faults), key=lambda fault: fault.at_s)
        calls = [(fault, self._method(fault.name)) for fault in planned]
        return self._cluster.runtime.start(self._run, calls, name="scheduled-faults")

    def _method(self, name: str) -> object:
        if name in _OF_CLUSTER:
            return getattr(self._cluster, name)
        if name in _OF_FAULTS:
            return getattr(self, name)
        raise ConfigError(f"there is no fault {name!r}{nearest(name, [*_OF_CLUSTER, *_OF_FAULTS])}")

    def _run(self, calls: Sequence[tuple[ScheduledFault, object]]) -> None:
        began = self._cluster.runtime.now()
        for fault, method in calls:
            wait = began + fault.at_s - self._cluster.runtime.now()
            try:
                if wait > 0:
                    self._cluster.runtime.sleep(wait)
                logger.info("fault: %s %s", fault.name, fault.arguments)
                method(*fault.arguments, **fault.options)  # type: ignore[operator]  # looked up by name
            except ConnectionClosed:
                return
            except MetaClientError as error:
                logger.warning("fault %s at %g s was refused: %s", fault.name, fault.at_s, error)


def _scheduled(fault: ScheduledFault | Sequence[object]) -> ScheduledFault:
    if isinstance(fault, ScheduledFault):
        return fault
    at_s, name, *arguments = fault
    if not isinstance(at_s, int | float) or not isinstance(name, str):
        raise ConfigError(f"a scheduled fault is (seconds, name, arguments...), got {fault!r}")
    return ScheduledFault(float(at_s), name, tuple(arguments))
