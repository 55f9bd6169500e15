"""The clients of a worker: one a cluster and process, never a fork's, never an in-process cluster's, bounded in age."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import metaclient
from metaclient.engine import Life
from metaclient.errors import ConfigError
from metaclient.meta import Lookup, MetaView, ReplicaView
from metaclient.meta.selector import RoundRobin
from metaclient.runtime import ThreadRuntime
from spark_connector import clients
from spark_connector.settings.options import Options


@pytest.fixture(autouse=True)
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Urls of the clients that were made; they are clients of a scripted cluster."""
    made: list[str] = []
    connect = metaclient.connect

    def scripted(url: str, **options: Any) -> metaclient.Connection:
        made.append(url)
        return connect("scripted:?meta_replicas=3", **options)

    monkeypatch.setattr(metaclient, "connect", scripted)
    monkeypatch.setattr(clients, "_clients", clients._new())
    yield made
    clients.close_all()


def options(url: str = "thrift2://a:1", **more: str) -> Options:
    return Options.parse({"url": url, "hbase.table": "t", **more})


def test_tasks_of_one_process_share_a_client(opened: list[str]) -> None:
    with clients.lease(options()) as one, clients.lease(options()) as two:
        assert one is two
    with clients.lease(options()) as later:
        assert later is one
    assert opened == ["thrift2://a:1"]


def test_another_cluster_or_another_setting_is_another_client(opened: list[str]) -> None:
    with clients.lease(options()) as one, clients.lease(options("thrift2://b:1")) as two:
        assert one is not two
    with clients.lease(options(**{"hbase.rpc.timeout": "5000"})) as third:
        assert third is not one
        assert third.config.rpc_timeout_s == 5.0
    assert len(opened) == 3


@pytest.mark.parametrize("url", ["fake:", "fake:name", "scripted:?meta_replicas=3"])
def test_a_cluster_in_this_process_is_refused(url: str, opened: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"serve it over TCP"), clients.lease(options(url)):
        pass
    assert not opened


def test_what_nobody_uses_is_closed_by_age(monkeypatch: pytest.MonkeyPatch) -> None:
    with clients.lease(options()) as old:
        pass
    now = clients._runtime.now()
    monkeypatch.setattr(clients._runtime, "now", lambda: now + clients.IDLE_S + 1)
    with clients.lease(options("thrift2://b:1")):
        pass
    assert old.engine.life is Life.CLOSED


def test_what_a_task_still_uses_is_not_closed_by_age(monkeypatch: pytest.MonkeyPatch) -> None:
    with clients.lease(options()) as old:
        now = clients._runtime.now()
        monkeypatch.setattr(clients._runtime, "now", lambda: now + clients.IDLE_S + 1)
        with clients.lease(options("thrift2://b:1")):
            assert old.engine.life is not Life.CLOSED


def test_there_are_never_more_clients_than_the_bound(opened: list[str]) -> None:
    for number in range(clients.CLIENTS_MAX + 3):
        with clients.lease(options(f"thrift2://a:{number + 1}")):
            pass
    assert len(clients._clients.by_key) == clients.CLIENTS_MAX


def test_lookups_of_closed_clients_still_count() -> None:
    with clients.lease(options()) as connection:
        connection.create_table("t", {"cf": {}})
        connection.regions("t")
    before = clients.lookups_made()
    assert sum(before.values()) >= 1
    clients.close_all()
    assert clients.lookups_made() == before


def in_child(function: Callable[[], str]) -> str:
    """What a forked process says."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, function().encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(pid, 0)
    return said


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_has_no_client_of_its_parent() -> None:
    with clients.lease(options()) as ours:
        name = clients.process_name()

        def look() -> str:
            with clients.lease(options()) as theirs:
                return f"{theirs is ours} {clients.process_name() == name} {len(clients._clients.by_key)}"

        assert in_child(look) == "False False 1"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forks_of_one_worker_do_not_all_start_at_one_meta_replica() -> None:
    """Random state that is pickled or inherited repeats itself in every task; a client draws its own after the fork.

    24 forks, 2 secondaries: all at the same one by chance is 2 in 16 million.
    """
    ThreadRuntime().rng.random()  # the parent has used chance before it forks, as a daemon may have

    def start() -> str:
        with clients.lease(options()) as connection:
            connection.create_table("t", {"cf": {}})
            connection.regions("t")
            return "".join(clients.lookups_made())

    assert {in_child(start) for _ in range(24)} == {"1", "2"}


def test_the_draw_of_the_first_replica_is_not_in_what_can_be_pickled() -> None:
    """A selector draws at its first lookup, from the chance that its client brings."""
    view = MetaView(tuple(ReplicaView(i, None) for i in range(3)), 0.0, ThreadRuntime().rng)
    draws = {tuple(RoundRobin().select(Lookup(b"t", b"r"), view)) for _ in range(64)}
    assert draws == {(1, 2, 0), (2, 1, 0)}
