"""Stores which sequence ids of a region were begun and which are readable (MultiVersionConcurrencyControl).

One counter: the write number *is* the WAL sequence id. ``complete`` moves the read point over completed writes from
the oldest on, so that it never passes an unfinished one, and runs each write's action just before its number becomes
readable: actions run in sequence order.

The class has no lock: the region's update lock guards ``begin`` and ``complete``; ``read_point`` is read without it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeVar

__all__ = ["Mvcc"]

Action = Callable[[], None]
T = TypeVar("T")


class Mvcc:
    """The write point and the read point of one region.

    >>> mvcc = Mvcc(10)
    >>> first, second = mvcc.begin(), mvcc.begin()
    >>> mvcc.complete(second)
    >>> mvcc.read_point
    10
    >>> mvcc.complete(first)
    >>> mvcc.read_point
    12
    """

    __slots__ = ("_completed", "_pending", "read_point", "write_point")

    def __init__(self, start: int = 0) -> None:
        self.read_point = start
        self.write_point = start
        self._pending: deque[int] = deque()
        self._completed: dict[int, Action | None] = {}

    def begin(self) -> int:
        """Return the next sequence id. It must be completed on every path, or no later write is ever readable."""
        self.write_point = number = self.write_point + 1
        self._pending.append(number)
        return number

    def complete(self, number: int, action: Action | None = None) -> None:
        """Record that ``number`` is applied or abandoned; all writes before the oldest unfinished one become readable.

        An action that raises does not stop the read point: the first error is raised after all writes that can be
        completed are completed.
        """
        pending = self._pending
        if pending[0] != number:
            self._completed[number] = action
            return
        if action is None and len(pending) == 1:  # most writes of a region without replicas
            pending.popleft()
            self.read_point = number
            return
        failure: BaseException | None = None
        while True:
            pending.popleft()
            try:
                if action is not None:
                    action()
            except BaseException as error:  # raised below
                failure = failure or error
            self.read_point = number
            if not pending or pending[0] not in self._completed:
                break
            number = pending[0]
            action = self._completed.pop(number)
        if failure is not None:
            raise failure

    def complete_and_tell(self, number: int, hook: Callable[[T, int, int], None], entry: T, size: int) -> None:
        """Complete ``number`` with ``hook(entry, number, size)`` as its action."""
        pending = self._pending
        if len(pending) > 1 or pending[0] != number:
            self.complete(number, partial(hook, entry, number, size))
            return
        pending.popleft()
        try:
            hook(entry, number, size)
        finally:
            self.read_point = number

    def advance_to(self, number: int) -> None:
        """Move both points forward: for regions that open and for replicas, where no write is in flight."""
        if self.write_point >= number:
            return
        if self.read_point != self.write_point:
            raise RuntimeError(f"cannot advance to {number}: read {self.read_point}, write {self.write_point}")
        self.read_point = self.write_point = number

    def restart_at(self, number: int) -> None:
        """Restart at a number, even a lower one: a replica's new primary may lack the old one's last numbers."""
        if self._pending:
            raise RuntimeError(f"cannot restart at {number}: {len(self._pending)} writes are in flight")
        self.read_point = self.write_point = number

    def __repr__(self) -> str:
        return f"Mvcc(read_point={self.read_point}, write_point={self.write_point})"
