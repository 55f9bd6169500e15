"""Where a scenario runs: the fake, a real HBase that is started for it, or an existing cluster.

``--backend`` names it: ``fake``; ``local-hbase`` (2.6.1) or ``local-hbase:3.0.0-alpha-4``; ``secure-hbase``, the same
with Kerberos, where the client has privacy; or a url such as ``thrift2://gateway:9090``, on which no faults are
injected.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import metaclient
from metaclient import Connection, MetaClientError
from metaclient.backend import MetaScan
from metaclient.config.url_secrets import masked_url
from metaclient.errors import ConfigError
from metaclient.keys import meta_table_start, meta_table_stop
from metaclient_fake import FakeCluster
from metaclient_local_hbase import LocalHBase

__all__ = ["FAKE", "LOCAL_HBASE", "NATIVE_CLIENT", "ROWS", "SECURE_HBASE", "SPLITS", "TABLE", "Place", "place"]

FAKE, LOCAL_HBASE, SECURE_HBASE = "fake", "local-hbase", "secure-hbase"
#: The table that every lookup benchmark on a real HBase uses: ten regions, three copies of each.
TABLE = b"benchmark_lookups"
SPLITS = tuple(b"r%d" % number for number in range(1, 10))
ROWS = (b"a", *(split + b"x" for split in SPLITS))
META_REPLICAS = 3
#: A hang of 24 s on a busy machine must not end the ZooKeeper session.
SESSION_S = 120.0
#: In 2.6.1 the secondaries of hbase:meta show a new table seconds later.
KNOWN_S_MAX = 120.0
KNOWN_POLL_S = 0.5
#: Names in charts of the two ways to a real cluster: through a gateway, and by HBase's RPC.
GATEWAY_CLIENT, NATIVE_CLIENT = "ours, thrift2", "ours, native RPC"
KERBEROS_CLIENT = "ours, native RPC with Kerberos"


@dataclass(frozen=True, slots=True)
class Place:
    """A cluster with the table. ``clients`` maps the name of a client in charts to its function ``connect``."""

    name: str
    clients: Mapping[str, Callable[..., Connection]]
    cluster: Any = None  # FakeCluster or LocalHBase, for faults; None: no faults are allowed
    hbase: LocalHBase | None = None

    def connect(self, **options: Any) -> Connection:
        """Return a connection of the first client."""
        return next(iter(self.clients.values()))(**options)

    def meta_reads(self) -> dict[int, int] | None:
        """Return replica id -> reads of hbase:meta so far, by the servers' counters; None if there are none."""
        if self.hbase is not None:
            return self.hbase.meta_reads()
        return dict(self.cluster.meta_reads) if self.cluster is not None else None

    def breakable(self) -> Any:
        """Return the cluster; raise ConfigError if faults are not allowed on it."""
        if self.cluster is None:
            raise ConfigError(
                f"this scenario stops servers, which is not allowed on {self.name}: use {FAKE} or {LOCAL_HBASE}"
            )
        return self.cluster


@contextmanager
def place(backend: str) -> Iterator[Place]:
    """Yield the place of that name, with a table that every replica of hbase:meta shows."""
    kind, _, version = backend.partition(":")
    if backend == FAKE:
        with FakeCluster(servers=3, meta_replicas=META_REPLICAS) as cluster:
            yield _prepared(Place(backend, {"ours": cluster.connect}, cluster))
    elif kind in (LOCAL_HBASE, SECURE_HBASE):
        hbase = LocalHBase(
            version or "2.6.1", meta_replicas=META_REPLICAS, session_s=SESSION_S, secure=kind == SECURE_HBASE
        )
        with hbase:
            yield _prepared(Place(backend, _clients(hbase), hbase, hbase))
    elif "://" in backend:
        yield _prepared(Place(masked_url(backend), {"ours": partial(metaclient.connect, backend)}))
    else:
        raise ConfigError(
            f"--backend is {FAKE}, {LOCAL_HBASE}[:VERSION], {SECURE_HBASE}[:VERSION] or a url, got "
            f"{masked_url(backend)!r}"
        )


def _clients(hbase: LocalHBase) -> dict[str, Callable[..., Connection]]:
    if hbase.is_secure:
        os.environ["KRB5_CONFIG"] = str(hbase.krb5_conf)  # the library reads it at its first use
        login: dict[str, Any] = {"config": hbase.client_config, **hbase.identity()}
        return {KERBEROS_CLIENT: partial(metaclient.connect, **login)}
    return {
        GATEWAY_CLIENT: partial(metaclient.connect, hbase.thrift2_url),
        NATIVE_CLIENT: partial(metaclient.connect, hbase.native_url),
    }


def _prepared(made: Place) -> Place:
    with made.connect() as connection:
        if TABLE not in connection.tables():
            connection.create_table(TABLE, {"cf": {}}, splits=list(SPLITS), region_replication=META_REPLICAS)
        _wait_for_meta(connection)
    return made


def _wait_for_meta(connection: Connection) -> None:
    """Wait until each meta replica has every region: a fallback to the primary would distort the figures."""
    engine = connection.engine
    runtime, backend = engine.runtime, engine.backend
    deadline = runtime.now() + KNOWN_S_MAX
    scan = MetaScan(meta_table_start(TABLE), meta_table_stop(TABLE), is_reversed=False, limit=len(SPLITS) + 1)
    for replica in engine.reader.registry.replicas(deadline):
        while True:
            try:
                page = engine.executor.call(backend.read_meta, replica, scan, deadline=runtime.now() + 5)
                if sum(b"info:server" in row.columns for row in page.rows) == len(SPLITS) + 1:
                    break
            except MetaClientError:
                pass  # it is being opened
            if runtime.now() > deadline:
                raise MetaClientError(f"replica {replica.replica_id} of hbase:meta did not show the table in time")
            runtime.sleep(KNOWN_POLL_S)
