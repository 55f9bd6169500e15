"""Stores the position of one replica in its primary's edits: acknowledged edits, edits in flight, missing edits.

    IDLE --send--> SENDING --answered--> IDLE
      |               |
      +----failed-----+--> FAILED --a flush of all families starts--> IDLE

A position counts the entries that the primary handed over since it opened. A queue holds no entries itself: it is a
place in the sink's log, so that an edit is stored once, however many replicas wait for it.

A batch that is still in flight when its queue fails or jumps ahead is an orphan: its response only frees its memory.
It is harmless at the replica: the files of the flush contain its edits, and the replica skips entries that are older
than the last one that it replayed.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from metaclient_fake.storage import MarkerKind
from metaclient_fake.storage.wal import LoggedEntry

__all__ = ["Acknowledged", "Batch", "QueueState", "ReplicaQueue", "ReplicaStatus"]


class QueueState(enum.Enum):
    """The states of a replica's queue."""

    IDLE = "idle"  # healthy, no batch in flight
    SENDING = "sending"  # healthy, one batch in flight
    FAILED = "failed"  # skipped until a flush of all families starts

    __hash__ = object.__hash__  # Enum.__hash__ is Python code, and each batch needs several hashes


_TRANSITIONS: dict[QueueState, frozenset[QueueState]] = {
    QueueState.IDLE: frozenset({QueueState.SENDING, QueueState.FAILED}),
    QueueState.SENDING: frozenset({QueueState.IDLE, QueueState.FAILED}),
    QueueState.FAILED: frozenset({QueueState.IDLE}),
}


class Batch:
    """Entries in flight to one replica; ``end`` is the position after the last of them.

    A batch grows under the sink's lock until it is sent (:meth:`Sink.fill`), and does not change afterwards.
    """

    __slots__ = ("end", "entries", "epoch", "has_marker", "replica_id", "size")

    def __init__(
        self, replica_id: int, epoch: int, entries: list[LoggedEntry], size: int, end: int, has_marker: bool
    ) -> None:
        self.replica_id = replica_id
        self.epoch = epoch
        self.entries = entries
        self.size = size
        self.end = end
        self.has_marker = has_marker

    @staticmethod
    def cut(sizes: Sequence[int], bytes_max: int) -> tuple[int, int]:
        """Return bytes and number of the first entries, up to the one that reaches the limit."""
        total = 0
        for count, size in enumerate(sizes, 1):
            total += size
            if total >= bytes_max:
                return total, count
        return total, len(sizes)

    @property
    def last_sequence_id(self) -> int:
        return self.entries[-1].sequence_id

    def fills_gap_since(self, flush_sequence_id: int) -> bool:
        """Return True if a replica that has applied this batch has the files of that flush, or of a later one."""
        return any(_brings_files(entry, flush_sequence_id) for entry in self.entries)


def _brings_files(entry: LoggedEntry, flush_sequence_id: int) -> bool:
    """Return True if a replica that has applied the entry has all files up to that flush.

    A marker from before the flush does not count: it may be in flight while the flush causes the gap.
    """
    marker = entry.marker
    if marker is None:
        return False
    if marker.kind in (MarkerKind.CANNOT_FLUSH, MarkerKind.REGION_OPEN):
        return entry.sequence_id > flush_sequence_id
    return marker.kind is MarkerKind.COMMIT_FLUSH and marker.flush_sequence_id >= flush_sequence_id


class ReplicaQueue:
    """One replica as its primary sees it; guarded by the sink's lock."""

    __slots__ = (
        "acked",
        "acked_sequence_id",
        "batch",
        "batches",
        "dropped",
        "failed_at",
        "failures",
        "has_caught_up",
        "healed_sequence_id",
        "last_error",
        "missed_from",
        "missed_since",
        "replica_id",
        "sent",
        "state",
    )

    def __init__(self, replica_id: int, position: int) -> None:
        self.replica_id = replica_id
        self.state = QueueState.IDLE
        self.acked = self.sent = position
        self.acked_sequence_id = -1
        self.batch: Batch | None = None
        self.batches = 0
        self.dropped = 0
        self.failures = 0
        self.failed_at: float | None = None
        self.last_error = ""
        #: The flush that ended the last failure; a batch with its end fills the gap.
        self.healed_sequence_id = -1
        #: The first entry that the replica does not have, and when it was committed; None when there is no gap.
        self.missed_from: int | None = None
        self.missed_since: float | None = None
        #: A batch has brought all files since the queue began. Before that, the replica may lack edits of an earlier
        #: primary, of which this one has no entries.
        self.has_caught_up = False

    @property
    def is_healthy(self) -> bool:
        return self.state is not QueueState.FAILED

    def become(self, state: QueueState) -> None:
        if state not in _TRANSITIONS[self.state]:
            raise RuntimeError(f"replica {self.replica_id} is {self.state.value}: it cannot become {state.value}")
        self.state = state

    def status(self, *, end: int, queue_bytes: int, missing_since: float, now: float) -> ReplicaStatus:
        """Return the current status; ``end`` is the position after the newest entry."""
        batch = self.batch
        return ReplicaStatus(
            replica_id=self.replica_id,
            state=self.state.value,
            lag_edits=end - (self.acked if self.missed_from is None else self.missed_from),
            lag_s=max(0.0, now - missing_since),
            queue_edits=end - self.sent,
            queue_bytes=queue_bytes,
            in_flight_edits=len(batch.entries) if batch is not None else 0,
            in_flight_bytes=batch.size if batch is not None else 0,
            failed_s=now - self.failed_at if self.failed_at is not None else None,
            failures=self.failures,
            edits_dropped=self.dropped,
            batches=self.batches,
            last_error=self.last_error,
        )

    def __repr__(self) -> str:
        return f"ReplicaQueue({self.replica_id}, {self.state.value}, acked={self.acked}, sent={self.sent})"


class Acknowledged(NamedTuple):
    """The edits that a replica has, as its primary knows them.

    A replica that has applied this primary's (``epoch``) entries up to ``sequence_id`` has all edits that were
    acknowledged to clients before ``as_of``.
    """

    as_of: float
    epoch: int
    sequence_id: int


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """The status of one replica, as its primary knows it."""

    replica_id: int
    state: str
    lag_edits: int
    lag_s: float
    queue_edits: int
    queue_bytes: int
    in_flight_edits: int
    in_flight_bytes: int
    failed_s: float | None
    failures: int
    edits_dropped: int
    batches: int
    last_error: str
