"""Decides which batches a replica applies and in which order, and passes markers to the read gate.

Mirrors RSRpcServices.replicateToReplica and HRegion.replayWALEntry (3.x): batches of one region one after the
other (waiting at most until the call's deadline), old entries skipped, markers applied by
:class:`metaclient_fake.storage.replica.Follower`.

DIVERGENCE: a batch carries its primary's *epoch*, a number that grows with each open of the primary.

- An older epoch is refused: replicas take no edits from a primary that was replaced without noticing it.
- A newer epoch makes the replica restart from the files (HBASE-18070: "replicas reset on primary reopen"): edits that
  only the dead primary had (SKIP_WAL) are dropped, and sequence ids may be lower than before. HBase compares sequence
  ids only, so that after such a crash it skips the new primary's entries until their ids are higher again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from metaclient.errors import CallTimeout, NotServingRegion, RequestRefused
from metaclient.runtime import Runtime
from metaclient_fake.region_replication.read_gate import ReadGate
from metaclient_fake.storage import Region
from metaclient_fake.storage.packed_row import PackedRow
from metaclient_fake.storage.replica import lists_files
from metaclient_fake.storage.wal import LoggedEntry, row_key

__all__ = ["Replay", "Replayed"]

logger = logging.getLogger(__name__)


class Replayed:
    """The changes that a batch made, for an index over the region."""

    __slots__ = ("entries", "files_as_of", "is_anew", "saw_files")

    def __init__(self) -> None:
        #: The entries that were new, without markers.
        self.entries: list[LoggedEntry] = []
        self.saw_files = False
        self.is_anew = False
        #: The listed files have all edits acknowledged before this instant; None if no files were listed, or not known.
        self.files_as_of: float | None = None

    @property
    def rows(self) -> dict[bytes, None]:
        """The changed rows: as a set, but in the order of the entries, so that equal seeds give equal runs."""
        return {row_key(row): None for entry in self.entries for row in entry.rows}


class Replay:
    """One open replica as the target of its primary's batches."""

    def __init__(self, region: Region, runtime: Runtime, gate: ReadGate) -> None:
        self.region = region
        self.gate = gate
        self.epoch = 0
        self.entries_applied = 0
        self.entries_skipped = 0
        self._info = region.info
        self._primary = region.info.replica(0).encoded_name
        self._runtime = runtime
        self._turn = runtime.condition()
        self._is_busy = False

    def apply(self, epoch: int, entries: Sequence[LoggedEntry], deadline: float) -> Replayed:
        """Apply a whole batch, in order; a repeated batch has no effect."""
        if not self._are_ours(entries):
            raise NotServingRegion(f"the entries are not all of {self._primary}")
        self._take_turn(deadline)
        try:
            return self._apply(epoch, entries)
        finally:
            with self._turn:
                self._is_busy = False
                self._turn.notify()

    def has_applied(self, epoch: int, sequence_id: int) -> bool:
        """Return True if this copy has applied the entries of this epoch's primary up to ``sequence_id``.

        A copy that was opened since then, or is on a server that was declared dead, has not.
        """
        if self.epoch != epoch or not self.gate.has_caught_up:
            return False
        return self.region.last_replayed_sequence_id >= sequence_id

    def _are_ours(self, entries: Sequence[LoggedEntry]) -> bool:
        start, end = self._info.start_key, self._info.end_key
        for entry in entries:
            if isinstance(entry, PackedRow):  # it does not name its region
                row = entry.row
                if row < start or (end and row >= end):
                    return False
            elif entry.region != self._primary:
                return False
        return True

    def _take_turn(self, deadline: float) -> None:
        with self._turn:
            while self._is_busy:
                if not self._turn.wait(deadline):
                    raise CallTimeout(f"another batch for {self.region} took too long")
            self._is_busy = True

    def _apply(self, epoch: int, entries: Sequence[LoggedEntry]) -> Replayed:
        changed = Replayed()
        if epoch < self.epoch:
            raise RequestRefused(f"{self.region}: the primary of epoch {epoch} was replaced by that of {self.epoch}")
        if epoch > self.epoch:
            if self.epoch:
                logger.info("%r begins anew: epoch %d after %d", self.region, epoch, self.epoch)
                changed.files_as_of = self.region.files_complete_as_of
                self.region.follow_anew(entries[0].sequence_id - 1)
                changed.is_anew = changed.saw_files = True
            self.epoch = epoch
        for entry in entries:
            files_as_of = self.region.files_complete_as_of if entry.marker is not None else None
            if not self.region.replay(entry):
                self.entries_skipped += 1
                continue
            self.entries_applied += 1
            if entry.marker is None:
                changed.entries.append(entry)
            else:
                changed.saw_files = True
                if lists_files(entry.marker):
                    changed.files_as_of = files_as_of
                self.gate.observe(entry.marker)
        return changed
