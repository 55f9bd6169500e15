"""Streams on a busy machine.

Spark gives a Python process that serves a stream 10 s to start, and no setting changes that. Whoever starts a stream in
a test tries again when that was not enough; everything else is an error as always.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["patiently"]

T = TypeVar("T")
TOO_SLOW = "failed to connect back"
TRIES = 10


def patiently(run: Callable[[], T]) -> T:
    """What ``run`` answers; run again when Spark lost patience with its own worker."""
    for _ in range(TRIES - 1):
        try:
            return run()
        except Exception as error:
            if TOO_SLOW not in str(error):
                raise
    return run()
