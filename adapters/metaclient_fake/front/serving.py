"""Serves a cluster over TCP: starts the listeners of its fronts, and closes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from metaclient.config.tokens import Token
from metaclient.errors import ConfigError, RequestRefused, Unsupported
from metaclient.runtime import SimRuntime
from metaclient.watch import Watcher
from metaclient.watch.server import CONNECTIONS_MAX as PAGE_CONNECTIONS_MAX
from metaclient.watch.server import IDLE_TIMEOUT_S as PAGE_IDLE_TIMEOUT_S
from metaclient.watch.server import Route, WatchPage, page_url, token_for
from metaclient.wire.listener import CONNECTIONS_MAX, IDLE_TIMEOUT_S, Client, Listener, Listening
from metaclient.wire.publication import Publication
from metaclient.wire.tls_server import serve_tls
from metaclient_fake.front.gateway import GatewayClient
from metaclient_fake.front.pending_bytes import PendingBytes
from metaclient_fake.front.protection import FrontProtection
from metaclient_fake.front.scanners import SCANNERS_MAX, GatewayScanners
from metaclient_fake.front.service import Service
from metaclient_fake.front.status_page import STYLE, status_page
from metaclient_fake.front.wire import MESSAGE_BYTES_MAX
from metaclient_fake.watching import FakeCollector

if TYPE_CHECKING:
    from metaclient_fake.cluster import FakeCluster
    from metaclient_fake.front.rpc import RpcFront

__all__ = ["Front", "FrontLimits"]

PORT_MAX = 65_535
_SCHEMES = {"thrift1": "thrift1", "thrift2": "thrift2", "rpc": "hbase+rpc", "status": "http"}
#: The schemes with TLS; a client of the RPC front asks for it with ``ca=``.
_TLS_SCHEMES = {"thrift1": "thrift1+tls", "thrift2": "thrift2+tls", "status": "https"}


@dataclass(frozen=True, slots=True)
class FrontLimits:
    """The limits for clients of the network, per front; the bound of incomplete messages is shared by all fronts."""

    connections_max: int = CONNECTIONS_MAX
    idle_timeout_s: float = IDLE_TIMEOUT_S
    message_bytes_max: int = MESSAGE_BYTES_MAX
    scanners_max: int = SCANNERS_MAX
    #: None: as long as the cluster's own scanners live (hbase.client.scanner.timeout.period).
    scanner_lease_s: float | None = None


class Front:
    """A cluster over TCP; made by ``FakeCluster.serve``. A port that is not served is None.

    >>> from metaclient_fake import FakeCluster
    >>> import metaclient
    >>> with FakeCluster(servers=1) as cluster:
    ...     front = cluster.serve()
    ...     with metaclient.connect(front.thrift2_url) as connection:
    ...         connection.create_table("t", {"cf": {}})
    ...         connection.tables()
    [b't']
    """

    def __init__(
        self,
        cluster: FakeCluster,
        host: str,
        *,
        ports: Mapping[str, int | None],
        limits: FrontLimits,
        transport: str,
        protocol: str,
        gateway: Mapping[str, object] | None,
        protection: FrontProtection | None = None,
    ) -> None:
        if isinstance(cluster.runtime, SimRuntime):
            raise Unsupported("a cluster on virtual time cannot be served over TCP: make it with a ThreadRuntime")
        self.cluster = cluster
        self.host = host
        self._limits = limits
        self._pending = PendingBytes(cluster.runtime, limits.message_bytes_max)
        self._gateway_config = gateway
        self._protection = protection or FrontProtection()
        self._protection.check(host, [name for name, port in ports.items() if port is not None])
        self._tls = self._protection.make_context()
        self._transport, self._protocol = transport, protocol
        self._lease_s = limits.scanner_lease_s or cluster.config.scanner_lease_s
        self._scanners: dict[str, GatewayScanners[Any]] = {}
        self._closers: list[Callable[[], None]] = []
        self._status_token: str | None = None
        self._rpc: RpcFront | None = None
        self._publications: list[Publication] = []
        self._listeners: dict[str, Listening] = {}
        try:
            for name, port in ports.items():
                if port is not None:
                    self._start(name, _checked(name, port))
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"Front({', '.join(f'{name} at {url}' for name, url in self.addresses().items()) or 'closed'})"

    def __enter__(self) -> Front:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- where -------------------------------------------------------------------------------------------------

    @property
    def thrift1_port(self) -> int | None:
        return self._port("thrift1")

    @property
    def thrift2_port(self) -> int | None:
        return self._port("thrift2")

    @property
    def rpc_port(self) -> int | None:
        return self._port("rpc")

    @property
    def status_port(self) -> int | None:
        return self._port("status")

    @property
    def thrift1_url(self) -> str | None:
        return self._url("thrift1")

    @property
    def thrift2_url(self) -> str | None:
        return self._url("thrift2")

    @property
    def rpc_url(self) -> str | None:
        return self._url("rpc")

    @property
    def status_url(self) -> str | None:
        return self._url("status")

    def _port(self, name: str) -> int | None:
        listener = self._listeners.get(name)
        return listener.port if listener is not None else None

    def _url(self, name: str) -> str | None:
        return self.addresses().get(name)

    def addresses(self) -> dict[str, str]:
        """Return the URL of each front, by its name; that of the page has its token, if it needs one."""
        has_tls = self._tls is not None
        found = _addresses(self.host, self._listeners, has_tls=has_tls)
        if "status" in found:
            found["status"] = page_url(self.host, self._listeners["status"].port, self._status_token, has_tls=has_tls)
        return found

    def stats(self) -> dict[str, dict[str, int]]:
        """Return each front's clients (see :meth:`Listener.stats`) and open scanners."""
        return {
            name: {**listener.stats(), "scanners": len(self._scanners.get(name, ()))}
            for name, listener in self._listeners.items()
        }

    # -- in a real ZooKeeper -------------------------------------------------------------------------------------

    def publish(self, cluster_key: str) -> None:
        """Publish the cluster in a real ZooKeeper, until :meth:`close`.

        A real HBase can then add it as a peer, and clients connect to it with ``hbase://``.

        ``cluster_key`` is the key of that peer, such as ``zk1:2181:/fake``. Its parent must not belong to another
        cluster. ZooKeeper holds the addresses of the RPC front, so the servers of the real HBase must reach ``host``.
        """
        rpc = self._rpc
        if rpc is None or "rpc" not in self._listeners:
            raise RequestRefused("only a cluster that is served by HBase's RPC can be published: serve(rpc_port=0)")
        made = Publication(
            self.cluster.runtime,
            cluster_key,
            cluster_id=self.cluster.cluster_id,
            servers=rpc.live_servers,
            nodes=rpc.published_nodes,
        )
        made.start()
        self._publications.append(made)

    # -- users -------------------------------------------------------------------------------------------------

    def issue_token(self, username: str, life_s: float = 7 * 86_400.0) -> Token:
        """Return a delegation token, with which a client of the RPC front connects as this user: ``token=``."""
        tokens = self._rpc.tokens if self._rpc is not None else None
        if tokens is None:
            raise RequestRefused("only a secure RPC front issues tokens: serve(rpc_port=0, is_secure=True)")
        return tokens.issue(username, life_s)

    # -- life --------------------------------------------------------------------------------------------------

    def expire(self) -> None:
        """Close the scanners whose lease has expired; the cluster calls this periodically."""
        for scanners in list(self._scanners.values()):
            scanners.expire()

    def close(self) -> None:
        """Stop listening and disconnect all clients. Idempotent; does nothing in a forked child process."""
        if self.cluster.is_inherited:
            return
        if self.cluster.front is self:
            self.cluster.front = None
        for publication in self._publications:
            publication.close()
        self._publications.clear()
        listeners, self._listeners = list(self._listeners.values()), {}
        for listener in listeners:
            listener.close()
        for close in self._closers:
            close()
        self._closers.clear()
        for scanners in self._scanners.values():
            scanners.close()

    # -- fronts ------------------------------------------------------------------------------------------------

    def _start(self, name: str, port: int) -> None:
        starters = {
            "thrift1": self._start_thrift1,
            "thrift2": self._start_thrift2,
            "rpc": self._start_rpc,
            "status": self._start_status,
        }
        starters[name](port)

    def _start_thrift1(self, port: int) -> None:
        from metaclient.wire.thrift.idl import thrift1_gateway
        from metaclient_fake.front.thrift1 import Thrift1Handler

        client = self._client("thrift1")
        handler = Thrift1Handler(client, lease_s=self._lease_s, scanners_max=self._limits.scanners_max)
        self._scanners["thrift1"] = handler.scanners
        self._listen("thrift1", port, self._service(thrift1_gateway().Hbase, handler, handler.failure))

    def _start_thrift2(self, port: int) -> None:
        from metaclient.wire.thrift.idl import thrift2
        from metaclient_fake.front.thrift2 import Thrift2Handler

        client = self._client("thrift2")
        handler = Thrift2Handler(client, lease_s=self._lease_s, scanners_max=self._limits.scanners_max)
        self._scanners["thrift2"] = handler.scanners
        self._listen("thrift2", port, self._service(thrift2().THBaseService, handler, handler.failure))

    def _start_rpc(self, port: int) -> None:
        from metaclient_fake.front.rpc import RpcFront

        limits = self._limits
        front = RpcFront(
            self.cluster.inside,
            self.host,
            port,
            connections_max=limits.connections_max,
            pending=self._pending,
            is_secure=self._protection.is_secure,
            tls=self._tls,
        )
        self._rpc = front
        self._listeners["rpc"] = front.listener
        self._closers.append(front.close)

    def _start_status(self, port: int) -> None:
        """Serve the live view. It collects figures from the first request on."""
        listeners, host, inside, has_tls = self._listeners, self.host, self.cluster.inside, self._tls is not None
        self._status_token = token_for(host)

        def addresses() -> dict[str, str]:
            return _addresses(host, listeners, has_tls=has_tls)

        collector = FakeCollector(inside, "", addresses=addresses)
        watcher = Watcher(inside.runtime, collector)
        routes: dict[str, Route] = {
            "/status": ("text/html", lambda: status_page(inside.status(), addresses())),
            "/status.css": ("text/css", lambda: STYLE),
            "/status.json": ("application/json", lambda: json.dumps(inside.status(), default=str) + "\n"),
        }
        page = WatchPage(watcher, host, self._status_token, routes=routes)
        self._closers.append(watcher.close)
        self._listeners["status"] = Listener(
            host,
            port,
            runtime=inside.runtime,
            name="status",
            serve=self._encrypted(page.serve),
            refuse=None if has_tls else page.refuse,
            connections_max=min(PAGE_CONNECTIONS_MAX, self._limits.connections_max),
            idle_timeout_s=min(PAGE_IDLE_TIMEOUT_S, self._limits.idle_timeout_s),
        )

    def _client(self, name: str) -> GatewayClient:
        client = GatewayClient(self.cluster.inside, name, self._gateway_config)
        self._closers.append(client.close)
        return client

    def _service(self, service: object, handler: object, failure: Callable[..., Exception]) -> Service:
        return Service(
            service,
            handler,
            failure=failure,
            now=self.cluster.runtime.now,
            pending=self._pending,
            transport=self._transport,
            protocol=self._protocol,
            message_bytes_max=self._limits.message_bytes_max,
        )

    def _encrypted(self, serve: Callable[[Client], None]) -> Callable[[Client], None]:
        """Return a function that serves a client over TLS, if the front has a certificate."""
        runtime = self.cluster.runtime
        return serve if self._tls is None else serve_tls(serve, self._tls, runtime.lock, runtime.now)

    def _listen(self, name: str, port: int, service: Service) -> None:
        self._listeners[name] = Listener(
            self.host,
            port,
            runtime=self.cluster.runtime,
            name=name,
            serve=self._encrypted(service.serve),
            connections_max=self._limits.connections_max,
            idle_timeout_s=self._limits.idle_timeout_s,
        )


def _addresses(host: str, listeners: Mapping[str, Listening], *, has_tls: bool) -> dict[str, str]:
    """Return the URL of each front. Not a method, because the thread of a listener must not refer to the front."""
    shown = f"[{host}]" if ":" in host else host
    schemes = {**_SCHEMES, **_TLS_SCHEMES} if has_tls else _SCHEMES
    return {name: f"{schemes[name]}://{shown}:{listener.port}" for name, listener in list(listeners.items())}


def _checked(name: str, port: int) -> int:
    if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port <= PORT_MAX:
        raise ConfigError(f"{name}_port must be a number from 0 (any free one) to {PORT_MAX}, or None; got {port!r}")
    return port
