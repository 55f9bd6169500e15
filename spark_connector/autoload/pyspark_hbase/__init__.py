"""Makes ``spark.read.format("hbase")`` work after ``pip install``: Spark imports every top-level ``pyspark_*`` module.

It does so at each first look-up of any data source, so nothing heavy is imported here: pyarrow, the client and the rest
come with the first method that needs them.
"""

from __future__ import annotations

from spark_connector.source import HBaseSource

__all__ = ["DefaultSource"]


class DefaultSource(HBaseSource):
    """The data source ``hbase``, under the name by which Spark finds it."""
