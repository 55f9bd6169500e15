"""A page of a scan in several calls at once: each reply finds its rows, and no reply is left for somebody else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thriftpy2.thrift import TApplicationException, TMessageType

from metaclient.attempts import Executor
from metaclient.backend import Capabilities, ScanPage
from metaclient.errors import MetaClientError, ScannerLost
from metaclient.model import Cell, Get, Put, Result, Scan
from metaclient.runtime import SimRuntime, ThreadRuntime
from metaclient.wire.thrift.idl import thrift2
from metaclient_fake import FakeCluster
from metaclient_thrift.binary import Rows2, read_row, read_rows
from metaclient_thrift.gateways import Gateways, Loan
from metaclient_thrift.link import Link
from metaclient_thrift.messages import WrongReply, call_head, pack_number
from metaclient_thrift.thrift2 import Thrift2Backend, _pieces
from metaclient_thrift.url import Gateway
from tests.unit.thrift.test_binary import reply, written

T2 = thrift2()
METHOD = "getScannerRows"


class Script:
    """A connection whose replies are known before; what is done with it is noted."""

    def __init__(self, replies: bytes, sizes: list[int], *, is_pipelined: bool = True) -> None:
        self.is_pipelined = is_pipelined
        self.done: list[bytes | str] = []
        self._rest, self._sizes = replies, sizes

    def begin(self, deadline: float) -> None: ...

    def write(self, data: bytes) -> None:
        self.done.append(data)

    def flush(self) -> None: ...

    def read(self, size: int) -> bytes:
        assert self._rest, "a real socket would wait until the deadline"
        if self.done[-1] != "read":
            self.done.append("read")
        size = min(size, self._sizes[len(self._rest) % len(self._sizes)])
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    def is_usable(self) -> bool:
        return True

    def close(self) -> None: ...


def link_on(script: Script) -> Link:
    return Link(Gateway("gateway", 9090), script, T2.THBaseService, rows=Rows2())


def page(number: int, *rows: bytes) -> bytes:
    """The reply to call ``number`` of a connection."""
    value = T2.TColumnValue(family=b"cf", qualifier=b"a", value=b"1", timestamp=7, type=4)
    return reply(T2.THBaseService, METHOD, number, success=[T2.TResult(row=row, columnValues=[value]) for row in rows])


def sent(number: int, arguments: bytes) -> bytes:
    return call_head(METHOD) + pack_number(number) + arguments


@given(
    pages=st.lists(st.lists(st.binary(min_size=1, max_size=9), max_size=4), min_size=1, max_size=4),
    sizes=st.lists(st.integers(1, 200), min_size=1, max_size=4),
)
def test_replies_in_any_pieces_are_told_apart(pages: list[list[bytes]], sizes: list[int]) -> None:
    link = link_on(Script(b"".join(page(number, *rows) for number, rows in enumerate(pages, 1)), sizes))
    found = link.ask_each(METHOD, [b"?"] * len(pages), read_rows)
    assert [[one.row for one in rows] for rows in found] == pages
    assert link.owed == 0


def test_all_is_sent_before_anything_is_read() -> None:
    script = Script(page(1, b"r1") + page(2, b"r2"), [10_000])
    link_on(script).ask_each(METHOD, [b"first", b"second"], read_rows)
    assert script.done == [sent(1, b"first"), sent(2, b"second"), "read"]


def test_where_calls_must_follow_one_another_they_do() -> None:
    """HTTP: a request's body is its call, and the next one waits for the answer."""
    script = Script(page(1, b"r1") + page(2, b"r2"), [len(page(1, b"r1"))], is_pipelined=False)
    link_on(script).ask_each(METHOD, [b"first", b"second"], read_rows)
    assert script.done == [sent(1, b"first"), "read", sent(2, b"second"), "read"]


@pytest.mark.parametrize("surplus", [b"\0", b"another answer"])
def test_bytes_behind_the_last_reply_end_the_connection_and_not_the_call(surplus: bytes) -> None:
    link = link_on(Script(page(1, b"r1") + page(2, b"r2") + surplus, [10_000]))
    assert [[one.row for one in rows] for rows in link.ask_each(METHOD, [b"?"] * 2, read_rows)] == [[b"r1"], [b"r2"]]
    assert not link.is_in_step


@pytest.mark.parametrize("surplus", [b"\0", b"another answer"])
def test_bytes_behind_the_only_reply_end_the_connection_and_not_the_call(surplus: bytes) -> None:
    whole = reply(T2.THBaseService, "get", 1, success=T2.TResult(columnValues=[]))
    link = link_on(Script(whole + surplus, [10_000]))
    assert link.ask("get", b"?", read_row) == Result(b"", [])
    assert not link.is_in_step


