"""Batches: what is sent when, what stands after a failure, and what may be sent again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from metaclient.backend import Action, Capabilities, Outcome
from metaclient.calls import multi
from metaclient.connection import Connection, connect_to
from metaclient.errors import (
    BackendFault,
    BatchError,
    CallQueueTooBig,
    CallTimeout,
    ConnectionClosed,
    MetaClientError,
    NoSuchFamily,
    NotServingRegion,
    RegionTooBusy,
    RetriesExhausted,
    Throttled,
)
from metaclient.model import Append, Delete, Increment, Put, RowMutations
from metaclient.runtime import SimRuntime
from metaclient.testing import ScriptedBackend

ROWS = [b"a", b"b", b"h", b"q"]


@pytest.fixture
def runtime() -> Iterator[SimRuntime]:
    with SimRuntime(seed=1) as made:
        yield made


@pytest.fixture
def backend(runtime: SimRuntime) -> ScriptedBackend:
    made = ScriptedBackend(runtime)
    made.add_table("t", splits=[b"g", b"p"])
    return made


def connected(backend: ScriptedBackend, **options: Any) -> Connection:
    return connect_to(backend, runtime=backend.runtime, **options)


def sent(backend: ScriptedBackend) -> list[list[bytes]]:
    return [[action.operation.row for action in call.argument] for call in backend.calls if call.method == "batch"]


def answer(backend: ScriptedBackend, **of_row: Any) -> None:
    """Each named row answers this error; the others tell the truth. One rule, so that it can be cleared."""

    def outcomes(actions: list[Action]) -> list[Outcome]:
        return [
            of_row[action.operation.row.decode()]()
            if action.operation.row.decode() in of_row
            else backend._outcome(b"t", action)
            for action in actions
        ]

    backend.on("batch").answers(outcomes)


# -- happybase's shape -----------------------------------------------------------------------------------------


def test_batch_is_sent_at_the_end_of_the_block_one_call_a_server(backend: ScriptedBackend) -> None:
    table = connected(backend).table("t")
    with table.batch() as batch:
        for row in ROWS:
            batch.put(row, {b"cf:a": row})
        assert sent(backend) == []
    assert sorted(sent(backend)) == [[b"a", b"b"], [b"h"], [b"q"]]
    assert [key for key, _ in table.scan()] == ROWS


def test_batch_size_counts_cells(backend: ScriptedBackend) -> None:
    """happybase: the weight of a put is its number of columns."""
    batch = connected(backend).table("t").batch(batch_size=4)
    batch.put(b"a", {b"cf:a": b"1", b"cf:b": b"2"})
    batch.put(b"b", {b"cf:a": b"1"})
    assert sent(backend) == []
    batch.delete(b"b", [b"cf:a"])
    assert sent(backend) == [[b"a", b"b"]]
    batch.send()
    assert len(sent(backend)) == 1


def test_error_in_the_block_sends_unless_it_is_a_transaction(backend: ScriptedBackend) -> None:
    table = connected(backend).table("t")
    for transaction, expected in ((True, {}), (False, {b"cf:a": b"1"})):
        with pytest.raises(KeyError), table.batch(transaction=transaction) as batch:
            batch.put(b"a", {b"cf:a": b"1"})
            raise KeyError("the user's own")
        assert table.row(b"a") == expected


def test_mutations_of_one_row_keep_their_order(backend: ScriptedBackend) -> None:
    """A put after a delete stays, a put before it goes; happybase's gateway does all puts first."""
    table = connected(backend).table("t")
    table.put(b"a", {b"cf:old": b"1"})
    with table.batch() as batch:
        batch.delete(b"a", [b"cf:old"])
        batch.put(b"a", {b"cf:new": b"1"})
        batch.put(b"b", {b"cf:a": b"1"})
        batch.delete(b"b")
    assert table.row(b"a") == {b"cf:new": b"1"}
    assert table.row(b"b") == {}
    (actions,) = [call.argument for call in backend.calls if call.method == "batch"]
    assert [type(action.operation) for action in actions] == [RowMutations, RowMutations]


def test_puts_of_one_row_become_one_put_and_the_last_value_wins(backend: ScriptedBackend) -> None:
    table = connected(backend).table("t")
    with table.batch(timestamp=7) as batch:
        batch.put(b"a", {b"cf:a": b"1", b"cf:b": b"1"})
        batch.put(b"a", {b"cf:a": b"2"})
    assert table.row(b"a", include_timestamp=True) == {b"cf:a": (b"2", 7), b"cf:b": (b"1", 7)}
    (actions,) = [call.argument for call in backend.calls if call.method == "batch"]
    assert [type(action.operation) for action in actions] == [Put]


def test_wal_of_the_batch_can_be_overridden(backend: ScriptedBackend) -> None:
    table = connected(backend).table("t")
    with table.batch(wal=False) as batch:
        batch.put(b"a", {b"cf:a": b"1"})
        batch.put(b"b", {b"cf:a": b"1"}, wal=True)
    (actions,) = [call.argument for call in backend.calls if call.method == "batch"]
    assert [action.operation.durability.name for action in actions] == ["SKIP_WAL", "USE_DEFAULT"]


