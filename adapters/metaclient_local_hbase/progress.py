"""Shows the steps of a cluster's start: a line that changes on a terminal, a log record elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.status import Status

__all__ = ["Progress"]

_log = logging.getLogger(__name__)


class Progress:
    """Shows one step after the other, or passes them to the caller's function."""

    def __init__(self, show: Callable[[str], None] | None = None) -> None:
        self._other = show
        console = Console(stderr=True)
        self._status: Status | None = None
        if show is None and console.is_terminal:
            self._status = console.status("starting HBase")

    def show(self, text: str) -> None:
        _log.info("local HBase: %s", text)
        if self._other is not None:
            self._other(text)
        elif self._status is not None:
            self._status.update(text)

    def __enter__(self) -> Progress:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()
