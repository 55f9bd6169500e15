"""Peers of a real HBase, its refusals word by word, and what its region servers make of ``ReplicateWALEntry``."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator

import pytest

from metaclient import Connection, PeerConfig, PeerState, Replication, Table
from metaclient.errors import BackendFault, Disposition, MetaClientError, RequestRefused, TableNotFound
from metaclient.model import Cell, CellType, ServerName
from metaclient.replication_peers import Peer
from metaclient.wire.rpc.replication import ShippedEntry, WalKey, encode_replicate
from metaclient_local_hbase import LocalHBase
from metaclient_native import NativeBackend
from metaclient_native.admin import ADMIN_SERVICE, wait_for
from metaclient_native.request import Request, ServiceAddress
from metaclient_native.scanners import decode_nothing

#: Generous: a busy machine is not a fault.
WAIT_S = 120.0
PEER = "metaclient_live"
#: HBase 2.6 has this peer for region replicas, from its start on; 3.0 has none (HBASE-26233).
OF_HBASE = "region_replica_replication"
CLUSTER = uuid.UUID("c9a4f3e2-1b5d-4c6e-8f70-0123456789ab")


@pytest.fixture
def key(hbase: LocalHBase) -> str:
    """The key of a cluster that does not exist: another parent in the same ZooKeeper. HBase accepts it."""
    return f"{hbase.zookeeper}:/nowhere"


@pytest.fixture
def replication(native: Connection) -> Iterator[Replication]:
    made = native.replication
    yield made
    with contextlib.suppress(RequestRefused):  # most tests remove it themselves
        made.remove(PEER)


@pytest.fixture
def backend(native: Connection) -> NativeBackend:
    assert isinstance(native.engine.backend, NativeBackend)
    return native.engine.backend


@pytest.fixture
def until(native: Connection) -> Callable[[], float]:
    return lambda: native.engine.runtime.now() + WAIT_S


@pytest.fixture
def table(native: Connection) -> Iterator[Table]:
    name = f"replicated_{native.engine.runtime.time_ms()}".encode()
    native.create_table(name, {"cf": {"replication_scope": 1}, "local": {}}, splits=[b"m"])
    yield native.table(name)
    native.delete_table(name, disable=True)


def added(replication: Replication) -> list[Peer]:
    """Return the peers that HBase has not made itself."""
    return [peer for peer in replication.list() if peer.id != OF_HBASE]


def test_a_peer_is_added_changed_and_removed(replication: Replication, key: str) -> None:
    replication.add(PEER, key, tables={"t": ["cf"], "u": None}, bandwidth=1000, configuration={"a": "b"})
    config = PeerConfig(
        cluster_key=key,
        replicate_all=False,
        tables={b"t": (b"cf",), b"u": ()},
        bandwidth=1000,
        configuration={"a": "b"},
    )
    peer = replication.get(PEER)
    assert (peer.state, peer.config) == (PeerState.ENABLED, config)
    assert added(replication) == [peer]
    assert replication.list("no such peer") == []

    replication.disable(PEER)
    assert replication.get(PEER).state is PeerState.DISABLED
    replication.update(PEER, tables=["v"], bandwidth=5, configuration={"c": "d"}, serial=True)
    changed = replication.get(PEER).config
    assert (dict(changed.tables), changed.bandwidth, changed.serial) == ({b"v": ()}, 5, True)
    assert dict(changed.configuration) == {"a": "b", "c": "d"}, "HBase merges the settings"
    replication.enable(PEER)
    assert replication.get(PEER).state is PeerState.ENABLED

    sources = [load for server in replication.status() for load in server.sources]
    assert {load.peer_id for load in sources} <= {PEER, OF_HBASE}
    assert all(server.sink is not None for server in replication.status())

    replication.remove(PEER)
    assert added(replication) == []


def test_a_peer_of_all_tables_has_exceptions(replication: Replication, key: str) -> None:
    replication.add(PEER, key, exclude_tables=["logs"], exclude_namespaces=["scratch"], enabled=False)
    peer = replication.get(PEER)
    assert peer.state is PeerState.DISABLED
    assert peer.config.replicate_all
    assert (dict(peer.config.exclude_tables), peer.config.exclude_namespaces) == (
        {b"logs": ()},
        frozenset({b"scratch"}),
    )
    replication.update(PEER, tables=["t"], exclude_tables=[], exclude_namespaces=[])
    assert not replication.get(PEER).config.replicate_all


def _refused(call: Callable[[], None]) -> str:
    """Return HBase's text of a refusal, without the name of the call before it."""
    with pytest.raises(RequestRefused) as raised:
        call()
    assert raised.value.disposition is Disposition.FATAL
    assert not raised.value.may_have_applied
    return str(raised.value).partition(": ")[2]


