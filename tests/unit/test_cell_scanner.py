"""Scans by pages of cells walk over regions as scans of rows do: every row once, in order, no scanner left behind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaclient.backend import Addressing, Capabilities, CellBackend, CellPage, ScanPage
from metaclient.connection import Connection, connect_to
from metaclient.errors import (
    BackendFault,
    CallQueueTooBig,
    CallTimeout,
    MetaClientError,
    NotServingRegion,
    RequestRefused,
    RetriesExhausted,
    ScannerLost,
    ServerStopped,
    Unsupported,
)
from metaclient.model import Cell, Consistency, Put, RegionLocation, Result, Scan
from metaclient.runtime import SimRuntime
from metaclient.scanner import CellScanner
from metaclient.testing import ScriptedBackend
from tests.unit.scan_faults import scan_faults, strike

KEYS = [b"%02d" % number for number in range(30)]
CELLS = Capabilities(cell_pages=True)
GATEWAY = Capabilities(cell_pages=True, addressing=Addressing.GATEWAY)
Placed = tuple[CellPage, RegionLocation | None]


class CellScripted(ScriptedBackend):
    """Answers the pages of the scripted backend as pages of cells. What is in them is nobody's business here."""

    def scan_open_cells(self, place: RegionLocation | None, table: bytes, scan: Scan, deadline: float) -> Any:
        return cell_page(self.scan_open(place, table, scan, deadline))

    def scan_next_cells(self, scanner: object, rows: int, deadline: float) -> Any:
        return cell_page(self.scan_next(scanner, rows, deadline))


def cell_page(page: object) -> object:
    if not isinstance(page, ScanPage):
        return page  # of the test's own making
    first, last = (page.rows[0].row, page.rows[-1].row) if page.rows else (b"", b"")
    rest = (page.scanner, page.is_end_of_region, page.is_stale, page.is_end_of_scan)
    return CellPage(page.rows, len(page.rows), first, last, *rest)


def page_of(*rows: bytes, scanner: object = None, is_end: bool = True) -> CellPage:
    found = cell_page(ScanPage([Result(row, [Cell(b"cf:a", 1, b"1")]) for row in rows], scanner, is_end))
    assert isinstance(found, CellPage)
    return found


@pytest.fixture
def runtime() -> Iterator[SimRuntime]:
    with SimRuntime(seed=1) as made:
        yield made


def cluster(
    runtime: SimRuntime,
    *,
    splits: tuple[bytes, ...] = (b"10", b"20"),
    rows: list[bytes] | None = None,
    capabilities: Capabilities = CELLS,
    **options: Any,
) -> CellScripted:
    backend = CellScripted(runtime, capabilities=capabilities, **options)
    backend.add_table("t", splits=splits, region_replication=3)
    for row in KEYS if rows is None else rows:
        backend._write(backend._table(b"t"), Put(row, (Cell(b"cf:a", 1, b"v"),)))
    return backend


def connected(backend: ScriptedBackend, **options: Any) -> Connection:
    return connect_to(backend, runtime=backend.runtime, **{"hedge_delay": "fixed", **options})


def scanner(connection: Connection, scan: Scan, *, timeline: bool = False, replica_id: int | None = None) -> Any:
    consistency = Consistency.TIMELINE if timeline or replica_id is not None else Consistency.STRONG
    return iter(CellScanner(connection.engine.operations, b"t", scan, consistency, replica_id))


def rows_of(pages: Iterator[Placed]) -> list[bytes]:
    return [result.row for page, _ in pages for result in page.cells]


def scanned(backend: ScriptedBackend, scan: Scan = Scan(), **how: Any) -> list[bytes]:  # noqa: B008  # a frozen value
    return rows_of(scanner(connected(backend), scan, **how))


def test_scripted_backend_is_what_the_spi_asks_for(runtime: SimRuntime) -> None:
    assert isinstance(cluster(runtime), CellBackend)


@pytest.mark.parametrize("how", [{}, {"timeline": True}, {"replica_id": 1}])
@pytest.mark.parametrize("capabilities", [CELLS, GATEWAY])
@pytest.mark.parametrize("caching", [1, 3, 1000])
def test_ranges_over_region_borders(
    runtime: SimRuntime, how: dict[str, Any], capabilities: Capabilities, caching: int
) -> None:
    backend = cluster(runtime, capabilities=capabilities)
    scan = Scan(caching=caching)
    assert scanned(backend, scan, **how) == KEYS
    assert scanned(backend, replace(scan, start_row=b"05", stop_row=b"20"), **how) == KEYS[5:20]
    assert scanned(backend, replace(scan, start_row=b"10", stop_row=b"10\x00"), **how) == [b"10"]
    assert scanned(backend, replace(scan, start_row=b"zz"), **how) == []
    assert scanned(backend, replace(scan, limit=13), **how) == KEYS[:13]
    assert backend.open_scanners() == 0


