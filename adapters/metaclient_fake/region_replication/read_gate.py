"""Decides when a replica that was opened may be read: after it has *seen* its primary's marker (HBASE-18070).

    WAITING --start of a flush of all families--> STARTED --its end, or a later flush's--> OPEN
    WAITING, STARTED --nothing to flush, or the primary was opened--> OPEN

The start of the flush is required: edits after it were sent to this replica, and the files of its end have all edits
before it. The end of a flush whose start was sent to the replica's old server proves nothing.

DIVERGENCE: HBase (3.x) lets a replica be read as soon as the primary has answered its request for a flush, even if the
replica has not listed the files yet; its older ``replay`` path waits, as this gate does.
"""

from __future__ import annotations

import enum

from metaclient_fake.storage import Marker, MarkerKind

__all__ = ["GateState", "ReadGate"]


class GateState(enum.Enum):
    """Which markers of its primary a replica has seen since it opened."""

    WAITING = "waiting"
    STARTED = "started"
    OPEN = "open"


class ReadGate:
    """One replica's permission to be read; it opens once, and stays open.

    ``is_open``: reads need no permission. The markers are tracked all the same.
    """

    __slots__ = ("_families", "_is_free", "_started_id", "state")

    def __init__(self, families: frozenset[bytes], *, is_open: bool = False) -> None:
        self._families = families
        self._is_free = is_open
        self._started_id = -1
        self.state = GateState.WAITING

    @property
    def is_open(self) -> bool:
        return self._is_free or self.state is GateState.OPEN

    @property
    def has_caught_up(self) -> bool:
        """True if the replica has had all edits of its primary at some time since it opened."""
        return self.state is GateState.OPEN

    def observe(self, marker: Marker) -> None:
        """Update the state after a marker was replayed."""
        if self.state is GateState.OPEN:
            return
        if marker.kind in (MarkerKind.CANNOT_FLUSH, MarkerKind.REGION_OPEN):
            self.state = GateState.OPEN
        elif marker.kind is MarkerKind.START_FLUSH and frozenset(marker.families) == self._families:
            if self.state is GateState.WAITING:
                self.state = GateState.STARTED
                self._started_id = marker.flush_sequence_id
        elif self._ends_the_flush(marker):
            self.state = GateState.OPEN

    def _ends_the_flush(self, marker: Marker) -> bool:
        is_end = marker.kind is MarkerKind.COMMIT_FLUSH and self.state is GateState.STARTED
        return is_end and marker.flush_sequence_id >= self._started_id

    def __repr__(self) -> str:
        return f"ReadGate({self.state.value})"