def test_backend_without_row_mutations_gets_them_one_by_one(runtime: SimRuntime) -> None:
    backend = ScriptedBackend(runtime, capabilities=Capabilities(row_mutations=False))
    backend.add_table("t")
    with connected(backend).table("t").batch() as batch:
        batch.put(b"a", {b"cf:a": b"1"})
        batch.delete(b"a", [b"cf:b"])
    (actions,) = [call.argument for call in backend.calls if call.method == "batch"]
    assert [type(action.operation) for action in actions] == [Put, Delete]


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"batch_size": 0}, ValueError, "batch_size"),
        ({"batch_size": -1}, ValueError, "batch_size"),
        ({"batch_size": "2"}, TypeError, "batch_size"),
        ({"batch_size": 2, "transaction": True}, TypeError, "transaction"),
        ({"timestamp": "now"}, TypeError, "timestamp"),
        ({"timestamp": -1}, ValueError, "timestamp"),
    ],
)
def test_wrong_options_are_named(backend: ScriptedBackend, options: Any, error: type[Exception], named: str) -> None:
    with pytest.raises(error, match=named):
        connected(backend).table("t").batch(**options)


def test_empty_batch_costs_nothing(backend: ScriptedBackend) -> None:
    with connected(backend).table("t").batch():
        pass
    assert backend.count("batch") == 0


# -- failures --------------------------------------------------------------------------------------------------


def test_failed_rows_are_named_and_the_others_stand(backend: ScriptedBackend) -> None:
    table = connected(backend).table("t")
    with pytest.raises(BatchError, match=r"1 of 3 rows.*NoSuchFamily") as caught, table.batch() as batch:
        batch.put(b"a", {b"cf:a": b"1"})
        batch.put(b"b", {b"nope:a": b"1"})
        batch.put(b"q", {b"cf:a": b"1"})
    assert {row: type(error) for row, error in caught.value.failed.items()} == {b"b": NoSuchFamily}
    assert not caught.value.may_have_applied
    assert [key for key, _ in table.scan()] == [b"a", b"q"]


def test_failed_rows_stay_in_the_batch_and_can_be_sent_again(backend: ScriptedBackend) -> None:
    """happybase keeps a batch that failed: sending it again must not be a silent loss."""
    table = connected(backend, retries=0).table("t")
    batch = table.batch()
    for row in ROWS:
        batch.put(row, {b"cf:a": row})
    answer(backend, b=lambda: CallQueueTooBig("full"), q=lambda: CallTimeout("late"))
    with pytest.raises(BatchError) as caught:
        batch.send()
    assert set(caught.value.failed) == {b"b", b"q"}
    backend.clear_rules()
    backend.calls.clear()
    batch.send()
    assert sorted(sent(backend)) == [[b"b"], [b"q"]]
    batch.send()
    assert [key for key, _ in table.scan()] == ROWS
    assert len(sent(backend)) == 2


def test_batch_on_a_closed_connection_keeps_its_rows(backend: ScriptedBackend) -> None:
    connection = connect_to(backend, runtime=backend.runtime, owns_backend=False)
    batch = connection.table("t").batch()
    batch.put(b"a", {b"cf:a": b"1"})
    connection.close()
    for _ in range(2):
        with pytest.raises(ConnectionClosed):
            batch.send()


def test_only_failed_rows_are_sent_again_after_a_move(backend: ScriptedBackend) -> None:
    """Only failed rows resent, order kept; they may go to another server."""
    table = connected(backend).table("t")
    table.rows(ROWS)
    backend.calls.clear()
    backend.move(b"t", b"a", backend.servers[2])
    with table.batch() as batch:
        for row in ROWS:
            batch.put(row, {b"cf:a": row})
    calls = [
        (call.server, [action.operation.row for action in call.argument])
        for call in backend.calls
        if call.method == "batch"
    ]
    assert sorted(calls[:3]) == [
        (backend.servers[0], [b"a", b"b"]),
        (backend.servers[1], [b"h"]),
        (backend.servers[2], [b"q"]),
    ]
    assert calls[3:] == [(backend.servers[2], [b"a", b"b"])]
    assert [key for key, _ in table.scan()] == ROWS


def test_group_that_was_split_is_sent_to_both_daughters(backend: ScriptedBackend) -> None:
    """Tries are inherited: the attempts of both rounds are in one list."""
    table = connected(backend, retries=1).table("t")
    table.rows(ROWS)
    backend.split(b"t", b"b")
    answer(backend, b=lambda: NotServingRegion("always"))
    with pytest.raises(BatchError) as caught, table.batch() as batch:
        for row in ROWS:
            batch.put(row, {b"cf:a": row})
    assert set(caught.value.failed) == {b"b"}
    assert len(caught.value.failed[b"b"].attempts) == 2
    assert isinstance(caught.value.failed[b"b"], RetriesExhausted)


