"""Counts the reads of hbase:meta that a Spark application makes, over its driver and all its executors.

The driver listens on a port. The address and a secret of this application are in the session's configuration
(``spark.hbase.lookups.token``), which Spark passes to every task as a local property. At its end a task reports the
number of reads that its *process* has made so far, by meta replica. Reports are totals, not increments, so that a lost
or repeated report changes nothing. Reads for planning, which Spark may run in separate Python workers on the driver,
are sent along with the splits and reported by a task.

Bounds: a report is one line of at most 64 kB and has a timeout of 2 s. A worker that cannot reach the driver logs a
warning and retries after a minute. Beyond 10,000 processes, those that reported longest ago are kept as one sum.

Counting is off, and no port is opened, with the option ``hbase.spark.lookups=off`` of a call, or with
``spark.hbase.lookups=off`` in the session's configuration. Where the port cannot be opened or the configuration cannot
be changed (some servers of Spark Connect), a warning is logged once and everything else works.

Reads of ``spark.read.format("hbase")`` are counted from the first call of a function of this package (``register``,
``table``, ``lookups``, ...) with the session.
"""

from __future__ import annotations

import json
import logging
import socket
from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from metaclient.errors import ConfigError, MetaClientError
from metaclient.runtime import ThreadRuntime, close_descriptor
from spark_connector import clients
from spark_connector.settings.session import driver_host

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CONF", "SWITCH", "Collector", "Report", "collect", "lookups", "planned", "report"]

_log = logging.getLogger(__name__)

#: Spark hides the values of names with "token" in its web pages and logs.
CONF = "spark.hbase.lookups.token"
#: The session's switch: "off" turns counting off for all calls.
SWITCH = "spark.hbase.lookups"
#: Prefix of the names of processes that plan: the driver, and Spark's Python workers for planning.
DRIVER = "driver:"
#: process -> meta replica -> reads
Report = Mapping[str, Mapping[str, int]]

LINE_MAX = 64 << 10
TIMEOUT_S = 2.0
#: The pause after a report failed because the driver was unreachable.
PAUSE_S = 60.0
PROCESSES_MAX = 10_000
_BACKLOG = 128
_OK = b"ok\n"
#: How often the accepting thread checks whether the collector is closed.
_LOOK_S = 0.5


class Collector:
    """Receives the reports on the driver, from its creation until it is closed.

    >>> with Collector("127.0.0.1") as collector:
    ...     send(collector.address, {"worker-1": {"1": 2}})
    ...     send(collector.address, {"worker-1": {"1": 3}})  # a total replaces the earlier one
    ...     collector.totals()
    {'1': 3}
    """

    def __init__(self, host: str) -> None:
        self._runtime = ThreadRuntime(max_tasks=8, max_queued=_BACKLOG, name="hbase-lookups")
        self._word = f"{self._runtime.rng.getrandbits(128):032x}"
        self._lock = self._runtime.lock()
        # The two fields below are guarded by _lock.
        self._by_process: OrderedDict[str, dict[str, int]] = OrderedDict()
        self._past: Counter[str] = Counter()
        self._socket = _listening(host)
        self._socket.settimeout(_LOOK_S)
        self.address = f"{host}:{self._socket.getsockname()[1]}/{self._word}"
        self._runtime.start_daemon(self._accept, name="accept")
        self._runtime.on_fork(self._leave_to_parent)

    def _leave_to_parent(self) -> None:
        """Close the child process's copy of the listening socket; only the parent accepts reports."""
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
            except MetaClientError as error:  # too many at once; the next report of that process has the same totals
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
                _log.debug("a report could not be parsed: %s: %s", type(error).__name__, error)

    def _understood(self, line: bytes) -> dict[str, dict[str, int]]:
        document = json.loads(line)
        if document["word"] != self._word:
            raise ValueError("the report has the secret of another application")
        return {
            str(process): {str(int(replica)): int(count) for replica, count in reads.items()}
            for process, reads in document["reads"].items()
        }

    def take(self, reads: Report) -> None:
        """Record the totals of some processes; a total that is less than the recorded one is ignored."""
        with self._lock:
            for process, by_replica in reads.items():
                known = self._by_process.setdefault(process, {})
                self._by_process.move_to_end(process)
                for replica, count in by_replica.items():
                    known[replica] = max(count, known.get(replica, 0))
            while len(self._by_process) > PROCESSES_MAX:
                self._past.update(self._by_process.popitem(last=False)[1])

    def totals(self) -> dict[str, int]:
        """Return meta replica -> reads, summed over all processes that reported."""
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
        """Return the result of :func:`lookups`."""
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
    """Return a listening socket on this address, or on all interfaces if it is no local address (behind NAT)."""
    try:
        return socket.create_server((host, 0), backlog=_BACKLOG)
    except OSError:
        return socket.create_server(("", 0), backlog=_BACKLOG)


