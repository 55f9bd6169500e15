"""A real HBase for the tests in this folder: one cluster at a time, each version once a run.

``METACLIENT_LIVE_VERSIONS`` (comma-separated) chooses versions; ``METACLIENT_LIVE_FOLDER`` names the folder of a
cluster that already runs (``metaclient hbase up --folder``) and is left running.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import metaclient
from adapters.local_hbase import VERSIONS, LocalHBase, missing_tools
from metaclient import Connection, Table, keys
from metaclient.backend import MetaScan

HERE = Path(__file__).parent
SPLITS = [b"r%d" % number for number in range(1, 10)]
ROWS = [b"a", *(split + b"x" for split in SPLITS)]
#: Longer than LocalHBase's own: a busy machine must not look like a crash.
SESSION_S = 15.0
#: Seconds on an idle machine; ten times that on a busy one.
META_S_MAX = 120.0
FOLDER = os.environ.get("METACLIENT_LIVE_FOLDER")
CHOSEN = ["running"] if FOLDER else os.environ.get("METACLIENT_LIVE_VERSIONS", ",".join(VERSIONS)).split(",")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.live)


@pytest.fixture(scope="session", params=CHOSEN)
def hbase(request: pytest.FixtureRequest) -> Iterator[LocalHBase]:
    if FOLDER:
        yield LocalHBase.at(FOLDER)
        return
    missing = missing_tools()
    if missing is not None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"live tests must run in CI: {missing}")
        pytest.skip(missing)
    with LocalHBase(request.param, session_s=SESSION_S) as cluster:
        yield cluster


@dataclass(slots=True)
class Load:
    """What happened: when each lookup began and how long it took, and the errors."""

    lookups: list[tuple[float, float]] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)

    @property
    def slowest_s(self) -> float:
        return max((seconds for _, seconds in self.lookups), default=0.0)

    def count(self, start: float, stop: float) -> int:
        """Lookups that ended between two instants."""
        return sum(start <= begun + seconds < stop for begun, seconds in self.lookups)


@contextmanager
def looking_up(connection: Connection, table: Table, *, threads: int = 4) -> Iterator[Load]:
    """Look up rows past the cache, on so many threads, until the block ends."""
    load, runtime, is_over = Load(), connection._runtime, False

    def work(at: int) -> None:
        while not is_over:
            at += 1
            begun = runtime.now()
            try:
                connection.locate(table.name, ROWS[at % len(ROWS)], reload=True)
            except Exception as error:
                load.errors.append(error)
            load.lookups.append((begun, runtime.now() - begun))

    tasks = [runtime.start(work, number, name="lookups") for number in range(threads)]
    try:
        yield load
    finally:
        is_over = True
        for task in tasks:
            task.result()


@pytest.fixture
def connection(hbase: LocalHBase) -> Iterator[Connection]:
    with metaclient.connect(hbase.thrift2_url, meta_mode="LoadBalance") as made:
        yield made


@pytest.fixture
def lookups() -> Callable[..., AbstractContextManager[Load]]:
    return looking_up


@pytest.fixture(scope="session")
def table_name(hbase: LocalHBase) -> bytes:
    """A table of ten regions that every copy of meta knows: on 2.6.1 they learn of it seconds later."""
    name = b"live_lookups"
    with metaclient.connect(hbase.thrift2_url) as connection:
        if name not in connection.tables():
            connection.create_table(name, {"cf": {}}, splits=SPLITS, region_replication=3)
        wait_for_meta(connection, hbase, name)
    return name


def wait_for_meta(connection: Connection, hbase: LocalHBase, table: bytes) -> None:
    """Until each copy of meta places every region of the table."""
    runtime, scan = (
        connection._runtime,
        MetaScan(keys.meta_table_start(table), keys.meta_table_stop(table), is_reversed=False, limit=100),
    )
    deadline = runtime.now() + META_S_MAX
    for replica in connection._backend.meta_replicas(deadline):
        while True:
            with suppress(metaclient.MetaClientError):
                page = connection._backend.read_meta(replica, scan, runtime.now() + 5)
                if sum(b"info:server" in row.columns for row in page.rows) == len(SPLITS) + 1:
                    break
            assert runtime.now() < deadline, f"meta replica {replica.replica_id} never learned of {table!r}"
            runtime.sleep(0.2)


@pytest.fixture
def table(connection: Connection, table_name: bytes) -> Table:
    return connection.table(table_name)


@pytest.fixture
def healed(hbase: LocalHBase, table_name: bytes) -> Iterator[Callable[[], None]]:
    """Faults end with the test: what was killed or hung is started again, and meta serves everywhere."""

    def heal() -> None:
        states = {process["name"]: process["state"] for process in hbase.status()["processes"]}
        for name, state in states.items():
            if state == "paused":
                hbase.kill(name)  # its session is over: it would only abort
            if state != "running":
                hbase.start(name)
        hbase.wait_until_ready()
        with metaclient.connect(hbase.thrift2_url) as connection:
            wait_for_meta(connection, hbase, table_name)

    yield heal
    heal()
