"""The size limit of replies, for clients of all protocols: it bounds the memory that a broken or hostile peer takes.

The server ends a page of a scan, and a batch of gets, after ``hbase.server.scanner.max.result.size`` bytes (100 MB
unless it is set). The last row or cell may exceed it, and the reply has more bytes than its cells, so the limit here
is greater.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from metaclient.errors import ConfigError

__all__ = ["REPLY_BYTES_MAX", "RESULT_BYTES_KEY", "explain_reply_limit", "read_reply_bytes_max"]

RESULT_BYTES_KEY: Final = "hbase.server.scanner.max.result.size"
_RESULT_BYTES: Final = 100 << 20  # HConstants.DEFAULT_HBASE_SERVER_SCANNER_MAX_RESULT_SIZE
#: Twice the greatest cell of HBase's default (10 MB, hbase.server.keyvalue.maxsize), and the heads of the other cells.
_MORE_BYTES: Final = 28 << 20
REPLY_BYTES_MAX: Final = _RESULT_BYTES + _MORE_BYTES
#: The length of a frame is a signed number of 32 bits.
_RESULT_BYTES_MAX: Final = (1 << 31) - 1 - _MORE_BYTES


def read_reply_bytes_max(properties: Mapping[str, str]) -> int:
    """Return the limit in bytes for these properties; ConfigError if the property is not a number of bytes.

    >>> read_reply_bytes_max({}) >> 20, read_reply_bytes_max({RESULT_BYTES_KEY: str(400 << 20)}) >> 20
    (128, 428)
    """
    text = properties.get(RESULT_BYTES_KEY, str(_RESULT_BYTES)).strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and 0 < int(text) <= _RESULT_BYTES_MAX):
        raise ConfigError(
            f"{RESULT_BYTES_KEY} must be a number of bytes from 1 to {_RESULT_BYTES_MAX}, got {text[:50]!r}"
        )
    return int(text) + _MORE_BYTES


def explain_reply_limit(bytes_max: int) -> str:
    """Return the reason and the remedies for a reply that is longer than the limit."""
    return f"the limit is {bytes_max}: request fewer rows or cells per call, or raise {RESULT_BYTES_KEY}"
