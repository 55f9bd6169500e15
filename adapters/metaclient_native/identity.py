"""The calls of AuthenticationService: the client's user, and new delegation tokens.

That service is a coprocessor of region servers (``TokenProvider``); it is asked at the primary region of hbase:meta.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metaclient.config.tokens import Token
from metaclient.errors import MetaClientError, RegionOffline, Unsupported
from metaclient.model import Identity, MetaReplica
from metaclient.protobuf import Message, decode, encode
from metaclient.wire.rpc.framing import Response
from metaclient.wire.rpc.messages import REGION_NAME
from metaclient.wire.rpc.security_messages import (
    EXEC_SERVICE_REQUEST,
    EXEC_SERVICE_RESPONSE,
    GET_TOKEN_RESPONSE,
    WHO_AM_I_RESPONSE,
)
from metaclient_native.connections import Connections
from metaclient_native.request import Request
from metaclient_native.scanners import SYSTEM_PRIORITY

__all__ = ["IdentityCalls"]

_SERVICE = "AuthenticationService"
#: HBase's answer where the coprocessor is not loaded.
_UNKNOWN = "UnknownProtocolException"


class IdentityCalls:
    """The calls of AuthenticationService; ``meta_replicas`` returns the locations of hbase:meta before a deadline."""

    def __init__(self, connections: Connections, meta_replicas: Callable[[float], list[MetaReplica]]) -> None:
        self._connections = connections
        self._meta_replicas = meta_replicas

    def whoami(self, deadline: float) -> Identity:
        """Return the user that the servers take the client for, and how it was authenticated."""
        answer = self._ask("WhoAmI", WHO_AM_I_RESPONSE, deadline)
        return Identity(answer.get("username", ""), answer.get("auth_method", ""))

    def delegation_token(self, deadline: float) -> Token:
        """Fetch a new token of the user; AccessDenied if the client itself was authenticated by a token."""
        token = self._ask("GetAuthenticationToken", GET_TOKEN_RESPONSE, deadline).get("token")
        if token is None:
            raise Unsupported("the cluster issues no token: it does not use Kerberos (hbase.security.authentication)")
        service = token.get("service", b"").decode(errors="replace")
        return Token(token.get("identifier", b""), token.get("password", b""), service)

    def _ask(self, method: str, message: Message, deadline: float) -> dict[str, Any]:
        primary = next((one for one in self._meta_replicas(deadline) if one.replica_id == 0), MetaReplica(0))
        if primary.server is None:
            raise RegionOffline("hbase:meta is on no server")
        call = {"row": b"", "service_name": _SERVICE, "method_name": method, "request": b""}
        region = {"type": REGION_NAME, "value": primary.region_name}
        param = encode(EXEC_SERVICE_REQUEST, {"region": region, "call": call})

        def read(response: Response) -> dict[str, Any]:
            answer = decode(EXEC_SERVICE_RESPONSE, response.data, response.at, response.end)
            return decode(message, answer.get("value", {}).get("value", b""))

        request = Request(b"ExecService", param, read, deadline, method, priority=SYSTEM_PRIORITY)
        try:
            return self._connections.call_server(primary.server, request).result(deadline)
        except MetaClientError as error:
            if _UNKNOWN not in str(error):
                raise
            raise Unsupported(
                f"{method}: the servers do not load the coprocessor "
                "org.apache.hadoop.hbase.security.token.TokenProvider (hbase.coprocessor.region.classes)",
                detail=error.detail,
            ) from error
