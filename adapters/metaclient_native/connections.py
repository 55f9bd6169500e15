"""The connections of one backend: one per server and service, made by the first call, replaced after their end."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeVar

from metaclient.errors import ConnectionClosed
from metaclient.model import ServerName
from metaclient.runtime import Runtime
from metaclient.wire.reply_limit import REPLY_BYTES_MAX
from metaclient.wire.stream import Dial, dial
from metaclient_native.connection import Connection, PendingCall
from metaclient_native.in_flight import UNASKED
from metaclient_native.request import Request, ServiceAddress
from metaclient_native.security import Security

if TYPE_CHECKING:  # the import of asyncio takes as long as that of metaclient
    from metaclient_native.loop_calls import LoopCall

__all__ = ["CLIENT_SERVICE", "Connections"]

T = TypeVar("T")
#: The service of region servers that reads and writes rows.
CLIENT_SERVICE = "ClientService"
#: Retired connections with calls in flight; each is closed after its last call.
RETIRED_MAX = 64


class Connections:
    """The connections of one backend. ``dial`` makes their streams: plain TCP unless it is given."""

    def __init__(
        self, runtime: Runtime, security: Security, *, dial: Dial = dial, reply_bytes_max: int = REPLY_BYTES_MAX
    ) -> None:
        self._runtime = runtime
        self._security = security
        self._dial = dial
        self._reply_bytes_max = reply_bytes_max
        self._lock = runtime.lock()
        # Guarded by the lock; `_open` is also read without it, because each of its changes is one operation of a dict:
        self._open: dict[tuple[str, int, str], Connection] = {}
        self._retired: deque[Connection] = deque()  # with calls in flight; they accept no new call
        self._is_closed = False
        runtime.on_fork(self._renew)

    def _renew(self) -> None:
        """In a child process: start without connections; those of the parent are left to the parent."""
        self._lock = self._runtime.lock()
        inherited, self._open = [*self._open.values(), *self._retired], {}
        self._retired.clear()
        for connection in inherited:
            connection.leave_to_parent()

    def call(self, address: ServiceAddress, request: Request[T]) -> PendingCall[T]:
        """Enter a call on the connection to this service, which is made if there is none."""
        while True:
            connection = self._open.get(address) or self._connected(address)
            try:
                return connection.call(request)
            except ConnectionResetError:  # it ended before this call was sent
                self._drop(address, connection)

    def call_server(self, server: ServerName, request: Request[T]) -> PendingCall[T]:
        """Enter a call on a region server's data."""
        host, port, _ = server
        return self.call(ServiceAddress(host, port, CLIENT_SERVICE), request)

    def ask_server(self, server: ServerName, request: Request[T], until: float | None = None) -> T | PendingCall[T]:
        """Make a call on a region server's data, wait for it, and return its result.

        For callers that wait for this call alone, or that wait for it alone until the instant ``until``: a call that
        has no result at that instant is returned. A connection that is not open, or was not answered lately, returns
        the call at once.
        """
        host, port, _ = server
        connection = self._open.get((host, port, CLIENT_SERVICE))
        if connection is not None:
            answer = connection.ask(request, until)
            if answer is not UNASKED:
                return answer
        return self.call_server(server, request)

    def start_server(self, server: ServerName, request: Request[T]) -> LoopCall[T] | None:
        """Make a call on a region server's data for a task of an event loop; None if that would have to wait."""
        host, port, _ = server
        connection = self._open.get((host, port, CLIENT_SERVICE))
        return None if connection is None else connection.start(request)

    def _connected(self, address: ServiceAddress) -> Connection:
        with self._lock:
            if self._is_closed:
                raise ConnectionClosed("the connection to HBase is closed")
            connection = self._open.get(address)
            if connection is None:
                for gone in [key for key, one in self._open.items() if one.is_closed]:
                    del self._open[gone]
                host, port, service = address
                connection = self._open[address] = Connection(
                    address,
                    runtime=self._runtime,
                    security=self._security,
                    dial=self._security.make_dial(service, self._dial, self._runtime),
                    reply_bytes_max=self._reply_bytes_max,
                )
                try:
                    self._runtime.start_daemon(connection.run, name=f"native-{host}:{port}-{service}")
                except BaseException:  # it has no task, or an interrupt came right after the task was started
                    del self._open[address]
                    connection.close()
                    raise
        return connection

    def _drop(self, address: ServiceAddress, connection: Connection) -> None:
        """Remove a connection that accepts no more calls; a retired one is kept until its calls have ended."""
        closing: list[Connection] = []
        with self._lock:
            if self._open.get(address) is connection:
                self._retired = deque(one for one in self._retired if not one.is_closed)
                if not connection.is_closed:
                    self._retired.append(connection)
                if len(self._retired) > RETIRED_MAX:
                    closing.append(self._retired.popleft())
                del self._open[address]
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
        """Return state, calls in flight and late answers per connection, as JSON values."""
        return {
            f"{host}:{port} {service}": {
                "state": connection._state.value,
                "calls": connection.calls,
                "late_answers": connection.late,
            }
            for (host, port, service), connection in list(self._open.items())
        }
