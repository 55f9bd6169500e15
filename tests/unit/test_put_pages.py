"""Pages of puts: written at once where that works, row by row where it does not, and no row lost or blamed in vain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs the extra 'spark'")

import pyarrow as pa

from metaclient.backend import Action, Addressing, BatchSemantics, Capabilities, PutPage, PutPageBackend
from metaclient.calls.put_pages import PageRows, put_page
from metaclient.connection import Connection, connect_to
from metaclient.errors import (
    CallTimeout,
    ConnectionClosed,
    MetaClientError,
    NoSuchFamily,
    RetriesExhausted,
    ServerUnreachable,
)
from metaclient.model import Cell, Put, PutCells, RegionLocation, ServerName
from metaclient.runtime import SimRuntime
from metaclient.testing import ScriptedBackend

PAGES = Capabilities(put_pages=True)
GATEWAY = Capabilities(put_pages=True, addressing=Addressing.GATEWAY, batch=BatchSemantics.ALL_OR_ERROR)
ROWS = [b"a", b"b", b"h", b"q", b"r"]


class PageScripted(ScriptedBackend):
    """Takes pages, too; ``refuses`` may raise before any row of a call is written."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.pages: list[tuple[ServerName | None, list[bytes], list[int]]] = []
        self.refuses: Callable[[Sequence[bytes]], None] = lambda rows: None

    def put_page(
        self,
        server: ServerName | None,
        table: bytes,
        page: PutPage,
        places: Sequence[tuple[RegionLocation | None, int]],
        deadline: float,
    ) -> None:
        self.pages.append((server, page.rows.to_pylist(), [rows for _, rows in places]))
        self.refuses(page.rows.to_pylist())
        of_rows = [place for place, rows in places for _ in range(rows)]
        for place, put in zip(of_rows, page.puts(), strict=True):
            outcome = self._outcome(table, Action(place, put))
            if isinstance(outcome, MetaClientError):
                raise outcome


@pytest.fixture
def runtime() -> Iterator[SimRuntime]:
    with SimRuntime(seed=1) as made:
        yield made


def cluster(runtime: SimRuntime, capabilities: Capabilities = PAGES) -> PageScripted:
    made = PageScripted(runtime, capabilities=capabilities)
    made.add_table("t", splits=[b"g", b"p"])
    return made


def connected(backend: ScriptedBackend, **options: Any) -> Connection:
    return connect_to(backend, runtime=backend.runtime, **options)


def page_of(rows: Sequence[bytes] = ROWS, column: bytes = b"cf:a") -> PutPage:
    keys = pa.array(rows, pa.large_binary())
    return PutPage(keys, pa.array([7] * len(rows), pa.int64()), (column,), (keys,))


def write(connection: Connection, page: PutPage) -> dict[bytes, MetaClientError]:
    return put_page(connection.engine.operations, b"t", page)


def batches(backend: ScriptedBackend) -> list[list[bytes]]:
    return [[action.operation.row for action in call.argument] for call in backend.calls if call.method == "batch"]


def written(connection: Connection) -> dict[bytes, dict[bytes, bytes]]:
    return dict(connection.table("t").scan())


ALL = {row: {b"cf:a": row} for row in ROWS}


def test_scripted_backend_is_what_the_spi_asks_for(runtime: SimRuntime) -> None:
    assert isinstance(cluster(runtime), PutPageBackend)


