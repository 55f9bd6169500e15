"""The bench that every test of the storage works at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from metaclient.runtime import ThreadRuntime
from tests.unit.fake_storage.bench import Bench


@pytest.fixture
def bench() -> Iterator[Bench]:
    with ThreadRuntime() as runtime:
        yield Bench(runtime)
