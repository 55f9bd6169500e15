"""The files of a spool: after a crash at any byte, what was answered is there once, and what was read stays."""

import errno
import random
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from metaclient.changes.receiver import recovered_journal
from metaclient.changes.repeats import Repeats
from metaclient.changes.spool import Journal, Position, Spool, SpoolError, SpoolFull, records
from metaclient.changes.spool import journal as journal_module
from metaclient.changes.spool.disk import FolderDisk
from metaclient.changes.spool.records import HEADER_BYTES, decode_position, encode_position
from metaclient.changes.spool.spool import lock_worker
from metaclient.changes.state import dump_state
from metaclient.model import Cell
from metaclient.protobuf import ProtocolError
from metaclient.wire.rpc.replication import ShippedEntry, WalKey, decode_key_columns, encode_replicate
from tests.unit.changes.failing_disk import FailingDisk, Killed

REGION = "0" * 32
#: Small: every byte of a run is a place to be killed at.
BOUNDS = {"bytes_max": 10_000, "segment_bytes": 250}


def call(*sequences: int) -> tuple[bytes, bytes]:
    entries = [
        ShippedEntry(WalKey(REGION, b"t", number, 1), ((b"r", Cell(b"d:q", number, b"%d" % number)),))
        for number in sequences
    ]
    return encode_replicate(entries)


class Source:
    """Sends calls as HBase does, until they are answered, to a receiver of a few lines that uses the journal."""

    def __init__(self, calls: Sequence[Sequence[int]]) -> None:
        self.waiting = [list(one) for one in calls]
        self.answered: set[int] = set()

    def run(self, disk: FailingDisk, *, is_early: bool = False) -> None:
        """Send all calls, two per fsync. ``is_early`` answers them before it."""
        repeats = Repeats()
        journal = recovered_journal(disk, "n", repeats, **BOUNDS)
        while self.waiting:
            batch = self.waiting[:2]
            if journal.is_roll_due:
                journal.roll(dump_state("n", repeats))
            made = []
            new: list[int] = []
            for one in batch:
                flags = [not repeats.has(REGION, number) and number not in new for number in one]
                if any(flags):
                    made.append((*call(*one), None if all(flags) else flags))
                new += [number for number, flag in zip(one, flags, strict=True) if flag]
            if made:
                journal.append(made)
            if is_early:
                self._answer(batch)
            journal.sync()
            for number in new:
                repeats.add(REGION, number)
            if not is_early:
                self._answer(batch)

    def _answer(self, batch: list[list[int]]) -> None:
        for one in batch:
            self.answered |= set(one)
        del self.waiting[: len(batch)]


CALLS = [[1], [2, 3], [3, 4], [5], [6, 7, 8], [2, 9], [10], [11], [12]]
ALL = {number for one in CALLS for number in one}


def stored(disk: FailingDisk, upto: Position | None = None) -> list[int]:
    """Return the sequences of the new entries in the segments, in order; those before ``upto``, if given."""
    found: list[int] = []
    for name in disk.names():
        number = records.segment_number(name)
        if number is None:
            continue
        data, at = disk.read(name), HEADER_BYTES
        end = len(data) if upto is None or number < upto.segment else upto.byte if number == upto.segment else 0
        while at < end:
            head = records.decode_head(data, at)
            body = data[at + head.size - head.length : at + head.size]
            assert records.is_record(Position(number, at), head, body), (name, at)
            one = records.decode_body(head, body)
            sequences = decode_key_columns(one.param).sequence_ids
            found += [sequence for index, sequence in enumerate(sequences) if one.flags is None or one.flags[index]]
            at += head.size
    return found


def published(disk: FailingDisk) -> Position | None:
    return decode_position(disk.read("position")) if "position" in disk.names() else None


Crash = Callable[[FailingDisk], FailingDisk]


def check_crash(steps: int, crash: Crash, *, is_early: bool = False) -> None:
    """Run until the process is killed after so many steps, crash, recover, and finish the work."""
    source, disk = Source(CALLS), FailingDisk(steps)
    try:
        source.run(disk, is_early=is_early)
    except Killed:
        pass
    else:
        return  # a planted bug takes fewer steps
    seen = stored(disk, position) if (position := published(disk)) is not None else []
    left = crash(disk)
    source.waiting.reverse()  # another worker of HBase sends its calls first
    source.run(left)
    final = stored(left)
    assert source.answered - set(final) == set(), "an entry that was answered is lost"
    assert len(final) == len(set(final)), "an entry is stored twice"
    assert final[: len(seen)] == seen, "what readers have seen has changed"
    assert set(final) == ALL


