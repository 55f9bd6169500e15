"""Replication to other clusters seen from outside: the status, the metrics, the page and the command."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from metaclient.cli import main
from metaclient.model import ServerName
from metaclient.replication_peers import ReplicationStatus, SourceLoad
from metaclient.runtime import SimRuntime
from metaclient_fake.front.status_page import status_page
from metaclient_fake.replication import observation
from tests.command_runner import command_runner
from tests.unit.fake_replication.cluster_rig import Side
from tests.unit.fake_replication.shipping_rig import ShippingRig


@pytest.fixture
def runtime() -> Iterator[SimRuntime]:
    with SimRuntime(seed=1) as made:
        yield made


@pytest.fixture
def east(runtime: SimRuntime) -> Side:
    side = Side(runtime, "east", servers=1, ship_timeout_s=2.0)
    side.create()
    return side


@pytest.fixture
def west(runtime: SimRuntime, east: Side) -> Side:
    side = Side(runtime, "west", east)
    side.create()
    return side


def put(side: Side, count: int) -> None:
    for number in range(count):
        side.put(b"%d" % number)


def source_of(side: Side) -> dict[str, Any]:
    """Return the only source in the cluster's status."""
    status: Any = side.cluster.status()["replication_peers"]
    json.dumps(status)
    (found,) = [load for server in status["servers"].values() for load in server["sources"].values()]
    assert isinstance(found, dict)
    return found


def test_status_shows_what_waits_for_a_dead_peer_and_why(runtime: SimRuntime, east: Side, west: Side) -> None:
    east.replicates_to(west)
    put(east, 5)
    runtime.sleep(5.0)
    shipped = source_of(east)
    assert (shipped["edits_shipped"], shipped["queue_edits"], shipped["queue_bytes"]) == (5, 0, 0)
    assert (shipped["failed_calls"], shipped["last_error"]) == (0, "")
    assert len(shipped["sinks"]) == 1
    assert shipped["sinks"][0] in {str(name) for name in west.cluster.master.live}

    east.cluster.partition("east", "west")
    put(east, 3)
    runtime.sleep(20.0)
    waiting = source_of(east)
    assert (waiting["queue_edits"], waiting["edits_shipped"]) == (3, 5)
    assert waiting["queue_bytes"] == sum(entry.size for entry in east.logged()[-3:])
    assert waiting["failed_calls"] >= 2
    assert waiting["last_error"].startswith("CallTimeout: ")
    assert waiting["lag_ms"] > 15_000

    east.cluster.heal()
    runtime.sleep(30.0)
    healed = source_of(east)
    assert (healed["queue_edits"], healed["queue_bytes"], healed["last_error"]) == (0, 0, "")
    assert healed["failed_calls"] >= waiting["failed_calls"]


def test_peer_that_was_never_reached_is_named_as_the_error(runtime: SimRuntime, east: Side) -> None:
    put(east, 2)
    east.cluster.replication.add("p", "nowhere:2181:/hbase")
    runtime.sleep(5.0)
    load = source_of(east)
    assert not load["is_running"]
    assert "nowhere:2181:/hbase" in load["last_error"]
    assert load["queue_edits"] == sum(len(file) for file in east.files()), "markers, too"
    assert load["sinks"] == []


@pytest.mark.parametrize("behaviour", ["2.6", "3.0"])
def test_source_that_was_made_again_counts_only_what_it_will_ship(runtime: SimRuntime, behaviour: str) -> None:
    """A new source begins at the stored position; that of HBase 2.6 ships the whole log again."""
    east = Side(runtime, "east", servers=1, behaviour=behaviour)
    west = Side(runtime, "west", east)
    for side in (east, west):
        side.create()
    east.replicates_to(west)
    put(east, 5)
    runtime.sleep(5.0)
    east.disable()
    put(east, 2)
    runtime.sleep(1.0)
    whole = sum(len(file) for file in east.files())
    assert source_of(east)["queue_edits"] == (2 if behaviour == "3.0" else whole)
    east.enable()
    runtime.sleep(30.0)
    assert source_of(east)["queue_edits"] == 0


def test_logs_that_wait_are_counted_in_files_edits_and_bytes(runtime: SimRuntime) -> None:
    rig = ShippingRig(runtime, batch_entries=1, batches_ahead=1)
    rig.peer.always = rig.peer.hang
    rig.put(2, size=100)
    source = rig.source()
    rig.roll(source)
    rig.put(4, size=100)
    rig.run_for(5.0)
    size = sum(file.size for file in rig.wal.files)
    load = source.load()
    assert (load.queue_edits, load.queue_bytes) == (6, size)
    assert load.log_queue == 1, "as HBase counts: files that are not read to their end"
    rig.peer.always = None
    rig.run_for(400.0)
    assert (source.load().queue_edits, source.load().queue_bytes) == (0, 0)


def test_entries_that_a_crash_lost_do_not_wait_for_ever(runtime: SimRuntime) -> None:
    rig = ShippingRig(runtime)
    rig.put(3)
    name = rig.file
    rig.wal.files[-1].close_torn()
    source = rig.source({name: 0})
    rig.run_for(5.0)
    assert (source.load().queue_edits, source.load().queue_bytes) == (0, 0)


