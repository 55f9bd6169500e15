"""AdminService of one region server: its regions, their sizes, flushes, compactions, and edits of other clusters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from metaclient.protobuf import decode, encode
from metaclient.wire.rpc import admin_messages as messages
from metaclient.wire.rpc.messages import EMPTY
from metaclient.wire.rpc.names import region_info_message, region_message, server_message, table_from
from metaclient.wire.rpc.replication import REPLICATE_WAL_ENTRY
from metaclient_fake.front.rpc.addresses import Addresses
from metaclient_fake.front.rpc.channel import Answer, Incoming
from metaclient_fake.front.rpc.replication_service import replicate_wal_entry
from metaclient_fake.grants import CHANGE, Right
from metaclient_fake.server.region_server import RegionServer
from metaclient_fake.storage import Region

if TYPE_CHECKING:
    from metaclient_fake.backend import FakeBackend

__all__ = ["RegionAdminService", "region_load"]

_MB = 1 << 20
#: CompactionState.NONE
_NOT_COMPACTING = 0


class RegionAdminService:
    """The admin calls of the server at ``host``."""

    def __init__(self, backend: FakeBackend, host: str, addresses: Addresses) -> None:
        self._backend = backend
        self._host = host
        self._addresses = addresses
        self._methods: Mapping[str, Callable[[RegionServer, Mapping[str, Any]], bytes]] = {
            "GetRegionInfo": self._get_region_info,
            "GetOnlineRegion": self._get_online_region,
            "GetRegionLoad": self._get_region_load,
            "GetServerInfo": self._get_server_info,
            "FlushRegion": self._flush_region,
            "CompactRegion": self._compact_region,
        }

    def method(self, name: str) -> Callable[[Incoming], Answer] | None:
        if name == REPLICATE_WAL_ENTRY:
            return self._replicate
        method = self._methods.get(name)
        if method is None:
            return None
        request = _REQUESTS[name]

        def run(call: Incoming) -> Answer:
            asked = decode(request, call.param)
            if name in ("FlushRegion", "CompactRegion"):
                table = asked["region"]["value"].partition(b",")[0]
                self._backend.cluster.grants.check(call.identity.username, CHANGE, table)
            server = self._backend.cluster.servers_by_host[self._host].name
            # Run at the server: a hung server does not answer admin calls, either.
            return Answer(
                self._backend.at_server(server, lambda calls: method(calls.server, asked), deadline=call.deadline)
            )

        return run

    def may_wait(self, name: str) -> bool:
        return name in ("FlushRegion", "CompactRegion", REPLICATE_WAL_ENTRY)

    def _replicate(self, call: Incoming) -> Answer:
        """Apply the entries on the server's handlers for replication, which the writes of the entries do not need."""
        self._backend.cluster.grants.check(call.identity.username, [Right.WRITE])
        server = self._backend.cluster.servers_by_host[self._host].name

        def apply() -> bytes:
            return replicate_wal_entry(self._backend.cluster.servers_by_host[self._host], call.param, call.cells)

        return Answer(self._backend.at_replication(server, apply, deadline=call.deadline))

    def _get_region_info(self, server: RegionServer, request: Mapping[str, Any]) -> bytes:
        region = _found(server, request)
        message: dict[str, Any] = {
            "region_info": region_info_message(region.info),
            "splittable": region.is_primary,
            "mergeable": region.is_primary,
        }
        if request.get("compaction_state"):
            message["compaction_state"] = _NOT_COMPACTING
        if request.get("best_split_row"):
            message["best_split_row"] = region.split_point()
        return encode(messages.GET_REGION_INFO_RESPONSE, message)

    def _get_online_region(self, server: RegionServer, request: Mapping[str, Any]) -> bytes:
        infos = [region_info_message(region.info) for region in list(server.regions.values())]
        return encode(messages.GET_ONLINE_REGION_RESPONSE, {"region_info": infos})

    def _get_region_load(self, server: RegionServer, request: Mapping[str, Any]) -> bytes:
        table = table_from(request["table_name"]) if "table_name" in request else None
        loads = [
            region_load(name, region)
            for name, region in list(server.regions.items())
            if table is None or region.info.table == table
        ]
        return encode(messages.GET_REGION_LOAD_RESPONSE, {"region_loads": loads})

    def _get_server_info(self, server: RegionServer, request: Mapping[str, Any]) -> bytes:
        info = {"server_name": server_message(self._addresses.outside(server.name))}
        return encode(messages.GET_SERVER_INFO_RESPONSE, {"server_info": info})

    def _flush_region(self, server: RegionServer, request: Mapping[str, Any]) -> bytes:
        flushed = server.flusher.flush_region(_found(server, request))
        message = {"last_flush_time": server.time_ms(), "flushed": flushed, "wrote_flush_wal_marker": flushed}
        return encode(messages.FLUSH_REGION_RESPONSE, message)

    def _compact_region(self, server: RegionServer, request: Mapping[str, Any]) -> bytes:
        _found(server, request).compact(request.get("major", False), request.get("family"))
        return b""


_REQUESTS = {
    "GetRegionInfo": messages.GET_REGION_INFO_REQUEST,
    "GetOnlineRegion": EMPTY,
    "GetRegionLoad": messages.GET_REGION_LOAD_REQUEST,
    "GetServerInfo": EMPTY,
    "FlushRegion": messages.FLUSH_REGION_REQUEST,
    "CompactRegion": messages.COMPACT_REGION_REQUEST,
}


def _found(server: RegionServer, request: Mapping[str, Any]) -> Region:
    name: bytes = request["region"]["value"]
    region = server.regions.get(name)
    if region is None:
        raise server.assignments.unavailable(name)
    return region


def region_load(name: bytes, region: Region, requests: int = 0) -> dict[str, Any]:
    """Return a region's size as HBase reports it: in megabytes, rounded up. All requests count as reads."""
    files_mb, memstore_mb = _megabytes(region.store_file_bytes), _megabytes(region.memstore_bytes)
    return {
        "region_specifier": region_message(name),
        "storefiles": region.store_files,
        "store_uncompressed_size_MB": files_mb,
        "storefile_size_MB": files_mb,
        "mem_store_size_MB": memstore_mb,
        "region_size_MB": files_mb,
        "read_requests_count": requests,
    }


def _megabytes(size: int) -> int:
    return -(-size // _MB)
