"""Decides what a cluster does by itself and how often: one loop for sessions, refresher, leases, flusher, janitor.

One daemon serves the whole cluster, because a thread per server would cost more than all that they do. It sleeps
until the next chore is due; a chore never waits for a server (what may take long is started as a task).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from metaclient.errors import ConnectionClosed, MetaClientError
from metaclient.model import ServerName
from metaclient.runtime import Runtime
from metaclient_fake.coordination.znodes import Znodes
from metaclient_fake.network.network import REGISTRY, Network
from metaclient_fake.server.region_server import RegionServer, ServerState

__all__ = ["Chore", "Chores", "Sessions"]

logger = logging.getLogger(__name__)

NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Chore:
    """Something to do every ``period_s`` seconds; or only while it is needed, the first time one period after that."""

    name: str
    period_s: float
    function: Callable[[], object]
    is_needed: Callable[[], bool] | None = None


class Chores:
    """The loop. Chores are given once; one with a period of 0 is off."""

    def __init__(self, runtime: Runtime, chores: list[Chore]) -> None:
        self._runtime = runtime
        self._chores = [chore for chore in chores if chore.period_s > 0]
        self._due: list[float] = []  # used by the loop alone; NEVER for a chore that is not needed
        self._changed = runtime.condition()
        self._is_stopped = False

    def start(self) -> None:
        now = self._runtime.now()
        self._due = [NEVER if chore.is_needed is not None else now + chore.period_s for chore in self._chores]
        self._runtime.start_daemon(self._loop, name="fake-cluster-chores")

    def stop(self) -> None:
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def wake(self) -> None:
        """Something may be needed that was not."""
        with self._changed:
            self._changed.notify_all()

    def _loop(self) -> None:
        try:
            while self._wait():
                self._run_due()
        except ConnectionClosed:
            pass  # the runtime goes away, and we with it

    def _wait(self) -> bool:
        """Wait until something is due; False when all is over."""
        with self._changed:
            while not self._is_stopped:
                self._plan()
                instant = min(self._due)
                if self._runtime.now() >= instant:
                    return True
                self._changed.wait(instant)
            return False

    def _plan(self) -> None:
        for index, chore in enumerate(self._chores):
            if chore.is_needed is not None and self._due[index] == NEVER and chore.is_needed():
                self._due[index] = self._runtime.now() + chore.period_s

    def _run_due(self) -> None:
        now = self._runtime.now()
        for index, chore in enumerate(self._chores):
            if self._due[index] > now or self._is_stopped:
                continue
            if chore.is_needed is not None and not chore.is_needed():
                self._due[index] = NEVER
                continue
            self._due[index] = now + chore.period_s
            try:
                chore.function()
            except ConnectionClosed:
                raise
            except MetaClientError:
                logger.exception("chore %s failed; it runs again in %g s", chore.name, chore.period_s)


class Sessions:
    """The sessions of servers (ZooKeeper's ephemeral nodes): each check renews or ends them."""

    def __init__(
        self,
        runtime: Runtime,
        network: Network,
        timeout_s: float,
        *,
        znodes: Znodes,
        expire: Callable[[ServerName], bool],
        is_dead: Callable[[ServerName], bool],
    ) -> None:
        self._runtime = runtime
        self._network = network
        self._timeout_s = timeout_s
        self._znodes = znodes
        self._expire = expire
        self._is_dead = is_dead
        self._seen: dict[ServerName, float] = {}

    def opened(self, server: RegionServer) -> None:
        self._seen[server.name] = self._runtime.now()

    def closed(self, name: ServerName) -> None:
        """Ended in order: no need to wait for a timeout."""
        self._end(name)

    def _end(self, name: ServerName) -> None:
        """Remove the ephemeral nodes of the session, then let the master recover the server."""
        self._seen.pop(name, None)
        self._znodes.end_session(name)
        self._expire(name)

    def look(self, servers: list[RegionServer]) -> None:
        """Renew what is alive, end what was silent for too long, tell zombies that they are dead."""
        now = self._runtime.now()
        for server in servers:
            if server.state is ServerState.ABORTING:
                server.crash()  # an aborting server has had its moment to say so
            elif self._is_heard(server):
                self._hear(server, now)
        for name, seen in list(self._seen.items()):
            if now - seen > self._timeout_s:
                self._end(name)

    def _is_heard(self, server: RegionServer) -> bool:
        is_alive = server.is_running or (server.is_hung and server.keeps_session_while_paused)
        return is_alive and not self._network.is_cut(server.party, self._network.party(REGISTRY))

    def _hear(self, server: RegionServer, now: float) -> None:
        if self._is_dead(server.name):
            if server.is_running:
                server.abort("its session has expired (YouAreDeadException)")
        elif server.name in self._seen:
            self._seen[server.name] = now
