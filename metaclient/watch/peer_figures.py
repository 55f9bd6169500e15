"""Makes the figures of replication peers and of subscriptions, from the peers and from the loads of the servers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from metaclient import keys
from metaclient.changes.subscription import info_of
from metaclient.replication_peers import Peer, ReplicationStatus, SourceLoad
from metaclient.watch.figures import PeerFigures
from metaclient.watch.history import total

__all__ = ["peer_figures"]


def peer_figures(
    peers: Sequence[Peer],
    statuses: Sequence[ReplicationStatus] | None,
    workers: Callable[[str], Sequence[str] | None],
) -> tuple[PeerFigures, ...]:
    """Return a line per peer. ``statuses`` None: the loads are unknown. ``workers`` finds those of a subscription."""
    return tuple(_figures(peer, statuses, workers) for peer in peers)


def _figures(
    peer: Peer, statuses: Sequence[ReplicationStatus] | None, workers: Callable[[str], Sequence[str] | None]
) -> PeerFigures:
    subscription = info_of(peer)
    loads = [load for status in statuses or () for load in status.sources if load.peer_id == peer.id]
    is_known = statuses is not None
    found = None if subscription is None else workers(peer.id)
    return PeerFigures(
        peer_id=peer.id,
        state=peer.state.name,
        target=peer.config.cluster_key if subscription is None else ", ".join(map(keys.printable, subscription.tables)),
        subscription=None if subscription is None else subscription.name,
        workers=None if found is None else tuple(found),
        logs=sum(load.log_queue for load in loads) if is_known else None,
        queue_edits=_sum(load.queue_edits for load in loads) if is_known else None,
        queue_bytes=_sum(load.queue_bytes for load in loads) if is_known else None,
        lag_ms=max((load.lag_ms for load in loads), default=0) if is_known else None,
        shipped=sum(load.edits_shipped for load in loads) if is_known else None,
        error=_error(loads),
    )


def _sum(counts: Iterable[int | None]) -> int | None:
    """Return the sum; None if a server does not report its part, as those of a real HBase, or if there is none."""
    parts = list(counts)
    return total(*parts) if parts else None


def _error(loads: Sequence[SourceLoad]) -> str:
    return next((load.last_error for load in loads if load.last_error), "")
