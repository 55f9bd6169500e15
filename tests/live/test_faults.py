"""Faults of a real cluster under load: none of them fails a call.

HBase's own test promises no read over 5 s with the meta replicas protected; here nothing is protected. The Java client
made no lookup at all while one of three meta servers hung. How fast ours goes on meanwhile is for the benchmark
``meta-failover`` to say; these tests ask that nothing fails, and the servers' own counts who has served.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import metaclient
from metaclient import Connection, Table
from metaclient_local_hbase import LocalHBase
from tests.live.load import ROWS, WAIT_S_MAX, Load, looking_up, said, wait_until, writing

#: Calls before a fault, during it, and after it: enough for every caller to meet it many times.
CALLS = 400
pytestmark = pytest.mark.usefixtures("healed")


@pytest.fixture
def patient(hbase: LocalHBase, table_name: bytes) -> Iterator[Table]:
    """Data calls that give up on a silent gateway soon, and go on trying for as long as a restart may take."""
    with metaclient.connect(
        hbase.thrift2_url, meta_mode="LoadBalance", rpc_timeout_s=5, operation_timeout_s=WAIT_S_MAX, retries=60
    ) as made:
        yield made.table(table_name)


def served_since(hbase: LocalHBase, before: dict[int, int]) -> dict[int, int]:
    """Reads by replica in the servers' own words. A copy that was opened anew has begun anew."""
    return {one: count - before[one] if count >= before[one] else count for one, count in hbase.meta_reads().items()}


# -- servers of hbase:meta -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("replica_id", [pytest.param(0, marks=pytest.mark.essential), 1], ids=["primary", "secondary"])
def test_killed_meta_server_fails_no_lookup(
    hbase: LocalHBase, connection: Connection, table: Table, replica_id: int, capsys: Any
) -> None:
    """ "``kill -9`` of the meta primary's server: 0 failed lookups", also while it comes back."""
    server = hbase.meta_server(replica_id)
    with looking_up(connection, table.name) as load:
        load.wait_for(CALLS)
        hbase.kill(server)
        load.wait_for(CALLS)
        hbase.start(server)
        hbase.wait_until_ready()
        load.wait_for(CALLS)
    said(capsys, f"HBase {hbase.version}, server of meta replica {replica_id} killed", load, connection)
    assert load.errors == []


def test_hung_meta_secondary_fails_no_lookup_and_the_other_takes_its_share(
    hbase: LocalHBase, connection: Connection, table: Table, capsys: Any
) -> None:
    """ "one of three meta servers hung ...: no lookup fails"; the primary is not the one to pay for it."""
    server = hbase.meta_server(1)
    before = hbase.meta_reads()
    with looking_up(connection, table.name) as load:
        load.wait_for(CALLS)
        hbase.pause(server)
        load.wait_for(3 * CALLS)
        assert {one.id: one.state for one in connection.meta_replicas()}[1] == "ejected"
        hbase.resume(server)
        wait_until(lambda: connection.meta_replicas()[1].state == "healthy", "replica 1", connection._runtime)
        load.wait_for(CALLS)
    served = served_since(hbase, before)
    said(capsys, f"HBase {hbase.version}, meta secondary hung", load, connection, served)
    assert load.errors == []
    assert served[2] > served[1] > 0
    assert served[0] < served[2] / 2


def test_hung_meta_primary_fails_no_lookup(
    hbase: LocalHBase, connection: Connection, table: Table, capsys: Any
) -> None:
    server = hbase.meta_server(0)
    before = hbase.meta_reads()
    with looking_up(connection, table.name) as load:
        load.wait_for(CALLS)
        hbase.pause(server)
        load.wait_for(3 * CALLS)
        hbase.resume(server)
        load.wait_for(CALLS)
    served = served_since(hbase, before)
    said(capsys, f"HBase {hbase.version}, meta primary hung", load, connection, served)
    assert load.errors == []
    assert min(served[1], served[2]) > served[0]


# -- gateways ------------------------------------------------------------------------------------------------------


