"""pytest fixtures of the installed package: ``fake_hbase`` and ``sim_hbase``.

Imports nothing but pytest until a fixture is used, because pytest loads it in every run.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Any

import pytest

__all__ = ["fake_hbase", "sim_hbase"]


def _fake_cluster(**options: Any) -> Any:
    """The fake is an adapter: found by its entry point, as any backend is."""
    found = entry_points(group="metaclient.clusters", name="fake")
    return next(iter(found)).load()(**options)


@pytest.fixture
def fake_hbase() -> Iterator[Any]:
    """A FakeCluster on real threads, closed after the test."""
    with _fake_cluster() as cluster:
        yield cluster


@pytest.fixture
def sim_hbase() -> Iterator[Any]:
    """A FakeCluster on virtual time: sleeps cost nothing and one seed decides all."""
    from metaclient.runtime import SimRuntime

    with SimRuntime(seed=0) as runtime, _fake_cluster(runtime=runtime) as cluster:
        yield cluster
