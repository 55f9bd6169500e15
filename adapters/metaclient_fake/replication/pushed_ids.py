"""Stores the last pushed sequence id of each region and peer, for serial peers.

The id of region ``31d9792f4435b99d9fb1016f6fbc8dc7`` for peer ``1`` is in the node
``/hbase/replication/regions/31/d9/792f4435b99d9fb1016f6fbc8dc7-1`` (``ZKReplicationQueueStorage``, HBase 2.6). It is
written in one ``multi`` with the position of the log (:mod:`metaclient_fake.replication.queues`), and it never falls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from metaclient.wire.rpc.replication_peers import position_from_node, position_node
from metaclient_fake.coordination.znodes import BadVersion, Create, NodeExists, NoNode, Operation, Set, Znodes

__all__ = ["NO_SEQUENCE_ID", "PushedIds"]

#: HConstants.NO_SEQNUM: nothing of the region was pushed to the peer.
NO_SEQUENCE_ID = -1
#: ZKReplicationQueueStorage.setLastSequenceIds writes this many ids per ``multi``.
_IDS_PER_MULTI = 1000


class PushedIds:
    """The last pushed sequence ids of one cluster."""

    def __init__(self, znodes: Znodes, root: str = "/hbase/replication") -> None:
        self._znodes = znodes
        self._root = f"{root}/regions"

    def path(self, region: str, peer: str) -> str:
        """Return the node of a region (its encoded name) and a peer."""
        return f"{self._root}/{region[:2]}/{region[2:4]}/{region[4:]}-{peer}"

    def get(self, region: str, peer: str) -> int:
        """Return the last pushed id, or NO_SEQUENCE_ID."""
        try:
            return position_from_node(self._znodes.get(self.path(region, peer)).data)
        except NoNode:
            return NO_SEQUENCE_ID

    def operations(self, peer: str, ids: Mapping[str, int]) -> list[Operation]:
        """Return the operations that raise the ids; an id that is not above the stored one is left out.

        They hold for the versions that were read here: their ``multi`` raises BadVersion or NodeExists when another
        writer was faster, and the caller asks for new ones.
        """
        found: list[Operation] = []
        for region, sequence_id in ids.items():
            path, data = self.path(region, peer), position_node(sequence_id)
            try:
                node = self._znodes.get(path)
            except NoNode:
                found.append(Create(path, data, make_parents=True))
                continue
            if sequence_id > position_from_node(node.data):
                found.append(Set(path, data, node.version))
        return found

    def set_all(self, peer: str, ids: Mapping[str, int]) -> None:
        """Raise many ids, in several steps (the master does so for a new serial peer)."""
        regions = list(ids)
        for start in range(0, len(regions), _IDS_PER_MULTI):
            part = {region: ids[region] for region in regions[start : start + _IDS_PER_MULTI]}
            while operations := self.operations(peer, part):
                with suppress(BadVersion, NodeExists):  # another writer was faster: read the versions again
                    self._znodes.multi(operations)

    def remove(self, peer: str, regions: Iterable[str] | None = None) -> None:
        """Remove the ids of a peer: of these regions, or of all regions. The folders stay, as in HBase."""
        paths = self._paths(peer) if regions is None else [self.path(region, peer) for region in regions]
        for path in paths:
            with suppress(NoNode):
                self._znodes.delete(path)

    def _paths(self, peer: str) -> list[str]:
        if not self._znodes.exists(self._root):
            return []
        return [path for path in self._znodes.tree(self._root) if _peer_of(path) == peer]


def _peer_of(path: str) -> str | None:
    """Return the peer of a node; None for a folder. Neither region names nor peer ids contain a "-"."""
    _, dash, peer = path.rpartition("/")[2].partition("-")
    return peer if dash else None
