"""Applies the entries that other clusters ship, through the ordinary client of this cluster.

Mirrors ``ReplicationSink`` (HBase 2.6.1). Cells become mutations: a new row or another cell type begins a new one. They
are grouped by table and by list of cluster ids, and written in batches of ``sink_batch_rows``. The cells keep their
timestamps, and the mutations keep the cluster ids, so that the logs of this cluster name every cluster that the edit
has passed. A failure leaves other mutations of the call applied; the source sends all of them again.

Cells of METAFAMILY are not data but markers: those of ``ReplicationMarkerChore`` and of bulk loads are skipped.

DIVERGENCE: batches are written one after the other (HBase: side by side), so that edits of a row keep their order.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from metaclient.errors import MetaClientError, NoSuchFamily, TableNotFound
from metaclient.model import Cell, CellType, Delete, Put
from metaclient.replication_peers import SinkLoad
from metaclient.runtime import Runtime
from metaclient.wire.rpc.replication import ShippedEntry

__all__ = ["ApplyMutations", "ClusterIds", "EntrySink", "PeerSink", "mutations_of"]

#: WALEdit.METAFAMILY; its entries have no other cells.
_MARKERS = b"METAFAMILY"

ClusterIds: TypeAlias = tuple[uuid.UUID, ...]
#: Returns True if the sink applies an entry (``WALEntrySinkFilter``).
SinkFilter: TypeAlias = Callable[[ShippedEntry], bool]
#: Writes mutations of a table, in order; returns an outcome for each, a MetaClientError for those that failed. It is
#: ``Engine.batch`` of a client of this cluster with ``sink_retries`` and ``sink_timeout_s``, which bound the call.
ApplyMutations: TypeAlias = Callable[[bytes, Sequence[Put | Delete]], Sequence[object]]


class EntrySink(Protocol):
    """A sink as its callers see it."""

    def apply(self, entries: Sequence[ShippedEntry]) -> None:
        """Return when all entries are applied; after an error, some of them may be."""
        ...

    def count_failed(self) -> None:
        """Count a call whose entries could not be read."""
        ...

    def load(self) -> SinkLoad: ...


class PeerSink:
    """The sink of one region server. ``_lock`` guards the counters: several sources send at the same time."""

    def __init__(
        self, runtime: Runtime, client: ApplyMutations, *, batch_rows: int, sink_filter: SinkFilter | None = None
    ) -> None:
        self._runtime = runtime
        self._client = client
        self._batch_rows = batch_rows
        self._filter = sink_filter
        self._lock = runtime.lock()
        self._started_ms = runtime.time_ms()
        self._last_applied_ms = 0
        self._age_ms = 0
        self.edits_applied = 0
        self.batches_applied = 0
        self.failed_batches = 0

    def apply(self, entries: Sequence[ShippedEntry]) -> None:
        """Apply entries; return when all of them are written and logged, else raise the error of one that is not."""
        try:
            for (table, _), mutations in mutations_of(entries, self._filter).items():
                self._write(table, mutations)
        except BaseException:
            self.count_failed()
            raise
        if not entries:
            return
        newest_ms = max(entry.key.write_time_ms for entry in entries)
        with self._lock:
            self.edits_applied += len(entries)
            self.batches_applied += 1
            self._last_applied_ms = newest_ms
            self._age_ms = self._runtime.time_ms() - newest_ms

    def load(self) -> SinkLoad:
        """Return the status of the sink (``ReplicationLoadSink``)."""
        with self._lock:
            return SinkLoad(
                age_of_last_applied_ms=self._age_ms,
                last_applied_ms=self._last_applied_ms,
                started_ms=self._started_ms,
                edits_applied=self.edits_applied,
                failed_batches=self.failed_batches,
            )

    def count_failed(self) -> None:
        with self._lock:
            self.failed_batches += 1

    def _write(self, table: bytes, mutations: Sequence[Put | Delete]) -> None:
        for start in range(0, len(mutations), self._batch_rows):
            outcomes = self._client(table, mutations[start : start + self._batch_rows])
            if errors := [outcome for outcome in outcomes if isinstance(outcome, MetaClientError)]:
                raise _most_telling(errors)


def _most_telling(errors: Sequence[MetaClientError]) -> MetaClientError:
    """Return the error for the source: that of a missing table or family if there is one, else the first error."""
    for error in errors:
        if isinstance(error, TableNotFound | NoSuchFamily):
            return error
    return errors[0]


def mutations_of(
    entries: Sequence[ShippedEntry], sink_filter: SinkFilter | None = None
) -> dict[tuple[bytes, ClusterIds], list[Put | Delete]]:
    """Return the mutations of entries by table and cluster ids, each list in the order of the entries."""
    made: dict[tuple[bytes, ClusterIds], list[Put | Delete]] = {}
    for entry in entries:
        if sink_filter is not None and not sink_filter(entry):
            continue
        cluster_ids, cells = entry.key.cluster_ids, entry.cells
        if cells and cells[0][1].family == _MARKERS:
            continue
        group = made.setdefault((entry.key.table, cluster_ids), [])
        start = 0
        for index in range(1, len(cells) + 1):
            if index == len(cells) or _is_new(cells[start], cells[index]):
                group.append(_mutation(cells[start:index], cluster_ids))
                start = index
    return {key: mutations for key, mutations in made.items() if mutations}


def _is_new(first: tuple[bytes, Cell], other: tuple[bytes, Cell]) -> bool:
    """Return True if a new mutation begins: another row, or another type (``ReplicationSink.isNewRowOrType``)."""
    return first[0] != other[0] or first[1].type != other[1].type


def _mutation(edits: Sequence[tuple[bytes, Cell]], cluster_ids: ClusterIds) -> Put | Delete:
    row, first = edits[0]
    cells = tuple([cell for _, cell in edits])
    if first.type == CellType.PUT:
        return Put(row, cells, cluster_ids=cluster_ids)
    return Delete(row, cells, cluster_ids=cluster_ids)
