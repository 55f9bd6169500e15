"""Row keys and qualifiers as text: the form of HBase's ``Bytes.toBytesBinary``, in both directions."""

from __future__ import annotations

import re

from metaclient import keys
from metaclient.errors import ConfigError

__all__ = ["bytes_of", "text_of"]

_ESCAPE = re.compile(r"\\x([0-9A-Fa-f]{2})")


def bytes_of(text: str, what: str = "row key") -> bytes:
    r"""Return the key of a text in the form of ``Bytes.toBytesBinary``: ``\xNN`` is a byte, the rest is UTF-8.

    >>> bytes_of("a\\x00\\xFF,b")
    b'a\x00\xff,b'
    """
    parts: list[bytes] = []
    at = 0
    for match in _ESCAPE.finditer(text):
        parts.append(text[at : match.start()].encode())
        parts.append(bytes.fromhex(match[1]))
        at = match.end()
    rest = text[at:]
    if "\\" in rest or any(b"\\" in part for part in parts[::2]):
        raise ConfigError(
            f"{what} {text!r}: a backslash must begin \\xNN (two hex digits); write \\x5C for a backslash"
        )
    parts.append(rest.encode())
    return b"".join(parts)


def text_of(key: bytes) -> str:
    r"""Return the text that :func:`bytes_of` converts back: UTF-8 if all of it is printable, else ``\xNN`` escapes.

    >>> text_of("é1".encode()), text_of(b"\xff1")
    ('é1', '\\xFF1')
    """
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return keys.printable(key, len(key))
    return text if text.isprintable() and "\\" not in text else keys.printable(key, len(key))
