"""A peer gets the entries and cells that scopes and its configuration select (TestReplicationWALEntryFilters)."""

import uuid

import pytest

from metaclient.model import Cell
from metaclient.replication_peers import PeerConfig
from metaclient.wire.rpc.replication import ShippedEntry
from metaclient_fake.replication.filters import EntryFilter
from metaclient_fake.storage.packed_row import packed
from metaclient_fake.storage.wal import Marker, MarkerKind, WalEntry

HERE, PEER, OTHER = (uuid.UUID(int=number) for number in (1, 2, 3))
ALL = PeerConfig(cluster_key="b:2181:/hbase")


def entry_of(
    table: bytes = b"t", families: str = "a", scopes: str | None = None, cluster_ids: tuple[uuid.UUID, ...] = ()
) -> WalEntry:
    """An entry with a cell in each family; all families are GLOBAL unless ``scopes`` names those that are."""
    rows = tuple((b"row", (Cell(f"{name}:q".encode(), 1, b"v"),)) for name in families)
    in_scope = tuple((name.encode(), 1) for name in (families if scopes is None else scopes))
    return WalEntry("r", table, 7, 100, rows, scopes=in_scope, cluster_ids=cluster_ids)


def shipped(entry: WalEntry, config: PeerConfig = ALL) -> ShippedEntry | None:
    return EntryFilter(config, cluster_id=HERE, peer_cluster_id=PEER).shipped(entry)


def families(entry: WalEntry, config: PeerConfig = ALL) -> str | None:
    """The families of which the peer gets cells; None if the whole entry is dropped."""
    found = shipped(entry, config)
    return None if found is None else "".join(cell.family.decode() for _, cell in found.cells)


def chosen(tables: dict[bytes, tuple[bytes, ...]], *namespaces: bytes) -> PeerConfig:
    return PeerConfig(replicate_all=False, tables=tables, namespaces=frozenset(namespaces))


def test_replayed_edits_have_no_scopes_and_are_not_sent_a_second_time() -> None:
    assert families(entry_of(scopes="")) == ""


@pytest.mark.parametrize("table", [b"hbase:meta", b"hbase:namespace"])
def test_system_tables_are_not_shipped(table: bytes) -> None:
    assert shipped(entry_of(table)) is None
    assert shipped(entry_of(table), chosen({}, b"hbase")) is None


@pytest.mark.parametrize("table", [b"hbase:acl", b"hbase:labels", b"t", b"ns:t"])
def test_permissions_labels_and_user_tables_are_shipped(table: bytes) -> None:
    assert families(entry_of(table)) == "a"


@pytest.mark.parametrize(("scopes", "kept"), [("", ""), ("a", "a"), ("ab", "ab")])
def test_cells_outside_of_the_scope_do_not_leave_the_cluster(scopes: str, kept: str) -> None:
    assert families(entry_of(families="ab", scopes=scopes)) == kept


@pytest.mark.parametrize("scope", [0, 2])
def test_scopes_other_than_global_are_not_shipped(scope: int) -> None:
    """Family of scope 2 is accepted by HBase's tables and never shipped."""
    assert families(entry_of()._replace(scopes=((b"a", scope),))) == ""


@pytest.mark.parametrize(("listed", "kept"), [((b"a",), "a"), ((b"a", b"c"), "ac"), ((), "abc"), ((b"x",), "")])
def test_peer_of_some_families_gets_no_other(listed: tuple[bytes, ...], kept: str) -> None:
    assert families(entry_of(families="abc"), chosen({b"t": listed})) == kept


def test_peer_of_another_table_gets_nothing() -> None:
    assert shipped(entry_of(), chosen({b"u": ()})) is None
    assert shipped(entry_of(), chosen({})) is None


