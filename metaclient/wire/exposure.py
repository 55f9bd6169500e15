"""Decides whether a server of this library may listen at an address, and makes its TLS.

At a loopback address only this machine can connect. At any other address a server needs TLS and client certificates,
or the explicit permission ``allow_insecure``.
"""

from __future__ import annotations

import ipaddress
import logging
import ssl
from dataclasses import dataclass

from metaclient.errors import ConfigError
from metaclient.wire.tls_server import make_server_context

__all__ = ["ListenerProtection", "is_loopback"]

logger = logging.getLogger(__name__)


def is_loopback(host: str) -> bool:
    """Return True for an address that only this machine can connect to.

    >>> is_loopback("localhost"), is_loopback("127.0.0.2"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


@dataclass(frozen=True, slots=True)
class ListenerProtection:
    """PEM files of a server's certificate and of the authority of its clients; or the permission to do without."""

    cert: str | None = None
    key: str | None = None
    client_ca: str | None = None
    allow_insecure: bool = False

    def make_context(self) -> ssl.SSLContext | None:
        """Return the context of TLS; None without a certificate."""
        if self.cert is not None:
            return make_server_context(self.cert, self.key, self.client_ca)
        for name, value in (("key", self.key), ("client_ca", self.client_ca)):
            if value is not None:
                raise ConfigError(f"{name}={value!r} needs TLS: give cert=, the server's certificate")
        return None

    def check(self, host: str, server: str) -> None:
        """Raise ConfigError if other machines could connect to ``server`` at ``host`` without a certificate."""
        if is_loopback(host) or (self.cert is not None and self.client_ca is not None):
            return
        missing = "client certificates (client_ca)" if self.cert is not None else "TLS (cert) and client certificates"
        if not self.allow_insecure:
            raise ConfigError(
                f"{server} would listen for other machines at {host} without {missing}: give cert and client_ca, "
                "or allow it with allow_insecure=True (--allow-insecure) in a network in which every machine is trusted"
            )
        logger.warning("%s listens for other machines at %s without %s", server, host, missing)
