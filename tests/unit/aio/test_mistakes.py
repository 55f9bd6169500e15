"""Mistakes around event loops get a sentence: the blocking API inside of a loop, gevent, named clusters, wrong use."""

from __future__ import annotations

import asyncio
import pickle
import socket
import sys
import types
import warnings
from typing import Any

import pytest

import metaclient
from metaclient import aio
from metaclient.errors import ConfigError, ConnectionClosed, ServerUnreachable, Unsupported
from metaclient.runtime import running_loops
from metaclient_fake import FakeCluster
from tests.unit.aio.loops import Run


@pytest.fixture(autouse=True)
def _unwarned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_loops, "_has_warned", False)


async def block(url: str) -> None:
    with metaclient.connect(url) as connection:
        connection.tables()


@pytest.mark.parametrize("scheme", ["hbase+rpc", "thrift2", "fake"])
def test_blocking_call_that_stops_an_event_loop_is_reported_once_at_its_line(served: FakeCluster, scheme: str) -> None:
    ports = {"hbase+rpc": served.rpc_port, "thrift2": served.thrift2_port}
    url = (
        f"{scheme}://127.0.0.1:{ports[scheme]}" if scheme in ports else "fake:?latency_s_min=0.001&latency_s_max=0.002"
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(block(url))
        asyncio.run(block(url))
    [warning] = [one for one in caught if one.category is RuntimeWarning]
    assert "use metaclient.aio.connect()" in str(warning.message)
    assert warning.filename == __file__


def test_notebook_whose_loop_always_runs_is_not_warned(served: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(block(f"thrift2://127.0.0.1:{served.thrift2_port}"))


def test_calls_of_aio_and_threads_of_the_loop_are_not_warned(served: FakeCluster) -> None:
    url = f"thrift2://127.0.0.1:{served.thrift2_port}"

    async def program() -> None:
        async with aio.connect(url) as connection:
            await connection.tables()
        await asyncio.to_thread(lambda: asyncio.run(asyncio.sleep(0)))

        def blocking() -> None:
            with metaclient.connect(url) as connection:
                connection.tables()

        await asyncio.to_thread(blocking)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(program())


def test_gevent_is_refused_by_aio_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program() -> None:
        patched = type("Patched", (socket.socket,), {"__module__": "gevent._socket3"})
        monkeypatch.setattr(socket, "socket", patched)
        try:
            await aio.connect("hbase+rpc://127.0.0.1:9")
        finally:
            monkeypatch.undo()

    with pytest.raises(Unsupported, match="gevent has replaced Python's socket"):
        asyncio.run(program())


def test_shared_cluster_of_threads_is_refused_on_a_loop() -> None:
    async def program() -> None:
        await aio.connect("fake:shared")

    with pytest.raises(ConfigError, match="fake:shared is shared by the connections of this process"):
        asyncio.run(program())


def test_unreachable_server_is_an_error_and_leaves_nothing_behind(run: Run[Any]) -> None:
    async def program() -> None:
        for url in ("hbase+rpc://127.0.0.1:9", "thrift2://localhost:9", "hbase://127.0.0.1:9"):
            with pytest.raises(ServerUnreachable):
                await aio.connect(url, open_timeout_s=20)

    run(program())


def test_use_after_close_is_an_error(run: Run[Any]) -> None:
    async def program() -> None:
        async with aio.connect("scripted:") as connection:
            await connection.create_table("t", {"d": {}})
            table = connection.table("t")
        with pytest.raises(ConnectionClosed):
            await table.row(b"r")
        with pytest.raises(ConnectionClosed):
            [row async for row in table.scan()]

    run(program())


def test_wrong_argument_of_a_scan_raises_at_its_call_and_not_at_the_first_row(run: Run[Any]) -> None:
    async def program() -> None:
        async with aio.connect("scripted:") as connection:
            with pytest.raises(ValueError, match="batch_size"):
                connection.table("t").scan(batch_size=0)

    run(program())


def test_connection_cannot_be_pickled(run: Run[Any]) -> None:
    async def program() -> None:
        async with aio.connect("scripted:") as connection:
            with pytest.raises(TypeError, match="cannot be pickled"):
                pickle.dumps(connection)

    run(program())


def test_connection_that_is_dropped_is_closed_with_a_warning() -> None:
    async def program() -> None:
        connection = await aio.connect("scripted:")
        with pytest.warns(ResourceWarning, match="unclosed <metaclient.Connection scripted:"):
            del connection

    asyncio.run(program())