def test_refusals_are_hbases_word_by_word(hbase: LocalHBase, replication: Replication, key: str) -> None:
    itself = f"{hbase.zookeeper}:/hbase"
    name = "DoNotRetryIOException: "
    assert _refused(lambda: replication.add("x", "nonsense")) == name + "Invalid cluster key: nonsense"
    assert _refused(lambda: replication.add("x", itself)) == name + (
        f"Invalid cluster key: {itself}, should not replicate to itself for HBaseInterClusterReplicationEndpoint"
    )
    assert _refused(lambda: replication.add("a-b", key)) == name + "Found invalid peer name: a-b"
    assert _refused(lambda: replication.add("x", key, endpoint="no.such.Class")) == name + (
        "Can not instantiate configured replication endpoint class=no.such.Class"
    )
    assert _refused(lambda: replication.add("x", key, tables=["t"], replicate_all=True)) == name + (
        "Need clean namespaces or table-cfs config firstly when you want replicate all cluster"
    )
    assert _refused(lambda: replication.add("x", key, exclude_tables=["t"], replicate_all=False)) == name + (
        "Need clean exclude-namespaces or exclude-table-cfs config firstly when replicate_all flag is false"
    )
    assert _refused(lambda: replication.add("x", key, tables=["ns:t"], namespaces=["ns"])) == name + (
        "Table-cfs ns:t is conflict with namespaces ns in peer config"
    )
    replication.add(PEER, key)
    assert _refused(lambda: replication.add(PEER, key)) == f"{name}Replication peer {PEER} already exists"
    assert _refused(lambda: replication.enable(PEER)) == f"{name}Replication peer {PEER} has already been enabled"
    assert _refused(lambda: replication.update(PEER, key=key + "2")) == name + (
        "Changing the cluster key on an existing peer is not allowed. "
        f"Existing key '{key}' for peer {PEER} does not match new key '{key}2'"
    )
    replication.remove(PEER)


@pytest.mark.parametrize("change", ["remove", "enable", "disable", "get"])
def test_an_unknown_peer_is_named(replication: Replication, change: str) -> None:
    assert _refused(lambda: getattr(replication, change)("nobody")) == "ReplicationPeerNotFoundException: nobody"


# -- ReplicateWALEntry ---------------------------------------------------------------------------------------------


def _entry(table: bytes, *cells: tuple[bytes, Cell], cluster_ids: tuple[uuid.UUID, ...] = (CLUSTER,)) -> ShippedEntry:
    return ShippedEntry(WalKey("0" * 32, table, 4, 1000, ((b"cf", 1),), cluster_ids), cells)


@pytest.fixture
def server(native: Connection, table: Table) -> ServerName:
    """A server that need not have the region of the row."""
    return native.locate(table.name, b"z").server


def test_shipped_entries_are_applied_with_their_times_and_twice_is_once(
    backend: NativeBackend, table: Table, server: ServerName, until: Callable[[], float]
) -> None:
    entry = _entry(
        table.name,
        (b"a", Cell(b"cf:old", 5, b"", CellType.DELETE_COLUMN)),
        (b"a", Cell(b"cf:q", 7, b"v")),
        (b"z", Cell(b"cf:q", 8, b"w")),
    )
    table.put(b"a", {b"cf:old": b"x"}, timestamp=4)
    for _ in range(2):
        backend.replication_admin.replicate(server, [entry], until())
    assert table.row(b"a", include_timestamp=True) == {b"cf:q": (b"v", 7)}
    assert table.row(b"z", include_timestamp=True) == {b"cf:q": (b"w", 8)}
    assert table.cells(b"a", b"cf:q", include_timestamp=True) == [(b"v", 7)]


def test_an_empty_call_is_a_success(backend: NativeBackend, server: ServerName, until: Callable[[], float]) -> None:
    backend.replication_admin.replicate(server, [], until())


def test_a_missing_table_is_named(backend: NativeBackend, server: ServerName, until: Callable[[], float]) -> None:
    with pytest.raises(TableNotFound, match="'nope'"):
        backend.replication_admin.replicate(server, [_entry(b"nope", (b"a", Cell(b"cf:q", 7, b"v")))], until())


def test_a_missing_family_is_in_the_text_only(
    backend: NativeBackend, table: Table, server: ServerName, until: Callable[[], float]
) -> None:
    """HBase's sink retries inside, and does not mark the error as final: a source tries again for ever."""
    with pytest.raises(MetaClientError) as raised:
        backend.replication_admin.replicate(server, [_entry(table.name, (b"a", Cell(b"no:q", 7, b"v")))], until())
    assert "NoSuchColumnFamilyException" in f"{raised.value}{raised.value.detail}"


def test_cells_that_are_missing_apply_nothing(
    backend: NativeBackend, table: Table, server: ServerName, until: Callable[[], float]
) -> None:
    param, cells = encode_replicate([_entry(table.name, *[(b"a", Cell(b"cf:q", 7, b"v"))] * 3)])
    address = ServiceAddress(server.host, server.port, ADMIN_SERVICE)
    for block, text in ((cells[: len(cells) // 3], "Expected=3, index=1"), (b"", '"cells" is null')):
        request: Request[None] = Request(
            b"ReplicateWALEntry", param, decode_nothing, until(), "replicate", block, is_write=True
        )
        with pytest.raises(BackendFault, match=text):
            wait_for(backend._connections.call(address, request), until())
    assert table.row(b"a") == {}
