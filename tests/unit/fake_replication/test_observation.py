"""Replication seen from outside: status, metrics, and the lag that a row reports."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from metaclient.backend import Action, MetaScan
from metaclient.model import Get, Scan
from metaclient_fake.region_replication import observation


def _replica(world: Any, replica_id: int = 1) -> Any:
    region = world.cluster.regions("t")[0]
    return world.cluster.status()["replication"]["regions"][region]["replicas"][str(replica_id)]


def test_status_tells_a_hung_replica_from_a_healthy_one(make: Callable[..., Any]) -> None:
    world = make(servers=6)
    world.create(b"t", copies=3)
    world.runtime.sleep(1)
    world.cluster.pause(world.place(b"t", b"", 1).server.host, keeps_session=True)
    for number in range(20):
        world.put(b"t", b"%d" % number)
        world.runtime.sleep(0.1)
    hung, healthy = _replica(world, 1), _replica(world, 2)
    assert (healthy["state"], healthy["lag_edits"], healthy["lag_s"]) == ("idle", 0, 0.0)
    assert hung["state"] == "sending"
    assert hung["in_flight_edits"] == 1
    assert hung["lag_edits"] == 20
    assert hung["queue_bytes"] > 0
    assert 1.9 < hung["lag_s"] < 2.2
    world.runtime.sleep(4)
    hung = _replica(world, 1)
    assert hung["failures"] == 1
    assert hung["edits_dropped"] >= 20
    assert hung["lag_s"] > 5
    status = world.cluster.status()["replication"]
    assert status["regions"][world.cluster.regions("t")[0]]["flush_asked_s_ago"] < 2
    assert status["mode"] == "region replication"
    json.dumps(status)


def test_reader_is_told_how_far_behind_the_replica_was_known_to_be(make: Callable[..., Any]) -> None:
    """`Row.lag_s` and `MetaPage.lag_s`."""
    world = make(servers=6)
    world.create(b"t", copies=2)
    world.runtime.sleep(1)
    world.put(b"t", b"r")
    world.runtime.sleep(0.1)
    assert world.get(b"t", b"r", replica_id=1).lag_s == 0.0
    assert world.get(b"t", b"r").lag_s is None
    place = world.place(b"t", b"", 1)
    world.cluster.partition(world.place(b"t").server.host, place.server.host)
    world.put(b"t", b"r", b"2")
    world.runtime.sleep(3)
    assert world.get(b"t", b"r", place=place).lag_s == pytest.approx(3, abs=0.1)
    assert world.meta(1, MetaScan(b"", b"", False, 1)).lag_s == 0.0
    world.cluster.heal()
    row = world.cluster.connect().table("t").row(b"r", consistency="TIMELINE")
    assert row.lag_s in (None, 0.0) or row.lag_s > 0


def test_rows_of_scans_and_batches_tell_the_lag_of_their_replica_too(make: Callable[..., Any]) -> None:
    """Each page is as old as the replica is when it is read; what a primary answers has no lag."""
    world = make(servers=6)
    world.create(b"t", copies=2)
    world.runtime.sleep(1)
    for row in (b"a", b"b", b"c"):
        world.put(b"t", row)
    world.runtime.sleep(0.1)
    primary, place = world.place(b"t"), world.place(b"t", b"", 1)
    world.cluster.partition(primary.server.host, place.server.host)
    world.put(b"t", b"a", b"2")

    def lags(at: Any) -> list[float | None]:
        first = world.backend.scan_open(at, b"t", Scan(caching=2), world.deadline())
        rest = world.backend.scan_next(first.scanner, 2, world.deadline())
        gets = [Action(at, Get(row)) for row in (b"a", b"missing")]
        batch = world.backend.batch(at.server, b"t", gets, world.deadline())
        return [result.lag_s for result in (*first.rows, *rest.rows, *batch)]

    world.runtime.sleep(3)
    assert lags(place) == [pytest.approx(3, abs=0.1)] * 5
    assert lags(primary) == [None] * 5


def test_metrics_are_those_of_the_document() -> None:
    text = (Path(__file__).parents[3] / "docs" / "replication.md").read_text()
    rows = re.findall(r"^\| `(metaclient\.fake\.replication\.[a-z_.]+)` \| (\S+) \| (.+) \|$", text, re.MULTILINE)
    assert {name: (unit, what) for name, unit, what in rows} == dict(observation.METRICS)


def test_metrics_are_collected_while_the_cluster_lives(make: Callable[..., Any]) -> None:
    world = make()
    world.create(b"t", copies=3)
    world.runtime.sleep(1)
    world.put(b"t", b"r")
    world.runtime.sleep(0.1)
    for name in observation.METRICS:
        found = list(observation._observed(name, world.cluster))
        assert found, name
    lags = [
        (seen.attributes["db.collection.name"], seen.attributes["metaclient.replica"], seen.value)
        for seen in observation._observed("metaclient.fake.replication.lag.edits", world.cluster)
    ]
    assert ("t", 2, 0) in lags
    assert ("hbase:meta", 1, 0) in lags


def test_sdk_collects_every_metric_of_a_hung_and_a_healthy_replica(
    make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real OpenTelemetry SDK with its in-memory reader, beside the process's own provider."""
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader])
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: meters)
    monkeypatch.setattr(metrics, "get_meter", lambda name: meters.get_meter(name))
    world = make(servers=6)
    world.create(b"t", copies=3)
    world.runtime.sleep(1)
    region = world.cluster.regions("t")[0]
    world.cluster.pause(world.place(b"t", b"", 1).server.host, keeps_session=True)
    for number in range(5):
        world.put(b"t", b"%d" % number)
    world.runtime.sleep(2)
    found = _collected(reader)
    assert {name: unit for name, (unit, _) in found.items()} == {
        name: unit for name, (unit, _) in observation.METRICS.items()
    }

    def value(name: str, replica_id: int) -> float:
        points = found[f"metaclient.fake.replication.{name}"][1]
        return next(
            float(point.value)
            for point in points
            if (point.attributes.get("metaclient.region"), point.attributes.get("metaclient.replica"))
            == (region, replica_id)
        )

    assert value("lag", 1) == pytest.approx(2, abs=0.1)
    assert (value("lag", 2), value("lag.edits", 1), value("lag.edits", 2)) == (0.0, 5.0, 0.0)
    assert (value("in_flight", 1), value("failed", 1)) == (1.0, 0.0)
    dropped = value("dropped", 1)
    assert value("queue", 1) > 0
    held = {point.attributes["server.address"]: point.value for point in found["metaclient.fake.replication.buffer"][1]}
    assert held[world.place(b"t").server.host] > 0
    world.cluster.faults.stall_flushes(world.place(b"t").server.host)  # else it would be healed, and fail again
    world.runtime.sleep(4)
    found = _collected(reader)
    assert value("failed", 1) > 0
    assert value("dropped", 1) == dropped + 5
    meters.shutdown()


def _collected(reader: InMemoryMetricReader) -> dict[str, tuple[str, list[Any]]]:
    """Metric name -> unit and points."""
    data = reader.get_metrics_data()
    return {
        metric.name: (metric.unit or "", list(metric.data.data_points))
        for resource in (data.resource_metrics if data is not None else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name.startswith("metaclient.fake.replication.")
    }
