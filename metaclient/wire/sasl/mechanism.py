"""The protocols of a SASL mechanism and of its security layer."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Layer", "Mechanism"]


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
