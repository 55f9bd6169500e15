"""X2: the delay from a put to its change, on a busy HBase, over that of the bare wire.

A real HBase ships the same edits to two peers. Each is a process of its own: one iterates over ``connection.changes``,
the other one answers each call as soon as its bytes are there. Rows are put all the time; a row's value is the instant
before its put. A delay counts from there to the moment at which the change is returned by the iterator, or at which the
last byte of its call has arrived. The figure is the quotient of the two medians over all puts after a warm-up.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from statistics import median

import metaclient
from metaclient import Connection
from metaclient.changes import Subscriptions
from metaclient.changes.decoding import decode_rows
from metaclient.changes.subscription import Subscription
from metaclient.errors import RequestRefused
from metaclient.wire.rpc.receiving import Delivery
from metaclient.wire.rpc.replication import decode_keys
from metaclient_bench.figure import Figure, Outcome
from metaclient_bench.places import LOCAL_HBASE
from metaclient_bench.scenario import Scenario
from metaclient_local_hbase import LocalHBase, missing_tools

TABLE = b"benchmark_change_delay"
WARM_UP_S = 10.0
#: The pause between two puts: about 300 per second.
PAUSE_S = 0.002
WAIT_S = 120.0
END = b"end"
NAMES = {"wire": "delay-wire", "changes": "delay-changes"}


def run(quick: bool, backend: str = LOCAL_HBASE) -> Outcome:
    seconds = 30.0 if quick else 180.0
    version = backend.partition(":")[2] or "2.6.1"
    with LocalHBase(version, meta_replicas=1, region_servers=1) as hbase, metaclient.connect(hbase.native_url) as here:
        here.create_table(TABLE, {"cf": {"replication_scope": 1}})
        for name in NAMES.values():
            Subscriptions(here).create(name, [TABLE])
        consumers = {kind: _start(kind, hbase.native_url) for kind in NAMES}
        try:
            _write(here, seconds)
            delays = {kind: json.loads(one.communicate(timeout=WAIT_S)[0]) for kind, one in consumers.items()}
        finally:
            for one in consumers.values():
                one.kill()
    wire, ours = median(delays["wire"]), median(delays["changes"])
    figure = Figure.of(
        "X2",
        "median delay from a put to its change over that of the bare wire",
        ours / wire,
        "<= 1.1",
        changes_ms=ours * 1e3,
        wire_ms=wire * 1e3,
        puts=float(len(delays["changes"])),
    )
    return Outcome((figure,), samples={"wire_s": wire, "changes_s": ours})


def _start(kind: str, url: str) -> subprocess.Popen[bytes]:
    """Start a consumer, which prints the delays in seconds when it gets the last row."""
    script = f"from {__name__} import consume; consume({kind!r}, {url!r})"
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)


def _write(here: Connection, seconds: float) -> None:
    table = here.table(TABLE)
    until = time.monotonic() + WARM_UP_S + seconds
    counted_from = time.monotonic() + WARM_UP_S
    number = 0
    while time.monotonic() < until:
        is_counted = time.monotonic() >= counted_from
        table.put(b"%09d" % number, {b"cf:at": b"%.6f" % time.time() if is_counted else b""})
        number += 1
        time.sleep(PAUSE_S)
    table.put(END, {b"cf:at": b""})


def consume(kind: str, url: str) -> None:
    """Collect the delays of all rows with an instant, until the last row; print them."""
    with metaclient.connect(url) as connection:
        arrivals = _iterated(connection) if kind == "changes" else _received(connection)
        delays: list[float] = []
        for row, value, at in arrivals:
            if row == END:
                break
            if value:
                delays.append(at - float(value))
    print(json.dumps(delays))


def _iterated(connection: Connection) -> Iterator[tuple[bytes, bytes, float]]:
    with connection.changes(TABLE, name=NAMES["changes"]) as changes:
        for change in changes:
            at = time.time()
            yield change.row, change.cells[0].value, at


class _Wire:
    """A receiver that answers each call at once."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, Delivery]] = []

    def reserve(self, size: int) -> bool:
        return True

    def release(self, size: int) -> None: ...

    def receive(self, delivery: Delivery) -> None:
        at = time.time()
        delivery.answer()
        self.calls.append((at, delivery))


def _received(connection: Connection) -> Iterator[tuple[bytes, bytes, float]]:
    wire = _Wire()
    info = Subscriptions(connection).get(NAMES["wire"])
    worker = Subscription(connection, info).join(wire, host=None, port=0, bind=None)
    try:
        done = 0
        idle_since = time.monotonic()
        while True:
            if done == len(wire.calls):
                if time.monotonic() - idle_since > WAIT_S:
                    raise RequestRefused("the region server sends nothing to the bare wire")
                time.sleep(0.05)
                continue
            idle_since = time.monotonic()
            at, delivery = wire.calls[done]
            done += 1
            begin = 0
            for key, count in decode_keys(delivery.param):
                rows, begin = decode_rows(delivery.cells, begin, len(delivery.cells), count)
                if key.write_time_ms >= info.created_ms and key.table == TABLE:
                    for row, cells in rows:
                        yield row, cells[0].value, at
    finally:
        worker.close()


SCENARIO = Scenario(
    name="change-delay",
    ids=("X2",),
    shows="the delay from a put to its change on a real HBase, over that of the bare wire",
    run=run,
    backend=LOCAL_HBASE,
    run_on=run,
    missing=missing_tools,
)
