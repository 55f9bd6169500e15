"""Simulated tasks can be preempted between any two statements of chosen modules, and equal seeds give equal runs."""

import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from metaclient.errors import ConnectionClosed
from metaclient.runtime import SimRuntime
from metaclient.runtime.line_preemption import LinePauses, modules_below, preempted_lines

RACY = '''
"""A module without locks."""
from __future__ import annotations
import contextlib, functools


class Counter:
    def __init__(self):
        self.value = 0

    def add(self):
        seen = self.value
        self.value = seen + 1

    @property
    def doubled(self):
        value = self.value
        return value * 2

    @staticmethod
    def branch(number):
        try:
            if number:
                return "some"
            else:
                return "none"
        finally:
            number = None

    @contextlib.contextmanager
    def held(self):
        before = self.value
        yield before
        self.value = before


class Child(Counter):
    def add(self):
        before = self.value
        super().add()
        return before
'''


@pytest.fixture
def racy(tmp_path: Path) -> Iterator[types.ModuleType]:
    file = tmp_path / "racy_module.py"
    file.write_text(RACY)
    module = types.ModuleType("racy_module")
    module.__file__ = str(file)
    exec(compile(RACY, str(file), "exec", dont_inherit=True), vars(module))
    sys.modules["racy_module"] = module
    yield module
    del sys.modules["racy_module"]


def counted(racy: types.ModuleType, seed: int, share: float | None) -> tuple[int, str]:
    """What a counter without a lock ends at, after ten additions by each of three tasks; and the run's digest."""
    with SimRuntime(seed) as runtime:
        counter = racy.Counter()

        def work() -> None:
            for _ in range(10):
                counter.add()

        def everything() -> None:
            tasks = [runtime.start(work) for _ in range(3)]
            for task in tasks:
                task.result()

        if share is None:
            runtime.run(everything)
        else:
            with preempted_lines(runtime, [racy], share):
                runtime.run(everything)
        return counter.value, runtime.digest()


def test_lost_update_without_lock_shows_only_with_preempted_lines(racy: types.ModuleType) -> None:
    assert {counted(racy, seed, None)[0] for seed in range(20)} == {30}
    assert min(counted(racy, seed, 0.2)[0] for seed in range(20)) < 30


def test_equal_seeds_are_preempted_equally(racy: types.ModuleType) -> None:
    runs = [counted(racy, 7, 0.3) for _ in range(3)]
    assert runs[0] == runs[1] == runs[2]
    assert len({counted(racy, seed, 0.3)[1] for seed in range(5)}) == 5


def test_code_is_put_back_after_the_block(racy: types.ModuleType) -> None:
    before = {name: member.__code__ for name, member in vars(racy.Counter).items() if hasattr(member, "__code__")}
    with pytest.raises(KeyError), SimRuntime() as runtime, preempted_lines(runtime, [racy], 0.5):
        assert racy.Counter.add.__code__ is not before["add"]
        raise KeyError
    after = {name: member.__code__ for name, member in vars(racy.Counter).items() if hasattr(member, "__code__")}
    assert before == after
    assert not [name for name in vars(racy) if "checkpoint" in name]


def added_at_different_instants(racy: types.ModuleType, seed: int, pauses: LinePauses) -> tuple[int, str]:
    """What a counter ends at when two tasks add ten times each, never at the same instant; and the run's digest."""
    with SimRuntime(seed) as runtime:
        counter = racy.Counter()

        def work(first_s: float) -> None:
            runtime.sleep(first_s)
            for _ in range(10):
                counter.add()
                runtime.sleep(1.0)

        tasks = [runtime.start(work, first_s) for first_s in (0.0, 0.1)]
        with preempted_lines(runtime, [racy], 0.5, pauses):
            runtime.run_for(60.0)
        assert all(task.is_done for task in tasks)
        return counter.value, runtime.digest()


def test_update_is_lost_to_a_task_of_another_instant_only_with_pauses(racy: types.ModuleType) -> None:
    without = [added_at_different_instants(racy, seed, LinePauses(0.0, 0.4))[0] for seed in range(20)]
    assert without == [20] * 20
    assert min(added_at_different_instants(racy, seed, LinePauses(0.3, 0.4))[0] for seed in range(20)) < 20


