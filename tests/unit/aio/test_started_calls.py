"""STRONG reads that tasks await without a greenlet: their deadlines, failures, cancellation and memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from metaclient import aio
from metaclient.errors import DeadlineExceeded, MetaClientError
from metaclient.runtime.wakeups import TASKS_PER_TURN, Turns, Wakeup
from metaclient_fake import FakeCluster
from metaclient_native import backend as native
from tests.unit.aio.loops import Run, turns
from tests.unit.aio.test_cancellation import KEYS, pause, resume, table_of, value_of


@pytest.fixture(autouse=True)
def resumed(served: FakeCluster) -> Iterator[None]:
    yield
    resume(served)


@pytest.fixture
def native_url(served: FakeCluster) -> str:
    return f"hbase+rpc://127.0.0.1:{served.rpc_port}"


def calls_of(table: aio.Table) -> int:
    calls: int = table.connection.stats()["runtime"]["calls"]
    return calls


def test_waiting_reads_take_no_greenlets(run: Run[Any], served: FakeCluster, native_url: str) -> None:
    async def program() -> None:
        async with table_of(native_url) as table:
            await asyncio.gather(*(value_of(table, key) for key in KEYS))
            pause(served)
            reads = [asyncio.ensure_future(value_of(table, key)) for key in KEYS]
            await turns()
            runtime = table._runtime
            assert calls_of(table) == len(KEYS)
            assert len(runtime._calls) == 0, "greenlets of waiting reads"
            resume(served)
            assert await asyncio.gather(*reads) == KEYS
            assert calls_of(table) == 0

    run(program())


def test_read_ends_at_its_deadline_and_says_what_was_tried(run: Run[Any], served: FakeCluster, native_url: str) -> None:
    async def program() -> None:
        options = {"rpc_timeout_s": 0.2, "operation_timeout_s": 0.5}
        async with table_of(native_url) as table, aio.connect(native_url, **options) as hasty:
            short = hasty.table("t")
            assert await value_of(short, KEYS[0]) == KEYS[0]
            pause(served)
            loop = asyncio.get_running_loop()
            begun = loop.time()
            with pytest.raises(DeadlineExceeded, match="get of row '000'") as caught:
                await short.row(KEYS[0])
            assert 0.4 < loop.time() - begun < 5.0
            assert len(caught.value.attempts) >= 2, "the read was repeated after the time of one call"
            assert calls_of(short) == 0
            resume(served)
            assert await value_of(short, KEYS[0]) == KEYS[0]
            assert await value_of(table, KEYS[1]) == KEYS[1]

    run(program())


def test_cancelled_read_was_not_applied_and_is_forgotten(run: Run[Any], served: FakeCluster, native_url: str) -> None:
    async def program() -> None:
        async with table_of(native_url) as table:
            await value_of(table, KEYS[0])
            pause(served)
            read = asyncio.ensure_future(value_of(table, KEYS[0]))
            await turns()
            read.cancel("enough")
            with pytest.raises(asyncio.CancelledError, match="enough") as caught:
                await read
            assert caught.value.may_have_applied is False  # type: ignore[attr-defined]
            assert calls_of(table) == 0
            assert table.connection.stats()["calls"]["cancelled"] >= 1
            resume(served)
            assert await value_of(table, KEYS[1]) == KEYS[1]

    run(program())


def test_read_whose_connection_breaks_is_repeated(run: Run[Any], served: FakeCluster, native_url: str) -> None:
    async def program() -> None:
        async with table_of(native_url) as table:
            await value_of(table, KEYS[0])
            pause(served)
            read = asyncio.ensure_future(value_of(table, KEYS[0]))
            await turns()
            connections = table._blocking._engine.backend._connections  # type: ignore[attr-defined]  # of this backend
            for connection in list(connections._open.values()):
                connection._end(ConnectionResetError("cut by the test"))
            await turns()
            assert not read.done()
            resume(served)
            assert await read == KEYS[0]

    run(program())


def test_read_at_a_server_that_lost_the_region_is_repeated(run: Run[Any], served: FakeCluster, native_url: str) -> None:
    async def program() -> None:
        async with table_of(native_url) as table:
            assert await value_of(table, KEYS[0]) == KEYS[0]
            place = await table.connection.locate("t", KEYS[0])
            for server in served.servers():  # one of them has the region already
                served.move(place.region.encoded_name, server)
                assert await value_of(table, KEYS[1]) == KEYS[1]
            reads = [value_of(table, key) for key in KEYS]
            assert await asyncio.gather(*reads) == KEYS
            assert table.connection.stats()["retries"] >= 1

    run(program())


def test_answer_that_cannot_be_decoded_fails_its_read_only(
    run: Run[Any], native_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = native.decode_get

    def decode_most(row: bytes, response: Any) -> Any:
        if row == KEYS[0]:
            raise ValueError("no cells")
        return decode(row, response)

    async def program() -> None:
        async with table_of(native_url) as table, aio.connect(native_url, operation_timeout_s=0.5) as hasty:
            table = hasty.table(table.name)
            await value_of(table, KEYS[1])
            monkeypatch.setattr(native, "decode_get", decode_most)
            found = await asyncio.gather(*(value_of(table, key) for key in KEYS), return_exceptions=True)
            assert found[1:] == KEYS[1:]
            assert isinstance(found[0], MetaClientError)
            said = " ".join(attempt.error for attempt in found[0].attempts)
            assert "the response cannot be decoded: ValueError: no cells" in said

    run(program())


def test_result_is_that_of_the_blocking_read(run: Run[Any], native_url: str) -> None:
    async def program() -> None:
        async with table_of(native_url) as table:
            row = await table.row(KEYS[0])
            assert (row.stale, row.why, row.region and row.region.table) == (False, "primary", b"t")
            assert await table.row(KEYS[0].decode(), ["d:key"]) == {b"d:key": KEYS[0]}
            value, timestamp = (await table.row(KEYS[0], include_timestamp=True))[b"d:key"]
            assert (value, await table.row(KEYS[0], None, timestamp)) == (KEYS[0], {})
            assert await table.row(b"missing") == {}
            with pytest.raises(TypeError, match="row"):
                await table.row(5)  # type: ignore[call-overload]

    run(program())


def test_many_wakeups_continue_in_several_turns(run: Run[Any]) -> None:
    """Sockets and other callbacks get their turn between them."""

    async def program() -> None:
        of_loop = Turns(asyncio.get_running_loop())
        wakeups = [Wakeup(of_loop) for _ in range(3 * TASKS_PER_TURN)]
        done: list[int] = []

        async def wait(number: int) -> None:
            await wakeups[number]
            done.append(number)

        async with asyncio.TaskGroup() as group:
            for number in range(len(wakeups)):
                group.create_task(wait(number))
            await turns()
            for wakeup in wakeups:
                wakeup.wake()
            sizes = []
            while len(done) < len(wakeups):
                await asyncio.sleep(0)
                sizes.append(len(done))
        assert max(later - earlier for earlier, later in zip([0, *sizes], sizes, strict=False)) == TASKS_PER_TURN
        assert done == list(range(len(wakeups)))

    run(program())


def test_task_that_ends_the_loop_does_not_lose_the_wakeups_behind_it() -> None:
    """SystemExit of one task goes to the loop; the tasks woken with it continue when the loop runs again."""
    loop = asyncio.new_event_loop()
    done: list[str] = []

    async def end(wakeup: Wakeup) -> None:
        await wakeup
        raise SystemExit(3)

    async def go_on(wakeup: Wakeup) -> None:
        await wakeup
        done.append("continued")

    async def program() -> None:
        of_loop = Turns(loop)
        first, second = Wakeup(of_loop), Wakeup(of_loop)
        tasks.extend((asyncio.ensure_future(end(first)), asyncio.ensure_future(go_on(second))))
        await turns()
        first.wake()
        second.wake()
        await asyncio.wait(tasks)

    tasks: list[asyncio.Task[None]] = []
    with pytest.raises(SystemExit):
        loop.run_until_complete(program())
    assert done == []
    loop.run_until_complete(turns())
    assert done == ["continued"]
    assert isinstance(tasks[0].exception(), SystemExit)
    loop.close()


def test_wakeup_before_the_wait_is_not_lost(run: Run[Any]) -> None:
    async def program() -> None:
        wakeup = Wakeup(Turns(asyncio.get_running_loop()))
        wakeup.wake()
        await wakeup
        assert not wakeup.cancel()

    run(program())
