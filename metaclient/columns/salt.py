r"""Salted row keys: one byte before the key, so that keys that follow each other are written to different regions.

The salt of a key is computed from all its bytes, as Phoenix does for ``SALT_BUCKETS`` (``SaltingUtil``): Java's hash
of the bytes, modulo the number of buckets. So a row is found by its key in one bucket, and Phoenix finds it, too.

>>> salted(b"user1", 16), salted(b"user2", 16)
(b'\x05user1', b'\x06user2')
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

__all__ = ["BUCKETS_MAX", "salt_of", "salted", "salted_array", "salts_of", "unsalted_array"]

#: The most buckets; as in Phoenix.
BUCKETS_MAX = 256


def salt_of(key: bytes, buckets: int) -> int:
    """Return the bucket of a key."""
    found = 1
    for byte in key:
        found = 31 * found + (byte if byte < 128 else byte - 256)
    found &= 0xFFFFFFFF
    return (found if found < 1 << 31 else (1 << 32) - found) % buckets


def salted(key: bytes, buckets: int) -> bytes:
    """Return the row key with its salt; the key itself for 0 buckets."""
    return bytes((salt_of(key, buckets),)) + key if buckets else key


def _flat(keys: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the borders of the keys (one more than keys, from 0 on) in their bytes, which Java reads as signed."""
    import numpy as np
    import pyarrow as pa

    keys = keys.cast(pa.large_binary())
    _, ends, data = keys.buffers()
    if not len(keys) or data is None:
        return np.zeros(len(keys) + 1, dtype=np.int64), np.empty(0, dtype=np.int8)
    borders = np.frombuffer(ends, dtype=np.int64)[keys.offset : keys.offset + len(keys) + 1]
    return borders - borders[0], np.frombuffer(data, dtype=np.int8)[borders[0] : borders[-1]]


def salts_of(keys: pa.Array, buckets: int) -> np.ndarray:
    """Return the bucket of each key of an Arrow array of type binary or large_binary without nulls."""
    import numpy as np

    borders, data = _flat(keys)
    starts, lengths = borders[:-1], np.diff(borders)
    found = np.ones(len(keys), dtype=np.uint32)
    for at in range(int(lengths.max(initial=0))):
        has_more = lengths > at
        found[has_more] = found[has_more] * np.uint32(31) + data[starts[has_more] + at].astype(np.uint32)
    magnitude = np.abs(found.view(np.int32).astype(np.int64))
    return (magnitude % buckets).astype(np.uint8)


def unsalted_array(rows: pa.Array, buckets: int) -> pa.Array | None:
    """Return the keys of salted rows, in the same type; None if a row has another salt than its bytes give."""
    import numpy as np
    import pyarrow as pa

    borders, data = _flat(rows)
    if len(rows) and not np.diff(borders).min():
        return None  # a row of no bytes
    is_key = np.ones(len(data), dtype=bool)
    is_key[borders[:-1]] = False
    ends = np.ascontiguousarray(borders - np.arange(len(rows) + 1))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(data[is_key]))]
    keys = pa.Array.from_buffers(pa.large_binary(), len(rows), buffers)
    is_right = np.array_equal(salts_of(keys, buckets), data[borders[:-1]].view(np.uint8))
    return keys.cast(rows.type) if is_right else None


def salted_array(keys: pa.Array, buckets: int) -> pa.Array:
    """Return the row keys with their salts, as large_binary; the keys themselves for 0 buckets."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if not buckets or not len(keys):
        return keys
    salts = np.ascontiguousarray(salts_of(keys, buckets))
    borders = np.arange(len(keys) + 1, dtype=np.int64)
    first = pa.Array.from_buffers(pa.large_binary(), len(keys), [None, pa.py_buffer(borders), pa.py_buffer(salts)])
    return pc.binary_join_element_wise(first, keys.cast(pa.large_binary()), pa.scalar(b"", pa.large_binary()))
