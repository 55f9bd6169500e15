"""Lends a connection to at most ``size`` users at a time: happybase's ConnectionPool.

A connection of happybase is a socket, so that its pool needs several. A connection of metaclient may be shared by
threads, and one shared location cache needs fewer lookups than several. This pool therefore has one connection and
lends *permits* to use it; the backend keeps the sockets.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, NoReturn

from metaclient.connection import Connection
from metaclient.engine import Life
from metaclient.errors import ConnectionClosed, NoConnectionsAvailable
from metaclient.runtime import Closing, ThreadRuntime

__all__ = ["ConnectionPool"]

_log = logging.getLogger(__name__)

#: The pools whose connection this thread holds: nested requests get the same connection.
_HELD: ContextVar[frozenset[int]] = ContextVar("metaclient_pools_held", default=frozenset())


class _Lent(Connection):
    """The connection of a pool. ``close()`` by a user of it does nothing: other users have the same connection."""

    def close(self) -> None:
        _log.debug("close() of a connection that belongs to a pool does nothing: close the pool")

    def close_for_good(self) -> None:
        """Close the connection with its pool."""
        super().close()

    def _open_or_close(self) -> None:
        raise AssertionError("a pool opens its connection itself")

    def __del__(self) -> None:
        engine = self.__dict__.get("engine")
        if engine is not None and engine.life is not Life.CLOSED:
            self._runtime.close_dropped(f"{self._owner_name}{self!r}", self.close_for_good)


class ConnectionPool:
    """A pool of permits for one connection; ``kwargs`` are those of :class:`Connection`.

    A pool that is dropped without ``close()`` is closed in the background, with a ResourceWarning.

    >>> pool = ConnectionPool(size=2, url="scripted:")
    >>> with pool.connection() as connection:
    ...     connection.tables()
    []
    >>> pool.close()
    """

    def __init__(self, size: int, **kwargs: Any) -> None:
        if not isinstance(size, int) or isinstance(size, bool):
            raise TypeError(f"Pool 'size' arg must be an integer, got {size!r}")
        if not size > 0:
            raise ValueError(f"Pool 'size' arg must be greater than zero, got {size}")
        self.size = size
        self._runtime = kwargs.get("runtime") or ThreadRuntime()
        self._returned = self._runtime.condition()
        # Guarded by the condition's lock:
        self._free = size
        self._is_closed = False
        self._closing = Closing()
        self._runtime.on_fork(self._renew)
        kwargs["autoconnect"] = False
        self._connection = _Lent(**kwargs)
        self._connection._owner_name = f"ConnectionPool(size={size}) with its "
        # A wrong address raises here and not at the first use.
        try:
            with self.connection():
                pass
        except BaseException:
            self.close()
            raise

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a connection pool cannot be pickled: it has sockets and threads of this process. Make a pool in the other "
            "process from the same arguments"
        )

    def _renew(self) -> None:
        """Reset the permits in a child process, where threads of the parent never return theirs."""
        self._returned = self._runtime.condition()
        self._free = self.size - (id(self) in _HELD.get())

    @contextmanager
    def connection(self, timeout: float | None = None) -> Iterator[Connection]:
        """Borrow the connection; wait at most ``timeout`` seconds for a permit (default: the operation timeout)."""
        held = _HELD.get()
        if id(self) in held:
            yield self._connection
            return
        self._acquire(timeout)
        token = _HELD.set(held | {id(self)})
        try:
            self._connection.open()
            yield self._connection
        finally:
            _HELD.reset(token)
            with self._returned:
                self._free += 1
                self._returned.notify()

    def _acquire(self, timeout: float | None) -> None:
        if timeout is not None and (not isinstance(timeout, int | float) or isinstance(timeout, bool) or timeout < 0):
            raise ValueError(f"'timeout' must be a number of seconds from 0 on, or None, got {timeout!r}")
        wait_s = self._connection.config.operation_timeout_s if timeout is None else float(timeout)
        deadline = self._runtime.now() + wait_s
        with self._returned:
            if not self._returned.wait_for(lambda: self._free > 0 or self._is_closed, deadline):
                raise NoConnectionsAvailable(
                    f"no connection of the pool of {self.size} was returned within {wait_s:g} s; "
                    "return connections sooner or make the pool larger"
                )
            if not self._is_closed:
                self._free -= 1
                return
        self._closing.wait()
        raise ConnectionClosed("this pool is closed; make a new one")

    def close(self) -> None:
        """Close the pool's connection; callers that wait for a permit get ConnectionClosed. Idempotent."""
        if not self._closing.begin():
            return
        try:
            with self._returned:
                self._is_closed = True
                self._returned.notify_all()
            self._connection.close_for_good()
        finally:
            self._closing.end()

    def __enter__(self) -> ConnectionPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
