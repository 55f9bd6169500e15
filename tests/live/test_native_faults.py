"""Faults of a real cluster under load, no gateway between it and us: none of them fails a call or loses a write.

Moves, splits and merges are made by the same client that is under load: HBase's own RPC does all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from metaclient import Connection, Table
from metaclient_local_hbase import LocalHBase
from tests.live.load import WAIT_S_MAX, backend_of, looking_up, said, wait_until, writing

CALLS = 300
pytestmark = [pytest.mark.essential, pytest.mark.usefixtures("healed")]


@pytest.fixture
def table(native: Connection, table_name: bytes) -> Table:
    return native.table(table_name)


@pytest.fixture
def until(native: Connection) -> Callable[[], float]:
    return lambda: native._runtime.now() + WAIT_S_MAX


@pytest.mark.parametrize("replica_id", [0, 1], ids=["primary", "secondary"])
def test_killed_meta_server_fails_no_lookup(
    hbase: LocalHBase, native: Connection, table: Table, replica_id: int, capsys: Any
) -> None:
    server = hbase.meta_server(replica_id)
    with looking_up(native, table.name) as load:
        load.wait_for(CALLS)
        hbase.kill(server)
        load.wait_for(CALLS)
        hbase.start(server)
        hbase.wait_until_ready()
        load.wait_for(CALLS)
    said(capsys, f"HBase {hbase.version}, native, server of meta replica {replica_id} killed", load, native)
    assert load.errors == []


def test_hung_meta_server_fails_no_lookup_and_its_late_answers_are_dropped(
    hbase: LocalHBase, native: Connection, table: Table, capsys: Any
) -> None:
    """A woken server answers what was asked while it hung: by then nobody may take it for an answer."""
    server = hbase.meta_server(1)
    with looking_up(native, table.name) as load:
        load.wait_for(CALLS)
        hbase.pause(server)
        load.wait_for(2 * CALLS)
        assert {one.id: one.state for one in native.meta_replicas()}[1] == "ejected"
        hbase.resume(server)
        wait_until(lambda: native.meta_replicas()[1].state == "healthy", "replica 1", native._runtime)
        load.wait_for(CALLS)
    said(capsys, f"HBase {hbase.version}, native, meta secondary hung", load, native)
    assert load.errors == []
    late = sum(int(str(one["late_answers"])) for one in backend_of(native).connections().values())
    assert late >= 1


def test_killed_region_server_loses_no_write(hbase: LocalHBase, native: Connection, table: Table, capsys: Any) -> None:
    """Whoever was written to and answered is there afterwards, and nobody hears of the crash but as a slow call."""
    server = hbase.meta_server(2)
    with writing(table) as load:
        load.wait_for(CALLS)
        hbase.kill(server)
        hbase.start(server)  # it is noticed as dead when it comes back: the test need not wait for the session
        load.wait_for(CALLS)
    said(capsys, f"HBase {hbase.version}, native, region server killed", load, native)
    assert load.errors == []
    found = {row: value for row, value in table.scan() if row in load.written}
    assert found == {row: {b"cf:n": value} for row, value in load.written.items()}


def test_moves_and_splits_under_load_fail_no_call(
    hbase: LocalHBase, native: Connection, table: Table, until: Callable[[], float], capsys: Any
) -> None:
    admin = backend_of(native).admin
    name = b"native_moving_%d" % native._runtime.time_ms()
    native.create_table(name, {"cf": {}}, splits=[b"r3", b"r6"])
    moving = native.table(name)
    try:
        with writing(moving) as load:
            load.wait_for(CALLS)
            for entry in admin.regions(name, until()):
                admin.move_region(entry.region.encoded_name, until())
            load.wait_for(CALLS)
            admin.split_region(native.locate(name, b"r4x", reload=True), b"r4x", until())
            load.wait_for(CALLS)
            first, second = admin.regions(name, until())[:1], admin.regions(name, until())[-1:]
            assert len(admin.regions(name, until())) == 4
            admin.move_region(first[0].region.encoded_name, until())
            admin.move_region(second[0].region.encoded_name, until())
            load.wait_for(CALLS)
        said(capsys, f"HBase {hbase.version}, native, moves and a split", load, native)
        assert load.errors == []
        assert dict(moving.scan()) == {row: {b"cf:n": value} for row, value in load.written.items()}
    finally:
        native.delete_table(name, disable=True)
