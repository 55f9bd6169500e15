"""Copies of hbase:meta that lag, lie, hang, die and come back: who is asked, who is believed, who is left alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from metaclient import keys
from metaclient.backend import Addressing, Capabilities, MetaPage, MetaScan
from metaclient.connection import connect_to
from metaclient.errors import (
    CallQueueTooBig,
    DeadlineExceeded,
    MetaClientError,
    NotServingRegion,
    ReadsDisabled,
    RegionOffline,
    RequestRefused,
    RetriesExhausted,
    ScannerLost,
    ServerUnreachable,
    TableNotFound,
    Unsupported,
)
from metaclient.meta.health_tracker import REFUTATIONS_MAX
from metaclient.model import MetaReplica
from metaclient.runtime import SimRuntime, ThreadRuntime
from metaclient.testing import Rule, ScriptedBackend
from tests.unit.meta_rig import TABLE, Rig, page_of, placed, region, rig, without_columns

HUNG = Capabilities(filters=False, honours_deadline=False)
GATEWAY = Capabilities(filters=False, addressing=Addressing.GATEWAY)


def balanced(**options: Any) -> Any:
    return rig(meta_mode="LoadBalance", **options)


def look(r: Rig, times: int = 1) -> None:
    """Lookups that nothing in the cache can answer."""
    for _ in range(times):
        r.locate(b"a", reload=True)


# ---- the load


def test_lookups_are_spread_over_the_secondaries_and_the_primary_is_left_in_peace() -> None:
    """3 healthy replicas, 1,000 lookups: the primary serves at most 1 % (here: none)."""
    with balanced() as r:
        look(r, 1_000)
        assert r.reads(0) == 0
        assert abs(r.reads(1) - r.reads(2)) <= 1
        assert r.connection.stats()["meta"]["reads_by_replica"] == {"1": r.reads(1), "2": r.reads(2)}


def test_asking_for_tables_that_do_not_exist_does_not_turn_the_load_to_the_primary() -> None:
    """A secondary that said "no such table" and was right is not ejected for it."""
    with balanced() as r:
        for number in range(20):
            with pytest.raises(TableNotFound):
                r.locate(b"a", b"none%d" % number)
            look(r, 10)
        assert r.reads(0) == 20
        assert not r.seen("meta_replica_ejected")


def test_mode_none_asks_the_primary_only() -> None:
    with rig(meta_mode="None") as r:
        look(r, 10)
        assert (r.reads(0), r.reads()) == (10, 10)


def test_default_is_to_balance_where_there_is_something_to_balance_over() -> None:
    with rig(meta_replicas=2) as r:
        look(r, 10)
        assert (r.connection.meta_mode.value, r.reads(1)) == ("LoadBalance", 10)
    with rig(meta_replicas=1) as r:
        look(r)
        assert r.connection.meta_mode.value == "None"


@pytest.mark.parametrize("mode", [None, "None"])
def test_backend_that_cannot_choose_a_replica_is_never_asked_for_one(mode: str | None) -> None:
    with rig(meta_mode=mode, backend={"capabilities": Capabilities(filters=False, meta_replicas=False)}) as r:
        look(r, 5)
        assert (r.reads(0), r.reads(), r.backend.count("meta_replicas")) == (5, 5, 0)


@pytest.mark.parametrize("mode", ["LoadBalance", "HedgedRead"])
def test_mode_that_a_backend_cannot_carry_out_is_refused_and_not_dropped(mode: str) -> None:
    """Thrift 1, say: "meta replicas refused as ``Unsupported``, saying to use ``thrift2:``"."""
    with (
        pytest.raises(Unsupported, match=f"meta_mode={mode} needs thrift2:"),
        rig(meta_mode=mode, backend={"capabilities": Capabilities(filters=False, meta_replicas=False)}),
    ):
        pass


# ---- negative answers


def test_new_table_on_a_lagging_replica_is_found_at_the_primary() -> None:
    """Confirmed at the primary, no TableNotFound."""
    with balanced() as r:
        look(r, 2)
        for replica in (1, 2):
            r.backend.freeze_meta(replica)
        r.backend.add_table(b"new")
        assert r.locate(b"a", b"new").region.table == b"new"
        assert r.reads(0) == 1


def test_reopened_secondary_answers_no_rows_and_nobody_hears_table_not_found() -> None:
    """Seen on HBase 2.6.1: no rows and no error for 62 s, then one torn row, then all of them."""
    with balanced(meta_replicas=2) as r:
        empty = r.backend.on("read_meta", replica=1).answers(MetaPage((), is_stale=True))
        while r.runtime.now() < 62.0:
            look(r)
            assert r.locate(b"z", reload=True).region.table == TABLE
            r.runtime.run_for(0.25)
        asked = r.reads(1)
        assert asked <= 20  # lookups and probes together: it is left alone for longer each time
        empty.times = 0
        torn = r.backend.on("read_meta", replica=1).answers(
            lambda scan: without_columns(r.backend.true_page(scan), b"info:regioninfo", b"info:seqnumDuringOpen")
        )
        while r.runtime.now() < 70.0:
            look(r)
            r.runtime.run_for(0.25)
        torn.times = 0
        r.runtime.run_for(70.0)  # longer than the longest ejection with its jitter
        look(r)  # starts the probe
        r.runtime.run_for(1.0)
        before = r.reads(0)
        look(r, 10)
        assert r.reads(0) == before
        assert r.replica(1).state == "healthy"
        assert r.replica(0).state == "healthy"


@pytest.mark.parametrize(
    "columns",
    [
        (b"info:regioninfo",),
        (b"info:server",),
        (b"info:serverstartcode",),
        (b"info:server", b"info:serverstartcode", b"info:seqnumDuringOpen"),
    ],
)
def test_torn_row_of_a_secondary_is_completed_by_the_primary(columns: tuple[bytes, ...]) -> None:
    with balanced() as r:
        r.backend.on("read_meta", when=lambda call: call.replica_id != 0).answers(
            lambda scan: without_columns(r.backend.true_page(scan), *columns)
        )
        assert r.locate(b"a") == r.backend.region_of(TABLE, b"a").primary
        assert r.reads(0) == 1


@pytest.mark.parametrize(
    "answer",
    [
        MetaPage(()),
        page_of(placed(region(b"", b"a"), "x")),
        page_of(placed(region(table=b"u"), "x")),
        page_of(placed(region(), None)),
    ],
    ids=["no rows", "hole", "other table", "unplaced"],
)
def test_negative_answer_of_a_secondary_is_never_the_last_word(answer: MetaPage) -> None:
    with balanced() as r:
        r.backend.on("read_meta", when=lambda call: call.replica_id != 0).answers(answer)
        assert r.locate(b"a").server in r.backend.servers
        assert (r.reads(), r.reads(0)) == (2, 1)  # the other secondary could confirm nothing


def test_secondary_that_does_not_know_a_new_table_yet_is_not_taken_out_for_it() -> None:
    """One refuted answer is lag: ejecting for it would send everything to the primary after each CREATE TABLE."""
    with balanced(meta_replicas=2) as r:
        for _ in range(5):
            r.backend.on("read_meta", replica=1, times=REFUTATIONS_MAX - 1).answers(MetaPage(()))
            look(r, REFUTATIONS_MAX + 1)
            assert r.replica(1).state == "healthy"


def test_secondary_that_is_refuted_again_and_again_is_left_alone() -> None:
    with balanced(meta_replicas=2) as r:
        r.backend.on("read_meta", replica=1).answers(MetaPage(()))
        look(r, REFUTATIONS_MAX)
        assert r.replica(1).state == "ejected"
        assert r.replica(1).last_error == "LocationUnknown"  # the row of the known region is missing


def test_negative_answers_are_not_told_while_the_primary_cannot_confirm_them() -> None:
    with balanced(retries=0, meta_rpc_timeout_s=1.0) as r:
        r.backend.on("read_meta", when=lambda call: call.replica_id != 0).answers(MetaPage(()))
        r.backend.on("read_meta", replica=0).hangs()
        with pytest.raises(MetaClientError) as caught:
            r.locate(b"a")
        assert not isinstance(caught.value, TableNotFound)


def test_negative_answers_are_not_told_while_the_primary_has_no_server() -> None:
    with balanced(retries=2) as r:
        r.backend.registry[0] = MetaReplica(0, None)
        r.backend.on("read_meta").answers(MetaPage(()))
        with pytest.raises(RetriesExhausted):
            r.locate(b"a")


def test_final_no_of_a_secondary_is_not_the_verdict() -> None:
    """do_not_retry is not the verdict: another copy may answer."""
    for error in (RequestRefused("read only"), TableNotFound("none"), ScannerLost("lease")):
        with balanced() as r:
            r.backend.on("read_meta", when=lambda call: call.replica_id != 0).raises(error)
            assert r.locate(b"a").region.table == TABLE


def test_final_no_of_secondaries_alone_is_tried_again() -> None:
    with balanced(retries=1) as r:
        r.backend.registry[0] = MetaReplica(0, None)
        r.backend.on("read_meta").raises(lambda: RequestRefused("no"))
        with pytest.raises(RetriesExhausted):
            r.locate(b"a")


# ---- faults


Fault = Callable[[Rule], Rule]
FAULTS: dict[str, Fault] = {
    "dead": lambda rule: rule.raises(lambda: ServerUnreachable("refused")),
    "hung": lambda rule: rule.hangs(),
    "not serving": lambda rule: rule.raises(lambda: NotServingRegion("not online")),
    "reads disabled": lambda rule: rule.raises(lambda: ReadsDisabled("reads are disabled")),
    "unknown": lambda rule: rule.raises(lambda: ZeroDivisionError("bug")),
    "socket": lambda rule: rule.raises(lambda: ConnectionResetError(104, "reset")),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faulty_secondary_costs_one_try_is_ejected_and_heals_by_a_probe(fault: str) -> None:
    """A replica that is down, hangs, or has its reads disabled."""
    with balanced() as r:
        look(r, 20)
        place = r.locate(b"a")
        rule = FAULTS[fault](r.backend.on("read_meta", replica=1))
        slowest = 0.0
        for _ in range(100):
            begun = r.runtime.now()
            look(r)
            slowest = max(slowest, r.runtime.now() - begun)
        assert slowest < 0.1  # its try time is 4 x p99 of 1 ms, at least 50 ms
        assert rule.used <= 3
        assert r.replica(1).state == "ejected"
        assert r.reads(0) == 0
        assert r.locate(b"a") is place  # the location is kept
        assert [event["replica"] for event in r.seen("meta_replica_ejected")] == [1]
        rule.times = 0
        r.runtime.run_for(5.0)
        look(r)
        r.runtime.run_for(0.1)
        assert r.replica(1).state == "healthy"
        assert r.seen("meta_replica_healed")
        before = r.reads(1)
        look(r, 10)
        assert r.reads(1) - before == 5


def test_ejection_grows_while_probes_fail_and_no_user_waits_for_a_probe() -> None:
    with balanced() as r:
        look(r, 20)
        r.backend.on("read_meta", replica=1).hangs()
        slow = 0
        while r.runtime.now() < 200.0:
            begun = r.runtime.now()
            look(r)
            slow += r.runtime.now() - begun > 0.01
            r.runtime.run_for(0.2)
        ends = [float(str(event["until"])) for event in r.seen("meta_replica_ejected")]
        gaps = [after - before for before, after in pairwise(ends)]
        assert slow <= 1
        assert len(ends) <= 9  # 1 2 4 8 16 32 60 60 s and the first
        assert all(later > earlier for earlier, later in pairwise(gaps[:6]))
        assert r.reads(0) == 0


def test_hung_secondary_on_a_backend_that_ignores_deadlines_costs_at_most_a_few_lookups() -> None:
    """A hung server accepts connections and sends no response."""
    with balanced(backend={"capabilities": HUNG}, operation_timeout_s=10.0) as r:
        look(r, 20)
        r.backend.on("read_meta", replica=2).hangs()
        begun = r.runtime.now()
        look(r, 200)
        assert r.runtime.now() - begun < 200 * 0.002 + 3 * 0.4
        assert r.connection.stats()["calls"]["abandoned"] <= 3


def test_zombie_that_answers_ninety_seconds_late_does_not_poison_the_cache() -> None:
    """A resumed server answers the calls that were queued in its sockets, with the rows it had then."""
    with balanced(meta_replicas=2, backend={"capabilities": HUNG}) as r:
        look(r, 10)
        old = r.locate(b"a")
        scan = MetaScan(keys.meta_search_key(TABLE, b"a"), keys.meta_table_start(TABLE), True, 10)
        r.backend.on("read_meta", replica=1).delays(90.0).answers(r.backend.true_page(scan))
        r.backend.move(TABLE, b"a", r.backend.servers[2])
        r.locator.on_error(old, NotServingRegion("gone"))
        new = r.locate(b"a")
        assert new.server == r.backend.servers[2]
        r.locate(b"a", reload=True)
        r.runtime.run_for(200.0)
        assert r.locate(b"a").server == new.server
        assert r.connection.stats()["calls"]["abandoned"] == 0


def test_two_replicas_on_one_hung_server_cost_one_try_and_are_both_out() -> None:
    """After a failover "another replica" is not "another server": health belongs to both."""
    with balanced(meta_replicas=4, servers=4) as r:
        shared = r.backend.servers[1]
        r.backend.registry[2] = MetaReplica(2, shared)
        look(r, 30)
        r.backend.on("read_meta", server=shared).hangs()
        r.backend.calls.clear()
        begun = r.runtime.now()
        look(r, 30)
        assert r.backend.count("read_meta", server=shared) == 1 + 2  # a lookup, and a probe of each replica
        assert r.runtime.now() - begun < 0.1 + 30 * 0.002
        assert r.reads(0) == 0


@pytest.mark.parametrize("callers", [1, 8])
def test_short_pause_of_all_secondaries_sends_no_further_lookups_to_the_primary(callers: int) -> None:
    """A pause of this process or of a gateway looks like that: each call that was in flight has timed out."""
    with balanced() as r:
        look(r, 20)
        for replica_id in (1, 2):
            r.backend.on("read_meta", times=callers, replica=replica_id).hangs()
        tasks = [r.runtime.start(look, r) for _ in range(callers)]
        for task in tasks:
            task.result()
        assert r.reads(0) <= callers
        assert [r.replica(one).state for one in (1, 2)] == ["doubted", "doubted"]
        before = r.reads(0)
        look(r, 100)
        assert r.reads(0) == before
        assert [r.replica(one).state for one in (1, 2)] == ["healthy", "healthy"]
        assert r.seen("meta_replica_ejected") == []


def test_timeout_long_after_an_ejection_is_a_doubt_again() -> None:
    """Otherwise a client that runs for days would eject at each single timeout after the first ejection."""
    with balanced() as r:
        look(r, 20)
        r.backend.on("read_meta", times=1, replica=1).raises(ServerUnreachable("reset"))
        look(r, 2)
        assert r.replica(1).state == "ejected"
        r.runtime.run_for(10.0)
        look(r, 4)
        assert r.replica(1).state == "healthy"
        r.runtime.run_for(100.0)
        r.backend.on("read_meta", times=1, replica=1).hangs()
        look(r, 2)
        assert r.replica(1).state == "doubted"


def test_all_secondaries_on_one_hung_server_do_not_each_cost_a_try() -> None:
    with balanced(servers=2) as r:
        shared = r.backend.servers[1]
        r.backend.registry[2] = MetaReplica(2, shared)
        look(r, 30)
        r.backend.on("read_meta", server=shared).hangs()
        r.backend.calls.clear()
        look(r)
        assert [call.replica_id for call in r.backend.calls if call.method == "read_meta"][1:] == [0]


def test_secondary_beside_a_hung_primary_is_not_asked_either() -> None:
    with balanced(servers=2, meta_replicas=2, meta_rpc_timeout_s=1.0) as r:
        r.backend.registry.append(MetaReplica(2, r.backend.servers[0]))
        r.connection.meta_replicas()
        r.backend.on("read_meta", server=r.backend.servers[0]).hangs()
        r.locator.on_error(r.locate(b"a"), NotServingRegion("gone"))
        r.backend.calls.clear()
        r.locate(b"a")  # the primary first, because the range is stale; then the one on the other server
        asked = [call.replica_id for call in r.backend.calls if call.method == "read_meta"]
        assert asked == [0, 1]


def test_stale_range_is_answered_by_a_secondary_while_the_primary_hangs() -> None:
    """Still located through replicas, and not after 20 s (TestMetaWithReplicasShutdownHandling)."""
    with balanced() as r:
        r.locator.on_error(r.locate(b"a"), NotServingRegion("gone"))
        r.backend.on("read_meta", replica=0).hangs()
        begun = r.runtime.now()
        r.locate(b"a")
        assert r.runtime.now() - begun <= 2.1


def test_put_and_get_work_while_the_server_of_the_primary_is_dead() -> None:
    """As HBase's TestMetaWithReplicasShutdownHandling."""
    for mode in ("LoadBalance", "HedgedRead"):
        with rig(meta_mode=mode, servers=4) as r:
            r.backend.move(TABLE, b"a", r.backend.servers[3])
            r.connection.meta_replicas()
            r.backend.kill(r.backend.servers[0])
            table = r.connection.table(TABLE)
            table.put(b"a", {b"cf:q": b"v"})
            assert table.row(b"a") == {b"cf:q": b"v"}


