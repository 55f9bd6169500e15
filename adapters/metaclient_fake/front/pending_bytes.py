"""Bounds the memory that incomplete messages take, over all clients of all fronts of a cluster.

The size of each message is bounded, but many clients may each send all of a message except its end.
"""

from __future__ import annotations

from metaclient.runtime import Runtime
from metaclient.wire.listener import Client, shut_down

__all__ = ["PendingBytes"]

#: A client with fewer pending bytes is not counted: the listener's maximum number of clients bounds these.
_FREE_BYTES = 128 * 1024
#: A thread that waits in ``recv`` on a socket that was shut down wakes up at once; this is for a machine under load.
_RELEASE_S = 30.0


class PendingBytes:
    """Counts the bytes of incomplete messages per client.

    One client alone may hold ``bytes_max``, the size of the largest message. Several share three quarters of that; the
    rest is for what they receive before it is counted, and for the allocator. When they hold more, the client that
    holds most is disconnected: a small message is never lost to a large one. Its bytes count until its thread has
    released them, and the other clients wait for that before they receive more.
    """

    def __init__(self, runtime: Runtime, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._shared_max = bytes_max * 3 // 4
        self._runtime = runtime
        self._released = runtime.condition()
        # Guarded by the condition's lock:
        self._held: dict[Client, int] = {}
        self._leaving: set[Client] = set()  # disconnected, and still in _held
        self._total = 0

    @property
    def total(self) -> int:
        return self._total

    def hold(self, client: Client, size: int) -> None:
        """Record that ``client`` has sent ``size`` bytes of an incomplete message; 0 when the message is complete.

        Raise ConnectionAbortedError if the client is disconnected for that.
        """
        if size <= _FREE_BYTES:
            if client in self._held:
                self._release(client)
            return
        deadline = self._runtime.now() + _RELEASE_S
        with self._released:
            self._total += size - self._held.get(client, 0)
            self._held[client] = size
            while self._total > self._shared_max and len(self._held) > 1:
                staying = [one for one in self._held if one not in self._leaving]
                if sum(map(self._held.__getitem__, staying)) > self._shared_max:
                    largest = max(staying, key=self._held.__getitem__)
                    self._leaving.add(largest)
                    shut_down(largest)  # wakes its thread
                if client in self._leaving or not self._released.wait(deadline):
                    break
            is_refused = client in self._leaving or self._runtime.now() >= deadline
        if is_refused:
            raise ConnectionAbortedError(f"incomplete messages take {self._total} bytes, and this client holds most")

    def _release(self, client: Client) -> None:
        with self._released:
            self._total -= self._held.pop(client, 0)
            self._leaving.discard(client)
            self._released.notify_all()
