"""Requests to ZooKeeper under deadlines, on one session of kazoo.

Kazoo keeps the session and its own threads; every request here has a deadline.

Two methods of kazoo 2.11 wait for its threads without a bound while a server is silent: ``stop``, and ``start_async``
of a client that was connected once. No caller runs them. Kazoo itself connects again after a break; a session that
stays silent is cut, ended in the background, and replaced.
"""

from __future__ import annotations

import atexit
import logging
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from metaclient.errors import (
    CallTimeout,
    ConnectionClosed,
    ExtraMissing,
    Overloaded,
    RequestRefused,
    ServerNotRunning,
    ServerUnreachable,
)
from metaclient.runtime import Pending, Runtime, close_descriptor
from metaclient.wire.stream import shut_down
from metaclient.wire.zookeeper_reads import AUTHENTICATION_CODES, INSTEAD, explain_required_sasl

__all__ = ["ZooKeeperClient"]

_log = logging.getLogger(__name__)
# Kazoo logs each attempt as a warning, which Python prints if no logging is configured. Handlers of the application
# still get them.
logging.getLogger("kazoo").addHandler(logging.NullHandler())

#: ZooKeeper shortens or lengthens the session to what it allows. Kazoo waits as long for a server that is silent: less
#: than ``open_timeout_s``, so that the next server is tried in time.
SESSION_S = 10.0
#: How long close() waits for the end of the session, and then for the end of a session that was cut.
CLOSE_S = 0.25
#: A session without a response for this time is replaced: the network may drop the packets of its TCP connection.
SILENT_S = 1.0


class _KazooSession:
    """One client of kazoo, the event that is set while it is connected, and the sockets that it has opened."""

    def __init__(self, kazoo: Any, hosts: str, *, read_only: bool) -> None:
        self.pairs: WeakSet[Any] = WeakSet()
        self.connections: WeakSet[Any] = WeakSet()
        self._is_cut = False
        handler = kazoo.handlers.threading.SequentialThreadingHandler()
        self._create_connection, self._create_pair = handler.create_connection, handler.create_socket_pair
        handler.create_connection, handler.create_socket_pair = self._connection, self._pair
        self.client = kazoo.client.KazooClient(hosts=hosts, timeout=SESSION_S, read_only=read_only, handler=handler)
        self.connected = self.client.start_async()

    def _connection(self, *args: Any, **options: Any) -> Any:
        made = self._create_connection(*args, **options)
        self.connections.add(made)
        if self._is_cut:
            shut_down(made)
        return made

    def _pair(self) -> tuple[Any, Any]:
        pair: tuple[Any, Any] = self._create_pair()
        self.pairs.update(pair)
        return pair

    def cut(self) -> None:
        """Shut the TCP connections down, for which kazoo's threads wait, also those that they open later."""
        self._is_cut = True
        for sock in list(self.connections):
            shut_down(sock)

    def leave_to_parent(self) -> None:
        """Close the descriptors of a child process. The client is not stopped, which would close the session."""
        atexit.unregister(self.client.handler.stop)  # it would wait for threads that exist in the parent only
        for sock in (*self.connections, *self.pairs):
            close_descriptor(sock)


