"""The bytes of HBase's RPC: round trips, bytes that were seen on real servers, and garbage."""

from __future__ import annotations

import contextlib
import tracemalloc
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaclient.errors import Unsupported
from metaclient.metarow import SERVER_NAME
from metaclient.model import (
    Append,
    Cell,
    CellType,
    Check,
    CompareOp,
    Delete,
    Durability,
    FamilyDescriptor,
    Get,
    Increment,
    Put,
    PutCells,
    RegionInfo,
    RegionLocation,
    Result,
    Scan,
    ServerName,
    TableDescriptor,
)
from metaclient.protobuf import Message, ProtocolError, decode, encode, read_varint, varint
from metaclient.wire.filter_arguments import SIGNATURES
from metaclient.wire.filter_language import FilterSyntaxError
from metaclient.wire.rpc import admin_messages, filters, framing, messages, mutations, names, queries, schemas
from metaclient.wire.rpc.arrow import cells_to_arrow
from metaclient.wire.rpc.cellblock import (
    PutWriter,
    decode_cells,
    decode_results,
    decode_rows,
    encode_cells,
    encode_results,
)
from metaclient_native import calls

ALL = [one for module in (messages, admin_messages) for one in vars(module).values() if isinstance(one, Message)]
names_ = st.binary(min_size=1, max_size=8).filter(lambda name: b":" not in name)
columns = st.builds(lambda family, qualifier: family + b":" + qualifier, names_, st.binary(max_size=8))
timestamps = st.integers(0, 2**63 - 1)
put_cells = st.builds(Cell, columns, timestamps, st.binary(max_size=40), st.just(CellType.PUT))
any_cells = st.builds(Cell, columns, timestamps, st.binary(max_size=40), st.sampled_from(list(CellType)))
rows = st.binary(min_size=1, max_size=20)
results = st.builds(lambda row, cells: Result(row, cells), rows, st.lists(any_cells, min_size=1, max_size=5))


def values_of(message: Message) -> st.SearchStrategy[dict[str, Any]]:
    kinds: dict[str, st.SearchStrategy[Any]] = {
        "unsigned": st.integers(0, 2**64 - 1),
        "signed": st.integers(-(2**63), 2**63 - 1),
        "bool": st.booleans(),
        "bytes": st.binary(max_size=300),
        "text": st.text(max_size=50),
        "float": st.floats(width=32, allow_nan=False),
        "double": st.floats(allow_nan=False),
    }
    made: dict[str, st.SearchStrategy[Any]] = {}
    for name, field in message.by_name.items():
        value = values_of(field.message) if field.message is not None else kinds[field.kind]
        made[name] = st.lists(value, min_size=1, max_size=2) if field.is_repeated else value
    required = {name: made.pop(name) for name in message.required}
    return st.fixed_dictionaries(required, optional=made)


@pytest.mark.parametrize("message", ALL, ids=lambda message: message.name)
def test_every_message_comes_back_as_it_was(message: Message) -> None:
    @settings(max_examples=10, deadline=None)
    @given(values_of(message))
    def check(values: dict[str, Any]) -> None:
        assert decode(message, encode(message, values)) == values

    check()


@given(st.integers(0, 2**64 - 1))
def test_varint_comes_back(number: int) -> None:
    data = varint(number)
    assert read_varint(data, 0, len(data)) == (number, len(data))


def test_packed_numbers_are_taken_apart() -> None:
    timestamps = Message("T", (1, "times*", "signed"))
    assert decode(timestamps, bytes.fromhex("0a03018001")) == {"times": [1, 128]}


def test_known_number_of_another_wire_type_is_skipped() -> None:
    """ServerLoad.13 is a map on 2.6.1 and a number on 3.0."""
    point = Message("P", (1, "x", "unsigned"), (2, "y", "unsigned"))
    assert decode(point, bytes.fromhex("0a0161 1005")) == {"y": 5}


@pytest.mark.parametrize("message", ALL, ids=lambda message: message.name)
def test_garbage_is_a_protocol_error_or_a_message(message: Message) -> None:
    @settings(max_examples=30, deadline=None)
    @given(st.binary(max_size=60))
    def check(data: bytes) -> None:
        with contextlib.suppress(ProtocolError):
            decode(message, data)

    check()


# -- bytes that real servers sent or took ------------------------------------------------------------------------------


def test_smallest_exchange_is_as_seen() -> None:
    assert framing.preamble() == bytes.fromhex("484261730050")
    call = framing.request(1, b"GetMetaRegionLocations", b"")
    assert call == bytes.fromhex("0000001e 1c 0801 1a16 4765744d657461526567696f6e4c6f636174696f6e73 2001 00")


