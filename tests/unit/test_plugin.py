"""The pytest plugin of the installed package: a fake HBase in a test is one argument."""

from __future__ import annotations

import time

import happybase
import pytest

import metaclient
from metaclient.runtime import SimRuntime, ThreadRuntime
from metaclient.testing import FakeHBase, FakeHBaseServer, plugin

pytest_plugins = ["pytester"]


def test_fake_hbase_is_a_cluster_on_virtual_time(fake_hbase: FakeHBase) -> None:
    assert isinstance(fake_hbase.runtime, SimRuntime)
    assert len(fake_hbase.servers()) == 5
    with fake_hbase.connect() as connection:
        connection.create_table("t", {"cf": {}})
        connection.table("t").put(b"r", {b"cf:a": b"1"})
        assert connection.table("t").row(b"r") == {b"cf:a": b"1"}


def test_crash_of_a_server_takes_little_real_time(fake_hbase: FakeHBase) -> None:
    """docs/testing.md: "a crash test takes milliseconds". The bound is loose, because the machine may be busy."""
    begun, virtual = time.monotonic(), fake_hbase.runtime.now()
    with fake_hbase.connect() as connection:
        connection.create_table("t", {"cf": {}})
        connection.table("t").put(b"r", {b"cf:a": b"1"})
        fake_hbase.kill(connection.locate("t", b"r").server.host)
        assert connection.table("t").row(b"r") == {b"cf:a": b"1"}
    assert fake_hbase.runtime.now() - virtual > 5.0  # the session of the dead server had to expire
    assert time.monotonic() - begun < 5.0


@pytest.mark.fake_hbase(time="real", servers=3, meta_replicas=2, config={"zookeeper.session.timeout": "1000"})
def test_marker_chooses_the_cluster_of_a_test(fake_hbase: FakeHBase) -> None:
    assert isinstance(fake_hbase.runtime, ThreadRuntime)
    assert len(fake_hbase.servers()) == 3
    with fake_hbase.connect() as connection:
        assert len(connection.meta_replicas()) == 2


@pytest.mark.fake_hbase(time="real")
def test_sim_hbase_spends_no_real_time_on_a_virtual_hour(sim_hbase: FakeHBase) -> None:
    assert isinstance(sim_hbase.runtime, SimRuntime)
    with sim_hbase.connect() as connection:
        connection.create_table("t", {"cf": {}})
        connection.table("t").put(b"r", {b"cf:a": b"1"})
        begun = sim_hbase.runtime.now()
        sim_hbase.runtime.sleep(3600.0)
        assert sim_hbase.runtime.now() >= begun + 3600.0
        assert connection.table("t").row(b"r") == {b"cf:a": b"1"}


def test_url_is_for_programs_that_take_one(fake_hbase_url: str, fake_hbase_server: FakeHBaseServer) -> None:
    with metaclient.connect(fake_hbase_url) as connection:
        connection.create_table("t", {"cf": {}})
        connection.table("t").put(b"r", {b"cf:a": b"1"})
    with metaclient.connect(fake_hbase_server.rpc_url) as connection:
        assert connection.hbase_version() == "2.6.1"
        assert connection.table("t").row(b"r") == {b"cf:a": b"1"}
    host, _, port = fake_hbase_server.thrift1_url.removeprefix("thrift1://").partition(":")
    old = happybase.Connection(host, int(port))
    assert old.table("t").row(b"r") == {b"cf:a": b"1"}
    old.close()


def test_lookups_right_after_creation_leave_the_primary_alone(sim_hbase: FakeHBase) -> None:
    """README: healthy secondaries in turn, the primary last; also in the first second of a cluster's life."""
    with sim_hbase.connect() as connection:
        connection.create_table("t", {"cf": {}}, splits=[b"%03d" % number for number in range(1, 100)])
        for number in range(500):
            connection.locate("t", b"%03d" % (number % 100), reload=True)
        reads = connection.stats()["meta"]["reads_by_replica"]
        assert reads.get("0", 0) <= 5  # 1 %
        assert abs(reads["1"] - reads["2"]) <= 5


def test_options_of_the_command_line_choose_the_cluster(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_cluster(fake_hbase):
            assert len(fake_hbase.servers()) == 2
            assert type(fake_hbase.runtime).__name__ == "ThreadRuntime"
            with fake_hbase.connect() as connection:
                assert len(connection.meta_replicas()) == 1
        """
    )
    options = ("--fake-hbase-servers=2", "--fake-hbase-meta-replicas=1", "--fake-hbase-time=real")
    pytester.runpytest_inprocess("-p", "no:cacheprovider", *options).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("marker", "words"),
    [("server=3", "server is none of"), ("3", "3 is none of"), ("time='fast'", "time is 'virtual' or 'real'")],
)
def test_wrong_marker_says_what_is_right(pytester: pytest.Pytester, marker: str, words: str) -> None:
    pytester.makepyfile(f"import pytest\n@pytest.mark.fake_hbase({marker})\ndef test_cluster(fake_hbase): pass\n")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{words}*"])


def test_plain_installation_without_greenlet_gets_the_fixture_on_real_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert plugin._default_time() == "real"
    monkeypatch.undo()
    assert plugin._default_time() == "virtual"