def test_equal_seeds_pause_equally(racy: types.ModuleType) -> None:
    pauses = [LinePauses(0.3, 0.4) for _ in range(2)]
    runs = [added_at_different_instants(racy, 7, one) for one in pauses]
    assert runs[0] == runs[1]
    assert pauses[0].spans == pauses[1].spans
    assert all(0 <= end - start <= 0.4 for start, end in pauses[0].spans)


def test_no_pause_begins_after_the_stop(racy: types.ModuleType) -> None:
    pauses = LinePauses(0.5, 0.4)
    pauses.stop()
    added_at_different_instants(racy, 7, pauses)
    assert pauses.spans == []


def test_close_ends_a_pause_without_an_error_in_the_middle_of_a_statement_list(racy: types.ModuleType) -> None:
    """A programme expects ConnectionClosed where it waits, not between two statements."""
    with SimRuntime(1) as runtime, preempted_lines(runtime, [racy], 1.0, LinePauses(1.0, 1000.0)):
        counter = racy.Counter()

        def add_and_wait() -> None:
            counter.add()
            runtime.sleep(1.0)

        task = runtime.start(add_and_wait)
        runtime.run_for(0.001)
        assert not task.is_done
        runtime.close()
        assert counter.value == 1
        assert isinstance(task.error(), ConnectionClosed)


def test_pauses_that_cannot_be_are_refused(racy: types.ModuleType) -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        LinePauses(0.1, -1.0)
    with SimRuntime() as runtime, pytest.raises(ValueError, match="a part of the preempted lines"):
        preempted_lines(runtime, [racy], 0.1, LinePauses(0.2, 1.0)).__enter__()


def test_threads_beside_the_simulation_do_not_change_its_run(racy: types.ModuleType) -> None:
    """A cluster that another test left on real threads runs the same modules."""

    other = racy.Counter()

    def digest(has_thread: bool) -> str:
        with SimRuntime(7) as runtime, preempted_lines(runtime, [racy], 0.3):
            counter = racy.Counter()

            def work() -> None:
                for _ in range(20):
                    counter.add()
                    if has_thread:
                        beside = threading.Thread(target=other.add)
                        beside.start()
                        beside.join()

            tasks = [runtime.start(work) for _ in range(3)]
            runtime.run_for(0)
            assert all(task.is_done for task in tasks)
            return runtime.digest()

    assert digest(has_thread=True) == digest(has_thread=False)


def test_code_is_put_back_when_a_module_is_named_twice(racy: types.ModuleType) -> None:
    before = racy.Counter.add.__code__
    with SimRuntime() as runtime, preempted_lines(runtime, [racy, racy], 0.5):
        assert racy.Counter.add.__code__ is not before
    assert racy.Counter.add.__code__ is before
    assert racy.Counter().doubled == 0


def test_properties_generators_branches_and_super_work_as_before(racy: types.ModuleType) -> None:
    def use() -> list[object]:
        child = racy.Child()
        child.add()
        with child.held() as before:
            child.add()
        return [before, child.value, child.doubled, child.branch(0), racy.Counter.branch(1)]

    with SimRuntime() as runtime, preempted_lines(runtime, [racy], 0.9):
        assert runtime.run(use) == [1, 1, 2, "none", "some"]


def test_scheduler_and_second_runtime_are_refused(racy: types.ModuleType) -> None:
    with SimRuntime() as runtime:
        with pytest.raises(ValueError, match="cannot preempt itself: leave out metaclient"):
            preempted_lines(runtime, modules_below("metaclient.runtime"), 0.1).__enter__()
        with pytest.raises(ValueError, match="share of preempted lines"):
            preempted_lines(runtime, [racy], 0.0).__enter__()
        with (
            preempted_lines(runtime, [racy], 0.1),
            pytest.raises(RuntimeError, match="one runtime at a time"),
        ):
            preempted_lines(runtime, [racy], 0.1).__enter__()
