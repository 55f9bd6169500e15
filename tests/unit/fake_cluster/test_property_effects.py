"""Every property that the papers on region replicas name has an effect: something that a user can see differs.

The keys are those of the design of asynchronous replication for hbase:meta (HBASE-18070) and of a study of region
replicas (HBase 2.2, December 2019). Each has a scenario on virtual time; it runs without the key and with it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

from metaclient.errors import ConfigWarning, NotServingRegion, ReadsDisabled

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

Make = Callable[..., Any]
Settings = dict[str, object]

GENERAL = "hbase.region.replica.replication.enabled"
CATALOG = "hbase.region.replica.replication.catalog.enabled"
REFRESH = "hbase.regionserver.storefile.refresh.period"
META_REFRESH = "hbase.regionserver.meta.storefile.refresh.period"
NO_PUSHES: Settings = {GENERAL: "false", CATALOG: "false"}


# -- what is looked at: a function from the property to something that can be seen ---------------------------------


def pushed_row(make: Make, settings: Settings) -> object:
    """What replica 1 of a user's table shows a second after a put."""
    world = make(config=settings)
    world.create(b"t", copies=2)
    world.runtime.sleep(1)
    world.put(b"t", b"r")
    world.runtime.sleep(1)
    return world.value(b"t", b"r", replica_id=1)


def pushed_meta(make: Make, settings: Settings) -> object:
    """The regions of a new table that replica 1 of hbase:meta shows a second later."""
    world = make(config=settings)
    world.runtime.sleep(1)
    world.create(b"t", [b"m"])
    world.runtime.sleep(1)
    return len(world.rows_of(b"t", at=1))


def meta_copies(make: Make, settings: Settings) -> object:
    world = make(config=settings)
    return len(world.backend.meta_replicas(world.deadline()))


def row_of_a_file(make: Make, settings: Settings) -> object:
    """What replica 1 shows a minute after a flush, where nothing is pushed."""
    world = make(config={**NO_PUSHES, **settings})
    world.create(b"t", copies=2)
    world.runtime.sleep(1)
    world.put(b"t", b"r")
    world.cluster.flush("t")
    world.runtime.sleep(60)
    return world.value(b"t", b"r", replica_id=1)


def meta_row_of_a_file(make: Make, settings: Settings) -> object:
    """The regions of a new table that replica 1 of hbase:meta shows a minute later, where nothing is pushed."""
    world = make(config={**NO_PUSHES, **settings})
    world.runtime.sleep(1)
    world.create(b"t", [b"m"])
    world.cluster.flush("hbase:meta")
    world.runtime.sleep(60)
    return len(world.rows_of(b"t", at=1))


def compacted_file(make: Make, settings: Settings) -> object:
    """What a replica reads from a file that its primary compacted away a minute ago."""
    world = make(config={**NO_PUSHES, **settings})
    world.create(b"t", copies=2)
    world.runtime.sleep(1)
    for value in (b"1", b"2"):
        world.put(b"t", b"r", value)
        world.cluster.flush("t")
    place = world.place(b"t", b"", 1)
    world.cluster.server_named(place.server).secondaries.refresh_one(place.region_name)
    world.cluster.compact("t", major=True)
    world.runtime.sleep(60)
    try:
        return world.value(b"t", b"r", replica_id=1)
    except NotServingRegion:
        return "the file is gone"


def memory_of_a_replica(make: Make, settings: Settings) -> object:
    """Whether a replica, eight times as big as the primary beside it, gives memory back under pressure."""
    world = make(servers=3, meta_replicas=1, config={"memstore_global_bytes": 70_000, **settings})
    for name in (b"t", b"u"):
        world.create(name, copies=2 if name == b"t" else 1)
    world.cluster.move(world.cluster.regions("t")[0], "rs1")
    world.cluster.move(world.cluster.regions("t")[0], "rs2", replica_id=1)
    world.cluster.move(world.cluster.regions("u")[0], "rs2")
    world.runtime.sleep(2)
    secondary = world.cluster.server_named("rs2").regions[world.place(b"t", b"", 1).region_name]
    world.put(b"t", b"r", bytes(64_000))
    world.runtime.sleep(0.1)
    world.cluster.partition("rs1", "rs2")  # so that the primary's flush reaches the replica as a file only
    world.cluster.flush("t")
    world.put(b"u", b"r", bytes(8_000))
    world.runtime.sleep(3)
    return secondary.memstore_bytes < 10_000


