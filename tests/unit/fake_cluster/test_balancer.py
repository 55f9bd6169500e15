"""Placement and balancing as pure functions, and the moves on a cluster."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaclient.model import META_TABLE, ServerName
from metaclient_fake.master.balancer import Copy, Move, place, plan_moves, replica_cost

SERVERS = [ServerName(f"rs{number}", 16020, 1) for number in range(1, 6)]


def _copy(number: int, replica_id: int = 0, table: bytes = b"t") -> Copy:
    return Copy(b"%s-%d-%d" % (table, number, replica_id), (table, b"%d" % number, 1), replica_id)


def _apply(picture: dict[ServerName, list[Copy]], moves: list[Move]) -> dict[ServerName, list[Copy]]:
    after = {server: list(copies) for server, copies in picture.items()}
    for move in moves:
        after[move.source].remove(move.copy)
        after[move.target].append(move.copy)
    return after


def test_replica_cost_counts_squares() -> None:
    """0 when apart; 3 together cost more than 2 + 2 (TestStochasticLoadBalancerRegionReplica)."""
    a, b, c = (_copy(1, replica_id) for replica_id in range(3))
    d, e = _copy(2), _copy(2, 1)
    assert replica_cost({SERVERS[0]: [a], SERVERS[1]: [b], SERVERS[2]: [c]}) == 0
    assert replica_cost({SERVERS[0]: [a, b, c]}) > replica_cost({SERVERS[0]: [a, b], SERVERS[1]: [d, e]})


def test_colocated_copies_are_a_reason_to_balance_and_the_secondary_goes() -> None:
    """A colocated pair is split when there is another server; the primary stays."""
    picture = {SERVERS[0]: [_copy(1), _copy(1, 1)], SERVERS[1]: [_copy(2), _copy(3)]}
    moves = plan_moves(picture)
    assert [(move.copy.replica_id, move.target) for move in moves[:1]] == [(1, SERVERS[1])]
    assert replica_cost(_apply(picture, moves)) == 0


def test_one_server_is_no_reason_to_balance() -> None:
    assert plan_moves({SERVERS[0]: [_copy(1), _copy(1, 1)]}) == []


def test_more_copies_than_servers_are_spread_as_far_as_they_go() -> None:
    """50 copies on 40 nodes (TestStochasticLoadBalancerRegionReplicaReplicationGreaterThanNumNodes)."""
    servers = [ServerName(f"n{number}", 1, 1) for number in range(40)]
    copies = [_copy(1, replica_id) for replica_id in range(50)]
    picture: dict[ServerName, list[Copy]] = {server: [] for server in servers}
    picture[servers[0]] = copies
    after = _apply(picture, plan_moves(picture))
    assert all(after.values())


def test_meta_moves_last_and_only_to_be_apart() -> None:
    """Meta replicas are sticky, and never with their primary."""
    meta = [_copy(0, replica_id, META_TABLE) for replica_id in range(2)]
    crowd = [_copy(number) for number in range(10)]
    picture = {SERVERS[0]: [*meta, *crowd], SERVERS[1]: [], SERVERS[2]: []}
    moves = plan_moves(picture)
    assert [move.copy.is_meta for move in moves] == [False] * (len(moves) - 1) + [True]
    after = _apply(picture, moves)
    assert replica_cost(after) == 0
    apart = {SERVERS[0]: [meta[0]], SERVERS[1]: [meta[1]], SERVERS[2]: [], SERVERS[3]: []}
    assert plan_moves(apart) == []


def test_placement_starts_with_the_emptiest_and_keeps_copies_apart() -> None:
    copies = [_copy(number, replica_id) for replica_id in range(3) for number in range(100)]
    loads = dict.fromkeys(SERVERS, 0) | {SERVERS[0]: 7}
    placed = place(copies, loads, {})
    assert placed[copies[0].name] == SERVERS[1]
    holders = Counter((copy.range, placed[copy.name]) for copy in copies)
    assert max(holders.values()) == 1
    spread = Counter(placed.values())
    assert max(spread.values()) - min(spread.values()) <= 1


def test_placement_avoids_a_server_only_while_there_is_another() -> None:
    copy = _copy(1, 1)
    loads = {SERVERS[0]: 0, SERVERS[1]: 5}
    assert place([copy], loads, {}, avoid=SERVERS[0])[copy.name] == SERVERS[1]
    assert place([copy], loads, {copy.range: [SERVERS[1]]}, avoid=SERVERS[0])[copy.name] == SERVERS[0]
    with pytest.raises(ValueError, match="no server"):
        place([copy], {}, {})


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 12), st.integers(0, 2), st.integers(0, 4)), max_size=60, unique_by=lambda x: x[:2]
    )
)
def test_plans_never_make_it_worse_and_end_balanced(where: list[tuple[int, int, int]]) -> None:
    picture: dict[ServerName, list[Copy]] = {server: [] for server in SERVERS}
    for number, replica_id, server in where:
        picture[SERVERS[server]].append(_copy(number, replica_id))
    after = _apply(picture, plan_moves(picture))
    assert sum(map(len, after.values())) == len(where)
    assert replica_cost(after) == 0, "five servers, three copies at most: always possible"
    assert max(map(len, after.values())) - min(map(len, after.values())) <= 2
    assert plan_moves(after) == [] or len(plan_moves(after)) < max(1, len(where))


def test_balance_evens_out_a_cluster(world: Any) -> None:
    world.create(b"t", [b"%02d" % number for number in range(1, 30)], copies=2)
    for region in world.cluster.regions("t")[:20]:
        world.cluster.move(region, "rs1")
    assert world.cluster.balance() > 0
    counts = [server["regions"] for server in world.cluster.status()["servers"].values()]
    assert max(counts) - min(counts) <= 2
    for row in world.rows_of(b"t"):
        assert len({copy.server for copy in row.locations.placed()}) == 2
    assert world.cluster.balance() == 0


def test_balancer_runs_by_itself_when_told_to(make: Any) -> None:
    world = make(config={"hbase.balancer.period": 10_000})
    world.create(b"t", [b"%02d" % number for number in range(1, 20)])
    for region in world.cluster.regions("t"):
        world.cluster.move(region, "rs1")
    world.runtime.sleep(60)
    counts = [server["regions"] for server in world.cluster.status()["servers"].values()]
    assert max(counts) - min(counts) <= 2
