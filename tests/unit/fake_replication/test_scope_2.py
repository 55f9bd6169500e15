"""Families of REPLICATION_SCOPE 2: not replicated, as HBase does; in order, if ``scope_2_is_serial`` is set."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from metaclient.model import FamilyDescriptor, TableDescriptor
from metaclient.runtime import SimRuntime
from tests.unit.fake_replication.cluster_rig import MakeSide, Side, sides


@pytest.fixture
def side(runtime: SimRuntime) -> Iterator[MakeSide]:
    with sides(runtime, sleep_before_failover_s=2.0, retry_multiplier_max=5, serial_pause_s=1.0) as make:
        yield make


def pair(side: MakeSide, scopes: str = "f2", **options: object) -> tuple[Side, Side]:
    """Two clusters with a table of these scopes, and no peer yet."""
    a, b = side("a", **{"servers": 3, **options}), side("b", servers=1)
    for one in (a, b):
        one.create(scopes=scopes)
    return a, b


def put_all(side: Side, values: range) -> None:
    for number in values:
        side.put(b"r", b"%d" % number)


def arrived(side: Side) -> list[int]:
    return [int(cell.value) for _, cell in side.cells()]


def place(side: Side) -> tuple[str, str]:
    """The only region of the table, and the server that has it."""
    (region,) = side.cluster.regions("t")
    return region, str(side.cluster.status()["regions"][region]["server"])  # type: ignore[index]  # a picture


def move(side: Side) -> None:
    region, host = place(side)
    hosts = side.cluster.servers()
    side.cluster.move(region, hosts[(hosts.index(host) + 1) % len(hosts)])


def moved_with_backlog(a: Side, runtime: SimRuntime) -> None:
    """The edits before a move are on a server that cannot reach the peer; those after it on one that can."""
    network = a.cluster.network
    cut = network.partition(f"a/{place(a)[1]}", "b")
    put_all(a, range(10))
    move(a)
    put_all(a, range(10, 20))
    runtime.sleep(30.0)
    network.mend(cut)
    runtime.sleep(200.0)


@pytest.mark.parametrize("serial", [False, True])
def test_family_of_scope_2_is_never_shipped_by_hbase(side: MakeSide, runtime: SimRuntime, serial: bool) -> None:
    """HBase 2.6.1 and 3.0.0-alpha-4 accept scope 2, write no barrier, and ship nothing."""
    a, b = pair(side)
    a.replicates_to(b, serial=serial)
    put_all(a, range(10))
    move(a)
    put_all(a, range(10, 20))
    runtime.sleep(60.0)
    assert b.rows() == {}
    assert a.cluster.master.meta.barrier_rows(b"t") == []


def test_family_of_scope_2_beside_a_global_one_stays_at_home(side: MakeSide, runtime: SimRuntime) -> None:
    a, b = pair(side, "f1g2")
    a.replicates_to(b)
    a.put(b"r", column=b"f:q")
    a.put(b"r", column=b"g:q")
    runtime.sleep(20.0)
    assert [list(row) for row in b.rows().values()] == [[b"f:q"]]


def test_table_of_scope_2_is_shipped_in_order_by_a_plain_peer(side: MakeSide, runtime: SimRuntime) -> None:
    a, b = pair(side, scope_2_is_serial=True)
    a.replicates_to(b)
    moved_with_backlog(a, runtime)
    assert arrived(b) == list(range(20))


def test_table_of_scope_1_beside_it_is_shipped_without_order(side: MakeSide, runtime: SimRuntime) -> None:
    a, b = pair(side, "f1", scope_2_is_serial=True)
    a.replicates_to(b)
    moved_with_backlog(a, runtime)
    assert arrived(b) == [*range(10, 20), *range(10)]


def test_peer_added_after_a_move_does_not_wait_for_logs_that_are_gone(side: MakeSide, runtime: SimRuntime) -> None:
    a, b = pair(side, scope_2_is_serial=True)
    put_all(a, range(10))
    move(a)
    a.cluster.flush()
    for server in a.cluster.servers_by_host.values():
        server.wal.roll()
    a.replicates_to(b)
    put_all(a, range(10, 20))
    runtime.sleep(60.0)
    assert arrived(b) == list(range(10, 20))


def test_table_that_gets_scope_2_after_a_move_goes_on_in_order(side: MakeSide, runtime: SimRuntime) -> None:
    """The ids that were pushed before the change count, or the peer would wait for them for ever."""
    a, b = pair(side, "f1", scope_2_is_serial=True)
    a.replicates_to(b)
    put_all(a, range(5))
    move(a)
    put_all(a, range(5, 10))
    runtime.sleep(30.0)
    a.cluster.alter_table(TableDescriptor(b"t", (FamilyDescriptor(b"f", max_versions=5, replication_scope=2),)))
    put_all(a, range(10, 20))
    runtime.sleep(60.0)
    assert arrived(b) == list(range(20))


def test_crash_does_not_change_the_order_of_a_table_of_scope_2(side: MakeSide, runtime: SimRuntime) -> None:
    a, b = pair(side, scope_2_is_serial=True, sleep_before_failover_s=30.0)
    a.replicates_to(b)
    _, host = place(a)
    a.cluster.network.partition(f"a/{host}", "b")
    put_all(a, range(10))
    a.cluster.kill(host)
    put_all(a, range(10, 20))
    runtime.sleep(15.0)
    assert arrived(b) == []
    runtime.sleep(120.0)
    assert arrived(b) == list(range(20))


def test_pushed_ids_of_a_removed_plain_peer_are_gone(side: MakeSide, runtime: SimRuntime) -> None:
    a, b = pair(side, scope_2_is_serial=True)
    a.replicates_to(b)
    put_all(a, range(10))
    runtime.sleep(20.0)
    pushed = a.cluster.peer_replication.pushed
    assert pushed.get(place(a)[0], "p") > 0
    a.cluster.replication.remove("p")
    assert pushed.get(place(a)[0], "p") == -1
