"""Changes of a real HBase: every edit is delivered over moves, splits, merges, and kills of servers and consumers.

A consumer is another process: one that appends each change to a file and commits it, or ``metaclient changes receive``,
which fills a spool. At the end what they have is compared with a raw scan of the table.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from metaclient import Connection
from metaclient.changes import Change, Subscriptions
from metaclient.changes.decoding import decode_rows
from metaclient.changes.doctor import Finding, examine, repair, status_of
from metaclient.changes.spool import Spool
from metaclient.errors import MetaClientError, RequestRefused
from metaclient.model import Cell, CellType, Consistency, Scan
from metaclient.runtime import Runtime
from metaclient.wire.rpc.replication import decode_keys
from metaclient_local_hbase import LocalHBase
from tests.live.load import WAIT_S_MAX, backend_of, kill_and_start, move_regions, wait_until

SPLITS = [b"4", b"8"]
ROWS_BETWEEN = 40
PAUSE_S = 0.005
#: How often the doctor looks for a stuck region: on a busy machine the dead server's queues move for minutes.
EXAMINATIONS_MAX = 5

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


class Worker:
    """A consumer in another process, which is started and killed."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
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

    def check_runs(self) -> None:
        assert self._process.poll() is None, "the consumer has ended"

    def changes(self) -> list[Any]:
        """Return what was delivered so far: row, region, sequence, cells."""
        raise NotImplementedError


class Consumer(Worker):
    """Iterates over the changes, with a state."""

    def __init__(self, folder: Path, url: str, table: bytes, name: str, *, serial: bool, worker: int = 0) -> None:
        self._out = folder / f"changes-{worker}"
        script = CONSUMER % {"serial": serial}
        arguments = [url, table.decode(), name, str(folder / f"state-{worker}"), str(self._out)]
        super().__init__([sys.executable, "-c", script, *arguments])

    def changes(self) -> list[Any]:
        """A line that is being written is left out."""
        if not self._out.exists():
            return []
        self.check_runs()
        lines = self._out.read_text().split("\n")[:-1]
        return [json.loads(line) for line in lines]


class Receiver(Worker):
    """Receives into a spool."""

    def __init__(self, folder: Path, url: str, table: bytes, name: str, *, serial: bool, worker: int = 0) -> None:
        self._folder, self._worker = folder / "spool", f"w{worker}"
        options = ["--serial"] if serial else []
        command = [sys.executable, "-m", "metaclient", "changes", "receive", table.decode(), "--name", name]
        command += ["--spool", str(self._folder), "--worker", self._worker, "--url", url, *options]
        super().__init__(command)

    def changes(self) -> list[Any]:
        """Read its part of the spool while it is written."""
        if not (self._folder / "spool.json").exists():
            return []
        self.check_runs()
        spool = Spool(self._folder)
        end = {name: position for name, position in spool.end().items() if name == self._worker}
        found: list[Any] = []
        for call in (call for part in spool.slices({}, end) for call in spool.read(part)):
            at = 0
            for index, (key, count) in enumerate(decode_keys(call.param)):
                rows, at = decode_rows(call.cells, at, len(call.cells), count)
                if call.flags is None or call.flags[index]:
                    found += [
                        (row.decode(), key.region, key.sequence_id, [_plain(cell) for cell in cells])
                        for row, cells in rows
                    ]
        return found


class Writer:
    """Writes, overwrites and deletes rows in all regions, each row several times. The client retries its calls."""

    def __init__(self, connection: Connection, table: bytes, *, pause_s: float = PAUSE_S) -> None:
        self._table = connection.table(table)
        self._pause_s = pause_s
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
            elif number % 11 == 0:
                self._table.delete(row)
            self.done += 1
            self._runtime.sleep(self._pause_s)

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


def state_by_sequence(changes: list[Any]) -> dict[str, dict[str, str]]:
    """Return the rows that result from the changes, applied in the order of their sequences: columns and values."""
    rows: dict[str, dict[str, str]] = {}
    for row, _, _, cells in sorted(changes, key=lambda change: change[2]):
        columns = rows.setdefault(row, {})
        for family, qualifier, _, kind, value in cells:
            if kind == CellType.PUT:
                columns[f"{family}:{qualifier}"] = value
            elif kind == CellType.DELETE_FAMILY:
                columns.clear()
            else:
                columns.pop(f"{family}:{qualifier}", None)
    return {row: columns for row, columns in rows.items() if columns}


