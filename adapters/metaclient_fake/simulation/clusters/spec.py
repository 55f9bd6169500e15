"""Decides what a seed of several clusters runs: topology, settings, writers, the kinds of faults.

Rules that keep a run checkable; each is a property of HBase:

1. Every mutation brings a timestamp of its own, so that two active clusters resolve a conflict in the same way.
2. A delete hides an older put that arrives late only until a major compaction drops the delete marker. Rows are deleted
   only in seeds without splits and merges, whose daughters are compacted.
3. A row that several clusters write is compared between clusters that get the edits of all its writers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from metaclient_fake.simulation.chance import Chance, chance
from metaclient_fake.simulation.clusters.faults import LINK_KINDS, SIDE_KINDS
from metaclient_fake.simulation.lines import CLUSTERS_GROUPS, LinePreemption, drawn_lines
from metaclient_fake.simulation.schedule import Fault, drawn_faults

__all__ = ["DRAWS_SERIAL_PEERS", "TOPOLOGIES", "ClustersSpec", "WriterSpec", "drawn"]

#: Switch for serial peers: with True, a third of the seeds makes all of its peers serial.
DRAWS_SERIAL_PEERS = True
DURATION_S = 40.0
SERVERS = 3
WRITERS_PER_CLUSTER = 3

#: Topology -> its links, from the cluster that ships to the one that gets the edits.
TOPOLOGIES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "one way": (("east", "west"),),
    "both ways": (("east", "west"), ("west", "east")),
    "ring": (("east", "west"), ("west", "north"), ("north", "east")),
    "chain": (("east", "west"), ("west", "north")),
    "chain both ways": (("east", "west"), ("west", "east"), ("west", "north"), ("north", "west")),
}
#: A limit that no run reaches.
_MANY_BYTES = 64 * 1024 * 1024
#: How often each is drawn.
_DRAWN = ("one way", "both ways", "both ways", "ring", "ring", "chain", "chain both ways")


@dataclass(frozen=True, slots=True)
class WriterSpec:
    """One writer: its cluster, and the options of its connection (as for ``metaclient.connect``)."""

    number: int
    cluster: str
    options: Mapping[str, object] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.cluster}-{self.number}"


@dataclass(frozen=True, slots=True)
class ClustersSpec:
    """Everything that a run of several clusters depends on; equal specs give equal traces."""

    seed: int
    duration_s: float
    topology: str
    is_serial: bool
    servers: int
    versions: int  # of the replicated families
    preempt: float
    settings: Mapping[str, object]
    splits: Mapping[str, tuple[bytes, ...]]  # of the tables of each cluster
    clients: tuple[WriterSpec, ...]
    kinds: tuple[str, ...]
    faults: tuple[Fault, ...]
    has_deletes: bool
    defect: str = ""
    lines: LinePreemption | None = None  # which modules are preempted between statements

    @property
    def links(self) -> tuple[tuple[str, str], ...]:
        return TOPOLOGIES[self.topology]

    @property
    def clusters(self) -> tuple[str, ...]:
        """The names of the clusters; the first is the one that ships first."""
        return tuple(dict.fromkeys(name for link in self.links for name in link))

    def reached_from(self, cluster: str) -> frozenset[str]:
        """Return the clusters that get the edits of a cluster, with the cluster itself."""
        found = {cluster}
        while more := {target for source, target in self.links if source in found} - found:
            found |= more
        return frozenset(found)

    @property
    def sharing(self) -> tuple[str, ...]:
        """The clusters that write the shared rows: all if every cluster reaches every other, else the first."""
        everybody = frozenset(self.clusters)
        is_cycle = all(self.reached_from(name) == everybody for name in self.clusters)
        return self.clusters if is_cycle else self.clusters[:1]

    def with_faults(self, faults: tuple[Fault, ...]) -> ClustersSpec:
        return replace(self, faults=faults)

    def with_clients(self, clients: tuple[WriterSpec, ...]) -> ClustersSpec:
        return replace(self, clients=clients)

    @property
    def replay_line(self) -> str:
        """The one line that repeats this run, before any shrinking."""
        duration = f" --duration {self.duration_s:g}" if self.duration_s != DURATION_S else ""
        defect = f" --defect {self.defect}" if self.defect else ""
        return f"metaclient sim replay {self.seed} --clusters{duration}{defect}"

    def as_json(self) -> dict[str, object]:
        return {
            "seed": self.seed,
            "duration_s": self.duration_s,
            "topology": self.topology,
            "is_serial": self.is_serial,
            "servers": self.servers,
            "settings": dict(self.settings),
            "clients": [{"name": client.name, "options": dict(client.options)} for client in self.clients],
            "kinds": list(self.kinds),
            "faults": [fault.as_json() for fault in self.faults],
            "lines": asdict(self.lines) if self.lines else None,
        }


def drawn(seed: int, *, duration_s: float = DURATION_S, defect: str = "") -> ClustersSpec:
    """Return the run of a seed.

    >>> spec = drawn(1)
    >>> spec == drawn(1), spec.replay_line
    (True, 'metaclient sim replay 1 --clusters')
    """
    dice = chance(seed, "clusters")
    topology = dice.choice(_DRAWN)
    kinds = _kinds(dice)
    settings = _settings(dice) | _peer_replication(dice)
    has_deletes = not {"split", "merge"} & set(kinds) and dice.random() < 0.7
    settings["compaction_min_files"] = 1_000_000 if has_deletes else 3
    is_serial = dice.random() < 0.33 and DRAWS_SERIAL_PEERS
    clusters = tuple(dict.fromkeys(name for link in TOPOLOGIES[topology] for name in link))
    return ClustersSpec(
        seed=seed,
        duration_s=duration_s,
        topology=topology,
        is_serial=is_serial,
        servers=SERVERS,
        versions=dice.choice((1, 3)),
        preempt=dice.choice((0.0, 0.0, 0.02, 0.2)),
        settings=settings,
        splits={name: dice.choice(((), (b"3", b"7"), (b"2", b"4", b"6", b"8"))) for name in clusters},
        clients=_writers(chance(seed, "writers"), clusters),
        kinds=kinds,
        faults=drawn_faults(chance(seed, "clusters/faults"), kinds, duration_s),
        has_deletes=has_deletes,
        defect=defect,
        lines=drawn_lines(chance(seed, "clusters/lines"), CLUSTERS_GROUPS),
    )


def _kinds(dice: Chance) -> tuple[str, ...]:
    """Draw the kinds of faults of a seed; some seeds have none, to show what is wrong without faults."""
    share = dice.choice((0.0, 0.15, 0.3, 0.5, 0.5, 0.9))
    return tuple(kind for kind in (*SIDE_KINDS, *LINK_KINDS) if dice.random() < share)


def _settings(dice: Chance) -> dict[str, object]:
    """Settings of all clusters; small limits are reached in a short run."""
    settings: dict[str, object] = {
        "session_timeout_s": dice.choice((1.5, 3.0, 6.0)),
        "failover_piles_replicas": False,
        "handlers": dice.choice((2, 30)),
        "wal_roll_entries": dice.choice((5, 20, 10_000)),
        "flush_bytes": dice.choice((1_000, 20_000, 128 * 1024 * 1024)),
        "old_wal_ttl_s": dice.choice((0.0, 0.0, 5.0)),
    }
    if dice.random() < 0.3:
        settings["latency_s_min"], settings["latency_s_max"] = 0.001, dice.choice((0.005, 0.05))
    if dice.random() < 0.3:
        settings["balancer_period_s"] = 7.0
    return settings


def _peer_replication(dice: Chance) -> dict[str, object]:
    settings = {
        "behaviour": dice.choice(("3.0", "3.0", "2.6")),
        "batch_entries": dice.choice((1, 3, 25_000, 25_000)),
        "batch_bytes": dice.choice((200, _MANY_BYTES, _MANY_BYTES)),
        "buffer_bytes_max": dice.choice((500, _MANY_BYTES, _MANY_BYTES)),
        "retry_pause_s": dice.choice((0.1, 0.3, 1.0)),
        "retry_multiplier_max": dice.choice((3, 10)),
        "serial_pause_s": dice.choice((0.2, 2.0)),
        "ship_timeout_s": dice.choice((1.0, 5.0, 60.0)),
        "request_bytes_max": dice.choice((500, 500, _MANY_BYTES)),
        "calls_max": dice.choice((1, 3, 10)),
        "sink_ratio": dice.choice((0.5, 1.0)),
        "bad_sink_threshold": dice.choice((0, 3)),
        "sleep_before_failover_s": dice.choice((0.2, 2.0)),
        "source_stop_timeout_s": dice.choice((2.0, 300.0)),
        "sink_batch_rows": dice.choice((10, 5_000)),  # with 1, a sink behind a slow network takes minutes for a burst
    }
    return {f"peer_replication_{name}": value for name, value in settings.items()}


def _writers(dice: Chance, clusters: tuple[str, ...]) -> tuple[WriterSpec, ...]:
    names = [name for name in clusters for _ in range(WRITERS_PER_CLUSTER)]
    return tuple(WriterSpec(number, name, _options(dice)) for number, name in enumerate(names))


def _options(dice: Chance) -> dict[str, object]:
    return {
        "operation_timeout_s": dice.choice((6.0, 15.0)),
        "rpc_timeout_s": dice.choice((0.5, 2.0)),
        "retries": dice.choice((0, 15, 15)),
    }