def test_limit_is_told_to_the_server_and_ends_the_scan(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    assert scanned(backend, Scan(limit=12, caching=5)) == KEYS[:12]
    asked = [call.argument for call in backend.calls if call.method == "scan_open"]
    assert [(scan.start_row, scan.limit, scan.caching) for scan in asked] == [(b"", 12, 5), (b"10", 2, 2)]
    assert backend.open_scanners() == 0


def test_pages_name_the_place_that_served_them(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    pages = list(scanner(connected(backend), Scan(), replica_id=2))
    assert [place for _, place in pages] == [backend.region_of(b"t", row).replicas[2] for row in (b"00", b"10", b"20")]
    assert all(page.is_stale for page, _ in pages)


def test_timeline_opens_at_a_secondary_when_the_primary_stops(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    backend.on("scan_open", replica=0).raises(lambda: ServerStopped("stopping"))
    pages = list(scanner(connected(backend), Scan(caching=4), timeline=True))
    assert rows_of(iter(pages)) == KEYS
    assert all(place is not None and place.replica_id > 0 for _, place in pages)


def test_losers_scanners_are_closed(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend, hedge_budget_burst=1000, hedge_delay_scan_s=0.01)
    backend.on("scan_open", replica=0).delays(0.5)
    for _ in range(20):
        assert rows_of(scanner(connection, Scan(caching=2), timeline=True)) == KEYS
    runtime.run_for(1.0)
    assert backend.open_scanners() == 0


# -- losses ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ScannerLost, NotServingRegion, ServerStopped, CallTimeout, CallQueueTooBig])
def test_next_that_fails_is_resumed_after_the_last_row_of_the_last_page(
    runtime: SimRuntime, error: type[MetaClientError]
) -> None:
    backend = cluster(runtime)
    backend.on("scan_next", times=5).raises(lambda: error("scripted"))
    assert scanned(backend, Scan(caching=4)) == KEYS
    opened = [call.argument for call in backend.calls if call.method == "scan_open"]
    resumed = [scan for scan in opened if scan.start_row not in (b"", b"10", b"20")]
    assert len(resumed) == 5
    assert not any(scan.include_start for scan in resumed)
    if error is CallQueueTooBig:  # its scanner lives on, and must not be left to its lease
        assert backend.open_scanners() == 0


@pytest.mark.parametrize("timeline", [False, True])
@pytest.mark.parametrize("change", ["split", "merge", "move"])
def test_regions_change_between_two_pages(runtime: SimRuntime, change: str, timeline: bool) -> None:
    backend = cluster(runtime)
    pages = scanner(connected(backend), Scan(caching=3), timeline=timeline)
    seen = rows_of(islice(pages, 5))
    if change == "split":
        backend.split(b"t", b"12")
        backend.split(b"t", b"15")
    elif change == "merge":
        backend.merge(b"t", b"00", b"29")
    else:
        for row in (b"00", b"10", b"20"):
            backend.move(b"t", row, backend.servers[2])
    assert seen + rows_of(pages) == KEYS
    runtime.run_for(1.0)


def test_server_that_closes_the_scanner_in_mid_region(runtime: SimRuntime) -> None:
    backend = cluster(runtime, splits=(), rows=[b"03"])
    backend.on("scan_open", times=1).answers(page_of(b"01", b"02", is_end=False))
    assert scanned(backend) == [b"01", b"02", b"03"]
    opened = [call.argument for call in backend.calls if call.method == "scan_open"]
    assert [(scan.start_row, scan.include_start) for scan in opened] == [(b"", True), (b"02", False)]


def test_error_that_is_not_tried_again_ends_the_scan(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    backend.on("scan_next").raises(lambda: RequestRefused("denied"))
    pages = scanner(connected(backend), Scan(caching=4))
    assert rows_of(islice(pages, 1)) == KEYS[:4]
    with pytest.raises(RequestRefused):
        next(pages)
    assert backend.open_scanners() == 0


@pytest.mark.parametrize("limit", [None, 13])
def test_next_region_is_opened_ahead(runtime: SimRuntime, limit: int | None) -> None:
    backend = cluster(runtime, capabilities=replace(CELLS, is_remote=True))
    connection = connected(backend)
    connection.table("t").regions()  # caches the locations
    pages = scanner(connection, Scan(caching=5, limit=limit))
    seen = rows_of(islice(pages, 2))
    runtime.run_for(1.0)
    asked = [call.argument for call in backend.calls if call.method == "scan_open"]
    assert [scan.start_row for scan in asked] == [b"", b"10"][: 2 if limit is None else 1]
    assert seen + rows_of(pages) == KEYS[:limit]
    assert backend.open_scanners() == 0


def test_closing_it_early_closes_the_servers_scanner(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    pages = scanner(connected(backend), Scan(caching=2))
    next(pages)
    assert backend.open_scanners() == 1
    pages.close()
    assert backend.open_scanners() == 0


def test_heartbeats_are_not_given_out(runtime: SimRuntime) -> None:
    backend = cluster(runtime, splits=(), rows=[])
    backend.on("scan_open", times=1).answers(page_of(scanner=7, is_end=False))
    backend.on("scan_next", times=2000).answers(page_of(scanner=7, is_end=False)).delays(2.0)
    backend.on("scan_next", times=1).answers(page_of(b"01"))
    assert [page.rows for page, _ in scanner(connected(backend), Scan())] == [1]


def test_filter_that_wants_no_more_ends_the_scan_in_mid_table(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    page = replace(page_of(b"01", is_end=False), is_end_of_scan=True)
    backend.on("scan_open").answers(page)
    assert scanned(backend) == [b"01"]
    assert backend.count("scan_open") == 1


# -- lies and refusals -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [None, 5, [], Result(b"r")])
@pytest.mark.parametrize("timeline", [False, True])
def test_page_of_a_wrong_type_is_the_backends_fault(runtime: SimRuntime, page: object, timeline: bool) -> None:
    backend = cluster(runtime)
    backend.on("scan_open").answers(lambda _: page)
    with pytest.raises((BackendFault, RetriesExhausted)):
        rows_of(scanner(connected(backend, retries=2), Scan(), timeline=timeline))


@pytest.mark.parametrize("rows", [(b"05",), (b"04", b"09"), (b"07", b"06")])
def test_page_that_is_not_ahead_is_the_backends_fault(runtime: SimRuntime, rows: tuple[bytes, ...]) -> None:
    backend = cluster(runtime)
    backend.on("scan_open", times=1).answers(page_of(b"01", b"05", is_end=False))
    backend.on("scan_open", times=1).answers(page_of(*rows))
    pages = scanner(connected(backend), Scan())
    next(pages)
    with pytest.raises(BackendFault, match=f"'{rows[0].decode()}' to .* to a scan at '05'"):
        next(pages)


def test_page_with_more_rows_than_the_limit_is_the_backends_fault(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    backend.on("scan_open").answers(page_of(b"01", b"02", b"03"))
    with pytest.raises(BackendFault, match="3 rows to a scan with 2 left"):
        scanned(backend, Scan(limit=2))


def test_server_that_never_gets_on_is_given_up(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    backend.on("scan_open").answers(page_of(is_end=False))
    with pytest.raises(RetriesExhausted, match="before it answered a row"):
        rows_of(scanner(connected(backend, retries=3), Scan()))


def test_what_cannot_be_read_as_cells_is_refused(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    for scan in (Scan(is_reversed=True), Scan(batch=2)):
        with pytest.raises(Unsupported, match="whole rows, forward"):
            scanner(connected(backend), scan)
    for other in (cluster(runtime, capabilities=Capabilities()), ScriptedBackend(runtime, capabilities=CELLS)):
        with pytest.raises(Unsupported, match="has no pages of cells"):
            scanner(connected(other), Scan())
    without = cluster(runtime, capabilities=Capabilities(cell_pages=True, region_replicas=False))
    with pytest.raises(Unsupported, match="cannot read region replicas"):
        scanner(connected(without), Scan(), timeline=True)


# -- anything ----------------------------------------------------------------------------------------------------------

ROW = st.binary(min_size=1, max_size=2).map(lambda key: bytes(byte % 4 + 97 for byte in key))


@settings(max_examples=150)
@given(
    rows=st.sets(ROW, max_size=12),
    splits=st.sets(ROW, max_size=4),
    start=st.just(b"") | ROW,
    stop=st.just(b"") | ROW,
    limit=st.none() | st.integers(1, 8),
    caching=st.integers(1, 4),
    how=st.sampled_from([{}, {"timeline": True}, {"replica_id": 1}]),
    gateway=st.booleans(),
    faults=scan_faults(ROW),
    seed=st.integers(0, 1000),
)
def test_any_scan_equals_the_sorted_rows(
    rows: set[bytes],
    splits: set[bytes],
    start: bytes,
    stop: bytes,
    limit: int | None,
    caching: int,
    how: dict[str, Any],
    gateway: bool,
    faults: dict[int, tuple[str, bytes]],
    seed: int,
) -> None:
    """Random tables, splits, ranges and faults in mid-scan: the result is that of a sorted set."""
    with SimRuntime(seed=seed) as runtime:
        capabilities = GATEWAY if gateway else CELLS
        backend = cluster(runtime, splits=tuple(splits), rows=sorted(rows), capabilities=capabilities)
        strike(backend, faults)
        scan = Scan(start, stop, limit=limit, caching=caching)
        wanted = sorted(row for row in rows if row >= start and (not stop or row < stop))
        assert scanned(backend, scan, **how) == wanted[:limit]
        runtime.run_for(1.0)


def test_pages_of_replicas_whose_lag_is_unknown_are_not_read_with_a_limit_of_staleness(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend, hedge_budget_burst=1000)
    backend.on("scan_open", replica=0).delays(3.0)
    for limit_s, is_at_primary in ((None, False), (60.0, True)):
        pages = list(connection.engine.scan_cells(b"t", Scan(), Consistency.TIMELINE, max_staleness_s=limit_s))
        assert rows_of(iter(pages)) == KEYS
        assert {place is not None and place.replica_id == 0 for _, place in pages} == {is_at_primary}
