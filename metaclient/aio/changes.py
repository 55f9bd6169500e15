"""The changes of tables for asyncio: ``async for change in changes``.

The listener of a change feed, and the client of ZooKeeper, run on threads. Therefore a feed of a real cluster has a
connection of its own on threads, and each wait for its next change takes a thread of the event loop's executor. A feed
of a fake cluster in the same process needs neither: it runs on the event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from metaclient import connection as blocking_connection
from metaclient.aio.coroutines import Wrapper, plain
from metaclient.changes.feed import ChangeFeed
from metaclient.runtime.loop_threads import in_thread, wait_for_thread

if TYPE_CHECKING:
    from metaclient.runtime.event_loop import AsyncioRuntime

__all__ = ["Changes", "open_changes"]

#: A thread waits at most so long for a change, and is then asked again: an executor can end within this time.
_WAIT_S = 1.0


class Changes(Wrapper[ChangeFeed[Any]]):
    """The changes of a subscription, or its record batches, as :meth:`metaclient.Connection.changes` returns them.

    ``change.commit()`` and ``changes.commit()`` are plain calls. One task iterates.
    """

    __slots__ = ("_on_threads", "_waiting")

    def __init__(
        self, blocking: ChangeFeed[Any], runtime: AsyncioRuntime, on_threads: blocking_connection.Connection | None
    ) -> None:
        """``on_threads`` is the feed's own connection, if it has one."""
        super().__init__(blocking, runtime)
        self._on_threads = on_threads
        self._waiting: Any = None  # the future of a poll in a thread, which a cancelled task leaves to the next one

    stats = plain(ChangeFeed.stats)

    @property
    def name(self) -> str:
        """The name of the subscription."""
        return self._blocking.name

    @property
    def address(self) -> str | None:
        """``host:port`` at which region servers reach this worker; None before it has joined."""
        return self._blocking.address

    @property
    def is_closed(self) -> bool:
        return self._blocking.is_closed

    def commit(self) -> None:
        """Commit what was returned last."""
        self._blocking.commit()  # type: ignore[attr-defined]  # both kinds of feeds have it

    def skip(self, reason: str = "skip() was called") -> None:
        """Give up what was returned last: pass it to the dead-letter callback, then commit it."""
        self._blocking.skip(reason)  # type: ignore[attr-defined]  # both kinds of feeds have it

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        """Return the next one; wait for it as long as it takes. The one before is committed unless it was by hand."""
        while not self._blocking.is_closed:
            found = await self.poll(_WAIT_S)
            if found is not None:
                return found
        raise StopAsyncIteration

    async def poll(self, timeout_s: float = 0.0) -> Any:
        """Return the next one, or None if there is none within ``timeout_s``; commits as the iteration does."""
        if self._on_threads is None:
            return await self._runtime.call(self._blocking.poll, timeout_s)
        if self._waiting is None:
            self._waiting = in_thread(self._blocking.poll, timeout_s)
        found = await wait_for_thread(self._waiting)
        self._waiting = None
        return found

    async def close(self) -> None:
        """Leave the subscription, as :meth:`metaclient.changes.Changes.close`. Idempotent."""
        await self._call(self._blocking.close)
        if self._on_threads is not None:
            await self._call(self._on_threads.close)

    async def _call(self, function: Callable[[], None]) -> None:
        if self._on_threads is None:
            await self._runtime.call(function)
        else:
            await wait_for_thread(in_thread(function))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def open_changes(
    connection: blocking_connection.Connection, runtime: AsyncioRuntime, arguments: dict[str, Any]
) -> Changes:
    """Open a feed for an asyncio connection: on its event loop if the cluster is in this process, else on threads."""
    if connection.url.partition(":")[0] == "fake":
        return Changes(await runtime.call(connection.changes, **arguments), runtime, None)

    def opened() -> tuple[blocking_connection.Connection, ChangeFeed[Any]]:
        made = blocking_connection.connect(connection.url, config=connection.config)
        try:
            return made, made.changes(**arguments)
        except BaseException:
            made.close()
            raise

    on_threads, feed = await wait_for_thread(in_thread(opened))
    return Changes(feed, runtime, on_threads)
