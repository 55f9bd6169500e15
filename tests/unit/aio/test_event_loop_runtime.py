"""The runtime on an event loop: waits, locks, cancellation, iterations and the end."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from metaclient.errors import ConnectionClosed, DeadlineExceeded, Overloaded
from metaclient.runtime.event_loop import AsyncioRuntime
from tests.unit.aio.loops import Run, turns


def test_wait_of_one_task_does_not_stop_the_others(run: Run[Any]) -> None:
    async def program() -> None:
        runtime = AsyncioRuntime()
        answers = [runtime.pending() for _ in range(100)]
        waiting = asyncio.gather(*(runtime.call(answer.result) for answer in answers))
        await turns()
        for number, answer in enumerate(answers):
            answer.complete(number)
        assert await waiting == list(range(100))
        await runtime.call(runtime.close)
        assert threading.active_count() == threads

    threads = threading.active_count()
    run(program())


def test_deadline_ends_a_wait(run: Run[Any]) -> None:
    async def program() -> None:
        runtime = AsyncioRuntime()
        with pytest.raises(DeadlineExceeded):
            await runtime.call(runtime.pending().result, runtime.now() + 0.01)
        assert runtime.stats()["timers"] == 0

    run(program())


def test_cancelled_task_raises_at_its_wait_and_cleans_up(run: Run[Any]) -> None:
    async def program() -> None:
        runtime = AsyncioRuntime()
        seen: list[object] = []

        def blocked() -> None:
            try:
                runtime.pending().result()
            except BaseException as error:
                seen.append(error)
                raise

        task = asyncio.ensure_future(runtime.call(blocked))
        await turns()
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert isinstance(seen[0], asyncio.CancelledError)
        assert not caught.value.may_have_applied  # type: ignore[attr-defined]
        assert {**runtime.stats(), "calls": 0, "unwinding": 0} == runtime.stats()

    run(program())


def test_cleanup_that_waits_goes_on_after_its_task_was_cancelled(run: Run[Any]) -> None:
    async def program() -> None:
        runtime = AsyncioRuntime()
        closed, ended = runtime.pending(), []

        def blocked() -> None:
            try:
                runtime.pending().result()
            finally:
                closed.result()
                ended.append(True)

        task = asyncio.ensure_future(runtime.call(blocked))
        await turns()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (ended, runtime.stats()["unwinding"]) == ([], 1)
        closed.complete(None)
        await turns()
        assert (ended, runtime.stats()["unwinding"]) == ([True], 0)

    run(program())


def test_lock_is_not_lost_with_a_task_that_is_cancelled_while_it_waits_for_it(run: Run[Any]) -> None:
    async def program() -> None:
        runtime = AsyncioRuntime()
        lock, free, held = runtime.lock(), runtime.pending(), []

        def hold() -> None:
            with lock:
                free.result()

        def take(name: str) -> None:
            with lock:
                held.append(name)

        holder = asyncio.ensure_future(runtime.call(hold))
        first, second = (asyncio.ensure_future(runtime.call(take, name)) for name in ("first", "second"))
        await turns()
        first.cancel()
        await turns()
        assert first.cancelled()
        free.complete(None)
        await asyncio.gather(holder, second)
        assert held == ["first", "second"]  # a wait for a lock is not interrupted, as with threads

    run(program())


def test_lock_handed_over_at_the_moment_of_the_cancellation_is_not_lost(run: Run[Any]) -> None:
    """The wait for the lock has ended, and the task that would continue its greenlet is cancelled before its turn."""

    async def program() -> None:
        runtime = AsyncioRuntime()
        lock, held = runtime.lock(), []

        def take(name: str) -> None:
            with lock:
                held.append(name)

        lock.acquire()
        first = asyncio.ensure_future(runtime.call(take, "first"))
        await turns()
        lock.release()
        first.cancel()
        await turns()
        assert first.cancelled()
        await runtime.call(take, "second")
        assert held == ["first", "second"]

    run(program())


def test_notification_of_a_cancelled_waiter_goes_to_another(run: Run[Any]) -> None:
    async def program() -> None:
        runtime = AsyncioRuntime()
        condition = runtime.condition()

        def wait() -> bool:
            with condition:
                return condition.wait()

        def notify() -> None:
            with condition:
                condition.notify()

        first, second = (asyncio.ensure_future(runtime.call(wait)) for _ in range(2))
        await turns()
        await runtime.call(notify)
        first.cancel()
        assert await second is True
        assert first.cancelled()

    run(program())


def test_iterator_that_is_left_early_is_closed_on_the_loop(run: Run[Any]) -> None:
    async def program() -> None:
        runtime = AsyncioRuntime()
        ended = []

        def rows() -> Iterator[int]:
            try:
                for number in range(1000):
                    if number % 150 == 0:
                        runtime.sleep(0)
                    yield number
            finally:
                runtime.sleep(0)
                ended.append(True)

        assert [row async for row in runtime.iterate(rows())] == list(range(1000))
        for last in (0, 120, 149, 150, 400):
            iteration = runtime.iterate(rows())
            async for row in iteration:
                if row == last:
                    break
            await iteration.aclose()
            await turns()
        assert len(ended) == 6
        assert {**runtime.stats(), "calls": 0, "unwinding": 0} == runtime.stats()

    run(program())


def test_error_of_an_iterator_comes_after_the_rows_before_it(run: Run[Any]) -> None:
    async def program() -> None:
        runtime = AsyncioRuntime()

        def rows() -> Iterator[int]:
            yield 1
            raise ValueError("broken")

        seen = []
        with pytest.raises(ValueError, match="broken"):
            async for row in runtime.iterate(rows()):
                seen.append(row)
        assert seen == [1]

    run(program())


def test_close_ends_calls_and_tasks(run: Run[Any]) -> None:
    async def program() -> None:
        runtime = AsyncioRuntime()
        daemon = runtime.start_daemon(runtime.sleep, 3600.0)
        call = asyncio.ensure_future(runtime.call(runtime.pending().result))
        await turns()
        await runtime.call(runtime.close)
        with pytest.raises(ConnectionClosed):
            await call
        assert isinstance(daemon.error(), ConnectionClosed)
        with pytest.raises(ConnectionClosed):
            runtime.start(int)
        assert runtime.stats()["running"] == 0

    run(program())


def test_tasks_are_bounded(run: Run[Any]) -> None:
    async def program() -> None:
        runtime = AsyncioRuntime(max_tasks=2)
        for _ in range(2):
            runtime.start(runtime.sleep, 3600.0)
        with pytest.raises(Overloaded):
            runtime.start(int)
        await runtime.call(runtime.close)

    run(program())


def test_context_variables_of_the_task_are_those_of_its_call(run: Run[Any]) -> None:
    """A pool notes in a context variable that its task holds a permit, in one call, and resets it in another."""
    name: ContextVar[str] = ContextVar("name", default="none")

    async def program() -> None:
        runtime = AsyncioRuntime()

        async def one(value: str) -> str:
            await runtime.call(name.set, value)
            await turns()
            return await runtime.call(name.get)

        assert await asyncio.gather(one("a"), one("b")) == ["a", "b"]
        assert name.get() == "none"

    run(program())


def test_wait_outside_of_a_call_is_refused_and_does_not_stop_the_loop(run: Run[Any]) -> None:
    async def program() -> None:
        runtime = AsyncioRuntime()
        with pytest.raises(RuntimeError, match=r"await the method of metaclient\.aio"):
            runtime.pending().result()

    run(program())


def test_other_event_loop_is_refused() -> None:
    async def make() -> AsyncioRuntime:
        return AsyncioRuntime()

    runtime = asyncio.run(make())
    with pytest.raises(RuntimeError, match="belongs to another event loop"):
        asyncio.run(runtime.call(int))


def test_object_dropped_on_the_loop_is_closed_there_with_a_warning(run: Run[Any]) -> None:
    async def program() -> None:
        runtime = AsyncioRuntime()
        closed = runtime.pending()
        with pytest.warns(ResourceWarning, match="unclosed it: await its close"):
            runtime.close_dropped("it", lambda: closed.complete(threading.current_thread()))
        assert await runtime.call(closed.result) is threading.current_thread()

    run(program())


def test_greenlets_that_are_left_behind_end_in_silence() -> None:
    """A loop that ends while calls wait: nothing is printed, and nothing hangs."""

    async def program() -> None:
        runtime = AsyncioRuntime()
        runtime.start_daemon(runtime.sleep, 3600.0)
        call = asyncio.ensure_future(runtime.call(runtime.pending().result))
        await turns()
        assert not call.done()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(program())
        gc.collect()
