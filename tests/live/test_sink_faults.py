"""One list of sink faults for a real HBase and for the fake: the same calls, contents and pauses."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from metaclient_fake.front.listener import Listener
from metaclient_fake.front.publication import Publication

from metaclient import Connection
from metaclient.errors import RequestRefused
from metaclient.model import ServerName
from metaclient_local_hbase import LocalHBase
from tests.live.load import WAIT_S_MAX, wait_until
from tests.unit.replication.fake_under_faults import SLEEP_S, TIMEOUT_S, calls_of_the_fake
from tests.unit.replication.scripted_sink import NormalizedCall, ScriptedSink, normalized
from tests.unit.replication.sink_faults import REACTIONS, ROWS_SHIPPED, play, rows_shipped

PEER = "sink_faults"
#: A busy machine makes pauses longer, never shorter. One play without such a delay is enough.
PLAYS_MAX = 3


@pytest.fixture
def peers(native: Connection) -> Iterator[None]:
    """No peer outlives the test, also if it fails."""
    yield
    with contextlib.suppress(RequestRefused):  # each play removes it
        native.replication.remove(PEER)


def calls_of(hbase: LocalHBase, native: Connection, number: int) -> list[NormalizedCall]:
    """Return the calls that a source of the real cluster makes to the scripted sink."""
    runtime = native.engine.runtime
    name = f"faults_{runtime.time_ms()}_{number}"
    native.create_table(name, {"cf": {"replication_scope": 1}, "local": {}, "two": {"replication_scope": 2}})
    sink = ScriptedSink(runtime, Listener, REACTIONS, sleep_s=SLEEP_S)
    key = f"{hbase.zookeeper}:/{name}"
    nowhere = ServerName("127.0.0.1", 1, 1)  # HBase 2.6 and 3.0 (to beta-1) do not ask the master
    published = Publication(runtime, key, cluster_id=sink.cluster_id, master=nowhere, servers=lambda: sink.servers)
    published.start()
    try:
        play(sink, native, name.encode(), peer=PEER, key=key, until=runtime.now() + WAIT_S_MAX)
        wait_until(lambda: rows_shipped(native, PEER) == ROWS_SHIPPED, "the server to report what it shipped", runtime)
        native.replication.remove(PEER)
    finally:
        published.close()
        sink.close()
    native.delete_table(name, disable=True)
    return normalized(sink.received, sleep_s=SLEEP_S, timeout_s=TIMEOUT_S)


@pytest.mark.essential
def test_faults_of_a_sink_get_the_same_calls_from_hbase_and_from_the_fake(
    hbase: LocalHBase, native: Connection, peers: None, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    expected = calls_of_the_fake(monkeypatch, behaviour="2.6" if hbase.version.startswith("2.") else "3.0")
    for number in range(PLAYS_MAX):
        found = calls_of(hbase, native, number)
        assert [call._replace(pause=None) for call in found] == [call._replace(pause=None) for call in expected]
        pauses = [(mine.pause or 0, other.pause or 0) for mine, other in zip(found, expected, strict=True)]
        assert all(real >= fake for real, fake in pauses), "a source never comes back earlier"
        if all(real == fake for real, fake in pauses):
            with capsys.disabled():
                print(f"\nHBase {hbase.version}: {len(found)} calls as of the fake, in play {number + 1}")
            return
    pytest.fail(f"in {PLAYS_MAX} plays a pause was longer than that of the fake: {pauses}")
