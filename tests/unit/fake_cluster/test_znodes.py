"""The tree that stands for ZooKeeper: versions, ephemeral nodes, watches, and ``multi`` that applies all or nothing."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaclient.runtime import SimRuntime
from metaclient_fake.coordination.znodes import (
    DATA_BYTES_MAX,
    BadVersion,
    Change,
    Check,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    ParentIsEphemeral,
    Set,
    WatchEvent,
    ZnodeError,
    Znodes,
)


@pytest.fixture
def znodes() -> Iterator[Znodes]:
    with SimRuntime(seed=0) as runtime:
        yield Znodes(runtime)


def test_each_change_counts_the_version_of_the_node_or_of_its_parent(znodes: Znodes) -> None:
    znodes.create("/hbase")
    znodes.create("/hbase/rs", b"x")
    assert znodes.get("/hbase") == Node(b"", 0, 1)
    znodes.set("/hbase/rs", b"y")
    assert znodes.get("/hbase/rs") == Node(b"y", 1, 0)
    assert znodes.get("/hbase").children_version == 1
    znodes.delete("/hbase/rs")
    assert znodes.get("/hbase") == Node(b"", 0, 2)


def test_node_made_again_starts_at_version_zero(znodes: Znodes) -> None:
    znodes.create("/a")
    znodes.set("/a", b"1")
    znodes.delete("/a")
    znodes.create("/a")
    assert znodes.get("/a").version == 0


def test_writer_with_an_old_version_overwrites_nothing(znodes: Znodes) -> None:
    znodes.create("/a", b"first")
    znodes.set("/a", b"second", 0)
    with pytest.raises(BadVersion, match=r"/a: the node has version 1, not 0"):
        znodes.set("/a", b"third", 0)
    with pytest.raises(BadVersion):
        znodes.delete("/a", 0)
    assert znodes.get("/a") == Node(b"second", 1, 0)


def test_missing_and_doubled_nodes_are_refused(znodes: Znodes) -> None:
    znodes.create("/a")
    with pytest.raises(NodeExists, match="/a"):
        znodes.create("/a")
    with pytest.raises(NoNode, match="the parent /b does not exist"):
        znodes.create("/b/c")
    for call in (znodes.get, znodes.children, znodes.delete, znodes.owner, znodes.tree):
        with pytest.raises(NoNode, match="/b"):
            call("/b")
    with pytest.raises(NoNode):
        znodes.set("/b", b"")
    assert not znodes.exists("/b")


def test_parents_are_made_only_when_asked(znodes: Znodes) -> None:
    znodes.create("/a/b/c", b"x", make_parents=True)
    assert znodes.get("/a/b") == Node(b"", 0, 1)
    znodes.create("/a/b/d", make_parents=True)
    assert znodes.children("/a/b") == ["c", "d"]
    assert znodes.children("/") == ["a"]


def test_node_with_children_is_not_deleted_by_accident(znodes: Znodes) -> None:
    znodes.create("/a/b/c", make_parents=True)
    znodes.create("/ab")
    with pytest.raises(NotEmpty, match="1 children"):
        znodes.delete("/a")
    znodes.delete("/a", recursive=True)
    assert list(znodes.tree()) == ["/", "/ab"]


def test_ended_session_takes_its_own_nodes_and_no_others(znodes: Znodes) -> None:
    znodes.create("/rs")
    for name, session in (("rs1", "s1"), ("rs2", "s2"), ("rs3", "s1")):
        znodes.create(f"/rs/{name}", ephemeral=session)
    znodes.create("/rs/stays")
    assert znodes.owner("/rs/rs1") == "s1"
    assert znodes.owner("/rs/stays") is None
    znodes.end_session("s1")
    assert znodes.children("/rs") == ["rs2", "stays"]
    znodes.end_session("s1")  # has no nodes any more


def test_deleted_ephemeral_node_made_by_another_session_outlives_the_first(znodes: Znodes) -> None:
    znodes.create("/master", ephemeral="first")
    znodes.delete("/master")
    znodes.create("/master", ephemeral="second")
    znodes.end_session("first")
    assert znodes.owner("/master") == "second"


def test_ephemeral_node_has_no_children(znodes: Znodes) -> None:
    znodes.create("/a", ephemeral="s")
    with pytest.raises(ParentIsEphemeral, match="/a/b"):
        znodes.create("/a/b")


def test_watch_is_called_once_and_after_the_change(znodes: Znodes) -> None:
    seen: list[tuple[WatchEvent, bytes]] = []
    znodes.create("/a")
    znodes.watch("/a", lambda event: seen.append((event, znodes.get("/a").data)))
    znodes.set("/a", b"1")
    znodes.set("/a", b"2")
    assert seen == [(WatchEvent("/a", Change.DATA), b"1")]


@pytest.mark.parametrize(
    ("operation", "path", "change"),
    [
        (Create("/new"), "/new", Change.CREATED),
        (Create("/a/new"), "/a", Change.CHILDREN),
        (Create("/x/y", make_parents=True), "/", Change.CHILDREN),
        (Delete("/a/b"), "/a/b", Change.DELETED),
        (Delete("/a/b"), "/a", Change.CHILDREN),
        (Delete("/a", recursive=True), "/a/b", Change.DELETED),
        (Set("/a", b""), "/a", Change.DATA),
    ],
)
def test_watch_reports_creation_deletion_data_and_children(
    znodes: Znodes, operation: Operation, path: str, change: Change
) -> None:
    seen: list[WatchEvent] = []
    znodes.create("/a/b", make_parents=True)
    znodes.watch(path, seen.append)
    znodes.multi([operation])
    assert seen == [WatchEvent(path, change)]


def test_end_of_a_session_is_seen_by_the_watcher_of_the_parent(znodes: Znodes) -> None:
    seen: list[WatchEvent] = []
    znodes.create("/rs")
    znodes.create("/rs/a", ephemeral="s")
    znodes.watch("/rs", seen.append)
    znodes.end_session("s")
    assert seen == [WatchEvent("/rs", Change.CHILDREN)]


def test_watch_set_again_inside_of_its_callback_misses_no_later_change(znodes: Znodes) -> None:
    seen: list[Change] = []

    def again(event: WatchEvent) -> None:
        seen.append(event.change)
        znodes.watch("/a", again)

    znodes.watch("/a", again)
    znodes.create("/a")
    znodes.set("/a", b"1")
    znodes.delete("/a")
    assert seen == [Change.CREATED, Change.DATA, Change.DELETED]


def test_removed_watch_is_not_called_and_leaves_its_twin(znodes: Znodes) -> None:
    seen: list[WatchEvent] = []
    remove = znodes.watch("/a", seen.append)
    znodes.watch("/a", seen.append)
    remove()
    remove()
    znodes.create("/a")
    remove()
    assert len(seen) == 1


def test_refused_multi_changes_nothing_and_calls_no_watch(znodes: Znodes) -> None:
    seen: list[WatchEvent] = []
    znodes.create("/a/b", b"old", make_parents=True)
    znodes.create("/e", ephemeral="s")
    before = znodes.tree()
    for path in ("/a", "/a/b", "/new", "/e"):
        znodes.watch(path, seen.append)
    with pytest.raises(NoNode) as refusal:
        znodes.multi(
            [
                Create("/new/deep", make_parents=True, ephemeral="s"),
                Set("/a/b", b"new"),
                Delete("/a", recursive=True),
                Delete("/e"),
                Set("/missing", b""),
            ]
        )
    assert refusal.value.index == 4
    assert refusal.value.path == "/missing"
    assert (znodes.tree(), seen) == (before, [])
    znodes.end_session("s")
    assert not znodes.exists("/e")


def test_multi_sees_its_own_earlier_operations(znodes: Znodes) -> None:
    znodes.multi([Create("/a"), Create("/a/b", b"1"), Set("/a/b", b"2", 0), Check("/a/b", 1), Delete("/a/b")])
    assert znodes.get("/a") == Node(b"", 0, 2)


def test_claim_of_a_moved_queue_is_refused_as_a_whole(znodes: Znodes) -> None:
    """Two servers claim one queue with the same operations: the second finds nothing and creates nothing."""
    znodes.create("/rs/dead/1/wal", b"7", make_parents=True)
    for owner, wins in (("a", True), ("b", False)):
        claim: list[Operation] = [
            Create(f"/rs/{owner}/1-dead/wal", b"7", make_parents=True),
            Delete("/rs/dead/1/wal"),
            Delete("/rs/dead/1"),
        ]
        try:
            znodes.multi(claim)
        except NoNode:
            assert not wins
        else:
            assert wins
    assert sorted(znodes.tree("/rs")) == ["/rs", "/rs/a", "/rs/a/1-dead", "/rs/a/1-dead/wal", "/rs/dead"]


def test_check_refuses_another_version(znodes: Znodes) -> None:
    znodes.create("/a")
    znodes.multi([Check("/a"), Check("/a", 0)])
    with pytest.raises(BadVersion):
        znodes.multi([Set("/a", b"1"), Check("/a", 0)])
    assert znodes.get("/a").version == 0


@pytest.mark.parametrize("path", ["", "a", "a/b", "/a/", "//a", "/a//b", "/./a", "/a/..", "/a\0"])
def test_malformed_path_is_refused_before_anything_changes(znodes: Znodes, path: str) -> None:
    for call in (znodes.create, znodes.get, znodes.children, znodes.delete):
        with pytest.raises(ValueError, match="is not the path of a node"):
            call(path)
    with pytest.raises(ValueError, match="is not the path of a node"):
        znodes.multi([Create("/b"), Create(path)])
    assert not znodes.exists("/b")


def test_root_and_oversized_data_are_refused(znodes: Znodes) -> None:
    with pytest.raises(ValueError, match="root"):
        znodes.delete("/", recursive=True)
    with pytest.raises(ValueError, match=r"jute\.maxbuffer"):
        znodes.create("/a", bytes(DATA_BYTES_MAX + 1))
    znodes.create("/a", bytes(DATA_BYTES_MAX))


NAMES = st.sampled_from(["/a", "/b", "/a/c", "/a/d", "/a/c/e"])
VERSIONS = st.sampled_from([-1, -1, 0, 1])
OPERATIONS = st.one_of(
    st.builds(Create, NAMES, st.binary(max_size=2), st.sampled_from([None, "s", "t"]), st.booleans()),
    st.builds(Set, NAMES, st.binary(max_size=2), VERSIONS),
    st.builds(Delete, NAMES, VERSIONS, st.booleans()),
    st.builds(Check, NAMES, VERSIONS),
)


@given(st.lists(st.lists(OPERATIONS, max_size=5), max_size=12))
def test_refused_multi_leaves_the_same_tree_as_if_it_had_never_been_sent(batches: list[list[Operation]]) -> None:
    """The model is a second tree that gets only the batches that were accepted."""
    runtime = SimRuntime(seed=0)
    tried, model = Znodes(runtime), Znodes(runtime)
    for batch in batches:
        try:
            tried.multi(batch)
        except ZnodeError:
            continue
        finally:
            assert all(tried.exists(path.rpartition("/")[0] or "/") for path in tried.tree())
        model.multi(batch)
    assert tried.tree() == model.tree()
    for session in ("s", "t"):
        tried.end_session(session)
        model.end_session(session)
    assert tried.tree() == model.tree()
    assert all(tried.owner(path) is None for path in tried.tree())
