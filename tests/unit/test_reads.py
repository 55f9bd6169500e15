"""Read plans, hedge delay, budgets, and the executor's races: who is asked, when, and who wins."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from metaclient.attempts import (
    CallBudget,
    Executor,
    HedgeBudget,
    HedgeDelay,
    LatencyWindow,
    Leg,
    Won,
    all_at_once,
    one_replica,
    staged,
    told,
)
from metaclient.backend import Capabilities
from metaclient.errors import (
    BackendFault,
    CallTimeout,
    ConnectionClosed,
    DeadlineExceeded,
    MetaClientError,
    NotServingRegion,
    Overloaded,
    RequestRefused,
    ServerUnreachable,
)
from metaclient.runtime import Pending, SimRuntime, ThreadRuntime

PIPELINED = Capabilities(is_pipelined=True)
CANCELLING = Capabilities(is_pipelined=True, can_cancel=True)
HANGING = Capabilities(honours_deadline=False)


@dataclass(frozen=True)
class Copy:
    """A place of a race: only its id matters."""

    replica_id: int


PLACES = (Copy(0), Copy(1), Copy(2))


@dataclass
class Heard:
    """An observer that remembers."""

    good: list[int] = field(default_factory=list)
    bad: list[tuple[int, str]] = field(default_factory=list)

    def leg_succeeded(self, place: Copy, latency_s: float) -> None:
        self.good.append(place.replica_id)

    def leg_failed(self, place: Copy, error: MetaClientError, latency_s: float) -> None:
        self.bad.append((place.replica_id, type(error).__name__))


@pytest.fixture
def runtime() -> Iterator[SimRuntime]:
    with SimRuntime(seed=1) as made:
        yield made


class Copies:
    """Replicas that answer after a while, fail, or stay silent; every call is recorded with its instant."""

    def __init__(self, runtime: SimRuntime, **behaviour: object) -> None:
        self.runtime = runtime
        self.behaviour = behaviour
        self.asked: list[tuple[int, float]] = []
        self.pendings: dict[int, Pending[str]] = {}
        self.cancelled: list[int] = []

    def blocking(self, place: Copy, until: float) -> str:
        self.asked.append((place.replica_id, self.runtime.now()))
        delay_s, what = self.behaviour.get(f"r{place.replica_id}", (0.0, "ok"))  # type: ignore[misc]
        if self.runtime.now() + delay_s > until:
            self.runtime.sleep(until - self.runtime.now())
            raise CallTimeout("slow")
        self.runtime.sleep(delay_s)
        if isinstance(what, BaseException):
            raise what
        return f"{what}{place.replica_id}"

    def pipelined(self, place: Copy, until: float) -> Pending[str]:
        self.asked.append((place.replica_id, self.runtime.now()))
        pending = self.runtime.pending(lambda: self.cancelled.append(place.replica_id))
        self.pendings[place.replica_id] = pending
        delay_s, what = self.behaviour.get(f"r{place.replica_id}", (0.0, "ok"))  # type: ignore[misc]
        if isinstance(what, BaseException):
            self.runtime.call_later(delay_s, lambda: pending.fail(what))
        elif what is not None:
            self.runtime.call_later(delay_s, lambda: pending.complete(f"{what}{place.replica_id}"))
        return pending


def run(
    runtime: SimRuntime,
    copies: Copies,
    *,
    capabilities: Capabilities | None = None,
    plan: Callable[..., tuple[Leg[Copy], ...]] = staged,
    delay_s: float = 0.01,
    timeout_s: float = 1.0,
    deadline_s: float = 10.0,
    budget: HedgeBudget | None = None,
    places: tuple[Copy, ...] = PLACES,
    heard: Heard | None = None,
    executor: Executor | None = None,
    discard: Callable[[str], None] | None = None,
    accept: Callable[[Copy, str], MetaClientError | None] | None = None,
) -> Won[Copy, str]:
    made = capabilities or Capabilities()
    executor = executor or Executor(runtime, made, abandoned_max=64)
    return executor.race(
        plan(places, delay_s=delay_s, timeout_s=timeout_s),
        copies.pipelined if made.is_pipelined else copies.blocking,
        deadline=runtime.now() + deadline_s,
        observer=heard or Heard(),
        allow_hedge=budget.take if budget is not None else lambda _: True,
        discard=discard,
        accept=accept,
    )


# -- plans and delay -------------------------------------------------------------------------------------------


def test_staged_plan_asks_one_more_copy_a_delay() -> None:
    legs = staged(PLACES, delay_s=0.01, timeout_s=1.0)
    assert [(leg.place.replica_id, leg.after_s, leg.is_hedge) for leg in legs] == [
        (0, 0.0, False),
        (1, 0.01, True),
        (2, 0.02, True),
    ]


def test_all_at_once_plan_is_hbases() -> None:
    legs = all_at_once(PLACES, delay_s=0.01, timeout_s=1.0)
    assert [leg.after_s for leg in legs] == [0.0, 0.01, 0.01]
    assert [leg.is_hedge for leg in one_replica(Copy(2), timeout_s=1.0)] == [False]


def _delay(**changes: object) -> HedgeDelay:
    options = {"fixed_s": 0.01, "adaptive": True, "quantile": 0.95, "min_s": 0.001, "max_s": 1.0, "samples_min": 20}
    return HedgeDelay(**{**options, **changes})  # type: ignore[arg-type]


def test_delay_is_fixed_until_there_are_samples_then_the_quantile() -> None:
    delay = _delay()
    for _ in range(19):
        delay.window.add(0.2)
    assert delay.delay_s() == 0.01
    delay.window.add(0.2)
    assert delay.delay_s() == 0.2


@pytest.mark.parametrize(("latency_s", "expected_s"), [(0.00001, 0.001), (30.0, 1.0)])
def test_adaptive_delay_stays_within_its_bounds(latency_s: float, expected_s: float) -> None:
    delay = _delay()
    for _ in range(100):
        delay.window.add(latency_s)
    assert delay.delay_s() == expected_s


def test_fixed_delay_does_not_listen() -> None:
    delay = _delay(adaptive=False)
    for _ in range(100):
        delay.window.add(0.5)
    assert delay.delay_s() == 0.01


def test_window_forgets_what_is_old() -> None:
    window = LatencyWindow()
    for _ in range(500):
        window.add(9.0)
    for _ in range(128):
        window.add(0.001)
    assert window.quantile(0.99) == 0.001
    assert len(window) == 128


# -- budgets ---------------------------------------------------------------------------------------------------


def test_hedges_stay_below_their_share_of_calls() -> None:
    """Hedge budget 5 %: 10,000 calls, each of which would be hedged, make 500 hedges."""
    budget = HedgeBudget(ratio=0.05, burst=10)
    hedges = 0
    for _ in range(10_000):
        budget.on_call()
        hedges += budget.take()
    assert hedges == 500


def test_a_quiet_week_does_not_pay_for_a_storm_of_hedges() -> None:
    budget = HedgeBudget(ratio=0.05, burst=2)
    for _ in range(100_000):
        budget.on_call()
    assert sum(budget.take() for _ in range(1000)) == 20


def test_a_group_of_hedges_is_allowed_whole_or_not_at_all() -> None:
    budget = HedgeBudget(ratio=0.05, burst=2)
    assert not budget.take(3)
    assert budget.take(2)
    assert not budget.take()


def test_no_ratio_no_hedges() -> None:
    budget = HedgeBudget(ratio=0.0, burst=10)
    budget.on_call()
    assert not budget.take()


def test_success_earns_retries_again() -> None:
    budget = CallBudget(ratio=0.2, burst=3)
    assert [budget.take(0.0) for _ in range(4)] == [True, True, True, False]
    budget.on_success()
    assert [budget.take(0.0) for _ in range(2)] == [True, False]


def test_canaries_become_rare_and_are_paid_for() -> None:
    budget = CallBudget(ratio=0.2, burst=1)
    budget.take(0.0)
    instants = [now for now in range(1, 200) if budget.take(float(now))]
    assert instants == [1, 3, 7, 15, 31, 51, 71, 91, 111, 131, 151, 171, 191]
    for _ in range(5 * len(instants)):  # what was taken in advance is not given again
        budget.on_first_attempt_failed(200.0)
    assert not budget.take(200.5)


# -- one call --------------------------------------------------------------------------------------------------


def test_strong_call_on_a_well_behaved_backend_needs_no_thread() -> None:
    with ThreadRuntime() as runtime:
        executor = Executor(runtime, Capabilities(), abandoned_max=4)
        seen: list[threading.Thread] = []
        executor.call(lambda deadline: seen.append(threading.current_thread()), deadline=runtime.now() + 60)
        assert seen == [threading.current_thread()]
        assert runtime.stats()["peak"] == 0


def test_hanging_backend_is_abandoned_at_the_deadline_and_counted(runtime: SimRuntime) -> None:
    executor = Executor(runtime, HANGING, abandoned_max=2)
    gate = runtime.pending()

    def hang(deadline: float) -> str:
        return gate.result()

    for expected in (1, 2):
        with pytest.raises(CallTimeout) as caught:
            executor.call(hang, deadline=runtime.now() + 1.0)
        assert not caught.value.may_have_applied
        assert executor.abandoned == expected
    with pytest.raises(Overloaded, match="abandoned_calls_max=2"):
        executor.call(hang, deadline=runtime.now() + 1.0)
    gate.complete("late")
    runtime.run_for(0.1)
    assert (executor.abandoned, executor.drained) == (0, 2)
    assert executor.call(lambda deadline: "back", deadline=runtime.now() + 1.0) == "back"


def test_abandoned_calls_of_a_pipelined_backend_are_bounded_too(runtime: SimRuntime) -> None:
    executor = Executor(runtime, PIPELINED, abandoned_max=1)
    with pytest.raises(CallTimeout):
        executor.call(lambda deadline: runtime.pending(), deadline=1.0)
    with pytest.raises(Overloaded):
        executor.call(lambda deadline: runtime.pending(), deadline=2.0)


def test_abandoned_call_that_still_waits_for_a_thread_is_never_made() -> None:
    """A write must not be applied long after its user was told that it failed."""
    with ThreadRuntime(max_tasks=1) as runtime:
        executor = Executor(runtime, HANGING, abandoned_max=8)
        gate = threading.Event()
        blocker = runtime.start(gate.wait)
        made: list[str] = []
        with pytest.raises(CallTimeout):
            executor.call(lambda deadline: made.append("late"), deadline=runtime.now() + 0.01, is_write=True)
        gate.set()
        blocker.result(runtime.now() + 60)
        runtime.start(int).result(runtime.now() + 60)
        assert made == []


@pytest.mark.parametrize(
    ("error", "kind", "may_have_applied"),
    [
        (ConnectionRefusedError("no"), ServerUnreachable, False),
        (ConnectionResetError("reset"), ServerUnreachable, True),
        (TimeoutError("late"), CallTimeout, True),
        (CallTimeout("late"), CallTimeout, True),
        (DeadlineExceeded("a Pending's own words"), CallTimeout, True),
        (KeyError("x"), BackendFault, True),
        (SystemError("x"), BackendFault, True),
        (BackendFault("x"), BackendFault, True),
        (ConnectionClosed("closed"), ConnectionClosed, True),
        (NotServingRegion("gone"), NotServingRegion, False),
        (RequestRefused("read only"), RequestRefused, False),
    ],
)
def test_failed_write_says_whether_it_may_have_been_applied(
    runtime: SimRuntime, error: Exception, kind: type[MetaClientError], may_have_applied: bool
) -> None:
    executor = Executor(runtime, Capabilities(), abandoned_max=1)

    def fail(deadline: float) -> None:
        raise error

    with pytest.raises(kind) as caught:
        executor.call(fail, deadline=1.0, is_write=True)
    assert caught.value.may_have_applied is may_have_applied
    assert caught.value is error or caught.value.__cause__ is error
    error_of_a_read = told(type(error)("x"))
    assert not error_of_a_read.may_have_applied


# -- races -----------------------------------------------------------------------------------------------------


def test_fast_primary_is_alone(runtime: SimRuntime) -> None:
    """No hedge when the primary is fast, also long after (AbstractTestAsyncTableRegionReplicasRead)."""
    copies = Copies(runtime, r0=(0.005, "ok"))
    won = run(runtime, copies)
    runtime.run_for(5.0)
    assert (won.value, won.hedges, won.outran) == ("ok0", 0, ())
    assert [replica for replica, _ in copies.asked] == [0]


def test_slow_primary_is_hedged_in_stages(runtime: SimRuntime) -> None:
    copies = Copies(runtime, r0=(5.0, "ok"), r1=(5.0, "ok"), r2=(0.001, "ok"))
    won = run(runtime, copies)
    assert copies.asked == [(0, 0.0), (1, 0.01), (2, 0.02)]
    assert (won.value, won.hedges) == ("ok2", 2)
    assert {place.replica_id for place in won.outran} == {0, 1}


def test_all_at_once_asks_every_secondary_together(runtime: SimRuntime) -> None:
    copies = Copies(runtime, r0=(5.0, "ok"), r1=(1.0, "ok"), r2=(0.5, "ok"))
    won = run(runtime, copies, plan=all_at_once)
    assert [at for _, at in copies.asked] == [0.0, 0.01, 0.01]
    assert won.value == "ok2"


def test_budget_without_tokens_waits_for_the_primary(runtime: SimRuntime) -> None:
    copies = Copies(runtime, r0=(0.5, "ok"))
    won = run(runtime, copies, budget=HedgeBudget(ratio=0.0, burst=0))
    assert (won.value, won.hedges, runtime.now()) == ("ok0", 0, 0.5)


def test_error_of_the_primary_starts_the_next_leg_at_once_without_budget(runtime: SimRuntime) -> None:
    """The value comes from a secondary, the primary is not asked again (AbstractTestAsyncTableRegionReplicasRead)."""
    copies = Copies(runtime, r0=(0.001, NotServingRegion("gone")))
    heard = Heard()
    won = run(runtime, copies, budget=HedgeBudget(ratio=0.0, burst=0), delay_s=1.0, heard=heard)
    assert copies.asked == [(0, 0.0), (1, 0.001)]
    assert (won.value, won.hedges) == ("ok1", 0)
    assert (heard.good, heard.bad) == ([1], [(0, "NotServingRegion")])


def test_refused_hedge_still_replaces_a_primary_that_fails_later(runtime: SimRuntime) -> None:
    copies = Copies(runtime, r0=(0.5, NotServingRegion("gone")))
    won = run(runtime, copies, budget=HedgeBudget(ratio=0.0, burst=0))
    assert copies.asked == [(0, 0.0), (1, 0.5)]
    assert won.value == "ok1"


def test_fatal_error_of_a_secondary_never_ends_the_race(runtime: SimRuntime) -> None:
    """First success wins; HBase 3 lets the secondary's do-not-retry error fail the read."""
    copies = Copies(runtime, r0=(0.5, "ok"), r1=(0.0, RequestRefused("no")), r2=(0.0, RequestRefused("no")))
    won = run(runtime, copies)
    assert won.value == "ok0"


