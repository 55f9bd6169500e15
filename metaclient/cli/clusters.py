"""Finds the classes that start clusters by entry point (``metaclient.clusters``): no adapter is imported here."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from metaclient.errors import ConfigError

__all__ = ["cluster_class"]

CLUSTERS = "metaclient.clusters"


def cluster_class(name: str) -> Any:
    """The class that starts clusters of this kind, whoever brings it."""
    found = list(entry_points(group=CLUSTERS, name=name))
    if not found:
        raise ConfigError(f"nothing is registered as {name!r} under {CLUSTERS}: install hbase-metaclient with adapters")
    return found[0].load()