@pytest.mark.parametrize("surplus", [b"\0", b"another answer"])
def test_bytes_behind_an_error_or_a_void_reply_end_the_connection(surplus: bytes) -> None:
    failed = reply(T2.THBaseService, "put", 1, io=T2.TIOError(message="gone"))
    link = link_on(Script(failed + surplus, [10_000]))
    with pytest.raises(T2.TIOError):
        link.call_void("put", b"?")
    assert not link.is_in_step
    link = link_on(Script(reply(T2.THBaseService, "put", 1) + surplus, [10_000]))
    link.call_void("put", b"?")
    assert not link.is_in_step


def test_reply_to_the_first_call_is_no_answer_to_the_second() -> None:
    link = link_on(Script(page(1, b"r1") + page(1, b"r1"), [10_000]))
    with pytest.raises(WrongReply, match=r"call 1 of 'getScannerRows' arrived instead of that to call 2"):
        link.ask_each(METHOD, [b"?"] * 2, read_rows)


def test_reply_to_another_method_is_no_answer() -> None:
    link = link_on(Script(reply(T2.THBaseService, "put", 1), [10_000]))
    with pytest.raises(WrongReply, match="'put'"):
        link.ask(METHOD, b"?", read_rows)


def test_error_of_another_call_is_not_raised_as_this_ones() -> None:
    failed = reply(T2.THBaseService, METHOD, 2, io=T2.TIOError(message="gone"))
    with pytest.raises(WrongReply):
        link_on(Script(failed, [10_000])).ask(METHOD, b"?", read_rows)
    said = TApplicationException(TApplicationException.INTERNAL_ERROR, "no")
    refused = written(METHOD, TMessageType.EXCEPTION, said, 2)
    with pytest.raises(WrongReply):
        link_on(Script(refused, [10_000])).ask(METHOD, b"?", read_rows)


def test_call_that_comes_back_is_no_reply() -> None:
    """A peer that echoes what it gets has the right id and the right name, but not the right type."""
    echo = sent(1, b"\0")
    with pytest.raises(WrongReply, match="type 1"):
        link_on(Script(echo, [10_000])).ask(METHOD, b"\0", read_rows)


def test_reply_without_a_result_is_not_waited_for() -> None:
    whole = reply(T2.THBaseService, "get", 1)
    with pytest.raises(TApplicationException, match="without a result"):
        link_on(Script(whole, [10_000])).ask("get", b"?", read_row)


def test_behind_an_error_replies_are_owed() -> None:
    failed = reply(T2.THBaseService, METHOD, 2, io=T2.TIOError(message="gone"))
    link = link_on(Script(page(1, b"r1") + failed + page(3, b"r3"), [7]))
    with pytest.raises(T2.TIOError):
        link.ask_each(METHOD, [b"?"] * 3, read_rows)
    assert link.owed == 1


@pytest.mark.parametrize("rows", [1, 99, 199, 200, 201, 1000, 10_001])
def test_pieces_are_of_one_size_and_not_small(rows: int) -> None:
    pieces = _pieces(rows)
    assert sum(pieces) == rows
    assert max(pieces) - min(pieces) <= 1
    assert len(pieces) == 1 or min(pieces) >= 100


@pytest.fixture
def backend() -> Iterator[Thrift2Backend]:
    with FakeCluster(servers=2) as cluster, cluster.connect() as connection:
        connection.create_table("t", {"cf": {}})
        with connection.table("t").batch() as batch:
            for number in range(700):
                batch.put(b"%03d" % number, {b"cf:a": b"1"})
        made = Thrift2Backend(cluster.serve().thrift2_url, runtime=ThreadRuntime())
        yield made
        made.close()


def until(backend: Any) -> float:
    return float(backend._runtime.now() + 30)


def test_pages_of_a_gateway_have_all_rows_in_order(backend: Thrift2Backend) -> None:
    opened = backend.scan_open(None, b"t", Scan(caching=300), until(backend))
    pages = [opened]
    while not pages[-1].is_end_of_region:
        pages.append(backend.scan_next(pages[-1].scanner, 300, until(backend)))
    assert [len(one.rows) for one in pages] == [300, 300, 100]
    assert [one.row for each in pages for one in each.rows] == [b"%03d" % number for number in range(700)]


def test_a_connection_with_replies_to_come_is_not_used_again(backend: Thrift2Backend) -> None:
    scanner = backend.scan_open(None, b"t", Scan(caching=100), until(backend)).scanner
    backend.scan_close(scanner, until(backend))
    with pytest.raises(MetaClientError):
        backend.scan_next(scanner, 400, until(backend))  # both of its calls are answered with an error
    assert [one["idle"] for one in backend.gateways().values()] == [0]
    backend.mutate(None, b"t", Put(b"new", (Cell(b"cf:a", 7, b"2"),)), until(backend))
    assert backend.get(None, b"t", Get(b"new"), until(backend)) == Result(b"new", [Cell(b"cf:a", 7, b"2")])


