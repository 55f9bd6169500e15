"""Stores the master's view of every region: its state, its server, its copies.

Mirrors AssignmentManager's RegionStates and RegionStateNode. Each change has been written to hbase:meta first (or is
written next, in the same procedure).
"""

from __future__ import annotations

import enum
from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator

from metaclient.errors import RequestRefused, TableNotFound
from metaclient.model import RegionInfo, ServerName
from metaclient_fake.storage import WalEntry

__all__ = ["RegionGroup", "RegionNode", "RegionState", "RegionStates"]


class RegionState(enum.Enum):
    """RegionState.State, as ``info:state`` spells it."""

    OFFLINE = "OFFLINE"
    OPENING = "OPENING"
    OPEN = "OPEN"
    CLOSING = "CLOSING"
    CLOSED = "CLOSED"
    SPLITTING = "SPLITTING"
    SPLIT = "SPLIT"
    MERGING = "MERGING"
    MERGED = "MERGED"
    ABNORMALLY_CLOSED = "ABNORMALLY_CLOSED"

    __hash__ = object.__hash__  # Enum.__hash__ is Python code, and each batch to a replica needs two hashes


_S = RegionState
_TRANSITIONS: dict[RegionState, frozenset[RegionState]] = {
    _S.OFFLINE: frozenset({_S.OPENING, _S.CLOSED}),
    _S.OPENING: frozenset({_S.OPEN, _S.OPENING, _S.ABNORMALLY_CLOSED, _S.CLOSED}),
    _S.OPEN: frozenset({_S.CLOSING, _S.SPLITTING, _S.MERGING, _S.ABNORMALLY_CLOSED}),
    _S.CLOSING: frozenset({_S.CLOSED, _S.ABNORMALLY_CLOSED}),
    _S.CLOSED: frozenset({_S.OPENING, _S.OFFLINE, _S.SPLIT, _S.MERGED}),
    _S.SPLITTING: frozenset({_S.CLOSING, _S.OPEN, _S.ABNORMALLY_CLOSED}),
    _S.SPLIT: frozenset(),
    _S.MERGING: frozenset({_S.CLOSING, _S.OPEN, _S.ABNORMALLY_CLOSED}),
    _S.MERGED: frozenset(),
    _S.ABNORMALLY_CLOSED: frozenset({_S.OPENING, _S.CLOSED}),
}


class RegionNode:
    """One copy of one region; changed by the master's procedures only."""

    __slots__ = ("encoded", "info", "name", "recovered", "seqnum", "server", "state")

    def __init__(self, info: RegionInfo) -> None:
        self.info = info
        self.name = info.name
        self.encoded = info.encoded_name
        self.state = RegionState.OFFLINE
        #: The current server or, when closed, the last one.
        self.server: ServerName | None = None
        self.seqnum = -1
        #: Edits of crashed servers that no open has replayed yet.
        self.recovered: list[WalEntry] = []

    def become(self, state: RegionState) -> None:
        if state not in _TRANSITIONS[self.state]:
            raise RequestRefused(f"region {self.encoded} is {self.state.value}: it cannot become {state.value}")
        self.state = state

    def __repr__(self) -> str:
        return f"RegionNode({self.encoded}, {self.state.value}, {self.server})"


class RegionGroup:
    """All copies of one range; index = replica id."""

    __slots__ = ("info", "nodes")

    def __init__(self, info: RegionInfo, copies: int) -> None:
        self.info = info
        self.nodes = [RegionNode(info.replica(replica_id)) for replica_id in range(copies)]

    @property
    def primary(self) -> RegionNode:
        return self.nodes[0]

    @property
    def start_key(self) -> bytes:
        return self.info.start_key


def _start_key(group: RegionGroup) -> bytes:
    return group.info.start_key


class RegionStates:
    """Every region of the cluster, by name and by place. The master's lock guards all of it."""

    def __init__(self) -> None:
        self._tables: dict[bytes, list[RegionGroup]] = {}
        self._groups: dict[bytes, RegionGroup] = {}  # by the name of any copy
        self.by_name: dict[bytes, RegionNode] = {}
        self.by_encoded: dict[str, RegionNode] = {}
        self._on_server: dict[ServerName, dict[bytes, RegionNode]] = {}
        self.parents: dict[bytes, tuple[RegionGroup, float]] = {}  # split parents and since when

    # -- groups ------------------------------------------------------------------------------------------------

    def add_table(self, table: bytes, groups: Iterable[RegionGroup]) -> None:
        self._tables[table] = sorted(groups, key=_start_key)
        for group in self._tables[table]:
            self._index(group)

    def add(self, group: RegionGroup) -> None:
        insort(self._tables[group.info.table], group, key=_start_key)
        self._index(group)

    def _index(self, group: RegionGroup) -> None:
        for node in group.nodes:
            self._groups[node.name] = group
            self.by_name[node.name] = node
            self.by_encoded[node.encoded] = node

    def remove(self, group: RegionGroup) -> None:
        self._tables[group.info.table].remove(group)
        self._forget(group)

    def remove_table(self, table: bytes) -> list[RegionGroup]:
        groups = self._tables.pop(table, [])
        for group in groups:
            self._forget(group)
        for name, (parent, _) in list(self.parents.items()):
            if parent.info.table == table:
                del self.parents[name]
        return groups

    def _forget(self, group: RegionGroup) -> None:
        for node in group.nodes:
            self._groups.pop(node.name, None)
            self.by_name.pop(node.name, None)
            self.by_encoded.pop(node.encoded, None)
            self.leave(node)

    def resize(self, group: RegionGroup, copies: int) -> list[RegionNode]:
        """Give a range more or fewer copies; return the added or removed nodes."""
        if copies >= len(group.nodes):
            changed = [RegionNode(group.info.replica(number)) for number in range(len(group.nodes), copies)]
            group.nodes.extend(changed)
            self._index(group)
            return changed
        changed = group.nodes[copies:]
        del group.nodes[copies:]
        for node in changed:
            self._groups.pop(node.name, None)
            self.by_name.pop(node.name, None)
            self.by_encoded.pop(node.encoded, None)
            self.leave(node)
        return changed

    def table(self, table: bytes) -> list[RegionGroup]:
        found = self._tables.get(table)
        if found is None:
            raise TableNotFound(f"table {table.decode(errors='replace')!r} does not exist")
        return found

    def tables(self) -> list[bytes]:
        return list(self._tables)

    def group_of(self, node: RegionNode) -> RegionGroup:
        return self._groups[node.name]

    def containing(self, table: bytes, row: bytes) -> RegionGroup:
        groups = self.table(table)
        return groups[max(0, bisect_right(groups, row, key=_start_key) - 1)]

    def nodes(self) -> Iterator[RegionNode]:
        return iter(list(self.by_name.values()))

    # -- places ------------------------------------------------------------------------------------------------

    def enter(self, node: RegionNode, server: ServerName) -> None:
        self.leave(node)
        node.server = server
        self._on_server.setdefault(server, {})[node.name] = node

    def leave(self, node: RegionNode) -> None:
        """Record that the node is on no server now; ``node.server`` keeps its last server."""
        if node.server is not None:
            self._on_server.get(node.server, {}).pop(node.name, None)

    def on_server(self, server: ServerName) -> list[RegionNode]:
        return list(self._on_server.get(server, {}).values())

    def count_on(self, server: ServerName) -> int:
        return len(self._on_server.get(server, {}))

    def forget_server(self, server: ServerName) -> None:
        self._on_server.pop(server, None)
