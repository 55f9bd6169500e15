"""The type of the pytest fixture ``fake_hbase``: the methods of a fake cluster that tests of applications need.

``metaclient_fake.FakeCluster`` has these methods and more. It is a package of its own, which this one does not import.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from metaclient.connection import Connection
from metaclient.runtime import Runtime

__all__ = ["FakeHBase", "FakeHBaseServer"]


class FakeHBase(Protocol):
    """A cluster in memory. Servers have the names rs1, rs2, ...; regions have HBase's encoded names."""

    @property
    def runtime(self) -> Runtime:
        """The clock of the cluster: ``fake_hbase.runtime.sleep(3600)`` takes no real time on virtual time."""
        ...

    def connect(self, *, client: str = "", user: str | None = None, **options: object) -> Connection:
        """Return a connection, with the options of :func:`metaclient.connect`; ``user`` has only granted rights."""
        ...

    def servers(self) -> list[str]:
        """Return the names of the region servers."""
        ...

    def kill(self, server: str) -> None:
        """Crash a server; the master recovers its regions when its session has expired."""
        ...

    def stop(self, server: str) -> None:
        """Move a server's regions to other servers, and end it."""
        ...

    def restart(self, server: str) -> None:
        """Start a server that was killed or stopped."""
        ...

    def pause(self, server: str, *, keeps_session: bool = False) -> None:
        """Hang a server, as a long garbage collection does; ``keeps_session``: the master does not notice."""
        ...

    def resume(self, server: str) -> int:
        """Continue a paused server; return the number of its waiting calls."""
        ...

    def slow(self, server: str, seconds: float) -> None:
        """Delay each answer of a server."""
        ...

    def partition(self, one: str, other: str) -> None:
        """Cut the network between two servers, or between "client" and a server."""
        ...

    def heal(self) -> None:
        """End all partitions."""
        ...

    def meta_server(self, replica_id: int = 0) -> str:
        """Return the server of a replica of hbase:meta."""
        ...

    def server_of(self, region: str, replica_id: int = 0) -> str | None:
        """Return the server of a region."""
        ...

    def regions(self, table: str | bytes) -> list[str]:
        """Return the regions of a table."""
        ...

    def split(self, region: str, at: bytes | None = None) -> tuple[str, str]:
        """Split a region; return its daughters."""
        ...

    def merge(self, left: str, right: str) -> str:
        """Merge two neighbours; return the new region."""
        ...

    def flush(self, table: str | bytes | None = None) -> int:
        """Flush memstores; return the number of regions."""
        ...

    def wait_until_replicated(self, timeout: float = 10.0) -> None:
        """Wait until all region replicas have all edits."""
        ...

    def status(self, *, znodes: bool = False) -> Mapping[str, Any]:
        """Return the servers, regions, replicas and queues as a document."""
        ...


class FakeHBaseServer(NamedTuple):
    """A fake cluster that listens on TCP ports of loopback, and its urls."""

    cluster: FakeHBase
    thrift1_url: str  # for happybase and thrift1://
    thrift2_url: str
    rpc_url: str  # HBase's own RPC, hbase+rpc://
