"""TIMELINE reads with ``max_staleness``: which replicas are called, and which answers are returned."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from metaclient.backend import Action, Capabilities, Outcome, ScanPage
from metaclient.calls.staleness import PROBE_S, Staleness
from metaclient.connection import Connection, connect_to
from metaclient.errors import ConfigError, MetaClientError, ServerUnreachable, Unsupported
from metaclient.freshness.lag import ReplicaLags
from metaclient.model import Get, RegionInfo, RegionLocation, Result, Row, Scan, ServerName
from metaclient.row_runs import AlikeRows, RowRuns
from metaclient.runtime import SimRuntime
from metaclient.session import Session
from metaclient.table import Table
from metaclient.testing import ScriptedBackend
from metaclient_fake.cluster import FakeCluster

REPORTING = Capabilities(filters=False, replica_lag=True)
SILENT = Capabilities(filters=False)
TIMELINE = {"consistency": "TIMELINE"}
FIXED = {"hedge_delay": "fixed"}


class Lagging(ScriptedBackend):
    """Secondaries report ``lag`` seconds; a scanner's age grows with time, as in HBase."""

    lag: float | None = 0.5

    def get(self, place: RegionLocation | None, table: bytes, get: Get, deadline: float) -> Result:
        result = super().get(place, table, get, deadline)
        return result._replace(lag_s=self.lag) if place is not None and place.replica_id else result

    def _outcome(self, table: bytes, action: Action) -> Outcome:
        outcome = super()._outcome(table, action)
        is_secondary = action.place is not None and action.place.replica_id
        return outcome._replace(lag_s=self.lag) if isinstance(outcome, Result) and is_secondary else outcome

    def scan_open(self, place: RegionLocation | None, table: bytes, scan: Scan, deadline: float) -> ScanPage:
        return self._aged(super().scan_open(place, table, scan, deadline), place)

    def scan_next(self, scanner: object, rows: int, deadline: float) -> ScanPage:
        assert isinstance(scanner, int)
        place = self._scanners[scanner].place
        return self._aged(super().scan_next(scanner, rows, deadline), place)

    def _aged(self, page: ScanPage, place: RegionLocation | None) -> ScanPage:
        if place is None or not place.replica_id:
            return page
        return replace(page, rows=[row._replace(lag_s=self.lag) for row in page.rows], lag_s=self.lag)


@pytest.fixture
def runtime() -> Iterator[SimRuntime]:
    with SimRuntime(seed=1) as made:
        yield made


def cluster(runtime: SimRuntime, capabilities: Capabilities = REPORTING) -> Lagging:
    backend = Lagging(runtime, capabilities=capabilities)
    if not capabilities.replica_lag:
        backend.lag = None
    backend.add_table("t", splits=[b"m"], region_replication=2)
    return backend


def connected(backend: Lagging, **options: Any) -> Connection:
    connection = connect_to(backend, runtime=backend.runtime, **{**FIXED, **options})
    for row in (b"a", b"b", b"q"):
        connection.table("t").put(row, {b"cf:a": row})
    backend.calls.clear()
    return connection


def staleness(connection: Connection) -> Staleness:
    return connection.engine.operations.hedging.staleness


def secondary(backend: Lagging, row: bytes = b"a") -> RegionLocation:
    place = backend.region_of(b"t", row).replicas[1]
    assert place is not None
    return place


def learn(connection: Connection, backend: Lagging, lag_s: float, *rows: bytes) -> None:
    for row in rows or (b"a", b"q"):
        staleness(connection).learn(secondary(backend, row), backend.runtime.now() - lag_s)


def lose_primary(backend: Lagging, row: bytes = b"a") -> None:
    backend.on("get", replica=0).raises(ServerUnreachable("down"))
    backend.on("scan_open", replica=0).raises(ServerUnreachable("down"))


# -- what is known ---------------------------------------------------------------------------------------------------


