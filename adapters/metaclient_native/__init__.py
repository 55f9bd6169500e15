"""HBase's own RPC, without a gateway: urls ``hbase://`` (ZooKeeper) and ``hbase+rpc://`` (masters or region servers).

This backend alone sends each read to the server of the chosen replica, and makes no other lookups of hbase:meta than
those of metaclient's locator. ``docs/backends.md`` compares the backends.
"""

from __future__ import annotations

from collections.abc import Mapping

from metaclient.config import Config
from metaclient.runtime import Runtime
from metaclient.wire.dials import choose_dial
from metaclient_native.backend import NativeBackend

__all__ = ["NativeBackend", "native_factory"]


def native_factory(
    url: str, *, runtime: Runtime, properties: Mapping[str, str], config: Config | None = None
) -> NativeBackend:
    """Return the backend of a url ``hbase://zk1,zk2:2181[/hbase]`` or ``hbase+rpc://master1:16000,...``."""
    return NativeBackend(url, runtime=runtime, properties=properties, config=config, dial=choose_dial(runtime))