def test_all_legs_fail_with_the_primarys_error(runtime: SimRuntime) -> None:
    """All fail -> the primary's error, also when a secondary's came last."""
    copies = Copies(
        runtime, r0=(0.03, ServerUnreachable("primary")), r1=(0.0, RequestRefused("one")), r2=(0.5, CallTimeout("two"))
    )
    with pytest.raises(ServerUnreachable, match="primary"):
        run(runtime, copies)
    assert runtime.now() == pytest.approx(0.52)


def test_fatal_error_of_the_primary_is_final_at_once(runtime: SimRuntime) -> None:
    copies = Copies(runtime, r0=(0.02, RequestRefused("denied")), r1=(9.0, "ok"), r2=(9.0, "ok"))
    with pytest.raises(RequestRefused, match="denied"):
        run(runtime, copies, delay_s=0.015)
    assert runtime.now() == pytest.approx(0.02)


def test_each_leg_has_its_own_time(runtime: SimRuntime) -> None:
    copies = Copies(runtime, r0=(None, None), r1=(None, None), r2=(0.1, "ok"))
    won = run(runtime, copies, capabilities=PIPELINED, timeout_s=0.3, delay_s=5.0)
    assert won.value == "ok2"
    assert [at for _, at in copies.asked] == pytest.approx([0.0, 0.3, 0.6])