def opened_replica(make: Make, settings: Settings) -> object:
    """What a replica that was opened a moment ago answers, while its primary is cut off from it."""
    world = make(config={"reads_disabled_s": 0.0, **settings})
    world.create(b"t", copies=2)
    world.runtime.sleep(1)
    primary = world.place(b"t").server.host
    target = next(
        name for name in world.cluster.servers() if name not in (primary, world.place(b"t", b"", 1).server.host)
    )
    world.cluster.partition(primary, target)
    world.cluster.move(world.cluster.regions("t")[0], target, replica_id=1)
    world.runtime.sleep(1)
    try:
        world.value(b"t", b"r", replica_id=1)
    except ReadsDisabled:
        return "reads are disabled"
    return "it can be read"


def copies_on_one_server(make: Make, settings: Settings) -> object:
    """The servers of two copies that were on one server, after the balancer has run; hbase:meta evens the other out."""
    world = make(servers=2, meta_replicas=1, config=settings)
    world.create(b"t", copies=2)
    world.runtime.sleep(1)
    server = next(name for name in world.cluster.servers() if name != world.cluster.meta_server(0))
    for replica_id in (0, 1):
        world.cluster.move(world.cluster.regions("t")[0], server, replica_id=replica_id)
    world.runtime.sleep(1)
    world.cluster.balance()
    world.runtime.sleep(1)
    return len({world.place(b"t", b"", replica_id).server for replica_id in (0, 1)})


def timeline_get(make: Make, settings: Settings) -> object:
    """How long a TIMELINE get waits for a hung primary, in milliseconds."""
    return _timeline(make, settings, lambda table: table.row(b"r", consistency="TIMELINE"))


def timeline_scan(make: Make, settings: Settings) -> object:
    """How long a TIMELINE scan waits for a hung primary, in milliseconds."""
    return _timeline(make, settings, lambda table: list(table.scan(consistency="TIMELINE")))


def _timeline(make: Make, settings: Settings, read: Callable[[Any], object]) -> object:
    world = make(meta_replicas=1)
    world.create(b"t", copies=2)
    world.put(b"t", b"r")
    world.runtime.sleep(1)
    with world.cluster.connect(config=settings, hedge_delay="fixed") as connection:
        table = connection.table("t")
        connection.locate("t", b"r")
        if world.place(b"t").server.host == world.cluster.meta_server(0):
            world.cluster.move(world.cluster.regions("t")[0])
            world.runtime.sleep(1)
            connection.locate("t", b"r", reload=True)
        world.cluster.pause(world.place(b"t").server.host, keeps_session=True)
        begun = world.runtime.now()
        read(table)
        return round(1000 * (world.runtime.now() - begun), -1)


def meta_reads(make: Make, settings: Settings) -> object:
    """Which copies of hbase:meta answer six lookups while the primary is slow; {} of "primary" and "secondary"."""
    world = make()
    world.create(b"t")
    world.runtime.sleep(1)
    with world.cluster.connect(config=settings) as connection:
        connection.meta_replicas()
        world.cluster.slow(world.cluster.meta_server(0), 1.5)
        before = world.cluster.meta_reads
        for _ in range(6):
            connection.locate("t", b"", reload=True)
        asked = {key: count - before.get(key, 0) for key, count in world.cluster.meta_reads.items()}
    return {"primary" if key == 0 else "secondary" for key, count in asked.items() if count}


