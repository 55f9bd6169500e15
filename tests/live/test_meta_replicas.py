"""Lookups on a real HBase go where the policy says; the servers' own counts are the witness."""

from __future__ import annotations

from typing import Any

import pytest

import metaclient
from metaclient import Connection, MetaClientError, Table
from metaclient.model import MetaReplica
from metaclient_local_hbase import LocalHBase

pytestmark = pytest.mark.essential
LOOKUPS = 600
TRIES_MAX = 5


def test_every_copy_of_meta_is_known_and_placed(hbase: LocalHBase, connection: Connection) -> None:
    replicas = connection.meta_replicas()
    assert [one.id for one in replicas] == [0, 1, 2]
    assert sorted({hbase.meta_server(one.id) for one in replicas}) <= hbase.servers()


@pytest.mark.parametrize("scheme", ["thrift2", "hbase"])
def test_lookups_are_spread_over_the_secondaries_and_spare_the_primary(
    hbase: LocalHBase, table_name: bytes, scheme: str
) -> None:
    """ "JMX read counts: the primary's share of our lookups at most 1 % while all are healthy".

    A machine that starves its servers makes them unhealthy: what was ejected meanwhile does not count as a try.
    """
    hbase.spread_meta()
    urls = {"thrift2": hbase.thrift2_url, "hbase": hbase.native_url}
    for _ in range(TRIES_MAX):
        served, ejections = _served(hbase, urls[scheme], table_name)
        print(f"HBase {hbase.version}, {scheme}: {LOOKUPS} lookups, reads by replica {served}, {ejections} ejections")
        if not ejections:
            break
    total = sum(served.values())
    assert ejections == 0
    assert total >= LOOKUPS
    assert served[0] <= total * 0.01
    assert min(served[1], served[2]) >= total * 0.35


def _served(hbase: LocalHBase, url: str, table: bytes) -> tuple[dict[int, int], int]:
    """Reads by replica, in the servers' words, and how often a replica was out."""
    before = hbase.meta_reads()
    with metaclient.connect(url, meta_mode="LoadBalance") as connection:
        for number in range(LOOKUPS):
            connection.locate(table, b"r%d" % (number % 10), reload=True)
        ejections = connection.stats()["meta"]["ejections"]
    after = hbase.meta_reads()
    return {replica_id: after[replica_id] - before[replica_id] for replica_id in after}, ejections


def test_mode_none_reads_the_primary_alone(hbase: LocalHBase, table_name: bytes) -> None:
    before = hbase.meta_reads()
    with metaclient.connect(hbase.thrift2_url, meta_mode="None") as connection:
        for number in range(100):
            connection.locate(table_name, b"r%d" % (number % 10), reload=True)
    after = hbase.meta_reads()
    assert after[0] - before[0] >= 100
    assert (after[1], after[2]) == (before[1], before[2])


def test_strong_data_calls_cost_no_lookup_of_ours(connection: Connection, table: Table) -> None:
    """ "A gateway routes by itself: STRONG data calls cost no meta lookup"."""
    table.put(b"r5", {b"cf:a": b"1"})
    assert table.row(b"r5") == {b"cf:a": b"1"}
    list(table.scan(limit=5))
    table.rows([b"r1", b"r5"])
    assert connection.stats()["meta"]["reads_by_replica"] == {}


def test_timeline_read_at_a_replica_is_marked_stale(connection: Connection, table: Table) -> None:
    table.put(b"r7", {b"cf:a": b"1"})
    runtime = connection._runtime
    for replica_id in (0, 1, 2):
        deadline = runtime.now() + 60
        row = table.row(b"r7", consistency="TIMELINE", replica_id=replica_id)
        while row != {b"cf:a": b"1"} and runtime.now() < deadline:
            runtime.sleep(0.2)
            row = table.row(b"r7", consistency="TIMELINE", replica_id=replica_id)
        assert (row, row.stale, row.replica_id) == ({b"cf:a": b"1"}, replica_id != 0, replica_id)


def test_replica_that_does_not_exist_is_reported_and_not_replaced(connection: Connection, table: Table) -> None:
    scan = metaclient.backend.MetaScan(b"", b"", is_reversed=False, limit=1)
    with pytest.raises(MetaClientError, match="no location for replica id #7"):
        connection._backend.read_meta(MetaReplica(7), scan, connection._runtime.now() + 30)


@pytest.mark.parametrize("ask", ["TIMELINE", "replica_id"])
def test_thrift1_refuses_replicas_and_says_what_to_use(hbase: LocalHBase, table_name: bytes, ask: str) -> None:
    options: dict[str, Any] = {"consistency": "TIMELINE"}
    if ask == "replica_id":
        options["replica_id"] = 1
    with metaclient.connect(hbase.thrift1_url) as connection:
        with pytest.raises(metaclient.Unsupported, match="thrift2:"):
            connection.table(table_name).row(b"r1", **options)
        assert len(connection.regions(table_name)) == 10


def test_hedged_mode_answers(hbase: LocalHBase, table_name: bytes) -> None:
    with metaclient.connect(hbase.thrift2_url, meta_mode="HedgedRead") as connection:
        assert connection.locate(table_name, b"r3").region.start_key == b"r3"
