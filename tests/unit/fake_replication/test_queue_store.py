"""The queues of logs as nodes: names, positions with pushed ids, claims, and what the log cleaner may not miss."""

import pytest

from metaclient.model import ServerName
from metaclient.runtime import SimRuntime
from metaclient_fake.coordination.znodes import NoNode, Znodes
from metaclient_fake.replication.pushed_ids import NO_SEQUENCE_ID, PushedIds
from metaclient_fake.replication.queues import ClaimedQueue, QueueId, QueueStore, is_meta_wal, wal_group

A, B, C, D = (ServerName(f"rs{number}", 16020, number) for number in range(1, 5))
REGION = "31d9792f4435b99d9fb1016f6fbc8dc7"
OTHER_REGION = "aa" + REGION[2:]


class Stored:
    """A queue store with peers 1 and 2."""

    def __init__(self) -> None:
        self.znodes = Znodes(SimRuntime())
        for peer in ("1", "2"):
            self.znodes.create(f"/hbase/replication/peers/{peer}", make_parents=True)
        self.pushed = PushedIds(self.znodes)
        self.queues = QueueStore(self.znodes, self.pushed)

    def filled(self, server: ServerName, *wals: str, peer: str = "1") -> QueueId:
        queue = QueueId(peer, server)
        for wal in wals:
            self.queues.add_wal(queue, wal)
        return queue


@pytest.fixture
def stored() -> Stored:
    return Stored()


@pytest.mark.parametrize(
    ("text", "peer", "dead"),
    [
        ("2", "2", []),
        ("2-host,1,2", "2", ["host,1,2"]),
        (
            "2-ip-10-46-221-101.ec2.internal,52170,136433-host2,1,2",
            "2",
            ["ip-10-46-221-101.ec2.internal,52170,136433", "host2,1,2"],
        ),
        ("p-a-b,1,2-a-b,1,3-c-d-e,4,5", "p", ["a-b,1,2", "a-b,1,3", "c-d-e,4,5"]),
    ],
)
def test_a_dash_in_a_host_name_does_not_cut_a_dead_server_in_two(text: str, peer: str, dead: list[str]) -> None:
    queue = QueueId.parse(text, A)
    assert (queue.peer, [str(server) for server in queue.dead]) == (peer, dead)
    assert queue.text == text


def test_a_chain_of_deaths_keeps_the_first_owner_first() -> None:
    queue = QueueId("1", A).claimed_by(B).claimed_by(C)
    assert queue.text == "1-rs1,16020,1-rs2,16020,2"
    assert (queue.server, queue.origin, queue.is_recovered) == (C, A, True)
    assert not QueueId("1", A).is_recovered


