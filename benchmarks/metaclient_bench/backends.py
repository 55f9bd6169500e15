"""Backends for the scenarios: one that answers at once, two that hang, and one of bounded capacity."""

from __future__ import annotations

import threading

from metaclient.backend import Capabilities, MetaPage, MetaScan
from metaclient.errors import CallTimeout, ConnectionClosed
from metaclient.model import Cell, Get, MetaReplica, RegionLocation, Result
from metaclient.runtime import Runtime
from metaclient.testing.scripted import ScriptedBackend

__all__ = ["DeafBackend", "ForgetfulBackend", "HandlersBackend", "HangingBackend", "InstantBackend"]


class InstantBackend(ScriptedBackend):
    """Answers every get at once with the same result, so that a measurement shows the client's own time."""

    name = "instant"

    def __init__(self, runtime: Runtime, *, cells: int) -> None:
        super().__init__(runtime)
        self._result = Result(b"r", tuple(Cell(b"cf:c%02d" % number, 1, b"value") for number in range(cells)))

    def get(self, place: RegionLocation | None, table: bytes, get: Get, deadline: float) -> Result:
        return self._result


class ForgetfulBackend(ScriptedBackend):
    """Ignores deadlines: while ``is_hung``, a call hangs until ``release``; subclasses define close()."""

    def __init__(self, runtime: Runtime, *, meta_replicas: int) -> None:
        capabilities = Capabilities(filters=False, honours_deadline=False)
        super().__init__(runtime, meta_replicas=meta_replicas, capabilities=capabilities)
        self.is_hung = False
        self._released = threading.Event()

    def release(self) -> None:
        """End every hung call, so that its thread can end."""
        self._released.set()

    def get(self, place: RegionLocation | None, table: bytes, get: Get, deadline: float) -> Result:
        self._maybe_hang()
        return super().get(place, table, get, deadline)

    def read_meta(self, replica: MetaReplica, scan: MetaScan, deadline: float) -> MetaPage:
        self._maybe_hang()
        return super().read_meta(replica, scan, deadline)

    def _maybe_hang(self) -> None:
        if self.is_hung:
            self._released.wait()
            raise ConnectionClosed("the backend was closed")


class HangingBackend(ForgetfulBackend):
    """Hangs, and ends its calls when it is closed, as the SPI requires."""

    name = "hanging"

    def close(self) -> None:
        super().close()
        self.release()


class DeafBackend(ForgetfulBackend):
    """Hangs, and close() does not end its calls: the worst case."""

    name = "deaf"


class HandlersBackend(ScriptedBackend):
    """Each meta replica serves a bounded number of calls at a time; the other calls wait in a queue."""

    name = "handlers"

    def __init__(self, runtime: Runtime, *, meta_replicas: int, latency_s: float, handlers: int) -> None:
        super().__init__(runtime, meta_replicas=meta_replicas, latency_s=latency_s)
        self._free = dict.fromkeys(range(meta_replicas), handlers)
        self._freed = runtime.condition()

    def read_meta(self, replica: MetaReplica, scan: MetaScan, deadline: float) -> MetaPage:
        with self._freed:
            while not self._free[replica.replica_id]:
                if not self._freed.wait(deadline):
                    raise CallTimeout("the call queue did not move")
            self._free[replica.replica_id] -= 1
        try:
            return super().read_meta(replica, scan, deadline)
        finally:
            with self._freed:
                self._free[replica.replica_id] += 1
                self._freed.notify_all()
