"""The fake cluster that is attacked, the figures that are reported at the end, and the search for leaks."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import metaclient
from metaclient_fake import FakeCluster

Figure = Callable[[str], None]

_FIGURES = pytest.StashKey[list[str]]()
#: Threads and sockets end within this time after their owner was closed.
_SETTLED_S = 10.0


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_FIGURES] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.stash[_FIGURES]:
        terminalreporter.section("figures of the attack")
        for line in config.stash[_FIGURES]:
            terminalreporter.line(line)


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Figure:
    """Adds a line to the figures at the end of the run."""
    return request.config.stash[_FIGURES].append


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(servers=3, meta_replicas=3) as made:
        with made.connect() as connection:
            connection.create_table("t", {"cf": {}}, splits=[b"r01", b"r02"])
        yield made


@pytest.fixture
def url(cluster: FakeCluster, request: pytest.FixtureRequest) -> str:
    """The url of the served cluster; the parameter is the scheme."""
    front = cluster.serve(rpc_port=0)
    urls = {"thrift1": front.thrift1_url, "thrift2": front.thrift2_url, "hbase+rpc": front.rpc_url}
    chosen = str(urls[request.param])
    with metaclient.connect(chosen) as connection:  # a server listens from its first client on
        for row in (b"a", b"r01", b"r02"):
            connection.table("t").row(row)
    return chosen


@contextmanager
def nothing_leaks() -> Iterator[None]:
    """Fail if the block leaves threads or open files, after some time for their ends."""
    gc.collect()
    threads, files = set(threading.enumerate()), _open_files()
    yield
    deadline = time.monotonic() + _SETTLED_S
    while (leaked := _leaked(threads, files)) and time.monotonic() < deadline:
        gc.collect()
        threading.Event().wait(0.05)
    assert not leaked


def _leaked(threads: set[threading.Thread], files: int) -> list[str]:
    found = [f"thread {one.name}" for one in threading.enumerate() if one not in threads]
    more = _open_files() - files
    return found + ([f"{more} open files"] if more > 0 else [])


def _open_files() -> int:
    folder = Path("/proc/self/fd")
    return len(os.listdir(folder)) if folder.exists() else 0