def test_overloaded_replica_is_passed_over_this_time_and_not_ejected() -> None:
    with balanced() as r:
        r.backend.on("read_meta", replica=1, times=1).raises(CallQueueTooBig("full"))
        look(r, 4)
        assert r.replica(1).state == "healthy"
        assert r.reads(0) == 0


def test_slow_cluster_is_not_mistaken_for_a_dead_one() -> None:
    """All replicas take 0.6 s: the try time grows by what the primary's successes show, and the load goes back."""
    with balanced(latency_s=0.6) as r:
        look(r, 30)
        r.runtime.run_for(60.0)
        look(r)
        r.runtime.run_for(2.0)
        before = r.reads(0)
        look(r, 20)
        assert r.reads(0) == before


def test_one_hung_replica_does_not_make_everybody_patient() -> None:
    """Its time-outs say nothing about how long the others may take."""
    with balanced() as r:
        look(r, 30)
        r.backend.on("read_meta", replica=1).hangs()
        for _ in range(50):
            look(r)
            r.runtime.run_for(1.0)
        assert r.connection.engine.reader.health.try_s() == pytest.approx(0.05)


def test_primary_that_says_a_region_is_on_the_move_is_not_ejected_for_it() -> None:
    with rig(meta_mode="None", retries=3) as r:
        r.backend.unplace(TABLE, b"a")
        with pytest.raises(RetriesExhausted):
            r.locate(b"a")
        assert r.replica(0).state == "healthy"


