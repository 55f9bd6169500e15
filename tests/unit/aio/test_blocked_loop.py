"""No callback of metaclient holds the event loop for long: the other tasks of the program wait meanwhile.

The CPU time of the thread is measured per callback, so that other processes of a busy machine do not count. Garbage
collection is off: its pauses depend on what else the process has in memory.
"""

from __future__ import annotations

import asyncio
import gc
import time
from asyncio import events
from collections.abc import Iterator
from typing import Any

import pytest

from metaclient import aio
from tests.unit.aio.loops import run_asyncio

HELD_S_MAX = 0.05
ROWS = 1000


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[float, str]]]:
    """The CPU seconds of each callback, and its name."""
    found: list[tuple[float, str]] = []
    original = events.Handle._run

    def run(self: Any) -> None:
        begun = time.thread_time()
        original(self)
        found.append((time.thread_time() - begun, repr(self)))

    monkeypatch.setattr(events.Handle, "_run", run)
    gc.disable()
    yield found
    gc.enable()


async def workload(url: str, held: list[tuple[float, str]]) -> None:
    async with aio.connect(url) as connection:  # imports the backend, once per process
        await connection.tables()
    held.clear()
    async with aio.connect(url) as connection:
        await connection.create_table("busy", {"d": {}}, splits=[b"%04d" % at for at in range(50, ROWS, 50)])
        table = connection.table("busy")
        async with table.batch(batch_size=5000) as batch:
            for number in range(ROWS):
                await batch.put(b"%04d" % number, {b"d:%d" % column: b"value" for column in range(5)})
        await asyncio.gather(*(table.row(b"%04d" % number) for number in range(ROWS)))
        assert len(await table.rows([b"%04d" % number for number in range(ROWS)])) == ROWS
        assert len([key async for key, _ in table.scan()]) == ROWS
        assert await connection.warm_up("busy") == ROWS // 50
        await connection.delete_table("busy", disable=True)


def test_loop_is_not_held_by_bulk_work(held: list[tuple[float, str]], url: str) -> None:
    run_asyncio(workload(url, held))
    assert len(held) > 100
    longest, name = max(held)
    assert longest < HELD_S_MAX, f"{name} held the loop for {longest:.3f} s of CPU time"


def test_checker_reports_a_callback_that_holds_the_loop(held: list[tuple[float, str]]) -> None:
    async def busy() -> None:
        await asyncio.sleep(0)
        until = time.thread_time() + HELD_S_MAX
        while time.thread_time() < until:
            pass

    run_asyncio(busy())
    assert max(held)[0] >= HELD_S_MAX