def test_race_ends_at_the_deadline(runtime: SimRuntime) -> None:
    copies = Copies(runtime, r0=(None, None), r1=(None, None), r2=(None, None))
    with pytest.raises(CallTimeout):
        run(runtime, copies, capabilities=PIPELINED, timeout_s=60.0, deadline_s=2.0)
    assert runtime.now() == 2.0


def test_losers_are_cancelled_where_the_transport_can(runtime: SimRuntime) -> None:
    copies = Copies(runtime, r0=(None, None), r1=(0.001, "ok"))
    executor = Executor(runtime, CANCELLING, abandoned_max=4)
    won = run(runtime, copies, capabilities=CANCELLING, executor=executor)
    assert won.value == "ok1"
    assert copies.cancelled == [0]
    assert (executor.cancelled, executor.abandoned) == (1, 0)


def test_losers_are_drained_and_counted_where_it_cannot(runtime: SimRuntime) -> None:
    copies = Copies(runtime, r0=(3.0, "ok"), r1=(0.001, "ok"))
    executor = Executor(runtime, PIPELINED, abandoned_max=4)
    run(runtime, copies, capabilities=PIPELINED, executor=executor)
    assert (executor.abandoned, executor.drained) == (1, 0)
    runtime.run_for(5.0)
    assert (executor.abandoned, executor.drained) == (0, 1)


