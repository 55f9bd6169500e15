"""A program that has only Spark Connect: everything that the connector offers, on table ``t`` of the url that is given.

It starts Spark's Connect server for itself, and prints what it found as one line of JSON. A process of its own, because
one process has either a classic session or one of Connect.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

import spark_connector as hbase
from spark_connector.settings.session import ensure_java, ensure_python, is_connect
from tests.spark.served import CATALOG

ROWS = 600
#: A copy of meta has half a minute: on a slow machine a try that is given up would go to the primary.
PATIENT = {"metaclient.meta_try_timeout_s": "30"}


def main(url: str) -> None:
    ensure_java()
    ensure_python()
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    try:
        hbase.register(spark)
        answers = read(spark, url)
        # Counted before a table is made: a meta replica may not know that one yet, and then the primary is asked.
        answers["lookups"] = hbase.lookups(spark)
        answers["copied"] = hbase.copy_table(spark, "t", url=url, to_table="copy", create=True, progress=False).rows
        print(json.dumps(answers))
    finally:
        spark.stop()


def read(spark: SparkSession, url: str) -> dict[str, object]:
    """Fill the table, and read it on every road."""
    rows = spark.range(ROWS).selectExpr(
        "format_string('%03d', id) AS id", "CAST(id AS INT) AS i", "concat('n-', id) AS name"
    )
    hbase.write(rows, CATALOG, url=url, **PATIENT)
    loaded = spark.read.format("hbase").options(url=url, catalog=CATALOG, **PATIENT).load()
    high = hbase.table(spark, CATALOG, url=url, columns=["id", "i"], where="i >= 590", **PATIENT)
    looked_up = hbase.join(
        spark.createDataFrame([("007",), ("none",)], "id string"), CATALOG, url=url, on="id", **PATIENT
    )
    return {
        "is_connect": is_connect(spark),
        "loaded": loaded.count(),
        "high": [row.id for row in high.orderBy("id").collect()],
        "one load, two filters": [loaded.filter("i = 3").count(), loaded.filter("i < 3").count()],
        "one table, two filters": [high.filter("i = 595").count(), high.filter("i > 595").count()],
        "joined": [row.asDict() for row in looked_up.collect()],
        "counted": int(hbase.row_count(spark, "t", url=url, progress=False, **PATIENT)),
    }


if __name__ == "__main__":
    main(sys.argv[1])
