"""A task imports only the blocks of its rows, and a worker process imports no block twice."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")

import metaclient
from metaclient import Connection
from metaclient.lookup.location_export import encode_locations
from metaclient.model import RegionInfo, RegionLocation, RegionLocations, ServerName
from spark_connector import clients
from spark_connector.planning.location_map import BLOCK_REGIONS, Learner, LocationMap, ship_locations
from spark_connector.schema.ranges import KeyRange
from spark_connector.settings.options import Options

REGIONS = 4 * BLOCK_REGIONS
TABLE = b"t"


def regions(count: int = REGIONS) -> list[RegionLocations]:
    keys = [b"", *(b"%06d" % number for number in range(1, count)), b""]
    found = []
    for number in range(count):
        region = RegionInfo(TABLE, keys[number], keys[number + 1], 1_700_000_000_000 + number)
        place = RegionLocation(region, ServerName(f"rs{number % 7}.example", 16020, 1_700_000_000_123), 3)
        found.append(RegionLocations(region, (place,)))
    return found


@pytest.fixture
def connection() -> Iterator[Connection]:
    with metaclient.connect("scripted:") as made:
        yield made


@pytest.fixture
def imports(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of regions of each import."""
    made: list[int] = []
    real = connection.import_locations

    def counted(data: bytes) -> int:
        made.append(real(data))
        return made[-1]

    monkeypatch.setattr(connection, "import_locations", counted)
    return made


def test_a_task_imports_the_blocks_of_its_rows_only(connection: Connection, imports: list[int]) -> None:
    learner = Learner(connection, LocationMap.of(TABLE, regions()))
    rows = [b"%06d" % number for number in range(BLOCK_REGIONS + 3, BLOCK_REGIONS + 90)]
    learner.learn_rows(rows)
    assert imports == [BLOCK_REGIONS]
    for row in rows:
        place = connection.engine.cached_location(TABLE, row)
        assert place is not None
        assert place.region.start_key == row
    assert connection.engine.cached_location(TABLE, b"000001") is None


def test_the_next_task_of_a_worker_imports_nothing_again(connection: Connection, imports: list[int]) -> None:
    shipped = LocationMap.of(TABLE, regions())
    for _ in range(3):  # tasks: each gets its own copy of the map
        learner = Learner(connection, pickle.loads(pickle.dumps(shipped)))
        assert learner.learn(b"000001")
        assert not learner.learn(b"000002")
    assert imports == [BLOCK_REGIONS]


def test_blocks_are_imported_again_after_the_cache_has_evicted_regions(
    connection: Connection, imports: list[int]
) -> None:
    shipped = LocationMap.of(TABLE, regions())
    Learner(connection, shipped).learn(b"000001")
    connection.engine.locator.cache.evictions += 1
    Learner(connection, shipped).learn(b"000001")
    assert imports == [BLOCK_REGIONS, BLOCK_REGIONS]


def test_the_digests_that_a_worker_remembers_are_bounded(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "BLOCKS_MAX", 5)
    for entry in regions(20):
        clients.take_block(connection, encode_locations({TABLE: [entry]}))
    assert len(clients._taken[connection].digests) == 5


@pytest.mark.parametrize(
    ("where", "blocks"),
    [
        (KeyRange(), 4),
        (KeyRange(b"", b"000001"), 1),
        (KeyRange(b"%06d" % (BLOCK_REGIONS - 1), b"%06d" % BLOCK_REGIONS), 1),
        (KeyRange(b"%06d" % (BLOCK_REGIONS - 1), b"%06d\0" % BLOCK_REGIONS), 2),
        (KeyRange(b"%06d" % (3 * BLOCK_REGIONS)), 1),
    ],
)
def test_a_range_imports_the_blocks_that_it_touches(
    connection: Connection, imports: list[int], where: KeyRange, blocks: int
) -> None:
    Learner(connection, LocationMap.of(TABLE, regions())).learn_ranges([where])
    assert len(imports) == blocks


def test_a_task_that_ran_before_does_not_trust_the_map(connection: Connection, imports: list[int]) -> None:
    connection.create_table("t", {"cf": {}}, splits=[b"5"])
    connection.engine.runtime.sleep = lambda seconds: None  # type: ignore[method-assign]  # the pause is not tested
    learner = Learner(connection, LocationMap.of(TABLE, regions(300)), attempt=1)
    assert not learner.learn(b"000001")
    assert imports == []
    place = connection.engine.cached_location(TABLE, b"000001")
    assert place is not None
    assert place.region.end_key == b"5"


def test_a_task_that_ran_before_does_not_list_a_table_of_many_regions(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.engine.runtime.sleep = lambda seconds: None  # type: ignore[method-assign]  # the pause is not tested
    monkeypatch.setattr(connection, "warm_up", lambda table: pytest.fail("it would read all regions"))
    Learner(connection, LocationMap.of(TABLE, regions(3_000)), attempt=1)


def test_without_shipped_locations_a_task_reads_them(connection: Connection) -> None:
    connection.create_table("t", {"cf": {}}, splits=[b"5"])
    options = Options.parse({"url": "thrift2://x:1", "hbase.spark.locations": "lookup"})
    shipped = ship_locations(connection, TABLE, options)
    assert not shipped.blocks
    learner = Learner(connection, shipped)
    assert not learner.learn(b"x")
    assert connection.engine.cached_location(TABLE, b"x") is not None


def test_a_map_is_a_tenth_of_the_exported_locations() -> None:
    listed = regions(5_000)
    shipped: Any = LocationMap.of(TABLE, listed)
    assert 6 * sum(map(len, shipped.blocks)) < len(encode_locations({TABLE: listed}))
