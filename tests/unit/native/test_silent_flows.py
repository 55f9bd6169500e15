"""TCP flows that fall silent: swallowed by the network, stuck in a frame without an end, or of a paused server."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from metaclient.errors import CallTimeout, ServerUnreachable
from metaclient.model import ServerName
from metaclient.runtime import Pending, ThreadRuntime
from metaclient.wire import stream
from metaclient_native import in_flight
from metaclient_native.connection import PendingCall, State
from metaclient_native.connections import RETIRED_MAX, Connections
from metaclient_native.request import Request
from metaclient_native.security import Security
from tests.unit.native.peer import WAIT_S, Caller, Peer, echo, serving, text

#: The time of a call to a server that does not answer.
SHORT_S = 0.05
#: Calls within which a connection has to come back: two time out, and scheduling may cost some more.
CALLS_MAX = 10


@pytest.fixture
def connections(runtime: ThreadRuntime, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connections]:
    monkeypatch.setattr(in_flight, "DOUBT_S", SHORT_S)
    made = Connections(runtime, Security("tester"))
    yield made
    made.close()


def begin(
    connections: Connections, peer: Peer, param: bytes, runtime: ThreadRuntime, seconds: float
) -> PendingCall[bytes]:
    deadline = runtime.now() + seconds
    return connections.call(peer.address, Request(b"Get", param, text, deadline, "Get"))


def pipelined(connections: Connections, peer: Peer, runtime: ThreadRuntime) -> bytes:
    """One attempt, as the executor makes it: cancelled at its deadline."""
    made = begin(connections, peer, b"x", runtime, SHORT_S)
    if runtime.wait_first((made,), made.request.deadline) is None:
        made.cancel()
        raise CallTimeout("no answer within its time")
    return made.result()


def direct(connections: Connections, peer: Peer, runtime: ThreadRuntime) -> bytes:
    server = ServerName("127.0.0.1", peer.port, 1)
    answer = connections.ask_server(server, Request(b"Get", b"x", text, runtime.now() + SHORT_S, "a direct call"))
    if not isinstance(answer, PendingCall):
        return answer
    if runtime.wait_first((answer,), answer.request.deadline) is None:
        answer.cancel()
        raise CallTimeout("no answer within its time")
    return answer.result()


def calls_until_answered(attempt: Callable[[Connections, Peer, ThreadRuntime], bytes], *arguments: object) -> int:
    for number in range(1, CALLS_MAX + 1):
        try:
            assert attempt(*arguments) == b"x"  # type: ignore[arg-type]  # passed through
        except (CallTimeout, ServerUnreachable):
            continue
        return number
    raise AssertionError(f"none of {CALLS_MAX} calls was answered, though a new connection would have been")


class Broken:
    """A script: the first connection answers once, then breaks in its own way; the others answer."""

    def __init__(self, break_it: Callable[[Caller], None]) -> None:
        self._break = break_it
        self._is_first = True

    def __call__(self, caller: Caller) -> None:
        is_first, self._is_first = self._is_first, False
        if not is_first:
            echo(caller)
        request = caller.request()
        caller.answer(request.call_id, request.param)
        self._break(caller)


def swallow(caller: Caller) -> None:
    while True:
        caller.request()


def answer_once(caller: Caller) -> None:
    """Answer the first request of each connection, so that its caller knows that it is open."""
    request = caller.request()
    caller.answer(request.call_id, request.param)
    swallow(caller)


def corrupt_length(caller: Caller) -> None:
    """Announce a frame of 16 MB: every answer behind it is taken for a part of it."""
    caller.request()
    caller.sock.sendall((1 << 24).to_bytes(4, "big"))
    echo(caller)


@pytest.mark.parametrize("attempt", [pipelined, direct])
@pytest.mark.parametrize("break_it", [swallow, corrupt_length])
def test_flow_that_gives_no_whole_frame_is_replaced_after_a_few_timeouts(
    runtime: ThreadRuntime,
    connections: Connections,
    attempt: Callable[[Connections, Peer, ThreadRuntime], bytes],
    break_it: Callable[[Caller], None],
) -> None:
    with serving(runtime, Broken(break_it)) as peer:
        assert begin(connections, peer, b"x", runtime, WAIT_S).result(runtime.now() + WAIT_S) == b"x"
        assert calls_until_answered(attempt, connections, peer, runtime) > 1
        assert peer.accepted == 2


def test_paused_server_answers_the_calls_that_it_has_on_the_retired_connection(
    runtime: ThreadRuntime, connections: Connections
) -> None:
    """A long call must not fail because short ones on the same connection have timed out."""
    is_awake: Pending[None] = runtime.pending()

    def pause(caller: Caller) -> None:
        requests = [caller.request() for _ in range(2)]
        is_awake.result(runtime.now() + WAIT_S)
        for request in requests:
            caller.answer(request.call_id, request.param)

    with serving(runtime, Broken(pause)) as peer:
        begin(connections, peer, b"x", runtime, WAIT_S).result(runtime.now() + WAIT_S)
        patient = begin(connections, peer, b"patient", runtime, WAIT_S)
        old = patient.connection
        calls_until_answered(pipelined, connections, peer, runtime)
        assert old._state is State.RETIRED
        is_awake.complete(None)
        assert patient.result(runtime.now() + WAIT_S) == b"patient"
        assert not old._wait_until_wanted(), "a retired connection without calls has nothing left to read"
        assert old.is_closed


def test_close_ends_the_calls_of_a_retired_connection(runtime: ThreadRuntime, connections: Connections) -> None:
    with serving(runtime, Broken(swallow)) as peer:
        begin(connections, peer, b"x", runtime, WAIT_S).result(runtime.now() + WAIT_S)
        patient = begin(connections, peer, b"patient", runtime, WAIT_S)
        calls_until_answered(pipelined, connections, peer, runtime)
        connections.close()
        assert patient.is_done
        assert patient.connection.is_closed


def test_retired_connections_to_a_hung_server_are_bounded(runtime: ThreadRuntime, connections: Connections) -> None:
    with serving(runtime, answer_once) as peer:
        patient: list[PendingCall[bytes]] = []
        for _ in range(RETIRED_MAX + 2):
            begin(connections, peer, b"x", runtime, WAIT_S).result(runtime.now() + WAIT_S)
            patient.append(begin(connections, peer, b"patient", runtime, WAIT_S))
            patient[-1].send()
            connection = patient[-1].connection
            connection._state = State.RETIRED  # as after a silence
        begin(connections, peer, b"x", runtime, WAIT_S)
        assert len(connections._retired) <= RETIRED_MAX
        assert patient[0].is_done, "the oldest was given up"


def test_kernel_gives_up_on_data_that_nobody_acknowledges(runtime: ThreadRuntime) -> None:
    if not hasattr(socket, "TCP_USER_TIMEOUT"):
        pytest.skip("this platform has no TCP_USER_TIMEOUT")
    with serving(runtime, echo, is_raw=True) as peer:
        dialled = stream.dial("127.0.0.1", peer.port, runtime.now, runtime.now() + WAIT_S)
        try:
            option = dialled._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
            assert option == stream.UNACKNOWLEDGED_MS_MAX
        finally:
            dialled.close()
