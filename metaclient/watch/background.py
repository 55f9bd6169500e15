"""Reads one source of figures at an interval, in a task of its own, so that no source waits for another one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from metaclient.errors import ConnectionClosed, MetaClientError
from metaclient.runtime import Runtime

__all__ = ["BackgroundSource"]

_log = logging.getLogger(__name__)

T = TypeVar("T")


class BackgroundSource(Generic[T]):
    """The newest value of ``read(deadline)``, which is called every ``period_s`` seconds from :meth:`start` on.

    ``value`` is None before the first success; a failure keeps the last value for ``keeps_s`` seconds and sets
    ``error``.
    """

    def __init__(
        self, name: str, read: Callable[[float], T], runtime: Runtime, *, period_s: float, timeout_s: float
    ) -> None:
        self.name = name
        self._read = read
        self._runtime = runtime
        self._period_s = period_s
        self._timeout_s = timeout_s
        self._keeps_s = 3 * period_s + timeout_s
        self._changed = runtime.condition()  # guards the fields below
        self._value: T | None = None
        self._read_at_s = 0.0
        self._error: str | None = None
        self._is_closed = False
        self._task: Any = None

    @property
    def value(self) -> T | None:
        """The last value; None if there is none, or if it is too old."""
        with self._changed:
            is_old = self._error is not None and self._runtime.now() - self._read_at_s > self._keeps_s
            return None if is_old else self._value

    @property
    def error(self) -> str | None:
        """The reason why the last read failed; None if it did not."""
        with self._changed:
            return self._error

    def start(self) -> BackgroundSource[T]:
        self._task = self._runtime.start_daemon(self._run, name=f"watch-{self.name}")
        return self

    def close(self) -> None:
        """End after the read in progress."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _run(self) -> None:
        while not self._is_closed:
            begun = self._runtime.now()
            value, error = None, None
            try:
                value = self._read(begun + self._timeout_s)
            except ConnectionClosed:
                return
            except MetaClientError as failure:
                error = f"{type(failure).__name__}: {failure}"
            except Exception as defect:
                _log.exception("the source %s of figures failed", self.name)
                error = repr(defect)
            with self._changed:
                self._error = error
                if value is not None:
                    self._value, self._read_at_s = value, self._runtime.now()
                self._changed.wait_for(lambda: self._is_closed, begun + self._period_s)
