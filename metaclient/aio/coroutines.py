"""Makes coroutines of blocking methods: one mechanism for all classes of this package, with the types of the originals.

A class here wraps an object of the blocking API, and lists its methods::

    class Table(Wrapper[BlockingTable]):
        row = awaitable(BlockingTable.row)     # await table.row(b"r1")
        scan = iterated(BlockingTable.scan)    # async for key, row in table.scan()

Type checkers take parameters and results from the blocking method. ``tests/unit/aio/test_complete.py`` checks that no
method of the blocking classes is missing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from metaclient.runtime.event_loop import AsyncioRuntime

__all__ = ["Wrapper", "awaitable", "iterated", "plain", "startable"]

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")
B = TypeVar("B")


class Awaitable(Protocol[P, R_co]):
    """A method that returns a coroutine."""

    def __get__(self, instance: object, owner: type | None = None) -> Callable[P, Coroutine[Any, Any, R_co]]: ...


class Iterated(Protocol[P, R_co]):
    """A method that returns an asynchronous generator."""

    def __get__(self, instance: object, owner: type | None = None) -> Callable[P, AsyncGenerator[R_co, None]]: ...


class Plain(Protocol[P, R_co]):
    """A method that is called as it is, because it neither waits nor makes a call."""

    def __get__(self, instance: object, owner: type | None = None) -> Callable[P, R_co]: ...


class Wrapper(Generic[B]):
    """The base of the classes of this package: a blocking object, and the runtime on which its methods run."""

    __slots__ = ("__weakref__", "_blocking", "_runtime")

    def __init__(self, blocking: B, runtime: AsyncioRuntime) -> None:
        self._blocking = blocking
        self._runtime = runtime

    def __repr__(self) -> str:
        return f"<metaclient.aio.{type(self).__name__} of {self._blocking!r}>"


def awaitable(method: Callable[Concatenate[Any, P], R]) -> Awaitable[P, R]:
    """Return a method that runs a blocking method in a greenlet of the event loop."""
    name = method.__name__

    @wraps(method)
    async def call(self: Wrapper[Any], /, *args: Any, **options: Any) -> Any:
        return await self._runtime.call(getattr(self._blocking, name), *args, **options)

    return cast("Awaitable[P, R]", call)


def startable(method: Callable[Concatenate[Any, P], R], start: str) -> Awaitable[P, R]:
    """Return a method that awaits a call without a greenlet, where the method ``start`` can make it without waiting."""
    name = method.__name__

    @wraps(method)
    async def call(self: Wrapper[Any], /, *args: Any, **options: Any) -> Any:
        runtime, blocking = self._runtime, self._blocking
        if runtime.is_here:
            started = getattr(blocking, start)(*args, **options)
            if started is not None:
                return await runtime.finish(started)
        return await runtime.call(getattr(blocking, name), *args, **options)

    return cast("Awaitable[P, R]", call)


def iterated(method: Callable[Concatenate[Any, P], Iterator[R]]) -> Iterated[P, R]:
    """Return a method that iterates over the result of a blocking method; wrong arguments raise at once."""
    name = method.__name__

    @wraps(method)
    def iterate(self: Wrapper[Any], /, *args: Any, **options: Any) -> AsyncGenerator[Any, None]:
        return self._runtime.iterate(getattr(self._blocking, name)(*args, **options))

    return cast("Iterated[P, R]", iterate)


def plain(method: Callable[Concatenate[Any, P], R]) -> Plain[P, R]:
    """Return a method that calls a method which neither waits nor makes a call."""
    name = method.__name__

    @wraps(method)
    def call(self: Wrapper[Any], /, *args: Any, **options: Any) -> Any:
        return getattr(self._blocking, name)(*args, **options)

    return cast("Plain[P, R]", call)
