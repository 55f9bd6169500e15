"""Stores which logs each server still has to ship to each peer, and how far it has come.

The nodes are those of ``ZKReplicationQueueStorage`` (HBase 2.6), below ``/hbase/replication``:

========================================  ==================================================================
``rs/SERVER/PEER/WAL``                    a log in the queue of a server; its data is the position (empty = 0)
``rs/SERVER/PEER-DEAD[-DEAD...]/WAL``     a queue that SERVER claimed from dead servers, the first owner first
========================================  ==================================================================

DIVERGENCES: HBase 3.0 keeps queues in the table ``hbase:replication``; here they are nodes for every version. A claim
also checks that the peer exists, so that a server that has not heard of its removal cannot keep a queue alive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from metaclient.model import ServerName
from metaclient.wire.rpc.replication_peers import position_from_node, position_node
from metaclient_fake.coordination.znodes import (
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Set,
    Znodes,
)
from metaclient_fake.replication.pushed_ids import PushedIds

__all__ = ["ClaimedQueue", "QueueId", "QueueStore", "is_meta_wal", "wal_group"]


def wal_group(wal: str) -> str:
    """Return the group of a log: its name up to the last dot (``AbstractFSWALProvider.getWALPrefixFromWALName``).

    >>> wal_group("rs1%2C16020%2C1.1700000000000")
    'rs1%2C16020%2C1'
    """
    return wal.rpartition(".")[0]


def is_meta_wal(wal: str) -> bool:
    """Return True for a log of hbase:meta, which is never replicated.

    >>> is_meta_wal("rs1%2C16020%2C1.meta.1700000000000.meta"), is_meta_wal("rs1%2C16020%2C1.1700000000000")
    (True, False)
    """
    return wal.endswith(".meta") or wal_group(wal).endswith(".meta")


def _start_ms(wal: str) -> tuple[str, int, str]:
    """Return the sort key of a log: its group, then its start time as a number."""
    group, _, number = wal.rpartition(".")
    return group, int(number) if number.isdigit() else -1, wal


class QueueId(NamedTuple):
    """A queue: its peer, the server that has it, and the dead servers that had it before, the first owner first.

    >>> server = ServerName("rs3", 16020, 30)
    >>> queue = QueueId.parse("2-ip-10-46.internal,52170,1-host2,1,2", server)
    >>> queue.peer, [str(dead) for dead in queue.dead]
    ('2', ['ip-10-46.internal,52170,1', 'host2,1,2'])
    >>> queue.claimed_by(ServerName("rs4", 16020, 40)).text
    '2-ip-10-46.internal,52170,1-host2,1,2-rs3,16020,30'
    """

    peer: str
    server: ServerName
    dead: tuple[ServerName, ...] = ()

    @property
    def text(self) -> str:
        """The name of the queue in HBase: the node below its server."""
        return "-".join([self.peer, *map(str, self.dead)])

    @property
    def is_recovered(self) -> bool:
        return bool(self.dead)

    @property
    def origin(self) -> ServerName:
        """The server that wrote the logs."""
        return self.dead[0] if self.dead else self.server

    def claimed_by(self, server: ServerName) -> QueueId:
        return QueueId(self.peer, server, (*self.dead, self.server))

    @classmethod
    def parse(cls, text: str, server: ServerName) -> QueueId:
        """Read the name of a queue below ``server``. Raises ValueError for a name that HBase would not write."""
        peer, _, rest = text.partition("-")
        return cls(peer, server, _dead_servers(rest))


def _dead_servers(text: str) -> tuple[ServerName, ...]:
    """Split ``host,port,code-host,port,code``. A "-" belongs to a host name until two commas stand before it."""
    found: list[ServerName] = []
    start = commas = 0
    for index, letter in enumerate(text):
        if letter == ",":
            commas += 1
        elif letter == "-" and commas >= 2:
            found.append(ServerName.parse(text[start:index]))
            start, commas = index + 1, 0
    if text:
        found.append(ServerName.parse(text[start:]))
    return tuple(found)


class ClaimedQueue(NamedTuple):
    """A queue that was claimed: its new name, and its logs with their positions, oldest first."""

    queue: QueueId
    positions: Mapping[str, int]


class QueueStore:
    """The queues of one cluster. Every method is one atomic change, or a loop that ends with one."""

    def __init__(self, znodes: Znodes, pushed: PushedIds, root: str = "/hbase/replication") -> None:
        self._znodes = znodes
        self._pushed = pushed
        self._root = f"{root}/rs"
        self._peers = f"{root}/peers"
        #: Called by :meth:`all_wals` between two looks: a place for tests to change queues.
        self.on_look: Callable[[], None] | None = None

    def path(self, queue: QueueId, wal: str = "") -> str:
        node = f"{self._root}/{queue.server}/{queue.text}"
        return f"{node}/{wal}" if wal else node

    # -- one queue ---------------------------------------------------------------------------------------------

    def add_wal(self, queue: QueueId, wal: str) -> None:
        """Add a log at position 0; the first one makes the queue. Does nothing when the log is there already."""
        with suppress(NodeExists):
            self._znodes.create(self.path(queue, wal), make_parents=True)

    def remove_wal(self, queue: QueueId, wal: str) -> None:
        with suppress(NoNode):
            self._znodes.delete(self.path(queue, wal))

    def positions(self, queue: QueueId) -> dict[str, int]:
        """Return the logs of a queue and their positions, oldest first; empty when there is no such queue."""
        found: dict[str, int] = {}
        for wal in sorted(self._children(self.path(queue)), key=_start_ms):
            with suppress(NoNode):
                found[wal] = position_from_node(self._znodes.get(self.path(queue, wal)).data)
        return found

    def set_position(self, queue: QueueId, wal: str, position: int, ids: Mapping[str, int] | None = None) -> None:
        """Store the position and the pushed ids in one step. Raises NoNode when the queue has no such log.

        Position 0 is not written, as in HBase. An id that was stored with a higher number stays.
        """
        while True:
            operations: list[Operation] = self._pushed.operations(queue.peer, ids) if ids else []
            if position > 0:
                operations.insert(0, Set(self.path(queue, wal), position_node(position)))
            if not operations:
                return
            try:
                self._znodes.multi(operations)
            except (BadVersion, NodeExists):  # another source pushed the same region: compare again
                continue
            return

    def remove(self, queue: QueueId) -> None:
        """Remove a queue with its logs; nothing when it is gone."""
        with suppress(NoNode):
            self._znodes.delete(self.path(queue), recursive=True)

    def claim(self, queue: QueueId, by: ServerName) -> ClaimedQueue | None:
        """Move a dead server's queue to the server ``by``, in one step; None when another server was faster.

        Also None when the peer is gone, or when the queue is empty: an empty queue is removed.
        """
        claimed = queue.claimed_by(by)
        old, new = self.path(queue), self.path(claimed)
        wals = self._children(old)
        try:
            if not wals:
                self._znodes.delete(old)
                return None
            data = {wal: self._znodes.get(f"{old}/{wal}").data for wal in sorted(wals, key=_start_ms)}
            operations: list[Operation] = [Check(f"{self._peers}/{queue.peer}"), Create(new, make_parents=True)]
            for wal, position in data.items():
                operations += [Create(f"{new}/{wal}", position), Delete(f"{old}/{wal}")]
            # The last two change the children version of rs/, so that all_wals() notices that a queue has moved.
            marker = f"{self._root}/cversion_{queue.text}"
            self._znodes.multi([*operations, Delete(old), Create(marker), Delete(marker)])
        except (NoNode, NodeExists, NotEmpty, BadVersion):
            return None
        return ClaimedQueue(claimed, {wal: position_from_node(position) for wal, position in data.items()})

    # -- all queues --------------------------------------------------------------------------------------------

    def servers(self) -> list[ServerName]:
        """Return the servers that have queues, dead ones too."""
        return [ServerName.parse(name) for name in self._children(self._root) if not name.startswith("cversion_")]

    def queues(self, server: ServerName) -> list[QueueId]:
        return [QueueId.parse(text, server) for text in self._children(f"{self._root}/{server}")]

    def all_queues(self, peer: str | None = None) -> list[QueueId]:
        """Return the queues of all servers; of one peer, if it is given."""
        found = [queue for server in self.servers() for queue in self.queues(server)]
        return [queue for queue in found if peer is None or queue.peer == peer]

    def remove_server(self, server: ServerName) -> None:
        """Remove the node of a server that has no queue any more."""
        with suppress(NoNode, NotEmpty):
            self._znodes.delete(f"{self._root}/{server}")

    def remove_peer(self, peer: str) -> None:
        """Remove all queues of a peer.

        Two passes, as in ``ReplicationPeerManager``: a queue that is claimed during the first pass, from a server that
        was not looked at yet to one that was, is found by the second.
        """
        for _ in range(2):
            for queue in self.all_queues(peer):
                self.remove(queue)

    def all_wals(self) -> set[str]:
        """Return the logs of all queues: none is missed, even while queues are claimed.

        A claim changes the children version of ``rs/``. The look is repeated until that version stays the same.
        """
        while True:
            before = self._children_version()
            found = {wal for queue in self.all_queues() for wal in self._children(self.path(queue))}
            if self.on_look is not None:
                self.on_look()
            if self._children_version() == before:
                return found

    def _children_version(self) -> int:
        try:
            return self._znodes.get(self._root).children_version
        except NoNode:
            return -1

    def _children(self, path: str) -> list[str]:
        try:
            return self._znodes.children(path)
        except NoNode:
            return []
