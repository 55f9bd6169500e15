"""A pipelined backend that can also be called directly: single gets and writes take that road, nothing else does."""

from __future__ import annotations

from typing import Any

import pytest

from metaclient.backend import Capabilities, Direct, DirectBackend
from metaclient.connection import connect_to
from metaclient.errors import NotServingRegion
from metaclient.model import Get, Mutation, RegionLocation
from metaclient.runtime import Pending, SimRuntime
from metaclient.testing import ScriptedBackend

PIPELINED = Capabilities(is_pipelined=True, direct=True)


class Roads(ScriptedBackend):
    """Pipelined as it stands; what came by ``direct`` is counted. ``is_busy``: that road answers Pendings, too."""

    def __init__(self, runtime: SimRuntime, capabilities: Capabilities = PIPELINED) -> None:
        super().__init__(runtime, capabilities=capabilities)
        self.direct: Direct = _Directly(self)
        self.came: list[str] = []
        self.errors: list[Exception] = []
        self.is_busy = False
        self.add_table("t", region_replication=3)

    def get(self, place: RegionLocation | None, table: bytes, get: Get, deadline: float) -> Any:
        self.came.append("pipelined get")
        return self.pended(super().get(place, table, get, deadline))

    def mutate(self, place: RegionLocation | None, table: bytes, mutation: Mutation, deadline: float) -> Any:
        self.came.append("pipelined mutate")
        return self.pended(super().mutate(place, table, mutation, deadline))

    def pended(self, answer: object) -> Pending[Any]:
        made = self.runtime.pending()
        made.complete(answer)
        return made


class _Directly:
    def __init__(self, backend: Roads) -> None:
        self._backend = backend

    def get(self, place: RegionLocation | None, table: bytes, get: Get, deadline: float) -> Any:
        return self._answer("get", ScriptedBackend.get(self._backend, place, table, get, deadline))

    def mutate(self, place: RegionLocation | None, table: bytes, mutation: Mutation, deadline: float) -> Any:
        return self._answer("mutate", ScriptedBackend.mutate(self._backend, place, table, mutation, deadline))

    def _answer(self, kind: str, answer: object) -> object:
        backend = self._backend
        backend.came.append(f"direct {kind}")
        if backend.errors:
            raise backend.errors.pop(0)
        return backend.pended(answer) if backend.is_busy else answer


@pytest.mark.parametrize("is_busy", [False, True])
def test_single_calls_go_directly(is_busy: bool) -> None:
    backend = Roads(SimRuntime())
    backend.is_busy = is_busy
    with connect_to(backend, runtime=backend.runtime) as connection:
        table = connection.table("t")
        table.put(b"a", {b"cf:x": b"1"})
        assert table.row(b"a") == {b"cf:x": b"1"}
        assert table.counter_inc(b"a", b"cf:n", 5) == 5
    assert backend.came == ["direct mutate", "direct get", "direct mutate"]


def test_reads_that_may_be_hedged_do_not() -> None:
    backend = Roads(SimRuntime())
    with connect_to(backend, runtime=backend.runtime) as connection:
        connection.table("t").row(b"a", consistency="timeline")
    assert backend.came == ["pipelined get"]


def test_after_a_failure_it_is_tried_again_as_ever() -> None:
    backend = Roads(SimRuntime())
    with connect_to(backend, runtime=backend.runtime) as connection:
        table = connection.table("t")
        table.put(b"a", {b"cf:x": b"1"})
        backend.errors = [NotServingRegion("it has moved")]
        assert table.row(b"a") == {b"cf:x": b"1"}
        backend.errors = [NotServingRegion("it has moved again")]
        table.put(b"a", {b"cf:x": b"2"})
    assert backend.came == [
        "direct mutate",
        "direct get",
        "pipelined get",
        "direct mutate",
        "pipelined mutate",
    ]


def test_only_who_says_so_is_called_directly() -> None:
    backend = Roads(SimRuntime(), Capabilities(is_pipelined=True))
    assert isinstance(backend, DirectBackend)
    with connect_to(backend, runtime=backend.runtime) as connection:
        connection.table("t").row(b"a")
    assert backend.came == ["pipelined get"]
