"""Compares the times of small functions in one run, so that noise of the machine affects all of them."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence

__all__ = ["best_of", "interleaved"]

Work = Callable[[Sequence[bytes]], None]


def interleaved(works: Mapping[str, Work], rows: Sequence[bytes], rounds: int) -> dict[str, list[float]]:
    """Return the seconds per row of each function and round; each round runs all, so that noise affects all."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work(rows)
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, work in works.items():
                began = time.perf_counter()
                work(rows)
                seconds[name].append((time.perf_counter() - began) / len(rows))
    finally:
        if was_enabled:
            gc.enable()
    return seconds


def best_of(seconds: Mapping[str, Sequence[float]], *, less: str) -> dict[str, float]:
    """Return the best round of each minus the best of the empty loop ``less``; noise only adds time."""
    loop = min(seconds[less])
    return {name: min(each) - loop for name, each in seconds.items() if name != less}
