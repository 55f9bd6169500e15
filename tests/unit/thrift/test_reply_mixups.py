"""Replies that are repeated, lost or replaced between gateway and client: no call gets the answer to another one."""

from __future__ import annotations

import random
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

import metaclient
from metaclient.backend import Action
from metaclient.errors import CallTimeout, ServerUnreachable
from metaclient.model import Cell, Get, Increment, Put, Result, Scan
from metaclient.runtime import ThreadRuntime
from metaclient_fake import FakeCluster
from metaclient_fake.front.serving import Front
from metaclient_thrift import Thrift1Backend, Thrift2Backend
from tests.unit.reply_proxy import Fate, ReplyProxy

LONG_S, SHORT_S = 60.0, 0.5
ROWS = 60
DIALECTS = [
    f"?transport={transport}&protocol={protocol}"
    for transport in ("buffered", "framed")
    for protocol in ("binary", "compact")
]
Backend = Thrift1Backend | Thrift2Backend
Behind = Callable[..., ReplyProxy]


@pytest.fixture(scope="module")
def front() -> Iterator[Front]:
    with FakeCluster(servers=1) as made, made.connect() as connection:
        connection.create_table("t", {"cf": {}})
        connection.create_table("counters", {"cf": {}})
        with connection.table("t").batch() as batch:
            for number in range(ROWS):
                batch.put(b"%03d" % number, {b"cf:a": b"%03d" % number})
        yield made.serve()


@pytest.fixture
def behind() -> Iterator[Behind]:
    """Starts a proxy before a port, which chooses among the fates given for every third reply or so."""
    made: list[ReplyProxy] = []

    def start(port: int, *fates: Fate, tls: ssl.SSLContext | None = None) -> ReplyProxy:
        rng = random.Random(1)
        made.append(ReplyProxy(port, lambda _: rng.choice([*fates, Fate.PASS, Fate.PASS]), tls=tls))
        return made[-1]

    yield start
    for one in made:
        one.close()


def backend_at(scheme: str, port: int, query: str, runtime: ThreadRuntime) -> Backend:
    kind = Thrift1Backend if scheme == "thrift1" else Thrift2Backend
    return kind(f"{scheme}://127.0.0.1:{port}{query}", runtime=runtime)


def outcomes_of(backend: Backend, runtime: ThreadRuntime, base: bytes, within_s: float = LONG_S) -> Counter[str]:
    """Make calls of three kinds for each row. A reply of another row, or of another kind, would be seen."""
    seen: Counter[str] = Counter()
    failed: list[tuple[bool, bool]] = []

    def tried(what: str, call: Callable[[], object], expected: object, *, is_write: bool) -> None:
        try:
            found = call()
        except (ServerUnreachable, CallTimeout) as error:
            failed.append((error.may_have_applied, is_write))
            seen[f"{what} failed"] += 1
        else:
            assert found == expected, f"{what} got the answer to another call"
            seen[what] += 1

    def until() -> float:
        return runtime.now() + within_s

    def calls_for(number: int) -> None:
        row = b"%03d" % number
        put = Put(b"put" + row, (Cell(b"cf:a", 7, row),))
        increment = Increment(base + row, ((b"cf:n", number + 1),))
        count = (number + 1).to_bytes(8, "big")
        tried("get", lambda: value(backend.get(None, b"t", Get(row), until())), row, is_write=False)
        tried("put", lambda: backend.mutate(None, b"t", put, until()), None, is_write=True)
        tried("increment", lambda: value(backend.mutate(None, b"counters", increment, until())), count, is_write=True)

    for number in range(ROWS):
        calls_for(number)
    assert all(may_have_applied is is_write for may_have_applied, is_write in failed)
    return seen


def value(result: object) -> bytes:
    assert isinstance(result, Result)
    (cell,) = result.cells
    return cell.value


@pytest.mark.parametrize("scheme", ["thrift1", "thrift2"])
@pytest.mark.parametrize("query", DIALECTS)
def test_repeated_reply_is_never_the_answer_to_a_later_call(
    front: Front, behind: Behind, runtime: ThreadRuntime, scheme: str, query: str
) -> None:
    proxy = behind(getattr(front, f"{scheme}_port"), Fate.REPEAT_LATE, Fate.REPLACE)
    backend = backend_at(scheme, proxy.port, query, runtime)
    seen = outcomes_of(backend, runtime, f"{scheme}{query}".encode())
    backend.close()
    assert min(seen[f"{what} failed"] for what in ("get", "put", "increment")) > 0, "the proxy has done nothing"
    assert min(seen[what] for what in ("get", "put", "increment")) > 0
    assert proxy.connections > 10, "a connection that is out of step was used again"