def test_primary_that_failed_is_healthy_again_when_it_answers_a_probe() -> None:
    with balanced(meta_rpc_timeout_s=1.0) as r:
        r.backend.on("read_meta", replica=0, times=1).raises(ServerUnreachable("refused"))
        with pytest.raises(TableNotFound):
            r.locate(b"a", b"none")
        r.runtime.run_for(2.0)
        look(r)
        r.runtime.run_for(0.1)
        assert r.replica(0).state == "healthy"


# ---- the registry


def test_unplaced_replica_is_never_asked() -> None:
    with balanced() as r:
        r.backend.registry[1] = MetaReplica(1, None)
        look(r, 50)
        assert (r.reads(1), r.reads(0), r.reads(2)) == (0, 0, 50)
        assert r.replica(1).state == "unplaced"


def test_gap_in_the_ids_is_no_trouble() -> None:
    """Replica ids 0 and 2 only; HBase's ZKConnectionRegistry fails there."""
    with balanced() as r:
        del r.backend.registry[1]
        look(r, 10)
        assert (r.reads(2), r.reads()) == (10, 10)


def test_registry_that_is_down_at_the_start_is_asked_again_until_it_answers() -> None:
    """Registry down at start."""
    with balanced() as r:
        r.backend.on("meta_replicas", times=3).raises(lambda: ServerUnreachable("refused"))
        assert r.locate(b"a").region.table == TABLE
        assert r.runtime.now() < 2.0
        assert r.backend.count("meta_replicas") == 4


