"""Clusters that replicate to each other keep their promises by seed; every checker fires when its promise is broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from metaclient.model import Cell, ServerName
from metaclient.wire.rpc.replication import ShippedEntry, WalKey
from metaclient_fake.simulation.cli import sim
from metaclient_fake.simulation.clusters import ClustersSpec, drawn, run
from metaclient_fake.simulation.clusters.checkers import durability, loops, out_of_order, repeats, scopes, serial_order
from metaclient_fake.simulation.clusters.contents import differences
from metaclient_fake.simulation.clusters.faults import LINK_KINDS, SIDE_KINDS
from metaclient_fake.simulation.clusters.shipments import END_OF_LOG, LoggedEdit, SentCall, StoredPosition
from metaclient_fake.simulation.clusters.spec import DRAWS_SERIAL_PEERS, TOPOLOGIES
from metaclient_fake.simulation.clusters.writers import Mutation
from metaclient_fake.simulation.history import Operation, Status
from metaclient_fake.simulation.lines import CLUSTERS_GROUPS
from metaclient_fake.simulation.runner import cores, run_seeds
from metaclient_fake.storage.wal import WalEntry
from tests.command_runner import command_runner

ROOT = Path(__file__).resolve().parents[2]
SEEDS = 200
CHUNK = 25
SHORT = 8.0


# -- seeds -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_seeds_of_clusters_keep_every_promise(first: int) -> None:
    done = run_seeds(range(first, first + CHUNK), jobs=cores(), has_clusters=True)
    assert done.seeds == CHUNK
    failures = "\n".join(f"{one.replay_line} --shrink\n    {one.violations[0]}" for one in done.failures)
    assert not done.failures, failures


def test_same_seed_gives_the_same_run() -> None:
    first, second = (run(drawn(3, duration_s=SHORT)) for _ in range(2))
    assert first.is_good, first.violations
    assert first.digest == second.digest
    assert first.operations > 50


def test_digests_of_clusters_do_not_depend_on_the_hashes_of_a_process() -> None:
    """One of the seeds is preempted between statements, and one has serial peers."""
    preempted = next(seed for seed in range(SEEDS) if drawn(seed).lines)
    serial = next(seed for seed in range(SEEDS) if drawn(seed).is_serial)
    code = (
        "from metaclient_fake.simulation.clusters import drawn, run;"
        f"print(*(run(drawn(seed, duration_s={SHORT})).digest for seed in ({preempted}, {serial})))"
    )
    roots = os.pathsep.join(str(ROOT / folder) for folder in (".", "adapters"))
    printed = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": roots},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=280,
            check=True,
        ).stdout
        for hash_seed in ("0", "4242")
    ]
    assert printed[0] == printed[1]
    assert len(set(printed[0].split())) == 2


def test_two_hundred_seeds_draw_every_topology_and_every_kind_of_fault() -> None:
    specs = [drawn(seed) for seed in range(SEEDS)]
    assert {spec.topology for spec in specs} == set(TOPOLOGIES)
    assert {fault.kind for spec in specs for fault in spec.faults} == {*SIDE_KINDS, *LINK_KINDS}
    assert {spec.has_deletes for spec in specs} == {True, False}
    assert {spec.settings["peer_replication_behaviour"] for spec in specs} == {"2.6", "3.0"}
    assert {spec.is_serial for spec in specs} == ({True, False} if DRAWS_SERIAL_PEERS else {False})
    assert {spec.lines.group for spec in specs if spec.lines} == set(CLUSTERS_GROUPS)


def test_deletes_are_drawn_only_without_splits_and_merges_which_compact_them_away() -> None:
    specs = [drawn(seed) for seed in range(SEEDS)]
    assert not [spec.seed for spec in specs if spec.has_deletes and {"split", "merge"} & set(spec.kinds)]


def test_command_runs_and_replays_seeds_of_clusters() -> None:
    arguments = ["run", "--clusters", "--seeds", "2", "--jobs", "1", "--duration", str(SHORT), "--json"]
    result = command_runner().invoke(sim, arguments)
    document = json.loads(result.stdout)
    assert result.exit_code == 0
    assert document["failures"] == []
    assert set(document["coverage"]["faults"]) == {*SIDE_KINDS, *LINK_KINDS}
    again = command_runner().invoke(sim, ["replay", "1", "--clusters", "--duration", str(SHORT), "--json"])
    assert again.exit_code == 0
    assert json.loads(again.stdout)["spec"]["topology"] in TOPOLOGIES


def test_failure_prints_columns_and_not_pictures() -> None:
    """``h:v:`` is the name of an emoji to the console."""
    arguments = ["replay", "3", "--clusters", "--duration", str(SHORT), "--defect", "scope_filter_forgets_a_family"]
    result = command_runner().invoke(sim, arguments)
    assert result.exit_code == 1
    assert "h:v: " in result.stdout


# -- checkers ----------------------------------------------------------------------------------------------------------

IDS = {"east": uuid.UUID(int=1), "west": uuid.UUID(int=2), "north": uuid.UUID(int=3)}
SERVER = ServerName("rs1", 16020, 1)
WAL = "rs1%2C16020%2C1.5"


class StubShipments:
    """Records made by hand."""

    def __init__(self, events: list[Any], logs: dict[str, list[LoggedEdit]]) -> None:
        self.events = events
        self._logs = logs

    def logged(self, cluster: str) -> list[LoggedEdit]:
        return self._logs.get(cluster, [])


def made_world(
    topology: str = "both ways",
    *,
    events: list[Any] | None = None,
    logs: dict[str, list[LoggedEdit]] | None = None,
    contents: dict[str, Any] | None = None,
    origins: dict[int, str] | None = None,
    mutations: list[Mutation] | None = None,
    behaviour: str = "3.0",
    is_serial: bool = False,
) -> Any:
    seed = next(seed for seed in range(SEEDS) if drawn(seed).topology == topology)
    fields = {name: getattr(drawn(seed), name) for name in ClustersSpec.__slots__}
    settings = {**fields["settings"], "peer_replication_behaviour": behaviour}
    spec = ClustersSpec(**{**fields, "settings": settings, "is_serial": is_serial})
    return SimpleNamespace(
        spec=spec,
        sides={name: SimpleNamespace(cluster=SimpleNamespace(cluster_id=str(IDS[name]))) for name in spec.clusters},
        shipments=StubShipments(events or [], logs or {}),
        contents=contents or {},
        origins=origins or {},
        mutations=mutations or [],
        runtime=SimpleNamespace(now=lambda: 0.0),
    )


def logged(
    cluster: str,
    sequence_id: int,
    timestamp: int,
    *,
    row: bytes = b"1-east1",
    column: bytes = b"f:v",
    way: tuple[str, ...] = (),
    end: int = 100,
) -> LoggedEdit:
    cells = (Cell(column, timestamp, b"x"),)
    entry = WalEntry("r", b"t", sequence_id, 0, ((row, cells),), cluster_ids=tuple(IDS[name] for name in way))
    return LoggedEdit(cluster, WAL, end, entry)


def sent(
    sequence_id: int = 5,
    *,
    way: tuple[str, ...] = ("east",),
    column: bytes = b"f:v",
    connection: int = 0,
    is_acknowledged: bool = True,
    is_live: bool = True,
    server: ServerName = SERVER,
) -> SentCall:
    key = WalKey("r", b"t", sequence_id, 0, cluster_ids=tuple(IDS[name] for name in way))
    entry = ShippedEntry(key, ((b"1-east1", Cell(column, 7, b"x")),))
    return SentCall(1.0, "east", server, is_live, connection, "west", [entry], is_acknowledged)


def mutation(timestamp: int, *, is_delete: bool = False, outcome: Status = Status.OK, origin: str = "east") -> Mutation:
    operation = Operation(0, "writer", "put", "t", b"1-east1", 0.0)
    operation.outcome = outcome
    return Mutation(origin, b"1-east1", (b"f:v",), timestamp, is_delete, operation)


def holding(timestamp: int | None, *, column: bytes = b"f:v") -> dict[str, Any]:
    return {"t": {} if timestamp is None else {b"1-east1": {column: (b"x", timestamp)}}, "u": {}}


def texts(found: Any) -> list[str]:
    return [str(one) for one in found]


def test_missing_cell_of_a_peer_is_a_difference() -> None:
    world = made_world(contents={"east": holding(7), "west": holding(None)})
    assert differences(world) == ["1-east1 f:v: east has 7, west has nothing"]


def test_peer_that_no_link_reaches_may_lack_a_cell() -> None:
    contents = {"east": holding(None), "west": {"t": {b"1-west1": {b"f:v": (b"x", 7)}}, "u": {}}}
    assert differences(made_world("one way", contents=contents)) == []


@pytest.mark.parametrize(
    ("mutations", "seen", "told"),
    [
        ([mutation(7)], None, "the acknowledged put @7 is not there"),
        ([mutation(7), mutation(9)], 7, "the put @7 is there instead of the acknowledged put @9"),
        ([mutation(7), mutation(9, is_delete=True)], 7, "though the delete @9 was acknowledged"),
        ([mutation(7)], 8, "nobody put @8"),
        ([mutation(7, outcome=Status.FAILED)], 7, "nobody put @7"),
        ([mutation(7), mutation(9, outcome=Status.UNKNOWN)], 7, ""),
        ([mutation(7), mutation(9, outcome=Status.UNKNOWN)], 9, ""),
        ([mutation(7), mutation(9, is_delete=True, outcome=Status.UNKNOWN)], None, ""),
    ],
)
def test_durability_knows_the_effect_of_acknowledged_and_unknown_mutations(
    mutations: list[Mutation], seen: int | None, told: str
) -> None:
    world = made_world(contents={"west": holding(seen)}, mutations=mutations)
    found = texts(durability(world))
    assert len(found) == bool(told)
    assert all(told in one for one in found)


def test_cell_of_scope_0_is_noticed_in_a_call_in_a_log_and_in_a_table() -> None:
    call = made_world(events=[sent(column=b"g:v")])
    log = made_world(logs={"west": [logged("west", 5, 7, column=b"g:v", way=("east",))]}, origins={7: "east"})
    table = made_world(contents={"west": holding(7, column=b"g:v")}, origins={7: "east"})
    assert [len(texts(scopes(world))) for world in (call, log, table)] == [1, 1, 1]
    own = made_world(contents={"west": holding(7, column=b"g:v")}, origins={7: "west"})
    assert texts(scopes(own)) == []


@pytest.mark.parametrize(
    ("way", "is_loop"),
    [(("east",), False), ((), True), (("west", "east"), True), (("east", "east"), True), (("north", "east"), True)],
)
def test_call_whose_cluster_ids_are_not_its_way_is_a_loop(way: tuple[str, ...], is_loop: bool) -> None:
    assert bool(texts(loops(made_world(events=[sent(way=way)])))) == is_loop


@pytest.mark.parametrize(
    ("origin", "way", "is_loop"),
    [
        ("east", ("east",), False),
        ("west", (), False),
        ("east", (), True),  # its cluster ids were lost
        ("west", ("east",), True),  # it came back
        ("east", ("east", "west"), True),  # it went round
    ],
)
def test_edit_that_came_back_is_noticed_in_the_log_of_the_sink(
    origin: str, way: tuple[str, ...], is_loop: bool
) -> None:
    world = made_world(logs={"west": [logged("west", 5, 7, way=way)]}, origins={7: origin})
    assert bool(texts(loops(world))) == is_loop


def test_source_that_sends_again_what_was_acknowledged_is_noticed() -> None:
    log = {"east": [logged("east", 5, 7)]}
    assert len(texts(repeats(made_world(events=[sent(), sent()], logs=log)))) == 1
    lost = [sent(is_acknowledged=False), sent()]
    assert texts(repeats(made_world(events=lost, logs=log))) == []
    after_a_crash = [sent(connection=0), sent(connection=1)]
    assert texts(repeats(made_world(events=after_a_crash, logs=log))) == []


def test_serial_source_sends_a_region_again_only_after_one_of_its_calls_has_failed() -> None:
    log = {"east": [logged("east", 5, 7), logged("east", 6, 8)]}
    after_a_failure = [sent(5), sent(6, is_acknowledged=False), sent(5), sent(6)]
    assert texts(repeats(made_world(events=after_a_failure, logs=log, is_serial=True))) == []
    for_nothing = [sent(5), sent(6), sent(5)]
    assert len(texts(repeats(made_world(events=for_nothing, logs=log, is_serial=True)))) == 1


@pytest.mark.parametrize("position", [100, END_OF_LOG])
def test_entry_whose_position_was_stored_is_not_sent_by_another_source(position: int) -> None:
    log = {"east": [logged("east", 5, 7, end=100)]}
    stored = StoredPosition(1.0, "east", "west", WAL, position)
    other = ServerName("rs2", 16020, 2)
    again = [sent(), stored, sent(connection=1, server=other)]
    assert len(texts(repeats(made_world(events=again, logs=log)))) == 1
    assert len(texts(repeats(made_world(events=again, logs=log, behaviour="2.6")))) == 1
    before = [sent(), stored._replace(position=99), sent(connection=1, server=other)]
    assert texts(repeats(made_world(events=before, logs=log))) == []


def test_allowed_repeats_are_the_own_log_in_2_6_and_a_server_that_does_not_know_its_death() -> None:
    log = {"east": [logged("east", 5, 7, end=100)]}
    stored = StoredPosition(1.0, "east", "west", WAL, 100)
    recreated = [sent(), stored, sent(connection=1)]
    assert texts(repeats(made_world(events=recreated, logs=log, behaviour="2.6"))) == []
    assert len(texts(repeats(made_world(events=recreated, logs=log)))) == 1
    zombie = [sent(), stored, sent(connection=1, is_live=False)]
    assert texts(repeats(made_world(events=zombie, logs=log))) == []


def test_entry_that_is_in_no_log_of_its_source_is_noticed() -> None:
    assert len(texts(repeats(made_world(events=[sent()])))) == 1


@pytest.mark.parametrize(
    ("written", "arrived", "told"),
    [
        ([5, 7, 6], [], ""),
        ([5, 7, 6], [5, 7], ""),
        ([5, 7, 6], [5, 7, 6], ""),
        ([5, 7, 6], [7], "@7 arrived when @5 was next"),
        ([5, 7, 6], [5, 6], "@6 arrived when @7 was next"),
        ([5], [5, 6], "@6 arrived and was never written"),
    ],
)
def test_order_of_a_serial_peer_is_the_beginning_of_the_order_of_the_source(
    written: list[int], arrived: list[int], told: str
) -> None:
    assert out_of_order(written, arrived) == told


def test_row_state_that_the_source_never_had_is_noticed_in_the_log_of_a_serial_peer() -> None:
    source = [logged("east", 5, 7), logged("east", 6, 8), logged("east", 9, 9)]
    in_order = [logged("west", 20, 7), logged("west", 21, 8), logged("west", 22, 7), logged("west", 23, 8)]
    skipped = [logged("west", 20, 7), logged("west", 21, 9), logged("west", 22, 8)]
    logs = [{"east": source, "west": one} for one in (in_order, skipped)]
    assert texts(serial_order(made_world("one way", logs=logs[0], is_serial=True))) == []
    found = texts(serial_order(made_world("one way", logs=logs[1], is_serial=True)))
    assert found == ["serial_order: west: 1-east1 of east: @9 arrived when @8 was next"]
    assert texts(serial_order(made_world("one way", logs=logs[1]))) == []


def test_edits_that_a_sink_logged_as_one_entry_keep_their_order() -> None:
    """A later put with an older timestamp, both in one call: one batch of the sink's client, one entry of its log."""
    source = [logged("east", 5, 8), logged("east", 6, 7)]
    together = tuple((b"1-east1", (Cell(b"f:v", timestamp, b"x"),)) for timestamp in (8, 7))
    sink = LoggedEdit("west", WAL, 100, WalEntry("r", b"t", 20, 0, together, cluster_ids=(IDS["east"],)))
    world = made_world("one way", logs={"east": source, "west": [sink]}, is_serial=True)
    assert texts(serial_order(world)) == []
