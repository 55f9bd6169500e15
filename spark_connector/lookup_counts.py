"""Counts the reads of hbase:meta that a Spark application makes, over its driver and all its executors.

The driver listens on a port of its own; where, and a word that proves that a report is from this application, stands in
the session's configuration (``spark.hbase.lookups.token``), which Spark hands to every task as a local property. A task
that finds it reports at its end how many reads its *process* has made so far, by meta replica: totals, not increments,
so that a report that is lost, or comes twice (a task that ran again), changes nothing. Reads that were made for
planning, in Spark's own driver-side Python workers, travel with the splits and are reported by a task.

Bounds: a report is one line of at most 64 kB and has 2 s; who cannot reach the driver tries again after a minute and
says so in the worker's log; beyond 10,000 processes those that reported longest ago are kept as one sum.

What is read with ``spark.read.format("hbase")`` counts from the moment on that the session was first given to a
function of this package (``register``, ``table``, ``lookups``, ...).
"""

from __future__ import annotations

import json
import logging
import socket
from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from metaclient.errors import MetaClientError
from metaclient.runtime import ThreadRuntime, close_descriptor
from spark_connector import clients
from spark_connector.settings.session import driver_host

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CONF", "Collector", "Report", "collect", "lookups", "planned", "report"]

_log = logging.getLogger(__name__)

#: Spark hides values of names with "token" in its pages and logs.
CONF = "spark.hbase.lookups.token"
#: How names of processes begin that plan: the driver, and the Python workers that Spark plans in.
DRIVER = "driver:"
#: process -> meta replica -> reads
Report = Mapping[str, Mapping[str, int]]

LINE_MAX = 64 << 10
TIMEOUT_S = 2.0
#: After the driver could not be reached.
PAUSE_S = 60.0
PROCESSES_MAX = 10_000
_BACKLOG = 128
_OK = b"ok\n"
#: How often the accepting thread looks whether it is to end.
_LOOK_S = 0.5


class Collector:
    """The driver's end: listens from the moment it is made, until it is closed.

    >>> with Collector("127.0.0.1") as collector:
    ...     send(collector.address, {"worker-1": {"1": 2}})
    ...     send(collector.address, {"worker-1": {"1": 3}})  # totals: the later one holds
    ...     collector.totals()
    {'1': 3}
    """

    def __init__(self, host: str) -> None:
        self._runtime = ThreadRuntime(max_tasks=8, max_queued=_BACKLOG, name="hbase-lookups")
        self._word = f"{self._runtime.rng.getrandbits(128):032x}"
        self._lock = self._runtime.lock()
        # Guarded by the lock:
        self._by_process: OrderedDict[str, dict[str, int]] = OrderedDict()
        self._past: Counter[str] = Counter()
        self._socket = _listening(host)
        self._socket.settimeout(_LOOK_S)
        self.address = f"{host}:{self._socket.getsockname()[1]}/{self._word}"
        self._runtime.start_daemon(self._accept, name="accept")
        self._runtime.on_fork(self._leave_to_parent)

    def _leave_to_parent(self) -> None:
        """In a child process: close our descriptor of the port, at which only the parent listens."""
        self._lock = self._runtime.lock()
        close_descriptor(self._socket)

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._runtime.close()
        self._socket.close()

    def _accept(self) -> None:
        while not self._runtime.closed:
            try:
                client, _ = self._socket.accept()
            except TimeoutError:
                continue
            except OSError:
                return  # closed
            client.settimeout(TIMEOUT_S)
            try:
                self._runtime.start(self._serve, client, name="report")
            except MetaClientError as error:  # too many at once: the next report of that process has it all
                client.close()
                _log.debug("a report was refused: %s", error)

    def _serve(self, client: socket.socket) -> None:
        with client:
            try:
                with client.makefile("rb") as lines:
                    line = lines.readline(LINE_MAX)
                self.take(self._understood(line))
                client.sendall(_OK)
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                _log.debug("a report was not one: %s: %s", type(error).__name__, error)

    def _understood(self, line: bytes) -> dict[str, dict[str, int]]:
        document = json.loads(line)
        if document["word"] != self._word:
            raise ValueError("it is of another application")
        return {
            str(process): {str(int(replica)): int(count) for replica, count in reads.items()}
            for process, reads in document["reads"].items()
        }

    def take(self, reads: Report) -> None:
        """Note the totals of some processes; they only grow."""
        with self._lock:
            for process, by_replica in reads.items():
                known = self._by_process.setdefault(process, {})
                self._by_process.move_to_end(process)
                for replica, count in by_replica.items():
                    known[replica] = max(count, known.get(replica, 0))
            while len(self._by_process) > PROCESSES_MAX:
                self._past.update(self._by_process.popitem(last=False)[1])

    def totals(self) -> dict[str, int]:
        """Meta replica -> reads, of all that reported."""
        with self._lock:
            made = Counter(self._past)
            for by_replica in self._by_process.values():
                made.update(by_replica)
        return dict(sorted(made.items()))

    @property
    def processes(self) -> int:
        with self._lock:
            return len(self._by_process)

    def summary(self) -> dict[str, Any]:
        """What :func:`lookups` answers."""
        with self._lock:
            driver: Counter[str] = Counter()
            executors: Counter[str] = Counter(self._past)
            for process, by_replica in self._by_process.items():
                (driver if process.startswith(DRIVER) else executors).update(by_replica)
            processes = sum(not process.startswith(DRIVER) for process in self._by_process)
        both = driver + executors
        return {
            "reads_by_replica": dict(sorted(both.items())),
            "total": both.total(),
            "driver": dict(sorted(driver.items())),
            "executors": dict(sorted(executors.items())),
            "processes": processes,
        }


