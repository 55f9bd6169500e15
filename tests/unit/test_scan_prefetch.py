"""A scan requests its next page, or opens its next region, while the caller uses the current page; never more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from metaclient.attempts.contest import NoRoomError
from metaclient.backend import ScanPage
from metaclient.connection import connect_to
from metaclient.errors import (
    CallTimeout,
    ConnectionClosed,
    NotServingRegion,
    RetriesExhausted,
    ScannerLost,
    ServerUnreachable,
)
from metaclient.model import Cell, Put, Result, Scan
from metaclient.protobuf import ProtocolError
from metaclient.row_runs import AlikeRows, RowRuns
from metaclient.runtime import SimRuntime
from metaclient.table import Table
from metaclient.testing import ScriptedBackend

KEYS = [b"%02d" % number for number in range(20)]
LATENCY_S = 0.1


@pytest.fixture
def backend() -> Iterator[ScriptedBackend]:
    """A table of twenty rows in one region; each call takes 100 ms."""
    with SimRuntime(seed=1) as runtime:
        backend = ScriptedBackend(runtime)
        backend.capabilities = replace(backend.capabilities, is_remote=True)
        backend.add_table("t")
        for key in KEYS:
            backend._write(backend._table(b"t"), Put(key, (Cell(b"cf:q", 1, b"v"),)))
        backend.latency_s = LATENCY_S
        yield backend


def table_of(backend: ScriptedBackend, **options: Any) -> Table:
    return connect_to(backend, runtime=backend.runtime, **options).table("t")


def taken(rows: Iterator[tuple[bytes, Any]], count: int) -> list[bytes]:
    return [next(rows)[0] for _ in range(count)]


def settle(backend: ScriptedBackend) -> None:
    """Let calls in flight end."""
    assert isinstance(backend.runtime, SimRuntime)
    backend.runtime.run_for(1.0)


def test_page_is_requested_while_the_caller_uses_the_one_before(backend: ScriptedBackend) -> None:
    rows = table_of(backend).scan(batch_size=4)
    taken(rows, 5)  # the first row of the second page
    settle(backend)
    assert backend.count("scan_next") == 2  # the second page and, ahead, the third
    begun = backend.runtime.now()
    assert taken(rows, 7) == KEYS[5:12]
    assert backend.runtime.now() == begun, "the third page was there already"


def test_no_more_than_one_page_is_requested_ahead(backend: ScriptedBackend) -> None:
    rows = table_of(backend).scan(batch_size=4)
    for position in range(1, len(KEYS) + 1):
        next(rows)
        settle(backend)
        pages_used = -(-position // 4)
        assert backend.count("scan_open") + backend.count("scan_next") <= pages_used + 1


def test_scan_of_one_page_makes_one_call(backend: ScriptedBackend) -> None:
    rows = table_of(backend).scan(batch_size=4)
    taken(rows, 4)
    settle(backend)
    assert (backend.count("scan_open"), backend.count("scan_next")) == (1, 0)


@pytest.mark.parametrize("limit", [5, 8, 9, 11, 12])
def test_limit_is_never_exceeded_by_a_request(backend: ScriptedBackend, limit: int) -> None:
    assert [key for key, _ in table_of(backend).scan(batch_size=4, limit=limit)] == KEYS[:limit]
    assert backend.count("scan_open") + backend.count("scan_next") == -(-limit // 4)
    settle(backend)
    assert backend.open_scanners() == 0


def test_prefetch_can_be_turned_off_by_hbases_property(backend: ScriptedBackend) -> None:
    rows = table_of(backend, config={"hbase.client.scanner.async.prefetch": "false"}).scan(batch_size=4)
    taken(rows, 5)
    settle(backend)
    assert backend.count("scan_next") == 1


def test_cluster_in_this_process_is_not_asked_ahead(backend: ScriptedBackend) -> None:
    backend.capabilities = replace(backend.capabilities, is_remote=False)
    rows = table_of(backend).scan(batch_size=4)
    taken(rows, 5)
    settle(backend)
    assert backend.count("scan_next") == 1


def test_scan_that_is_closed_while_a_page_is_in_flight_closes_its_scanner_afterwards(backend: ScriptedBackend) -> None:
    rows = table_of(backend).scan(batch_size=4)
    taken(rows, 5)
    rows.close()  # type: ignore[attr-defined]  # a generator
    assert backend.count("scan_close") == 0, "two calls of one scanner must not run at once"
    settle(backend)
    assert (backend.count("scan_close"), backend.open_scanners()) == (1, 0)


@pytest.mark.parametrize(
    "error", [ScannerLost("the lease has expired"), ServerUnreachable("reset"), CallTimeout("slow")]
)
def test_request_ahead_that_fails_is_repeated_from_the_last_row(backend: ScriptedBackend, error: Exception) -> None:
    rows = table_of(backend).scan(batch_size=4)
    found = taken(rows, 4)
    backend.on("scan_next", times=1, when=lambda _: backend.count("scan_next") == 2).raises(error)
    found += [key for key, _ in rows]
    assert found == KEYS
    assert backend.count("scan_open") == 2


def decoding_later(backend: ScriptedBackend, decode: Callable[[Sequence[Result]], None]) -> None:
    """Let the backend answer pages whose rows are decoded when they are first read; ``decode`` is called with them."""
    scan_next = backend.scan_next

    def answer(scanner: object, rows: int, deadline: float) -> ScanPage:
        page = scan_next(scanner, rows, deadline)
        assert isinstance(page, ScanPage)

        def decoded() -> list[AlikeRows | list[Result]]:
            decode(page.rows)
            return [list(page.rows)]

        return replace(page, rows=RowRuns.undecoded(len(page.rows), decoded))

    backend.scan_next = answer  # type: ignore[method-assign]


def test_next_page_is_requested_before_the_rows_are_decoded(backend: ScriptedBackend) -> None:
    requested: list[tuple[bytes, int]] = []

    def decode(rows: Sequence[Result]) -> None:
        settle(backend)  # the request is in flight, in a task
        requested.append((rows[0].row, backend.count("scan_next")))

    decoding_later(backend, decode)
    assert [key for key, _ in table_of(backend).scan(batch_size=4)] == KEYS
    assert requested == [(b"04", 2), (b"08", 3), (b"12", 4), (b"16", 4)]  # the last page ends the region


@pytest.mark.parametrize("prefetch", ["true", "false"])
def test_page_that_cannot_be_decoded_is_read_again_by_another_scanner(backend: ScriptedBackend, prefetch: str) -> None:
    bad = [b"08", b"16"]

    def decode(rows: Sequence[Result]) -> None:
        if rows[0].row in bad:
            bad.remove(rows[0].row)
            raise ProtocolError("the cell block is torn")

    decoding_later(backend, decode)
    table = table_of(backend, config={"hbase.client.scanner.async.prefetch": prefetch})
    assert [key for key, _ in table.scan(batch_size=4)] == KEYS
    settle(backend)
    assert (bad, backend.count("scan_open"), backend.open_scanners()) == ([], 3, 0)


def test_pages_that_can_never_be_decoded_end_the_scan_with_the_reason(backend: ScriptedBackend) -> None:
    def decode(rows: Sequence[Result]) -> None:
        raise ProtocolError("the cell block is torn")

    decoding_later(backend, decode)
    open_page = backend.scan_open
    backend.scan_open = lambda *args: replace(open_page(*args), rows=())  # type: ignore[method-assign]
    with pytest.raises(RetriesExhausted, match="the cell block is torn"):
        list(table_of(backend, retries=3).scan(batch_size=4))
    settle(backend)
    assert backend.open_scanners() == 0


# -- the next region -----------------------------------------------------------------------------------------------


SPLITS = (b"08", b"16")


@pytest.fixture
def regions() -> Iterator[ScriptedBackend]:
    """The same rows in three regions: two full pages of four rows, two full pages, one full page."""
    with SimRuntime(seed=1) as runtime:
        backend = ScriptedBackend(runtime)
        backend.capabilities = replace(backend.capabilities, is_remote=True)
        backend.add_table("t", splits=SPLITS)
        for key in KEYS:
            backend._write(backend._table(b"t"), Put(key, (Cell(b"cf:q", 1, b"v"),)))
        backend.latency_s = LATENCY_S
        yield backend


def warm_table_of(backend: ScriptedBackend, **options: Any) -> Table:
    """Return a table whose regions are in the cache."""
    table = table_of(backend, **options)
    assert len(table.regions()) == len(SPLITS) + 1
    return table


def opened(backend: ScriptedBackend) -> list[Scan]:
    return [call.argument for call in backend.calls if call.method == "scan_open"]  # type: ignore[misc]


def at_last_page_of_first_region(backend: ScriptedBackend, **options: Any) -> Iterator[tuple[bytes, Any]]:
    """Return a scan whose caller has one row of the second page; the second region was opened ahead."""
    rows = warm_table_of(backend).scan(batch_size=4, **options)
    assert taken(rows, 5) == (KEYS[:-6:-1] if options.get("reverse") else KEYS[:5])
    settle(backend)
    return rows


def test_next_region_is_opened_while_the_caller_uses_the_last_page(regions: ScriptedBackend) -> None:
    rows = at_last_page_of_first_region(regions)
    assert [scan.start_row for scan in opened(regions)] == [b"", b"08"]
    begun = regions.runtime.now()
    assert taken(rows, 7) == KEYS[5:12]
    assert regions.runtime.now() == begun, "the first page of the next region was there already"
    assert [key for key, _ in rows] == KEYS[12:]
    assert len(opened(regions)) == 3
    assert regions.open_scanners() == 0


def test_pages_are_counted_over_the_regions(regions: ScriptedBackend) -> None:
    """In a later region the page after the first one is requested ahead, too."""
    rows = warm_table_of(regions).scan(batch_size=3)
    assert taken(rows, 9) == KEYS[:9]  # the first row of the second region
    settle(regions)
    begun = regions.runtime.now()
    assert taken(rows, 5) == KEYS[9:14]
    assert regions.runtime.now() == begun


def test_no_more_than_one_page_is_requested_ahead_over_the_regions(regions: ScriptedBackend) -> None:
    rows = warm_table_of(regions).scan(batch_size=4)
    for position in range(1, len(KEYS) + 1):
        next(rows)
        settle(regions)
        assert regions.count("scan_open") + regions.count("scan_next") <= -(-position // 4) + 1


def test_reversed_scan_opens_the_region_below_ahead(regions: ScriptedBackend) -> None:
    rows = warm_table_of(regions).scan(batch_size=4, reverse=True)
    assert taken(rows, 9) == KEYS[:-10:-1]
    settle(regions)
    assert [(scan.start_row, scan.include_start) for scan in opened(regions)] == [
        (b"", True),
        (b"16", False),
        (b"08", False),
    ]
    begun = regions.runtime.now()
    assert taken(rows, 7) == KEYS[10:3:-1]
    assert regions.runtime.now() == begun
    assert [key for key, _ in rows] == KEYS[3::-1]
    assert (len(opened(regions)), regions.open_scanners()) == (3, 0)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("limit", range(1, len(KEYS) + 1))
def test_limit_at_a_border_opens_no_region_too_many(regions: ScriptedBackend, limit: int, reverse: bool) -> None:
    expected = (KEYS[::-1] if reverse else KEYS)[:limit]
    rows = warm_table_of(regions).scan(batch_size=4, limit=limit, reverse=reverse)
    assert [key for key, _ in rows] == expected
    settle(regions)
    touched = {sum(key >= split for split in SPLITS) for key in expected}
    assert (len(opened(regions)), regions.open_scanners()) == (len(touched), 0)


def test_limit_of_a_scanner_opened_ahead_is_what_the_page_in_use_leaves(regions: ScriptedBackend) -> None:
    at_last_page_of_first_region(regions, limit=13)
    assert [(scan.limit, scan.caching) for scan in opened(regions)] == [(13, 4), (5, 4)]


@pytest.mark.parametrize(("stop", "regions_read"), [(b"08", 1), (b"08\0", 2), (b"16", 2)])
def test_stop_row_at_a_border_opens_no_region_beyond_it(
    regions: ScriptedBackend, stop: bytes, regions_read: int
) -> None:
    rows = warm_table_of(regions).scan(batch_size=4, row_stop=stop)
    assert [key for key, _ in rows] == [key for key in KEYS if key < stop]
    settle(regions)
    assert (len(opened(regions)), regions.open_scanners()) == (regions_read, 0)


def test_region_that_is_not_cached_is_not_looked_up_ahead(regions: ScriptedBackend) -> None:
    table = warm_table_of(regions)
    rows = table.scan(batch_size=4)
    taken(rows, 4)
    table.connection.engine.locator.cache.clear(b"t")
    lookups = regions.count("read_meta")
    taken(rows, 1)
    settle(regions)
    assert (len(opened(regions)), regions.count("read_meta")) == (1, lookups)
    assert [key for key, _ in rows] == KEYS[5:]


def test_timeline_scan_opens_no_region_ahead(regions: ScriptedBackend) -> None:
    """Its open is a race over the replicas."""
    at_last_page_of_first_region(regions, consistency="TIMELINE")
    assert len(opened(regions)) == 1


def test_scan_of_one_page_per_region_opens_ahead_from_the_second_page_on(regions: ScriptedBackend) -> None:
    rows = warm_table_of(regions).scan(batch_size=1000)
    next(rows)
    settle(regions)
    assert len(opened(regions)) == 1
    taken(rows, 8)
    settle(regions)
    assert len(opened(regions)) == 3
    assert len(list(rows)) == len(KEYS) - 9


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("change", ["split", "merge", "move"])
def test_region_changes_between_open_ahead_and_use(regions: ScriptedBackend, change: str, reverse: bool) -> None:
    """The page that was read is used; the next one fails, and is read where the region is now."""
    rows = at_last_page_of_first_region(regions, reverse=reverse)
    if change == "split":
        regions.split(b"t", b"10")
        regions.split(b"t", b"14")
    elif change == "merge":
        regions.merge(b"t", b"00", b"12")
    else:
        regions.move(b"t", b"08", regions.servers[2])
    assert [key for key, _ in rows] == (KEYS[:-6:-1][5:] + KEYS[::-1][5:] if reverse else KEYS[5:])


@pytest.mark.parametrize("change", ["split", "merge", "move"])
def test_region_changes_before_it_is_opened_ahead(regions: ScriptedBackend, change: str) -> None:
    """The cached location is wrong: the open ahead fails as an ordinary one, and the region is looked up again."""
    rows = warm_table_of(regions).scan(batch_size=4)
    taken(rows, 4)
    if change == "split":
        regions.split(b"t", b"12")
    elif change == "merge":
        regions.merge(b"t", b"08", b"16")
    else:
        regions.move(b"t", b"08", regions.servers[2])
    assert [key for key, _ in rows] == KEYS[4:]
    settle(regions)
    assert regions.open_scanners() == 0


@pytest.mark.parametrize(
    "error", [NotServingRegion("moved"), ServerUnreachable("reset"), CallTimeout("slow"), ScannerLost("lost")]
)
def test_error_of_an_open_ahead_is_handled_as_that_of_an_open(regions: ScriptedBackend, error: Exception) -> None:
    """With and without prefetch: the same calls and the same rows; the error concerns no page in use."""
    calls = []
    for prefetch in ("true", "false"):
        regions.calls.clear()
        table = warm_table_of(regions, config={"hbase.client.scanner.async.prefetch": prefetch})
        regions.on("scan_open", times=1, when=lambda call: call.argument.start_row == b"08").raises(error)
        rows = table.scan(batch_size=4)
        assert taken(rows, 8) == KEYS[:8], "the error is raised when the page is needed"
        assert [key for key, _ in rows] == KEYS[8:]
        calls.append(
            [(call.method, call.server, call.argument) for call in regions.calls if call.method != "scan_next"]
        )
    assert calls[0] == calls[1]
    assert len(opened(regions)) == 4


def test_scan_that_is_closed_while_a_region_is_opened_ahead_closes_that_scanner(regions: ScriptedBackend) -> None:
    rows = warm_table_of(regions).scan(batch_size=3)
    taken(rows, 7)
    assert regions.open_scanners() == 0, "the open is in flight"
    rows.close()  # type: ignore[attr-defined]  # a generator
    settle(regions)
    assert len(opened(regions)) == 2
    assert (regions.count("scan_close"), regions.open_scanners()) == (1, 0)


def test_scan_that_is_closed_after_a_region_was_opened_ahead_closes_that_scanner(regions: ScriptedBackend) -> None:
    rows = at_last_page_of_first_region(regions)
    assert regions.open_scanners() == 1
    rows.close()  # type: ignore[attr-defined]  # a generator
    settle(regions)
    assert (regions.count("scan_close"), regions.open_scanners()) == (1, 0)


def test_scanner_opened_ahead_that_does_not_fit_the_position_is_closed(regions: ScriptedBackend) -> None:
    """The position after a page is where the page was expected to end, unless its rows were returned before."""
    table = warm_table_of(regions)
    scanner = table._engine.scan_rows(b"t", Scan(caching=4, limit=20), *table._level(None, None), None)
    rows = iter(scanner)
    found = [next(rows)[0].row for _ in range(8)]
    settle(regions)
    assert scanner._left == 12
    scanner._left = 13  # as if a row of the page had not counted
    found += [result.row for result, _ in rows]
    settle(regions)
    assert found == KEYS
    assert [(scan.start_row, scan.limit) for scan in opened(regions)][1:3] == [(b"08", 12), (b"08", 13)]
    assert regions.open_scanners() == 0


def test_scanner_opened_ahead_belongs_to_the_process_that_began_the_scan(
    regions: ScriptedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = at_last_page_of_first_region(regions)
    with monkeypatch.context() as child:
        child.setattr(regions.runtime, "fork_count", 1)
        taken(rows, 3)
        with pytest.raises(ConnectionClosed, match="begin a new scan in this process"):
            next(rows)
        settle(regions)
    assert (regions.count("scan_close"), regions.open_scanners()) == (0, 1), "the parent still uses the scanner"


@pytest.mark.parametrize("is_inline", [True, False])
def test_open_ahead_is_used_by_the_retry_if_the_executor_refuses_to_wait_for_it(
    regions: ScriptedBackend, monkeypatch: pytest.MonkeyPatch, is_inline: bool
) -> None:
    """While too many abandoned calls hang, no call is made; the scanner that is open must not be lost."""
    regions.capabilities = replace(regions.capabilities, honours_deadline=is_inline)
    table = warm_table_of(regions)
    rows = table.scan(batch_size=4)
    taken(rows, 5)
    settle(regions)
    refusals = iter([NoRoomError("full")])

    def refuse_once() -> None:
        for error in refusals:
            raise error

    monkeypatch.setattr(table.connection.engine.operations.executor, "_check_room", refuse_once)
    assert [key for key, _ in rows] == KEYS[5:]
    settle(regions)
    assert regions.open_scanners() == 0
    if not is_inline:
        assert [scan.start_row for scan in opened(regions)] == [b"", b"08", b"16"]
