"""Cancelled tasks on real sockets: other calls of the same connection get their own answers, and no place is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from metaclient import aio
from metaclient.connection import connect_to
from metaclient.errors import BatchError, NoConnectionsAvailable
from metaclient.runtime.event_loop import AsyncioRuntime
from metaclient.testing import ScriptedBackend
from metaclient_fake import FakeCluster
from tests.unit.aio.loops import Run, turns

KEYS = [b"%03d" % number for number in range(40)]


@pytest.fixture(autouse=True)
def resumed(served: FakeCluster) -> Iterator[None]:
    yield
    resume(served)


def pause(cluster: FakeCluster) -> None:
    """No server answers from now on: calls that are sent stay in flight."""
    for server in cluster.servers():
        cluster.pause(server)


def resume(cluster: FakeCluster) -> None:
    for server, status in cluster.status()["servers"].items():
        if status["state"] == "paused":
            cluster.resume(server)


@asynccontextmanager
async def table_of(url: str, **options: Any) -> AsyncIterator[aio.Table]:
    """A table whose rows have their own keys as values."""
    async with aio.connect(url, **options) as connection:
        await connection.create_table("t", {"d": {}})
        try:
            table = connection.table("t")
            await asyncio.gather(*(table.put(key, {b"d:key": key}) for key in KEYS))
            yield table
        finally:
            await connection.delete_table("t", disable=True)


async def value_of(table: aio.Table, key: bytes) -> bytes:
    found: bytes = (await table.row(key))[b"d:key"]
    return found


def test_answer_to_a_cancelled_call_is_no_answer_to_another(run: Run[Any], served: FakeCluster, url: str) -> None:
    async def program() -> None:
        async with table_of(url) as table:
            pause(served)
            calls = [asyncio.ensure_future(value_of(table, key)) for key in KEYS]
            await turns()
            assert not any(call.done() for call in calls)
            for call in calls[::2]:
                call.cancel()
            await turns()
            assert [call.cancelled() for call in calls] == [True, False] * 20
            resume(served)
            assert await asyncio.gather(*calls[1::2]) == KEYS[1::2]
            assert await asyncio.gather(*(value_of(table, key) for key in KEYS)) == KEYS

    run(program())


def test_connection_of_a_cancelled_call_is_free_for_the_next_one(run: Run[Any], served: FakeCluster) -> None:
    """A gateway with one connection: without it no other call can be made."""

    async def program() -> None:
        async with table_of(f"thrift2://127.0.0.1:{served.thrift2_port}?connections=1") as table:
            pause(served)
            call, waiting = (asyncio.ensure_future(value_of(table, key)) for key in KEYS[:2])
            await turns()
            call.cancel()
            waiting.cancel()
            await turns()
            assert call.cancelled()
            assert waiting.cancelled()
            resume(served)
            assert await value_of(table, KEYS[2]) == KEYS[2]

    run(program())


def test_cancelled_write_says_that_it_may_have_been_applied(run: Run[Any], served: FakeCluster, url: str) -> None:
    async def cancelled(call: Any) -> BaseException:
        task = asyncio.ensure_future(call)
        await turns()
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        return caught.value

    async def program() -> None:
        async with table_of(url) as table:
            batch = table.batch()
            await batch.put(b"r", {b"d:key": b"r"})
            pause(served)
            assert (await cancelled(table.put(b"r", {b"d:key": b"r"}))).may_have_applied  # type: ignore[attr-defined]
            assert (await cancelled(table.counter_inc(b"r", b"d:n"))).may_have_applied  # type: ignore[attr-defined]
            assert (await cancelled(batch.send())).may_have_applied  # type: ignore[attr-defined]
            assert not (await cancelled(table.row(b"r"))).may_have_applied  # type: ignore[attr-defined]
            resume(served)
            await batch.send()  # its rows are still there
            assert await value_of(table, b"r") == b"r"

    run(program())


def test_write_cancelled_during_its_lookup_was_not_applied(run: Run[Any], served: FakeCluster) -> None:
    url = f"hbase+rpc://127.0.0.1:{served.rpc_port}"

    async def program() -> None:
        async with table_of(url), aio.connect(url) as other:
            pause(served)
            task = asyncio.ensure_future(other.table("t").put(b"r", {b"d:key": b"r"}))
            await turns()
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            assert not caught.value.may_have_applied  # type: ignore[attr-defined]
            resume(served)

    run(program())


def test_timeout_of_asyncio_ends_a_call_and_tells_whether_it_applied(
    run: Run[Any], served: FakeCluster, url: str
) -> None:
    async def program() -> None:
        async with table_of(url) as table:
            pause(served)
            with pytest.raises(TimeoutError) as caught:
                async with asyncio.timeout(0.01):
                    await table.put(b"r", {b"d:key": b"r"})
            interrupt = caught.value.__cause__ or caught.value.__context__
            assert interrupt.may_have_applied  # type: ignore[union-attr]
            resume(served)
            assert await value_of(table, KEYS[0]) == KEYS[0]

    run(program())


def test_failure_in_a_task_group_cancels_the_other_calls(run: Run[Any], served: FakeCluster, url: str) -> None:
    async def program() -> None:
        async with table_of(url) as table:
            pause(served)

            async def fail() -> None:
                await turns()
                raise ValueError("broken")

            with pytest.raises(ExceptionGroup):
                async with asyncio.TaskGroup() as group:
                    for key in KEYS:
                        group.create_task(value_of(table, key))
                    group.create_task(fail())
            assert table.connection.stats()["runtime"]["calls"] == 0
            resume(served)
            assert await value_of(table, KEYS[0]) == KEYS[0]

    run(program())


def test_lookup_goes_on_for_others_when_the_call_that_made_it_is_cancelled(run: Run[Any], served: FakeCluster) -> None:
    url = f"hbase+rpc://127.0.0.1:{served.rpc_port}"

    async def program() -> None:
        async with table_of(url), aio.connect(url) as other:
            table = other.table("t")
            pause(served)
            first, second = (asyncio.ensure_future(value_of(table, key)) for key in KEYS[:2])
            await turns()
            first.cancel()
            await turns()
            resume(served)
            assert await second == KEYS[1]
            assert first.cancelled()

    run(program())


def test_read_of_the_registry_goes_on_for_others_when_its_caller_is_cancelled(run: Run[Any]) -> None:
    async def program() -> None:
        runtime = AsyncioRuntime()
        backend = ScriptedBackend(runtime, meta_replicas=3)
        blocking = await runtime.call(connect_to, backend, runtime=runtime, owns_runtime=True)
        async with aio.Connection(blocking, runtime) as connection:
            backend.on("meta_replicas", times=1).hangs()
            first, second = (asyncio.ensure_future(connection.meta_replicas()) for _ in range(2))
            await turns()
            first.cancel()
            assert len(await second) == 3
            assert first.cancelled()

    run(program())


def test_permit_of_a_cancelled_task_returns_to_the_pool(run: Run[Any], served: FakeCluster) -> None:
    async def program() -> None:
        pool = await aio.ConnectionPool(size=1, url=f"hbase+rpc://127.0.0.1:{served.rpc_port}")
        is_held = asyncio.Event()

        async def hold() -> None:
            async with pool.connection() as connection:
                is_held.set()
                await connection.tables()
                await asyncio.Event().wait()

        async def borrow() -> None:
            async with pool.connection():
                pass

        holder = asyncio.ensure_future(hold())
        await is_held.wait()
        waiting = asyncio.ensure_future(borrow())
        await turns()
        waiting.cancel()
        await turns()
        assert waiting.cancelled()
        with pytest.raises(NoConnectionsAvailable):
            async with pool.connection(timeout=0.01):
                pass
        holder.cancel()
        await turns()
        await borrow()
        await pool.close()

    run(program())


def test_scan_that_is_cancelled_or_left_early_disturbs_no_other(run: Run[Any], served: FakeCluster, url: str) -> None:
    async def program() -> None:
        async with table_of(url) as table:
            left = table.scan(batch_size=2)
            async for _ in left:
                break
            await left.aclose()
            cancelled = table.scan(batch_size=2)
            assert (await anext(cancelled))[0] == KEYS[0]
            pause(served)
            task = asyncio.ensure_future(_read_all(cancelled))
            await turns()
            task.cancel()
            await turns()
            assert task.cancelled()
            resume(served)
            assert [key async for key, _ in table.scan(batch_size=3)] == KEYS

    run(program())


async def _read_all(rows: Any) -> list[Any]:
    return [row async for row in rows]


def test_rows_of_a_batch_that_fail_are_named(run: Run[Any], url: str) -> None:
    async def program() -> None:
        async with table_of(url) as table:
            with pytest.raises(BatchError) as caught:
                async with table.batch() as batch:
                    await batch.put(b"good", {b"d:key": b"1"})
                    await batch.put(b"bad", {b"nofamily:key": b"1"})
            assert b"bad" in caught.value.failed

    run(program())