def test_cell_is_as_seen() -> None:
    value = b"v" * 20
    cell = Cell(b"f:q1", 0x000001A1E2BEC4EF, value)
    assert encode_cells(b"5000", [cell]) == (
        bytes.fromhex("0000002f 00000013 00000014 0004 35303030 01 66 7131 000001a1e2bec4ef 04") + value
    )


def test_meta_lookup_is_as_seen() -> None:
    scan = {
        "column": [{"family": b"info"}],
        "start_row": b"t1,555,99999999999999",
        "stop_row": b"t1,,",
        "reversed": True,
        "include_stop_row": True,
    }
    request = {
        "region": names.region_message(b"hbase:meta,,1_0001"),
        "scan": scan,
        "number_of_rows": 1,
        "limit_of_rows": 1,
    }
    seen = (
        "0a160801121268626173653a6d6574612c2c315f30303031122a0a060a04696e666f1a15"
        + b"t1,555,99999999999999".hex()
        + "220474312c2c7801b0010120015801"
    )
    assert encode(messages.SCAN_REQUEST, request).hex() == seen


# -- cells -------------------------------------------------------------------------------------------------------------


@given(st.lists(results, max_size=8))
def test_cells_come_back(many: list[Result]) -> None:
    block = encode_results(many)
    assert decode_results(block, 0, len(block), [len(result.cells) for result in many]) == many


@given(st.lists(results, min_size=1, max_size=3), st.lists(st.integers(0, 2), min_size=1, max_size=30))
def test_rows_that_look_alike_are_told_apart(few: list[Result], order: list[int]) -> None:
    """Shapes of cells and names of columns are remembered: others of the same length must not be mixed up."""
    many = [few[number % len(few)] for number in order]
    many = [
        result._replace(
            cells=[cell._replace(timestamp=turn, value=bytes([turn]) * len(cell.value)) for cell in result.cells]
        )
        for turn, result in enumerate(many)
    ]
    block = encode_results(many)
    assert decode_results(block, 0, len(block), [len(result.cells) for result in many]) == many


@given(st.data())
def test_torn_block_is_an_error(data: st.DataObject) -> None:
    good = encode_cells(b"row", [Cell(b"cf:q", 1, b"value"), Cell(b"cf:r", 2, b"x")])
    for _ in range(3):
        decode_cells(good, 0, len(good), 2)  # so that its shape is known
    block = bytearray(good)
    if data.draw(st.booleans()):
        block = block[: data.draw(st.integers(0, len(block) - 1))]
    else:
        block[data.draw(st.integers(0, len(block) - 1))] = data.draw(st.integers(0, 255))
    try:
        row, cells, at = decode_cells(bytes(block), 0, len(block), 2)
    except ProtocolError:
        return
    assert at <= len(block)
    assert len(cells) == 2
    assert isinstance(row, bytes)


def test_left_over_cells_are_an_error() -> None:
    block = encode_cells(b"r", [Cell(b"cf:a", 1, b""), Cell(b"cf:b", 1, b"")])
    with pytest.raises(ProtocolError, match="belong to no result"):
        decode_results(block, 0, len(block), [1])


def listed(many: list[Result]) -> list[tuple[object, ...]]:
    return [
        (result.row, cell.family, cell.qualifier, cell.timestamp, int(cell.type), cell.value)
        for result in many
        for cell in result.cells
    ]


def cells_in(batch: Any) -> list[tuple[object, ...]]:
    return [tuple(one.values()) for one in batch.to_pylist()]


