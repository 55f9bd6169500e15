"""The HBase connector for Spark 4, in pure Python: no jar on Spark, none on the servers.

    import spark_connector as hbase

    df = hbase.table(spark, catalog, url="thrift2://gateway:9090", columns=["id", "name"], where="id BETWEEN 3 AND 7")
    df = spark.read.format("hbase").option("url", ...).option("catalog", ...).load()
    hbase.write(df, catalog, url="thrift2://gateway:9090")
    hbase.lookups(spark)

It plans by region, carries region locations to the executors, and spreads the meta lookups that remain over the meta
replicas. Importing this package needs no pyspark; using it does, and ``pip install 'hbase-metaclient[spark]'`` brings
it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_connector.conditions.condition import col
    from spark_connector.dataframe import register, table, use, write
    from spark_connector.jobs import bulk_load, copy_table, join, repartition, row_count, snapshot, verify_replication
    from spark_connector.lookup_counts import lookups

__all__ = [
    "bulk_load",
    "col",
    "copy_table",
    "join",
    "lookups",
    "register",
    "repartition",
    "row_count",
    "snapshot",
    "table",
    "use",
    "verify_replication",
    "write",
]

_HOMES = {
    "bulk_load": "spark_connector.jobs",
    "col": "spark_connector.conditions.condition",
    "copy_table": "spark_connector.jobs",
    "join": "spark_connector.jobs",
    "lookups": "spark_connector.lookup_counts",
    "register": "spark_connector.dataframe",
    "repartition": "spark_connector.jobs",
    "row_count": "spark_connector.jobs",
    "snapshot": "spark_connector.jobs",
    "table": "spark_connector.dataframe",
    "use": "spark_connector.dataframe",
    "verify_replication": "spark_connector.jobs",
    "write": "spark_connector.dataframe",
}


def __getattr__(name: str) -> Any:
    """Import a name at its first use: pyspark is an optional dependency, and slow to import."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from spark_connector.settings.session import need_pyspark

    need_pyspark()
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
