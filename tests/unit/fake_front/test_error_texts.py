"""What the fake's gateways say is what HBase's say: the adapter's error table reads both the same way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from metaclient import errors
from metaclient.config import Config
from metaclient.errors import Attempt, MetaClientError
from metaclient.model import ServerName
from metaclient_fake import FakeCluster
from metaclient_fake.front.java_text import AskedCall, batch_error, of_call
from metaclient_thrift.errors import CallAttempt, translate_error
from tests.unit.fake_front.gateway_client import T1, T2, thrift1_client, thrift2_client

NOTHING: dict[bytes, bytes] = {}
NOW_MS = 1_700_000_000_000
#: As many attempts as when the texts were recorded, in less time.
QUICK = {"hbase.client.pause": "1", "hbase.client.retries.number": "4"}
RECORDED = {
    case["case"]: case
    for case in json.loads(
        (Path(__file__).parents[1] / "thrift" / "data" / "recorded_errors.json").read_text(encoding="utf-8")
    )
}


def name(table: bytes) -> Any:
    return T2.TTableName(ns=b"default", qualifier=table)


def put2(family: bytes = b"cf") -> Any:
    return T2.TPut(b"r", [T2.TColumnValue(family, b"q", b"v")])


def batch1(family: bytes = b"cf") -> list[Any]:
    return [T1.BatchMutation(row, [T1.Mutation(column=family + b":q", value=b"v")]) for row in (b"a", b"b")]


CASES: dict[str, Any] = {
    "thrift2: get nope": lambda c: c.get(b"nope", T2.TGet(b"r")),
    "thrift2: get bad family": lambda c: c.get(b"t1", T2.TGet(b"r", [T2.TColumn(b"zz")])),
    "thrift2: put bad family": lambda c: c.put(b"t1", put2(b"zz")),
    "thrift2: batch bad family": lambda c: c.putMultiple(b"t1", [put2(b"zz"), put2(b"zz")]),
    "thrift2: batch nope": lambda c: c.putMultiple(b"nope", [put2(), put2()]),
    "thrift2: put nope": lambda c: c.put(b"nope", put2()),
    "thrift2: create exists": lambda c: c.createTable(
        T2.TTableDescriptor(name(b"t1"), [T2.TColumnFamilyDescriptor(name=b"cf")]), None
    ),
    "thrift2: delete enabled": lambda c: c.deleteTable(name(b"t1")),
    "thrift2: delete nope": lambda c: c.deleteTable(name(b"nope")),
    "thrift2: disable nope": lambda c: c.disableTable(name(b"nope")),
    "thrift2: enable nope": lambda c: c.enableTable(name(b"nope")),
    "thrift2: enable enabled": lambda c: c.enableTable(name(b"t1")),
    "thrift2: describe nope": lambda c: c.getTableDescriptor(name(b"nope")),
    "thrift2: is enabled nope": lambda c: c.isTableEnabled(name(b"nope")),
    "thrift2: scan nope": lambda c: c.getScannerRows(c.openScanner(b"nope", T2.TScan()), 1),
    "thrift2: scan bad family": lambda c: c.getScannerRows(
        c.openScanner(b"t1", T2.TScan(columns=[T2.TColumn(b"zz")])), 1
    ),
    "thrift2: incr bad value": lambda c: c.increment(
        b"t1", T2.TIncrement(b"bad", [T2.TColumnIncrement(b"cf", b"n", 1)])
    ),
    "thrift2: meta replica 7": lambda c: c.get(b"hbase:meta", T2.TGet(b"x", consistency=2, targetReplicaId=7)),
    "thrift2: user replica 9": lambda c: c.get(b"t1", T2.TGet(b"x", consistency=2, targetReplicaId=9)),
    "thrift2: scan user replica 9": lambda c: c.getScannerResults(b"t1", T2.TScan(consistency=2, targetReplicaId=9), 1),
    "thrift2: create ns twice": lambda c: c.createNamespace(T2.TNamespaceDescriptor("default")),
    "thrift2: delete ns missing": lambda c: c.deleteNamespace("nons"),
    "thrift2: table in missing ns": lambda c: c.createTable(
        T2.TTableDescriptor(T2.TTableName(ns=b"nons", qualifier=b"t"), [T2.TColumnFamilyDescriptor(name=b"cf")]), None
    ),
    "thrift2: get unknown scanner": lambda c: c.getScannerRows(4711, 1),
    "thrift2: disable twice": lambda c: c.disableTable(name(b"tdis")),
    "thrift2: get disabled": lambda c: c.get(b"tdis", T2.TGet(b"r")),
    "thrift2: put disabled": lambda c: c.put(b"tdis", put2()),
    "thrift2: batch disabled": lambda c: c.putMultiple(b"tdis", [put2(), put2()]),
    "thrift2: scan disabled": lambda c: c.getScannerResults(b"tdis", T2.TScan(), 1),
    "thrift1: get nope": lambda c: c.getRow(b"nope", b"r", NOTHING),
    "thrift1: get bad family": lambda c: c.getRowWithColumns(b"t1", b"r", [b"zz"], NOTHING),
    "thrift1: put bad family": lambda c: c.mutateRows(b"t1", batch1(b"zz")[:1], NOTHING),
    "thrift1: batch bad family": lambda c: c.mutateRows(b"t1", batch1(b"zz"), NOTHING),
    "thrift1: batch nope": lambda c: c.mutateRows(b"nope", batch1(), NOTHING),
    "thrift1: put nope": lambda c: c.mutateRows(b"nope", batch1()[:1], NOTHING),
    "thrift1: create exists": lambda c: c.createTable(b"t1", [T1.ColumnDescriptor(name=b"cf:")]),
    "thrift1: delete enabled": lambda c: c.deleteTable(b"t1"),
    "thrift1: delete nope": lambda c: c.deleteTable(b"nope"),
    "thrift1: disable nope": lambda c: c.disableTable(b"nope"),
    "thrift1: enable nope": lambda c: c.enableTable(b"nope"),
    "thrift1: enable enabled": lambda c: c.enableTable(b"t1"),
    "thrift1: describe nope": lambda c: c.getColumnDescriptors(b"nope"),
    "thrift1: is enabled nope": lambda c: c.isTableEnabled(b"nope"),
    "thrift1: scan nope": lambda c: c.scannerGet(c.scannerOpenWithScan(b"nope", T1.TScan(), NOTHING)),
    "thrift1: scan bad family": lambda c: c.scannerGet(
        c.scannerOpenWithScan(b"t1", T1.TScan(columns=[b"zz"]), NOTHING)
    ),
    "thrift1: incr bad value": lambda c: c.atomicIncrement(b"t1", b"bad", b"cf:n", 1),
    "thrift1: get unknown scanner": lambda c: c.scannerGet(4711),
    "thrift1: get disabled": lambda c: c.getRow(b"tdis", b"r", NOTHING),
    "thrift1: put disabled": lambda c: c.mutateRows(b"tdis", batch1()[:1], NOTHING),
    "thrift1: batch disabled": lambda c: c.mutateRows(b"tdis", batch1(), NOTHING),
    "thrift1: scan disabled": lambda c: c.scannerGet(c.scannerOpenWithScan(b"tdis", T1.TScan(), NOTHING)),
}


@pytest.fixture(scope="module")
def prepared() -> Iterator[FakeCluster]:
    with FakeCluster(servers=2, meta_replicas=1) as cluster:
        cluster.serve(gateway=QUICK)
        with thrift2_client(cluster.thrift2_port) as client:
            for table in (b"t1", b"tdis"):
                family = T2.TColumnFamilyDescriptor(name=b"cf")
                client.createTable(T2.TTableDescriptor(name(table), [family], {b"REGION_REPLICATION": b"2"}), None)
            client.put(b"t1", T2.TPut(b"bad", [T2.TColumnValue(b"cf", b"n", b"x")]))
            client.disableTable(name(b"tdis"))
        yield cluster


def test_every_recorded_case_is_here() -> None:
    assert set(CASES) | set(KILLED) == set(RECORDED)


@pytest.mark.parametrize("case", CASES)
def test_text_is_that_of_a_real_gateway(prepared: FakeCluster, case: str) -> None:
    """Kind of exception, first class or whole bare text, canRetry, and what our own adapter makes of it."""
    is_thrift2 = case.startswith("thrift2")
    opened = thrift2_client(prepared.thrift2_port) if is_thrift2 else thrift1_client(prepared.thrift1_port)
    with opened as client, pytest.raises(Exception) as caught:  # noqa: PT011  # each case has its own
        CASES[case](client)
    check(case, caught.value)


def check(case: str, said: Any) -> None:
    recorded, is_thrift2 = RECORDED[case], case.startswith("thrift2")
    assert type(said).__name__ == recorded["exception"]
    if is_thrift2:
        assert getattr(said, "canRetry", None) == recorded["can_retry"]
    assert first_words(said.message) == first_words(recorded["text"])
    table = recorded["table"].encode()
    judged = translate_error(said, CallAttempt("it", table, recorded["is_write"]))
    assert (type(judged).__name__, judged.may_have_applied) == (recorded["error"], recorded["may_have_applied"])
    assert "\n" not in str(judged)


def first_words(text: str) -> str:
    """The class that a text begins with, or all of a text without one; numbers and names of servers differ."""
    line = text.splitlines()[0].replace("b5x", "x")
    head, _, rest = line.partition(": ")
    if rest.startswith("Failed") or head.startswith("Failed"):
        return line.split("servers with issues")[0].split(" does not exist")[0]
    return head if head.startswith(("org.", "java.")) else line


AT_1 = {"consistency": 2, "targetReplicaId": 1}
KILLED: dict[str, Any] = {
    "thrift2: killed meta replica": lambda c: c.getScannerResults(b"hbase:meta", T2.TScan(**AT_1), 1),
    "thrift2: killed get at replica": lambda c: c.get(b"t1", T2.TGet(b"r", **AT_1)),
    "thrift2: killed get": lambda c: c.get(b"t1", T2.TGet(b"r")),
    "thrift2: killed put": lambda c: c.put(b"t1", put2()),
    "thrift2: killed scan": lambda c: c.getScannerResults(b"t1", T2.TScan(), 1),
}


@pytest.fixture(scope="module")
def killed() -> Iterator[FakeCluster]:
    """All servers are dead, and the master has not noticed; the gateway knew where everything was."""
    config = {"session_timeout_s": 1000.0}
    with FakeCluster(servers=2, meta_replicas=2, config=config) as cluster:
        cluster.serve(gateway=QUICK)
        with thrift2_client(cluster.thrift2_port) as client:
            family = T2.TColumnFamilyDescriptor(name=b"cf")
            client.createTable(T2.TTableDescriptor(name(b"t1"), [family], {b"REGION_REPLICATION": b"2"}), None)
            client.get(b"t1", T2.TGet(b"r"))
            for server in cluster.servers():
                cluster.kill(server)
        yield cluster


@pytest.mark.parametrize("case", KILLED)
def test_text_of_a_dead_server_is_that_of_a_real_gateway(killed: FakeCluster, case: str) -> None:
    with thrift2_client(killed.thrift2_port) as client, pytest.raises(T2.TIOError) as caught:
        KILLED[case](client)
    check(case, caught.value)


# -- every error of ours -------------------------------------------------------------------------------------------

SERVER_ERRORS = [
    errors.NoSuchFamily,
    errors.RequestRefused,
    errors.NotServingRegion,
    errors.RegionOpening,
    errors.WrongRegion,
    errors.ServerStopped,
    errors.ServerUnreachable,
    errors.CallQueueTooBig,
    errors.RegionTooBusy,
    errors.ServerNotRunning,
    errors.CallTimeout,
    errors.ScannerLost,
]


@pytest.mark.parametrize("kind", SERVER_ERRORS)
def test_error_of_a_server_is_heard_as_what_it_was(kind: type[MetaClientError]) -> None:
    said = of_call("get", kind("what happened"), Config(), NOW_MS, AskedCall(b"t"))
    for heard in (
        translate_error(T2.TIOError(message=said.thrift2, canRetry=said.can_retry), CallAttempt("get", b"t")),
        translate_error(T1.IOError(message=said.thrift1, canRetry=said.can_retry), CallAttempt("get", b"t")),
    ):
        assert type(heard) is kind
        assert heard.detail


def test_move_is_heard_with_its_target() -> None:
    text = "Region moved to: hostname=rs2 port=16020 startCode=7. As of locationSeqNum=12."
    said = of_call("get", errors.RegionMoved(text), Config(), NOW_MS, AskedCall(b"t"))
    heard = translate_error(T2.TIOError(message=said.thrift2, canRetry=said.can_retry), CallAttempt("get", b"t"))
    assert isinstance(heard, errors.RegionMoved)
    assert (heard.server, heard.seqnum) == (ServerName("rs2", 16020, 7), 12)


@pytest.mark.parametrize("kind", [errors.RetriesExhausted, errors.DeadlineExceeded])
@pytest.mark.parametrize("cause", [errors.NotServingRegion, errors.CallTimeout, errors.ServerUnreachable])
def test_attempts_are_listed_and_the_last_cause_counts(
    kind: type[MetaClientError], cause: type[MetaClientError]
) -> None:
    attempts = [Attempt(1, 0.1, "RegionTooBusy: full"), Attempt(2, 0.3, f"{cause.__name__}: at the end")]
    error = kind("gave up", attempts=attempts)
    error.__cause__ = cause("at the end")
    said = of_call("get", error, Config(), NOW_MS, AskedCall(b"t"))
    assert said.message.startswith("Failed after attempts=2, exceptions:\n20")
    assert said.can_retry is True
    for heard in (
        translate_error(T2.TIOError(message=said.thrift2, canRetry=True), CallAttempt("get", b"t")),
        translate_error(T1.IOError(message=said.thrift1, canRetry=True), CallAttempt("get", b"t")),
    ):
        assert type(heard) is cause


def test_batch_counts_its_causes() -> None:
    failed = [errors.NoSuchFamily("Column family zz does not exist"), errors.NotServingRegion("gone")]
    said = batch_error([*failed, errors.NotServingRegion("gone, too")], b"t")
    assert said.message.startswith("Failed 3 actions: ")
    assert "NotServingRegionException: 2 times" in said.message
    assert said.message.endswith("servers with issues: null")