class TestArrow:
    numpy, arrow = pytest.importorskip("numpy"), pytest.importorskip("pyarrow")

    @settings(deadline=None)
    @given(st.lists(results, max_size=8))
    def test_same_cells_as_objects(self, many: list[Result]) -> None:
        assert cells_in(cells_to_arrow(encode_results(many))) == listed(many)

    @settings(deadline=None)
    @given(
        st.lists(results.filter(lambda result: result.cells), min_size=1, max_size=3),
        st.lists(st.tuples(st.integers(0, 2), st.integers(1, 90)), max_size=8),
        st.integers(0, 3),
    )
    def test_rows_that_look_alike_for_a_while(
        self, few: list[Result], runs: list[tuple[int, int]], before: int
    ) -> None:
        """Runs of rows of one shape, longer and shorter than what is guessed or walked at a time, one after another."""
        many = [few[number % len(few)] for number, count in runs for _ in range(count)]
        data = b"x" * before + encode_results(many)
        batch = cells_to_arrow(data, before)
        batch.validate(full=True)
        assert cells_in(batch) == listed(many)

    def test_only_the_length_of_the_family_tells_rows_apart(self) -> None:
        many = [Result(b"%d" % (row % 10), [Cell(b"a:bcd" if row < 50 else b"ab:cd", 1, b"")]) for row in range(100)]
        assert cells_in(cells_to_arrow(encode_results(many))) == listed(many)

    def test_row_with_more_cells_than_make_a_pattern(self) -> None:
        many = [
            Result(b"%d" % row, [Cell(b"cf:%04d" % n, n, b"v" * (row % 2)) for n in range(3000)]) for row in range(3)
        ]
        assert cells_in(cells_to_arrow(encode_results(many))) == listed(many)

    @settings(deadline=None)
    @given(st.data(), st.sampled_from([1, 3, 80]))
    def test_torn_block_is_an_error(self, data: st.DataObject, times: int) -> None:
        cells = [Cell(b"cf:q", 1, b"value"), Cell(b"cf:r", 2, b"x")]
        block = bytearray(encode_results([Result(b"row%02d" % number, cells) for number in range(times)]))
        if data.draw(st.booleans()):
            block = block[: data.draw(st.integers(0, len(block) - 1))]
        else:
            block[data.draw(st.integers(0, len(block) - 1))] = data.draw(st.integers(0, 255))
        try:
            batch = cells_to_arrow(bytes(block))
        except ProtocolError:
            return
        batch.validate(full=True)
        # What is torn may be a family with a colon, which no name of a column can tell from another one.
        found = [(row, b"%b:%b" % (family, name), *rest) for row, family, name, *rest in cells_in(batch)]
        assert found == [
            (row, cell.column, cell.timestamp, int(cell.type), cell.value)
            for row, cell in decode_rows(bytes(block), 0, len(block))
        ]

    @pytest.mark.parametrize("at", [0, 100])
    def test_unknown_type_is_an_error(self, at: int) -> None:
        block = bytearray(encode_results([Result(b"r", [Cell(b"cf:q", 1, b"")])] * (at + 1)))
        block[-1] = 5
        with pytest.raises(ProtocolError, match="unknown type 5"):
            cells_to_arrow(bytes(block))

    @pytest.mark.parametrize("value", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\0\0\0\x15"])
    @pytest.mark.parametrize("offset", [0, 4, 8])
    @pytest.mark.parametrize("is_like_the_others", [False, True])
    def test_lengths_that_lead_nowhere_are_an_error(self, value: bytes, offset: int, is_like_the_others: bool) -> None:
        last = [Cell(b"cf:q", 1, b"12345678" if is_like_the_others else b"1")]
        block = bytearray(encode_results([Result(b"r", [Cell(b"cf:q", 1, b"12345678")])] * 9 + [Result(b"r", last)]))
        at = len(block) - len(encode_cells(b"r", last)) + offset
        block[at : at + 4] = value
        with pytest.raises(ProtocolError, match="cut short or torn at byte"):
            cells_to_arrow(bytes(block))


# -- queries and mutations ---------------------------------------------------------------------------------------------

gets = st.builds(
    Get,
    rows,
    st.lists(columns | names_, max_size=3).map(tuple),
    max_versions=st.integers(1, 2**31 - 1),
    min_timestamp=st.integers(0, 5),
    max_timestamp=st.sampled_from([10, 2**63 - 1]),
    filter=st.sampled_from([None, b"KeyOnlyFilter()", b"PrefixFilter('a') OR PageFilter(3)"]),
    existence_only=st.booleans(),
)


def _normal(columns: tuple[bytes, ...]) -> set[bytes]:
    families = {column for column in columns if b":" not in column}
    return {column for column in columns if b":" not in column or column.partition(b":")[0] not in families}


@given(gets)
def test_get_comes_back(get: Get) -> None:
    back = queries.get_from(decode(messages.GET, encode(messages.GET, queries.get_message(get))))
    assert set(back.columns) == _normal(get.columns)
    assert (back.row, back.max_versions, back.existence_only) == (get.row, get.max_versions, get.existence_only)
    assert (back.min_timestamp, back.max_timestamp) == (get.min_timestamp, get.max_timestamp)
    assert (back.filter is None) == (get.filter is None)


@given(gets)
def test_straight_get_says_what_the_table_says(get: Get) -> None:
    straight = calls.encode_get(b"region", get)
    request = {"region": names.region_message(b"region"), "get": queries.get_message(get)}
    assert decode(messages.GET_REQUEST, straight) == decode(messages.GET_REQUEST, encode(messages.GET_REQUEST, request))


@given(
    st.lists(any_cells, max_size=4),
    st.booleans(),
    st.sampled_from([None, True, False]),
    st.booleans(),
)
def test_straight_get_result_says_what_the_table_says(
    cells: list[Cell], is_stale: bool, exists: bool | None, with_cells: bool
) -> None:
    result = Result(b"r", cells, is_stale, exists=exists)
    message = encode(messages.GET_RESPONSE, {"result": queries.result_message(result, with_cells=with_cells)})
    data = message + (b"" if with_cells else encode_cells(b"r", cells))
    for _ in ("as a new one", "as one that is known"):
        assert calls.decode_get(b"r", framing.Response(1, data, 0, len(message))) == result


def test_heads_that_are_known_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[bytes, tuple[int, bool]] = {}
    monkeypatch.setattr(calls, "_heads", known)
    for count in range(calls._HEADS_MAX + 10):
        message = encode(messages.GET_RESPONSE, {"result": {"associated_cell_count": -count}})
        assert calls.decode_get(b"r", framing.Response(1, message, 0, len(message))) == Result(b"r", [])
    assert 0 < len(known) <= calls._HEADS_MAX


def test_result_of_many_cells() -> None:
    result = Result(b"r", [Cell(b"cf:%d" % number, 1, b"") for number in range(200)], True)
    message = encode(messages.GET_RESPONSE, {"result": queries.result_message(result, with_cells=False)})
    data = message + encode_cells(b"r", result.cells)
    assert calls.decode_get(b"r", framing.Response(1, data, 0, len(message))) == result


@pytest.mark.parametrize(
    "scan",
    [
        Scan(),
        Scan(b"a", b"z", include_start=False, include_stop=True, is_reversed=True, limit=7, caching=3, batch=2),
        Scan(columns=(b"cf:a", b"cf:b", b"d"), max_versions=3, min_timestamp=1, max_timestamp=9, is_raw=True),
        Scan(cache_blocks=False),
        Scan(filter=b"PrefixFilter('a')"),
    ],
)
def test_scan_comes_back(scan: Scan) -> None:
    message = encode(messages.SCAN, queries.scan_message(scan, max_result_bytes=100))
    assert queries.scan_from(decode(messages.SCAN, message), limit=scan.limit or 0, caching=scan.caching) == scan


@settings(deadline=None)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "cells_per_result": st.lists(st.integers(0, 1000), max_size=200),
            "scanner_id": st.integers(0, 2**64 - 1),
            "more_results": st.booleans(),
            "ttl": st.integers(0, 100000),
            "stale": st.booleans(),
            "more_results_in_region": st.booleans(),
            "heartbeat_message": st.booleans(),
            "mvcc_read_point": st.integers(0, 2**63),
            "cursor": st.fixed_dictionaries({"row": rows}),
            "partial_flag_per_result": st.lists(st.booleans(), max_size=200),
        },
    )
)
def test_straight_scan_answer_says_what_the_table_says(values: dict[str, Any]) -> None:
    data = encode(messages.SCAN_RESPONSE, values)
    answer = calls.decode_scan(data, 0, len(data))
    counts = values.get("cells_per_result", [])
    partials = values.get("partial_flag_per_result", [])
    assert answer.counts == counts
    assert answer.partials == partials + [False] * (len(counts) - len(partials))
    assert answer.scanner_id == values.get("scanner_id")
    assert answer.more_results == values.get("more_results")
    assert answer.more_in_region == values.get("more_results_in_region")
    assert answer.is_stale == values.get("stale", False)
    assert answer.is_heartbeat == values.get("heartbeat_message", False)
    assert answer.mvcc_read_point == values.get("mvcc_read_point", 0)
    assert answer.cursor_row == values.get("cursor", {}).get("row")


