"""A real HBase for the tests in this folder: one cluster at a time, each version once a run.

``METACLIENT_LIVE_VERSIONS`` (comma-separated) chooses versions; ``METACLIENT_LIVE_FOLDER`` names the folder of a
cluster that already runs (``metaclient hbase up --folder``) and is left running. Under ``CI=true`` the tests that are
marked ``essential`` are ``make essential``, and what they need must be there.

A machine that others use, too, must not look like a fault: sessions are long, nothing is asserted about rates and
times (the benchmarks do that), and whatever is waited for has a generous deadline.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import metaclient
from metaclient import Connection, MetaClientError, Table
from metaclient_local_hbase import VERSIONS, LocalHBase, missing_tools
from tests.live.load import SPLITS, connect_patiently, left_out, unwatched, wait_for_copies, wait_for_meta

HERE = Path(__file__).parent
#: A server that is starved or paused for less than this is not dead. One that was killed is noticed when it comes back.
SESSION_S = 60.0
#: Hundreds of small tables live in three servers.
HEAP_MB = 768
FOLDER = os.environ.get("METACLIENT_LIVE_FOLDER")
CHOSEN = ["running"] if FOLDER else os.environ.get("METACLIENT_LIVE_VERSIONS", ",".join(VERSIONS)).split(",")


#: Of the suites that many backends share, `make essential` takes every so-many-th test, with its first parameters: each
#: makes a table, which takes HBase most of a second. `make live` runs them all.
EVERY = {
    "2.6.1": {
        "TestThrift2": 1,
        "TestThrift1": 4,
        "TestNative": 1,
        "TestMetaclientByThrift2": 2,
        "TestMetaclientByThrift1": 4,
    },
    # The gateways are those of 2.6.1 here, too: what differs are the servers, and native RPC speaks to them itself.
    "3.0.0-alpha-4": {
        "TestThrift2": 6,
        "TestThrift1": 20,
        "TestNative": 2,
        "TestMetaclientByThrift2": 10,
        "TestMetaclientByThrift1": 20,
    },
}


def _version(item: pytest.Item) -> str:
    """Of the cluster that a test runs on; empty where it is on none of this folder's."""
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    return str(parameters.get("hbase", ""))


def _turn(item: pytest.Item) -> tuple[int, bool]:
    """Version by version, so that each cluster is started once; behind them all that is not of this folder.

    The contract comes last: it leaves hundreds of tables behind, and a server that comes back would take long to open
    them.
    """
    if HERE not in item.path.parents:
        return len(CHOSEN) + 1, False
    version = _version(item)
    return CHOSEN.index(version) if version in CHOSEN else len(CHOSEN), "contract" in item.path.name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_turn)
    seen: dict[tuple[str, str], list[str]] = {}
    for item in items:
        if HERE not in item.path.parents:
            continue
        item.add_marker(pytest.mark.live)
        version, suite = _version(item), getattr(getattr(item, "cls", None), "__name__", "")
        every, test = EVERY.get(version, {}).get(suite), getattr(item, "originalname", item.name)
        tests = seen.setdefault((version, suite), [])
        if every is not None and test not in tests:
            tests.append(test)
            if (len(tests) - 1) % every == 0:
                item.add_marker(pytest.mark.essential)


@pytest.fixture(scope="session", params=CHOSEN)
def hbase(request: pytest.FixtureRequest) -> Iterator[LocalHBase]:
    if FOLDER:
        yield LocalHBase.at(FOLDER)
        return
    left_out(missing_tools())
    with unwatched():
        cluster = _started(request.param)
    try:
        yield cluster
    finally:
        cluster.down()


def _started(version: str) -> LocalHBase:
    """A cluster that is up; a start that failed is tried once more, and what the first said is shown."""
    for is_last in (False, True):
        cluster = LocalHBase(version, gateways=2, session_s=SESSION_S, heap_mb=HEAP_MB)
        try:
            cluster.up()
        except MetaClientError as error:
            print(f"\nHBase {version} did not start: {error}\n{error.detail or ''}", file=sys.__stderr__)
            if is_last:
                raise
        else:
            return cluster
    raise AssertionError("unreachable")


@pytest.fixture
def connection(hbase: LocalHBase) -> Iterator[Connection]:
    with metaclient.connect(hbase.thrift2_url, meta_mode="LoadBalance") as made:
        yield made


@pytest.fixture
def native(hbase: LocalHBase) -> Iterator[Connection]:
    with connect_patiently(hbase) as made:
        yield made


@pytest.fixture(scope="session")
def table_name(hbase: LocalHBase) -> bytes:
    """A table of ten regions that every copy of meta knows: on 2.6.1 they learn of it seconds later."""
    name = b"live_lookups"
    with metaclient.connect(hbase.thrift2_url) as connection:
        if name not in connection.tables():
            connection.create_table(name, {"cf": {}}, splits=SPLITS, region_replication=3)
        wait_for_meta(connection, name, len(SPLITS) + 1)
    return name


@pytest.fixture
def table(connection: Connection, table_name: bytes) -> Table:
    return connection.table(table_name)


@pytest.fixture
def healed(hbase: LocalHBase, table_name: bytes) -> Iterator[None]:
    """Faults end with the test: all is started again, and each copy of meta has a server of its own, before and after.

    Servers that still hang are killed: woken after a long time they would only abort.
    """
    hbase.spread_meta()
    yield
    for process in hbase.status()["processes"]:
        if process["state"] == "paused":
            hbase.kill(process["name"])
        if process["state"] != "running":
            hbase.start(process["name"])
    hbase.wait_until_ready()
    hbase.spread_meta()
    with metaclient.connect(hbase.thrift2_url) as connection:
        wait_for_meta(connection, table_name, len(SPLITS) + 1)
    wait_for_copies(hbase, table_name)
