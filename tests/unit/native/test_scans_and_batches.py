"""What a reply says of a scanner, rows that come in pieces, leases, and batches whose order counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from metaclient.backend import Action, Answer, MetaScan
from metaclient.errors import (
    MetaClientError,
    NotServingRegion,
    RegionOffline,
    ScannerLost,
    Unsupported,
)
from metaclient.model import (
    Append,
    Cell,
    CellType,
    Check,
    Delete,
    Durability,
    Get,
    Increment,
    MetaReplica,
    Put,
    PutCells,
    RegionInfo,
    RegionLocation,
    Result,
    RowMutations,
    Scan,
    ServerName,
)
from metaclient.protobuf import ProtocolError, decode, encode
from metaclient.runtime import Pending, ThreadRuntime
from metaclient.wire.rpc import framing, messages
from metaclient.wire.rpc.cellblock import encode_cells, encode_results
from metaclient.wire.rpc.framing import ReceivedRequest
from metaclient.wire.rpc.mutations import mutation_from, mutation_message
from metaclient.wire.rpc.names import region_message
from metaclient.wire.rpc.queries import get_message, result_message, scan_from
from metaclient_native.backend import NativeBackend
from metaclient_native.batches import MultiCall, is_all_done, split_into_steps
from tests.unit.native.peer import WAIT_S, Caller, Peer

TABLE = b"t"


def cell(column: bytes, value: bytes = b"v") -> Cell:
    return Cell(column, 1, value)


class Server:
    """Answers each method by a function of the test; remembers what was asked."""

    def __init__(self, runtime: ThreadRuntime) -> None:
        self.runtime = runtime
        self.asked: list[ReceivedRequest] = []
        self.answers: list[Any] = []
        self.peer = Peer(runtime, self._serve)
        self.backend = NativeBackend(f"hbase+rpc://127.0.0.1:{self.peer.port}", runtime=runtime)
        self.place = RegionLocation(RegionInfo(TABLE, region_id=1), ServerName("127.0.0.1", self.peer.port, 1))

    def _serve(self, caller: Caller) -> None:
        while True:
            request = caller.request()
            self.asked.append(request)
            if not self.answers:
                continue  # silence
            answer = self.answers.pop(0)
            if isinstance(answer, Pending):
                answer = answer.result(self.runtime.now() + WAIT_S)
            if isinstance(answer, str):
                caller.refuse(request.call_id, answer, f"{answer}: told so")
            else:
                caller.answer(request.call_id, *answer)

    def until(self) -> float:
        return self.runtime.now() + WAIT_S

    def wait(self, answer: Answer[Any]) -> Any:
        return answer.result(self.until()) if isinstance(answer, Pending) else answer

    def scans(self) -> list[dict[str, Any]]:
        return [decode(messages.SCAN_REQUEST, request.param) for request in self.asked if request.method == "Scan"]

    def will_page(self, rows: Sequence[Result], **fields: Any) -> None:
        values = {
            "cells_per_result": [len(row.cells) for row in rows],
            "partial_flag_per_result": [row.is_partial for row in rows],
            **fields,
        }
        self.answers.append((encode(messages.SCAN_RESPONSE, values), encode_results(rows)))


@pytest.fixture
def server() -> Iterator[Server]:
    with ThreadRuntime() as runtime:
        made = Server(runtime)
        yield made
        made.backend.close()
        made.peer.close()


# -- scans -------------------------------------------------------------------------------------------------------------


def test_open_brings_rows_and_next_counts_from_zero(server: Server) -> None:
    server.will_page(
        [Result(b"a", [cell(b"cf:x")])], scanner_id=2**63 + 5, more_results=True, more_results_in_region=True
    )
    server.will_page(
        [Result(b"b", [cell(b"cf:x")])], scanner_id=2**63 + 5, more_results=True, more_results_in_region=True
    )
    server.will_page([], scanner_id=2**63 + 5, more_results=True, more_results_in_region=False)
    page = server.wait(server.backend.scan_open(server.place, TABLE, Scan(limit=7, caching=1), server.until()))
    assert [row.row for row in page.rows] == [b"a"]
    page = server.wait(server.backend.scan_next(page.scanner, 1, server.until()))
    assert [row.row for row in page.rows] == [b"b"]
    page = server.wait(server.backend.scan_next(page.scanner, 1, server.until()))
    assert page.scanner is None
    assert page.is_end_of_region
    first, second, third = server.scans()
    assert "next_call_seq" not in first
    assert (second["next_call_seq"], third["next_call_seq"]) == (0, 1)
    assert (first["limit_of_rows"], second["limit_of_rows"], third["limit_of_rows"]) == (7, 6, 5), "what is left of it"
    assert all(one["client_handles_partials"] and one["client_handles_heartbeats"] for one in server.scans())
    assert all(request.timeout_ms > 0 for request in server.asked), "heartbeats hang on the timeout"
    assert second["scanner_id"] == 2**63 + 5


def test_pieces_of_a_row_are_glued_over_pages(server: Server) -> None:
    one, two, three = cell(b"cf:1"), cell(b"cf:2"), cell(b"cf:3")
    rows = [Result(b"a", [one]), Result(b"b", [one], is_partial=True)]
    server.will_page(rows, scanner_id=1, more_results=True, more_results_in_region=True)
    server.will_page([Result(b"b", [two], is_partial=True)], more_results=True, more_results_in_region=True)
    server.will_page([Result(b"b", [three]), Result(b"c", [one])], more_results=True, more_results_in_region=False)
    page = server.wait(server.backend.scan_open(server.place, TABLE, Scan(), server.until()))
    assert page.rows == [Result(b"a", [one])]
    page = server.wait(server.backend.scan_next(page.scanner, 10, server.until()))
    assert page.rows == []
    page = server.wait(server.backend.scan_next(page.scanner, 10, server.until()))
    assert page.rows == [Result(b"b", [one, two, three]), Result(b"c", [one])]


def test_pieces_that_were_asked_for_stay_pieces(server: Server) -> None:
    rows = [Result(b"a", [cell(b"cf:1")], is_partial=True), Result(b"a", [cell(b"cf:2")])]
    server.will_page(rows, scanner_id=1, more_results=True, more_results_in_region=False)
    page = server.wait(server.backend.scan_open(server.place, TABLE, Scan(batch=1), server.until()))
    assert page.rows == rows


def test_heartbeat_is_a_page_without_rows(server: Server) -> None:
    server.will_page([], scanner_id=1, more_results=True, more_results_in_region=True, heartbeat_message=True)
    page = server.wait(server.backend.scan_open(server.place, TABLE, Scan(), server.until()))
    assert page.rows == []
    assert page.scanner is not None
    assert not page.is_end_of_region


def test_reply_that_says_nothing_means_that_the_scanner_is_gone(server: Server) -> None:
    """3.0 answers a ``next`` on a scanner that it has closed with an empty success: that is no end of the region."""
    server.will_page([Result(b"a", [cell(b"cf:1")])], scanner_id=1, more_results=True, more_results_in_region=True)
    server.answers.append((encode(messages.SCAN_RESPONSE, {"scanner_id": 1}), b""))
    page = server.wait(server.backend.scan_open(server.place, TABLE, Scan(), server.until()))
    page = server.wait(server.backend.scan_next(page.scanner, 10, server.until()))
    assert page.scanner is None
    assert not page.is_end_of_region
    assert not page.is_end_of_scan


def test_filter_that_wants_no_more_ends_the_scan(server: Server) -> None:
    server.will_page([Result(b"a", [cell(b"cf:1")])], more_results=False, more_results_in_region=True)
    page = server.wait(server.backend.scan_open(server.place, TABLE, Scan(filter=b"PageFilter(1)"), server.until()))
    assert page.is_end_of_scan


def test_next_is_never_sent_twice(server: Server) -> None:
    server.will_page([Result(b"a", [cell(b"cf:1")])], scanner_id=1, more_results=True, more_results_in_region=True)
    server.answers.append("org.apache.hadoop.hbase.CallQueueTooBigException")
    page = server.wait(server.backend.scan_open(server.place, TABLE, Scan(), server.until()))
    with pytest.raises(MetaClientError):
        server.wait(server.backend.scan_next(page.scanner, 10, server.until()))
    with pytest.raises(ScannerLost, match="position is unknown"):
        server.wait(server.backend.scan_next(page.scanner, 10, server.until()))
    assert len(server.scans()) == 2


def test_stale_page_comes_from_the_answer(server: Server) -> None:
    server.will_page([Result(b"a", [cell(b"cf:1")])], stale=True, more_results=True, more_results_in_region=False)
    page = server.wait(server.backend.scan_open(server.place, TABLE, Scan(), server.until()))
    assert page.is_stale
    assert page.rows[0].is_stale


@pytest.mark.parametrize(
    "scan",
    [
        Scan(b"h", b"h"),
        Scan(b"h", b"c"),
        Scan(b"c", b"h", is_reversed=True),
        Scan(limit=0),
    ],
)
def test_empty_range_costs_no_call(server: Server, scan: Scan) -> None:
    """To HBase a range whose ends are the same row is a get of that row."""
    page = server.wait(server.backend.scan_open(server.place, TABLE, scan, server.until()))
    assert page.is_end_of_scan
    assert server.asked == []


def test_idle_scanner_is_renewed_and_the_renewal_counts(server: Server) -> None:
    server.will_page(
        [Result(b"a", [cell(b"cf:1")])], scanner_id=1, ttl=60000, more_results=True, more_results_in_region=True
    )
    page = server.wait(server.backend.scan_open(server.place, TABLE, Scan(), server.until()))
    scanner: Any = page.scanner
    scanner.used_at = float("-inf")  # as after half of the lease
    renewed = server.runtime.pending()
    server.answers.append(renewed)
    server.backend._scanners._renew_idle()
    server.will_page([], more_results=True, more_results_in_region=False)
    following = server.backend.scan_next(scanner, 10, server.until())  # must wait for the renewal's answer
    renewed.complete((encode(messages.SCAN_RESPONSE, {"scanner_id": 1}), b""))
    assert server.wait(following).is_end_of_region
    _, renewal, last = server.scans()
    assert renewal["renew"]
    assert (renewal["next_call_seq"], last["next_call_seq"]) == (0, 1)


def test_scanner_in_use_is_not_renewed(server: Server) -> None:
    server.will_page([Result(b"a", [cell(b"cf:1")])], scanner_id=1, more_results=True, more_results_in_region=True)
    page = server.wait(server.backend.scan_open(server.place, TABLE, Scan(), server.until()))
    server.backend._scanners._renew_idle()
    assert len(server.scans()) == 1
    scanner: Any = page.scanner
    scanner.used_at, scanner.renewals = float("-inf"), 10**6
    server.backend._scanners._renew_idle()
    assert len(server.scans()) == 1, "what nobody asks for a long time is left to its lease"


def test_piece_that_nothing_follows_is_a_row(server: Server) -> None:
    """The server stops inside a row before it knows that the rest of it is filtered out, or deleted."""
    one = cell(b"cf:1")
    rows = [Result(b"a", [one]), Result(b"b", [one], is_partial=True)]
    server.will_page(rows, scanner_id=1, more_results=True, more_results_in_region=True)
    server.will_page([], more_results=True, more_results_in_region=False)
    page = server.wait(server.backend.scan_open(server.place, TABLE, Scan(), server.until()))
    assert page.rows == [Result(b"a", [one])]
    page = server.wait(server.backend.scan_next(page.scanner, 10, server.until()))
    assert page.rows == [Result(b"b", [one])]
    assert page.is_end_of_region


# -- scans as cells in Arrow -------------------------------------------------------------------------------------------


class CellScans:
    """Opens a scan of cells and goes on with it; each page as (row, column) of its cells, rows and ends told."""

    def __init__(self, server: Server, scan: Scan | None = None) -> None:
        self._server = server
        self._scan = Scan() if scan is None else scan
        self.page: Any = None

    def next(self, rows: int = 10) -> tuple[list[tuple[bytes, bytes]], int, bytes, bytes]:
        backend, until = self._server.backend, self._server.until()
        if self.page is None:
            call = backend.scan_open_cells(self._server.place, TABLE, self._scan, until)
        else:
            call = backend.scan_next_cells(self.page.scanner, rows, until)
        page = self.page = self._server.wait(call)
        cells = [(one["row"], one["family"] + b":" + one["qualifier"]) for one in page.cells.to_pylist()]
        return cells, page.rows, page.first_row, page.last_row


@pytest.fixture
def cells(server: Server) -> CellScans:
    pytest.importorskip("numpy")
    pytest.importorskip("pyarrow")
    return CellScans(server)


ONE, TWO, THREE = cell(b"cf:1"), cell(b"cf:2"), cell(b"cf:3")
GOES_ON = {"scanner_id": 1, "more_results": True, "more_results_in_region": True}
ENDS = {"scanner_id": 1, "more_results": True, "more_results_in_region": False}


def test_cell_page_tells_its_rows(server: Server, cells: CellScans) -> None:
    server.will_page([Result(b"a", [ONE, TWO]), Result(b"b", [ONE])], **GOES_ON)
    server.will_page([], **GOES_ON)
    server.will_page([Result(b"c", [ONE])], **ENDS, stale=True)
    assert cells.next() == ([(b"a", b"cf:1"), (b"a", b"cf:2"), (b"b", b"cf:1")], 2, b"a", b"b")
    assert (cells.page.is_end_of_region, cells.page.is_stale) == (False, False)
    assert cells.next() == ([], 0, b"", b"")
    assert cells.page.scanner is not None
    assert cells.next() == ([(b"c", b"cf:1")], 1, b"c", b"c")
    assert (cells.page.scanner, cells.page.is_end_of_region, cells.page.is_stale) == (None, True, True)


def test_pieces_of_a_row_are_glued_over_cell_pages(server: Server, cells: CellScans) -> None:
    server.will_page([Result(b"a", [ONE]), Result(b"b", [ONE], is_partial=True)], **GOES_ON)
    server.will_page([Result(b"b", [TWO], is_partial=True)], **GOES_ON)
    server.will_page([Result(b"b", [THREE]), Result(b"c", [ONE], is_partial=True)], **GOES_ON)
    server.will_page([Result(b"d", [ONE], is_partial=True), Result(b"d", [TWO])], **ENDS)
    assert cells.next() == ([(b"a", b"cf:1")], 1, b"a", b"a")
    assert cells.next() == ([], 0, b"", b"")
    assert cells.next() == ([(b"b", b"cf:1"), (b"b", b"cf:2"), (b"b", b"cf:3")], 1, b"b", b"b")
    assert cells.next() == ([(b"c", b"cf:1"), (b"d", b"cf:1"), (b"d", b"cf:2")], 2, b"c", b"d")


@pytest.mark.parametrize("end", [ENDS, {"more_results": False}])
def test_piece_that_nothing_follows_is_a_row_of_cells(server: Server, cells: CellScans, end: dict[str, Any]) -> None:
    server.will_page([Result(b"a", [ONE], is_partial=True)], **GOES_ON)
    server.will_page([], **end)
    assert cells.next()[1] == 0
    assert cells.next() == ([(b"a", b"cf:1")], 1, b"a", b"a")
    assert cells.page.is_end_of_region or cells.page.is_end_of_scan


def test_cell_page_has_no_more_rows_than_are_left_of_the_limit(server: Server) -> None:
    """A piece that was all of its row is found out when the row after the limit has come already."""
    pytest.importorskip("pyarrow")
    scans = CellScans(server, Scan(limit=2, caching=2))
    server.will_page([Result(b"a", [ONE]), Result(b"b", [ONE, TWO], is_partial=True)], **GOES_ON)
    server.will_page([Result(b"c", [ONE])], scanner_id=1, more_results=False, more_results_in_region=True)
    assert scans.next()[1] == 1
    assert scans.next(1) == ([(b"b", b"cf:1"), (b"b", b"cf:2")], 1, b"b", b"b")
    assert (scans.page.scanner, scans.page.is_end_of_scan) == (None, False)
    assert server.scans()[1]["limit_of_rows"] == 1


@pytest.mark.parametrize("pieces", [False, True])
@pytest.mark.parametrize("counts", [[1], [3]])
def test_cells_that_are_not_those_of_the_results_are_an_error(
    server: Server, cells: CellScans, counts: list[int], pieces: bool
) -> None:
    server.will_page([Result(b"a", [ONE, TWO], is_partial=pieces)], **GOES_ON, cells_per_result=counts)
    with pytest.raises(ProtocolError):
        cells.next()


def test_cells_inside_of_the_message_are_refused(server: Server, cells: CellScans) -> None:
    message = {**GOES_ON, "results": [result_message(Result(b"a", [ONE]), with_cells=True)]}
    server.answers.append((encode(messages.SCAN_RESPONSE, message), b""))
    with pytest.raises(ProtocolError, match="not in a cell block"):
        cells.next()


@pytest.mark.parametrize("scan", [Scan(b"h", b"h"), Scan(b"h", b"c"), Scan(limit=0)])
def test_empty_range_of_cells_costs_no_call(server: Server, scan: Scan) -> None:
    pytest.importorskip("pyarrow")
    scans = CellScans(server, scan)
    assert scans.next() == ([], 0, b"", b"")
    assert scans.page.is_end_of_scan
    assert server.asked == []


def test_cells_without_a_place_are_refused(server: Server) -> None:
    with pytest.raises(Unsupported, match="addresses servers"):
        server.backend.scan_open_cells(None, TABLE, Scan(), server.until())


# -- hbase:meta --------------------------------------------------------------------------------------------------------


def test_lookup_is_one_call_with_priority(server: Server) -> None:
    row = Result(b"t,,1.x.", [Cell(b"info:server", 1, b"h:1")])
    server.will_page([row], stale=True, more_results=False, more_results_in_region=True)
    scan = MetaScan(b"t,r,99999999999999", b"t,,", is_reversed=True, limit=1)
    page = server.wait(server.backend.read_meta(MetaReplica(1, server.place.server), scan, server.until()))
    assert page.is_stale
    assert page.rows[0].columns == {b"info:server": b"h:1"}
    (asked,) = server.asked
    request = server.scans()[0]
    assert asked.priority == 200
    assert request["region"]["value"] == b"hbase:meta,,1_0001"
    assert request["close_scanner"] is True
    assert (request["number_of_rows"], request["limit_of_rows"]) == (1, 1)
    assert request["scan"]["readType"] == messages.READ_PREAD
    assert request["scan"]["include_stop_row"] is True
    assert request["scan"]["reversed"] is True


def test_pages_that_differ_in_one_argument_are_not_confused(server: Server) -> None:
    """The encoded range of a page is kept for the next page: its key must have all arguments but the start row."""
    pages = [
        MetaScan(b"t,r,999", b"t,,", is_reversed=True, limit=1),
        MetaScan(b"t,s,999", b"t,,", is_reversed=True, limit=1),
        MetaScan(b"t,s,999", b"s,,", is_reversed=True, limit=1),
        MetaScan(b"t,s,999", b"t,,", is_reversed=True, limit=10),
        MetaScan(b"t,s,999", b"u,,", is_reversed=False, limit=1),
        MetaScan(b"t,s,999", b"", is_reversed=False, limit=1),
        MetaScan(b"", b"", is_reversed=False, limit=1, families=(b"table",)),
    ]
    for scan in pages * 2:
        server.will_page([], more_results=False, more_results_in_region=True)
        server.wait(server.backend.read_meta(MetaReplica(0, server.place.server), scan, server.until()))
        request = server.scans()[-1]
        asked = scan_from(request["scan"], limit=request["limit_of_rows"])
        assert (asked.start_row, asked.stop_row) == (scan.start_row, scan.stop_row)
        assert (asked.is_reversed, asked.limit, asked.columns) == (scan.is_reversed, scan.limit, scan.families)
        assert asked.include_stop == bool(scan.stop_row)


def test_unplaced_meta_replica_is_not_asked(server: Server) -> None:
    with pytest.raises(RegionOffline):
        server.backend.read_meta(MetaReplica(2), MetaScan(b"", b"", is_reversed=False, limit=1), server.until())


def test_call_without_a_place_is_refused(server: Server) -> None:
    with pytest.raises(Unsupported, match="addresses servers"):
        server.backend.get(None, TABLE, Get(b"r"), server.until())


# -- batches -----------------------------------------------------------------------------------------------------------


def action(operation: Any, region: int = 1) -> Action:
    place = RegionLocation(RegionInfo(TABLE, region_id=region), ServerName("127.0.0.1", 1, 1))
    return Action(place, operation)


PUT = Put(b"r", (cell(b"cf:a"),))
DELETE = Delete(b"r")


@pytest.mark.parametrize(
    ("operations", "steps"),
    [
        ([PUT, PUT], [[0, 1]]),
        ([PUT, DELETE], [[0], [1]]),
        ([DELETE, PUT, Get(b"r")], [[0], [1, 2]]),
        ([PUT, Get(b"r"), Put(b"s", (cell(b"cf:a"),))], [[0, 1, 2]]),
        ([Increment(b"r", ((b"cf:n", 1),)), Increment(b"r", ((b"cf:n", 1),))], [[0], [1]]),
        ([PUT, Append(b"r", ((b"cf:a", b"x"),)), Delete(b"s")], [[0], [1, 2]]),
        ([DELETE, DELETE, Get(b"r")], [[0, 1, 2]]),
        ([Get(b"r"), Get(b"r")], [[0, 1]]),
        ([PUT, Put(b"s", (cell(b"cf:a"),)), Delete(b"s")], [[0, 1], [2]]),
    ],
)
def test_changes_of_one_row_keep_their_order(operations: list[Any], steps: list[list[int]]) -> None:
    assert split_into_steps([action(one) for one in operations]) == steps


def response(regions: list[dict[str, Any]], cells: bytes = b"") -> framing.Response:
    message = encode(messages.MULTI_RESPONSE, {"regionActionResult": regions})
    return framing.parse_response(framing.response(1, message, cells)[4:])


def by_table(operation: Any, number: int) -> dict[str, Any]:
    kind = "get" if isinstance(operation, Get) else "mutation"
    return {"index": number, kind: get_message(operation) if kind == "get" else mutation_message(operation)[0]}


@pytest.mark.parametrize("count", [1, 3, 200])
def test_batch_written_by_hand_is_what_the_tables_say(count: int) -> None:
    """Numbers and lengths of one byte and of two."""
    kinds = [
        PUT,
        Put(b"s" * 200, PutCells((b"cf:a", b"cf:%"), (7, 7), (b"1", b"2" * 300))),
        Put(b"t", (cell(b"cf:a"),), Durability.ASYNC_WAL, 86_400_000),
        DELETE,
        Get(b"r", (b"cf:a",)),
        Increment(b"r", ((b"cf:n", 1),), nonce=2**63 + 1),
    ]
    actions = [action(kinds[number % len(kinds)], number % 2) for number in range(count)]
    call = MultiCall(actions, nonce_group=9)
    regions: dict[bytes, list[Any]] = {}
    for one in actions:
        assert one.place is not None
        regions.setdefault(one.place.region_name, []).append(one.operation)
    request: dict[str, Any] = {
        "regionAction": [
            {"region": region_message(name), "action": [by_table(one, at) for at, one in enumerate(operations)]}
            for name, operations in regions.items()
        ]
    }
    if count > 5:
        request["nonceGroup"] = 9
    assert call.param == encode(messages.MULTI_REQUEST, request)
    mutations = [one for operations in regions.values() for one in operations if not isinstance(one, Get)]
    assert call.cells == b"".join(mutation_message(one)[1] for one in mutations)


def done(count: int) -> dict[str, Any]:
    return {"resultOrException": [{"index": number, "result": {}} for number in range(count)]}


@pytest.mark.parametrize("has_statistics", [True, False])
@pytest.mark.parametrize("count", [1, 128, 129, 16384, 16385])
def test_puts_that_were_all_done_are_seen_at_a_glance(count: int, has_statistics: bool) -> None:
    """Unless they are very many: then the answer is decoded, and means the same."""
    call = MultiCall([action(PUT, region) for region in (1, 2) for _ in range(count)], nonce_group=0)
    answer: dict[str, Any] = {"regionActionResult": [done(count), done(count)]}
    if has_statistics:
        answer["regionStatistics"] = {}
    message = encode(messages.MULTI_RESPONSE, answer)
    assert is_all_done(message, [count, count]) is (count <= 16384)
    found = call.decode_outcomes(framing.parse_response(framing.response(1, message)[4:]))
    assert found == [None] * count * 2


def test_puts_of_which_one_failed_are_looked_at_one_by_one() -> None:
    call = MultiCall([action(PUT) for _ in range(3)], nonce_group=0)
    failed = done(3)
    exception = {"name": "org.apache.hadoop.hbase.RegionTooBusyException", "value": b"busy"}
    failed["resultOrException"][1] = {"index": 1, "exception": exception}
    outcomes = call.decode_outcomes(response([failed]))
    assert [isinstance(one, MetaClientError) for one in outcomes] == [False, True, False]
    short = call.decode_outcomes(response([done(2)]))
    assert [isinstance(one, MetaClientError) for one in short] == [False, False, True]
    turned = done(3)
    turned["resultOrException"].reverse()
    assert call.decode_outcomes(response([turned])) == [None] * 3


def test_cells_behind_an_answer_that_has_none_are_an_error() -> None:
    with pytest.raises(ProtocolError, match="bytes of cells too many"):
        MultiCall([action(PUT)], nonce_group=0).decode_outcomes(response([done(1)], encode_cells(b"r", [ONE])))


def test_cells_of_a_batch_stand_as_its_actions_do() -> None:
    puts = [Put(b"r%d" % number, (cell(b"cf:a", b"%d" % number),)) for number in range(4)]
    call = MultiCall([action(put, number % 2) for number, put in enumerate(puts)], nonce_group=0)
    request = decode(messages.MULTI_REQUEST, call.param)
    at, found = 0, []
    for region in request["regionAction"]:
        for one in region["action"]:
            mutation, at = mutation_from(one["mutation"], call.cells, at)
            found.append(mutation)
    assert found == [puts[0], puts[2], puts[1], puts[3]]
    assert at == len(call.cells)


def test_outcomes_are_matched_by_region_and_index() -> None:
    actions = [action(Get(b"a"), 1), action(PUT, 2), action(Get(b"b"), 1), action(Get(b"c"), 3)]
    call = MultiCall(actions, nonce_group=0)
    a, b = Result(b"a", [cell(b"cf:x")], True), Result(b"b", [cell(b"cf:y"), cell(b"cf:z")], True)
    regions = [
        {
            "resultOrException": [
                {"index": 1, "result": result_message(b, with_cells=False)},
                {"index": 0, "result": result_message(a, with_cells=False)},
            ]
        },
        {"resultOrException": [{"index": 0, "result": {}}]},
        {"exception": {"name": "org.apache.hadoop.hbase.NotServingRegionException", "value": b"gone"}},
    ]
    outcomes = call.decode_outcomes(response(regions, encode_results([b, a])))
    assert outcomes[:3] == [a, None, b]
    assert isinstance(outcomes[3], NotServingRegion)
    assert outcomes[3].place == actions[3].place


def test_action_without_an_answer_may_have_been_applied() -> None:
    call = MultiCall([action(PUT), action(Put(b"s", (cell(b"cf:a"),)))], nonce_group=0)
    outcomes = call.decode_outcomes(response([{"resultOrException": [{"index": 0, "result": {}}]}]))
    assert outcomes[0] is None
    assert isinstance(outcomes[1], MetaClientError)
    assert outcomes[1].may_have_applied


@pytest.mark.parametrize(
    "regions",
    [[], [{}, {}], [{"resultOrException": [{"index": 5, "result": {}}]}]],
)
def test_batch_answer_that_does_not_fit_is_an_error(regions: list[dict[str, Any]]) -> None:
    with pytest.raises(ProtocolError):
        MultiCall([action(PUT)], nonce_group=0).decode_outcomes(response(regions))


def test_checked_row_mutations_are_one_atomic_action() -> None:
    change = RowMutations(b"r", (PUT, Delete(b"r", (Cell(b"cf:b", 2**63 - 1, b"", CellType.DELETE_COLUMN),))))
    call = MultiCall([action(change)], nonce_group=0, check=Check(b"r", b"cf:a", b"v"))
    (region,) = decode(messages.MULTI_REQUEST, call.param)["regionAction"]
    assert region["atomic"]
    assert len(region["action"]) == 2
    assert region["condition"]["row"] == b"r"
    assert call.decode_processed(response([{"processed": True, "resultOrException": [{"index": 0, "result": {}}]}]))
    assert not call.decode_processed(response([{"processed": False}]))


def test_change_after_a_failed_one_of_the_same_row_is_not_sent(server: Server) -> None:
    """It would overtake the first when that is tried again."""
    failed = {"exception": {"name": "org.apache.hadoop.hbase.NotServingRegionException", "value": b"gone"}}
    server.answers.append((encode(messages.MULTI_RESPONSE, {"regionActionResult": [failed]}), b""))
    actions = [Action(server.place, PUT), Action(server.place, DELETE)]
    outcomes = server.wait(server.backend.batch(server.place.server, TABLE, actions, server.until()))
    assert all(isinstance(outcome, NotServingRegion) for outcome in outcomes)
    assert not outcomes[1].may_have_applied
    assert len(server.asked) == 1


def test_steps_of_a_batch_follow_one_another(server: Server) -> None:
    done = {"resultOrException": [{"index": 0, "result": {}}]}
    for _ in range(2):
        server.answers.append((encode(messages.MULTI_RESPONSE, {"regionActionResult": [done]}), b""))
    actions = [Action(server.place, PUT), Action(server.place, DELETE)]
    assert server.wait(server.backend.batch(server.place.server, TABLE, actions, server.until())) == [None, None]
    kinds = [
        decode(messages.MULTI_REQUEST, request.param)["regionAction"][0]["action"][0]["mutation"]["mutate_type"]
        for request in server.asked
    ]
    assert kinds == [messages.MUTATE_PUT, messages.MUTATE_DELETE]


def test_increment_answers_only_the_columns_that_were_asked_for(server: Server) -> None:
    """3.0 answers the whole row to a nonce that it has seen before."""
    cells = [Cell(b"cf:n", 1, (5).to_bytes(8, "big")), Cell(b"cf:other", 1, b"x")]
    message = encode(messages.MUTATE_RESPONSE, {"result": {"associated_cell_count": 2}, "processed": True})
    server.answers.append((message, encode_cells(b"r", cells)))
    result = server.wait(
        server.backend.mutate(server.place, TABLE, Increment(b"r", ((b"cf:n", 1),), nonce=9), server.until())
    )
    assert result.cells == cells[:1]
    request = decode(messages.MUTATE_REQUEST, server.asked[0].param)
    assert request["mutation"]["nonce"] == 9
    assert request["nonce_group"] == server.backend._nonce_group


def test_put_says_how_many_cells_are_in_the_block(server: Server) -> None:
    """A put without the count answers success and writes nothing."""
    server.answers.append((encode(messages.MUTATE_RESPONSE, {"processed": True}), b""))
    assert server.wait(server.backend.mutate(server.place, TABLE, PUT, server.until())) is None
    request = decode(messages.MUTATE_REQUEST, server.asked[0].param)
    assert request["mutation"]["associated_cell_count"] == 1
    assert request["mutation"]["mutate_type"] == messages.MUTATE_PUT
