"""Reads Java's JKS trust stores: their certificates are not encrypted, so the standard library suffices.

::

    feedfeed | int32 version 2 | int32 count | entries | 20 bytes of SHA-1
    entry      int32 2 | UTF alias | 8 bytes date | UTF type | int32 length | DER

The SHA-1 covers the password in UTF-16, the text "Mighty Aphrodite" and the content (sun.security.provider.JavaKeyStore
of JDK 8 to 21); it is checked if a password is given.
"""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path
from typing import Final

from metaclient.errors import ConfigError

__all__ = ["parse_jks", "read_certificates"]

_MAGIC: Final = bytes.fromhex("feedfeed")
_DIGEST_BYTES: Final = 20
#: A trust store with all public authorities has 200 KB.
BYTES_MAX: Final = 16 << 20
_TAG_CERTIFICATE = 2


def read_certificates(path: str, *, kind: str = "", password: str | None = None) -> str | bytes:
    """Return the certificates of a file for ``SSLContext.load_verify_locations(cadata=...)``: PEM text, or DER.

    ``kind`` is JKS or PEM; "": decided by the first bytes. ConfigError if the file cannot be read.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; check the path and its permissions") from error
    if data.startswith(_MAGIC) or kind.upper() == "JKS":
        return b"".join(parse_jks(data, path, password))
    if b"-----BEGIN" in data:
        return data.decode("ascii", errors="ignore")
    raise ConfigError(
        f"{path}: neither PEM nor a JKS trust store; convert it with `keytool -exportcert -rfc -alias ALIAS -keystore "
        f"{path} -file ca.pem` (-list shows the aliases), and give ca='ca.pem'"
    )


def parse_jks(data: bytes, name: str, password: str | None = None) -> list[bytes]:
    """Return the certificates in DER of a trust store; ConfigError if it is none, is damaged, or holds private keys."""
    content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if len(data) > BYTES_MAX or not content.startswith(_MAGIC + bytes((0, 0, 0, 2))):
        raise _broken(name, "it is not a JKS trust store of version 2")
    if password is not None:
        salted = password.encode("utf-16-be") + b"Mighty Aphrodite" + content
        if not hmac.compare_digest(hashlib.sha1(salted, usedforsecurity=False).digest(), digest):
            raise _broken(name, "the password is wrong, or the file is damaged")
    reader = _TrustStoreReader(content, 8, name)
    found = []
    for _ in range(reader.number(4)):
        if reader.number(4) != _TAG_CERTIFICATE:
            raise _broken(name, "it holds a private key, so it is a key store and no trust store")
        reader.take(reader.number(2))  # the alias
        reader.take(8)
        reader.take(reader.number(2))  # the type
        found.append(reader.take(reader.number(4)))
    if reader.at != len(content):
        raise _broken(name, f"it has {len(content) - reader.at} bytes too many")
    return found


def _broken(name: str, why: str) -> ConfigError:
    return ConfigError(
        f"{name}: {why}; export the certificate with `keytool -exportcert -rfc -alias ALIAS -keystore {name} -file "
        "ca.pem` (-list shows the aliases), and give ca='ca.pem'"
    )


class _TrustStoreReader:
    def __init__(self, data: bytes, at: int, name: str) -> None:
        self._data = data
        self.at = at
        self._name = name

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self._data):
            raise _broken(self._name, f"it is cut at byte {len(self._data)}")
        taken, self.at = self._data[self.at : end], end
        return taken
