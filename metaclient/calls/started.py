"""STRONG reads of one row that tasks of an event loop await, without a greenlet.

Ten thousand tasks that wait for a row then need no stacks, and an answer needs no switch of greenlets. Only the first
attempt of a read is made here, and only if the location of its row is cached. A lookup, a failure and a deadline
continue in a greenlet, in the code that all runtimes share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from metaclient.attempts import told
from metaclient.backend import AwaitedAnswer
from metaclient.calls.answers import expect
from metaclient.calls.operations import SYSTEM_TABLES, Operations, Placed
from metaclient.model import Get, RegionLocation, Result

__all__ = ["StartedGet", "start_get"]

T = TypeVar("T")


def start_get(operations: Operations, table: bytes, get: Get, convert: Callable[[Placed], T]) -> StartedGet[T] | None:
    """Start a read at the row's primary; None, without any effect, if it would have to wait before its call."""
    start = operations.start
    known = operations.locator.cache.tables.get(table)
    place = known.cached_primary(get.row) if known is not None else None
    if start is None or place is None or table.startswith(SYSTEM_TABLES):
        return None
    begun = operations.runtime.now()
    call = start(place, table, get, begun + operations.read_timeout_s)
    return None if call is None else StartedGet(operations, table, get, place, call, begun=begun, convert=convert)


class StartedGet(Generic[T]):
    """A read whose first call is in flight: a `StartedCall`."""

    __slots__ = ("_begun", "_convert", "_get", "_operations", "_place", "_table", "wakeup")
    is_write = False

    def __init__(
        self,
        operations: Operations,
        table: bytes,
        get: Get,
        place: RegionLocation,
        call: AwaitedAnswer[Result],
        *,
        begun: float,
        convert: Callable[[Placed], T],
    ) -> None:
        self._operations = operations
        self._table = table
        self._get = get
        self._place = place
        self.wakeup = call
        self._begun = begun
        self._convert = convert

    def decode(self) -> bool:
        return self.wakeup.decode()

    def finish(self) -> T:
        operations, place = self._operations, self._place
        try:
            result = expect(Result, self.wakeup.value())
        except Exception as raised:
            placed = operations.get_again(self._table, self._get, place, told(raised), self._begun)
            return self._convert(placed)
        operations.learn_from_strong(place, self._begun)
        return self._convert((result, place))

    def abandon(self) -> None:
        self._operations.executor.cancelled += 1
        self.wakeup.forget()
