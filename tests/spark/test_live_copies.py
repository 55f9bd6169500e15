"""A table is copied by Spark from a real HBase to the fake and back, and the copies are compared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import metaclient
import spark_connector as hbase_spark
from metaclient_fake import FakeCluster
from metaclient_local_hbase import LocalHBase

pytestmark = [pytest.mark.live, pytest.mark.essential]

TABLE = "spark_live_copies"
BACK = "spark_live_copies_back"
ROWS = 300


@pytest.fixture
def filled(real_hbase: LocalHBase) -> Iterator[str]:
    """The url of a real cluster with a table of three regions, two families, versions and deletes."""
    with metaclient.connect(real_hbase.native_url) as connection:
        connection.create_table(TABLE, {"cf": {}, "other": {}}, splits=[b"r100", b"r200"])
        table = connection.table(TABLE)
        with table.batch() as batch:
            for number in range(ROWS):
                batch.put(b"r%03d" % number, {b"cf:a": b"%d" % number, b"other:b": b"x" * (number % 7)})
        table.delete(b"r150")
        table.put(b"r151", {b"cf:a": b"second"})
        yield real_hbase.native_url
        for name in (TABLE, BACK):
            if name.encode() in connection.tables():
                connection.delete_table(name, disable=True)


def test_copy_between_a_real_cluster_and_the_fake_has_no_bad_row_and_a_planted_one_is_found(
    spark: Any, filled: str
) -> None:
    with FakeCluster(servers=2) as fake, fake.serve(rpc_port=0) as front, fake.connect() as there:
        copied = hbase_spark.copy_table(spark, TABLE, url=filled, to_url=front.rpc_url, create=True)
        assert copied.as_dict()["rows"] == ROWS - 1
        assert len(there.regions(TABLE)) == 3
        checked = hbase_spark.verify_replication(spark, TABLE, url=filled, peer_url=front.rpc_url)
        assert (checked.counters["GOODROWS"], checked.counters["BADROWS"]) == (ROWS - 1, 0)

        hbase_spark.copy_table(spark, TABLE, url=front.rpc_url, to_table=BACK, to_url=filled, create=True)
        back = hbase_spark.verify_replication(
            spark, TABLE, url=front.rpc_url, peer_url=filled, peer_table=BACK, versions=1
        )
        assert (back.counters["GOODROWS"], back.counters["BADROWS"]) == (ROWS - 1, 0)

        there.table(TABLE).put(b"r042", {b"cf:a": b"planted"})
        there.table(TABLE).delete(b"r250")
        there.table(TABLE).put(b"r999", {b"cf:a": b"more"})
        found = hbase_spark.verify_replication(spark, TABLE, url=filled, peer_url=front.rpc_url).counters
        assert found["BADROWS"] == 3
        assert found["CONTENT_DIFFERENT_ROWS"] == 1
        assert found["ONLY_IN_SOURCE_TABLE_ROWS"] == 1
        assert found["ONLY_IN_PEER_TABLE_ROWS"] == 1
