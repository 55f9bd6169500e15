"""Holds the calls of sources until they are processed, and bounds their bytes: the receiver of a consumer."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from metaclient.runtime import Runtime
from metaclient.wire.rpc.receiving import Delivery

__all__ = ["Window"]


class Window:
    """A :class:`~metaclient.wire.rpc.receiving.Receiver` with a bounded queue.

    A call is *held* from its reservation until it is forgotten (:meth:`release`), so that the bound counts the calls
    that are read, those that wait, and those whose changes are not committed.
    """

    def __init__(self, runtime: Runtime, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._runtime = runtime
        self._changed = runtime.condition()
        # Guarded by the condition's lock:
        self._held = 0
        self._held_most = 0
        self._waiting: deque[Delivery] = deque()
        self._is_closed = False

    @property
    def held(self) -> int:
        """The number of bytes that are held now."""
        return self._held

    @property
    def held_most(self) -> int:
        """The greatest number of bytes that were held at one time."""
        return self._held_most

    def __len__(self) -> int:
        return len(self._waiting)

    # -- for the sources -----------------------------------------------------------------------------------------------

    def reserve(self, size: int) -> bool:
        with self._changed:
            while not self._is_closed and self._held and self._held + size > self.bytes_max:
                self._changed.wait()
            if self._is_closed:
                return False
            self._held += size
            self._held_most = max(self._held_most, self._held)
            return True

    def release(self, size: int) -> None:
        with self._changed:
            self._held -= size
            self._changed.notify_all()

    def receive(self, delivery: Delivery) -> None:
        with self._changed:
            self._waiting.append(delivery)
            self._changed.notify_all()

    # -- for the consumer ----------------------------------------------------------------------------------------------

    def take(self, deadline: float | None) -> Delivery | None:
        """Return the next call; None at the deadline, and when the window is closed."""
        with self._changed:
            while not self._waiting:
                if self._is_closed or not self._changed.wait(deadline):
                    return None
            return self._waiting.popleft()

    def take_waiting(self, size_max: int) -> list[Delivery]:
        """Return further calls that wait now, of at most ``size_max`` bytes together."""
        taken: list[Delivery] = []
        with self._changed:
            while self._waiting and self._waiting[0].size <= size_max:
                taken.append(self._waiting.popleft())
                size_max -= taken[-1].size
        return taken

    def put_back(self, deliveries: Sequence[Delivery]) -> None:
        """Return calls that were taken, so that they are the next ones."""
        with self._changed:
            self._waiting.extendleft(reversed(deliveries))

    def waiting(self) -> list[Delivery]:
        """Return the calls that no consumer has taken."""
        with self._changed:
            return list(self._waiting)

    def close(self) -> None:
        """Refuse further calls, and drop those that wait: their sources send them again."""
        with self._changed:
            self._is_closed = True
            for delivery in self._waiting:
                self._held -= delivery.size
            self._waiting.clear()
            self._changed.notify_all()
