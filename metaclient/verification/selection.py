"""Decides which families are compared, and finds the cluster of a replication peer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from metaclient import keys
from metaclient.config.cluster_keys import ClusterKey
from metaclient.errors import ConfigError, MetaClientError, NoSuchFamily, TableNotFound
from metaclient.model import FamilyDescriptor, TableDescriptor
from metaclient.replication_peers import Peer, wants_family

__all__ = ["Selection", "explain_key", "select_families", "url_of_peer"]

#: REPLICATION_SCOPE_GLOBAL: the scope of families that are shipped.
_GLOBAL = 1
#: Schemes of a peer's address in HBase 3.0.0-beta-2 and later (HBASE-28425) -> scheme of our url.
_SCHEMES = {"hbase+zk://": "hbase://", "hbase+rpc://": "hbase+rpc://"}


class Selection(NamedTuple):
    """The families to compare (empty: all), and sentences about those that are left out."""

    families: tuple[bytes, ...] = ()
    notes: tuple[str, ...] = ()


def select_families(
    source: TableDescriptor,
    peer_table: TableDescriptor,
    given: Sequence[bytes] = (),
    *,
    peer: Peer | None = None,
    is_other_cluster: bool = True,
) -> Selection:
    """Return the families to compare: those given, else those that the peer gets, else all.

    Raises ConfigError for a family that the source does not have, or if the peer gets nothing of the table, and
    NoSuchFamily for a family that the peer's table does not have.
    """
    selected = _given(source, given, peer) if given else _shipped(source, peer) if peer else _all(source)
    missing = [name for name in selected.families if peer_table.family(name) is None]
    if missing:
        raise NoSuchFamily(
            f"table '{keys.printable(peer_table.name)}' of the peer has no family '{keys.printable(missing[0])}'; "
            f"it has {_names(family.name for family in peer_table.families)}"
        )
    return selected if is_other_cluster else selected._replace(notes=())


def _given(source: TableDescriptor, given: Sequence[bytes], peer: Peer | None) -> Selection:
    missing = [name for name in given if source.family(name) is None]
    if missing:
        raise ConfigError(
            f"table '{keys.printable(source.name)}' has no family '{keys.printable(missing[0])}'; it has "
            f"{_names(family.name for family in source.families)}"
        )
    if peer is None:
        return Selection(tuple(given))
    shipped = _shipped_names(source, peer)
    local = [name for name in given if name not in shipped]
    notes = (f"peer {peer.id!r} does not get {_families(local)}, which the arguments name",) if local else ()
    return Selection(tuple(given), notes)


def _shipped(source: TableDescriptor, peer: Peer) -> Selection:
    shipped = _shipped_names(source, peer)
    if not shipped:
        raise ConfigError(
            f"peer {peer.id!r} gets nothing of table '{keys.printable(source.name)}': "
            f"{_reasons(source.families, peer)}. Give families to compare them all the same"
        )
    local = [family for family in source.families if family.name not in shipped]
    notes = (f"not compared: {_reasons(local, peer)}",) if local else ()
    return Selection(shipped, notes)


def _all(source: TableDescriptor) -> Selection:
    """Return all families, with a note if replication ships only some of them."""
    local = [family.name for family in source.families if not family.replication_scope]
    if not local or len(local) == len(source.families):
        return Selection()
    return Selection(notes=(f"replication does not ship {_families(local)} (scope 0): give families or a peer id",))


def _shipped_names(source: TableDescriptor, peer: Peer) -> tuple[bytes, ...]:
    return tuple(
        family.name
        for family in source.families
        if family.replication_scope == _GLOBAL and wants_family(peer.config, source.name, family.name)
    )


def _reasons(families: Iterable[FamilyDescriptor], peer: Peer) -> str:
    parts = [
        f"family {keys.printable(family.name)} "
        + (
            f"has replication scope {family.replication_scope}"
            if family.replication_scope != _GLOBAL
            else f"is not selected by peer {peer.id!r}"
        )
        for family in families
    ]
    return ", ".join(parts)


def _families(names: Sequence[bytes]) -> str:
    return f"{'family' if len(names) == 1 else 'families'} {_names(names)}"


def _names(names: Iterable[bytes]) -> str:
    return ", ".join(map(keys.printable, names))


def url_of_peer(peer: Peer) -> str:
    """Return the url of a peer's cluster; ConfigError if its configuration names no cluster.

    >>> from metaclient.replication_peers import PeerConfig, PeerState
    >>> url_of_peer(Peer("1", PeerState.ENABLED, PeerConfig(cluster_key="zk1,zk2:2181:/west")))
    'hbase://zk1:2181,zk2:2181/west'
    """
    key = peer.config.cluster_key
    for scheme, ours in _SCHEMES.items():
        if key.startswith(scheme):
            return ours + key.removeprefix(scheme)
    if not key:
        raise ConfigError(f"peer {peer.id!r} names no cluster, only the endpoint {peer.config.endpoint}: give its url")
    return ClusterKey.parse(key).url


@contextmanager
def explain_key(peer: Peer | None) -> Iterator[None]:
    """Name the cluster key of the peer if the cluster that it leads to cannot be reached in the block."""
    try:
        yield
    except (ConfigError, TableNotFound):
        raise
    except MetaClientError as error:
        if peer is None:
            raise
        raise ConfigError(
            f"peer {peer.id!r} has the cluster key {peer.config.cluster_key!r}, and no cluster answers there: {error}; "
            "give the address of the cluster, too"
        ) from error
