"""``hbase.spark.write.ttl``: cells that live for so long, where the backend can; refused where it cannot."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="needs the extra 'spark'")

import pyarrow as pa

from metaclient import Unsupported, connect
from metaclient.errors import MetaClientError
from metaclient.model import Cell, Put
from metaclient.runtime import SimRuntime
from metaclient.wire.thrift.structs import put_of
from metaclient_fake import FakeCluster
from metaclient_thrift.requests import encode_put2
from spark_connector.schema.catalog import Catalog
from spark_connector.settings.options import Options
from spark_connector.writing import destination
from spark_connector.writing.mutations import rows_from_batch

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
