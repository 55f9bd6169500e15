"""Delivers the changes of a subscription to a consumer: life, commits, back pressure, late answers, saved state.

A feed is a worker of its subscription: it listens for the calls of the cluster's region servers, holds at most
``bytes_max`` of them (:mod:`~metaclient.changes.window`), and answers a call when all of its changes are committed
(:mod:`~metaclient.changes.ledger`). With a snapshot (``since=``) the feed joins the subscription after the last row of
the snapshot: the cluster keeps its logs until then, and no answer is late.

A subclass decodes the calls: :class:`~metaclient.changes.changes.Changes` into changes,
:class:`~metaclient.changes.batches.ChangeBatches` into record batches.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Generic, Self, TypeVar

from metaclient.backend import ChangeWorker
from metaclient.changes.change import DeadLetter
from metaclient.changes.ledger import Ledger
from metaclient.changes.repeats import Repeats
from metaclient.changes.state import StateStore, dump_state
from metaclient.changes.subscription import Subscription
from metaclient.changes.window import Window
from metaclient.errors import ConnectionClosed, MetaClientError, RequestRefused
from metaclient.runtime import Runtime
from metaclient.wire.exposure import ListenerProtection
from metaclient.wire.rpc.receiving import Delivery

__all__ = ["BYTES_MAX", "ChangeFeed", "FeedOptions", "UndecodableCall", "undecodable_call"]

logger = logging.getLogger(__name__)
T = TypeVar("T")

#: As much as one batch of a source: replication.source.size.capacity.
BYTES_MAX = 64 << 20
#: The state is saved at most so often: a save writes all of it.
STATE_INTERVAL_S = 1.0
#: How long region servers may be unable to connect before the feed fails: longer than their pauses after an error.
REACH_TIMEOUT_S = 60.0
#: How often the held calls are looked at.
_WATCH_S = 1.0
#: How often the queues of the subscription are asked for until the first region server has connected.
_REACH_S = 10.0

DeadLetterCallback = Callable[[DeadLetter], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedOptions:
    """How a feed works; ``connection.changes`` has the descriptions."""

    auto_commit: bool = True
    bytes_max: int = BYTES_MAX
    dead_letter: DeadLetterCallback | None = None
    host: str | None = None
    port: int = 0
    bind: str | None = None
    cert: str | None = None
    key: str | None = None
    client_ca: str | None = None
    allow_insecure: bool = False
    reach_timeout_s: float = REACH_TIMEOUT_S
    state_interval_s: float = STATE_INTERVAL_S

    def __post_init__(self) -> None:
        if not isinstance(self.bytes_max, int) or self.bytes_max < 1:
            raise ValueError(f"'bytes_max' must be a positive number of bytes, got {self.bytes_max!r}")
        if self.dead_letter is not None and not callable(self.dead_letter):
            raise TypeError(f"'dead_letter' must be a function of one DeadLetter, got {self.dead_letter!r}")
        if not 0 <= self.port <= 65_535:
            raise ValueError(f"'port' must be from 0 (any free one) to 65535, got {self.port!r}")

    @property
    def protection(self) -> ListenerProtection:
        return ListenerProtection(self.cert, self.key, self.client_ca, self.allow_insecure)


class UndecodableCall(MetaClientError):
    """The bytes of a call are not those of log entries. ``changes.skip()`` drops the rest of the call."""


def undecodable_call(name: str, delivery: Delivery, error: Exception) -> UndecodableCall:
    return UndecodableCall(
        f"a call of {delivery.source} for the subscription {name!r} cannot be decoded: {error}; skip() drops the rest "
        "of it, and a dead_letter= callback gets its bytes"
    )


class FeedStage(enum.Enum):
    """The stages of a feed, in their order."""

    SNAPSHOT = "snapshot"
    JOINED = "joined"
    CLOSED = "closed"


class ChangeFeed(Generic[T]):
    """A worker of a subscription. One thread iterates it; any thread may commit. A context manager."""

    def __init__(
        self,
        subscription: Subscription,
        runtime: Runtime,
        *,
        options: FeedOptions,
        store: StateStore | None,
        repeats: Repeats,
        on_close: Callable[[ChangeFeed[T]], None],
    ) -> None:
        self.name = subscription.name
        self._subscription = subscription
        self._runtime = runtime
        self._options = options
        self._store = store
        self._on_close = on_close
        self._window = Window(runtime, options.bytes_max)
        self._ledger = Ledger(
            runtime, repeats, self._answer, tables=subscription.tables, from_ms=subscription.created_ms
        )
        self._closing = runtime.condition()  # guards the fields below
        self._stage = FeedStage.SNAPSHOT
        self._worker: ChangeWorker | None = None
        self._failure: MetaClientError | None = None
        self._counts = {"delivered": 0, "skipped": 0, "late_answers": 0, "lost_answers": 0, "overdue": 0, "saves": 0}
        self._saved_at = runtime.now()
        self._saved_commits = 0
        self._saving = runtime.lock()
        if subscription.snapshot_from_ms is None:
            self._join()

    def __repr__(self) -> str:
        at = f" at {self._worker.address}" if self._worker is not None else ""
        return f"<{type(self).__name__} {self.name}{at}, {self._stage.value}>"

    # -- life ----------------------------------------------------------------------------------------------------------

    def _join(self) -> None:
        """Become a worker of the subscription."""
        options = self._options
        worker = self._subscription.join(
            self._window, host=options.host, port=options.port, bind=options.bind, protection=options.protection
        )
        with self._closing:
            is_closed = self._stage is FeedStage.CLOSED
            if not is_closed:
                self._stage, self._worker = FeedStage.JOINED, worker
        if is_closed:
            worker.close()
            return
        logger.info("%r takes changes of %d tables", self, len(self._subscription.tables))
        self._runtime.start_daemon(self._watch, name="changes-watch")

    def close(self) -> None:
        """Leave the subscription and save the state. Changes that are not committed are delivered again. Idempotent.

        The subscription itself stays, and the cluster keeps its logs for it, until it is removed.
        """
        with self._closing:
            if self._stage is FeedStage.CLOSED:
                return
            self._stage = FeedStage.CLOSED
            worker = self._worker
            self._closing.notify_all()
        self._on_close(self)
        self._window.close()
        if worker is not None:
            worker.close()
        self._save(is_due=True)

    @property
    def is_closed(self) -> bool:
        return self._stage is FeedStage.CLOSED

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def address(self) -> str | None:
        """``host:port`` at which region servers reach this worker; None before it has joined."""
        return self._worker.address if self._worker is not None else None

    # -- iteration -----------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        """Return the next one; wait for it as long as it takes. The one before is committed unless it was by hand."""
        found = self._next(None)
        if found is None:
            raise StopIteration  # the feed was closed
        return found

    def poll(self, timeout_s: float = 0.0) -> T | None:
        """Return the next one, or None if there is none within ``timeout_s``; commits as the iteration does."""
        if self._failure is not None:
            raise self._failure
        if self.is_closed:
            raise ConnectionClosed(f"{self!r} is closed")
        return self._next(self._runtime.now() + timeout_s)

    def _next(self, deadline: float | None) -> T | None:
        raise NotImplementedError

    def _take(self, deadline: float | None) -> Delivery | None:
        """Return the next call; None at the deadline or after close(); raise the error that ended the feed."""
        delivery = self._window.take(deadline)
        if delivery is None and self._failure is not None:
            raise self._failure
        return delivery

    # -- answers -------------------------------------------------------------------------------------------------------

    def _answer(self, delivery: Delivery) -> None:
        """Answer a call whose changes are all committed, and save the state before, if it is time."""
        try:
            self._save()
        finally:
            self._window.release(delivery.size)
        if self._runtime.now() > delivery.deadline:
            self._report_late(delivery)
            self._counts["late_answers"] += 1
        if not delivery.answer():
            self._counts["lost_answers"] += 1
            logger.info("%r: %s did not wait for its answer, and sends its changes again", self, delivery.source)

    def _report_late(self, delivery: Delivery) -> None:
        if delivery.is_late:
            return
        delivery.is_late = True
        self._counts["overdue"] += 1
        logger.warning(
            "%r: the changes of a call of %s are not committed after %.0f s; the region server sends them again, and "
            "they are delivered once. Process changes faster, or add workers",
            self,
            delivery.source,
            self._runtime.now() - delivery.arrived,
        )

    def _save(self, *, is_due: bool = False) -> None:
        store, now = self._store, self._runtime.now()
        if store is None or not (is_due or now - self._saved_at >= self._options.state_interval_s):
            return
        with self._saving:
            commits = self._ledger.committed
            if commits == self._saved_commits:
                return
            store.save(self._ledger.dumped(partial(dump_state, self.name)))
            self._saved_commits, self._saved_at = commits, self._runtime.now()
            self._counts["saves"] += 1

    # -- what cannot be processed --------------------------------------------------------------------------------------

    def _give_up(self, letter: DeadLetter) -> None:
        """Report a change that is not processed; the caller commits it."""
        self._counts["skipped"] += 1
        logger.warning("%r: a change is given up: %s", self, letter.reason)
        if self._options.dead_letter is not None:
            self._options.dead_letter(letter)

    # -- watching ------------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Look at the held calls until the feed is closed."""
        now = self._runtime.now
        begun = now()
        is_reached, next_reach = False, begun + _REACH_S
        while self._pause(_WATCH_S):
            try:
                self._watch_once()
                if not is_reached and now() >= next_reach:
                    is_reached, next_reach = self._check_reached(begun), now() + _REACH_S
            except ConnectionClosed:
                return
            except MetaClientError as error:
                logger.debug("%r cannot ask for its queues: %s", self, error)

    def _pause(self, seconds: float) -> bool:
        """Wait; return False after close()."""
        until = self._runtime.now() + seconds
        with self._closing:
            while self._stage is not FeedStage.CLOSED and self._closing.wait(until):
                pass
            return self._stage is not FeedStage.CLOSED

    def _watch_once(self) -> None:
        now = self._runtime.now()
        for delivery in (*self._ledger.open_deliveries(), *self._window.waiting()):
            if now > delivery.deadline:
                self._report_late(delivery)

    def _check_reached(self, begun: float) -> bool:
        """Return True if a region server has connected, or if it was reported that servers with changes have not.

        The feed then fails if it has made the subscription itself, so that nothing else delays its servers.
        """
        worker = self._worker
        if worker is None or worker.stats()["accepted"]:
            return True
        if self._runtime.now() - begun < self._options.reach_timeout_s:
            return False
        blocked = self._subscription.blocked_sources(self._options.reach_timeout_s, worker.address)
        if not blocked:
            return False
        error = RequestRefused(
            f"no region server has connected to {worker.address}, the published address of the subscription "
            f"{self.name!r}, although {', '.join(blocked)} have changes for it since more than "
            f"{self._options.reach_timeout_s:g} s: pass host= with a name or an address that every region server "
            "resolves and reaches, and open the port (port=) in firewalls"
        )
        if self._subscription.is_new:
            self._fail(error)
        else:  # its servers may be in a pause of minutes after the end of the last worker, or wait for a serial order
            logger.warning("%r: %s", self, error)
        return True

    def _fail(self, error: MetaClientError) -> None:
        """End the feed with this error. A subscription that was made by this feed, and never served, is removed."""
        logger.error("%r: %s", self, error)
        if self._worker is not None:
            self._worker.close()
        try:
            self._subscription.remove_if_new()
        finally:
            self._failure = error
            self.close()

    def stats(self) -> dict[str, int]:
        """Return the counters of this worker, ready for ``json.dumps``."""
        ledger, window = self._ledger, self._window
        sources = self._worker.stats()["clients"] if self._worker is not None else 0
        return {
            **self._counts,
            "committed": ledger.committed,
            "repeated": ledger.repeated,
            "ignored": ledger.ignored,
            "open_calls": len(ledger.open_deliveries()) + len(window),
            "held_bytes": window.held,
            "held_bytes_most": window.held_most,
            "sources": sources,
        }