# -- the driver ------------------------------------------------------------------------------------------------------

_runtime = ThreadRuntime(name="hbase-lookups")  # clock and locks; it starts no thread
_guard = _runtime.lock()  # guards _collectors
_collectors: dict[str, Collector] = {}  # by application; a driver has one at a time
_failed: dict[str, str] = {}  # why an application has none


def _renew() -> None:
    """Start a child process without collectors, and with a lock that no thread of the parent holds."""
    global _guard
    _guard = _runtime.lock()
    _collectors.clear()
    _failed.clear()


_runtime.on_fork(_renew)


def collect(spark: SparkSession, is_wanted: bool = True) -> Collector | None:
    """Return this application's collector; the first call starts it and puts its address into the session's conf.

    None if counting is off or impossible; ``is_wanted`` is False for a call with ``hbase.spark.lookups=off``.
    """
    if not is_wanted or str(spark.conf.get(SWITCH, "on")).strip().lower() == "off":
        return None
    application = str(spark.conf.get("spark.app.id", "") or id(spark))
    with _guard:
        if application in _failed:
            return None
        try:
            collector = _collectors.get(application) or _started(application, driver_host(spark))
            if spark.conf.get(CONF, "") != collector.address:
                spark.conf.set(CONF, collector.address)
        except (OSError, _session_error()) as error:
            started = _collectors.pop(application, None)
            if started is not None:
                started.close()
            _failed.clear()
            _failed[application] = reason = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            _log.warning("meta lookups of executors are not counted: %s", reason)
            return None
    return collector


def _started(application: str, host: str) -> Collector:
    while _collectors:  # of an application that has ended
        _collectors.popitem()[1].close()
    collector = _collectors[application] = Collector(host)
    return collector


def _session_error() -> type[Exception]:
    """Return the error of a session that refuses to change its configuration."""
    from pyspark.errors import PySparkException

    found: type[Exception] = PySparkException
    return found


def lookups(spark: SparkSession) -> dict[str, Any]:
    """Return the number of reads of hbase:meta that this application has made.

    ``reads_by_replica`` maps the meta replica's id to the reads of the driver and all executors, and ``total`` is their
    sum. ``driver`` and ``executors`` are the two parts (planning counts as the driver's, wherever Spark ran it).
    ``processes`` is the number of Spark's worker processes that have reported. Raises ConfigError if counting is off.
    """
    collector = collect(spark)
    if collector is None:
        why = "; ".join(_failed.values()) or f"{SWITCH}=off in the session's configuration"
        raise ConfigError(f"reads of hbase:meta are not counted in this application: {why}")
    collector.take({DRIVER + clients.process_name(): clients.lookups_made()})
    return collector.summary()


# -- the workers -----------------------------------------------------------------------------------------------------

_reported: dict[str, int] = {}  # process -> the total of its last report; empty in a new process
_silent_until = float("-inf")


def planned() -> dict[str, dict[str, int]]:
    """Return the meta reads of the planning process; the splits carry them, and their readers report them."""
    return {DRIVER + clients.process_name(): clients.lookups_made()}


def report(address: str | None, carried: Report | None = None) -> None:
    """Send the driver the totals of this process, and ``carried`` (those of the planner), if they have changed.

    A failure is logged and never fails the task.
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
        _log.warning("a report of %d meta lookups did not reach the driver: %s", sum(map(_total, news.values())), error)
        return
    if len(_reported) > PROCESSES_MAX:
        _reported.clear()
    _reported.update({process: _total(made) for process, made in news.items()})


def send(address: str, reads: Report) -> None:
    """Send a report and wait for the acknowledgement."""
    place, _, word = address.partition("/")
    host, _, port = place.rpartition(":")
    line = json.dumps({"word": word, "reads": reads}).encode() + b"\n"
    if len(line) > LINE_MAX:
        raise ValueError(f"a report of {len(line)} bytes is too long")
    with socket.create_connection((host, int(port)), TIMEOUT_S) as connection:
        connection.sendall(line)
        if connection.recv(len(_OK)) != _OK:
            raise OSError("the driver did not acknowledge the report")


def _total(made: Mapping[str, int]) -> int:
    return sum(made.values())
