"""Scanners on servers: pages, leases, order of calls, and what happens to them when regions change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from metaclient.errors import NotServingRegion, Overloaded, ScannerLost, ServerUnreachable
from metaclient.model import LATEST_TIMESTAMP, Cell, Put, Scan
from metaclient_fake.server.scanners import Scanners
from metaclient_fake.storage import RegionScanner


@pytest.fixture
def filled(world: Any) -> Any:
    world.create(b"t")
    for number in range(10):
        world.put(b"t", b"%d" % number)
    return world


def _open(world: Any, **options: Any) -> Any:
    return world.backend.scan_open(world.place(b"t"), b"t", Scan(**options), world.deadline())


def test_pages_follow_until_the_region_ends(filled: Any) -> None:
    page = _open(filled, caching=4)
    rows = [result.row for result in page.rows]
    while page.scanner is not None:
        page = filled.backend.scan_next(page.scanner, 4, filled.deadline())
        rows += [result.row for result in page.rows]
    assert rows == [b"%d" % number for number in range(10)]
    assert page.is_end_of_region


def test_limit_closes_the_scanner(filled: Any) -> None:
    page = _open(filled, caching=4, limit=6)
    assert len(page.rows) == 4
    assert page.scanner is not None
    page = filled.backend.scan_next(page.scanner, 4, filled.deadline())
    assert len(page.rows) == 2
    assert page.scanner is None
    assert not page.is_end_of_region


def test_page_ends_at_the_bytes_that_the_client_asks_for_or_the_server_allows(make: Callable[..., Any]) -> None:
    """The row that passes the limit is the page's last; 27 bytes a row as KeyValues count them."""
    for config, options in (({}, {"max_result_bytes": 60}), ({"scan_page_bytes_max": 60}, {})):
        world = make(config=config)
        world.create(b"t")
        for number in range(10):
            world.put(b"t", b"%d" % number, b"123")
        page = _open(world, **options)
        sizes = [len(page.rows)]
        while page.scanner is not None:
            page = world.backend.scan_next(page.scanner, 100, world.deadline())
            sizes.append(len(page.rows))
        assert sizes == [3, 3, 3, 1]


def test_scanner_sees_one_moment(filled: Any) -> None:
    page = _open(filled, caching=2)
    filled.put(b"t", b"5", b"later")
    rest = filled.backend.scan_next(page.scanner, 100, filled.deadline())
    assert {result.row: result.cells[0].value for result in rest.rows}[b"5"] == b"1"


def test_reversed_and_partial_rows(world: Any) -> None:
    world.create(b"t")
    cells = tuple(Cell(b"f:%d" % number, LATEST_TIMESTAMP, b"v") for number in range(5))
    world.backend.mutate(world.place(b"t"), b"t", Put(b"r", cells), world.deadline())
    world.put(b"t", b"s")
    page = _open(world, is_reversed=True)
    assert [result.row for result in page.rows] == [b"s", b"r"]
    page = _open(world, batch=2)
    pieces = [(result.row, len(result.cells), result.is_partial) for result in page.rows]
    assert pieces == [(b"r", 2, True), (b"r", 2, True), (b"r", 1, False), (b"s", 1, False)]


def test_lease_ends_after_a_minute_without_a_call(filled: Any) -> None:
    page = _open(filled, caching=2)
    filled.runtime.sleep(50)
    page = filled.backend.scan_next(page.scanner, 2, filled.deadline())
    filled.runtime.sleep(50)
    page = filled.backend.scan_next(page.scanner, 2, filled.deadline())
    filled.runtime.sleep(61)
    with pytest.raises(ScannerLost) as error:
        filled.backend.scan_next(page.scanner, 2, filled.deadline())
    assert error.value.detail == "org.apache.hadoop.hbase.UnknownScannerException"


def test_leases_free_memory_without_anybody_asking(filled: Any) -> None:
    page = _open(filled, caching=2)
    server = filled.cluster.server_named(page.scanner.server)
    assert len(server.scanners) == 1
    filled.runtime.sleep(65)
    assert len(server.scanners) == 0


def test_repeated_next_is_out_of_order_and_the_scanner_stays(filled: Any) -> None:
    """A wrong sequence number is an error; the right one works afterwards, as in HBase 2.6.1."""
    first = _open(filled, caching=2)
    second = filled.backend.scan_next(first.scanner, 2, filled.deadline())
    with pytest.raises(ScannerLost) as error:
        filled.backend.scan_next(first.scanner, 2, filled.deadline())
    assert error.value.detail.endswith("OutOfOrderScannerNextException")
    assert filled.backend.scan_next(second.scanner, 2, filled.deadline()).rows[0].row == b"4"


def test_moved_region_loses_its_scanners(filled: Any) -> None:
    """ "Region has changed on the scanner", the second time UnknownScanner, as in HBase 2.6.1."""
    page = _open(filled, caching=2)
    filled.cluster.move(filled.cluster.regions("t")[0])
    with pytest.raises(NotServingRegion, match="changed on the scanner"):
        filled.backend.scan_next(page.scanner, 2, filled.deadline())
    with pytest.raises(ScannerLost):
        filled.backend.scan_next(page.scanner, 2, filled.deadline())


