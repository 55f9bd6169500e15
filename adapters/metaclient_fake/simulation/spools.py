"""Seeds of receivers with a spool: they are killed in the middle of a write while regions move and servers crash.

As :mod:`~metaclient_fake.simulation.consumers`, with receivers (:mod:`metaclient.changes.receiver`) in the place of the
consumers, each with its own worker of one spool, and one reader as Spark's: it reads batches between offsets, by chance
a batch twice, and commits the batch before. The files are real ones, in a temporary folder. A receiver is killed in the
middle of an append: a part of its bytes stays.

What is checked at the end:

- ``lost``: every edit that a writer was told to be written was read.
- ``repeats``: no worker's files have a change twice.
- ``error``: no file is missing or damaged.
- ``replay``: a batch that is read again has the same changes.
- ``order`` (serial subscriptions of one worker): no change stands behind a later change of its row.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from metaclient.changes.decoding import decode_rows
from metaclient.changes.ledger import Entry, Ledger
from metaclient.changes.receiver import SpoolReceiver, open_receiver
from metaclient.changes.spool import Position, Spool, SpooledCall, SpoolError
from metaclient.changes.spool.disk import FolderDisk
from metaclient.changes.spool.journal import Journal
from metaclient.errors import ConnectionClosed
from metaclient.runtime import SimRuntime
from metaclient.wire.rpc.replication import decode_keys
from metaclient_fake.simulation.consumers import NAME, ConsumersReport, SeededRun
from metaclient_fake.simulation.defects import Defect, planted, registered

__all__ = ["SPOOL_DEFECTS", "run_spools"]

#: Small, so that segments roll and the spool is full at times.
SPOOL_BYTES = 6_000
BATCH_BYTES = 1_500
#: Of an append: the receiver is killed in it.
KILLED = 0.03

SPOOL_DEFECTS: dict[str, Defect] = {}
_defect = partial(registered, SPOOL_DEFECTS)

_ReadChange = tuple[bytes, str, int, bytes]  # row, region, sequence, value


class _Killed(BaseException):
    """The receiver is killed; no code of it catches this."""


class _TornDisk(FolderDisk):
    """A disk whose process may be killed in an append."""

    def __init__(self, folder: Path, draw: Callable[[], float]) -> None:
        super().__init__(folder)
        self._draw = draw

    def append(self, name: str, at: int, parts: Sequence[bytes]) -> None:
        if self._draw() < KILLED:
            data = b"".join(parts)
            super().append(name, at, [data[: int(self._draw() * len(data))]])
            raise _Killed
        super().append(name, at, parts)


class _SpoolRun(SeededRun):
    """One seed."""

    def __init__(self, runtime: SimRuntime, seed: int, folder: Path) -> None:
        super().__init__(runtime, seed)
        self._folder = folder
        self._workers = 0
        self._is_failed = False
        self._open: list[SpoolReceiver] = []
        self._of_worker: dict[str, list[_ReadChange]] = {}
        self._reader = runtime.start(self._read, name="reader")

    # -- receivers -----------------------------------------------------------------------------------------------------

    def consume(self) -> None:
        self._workers += 1
        worker = f"w{self._workers}"
        while not self._receive(worker):
            self.report.killed += 1
            self.runtime.sleep(self.rng.uniform(0.0, 20.0))
        if worker == "w1":
            self._reader.result()

    def _receive(self, worker: str) -> bool:
        """Receive until nothing more comes; return False if the receiver was killed."""
        with self.cluster.connect(operation_timeout_s=60.0) as connection:
            made = open_receiver(
                connection,
                self._folder,
                name=NAME,
                worker=worker,
                spool_bytes_max=SPOOL_BYTES,
                disk=lambda at: _TornDisk(at, self.rng.random),
            )
            self._open.append(made)
            try:
                return self._store(made)
            except _Killed:
                return False
            except ConnectionClosed:
                return True  # the reader has failed
            finally:
                self._open.remove(made)
                made.close()

    def _store(self, receiver: SpoolReceiver) -> bool:
        quiet_since = self.runtime.now()
        while not self._is_failed and (not self.is_calm or self.runtime.now() - quiet_since < 400.0):
            if receiver.poll(5.0) or not self.is_calm:
                quiet_since = self.runtime.now()
            if not self.is_calm and self.rng.random() < 0.005:
                self.report.hung += 1
                self.runtime.sleep(self.rng.uniform(61.0, 150.0))
        return True

    # -- the reader ----------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            self._read_all()
        except SpoolError as error:
            self.report.violations.append(f"error: {error}")
            self._is_failed = True
            for receiver in list(self._open):
                receiver.close()  # it may wait for space

    def _read_all(self) -> None:
        """Read batches until everything is calm and nothing more comes."""
        at: dict[str, Position] = {}
        quiet_since = self.runtime.now()
        while not self.is_calm or self.runtime.now() - quiet_since < 450.0:
            self.runtime.sleep(self.rng.uniform(0.5, 8.0))
            if not (self._folder / "spool.json").exists():
                continue
            spool = Spool(self._folder)
            reached = spool.limit(at, spool.end(), BATCH_BYTES)
            if reached == at and self.is_calm:
                continue
            batch = self._batch(spool, at, reached)
            spool.commit(at)  # as Spark: a batch is committed when the next one is planned
            if self.rng.random() < 0.1:
                again = self._batch(spool, at, reached)
                if again != batch:
                    self.report.violations.append(f"replay: a batch from {at} to {reached} has changed")
            for worker, changes in batch.items():
                self._of_worker.setdefault(worker, []).extend(changes)
                self.report.delivered += len(changes)
                self.processed.update((row, value) for row, _, _, value in changes)
            at, quiet_since = reached, self.runtime.now()

    def _batch(self, spool: Spool, start: Any, end: Any) -> dict[str, list[_ReadChange]]:
        found: dict[str, list[_ReadChange]] = {}
        for part in spool.slices(start, end):
            for call in spool.read(part):
                found.setdefault(part.worker, []).extend(_changes(call))
        return found

    # -- what must hold ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        for changes in self._of_worker.values():
            seen: set[tuple[bytes, str, int]] = set()
            for row, region, sequence, _ in changes:
                if (row, region, sequence) in seen:
                    self.report.violations.append(f"repeats: {(row, region, sequence)} is twice in the files")
                seen.add((row, region, sequence))
        if len(self._of_worker) == 1:
            self.deliveries = [(row, sequence) for row, _, sequence, _ in next(iter(self._of_worker.values()))]
            super().check()
            return
        is_serial, self.report.is_serial = self.report.is_serial, False  # several workers have no order between them
        super().check()
        self.report.is_serial = is_serial


def _changes(call: SpooledCall) -> list[_ReadChange]:
    found: list[_ReadChange] = []
    at = 0
    for index, (key, count) in enumerate(decode_keys(call.param)):
        rows, at = decode_rows(call.cells, at, len(call.cells), count)
        if call.flags is None or call.flags[index]:
            found += [(row, key.region, key.sequence_id, cell.value) for row, cells in rows for cell in cells]
    return found


def run_spools(seed: int, defect: str = "") -> ConsumersReport:
    """Run one seed, with a planted bug if ``defect`` names one."""
    with (
        tempfile.TemporaryDirectory(prefix="spool-seed-") as folder,
        planted(defect, SPOOL_DEFECTS),
        SimRuntime(seed=seed) as runtime,
    ):
        return _SpoolRun(runtime, seed, Path(folder)).run()


# -- planted bugs ------------------------------------------------------------------------------------------------------


@_defect(Ledger, "open_group", caught_by=("lost",))
def call_is_answered_before_it_is_stored(right: Callable[..., Any]) -> Callable[..., Any]:
    """The answer is sent when a call is taken: a receiver that is killed in the append has lost it."""

    def open_group(self: Ledger, delivery: Any, keys: Any) -> tuple[Entry | None, list[bool]]:
        found: tuple[Entry | None, list[bool]] = right(self, delivery, keys)
        delivery.answer()
        return found

    return open_group


@_defect(Journal, "_newest_state", caught_by=("repeats",))
def state_of_deleted_segments_is_forgotten(right: Callable[..., Any]) -> Callable[..., Any]:
    """Recovery reads the segments, but not the state of those that were deleted: their repeats are stored again."""

    def newest_state(self: Journal, names: Any, on_state: Any) -> int:
        return int(right(self, names, lambda state: None))

    return newest_state


@_defect(Spool, "commit", caught_by=("error", "lost"))
def commit_deletes_the_segment_of_the_offset(right: Callable[..., Any]) -> Callable[..., Any]:
    """The segment that the offset stands in is deleted, too, with calls behind the offset."""

    def commit(self: Spool, offset: Any) -> int:
        return int(right(self, {worker: Position(at.segment + 1, 0) for worker, at in offset.items()}))

    return commit