def test_hung_gateway_fails_no_call(hbase: LocalHBase, patient: Table, capsys: Any) -> None:
    """One of two: whoever waits for it turns to the other, and it is used again when it has come back."""
    connection = patient.connection
    with writing(patient) as load, looking_up(connection, patient.name) as lookups:
        load.wait_for(CALLS)
        hbase.pause("thrift2-2")
        load.wait_for(CALLS)
        lookups.wait_for(CALLS)
        assert [one["is_out"] for one in _gateways(connection)] == [False, True]
        hbase.resume("thrift2-2")
        wait_until(lambda: not _gateways(connection)[1]["is_out"], "the gateway's return", connection._runtime)
        load.wait_for(CALLS)
    said(capsys, f"HBase {hbase.version}, gateway hung, puts and gets", load, connection)
    said(capsys, f"HBase {hbase.version}, gateway hung, lookups", lookups, connection)
    assert load.errors + lookups.errors == []
    assert _read_back(patient, load) == load.written


def test_killed_gateway_fails_no_call_and_its_return_is_used(hbase: LocalHBase, patient: Table, capsys: Any) -> None:
    connection = patient.connection
    with writing(patient) as load, looking_up(connection, patient.name) as lookups:
        load.wait_for(CALLS)
        hbase.kill("thrift2-2")
        load.wait_for(CALLS)
        lookups.wait_for(CALLS)
        assert [one["is_out"] for one in _gateways(connection)] == [False, True]
        hbase.start("thrift2-2")
        wait_until(
            lambda: _gateways(connection)[1]["idle"] + _gateways(connection)[1]["in_use"] > 0,
            "its return",
            connection._runtime,
        )
        load.wait_for(CALLS)
    said(capsys, f"HBase {hbase.version}, gateway killed, puts and gets", load, connection)
    assert load.errors + lookups.errors == []
    assert _read_back(patient, load) == load.written


def _gateways(connection: Connection) -> list[dict[str, Any]]:
    backend: Any = connection._backend
    return list(backend.gateways().values())


# -- regions -------------------------------------------------------------------------------------------------------


def test_rolling_restart_fails_no_call(hbase: LocalHBase, patient: Table, capsys: Any) -> None:
    """Each region server is stopped and started in turn, as for an upgrade; the gateways find the regions again."""
    connection = patient.connection
    with writing(patient) as load, looking_up(connection, patient.name) as lookups:
        for server in hbase.servers():
            hbase.stop(server)
            hbase.start(server)
            hbase.wait_until_ready()
            load.wait_for(CALLS // 4)
    said(capsys, f"HBase {hbase.version}, rolling restart, puts and gets", load, connection)
    said(capsys, f"HBase {hbase.version}, rolling restart, lookups", lookups, connection)
    assert load.errors + lookups.errors == []
    assert _read_back(patient, load) == load.written


@pytest.mark.essential
def test_moved_region_fails_no_call(hbase: LocalHBase, patient: Table, capsys: Any) -> None:
    connection = patient.connection
    old = connection.locate(patient.name, ROWS[3], reload=True)
    to = next(one for one in hbase.admin.servers() if one != old.server)
    with writing(patient) as load, looking_up(connection, patient.name) as lookups:
        load.wait_for(CALLS)
        hbase.admin.move(old.region.encoded_name, to)
        wait_until(
            lambda: connection.locate(patient.name, ROWS[3], reload=True).server == to,
            "the new place",
            connection._runtime,
        )
        load.wait_for(CALLS)
    said(capsys, f"HBase {hbase.version}, region moved from {old.server} to {to}", load, connection)
    assert load.errors + lookups.errors == []
    assert _read_back(patient, load) == load.written


@pytest.mark.essential
def test_split_region_fails_no_call(hbase: LocalHBase, patient: Table, capsys: Any) -> None:
    """The parent's rows are the daughters', and lookups learn of them without being told."""
    connection = patient.connection
    name = b"live_split_%d" % connection._runtime.time_ms()
    connection.create_table(name, {"cf": {}})
    table = connection.table(name)
    with writing(table) as load, looking_up(connection, name) as lookups:
        load.wait_for(CALLS)
        daughters = hbase.admin.split(name, b"r5")
        wait_until(lambda: len(connection.regions(name)) == 2, "both daughters in meta", connection._runtime)
        load.wait_for(CALLS)
    said(capsys, f"HBase {hbase.version}, region split", load, connection)
    assert load.errors + lookups.errors == []
    assert sorted(one.region.encoded_name for one in connection.regions(name)) == sorted(daughters)
    assert {key: row[b"cf:n"] for key, row in table.scan()} == load.written
    connection.delete_table(name, disable=True)


def _read_back(table: Table, load: Load) -> dict[bytes, bytes]:
    """What the table has of the rows that this load has written."""
    return {key: row[b"cf:n"] for key, row in table.scan(columns=["cf:n"]) if key in load.written}