def test_lag_of_a_replica_grows_until_something_newer_is_known() -> None:
    place = RegionLocation(RegionInfo(b"t").replica(1), ServerName("rs", 1, 7))
    lags = ReplicaLags()
    lags.learn(place, 10.0)
    assert lags.lag_s(place, 10.5) == 0.5
    assert lags.lag_s(place, 60.0) == 50.0
    lags.learn(place, 59.0)
    assert lags.lag_s(place, 60.0) == 1.0


def test_replica_that_moved_or_whose_server_restarted_is_unknown() -> None:
    region = RegionInfo(b"t").replica(1)
    lags = ReplicaLags()
    lags.learn(RegionLocation(region, ServerName("rs", 1, 7)), 10.0)
    assert lags.as_of(RegionLocation(region, ServerName("rs", 1, 8))) is None
    assert lags.as_of(RegionLocation(region, ServerName("other", 1, 7))) is None
    assert lags.as_of(RegionLocation(RegionInfo(b"t").replica(2), ServerName("rs", 1, 7))) is None


def test_memory_for_lags_is_bounded_and_the_oldest_lesson_goes_first() -> None:
    lags = ReplicaLags(replicas_max=3)
    places = [RegionLocation(RegionInfo(b"t", b"%d" % n).replica(1), ServerName("rs", 1)) for n in range(4)]
    for place in places[:3]:
        lags.learn(place, 1.0)
    lags.learn(places[0], 2.0)
    lags.learn(places[3], 1.0)
    assert len(lags) == 3
    assert [lags.as_of(place) for place in places] == [2.0, None, 1.0, 1.0]


# -- which replicas are called ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("capabilities", [SILENT, REPORTING])
def test_replica_of_which_nothing_is_known_is_not_asked(runtime: SimRuntime, capabilities: Capabilities) -> None:
    backend = cluster(runtime, capabilities)
    connection = connected(backend)
    backend.on("get", replica=0, times=1).delays(1.0)
    row = connection.table("t").row(b"a", max_staleness=5.0, **TIMELINE)
    assert (row.replica_id, row.stale) == (0, False)
    asked = [call.argument for call in backend.calls if call.method == "get" and call.replica_id == 1]
    assert all(isinstance(get, Get) and get.existence_only for get in asked)  # those only measure the lag
    assert connection.engine.telemetry.total("metaclient.staleness.passed_over") == 1


def test_replica_that_is_known_to_be_too_far_behind_is_not_asked(runtime: SimRuntime) -> None:
    backend = cluster(runtime, SILENT)
    connection = connected(backend)
    learn(connection, backend, 3.0)
    backend.on("get", replica=0).delays(1.0)
    table = connection.table("t")
    assert table.row(b"a", max_staleness=2.9, **TIMELINE).replica_id == 0
    assert backend.count("get", replica_id=1) == 0
    row = table.row(b"a", max_staleness=10.0, **TIMELINE)
    assert row.replica_id == 1
    assert row.lag_s is not None
    assert 4.0 <= row.lag_s <= 10.0


def test_replica_that_was_fresh_long_ago_is_not_asked(runtime: SimRuntime) -> None:
    backend = cluster(runtime, SILENT)
    connection = connected(backend)
    learn(connection, backend, 0.0)
    backend.on("get", replica=0).delays(1.0)
    runtime.sleep(5.1)
    assert connection.table("t").row(b"a", max_staleness=5.0, **TIMELINE).replica_id == 0


LEAVING: dict[str, Callable[[Table], object]] = {
    "get": lambda table: table.row(b"a", max_staleness=60.0, **TIMELINE),
    "get of one replica": lambda table: table.row(b"a", replica_id=1),
    "batch": lambda table: table.rows([b"a"], max_staleness=60.0, **TIMELINE),
    "scan_open": lambda table: list(table.scan(max_staleness=60.0, **TIMELINE)),
    "scan_next": lambda table: list(table.scan(batch_size=1, max_staleness=60.0, **TIMELINE)),
}


