"""``Connection.watch_freshness``: a canary row per region tells how far replicas are behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from metaclient.backend import Action, Addressing, Capabilities
from metaclient.connection import Connection, connect_to
from metaclient.errors import NoSuchFamily, ServerUnreachable, Unsupported
from metaclient.freshness.canary import CANARY, READINGS_MAX, CanaryReadings, canary_row
from metaclient.model import Get, Put, RegionInfo, RegionLocation, Result, Row
from metaclient.runtime import SimRuntime
from metaclient.testing import Call, ScriptedBackend
from metaclient.testing.scripted_cluster import _ScriptedTable
from metaclient_fake.backend import FakeBackend
from metaclient_fake.cluster import FakeCluster

TIMELINE = {"consistency": "TIMELINE"}
LAG_S = 0.3
COLUMN = b"cf:" + CANARY


class Behind(ScriptedBackend):
    """Secondaries lack the writes of the last ``lag_s`` seconds; from ``frozen_at_s`` on they stand still."""

    lag_s = LAG_S
    frozen_at_s: float | None = None

    def _read(self, known: _ScriptedTable, get: Get, place: RegionLocation | None) -> Result:
        if place is not None and place.replica_id:
            shown_ms = self.runtime.time_ms() - round(self.true_lag_s() * 1000)
            get = replace(get, max_timestamp=min(get.max_timestamp, shown_ms + 1))
        return super()._read(known, get, place)

    def true_lag_s(self) -> float:
        return self.lag_s if self.frozen_at_s is None else self.lag_s + self.runtime.now() - self.frozen_at_s


@pytest.fixture
def runtime() -> Iterator[SimRuntime]:
    with SimRuntime(seed=1) as made:
        yield made


def cluster(runtime: SimRuntime, **capabilities: Any) -> Behind:
    backend = Behind(runtime, capabilities=Capabilities(filters=False, **capabilities), latency_s=0.001)
    backend.add_table("t", splits=[b"m"], region_replication=3)
    return backend


def connected(backend: Behind, **options: Any) -> Connection:
    return connect_to(backend, runtime=backend.runtime, owns_backend=False, hedge_delay="fixed", **options)


def lags(connection: Connection, backend: Behind, *rows: bytes) -> list[float | None]:
    """What is known of the secondaries of these rows' regions now, in seconds."""
    staleness = connection.engine.operations.hedging.staleness
    places = [place for row in rows or (b"a", b"q") for place in backend.region_of(b"t", row).replicas[1:]]
    found = [None if place is None else staleness.as_of(place) for place in places]
    return [None if as_of is None else backend.runtime.now() - as_of for as_of in found]


def canary_writes(backend: Behind) -> int:
    calls = [call for call in list(backend.calls) if call.method == "batch"]
    return sum(isinstance(action.operation, Put) for call in calls for action in call.argument)  # type: ignore[attr-defined]  # a list of actions


# -- what is measured ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("addressing", Addressing)
def test_replicas_that_are_fresh_enough_answer_once_a_canary_is_written(
    runtime: SimRuntime, addressing: Addressing
) -> None:
    backend = cluster(runtime, addressing=addressing)
    connection = connected(backend)
    table = connection.table("t")
    table.put(b"a", {b"cf:a": b"1"})
    with connection.watch_freshness("t", family="cf"):
        runtime.sleep(5.0)
        backend.on("get", replica=0).delays(1.0)
        row = table.row(b"a", max_staleness=3.0, **TIMELINE)
        assert row.replica_id > 0
        assert row.lag_s is not None
        assert LAG_S <= row.lag_s <= 3.0
        assert table.row(b"a", max_staleness=0.1, **TIMELINE).replica_id in (0, None)
        plain = table.row(b"a", **TIMELINE)
        assert plain.lag_s is not None
        assert plain.lag_s >= LAG_S


def test_known_lag_is_never_below_the_true_lag_and_at_most_two_intervals_above(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend)
    connection.watch_freshness("t", family="cf", interval=0.5)
    runtime.sleep(3.0)
    for number in range(200):
        runtime.sleep(0.037)
        if number == 100:
            backend.lag_s = 2.0  # fell behind at once: what was known before is about earlier writes
            runtime.sleep(4.0)
        known = lags(connection, backend)
        assert all(lag is not None and backend.lag_s - 0.002 <= lag <= backend.lag_s + 1.1 for lag in known)


def test_replica_that_stopped_is_not_asked_after_max_staleness(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend)
    table = connection.table("t")
    connection.watch_freshness("t", family="cf")
    runtime.sleep(3.0)
    backend.on("get", replica=0).delays(0.5)
    backend.frozen_at_s = runtime.now()
    replicas = []
    for _ in range(20):
        runtime.sleep(0.5)
        row = table.row(b"a", max_staleness=4.0, **TIMELINE)
        replicas.append(row.replica_id)
        assert row.lag_s is None or backend.true_lag_s() - 0.01 <= row.lag_s <= 4.0
    assert replicas[0] > 0
    assert set(replicas[8:]) == {0}


