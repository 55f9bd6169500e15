"""Uncached lookups without pause on several threads, counted per second: of this client and of HBase's Java client."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from metaclient import Connection
from metaclient.errors import MetaClientError
from metaclient_bench.places import ROWS, TABLE
from metaclient_local_hbase import LocalHBase
from metaclient_local_hbase.programs import start_java

__all__ = ["CALLERS", "JAVA_SLOT_S", "Lookups", "java_lookups", "lookups"]

CALLERS = 4
JAVA_SOURCE = Path(__file__).parent / "java" / "MetaLookups.java"
JAVA_SLOT_S = 1.0


@dataclass(slots=True)
class Lookups:
    """The lookups of a client per second since ``begun`` (of ``time.monotonic``)."""

    begun: float
    ended: list[float] = field(default_factory=list)
    failed: int = 0
    slowest_s: float = 0.0

    def per_second(self, seconds: int) -> list[int]:
        counts = [0] * seconds
        for instant in tuple(self.ended):
            at = int(instant - self.begun)
            if at < seconds:
                counts[at] += 1
        return counts


@contextmanager
def lookups(connection: Connection) -> Iterator[Lookups]:
    """Look up until the block ends."""
    is_over = threading.Event()
    made = Lookups(time.monotonic())

    def look(at: int) -> None:
        while not is_over.is_set():
            at += 1
            begun = time.monotonic()
            try:
                connection.locate(TABLE, ROWS[at % len(ROWS)], reload=True)
            except MetaClientError:
                made.failed += 1
            ended = time.monotonic()
            made.ended.append(ended)
            made.slowest_s = max(made.slowest_s, ended - begun)

    threads = [threading.Thread(target=look, args=(number,), name="lookups", daemon=True) for number in range(CALLERS)]
    for thread in threads:
        thread.start()
    try:
        yield made
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


class JavaLookups:
    """HBase's Java client in mode LoadBalance, in a separate JVM; its slots are seconds."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._slots: list[dict[str, int]] = []
        self._reader = threading.Thread(target=self._read, name="java-lookups", daemon=True)

    def wait_until_ready(self) -> None:
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise MetaClientError("the Java client ended before its first lookup; see its log")
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._slots.append(json.loads(line))

    def per_second(self) -> list[int]:
        return [slot["lookups"] for slot in tuple(self._slots)]

    @property
    def failed(self) -> int:
        return sum(slot["failed"] for slot in tuple(self._slots))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def java_lookups(hbase: LocalHBase, rows: Sequence[bytes] = ROWS) -> Iterator[JavaLookups]:
    """Yield the Java client's lookups, which run until the block ends."""
    process = start_java(
        JAVA_SOURCE,
        hbase.zookeeper,
        TABLE.decode(),
        "LoadBalance",
        str(CALLERS),
        str(int(JAVA_SLOT_S * 1000)),
        ",".join(row.decode() for row in rows),
        log=hbase.folder / "logs" / "java-client.log",
        login=hbase.java_login,
    )
    made = JavaLookups(process)
    try:
        made.wait_until_ready()
        yield made
    finally:
        made.close()
