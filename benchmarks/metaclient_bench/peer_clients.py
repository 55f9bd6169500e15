"""The clients that the scenario ``peers`` compares, each in a process of its own, so that its CPU time is its own.

Run as ``python -m metaclient_bench.peer_clients KIND URL``, where KIND is ``ours`` or ``happybase``; HBase's Java
client is ``java/PeerCalls.java``. A client prints ``{"ready": true}``. Each line on standard input is a :class:`Work`.
The client runs it and prints a :class:`Sample` as JSON.

Works, each divided among the callers (threads):

- ``get`` and ``put``: one row per operation;
- ``scan``: one scan of all rows of the table, with the client's default page size; an operation is a row;
- ``rows``: one call for many keys; an operation is a key;
- ``lookup``: one uncached lookup per operation, in mode LoadBalance;
- ``in_flight``: gets of this client's native backend, sixteen in flight by one caller.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from metaclient.errors import MetaClientError

__all__ = ["FAMILY", "Peer", "Sample", "Work", "main", "row_of", "start_java_peer", "start_python_peer", "values_of"]

FAMILY = "cf"
VALUE_BYTES = 100
IN_FLIGHT = 16
CALL_S = 60.0
#: For one work, or for the start of a client: a work takes a second, on a machine with other programs up to a minute.
ANSWER_S_MAX = 600.0
#: Steps between the rows of two operations, and between those of two callers: primes, so that rows are spread.
ROW_STEP, CALLER_STEP = 7919, 104_729
JAVA_SOURCE = Path(__file__).parent / "java" / "PeerCalls.java"


@dataclass(frozen=True, slots=True)
class Work:
    """Operations on a table of ``rows`` rows with ``columns`` cells each; ``keys`` is the number of keys per call."""

    name: str
    table: str
    callers: int
    count: int
    rows: int
    columns: int = 1
    keys: int = 1000

    def __str__(self) -> str:
        return " ".join(map(str, astuple(self)))

    @classmethod
    def parse(cls, line: str) -> Work:
        name, table, *numbers = line.split()
        return cls(name, table, *map(int, numbers))


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of a work: its duration, the CPU time of the whole client process, and the times of single calls."""

    seconds: float
    cpu_s: float
    operations: int
    median_s: float
    p99_s: float

    @property
    def rate(self) -> float:
        return self.operations / self.seconds

    @property
    def cpu_us(self) -> float:
        """CPU microseconds per operation."""
        return self.cpu_s / self.operations * 1e6


def row_of(number: int, rows: int) -> bytes:
    return b"%08d" % (number % rows)