# -- metrics ---------------------------------------------------------------------------------------------------


def test_metrics_are_those_of_the_document() -> None:
    text = (Path(__file__).parents[3] / "docs" / "replication.md").read_text()
    rows = re.findall(r"^\| `(metaclient\.fake\.peer\.[a-z_.]+)` \| (\S+) \| (.+) \|$", text, re.MULTILINE)
    assert {name: (unit, what) for name, unit, what in rows} == dict(observation.METRICS)


def test_sdk_collects_every_metric_of_a_peer(monkeypatch: pytest.MonkeyPatch, runtime: SimRuntime) -> None:
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader])
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: meters)
    monkeypatch.setattr(metrics, "get_meter", lambda name: meters.get_meter(name))
    east = Side(runtime, "east", servers=1, ship_timeout_s=2.0)
    east.create()
    west = Side(runtime, "west", east, servers=1)
    west.create()
    east.replicates_to(west)
    put(east, 5)
    runtime.sleep(5.0)
    east.cluster.partition("east", "west")
    put(east, 3)
    runtime.sleep(20.0)
    found = collected(reader)
    assert {name: unit for name, (unit, _) in found.items()} == {
        name: unit for name, (unit, _) in observation.METRICS.items()
    }
    load = source_of(east)
    values = {
        name.removeprefix("metaclient.fake.peer."): point.value
        for name, (_, points) in found.items()
        for point in points
        if point.attributes.get("metaclient.peer") == "p"
    }
    assert values == {
        "age": load["age_of_last_shipped_ms"] / 1000,
        "lag": load["lag_ms"] / 1000,
        "queue.logs": 1,
        "queue.edits": 3,
        "queue": load["queue_bytes"],
        "shipped": 5,
        "sinks": 1,
        "failures": load["failed_calls"],
        "blocked": 0,
    }
    clusters = {one.cluster.cluster_id for one in (east, west)}
    points = found["metaclient.fake.peer.applied"][1]
    applied = {point.attributes["metaclient.cluster"]: point.value for point in points}
    assert {cluster: applied[cluster] for cluster in clusters} == {
        east.cluster.cluster_id: 0,
        west.cluster.cluster_id: 5,
    }
    for side in (west, east):
        side.cluster.close()
    runtime.close()
    ended = collected(reader)
    assert not [
        point.value
        for _, points in ended.values()
        for point in points
        if point.attributes["metaclient.cluster"] in clusters and point.attributes.get("metaclient.peer")
    ], "a closed cluster has no sources"
    meters.shutdown()


def collected(reader: InMemoryMetricReader) -> dict[str, tuple[str, list[Any]]]:
    """Metric name -> unit and points, of cluster replication."""
    data = reader.get_metrics_data()
    return {
        metric.name: (metric.unit or "", list(metric.data.data_points))
        for resource in (data.resource_metrics if data is not None else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name.startswith("metaclient.fake.peer.")
    }


def test_metric_counts_the_blocked_region_of_a_serial_peer(runtime: SimRuntime) -> None:
    rig = ShippingRig(runtime)
    rig.change(serial=True)
    rig.blocked = {1}
    rig.put(2)
    source = rig.source()
    rig.run_for(5.0)
    status = ReplicationStatus(server=source.queue.server, sources=(source.load(),))
    (seen,) = observation._observed("metaclient.fake.peer.blocked", "id", [status])
    assert seen.value == 1


# -- the page and the command ----------------------------------------------------------------------------------


def test_page_shows_each_source_as_a_row(runtime: SimRuntime, east: Side, west: Side) -> None:
    east.replicates_to(west)
    put(east, 5)
    runtime.sleep(5.0)
    page = status_page(east.cluster.status(), {})
    load = source_of(east)
    heads = "".join(f"<th>{name}</th>" for name in load)
    assert f"<tr><th></th>{heads}</tr><tr><th>p</th>" in page
    assert f"<td>{load['queue_bytes']}</td><td>{load['sinks'][0]}</td>" in unescape(page)


def test_command_shows_queue_sinks_and_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    rs1 = ServerName("rs1", 16020, 1)
    load = SourceLoad(
        peer_id="west",
        server=rs1,
        queue_edits=31,
        queue_bytes=4242,
        sinks=(ServerName("b1", 16020, 1),),
        failed_calls=17,
        last_error="CallTimeout: late",
    )
    unknown = SourceLoad(peer_id="real", server=rs1)  # as a real HBase reports it
    status = ReplicationStatus(server=rs1, sources=(load, unknown))
    monkeypatch.setattr("metaclient.Replication.status", lambda self: [status])
    monkeypatch.setenv("COLUMNS", "200")
    shown = command_runner().invoke(main, ["replication", "status", "--url", "fake:"]).stdout
    assert re.search(r"west.* 31 .* 4242 .* b1:16020 .* 17 ", shown)
    assert re.search(r"real.* - .* - ", shown)
    assert "west on rs1:16020: nothing is shipped now: CallTimeout: late\n" in shown
    document = json.loads(command_runner().invoke(main, ["replication", "status", "--url", "fake:", "--json"]).stdout)
    assert document["sources"][0]["sinks"] == ["b1,16020,1"]
    assert document["sources"][1]["queue_bytes"] is None
