"""A scan requests its next page while the caller uses the current one, and never more than that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from metaclient.connection import connect_to
from metaclient.errors import CallTimeout, ScannerLost, ServerUnreachable
from metaclient.model import Cell, Put
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
