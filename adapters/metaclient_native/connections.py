"""The connections of one backend: one for each server and service, made when first needed, made anew when they end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeVar

from metaclient.errors import ConnectionClosed
from metaclient.model import ServerName
from metaclient.runtime import Runtime
from metaclient.wire.rpc.framing import Response
from metaclient_native.connection import Call, Connection
from metaclient_native.security import Security

__all__ = ["CLIENT_SERVICE", "Connections"]

T = TypeVar("T")
#: The service of region servers that has the data.
CLIENT_SERVICE = "ClientService"
#: Retired connections whose last calls are waited for; each lives no longer than these calls.
RETIRED_MAX = 64


class Connections:
    """The connections of one backend: one for each server and service, made when first needed."""

    def __init__(self, runtime: Runtime, security: Security) -> None:
        self._runtime = runtime
        self._security = security
        self._lock = runtime.lock()
        # Guarded by the lock; read without it, because a reference is replaced whole:
        self._open: dict[tuple[str, int, str], Connection] = {}
        self._retired: deque[Connection] = deque()  # with calls in flight, and no more to come
        self._is_closed = False
        runtime.on_fork(self._renew)

    def _renew(self) -> None:
        """In a child process: connect anew; the parent's connections are left to the parent."""
        self._lock = self._runtime.lock()
        inherited, self._open = [*self._open.values(), *self._retired], {}
        self._retired.clear()
        for connection in inherited:
            connection.leave_to_parent()

    def call(
        self,
        host: str,
        port: int,
        service: str,
        method: bytes,
        param: bytes,
        decode: Callable[[Response], T],
        deadline: float,
        *,
        cells: bytes = b"",
        priority: int = 0,
        is_write: bool = False,
        keeps: bool = False,
        what: str = "",
    ) -> Call[T]:
        """One call on the connection to this service, which is made anew if it is gone."""
        key = (host, port, service)
        while True:
            connection = self._open.get(key) or self._connected(key)
            try:
                return connection.call(
                    method, param, decode, deadline, what or method.decode(), cells, priority, is_write, keeps
                )
            except ConnectionResetError:  # it ended before this call was sent
                self._drop(key, connection)

    def call_at(
        self,
        server: ServerName,
        method: bytes,
        param: bytes,
        decode: Callable[[Response], T],
        deadline: float,
        what: str,
        cells: bytes = b"",
        priority: int = 0,
        is_write: bool = False,
        is_direct: bool = False,
    ) -> T | Call[T]:
        """A call of data; ``is_direct``, by one who has nothing else to do meanwhile: the answer itself if possible."""
        host, port, _ = server
        if is_direct:
            connection = self._open.get((host, port, CLIENT_SERVICE))
            if connection is not None:
                asked = connection.ask(method, param, decode, deadline, what, cells, priority, is_write)
                if asked is not None:
                    if asked.error is None:
                        return asked.value
                    try:
                        raise asked.error
                    finally:
                        del asked  # error -> traceback -> this frame -> error would be a cycle for every failed call
        return self.call(
            host,
            port,
            CLIENT_SERVICE,
            method,
            param,
            decode,
            deadline,
            cells=cells,
            priority=priority,
            is_write=is_write,
            what=what,
        )

    def _connected(self, key: tuple[str, int, str]) -> Connection:
        with self._lock:
            if self._is_closed:
                raise ConnectionClosed("the connection to HBase is closed")
            connection = self._open.get(key)
            if connection is None:
                for gone in [key for key, one in self._open.items() if one.is_closed]:
                    del self._open[gone]
                host, port, service = key
                connection = self._open[key] = Connection(self._runtime, host, port, service, self._security)
                try:
                    self._runtime.start_daemon(connection.run, name=f"native-{host}:{port}-{service}")
                except BaseException:  # it has no task, or an interrupt came right after the task was started
                    del self._open[key]
                    connection.close()
                    raise
        return connection

    def _drop(self, key: tuple[str, int, str], connection: Connection) -> None:
        """Forget a connection that takes no more calls; a retired one is kept until its calls are over."""
        closing: list[Connection] = []
        with self._lock:
            if self._open.get(key) is connection:
                self._retired = deque(one for one in self._retired if not one.is_closed)
                if not connection.is_closed:
                    self._retired.append(connection)
                if len(self._retired) > RETIRED_MAX:
                    closing.append(self._retired.popleft())
                del self._open[key]
        for one in closing:
            one.give_up()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            connections, self._open = [*self._open.values(), *self._retired], {}
            self._retired.clear()
        for connection in connections:
            connection.close()

    def status(self) -> dict[str, dict[str, object]]:
        """What is known of each connection; JSON-able."""
        return {
            f"{host}:{port} {service}": {
                "state": connection._state.value,
                "calls": connection.calls,
                "late_answers": connection.late,
            }
            for (host, port, service), connection in list(self._open.items())
        }
