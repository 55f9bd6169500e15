r"""Decides the bytes of a log position in a node: ``PBUF`` and a ``ReplicationHLogPosition`` (``ZKUtil``, HBase 2.6).

A last pushed sequence id is stored in the same form.

>>> encode_position(300)
b'PBUF\x08\xac\x02'
>>> decode_position(b"PBUF\x08\xac\x02"), decode_position(b"")
(300, 0)
"""

from __future__ import annotations

from metaclient.wire.rpc.protobuf import SIGNED, Message, decode, encode

__all__ = ["decode_position", "encode_position"]

_MAGIC = b"PBUF"
_POSITION = Message("ReplicationHLogPosition", (1, "position!", SIGNED))


def encode_position(position: int) -> bytes:
    return _MAGIC + encode(_POSITION, {"position": position})


def decode_position(data: bytes) -> int:
    """Return the position; 0 for an empty node, which is how HBase adds a log to a queue. Raises ValueError."""
    if not data:
        return 0
    if not data.startswith(_MAGIC):
        raise ValueError(f"a position begins with PBUF, got {data[:20]!r}")
    return int(decode(_POSITION, data[len(_MAGIC) :])["position"])
