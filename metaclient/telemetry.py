"""Defines the names of spans, metrics, attributes and events, and the object that counts and reports them.

Names follow OpenTelemetry's stable database conventions (``db.*``, ``server.address``, ``error.type``) where these have
a name; other names begin with ``metaclient.``. ``docs/telemetry.md`` has the same tables; a test compares them.

Without an SDK there is no cost: the connection checks for an SDK when it opens. The counters of ``Connection.stats()``
are kept with and without an SDK, and are not updated on the fast path.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any
from weakref import WeakSet

from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.trace import SpanKind, Status, StatusCode

from metaclient.model import RegionLocation
from metaclient.runtime import Runtime

__all__ = ["ATTRIBUTES", "EVENTS", "METRICS", "SPANS", "Event", "Listener", "Observed", "Telemetry"]

_log = logging.getLogger(__name__)

SCOPE = "metaclient"

#: Span name pattern -> the work that the span covers.
SPANS: Mapping[str, str] = {
    "{operation} {table}": "one call of a user: all attempts, lookups and hedges",
    "hbase:meta lookup": "one lookup in hbase:meta: the calls to all replicas that were tried",
}

ATTRIBUTES: Mapping[str, str] = {
    "db.system.name": "always `hbase`",
    "db.collection.name": "the table",
    "db.operation.name": "`row`, `rows`, `scan`, `put`, ...",
    "server.address": "the region server that answered",
    "error.type": "class of the error",
    "metaclient.backend": "`fake`, `thrift2`, ...",
    "metaclient.replica": "replica id that was asked",
    "metaclient.outcome": "`ok`, or the class of the error",
    "metaclient.stale": "the answer came from a secondary",
    "metaclient.reason": "why: `empty`, `garbled`, `timeout`, ...",
}

#: Metric name -> (unit, what it counts).
METRICS: Mapping[str, tuple[str, str]] = {
    "db.client.operation.duration": ("s", "duration of users' calls"),
    "metaclient.meta.reads": ("{call}", "calls to hbase:meta, by replica and outcome"),
    "metaclient.meta.fallbacks": ("{lookup}", "lookups that a further replica or the primary had to answer, by reason"),
    "metaclient.meta.hedges": ("{call}", "extra calls to hbase:meta, started after the hedge delay"),
    "metaclient.meta.ejections": ("{ejection}", "ejections of a meta replica or of its server, by replica"),
    "metaclient.meta.refreshes": ("{call}", "reads of the registry"),
    "metaclient.cache.hits": ("{lookup}", "lookups that the cache answered"),
    "metaclient.cache.misses": ("{lookup}", "lookups that had to read hbase:meta"),
    "metaclient.cache.regions": ("{region}", "regions whose locations are cached"),
    "metaclient.lookups": ("{lookup}", "lookups of a row that were sent to hbase:meta"),
    "metaclient.lookups.joined": ("{lookup}", "lookups that waited for another caller's lookup of the same region"),
    "metaclient.locations.lost": ("{location}", "cached locations that proved wrong, by error"),
    "metaclient.locations.moved": ("{location}", "cached locations that RegionMoved repaired without a lookup"),
    "metaclient.retries": ("{call}", "attempts after the first, by error"),
    "metaclient.hedges": ("{call}", "extra calls to region replicas, started after the hedge delay"),
    "metaclient.hedges.won": ("{call}", "reads that an extra call answered first"),
    "metaclient.diversions": ("{call}", "reads that called a replica first: the primary's server was slow or silent"),
    "metaclient.failovers": ("{call}", "reads that a replica answered because the primary had failed"),
    "metaclient.staleness.passed_over": (
        "{replica}",
        "replicas not called: their lag is unknown or over max_staleness",
    ),
    "metaclient.staleness.refused": ("{call}", "answers of replicas that were older than max_staleness"),
    "metaclient.staleness.probes": ("{call}", "background reads that measured the lag of a replica"),
}

#: Keyword arguments of ``count`` -> attribute names.
_ATTRIBUTE_OF: Mapping[str, str] = {
    "error": "error.type",
    "outcome": "metaclient.outcome",
    "reason": "metaclient.reason",
    "replica": "metaclient.replica",
}

#: The METRICS that are read when an SDK collects metrics, instead of counted: counting would slow down the cache.
WATCHED = ("metaclient.cache.hits", "metaclient.cache.misses", "metaclient.cache.regions")

EVENTS: Mapping[str, str] = {
    "meta_replica_ejected": "a meta replica (or its server) is out until a given time",
    "meta_replica_healed": "an ejected meta replica answered a probe",
    "meta_replicas_changed": "the registry names other replicas or servers than before",
    "meta_fallback": "a meta replica could not answer a lookup and the next one was asked",
    "location_lost": "a cached location proved wrong",
    "location_moved": "RegionMoved repaired a cached location",
    "hedge_started": "a read was sent to a further replica",
    "server_slow": "reads that a replica may answer avoid a server: a replica is faster by more than the hedge delay",
    "server_recovered": "a slow server is as fast as the replicas again",
    "retry": "an operation is tried again",
}


@dataclass(frozen=True, slots=True)
class Event:
    """An event for listeners; events never happen on the fast path."""

    kind: str
    at_s: float
    details: Mapping[str, object] = field(default_factory=dict)


Listener = Callable[[Event], None]


def _is_api_only(provider: object) -> bool:
    """Return True for the providers of the API package itself: no SDK is set up."""
    return type(provider).__module__.startswith(("opentelemetry.trace", "opentelemetry.metrics"))


#: The Telemetry objects of this process that are alive, and the provider whose instruments observe them: an instrument
#: is created once per provider, and its callback reports all connections.
_alive: WeakSet[Telemetry] = WeakSet()
_asked_by: list[metrics.MeterProvider] = []
_instruments: dict[str, Any] = {}


def _instruments_of(provider: metrics.MeterProvider) -> dict[str, Any]:
    """Return the instruments that all connections share: old SDKs (1.20) warn of two instruments of the same name."""
    if provider not in _asked_by:
        meter = metrics.get_meter(SCOPE)
        _watch_for(meter)
        made: dict[str, Any] = {}
        for name, (unit, text) in METRICS.items():
            if name not in WATCHED:
                make = meter.create_histogram if unit == "s" else meter.create_counter
                made[name] = make(name, unit=unit, description=text)
        _asked_by[:] = [provider]
        _instruments.clear()
        _instruments.update(made)
    return dict(_instruments)


def _watch_for(meter: metrics.Meter) -> None:
    for name in WATCHED:
        unit, text = METRICS[name]
        is_level = name.endswith("regions")
        make = meter.create_observable_up_down_counter if is_level else meter.create_observable_counter
        make(name, [_asked(name)], unit=unit, description=text)


def _asked(name: str) -> Callable[[CallbackOptions], list[Observation]]:
    def observe(options: CallbackOptions) -> list[Observation]:
        totals: Counter[str] = Counter()
        for telemetry in list(_alive):
            watched = telemetry._watched.get(name)
            if watched is not None:
                totals[telemetry._backend] += watched()
        return [Observation(total, {"metaclient.backend": backend}) for backend, total in totals.items()]

    return observe


class Telemetry:
    """The counters and events of one connection; reports to OpenTelemetry if an SDK is set up."""

    def __init__(self, runtime: Runtime, backend: str) -> None:
        self._runtime = runtime
        self._backend = backend
        self._listeners: tuple[Listener, ...] = ()
        self._begin()
        runtime.on_fork(self._begin)
        self.is_on = False
        self._tracer: trace.Tracer | None = None
        self._instruments: dict[str, Any] = {}
        self._watched: dict[str, Callable[[], int]] = {}
        _alive.add(self)
        self.look_for_sdk()

    def _begin(self) -> None:
        """Count from zero, here and in a forked child, because the parent reports its own numbers."""
        self._lock = self._runtime.lock()
        # Guarded by the lock:
        self._counts: Counter[tuple[str, tuple[tuple[str, object], ...]]] = Counter()

    def look_for_sdk(self) -> None:
        """Check whether an SDK is set up; called when a connection is created and when it opens."""
        if not _is_api_only(trace.get_tracer_provider()):
            self._tracer = trace.get_tracer(SCOPE)
        if not self._instruments and not _is_api_only(metrics.get_meter_provider()):
            self._instruments = _instruments_of(metrics.get_meter_provider())
        self.is_on = self._tracer is not None or bool(self._instruments)

    # -- counters and events ---------------------------------------------------------------------------------

    def watch(self, name: str, value: Callable[[], int]) -> None:
        """Register the function that reads one of WATCHED; it is called when an SDK collects metrics."""
        assert name in WATCHED, name
        self._watched[name] = value

    def count(self, name: str, amount: int = 1, **attributes: object) -> None:
        """Add to one of METRICS; attributes are named by the last word of their name."""
        assert name in METRICS, name
        with self._lock:
            self._counts[name, tuple(sorted(attributes.items()))] += amount
        instrument = self._instruments.get(name)
        if instrument is not None:
            instrument.add(amount, {_ATTRIBUTE_OF[key]: str(value) for key, value in attributes.items()})

    def total(self, name: str, **attributes: object) -> int:
        """Return the sum of one counter over all attributes that are not given."""
        wanted = set(attributes.items())
        with self._lock:
            return sum(n for (key, given), n in self._counts.items() if key == name and wanted <= set(given))

    def by(self, name: str, attribute: str) -> dict[object, int]:
        """Return one counter by the values of one attribute."""
        found: Counter[object] = Counter()
        with self._lock:
            for (key, given), n in self._counts.items():
                if key == name:
                    found[dict(given).get(attribute)] += n
        return dict(found)

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        """Add a listener for events; return a function that removes it."""
        with self._lock:
            self._listeners = (*self._listeners, listener)

        def remove() -> None:
            with self._lock:
                self._listeners = tuple(known for known in self._listeners if known is not listener)

        return remove

    def emit(self, kind: str, **details: object) -> None:
        assert kind in EVENTS, kind
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("%s %s", kind, details)
        for listener in self._listeners:
            try:
                listener(Event(kind, self._runtime.now(), details))
            except Exception:
                # A listener is the user's code: its exception must not end the operation.
                _log.exception("a listener of %s events raised", kind)

    # -- operations ------------------------------------------------------------------------------------------

    def operation(self, name: str, table: bytes, *, is_current: bool = True) -> Observed:
        """Return a span and a duration around one call; use it only when ``is_on``."""
        return Observed(self, name, table, is_current)

    @contextmanager
    def lookup(self, table: bytes) -> Iterator[None]:
        """Return a span around one lookup in hbase:meta."""
        if self._tracer is None:
            yield
            return
        attributes = {"db.system.name": "hbase", "db.collection.name": table.decode("utf-8", "replace")}
        with self._tracer.start_as_current_span("hbase:meta lookup", kind=SpanKind.CLIENT, attributes=attributes):
            yield


class Observed:
    """The span and the duration of one call of a user; a context manager.

    ``is_current`` False: the span does not become the current span, for calls that return to the user in between
    (scans).
    """

    __slots__ = ("_attributes", "_begun", "_current", "_span", "_telemetry")

    def __init__(self, telemetry: Telemetry, operation: str, table: bytes, is_current: bool) -> None:
        self._telemetry = telemetry
        self._attributes: dict[str, Any] = {
            "db.system.name": "hbase",
            "db.operation.name": operation,
            "db.collection.name": table.decode("utf-8", "replace"),
            "metaclient.backend": telemetry._backend,
        }
        self._span: trace.Span | None = None
        self._current: AbstractContextManager[object] = nullcontext()
        self._begun = telemetry._runtime.now()
        if telemetry._tracer is not None:
            name = f"{operation} {self._attributes['db.collection.name']}".rstrip()
            self._span = telemetry._tracer.start_span(name, kind=SpanKind.CLIENT, attributes=self._attributes)
            if is_current:
                self._current = trace.use_span(
                    self._span, end_on_exit=False, record_exception=False, set_status_on_exception=False
                )

    def answered(self, place: RegionLocation | None, *, is_stale: bool) -> None:
        """Record the replica that answered, if it is known: a gateway does not report it."""
        if self._span is not None:
            self._span.set_attribute("metaclient.stale", is_stale)
            if place is not None:
                self._span.set_attribute("server.address", place.server.host)
                self._span.set_attribute("metaclient.replica", place.replica_id)

    def __enter__(self) -> Observed:
        self._current.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._current.__exit__(kind, error, trace)
        telemetry = self._telemetry
        if isinstance(error, Exception):
            self._attributes["error.type"] = type(error).__name__
            if self._span is not None:
                self._span.set_attribute("error.type", type(error).__name__)
                self._span.record_exception(error)
                self._span.set_status(Status(StatusCode.ERROR, type(error).__name__))
        if self._span is not None:
            self._span.end()
        histogram = telemetry._instruments.get("db.client.operation.duration")
        if histogram is not None:
            histogram.record(telemetry._runtime.now() - self._begun, self._attributes)
