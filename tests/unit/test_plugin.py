"""The pytest plugin of the installed package: a fake HBase in a test is one argument."""

from __future__ import annotations

from metaclient.runtime import SimRuntime, ThreadRuntime
from metaclient_fake import FakeCluster


def test_fake_hbase_is_a_cluster_on_real_threads(fake_hbase: FakeCluster) -> None:
    assert isinstance(fake_hbase.runtime, ThreadRuntime)
    with fake_hbase.connect() as connection:
        connection.create_table("t", {"cf": {}})
        connection.table("t").put(b"r", {b"cf:a": b"1"})
        assert connection.table("t").row(b"r") == {b"cf:a": b"1"}


def test_sim_hbase_spends_no_real_time_on_a_virtual_hour(sim_hbase: FakeCluster) -> None:
    assert isinstance(sim_hbase.runtime, SimRuntime)
    with sim_hbase.connect() as connection:
        connection.create_table("t", {"cf": {}})
        connection.table("t").put(b"r", {b"cf:a": b"1"})
        begun = sim_hbase.runtime.now()
        sim_hbase.runtime.sleep(3600.0)
        assert sim_hbase.runtime.now() >= begun + 3600.0
        assert connection.table("t").row(b"r") == {b"cf:a": b"1"}


def test_lookups_right_after_creation_leave_the_primary_alone(sim_hbase: FakeCluster) -> None:
    """README: healthy secondaries in turn, the primary last; also in the first second of a cluster's life."""
    with sim_hbase.connect() as connection:
        connection.create_table("t", {"cf": {}}, splits=[b"%03d" % number for number in range(1, 100)])
        for number in range(500):
            connection.locate("t", b"%03d" % (number % 100), reload=True)
        reads = connection.stats()["meta"]["reads_by_replica"]
        assert reads.get("0", 0) <= 5  # 1 %
        assert abs(reads["1"] - reads["2"]) <= 5
