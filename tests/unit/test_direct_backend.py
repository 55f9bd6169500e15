"""A pipelined backend that can also be called directly: gets, writes, lookups, and first calls of TIMELINE gets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from metaclient.backend import Capabilities, Direct, DirectBackend, MetaScan
from metaclient.connection import connect_to
from metaclient.errors import NotServingRegion, ServerUnreachable
from metaclient.model import Cell, Get, MetaReplica, Mutation, RegionLocation, Result
from metaclient.runtime import Pending, SimRuntime
from metaclient.table import Table
from metaclient.testing import ScriptedBackend

PIPELINED = Capabilities(is_pipelined=True, direct=True)


class Roads(ScriptedBackend):
    """Pipelined as it stands; what came by ``direct`` is counted. ``is_busy``: that road answers Pendings, too."""

    def __init__(self, runtime: SimRuntime, capabilities: Capabilities = PIPELINED) -> None:
        super().__init__(runtime, capabilities=capabilities, meta_replicas=3)
        self.direct: Direct = _Directly(self)
        self.came: list[str] = []
        self.lookups: list[str] = []
        self.errors: list[Exception] = []
        self.wrong_answers: list[object] = []
        self.late: Pending[Any] | None = None  # what a TIMELINE get of the primary returns, after its hedge delay
        self.hedge: Pending[Any] | None = None  # what any other get returns
        self.is_busy = False
        self.add_table("t", region_replication=3)

    def read_meta(self, replica: MetaReplica, scan: MetaScan, deadline: float) -> Any:
        self.lookups.append(f"pipelined to replica {replica.replica_id}")
        return self.pended(super().read_meta(replica, scan, deadline))

    def get(self, place: RegionLocation | None, table: bytes, get: Get, deadline: float) -> Any:
        self.came.append("pipelined get")
        if self.hedge is not None:
            return self.hedge
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

    def read_meta(self, replica: MetaReplica, scan: MetaScan, deadline: float) -> Any:
        self._backend.lookups.append(f"direct to replica {replica.replica_id}")
        return ScriptedBackend.read_meta(self._backend, replica, scan, deadline)

    def get(self, place: RegionLocation | None, table: bytes, get: Get, deadline: float) -> Any:
        return self._answer("get", ScriptedBackend.get(self._backend, place, table, get, deadline))

    def get_until(self, place: RegionLocation | None, table: bytes, get: Get, deadline: float, until: float) -> Any:
        backend = self._backend
        if backend.late is not None:
            backend.came.append("direct get_until")
            if not backend.is_busy:
                backend.runtime.sleep(until - backend.runtime.now())
            return backend.late
        return self._answer("get_until", ScriptedBackend.get(backend, place, table, get, deadline))

    def mutate(self, place: RegionLocation | None, table: bytes, mutation: Mutation, deadline: float) -> Any:
        return self._answer("mutate", ScriptedBackend.mutate(self._backend, place, table, mutation, deadline))

    def _answer(self, kind: str, answer: object) -> object:
        backend = self._backend
        backend.came.append(f"direct {kind}")
        if backend.errors:
            raise backend.errors.pop(0)
        if backend.wrong_answers:
            return backend.wrong_answers.pop(0)
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


@pytest.fixture
def timeline() -> Iterator[tuple[Roads, Table]]:
    """A backend, and a table whose location is known: the next TIMELINE get is a direct call of the primary."""
    backend = Roads(SimRuntime())
    with connect_to(backend, runtime=backend.runtime) as connection:
        table = connection.table("t")
        table.put(b"a", {b"cf:x": b"1"})
        backend.came.clear()
        yield backend, table


@pytest.mark.parametrize("is_busy", [False, True])
def test_timeline_get_that_is_answered_in_time_makes_one_direct_call(
    timeline: tuple[Roads, Table], is_busy: bool
) -> None:
    backend, table = timeline
    backend.is_busy = is_busy
    row = table.row(b"a", consistency="timeline")
    assert (row, row.why, row.stale, row.replica_id) == ({b"cf:x": b"1"}, "primary", False, 0)
    assert backend.came == ["direct get_until"]
    assert table.connection.stats()["hedges"]["started"] == 0


def test_direct_call_that_is_late_is_hedged_and_its_answer_dropped(timeline: tuple[Roads, Table]) -> None:
    backend, table = timeline
    backend.late = late = backend.runtime.pending()
    row = table.row(b"a", consistency="timeline")
    assert (row, row.why, row.stale) == ({b"cf:x": b"1"}, "hedge", True)
    assert backend.came == ["direct get_until", "pipelined get"]
    assert table.connection.stats()["hedges"]["started"] == 1
    assert late.complete(Result(b"a")), "the call of the primary is the witness of its silence: it was not completed"


def test_direct_call_that_is_late_wins_if_it_answers_before_the_replica(timeline: tuple[Roads, Table]) -> None:
    backend, table = timeline
    backend.late = late = backend.runtime.pending()
    backend.hedge = backend.runtime.pending()
    backend.runtime.start(_complete_later, backend.runtime, late)
    row = table.row(b"a", consistency="timeline")
    assert (row, row.why, row.replica_id) == ({b"cf:x": b"late"}, "primary", 0)


def _complete_later(runtime: SimRuntime, late: Pending[Any]) -> None:
    runtime.sleep(0.1)
    late.complete(Result(b"a", (Cell(b"cf:x", 1, b"late"),)))


@pytest.mark.parametrize("is_busy", [False, True])
def test_direct_call_that_fails_lets_a_replica_answer_at_once(timeline: tuple[Roads, Table], is_busy: bool) -> None:
    backend, table = timeline
    backend.is_busy = is_busy
    backend.errors = [ServerUnreachable("connection refused")]
    begun = backend.runtime.now()
    row = table.row(b"a", consistency="timeline")
    assert (row, row.why, row.stale) == ({b"cf:x": b"1"}, "failover", True)
    assert backend.runtime.now() == begun, "it waited for the hedge delay"
    assert table.connection.stats()["hedges"]["started"] == 0


def test_answer_of_a_wrong_type_is_no_answer_of_a_timeline_get(timeline: tuple[Roads, Table]) -> None:
    backend, table = timeline
    backend.wrong_answers = [b"a string"]
    row = table.row(b"a", consistency="timeline")
    assert (row, row.why, row.stale) == ({b"cf:x": b"1"}, "failover", True)


def test_interrupted_direct_call_is_abandoned(timeline: tuple[Roads, Table], monkeypatch: pytest.MonkeyPatch) -> None:
    """The call may stay in flight for ever: a count that nobody reduces would refuse all later calls."""
    backend, table = timeline
    backend.is_busy = True
    backend.late = late = backend.runtime.pending()
    waits = backend.runtime.wait_first

    def interrupted(pendings: Sequence[Pending[Any]], deadline: float | None) -> Pending[Any] | None:
        if late in pendings:
            raise KeyboardInterrupt
        return waits(pendings, deadline)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(backend.runtime, "wait_first", interrupted)
        table.row(b"a", consistency="timeline")
    executor = table.connection.engine.executor
    assert (late.is_cancel_asked, executor.abandoned) == (True, 1)
    late.complete(Result(b"a"))
    assert executor.abandoned == 0


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


@pytest.mark.parametrize(
    ("mode", "lookups"),
    [
        ("None", ["direct to replica 0"]),
        ("LoadBalance", ["direct to replica 2"]),
        ("HedgedRead", ["pipelined to replica 0"]),
    ],
)
def test_lookups_that_ask_one_replica_at_a_time_are_direct(mode: str, lookups: list[str]) -> None:
    backend = Roads(SimRuntime(seed=3))
    with connect_to(backend, runtime=backend.runtime, meta_mode=mode) as connection:
        connection.locate("t", b"a", reload=True)
    assert backend.lookups == lookups


def test_direct_lookup_that_fails_asks_the_next_replica() -> None:
    backend = Roads(SimRuntime(seed=3))
    backend.on("read_meta", replica=2).raises(ServerUnreachable("gone"))
    with connect_to(backend, runtime=backend.runtime, meta_mode="LoadBalance") as connection:
        location = connection.locate("t", b"a")
    assert location.region.table == b"t"
    assert backend.lookups[0] == "direct to replica 2"
    assert len(backend.lookups) == 2
    assert backend.lookups[1].startswith("direct")
