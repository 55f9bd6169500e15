"""Decides which peers and which changes of peers are refused, in HBase's words (``ReplicationPeerManager``, 2.6.1).

All functions are pure: they get the peers that exist and raise RequestRefused. The ``detail`` of the error is the class
of HBase's exception.

DIVERGENCES: Java classes of endpoints and entry filters cannot be loaded, so a name is accepted when it is one of
HBase's own or one that the cluster was given (:class:`KnownClasses`). The text of ReplicationPeerNotFoundException is a
sentence here; over RPC it is the bare id of the peer, as in HBase (``front/rpc/replication_service.py``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from metaclient.errors import RequestRefused
from metaclient.replication_peers import Peer, PeerConfig, PeerState

__all__ = [
    "INTER_CLUSTER_ENDPOINT",
    "PEER_NOT_FOUND",
    "KnownClasses",
    "check_new_peer",
    "check_other_cluster",
    "check_removal",
    "check_state_change",
    "check_update",
    "is_key_config_equal",
    "merged_update",
    "needs_cluster_key",
    "with_base_config",
]

INTER_CLUSTER_ENDPOINT = "org.apache.hadoop.hbase.replication.regionserver.HBaseInterClusterReplicationEndpoint"
PEER_NOT_FOUND = "org.apache.hadoop.hbase.ReplicationPeerNotFoundException"
#: BaseReplicationEndpoint.REPLICATION_WALENTRYFILTER_CONFIG_KEY
FILTERS_KEY = "hbase.replication.source.custom.walentryfilters"
_DO_NOT_RETRY = "org.apache.hadoop.hbase.DoNotRetryIOException"
_PACKAGE = "org.apache.hadoop.hbase.replication"


@dataclass(frozen=True, slots=True)
class KnownClasses:
    """The Java classes that a peer may name."""

    endpoints: frozenset[str] = frozenset({INTER_CLUSTER_ENDPOINT})
    #: The filters of HBase that have a constructor without arguments.
    filters: frozenset[str] = frozenset({f"{_PACKAGE}.ScopeWALEntryFilter", f"{_PACKAGE}.SystemTableWALEntryFilter"})


_HBASE_CLASSES = KnownClasses()


def refused(text: str, java_class: str = _DO_NOT_RETRY) -> RequestRefused:
    return RequestRefused(text, detail=java_class)


# -- the calls of the master -------------------------------------------------------------------------------------


def check_new_peer(
    peer_id: str, config: PeerConfig, peers: Mapping[str, Peer], known: KnownClasses = _HBASE_CLASSES
) -> None:
    """Refuse a peer that cannot be added (``preAddPeer``)."""
    if "-" in peer_id:
        raise refused(f"Found invalid peer name: {peer_id}")
    if not peer_id or "/" in peer_id or peer_id in (".", ".."):  # HBase: ZooKeeper refuses the path
        raise refused(f"Found invalid peer name: {peer_id!r}; it must be the name of a ZooKeeper node")
    _check_config(config, known)
    if peer_id in peers:
        raise refused(f"Replication peer {peer_id} already exists")


def check_removal(peer_id: str, peers: Mapping[str, Peer]) -> Peer:
    """Return the peer to remove; refuse an unknown one (``preRemovePeer``)."""
    return _existing(peer_id, peers)


def check_state_change(peer_id: str, state: PeerState, peers: Mapping[str, Peer]) -> Peer:
    """Return the peer as it is; refuse to enable an enabled peer or to disable a disabled one."""
    peer = _existing(peer_id, peers)
    if peer.state is state:
        raise refused(f"Replication peer {peer_id} has already been {state.name.lower()}")
    return peer


def check_update(
    peer_id: str, config: PeerConfig, peers: Mapping[str, Peer], known: KnownClasses = _HBASE_CLASSES
) -> Peer:
    """Return the peer as it is; refuse a new configuration that it cannot get (``preUpdatePeerConfig``)."""
    _check_config(config, known)
    peer = _existing(peer_id, peers)
    old = peer.config
    if not _is_same(config.cluster_key, old.cluster_key):
        raise refused(
            f"Changing the cluster key on an existing peer is not allowed. Existing key '{old.cluster_key}' "
            f"for peer {peer_id} does not match new key '{config.cluster_key}'"
        )
    if not _is_same(config.endpoint, old.endpoint):
        raise refused(
            "Changing the replication endpoint implementation class on an existing peer is not allowed. Existing class "
            f"'{_java(old.endpoint)}' for peer {peer_id} does not match new class '{_java(config.endpoint)}'"
        )
    if not _is_same(config.remote_wal_dir, old.remote_wal_dir):
        raise refused(
            "Changing the remote wal dir on an existing peer is not allowed. Existing remote wal dir "
            f"'{_java(old.remote_wal_dir)}' for peer {peer_id} does not match new remote wal dir "
            f"'{_java(config.remote_wal_dir)}'"
        )
    return peer


def check_other_cluster(config: PeerConfig, peer_cluster_id: str | None, own_cluster_id: str) -> None:
    """Refuse a peer that is the cluster itself; a peer whose id is not known yet is accepted."""
    if peer_cluster_id is not None and peer_cluster_id == own_cluster_id:
        raise refused(
            f"Invalid cluster key: {config.cluster_key}, should not replicate to itself for "
            "HBaseInterClusterReplicationEndpoint"
        )


def _existing(peer_id: str, peers: Mapping[str, Peer]) -> Peer:
    found = peers.get(peer_id)
    if found is None:
        raise refused(f"Replication peer {peer_id} does not exist", PEER_NOT_FOUND)
    return found


def _is_same(one: str | None, other: str | None) -> bool:
    """Compare as ``ReplicationPeerManager.isStringEquals``: a blank text is the same as none."""
    if not (one or "").strip():
        return not (other or "").strip()
    return one == other


def _java(text: str | None) -> str:
    return "null" if text is None else text


# -- one configuration -------------------------------------------------------------------------------------------


def needs_cluster_key(config: PeerConfig) -> bool:
    """Return True if the peer is an HBase: other endpoints do with their cluster key what they like."""
    return not (config.endpoint or "").strip() or config.endpoint == INTER_CLUSTER_ENDPOINT


def _check_config(config: PeerConfig, known: KnownClasses) -> None:
    endpoint = config.endpoint or ""
    if endpoint.strip() and endpoint not in known.endpoints:
        raise refused(f"Can not instantiate configured replication endpoint class={endpoint}")
    if needs_cluster_key(config):
        _check_cluster_key(config.cluster_key)
    if config.replicate_all:
        if config.namespaces or config.tables:
            raise refused("Need clean namespaces or table-cfs config firstly when you want replicate all cluster")
        _check_conflict(config.exclude_namespaces, config.exclude_tables)
    else:
        if config.exclude_namespaces or config.exclude_tables:
            raise refused(
                "Need clean exclude-namespaces or exclude-table-cfs config firstly when replicate_all flag is false"
            )
        _check_conflict(config.namespaces, config.tables)
    if config.remote_wal_dir:
        raise refused("remoteWALDir is for synchronous replication, which a fake cluster does not have; leave it out")
    for name in config.configuration.get(FILTERS_KEY, "").split(","):
        if name and name not in known.filters:
            raise refused(f"Configured WALEntryFilter {name} could not be created. Failing add/update peer operation.")


def _check_conflict(namespaces: frozenset[bytes], tables: Mapping[bytes, tuple[bytes, ...]]) -> None:
    """Refuse a table whose whole namespace is listed beside it."""
    for table in tables:
        namespace = table.partition(b":")[0] if b":" in table else b"default"
        if namespace in namespaces:
            name = table.decode(errors="replace")
            raise refused(
                f"Table-cfs {name} is conflict with namespaces {namespace.decode(errors='replace')} in peer config"
            )


def _check_cluster_key(key: str) -> None:
    """Refuse what ``ZKConfig.validateClusterKey`` does: a key is ``zk1,zk2:2181:/parent``, or with a port per host."""
    *quorum, port, parent = ["", *key.split(":")] if key.count(":") >= 2 else ["", "", ""]
    if not (any(quorum) and port.isdigit() and re.fullmatch(r"/.*[^/]", parent)):
        raise refused(f"Invalid cluster key: {key}")


def is_key_config_equal(one: PeerConfig, other: PeerConfig) -> bool:
    """Return True if a change between the two does not recreate sources (``ReplicationUtils.isKeyConfigEqual``, 2.6).

    Bandwidth and ``configuration`` may differ: sources take them over while they run.
    """
    return (
        one.serial == other.serial
        and one.replicate_all == other.replicate_all
        and _is_map_equal(one.tables, other.tables)
        and one.namespaces == other.namespaces
        and _is_map_equal(one.exclude_tables, other.exclude_tables)
        and one.exclude_namespaces == other.exclude_namespaces
    )


def _is_map_equal(one: Mapping[bytes, tuple[bytes, ...]], other: Mapping[bytes, tuple[bytes, ...]]) -> bool:
    return {table: frozenset(families) for table, families in one.items()} == {
        table: frozenset(families) for table, families in other.items()
    }


def merged_update(old: PeerConfig, new: PeerConfig) -> PeerConfig:
    """Return the configuration that is stored: the new one, but ``configuration`` is merged into the old one's."""
    return replace(new, configuration={**old.configuration, **new.configuration})


# -- hbase.replication.peer.base.config --------------------------------------------------------------------------


def with_base_config(config: PeerConfig, base: Mapping[str, str]) -> PeerConfig:
    """Return the configuration with the base settings over its own; an empty value removes a setting."""
    merged = {**config.configuration, **{name: value for name, value in base.items() if value}}
    kept = {name: value for name, value in merged.items() if base.get(name, value)}
    return config if kept == dict(config.configuration) else replace(config, configuration=kept)
