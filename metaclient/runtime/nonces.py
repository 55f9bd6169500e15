"""Random bytes for authentication, which an observer of other random numbers of the process cannot predict."""

from __future__ import annotations

import os

__all__ = ["draw_secret"]


def draw_secret(count: int) -> bytes:
    """Return random bytes of the operating system. Never used where a seed decides."""
    return os.urandom(count)
