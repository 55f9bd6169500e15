"""Scans over regions that split, merge, move and fail: every row once, in order, and no scanner left behind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaclient.backend import Addressing, Capabilities, ScanPage
from metaclient.calls import page_ahead
from metaclient.connection import Connection, connect_to
from metaclient.errors import (
    BackendFault,
    CallQueueTooBig,
    CallTimeout,
    ConnectionClosed,
    DeadlineExceeded,
    NotServingRegion,
    RequestRefused,
    RetriesExhausted,
    ScannerLost,
    ServerStopped,
    ServerUnreachable,
)
from metaclient.model import Cell, Put, RegionLocation, Result, Scan
from metaclient.runtime import SimRuntime
from metaclient.table import Table
from metaclient.testing import ScriptedBackend
from tests.unit.scan_faults import scan_faults, strike

GATEWAY = Capabilities(addressing=Addressing.GATEWAY)
KEYS = [b"%02d" % number for number in range(30)]


@pytest.fixture
def runtime() -> Iterator[SimRuntime]:
    with SimRuntime(seed=1) as made:
        yield made


@pytest.fixture(autouse=True, params=[False, True], ids=["no_prefetch", "prefetch"])
def prefetch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Every test also runs with pages that are requested ahead, from the first page of a scanner on."""
    monkeypatch.setattr(page_ahead, "PAGES_BEFORE", 1 if request.param else 1000)
    return bool(request.param)


def cluster(
    runtime: SimRuntime,
    *,
    splits: tuple[bytes, ...] = (b"10", b"20"),
    rows: dict[bytes, int] | None = None,
    replicas: int = 3,
    **options: Any,
) -> ScriptedBackend:
    """A table with these rows (key -> number of cells)."""
    backend = ScriptedBackend(runtime, **options)
    backend.capabilities = replace(backend.capabilities, is_remote=True)
    backend.add_table("t", splits=splits, region_replication=replicas)
    for row, cells in (dict.fromkeys(KEYS, 1) if rows is None else rows).items():
        fill(backend, row, cells)
    return backend


def fill(backend: ScriptedBackend, row: bytes, cells: int = 1) -> None:
    made = tuple(Cell(b"cf:%03d" % number, 1, b"%d" % number) for number in range(cells))
    backend._write(backend._table(b"t"), Put(row, made))


def connected(backend: ScriptedBackend, **options: Any) -> Connection:
    return connect_to(backend, runtime=backend.runtime, **{"hedge_delay": "fixed", **options})


def scanned(table: Table, **options: Any) -> list[bytes]:
    return [key for key, _ in table.scan(**options)]


# -- ranges ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [{}, {"consistency": "TIMELINE"}, {"replica_id": 1}])
@pytest.mark.parametrize("capabilities", [None, GATEWAY])
@pytest.mark.parametrize("batch_size", [1, 3, 1000])
def test_ranges_over_region_borders(
    runtime: SimRuntime, mode: dict[str, Any], capabilities: Capabilities | None, batch_size: int
) -> None:
    """Every kind of range, forward and reversed, direct and through a gateway, equals the sorted keys."""
    backend = cluster(runtime, capabilities=capabilities)
    table = connected(backend).table("t")
    mode = {**mode, "batch_size": batch_size}
    assert scanned(table, **mode) == KEYS
    assert scanned(table, row_start=b"05", row_stop=b"20", **mode) == KEYS[5:20]
    assert scanned(table, row_start=b"10", row_stop=b"10\x00", **mode) == [b"10"]
    assert scanned(table, row_prefix=b"1", **mode) == KEYS[10:20]
    assert scanned(table, row_prefix=b"10", **mode) == [b"10"]
    assert scanned(table, reverse=True, **mode) == KEYS[::-1]
    assert scanned(table, row_start=b"20", row_stop=b"05", reverse=True, **mode) == KEYS[20:5:-1]
    assert scanned(table, row_start=b"19\xff", row_stop=b"10", reverse=True, **mode) == KEYS[19:10:-1]
    assert scanned(table, row_prefix=b"1", reverse=True, **mode) == KEYS[19:9:-1]
    assert scanned(table, row_start=b"zz", **mode) == []
    assert scanned(table, row_start=b"15", row_stop=b"12", **mode) == []
    assert scanned(table, limit=13, **mode) == KEYS[:13]
    assert scanned(table, limit=13, reverse=True, **mode) == KEYS[:16:-1]
    assert backend.open_scanners() == 0


