"""metaclient.aio on a real HBase while servers hang and die: no call fails, no write is lost, no answer is mixed up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

import pytest

from metaclient import aio
from metaclient_local_hbase import LocalHBase
from tests.live.load import WAIT_S_MAX

CALLS = 200
TASKS = 16
#: Calls are tried for as long as a restart may take.
PATIENT: dict[str, Any] = {
    "rpc_timeout_s": 10,
    "operation_timeout_s": WAIT_S_MAX,
    "scanner_timeout_s": WAIT_S_MAX,
    "retries": 200,
}
pytestmark = pytest.mark.usefixtures("healed")


class AsyncLoad:
    """Tasks that make calls until the end of the block; their errors are collected."""

    def __init__(self, call: Callable[[int], Coroutine[Any, Any, None]]) -> None:
        self._call = call
        self._numbers = count()
        self._tasks: list[asyncio.Task[None]] = []
        self.done = 0
        self.errors: list[Exception] = []

    async def _run(self) -> None:
        while True:
            try:
                await self._call(next(self._numbers))
            except Exception as error:
                self.errors.append(error)
            self.done += 1

    async def __aenter__(self) -> AsyncLoad:
        self._tasks = [asyncio.create_task(self._run()) for _ in range(TASKS)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def wait_for(self, calls: int) -> None:
        """Wait until this many further calls have ended."""
        wanted = self.done + calls
        async with asyncio.timeout(WAIT_S_MAX):
            while self.done < wanted:
                await asyncio.sleep(0.02)


@pytest.mark.essential
def test_hung_meta_server_fails_no_lookup_of_a_task(hbase: LocalHBase, table_name: bytes) -> None:
    async def program() -> None:
        async with aio.connect(hbase.native_url, meta_mode="LoadBalance", **PATIENT) as connection:

            async def look_up(number: int) -> None:
                await connection.locate(table_name, b"r%d" % (number % 10), reload=True)

            async with AsyncLoad(look_up) as load:
                await load.wait_for(CALLS)
                await asyncio.to_thread(hbase.pause, server)
                await load.wait_for(CALLS)
                await asyncio.to_thread(hbase.resume, server)
                await load.wait_for(CALLS)
            assert load.errors == []
            assert connection.stats()["runtime"]["calls"] == 0

    server = hbase.meta_server(1)
    asyncio.run(program())


def test_killed_region_server_loses_no_write_of_a_task(hbase: LocalHBase, table_name: bytes) -> None:
    async def program() -> None:
        async with aio.connect(hbase.native_url, **PATIENT) as connection:
            table = connection.table(table_name)
            written: dict[bytes, bytes] = {}

            async def write(number: int) -> None:
                row, value = b"r%d-aio-%d" % (number % 10, number), b"%d" % number
                await table.put(row, {b"cf:n": value})
                written[row] = value

            async with AsyncLoad(write) as load:
                await load.wait_for(CALLS)
                await asyncio.to_thread(hbase.kill, server)
                await asyncio.to_thread(hbase.start, server)  # its return tells HBase that it was dead
                await load.wait_for(CALLS)
            assert load.errors == []
            found = {row: columns[b"cf:n"] async for row, columns in table.scan() if row in written}
            assert found == written

    server = hbase.meta_server(2)
    asyncio.run(program())


@pytest.mark.parametrize("scheme", [pytest.param("native", marks=pytest.mark.essential), "thrift2"])
def test_tasks_cancelled_while_a_server_hangs_leave_right_answers_to_others(
    hbase: LocalHBase, table_name: bytes, scheme: str
) -> None:
    keys = [b"r%d-cancel" % number for number in range(10)]

    async def program() -> None:
        async with aio.connect(url, **PATIENT) as connection:
            table = connection.table(table_name)
            await asyncio.gather(*(table.put(key, {b"cf:key": key}) for key in keys))
            await asyncio.to_thread(hbase.pause, server)
            calls = [asyncio.ensure_future(table.row(key)) for key in keys * 4]
            await asyncio.sleep(0.5)
            for call in calls[::2]:
                call.cancel()
            await asyncio.to_thread(hbase.resume, server)
            rows = await asyncio.gather(*calls[1::2])
            assert [row[b"cf:key"] for row in rows] == (keys * 4)[1::2]
            assert [row[b"cf:key"] for row in await asyncio.gather(*map(table.row, keys))] == keys

    server = hbase.meta_server(2)
    url = hbase.native_url if scheme == "native" else hbase.thrift2_url
    asyncio.run(program())