def test_registry_that_hangs_at_the_start_ends_at_each_callers_own_deadline() -> None:
    """The caller that started the registry call had less time than the callers that joined it."""
    with balanced() as r:
        r.backend.on("meta_replicas", times=1).hangs()
        short = r.runtime.start(lambda: r.locator.locate(TABLE, b"a", deadline=r.deadline(0.1)))
        r.runtime.run_for(0.01)
        long = r.runtime.start(lambda: r.locator.locate(b"t", b"a", deadline=r.deadline(5.0)))
        r.runtime.run_for(1.0)
        assert isinstance(short.error(), DeadlineExceeded)
        assert long.result().region.table == TABLE


def test_gateway_does_not_wait_for_the_number_of_replicas() -> None:
    """Registry down at start -> primary, not blocked."""
    with balanced(backend={"capabilities": GATEWAY}) as r:
        r.backend.on("meta_replicas").hangs()
        r.locate(b"a")
        assert r.runtime.now() < 0.5
        assert (r.reads(0), r.reads()) == (1, 1)


def test_gateway_balances_over_replicas_whose_servers_it_does_not_name() -> None:
    with balanced(backend={"capabilities": GATEWAY}) as r:
        r.backend.registry[:] = [MetaReplica(number) for number in range(3)]
        look(r, 10)
        assert r.reads(0) == 0


