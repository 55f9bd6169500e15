"""Changes recorded frames at random: the same seed makes the same inputs."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

__all__ = ["BYTES_MAX", "mutated"]

#: Longer inputs find no more, and take longer.
BYTES_MAX = 64 * 1024
_NUMBERS = (-(2**31), -1, 0, 1, 15, 127, 128, 255, 65_535, 2**24, 2**31 - 1)
_BYTES = (0, 1, 9, 11, 12, 13, 15, 0x7F, 0x80, 0x82, 0xFF)


def mutated(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    """Return one of the seeds after one to six changes."""
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.randint(1, 6)):
        _change(rng, data, seeds)
        del data[BYTES_MAX:]
    return bytes(data)


def _change(rng: random.Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    at = rng.randrange(len(data) + 1)
    match rng.randrange(10):
        case 0 if at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        case 1 if at < len(data):
            data[at] = rng.choice(_BYTES)
        case 2:
            data[at : at + 4] = struct.pack(">i", rng.choice(_NUMBERS))
        case 3:
            del data[at : at + rng.randint(1, 16)]
        case 4:
            del data[at:]
        case 5:
            data[at:at] = data[at : at + rng.randint(1, 32)] * rng.choice((1, 2, 50, 5_000))
        case 6:
            other = rng.choice(seeds)
            data[at:] = other[rng.randrange(len(other) + 1) :]
        case 7:
            data[at:at] = bytes((rng.choice(_BYTES),)) * rng.choice((1, 4, 11, 1_000))
        case 8 if at < len(data):  # what is quadratic in a run of one byte shows
            data[at:at] = data[at : at + 1] * 20_000
        case _:
            data[at:at] = rng.randbytes(rng.randint(1, 8))
