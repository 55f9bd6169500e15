"""Decides how replication to other clusters is reported as OpenTelemetry metrics.

The metrics are observable gauges: they are read by a collection, and cost nothing when no SDK is set up. Names
are here and in ``docs/replication.md``; a test keeps both equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

from metaclient.errors import ConnectionClosed
from metaclient.replication_peers import ReplicationStatus, SourceLoad
from metaclient.telemetry import SCOPE

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation

__all__ = ["METRICS", "StatusPlace", "observe"]

_APPLIED = "metaclient.fake.peer.applied"
#: Metric name -> (unit, what it shows). Attributes: ``metaclient.cluster`` (its id), ``server.address``; of sources
#: also ``metaclient.peer`` and ``metaclient.queue``.
METRICS: Mapping[str, tuple[str, str]] = {
    "metaclient.fake.peer.age": ("s", "age of the last shipped edit when it was shipped"),
    "metaclient.fake.peer.lag": ("s", "age of the batch that is being shipped; 0 when there is none"),
    "metaclient.fake.peer.queue.logs": ("{file}", "log files that are not read to their end"),
    "metaclient.fake.peer.queue.edits": ("{edit}", "log entries, of all tables, that are not acknowledged"),
    "metaclient.fake.peer.queue": ("By", "bytes of these entries"),
    "metaclient.fake.peer.shipped": ("{edit}", "rows that the peer has acknowledged"),
    "metaclient.fake.peer.sinks": ("{server}", "servers of the peer that the source sends to"),
    "metaclient.fake.peer.failures": ("{call}", "calls to sinks that failed"),
    "metaclient.fake.peer.blocked": ("{region}", "regions whose next edit a serial peer may not get yet"),
    _APPLIED: ("{edit}", "edits of other clusters that a server has applied"),
}

_OF_SOURCE: Mapping[str, Callable[[SourceLoad], float]] = {
    "metaclient.fake.peer.age": lambda load: load.age_of_last_shipped_ms / 1000,
    "metaclient.fake.peer.lag": lambda load: load.lag_ms / 1000,
    "metaclient.fake.peer.queue.logs": lambda load: load.log_queue,
    "metaclient.fake.peer.queue.edits": lambda load: load.queue_edits or 0,
    "metaclient.fake.peer.queue": lambda load: load.queue_bytes or 0,
    "metaclient.fake.peer.shipped": lambda load: load.edits_shipped,
    "metaclient.fake.peer.sinks": lambda load: len(load.sinks),
    "metaclient.fake.peer.failures": lambda load: load.failed_calls or 0,
    "metaclient.fake.peer.blocked": lambda load: len(load.blocked),
}


class StatusPlace(Protocol):
    """The owner of the status: the replication of a cluster."""

    cluster_id: str

    def statuses(self) -> Sequence[ReplicationStatus]:
        """Return the sources and the sink of each live server."""
        ...


#: The living places of this process, and the provider whose instruments observe them. An SDK collects one instrument of
#: a name only, so that all clusters share it: those that replicate to each other are often in one process.
_places: WeakSet[StatusPlace] = WeakSet()
_observed_by: list[object] = []


def observe(place: StatusPlace) -> None:
    """Report to OpenTelemetry, if it is set up, for as long as ``place`` exists."""
    from opentelemetry import metrics

    provider = metrics.get_meter_provider()
    if type(provider).__module__.startswith("opentelemetry.metrics"):
        return
    _places.add(place)
    if provider in _observed_by:
        return
    _observed_by[:] = [provider]
    meter = metrics.get_meter(SCOPE)
    for name, (unit, text) in METRICS.items():
        meter.create_observable_gauge(name, [_callback(name)], unit=unit, description=text)


def _callback(name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def collect(options: CallbackOptions) -> Iterator[Observation]:
        for place in list(_places):
            try:
                statuses = place.statuses()
            except ConnectionClosed:  # the runtime of that cluster is closed
                continue
            yield from _observed(name, place.cluster_id, statuses)

    return collect


def _observed(name: str, cluster_id: str, statuses: Iterable[ReplicationStatus]) -> Iterator[Observation]:
    from opentelemetry.metrics import Observation

    for status in statuses:
        at = {"metaclient.cluster": cluster_id, "server.address": status.server.host}
        if name == _APPLIED:
            if status.sink is not None:
                yield Observation(status.sink.edits_applied, at)
            continue
        for load in status.sources:
            attributes = {**at, "metaclient.peer": load.peer_id, "metaclient.queue": load.queue_id}
            yield Observation(_OF_SOURCE[name](load), attributes)
