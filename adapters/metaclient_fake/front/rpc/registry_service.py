"""ClientMetaService, the registry by RPC: where hbase:meta's copies, the master and other servers are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from metaclient.model import META_TABLE, MetaReplica, RegionInfo, RegionLocation, ServerName
from metaclient.protobuf import encode
from metaclient.wire.rpc import messages
from metaclient.wire.rpc.names import region_location_message, server_message
from metaclient_fake.front.rpc.addresses import Addresses
from metaclient_fake.front.rpc.channel import Answer, Incoming

__all__ = ["RegistryService"]

_META = RegionInfo(META_TABLE, region_id=1)


class RegistryService:
    """The registry of one server; ``replicas`` and ``servers`` run at it, so that a hung server does not answer."""

    def __init__(
        self,
        *,
        cluster_id: str,
        master: Callable[[], ServerName],
        replicas: Callable[[float], Sequence[MetaReplica]],
        servers: Callable[[float], Sequence[ServerName]],
        addresses: Addresses,
    ) -> None:
        self._cluster_id = cluster_id
        self._master = master
        self._replicas = replicas
        self._servers = servers
        self._addresses = addresses
        self._methods: Mapping[str, Callable[[Incoming], Answer]] = {
            "GetClusterId": self._get_cluster_id,
            "GetActiveMaster": self._get_active_master,
            "GetMasters": self._get_masters,
            "GetMetaRegionLocations": self._get_meta_region_locations,
            "GetBootstrapNodes": self._get_bootstrap_nodes,
        }

    def method(self, name: str) -> Callable[[Incoming], Answer] | None:
        return self._methods.get(name)

    def may_wait(self, name: str) -> bool:
        return False

    def _get_cluster_id(self, call: Incoming) -> Answer:
        return Answer(encode(messages.GET_CLUSTER_ID_RESPONSE, {"cluster_id": self._cluster_id}))

    def _get_active_master(self, call: Incoming) -> Answer:
        return Answer(encode(messages.GET_ACTIVE_MASTER_RESPONSE, {"server_name": server_message(self._master())}))

    def _get_masters(self, call: Incoming) -> Answer:
        entry = {"server_name": server_message(self._master()), "is_active": True}
        return Answer(encode(messages.GET_MASTERS_RESPONSE, {"master_servers": [entry]}))

    def _get_meta_region_locations(self, call: Incoming) -> Answer:
        """Return the locations of all copies that are on a server, in order, without sequence numbers."""
        locations = [
            RegionLocation(_META.replica(replica.replica_id), self._addresses.outside(replica.server))
            for replica in self._replicas(call.deadline)
            if replica.server is not None
        ]
        message = {"meta_locations": [region_location_message(location) for location in locations]}
        return Answer(encode(messages.GET_META_REGION_LOCATIONS_RESPONSE, message))

    def _get_bootstrap_nodes(self, call: Incoming) -> Answer:
        nodes = [server_message(self._addresses.outside(server)) for server in self._servers(call.deadline)]
        return Answer(encode(messages.GET_BOOTSTRAP_NODES_RESPONSE, {"server_name": nodes}))