def delay_primary(backend: Behind) -> None:
    """Delay the reads of row a at its primary, so that replicas are called; not those of the canary."""
    for method in ("get", "scan_open"):
        backend.on(method, replica=0).delays(2.0)
    backend.on("batch", when=_reads_row_a_at_primary).delays(2.0)


def _reads_row_a_at_primary(call: Call) -> bool:
    actions: list[Action] = call.argument  # type: ignore[assignment]  # that of a batch
    return any(each.operation.row == b"a" and each.place is not None and not each.place.replica_id for each in actions)


@pytest.mark.parametrize("read", ["row", "rows", "scan"])
def test_session_stays_at_the_primary_until_the_canary_shows_its_write_at_replicas(
    runtime: SimRuntime, read: str
) -> None:
    backend = cluster(runtime)
    connection = connected(backend, hedge_budget_burst=1000)
    session = connection.session()
    table = session.table("t")
    reads: dict[str, Callable[[], Row]] = {
        "row": lambda: table.row(b"a"),
        "rows": lambda: table.rows([b"a"])[0][1],
        "scan": lambda: dict(table.scan(row_stop=b"b"))[b"a"],
    }
    with connection.watch_freshness("t", family="cf", interval=0.5):
        runtime.sleep(3.0)
        table.put(b"a", {b"cf:a": b"new"})
        delay_primary(backend)
        backend.frozen_at_s = runtime.now()  # the replicas lack the write from now on
        row = reads[read]()
        assert (row, row.replica_id) == ({b"cf:a": b"new"}, 0)
        backend.frozen_at_s = None
        backend.clear_rules()
        runtime.sleep(3.0)
        delay_primary(backend)
        row = reads[read]()
        assert row == {b"cf:a": b"new"}
        assert row.replica_id
        assert session.stats()["moved_back"] == 1


