"""R1 to R5: the lag of a region replica, with a healthy and with a hung sibling, and the cost of the sink.

A primary gets 1000 edits per second; messages take 1 ms. Some edits are probes: the lag is the time from the commit of
a probe until replica 2, which is always healthy, shows it. Then the same with replica 1 hung. For comparison:
``lock_step``, the algorithm of HBase 3, which on a real HBase showed 8 ms, and with a hung sibling 5 s, then over 20 s
for two minutes.

The sink's own work (R4) is that of a cluster on real threads with puts at full rate, as CPU time for an edit beside
that of the put through the client: see ``benchmarks/metaclient_bench/replication_cost.py``. R4b is the part of it that
the put itself takes longer. Beside stand the same shares of a bare write to a region, in one thread and without
network.

The sink's memory is watched on real threads, with puts as fast as they go and a small limit: R5 reaches its soft part,
where a flush lets queues go; in R5b a replica hangs, nothing can be flushed, and the hard limit holds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from metaclient.model import FamilyDescriptor, Get, TableDescriptor
from metaclient.runtime import SimRuntime
from metaclient_bench.figure import Figure, Lines, Outcome
from metaclient_bench.replication_cost import COPIES, alone, on_threads
from metaclient_bench.replication_cost import put_of as _put
from metaclient_bench.scenario import Scenario
from metaclient_bench.virtual import TABLE
from metaclient_fake import FakeCluster
from metaclient_fake.storage import Region
from metaclient_fake.storage.wal import LoggedEntry

EDITS_PER_S = 1000
NETWORK_S = 0.001
PROBE_EVERY = 7  # not a multiple of 2 ms, the interval at which batches return
HANGS_AT_S = 2.0
WATCHED, HUNG = 2, 1
LIMIT_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Lags:
    """The probes in commit order: the time of each, and the delay until the replica showed it (or the run ended)."""

    at_s: Sequence[float]
    lag_s: Sequence[float]

    def quantile(self, q: float, after_s: float = 0.0) -> float:
        chosen = sorted(lag for at, lag in zip(self.at_s, self.lag_s, strict=True) if at >= after_s)
        return chosen[min(int(q * len(chosen)), len(chosen) - 1)]


@dataclass(frozen=True, slots=True)
class _Pair:
    """The lags of the watched replica: its sibling healthy, and its sibling hung."""

    healthy: Lags
    hung: Lags

    def healthy_p99_s(self) -> float:
        return self.healthy.quantile(0.99, HANGS_AT_S)

    def hung_p99_s(self) -> float:
        return self.hung.quantile(0.99, HANGS_AT_S)


def run(quick: bool) -> Outcome:
    length_s = 12.0 if quick else 90.0
    ours = _Pair(lags(length_s, is_hung=False), lags(length_s, is_hung=True))
    java = _Pair(lags(length_s, is_hung=False, lock_step=True), lags(length_s, is_hung=True, lock_step=True))
    bare = alone(40_000 if quick else 200_000)
    cost = on_threads(10_000 if quick else 60_000)
    memory = full_rate(5_000 if quick else 50_000)
    hung = full_rate_beside_a_hung_replica(5_000 if quick else 20_000)
    figures = (*_lag_figures(ours, java), *_cost_figures(cost, bare), *_memory_figures(memory, hung))
    return Outcome(figures, {"lag_ms": _lag_samples(ours, java)}, (_lag_chart(ours, java),))


def _lag_figures(ours: _Pair, java: _Pair) -> tuple[Figure, ...]:
    return (
        Figure.of(
            "R1",
            "p99 lag of a healthy replica, ms",
            ours.healthy_p99_s() * 1e3,
            "< 100",
            median=ours.healthy.quantile(0.5) * 1e3,
            lock_step=java.healthy_p99_s() * 1e3,
        ),
        Figure.of(
            "R2",
            "p99 lag beside a hung replica, as a multiple of that without one",
            ours.hung_p99_s() / ours.healthy_p99_s(),
            "<= 1.1",
            lock_step=java.hung_p99_s() / java.healthy_p99_s(),
            lock_step_p99_s=java.hung_p99_s(),
        ),
        Figure.of("R3", "flushes for four replicas that open together", opening_flushes(4), "== 1"),
    )


def _cost_figures(cost: Mapping[str, float], bare: Mapping[str, float]) -> tuple[Figure, ...]:
    return (
        Figure.of(
            "R4",
            "the sink's work for an edit on real threads, as a share of the put",
            cost["sink_share"],
            "<= 0.3",
            put_us=cost["put"] * 1e6,
            sink_us=(cost["inside"] + cost["threads"]) * 1e6,
            edits_a_batch=cost["batch_edits"],
            alone_of_a_bare_write=bare["sink_share"],
        ),
        Figure.of(
            "R4b",
            "what a put takes longer with a sink on real threads, as a share of the put",
            cost["inside_share"],
            "<= 0.3",
            put_us=cost["put"] * 1e6,
            longer_us=cost["inside"] * 1e6,
            alone_of_a_bare_write=bare["told_share"],
        ),
    )


def _memory_figures(memory: Mapping[str, float], hung: Mapping[str, float]) -> tuple[Figure, ...]:
    return (
        Figure.of(
            "R5",
            "most bytes that waited for replicas at full rate, as a share of the limit",
            memory["peak_share"],
            "<= 1",
            **{name: value for name, value in memory.items() if name != "peak_share"},
        ),
        Figure.of(
            "R5b",
            "the same beside a hung replica, when nothing can be flushed",
            hung["peak_share"],
            "<= 1",
            **{name: value for name, value in hung.items() if name != "peak_share"},
        ),
    )


def _lag_chart(ours: _Pair, java: _Pair) -> Lines:
    series = {
        "a queue for each replica": (ours.hung.at_s, [lag * 1e3 for lag in ours.hung.lag_s]),
        "lock step (HBase 3)": (java.hung.at_s, [lag * 1e3 for lag in java.hung.lag_s]),
    }
    title = f"lag of a healthy replica at {EDITS_PER_S} edits a second; its sibling hangs"
    return Lines(title, "second", "ms", series, marks={"one replica hangs": HANGS_AT_S}, is_log_y=True)


def _lag_samples(ours: _Pair, java: _Pair) -> dict[str, dict[str, float]]:
    """Return percentiles of the lag in milliseconds."""
    named = {
        "ours": ours.healthy,
        "ours_hung": ours.hung,
        "lock_step": java.healthy,
        "lock_step_hung": java.hung,
    }
    return {
        name: {f"p{q:g}": round(found.quantile(q / 100, HANGS_AT_S) * 1e3, 3) for q in (50, 90, 99, 99.9)}
        for name, found in named.items()
    }


# -- lag -------------------------------------------------------------------------------------------------------


def lags(length_s: float, *, is_hung: bool, lock_step: bool = False) -> Lags:
    """Write for a number of virtual seconds and measure the lag of one replica."""
    with SimRuntime(1) as runtime:
        cluster = _cluster(runtime, lock_step)
        runtime.sleep(1.0)
        primary, watched = _region(cluster, 0), _region(cluster, WATCHED)
        waiting: dict[bytes, float] = {}
        seen: list[tuple[float, float]] = []
        replay = watched.replay

        def replay_and_look(entry: LoggedEntry) -> bool:
            is_new = replay(entry)
            for row in [row for row in waiting if watched.get(Get(row)).cells]:
                at = waiting.pop(row)
                seen.append((at - began, runtime.now() - at))
            return is_new

        watched.replay = replay_and_look  # type: ignore[method-assign]  # the moment in which an edit becomes visible
        began = runtime.now()
        for number in range(int(length_s * EDITS_PER_S)):
            if is_hung and number == int(HANGS_AT_S * EDITS_PER_S):
                hung = cluster.server_of(cluster.regions(TABLE)[0], HUNG)
                assert hung is not None
                cluster.pause(hung, keeps_session=True)
            row = b"%08d" % number
            if number % PROBE_EVERY == 0:
                waiting[row] = runtime.now()
            primary.mutate(_put(row))
            runtime.sleep(1.0 / EDITS_PER_S)
        runtime.sleep(0.1)
        seen += [(at - began, runtime.now() - at) for at in waiting.values()]
        seen.sort()
        cluster.close()
        return Lags([at for at, _ in seen], [lag for _, lag in seen])


def _cluster(runtime: SimRuntime, lock_step: bool, copies: int = COPIES) -> FakeCluster:
    config = {"latency_s_min": NETWORK_S, "latency_s_max": NETWORK_S, "replication_lock_step": lock_step}
    cluster = FakeCluster(servers=copies + 3, runtime=runtime, config=config)
    cluster.create_table(TableDescriptor(TABLE, (FamilyDescriptor(b"f"),), region_replication=copies))
    return cluster


def _region(cluster: FakeCluster, replica_id: int) -> Region:
    node = cluster.node_named(cluster.regions(TABLE)[0], replica_id)
    return cluster.host_of(node).regions[node.name]


# -- flushes ---------------------------------------------------------------------------------------------------


def opening_flushes(replicas: int) -> int:
    """Close all replicas of a region that has edits in memory, open them together, and count the flushes."""
    with SimRuntime(1) as runtime:
        cluster = _cluster(runtime, False, replicas + 1)
        runtime.sleep(2.0)
        _region(cluster, 0).mutate(_put(b"r"))
        group = cluster.master.states.table(TABLE)[0]
        sink = cluster.sink_of(group.primary)
        assert sink is not None
        before = sink.flushes_seen
        cluster.master.run(lambda: cluster.master.assignment.unassign(group.nodes[1:]))
        cluster.master.run(lambda: cluster.master.assignment.assign(group.nodes[1:]))
        runtime.sleep(5.0)
        for replica_id in range(1, replicas + 1):
            assert _region(cluster, replica_id).get(Get(b"r")).cells, "all of them were opened, and show the row"
        flushes = sink.flushes_seen - before
        cluster.close()
        return flushes


# -- memory ----------------------------------------------------------------------------------------------------


def full_rate(edits: int) -> dict[str, float]:
    """Put as fast as one thread can, on real threads, up to the memory limit; then compare all replicas."""
    config = {"replication_pending_bytes_max": LIMIT_BYTES, "replication_flush_interval_s": 0.2}
    with FakeCluster(servers=5, config=config) as cluster:
        cluster.create_table(TableDescriptor(TABLE, (FamilyDescriptor(b"f"),), region_replication=COPIES))
        primary = _region(cluster, 0)
        began = time.perf_counter()
        for number in range(edits):
            primary.mutate(_put(b"%08d" % number))
        seconds = time.perf_counter() - began
        cluster.wait_until_replicated(60.0)
        for replica_id in range(1, COPIES):
            replica = _region(cluster, replica_id)
            missing = sum(1 for number in range(edits) if not replica.get(Get(b"%08d" % number)).cells)
            assert not missing, f"replica {replica_id} lacks {missing} of {edits} edits"
        buffer = cluster.host_of(cluster.node_named(cluster.regions(TABLE)[0])).replication.buffer
        return {
            "peak_share": buffer.peak_bytes / LIMIT_BYTES,
            "edits_per_s": edits / seconds,
            "refused": buffer.refused,
            "flushes": buffer.flushes,
        }


def full_rate_beside_a_hung_replica(edits: int) -> dict[str, float]:
    """Do the same with a replica that never responds and a primary that cannot flush: the hard limit must hold."""
    config = {
        "replication_pending_bytes_max": LIMIT_BYTES,
        "replication_operation_timeout_s": 3600.0,
        "replication_rpc_timeout_s": 3600.0,
    }
    with FakeCluster(servers=6, config=config) as cluster:
        cluster.create_table(TableDescriptor(TABLE, (FamilyDescriptor(b"f"),), region_replication=COPIES))
        region = cluster.regions(TABLE)[0]
        hosts = [cluster.server_of(region, replica_id) for replica_id in range(COPIES)]
        assert all(host is not None for host in hosts)
        cluster.faults.stall_flushes(str(hosts[0]))
        cluster.pause(str(hosts[HUNG]), keeps_session=True)
        primary, buffer = _region(cluster, 0), cluster.server_named(str(hosts[0])).replication.buffer
        for number in range(edits):
            primary.mutate(_put(b"%08d" % number))
            assert buffer.pending_bytes <= LIMIT_BYTES, "the limit was passed"
        peak, refused = buffer.peak_bytes, buffer.refused
        cluster.faults.stall_flushes(str(hosts[0]), False)
        cluster.resume(str(hosts[HUNG]))
        cluster.wait_until_replicated(60.0)
        return {"peak_share": peak / LIMIT_BYTES, "refused": refused, "edits": edits}


SCENARIO = Scenario(
    "region-replication",
    ("R1", "R2", "R3", "R4", "R4b", "R5", "R5b"),
    "replicas follow within milliseconds, and a hung one delays no other",
    run,
    backend="fake",
)
