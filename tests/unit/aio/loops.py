"""Runs the coroutines of tests on the event loops that users have, within a time that no test needs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
#: Ends a test that hangs. No test waits that long when it passes.
HANG_S = 120.0

Run = Callable[[Coroutine[Any, Any, T]], T]


def run_asyncio(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(coroutine, HANG_S))


def run_uvloop(coroutine: Coroutine[Any, Any, T]) -> T:
    try:
        import uvloop
    except ImportError:
        coroutine.close()  # else its unawaited end is reported in a later test
        pytest.skip("uvloop is not installed")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(asyncio.wait_for(coroutine, HANG_S))


async def turns(count: int = 20) -> None:
    """Let the other tasks and callbacks of the loop run."""
    for _ in range(count):
        await asyncio.sleep(0)