def values_of(columns: int) -> dict[bytes, bytes]:
    """Return the cells of a row; all rows have the same number of value bytes."""
    return {f"{FAMILY}:c{number}".encode(): b"v" * (VALUE_BYTES // columns) for number in range(columns)}


class Peer:
    """A client in another process."""

    def __init__(self, name: str, process: subprocess.Popen[str], answer_s_max: float = ANSWER_S_MAX) -> None:
        self.name = name
        self._process = process
        self._answer_s_max = answer_s_max

    def wait_until_ready(self) -> None:
        self._read()

    def run(self, work: Work) -> Sample:
        """Run the work; return when it is done."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{work}\n")
        self._process.stdin.flush()
        return Sample(**self._read())

    def _read(self) -> dict[str, Any]:
        """Return the next answer; the client sends one line per work, so none can be in the buffer already."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], self._answer_s_max)[0]:
            self._process.kill()
            raise MetaClientError(f"the client {self.name} did not answer within {self._answer_s_max:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise MetaClientError(f"the client {self.name} ended with exit code {self._process.wait()}; see its log")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def _closing(peer: Peer) -> Iterator[Peer]:
    try:
        peer.wait_until_ready()
        yield peer
    finally:
        peer.close()


@contextmanager
def start_python_peer(name: str, kind: str, url: str) -> Iterator[Peer]:
    """Yield a client that speaks to ``url``; its errors go to standard error."""
    command = [sys.executable, "-m", "metaclient_bench.peer_clients", kind, url]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with _closing(Peer(name, process)) as peer:
        yield peer


@contextmanager
def start_java_peer(name: str, zookeeper: str, log: Path) -> Iterator[Peer]:
    """Yield HBase's Java client with the JVM's default compiler; its errors go to the log."""
    from metaclient_local_hbase.programs import start_java

    with _closing(Peer(name, start_java(JAVA_SOURCE, zookeeper, log=log, is_long=True))) as peer:
        yield peer


# -- in the process of the client --------------------------------------------------------------------------------------

#: Does some operations from this number on, and returns how many.
_Call = Callable[[int], int]


def _measure(work: Work, call_of: Callable[[ExitStack], _Call]) -> Sample:
    """Run the work on as many threads as it has callers; the clock starts when all of them are connected."""
    each = work.count // work.callers
    taken: list[list[float]] = [[] for _ in range(work.callers)]
    failed: list[BaseException] = []
    barrier = threading.Barrier(work.callers + 1)

    def caller(number: int) -> None:
        try:
            with ExitStack() as stack:
                call = call_of(stack)
                barrier.wait()
                _repeat(call, number * CALLER_STEP, each, taken[number])
        except BaseException as error:
            failed.append(error)
            barrier.abort()

    threads = [threading.Thread(target=caller, args=(number,)) for number in range(work.callers)]
    for thread in threads:
        thread.start()
    try:
        barrier.wait()
        begun, cpu = time.perf_counter(), time.process_time()
    finally:
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]
    seconds, cpu_s = time.perf_counter() - begun, time.process_time() - cpu
    calls = sorted(one for own in taken for one in own)
    return Sample(seconds, cpu_s, each * work.callers, calls[len(calls) // 2], calls[int(len(calls) * 0.99)])


def _repeat(call: _Call, first: int, count: int, taken: list[float]) -> None:
    done, now = 0, time.perf_counter
    while done < count:
        begun = now()
        done += call(first + done * ROW_STEP)
        taken.append(now() - begun)


def _expect(wanted: int, found: int) -> int:
    if found != wanted:
        raise AssertionError(f"{found} of {wanted} results were complete")
    return wanted


def _table_call(work: Work, table: Any) -> _Call:
    """Return the work on a table of happybase or of this client, whose methods are the same."""
    rows, columns = work.rows, work.columns

    def get(number: int) -> int:
        return _expect(columns, len(table.row(row_of(number, rows)))) // columns

    data = values_of(columns)

    def put(number: int) -> int:
        table.put(row_of(number, rows), data)
        return 1

    def scan(number: int) -> int:
        return _expect(work.count // work.callers, sum(1 for _ in table.scan()))

    def many(number: int) -> int:
        keys = [row_of(number + at * ROW_STEP, rows) for at in range(work.keys)]
        return _expect(work.keys, sum(1 for _, row in table.rows(keys) if row))

    return {"get": get, "put": put, "scan": scan, "rows": many}[work.name]


def _happybase(url: str, work: Work) -> Sample:
    """Run with one connection per caller, because a happybase connection is not safe for threads."""
    import happybase

    address = urlsplit(url)

    def call_of(stack: ExitStack) -> _Call:
        connection = happybase.Connection(address.hostname, address.port)
        stack.callback(connection.close)
        return _table_call(work, connection.table(work.table))

    return _measure(work, call_of)


def _ours(connection: Any, work: Work) -> Sample:
    """Run with one connection for all callers."""
    if work.name == "in_flight":
        return _measure(work, lambda stack: _in_flight(connection, work))
    if work.name == "lookup":
        locate, table = connection.locate, work.table.encode()

        def look(number: int) -> int:
            locate(table, row_of(number, work.rows), reload=True)
            return 1

        return _measure(work, lambda stack: look)
    return _measure(work, lambda stack: _table_call(work, connection.table(work.table)))


def _in_flight(connection: Any, work: Work) -> _Call:
    from metaclient.model import Get

    backend, now, table = connection.engine.backend, connection.engine.runtime.now, work.table.encode()

    def call(number: int) -> int:
        rows = [row_of(number + at * ROW_STEP, work.rows) for at in range(IN_FLIGHT)]
        deadline = now() + CALL_S
        places = [connection.locate(table, row) for row in rows]
        calls = [backend.get(place, table, Get(row), deadline) for place, row in zip(places, rows, strict=True)]
        return _expect(IN_FLIGHT, sum(len(one.result(deadline).cells) == work.columns for one in calls))

    return call


def main(arguments: list[str]) -> int:
    import metaclient

    kind, url = arguments
    mode = "None" if urlsplit(url).scheme == "thrift1" else "LoadBalance"  # Thrift 1 cannot address meta replicas
    with ExitStack() as stack:
        connection = stack.enter_context(metaclient.connect(url, meta_mode=mode)) if kind == "ours" else None
        print(json.dumps({"ready": True, "pid": os.getpid()}), flush=True)
        for line in sys.stdin:
            work = Work.parse(line)
            sample = _happybase(url, work) if connection is None else _ours(connection, work)
            print(json.dumps(asdict(sample)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
