"""Checkers on histories written by hand: what they must accept, and what they must not."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from metaclient.errors import CallTimeout, NoSuchReplica, TableNotFound
from metaclient.runtime import SimRuntime
from metaclient.runtime.line_preemption import LinePauses
from metaclient_fake.simulation.checkers import (
    budgets,
    counters,
    deadlines,
    errors,
    lag,
    leaks,
    linearizability,
    scans,
    sessions,
    tables,
    timeline,
)
from metaclient_fake.simulation.checkers.linearizability import explanation
from metaclient_fake.simulation.history import NEVER, History, Operation, Status
from metaclient_fake.simulation.observed import ObservedBackend, SeenCall
from metaclient_fake.simulation.replica_counts import ReplicaCounts
from metaclient_fake.simulation.spec import ClientSpec, drawn
from metaclient_fake.simulation.workloads.cycle import column_of, is_cycle, whole_cycle
from metaclient_fake.simulation.workloads.scans import Asked
from metaclient_fake.simulation.workloads.tables import Tables
from metaclient_fake.simulation.world import World


class Book:
    """A history that is written line by line: who, what, from when to when, with what outcome."""

    def __init__(self) -> None:
        self.history = History(SimRuntime())

    def write(self, kind: str, called_at: float, returned_at: float, **fields: Any) -> Operation:
        made = self.history.begin(fields.pop("client", "c"), kind, fields.pop("table", "t"), fields.pop("row", b"0-r"))
        made.called_at, made.returned_at = called_at, returned_at
        made.outcome = Status.OK if returned_at != NEVER else Status.UNKNOWN
        made.is_write = kind in ("put", "delete", "check_and_put", "increment")
        for name, value in fields.items():
            setattr(made, name, value)
        return made

    def world(self, **parts: Any) -> Any:
        return SimpleNamespace(
            history=self.history, misled=set, unproven=set, clients=[], registers=(b"0-r",), cells=(), **parts
        )


# -- linearizability ---------------------------------------------------------------------------------------------------


def test_reads_of_overlapping_writes_may_see_either() -> None:
    book = Book()
    book.write("put", 0, 10, argument=b"a")
    book.write("put", 1, 9, argument=b"b")
    book.write("get", 2, 3, value=b"b")
    book.write("get", 4, 5, value=b"a")
    assert explanation(book.history.operations) is None


def test_a_read_may_not_go_back_to_an_overwritten_value() -> None:
    book = Book()
    book.write("put", 0, 1, argument=b"a")
    book.write("put", 2, 3, argument=b"b")
    stale = book.write("get", 4, 5, value=b"a")
    culprits = explanation(book.history.operations)
    assert culprits is not None
    assert stale in culprits


def test_a_value_seen_once_may_not_be_unseen() -> None:
    """Two reads after each other, during one write: new, then old."""
    book = Book()
    book.write("put", 0, 1, argument=b"a")
    book.write("put", 2, 10, argument=b"b")
    book.write("get", 3, 4, value=b"b")
    book.write("get", 5, 6, value=b"a")
    assert explanation(book.history.operations) is not None


@pytest.mark.parametrize("seen_at", [6, 60])
def test_an_unknown_write_may_happen_late(seen_at: float) -> None:
    book = Book()
    book.write("put", 0, 1, argument=b"a")
    book.write("put", 2, NEVER, argument=b"b")
    book.write("get", 4, 5, value=b"a")
    book.write("get", seen_at, seen_at + 1, value=b"b")
    assert explanation(book.history.operations) is None


def test_an_unknown_write_happens_once() -> None:
    book = Book()
    book.write("put", 0, 1, argument=b"a")
    book.write("put", 2, NEVER, argument=b"b")
    book.write("get", 3, 4, value=b"b")
    book.write("put", 5, 6, argument=b"c")
    book.write("get", 7, 8, value=b"b")
    assert explanation(book.history.operations) is not None


def test_a_failed_write_never_happens() -> None:
    book = Book()
    book.write("put", 0, 1, argument=b"a")
    book.write("put", 2, 3, argument=b"b", outcome=Status.FAILED)
    book.write("get", 4, 5, value=b"b")
    assert explanation(book.history.operations) is not None


def test_of_two_checks_of_one_value_one_must_fail() -> None:
    book = Book()
    book.write("put", 0, 1, argument=b"a")
    book.write("check_and_put", 2, 5, expected=b"a", argument=b"b", value=True)
    book.write("check_and_put", 2, 5, expected=b"a", argument=b"c", value=True)
    assert explanation(book.history.operations) is not None


def test_a_long_honest_history_is_decided_quickly() -> None:
    """A thousand operations, ten at a time: no step is repeated for nothing."""
    book = Book()
    for number in range(100):
        for client in range(10):
            book.write("put", 10 * number + client, 10 * number + client + 9.5, argument=b"%d.%d" % (number, client))
        book.write("get", 10 * number + 9.6, 10 * number + 9.9, value=b"%d.9" % number)
    assert explanation(book.history.operations) is None


def test_history_that_cannot_be_decided_is_not_called_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linearizability, "steps_max", 3)
    book = Book()
    for number in range(10):
        book.write("put", 0, 10, argument=b"%d" % number)
    assert explanation(book.history.operations) is not None


# -- the others --------------------------------------------------------------------------------------------------------


def test_timeline_read_of_a_value_that_nobody_wrote() -> None:
    book = Book()
    book.write("put", 0, 1, argument=b"a", timestamp=1)
    book.write("timeline_get", 2, 3, value=b"z", stale=True, replica_id=1, server="rs1")
    assert "no client had written" in str(next(timeline.check(book.world())))


@pytest.mark.parametrize(("stale", "replica_id"), [(True, 0), (False, 1)])
def test_timeline_flag_that_contradicts_the_replica(stale: bool, replica_id: int) -> None:
    book = Book()
    book.write("put", 0, 1, argument=b"a", timestamp=1)
    book.write("timeline_get", 2, 3, value=b"a", stale=stale, replica_id=replica_id, server="rs1")
    assert "says stale" in str(next(timeline.check(book.world())))


def test_a_copy_may_not_go_back_in_time_but_another_copy_may_be_behind() -> None:
    book = Book()
    book.write("put", 0, 1, argument=b"a", timestamp=1)
    book.write("put", 2, 3, argument=b"b", timestamp=2)
    book.write("timeline_get", 4, 5, value=b"b", stale=True, replica_id=1, server="rs1")
    book.write("timeline_get", 6, 7, value=b"a", stale=True, replica_id=2, server="rs2")
    assert list(timeline.check(book.world())) == []
    book.write("timeline_get", 8, 9, value=b"a", stale=True, replica_id=1, server="rs1")
    assert "back in time" in str(next(timeline.check(book.world())))


@pytest.mark.parametrize(
    ("lag_s", "is_good"),
    [
        (None, True),  # promises nothing
        (7.5, True),  # acknowledged at 3, read from 10 on
        (7.0, True),
        (6.9, False),
        (0.0, False),
    ],
)
def test_lag_must_reach_back_to_the_write_that_an_answer_lacks(lag_s: float | None, is_good: bool) -> None:
    book = Book()
    book.write("put", 0, 1, argument=b"a", timestamp=1)
    book.write("put", 2, 3, argument=b"b", timestamp=2)
    book.write("timeline_get", 10, 11, value=b"a", stale=True, replica_id=1, server="rs1", lag_s=lag_s)
    assert (not list(lag.check(book.world()))) is is_good


def test_lag_is_not_held_against_an_answer_that_shows_something_later() -> None:
    book = Book()
    book.write("put", 0, 1, argument=b"a", timestamp=1)
    book.write("put", 2, 3, argument=b"b", timestamp=2)
    book.write("delete", 4, NEVER, timestamp=3)  # it may have happened
    shown = {"stale": True, "replica_id": 1, "server": "rs1", "lag_s": 0.0}
    book.write("timeline_get", 10, 11, value=b"b", **shown)
    book.write("replica_get", 10, 11, value=None, **shown)
    book.write("put", 10.5, 20, argument=b"c", timestamp=4)
    book.write("timeline_rows", 10, 11, value=b"c", **shown)
    assert list(lag.check(book.world())) == []


def test_lag_of_an_answer_without_the_row_counts_too() -> None:
    """A delete that nobody has sent cannot have taken the value away."""
    book = Book()
    book.write("put", 2, 3, argument=b"b", timestamp=2)
    book.write("delete", 20, 21, timestamp=3)
    book.write("timeline_get", 10, 11, value=None, stale=True, replica_id=1, server="rs1", lag_s=0.0)
    assert "at most 0.000 s old" in str(next(lag.check(book.world())))


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ((b"a", b"b", b"c"), ""),
        ((b"a", b"c"), "lost row b"),
        ((b"a", b"b", b"b", b"c"), "returned b after b"),
        ((b"b", b"a", b"c"), "returned a after b"),
    ],
)
def test_scans_lose_and_repeat_nothing(rows: tuple[bytes, ...], verdict: str) -> None:
    book = Book()
    book.write("scan", 0, 1, argument=Asked(None, None, False, None), value=rows, expected="complete", row=b"")
    found = [str(violation) for violation in scans.check(book.world(statics=(b"a", b"b", b"c")))]
    assert (verdict in found[0]) if verdict else not found


def test_scan_that_broke_off_owes_only_what_it_passed() -> None:
    book = Book()
    book.write("scan", 0, 1, argument=Asked(None, None, False, None), value=(b"a",), outcome=Status.FAILED, row=b"")
    assert list(scans.check(book.world(statics=(b"a", b"b", b"c")))) == []


@pytest.mark.parametrize(
    ("values", "last", "is_good"),
    [
        ((1, 2, 3), 3, True),
        ((1, 2, 2), 3, False),  # one was counted as another
        ((1, 2, 4), 4, False),  # one was counted twice
        ((1, 2, 3), 2, False),  # one was forgotten
    ],
)
def test_increments_count_exactly(values: tuple[int, ...], last: int, is_good: bool) -> None:
    book = Book()
    increments = [book.write("increment", 2 * n, 2 * n + 1, value=value) for n, value in enumerate(values)]
    read = book.write("counter_get", 100, 101, value=last)
    found = list(counters._check_one(b"n", increments, [read]))
    assert bool(found) is not is_good


def test_an_unknown_increment_counts_once_or_not_at_all() -> None:
    for last, is_good in ((1, True), (2, True), (3, False)):
        book = Book()
        increments = [book.write("increment", 0, 1, value=1), book.write("increment", 2, NEVER)]
        read = book.write("counter_get", 100, 101, value=last)
        assert (not list(counters._check_one(b"n", increments, [read]))) is is_good, last


def test_a_row_of_a_table_that_was_dropped_is_noticed() -> None:
    book = Book()
    book.write("create", 0, 1, table="x", row=b"")
    book.write("table_put", 2, 3, table="x", row=b"1", argument=b"v")
    book.write("drop", 4, 5, table="x", row=b"")
    book.write("table_get", 6, 7, table="x", row=b"1", value=b"v")
    assert "not what this life" in str(next(tables.check(book.world())))


def test_a_table_that_is_there_must_be_found() -> None:
    book = Book()
    book.write("create", 0, 1, table="x", row=b"")
    book.write("table_get", 2, 3, table="x", row=b"1", outcome=Status.FAILED, error=TableNotFound("none"))
    assert "the table existed" in str(next(tables.check(book.world())))


def test_cycle_that_lost_a_node_is_no_cycle() -> None:
    row = whole_cycle()
    assert is_cycle(row)
    assert not is_cycle({**row, column_of(3): b"6"})
    assert not is_cycle({column: value for column, value in row.items() if column != column_of(5)})


def test_outcome_of_a_write_that_may_have_been_applied_is_unknown() -> None:
    history = History(SimRuntime())
    for is_write, may_have_applied, outcome in (
        (True, True, Status.UNKNOWN),
        (True, False, Status.FAILED),
        (False, True, Status.FAILED),
    ):
        operation = history.begin("c", "put")
        operation.is_write = is_write
        history.failed(operation, CallTimeout("late", may_have_applied=may_have_applied))
        assert operation.outcome is outcome


# -- what is told at once ----------------------------------------------------------------------------------------------


@pytest.fixture
def world() -> Any:
    made = World(drawn(5))
    yield made
    made.cluster.close()
    made.runtime.close()


def test_task_that_dies_is_told(world: World) -> None:
    def die() -> None:
        raise KeyError("lost")

    with world.watching_tasks():
        world.runtime.start(die, name="doomed")
        world.runtime.run_for(1.0)
    assert [str(violation) for violation in world.violations] == ["crash: task doomed died of KeyError: 'lost'"]


def test_write_to_a_region_that_cannot_have_the_row_is_told(world: World) -> None:
    world.runtime.run(world._fill)
    place = world.helper.locate("t", b"9-r")
    backend = ObservedBackend(world.cluster, "liar", world.report)
    backend._check_range(place, b"0-r")
    assert [violation.checker for violation in world.violations] == ["ownership"]


def test_lock_that_its_task_never_released_is_told(world: World) -> None:
    lock = world.runtime.lock()

    def leave() -> None:
        lock.acquire()

    world.runtime.start(leave, name="careless")
    found = world.runtime.run(lambda: [str(violation) for violation in leaks.check(world)])
    assert found == ["leaks: a lock is held by careless, which has ended"]


def test_error_of_an_operation_is_kept_without_the_frames_of_its_call() -> None:
    history = History(SimRuntime())
    operation = history.begin("c", "put")
    try:
        try:
            raise CallTimeout("late")
        except CallTimeout as error:
            raise TableNotFound("gone") from error
    except TableNotFound as error:
        history.failed(operation, error)
    assert isinstance(operation.error, TableNotFound)
    assert isinstance(operation.error.__cause__, CallTimeout)
    assert (operation.error.__traceback__, operation.error.__cause__.__traceback__) == (None, None)


# -- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "is_wrong"), [(1, True), (2, False)])
def test_no_such_replica_is_believed_only_where_there_may_be_none(asked: int, is_wrong: bool) -> None:
    """Of a table that is altered from three replicas to two, replica 2 may be missing, and replica 1 may not."""
    counts = ReplicaCounts()
    counts.began("t", 3, 2, at_s=5.0)
    operation = Operation(0, "c", "replica_get", "t", b"r", 6.0)
    operation.expected, operation.returned_at, operation.error = asked, 7.0, NoSuchReplica("there is none")
    world: Any = SimpleNamespace(
        clients=[], history=[operation], tables=("t",), misled=set, injector=SimpleNamespace(replica_counts=counts)
    )
    assert [found.checker for found in errors.check(world)] == (["errors"] if is_wrong else [])


# -- deadlines and budgets ---------------------------------------------------------------------------------------------


def client_with(calls: list[SeenCall], **config: Any) -> Any:
    config = {"operation_timeout_s": 6.0, **config}
    connection = SimpleNamespace(config=SimpleNamespace(**config))
    return SimpleNamespace(name="c", connection=connection, backend=SimpleNamespace(calls=calls))


def late_calls(pauses: LinePauses) -> list[str]:
    """What the checker of deadlines says of an operation of 6 s that took 6.3 s."""
    book = Book()
    book.write("get", 1.0, 7.3)
    world = book.world(pauses=pauses, runtime=SimRuntime())
    world.clients.append(client_with([]))
    return [violation.message for violation in deadlines.check(world)]


def test_a_late_operation_is_excused_by_pauses_that_fell_into_it_alone() -> None:
    pauses = LinePauses(0.1, 0.4)
    assert len(late_calls(pauses)) == 1
    pauses.spans += [(0.5, 0.9), (7.2, 7.4), (9.0, 9.4)]
    assert len(late_calls(pauses)) == 1, "0.1 s of pauses are in it, and it is late by 0.3 s"
    pauses.spans.append((3.0, 3.25))
    assert late_calls(pauses) == []


def seen_call(begun: float, ended: float, deadline: float, replica_id: int) -> SeenCall:
    call = SeenCall(0, replica_id, "rs1", begun, deadline)
    call.ended = ended
    return call


@pytest.mark.parametrize(("deadline", "is_good"), [(0.5, True), (2.0, False)])
def test_a_leg_that_is_paused_beyond_its_deadline_does_not_hold_up_the_next_race(
    deadline: float, is_good: bool
) -> None:
    """The client gives a leg up at its deadline, and a paused leg ends later."""
    book = Book()
    operation = book.write("timeline_get", 0.0, 1.0)
    legs = [(0.0, 0.4, 0.5, 0), (0.1, 0.8, deadline, 1), (0.6, 0.7, 1.1, 0)]
    calls = [seen_call(begun, ended, until, replica) for begun, ended, until, replica in legs]
    for call in calls:
        call.operation = operation.number
    world = book.world()
    world.clients.append(client_with(calls, hedge_budget_burst=9, hedge_budget=1.0, retry_budget_burst=9))
    assert (list(budgets.check(world)) == []) is is_good


def test_an_answer_of_a_zombie_to_the_second_connection_of_a_client_is_known_as_one() -> None:
    """Found by seed 56, with pauses in the storage: only the answers to first connections were looked at."""
    world = World(dataclasses.replace(drawn(0), clients=(ClientSpec(0, "tables"),)))
    try:
        client = Tables(world, world.spec.clients[0])
        world.clients = [client]
        asked = world.history.begin(client.name, "table_get", "x0-1", b"1")
        asked.group = asked.number
        assert world.misled() == set()
        client._bystander_backend.zombie_operations.add(asked.number)
        assert world.misled() == {asked.number}
    finally:
        world.cluster.close()
        world.runtime.close()


# -- sessions ----------------------------------------------------------------------------------------------------------


def test_session_may_not_go_back_in_time_but_another_session_may_be_behind() -> None:
    book = Book()
    book.write("put", 0, 1, argument=b"a", timestamp=1)
    book.write("put", 2, 3, argument=b"b", timestamp=2)
    book.write("timeline_get", 4, 5, value=b"b", session="s/1")
    book.write("timeline_get", 6, 7, value=b"a", session="s/2")
    assert list(sessions.check(book.world())) == []
    bad = book.write("session_scan", 8, 9, value=b"a", session="s/1")
    found = list(sessions.check(book.world()))
    assert [one.operations[-1] for one in found] == [bad.number]
    assert "went back in time" in str(found[0])


@pytest.mark.parametrize(
    ("returned_at", "seen", "is_good"),
    [(3, b"a", False), (3, None, False), (3, b"b", True), (3, b"c", True), (NEVER, b"a", True)],
)
def test_session_must_see_its_own_write_unless_the_write_is_unknown(
    returned_at: float, seen: bytes | None, is_good: bool
) -> None:
    book = Book()
    book.write("put", 0, 1, argument=b"a", timestamp=1)
    book.write("put", 2, returned_at, argument=b"b", timestamp=2, session="s/1")
    book.write("put", 2, 3, argument=b"c", timestamp=3)
    book.write("timeline_get", 4, 5, value=seen, session="s/1")
    assert (not list(sessions.check(book.world()))) is is_good


def test_session_that_finds_nothing_needs_a_delete_that_is_not_older_than_what_it_saw() -> None:
    book = Book()
    book.write("delete", 0, 1, timestamp=1)
    book.write("put", 2, 3, argument=b"a", timestamp=2)
    book.write("timeline_get", 4, 5, value=b"a", session="s/1")
    book.write("timeline_missing", 6, 7, session="s/1")
    assert len(list(sessions.check(book.world()))) == 1
    book.write("delete", 5, 6, timestamp=3)
    assert list(sessions.check(book.world())) == []
    book.write("timeline_get", 8, 9, value=b"a", session="s/1")
    assert len(list(sessions.check(book.world()))) == 1
