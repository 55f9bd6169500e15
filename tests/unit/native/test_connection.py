"""Connections: many calls at once, answers in any order, late ones dropped, and every kind of nonsense an error."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metaclient.errors import (
    CallTimeout,
    ConnectionClosed,
    MetaClientError,
    NotServingRegion,
    RegionMoved,
    RequestRefused,
    ServerUnreachable,
)
from metaclient.model import ServerName
from metaclient.protobuf import ProtocolError
from metaclient.runtime import ThreadRuntime
from metaclient.wire.rpc import framing
from metaclient.wire.rpc.framing import CONNECTION_CALL_ID, Response
from metaclient.wire.stream import SocketStream, dial
from metaclient_native.connection import HELD_BYTES_MAX, Connection, PendingCall
from metaclient_native.connections import Connections
from metaclient_native.request import Request
from metaclient_native.security import Security
from tests.unit.native.peer import WAIT_S, Caller, Peer, echo, serving, text


@pytest.fixture
def connections(runtime: ThreadRuntime) -> Iterator[Connections]:
    made = Connections(runtime, Security("tester"))
    yield made
    made.close()


def call(
    connections: Connections,
    peer: Peer,
    param: bytes,
    runtime: ThreadRuntime,
    *,
    seconds: float = WAIT_S,
    is_write: bool = False,
) -> PendingCall[bytes]:
    deadline = runtime.now() + seconds
    return connections.call(peer.address, Request(b"Get", param, text, deadline, "Get", is_write=is_write))


def asked(
    connections: Connections, peer: Peer, param: bytes, runtime: ThreadRuntime, *, is_write: bool = False
) -> bytes:
    return call(connections, peer, param, runtime, is_write=is_write).result(runtime.now() + WAIT_S)


def test_preamble_header_and_what_is_queued_are_one_write(runtime: ThreadRuntime) -> None:
    seen: list[Caller] = []

    def script(caller: Caller) -> None:
        seen.append(caller)
        echo(caller)

    with serving(runtime, script) as peer:
        connection = Connection(peer.address, runtime=runtime, security=Security("tester"), dial=dial)
        waiting = connection.call(Request(b"Get", b"x", text, runtime.now() + WAIT_S, "the first call"))
        runtime.start_daemon(connection.run, name="native-first")
        try:
            assert waiting.result(runtime.now() + WAIT_S) == b"x"
        finally:
            connection.close()
    assert seen[0].header["service_name"] == "ClientService"
    assert seen[0].header["user_info"] == {"effective_user": "tester"}
    assert b"Get" in seen[0].first_read[6:], "the first call came with the header, without a round trip"


def test_answers_are_matched_by_id_whatever_their_order(runtime: ThreadRuntime, connections: Connections) -> None:
    def script(caller: Caller) -> None:
        while True:
            requests = [caller.request() for _ in range(20)]
            for request in reversed(requests):
                caller.answer(request.call_id, request.param)

    with serving(runtime, script) as peer:
        calls = [call(connections, peer, b"%d" % number, runtime) for number in range(20)]
        assert [one.result(runtime.now() + WAIT_S) for one in calls] == [b"%d" % number for number in range(20)]
        assert peer.accepted == 1


def test_many_threads_share_a_connection(runtime: ThreadRuntime, connections: Connections) -> None:
    with serving(runtime, echo) as peer:

        def work(number: int) -> int:
            return sum(
                asked(connections, peer, b"%d-%d" % (number, turn), runtime) == b"%d-%d" % (number, turn)
                for turn in range(50)
            )

        tasks = [runtime.start(work, number) for number in range(8)]
        assert [task.result(runtime.now() + WAIT_S) for task in tasks] == [50] * 8
        assert peer.accepted == 1


def test_single_caller_reads_its_answer_itself(runtime: ThreadRuntime, connections: Connections) -> None:
    """No hand-over: the connection's own task reads nothing while one caller asks and waits."""
    with serving(runtime, echo) as peer:
        assert asked(connections, peer, b"first", runtime) == b"first"  # read by the task, which has connected
        connection = next(iter(connections._open.values()))
        rounds = 0
        original = connection._read_round

        def counted() -> None:
            nonlocal rounds
            rounds += 1
            original()

        connection._read_round = counted  # type: ignore[method-assign]
        for number in range(20):
            assert asked(connections, peer, b"%d" % number, runtime) == b"%d" % number
        assert rounds == 0


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all that is written."""
    sizes: list[int] = []
    write = SocketStream.write

    def counted(self: SocketStream, data: bytes, deadline: float) -> None:
        sizes.append(len(data))
        write(self, data, deadline)

    monkeypatch.setattr(SocketStream, "write", counted)
    return sizes


def test_calls_made_before_the_first_is_waited_for_are_one_write(
    runtime: ThreadRuntime, connections: Connections, writes: list[int]
) -> None:
    with serving(runtime, echo) as peer:
        assert asked(connections, peer, b"first", runtime) == b"first"
        writes.clear()
        calls = [call(connections, peer, b"%d" % number, runtime) for number in range(16)]
        assert writes == []
        assert [one.result(runtime.now() + WAIT_S) for one in calls] == [b"%d" % number for number in range(16)]
        assert len(writes) == 1


def test_call_that_nobody_waits_for_is_sent_when_told_to(runtime: ThreadRuntime, connections: Connections) -> None:
    heard = runtime.pending()

    def script(caller: Caller) -> None:
        caller.answer(caller.request().call_id, b"x")
        heard.complete(caller.request().param)

    with serving(runtime, script) as peer:
        assert asked(connections, peer, b"first", runtime) == b"x"
        call(connections, peer, b"close it", runtime).send()
        assert heard.result(runtime.now() + WAIT_S) == b"close it"


def test_much_is_sent_at_once_whether_anybody_waits_or_not(
    runtime: ThreadRuntime, connections: Connections, writes: list[int]
) -> None:
    with serving(runtime, echo) as peer:
        assert asked(connections, peer, b"first", runtime) == b"first"
        writes.clear()
        call(connections, peer, b"x" * HELD_BYTES_MAX, runtime)
        assert len(writes) == 1


def test_late_answer_after_a_silence_does_not_look_like_a_server_that_hung_up(
    runtime: ThreadRuntime, connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metaclient_native.connection.DOUBT_S", -1.0)  # any silence is worth a look
    release, answered = runtime.pending(), runtime.pending()

    def script(caller: Caller) -> None:
        slow = caller.request()
        release.result(runtime.now() + WAIT_S)
        caller.answer(slow.call_id, b"late")
        answered.complete(None)
        echo(caller)

    with serving(runtime, script) as peer:
        slow = call(connections, peer, b"slow", runtime)
        assert runtime.wait_first((slow,), runtime.now() + 0.05) is None
        slow.cancel()
        release.complete(None)
        answered.result(runtime.now() + WAIT_S)
        connection = next(iter(connections._open.values()))
        assert asked(connections, peer, b"next", runtime) == b"next"
        assert connection.late == 1
        assert not connection.is_closed
        assert peer.accepted == 1


def test_late_answer_is_dropped_by_its_id(runtime: ThreadRuntime, connections: Connections) -> None:
    """A woken server answers what was asked long ago: nobody may take it for the answer to something else."""
    release = runtime.pending()

    def script(caller: Caller) -> None:
        slow = caller.request()
        release.result(runtime.now() + WAIT_S)
        caller.answer(slow.call_id, b"late")
        echo(caller)

    with serving(runtime, script) as peer:
        slow = call(connections, peer, b"slow", runtime, seconds=0.05)
        assert runtime.wait_first((slow,), runtime.now() + 0.05) is None
        slow.cancel()
        release.complete(None)
        assert asked(connections, peer, b"next", runtime) == b"next"
        connection = next(iter(connections._open.values()))
        assert connection.late == 1
        assert not slow.is_done


def test_answers_to_nobody_are_dropped(runtime: ThreadRuntime, connections: Connections) -> None:
    def script(caller: Caller) -> None:
        request = caller.request()
        caller.answer(request.call_id + 1000, b"whose?")
        caller.answer(request.call_id, b"yours")
        caller.answer(request.call_id, b"again")
        echo(caller)

    with serving(runtime, script) as peer:
        assert asked(connections, peer, b"x", runtime) == b"yours"
        assert asked(connections, peer, b"y", runtime) == b"y"
        assert next(iter(connections._open.values())).late == 2


def test_silent_server_costs_only_its_time(runtime: ThreadRuntime, connections: Connections) -> None:
    """Connect works, nothing is answered: the call is over at its deadline, and takes nobody with it."""

    def script(caller: Caller) -> None:
        while True:
            caller.request()

    with serving(runtime, script) as silent, serving(runtime, echo) as other:
        waiting = call(connections, silent, b"x", runtime, seconds=0.1)
        assert runtime.wait_first((waiting,), runtime.now() + 0.1) is None
        assert asked(connections, other, b"y", runtime) == b"y"


def test_call_that_nobody_takes_back_fails_at_its_deadline(runtime: ThreadRuntime, connections: Connections) -> None:
    def script(caller: Caller) -> None:
        while True:
            caller.request()

    with serving(runtime, script) as peer:
        waiting = call(connections, peer, b"x", runtime, seconds=0.05, is_write=True)
        told = runtime.pending()
        waiting.on_done(lambda done: told.complete(done.error()))
        error = told.result(runtime.now() + WAIT_S)
        assert isinstance(error, CallTimeout)
        assert error.may_have_applied


def test_refused_connection(runtime: ThreadRuntime, connections: Connections) -> None:
    with serving(runtime, echo) as peer:
        pass
    with pytest.raises(ServerUnreachable, match="cannot be reached") as caught:
        connections.call(peer.address, Request(b"Get", b"", text, runtime.now() + WAIT_S, "Get", is_write=True)).result(
            runtime.now() + WAIT_S
        )
    assert not caught.value.may_have_applied, "nothing was sent"


def test_silent_close_before_the_first_answer_is_explained(runtime: ThreadRuntime, connections: Connections) -> None:
    with (
        serving(runtime, lambda caller: None) as peer,
        pytest.raises(ServerUnreachable, match=r"has no ClientService.*codec.*Kerberos"),
    ):
        asked(connections, peer, b"x", runtime)


def test_end_in_the_middle_fails_all_who_wait_and_the_next_call_connects_anew(
    runtime: ThreadRuntime, connections: Connections
) -> None:
    def script(caller: Caller) -> None:
        first = caller.request()
        caller.answer(first.call_id, b"ok")
        caller.request()
        caller.request()

    with serving(runtime, script) as peer:
        assert asked(connections, peer, b"0", runtime) == b"ok"
        calls = [call(connections, peer, b"%d" % number, runtime, is_write=True) for number in (1, 2)]
        for one in calls:
            with pytest.raises(ServerUnreachable, match="closed the connection during") as caught:
                one.result(runtime.now() + WAIT_S)
            assert caught.value.may_have_applied
        assert asked(connections, peer, b"3", runtime) == b"ok"
        assert peer.accepted == 2


def test_refusal_of_the_connection_itself(runtime: ThreadRuntime, connections: Connections) -> None:
    """2.6.1 answers a wrong preamble with a frame of call id 4294967295."""

    def script(caller: Caller) -> None:
        caller.request()
        caller.refuse(CONNECTION_CALL_ID, "org.apache.hadoop.hbase.ipc.BadAuthException", "no", do_not_retry=True)
        caller.request()

    with serving(runtime, script) as peer, pytest.raises(RequestRefused, match="refuses the connection"):
        asked(connections, peer, b"x", runtime)


@pytest.mark.parametrize(
    ("java_class", "said", "kind"),
    [
        ("org.apache.hadoop.hbase.NotServingRegionException", "r is not online on s", NotServingRegion),
        ("org.apache.hadoop.hbase.DoNotRetryIOException", "no", RequestRefused),
        ("java.io.IOException", "java.io.IOException: Row length is 0\n\tat x", RequestRefused),
    ],
)
def test_errors_come_by_their_java_class(
    runtime: ThreadRuntime, connections: Connections, java_class: str, said: str, kind: type[MetaClientError]
) -> None:
    def script(caller: Caller) -> None:
        caller.refuse(caller.request().call_id, java_class, said)
        echo(caller)

    with serving(runtime, script) as peer:
        with pytest.raises(kind) as caught:
            asked(connections, peer, b"x", runtime)
        assert "\n" not in str(caught.value)
        assert caught.value.detail == said
        assert asked(connections, peer, b"y", runtime) == b"y", "the connection is as good as before"


def test_moved_region_says_where_to(runtime: ThreadRuntime, connections: Connections) -> None:
    said = "Region moved to: hostname=h2 port=16020 startCode=7. As of locationSeqNum=9."

    def script(caller: Caller) -> None:
        caller.refuse(caller.request().call_id, RegionMoved.java_class or "", said)

    with serving(runtime, script) as peer, pytest.raises(RegionMoved) as caught:
        asked(connections, peer, b"x", runtime)
    assert caught.value.server == ServerName("h2", 16020, 7)
    assert caught.value.seqnum == 9


def test_answer_that_makes_no_sense_hurts_only_its_call(runtime: ThreadRuntime, connections: Connections) -> None:
    def bad(response: Response) -> bytes:
        raise ProtocolError("not a Result")

    with serving(runtime, echo) as peer:
        broken = connections.call(
            peer.address, Request(b"Mutate", b"x", bad, runtime.now() + WAIT_S, "Mutate", is_write=True)
        )
        with pytest.raises(ProtocolError, match="cannot be decoded") as caught:
            broken.result(runtime.now() + WAIT_S)
        assert caught.value.may_have_applied
        assert asked(connections, peer, b"y", runtime) == b"y"


def test_close_ends_what_waits(runtime: ThreadRuntime, connections: Connections) -> None:
    def script(caller: Caller) -> None:
        while True:
            caller.request()

    with serving(runtime, script) as peer:
        waiting = runtime.start(asked, connections, peer, b"x", runtime)
        connection = None
        deadline = runtime.now() + WAIT_S
        while connection is None or not connection.calls:
            assert runtime.now() < deadline
            connection = next(iter(connections._open.values()), None)
            runtime.sleep(0.001)
        connections.close()
        with pytest.raises(ConnectionClosed):
            waiting.result(runtime.now() + WAIT_S)
        with pytest.raises(ConnectionClosed):
            asked(connections, peer, b"y", runtime)


def test_server_that_went_away_while_nothing_was_asked_is_noticed_before_a_write(
    runtime: ThreadRuntime, connections: Connections
) -> None:
    """The write goes to a new connection at once, instead of into one whose other end is gone."""
    ended = runtime.pending()

    def script(caller: Caller) -> None:
        request = caller.request()
        caller.answer(request.call_id, request.param)
        if not ended.is_done:
            caller.sock.close()
            ended.complete(None)
        else:
            echo(caller)

    with serving(runtime, script) as peer:
        assert asked(connections, peer, b"1", runtime) == b"1"
        ended.result(runtime.now() + WAIT_S)
        connection = next(iter(connections._open.values()))
        deadline = runtime.now() + WAIT_S
        while connection._stream is not None and connection._stream.is_silent():  # until the end has arrived
            assert runtime.now() < deadline
            runtime.sleep(0.001)
        connection._answered_at = float("-inf")  # as after a long silence
        assert asked(connections, peer, b"2", runtime, is_write=True) == b"2"
        assert peer.accepted == 2


def test_huge_call_to_a_server_that_takes_nothing_is_over_at_its_deadline(
    runtime: ThreadRuntime, connections: Connections
) -> None:
    """Buffers fill, nobody reads: the call ends, and the connection with it, because a frame is out in part."""
    release = runtime.pending()

    def script(caller: Caller) -> None:
        request = caller.request()
        caller.answer(request.call_id, b"ok")
        release.result(runtime.now() + WAIT_S)

    with serving(runtime, script) as peer:
        assert asked(connections, peer, b"0", runtime) == b"ok"
        huge = call(connections, peer, b"x" * (64 * 1024 * 1024), runtime, seconds=0.2, is_write=True)
        with pytest.raises(CallTimeout, match="did not take") as caught:
            huge.result(runtime.now() + WAIT_S)
        assert caught.value.may_have_applied
        release.complete(None)


# -- nonsense ----------------------------------------------------------------------------------------------------------


def _mutilated(frame: bytes, data: st.DataObject) -> bytes:
    """A good answer, cut, stretched, or with other bytes in it."""
    kind = data.draw(st.sampled_from(["cut", "byte", "length", "garbage", "oversized"]))
    if kind == "cut":
        return frame[: data.draw(st.integers(0, len(frame) - 1))]
    if kind == "byte":
        at = data.draw(st.integers(0, len(frame) - 1))
        return frame[:at] + bytes([data.draw(st.integers(0, 255))]) + frame[at + 1 :]
    if kind == "length":
        return data.draw(st.integers(0, 2**32 - 1)).to_bytes(4, "big") + frame[4:]
    if kind == "oversized":
        return b"\x7f\xff\xff\xff" + frame[4:]
    return data.draw(st.binary(max_size=64))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_fuzzed_answers_are_errors_never_hangs(data: st.DataObject) -> None:
    """Truncated, oversized, wrong ids, wrong types: the call ends with an answer or an error of ours."""
    good = framing.response(1, b"\x0a\x02\x10\x00", b"")
    nonsense = _mutilated(good, data)

    def script(caller: Caller) -> None:
        caller.request()
        caller.sock.sendall(nonsense)  # and the end: a reader that waits for more hears of it

    with ThreadRuntime() as runtime, serving(runtime, script) as peer:
        connections = Connections(runtime, Security("tester"))
        try:
            with contextlib.suppress(MetaClientError):
                asked(connections, peer, b"x", runtime)
        finally:
            connections.close()


def test_half_an_answer_and_silence_is_over_at_the_deadline(runtime: ThreadRuntime, connections: Connections) -> None:
    release = runtime.pending()

    def script(caller: Caller) -> None:
        request = caller.request()
        caller.sock.sendall(framing.response(request.call_id, b"abc")[:-1])
        release.result(runtime.now() + WAIT_S)

    with serving(runtime, script) as peer:
        waiting = call(connections, peer, b"x", runtime, seconds=0.1)
        assert runtime.wait_first((waiting,), runtime.now() + 0.1) is None
        release.complete(None)


# -- security ----------------------------------------------------------------------------------------------------------


def test_user_of_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "etl")
    assert Security.of({}).user == "etl"
    assert Security.of({}, user="ada").user == "ada"
