"""Makes ``spark.read.format("hbase")`` work after ``pip install``: Spark imports every top-level ``pyspark_*`` module.

Spark does so when any data source is looked up for the first time. Therefore nothing slow is imported here: pyarrow and
the client are imported by the first method that needs them.
"""

from __future__ import annotations

from spark_connector.source import HBaseSource

__all__ = ["DefaultSource"]


class DefaultSource(HBaseSource):
    """The data source ``hbase``, under the name by which Spark finds it."""