def stored_state(native: Connection, table: bytes) -> dict[str, dict[str, str]]:
    """Return the rows of the replicated family as a reader sees them."""
    return {
        row.decode(): {name.decode(): value.decode() for name, value in columns.items()}
        for row, columns in native.table(table).scan(columns=[b"cf"])
    }


def cells_of(changes: list[Any]) -> set[tuple[object, ...]]:
    return {(row, *cell) for row, _, _, cells in changes for cell in cells}


def disturb(
    hbase: LocalHBase, native: Connection, table: bytes, writer: Writer, kill_consumer: Callable[[], None]
) -> None:
    """Move each region, kill a consumer, split a region, merge two, kill a server; rows are written all the time."""
    admin, now = backend_of(native).admin, native.engine.runtime.now
    move_regions(native, table, writer.write_more)
    kill_consumer()
    writer.write_more()
    admin.split_region(native.locate(table, b"2", reload=True), b"2", now() + WAIT_S_MAX)
    writer.write_more()
    last = admin.regions(table, now() + WAIT_S_MAX)[-2:]
    admin.merge_regions([location.region.encoded_name for location in last], now() + WAIT_S_MAX)
    assert len(admin.regions(table, now() + WAIT_S_MAX)) == len(SPLITS) + 1
    writer.write_more()
    kill_and_start(hbase, native, table)
    writer.write_more()
    move_regions(native, table, writer.write_more)


@pytest.mark.parametrize(
    ("kind", "serial", "count"),
    [
        pytest.param(Consumer, False, 1, id="plain", marks=pytest.mark.essential),
        pytest.param(Consumer, True, 1, id="serial", marks=pytest.mark.essential),
        pytest.param(Consumer, False, 2, id="two-workers"),
        pytest.param(Receiver, False, 1, id="spool", marks=pytest.mark.essential),
        pytest.param(Receiver, False, 2, id="two-spools"),
    ],
)
def test_every_edit_is_delivered_over_moves_a_split_a_merge_and_killed_processes(
    hbase: LocalHBase,
    native: Connection,
    table: bytes,
    tmp_path: Path,
    capsys: Any,
    *,
    kind: type[Consumer] | type[Receiver],
    serial: bool,
    count: int,
) -> None:
    name = f"live-{table.decode()}"
    Subscriptions(native).create(name, [table], serial=serial)
    workers: list[Worker] = [
        kind(tmp_path, native.url, table, name, serial=serial, worker=number) for number in range(count)
    ]

    def delivered() -> list[Any]:
        return [change for worker in workers for change in worker.changes()]

    try:
        writer = Writer(native, table)
        wait_until(lambda: bool(delivered()), "the first change", native.engine.runtime)
        # HBase's sources draw a worker at random, and may all draw the same one: kill one that has got changes.
        disturb(hbase, native, table, writer, lambda: next(one for one in workers if one.changes()).kill_and_start())
        writer.stop()
        expected = raw_cells(native, table)
        with contextlib.suppress(AssertionError):
            wait_until(lambda: cells_of(delivered()) >= expected, "every edit to be delivered", native.engine.runtime)
        found = delivered()
        assert expected - cells_of(found) == set()
        # A compaction, as after a split, removes delete markers from the table: they were there, too.
        assert {cell for cell in cells_of(found) - expected if cell[4] == CellType.PUT} == set()
        assert len(expected) > 3 * ROWS_BETWEEN
        assert state_by_sequence(found) == stored_state(native, table)
        repeats = len(found) - len({(row, region, sequence) for row, region, sequence, _ in found})
        # An iterator that was killed may repeat what it got since its last save. One spool has no repeats; two have
        # those that were sent again to the other one.
        assert repeats <= (0 if kind is Receiver and count == 1 else 60 * count)
        if serial:
            assert out_of_order(found) == []
        with capsys.disabled():
            print(
                f"\nHBase {hbase.version}, {count} {kind.__name__}, serial={serial}: {writer.done} rows written, "
                f"{len(expected)} cells stored, {len(found)} changes delivered, {repeats} of them again, "
                f"{len(out_of_order(found))} out of order"
            )
    finally:
        for worker in workers:
            worker.end()
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


