"""Decides which cluster a ``fake:`` url means, and makes it if need be.

- ``fake:`` a new cluster, on the connection's runtime, closed with the connection;
- ``fake:NAME`` the cluster of that name in this process, made on first use with a runtime of its own. It lives until
  the interpreter ends or :func:`close_named_clusters` is called, *not* until its last connection closes: a pool or a
  program that closes one connection before it opens the next would lose its data without a word. (On a virtual
  clock a name belongs to that clock: a cluster cannot live in two times.)

Both take ``?servers=5&meta_replicas=3&seed=0`` and any number, flag or time of :class:`ClusterConfig` by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl

from adapters.fake.backend import FakeBackend
from adapters.fake.cluster import FakeCluster
from adapters.fake.config import ClusterConfig, nearest, setting_names
from metaclient.errors import ConfigError
from metaclient.runtime import Runtime, SimRuntime

__all__ = ["backend_factory", "close_named_clusters", "named_cluster"]

SCHEME = "fake"
_SIZES = ("servers", "meta_replicas", "seed")
_META_REPLICAS_KEY = "hbase.meta.replica.count"

#: (name, runtime's id or 0) -> cluster and the query that made it. Entries are only added by ``setdefault``: atomic.
_named: dict[tuple[str, int], tuple[FakeCluster, str]] = {}


def backend_factory(url: str, *, runtime: Runtime, properties: Mapping[str, str]) -> FakeBackend:
    """The entry point ``fake`` of the group ``metaclient.backends``."""
    scheme, _, rest = url.partition(":")
    if scheme != SCHEME:
        raise ConfigError(f"{url!r} is no url of a fake cluster: fake:, fake:NAME, fake:?servers=5&meta_replicas=3")
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
    """The cluster behind ``fake:NAME``: for killing servers of it while connections use it."""
    is_virtual = isinstance(runtime, SimRuntime)
    key = (name, id(runtime) if is_virtual else 0)
    found = _named.get(key)
    if found is None or found[0].network.is_closed:
        made = _made(query, runtime if is_virtual else None, properties or {})
        _named.pop(key, None)
        found = _named.setdefault(key, (made, query))
        if found[0] is not made:
            made.close()  # somebody was faster
    if query and query != found[1]:
        raise ConfigError(f"fake:{name} is there already, made with {found[1] or 'nothing'!r}, not {query!r}")
    return found[0]


def close_named_clusters() -> None:
    """Close and forget all of them (for tests)."""
    while _named:
        _, (cluster, _) = _named.popitem()
        cluster.close()


def _made(query: str, runtime: Runtime | None, properties: Mapping[str, str]) -> FakeCluster:
    settings = _parsed(query)
    sizes = {name: _size(name, settings.pop(name)) for name in _SIZES if name in settings}
    if _META_REPLICAS_KEY in properties:
        sizes.setdefault("meta_replicas", _size(_META_REPLICAS_KEY, properties[_META_REPLICAS_KEY]))
    config = ClusterConfig.of({**_server_side(properties), **settings})
    return FakeCluster(runtime=runtime, config=config, **sizes)


def _server_side(properties: Mapping[str, str]) -> dict[str, object]:
    """HBase's own names only: the client's settings are none of the cluster's business."""
    return {name: value for name, value in properties.items() if "." in name and not name.startswith("metaclient.")}


def _parsed(query: str) -> dict[str, str]:
    known = [*_SIZES, *setting_names()]
    settings: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in known:
            raise ConfigError(f"a fake: url has no {name!r}{nearest(name, known)}")
        settings[name] = value
    return settings


def _size(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError as error:
        raise ConfigError(f"{name} must be a whole number, got {value!r}") from error
