"""The registry in ZooKeeper: znodes that tell who is master and who serves the copies of hbase:meta.

``<parent>/meta-region-server`` is the primary's, ``meta-region-server-N`` replica N's; a copy whose state is not OPEN
is known and not placed. Kazoo keeps the session and its own threads; every question here has a deadline.
"""

from __future__ import annotations

import atexit
import logging
import re
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakSet

from metaclient import metarow
from metaclient.errors import (
    CallTimeout,
    ConnectionClosed,
    ExtraMissing,
    Overloaded,
    ServerNotRunning,
    ServerUnreachable,
)
from metaclient.model import MetaReplica, ServerName
from metaclient.runtime import Pending, Runtime, close_descriptor
from metaclient.wire.rpc.messages import ZK_MASTER
from metaclient.wire.rpc.names import server_from
from metaclient.wire.rpc.protobuf import ProtocolError, decode
from metaclient_native.url import Endpoint

__all__ = ["ZooKeeperRegistry"]

_log = logging.getLogger(__name__)
# Kazoo logs each attempt as a warning, which Python prints where no logging is set up. A handler of the user's still
# gets them.
logging.getLogger("kazoo").addHandler(logging.NullHandler())

_META = re.compile(r"meta-region-server(?:-(\d{1,5}))?")
_MAGIC = b"PBUF"
#: A session of a client that only reads; ZooKeeper shortens or lengthens it to what it allows. Kazoo waits as long for
#: a server that is silent: less than ``open_timeout_s``, so that the next server is tried in time.
SESSION_S = 10.0
#: How long close() waits for the end of the session.
CLOSE_S = 0.5


class ZooKeeperRegistry:
    """Questions to ZooKeeper, on one session that is made when first needed."""

    def __init__(self, endpoints: Sequence[Endpoint], parent: str, runtime: Runtime) -> None:
        self._hosts = ",".join(map(str, endpoints))
        self._parent = parent
        self._runtime = runtime
        self._kazoo = _import_kazoo()  # before anybody waits: its absence is a mistake of the installation
        self._lock = runtime.lock()
        # Guarded by the lock:
        self._client: Any = None
        self._is_closed = False
        self._sockets: WeakSet[Any] = WeakSet()  # all that kazoo has opened
        runtime.on_fork(self._renew)

    def _renew(self) -> None:
        """In a child process: a session of its own, when it is needed; the parent's session and threads go on there.

        Kazoo's client is not stopped, which would close the session, and its threads are not waited for at exit.
        """
        self._lock = self._runtime.lock()
        client, self._client = self._client, None
        if client is not None:
            atexit.unregister(client.handler.stop)
        sockets, self._sockets = list(self._sockets), WeakSet()
        for sock in sockets:
            close_descriptor(sock)

    def __repr__(self) -> str:
        return f"<ZooKeeperRegistry {self._hosts}{self._parent}>"

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            client, self._client = self._client, None
        ended = self._end(client) if client is not None else None
        if ended is not None:
            self._runtime.wait_first((ended,), self._runtime.now() + CLOSE_S)

    def meta_replicas(self, deadline: float) -> list[MetaReplica]:
        names = self._ask("get_children_async", self._parent, deadline)
        found: dict[int, MetaReplica] = {}
        for name in names:
            match = _META.fullmatch(name)
            if match is not None:
                replica_id = int(match[1] or 0)
                found[replica_id] = MetaReplica(replica_id, self._meta_server(f"{self._parent}/{name}", deadline))
        if not found:
            raise ServerNotRunning(f"{self!r} knows no hbase:meta: HBase is starting, or this is not its parent znode")
        return [found[replica_id] for replica_id in sorted(found)]

    def _meta_server(self, path: str, deadline: float) -> ServerName | None:
        try:
            data, _ = self._ask("get_async", path, deadline)
            value = metarow.decode_meta_region_server(data)
        except (ServerNotRunning, ValueError):
            return None  # taken away meanwhile, or half written: it exists and is not placed
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
        client = self._connected(deadline)
        exceptions = self._kazoo.exceptions
        try:
            return getattr(client, method)(path).get(timeout=self._left_s(deadline, path))
        except exceptions.NoNodeError as error:
            raise ServerNotRunning(
                f"ZooKeeper at {self._hosts} has no {path}: HBase is starting, or its zookeeper.znode.parent is another"
            ) from error
        except self._kazoo.handlers.threading.KazooTimeoutError as error:
            raise CallTimeout(f"ZooKeeper at {self._hosts} did not answer about {path} in time") from error
        except exceptions.KazooException as error:
            self._drop(client)
            raise ServerUnreachable(f"ZooKeeper at {self._hosts}: {type(error).__name__} {error}".rstrip()) from error

    def _left_s(self, deadline: float, what: str) -> float:
        left_s = deadline - self._runtime.now()
        if left_s <= 0:
            raise CallTimeout(f"there was no time left to ask ZooKeeper about {what}")
        return left_s

    def _connected(self, deadline: float) -> Any:
        with self._lock:
            if self._is_closed:
                raise ConnectionClosed("the connection to HBase is closed")
            client = self._client
            if client is None:
                client = self._client = self._kazoo.client.KazooClient(
                    hosts=self._hosts, timeout=SESSION_S, read_only=True, handler=self._handler()
                )
                started = client.start_async()
            else:
                started = None
        if started is not None or not client.connected:
            event = client.start_async() if started is None else started
            event.wait(self._left_s(deadline, "hbase:meta"))
            if not client.connected:
                self._drop(client)
                raise ServerUnreachable(
                    f"no ZooKeeper can be reached at {self._hosts}; check the address, and that ZooKeeper runs there"
                )
        return client

    def _handler(self) -> Any:
        """Kazoo's own handler; the sockets that it makes are known, so that a child process can close its copies."""
        handler = self._kazoo.handlers.threading.SequentialThreadingHandler()

        def noting(make: Callable[..., Any]) -> Callable[..., Any]:
            def made(*args: Any, **options: Any) -> Any:
                found = make(*args, **options)
                self._sockets.update(found if isinstance(found, tuple) else (found,))
                return found

            return made

        handler.create_connection = noting(handler.create_connection)
        handler.create_socket_pair = noting(handler.create_socket_pair)
        return handler

    def _drop(self, client: Any) -> None:
        with self._lock:
            if self._client is client:
                self._client = None
        self._end(client)

    def _end(self, client: Any) -> Pending[None] | None:
        """End a session in the background: kazoo waits for its threads, for as long as a server is silent to them.

        None: the runtime is closed, and the session was ended here.
        """

        def end() -> None:
            try:
                client.stop()
                client.close()
            except self._kazoo.exceptions.KazooException as error:
                _log.debug("the session with ZooKeeper at %s did not end: %s", self._hosts, error)

        try:
            return self._runtime.start_daemon(end, name="zookeeper-end")
        except (ConnectionClosed, Overloaded):
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
