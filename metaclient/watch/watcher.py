"""Collects the figures of a cluster at an interval, and keeps their history and the document that shows it."""

from __future__ import annotations

import json
import logging
from types import TracebackType
from typing import Any

from metaclient.errors import ConnectionClosed, RequestRefused
from metaclient.runtime import Runtime
from metaclient.watch.collecting import Collector
from metaclient.watch.event_log import EventLog
from metaclient.watch.history import History, advance
from metaclient.watch.view import view_of

__all__ = ["INTERVAL_S", "Watcher"]

_log = logging.getLogger(__name__)

#: A server that hangs is shown within 2 s: a probe of 1 s, this interval twice.
INTERVAL_S = 0.5
#: For a daemon that is in the middle of a collection.
CLOSE_TIMEOUT_S = 5.0


class Watcher:
    """The history of one cluster, from :meth:`start` to :meth:`close`; a context manager. Closes its collector."""

    def __init__(self, runtime: Runtime, collector: Collector, *, interval_s: float = INTERVAL_S) -> None:
        self.runtime = runtime
        self._collector = collector
        self._interval_s = interval_s
        self._events = EventLog(runtime)
        self._changed = runtime.condition()  # guards the fields below
        self._history = History()
        self._document: dict[str, Any] = view_of(self._history)
        self._encoded = b""
        self._version = 0
        self._task: Any = None
        self._is_closed = False
        self._is_due = False

    def __enter__(self) -> Watcher:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def collector(self) -> Collector:
        return self._collector

    @property
    def history(self) -> History:
        return self._history

    @property
    def document(self) -> dict[str, Any]:
        """The view of the newest figures; ``{"ready": False}`` before the first."""
        return self._document

    def start(self) -> None:
        """Begin to collect in the background. Idempotent."""
        with self._changed:
            if self._task is None and not self._is_closed:
                self._task = self.runtime.start_daemon(self._run, name="watch")

    def close(self) -> None:
        """End the collection, and close the collector. Idempotent."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            self._changed.notify_all()
            task = self._task
        try:
            if task is not None:
                self.runtime.wait_first((task,), self.runtime.now() + CLOSE_TIMEOUT_S)
        except ConnectionClosed:
            pass  # the runtime is closed: the daemon has ended
        self._collector.close()

    def wait_newer(self, version: int, deadline: float) -> tuple[int, bytes]:
        """Return the number and the JSON of the newest document, as soon as its number is greater than ``version``.

        At the deadline the present ones are returned. ConnectionClosed after :meth:`close`.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._version > version or self._is_closed, deadline)
            if self._is_closed:
                raise ConnectionClosed("the watcher is closed")
            return self._version, self._encoded

    def collect(self) -> None:
        """Collect now. Called by the watcher's own task; tests call it instead of :meth:`start`."""
        figures = self._collector.collect()
        others = (*self._collector.take_events(), *self._events.take())
        history = advance(self._history, figures, others)
        document = view_of(history)
        encoded = json.dumps(document, separators=(",", ":")).encode()
        with self._changed:
            self._history, self._document, self._encoded = history, document, encoded
            self._version += 1
            self._changed.notify_all()

    def run_action(self, action: str, server: str | None) -> str:
        """Run an action of the collector's controls; its effect is collected at once."""
        controls = self._collector.controls
        if controls is None:
            raise RequestRefused("only a fake cluster has buttons: this one is real")
        done = controls.run(action, server)
        self._events.add("button", done, "warning" if action not in ("heal", "resume", "restart") else "good")
        with self._changed:
            self._is_due = True
            self._changed.notify_all()
        return done

    def _run(self) -> None:
        while not self._is_closed:
            begun = self.runtime.now()
            try:
                self.collect()
            except ConnectionClosed:
                return
            except Exception as error:
                # A defect must not freeze the page: it is logged and shown, and the next collection is tried.
                _log.exception("the figures of the cluster could not be collected")
                self._events.add("watch", f"figures could not be collected: {error!r}", "bad")
            with self._changed:
                self._changed.wait_for(self._must_run, begun + self._interval_s)
                self._is_due = False

    def _must_run(self) -> bool:
        return self._is_closed or self._is_due