@pytest.mark.parametrize(
    "mutation",
    [
        Put(b"r", (Cell(b"cf:a", 7, b"v"), Cell(b"cf:", 2**63 - 1, b""))),
        Put(b"r", (Cell(b"cf:a", 7, b"v"),), Durability.SKIP_WAL),
        Delete(b"r"),
        Delete(b"r", timestamp=5),
        Delete(
            b"r",
            (
                Cell(b"cf:a", 7, b"", CellType.DELETE),
                Cell(b"cf:b", 2**63 - 1, b"", CellType.DELETE_COLUMN),
                Cell(b"cf", 2**63 - 1, b"", CellType.DELETE_FAMILY),
                Cell(b"d", 3, b"", CellType.DELETE_FAMILY_VERSION),
            ),
        ),
        Put(b"r", (Cell(b"cf:a", 7, b"v"),), ttl_ms=86_400_000),
        Put(b"r", (Cell(b"cf:a", 7, b"v"),), Durability.ASYNC_WAL, 1),
        Put(b"r", (Cell(b"cf:a", 7, b"v"),), cluster_ids=(UUID(int=1 << 127), UUID(int=5))),
        Put(b"r", (Cell(b"cf:a", 7, b"v"),), ttl_ms=1, cluster_ids=(UUID(int=1),)),
        Delete(b"r", cluster_ids=(UUID(int=1),)),
        Increment(b"r", ((b"cf:n", -5), (b"cf:m", 2**62)), nonce=2**63 + 1),
        Append(b"r", ((b"cf:a", b"tail"),), Durability.SYNC_WAL),
    ],
)
def test_mutation_comes_back(mutation: mutations.Simple) -> None:
    message, cells = mutations.mutation_message(mutation)
    wired = decode(messages.MUTATION, encode(messages.MUTATION, message))
    assert mutations.mutation_from(wired, cells, 0) == (mutation, len(cells))
    param, block = calls.encode_mutate(b"region", mutation, 9)
    request = decode(messages.MUTATE_REQUEST, param)
    assert mutations.mutation_from(request["mutation"], block, 0) == (mutation, len(block))
    assert request["region"]["value"] == b"region"


