"""Bounds the memory that incomplete messages take, over all clients of one front.

Each message has a bound of its own, but a client may send all of a message except its end, and so may the next one.
"""

from __future__ import annotations

from metaclient.runtime import Lock
from metaclient_fake.front.listener import Client, shut_down

__all__ = ["PendingBytes"]

#: A client that holds less is not counted: the listener's number of clients bounds these.
_FREE_BYTES = 128 * 1024


class PendingBytes:
    """How many bytes of incomplete messages each client has sent; at most ``bytes_max`` in all.

    When they are more, the client that holds most is disconnected: a small message is never lost to a large one.
    """

    def __init__(self, lock: Lock, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._lock = lock  # guards the fields below
        self._held: dict[Client, int] = {}
        self._total = 0

    @property
    def total(self) -> int:
        return self._total

    def hold(self, client: Client, size: int) -> None:
        """Note that ``client`` has sent ``size`` bytes of a message that is not complete; 0 when it is."""
        if size <= _FREE_BYTES and client not in self._held:
            return
        with self._lock:
            self._total += size - self._held.pop(client, 0)
            if size > _FREE_BYTES:
                self._held[client] = size
            else:
                self._total -= size
            largest = None
            if self._total > self.bytes_max:
                largest = max(self._held, key=self._held.__getitem__)
                self._total -= self._held.pop(largest)
        if largest is not None:
            shut_down(largest)  # its thread wakes up and frees the bytes
