"""TIMELINE reads of regions whose primary is on a server that is slow for good: which replica is called first."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from statistics import median
from typing import Any

import pytest

from metaclient.attempts.budget import HedgeBudget
from metaclient.attempts.delay import HedgeDelay
from metaclient.attempts.latencies import FAST_CALLS, OUTRUN, PROBE_S, SERVERS_MAX, SILENCES, WINDOW, ServerLatencies
from metaclient.attempts.silence import OUTRUN_CALLS
from metaclient.calls.hedging import HedgePermit
from metaclient.connection import Connection, connect_to
from metaclient.errors import ServerUnreachable
from metaclient.model import Row, ServerName
from metaclient.runtime import SimRuntime
from metaclient.telemetry import Event
from metaclient.testing import ScriptedBackend

FAST_S, SLOW_S = 0.001, 0.1


@pytest.fixture
def runtime() -> Iterator[SimRuntime]:
    with SimRuntime(seed=1) as made:
        yield made


def cluster(runtime: SimRuntime, *, splits: list[bytes] | None = None, servers: int = 3) -> ScriptedBackend:
    backend = ScriptedBackend(runtime, latency_s=FAST_S, servers=servers)
    backend.add_table("t", splits=splits or [], region_replication=3)
    return backend


def connected(backend: ScriptedBackend, **options: Any) -> Connection:
    connection = connect_to(backend, runtime=backend.runtime, **options)
    for row in (b"a", b"h", b"q"):
        connection.table("t").put(row, {b"cf:a": row})
    backend.calls.clear()
    return connection


def read(connection: Connection, times: int, row: bytes = b"a", pause_s: float = 0.0) -> list[tuple[float, int]]:
    """Return latency and replica of each read."""
    runtime, table = connection._runtime, connection.table("t")
    found: list[tuple[float, int]] = []
    for _ in range(times):
        begun = runtime.now()
        answer = table.row(row, consistency="TIMELINE")
        found.append((runtime.now() - begun, answer.replica_id))
        runtime.sleep(pause_s)
    return found


def slow_down(backend: ScriptedBackend, row: bytes = b"a", seconds: float = SLOW_S) -> ServerName:
    """Make every call to the server of the row's primary slow."""
    place = backend.region_of(b"t", row).replicas[0]
    assert place is not None
    backend.on("*", server=place.server).delays(seconds)
    return place.server


# -- the choice --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("extra_s", [0.03, 0.1, 0.2])
@pytest.mark.parametrize("reads_before", [0, 300])
def test_slow_primary_is_not_learned_as_normal(runtime: SimRuntime, extra_s: float, reads_before: int) -> None:
    """The primary is slow for good: reads take as long as the replicas do, for at most 5 % extra calls."""
    backend = cluster(runtime)
    connection = connected(backend)
    read(connection, reads_before)
    slow_down(backend, seconds=extra_s)
    backend.calls.clear()
    seconds = [each for each, _ in read(connection, 1000, pause_s=0.005)]
    assert median(seconds) < 2 * FAST_S
    assert backend.count("get") <= 1050
    assert sum(each > 2 * FAST_S for each in seconds) <= 60


def test_slow_primary_is_found_when_no_hedge_is_left(runtime: SimRuntime) -> None:
    """Slow moments before have used up the budget, so that hardly any read can be compared with a replica."""
    backend = cluster(runtime)
    connection = connected(backend)
    read(connection, 200)
    while connection.engine.operations.hedging.budget.take():
        pass
    slow_down(backend)
    assert median(each for each, _ in read(connection, 300)) < 2 * FAST_S


def test_primary_that_is_slow_now_and_then_stays_first(runtime: SimRuntime) -> None:
    """5 % of the primary's gets are slow: hedges serve these, and the others are fresh."""
    backend = cluster(runtime)
    connection = connected(backend)
    chance = random.Random(1)
    backend.on("get", replica=0, when=lambda call: chance.random() < 0.05).delays(SLOW_S)
    answers = Counter(replica_id for _, replica_id in read(connection, 2000))
    assert answers[0] > 1850