@given(
    st.lists(st.tuples(rows, st.lists(put_cells, min_size=1, max_size=4)), max_size=6),
    st.booleans(),
)
def test_rows_of_one_writer_are_as_if_each_had_its_own(
    of_rows: list[tuple[bytes, list[Cell]]], is_shared: bool
) -> None:
    """Also where the next row has other columns, or the same ones at other times; ``%`` is a byte like any other."""
    writer = PutWriter()
    for row, cells in of_rows:
        by_columns = PutCells(*(tuple(part) for part in list(zip(*cells, strict=True))[:3]))
        written = writer.cells(row, by_columns if is_shared else cells)
        assert written == encode_cells(row, cells)
        if is_shared:
            other = PutCells(by_columns.columns, by_columns.timestamps, by_columns.values[::-1])
            assert writer.cells(row + b"%", other) == encode_cells(row + b"%", other)


@pytest.mark.parametrize("cells", [PutCells((b"f" * 128 + b":a",), (1,), (b"",)), (Cell(b"f" * 128 + b":a", 1, b""),)])
def test_family_that_is_too_long_is_refused(cells: Any) -> None:
    with pytest.raises(ValueError, match="a family of 128 bytes"):
        PutWriter().cells(b"r", cells)


@pytest.mark.parametrize("cells", [PutCells((b"cf:a",), (1,), (b"",)), (Cell(b"cf:a", 1, b""),)])
def test_row_that_is_too_long_is_refused(cells: Any) -> None:
    with pytest.raises(ValueError, match="a row of 32768 bytes"):
        PutWriter().cells(b"r" * 32768, cells)


def test_mutation_of_a_java_client_has_its_cells_in_the_message() -> None:
    message = {
        "row": b"r",
        "mutate_type": messages.MUTATE_DELETE,
        "column_value": [
            {
                "family": b"cf",
                "qualifier_value": [
                    {"qualifier": b"a", "delete_type": messages.DELETE_MULTIPLE_VERSIONS},
                    {"delete_type": messages.DELETE_FAMILY, "timestamp": 4},
                ],
            }
        ],
    }
    mutation, _ = mutations.mutation_from(message, b"", 0)
    assert mutation == Delete(
        b"r",
        (
            Cell(b"cf:a", 2**63 - 1, b"", CellType.DELETE_COLUMN),
            Cell(b"cf", 4, b"", CellType.DELETE_FAMILY),
        ),
    )


def test_family_without_a_qualifier_is_deleted_as_a_family() -> None:
    message, cells = mutations.mutation_message(Delete(b"r", (Cell(b"cf", 5, b"", CellType.DELETE_COLUMN),)))
    delete, _ = mutations.mutation_from(message, cells, 0)
    assert isinstance(delete, Delete)
    assert delete.cells == (Cell(b"cf", 5, b"", CellType.DELETE_FAMILY),)


def test_cluster_ids_are_written_as_by_the_java_client() -> None:
    """Mutation.setClusterIds: an int, then the most and the least significant long of each id."""
    message, _ = mutations.mutation_message(Delete(b"r", cluster_ids=(UUID(int=(7 << 64) + 9),)))
    value = bytes.fromhex("00000001 0000000000000007 0000000000000009")
    assert message["attribute"] == [{"name": "_cs.id", "value": value}]


