"""Sessions: no read goes back in time, own writes are seen, and replicas answer only what they are known to contain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from random import Random
from typing import Any
from zlib import crc32

import pytest

from metaclient.backend import Addressing, Capabilities, ScanPage
from metaclient.connection import Connection, connect_to
from metaclient.errors import CallTimeout, ConfigError, ConnectionClosed, RetriesExhausted, Unsupported
from metaclient.freshness import tokens
from metaclient.freshness.pins import NEVER, Copy, Pins, Seen, after_read, after_write, contains_all
from metaclient.freshness.session_state import RowReads, SessionState
from metaclient.model import Cell, Get, RegionInfo, RegionLocation, Result, ServerName
from metaclient.runtime import SimRuntime
from metaclient.session import Session, SessionTable
from metaclient.testing import ScriptedBackend

OLD = b"old"


@pytest.fixture
def runtime() -> Iterator[SimRuntime]:
    with SimRuntime(seed=1) as made:
        yield made


def cluster(runtime: SimRuntime, *, replicas: int = 3, **options: Any) -> ScriptedBackend:
    backend = ScriptedBackend(runtime, **options)
    backend.add_table("t", splits=[b"m"], region_replication=replicas)
    return backend


def connected(backend: ScriptedBackend, **options: Any) -> Connection:
    return connect_to(backend, runtime=backend.runtime, hedge_delay="fixed", hedge_budget_burst=1000, **options)


def in_session(backend: ScriptedBackend, **options: Any) -> SessionTable:
    connection = connected(backend)
    connection.warm_up("t")
    return connection.session(**options).table("t")


def old(lag_s: float | None) -> Callable[[Get], Result]:
    """Return the answers of a replica that lacks the last write and states this lag."""
    return lambda get: Result(get.row, [Cell(b"cf:a", 1, OLD)], True, lag_s=lag_s)


def asked(backend: ScriptedBackend, method: str = "get") -> list[int | None]:
    return [call.replica_id for call in backend.calls if call.method == method]


# -- own writes --------------------------------------------------------------------------------------------------------


WRITES: dict[str, Callable[[SessionTable], object]] = {
    "put": lambda table: table.put(b"a", {b"cf:a": b"new"}),
    "batch": lambda table: _batch(table),
    "mutate_row": lambda table: table.mutate_row(b"a", put={b"cf:a": b"new"}, delete=[b"cf:b"]),
    "check_and_put": lambda table: table.check_and_put(b"a", b"cf:z", None, {b"cf:a": b"new"}),
    "append": lambda table: table.append(b"a", {b"cf:a": b"new"}),
}


def _batch(table: SessionTable) -> None:
    with table.batch() as batch:
        batch.put(b"a", {b"cf:a": b"new"})
        batch.put(b"b", {b"cf:a": b"new"})


@pytest.mark.parametrize("write", WRITES)
def test_replica_that_lacks_the_own_write_does_not_answer(runtime: SimRuntime, write: str) -> None:
    backend = cluster(runtime)
    table = in_session(backend)
    WRITES[write](table)
    backend.on("get", replica=0).delays(0.5)
    for lag_s in (None, 10.0):
        backend.on("get", replica=1).answers(old(lag_s))
        backend.on("get", replica=2).answers(old(lag_s))
        row = table.row(b"a")
        assert (row, row.replica_id) == ({b"cf:a": b"new"}, 0)
    assert table.session.stats()["replica"] == 0
    plain = table.session.connection.table("t").row(b"a", consistency="TIMELINE")
    assert plain == {b"cf:a": OLD}, "without a session the replica answers"


def test_counter_and_delete_are_own_writes(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    table = in_session(backend)
    table.counter_inc(b"a", b"cf:n")
    table.delete(b"z")
    backend.on("get", replica=0).delays(0.5)
    for replica in (1, 2):
        backend.on("get", replica=replica).answers(old(10.0))
    assert table.row(b"a")[b"cf:n"][-1] == 1
    assert table.row(b"z") == {}
    assert not table.exists(b"z")
    assert table.cells(b"z", b"cf:a") == []


def test_write_that_may_have_been_applied_pins_its_region(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    table = in_session(backend)
    backend.on("mutate").raises(lambda: CallTimeout("lost", may_have_applied=True))
    with pytest.raises(RetriesExhausted) as caught:
        table.put(b"a", {b"cf:a": b"new"})
    assert caught.value.may_have_applied
    backend.on("get", replica=0).delays(0.5)
    for replica in (1, 2):
        backend.on("get", replica=replica).answers(old(10_000.0))
    assert table.row(b"a").replica_id == 0


def test_write_outside_of_the_log_is_read_at_the_primary_for_good(runtime: SimRuntime) -> None:
    """HBase replicates the log: a put with wal=False reaches no replica before a flush, whatever the lag is."""
    backend = cluster(runtime)
    table = in_session(backend)
    table.put(b"a", {b"cf:a": b"new"}, wal=False)
    with table.batch(wal=False) as batch:
        batch.put(b"x", {b"cf:a": b"new"})
    runtime.sleep(3600.0)
    backend.on("get", replica=0).delays(0.5)
    for replica in (1, 2):
        backend.on("get", replica=replica).answers(old(0.0))
    assert table.row(b"a") == {b"cf:a": b"new"}
    assert table.row(b"x") == {b"cf:a": b"new"}


# -- moving back -------------------------------------------------------------------------------------------------------


def test_pin_moves_back_to_a_replica_that_has_caught_up(runtime: SimRuntime) -> None:
    backend = cluster(runtime, replicas=2)
    table = in_session(backend)
    table.put(b"a", {b"cf:a": b"new"})
    runtime.sleep(1.0)
    backend.on("get", replica=0).delays(5.0)
    backend.on("get", replica=1).answers(lambda get: Result(get.row, [Cell(b"cf:a", 1, b"new")], True, lag_s=0.5))
    row = table.row(b"a")
    assert (row, row.replica_id, row.why) == ({b"cf:a": b"new"}, 1, "hedge")
    stats = table.session.stats()
    assert (stats["moved_back"], stats["refused"]) == (1, 0)


def test_replica_whose_last_lag_was_too_large_is_not_called_again_before_it_can_have_caught_up(
    runtime: SimRuntime,
) -> None:
    backend = cluster(runtime, replicas=2)
    table = in_session(backend)
    table.put(b"a", {b"cf:a": b"new"})
    backend.on("get", replica=0).delays(0.5)
    backend.on("get", replica=1).answers(old(10.0))
    backend.calls.clear()
    rows = [table.row(b"a") for _ in range(4)]
    assert asked(backend) == [0, 1, 0, 0, 0]
    assert rows[-1].why == "pinned"
    stats = table.session.stats()
    assert (stats["refused"], stats["undecided"]) == (1, 3)
    runtime.sleep(15.0)  # the floor is that of the last read
    table.row(b"a")
    assert asked(backend)[5:] == [0, 1]


def test_stated_bound_replaces_a_lag_that_the_backend_does_not_report(runtime: SimRuntime) -> None:
    backend = cluster(runtime, replicas=2)
    table = in_session(backend, replica_lag_max_s=5.0)
    table.put(b"a", {b"cf:a": b"new"})
    backend.on("get", replica=0).delays(0.5)
    backend.calls.clear()
    assert table.row(b"a").replica_id == 0
    assert asked(backend) == [0]
    runtime.sleep(5.1)
    assert table.row(b"a").replica_id == 1


def test_lag_that_is_learned_during_the_read_does_not_prove_its_answer(runtime: SimRuntime) -> None:
    """The answer may have been read before the edits that the later lesson is about."""
    known: dict[str, float] = {}
    state = SessionState(runtime, Pins(), known_as_of=lambda place: known.get("as_of"))
    place = RegionLocation(RegionInfo(b"t").replica(1), ServerName("rs1", 16020))
    state.wrote(b"t", b"", b"", is_replicated=True)
    reads = RowReads(state)
    assert reads.may_call(place, b"a")
    known["as_of"] = runtime.now() + 1.0
    assert reads.refusal(place, b"a", None, since=runtime.now()) is not None
    again = RowReads(state)
    assert again.may_call(place, b"a")
    assert again.refusal(place, b"a", None, since=runtime.now()) is None


def test_pinned_read_confirms_the_hint_of_a_moved_region(runtime: SimRuntime) -> None:
    backend = cluster(runtime, replicas=2)
    table = in_session(backend)
    table.put(b"a", {b"cf:a": b"new"})
    backend.on("get", replica=0).delays(0.5)
    backend.on("get", replica=1).answers(old(100.0))
    table.row(b"a")
    backend.clear_rules()
    connection = table.session.connection
    place = connection.locate("t", b"a")
    target = next(server for server in backend.servers if server != place.server)
    backend.move(b"t", b"a", target)
    assert table.row(b"a").why == "pinned"
    moved = connection.locate("t", b"a")
    assert (moved.server, moved.is_hint, moved.why) == (target, False, "")


# -- monotonic reads ---------------------------------------------------------------------------------------------------


def test_read_at_the_primary_is_followed_by_no_older_answer(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    plain = connected(backend).table("t")
    plain.put(b"a", {b"cf:a": b"new"})
    table = in_session(backend)
    assert table.row(b"a") == {b"cf:a": b"new"}
    backend.on("get", replica=0).delays(0.5)
    for replica in (1, 2):
        backend.on("get", replica=replica).answers(old(None))
    assert table.row(b"a") == {b"cf:a": b"new"}
    assert table.rows([b"a", b"b"]) == [(b"a", {b"cf:a": b"new"})]


def test_session_stays_with_the_replica_that_answered_first(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    table = in_session(backend)
    backend.on("get", replica=0).delays(0.5)
    for replica in (1, 2):
        backend.on("get", replica=replica).answers(old(None))
    first = table.row(b"a").replica_id
    assert first != 0
    backend.calls.clear()
    assert {table.row(b"a").replica_id for _ in range(6)} == {first}
    assert set(asked(backend)) == {0, first}


def test_replica_that_moved_or_restarted_is_another_copy(runtime: SimRuntime) -> None:
    backend = cluster(runtime, replicas=2)
    table = in_session(backend)
    backend.on("get", replica=0).delays(0.5)
    backend.on("get", replica=1).answers(old(None))
    assert table.row(b"a").replica_id == 1
    place = backend.region_of(b"t", b"a").at(1)
    assert place is not None
    restarted = ServerName(place.server.host, place.server.port, place.server.start_code + 1)
    backend.move(b"t", b"a", restarted, replica_id=1)
    table.session.connection.warm_up("t")
    assert table.row(b"a").replica_id == 0


def test_two_replicas_that_answered_at_once_leave_only_the_primary() -> None:
    one, two = (Copy(b"", b"", 1, number, ServerName(f"rs{number}", 16020)) for number in (1, 2))
    seen = after_read(after_read(None, one, now=1.0), two, now=1.0)
    assert not contains_all(seen, one)
    assert not contains_all(seen, two)


# -- splits and merges -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", [b"a", b"h"])
def test_daughters_of_a_split_are_pinned_as_their_parent(runtime: SimRuntime, row: bytes) -> None:
    backend = cluster(runtime, replicas=2)
    table = in_session(backend)
    table.put(row, {b"cf:a": b"new"})
    backend.split(b"t", b"g")
    table.session.connection.warm_up("t")
    backend.on("get", replica=0).delays(0.5)
    backend.on("get", replica=1).answers(old(10.0))
    assert table.row(row) == {b"cf:a": b"new"}


def test_merged_region_is_pinned_if_one_of_its_parents_was(runtime: SimRuntime) -> None:
    backend = cluster(runtime, replicas=2)
    table = in_session(backend)
    table.put(b"x", {b"cf:a": b"new"})
    backend.merge(b"t", b"a", b"x")
    table.session.connection.warm_up("t")
    backend.on("get", replica=0).delays(0.5)
    backend.on("get", replica=1).answers(old(10.0))
    assert table.row(b"a").replica_id == 1, "no row of the lower region was seen"
    assert table.row(b"x") == {b"cf:a": b"new"}


# -- scans -------------------------------------------------------------------------------------------------------------


def _old_page(lag_s: float | None) -> Callable[[object], ScanPage]:
    rows = [Result(b"a", [Cell(b"cf:a", 1, OLD)], True, lag_s=lag_s)]
    return lambda scan: ScanPage(rows, None, True, True)


def test_scan_shows_own_writes_and_later_gets_are_not_older_than_the_scan(runtime: SimRuntime) -> None:
    backend = cluster(runtime, replicas=2)
    connected(backend).table("t").put(b"x", {b"cf:a": b"new"})
    table = in_session(backend)
    table.put(b"a", {b"cf:a": b"new"})
    backend.on("scan_open", replica=0).delays(3.0)
    backend.on("scan_open", replica=1).answers(_old_page(100.0))
    assert [(row, found) for row, found in table.scan(row_stop=b"m")] == [(b"a", {b"cf:a": b"new"})]
    assert [row for row, _ in table.scan(row_start=b"m", consistency="STRONG")] == [b"x"]
    backend.on("get", replica=0).delays(0.5)
    backend.on("get", replica=1).answers(old(100.0))
    assert table.row(b"x") == {b"cf:a": b"new"}


def test_refused_page_leaves_no_scanner_open(runtime: SimRuntime) -> None:
    backend = cluster(runtime, replicas=2)
    table = in_session(backend)
    for row in (b"a", b"b", b"c"):
        table.put(row, {b"cf:a": b"new"})
    backend.on("scan_open", replica=0).delays(3.0)
    found = table.scan(row_stop=b"m", batch_size=1)
    assert next(found)[0] == b"a"
    runtime.sleep(1.0)
    assert table.session.stats()["refused"] == 1
    assert backend.open_scanners() == 1
    assert len(list(found)) == 2
    assert backend.open_scanners() == 0


def test_strong_scan_of_a_gateway_pins_the_range_that_it_has_read(runtime: SimRuntime) -> None:
    backend = cluster(runtime, replicas=2, capabilities=Capabilities(addressing=Addressing.GATEWAY))
    connected(backend).table("t").put(b"a", {b"cf:a": b"new"})
    table = in_session(backend)
    assert [row for row, _ in table.scan(row_stop=b"c", consistency="STRONG")] == [b"a"]
    backend.on("get", replica=0).delays(0.5)
    backend.on("get", replica=1).answers(old(100.0))
    assert table.row(b"d").replica_id == 1, "the range of the scan ends before this row"
    assert table.row(b"a") == {b"cf:a": b"new"}


def test_write_through_a_gateway_without_a_location_pins_its_row(runtime: SimRuntime) -> None:
    backend = cluster(runtime, replicas=2, capabilities=Capabilities(addressing=Addressing.GATEWAY))
    table = connected(backend).session().table("t")
    table.put(b"a", {b"cf:a": b"new"})
    assert backend.count("read_meta") == 0
    backend.on("get", replica=0).delays(0.5)
    backend.on("get", replica=1).answers(old(100.0))
    assert table.row(b"a") == {b"cf:a": b"new"}


# -- tokens ------------------------------------------------------------------------------------------------------------


def test_token_carries_own_writes_to_another_process(runtime: SimRuntime) -> None:
    backend = cluster(runtime, replicas=2)
    token = b""
    with connected(backend).session() as session:
        session.table("t").put(b"a", {b"cf:a": b"new"})
        token = session.token()
    runtime.sleep(10.0)
    table = in_session(backend, token=token)
    backend.on("get", replica=0).delays(0.5)
    backend.on("get", replica=1).answers(old(0.5))
    assert table.row(b"a") == {b"cf:a": b"new"}, "the floor of a token is the present"
    assert table.row(b"x").replica_id == 1, "the other region was not seen"


def test_token_carries_the_replica_the_unreplicated_write_and_dropped_ranges() -> None:
    pins = Pins(ranges_max=4)
    copy = Copy(b"b", b"c", 1234567890123, 2, ServerName("rs2.example.com", 16020, 99))
    for row in (b"a", b"b", b"c", b"d", b"e"):
        pins.update(b"t", row, row + b"\0", lambda seen: after_write(seen, now=1.0))
    assert pins.elsewhere is not None
    pins.update(b"ns:u", b"b", b"c", lambda _: Seen(5.0, copy))
    pins.update(b"ns:u", b"c", b"", lambda _: Seen(NEVER))
    again = tokens.decode(tokens.encode(pins), now=77.0)
    assert list(again)[-2:] == [(b"ns:u", b"b", b"c", Seen(77.0, copy)), (b"ns:u", b"c", b"", Seen(NEVER))]
    assert again.elsewhere == Seen(77.0)
    assert tokens.encode(again) == tokens.encode(pins)


def test_token_that_was_cut_or_changed_is_refused() -> None:
    pins = Pins()
    pins.update(b"t", b"a", b"m", lambda _: Seen(1.0, Copy(b"a", b"m", 1, 1, ServerName("rs1", 16020))))
    token = tokens.encode(pins)
    for size in range(len(token)):
        with pytest.raises(ConfigError, match="session token"):
            tokens.decode(token[:size], now=0.0)
    for at in range(len(token)):
        changed = bytearray(token)
        changed[at] ^= 0x11
        with pytest.raises(ConfigError, match=r"version|checksum"):
            tokens.decode(bytes(changed), now=0.0)
    with pytest.raises(ConfigError, match="must be bytes, got str"):
        tokens.decode(token.hex(), now=0.0)  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize(
    "body",
    [
        b"\x01\x00\x01t\x02\x01m\x00\x00\x01a\x01b\x00",  # ranges overlap
        b"\x01\x00\x01t\x01\x01m\x01a\x00",  # an end before its start
        b"\x01\x00\x00\x00",  # a table without a name
        b"\x01\x00\x01t\x05",  # fewer ranges than announced
        b"\x01\x00\x01t\x01\x00\x00\x02\x01\x00\x00\x03abc",  # a server that is none
        b"\x01\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",  # a number that is too long
    ],
)
def test_token_with_a_right_checksum_and_a_wrong_body_is_refused(body: bytes) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        tokens.decode(body + crc32(body).to_bytes(4, "big"), now=0.0)


# -- bounds, and the life of a session ---------------------------------------------------------------------------------


def test_memory_is_bounded_and_forgotten_ranges_stay_pinned() -> None:
    pins = Pins(ranges_max=100)
    for number in range(10_000):
        row = b"%06d" % (number * 7919 % 10_000)
        pins.update(b"t%d" % (number % 7), row, row + b"\0", lambda seen, at=number: after_write(seen, now=float(at)))  # type: ignore[misc]  # bound now
        assert len(pins) <= 100
    assert pins.dropped >= 9_900
    seen = pins.seen(b"t0", b"000000")
    assert seen is not None
    assert seen.floor >= 9_800.0


def test_ranges_remember_for_each_row_the_newest_floor() -> None:
    """A hundred histories of updates of random ranges, compared with a floor per row."""
    for seed in range(100):
        dice = Random(seed)
        pins, floors = Pins(), dict.fromkeys(range(12), -1.0)
        for now in range(40):
            start = dice.randrange(12)
            stop = dice.choice([dice.randrange(start + 1, 13), 13])
            end = b"" if stop == 13 else b"%02d" % stop
            pins.update(b"t", b"%02d" % start if start else b"", end, lambda seen, at=now: after_write(seen, now=at))  # type: ignore[misc]  # bound now
            highest = max(floors[row] for row in range(start, min(stop, 12)))
            floors |= dict.fromkeys(range(start, min(stop, 12)), max(float(now), highest))
            for row, floor in floors.items():
                seen = pins.seen(b"t", b"%02d" % row)
                assert (-1.0 if seen is None else seen.floor) == floor, (seed, now, row)
        rows = [(start, end) for _, start, end, _ in pins]
        assert all(end and end <= after for (_, end), (after, _) in pairwise(rows))


def test_closed_session_refuses_and_its_connection_goes_on(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend)
    with connection.session() as session:
        table = session.table("t")
        table.put(b"a", {b"cf:a": b"1"})
        batch = table.batch()
        batch.put(b"b", {b"cf:a": b"1"})
    for call in (lambda: table.row(b"a"), lambda: table.put(b"a", {b"cf:a": b"2"}), batch.send, table.scan):
        with pytest.raises(ConnectionClosed, match="this session is closed"):
            call()
    assert connection.session(token=session.token()).table("t").row(b"a") == {b"cf:a": b"1"}


def test_wrong_uses_of_a_session_are_refused(runtime: SimRuntime) -> None:
    table = in_session(cluster(runtime))
    with pytest.raises(ValueError, match="'replica_id' cannot be given in a session"):
        table.row(b"a", replica_id=1)
    with pytest.raises(ValueError, match="hbase:meta"):
        table.session.table("hbase:meta")
    for bound in (0, -1.0, float("inf"), "5"):
        with pytest.raises(ValueError, match="replica_lag_max_s"):
            table.session.connection.session(replica_lag_max_s=bound)  # type: ignore[arg-type]  # that is the point
    backend = cluster(runtime, capabilities=Capabilities(region_replicas=False))
    with pytest.raises(Unsupported, match="a session needs thrift2:, hbase: or fake:"):
        Session(connected(backend))
