"""Finds the classes that start clusters by entry point (``metaclient.clusters``), so that no adapter is imported."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from metaclient.errors import ConfigError

__all__ = ["cluster_class"]

CLUSTERS = "metaclient.clusters"


def cluster_class(name: str) -> Any:
    """Return the class that starts clusters of this kind; ConfigError when no installed package registers one."""
    found = list(entry_points(group=CLUSTERS, name=name))
    if not found:
        raise ConfigError(f"no cluster {name!r} is registered under {CLUSTERS}: reinstall hbase-metaclient")
    return found[0].load()
