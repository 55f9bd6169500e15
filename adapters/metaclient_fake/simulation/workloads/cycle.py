"""A cycle of keys that must stay a cycle (FoundationDB's Cycle): one row, whose columns point to one another.

The columns lie in two families. A step takes three edges out of the cycle and puts them back in another order, in one
put that is guarded by a check of the row's version. Each read of the row, STRONG or TIMELINE, must return one cycle
over all nodes: half of a put, or a put that did not see the one before, breaks it for good.
"""

from __future__ import annotations

from collections.abc import Mapping

from metaclient_fake.simulation.workloads.base import Workload

__all__ = ["Cycle", "column_of", "is_cycle", "whole_cycle"]

TABLE = "t"
VERSION = b"f:version"
NODES = 8


def column_of(node: int) -> bytes:
    """Even nodes live in one family, odd ones in the other."""
    return b"%s:%d" % ((b"f", b"g")[node % 2], node)


def whole_cycle() -> dict[bytes, bytes]:
    """Return the row to begin with: each node points to the next.

    >>> is_cycle(whole_cycle())
    True
    """
    return {column_of(node): b"%d" % ((node + 1) % NODES) for node in range(NODES)} | {VERSION: b"start"}


def is_cycle(row: Mapping[bytes, bytes]) -> bool:
    """Return True if the pointers visit each node once and return to the first.

    >>> is_cycle({column_of(0): b"0"})
    False
    """
    seen: list[int] = []
    node = 0
    while node not in seen:
        seen.append(node)
        following = row.get(column_of(node))
        if following is None:
            return False
        node = int(following)
    return node == 0 and len(seen) == NODES


class Cycle(Workload):
    """Swaps edges, and reads the row at all replicas."""

    kind = "cycle"

    def step(self) -> None:
        row = self.dice.choice(self.world.cycles)
        if self.dice.random() < 0.4:
            self._look(row, "TIMELINE")
            return
        known = self._look(row, "STRONG")
        if known is not None and is_cycle(known):
            self._swap(row, known)

    def _look(self, row: bytes, consistency: str) -> Mapping[bytes, bytes] | None:
        operation = self.begin("cycle_get", TABLE, row)
        found = self.tried(operation, lambda: self.table(TABLE).row(row, consistency=consistency))
        if found is None:
            return None
        self.saw(operation, found, VERSION)
        operation.argument = "a cycle" if is_cycle(found) else dict(found)
        return found

    def _swap(self, row: bytes, known: Mapping[bytes, bytes]) -> None:
        """a -> b -> c -> d becomes a -> c -> b -> d."""
        a = self.dice.randrange(NODES)
        b = int(known[column_of(a)])
        c = int(known[column_of(b)])
        d = known[column_of(c)]
        edges = {column_of(a): b"%d" % c, column_of(c): b"%d" % b, column_of(b): d, VERSION: self.fresh_value()}
        operation = self.begin("cycle_swap", TABLE, row)
        operation.is_write = True
        operation.expected, operation.argument = known[VERSION], edges[VERSION]
        operation.value = self.tried(
            operation, lambda: self.table(TABLE).check_and_put(row, VERSION, known[VERSION], edges)
        )
