"""The field tables of AuthenticationService, a coprocessor of HBase (TokenProvider of 2.6), and of the call to it."""

from __future__ import annotations

from metaclient.protobuf import BYTES, TEXT, Message
from metaclient.wire.rpc.messages import NAME_BYTES_PAIR, REGION_SPECIFIER

__all__ = ["EXEC_SERVICE_REQUEST", "EXEC_SERVICE_RESPONSE", "GET_TOKEN_RESPONSE", "WHO_AM_I_RESPONSE"]

_CALL = Message(
    "CoprocessorServiceCall",
    (1, "row", BYTES),
    (2, "service_name", TEXT),
    (3, "method_name", TEXT),
    (4, "request", BYTES),
)
EXEC_SERVICE_REQUEST = Message("CoprocessorServiceRequest", (1, "region", REGION_SPECIFIER), (2, "call", _CALL))
EXEC_SERVICE_RESPONSE = Message(
    "CoprocessorServiceResponse", (1, "region", REGION_SPECIFIER), (2, "value", NAME_BYTES_PAIR)
)
_TOKEN = Message("Token", (1, "identifier", BYTES), (2, "password", BYTES), (3, "service", BYTES))
GET_TOKEN_RESPONSE = Message("GetAuthenticationTokenResponse", (1, "token", _TOKEN))
WHO_AM_I_RESPONSE = Message("WhoAmIResponse", (1, "username", TEXT), (2, "auth_method", TEXT))
