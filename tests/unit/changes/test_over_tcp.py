"""A consumer in the place of another process: ZooKeeper, HBase's RPC and sockets between it and the fake cluster."""

import contextlib
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import metaclient
from metaclient import Connection
from metaclient.changes import Subscriptions
from metaclient.errors import ConfigError, MetaClientError, RequestRefused, Unsupported
from metaclient.runtime import ThreadRuntime
from metaclient.testing import FakeCluster
from metaclient.wire import publication
from metaclient.wire.exposure import ListenerProtection
from metaclient.wire.rpc import framing
from metaclient.wire.rpc.receiving import Delivery, DeliveryServer
from metaclient.wire.rpc.replication import CODEC_WITH_TAGS, REPLICATE_WAL_ENTRY
from tests.unit.certificates import make_certificates
from tests.unit.changes.spooled import rows_in
from tests.unit.replication.zookeeper_server import CREATE, DELETE, ZooKeeperServer

pytest.importorskip("kazoo")

#: Generous: a busy machine is not a fault.
WAIT_S = 60.0
SOON = {"peer_replication_retry_pause_s": 0.02, "peer_replication_retry_multiplier_max": 2}


@pytest.fixture
def runtime() -> Iterator[ThreadRuntime]:
    with ThreadRuntime(name="test") as made:
        yield made


@pytest.fixture
def zookeeper(runtime: ThreadRuntime) -> Iterator[ZooKeeperServer]:
    made = ZooKeeperServer(runtime)
    yield made
    made.close()


