"""pytest fixtures of the installed package: ``fake_hbase``, ``sim_hbase``, ``fake_hbase_server``, ``fake_hbase_url``.

The module imports only pytest until a fixture is used, because pytest loads the module in every run. See
docs/testing.md.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from metaclient.testing.fake_hbase import FakeHBase, FakeHBaseServer

__all__ = ["fake_hbase", "fake_hbase_server", "fake_hbase_url", "sim_hbase"]

MARKER = "fake_hbase"
TIMES = ("virtual", "real")
#: The arguments of the marker: those of FakeCluster, and ``time``.
_ARGUMENTS = frozenset({"servers", "meta_replicas", "seed", "config", "time"})


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the fake cluster."""
    group = parser.getgroup("fake HBase", "the fixtures fake_hbase, sim_hbase, fake_hbase_server and fake_hbase_url")
    group.addoption("--fake-hbase-servers", type=int, default=5, metavar="N", help="Region servers.  [default: 5]")
    group.addoption(
        "--fake-hbase-meta-replicas", type=int, default=3, metavar="N", help="Copies of hbase:meta.  [default: 3]"
    )
    group.addoption(
        "--fake-hbase-seed", type=int, default=0, metavar="SEED", help="Decides all random choices.  [default: 0]"
    )
    group.addoption(
        "--fake-hbase-time",
        choices=TIMES,
        default=None,
        help="virtual: waits take no real time, and the application must not start threads; real: threads.  "
        "[default: virtual, where greenlet is installed]",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(servers=5, meta_replicas=3, seed=0, config=None, time='virtual'): the fake HBase of this test",
    )


def _settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the arguments of the cluster: those of the nearest marker, else of the command line."""
    found = {
        name: request.config.getoption(f"--fake-hbase-{name.replace('_', '-')}")
        for name in ("servers", "meta_replicas", "seed", "time")
    }
    marker = request.node.get_closest_marker(MARKER)
    if marker is None:
        return found
    unknown = sorted(marker.kwargs.keys() - _ARGUMENTS)
    if marker.args or unknown:
        wrong = unknown[0] if unknown else repr(marker.args[0])
        pytest.fail(f"@pytest.mark.{MARKER}: {wrong} is none of {', '.join(sorted(_ARGUMENTS))}", pytrace=False)
    if marker.kwargs.get("time", "real") not in TIMES:
        pytest.fail(f"@pytest.mark.{MARKER}: time is 'virtual' or 'real', got {marker.kwargs['time']!r}", pytrace=False)
    return {**found, **marker.kwargs}


def _default_time() -> str:
    """Return ``virtual`` if the package for it is installed, so that a plain installation has the fixtures, too."""
    return "virtual" if importlib.util.find_spec("greenlet") is not None else "real"


@contextlib.contextmanager
def _cluster(settings: dict[str, Any]) -> Iterator[FakeHBase]:
    from metaclient.runtime import SimRuntime
    from metaclient.testing import FakeCluster

    with contextlib.ExitStack() as stack:
        if (settings.pop("time") or _default_time()) == "virtual":
            settings["runtime"] = stack.enter_context(SimRuntime(seed=settings["seed"]))
        yield stack.enter_context(FakeCluster(**settings))


@pytest.fixture
def fake_hbase(request: pytest.FixtureRequest) -> Iterator[FakeHBase]:
    """Return a fake cluster on virtual time: a crash takes milliseconds, and each run is the same.

    Without the package greenlet (the extra ``sim``) it is on real time.
    ``--fake-hbase-time=real`` and ``@pytest.mark.fake_hbase(time="real")`` choose threads and the real clock.
    """
    with _cluster(_settings(request)) as cluster:
        yield cluster


@pytest.fixture
def sim_hbase(request: pytest.FixtureRequest) -> Iterator[FakeHBase]:
    """Return a fake cluster on virtual time, whatever the options are."""
    with _cluster(_settings(request) | {"time": "virtual"}) as cluster:
        yield cluster


@pytest.fixture
def fake_hbase_server(request: pytest.FixtureRequest) -> Iterator[FakeHBaseServer]:
    """Return a fake cluster that listens on TCP ports of loopback, for programs of other processes and languages.

    It runs on real time: sockets have no other.
    """
    from metaclient.testing.fake_hbase import FakeHBaseServer

    with _cluster(_settings(request) | {"time": "real"}) as cluster:
        front = cluster.serve(rpc_port=0)  # type: ignore[attr-defined]  # of FakeCluster; tests use the urls
        urls = front.addresses()
        yield FakeHBaseServer(cluster, urls["thrift1"], urls["thrift2"], urls["rpc"])


@pytest.fixture
def fake_hbase_url(fake_hbase_server: FakeHBaseServer) -> str:
    """Return the url of a fake cluster over TCP, for programs that take one: ``thrift2://127.0.0.1:PORT``."""
    return fake_hbase_server.thrift2_url