def test_equally_fast_replicas_do_not_change_places(runtime: SimRuntime) -> None:
    """Latencies vary by a factor of ten, in the same way on all replicas: nearly all answers are fresh."""
    backend = cluster(runtime)
    connection = connected(backend)
    events: list[Event] = []
    connection.on_event(events.append)
    chance = random.Random(1)

    def latency_s() -> float:
        return 0.02 * chance.lognormvariate(0.0, 0.8)

    answers: Counter[int] = Counter()
    for _ in range(2000):
        backend.clear_rules()
        for replica in range(3):
            backend.on("get", replica=replica).delays(latency_s())
        answers[read(connection, 1)[0][1]] += 1
    assert answers[0] > 1800
    assert len([event for event in events if event.kind == "server_slow"]) <= 2


def test_recovery_of_the_primary_is_noticed_within_two_seconds(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend)
    slow_down(backend)
    read(connection, 500, pause_s=0.005)
    backend.clear_rules()
    recovered = runtime.now()
    while runtime.now() < recovered + 2.0:
        read(connection, 1, pause_s=0.005)
    assert {replica_id for _, replica_id in read(connection, 200)} == {0}


def test_client_with_few_reads_notices_the_recovery_too(runtime: SimRuntime) -> None:
    """Two reads per second: the budget of hedges is used up, and probes start all the same."""
    backend = cluster(runtime)
    connection = connected(backend)
    slow_down(backend)
    read(connection, 60, pause_s=0.5)
    backend.clear_rules()
    read(connection, 26, pause_s=0.5)
    assert {replica_id for _, replica_id in read(connection, 20, pause_s=0.5)} == {0}


def test_strong_reads_show_the_recovery(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend)
    slow_down(backend)
    read(connection, 50)
    assert read(connection, 1)[0][1] != 0
    backend.clear_rules()
    for _ in range(FAST_CALLS):
        connection.table("t").row(b"a")
    assert {replica_id for _, replica_id in read(connection, 20)} == {0}


def test_slow_server_is_avoided_for_all_its_regions(runtime: SimRuntime) -> None:
    """Reads of one region have found the server slow: the first read of another region does not wait for it."""
    backend = cluster(runtime, splits=[b"d", b"g", b"j"])
    connection = connected(backend)
    server = slow_down(backend)
    read(connection, 50)
    others = [
        row for row in (b"e", b"h", b"k") if (at := backend.region_of(b"t", row).replicas[0]) and at.server == server
    ]
    assert others
    connection.locate("t", others[0])
    assert read(connection, 1, others[0])[0][0] < 2 * FAST_S


def test_gets_teach_batches_and_scans(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend)
    slow_down(backend)
    read(connection, 50)
    table = connection.table("t")
    begun = runtime.now()
    assert all(row.stale for _, row in table.rows([b"a", b"h"], consistency="TIMELINE"))
    assert all(getattr(row, "stale", False) for _, row in table.scan(consistency="TIMELINE"))
    assert runtime.now() - begun < 5 * FAST_S
    assert connection.stats()["hedges"]["started"] <= 10


@pytest.mark.parametrize("kind", ["rows", "scan"])
def test_batches_and_scans_find_a_slow_server_by_themselves(runtime: SimRuntime, kind: str) -> None:
    backend = cluster(runtime)
    connection = connected(backend, hedge_delay_scan_s=0.01)
    table = connection.table("t")
    slow_down(backend)
    for _ in range(20):
        begun = runtime.now()
        if kind == "rows":
            table.rows([b"a", b"h"], consistency="TIMELINE")
        else:
            list(table.scan(consistency="TIMELINE"))
        seconds = runtime.now() - begun
    assert seconds < 5 * FAST_S


def test_reads_spread_over_the_other_replicas(runtime: SimRuntime) -> None:
    """Ten connections turn away from the primary: neither of the two other replicas gets all their reads."""
    backend = cluster(runtime)
    connections = [connected(backend) for _ in range(10)]
    slow_down(backend)
    for connection in connections:
        read(connection, 50)
    backend.calls.clear()
    for connection in connections:
        read(connection, 10)
    assert 40 <= backend.count("get", replica_id=1) <= 60
    assert 40 <= backend.count("get", replica_id=2) <= 60


