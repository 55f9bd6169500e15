"""Authentication of native connections: HBase's simple authentication; Kerberos and TLS are refused.

A cluster that requires Kerberos or TLS closes the connection, or waits for a handshake that never comes. So the
settings are checked before the first call, and the error names the setting.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping
from dataclasses import dataclass

from metaclient.errors import ConfigError, Unsupported
from metaclient.wire.rpc import framing

__all__ = ["Security"]

_OTHER_WAY = "use a Thrift gateway (thrift2: or thrift2+tls:) for such a cluster"


@dataclass(frozen=True, slots=True)
class Security:
    """The user's name, and the bytes that are sent before the first call: the preamble and the connection header."""

    user: str

    @classmethod
    def of(cls, properties: Mapping[str, str], *, user: str | None = None) -> Security:
        """Return the authentication that HBase's properties name; Unsupported for Kerberos and TLS.

        >>> Security.of({}, user="ada").user
        'ada'
        """
        authentication = properties.get("hbase.security.authentication", "simple").strip().lower()
        if authentication != "simple":
            raise Unsupported(
                f"hbase.security.authentication={authentication}: HBase's own RPC supports simple authentication "
                f"only; {_OTHER_WAY}"
            )
        tls = properties.get("hbase.client.netty.tls.enabled", "false").strip().lower()
        if tls not in ("true", "false"):
            raise ConfigError(f"hbase.client.netty.tls.enabled must be true or false, got {tls!r}")
        if tls == "true":
            raise Unsupported(
                f"hbase.client.netty.tls.enabled=true: HBase's own RPC does not support TLS; {_OTHER_WAY}"
            )
        protection = properties.get("hbase.rpc.protection", "authentication").strip().lower()
        if protection != "authentication":
            raise Unsupported(f"hbase.rpc.protection={protection}: it needs Kerberos; {_OTHER_WAY}")
        return cls(user or os.environ.get("HADOOP_USER_NAME") or _login())

    def encode_opening(self, service: str) -> bytes:
        """Return preamble and connection header, which are sent before the first call, in the same write."""
        return framing.preamble(framing.AUTH_SIMPLE) + framing.connection_header(service, self.user)


def _login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return "metaclient"