def test_registry_that_fails_later_leaves_the_replicas_as_they_were() -> None:
    with balanced() as r:
        look(r, 2)
        r.backend.on("meta_replicas").raises(lambda: ServerUnreachable("refused"))
        r.runtime.run_for(61.0)
        look(r, 10)
        r.runtime.run_for(1.0)
        assert r.reads(0) == 0
        assert r.backend.count("meta_replicas") == 2


@pytest.mark.parametrize("junk", [None, 7, [None], [MetaReplica(-1), MetaReplica(70_000)], "xyz"])
def test_registry_that_answers_nonsense_is_an_error_of_ours_and_bounded(junk: object) -> None:
    with balanced(operation_timeout_s=2.0) as r:
        r.backend.on("meta_replicas").answers(lambda _: junk)
        with pytest.raises(MetaClientError):
            r.locate(b"a")
        assert r.runtime.now() <= 2.1


def test_primary_without_a_server_is_waited_for() -> None:
    """The registry lists the primary and no place for it: the cluster is starting."""
    for mode in ("None", "LoadBalance", "HedgedRead"):
        with rig(meta_mode=mode, meta_replicas=1) as r:
            r.backend.registry[0] = MetaReplica(0, None)
            task = r.runtime.start(r.locate, b"a")
            r.runtime.run_for(3.0)
            assert not task.is_done
            assert r.reads() == 0
            r.backend.registry[0] = MetaReplica(0, r.backend.servers[0])
            r.runtime.run_for(10.0)
            assert task.result().region.table == TABLE


def test_secondaries_answer_while_the_primary_has_no_server() -> None:
    for mode in ("LoadBalance", "HedgedRead"):
        with rig(meta_mode=mode) as r:
            r.backend.registry[0] = MetaReplica(0, None)
            look(r, 10)
            assert r.reads(0) == 0


def test_replica_count_that_shrinks_costs_one_failed_pick() -> None:
    """The replica count shrinks from 3 to 1."""
    with rig() as r:
        look(r, 10)
        r.runtime.run_for(2.0)
        del r.backend.registry[1:]
        r.backend.calls.clear()
        for _ in range(20):
            look(r)
            r.runtime.run_for(0.01)
        assert r.reads(1) + r.reads(2) <= 2
        assert r.connection.meta_mode.value == "None"
        assert r.seen("meta_replicas_changed") == [{"before": 3, "after": 1}]


def test_replica_count_that_grows_is_used_within_a_minute() -> None:
    with rig(meta_replicas=1) as r:
        look(r, 10)
        r.backend.registry[:] = [MetaReplica(number, r.backend.servers[number]) for number in range(3)]
        r.runtime.run_for(60.0)
        look(r)
        r.runtime.run_for(0.1)
        before = r.reads(0)
        look(r, 10)
        assert r.reads(0) == before
        assert r.connection.meta_mode.value == "LoadBalance"


def test_replica_that_moved_is_found_on_its_new_server() -> None:
    with balanced(meta_replicas=2) as r:
        look(r, 5)
        r.runtime.run_for(2.0)
        r.backend.registry[1] = MetaReplica(1, r.backend.servers[2])
        r.backend.kill(r.backend.servers[1])
        look(r)
        r.runtime.run_for(2.0)
        look(r)
        r.runtime.run_for(0.1)
        before = r.reads(0)
        look(r, 10)
        assert r.reads(0) == before


# ---- HedgedRead


