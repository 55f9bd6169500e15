"""TIMELINE reads: hedged over region replicas, marked stale, bounded in cost; and STRONG ones beside them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from metaclient.backend import Action, Addressing, Capabilities, Outcome
from metaclient.connection import Connection, connect_to
from metaclient.errors import (
    CallTimeout,
    DeadlineExceeded,
    NoSuchFamily,
    NoSuchReplica,
    NotServingRegion,
    RegionOffline,
    RequestRefused,
    RetriesExhausted,
    ServerStopped,
    ServerUnreachable,
    Unsupported,
)
from metaclient.model import Get, RegionLocation, Result
from metaclient.runtime import Pending, SimRuntime
from metaclient.testing import Call, ScriptedBackend

GATEWAY = Capabilities(addressing=Addressing.GATEWAY)
FIXED = {"hedge_delay": "fixed"}


@pytest.fixture
def runtime() -> Iterator[SimRuntime]:
    with SimRuntime(seed=1) as made:
        yield made


def cluster(
    runtime: SimRuntime, *, replicas: int = 3, kind: type[ScriptedBackend] = ScriptedBackend, **options: Any
) -> ScriptedBackend:
    backend = kind(runtime, **options)
    backend.add_table("t", splits=[b"g", b"p"], region_replication=replicas)
    return backend


def connected(backend: ScriptedBackend, **options: Any) -> Connection:
    connection = connect_to(backend, runtime=backend.runtime, **{**FIXED, **options})
    table = connection.table("t")
    for row in (b"a", b"h", b"q"):
        table.put(row, {b"cf:a": row})
    backend.calls.clear()
    return connection


def hedges_of(connection: Connection) -> tuple[int, int]:
    """Started and won."""
    hedges = connection.stats()["hedges"]
    return hedges["started"], hedges["won"]


def asked(backend: ScriptedBackend, method: str = "get") -> list[int | None]:
    return [call.replica_id for call in backend.calls if call.method == method]


class Pipelined(ScriptedBackend):
    """Answers with something to wait for, completed by a task of its own; cancelled calls are remembered."""

    def __init__(self, runtime: SimRuntime, **options: Any) -> None:
        super().__init__(runtime, **options)
        self.cancelled: list[int] = []

    def get(self, place: RegionLocation | None, table: bytes, get: Get, deadline: float) -> Any:
        replica_id = place.replica_id if place is not None else 0
        pending: Pending[Result] = self.runtime.pending(lambda: self.cancelled.append(replica_id))
        truth = super().get

        def answer() -> None:
            try:
                pending.complete(truth(place, table, get, deadline))
            except BaseException as error:
                pending.fail(error)

        self.runtime.start(answer)
        return pending


class AllPipelined(ScriptedBackend):
    """Every data call answers with something to wait for, completed by a task of its own."""

    def _later(self, truth: Any, *args: object) -> Any:
        return self.runtime.start(truth, *args)

    def get(self, *args: Any) -> Any:
        return self._later(super().get, *args)

    def mutate(self, *args: Any) -> Any:
        return self._later(super().mutate, *args)

    def check_and_mutate(self, *args: Any) -> Any:
        return self._later(super().check_and_mutate, *args)

    def batch(self, *args: Any) -> Any:
        return self._later(super().batch, *args)

    def scan_open(self, *args: Any) -> Any:
        return self._later(super().scan_open, *args)

    def scan_next(self, *args: Any) -> Any:
        return self._later(super().scan_next, *args)

    def read_meta(self, *args: Any) -> Any:
        return self._later(super().read_meta, *args)


# -- STRONG ----------------------------------------------------------------------------------------------------


def test_strong_read_waits_for_a_slow_primary_and_is_not_stale(runtime: SimRuntime) -> None:
    """Waits 2 s, not stale, nobody else is asked (TestReplicasClient)."""
    backend = cluster(runtime)
    table = connected(backend).table("t")
    backend.on("get", replica=0).delays(2.0)
    row = table.row(b"a")
    assert (row, row.stale, row.replica_id, runtime.now()) == ({b"cf:a": b"a"}, False, 0, 2.0)
    assert asked(backend) == [0]


def test_strong_ignores_a_replica_id(runtime: SimRuntime) -> None:
    """STRONG with an id reads the primary, as in HBase."""
    backend = cluster(runtime)
    row = connected(backend).table("t").row(b"a", consistency="STRONG", replica_id=2)
    assert (row.replica_id, row.stale, asked(backend)) == (0, False, [0])


def test_strong_reads_through_a_gateway_cost_no_lookup(runtime: SimRuntime) -> None:
    """Behind a gateway the gateway finds the regions: 0 meta lookups, and the place is None."""
    backend = cluster(runtime, capabilities=GATEWAY)
    table = connected(backend).table("t")
    assert table.row(b"a") == {b"cf:a": b"a"}
    assert table.row(b"a").server is None
    assert [key for key, _ in table.rows([b"a", b"h", b"q"])] == [b"a", b"h", b"q"]
    assert [key for key, _ in table.scan()] == [b"a", b"h", b"q"]
    assert table.exists(b"a")
    assert table.cells(b"a", b"cf:a") == [b"a"]
    table.counter_inc(b"a", b"cf:n")
    with table.batch() as batch:
        batch.put(b"a", {b"cf:b": b"1"})
        batch.put(b"z", {b"cf:b": b"1"})
    assert backend.count("read_meta") == 0
    assert backend.count("batch") == 2  # one for all rows each: the gateway spreads them
    assert all(call.server is None for call in backend.calls)


def test_failing_gateway_is_retried_without_lookups(runtime: SimRuntime) -> None:
    backend = cluster(runtime, capabilities=GATEWAY)
    table = connected(backend).table("t")
    backend.on("get", times=3).raises(lambda: NotServingRegion("gone"))
    assert table.row(b"a") == {b"cf:a": b"a"}
    assert backend.count("read_meta") == 0


# -- hedged gets -----------------------------------------------------------------------------------------------


def test_blocked_primary_is_answered_by_a_secondary_and_stale(runtime: SimRuntime) -> None:
    """stale=true; an empty result is still stale (TestReplicasClient)."""
    backend = cluster(runtime)
    table = connected(backend).table("t")
    backend.on("get", replica=0).hangs()
    row = table.row(b"a", consistency="TIMELINE")
    assert (row, row.stale, runtime.now()) == ({b"cf:a": b"a"}, True, 0.01)
    assert row.replica_id in (1, 2)
    assert row.server == backend.region_of(b"t", b"a").replicas[row.replica_id].server
    missing = table.row(b"b", consistency="TIMELINE")
    assert (missing, missing.stale) == ({}, True)


def test_existence_is_timeline_too(runtime: SimRuntime) -> None:
    """Existence false before, true after, from a secondary both times (TestReplicasClient)."""
    backend = cluster(runtime)
    connection = connected(backend)
    table = connection.table("t")
    backend.on("get", replica=0).hangs()
    assert not table.exists(b"new", consistency="TIMELINE")
    table.put(b"new", {b"cf:a": b"1"})
    assert table.exists(b"new", consistency="TIMELINE")
    assert connection.stats()["hedges"]["won"] == 2


def test_hedge_counters_tell_started_from_won(runtime: SimRuntime) -> None:
    """Slow primary that still wins: started 1, won 0; blocked primary: started 2, won 1 (TestReplicasClient)."""
    backend = cluster(runtime, replicas=2)
    connection = connected(backend)
    table = connection.table("t")
    backend.on("get", replica=0, times=1).delays(0.05)
    backend.on("get", replica=1, times=1).delays(0.5)
    assert not table.row(b"a", consistency="TIMELINE").stale
    assert hedges_of(connection) == (1, 0)
    backend.on("get", replica=0).hangs()
    assert table.row(b"a", consistency="TIMELINE").stale
    assert hedges_of(connection) == (2, 1)


def test_fast_primary_is_never_hedged(runtime: SimRuntime) -> None:
    """0 secondary calls, also 5 s later (AbstractTestAsyncTableRegionReplicasRead)."""
    backend = cluster(runtime, latency_s=0.005)
    table = connected(backend).table("t")
    for _ in range(20):
        assert not table.row(b"a", consistency="TIMELINE").stale
    runtime.run_for(5.0)
    assert asked(backend) == [0] * 20


def test_failing_primary_is_replaced_at_once(runtime: SimRuntime) -> None:
    """The value comes from a secondary; the primary's call count stops growing."""
    backend = cluster(runtime)
    connection = connected(backend)
    backend.on("get", replica=0).raises(lambda: CallTimeout("no"))
    begun = runtime.now()
    row = connection.table("t").row(b"a", consistency="TIMELINE")
    assert (row.stale, runtime.now() - begun) == (True, 0.0)
    runtime.run_for(60.0)
    assert len(asked(backend)) == 2
    assert hedges_of(connection) == (0, 0)