def test_each_server_gets_its_rows_in_one_call(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    backend.move(b"t", b"h", connected(backend).locate("t", b"q").server)
    connection = connected(backend)
    assert write(connection, page_of()) == {}
    first, second = (connection.locate("t", row).server for row in (b"a", b"q"))
    assert backend.pages == [(first, [b"a", b"b"], [2]), (second, [b"h", b"q", b"r"], [1, 2])]
    assert written(connection) == ALL
    assert batches(backend) == []


def test_gateway_gets_it_whole_and_nothing_is_looked_up(runtime: SimRuntime) -> None:
    backend = cluster(runtime, GATEWAY)
    connection = connected(backend)
    assert write(connection, page_of()) == {}
    assert backend.pages == [(None, ROWS, [len(ROWS)])]
    assert [call.method for call in backend.calls if call.method == "read_meta"] == []
    assert written(connection) == ALL


def test_backend_without_pages_gets_rows(runtime: SimRuntime) -> None:
    backend = cluster(runtime, Capabilities())
    connection = connected(backend)
    assert write(connection, page_of()) == {}
    assert backend.pages == []
    assert sorted(batches(backend)) == [[b"a", b"b"], [b"h"], [b"q", b"r"]]
    assert written(connection) == ALL


def test_empty_page_costs_nothing(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend)
    before = len(backend.calls)
    assert write(connection, page_of([])) == {}
    assert (backend.pages, len(backend.calls)) == ([], before)


def test_region_that_has_moved_is_found_and_all_rows_are_written(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend)
    connection.warm_up("t")
    new = connection.locate("t", b"q").server
    backend.move(b"t", b"g", new)
    assert write(connection, page_of()) == {}
    assert written(connection) == ALL
    assert connection.locate("t", b"h").server == new
    assert connection.engine.telemetry.total("metaclient.retries") == 1, "the second attempt knows where to go"


def test_only_the_row_that_is_wrong_fails(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend)

    def refuses(rows: Sequence[bytes]) -> None:
        if b"b" in rows:
            raise NoSuchFamily("one of them")

    def outcomes(actions: list[Action]) -> list[Any]:
        return [
            NoSuchFamily("this one") if action.operation.row == b"b" else backend._outcome(b"t", action)
            for action in actions
        ]

    backend.refuses = refuses
    backend.on("batch").answers(outcomes)
    failed = write(connection, page_of())
    assert {row: str(error) for row, error in failed.items()} == {b"b": "this one"}
    assert failed[b"b"].may_have_applied, "the first call may have got as far as that"
    assert written(connection) == {row: cells for row, cells in ALL.items() if row != b"b"}


@pytest.mark.parametrize("error", [CallTimeout("no answer", may_have_applied=True), ServerUnreachable("gone")])
def test_server_without_an_answer_is_asked_again(runtime: SimRuntime, error: MetaClientError) -> None:
    backend = cluster(runtime, GATEWAY)
    connection = connected(backend)

    def refuses(rows: Sequence[bytes]) -> None:
        raise error

    backend.refuses = refuses
    assert write(connection, page_of()) == {}
    assert len(backend.pages) == 1, "once by page, then by rows"
    assert batches(backend) == [ROWS]
    assert written(connection) == ALL


def test_without_retries_all_rows_have_the_error(runtime: SimRuntime) -> None:
    backend = cluster(runtime, GATEWAY)
    connection = connected(backend, retries=0)

    def refuses(rows: Sequence[bytes]) -> None:
        raise CallTimeout("no answer", may_have_applied=True)

    backend.refuses = refuses
    failed = write(connection, page_of())
    assert list(failed) == ROWS
    assert all(isinstance(error, RetriesExhausted) and error.may_have_applied for error in failed.values())
    assert batches(backend) == []


def test_closed_connection_is_told(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend)

    def refuses(rows: Sequence[bytes]) -> None:
        raise ConnectionClosed("closed")

    backend.refuses = refuses
    with pytest.raises(ConnectionClosed):
        write(connection, page_of())


def test_hints_that_were_right_are_confirmed(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    source = connected(backend)
    source.warm_up("t")
    connection = connected(backend)
    connection.import_locations(source.export_locations("t"))
    assert write(connection, page_of()) == {}
    places = [connection.engine.operations.locator.cache.cached(b"t", row) for row in ROWS]
    assert [place is not None and place.is_hint for place in places] == [False] * len(ROWS)


def test_page_row_by_row() -> None:
    binary = pa.large_binary()
    page = PutPage(
        pa.array([b"x", b"a", b"b"], binary).slice(1),
        pa.array([0, 7, 8]).slice(1),
        (b"cf:a", b"cf:b"),
        (pa.array([b"", b"1", None], binary).slice(1), pa.array([b"", b"2", b""], binary).slice(1)),
        ttl_ms=5,
    )
    assert page.puts() == [
        Put(b"a", PutCells((b"cf:a", b"cf:b"), (7, 7), (b"1", b"2")), ttl_ms=5),
        Put(b"b", (Cell(b"cf:b", 8, b""),), ttl_ms=5),
    ]
    assert page.part(1, 2).puts() == page.puts()[1:]
    rows = PageRows(page.rows)
    assert (len(rows), rows[0], rows[1]) == (2, b"a", b"b")