def test_hedged_meta_read_asks_one_more_replica_after_each_delay() -> None:
    with rig(meta_mode="HedgedRead") as r:
        for replica in (0, 1):
            r.backend.on("read_meta", replica=replica).hangs()
        r.locate(b"a")
        asked = [(call.replica_id, round(call.at_s, 1)) for call in r.backend.calls if call.method == "read_meta"]
        assert asked == [(0, 0.0), (1, 1.0), (2, 2.0)]
        assert r.connection.stats()["meta"]["hedges"] == 2


def test_hedge_plan_is_not_ignored_for_meta() -> None:
    """all_at_once is HBase's plan: after one delay every secondary is asked."""
    with rig(meta_mode="HedgedRead", hedge_plan="all_at_once", meta_replicas=4) as r:
        for replica in (0, 1, 2):
            r.backend.on("read_meta", replica=replica).hangs()
        r.locate(b"a")
        asked = [(call.replica_id, round(call.at_s, 1)) for call in r.backend.calls if call.method == "read_meta"]
        assert sorted(asked) == [(0, 0.0), (1, 1.0), (2, 1.0), (3, 1.0)]
        assert r.connection.stats()["meta"]["hedges"] == 3


@pytest.mark.parametrize(("budget", "hedges"), [(0.05, 1 + 10), (1000, 2 * 10)])
def test_hedge_budget_is_not_ignored_for_meta(budget: float, hedges: int) -> None:
    options: dict[str, Any] = {"meta_rpc_timeout_s": 5.0, "hedge_budget_burst": 1, "hedge_budget": budget}
    with rig(meta_mode="HedgedRead", **options) as r:
        r.backend.on("read_meta", replica=0).delays(3.0)
        for replica in (1, 2):
            r.backend.on("read_meta", replica=replica).delays(1.5)
        for _ in range(10):
            look(r)
        assert 0.8 * hedges <= r.connection.stats()["meta"]["hedges"] <= hedges


def test_hedged_meta_read_with_a_healthy_primary_asks_nobody_else() -> None:
    with rig(meta_mode="HedgedRead") as r:
        look(r, 20)
        assert (r.reads(0), r.reads()) == (20, 20)


def test_first_success_wins_although_the_first_completion_is_an_error() -> None:
    """Java 3 lets the first completion win, even when it is an error."""
    with rig(meta_mode="HedgedRead") as r:
        r.backend.on("read_meta", replica=0).delays(2.5)
        r.backend.on("read_meta", replica=1).raises(RequestRefused("do not retry"))
        r.backend.on("read_meta", replica=2).delays(5.0)
        assert r.locate(b"a").region.table == TABLE
        assert r.runtime.now() == pytest.approx(2.5, abs=0.1)


def test_empty_answer_of_a_hedge_does_not_win() -> None:
    with rig(meta_mode="HedgedRead") as r:
        r.backend.on("read_meta", replica=0).delays(3.0)
        r.backend.on("read_meta", when=lambda call: call.replica_id != 0).answers(MetaPage(()))
        assert r.locate(b"a").region.table == TABLE


def test_hedged_meta_read_survives_a_primary_that_fails_at_once() -> None:
    """With replicas: works within 3 s; without: exhausted (TestAsyncTableUseMetaReplicas)."""
    with rig(meta_mode="HedgedRead") as r:
        r.backend.on("read_meta", replica=0).raises(lambda: ServerUnreachable("refused"))
        r.connection.table(TABLE).row(b"a")
        assert r.runtime.now() < 3.0
    with rig(meta_mode="HedgedRead", meta_replicas=1, retries=3) as r:
        r.backend.on("read_meta", replica=0).raises(lambda: ServerUnreachable("refused"))
        with pytest.raises(RetriesExhausted):
            r.connection.table(TABLE).row(b"a")


def test_secondary_that_failed_a_hedge_is_probed_and_comes_back() -> None:
    """Else a mode that asks secondaries only in trouble would never ask them again."""
    with rig(meta_mode="HedgedRead", meta_replicas=2) as r:
        r.backend.on("read_meta", replica=0, times=1).delays(1.5)
        r.backend.on("read_meta", replica=1, times=1).raises(ServerUnreachable("refused"))
        look(r)
        assert r.replica(1).state == "ejected"
        r.runtime.run_for(2.0)
        look(r)
        r.runtime.run_for(0.1)
        assert r.replica(1).state == "healthy"


def test_ejected_secondary_is_the_last_resort_of_a_hedged_read() -> None:
    with rig(meta_mode="HedgedRead", meta_replicas=2) as r:
        r.backend.on("read_meta", replica=0, times=1).delays(1.5)
        r.backend.on("read_meta", replica=1, times=1).raises(ServerUnreachable("refused"))
        look(r)
        r.backend.on("read_meta", replica=0).raises(lambda: ServerUnreachable("refused"))
        look(r)
        assert r.reads(1) == 2


def test_hedges_of_meta_reads_are_bounded() -> None:
    """With a hung primary each lookup may hedge, and no more than the budget in a burst."""
    with rig(meta_mode="HedgedRead", meta_rpc_timeout_s=5.0, hedge_budget_burst=3) as r:
        r.backend.on("read_meta", replica=0).hangs()
        r.backend.on("read_meta", replica=1).hangs()
        for _ in range(10):
            look(r)
        assert r.connection.stats()["meta"]["hedges"] <= 3 + 10


