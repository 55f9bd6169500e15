"""Applies faults to a running cluster: each in its own task, each undone when its time is over.

The target of a fault is chosen when the fault begins, among the servers and regions of that instant. A fault that
cannot be applied (no server left to kill, a region that is already moving) is recorded as refused, in the timeline and
in the coverage.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from metaclient.errors import ConnectionClosed, MetaClientError, RequestRefused
from metaclient.model import META_TABLE
from metaclient.runtime import Runtime, Task
from metaclient_fake.cluster import FakeCluster
from metaclient_fake.network.network import Partition
from metaclient_fake.server.region_server import RegionServer, ServerState
from metaclient_fake.simulation.replica_counts import ReplicaCounts
from metaclient_fake.simulation.schedule import KINDS, Fault

__all__ = ["NO_UNDO", "Afflicted", "FaultRunner", "Injector", "Struck", "Undo"]

#: The number of servers that always stay up: with fewer, two copies of a region would share a server.
_SERVERS_UP_MIN = 2
#: A server that cannot flush refuses writes when its memstore is full; these bytes fill the small ones.
_BURST_VALUES, _BURST_BYTES = 8, 700
_COPIES_MAX = 3


class Struck:
    """The record of one fault: when it began and ended, its target, and the refusal if there was one."""

    __slots__ = ("began_at", "detail", "ended_at", "fault", "refusal")

    def __init__(self, fault: Fault, began_at: float) -> None:
        self.fault = fault
        self.began_at = began_at
        self.ended_at: float | None = None
        self.detail = ""
        self.refusal = ""

    def __str__(self) -> str:
        until = f"{self.ended_at:8.3f}" if self.ended_at is not None else "   never"
        refused = f" (refused: {self.refusal})" if self.refusal else ""
        return f"{self.began_at:8.3f} .. {until} fault         {self.fault.kind} {self.detail}{refused}"


Undo = Callable[[], object]
#: Returned for a fault that needs no undoing.
NO_UNDO: Undo = lambda: None  # noqa: E731  # a value, not a function with a name


class NamedClient(Protocol):
    """A client that faults can name as a party of the network."""

    @property
    def name(self) -> str: ...


class Afflicted(Protocol):
    """A cluster with its clients and tables, as the injector sees it."""

    @property
    def cluster(self) -> FakeCluster: ...

    @property
    def runtime(self) -> Runtime: ...

    @property
    def clients(self) -> Sequence[NamedClient]: ...

    @property
    def tables(self) -> Sequence[str]: ...

    @property
    def border_rows(self) -> Sequence[bytes]:
        """The rows at which regions may be split, sorted."""
        ...

    def burst(self, pick: int, count: int, size: int) -> None:
        """Put big values in quick succession."""
        ...


class FaultRunner(ABC):
    """Starts the faults of a run at their times, each in its own task, and undoes each after its time."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.struck: list[Struck] = []
        self._tasks: list[Task[None]] = []

    @abstractmethod
    def inject(self, fault: Fault, struck: Struck) -> Undo:
        """Apply one fault now and note its target; return the function that undoes it. Raises MetaClientError."""

    def run(self, faults: tuple[Fault, ...]) -> None:
        """Start the faults at their times; return after the last has begun."""
        began = self._runtime.now()
        for fault in sorted(faults, key=lambda fault: fault.at_s):
            wait_s = began + fault.at_s - self._runtime.now()
            if wait_s > 0:
                self._runtime.sleep(wait_s)
            struck = Struck(fault, self._runtime.now())
            self.struck.append(struck)
            self._tasks.append(self._runtime.start(self._strike, struck, name=f"fault-{fault.kind}"))

    def _strike(self, struck: Struck) -> None:
        try:
            undo = self.inject(struck.fault, struck)
            if undo is not NO_UNDO:
                self._runtime.sleep(struck.fault.lasts_s)
                undo()
        except ConnectionClosed:
            raise
        except MetaClientError as error:
            struck.refusal = f"{type(error).__name__}: {error}"
        struck.ended_at = self._runtime.now()

    def running(self) -> list[str]:
        """Return the names of the faults that have not ended."""
        return [task.name for task in self._tasks if not task.is_done]