def test_response_that_was_full_is_continued_at_once_without_a_try(backend: ScriptedBackend) -> None:
    """Big results arrive in several rounds, no try is consumed, no pause is made."""
    table = connected(backend, retries=0).table("t")
    keys = [b"a%02d" % number for number in range(20)]
    for key in keys:
        table.put(key, {b"cf:a": key})
    begun = backend.runtime.now()

    def two_at_a_time(actions: list[Action]) -> list[Outcome]:
        full: list[Outcome] = [CallQueueTooBig("response is full") for _ in actions[2:]]
        return [*(backend._outcome(b"t", action) for action in actions[:2]), *full]

    backend.on("batch").answers(two_at_a_time)
    assert [key for key, _ in table.rows(keys)] == keys
    assert backend.count("batch") == 10
    assert backend.runtime.now() == begun


def test_busy_region_is_not_hammered(backend: ScriptedBackend) -> None:
    """A round without progress pauses and costs a try."""
    table = connected(backend, retries=2).table("t")
    answer(backend, a=lambda: RegionTooBusy("memstore"))
    with pytest.raises(BatchError), table.batch() as batch:
        batch.put(b"a", {b"cf:a": b"1"})
        batch.put(b"b", {b"cf:a": b"1"})
    assert sent(backend) == [[b"a", b"b"], [b"a"], [b"a"], [b"a"]]
    assert backend.runtime.now() > 0.1


def test_throttled_rows_wait_as_long_as_the_server_asks(backend: ScriptedBackend) -> None:
    table = connected(backend).table("t")
    once = iter([Throttled("quota", wait_s=3.0)])
    answer(backend, a=lambda: next(once, None))
    with table.batch() as batch:
        batch.put(b"a", {b"cf:a": b"1"})
        batch.put(b"b", {b"cf:a": b"1"})
    assert backend.runtime.now() == 3.0


@pytest.mark.parametrize("outcomes", [None, [], [None], [None] * 5, 7, {"a": 1}])
def test_wrong_number_of_outcomes_is_the_backends_fault(backend: ScriptedBackend, outcomes: Any) -> None:
    """A backend that lies: a clear error with attempts for each row, all of which may have been applied."""
    table = connected(backend, retries=1).table("t")
    backend.on("batch").answers(lambda _: outcomes)
    with pytest.raises(BatchError) as caught, table.batch() as batch:
        batch.put(b"a", {b"cf:a": b"1"})
        batch.put(b"b", {b"cf:a": b"1"})
    for error in caught.value.failed.values():
        assert error.may_have_applied
        assert len(error.attempts) == 2
        assert isinstance(error.__cause__, BackendFault)


@pytest.mark.parametrize("outcome", [None, 5, "row"])
def test_read_that_answers_no_result_is_no_empty_row(backend: ScriptedBackend, outcome: Any) -> None:
    """None for a get is a lie, not "no such row"."""
    table = connected(backend, retries=1).table("t")
    backend.on("batch").answers(lambda actions: [outcome] * len(actions))
    with pytest.raises(RetriesExhausted, match="where Result belongs"):
        table.rows([b"a", b"b"])


def test_change_in_a_batch_that_may_have_been_applied_is_not_repeated(backend: ScriptedBackend) -> None:
    connection = connected(backend)
    answer(backend, a=lambda: CallTimeout("late"), b=lambda: CallTimeout("late"))
    operations = [
        Increment(b"a", ((b"cf:n", 1),)),
        Append(b"b", ((b"cf:n", b"1"),)),
        Increment(b"h", ((b"cf:n", 1),)),
    ]
    first, second, third = multi.batch(connection.engine.operations, b"t", operations)
    assert isinstance(first, CallTimeout)
    assert isinstance(second, CallTimeout)
    assert first.may_have_applied
    assert second.may_have_applied
    assert not isinstance(third, MetaClientError)
    assert backend.count("batch") == 2


def test_whole_call_that_fails_is_repeated_with_all_its_rows(backend: ScriptedBackend) -> None:
    table = connected(backend).table("t")
    backend.on("batch", server=backend.servers[0], times=2).raises(lambda: CallQueueTooBig("full"))
    with table.batch() as batch:
        for row in ROWS:
            batch.put(row, {b"cf:a": row})
    assert [key for key, _ in table.scan()] == ROWS


def test_closing_in_mid_batch_says_that_it_may_have_been_applied(backend: ScriptedBackend) -> None:
    connection = connected(backend)
    table = connection.table("t")
    backend.on("batch").hangs()
    batch = table.batch()
    batch.put(b"a", {b"cf:a": b"1"})
    task = backend.runtime.start(batch.send)
    backend.runtime.call_later(0.5, connection.close)
    with pytest.raises(ConnectionClosed) as caught:
        task.result()
    assert caught.value.may_have_applied
