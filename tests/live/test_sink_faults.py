"""One list of sink faults for a real HBase and for the fake: the same calls, contents and pauses."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from metaclient import Connection
from metaclient.errors import RequestRefused
from metaclient.model import ServerName
from metaclient.wire.listener import Listener
from metaclient.wire.publication import Publication
from metaclient.wire.rpc.cluster_nodes import cluster_id_node, master_node
from metaclient_local_hbase import LocalHBase
from tests.live.load import WAIT_S_MAX, wait_until
from tests.unit.replication.fake_under_faults import SLEEP_S, TIMEOUT_S, calls_of_the_fake
from tests.unit.replication.scripted_sink import NormalizedCall, ScriptedSink, normalized
from tests.unit.replication.sink_faults import REACTIONS, ROWS_SHIPPED, play, rows_shipped

PEER = "sink_faults"
#: A machine that stands still for a second changes a pause, or makes a call late. One undisturbed play is enough.
PLAYS_MAX = 3


@contextlib.contextmanager
def new_table(native: Connection) -> Iterator[str]:
    """Make a table per play: a new peer gets all edits of its tables in the current log, also those of old plays."""
    made = f"faults_{native.engine.runtime.time_ms()}"
    native.create_table(made, {"cf": {"replication_scope": 1}, "local": {}, "two": {"replication_scope": 2}})
    try:
        yield made
    finally:
        native.delete_table(made, disable=True)


def calls_of(hbase: LocalHBase, native: Connection, name: str) -> list[NormalizedCall]:
    """Return the calls that a source of the real cluster makes to the scripted sink."""
    runtime = native.engine.runtime
    sink = ScriptedSink(runtime, Listener, REACTIONS, sleep_s=SLEEP_S)
    key = f"{hbase.zookeeper}:/sink-{sink.cluster_id}"
    nowhere = ServerName("127.0.0.1", 1, 1)  # HBase 2.6 and 3.0 (to beta-1) do not call the master of a peer
    nodes = {"hbaseid": cluster_id_node(sink.cluster_id), "master": master_node(nowhere)}
    published = Publication(runtime, key, cluster_id=sink.cluster_id, servers=lambda: sink.servers, nodes=lambda: nodes)
    published.start()
    try:
        play(sink, native, name.encode(), peer=PEER, key=key, until=runtime.now() + WAIT_S_MAX)
        wait_until(lambda: rows_shipped(native, PEER) == ROWS_SHIPPED, "the server to report what it shipped", runtime)
    finally:
        with contextlib.suppress(RequestRefused):  # it was never added
            native.replication.remove(PEER)
        published.close()
        sink.close()
    return normalized(sink.received, sleep_s=SLEEP_S, timeout_s=TIMEOUT_S)


@pytest.mark.essential
def test_faults_of_a_sink_get_the_same_calls_from_hbase_and_from_the_fake(
    hbase: LocalHBase, native: Connection, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    expected = calls_of_the_fake(monkeypatch, behaviour="2.6" if hbase.version.startswith("2.") else "3.0")
    for number in range(PLAYS_MAX):
        try:
            with new_table(native) as name:
                assert calls_of(hbase, native, name) == expected
        except AssertionError:
            if number + 1 == PLAYS_MAX:
                raise
        else:
            break
    with capsys.disabled():
        print(f"\nHBase {hbase.version}: {len(expected)} calls as of the fake, in play {number + 1}")
