"""One source with a real log and a peer that answers as a test says."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from metaclient.errors import CallTimeout, MetaClientError
from metaclient.model import Cell, ServerName
from metaclient.replication_peers import BlockedRegion, Peer, PeerConfig, PeerState
from metaclient.runtime import SimRuntime
from metaclient.wire.rpc.replication import ShippedEntry
from metaclient_fake.config.replication import PeerReplicationConfig
from metaclient_fake.replication.batches import BufferQuota
from metaclient_fake.replication.queues import QueueId
from metaclient_fake.replication.source import Source, SourceHost
from metaclient_fake.storage import FileSystem, WalEntry

HERE, PEER = uuid.UUID(int=1), uuid.UUID(int=2)
RS1 = ServerName("rs1", 16020, 1)
SCOPES = ((b"f", 1),)
#: A sink's reaction to a call: returns, or raises the error that the source sees.
Reaction = Callable[[ServerName, Sequence[ShippedEntry], float], None]


@dataclass(frozen=True)
class Arrived:
    """One call to the peer."""

    at_s: float
    server: ServerName
    entries: tuple[ShippedEntry, ...]
    timeout_s: float

    @property
    def numbers(self) -> list[int]:
        return [entry.key.sequence_id for entry in self.entries]

    @property
    def regions(self) -> set[str]:
        return {entry.key.region for entry in self.entries}


class ScriptedPeer:
    """An endpoint that records the calls and reacts by script: ``reactions`` first, then ``always``."""

    def __init__(self, runtime: SimRuntime, servers: int = 1) -> None:
        self.runtime = runtime
        self.names = [ServerName(f"b{number}", 16020, 1) for number in range(servers)]
        self.id: uuid.UUID | None = PEER
        self.arrived: list[Arrived] = []
        self.reactions: list[Reaction | MetaClientError | None] = []
        self.always: Reaction | None = None
        self.in_flight = 0
        self.in_flight_max = 0
        self.is_closed = False

    def cluster_id(self) -> uuid.UUID | None:
        return self.id

    def servers(self) -> Sequence[ServerName]:
        return self.names

    def replicate(self, server: ServerName, entries: Sequence[ShippedEntry], deadline: float) -> None:
        now = self.runtime.now()
        self.arrived.append(Arrived(now, server, tuple(entries), round(deadline - now, 3)))
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
        try:
            reaction = self.reactions.pop(0) if self.reactions else self.always
            if isinstance(reaction, MetaClientError):
                raise reaction
            if reaction is not None:
                reaction(server, entries, deadline)
        finally:
            self.in_flight -= 1

    def close(self) -> None:
        self.is_closed = True

    def hang(self, server: ServerName, entries: Sequence[ShippedEntry], deadline: float) -> None:
        """Do not answer until the deadline."""
        self.runtime.sleep(deadline - self.runtime.now())
        raise CallTimeout(f"{server} did not answer in time", may_have_applied=True)

    def takes(self, seconds: float) -> Reaction:
        """Answer after some time."""
        return lambda server, entries, deadline: self.runtime.sleep(seconds)

    @property
    def numbers(self) -> list[int]:
        """The sequence ids of everything that was sent, in the order of the calls."""
        return [number for call in self.arrived for number in call.numbers]


class ShippingRig:
    """The sources of one server, their log, and what they store."""

    def __init__(self, runtime: SimRuntime, *, servers: int = 1, **settings: object) -> None:
        self.runtime = runtime
        self.config = PeerReplicationConfig(**settings)  # type: ignore[arg-type]  # tests
        self.peer = ScriptedPeer(runtime, servers)
        self.peers: dict[str, Peer] = {"p": Peer("p", PeerState.ENABLED, PeerConfig(cluster_key="b:2181:/hbase"))}
        self.filesystem = FileSystem()
        self.wal = self.filesystem.create_wal(str(RS1), time_ms=runtime.time_ms)
        self.quota = BufferQuota(runtime, self.config.buffer_bytes_max)
        self.stored: list[tuple[str, int, dict[str, int], bool]] = []
        self.stored_at_s: list[float] = []
        self.finished = 0
        self.aborts: list[str] = []
        self.blocked: set[int] = set()  # sequence ids that a serial peer may not get yet
        self.asked: list[int] = []
        self.order_errors: dict[int, list[MetaClientError]] = {}  # raised by the next checks of a sequence id
        self.tables: dict[bytes, frozenset[bytes]] = {b"t": frozenset({b"f"})}
        self.is_running = True
        self.start_errors: list[Exception] = []  # raised by the next starts of a source
        self._number = 0

    @property
    def host(self) -> SourceHost:
        return SourceHost(
            runtime=self.runtime,
            config=self.config,
            cluster_id=HERE,
            quota=self.quota,
            find_wal=self.filesystem.find_wal_file,
            make_endpoint=self.make_endpoint,
            make_order_check=lambda peer_id: self.check_order,
            families_of=self.tables.get,
            is_running=lambda: self.is_running,
            abort=self.aborts.append,
        )

    def make_endpoint(self, peer: Peer) -> ScriptedPeer:
        if self.start_errors:
            raise self.start_errors.pop(0)
        return self.peer

    def check_order(self, entry: WalEntry) -> BlockedRegion | None:
        self.asked.append(entry.sequence_id)
        if self.order_errors.get(entry.sequence_id):
            raise self.order_errors[entry.sequence_id].pop(0)
        if entry.sequence_id not in self.blocked:
            return None
        return BlockedRegion(region=entry.region, sequence_id=entry.sequence_id, waits_for="the test")

    @property
    def file(self) -> str:
        return self.wal.files[-1].name

    def put(
        self, count: int = 1, *, region: str = "r", table: bytes = b"t", size: int = 1, family: bytes = b"f"
    ) -> None:
        """Log puts, one entry each, with sequence ids that count over all regions."""
        for _ in range(count):
            self._number += 1
            cells = (Cell(family + b":q", self._number, bytes(size)),)
            self.wal.append(
                WalEntry(region, table, self._number, self.runtime.time_ms(), ((b"row", cells),), scopes=((family, 1),))
            )

    def change(self, **changes: object) -> None:
        """Change the peer's configuration, or its ``state``."""
        peer = self.peers["p"]
        state = changes.pop("state", peer.state)
        assert isinstance(state, PeerState)
        self.peers["p"] = Peer("p", state, replace(peer.config, **changes))  # type: ignore[arg-type]  # tests

    def source(self, positions: Mapping[str, int] | None = None, *, dead: tuple[ServerName, ...] = ()) -> Source:
        """Start a source on the current log, from its beginning unless ``positions`` are given."""
        made = self.host.make_source(
            QueueId("p", RS1, dead),
            lambda: self.peers["p"],
            {self.file: 0} if positions is None else positions,
            store=self.store,
            finished=self.finish,
        )
        made.start()
        return made

    def store(
        self, wal: str, position: int, pushed_ids: Mapping[str, int] | None = None, *, is_end_of_file: bool = False
    ) -> None:
        self.stored.append((wal, position, dict(pushed_ids or {}), is_end_of_file))
        self.stored_at_s.append(self.runtime.now())

    def finish(self) -> None:
        self.finished += 1

    def roll(self, *sources: Source) -> None:
        """Begin a new file, and enqueue it."""
        self.wal.roll()
        for source in sources:
            source.enqueue(self.file)

    def run_for(self, seconds: float) -> None:
        self.runtime.run_for(seconds)
        assert not self.aborts, self.aborts
