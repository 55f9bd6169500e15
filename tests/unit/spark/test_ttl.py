"""``hbase.spark.write.ttl``: cells that live for so long, where the backend can; refused where it cannot."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="needs the extra 'spark'")

import pyarrow as pa

from metaclient import Unsupported, connect
from metaclient.errors import ConfigError, MetaClientError
from metaclient.model import Cell, Put
from metaclient.runtime import SimRuntime
from metaclient.wire.thrift.structs import put_of
from metaclient_fake import FakeCluster
from metaclient_thrift.requests import encode_put2
from spark_connector.schema.catalog import Catalog
from spark_connector.settings.options import Options
from spark_connector.writing import destination
from spark_connector.writing.mutations import pages_from_batch, rows_from_batch

OPTIONS = Options.parse({"hbase.spark.write.ttl": "60000"})
WITH_TTL = Put(b"r", (Cell(b"cf:a", 5, b"x"),), ttl_ms=60_000)


def test_puts_carry_it() -> None:
    catalog = Catalog.from_mapping("t", "id STRING :id, a STRING cf:a")
    batch = pa.record_batch([pa.array(["r"]), pa.array(["x"])], names=["id", "a"])
    assert list(rows_from_batch(batch, catalog, OPTIONS, 5)) == [WITH_TTL]


def test_thrift_2_sends_it_as_hbase_reads_it() -> None:
    """Mutation.getTTL is the attribute _ttl, a Java long."""
    assert put_of(WITH_TTL).attributes == {b"_ttl": b"\0\0\0\0\0\0\xea\x60"}
    assert b"_ttl\0\0\0\x08\0\0\0\0\0\0\xea\x60" in encode_put2(b"t", WITH_TTL)
    assert put_of(Put(b"r", WITH_TTL.cells)).attributes is None


def test_a_backend_that_cannot_is_told_before_anything_is_written() -> None:
    with SimRuntime(seed=1) as runtime, FakeCluster(runtime=runtime) as cluster, cluster.connect() as connection:
        connection.create_table("t", {"cf": {}})
        with pytest.raises(Unsupported, match=r"hbase\.spark\.write\.ttl.*use thrift2:"):
            destination.prepare(connection, b"t", [b"cf"], OPTIONS)


def test_the_fake_over_thrift_2_refuses_it_rather_than_forget_it() -> None:
    with FakeCluster(servers=1) as cluster, connect(cluster.serve().thrift2_url, retries=0) as connection:
        connection.create_table("t", {"cf": {}})
        destination.prepare(connection, b"t", [b"cf"], OPTIONS)
        with pytest.raises(MetaClientError, match="no TTL of single cells"):
            connection.engine.operations.mutate(b"t", WITH_TTL)
        assert connection.table("t").row(b"r") == {}


def test_a_column_has_a_ttl_of_its_own_in_puts_and_in_pages() -> None:
    catalog = Catalog.parse(
        {
            "table": {"name": "t"},
            "rowkey": "id",
            "columns": {
                "id": {"cf": "rowkey", "col": "id", "type": "string"},
                "a": {"cf": "cf", "col": "a", "type": "string"},
                "b": {"cf": "cf", "col": "b", "type": "string", "ttl": 1000},
                "c": {"cf": "cf", "col": "c", "type": "string", "ttl": "1000"},
            },
        }
    )
    assert catalog.has_ttl
    batch = pa.record_batch(
        [pa.array(["r", "q"]), pa.array(["x", None]), pa.array(["y", "z"]), pa.array(["w", None])],
        names=["id", "a", "b", "c"],
    )
    expected = [
        WITH_TTL,
        Put(b"r", (Cell(b"cf:b", 5, b"y"), Cell(b"cf:c", 5, b"w")), ttl_ms=1000),
        Put(b"q", (Cell(b"cf:b", 5, b"z"),), ttl_ms=1000),
    ]
    assert list(rows_from_batch(batch, catalog, OPTIONS, 5)) == expected
    pages = pages_from_batch(batch, catalog, OPTIONS, 5)
    assert pages is not None
    found = [put for page in pages for put in page.puts()]
    assert len(found) == len(expected)
    assert all(put in expected for put in found)
    without = pages_from_batch(batch, catalog, Options(), 5)
    assert without is not None
    assert {page.ttl_ms for page in without} == {None, 1000}


@pytest.mark.parametrize("ttl", [0, -1, "1 day", True, 2**63])
def test_a_ttl_that_is_no_number_of_milliseconds_is_refused(ttl: object) -> None:
    columns = {"id": {"cf": "rowkey", "col": "id", "type": "string"}}
    columns["a"] = {"cf": "cf", "col": "a", "type": "string", "ttl": ttl}  # type: ignore[dict-item]  # the test's point
    with pytest.raises(ConfigError, match=r"column a: ttl is .*, not a number of milliseconds"):
        Catalog.parse({"table": {"name": "t"}, "rowkey": "id", "columns": columns})


def test_a_ttl_of_a_part_of_the_row_key_is_refused() -> None:
    columns = {"id": {"cf": "rowkey", "col": "id", "type": "string", "ttl": 5}}
    columns["a"] = {"cf": "cf", "col": "a", "type": "string"}
    with pytest.raises(ConfigError, match="ttl is for cells"):
        Catalog.parse({"table": {"name": "t"}, "rowkey": "id", "columns": columns})


def test_a_backend_without_ttls_refuses_a_catalog_with_one() -> None:
    with SimRuntime(seed=1) as runtime, FakeCluster(runtime=runtime) as cluster, cluster.connect() as connection:
        connection.create_table("t", {"cf": {}})
        with pytest.raises(Unsupported, match="ttl in the catalog"):
            destination.prepare(connection, b"t", [b"cf"], Options(), has_ttl=True)
