"""Bulk loads over HBase's RPC: the three calls of ClientService that hand store files over to a region."""

from __future__ import annotations

from collections.abc import Sequence

from metaclient.backend import Answer
from metaclient.model import RegionLocation
from metaclient.protobuf import decode, encode
from metaclient.wire.rpc import bulk_load_messages as m
from metaclient.wire.rpc.framing import Response
from metaclient.wire.rpc.names import region_message, table_message
from metaclient_native.connections import Connections
from metaclient_native.request import Request
from metaclient_native.scanners import decode_nothing

__all__ = ["BulkLoadCalls"]


class BulkLoadCalls:
    """See :class:`metaclient.backend.BulkLoads`."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def prepare(self, place: RegionLocation, table: bytes, deadline: float) -> Answer[str]:
        param = encode(
            m.PREPARE_REQUEST, {"table_name": table_message(table), "region": region_message(place.region_name)}
        )
        request = Request(b"PrepareBulkLoad", param, _decode_token, deadline, "prepare a bulk load")
        return self._connections.call_server(place.server, request)

    def load(
        self, place: RegionLocation, files: Sequence[tuple[bytes, str]], token: str, deadline: float
    ) -> Answer[bool]:
        param = encode(
            m.BULK_LOAD_REQUEST,
            {
                "region": region_message(place.region_name),
                "family_path": [{"family": family, "path": path} for family, path in files],
                "assign_seq_num": True,
                "bulk_token": token,
            },
        )
        request = Request(b"BulkLoadHFile", param, _decode_loaded, deadline, "bulk load", is_write=True)
        return self._connections.call_server(place.server, request)

    def clean_up(self, place: RegionLocation, token: str, deadline: float) -> Answer[None]:
        param = encode(m.CLEANUP_REQUEST, {"bulk_token": token, "region": region_message(place.region_name)})
        request = Request(b"CleanupBulkLoad", param, decode_nothing, deadline, "clean up a bulk load")
        return self._connections.call_server(place.server, request)


def _decode_token(response: Response) -> str:
    token: str = decode(m.PREPARE_RESPONSE, response.data, response.at, response.end)["bulk_token"]
    return token


def _decode_loaded(response: Response) -> bool:
    loaded: bool = decode(m.BULK_LOAD_RESPONSE, response.data, response.at, response.end)["loaded"]
    return loaded
