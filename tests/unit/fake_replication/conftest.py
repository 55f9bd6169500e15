"""Virtual time for every test, and the worlds of the fake cluster's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from metaclient.runtime import SimRuntime
from tests.unit.fake_cluster.conftest import World


@pytest.fixture
def runtime() -> Iterator[SimRuntime]:
    with SimRuntime(seed=1) as made:
        yield made


@pytest.fixture
def make(runtime: SimRuntime) -> Iterator[Callable[..., World]]:
    worlds: list[World] = []

    def make(**options: object) -> World:
        worlds.append(World(runtime, **options))
        return worlds[-1]

    yield make
    for world in worlds:
        world.cluster.close()
