"""Copies of hbase:meta as clients see them, lagging ones above all.

Cases of HBase's TestMetaRegionReplicaReplication, TestMetaWithReplicasBasic, TestFailedMetaReplicaAssigment,
TestMetaWithReplicasShutdownHandling and TestMetaReplicasAddressChange.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from metaclient.errors import MetaClientError, RequestRefused, TableNotFound
from metaclient.model import META_TABLE, FamilyDescriptor, TableDescriptor
from metaclient.runtime import SimRuntime
from metaclient_fake.server.assignments import Assignments
from tests.unit.fake_cluster.conftest import World

BORDERS = [b"%02d" % number for number in range(1, 60)]
ROWS = [b"00", *BORDERS]
NAMES = [b"n%d" % number for number in range(4)]


def _reads(world: Any) -> dict[str, int]:
    return dict(world.cluster.status()["meta"]["reads_by_replica"])


def _rise(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {replica_id: after[replica_id] - before[replica_id] for replica_id in after}


@pytest.mark.parametrize(("selector", "balanced"), [("simple", {"0", "1", "2"}), ("round_robin", {"1", "2"})])
def test_load_balance_reads_all_copies_and_after_a_move_only_the_primary(
    make: Callable[..., Any], selector: str, balanced: set[str]
) -> None:
    """As HBase's testHBaseMetaReplicaGets: HBase's selector includes the primary, ours spares it.

    The old server forgets the move at once, so that meta must be asked.
    """
    world = make(config={"moved_memory_s": 0.0})
    world.create(b"t", BORDERS)
    world.runtime.sleep(1)
    connection = world.cluster.connect(
        meta_mode="LoadBalance", meta_selector=selector, locate_prefetch=1, locate_prefetch_max=1
    )
    table, before = connection.table("t"), _reads(world)
    for row in ROWS:
        table.row(row)
    rise = _rise(before, _reads(world))
    assert {replica_id for replica_id, count in rise.items() if count} == balanced, rise
    for row in ROWS[:10]:
        world.cluster.move(world.cluster.master.states.containing(b"t", row).primary.encoded)
        before = _reads(world)
        table.row(row)
        rise = _rise(before, _reads(world))
        assert rise["0"] > 0, row
        assert (rise["1"], rise["2"]) == (0, 0), row
    assert connection.stats()["meta"]["reads_by_replica"].keys() >= {"0", "1", "2"}
    connection.close()


def test_three_copies_of_meta_are_in_descriptor_and_registry(make: Callable[..., Any]) -> None:
    """As HBase's TestMetaWithReplicasBasic."""
    world = make(meta_replicas=3)
    assert world.backend.describe_table(META_TABLE, world.deadline()).region_replication == 3
    replicas = world.backend.meta_replicas(world.deadline())
    assert [replica.replica_id for replica in replicas] == [0, 1, 2]
    assert list(world.cluster.status()["meta"]["registry"]) == ["0", "1", "2"]
    assert None not in {replica.server for replica in replicas}


