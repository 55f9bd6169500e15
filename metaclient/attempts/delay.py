"""Decides how long a read waits for the first replica before it calls another: fixed, or a quantile of latencies.

``d = clamp(quantile(q, last N latencies of the primary), min, max)``. The fixed delay is used until there are enough
samples. A hedge after the 95th percentile costs 5 % more calls by construction. The budget limits hedges when latencies
change faster than the window.
"""

from __future__ import annotations

from collections import deque

__all__ = ["HedgeDelay", "LatencyWindow"]

#: The number of samples kept. With 128 samples the 99th percentile depends on a single sample.
WINDOW = 128
#: The quantile is computed again after this many new samples: sorting at each read would cost more than the read.
REFRESH = 16
#: A sample counts at most as this many delays. A pause of a server delays every read in flight, which can be more than
#: one in twenty of the window; the delay must not become as long as the pause.
GROWTH = 2


class LatencyWindow:
    """The last latencies of one kind of call, and their quantiles.

    >>> window = LatencyWindow()
    >>> for ms in range(1, 101): window.add(ms / 1000)
    >>> window.quantile(0.95)
    0.096
    """

    __slots__ = ("_cached", "_fresh", "_samples")

    def __init__(self) -> None:
        self._samples: deque[float] = deque(maxlen=WINDOW)
        self._fresh = 0
        self._cached: dict[float, float] = {}

    def __len__(self) -> int:
        return len(self._samples)

    def add(self, latency_s: float) -> None:
        self._samples.append(latency_s)
        self._fresh += 1
        if self._fresh >= REFRESH:
            self._fresh = 0
            self._cached = {}

    def clear(self) -> None:
        self._samples.clear()
        self._cached = {}

    def quantile(self, q: float) -> float:
        """Return the q-quantile (nearest rank); 0.0 without samples. It is refreshed every REFRESH samples."""
        found = self._cached.get(q)
        if found is not None:
            return found
        ordered = sorted(self._samples.copy())  # the copy is atomic: another thread may be adding samples
        if not ordered:
            return 0.0
        value = ordered[min(int(q * len(ordered)), len(ordered) - 1)]
        self._cached = {**self._cached, q: value}
        return value


class HedgeDelay:
    """The hedge delay of one kind of read."""

    __slots__ = (
        "_adaptive",
        "_delay_s",
        "_max_s",
        "_min_s",
        "_quantile",
        "_quantiles",
        "_samples_min",
        "fixed_s",
        "window",
    )

    def __init__(
        self, *, fixed_s: float, adaptive: bool, quantile: float, min_s: float, max_s: float, samples_min: int
    ) -> None:
        self.fixed_s = fixed_s
        self._adaptive = adaptive
        self._quantile = quantile
        self._min_s = min_s
        self._max_s = max_s
        self._samples_min = samples_min
        self.window = LatencyWindow()
        self._delay_s = fixed_s  # the delay that follows from these quantiles of the window
        self._quantiles: dict[float, float] | None = None

    @property
    def is_adaptive(self) -> bool:
        return self._adaptive

    def add(self, latency_s: float) -> None:
        """Record how long a read waited for its first replica; the delay grows at most by GROWTH at a time."""
        self.window.add(min(latency_s, GROWTH * self.delay_s()))

    def delay_s(self) -> float:
        window = self.window
        if window._cached is self._quantiles:  # the usual case: the window has not been refreshed since
            return self._delay_s
        if not self._adaptive or len(window) < self._samples_min:
            return self.fixed_s
        delay_s = min(max(window.quantile(self._quantile), self._min_s), self._max_s)
        self._delay_s, self._quantiles = delay_s, window._cached
        return delay_s