@pytest.mark.parametrize("call", LEAVING)
def test_replica_that_left_its_server_is_unknown_afterwards(runtime: SimRuntime, call: str) -> None:
    """It may be opened there again with older data."""
    backend = cluster(runtime, SILENT)
    connection = connected(backend)
    place = secondary(backend)
    learn(connection, backend, 0.0)
    lose_primary(backend)
    method = call.split()[0]
    backend.on(method, replica=None if method == "batch" else 1).raises(ServerUnreachable("down"))
    with pytest.raises(MetaClientError, match="down"):
        LEAVING[call](connection.table("t"))
    assert staleness(connection).as_of(place) is None


def test_secondary_answers_while_the_primary_has_no_location_if_it_is_fresh_enough(runtime: SimRuntime) -> None:
    backend = cluster(runtime, SILENT)
    connection = connected(backend, operation_timeout_s=2.0)
    learn(connection, backend, 0.0)
    lose_primary(backend)
    row = connection.table("t").row(b"a", max_staleness=1.0, **TIMELINE)
    assert (row.replica_id, row.lag_s is not None and row.lag_s <= 1.0) == (1, True)


# -- which answers are returned --------------------------------------------------------------------------------------


def test_answer_that_is_older_than_allowed_is_refused_and_the_primary_asked(runtime: SimRuntime) -> None:
    """The replica was fresh when it was chosen; it has fallen behind since."""
    backend = cluster(runtime)
    connection = connected(backend)
    learn(connection, backend, 0.0)
    backend.lag = 7.0
    backend.on("get", replica=0, times=1).delays(1.0)
    row = connection.table("t").row(b"a", max_staleness=5.0, **TIMELINE)
    assert row.replica_id == 0
    assert backend.count("get", replica_id=1) == 1
    assert connection.engine.telemetry.total("metaclient.staleness.refused") == 1


def test_answer_without_a_lag_is_refused_where_the_backend_reports_lags(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend)
    learn(connection, backend, 0.0)
    backend.lag = None
    backend.on("get", replica=0, times=1).delays(1.0)
    assert connection.table("t").row(b"a", max_staleness=5.0, **TIMELINE).replica_id == 0


def test_answer_that_took_too_long_is_refused_where_only_the_canary_knows_the_lag(runtime: SimRuntime) -> None:
    """The replica may have read the row at the end of the call: then the canary is older than it was at the start."""
    backend = cluster(runtime, SILENT)
    connection = connected(backend)
    learn(connection, backend, 0.0)
    backend.on("get", replica=1).delays(1.5)
    backend.on("get", replica=0, times=1).delays(3.0)
    row = connection.table("t").row(b"a", max_staleness=1.0, **TIMELINE)
    assert row.replica_id == 0


def test_lag_that_is_learned_during_the_read_does_not_make_its_answer_younger(runtime: SimRuntime) -> None:
    backend = cluster(runtime, SILENT)
    connection = connected(backend)
    learn(connection, backend, 3.0)
    backend.on("get", replica=0).raises(ServerUnreachable("down"))
    backend.on("get", replica=1).delays(1.0)
    runtime.call_later(0.5, lambda: learn(connection, backend, 0.0))
    row = connection.table("t").row(b"a", **TIMELINE)
    assert (row.replica_id, row.lag_s) == (1, pytest.approx(4.0))


def test_slow_primary_and_a_replica_that_is_too_old_end_at_the_primary(runtime: SimRuntime) -> None:
    """The replica is called first, because the primary is slow; its answer is refused."""
    backend = cluster(runtime)
    connection = connected(backend)
    backend.on("get", replica=0).delays(0.1)
    table = connection.table("t")
    for _ in range(100):
        table.row(b"a", **TIMELINE)
    backend.lag = 30.0
    assert table.row(b"a", max_staleness=5.0, **TIMELINE).replica_id == 0


