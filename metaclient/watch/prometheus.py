"""The figures in Prometheus' text format, for ``/metrics``. An unknown figure has no line.

``docs/watch.md`` has the same table of names, and the dashboard ``assets/grafana.json`` uses no other: tests compare
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from metaclient.watch.figures import ClientFigures, ClusterFigures, Liveness, PeerFigures

__all__ = ["METRICS", "exposition"]

#: Name -> (type, what it is). Totals end with ``_total``.
METRICS: Mapping[str, tuple[str, str]] = {
    "metaclient_server_up": ("gauge", "1 if the region server answers, else 0, by server and state"),
    "metaclient_server_answer_seconds": ("gauge", "duration of the last small call to the server"),
    "metaclient_server_regions": ("gauge", "regions on the server"),
    "metaclient_server_reads_total": ("counter", "reads of the server"),
    "metaclient_server_writes_total": ("counter", "writes of the server"),
    "metaclient_server_queued_calls": ("gauge", "calls that wait for a handler of the server"),
    "metaclient_server_heap_used_bytes": ("gauge", "used heap of the server"),
    "metaclient_meta_replica_healthy": (
        "gauge",
        "1 if the replica of hbase:meta is healthy, by replica, server, state",
    ),
    "metaclient_meta_reads_total": ("counter", "reads of the replica of hbase:meta by all clients"),
    "metaclient_meta_lag_seconds": ("gauge", "how far the replica of hbase:meta is behind the primary"),
    "metaclient_meta_answer_seconds": ("gauge", "duration of the last read of the replica of hbase:meta"),
    "metaclient_meta_ejections_total": ("counter", "ejections of the replica by the client of this program"),
    "metaclient_lookups_total": ("counter", "answered lookups, by client"),
    "metaclient_lookups_failed_total": ("counter", "failed lookups, by client"),
    "metaclient_lookups_waiting": ("gauge", "lookups that wait for an answer, by client"),
    "metaclient_lookup_longest_wait_seconds": ("gauge", "wait of the oldest lookup without an answer, by client"),
    "metaclient_lookup_median_seconds": ("gauge", "median duration of the last lookups, by client"),
    "metaclient_hedges_total": ("counter", "extra calls after the hedge delay, by client"),
    "metaclient_hedges_won_total": ("counter", "reads that an extra call answered first, by client"),
    "metaclient_retries_total": ("counter", "attempts after the first, by client"),
    "metaclient_meta_fallbacks_total": ("counter", "lookups that a further replica had to answer, by client"),
    "metaclient_region_replicas": ("gauge", "secondary replicas of regions of users' tables"),
    "metaclient_region_replica_lag_seconds_max": ("gauge", "the largest lag of a secondary replica"),
    "metaclient_peer_enabled": ("gauge", "1 if the replication peer is enabled, by peer and subscription"),
    "metaclient_peer_logs": ("gauge", "log files that the cluster keeps for the peer"),
    "metaclient_peer_lag_seconds": ("gauge", "age of the oldest edit that the peer lacks"),
    "metaclient_peer_queue_bytes": ("gauge", "bytes of log entries that wait for the peer"),
    "metaclient_peer_shipped_total": ("counter", "edits that were shipped to the peer"),
}

_Line = tuple[str, Mapping[str, str], float | int | None]


def exposition(figures: ClusterFigures | None) -> str:
    """Return the text of all metrics with a value; empty before the first figures.

    >>> exposition(None)
    ''
    """
    by_name: dict[str, list[str]] = {}
    for name, labels, value in _lines(figures) if figures is not None else ():
        if value is not None:
            shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
            by_name.setdefault(name, []).append(f"{name}{{{shown}}} {value:.10g}" if shown else f"{name} {value:.10g}")
    parts: list[str] = []
    for name, (kind, text) in METRICS.items():
        if name in by_name:
            parts += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *by_name[name]]
    return "".join(f"{part}\n" for part in parts)


def _escaped(text: str) -> str:
    r"""
    >>> _escaped('a"b\n')
    'a\\"b\\n'
    """
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _lines(figures: ClusterFigures) -> Iterator[_Line]:
    for server in figures.servers:
        of = {"server": server.name}
        is_up = None if server.liveness is Liveness.UNKNOWN else int(server.liveness in (Liveness.UP, Liveness.SLOW))
        yield "metaclient_server_up", {**of, "state": server.liveness.value}, is_up
        yield "metaclient_server_answer_seconds", of, _seconds(server.answer_ms)
        yield "metaclient_server_regions", of, server.regions
        yield "metaclient_server_reads_total", of, server.reads
        yield "metaclient_server_writes_total", of, server.writes
        yield "metaclient_server_queued_calls", of, server.queued_calls
        yield "metaclient_server_heap_used_bytes", of, server.heap_used_bytes
    for one in figures.meta:
        replica = {"replica": str(one.replica_id)}
        placed = {**replica, "server": one.server or "", "state": one.state}
        yield "metaclient_meta_replica_healthy", placed, int(one.state == "healthy")
        yield "metaclient_meta_reads_total", replica, one.reads
        yield "metaclient_meta_lag_seconds", replica, one.lag_s
        yield "metaclient_meta_answer_seconds", replica, _seconds(one.answer_ms)
        yield "metaclient_meta_ejections_total", replica, one.ejections
    for client in figures.clients:
        yield from _client_lines(client)
    if figures.region_replicas is not None:
        lags = [one.lag_s for one in figures.region_replicas if one.lag_s is not None]
        yield "metaclient_region_replicas", {}, len(figures.region_replicas)
        yield "metaclient_region_replica_lag_seconds_max", {}, max(lags, default=None)
    for peer in figures.peers or ():
        yield from _peer_lines(peer)


def _client_lines(client: ClientFigures) -> Iterator[_Line]:
    of = {"client": client.name}
    yield "metaclient_lookups_total", of, client.lookups
    yield "metaclient_lookups_failed_total", of, client.failed
    yield "metaclient_lookups_waiting", of, client.waiting
    yield "metaclient_lookup_longest_wait_seconds", of, client.longest_wait_s
    yield "metaclient_lookup_median_seconds", of, _seconds(client.median_ms)
    yield "metaclient_hedges_total", of, client.hedges + client.meta_hedges
    yield "metaclient_hedges_won_total", of, client.hedges_won
    yield "metaclient_retries_total", of, client.retries
    yield "metaclient_meta_fallbacks_total", of, client.fallbacks


def _peer_lines(peer: PeerFigures) -> Iterator[_Line]:
    of = {"peer": peer.peer_id, "subscription": peer.subscription or ""}
    yield "metaclient_peer_enabled", of, int(peer.state == "ENABLED")
    yield "metaclient_peer_logs", of, peer.logs
    yield "metaclient_peer_lag_seconds", of, _seconds(peer.lag_ms)
    yield "metaclient_peer_queue_bytes", of, peer.queue_bytes
    yield "metaclient_peer_shipped_total", of, peer.shipped


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
