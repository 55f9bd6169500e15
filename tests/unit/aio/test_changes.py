"""Changes for asyncio: on the event loop for a fake in the process, on threads for a cluster that is reached by TCP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import metaclient
from metaclient import aio
from metaclient.runtime import ThreadRuntime
from metaclient.testing import FakeCluster
from metaclient.wire import publication
from tests.unit.replication.zookeeper_server import ZooKeeperServer

pytest.importorskip("greenlet")
pytest.importorskip("kazoo")

WAIT_S = 60.0
FAMILIES = {"d": {"replication_scope": 1}}


def test_fake_in_the_process_delivers_on_the_event_loop() -> None:
    async def program() -> list[bytes]:
        async with aio.connect("fake:?servers=1") as connection:
            await connection.create_table("t", FAMILIES)
            async with await connection.changes("t", name="n") as changes:
                table = connection.table("t")
                for row in (b"a", b"b"):
                    await table.put(row, {b"d:q": b"1"})
                seen = []
                async for change in changes:
                    seen.append(change.row)
                    change.commit()
                    if len(seen) == 2:
                        break
                assert await changes.poll(0.01) is None
                assert changes.stats()["committed"] == 2
            assert changes.is_closed
            return seen

    assert asyncio.run(program()) == [b"a", b"b"]


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(publication, "PERIOD_S", 0.02)
    soon = {"peer_replication_retry_pause_s": 0.02, "peer_replication_retry_multiplier_max": 2}
    with ThreadRuntime() as runtime, FakeCluster(servers=2, meta_replicas=1, config=soon) as cluster:
        zookeeper = ZooKeeperServer(runtime)
        key = zookeeper.key("/hbase")
        cluster.serve(thrift1_port=None, thrift2_port=None, rpc_port=0).publish(key)
        yield f"hbase://{key.rpartition(':')[0]}/hbase"
        zookeeper.close()


def test_cancelled_wait_loses_no_change_and_the_loop_goes_on(url: str) -> None:
    async def program() -> list[bytes]:
        async with aio.connect(url) as connection:
            await connection.create_table("t", FAMILIES)
            async with await connection.changes("t", name="n") as changes:
                waiting = asyncio.ensure_future(anext(changes))
                ticks = 0
                while changes._waiting is None:
                    await asyncio.sleep(0)
                    ticks += 1
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                await connection.table("t").put(b"a", {b"d:q": b"1"})
                found = await asyncio.wait_for(anext(changes), WAIT_S)
                changes.commit()
                return [found.row]

    assert asyncio.run(program()) == [b"a"]
    with metaclient.connect(url) as connection:
        assert [peer.id for peer in connection.replication.list()] == ["n"]


def test_error_of_the_subscription_is_raised_and_leaves_nothing(url: str) -> None:
    async def program() -> None:
        async with aio.connect(url) as connection:
            await connection.create_table("local", {"d": {}})
            with pytest.raises(metaclient.errors.RequestRefused, match="no family of table 'local' is replicated"):
                await connection.changes("local", name="n")
            assert await connection.replication.list() == []

    asyncio.run(program())