class ZooKeeperClient:
    """Sends requests to ZooKeeper, on one session that is created when it is first needed.

    A node that does not exist is ServerNotRunning: HBase makes its nodes when it starts.
    """

    def __init__(self, hosts: str, runtime: Runtime, *, needed_by: str, read_only: bool = True) -> None:
        """``hosts`` is ``host:port,host:port``; ``needed_by`` begins the sentence of the error without kazoo."""
        self._hosts = hosts
        self._runtime = runtime
        self._read_only = read_only
        self._advice = INSTEAD if read_only else _write_advice(needed_by)
        self._kazoo = _import_kazoo(needed_by)  # first: if it is not installed, fail before any request waits
        self._lock = runtime.lock()
        # Guarded by the lock:
        self._session: _KazooSession | None = None
        self._is_closed = False
        self._ending: WeakSet[_KazooSession] = WeakSet()
        runtime.on_fork(self._renew)

    def _renew(self) -> None:
        """In a child process: drop the parent's session, which stays in use there; a new one is created when needed."""
        self._lock = self._runtime.lock()
        ending, self._ending = list(self._ending), WeakSet()
        session, self._session = self._session, None
        for one in (*ending, *([session] if session is not None else [])):
            one.leave_to_parent()

    def __repr__(self) -> str:
        return f"<ZooKeeperClient {self._hosts}>"

    def close(self) -> None:
        """End the session, which removes its ephemeral nodes. Waits a short time for it. Idempotent."""
        with self._lock:
            self._is_closed = True
            session, self._session = self._session, None
        ended = self._end(session) if session is not None else None
        if session is not None and ended is not None:
            wait_first, now = self._runtime.wait_first, self._runtime.now
            if wait_first((ended,), now() + CLOSE_S) is None:
                session.cut()
                wait_first((ended,), now() + CLOSE_S)

    # -- requests ------------------------------------------------------------------------------------------------------

    def get(self, path: str, deadline: float) -> bytes:
        """Return the data of a node."""
        data: bytes
        data, _ = self._ask("get_async", path, deadline)
        return data

    def children(self, path: str, deadline: float, *, on_change: Callable[[], None] | None = None) -> list[str]:
        """Return the names of a node's children. ``on_change`` is called once, from a thread of kazoo.

        It is called when a child is added or removed, when the node is deleted, and when the session breaks off, after
        which changes may be missed.
        """
        if on_change is None:
            found: list[str] = self._ask("get_children_async", path, deadline)
        else:
            found = self._ask("get_children_async", path, deadline, watch=lambda event: on_change())
        return found

    def create(self, path: str, data: bytes, deadline: float, *, is_ephemeral: bool = False) -> bool:
        """Create a node, and its parents; return False if it exists. An ephemeral node ends with the session."""
        try:
            self._ask("create_async", path, deadline, value=data, ephemeral=is_ephemeral, makepath=True)
        except self._kazoo.exceptions.NodeExistsError:
            return False
        return True

    def set(self, path: str, data: bytes, deadline: float) -> None:
        """Replace the data of a node."""
        self._ask("set_async", path, deadline, value=data)

    def delete(self, path: str, deadline: float) -> None:
        """Delete a node, if it exists."""
        try:
            self._ask("delete_async", path, deadline)
        except ServerNotRunning:
            _log.debug("%s was deleted before", path)

    def _ask(self, method: str, path: str, deadline: float, **options: Any) -> Any:
        session = self._connected(deadline)
        exceptions = self._kazoo.exceptions
        left_s = self._left_s(deadline, path)
        try:
            return getattr(session.client, method)(path, **options).get(timeout=left_s)
        except exceptions.NodeExistsError:
            raise
        except exceptions.NoNodeError as error:
            raise ServerNotRunning(
                f"ZooKeeper at {self._hosts} has no {path}: HBase is starting, or its zookeeper.znode.parent is another"
            ) from error
        except exceptions.NoAuthError as error:
            raise RequestRefused(f"ZooKeeper at {self._hosts} refuses {path}: NoAuthError; {self._advice}") from error
        except exceptions.NotReadOnlyCallError as error:
            raise RequestRefused(f"ZooKeeper at {self._hosts} refuses {path}: {type(error).__name__}") from error
        except self._kazoo.handlers.threading.KazooTimeoutError as error:
            if left_s >= SILENT_S:
                self._drop(session)
            raise CallTimeout(f"ZooKeeper at {self._hosts} did not return {path} in time") from error
        except exceptions.KazooException as error:
            self._drop(session)
            if getattr(error, "code", None) in AUTHENTICATION_CODES:
                raise explain_required_sasl(self._hosts, self._advice) from error
            raise ServerUnreachable(f"ZooKeeper at {self._hosts}: {type(error).__name__} {error}".rstrip()) from error

    def _left_s(self, deadline: float, what: str) -> float:
        left_s = deadline - self._runtime.now()
        if left_s <= 0:
            raise CallTimeout(f"there was no time left to read {what} from ZooKeeper")
        return left_s

    # -- the session ---------------------------------------------------------------------------------------------------

    def _connected(self, deadline: float) -> _KazooSession:
        """Return the connected session; create it if there is none."""
        with self._lock:
            if self._is_closed:
                raise ConnectionClosed("the connection to HBase is closed")
            session = self._session
            if session is None:
                session = self._session = _KazooSession(self._kazoo, self._hosts, read_only=self._read_only)
        if not session.client.connected:
            session.connected.wait(self._left_s(deadline, "hbase:meta"))
            if not session.client.connected:
                self._drop(session)
                raise ServerUnreachable(
                    f"no ZooKeeper can be reached at {self._hosts}; check the address, and that ZooKeeper runs there"
                )
        return session

    def _drop(self, session: _KazooSession) -> None:
        with self._lock:
            if self._session is session:
                self._session = None
        session.cut()
        self._end(session)

    def _end(self, session: _KazooSession) -> Pending[None] | None:
        """End a session in the background: kazoo waits for its threads, which wait for a silent server.

        Return None if the runtime is closed; the session was then ended by this call.
        """

        def end() -> None:
            try:
                session.client.stop()
                session.client.close()
            except self._kazoo.exceptions.KazooException as error:
                _log.debug("the session with ZooKeeper at %s did not end: %s", self._hosts, error)

        self._ending.add(session)
        try:
            return self._runtime.start_daemon(end, name="zookeeper-end")
        except (ConnectionClosed, Overloaded):
            session.cut()
            end()
            return None


def _write_advice(needed_by: str) -> str:
    return (
        f"{needed_by} writes nodes there, and this client does not authenticate itself to ZooKeeper: an administrator "
        "must allow it, by the ACL of the parent node"
    )


def _import_kazoo(needed_by: str) -> Any:
    try:
        import kazoo.client
        import kazoo.exceptions
        import kazoo.handlers.threading
    except ImportError as error:
        raise ExtraMissing.of(needed_by, error.name, extra="native") from error
    return kazoo