@pytest.mark.parametrize("text", ["1-host", "1-host,1", "1-host,a,b"])
def test_a_name_that_is_no_queue_is_not_read_as_one(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        QueueId.parse(text, A)


def test_nodes_are_those_of_hbase(stored: Stored) -> None:
    queue = stored.filled(A, "a.1", "a.2")
    assert stored.znodes.get("/hbase/replication/rs/rs1,16020,1/1/a.1").data == b""
    stored.queues.set_position(queue, "a.1", 300)
    assert stored.znodes.get("/hbase/replication/rs/rs1,16020,1/1/a.1").data == b"PBUF\x08\xac\x02"
    assert stored.queues.positions(queue) == {"a.1": 300, "a.2": 0}


def test_logs_are_in_the_order_of_their_numbers_not_of_their_letters(stored: Stored) -> None:
    assert list(stored.queues.positions(stored.filled(A, "a.9", "a.10", "a.100"))) == ["a.9", "a.10", "a.100"]


def test_position_zero_is_not_written(stored: Stored) -> None:
    queue = stored.filled(A, "a.1")
    stored.queues.set_position(queue, "a.1", 0)
    assert stored.znodes.get(stored.queues.path(queue, "a.1")).version == 0
    stored.queues.set_position(queue, "a.1", 0, {REGION: 5})
    assert stored.pushed.get(REGION, "1") == 5
    assert stored.znodes.get(stored.queues.path(queue, "a.1")).version == 0


def test_a_log_that_is_enqueued_twice_keeps_its_position(stored: Stored) -> None:
    queue = stored.filled(A, "a.1")
    stored.queues.set_position(queue, "a.1", 7)
    stored.queues.add_wal(queue, "a.1")
    assert stored.queues.positions(queue) == {"a.1": 7}


def test_a_position_without_its_log_stores_no_pushed_id(stored: Stored) -> None:
    queue = stored.filled(A, "a.1")
    with pytest.raises(NoNode):
        stored.queues.set_position(queue, "gone.1", 9, {REGION: 5})
    assert stored.pushed.get(REGION, "1") == NO_SEQUENCE_ID


def test_pushed_ids_never_fall_while_the_position_moves(stored: Stored) -> None:
    queue = stored.filled(A, "a.1")
    stored.queues.set_position(queue, "a.1", 10, {REGION: 100})
    stored.queues.set_position(queue, "a.1", 20, {REGION: 50, OTHER_REGION: 3})
    assert stored.queues.positions(queue) == {"a.1": 20}
    assert (stored.pushed.get(REGION, "1"), stored.pushed.get(OTHER_REGION, "1")) == (100, 3)


def test_a_version_conflict_of_pushed_ids_is_retried(stored: Stored) -> None:
    """Another source pushes the same region between the read and the write, twice."""
    queue = stored.filled(A, "a.1")
    stored.pushed.set_all("1", {REGION: 1})
    real, others = stored.pushed.operations, [5, 30]

    def operations(peer: str, ids: dict[str, int]) -> list[object]:
        made = real(peer, ids)
        if others:
            stored.pushed.operations = real  # type: ignore[method-assign]  # for the other writer
            stored.pushed.set_all(peer, {REGION: others.pop(0)})
            stored.pushed.operations = operations  # type: ignore[method-assign,assignment]  # back again
        return list(made)

    stored.pushed.operations = operations  # type: ignore[method-assign,assignment]  # planted
    stored.queues.set_position(queue, "a.1", 40, {REGION: 20})
    assert stored.queues.positions(queue) == {"a.1": 40}
    assert stored.pushed.get(REGION, "1") == 30
    assert not others


def test_pushed_ids_of_another_peer_survive_the_removal_of_one(stored: Stored) -> None:
    assert stored.pushed.path(REGION, "1") == "/hbase/replication/regions/31/d9/792f4435b99d9fb1016f6fbc8dc7-1"
    for peer in ("1", "2", "12"):
        stored.pushed.set_all(peer, {REGION: 8, OTHER_REGION: 9})
    stored.pushed.remove("2")
    assert stored.pushed.get(REGION, "2") == stored.pushed.get(OTHER_REGION, "2") == NO_SEQUENCE_ID
    assert [stored.pushed.get(REGION, peer) for peer in ("1", "12")] == [8, 8]
    stored.pushed.remove("1", [REGION])
    assert (stored.pushed.get(REGION, "1"), stored.pushed.get(OTHER_REGION, "1")) == (NO_SEQUENCE_ID, 9)


def test_more_ids_than_one_multi_takes_are_all_stored(stored: Stored) -> None:
    ids = {f"{number:032x}": number for number in range(2500)}
    stored.pushed.set_all("1", ids)
    assert all(stored.pushed.get(region, "1") == number for region, number in ids.items())


def test_three_servers_claim_one_queue_and_exactly_one_gets_it(stored: Stored) -> None:
    queue = stored.filled(A, "a.1", "a.2")
    stored.queues.set_position(queue, "a.1", 11)
    won = [claimed for server in (B, C, D) if (claimed := stored.queues.claim(queue, server)) is not None]
    assert len(won) == 1
    assert won[0].queue.text == "1-rs1,16020,1"
    assert won[0].positions == {"a.1": 11, "a.2": 0}
    assert stored.queues.positions(won[0].queue) == {"a.1": 11, "a.2": 0}
    assert stored.queues.queues(A) == []


def test_claims_that_interleave_leave_one_winner_and_no_log_twice(stored: Stored) -> None:
    """The second server has read the queue when the first one takes it."""
    queue = stored.filled(A, "a.1", "a.2")
    real = stored.znodes.multi
    first: list[ClaimedQueue | None] = []

    def multi(operations: list[object]) -> None:
        if not first:
            first.append(None)
            first.append(stored.queues.claim(queue, B))
        real(operations)  # type: ignore[arg-type]  # operations, passed on

    stored.znodes.multi = multi  # type: ignore[method-assign,assignment]  # planted
    assert stored.queues.claim(queue, C) is None
    assert first[1] is not None
    assert [(found.server, found.text) for found in stored.queues.all_queues()] == [(B, "1-rs1,16020,1")]


def test_a_queue_of_a_removed_peer_is_not_claimed(stored: Stored) -> None:
    """A server that has not heard of the removal must not keep the queue alive under its own name."""
    queue = stored.filled(A, "a.1")
    stored.znodes.delete("/hbase/replication/peers/1")
    assert stored.queues.claim(queue, B) is None
    assert stored.queues.all_queues() == [queue]


def test_an_empty_queue_is_removed_instead_of_claimed(stored: Stored) -> None:
    queue = stored.filled(A, "a.1")
    stored.queues.remove_wal(queue, "a.1")
    assert stored.queues.claim(queue, B) is None
    assert stored.queues.queues(A) == []
    stored.queues.remove_server(A)
    assert stored.queues.servers() == []


def test_a_server_with_queues_is_not_removed(stored: Stored) -> None:
    stored.filled(A, "a.1")
    stored.queues.remove_server(A)
    assert stored.queues.servers() == [A]


def test_all_wals_misses_no_log_of_a_queue_that_moves_during_the_look(stored: Stored) -> None:
    """The queue moves from a server that was not read yet to one that was: only a second look finds it."""
    stored.filled(B, "b.1")
    queue = stored.filled(C, "c.1")
    real, looks = stored.queues._children, 0

    def children(path: str) -> list[str]:
        nonlocal looks
        found = real(path)
        if path.endswith(f"/rs/{B}"):
            looks += 1
            if looks == 1:
                stored.queues.claim(queue, B)
        return found

    stored.queues._children = children  # type: ignore[method-assign]  # planted
    assert stored.queues.all_wals() == {"b.1", "c.1"}
    assert looks == 2


def test_all_wals_looks_again_until_no_claim_interferes(stored: Stored) -> None:
    queue = stored.filled(A, "a.1")
    servers, looks = [B, C, D], 0

    def move() -> None:
        nonlocal queue, looks
        looks += 1
        if servers:
            claimed = stored.queues.claim(queue, servers.pop(0))
            assert claimed is not None
            queue = claimed.queue

    stored.queues.on_look = move
    assert stored.queues.all_wals() == {"a.1"}
    assert looks == 4
    assert queue.text == "1-rs1,16020,1-rs2,16020,2-rs3,16020,3"


def test_removal_of_a_peer_finds_a_queue_that_is_claimed_during_the_first_pass(stored: Stored) -> None:
    stored.filled(B, "b.1", peer="2")
    queue = stored.filled(C, "c.1")
    real, looks = stored.queues._children, 0

    def children(path: str) -> list[str]:
        nonlocal looks
        found = real(path)
        if path.endswith(f"/rs/{B}") and not (looks := looks + 1) > 1:
            stored.queues.claim(queue, B)
        return found

    stored.queues._children = children  # type: ignore[method-assign]  # planted
    stored.queues.remove_peer("1")
    assert [found.peer for found in stored.queues.all_queues()] == ["2"]


def test_logs_of_hbase_meta_are_told_apart() -> None:
    assert is_meta_wal("rs1%2C16020%2C1.meta.1700000000000.meta")
    assert is_meta_wal("rs1%2C16020%2C1.meta.5")
    assert not is_meta_wal("rs1.meta.example%2C16020%2C1.5")
    assert wal_group("rs1%2C16020%2C1.5") == "rs1%2C16020%2C1"
