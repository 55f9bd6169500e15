"""The registry by RPC: masters and region servers return the active master and the locations of hbase:meta.

Any of them can answer. If a server has not answered after ``STAGGER_S``, the next one is asked as well, and the first
answer is used. The server that answered is asked first the next time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from metaclient.errors import CallTimeout, ConfigError, MetaClientError, ServerNotRunning, ServerUnreachable
from metaclient.model import MetaReplica, ServerName
from metaclient.protobuf import decode
from metaclient.runtime import Runtime
from metaclient.wire.dials import choose_dial
from metaclient.wire.peers import describe_peer, probe_peer
from metaclient.wire.rpc import messages
from metaclient.wire.rpc.framing import Response
from metaclient.wire.rpc.names import server_from
from metaclient_native.connections import Connections
from metaclient_native.in_flight import PendingCall
from metaclient_native.request import Request, ServiceAddress
from metaclient_native.url import Endpoint

__all__ = ["RpcRegistry"]

T = TypeVar("T")
SERVICE = "ClientMetaService"
#: The time after which the next server is asked as well. Servers answer from memory, in 1 to 16 ms.
STAGGER_S = 0.25
#: The interval of GetBootstrapNodes calls, which return more servers to ask (RpcConnectionRegistry: 300 s).
REFRESH_S = 300.0
#: Servers from GetBootstrapNodes that are kept beside those of the url.
LEARNT_MAX = 32
#: The time for finding out which protocol a server speaks that is not HBase.
PROBES_S_MAX = 3.0


class RpcRegistry:
    """Calls of ClientMetaService at any server of a list."""

    def __init__(self, endpoints: Sequence[Endpoint], connections: Connections, runtime: Runtime) -> None:
        self._given = tuple(endpoints)
        self._connections = connections
        self._runtime = runtime
        self._order: tuple[Endpoint, ...] = self._given  # replaced whole
        self._learnt_at = float("-inf")

    def __repr__(self) -> str:
        return f"<RpcRegistry {', '.join(map(str, self._given))}>"

    def close(self) -> None:
        """Do nothing: the backend closes the connections."""

    def meta_replicas(self, deadline: float) -> list[MetaReplica]:
        replicas = self._ask(b"GetMetaRegionLocations", _meta_replicas, deadline)
        self._learn(deadline)
        return replicas

    def active_master(self, deadline: float) -> ServerName:
        found = self._ask(b"GetActiveMaster", _active_master, deadline)
        if found is None:
            raise ServerNotRunning("the registry has no active master: HBase is starting, or all masters are down")
        return found

    def cluster_id(self, deadline: float) -> str | None:
        return self._ask(b"GetClusterId", _cluster_id, deadline)

    def live_servers(self, deadline: float) -> None:
        """Return None: GetBootstrapNodes returns only some of the servers."""

    def explain(self, error: MetaClientError) -> MetaClientError:
        """Return the error of a first contact: a ConfigError with the right url if a server of the url is not HBase."""
        until = self._runtime.now() + PROBES_S_MAX
        for endpoint in self._given:
            peer = probe_peer(
                endpoint.host, endpoint.port, now=self._runtime.now, deadline=until, dial=choose_dial(self._runtime)
            )
            if peer is not None and "hbase+rpc" not in peer.schemes:
                return ConfigError(f"hbase+rpc:// does not fit: {describe_peer(str(endpoint), peer)}")
        return error

    def _ask(self, method: bytes, read: Callable[[Response], T], deadline: float) -> T:
        now, wait_first = self._runtime.now, self._runtime.wait_first
        waiting = list(self._order)
        running: dict[PendingCall[T], Endpoint] = {}
        failures: list[MetaClientError] = []
        try:
            while waiting or running:
                if waiting:
                    endpoint = waiting.pop(0)
                    running[self._begin(endpoint, method, read, deadline)] = endpoint
                done = wait_first(list(running), min(deadline, now() + STAGGER_S) if waiting else deadline)
                if done is not None:
                    call = next(one for one in running if one is done)
                    endpoint = running.pop(call)
                    error = call.error()
                    if error is None:
                        self._order = (endpoint, *(one for one in self._order if one != endpoint))
                        return call.result()
                    assert isinstance(error, MetaClientError)
                    failures.append(error)
                elif now() >= deadline:
                    asked = ", ".join(str(one) for one in running.values())
                    raise CallTimeout(f"no answer of the registry in time: {asked} did not answer {method.decode()}")
        finally:
            for call in running:
                call.cancel()
        for error in failures:
            if not error.blames_server:
                raise error  # the answer of a server tells more than the failures to reach the others
        raise ServerUnreachable(f"no master or region server of the registry is reachable; last error: {failures[-1]}")

    def _begin(
        self, endpoint: Endpoint, method: bytes, read: Callable[[Response], T], deadline: float
    ) -> PendingCall[T]:
        what = f"{method.decode()} of the registry"
        address = ServiceAddress(endpoint.host, endpoint.port, SERVICE)
        return self._connections.call(address, Request(method, b"", read, deadline, what))

    def _learn(self, deadline: float) -> None:
        """Ask for more servers if the last such call is ``REFRESH_S`` old; the caller does not wait for the answer."""
        now = self._runtime.now()
        if now - self._learnt_at < REFRESH_S:
            return
        self._learnt_at = now
        call = self._begin(self._order[0], b"GetBootstrapNodes", _servers, deadline)

        def learnt(_: object) -> None:
            if call.error() is None:
                found = [Endpoint(server.host, server.port) for server in call.result()]
                self._order = tuple(dict.fromkeys([*self._order[:1], *self._given, *found]))[
                    : len(self._given) + LEARNT_MAX
                ]

        call.on_done(learnt)


def _meta_replicas(response: Response) -> list[MetaReplica]:
    answer = decode(messages.GET_META_REGION_LOCATIONS_RESPONSE, response.data, response.at, response.end)
    return [
        MetaReplica(
            one["region_info"].get("replica_id", 0),
            server_from(one["server_name"]) if "server_name" in one else None,
        )
        for one in answer.get("meta_locations", ())
    ]


def _active_master(response: Response) -> ServerName | None:
    answer = decode(messages.GET_ACTIVE_MASTER_RESPONSE, response.data, response.at, response.end)
    return server_from(answer["server_name"]) if "server_name" in answer else None


def _cluster_id(response: Response) -> str | None:
    answer = decode(messages.GET_CLUSTER_ID_RESPONSE, response.data, response.at, response.end)
    found: str | None = answer.get("cluster_id")
    return found


def _servers(response: Response) -> list[ServerName]:
    answer = decode(messages.GET_BOOTSTRAP_NODES_RESPONSE, response.data, response.at, response.end)
    return [server_from(one) for one in answer.get("server_name", ())]
