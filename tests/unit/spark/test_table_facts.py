"""Plans of one session share listings and sizes; sizes come from the servers of the regions and not from the master."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")

import metaclient
from metaclient import Connection
from metaclient.connection import connect_to
from metaclient.model import ServerName
from metaclient.runtime import ThreadRuntime
from metaclient.testing.scripted import ScriptedBackend
from metaclient_fake import FakeCluster
from spark_connector.planning import table_facts


class SizedBackend(ScriptedBackend):
    """Counts the questions for sizes, and knows the sizes of the regions that it had at the beginning."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.asked: list[list[ServerName]] = []
        self.sizes: dict[bytes, int] = {}

    def region_sizes(self, table: bytes, deadline: float, servers: Any = None) -> dict[bytes, int]:
        self.asked.append(list(servers))
        return self.sizes


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """clock(seconds) advances the time that the module reads."""
    passed = [0.0]
    monkeypatch.setattr(table_facts._runtime, "now", lambda: passed[0])

    def advance(seconds: float) -> None:
        passed[0] += seconds

    return advance


@pytest.fixture
def connection() -> Iterator[Connection]:
    runtime = ThreadRuntime()
    backend = SizedBackend(runtime, servers=3, meta_replicas=2)
    backend.add_table(b"t", splits=[b"%d" % number for number in range(1, 9)])
    with connect_to(backend, runtime=runtime, owns_runtime=True) as made:
        backend.sizes = {entry.region.name: 7 for entry in made.regions("t")}
        yield made


def _meta_reads(connection: Connection) -> int:
    return sum(connection.stats()["meta"]["reads_by_replica"].values())


def test_plans_that_follow_each_other_share_one_listing(connection: Connection, clock: Callable[[float], None]) -> None:
    before = _meta_reads(connection)
    assert table_facts.regions_of(connection, b"t") is table_facts.regions_of(connection, b"t")
    assert _meta_reads(connection) == before + 1
    clock(table_facts.LISTING_S + 1)
    table_facts.regions_of(connection, b"t")
    assert _meta_reads(connection) == before + 2


def test_sizes_are_asked_once_from_all_servers_of_the_table(
    connection: Connection, clock: Callable[[float], None]
) -> None:
    backend: Any = connection.engine.backend
    regions = connection.regions("t")
    for _ in range(3):
        assert len(table_facts.sizes_of(connection, b"t", regions)) == 9
        clock(table_facts.SIZES_S / 4)
    assert len(backend.asked) == 1
    assert set(backend.asked[0]) == {entry.primary.server for entry in regions if entry.primary is not None}
    assert len(backend.asked[0]) == 3
    clock(table_facts.SIZES_S)
    table_facts.sizes_of(connection, b"t", regions)
    assert len(backend.asked) == 2


def test_sizes_are_asked_again_when_many_regions_are_new(
    connection: Connection, clock: Callable[[float], None]
) -> None:
    backend: Any = connection.engine.backend
    table_facts.sizes_of(connection, b"t", connection.regions("t"))
    for row in (b"05", b"15", b"25"):
        backend.split(b"t", row)
    regions = connection.regions("t")
    table_facts.sizes_of(connection, b"t", regions)
    assert len(backend.asked) == 1, "not at once: each plan would ask while regions split"
    clock(table_facts.SIZES_PAUSE_S + 1)
    table_facts.sizes_of(connection, b"t", regions)
    assert len(backend.asked) == 2


def test_the_tables_that_are_remembered_are_bounded(connection: Connection) -> None:
    for number in range(2 * table_facts.TABLES_MAX):
        table_facts._facts(connection, b"%d" % number)
    assert len(table_facts._known[connection]) == table_facts.TABLES_MAX


def test_sizes_of_a_served_cluster_come_from_its_region_servers() -> None:
    """Native RPC: GetRegionLoad at each server; a server that is gone leaves its regions out."""
    with FakeCluster(servers=3) as cluster:
        front = cluster.serve(thrift1_port=None, thrift2_port=None, rpc_port=0)
        with metaclient.connect(str(front.rpc_url)) as connection:
            connection.create_table("t", {"cf": {}}, splits=[b"h", b"p"])
            connection.table("t").put(b"a", {b"cf:a": b"x" * 100_000})
            backend: Any = connection.engine.backend
            deadline = connection.engine.deadline()
            regions = connection.regions("t")
            servers = sorted({entry.primary.server for entry in regions if entry.primary is not None})
            of_all = backend.region_sizes(b"t", deadline, servers)
            assert of_all == backend.region_sizes(b"t", deadline)
            assert set(of_all) == {entry.region.name for entry in regions}
            assert of_all[regions[0].region.name] >= 1 << 20
            gone = ServerName("127.0.0.1", 1, 1)
            of_some = backend.region_sizes(b"t", deadline, [gone, servers[0]])
            assert set(of_some) == {
                entry.region.name
                for entry in regions
                if entry.primary is not None and entry.primary.server == servers[0]
            }
