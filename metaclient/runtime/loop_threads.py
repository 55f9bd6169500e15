"""Calls of blocking functions from an event loop, in threads of the loop's executor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["in_thread", "wait_for_thread"]

T = TypeVar("T")


def in_thread(function: Callable[..., T], /, *args: Any) -> asyncio.Future[T]:
    """Run a function that blocks, and uses no object of the loop's runtime, in a thread of the loop's executor."""
    return asyncio.get_running_loop().run_in_executor(None, function, *args)


async def wait_for_thread(future: asyncio.Future[T]) -> T:
    """Return the result of :func:`in_thread`. A task that is cancelled leaves the call and its result in place."""
    return await asyncio.shield(future)
