"""X1 to X3: how many changes a consumer takes per second and core, and what it holds when it stands still.

X1 (real threads): calls of 100 single-cell puts of four regions, in the bytes of HBase's sources, wait in a feed. The
CPU time of decoding, delivery and commit is measured, for changes and for record batches, the median of three runs.
Beside stand the slowest run, and the rate at which the fake's sources encode the same calls (``source``).

X3 (real threads): a source sends calls without end to a consumer that takes none; the bytes that the feed holds are
compared with ``bytes_max``. Each call is smaller than the bound.

X2, the delay of a put on a busy cluster, needs a real HBase and is not measured here.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from functools import partial
from statistics import median

from metaclient.changes.batches import ChangeBatches
from metaclient.changes.changes import Changes
from metaclient.changes.feed import FeedOptions
from metaclient.changes.repeats import Repeats
from metaclient.changes.subscription import Subscription
from metaclient.model import Cell
from metaclient.runtime import Runtime, ThreadRuntime
from metaclient.wire.cell_arrays import libraries
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

    def join(self, receiver: Receiver, *, host: str | None, port: int, bind: str | None) -> _Worker:
        self.receiver = receiver
        return _Worker()


def run(quick: bool) -> Outcome:
    libraries()  # the import of pyarrow is not part of a rate
    calls = 600 if quick else 2000
    made, source = encoded_calls(calls)
    rows = [rate(Changes, made) for _ in range(3)]
    batches = [rate(ChangeBatches, made) for _ in range(3)]
    figures = (
        Figure.of("X1", "changes per second and core", median(rows), ">= 30000", worst=min(rows), source=source),
        Figure.of("X1b", "the same as record batches", median(batches), ">= 150000", worst=min(batches), source=source),
        Figure.of(
            "X3", "bytes held for a consumer that stands still, as a share of the bound", held_share(made), "<= 1"
        ),
    )
    return Outcome(figures, samples={"rows": rows, "batches": batches})


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
    ids=("X1", "X1b", "X3"),
    shows="changes per second and core through connection.changes, and the memory of a consumer that stands still",
    run=run,
    backend="fake",
)