@pytest.mark.parametrize("scheme", ["thrift1", "thrift2"])
@pytest.mark.parametrize("query", DIALECTS)
def test_answer_that_comes_twice_at_once_costs_a_connection_and_no_call(
    front: Front, behind: Behind, runtime: ThreadRuntime, scheme: str, query: str
) -> None:
    """The first is right, by its id. The second is seen before the connection is used again."""
    proxy = behind(getattr(front, f"{scheme}_port"), Fate.REPEAT)
    backend = backend_at(scheme, proxy.port, query, runtime)
    seen = outcomes_of(backend, runtime, f"twice {scheme}{query}".encode())
    backend.close()
    assert seen == {"get": ROWS, "put": ROWS, "increment": ROWS}
    assert proxy.connections > 10, "a connection with surplus bytes was used again"


@pytest.mark.parametrize("scheme", ["thrift1", "thrift2"])
def test_lost_reply_is_not_made_up_for_by_the_next(
    front: Front, behind: Behind, runtime: ThreadRuntime, scheme: str
) -> None:
    fates = iter([Fate.PASS, Fate.DROP, Fate.REPEAT_LATE, Fate.PASS, Fate.DROP])
    proxy = ReplyProxy(getattr(front, f"{scheme}_port"), lambda _: next(fates, Fate.PASS))
    backend = backend_at(scheme, proxy.port, "", runtime)
    seen = outcomes_of(backend, runtime, f"lost {scheme}".encode(), within_s=SHORT_S)
    backend.close()
    proxy.close()
    assert sum(count for what, count in seen.items() if what.endswith("failed")) >= 2


def test_repeated_reply_under_tls(
    front: Front, behind: Behind, runtime: ThreadRuntime, certificate: tuple[Path, Path]
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    proxy = behind(front.thrift2_port, Fate.REPEAT_LATE, Fate.REPLACE, Fate.REPEAT, tls=context)
    backend = backend_at("thrift2+tls", proxy.port, f"?ca={certificate[0]}", runtime)
    seen = outcomes_of(backend, runtime, b"tls")
    backend.close()
    assert seen["increment"] > 0
    assert seen["increment failed"] > 0


def test_repeated_reply_in_http(http: ThreadingHTTPServer, behind: Behind, runtime: ThreadRuntime) -> None:
    proxy = behind(http.server_port, Fate.REPEAT_LATE, Fate.REPLACE, Fate.REPEAT)
    backend = backend_at("thrift2+http", proxy.port, "", runtime)
    seen: Counter[str] = Counter()
    for number in range(ROWS):
        row = b"%03d" % number
        try:
            found = backend.get(None, b"t", Get(row), runtime.now() + LONG_S)
        except ServerUnreachable:
            seen["failed"] += 1
        else:
            seen["right" if found.cells[0].value == row else "wrong"] += 1
    backend.close()
    assert seen["wrong"] == 0
    assert min(seen["right"], seen["failed"]) > 0


@pytest.mark.parametrize("scheme", ["thrift1", "thrift2"])
def test_reads_behind_a_proxy_that_repeats_replies_are_retried(front: Front, behind: Behind, scheme: str) -> None:
    """A read, a put and a scan are idempotent: the user sees right answers and no error."""
    proxy = behind(getattr(front, f"{scheme}_port"), Fate.REPEAT_LATE, Fate.REPLACE, *[Fate.PASS] * 12)
    with metaclient.connect(f"{scheme}://127.0.0.1:{proxy.port}") as connection:
        table = connection.table("t")
        for number in range(ROWS):
            assert table.row(b"%03d" % number) == {b"cf:a": b"%03d" % number}
        for _ in range(5):
            found = dict(table.scan(row_stop=b"1", batch_size=7))
            assert found == {b"%03d" % number: {b"cf:a": b"%03d" % number} for number in range(ROWS)}
    assert proxy.connections > 5


def test_replies_of_pipelined_calls_are_not_swapped(front: Front, runtime: ThreadRuntime) -> None:
    """A page of a scan is two calls at once. The replies are of one method: only their ids tell them apart."""
    direct = backend_at("thrift2", front.thrift2_port, "", runtime)
    puts = [Put(b"wide%03d" % number, (Cell(b"cf:a", 7, b"1"),)) for number in range(400)]
    direct.batch(None, b"t", [Action(None, put) for put in puts], runtime.now() + LONG_S)
    fates = iter([Fate.PASS, Fate.PASS, Fate.REPEAT_LATE])
    proxy = ReplyProxy(front.thrift2_port, lambda _: next(fates, Fate.PASS))
    backend = backend_at("thrift2", proxy.port, "", runtime)
    with pytest.raises(ServerUnreachable):
        for _ in range(3):
            scan = Scan(b"wide", b"wide9", caching=200)
            found = backend.scan_open(None, b"t", scan, runtime.now() + LONG_S)
            assert found.rows == direct.scan_open(None, b"t", scan, runtime.now() + LONG_S).rows
    direct.close()
    backend.close()
    proxy.close()
