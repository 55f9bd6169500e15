"""The sending half of a connection: the queue of frames, the one thread that sends them, and how woken threads go on.

1. A frame is queued, or sent by its own thread if no other thread is sending. The sender repeats until the queue is
   empty, so that frames which are queued during a write are sent by the next one.
2. The reader often reads the responses of many calls at once, and wakes their threads. Most of these threads make their
   next call at once. Their frames are held in the queue while other woken threads have not resumed yet, and the last
   one of these sends all of them. So 16 callers need one write per five calls instead of one per two calls. A write is
   expensive, because it releases Python's global lock, for which all other threads wait. A thread that makes a call
   more than a millisecond after the wake-up does not wait for the woken threads, and sends the held frames, too.
3. Of the threads whose responses were read together, the reader wakes the first, and each one wakes the next when it
   resumes (`DirectCall.next_woken`). If all were woken at once, they would fight for Python's global lock: each switch
   between threads that only find the lock taken costs as much as a call. The main thread is woken at once and no thread
   waits for it, because a signal handler may make a call there before the interrupted call resumes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Any

from metaclient.runtime.waiting import Lock
from metaclient.wire.stream import Stream
from metaclient_native.in_flight import DirectCall, InFlight

__all__ = ["SendingHalf"]

#: Bytes that wait to be sent. More is refused by the client, before it fills the server's memory.
QUEUED_BYTES_MAX = 256 * 1024 * 1024
#: The number of frames that are held for woken threads, and the age of a wake-up for which frames are held.
HELD_FRAMES_MAX = 16
HELD_S_MAX = 0.001


class SendingHalf(ABC):
    """See the module's docstring. The base class of a connection, which has the lock and the table of calls."""

    _lock: Lock
    _calls: dict[int, InFlight]
    _answered_at: float

    def __init__(self) -> None:
        self._stream: Stream | None = None
        # Guarded by the lock:
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._is_sending = True  # a thread is sending; at first the task, which connects
        # Direct calls whose threads were woken and have not resumed; each change is one operation of a set:
        self._woken: set[DirectCall[Any]] = set()

    @abstractmethod
    def _end(self, cause: BaseException) -> None:
        """End the connection and fail its calls."""

    @abstractmethod
    def _interrupted(self, error: BaseException) -> None:
        """End the connection after an interrupt of the thread that sends."""

    def _is_full(self, calls_max: int) -> bool:
        return len(self._calls) >= calls_max or self._queued_bytes > QUEUED_BYTES_MAX

    def flush(self, deadline: float) -> None:
        """Send the queued frames, unless another thread is sending: that thread sends these frames, too."""
        is_sender = False
        try:
            with self._lock:
                if self._is_sending or not self._queue:
                    return
                is_sender = self._is_sending = True
                data = self._dequeue()
            self._send(data, deadline)
        except BaseException as error:
            if is_sender:
                self._interrupted(error)
            raise

    def _dequeue(self) -> bytes:
        """Return the queued frames for the caller to send; the caller holds the lock and is the only sender."""
        data = self._queue[0] if len(self._queue) == 1 else b"".join(self._queue)
        self._queue.clear()
        self._queued_bytes = 0
        return data

    def _send(self, data: bytes, deadline: float) -> None:
        """Send the data and the frames that are queued meanwhile. The caller is the only sender."""
        stream = self._stream
        assert stream is not None
        while data:
            try:
                stream.write(data, deadline)
            except OSError as error:
                # A part of a frame may have been sent: no other frame can follow it.
                self._end(error)
                return
            with self._lock:
                self._is_sending = False
                if not self._queue:
                    return
                self._is_sending = True
                data = self._dequeue()

    def _is_resuming(self, now: float) -> bool:
        """Return True if threads were woken just now, of which the last one to resume sends the queued frames."""
        is_recent = now - self._answered_at < HELD_S_MAX
        return is_recent and bool(self._woken) and len(self._queue) < HELD_FRAMES_MAX

    def _resume(self, call: DirectCall[Any]) -> None:
        """Go on after a wait. The last thread of those that were woken together sends the frames of the others."""
        call.waiter = None  # before next_woken is read: see DirectCall.deliver
        if call.next_woken is not None:
            call.next_woken.wake()
        self._woken.discard(call)
        if self._queue and not self._woken:
            self.flush(call.request.deadline)
