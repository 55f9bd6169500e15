"""Calls the configured selector, which may be a user's code, from one thread at a time."""

from __future__ import annotations

from metaclient.config import Config
from metaclient.errors import ConfigError
from metaclient.meta.selector import Lookup, MetaView, selector_named
from metaclient.meta.stale import StaleRanges
from metaclient.model import RegionInfo
from metaclient.runtime import Runtime

__all__ = ["GuardedSelector"]


class GuardedSelector:
    """The selector of one connection, with its own lock: a slow selector does not block the HealthTracker."""

    def __init__(self, runtime: Runtime, config: Config) -> None:
        self._runtime = runtime
        self._config = config
        self._begin()
        runtime.on_fork(self._begin)

    def _begin(self) -> None:
        """Make a new selector, here and in a forked child: children must not all start with the same replica."""
        config = self._config
        self._lock = self._runtime.lock()  # guards the selector and its marks
        stale = StaleRanges(
            base_s=config.meta_stale_mark_s, max_s=config.meta_stale_mark_max_s, marks_max=config.meta_stale_marks_max
        )
        self._selector = selector_named(config.meta_selector, stale)

    def select(self, lookup: Lookup, view: MetaView) -> tuple[int, ...]:
        """Return the ids of the replicas to ask; raise ConfigError when the selector fails."""
        try:
            with self._lock:
                return tuple(self._selector.select(lookup, view))
        except Exception as error:
            raise ConfigError(f"meta_selector failed with {type(error).__name__}: {error}") from error

    def on_wrong_location(self, region: RegionInfo) -> None:
        """Report that a location of this region proved wrong."""
        with self._lock:
            self._selector.on_wrong_location(region, self._runtime.now())
