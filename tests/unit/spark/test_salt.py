"""Salted keys: Phoenix's bytes, rows that are found by key, and conditions that still prune."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="needs the extra 'spark'")

import pyarrow as pa

from metaclient.columns.codecs.base import BadValueError
from metaclient.columns.decoding import BadCellError
from metaclient.columns.rowkey import join_parts, split_key
from metaclient.columns.salt import salt_of, salted, salted_array, salts_of
from metaclient.errors import ConfigError
from metaclient_fake import FakeCluster
from spark_connector import clients
from spark_connector.planning.query import Query
from spark_connector.planning.splits import plan
from spark_connector.reading.split_reader import read_split
from spark_connector.schema.catalog import Catalog
from spark_connector.schema.ranges import EVERYTHING, KeyRange, rows_within
from spark_connector.schema.salt import salted_ranges
from spark_connector.settings.options import Options
from spark_connector.writing.destination import region_splits
from spark_connector.writing.mutations import pages_from_batch, rows_from_batch

COLUMNS = {
    "id": {"cf": "rowkey", "col": "id", "type": "string"},
    "n": {"cf": "cf", "col": "n", "type": "int"},
}
DOCUMENT: dict[str, Any] = {"table": {"name": "t"}, "rowkey": "id", "salt": 16, "columns": COLUMNS}
CATALOG = Catalog.parse(DOCUMENT)
KEYS = st.binary(min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("key", "buckets", "expected"),
    [
        (b"", 16, 1),  # Arrays.hashCode of no byte is 1
        (b"a", 16, (31 + 97) % 16),
        (b"\xff", 16, (31 - 1) % 16),  # Java's bytes have a sign
        (b"abcdefgh", 7, 1831577),
    ],
)
def test_the_salt_is_javas_hash_modulo_the_buckets(key: bytes, buckets: int, expected: int) -> None:
    if expected > 255:  # computed with Java's 32 bits
        hashed = 1
        for byte in key:
            hashed = (31 * hashed + byte) & 0xFFFFFFFF
        expected = abs(hashed - (1 << 32) if hashed >> 31 else hashed) % buckets
    assert salt_of(key, buckets) == expected


@given(st.lists(KEYS, max_size=20), st.sampled_from([1, 2, 16, 255, 256]))
def test_arrays_are_salted_as_single_keys_are(rows: list[bytes], buckets: int) -> None:
    keys = pa.array(rows, pa.large_binary())
    assert salted_array(keys, buckets).to_pylist() == [salted(row, buckets) for row in rows]
    part = pa.array([b"before", *rows], pa.binary()).slice(1)
    assert salts_of(part, buckets).tolist() == [salt_of(row, buckets) for row in rows]


@given(st.lists(KEYS, max_size=20), KEYS, KEYS, st.sampled_from([1, 2, 16, 256]))
def test_the_ranges_of_the_buckets_have_the_rows_of_the_range(
    rows: list[bytes], start: bytes, stop: bytes, buckets: int
) -> None:
    for where in (KeyRange(start, stop), KeyRange(start), KeyRange(b"", stop)):
        found = salted_ranges([where], buckets)
        inside = rows_within([salted(row, buckets) for row in rows], found)
        assert inside == [salted(row, buckets) for row in rows if where.contains(row)]


def test_all_keys_are_all_rows() -> None:
    """A row with a salt that the catalog does not have must be noticed, not left out."""
    assert salted_ranges(EVERYTHING, 16) == EVERYTHING


def test_parts_are_joined_and_split_behind_the_salt() -> None:
    row = join_parts(CATALOG.key, ["user1"], 16)
    assert row == bytes((salt_of(b"user1", 16),)) + b"user1"
    assert split_key(CATALOG.key, row, 16) == (b"user1",)
    with pytest.raises(BadValueError, match="salt of 16 buckets"):
        split_key(CATALOG.key, b"\x11" + row[1:], 16)


@pytest.mark.parametrize("salt", [0, 257, "many", True, -3])
def test_a_salt_that_is_no_number_of_buckets_is_refused(salt: object) -> None:
    with pytest.raises(ConfigError, match=r"salt is .*, not a number of buckets \(1 to 256\)"):
        Catalog.parse({**DOCUMENT, "salt": salt})


def test_pages_and_rows_of_a_write_have_salted_keys() -> None:
    batch = pa.record_batch([pa.array(["user1", "user2"]), pa.array([1, 2], pa.int32())], names=["id", "n"])
    expected = [salted(b"user1", 16), salted(b"user2", 16)]
    pages = pages_from_batch(batch, CATALOG, Options(), 7)
    assert pages is not None
    assert pages[0].rows.to_pylist() == expected
    assert [put.row for put in rows_from_batch(batch, CATALOG, Options(), 7)] == expected
    too_long = pa.record_batch([pa.array(["x" * 32767]), pa.array([1], pa.int32())], names=["id", "n"])
    with pytest.raises(BadValueError, match="1 to 32766 bytes"):
        pages_from_batch(too_long, CATALOG, Options(), 7)


def test_a_new_table_is_split_between_buckets() -> None:
    options = Options.parse({"newtable": "16"})
    assert region_splits(options, 16) == [bytes((number,)) for number in range(1, 16)]
    with pytest.raises(ConfigError, match="between its 16 salt buckets"):
        region_splits(Options.parse({"newtable": "17"}), 16)
    with pytest.raises(ConfigError, match="regionStart"):
        region_splits(Options.parse({"newtable": "4", "regionStart": "b"}), 16)


# -- a served table ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with FakeCluster(servers=4) as cluster:
        with cluster.connect() as connection:
            connection.create_table("t", {"cf": {}}, splits=[bytes((number,)) for number in range(1, 16)])
            with connection.table("t").batch() as batch:
                for number in range(400):
                    row = join_parts(CATALOG.key, [f"user{number:03d}"], 16)
                    batch.put(row, {b"cf:n": number.to_bytes(4)})
        yield str(cluster.serve(thrift1_port=None).thrift2_url)
        clients.close_all()


def _options(url: str, **more: str) -> Options:
    import json

    given = {name.replace("_", "."): value for name, value in more.items()}
    return Options.parse({"url": url, "catalog": json.dumps(DOCUMENT), **given})


def _read(options: Options) -> tuple[list[str], Query, int]:
    query = Query.of(options)
    with clients.lease(options) as connection:
        splits = pickle.loads(pickle.dumps(plan(connection, query)))
        batches = [batch for split in splits for batch in read_split(connection, query, split)]
    return sorted(one for batch in batches for one in batch.column("id").to_pylist()), query, len(splits)


def test_a_range_of_keys_is_read_from_all_buckets_and_nothing_else(url: str) -> None:
    """Neighbouring keys come from many regions, and the ranges have exactly the rows of the condition."""
    found, query, splits = _read(_options(url, hbase_spark_query_where="id BETWEEN 'user100' AND 'user199'"))
    assert found == [f"user{number}" for number in range(100, 200)]
    assert len(query.pushed.ranges) == 16
    assert splits == 16


def test_a_prefix_is_read_from_all_buckets(url: str) -> None:
    expected = [f"user{number:03d}" for number in range(30, 40)]
    for options in (
        {"hbase_spark_query_where": "id LIKE 'user03%'"},
        {"hbase_spark_query_prefix": "user03"},
        {"hbase_spark_query_startrow": "user03", "hbase_spark_query_stoprow": "user04"},
    ):
        found, query, _ = _read(_options(url, **options))
        assert found == expected
        assert all(len(where.start) == 1 + len("user03") for where in query.pushed.ranges)


def test_a_single_key_is_one_get_and_not_one_per_bucket(url: str) -> None:
    found, query, splits = _read(_options(url, hbase_spark_query_where="id IN ('user007', 'user008', 'none')"))
    assert found == ["user007", "user008"]
    assert query.pushed.points == tuple(sorted(salted(key, 16) for key in (b"user007", b"user008", b"none")))
    assert not query.pushed.ranges
    assert splits <= 3


def test_a_catalog_with_another_number_of_buckets_is_an_error_and_not_missing_rows(url: str) -> None:
    import json

    for salt in (8, 32):
        options = Options.parse({"url": url, "catalog": json.dumps({**DOCUMENT, "salt": salt})})
        with pytest.raises(BadCellError, match=f"salt of {salt} buckets"):
            _read(options)
