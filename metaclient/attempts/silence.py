"""Stores which servers are silent: those whose response is overdue for a read that another replica has answered.

A hedge helps one read and is deducted from the budget. When a server hangs, every read of its regions needs a hedge,
and the budget is spent long before the hang is over. Therefore one outrun call is not cancelled: it is the *witness*.
Its server counts as silent once the witness has waited much longer than normal, or once three calls were outrun and
no call was answered since the witness began. Reads that another replica may answer then call that replica first. The
silence ends with the witness: a server that resumes answers it, and at a server that is down it times out; then the
next read calls the server again. An answer to any other read, a STRONG read included, ends the silence as well.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from metaclient.runtime import Pending

__all__ = ["SilentServers"]


#: One call in twenty is slow by exception and outrun. Three such calls in a row: one case in 8,000.
OUTRUN_CALLS = 3


class _Witness(NamedTuple):
    call: Pending[Any]
    since: float
    until: float
    outrun: int = 1


class SilentServers:
    """The witnesses: at most one per server, each kept no longer than the timeout of its call.

    >>> from metaclient.runtime import ThreadRuntime
    >>> servers, call = SilentServers(), ThreadRuntime().pending()
    >>> servers.outran("rs1", call, since=10.0, until=20.0)
    True
    >>> servers.waiting_s("rs1", now=10.5), servers.waiting_s("rs2", now=10.5)
    (0.5, 0.0)
    >>> servers.is_silent("rs1", now=10.1, normal_s=0.2), servers.is_silent("rs1", now=10.3, normal_s=0.2)
    (False, True)
    >>> [servers.outran("rs1", call, since=10.05, until=20.0) for _ in range(2)]
    [False, False]
    >>> servers.is_silent("rs1", now=10.1, normal_s=0.2)
    True
    >>> call.complete("late")
    True
    >>> servers.waiting_s("rs1", now=10.6), bool(servers)
    (0.0, False)
    """

    __slots__ = ("witnesses",)

    def __init__(self) -> None:
        # No lock is needed: single operations of a dict are atomic, and a race between threads only loses a witness.
        self.witnesses: dict[Hashable, _Witness] = {}

    def __bool__(self) -> bool:
        """Return True if there is a witness; usually False, which saves further checks."""
        return bool(self.witnesses)

    def outran(self, server: Hashable, call: Pending[Any], since: float, until: float) -> bool:
        """Record an outrun call; return True if it becomes the witness and must not be cancelled."""
        known = self.witnesses.get(server)
        if known is not None:
            self.witnesses[server] = known._replace(outrun=known.outrun + 1)
            return False
        self.witnesses[server] = _Witness(call, since, until)
        call.on_done(lambda _: self._end(server, call))
        return True

    def has_just_stopped(self, server: Hashable) -> bool:
        """Return True if the call recorded last was the one that shows the silence of the server."""
        witness = self.witnesses.get(server)
        return witness is not None and witness.outrun == OUTRUN_CALLS

    def answered(self, server: Hashable) -> None:
        """Record that another call was answered: the server is not silent, even if its witness still waits."""
        self.witnesses.pop(server, None)

    def waiting_s(self, server: Hashable, now: float) -> float:
        """Return how long the server's witness has been waiting."""
        witness = self.witnesses.get(server)
        if witness is None:
            return 0.0
        if now >= witness.until:  # a transport that does not keep to deadlines
            self._end(server, witness.call)
            return 0.0
        return now - witness.since

    def is_silent(self, server: Hashable, now: float, normal_s: float) -> bool:
        """Return True if reads should call another replica first; ``normal_s``: a call may take that long."""
        waiting_s, witness = self.waiting_s(server, now), self.witnesses.get(server)
        return witness is not None and (waiting_s >= normal_s or witness.outrun >= OUTRUN_CALLS)

    def _end(self, server: Hashable, call: Pending[Any]) -> None:
        witness = self.witnesses.get(server)
        if witness is not None and witness.call is call:
            self.witnesses.pop(server, None)