@pytest.fixture
def url(zookeeper: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A fake cluster that is served and published; as far as a client can tell, it is an HBase."""
    monkeypatch.setattr(publication, "PERIOD_S", 0.02)
    with FakeCluster(servers=2, meta_replicas=1, config=SOON) as cluster:
        key = zookeeper.key("/hbase")
        cluster.serve(thrift1_port=None, thrift2_port=None, rpc_port=0).publish(key)
        yield f"hbase://{key.rpartition(':')[0]}/hbase"


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    with metaclient.connect(url) as made:
        made.create_table("t", {"d": {"replication_scope": 1}})
        yield made


def rs_nodes(zookeeper: ZooKeeperServer, peer: str) -> list[str]:
    path = f"/metaclient-changes/{peer}/rs"
    return list(zookeeper.nodes.children(path)) if zookeeper.nodes.exists(path) else []


def test_changes_reach_a_process_outside(zookeeper: ZooKeeperServer, connection: Connection) -> None:
    with connection.changes("t", name="my-index") as changes:
        assert len(rs_nodes(zookeeper, "my_index")) == 1
        connection.table("t").put(b"a", {b"d:q": b"1"})
        change = changes.poll(WAIT_S)
        assert change is not None
        assert (change.row, change.cells[0].value) == (b"a", b"1")
        assert changes.stats()["sources"] >= 1
    assert rs_nodes(zookeeper, "my_index") == []  # close() has removed it, not the end of the session
    Subscriptions(connection).remove("my-index")
    assert not zookeeper.nodes.exists("/metaclient-changes/my_index")


def test_session_that_is_lost_is_replaced_and_the_worker_published_again(
    runtime: ThreadRuntime, zookeeper: ZooKeeperServer, connection: Connection
) -> None:
    with connection.changes("t", name="n") as changes:
        zookeeper.break_off()
        until = runtime.now() + WAIT_S
        while not rs_nodes(zookeeper, "n"):
            assert runtime.now() < until
            runtime.sleep(0.01)
        connection.table("t").put(b"a", {b"d:q": b"1"})
        assert changes.poll(WAIT_S) is not None


def test_address_that_cannot_be_listened_at_leaves_no_subscription(
    zookeeper: ZooKeeperServer, connection: Connection
) -> None:
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1"):
        connection.changes("t", name="n", bind="192.0.2.1", allow_insecure=True)
    assert connection.replication.list() == []
    assert not zookeeper.nodes.exists("/metaclient-changes/n")


@pytest.mark.parametrize("where", [{"host": "worker.example"}, {"bind": "0.0.0.0"}, {"host": "::"}])
def test_receiver_for_other_machines_needs_certificates_or_the_permission(
    connection: Connection, zookeeper: ZooKeeperServer, where: dict[str, str]
) -> None:
    """Docs: "Servers of this library listen at loopback addresses"."""
    with pytest.raises(ConfigError, match=r"without TLS \(cert\) and client certificates.*--allow-insecure"):
        connection.changes("t", name="n", **where)
    assert connection.replication.list() == []
    assert not zookeeper.nodes.exists("/metaclient-changes/n")


def test_command_refuses_to_listen_for_other_machines(connection: Connection, url: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "metaclient", "changes", "receive", "t", "--name", "lake", "--worker", "w"]
    command += ["--spool", str(tmp_path), "--url", url, "--host", "0.0.0.0"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert ran.returncode == 1
    assert "--allow-insecure" in ran.stderr
    assert connection.replication.list() == []


def test_permitted_receiver_listens_for_other_machines(
    connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    with connection.changes("t", name="n", host="127.0.0.1", bind="0.0.0.0", allow_insecure=True) as changes:
        connection.table("t").put(b"a", {b"d:q": b"1"})
        assert changes.poll(WAIT_S) is not None
    assert "the receiver of changes listens for other machines at 0.0.0.0 without TLS" in caplog.text


def test_node_of_another_program_is_not_overwritten(zookeeper: ZooKeeperServer, connection: Connection) -> None:
    zookeeper.nodes.create("/metaclient-changes/n/hbaseid", b"something else", make_parents=True)
    with pytest.raises(RequestRefused, match="another program"):
        connection.changes("t", name="n")
    assert connection.replication.list() == []
    assert zookeeper.nodes.get("/metaclient-changes/n/hbaseid").data == b"something else"


NO_AUTH, NO_SASL, UNIMPLEMENTED, NONSENSE = -102, -124, -6, -999


@pytest.mark.parametrize(
    ("at", "code", "text"),
    [
        ("", NO_AUTH, "NoAuthError; a subscription to changes writes nodes there.*ACL"),
        ("/hbaseid", NO_AUTH, "NoAuthError; a subscription to changes writes nodes there.*ACL"),
        ("/rs", NO_AUTH, "NoAuthError; a subscription to changes writes nodes there.*ACL"),
        ("/rs/", NO_AUTH, "NoAuthError; publishing a cluster in ZooKeeper writes nodes there.*ACL"),
        ("/hbaseid", NO_SASL, "authenticate by SASL: a subscription to changes writes nodes there"),
        ("/rs", UNIMPLEMENTED, "ZooKeeper at .*UnimplementedError"),
    ],
)
def test_answer_of_zookeeper_that_is_an_error_is_reported_and_leaves_nothing_behind(
    zookeeper: ZooKeeperServer, connection: Connection, at: str, code: int, text: str
) -> None:
    """ "Bad input: a wrong answer from ZooKeeper ... each a clear error, nothing left behind"."""
    refused = f"/metaclient-changes/n{at}"

    def refuse(kind: int, path: str) -> int:
        return code if kind == CREATE and (path == refused or (at == "/rs/" and path.startswith(refused))) else 0

    zookeeper.refuse = refuse
    with pytest.raises(MetaClientError, match=text) as caught:
        connection.changes("t", name="n")
    assert "hbase+rpc" not in str(caught.value)  # there are no changes without ZooKeeper
    assert connection.replication.list() == []
    assert not zookeeper.nodes.exists("/metaclient-changes/n")
    zookeeper.refuse = lambda kind, path: 0
    with connection.changes("t", name="n") as changes:
        connection.table("t").put(b"a", {b"d:q": b"1"})
        assert changes.poll(WAIT_S) is not None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # kazoo's thread ends so
def test_answer_of_zookeeper_that_is_no_answer_ends_at_the_deadline_and_leaves_nothing_behind(
    zookeeper: ZooKeeperServer, connection: Connection, url: str
) -> None:
    """kazoo reads nothing more from a server whose error code it does not know."""
    zookeeper.refuse = lambda kind, path: NONSENSE if (kind, path) == (CREATE, "/metaclient-changes/n/rs") else 0
    with (
        metaclient.connect(url, operation_timeout_s=3) as impatient,
        pytest.raises(MetaClientError, match=r"ZooKeeper at .* did not return /metaclient-changes/n/rs in time"),
    ):
        impatient.changes("t", name="n")
    assert connection.replication.list() == []
    assert not zookeeper.nodes.exists("/metaclient-changes/n")


def test_first_error_is_reported_when_the_subscription_cannot_be_removed_either(
    zookeeper: ZooKeeperServer, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """ZooKeeper allows to make a subscription, and neither a worker nor the removal of its nodes."""
    forbidden = "/metaclient-changes/n/rs"

    def refuse(kind: int, path: str) -> int:
        if kind == CREATE and path.startswith(f"{forbidden}/"):
            return NO_AUTH
        return NO_AUTH if kind == DELETE and path == forbidden else 0

    zookeeper.refuse = refuse
    with pytest.raises(RequestRefused, match=rf"refuses {forbidden}/"):
        connection.changes("t", name="n")
    assert "the subscription n was made, and cannot be removed" in caplog.text


def wait_until(runtime: ThreadRuntime, is_true: Callable[[], bool]) -> None:
    until = runtime.now() + WAIT_S
    while not is_true():
        assert runtime.now() < until
        runtime.sleep(0.02)


def test_command_receives_is_killed_and_goes_on_without_a_loss_or_a_repeat(
    runtime: ThreadRuntime, connection: Connection, url: str, tmp_path: Path
) -> None:
    """``metaclient changes receive`` is killed by SIGKILL while it receives, and its successor ended by SIGTERM."""
    command = [sys.executable, "-m", "metaclient", "changes", "receive", "t", "--name", "lake"]
    command += ["--spool", str(tmp_path), "--worker", "w", "--url", url, "--json"]
    first = subprocess.Popen(command)
    table = connection.table("t")
    try:
        wait_until(runtime, lambda: (tmp_path / "w" / "position").exists())
        for number in range(50):
            table.put(b"%03d" % number, {b"d:q": b"1"})
            if number == 25:
                wait_until(runtime, lambda: len(rows_in(tmp_path)) >= 10)
                first.send_signal(signal.SIGKILL)
                first.wait(WAIT_S)
    finally:
        first.kill()
    second = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        wait_until(runtime, lambda: len(set(rows_in(tmp_path))) == 50)
        second.send_signal(signal.SIGTERM)
        output, _ = second.communicate(timeout=WAIT_S)
    finally:
        second.kill()
    assert second.returncode == 0
    assert b'"received":' in output
    assert sorted(rows_in(tmp_path)) == [b"%03d" % number for number in range(50)]


def test_connection_without_zookeeper_says_so(url: str, connection: Connection) -> None:
    backend = connection.engine.backend
    master = backend._registry.active_master(connection.engine.runtime.now() + WAIT_S)  # type: ignore[attr-defined]
    with (
        metaclient.connect(f"hbase+rpc://{master.host}:{master.port}") as other,
        pytest.raises(Unsupported, match="hbase://"),
    ):
        other.changes("t", name="n")


class Collecting:
    """A receiver that keeps everything, as a spool would."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.deliveries: list[Delivery] = []

    def reserve(self, size: int) -> bool:
        self.sizes.append(size)
        return True

    def release(self, size: int) -> None:
        self.sizes.append(-size)

    def receive(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        delivery.answer()
        delivery.answer()  # the second time does nothing


def call(server: DeliveryServer, *frames: bytes, service: str = "AdminService", answers: int = 1) -> bytes:
    """Send frames as a source does; return the bytes that come back, at most ``answers`` frames of them."""
    with socket.create_connection((server.host, server.port), WAIT_S) as sock:
        sock.sendall(framing.preamble() + framing.connection_header(service, "u", CODEC_WITH_TAGS) + b"".join(frames))
        got = b""
        for _ in range(answers):
            while len(got) < 4 or len(got) < 4 + int.from_bytes(got[:4], "big"):
                part = sock.recv(1000)
                if not part:
                    return got
                got += part
        return got


def test_receiver_answers_each_call_once_and_gets_its_bytes(runtime: ThreadRuntime) -> None:
    receiver = Collecting()
    server = DeliveryServer("127.0.0.1", 0, runtime=runtime, receiver=receiver, cluster_id="c")
    try:
        request = framing.request(7, REPLICATE_WAL_ENTRY.encode(), b"param", b"cells", timeout_ms=5000)
        assert call(server, request) == framing.response(7, b"")
        (delivery,) = receiver.deliveries
        assert (delivery.param, delivery.cells, delivery.size) == (b"param", b"cells", len(request) - 4)
        assert delivery.deadline - delivery.arrived == 5.0
        assert receiver.sizes == [delivery.size]  # the receiver itself gives them back
        other = call(server, framing.request(1, b"GetServerInfo", b""))
        assert b"GetServerInfo" in other
        assert call(server, request, service="ClientService") == b""
        assert call(server, b"\0\0\0\x02\xff\xff") == b""  # no call: the connection is closed
        assert sum(receiver.sizes) == delivery.size
    finally:
        server.close()


def test_sources_without_a_certificate_are_refused_by_a_receiver_with_tls(
    runtime: ThreadRuntime, tmp_path: Path
) -> None:
    folder = make_certificates(tmp_path, "worker", "source", "other")
    files = ListenerProtection(str(folder / "worker.pem"), None, str(folder / "source.crt"))
    files.check("0.0.0.0", "the receiver")  # does not raise
    receiver = Collecting()
    server = DeliveryServer(
        "127.0.0.1", 0, runtime=runtime, receiver=receiver, cluster_id="c", tls=files.make_context()
    )
    request = framing.request(7, REPLICATE_WAL_ENTRY.encode(), b"param", b"cells")
    try:
        for name, is_accepted in (("source", True), ("other", False), (None, False)):
            context = ssl.create_default_context(cafile=str(folder / "worker.crt"))
            if name is not None:
                context.load_cert_chain(folder / f"{name}.pem")
            got = b""
            with (
                socket.create_connection((server.host, server.port), WAIT_S) as plain,
                contextlib.suppress(OSError),  # TLS 1.3 refuses at the first read
            ):
                sock = context.wrap_socket(plain, server_hostname="localhost")
                opening = framing.preamble() + framing.connection_header("AdminService", "u", CODEC_WITH_TAGS)
                sock.sendall(opening + request)
                got = sock.recv(1000)
            assert (got == framing.response(7, b"")) == is_accepted
        assert len(receiver.deliveries) == 1
        assert call(server, request) == b""  # without TLS
        assert len(receiver.deliveries) == 1
    finally:
        server.close()


@pytest.mark.parametrize("given", [{"key": "k.pem"}, {"client_ca": "ca.pem"}])
def test_files_of_tls_without_a_certificate_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="needs TLS: give cert="):
        ListenerProtection(**given).make_context()