@pytest.mark.parametrize("value", ["", "0000", "ffffffff", "00000001", "00000001" + "00" * 17, "00000000" + "00" * 16])
def test_cluster_ids_that_are_cut_off_are_refused(value: str) -> None:
    """Read as "none", the change would be sent back to the cluster that it came from."""
    message = {
        "row": b"r",
        "mutate_type": messages.MUTATE_DELETE,
        "attribute": [{"name": "_cs.id", "value": bytes.fromhex(value)}],
    }
    with pytest.raises(ProtocolError, match=r"_cs\.id"):
        mutations.mutation_from(message, b"", 0)


def test_impossible_mutations_are_refused() -> None:
    with pytest.raises(Unsupported, match="64 bits"):
        mutations.mutation_message(Increment(b"r", ((b"cf:n", 2**63),)))
    with pytest.raises(Unsupported, match="timestamp"):
        mutations.mutation_message(Delete(b"r", (Cell(b"cf", 2**63 - 1, b"", CellType.DELETE_FAMILY_VERSION),)))
    message = {"row": b"other", "mutate_type": messages.MUTATE_PUT, "associated_cell_count": 1}
    with pytest.raises(ProtocolError, match="another row"):
        mutations.mutation_from(message, encode_cells(b"r", [Cell(b"cf:a", 1, b"")]), 0)


@pytest.mark.parametrize("op", list(CompareOp))
def test_check_comes_back(op: CompareOp) -> None:
    check = Check(b"r", b"cf:a", b"9", op)
    message = decode(messages.CONDITION, encode(messages.CONDITION, mutations.condition_message(check)))
    assert mutations.condition_from(message) == check


def test_check_compares_the_given_value_with_the_stored_one() -> None:
    """GREATER (5) with "9" against a stored "2" is true on the wire: the given value stands on the left."""
    message = mutations.condition_message(Check(b"r", b"cf:a", b"9", CompareOp.LESS))
    assert message["compare_type"] == 5
    assert message["comparator"]["serialized_comparator"] == bytes.fromhex("0a030a0139")


def test_check_for_absence() -> None:
    check = Check(b"r", b"cf:a", None)
    assert mutations.condition_from(mutations.condition_message(check)) == check
    with pytest.raises(Unsupported, match="absence"):
        mutations.condition_message(Check(b"r", b"cf:a", None, CompareOp.LESS))


def test_names_come_back() -> None:
    region = RegionInfo(b"ns:t", b"a", b"b", 17, 2, True, True)
    location = RegionLocation(region, ServerName("h", 1, 3), -1)
    message = decode(
        messages.REGION_LOCATION, encode(messages.REGION_LOCATION, names.region_location_message(location))
    )
    assert names.region_location_from(message) == location


def test_table_comes_back() -> None:
    family = FamilyDescriptor(
        b"cf", 3, 1, 60, "TRUE", "GZ", "ROWCOL", True, False, 1, (("DATA_BLOCK_ENCODING", "FAST_DIFF"),)
    )
    table = TableDescriptor(b"ns:t", (family, FamilyDescriptor(b"d")), 3, True, (("OWNER", "me"),))
    message = decode(
        admin_messages.TABLE_SCHEMA, encode(admin_messages.TABLE_SCHEMA, schemas.table_schema_message(table))
    )
    assert schemas.table_schema_from(message) == table


# -- filters -----------------------------------------------------------------------------------------------------------

TEXTS = [
    b"KeyOnlyFilter(false)",
    b"KeyOnlyFilter(true)",
    b"FirstKeyOnlyFilter()",
    b"PrefixFilter('it''s')",
    b"ColumnPrefixFilter('a')",
    b"MultipleColumnPrefixFilter('a', 'b')",
    b"ColumnCountGetFilter(3)",
    b"PageFilter(2)",
    b"ColumnPaginationFilter(3, 5)",
    b"InclusiveStopFilter('x')",
    b"TimestampsFilter(1, 5, 300)",
    b"RowFilter(<, 'binary:a')",
    b"FamilyFilter(<=, 'binaryprefix:a')",
    b"QualifierFilter(!=, 'regexstring:a.*')",
    b"QualifierFilter(!=, 'regexstringnocase:a.*')",
    b"ColumnRangeFilter('', true, '', false)",
    b"MultipleColumnPrefixFilter()",
    b"TimestampsFilter()",
    b"DependentColumnFilter('cf', 'q', false, <, 'substring:x')",
    b"ValueFilter(=, 'substring:abc')",
    b"ColumnRangeFilter('a', true, 'b', false)",
    b"SingleColumnValueFilter('cf', 'q', >=, 'binary:a', true, false)",
    b"SingleColumnValueExcludeFilter('cf', 'q', >, 'binary:a', false, true)",
    b"DependentColumnFilter('cf', 'q', true)",
    b"DependentColumnFilter('cf', 'q', true, =, 'binary:x')",
    b"ColumnValueFilter('cf', 'q', =, 'binary:x')",
    b"(PrefixFilter('a') AND PageFilter(1) AND (KeyOnlyFilter(true) OR SKIP ValueFilter(=, 'binary:')))",
    b"WHILE PrefixFilter('a')",
]


