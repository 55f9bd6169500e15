"""A small load of lookups, by one client per mode, so that their waits can be compared on the same cluster.

Each worker looks up rows of a table in turn and never uses the cache. A worker waits for its lookup before it starts
the next one, as a program does: when a replica hangs, the rate of a client that waits for it falls to zero.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from metaclient.connection import Connection
from metaclient.errors import ConnectionClosed, MetaClientError
from metaclient.runtime import Runtime
from metaclient.watch.event_log import EventLog
from metaclient.watch.figures import ClientFigures

__all__ = ["LookupClient", "LookupLoad", "LookupMode"]

#: The last lookups that the shown latencies are taken from, and their age.
LATENCIES_MAX = 400
LATENCY_WINDOW_S = 5.0
#: After an error without a wait of its own, such as "no such table".
ERROR_PAUSE_S = 0.2

#: Returns table and row of the next lookup; None if the cluster has no table.
NextRow = Callable[[], tuple[bytes, bytes] | None]


@dataclass(frozen=True, slots=True)
class LookupMode:
    """How one client of the load reads hbase:meta. ``connect`` makes its connection.

    ``{mode}`` in the title stands for the connection's meta mode, which is known when the registry was read.
    """

    name: str
    title: str
    connect: Callable[[], Connection]


class LookupClient:
    """One client of the load: its workers, its counters, and the waits of its last lookups."""

    def __init__(self, mode: LookupMode, runtime: Runtime, events: EventLog) -> None:
        self.mode = mode
        self.connection = mode.connect()
        self._runtime = runtime
        self._stop_listening = self.connection.on_event(lambda event: events.record(mode.name, event))
        self._is_stopping = False
        self._lock = runtime.lock()  # guards the fields below
        self._done = 0
        self._failed = 0
        self._begun: dict[int, float] = {}  # worker -> the beginning of its lookup
        self._waits: deque[tuple[float, float]] = deque(maxlen=LATENCIES_MAX)  # end, seconds

    def start(self, rows: NextRow, workers: int, per_s: float) -> None:
        """Start workers that make ``per_s`` lookups per second together, if none of them has to wait."""
        for number in range(workers):
            self._runtime.start_daemon(self._work, number, rows, workers / per_s, name=f"watch-{self.mode.name}")

    def _work(self, number: int, rows: NextRow, period_s: float) -> None:
        runtime = self._runtime
        runtime.sleep(period_s * runtime.rng.random())
        while not self._is_stopping:
            begun = runtime.now()
            row = rows()
            if row is None:  # the cluster has no table
                runtime.sleep(max(period_s, ERROR_PAUSE_S))
                continue
            with self._lock:
                self._begun[number] = begun
            is_done = False
            try:
                self.connection.locate(*row, reload=True)
                is_done = True
            except ConnectionClosed:
                return
            except MetaClientError:
                runtime.sleep(ERROR_PAUSE_S)
            finally:
                self._finished(number, begun, is_done=is_done)
            runtime.sleep(max(0.0, period_s - (runtime.now() - begun)))

    def _finished(self, number: int, begun: float, *, is_done: bool) -> None:
        now = self._runtime.now()
        with self._lock:
            self._begun.pop(number, None)
            self._waits.append((now, now - begun))
            if is_done:
                self._done += 1
            else:
                self._failed += 1

    def figures(self) -> ClientFigures:
        """Return the counters now."""
        stats, now = self.connection.stats(), self._runtime.now()
        with self._lock:
            done, failed, begun = self._done, self._failed, list(self._begun.values())
            waits = sorted(seconds for end, seconds in self._waits if now - end <= LATENCY_WINDOW_S)
        reads = {int(replica): count for replica, count in stats["meta"]["reads_by_replica"].items()}
        return ClientFigures(
            name=self.mode.name,
            title=self.mode.title.format(mode=self.connection.meta_mode.value),
            lookups=done,
            failed=failed,
            waiting=len(begun),
            longest_wait_s=max((now - one for one in begun), default=0.0),
            median_ms=waits[len(waits) // 2] * 1000 if waits else None,
            slowest_ms=waits[-1] * 1000 if waits else None,
            retries=stats["retries"],
            fallbacks=stats["meta"]["fallbacks"],
            meta_hedges=stats["meta"]["hedges"],
            hedges=stats["hedges"]["started"],
            hedges_won=stats["hedges"]["won"],
            ejections=stats["meta"]["ejections"],
            reads_by_replica=reads,
        )

    def ejections_of(self, replica_id: int) -> int:
        """Return how often this client has ejected a replica of hbase:meta."""
        return self.connection.engine.telemetry.total("metaclient.meta.ejections", replica=replica_id)

    def close(self) -> None:
        self._is_stopping = True
        self._stop_listening()
        self.connection.close()


class LookupLoad:
    """The clients of all modes. ``rows`` returns table and row of the next lookup, or None if there is no table."""

    def __init__(self, modes: Sequence[LookupMode], rows: NextRow, runtime: Runtime, events: EventLog) -> None:
        self._clients: list[LookupClient] = []
        self._rows = rows
        try:
            for mode in modes:
                self._clients.append(LookupClient(mode, runtime, events))
        except BaseException:
            self.close()
            raise

    @property
    def clients(self) -> Sequence[LookupClient]:
        return self._clients

    def start(self, workers: int, per_s: float) -> None:
        """Start the workers of all clients: ``workers`` per client, ``per_s`` lookups per second and client."""
        for client in self._clients:
            client.start(self._rows, workers, per_s)

    def figures(self) -> tuple[ClientFigures, ...]:
        return tuple(client.figures() for client in self._clients)

    def close(self) -> None:
        """End all clients; their lookups in progress fail."""
        for client in self._clients:
            client.close()