@pytest.mark.parametrize("arrow", [False, True], ids=["objects", "arrow"])
def test_snapshot_and_the_changes_after_it_have_no_gap(native: Connection, table: bytes, arrow: bool) -> None:
    """ "``since=`` an instant that a raw scan fills in first (snapshot, then changes, without a gap)"."""
    name = f"since-{table.decode()}"
    writer = Writer(native, table)
    writer.write_more()
    since_ms = native.engine.runtime.time_ms()
    writer.write_more()
    snapshot: set[tuple[object, ...]] = set()
    logged: set[tuple[object, ...]] = set()
    try:
        with native.changes(table, name=name, since=since_ms / 1000, arrow=arrow) as feed:

            def take() -> None:
                """Take what is there, at most a thousand changes or batches."""
                for _ in range(1000):
                    one = feed.poll(0.5)
                    if isinstance(one, Change):
                        target = snapshot if one.is_snapshot else logged
                        target.update((one.row.decode(), *_plain(cell)) for cell in one.cells)
                    elif one is not None:
                        for cell in one.to_pylist():
                            target = snapshot if not cell["sequence"] else logged
                            names = (cell[part].decode() for part in ("row", "family", "qualifier"))
                            target.add((*names, cell["timestamp"], cell["type"], cell["value"].decode()))
                    else:
                        return

            wait_until(lambda: take() is None and bool(logged), "the first change after the snapshot", feed._runtime)
            assert snapshot
            writer.write_more()
            writer.stop()
            stored = raw_cells(native, table)
            expected = {cell for cell in stored if isinstance(cell[3], int) and cell[3] >= since_ms}
            with contextlib.suppress(AssertionError):
                wait_until(lambda: take() is None and snapshot | logged >= expected, "every edit", feed._runtime)
        assert expected - (snapshot | logged) == set()
        assert snapshot - expected == set()
        # The log begins at the oldest report of a region server, which may be seconds before the subscription.
        assert logged - stored == set()
        status = status_of(native, Subscriptions(native).get(name))
        assert status.is_forgotten
        assert status.log_queue >= 1
        assert status.info.snapshot_from_ms is None  # the next worker does not read it again
    finally:
        remove(native, name)


def test_address_that_no_region_server_reaches_is_named(native: Connection, table: bytes) -> None:
    """192.0.2.1 is reserved for documentation: no machine has it (RFC 5737)."""
    changes = native.changes(table, name="unreached", host="192.0.2.1", bind="127.0.0.1", reach_timeout_s=15.0)
    native.table(table).put(b"a", {b"cf:a": b"1"})
    with pytest.raises(MetaClientError, match=r"192\.0\.2\.1:\d+, the published address"):
        changes.poll(WAIT_S_MAX)
    assert "unreached" not in [info.name for info in Subscriptions(native).list()]


def test_doctor_finds_and_frees_a_serial_region_that_hbase_would_never_ship_again(
    hbase: LocalHBase, native: Connection, table: bytes, tmp_path: Path, capsys: Any
) -> None:
    """Edits that are not shipped, a flush, and a crash: the number of the flush is waited for, and never comes."""
    name = f"live-{table.decode()}"
    runtime = native.engine.runtime
    Subscriptions(native).create(name, [table], serial=True)
    rows = native.table(table)
    worker: Consumer | None = None
    try:
        for number in range(3):
            rows.put(b"0-%d" % number, {b"cf:a": b"before"})
        backend_of(native).admin.flush_table(table, runtime.now() + WAIT_S_MAX)
        kill_and_start(hbase, native, table)
        rows.put(b"0-9", {b"cf:a": b"after"})
        worker = Consumer(tmp_path, native.url, table, name, serial=True)

        def delivered() -> set[str]:
            assert worker is not None
            return {row for row, *_ in worker.changes()}

        wait_until(lambda: {"0-0", "0-1", "0-2"} <= delivered(), "the edits before the crash", runtime)
        found: list[Finding] = []
        for _ in range(EXAMINATIONS_MAX):
            found = found or [one for one in examine(native, name, wait_s=25.0) if one.pushed_id is not None]
        assert "0-9" not in delivered(), "HBase has shipped the edit: the region is not stuck"
        assert len(found) == 1
        assert "HBASE-29499" in found[0].text
        repair(native, found[0])
        wait_until(lambda: "0-9" in delivered(), "the edit after the crash", runtime)
        with capsys.disabled():
            print(f"\nHBase {hbase.version}: {found[0].text}")
        assert [one for one in examine(native, name, wait_s=5.0) if one.pushed_id is not None] == []
    finally:
        if worker is not None:
            worker.end()
        remove(native, name)
