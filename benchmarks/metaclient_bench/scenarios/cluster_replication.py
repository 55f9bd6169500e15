"""R7 to R10: what replication to other clusters costs, and what a dead peer does to a healthy one.

R7 (virtual time): a cluster gets 200 edits per second and ships them to a peer, alone and beside a second peer behind a
partition. The lag of an edit is the time from its write until the sink has applied it. The limits of batches and of the
buffer are smaller than HBase's by a factor of 1024, in the same proportion, so that the dead peer reaches them.

R8 (real threads): puts as fast as one thread can send them, in three clusters in turns: without a peer, with one, with
three. The figure is the CPU time of the thread that puts, as in R4b. It does not see the work of the sources, which run
in other threads of the same Python process and take the interpreter from the puts. So beside it stand the elapsed time
of the puts, and the CPU time of the whole process until all edits are shipped, as multiples of those without a peer.

R9 (real threads): a disabled peer has a backlog of single-row entries; it is enabled, and the CPU time of the process
until all of them are shipped is measured. The sinks acknowledge without writing: shipping is the work of the source.
Beside stand the slowest of three runs, and the median with sinks that write.

R10 (virtual time): three peers behind a partition, and two backlogs. The bytes that all sources of the server hold are
compared with the quota.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from statistics import median
from typing import Any, NamedTuple

from metaclient.model import FamilyDescriptor, TableDescriptor
from metaclient.replication_peers import SinkLoad
from metaclient.runtime import Runtime, SimRuntime, ThreadRuntime
from metaclient.wire.rpc.replication import ShippedEntry
from metaclient_bench.figure import Figure, Outcome
from metaclient_bench.replication_cost import VALUE, put_of
from metaclient_bench.scenario import Scenario
from metaclient_bench.virtual import TABLE
from metaclient_fake import FakeCluster
from metaclient_fake.replication.batches import BufferQuota
from metaclient_fake.storage import Region

EDITS_PER_S = 200
#: HBase's limits divided by 1024.
SMALL = {
    "peer_replication_batch_bytes": 64 * 1024,
    "peer_replication_buffer_bytes_max": 256 * 1024,
}
#: Sources on real threads look again soon, so that they ship while the puts of a turn are still going on.
SOON = {"peer_replication_retry_pause_s": 0.005, "peer_replication_retry_multiplier_max": 2}
#: Puts of one turn of R8.
SLICE = 5_000
WAIT_S = 120.0


def run(quick: bool) -> Outcome:
    length_s = 60.0 if quick else 300.0
    alone, beside = lags(length_s, dead=0), lags(length_s, dead=1)
    cost = put_cost(3 if quick else 15)
    edits = 10_000 if quick else 40_000
    rates = [shipped_per_core_s(edits) for _ in range(3)]
    written = median(shipped_per_core_s(edits, is_written=True) for _ in range(3))
    few, many = held_bytes(2_000), held_bytes(16_000)
    beside_one = {name: cost[name] for name in ("put_us", "one_elapsed", "one_process")}
    beside_three = {name: cost[name] for name in ("three_elapsed", "three_process")}
    figures = (
        Figure.of(
            "R7",
            "p99 lag of a healthy peer beside a dead one, as a multiple of that alone",
            _p99(beside) / _p99(alone),
            "<= 1.1",
            alone_s=_p99(alone),
            beside_s=_p99(beside),
            median_ratio=median(beside) / median(alone),
            edits=len(beside),
        ),
        Figure.of(
            "R8",
            "CPU that the putting thread needs more with one peer, as a share",
            cost["one"],
            "<= 0.1",
            **beside_one,
        ),
        Figure.of("R8b", "the same with three peers", cost["three"], "<= 0.2", **beside_three),
        Figure.of(
            "R9",
            "edits shipped per second and core, the median of three runs",
            median(rates),
            ">= 20000",
            worst=min(rates),
            with_writing_sinks=written,
        ),
        Figure.of(
            "R10",
            "most bytes that sources hold for three dead peers, as a share of the quota",
            max(few["peak_share"], many["peak_share"]),
            "<= 1.01",
            backlog_bytes=many["backlog"],
            with_an_eighth_of_the_backlog=few["peak_share"],
        ),
    )
    return Outcome(figures, {"lag_s": {"alone": _sampled(alone), "beside": _sampled(beside)}})


def _p99(lags_s: Sequence[float]) -> float:
    return sorted(lags_s)[int(0.99 * len(lags_s))]


def _sampled(lags_s: Sequence[float]) -> list[float]:
    return [round(lag, 4) for lag in lags_s[:: max(1, len(lags_s) // 200)]]


# -- clusters --------------------------------------------------------------------------------------------------


@contextmanager
def _star(
    runtime: Runtime, peers: int, config: Mapping[str, object]
) -> Iterator[tuple[FakeCluster, list[FakeCluster]]]:
    """Yield a cluster of one server that replicates to each of the others, and the others."""
    with ExitStack() as stack:
        source = stack.enter_context(
            FakeCluster(servers=1, meta_replicas=1, runtime=runtime, name="source", config=config)
        )
        others = [
            stack.enter_context(FakeCluster(servers=2, meta_replicas=1, network=source.network, name=f"peer{number}"))
            for number in range(peers)
        ]
        for cluster in (source, *others):
            cluster.create_table(TableDescriptor(TABLE, (FamilyDescriptor(b"f", replication_scope=1),)))
        yield source, others


def _add_peers(source: FakeCluster, others: Sequence[FakeCluster]) -> None:
    for other in others:
        source.replication.add(other.name, other.cluster_key)


def _region(cluster: FakeCluster) -> Region:
    node = cluster.node_named(cluster.regions(TABLE)[0])
    return cluster.host_of(node).regions[node.name]


def _shipped(cluster: FakeCluster, peer: str) -> int:
    loads = [load for status in cluster.replication.status() for load in status.sources]
    return sum(load.edits_shipped for load in loads if load.peer_id == peer)


class _WatchedSink:
    """Calls ``seen`` for each list of entries after ``inner`` has applied it; without ``inner`` nothing is written."""

    def __init__(self, inner: Any, seen: Callable[[Sequence[ShippedEntry]], None]) -> None:
        self._inner = inner
        self._seen = seen

    def apply(self, entries: Sequence[ShippedEntry]) -> None:
        if self._inner is not None:
            self._inner.apply(entries)
        self._seen(entries)

    def count_failed(self) -> None:
        if self._inner is not None:
            self._inner.count_failed()

    def load(self) -> SinkLoad:
        return SinkLoad()


def _watch(cluster: FakeCluster, seen: Callable[[Sequence[ShippedEntry]], None], *, is_written: bool = True) -> None:
    for server in cluster.servers_by_host.values():
        server.replication_sink = _WatchedSink(server.replication_sink if is_written else None, seen)


# -- R7 --------------------------------------------------------------------------------------------------------


def lags(length_s: float, *, dead: int) -> list[float]:
    """Return the lag of each edit at a healthy peer, beside so many peers that cannot be reached."""
    found: list[float] = []
    with SimRuntime(7) as runtime, _star(runtime, 1 + dead, SMALL) as (source, others):
        healthy, *unreachable = others
        for cluster in unreachable:
            source.network.partition("source", cluster.name)

        def seen(entries: Sequence[ShippedEntry]) -> None:
            now_ms = runtime.time_ms()
            found.extend((now_ms - entry.key.write_time_ms) / 1e3 for entry in entries)

        _watch(healthy, seen)
        _add_peers(source, others)
        region = _region(source)
        edits = int(length_s * EDITS_PER_S)
        for number in range(edits):
            region.mutate(put_of(b"%08d" % number))
            runtime.sleep(1 / EDITS_PER_S)
        runtime.sleep(30.0)
        assert len(found) == edits, f"{edits - len(found)} edits did not arrive at the healthy peer"
        assert all(_shipped(source, cluster.name) == 0 for cluster in unreachable)
    return found


# -- R8 --------------------------------------------------------------------------------------------------------


def put_cost(turns: int) -> dict[str, float]:
    """Return what a put costs more with one and with three peers, as shares of a put without one; and other ratios."""
    with ExitStack() as stack:
        sides = [_Side(stack, peers) for peers in (0, 1, 3)]
        spent: list[list[_Spent]] = []
        for turn in range(turns):
            order = [(turn + number) % 3 for number in range(3)]  # the first of a turn finds colder caches
            by_side = {index: sides[index].put(turn) for index in order}
            spent.append([by_side[index] for index in range(3)])

    def ratio(side: int, read: Callable[[_Spent], float]) -> float:
        return median(read(one[side]) / read(one[0]) for one in spent)

    return {
        "one": ratio(1, lambda one: one.thread_s) - 1,
        "three": ratio(2, lambda one: one.thread_s) - 1,
        "one_elapsed": ratio(1, lambda one: one.elapsed_s),
        "three_elapsed": ratio(2, lambda one: one.elapsed_s),
        "one_process": ratio(1, lambda one: one.process_s),
        "three_process": ratio(2, lambda one: one.process_s),
        "put_us": median(one[0].thread_s for one in spent) / SLICE * 1e6,
    }


class _Spent(NamedTuple):
    """The seconds of one turn: of the putting thread, elapsed, and of the process until all edits were shipped."""

    thread_s: float
    elapsed_s: float
    process_s: float


class _Side:
    """A cluster with so many peers, whose sinks acknowledge without writing."""

    def __init__(self, stack: ExitStack, peers: int) -> None:
        runtime = stack.enter_context(ThreadRuntime(name=f"bench{peers}"))
        source, others = stack.enter_context(_star(runtime, peers, SOON))
        self._runtime = runtime
        self._arrived = [0] * peers
        self._expected = 0
        for index, other in enumerate(others):
            _watch(other, partial(self._seen, index), is_written=False)
        _add_peers(source, others)
        self._table = stack.enter_context(source.connect()).table(TABLE)

    def _seen(self, index: int, entries: Sequence[ShippedEntry]) -> None:
        self._arrived[index] += len(entries)

    def put(self, turn: int) -> _Spent:
        rows = [b"%06d-%04d" % (turn, number) for number in range(SLICE)]
        data, put = {b"f:q": VALUE}, self._table.put
        process, elapsed, thread = time.process_time(), time.perf_counter(), time.thread_time()
        for row in rows:
            put(row, data)
        thread, elapsed = time.thread_time() - thread, time.perf_counter() - elapsed
        self._expected += SLICE
        until = self._runtime.now() + WAIT_S
        while any(arrived < self._expected for arrived in self._arrived):
            assert self._runtime.now() < until, "not all edits were shipped in time"
            self._runtime.sleep(0.005)
        return _Spent(thread, elapsed, time.process_time() - process)


# -- R9 --------------------------------------------------------------------------------------------------------


def shipped_per_core_s(edits: int, *, is_written: bool = False) -> float:
    """Return how many edits of a backlog are shipped per second of CPU time, of all threads of the process."""
    arrived = 0

    def seen(entries: Sequence[ShippedEntry]) -> None:
        nonlocal arrived
        arrived += len(entries)

    with ThreadRuntime(name="bench") as runtime, _star(runtime, 1, SOON) as (source, (peer,)):
        _watch(peer, seen, is_written=is_written)
        source.replication.add(peer.name, peer.cluster_key, enabled=False)
        region = _region(source)
        for number in range(edits):
            region.mutate(put_of(b"%08d" % number))
        until = runtime.now() + WAIT_S
        began = time.process_time()
        source.replication.enable(peer.name)
        while arrived < edits:
            assert runtime.now() < until, f"only {arrived} of {edits} edits were shipped in {WAIT_S:.0f} s"
            runtime.sleep(0.02)
        return edits / (time.process_time() - began)


# -- R10 -------------------------------------------------------------------------------------------------------


def held_bytes(edits: int) -> dict[str, float]:
    """Return the most bytes that the sources of three dead peers hold, as a share of the quota; and the backlog."""
    with SimRuntime(10) as runtime, _star(runtime, 3, SMALL) as (source, others):
        for cluster in others:
            source.network.partition("source", cluster.name)
        _add_peers(source, others)
        region = _region(source)
        (server,) = source.servers_by_host.values()
        for number in range(edits):
            region.mutate(put_of(b"%08d" % number))
            if number % 500 == 499:
                runtime.sleep(5.0)
        runtime.sleep(300.0)
        assert all(_shipped(source, cluster.name) == 0 for cluster in others)
        quota: Any = server.sources.make_source.__self__.quota  # type: ignore[union-attr]  # a bound method
        assert isinstance(quota, BufferQuota)
        return {"peak_share": quota.peak / quota.limit, "backlog": float(sum(file.size for file in server.wal.files))}


SCENARIO = Scenario(
    "cluster-replication",
    ("R7", "R8", "R8b", "R9", "R10"),
    "a dead peer delays no other, and what shipping costs the puts of the same process",
    run,
    backend="fake",
)
