"""Many gets in one Multi call: the bytes and the outcomes are those of the tables of fields, without their cost."""

from typing import Any

import pytest

from metaclient.backend import Action
from metaclient.errors import MetaClientError
from metaclient.model import Cell, Get, RegionInfo, RegionLocation, Result, ServerName
from metaclient.protobuf import ProtocolError, decode, encode
from metaclient.wire.rpc.cellblock import encode_cells
from metaclient.wire.rpc.framing import Response
from metaclient.wire.rpc.messages import MULTI_REQUEST, MULTI_RESPONSE
from metaclient.wire.rpc.queries import get_from
from metaclient_native.batches import MultiCall

SERVER = ServerName("rs1", 16020, 1)
PLACES = [
    RegionLocation(RegionInfo(b"t", b"", b"m", 1), SERVER, 1),
    RegionLocation(RegionInfo(b"t", b"m", b"", 2), SERVER, 1),
]
ROWS = [b"a", b"n", b"b", b"o", b"c"]
CELLS = [Cell(b"f:q", 7, b"v"), Cell(b"f:r", 8, b"w" * 300)]


def call(gets: list[Get]) -> MultiCall:
    return MultiCall([Action(PLACES[get.row >= b"m"], get) for get in gets], nonce_group=0)


def response(per_region: list[dict[str, Any]], block: bytes = b"", **fields: Any) -> Response:
    message = encode(MULTI_RESPONSE, {"regionActionResult": per_region, **fields})
    return Response(1, message + block, 0, len(message), None)


def counted(counts: list[int], **fields: Any) -> dict[str, Any]:
    results = [{"index": at, "result": {"associated_cell_count": one, **fields}} for at, one in enumerate(counts)]
    return {"resultOrException": results}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"columns": (b"f:q", b"g")},
        {"max_versions": 3, "min_timestamp": 5, "max_timestamp": 9},
        {"filter": b"KeyOnlyFilter(false)"},
        {"existence_only": True},
    ],
)
def test_request_of_many_gets_has_every_option_of_each(options: dict[str, Any]) -> None:
    gets = [Get(row, **options) for row in (*ROWS, b"k" * 200)] + [Get(b"d"), Get(b"e", (b"f:z",))]
    sent = decode(MULTI_REQUEST, call(gets).param)["regionAction"]
    found = [get_from(action["get"]) for region in sent for action in region["action"]]
    assert found == [get for get in gets if get.row < b"m"] + [get for get in gets if get.row >= b"m"]
    assert [action.get("index", 0) for action in sent[0]["action"]] == list(range(len(sent[0]["action"])))


@pytest.mark.parametrize("stale", [{}, {"stale": False}])
@pytest.mark.parametrize("end", [{}, {"regionStatistics": b""}, {"processed": True}])
def test_rows_of_all_regions_come_back_in_the_order_of_the_keys(stale: dict[str, Any], end: dict[str, Any]) -> None:
    block = b"".join(encode_cells(row, CELLS[:count]) for row, count in ((b"a", 2), (b"c", 1), (b"n", 1), (b"o", 2)))
    outcomes = call([Get(row) for row in ROWS]).decode_outcomes(
        response([counted([2, 0, 1], **stale), counted([1, 2], **stale)], block, **end)
    )
    counts = {b"a": 2, b"n": 1, b"b": 0, b"o": 2, b"c": 1}
    assert outcomes == [Result(row, CELLS[: counts[row]]) for row in ROWS]


def test_hundreds_of_rows_of_one_region_have_indexes_of_two_bytes() -> None:
    rows = [b"a%04d" % number for number in range(400)]
    block = b"".join(encode_cells(row, CELLS) for row in rows)
    outcomes = call([Get(row) for row in rows]).decode_outcomes(response([counted([2] * len(rows))], block))
    assert outcomes == [Result(row, CELLS) for row in rows]


def test_stale_row_among_others_keeps_its_flag() -> None:
    answer = counted([1, 1])
    answer["resultOrException"][1]["result"]["stale"] = True
    block = encode_cells(b"a", CELLS[:1]) + encode_cells(b"b", CELLS[:1])
    outcomes = call([Get(b"a"), Get(b"b")]).decode_outcomes(response([answer], block))
    assert [isinstance(one, Result) and one.is_stale for one in outcomes] == [False, True]


def test_existence_is_no_empty_row() -> None:
    answer = {"resultOrException": [{"index": 0, "result": {"associated_cell_count": 0, "exists": True}}]}
    (outcome,) = call([Get(b"a", existence_only=True)]).decode_outcomes(response([answer]))
    assert isinstance(outcome, Result)
    assert outcome.exists is True


def test_failed_row_does_not_shift_the_cells_of_the_others() -> None:
    answer = counted([1, 0, 1])
    failure = {"name": "org.apache.hadoop.hbase.NotServingRegionException", "value": b"gone"}
    answer["resultOrException"][1] = {"index": 1, "exception": failure}
    block = encode_cells(b"a", CELLS[:1]) + encode_cells(b"c", CELLS[:1])
    outcomes = call([Get(b"a"), Get(b"b"), Get(b"c")]).decode_outcomes(response([answer], block))
    assert outcomes[0] == Result(b"a", CELLS[:1])
    assert isinstance(outcomes[1], MetaClientError)
    assert outcomes[2] == Result(b"c", CELLS[:1])


def test_results_in_another_order_are_matched_by_their_indexes() -> None:
    answer = counted([1, 2])
    answer["resultOrException"].reverse()
    block = encode_cells(b"b", CELLS) + encode_cells(b"a", CELLS[:1])
    outcomes = call([Get(b"a"), Get(b"b")]).decode_outcomes(response([answer], block))
    assert outcomes == [Result(b"a", CELLS[:1]), Result(b"b", CELLS)]


def test_row_without_a_result_is_an_error_and_not_the_next_rows_result() -> None:
    answer = counted([1])
    outcomes = call([Get(b"a"), Get(b"b")]).decode_outcomes(response([answer], encode_cells(b"a", CELLS[:1])))
    assert outcomes[0] == Result(b"a", CELLS[:1])
    assert isinstance(outcomes[1], MetaClientError)


@pytest.mark.parametrize("block", [encode_cells(b"a", CELLS[:1]) * 2, encode_cells(b"a", CELLS[:1])[:-1], b""])
def test_block_with_more_or_fewer_cells_than_announced_is_refused(block: bytes) -> None:
    with pytest.raises(ProtocolError):
        call([Get(b"a")]).decode_outcomes(response([counted([1])], block))


def test_region_that_announces_more_bytes_than_there_are_is_refused() -> None:
    whole = response([counted([1])], encode_cells(b"a", CELLS[:1]))
    grown = whole.data[:1] + bytes([whole.data[1] + 1]) + whole.data[2:]
    with pytest.raises(ProtocolError):
        call([Get(b"a")]).decode_outcomes(whole._replace(data=grown))


def test_response_that_is_cut_inside_a_result_is_refused() -> None:
    whole = response([counted([1, 1])], b"")
    for end in range(1, whole.end):
        with pytest.raises(ProtocolError):
            call([Get(b"a"), Get(b"b")]).decode_outcomes(Response(1, whole.data[:end], 0, end, None))
