"""Decides which cluster a ``fake:`` url means, and makes it if need be.

- ``fake:`` a new cluster, on the connection's runtime, closed with the connection;
- ``fake:NAME`` the cluster of that name in this process, made on first use with a runtime of its own. It lives until
  the interpreter ends or :func:`close_named_clusters` is called, *not* until its last connection closes: a pool or a
  program that closes one connection before it opens the next would lose its data without a word. (On a virtual
  clock a name belongs to that clock: a cluster cannot live in two times.) A child process after ``os.fork()`` cannot
  use a cluster that its parent made, and hears so.

Both take ``?servers=5&seed=0`` and any number, flag, word or time of :class:`ClusterConfig` by its name, such as
``meta_replicas=3``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl

from metaclient.config.hbase_properties import CLIENT_PREFIXES
from metaclient.config.url_secrets import masked_url, refuse_credentials
from metaclient.errors import ConfigError
from metaclient.runtime import Runtime, SimRuntime
from metaclient_fake.backend import FakeBackend
from metaclient_fake.cluster import FakeCluster
from metaclient_fake.config.cluster import ClusterConfig, honoured_names, nearest, setting_names

__all__ = ["backend_factory", "close_named_clusters", "named_cluster"]

SCHEME = "fake"
_SIZES: Mapping[str, int] = {"servers": 5, "seed": 0}


class _Given(NamedTuple):
    """What a named cluster was made with: it cannot be given other settings later."""

    query: str
    properties: str


#: (name, runtime's id or 0) -> cluster and what made it. Entries are only added by ``setdefault``: atomic.
_named: dict[tuple[str, int], tuple[FakeCluster, _Given]] = {}


def backend_factory(url: str, *, runtime: Runtime, properties: Mapping[str, str]) -> FakeBackend:
    """Return the entry point ``fake`` of the group ``metaclient.backends``."""
    scheme, _, rest = url.partition(":")
    if scheme != SCHEME:
        shown = masked_url(url)
        raise ConfigError(f"{shown!r} is no url of a fake cluster: fake:, fake:NAME, fake:?servers=5&meta_replicas=3")
    refuse_credentials(url, "fake:")
    name, _, query = rest.partition("?")
    if name.strip("/"):
        return FakeBackend(named_cluster(name.strip("/"), query, runtime=runtime, properties=properties))
    return FakeBackend(_made(query, runtime, properties), owns_cluster=True)


def named_cluster(
    name: str,
    query: str = "",
    *,
    runtime: Runtime | None = None,
    properties: Mapping[str, str] | None = None,
) -> FakeCluster:
    """Return the cluster behind ``fake:NAME``: for killing servers of it while connections use it."""
    if runtime is not None and not runtime.callers_help:
        raise ConfigError(
            f"fake:{name} is shared by the connections of this process and runs in threads, for which an event loop "
            "cannot wait: use fake: (a cluster of its own on the loop), or serve a FakeCluster over TCP"
        )
    is_virtual = isinstance(runtime, SimRuntime)
    key = (name, id(runtime) if is_virtual else 0)
    given = _Given(query, _server_settings(properties or {}))
    found = _named.get(key)
    if found is None or found[0].network.is_closed:
        made = _made(query, runtime if is_virtual else None, properties or {})
        _named.pop(key, None)
        found = _named.setdefault(key, (made, given))
        if found[0] is not made:
            made.close()  # another thread was faster
    for now, before in zip(given, found[1], strict=True):
        if now and now != before:
            raise ConfigError(
                f"fake:{name} exists already, created with {masked_url(before) or 'nothing'!r}, not {masked_url(now)!r}"
            )
    return found[0]


def _server_settings(properties: Mapping[str, str]) -> str:
    """Return the servers' properties as text to compare; the client's may differ from connection to connection."""
    names = sorted(name for name in properties if name in honoured_names() and not name.startswith(CLIENT_PREFIXES))
    return ", ".join(f"{name}={properties[name]}" for name in names)


def close_named_clusters() -> None:
    """Close and forget all of them (for tests)."""
    while _named:
        _, (cluster, _) = _named.popitem()
        cluster.close()


def _made(query: str, runtime: Runtime | None, properties: Mapping[str, str]) -> FakeCluster:
    settings = _parsed(query)
    servers, seed = (_size(name, settings.pop(name, str(default))) for name, default in _SIZES.items())
    config = ClusterConfig.of(properties).replace(**settings)
    return FakeCluster(servers, seed=seed, runtime=runtime, config=config)


def _parsed(query: str) -> dict[str, str]:
    known = [*_SIZES, *setting_names()]
    settings: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in known:
            raise ConfigError(f"a fake: url has no {name!r}{nearest(name, known)}")
        if name in settings:
            raise ConfigError(f"a fake: url has {name!r} twice: {settings[name]!r} and {value!r}")
        settings[name] = value
    return settings


def _size(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError as error:
        raise ConfigError(f"{name} must be a whole number, got {value!r}") from error
