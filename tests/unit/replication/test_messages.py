"""Log entries and peers as bytes: recorded bytes of HBase 2.6.1, and what is refused."""

import copy
import pickle
import uuid
from typing import Any

import pytest

from metaclient.model import Cell, CellType, ServerName
from metaclient.protobuf import ProtocolError, decode, encode
from metaclient.replication_peers import Peer, PeerConfig, PeerState, SinkLoad, SourceLoad
from metaclient.wire.rpc import replication_messages as m
from metaclient.wire.rpc import replication_peers as peers
from metaclient.wire.rpc.cellblock import encode_cells
from metaclient.wire.rpc.replication import (
    MissingCells,
    Scope,
    ShippedEntry,
    WalKey,
    decode_replicate,
    encode_replicate,
)

CLUSTER = uuid.UUID("c9a4f3e2-1b5d-4c6e-8f70-0123456789ab")
OTHER = uuid.UUID("00000000-0000-0001-8000-000000000002")
REGION = "0123456789abcdef0123456789abcdef"
NAMESPACE_DIR = "file:/tmp/hbase-cluster-with-a-name1/data"
ARCHIVE_DIR = "file:/tmp/hbase-cluster-with-a-name1/archive/data"

# The call that a region server of HBase 2.6.1 sent for one put of row a0, column cf:q, in a table with the families cf
# (scope 1) and s2 (scope 2). The region, the cluster id and the two folders are replaced by others of the same length.
RECORDED_PARAM = bytes.fromhex(
    "0a5a"
    "0a56"
    f"0a20{REGION.encode().hex()} 120174 1804 2083acc7de9e34"
    "32060a0263661001 32060a0273321002"
    "4216 08ab939eabb4a480b88f01 10ee98f5daa1fcbcd2c901"
    "1801"
    f"1200 1a29{NAMESPACE_DIR.encode().hex()} 2231{ARCHIVE_DIR.encode().hex()}"
)
RECORDED_BLOCK = bytes.fromhex(
    f"00000024 00000011 0000000b 0002 6130 02 6366 71 000001a1ebd1d603 04 {b'before-peer'.hex()}"
)
RECORDED = ShippedEntry(
    WalKey(REGION, b"t", 4, 0x1A1EBD1D603, ((b"cf", Scope.GLOBAL), (b"s2", Scope.SERIAL)), (CLUSTER,)),
    ((b"a0", Cell(b"cf:q", 0x1A1EBD1D603, b"before-peer")),),
)


def _shipped(sequence_id: int = 1, *cells: tuple[bytes, Cell], **key: Any) -> ShippedEntry:
    return ShippedEntry(WalKey(REGION, b"t", sequence_id, 1000)._replace(**key), cells)


def test_the_recorded_call_of_a_source_is_decoded_and_encoded_to_the_same_bytes() -> None:
    (entry,) = decode_replicate(RECORDED_PARAM, RECORDED_BLOCK)

    assert entry == RECORDED
    assert len(RECORDED_PARAM) == 188
    assert len(RECORDED_BLOCK) == 40
    encoded = encode_replicate([entry], namespace_dir=NAMESPACE_DIR, archive_dir=ARCHIVE_DIR)
    assert encoded == (RECORDED_PARAM, RECORDED_BLOCK)


def test_cells_of_many_rows_and_types_stay_with_their_entries_in_order() -> None:
    entries = [
        _shipped(5, (b"b", Cell(b"cf:q", 7, b"v")), (b"a", Cell(b"cf:", 8, b"", CellType.DELETE_FAMILY))),
        _shipped(6, nonce=(2**64 - 1, 9)),
        _shipped(2**40, (b"b", Cell(b"cf:q", 7, b"", CellType.DELETE_COLUMN)), cluster_ids=(OTHER, CLUSTER)),
    ]

    assert decode_replicate(*encode_replicate(entries)) == entries


