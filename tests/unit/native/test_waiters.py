"""Every call ends for everybody who waits for it: at limits, behind nonsense, when interrupted, out of order."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from metaclient.errors import CallTimeout, MetaClientError, ServerUnreachable
from metaclient.runtime import Pending, ThreadRuntime
from metaclient.wire.rpc import framing
from metaclient.wire.rpc.framing import Response
from metaclient.wire.stream import dial
from metaclient_native import connection as connection_module
from metaclient_native.connection import Connection, PendingCall
from metaclient_native.connections import Connections
from metaclient_native.request import Request, ServiceAddress
from metaclient_native.security import Security
from tests.unit.native.peer import WAIT_S, Caller, Peer, echo, serving, text
from tests.unit.reply_proxy import Fate, ReplyProxy

#: A clock that jumps by so much has passed every deadline of these tests.
JUMP_S = 10_000.0


@pytest.fixture
def connections(runtime: ThreadRuntime) -> Iterator[Connections]:
    made = Connections(runtime, Security("tester"))
    yield made
    made.close()


def call(
    connections: Connections,
    port: int,
    param: bytes,
    deadline: float,
    *,
    decode: Callable[[Response], bytes] = text,
    is_write: bool = False,
) -> PendingCall[bytes]:
    return connections.call(
        ServiceAddress("127.0.0.1", port, "ClientService"),
        Request(b"Get", param, decode, deadline, "Get", is_write=is_write),
    )


def connected(connections: Connections, peer: Peer, runtime: ThreadRuntime) -> Connection:
    """A connection that has answered; its task waits long in a read, and finds nothing overdue by itself."""
    until = runtime.now() + WAIT_S
    assert call(connections, peer.port, b"first", until).result(until) == b"first"
    (made,) = connections._open.values()
    return made


def outcome_of(call: Pending[Any], runtime: ThreadRuntime) -> Pending[BaseException | None]:
    """What a callback is told; nobody reads the answer in its own thread."""
    told: Pending[BaseException | None] = runtime.pending()
    call.on_done(lambda done: told.complete(done.error()))
    return told


def mute(caller: Caller) -> None:
    """Answers what begins with anything but ``mute``."""
    while True:
        request = caller.request()
        if not request.param.startswith(b"mute"):
            caller.answer(request.call_id, request.param)


def test_overdue_call_at_the_limit_of_calls_in_flight_is_failed_not_forgotten(
    runtime: ThreadRuntime, connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "CALLS_MAX", 2)
    monkeypatch.setattr(connection_module, "ROUND_S", WAIT_S)
    with serving(runtime, mute) as peer:
        connection = connected(connections, peer, runtime)
        soon = runtime.now() + 1.0
        told = [
            outcome_of(call(connections, peer.port, b"mute", soon, is_write=is_write), runtime)
            for is_write in (True, False)
        ]
        connection._now = lambda: runtime.now() + JUMP_S
        call(connections, peer.port, b"one more", runtime.now() + JUMP_S + WAIT_S)
        errors = [one.result(runtime.now() + WAIT_S) for one in told]
    assert [type(error) for error in errors] == [CallTimeout, CallTimeout]
    assert [error.may_have_applied for error in errors if isinstance(error, MetaClientError)] == [True, False]


def test_overdue_call_is_failed_while_answers_to_other_calls_keep_coming(
    runtime: ThreadRuntime, connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "ROUND_S", WAIT_S)
    with serving(runtime, mute) as peer:
        connection = connected(connections, peer, runtime)
        told = outcome_of(call(connections, peer.port, b"mute", runtime.now() + 1.0), runtime)
        connection._now = lambda: runtime.now() + JUMP_S
        # A call with so much time that the silence before it is nothing: the connection is not retired.
        other = outcome_of(call(connections, peer.port, b"x", runtime.now() + 3 * JUMP_S), runtime)
        assert other.result(runtime.now() + WAIT_S) is None
        assert isinstance(told.result(runtime.now() + WAIT_S / 2), CallTimeout)


def test_answer_in_one_piece_with_nonsense_behind_it_is_handed_out(
    runtime: ThreadRuntime, connections: Connections
) -> None:
    def script(caller: Caller) -> None:
        request = caller.request()
        caller.sock.sendall(framing.response(request.call_id, b"mine") + b"\x7f\xff\xff\xff nonsense")
        caller.request()

    with serving(runtime, script) as peer:
        assert call(connections, peer.port, b"x", runtime.now() + WAIT_S).result(runtime.now() + 5.0) == b"mine"


def test_interrupted_hand_out_leaves_no_call_without_an_outcome(
    runtime: ThreadRuntime, connections: Connections
) -> None:
    """Ctrl-C in the middle of two answers that were read together: the second one is in no table any more."""

    def script(caller: Caller) -> None:
        first, second = caller.request(), caller.request()
        caller.sock.sendall(framing.response(first.call_id, b"1") + framing.response(second.call_id, b"2"))
        caller.request()

    def interrupted(response: Response) -> bytes:
        raise KeyboardInterrupt

    with serving(runtime, script) as peer:
        until = runtime.now() + WAIT_S
        connection = Connection(peer.address, runtime=runtime, security=Security("tester"), dial=dial)
        first = connection.call(Request(b"Get", b"a", interrupted, until, "first"))
        second = connection.call(Request(b"Mutate", b"b", text, until, "second", is_write=True))
        assert connection._connect()
        with pytest.raises(KeyboardInterrupt):
            connection._drive(first, until)
        error = second.error()
        connection.close()
    assert isinstance(error, ServerUnreachable)
    assert error.may_have_applied


class _HookedLock:
    """A lock that calls back, once, when it is let go."""

    def __init__(self, lock: Any, hook: Callable[[], None]) -> None:
        self._lock = lock
        self._hooks = [hook]

    def __enter__(self) -> bool:
        return bool(self._lock.__enter__())

    def __exit__(self, *raised: Any) -> None:
        self._lock.__exit__(*raised)
        if self._hooks:
            self._hooks.pop()()


def test_call_made_while_an_idle_connection_closes_goes_to_another(
    runtime: ThreadRuntime, connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "IDLE_S", 0.0)
    made: list[PendingCall[bytes]] = []
    with serving(runtime, echo) as peer:
        until = runtime.now() + WAIT_S
        idle = Connection(peer.address, runtime=runtime, security=Security("tester"), dial=dial)
        connections._open["127.0.0.1", peer.port, "ClientService"] = idle
        assert idle._connect()

        def at_the_last_moment() -> None:
            monkeypatch.setattr(connection_module, "IDLE_S", WAIT_S)
            made.append(call(connections, peer.port, b"in time", until, is_write=True))

        idle._lock = _HookedLock(idle._lock, at_the_last_moment)  # type: ignore[assignment]
        assert not idle._wait_until_wanted()
        assert idle.is_closed
        assert made[0].result(until) == b"in time"


@pytest.mark.parametrize("fate", [Fate.REPEAT, Fate.REPEAT_LATE, Fate.REPLACE])
def test_repeated_and_replaced_answers_reach_no_other_call(
    runtime: ThreadRuntime, connections: Connections, fate: Fate
) -> None:
    """An answer is matched by its call id. One that nobody waits for is counted, and dropped."""
    rng = random.Random(1)
    with serving(runtime, echo) as peer:
        proxy = ReplyProxy(peer.port, lambda number: rng.choice([fate, Fate.PASS]) if number else Fate.PASS)
        seen: Counter[str] = Counter()
        for number in range(30):
            param = b"%d" % number
            waiting = call(connections, proxy.port, param, runtime.now() + WAIT_S)
            if runtime.wait_first((waiting,), runtime.now() + (0.1 if fate is Fate.REPLACE else WAIT_S)) is None:
                waiting.cancel()
                seen["lost"] += 1
            else:
                seen["right" if waiting.result() == param else "wrong"] += 1
        (connection,) = connections._open.values()
        proxy.close()
    assert seen["wrong"] == 0
    assert seen["right"] > 0
    assert seen["lost"] == 0 or fate is Fate.REPLACE
    assert connection.late > 0


def test_thread_does_not_wait_for_bytes_when_the_response_of_its_call_was_read(
    runtime: ThreadRuntime, connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task gives up the role of reader before it completes a call. A thread that comes in between must not read."""
    with serving(runtime, echo) as peer:
        first = call(connections, peer.port, b"first", runtime.now() + WAIT_S)
        assert first.result() == b"first"
        waiting = call(connections, peer.port, b"second", runtime.now() + WAIT_S)
        connection = waiting.connection
        finish, reads = connection._finish, []

        def read(deadline: float) -> None:
            reads.append(deadline)
            raise AssertionError("no byte will come")

        def finish_after_a_wait(answers: Any) -> None:
            with monkeypatch.context() as patched:
                patched.setattr(connection, "_read", read)
                waiting.help(runtime.now() + WAIT_S)  # what wait_first() does in the thread that waits
            finish(answers)

        monkeypatch.setattr(connection, "_finish", finish_after_a_wait)
        done = runtime.pending()
        waiting.on_done(done.complete)  # has the task read
        done.result(runtime.now() + WAIT_S)
        assert waiting.result() == b"second"
        assert reads == []
