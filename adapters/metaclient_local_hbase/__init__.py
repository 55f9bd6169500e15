"""Starts a real HBase on this machine, from Maven packages: for live tests, benchmarks and trying things out.

Each process is a JVM of its own, on the loopback interface and on free ports. No process is left running after
``down``, Ctrl-C, or a crash of the Python process. Needs ``java`` and ``mvn``.
"""

from metaclient_local_hbase.cluster import LocalHBase
from metaclient_local_hbase.jars import VERSIONS
from metaclient_local_hbase.tools import missing_tools

__all__ = ["VERSIONS", "LocalHBase", "missing_tools"]
