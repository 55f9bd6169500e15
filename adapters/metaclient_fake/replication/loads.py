"""Decides how the peers of a cluster are shown: their configuration, their queues, and how far sources have come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict

from metaclient.replication_peers import Peer, PeerConfig, ReplicationStatus, source_load_document
from metaclient_fake.replication.queues import QueueStore

__all__ = ["peers_picture"]

Picture = dict[str, object]


def peers_picture(peers: Iterable[Peer], queues: QueueStore, statuses: Iterable[ReplicationStatus]) -> Picture:
    """Return peers, queues and sources as JSON values. A queue of a dead server has no source until it is claimed."""
    return {
        "peers": {peer.id: {"state": peer.state.name, **_config(peer.config)} for peer in peers},
        "queues": {
            f"{queue.server}/{queue.text}": {"peer": queue.peer, "logs": queues.positions(queue)}
            for queue in queues.all_queues()
        },
        "servers": {
            str(status.server): {
                "sources": {load.queue_id: source_load_document(load) for load in status.sources},
                "sink": None if status.sink is None else asdict(status.sink),
            }
            for status in statuses
        },
    }


def _config(config: PeerConfig) -> Picture:
    """Return the settings of a peer as JSON values; a table without families stands for all of its families."""
    return {
        "cluster_key": config.cluster_key,
        "replicate_all": config.replicate_all,
        "tables": _tables(config.tables),
        "namespaces": sorted(map(_text, config.namespaces)),
        "exclude_tables": _tables(config.exclude_tables),
        "exclude_namespaces": sorted(map(_text, config.exclude_namespaces)),
        "bandwidth": config.bandwidth,
        "serial": config.serial,
        "configuration": dict(config.configuration),
    }


def _tables(tables: Mapping[bytes, tuple[bytes, ...]]) -> dict[str, list[str]]:
    return {_text(table): [_text(family) for family in families] for table, families in tables.items()}


def _text(name: bytes) -> str:
    return name.decode(errors="replace")
