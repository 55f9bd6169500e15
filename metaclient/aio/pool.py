"""The pool for asyncio: at most ``size`` tasks use its connection at a time, as :class:`metaclient.ConnectionPool`."""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from metaclient import pool as blocking_pool
from metaclient.aio.connection import Connection
from metaclient.runtime.event_loop import AsyncioRuntime

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from metaclient.connection import Connection as BlockingConnection

__all__ = ["ConnectionPool"]


class ConnectionPool:
    """A pool of permits for one connection; made by ``await`` or ``async with``; ``kwargs`` as for the blocking pool.

    >>> import asyncio
    >>> async def program():
    ...     async with ConnectionPool(size=2, url="scripted:") as pool, pool.connection() as connection:
    ...         return await connection.tables()
    >>> asyncio.run(program())
    []
    """

    def __init__(self, size: int, **kwargs: Any) -> None:
        self.size = size
        self._kwargs = kwargs
        self._runtime: AsyncioRuntime | None = None
        self._blocking: blocking_pool.ConnectionPool | None = None

    def __await__(self) -> Generator[Any, None, ConnectionPool]:
        return self._open().__await__()

    async def _open(self) -> ConnectionPool:
        if self._blocking is None:
            self._runtime = AsyncioRuntime()
            kwargs = {**self._kwargs, "runtime": self._runtime, "_owns_runtime": True}
            self._blocking = await self._runtime.call(blocking_pool.ConnectionPool, self.size, **kwargs)
        return self

    def connection(self, timeout: float | None = None) -> Borrowed:
        """Borrow the connection: ``async with pool.connection() as connection``; wait at most ``timeout`` seconds."""
        if self._blocking is None or self._runtime is None:
            raise RuntimeError("the pool is not open: await it, or use it in an async with statement")
        return Borrowed(self._blocking.connection(timeout), self._runtime)

    async def close(self) -> None:
        """Close the pool's connection; tasks that wait for a permit get ConnectionClosed. Idempotent."""
        if self._blocking is not None and self._runtime is not None:
            await self._runtime.call(self._blocking.close)

    async def __aenter__(self) -> ConnectionPool:
        return await self._open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Borrowed:
    """The claim of one task to the connection of a pool."""

    def __init__(self, blocking: AbstractContextManager[BlockingConnection], runtime: AsyncioRuntime) -> None:
        self._blocking = blocking
        self._runtime = runtime

    async def __aenter__(self) -> Connection:
        return Connection(await self._runtime.call(self._blocking.__enter__), self._runtime)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runtime.call(self._blocking.__exit__, kind, error, trace)
