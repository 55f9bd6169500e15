"""X1, X3, X4: changes per second and core, what a consumer holds when it stands still, and the rate of a spool.

X1 (real threads): calls of 100 single-cell puts of four regions, in the bytes of HBase's sources, wait in a feed. The
CPU time of decoding, delivery and commit is measured, for changes and for record batches, the median of three runs.
Beside stand the slowest run, and the rate at which the fake's sources encode the same calls (``source``).

X3 (real threads): a source sends calls without end to a consumer that takes none; the bytes that the feed holds are
compared with ``bytes_max``. Each call is smaller than the bound.

X4 (real disk): calls of 1 MB go through a receiver into a spool, with an fsync for what waits together, and are read
back with their checksums. Beside stands ``dd``: the same bytes in the same sizes, each with its fsync, and read back
in blocks of 1 MB. The runs alternate, and the figures are medians. One of the two goals must be met: 100 MB/s, or half
of ``dd``.

X2, the delay of a put on a busy cluster, needs a real HBase: scenario ``change-delay``.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import median

from metaclient.changes.batches import ChangeBatches
from metaclient.changes.changes import Changes
from metaclient.changes.feed import FeedOptions
from metaclient.changes.receiver import SpoolReceiver, recovered_journal
from metaclient.changes.repeats import Repeats
from metaclient.changes.spool import Spool
from metaclient.changes.spool.disk import FolderDisk
from metaclient.changes.subscription import Subscription
from metaclient.model import Cell
from metaclient.runtime import Runtime, ThreadRuntime
from metaclient.wire.exposure import ListenerProtection
from metaclient.wire.rpc.receiving import Delivery, Receiver
from metaclient.wire.rpc.replication import ShippedEntry, WalKey, encode_replicate
from metaclient_bench.figure import Figure, Outcome
from metaclient_bench.scenario import Scenario

TABLE = b"t"
EDITS_PER_CALL = 100
REGIONS = 4
#: A time of today: the length of a number on the wire depends on it.
NOW_MS = 1_763_460_000_000
#: As ``bytes_max`` of X3.
BOUND = 1 << 20


class _Worker:
    """A worker that listens nowhere."""

    address = "nowhere:0"

    def stats(self) -> Mapping[str, int]:
        return {"accepted": 1, "clients": 1}

    def close(self) -> None: ...


class _NoCluster(Subscription):
    """A subscription without a cluster: calls are handed to ``receiver`` by hand."""

    def __init__(self) -> None:
        self.name = "bench"
        self.tables = (TABLE,)
        self.created_ms = 0
        self.snapshot_from_ms = None

    def join(
        self,
        receiver: Receiver,
        *,
        host: str | None,
        port: int,
        bind: str | None,
        protection: ListenerProtection | None = None,
    ) -> _Worker:
        self.receiver = receiver
        return _Worker()


def run(quick: bool) -> Outcome:
    calls = 600 if quick else 2000
    made, source = encoded_calls(calls)
    for kind in (Changes, ChangeBatches):  # imports are not part of a rate: pyarrow's first array imports pandas
        rate(kind, made[:1])
    rows = [rate(Changes, made) for _ in range(3)]
    batches = [rate(ChangeBatches, made) for _ in range(3)]
    figures: tuple[Figure, ...] = (
        Figure.of("X1", "changes per second and core", median(rows), ">= 30000", worst=min(rows), source=source),
        Figure.of("X1b", "the same as record batches", median(batches), ">= 150000", worst=min(batches), source=source),
        Figure.of(
            "X3", "bytes held for a consumer that stands still, as a share of the bound", held_share(made), "<= 1"
        ),
    )
    spools = spool_rates(24 if quick else 96, runs=3 if quick else 5)
    rates = [ours for ours, _ in spools]
    shares = [ours / plain for ours, plain in spools]
    figures += (
        Figure.of(
            "X4",
            "MB/s through a spool, written and read back, over half of dd's with the same fsyncs, or over 100",
            max(median(shares) / 0.5, median(rates) / 100),
            ">= 1",
            worst=max(min(shares) / 0.5, min(rates) / 100),
            mb_s=median(rates),
            dd_mb_s=median([plain for _, plain in spools]),
        ),
    )
    return Outcome(figures, samples={"rows": rows, "batches": batches, "spool_mb_s": rates, "spool_over_dd": shares})


#: Of one call of X4: what a source sends when it has a backlog.
SPOOLED_CALL = 1 << 20


def spool_rates(calls: int, *, runs: int) -> list[tuple[float, float]]:
    """Return MB/s of the spool, and of plain writes with the same fsyncs, alternating."""
    value = os.urandom(SPOOLED_CALL // EDITS_PER_CALL)
    made = []
    for call in range(calls):
        entries = [
            ShippedEntry(
                WalKey(f"{0:032x}", TABLE, call * EDITS_PER_CALL + number + 1, NOW_MS, ((b"cf", 1),)),
                ((b"row%09d" % number, Cell(b"cf:q", NOW_MS, value)),),
            )
            for number in range(EDITS_PER_CALL)
        ]
        made.append(encode_replicate(entries))
    found = []
    for _ in range(runs):
        folder = Path(tempfile.mkdtemp(prefix="spool-", dir=Path.cwd()))
        try:
            ours, sizes = spool_rate(folder / "spool", made)
            found.append((ours, plain_rate(folder / "plain", sizes)))
        finally:
            shutil.rmtree(folder)
    return found


def spool_rate(folder: Path, calls: list[tuple[bytes, bytes]]) -> tuple[float, list[int]]:
    """Return MB/s of elapsed time, written and read back, and the bytes of each fsync."""
    size = sum(len(param) + len(cells) for param, cells in calls)
    sizes: list[int] = []
    with ThreadRuntime() as runtime:
        Spool.ensure(folder, "bench", [TABLE], new_id="bench")
        (folder / "w").mkdir()
        repeats, where = Repeats(), _NoCluster()
        journal = recovered_journal(FolderDisk(folder / "w"), "bench", repeats, bytes_max=1 << 40)
        receiver = SpoolReceiver(
            where,
            runtime,
            options=FeedOptions(bytes_max=1 << 40),
            repeats=repeats,
            on_close=lambda feed: None,
            journal=journal,
            keep_dead=lambda delivery: None,
        )
        for param, cells in calls:
            _hand_over(where.receiver, runtime, param, cells)
        begun = time.perf_counter()
        before = 0
        while receiver.poll(0.0) is not None:
            written = receiver.stats()["spooled_bytes"]
            sizes.append(written - before)
            before = written
        seconds = time.perf_counter() - begun
        receiver.close()
    spool = Spool(folder)
    _forget_cache(folder / "w")
    begun = time.perf_counter()
    found = sum(len(call.cells) for part in spool.slices({}, spool.end()) for call in spool.read(part))
    seconds += time.perf_counter() - begun
    assert found == sum(len(cells) for _, cells in calls)
    return size / seconds / 1e6, sizes


def plain_rate(path: Path, sizes: list[int]) -> float:
    """Return MB/s of writing so many bytes with an fsync each, and reading them back: what ``dd`` does."""
    blocks = [os.urandom(size) for size in sizes]
    begun = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for block in blocks:
            file.write(block)
            os.fdatasync(file.fileno())
    seconds = time.perf_counter() - begun
    _forget_cache(path.parent)
    begun = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while file.read(SPOOLED_CALL):
            pass
    seconds += time.perf_counter() - begun
    return sum(sizes) / seconds / 1e6


def _forget_cache(folder: Path) -> None:
    """Ask the kernel to read the files of a folder from the disk again."""
    for path in folder.iterdir():
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def encoded_calls(count: int) -> tuple[list[tuple[bytes, bytes]], float]:
    """Return calls in the bytes of the wire, and the edits that were encoded per second of CPU time."""
    clusters = (uuid.UUID(int=7),)
    entries = [
        ShippedEntry(
            WalKey(f"{number % REGIONS:032x}", TABLE, number // REGIONS + 1, NOW_MS + number, ((b"cf", 1),), clusters),
            ((b"row%09d" % number, Cell(b"cf:q", NOW_MS + number, b"value%09d" % number)),),
        )
        for number in range(count * EDITS_PER_CALL)
    ]
    begun = time.process_time()
    made = [encode_replicate(entries[at : at + EDITS_PER_CALL]) for at in range(0, len(entries), EDITS_PER_CALL)]
    return made, len(entries) / (time.process_time() - begun)


def rate(kind: type[Changes] | type[ChangeBatches], calls: list[tuple[bytes, bytes]]) -> float:
    """Return the changes per second of CPU time that a feed delivers and commits."""
    with ThreadRuntime() as runtime:
        where, feed = _feed(kind, runtime, bytes_max=1 << 40)
        for param, cells in calls:
            _hand_over(where.receiver, runtime, param, cells)
        begun = time.process_time()
        while feed.poll(0.0) is not None:
            pass
        seconds = time.process_time() - begun
        assert feed.stats()["committed"] == len(calls) * EDITS_PER_CALL
        feed.close()
    return len(calls) * EDITS_PER_CALL / seconds


def held_share(calls: list[tuple[bytes, bytes]]) -> float:
    """Return the most bytes that a feed holds, over its bound, when no consumer iterates it."""
    with ThreadRuntime() as runtime:
        where, feed = _feed(Changes, runtime, bytes_max=BOUND)

        def send() -> None:
            for param, cells in calls:
                if not _hand_over(where.receiver, runtime, param, cells):
                    return

        sending = runtime.start(send)
        sent = sum(len(param) + len(cells) for param, cells in calls)
        assert sent > 3 * BOUND, "the calls must not fit"
        runtime.wait_first((sending,), runtime.now() + 2.0)
        held = feed.stats()["held_bytes_most"]
        feed.close()
        sending.result()
    return held / BOUND


def _feed(
    kind: type[Changes] | type[ChangeBatches], runtime: Runtime, *, bytes_max: int
) -> tuple[_NoCluster, Changes | ChangeBatches]:
    where = _NoCluster()
    options = FeedOptions(bytes_max=bytes_max)
    made = kind(where, runtime, options=options, store=None, repeats=Repeats(), on_close=lambda feed: None)
    return where, made


def _hand_over(receiver: Receiver, runtime: Runtime, param: bytes, cells: bytes) -> bool:
    size = len(param) + len(cells)
    if not receiver.reserve(size):
        return False
    now = runtime.now()
    send = partial(bool, True)
    receiver.receive(Delivery(param, cells, size=size, arrived=now, deadline=now + 3600.0, source="source", send=send))
    return True


SCENARIO = Scenario(
    name="changes",
    ids=("X1", "X1b", "X3", "X4"),
    shows="changes per second and core, memory of a consumer that stands still, and the rate of a spool",
    run=run,
    backend="fake",
)