@pytest.mark.parametrize("replica_id", [0, 1, 2])
def test_named_replica_is_asked_and_nobody_else(runtime: SimRuntime, replica_id: int) -> None:
    """Exactly one call, at that id; a named replica alone means TIMELINE (AbstractTestAsyncTableRegionReplicasRead)."""
    backend = cluster(runtime)
    table = connected(backend).table("t")
    row = table.row(b"a", replica_id=replica_id)
    assert (row.replica_id, row.stale, asked(backend)) == (replica_id, replica_id > 0, [replica_id])
    assert dict(table.rows([b"a"], replica_id=replica_id))[b"a"].replica_id == replica_id
    assert [row.replica_id for _, row in table.scan(replica_id=replica_id)] == [replica_id] * 3


def test_replica_that_does_not_exist_is_not_asked_for_again(runtime: SimRuntime) -> None:
    """Unlike in HBase's client (RegionOffline, retries, exhausted): the primary's answer is final."""
    backend = cluster(runtime)
    table = connected(backend, retries=3).table("t")
    for read in (lambda: table.row(b"a", replica_id=7), lambda: table.rows([b"a"], replica_id=7)):
        with pytest.raises(NoSuchReplica) as caught:
            read()
        assert len(caught.value.attempts) <= 1
    assert runtime.now() < 0.1  # no pause between attempts


