"""Decides how region replication is reported: as JSON-able values and as metrics.

The metrics are observable gauges: they are read by a collection, and cost nothing when no SDK is set up. Names
are here and in ``docs/replication.md``; a test keeps both equal.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Protocol

from metaclient.telemetry import SCOPE
from metaclient_fake.region_replication.replica_queue import ReplicaStatus
from metaclient_fake.region_replication.sink import Sink

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation

__all__ = ["METRICS", "SinkPlace", "observe", "sink_picture"]

#: Metric name -> (unit, what it shows). Attributes: ``metaclient.region``, ``db.collection.name``,
#: ``metaclient.replica``; of the buffer: ``server.address``.
METRICS: Mapping[str, tuple[str, str]] = {
    "metaclient.fake.replication.lag": ("s", "age of the oldest edit that a replica lacks"),
    "metaclient.fake.replication.lag.edits": ("{edit}", "edits that a replica lacks"),
    "metaclient.fake.replication.queue": ("By", "bytes that wait for a replica, without those in flight"),
    "metaclient.fake.replication.in_flight": ("{edit}", "edits in flight to a replica"),
    "metaclient.fake.replication.failed": ("s", "how long a replica has been failed; 0 when it is healthy"),
    "metaclient.fake.replication.dropped": ("{edit}", "edits that a replica was not sent, and got or gets by files"),
    "metaclient.fake.replication.buffer": ("By", "bytes that all sinks of a server hold"),
}

_OF_REPLICA: Mapping[str, Callable[[ReplicaStatus], float]] = {
    "metaclient.fake.replication.lag": lambda replica: replica.lag_s,
    "metaclient.fake.replication.lag.edits": lambda replica: replica.lag_edits,
    "metaclient.fake.replication.queue": lambda replica: replica.queue_bytes,
    "metaclient.fake.replication.in_flight": lambda replica: replica.in_flight_edits,
    "metaclient.fake.replication.failed": lambda replica: replica.failed_s or 0.0,
    "metaclient.fake.replication.dropped": lambda replica: replica.edits_dropped,
}


class SinkPlace(Protocol):
    """The owner of all sinks: the cluster."""

    def sinks(self) -> Iterable[tuple[str, str, Sink]]:
        """Return server, table and sink of each open primary that has a sink."""
        ...

    def buffers(self) -> Iterable[tuple[str, int]]:
        """Return each server and the bytes that its sinks hold."""
        ...


def sink_picture(server: str, table: str, sink: Sink, now: float) -> dict[str, object]:
    """Return the state of one primary and its replicas, as part of ``FakeCluster.status()``."""
    requester = sink.requester
    return {
        "table": table,
        "server": server,
        "state": sink.state.value,
        "epoch": sink.epoch,
        "pending_bytes": sink.pending_bytes,
        "last_sequence_id": sink.last_sequence_id,
        "flush_asked_s_ago": _ago(requester.asked_at, now),
        "flush_seen_s_ago": _ago(sink.flush_seen_at, now),
        "flushes_for_replicas": requester.runs,
        "replicas": {str(replica.replica_id): asdict(replica) for replica in sink.replicas()},
    }


def _ago(instant: float | None, now: float) -> float | None:
    return None if instant is None else now - instant


def observe(place: SinkPlace) -> None:
    """Report to OpenTelemetry, if it is set up, for as long as ``place`` exists."""
    from opentelemetry import metrics

    if type(metrics.get_meter_provider()).__module__.startswith("opentelemetry.metrics"):
        return
    meter, known = metrics.get_meter(SCOPE), weakref.ref(place)
    for name, (unit, text) in METRICS.items():
        meter.create_observable_gauge(name, [_callback(name, known)], unit=unit, description=text)


def _callback(name: str, known: weakref.ref[SinkPlace]) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def collect(options: CallbackOptions) -> Iterator[Observation]:
        place = known()
        return iter(()) if place is None else _observed(name, place)

    return collect


def _observed(name: str, place: SinkPlace) -> Iterator[Observation]:
    from opentelemetry.metrics import Observation

    value_of = _OF_REPLICA.get(name)
    if value_of is None:
        for server, held in place.buffers():
            yield Observation(held, {"server.address": server})
        return
    for _, table, sink in place.sinks():
        for replica in sink.replicas():
            attributes: Mapping[str, str | int] = {
                "metaclient.region": sink.name,
                "db.collection.name": table,
                "metaclient.replica": replica.replica_id,
            }
            yield Observation(value_of(replica), attributes)
