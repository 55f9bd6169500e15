"""The registry in ZooKeeper: znodes with the addresses of the master and of the servers of hbase:meta's copies.

``<parent>/meta-region-server`` is the primary's znode, ``meta-region-server-N`` that of replica N; a copy whose state
is not OPEN exists but has no server. Kazoo keeps the session and its own threads; every request here has a deadline.

Two methods of kazoo 2.11 wait for its threads without a bound while a server is silent: ``stop``, and ``start_async``
of a client that was connected once. No caller runs them. Kazoo itself connects again after a break; a session that
stays silent is cut, ended in the background, and replaced.
"""

from __future__ import annotations

import atexit
import logging
import re
from collections.abc import Sequence
from typing import Any
from weakref import WeakSet

from metaclient import metarow
from metaclient.errors import (
    CallTimeout,
    ConnectionClosed,
    ExtraMissing,
    MetaClientError,
    Overloaded,
    ServerNotRunning,
    ServerUnreachable,
)
from metaclient.model import MetaReplica, ServerName
from metaclient.protobuf import ProtocolError, decode
from metaclient.runtime import Pending, Runtime, close_descriptor
from metaclient.wire.rpc.messages import ZK_MASTER
from metaclient.wire.rpc.names import server_from
from metaclient.wire.stream import shut_down
from metaclient_native.url import Endpoint

__all__ = ["ZooKeeperRegistry"]

_log = logging.getLogger(__name__)
# Kazoo logs each attempt as a warning, which Python prints if no logging is configured. Handlers of the application
# still get them.
logging.getLogger("kazoo").addHandler(logging.NullHandler())

_META = re.compile(r"meta-region-server(?:-(\d{1,5}))?")
_MAGIC = b"PBUF"
#: A session of a client that only reads; ZooKeeper shortens or lengthens it to what it allows. Kazoo waits as long for
#: a server that is silent: less than ``open_timeout_s``, so that the next server is tried in time.
SESSION_S = 10.0
#: How long close() waits for the end of the session, and then for the end of a session that was cut.
CLOSE_S = 0.25
#: A session without a response for this time is replaced: the network may drop the packets of its TCP connection.
SILENT_S = 1.0


class _Session:
    """One client of kazoo, the event that is set while it is connected, and the sockets that it has opened."""

    def __init__(self, kazoo: Any, hosts: str) -> None:
        self.pairs: WeakSet[Any] = WeakSet()
        self.connections: WeakSet[Any] = WeakSet()
        self._is_cut = False
        handler = kazoo.handlers.threading.SequentialThreadingHandler()
        self._create_connection, self._create_pair = handler.create_connection, handler.create_socket_pair
        handler.create_connection, handler.create_socket_pair = self._connection, self._pair
        self.client = kazoo.client.KazooClient(hosts=hosts, timeout=SESSION_S, read_only=True, handler=handler)
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


