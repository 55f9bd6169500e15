"""Families that replication does not ship are left out of a comparison with a peer, and the report names them."""

from __future__ import annotations

import pytest

from metaclient.errors import ConfigError, NoSuchFamily
from metaclient.model import FamilyDescriptor, TableDescriptor
from metaclient.replication_peers import Peer, PeerConfig, PeerState
from metaclient.verification.selection import Selection, select_families, url_of_peer


def table(*scopes: int, name: bytes = b"ns:t") -> TableDescriptor:
    """A table with the families a, b, c ... of these scopes."""
    return TableDescriptor(
        name, tuple(FamilyDescriptor(bytes([97 + at]), replication_scope=scope) for at, scope in enumerate(scopes))
    )


def peer(**config: object) -> Peer:
    return Peer("1", PeerState.ENABLED, PeerConfig(cluster_key="zk:2181:/west", **config))  # type: ignore[arg-type]


def test_scope_0_is_left_out_for_a_peer_with_a_sentence() -> None:
    found = select_families(table(1, 0, 2), table(1, 0, 2), peer=peer())
    assert found == Selection(
        (b"a",), ("not compared: family b has replication scope 0, family c has replication scope 2",)
    )


@pytest.mark.parametrize(
    ("config", "families"),
    [
        ({}, (b"a", b"b")),
        ({"exclude_tables": {b"ns:t": (b"a",)}}, (b"b",)),
        ({"replicate_all": False, "tables": {b"ns:t": (b"b",)}}, (b"b",)),
        ({"replicate_all": False, "tables": {b"ns:t": ()}}, (b"a", b"b")),
        ({"replicate_all": False, "namespaces": {b"ns"}}, (b"a", b"b")),
    ],
    ids=str,
)
def test_families_that_the_peer_does_not_select_are_left_out(config: dict[str, object], families: object) -> None:
    found = select_families(table(1, 1), table(1, 1), peer=peer(**config))
    assert found.families == families
    assert all("is not selected by peer '1'" in note for note in found.notes)


@pytest.mark.parametrize(
    ("config", "scopes", "reason"),
    [
        ({}, (0,), "family a has replication scope 0"),
        ({"exclude_namespaces": {b"ns"}}, (1,), "family a is not selected by peer '1'"),
        ({"replicate_all": False, "tables": {b"other": ()}}, (1,), "family a is not selected by peer '1'"),
    ],
    ids=str,
)
def test_a_peer_that_gets_nothing_is_an_error_and_not_an_equal_table(
    config: dict[str, object], scopes: tuple[int, ...], reason: str
) -> None:
    with pytest.raises(ConfigError, match=f"peer '1' gets nothing of table 'ns:t': {reason}"):
        select_families(table(*scopes), table(*scopes), peer=peer(**config))


def test_families_that_are_given_are_compared_even_if_they_are_not_shipped() -> None:
    found = select_families(table(1, 0), table(1, 0), [b"b"], peer=peer())
    assert found == Selection((b"b",), ("peer '1' does not get family b, which the arguments name",))


def test_without_a_peer_all_are_compared_and_unshipped_ones_are_named() -> None:
    assert select_families(table(1, 0), table(1, 0)) == Selection(
        (), ("replication does not ship family b (scope 0): give families or a peer id",)
    )
    assert select_families(table(0, 0), table(0, 0)) == Selection()  # nothing is replicated: two copies are compared
    assert select_families(table(1, 0), table(1, 0), is_other_cluster=False) == Selection()


def test_missing_families_are_refused_before_anything_is_read() -> None:
    with pytest.raises(ConfigError, match="table 'ns:t' has no family 'x'; it has a, b"):
        select_families(table(1, 0), table(1, 0), [b"x"])
    with pytest.raises(NoSuchFamily, match="table 'u' of the peer has no family 'b'; it has a"):
        select_families(table(1, 1), table(1, name=b"u"), peer=peer())


def test_the_address_of_a_peer_in_each_form_of_hbase() -> None:
    def url(key: str) -> str:
        return url_of_peer(Peer("1", PeerState.ENABLED, PeerConfig(cluster_key=key)))

    assert url("zk1,zk2:2181:/hbase") == "hbase://zk1:2181,zk2:2181/hbase"
    assert url("zk1:2182,zk2:2183:2181:/west") == "hbase://zk1:2182,zk2:2183/west"
    assert url("hbase+zk://zk1:2181,zk2:2181/hbase") == "hbase://zk1:2181,zk2:2181/hbase"
    assert url("hbase+rpc://m1:16000,m2:16000") == "hbase+rpc://m1:16000,m2:16000"
    with pytest.raises(ConfigError, match="not a cluster key"):
        url("nonsense")
    with pytest.raises(ConfigError, match=r"names no cluster, only the endpoint org\.Kafka"):
        url_of_peer(Peer("1", PeerState.ENABLED, PeerConfig(endpoint="org.Kafka")))
