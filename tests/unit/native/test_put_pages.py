"""Pages of puts in HBase's own RPC: byte for byte what a batch of the same puts is."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs the extra 'spark'")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from metaclient.backend import Action, PutPage
from metaclient.errors import BackendFault, MetaClientError, NotServingRegion, RegionTooBusy, Unsupported
from metaclient.model import RegionInfo, RegionLocation, ServerName
from metaclient.protobuf import encode
from metaclient.wire.rpc import framing, messages
from metaclient_native.batches import MultiCall, PageCall
from tests.unit.pages import put_pages

SERVER = ServerName("rs1", 16020, 1)
PLACES = [RegionLocation(RegionInfo(b"t", start, end, 1), SERVER) for start, end in ((b"", b"m"), (b"m", b""))]


@given(put_pages(min_rows=1), st.data())
def test_call_of_a_page_is_the_call_of_its_puts(page: PutPage, data: st.DataObject) -> None:
    border = data.draw(st.integers(0, len(page)))
    counts = [(place, rows) for place, rows in zip(PLACES, (border, len(page) - border), strict=True) if rows]
    of_rows = [place for place, rows in counts for _ in range(rows)]
    made = PageCall(page, counts)
    actions = [Action(place, put) for place, put in zip(of_rows, page.puts(), strict=True)]
    expected = MultiCall(actions, nonce_group=0)
    assert made.param == expected.param
    assert made.cells == expected.cells


@pytest.mark.parametrize("rows", [127, 128, 129, 20_000])
def test_many_rows_are_numbered_in_each_region(rows: int) -> None:
    keys = pa.array([b"%05d" % number for number in range(rows)], pa.large_binary())
    page = PutPage(keys, pa.array([7] * rows), (b"cf:a",), (keys,))
    made = PageCall(page, [(PLACES[0], rows - 1), (PLACES[1], 1)])
    places = [PLACES[0]] * (rows - 1) + [PLACES[1]]
    expected = MultiCall([Action(place, put) for place, put in zip(places, page.puts(), strict=True)], nonce_group=0)
    assert made.param == expected.param


def call() -> PageCall:
    """Two rows in one region, one in another."""
    keys = pa.array([b"a", b"b", b"q"], pa.large_binary())
    return PageCall(PutPage(keys, pa.array([7, 7, 7]), (b"cf:a",), (keys,)), [(PLACES[0], 2), (PLACES[1], 1)])


def answer(*regions: dict[str, Any]) -> framing.Response:
    message = encode(messages.MULTI_RESPONSE, {"regionActionResult": list(regions)})
    return framing.parse_response(framing.response(1, message)[4:])


def done(*numbers: int) -> dict[str, Any]:
    return {"resultOrException": [{"index": number, "result": {}} for number in numbers]}


def exception(name: str) -> dict[str, Any]:
    return {"name": f"org.apache.hadoop.hbase.{name}", "value": b"told so"}


@pytest.mark.parametrize("first", [done(0, 1), done(1, 0)], ids=["as most are", "in another order"])
def test_all_done(first: dict[str, Any]) -> None:
    call().raise_first_error(answer(first, done(0)))


@pytest.mark.parametrize(
    ("regions", "error", "place"),
    [
        ((done(0, 1), {"exception": exception("NotServingRegionException")}), NotServingRegion, PLACES[1]),
        (
            ({"resultOrException": [{"index": 1, "exception": exception("RegionTooBusyException")}]}, done(0)),
            MetaClientError,
            None,
        ),
        (
            (
                {
                    "resultOrException": [
                        {"index": 0, "result": {}},
                        {"index": 1, "exception": exception("RegionTooBusyException")},
                    ]
                },
                done(0),
            ),
            RegionTooBusy,
            PLACES[0],
        ),
        ((done(0), done(0)), BackendFault, None),
        ((done(0, 1),), MetaClientError, None),
    ],
    ids=["a region", "a row and no word of another", "a row", "no word of a row", "no word of a region"],
)
def test_what_was_not_done_is_an_error(
    regions: tuple[dict[str, Any], ...], error: type[MetaClientError], place: RegionLocation | None
) -> None:
    with pytest.raises(error) as caught:
        call().raise_first_error(answer(*regions))
    assert caught.value.place == place


def test_page_without_a_place_is_refused() -> None:
    keys = pa.array([b"a"], pa.large_binary())
    with pytest.raises(Unsupported, match="addresses servers"):
        PageCall(PutPage(keys, pa.array([7]), (b"cf:a",), (keys,)), [(None, 1)])
