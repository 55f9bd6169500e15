"""Changes of a real HBase: every edit is delivered while regions move and split, a server and a consumer are killed.

The consumer is another process, which appends each change to a file and commits it. At the end its file is compared
with a raw scan of the table.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from metaclient import Connection
from metaclient.changes import Subscriptions
from metaclient.errors import MetaClientError, RequestRefused
from metaclient.model import Cell, CellType, Consistency, Scan
from metaclient.runtime import Runtime
from metaclient_local_hbase import LocalHBase
from tests.live.load import WAIT_S_MAX, backend_of, kill_and_start, move_regions, wait_until

SPLITS = [b"4", b"8"]
ROWS_BETWEEN = 40
PAUSE_S = 0.005

CONSUMER = """
import json, sys, metaclient
url, table, name, state, out = sys.argv[1:]
with metaclient.connect(url) as connection, open(out, "a") as file:
    for change in connection.changes(table, name=name, serial=%(serial)r, state=state):
        text = lambda c: [c.family.decode(), c.qualifier.decode(), c.timestamp, int(c.type), c.value.decode()]
        cells = [text(cell) for cell in change.cells]
        print(json.dumps([change.row.decode(), change.region, change.sequence, cells]), file=file, flush=True)
        change.commit()
"""


class Consumer:
    """A consumer in another process, which is started and killed."""

    def __init__(self, folder: Path, url: str, table: bytes, name: str, *, serial: bool, worker: int = 0) -> None:
        self._out = folder / f"changes-{worker}"
        script = CONSUMER % {"serial": serial}
        arguments = [url, table.decode(), name, str(folder / f"state-{worker}"), str(self._out)]
        self._command = [sys.executable, "-c", script, *arguments]
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, env=os.environ.copy())

    def kill_and_start(self) -> None:
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait(WAIT_S_MAX)
        self._process = self._start()

    def end(self) -> None:
        self._process.kill()
        self._process.wait(WAIT_S_MAX)

    def changes(self) -> list[Any]:
        """Return what was delivered so far; a line that is being written is left out."""
        if not self._out.exists():
            return []
        assert self._process.poll() is None, "the consumer has ended"
        lines = self._out.read_text().split("\n")[:-1]
        return [json.loads(line) for line in lines]


class Writer:
    """Writes, overwrites and deletes rows in all regions, each row several times. The client retries its calls."""

    def __init__(self, connection: Connection, table: bytes) -> None:
        self._table = connection.table(table)
        self._runtime: Runtime = connection.engine.runtime
        self.done = 0
        self._is_stopped = False
        self._task = self._runtime.start(self._run, name="writer")

    def _run(self) -> None:
        while not self._is_stopped:
            number = self.done
            row, value = b"%x-%03d" % (number % 16, number % 97), b"%d" % number
            self._table.put(row, {b"cf:a": value, b"local:c": value})
            if number % 7 == 0:
                self._table.delete(row, [b"cf:b"])
            elif number % 5 == 0:
                self._table.put(row, {b"cf:b": value})
            self.done += 1
            self._runtime.sleep(PAUSE_S)

    def write_more(self) -> None:
        target = self.done + ROWS_BETWEEN
        wait_until(lambda: self.done >= target or self._task.is_done, "rows to be written", self._runtime)
        if self._task.is_done:
            self._task.result()

    def stop(self) -> None:
        self._is_stopped = True
        self._task.result(self._runtime.now() + WAIT_S_MAX)


@pytest.fixture
def table(native: Connection) -> Iterator[bytes]:
    made = f"changes_{native.engine.runtime.time_ms()}".encode()
    families = {"cf": {"replication_scope": 1, "max_versions": 1_000_000, "keep_deleted_cells": "TRUE"}, "local": {}}
    native.create_table(made, families, splits=SPLITS)
    yield made
    native.delete_table(made, disable=True)


def remove(native: Connection, name: str) -> None:
    """Remove a subscription, once the addresses of killed workers are gone."""

    def is_removed() -> bool:
        try:
            Subscriptions(native).remove(name)
        except RequestRefused as error:
            return "no subscription" in str(error)
        return True

    wait_until(is_removed, "the subscription to be removed", native.engine.runtime)


def raw_cells(native: Connection, table: bytes) -> set[tuple[object, ...]]:
    """Return every cell that the table has stored in its replicated family, delete markers too."""
    scan = Scan(columns=(b"cf",), max_versions=0x7FFFFFFF, is_raw=True)
    return {
        (result.row.decode(), *_plain(cell))
        for result, _ in native.engine.scan_rows(table, scan, Consistency.STRONG)
        for cell in result.cells
    }


def _plain(cell: Cell) -> tuple[object, ...]:
    return cell.family.decode(), cell.qualifier.decode(), cell.timestamp, int(cell.type), cell.value.decode()


def cells_of(changes: list[Any]) -> set[tuple[object, ...]]:
    return {(row, *cell) for row, _, _, cells in changes for cell in cells}


@pytest.mark.essential
@pytest.mark.parametrize("serial", [False, True], ids=["plain", "serial"])
def test_every_edit_is_delivered_over_moves_a_split_and_killed_processes(
    hbase: LocalHBase, native: Connection, table: bytes, tmp_path: Path, serial: bool, capsys: Any
) -> None:
    name = f"live-{table.decode()}"
    Subscriptions(native).create(name, [table], serial=serial)
    consumer = Consumer(tmp_path, native.url, table, name, serial=serial)
    try:
        writer = Writer(native, table)
        wait_until(lambda: bool(consumer.changes()), "the first change", native.engine.runtime)
        move_regions(native, table, writer.write_more)
        consumer.kill_and_start()
        writer.write_more()
        until = native.engine.runtime.now() + WAIT_S_MAX
        backend_of(native).admin.split_region(native.locate(table, b"2", reload=True), b"2", until)
        writer.write_more()
        kill_and_start(hbase, native, table)
        writer.write_more()
        writer.stop()
        expected = raw_cells(native, table)
        with contextlib.suppress(AssertionError):
            wait_until(
                lambda: cells_of(consumer.changes()) >= expected, "every edit to be delivered", native.engine.runtime
            )
        found = consumer.changes()
        assert expected - cells_of(found) == set()
        # A compaction, as after a split, removes delete markers from the table: they were there, too.
        assert {cell for cell in cells_of(found) - expected if cell[4] == CellType.PUT} == set()
        assert len(expected) > 3 * ROWS_BETWEEN
        repeats = len(found) - len({(row, region, sequence) for row, region, sequence, _ in found})
        assert repeats <= 60  # of the consumer that was killed: those since its last save, a second at most
        if serial:
            assert out_of_order(found) == []
        with capsys.disabled():
            print(
                f"\nHBase {hbase.version}, serial={serial}: {writer.done} rows written, {len(expected)} cells stored, "
                f"{len(found)} changes delivered, {repeats} of them again, {len(out_of_order(found))} out of order"
            )
    finally:
        consumer.end()
        remove(native, name)


def out_of_order(changes: list[Any]) -> list[Any]:
    """Return the first deliveries of changes that came after a later change of the same row."""
    newest: dict[str, int] = {}
    seen: set[tuple[str, int]] = set()
    late = []
    for row, _, sequence, _ in changes:
        if (row, sequence) not in seen and sequence < newest.get(row, 0):
            late.append((row, sequence, newest[row]))
        seen.add((row, sequence))
        newest[row] = max(sequence, newest.get(row, 0))
    return late


def test_two_workers_share_a_subscription_and_one_is_killed(
    hbase: LocalHBase, native: Connection, table: bytes, tmp_path: Path
) -> None:
    name = f"live-{table.decode()}"
    Subscriptions(native).create(name, [table])
    workers = [Consumer(tmp_path, native.url, table, name, serial=False, worker=number) for number in (0, 1)]
    try:
        writer = Writer(native, table)
        # HBase's sources draw a worker at random, and may all draw the same one: kill one that has got changes.
        wait_until(lambda: any(worker.changes() for worker in workers), "a change", native.engine.runtime)
        next(worker for worker in workers if worker.changes()).kill_and_start()
        move_regions(native, table, writer.write_more)
        writer.stop()
        expected = raw_cells(native, table)

        def found() -> set[tuple[object, ...]]:
            return cells_of(workers[0].changes()) | cells_of(workers[1].changes())

        with contextlib.suppress(AssertionError):
            wait_until(lambda: found() >= expected, "every edit to be delivered", native.engine.runtime)
        assert found() >= expected
        assert {cell for cell in found() - expected if cell[4] == CellType.PUT} == set()
    finally:
        for worker in workers:
            worker.end()
        remove(native, name)


def test_address_that_no_region_server_reaches_is_named(native: Connection, table: bytes) -> None:
    """192.0.2.1 is reserved for documentation: no machine has it (RFC 5737)."""
    changes = native.changes(table, name="unreached", host="192.0.2.1", bind="127.0.0.1", reach_timeout_s=15.0)
    native.table(table).put(b"a", {b"cf:a": b"1"})
    with pytest.raises(MetaClientError, match=r"192\.0\.2\.1:\d+, the published address"):
        changes.poll(WAIT_S_MAX)
    assert "unreached" not in [info.name for info in Subscriptions(native).list()]
