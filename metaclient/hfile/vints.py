"""Numbers of variable length as Hadoop's WritableUtils writes them.

A number from -112 to 127 is one byte. Otherwise the first byte is -112 - n (or -120 - n of a negative number), and n
bytes follow, the highest first.
"""

from __future__ import annotations

from metaclient.hfile.errors import CorruptFile

__all__ = ["SIZES", "encode_vint", "read_vint"]


def _size(first: int) -> int:
    signed = first - 256 if first > 0x7F else first
    if signed >= -112:
        return 1
    return -119 - signed if signed < -120 else -111 - signed


#: The length of a number by its first byte.
SIZES = bytes(_size(first) for first in range(256))


def encode_vint(value: int) -> bytes:
    """
    >>> encode_vint(5).hex(), encode_vint(300).hex()
    ('05', '8e012c')
    """
    if -112 <= value <= 127:
        return (value & 0xFF).to_bytes(1, "big")
    magnitude = value if value >= 0 else ~value
    size = (magnitude.bit_length() + 7) // 8
    first = (-112 if value >= 0 else -120) - size
    return (first & 0xFF).to_bytes(1, "big") + magnitude.to_bytes(size, "big")


def read_vint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return the number at this offset, and the offset behind it; CorruptFile if it is cut short.

    >>> read_vint(encode_vint(-300), 0)
    (-300, 3)
    """
    if not 0 <= at < len(data):
        raise CorruptFile(f"a number is missing at byte {at} of {len(data)}")
    first = data[at]
    size = SIZES[first]
    if size == 1:
        return first - 256 if first > 0x7F else first, at + 1
    if at + size > len(data):
        raise CorruptFile(f"a number is cut short at byte {at} of {len(data)}")
    magnitude = int.from_bytes(data[at + 1 : at + size], "big")
    return (~magnitude if first < 256 - 120 else magnitude), at + size
