"""Calls whose maker does everything itself: the same answers and errors as those that others can wait for."""

from __future__ import annotations

import gc
import signal
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import metaclient_native.connection as connection_module
from metaclient.errors import CallTimeout, ConnectionClosed, NotServingRegion, ServerUnreachable, Unsupported
from metaclient.model import ServerName
from metaclient.runtime import Pending, ThreadRuntime
from metaclient.wire.rpc import framing
from metaclient.wire.rpc.framing import Response
from metaclient.wire.stream import SocketStream
from metaclient_native import sending
from metaclient_native.connection import Connection, PendingCall
from metaclient_native.connections import Connections
from metaclient_native.in_flight import DirectCall
from metaclient_native.request import Request
from metaclient_native.security import Security
from tests.unit.native.peer import WAIT_S, Caller, Peer, echo, serving, text

#: Between two signals to a thread that has not handled the first one.
SIGNAL_S = 0.1


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


def test_queued_frames_of_other_calls_are_sent_with_a_direct_call(
    runtime: ThreadRuntime, connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two frames in one write, and two responses in one read: the thread that reads completes the other call."""
    written: list[bytes] = []
    write = SocketStream.write

    def script(caller: Caller) -> None:
        requests = [caller.request(), caller.request()]
        caller.sock.sendall(b"".join([framing.response(one.call_id, one.param) for one in reversed(requests)]))
        echo(caller)

    def write_noted(stream: SocketStream, data: bytes, deadline: float) -> None:
        written.append(data)
        write(stream, data, deadline)

    with serving(runtime, then(script)) as peer:
        first(connections, peer, runtime)
        monkeypatch.setattr(SocketStream, "write", write_noted)
        other = pipelined(connections, peer, b"other", runtime)
        assert direct(connections, peer, b"ours", runtime) == b"ours"
        assert other.is_done
        assert other.result() == b"other"
        assert len(written) == 1
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
    with serving(runtime, then(Caller.request)) as peer:
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
        assert direct(connections, peer, b"next", runtime) == b"next"
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
    """The table of calls is empty already: a call that is left in flight would wait for ever."""
    leave = DirectCall.leave

    def closed_before(self: DirectCall[bytes], *args: Any) -> object:
        connections.close()
        return leave(self, *args)

    with serving(runtime, then(answer_nothing)) as peer:
        connection = first(connections, peer, runtime)
        monkeypatch.setattr(DirectCall, "leave", closed_before)
        with pytest.raises(ConnectionClosed):
            direct(connections, peer, b"x", runtime, until_s=0.01)
        assert connection.calls == 0


@pytest.mark.parametrize("moment", ["before", "after"])
def test_response_that_is_read_while_its_thread_leaves_is_not_lost(
    runtime: ThreadRuntime, connections: Connections, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Another thread reads: it has taken the call from the table, and delivers before or after the thread has left."""
    gate = Gate(runtime, 2)
    leave = DirectCall.leave

    def leave_around_the_response(self: DirectCall[bytes], *args: Any) -> object:
        made = leave(self, *args) if moment == "after" else None
        gate.open.complete(None)
        reader.result(runtime.now() + WAIT_S)
        return made if moment == "after" else leave(self, *args)

    with serving(runtime, then(gate)) as peer:
        connection = first(connections, peer, runtime)
        reader = runtime.start(direct, connections, peer, b"reader", runtime)
        gate.first_came.result(runtime.now() + WAIT_S)
        monkeypatch.setattr(DirectCall, "leave", leave_around_the_response)
        made = direct(connections, peer, b"left", runtime, until_s=0.01)
        got = made.result(runtime.now() + WAIT_S) if isinstance(made, PendingCall) else made
        assert got == b"left"
        assert isinstance(made, PendingCall) == (moment == "after")
        assert (connection.calls, connection.late) == (0, 0)


# -- many threads on one connection ------------------------------------------------------------------------------------


class Gate:
    """A server that collects requests, and answers all of them in one piece when the test says so."""

    def __init__(self, runtime: ThreadRuntime, expected: int) -> None:
        self._runtime = runtime
        self._expected = expected
        self.first_came: Pending[None] = runtime.pending()
        self.came: Pending[list[framing.ReceivedRequest]] = runtime.pending()
        self.open: Pending[None] = runtime.pending()

    def __call__(self, caller: Caller) -> None:
        requests = [caller.request()]
        self.first_came.complete(None)
        requests += [caller.request() for _ in range(self._expected - 1)]
        self.came.complete(requests)
        self.open.result(self._runtime.now() + WAIT_S)
        caller.sock.sendall(b"".join([framing.response(one.call_id, one.param) for one in requests]))
        echo(caller)


def test_threads_whose_responses_arrive_together_each_decode_their_own(
    runtime: ThreadRuntime, connections: Connections
) -> None:
    """The reader only wakes the other threads: a response that is slow to decode delays its own caller alone."""
    decoded_by: dict[bytes, str] = {}

    def decode(response: Response) -> bytes:
        decoded_by[response.param] = threading.current_thread().name
        return response.param

    def ask(param: bytes) -> tuple[object, str]:
        request = Request(b"Get", param, decode, runtime.now() + WAIT_S, "a call")
        return connections.ask_server(ServerName("127.0.0.1", peer.port), request), threading.current_thread().name

    gate = Gate(runtime, 4)
    with serving(runtime, then(gate)) as peer:
        connection = first(connections, peer, runtime)
        tasks = {param: runtime.start(ask, param) for param in (b"a", b"b", b"c", b"d")}
        gate.came.result(runtime.now() + WAIT_S)
        gate.open.complete(None)
        for param, task in tasks.items():
            assert task.result(runtime.now() + WAIT_S) == (param, decoded_by[param])
        assert len(set(decoded_by.values())) == 4
        assert (connection.calls, connection.late, connection._woken) == (0, 0, set())
        assert direct(connections, peer, b"alone again", runtime) == b"alone again"


def test_thread_that_times_out_while_another_reads_leaves_the_connection_to_the_others(
    runtime: ThreadRuntime, connections: Connections
) -> None:
    gate = Gate(runtime, 2)
    with serving(runtime, then(gate)) as peer:
        connection = first(connections, peer, runtime)
        reader = runtime.start(direct, connections, peer, b"reader", runtime)
        gate.first_came.result(runtime.now() + WAIT_S)
        with pytest.raises(CallTimeout, match="a call: no answer within its time"):
            direct(connections, peer, b"short", runtime, seconds=0.05)
        gate.open.complete(None)
        assert reader.result(runtime.now() + WAIT_S) == b"reader"
        assert direct(connections, peer, b"next", runtime) == b"next"
        assert (connection.late, connection.calls, peer.accepted) == (1, 0, 1)


class NotedQueue(deque[bytes]):
    """A queue of frames that completes ``filled`` when it has so many."""

    def __init__(self, runtime: ThreadRuntime, frames: int) -> None:
        super().__init__()
        self._frames = frames
        self.filled: Pending[None] = runtime.pending()

    def append(self, frame: bytes) -> None:
        super().append(frame)
        if len(self) == self._frames:
            self.filled.complete(None)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What is written to streams from now on."""
    made: list[bytes] = []
    write = SocketStream.write

    def write_noted(stream: SocketStream, data: bytes, deadline: float) -> None:
        made.append(data)
        write(stream, data, deadline)

    monkeypatch.setattr(SocketStream, "write", write_noted)
    monkeypatch.setattr(sending, "HELD_S_MAX", float("inf"))  # however slow the machine is
    return made


def woken(connection: Connection, runtime: ThreadRuntime) -> DirectCall[bytes]:
    """A call whose thread was woken and has not resumed."""
    made = DirectCall(Request(b"Get", b"", text, runtime.now() + WAIT_S, "woken"), runtime.now())
    connection._woken.add(made)
    return made


def test_frames_held_for_woken_threads_are_sent_by_the_last_that_resumes(
    runtime: ThreadRuntime, connections: Connections, written: list[bytes]
) -> None:
    with serving(runtime, echo) as peer:
        connection = first(connections, peer, runtime)
        threads = [woken(connection, runtime), woken(connection, runtime)]
        connection._queue = queue = NotedQueue(runtime, 3)
        written.clear()
        tasks = [runtime.start(direct, connections, peer, b"%d" % number, runtime) for number in range(3)]
        queue.filled.result(runtime.now() + WAIT_S)
        connection._resume(threads[0])
        assert written == []
        connection._resume(threads[1])
        assert [task.result(runtime.now() + WAIT_S) for task in tasks] == [b"0", b"1", b"2"]
        assert len(written) == 1


def test_woken_thread_that_is_interrupted_sends_the_frames_that_wait_for_it(
    runtime: ThreadRuntime, connections: Connections, written: list[bytes]
) -> None:
    """Ctrl-C in the last of the woken threads, before it resumes: the calls of the others must not wait for it."""
    gate = Gate(runtime, 1)
    with serving(runtime, then(gate)) as peer:
        connection = first(connections, peer, runtime)
        parked: Pending[None] = runtime.pending()
        connection._queue = queue = NotedQueue(runtime, 1)

        class InterruptedWaiter:
            def park(self, deadline: float | None, on: DirectCall[bytes]) -> bool:
                connection._woken.add(on)
                parked.complete(None)
                queue.filled.result(deadline)
                raise KeyboardInterrupt

            def wake(self, source: object = None) -> None: ...

        reader = runtime.start(direct, connections, peer, b"reader", runtime)
        gate.came.result(runtime.now() + WAIT_S)
        with connection._lock:
            connection._blocking = SimpleNamespace(  # type: ignore[assignment]
                waiter=InterruptedWaiter, runs_signal_handlers=lambda: False, thread_id=runtime.thread_id
            )
        interrupted = runtime.start(direct, connections, peer, b"interrupted", runtime)
        parked.result(runtime.now() + WAIT_S)
        connection._blocking = runtime
        other = runtime.start(direct, connections, peer, b"other", runtime)
        with pytest.raises(KeyboardInterrupt):
            interrupted.result(runtime.now() + WAIT_S)
        gate.open.complete(None)
        assert [one.result(runtime.now() + WAIT_S) for one in (reader, other)] == [b"reader", b"other"]
        assert (connection.calls, connection.late, peer.accepted) == (0, 1, 1)


def test_thread_that_leaves_while_it_is_woken_is_not_waited_for(
    runtime: ThreadRuntime, connections: Connections, written: list[bytes]
) -> None:
    """Its deadline passed after the reader had its response, and before the reader noted that it was woken."""
    with serving(runtime, echo) as peer:
        connection = first(connections, peer, runtime)
        left: DirectCall[bytes] = DirectCall(Request(b"Get", b"", text, runtime.now() + WAIT_S, "left"), runtime.now())

        class LeavingWaiter:
            def wake(self, source: object = None) -> None:
                connection._resume(left)
                connection._woken.add(left)  # the reader does this after the thread has resumed

        left.waiter = LeavingWaiter()  # type: ignore[assignment]
        connection._finish([(left, framing.Response(1, b"", 0, 0))])
        assert connection._woken == set()
        assert direct(connections, peer, b"next", runtime) == b"next"


class NotedWaiter:
    """The wait of a thread that does nothing but to note that it was woken."""

    def __init__(self, name: str, woken: list[str]) -> None:
        self._name = name
        self._woken = woken

    def park(self, deadline: float | None, on: object) -> bool:
        raise AssertionError("nothing waits here")

    def wake(self, source: object = None) -> None:
        self._woken.append(self._name)


def waiting(name: str, woken: list[str], runtime: ThreadRuntime, *, is_queued: bool = True) -> DirectCall[bytes]:
    made: DirectCall[bytes] = DirectCall(Request(b"Get", b"", text, runtime.now() + WAIT_S, name), runtime.now())
    made.waiter = NotedWaiter(name, woken)
    made.is_queued = is_queued
    return made


def test_threads_whose_responses_arrive_together_are_woken_one_after_the_other(
    runtime: ThreadRuntime, connections: Connections
) -> None:
    with serving(runtime, echo) as peer:
        connection = first(connections, peer, runtime)
        woken: list[str] = []
        calls = [waiting(name, woken, runtime) for name in "abc"]
        connection._finish([(call, framing.Response(1, b"", 0, 0)) for call in calls])
        seen = [woken.copy()]
        for call in calls:
            connection._resume(call)
            seen.append(woken.copy())
        assert seen == [["a"], ["a", "b"], ["a", "b", "c"], ["a", "b", "c"]]
        assert connection._woken == set()


def test_main_thread_is_woken_at_once_and_no_thread_waits_for_it(
    runtime: ThreadRuntime, connections: Connections
) -> None:
    """A signal handler may run there before it resumes, and make a call whose response arrives with that of others."""
    with serving(runtime, echo) as peer:
        connection = first(connections, peer, runtime)
        woken: list[str] = []
        main, *others = [waiting(name, woken, runtime, is_queued=name != "main") for name in ("main", "a", "b")]
        inner = waiting("inner", woken, runtime, is_queued=False)
        connection._finish([(call, framing.Response(1, b"", 0, 0)) for call in (main, *others, inner)])
        assert woken == ["main", "a", "inner"]
        connection._resume(others[0])
        assert woken[3:] == ["b"]
        connection._woken.clear()


def test_thread_that_leaves_before_the_next_is_entered_is_not_waited_for(
    runtime: ThreadRuntime, connections: Connections
) -> None:
    """Its deadline passed after its response was read: it cannot wake a thread that is not noted at it yet."""
    with serving(runtime, echo) as peer:
        connection = first(connections, peer, runtime)
        woken: list[str] = []
        left, other = (waiting(name, woken, runtime) for name in ("left", "other"))

        class LeavingWaiter:
            def wake(self, source: object = None) -> None:
                connection._resume(left)

        left.waiter = LeavingWaiter()  # type: ignore[assignment]
        connection._finish([(call, framing.Response(1, b"", 0, 0)) for call in (left, other)])
        assert woken == ["other"]
        connection._resume(other)
        assert connection._woken == set()


def test_call_of_a_signal_handler_inside_of_a_call_is_refused_at_once(
    runtime: ThreadRuntime, connections: Connections
) -> None:
    """Its answer could only be read by the call that it interrupts: it would wait until its deadline."""
    gate = Gate(runtime, 1)
    with serving(runtime, then(gate)) as peer:
        first(connections, peer, runtime)
        refused: list[Unsupported] = []

        def handle(number: int, frame: object) -> None:
            if refused:
                return
            for call in (
                lambda: direct(connections, peer, b"nested", runtime),
                lambda: pipelined(connections, peer, b"nested", runtime).result(runtime.now() + WAIT_S),
            ):
                with pytest.raises(Unsupported, match=r"a signal handler .* Let the handler set a flag") as caught:
                    call()
                refused.append(caught.value)
            gate.open.complete(None)

        def interrupt() -> None:
            """Send the signal until it is handled: CPython misses one that arrives right before it waits for bytes."""
            gate.came.result(runtime.now() + WAIT_S)
            while not gate.open.is_done:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
                runtime.wait_first([gate.open], runtime.now() + SIGNAL_S)

        old = signal.signal(signal.SIGUSR1, handle)
        try:
            interrupting = runtime.start(interrupt)
            assert direct(connections, peer, b"outer", runtime) == b"outer"
            interrupting.result(runtime.now() + WAIT_S)  # before the handler is gone
        finally:
            signal.signal(signal.SIGUSR1, old)
        assert len(refused) == 2
        assert direct(connections, peer, b"next", runtime) == b"next"


def test_runtime_tells_the_thread_that_runs_signal_handlers(runtime: ThreadRuntime) -> None:
    assert runtime.runs_signal_handlers()
    assert not runtime.start(runtime.runs_signal_handlers).result(runtime.now() + WAIT_S)


def test_reader_interrupted_with_responses_of_others_fails_them(
    runtime: ThreadRuntime, connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their calls are in no table any more: without an error, their threads would wait until the deadline."""
    gate = Gate(runtime, 3)
    with serving(runtime, then(gate)) as peer:
        connection = first(connections, peer, runtime)
        reader = runtime.start(direct, connections, peer, b"reader", runtime)
        gate.first_came.result(runtime.now() + WAIT_S)
        others = [
            runtime.start(lambda one: direct(connections, peer, one, runtime, is_write=True), b"%d" % number)
            for number in range(2)
        ]
        gate.came.result(runtime.now() + WAIT_S)

        def interrupted(call: DirectCall[bytes], response: Response, last: DirectCall[bytes] | None) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(DirectCall, "deliver", interrupted)
        gate.open.complete(None)
        for other in others:
            with pytest.raises(ServerUnreachable, match="another call on it was interrupted") as caught:
                other.result(runtime.now() + WAIT_S)
            assert caught.value.may_have_applied
        with pytest.raises(KeyboardInterrupt):
            reader.result(runtime.now() + WAIT_S)
        assert connection.is_closed
