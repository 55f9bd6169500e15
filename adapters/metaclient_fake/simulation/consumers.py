"""Seeds of consumers of changes: they die, hang and commit late while regions move and servers crash.

One seed is one cluster, two writers and one to three consumers of one subscription, on virtual time. A consumer notes
each change when it is delivered, works, and commits it; then it is *processed*. By chance it hangs for longer than a
region server waits, or it is killed: what it has not committed, and what its state has not saved, is gone. Another one
is started in its place, with its saved state.

Three claims are checked at the end, when everything is healed and nothing more comes:

- ``lost``: every edit that a writer was told to be written was processed.
- ``order`` (serial subscriptions): no change is delivered for the first time after a later change of its row.
- ``repeats``: no consumer gets a change twice during its life.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from metaclient.changes import Change, Changes, Subscriptions
from metaclient.changes.ledger import Entry, Ledger
from metaclient.changes.repeats import Repeats
from metaclient.connection import Connection
from metaclient.errors import MetaClientError
from metaclient.runtime import SimRuntime
from metaclient_fake.cluster import FakeCluster
from metaclient_fake.replication.serial import SerialChecker
from metaclient_fake.simulation.defects import Defect, planted, registered

__all__ = ["CONSUMER_DEFECTS", "NAME", "TABLE", "ConsumersReport", "SeededRun", "late_changes", "run_consumers"]

TABLE, NAME = "t", "seed"
#: Few rows, so that many changes have successors.
ROWS = 12
ACTIVE_S = 240.0
#: After the faults: claims of queues, retries of sources with growing pauses, and a hung consumer must all end.
CALM_S = 900.0
#: How long nothing may come before a consumer takes everything for delivered; more than the timeout of a third call.
QUIET_S = 400.0

CONSUMER_DEFECTS: dict[str, Defect] = {}
_defect = partial(registered, CONSUMER_DEFECTS)


@dataclass(slots=True)
class ConsumersReport:
    """What happened under one seed. ``violations`` is empty if all claims hold."""

    seed: int
    is_serial: bool
    violations: list[str] = field(default_factory=list)
    written: int = 0
    delivered: int = 0
    killed: int = 0
    hung: int = 0
    faults: int = 0


class _Saved:
    """The state of a consumer, which outlives it. A killed consumer saves nothing any more."""

    def __init__(self) -> None:
        self.data: bytes | None = None

    def load(self) -> bytes | None:
        return self.data

    def save(self, data: bytes) -> None:
        self.data = data


class _SavedUntilDeath:
    """What one life of a consumer saves to."""

    def __init__(self, saved: _Saved) -> None:
        self._saved = saved
        self.is_dead = False

    def load(self) -> bytes | None:
        return self._saved.load()

    def save(self, data: bytes) -> None:
        if not self.is_dead:
            self._saved.save(data)


class SeededRun:
    """One seed."""

    def __init__(self, runtime: SimRuntime, seed: int) -> None:
        self.runtime = runtime
        self.rng = runtime.rng
        self.report = ConsumersReport(seed, is_serial=self.rng.random() < 0.5)
        behaviour = self.rng.choice(["2.6", "3.0"])
        self.cluster = FakeCluster(
            servers=3,
            meta_replicas=1,
            runtime=runtime,
            config={"peer_replication_behaviour": behaviour, "session_timeout_s": 10.0},
        )
        self.is_over = False  # no more edits and faults
        self.is_calm = False  # consumers neither hang nor die
        self.acknowledged: set[tuple[bytes, bytes]] = set()
        self.processed: set[tuple[bytes, bytes]] = set()
        self.deliveries: list[tuple[bytes, int]] = []  # row and sequence, in the order of time

    def run(self) -> ConsumersReport:
        with self.cluster, self.cluster.connect(operation_timeout_s=60.0) as connection:
            connection.create_table(TABLE, {"d": {"replication_scope": 1, "max_versions": 1}}, splits=[b"06"])
            Subscriptions(connection).create(NAME, [TABLE], serial=self.report.is_serial)
            start = self.runtime.start
            writers = [start(self.write, number, name="writer") for number in range(2)]
            consumers = [start(self.consume, name="consumer") for _ in range(self.rng.randint(1, 3))]
            faults = start(self.break_things, connection, name="faults")
            self.runtime.sleep(ACTIVE_S)
            self.is_over = True
            for task in (*writers, faults):
                task.result()
            self.heal()
            self.is_calm = True
            for task in consumers:
                task.result()
            self.check()
        return self.report

    # -- writers -------------------------------------------------------------------------------------------------------

    def write(self, writer: int) -> None:
        with self.cluster.connect(client=f"writer{writer}", operation_timeout_s=60.0) as connection:
            table = connection.table(TABLE)
            number = 0
            while not self.is_over:
                row, value = b"%02d" % self.rng.randrange(ROWS), b"%d-%d" % (writer, number)
                number += 1
                try:
                    table.put(row, {b"d:q": value})
                except MetaClientError:
                    pass  # it may have been written, or not
                else:
                    self.acknowledged.add((row, value))
                    self.report.written += 1
                self.runtime.sleep(self.rng.expovariate(1 / 0.7))

    # -- consumers -----------------------------------------------------------------------------------------------------

    def consume(self) -> None:
        """Live and die, until nothing more comes."""
        saved = _Saved()
        while not self._live(saved):
            self.report.killed += 1
            self.runtime.sleep(self.rng.uniform(0.0, 20.0))

    def _live(self, saved: _Saved) -> bool:
        """Return True at the end of everything, False if the consumer was killed."""
        store = _SavedUntilDeath(saved)
        seen: set[tuple[bytes, str, int]] = set()
        with self.cluster.connect(operation_timeout_s=60.0) as connection:
            changes = connection.changes(TABLE, name=NAME, serial=self.report.is_serial, state=store)
            while True:
                change = changes.poll(QUIET_S if self.is_calm else 5.0)
                if change is None:
                    if self.is_calm:
                        changes.close()
                        return True
                    continue
                if not self._process(changes, change, seen):
                    store.is_dead = True
                    changes.close()
                    return False

    def _process(self, changes: Changes, change: Change, seen: set[tuple[bytes, str, int]]) -> bool:
        """Work on a change and commit it; return False if the consumer is killed meanwhile."""
        key = change.row, change.region, change.sequence
        if key in seen:
            self.report.violations.append(f"repeats: {key} came twice to one consumer")
        seen.add(key)
        self.report.delivered += 1
        self.deliveries.append((change.row, change.sequence))
        draw = 1.0 if self.is_calm else self.rng.random()
        if draw < 0.02:
            return False
        if draw < 0.03:
            self.report.hung += 1
            self.runtime.sleep(self.rng.uniform(61.0, 150.0))
        elif draw < 0.3:
            self.runtime.sleep(self.rng.uniform(0.0, 1.0))
        change.commit()
        self.processed.update((change.row, cell.value) for cell in change.puts)
        return True

    # -- what breaks ---------------------------------------------------------------------------------------------------

    def break_things(self, connection: Connection) -> None:
        while not self.is_over:
            self.runtime.sleep(self.rng.uniform(5.0, 30.0))
            fault = self.rng.choice([self._move, self._split, self._restart, self._partition])
            try:
                fault(connection)
            except MetaClientError:
                continue  # the region is on its way, or there is no such server now
            self.report.faults += 1

    def _region(self, connection: Connection) -> str:
        return str(self.rng.choice(connection.regions(TABLE)).region.encoded_name)

    def _move(self, connection: Connection) -> None:
        self.cluster.move(self._region(connection), self.rng.choice(self.cluster.servers()))

    def _split(self, connection: Connection) -> None:
        if len(connection.regions(TABLE)) < 4:
            self.cluster.split(self._region(connection), b"%02d" % self.rng.randrange(1, ROWS))

    def _restart(self, connection: Connection) -> None:
        server = self.rng.choice(self.cluster.servers())
        self.cluster.kill(server)
        self.runtime.sleep(self.rng.uniform(0.0, 20.0))
        self.cluster.restart(server)

    def _partition(self, connection: Connection) -> None:
        cut = self.cluster.network.partition(self.rng.choice(self.cluster.servers()), "changes")
        self.runtime.sleep(self.rng.uniform(1.0, 30.0))
        self.cluster.network.mend(cut)

    def heal(self) -> None:
        self.cluster.heal()

    # -- what must hold ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        lost = sorted(self.acknowledged - self.processed)
        if lost:
            self.report.violations.append(f"lost: {len(lost)} edits were never processed, the first is {lost[0]}")
        if self.report.is_serial:
            self.report.violations += late_changes(self.deliveries)


def late_changes(deliveries: list[tuple[bytes, int]]) -> list[str]:
    """Return a sentence per change that came for the first time after a later change of its row."""
    newest: dict[bytes, int] = {}
    seen: set[tuple[bytes, int]] = set()
    found = []
    for row, sequence in deliveries:
        if (row, sequence) not in seen and sequence < newest.get(row, 0):
            found.append(f"order: change {sequence} of row {row!r} came after {newest[row]}")
        seen.add((row, sequence))
        newest[row] = max(sequence, newest.get(row, 0))
    return found


def run_consumers(seed: int, defect: str = "") -> ConsumersReport:
    """Run one seed, with a planted bug if ``defect`` names one."""
    with planted(defect, CONSUMER_DEFECTS), SimRuntime(seed=seed) as runtime:
        return SeededRun(runtime, seed).run()


# -- planted bugs ------------------------------------------------------------------------------------------------------


@_defect(Ledger, "open", caught_by=("lost",))
def call_is_answered_when_it_arrives(right: Callable[..., Any]) -> Callable[..., Any]:
    """The answer is sent when a call is taken from the window: what a consumer has not processed dies with it."""

    def open_call(self: Ledger, delivery: Any, keys: Any) -> list[Entry | None]:
        found: list[Entry | None] = right(self, delivery, keys)
        delivery.answer()
        return found

    return open_call


@_defect(Repeats, "has", caught_by=("lost",))
def everything_below_the_newest_is_a_repeat(right: Callable[..., Any]) -> Callable[..., Any]:
    """Gaps count as known: an edit in the backlog of another server comes later, and is dropped."""

    def has(self: Repeats, region: str, sequence: int) -> bool:
        runs = self._regions.get(region)
        return runs is not None and bool(runs.ends) and sequence <= runs.ends[-1]

    return has


@_defect(SerialChecker, "blocked_by", caught_by=("order",))
def serial_order_is_not_checked(right: Callable[..., Any]) -> Callable[..., Any]:
    """A source ships the edits of a region that has moved before the old server has shipped its own."""

    def blocked_by(self: SerialChecker, *arguments: Any, **named: Any) -> None:
        return None

    return blocked_by
