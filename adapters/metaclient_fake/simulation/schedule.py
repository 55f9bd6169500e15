"""Decides which faults begin when: an explicit list, drawn from the seed before the run.

A fault does not name a server or region, only numbers to pick them with (``pick``, ``other``) among those that exist
when it begins. So a list from which faults were removed is still valid, which shrinking needs
(:mod:`metaclient_fake.simulation.shrink`). Each fault is undone after ``lasts_s``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from metaclient_fake.simulation.chance import Chance

__all__ = ["KINDS", "Fault", "drawn_faults"]

#: Kind -> what it does; :mod:`metaclient_fake.simulation.injector` has one function for each.
KINDS: Mapping[str, str] = {
    "kill": "kill -9 of a server, and a restart some time later",
    "restart": "a server is killed and started again at once",
    "stop": "a server is told to stop, closes its regions, and is started again later",
    "pause": "a server hangs, and wakes up again",
    "slow": "each call to a server takes longer",
    "partition": "two parties do not reach each other",
    "one_way": "one party does not reach another, which reaches it",
    "lose": "some messages are lost",
    "delay": "some messages are late",
    "reorder": "messages overtake each other",
    "repeat": "calls arrive twice where the protocol can repeat them",
    "skew": "a server's wall clock is off",
    "split": "a region splits",
    "merge": "two regions merge",
    "move": "a copy of a region moves",
    "move_nowhere": "a region is asked to move to a server that never was",
    "move_meta": "a copy of hbase:meta moves",
    "pile": "all copies of a region end up on one server",
    "flush": "a table is flushed",
    "compact": "a table is compacted, minor or major",
    "balance": "the balancer runs",
    "replica_count": "a table gets more or fewer copies",
    "meta_replica_count": "hbase:meta gets more or fewer copies",
    "buffer_limit": "a burst of big values fills the buffers of replication",
    "registry_gone": "the registry cannot be reached",
    "registry_held": "the registry tells an old story",
    "full_queue": "a server refuses calls because its queue is full",
    "stall_flushes": "a server cannot flush",
    "fail_refresh": "a server cannot list store files",
    "empty_meta": "a copy of hbase:meta re-opens and shows no rows",
    "torn_meta": "a copy of hbase:meta shows only some cells of each row",
    "reads_disabled": "a secondary may not be read for a while",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: its time, kind, target (as numbers), duration, and strength (0 to 1)."""

    at_s: float
    kind: str
    pick: int = 0
    other: int = 0
    lasts_s: float = 0.0
    amount: float = 0.0

    def __str__(self) -> str:
        lasts = f" for {self.lasts_s:.3f} s" if self.lasts_s else ""
        return f"{self.at_s:8.3f} s {self.kind}{lasts} (pick {self.pick}, {self.other}; amount {self.amount:.3f})"

    def as_json(self) -> dict[str, object]:
        return {
            "at_s": self.at_s,
            "kind": self.kind,
            "pick": self.pick,
            "other": self.other,
            "lasts_s": self.lasts_s,
            "amount": self.amount,
        }


#: Seconds between two faults, on average: a seed has one of these. Storms and quiet stretches find different bugs.
_GAPS_S = (0.7, 2.0, 5.0)
#: Longer than the longest session (6 s), so that some faults outlive it and most do not.
_LASTS_S_MAX = 12.0


def drawn_faults(dice: Chance, kinds: Sequence[str], duration_s: float) -> tuple[Fault, ...]:
    """Return the faults of one run; all of them are over when it is."""
    if not kinds:
        return ()
    gap_s = dice.choice(_GAPS_S)
    found: list[Fault] = []
    at_s = 0.0
    while True:
        at_s = round(at_s + dice.uniform(0.0, 2 * gap_s), 3)
        if at_s >= duration_s:
            return tuple(found)
        lasts_s = round(min(dice.uniform(0.05, 1.0) * dice.choice((1.0, 4.0, _LASTS_S_MAX)), duration_s - at_s), 3)
        found.append(
            Fault(
                at_s,
                dice.choice(kinds),
                dice.randrange(1000),
                dice.randrange(1000),
                lasts_s,
                round(dice.random(), 3),
            )
        )
