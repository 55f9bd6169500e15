"""Moves, splits, merges and the rest of admin on a real HBase, by its own RPC: no Java program, no gateway."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import metaclient
from metaclient import Connection, Table, keys
from metaclient.errors import (
    ConfigError,
    NotServingRegion,
    RequestRefused,
    ServerUnreachable,
    TableNotDisabled,
    TableNotFound,
)
from metaclient.model import Cell, FamilyDescriptor, Put
from metaclient.runtime import Pending
from metaclient_local_hbase import LocalHBase
from metaclient_native import NativeBackend
from metaclient_native.admin import Admin
from metaclient_native.request import Request, ServiceAddress

ROWS = [b"%02d" % number for number in range(40)]
#: Generous: a busy machine is not a fault.
WAIT_S = 120.0


@pytest.fixture
def native(hbase: LocalHBase) -> Iterator[Connection]:
    with metaclient.connect(hbase.native_url) as connection:
        yield connection


@pytest.fixture
def backend(native: Connection) -> NativeBackend:
    assert isinstance(native._backend, NativeBackend)
    return native._backend


@pytest.fixture
def admin(backend: NativeBackend) -> Admin:
    return backend.admin


@pytest.fixture
def until(native: Connection) -> Callable[[], float]:
    return lambda: native._runtime.now() + WAIT_S


@pytest.fixture
def filled(native: Connection, request: pytest.FixtureRequest) -> Iterator[Table]:
    """Four regions, ten rows each; gone after the test."""
    name = f"native_admin_{native._runtime.time_ms()}".encode()
    native.create_table(name, {"cf": {}}, splits=[b"10", b"20", b"30"])
    table = native.table(name)
    with table.batch() as batch:
        for row in ROWS:
            batch.put(row, {b"cf:a": row})
    yield table
    if name in native.tables():
        native.delete_table(name, disable=True)


def keys_of(table: Table) -> list[bytes]:
    return [row for row, _ in table.scan()]


def test_moved_region_is_found_again(
    native: Connection, admin: Admin, filled: Table, until: Callable[[], float]
) -> None:
    """The cached place is wrong after a move: a hint or a lookup repairs it, and no row is lost on the way."""
    before = native.locate(filled.name, b"15")
    others = [load.server for load in admin.cluster_status(until()).live_servers if load.server != before.server]
    admin.move_region(before.region.encoded_name, until(), server=others[0])
    assert filled.row(b"15") == {b"cf:a": b"15"}
    assert native.locate(filled.name, b"15").server == others[0]
    assert keys_of(filled) == ROWS


def test_scan_goes_on_while_its_region_moves(
    native: Connection, admin: Admin, filled: Table, until: Callable[[], float]
) -> None:
    found = []
    for row, _ in filled.scan(batch_size=3):
        found.append(row)
        if row == b"14":
            admin.move_region(native.locate(filled.name, b"14").region.encoded_name, until())
    assert found == ROWS


def test_split_and_merge_keep_every_row(
    native: Connection, admin: Admin, filled: Table, until: Callable[[], float]
) -> None:
    region = native.locate(filled.name, b"15")
    admin.split_region(region, b"15", until())
    names = [entry.region for entry in admin.regions(filled.name, until())]
    assert [entry.start_key for entry in names] == [b"", b"10", b"15", b"20", b"30"]
    assert keys_of(filled) == ROWS
    filled.put(b"14", {b"cf:b": b"after the split"})
    assert filled.row(b"14")[b"cf:b"] == b"after the split"
    # A daughter that still refers to its parent's files cannot be merged: rewrite them first.
    last = [entry for entry in names if entry.start_key in (b"20", b"30")]
    admin.merge_regions([entry.encoded_name for entry in last], until())
    merged = [entry.region.start_key for entry in admin.regions(filled.name, until())]
    assert merged == [b"", b"10", b"15", b"20"]
    assert keys_of(filled) == ROWS


def test_flush_compact_truncate(native: Connection, admin: Admin, filled: Table, until: Callable[[], float]) -> None:
    admin.flush_table(filled.name, until())
    admin.compact_table(filled.name, True, until())
    assert keys_of(filled) == ROWS
    native.disable_table(filled.name)
    admin.truncate_table(filled.name, until(), preserve_splits=True)
    assert keys_of(filled) == []
    assert len(native.regions(filled.name)) == 4


def test_alter_families(native: Connection, admin: Admin, filled: Table, until: Callable[[], float]) -> None:
    admin.add_family(filled.name, FamilyDescriptor(b"new", max_versions=5), until())
    described = admin.describe_table(filled.name, until())
    assert described.family(b"new") == FamilyDescriptor(b"new", max_versions=5)
    filled.put(b"00", {b"new:x": b"1"})
    assert filled.row(b"00", columns=[b"new"]) == {b"new:x": b"1"}
    admin.delete_family(filled.name, b"new", until())
    assert admin.describe_table(filled.name, until()).family(b"new") is None


def test_namespaces(native: Connection, admin: Admin, until: Callable[[], float]) -> None:
    name = f"ns{native._runtime.time_ms()}"
    admin.create_namespace(name, until())
    assert name in admin.namespaces(until())
    with pytest.raises(RequestRefused):
        admin.create_namespace(name, until())
    native.create_table(f"{name}:t", {"cf": {}})
    native.table(f"{name}:t").put(b"r", {b"cf:a": b"1"})
    assert native.table(f"{name}:t").row(b"r") == {b"cf:a": b"1"}
    native.delete_table(f"{name}:t", disable=True)
    admin.delete_namespace(name, until())
    assert name not in admin.namespaces(until())


def test_sizes_of_regions_for_planning(admin: Admin, filled: Table, until: Callable[[], float]) -> None:
    admin.flush_table(filled.name, until())
    names = {entry.region.name for entry in admin.regions(filled.name, until())}
    deadline = until()
    sizes: dict[bytes, int] = {}
    while set(sizes) != names:  # servers report every 3 s
        assert admin._runtime.now() < deadline
        admin._runtime.sleep(0.2)
        sizes = admin.region_sizes(filled.name, deadline)
    assert all(size >= 0 for size in sizes.values())


def test_what_is_wrong_is_said(
    native: Connection, backend: NativeBackend, admin: Admin, filled: Table, until: Callable[[], float]
) -> None:
    with pytest.raises(TableNotFound):
        admin.regions(b"no_such_table", until())
    with pytest.raises(TableNotDisabled):
        admin.delete_table(filled.name, until())  # HBase: it must be disabled first
    with pytest.raises(ConfigError, match="no live region server"):
        admin.move_region(native.locate(filled.name, b"15").region.encoded_name, until(), server="nowhere:1")
    with pytest.raises(NotServingRegion):
        admin.move_region("0" * 32, until())


def test_service_that_a_server_does_not_have_is_explained(
    hbase: LocalHBase, native: Connection, backend: NativeBackend, filled: Table, until: Callable[[], float]
) -> None:
    """A refusal is only a closed connection; 2.6's master has a ClientService that serves no region."""
    place = native.locate(filled.name, b"15")
    address = ServiceAddress(place.server.host, place.server.port, "NoSuchService")
    call = backend._connections.call(address, Request(b"Get", b"", lambda _: None, until(), "Get"))
    with pytest.raises(ServerUnreachable, match="NoSuchService"):
        call.result(until())


