"""A process that gevent or eventlet has patched is refused: there no deadline would hold."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys

import pytest

import metaclient
from metaclient.errors import ServerUnreachable, Unsupported
from metaclient.runtime import SimRuntime, ThreadRuntime
from metaclient.testing import FakeCluster

URLS = ["fake:", "scripted:", "thrift1://localhost:9", "thrift2://localhost:9", "hbase+rpc://localhost:9"]
#: What makes each kind of object in a process that the first line has patched.
PROGRAM = """
{patch}
import metaclient
from metaclient.errors import Unsupported
from metaclient.testing import FakeCluster
attempts = [FakeCluster, lambda: metaclient.ConnectionPool(1, url="fake:"), lambda: metaclient.Connection("localhost")]
attempts += [lambda url=url: metaclient.connect(url) for url in {urls!r}]
for attempt in attempts:
    try:
        attempt()
    except Unsupported as error:
        print(error)
"""


class Patched(socket.socket):
    """What stands for a socket after ``gevent.monkey.patch_socket()``."""


Patched.__module__ = "gevent._socket3"


@pytest.fixture
def patched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", Patched)


@pytest.mark.parametrize("url", URLS)
def test_calls_without_deadlines_under_gevent_are_refused_when_connecting(patched: None, url: str) -> None:
    with pytest.raises(Unsupported, match=r"gevent has replaced Python's socket .*start the process without gevent's"):
        metaclient.connect(url)
    with pytest.raises(Unsupported, match="gevent"):
        metaclient.ConnectionPool(1, url=url)


def test_calls_without_deadlines_under_gevent_are_refused_by_a_cluster(patched: None) -> None:
    with pytest.raises(Unsupported, match="gevent"):
        FakeCluster()


def test_patching_after_the_runtime_was_made_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeCluster(servers=1) as cluster, ThreadRuntime() as runtime:
        front = cluster.serve(thrift1_port=None)
        assert front.thrift2_url is not None
        with metaclient.connect(front.thrift2_url, runtime=runtime) as connection:
            gateways = connection._backend._channel.gateways  # type: ignore[attr-defined]  # a Thrift backend
            monkeypatch.setattr(socket, "socket", Patched)
            with pytest.raises(Unsupported, match="gevent"):
                metaclient.connect("fake:", runtime=runtime)
            with pytest.raises(Unsupported, match="gevent"):
                runtime.start(int)
            for gateway in gateways._order:
                gateways._on_unreachable(gateway, ServerUnreachable("the next call connects anew"))
            with pytest.raises(Unsupported, match="gevent"):
                connection.tables()
            monkeypatch.undo()


def test_a_proxy_that_replaces_sockets_is_no_green_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    class Socks(socket.socket):
        """As PySocks and pytest-socket have: it blocks in the kernel as Python's own does."""

    monkeypatch.setattr(socket, "socket", Socks)
    metaclient.connect("scripted:").close()


def test_virtual_time_needs_no_threads_and_no_sockets(patched: None) -> None:
    with SimRuntime() as runtime:
        metaclient.connect("scripted:", runtime=runtime).close()


@pytest.mark.parametrize(
    ("library", "patch"),
    [
        ("gevent", "from gevent import monkey; monkey.patch_all()"),
        ("gevent", "from gevent import monkey; monkey.patch_thread()"),
        ("gevent", "from gevent import monkey; monkey.patch_socket()"),
        ("eventlet", "import eventlet; eventlet.monkey_patch()"),
    ],
)
def test_a_process_patched_by_the_real_library_is_refused(library: str, patch: str) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    program = PROGRAM.format(patch=patch, urls=URLS)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=250)
    refusals = [line for line in done.stdout.splitlines() if line.startswith("metaclient cannot be used")]
    assert len(refusals) == 3 + len(URLS), done.stdout + done.stderr
    assert all(f"because {library} has replaced" in line for line in refusals)
