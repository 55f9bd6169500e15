"""GSSAPI (RFC 4752) on a security context: the handshake, the choice of a protection, and the layer.

1. Tokens of the security context go back and forth (Kerberos: AP-REQ, AP-REP). If the context is complete and has
   nothing to send, the client sends an empty token.
2. The server sends 4 wrapped bytes: a mask of its protections and the size of its buffer.
3. The client sends 4 wrapped bytes: its choice, and the size of its own buffer. HBase does not acknowledge them.

HBase accepts wrapped messages of any size, whatever its buffer size says (3 MB on 2.6.1 and 3.0.0-alpha-4), so
messages are not split.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from metaclient.config.security import Protection
from metaclient.errors import AuthenticationFailed

__all__ = ["GssClient", "GssLayer", "SecurityContext"]

_MAX_BUFFER = 65536


class SecurityContext(Protocol):
    """A security context of GSSAPI. Failures of the handshake are AuthenticationFailed or KdcUnreachable."""

    @property
    def is_complete(self) -> bool: ...

    def step(self, token: bytes | None) -> bytes:
        """Return the next token for the server, b"" if there is none."""
        ...

    def wrap(self, data: bytes, *, encrypts: bool) -> bytes: ...

    def unwrap(self, data: bytes) -> bytes:
        """Return the data; ProtocolError if it was changed, repeated or cut."""
        ...


class GssLayer:
    """Wraps with a security context. A lock, because a context of MIT's library is not safe for two threads."""

    def __init__(self, context: SecurityContext, lock: AbstractContextManager[object], *, encrypts: bool) -> None:
        self._context = context
        self._lock = lock
        self._encrypts = encrypts

    def wrap(self, data: bytes) -> bytes:
        with self._lock:
            return self._context.wrap(data, encrypts=self._encrypts)

    def unwrap(self, data: bytes) -> bytes:
        with self._lock:
            return self._context.unwrap(data)


class GssClient:
    """The client's half, for one handshake. ``make_lock`` makes the lock of the layer."""

    def __init__(
        self,
        context: SecurityContext,
        *,
        make_lock: Callable[[], AbstractContextManager[object]],
        protections: Sequence[Protection] = (Protection.AUTHENTICATION,),
    ) -> None:
        self._context = context
        self._make_lock = make_lock
        self._protections = tuple(protections)
        self._is_complete = False
        self._agreed: GssLayer | None = None

    @property
    def is_complete(self) -> bool:
        return self._is_complete

    @property
    def layer(self) -> GssLayer | None:
        return self._agreed

    def begin(self) -> bytes:
        return self._context.step(None)

    def step(self, challenge: bytes) -> bytes:
        context = self._context
        if not context.is_complete:
            return context.step(challenge)
        offer = context.unwrap(challenge)
        if len(offer) != 4:
            raise AuthenticationFailed(f"the server's list of protections has {len(offer)} bytes instead of 4")
        chosen = self._choose(offer[0])
        buffer = 0 if chosen is Protection.AUTHENTICATION else _MAX_BUFFER
        token = context.wrap(bytes((chosen.mask,)) + buffer.to_bytes(3, "big"), encrypts=False)
        if chosen is not Protection.AUTHENTICATION:
            self._agreed = GssLayer(context, self._make_lock(), encrypts=chosen is Protection.PRIVACY)
        self._is_complete = True
        return token

    def _choose(self, mask: int) -> Protection:
        for one in self._protections:
            if one.mask & mask:
                return one
        wanted = ", ".join(one.value for one in Protection if one.mask & mask) or f"none that is known (mask {mask})"
        own = ", ".join(one.value for one in self._protections)
        raise AuthenticationFailed(
            f"the server offers the protections {wanted}, and the client {own}: set hbase.rpc.protection to one of "
            "the server's"
        )