def test_copy_of_meta_that_no_server_opens_does_not_hold_up_the_cluster(
    make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As HBase's TestFailedMetaReplicaAssigment; when its time comes it opens after all."""
    opened = Assignments._opened_region
    is_refused = True

    def refusing(assignments: Assignments, request: Any) -> Any:
        if is_refused and request.info.table == META_TABLE and request.info.replica_id == 2:
            raise RequestRefused("not this one")
        return opened(assignments, request)

    monkeypatch.setattr(Assignments, "_opened_region", refusing)
    world = make()
    world.create(b"t", BORDERS)
    connection = world.cluster.connect(meta_mode="LoadBalance")
    table = connection.table("t")
    for row in ROWS:
        table.put(row, {b"f:q": row})
        assert table.row(row) == {b"f:q": row}
    states = [copy["state"] for copy in world.cluster.status()["meta"]["replicas"]]
    assert states == ["OPEN", "OPEN", "OPENING"]
    world.cluster.kill(world.cluster.meta_server(0))
    world.runtime.sleep(45)
    assert not world.cluster.master.is_recovering, "nor does it hold up the recovery of others"
    world.create(b"u")
    is_refused = False
    world.runtime.sleep(5)
    assert len(world.rows_of(b"u", at=2)) == 1
    connection.close()


@pytest.mark.parametrize("mode", ["LoadBalance", "HedgedRead"])
def test_dead_meta_primary_leaves_lookups_to_the_copies_if_they_are_used(make: Callable[..., Any], mode: str) -> None:
    """As HBase's TestMetaWithReplicasShutdownHandling, TestAsyncTableUseMetaReplicas."""
    world = make(servers=6)
    world.create(b"t", BORDERS)
    world.runtime.sleep(1)
    dead = world.cluster.meta_server(0)
    for region in world.cluster.regions("t"):
        if world.cluster.server_of(region) == dead:
            world.cluster.move(region, next(host for host in world.cluster.servers() if host != dead))
    world.runtime.sleep(1)
    with_copies = world.cluster.connect(meta_mode=mode, operation_timeout_s=3.0)
    without = world.cluster.connect(meta_mode="None", operation_timeout_s=3.0)
    world.cluster.kill(dead)
    for row in ROWS[::10]:
        assert with_copies.table("t").row(row) == {}
    with pytest.raises(MetaClientError) as failed:
        without.table("t").row(ROWS[0])
    assert not isinstance(failed.value, TableNotFound)
    for connection in (with_copies, without):
        connection.close()


def test_copy_of_meta_is_hosted_again_and_a_moved_primary_is_published(make: Callable[..., Any]) -> None:
    """As HBase's TestShutdownOfMetaReplicaHolder, TestMetaReplicasAddressChange."""
    world = make()
    world.create(b"t")
    world.runtime.sleep(1)
    registry = world.cluster.status()["meta"]["registry"]
    world.cluster.kill(world.cluster.meta_server(1))
    world.runtime.sleep(45)
    after_kill = world.cluster.status()["meta"]["registry"]
    assert after_kill["1"] != registry["1"]
    assert len(world.rows_of(b"t", at=1)) == 1
    world.cluster.move("hbase:meta")
    after_move = world.cluster.status()["meta"]["registry"]
    assert after_move["0"] != after_kill["0"]
    assert world.replica(0).server.host == world.cluster.meta_server(0)
    world.create(b"u")
    world.runtime.sleep(1)
    assert [len(world.rows_of(b"u", at=replica_id)) for replica_id in range(3)] == [1] * 3


# -- a copy that lags ------------------------------------------------------------------------------------------


class Lagging:
    """Clients in LoadBalance while one copy of meta hears nothing and everything moves; they note what is wrong.

    Each writer has rows of its own and knows what they hold. ``wrong`` lists answers that are not that, and tables
    that were said not to exist though they did before the call began and still do.
    """

    def __init__(self, seed: int) -> None:
        self.runtime = SimRuntime(seed=seed)
        self.world = World(self.runtime, servers=7, config={"moved_memory_s": 0.0})
        self.cluster = self.world.cluster
        self.wrong: list[object] = []
        self.checked = 0
        self.is_over = False
        self.known: dict[bytes, bytes] = {}
        #: The tables that come and go, and how often each has come; names are used again.
        self.tables: dict[bytes, int] = {}
        self.times = dict.fromkeys(NAMES, 0)
        self.world.create(b"t", [b"3", b"6"])
        self.runtime.sleep(1)

    def run(self, seconds: float) -> None:
        self.cluster.partition(self.cluster.meta_server(0), self.cluster.meta_server(1))
        tasks = [self.runtime.start(self._use, number) for number in range(3)]
        until = self.runtime.now() + seconds
        while self.runtime.now() < until:
            self._change()
            self.runtime.sleep(0.2)
        self.is_over = True
        assert _reads(self.world)["1"] > 100, "it was asked again and again"
        assert max(self.times.values()) > 1, "a table came back under its old name"
        for task in tasks:
            task.result(self.runtime.now() + 60)
        primary, lagging = (len(self.world.rows_of(b"t", at=replica_id)) for replica_id in (0, 1))
        assert primary != lagging, "the copy did lag"

    def close(self) -> None:
        self.cluster.close()
        self.runtime.close()

    def _change(self) -> None:
        """Moves mostly; splits; a table comes, or the oldest of those that came goes."""
        rng = self.runtime.rng
        regions = self.cluster.regions("t")
        kind = rng.randrange(10)
        if kind < 5:
            self.cluster.move(rng.choice(regions))
        elif kind < 7 and len(regions) < 12:
            region = rng.choice(regions)
            info = self.cluster.node_named(region).info
            at = bytes([rng.randrange(0x30, 0x3A), rng.randrange(0x30, 0x3A)])
            if info.start_key < at and (not info.end_key or at < info.end_key):
                self.cluster.split(region, at)
        elif len(self.tables) < 2 or (kind < 9 and len(self.tables) < len(NAMES)):
            name = rng.choice([name for name in NAMES if name not in self.tables])
            self.cluster.create_table(TableDescriptor(name, (FamilyDescriptor(b"f"),)))
            self.times[name] += 1
            self.tables[name] = self.times[name]
        else:
            gone = rng.choice(sorted(self.tables))
            del self.tables[gone]
            self.cluster.disable_table(gone)
            self.cluster.delete_table(gone)

    def _use(self, client: int) -> None:
        """A new connection every now and then: an empty cache asks more."""
        number = 0
        while not self.is_over:
            connection = self.cluster.connect(client=str(client), meta_mode="LoadBalance", operation_timeout_s=20.0)
            for _ in range(20):
                number += 1
                row = b"%02d-%d" % (self.runtime.rng.randrange(100), client)
                self._use_rows(connection.table("t"), row, b"%d" % number)
                self._use_a_new_table(connection)
                self.runtime.sleep(0.02)
            connection.close()

    def _use_rows(self, table: Any, row: bytes, value: bytes) -> None:
        held = self.known.get(row)
        try:
            seen = table.row(row).get(b"f:q")
            if seen != held:
                self.wrong.append((row, held, seen))
            table.put(row, {b"f:q": value})
            self.known[row] = value
            self.checked += 1
        except MetaClientError as error:
            self.wrong.append(error)

    def _use_a_new_table(self, connection: Any) -> None:
        if not self.tables:
            return
        name = self.runtime.rng.choice(sorted(self.tables))
        time = self.tables[name]
        try:
            if connection.table(name).row(b"r"):
                self.wrong.append((name, "has a row"))
        except MetaClientError as error:
            if self.tables.get(name) == time:
                self.wrong.append(error)


@pytest.mark.parametrize("seed", range(3))
def test_load_balance_over_a_lagging_meta_replica_is_never_wrong(seed: int) -> None:
    """Moves, splits, new and dropped tables that replica 1 does not hear of: no wrong value, no false TableNotFound."""
    lagging = Lagging(seed)
    lagging.run(30.0)
    assert lagging.wrong == []
    assert lagging.checked > 1000
    lagging.close()


def test_checker_of_the_lagging_replica_fires() -> None:
    lagging = Lagging(0)
    lagging.known[b"00-0"] = b"never written"
    connection = lagging.cluster.connect(meta_mode="LoadBalance")
    lagging._use_rows(connection.table("t"), b"00-0", b"1")
    assert lagging.wrong == [(b"00-0", b"never written", None)]
    lagging.tables[b"never-made"] = 1
    lagging._use_a_new_table(connection)
    assert isinstance(lagging.wrong[-1], MetaClientError)
    connection.close()
    lagging.close()
