"""Load for the fault tests: callers in the background, every error kept, everything written remembered."""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

import metaclient
from metaclient import Connection, MetaClientError, Table, keys
from metaclient.backend import MetaScan
from metaclient.model import MetaReplica
from metaclient.runtime import Runtime
from metaclient_local_hbase import LocalHBase
from metaclient_native import NativeBackend

__all__ = [
    "ROWS",
    "SPLITS",
    "WAIT_S_MAX",
    "Load",
    "backend_of",
    "connect_patiently",
    "kill_and_start",
    "left_out",
    "looking_up",
    "move_regions",
    "said",
    "unwatched",
    "wait_for_copies",
    "wait_for_meta",
    "wait_until",
    "writing",
]

#: The table of the live tests: ten regions, and a row in each.
SPLITS = [b"r%d" % number for number in range(1, 10)]
ROWS = [b"a", *(split + b"x" for split in SPLITS)]
THREADS = 4
#: Seconds on an idle machine; ten times that and more on a busy one.
WAIT_S_MAX = 180.0
POLL_S = 0.1


def left_out(missing: str | None) -> None:
    """Skip the test for want of that; in CI, where everything must be there, that is a failure."""
    if missing is None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"this test must run in CI: {missing}")
    pytest.skip(missing)


def wait_until(is_so: Callable[[], bool], what: str, runtime: Runtime) -> None:
    deadline = runtime.now() + WAIT_S_MAX
    while not is_so():
        assert runtime.now() < deadline, f"waited {WAIT_S_MAX:.0f} s for {what}"
        runtime.sleep(POLL_S)


def connect_patiently(hbase: LocalHBase) -> Connection:
    """Without a gateway; calls are tried for as long as a restart may take."""
    return metaclient.connect(
        hbase.native_url,
        meta_mode="LoadBalance",
        rpc_timeout_s=10,
        operation_timeout_s=WAIT_S_MAX,
        scanner_timeout_s=WAIT_S_MAX,
        retries=200,
    )


def backend_of(native: Connection) -> NativeBackend:
    assert isinstance(native._backend, NativeBackend)
    return native._backend


def move_regions(native: Connection, table: bytes, after_each: Callable[[], None]) -> None:
    """Move each region of a table to another server."""
    admin, now = backend_of(native).admin, native.engine.runtime.now
    for location in native.regions(table):
        servers = [load.server for load in admin.cluster_status(now() + WAIT_S_MAX).live_servers]
        others = [server for server in servers if location.primary is None or server != location.primary.server]
        admin.move_region(location.region.encoded_name, now() + WAIT_S_MAX, server=others[0])
        after_each()


def kill_and_start(hbase: LocalHBase, native: Connection, table: bytes) -> None:
    """Kill -9 the server of the first region and start it again: the master notices the death at the latest then."""
    server = native.locate(table, b"0", reload=True).server
    killed = f"{server.host}:{server.port}"
    hbase.kill(killed)
    hbase.start(killed)
    hbase.wait_until_ready()


@contextmanager
def unwatched() -> Iterator[None]:
    """Starting has deadlines of its own, and the first start on a machine fetches packages: no hanging test."""
    faulthandler.cancel_dump_traceback_later()
    yield
    faulthandler.dump_traceback_later(300, exit=True, file=sys.__stderr__)


def wait_for_meta(connection: Connection, table: bytes, regions: int) -> None:
    """Until each copy of meta places every region of the table."""
    runtime, backend = connection._runtime, connection._backend
    scan = MetaScan(keys.meta_table_start(table), keys.meta_table_stop(table), is_reversed=False, limit=regions + 1)

    def knows(replica: MetaReplica) -> bool:
        with suppress(MetaClientError):
            page = backend.read_meta(replica, scan, runtime.now() + 5)
            return sum(b"info:server" in row.columns for row in page.rows) == regions
        return False

    for replica in backend.meta_replicas(runtime.now() + WAIT_S_MAX):
        what = f"meta replica {replica.replica_id} to learn of {table!r}"
        wait_until(lambda replica=replica: knows(replica), what, runtime)


def wait_for_copies(hbase: LocalHBase, table: bytes) -> None:
    """Until every copy of every region of the live tests' table is read: one that was opened anew is not at once."""
    with metaclient.connect(hbase.native_url, operation_timeout_s=10, retries=1) as connection:
        read = connection.table(table).row

        def is_read(row: bytes, replica_id: int) -> bool:
            with suppress(MetaClientError):
                read(row, consistency="TIMELINE", replica_id=replica_id)
                return True
            return False

        for row in ROWS:
            for replica_id in (1, 2):
                what = f"replica {replica_id} of the region of {row!r}"
                wait_until(lambda row=row, one=replica_id: is_read(row, one), what, connection._runtime)


class Load:
    """What has happened so far."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.done = 0
        self.errors: list[BaseException] = []
        self.unknown = 0  # of those that were done, how many may or may not have been applied
        self.slowest_s = 0.0
        self.written: dict[bytes, bytes] = {}

    def __str__(self) -> str:
        unknown = f", {self.unknown} with an unknown end" if self.unknown else ""
        return f"{self.done} calls, {len(self.errors)} failed{unknown}, slowest {self.slowest_s:.2f} s"

    def wait_for(self, calls: int) -> None:
        """Until so many more have ended: a fault that stops them all ends the test."""
        wanted = self.done + calls
        wait_until(lambda: self.done >= wanted, f"{calls} calls to end", self._runtime)

    @contextmanager
    def running(self, call: Callable[[int], None], threads: int = THREADS) -> Iterator[Load]:
        """Call with numbers that never repeat, on some threads, until the block ends."""
        is_over = False

        def work(number: int) -> None:
            while not is_over:
                begun = self._runtime.now()
                try:
                    call(number)
                except Exception as error:
                    self.errors.append(error)
                self.slowest_s = max(self.slowest_s, self._runtime.now() - begun)
                self.done += 1
                number += threads

        tasks = [self._runtime.start(work, number, name="load") for number in range(threads)]
        try:
            yield self
        finally:
            is_over = True
            for task in tasks:
                task.result()


@contextmanager
def looking_up(connection: Connection, table: bytes) -> Iterator[Load]:
    """Look up rows past the cache."""
    load = Load(connection._runtime)
    with load.running(lambda number: _ignored(connection.locate(table, ROWS[number % len(ROWS)], reload=True))):
        yield load


def _ignored(answer: object) -> None:
    """Only whether there is one counts."""


@contextmanager
def writing(table: Table) -> Iterator[Load]:
    """Put rows all over the table and read each back at once."""
    load = Load(table.connection._runtime)
    begun_ms = load._runtime.time_ms()

    def call(number: int) -> None:
        row, value = ROWS[number % len(ROWS)] + b"-%d-%08d" % (begun_ms, number), b"%d" % number
        table.put(row, {b"cf:n": value})
        load.written[row] = value
        assert table.row(row) == {b"cf:n": value}

    with load.running(call):
        yield load


def said(capsys: Any, what: str, load: Load, connection: Connection, served: dict[int, int] | None = None) -> None:
    """Show what the load met, and who has served; times are told, not asserted."""
    by = connection.stats()["meta"]["reads_by_replica"] if served is None else served
    with capsys.disabled():
        print(f"\n{what}: {load}; reads of meta by replica {by}")