def test_meta_copies_can_be_spread_again(
    native: Connection, admin: Admin, backend: NativeBackend, until: Callable[[], float]
) -> None:
    """A copy of hbase:meta is a region like any other, and is moved by its encoded name."""
    replicas = {one.replica_id: one.server for one in backend.meta_replicas(until())}
    if len(replicas) < 3:
        pytest.skip("the cluster has no two secondaries of hbase:meta")
    free = [one.server for one in admin.cluster_status(until()).live_servers]
    target = next(server for server in free if server not in (replicas[0], replicas[1]))
    admin.move_region(keys.encoded_region_name(keys.meta_region_name(1)), until(), server=target)
    deadline = until()
    while {one.replica_id: one.server for one in backend.meta_replicas(deadline)}[1] != target:
        assert native._runtime.now() < deadline
        native._runtime.sleep(0.2)


def test_registry_by_rpc_says_the_same(hbase: LocalHBase, backend: NativeBackend, until: Callable[[], float]) -> None:
    """Master or region server, all know who serves hbase:meta and who is master."""
    status = hbase.status()["processes"]
    servers = [f"127.0.0.1:{one['port']}" for one in status if one["name"] == "master" or one["name"].startswith("rs")]
    wanted = list(backend.meta_replicas(until()))
    for url in (f"hbase+rpc://{servers[0]}", f"hbase+rpc://{','.join(servers[1:])}"):
        with metaclient.connect(url) as other:
            by_rpc = other._backend
            assert isinstance(by_rpc, NativeBackend)
            assert list(by_rpc.meta_replicas(until())) == wanted
            assert by_rpc._registry.active_master(until()) == backend._registry.active_master(until())
            assert by_rpc._registry.cluster_id(until()) == backend._registry.cluster_id(until())


def test_stale_comes_from_the_answer(native: Connection, until: Callable[[], float]) -> None:
    """A replica is read by its own region name, at its own server; the region that answered says what it is."""
    name = f"native_replicas_{native._runtime.time_ms()}".encode()
    native.create_table(name, {"cf": {}}, region_replication=2)
    try:
        table = native.table(name)
        table.put(b"r", {b"cf:a": b"1"})
        assert table.row(b"r").stale is False
        deadline = until()
        while True:
            try:
                row = table.row(b"r", consistency="TIMELINE", replica_id=1)
            except metaclient.MetaClientError:  # not open yet
                row = None
            if row:
                break
            assert native._runtime.now() < deadline
            native._runtime.sleep(0.2)
        assert row.stale is True
        assert row.replica_id == 1
        place = native.locate(name, b"r", replica_id=1)
        put = native._backend.mutate(place, name, Put(b"r", (Cell(b"cf:a", 1, b"2"),)), until())
        assert isinstance(put, Pending)
        with pytest.raises(RequestRefused, match=r"read.only"):
            put.result(until())
    finally:
        native.delete_table(name, disable=True)
