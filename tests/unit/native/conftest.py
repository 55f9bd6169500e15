"""What tests of HBase's own RPC share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from metaclient.runtime import ThreadRuntime


@pytest.fixture
def runtime() -> Iterator[ThreadRuntime]:
    """Real threads: the other side is a real socket."""
    with ThreadRuntime() as made:
        yield made