class Injector(FaultRunner):
    """The faults of one cluster.

    It has more than 30 methods because each kind of fault has its own, of a few lines.
    """

    def __init__(self, world: Afflicted) -> None:
        super().__init__(world.runtime)
        self._world = world
        self._cluster = world.cluster
        self.replica_counts = ReplicaCounts()

    def inject(self, fault: Fault, struck: Struck) -> Undo:
        undo: Undo | None = getattr(self, f"_{fault.kind}")(fault, struck)
        return undo or NO_UNDO

    # -- whom? ---------------------------------------------------------------------------------------------------

    def _server(self, pick: int, *, spares: int = 0) -> RegionServer:
        """Return a running server; raise RequestRefused when fewer than ``spares`` others would be left."""
        running = [server for server in self._cluster.servers_by_host.values() if server.is_running]
        if len(running) <= spares:
            raise RequestRefused(f"only {len(running)} servers are running")
        return running[pick % len(running)]

    def _party(self, pick: int) -> str:
        clients = [f"client/{client.name}" for client in self._world.clients]
        parties = [*self._cluster.servers(), "client", "registry", "master", *clients[:3]]
        return parties[pick % len(parties)]

    def _named(self, party: str) -> str:
        """Return the name on the network of a party; in a cluster without a name they are the same."""
        return self._cluster.party_named(party) if self._cluster.name else party

    def _table(self, pick: int) -> str:
        return self._world.tables[pick % len(self._world.tables)]

    def _region(self, fault: Fault) -> str:
        regions = self._cluster.regions(self._table(fault.other))
        return regions[fault.pick % len(regions)]

    # -- servers -------------------------------------------------------------------------------------------------

    def _kill(self, fault: Fault, struck: Struck) -> Undo:
        host = self._server(fault.pick, spares=_SERVERS_UP_MIN).host
        struck.detail = host
        self._cluster.kill(host)
        return lambda: self._start_again(host)

    def _start_again(self, host: str) -> None:
        if self._cluster.server_named(host).state is ServerState.DEAD:
            self._cluster.restart(host)

    def _restart(self, fault: Fault, struck: Struck) -> None:
        struck.detail = host = self._server(fault.pick, spares=_SERVERS_UP_MIN).host
        self._cluster.restart(host)

    def _stop(self, fault: Fault, struck: Struck) -> Undo:
        host = self._server(fault.pick, spares=_SERVERS_UP_MIN).host
        struck.detail = host
        self._cluster.stop(host)
        return lambda: self._start_again(host)

    def _pause(self, fault: Fault, struck: Struck) -> Undo:
        server = self._server(fault.pick, spares=_SERVERS_UP_MIN)
        keeps_session = fault.amount < 0.3
        struck.detail = server.host + (", its session lives on" if keeps_session else "")
        self._cluster.pause(server.host, keeps_session=keeps_session)
        return lambda: self._wake(server)

    def _wake(self, server: RegionServer) -> None:
        if server.is_hung and self._cluster.server_named(server.host) is server:
            self._cluster.resume(server.host)

    def _slow(self, fault: Fault, struck: Struck) -> Undo:
        server = self._server(fault.pick)
        seconds = 0.005 + fault.amount * fault.amount
        struck.detail = f"{server.host} by {seconds:.3f} s"
        self._cluster.slow(server.host, seconds)

        def undo() -> None:
            server.slow_s = 0.0
            server.update_quick()

        return undo

    def _skew(self, fault: Fault, struck: Struck) -> Undo:
        server = self._server(fault.pick)
        seconds = (fault.amount - 0.5) * 120
        struck.detail = f"{server.host} by {seconds:+.1f} s"
        self._cluster.faults.skew_clock(server.host, seconds)

        def undo() -> None:
            server.clock_skew_ms = 0

        return undo

    def _full_queue(self, fault: Fault, struck: Struck) -> Undo:
        struck.detail = host = self._server(fault.pick).host
        self._cluster.faults.fill_call_queue(host)
        return lambda: self._cluster.faults.drain_call_queue(host)

    def _stall_flushes(self, fault: Fault, struck: Struck) -> Undo:
        struck.detail = host = self._server(fault.pick).host
        self._cluster.faults.stall_flushes(host)
        return lambda: self._cluster.faults.stall_flushes(host, False)

    def _fail_refresh(self, fault: Fault, struck: Struck) -> Undo:
        struck.detail = host = self._server(fault.pick).host
        self._cluster.faults.fail_refresh(host)
        return lambda: self._cluster.faults.fail_refresh(host, False)

    # -- the network ---------------------------------------------------------------------------------------------

    def _partition(self, fault: Fault, struck: Struck) -> Undo:
        return self._cut(fault, struck, is_one_way=False)

    def _one_way(self, fault: Fault, struck: Struck) -> Undo:
        return self._cut(fault, struck, is_one_way=True)

    def _cut(self, fault: Fault, struck: Struck, *, is_one_way: bool) -> Undo:
        one, other = self._party(fault.pick), self._party(fault.other)
        if one == other:
            other = self._server(fault.other).host
        struck.detail = f"{one} -> {other}" if is_one_way else f"{one} and {other}"
        made = self._cluster.network.partition(self._named(one), self._named(other), is_one_way=is_one_way)
        return lambda: self._mend(made)

    def _mend(self, partition: Partition) -> None:
        self._cluster.network.mend(partition)

    def _ends(self, fault: Fault) -> tuple[str, str]:
        """Return source and target of a rule for messages; one of them is often ``*``."""
        return (
            "*" if fault.pick % 3 == 0 else self._party(fault.pick),
            "*" if fault.other % 3 == 0 else self._party(fault.other),
        )

    def _lose(self, fault: Fault, struck: Struck) -> Undo:
        source, target = self._ends(fault)
        share = 0.02 + 0.3 * fault.amount
        struck.detail = f"{share:.0%} from {source} to {target}"
        rule = self._cluster.faults.lose_messages(source, target, share)
        return lambda: self._cluster.faults.end(rule)

    def _delay(self, fault: Fault, struck: Struck) -> Undo:
        source, target = self._ends(fault)
        seconds = 0.01 + 3 * fault.amount * fault.amount * fault.amount
        struck.detail = f"{seconds:.3f} s from {source} to {target}"
        rule = self._cluster.faults.delay_messages(source, target, seconds, 0.3)
        return lambda: self._cluster.faults.end(rule)

    def _reorder(self, fault: Fault, struck: Struck) -> Undo:
        source, target = self._ends(fault)
        seconds = 0.002 + fault.amount * 0.3
        struck.detail = f"within {seconds:.3f} s from {source} to {target}"
        rule = self._cluster.faults.reorder_messages(source, target, seconds, 0.5)
        return lambda: self._cluster.faults.end(rule)

    def _repeat(self, fault: Fault, struck: Struck) -> Undo:
        source, target = self._ends(fault)
        struck.detail = f"from {source} to {target}"
        repeated = self._cluster.faults.repeat_messages(source, target, 0.1 + 0.8 * fault.amount)
        jittered = self._cluster.faults.reorder_messages(source, target, 0.05)

        def undo() -> None:
            self._cluster.faults.end(repeated)
            self._cluster.faults.end(jittered)

        return undo

    def _registry_gone(self, fault: Fault, struck: Struck) -> Undo:
        party = "*" if fault.amount < 0.3 else "client"
        struck.detail = "for everybody" if party == "*" else "for clients"
        made = self._cluster.network.partition(self._named("registry"), self._named(party))
        return lambda: self._mend(made)

    def _registry_held(self, fault: Fault, struck: Struck) -> Undo:
        self._cluster.faults.hold_registry()
        return self._cluster.faults.release_registry

    # -- regions -------------------------------------------------------------------------------------------------

    def _split(self, fault: Fault, struck: Struck) -> None:
        region = self._region(fault)
        info = self._cluster.node_named(region).info
        rows = [row for row in self._world.border_rows if info.contains(row) and row > info.start_key]
        at = rows[min(int(fault.amount * len(rows)), len(rows) - 1)] if rows else None
        struck.detail = f"{info.table.decode()} {region} at {at.decode() if at else 'its middle'}"
        self._cluster.split(region, at)

    def _merge(self, fault: Fault, struck: Struck) -> None:
        regions = self._cluster.regions(self._table(fault.other))
        if len(regions) < 2:
            raise RequestRefused("there are no two regions to merge")
        first = fault.pick % (len(regions) - 1)
        struck.detail = f"{regions[first]} and {regions[first + 1]}"
        self._cluster.merge(regions[first], regions[first + 1])

    def _move(self, fault: Fault, struck: Struck) -> None:
        region = self._region(fault)
        nodes = self._cluster.master.states.group_of(self._cluster.node_named(region)).nodes
        replica_id = min(int(fault.amount * len(nodes)), len(nodes) - 1)
        struck.detail = f"{region} replica {replica_id}"
        self._cluster.move(region, replica_id=replica_id)

    def _move_nowhere(self, fault: Fault, struck: Struck) -> None:
        struck.detail = region = self._region(fault)
        self._cluster.faults.move_to_nowhere(region)

    def _meta_replica(self, fault: Fault) -> int:
        group = self._cluster.master.meta_group
        return fault.pick % len(group.nodes) if group is not None else 0

    def _move_meta(self, fault: Fault, struck: Struck) -> None:
        replica_id = self._meta_replica(fault)
        struck.detail = f"replica {replica_id}"
        self._cluster.move("hbase:meta", replica_id=replica_id)

    def _pile(self, fault: Fault, struck: Struck) -> None:
        region, host = self._region(fault), self._server(fault.other).host
        struck.detail = f"{region} on {host}"
        self._cluster.faults.pile_replicas(region, host)

    def _flush(self, fault: Fault, struck: Struck) -> None:
        table = None if fault.amount < 0.3 else self._table(fault.pick)
        struck.detail = table or "all tables"
        self._cluster.flush(table)

    def _compact(self, fault: Fault, struck: Struck) -> None:
        table, is_major = self._table(fault.pick), fault.amount < 0.5
        struck.detail = f"{table}{', major' if is_major else ''}"
        self._cluster.compact(table, major=is_major)

    def _balance(self, fault: Fault, struck: Struck) -> None:
        struck.detail = f"{self._cluster.balance()} moves"

    def _replica_count(self, fault: Fault, struck: Struck) -> None:
        table = self._table(fault.pick)
        descriptor = self._cluster.master.descriptor_of(table.encode())
        copies = 1 + fault.other % _COPIES_MAX
        struck.detail = f"{table}: {descriptor.region_replication} -> {copies}"
        now = self._world.runtime.now
        altered = self.replica_counts.began(table, descriptor.region_replication, copies, at_s=now())
        self._cluster.alter_table(replace(descriptor, region_replication=copies))
        self.replica_counts.ended(altered, at_s=now())

    def _meta_replica_count(self, fault: Fault, struck: Struck) -> None:
        descriptor = self._cluster.master.descriptor_of(META_TABLE)
        copies = 1 + fault.other % _COPIES_MAX
        struck.detail = f"{descriptor.region_replication} -> {copies}"
        self._cluster.alter_table(replace(descriptor, region_replication=copies))

    def _buffer_limit(self, fault: Fault, struck: Struck) -> None:
        struck.detail = f"{_BURST_VALUES} values of {_BURST_BYTES} bytes"
        self._world.burst(fault.pick, _BURST_VALUES, _BURST_BYTES)

    # -- copies --------------------------------------------------------------------------------------------------

    def _meta_secondary(self, fault: Fault) -> int:
        group = self._cluster.master.meta_group
        if group is None or len(group.nodes) < 2:
            raise RequestRefused("hbase:meta has one copy")
        return 1 + fault.pick % (len(group.nodes) - 1)

    def _empty_meta(self, fault: Fault, struck: Struck) -> None:
        replica_id = self._meta_secondary(fault)
        struck.detail = f"replica {replica_id}"
        self._cluster.faults.reopen_empty("hbase:meta", replica_id, fault.lasts_s)

    def _torn_meta(self, fault: Fault, struck: Struck) -> None:
        replica_id = self._meta_secondary(fault)
        cells = int(fault.amount * 6)
        struck.detail = f"replica {replica_id}: {cells} cells a row"
        self._cluster.faults.tear_meta_rows(replica_id, fault.lasts_s, cells=cells)

    def _reads_disabled(self, fault: Fault, struck: Struck) -> None:
        region = self._region(fault)
        nodes = self._cluster.master.states.group_of(self._cluster.node_named(region)).nodes
        if len(nodes) < 2:
            raise RequestRefused("the region has one copy")
        replica_id = min(1 + int(fault.amount * (len(nodes) - 1)), len(nodes) - 1)
        struck.detail = f"{region} replica {replica_id}"
        self._cluster.faults.disable_reads(region, replica_id, fault.lasts_s)


_missing: Mapping[str, str] = {kind: text for kind, text in KINDS.items() if not hasattr(Injector, f"_{kind}")}
assert not _missing, f"kinds of faults that nobody can inject: {_missing}"
