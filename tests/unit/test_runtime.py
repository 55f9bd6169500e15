"""Both runtimes keep the same promises; the simulated one also keeps its seed's."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from metaclient.errors import ConnectionClosed, DeadlineExceeded, Overloaded
from metaclient.runtime import Pending, Runtime, SimDeadlock, SimRuntime, TaskCancelled, ThreadRuntime
from metaclient.runtime.timers import Timer, Timers

#: Where a test waits for what must come: long enough for any machine, and finite so that a fault fails, not hangs.
PATIENCE_S = 30.0
#: Where the timeout itself is tested: real time on threads.
SHORT_S = 0.02


@pytest.fixture(params=["threads", "sim"])
def runtime(request: pytest.FixtureRequest) -> Iterator[Runtime]:
    made: ThreadRuntime | SimRuntime = ThreadRuntime(seed=1) if request.param == "threads" else SimRuntime(seed=1)
    yield made
    made.close()


def soon(runtime: Runtime) -> float:
    return runtime.now() + PATIENCE_S


class Boom(Exception):
    pass


# -- Pending and Task ------------------------------------------------------------------------------------------


def test_first_completion_wins(runtime: Runtime) -> None:
    answer = runtime.pending()
    assert not answer.is_done
    assert answer.complete(1)
    assert not answer.complete(2)
    assert not answer.fail(Boom())
    assert (answer.result(), answer.error()) == (1, None)


def test_failed_pending_raises_its_error_every_time(runtime: Runtime) -> None:
    answer = runtime.pending()
    boom = Boom("x")
    assert answer.fail(boom)
    for _ in range(2):
        with pytest.raises(Boom) as caught:
            answer.result()
        assert caught.value is boom
    assert answer.error() is boom


def test_error_of_an_open_pending_is_a_mistake(runtime: Runtime) -> None:
    with pytest.raises(RuntimeError, match="not done"):
        runtime.pending(name="flight").error()


def test_result_waits_for_another_task(runtime: Runtime) -> None:
    answer = runtime.pending()
    readers = [runtime.start(answer.result) for _ in range(3)]
    runtime.start(answer.complete, 7)
    assert [reader.result(soon(runtime)) for reader in readers] == [7, 7, 7]


def test_result_at_its_deadline_raises_and_leaves_no_waiter(runtime: Runtime) -> None:
    answer = runtime.pending(name="never")
    with pytest.raises(DeadlineExceeded, match="never"):
        answer.result(runtime.now() + SHORT_S)
    with pytest.raises(DeadlineExceeded):
        answer.result(runtime.now() - 1.0)
    assert answer._callbacks == []


def test_task_returns_or_raises(runtime: Runtime) -> None:
    def fail() -> None:
        raise Boom("inside")

    assert runtime.start(max, 3, 5).result(soon(runtime)) == 5
    with pytest.raises(Boom, match="inside"):
        runtime.start(fail).result(soon(runtime))


def test_failure_that_nobody_waits_for_is_logged(runtime: Runtime, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise Boom("unseen")

    with caplog.at_level(logging.DEBUG, logger="metaclient.runtime"):
        task = runtime.start(fail, name="lonely")
        # Not task.result(): who waits for the task sees its error, and nothing needs to be logged.
        poll_until(runtime, lambda: task.is_done)
    assert any("lonely" in record.getMessage() and record.exc_info for record in caplog.records)


def poll_until(runtime: Runtime, predicate: Callable[[], bool]) -> None:
    deadline = soon(runtime)
    while not predicate():
        assert runtime.now() < deadline
        runtime.sleep(0.001)


def test_on_done_before_and_after(runtime: Runtime) -> None:
    answer = runtime.pending()
    seen: list[object] = []
    answer.on_done(lambda done: seen.append(("before", done.result())))
    assert seen == []
    answer.complete(1)
    answer.on_done(lambda done: seen.append(("after", done.result())))
    assert seen == [("before", 1), ("after", 1)]


def test_callback_runs_outside_of_locks(runtime: Runtime) -> None:
    """A callback may use the very pending that calls it."""
    answer = runtime.pending()
    seen: list[bool] = []
    answer.on_done(lambda done: done.on_done(lambda again: seen.append(again.complete(2))))
    answer.complete(1)
    assert seen == [False]


def test_failing_callback_hurts_nobody_else(runtime: Runtime, caplog: pytest.LogCaptureFixture) -> None:
    answer = runtime.pending()
    seen: list[Pending[int]] = []

    def bad(_: Pending[int]) -> None:
        raise Boom("observer")

    answer.on_done(bad)
    answer.on_done(seen.append)
    assert answer.complete(1)
    assert seen == [answer]
    assert "callback" in caplog.text


def test_cancel_asks_the_producer_once(runtime: Runtime) -> None:
    asked: list[int] = []
    answer = runtime.pending(on_cancel=lambda: asked.append(1))
    answer.cancel()
    answer.cancel()
    assert asked == [1]
    assert answer.is_cancel_asked
    assert not answer.is_done
    assert answer.complete("late but fine")


def test_cancel_after_completion_asks_nobody(runtime: Runtime) -> None:
    asked: list[int] = []
    answer = runtime.pending(on_cancel=lambda: asked.append(1))
    answer.complete(1)
    answer.cancel()
    assert asked == []


@pytest.mark.parametrize("kind", ["threads", "sim"])
def test_task_cancelled_before_it_began_never_runs(kind: str) -> None:
    runtime: Runtime = ThreadRuntime(max_tasks=1) if kind == "threads" else SimRuntime()
    ran: list[int] = []
    gate = runtime.pending()
    runtime.start(gate.result)  # on threads it occupies the only worker
    queued = runtime.start(ran.append, 1, name="queued")
    queued.cancel()
    gate.complete(None)
    with pytest.raises(TaskCancelled, match="queued"):
        queued.result(soon(runtime))
    assert ran == []
    runtime.close()


# -- wait_first ------------------------------------------------------------------------------------------------


def test_wait_first_returns_what_is_done(runtime: Runtime) -> None:
    slow, fast = runtime.pending(), runtime.pending()
    runtime.start(fast.complete, "won")
    assert runtime.wait_first([slow, fast], soon(runtime)) is fast
    assert slow._callbacks == []
    slow.complete("too")
    assert runtime.wait_first([slow, fast], None) is slow


def test_wait_first_returns_a_failure_too(runtime: Runtime) -> None:
    failed = runtime.pending()
    failed.fail(Boom())
    assert runtime.wait_first([runtime.pending(), failed], None) is failed


def test_wait_first_at_its_deadline_is_none(runtime: Runtime) -> None:
    open_ones = [runtime.pending(), runtime.pending()]
    before = runtime.now()
    assert runtime.wait_first(open_ones, before + SHORT_S) is None
    assert runtime.now() >= before + SHORT_S
    assert [p._callbacks for p in open_ones] == [[], []]


def test_wait_first_of_nothing(runtime: Runtime) -> None:
    assert runtime.wait_first([], runtime.now()) is None
    with pytest.raises(ValueError, match="never end"):
        runtime.wait_first([], None)


# -- Lock and Condition ----------------------------------------------------------------------------------------


def test_lock_excludes(runtime: Runtime) -> None:
    lock = runtime.lock()
    inside: list[int] = []
    overlaps: list[int] = []

    def enter(number: int) -> None:
        for _ in range(5):
            with lock:
                inside.append(number)
                runtime.sleep(0.0001)
                if len(inside) != 1:
                    overlaps.append(number)
                inside.pop()

    for task in [runtime.start(enter, number) for number in range(20)]:
        task.result(soon(runtime))
    assert overlaps == []


def test_lock_is_free_in_the_main_programme(runtime: Runtime) -> None:
    lock = runtime.lock()
    with lock:
        pass
    assert lock.acquire()
    lock.release()
    with pytest.raises(RuntimeError):
        lock.release()


def test_main_programme_waits_for_a_lock_that_a_task_holds(runtime: Runtime) -> None:
    lock = runtime.lock()
    is_held = runtime.pending()

    def hold() -> None:
        with lock:
            is_held.complete(True)
            runtime.sleep(SHORT_S)

    holder = runtime.start(hold)
    is_held.result(soon(runtime))
    with lock:
        assert runtime.now() > 0
    holder.result(soon(runtime))


def test_condition_hands_over_every_item(runtime: Runtime) -> None:
    changed = runtime.condition()
    items: list[int] = []
    taken: list[int] = []

    def take() -> None:
        with changed:
            assert changed.wait_for(lambda: bool(items), soon(runtime))
            taken.append(items.pop())

    takers = [runtime.start(take) for _ in range(10)]
    for item in range(10):
        with changed:
            items.append(item)
            changed.notify()
    for taker in takers:
        taker.result(soon(runtime))
    assert sorted(taken) == list(range(10))


def test_condition_notify_all_wakes_all(runtime: Runtime) -> None:
    changed = runtime.condition()
    waiting: list[int] = []

    def wait(number: int) -> bool:
        with changed:
            waiting.append(number)
            return changed.wait(soon(runtime))

    tasks = [runtime.start(wait, number) for number in range(5)]
    poll_until(runtime, lambda: len(waiting) == 5)
    with changed:  # whoever appended has released this lock in wait by now
        changed.notify_all()
    assert all(task.result(soon(runtime)) for task in tasks)


def test_condition_times_out_and_holds_its_lock_again(runtime: Runtime) -> None:
    lock = runtime.lock()
    changed = runtime.condition(lock)
    with changed:
        assert not changed.wait(runtime.now() + SHORT_S)
        changed.notify()  # nobody is queued any more
    with lock:
        pass
    assert repr(changed) == "<Condition: 0 waiting>"


# -- timers ----------------------------------------------------------------------------------------------------


def test_call_later_keeps_order(runtime: Runtime) -> None:
    order: list[str] = []
    is_last = runtime.pending()
    runtime.call_later(SHORT_S, lambda: order.append("first"))
    runtime.call_later(2 * SHORT_S, lambda: order.append("second"))
    runtime.call_later(3 * SHORT_S, lambda: is_last.complete(None))
    is_last.result(soon(runtime))
    assert order == ["first", "second"]


def test_call_later_is_not_held_up_by_an_earlier_call_with_a_later_instant(runtime: Runtime) -> None:
    is_called = runtime.pending()
    far = runtime.call_later(1e6, lambda: None)
    runtime.call_later(SHORT_S, lambda: is_called.complete(True))
    assert is_called.result(soon(runtime))
    assert far.cancel()


def test_call_later_cancelled_is_not_called(runtime: Runtime) -> None:
    called: list[int] = []
    is_done = runtime.pending()
    timer = runtime.call_later(PATIENCE_S, lambda: called.append(1))
    assert timer.cancel()
    assert not timer.cancel()
    last = runtime.call_later(SHORT_S, lambda: is_done.complete(None))
    is_done.result(soon(runtime))
    assert not last.cancel()
    if isinstance(runtime, SimRuntime):
        runtime.run_for(2 * PATIENCE_S)
    assert called == []
    assert runtime.stats()["timers"] == 0


def test_failing_timer_does_not_stop_the_others(runtime: Runtime) -> None:
    def fail() -> None:
        raise Boom("timer")

    is_called = runtime.pending()
    runtime.call_later(0.0, fail)
    runtime.call_later(SHORT_S, lambda: is_called.complete(True))
    assert is_called.result(soon(runtime))


def test_cancelled_timers_do_not_pile_up() -> None:
    timers = Timers()
    kept = Timer(timers, 5.0, lambda: None)
    for _ in range(10_000):
        Timer(timers, 60.0, lambda: None).cancel()
    assert len(timers) == 1
    assert len(timers.heap) < 200
    assert timers.next_instant() == 5.0
    assert timers.pop_due(5.0) == [kept]
    assert timers.next_instant() is None


# -- bounds and close ------------------------------------------------------------------------------------------


def test_start_beyond_the_bound_is_overloaded() -> None:
    runtime = ThreadRuntime(max_tasks=2, max_queued=1)
    gate = runtime.pending()
    tasks = [runtime.start(gate.result) for _ in range(3)]
    with pytest.raises(Overloaded, match="all 2 tasks are busy and 1 are queued"):
        runtime.start(gate.result)
    assert (runtime.stats()["running"], runtime.stats()["queued"]) == (2, 1)
    gate.complete("go")
    assert [task.result(soon(runtime)) for task in tasks] == ["go"] * 3
    assert runtime.start(int).result(soon(runtime)) == 0
    runtime.close()
    assert runtime.stats()["peak"] == 2


def test_start_beyond_the_bound_is_overloaded_in_simulation() -> None:
    with SimRuntime(max_tasks=1) as runtime:
        runtime.start(int)
        with pytest.raises(Overloaded):
            runtime.start(int)
        runtime.run_for(0)
        runtime.start(int)


def test_daemons_have_their_own_bound() -> None:
    with ThreadRuntime(max_tasks=1, max_daemons=1) as runtime:
        gate = runtime.pending()
        runtime.start_daemon(gate.result, name="loop")
        with pytest.raises(Overloaded, match="1 daemons"):
            runtime.start_daemon(gate.result, name="loop")
        assert runtime.start(threading.current_thread).result(soon(runtime)).name == "metaclient-1"


def test_threads_are_named_reused_and_started_late() -> None:
    def alive() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name.startswith("pool-")]

    runtime = ThreadRuntime(name="pool")
    assert alive() == []
    for _ in range(10):
        assert runtime.start(threading.current_thread).result(soon(runtime)).name == "pool-1"
        poll_until(runtime, lambda: runtime.stats()["running"] == 0)
    assert runtime.start_daemon(threading.current_thread, name="wal").result(soon(runtime)).name == "pool-wal"
    runtime.close(PATIENCE_S)
    assert alive() == []


def test_idle_threads_end() -> None:
    with ThreadRuntime(idle_s=SHORT_S) as runtime:
        worker = runtime.start(threading.current_thread).result(soon(runtime))
        is_called = runtime.pending()
        runtime.call_later(0.0, lambda: is_called.complete(threading.current_thread()))
        timer = is_called.result(soon(runtime))
        for thread in (worker, timer):
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        assert runtime.stats()["running"] == 0
        assert runtime.start(int).result(soon(runtime)) == 0  # and new ones come when they are needed
        again = runtime.pending()
        runtime.call_later(0.0, lambda: again.complete(True))
        assert again.result(soon(runtime))


def test_close_with_a_task_hung_in_foreign_code_returns() -> None:
    runtime = ThreadRuntime()
    never = threading.Event()
    is_hung = runtime.pending()

    def hang() -> None:
        is_hung.complete(True)
        never.wait()

    task = runtime.start(hang, name="hung")
    is_hung.result(soon(runtime))
    before = runtime.now()
    runtime.close(timeout_s=SHORT_S)
    assert SHORT_S <= runtime.now() - before < PATIENCE_S
    assert runtime.stats()["abandoned"] == 1
    with pytest.raises(ConnectionClosed, match="hung"):
        task.result()
    never.set()


def test_close_wakes_sleeps_waits_and_daemons(runtime: Runtime) -> None:
    entered: list[str] = []
    changed = runtime.condition()

    def note(name: str, wait: Callable[[], object]) -> None:
        entered.append(name)
        wait()

    def wait_for_change() -> None:
        with changed:
            changed.wait()

    tasks = [
        runtime.start(note, "sleep", lambda: runtime.sleep(1e6)),
        runtime.start(note, "pending", runtime.pending().result),
        runtime.start(note, "condition", wait_for_change),
        runtime.start_daemon(note, "daemon", lambda: runtime.sleep(1e6), name="loop"),
    ]
    poll_until(runtime, lambda: len(entered) == 4)
    runtime.close(PATIENCE_S)
    assert [type(task.error()) for task in tasks] == [ConnectionClosed] * 4
    assert runtime.stats()["abandoned"] == 0
    assert runtime.closed
    runtime.close()


def test_closed_runtime_starts_nothing(runtime: Runtime) -> None:
    answer = runtime.pending()
    runtime.close()
    calls: list[Callable[[], object]] = [
        lambda: runtime.start(int),
        lambda: runtime.start_daemon(int),
        lambda: runtime.call_later(0.0, lambda: None),
        lambda: runtime.sleep(0.0),
        lambda: answer.result(soon(runtime)),
    ]
    for call in calls:
        with pytest.raises(ConnectionClosed):
            call()
    answer.complete(1)
    assert answer.result() == 1  # what is there can still be read


def test_close_fails_what_is_queued() -> None:
    runtime = ThreadRuntime(max_tasks=1)
    gate = runtime.pending()
    runtime.start(gate.result)
    queued = runtime.start(int)
    runtime.close()
    assert isinstance(queued.error(), ConnectionClosed)


def test_task_may_close_its_runtime(runtime: Runtime) -> None:
    def close() -> str:
        runtime.close()
        return "closed"

    task = runtime.start(close)
    try:
        assert task.result(soon(runtime)) == "closed"
    except ConnectionClosed:  # threads: the wait for the task is interrupted as any other
        task_done = threading.Event()
        task.on_done(lambda _: task_done.set())
        assert task_done.wait(PATIENCE_S)
        assert task.result() == "closed"


def test_clocks(runtime: Runtime) -> None:
    first, wall = runtime.now(), runtime.time_ms()
    runtime.sleep(SHORT_S)
    assert runtime.now() - first >= SHORT_S
    assert runtime.time_ms() >= wall
    assert 0.0 <= runtime.rng.random() < 1.0


def test_thread_clock_is_the_monotonic_clock_itself() -> None:
    assert ThreadRuntime().now is time.monotonic


# -- simulation only -------------------------------------------------------------------------------------------


def busy_run(seed: int, preempt: float = 0.0) -> tuple[str, list[int]]:
    """Ten tasks that meet at one lock, one condition and at the same instants."""
    with SimRuntime(seed, preempt=preempt) as runtime:
        order: list[int] = []
        changed = runtime.condition()

        def work(number: int) -> None:
            for _ in range(5):
                runtime.sleep(0.001)
                with changed:
                    order.append(number)
                    changed.notify_all()
                    changed.wait(runtime.now() + runtime.rng.random())

        tasks = [runtime.start(work, number) for number in range(10)]
        for task in tasks:
            task.result()
        return runtime.digest(), order


@pytest.mark.parametrize("preempt", [0.0, 0.5])
def test_one_seed_decides_all(preempt: float) -> None:
    runs = [busy_run(seed, preempt) for seed in range(20)]
    assert runs == [busy_run(seed, preempt) for seed in range(20)]
    assert len({digest for digest, _ in runs}) == 20
    assert len({tuple(order) for _, order in runs}) == 20


def test_digest_is_the_same_on_every_machine() -> None:
    assert busy_run(42)[0] == "d1e5d764fb6b872f"


@pytest.mark.parametrize("preempt", [0.0, 0.5])
def test_time_that_passes_without_a_switch_decides_nothing(monkeypatch: pytest.MonkeyPatch, preempt: float) -> None:
    """A sleep during which nobody else runs does not go through the hub; nobody can tell."""
    quick = [busy_run(seed, preempt) for seed in range(20)]
    monkeypatch.setattr(SimRuntime, "_pass", lambda *_: False)
    assert quick == [busy_run(seed, preempt) for seed in range(20)]


def test_lone_sleeper_stops_where_the_main_programme_does() -> None:
    with SimRuntime() as runtime:
        seen: list[float] = []

        def tick() -> None:
            while True:
                runtime.sleep(1.0)
                seen.append(runtime.now())

        runtime.start(tick)
        runtime.run_until(2.5)
        assert (seen, runtime.now()) == ([1.0, 2.0], 2.5)
        runtime.run_until(3.0)
        assert (seen, runtime.now()) == ([1.0, 2.0, 3.0], 3.0)


def test_task_that_wakes_the_main_programme_and_sleeps_on_does_not_keep_it() -> None:
    with SimRuntime() as runtime:
        answer = runtime.pending()

        def tell() -> None:
            runtime.sleep(1.0)
            answer.complete("now")
            runtime.sleep(5.0)

        runtime.start(tell)
        assert (answer.result(), runtime.now()) == ("now", 1.0)


def test_preempt_finds_interleavings_inside_a_task() -> None:
    """Without preemption two tasks that never wait do not interleave; with it they do."""

    def lost_updates(preempt: float) -> int:
        with SimRuntime(1, preempt=preempt) as runtime:
            lock, counter = runtime.lock(), [0]

            def add() -> None:
                for _ in range(50):
                    seen = counter[0]
                    with lock:  # taken too late: the hazard
                        counter[0] = seen + 1

            for task in [runtime.start(add) for _ in range(2)]:
                task.result()
            return 100 - counter[0]

    assert lost_updates(0.0) == 0
    assert lost_updates(0.3) > 0


def test_virtual_hours_cost_nothing() -> None:
    with SimRuntime(start_ms=1_000) as runtime:
        assert runtime.now() == 0.0
        runtime.run(runtime.sleep, 24 * 3600.0)
        assert runtime.now() == 86_400.0
        assert runtime.time_ms() == 86_401_000


def test_run_returns_or_raises_what_main_does() -> None:
    def fail() -> None:
        runtime.sleep(1.0)
        raise Boom("main")

    with SimRuntime() as runtime:
        assert runtime.run(max, 1, 2) == 2
        with pytest.raises(Boom, match="main"):
            runtime.run(fail)


def test_main_programme_drives_when_it_blocks() -> None:
    with SimRuntime() as runtime:
        seen: list[float] = []

        def tick() -> None:
            while True:
                runtime.sleep(1.0)
                seen.append(runtime.now())

        runtime.start_daemon(tick, name="ticker")
        assert seen == []
        runtime.sleep(3.5)
        assert seen == [1.0, 2.0, 3.0]
        assert runtime.start(lambda: runtime.sleep(1.0) or "done").result() == "done"
        assert runtime.now() == 4.5


def test_run_until_includes_its_instant() -> None:
    with SimRuntime() as runtime:
        seen: list[float] = []
        for delay_s in (1.0, 2.0, 2.5):
            runtime.call_later(delay_s, lambda: seen.append(runtime.now()))
        runtime.run_until(2.0)
        assert (seen, runtime.now()) == ([1.0, 2.0], 2.0)
        runtime.run_for(10.0)
        assert (seen, runtime.now()) == ([1.0, 2.0, 2.5], 12.0)


def test_daemons_do_not_keep_a_run_going() -> None:
    with SimRuntime() as runtime:
        runtime.start_daemon(lambda: [runtime.sleep(1.0) for _ in iter(int, 1)], name="for ever")
        runtime.run(runtime.sleep, 2.5)
        assert runtime.now() == 2.5


def test_deadlock_names_who_waits_on_what() -> None:
    with SimRuntime() as runtime:
        lock = runtime.lock()

        def hold() -> None:
            with lock:
                runtime.pending(name="answer").result()

        runtime.start(hold, name="holder")
        runtime.run_for(0)
        runtime.start_daemon(runtime.condition().__enter__, name="fine")
        runtime.start_daemon(runtime.pending(name="requests").result, name="server")
        with pytest.raises(SimDeadlock) as caught:
            runtime.run(lock.acquire)
        assert str(caught.value).splitlines() == [
            "nothing can run at 0.000 s; waiting:",
            "  holder on <Pending answer: waiting>",
            "  main on <Lock: held by holder>",
            "  server (daemon) on <Pending requests: waiting>",
        ]


def test_deadlock_of_the_main_programme_alone() -> None:
    with SimRuntime() as runtime, pytest.raises(SimDeadlock, match="main programme"):
        runtime.pending().result()


def test_heartbeats_of_daemons_do_not_hide_a_deadlock() -> None:
    with SimRuntime() as runtime:

        def beat() -> None:
            while True:
                runtime.sleep(600.0)
                runtime.start(int)

        runtime.start_daemon(beat, name="heart")
        with pytest.raises(SimDeadlock, match="heart"):
            runtime.run(runtime.pending(name="godot").result)
        runtime.sleep(30 * 86_400.0)  # a wait that ends by itself is none, however long


def test_timer_may_take_a_lock_that_is_held() -> None:
    with SimRuntime() as runtime:
        lock = runtime.lock()
        seen: list[float] = []

        def record() -> None:
            with lock:
                seen.append(runtime.now())

        def hold() -> None:
            with lock:
                runtime.sleep(5.0)

        runtime.start(hold)
        runtime.call_later(1.0, record)
        runtime.sleep(10.0)
        assert seen == [5.0]


def test_close_ends_even_what_will_not_end() -> None:
    runtime = SimRuntime()
    cleaned: list[str] = []

    def stubborn() -> None:
        lock = runtime.lock()
        lock.acquire()
        try:
            lock.acquire()
        finally:
            cleaned.append("stubborn")

    def deaf() -> None:
        while True:
            try:
                runtime.sleep(1.0)
            except ConnectionClosed:
                break
        cleaned.append("deaf")

    tasks = [runtime.start(stubborn), runtime.start(deaf)]
    runtime.run_for(0)
    unstarted = runtime.start(int)
    runtime.close()
    assert sorted(cleaned) == ["deaf", "stubborn"]
    assert isinstance(tasks[0].error(), ConnectionClosed)
    assert isinstance(unstarted.error(), ConnectionClosed)
    assert runtime.stats()["running"] == 0


def test_keyboard_interrupt_in_a_task_reaches_the_user() -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    with SimRuntime() as runtime:
        runtime.start(stop)
        with pytest.raises(KeyboardInterrupt):
            runtime.sleep(1.0)
        runtime.sleep(1.0)  # and the simulation can go on
        assert runtime.now() >= 1.0


def test_missing_greenlet_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "greenlet", None)
    with pytest.raises(ImportError, match=r"pip install 'hbase-metaclient\[sim\]'"):
        SimRuntime()


class _HeldMutex:
    """A mutex that holds one thread right after it has released it."""

    def __init__(self, held_name: str) -> None:
        self._lock = threading.Lock()
        self._held_name = held_name
        self.is_held = threading.Event()
        self.may_end = threading.Event()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        if threading.current_thread().name == self._held_name:
            self.is_held.set()
            assert self.may_end.wait(PATIENCE_S)


def test_close_joins_a_daemon_that_has_just_removed_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    joined: list[str] = []
    runtime = ThreadRuntime(name="r")
    mutex = _HeldMutex("r-ends")
    runtime._mutex = mutex  # type: ignore[assignment]  # what the runtime uses of a lock
    task = runtime.start_daemon(threading.get_ident, name="ends")
    assert mutex.is_held.wait(PATIENCE_S)
    assert task.is_done
    assert not runtime._daemons
    monkeypatch.setattr(threading.Thread, "join", lambda thread, timeout=None: joined.append(thread.name))
    try:
        runtime.close()
        assert joined == ["r-ends"]
    finally:
        mutex.may_end.set()
