"""The view: what is shown of a history, as one JSON document. The page, the terminal and ``--json`` use the same one.

None in the document is a figure that is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, TypeAlias

from metaclient.watch.figures import ClientFigures, ClusterFigures, Liveness
from metaclient.watch.history import (
    CHART_S,
    ChartPoint,
    History,
    client_lookups,
    meta_reads,
    rates,
    region_requests,
    server_reads,
    server_writes,
    total,
)

__all__ = ["view_of"]

#: Rows of each section: a page of thousands of rows is not read by people, and is sent twice per second.
SERVERS_MAX = 200
REGIONS_MAX = 12
REPLICAS_MAX = 24
PEERS_MAX = 50
EVENTS_SHOWN = 80
#: Points per chart: one per two pixels.
CHART_POINTS = 150
ROW_CHART_POINTS = 60

Document: TypeAlias = dict[str, Any]


def view_of(history: History) -> Document:
    """Return the document of the newest figures; only ``{"ready": False}`` before the first."""
    figures = history.newest
    if figures is None:
        return {"ready": False}
    meta = _meta(history, figures)
    return {
        "ready": True,
        "url": figures.url,
        "backend": figures.backend,
        "version": figures.version,
        "is_fake": figures.is_fake,
        "addresses": dict(figures.addresses),
        "time_ms": figures.time_ms,
        "chart_s": CHART_S,
        "summary": _summary(figures, meta, history),
        "servers": _servers(history, figures),
        "servers_total": len(figures.servers),
        "meta": meta,
        "clients": _clients(history, figures),
        "charts": _charts(history, figures),
        "regions": _hot_regions(history, figures),
        "region_replicas": _region_replicas(figures),
        "region_replicas_total": None if figures.region_replicas is None else len(figures.region_replicas),
        "peers": None if figures.peers is None else [asdict(peer) for peer in figures.peers[:PEERS_MAX]],
        "events": [asdict(event) for event in reversed(history.events[-EVENTS_SHOWN:])],
        "faults": list(figures.faults),
        "notes": list(figures.notes),
        "is_load_running": figures.is_load_running,
    }


def _summary(figures: ClusterFigures, meta: Sequence[Document], history: History) -> Document:
    reads = [one["reads_per_s"] for one in meta]
    lags = [one["lag_s"] for one in meta if one["replica_id"] and one["lag_s"] is not None]
    ours = figures.clients[:1]
    return {
        "servers_up": sum(one.liveness in (Liveness.UP, Liveness.SLOW) for one in figures.servers),
        "servers_bad": sum(one.liveness in (Liveness.HUNG, Liveness.DEAD, Liveness.CUT_OFF) for one in figures.servers),
        "servers_unknown": sum(one.liveness is Liveness.UNKNOWN for one in figures.servers),
        "meta_healthy": sum(one["state"] == "healthy" for one in meta),
        "meta_reads_per_s": None if not reads or None in reads else sum(reads),
        "primary_share": meta[0]["share"] if meta else None,
        "meta_lag_s": max(lags, default=None),
        "lookups_per_s": rates(history, client_lookups).get(ours[0].name) if ours else None,
        "hedges": sum(one.hedges + one.meta_hedges for one in ours) if ours else None,
        "hedges_won": sum(one.hedges_won for one in ours) if ours else None,
        "retries": sum(one.retries for one in ours) if ours else None,
    }


def _servers(history: History, figures: ClusterFigures) -> list[Document]:
    hosted: dict[str, list[int]] = {}
    for one in figures.meta:
        if one.server is not None:
            hosted.setdefault(one.server, []).append(one.replica_id)
    reads, writes = rates(history, server_reads), rates(history, server_writes)
    points = history.points[-ROW_CHART_POINTS:]
    return [
        {
            "name": one.name,
            "liveness": one.liveness.value,
            "detail": one.detail,
            "answer_ms": one.answer_ms,
            "meta": hosted.get(one.name, []),
            "regions": one.regions,
            "reads_per_s": reads.get(one.name),
            "writes_per_s": writes.get(one.name),
            "requests": total(one.reads, one.writes),
            "queued_calls": one.queued_calls,
            "heap_used_bytes": one.heap_used_bytes,
            "heap_max_bytes": one.heap_max_bytes,
            "chart": [_rounded(point.servers.get(one.name)) for point in points],
        }
        for one in figures.servers[:SERVERS_MAX]
    ]


def _meta(history: History, figures: ClusterFigures) -> list[Document]:
    by_replica = rates(history, meta_reads)
    known = [value for value in by_replica.values() if value is not None]
    whole = sum(known)  # of the replicas whose reads are known: one without a server reports none
    return [
        {
            **asdict(one),
            "reads_per_s": by_replica[one.replica_id],
            "share": value / whole if whole and (value := by_replica[one.replica_id]) is not None else None,
        }
        for one in figures.meta
    ]


def _client(one: ClientFigures, per_s: float | None) -> Document:
    reads = sum(one.reads_by_replica.values())
    shares = {str(replica): count / reads for replica, count in sorted(one.reads_by_replica.items())}
    document = asdict(replace(one, reads_by_replica={}))  # asdict() cannot copy a mapping proxy
    del document["reads_by_replica"]
    return {**document, "lookups_per_s": per_s, "shares": shares}


def _clients(history: History, figures: ClusterFigures) -> list[Document]:
    newest = history.points[-1].clients if history.points else {}
    return [_client(one, newest.get(one.name)) for one in figures.clients]


def _charts(history: History, figures: ClusterFigures) -> Document:
    """Return the series of the charts: lookups per second by client, reads per second by meta replica."""
    points = _thinned(history.points)
    return {
        "time_ms": [point.time_ms for point in points],
        "clients": {one.name: [_rounded(point.clients.get(one.name)) for point in points] for one in figures.clients},
        "meta": {
            str(one.replica_id): [_rounded(point.meta.get(one.replica_id)) for point in points] for one in figures.meta
        },
    }


def _thinned(points: Sequence[ChartPoint]) -> Sequence[ChartPoint]:
    """Return at most CHART_POINTS points, evenly spread, the newest among them."""
    step = -(-len(points) // CHART_POINTS) or 1
    return points[::-1][::step][::-1]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _hot_regions(history: History, figures: ClusterFigures) -> list[Document] | None:
    if figures.regions is None:
        return None
    per_s = rates(history, region_requests)
    hottest = sorted(figures.regions, key=lambda one: (-(per_s.get(one.name) or 0.0), -one.requests, one.name))
    return [{**asdict(one), "requests_per_s": per_s.get(one.name)} for one in hottest[:REGIONS_MAX]]


def _region_replicas(figures: ClusterFigures) -> list[Document] | None:
    """Return the replicas that are furthest behind."""
    if figures.region_replicas is None:
        return None
    worst = sorted(
        figures.region_replicas,
        key=lambda one: (one.state == "healthy", -(one.lag_s or 0.0), one.table, one.start_key, one.replica_id),
    )
    return [asdict(one) for one in worst[:REPLICAS_MAX]]
