"""What tests of asyncio share: the event loops, and a fake cluster over TCP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from metaclient_fake import FakeCluster
from tests.unit.aio.loops import Run, run_asyncio, run_uvloop


@pytest.fixture(params=[run_asyncio, run_uvloop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run[Any]:
    found: Run[Any] = request.param
    return found


@pytest.fixture(scope="module")
def served() -> Iterator[FakeCluster]:
    with FakeCluster(servers=3, meta_replicas=3) as cluster:
        cluster.serve(rpc_port=0)
        yield cluster


@pytest.fixture(params=["hbase+rpc", "thrift2"])
def url(request: pytest.FixtureRequest, served: FakeCluster) -> str:
    port = served.rpc_port if request.param == "hbase+rpc" else served.thrift2_port
    return f"{request.param}://127.0.0.1:{port}"
