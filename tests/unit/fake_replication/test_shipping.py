"""A source reads its log in order, ships it until the peer has it, and stores the position after that."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from metaclient.errors import (
    BackendFault,
    CallTimeout,
    MetaClientError,
    NoSuchFamily,
    RequestRefused,
    ServerUnreachable,
    TableNotFound,
)
from metaclient.model import ServerName
from metaclient.replication_peers import PeerState
from metaclient.runtime import SimRuntime
from metaclient.wire.rpc.replication import ShippedEntry
from metaclient_fake.replication.source import Source
from tests.unit.fake_replication.shipping_rig import RS1, ShippingRig

MakeRig = Callable[..., ShippingRig]


@pytest.fixture
def make_rig(runtime: SimRuntime) -> MakeRig:
    def make(**options: object) -> ShippingRig:
        return ShippingRig(runtime, **options)  # type: ignore[arg-type]  # tests

    return make


@pytest.fixture
def rig(make_rig: MakeRig) -> ShippingRig:
    return make_rig()


def stop(source: Source, runtime: SimRuntime) -> None:
    source.stop()
    assert source.wait_ended(runtime.now() + 1000.0)


# -- reading ---------------------------------------------------------------------------------------------------


def test_position_is_stored_only_after_the_acknowledgement(rig: ShippingRig) -> None:
    rig.peer.always = rig.peer.takes(6.0)
    rig.put(3)
    rig.source()
    rig.run_for(5.9)
    assert [call.numbers for call in rig.peer.arrived] == [[1, 2, 3]]
    assert rig.stored == []
    rig.run_for(0.2)
    assert rig.stored == [(rig.file, rig.wal.files[-1].size, {}, False)]


def test_puts_during_a_slow_answer_become_one_batch(rig: ShippingRig) -> None:
    """A slow peer gets back pressure for free: larger batches instead of more calls. One batch is read ahead."""
    rig.peer.always = rig.peer.takes(6.0)
    rig.put()
    rig.source()
    for _ in range(4):
        rig.run_for(1.0)
        rig.put(50)
    rig.run_for(60.0)
    assert rig.peer.numbers == list(range(1, 202))
    assert len(rig.peer.arrived) == 4


def test_position_resumes_behind_the_last_stored_batch(rig: ShippingRig) -> None:
    rig.put(3)
    first = rig.source()
    rig.run_for(1.0)
    stop(first, rig.runtime)
    rig.put(2)
    wal, position, _, _ = rig.stored[-1]
    rig.source({wal: position})
    rig.run_for(1.0)
    assert rig.peer.numbers == [1, 2, 3, 4, 5]


def test_source_that_starts_at_zero_ships_the_whole_current_log_again(rig: ShippingRig) -> None:
    rig.put(40)
    first = rig.source()
    rig.run_for(1.0)
    stop(first, rig.runtime)
    rig.put()
    rig.source()
    rig.run_for(1.0)
    assert rig.peer.numbers == [*range(1, 41), *range(1, 42)]


def test_end_of_a_file_ships_what_was_read_and_goes_on_to_the_next(rig: ShippingRig) -> None:
    rig.put(2)
    first = rig.file
    source = rig.source()
    rig.roll(source)
    rig.put(2)
    rig.run_for(1.0)
    assert [call.numbers for call in rig.peer.arrived] == [[1, 2], [3, 4]]
    assert [(wal, is_end) for wal, _, _, is_end in rig.stored] == [(first, True), (rig.file, False)]
    assert source.load().log_queue == 1


def test_empty_logs_before_between_and_after_do_not_stop_a_queue(rig: ShippingRig) -> None:
    """TestReplicationSource: 20 entries and 20 entries, empty files around each, 40 in 2 batches."""
    source = rig.source()
    for _ in range(2):
        rig.roll(source)
        rig.put(20)
        rig.roll(source)
    rig.run_for(60.0)
    assert [len(call.entries) for call in rig.peer.arrived] == [20, 20]
    assert source.load().log_queue == 1


def test_log_that_moves_to_the_archive_while_it_is_read_is_read_to_its_end(rig: ShippingRig) -> None:
    rig.peer.always = rig.peer.takes(5.0)
    rig.config = type(rig.config)(batch_entries=2)
    rig.put(6)
    source = rig.source()
    rig.run_for(1.0)
    rig.wal.flushed("r", 6)
    rig.roll(source)
    assert [file.name for file in rig.filesystem.old_wals]
    rig.run_for(60.0)
    assert rig.peer.numbers == [1, 2, 3, 4, 5, 6]


def test_batches_end_at_their_entries_and_at_their_bytes(make_rig: MakeRig) -> None:
    by_count = make_rig(batch_entries=10)
    by_count.put(25)
    by_count.source()
    by_count.run_for(1.0)
    assert [len(call.entries) for call in by_count.peer.arrived] == [10, 10, 5]
    by_bytes = make_rig(batch_bytes=3000)
    by_bytes.put(5, size=1000)
    by_bytes.source()
    by_bytes.run_for(1.0)
    assert [len(call.entries) for call in by_bytes.peer.arrived] == [3, 2]


def test_filtered_entries_move_the_position_and_send_nothing(rig: ShippingRig) -> None:
    rig.change(replicate_all=False, tables={b"u": ()})
    rig.put(3)
    source = rig.source()
    rig.run_for(1.0)
    assert rig.peer.arrived == []
    assert [position for _, position, _, _ in rig.stored] == [rig.wal.files[-1].size]
    assert source.load().edits_read == 3


def test_rest_makes_the_reader_slow_and_an_entry_makes_it_quick_again(rig: ShippingRig) -> None:
    """Looks at 0, 2, 5, 9, 14, 20, 27, 35, 44, 54, 65, 77 s: a put after 70 s of rest waits up to 12 s."""
    rig.source()
    rig.run_for(70.0)
    rig.put()
    rig.run_for(6.9)
    assert rig.peer.arrived == []
    rig.run_for(0.2)
    assert [call.at_s for call in rig.peer.arrived] == [pytest.approx(77.0)]
    rig.put()
    rig.run_for(2.0)
    assert rig.peer.arrived[-1].at_s == pytest.approx(79.0)


def test_entry_of_another_table_starts_the_pauses_anew(rig: ShippingRig) -> None:
    rig.change(replicate_all=False, tables={b"t": ()})
    rig.source()
    rig.run_for(34.0)
    rig.put(table=b"u")
    rig.run_for(2.0)  # found at 35 s; the next look is at 37 s
    rig.put()
    rig.run_for(1.1)
    assert [call.at_s for call in rig.peer.arrived] == [pytest.approx(37.0)]


def test_recovered_queue_ends_with_its_last_log(rig: ShippingRig) -> None:
    rig.put(2)
    rig.wal.roll()
    rig.put(2)
    logs = [file.name for file in rig.wal.files]
    rig.wal.crash()
    source = rig.source(dict.fromkeys(logs, 0), dead=(ServerName("dead", 16020, 1),))
    rig.run_for(1.0)
    assert rig.peer.numbers == [1, 2, 3, 4]
    assert rig.finished == 1
    assert source.wait_ended(rig.runtime.now())
    assert [(wal, is_end) for wal, _, _, is_end in rig.stored] == [(logs[0], True), (logs[1], True)]


def test_recovered_queue_that_was_stopped_is_not_finished(rig: ShippingRig) -> None:
    rig.peer.always = rig.peer.takes(5.0)
    rig.put(2)
    rig.wal.crash()
    source = rig.source(dead=(ServerName("dead", 16020, 1),))
    rig.run_for(1.0)
    stop(source, rig.runtime)
    rig.run_for(100.0)
    assert rig.finished == 0
    assert rig.stored == []


# -- quota -----------------------------------------------------------------------------------------------------


def test_three_peers_hold_at_most_the_quota_and_all_of_it_arrives(runtime: SimRuntime) -> None:
    """TestGlobalReplicationThrottler: 3 peers, a tiny quota, 50 rows."""
    rig = ShippingRig(runtime, buffer_bytes_max=5000)
    rig.peer.always = rig.peer.takes(0.5)
    sources = [rig.source() for _ in range(3)]
    rig.put(50, size=500)
    held: list[int] = []
    for _ in range(400):
        rig.run_for(0.5)
        held.append(rig.quota.used)
    assert max(held) > 0
    assert rig.quota.peak <= 5000 * (len(sources) + 1)
    assert sorted(rig.peer.numbers) == sorted([*range(1, 51)] * 3)
    assert rig.quota.used == 0


def test_dead_peer_holds_at_most_two_batches_whatever_the_backlog(runtime: SimRuntime) -> None:
    rig = ShippingRig(runtime, batch_entries=10)
    rig.peer.always = _refuse
    source = rig.source()
    rig.put(1000, size=100)
    rig.run_for(600.0)
    assert rig.quota.used <= 2 * 10 * 300 + 300
    stop(source, runtime)
    assert rig.quota.used == 0


def test_stopped_source_gives_its_bytes_back_and_stores_nothing(rig: ShippingRig) -> None:
    rig.peer.always = rig.peer.takes(5.0)
    rig.put(10)
    source = rig.source()
    rig.run_for(1.0)
    assert rig.quota.used > 0
    stop(source, rig.runtime)
    assert rig.quota.used == 0
    assert rig.stored == []
    assert rig.peer.is_closed


# -- retries ---------------------------------------------------------------------------------------------------


def _refuse(server: ServerName, entries: Sequence[ShippedEntry], deadline: float) -> None:
    raise ServerUnreachable(f"connection refused by {server}")


@pytest.mark.parametrize(
    "error", [RequestRefused("no"), BackendFault("a bug"), TableNotFound("t"), ServerUnreachable("gone")]
)
def test_any_error_is_retried_with_the_same_entries_after_growing_pauses(
    rig: ShippingRig, error: MetaClientError
) -> None:
    """The sink of a real HBase that failed five times got the same entries after 1, 2, 3, 4 and 5 s."""
    rig.peer.reactions = [error] * 5
    rig.put(2)
    rig.source()
    rig.run_for(60.0)
    assert [round(call.at_s, 3) for call in rig.peer.arrived] == [0, 1, 3, 6, 10, 15]
    assert [call.numbers for call in rig.peer.arrived] == [[1, 2]] * 6
    assert rig.stored_at_s == [pytest.approx(15.0)]


def test_pauses_grow_to_five_minutes_and_no_further(make_rig: MakeRig) -> None:
    rig = make_rig(retry_multiplier_max=4)
    rig.peer.always = _refuse
    rig.put()
    rig.source()
    rig.run_for(30.0)
    assert [round(call.at_s) for call in rig.peer.arrived] == [0, 1, 3, 6, 10, 14, 18, 22, 26, 30]


def test_sink_that_hangs_gets_longer_timeouts(rig: ShippingRig) -> None:
    rig.peer.reactions = [rig.peer.hang] * 4
    rig.put()
    rig.source()
    rig.run_for(1000.0)
    assert [call.timeout_s for call in rig.peer.arrived] == [60, 120, 180, 300, 600]
    assert [round(call.at_s) for call in rig.peer.arrived] == [0, 61, 183, 366, 670]


def test_counts_of_failures_are_forgotten_by_the_next_batch(rig: ShippingRig) -> None:
    rig.peer.reactions = [RequestRefused("no"), RequestRefused("no"), None, RequestRefused("no")]
    rig.put()
    rig.source()
    rig.run_for(3.0)
    rig.put()
    rig.run_for(10.0)
    times = [round(call.at_s) for call in rig.peer.arrived]
    assert times[:3] == [0, 1, 3]
    assert times[4] - times[3] == 1


def test_only_failed_lists_go_again(make_rig: MakeRig) -> None:
    rig = make_rig(servers=8)
    failed: set[str] = set()

    def fail_first(server: ServerName, entries: Sequence[ShippedEntry], deadline: float) -> None:
        if not failed:
            failed.update(entry.key.region for entry in entries)
            raise RequestRefused("no")

    rig.peer.always = fail_first
    for number in range(300):
        rig.put(region=f"{number % 30:032d}")
    rig.source()
    rig.run_for(5.0)
    again = [call for call in rig.peer.arrived if call.at_s > 0.5]
    assert len(again) == 1
    assert again[0].regions == failed
    assert len(rig.stored) == 1


def test_batch_is_split_by_region_over_the_sinks_in_parallel(make_rig: MakeRig) -> None:
    """n = min(10, 350 / 100 + 1, 4 sinks of 8 servers): four lists at once, each region in one of them, in order."""
    rig = make_rig(servers=8)
    rig.peer.always = rig.peer.takes(1.0)
    for number in range(350):
        rig.put(region=f"{number % 30:032d}")
    rig.source()
    rig.run_for(3.0)
    assert len(rig.peer.arrived) == 4
    assert rig.peer.in_flight_max == 4
    assert sum(len(call.regions) for call in rig.peer.arrived) == 30
    assert all(call.numbers == sorted(call.numbers) for call in rig.peer.arrived)


def test_small_batch_is_one_call(make_rig: MakeRig) -> None:
    rig = make_rig(servers=8)
    for number in range(99):
        rig.put(region=f"{number:032d}")
    rig.source()
    rig.run_for(1.0)
    assert len(rig.peer.arrived) == 1


def test_list_above_the_request_limit_is_cut_into_calls(make_rig: MakeRig) -> None:
    """TestReplicator: a limit of 10 KB and ten puts of 8 KB are ten calls."""
    rig = make_rig(request_bytes_max=10 * 1024)
    rig.put(10, size=8 * 1024)
    rig.source()
    rig.run_for(1.0)
    assert sorted(rig.peer.numbers) == list(range(1, 11))
    assert len(rig.peer.arrived) == 10


def test_failed_parts_of_a_cut_list_go_again_alone(make_rig: MakeRig) -> None:
    rig = make_rig(request_bytes_max=10 * 1024)
    rig.peer.reactions = [None, RequestRefused("no"), None, RequestRefused("no")]
    rig.put(10, size=8 * 1024)
    rig.source()
    rig.run_for(5.0)
    assert len(rig.peer.arrived) == 12
    assert set(rig.peer.numbers) == set(range(1, 11))


def test_endpoint_that_fails_is_asked_for_ever(rig: ShippingRig) -> None:
    rig.peer.always = _refuse
    rig.put(2)
    rig.source()
    rig.run_for(100_000.0)
    assert len(rig.peer.arrived) > 400
    rig.peer.always = None
    rig.run_for(400.0)
    assert len(rig.stored) == 1


# -- sinks -----------------------------------------------------------------------------------------------------


def test_peer_without_servers_keeps_the_queue_and_gets_all_when_one_starts(rig: ShippingRig) -> None:
    names, rig.peer.names = rig.peer.names, []
    rig.put(3)
    source = rig.source()
    rig.run_for(30.0)
    assert rig.stored == []
    assert source.metrics[0].last_error == "the peer has no servers"
    rig.peer.names = names
    rig.run_for(1.1)
    assert rig.peer.numbers == [1, 2, 3]


def test_server_of_the_peer_that_died_is_replaced_by_one_that_started(make_rig: MakeRig) -> None:
    rig = make_rig(servers=2)
    dead, started = rig.peer.names
    rig.peer.names = [dead]
    rig.put()
    rig.source()
    rig.run_for(1.0)
    rig.peer.names = [started]
    rig.put()
    rig.run_for(3.0)
    assert [call.server for call in rig.peer.arrived] == [dead, started]


def test_source_waits_for_the_id_of_the_peer_cluster(rig: ShippingRig) -> None:
    """Without the id nothing may be shipped: edits of the peer would go back to it."""
    rig.peer.id = None
    rig.put()
    source = rig.source()
    rig.run_for(5.0)
    assert rig.peer.arrived == []
    assert not source.load().is_running
    rig.peer.id = ShippingRig(rig.runtime).peer.id
    rig.run_for(2.0)  # asked at 0, 1, 3 and 6 s
    assert [round(call.at_s) for call in rig.peer.arrived] == [6]


def test_source_that_cannot_start_ends_its_server_or_starts_again(make_rig: MakeRig) -> None:
    """``replication.source.regionserver.abort``; meanwhile the start of the server is not held up."""
    rig = make_rig(aborts_server=False)
    rig.start_errors = [AssertionError("no such class"), AssertionError("no such class")]
    rig.put()
    source = rig.source()
    rig.run_for(0.5)
    assert (source.load().is_running, source.load().last_error) == (False, "AssertionError: no such class")
    rig.run_for(10.0)  # it starts again after 1 s and after 2 s more
    assert [round(call.at_s) for call in rig.peer.arrived] == [3]
    assert (source.load().is_running, source.load().last_error) == (True, "")

    ending = make_rig(aborts_server=True)
    ending.start_errors = [AssertionError("no such class")]
    ending.source()
    ending.runtime.run_for(1.0)
    assert len(ending.aborts) == 1
    assert "no such class" in ending.aborts[0]


def test_log_rolled_before_the_peer_is_known_is_not_forgotten(rig: ShippingRig) -> None:
    known, rig.peer.id = rig.peer.id, None
    rig.put()
    source = rig.source()
    rig.run_for(0.5)
    rig.roll(source)
    rig.put()
    rig.peer.id = known
    rig.run_for(5.0)
    assert rig.peer.numbers == [1, 2]


# -- peers that change ------------------------------------------------------------------------------------------


def test_disabled_peer_gets_nothing_until_it_is_enabled(rig: ShippingRig) -> None:
    rig.change(state=PeerState.DISABLED)
    rig.put(2)
    rig.source()
    rig.run_for(50.0)
    assert rig.peer.arrived == []
    rig.change(state=PeerState.ENABLED)
    rig.run_for(1.1)
    assert rig.peer.numbers == [1, 2]


def test_disable_while_retrying_ends_the_calls_and_enable_ships_the_batch(rig: ShippingRig) -> None:
    """B down; put; disable; B starts: nothing arrives before the peer is enabled."""
    rig.peer.always = _refuse
    rig.put()
    rig.source()
    rig.run_for(2.0)
    rig.change(state=PeerState.DISABLED)
    calls = len(rig.peer.arrived)
    rig.peer.always = None
    rig.run_for(100.0)
    assert len(rig.peer.arrived) == calls
    rig.change(state=PeerState.ENABLED)
    rig.run_for(20.0)
    assert len(rig.stored) == 1


def test_hung_server_ships_nothing(rig: ShippingRig) -> None:
    rig.is_running = False
    rig.put()
    rig.source()
    rig.run_for(10.0)
    assert rig.peer.arrived == []
    rig.is_running = True
    rig.run_for(1.1)
    assert rig.peer.numbers == [1]


def test_bandwidth_of_the_peer_spreads_batches_over_time(make_rig: MakeRig) -> None:
    """1,000 bytes per second: batches of about 1,100 bytes follow each other by more than a second."""
    rig = make_rig(batch_bytes=1000)
    rig.change(bandwidth=1000)
    rig.put(4, size=1000)
    rig.source()
    rig.run_for(30.0)
    times = [call.at_s for call in rig.peer.arrived]
    assert len(times) == 4
    assert all(1.0 <= later - earlier <= 1.3 for earlier, later in pairwise(times))


def test_bandwidth_can_change_without_a_new_source(make_rig: MakeRig) -> None:
    rig = make_rig(batch_bytes=1000)
    rig.change(bandwidth=10)
    rig.put(3, size=1000)
    rig.source()
    rig.run_for(1.0)
    assert len(rig.peer.arrived) == 1
    rig.change(bandwidth=0)
    rig.run_for(150.0)
    assert rig.peer.numbers == [1, 2, 3]


# -- deleted tables and families -------------------------------------------------------------------------------


def _without(table: bytes) -> Callable[[ServerName, Sequence[ShippedEntry], float], None]:
    """A sink whose cluster has no such table."""

    def refuse(server: ServerName, entries: Sequence[ShippedEntry], deadline: float) -> None:
        if any(entry.key.table == table for entry in entries):
            raise TableNotFound(table.decode())

    return refuse


def test_missing_table_keeps_the_queue_and_other_tables_wait_behind_it(rig: ShippingRig) -> None:
    rig.peer.always = _without(b"gone")
    rig.put(table=b"gone")
    rig.put(table=b"t")
    source = rig.source()
    rig.run_for(100.0)
    assert rig.stored == []
    assert source.metrics[0].last_error == "TableNotFound: gone"
    assert source.load().lag_ms >= 99_000


def test_table_deleted_in_both_clusters_is_dropped_on_request(make_rig: MakeRig) -> None:
    rig = make_rig(drops_deleted_tables=True)
    rig.peer.always = _without(b"gone")
    rig.put(table=b"gone")
    rig.put(table=b"t")
    rig.source()
    rig.run_for(2.0)
    assert rig.peer.arrived[-1].numbers == [2]
    assert len(rig.stored) == 1


def test_table_deleted_at_the_peer_only_is_not_dropped(make_rig: MakeRig) -> None:
    rig = make_rig(drops_deleted_tables=True)
    rig.tables[b"gone"] = frozenset({b"f"})
    rig.peer.always = _without(b"gone")
    rig.put(table=b"gone")
    rig.put(table=b"t")
    rig.source()
    rig.run_for(100.0)
    assert rig.stored == []
    del rig.tables[b"gone"]
    rig.run_for(100.0)
    assert len(rig.stored) == 1


def _without_family(server: ServerName, entries: Sequence[ShippedEntry], deadline: float) -> None:
    if any(cell.family == b"g" for entry in entries for _, cell in entry.cells):
        raise NoSuchFamily("Column family g does not exist in region of table 't'")


def test_family_deleted_in_both_clusters_is_dropped_on_request(make_rig: MakeRig) -> None:
    rig = make_rig(drops_deleted_families=True)
    rig.peer.always = _without_family
    rig.put(family=b"g")
    rig.put()
    rig.source()
    rig.run_for(2.0)
    assert rig.peer.arrived[-1].numbers == [2]
    assert len(rig.stored) == 1


@pytest.mark.parametrize("drops", [False, True])
def test_family_that_this_cluster_still_has_keeps_the_queue(make_rig: MakeRig, drops: bool) -> None:
    rig = make_rig(drops_deleted_families=drops)
    rig.tables[b"t"] = frozenset({b"f", b"g"})
    rig.peer.always = _without_family
    rig.put(family=b"g")
    rig.put()
    rig.source()
    rig.run_for(100.0)
    assert rig.stored == []
    rig.tables[b"t"] = frozenset({b"f"})
    rig.run_for(100.0)
    assert len(rig.stored) == int(drops)


# -- serial peers ----------------------------------------------------------------------------------------------


def test_serial_call_has_one_region_and_regions_go_in_parallel(rig: ShippingRig) -> None:
    rig.change(serial=True)
    rig.peer.always = rig.peer.takes(1.0)
    for number in range(30):
        rig.put(region=f"{number % 3:032d}")
    rig.source()
    rig.run_for(5.0)
    assert [len(call.regions) for call in rig.peer.arrived] == [1, 1, 1]
    assert rig.peer.in_flight_max == 3
    assert rig.stored[0][2] == {f"{0:032d}": 28, f"{1:032d}": 29, f"{2:032d}": 30}


def test_serial_batch_never_has_more_calls_in_flight_than_allowed(make_rig: MakeRig) -> None:
    rig = make_rig(calls_max=4)
    rig.change(serial=True)
    rig.peer.always = rig.peer.takes(1.0)
    for number in range(40):
        rig.put(region=f"{number:032d}")
    rig.source()
    rig.run_for(15.0)
    assert rig.peer.in_flight_max == 4
    assert sorted(rig.peer.numbers) == list(range(1, 41))


def test_failed_serial_region_goes_again_from_its_first_chunk(make_rig: MakeRig) -> None:
    rig = make_rig(request_bytes_max=10 * 1024)
    rig.change(serial=True)
    rig.peer.reactions = [None, RequestRefused("no")]
    rig.put(3, size=8 * 1024)
    rig.source()
    rig.run_for(5.0)
    assert rig.peer.numbers == [1, 2, 1, 2, 3]


@pytest.mark.parametrize("serial", [True, False])
def test_ten_thousand_edits_of_many_regions_all_arrive_and_in_order_if_serial(make_rig: MakeRig, serial: bool) -> None:
    """TestSerialReplicationEndpoint; some calls fail."""
    rig = make_rig(servers=8, batch_entries=500)
    rig.change(serial=serial)
    calls = 0

    def fail_some(server: ServerName, entries: Sequence[ShippedEntry], deadline: float) -> None:
        nonlocal calls
        calls += 1
        rig.runtime.sleep(rig.runtime.rng.random())
        if calls % 7 == 0:
            raise RequestRefused("no")

    rig.peer.always = fail_some
    for number in range(10_000):
        rig.put(region=f"{number % 20:032d}")
    rig.source()
    rig.run_for(600.0)
    assert set(rig.peer.numbers) == set(range(1, 10_001))
    if serial:
        for region in range(20):
            of_region = [n for n in dict.fromkeys(rig.peer.numbers) if (n - 1) % 20 == region]
            assert of_region == sorted(of_region), "first deliveries of a region are in order"
        assert all(len(call.regions) == 1 for call in rig.peer.arrived)
    else:
        assert any(len(call.regions) > 1 for call in rig.peer.arrived)


def test_blocked_entry_ends_the_batch_and_blocks_every_entry_behind_it(rig: ShippingRig) -> None:
    rig.change(serial=True)
    rig.blocked = {3}
    rig.put(2)
    rig.put(region="blocked")
    rig.put(2)
    source = rig.source()
    rig.run_for(25.0)
    assert rig.peer.numbers == [1, 2]
    assert rig.asked == [1, 2, 3, 3, 3, 3]  # ends the batch; then at 0, 10 and 20 s
    assert [(one.region, one.sequence_id) for one in source.load().blocked] == [("blocked", 3)]
    stored = rig.stored[-1][1]
    rig.blocked = set()
    rig.run_for(6.0)
    assert rig.peer.numbers == [1, 2, 3, 4, 5]
    assert source.load().blocked == ()
    assert stored < rig.stored[-1][1]


def test_blocked_entry_is_read_again_after_a_stop(rig: ShippingRig) -> None:
    """The stored position is before the entry that waits, although the reader has passed it."""
    rig.change(serial=True)
    rig.blocked = {3}
    rig.put(4)
    first = rig.source()
    rig.run_for(5.0)
    stop(first, rig.runtime)
    rig.blocked = set()
    wal, position, _, _ = rig.stored[-1]
    rig.source({wal: position})
    rig.run_for(5.0)
    assert rig.peer.numbers == [1, 2, 3, 4]


def test_blocked_last_entry_of_a_rolled_log_is_not_skipped(rig: ShippingRig) -> None:
    """The file is closed and read to its end, but its last entry is not shipped yet."""
    rig.change(serial=True)
    rig.blocked = {2}
    rig.put(2)
    source = rig.source()
    rig.roll(source)
    rig.put()
    rig.run_for(5.0)
    assert rig.peer.numbers == [1]
    assert [is_end for _, _, _, is_end in rig.stored] == [False]
    rig.blocked = set()
    rig.run_for(10.0)
    assert rig.peer.numbers == [1, 2, 3]


# -- status ----------------------------------------------------------------------------------------------------


def test_load_shows_age_and_lag_of_a_slow_peer(rig: ShippingRig) -> None:
    rig.peer.reactions = [rig.peer.takes(3.0)]
    rig.put(2)
    source = rig.source()
    rig.run_for(2.0)
    assert source.load().lag_ms == 2000
    rig.run_for(2.0)
    load = source.load()
    assert (load.lag_ms, load.age_of_last_shipped_ms, load.edits_shipped, load.log_queue) == (0, 3000, 2, 1)
    assert (load.peer_id, load.server, load.queue_id, load.is_running) == ("p", RS1, "p", True)


def test_error_of_our_own_ends_the_server_instead_of_the_task_alone(rig: ShippingRig) -> None:
    def broken(wal: str, position: int, pushed_ids: object = None, *, is_end_of_file: bool = False) -> None:
        raise AssertionError("broken")

    rig.store = broken  # type: ignore[method-assign]  # a bug
    rig.put()
    rig.source()
    rig.runtime.run_for(1.0)
    assert len(rig.aborts) == 1
    assert "broken" in rig.aborts[0]


def test_timeout_that_may_have_been_applied_is_sent_again(rig: ShippingRig) -> None:
    """The peer may have processed the entries: they come again, and nothing is lost."""
    rig.peer.reactions = [CallTimeout("late", may_have_applied=True)]
    rig.put()
    rig.source()
    rig.run_for(2.0)
    assert [call.numbers for call in rig.peer.arrived] == [[1], [1]]
