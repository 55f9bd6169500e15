"""Decides when every secondary of a cluster shows what was written, and lists what is pushed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from metaclient.errors import DeadlineExceeded
from metaclient.model import RegionInfo
from metaclient.runtime import Runtime
from metaclient.wording import counted
from metaclient_fake.config.region_replication import ReplicationConfig
from metaclient_fake.master.master import Master
from metaclient_fake.master.region_states import RegionNode
from metaclient_fake.region_replication import Sink, is_on
from metaclient_fake.server.region_server import RegionServer

__all__ = ["Replication", "sink_of"]

#: The pause between two checks of the secondaries while a caller waits for them.
_REPLICATED_PAUSE_S = 0.05
#: The least time between two flushes of one primary while a caller waits for its secondaries.
_FLUSH_AGAIN_S = 1.0


def sink_of(master: Master, primary: RegionNode) -> Sink | None:
    """Return the sink of a primary; None if it is on no live server or does not push."""
    server = master.live_server_of(primary)
    return server.replication.sinks.get(primary.name) if server is not None else None


class Replication:
    """Region replication of one cluster, seen over all of its servers."""

    def __init__(
        self,
        runtime: Runtime,
        config: ReplicationConfig,
        master: Master,
        servers_by_host: Mapping[str, RegionServer],
        flush_primary_of: Callable[[RegionServer, RegionInfo], bool],
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._master = master
        self._servers_by_host = servers_by_host
        self._flush_primary_of = flush_primary_of

    def wait(self, timeout: float) -> None:
        """Return when every secondary has all that was written before; DeadlineExceeded names the others.

        A primary with failed replicas, or with edits that are not replicated, is flushed at most once per second.
        """
        deadline = self._runtime.now() + timeout
        wanted: dict[Sink, int] = {}
        asked: dict[Sink, float] = {}
        while True:
            behind = self._behind(wanted, asked)
            if not behind:
                return
            if self._runtime.now() >= deadline:
                shown = ", ".join(behind[:5]) + (", ..." if len(behind) > 5 else "")
                raise DeadlineExceeded(
                    f"not up to date after {timeout:g} s: {counted(len(behind), 'replica')}: {shown}"
                )
            self._runtime.sleep(min(_REPLICATED_PAUSE_S, timeout))

    def _behind(self, wanted: dict[Sink, int], asked: dict[Sink, float]) -> list[str]:
        """Return the secondaries that lack edits; ``wanted`` keeps the position that each primary had at the start."""
        behind: list[str] = []
        for node in self._master.states.nodes():
            record = self._master.tables[node.info.table]
            if not node.info.replica_id or record.state.name != "ENABLED":
                continue
            server = self._master.live_server_of(node)
            region = server.regions.get(node.name) if server is not None and server.is_running else None
            if server is None or region is None:
                behind.append(node.encoded)
                continue
            if is_on(self._config, record.descriptor):
                has_all = self._has_all_pushed(node, wanted, asked)
            else:
                has_all = self._flush_primary_of(server, node.info)
                server.secondaries.refresh_one(node.name)
            if not has_all or not region.reads_enabled or server.secondaries.is_empty(node.name):
                behind.append(node.encoded)
        return behind

    def _has_all_pushed(self, node: RegionNode, wanted: dict[Sink, int], asked: dict[Sink, float]) -> bool:
        primary = self._master.states.group_of(node).primary
        sink = sink_of(self._master, primary)
        if sink is None:
            return False
        now = self._runtime.now()
        if sink.needs_flush and now - asked.get(sink, float("-inf")) >= _FLUSH_AGAIN_S:
            asked[sink] = now
            server = self._master.live_server_of(primary)
            region = server.regions.get(primary.name) if server is not None and server.is_running else None
            if server is not None and region is not None:
                server.flusher.flush_region(region)
        if sink not in wanted:
            wanted[sink] = sink.position()
        return sink.has_everything_before(node.info.replica_id, wanted[sink])

    def sinks(self) -> Iterator[tuple[str, str, Sink]]:
        """Yield server, table and sink of every open primary that pushes."""
        for host, server in list(self._servers_by_host.items()):
            for name, sink in list(server.replication.sinks.items()):
                region = server.regions.get(name)
                if region is not None:
                    yield host, region.info.table.decode(errors="replace"), sink

    def buffers(self) -> Iterator[tuple[str, int]]:
        """Yield each server and the bytes that wait there to be pushed."""
        for host, server in list(self._servers_by_host.items()):
            yield host, server.replication.buffer.pending_bytes
