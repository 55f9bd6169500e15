"""Writers, rolls, flushes, a crash and a reader at once, preempted between any two statements of the log.

Whatever the order, replication and recovery must agree: the reader gets each durable entry once, in the order of its
region, and each acknowledged write; each file is archived once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from metaclient.errors import MetaClientError
from metaclient.model import LATEST_TIMESTAMP, Cell, Durability, FamilyDescriptor, Put, RegionInfo, TableDescriptor
from metaclient.runtime import SimRuntime
from metaclient.runtime.line_preemption import LinePauses, modules_below, preempted_lines
from metaclient_fake.storage import FileSystem, Region, WalEntry
from metaclient_fake.storage.wal import Wal, WalFile
from metaclient_fake.storage.wal_reader import WalReader

REGIONS = 3
WRITES = 40
#: Files of some ten entries, so that each run rolls the log some dozen times.
ROLL_BYTES = 1500
LOG = ("metaclient_fake.storage.wal", "metaclient_fake.storage.wal_reader", "metaclient_fake.storage.filesystem")
TABLE = TableDescriptor(b"t", (FamilyDescriptor(b"cf", replication_scope=1),))


@dataclass
class Run:
    """One log, the regions that write to it, and a source that reads its files in the order of their announcement."""

    runtime: SimRuntime
    filesystem: FileSystem = field(default_factory=FileSystem)
    acknowledged: list[bytes] = field(default_factory=list)
    read: list[tuple[str, int]] = field(default_factory=list)
    read_rows: list[bytes] = field(default_factory=list)
    read_files: list[WalFile] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.wal: Wal = self.filesystem.create_wal("one", roll_bytes=ROLL_BYTES)
        self.queue: list[str] = [file.name for file in self.wal.files]
        self.wal.on_roll.append(lambda file: self.queue.append(file.name))
        self.regions = [
            Region.open(RegionInfo(b"t", region_id=one), TABLE, self.filesystem, wal=self.wal, runtime=self.runtime)
            for one in range(REGIONS)
        ]

    def write(self, number: int) -> None:
        region = self.regions[number]
        dice = self.runtime.rng
        for index in range(WRITES):
            row = b"%d-%d" % (number, index)
            durability = Durability.ASYNC_WAL if dice.random() < 0.1 else Durability.USE_DEFAULT
            try:
                region.mutate(Put(row, (Cell(b"cf:a", LATEST_TIMESTAMP, b"v"),), durability))
                if index % 10 == number:
                    region.flush()
            except MetaClientError:
                return  # the log is closed
            if durability is not Durability.ASYNC_WAL:
                self.acknowledged.append(row)
            self.runtime.sleep(0)

    def roll(self) -> None:
        for _ in range(10):
            self.runtime.sleep(self.runtime.rng.random() * 0.02)
            self.wal.roll()

    def crash(self, after_s: float) -> None:
        """Crash and recover: the log is fenced while its writers and a roll may be in the middle of a step."""
        self.runtime.sleep(after_s)
        self.wal.fence()
        self.filesystem.delete_wal(self.wal.name)

    def tail(self) -> None:
        """Read file by file; resume with a new reader at a position now and then, as another server would."""
        reader = self._open(self.queue[0])
        while True:
            entry = reader.read()
            if entry is not None:
                self.read.append((entry.region, entry.sequence_id))
                self.read_rows += [row for row, _ in entry.edits]
                assert entry.scopes == ((b"cf", 1),)
                if self.runtime.rng.random() < 0.1:
                    reader = WalReader(reader.file, reader.position)
            elif not reader.is_at_end:
                self.runtime.sleep(0.001)
            elif len(self.queue) > len(self.read_files):
                reader = self._open(self.queue[len(self.read_files)])
            else:
                return  # the last file is closed only by the crash

    def _open(self, name: str) -> WalReader:
        file = self.filesystem.find_wal_file(name)
        assert file is not None, name
        self.read_files.append(file)
        return WalReader(file)

    def everything(self, crash_after_s: float) -> None:
        tasks = [self.runtime.start(self.write, number) for number in range(REGIONS)]
        tasks += [self.runtime.start(self.roll), self.runtime.start(self.crash, crash_after_s)]
        tail = self.runtime.start(self.tail)
        for task in tasks:
            task.result()
        tail.result()


@pytest.mark.parametrize("seed", range(40))
def test_replication_and_recovery_agree_on_the_log_however_its_writers_are_interrupted(seed: int) -> None:
    with SimRuntime(seed) as runtime:
        run = Run(runtime)
        # Pauses, too: a task that only gives way comes back before another one has rolled the log.
        with preempted_lines(runtime, modules_below(*LOG), 0.5, LinePauses(0.1, 0.02)):
            runtime.run(run.everything, runtime.rng.random() * 0.3)
    assert len(run.read) == len(set(run.read)), "an entry was read twice"
    for region in run.regions:
        numbers = [number for name, number in run.read if name == region.log.region]
        assert numbers == sorted(numbers)
    assert set(run.acknowledged) <= set(run.read_rows)
    everything = {(name, entry.sequence_id) for file in run.read_files for name, entry in recovered(file)}
    assert everything == set(run.read), "recovery has other entries than replication"
    archived = [file.name for file in run.filesystem.old_wals]
    assert sorted(archived) == sorted(run.queue), "each file is archived once"
    assert all(file.is_closed for file in run.filesystem.old_wals)


def recovered(file: WalFile) -> list[tuple[str, WalEntry]]:
    """The entries of a file as recovery reads them: region by region."""
    return [(name, entry) for name, edits in file.regions.items() for entry in edits.read(file.durable(edits))]
