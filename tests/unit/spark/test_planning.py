"""Splits cover exactly what is wanted, carry where it is, and cost one scan of hbase:meta."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from metaclient import Connection
from metaclient.connection import connect_to
from metaclient.errors import LocationUnknown, TableNotFound
from metaclient.lookup.location_export import decode_locations
from metaclient.model import RegionInfo
from metaclient.runtime import ThreadRuntime
from metaclient.testing.scripted import ScriptedBackend
from spark_connector.conditions.pushdown import Pushed
from spark_connector.planning import splits as planning
from spark_connector.planning import table_facts
from spark_connector.planning.query import Query
from spark_connector.planning.splits import MB, TableSplit, plan, split_keys
from spark_connector.schema.ranges import KeyRange, intersection, rows_within, union
from spark_connector.settings.options import Options

CATALOG = json.dumps(
    {
        "table": {"namespace": "default", "name": "t"},
        "rowkey": "key",
        "columns": {
            "id": {"cf": "rowkey", "col": "key", "type": "binary"},
            "v": {"cf": "cf", "col": "v", "type": "binary"},
        },
    }
)


class SizedBackend(ScriptedBackend):
    """Also tells how big regions are: so many MB by start key."""

    sizes_mb: Mapping[bytes, float] = {}

    def region_sizes(self, table: bytes, deadline: float, servers: object = None) -> dict[bytes, int]:
        return {
            entry.region.name: int(self.sizes_mb.get(entry.region.start_key, 0) * MB)
            for entry in self.connection.regions(table)
        }


@pytest.fixture
def connected() -> Iterator[Any]:
    """connected(splits, servers=..., sizes=...) -> a connection to a table ``t`` cut at these keys."""
    made: list[Connection] = []

    def connect(splits: list[bytes], *, sizes: Mapping[bytes, float] | None = None, **backend: Any) -> Connection:
        runtime = ThreadRuntime()
        kind = ScriptedBackend if sizes is None else SizedBackend
        scripted = kind(runtime, meta_replicas=3, **backend)
        scripted.add_table(b"t", splits=splits)
        connection = connect_to(scripted, runtime=runtime, owns_runtime=True)
        if isinstance(scripted, SizedBackend):
            scripted.sizes_mb = sizes or {}
            scripted.connection = connection  # type: ignore[attr-defined]
        made.append(connection)
        return connection

    yield connect
    for connection in made:
        connection.close()


def query(pushed: Pushed | None = None, **options: object) -> Query:
    given = {"url": "thrift2://nowhere:1", "catalog": CATALOG, **{name: str(value) for name, value in options.items()}}
    made = Query.of(Options.parse(given))
    return made if pushed is None else replace(made, pushed=pushed)


def by_key(splits: list[TableSplit]) -> list[TableSplit]:
    return sorted(splits, key=lambda split: split.ranges[0].start if split.ranges else split.points[0])


def ten_regions() -> list[bytes]:
    return [b"%d" % number for number in range(1, 10)]


def test_scans_of_jobs_leave_the_servers_cache_alone_unless_told_otherwise() -> None:
    assert not query().scan(KeyRange(), 10).cache_blocks
    assert query(**{"hbase.spark.query.cacheblocks": True}).scan(KeyRange(), 10).cache_blocks


def test_one_split_a_region_and_together_they_are_the_table(connected: Any) -> None:
    splits = plan(connected(ten_regions()), query())
    assert len(splits) == 10
    assert union(piece for split in splits for piece in split.ranges) == (KeyRange(),)


def test_planning_reads_meta_once_and_never_at_the_primary(connected: Any) -> None:
    connection = connected([b"%03d" % number for number in range(1, 900)])
    plan(connection, query())
    reads = connection.stats()["meta"]["reads_by_replica"]
    assert sum(reads.values()) == 1
    assert "0" not in reads


def test_a_task_that_imports_its_hints_needs_no_lookup_and_no_registry(connected: Any) -> None:
    splits = plan(connected(ten_regions()), query())
    other = connected(ten_regions())
    for split in splits:
        other.import_locations(split.locations)
        for piece in split.ranges:
            other.locate("t", piece.start)
    assert other.stats()["meta"]["reads_by_replica"] == {}
    assert other.stats()["meta"]["refreshes"] == 0
    assert len(other.engine.reader.registry.known()) == 3


def test_hints_are_those_of_the_split_alone(connected: Any) -> None:
    for split in plan(connected(ten_regions()), query()):
        tables, replicas = decode_locations(split.locations)
        (entry,) = tables[b"t"]
        assert KeyRange(entry.region.start_key, entry.region.end_key) == split.ranges[0]
        assert entry.primary is not None
        assert entry.primary.server.host == split.host
        assert [replica.replica_id for replica in replicas] == [0, 1, 2]


def test_in_lookup_mode_nothing_is_shipped(connected: Any) -> None:
    splits = plan(connected(ten_regions()), query(**{"hbase.spark.locations": "lookup"}))
    assert {split.locations for split in splits} == {b""}


def test_a_table_that_is_gone_is_an_error_that_names_it(connected: Any) -> None:
    gone = CATALOG.replace('"t"', '"gone"')
    with pytest.raises(TableNotFound, match="gone"):
        plan(connected([]), query(catalog=gone))


# -- an hbase:meta with faults ---------------------------------------------------------------------------------------


def with_regions(connection: Connection, *bounds: tuple[bytes, bytes]) -> ScriptedBackend:
    """Make hbase:meta say that these are the regions of ``t``."""
    backend = connection._backend
    assert isinstance(backend, ScriptedBackend)
    with backend._lock:
        made = [RegionInfo(b"t", start, stop, number) for number, (start, stop) in enumerate(bounds, 1)]
        backend._tables[b"t"].regions[:] = [backend._placed(info, 0, 1) for info in made]
        backend._meta = None
    backend.runtime.sleep = lambda seconds: None  # type: ignore[method-assign]  # pauses between listings
    return backend


@pytest.mark.parametrize(
    "bounds",
    [
        ((b"", b"b"), (b"d", b"")),
        ((b"a", b"b"), (b"b", b"")),
        ((b"", b"b"), (b"b", b"d")),
        ((b"", b"b"), (b"b", b"d"), (b"d", b"e"), (b"f", b"")),
    ],
    ids=["in the middle", "at the start", "at the end", "behind a good part"],
)
@pytest.mark.parametrize("points", [(), (b"a", b"c", b"e1", b"z")], ids=["scan", "IN list"])
def test_a_hole_in_meta_fails_the_plan_instead_of_leaving_rows_out(
    connected: Any, bounds: tuple[tuple[bytes, bytes], ...], points: tuple[bytes, ...]
) -> None:
    """Every key of an IN list behind the hole was dropped, and no row of the hole was read, without an error."""
    connection = connected([b"b"])
    with_regions(connection, *bounds)
    pushed = Pushed(ranges=(), points=points) if points else None
    with pytest.raises(LocationUnknown, match=r"hbase:meta has a hole: no region of table 't' holds the rows from"):
        plan(connection, query(pushed))


@pytest.mark.parametrize(
    "bounds",
    [
        ((b"", b"c"), (b"b", b"")),
        ((b"", b"b"), (b"b", b"d"), (b"b", b"c"), (b"d", b"")),
        ((b"", b""), (b"b", b"")),
    ],
)
def test_regions_that_overlap_in_meta_fail_the_plan(connected: Any, bounds: tuple[tuple[bytes, bytes], ...]) -> None:
    connection = connected([b"b"])
    with_regions(connection, *bounds)
    with pytest.raises(LocationUnknown, match="overlap"):
        plan(connection, query())


def test_a_split_parent_without_daughters_fails_the_plan(connected: Any) -> None:
    connection = connected([b"b"])
    backend: ScriptedBackend = connection._backend
    backend.split(b"t", b"m", keeps_parent=True)
    assert len(plan(connection, query())) == 3
    with_regions(connection, (b"", b"b"))
    table_facts.forget(connection, b"t")
    with pytest.raises(LocationUnknown, match="hole"):
        plan(connection, query())


def test_a_hole_that_the_next_listing_does_not_have_does_not_fail_the_plan(connected: Any) -> None:
    """A region that is merged between two pages of a listing looks like one."""
    connection = connected([b"b"])
    backend = with_regions(connection, (b"", b"b"), (b"d", b""))
    pauses: list[float] = []

    def repaired(seconds: float) -> None:
        pauses.append(seconds)
        with_regions(connection, (b"", b"b"), (b"b", b""))

    backend.runtime.sleep = repaired  # type: ignore[method-assign]  # the pause is when it happens
    assert len(plan(connection, query())) == 2
    assert len(pauses) == 1


def test_a_region_without_a_server_is_planned_all_the_same(connected: Any) -> None:
    """It is on the move: the task finds it when it is open again."""
    connection = connected([b"b"])
    connection._backend.unplace(b"t", b"a")
    assert union(piece for split in plan(connection, query()) for piece in split.ranges) == (KeyRange(),)


def test_a_listing_for_people_shows_what_there_is(connected: Any) -> None:
    """Who repairs hbase:meta wants to see it: only ``complete`` refuses."""
    connection = connected([b"b"])
    with_regions(connection, (b"", b"b"), (b"d", b""))
    assert [entry.region.start_key for entry in connection.regions("t")] == [b"", b"d"]
    assert connection.warm_up("t") == 2


def test_nothing_to_read_is_one_empty_split(connected: Any) -> None:
    (only,) = plan(connected(ten_regions()), query(Pushed(ranges=(), points=())))
    assert only.is_empty


def test_ranges_outside_of_a_region_do_not_make_a_split_of_it(connected: Any) -> None:
    pushed = Pushed(ranges=(KeyRange(b"25", b"26"), KeyRange(b"3", b"41")))
    splits = by_key(plan(connected(ten_regions()), query(pushed)))
    assert [split.ranges for split in splits] == [
        (KeyRange(b"25", b"26"),),
        (KeyRange(b"3", b"4"),),
        (KeyRange(b"4", b"41"),),
    ]


def test_points_go_with_the_region_that_they_are_in(connected: Any) -> None:
    pushed = Pushed(ranges=(KeyRange(b"5", b"6"),), points=(b"11", b"12", b"77"))
    splits = by_key(plan(connected(ten_regions()), query(pushed, **{"hbase.spark.bulkget.size": 1})))
    assert [(split.points, split.ranges) for split in splits] == [
        ((b"11", b"12"), ()),
        ((), (KeyRange(b"5", b"6"),)),
        ((b"77",), ()),
    ]


def test_points_of_one_server_share_a_split_up_to_the_size_of_a_multi_get(connected: Any) -> None:
    pushed = Pushed(ranges=(), points=tuple(b"%d5" % number for number in range(1, 9)))
    splits = plan(connected(ten_regions(), servers=1), query(pushed, **{"hbase.spark.bulkget.size": 3}))
    assert sorted(len(split.points) for split in splits) == [2, 3, 3]


def test_no_more_splits_than_allowed_and_all_of_about_the_same_number(connected: Any) -> None:
    splits = plan(connected(ten_regions()), query(**{"hbase.spark.partition.max": 4}))
    assert sorted(split.regions for split in splits) == [2, 2, 3, 3]
    assert union(piece for split in splits for piece in split.ranges) == (KeyRange(),)


def test_a_limit_of_the_whole_read_is_one_split(connected: Any) -> None:
    (only,) = plan(connected(ten_regions()), query(), whole=True)
    assert only.regions == 10


def test_next_to_each_other_are_different_servers(connected: Any) -> None:
    splits = plan(connected([b"%03d" % number for number in range(1, 99)], servers=3), query())
    hosts = [split.host for split in splits]
    assert len(set(hosts)) == 3
    assert not any(a == b for a, b in pairwise(hosts[:60]))


def test_big_regions_are_cut_and_small_neighbours_on_one_server_merged(connected: Any) -> None:
    sizes = {b"": 10.0, b"1": 20.0, b"2": 2000.0, b"3": 100.0, b"4": 30.0}
    connection = connected([b"1", b"2", b"3", b"4"], sizes=sizes, servers=1)
    options = {"hbase.spark.partition.split.mb": 512, "hbase.spark.partition.min.mb": 64}
    splits = by_key(plan(connection, query(**options)))
    assert [split.regions for split in splits] == [2, 1, 1, 1, 1, 1, 1]
    assert splits[0].ranges == (KeyRange(b"", b"1"), KeyRange(b"1", b"2"))
    assert splits[0].size == 30 * MB
    assert union(piece for split in splits for piece in split.ranges) == (KeyRange(),)


def test_small_neighbours_on_different_servers_stay_apart(connected: Any) -> None:
    splits = plan(connected([b"1", b"2"], sizes={}, servers=3), query())
    assert len(splits) == 3


def test_small_regions_of_one_server_share_a_task_although_others_lie_between(connected: Any) -> None:
    connection = connected([b"%03d" % number for number in range(1, 30)], sizes={}, servers=3)
    splits = plan(connection, query())
    assert [split.regions for split in splits] == [10, 10, 10]
    for split in splits:
        locations = decode_locations(split.locations)[0][b"t"]
        assert {entry.primary.server.host for entry in locations if entry.primary} == {split.host}
    assert union(piece for split in splits for piece in split.ranges) == (KeyRange(),)


def test_small_regions_of_a_new_table_are_not_all_read_by_one_task(connected: Any) -> None:
    splits = plan(connected([b"%03d" % number for number in range(1, 100)], sizes={}, servers=1), query())
    assert sorted(split.regions for split in splits) == [4, 32, 32, 32]


def test_cost_of_merging_grows_with_the_number_of_regions_and_not_with_its_square(connected: Any) -> None:
    def calls(regions: int) -> int:
        pushed = Pushed(ranges=(), points=tuple(b"%05d" % number for number in range(regions)))
        borders = [b"%05d" % number for number in range(1, regions)]
        entries = connected(borders, servers=1).regions(b"t")
        made = 0

        def count(frame: object, event: str, argument: object) -> None:
            nonlocal made
            made += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            (part,) = planning._merged(planning._clipped(entries, query(pushed)), None, regions)
        finally:
            sys.setprofile(None)
        assert len(part.regions) == regions
        return made

    assert calls(800) < 2.5 * calls(400)


def test_splits_travel_small(connected: Any) -> None:
    """The locations of one region are some 210 bytes; those of the replicas of hbase:meta go along."""
    splits = plan(connected([b"%06d" % number for number in range(1, 1000)]), query())
    assert max(len(pickle.dumps(split)) for split in splits) < 600


keys_ = st.binary(max_size=6)


@given(keys_, keys_, st.integers(2, 50))
def test_split_keys_are_inside_and_in_order(start: bytes, stop: bytes, count: int) -> None:
    where = KeyRange(start, stop)
    if where.is_empty:
        return
    found = split_keys(where, count)
    assert found == sorted(set(found))
    assert len(found) < count
    assert all(where.contains(key) and key != start for key in found)


@given(
    st.sets(st.binary(min_size=1, max_size=2), max_size=8),
    st.lists(st.tuples(st.binary(max_size=2), st.binary(max_size=2)), max_size=6),
    st.sets(st.binary(min_size=1, max_size=3), max_size=10),
    st.integers(1, 5),
)
def test_every_wanted_row_is_in_exactly_one_split(
    borders: set[bytes], wanted: list[tuple[bytes, bytes]], rows: set[bytes], count: int
) -> None:
    ranges = union(KeyRange(*pair) for pair in wanted)
    points = tuple(sorted(rows - set(rows_within(rows, ranges))))
    runtime = ThreadRuntime()
    backend = ScriptedBackend(runtime, meta_replicas=2)
    backend.add_table(b"t", splits=sorted(borders))
    with connect_to(backend, runtime=runtime, owns_runtime=True) as connection:
        made = query(Pushed(ranges=ranges, points=points), **{"hbase.spark.partition.max": count})
        splits = plan(connection, made)
    assert len(splits) <= max(count, 1)
    assert union(piece for split in splits for piece in split.ranges) == ranges
    covered = [piece for split in splits for piece in split.ranges]
    for number, piece in enumerate(covered):
        assert not intersection([piece], covered[number + 1 :]) if covered[number + 1 :] else True
    assert sorted(row for split in splits for row in split.points) == list(points)


def test_a_hundred_thousand_regions_are_planned_in_linear_time(connected: Any) -> None:
    """Not a timing: the pieces of a split must not be copied for each region that joins it."""
    part = planning._Part((KeyRange(b"a", b"b"),), (), (), "rs1")
    joined = planning._chunked([part] * 100_000, 1)
    assert len(joined[0].ranges) == 100_000