@pytest.mark.parametrize("repeated", [1, 3])
def test_a_key_that_begins_and_ends_like_an_earlier_one_is_not_taken_for_it(repeated: int) -> None:
    """The parts of a key that many keys share are decoded once: other fields must not hide behind them."""
    keys = [
        WalKey(REGION, b"t", 1, 2, ((b"cf", 1),), (CLUSTER,)),
        WalKey(REGION, b"t", 2**63, 2**40, ((b"cf", 1),), (CLUSTER,)),
        WalKey(REGION, b"t", 3, 2, ((b"cf", 1),), (CLUSTER,), (7, 8)),
        WalKey(REGION, b"t", 4, 2, (), (CLUSTER, OTHER)),
        WalKey(REGION, b"u" * 200, 5, 2),
        WalKey(REGION[::-1], b"t", 6, 2),
    ] * repeated

    entries = [ShippedEntry(key, ()) for key in keys]

    assert decode_replicate(*encode_replicate(entries)) == entries


def test_fields_of_a_key_in_another_order_are_found() -> None:
    fields = {
        "region": f"0a20{REGION.encode().hex()}",
        "table": "120174",
        "sequence": "1804",
        "time": "2005",
        "nonce": "5003",
        "later": "6206 0a0161 120162",  # extended_attributes
        "table again": "120175",
    }
    for order in (("time", "sequence", "table", "region"), (*fields, "nonce"), ("nonce", *fields)):
        key = bytes.fromhex("".join(fields[name] for name in order))
        for _ in range(2):
            (entry,) = decode_replicate(bytes([0x0A, len(key) + 2, 0x0A, len(key)]) + key, b"")
            assert (entry.key.region, entry.key.sequence_id, entry.key.write_time_ms) == (REGION, 4, 5)
            assert entry.key.table == (b"u" if "table again" in order else b"t")
            assert entry.key.nonce == ((0, 3) if "nonce" in order else None)


def test_a_field_that_comes_twice_does_not_change_later_keys() -> None:
    """The bytes after the second write time are empty, as in a key without scopes: they must not stand for this one."""
    begin = f"0a20{b'twice'.ljust(32, b'0').hex()} 120174 1804 2005"
    scopes = []
    for fields in (f"{begin} 32060a0263661001 2006", begin, begin):
        key = bytes.fromhex(fields)
        (entry,) = decode_replicate(bytes([0x0A, len(key) + 2, 0x0A, len(key)]) + key, b"")
        scopes.append((entry.key.write_time_ms, entry.key.scopes))
    assert scopes == [(6, ((b"cf", 1),)), (5, ()), (5, ())]


def test_tags_after_a_value_do_not_shift_the_next_cell() -> None:
    param, block = encode_replicate([_shipped(1, (b"r", Cell(b"cf:q", 7, b"v")), (b"s", Cell(b"cf:q", 7, b"w")))])
    first = encode_cells(b"r", [Cell(b"cf:q", 7, b"v")])
    tags = bytes.fromhex("0004") + b"\x00\x02\x08x"
    tagged = (len(first) - 4 + len(tags)).to_bytes(4, "big") + first[4:] + tags

    (entry,) = decode_replicate(param, tagged + block[len(first) :])

    assert [row for row, _ in entry.cells] == [b"r", b"s"]


@pytest.mark.parametrize(
    ("counts", "cells", "text"),
    [
        ((3,), 1, "Expected=3, index=1"),
        ((1, 2**31), 2, f"Expected={2**31}, index=1"),
        ((1,), 0, 'Cannot invoke "org.apache.hadoop.hbase.CellScanner.advance()" because "cells" is null'),
    ],
)
def test_a_count_beyond_the_block_is_refused_in_hbases_words(counts: tuple[int, ...], cells: int, text: str) -> None:
    key = encode_replicate([_shipped()])[0][2:]
    key = key[: 2 + key[1]]  # the key of the entry, without its count
    param = b""
    for count in counts:
        counted = key + b"\x18" + encode(m.POSITION, {"position": count})[1:]
        param += b"\x0a" + bytes([len(counted)]) + counted

    with pytest.raises(MissingCells) as raised:
        decode_replicate(param, encode_cells(b"r", [Cell(b"cf:q", 7, b"v")] * cells))

    assert str(raised.value) == text