def test_plan_of_hbase_calls_the_primary_first_always(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend, hedge_plan="all_at_once", hedge_delay="fixed", hedge_budget=1000)
    slow_down(backend)
    read(connection, 50)
    assert backend.count("get", replica_id=0) == 50


def test_verdicts_are_events(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend)
    events: list[Event] = []
    connection.on_event(events.append)
    server = slow_down(backend)
    read(connection, 200)
    backend.clear_rules()
    read(connection, 50, pause_s=0.05)
    found = [(event.kind, event.details["server"]) for event in events if event.kind.startswith("server_")]
    assert found == [("server_slow", str(server)), ("server_recovered", str(server))]
    assert connection.engine.telemetry.total("metaclient.diversions") > 40


@pytest.mark.parametrize("rate", [1.0, 2.0, 5.0, 10.0, 20.0])
def test_recovery_is_noticed_within_its_bound_at_low_rates(runtime: SimRuntime, rate: float) -> None:
    """Each probe of the slow server costs a hedge, and with few reads per second there is a hedge every few seconds."""
    backend = cluster(runtime)
    connection = connected(backend)
    slow_down(backend)
    read(connection, 400, pause_s=0.005)
    read(connection, round(80 * rate), pause_s=1 / rate)
    backend.clear_rules()
    bound_s = min(10.0, max(2.0, 1 / (0.05 * rate))) + (FAST_CALLS + 1) / rate
    read(connection, round(bound_s * rate), pause_s=1 / rate)
    assert {replica_id for _, replica_id in read(connection, 20, pause_s=1 / rate)} == {0}


# -- pauses ------------------------------------------------------------------------------------------------------------


def test_pause_of_a_server_does_not_become_the_hedge_delay() -> None:
    """Eight reads in flight waited 80 ms for a server that paused: more than one in twenty of the window."""
    delay = HedgeDelay(fixed_s=0.01, adaptive=True, quantile=0.95, min_s=0.001, max_s=1.0, samples_min=20)
    for latency_s in [0.004] * 120 + [0.08] * 8:
        delay.add(latency_s)
    assert delay.delay_s() <= 2 * 0.01


def test_delay_still_learns_a_cluster_that_is_slower_for_good() -> None:
    delay = HedgeDelay(fixed_s=0.01, adaptive=True, quantile=0.95, min_s=0.001, max_s=1.0, samples_min=20)
    for _ in range(128):
        delay.add(0.1)
    assert delay.delay_s() == 0.1


def test_low_budget_is_kept_for_reads_whose_server_has_stopped_answering(runtime: SimRuntime) -> None:
    """A read at a server that answers other reads waits twice the delay; one at a server that answers none does not."""
    backend = cluster(runtime)
    connection = connected(backend)
    hedging, table = connection.engine.operations.hedging, connection.table("t")
    while not hedging.budget.is_low():
        hedging.budget.owe()
    place = backend.region_of(b"t", b"a").replicas[0]
    assert place is not None
    begun = runtime.now()
    assert HedgePermit(hedging, "get", [place], since=begun)(1)
    runtime.run_for(0.001)
    table.row(b"a", consistency="TIMELINE")
    permit = HedgePermit(hedging, "get", [place], since=begun)
    assert [permit(1), permit(1)] == [False, True]


def test_new_client_keeps_hedges_for_a_server_that_pauses() -> None:
    """Its burst is all it has: half of it is not for ordinary reads."""
    budget = HedgeBudget(ratio=0.05, burst=10)
    while not budget.is_low():
        assert budget.take()
    assert [budget.take() for _ in range(5)] == [True, True, True, True, False]


def test_pausing_server_is_avoided_after_three_outrun_calls(runtime: SimRuntime) -> None:
    """Each further read during the pause would need a hedge, and wait for it, until 50 ms have passed."""
    backend = cluster(runtime)
    connection = connected(backend)
    read(connection, 20)
    backend.on("get", replica=0).delays(5.0)
    latencies = [latency_s for latency_s, _ in read(connection, 10)]
    assert [latency_s > 1.5 * FAST_S for latency_s in latencies] == [True] * 3 + [False] * 7


