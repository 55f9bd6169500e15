"""A table against a plain dictionary, over random operations, flushes, compactions, splits, merges, moves and crashes.

The model holds what HBase's semantics make of the writes, and shares no code with the fake:

- a put is a version; of two at one timestamp the later one counts; the newest ``max_versions`` of a column are seen;
- a delete takes all versions up to its timestamp of a column, a family or a row. Its marker goes on hiding: what is
  written later with a timestamp up to the marker's own is never seen, until a compaction of all files has dropped it.

When exactly a marker goes is up to the server. The model knows only that it is there before anything was flushed
(``FRESH``) and gone after a major compaction; in between (``SETTLED``) it writes nothing under it.

Everything runs on virtual time, and time moves on between two steps, so that the server's timestamps are ordered. For
long runs: ``MODEL_EXAMPLES=2000 MODEL_STEPS=100 pytest tests/contract/test_table_model.py``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from struct import Struct

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from metaclient import Connection, MetaClientError, Table
from metaclient.errors import BatchError, NoSuchFamily
from metaclient.model import CompareOp, RegionInfo
from metaclient.runtime import SimRuntime
from metaclient_fake import FakeCluster

#: CI: about 20 s on two slow cores.
EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "40"))
STEPS = int(os.environ.get("MODEL_STEPS", "40"))

FAMILIES = {b"cf": 1000, b"few": 2}  # name -> max_versions
COLUMNS = (b"cf:", b"cf:a", b"cf:b", b"few:a", b"few:n")
COUNTER = b"few:counter"
APPENDED = b"cf:appended"
ROW_KEYS = (b"\x00", b"a", b"c,1", b"g", b"g\x00", b"h", b"m", b"p", b"q", b"z", b"\xff")
BORDERS = (b"b", b"d", b"g", b"g\x00", b"k", b"m", b"p", b"t", b"\xf0")
SERVERS = 4
#: Between two steps: more than a message takes, and more than a millisecond.
STEP_S = 0.005
REGIONS_MAX = 8
#: After a crash: the session's 6 s, and what assignment takes; generously.
RECOVERY_S = 60.0

_int64 = Struct(">q")

rows = st.sampled_from(ROW_KEYS)
columns = st.sampled_from(COLUMNS)
#: None = the server's time.
stamps = st.none() | st.integers(1, 30)
some_columns = st.lists(columns, min_size=1, max_size=3, unique=True)
deleted_columns = st.none() | st.lists(
    st.sampled_from((*COLUMNS, b"cf", b"few", COUNTER, APPENDED)), min_size=1, max_size=2, unique=True
)
bounds = st.none() | st.integers(1, 31)
indexes = st.integers(0, 99)


def family_of(column: bytes) -> bytes:
    return column.partition(b":")[0]


@dataclass
class Marker:
    """A delete that the server may still remember: of a column, or of a whole family (no colon)."""

    row: bytes
    target: bytes
    timestamp: int
    is_fresh: bool = True

    def covers(self, row: bytes, column: bytes, timestamp: int) -> bool:
        is_target = self.target == column or self.target == family_of(column)
        return self.row == row and is_target and timestamp <= self.timestamp


@dataclass
class Model:
    """Row -> column -> timestamp -> value, and the markers that may still hide."""

    cells: dict[bytes, dict[bytes, dict[int, bytes]]] = field(default_factory=dict)
    markers: list[Marker] = field(default_factory=list)

    def put(self, row: bytes, column: bytes, timestamp: int, value: bytes) -> None:
        assert not self.is_unsure(row, column, timestamp), "a write whose fate the model does not know"
        if not any(marker.covers(row, column, timestamp) for marker in self.markers):
            self.cells.setdefault(row, {}).setdefault(column, {})[timestamp] = value

    def is_unsure(self, row: bytes, column: bytes, timestamp: int) -> bool:
        covering = [marker for marker in self.markers if marker.covers(row, column, timestamp)]
        return bool(covering) and not any(marker.is_fresh for marker in covering)

    def delete(self, row: bytes, targets: Iterable[bytes] | None, timestamp: int) -> None:
        for target in FAMILIES if targets is None else targets:
            marker = Marker(row, target, timestamp)
            self.markers.append(marker)
            for column, versions in self.cells.get(row, {}).items():
                for stamp in [stamp for stamp in versions if marker.covers(row, column, stamp)]:
                    del versions[stamp]

    def settle(self) -> None:
        """Something may have been flushed, and compacted after that."""
        for marker in self.markers:
            marker.is_fresh = False

    def compact(self) -> None:
        self.markers.clear()

    def versions(self, row: bytes, column: bytes, bound: int | None = None) -> list[tuple[bytes, int]]:
        """(value, timestamp) of what is seen, newest first."""
        found = sorted(self.cells.get(row, {}).get(column, {}).items(), reverse=True)
        kept = [(value, stamp) for stamp, value in found if bound is None or stamp < bound]
        return kept[: FAMILIES[family_of(column)]]

    def value(self, row: bytes, column: bytes) -> bytes | None:
        found = self.versions(row, column)
        return found[0][0] if found else None

    def row(
        self, row: bytes, wanted: Sequence[bytes] | None = None, bound: int | None = None
    ) -> dict[bytes, tuple[bytes, int]]:
        shown = {}
        for column in sorted(self.cells.get(row, {})):
            if wanted is None or column in wanted or family_of(column) in wanted:
                found = self.versions(row, column, bound)
                if found:
                    shown[column] = found[0]
        return shown

    def table(
        self, wanted: Sequence[bytes] | None = None, bound: int | None = None
    ) -> list[tuple[bytes, dict[bytes, tuple[bytes, int]]]]:
        shown = [(row, self.row(row, wanted, bound)) for row in sorted(self.cells)]
        return [(row, found) for row, found in shown if found]


class TableMachine(RuleBasedStateMachine):
    """The rules are what users do to a table and what happens to a cluster; each read is compared with the model."""

    runtime: SimRuntime
    cluster: FakeCluster
    connection: Connection
    table: Table

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.written = 0
        self.dead: list[str] = []
        self.crashed_at_s = -RECOVERY_S

    @initialize(seed=st.integers(0, 2**16), replicas=st.sampled_from([1, 2]), preempt=st.sampled_from([0.0, 0.1]))
    def start(self, seed: int, replicas: int, preempt: float) -> None:
        self.runtime = SimRuntime(seed=seed, preempt=preempt)
        self.cluster = FakeCluster(servers=SERVERS, meta_replicas=2, runtime=self.runtime)
        self.connection = self.cluster.connect()
        families = {name.decode(): {"max_versions": versions} for name, versions in FAMILIES.items()}
        self.connection.create_table("t", families, splits=[b"g", b"p"], region_replication=replicas)
        self.table = self.connection.table("t")
        self.replicas = replicas

    def teardown(self) -> None:
        if not hasattr(self, "connection"):
            return
        try:
            self.all_versions()
        finally:
            self.connection.close()
            self.cluster.close()
            self.runtime.close()

    # -- writing: each rule asks the server first, then tells the model ---------------------------------------------

    def fresh_value(self) -> bytes:
        self.written += 1
        return b"v%d" % self.written

    def usable(self, stamp: int | None, row: bytes, targets: Iterable[bytes]) -> int | None:
        """The timestamp wanted, or the server's where the model could not tell what becomes of it."""
        is_unsure = stamp is not None and any(self.model.is_unsure(row, column, stamp) for column in targets)
        return None if is_unsure else stamp

    def begin(self) -> int:
        self.runtime.run_for(STEP_S)
        return self.runtime.time_ms()

    def learn_put(self, row: bytes, data: dict[bytes, bytes], stamp: int | None, begun_ms: int) -> None:
        """Tell the model of a put; the server's timestamp is read back, and must be that of now."""
        if stamp is not None:
            for column, value in data.items():
                self.model.put(row, column, stamp, value)
            return
        ended_ms = self.runtime.time_ms()
        seen = self.table.row(row, columns=list(data), include_timestamp=True)
        for column, value in data.items():
            assert column in seen, f"{column!r} of {row!r} was written and is not there"
            assert seen[column][0] == value
            assert begun_ms <= seen[column][1] <= ended_ms
            self.model.put(row, column, seen[column][1], value)

    @rule(row=rows, names=some_columns, stamp=stamps)
    def put(self, row: bytes, names: list[bytes], stamp: int | None) -> None:
        begun_ms = self.begin()
        stamp = self.usable(stamp, row, names)
        data = {name: self.fresh_value() for name in names}
        self.table.put(row, data, timestamp=stamp)
        self.learn_put(row, data, stamp, begun_ms)

    @rule(row=rows, gone=deleted_columns, stamp=stamps)
    def delete(self, row: bytes, gone: list[bytes] | None, stamp: int | None) -> None:
        self.begin()
        self.table.delete(row, columns=gone, timestamp=stamp)
        self.model.delete(row, gone, stamp if stamp is not None else self.runtime.time_ms())

    @rule(row=rows, amount=st.integers(-(2**62), 2**62) | st.integers(-3, 3), times=st.integers(1, 3))
    def increment(self, row: bytes, amount: int, times: int) -> None:
        for _ in range(times):
            begun_ms = self.begin()
            old = self.model.value(row, COUNTER)
            total = (_int64.unpack(old)[0] if old is not None else 0) + amount
            total = (total + 2**63) % 2**64 - 2**63
            assert self.table.counter_inc(row, COUNTER, amount) == total
            self.learn_put(row, {COUNTER: _int64.pack(total)}, None, begun_ms)

    @rule(row=rows, text=st.sampled_from([b"", b"x", b"yz"]))
    def append(self, row: bytes, text: bytes) -> None:
        begun_ms = self.begin()
        whole = (self.model.value(row, APPENDED) or b"") + text
        assert self.table.append(row, {APPENDED: text}) == {APPENDED: whole}
        self.learn_put(row, {APPENDED: whole}, None, begun_ms)

    def holds(self, row: bytes, column: bytes, given: bytes | None, op: CompareOp) -> bool:
        stored = self.model.value(row, column)
        if not given:
            return (not stored) == (op is not CompareOp.NOT_EQUAL)
        if stored is None:
            return False
        return {
            CompareOp.LESS: stored < given,
            CompareOp.LESS_OR_EQUAL: stored <= given,
            CompareOp.EQUAL: stored == given,
            CompareOp.NOT_EQUAL: stored != given,
            CompareOp.GREATER_OR_EQUAL: stored >= given,
            CompareOp.GREATER: stored > given,
        }[op]

    def given_value(self, row: bytes, column: bytes, index: int) -> bytes | None:
        """What a check compares with: what is there, half of the time, else something else or nothing."""
        return (self.model.value(row, column), b"v2", None, self.model.value(row, column))[index % 4]

    @rule(row=rows, column=columns, index=indexes, op=st.sampled_from(CompareOp), names=some_columns, stamp=stamps)
    def check_and_put(
        self, row: bytes, column: bytes, index: int, op: CompareOp, names: list[bytes], stamp: int | None
    ) -> None:
        begun_ms = self.begin()
        given = self.given_value(row, column, index)
        expected = self.holds(row, column, given, op)
        stamp = self.usable(stamp, row, names)
        data = {name: self.fresh_value() for name in names}
        assert self.table.check_and_put(row, column, given, data, timestamp=stamp, op=op) is expected
        if expected:
            self.learn_put(row, data, stamp, begun_ms)

    @rule(row=rows, column=columns, index=indexes, op=st.sampled_from(CompareOp), gone=deleted_columns, stamp=stamps)
    def check_and_delete(
        self, row: bytes, column: bytes, index: int, op: CompareOp, gone: list[bytes] | None, stamp: int | None
    ) -> None:
        self.begin()
        given = self.given_value(row, column, index)
        expected = self.holds(row, column, given, op)
        assert self.table.check_and_delete(row, column, given, gone, timestamp=stamp, op=op) is expected
        if expected:
            self.model.delete(row, gone, stamp if stamp is not None else self.runtime.time_ms())

    @rule(row=rows, names=some_columns, gone=st.lists(columns, min_size=1, max_size=2, unique=True), stamp=stamps)
    def mutate_row(self, row: bytes, names: list[bytes], gone: list[bytes], stamp: int | None) -> None:
        """Deletes and puts under one timestamp: a column that is in both is gone."""
        begun_ms = self.begin()
        stamp = self.usable(stamp, row, names)
        data = {name: self.fresh_value() for name in names}
        self.table.mutate_row(row, put=data, delete=gone, timestamp=stamp)
        self.model.delete(row, gone, stamp if stamp is not None else self.runtime.time_ms())
        kept = {name: value for name, value in data.items() if name not in gone}
        self.learn_put(row, kept if stamp is None else data, stamp, begun_ms)

    @rule(
        puts=st.dictionaries(rows, some_columns, min_size=1, max_size=6),
        deletes=st.dictionaries(rows, deleted_columns, max_size=3),
        stamp=stamps,
        bad=st.none() | rows,
    )
    def batch(
        self,
        puts: dict[bytes, list[bytes]],
        deletes: dict[bytes, list[bytes] | None],
        stamp: int | None,
        bad: bytes | None,
    ) -> None:
        """Puts and deletes of different rows; a row with an unknown family fails, and only that one."""
        begun_ms = self.begin()
        deletes = {row: targets for row, targets in deletes.items() if row not in puts}
        for row, names in puts.items():
            stamp = self.usable(stamp, row, names)
        data = {row: {name: self.fresh_value() for name in names} for row, names in puts.items()}
        batch = self.table.batch(timestamp=stamp)
        for row, values in data.items():
            batch.put(row, {**values, b"nope:x": b"1"} if row == bad else values)
        for row, targets in deletes.items():
            batch.delete(row, targets)
        if bad in data:
            with pytest.raises(BatchError) as caught:
                batch.send()
            assert {row: type(error) for row, error in caught.value.failed.items()} == {bad: NoSuchFamily}
        else:
            batch.send()
        ended_ms = self.runtime.time_ms()
        for row, targets in deletes.items():
            self.model.delete(row, targets, stamp if stamp is not None else ended_ms)
        for row, values in data.items():
            if row != bad:
                self.learn_put(row, values, stamp, begun_ms)

    # -- reading ------------------------------------------------------------------------------------------------

    @rule(row=rows, wanted=st.none() | st.lists(st.sampled_from((*COLUMNS, b"cf", b"few")), min_size=1, max_size=3))
    def read_row(self, row: bytes, wanted: list[bytes] | None) -> None:
        expected = self.model.row(row, wanted)
        assert dict(self.table.row(row, columns=wanted, include_timestamp=True)) == expected
        assert self.table.exists(row, columns=wanted) == bool(expected)

    @rule(row=rows, bound=bounds)
    def read_row_as_of(self, row: bytes, bound: int | None) -> None:
        """Only of the family that keeps all versions: how many the other one still has in the past is chance."""
        expected = self.model.row(row, [b"cf"], bound)
        assert dict(self.table.row(row, columns=[b"cf"], timestamp=bound, include_timestamp=True)) == expected

    @rule(row=rows, column=columns, versions=st.none() | st.integers(1, 4), bound=bounds)
    def read_versions(self, row: bytes, column: bytes, versions: int | None, bound: int | None) -> None:
        bound = bound if family_of(column) == b"cf" else None
        expected = self.model.versions(row, column, bound)[:versions]
        found = self.table.cells(row, column, versions=versions, timestamp=bound, include_timestamp=True)
        assert found == expected

    @rule(wanted=st.lists(rows, min_size=1, max_size=8))
    def read_rows(self, wanted: list[bytes]) -> None:
        found = self.table.rows(wanted, include_timestamp=True)
        expected = [(row, self.model.row(row)) for row in wanted]
        assert [(row, dict(data)) for row, data in found] == [(row, data) for row, data in expected if data]

    @rule(
        start=st.none() | rows,
        stop=st.none() | rows,
        reverse=st.booleans(),
        limit=st.none() | st.integers(1, 5),
        batch_size=st.sampled_from([1, 2, 1000]),
        wanted=st.none() | st.lists(st.sampled_from((*COLUMNS, b"few")), min_size=1, max_size=2),
    )
    def scan(
        self,
        start: bytes | None,
        stop: bytes | None,
        reverse: bool,
        limit: int | None,
        batch_size: int,
        wanted: list[bytes] | None,
    ) -> None:
        found = self.table.scan(
            row_start=start,
            row_stop=stop,
            reverse=reverse,
            limit=limit,
            batch_size=batch_size,
            columns=wanted,
            include_timestamp=True,
        )
        assert [(row, dict(data)) for row, data in found] == self.expected_scan(start, stop, reverse, wanted)[:limit]

    def expected_scan(
        self, start: bytes | None, stop: bytes | None, reverse: bool, wanted: list[bytes] | None
    ) -> list[tuple[bytes, dict[bytes, tuple[bytes, int]]]]:
        shown = self.model.table(wanted)
        if reverse:
            return [
                entry
                for entry in shown[::-1]
                if (start is None or entry[0] <= start) and (stop is None or entry[0] > stop)
            ]
        return [entry for entry in shown if (start is None or entry[0] >= start) and (stop is None or entry[0] < stop)]

    @rule(reverse=st.booleans(), pieces=st.none() | st.integers(1, 2), after=st.integers(0, 5), index=indexes)
    def scan_while_regions_change(self, reverse: bool, pieces: int | None, after: int, index: int) -> None:
        found: dict[bytes, dict[bytes, tuple[bytes, int]]] = {}
        scan = self.table.scan(reverse=reverse, batch_size=1, scan_batching=pieces, include_timestamp=True)
        for number, (row, data) in enumerate(scan):
            assert pieces is None or len(data) <= pieces
            assert not found.get(row, {}).keys() & data.keys(), "a cell came twice"
            found.setdefault(row, {}).update(data)
            if number == after:
                self.change_regions(index)
        assert list(found.items()) == self.expected_scan(None, None, reverse, None)

    @rule()
    def all_versions(self) -> None:
        for row in ROW_KEYS:
            for column in (*COLUMNS, COUNTER, APPENDED):
                expected = self.model.versions(row, column)
                assert self.table.cells(row, column, include_timestamp=True) == expected, (row, column)

    # -- what happens to the cluster ------------------------------------------------------------------------------

    def attempt(self, event: Callable[[], object]) -> None:
        """An event may be refused while regions are on their way; what users see must hold either way."""
        self.model.settle()
        try:
            event()
        except MetaClientError as error:
            if not self.is_shaken:
                raise
            note(f"refused: {error}")

    @property
    def is_shaken(self) -> bool:
        """A server is dead, or was not long ago: regions may still be on their way."""
        return bool(self.dead) or self.runtime.now() < self.crashed_at_s + RECOVERY_S

    def regions(self) -> list[RegionInfo]:
        """As the master knows them: a client may be told by a copy of hbase:meta that lags."""
        return [self.cluster.node_named(name).info for name in self.cluster.regions("t")]

    @rule()
    def flush(self) -> None:
        self.attempt(lambda: self.cluster.flush("t"))

    @rule()
    def compact(self) -> None:
        self.attempt(lambda: self.cluster.compact("t"))

    @rule()
    def flush_and_compact_all_files(self) -> None:
        """A read of each region makes sure that it is there, and not waiting for a crash to be noticed."""
        self.scan(None, None, False, None, 1000, None)
        for info in self.regions():
            self.table.row(info.start_key or b"\x00")
        self.attempt(lambda: self.cluster.flush("t"))
        self.attempt(lambda: self.cluster.compact("t", major=True))
        if not self.is_shaken:
            self.model.compact()

    @rule(row=rows, names=some_columns, gone=deleted_columns)
    def write_under_a_marker_that_is_gone(self, row: bytes, names: list[bytes], gone: list[bytes] | None) -> None:
        self.delete(row, gone, 30)
        self.flush_and_compact_all_files()
        self.put(row, names, 29)
        self.read_row(row, None)

    @rule(row=rows, names=some_columns, gone=deleted_columns)
    def write_under_a_marker_that_is_there(self, row: bytes, names: list[bytes], gone: list[bytes] | None) -> None:
        self.delete(row, gone, 30)
        self.put(row, names, 30)
        self.flush()
        self.read_row(row, None)

    @rule(index=indexes)
    def change_regions(self, index: int) -> None:
        """Flush, compact, move, split or merge."""
        regions = self.cluster.regions("t")
        region = regions[index % len(regions)]
        kind = index % 5
        if kind == 0:
            self.flush()
        elif kind == 1:
            self.compact()
        elif kind == 2:
            self.attempt(lambda: self.cluster.move(region))
        elif kind == 3:
            self.split(BORDERS[index % len(BORDERS)])
        else:
            self.merge(index)

    @rule(border=st.sampled_from(BORDERS))
    def split(self, border: bytes) -> None:
        for info in self.regions():
            if info.contains(border) and info.start_key != border and len(self.regions()) < REGIONS_MAX:
                self.attempt(lambda: self.cluster.split(info.encoded_name, border))  # noqa: B023  # called at once
                return

    @rule(index=indexes)
    def merge(self, index: int) -> None:
        regions = self.cluster.regions("t")
        if len(regions) > 1:
            first = index % (len(regions) - 1)
            self.attempt(lambda: self.cluster.merge(regions[first], regions[first + 1]))

    @rule(index=indexes, place=st.none() | st.integers(0, SERVERS - 1))
    def move(self, index: int, place: int | None) -> None:
        regions = self.cluster.regions("t")
        server = None if place is None else self.cluster.servers()[place]
        if server not in self.dead:
            self.attempt(lambda: self.cluster.move(regions[index % len(regions)], server))

    @rule()
    def balance(self) -> None:
        self.attempt(self.cluster.balance)

    @precondition(lambda self: len(self.dead) < SERVERS - 2)
    @rule(index=indexes)
    def kill(self, index: int) -> None:
        """kill -9: what was acknowledged must come back from its log."""
        live = [server for server in self.cluster.servers() if server not in self.dead]
        self.crash(live[index % len(live)])
        self.dead.append(live[index % len(live)])

    def crash(self, server: str) -> None:
        self.model.settle()
        self.crashed_at_s = self.runtime.now()
        self.cluster.kill(server)

    @precondition(lambda self: self.dead)
    @rule()
    def restart(self) -> None:
        self.cluster.restart(self.dead.pop(0))

    @rule(index=indexes)
    def kill_and_restart_at_once(self, index: int) -> None:
        """The new incarnation is there before anybody has noticed that the old one is gone."""
        live = [server for server in self.cluster.servers() if server not in self.dead]
        self.crash(live[index % len(live)])
        self.cluster.restart(live[index % len(live)])

    @rule(seconds=st.sampled_from([1.0, 10.0, 400.0]))
    def time_passes(self, seconds: float) -> None:
        """Sessions end, the archive is cleaned, split parents leave hbase:meta."""
        self.model.settle()
        self.runtime.run_for(seconds)

    # -- both at once ---------------------------------------------------------------------------------------------

    @rule(index=indexes, row=rows, times=st.integers(1, 8))
    def count_while_regions_change(self, index: int, row: bytes, times: int) -> None:
        begun_ms = self.begin()
        change = self.runtime.start(self.change_regions, index, name="change")
        old = self.model.value(row, COUNTER)
        total = _int64.unpack(old)[0] if old is not None else 0
        for number in range(1, times + 1):
            expected = (total + number + 2**63) % 2**64 - 2**63
            assert self.table.counter_inc(row, COUNTER) == expected
        change.result()
        self.model.settle()
        ended_ms = self.runtime.time_ms()
        # How many versions there are depends on how many fell into one millisecond: ask for those of now.
        found = self.table.cells(row, COUNTER, include_timestamp=True)
        assert found[0][0] == _int64.pack((total + times + 2**63) % 2**64 - 2**63)
        for value, stamp in found[::-1]:
            if begun_ms <= stamp <= ended_ms + times:
                self.model.put(row, COUNTER, stamp, value)

    @rule(index=indexes, names=some_columns)
    def write_all_rows_while_regions_change(self, index: int, names: list[bytes]) -> None:
        begun_ms = self.begin()
        data = {row: {name: self.fresh_value() for name in names} for row in ROW_KEYS}
        change = self.runtime.start(self.change_regions, index, name="change")
        with self.table.batch() as batch:
            for row, values in data.items():
                batch.put(row, values)
        change.result()
        self.model.settle()
        for row, values in data.items():
            self.learn_put(row, values, None, begun_ms)

    @precondition(lambda self: self.replicas > 1 and not self.is_shaken)
    @rule()
    def secondaries_catch_up(self) -> None:
        self.model.settle()
        self.cluster.wait_until_replicated(30.0)
        found = list(self.table.scan(include_timestamp=True, replica_id=1))
        assert [(row, dict(data)) for row, data in found] == self.model.table()
        assert all(getattr(data, "stale", False) for _, data in found)


TestTableMachine = TableMachine.TestCase
TestTableMachine.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