def test_late_answer_of_a_loser_is_discarded_exactly_once(runtime: SimRuntime) -> None:
    """What a loser brings late is handed back, so that its scanner can be closed."""
    copies = Copies(runtime, r0=(0.5, "ok"), r1=(0.001, "ok"))
    discarded: list[str] = []
    assert run(runtime, copies, discard=discarded.append).value == "ok1"
    assert discarded == []
    runtime.run_for(5.0)
    assert discarded == ["ok0"]


def test_leg_that_was_timed_out_and_answers_late_is_discarded(runtime: SimRuntime) -> None:
    copies = Copies(runtime, r0=(3.0, "ok"), r1=(0.1, "ok"))
    discarded: list[str] = []
    won = run(runtime, copies, capabilities=PIPELINED, timeout_s=0.5, delay_s=9.0, discard=discarded.append)
    runtime.run_for(5.0)
    assert (won.value, discarded) == ("ok1", ["ok0"])


def test_answer_that_is_refused_counts_as_a_failure(runtime: SimRuntime) -> None:
    copies = Copies(runtime)
    heard = Heard()

    def accept(place: Copy, value: str) -> MetaClientError | None:
        return NotServingRegion("empty") if place.replica_id < 2 else None

    won = run(runtime, copies, accept=accept, heard=heard)
    assert (won.value, heard.good, heard.bad) == ("ok2", [2], [(0, "NotServingRegion"), (1, "NotServingRegion")])