@pytest.mark.parametrize("text", TEXTS)
def test_filter_comes_back(text: bytes) -> None:
    message = decode(messages.FILTER, encode(messages.FILTER, filters.from_text(text)))
    assert filters.to_text(message) == text


def test_every_filter_of_the_language_can_be_sent_and_run() -> None:
    from metaclient_fake.storage.filters import FILTERS

    assert set(FILTERS) == set(SIGNATURES)
    assert set(filters._MESSAGES) == {*SIGNATURES, "FilterList", "SkipFilter", "WhileMatchFilter"}


def test_bad_filters_say_what_is_wrong() -> None:
    with pytest.raises(FilterSyntaxError, match="did you mean PrefixFilter"):
        filters.from_text(b"PrefxFilter('a')")
    with pytest.raises(FilterSyntaxError, match="takes 1"):
        filters.from_text(b"PageFilter()")
    with pytest.raises(FilterSyntaxError, match="distinct"):
        filters.from_text(b"MultipleColumnPrefixFilter('a', 'a')")
    with pytest.raises(Unsupported, match="FuzzyRowFilter"):
        filters.to_text({"name": "org.apache.hadoop.hbase.filter.FuzzyRowFilter"})


def test_text_that_is_no_utf8_is_sent_as_java_reads_it() -> None:
    message = filters.from_text(b"ValueFilter(=, 'substring:A\xff')")
    assert filters.to_text(message) == "ValueFilter(=, 'substring:a\ufffd')".encode()


@pytest.mark.parametrize(
    ("flags", "charset"), [(0, "UTF-8"), (2, "UTF-8"), (32 | 8, "UTF-8"), (32, "ISO-8859-1")], ids=str
)
def test_regular_expression_with_settings_that_the_language_lacks_is_not_changed_silently(
    flags: int, charset: str
) -> None:
    data = encode(filters._REGEX, {"pattern": "a", "pattern_flags": flags, "charset": charset, "engine": "JAVA"})
    comparator = {"name": filters.COMPARATORS[b"regexstring"], "serialized_comparator": data}
    message = filters._filter("RowFilter", {"compare_filter": {"compare_op": 2, "comparator": comparator}})
    with pytest.raises(Unsupported, match="has no name in the filter language"):
        filters.to_text(message)


@pytest.mark.parametrize("name", ["PrefixFilter", "InclusiveStopFilter"])
def test_filter_of_nothing_is_not_changed_silently(name: str) -> None:
    """Java's PrefixFilter(null) lets no row pass, unlike PrefixFilter('')."""
    with pytest.raises(Unsupported, match="without its"):
        filters.to_text(filters._filter(name, {}))


def test_filters_nested_without_end_are_refused() -> None:
    message: dict[str, Any] = filters.from_text(b"KeyOnlyFilter()")
    for _ in range(200):
        message = filters._filter("SkipFilter", {"filter": message})
    with pytest.raises(ProtocolError, match="deep"):
        filters.to_text(message)


# -- frames ------------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1), st.binary(max_size=50), st.binary(max_size=300), st.integers(0, 250))
def test_request_comes_back(call_id: int, param: bytes, cells: bytes, priority: int) -> None:
    frame = framing.request(call_id, b"Get", param, cells, priority=priority, timeout_ms=5000)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert framing.parse_request(frame[4:]) == framing.ReceivedRequest(
        call_id, "Get", param, cells, priority or None, 5000
    )


@given(st.integers(0, 2**32 - 1), st.binary(max_size=50), st.binary(max_size=300))
def test_response_comes_back(call_id: int, param: bytes, cells: bytes) -> None:
    answer = framing.parse_response(framing.response(call_id, param, cells)[4:])
    assert (answer.call_id, answer.param, answer.cells, answer.exception) == (call_id, param, cells, None)


def test_error_response_comes_back() -> None:
    frame = framing.error_response(7, "a.B", "a.B: text\n\tat x", do_not_retry=True, hostname="h", port=1)
    answer = framing.parse_response(frame[4:])
    assert answer.call_id == 7
    assert answer.exception == {
        "exception_class_name": "a.B",
        "stack_trace": "a.B: text\n\tat x",
        "hostname": "h",
        "port": 1,
        "do_not_retry": True,
    }