def warning_of_a_client(make: Make, settings: Settings) -> object:
    """What the user is told who connects with it."""
    world = make()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        world.cluster.connect(config=settings).close()
    return [str(each.message) for each in caught if each.category is ConfigWarning]


# -- the keys -------------------------------------------------------------------------------------------------------

SIMPLE = "org.apache.hadoop.hbase.master.balancer.SimpleLoadBalancer"
NO_THREAD = (
    "hbase.ipc.client.specificThreadForWriting (mapping) has no effect here: no call is interrupted here, so writes "
    "need no thread of their own"
)
Effect = tuple[str, object, Callable[[Make, Settings], object], object, object]

#: Key, a value that is not the default, what is looked at, what is seen without the key, what with it.
OF_THE_META_DESIGN: list[Effect] = [
    (GENERAL, "false", pushed_row, b"1", None),
    ("hbase.region.meta.replica.replication.enabled", "false", pushed_meta, 2, 0),
    ("hbase.meta.replica.count", "2", meta_copies, 3, 2),
]
OF_SERVERS: list[Effect] = [
    (REFRESH, "10000", row_of_a_file, None, b"1"),
    (META_REFRESH, "10000", meta_row_of_a_file, 0, 2),
    (GENERAL, "false", pushed_row, b"1", None),
    ("hbase.master.hfilecleaner.ttl", "20000", compacted_file, b"2", "the file is gone"),
    ("hbase.meta.replica.count", "1", meta_copies, 3, 1),
    ("hbase.region.replica.storefile.refresh.memstore.multiplier", "100", memory_of_a_replica, True, False),
    ("hbase.region.replica.wait.for.primary.flush", "false", opened_replica, "reads are disabled", "it can be read"),
    ("hbase.master.loadbalancer.class", SIMPLE, copies_on_one_server, 2, 1),
]
OF_CLIENTS: list[Effect] = [
    ("hbase.ipc.client.specificThreadForWriting", "true", warning_of_a_client, [], [NO_THREAD]),
    ("hbase.client.primaryCallTimeout.get", "500000", timeline_get, 10, 500),
    ("hbase.client.primaryCallTimeout.scan", "500000", timeline_scan, 1000, 500),
    ("hbase.meta.replicas.use", "true", meta_reads, {"secondary"}, {"primary", "secondary"}),
    ("hbase.meta.replicas.use", "false", meta_reads, {"secondary"}, {"primary"}),
]
#: The present names of HBase for what the papers call otherwise, and what is near to them.
OF_TODAY: list[Effect] = [
    (CATALOG, "false", pushed_meta, 2, 0),
    (REFRESH, "10000", meta_row_of_a_file, 0, 2),
    (META_REFRESH, "10000", row_of_a_file, None, None),
    ("hbase.region.replica.storefile.refresh", "false", memory_of_a_replica, True, False),
    ("hbase.client.replicaCallTimeout.scan", "500000", timeline_scan, 1000, 500),
    ("hbase.locator.meta.replicas.mode", "HedgedRead", meta_reads, {"secondary"}, {"primary", "secondary"}),
    ("hbase.locator.meta.replicas.mode", "None", meta_reads, {"secondary"}, {"primary"}),
]
EFFECTS = [*OF_THE_META_DESIGN, *OF_SERVERS, *OF_CLIENTS, *OF_TODAY]


@pytest.mark.parametrize(("key", "value", "look", "without", "with_it"), EFFECTS, ids=[each[0] for each in EFFECTS])
def test_key_of_the_papers_has_its_effect(
    make: Make, key: str, value: object, look: Callable[[Make, Settings], object], without: object, with_it: object
) -> None:
    assert (look(make, {}), look(make, {key: value})) == (without, with_it)


def test_memory_multiplier_moves_the_point_at_which_files_are_looked_at(make: Make) -> None:
    key = "hbase.region.replica.storefile.refresh.memstore.multiplier"
    assert [memory_of_a_replica(make, {key: value}) for value in (2, 7, 9)] == [True, True, False]