def steps_of_a_run() -> int:
    disk = FailingDisk()
    Source(CALLS).run(disk)
    assert len([name for name in disk.names() if name.endswith(".segment")]) > 2
    return disk.steps


def kinds_of_crash(seed: int) -> Iterator[tuple[str, Crash]]:
    yield "kill", FailingDisk.after_kill
    yield "power", lambda disk: disk.after_power_loss(random.Random(seed))


@pytest.mark.parametrize("kind", ["kill", "power"])
def test_what_was_answered_survives_a_crash_at_every_byte(kind: str) -> None:
    """ "A spool is safe against kill -9 at any byte"."""
    for steps in range(steps_of_a_run()):
        check_crash(steps, dict(kinds_of_crash(steps))[kind])


def test_two_crashes_one_after_the_other() -> None:
    total = steps_of_a_run()
    chance = random.Random(5)
    for _ in range(300):
        source, disk = Source(CALLS), FailingDisk(chance.randrange(total))
        for _ in range(3):
            try:
                source.run(disk)
            except Killed:
                crashed = disk.after_power_loss(chance) if chance.random() < 0.5 else disk.after_kill()
                disk = FailingDisk(chance.randrange(total), {name: crashed.read(name) for name in crashed.names()})
        rest = FailingDisk(files={name: disk.read(name) for name in disk.names()})
        source.run(rest)
        assert sorted(stored(rest)) == sorted(ALL)


