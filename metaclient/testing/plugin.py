"""pytest fixtures of the installed package: ``fake_hbase`` and ``sim_hbase``.

The module imports only pytest until a fixture is used, because pytest loads the module in every run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

__all__ = ["fake_hbase", "sim_hbase"]


@pytest.fixture
def fake_hbase() -> Iterator[Any]:
    """Return a FakeCluster on real threads; it is closed after the test."""
    from metaclient.testing import FakeCluster

    with FakeCluster() as cluster:
        yield cluster


@pytest.fixture
def sim_hbase() -> Iterator[Any]:
    """Return a FakeCluster on virtual time: a sleep takes no real time, and runs are deterministic."""
    from metaclient.runtime import SimRuntime
    from metaclient.testing import FakeCluster

    with SimRuntime(seed=0) as runtime, FakeCluster(runtime=runtime) as cluster:
        yield cluster