# -- batches and scans -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("capabilities", [SILENT, REPORTING])
def test_rows_of_a_batch_obey_the_limit_region_by_region(runtime: SimRuntime, capabilities: Capabilities) -> None:
    """One region's replica is fresh, the other's unknown."""
    backend = cluster(runtime, capabilities)
    connection = connected(backend, hedge_budget=0.5)
    learn(connection, backend, 0.0, b"q")
    backend.on("batch", when=lambda call: all(_is_primary(action) for action in call.argument)).delays(0.3)
    rows = dict(connection.table("t").rows([b"a", b"q"], max_staleness=5.0, **TIMELINE))
    assert [rows[row].replica_id for row in (b"a", b"q")] == [0, 1]
    assert rows[b"q"].lag_s is not None
    assert rows[b"q"].lag_s <= 5.0


def _is_primary(action: Action) -> bool:
    return action.place is None or action.place.replica_id == 0


def test_row_of_a_batch_that_is_too_old_is_read_at_the_primary(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend)
    learn(connection, backend, 0.0)
    backend.lag = 9.0
    backend.on("batch", times=2, when=lambda call: all(_is_primary(action) for action in call.argument)).delays(0.3)
    rows = dict(connection.table("t").rows([b"a", b"b", b"q"], max_staleness=5.0, **TIMELINE))
    assert {row.replica_id for row in rows.values()} == {0}
    assert connection.engine.telemetry.total("metaclient.staleness.refused") == 3


@pytest.mark.parametrize("capabilities", [SILENT, REPORTING])
def test_scan_obeys_the_limit_and_reports_the_lag(runtime: SimRuntime, capabilities: Capabilities) -> None:
    backend = cluster(runtime, capabilities)
    connection = connected(backend)
    learn(connection, backend, 0.0, b"q")
    backend.on("scan_open", replica=0).delays(2.0)
    found = list(connection.table("t").scan(max_staleness=5.0, **TIMELINE))
    assert [row.replica_id for _, row in found] == [0, 0, 1]  # type: ignore[union-attr]  # a Row: columns are not sorted
    last = found[-1][1].lag_s  # type: ignore[union-attr]  # as above
    assert last is not None
    assert last <= 5.0


class Alike(Lagging):
    """The rows of a page are one run of rows that are alike."""

    def _aged(self, page: ScanPage, place: RegionLocation | None) -> ScanPage:
        cells = [row.cells[0] for row in page.rows]
        run = AlikeRows(
            [row.row for row in page.rows],
            (b"cf:a",),
            lambda: iter([(cell.value,) for cell in cells]),
            lambda: iter([(cell.timestamp,) for cell in cells]),
        )
        return replace(page, rows=RowRuns([run] if cells else []))


def test_rows_that_are_alike_have_the_lag_of_their_page(runtime: SimRuntime) -> None:
    backend = Alike(runtime, capabilities=SILENT)
    backend.add_table("t", splits=[b"m"], region_replication=2)
    connection = connected(backend)
    learn(connection, backend, 2.0)
    lose_primary(backend)
    rows = dict(connection.table("t").scan(max_staleness=5.0, **TIMELINE))
    assert list(rows) == [b"a", b"b", b"q"]
    assert all(isinstance(row, Row) and row.lag_s is not None and 2.0 <= row.lag_s <= 5.0 for row in rows.values())


def test_empty_page_of_a_replica_that_is_too_old_is_not_the_end_of_the_scan(runtime: SimRuntime) -> None:
    """The replica lacks all rows of its region: an empty page has an age, too."""
    backend = cluster(runtime)
    connection = connected(backend)
    learn(connection, backend, 0.0)
    backend.lag = 9.0
    backend.on("scan_open", replica=1).answers(ScanPage((), None, True, is_stale=True, lag_s=9.0))
    backend.on("scan_open", replica=0).delays(2.0)
    found = [key for key, _ in connection.table("t").scan(max_staleness=5.0, **TIMELINE)]
    assert found == [b"a", b"b", b"q"]


