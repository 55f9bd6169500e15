"""Collects the events of connections for the list of events; equal ones within a second are counted, not repeated."""

from __future__ import annotations

from collections.abc import Mapping

from metaclient.runtime import Runtime
from metaclient.telemetry import Event
from metaclient.watch.figures import WatchEvent

__all__ = ["EventLog"]

#: Different events between two collections; more than these are counted as one.
PENDING_MAX = 100

_LEVELS: Mapping[str, str] = {
    "meta_replica_ejected": "warning",
    "meta_replica_healed": "good",
    "server_slow": "warning",
    "server_recovered": "good",
}
#: Frequent events that say nothing alone: the counters of the clients show them.
_COUNTED_ONLY = frozenset({"hedge_started", "location_lost", "location_moved"})
#: An instant of the runtime's clock, which is no time of day.
_OMITTED = frozenset({"until"})


class EventLog:
    """Events since the last :meth:`take`. ``client`` names the connection that had them."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = runtime.lock()  # guards the dictionary below
        self._pending: dict[tuple[str, str, str], int] = {}

    def record(self, client: str, event: Event) -> None:
        """Add an event of a connection."""
        if event.kind in _COUNTED_ONLY:
            return
        shown = ((name, value) for name, value in event.details.items() if value is not None and name not in _OMITTED)
        details = ", ".join(f"{name} {value}" for name, value in shown)
        words = event.kind.replace("_", " ")
        self.add("client", f"{client}: {words}{f' ({details})' if details else ''}", _LEVELS.get(event.kind, "info"))

    def add(self, kind: str, text: str, level: str = "info") -> None:
        key = (kind, text[:300], level)
        with self._lock:
            if key in self._pending or len(self._pending) < PENDING_MAX:
                self._pending[key] = self._pending.get(key, 0) + 1

    def take(self) -> tuple[WatchEvent, ...]:
        with self._lock:
            pending, self._pending = self._pending, {}
        now = self._runtime.time_ms()
        return tuple(
            WatchEvent(time_ms=now, kind=kind, text=text if count == 1 else f"{text}, {count} times", level=level)
            for (kind, text, level), count in pending.items()
        )
