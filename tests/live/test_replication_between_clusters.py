"""A real HBase ships to a fake cluster, and a fake cluster to a real HBase, while regions move and servers die.

The fake is published in the real cluster's ZooKeeper under a parent of its own. At the end every row is compared, and
``verify_replication`` agrees; then a difference is planted, which it must find.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from metaclient import Connection, MetaClientError, Table, verify_replication
from metaclient.errors import RequestRefused
from metaclient.model import FamilyDescriptor, TableDescriptor
from metaclient.runtime import Runtime
from metaclient_fake import FakeCluster
from metaclient_local_hbase import LocalHBase
from tests.live.load import WAIT_S_MAX, backend_of, kill_and_start, move_regions, wait_until

PEER = "between"
SPLITS = [b"4", b"8"]
#: Sources of the fake look again soon, and the death of a server is noticed in seconds.
SETTINGS = {
    "session_timeout_s": 3.0,
    "peer_replication_retry_multiplier_max": 3,
    "peer_replication_sleep_before_failover_s": 1.0,
}
#: Rows that are written before the next fault.
ROWS_BETWEEN = 60

#: Between two rows: a fake takes 100,000 per second, and all of them are compared.
PAUSE_S = 0.005

Rows = dict[bytes, dict[bytes, tuple[bytes, int]]]


class Writer:
    """Writes, overwrites and deletes rows in all regions until it is stopped. Each call is retried by the client."""

    def __init__(self, table: Table, runtime: Runtime) -> None:
        self._table = table
        self._runtime = runtime
        self.done = 0
        self._is_stopped = False
        self._task = runtime.start(self._run, name="writer")

    def _run(self) -> None:
        while not self._is_stopped:
            self._write(self.done)
            self.done += 1
            self._runtime.sleep(PAUSE_S)

    def _write(self, number: int) -> None:
        row, value = b"%x-%06d" % (number % 16, number), b"%d" % number
        self._table.put(row, {b"cf:a": value, b"cf:b": value, b"local:c": value})
        if number % 7 == 0:
            self._table.put(row, {b"cf:a": value + b"again"})
        if number % 5 == 0:
            self._table.delete(row, [b"cf:b"])
        if number % 11 == 0:
            self._table.delete(row)
        if number % 13 == 0:
            self._table.counter_inc(row, b"cf:n")

    def write_more(self) -> None:
        """Return when more rows have been written; raise the error of the writer, if it has failed."""
        target = self.done + ROWS_BETWEEN
        wait_until(lambda: self.done >= target or self._task.is_done, "rows to be written", self._runtime)
        if self._task.is_done:
            self._task.result()

    def stop(self) -> None:
        self._is_stopped = True
        self._task.result(self._runtime.now() + WAIT_S_MAX)


def replicated(table: Table) -> Rows:
    """Return all rows with their replicated columns, values and timestamps."""
    found = {row: {c: v for c, v in data.items() if c.startswith(b"cf:")} for row, data in _scan(table)}
    return {row: data for row, data in found.items() if data}


def _scan(table: Table, columns: list[bytes] | None = None) -> Iterator[tuple[bytes, Any]]:
    return table.scan(columns=columns, include_timestamp=True)


def same(source: Table, sink: Table) -> Callable[[], bool]:
    def is_so() -> bool:
        try:
            return replicated(source) == replicated(sink)
        except MetaClientError:  # a server is on its way back
            return False

    return is_so


def expect_equal(source: Table, sink: Table, runtime: Runtime) -> int:
    """Wait until both have the same rows; return how many were compared, which must not be few."""
    with contextlib.suppress(AssertionError):
        wait_until(same(source, sink), "the sink to have all rows", runtime)
    expected, found = replicated(source), replicated(sink)
    missing, extra = sorted(expected.keys() - found.keys()), sorted(found.keys() - expected.keys())
    assert (missing, extra) == ([], [])
    assert found == expected
    assert len(expected) > 3 * ROWS_BETWEEN
    assert not [row for row, data in _scan(sink) if any(column.startswith(b"local:") for column in data)]
    return len(expected)


def expect_verified(source: Connection, sink: Connection, name: bytes) -> None:
    """Compare with the peer, which its cluster key names; then plant differences in the sink, and expect them."""
    verify = partial(verify_replication, source, name, peer_id=PEER)
    report = verify(recompare_s=5.0, recompare_tries=3)
    assert report.counters["BADROWS"] == 0, report
    assert report.good > 3 * ROWS_BETWEEN
    assert report.notes == ("not compared: family local has replication scope 0",)
    rows = [row for row, _ in _scan(source.table(name), columns=[b"cf"])]
    sink.table(name).put(rows[5], {b"cf:planted": b"1"})
    sink.table(name).delete(rows[-1], [b"cf"])  # the last row of the source
    sink.table(name).put(b"0", {b"cf:planted": b"1"})  # before the first row of the source
    wrong = verify()
    assert {(one.verdict.name, one.row) for one in wrong.samples} == {
        ("CONTENT_DIFFERENT", rows[5]),
        ("ONLY_IN_SOURCE", rows[-1]),
        ("ONLY_IN_PEER", b"0"),
    }
    assert wrong.bad == 3


def show(capsys: Any, text: str) -> None:
    with capsys.disabled():
        print(f"\n{text}")


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    with FakeCluster(servers=3, meta_replicas=1, name="fake", config=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def patient(fake: FakeCluster) -> Iterator[Connection]:
    with fake.connect(operation_timeout_s=WAIT_S_MAX, retries=200) as connection:
        yield connection


@pytest.fixture
def name(native: Connection, fake: FakeCluster) -> Iterator[bytes]:
    """A table in both clusters."""
    made = f"between_{native.engine.runtime.time_ms()}".encode()
    native.create_table(made, {"cf": {"replication_scope": 1, "max_versions": 1}, "local": {}}, splits=SPLITS)
    families = (FamilyDescriptor(b"cf", max_versions=1, replication_scope=1), FamilyDescriptor(b"local"))
    fake.create_table(TableDescriptor(made, families), SPLITS)
    yield made
    native.delete_table(made, disable=True)


@pytest.fixture
def peers(native: Connection) -> Iterator[None]:
    """No peer of the real cluster outlives the test."""
    yield
    with contextlib.suppress(RequestRefused):  # it was never added
        native.replication.remove(PEER)


def move_and_split(native: Connection, name: bytes, writer: Writer) -> None:
    """Move each region of the real table to another server, and split the first one, while rows are written."""
    move_regions(native, name, writer.write_more)
    until = native.engine.runtime.now() + WAIT_S_MAX
    backend_of(native).admin.split_region(native.locate(name, b"2", reload=True), b"2", until)
    writer.write_more()


def test_real_cluster_that_ships_to_the_fake_loses_no_edit(
    hbase: LocalHBase, native: Connection, fake: FakeCluster, patient: Connection, name: bytes, peers: None, capsys: Any
) -> None:
    runtime = native.engine.runtime
    key = f"{hbase.zookeeper}:/fake-{runtime.time_ms()}"
    fake.serve(thrift1_port=None, thrift2_port=None, rpc_port=0).publish(key)
    native.replication.add(PEER, key, tables=[name])
    writer = Writer(native.table(name), runtime)
    writer.write_more()
    move_and_split(native, name, writer)
    fake.restart("rs1")  # a sink dies, too
    writer.write_more()
    kill_and_start(hbase, native, name)
    writer.write_more()
    writer.stop()
    compared = expect_equal(native.table(name), patient.table(name), runtime)
    applied = sum(status.sink.edits_applied for status in fake.replication.status() if status.sink is not None)
    assert applied > 0
    expect_verified(native, patient, name)
    show(
        capsys, f"HBase {hbase.version} to the fake: {writer.done} rows written, {compared} compared, {applied} applied"
    )


def test_fake_that_ships_to_a_real_cluster_loses_no_edit(
    hbase: LocalHBase, native: Connection, fake: FakeCluster, patient: Connection, name: bytes, capsys: Any
) -> None:
    runtime = native.engine.runtime
    fake.replication.add(PEER, f"{hbase.zookeeper}:/hbase", tables=[name])
    writer = Writer(patient.table(name), runtime)
    writer.write_more()
    for region in fake.regions(name):
        fake.move(region)
        writer.write_more()
    fake.split(fake.regions(name)[0], b"2")
    writer.write_more()
    victim = fake.server_of(fake.regions(name)[0])
    assert victim is not None
    fake.kill(victim)
    writer.write_more()
    fake.restart(victim)
    move_and_split(native, name, writer)
    kill_and_start(hbase, native, name)
    writer.write_more()
    writer.stop()
    compared = expect_equal(patient.table(name), native.table(name), runtime)
    shipped = sum(load.edits_shipped for status in fake.replication.status() for load in status.sources)
    assert shipped > 0
    expect_verified(patient, native, name)
    show(
        capsys, f"the fake to HBase {hbase.version}: {writer.done} rows written, {compared} compared, {shipped} shipped"
    )
