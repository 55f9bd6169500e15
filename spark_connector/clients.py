"""One client per process and cluster: created at the first use, kept between tasks, closed by age.

A Spark worker is a forked process that runs many tasks, so the clients of this module serve all of them. A client
belongs to the process that created it: a forked child starts without clients. Each client chooses the meta replica that
it starts with by its own random source, which the operating system seeds. Pickled values, fixed seeds and ``hash()``
have no influence (``PYTHONHASHSEED`` is 0 in every Spark worker). Importing this module starts no thread.
"""

from __future__ import annotations

import gc
import hashlib
import logging
import os
import platform
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import metaclient
from metaclient.config import Config, checked_properties
from metaclient.config.security import SecuritySettings
from metaclient.config.url_secrets import masked_url
from metaclient.errors import ConfigError, Unsupported
from metaclient.runtime import ThreadRuntime
from spark_connector.settings.options import ClientKey, Options
from spark_connector.settings.tokens import received_token, set_token_source

__all__ = [
    "check_reachable",
    "close_all",
    "lease",
    "lookups_made",
    "pause_before_retry",
    "process_name",
    "settle_worker",
    "take_block",
    "take_locations",
]

#: Backends in the memory of one process: another process, such as a Spark worker, cannot reach them.
IN_PROCESS = frozenset({"fake", "scripted"})
#: A task that runs again waits up to so long before it looks for regions by itself: its siblings fail together.
JITTER_S = 2.0
#: A client that was idle for this long is closed. hbase-connectors closes its connections after 10 minutes, too.
IDLE_S = 600.0
#: Clients that one process keeps; a job reads from one cluster and may write to a second one.
CLIENTS_MAX = 8
#: Imports of locations that a process remembers per client; about 100 bytes each.
BLOCKS_MAX = 20_000

#: The properties of a login that only the driver makes.
_LOGIN = frozenset({"hbase.client.keytab.file", "hbase.client.keytab.principal"})

_log = logging.getLogger(__name__)
_runtime = ThreadRuntime(name="spark")  # clock, locks and random numbers; it starts no thread


@dataclass(slots=True)
class _Client:
    connection: metaclient.Connection
    used_at: float
    leases: int = 0
    token: metaclient.Token | None = None  # the one that the driver sent, by which it is authenticated


@dataclass(slots=True)
class _Taken:
    """The digests of the locations that a client has imported, in this order, and its evictions at that time."""

    digests: dict[bytes, None] = field(default_factory=dict)
    evictions: int = 0


@dataclass(slots=True)
class _Clients:
    """The clients of this process, and the lookups of those that are closed."""

    name: str
    by_key: dict[ClientKey, _Client] = field(default_factory=dict)
    past: Counter[str] = field(default_factory=Counter)  # lookups of closed clients, by meta replica
    is_settled: bool = False
    #: The tokens that this process has fetched or has itself, for the tasks that it plans.
    fetched: dict[ClientKey, metaclient.Token] = field(default_factory=dict)


def _new() -> _Clients:
    return _Clients(f"{platform.node()}-{os.getpid()}-{_runtime.rng.getrandbits(48):012x}")


_lock = _runtime.lock()  # guards _clients, _taken and their fields
_clients = _new()
_taken: WeakKeyDictionary[metaclient.Connection, _Taken] = WeakKeyDictionary()


def _renew() -> None:
    """Start a child process without clients, with a new name, and with a lock that no thread of the parent holds."""
    global _lock, _clients
    _lock = _runtime.lock()
    _clients = _new()
    _taken.clear()


_runtime.on_fork(_renew)


def process_name() -> str:
    """Return the name of this process in reports; it is unique among all processes of a cluster."""
    with _lock:
        return _clients.name


def check_reachable(url: str) -> None:
    """Raise ConfigError for a url that only the process of the cluster can use.

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
    """Yield this process's client for the cluster of the options; it stays open afterwards, for the next task."""
    check_reachable(options.connection_url)
    options = options.resolved()
    key = options.client_key()
    with _lock:
        ours = _clients
        _close_old(ours)
        client = ours.by_key.get(key)
        token = received_token(key)
        if client is None or _is_outdated(client, token):
            if client is not None:
                _replace(ours, key, client)
            connection = _connect(options, token)
            client = ours.by_key[key] = _Client(connection, _runtime.now(), token=token)
        client.leases += 1
    try:
        yield client.connection
    finally:
        with _lock:
            client.leases -= 1
            client.used_at = _runtime.now()
            is_replaced = not client.leases and ours.by_key.get(key) is not client
        if is_replaced:
            client.connection.close()


