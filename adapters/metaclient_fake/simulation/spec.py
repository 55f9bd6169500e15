"""Decides what a seed runs: the cluster, its settings, the clients and their workloads, the kinds of faults.

Swarm testing: each seed omits whole kinds of faults and settings, because a run with all of them reaches only a few
states.

Three rules keep a run checkable; each is a property of HBase, not of the fake:


1. A put is repeated when its answer is lost, and the first one may still arrive after another client's put. With the
   server's timestamps the old value would win, so writers of registers bring their own (:mod:`workloads.registers`).
2. A delete hides an older put that arrives late only until a major compaction drops the delete marker. Registers are
   deleted only in seeds without compactions.
3. The wall clock of a server decides which of two cells is newer, so a skewed clock is only for workloads that bring
   their timestamps, or whose writes check what they overwrite (HBASE-14054).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from metaclient_fake.simulation.chance import Chance, chance
from metaclient_fake.simulation.defects import DEFECTS
from metaclient_fake.simulation.lines import LinePreemption, drawn_lines, lines_of_race
from metaclient_fake.simulation.schedule import KINDS, Fault, drawn_faults

__all__ = ["DURATION_S", "LIMITED", "ClientSpec", "Spec", "drawn"]

#: Default of the simulated seconds with faults; about 0.4 s of real time.
DURATION_S = 40.0
CLIENTS = 20

#: The workloads, and how many of the 20 clients run each in a seed that omits none.
MIX: Mapping[str, int] = {
    "registers": 5,
    "timeline": 4,
    "scans": 3,
    "inserts": 2,
    "cells": 2,
    "counters": 2,
    "cycle": 2,
    "tables": 1,
    "storm": 1,
    "sessions": 3,
}
#: The options of readers with a limit of staleness: replicas are called at once, so that replicas give many answers.
EAGER: Mapping[str, object] = {
    "hedge_delay_get_s": 0.0,
    "hedge_delay_multiget_s": 0.0,
    "hedge_delay_scan_s": 0.0,
    "hedge_budget": 1.0,
}
#: The workloads whose reads have a limit.
LIMITED = frozenset({"bounded", "canary"})
#: The share of the ``timeline`` clients that read with a limit, in half of the seeds: with the lags that the cluster
#: reports, and with the lags that a canary measures.
BOUNDED_SHARE, CANARY_SHARE = 0.35, 0.35
_META_MODES = ("None", "HedgedRead", "LoadBalance", "LoadBalance", "")


@dataclass(frozen=True, slots=True)
class ClientSpec:
    """One client: what it does, and the options of its connection (as for ``metaclient.connect``)."""

    number: int
    workload: str
    options: Mapping[str, object] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.workload}-{self.number}"

    def with_limit(self, workload: str) -> ClientSpec:
        """Return this client with another workload; one that has a limit of staleness calls replicas at once."""
        eager = EAGER if workload in LIMITED else {}
        return replace(self, workload=workload, options={**self.options, **eager})


@dataclass(frozen=True, slots=True)
class Spec:
    """Everything that a run depends on; equal specs give equal traces."""

    seed: int
    duration_s: float
    servers: int
    meta_replicas: int
    copies: int
    preempt: float
    settings: Mapping[str, object]
    clients: tuple[ClientSpec, ...]
    kinds: tuple[str, ...]
    faults: tuple[Fault, ...]
    has_deletes: bool
    defect: str = ""
    lines: LinePreemption | None = None  # which modules are preempted between statements

    def with_faults(self, faults: tuple[Fault, ...]) -> Spec:
        return replace(self, faults=faults)

    def with_clients(self, clients: tuple[ClientSpec, ...]) -> Spec:
        return replace(self, clients=clients)

    @property
    def replay_line(self) -> str:
        """The one line that repeats this run, before any shrinking."""
        duration = f" --duration {self.duration_s:g}" if self.duration_s != DURATION_S else ""
        defect = f" --defect {self.defect}" if self.defect else ""
        return f"metaclient sim replay {self.seed}{duration}{defect}"

    def as_json(self) -> dict[str, object]:
        return {
            "seed": self.seed,
            "duration_s": self.duration_s,
            "servers": self.servers,
            "meta_replicas": self.meta_replicas,
            "copies": self.copies,
            "settings": dict(self.settings),
            "clients": [{"name": client.name, "options": dict(client.options)} for client in self.clients],
            "kinds": list(self.kinds),
            "faults": [fault.as_json() for fault in self.faults],
            "lines": asdict(self.lines) if self.lines else None,
        }


def drawn(seed: int, *, duration_s: float = DURATION_S, defect: str = "") -> Spec:
    """Return the run of a seed.

    >>> spec = drawn(1)
    >>> spec == drawn(1), len(spec.clients), spec.replay_line
    (True, 20, 'metaclient sim replay 1')
    """
    dice = chance(seed, "spec")
    kinds = _kinds(dice)
    copies = dice.choice((1, 2, 2, 3))
    settings = _settings(dice)
    has_deletes = not {"compact", "split", "merge"} & set(kinds) and dice.random() < 0.5
    if has_deletes:
        settings["compaction_min_files"] = 1_000_000  # see rule 2
    return Spec(
        seed=seed,
        duration_s=duration_s,
        servers=5,
        meta_replicas=dice.choice((1, 2, 3, 3, 3)),
        copies=copies,
        preempt=dice.choice((0.0, 0.0, 0.02, 0.2)),
        settings=settings,
        clients=_with_limits(chance(seed, "limits"), _clients(chance(seed, "clients"))),
        kinds=kinds,
        faults=drawn_faults(chance(seed, "faults"), kinds, duration_s),
        has_deletes=has_deletes,
        defect=defect,
        lines=_lines(chance(seed, "lines"), defect),
    )


def _lines(dice: Chance, defect: str) -> LinePreemption | None:
    """A planted race is run with its modules preempted; other seeds preempt them rarely."""
    race_in = DEFECTS[defect].race_in if defect in DEFECTS else ""
    return lines_of_race(dice, race_in) if race_in else drawn_lines(dice)


def _kinds(dice: Chance) -> tuple[str, ...]:
    """Draw the kinds of faults of a seed; some seeds have none, to show what is wrong without faults."""
    share = dice.choice((0.0, 0.15, 0.3, 0.3, 0.5, 0.9))
    return tuple(kind for kind in KINDS if dice.random() < share)


def _settings(dice: Chance) -> dict[str, object]:
    """Settings of the cluster; small limits are reached in a short run."""
    settings: dict[str, object] = {
        "session_timeout_s": dice.choice((1.5, 3.0, 6.0)),
        "scanner_lease_s": dice.choice((3.0, 20.0)),
        "catalog_janitor_s": dice.choice((3.0, 300.0)),
        "registry_lag_s": dice.choice((0.0, 0.0, 1.0)),
        "failover_piles_replicas": dice.random() < 0.3,
        "moved_memory_s": dice.choice((2.0, 120.0)),
        "call_queue_max": dice.choice((2, 300)),
        "handlers": dice.choice((2, 30)),
        "wal_roll_entries": dice.choice((20, 10_000)),
        "flush_bytes": dice.choice((3_000, 20_000, 128 * 1024 * 1024)),
        "compaction_min_files": 3,
    }
    if dice.random() < 0.3:
        settings["latency_s_min"], settings["latency_s_max"] = 0.001, dice.choice((0.005, 0.05))
    if dice.random() < 0.2:
        settings["service_time_s"] = 0.002
    if dice.random() < 0.3:
        settings["balancer_period_s"] = 7.0
    if dice.random() < 0.2:
        settings["meta_rows_torn_s"] = 2.0
    settings.update(_replication(dice))
    return settings


def _replication(dice: Chance) -> dict[str, object]:
    way = dice.random()
    if way < 0.15:
        return {"replication_enabled": False, "replication_catalog_enabled": dice.random() < 0.5, "refresh_s": 1.0}
    return {
        "replication_lock_step": way > 0.85,
        "replication_all_meta_families": dice.random() < 0.2,
        "replication_batch_entries": dice.choice((1, 3, 100)),
        "replication_pending_bytes_max": dice.choice((2_000, 20_000, 100 * 1024 * 1024)),
        "replication_flush_interval_s": dice.choice((1.0, 30.0)),
        **dice.choice(
            (
                {"replication_retries": 3},
                {"replication_retries": 3},
                # Short timeouts: batches fail although their replicas are alive.
                {
                    "replication_retries": 0,
                    "replication_rpc_timeout_s": 0.1,
                    "replication_operation_timeout_s": 0.3,
                    "replication_marker_rpc_timeout_s": 0.5,
                    "replication_marker_operation_timeout_s": 2.0,
                },
            )
        ),
    }


def _clients(dice: Chance) -> tuple[ClientSpec, ...]:
    """Draw twenty clients; some workloads are omitted, and the others get their clients."""
    left_out = {name for name in MIX if dice.random() < 0.2}
    names = [name for name, count in MIX.items() for _ in range(count) if name not in left_out]
    names = names or ["registers"]
    chosen = [names[number % len(names)] for number in range(CLIENTS)]
    return tuple(ClientSpec(number, name, _options(dice)) for number, name in enumerate(chosen))


def _with_limits(dice: Chance, clients: tuple[ClientSpec, ...]) -> tuple[ClientSpec, ...]:
    """Give some of the TIMELINE readers a limit of staleness, in half of the seeds."""
    if dice.random() < 0.5:
        return clients
    return tuple(
        client.with_limit(_limited(dice.random())) if client.workload == "timeline" else client for client in clients
    )


def _limited(turn: float) -> str:
    if turn < BOUNDED_SHARE:
        return "bounded"
    return "canary" if turn < BOUNDED_SHARE + CANARY_SHARE else "timeline"


def _options(dice: Chance) -> dict[str, object]:
    options: dict[str, object] = {
        "meta_mode": dice.choice(_META_MODES),
        "meta_selector": "simple" if dice.random() < 0.1 else "round_robin",
        "operation_timeout_s": dice.choice((6.0, 15.0, 30.0)),
        "rpc_timeout_s": dice.choice((0.5, 2.0, 5.0)),
        "retries": dice.choice((0, 3, 15, 15)),
        "hedge_plan": dice.choice(("staged", "all_at_once")),
        "hedge_delay": dice.choice(("fixed", "adaptive")),
        "locate_prefetch": dice.choice((1, 10)),
        "scan_caching": dice.choice((2, 1000)),
    }
    if dice.random() < 0.5:
        options |= {"hedge_budget_burst": 1, "retry_budget_burst": 1, "retry_budget": 0.1}
    if not options["meta_mode"]:
        del options["meta_mode"]
    return options
