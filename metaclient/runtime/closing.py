"""Decides what callers do while an object is being closed, and closes objects that are collected unclosed."""

from __future__ import annotations

import _thread
import enum
import logging
import sys
import threading
import warnings
from collections.abc import Callable

__all__ = ["Closing", "close_dropped"]

_log = logging.getLogger(__name__)
#: The longest wait of a caller for the end of a close, which takes about as long (``CLOSE_S`` of a connection).
WAIT_S_MAX = 1.0


class _ClosingStage(enum.Enum):
    """The stages of an object, in their order."""

    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


class Closing:
    """The close of one object: one thread closes it, and other callers wait until the close has ended.

    Without the wait, hundreds of callers that catch ConnectionClosed and call again at once keep the interpreter's lock
    busy. The closing thread releases that lock with each socket that it closes, and each time waits for all the callers
    (5 ms for each, ``sys.getswitchinterval``). No caller holds a lock that the closing thread needs.
    """

    __slots__ = ("_closer", "_gate", "_stage")

    def __init__(self) -> None:
        self._gate = threading.Lock()  # held by the closing thread
        self._closer = 0
        self._stage = _ClosingStage.OPEN

    def begin(self) -> bool:
        """Return True to exactly one caller, which has to close the object and to call :meth:`end` afterwards."""
        if not self._gate.acquire(blocking=False):
            return False
        if self._stage is not _ClosingStage.OPEN:
            self._gate.release()
            return False
        self._closer = _thread.get_ident()
        self._stage = _ClosingStage.CLOSING
        return True

    def end(self) -> None:
        self._stage = _ClosingStage.CLOSED
        self._gate.release()

    def wait(self) -> None:
        """Wait until the close has ended, at most ``WAIT_S_MAX``; return at once in the closing thread."""
        if self._stage is _ClosingStage.CLOSED or self._closer == _thread.get_ident():
            return
        if self._gate.acquire(timeout=WAIT_S_MAX):
            self._gate.release()


def close_dropped(name: str, close: Callable[[], None]) -> None:
    """Close an object that is being collected, and warn that it was not closed before; for a ``__del__``.

    ``close`` runs in a thread of its own. The collector may run in any thread at any moment, also in a thread that
    holds a lock which ``close`` needs. The object is not closed when the interpreter ends, because sockets and threads
    end with it.
    """
    if sys.is_finalizing():
        return
    text = f"unclosed {name}: call its close(), or use it in a with statement"

    def closed() -> None:
        try:
            close()
        except Exception:
            _log.exception("closing a dropped object failed (%s)", text)

    def start() -> None:  # Thread.start() takes a lock of Python's, which the thread of the collector may hold
        threading.Thread(target=closed, name="metaclient-close", daemon=True).start()

    try:
        _thread.start_new_thread(start, ())
    except RuntimeError as error:
        _log.warning("%s; it stays open, because no thread can be started: %s", text, error)
    warnings.warn(text, ResourceWarning, stacklevel=4)