def _connect(options: Options, token: metaclient.Token | None) -> metaclient.Connection:
    """Connect with the driver's token if there is one, else with the identity that the properties name."""
    given = dict(options.properties)
    if token is not None:  # it stands for the keytab, which is on the driver
        given = {name: value for name, value in given.items() if name not in _LOGIN}
    properties = checked_properties(given, "Spark option")  # Options.parse has checked them
    if token is None:
        return metaclient.connect(options.connection_url, config=properties)
    return metaclient.connect(options.connection_url, config=properties, token=token)


def _is_outdated(client: _Client, token: metaclient.Token | None) -> bool:
    """Return True if a client's token needs a successor, which the driver has sent."""
    old = client.token
    if token is None or old is None or token.expires_ms <= old.expires_ms:
        return False
    return _runtime.time_ms() >= old.renew_ms


def _replace(ours: _Clients, key: ClientKey, client: _Client) -> None:
    """Close a client now, or at the end of its last lease."""
    if not client.leases:
        _close(ours, key)
    else:
        ours.past.update(_reads(client.connection))
        del ours.by_key[key]


def _token_for_tasks(options: Options) -> metaclient.Token | None:
    """Return the token for the tasks of a read or write; None if their cluster is not secure.

    It is fetched once per cluster, and again at 80 % of its life, by a connection with the driver's ticket or keytab.
    """
    if options.url is not None and not options.url.startswith("hbase"):
        return None  # Thrift gateways take no tokens
    options = options.resolved()
    config = Config.of(checked_properties(dict(options.properties), "Spark option"))
    settings = SecuritySettings.of(config)
    if not settings.is_kerberos:
        return None
    key = options.client_key()
    passed_on = received_token(key) or max(settings.tokens, key=lambda token: token.expires_ms, default=None)
    if passed_on is not None:
        return passed_on if len({token.cluster_id for token in settings.tokens}) <= 1 else None
    with _lock:
        known = _clients.fetched.get(key)
    if known is not None and _runtime.time_ms() < known.renew_ms:
        return known
    try:
        with metaclient.connect(options.connection_url, config=config.properties) as connection:
            fetched = connection.delegation_token()
    except Unsupported as error:
        _log.warning("tasks need a ticket or a keytab of their own, because the cluster issues no token: %s", error)
        return None
    with _lock:
        while len(_clients.fetched) >= CLIENTS_MAX:
            del _clients.fetched[next(iter(_clients.fetched))]
        _clients.fetched[key] = fetched
    return fetched


set_token_source(_token_for_tasks)


def _close_old(ours: _Clients) -> None:
    """Close idle clients that are too old, and the least recently used ones beyond :data:`CLIENTS_MAX`."""
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
    """Return the number of reads of hbase:meta that this process has made, by the id of the meta replica."""
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
    """Exempt the objects that exist now from garbage collection, once per worker process.

    Spark's worker runs ``gc.collect()`` after each task, over all objects of pyspark, pyarrow and this package: 20 ms
    per task, and 2 ms after this call. ``hbase.spark.worker.gcfreeze=false`` turns it off.
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

    A later attempt does not trust them, because they may be the cause of the failure; see :func:`pause_before_retry`.
    """
    if locations and attempt == 0:
        take_block(connection, locations)
        return True
    pause_before_retry(connection, attempt=attempt)
    return False


def pause_before_retry(connection: metaclient.Connection, *, attempt: int) -> None:
    """Sleep for a random time in a task that ran before: tasks that failed together do not read hbase:meta together."""
    if attempt:
        runtime = connection.engine.runtime
        runtime.sleep(runtime.rng.uniform(0.0, JITTER_S))


def take_block(
    connection: metaclient.Connection, block: bytes, decoded: Callable[[bytes], bytes] | None = None
) -> bool:
    """Import exported locations unless this client has imported the same bytes; return True if it imported them.

    ``decoded`` returns the bytes for ``import_locations``. If the client's cache has evicted regions since, blocks are
    imported again.
    """
    digest = hashlib.blake2b(block, digest_size=16).digest()
    evictions = connection.engine.locator.cache.evictions
    with _lock:
        taken = _taken.setdefault(connection, _Taken())
        if taken.evictions != evictions:
            taken.digests.clear()
            taken.evictions = evictions
        if digest in taken.digests:
            return False
    connection.import_locations(block if decoded is None else decoded(block))
    with _lock:
        taken.digests[digest] = None
        while len(taken.digests) > BLOCKS_MAX:
            taken.digests.pop(next(iter(taken.digests)))
    return True
