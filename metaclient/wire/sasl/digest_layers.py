"""The security layers of DIGEST-MD5 (RFC 2831, sections 2.3 and 2.4): integrity, and privacy by RC4.

::

    integrity  data | 10 bytes of HMAC-MD5(key, number | data) | 0001 | number
    privacy    rc4(data | 10 bytes of HMAC-MD5) | 0001 | number

The number counts the messages of one direction from 0. The ciphers 3des and des are not offered here: every Java server
has rc4, which is faster.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from struct import Struct

from metaclient.protobuf import ProtocolError
from metaclient.wire.sasl.rc4 import make_rc4

__all__ = ["CIPHER_KEY_BYTES", "DigestLayer", "md5"]

#: Cipher -> the bytes of H(A1) that its key is made of, in the order of preference.
CIPHER_KEY_BYTES = {"rc4": 16, "rc4-56": 7, "rc4-40": 5}
_MAC_BYTES = 10
_TAIL = Struct(">HI")  # the version of the messages, 1, and the number
_NUMBER = Struct(">I")
_TO_SERVER = b"Digest session key to client-to-server signing key magic constant"
_TO_CLIENT = b"Digest session key to server-to-client signing key magic constant"
_SEAL_TO_SERVER = b"Digest H(A1) to client-to-server sealing key magic constant"
_SEAL_TO_CLIENT = b"Digest H(A1) to server-to-client sealing key magic constant"


def md5(data: bytes) -> bytes:
    """Return MD5, also where FIPS forbids it for security: HBase's tokens permit nothing else."""
    return hashlib.md5(data, usedforsecurity=False).digest()


def _hmac_md5(key: bytes) -> Callable[[bytes], bytes]:
    """Return HMAC-MD5 with this key (RFC 2104), by hand, because ``hmac`` refuses MD5 where FIPS is in force."""
    padded = key.ljust(64, b"\0")
    inner = hashlib.md5(bytes(byte ^ 0x36 for byte in padded), usedforsecurity=False)
    outer = hashlib.md5(bytes(byte ^ 0x5C for byte in padded), usedforsecurity=False)

    def sign(data: bytes) -> bytes:
        first, second = inner.copy(), outer.copy()
        first.update(data)
        second.update(first.digest())
        return second.digest()

    return sign


def _as_is(data: bytes) -> bytes:
    return data


class DigestLayer:
    """The layer of one end: ``secret`` is H(A1); with a ``cipher`` it also encrypts."""

    def __init__(self, secret: bytes, *, cipher: str | None, is_client: bool) -> None:
        signs = [_hmac_md5(md5(secret + constant)) for constant in (_TO_SERVER, _TO_CLIENT)]
        seals: list[Callable[[bytes], bytes]] = [_as_is, _as_is]
        if cipher is not None:
            part = secret[: CIPHER_KEY_BYTES[cipher]]
            seals = [make_rc4(md5(part + constant)) for constant in (_SEAL_TO_SERVER, _SEAL_TO_CLIENT)]
        own, other = (0, 1) if is_client else (1, 0)
        self._sign, self._check = signs[own], signs[other]
        self._seal, self._unseal = seals[own], seals[other]
        self._sent = self._received = 0

    def wrap(self, data: bytes) -> bytes:
        number = self._sent
        self._sent = (number + 1) & 0xFFFFFFFF
        mac = self._sign(_NUMBER.pack(number) + data)[:_MAC_BYTES]
        return self._seal(data + mac) + _TAIL.pack(1, number)

    def unwrap(self, data: bytes) -> bytes:
        if len(data) < _MAC_BYTES + _TAIL.size:
            raise ProtocolError(f"a wrapped message of {len(data)} bytes is too short")
        version, number = _TAIL.unpack_from(data, len(data) - _TAIL.size)
        if version != 1 or number != self._received:
            raise ProtocolError(f"wrapped message {number} came where {self._received} was expected")
        plain = self._unseal(data[: -_TAIL.size])
        content, mac = plain[:-_MAC_BYTES], plain[-_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._check(_NUMBER.pack(number) + content)[:_MAC_BYTES]):
            raise ProtocolError(f"wrapped message {number} was changed on its way: its signature is wrong")
        self._received = (number + 1) & 0xFFFFFFFF
        return content