# ---- selector="simple": the Java client, side by side


def java(**options: Any) -> Any:
    return rig(meta_mode="LoadBalance", meta_selector="simple", **options)


def test_java_spreads_over_all_three_and_so_a_third_falls_on_the_primary() -> None:
    """3,000 lookups, 3 replicas: 1,000 each, tolerance 100."""
    with java() as r:
        look(r, 3_000)
        assert all(abs(r.reads(replica) - 1_000) < 100 for replica in range(3))


def test_java_stays_with_its_pick_through_all_retries_of_a_lookup() -> None:
    """Every retry of a lookup goes to the same replica; there is no fallback."""
    for seed in range(6):
        with java(seed=seed, operation_timeout_s=2.0) as r:
            r.backend.on("read_meta").raises(lambda: ServerUnreachable("refused"))
            with pytest.raises(MetaClientError):
                r.locator.locate(TABLE, b"a", deadline=r.deadline(2.0))
            asked = [call.replica_id for call in r.backend.calls if call.method == "read_meta"]
            assert len(asked) >= 5
            assert len(set(asked)) == 1
            assert not r.seen("meta_replica_ejected")


def test_java_waits_at_a_hung_replica_for_as_long_as_the_lookup_may_take() -> None:
    """A dead or hung replica keeps a lookup for 60 s."""
    with java(seed=1) as r:
        r.backend.on("read_meta", when=lambda call: call.replica_id != 0).hangs()
        slowest = 0.0
        for _ in range(5):
            begun = r.runtime.now()
            try:
                r.locator.locate(TABLE, b"a", deadline=r.deadline(120.0), reload=True)
            except MetaClientError:
                slowest = max(slowest, r.runtime.now() - begun)
        assert slowest == pytest.approx(60.0, abs=1.0)


def test_java_believes_a_lagging_replica_that_a_new_table_does_not_exist() -> None:
    """In LoadBalance mode a lagging replica makes a new table "not exist"; the primary is not asked."""
    with java() as r:
        look(r)
        for replica in (1, 2):
            r.backend.freeze_meta(replica)
        r.backend.add_table(b"new")
        heard = []
        for _ in range(20):
            try:
                heard.append(r.locate(b"a", b"new", reload=True).region.table)
            except TableNotFound as error:
                heard.append(type(error))  # type: ignore[arg-type]  # either
        assert {b"new", TableNotFound} <= set(heard)
        assert all(call.replica_id is not None for call in r.backend.calls if call.method == "read_meta")


def test_java_marks_a_range_for_three_seconds_after_not_serving() -> None:
    """As HBase's TestMetaRegionReplicaReplication."""
    with java() as r:
        r.locator.on_error(r.locate(b"a"), NotServingRegion("gone"))
        r.backend.calls.clear()
        for _ in range(20):
            look(r)
        assert (r.reads(0), r.reads()) == (20, 20)
        r.runtime.run_for(3.0)
        look(r, 50)
        assert r.reads(0) < 60


def test_java_picks_a_hole_and_retries_it() -> None:
    """The replica count is an array's size, so that holes are eligible: RegionOffline on every retry."""
    with java(seed=0, operation_timeout_s=1.0) as r:
        r.backend.registry[1:] = [MetaReplica(1, None), MetaReplica(2, None)]
        failed = 0
        for _ in range(10):
            try:
                r.locator.locate(TABLE, b"a", deadline=r.deadline(0.5), reload=True)
            except MetaClientError:
                failed += 1
        assert failed >= 3
        assert r.reads() == 10 - failed


# ---- real threads


def test_threads_fall_back_from_a_hung_replica_and_leave_no_thread_behind() -> None:
    with ThreadRuntime(max_tasks=32) as runtime:
        backend = ScriptedBackend(runtime, meta_replicas=3, capabilities=HUNG)
        backend.add_table(TABLE, splits=[b"%02d" % n for n in range(1, 50)])
        backend.on("read_meta", replica=1).hangs()
        # The try is long enough for a healthy replica on a machine that is busy with something else.
        with connect_to(backend, runtime=runtime, meta_mode="LoadBalance", meta_try_timeout_s=0.5) as connection:

            def work(seed: int) -> None:
                for number in range(20):
                    row = b"%02d" % ((seed * 7 + number) % 50)
                    assert connection.locate(TABLE, row, reload=True).region.contains(row)

            for task in [runtime.start(work, seed) for seed in range(8)]:
                task.result(runtime.now() + 120)
            assert connection.stats()["calls"]["abandoned"] <= 16
        runtime.close(timeout_s=60.0)
        assert runtime.stats()["running"] == 0


# ---- what users see


def test_status_names_servers_states_and_counts() -> None:
    with balanced() as r:
        look(r, 10)
        lines = r.connection.meta_replicas()
        assert [line.id for line in lines] == [0, 1, 2]
        assert [line.lookups for line in lines] == [0, 5, 5]
        assert lines[1].server == str(r.backend.servers[1])
        assert lines[1].latency_ms == pytest.approx(1.0, abs=0.1)
        assert {line.state for line in lines} == {"healthy"}


