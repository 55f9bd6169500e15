"""The handlers of a fake region server: calls that take them, wait for them, and take them from each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import SupportsIndex

import pytest

from metaclient.errors import CallQueueTooBig
from metaclient.runtime import SimRuntime
from metaclient_fake.network.handlers import Handler, Handlers


@pytest.fixture
def runtime() -> Iterator[SimRuntime]:
    with SimRuntime() as made:
        yield made


class Contested(list[Handler]):
    """Free handlers of which other calls take the last one, some times, between a look at the list and its ``pop``."""

    lost = 0

    def pop(self, index: SupportsIndex = -1) -> Handler:
        if self.lost:
            self.lost -= 1
            raise IndexError("pop from empty list")
        return super().pop(index)


def test_handler_that_another_call_takes_first_leaves_the_call_in_the_queue(runtime: SimRuntime) -> None:
    handlers = Handlers(runtime, 1, 10, "rs1")
    handlers.free = free = Contested(handlers.free)
    free.lost = 2
    taken: list[Handler] = []
    assert handlers.take(runtime.now() + 1.0, taken)
    assert len(taken) == 1
    assert handlers.waiting == 0


def test_queued_call_gets_a_freed_handler_and_ends_at_its_deadline_or_with_the_server(runtime: SimRuntime) -> None:
    handlers = Handlers(runtime, 1, 1, "rs1")
    first: list[Handler] = []
    assert handlers.take(None, first)
    assert not handlers.take(runtime.now() + 1.0, [])
    waits = runtime.start(handlers.take, None, [])
    runtime.sleep(0.1)
    with pytest.raises(CallQueueTooBig):
        handlers.take(None, [])
    handlers.give_back(first.pop())
    assert waits.result()
    waits = runtime.start(handlers.take, None, [])
    runtime.sleep(0.1)
    handlers.close()
    assert not waits.result()
    assert handlers.waiting == 0
