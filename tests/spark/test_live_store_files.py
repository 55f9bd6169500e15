"""Bulk loads into a real HBase and reads of its snapshots, by Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import metaclient
import spark_connector as hbase_spark
from metaclient.errors import ConfigError
from metaclient_local_hbase import LocalHBase

pytestmark = pytest.mark.live

TABLES = ("spark_loaded", "spark_put")
REGIONS = 3
ROWS = 5000
WAIT_S = 240.0


def catalog_of(table: str) -> str:
    columns = {f"c{number}": {"cf": "d", "col": f"c{number}", "type": "string"} for number in range(3)}
    key = {"cf": "rowkey", "col": "key", "type": "string"}
    return json.dumps({"table": {"name": table}, "rowkey": "key", "columns": {"id": key, **columns}})


def requests_of(connection: Any) -> dict[bytes, int]:
    """Return the reads of each region of the tables, by the region servers: the master's numbers are seconds old."""
    admin, deadline = connection.engine.backend.admin, connection.engine.runtime.now() + WAIT_S
    servers = [load.server for load in admin.cluster_status(deadline).live_servers]
    regions = [one for table in TABLES for one in admin._loads_of(table.encode(), servers, deadline)]
    return {one.region_name: one.reads for one in regions}


def test_load_equals_puts_and_its_snapshot_needs_no_server(spark: Any, real_hbase: LocalHBase, tmp_path: Path) -> None:
    url, root = real_hbase.native_url, f"file://{real_hbase.folder}/data/hbase"
    df = spark.range(0, ROWS, 1, 4).selectExpr(
        "reverse(cast(id as string)) id", "concat('a', id) c0", "if(id % 3 = 0, null, concat('b', id)) c1", "'x' c2"
    )
    with metaclient.connect(url) as connection:
        for table in TABLES:
            connection.create_table(table, {"d": {"bloom_filter_type": "ROW"}}, splits=[b"3", b"6"])
        given = {"url": url, "hbase_spark_write_timestamp": 1_700_000_000_000}
        done = hbase_spark.bulk_load(df, catalog_of("spark_loaded"), staging=f"file://{tmp_path}", **given)
        hbase_spark.write(df, catalog_of("spark_put"), **given)
        assert (done.rows, done.files, done.regions) == (ROWS, REGIONS, REGIONS)
        report = hbase_spark.verify_replication(spark, "spark_loaded", url=url, peer_table="spark_put", versions=3)
        assert (report.counters["GOODROWS"], report.counters["BADROWS"]) == (ROWS, 0)

        admin: Any = connection.engine.backend.admin  # type: ignore[attr-defined]  # native RPC has it
        for table in TABLES:
            admin.snapshot(f"{table}_1", table.encode(), connection.engine.runtime.now() + WAIT_S)
        before = requests_of(connection)
        assert len(before) == len(TABLES) * REGIONS
        assert sum(before.values()) >= ROWS, "the verification has read both tables"
        for table in TABLES:
            found = hbase_spark.snapshot(spark, f"{table}_1", root=root, catalog=catalog_of(table))
            assert found.exceptAll(df).count() == df.exceptAll(found).count() == 0
            chosen = hbase_spark.snapshot(
                spark,
                f"{table}_1",
                root=root,
                catalog=catalog_of(table),
                columns=["c0"],
                where="id BETWEEN '31' AND '4'",
            )
            assert chosen.columns == ["c0"]
            assert chosen.count() == df.where("id BETWEEN '31' AND '4'").count()
        assert requests_of(connection) == before
        with pytest.raises(ConfigError, match="is of table 'spark_put'"):
            hbase_spark.snapshot(spark, "spark_put_1", root=root, catalog=catalog_of("spark_loaded"))
        as_map = hbase_spark.snapshot(spark, "spark_put_1", root=root)
        assert as_map.columns == ["row", "columns"]
        for table in TABLES:
            admin.delete_snapshot(f"{table}_1", connection.engine.runtime.now() + WAIT_S)
            connection.delete_table(table, disable=True)
