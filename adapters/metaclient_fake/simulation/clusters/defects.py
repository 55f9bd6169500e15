"""Plants bugs in the replication between clusters, one per run, to prove that the checkers report them."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace
from functools import partial
from typing import Any

from metaclient.errors import MetaClientError
from metaclient.wire.rpc.replication import ShippedEntry
from metaclient_fake.replication.batches import EntryBatch
from metaclient_fake.replication.filters import EntryFilter
from metaclient_fake.replication.log_cleaner import LogCleaner
from metaclient_fake.replication.queues import ClaimedQueue, QueueStore
from metaclient_fake.replication.serial import SerialChecker
from metaclient_fake.replication.shipper import Shipper
from metaclient_fake.replication.splitting import Job
from metaclient_fake.simulation.clusters.writers import LOCAL_FAMILY
from metaclient_fake.simulation.defects import Defect, registered
from metaclient_fake.storage.wal import Scopes, WalEntry

__all__ = ["CLUSTERS_DEFECTS"]

CLUSTERS_DEFECTS: dict[str, Defect] = {}
_defect = partial(registered, CLUSTERS_DEFECTS)


@_defect(Shipper, "_ship", caught_by=("equality", "durability"))
def position_is_stored_before_the_answer(right: Callable[..., Any]) -> Callable[..., Any]:
    """A source stores the position of a batch before it sends the batch: a crash in between loses the batch."""

    def ship(self: Shipper, batch: EntryBatch) -> bool:
        self._acknowledged(replace(batch, is_end_of_file=False))
        shipped: bool = right(self, batch)
        return shipped

    return ship


@_defect(EntryFilter, "shipped", caught_by=("loops",))
def own_cluster_id_is_not_added(right: Callable[..., Any]) -> Callable[..., Any]:
    """A source does not add the id of its own cluster to an edit: nothing ends a cycle of clusters."""

    def shipped(self: EntryFilter, entry: WalEntry) -> ShippedEntry | None:
        made: ShippedEntry | None = right(self, entry)
        return None if made is None else made._replace(key=made.key._replace(cluster_ids=entry.cluster_ids))

    return shipped


@_defect(QueueStore, "claim", caught_by=("equality", "durability"))
def claim_loses_the_first_log(right: Callable[..., Any]) -> Callable[..., Any]:
    """A server that claims a queue of several logs begins with the second one."""

    def claim(self: QueueStore, *arguments: Any) -> ClaimedQueue | None:
        made: ClaimedQueue | None = right(self, *arguments)
        if made is None or len(made.positions) < 2:
            return made
        first, *rest = made.positions
        self.remove_wal(made.queue, first)
        return ClaimedQueue(made.queue, {wal: made.positions[wal] for wal in rest})

    return claim


@_defect(EntryFilter, "_decide_families", caught_by=("equality", "durability"))
def scope_filter_forgets_a_family(right: Callable[..., Any]) -> Callable[..., Any]:
    """A source leaves out the last of several families of scope 1."""

    def decide(self: EntryFilter, table: bytes, scopes: Scopes) -> frozenset[bytes]:
        families: frozenset[bytes] = right(self, table, scopes)
        chosen = self._families[table, scopes] = frozenset(sorted(families)[:1])
        return chosen

    return decide


@_defect(EntryFilter, "_decide_families", caught_by=("scopes",))
def family_of_scope_0_is_shipped(right: Callable[..., Any]) -> Callable[..., Any]:
    """A source ships all families of a table that has a family of scope 1."""

    def decide(self: EntryFilter, table: bytes, scopes: Scopes) -> frozenset[bytes]:
        families: frozenset[bytes] = right(self, table, scopes)
        chosen = self._families[table, scopes] = families | {LOCAL_FAMILY}
        return chosen

    return decide


@_defect(LogCleaner, "needed", caught_by=("equality", "durability", "convergence"))
def log_cleaner_ignores_queues(right: Callable[..., Any]) -> Callable[..., Any]:
    """The cleaner deletes archived logs that are still in queues: what they hold is never shipped."""

    def needed(self: LogCleaner) -> Set[str]:
        return frozenset()

    return needed


@_defect(Shipper, "_send", caught_by=("repeats",))
def failed_call_repeats_all_calls_of_the_batch(right: Callable[..., Any]) -> Callable[..., Any]:
    """When one of the calls of a batch fails, the acknowledged ones are sent again, too."""

    def send(self: Shipper, jobs: list[Job], timeout_s: float) -> tuple[list[Job], list[MetaClientError]]:
        left, errors = right(self, jobs, timeout_s)
        return (jobs if left else []), errors

    return send


@_defect(QueueStore, "positions", caught_by=("repeats",))
def stored_position_is_ignored(right: Callable[..., Any]) -> Callable[..., Any]:
    """A source that is made anew begins at the start of its logs."""

    def positions(self: QueueStore, *arguments: Any) -> dict[str, int]:
        return dict.fromkeys(right(self, *arguments), 0)

    return positions


@_defect(SerialChecker, "_unfinished_range", caught_by=("serial_order",))
def serial_peer_does_not_wait_for_the_old_server(right: Callable[..., Any]) -> Callable[..., Any]:
    """The edits of a region that has moved are pushed before those in the log of its old server."""

    def unfinished(self: SerialChecker, region: str, end: int) -> str | None:
        return None

    return unfinished


@_defect(SerialChecker, "_unfinished_parent", caught_by=("serial_order",))
def serial_peer_does_not_wait_for_parents(right: Callable[..., Any]) -> Callable[..., Any]:
    """The edits of a daughter are pushed before those of the region that was split or merged."""

    def unfinished(self: SerialChecker, name: bytes) -> str | None:
        return None

    return unfinished
