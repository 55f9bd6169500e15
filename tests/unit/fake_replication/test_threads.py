"""Sinks on real threads: the limit of what waits for replicas holds, whoever is fast and whoever hangs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from metaclient.model import LATEST_TIMESTAMP, Cell, FamilyDescriptor, Get, Put, TableDescriptor
from metaclient.runtime import ThreadRuntime
from metaclient_fake import FakeCluster
from metaclient_fake.region_replication import QueueState

LIMIT_BYTES = 32 * 1024
EDITS, WRITERS = 400, 4
#: For what must come: long enough for any machine.
PATIENCE_S = 60.0


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    config = {
        "replication_pending_bytes_max": LIMIT_BYTES,
        "replication_operation_timeout_s": 3600.0,
        "replication_rpc_timeout_s": 3600.0,
        "replication_flush_interval_s": 0.05,
    }
    with ThreadRuntime() as runtime, FakeCluster(servers=6, runtime=runtime, config=config) as made:
        made.create_table(TableDescriptor(b"t", (FamilyDescriptor(b"f"),), region_replication=3))
        made.wait_until_replicated(PATIENCE_S)
        yield made


def region(cluster: FakeCluster, replica_id: int = 0) -> Any:
    node = cluster.node_named(cluster.regions("t")[0], replica_id)
    return cluster.host_of(node).regions[node.name]


def write(cluster: FakeCluster, buffer: Any, writer: int) -> int:
    """The most bytes that were ever seen to wait."""
    most = 0
    for number in range(EDITS):
        row = b"%d-%06d" % (writer, number)
        region(cluster).mutate(Put(row, (Cell(b"f:q", LATEST_TIMESTAMP, bytes(100)),)))
        most = max(most, buffer.pending_bytes)
    return most


def write_at_once(cluster: FakeCluster, buffer: Any) -> int:
    runtime = cluster.runtime
    tasks = [runtime.start(write, cluster, buffer, writer) for writer in range(WRITERS)]
    return max(task.result(runtime.now() + PATIENCE_S) for task in tasks)


def missing(cluster: FakeCluster, replica_id: int) -> int:
    copy = region(cluster, replica_id)
    rows = [b"%d-%06d" % (writer, number) for writer in range(WRITERS) for number in range(EDITS)]
    return sum(1 for row in rows if not copy.get(Get(row)).cells)


def test_hard_limit_holds_beside_a_hung_replica_and_a_primary_that_cannot_flush(cluster: FakeCluster) -> None:
    """On real threads: memory never is over the limit, and the hung replica is the first to lose its place."""
    hosts = [str(cluster.server_of(cluster.regions("t")[0], replica_id)) for replica_id in range(3)]
    primary = cluster.server_named(hosts[0])
    buffer = primary.replication.buffer
    sink = cluster.sink_of(cluster.master.states.table(b"t")[0].primary)
    assert sink is not None
    cluster.faults.stall_flushes(hosts[0])
    cluster.pause(hosts[1], keeps_session=True)
    seen = write_at_once(cluster, buffer)
    assert seen <= buffer.peak_bytes <= LIMIT_BYTES
    assert buffer.refused > 0, "the limit was never reached: the test says nothing"
    assert sink.failed_replicas[0] == 1
    assert "buffer limit" in sink.replicas()[0].last_error
    assert sink.replicas()[0].state == QueueState.FAILED.value

    cluster.faults.stall_flushes(hosts[0], False)
    cluster.resume(hosts[1])
    cluster.wait_until_replicated(PATIENCE_S)
    assert [missing(cluster, replica_id) for replica_id in range(3)] == [0, 0, 0]
    assert buffer.peak_bytes <= LIMIT_BYTES


def test_regions_at_the_limit_together_do_not_wait_for_each_other(cluster: FakeCluster) -> None:
    """Each has the other give way: neither may hold its own lock meanwhile."""
    names = [b"u%d" % number for number in range(3)]
    for name in names:
        cluster.create_table(TableDescriptor(name, (FamilyDescriptor(b"f"),), region_replication=2))
    groups = [cluster.master.states.table(name)[0] for name in names]
    host = groups[0].primary.server.host
    for group in groups:
        cluster.move(group.primary.info.encoded_name, host)
    cluster.wait_until_replicated(PATIENCE_S)
    cluster.faults.stall_flushes(host)
    for other in cluster.servers_by_host:
        if other != host:
            cluster.pause(other, keeps_session=True)
    server = cluster.server_named(host)
    runtime, buffer = cluster.runtime, server.replication.buffer

    def fill(group: Any) -> None:
        for number in range(EDITS):
            put = Put(b"%06d" % number, (Cell(b"f:q", LATEST_TIMESTAMP, bytes(500)),))
            server.regions[group.primary.name].mutate(put)

    tasks = [runtime.start(fill, group) for group in groups for _ in range(2)]
    for task in tasks:
        task.result(runtime.now() + PATIENCE_S)
    assert buffer.refused > 0, "the limit was never reached: the test says nothing"
    assert buffer.peak_bytes <= LIMIT_BYTES


def test_limit_holds_at_full_rate_with_healthy_replicas(cluster: FakeCluster) -> None:
    """Whatever a flush lets go on the way: nothing is lost, and the limit holds."""
    host = cluster.server_of(cluster.regions("t")[0], 0)
    buffer = cluster.server_named(str(host)).replication.buffer
    assert write_at_once(cluster, buffer) <= buffer.peak_bytes <= LIMIT_BYTES
    cluster.wait_until_replicated(PATIENCE_S)
    assert [missing(cluster, replica_id) for replica_id in range(3)] == [0, 0, 0]
