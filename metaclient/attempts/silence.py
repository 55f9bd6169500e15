"""Stores which servers are silent: those whose response is overdue for a read that another replica has answered.

A hedge helps one read and is deducted from the budget. When a server hangs, every read of its regions needs a hedge,
and the budget is spent long before the hang is over. Therefore one outrun call is not cancelled: it is the *witness*.
Once the witness has waited much longer than normal, its server counts as silent, and reads that another replica may
answer call that replica first. The silence ends with the witness: a server that resumes answers it, and at a server
that is down it times out; then the next read calls the server again.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from metaclient.runtime import Pending

__all__ = ["SilentServers"]


class _Witness(NamedTuple):
    call: Pending[Any]
    since: float
    until: float


class SilentServers:
    """The witnesses: at most one per server, each kept no longer than the timeout of its call.

    >>> from metaclient.runtime import ThreadRuntime
    >>> servers, call = SilentServers(), ThreadRuntime().pending()
    >>> servers.outran("rs1", call, since=10.0, until=20.0)
    True
    >>> servers.waiting_s("rs1", now=10.5), servers.waiting_s("rs2", now=10.5)
    (0.5, 0.0)
    >>> call.complete("late")
    True
    >>> servers.waiting_s("rs1", now=10.6), bool(servers)
    (0.0, False)
    """

    __slots__ = ("_witnesses",)

    def __init__(self) -> None:
        # No lock is needed: single operations of a dict are atomic, and a race between threads only loses a witness.
        self._witnesses: dict[Hashable, _Witness] = {}

    def __bool__(self) -> bool:
        """Return True if there is a witness; usually False, which saves further checks."""
        return bool(self._witnesses)

    def outran(self, server: Hashable, call: Pending[Any], since: float, until: float) -> bool:
        """Record an outrun call; return True if it becomes the witness and must not be cancelled."""
        if server in self._witnesses:
            return False
        witness = self._witnesses[server] = _Witness(call, since, until)
        call.on_done(lambda _: self._end(server, witness))
        return True

    def answered(self, server: Hashable) -> None:
        """Record that another call was answered: the server is not silent, even if its witness still waits."""
        self._witnesses.pop(server, None)

    def waiting_s(self, server: Hashable, now: float) -> float:
        """Return how long the server's witness has been waiting."""
        witness = self._witnesses.get(server)
        if witness is None:
            return 0.0
        if now >= witness.until:  # a transport that does not keep to deadlines
            self._end(server, witness)
            return 0.0
        return now - witness.since

    def _end(self, server: Hashable, witness: _Witness) -> None:
        if self._witnesses.get(server) is witness:
            self._witnesses.pop(server, None)
