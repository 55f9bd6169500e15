"""Put, get and scan compared with bare happybase, on the gateways of one cluster, one core for the client.

Three clients alternate in one process and one thread: happybase and this client by Thrift 1 on the same gateway, and
this client by Thrift 2 on another gateway. Rows have ten columns. A ratio compares the best of many short rounds,
because noise only adds time; each round has all three. The ratio of the medians is shown with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import happybase

import metaclient
from metaclient.errors import ConfigError
from metaclient_bench.figure import Bars, Figure, Outcome
from metaclient_bench.places import LOCAL_HBASE
from metaclient_bench.scenario import Scenario
from metaclient_bench.timing import interleaved
from metaclient_local_hbase import LocalHBase, missing_tools

TABLE = "benchmark_peers"
ROWS = 2_000
COLUMNS = 10
DATA = {b"cf:c%d" % number: b"value-%d" % number for number in range(COLUMNS)}
#: Calls of one round: few, so that rounds are close to each other in time.
CALLS = 50
SCANNED = 1_000
PEER, OURS1, OURS2 = "happybase", "ours, Thrift 1", "ours, Thrift 2"
GOALS = {OURS1: ">= 0.9", OURS2: ">= 1"}


def run(quick: bool, backend: str = LOCAL_HBASE) -> Outcome:
    rounds = 10 if quick else 60
    with _urls(backend) as (thrift1, thrift2), ExitStack() as stack:
        tables = _tables(thrift1, thrift2, stack)
        with _one_core():
            taken = {what: _timed(what, tables, rounds) for what in _WORKS}
    figures: list[Figure] = []
    for number, (what, seconds) in enumerate(taken.items()):
        for letter, (name, goal) in zip("ab", GOALS.items(), strict=True):
            figures.append(
                Figure.of(
                    f"P{number + 1}{letter}",
                    f"{what}s per second, {name}, beside happybase",
                    min(seconds[PEER]) / min(seconds[name]),
                    goal,
                    of_medians=median(seconds[PEER]) / median(seconds[name]),
                    ours_per_second=1 / min(seconds[name]),
                    happybase_per_second=1 / min(seconds[PEER]),
                )
            )
    rates = {what: {name: 1 / min(one) for name, one in seconds.items()} for what, seconds in taken.items()}
    shown = {f"{what}\n{name}": rate / rates[what][PEER] for what in rates for name, rate in rates[what].items()}
    chart = Bars("rows per second beside happybase's, same cluster", "ratio", shown, goal=1.0)
    return Outcome(tuple(figures), {"per_second": rates}, (chart,))


@contextmanager
def _urls(backend: str) -> Iterator[tuple[str, str]]:
    """Yield the urls of the two gateways: of a new cluster, or ``thrift1://...+thrift2://...`` of a running one."""
    kind, _, version = backend.partition(":")
    if kind == LOCAL_HBASE:
        with LocalHBase(version or "2.6.1") as hbase:
            yield hbase.thrift1_url, hbase.thrift2_url
        return
    urls = backend.split("+")
    if [urlsplit(url).scheme for url in urls] != ["thrift1", "thrift2"]:
        raise ConfigError(f"peers runs on {LOCAL_HBASE} or on thrift1://HOST:PORT+thrift2://HOST:PORT, got {backend!r}")
    yield urls[0], urls[1]


def _tables(thrift1: str, thrift2: str, stack: ExitStack) -> dict[str, Any]:
    """Return the filled table of each client."""
    address = urlsplit(thrift1)
    peer = happybase.Connection(address.hostname, address.port)
    stack.callback(peer.close)
    ours = {OURS1: metaclient.connect(thrift1), OURS2: metaclient.connect(thrift2)}
    for connection in ours.values():
        stack.enter_context(connection)
    if TABLE.encode() not in peer.tables():
        peer.create_table(TABLE, {"cf": {}})
    with peer.table(TABLE).batch(batch_size=500) as batch:
        for number in range(ROWS):
            batch.put(b"%06d" % number, DATA)
    return {PEER: peer.table(TABLE), **{name: connection.table(TABLE) for name, connection in ours.items()}}


def _timed(what: str, tables: Mapping[str, Any], rounds: int) -> dict[str, list[float]]:
    """Return the seconds per row, after a warm-up of as many rounds, because the gateways' JVMs compile at run time.

    Two clients work on Thrift 1's gateway and one on Thrift 2's: before it counts, that one works twice.
    """
    rows = [b"%06d" % number for number in range(SCANNED if what == "scan" else CALLS)]
    works = {name: partial(_WORKS[what], table) for name, table in tables.items()}
    interleaved({**works, f"{OURS2} once more": works[OURS2]}, rows, rounds)
    return interleaved(works, rows, rounds)


def _get(table: Any, rows: Sequence[bytes]) -> None:
    for row in rows:
        if len(table.row(row)) != COLUMNS:
            raise AssertionError(f"a row of {TABLE} was incomplete")


def _put(table: Any, rows: Sequence[bytes]) -> None:
    for row in rows:
        table.put(row, DATA)


def _scan(table: Any, rows: Sequence[bytes]) -> None:
    found = sum(1 for _ in table.scan(row_stop=b"%06d" % len(rows)))
    if found != len(rows):
        raise AssertionError(f"{found} of {len(rows)} rows were scanned")


_WORKS: Mapping[str, Callable[[Any, Sequence[bytes]], None]] = {"get": _get, "put": _put, "scan": _scan}


@contextmanager
def _one_core() -> Iterator[None]:
    """Pin this process to one core, if the system supports it; the servers have the others."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


SCENARIO = Scenario(
    "peers",
    ("P1a", "P1b", "P2a", "P2b", "P3a", "P3b"),
    "gets, puts and scans compared with bare happybase on the same cluster",
    run,
    backend=LOCAL_HBASE,
    run_on=run,
    missing=missing_tools,
)