def test_stopping_server_of_the_primary_gives_a_stale_answer(runtime: SimRuntime) -> None:
    """RegionServerStopped at the primary -> stale answer (TestReplicaWithCluster)."""
    backend = cluster(runtime)
    backend.on("get", replica=0).raises(lambda: ServerStopped("stopping"))
    assert connected(backend).table("t").row(b"a", consistency="TIMELINE").stale


def test_fatal_error_of_a_secondary_is_ignored(runtime: SimRuntime) -> None:
    """A secondary's do-not-retry error does not fail a read whose primary is merely slow."""
    backend = cluster(runtime)
    table = connected(backend).table("t")
    backend.on("get", replica=0).delays(1.0)
    backend.on("get", replica=1).raises(lambda: RequestRefused("no"))
    backend.on("get", replica=2).raises(lambda: RequestRefused("no"))
    row = table.row(b"a", consistency="TIMELINE")
    assert (row, row.stale) == ({b"cf:a": b"a"}, False)
    assert dict(table.rows([b"a", b"h"], consistency="TIMELINE"))[b"a"] == {b"cf:a": b"a"}


def test_all_copies_fail_with_the_primarys_error(runtime: SimRuntime) -> None:
    """All fail -> the primary's error."""
    backend = cluster(runtime)
    table = connected(backend, retries=0).table("t")
    backend.on("get", replica=0).raises(lambda: CallTimeout("the primary"))
    backend.on("get").raises(lambda: RequestRefused("a secondary"))
    with pytest.raises(RetriesExhausted, match="the primary"):
        table.row(b"a", consistency="TIMELINE")


