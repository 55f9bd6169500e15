"""Spans, metrics and events: named in one place, right, and free when nobody listens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from metaclient import telemetry
from metaclient.connection import Connection, connect_to
from metaclient.errors import CallQueueTooBig, NoSuchFamily
from metaclient.runtime import SimRuntime
from metaclient.testing import ScriptedBackend

DOCS = Path(__file__).resolve().parents[2] / "docs" / "telemetry.md"


@pytest.fixture
def runtime() -> Iterator[SimRuntime]:
    with SimRuntime(seed=1) as made:
        yield made


def cluster(runtime: SimRuntime) -> ScriptedBackend:
    backend = ScriptedBackend(runtime, meta_replicas=3, latency_s=0.001)
    backend.add_table("t", splits=[b"m"], region_replication=2)
    return backend


class Sdk:
    """An SDK that keeps in memory what it is told, set up without touching the process's global providers."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])

    def spans(self) -> dict[str, Any]:
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def points(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        return [
            point
            for resource in (data.resource_metrics if data is not None else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@pytest.fixture
def sdk(monkeypatch: pytest.MonkeyPatch) -> Sdk:
    made = Sdk()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: made.tracers)
    monkeypatch.setattr(trace, "get_tracer", lambda name: made.tracers.get_tracer(name))
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: made.meters)
    monkeypatch.setattr(metrics, "get_meter", lambda name: made.meters.get_meter(name))
    return made


@pytest.fixture
def connection(runtime: SimRuntime, sdk: Sdk) -> Connection:
    return connect_to(cluster(runtime), runtime=runtime)


# -- names -----------------------------------------------------------------------------------------------------


def _table(section: str) -> dict[str, tuple[str, ...]]:
    """The rows of the table in a section of the docs: first column -> the others."""
    text = DOCS.read_text().partition(f"## {section}\n")[2].partition("\n## ")[0]
    found: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        if line.startswith("| `"):
            name, *others = [cell.strip() for cell in line.strip("|").split("|")]
            if len(others) == 2:  # the unit is code, too
                others[0] = others[0].strip("`")
            found[name.strip("`")] = tuple(others)
    return found


def test_docs_and_code_have_the_same_names() -> None:
    """docs/telemetry.md: "a test keeps both equal"."""
    assert _table("Spans") == {name: (text,) for name, text in telemetry.SPANS.items()}
    assert _table("Attributes") == {name: (text,) for name, text in telemetry.ATTRIBUTES.items()}
    assert _table("Metrics") == dict(telemetry.METRICS.items())
    assert _table("Events") == {name: (text,) for name, text in telemetry.EVENTS.items()}


def test_every_declared_name_is_used() -> None:
    """One that is used and not declared is an assertion at its first use."""
    package = Path(telemetry.__file__).parent
    source = "\n".join(
        path.read_text() for path in package.rglob("*.py") if path.name not in ("telemetry.py", "connection.py")
    )
    words = set(re.findall(r'"([a-z_.]+)"', source))
    counters = set(telemetry.METRICS) - {"db.client.operation.duration"}
    assert counters <= words
    assert set(telemetry.EVENTS) <= words


def test_unknown_name_is_our_own_mistake(runtime: SimRuntime) -> None:
    made = telemetry.Telemetry(runtime, "test")
    with pytest.raises(AssertionError, match="nope"):
        made.count("nope")
    with pytest.raises(AssertionError, match="nope"):
        made.emit("nope")


# -- nobody listens --------------------------------------------------------------------------------------------


def test_nothing_is_paid_without_an_sdk(runtime: SimRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is paid when no SDK is set up: no span object, no observed call, nothing recorded."""
    backend = cluster(runtime)
    connection = connect_to(backend, runtime=runtime)
    assert not connection.engine.telemetry.is_on

    def never(*args: object, **kwargs: object) -> None:
        raise AssertionError("paid for nobody")

    monkeypatch.setattr(telemetry, "Observed", never)
    monkeypatch.setattr(trace, "NonRecordingSpan", never)
    monkeypatch.setattr(trace.NoOpTracer, "start_span", never)
    monkeypatch.setattr(trace.ProxyTracer, "start_span", never)
    monkeypatch.setattr(trace, "use_span", never)
    table = connection.table("t")
    table.put(b"a", {b"cf:a": b"1"})
    assert table.row(b"a") == {b"cf:a": b"1"}
    assert table.row(b"a", consistency="TIMELINE") == {b"cf:a": b"1"}
    assert len(list(table.scan())) == 1
    assert connection.stats()["lookups"]["flights"] >= 1


def test_sdk_that_is_set_up_later_is_found_when_the_connection_opens(runtime: SimRuntime, request: Any) -> None:
    connection = connect_to(cluster(runtime), runtime=runtime, autoconnect=False)
    assert not connection.engine.telemetry.is_on
    request.getfixturevalue("sdk")
    connection.open()
    assert connection.engine.telemetry.is_on


# -- spans -----------------------------------------------------------------------------------------------------


def test_operation_has_a_span_that_says_who_answered(connection: Connection, sdk: Sdk) -> None:
    connection.table("t").row(b"a", consistency="TIMELINE", replica_id=1)
    span = sdk.spans()["row t"]
    assert span.kind is SpanKind.CLIENT
    assert dict(span.attributes) == {
        "db.system.name": "hbase",
        "db.operation.name": "row",
        "db.collection.name": "t",
        "metaclient.backend": "scripted",
        "metaclient.stale": True,
        "metaclient.replica": 1,
        "server.address": "rs1.example.com",
    }
    assert set(span.attributes) <= set(telemetry.ATTRIBUTES)


def test_lookup_is_a_child_of_the_operation(connection: Connection, sdk: Sdk) -> None:
    connection.table("t").row(b"a")
    spans = sdk.spans()
    assert spans["hbase:meta lookup"].parent.span_id == spans["row t"].context.span_id


@pytest.mark.parametrize("name", ["put", "delete", "rows", "cells", "exists", "counter_inc", "append", "batch"])
def test_every_operation_has_its_own_span(connection: Connection, sdk: Sdk, name: str) -> None:
    table = connection.table("t")
    calls: dict[str, Any] = {
        "put": lambda: table.put(b"a", {b"cf:a": b"1"}),
        "delete": lambda: table.delete(b"a"),
        "rows": lambda: table.rows([b"a"]),
        "cells": lambda: table.cells(b"a", b"cf:a"),
        "exists": lambda: table.exists(b"a"),
        "counter_inc": lambda: table.counter_inc(b"a", b"cf:n"),
        "append": lambda: table.append(b"a", {b"cf:a": b"1"}),
        "batch": lambda: _send(table),
    }
    calls[name]()
    assert sdk.spans()[f"{name} t"].attributes["db.operation.name"] == name


def _send(table: Any) -> None:
    with table.batch() as batch:
        batch.put(b"a", {b"cf:a": b"1"})


def test_span_of_a_scan_covers_it_all_and_is_not_the_callers(connection: Connection, sdk: Sdk) -> None:
    table = connection.table("t")
    table.put(b"a", {b"cf:a": b"1"})
    table.put(b"z", {b"cf:a": b"1"})
    rows = table.scan(batch_size=1)
    next(rows)
    assert not trace.get_current_span().get_span_context().is_valid
    assert "scan t" not in sdk.spans()
    rows.close()
    assert sdk.spans()["scan t"].status.status_code is StatusCode.UNSET


def test_failed_operation_is_an_error_with_its_class(connection: Connection, sdk: Sdk) -> None:
    with pytest.raises(NoSuchFamily):
        connection.table("t").put(b"a", {b"nope:a": b"1"})
    span = sdk.spans()["put t"]
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes["error.type"] == "NoSuchFamily"
    assert [event.name for event in span.events] == ["exception"]


# -- metrics ---------------------------------------------------------------------------------------------------


def test_durations_are_recorded_by_operation(connection: Connection, sdk: Sdk) -> None:
    table = connection.table("t")
    table.put(b"a", {b"cf:a": b"1"})
    for _ in range(3):
        table.row(b"a")
    with pytest.raises(NoSuchFamily):
        table.row(b"a", [b"nope"])
    points = {
        (point.attributes["db.operation.name"], point.attributes.get("error.type")): point
        for point in sdk.points("db.client.operation.duration")
    }
    assert points["row", None].count == 3
    assert points["row", None].sum == pytest.approx(0.003)
    assert points["row", "NoSuchFamily"].count == 1


def test_lookups_and_retries_are_counted_with_declared_attributes(connection: Connection, sdk: Sdk) -> None:
    backend = connection._backend
    backend.on("get", times=2).raises(lambda: CallQueueTooBig("full"))  # type: ignore[attr-defined]
    connection.table("t").row(b"a")
    (retries,) = sdk.points("metaclient.retries")
    assert (retries.value, dict(retries.attributes)) == (2, {"error.type": "CallQueueTooBig"})
    reads = sdk.points("metaclient.meta.reads")
    assert sum(point.value for point in reads) == 1
    assert set(reads[0].attributes) == {"metaclient.replica", "metaclient.outcome"}
    assert connection.stats()["retries"] == 2


def test_second_connection_shares_the_instruments_quietly(
    connection: Connection, runtime: SimRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    connect_to(cluster(runtime), runtime=runtime).table("t").row(b"a")
    assert not [record for record in caplog.records if record.name.startswith("opentelemetry")]


def test_metrics_alone_need_no_tracer(runtime: SimRuntime, sdk: Sdk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "get_tracer_provider", trace.ProxyTracerProvider)
    connection = connect_to(cluster(runtime), runtime=runtime)
    connection.table("t").row(b"a")
    assert sdk.spans() == {}
    assert len(sdk.points("db.client.operation.duration")) == 1


# -- events and counters ---------------------------------------------------------------------------------------


def test_listeners_hear_events_until_they_end(runtime: SimRuntime) -> None:
    made = telemetry.Telemetry(runtime, "test")
    heard: list[telemetry.Event] = []
    stop = made.add_listener(heard.append)
    runtime.sleep(2.0)
    made.emit("retry", what="a test")
    stop()
    made.emit("retry")
    assert [(event.kind, event.at_s, dict(event.details)) for event in heard] == [("retry", 2.0, {"what": "a test"})]


def test_listener_that_raises_does_no_harm(runtime: SimRuntime, caplog: pytest.LogCaptureFixture) -> None:
    backend = cluster(runtime)
    connection = connect_to(backend, runtime=runtime)
    heard: list[str] = []

    def broken(event: telemetry.Event) -> None:
        raise KeyError("the user's own bug")

    connection.on_event(broken)
    connection.on_event(lambda event: heard.append(event.kind))
    backend.on("get", times=1).raises(lambda: CallQueueTooBig("full"))
    assert connection.table("t").row(b"a") == {}
    assert heard == ["retry"]
    assert "listener" in caplog.text


def test_counters_are_summed_and_split(runtime: SimRuntime) -> None:
    made = telemetry.Telemetry(runtime, "test")
    made.count("metaclient.meta.reads", replica=0, outcome="ok")
    made.count("metaclient.meta.reads", 3, replica=1, outcome="ok")
    made.count("metaclient.meta.reads", replica=1, outcome="CallTimeout")
    assert made.total("metaclient.meta.reads") == 5
    assert made.total("metaclient.meta.reads", replica=1) == 4
    assert made.by("metaclient.meta.reads", "replica") == {0: 1, 1: 4}


def test_cache_is_seen_by_the_sdk_and_costs_the_fast_path_nothing(connection: Connection, sdk: Sdk) -> None:
    """The cache's own counters are read when the SDK collects; a cached lookup touches no instrument."""
    connection.locate("t", b"a")
    for _ in range(5):
        connection.locate("t", b"a")
    connection.locate(b"t", b"a")
    hits, misses = connection.engine.locator.cache.hits_and_misses()
    assert hits == 6
    assert _sum(sdk, "metaclient.cache.misses", connection) == misses == 1
    assert _sum(sdk, "metaclient.cache.hits", connection) == 6
    assert _sum(sdk, "metaclient.cache.regions", connection) == connection.stats()["cache"]["regions"] >= 1


def _sum(sdk: Sdk, name: str, connection: Connection) -> int:
    """What the SDK collects, less what other living connections of this process add."""
    others = [one for one in list(telemetry._alive) if one is not connection.engine.telemetry and name in one._watched]
    return sum(point.value for point in sdk.points(name)) - sum(one._watched[name]() for one in others)