def test_answer_that_cannot_be_looked_at_is_the_backends_fault(runtime: SimRuntime) -> None:
    def accept(place: Copy, value: str) -> MetaClientError | None:
        raise AttributeError("'NoneType' object has no attribute 'rows'")

    with pytest.raises(BackendFault, match="no attribute 'rows'"):
        run(runtime, Copies(runtime), accept=accept)


def test_no_room_here_is_not_the_replicas_fault(runtime: SimRuntime) -> None:
    """A client that is full must not put healthy replicas out."""
    executor = Executor(runtime, PIPELINED, abandoned_max=0)
    heard = Heard()
    with pytest.raises(Overloaded):
        run(runtime, Copies(runtime), capabilities=PIPELINED, executor=executor, heard=heard)
    assert heard.bad == []


def test_single_copy_runs_in_the_callers_thread_without_a_timer() -> None:
    """One location known -> the primary only, no timer."""
    with ThreadRuntime() as runtime:
        executor = Executor(runtime, Capabilities(), abandoned_max=4)
        seen: list[threading.Thread] = []

        def call(place: Copy, until: float) -> str:
            seen.append(threading.current_thread())
            return "ok"

        won = executor.race(
            staged((Copy(0),), delay_s=0.01, timeout_s=60.0), call, deadline=runtime.now() + 60, observer=Heard()
        )
        assert won.value == "ok"
        assert seen == [threading.current_thread()]
        assert (runtime.stats()["peak"], runtime.stats()["timers"]) == (0, 0)


def test_race_on_threads_takes_the_first_success() -> None:
    with ThreadRuntime() as runtime:
        executor = Executor(runtime, Capabilities(), abandoned_max=4)
        gate = threading.Event()

        def call(place: Copy, until: float) -> str:
            if place.replica_id == 0:
                gate.wait(60)
            return f"ok{place.replica_id}"

        won = executor.race(
            staged(PLACES[:2], delay_s=0.001, timeout_s=60.0), call, deadline=runtime.now() + 60, observer=Heard()
        )
        assert (won.value, executor.abandoned) == ("ok1", 1)
        gate.set()
        deadline = runtime.now() + 60
        while executor.abandoned and runtime.now() < deadline:  # until the loser's own thread has said so
            runtime.sleep(0.001)
    assert executor.abandoned == 0


def test_closing_the_runtime_ends_a_race() -> None:
    with SimRuntime(seed=3) as runtime:
        copies = Copies(runtime, r0=(None, None), r1=(None, None), r2=(None, None))
        racing = runtime.start(run, runtime, copies)  # blocks in a task of its own
        runtime.run_for(0.001)
        runtime.close()
        assert isinstance(racing.error(), ConnectionClosed | MetaClientError)
