"""Decides which live servers get the queues of a dead one (``ClaimReplicationQueuesProcedure``, HBase 2.6).

The end of a server's recovery: its regions are open again and its logs are in the archive. Then, until the dead server
has no queue any more, as many queues as there are live servers are given to servers in random order, one each. The
target waits ``replication.sleep.before.failover`` x 1..2 and claims; another server may have been faster. A target that
dies leaves the queue for the next round. Without any live server the procedure waits.

DIVERGENCE from 3.0: a peer that was added after the death of a server, and before the master noticed it, gets no queue
for that server's logs, as in 2.6.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from metaclient.model import ServerName
from metaclient.runtime import Runtime
from metaclient_fake.replication.queues import QueueId, QueueStore
from metaclient_fake.replication.server_tasks import MasterCalls, ServerTasks

__all__ = ["QueueClaims"]

logger = logging.getLogger(__name__)
S = TypeVar("S")

#: The pause after a round without a claim: there is no live server, or the peers of all queues are being removed.
_PAUSE_S = 1.0


class QueueClaims(Generic[S]):
    """The claims that the master gives out."""

    def __init__(
        self,
        runtime: Runtime,
        queues: QueueStore,
        master: MasterCalls[S],
        claim: Callable[[S, QueueId], None],
    ) -> None:
        self._runtime = runtime
        self._queues = queues
        self._master = master
        self._tasks: ServerTasks[S] = ServerTasks(runtime, master)
        self._claim = claim

    def run(self, dead: ServerName) -> None:
        """Return when the dead server has no queue any more."""
        while queues := self._queues.queues(dead):
            targets = sorted(self._master.live)
            self._runtime.rng.shuffle(targets)
            chosen = dict(zip(targets, queues, strict=False))
            logger.info("%s: %d queues, claimed by %s", dead, len(queues), ", ".join(map(str, chosen)) or "nobody")
            self._tasks.run({server: partial(self._claim_on, queue) for server, queue in chosen.items()}, "claim-queue")
            if self._queues.queues(dead) == queues:
                self._master.pause(_PAUSE_S)
        self._queues.remove_server(dead)

    def _claim_on(self, queue: QueueId, server: S) -> None:
        self._claim(server, queue)
