"""Keeps the figures of the last minutes: turns counters into rates, and differences into events.

``History`` is immutable: :func:`advance` returns the next one, and the owner replaces its reference. Two resolutions
are kept: all figures of the last seconds (for rates), and a few numbers per instant for the charts.

    rate of a counter = (newest - oldest within RATE_WINDOW_S) / time between them

A counter that went down was started anew (its server restarted): its rate is unknown until the window has passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

from metaclient.watch.figures import ClusterFigures, Liveness, MetaReplicaFigures, PeerFigures, WatchEvent

__all__ = ["CHART_S", "RATE_WINDOW_S", "ChartPoint", "History", "advance", "events_between", "rates"]

K = TypeVar("K")
#: Finds the counters of one kind in figures, by the name of what they count.
Counts: TypeAlias = Callable[[ClusterFigures], Mapping[K, int | None]]

#: A server of a real HBase reports to its master every 3 s (hbase.regionserver.msginterval): two reports at least.
RATE_WINDOW_S = 8.0
CLIENT_WINDOW_S = 2.0
#: The charts show the last five minutes.
CHART_S = 300.0
#: A fake is collected twice per second: no more instants than this are kept, whatever the interval.
RECENT_MAX = 64
POINTS_MAX = 600
EVENTS_MAX = 200

_LEVELS = {
    Liveness.UP: "good",
    Liveness.SLOW: "warning",
    Liveness.HUNG: "bad",
    Liveness.DEAD: "bad",
    Liveness.CUT_OFF: "bad",
    Liveness.STOPPING: "warning",
    Liveness.UNKNOWN: "info",
}


@dataclass(frozen=True, slots=True)
class ChartPoint:
    """The charted numbers of one instant: rates by the name of their server, replica or client."""

    time_ms: int
    servers: Mapping[str, float | None]
    meta: Mapping[int, float | None]
    clients: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class History:
    """The figures of the last seconds, the points of the charts and the events, each with the oldest first."""

    recent: tuple[ClusterFigures, ...] = ()
    points: tuple[ChartPoint, ...] = ()
    events: tuple[WatchEvent, ...] = field(default=())

    @property
    def newest(self) -> ClusterFigures | None:
        return self.recent[-1] if self.recent else None


def advance(history: History, figures: ClusterFigures, others: tuple[WatchEvent, ...] = ()) -> History:
    """Return the history with new figures and the events that they show; ``others`` are events of other sources."""
    seen = (*others, *events_between(history.newest, figures))
    recent = (*(old for old in history.recent if figures.at_s - old.at_s <= RATE_WINDOW_S), figures)[-RECENT_MAX:]
    with_figures = replace(history, recent=recent)
    oldest_ms = figures.time_ms - CHART_S * 1000
    points = (*(old for old in history.points if old.time_ms >= oldest_ms), _point(with_figures, figures))
    return History(recent, points[-POINTS_MAX:], (*history.events, *seen)[-EVENTS_MAX:])


def rates(history: History, counts: Counts[K]) -> dict[K, float | None]:
    """Return the growth per second of each counter that the newest figures have; None where it is unknown."""
    if not history.recent:
        return {}
    newest = history.recent[-1]
    first: dict[K, tuple[float, int]] = {}
    for figures in history.recent[:-1]:
        for key, count in counts(figures).items():
            if count is not None:
                first.setdefault(key, (figures.at_s, count))
    return {key: _rate(first.get(key), (newest.at_s, count)) for key, count in counts(newest).items()}


def _rate(first: tuple[float, int] | None, last: tuple[float, int | None]) -> float | None:
    """
    >>> _rate((1.0, 10), (3.0, 20)), _rate((1.0, 10), (3.0, 4)), _rate(None, (3.0, 4))
    (5.0, None, None)
    """
    if first is None or last[1] is None or last[0] <= first[0] or last[1] < first[1]:
        return None
    return (last[1] - first[1]) / (last[0] - first[0])


def total(*counts: int | None) -> int | None:
    """Return the sum of counts; None if one is unknown.

    >>> total(1, 2), total(1, None)
    (3, None)
    """
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def server_requests(figures: ClusterFigures) -> dict[str, int | None]:
    return {one.name: total(one.reads, one.writes) for one in figures.servers}


def server_reads(figures: ClusterFigures) -> dict[str, int | None]:
    return {one.name: one.reads for one in figures.servers}


def server_writes(figures: ClusterFigures) -> dict[str, int | None]:
    return {one.name: one.writes for one in figures.servers}


def meta_reads(figures: ClusterFigures) -> dict[int, int | None]:
    return {one.replica_id: one.reads for one in figures.meta}


def client_lookups(figures: ClusterFigures) -> dict[str, int | None]:
    return {one.name: one.lookups for one in figures.clients}


def region_requests(figures: ClusterFigures) -> dict[str, int | None]:
    return {one.name: one.requests for one in figures.regions or ()}


def _point(history: History, figures: ClusterFigures) -> ChartPoint:
    # A shorter window for clients, so that the chart of a client falls as soon as the client stands still.
    soon = tuple(one for one in history.recent if figures.at_s - one.at_s <= CLIENT_WINDOW_S)
    return ChartPoint(
        figures.time_ms,
        rates(history, server_requests),
        rates(history, meta_reads),
        rates(replace(history, recent=soon), client_lookups),
    )


# -- events ------------------------------------------------------------------------------------------------------------


def events_between(old: ClusterFigures | None, new: ClusterFigures) -> tuple[WatchEvent, ...]:
    """Return the events that a comparison of two successive figures shows."""
    if old is None:
        return (WatchEvent(time_ms=new.time_ms, kind="watch", text=f"watching {new.url or 'the cluster'}"),)
    return tuple(
        WatchEvent(time_ms=new.time_ms, kind=kind, text=text, level=level)
        for kind, text, level in (*_server_events(old, new), *_meta_events(old, new), *_peer_events(old, new))
    )


_Seen = Iterator[tuple[str, str, str]]


def _server_events(old: ClusterFigures, new: ClusterFigures) -> _Seen:
    before = {server.name: server for server in old.servers}
    now = {server.name: server for server in new.servers}
    for name, server in now.items():
        was = before.get(name)
        if was is None:
            if old.servers:
                yield "server", f"{name} joined the cluster", "info"
        elif was.liveness is not server.liveness:
            detail = f": {server.detail}" if server.detail else ""
            yield "server", f"{name} is {server.liveness.value}{detail}", _LEVELS[server.liveness]
    for name in before.keys() - now.keys():
        if now:
            yield "server", f"{name} is gone from the cluster", "warning"


def _meta_events(old: ClusterFigures, new: ClusterFigures) -> _Seen:
    before: dict[int, MetaReplicaFigures] = {one.replica_id: one for one in old.meta}
    for one in new.meta:
        was = before.get(one.replica_id)
        if was is None:
            continue
        if was.server != one.server:
            yield (
                "meta",
                f"meta replica {one.replica_id} moved from {was.server or 'no server'} to {one.server}",
                "info",
            )
        if was.state != one.state and "ejected" not in (was.state, one.state):  # the client reports its ejections
            level = {"healthy": "good", "silent": "bad", "unplaced": "bad"}.get(one.state, "info")
            yield "meta", f"meta replica {one.replica_id} is {one.state}", level


def _peer_events(old: ClusterFigures, new: ClusterFigures) -> _Seen:
    if old.peers is None or new.peers is None:
        return
    before: dict[str, PeerFigures] = {peer.peer_id: peer for peer in old.peers}
    for peer in new.peers:
        was = before.pop(peer.peer_id, None)
        if was is None:
            yield "peer", f"peer {peer.peer_id} was added", "info"
        elif was.state != peer.state:
            yield (
                "peer",
                f"peer {peer.peer_id} is {peer.state.lower()}",
                "warning" if peer.state != "ENABLED" else "good",
            )
        elif peer.error and not was.error:
            yield "peer", f"peer {peer.peer_id}: {peer.error}", "warning"
    for peer_id in before:
        yield "peer", f"peer {peer_id} was removed", "warning"
