"""``cluster.serve()`` and ``metaclient fake serve``: ports, the status page, and an end that leaves nothing behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import metaclient
from metaclient.errors import ConfigError, ConnectionClosed, RequestRefused, Unsupported
from metaclient.runtime import SimRuntime
from metaclient_fake import FakeCluster
from metaclient_fake.front.serving import Front, FrontLimits
from metaclient_fake.front.status_page import status_page
from tests.unit.fake_front.gateway_client import T2, WAIT_S, raw, rest_of, thrift2_client, wait_until


def fetched(url: str, path: str = "/", method: str = "GET") -> tuple[int, str, str]:
    request = urllib.request.Request(url + path, method=method)
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


# -- ports ---------------------------------------------------------------------------------------------------------


def test_ports_and_urls_are_told_by_the_front_and_by_the_cluster(cluster: FakeCluster, front: Front) -> None:
    assert (cluster.thrift1_port, cluster.thrift2_port, cluster.rpc_port, cluster.status_port) == (
        front.thrift1_port,
        front.thrift2_port,
        None,
        front.status_port,
    )
    assert front.thrift2_url == f"thrift2://127.0.0.1:{front.thrift2_port}"
    assert front.thrift1_url == f"thrift1://127.0.0.1:{front.thrift1_port}"
    assert set(front.addresses()) == {"thrift1", "thrift2", "status"}


def test_only_what_is_wanted_is_served() -> None:
    with FakeCluster(servers=1, meta_replicas=1) as cluster:
        front = cluster.serve(thrift1_port=None)
        assert (front.thrift1_port, front.thrift1_url, front.status_port) == (None, None, None)
        assert list(front.addresses()) == ["thrift2"]


def test_port_can_be_chosen_and_a_taken_one_leaves_nothing_behind() -> None:
    with FakeCluster(servers=1, meta_replicas=1) as one, FakeCluster(servers=1, meta_replicas=1) as other:
        taken, threads = one.serve(thrift2_port=None).thrift1_port, other.runtime.stats()["daemons"]
        with pytest.raises(ConfigError, match=f"thrift2 cannot listen at 127.0.0.1:{taken}"):
            other.serve(thrift2_port=taken)
        assert (other.front, other.thrift1_port) == (None, None)
        wait_until(other.runtime, lambda: other.runtime.stats()["daemons"] == threads, "the end of Thrift 1")
        other.serve()


@pytest.mark.parametrize("port", [-1, 65_536, "9090", 1.5, True])
def test_port_must_be_a_number_that_can_be_one(port: object) -> None:
    with FakeCluster(servers=1, meta_replicas=1) as cluster, pytest.raises(ConfigError, match="thrift2_port must be"):
        cluster.serve(thrift2_port=port)  # type: ignore[arg-type]  # that is the point


def test_cluster_is_served_once_at_a_time() -> None:
    with FakeCluster(servers=1, meta_replicas=1) as cluster:
        with cluster.serve() as front:
            with pytest.raises(RequestRefused, match="served already"):
                cluster.serve()
            with thrift2_client(front.thrift2_port) as client:
                client.listNamespaces()
        assert cluster.front is None
        cluster.serve()


def test_closing_the_cluster_closes_the_front_and_its_clients() -> None:
    cluster = FakeCluster(servers=1, meta_replicas=1)
    front = cluster.serve(status_port=0)
    port = front.thrift2_port
    with raw(port) as idle:
        cluster.close()
        assert rest_of(idle) == b""
    with pytest.raises(ConnectionRefusedError):
        raw(port)
    assert (cluster.thrift2_port, repr(front)) == (None, "Front(closed)")
    with pytest.raises(ConnectionClosed):
        cluster.serve()


def test_virtual_time_cannot_be_served() -> None:
    with SimRuntime(seed=1) as runtime, FakeCluster(servers=1, meta_replicas=1, runtime=runtime) as cluster:
        with pytest.raises(Unsupported, match="virtual time"):
            cluster.serve()
        assert cluster.front is None


def test_connections_are_limited() -> None:
    with FakeCluster(servers=1, meta_replicas=1) as cluster:
        front = cluster.serve(thrift1_port=None, limits=FrontLimits(connections_max=1))
        with thrift2_client(front.thrift2_port) as first:
            first.listNamespaces()
            with raw(front.thrift2_port) as second:
                assert rest_of(second) == b""
            assert first.listNamespaces() == ["default", "hbase"]
        assert front.stats()["thrift2"]["refused"] == 1


def test_gateway_takes_hbases_properties() -> None:
    """The client inside reads the primary of hbase:meta, as HBase's does, unless it is told to spread."""
    for properties, spreads in (({}, False), ({"hbase.locator.meta.replicas.mode": "LoadBalance"}, True)):
        with FakeCluster(servers=3, meta_replicas=3) as cluster:
            front = cluster.serve(thrift1_port=None, gateway=properties)
            with metaclient.connect(str(front.thrift2_url)) as connection:
                connection.create_table("t", {"cf": {}})
                cluster.wait_until_replicated(60)  # HBase's client believes a secondary that does not know the table
                before = cluster.meta_reads
                connection.table("t").row(b"r")
            grown = {at for at, reads in cluster.meta_reads.items() if reads > before.get(at, 0)}
            assert (bool(grown - {0}), 0 in grown) == (spreads, not spreads)