def test_excluded_tables_families_and_namespaces_are_not_shipped() -> None:
    entry = entry_of(families="abc")
    assert families(entry, PeerConfig(exclude_tables={b"t": (b"a",)})) == "bc"
    assert shipped(entry, PeerConfig(exclude_tables={b"t": ()})) is None
    assert shipped(entry, PeerConfig(exclude_namespaces=frozenset({b"default"}))) is None
    assert families(entry, PeerConfig(exclude_namespaces=frozenset({b"ns"}))) == "abc"


def test_each_peer_gets_its_own_tables_and_families() -> None:
    """The two peers of TestPerTableCFReplication, before and after their tables are set anew."""
    one, other = (
        chosen({b"C": (), b"B": (b"1", b"3")}),
        chosen({b"A": (), b"B": (b"1", b"2")}),
    )
    got = {table: [families(entry_of(table, "123"), peer) for peer in (one, other)] for table in (b"A", b"B", b"C")}
    assert got == {b"A": [None, "123"], b"B": ["13", "12"], b"C": ["123", None]}
    one, other = chosen({b"A": (b"1", b"2"), b"C": (b"2", b"3")}), chosen({b"B": (), b"C": (b"3",)})
    got = {table: [families(entry_of(table, "123"), peer) for peer in (one, other)] for table in (b"A", b"B", b"C")}
    assert got == {b"A": ["12", None], b"B": [None, "123"], b"C": ["23", "3"]}


def test_namespace_beside_a_table_of_another_namespace() -> None:
    first = chosen({}, b"ns1")
    assert families(entry_of(b"ns1:TA", "12"), first) == "12"
    assert shipped(entry_of(b"ns2:TB", "12"), first) is None
    second = chosen({b"ns1:TA": (b"1",)}, b"ns2")
    assert families(entry_of(b"ns1:TA", "12"), second) == "1"
    assert families(entry_of(b"ns2:TB", "12"), second) == "12"


@pytest.mark.parametrize("kind", [MarkerKind.COMPACTION, MarkerKind.BULK_LOAD, MarkerKind.START_FLUSH])
def test_markers_are_counted_for_serial_peers_and_never_sent(kind: MarkerKind) -> None:
    """A marker survives the entry filters without cells, also where its key has the scopes of its table."""
    marker = WalEntry("r", b"t", 7, 100, (), Marker(kind), scopes=((b"a", 1),))
    assert families(marker) == ""


def test_edit_that_has_passed_the_peer_does_not_go_back() -> None:
    assert shipped(entry_of(cluster_ids=(PEER,))) is None
    assert shipped(entry_of(cluster_ids=(OTHER, PEER))) is None


def test_source_adds_its_own_id_behind_those_that_the_edit_has_passed() -> None:
    own, foreign = shipped(entry_of()), shipped(entry_of(cluster_ids=(OTHER,)))
    assert own is not None
    assert foreign is not None
    assert own.key.cluster_ids == (HERE,)
    assert foreign.key.cluster_ids == (OTHER, HERE)


def test_packed_row_is_shipped_with_its_timestamps() -> None:
    row = packed(b"row", (Cell(b"a:p", 5, b"1"), Cell(b"a:q", 6, b"2")), 7)
    entry = WalEntry("r", b"t", 7, 100, (row,), scopes=((b"a", 1),), nonce=(3, 4))
    found = shipped(entry)
    assert found is not None
    assert [(key, cell.column, cell.timestamp) for key, cell in found.cells] == [
        (b"row", b"a:p", 5),
        (b"row", b"a:q", 6),
    ]
    assert found.key.nonce == (3, 4)
    assert families(entry._replace(scopes=((b"b", 1),))) == ""


def test_changed_scopes_of_a_table_hold_for_the_entries_written_since() -> None:
    """One file has entries of both: the entry's own scopes decide."""
    made = EntryFilter(ALL, cluster_id=HERE, peer_cluster_id=PEER)
    kept = [made.shipped(entry_of(families="ab", scopes=scopes)) for scopes in ("a", "ab", "a")]
    assert [len(one.cells) for one in kept if one is not None] == [1, 2, 1]
