"""HBase's own RPC, without a gateway: urls ``hbase://`` (ZooKeeper) and ``hbase+rpc://`` (masters or region servers).

Only this way our lookups are all the load that our reads put on hbase:meta, and only this way a replica is read where
it is. ``docs/backends.md`` says when to use which backend.
"""

from __future__ import annotations

from collections.abc import Mapping

from metaclient.runtime import Runtime
from metaclient_native.backend import NativeBackend

__all__ = ["NativeBackend", "native_factory"]


def native_factory(url: str, *, runtime: Runtime, properties: Mapping[str, str]) -> NativeBackend:
    """``hbase://zk1,zk2:2181[/hbase]``, ``hbase+rpc://master1:16000,...``."""
    return NativeBackend(url, runtime=runtime, properties=properties)
