"""One Multi call of gets that differ only in their rows: its bytes and its outcomes are those of a MultiCall."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaclient.errors import MetaClientError
from metaclient.many_gets import FoundRows, GetActions
from metaclient.model import Get, RegionInfo, RegionLocation, Result
from metaclient.protobuf import ProtocolError
from metaclient.row_runs import AlikeRows
from metaclient.wire.rpc.cellblock import encode_cells
from metaclient_native.batches import MultiCall
from metaclient_native.get_calls import GetCall
from tests.unit.native.test_many_gets import CELLS, PLACES, SERVER, response

OPTIONS: list[dict[str, Any]] = [
    {},
    {"columns": (b"f:q", b"g")},
    {"max_versions": 3, "min_timestamp": 5, "max_timestamp": 9},
    {"filter": b"KeyOnlyFilter(false)"},
    {"existence_only": True},
]
OTHER = RegionLocation(RegionInfo(b"u", b"", b"", 3), SERVER, 1)
rows = st.lists(st.binary(min_size=1, max_size=3) | st.binary(min_size=120, max_size=140), min_size=1, max_size=9)


def actions_of(per_region: list[list[bytes]], **options: Any) -> GetActions:
    places = [*PLACES, OTHER][: len(per_region)]
    counted = [(place, len(some)) for place, some in zip(places, per_region, strict=True)]
    return GetActions([row for some in per_region for row in some], Get(b"", **options), counted)


@given(per_region=st.lists(rows, min_size=1, max_size=3), options=st.sampled_from(OPTIONS))
def test_request_has_the_bytes_of_single_actions(per_region: list[list[bytes]], options: dict[str, Any]) -> None:
    actions = actions_of(per_region, **options)
    assert GetCall(actions).param == MultiCall(list(actions), nonce_group=0).param


@pytest.mark.parametrize("count", [1, 127, 128, 129, 400, 16_384, 16_385])
@pytest.mark.parametrize("options", OPTIONS[:2])
def test_request_of_rows_of_one_length_has_the_bytes_of_single_actions(count: int, options: dict[str, Any]) -> None:
    actions = actions_of([[b"%05d" % number for number in range(count)]], **options)
    assert GetCall(actions).param == MultiCall(list(actions), nonce_group=0).param


def result(index: int, kind: int) -> tuple[dict[str, Any], int]:
    """A ResultOrException and the number of its cells; kinds 0 to 2 are numbers of cells as a server sends them."""
    if kind == 9:
        return {"index": index, "exception": {"name": "java.io.IOException", "value": b"gone"}}, 0
    if kind == 8:
        return {"index": index, "result": {"associated_cell_count": 1, "stale": True}}, 1
    if kind == 7:
        return {"index": index, "result": {"associated_cell_count": 0, "exists": True}}, 0
    return {"index": index, "result": {"associated_cell_count": kind, **({"stale": False} if kind else {})}}, kind


kinds = st.lists(st.sampled_from([1, 1, 1, 1, 2, 0]) | st.sampled_from([7, 8, 9]), min_size=1, max_size=30) | st.tuples(
    st.sampled_from([0, 1, 2]), st.integers(1, 300)
).map(lambda one: [one[0]] * one[1])


@given(per_region=st.lists(kinds, min_size=1, max_size=3), failed=st.sets(st.integers(0, 2), max_size=1))
def test_outcomes_are_those_of_single_actions(per_region: list[list[int]], failed: set[int]) -> None:
    answers, block, names = [], b"", []
    for number, some in enumerate(per_region):
        names.append([b"%d-%03d" % (number, index) for index in range(len(some))])
        if number in failed:
            answers.append({"exception": {"name": "org.apache.hadoop.hbase.NotServingRegionException", "value": b"-"}})
            continue
        made = [result(index, kind) for index, kind in enumerate(some)]
        answers.append({"resultOrException": [one for one, _ in made]})
        block += b"".join(encode_cells(row, CELLS[:count]) for row, (_, count) in zip(names[-1], made, strict=True))
    actions, answered = actions_of(names), response(answers, block, regionStatistics=b"")
    expected = MultiCall(list(actions), nonce_group=0).decode_outcomes(answered)
    found = GetCall(actions).decode_outcomes(answered)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        if isinstance(other, MetaClientError):
            assert (type(one), str(one)) == (type(other), str(other))
        else:
            assert isinstance(one, Result)
            assert isinstance(other, Result)
            assert one._replace(cells=list(one.cells)) == other._replace(cells=list(other.cells))


def test_rows_that_exist_are_one_run_although_others_are_missing() -> None:
    names = [b"a%03d" % number for number in range(300)]
    made = [result(index, int(index % 3 != 1)) for index in range(300)]
    block = b"".join(encode_cells(row, CELLS[:count]) for row, (_, count) in zip(names, made, strict=True))
    found = GetCall(actions_of([names])).decode_outcomes(
        response([{"resultOrException": [one for one, _ in made]}], block)
    )
    assert isinstance(found, FoundRows)
    assert [type(run) for run in found.runs.runs] == [AlikeRows]
    assert found[:3] == [Result(b"a000", CELLS[:1]), Result(b"a001"), Result(b"a002", CELLS[:1])]


@pytest.mark.parametrize("change", [-1, 1])
def test_block_of_another_length_than_announced_is_refused(change: int) -> None:
    names = [b"a%03d" % number for number in range(20)]
    answer = {"resultOrException": [result(index, 1)[0] for index in range(20)]}
    block = b"".join(encode_cells(row, CELLS[:1]) for row in names)
    with pytest.raises(ProtocolError):
        GetCall(actions_of([names])).decode_outcomes(response([answer], block[:change] if change < 0 else block + b"x"))


@pytest.mark.parametrize("missing", [1, -1])
def test_response_with_fewer_or_more_results_than_gets_shifts_no_row(missing: int) -> None:
    names = [b"a%03d" % number for number in range(20)]
    answer = {"resultOrException": [result(index, 1)[0] for index in range(20 - missing)]}
    block = b"".join(encode_cells(row, CELLS[:1]) for row in [*names, b"b"][: 20 - missing])
    call = GetCall(actions_of([names]))
    if missing < 0:
        with pytest.raises(ProtocolError):
            call.decode_outcomes(response([answer], block))
    else:
        outcomes = call.decode_outcomes(response([answer], block))
        assert outcomes[:-1] == [Result(row, CELLS[:1]) for row in names[:-1]]
        assert isinstance(outcomes[-1], MetaClientError)


def test_results_are_numbered_within_their_region_and_nowhere_else() -> None:
    """A constant run of results must begin with index 0: a response that begins with 1 is decoded field by field."""
    answer = {"resultOrException": [result(index, 1)[0] for index in (1, 0)]}
    block = encode_cells(b"b", CELLS[:1]) + encode_cells(b"a", CELLS[:1])
    outcomes = GetCall(actions_of([[b"a", b"b"]])).decode_outcomes(response([answer], block))
    assert outcomes == [Result(b"a", CELLS[:1]), Result(b"b", CELLS[:1])]
