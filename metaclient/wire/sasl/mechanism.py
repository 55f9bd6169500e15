"""The protocols of a SASL mechanism and of its security layer, and the protections that a layer gives."""

from __future__ import annotations

import enum
from typing import Protocol

from metaclient.errors import ConfigError

__all__ = ["Layer", "Mechanism", "Protection", "parse_protections"]


class Protection(enum.Enum):
    """The protection of data after the handshake; the values are those of ``hbase.rpc.protection``."""

    AUTHENTICATION = "authentication"  # the data is sent as it is
    INTEGRITY = "integrity"  # a changed, repeated or missing message is detected
    PRIVACY = "privacy"  # and the data is encrypted

    @property
    def qop(self) -> str:
        """The word of DIGEST-MD5 (RFC 2831)."""
        return _QOPS[self]

    @property
    def mask(self) -> int:
        """The bit of GSSAPI (RFC 4752)."""
        return _MASKS[self]


_QOPS = {Protection.AUTHENTICATION: "auth", Protection.INTEGRITY: "auth-int", Protection.PRIVACY: "auth-conf"}
_MASKS = {Protection.AUTHENTICATION: 1, Protection.INTEGRITY: 2, Protection.PRIVACY: 4}
#: HBase accepts the words of SASL, too (SaslUtil.getQop of 2.6).
_WORDS = {one.value: one for one in Protection} | {qop: one for one, qop in _QOPS.items()}


def parse_protections(text: str, source: str = "hbase.rpc.protection") -> tuple[Protection, ...]:
    """Return the protections of a comma-separated list, in its order; ConfigError for another word.

    >>> [one.name for one in parse_protections("privacy, auth-int")]
    ['PRIVACY', 'INTEGRITY']
    """
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in _WORDS:
            raise ConfigError(
                f"{source} = {text[:100]!r}: {word[:50]!r} is no protection; allowed: a comma-separated list of "
                f"{', '.join(one.value for one in Protection)}"
            )
    if not words:
        raise ConfigError(f"{source} is empty; allowed: {', '.join(one.value for one in Protection)}")
    return tuple(dict.fromkeys(_WORDS[word] for word in words))


class Layer(Protocol):
    """Wraps and unwraps the data of one connection. The order of calls is the order on the wire.

    One thread may wrap while another one unwraps.
    """

    def wrap(self, data: bytes) -> bytes: ...

    def unwrap(self, data: bytes) -> bytes:
        """Return the data of a wrapped message; ProtocolError if it was changed, repeated or cut."""
        ...


class Mechanism(Protocol):
    """The client's half of a SASL mechanism, for one handshake. Each method raises AuthenticationFailed."""

    def begin(self) -> bytes:
        """Return the first token; it may be empty."""
        ...

    def step(self, challenge: bytes) -> bytes | None:
        """Return the token for a challenge; None if nothing is sent, because the handshake is complete."""
        ...

    @property
    def is_complete(self) -> bool: ...

    @property
    def layer(self) -> Layer | None:
        """The layer that was agreed on, after the handshake; None if the data is sent as it is."""
        ...
