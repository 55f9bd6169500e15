"""One client per process and cluster: created at the first use, kept between tasks, closed by age.

A Spark worker is a forked process that lives for many tasks, so what is kept in this module survives them; a client
belongs to the process that made it: a fork has none. Each client draws the meta replica that it starts with from its
own chance, seeded by the system when it is made: nothing that travels by pickle, no seed and no ``hash()`` decides
it (``PYTHONHASHSEED`` is 0 in every Spark worker). No thread is started by importing this module.
"""

from __future__ import annotations

import gc
import os
import platform
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import metaclient
from metaclient.config import checked_properties
from metaclient.config.url_secrets import masked_url
from metaclient.errors import ConfigError
from metaclient.runtime import ThreadRuntime
from spark_connector.settings.options import ClientKey, Options

__all__ = [
    "check_reachable",
    "close_all",
    "lease",
    "lookups_made",
    "process_name",
    "settle_worker",
    "take_locations",
]

#: Backends that live in the memory of one process: another one, such as a Spark worker, cannot reach them.
IN_PROCESS = frozenset({"fake", "scripted"})
#: A task that runs again waits up to so long before it looks for regions by itself: its siblings fail together.
JITTER_S = 2.0
#: A client that was idle for this long is closed. hbase-connectors closes its connections after 10 minutes, too.
IDLE_S = 600.0
#: Clusters that one process talks to at a time; a job reads one and perhaps writes another.
CLIENTS_MAX = 8

_runtime = ThreadRuntime(name="spark")  # clock, lock and chance; it starts no thread


@dataclass(slots=True)
class _Client:
    connection: metaclient.Connection
    used_at: float
    leases: int = 0


@dataclass(slots=True)
class _Clients:
    """What this process has."""

    name: str
    by_key: dict[ClientKey, _Client] = field(default_factory=dict)
    past: Counter[str] = field(default_factory=Counter)  # lookups of clients that are closed, by replica
    is_settled: bool = False


def _new() -> _Clients:
    return _Clients(f"{platform.node()}-{os.getpid()}-{_runtime.rng.getrandbits(48):012x}")


_lock = _runtime.lock()  # guards _clients and all that is in it
_clients = _new()


def _renew() -> None:
    """In a child process: no client, a new name, and a lock that no thread of the parent holds."""
    global _lock, _clients
    _lock = _runtime.lock()
    _clients = _new()


_runtime.on_fork(_renew)


def process_name() -> str:
    """Names this process in reports; no two processes of a cluster have the same."""
    with _lock:
        return _clients.name


def check_reachable(url: str) -> None:
    """Refuse a url that only the process which made the cluster can use.

    >>> check_reachable("fake:")
    Traceback (most recent call last):
    metaclient.errors.ConfigError: url 'fake:' is a cluster in the memory of one process, which Spark's workers cannot \
reach: serve it over TCP (FakeCluster().serve(), or `metaclient fake serve`) and give thrift2://host:port
    """
    if url.partition(":")[0] in IN_PROCESS:
        raise ConfigError(
            f"url {masked_url(url)!r} is a cluster in the memory of one process, which Spark's workers cannot reach: "
            "serve it over TCP (FakeCluster().serve(), or `metaclient fake serve`) and give thrift2://host:port"
        )


@contextmanager
def lease(options: Options) -> Iterator[metaclient.Connection]:
    """This process's client for the cluster that the options name; it stays open afterwards, for the next task."""
    check_reachable(options.connection_url)
    options = options.resolved()
    key = options.client_key()
    with _lock:
        ours = _clients
        _close_old(ours)
        client = ours.by_key.get(key)
        if client is None:
            properties = checked_properties(dict(options.properties), "Spark option")  # by Options.parse
            connection = metaclient.connect(options.connection_url, config=properties)
            client = ours.by_key[key] = _Client(connection, _runtime.now())
        client.leases += 1
    try:
        yield client.connection
    finally:
        with _lock:
            client.leases -= 1
            client.used_at = _runtime.now()


def _close_old(ours: _Clients) -> None:
    """Close idle clients: by age, and beyond the bound the one that was used longest ago."""
    idle = sorted((one.used_at, key) for key, one in ours.by_key.items() if not one.leases)
    too_many = len(ours.by_key) - CLIENTS_MAX + 1
    for number, (used_at, key) in enumerate(idle):
        if number < too_many or _runtime.now() - used_at > IDLE_S:
            _close(ours, key)


def _close(ours: _Clients, key: ClientKey) -> None:
    client = ours.by_key.pop(key)
    ours.past.update(_reads(client.connection))
    client.connection.close()


def close_all() -> None:
    """Close every idle client of this process."""
    with _lock:
        ours = _clients
        for key in [key for key, one in ours.by_key.items() if not one.leases]:
            _close(ours, key)


def lookups_made() -> dict[str, int]:
    """How many reads of hbase:meta this process has made, by the id of the meta replica."""
    with _lock:
        ours = _clients
        made = Counter(ours.past)
        for client in ours.by_key.values():
            made.update(_reads(client.connection))
    return dict(made)


def _reads(connection: metaclient.Connection) -> dict[str, int]:
    reads: dict[str, int] = connection.stats()["meta"]["reads_by_replica"]
    return reads


def settle_worker(options: Options) -> None:
    """Once a worker process: exempt what is loaded by now from garbage collection.

    Spark's worker runs ``gc.collect()`` after each task, over everything that pyspark, pyarrow and we have imported:
    20 ms a task, 2 after this. ``hbase.spark.worker.gcfreeze=false`` leaves it out.
    """
    with _lock:
        ours = _clients
        if ours.is_settled or not options.gc_freeze:
            return
        ours.is_settled = True
    gc.collect()
    gc.freeze()


def take_locations(connection: metaclient.Connection, locations: bytes, *, attempt: int) -> bool:
    """Import the locations that the driver sent, in the first attempt of a task; return True if that was done.

    A later attempt does not trust them, because they may be the cause of the failure. It sleeps for a random time, so
    that tasks that failed together do not read hbase:meta together.
    """
    if locations and attempt == 0:
        connection.import_locations(locations)
        return True
    if attempt:
        runtime = connection.engine.runtime
        runtime.sleep(runtime.rng.uniform(0.0, JITTER_S))
    return False
