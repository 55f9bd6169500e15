"""Knows which servers are silent: those that owe an answer to a read that another replica has answered.

A hedge helps one read and is paid from the budget. When a server hangs, every read of its regions needs one, and the
budget is spent long before the hang is over. So one call that was outrun is not taken back: it is the *witness*. While
it waits, and has waited for longer than anything that is normal, its server is silent, and reads that another replica
may answer ask that one first. The witness's end is the end of the silence: a server that wakes up answers it, and one
that is gone lets its time run out; then the next read is a new try.
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
    """At most one witness a server, each for no longer than its call may take.

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
        # Without a lock: single operations of a dict, and a race between threads only loses a witness.
        self._witnesses: dict[Hashable, _Witness] = {}

    def __bool__(self) -> bool:
        """False while all is well, which is nearly always: then nobody needs to ask further."""
        return bool(self._witnesses)

    def outran(self, server: Hashable, call: Pending[Any], since: float, until: float) -> bool:
        """A call was outrun; True when it is the witness, and must not be taken back."""
        if server in self._witnesses:
            return False
        witness = self._witnesses[server] = _Witness(call, since, until)
        call.on_done(lambda _: self._end(server, witness))
        return True

    def answered(self, server: Hashable) -> None:
        """Another call was answered: whatever the witness waits for, the server is not silent."""
        self._witnesses.pop(server, None)

    def waiting_s(self, server: Hashable, now: float) -> float:
        """For how long its witness has been waiting."""
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