def planted(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Plant a bug; return the arguments of ``check_crash`` that are part of it."""
    if name == "answered before fsync":
        return {"is_early": True}
    if name == "position before fsync":

        def sync(self: Any) -> None:
            self._synced = self._end
            self._publish()
            self._disk.sync(records.segment_name(self._segment))

        monkeypatch.setattr(Journal, "sync", sync)
    elif name == "torn end is kept":
        monkeypatch.setattr(FailingDisk, "cut", lambda self, name, size: None)
    elif name == "no checksum":
        monkeypatch.setattr(records, "_checksum", lambda *arguments: 0)
    elif name == "segment before its state":

        def roll(self: Any, state: bytes) -> None:
            old = self._segment
            self._segment = old + 1
            self._create()
            self._synced = self._end
            self._publish()
            for one in self._disk.names():  # a reader deletes what it may
                if (number := records.segment_number(one)) is not None and number <= old:
                    self._disk.remove(one)
            self._disk.replace(f"{old:016d}.state", state)

        monkeypatch.setattr(Journal, "roll", roll)
    elif name == "last segment is not read again":
        original = Journal._read_segment

        def read(self: Any, number: int, on_call: Any, published: Position) -> None:
            original(self, number, lambda call: None, published)

        monkeypatch.setattr(Journal, "_read_segment", read)
    elif name == "state is not read":
        monkeypatch.setattr(Journal, "_newest_state", lambda self, names, on_state: self._segment_before(names))
        monkeypatch.setattr(
            Journal,
            "_segment_before",
            lambda self, names: max(journal_module.segment_numbers(names), default=1) - 1,
            raising=False,
        )
    return {}


@pytest.mark.parametrize(
    "name",
    [
        "answered before fsync",
        "position before fsync",
        "torn end is kept",
        "no checksum",
        "segment before its state",
        "last segment is not read again",
        "state is not read",
    ],
)
def test_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    total = steps_of_a_run()
    options = planted(name, monkeypatch)
    for steps in range(total):
        for _, crash in kinds_of_crash(steps):
            try:
                check_crash(steps, crash, **options)
            except (AssertionError, SpoolError, ProtocolError, struct.error):  # garbage is taken for calls
                return
    pytest.fail(f"no crash shows: {name}")


# -- damage ------------------------------------------------------------------------------------------------------------


def filled(folder: Path, count: int = 12, **bounds: int) -> Spool:
    """Make a spool with one worker and so many calls, in several segments."""
    spool = Spool.ensure(folder, "n", [b"t"], new_id="1")
    (folder / "w").mkdir(exist_ok=True)
    journal = Journal(FolderDisk(folder / "w"), **{**BOUNDS, **bounds})
    for number in range(1, count + 1):
        if journal.is_roll_due:
            journal.roll(b"{}")
        journal.append([(*call(number), None)])
        journal.sync()
    journal.close()
    return spool


def sequences(spool: Spool, start: Any, end: Any) -> list[int]:
    calls = [one for part in spool.slices(start, end) for one in spool.read(part)]
    return [number for one in calls for number in decode_key_columns(one.param).sequence_ids]


def test_damaged_byte_before_the_position_is_an_error_at_every_byte(tmp_path: Path) -> None:
    spool = filled(tmp_path, 2)
    (segment,) = tmp_path.glob("w/*.segment")
    whole = segment.read_bytes()
    for at in range(len(whole)):
        segment.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(SpoolError, match=r"is damaged at byte \d+ of \d+, in calls that were answered"):
            Journal(FolderDisk(tmp_path / "w"), **BOUNDS)
        if at >= HEADER_BYTES:
            with pytest.raises(SpoolError, match="no complete call"):
                sequences(spool, {}, spool.end())
    segment.write_bytes(whole)
    assert sequences(spool, {}, spool.end()) == [1, 2]


def test_record_of_another_place_or_segment_is_none() -> None:
    parts = b"".join(records.encode_record(Position(1, 20), *call(1)))
    head = records.decode_head(parts)
    body = parts[head.size - head.length :]
    assert records.is_record(Position(1, 20), head, body)
    assert not records.is_record(Position(1, 21), head, body)
    assert not records.is_record(Position(2, 20), head, body)


def test_missing_segment_between_others_is_named(tmp_path: Path) -> None:
    spool = filled(tmp_path)
    _, second, *_ = sorted(tmp_path.glob("w/*.segment"))
    second.unlink()
    with pytest.raises(SpoolError, match=r"0000000000000002\.segment is missing between"):
        sequences(spool, {}, spool.end())
    with pytest.raises(SpoolError, match="changes are lost"):
        Journal(FolderDisk(tmp_path / "w"), **BOUNDS)


def test_position_with_other_bytes_is_none() -> None:
    data = encode_position(Position(3, 99))
    assert decode_position(data) == Position(3, 99)
    for at in range(len(data)):
        assert decode_position(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]) is None
        assert decode_position(data[:at]) is None


# -- reading -----------------------------------------------------------------------------------------------------------


def test_reader_sees_what_is_durable_and_nothing_more(tmp_path: Path) -> None:
    spool = filled(tmp_path, 3)
    journal = Journal(FolderDisk(tmp_path / "w"), **BOUNDS)
    before = spool.end()
    journal.append([(*call(4), None)])
    assert spool.end() == before
    journal.sync()
    assert sequences(spool, before, spool.end()) == [4]
    journal.close()


@pytest.mark.parametrize("bytes_max", [1, 100, 150, 300, 1000, 10**9])
def test_limited_offsets_have_every_call_once_and_at_least_one_each(tmp_path: Path, bytes_max: int) -> None:
    spool = filled(tmp_path)
    (tmp_path / "v").mkdir()
    other = Journal(FolderDisk(tmp_path / "v"), **BOUNDS)
    for number in range(101, 120):
        if other.is_roll_due:
            other.roll(b"{}")
        other.append([(*call(number), None)])
        other.sync()
    other.close()
    end, at, found = spool.end(), {}, []
    while at != end:
        reached = spool.limit(at, end, bytes_max)
        part = sequences(spool, at, reached)
        assert sum(one.size for one in spool.slices(at, reached)) <= max(bytes_max, 260) + HEADER_BYTES
        assert part or reached != at
        found += part
        at = reached
    assert sorted(found) == [*range(1, 13), *range(101, 120)]


def test_commit_deletes_what_ends_before_the_offset_and_replays_stay_possible(tmp_path: Path) -> None:
    spool = filled(tmp_path)
    end = spool.end()
    middle = spool.limit({}, end, 600)
    before = sequences(spool, middle, end)
    assert spool.commit(middle) > 0
    assert spool.commit(middle) == 0
    assert sequences(spool, middle, end) == before
    with pytest.raises(SpoolError, match=r"is missing: its calls were committed by another consumer"):
        sequences(spool, {"w": Position(1, HEADER_BYTES)}, end)
    assert [number for number in range(1, 13) if number not in sequences(spool, {}, end)]


def test_offset_after_the_end_is_of_another_spool(tmp_path: Path) -> None:
    spool = filled(tmp_path)
    with pytest.raises(SpoolError, match="the checkpoint belongs to another spool"):
        spool.slices({"w": Position(99, 30)}, spool.end())


def test_folder_that_is_no_spool_or_of_another_subscription_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpoolError, match=r"is no spool.*metaclient changes receive"):
        Spool(tmp_path)
    Spool.ensure(tmp_path, "lake", [b"t"], new_id="1")
    with pytest.raises(SpoolError, match="spool of the subscription 'lake'"):
        Spool.ensure(tmp_path, "other", [b"t"], new_id="1")
    (tmp_path / "spool.json").write_text("{}")
    with pytest.raises(SpoolError, match="does not describe a spool"):
        Spool(tmp_path)


def test_second_process_of_a_worker_is_refused(tmp_path: Path) -> None:
    lock_worker(tmp_path / "w")
    with pytest.raises(SpoolError, match="another process receives into"):
        lock_worker(tmp_path / "w")


# -- the bound and the disk --------------------------------------------------------------------------------------------


def test_bound_holds_until_a_reader_deletes_and_one_closed_segment_never_blocks(tmp_path: Path) -> None:
    spool = filled(tmp_path, 1, bytes_max=1000)
    journal = Journal(FolderDisk(tmp_path / "w"), bytes_max=1000)
    number = 1
    while not journal.is_full(150):
        if journal.is_roll_due:
            journal.roll(b"{}")
        number += 1
        journal.append([(*call(number), None)])
        journal.sync()
        assert journal.total_bytes <= 1000 + 150
    assert number > 4
    journal.roll(b"{}")
    spool.commit(spool.end())
    assert not journal.is_full(150)
    assert not journal.is_full(10**6), "a call that is larger than the bound is taken alone"
    journal.close()


class FullDisk(FolderDisk):
    """A disk that takes half of an append, then has no space."""

    def append(self, name: str, at: int, parts: Sequence[bytes]) -> None:
        super().append(name, at, [b"".join(parts)[:40]])
        raise OSError(errno.ENOSPC, "No space left on device")


def test_disk_without_space_leaves_nothing_and_can_go_on(tmp_path: Path) -> None:
    spool = filled(tmp_path, 2)
    journal = Journal(FullDisk(tmp_path / "w"), **BOUNDS)
    before, size = spool.end(), (tmp_path / "w" / "0000000000000001.segment").stat().st_size
    with pytest.raises(SpoolFull, match="No space left"):
        journal.append([(*call(3), None)])
    assert (tmp_path / "w" / "0000000000000001.segment").stat().st_size == size
    journal.sync()
    assert spool.end() == before
    journal.close()
    assert sequences(spool, {}, before) == [1, 2]


def test_failed_fsync_ends_the_journal_for_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = filled(tmp_path, 1)
    journal = Journal(FolderDisk(tmp_path / "w"), **BOUNDS)
    before = spool.end()
    journal.append([(*call(2), None)])
    with monkeypatch.context() as failing:
        failing.setattr(FolderDisk, "sync", lambda self, name: (_ for _ in ()).throw(OSError(errno.EIO, "I/O error")))
        with pytest.raises(SpoolError, match="cannot be written"):
            journal.sync()
    with pytest.raises(SpoolError, match="start the receiver again"):
        journal.sync()
    assert spool.end() == before
    journal.close()


def test_checksum_is_that_of_zlib_over_place_and_body() -> None:
    """The format is documented: another program can read it."""
    parts = b"".join(records.encode_record(Position(1, 20), b"pp", b"cc", [True, False]))
    body = bytes.fromhex("00000002 00000005") + b"pp" + bytes.fromhex("00000002 02") + b"cc"
    place = (1).to_bytes(8, "big") + (20).to_bytes(8, "big") + len(body).to_bytes(4, "big") + b"\1"
    head = len(body).to_bytes(4, "big") + zlib.crc32(place + body).to_bytes(4, "big") + b"\1"
    assert parts == head + body
    assert records.decode_body(records.decode_head(parts), body).flags == [True, False]