@pytest.mark.parametrize(
    ("param", "block"),
    [
        (RECORDED_PARAM, RECORDED_BLOCK * 2),  # a cell of no entry
        (RECORDED_PARAM, RECORDED_BLOCK[:-1]),
        (RECORDED_PARAM[:40], RECORDED_BLOCK),
        (bytes.fromhex("0a021801"), RECORDED_BLOCK),  # no key
        (bytes.fromhex("0a040a021804"), b""),  # a key without its region
        (RECORDED_PARAM.replace(bytes.fromhex("32060a0263661001"), bytes.fromhex("32060a0463661001")), RECORDED_BLOCK),
    ],
)
def test_bytes_that_are_no_call_are_refused_and_apply_nothing(param: bytes, block: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_replicate(param, block)


CONFIGS = (
    PeerConfig(cluster_key="zk:2181:/hbase"),
    PeerConfig(
        cluster_key="zk1,zk2:2181:/west",
        endpoint="a.B",
        replicate_all=False,
        tables={b"t": (), b"ns:u": (b"cf", b"d")},
        namespaces=frozenset({b"n1", b"n2"}),
        bandwidth=5_000_000,
        serial=True,
        configuration={"a": "b"},
        peer_data={b"x": b"y"},
        remote_wal_dir="/remote",
    ),
    PeerConfig(exclude_tables={b"t": (b"cf",)}, exclude_namespaces=frozenset({b"ns"})),
)


def test_the_znode_of_a_peer_has_the_recorded_bytes() -> None:
    config = PeerConfig(cluster_key="127.0.0.1:25246:/cdc", replicate_all=False, tables={b"t": ()})
    text = b"127.0.0.1:25246:/cdc".hex()
    recorded = b"PBUF" + bytes.fromhex(f"0a14{text} 2a0e0a0c0a07{b'default'.hex()}120174 3800 4000 5800")

    assert peers.config_node(config) == recorded
    assert peers.config_from_node(recorded) == config


@pytest.mark.parametrize("config", CONFIGS)
def test_a_peer_survives_the_znode_the_call_pickle_and_copy(config: PeerConfig) -> None:
    peer = Peer("1", PeerState.DISABLED, config)

    assert peers.config_from_node(peers.config_node(config)) == config
    assert peers.peer_from(decode(m.PEER_DESCRIPTION, encode(m.PEER_DESCRIPTION, peers.peer_message(peer)))) == peer
    assert pickle.loads(pickle.dumps(peer)) == copy.deepcopy(peer) == peer
    assert hash(pickle.loads(pickle.dumps(peer))) == hash(peer)


def test_a_peer_config_does_not_follow_the_dict_it_was_made_of() -> None:
    tables = {b"t": [b"cf"]}
    config = PeerConfig(tables=tables)  # type: ignore[arg-type]  # lists are taken, too

    tables[b"u"] = []

    assert config.tables == {b"t": (b"cf",)}
    with pytest.raises(TypeError):
        config.tables[b"u"] = ()  # type: ignore[index]  # a view that refuses changes


def test_a_missing_replicate_all_means_true() -> None:
    assert peers.config_from(decode(m.PEER, b"")).replicate_all


def test_states_and_positions_have_the_recorded_bytes() -> None:
    assert [peers.state_node(state) for state in PeerState] == [b"PBUF\x08\x00", b"PBUF\x08\x01"]
    assert peers.state_from_node(b"\xff\x00\x00\x00\x03abcPBUF\x08\x01") is PeerState.DISABLED
    assert peers.position_from_node(peers.position_node(2**40)) == 2**40
    assert peers.position_from_node(b"") == 0


@pytest.mark.parametrize("data", [b"", b"PBU", b"08", b"\xff", b"\xff\xff\xff\xff\xffPBUF\x08\x00", b"PBUF\x08\x07"])
def test_a_znode_of_another_writer_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        peers.state_from_node(data)


def test_loads_survive_their_messages() -> None:
    server = ServerName("rs1", 16020, 5)
    source = SourceLoad(
        peer_id="1",
        server=server,
        queue_id="1-rs0,16020,4",
        age_of_last_shipped_ms=3,
        log_queue=2,
        last_shipped_ms=1_700_000_000_000,
        lag_ms=9,
        next_to_replicate_ms=7,
        is_recovered=True,
        is_running=True,
        has_edits_since_restart=True,
        edits_read=5,
        edits_shipped=4,
    )
    sink = SinkLoad(age_of_last_applied_ms=1, last_applied_ms=2, started_ms=3, edits_applied=4)

    sent = encode(m.SOURCE_LOAD, peers.source_load_message(source))
    assert peers.source_load_from(decode(m.SOURCE_LOAD, sent), server) == source
    assert peers.sink_load_from(decode(m.SINK_LOAD, encode(m.SINK_LOAD, peers.sink_load_message(sink)))) == sink
