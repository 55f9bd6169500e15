"""`metaclient watch` on a real HBase: figures by native RPC and by a Thrift 2 gateway, and a server that hangs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import metaclient
from metaclient.watch import Watcher, collector_for
from metaclient.watch.collecting import WatchOptions
from metaclient_local_hbase import LocalHBase

#: Generous: this machine may have other work.
WAIT_S = 120.0


@contextmanager
def watching(url: str, **options: Any) -> Iterator[Watcher]:
    connection = metaclient.connect(url)
    connection.open()
    with Watcher(connection.engine.runtime, collector_for(connection, WatchOptions(**options))) as watcher:
        yield watcher


def wait_until(watcher: Watcher, holds: Callable[[dict[str, Any]], object], what: str) -> float:
    runtime, version = watcher.runtime, 0
    begun = runtime.now()
    while not (watcher.document["ready"] and holds(watcher.document)):
        assert runtime.now() - begun < WAIT_S, f"{what}: {watcher.document}"
        version, _ = watcher.wait_newer(version, runtime.now() + 1.0)
    return runtime.now() - begun


def states(view: dict[str, Any]) -> set[str]:
    return {one["liveness"] for one in view["servers"]}


@pytest.mark.essential
def test_real_cluster_is_shown_and_a_hung_server_is_noticed(hbase: LocalHBase, table_name: bytes, healed: None) -> None:
    with watching(str(hbase.status()["native_url"]), lookups_per_s=10.0) as watcher:
        wait_until(watcher, lambda view: states(view) == {"up"}, "all servers are up")
        wait_until(watcher, lambda view: view["summary"]["meta_reads_per_s"], "reads of hbase:meta")
        wait_until(watcher, lambda view: None not in [one["lag_s"] for one in view["meta"]], "lags of hbase:meta")
        wait_until(watcher, lambda view: view["servers"][0]["queued_calls"] is not None, "figures of JMX")
        wait_until(watcher, lambda view: view["peers"] is not None, "the peers")
        view = watcher.document
        assert view["version"] == hbase.version
        assert len(view["meta"]) == 3
        assert all(one["heap_used_bytes"] > 0 and one["regions"] > 0 for one in view["servers"])
        assert table_name.decode() in {one["table"] for one in view["region_replicas"]}
        hung = hbase.meta_server(1)
        hbase.pause(hung)
        took_s = wait_until(watcher, lambda view: "hung" in states(view), "the hung server")
        print(f"the hung server was shown after {took_s:.2f} s")
        hbase.resume(hung)
        wait_until(watcher, lambda view: states(view) == {"up"}, "all servers are up again")
        assert any("is hung" in event["text"] for event in watcher.document["events"])


def test_gateway_and_info_pages_show_servers_and_reads(hbase: LocalHBase, table_name: bytes) -> None:
    with watching(hbase.thrift2_url) as watcher:
        wait_until(watcher, lambda view: {one["state"] for one in view["meta"]} == {"healthy"}, "healthy replicas")
        wait_until(watcher, lambda view: view["servers"], "the servers of hbase:meta")
        wait_until(watcher, lambda view: view["region_replicas_total"], "the replicas of regions")
        assert any("reaches no master" in note for note in watcher.document["notes"])