# -- pages that are requested without waiting for them ---------------------------------------------------------------


def in_use(backend: Thrift2Backend) -> list[object]:
    return [one["in_use"] for one in backend.gateways().values()]


def test_pages_that_are_sent_first_have_all_rows_in_order(backend: Thrift2Backend) -> None:
    pages = [backend.scan_open(None, b"t", Scan(caching=300), until(backend))]
    while not pages[-1].is_end_of_region:
        sent = backend.send_next(pages[-1].scanner, 300, until(backend))
        assert sent is not None
        pages.append(sent.read())
        sent.drop()  # without effect
    assert [len(one.rows) for one in pages] == [300, 300, 100]
    assert [one.row for each in pages for one in each.rows] == [b"%03d" % number for number in range(700)]
    assert in_use(backend) == [0]


def test_request_holds_a_connection_until_its_page_was_read(backend: Thrift2Backend) -> None:
    """The connection is in use from the request until the page was read."""
    scanner = backend.scan_open(None, b"t", Scan(caching=100), until(backend)).scanner
    sent = backend.send_next(scanner, 100, until(backend))
    assert sent is not None
    assert in_use(backend) == [1]
    assert sent.read().rows[0].row == b"100"
    assert in_use(backend) == [0]


def test_unread_page_leaves_no_connection_out_of_step(backend: Thrift2Backend) -> None:
    scanner = backend.scan_open(None, b"t", Scan(caching=100), until(backend)).scanner
    sent = backend.send_next(scanner, 400, until(backend))
    assert sent is not None
    sent.drop()
    sent.drop()
    assert [(one["idle"], one["in_use"]) for one in backend.gateways().values()] == [(0, 0)]
    assert backend.get(None, b"t", Get(b"001"), until(backend)).row == b"001"


def test_error_of_a_page_that_was_sent_is_that_of_the_call(backend: Thrift2Backend) -> None:
    scanner = backend.scan_open(None, b"t", Scan(caching=100), until(backend)).scanner
    backend.scan_close(scanner, until(backend))
    sent = backend.send_next(scanner, 400, until(backend))
    assert sent is not None
    with pytest.raises(ScannerLost):
        sent.read()
    assert [(one["idle"], one["in_use"]) for one in backend.gateways().values()] == [(0, 0)]


def test_page_is_sent_only_on_an_idle_connection(backend: Thrift2Backend) -> None:
    """The calling thread must not wait for a connection; and half of them stay free for the calls of threads."""
    scanners = [backend.scan_open(None, b"t", Scan(caching=100), until(backend)).scanner for _ in range(2)]
    first = backend.send_next(scanners[0], 100, until(backend))
    assert first is not None
    assert backend.send_next(scanners[1], 100, until(backend)) is None, "the only connection is in use"
    first.read()
    second = backend.send_next(scanners[1], 100, until(backend))
    assert second is not None
    second.drop()


@pytest.mark.parametrize("connections_max", [1, 2, 3, 4, 10])
def test_at_most_half_of_the_connections_wait_for_threads(connections_max: int) -> None:
    with ThreadRuntime() as runtime:
        gateway = Gateway("gateway", 9090)

        def dial(_: Gateway, deadline: float) -> Link:
            return link_on(Script(b"", [1]))

        gateways = Gateways([gateway], dial, runtime=runtime, connections_max=connections_max)
        loans = [gateways.borrow(Loan(), until_of(runtime)) for _ in range(connections_max)]
        for loan in loans:
            gateways.give_back(loan)
        lent = sum(gateways.borrow_idle(Loan(), gateway) for _ in range(connections_max))
        assert lent == connections_max // 2


def until_of(runtime: ThreadRuntime) -> float:
    return runtime.now() + 30


def test_cells_that_are_sent_first_are_those_of_the_call(backend: Thrift2Backend) -> None:
    pytest.importorskip("pyarrow")
    opened = backend.scan_open_cells(None, b"t", Scan(caching=300), until(backend))
    sent = backend.send_next_cells(opened.scanner, 300, until(backend))
    assert sent is not None
    page = sent.read()
    assert (page.rows, page.first_row, page.last_row) == (300, b"300", b"599")


def test_page_that_no_thread_can_read_is_dropped() -> None:
    """The executor refuses it, or the task is cancelled before it begins."""
    dropped: list[str] = []

    class Sent:
        def read(self) -> ScanPage:
            raise AssertionError("no thread reads it")

        def drop(self) -> None:
            dropped.append("dropped")

    with SimRuntime(seed=1) as runtime:
        executor = Executor(runtime, Capabilities(), abandoned_max=1)
        executor.begin_sent(Sent()).cancel()
        runtime.run_for(1.0)
        assert len(dropped) == 1
    with pytest.raises(MetaClientError):
        executor.begin_sent(Sent())  # the runtime is closed
    assert len(dropped) == 2
