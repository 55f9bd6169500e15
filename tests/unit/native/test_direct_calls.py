"""Calls whose maker does everything itself: the same answers and errors as those that others can wait for."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import metaclient_native.connection as connection_module
from metaclient.errors import CallTimeout, ConnectionClosed, NotServingRegion, ServerUnreachable
from metaclient.model import ServerName
from metaclient.runtime import Pending, ThreadRuntime
from metaclient.wire.stream import SocketStream
from metaclient_native.connection import Connection, PendingCall
from metaclient_native.connections import Connections
from metaclient_native.request import Request
from metaclient_native.security import Security
from tests.unit.native.peer import WAIT_S, Caller, Peer, echo, serving, text


@pytest.fixture
def connections(runtime: ThreadRuntime, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connections]:
    monkeypatch.setattr(connection_module, "DOUBT_S", float("inf"))  # however slow the machine is
    made = Connections(runtime, Security("tester"))
    yield made
    made.close()


def direct(
    connections: Connections,
    peer: Peer,
    param: bytes,
    runtime: ThreadRuntime,
    *,
    seconds: float = WAIT_S,
    is_write: bool = False,
    until_s: float | None = None,
) -> bytes | PendingCall[bytes]:
    server = ServerName("127.0.0.1", peer.port)
    now = runtime.now()
    request = Request(b"Get", param, text, now + seconds, "a call", is_write=is_write)
    return connections.ask_server(server, request, None if until_s is None else now + until_s)


def pipelined(connections: Connections, peer: Peer, param: bytes, runtime: ThreadRuntime) -> PendingCall[bytes]:
    """A call that others can wait for."""
    return connections.call(peer.address, Request(b"Get", param, text, runtime.now() + WAIT_S, "Get"))


def first(connections: Connections, peer: Peer, runtime: ThreadRuntime) -> Connection:
    """The connection is made by its first call, which others can wait for; nobody uses it afterwards."""
    made = direct(connections, peer, b"first", runtime)
    assert isinstance(made, PendingCall)
    # Read by the connection's own task, which has sent all by then: if we read, it may still be coming back from that.
    assert by_the_task(made, runtime).result(runtime.now() + WAIT_S) == b"first"
    (connection,) = connections._open.values()
    return connection


def by_the_task(call: PendingCall[bytes], runtime: ThreadRuntime) -> Pending[bytes]:
    """The answer, for which we do not read."""
    got: Pending[bytes] = runtime.pending()
    call.on_done(lambda done: got.complete(done.result()))
    return got


def then(script: Callable[[Caller], object]) -> Callable[[Caller], None]:
    """A server that echoes the first call, and does what the script says with the others."""

    def serve(caller: Caller) -> None:
        request = caller.request()
        caller.answer(request.call_id, request.param)
        script(caller)

    return serve


def test_alone_it_is_the_answer(runtime: ThreadRuntime, connections: Connections) -> None:
    with serving(runtime, echo) as peer:
        connection = first(connections, peer, runtime)
        for number in range(20):
            assert direct(connections, peer, b"%d" % number, runtime) == b"%d" % number
        assert (connection.calls, connection.late, peer.accepted) == (0, 0, 1)


def test_while_others_wait_it_is_one_of_many(runtime: ThreadRuntime, connections: Connections) -> None:
    def script(caller: Caller) -> None:
        for request in reversed([caller.request(), caller.request()]):
            caller.answer(request.call_id, request.param)
        echo(caller)

    with serving(runtime, then(script)) as peer:
        first(connections, peer, runtime)
        other = pipelined(connections, peer, b"other", runtime)
        ours = direct(connections, peer, b"ours", runtime)
        assert isinstance(ours, PendingCall)
        assert [one.result(runtime.now() + WAIT_S) for one in (ours, other)] == [b"ours", b"other"]
        assert direct(connections, peer, b"alone again", runtime) == b"alone again"


def test_who_comes_meanwhile_is_sent_and_gets_its_answer_from_the_reader(
    runtime: ThreadRuntime, connections: Connections
) -> None:
    held: Pending[None] = runtime.pending()

    def script(caller: Caller) -> None:
        ours = caller.request()
        held.complete(None)
        other = caller.request()
        caller.answer(other.call_id, b"for the other")
        caller.answer(ours.call_id, b"for us")

    with serving(runtime, then(script)) as peer:
        connection = first(connections, peer, runtime)
        task = runtime.start(direct, connections, peer, b"ours", runtime)
        held.result(runtime.now() + WAIT_S)
        other = pipelined(connections, peer, b"other", runtime)
        assert other.result(runtime.now() + WAIT_S) == b"for the other"
        assert task.result(runtime.now() + WAIT_S) == b"for us"
        assert connection.calls == 0


def test_who_still_waits_when_the_reader_has_its_answer_is_read_for(
    runtime: ThreadRuntime, connections: Connections
) -> None:
    held: Pending[None] = runtime.pending()
    done: Pending[None] = runtime.pending()

    def script(caller: Caller) -> None:
        ours = caller.request()
        held.complete(None)
        other = caller.request()
        caller.answer(ours.call_id, b"for us")
        done.result(runtime.now() + WAIT_S)
        caller.answer(other.call_id, b"for the other")

    with serving(runtime, then(script)) as peer:
        first(connections, peer, runtime)
        task = runtime.start(direct, connections, peer, b"ours", runtime)
        held.result(runtime.now() + WAIT_S)
        other = pipelined(connections, peer, b"other", runtime)
        got = by_the_task(other, runtime)
        assert task.result(runtime.now() + WAIT_S) == b"for us"
        done.complete(None)
        assert got.result(runtime.now() + WAIT_S) == b"for the other"


@pytest.mark.parametrize("is_write", [False, True])
def test_deadline(runtime: ThreadRuntime, connections: Connections, is_write: bool) -> None:
    """The call is over in time; its late answer is dropped, and the connection goes on."""

    def script(caller: Caller) -> None:
        slow, following = caller.request(), caller.request()
        caller.answer(slow.call_id, b"late")
        caller.answer(following.call_id, following.param)

    with serving(runtime, then(script)) as peer:
        connection = first(connections, peer, runtime)
        with pytest.raises(CallTimeout, match="a call: no answer within its time") as caught:
            direct(connections, peer, b"slow", runtime, seconds=0.05, is_write=is_write)
        assert caught.value.may_have_applied == is_write
        assert direct(connections, peer, b"next", runtime) == b"next"
        assert (connection.late, connection.calls, peer.accepted) == (1, 0, 1)


def test_no_time_left(runtime: ThreadRuntime, connections: Connections) -> None:
    with serving(runtime, echo) as peer:
        first(connections, peer, runtime)
        with pytest.raises(CallTimeout, match="no time left for a call"):
            direct(connections, peer, b"x", runtime, seconds=0.0)


def test_error_of_the_server(runtime: ThreadRuntime, connections: Connections) -> None:
    def script(caller: Caller) -> None:
        name = "org.apache.hadoop.hbase.NotServingRegionException"
        caller.refuse(caller.request().call_id, name, f"{name}: not here")
        echo(caller)

    with serving(runtime, then(script)) as peer:
        first(connections, peer, runtime)
        with pytest.raises(NotServingRegion, match=r"a call at 127\.0\.0\.1"):
            direct(connections, peer, b"x", runtime)
        assert direct(connections, peer, b"y", runtime) == b"y"


def test_failed_call_leaves_nothing_to_the_garbage_collector(runtime: ThreadRuntime, connections: Connections) -> None:
    """An error knows its traceback, and that one the frames: one that keeps the error would keep all of it alive."""

    def script(caller: Caller) -> None:
        while True:
            caller.refuse(caller.request().call_id, "org.apache.hadoop.hbase.NotServingRegionException", "not here")

    def failed() -> weakref.ref[NotServingRegion]:
        try:
            direct(connections, peer, b"x", runtime)
        except NotServingRegion as error:
            return weakref.ref(error)
        raise AssertionError("it was answered")

    with serving(runtime, then(script)) as peer:
        first(connections, peer, runtime)
        gc.disable()
        try:
            assert failed()() is None
        finally:
            gc.enable()


def test_end_in_the_middle(runtime: ThreadRuntime, connections: Connections) -> None:
    with serving(runtime, then(answer_nothing)) as peer:
        first(connections, peer, runtime)
        with pytest.raises(ServerUnreachable, match="closed the connection during a call") as caught:
            direct(connections, peer, b"x", runtime, is_write=True)
        assert caught.value.may_have_applied
        first(connections, peer, runtime)
        assert peer.accepted == 2


def test_close_in_the_middle(runtime: ThreadRuntime, connections: Connections) -> None:
    came: Pending[None] = runtime.pending()

    def script(caller: Caller) -> None:
        caller.request()
        came.complete(None)
        caller.request()

    with serving(runtime, then(script)) as peer:
        first(connections, peer, runtime)
        task = runtime.start(direct, connections, peer, b"x", runtime)
        came.result(runtime.now() + WAIT_S)
        connections.close()
        with pytest.raises(ConnectionClosed):
            task.result(runtime.now() + WAIT_S)


@pytest.mark.parametrize("method", ["read", "write"])
@pytest.mark.parametrize("is_direct", [True, False])
def test_after_ctrl_c_the_next_call_has_a_connection_of_its_own(
    runtime: ThreadRuntime, connections: Connections, monkeypatch: pytest.MonkeyPatch, method: str, is_direct: bool
) -> None:
    """Half a frame may be out, or half an answer lost: nobody can go on with that one."""
    with serving(runtime, echo) as peer:
        first(connections, peer, runtime)

        def interrupted(*arguments: object) -> None:
            raise KeyboardInterrupt

        def call() -> object:
            if is_direct:
                return direct(connections, peer, b"x", runtime)
            made = pipelined(connections, peer, b"x", runtime)
            return made.result(runtime.now() + WAIT_S)

        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(SocketStream, method, interrupted)
            call()
        first(connections, peer, runtime)
        assert peer.accepted == 2


# -- calls that their maker leaves in flight ---------------------------------------------------------------------------


def left(connections: Connections, peer: Peer, runtime: ThreadRuntime) -> PendingCall[bytes]:
    """A direct call whose server has not answered when its maker has to do something else."""
    made = direct(connections, peer, b"left", runtime, until_s=0.01)
    assert isinstance(made, PendingCall)
    return made


@pytest.mark.parametrize("is_read_by_the_task", [False, True])
def test_call_left_in_flight_still_gets_its_answer(
    runtime: ThreadRuntime, connections: Connections, is_read_by_the_task: bool
) -> None:
    go_on: Pending[None] = runtime.pending()

    def script(caller: Caller) -> None:
        request = caller.request()
        go_on.result(runtime.now() + WAIT_S)
        caller.answer(request.call_id, request.param)
        echo(caller)

    with serving(runtime, then(script)) as peer:
        connection = first(connections, peer, runtime)
        made = left(connections, peer, runtime)
        assert connection.calls == 1
        got = by_the_task(made, runtime) if is_read_by_the_task else made
        go_on.complete(None)
        assert got.result(runtime.now() + WAIT_S) == b"left"
        assert (connection.calls, connection.late, peer.accepted) == (0, 0, 1)


def test_connection_serves_other_calls_beside_one_left_in_flight(
    runtime: ThreadRuntime, connections: Connections
) -> None:
    """Its maker has stopped reading: a call that is made now must not wait for that reader."""

    def script(caller: Caller) -> None:
        slow, following = caller.request(), caller.request()
        caller.answer(following.call_id, following.param)
        caller.answer(slow.call_id, b"late")
        echo(caller)

    with serving(runtime, then(script)) as peer:
        first(connections, peer, runtime)
        made = left(connections, peer, runtime)
        following = direct(connections, peer, b"next", runtime)
        assert isinstance(following, PendingCall), "the connection is not idle"
        assert following.result(runtime.now() + WAIT_S) == b"next"
        assert made.result(runtime.now() + WAIT_S) == b"late"


def test_cancelled_call_that_was_left_in_flight_is_forgotten(runtime: ThreadRuntime, connections: Connections) -> None:
    def script(caller: Caller) -> None:
        slow, following = caller.request(), caller.request()
        caller.answer(slow.call_id, b"late")
        caller.answer(following.call_id, following.param)

    with serving(runtime, then(script)) as peer:
        connection = first(connections, peer, runtime)
        left(connections, peer, runtime).cancel()
        assert connection.calls == 0
        assert direct(connections, peer, b"next", runtime) == b"next"
        assert connection.late == 1


def answer_nothing(caller: Caller) -> None:
    while True:
        caller.request()


def test_call_left_in_flight_fails_with_its_connection(runtime: ThreadRuntime, connections: Connections) -> None:
    with serving(runtime, then(answer_nothing)) as peer:
        first(connections, peer, runtime)
        made = left(connections, peer, runtime)
        connections.close()
        with pytest.raises(ConnectionClosed):
            made.result(runtime.now() + WAIT_S)


def test_call_whose_connection_ends_at_that_instant_is_not_left(
    runtime: ThreadRuntime, connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table of calls is empty already: a call that is put back into it would wait for ever."""
    leave = Connection._leave_in_flight

    def closed_before(self: Connection, *args: Any) -> object:
        connections.close()
        return leave(self, *args)

    with serving(runtime, then(answer_nothing)) as peer:
        connection = first(connections, peer, runtime)
        monkeypatch.setattr(Connection, "_leave_in_flight", closed_before)
        with pytest.raises(ConnectionClosed):
            direct(connections, peer, b"x", runtime, until_s=0.01)
        assert connection.calls == 0