class ZooKeeperRegistry:
    """Sends requests to ZooKeeper, on one session that is created when it is first needed."""

    def __init__(self, endpoints: Sequence[Endpoint], parent: str, runtime: Runtime) -> None:
        self._hosts = ",".join(map(str, endpoints))
        self._parent = parent
        self._runtime = runtime
        self._kazoo = _import_kazoo()  # first: if it is not installed, fail before any request waits
        self._lock = runtime.lock()
        # Guarded by the lock:
        self._session: _Session | None = None
        self._is_closed = False
        self._ending: WeakSet[_Session] = WeakSet()
        runtime.on_fork(self._renew)

    def _renew(self) -> None:
        """In a child process: drop the parent's session, which stays in use there; a new one is created when needed."""
        self._lock = self._runtime.lock()
        ending, self._ending = list(self._ending), WeakSet()
        session, self._session = self._session, None
        for one in (*ending, *([session] if session is not None else [])):
            one.leave_to_parent()

    def __repr__(self) -> str:
        return f"<ZooKeeperRegistry {self._hosts}{self._parent}>"

    def explain(self, error: MetaClientError) -> MetaClientError:
        """Return the error as it is: kazoo's errors name the servers."""
        return error

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            session, self._session = self._session, None
        ended = self._end(session) if session is not None else None
        if session is not None and ended is not None:
            wait_first, now = self._runtime.wait_first, self._runtime.now
            if wait_first((ended,), now() + CLOSE_S) is None:
                session.cut()
                wait_first((ended,), now() + CLOSE_S)

    def meta_replicas(self, deadline: float) -> list[MetaReplica]:
        names = self._ask("get_children_async", self._parent, deadline)
        found: dict[int, MetaReplica] = {}
        for name in names:
            match = _META.fullmatch(name)
            if match is not None:
                replica_id = int(match[1] or 0)
                found[replica_id] = MetaReplica(replica_id, self._meta_server(f"{self._parent}/{name}", deadline))
        if not found:
            raise ServerNotRunning(
                f"{self!r} has no location of hbase:meta: HBase is starting, or this is not its parent znode"
            )
        return [found[replica_id] for replica_id in sorted(found)]

    def _meta_server(self, path: str, deadline: float) -> ServerName | None:
        try:
            data, _ = self._ask("get_async", path, deadline)
            value = metarow.decode_meta_region_server(data)
        except (ServerNotRunning, ValueError):
            return None  # deleted meanwhile, or incomplete: the copy exists but has no server
        return value.server if value.state == "OPEN" else None

    def active_master(self, deadline: float) -> ServerName:
        data, _ = self._ask("get_async", f"{self._parent}/master", deadline)
        at = data.find(_MAGIC)
        if at < 0:
            raise ProtocolError(f"{self._parent}/master does not hold a server's name")
        return server_from(decode(ZK_MASTER, data, at + len(_MAGIC))["master"])

    def cluster_id(self, deadline: float) -> str | None:
        data, _ = self._ask("get_async", f"{self._parent}/hbaseid", deadline)
        found = re.search(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", data)
        return found[0].decode() if found else None

    def _ask(self, method: str, path: str, deadline: float) -> Any:
        session = self._connected(deadline)
        exceptions = self._kazoo.exceptions
        left_s = self._left_s(deadline, path)
        try:
            return getattr(session.client, method)(path).get(timeout=left_s)
        except exceptions.NoNodeError as error:
            raise ServerNotRunning(
                f"ZooKeeper at {self._hosts} has no {path}: HBase is starting, or its zookeeper.znode.parent is another"
            ) from error
        except self._kazoo.handlers.threading.KazooTimeoutError as error:
            if left_s >= SILENT_S:
                self._drop(session)
            raise CallTimeout(f"ZooKeeper at {self._hosts} did not return {path} in time") from error
        except exceptions.KazooException as error:
            self._drop(session)
            raise ServerUnreachable(f"ZooKeeper at {self._hosts}: {type(error).__name__} {error}".rstrip()) from error

    def _left_s(self, deadline: float, what: str) -> float:
        left_s = deadline - self._runtime.now()
        if left_s <= 0:
            raise CallTimeout(f"there was no time left to read {what} from ZooKeeper")
        return left_s

    def _connected(self, deadline: float) -> _Session:
        """Return the connected session; create it if there is none."""
        with self._lock:
            if self._is_closed:
                raise ConnectionClosed("the connection to HBase is closed")
            session = self._session
            if session is None:
                session = self._session = _Session(self._kazoo, self._hosts)
        if not session.client.connected:
            session.connected.wait(self._left_s(deadline, "hbase:meta"))
            if not session.client.connected:
                self._drop(session)
                raise ServerUnreachable(
                    f"no ZooKeeper can be reached at {self._hosts}; check the address, and that ZooKeeper runs there"
                )
        return session

    def _drop(self, session: _Session) -> None:
        with self._lock:
            if self._session is session:
                self._session = None
        session.cut()
        self._end(session)

    def _end(self, session: _Session) -> Pending[None] | None:
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


def _import_kazoo() -> Any:
    try:
        import kazoo.client
        import kazoo.exceptions
        import kazoo.handlers.threading
    except ImportError as error:
        what = "hbase:// asks ZooKeeper (hbase+rpc://MASTER:16000 does not), which"
        raise ExtraMissing.of(what, error.name, extra="native") from error
    return kazoo
