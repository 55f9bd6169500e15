"""Which peers a cluster refuses, and how HBase words it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from metaclient.errors import Disposition, RequestRefused
from metaclient.replication_peers import Peer, PeerConfig, PeerState
from metaclient_fake.config.replication import parse_base_config
from metaclient_fake.replication.peer_rules import (
    INTER_CLUSTER_ENDPOINT,
    KnownClasses,
    check_new_peer,
    check_other_cluster,
    check_removal,
    check_state_change,
    check_update,
    is_key_config_equal,
    merged_update,
    with_base_config,
)

KEY = "west:2181:/hbase"
PLAIN = PeerConfig(cluster_key=KEY)
SELECTED = PeerConfig(cluster_key=KEY, replicate_all=False)
CUSTOM = "org.example.KafkaEndpoint"
KNOWN = KnownClasses(endpoints=frozenset({INTER_CLUSTER_ENDPOINT, CUSTOM}))
DO_NOT_RETRY = "org.apache.hadoop.hbase.DoNotRetryIOException"
NOT_FOUND = "org.apache.hadoop.hbase.ReplicationPeerNotFoundException"


def peers(config: PeerConfig = PLAIN, state: PeerState = PeerState.ENABLED) -> dict[str, Peer]:
    return {"cdc": Peer("cdc", state, config)}


def refusal_of_new(config: PeerConfig, peer_id: str = "new") -> str:
    with pytest.raises(RequestRefused) as caught:
        check_new_peer(peer_id, config, peers(), KNOWN)
    assert caught.value.detail == DO_NOT_RETRY
    assert caught.value.disposition is Disposition.FATAL
    return str(caught.value)


def test_a_second_peer_of_the_same_id_is_refused() -> None:
    assert refusal_of_new(PLAIN, "cdc") == "Replication peer cdc already exists"


def test_an_unknown_peer_is_not_found_by_any_change() -> None:
    changes: list[Callable[[], Peer]] = [
        lambda: check_removal("nope", peers()),
        lambda: check_state_change("nope", PeerState.ENABLED, peers()),
        lambda: check_update("nope", PLAIN, peers()),
    ]
    for change in changes:
        with pytest.raises(RequestRefused, match="Replication peer nope does not exist") as caught:
            change()
        assert caught.value.detail == NOT_FOUND


def test_a_dash_in_an_id_would_make_its_queues_look_recovered() -> None:
    assert refusal_of_new(PLAIN, "a-b") == "Found invalid peer name: a-b"


@pytest.mark.parametrize("peer_id", ["", "a/b", ".", ".."])
def test_an_id_that_is_no_node_name_is_refused(peer_id: str) -> None:
    assert refusal_of_new(PLAIN, peer_id).startswith("Found invalid peer name: ")


@pytest.mark.parametrize(
    "key",
    [
        "",
        "nonsense",
        "west",
        "west:2181",
        "west:2181:",
        "west:2181:hbase",
        "west:2181:/",
        "west:2181:/a/",
        "west:x:/a",
        ":2181:/a",
    ],
)
def test_a_bad_cluster_key_is_refused(key: str) -> None:
    assert refusal_of_new(PeerConfig(cluster_key=key)) == f"Invalid cluster key: {key}"


@pytest.mark.parametrize("key", [KEY, "a,b,c:2181:/hbase", "a:1,b:2:2181:/hbase/deep", "a:1,b:2181:/hbase"])
def test_a_cluster_key_with_a_port_per_host_is_accepted(key: str) -> None:
    check_new_peer("new", PeerConfig(cluster_key=key), {})


def test_another_endpoint_takes_any_cluster_key() -> None:
    check_new_peer("new", PeerConfig(cluster_key="anything", endpoint=CUSTOM), {}, KNOWN)
    assert refusal_of_new(PeerConfig(cluster_key="anything", endpoint=INTER_CLUSTER_ENDPOINT)).startswith("Invalid")


def test_an_endpoint_that_cannot_be_loaded_is_refused() -> None:
    text = refusal_of_new(PeerConfig(cluster_key=KEY, endpoint="org.example.Gone"))
    assert text == "Can not instantiate configured replication endpoint class=org.example.Gone"


def test_enabling_twice_and_disabling_twice_are_refused() -> None:
    with pytest.raises(RequestRefused, match=r"^Replication peer cdc has already been enabled$"):
        check_state_change("cdc", PeerState.ENABLED, peers())
    with pytest.raises(RequestRefused, match=r"^Replication peer cdc has already been disabled$"):
        check_state_change("cdc", PeerState.DISABLED, peers(state=PeerState.DISABLED))
    assert check_state_change("cdc", PeerState.DISABLED, peers()).id == "cdc"


def test_the_cluster_key_of_a_peer_cannot_change() -> None:
    with pytest.raises(RequestRefused) as caught:
        check_update("cdc", replace(PLAIN, cluster_key="east:2181:/hbase"), peers())
    assert str(caught.value) == (
        "Changing the cluster key on an existing peer is not allowed. Existing key 'west:2181:/hbase' for peer cdc "
        "does not match new key 'east:2181:/hbase'"
    )


@pytest.mark.parametrize(("old", "new"), [(None, CUSTOM), (CUSTOM, None), (CUSTOM, INTER_CLUSTER_ENDPOINT)])
def test_the_endpoint_of_a_peer_cannot_change_nor_come_nor_go(old: str | None, new: str | None) -> None:
    with pytest.raises(RequestRefused) as caught:
        check_update("cdc", replace(PLAIN, endpoint=new), peers(replace(PLAIN, endpoint=old)), KNOWN)
    assert str(caught.value) == (
        "Changing the replication endpoint implementation class on an existing peer is not allowed. Existing class "
        f"'{old or 'null'}' for peer cdc does not match new class '{new or 'null'}'"
    )


def test_no_endpoint_and_an_empty_one_are_the_same() -> None:
    check_update("cdc", replace(PLAIN, endpoint=""), peers())


def test_a_folder_for_synchronous_replication_is_refused() -> None:
    assert "synchronous replication" in refusal_of_new(replace(PLAIN, remote_wal_dir="hdfs://a/b"))


@pytest.mark.parametrize("extra", [{"namespaces": frozenset({b"n"})}, {"tables": {b"t": ()}}])
def test_all_tables_and_a_selection_contradict_each_other(extra: dict[str, object]) -> None:
    expected = "Need clean namespaces or table-cfs config firstly when you want replicate all cluster"
    assert refusal_of_new(replace(PLAIN, **extra)) == expected  # type: ignore[arg-type]  # fields of PeerConfig


@pytest.mark.parametrize("extra", [{"exclude_namespaces": frozenset({b"n"})}, {"exclude_tables": {b"t": ()}}])
def test_excludes_without_all_tables_contradict_each_other(extra: dict[str, object]) -> None:
    expected = "Need clean exclude-namespaces or exclude-table-cfs config firstly when replicate_all flag is false"
    assert refusal_of_new(replace(SELECTED, **extra)) == expected  # type: ignore[arg-type]  # fields of PeerConfig


@pytest.mark.parametrize(("table", "namespace"), [(b"n:t", b"n"), (b"t", b"default")])
def test_a_table_beside_its_own_namespace_is_refused(table: bytes, namespace: bytes) -> None:
    names = f"Table-cfs {table.decode()} is conflict with namespaces {namespace.decode()} in peer config"
    tables, namespaces = {table: (b"f",), b"other:t": ()}, frozenset({namespace, b"third"})
    assert refusal_of_new(replace(SELECTED, tables=tables, namespaces=namespaces)) == names
    assert refusal_of_new(replace(PLAIN, exclude_tables=tables, exclude_namespaces=namespaces)) == names
    with pytest.raises(RequestRefused, match="is conflict with"):
        check_update("cdc", replace(SELECTED, tables=tables, namespaces=namespaces), peers())
    check_new_peer("new", replace(SELECTED, tables={b"other:t": ()}, namespaces=namespaces), {})


def test_an_entry_filter_that_cannot_be_created_is_refused_at_add_and_update() -> None:
    filters = "org.apache.hadoop.hbase.replication.ScopeWALEntryFilter,org.example.Gone"
    config = replace(PLAIN, configuration={"hbase.replication.source.custom.walentryfilters": filters})
    expected = "Configured WALEntryFilter org.example.Gone could not be created. Failing add/update peer operation."
    assert refusal_of_new(config) == expected
    with pytest.raises(RequestRefused, match=r"org\.example\.Gone"):
        check_update("cdc", config, peers())


def test_a_peer_that_is_the_cluster_itself_is_refused() -> None:
    check_other_cluster(PLAIN, "id-2", "id-1")
    check_other_cluster(PLAIN, None, "id-1")
    with pytest.raises(RequestRefused) as caught:
        check_other_cluster(PLAIN, "id-1", "id-1")
    assert str(caught.value) == (
        "Invalid cluster key: west:2181:/hbase, should not replicate to itself for HBaseInterClusterReplicationEndpoint"
    )


def test_an_update_cannot_remove_a_setting_of_the_configuration() -> None:
    old = replace(PLAIN, configuration={"a": "1", "b": "2"}, bandwidth=5)
    new = merged_update(old, replace(PLAIN, configuration={"b": "3"}))
    assert (dict(new.configuration), new.bandwidth) == ({"a": "1", "b": "3"}, 0)


@pytest.mark.parametrize(
    ("change", "is_equal"),
    [
        ({"bandwidth": 5}, True),
        ({"configuration": {"replication.source.ratio": "1"}}, True),
        ({"serial": True}, False),
        ({"tables": {b"t": (b"f",)}}, False),
        ({"namespaces": frozenset({b"n"})}, False),
        ({"exclude_tables": {b"t": ()}}, False),
        ({"exclude_namespaces": frozenset({b"n"})}, False),
        ({"replicate_all": False}, False),
    ],
)
def test_only_what_decides_the_entries_recreates_sources(change: dict[str, object], is_equal: bool) -> None:
    assert is_key_config_equal(PLAIN, replace(PLAIN, **change)) is is_equal  # type: ignore[arg-type]  # fields


def test_the_order_of_families_recreates_no_source() -> None:
    one, other = ({b"t": (b"a", b"b")}, {b"t": (b"b", b"a")})
    assert is_key_config_equal(replace(SELECTED, tables=one), replace(SELECTED, tables=other))


def test_base_config_wins_and_an_empty_value_removes() -> None:
    config = replace(PLAIN, configuration={"k": "user", "gone": "1", "kept": "2"})
    made = with_base_config(config, parse_base_config(" k = base; gone= ;;new=3"))
    assert dict(made.configuration) == {"k": "base", "kept": "2", "new": "3"}
    assert with_base_config(config, {"never": ""}) is config


@pytest.mark.parametrize("text", ["k", "=v", "a=1;b"])
def test_a_base_config_that_is_no_list_of_settings_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is k=v;k=v"):
        parse_base_config(text)