def test_server_that_is_stopped_and_continued_in_turns_becomes_slow(runtime: SimRuntime) -> None:
    """Each pause costs three hedges, more than the budget has, and reads whose hedge is refused wait for its end."""
    backend = cluster(runtime)
    hedging = connected(backend).engine.operations.hedging
    place = backend.region_of(b"t", b"a").replicas[0]
    assert place is not None
    for _ in range(SILENCES):
        assert not hedging.slow.contains(place.server)
        runtime.run_for(0.15)
        for _ in range(OUTRUN_CALLS):
            hedging.is_witness("get", place, runtime.pending(), runtime.now() - 0.05)
        hedging.answered(place.server)
    assert hedging.slow.contains(place.server)


def test_answer_to_a_strong_read_ends_the_silence(runtime: SimRuntime) -> None:
    """The witness of the silence is lost: without STRONG reads, TIMELINE reads would avoid the primary until it times
    out."""
    backend = cluster(runtime)
    connection = connected(backend)
    backend.on("get", replica=0, times=3).hangs()
    assert {replica_id for _, replica_id in read(connection, 10)} == {1, 2}
    connection.table("t").row(b"a")
    assert read(connection, 1)[0][1] == 0


# -- HBase's keys ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "method"),
    [
        ("hbase.client.primaryCallTimeout.get", "get"),
        ("hbase.client.primaryCallTimeout.multiget", "batch"),
        ("hbase.client.replicaCallTimeout.scan", "scan_open"),
        ("hbase.client.primaryCallTimeout.scan", "scan_open"),
    ],
)
@pytest.mark.parametrize("given_us", [5_000, 200_000])
def test_given_delay_is_the_moment_of_the_hedge(runtime: SimRuntime, key: str, method: str, given_us: int) -> None:
    """200 ms used to hedge after 1.6 ms once latencies were known, and that of scans had no effect."""
    backend = cluster(runtime)
    connection = connected(backend, config={key: given_us})
    table = connection.table("t")

    def read_once() -> None:
        if method == "get":
            table.row(b"a", consistency="TIMELINE")
        elif method == "batch":
            table.rows([b"a"], consistency="TIMELINE")
        else:
            list(table.scan(consistency="TIMELINE"))

    for _ in range(100):
        read_once()
    backend.on(method, replica=0, times=1).delays(1.0)
    backend.on("batch", server=_primary_of(backend), times=1).delays(1.0)
    backend.calls.clear()
    begun = runtime.now()
    read_once()
    hedged = [call.at_s - begun for call in backend.calls if call.method == method][1]
    assert hedged == pytest.approx(given_us / 1e6, abs=1e-4)


def _primary_of(backend: ScriptedBackend) -> ServerName:
    place = backend.region_of(b"t", b"a").replicas[0]
    assert place is not None
    return place.server


def test_hedged_lookups_call_all_meta_replicas_at_once_again_and_again(runtime: SimRuntime) -> None:
    """``hedge_plan="all_at_once"`` holds for hbase:meta, too; a budget of one hedge per lookup refused half."""
    backend = ScriptedBackend(runtime, meta_replicas=4, servers=4)
    backend.add_table("t", region_replication=1)
    options: dict[str, Any] = {"meta_mode": "HedgedRead", "hedge_plan": "all_at_once", "meta_hedge_delay_s": 0.01}
    connection = connect_to(backend, runtime=runtime, **options)
    backend.on("read_meta", replica=0).delays(0.1)
    for replica in (1, 2, 3):
        backend.on("read_meta", replica=replica).delays(0.02)
    for _ in range(30):
        backend.calls.clear()
        begun = runtime.now()
        connection.locate("t", b"a", reload=True)
        calls = [(call.replica_id, round(call.at_s - begun, 6)) for call in backend.calls if call.method == "read_meta"]
        assert sorted(calls) == [(0, 0.0), (1, 0.01), (2, 0.01), (3, 0.01)]


# -- the policy --------------------------------------------------------------------------------------------------------


def judged_slow(servers: ServerLatencies, now: float = 0.0) -> None:
    for _ in range(4):
        servers.add("fast", "get", FAST_S, now=now)
    while not servers.add("slow", "get", SLOW_S, now=now, rivals=["fast"], delay_s=0.01):
        pass