def test_reversed_scan_starts_in_the_region_before_an_excluded_border(runtime: SimRuntime) -> None:
    """BEFORE semantics: a reversed prefix scan whose upper end is a region's first key asks the region below it."""
    backend = cluster(runtime)
    table = connected(backend).table("t")
    assert scanned(table, row_prefix=b"0", reverse=True) == KEYS[9::-1]
    opened = [call for call in backend.calls if call.method == "scan_open"]
    assert len(opened) == 1
    assert opened[0].server == backend.servers[0]


def test_scan_visits_only_the_regions_of_its_range(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    table = connected(backend).table("t")
    assert scanned(table, row_start=b"10", row_stop=b"20") == KEYS[10:20]
    assert backend.count("scan_open") == 1
    assert scanned(table, row_start=b"20", row_stop=b"10", reverse=True) == KEYS[20:10:-1]
    assert backend.count("scan_open") == 3


def pages_of(backend: ScriptedBackend) -> int:
    return backend.count("scan_open") + backend.count("scan_next")


def test_scan_caching_is_the_page_where_no_batch_size_is_given(runtime: SimRuntime) -> None:
    """hbase.client.scanner.caching; a batch_size that is given wins, also one that equals happybase's default."""
    backend = cluster(runtime, splits=())
    table = connected(backend, config={"hbase.client.scanner.caching": "10"}).table("t")
    assert scanned(table) == KEYS
    assert pages_of(backend) == 3
    assert scanned(table, batch_size=1000) == KEYS
    assert pages_of(backend) == 4
    assert scanned(table, batch_size=15) == KEYS
    assert pages_of(backend) == 6


def test_page_ends_at_the_configured_bytes(runtime: SimRuntime) -> None:
    """hbase.client.scanner.max.result.size: the row that passes it is the page's last (30 rows of 9 bytes here)."""
    backend = cluster(runtime, splits=())
    table = connected(backend, scan_max_result_bytes=80).table("t")
    assert scanned(table) == KEYS
    assert pages_of(backend) == 4
    assert scanned(table, reverse=True, batch_size=5) == KEYS[::-1]
    assert pages_of(backend) == 10


def test_limit_asks_for_no_more_rows_than_it_needs(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    table = connected(backend).table("t")
    assert scanned(table, limit=4) == KEYS[:4]
    assert scanned(table, limit=12) == KEYS[:12]
    asked = [call.argument for call in backend.calls if call.method == "scan_open"]
    assert [(scan.limit, scan.caching) for scan in asked] == [(4, 4), (12, 12), (2, 2)]


def test_empty_table_and_empty_regions(runtime: SimRuntime) -> None:
    assert scanned(connected(cluster(runtime, rows={})).table("t")) == []
    assert scanned(connected(cluster(runtime, rows={b"25": 1})).table("t")) == [b"25"]


def test_gateway_scan_is_one_scanner_for_the_whole_range(runtime: SimRuntime) -> None:
    backend = cluster(runtime, capabilities=GATEWAY)
    assert scanned(connected(backend).table("t"), batch_size=7) == KEYS
    assert (backend.count("scan_open"), backend.count("read_meta")) == (1, 0)


def test_gateway_scan_resumes_after_the_last_row(runtime: SimRuntime) -> None:
    backend = cluster(runtime, capabilities=GATEWAY)
    backend.on("scan_next", times=2).raises(lambda: ScannerLost("gateway restarted"))
    assert scanned(connected(backend).table("t"), batch_size=7) == KEYS
    assert backend.count("read_meta") == 0


def test_arguments_are_checked_before_the_first_row(runtime: SimRuntime) -> None:
    table = connected(cluster(runtime)).table("t")
    with pytest.raises(ValueError, match="limit"):
        table.scan(limit=0)
    with pytest.raises(TypeError, match="row_prefix"):
        table.scan(row_prefix=b"a", row_start=b"b")


# -- TIMELINE --------------------------------------------------------------------------------------------------


def test_timeline_scan_keeps_the_replica_that_opened_it(runtime: SimRuntime) -> None:
    """All 1000 rows in order with caching 1, from one replica per region."""
    rows = {b"%04d" % number: 1 for number in range(1000)}
    backend = cluster(runtime, splits=(b"0333", b"0666"), rows=rows)
    table = connected(backend, hedge_budget_burst=100).table("t")
    backend.on("scan_open", replica=0).hangs()
    found = list(table.scan(batch_size=1, consistency="TIMELINE"))
    assert [key for key, _ in found] == sorted(rows)
    places = {(row.region.start_key, row.replica_id, row.server) for _, row in found}
    assert len(places) == 3
    assert all(row.stale and row.replica_id > 0 for _, row in found)


def test_rows_name_the_region_and_server_that_served_them(runtime: SimRuntime) -> None:
    """Encoded name and server of the replica that served (TestReplicasClient)."""
    backend = cluster(runtime)
    for key, row in connected(backend).table("t").scan(replica_id=2):
        place = backend.region_of(b"t", key).replicas[2]
        assert (row.region, row.server) == (place.region, place.server)
        assert row.region.encoded_name == place.region.encoded_name


def test_scan_opens_at_a_secondary_when_the_primary_stops(runtime: SimRuntime) -> None:
    """RegionServerStopped at the primary -> stale rows (TestReplicaWithCluster)."""
    backend = cluster(runtime)
    backend.on("scan_open", replica=0).raises(lambda: ServerStopped("stopping"))
    found = list(connected(backend).table("t").scan(consistency="TIMELINE"))
    assert [key for key, _ in found] == KEYS
    assert all(row.stale for _, row in found)


def test_losers_scanners_are_closed(runtime: SimRuntime) -> None:
    """0 open scanners after 100 hedged scans whose slow primaries open theirs late."""
    backend = cluster(runtime)
    connection = connected(backend, hedge_budget_burst=1000, hedge_delay_scan_s=0.01)
    backend.on("scan_open", replica=0).delays(0.5)
    for _ in range(100):
        assert scanned(connection.table("t"), batch_size=2, consistency="TIMELINE") == KEYS
    runtime.run_for(1.0)
    assert backend.open_scanners() == 0
    assert connection.stats()["calls"]["abandoned"] == 0


def test_scanner_that_opens_after_its_time_is_closed(runtime: SimRuntime) -> None:
    """A late answer of an abandoned call is harmless: the scanner it brings is closed."""
    backend = cluster(runtime, capabilities=Capabilities(honours_deadline=False))
    table = connected(backend, rpc_timeout_s=0.2).table("t")
    backend.on("scan_open", times=1).delays(1.0)
    assert scanned(table, batch_size=2) == KEYS
    runtime.run_for(5.0)
    assert backend.open_scanners() == 0


# -- losses ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ScannerLost, NotServingRegion, ServerStopped, CallTimeout, CallQueueTooBig])
@pytest.mark.parametrize("reverse", [False, True])
def test_next_that_fails_is_resumed_without_loss_or_repetition(
    runtime: SimRuntime, error: type[Exception], reverse: bool
) -> None:
    """next errors reopen after the last row; a next is never repeated."""
    backend = cluster(runtime)
    table = connected(backend).table("t")
    backend.on("scan_next", times=5).raises(lambda: error("scripted"))
    expected = KEYS[::-1] if reverse else KEYS
    assert scanned(table, batch_size=4, reverse=reverse) == expected
    opened = [call.argument for call in backend.calls if call.method == "scan_open"]
    resumed = [scan for scan in opened if scan.start_row not in (b"", b"10", b"20")]
    assert len(resumed) == 5
    assert not any(scan.include_start for scan in resumed)


def test_scanner_that_lives_on_is_closed_before_the_next_is_opened(runtime: SimRuntime) -> None:
    """An overloaded server keeps the scanner: it must not be left to its lease."""
    backend = cluster(runtime)
    backend.on("scan_next", times=1).raises(lambda: CallQueueTooBig("full"))
    assert scanned(connected(backend).table("t"), batch_size=4) == KEYS
    assert backend.open_scanners() == 0


def test_scanner_lost_while_opening_is_retried(runtime: SimRuntime) -> None:
    """ScannerReset while opening is retried."""
    backend = cluster(runtime)
    backend.on("scan_open", times=2).raises(lambda: ScannerLost("reset"))
    assert scanned(connected(backend).table("t")) == KEYS


def test_do_not_retry_error_of_next_ends_the_scan(runtime: SimRuntime) -> None:
    """Other do-not-retry errors fail."""
    backend = cluster(runtime)
    backend.on("scan_next").raises(lambda: RequestRefused("denied"))
    rows = connected(backend).table("t").scan(batch_size=4)
    assert [key for key, _ in islice(rows, 4)] == KEYS[:4]
    with pytest.raises(RequestRefused):
        next(rows)
    assert backend.open_scanners() == 0


@pytest.mark.parametrize("consistency", ["STRONG", "TIMELINE"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("change", ["split", "merge", "move"])
def test_regions_change_in_mid_scan(runtime: SimRuntime, change: str, reverse: bool, consistency: str) -> None:
    backend = cluster(runtime)
    table = connected(backend).table("t")
    rows = table.scan(batch_size=3, reverse=reverse, consistency=consistency)
    seen = [key for key, _ in islice(rows, 13)]
    if change == "split":
        backend.split(b"t", b"12")
        backend.split(b"t", b"15")
    elif change == "merge":
        backend.merge(b"t", b"00", b"29")
    else:
        for row in (b"00", b"10", b"20"):
            backend.move(b"t", row, backend.servers[2])
    seen += [key for key, _ in rows]
    assert seen == (KEYS[::-1] if reverse else KEYS)
    runtime.run_for(1.0)


def test_server_closes_the_scanner_in_mid_region(runtime: SimRuntime) -> None:
    """A page with rows, no scanner and not the end: reopen after the last row."""
    backend = cluster(runtime)
    truth = backend.scan_open

    def forgetful(place: RegionLocation | None, table: bytes, scan: Scan, deadline: float) -> ScanPage:
        page = truth(place, table, scan, deadline)
        if page.scanner is None:
            return page
        backend.scan_close(page.scanner, deadline)
        return ScanPage(page.rows, None, False)

    backend.scan_open = forgetful  # type: ignore[method-assign]
    assert scanned(connected(backend).table("t"), batch_size=4) == KEYS


def test_early_close_of_the_iterator_closes_the_servers_scanner(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    rows = connected(backend).table("t").scan(batch_size=2)
    next(rows)
    assert backend.open_scanners() == 1
    rows.close()
    runtime.run_for(1.0)  # a page that was requested ahead arrives before its scanner is closed
    assert backend.open_scanners() == 0
    for _ in connected(backend).table("t").scan(batch_size=2):
        break
    runtime.run_for(1.0)
    assert backend.open_scanners() == 0


def test_iterator_that_was_never_used_opens_nothing(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connected(backend).table("t").scan().close()
    assert backend.count("scan_open") == 0


def test_failure_to_close_is_not_the_users_problem(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    backend.on("scan_close").raises(lambda: ServerUnreachable("gone"))
    assert scanned(connected(backend).table("t"), batch_size=4, limit=6) == KEYS[:6]


def test_closing_the_connection_ends_a_scan(runtime: SimRuntime) -> None:
    for owns in (True, False):
        backend = cluster(runtime)
        connection = connect_to(backend, runtime=runtime, owns_backend=owns)
        rows = connection.table("t").scan(batch_size=2)
        next(rows)
        connection.close()
        with pytest.raises(ConnectionClosed):
            list(rows)


# -- pieces ----------------------------------------------------------------------------------------------------


def pieces(table: Table, **options: Any) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    for key, row in table.scan(**options):
        found.setdefault(key, []).extend(row)
    return found


@pytest.mark.parametrize("lost_after", range(1, 12))
@pytest.mark.parametrize("reverse", [False, True])
def test_row_in_pieces_is_resumed_without_loss_or_repetition(
    runtime: SimRuntime, lost_after: int, reverse: bool
) -> None:
    """The resume row is inclusive only after a partial row, and what is out is skipped."""
    rows = {b"05": 5, b"07": 1, b"12": 7, b"25": 6}
    backend = cluster(runtime, rows=rows)
    table = connected(backend).table("t")
    count = iter(range(100))
    backend.on("scan_next", when=lambda call: next(count) + 1 == lost_after).raises(lambda: ScannerLost("lease"))
    found = pieces(table, scan_batching=2, batch_size=1, reverse=reverse)
    expected = {row: [b"cf:%03d" % number for number in range(cells)] for row, cells in rows.items()}
    assert found == expected
    assert list(found) == sorted(rows, reverse=reverse)


def test_limit_counts_results_as_happybase_does(runtime: SimRuntime) -> None:
    """happybase: with scan_batching the results are pieces, and the limit counts results."""
    backend = cluster(runtime, rows={b"05": 5, b"07": 1, b"12": 4})
    table = connected(backend).table("t")
    found = [(key, len(row)) for key, row in table.scan(scan_batching=2, limit=4, batch_size=1)]
    assert found == [(b"05", 2), (b"05", 2), (b"05", 1), (b"07", 1)]
    assert backend.open_scanners() == 0
    backend.on("scan_next", times=1).raises(lambda: ScannerLost("lease"))
    assert len(list(table.scan(scan_batching=2, limit=2, batch_size=1))) == 2
    assert len(list(table.scan(scan_batching=2, limit=5, batch_size=1))) == 5


def test_row_that_was_deleted_while_in_pieces_ends_there(runtime: SimRuntime) -> None:
    backend = cluster(runtime, rows={b"05": 6, b"07": 1})
    rows = connected(backend).table("t").scan(scan_batching=2, batch_size=1)
    assert next(rows)[0] == b"05"
    del backend._table(b"t").rows[b"05"]
    backend.on("scan_next", times=1).raises(lambda: ScannerLost("lease"))
    assert [key for key, _ in rows] == [b"07"]


# -- lies ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [None, 5, (), ScanPage([None], None, True), ScanPage([b"row"], None, True)])
def test_page_of_a_wrong_type_is_the_backends_fault(runtime: SimRuntime, page: object) -> None:
    backend = cluster(runtime)
    backend.on("scan_open").answers(lambda _: page)
    for consistency in ("STRONG", "TIMELINE"):
        with pytest.raises((BackendFault, RetriesExhausted)):
            scanned(connected(backend, retries=2).table("t"), consistency=consistency)


def test_server_that_never_gets_on_is_given_up(runtime: SimRuntime) -> None:
    """No rows, no scanner, not the end: it would be reopened for ever."""
    backend = cluster(runtime)
    backend.on("scan_open").answers(ScanPage([], None, False))
    with pytest.raises(RetriesExhausted, match="before it answered a row"):
        scanned(connected(backend, retries=3).table("t"))


def test_endless_empty_pages_are_given_up(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    backend.on("scan_open").answers(ScanPage([], 7, False))
    backend.on("scan_next").answers(ScanPage([], 7, False))
    with pytest.raises(BackendFault, match="without rows"):
        scanned(connected(backend).table("t"))


def test_slow_heartbeats_are_waited_for(runtime: SimRuntime) -> None:
    """A filter that finds nothing for an hour is no fault: each heartbeat is an answer."""
    backend = cluster(runtime)
    backend.on("scan_open", times=1).answers(ScanPage([], 7, False))
    rule = backend.on("scan_next", times=2000).answers(ScanPage([], 7, False)).delays(2.0)
    backend.on("scan_next", times=1).raises(lambda: ScannerLost("at last"))
    assert scanned(connected(backend).table("t")) == KEYS
    assert rule.used == 2000


def test_rows_out_of_order_are_the_backends_fault(runtime: SimRuntime) -> None:
    """A server that starts over again would repeat rows: it is caught, not passed on."""
    backend = cluster(runtime)
    cells = [Cell(b"cf:a", 1, b"1")]
    backend.on("scan_open").answers(ScanPage([Result(b"05", cells)], None, False))
    rows = connected(backend).table("t").scan()
    assert next(rows)[0] == b"05"
    with pytest.raises(BackendFault, match="'05'"):
        next(rows)


def test_next_that_always_fails_is_given_up(runtime: SimRuntime) -> None:
    """Opening works and brings nothing, next always fails: attempts are counted over both."""
    backend = cluster(runtime, rows={b"05": 1})
    backend.on("scan_open").answers(ScanPage([], 7, False))
    backend.on("scan_next").raises(lambda: ScannerLost("lost"))
    with pytest.raises(RetriesExhausted, match="before they answered a row") as caught:
        scanned(connected(backend, retries=4).table("t"))
    assert len(caught.value.attempts) == backend.count("scan_next") == 5


def test_hung_server_ends_the_scan_at_its_deadline(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    table = connected(backend, operation_timeout_s=5.0, rpc_timeout_s=1.0).table("t")
    backend.on("scan_next").hangs()
    backend.on("scan_open", when=lambda call: not call.argument.include_start).hangs()
    rows = table.scan(batch_size=3)
    assert [key for key, _ in islice(rows, 3)] == KEYS[:3]
    begun = runtime.now()
    with pytest.raises(DeadlineExceeded) as caught:
        next(rows)
    assert runtime.now() - begun <= 5.0
    assert len(caught.value.attempts) >= 2


# -- anything --------------------------------------------------------------------------------------------------

ROW = st.binary(min_size=1, max_size=2).map(lambda key: bytes(byte % 4 + 97 for byte in key))
BOUND = st.one_of(st.none(), ROW)


@settings(max_examples=150)
@given(
    rows=st.dictionaries(ROW, st.integers(1, 5), max_size=12),
    splits=st.sets(ROW, max_size=4),
    start=BOUND,
    stop=BOUND,
    prefix=st.booleans(),
    reverse=st.booleans(),
    limit=st.one_of(st.none(), st.integers(1, 8)),
    batch_size=st.integers(1, 4),
    batching=st.one_of(st.none(), st.integers(1, 3)),
    mode=st.sampled_from([{}, {"consistency": "TIMELINE"}, {"replica_id": 1}]),
    gateway=st.booleans(),
    faults=scan_faults(ROW),
    seed=st.integers(0, 1000),
)
def test_any_scan_equals_the_sorted_rows(
    rows: dict[bytes, int],
    splits: set[bytes],
    start: bytes | None,
    stop: bytes | None,
    prefix: bool,
    reverse: bool,
    limit: int | None,
    batch_size: int,
    batching: int | None,
    mode: dict[str, Any],
    gateway: bool,
    faults: dict[int, tuple[str, bytes]],
    seed: int,
) -> None:
    """Random tables, splits, ranges and faults in mid-scan: the result is that of a sorted dict."""
    with SimRuntime(seed=seed) as runtime:
        capabilities = GATEWAY if gateway else None
        backend = cluster(runtime, splits=tuple(splits), rows=rows, replicas=2, capabilities=capabilities)
        strike(backend, faults)
        table = connected(backend).table("t")
        bounds: dict[str, Any] = {"row_start": start, "row_stop": stop}
        if prefix:
            bounds = {"row_prefix": start or b"a"}
        found = [
            (key, tuple(row))
            for key, row in table.scan(
                reverse=reverse, limit=limit, batch_size=batch_size, scan_batching=batching, **bounds, **mode
            )
        ]
        assert found == expected_of(rows, bounds, reverse=reverse, limit=limit, batching=batching)
        runtime.run_for(1.0)


def expected_of(
    rows: dict[bytes, int], bounds: dict[str, Any], *, reverse: bool, limit: int | None, batching: int | None
) -> list[tuple[bytes, tuple[bytes, ...]]]:
    if "row_prefix" in bounds:
        chosen = [row for row in rows if row.startswith(bounds["row_prefix"])]
    elif reverse:
        chosen = [
            row
            for row in rows
            if (bounds["row_start"] is None or row <= bounds["row_start"])
            and (bounds["row_stop"] is None or row > bounds["row_stop"])
        ]
    else:
        chosen = [
            row
            for row in rows
            if (bounds["row_start"] is None or row >= bounds["row_start"])
            and (bounds["row_stop"] is None or row < bounds["row_stop"])
        ]
    found: list[tuple[bytes, tuple[bytes, ...]]] = []
    for row in sorted(chosen, reverse=reverse):
        names = [b"cf:%03d" % number for number in range(rows[row])]
        step = batching or len(names)
        found += [(row, tuple(names[at : at + step])) for at in range(0, len(names), step)]
    return found[:limit]
