"""Runs a function on region servers for the master, and waits until it has ended there (remote procedures).

A call of the master must end within its RPC timeout, and a source takes longer to stop, as a claim takes longer to
begin. So the call only starts a task on the server. The master then waits for the task, or for the death of the
server: a dead server has nothing to refresh, and its queues are claimed by others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from metaclient.errors import ConnectionClosed, MetaClientError
from metaclient.model import ServerName
from metaclient.runtime import Pending, Runtime

__all__ = ["MasterCalls", "ServerTasks"]

logger = logging.getLogger(__name__)
S = TypeVar("S")

#: How often the master checks whether a server that runs a task is still live.
_CHECK_S = 0.5
#: ProcedureUtil: the pauses between attempts grow from 1 s, doubled each time ...
_PAUSE_S = 1.0
#: ... up to this (HBase: 10 minutes; servers of the fake come and go in seconds).
_PAUSE_S_MAX = 10.0


class MasterCalls(Protocol[S]):
    """The parts of the master that remote procedures need."""

    @property
    def live(self) -> Mapping[ServerName, S]: ...

    def call(self, server: S, function: Callable[[], Any]) -> Any:
        """Run a short function on a server, over the network."""
        ...

    def pause(self, seconds: float) -> None:
        """Wait; raise ConnectionClosed when the cluster is closed."""
        ...


class ServerTasks(Generic[S]):
    """Starts tasks on servers and waits for them."""

    def __init__(self, runtime: Runtime, master: MasterCalls[S]) -> None:
        self._runtime = runtime
        self._master = master

    def run_on_all(self, function: Callable[[S], None], name: str) -> None:
        """Run a function on every live server, at the same time; repeat it where it fails, until the server is dead."""
        waiting = dict.fromkeys(self._master.live, function)
        pause_s = _PAUSE_S
        while waiting:
            waiting = {server: function for server in self.run(waiting, name) if server in self._master.live}
            if waiting:
                self._master.pause(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    def run(self, functions: Mapping[ServerName, Callable[[S], None]], name: str) -> list[ServerName]:
        """Run one function on each of these servers, at the same time; return the servers where it failed."""
        tasks: dict[ServerName, Pending[Any]] = {}
        failed: list[ServerName] = []
        for server, function in functions.items():
            try:
                tasks[server] = self._start(server, function, name)
            except ConnectionClosed:
                raise
            except MetaClientError as error:
                logger.info("%s could not be started on %s: %s", name, server, error)
                failed.append(server)
        return failed + [server for server, task in tasks.items() if not self._has_succeeded(server, task, name)]

    def _start(self, name: ServerName, function: Callable[[S], None], what: str) -> Pending[Any]:
        server = self._master.live.get(name)
        if server is None:
            done = self._runtime.pending()
            done.complete(None)
            return done
        task: Pending[Any] = self._master.call(server, lambda: self._runtime.start(function, server, name=what))
        return task

    def _has_succeeded(self, server: ServerName, task: Pending[Any], what: str) -> bool:
        while not task.is_done:
            if server not in self._master.live:
                return True
            self._runtime.wait_first([task], self._runtime.now() + _CHECK_S)
        try:
            task.result(self._runtime.now())
        except ConnectionClosed:
            raise
        except MetaClientError as error:
            logger.info("%s failed on %s: %s", what, server, error)
            return False
        return True
