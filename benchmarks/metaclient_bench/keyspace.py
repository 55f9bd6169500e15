"""Row keys of the scenarios: a million of them, spread evenly over the regions."""

from __future__ import annotations

import random

__all__ = ["random_rows", "splits"]

ROWS = 1_000_000


def splits(regions: int) -> list[bytes]:
    """Return the split points of a table of that many regions of the same size.

    >>> splits(4)
    [b'250000', b'500000', b'750000']
    """
    return [b"%06d" % (number * ROWS // regions) for number in range(1, regions)]


def random_rows(count: int, seed: int) -> list[bytes]:
    chance = random.Random(seed)
    return [b"%06d" % chance.randrange(ROWS) for _ in range(count)]
