"""Whose turn it is, and who is out: the gateways of a backend on virtual time, with connections that nobody dials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from metaclient.errors import ServerUnreachable
from metaclient.runtime import Condition, SimRuntime, Task, ThreadRuntime
from metaclient_thrift.gateways import OUT_S, SILENT_CALLS_MAX, DropCause, Gateways, Loan
from metaclient_thrift.link import Link
from metaclient_thrift.url import Gateway

HUNG, ALIVE = Gateway("hung"), Gateway("alive")


@pytest.fixture
def runtime() -> Iterator[SimRuntime]:
    made = SimRuntime(seed=1)
    yield made
    made.close()


class Rig:
    """Two gateways; ``dead`` ones cannot be connected to."""

    def __init__(self, runtime: SimRuntime, connections_max: int = 1000) -> None:
        self.runtime = runtime
        self.dead: set[Gateway] = set()
        self.gateways = Gateways([HUNG, ALIVE], self._dial, runtime=runtime, connections_max=connections_max)

    def _dial(self, gateway: Gateway, deadline: float) -> Link:
        if gateway in self.dead:
            raise ServerUnreachable(f"{gateway} is dead")
        stream = SimpleNamespace(close=lambda: None, is_usable=lambda: gateway not in self.dead)
        return Link(gateway, cast("Any", stream), None)

    def borrowed(self, calls: int) -> list[Loan]:
        """Calls that are all under way at once."""
        return [self.gateways.borrow(Loan(), self.runtime.now() + 60) for _ in range(calls)]

    def wait(self, only: Gateway | None = None) -> Task[Loan]:
        """Start a caller; it waits if all connections are in use."""
        until = self.runtime.now() + 60
        waiting = self.runtime.start(self.gateways.borrow, Loan(), until, only)
        self.runtime.run_for(0)
        return waiting

    def hang(self) -> None:
        """The gateway does not answer, and is put out."""
        for link in self.borrowed(2 * SILENT_CALLS_MAX):
            if link.gateway == HUNG:
                self.gateways.drop(link, DropCause.SILENT)
            else:
                self.gateways.give_back(link)
        assert self.is_out()

    def is_out(self) -> bool:
        return bool(self.gateways.status()[str(HUNG)]["is_out"])


def test_gateway_whose_time_is_over_is_tried_by_one_call_and_not_by_all(runtime: SimRuntime) -> None:
    rig = Rig(runtime)
    rig.hang()
    runtime.run_for(OUT_S)
    assert Counter(link.gateway for link in rig.borrowed(50)) == {ALIVE: 49, HUNG: 1}
    runtime.run_for(2 * OUT_S)  # it still hangs: the next try comes after twice the time
    assert Counter(link.gateway for link in rig.borrowed(50)) == {ALIVE: 49, HUNG: 1}
    runtime.run_for(3 * OUT_S)
    assert Counter(link.gateway for link in rig.borrowed(50)) == {ALIVE: 50}


def test_gateway_that_answers_the_one_call_is_in_again(runtime: SimRuntime) -> None:
    rig = Rig(runtime)
    rig.hang()
    runtime.run_for(OUT_S)
    tried = next(link for link in rig.borrowed(2) if link.gateway == HUNG)
    assert rig.is_out()
    rig.gateways.give_back(tried)
    assert not rig.is_out()
    assert Counter(link.gateway for link in rig.borrowed(50)) == {ALIVE: 25, HUNG: 25}


def test_try_that_fails_counts_once(runtime: SimRuntime) -> None:
    rig = Rig(runtime)
    rig.hang()
    rig.dead.add(HUNG)
    for out_s in (OUT_S, 2 * OUT_S, 4 * OUT_S):
        runtime.run_for(out_s)
        rig.borrowed(10)
        assert rig.is_out()
    assert rig.gateways.status()[str(HUNG)]["failures"] == 4


def test_all_out_means_that_whoever_comes_back_first_is_asked(runtime: SimRuntime) -> None:
    rig = Rig(runtime)
    rig.hang()
    rig.dead.add(ALIVE)
    assert Counter(link.gateway for link in rig.borrowed(10)) == {HUNG: 10}


def test_callers_that_try_again_at_once_wait_while_connections_are_closed() -> None:
    """Hundreds of callers that spin on ConnectionClosed would take the GIL at each close of a socket."""
    was_locked: list[bool] = []

    def dial(gateway: Gateway, deadline: float) -> Link:
        stream = SimpleNamespace(close=lambda: was_locked.append(cast("Any", gateways._lock).locked()))
        return Link(gateway, cast("Any", stream), None)

    with ThreadRuntime() as threads:
        gateways = Gateways([ALIVE], dial, runtime=threads, connections_max=2)
        gateways.borrow(Loan(), threads.now() + 60)
        gateways.close()
    assert was_locked == [True]


def test_caller_that_borrows_again_at_once_does_not_overtake_the_waiting_callers(runtime: SimRuntime) -> None:
    rig = Rig(runtime, connections_max=1)
    held = rig.borrowed(2)
    waiting = [rig.wait() for _ in range(3)]
    rig.gateways.give_back(held[0])
    again = rig.wait()  # comes before the first waiting caller could run
    runtime.run_for(0)
    assert [one.is_done for one in (*waiting, again)] == [True, False, False, False]
    rig.gateways.give_back(held[1])
    rig.gateways.give_back(waiting[0].result())
    runtime.run_for(0)
    assert [one.is_done for one in (*waiting, again)] == [True, True, True, False]


def test_returned_connection_wakes_one_caller_and_not_all(runtime: SimRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float | None] = []
    wait = Condition.wait
    monkeypatch.setattr(Condition, "wait", lambda self, deadline: waits.append(deadline) or wait(self, deadline))
    rig = Rig(runtime, connections_max=1)
    held = rig.borrowed(2)
    for _ in range(50):
        rig.wait()
    assert len(waits) == 50
    for loan in held:
        rig.gateways.give_back(loan)
    runtime.run_for(0)
    assert len(waits) == 50  # a caller that is woken in vain waits again


def test_caller_of_a_scanner_is_not_kept_behind_callers_that_cannot_be_served(runtime: SimRuntime) -> None:
    rig = Rig(runtime, connections_max=1)
    held = {loan.gateway: loan for loan in rig.borrowed(2)}
    first, scanner = rig.wait(), rig.wait(only=HUNG)
    rig.gateways.drop(held[HUNG], DropCause.BROKEN)  # ejected: only a caller that needs this gateway uses it
    runtime.run_for(0)
    assert scanner.result().gateway == HUNG
    assert not first.is_done
    rig.gateways.give_back(held[ALIVE])
    runtime.run_for(0)
    assert first.result().gateway == ALIVE


def test_waiting_caller_does_not_get_the_gateway_that_broke(runtime: SimRuntime) -> None:
    rig = Rig(runtime, connections_max=1)
    held = {loan.gateway: loan for loan in rig.borrowed(2)}
    waiting = rig.wait()
    rig.gateways.drop(held[HUNG], DropCause.BROKEN)
    runtime.run_for(0)
    assert not waiting.is_done
    rig.gateways.give_back(held[ALIVE])
    runtime.run_for(0)
    assert waiting.result().gateway == ALIVE


def test_interrupt_before_the_waiting_caller_is_woken_leaves_it_not_asleep(
    runtime: SimRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(runtime, connections_max=1)
    held = rig.borrowed(2)
    waiting = rig.wait()

    def interrupted(self: Condition, n: int = 1) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(Condition, "notify", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rig.gateways.give_back(held[0])
    rig.gateways.drop(held[0])  # as every caller does after an exception
    runtime.run_for(0)
    assert waiting.is_done
    assert waiting.result().link is held[0].link


def test_caller_interrupted_while_it_is_served_passes_its_turn_on(runtime: SimRuntime) -> None:
    rig = Rig(runtime, connections_max=1)
    held = rig.borrowed(2)
    interrupted = Loan()
    runtime.start(rig.gateways.borrow, interrupted, runtime.now() + 60)
    runtime.run_for(0)
    following = rig.wait()
    rig.gateways.give_back(held[0])
    rig.gateways.drop(interrupted)  # lent, but it has not run since: an exception ended its wait
    runtime.run_for(0)
    assert following.is_done
    assert rig.gateways.status()[str(following.result().gateway)]["in_use"] == 1
