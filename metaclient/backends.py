"""Finds the backend of a url: the entry point of the group ``metaclient.backends`` that has the name of its scheme."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any

from metaclient.backend import Backend, BackendFactory
from metaclient.config import Config
from metaclient.config.url_secrets import masked_url
from metaclient.errors import ConfigError
from metaclient.runtime import Runtime

__all__ = ["backend_for"]

BACKENDS = "metaclient.backends"
#: Options that only some backends take.
SECURITY_OPTIONS = ("principal", "keytab", "ccache", "token", "do_as", "ca", "cert", "key", "verify")
DEFAULTS = Config()


def backend_for(url: object, runtime: Runtime, config: Config) -> Backend:
    """Return the backend that is registered for the url's scheme; ConfigError when there is none."""
    if not isinstance(url, str):
        hint = "; HBase's properties are given as config=" if isinstance(url, Mapping | Config) else ""
        raise ConfigError(f"'url' must be text such as 'thrift2://gateway:9090', got {type(url).__name__}{hint}")
    scheme = url.partition(":")[0]
    known = {point.name: point for point in entry_points(group=BACKENDS)}
    if ":" not in url or scheme not in known:
        shown = masked_url(url)
        hint = _scheme_hint(shown, shown.partition(":")[0], sorted(known))
        raise ConfigError(f"no backend is registered for the url {shown!r}: {hint}")
    try:
        loaded: Any = known[scheme].load()
    except ImportError as error:
        raise ConfigError(f"the backend {scheme}: cannot be loaded: {error}") from error
    if "config" in inspect.signature(loaded).parameters:
        made: Backend = loaded(url, runtime=runtime, properties=config.properties, config=config)
        return made
    given = [name for name in SECURITY_OPTIONS if getattr(config, name) != getattr(DEFAULTS, name)]
    if given:
        raise ConfigError(f"{given[0]} has no effect on the backend {scheme}:, which takes no identity and no TLS")
    factory: BackendFactory = loaded
    return factory(url, runtime=runtime, properties=config.properties)


def _scheme_hint(url: str, scheme: str, known: Sequence[str]) -> str:
    """Return what to write instead of a url whose scheme is unknown, or missing as in ``host:9090``."""
    near = difflib.get_close_matches(scheme, known, n=1)
    if url.endswith(".xml"):
        return f"a configuration is given as config={url!r}"
    if "://" not in url and not near:
        address = url.lstrip("/") or "HOST:PORT"
        return (
            f"it has no scheme; write thrift2://{address} or thrift1://{address} for a Thrift gateway, "
            f"hbase://{address} for ZooKeeper, or hbase+rpc://{address} for a master"
        )
    if scheme == "hbase+zk":  # HBase 3's own name
        return "write hbase:// for ZooKeeper"
    return f"did you mean {near[0]}:?" if near else f"known are {', '.join(f'{name}:' for name in known)}"
