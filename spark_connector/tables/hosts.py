"""The hosts that tasks prefer: those of their regions, if an executor runs there.

Spark's ``PythonInputPartition`` has no preferred hosts, and a task accepts no other class. Here a
subclass with hosts is made in the driver's JVM by Janino, the compiler of Spark's own generated code. Such a partition
becomes a plain ``PythonInputPartition`` when it is sent to an executor, so that executors need nothing new.
"""

from __future__ import annotations

import logging
import pickle
import socket
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_connector.planning.splits import TableSplit
    from spark_connector.tables.jvm import SessionJvm

__all__ = ["executors_for", "hosted_partitions"]

_log = logging.getLogger(__name__)
_CLASS = "spark_connector.HostedPartition"
_SOURCE = """
package spark_connector;

import java.util.List;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;

public class HostedPartition extends PythonInputPartition {
  private final String[] hosts;

  private HostedPartition(int index, byte[] split, String[] hosts) {
    super(index, split);
    this.hosts = hosts;
  }

  public String[] preferredLocations() { return hosts; }

  public Object writeReplace() { return new PythonInputPartition(index(), pickedPartition()); }

  public static InputPartition[] all(List splits, List hosts) {
    InputPartition[] made = new InputPartition[splits.size()];
    for (int i = 0; i < made.length; i++) {
      List names = (List) hosts.get(i);
      made[i] = new HostedPartition(i, (byte[]) splits.get(i), (String[]) names.toArray(new String[names.size()]));
    }
    return made;
  }
}
"""


def hosted_partitions(java: SessionJvm, blobs: Sequence[bytes], hosts: Sequence[str | None]) -> Any:
    """Return Spark's partitions of these pickled splits, each with the executor's host that it prefers, if any."""
    unpickler = java.jvm.net.razorvine.pickle.Unpickler
    given: list[Any] = [list(blobs), [[] if host is None else [host] for host in hosts]]
    lists = [unpickler().loads(pickle.dumps(each, protocol=4)) for each in given]
    return _factory(java.gateway).invoke(None, java.array("java.lang.Object", lists))


@lru_cache(maxsize=1)
def _factory(gateway: Any) -> Any:
    """Return the Java method that makes the partitions; the class is compiled once per JVM."""
    jvm = gateway.jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(_SOURCE)
    parameters = gateway.new_array(jvm.java.lang.Class, 2)
    parameters[0] = parameters[1] = loader.loadClass("java.util.List")
    return compiler.getClassLoader().loadClass(_CLASS).getMethod("all", parameters)


def executors_for(spark: SparkSession, splits: Iterable[TableSplit]) -> dict[str | None, str]:
    """Return region server's host -> Spark's name of the same machine, for hosts that run an executor.

    Spark compares host names as text. It ignores a host that is no executor's name, but only after a wait.
    """
    infos = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    executors = {str(info.host()) for info in infos}
    by_address = {address: name for name in sorted(executors) if (address := _address(name)) is not None}
    found: dict[str | None, str] = {}
    for host in {split.host for split in splits if split.host is not None}:
        name = host if host in executors else by_address.get(_address(host) or "")
        if name is not None:
            found[host] = name
    return found


def _address(host: str) -> str | None:
    """Return the IP address of a host name; None if it does not resolve here."""
    try:
        return socket.gethostbyname(host)
    except OSError:
        _log.debug("host %s has no address here: no locality for its regions", host)
        return None