def _listening(host: str) -> socket.socket:
    """On this address; on all, where it is one that others use for us (behind a translated network)."""
    try:
        return socket.create_server((host, 0), backlog=_BACKLOG)
    except OSError:
        return socket.create_server(("", 0), backlog=_BACKLOG)


# -- the driver ------------------------------------------------------------------------------------------------------

_runtime = ThreadRuntime(name="hbase-lookups")  # clock and locks; it starts no thread
_guard = _runtime.lock()  # guards _collectors
_collectors: dict[str, Collector] = {}  # by application; a driver has one at a time


def _renew() -> None:
    """In a child process: no collector, and a lock that no thread of the parent holds."""
    global _guard
    _guard = _runtime.lock()
    _collectors.clear()


_runtime.on_fork(_renew)


def collect(spark: SparkSession) -> Collector:
    """This application's collector; the first call starts it and tells the session where it is."""
    application = str(spark.conf.get("spark.app.id", "") or id(spark))
    with _guard:
        collector = _collectors.get(application)
        if collector is None:
            while _collectors:  # of an application that is over
                _collectors.popitem()[1].close()
            collector = _collectors[application] = Collector(driver_host(spark))
    if spark.conf.get(CONF, "") != collector.address:
        spark.conf.set(CONF, collector.address)
    return collector


def lookups(spark: SparkSession) -> dict[str, Any]:
    """How many reads of hbase:meta this application has made: by meta replica, in all, and who made them.

    ``reads_by_replica`` maps the replica's id to the number over the driver and all executors; ``driver`` and
    ``executors`` are the same apart (planning counts as the driver's wherever Spark ran it); ``processes`` is how many
    worker processes of Spark reported.
    """
    collector = collect(spark)
    collector.take({DRIVER + clients.process_name(): clients.lookups_made()})
    return collector.summary()


# -- the workers -----------------------------------------------------------------------------------------------------

_reported: dict[str, int] = {}  # process -> the total that the driver knows; empty in a new process
_silent_until = float("-inf")


def planned() -> dict[str, dict[str, int]]:
    """Return the meta reads of the planning process; the splits carry them, and their readers report them."""
    return {DRIVER + clients.process_name(): clients.lookups_made()}


def report(address: str | None, carried: Report | None = None) -> None:
    """Tell the driver what this process has read so far, and ``carried`` (of the planner), if it is news.

    Never fails a task: who cannot be told is noted in the log.
    """
    global _silent_until
    if not address or _runtime.now() < _silent_until:
        return
    reads = {clients.process_name(): clients.lookups_made(), **(carried or {})}
    news = {process: made for process, made in reads.items() if _reported.get(process) != _total(made)}
    if not news:
        return
    try:
        send(address, news)
    except (OSError, ValueError) as error:
        _silent_until = _runtime.now() + PAUSE_S
        _log.warning("the driver was not told of %d meta lookups: %s", sum(map(_total, news.values())), error)
        return
    if len(_reported) > PROCESSES_MAX:
        _reported.clear()
    _reported.update({process: _total(made) for process, made in news.items()})


def send(address: str, reads: Report) -> None:
    """Send a report and wait until it was taken."""
    place, _, word = address.partition("/")
    host, _, port = place.rpartition(":")
    line = json.dumps({"word": word, "reads": reads}).encode() + b"\n"
    if len(line) > LINE_MAX:
        raise ValueError(f"a report of {len(line)} bytes is too long")
    with socket.create_connection((host, int(port)), TIMEOUT_S) as connection:
        connection.sendall(line)
        if connection.recv(len(_OK)) != _OK:
            raise OSError("the driver did not take it")


def _total(made: Mapping[str, int]) -> int:
    return sum(made.values())