def test_old_latencies_do_not_count() -> None:
    servers = ServerLatencies()
    for _ in range(4):
        servers.add("fast", "get", FAST_S, now=0.0)
    assert not any(servers.add("slow", "get", SLOW_S, now=70.0, rivals=["fast"], delay_s=0.01) for _ in range(WINDOW))


def test_verdict_ends_after_a_minute_without_a_call() -> None:
    servers = ServerLatencies()
    judged_slow(servers)
    servers.is_probe_due("slow", now=59.0)
    assert servers.is_slow("slow")
    servers.is_probe_due("slow", now=61.0)
    assert not servers.is_slow("slow")


def test_relapses_need_more_and_more_fast_calls() -> None:
    servers = ServerLatencies()
    needed: list[int] = []
    for _ in range(6):
        judged_slow(servers)
        calls = 1
        while not servers.add("slow", "get", FAST_S, now=0.0, rivals=["fast"], delay_s=0.01):
            calls += 1
        needed.append(calls)
    assert needed == [4, 8, 16, 32, 32, 32]


def test_probes_of_many_clients_do_not_come_at_once() -> None:
    servers = ServerLatencies()
    judged_slow(servers)
    chance = random.Random(1)
    instants: list[float] = []
    for step in range(2000):
        if servers.is_probe_due("slow", now=step * 0.01):
            servers.begin_probe("slow", now=step * 0.01, chance=chance.random())
            instants.append(step * 0.01)
    gaps = [after - before for before, after in pairwise(instants)]
    assert min(gaps) >= PROBE_S / 2
    assert max(gaps) <= PROBE_S * 1.5 + 0.02
    assert max(gaps) - min(gaps) > PROBE_S / 2


def test_memory_is_bounded_by_the_number_of_servers() -> None:
    servers = ServerLatencies()
    for number in range(SERVERS_MAX + 100):
        servers.add(number, "get", OUTRUN, now=0.0)
    assert len(servers._servers) == SERVERS_MAX


@pytest.mark.parametrize("kind", ["row", "rows", "scan"])
def test_each_row_says_why_its_replica_answered(runtime: SimRuntime, kind: str) -> None:
    backend = cluster(runtime)
    connection = connected(backend, hedge_delay="fixed", hedge_delay_scan_s=0.01)
    table = connection.table("t")

    def why(**options: Any) -> str:
        if kind == "row":
            return table.row(b"a", consistency="TIMELINE", **options).why
        if kind == "rows":
            return table.rows([b"a"], consistency="TIMELINE", **options)[0][1].why
        return next(row.why for _, row in table.scan(consistency="TIMELINE", **options) if isinstance(row, Row))

    assert table.row(b"a").why == "primary"
    assert why() == "primary"
    assert why(replica_id=1) == "pinned"
    server = _primary_of(backend)
    backend.on("*", server=server, times=1).delays(SLOW_S)
    assert why() == "hedge"
    backend.clear_rules()
    runtime.sleep(1.0)
    backend.on("*", server=server, times=1).raises(ServerUnreachable("refused"))
    assert why() == "failover"
    backend.clear_rules()
    slow_down(backend)
    read(connection, 50)
    assert why() == "fastest"


def test_ordinary_hedges_leave_a_reserve_for_pauses() -> None:
    """Ordinary reads hedge later while the balance is low; the first burst is free."""
    budget = HedgeBudget(ratio=0.05, burst=10)
    assert not budget.is_low()
    assert all(budget.take() for _ in range(10))
    assert budget.is_low()
    for _ in range(20 * 30):
        budget.on_call()
    assert not budget.is_low()


def test_pause_of_a_server_does_not_lengthen_the_hedge_delay(runtime: SimRuntime) -> None:
    """Calls that were outrun during a pause used to raise the delay with each hedge."""
    backend = cluster(runtime)
    connection = connected(backend, hedge_budget=1.0)
    read(connection, 200)
    delay = connection.engine.operations.hedging._delays["get"]
    before_s = delay.delay_s()
    backend.on("get", replica=0, times=4).delays(SLOW_S)
    read(connection, 32)
    assert delay.delay_s() == pytest.approx(before_s)