def test_scanner_that_grew_too_old_is_opened_again_after_its_last_row(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend)
    learn(connection, backend, 0.0)
    backend.on("scan_open", replica=0, times=1).delays(2.0)
    scan = connection.table("t").scan(row_stop=b"m", batch_size=1, max_staleness=5.0, **TIMELINE)
    first, row = next(scan)
    assert (first, row.replica_id) == (b"a", 1)  # type: ignore[union-attr]  # a Row: columns are not sorted
    backend.lag = 60.0  # the caller took a minute
    assert [(key, row.replica_id) for key, row in scan] == [(b"b", 0)]  # type: ignore[union-attr]  # as above
    assert backend.open_scanners() == 0


def test_scanner_of_a_page_that_was_refused_is_closed(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend)
    learn(connection, backend, 0.0)
    backend.lag = 9.0
    backend.on("scan_open", replica=0).delays(2.0)
    found = connection.table("t").scan(row_stop=b"m", batch_size=1, max_staleness=5.0, **TIMELINE)
    assert [key for key, _ in found] == [b"a", b"b"]
    runtime.sleep(1.0)
    assert connection.engine.telemetry.total("metaclient.staleness.refused") >= 1
    assert backend.open_scanners() == 0


# -- probes ----------------------------------------------------------------------------------------------------------


def test_replica_that_reports_its_lag_is_learned_in_the_background_within_the_budget(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend)
    table = connection.table("t")
    assert table.row(b"a", max_staleness=5.0, **TIMELINE).replica_id == 0
    runtime.sleep(0.1)
    backend.on("get", replica=0).delays(1.0)
    row = table.row(b"a", max_staleness=5.0, **TIMELINE)
    assert (row.replica_id, row.lag_s) == (1, 0.5)
    assert connection.engine.telemetry.total("metaclient.staleness.probes") == 1