@given(st.lists(st.binary(max_size=30), max_size=6), st.integers(1, 7))
def test_frames_are_found_whatever_the_pieces(frames: list[bytes], step: int) -> None:
    stream = b"".join(framing.framed(frame) for frame in frames)
    reader = framing.FrameReader()
    found = [frame for at in range(0, len(stream), step) for frame in reader.feed(stream[at : at + step])]
    assert found == frames
    assert reader.buffered == 0


def test_oversized_frame_is_an_error_before_it_arrives() -> None:
    with pytest.raises(ProtocolError, match="limit"):
        list(framing.FrameReader(1000).feed(b"\x00\x00\x04\x00"))
    with pytest.raises(ProtocolError, match="limit"):
        list(framing.FrameReader().feed(b"\xff\xff\xff\xff"))


@settings(deadline=None)
@given(st.binary(max_size=80))
def test_garbage_frames_are_errors_or_frames(data: bytes) -> None:
    for parse in (framing.parse_request, framing.parse_response):
        with contextlib.suppress(ProtocolError):
            parse(data)


def test_connection_header_comes_back() -> None:
    header = framing.connection_header("ClientService", "me")
    parsed = framing.parse_connection_header(header[4:])
    assert int.from_bytes(header[:4], "big") == len(header) - 4
    assert parsed["service_name"] == "ClientService"
    assert parsed["user_info"] == {"effective_user": "me"}
    assert parsed["cell_block_codec_class"].endswith("KeyValueCodec")
    assert (parsed["version_info"]["version_major"], parsed["version_info"]["version_minor"]) == (2, 6)


@pytest.mark.parametrize("data", [b"", b"HBas\x00", b"XXXX\x00\x50", b"HBas\x01\x50", b"HBas\x00\x00"])
def test_bad_preamble_is_an_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        framing.parse_preamble(data)


def test_preambles() -> None:
    assert framing.parse_preamble(framing.preamble()).auth == framing.AUTH_SIMPLE
    assert framing.parse_preamble(b"Regist").special == framing.REGISTRY_PREAMBLE


def test_hand_written_reader_of_scan_responses_refuses_what_the_table_reader_refuses() -> None:
    """A field number 0, a field that ends behind the message, and a wire type that HBase never sends."""
    for broken in (b"\x00\x01", b"\x12\x05ab", b"\x0b"):
        with pytest.raises(ProtocolError, match="ScanResponse"):
            decode(messages.SCAN_RESPONSE, broken)
        with pytest.raises(ProtocolError, match="ScanResponse"):
            calls.decode_scan(broken, 0, len(broken))


def test_tag_of_a_field_is_what_encode_writes_before_its_value() -> None:
    for message in (messages.SCAN_REQUEST, messages.MUTATION, messages.REQUEST_HEADER):
        for name, field in message.by_name.items():
            if field.kind in ("unsigned", "signed") and not field.is_repeated:
                assert encode(message, {name: 1}) == message.tag(name) + b"\x01"


@pytest.mark.parametrize("piece_bytes", [1, 3, 4, 5, 7, 64])
def test_frames_are_whole_however_the_network_cuts_them(piece_bytes: int) -> None:
    frames = [b"", b"a", b"bcd", b"", b"e" * 40, b"f"]
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    reader = framing.FrameReader()
    found: list[bytes] = []
    for at in range(0, len(stream), piece_bytes):
        found += reader.feed(stream[at : at + piece_bytes])
        rest = stream[at + piece_bytes :]
        assert not rest or 0 < reader.missing <= len(rest)
    assert found == frames
    assert reader.buffered == 0


def test_long_frame_takes_its_length_in_memory_once() -> None:
    size, piece = 32 << 20, bytes(1 << 20)
    reader = framing.FrameReader()
    tracemalloc.start()
    try:
        found = list(reader.feed(size.to_bytes(4, "big")))
        for _ in range(size // len(piece)):
            found += reader.feed(piece)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [len(frame) for frame in found] == [size]
    assert peak < 1.5 * size  # the buffer is an eighth greater while it grows


def test_start_code_minus_one_of_java_is_not_read_as_a_large_number() -> None:
    """ServerName.start_code is a uint64 that Java reads as a signed long."""
    sent = encode(SERVER_NAME, {"host_name": "rs1", "port": 16020, "start_code": -1})
    assert sent.endswith(b"\xff" * 9 + b"\x01")
    assert names.server_from(decode(SERVER_NAME, sent)) == ServerName("rs1", 16020, -1)
