"""Decides whether a front may be served at an address, and with which TLS and authentication."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Sequence
from dataclasses import dataclass

from metaclient.errors import ConfigError
from metaclient.wire.exposure import ListenerProtection, is_loopback

__all__ = ["FrontProtection"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FrontProtection:
    """TLS and authentication of the fronts; see ``FakeCluster.serve``."""

    is_secure: bool = False
    cert: str | None = None
    key: str | None = None
    client_ca: str | None = None
    allow_insecure: bool = False

    def make_context(self) -> ssl.SSLContext | None:
        """Return the context of TLS; None without a certificate."""
        return ListenerProtection(self.cert, self.key, self.client_ca).make_context()

    def check(self, host: str, fronts: Sequence[str]) -> None:
        """Raise ConfigError if other machines could reach a front that is not encrypted and authenticated."""
        if is_loopback(host) or not fronts:
            return
        open_fronts = [name for name in fronts if not (self.is_secure and name == "rpc")]
        missing = [] if self.cert else ["TLS (cert=)"]
        if open_fronts and not self.client_ca:
            tokens = " or tokens (is_secure=True)" if open_fronts == ["rpc"] else ""
            missing.append(f"client certificates (client_ca=){tokens} for {', '.join(open_fronts)}")
        if not missing:
            return
        if not self.allow_insecure:
            raise ConfigError(
                f"the fake would be served to other machines at {host} without {' and '.join(missing)}: give them, "
                "listen at 127.0.0.1, or allow it with allow_insecure=True (--allow-insecure)"
            )
        logger.warning("the fake is served to other machines at %s without %s", host, " and ".join(missing))