def test_fatal_error_of_the_primary_is_told_at_once(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    table = connected(backend).table("t")
    with pytest.raises(NoSuchFamily):
        table.row(b"a", [b"nope:a"], consistency="TIMELINE")
    assert asked(backend) == [0]
    with pytest.raises(NoSuchFamily):
        table.rows([b"a", b"h"], [b"nope:a"], consistency="TIMELINE")


def test_single_copy_is_read_without_a_hedge(runtime: SimRuntime) -> None:
    """1 location known -> the primary only, no timer."""
    backend = cluster(runtime, replicas=1)
    connection = connected(backend)
    backend.on("get").delays(0.5)
    row = connection.table("t").row(b"a", consistency="TIMELINE")
    assert (row.stale, asked(backend)) == (False, [0])
    assert connection.stats()["hedges"]["started"] == 0


def test_secondaries_answer_while_the_primary_cannot_be_located(runtime: SimRuntime) -> None:
    """The lookup fails -> whoever is known is asked; if they fail too, the primary's error counts."""
    backend = cluster(runtime)
    connection = connected(backend, retries=0)
    table = connection.table("t")
    place = connection.locate("t", b"a")
    connection.engine.locator.on_error(place, NotServingRegion("gone"))
    backend.on("read_meta").raises(lambda: RegionOffline("the primary has no server"))
    assert table.row(b"a", consistency="TIMELINE").stale
    assert [row.stale for _, row in table.rows([b"a"], consistency="TIMELINE")] == [True]
    backend.on("get").raises(lambda: RequestRefused("a secondary"))
    with pytest.raises(RetriesExhausted, match="the primary has no server"):
        table.row(b"a", consistency="TIMELINE")


def test_time_spent_on_locating_counts_towards_the_delay(runtime: SimRuntime) -> None:
    """Slow locate -> secondaries at once."""
    backend = cluster(runtime)
    connection = connect_to(backend, runtime=runtime, **FIXED)
    backend.on("read_meta").delays(0.5)
    backend.on("get", replica=0).hangs()
    assert connection.table("t").row(b"a", consistency="TIMELINE").stale
    assert runtime.now() == 0.5


def test_secondaries_take_turns(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    table = connected(backend, hedge_budget_burst=100).table("t")
    backend.on("get", replica=0).hangs()
    winners = [table.row(b"a", consistency="TIMELINE").replica_id for _ in range(10)]
    assert winners.count(1) == winners.count(2) == 5


def test_all_at_once_plan_asks_every_secondary(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    table = connected(backend, hedge_plan="all_at_once").table("t")
    backend.on("get", replica=0).hangs()
    backend.on("get", replica=1).delays(0.1)
    backend.on("get", replica=2).delays(0.1)
    table.row(b"a", consistency="TIMELINE")
    instants = [call.at_s for call in backend.calls if call.method == "get"]
    assert instants == [0.0, 0.01, 0.01]


def test_hedges_stay_within_their_budget(runtime: SimRuntime) -> None:
    """Every tenth get of the primary is slow, HBase would hedge each: at most 5 % extra calls over 1000 reads."""
    backend = cluster(runtime, replicas=2)
    connection = connected(backend)
    table = connection.table("t")
    for number in range(1000):
        if number % 10 == 0:
            backend.on("get", replica=0, times=1).delays(0.02)
        table.row(b"a", consistency="TIMELINE")
    assert asked(backend).count(1) == connection.stats()["hedges"]["started"]
    assert 45 <= asked(backend).count(1) <= 50


def test_silent_primary_is_asked_last_until_it_answers(runtime: SimRuntime) -> None:
    """Hedges would be spent after ten reads, and all others would wait with the primary."""
    backend = cluster(runtime)
    connection = connected(backend)
    table = connection.table("t")
    backend.on("get", replica=0).delays(2.0)
    begun = runtime.now()
    assert all(table.row(b"a", consistency="TIMELINE").stale for _ in range(200))
    assert runtime.now() - begun < 0.2
    assert connection.stats()["hedges"]["started"] <= 11
    assert asked(backend).count(1) > 80
    assert asked(backend).count(2) > 80
    runtime.run_for(2.0)
    backend.clear_rules()
    assert not table.row(b"a", consistency="TIMELINE").stale


def test_silence_is_the_servers_and_no_other_ones(runtime: SimRuntime) -> None:
    backend = cluster(runtime, replicas=2)
    table = connected(backend).table("t")
    silent, other = (backend.region_of(b"t", row).replicas[0] for row in (b"a", b"h"))
    assert silent is not None
    assert other is not None
    assert silent.server != other.server
    backend.on("get", server=silent.server).hangs()
    for _ in range(20):
        table.row(b"a", consistency="TIMELINE")
    backend.calls.clear()
    assert not table.row(b"h", consistency="TIMELINE").stale
    assert asked(backend) == [0]


def test_read_whose_hedge_was_refused_turns_away_from_a_silent_server(runtime: SimRuntime) -> None:
    """It waits for little more than a quarter of a second, once; what it costs is taken from the hedges to come.

    The read before it is hedged without budget, because nothing is known about the replicas.
    """
    backend = cluster(runtime)
    connection = connected(backend, hedge_budget_burst=1)
    table = connection.table("t")
    backend.on("get", replica=0).delays(5.0)
    instants = [runtime.now()]
    for _ in range(10):
        assert table.row(b"a", consistency="TIMELINE").stale
        instants.append(runtime.now())
    taken = [round(after - before, 3) for before, after in pairwise(instants)]
    assert taken[:3] == [0.01, 0.01, 0.28]
    assert max(taken[3:]) == 0.0
    assert hedges_of(connection) == (3, 3)


def test_silent_server_is_tried_again_when_the_witness_has_ended(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend, rpc_read_timeout_s=3.0)
    table = connection.table("t")
    backend.on("get", replica=0).hangs()
    for _ in range(20):
        table.row(b"a", consistency="TIMELINE")
    runtime.run_for(3.0)
    backend.calls.clear()
    assert table.row(b"a", consistency="TIMELINE").stale
    assert asked(backend)[0] == 0


def test_hbases_own_plan_always_begins_with_the_primary(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    table = connected(backend, hedge_plan="all_at_once", hedge_budget=1000).table("t")
    backend.on("get", replica=0).hangs()
    for _ in range(30):
        table.row(b"a", consistency="TIMELINE")
    assert asked(backend).count(0) == 30


def test_adaptive_delay_learns_what_is_normal(runtime: SimRuntime) -> None:
    """A cluster that always takes 50 ms is not hedged once that is known, where a fixed 10 ms hedges every read."""
    backend = cluster(runtime, replicas=2)
    connection = connected(backend, hedge_delay="adaptive", hedge_budget=0.5, hedge_budget_burst=1000)
    table = connection.table("t")
    backend.on("get", replica=0).delays(0.05)
    backend.on("get", replica=1).delays(0.045)
    for _ in range(200):
        table.row(b"a", consistency="TIMELINE")
    backend.calls.clear()
    backend.clear_rules()
    backend.on("get", replica=0).delays(0.049)  # not at the very instant of the delay
    backend.on("get", replica=1).delays(0.045)
    for _ in range(100):
        table.row(b"a", consistency="TIMELINE")
    assert asked(backend).count(1) <= 4  # the replica is compared again after ten seconds


def test_losing_call_is_cancelled_where_the_transport_can(runtime: SimRuntime) -> None:
    backend = cluster(runtime, kind=Pipelined, capabilities=Capabilities(is_pipelined=True, can_cancel=True))
    connection = connected(backend)
    backend.on("get", replica=0).hangs()
    for _ in range(2):  # the first one goes on: its end will tell that the server is back
        assert connection.table("t").row(b"a", consistency="TIMELINE").stale
    assert backend.cancelled == [0]
    assert connection.stats()["calls"] == {"abandoned": 1, "drained": 0, "cancelled": 1}


def test_losing_call_is_drained_and_its_late_answer_harmless(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend)
    table = connection.table("t")
    backend.on("get", replica=0, times=1).delays(5.0)
    assert table.row(b"a", consistency="TIMELINE").stale
    assert connection.stats()["calls"]["abandoned"] == 1
    cached = connection.locate("t", b"a")
    runtime.run_for(10.0)
    assert connection.stats()["calls"] == {"abandoned": 0, "drained": 1, "cancelled": 0}
    assert connection.locate("t", b"a") is cached
    assert not table.row(b"a", consistency="TIMELINE").stale


def test_time_outs_of_the_primary_are_counted_once(runtime: SimRuntime) -> None:
    """A slow server is not a wrong location: the first two time-outs in a row keep it."""
    backend = cluster(runtime, replicas=1)
    connection = connected(backend, rpc_timeout_s=0.1)
    cached = connection.locate("t", b"a")
    backend.on("get", times=2).hangs()
    connection.table("t").row(b"a", consistency="TIMELINE")
    assert connection.locate("t", b"a") is cached


def test_pipelined_strong_read_that_is_not_answered_is_tried_again(runtime: SimRuntime) -> None:
    """A Pending that is late is a CallTimeout of one attempt, never the end of the operation."""
    for capabilities in (Capabilities(is_pipelined=True), Capabilities()):
        backend = cluster(runtime, kind=Pipelined, capabilities=capabilities)
        table = connected(backend, rpc_timeout_s=1.0).table("t")
        backend.on("get", times=1).delays(3.0)
        assert table.row(b"a") == {b"cf:a": b"a"}
        assert backend.count("get") == 2


@pytest.mark.parametrize("is_pipelined", [True, False])
def test_backend_that_answers_with_pendings_does_everything(runtime: SimRuntime, is_pipelined: bool) -> None:
    """The executor takes both kinds of answers, also from a backend that does not say that it is pipelined."""
    backend = cluster(runtime, kind=AllPipelined, capabilities=Capabilities(is_pipelined=is_pipelined))
    connection = connected(backend, hedge_delay_scan_s=0.01)
    table = connection.table("t")
    assert table.row(b"a") == {b"cf:a": b"a"}
    assert table.counter_inc(b"a", b"cf:n") == 1
    assert table.check_and_put(b"z", b"cf:a", None, {b"cf:a": b"z"})
    assert [key for key, _ in table.scan(batch_size=1)] == [b"a", b"h", b"q", b"z"]
    backend.on("get", replica=0).hangs()
    backend.on("scan_open", replica=0).hangs()
    assert table.row(b"a", consistency="TIMELINE").stale
    assert all(row.stale for _, row in table.scan(consistency="TIMELINE"))
    assert len(table.rows([b"a", b"h", b"q"], consistency="TIMELINE")) == 3
    with table.batch() as batch:
        batch.put(b"a", {b"cf:b": b"1"})
        batch.put(b"q", {b"cf:b": b"1"})
    assert table.cells(b"q", b"cf:b", replica_id=1) == [b"1"]


@pytest.mark.parametrize("timeline", [{"consistency": "TIMELINE"}, {"replica_id": 1}])
def test_backend_without_region_replicas_refuses_timeline(runtime: SimRuntime, timeline: dict[str, Any]) -> None:
    backend = cluster(runtime, replicas=1, capabilities=Capabilities(region_replicas=False))
    table = connected(backend).table("t")
    for read in (
        lambda: table.row(b"a", **timeline),
        lambda: table.rows([b"a"], **timeline),
        lambda: table.cells(b"a", b"cf:a", **timeline),
        lambda: table.exists(b"a", **timeline),
        lambda: table.scan(**timeline),
    ):
        with pytest.raises(Unsupported, match="scripted"):
            read()
    assert backend.count("get") == 0


# -- hedged rows() ---------------------------------------------------------------------------------------------


def _rows_at(backend: ScriptedBackend) -> list[tuple[set[int], int]]:
    """Of each batch call: the replica ids it asked and how many rows."""
    return [
        ({action.place.replica_id for action in call.argument}, len(call.argument))
        for call in backend.calls
        if call.method == "batch"
    ]


def test_many_rows_cost_one_call_a_server(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    table = connected(backend).table("t")
    found = table.rows([b"q", b"nope", b"a", b"h"])
    assert [(key, row[b"cf:a"]) for key, row in found] == [(b"q", b"q"), (b"a", b"a"), (b"h", b"h")]
    assert backend.count("batch") == 3


def test_duplicate_keys_come_back_twice(runtime: SimRuntime) -> None:
    table = connected(cluster(runtime)).table("t")
    for options in ({}, {"consistency": "TIMELINE"}, {"replica_id": 1}):
        assert [key for key, _ in table.rows([b"a", b"h", b"a"], **options)] == [b"a", b"h", b"a"]


def test_slow_server_of_many_rows_is_hedged_for_its_rows_only(runtime: SimRuntime) -> None:
    """Batch gets are TIMELINE too (HBase 3 lost that): on delay the unanswered rows go to their replicas' servers."""
    backend = cluster(runtime)
    connection = connected(backend)
    slow = backend.servers[0]
    backend.on("batch", server=slow, when=lambda call: call.argument[0].place.replica_id == 0).hangs()
    found = dict(connection.table("t").rows([b"a", b"b", b"h", b"q"], consistency="TIMELINE"))
    assert {key: row.stale for key, row in found.items()} == {b"a": True, b"h": False, b"q": False}
    assert runtime.now() == 0.01
    assert found[b"a"].server != slow
    hedges = [group for group in _rows_at(backend) if 0 not in group[0]]
    assert hedges == [({hedges[0][0].copy().pop()}, 2)]
    assert hedges_of(connection) == (1, 1)


def test_failed_server_of_many_rows_is_replaced_at_once(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend, hedge_budget=0.0)
    backend.kill(backend.servers[0])
    found = dict(connection.table("t").rows([b"a", b"h", b"q"], consistency="TIMELINE"))
    assert found[b"a"].stale
    assert len(found) == 3
    assert runtime.now() == 0.0
    assert connection.stats()["hedges"]["started"] == 0


def test_hedges_of_many_rows_respect_the_budget(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    table = connected(backend, hedge_budget=0.0).table("t")
    backend.on("batch").delays(0.2)
    assert len(table.rows([b"a", b"h", b"q"], consistency="TIMELINE")) == 3
    assert all(replicas == {0} for replicas, _ in _rows_at(backend))


def test_fast_primaries_of_many_rows_are_not_hedged(runtime: SimRuntime) -> None:
    backend = cluster(runtime, latency_s=0.005)
    table = connected(backend).table("t")
    table.rows([b"a", b"h", b"q"], consistency="TIMELINE")
    runtime.run_for(5.0)
    assert _rows_at(backend) == [({0}, 1)] * 3


def test_rows_whose_copies_all_fail_have_the_primarys_error(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    table = connected(backend, retries=0).table("t")

    def outcome(actions: list[Action]) -> list[Outcome]:
        return [
            CallTimeout("the primary") if action.place.replica_id == 0 else RequestRefused("a secondary")
            for action in actions
        ]

    backend.on("batch").answers(outcome)
    with pytest.raises(RetriesExhausted, match="the primary"):
        table.rows([b"a", b"h"], consistency="TIMELINE")


def test_many_rows_ask_a_silent_server_last_until_it_answers(runtime: SimRuntime) -> None:
    """Hedges would be spent after a few reads, and all others would wait with the server that hangs."""
    backend = cluster(runtime)
    connection = connected(backend)
    table = connection.table("t")
    silent = backend.servers[0]
    backend.on("batch", server=silent).delays(2.0)
    begun = runtime.now()
    for _ in range(100):
        assert len(table.rows([b"a", b"h", b"q"], consistency="TIMELINE")) == 3
    assert runtime.now() - begun < 0.2
    assert connection.stats()["hedges"]["started"] <= 11
    assert connection.stats()["calls"]["abandoned"] <= 11
    runtime.run_for(2.0)
    backend.clear_rules()
    backend.calls.clear()
    assert not any(row.stale for _, row in table.rows([b"a", b"h", b"q"], consistency="TIMELINE"))
    assert _rows_at(backend) == [({0}, 1)] * 3


def test_many_rows_turn_away_from_a_silent_server_when_hedges_are_spent(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend, hedge_budget_burst=1)
    table = connection.table("t")
    backend.on("batch", server=backend.servers[0]).delays(5.0)
    instants = [runtime.now()]
    for _ in range(10):
        assert len(table.rows([b"a", b"h", b"q"], consistency="TIMELINE")) == 3
        instants.append(runtime.now())
    taken = [round(after - before, 3) for before, after in pairwise(instants)]
    assert taken[:2] == [0.01, 0.28]
    assert max(taken[2:]) == 0.0
    assert hedges_of(connection) == (2, 2)


def test_row_of_a_silent_server_asks_its_primary_too_when_the_others_fail(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend)
    table = connection.table("t")
    backend.on("batch", server=backend.servers[0]).delays(2.0)
    for _ in range(20):
        table.rows([b"a"], consistency="TIMELINE")
    backend.clear_rules()
    backend.on("batch", when=lambda call: call.argument[0].place.replica_id != 0).raises(lambda: RequestRefused("no"))
    backend.calls.clear()
    assert not dict(table.rows([b"a"], consistency="TIMELINE"))[b"a"].stale
    asked_at = [replica for replicas, _ in _rows_at(backend) for replica in replicas]
    assert len(asked_at) == len(set(asked_at)), "nobody is asked twice"
    assert asked_at[0] != 0


def test_late_group_is_abandoned_and_counted(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend)
    backend.on("batch", server=backend.servers[0], times=1).delays(3.0)
    connection.table("t").rows([b"a", b"h"], consistency="TIMELINE")
    assert connection.stats()["calls"]["abandoned"] == 1
    runtime.run_for(5.0)
    assert connection.stats()["calls"] == {"abandoned": 0, "drained": 1, "cancelled": 0}


def test_hedged_rows_through_a_gateway(runtime: SimRuntime) -> None:
    backend = cluster(runtime, capabilities=GATEWAY)
    table = connected(backend).table("t")

    def is_primary(call: Call) -> bool:
        return call.argument[0].place.replica_id == 0

    backend.on("batch", when=is_primary).hangs()
    found = dict(table.rows([b"a", b"h", b"q"], consistency="TIMELINE"))
    assert [row.stale for row in found.values()] == [True] * 3
    assert next(replicas for replicas, _ in _rows_at(backend)) == {0}
    assert backend.count("batch") == 2


def test_many_rows_call_no_replica_after_their_deadline(runtime: SimRuntime) -> None:
    """The primaries time out at the deadline; the answer of a further call would come too late."""
    backend = cluster(runtime)
    connection = connected(backend, operation_timeout_s=1.0, hedge_delay_multiget_s=5.0)
    backend.on("batch").hangs()
    begun = runtime.now()
    with pytest.raises(DeadlineExceeded):
        connection.table("t").rows([b"a", b"h", b"q"], consistency="TIMELINE")
    assert {call.at_s - begun for call in backend.calls if call.method == "batch"} == {0.0}


def test_silent_cluster_ends_many_rows_at_the_deadline(runtime: SimRuntime) -> None:
    backend = cluster(runtime, capabilities=Capabilities(honours_deadline=False))
    connection = connected(backend, operation_timeout_s=5.0, rpc_timeout_s=1.0)
    backend.on("batch").hangs()
    for options in ({}, {"consistency": "TIMELINE"}):
        begun = runtime.now()
        with pytest.raises(DeadlineExceeded) as caught:
            connection.table("t").rows([b"a", b"h", b"q"], **options)
        assert 4.9 < runtime.now() - begun < 6.0
        assert caught.value.attempts
    backend.close()


def test_dead_server_is_learnt_once_for_all_its_rows(runtime: SimRuntime) -> None:
    backend = ScriptedBackend(runtime, servers=2)
    backend.add_table("t", splits=[b"%02d" % number for number in range(1, 40)])
    connection = connect_to(backend, runtime=runtime)
    connection.warm_up("t")
    table = connection.table("t")
    backend.kill(backend.servers[1])
    for number in range(40):
        backend.move(b"t", b"%02d" % number, backend.servers[0])
    backend.calls.clear()
    table.rows([b"%02d" % number for number in range(40)])
    assert backend.count("read_meta") <= 8
    assert backend.count("batch", server=backend.servers[1]) == 1


def test_unreachable_meta_is_asked_once_a_round_for_many_rows(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connect_to(backend, runtime=runtime, retries=1)
    backend.on("read_meta").raises(lambda: ServerUnreachable("down"))
    with pytest.raises(RetriesExhausted):
        connection.table("t").rows([b"a", b"h", b"q", b"z"])
    assert sum(call.method == "read_meta" and call.argument.families == (b"info",) for call in backend.calls) == 2
