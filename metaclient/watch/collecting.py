"""The interfaces between the watcher and a cluster: a collector of figures, and the controls of a fake."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from metaclient.watch.figures import ClusterFigures, WatchEvent

if TYPE_CHECKING:
    from metaclient.connection import Connection

__all__ = ["Collector", "Controls", "WatchOptions", "WatchedBackend", "collector_for"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """What a user may choose about the collection of figures."""

    #: Lookups of this program per second, which measure latency and health of the meta replicas; 0 makes none.
    lookups_per_s: float = 1.0
    #: Makes a connection that looks up rows as HBase's Java client does, for comparison; None makes no such lookups.
    connect_java: Callable[[], Connection] | None = None
    #: The port of the region servers' info pages (JMX); None: as the master reports it, else HBase's default.
    jmx_port: int | None = None


class Controls(Protocol):
    """Buttons that break a fake cluster and repair it."""

    @property
    def server_actions(self) -> Mapping[str, str]:
        """The actions on one server: name -> what it does."""
        ...

    @property
    def cluster_actions(self) -> Mapping[str, str]:
        """The actions on the whole cluster: name -> what it does."""
        ...

    def run(self, action: str, server: str | None) -> str:
        """Run an action; return what was done. ValueError for an action or a server that does not exist."""
        ...


class Collector(Protocol):
    """Collects the figures of one cluster. Not safe for concurrent use, except ``controls``."""

    @property
    def controls(self) -> Controls | None:
        """The buttons of a fake; None for a real cluster."""
        ...

    def collect(self) -> ClusterFigures:
        """Return the newest figures without waiting for a server: slow sources are read in the background."""
        ...

    def take_events(self) -> tuple[WatchEvent, ...]:
        """Return the events since the last call that figures do not show: ejections, fallbacks, retries."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class WatchedBackend(Protocol):
    """The additional method of a backend that knows its cluster from the inside."""

    def make_collector(self, connection: Connection, options: WatchOptions) -> Collector: ...


def collector_for(connection: Connection, options: WatchOptions | None = None) -> Collector:
    """Return the collector of a connection's cluster: the backend's own, or one that asks the cluster by calls."""
    from metaclient.watch.real_cluster import RealClusterCollector

    chosen = options or WatchOptions()
    backend = connection.engine.backend
    if isinstance(backend, WatchedBackend):
        return backend.make_collector(connection, chosen)
    return RealClusterCollector(connection, chosen)
