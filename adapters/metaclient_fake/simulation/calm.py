"""Decides whether a cluster has recovered: after the heal, it must work as if there had been no faults.

1. Every fault is ended, every server runs; within :data:`SETTLE_S` all regions of enabled tables are open, no recovery
   is running, and the replicas have the data of their primaries.
2. Each client that ran during the faults can read registers; this detects a wrong location that stays in its cache.
3. All copies of all regions, and all copies of ``hbase:meta``, have the same content.
4. New clients in each meta mode, many tasks at once: in LoadBalance no read of ``hbase:meta`` goes to the primary, and
   a row that many tasks request at once is looked up once. All clients get the real locations of the copies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from metaclient.connection import Connection, connect_to
from metaclient.errors import DeadlineExceeded, MetaClientError
from metaclient.keys import printable
from metaclient.model import META_TABLE, Scan, TableState
from metaclient_fake.master.region_states import RegionState
from metaclient_fake.server.region_server import ServerState
from metaclient_fake.simulation.observed import ObservedBackend
from metaclient_fake.simulation.workloads.base import Workload
from metaclient_fake.simulation.workloads.registers import COLUMN, TABLE

if TYPE_CHECKING:
    from metaclient_fake.cluster import FakeCluster
    from metaclient_fake.simulation.world import World
    from metaclient_fake.storage import Region

__all__ = ["calm_down", "heal", "start_all", "unsettled"]

#: Simulated seconds until the cluster must be healthy: several sessions, recoveries and flush intervals (30 s).
SETTLE_S = 180.0
_STORM_TASKS = 8
#: A copy of hbase:meta that was just opened may return torn rows for 2 s, in seeds with that setting.
_TORN_S = 3.0
#: Calls until an old client must have found a row: one for a wrong hint, one for a wrong location, and the right one.
_CALLS_MAX = 4
#: The pause between them: a client without retries refreshes the location of hbase:meta in the background, at most once
#: per second.
_REFRESH_S = 2.0


def calm_down(world: World) -> None:
    """Heal the cluster, wait, and check it; violations are reported to the world."""
    world.pauses.stop()
    heal(world.cluster)
    if not _wait_for(world, lambda: _unsettled(world)):
        return
    _read_again(world)
    with world.cluster.master.procedure_lock:  # the balancer must not move regions that are being compared
        _look(world)


def _look(world: World) -> None:
    world.runtime.sleep(_TORN_S)
    try:
        world.cluster.wait_until_replicated(SETTLE_S)
    except DeadlineExceeded as error:
        world.report("convergence", f"replicas do not catch up after the heal: {error}")
    _compare_copies(world)
    for mode in ("None", "HedgedRead", "LoadBalance"):
        _new_client(world, mode)


# -- all is healed -----------------------------------------------------------------------------------------------------


def heal(cluster: FakeCluster) -> None:
    """End all faults, and start the servers that are down."""
    cluster.heal()
    cluster.faults.release_registry()
    for host, server in list(cluster.servers_by_host.items()):
        cluster.faults.drain_call_queue(host)
        cluster.faults.stall_flushes(host, False)
        cluster.faults.fail_refresh(host, False)
        cluster.slow(host, 0.0)
        server.clock_skew_ms = 0
    start_all(cluster)


def start_all(cluster: FakeCluster) -> None:
    """Start the servers that are down."""
    for host, server in list(cluster.servers_by_host.items()):
        if server.state is ServerState.PAUSED:
            cluster.resume(host)
        elif server.state is ServerState.DEAD:
            cluster.restart(host)


def _wait_for(world: World, left: Callable[[], list[str]]) -> bool:
    """Wait until the cluster is idle; restart a server that notices late that it was declared dead."""
    deadline = world.runtime.now() + SETTLE_S
    while found := left():
        if world.runtime.now() >= deadline:
            shown = "; ".join(found[:5]) + ("; ..." if len(found) > 5 else "")
            world.report("convergence", f"{SETTLE_S:g} s after the heal it is not well: {shown}")
            return False
        world.runtime.sleep(0.5)
        start_all(world.cluster)
    return True


def _unsettled(world: World) -> list[str]:
    return [f"{name} is under way" for name in world.injector.running()] + unsettled(world.cluster)


def unsettled(cluster: FakeCluster) -> list[str]:
    """Return what a cluster has not recovered from yet, as text."""
    found = [f"{host} is {s.state.value}" for host, s in cluster.servers_by_host.items() if not s.is_running]
    if cluster.master.is_recovering:
        found.append("a dead server's regions are not recovered")
    for node in cluster.master.states.nodes():
        record = cluster.master.tables.get(node.info.table)
        if record is not None and record.state is TableState.ENABLED and node.state is not RegionState.OPEN:
            found.append(f"{printable(node.info.table)} {node.encoded} is {node.state.value}")
    return found


# -- the old clients ---------------------------------------------------------------------------------------------------


def _read_again(world: World) -> None:
    """Each old client reads a register of each region; together they read all, which ends the histories."""
    for number, client in enumerate(world.clients):
        for row in world.registers:
            if (number + world.registers.index(row)) % 4 == 0:
                _read_one(world, client, row)
    for row in world.cells:
        _read_one(world, world.clients[0], row)


def _read_one(world: World, client: Workload, row: bytes) -> None:
    """Read one register; a client without retries may need several calls until its locations are right.

    Clients with Java's selector are skipped: it may keep asking a copy of hbase:meta that does not exist any more.
    """
    if client.connection.config.meta_selector == "simple":
        return
    for _ in range(_CALLS_MAX):
        operation = client.begin("get", TABLE, row)
        client.read(operation, lambda: client.connection.table(TABLE).row(row), COLUMN)
        if operation.error is None:
            return
        world.runtime.sleep(_REFRESH_S)
    else:
        text = f"{client.name} cannot read {row.decode()} though all is well: {operation.error}"
        world.report("liveness", text, (operation.number,))


# -- the copies --------------------------------------------------------------------------------------------------------


def _compare_copies(world: World) -> None:
    cluster = world.cluster
    for group in [group for table in cluster.master.states.tables() for group in cluster.master.states.table(table)]:
        record = cluster.master.tables.get(group.info.table)
        if record is None or record.state is not TableState.ENABLED:
            continue
        families = (b"info",) if group.info.table == META_TABLE else ()  # others are not pushed
        first: list[object] = []
        for node in group.nodes:
            server = cluster.master.live_server_of(node)
            region = server.regions.get(node.name) if server is not None else None
            if region is None:
                world.report("convergence", f"{node.encoded} is open on no server")
                continue
            try:
                content = _content(region, families)
            except MetaClientError as error:
                world.report("convergence", f"{node.encoded} cannot be read though all is well: {error}")
                continue
            if node.info.replica_id == 0:
                first = content
            elif content != first:
                where = f"replica {node.info.replica_id} of {printable(node.info.table)} {group.primary.encoded}"
                world.report("convergence", f"{where} differs from its primary: {_difference(first, content)}")


def _content(region: Region, families: tuple[bytes, ...]) -> list[object]:
    scanner = region.scanner(Scan(columns=families))
    try:
        found: list[object] = []
        while True:
            rows, is_end = scanner.next(1000, 1 << 20)
            found += [(row.row, row.cells) for row in rows]
            if is_end:
                return found
    finally:
        scanner.close()


def _difference(first: list[object], other: list[object]) -> str:
    missing = [row for row in first if row not in other][:2]
    extra = [row for row in other if row not in first][:2]
    return f"it lacks {missing!r:.200}, and has {extra!r:.200} instead"


# -- new clients -------------------------------------------------------------------------------------------------------


def _new_client(world: World, mode: str) -> None:
    backend = ObservedBackend(world.cluster, f"calm-{mode}", world.report)
    connection = connect_to(backend, runtime=world.runtime, meta_mode=mode)
    try:
        _storm(world, connection, backend, mode)
        _check_places(world, connection, mode)
    except MetaClientError as error:
        world.report("liveness", f"a new client in mode {mode} fails though all is well: {error}")
    finally:
        connection.close()


def _storm(world: World, connection: Connection, backend: ObservedBackend, mode: str) -> None:
    row = world.registers[4]
    for call, lookups_max in (
        (lambda: connection.locate(TABLE, row), 1),
        (lambda: connection.warm_up("log"), _STORM_TASKS),
    ):
        before = len(backend.meta_reads)
        deadline = world.runtime.now() + 60.0
        for task in [world.runtime.start(call, name="calm-storm") for _ in range(_STORM_TASKS)]:
            task.result(deadline)
        lookups = len(backend.meta_reads) - before
        if lookups > lookups_max:
            text = f"{_STORM_TASKS} tasks at once made {lookups} reads of hbase:meta, not {lookups_max} (mode {mode})"
            world.report("meta_load", text)
    _check_primary(world, backend, mode)


def _check_places(world: World, connection: Connection, mode: str) -> None:
    """Check that the locations in ``hbase:meta`` are the real locations of the copies."""
    for table in world.tables:
        told = {
            (place.region.start_key, place.replica_id): str(place.server)
            for region in connection.regions(table)
            for place in region.placed()
        }
        groups = world.cluster.master.states.table(table.encode())
        true = {(group.start_key, node.info.replica_id): str(node.server) for group in groups for node in group.nodes}
        if told != true:
            wrong = {key: (told.get(key), true.get(key)) for key in {*told, *true} if told.get(key) != true.get(key)}
            (start, replica_id), (said, there) = min(wrong.items())
            where = f"{table}, region from {printable(start)!r}, replica {replica_id}"
            world.report(
                "convergence", f"hbase:meta says that {where} is at {said}, and it is at {there} (mode {mode})"
            )


def _check_primary(world: World, backend: ObservedBackend, mode: str) -> None:
    group = world.cluster.master.meta_group
    by_primary = sum(1 for read in backend.meta_reads if read.replica_id == 0)
    if mode == "LoadBalance" and group is not None and len(group.nodes) > 1 and by_primary:
        world.report("meta_load", f"{by_primary} reads went to the primary in LoadBalance though all is well")
    if mode == "None" and by_primary != len(backend.meta_reads):
        world.report("meta_load", "a client without a mode read from a secondary")