def test_scanners_end_with_their_lease_by_themselves() -> None:
    with FakeCluster(servers=1, meta_replicas=1) as cluster:
        front = cluster.serve(thrift1_port=None, limits=FrontLimits(scanner_lease_s=0.05))
        with metaclient.connect(str(front.thrift2_url)) as connection:
            connection.create_table("t", {"cf": {}})
        with thrift2_client(front.thrift2_port) as client:
            number = client.openScanner(b"t", T2.TScan())
            wait_until(cluster.runtime, lambda: front.stats()["thrift2"]["scanners"] == 0, "the end of the scanner")
            with pytest.raises(T2.TIllegalArgument, match="Invalid scanner Id"):
                client.getScannerRows(number, 1)


# -- the status page -----------------------------------------------------------------------------------------------


def test_status_page_for_people_and_for_programs(cluster: FakeCluster, front: Front, table: bytes) -> None:
    url = str(front.status_url)
    status, kind, text = fetched(url)
    assert (status, kind) == (200, "text/html; charset=utf-8")
    assert "metaclient" in text
    status, kind, text = fetched(url, "/watch.json")
    assert (status, kind) == (200, "application/json; charset=utf-8")
    assert json.loads(text)["addresses"]["thrift2"] == front.thrift2_url
    assert [one["name"] for one in json.loads(text)["servers"]] == cluster.servers()
    status, kind, text = fetched(url, "/status")
    assert (status, kind) == (200, "text/html; charset=utf-8")
    assert str(front.thrift2_url) in text
    assert "rs1" in text
    status, kind, text = fetched(url, "/status.json")
    assert (status, kind) == (200, "application/json; charset=utf-8")
    assert set(json.loads(text)) == set(cluster.status())


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [("/nope", "GET", 404), ("/", "POST", 403), ("/", "DELETE", 405), ("/", "HEAD", 200), ("/?x=1", "GET", 200)],
)
def test_status_page_answers_other_requests(front: Front, path: str, method: str, status: int) -> None:
    assert fetched(str(front.status_url), path, method)[0] == status


@pytest.mark.parametrize(
    ("request_", "status"),
    [(b"nonsense\r\n\r\n", b"400"), (b"GET / HTTP/1.1\r\nX: " + b"x" * 40_000, b"431"), (b"", b"")],
)
def test_status_page_survives_what_is_no_request(front: Front, request_: bytes, status: bytes) -> None:
    with raw(front.status_port) as client:
        client.sendall(request_)
        if not request_:
            client.shutdown(1)
        assert rest_of(client)[9:12] == status
    assert fetched(str(front.status_url))[0] == 200


def test_markup_in_names_is_shown_and_not_obeyed() -> None:
    page = status_page({"<b>": [{"a<": "<script>"}, {"b": 1}], "empty": {}}, {})
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


# -- the command ---------------------------------------------------------------------------------------------------


SITE = "<configuration><property><name>hbase.meta.replica.count</name><value>2</value></property></configuration>"


@pytest.mark.parametrize(
    ("ending", "given", "meta_replicas"),
    [
        (signal.SIGTERM, ["--meta-replicas", "1"], 1),
        (signal.SIGINT, [], 2),
    ],
    ids=["SIGTERM-option", "SIGINT-site file"],
)
def test_command_serves_the_replicas_of_its_file_until_it_is_told_to_end(
    ending: signal.Signals, given: list[str], meta_replicas: int, tmp_path: Path
) -> None:
    (tmp_path / "hbase-site.xml").write_text(SITE)
    options = ["--servers", "2", "--config", str(tmp_path), *given, "--json"]
    command = [sys.executable, "-m", "metaclient", "fake", "serve", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or lines[-1].rstrip() != "}":
            lines.append(process.stdout.readline())
            assert lines[-1], "it ended before it served"
        document = json.loads("".join(lines))
        with metaclient.connect(document["thrift2_url"]) as connection:
            connection.create_table("t", {"cf": {}})
            assert connection.tables() == [b"t"]
            assert len(connection.meta_replicas()) == document["meta_replicas"] == meta_replicas
        assert fetched(document["status_url"])[0] == 200
        process.send_signal(ending)
        said, complaints = process.communicate(timeout=WAIT_S)
    assert (process.returncode, said, complaints) == (0, "", "")
    with pytest.raises(ConnectionRefusedError):
        raw(document["thrift1_port"])