def test_replica_that_stays_behind_is_probed_at_most_once_per_second(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    backend.lag = 60.0
    connection = connected(backend)
    for _ in range(100):
        connection.table("t").row(b"a", max_staleness=5.0, **TIMELINE)
        runtime.sleep(PROBE_S / 20)
    assert 2 <= backend.count("get", replica_id=1) <= 6


# -- in sessions -----------------------------------------------------------------------------------------------------

SESSION_READS: dict[str, Callable[[Table, float], Row]] = {
    "row": lambda table, limit_s: table.row(b"a", max_staleness=limit_s),
    "rows": lambda table, limit_s: table.rows([b"a"], max_staleness=limit_s)[0][1],
    "scan": lambda table, limit_s: next(row for _, row in table.scan(max_staleness=limit_s) if isinstance(row, Row)),
}


@pytest.mark.parametrize("read", SESSION_READS)
@pytest.mark.parametrize("capabilities", [SILENT, REPORTING])
def test_session_reads_with_a_limit_need_an_answer_that_is_young_and_has_the_own_writes(
    runtime: SimRuntime, capabilities: Capabilities, read: str
) -> None:
    backend = cluster(runtime, capabilities)
    connection = connected(backend, hedge_budget_burst=1000)
    for method in ("get", "scan_open"):
        backend.on(method, replica=0).delays(3.0)
    backend.on("batch", when=lambda call: all(_is_primary(action) for action in call.argument)).delays(3.0)

    def replica(session: Session, max_staleness: float) -> int | None:
        learn(connection, backend, 2.0)
        return SESSION_READS[read](session.table("t"), max_staleness).replica_id

    backend.lag = 2.0 if capabilities.replica_lag else None
    assert replica(connection.session(), 5.0) == 1
    assert replica(connection.session(), 1.0) == 0, "the replica is too far behind"
    writer = connection.session()
    writer.table("t").put(b"a", {b"cf:a": b"new"})
    assert replica(writer, 5.0) == 0, "the replica may lack the write"
    runtime.sleep(4.0)
    assert replica(writer, 1.0) == 0, "the replica has the write, and is too far behind"
    runtime.sleep(4.0)
    assert replica(writer, 5.0) == 1


# -- the default, and arguments that are refused ---------------------------------------------------------------------


def test_default_of_the_connection_applies_to_timeline_reads_only(runtime: SimRuntime) -> None:
    backend = cluster(runtime, SILENT)
    connection = connected(backend, max_staleness_s=5.0)
    backend.on("get", replica=0).delays(1.0)
    table = connection.table("t")
    assert table.row(b"a", **TIMELINE).replica_id == 0
    assert table.row(b"a").replica_id == 0
    assert table.row(b"a", replica_id=1).replica_id == 1
    assert table.row(b"a", max_staleness=math.inf, **TIMELINE).replica_id == 1


@pytest.mark.parametrize("value", [-1.0, -0.001, math.nan])
def test_negative_staleness_is_refused(runtime: SimRuntime, value: float) -> None:
    table = connected(cluster(runtime)).table("t")
    for read in (table.row, table.cells, table.rows, table.scan):
        arguments: tuple[Any, ...] = {table.row: (b"a",), table.cells: (b"a", b"cf:a"), table.rows: ([b"a"],)}.get(
            read,  # type: ignore[arg-type]  # a bound method
            (),
        )
        with pytest.raises(ValueError, match="from 0 on"):
            read(*arguments, max_staleness=value, **TIMELINE)  # type: ignore[operator]  # a bound method


@pytest.mark.parametrize("value", [True, "5", b"5"])
def test_staleness_that_is_no_number_is_refused(runtime: SimRuntime, value: Any) -> None:
    with pytest.raises(TypeError, match="number of seconds"):
        connected(cluster(runtime)).table("t").row(b"a", max_staleness=value, **TIMELINE)


@pytest.mark.parametrize("options", [{}, {"consistency": "STRONG"}])
def test_staleness_of_a_strong_read_is_refused(runtime: SimRuntime, options: dict[str, str]) -> None:
    table = connected(cluster(runtime)).table("t")
    with pytest.raises(ValueError, match="consistency='TIMELINE'"):
        table.row(b"a", max_staleness=5.0, **options)
    with pytest.raises(ValueError, match="consistency='TIMELINE'"):
        table.scan(max_staleness=5.0, **options)


def test_staleness_of_one_secondary_is_refused_and_of_the_primary_is_not(runtime: SimRuntime) -> None:
    table = connected(cluster(runtime)).table("t")
    with pytest.raises(ValueError, match="replica_id=1"):
        table.row(b"a", max_staleness=5.0, replica_id=1)
    assert table.row(b"a", max_staleness=5.0, replica_id=0) == {b"cf:a": b"a"}


def test_backend_without_replicas_refuses_it(runtime: SimRuntime) -> None:
    table = connected(cluster(runtime, Capabilities(filters=False, region_replicas=False))).table("t")
    with pytest.raises(Unsupported, match="cannot read region replicas"):
        table.row(b"a", max_staleness=5.0, **TIMELINE)


def test_negative_default_is_refused(runtime: SimRuntime) -> None:
    with pytest.raises(ConfigError, match="max_staleness_s"):
        connect_to(cluster(runtime), runtime=runtime, max_staleness_s=-1)


# -- on a fake cluster -----------------------------------------------------------------------------------------------


def test_pages_batches_and_gets_of_a_fake_cluster_report_the_lag(runtime: SimRuntime) -> None:
    with FakeCluster(runtime=runtime, servers=3) as fake, fake.connect() as connection:
        connection.create_table("t", {"cf": {}}, region_replication=2)
        table = connection.table("t")
        table.put(b"a", {b"cf:a": b"1"})
        runtime.sleep(5.0)
        lags = [
            table.row(b"a", replica_id=1).lag_s,
            dict(table.rows([b"a"], replica_id=1))[b"a"].lag_s,
            next(iter(table.scan(replica_id=1)))[1].lag_s,  # type: ignore[union-attr]  # a Row: columns are not sorted
        ]
        assert all(lag is not None and lag < 1.0 for lag in lags)
        for _ in range(3):
            assert table.row(b"a", max_staleness=1.0, **TIMELINE) == {b"cf:a": b"1"}
