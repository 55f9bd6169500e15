"""Two clusters on one virtual clock: what replication has shipped is equal, and everything else is found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

import metaclient
from metaclient import Connection, VerificationReport, verify_replication
from metaclient.errors import ConfigError, NoSuchFamily, RequestRefused, ServerUnreachable, TableNotFound
from metaclient.runtime import SimRuntime
from metaclient.verification import table_check
from metaclient_fake import FakeCluster

PEER = "1"
FAMILIES: dict[str, dict[str, Any]] = {
    "cf": {"replication_scope": 1, "max_versions": 5},
    "local": {"replication_scope": 0},
}


@dataclass
class Clusters:
    """Two clusters, whose regions of table ``t`` have different boundaries, and a client of each."""

    runtime: SimRuntime
    east: FakeCluster
    west: FakeCluster
    here: Connection
    there: Connection

    def verify(self, **options: Any) -> VerificationReport:
        return verify_replication(self.here, "t", **{"peer": self.there, **options})

    def ship(self) -> None:
        self.runtime.sleep(30.0)


@pytest.fixture
def clusters() -> Iterator[Clusters]:
    with (
        SimRuntime(seed=5) as runtime,
        FakeCluster(servers=2, runtime=runtime, name="east") as east,
        FakeCluster(servers=2, network=east.network, name="west") as west,
        east.connect() as here,
        west.connect() as there,
    ):
        here.create_table("t", FAMILIES, splits=[b"r3", b"r6"])
        there.create_table("t", FAMILIES, splits=[b"r1", b"r45", b"r9"])
        yield Clusters(runtime, east, west, here, there)


@pytest.fixture
def shipped(clusters: Clusters) -> Clusters:
    """Ten rows with both families are written in the east, and shipped to the west."""
    clusters.east.replication.add(PEER, clusters.west.cluster_key)
    for number in range(10):
        clusters.here.table("t").put(b"r%d" % number, {b"cf:a": b"%d" % number, b"local:a": b"x"})
    clusters.ship()
    return clusters


def test_shipped_rows_are_equal_and_families_of_scope_0_are_left_out(shipped: Clusters) -> None:
    report = shipped.verify(peer_id=PEER)
    assert report.counters == {
        "GOODROWS": 10,
        "BADROWS": 0,
        "ONLY_IN_SOURCE_TABLE_ROWS": 0,
        "ONLY_IN_PEER_TABLE_ROWS": 0,
        "CONTENT_DIFFERENT_ROWS": 0,
    }
    assert report.is_equal
    assert report.families == ("cf",)
    assert report.notes == ("not compared: family local has replication scope 0",)


def test_without_the_peer_id_families_of_scope_0_differ_and_the_note_says_why(shipped: Clusters) -> None:
    report = shipped.verify()
    assert (report.content_different, report.samples[0].detail is not None) == (10, True)
    assert "replication does not ship family local" in report.notes[0]


def test_each_planted_difference_is_found_once_whatever_the_regions(shipped: Clusters) -> None:
    west = shipped.there.table("t")
    for row in (b"q", b"r30", b"r99", b"z"):  # before the first row, between, after the last row of a side
        west.put(row, {b"cf:a": b"more"})
    west.delete(b"r3")  # the first row of a region of the source
    west.delete(b"r9")  # the last row of the source, the first of a region of the peer
    west.put(b"r45", {b"cf:a": b"more"})  # the first row of a region of the peer alone
    west.put(b"r5", {b"cf:a": b"other"})
    report = shipped.verify(peer_id=PEER)
    assert {(one.verdict.name, one.row) for one in report.samples} == {
        ("ONLY_IN_SOURCE", b"r3"),
        ("ONLY_IN_SOURCE", b"r9"),
        ("CONTENT_DIFFERENT", b"r5"),
        *(("ONLY_IN_PEER", row) for row in (b"q", b"r30", b"r45", b"r99", b"z")),
    }
    assert (report.good, report.bad) == (7, 8)


def test_samples_are_bounded_and_counters_are_not(shipped: Clusters) -> None:
    for number in range(10):
        shipped.there.table("t").delete(b"r%d" % number)
    report = shipped.verify(peer_id=PEER, samples=3)
    assert (report.only_in_source, [one.row for one in report.samples]) == (10, [b"r0", b"r1", b"r2"])
    assert "... and 7 more rows" in repr(report)
    assert report.as_dict()["counters"]["BADROWS"] == 10
    assert len(report.as_dict()["differences"]) == 3


def test_ranges_prefixes_and_times_choose_what_is_compared(shipped: Clusters) -> None:
    verify = partial(shipped.verify, peer_id=PEER)
    assert verify(startrow="r2", stoprow=b"r5").good == 3
    assert verify(row_prefixes=["r1", b"r7", "r"]).good == 10
    assert verify(row_prefixes=["r1", b"r7"]).good == 2
    assert verify(row_prefixes=["r"], startrow="r8").good == 2
    now = shipped.runtime.time_ms()
    shipped.here.table("t").put(b"late", {b"cf:a": b"1"}, timestamp=now + 1000)
    assert verify(endtime=now).is_equal
    assert verify(starttime=now).bad == 1


def test_versions_are_compared_as_many_as_are_asked_for(shipped: Clusters) -> None:
    for connection in (shipped.here, shipped.there):
        connection.table("t").put(b"v", {b"cf:a": b"new"}, timestamp=20)
    shipped.here.table("t").put(b"v", {b"cf:a": b"old"}, timestamp=10)
    assert shipped.verify(families=["cf"], row_prefixes=["v"]).is_equal
    found = shipped.verify(families=["cf"], row_prefixes=["v"], versions=5)
    assert found.samples[0].detail == "cf:a at 10 is only in the source"


def test_deletes_are_compared_only_by_raw(clusters: Clusters) -> None:
    for connection in (clusters.here, clusters.there):
        connection.table("t").put(b"r", {b"cf:a": b"1"}, timestamp=10)
        connection.table("t").delete(b"r", [b"cf:a"], timestamp=20)
    clusters.here.table("t").delete(b"s", [b"cf:a"], timestamp=30)
    assert clusters.verify().counters["BADROWS"] == 0
    report = clusters.verify(raw=True, families=["cf"])
    assert (report.good, report.only_in_source) == (1, 1)
    again = clusters.verify(raw=True, families=["cf"], recompare_s=1.0)  # gets have no delete markers, scans have
    assert (again.good, again.only_in_source) == (1, 1)


def test_a_raw_comparison_of_shipped_deletes_is_equal(shipped: Clusters) -> None:
    table = shipped.here.table("t")
    table.delete(b"r1", [b"cf:a"])
    table.delete(b"r2")
    table.put(b"r3", {b"cf:a": b"again"})
    shipped.ship()
    report = shipped.verify(peer_id=PEER, raw=True)
    assert (report.good, report.bad) == (10, 0)


def test_rows_that_are_late_are_good_after_the_pause(shipped: Clusters) -> None:
    shipped.east.replication.disable(PEER)
    shipped.here.table("t").put(b"late", {b"cf:a": b"1"})
    assert shipped.verify(peer_id=PEER).only_in_source == 1
    shipped.east.replication.enable(PEER)
    report = shipped.verify(peer_id=PEER, recompare_s=5.0, recompare_tries=6)
    assert report.is_equal
    assert report.counters["RECOMPARES"] == report.counters["FAILED_RECOMPARE"] + 1


def test_another_table_of_the_same_cluster(clusters: Clusters) -> None:
    clusters.here.create_table("u", {"cf": {}})
    clusters.here.table("u").put(b"r", {b"cf:a": b"1"})
    report = verify_replication(clusters.here, "t", peer_table="u")
    assert (report.only_in_peer, report.notes) == (1, ())


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"peer": None}, ConfigError, "nothing to compare with"),
        ({"peer": None, "peer_table": "t"}, ConfigError, "the same table of the same cluster"),
        ({"peer_id": "nosuch"}, RequestRefused, "nosuch"),
        ({"peer_table": "nosuch"}, TableNotFound, "nosuch"),
        ({"peer_table": "other"}, NoSuchFamily, "of the peer has no family 'cf'"),
        ({"families": ["x"]}, ConfigError, "has no family 'x'"),
        ({"families": "cf"}, TypeError, "families"),
        ({"row_prefixes": "cf"}, TypeError, "row_prefixes"),
        ({"row_prefixes": [""]}, ConfigError, "empty prefix"),
        ({"startrow": "b", "stoprow": "a"}, ConfigError, "before stoprow"),
        ({"starttime": 5, "endtime": 5}, ConfigError, "after starttime"),
        ({"versions": 0}, ConfigError, "versions must be"),
        ({"recompare_tries": 2}, ConfigError, "need recompare_s"),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused_before_a_row_is_read(
    clusters: Clusters, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    clusters.there.create_table("other", {"x": {}})
    with pytest.raises(error, match=message):
        clusters.verify(**{"families": ["cf"], **options})


def test_a_cluster_key_that_leads_nowhere_is_named(clusters: Clusters, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(url: str, **_: Any) -> Connection:
        raise ServerUnreachable(f"no ZooKeeper can be reached at {url}")

    monkeypatch.setattr(table_check, "connect", refuse)
    clusters.east.replication.add(PEER, clusters.west.cluster_key)
    with pytest.raises(ConfigError, match=r"'west:2181:/hbase', and no cluster answers.*hbase://west:2181/hbase"):
        clusters.verify(peer=None, peer_id=PEER)


def test_peers_cannot_be_read_from_a_gateway() -> None:
    with FakeCluster(servers=1, meta_replicas=1) as cluster:
        cluster.serve(thrift1_port=None)
        with metaclient.connect(f"thrift2://127.0.0.1:{cluster.thrift2_port}") as connection:
            connection.create_table("t", {"cf": {}})
            with pytest.raises(metaclient.Unsupported, match="hbase://"):
                verify_replication(connection, "t", peer_id=PEER)
