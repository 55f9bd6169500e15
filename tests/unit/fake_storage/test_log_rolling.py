"""Rolls of the log beside other rolls, flushes, fences and cleaners: no acknowledged write leaves the log unflushed.

The other thread's step runs inside of a call that the roll makes, so that each test meets its race every time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from metaclient.errors import ServerStopped
from metaclient_fake.storage import wal as wal_module
from metaclient_fake.storage.filesystem import FileSystem
from metaclient_fake.storage.wal import Wal, WalFile
from tests.unit.fake_storage.bench import INFO, Bench, put, values


def meanwhile(monkeypatch: pytest.MonkeyPatch, step: Callable[[], object]) -> None:
    """Run ``step`` once, at the moment at which the next roll makes its new file."""
    steps = [step]

    def made(name: str) -> WalFile:
        file = WalFile(name)
        if steps:
            steps.pop()()
        return file

    monkeypatch.setattr(wal_module, "WalFile", made)


def test_two_rollers_at_once_orphan_no_log(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second roll, and a write after it, inside of the first roll."""
    region = bench.open()
    put(region, b"before", a=b"1")

    def roll_and_write() -> None:
        bench.wal.roll()
        put(region, b"between", a=b"1")

    meanwhile(monkeypatch, roll_and_write)
    bench.wal.roll()
    put(region, b"after", a=b"1")
    names = [file.name for file in bench.wal.files]
    assert len(names) == len(set(names)), "a file is in the log twice"
    recovered = bench.crash()
    assert [row for row in (b"before", b"between", b"after") if not values(recovered, row)] == []


def test_full_log_is_rolled_once_by_two_writers(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both writers have seen that the file is full; the second one must not roll the new file."""
    wal = Wal(roll_bytes=1)
    bench.wal = wal
    region = bench.open()
    full = wal.files[-1]
    wal.roll()
    rolls = len(wal.files)
    assert wal._roll(full) == []
    assert len(wal.files) == rolls
    put(region, b"r", a=b"1")


def test_flush_that_ends_during_a_roll_does_not_make_a_file_vanish(bench: Bench) -> None:
    """Each file is either still in the log or in the archive, whenever the flush reports its end."""
    region = bench.open()
    put(region, b"r", a=b"1")
    newest = region.read_point

    class FlushedWhenAsked(dict[str, int]):
        def get(self, region: str, default: Any = None) -> Any:
            answer = super().get(region, default)
            self[region] = newest
            return answer

    bench.wal._flushed = FlushedWhenAsked()
    rolled = bench.wal.files[-1]
    bench.wal.roll()
    assert (rolled in bench.wal.files) != (rolled in bench.filesystem.old_wals)
    bench.wal.roll()
    assert rolled in bench.filesystem.old_wals, "flushed, so the next roll archives it"


def test_write_into_an_empty_file_that_is_rolled_meanwhile_is_not_lost(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file was empty when the roll began: an empty file is dropped, one that was written to is not."""
    region = bench.open()
    bench.wal.roll()
    meanwhile(monkeypatch, lambda: put(region, b"r", a=b"1"))
    bench.wal.roll()
    assert values(bench.crash(), b"r") == {b"cf:a": b"1"}


def test_fenced_log_keeps_its_files_where_they_are(bench: Bench) -> None:
    """Recovery reads the files of a fenced log: a writer that wakes up late must not roll it."""
    region = bench.open()
    put(region, b"r", a=b"1")
    before = bench.wal.files
    bench.wal.fence()
    assert bench.wal.roll() == []
    assert bench.wal.files is before
    with pytest.raises(ServerStopped):
        put(region, b"s", a=b"1")


def test_reader_of_the_files_during_a_roll_misses_none(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    region = bench.open()
    put(region, b"r", a=b"1")
    seen: list[list[bytes]] = []

    def read() -> None:
        entries = bench.wal.entries_for(INFO.encoded_name)
        seen.append([row for entry in entries for row, _ in entry.edits])

    bench.wal.on_archive = lambda file: read()
    meanwhile(monkeypatch, read)
    bench.wal.roll()
    region.flush()
    bench.wal.roll()
    assert seen == [[b"r"]] * len(seen)
    assert len(seen) >= 2


def test_file_that_is_archived_during_a_cleaning_is_not_lost() -> None:
    """The cleaner removes what it has looked at, and nothing that came since."""
    filesystem = FileSystem()
    first = WalFile("first")
    first.archived_at_s = 0.0
    filesystem._old_wals.append(first)

    came: list[WalFile] = []

    class ArchivedWhileCounted(list[WalFile]):
        def __len__(self) -> int:
            length = super().__len__()
            came.append(WalFile("late"))
            self.append(came[-1])
            return length

    filesystem._old_wals = ArchivedWhileCounted(filesystem._old_wals)
    assert filesystem.clean_old_wals(701.0) == 1
    kept = [file for file in filesystem._old_wals]  # noqa: C416  # ``list`` would ask for the length
    assert kept == came
    assert came
