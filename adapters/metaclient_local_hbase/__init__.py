"""A real HBase on this machine, from Maven packages: for live tests, benchmarks and the curious.

One JVM a process, on the loopback interface and on free ports; nothing is left running after ``down``, a crash of
ours or Ctrl-C. Needs ``java`` and ``mvn``.
"""

from metaclient_local_hbase.cluster import LocalHBase
from metaclient_local_hbase.jars import VERSIONS
from metaclient_local_hbase.tools import missing_tools

__all__ = ["VERSIONS", "LocalHBase", "missing_tools"]