def test_meta_itself_is_not_looked_up_in_meta_but_asked_of_the_registry() -> None:
    with balanced() as r:
        found = [r.locator.locate(b"hbase:meta", b"x", replica_id=at, deadline=r.deadline()) for at in range(3)]
        assert [place.server for place in found] == [r.backend.servers[at] for at in range(3)]
        assert [place.region_name for place in found][:2] == [b"hbase:meta,,1", b"hbase:meta,,1_0001"]
        assert not r.backend.count("read_meta")
        with pytest.raises(RegionOffline, match="replica 3 of hbase:meta"):
            r.locator.locate(b"hbase:meta", b"", replica_id=3, deadline=r.deadline())


def test_unreadable_rows_do_not_heal_a_replica() -> None:
    with balanced(meta_replicas=2) as r:
        r.backend.on("read_meta", replica=1).answers(
            lambda scan: without_columns(r.backend.true_page(scan), b"info:regioninfo")
        )
        look(r, REFUTATIONS_MAX)
        r.runtime.run_for(5.0)
        look(r)
        r.runtime.run_for(0.1)
        assert r.replica(1).state == "ejected"


def test_probe_that_is_answered_with_nonsense_is_not_repeated_at_every_lookup() -> None:
    with balanced(meta_replicas=2) as r:
        rule = r.backend.on("read_meta", replica=1).answers(lambda _: 42)
        for _ in range(100):
            look(r)
            r.runtime.run_for(0.1)
        assert rule.used <= 6


def test_probe_of_a_cluster_without_tables_heals_an_ejected_replica() -> None:
    """A fresh HBase 3 has no info rows at all: an empty answer is the truth there, as the primary confirms."""
    with SimRuntime(seed=1) as runtime:
        backend = ScriptedBackend(runtime, meta_replicas=2)
        connection = connect_to(backend, runtime=runtime, meta_mode="LoadBalance")
        backend.on("read_meta", replica=1, times=1).raises(ServerUnreachable("refused"))
        for _ in range(2):
            with pytest.raises(TableNotFound):
                connection.locate("t", b"a")
            runtime.run_for(3.0)
        assert connection.engine.reader.status()[1].state == "healthy"


def test_lag_that_a_replica_tells_is_shown_beside_it() -> None:
    with balanced(meta_replicas=2) as r:
        r.backend.on("read_meta", replica=1).answers(lambda scan: replace(r.backend.true_page(scan), lag_s=0.25))
        look(r)
        assert r.replica(1).lag_ms == 250.0
        assert r.replica(0).lag_ms is None


# ---- after a time without lookups


def eject_both_secondaries(r: Rig) -> None:
    """Both secondaries fail once, and the lookup is answered by the primary."""
    look(r, 20)
    for replica in (1, 2):
        r.backend.on("read_meta", replica=replica, times=1).raises(lambda: ReadsDisabled("it is being opened"))
    look(r)
    assert [r.replica(one).state for one in (1, 2)] == ["ejected", "ejected"]
    assert r.reads(0) == 1


def test_client_that_was_idle_after_both_secondaries_failed_does_not_turn_to_the_primary() -> None:
    """Only lookups start probes: after a minute without any, both ejections are over and no probe was made."""
    with balanced() as r:
        eject_both_secondaries(r)
        r.runtime.run_for(110.0)
        look(r)
        assert r.reads(0) == 1
        r.runtime.run_for(0.1)
        assert [r.replica(one).state for one in (1, 2)] == ["healthy", "healthy"]


def test_lookup_just_after_the_ejections_waits_for_no_secondary() -> None:
    """The probe in the background finds out whether a secondary is back; the primary answers the lookup."""
    with balanced() as r:
        eject_both_secondaries(r)
        for replica in (1, 2):
            r.backend.on("read_meta", replica=replica).hangs()
        r.runtime.run_for(1.15)
        begun = r.runtime.now()
        look(r)
        assert r.runtime.now() - begun < 0.01
        assert r.reads(0) == 2


def test_secondaries_that_are_still_hung_after_idle_time_cost_one_lookup_two_tries() -> None:
    with balanced() as r:
        eject_both_secondaries(r)
        for replica in (1, 2):
            r.backend.on("read_meta", replica=replica).hangs()
        r.runtime.run_for(110.0)
        for slow_s in (0.15, 0.01, 0.01):
            begun = r.runtime.now()
            look(r)
            assert r.runtime.now() - begun < slow_s
        assert r.reads(0) == 4


def test_hung_secondary_is_not_tried_by_a_lookup_after_idle_time_while_another_is_healthy() -> None:
    with balanced() as r:
        look(r, 20)
        r.backend.on("read_meta", replica=1).hangs()
        look(r, 4)
        assert r.replica(1).state == "doubted"
        r.runtime.run_for(1.0)
        assert r.replica(1).state == "ejected", "the probe had no answer, either"
        for _ in range(4):
            r.runtime.run_for(110.0)
            begun = r.runtime.now()
            look(r)
            assert r.runtime.now() - begun < 0.01
        assert r.reads(0) == 0
