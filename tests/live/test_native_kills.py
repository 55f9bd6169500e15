"""Servers of a real cluster killed, hung and restarted at random under mixed load: no wrong answer, nothing leaked.

``METACLIENT_LIVE_KILLS_S`` says for how long (a minute unless told), ``METACLIENT_LIVE_KILLS_SEED`` which victims:

    METACLIENT_LIVE_KILLS_S=600 pytest -m live tests/live/test_native_kills.py
"""

from __future__ import annotations

import os
import random
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from metaclient import Connection, MetaClientError, Table
from metaclient.runtime import Runtime
from metaclient_local_hbase import LocalHBase
from tests.live.load import ROWS, Load, backend_of, connect_patiently, looking_up, unwatched, writing

SECONDS = float(os.environ.get("METACLIENT_LIVE_KILLS_S", "60"))
SEED = int(os.environ.get("METACLIENT_LIVE_KILLS_SEED", "0"))
#: Calls of each kind that must end after each fault, before the next one.
CALLS = 20
KINDS = {"kill": 6, "hang": 3, "stop": 2, "kill the master": 1}
HANG_S_MAX = 12.0
pytestmark = pytest.mark.usefixtures("healed")


@contextmanager
def counting(table: Table) -> Iterator[Load]:
    """Each caller has a counter in every region that nobody else touches: an increment is the one before and one.

    Where a server died with a call, and its region is elsewhere now, the client says that it does not know; then both
    are right, and the next increment tells which.
    """
    load = Load(table.connection._runtime)
    name, possible = load._runtime.time_ms(), defaultdict[bytes, set[int]](lambda: {0})

    def call(number: int) -> None:
        row = ROWS[number // 2 % len(ROWS)] + b"!%d-%d" % (name, number % 2)
        after = {count + 1 for count in possible[row]}
        try:
            found = table.counter_inc(row, b"cf:count")
        except MetaClientError as error:
            if not error.may_have_applied:
                raise
            possible[row] |= after
            load.unknown += 1
            return
        assert found in after, f"{row!r} is {found} after an increment, and could be {after}"
        possible[row] = {found}

    with load.running(call, threads=2):
        yield load


@contextmanager
def scanning(table: Table, writes: Load) -> Iterator[Load]:
    """Whole scans: rows ascend, and all that was acknowledged before the scan began is in it."""
    load = Load(table.connection._runtime)

    def call(number: int) -> None:
        expected = dict(writes.written)
        found = {key: row[b"cf:n"] for key, row in in_order(table) if key in expected}
        assert found == expected, f"{expected.keys() - found.keys()} are missing"

    with load.running(call, threads=1):
        yield load


def in_order(table: Table) -> Iterator[tuple[bytes, Any]]:
    last = b""
    for key, row in table.scan(columns=["cf:n"]):
        assert key > last, f"{key!r} came after {last!r}"
        yield key, row
        last = key


@contextmanager
def dating(table: Table) -> Iterator[Load]:
    """A register that only rises, read as TIMELINE: never from the future, and from the past only where it says so."""
    load = Load(table.connection._runtime)
    row = b"r5!register-%d" % load._runtime.time_ms()
    begun = acknowledged = 0

    def call(number: int) -> None:
        nonlocal begun, acknowledged
        if number % 2 == 0:
            begun += 1
            table.put(row, {b"cf:n": b"%d" % begun})
            acknowledged = begun
            return
        floor = acknowledged
        found = table.row(row, consistency="TIMELINE")
        value = int(found.get(b"cf:n", b"0"))
        assert value <= begun, f"{value} was read before it was written"
        assert found.stale or value >= floor, f"{value} was read from the primary after {floor} was acknowledged"

    with load.running(call, threads=2):
        yield load


class Killer:
    """One fault after another, drawn from the seed; each is over before the next begins."""

    def __init__(self, hbase: LocalHBase, runtime: Runtime, seed: int) -> None:
        self._hbase, self._runtime = hbase, runtime
        self._random = random.Random(seed)
        self.done = Counter[str]()

    def strike(self) -> None:
        kind = self._random.choices(list(KINDS), list(KINDS.values()))[0]
        server = "master" if kind == "kill the master" else self._random.choice(self._hbase.servers())
        if kind == "hang":
            self._hbase.pause(server)
            self._runtime.sleep(self._random.uniform(0.5, HANG_S_MAX))
            self._hbase.resume(server)
        else:
            (self._hbase.stop if kind == "stop" else self._hbase.kill)(server)
            self._runtime.sleep(self._random.uniform(0, 3))
            self._hbase.start(server)
            self._hbase.wait_until_ready()
        self.done[kind] += 1


def open_sockets() -> int:
    links = [each for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    return sum(str(each.readlink()).startswith("socket:") for each in links if each.is_symlink())


def test_random_kills_give_no_wrong_answer_and_leak_nothing(hbase: LocalHBase, table_name: bytes, capsys: Any) -> None:
    hbase.wait_until_ready()  # what the cluster's own keeper opens is not ours to count
    sockets, threads = open_sockets(), threading.active_count()
    with unwatched():
        with connect_patiently(hbase) as connection:
            killer = Killer(hbase, connection._runtime, SEED)
            loads, most = _under_load(connection, table_name, killer)
        with capsys.disabled():
            print(f"\nHBase {hbase.version}, seed {SEED}, {SECONDS:.0f} s: {dict(killer.done)}; {most} sockets at most")
            for name, load in loads.items():
                print(f"  {name}: {load}")
    assert {name: load.errors for name, load in loads.items() if load.errors} == {}
    assert killer.done.total() > 0
    # One connection a server and service: a region server has two, the master one, and each may be made anew.
    assert most <= 4 * (len(hbase.servers()) + 1)
    assert backend_of(connection).connections() == {}
    assert (open_sockets(), threading.active_count()) == (sockets, threads)


def _under_load(connection: Connection, table_name: bytes, killer: Killer) -> tuple[dict[str, Load], int]:
    """What each kind of load met, and how many sockets of ours were open at most."""
    table, runtime = connection.table(table_name), connection._runtime
    before, most = open_sockets(), 0
    with ExitStack() as stack:
        writes = stack.enter_context(writing(table))
        loads = {
            "puts and gets": writes,
            "increments": stack.enter_context(counting(table)),
            "scans": stack.enter_context(scanning(table, writes)),
            "TIMELINE": stack.enter_context(dating(table)),
            "lookups": stack.enter_context(looking_up(connection, table_name)),
        }
        until = runtime.now() + SECONDS
        while runtime.now() < until:
            killer.strike()
            most = max(most, open_sockets() - before)
            for name, load in loads.items():
                load.wait_for(1 if name == "scans" else CALLS)
    found = {key: row[b"cf:n"] for key, row in in_order(table) if key in writes.written}
    assert found == writes.written
    return loads, most
