"""Describes the primary that a sink serves: its name, its families, and which of its edits are replicated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from metaclient_fake.storage import Marker, MarkerKind

__all__ = ["SinkSource"]


@dataclass(frozen=True, slots=True)
class SinkSource:
    """One open primary. Each open has a higher ``epoch``; ``replica_count`` counts the primary, too."""

    name: str
    families: frozenset[bytes]
    replica_count: Callable[[], int]
    replicated_families: frozenset[bytes] | None = None  # None: all
    replicates_data: bool = True  # False: only markers are sent
    epoch: int = 1
    #: True if some edits are not replicated. A field, because the sink reads it for each write.
    leaves_out: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "leaves_out", not self.replicates_data or self.replicated_families is not None)

    def replicates(self, families: frozenset[bytes] | None) -> bool:
        """Return True if all edits of these families (None: of all families) are replicated."""
        pushed = self.replicated_families
        return self.replicates_data and (pushed is None or (families is not None and families <= pushed))

    def is_flush_of_all(self, marker: Marker) -> bool:
        """Return True if the marker starts a flush of all families, or reports that there is nothing to flush."""
        if marker.kind is MarkerKind.CANNOT_FLUSH:
            return True
        return marker.kind is MarkerKind.START_FLUSH and frozenset(marker.families) == self.families
