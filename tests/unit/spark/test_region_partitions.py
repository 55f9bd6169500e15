"""Partitions that follow regions: one server each, and numbers that Spark's hash leads to."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

import pyarrow as pa

from metaclient.model import RegionInfo, RegionLocation, RegionLocations, ServerName
from spark_connector.jobs.region_partitions import _murmur3, codes_of, numbers_of
from spark_connector.schema.catalog import Catalog
from spark_connector.writing.mutations import row_keys_of


def regions(servers: list[int | None]) -> list[RegionLocations]:
    """A region on each of these servers; None: on no server."""
    found = []
    for index, server in enumerate(servers):
        region = RegionInfo(b"t", b"%04d" % index if index else b"", b"", index)
        place = None if server is None else RegionLocation(region, ServerName(f"rs{server}", 1, 1), 1)
        found.append(RegionLocations(region, (place,)))
    return found


@given(st.lists(st.one_of(st.none(), st.integers(0, 5)), min_size=1, max_size=60), st.integers(1, 40))
def test_a_partition_has_regions_of_one_server_and_no_number_is_left_out(
    servers: list[int | None], wanted: int
) -> None:
    numbers = numbers_of(regions(servers), wanted)
    assert set(numbers) == set(range(max(numbers) + 1))
    by_number: dict[int, set[int | None]] = {}
    for number, server in zip(numbers, servers, strict=True):
        by_number.setdefault(number, set()).add(server)
    assert all(len(found) == 1 for found in by_number.values())
    assert len(by_number) <= wanted + len(set(servers))


def test_partitions_of_a_server_have_about_as_many_regions_each() -> None:
    numbers = numbers_of(regions([0, 1] * 100), 10)
    assert sorted(Counter(numbers).values()) == [20] * 10
    assert numbers[:40:2] == [0] * 20, "neighbours stay together"


def test_the_hash_is_sparks() -> None:
    """``SELECT hash(0), hash(1), hash(-1), hash(42)`` in Spark 4.3."""
    import numpy as np

    assert _murmur3(np.array([0, 1, -1, 42], dtype=np.int32)).tolist() == [933211791, -559580957, -1604776387, 29417773]


@pytest.mark.parametrize("count", [1, 2, 3, 200, 1000])
def test_each_code_leads_to_its_partition(count: int) -> None:
    import numpy as np

    codes = codes_of(count)
    assert len(codes) == count
    assert [int(each) % count for each in _murmur3(np.array(codes, dtype=np.int32))] == list(range(count))


def test_row_keys_of_a_batch_are_none_where_there_is_no_key() -> None:
    one = Catalog.from_mapping("t", "id STRING :id, a STRING cf:a")
    assert row_keys_of([pa.array(["b", "a"])], one) == [b"b", b"a"]
    assert row_keys_of([pa.array(["b", None, ""])], one) == [b"b", None, None]
    two = Catalog.from_mapping("t", "k STRING :k, id INT :id, a STRING cf:a")
    assert row_keys_of([pa.array(["b", "a\0"]), pa.array([1, 2], pa.int32())], two) == [b"b\0\0\0\0\1", None]
