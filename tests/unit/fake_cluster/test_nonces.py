"""A change that is sent twice counts once, whatever becomes of the first attempt (ServerNonceManager)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from metaclient.errors import CallTimeout, Overloaded, RequestRefused, ServerStopped
from metaclient.model import Append, Check, Increment
from metaclient.runtime import SimRuntime, Task
from metaclient_fake.server import nonces as nonces_module
from metaclient_fake.server.data_calls import DataCalls
from metaclient_fake.server.nonces import CONFLICT_WAIT_S, GRACE_S, Nonces

ADD = Increment(b"r", ((b"f:n", 5),), nonce=7)


def total(world: Any, row: bytes = b"r", column: bytes = b"f:n") -> int:
    cells = world.get(b"t", row).cells
    return int.from_bytes(next(cell.value for cell in cells if cell.column == column), "big") if cells else 0


class Log:
    """The log of the server at which the table's only region is: its next sync can be held up and be made to fail."""

    def __init__(self, world: Any) -> None:
        self.place = world.place(b"t")
        self._runtime = world.runtime
        self._wal = world.cluster.servers_by_host[self.place.server.host].wal

    def hold_next_sync(self, seconds: float, error: Exception | None = None) -> None:
        def hold() -> None:
            self._wal.before_sync = None
            self._runtime.sleep(seconds)
            if error is not None:
                raise error

        self._wal.before_sync = hold


@pytest.fixture
def log(world: Any) -> Log:
    world.create(b"t")
    return Log(world)


def send_twice(world: Any, log: Log) -> tuple[Task[Any], Task[Any]]:
    """The second attempt arrives while the first one waits for its sync."""

    def send() -> Any:
        return world.backend.mutate(log.place, b"t", ADD, world.deadline(60))

    first = world.runtime.start(send, name="first")
    world.runtime.sleep(0.1)
    second = world.runtime.start(send, name="second")
    world.runtime.sleep(0.1)
    return first, second


def test_repetition_during_a_first_attempt_that_fails_is_applied(world: Any, log: Log) -> None:
    """It used to be answered with the current value, as if the first attempt had been applied."""
    log.hold_next_sync(1.0, RequestRefused("no space left"))
    first, second = send_twice(world, log)
    with pytest.raises(RequestRefused, match="no space left"):
        first.result(world.deadline())
    answer = second.result(world.deadline())
    assert answer.cells[0].value == (5).to_bytes(8, "big")
    assert total(world) == 5


def test_repetition_during_a_first_attempt_waits_for_it_and_counts_once(world: Any, log: Log) -> None:
    log.hold_next_sync(1.0)
    first, second = send_twice(world, log)
    assert not second.is_done
    values = [task.result(world.deadline()).cells[0].value for task in (first, second)]
    assert values == [(5).to_bytes(8, "big")] * 2
    assert total(world) == 5


def test_same_nonce_of_two_groups_counts_twice(world: Any, log: Log) -> None:
    server = world.cluster.servers_by_host[log.place.server.host]
    for group in (1, 2, 1, 2):
        world.backend.at_server(
            server.name, DataCalls.mutate, log.place.region_name, ADD, group, deadline=world.deadline()
        )
    assert total(world) == 10


def test_recovered_log_keeps_the_groups_apart(world: Any, log: Log) -> None:
    def send(group: int) -> None:
        place = world.place(b"t")
        world.backend.at_server(
            place.server, DataCalls.mutate, place.region_name, ADD, group, deadline=world.deadline()
        )

    send(1)
    world.cluster.kill(log.place.server.host)
    world.runtime.sleep(30)
    send(1)
    assert total(world) == 5
    send(2)
    assert total(world) == 10


def test_repeated_check_and_increment_counts_once_and_a_failed_check_uses_up_no_nonce(world: Any, log: Log) -> None:
    check, other = Check(b"r", b"f:go", b"yes"), Append(b"r", ((b"f:go", b"yes"),), nonce=8)

    def send() -> bool:
        return bool(world.backend.check_and_mutate(log.place, b"t", check, ADD, world.deadline()))

    assert not send()
    world.backend.mutate(log.place, b"t", other, world.deadline())
    assert [send(), send()] == [True, True]
    assert total(world) == 5


def run(body: Callable[[SimRuntime], None]) -> None:
    with SimRuntime(1) as runtime:
        runtime.run(body, runtime)


def test_repetition_does_not_wait_for_ever() -> None:
    def body(runtime: SimRuntime) -> None:
        nonces = Nonces(runtime)
        runtime.start(lambda: nonces.once((0, 7), lambda _: runtime.sleep(2 * CONFLICT_WAIT_S)))
        runtime.sleep(1)
        begun = runtime.now()
        with pytest.raises(CallTimeout, match="still running") as caught:
            nonces.once((0, 7), lambda is_repetition: None)
        assert caught.value.may_have_applied
        assert runtime.now() - begun == pytest.approx(CONFLICT_WAIT_S)

    run(body)


def test_repetition_that_waits_learns_that_the_server_has_stopped() -> None:
    def body(runtime: SimRuntime) -> None:
        stopped: list[bool] = []
        nonces = Nonces(runtime, is_stopped=lambda: bool(stopped))
        runtime.start(lambda: nonces.once((0, 7), lambda _: runtime.sleep(20)))
        runtime.sleep(1)
        waiting = runtime.start(lambda: nonces.once((0, 7), lambda is_repetition: is_repetition))
        runtime.sleep(1)
        stopped.append(True)
        nonces.wake()
        with pytest.raises(ServerStopped):
            waiting.result(runtime.now() + 1)

    run(body)


def test_nonces_are_forgotten_after_their_time_and_never_more_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nonces_module, "NONCES_MAX", 3)

    def body(runtime: SimRuntime) -> None:
        nonces = Nonces(runtime)
        for nonce in range(3):
            assert nonces.once((0, nonce), lambda is_repetition: is_repetition) is False
        with pytest.raises(Overloaded, match="3 nonces"):
            nonces.once((0, 9), lambda is_repetition: is_repetition)
        assert nonces.once((0, 0), lambda is_repetition: is_repetition) is True, "known ones are still known"
        runtime.sleep(GRACE_S + 1)
        assert nonces.once((0, 9), lambda is_repetition: is_repetition) is False
        assert len(nonces) == 1

    run(body)
