"""Delegation tokens on HBase's RPC: how one is sent, and the calls of AuthenticationService, a coprocessor."""

from __future__ import annotations

from base64 import b64encode

from metaclient.config.tokens import Token

__all__ = ["encode_identity"]


def encode_identity(token: Token) -> tuple[str, str]:
    """Return user name and password of DIGEST-MD5 for a token: base64, as HBase's SaslUtil of 2.6 encodes them."""
    return b64encode(token.identifier).decode(), b64encode(token.password).decode()
