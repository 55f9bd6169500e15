"""Rows of hbase:meta: worked examples byte for byte, then what garbage and half-written rows must not do."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from metaclient import keys, metarow
from metaclient.metarow import DecodedMetaRow, MetaRegionServer
from metaclient.model import META_TABLE, RegionInfo, RegionLocation, RegionLocations, ServerName, TableState

DATA: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "meta_rows.json").read_text("utf-8"))
ROW = DATA["row"].encode()
COLUMNS = {name.encode(): bytes.fromhex(value) for name, value in DATA["columns"].items()}
REGION = RegionInfo(b"t1", b"row-050", b"row-100", 1600000000000)
SERVER = ServerName.parse(DATA["server"])


# ---- worked examples: values


@pytest.mark.parametrize("case", DATA["region_infos"])
def test_region_info_bytes(case: dict[str, Any]) -> None:
    table, start, end = case["table"].encode(), case["start"].encode(), case["end"].encode()
    info = RegionInfo(table, start, end, case["id"], 0, case["offline"], case["split"])
    data = bytes.fromhex(case["bytes"])
    assert metarow.encode_region_info(info) == data
    assert metarow.decode_region_info(data) == info
    assert len(data) == case["length"]


@pytest.mark.parametrize(("value", "expected"), DATA["longs"])
def test_start_codes_and_sequence_numbers_are_eight_bytes(value: int, expected: str) -> None:
    columns = metarow.location_columns(0, ServerName("rs1", 16020, value), value)
    assert columns[b"info:serverstartcode"].hex() == columns[b"info:seqnumDuringOpen"].hex() == expected


@pytest.mark.parametrize(("name", "expected"), DATA["table_states"])
def test_table_state_has_no_magic(name: str, expected: str) -> None:
    assert metarow.encode_table_state(TableState[name]).hex() == expected
    assert metarow.decode_table_state(bytes.fromhex(expected)) is TableState[name]


@pytest.mark.parametrize("data", ["", "08", "0804", "1001", "50425546 0800", "ff", "08ffffffffffffffffff01"])
def test_unknown_table_state_is_none(data: str) -> None:
    assert metarow.decode_table_state(bytes.fromhex(data)) is None


def test_meta_region_server_bytes() -> None:
    case = DATA["meta_region_server"]
    value = MetaRegionServer(ServerName.parse(case["server"]))
    writer, data = bytes.fromhex(case["writer"]), bytes.fromhex(case["bytes"])
    assert metarow.encode_meta_region_server(value, writer=writer) == data
    assert metarow.decode_meta_region_server(data) == value


@pytest.mark.parametrize("writer", [None, b"", b"7@host", bytes(300)])
def test_meta_region_server_with_an_id_of_any_length_or_none(writer: bytes | None) -> None:
    value = MetaRegionServer(SERVER, "OPENING", 1)
    data = metarow.encode_meta_region_server(value, writer=writer or b"")
    assert metarow.decode_meta_region_server(data[5:] if writer is None else data) == value


def test_meta_region_server_defaults_are_those_of_java() -> None:
    found = metarow.decode_meta_region_server(bytes.fromhex("50425546 0a060a01681094 7d".replace(" ", "")))
    assert found == MetaRegionServer(ServerName("h", 16020, -1), "OPEN", 0)


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        ("", "no PBUF at byte 0"),
        ("ff", "no PBUF at byte 5"),
        ("ff00000001 aa 504255", "no PBUF at byte 6"),
        ("ffffffffff 50425546", "no PBUF at byte 4294967300"),
        ("50425546", "without its field 'server'"),
        ("50425546 0a020a00", "server :0"),
        ("50425546 0a030a0168", "server h:0"),
        ("50425546 0a060a01", "cut short"),
    ],
)
def test_broken_meta_region_server_is_refused_with_its_fault(data: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        metarow.decode_meta_region_server(bytes.fromhex(data))


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        ("", "no PBUF at byte 0"),
        ("50425546", "without its field 'region_id', up to byte 4"),
        ("50425546 0801", "without its field 'table_name', up to byte 6"),
        ("50425546 0801 1200", "TableName without its field 'namespace'"),
        ("50425546 0801 1203 0a0161", "TableName without its field 'qualifier'"),
        ("50425546 0801 1206 0a0161 12012c", "has ','"),
        ("50425546 0801 1206 0a0161 12013a", "nothing after its namespace"),
        ("50425546 0801 1205 0a00 120161", "empty namespace"),
        ("50425546 0801 1206 0a0161 120162 38808004", "replica_id 65536"),
        ("50425546 0801 1206 0a0161 120162 38ffffffffffffffffff01", "replica_id -1"),
        ("50425546 08ffffffffffffffffffff01", "a varint is cut short or too long, at byte 5"),
        ("50425546 0801 0b", "field of wire type 3"),
        ("50425546 0801 0f", "field of wire type 7"),
        ("50425546 0801 0d0000", "cut short"),
        ("50425546 0801 09000000", "cut short"),
        ("50425546 0801 12", "cut short"),
        ("50425546 0801 12ffffffffffffffff7f", "cut short"),
        ("50425546 0001", "a field with the number 0"),
        ("50425546 0200", "a field with the number 0"),
    ],
)
def test_broken_region_info_is_refused_with_its_fault(data: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        metarow.decode_region_info(bytes.fromhex(data))


@pytest.mark.parametrize(
    ("varint", "region_id"),
    [
        ("ffffffffffffffffff01", -1),
        ("ffffffffffffffffff7f", -1),  # bits beyond 64 are dropped, as Java does
        ("80808080808080808001", -(2**63)),
        ("ffffffffffffffff7f", 2**63 - 1),
    ],
)
def test_region_id_is_64_bits_with_a_sign(varint: str, region_id: int) -> None:
    data = bytes.fromhex("5042554608" + varint + "12060a0161120162")
    assert metarow.decode_region_info(data) == RegionInfo(b"a:b", region_id=region_id)


# ---- worked examples: rows


def changed(change: dict[str, str | None]) -> dict[bytes, bytes]:
    columns = dict(COLUMNS)
    for name, value in change.items():
        columns.pop(name.encode(), None)
        if value is not None:
            columns[name.encode()] = bytes.fromhex(value)
    return columns


@pytest.mark.parametrize("case", DATA["cases"], ids=lambda case: case["name"])
def test_meta_row_parse(case: dict[str, Any]) -> None:
    """``placed``: the sequence number of each replica, null for a hole; null in all: no location."""
    decoded = metarow.decode(ROW, changed(case["change"]))
    assert decoded.fault == case["fault"]
    assert decoded.state == "OPEN"
    if case["placed"] is None:
        assert decoded.locations is None
        return
    places = [
        None if seqnum is None else RegionLocation(REGION.replica(replica_id), SERVER, seqnum)
        for replica_id, seqnum in enumerate(case["placed"])
    ]
    assert decoded.locations == RegionLocations(REGION, tuple(places))
    for place in decoded.locations.placed():
        assert place.region_name == place.region.name
        assert not place.is_hint


def test_region_columns_write_the_worked_example() -> None:
    locations = RegionLocations(REGION, (RegionLocation(REGION, SERVER, 2),))
    assert metarow.region_columns(locations) == COLUMNS
    assert REGION.name == ROW


def test_unplaced_replicas_are_written_as_empty_values() -> None:
    columns = metarow.region_columns(RegionLocations(REGION, (None, None)), "CLOSED")
    assert columns == {
        b"info:regioninfo": COLUMNS[b"info:regioninfo"],
        b"info:state": b"CLOSED",
        b"info:server_0001": b"",
        b"info:serverstartcode_0001": b"",
        b"info:seqnumDuringOpen_0001": b"",
    }


def test_state_is_written_beside_the_replica() -> None:
    assert metarow.location_columns(10, None, 5, "CLOSED") == {
        b"info:server_000A": b"",
        b"info:serverstartcode_000A": b"",
        b"info:seqnumDuringOpen_000A": b"",
        b"info:state_000A": b"CLOSED",
    }


def test_split_parent_keeps_its_row_and_names_its_daughters() -> None:
    parent = RegionInfo(b"t1", region_id=1600000000000, is_offline=True, is_split_parent=True)
    left, right = RegionInfo(b"t1", b"", b"m", 1600000000001), RegionInfo(b"t1", b"m", b"", 1600000000001)
    columns = metarow.region_columns(RegionLocations(parent, (RegionLocation(parent, SERVER, 2),)), "CLOSED")
    columns[b"info:splitB"] = metarow.encode_region_info(right)
    columns[b"info:splitA"] = metarow.encode_region_info(left)
    decoded = metarow.decode(parent.name, columns)
    assert decoded.split_daughters == (left, right)
    assert decoded.merge_parents == ()
    assert decoded.locations is not None
    assert decoded.locations.region.is_split_parent
    assert (decoded.state, decoded.fault) == ("CLOSED", None)


def test_merged_region_names_its_parents_in_order() -> None:
    parents = [RegionInfo(b"t1", start, end, 5) for start, end in ((b"", b"g"), (b"g", b"m"), (b"m", b""))]
    merged = RegionInfo(b"t1", region_id=6)
    columns = metarow.region_columns(RegionLocations(merged, (RegionLocation(merged, SERVER, 2),)))
    for number in (2, 0, 1):
        columns[b"info:merge%04d" % number] = metarow.encode_region_info(parents[number])
    decoded = metarow.decode(merged.name, columns)
    assert decoded.merge_parents == tuple(parents)
    assert decoded.split_daughters == ()


def test_broken_parent_is_left_out_and_named() -> None:
    parent = RegionInfo(b"t1", b"row-050", b"row-070", 5)
    columns = {**COLUMNS, b"info:merge0000": b"PBU", b"info:merge0001": metarow.encode_region_info(parent)}
    decoded = metarow.decode(ROW, columns)
    assert decoded.merge_parents == (parent,)
    assert decoded.fault == "info:merge0000: no PBUF at byte 0"


@pytest.mark.parametrize(("value", "state"), [(b"", None), (b"SPLITTING", "SPLITTING"), (b"\xffX", "\\xffX")])
def test_state_is_text_whatever_it_was(value: bytes, state: str | None) -> None:
    assert metarow.decode(ROW, {**COLUMNS, b"info:state": value}).state == state


def test_row_of_a_table_state_is_no_region() -> None:
    decoded = metarow.decode(b"t1", {b"table:state": b"\x08\x00"})
    assert decoded == DecodedMetaRow(None, "no info:regioninfo", None, (), ())
    assert metarow.decode(b"t1", {}).fault == "no info:regioninfo"


def test_regions_share_the_objects_of_their_server_and_table() -> None:
    """A million cached regions of one table hold one table name and one object for each server."""
    found = []
    for start in (b"a", b"b"):
        region = RegionInfo(b"ns1:orders", start, start + b"\xff", 7)
        columns = metarow.region_columns(RegionLocations(region, (RegionLocation(region, SERVER, 2),)))
        locations = metarow.decode(region.name, columns).locations
        assert locations is not None
        assert locations.primary is not None
        found.append(locations.primary)
    assert found[0].server is found[1].server
    assert found[0].region.table is found[1].region.table


def test_meta_itself_has_the_old_form_of_name() -> None:
    region = RegionInfo(META_TABLE, region_id=1)
    places = (RegionLocation(region, SERVER, 2), RegionLocation(region.replica(1), SERVER, 2))
    decoded = metarow.decode(b"hbase:meta,,1", metarow.region_columns(RegionLocations(region, places)))
    assert decoded.locations is not None
    assert decoded.fault is None
    assert [place.region_name for place in decoded.locations.placed()] == [b"hbase:meta,,1", b"hbase:meta,,1_0001"]


def test_garbage_replica_id_costs_holes_and_no_time() -> None:
    decoded = metarow.decode(ROW, {**COLUMNS, b"info:server_FFFF": b"", b"info:server_10000": b""})
    assert decoded.locations is not None
    assert len(decoded.locations.replicas) == 0x10000
    assert decoded.fault is not None
    assert decoded.fault.endswith("and 65532 more")


# ---- properties

TABLES = st.sampled_from([b"t", b"t1", b"ns1:orders", b"hbase:namespace", "tä".encode()])
BOUNDS = st.tuples(st.binary(max_size=12), st.binary(max_size=12)).filter(
    lambda b: not keys.ends_before_or_at(b[1], b[0])
)
LONGS = st.integers(-(2**63), 2**63 - 1)
SERVERS = st.builds(
    ServerName, st.from_regex(r"[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True), st.integers(1, 65535), LONGS
)
REGIONS = st.builds(
    lambda table, bounds, region_id, offline, split: RegionInfo(
        table, bounds[0], bounds[1], region_id, 0, offline, split
    ),
    TABLES,
    BOUNDS,
    LONGS,
    st.booleans(),
    st.booleans(),
)


@st.composite
def located_regions(draw: st.DrawFn) -> RegionLocations:
    region = draw(REGIONS)
    servers = draw(st.lists(st.none() | SERVERS, min_size=1, max_size=20))
    seqnums = draw(st.lists(st.integers(-1, 2**63 - 1), min_size=len(servers), max_size=len(servers)))
    places = (
        None if server is None else RegionLocation(region.replica(replica_id), server, seqnum)
        for replica_id, (server, seqnum) in enumerate(zip(servers, seqnums, strict=True))
    )
    return RegionLocations(region, tuple(places))


@st.composite
def written_rows(draw: st.DrawFn) -> tuple[bytes, dict[bytes, bytes]]:
    locations = draw(located_regions())
    columns = metarow.region_columns(locations)
    for name in draw(st.sets(st.sampled_from([b"info:splitA", b"info:splitB", b"info:merge0000", b"info:merge0001"]))):
        columns[name] = metarow.encode_region_info(draw(REGIONS))
    return locations.region.name, columns


def check_sane(row: bytes, columns: dict[bytes, bytes], decoded: DecodedMetaRow) -> None:
    """What must hold for every decoded row, whatever it was made of."""
    if decoded.locations is None:
        assert decoded.fault
        return
    region, replicas = decoded.locations.region, decoded.locations.replicas
    assert region.replica_id == 0
    assert region.name == row
    assert replicas
    for replica_id, place in enumerate(replicas):
        if place is None:
            assert decoded.fault
            continue
        assert place.region == region.replica(replica_id)
        assert place.region_name == place.region.name
        assert 0 < place.server.port < 65536
        names = list(metarow.location_columns(replica_id, None, None))
        assert place.server.address.encode() == b"%b:%d" % (
            place.server.host.encode(),
            int(columns[names[0]].rpartition(b":")[2]),
        )


@given(REGIONS, st.integers(0, keys.REPLICA_ID_MAX))
def test_region_info_round_trip(region: RegionInfo, replica_id: int) -> None:
    info = region.replica(replica_id)
    assert metarow.decode_region_info(metarow.encode_region_info(info)) == info


@given(located_regions())
def test_row_round_trip(locations: RegionLocations) -> None:
    columns = metarow.region_columns(locations)
    decoded = metarow.decode(locations.region.name, columns)
    assert decoded.locations == locations
    assert (decoded.fault is None) == (None not in locations.replicas)
    check_sane(locations.region.name, columns, decoded)


@given(SERVERS, st.binary(max_size=40), st.integers(0, 15), st.integers(0, 2**32 - 1))
def test_meta_region_server_round_trip(server: ServerName, writer: bytes, state: int, rpc_version: int) -> None:
    value = MetaRegionServer(server, metarow._STATES[state], rpc_version)
    assert metarow.decode_meta_region_server(metarow.encode_meta_region_server(value, writer=writer)) == value


COLUMN_NAMES = st.one_of(
    st.sampled_from(sorted(COLUMNS)),
    st.sampled_from([b"info:server_0001", b"info:serverstartcode_0001", b"info:seqnumDuringOpen_0001", b"info:splitA"]),
    st.binary(max_size=12).map(lambda name: b"info:" + name),
    st.binary(max_size=12),
)


@given(st.binary(max_size=60), st.dictionaries(COLUMN_NAMES, st.binary(max_size=60), max_size=12))
@example(b"", {b"": b""})
@example(b"t", {b"info:state": b"\xff\x00"})
def test_random_bytes_never_raise(row: bytes, columns: dict[bytes, bytes]) -> None:
    check_sane(row, columns, metarow.decode(row, columns))


@given(st.binary(max_size=80))
@example(b"\x0a")
def test_random_protobuf_raises_value_error_only(data: bytes) -> None:
    for decode in (metarow.decode_region_info, metarow.decode_meta_region_server):
        for value in (data, b"PBUF" + data):
            with contextlib.suppress(ValueError):
                decode(value)
    metarow.decode_table_state(data)


@given(written_rows(), st.data())
def test_torn_row_gives_what_it_has(written: tuple[bytes, dict[bytes, bytes]], data: st.DataObject) -> None:
    """A replica of hbase:meta may show a row with any part of its columns."""
    row, columns = written
    left = {name: columns[name] for name in data.draw(st.sets(st.sampled_from(sorted(columns))), label="left")}
    whole, torn = metarow.decode(row, columns), metarow.decode(row, left)
    check_sane(row, left, torn)
    assert (torn.locations is None) == (b"info:regioninfo" not in left)
    if torn.locations is None:
        return
    assert whole.locations is not None
    for replica_id, place in enumerate(torn.locations.replicas):
        expected = whole.locations.at(replica_id)
        if place is not None:
            assert expected is not None
            assert place.server == expected.server
            assert place.seqnum in (expected.seqnum, -1)
        elif expected is not None:
            needed = list(metarow.location_columns(replica_id, None, None))[:2]
            assert not all(name in left for name in needed)


@given(written_rows(), st.data())
def test_truncated_value_makes_a_fault_or_less_never_more(
    written: tuple[bytes, dict[bytes, bytes]], data: st.DataObject
) -> None:
    row, columns = written
    name = data.draw(st.sampled_from(sorted(columns)), label="column")
    cut = data.draw(st.integers(0, len(columns[name])), label="cut")
    broken = {**columns, name: columns[name][:cut]}
    check_sane(row, broken, metarow.decode(row, broken))


@given(written_rows(), st.data())
def test_flipped_bit_never_raises_and_never_moves_a_region(
    written: tuple[bytes, dict[bytes, bytes]], data: st.DataObject
) -> None:
    row, columns = written
    name = data.draw(st.sampled_from(sorted(column for column in columns if columns[column])), label="column")
    value = bytearray(columns[name])
    bit = data.draw(st.integers(0, len(value) * 8 - 1), label="bit")
    value[bit // 8] ^= 1 << bit % 8
    broken = {**columns, name: bytes(value)}
    decoded, whole = metarow.decode(row, broken), metarow.decode(row, columns)
    check_sane(row, broken, decoded)
    if decoded.locations is not None and whole.locations is not None:
        before, after = whole.locations.region, decoded.locations.region
        assert (before.table, before.start_key, before.region_id) == (after.table, after.start_key, after.region_id)


@given(written_rows(), st.data())
def test_flipped_bit_in_the_row_key_gives_no_location(
    written: tuple[bytes, dict[bytes, bytes]], data: st.DataObject
) -> None:
    row, columns = written
    bit = data.draw(st.integers(0, len(row) * 8 - 1), label="bit")
    wrong = bytearray(row)
    wrong[bit // 8] ^= 1 << bit % 8
    decoded = metarow.decode(bytes(wrong), columns)
    assert decoded.locations is None
    assert decoded.fault is not None
    assert "row key is not" in decoded.fault


def test_row_that_has_changed_is_not_answered_as_it_was_before() -> None:
    """Rows are decoded once per content; a move changes the server, the start code and the sequence number."""
    here, there = ServerName("rs1", 16020, 1), ServerName("rs2", 16020, 2)

    def decoded(server: ServerName, seqnum: int) -> RegionLocation | None:
        columns = metarow.region_columns(RegionLocations(REGION, (RegionLocation(REGION, server, seqnum),)))
        locations = metarow.decode(REGION.name, columns).locations
        return None if locations is None else locations.primary

    assert decoded(here, 1) is decoded(here, 1)
    for server, seqnum in ((there, 2), (here, 3), (here, 1)):
        place = decoded(server, seqnum)
        assert place is not None
        assert (place.server, place.seqnum) == (server, seqnum)


def test_same_values_in_other_columns_are_another_row() -> None:
    swapped = dict(zip(reversed(tuple(COLUMNS)), COLUMNS.values(), strict=True))
    assert metarow.decode(ROW, COLUMNS).fault is None
    assert metarow.decode(ROW, swapped) != metarow.decode(ROW, COLUMNS)