def test_restarted_server_does_not_know_old_scanners(filled: Any) -> None:
    page = _open(filled, caching=2)
    filled.cluster.kill(page.scanner.server.host)
    with pytest.raises(ServerUnreachable):
        filled.backend.scan_next(page.scanner, 2, filled.deadline())
    filled.cluster.restart(page.scanner.server.host)
    with pytest.raises(ScannerLost):
        filled.backend.scan_next(page.scanner, 2, filled.deadline())


def test_closing_is_never_an_error(filled: Any) -> None:
    page = _open(filled, caching=2)
    for _ in range(2):
        filled.backend.scan_close(page.scanner, filled.deadline())
    with pytest.raises(ScannerLost):
        filled.backend.scan_next(page.scanner, 2, filled.deadline())
    filled.cluster.kill(page.scanner.server.host)
    filled.backend.scan_close(page.scanner, filled.deadline())


def test_scanners_are_bounded(make: Callable[..., Any]) -> None:
    world = make(config={"scanners_max": 3})
    world.create(b"t")
    for number in range(5):
        world.put(b"t", b"%d" % number)
    for _ in range(3):
        _open(world, caching=1)
    with pytest.raises(Overloaded):
        _open(world, caching=1)


def _held(world: Any) -> int:
    """How many scanners the regions of the table keep."""
    regions = (region for server in world.cluster.servers_by_host.values() for region in server.regions.values())
    return sum(len(region._scanners) for region in regions if region.info.table == b"t")


def test_refused_scanner_does_not_stay_in_its_region(make: Callable[..., Any]) -> None:
    """It would pin what it looks back at for as long as the region is open."""
    world = make(config={"scanners_max": 3})
    world.create(b"t")
    for number in range(5):
        world.put(b"t", b"%d" % number)
    for _ in range(3):
        _open(world, caching=1)
    for _ in range(10):
        with pytest.raises(Overloaded):
            _open(world, caching=1)
    assert _held(world) == 3


def test_scanner_whose_first_page_fails_does_not_stay_in_its_region(
    filled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Any:
        raise NotServingRegion("closed meanwhile")

    monkeypatch.setattr(RegionScanner, "_fill", fail)
    with pytest.raises(NotServingRegion):
        _open(filled, caching=1)
    assert _held(filled) == 0


def test_expired_scanner_does_not_stay_in_its_region(filled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client asks before the server's own look at the leases."""
    monkeypatch.setattr(Scanners, "expire", lambda self: 0)
    page = _open(filled, caching=1)
    filled.runtime.sleep(61)
    with pytest.raises(ScannerLost):
        filled.backend.scan_next(page.scanner, 1, filled.deadline())
    assert _held(filled) == 0


def test_scanner_of_a_region_that_closes_does_not_stay_in_it(filled: Any) -> None:
    page = _open(filled, caching=1)
    place = filled.place(b"t")
    server = filled.cluster.servers_by_host[place.server.host]
    region = server.regions[place.region_name]
    server.assignments.begin_close([place.region_name])
    with pytest.raises(NotServingRegion):
        filled.backend.scan_next(page.scanner, 1, filled.deadline())
    assert region._scanners == {}


def test_region_that_closes_under_a_scanner_is_not_taken_for_its_end(
    filled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A region closes its scanners, which then have no more rows: a scan must not end there without an error."""
    page = _open(filled, caching=1)
    place = filled.place(b"t")
    region = filled.cluster.servers_by_host[place.server.host].regions[place.region_name]
    fill = RegionScanner._fill

    def close_first(self: RegionScanner, *arguments: Any) -> bool:
        region.close(abort=True)
        return fill(self, *arguments)

    monkeypatch.setattr(RegionScanner, "_fill", close_first)
    with pytest.raises(NotServingRegion):
        filled.backend.scan_next(page.scanner, 100, filled.deadline())


def test_scanner_that_is_closed_while_it_is_read_is_lost_and_not_at_its_end(
    filled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = _open(filled, caching=1)
    fill = RegionScanner._fill

    def close_first(self: RegionScanner, *arguments: Any) -> bool:
        filled.backend.scan_close(page.scanner, filled.deadline())
        return fill(self, *arguments)

    monkeypatch.setattr(RegionScanner, "_fill", close_first)
    with pytest.raises(ScannerLost):
        filled.backend.scan_next(page.scanner, 100, filled.deadline())


def test_close_of_a_scanner_does_not_pass_a_partition(filled: Any) -> None:
    """The lease ends it instead."""
    page = _open(filled, caching=1)
    host = filled.place(b"t").server.host
    filled.cluster.partition("client", host)
    filled.backend.scan_close(page.scanner, filled.deadline())
    assert _held(filled) == 1
    filled.runtime.sleep(65)
    assert _held(filled) == 0