def test_session_without_a_canary_stays_at_the_primary_where_lags_are_not_reported(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    table = connected(backend, hedge_budget_burst=1000).session().table("t")
    table.put(b"a", {b"cf:a": b"new"})
    runtime.sleep(3.0)
    backend.on("get", replica=0).delays(0.5)
    assert [table.row(b"a").replica_id for _ in range(3)] == [0, 0, 0]


def test_one_watcher_serves_processes_that_only_read(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    writer, reader = connected(backend), connected(backend)
    writer.watch_freshness("t", family="cf")
    backend.calls.clear()
    written = canary_writes(backend)
    reader.watch_freshness("t", family="cf", read_only=True)
    runtime.sleep(6.0)
    assert canary_writes(backend) - written <= 14  # two regions, one write per second: the writer's
    assert all(lag is not None and LAG_S <= lag < 3.5 for lag in lags(reader, backend))


def test_reader_without_a_writer_learns_nothing(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend)
    connection.watch_freshness("t", family="cf", read_only=True)
    runtime.sleep(5.0)
    assert set(lags(connection, backend)) == {None}
    assert canary_writes(backend) == 0


def test_canary_of_a_writer_whose_clock_is_ahead_is_overtaken(runtime: SimRuntime) -> None:
    """Otherwise every later canary would be hidden by it for an hour."""
    backend = cluster(runtime)
    backend.lag_s = 0.0
    connection = connected(backend)
    row = canary_row(backend.region_of(b"t", b"a").region)
    assert row is not None
    connection.table("t").put(row, {COLUMN: b""}, timestamp=runtime.time_ms() + 3_600_000)
    backend.lag_s = -7200.0  # the secondaries show cells of the future, too
    connection.watch_freshness("t", family="cf")
    runtime.sleep(5.0)
    assert all(lag is not None and lag < 2.5 for lag in lags(connection, backend, b"a"))


# -- splits, moves, faults -------------------------------------------------------------------------------------------


def test_daughters_of_a_split_and_moved_replicas_are_measured(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend)
    watcher = connection.watch_freshness("t", family="cf")
    runtime.sleep(3.0)
    backend.split(b"t", b"f")
    place = backend.region_of(b"t", b"q").replicas[1]
    assert place is not None
    target = next(server for server in backend.servers if server != place.server)
    backend.move(b"t", b"q", target, replica_id=1)
    runtime.sleep(6.0)
    known = lags(connection, backend, b"a", b"g", b"q")
    assert len(known) == 6
    assert all(lag is not None and lag < 4.0 for lag in known)
    assert not watcher.is_closed


def test_watcher_survives_a_primary_that_is_down_and_goes_on_afterwards(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend)
    watcher = connection.watch_freshness("t", family="cf")
    runtime.sleep(3.0)
    place = backend.region_of(b"t", b"a").replicas[0]
    assert place is not None
    rule = backend.on("batch", server=place.server, times=30)
    rule.raises(ServerUnreachable("down"))
    runtime.sleep(10.0)
    assert watcher.failures > 0
    backend.clear_rules()
    runtime.sleep(6.0)
    assert all(lag is not None and lag < 3.0 for lag in lags(connection, backend))


def test_region_that_cannot_be_read_does_not_keep_the_others_from_being_measured(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend)
    connection.watch_freshness("t", family="cf")
    runtime.sleep(2.5)
    backend.unplace(b"t", b"a")
    runtime.sleep(20.0)
    assert all(lag is not None and lag < 6.0 for lag in lags(connection, backend, b"q"))


# -- life ------------------------------------------------------------------------------------------------------------


def test_nothing_is_written_without_a_watcher_or_after_its_end(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend)
    runtime.sleep(5.0)
    assert canary_writes(backend) == 0
    with connection.watch_freshness("t", family="cf") as watcher:
        runtime.sleep(2.5)
    assert canary_writes(backend) > 0
    assert watcher.is_closed
    runtime.sleep(0.5)
    backend.calls.clear()
    runtime.sleep(10.0)
    assert not backend.calls


def test_watcher_ends_with_its_connection(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend)
    watcher = connection.watch_freshness("t", family="cf")
    runtime.sleep(2.5)
    connection.close()
    assert watcher.is_closed
    runtime.sleep(0.5)
    backend.calls.clear()
    runtime.sleep(10.0)
    assert not backend.calls


def test_backend_that_is_closed_ends_the_watcher(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend)
    watcher = connection.watch_freshness("t", family="cf")
    backend.close()
    runtime.sleep(2.5)
    assert watcher.is_closed


def test_second_watcher_of_a_table_is_refused_while_the_first_is_open(runtime: SimRuntime) -> None:
    connection = connected(cluster(runtime))
    first = connection.watch_freshness("t", family="cf")
    with pytest.raises(ValueError, match="close it first"):
        connection.watch_freshness("t", family="cf")
    first.close()
    connection.watch_freshness("t", family="cf", read_only=True).close()


@pytest.mark.parametrize("interval", [0, -1.0, float("nan"), float("inf")])
def test_interval_without_sense_is_refused(runtime: SimRuntime, interval: float) -> None:
    with pytest.raises(ValueError, match="'interval' must be above 0"):
        connected(cluster(runtime)).watch_freshness("t", family="cf", interval=interval)


def test_family_that_does_not_exist_and_backends_without_replicas_are_refused(runtime: SimRuntime) -> None:
    with pytest.raises(NoSuchFamily, match="it has cf"):
        connected(cluster(runtime)).watch_freshness("t", family="nope")
    with pytest.raises(Unsupported, match="cannot read region replicas"):
        connected(cluster(runtime, region_replicas=False)).watch_freshness("t", family="cf")


# -- readings --------------------------------------------------------------------------------------------------------


def test_canary_that_was_deleted_proves_nothing_where_a_replica_still_shows_it() -> None:
    readings = CanaryReadings()
    readings.add(1.0, 500)
    readings.add(2.0, 600)
    readings.add(3.0, 0)
    assert readings.complete_as_of(600) is None
    readings.add(4.0, 550)
    assert readings.complete_as_of(600) is None
    assert readings.complete_as_of(700) == 4.0


def test_readings_are_bounded_and_a_replica_further_behind_is_unknown() -> None:
    readings = CanaryReadings()
    for number in range(READINGS_MAX * 2):
        readings.add(float(number), 1 + number)
    assert readings.complete_as_of(READINGS_MAX) is None
    assert readings.complete_as_of(READINGS_MAX * 2) == READINGS_MAX * 2 - 2


def test_canary_row_is_inside_of_every_region_that_can_have_a_row() -> None:
    ends = [b"", b"\x00", b"a", b"a\x00", b"a\x00\x00", b"a\x00z", b"b", b"\xff" * 32767]
    for start in ends:
        for end in ends:
            if end and start >= end:
                continue
            region = RegionInfo(b"t", start, end)
            row = canary_row(region)
            if row is None:
                assert (start, end) == (b"", b"\x00")
            else:
                assert 0 < len(row) <= 32767
                assert region.contains(row)


# -- on a fake cluster -----------------------------------------------------------------------------------------------


class Mute(FakeBackend):
    """A fake cluster's backend that does not report the lag, as those of a real HBase."""

    capabilities = replace(FakeBackend.capabilities, replica_lag=False)


def test_canary_on_late_replication_reports_at_least_the_true_lag(runtime: SimRuntime) -> None:
    with FakeCluster(runtime=runtime, servers=3) as fake:
        connection = connect_to(Mute(fake), runtime=runtime)
        connection.create_table("t", {"cf": {}}, region_replication=2)
        table = connection.table("t")
        connection.watch_freshness("t", family="cf", interval=0.5)
        primary, secondary = (connection.locate("t", b"a", replica_id=at).server.host for at in (0, 1))
        fake.faults.delay_messages(primary, secondary, seconds=2.0)
        written: list[float] = []
        measured: list[float] = []
        for number in range(400):
            runtime.sleep(0.03)
            table.put(b"a", {b"cf:a": b"%d" % number})
            written.append(runtime.now())
            called = runtime.now()
            row = table.row(b"a", replica_id=1)
            if row.lag_s is None:
                continue
            measured.append(row.lag_s)
            shown = int(row.get(b"cf:a", b"-1"))
            missing = written[shown + 1 :]
            assert all(acknowledged >= called - row.lag_s for acknowledged in missing)
        assert len(measured) > 50
        assert max(measured) < 10.0
        connection.close()
