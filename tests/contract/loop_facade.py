"""The blocking API on top of ``metaclient.aio``, so that the contract's tests run through aio's public objects.

One thread runs an event loop. Each call of a facade is a coroutine on that loop, for which the calling thread waits.
The calls of two threads are two tasks of the loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from metaclient import aio
from metaclient.runtime import ThreadRuntime

#: A test that hangs ends with an error.
WAIT_S = 120.0


class LoopThread:
    """A thread that runs an event loop."""

    def __init__(self, factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop) -> None:
        self.loop = factory()
        self._thread = threading.Thread(target=self.loop.run_forever, name="event-loop", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(WAIT_S)

    def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        async def call() -> Any:
            return function(*args, **options)

        return self.run(call())

    def close(self) -> None:
        self.run(self.loop.shutdown_asyncgens())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(WAIT_S)
        self.loop.close()


class Facade:
    """An object of aio, whose coroutines are awaited, and whose asynchronous generators are iterated."""

    def __init__(self, thread: LoopThread, wrapped: Any) -> None:
        self._thread = thread
        self._wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._wrapped, name)
        if not callable(found):
            return self._covered(found)

        def call(*args: Any, **options: Any) -> Any:
            result = self._thread.call(found, *args, **options)
            if asyncio.iscoroutine(result):
                result = self._thread.run(result)
            return self._covered(result)

        return call

    def _covered(self, result: Any) -> Any:
        if hasattr(result, "__anext__"):
            return self._iterate(result)
        if isinstance(result, aio.Connection):
            return ConnectionFacade(self._thread, result)
        if isinstance(result, aio.Table | aio.Batch | aio.Session):
            return Facade(self._thread, result)
        return result

    def _iterate(self, generator: Any) -> Iterator[Any]:
        try:
            while True:
                try:
                    yield self._thread.run(generator.__anext__())
                except StopAsyncIteration:
                    return
        finally:
            self._thread.run(generator.aclose())

    def __enter__(self) -> Facade:
        self._thread.run(self._wrapped.__aenter__())
        return self

    def __exit__(self, *error: Any) -> None:
        self._thread.run(self._wrapped.__aexit__(*error))


class EngineFacade:
    """The calls of the engine that the contract makes, on the loop; ``runtime`` starts threads that use the facade."""

    def __init__(self, thread: LoopThread, connection: aio.Connection) -> None:
        self._thread = thread
        self._engine = connection._blocking.engine
        self._loop_runtime = connection._runtime
        self.runtime = ThreadRuntime()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._engine, name)

        def call(*args: Any, **options: Any) -> Any:
            def made() -> Any:
                result = method(*args, **options)
                return list(result) if name.startswith("scan_") else result

            return self._thread.run(self._loop_runtime.call(made))

        return call


class ConnectionFacade(Facade):
    @property
    def engine(self) -> EngineFacade:
        return EngineFacade(self._thread, self._wrapped)


@contextmanager
def connected(
    url: str, factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop, **options: Any
) -> Iterator[Any]:
    """A connection of aio behind the blocking API."""
    thread = LoopThread(factory)

    async def connect() -> aio.Connection:
        return await aio.connect(url, **options)

    try:
        connection = thread.run(connect())
        try:
            yield ConnectionFacade(thread, connection)
        finally:
            thread.run(connection.close())
    finally:
        thread.close()
