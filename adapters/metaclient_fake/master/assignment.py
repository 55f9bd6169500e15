"""Decides how regions get onto servers and off them again: the open and close protocol, with everything that can fail.

Assign, in rounds until all are open: plan; write OPENING to hbase:meta; notify the servers (RegionOpening from now on);
wait for the opens; write OPEN with the sequence number. Primaries open before secondaries, which request a flush of the
primary. The regions of a server that cannot be reached go to other servers. A server that was reached and does not
answer may have the region open and may be taking writes: the master waits until it answers or its session has ended,
which fences its log and hands its edits to the region's node (:meth:`Master.expire`).

Mirrors TransitRegionStateProcedure and its remote procedures, for many regions at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from metaclient.errors import ConnectionClosed, MetaClientError, Overloaded
from metaclient.model import META_TABLE, ServerName
from metaclient_fake.master import balancer
from metaclient_fake.master.region_states import RegionNode, RegionState
from metaclient_fake.server.assignments import OpenRequest
from metaclient_fake.server.region_server import RegionServer

if TYPE_CHECKING:
    from metaclient_fake.master.master import Master

__all__ = ["AssignmentManager", "copy_of"]

logger = logging.getLogger(__name__)

#: The pause between two rounds when a region did not open, or while there is no server.
RETRY_PAUSE_S = 0.1
#: After this many rounds a copy of hbase:meta is left to a task of its own, which tries again at this pace.
STUCK_ROUNDS = 20
STUCK_PAUSE_S = 1.0

Placement = Mapping[bytes, ServerName]
T = TypeVar("T")


def copy_of(node: RegionNode) -> balancer.Copy:
    """Return a region as the balancer sees it."""
    info = node.info
    return balancer.Copy(node.name, (info.table, info.start_key, info.region_id), info.replica_id)


def _is_meta(node: RegionNode) -> bool:
    return node.info.table == META_TABLE


def _by_server(nodes: Iterable[RegionNode]) -> dict[ServerName, list[RegionNode]]:
    shares: dict[ServerName, list[RegionNode]] = {}
    for node in nodes:
        assert node.server is not None, f"{node} is on no server"
        shares.setdefault(node.server, []).append(node)
    return shares


def _place_of(node: RegionNode, placed: Placement) -> ServerName | None:
    """Return the server that a copy is planned for or, if it is open, its current server."""
    return placed.get(node.name) or (node.server if node.state in _PLACED else None)


class AssignmentManager:
    """Opens and closes regions for the master's procedures; the caller holds the lock that its regions need."""

    def __init__(self, master: Master) -> None:
        self._master = master
        #: Copies of hbase:meta that no server opens, and whether a task retries. Guarded by the master's lock.
        self._stuck: dict[bytes, RegionNode] = {}
        self._is_trying = False

    # -- assign ------------------------------------------------------------------------------------------------

    def assign(self, nodes: Iterable[RegionNode], wanted: Placement | None = None) -> None:
        """Open all of these regions, on the servers in ``wanted`` or else those that the balancer chooses.

        A copy of hbase:meta that no server opens does not delay the others: clients can do without it.
        """
        todo = sorted(nodes, key=lambda node: node.info.replica_id)
        rounds = 0
        while todo:
            todo = self._round(todo, wanted or {})
            wanted = None
            rounds += 1
            if rounds >= STUCK_ROUNDS:
                todo = self._without_stuck(todo)
            if todo:
                logger.info("%d regions did not open, trying other servers", len(todo))
                self._master.pause(RETRY_PAUSE_S)

    def _round(self, nodes: Sequence[RegionNode], wanted: Placement) -> list[RegionNode]:
        """Try to open all of these once; return those that did not open."""
        self._mark_opening(nodes, self._placed(nodes, wanted))
        return [*self._open(nodes, is_primary=True), *self._open(nodes, is_primary=False)]

    def _without_stuck(self, nodes: list[RegionNode]) -> list[RegionNode]:
        """Let a separate task open the copies of hbase:meta; return the other regions."""
        stuck = [node for node in nodes if _is_meta(node) and node.info.replica_id]
        if not stuck:
            return nodes
        with self._master.lock:
            self._stuck.update((node.name, node) for node in stuck)
            is_first, self._is_trying = not self._is_trying, True
        logger.warning("%d copies of hbase:meta do not open; continuing without them", len(stuck))
        if is_first:
            try:
                self._master.runtime.start(self._try_stuck, name="stuck-meta-replicas")
            except Overloaded:
                self._is_trying = False
                return nodes
        return [node for node in nodes if node not in stuck]

    def _try_stuck(self) -> None:
        try:
            self._master.pause(STUCK_PAUSE_S)
            while self._master.run(self._try_stuck_once):
                self._master.pause(STUCK_PAUSE_S)
        except ConnectionClosed:
            pass  # the cluster is closed

    def _try_stuck_once(self) -> bool:
        """Try once, under the procedure lock; return True if it must be tried again."""
        master = self._master
        # Another procedure may have opened the copy meanwhile, or removed it by reducing the number of copies.
        still = [
            node
            for node in list(self._stuck.values())
            if node.state is RegionState.OPENING and master.states.by_name.get(node.name) is node
        ]
        left = self._round(still, {}) if still else []
        with master.lock:
            self._stuck = {node.name: node for node in left}
            self._is_trying = bool(left)
        return bool(left)

    def _placed(self, nodes: Sequence[RegionNode], wanted: Placement) -> dict[bytes, ServerName]:
        """Return a live server for each region; wait while there is none."""
        live = self._live_servers()
        placed = {name: server for name, server in wanted.items() if server in live}
        rest = [node for node in nodes if node.name not in placed]
        if rest:
            placed.update(self._place(rest, live, placed))
        return placed

    def _live_servers(self) -> frozenset[ServerName]:
        """Return the live servers at one moment; wait while there is none.

        Servers can die at any time, so that a decision reads them here once and uses this snapshot.
        """
        while not (live := frozenset(self._master.live)):
            self._master.pause(RETRY_PAUSE_S)
        return live

    def place(self, nodes: Sequence[RegionNode], avoid: ServerName) -> dict[bytes, ServerName]:
        """Return the balancer's servers for these regions, except ``avoid``; wait while there is no server."""
        return self._place(nodes, self._live_servers(), {}, avoid)

    def _place(
        self,
        nodes: Sequence[RegionNode],
        live: frozenset[ServerName],
        placed: Placement,
        avoid: ServerName | None = None,
    ) -> dict[bytes, ServerName]:
        """Choose among ``live``; other copies of the same ranges are already ``placed``."""
        master = self._master
        holders: dict[balancer.Range, list[ServerName]] = {}
        copies = [copy_of(node) for node in nodes]
        moving = {node.name for node in nodes}
        for node, copy in zip(nodes, copies, strict=True):
            if copy.range not in holders:
                group = master.states.group_of(node).nodes
                holders[copy.range] = [
                    server
                    for other in group
                    if other.name not in moving and (server := _place_of(other, placed)) is not None
                ]
        loads = {name: master.states.count_on(name) for name in sorted(live)}
        for server in placed.values():
            loads[server] += 1
        return balancer.place(copies, loads, holders, avoid=avoid)

    def _mark_opening(self, nodes: Sequence[RegionNode], placed: Placement) -> None:
        master = self._master
        with master.lock:
            for node in nodes:
                node.become(RegionState.OPENING)
                master.states.enter(node, placed[node.name])
        for node in nodes:
            if _is_meta(node):
                master.registry.publish(node.info.replica_id, node.server)
        master.meta.set_opening(node for node in nodes if not _is_meta(node))

    def _open(self, nodes: Sequence[RegionNode], *, is_primary: bool) -> list[RegionNode]:
        """Open the primaries, or the secondaries; return the regions that did not open."""
        by_server = _by_server([node for node in nodes if (node.info.replica_id == 0) == is_primary])
        failed: list[RegionNode] = []
        begun: list[tuple[RegionServer, list[RegionNode]]] = []
        for name, share in by_server.items():
            server = self._begin_open(name, share)
            if server is None:
                failed.extend(share)
            else:
                begun.append((server, share))
        if begun and self._master.config.region_open_s:
            self._master.pause(self._master.config.region_open_s)
        opened: list[RegionNode] = []
        for server, share in begun:
            self._complete_open(server, share, opened, failed)
        self._mark_open(opened)
        return failed

    def _begin_open(self, name: ServerName, share: Sequence[RegionNode]) -> RegionServer | None:
        server = self._master.live.get(name)
        if server is None:
            return None
        names = [node.name for node in share]
        try:
            self._master.call(server, lambda: server.assignments.begin_open(names))
        except ConnectionClosed:
            raise
        except MetaClientError as error:
            logger.info("%s cannot take %d regions: %s", name, len(share), error)
            return None
        return server

    def _complete_open(
        self, server: RegionServer, share: list[RegionNode], opened: list[RegionNode], failed: list[RegionNode]
    ) -> None:
        master = self._master
        requests = [
            OpenRequest(node.info, node.name, master.descriptor_of(node.info.table), tuple(node.recovered))
            for node in share
        ]
        outcomes = self._patiently(server, lambda: server.assignments.complete_open(requests))
        if outcomes is None:
            failed.extend(share)
            return
        for node, outcome in zip(share, outcomes, strict=True):
            if isinstance(outcome, int):
                node.seqnum = outcome
                opened.append(node)
            else:
                logger.warning("%s did not open on %s: %s", node.encoded, server.name, outcome)
                failed.append(node)

    def _mark_open(self, nodes: Sequence[RegionNode]) -> None:
        if not nodes:
            return
        with self._master.lock:
            for node in nodes:
                node.become(RegionState.OPEN)
                if node.server in self._master.live:
                    node.recovered.clear()  # replayed; had its server died meanwhile, they would be needed again
        self._master.meta.set_open(node for node in nodes if not _is_meta(node))

    # -- unassign ----------------------------------------------------------------------------------------------

    def unassign(self, nodes: Iterable[RegionNode], target: ServerName | None = None) -> list[RegionNode]:
        """Close all of these regions; return those whose server died. Old servers answer RegionMoved to ``target``."""
        master = self._master
        open_nodes = [node for node in nodes if node.state in _CLOSEABLE]
        with master.lock:
            for node in open_nodes:
                node.become(RegionState.CLOSING)
        master.meta.set_state((node for node in open_nodes if not _is_meta(node)), RegionState.CLOSING)
        by_server = _by_server(open_nodes)
        for name, share in by_server.items():
            self._begin_close(name, [node.name for node in share])
        if open_nodes and master.config.region_close_s:
            master.pause(master.config.region_close_s)
        abnormal: list[RegionNode] = []
        for name, share in by_server.items():
            abnormal.extend(self._complete_close(name, share, target))
        closed = [node for node in open_nodes if node.state is RegionState.CLOSED and not _is_meta(node)]
        master.meta.set_state(closed, RegionState.CLOSED)
        return abnormal

    def close_for_good(self, nodes: Iterable[RegionNode]) -> None:
        """Close all of these cleanly: a primary whose server died is opened once more, to write its edits to files."""
        todo = list(nodes)
        while todo:
            abnormal = self.unassign(todo)
            todo = [node for node in abnormal if node.info.replica_id == 0]
            for node in abnormal:
                if node.info.replica_id:
                    node.become(RegionState.CLOSED)  # a secondary has no data of its own
            self.assign(todo)

    def _begin_close(self, name: ServerName, names: list[bytes]) -> None:
        server = self._master.live.get(name)
        if server is not None:
            self._patiently(server, lambda: server.assignments.begin_close(names))

    def _complete_close(self, name: ServerName, share: list[RegionNode], target: ServerName | None) -> list[RegionNode]:
        """Close one server's share of the regions; return all of them when the server's session has ended."""
        master = self._master
        names = [node.name for node in share]
        server = master.live.get(name)
        seqnums = (
            None
            if server is None
            else self._patiently(server, lambda: server.assignments.complete_close(names, target))
        )
        state = RegionState.ABNORMALLY_CLOSED if seqnums is None else RegionState.CLOSED
        with master.lock:
            for node in share:
                master.states.leave(node)
                node.become(state)
        return share if seqnums is None else []

    def _patiently(self, server: RegionServer, function: Callable[[], Sequence[T]]) -> Sequence[T] | None:
        """Repeat the request until the server answers or is declared dead: the first request may have been executed."""
        master = self._master
        while server.name in master.live:
            try:
                return master.call(server, function)
            except ConnectionClosed:
                raise
            except MetaClientError as error:
                logger.debug("%s: %s; retrying", server.name, error)
            master.pause(RETRY_PAUSE_S)
        return None


_PLACED = frozenset({RegionState.OPENING, RegionState.OPEN, RegionState.CLOSING})
_CLOSEABLE = frozenset({RegionState.OPEN, RegionState.SPLITTING, RegionState.MERGING})
