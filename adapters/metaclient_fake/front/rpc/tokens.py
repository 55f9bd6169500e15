"""Authentication of the RPC front by delegation tokens: it issues them, checks them by DIGEST-MD5, and wraps the data.

A front that authenticates refuses simple authentication as HBase 2.6 does ("Authentication is required"), and Kerberos,
because the fake has no Kerberos server: a test issues the token that a Kerberos client would have fetched.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import cast

from metaclient.config.tokens import Token, encode_identifier
from metaclient.errors import ConfigError
from metaclient.runtime import Runtime, draw_secret
from metaclient.wire.listener import Client
from metaclient.wire.rpc.framing import FrameReader
from metaclient.wire.rpc.greeting import receive_exactly
from metaclient.wire.sasl.digest_md5 import DigestServer
from metaclient.wire.sasl.mechanism import Layer
from metaclient.wire.sasl.messages import (
    TOKEN_BYTES_MAX,
    SaslRefused,
    encode_challenge,
    encode_refusal,
    encode_token,
)

__all__ = ["IssuedTokens", "WrappedClient"]

#: hbase.auth.token.max.lifetime.
LIFE_S = 7 * 86_400.0
#: Tokens that are kept; the oldest is forgotten first.
TOKENS_MAX = 10_000
_INVALID = "org.apache.hadoop.security.token.SecretManager$InvalidToken"


class IssuedTokens:
    """The tokens of one cluster. Safe to share between threads: each change is one operation of a dict."""

    def __init__(self, runtime: Runtime, cluster_id: str) -> None:
        self._runtime = runtime
        self._cluster_id = cluster_id
        self._tokens: dict[bytes, Token] = {}

    def issue(self, username: str, life_s: float = LIFE_S) -> Token:
        """Return a new token of a user, which expires after ``life_s`` seconds of the cluster's clock."""
        if not username or life_s <= 0:
            raise ConfigError("a token needs the name of a user and a life of more than 0 seconds")
        now_ms = self._runtime.time_ms()
        identifier = encode_identifier(
            username, issued_ms=now_ms, expires_ms=now_ms + int(life_s * 1000), number=len(self._tokens) + 1
        )
        token = Token(identifier, draw_secret(20), self._cluster_id)
        while len(self._tokens) >= TOKENS_MAX:
            del self._tokens[next(iter(self._tokens))]
        self._tokens[identifier] = token
        return token

    def authenticate(self, sock: Client) -> tuple[Client, str] | None:
        """Run the handshake after the preamble; return the client to read and write, and its user's short name.

        None if the client was refused.
        """
        server = DigestServer(self._find_password, nonce=draw_secret(16).hex())
        try:
            if _read_token(sock) is None:
                return None
            sock.sendall(encode_challenge(server.challenge()))
            response = _read_token(sock)
            if response is None:
                return None
            sock.sendall(encode_challenge(server.evaluate(response)))
        except SaslRefused as error:
            sock.sendall(encode_refusal(error.java_class_name, str(error)))
            return None
        client = sock if server.layer is None else cast("Client", WrappedClient(sock, server.layer))
        username = Token(b64decode(server.username or ""), b"", self._cluster_id).username
        return client, username.partition("@")[0].partition("/")[0]

    def _find_password(self, username: str) -> str:
        try:
            identifier = b64decode(username, validate=True)
        except ValueError:
            identifier = b""
        token = self._tokens.get(identifier)
        if token is None:
            raise SaslRefused("Unknown master key for token (id=0)", java_class_name=_INVALID)
        if token.expires_ms <= self._runtime.time_ms():
            raise SaslRefused("Token has expired", java_class_name=_INVALID)
        return b64encode(token.password).decode()


class WrappedClient:
    """A client's socket whose data is wrapped; it has the methods of a socket that the front calls."""

    def __init__(self, sock: Client, layer: Layer) -> None:
        self._socket = sock
        self._layer = layer
        self._frames = FrameReader()
        self._plain = b""

    def recv(self, size: int) -> bytes:
        while not self._plain:
            data = self._socket.recv(size)
            if not data:
                return b""
            self._plain = b"".join(self._layer.unwrap(one) for one in self._frames.feed(data))
        data, self._plain = self._plain[:size], self._plain[size:]
        return data

    def sendall(self, data: bytes) -> None:
        """Wrap and send; the front sends one response at a time."""
        self._socket.sendall(encode_token(self._layer.wrap(data)))

    def shutdown(self, how: int) -> None:
        self._socket.shutdown(how)

    def close(self) -> None:
        self._socket.close()


def _read_token(sock: Client) -> bytes | None:
    size = receive_exactly(sock, 4)
    length = int.from_bytes(size or b"", "big", signed=True)
    if size is None or not 0 <= length <= TOKEN_BYTES_MAX:
        return None
    return receive_exactly(sock, length)
