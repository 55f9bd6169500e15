"""Decides which server should have which copy of a region: pure functions from the cluster's state to a plan.

Placement (:func:`place`) assigns regions to servers in turn, fewest regions first, and does not put two copies of a
range on one server while another is free. Balancing (:func:`plan_moves`), in this order:


1. copies of one range that share a server are separated: a secondary moves, never the primary;
2. user regions are moved until the servers' region counts differ by at most one;
3. copies of hbase:meta come last and move for reason 1 only, to keep their caches warm (HBASE-18070's design).

Mirrors the outcome of HBase's BaseLoadBalancer.roundRobinAssignment and RegionReplicaGroupingCostFunction. Without
``keeps_copies_apart`` only step 2 is done, and copies may share a server: as SimpleLoadBalancer does (HBase 2.6).

DIVERGENCES: a plan instead of a random walk over cost functions; one server is one host and one rack; hbase:meta is
kept apart and sticky, which HBase does not do.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from metaclient.model import META_TABLE, ServerName

__all__ = ["Copy", "Move", "place", "plan_moves", "replica_cost"]

#: A range of rows, the same for all of its copies: table, start key, region id.
Range = tuple[bytes, bytes, int]


@dataclass(frozen=True, slots=True)
class Copy:
    """One replica of one region."""

    name: bytes
    range: Range
    replica_id: int = 0

    @property
    def is_meta(self) -> bool:
        return self.range[0] == META_TABLE


@dataclass(frozen=True, slots=True)
class Move:
    copy: Copy
    source: ServerName
    target: ServerName


Picture = Mapping[ServerName, Sequence[Copy]]


def place(
    copies: Iterable[Copy],
    loads: Mapping[ServerName, int],
    holders: Mapping[Range, Iterable[ServerName]],
    *,
    avoid: ServerName | None = None,
) -> dict[bytes, ServerName]:
    """Return a server for each copy, by region name; ``avoid`` is a server to take only when no other is free.

    ``loads`` are the servers and how many regions each has, ``holders`` the servers with copies of these ranges.
    Linear: each copy looks at one server, or at a few more when that one already holds its range.
    """
    if not loads:
        raise ValueError("there is no server to place regions on")
    servers = sorted(loads, key=lambda server: (loads[server], server))
    held: dict[Range, set[ServerName]] = defaultdict(set)
    for range_, names in holders.items():
        held[range_].update(names)
    placed: dict[bytes, ServerName] = {}
    turn = 0
    for copy in copies:
        server, step = _next_server(servers, turn, held[copy.range], avoid)
        turn += step
        held[copy.range].add(server)
        placed[copy.name] = server
    return placed


def _next_server(
    servers: list[ServerName], turn: int, holders: set[ServerName], avoided: ServerName | None
) -> tuple[ServerName, int]:
    """Return the next server in turn that has no copy of the range, and by how many servers the turn advances."""
    count = len(servers)
    fallback: tuple[ServerName, int] | None = None
    for step in range(count):
        server = servers[(turn + step) % count]
        if server in holders:
            continue
        if server != avoided:
            return server, step + 1
        fallback = (server, step + 1)
    return fallback or (servers[turn % count], 1)


def replica_cost(picture: Picture) -> int:
    """Return HBase's cost: the sum of (copies - 1) squared over servers and ranges; 0 when no copies share a server."""
    return sum((len(group) - 1) ** 2 for held in picture.values() for group in _by_range(held).values())


def plan_moves(picture: Picture, *, keeps_copies_apart: bool = True) -> list[Move]:
    """Return the moves, in order; empty when the cluster is balanced."""
    state = _PlannedCluster(picture, keeps_copies_apart)
    if not keeps_copies_apart:
        return state.even_out()
    apart = [move for move in state.separate() if not move.copy.is_meta]
    meta = [move for move in state.moves if move.copy.is_meta]
    even = state.even_out()
    return [*apart, *even, *meta]


def _by_range(copies: Sequence[Copy]) -> dict[Range, list[Copy]]:
    groups: dict[Range, list[Copy]] = defaultdict(list)
    for copy in copies:
        groups[copy.range].append(copy)
    return groups


class _PlannedCluster:
    """The cluster's state during planning: each planned move is applied to it."""

    def __init__(self, picture: Picture, keeps_copies_apart: bool) -> None:
        self._keeps_copies_apart = keeps_copies_apart
        self.held: dict[ServerName, dict[bytes, Copy]] = {
            server: {copy.name: copy for copy in copies} for server, copies in sorted(picture.items())
        }
        self.holders: dict[Range, list[ServerName]] = defaultdict(list)
        for server, copies in self.held.items():
            for copy in copies.values():
                self.holders[copy.range].append(server)
        self.moves: list[Move] = []

    def _move(self, copy: Copy, source: ServerName, target: ServerName) -> Move:
        del self.held[source][copy.name]
        self.held[target][copy.name] = copy
        self.holders[copy.range].remove(source)
        self.holders[copy.range].append(target)
        move = Move(copy, source, target)
        self.moves.append(move)
        return move

    def separate(self) -> list[Move]:
        """Step 1: move all copies of a range but the first to other servers, highest replica id first."""
        for server in list(self.held):
            for group in _by_range(list(self.held[server].values())).values():
                for copy in sorted(group, key=lambda copy: copy.replica_id)[:0:-1]:
                    target = self._emptiest_without(copy.range)
                    if target is None:
                        break  # as many copies as servers, or more: they must share
                    self._move(copy, server, target)
        return list(self.moves)

    def _emptiest_without(self, range_: Range) -> ServerName | None:
        holders = set(self.holders[range_])
        free = [server for server in self.held if server not in holders]
        return min(free, key=lambda server: (len(self.held[server]), server), default=None)

    def even_out(self) -> list[Move]:
        """Step 2: move regions from the fullest to the emptiest server, until they differ by at most one."""
        before = len(self.moves)
        fullest = [(-len(copies), server) for server, copies in self.held.items()]
        emptiest = [(len(copies), server) for server, copies in self.held.items()]
        heapq.heapify(fullest)
        heapq.heapify(emptiest)
        while fullest and emptiest:
            source = self._top(fullest, -1)
            target = self._top(emptiest, 1)
            if source is None or target is None or len(self.held[source]) - len(self.held[target]) <= 1:
                break
            copy = self._movable(source, target)
            if copy is None:
                heapq.heappop(fullest)  # none of its regions may move there: the server stays as it is
                continue
            self._move(copy, source, target)
            for server in (source, target):
                heapq.heappush(fullest, (-len(self.held[server]), server))
                heapq.heappush(emptiest, (len(self.held[server]), server))
        return self.moves[before:]

    def _top(self, heap: list[tuple[int, ServerName]], sign: int) -> ServerName | None:
        """Return the first entry of the heap that is not outdated."""
        while heap and heap[0][0] * sign != len(self.held[heap[0][1]]):
            heapq.heappop(heap)
        return heap[0][1] if heap else None

    def _movable(self, source: ServerName, target: ServerName) -> Copy | None:
        return next(
            (
                copy
                for copy in self.held[source].values()
                if not copy.is_meta and not (self._keeps_copies_apart and target in self.holders[copy.range])
            ),
            None,
        )
