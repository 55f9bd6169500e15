"""``python -m spark_connector``: the same as ``metaclient spark``."""

from spark_connector.cli import spark

spark(prog_name="python -m spark_connector")
