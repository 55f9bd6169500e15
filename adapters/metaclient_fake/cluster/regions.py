"""Runs the procedures of the master and the servers on regions: move, split, merge, flush, compact, balance, load."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from metaclient import keys
from metaclient.errors import RequestRefused
from metaclient.model import LATEST_TIMESTAMP, META_TABLE, Cell, ServerName
from metaclient_fake.cluster.names import Names
from metaclient_fake.cluster.servers import Servers
from metaclient_fake.config.cluster import STOCHASTIC_BALANCER, ClusterConfig
from metaclient_fake.master import balancer, region_procedures
from metaclient_fake.master.master import Master
from metaclient_fake.master.region_states import RegionGroup, RegionNode, RegionState
from metaclient_fake.server.region_server import RegionServer

__all__ = ["Regions", "Rows"]

Rows = Mapping[bytes, Mapping[bytes, bytes]] | Iterable[tuple[bytes, Mapping[bytes, bytes]]]


class Regions:
    """The regions of one cluster."""

    def __init__(self, config: ClusterConfig, master: Master, names: Names, servers: Servers) -> None:
        self._config = config
        self._master = master
        self._names = names
        self._servers = servers

    def move(self, region: str, server: str | ServerName | None = None, *, replica_id: int = 0) -> None:
        """Move a copy; without a server the balancer chooses. An unknown ``host,port,startcode`` is accepted."""
        node = self._names.node_named(region, replica_id)
        target = None if server is None else self._names.target_named(server)
        self._master.run(lambda: region_procedures.move(self._master, node, target))

    def split(self, region: str, at: bytes | None = None) -> tuple[str, str]:
        """Split before row ``at``, or in the middle; return the names of the daughters."""
        node = self._names.node_named(region)
        left, right = self._master.run(lambda: region_procedures.split(self._master, node, at))
        return left.encoded_name, right.encoded_name

    def merge(self, left: str, right: str) -> str:
        """Merge two neighbours; return the name of the new region."""
        one, other = self._names.node_named(left), self._names.node_named(right)
        return self._master.run(lambda: region_procedures.merge(self._master, one, other)).encoded_name

    def flush(self, table: str | bytes | None = None) -> int:
        """Flush a table (without a name: all tables and hbase:meta); return the number of flushed regions."""
        name = None if table is None else keys.table_name(table)
        if name is not None:
            self._master.record(name)
        return sum(self._on_running(lambda server: server.flusher.flush_table(name)))

    def compact(self, table: str | bytes, major: bool = False) -> int:
        """Compact a table; return the number of regions that were compacted."""
        name = keys.table_name(table)
        self._master.record(name)
        return sum(self._on_running(lambda server: server.flusher.compact_table(name, major)))

    def balance(self) -> int:
        """Run the balancer once; return the number of regions that it moved."""
        keeps_apart = self._config.balancer == STOCHASTIC_BALANCER
        moves = balancer.plan_moves(self._master.picture(), keeps_copies_apart=keeps_apart)
        for move in moves:
            node = self._master.states.by_name.get(move.copy.name)
            if node is not None and node.state is RegionState.OPEN and node.server == move.source:
                self._run_move(node, move.target)
        return len(moves)

    def _run_move(self, node: RegionNode, target: ServerName) -> None:
        self._master.run(lambda: region_procedures.move(self._master, node, target))

    def bulk_load(self, table: str | bytes, rows: Rows) -> int:
        """Add rows (row -> column -> value) as store files, without memstore and log; return the number of rows."""
        name = keys.table_name(table)
        if name == META_TABLE:
            raise RequestRefused("hbase:meta takes no bulk load: its rows are written by the master alone")
        self._master.check_enabled(name)
        shares: dict[bytes, tuple[RegionGroup, list[tuple[bytes, tuple[Cell, ...]]]]] = {}
        count = 0
        for row, columns in rows.items() if isinstance(rows, Mapping) else rows:
            group = self._master.states.containing(name, row)
            cells = tuple(Cell(column, LATEST_TIMESTAMP, value) for column, value in sorted(columns.items()))
            shares.setdefault(group.primary.name, (group, []))[1].append((row, cells))
            count += 1
        for group, share in shares.values():
            self._load(group, share)
        return count

    def _load(self, group: RegionGroup, share: list[tuple[bytes, tuple[Cell, ...]]]) -> None:
        server = self._names.host_of(group.primary)

        def load() -> None:
            region = server.regions.get(group.primary.name)
            if region is None:
                raise server.assignments.unavailable(group.primary.name)
            region.bulk_load(share)

        self._master.call(server, load)

    def _on_running(self, function: Callable[[RegionServer], int]) -> list[int]:
        answers: list[int] = []
        for server in self._servers.running():
            answers.append(self._master.call(server, lambda: function(server)))  # noqa: B023  # called at once
        return answers
