"""Converts the names of tables, servers and regions to messages and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metaclient.model import RegionInfo, RegionLocation, ServerName
from metaclient.wire.rpc.messages import ENCODED_REGION_NAME, REGION_NAME

__all__ = [
    "encoded_region_message",
    "region_info_from",
    "region_info_message",
    "region_location_from",
    "region_location_message",
    "region_message",
    "server_from",
    "server_message",
    "table_from",
    "table_message",
]

_DEFAULT = b"default"


def table_message(table: bytes) -> dict[str, Any]:
    """
    >>> table_message(b"t"), table_message(b"ns:t")
    ({'namespace': b'default', 'qualifier': b't'}, {'namespace': b'ns', 'qualifier': b't'})
    """
    namespace, colon, qualifier = table.partition(b":")
    return {"namespace": namespace if colon else _DEFAULT, "qualifier": qualifier if colon else table}


def table_from(message: Mapping[str, Any]) -> bytes:
    namespace: bytes = message["namespace"]
    qualifier: bytes = message["qualifier"]
    return qualifier if namespace in (b"", _DEFAULT) else namespace + b":" + qualifier


def server_message(server: ServerName) -> dict[str, Any]:
    made: dict[str, Any] = {"host_name": server.host, "port": server.port}
    if server.start_code >= 0:
        made["start_code"] = server.start_code
    return made


def server_from(message: Mapping[str, Any]) -> ServerName:
    return ServerName(message["host_name"], message.get("port", 0), message.get("start_code", -1))


def region_message(name: bytes) -> dict[str, Any]:
    """Return the RegionSpecifier of a full region name, which ClientService and AdminService need."""
    return {"type": REGION_NAME, "value": name}


def encoded_region_message(encoded_name: str) -> dict[str, Any]:
    """Return the RegionSpecifier of an encoded name, which MoveRegion and MergeTableRegions need."""
    return {"type": ENCODED_REGION_NAME, "value": encoded_name.encode()}


def region_info_message(region: RegionInfo) -> dict[str, Any]:
    return {
        "region_id": region.region_id,
        "table_name": table_message(region.table),
        "start_key": region.start_key,
        "end_key": region.end_key,
        "offline": region.is_offline,
        "split": region.is_split_parent,
        "replica_id": region.replica_id,
    }


def region_info_from(message: Mapping[str, Any]) -> RegionInfo:
    return RegionInfo(
        table_from(message["table_name"]),
        message.get("start_key", b""),
        message.get("end_key", b""),
        message["region_id"],
        message.get("replica_id", 0),
        message.get("offline", False),
        message.get("split", False),
    )


def region_location_message(location: RegionLocation) -> dict[str, Any]:
    return {
        "region_info": region_info_message(location.region),
        "server_name": server_message(location.server),
        "seq_num": location.seqnum,
    }


def region_location_from(message: Mapping[str, Any]) -> RegionLocation | None:
    """Return the location of a message; None for a region that is on no server."""
    server = message.get("server_name")
    if server is None:
        return None
    return RegionLocation(region_info_from(message["region_info"]), server_from(server), message["seq_num"])
