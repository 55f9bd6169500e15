"""Who serves hbase:meta: asked of masters and region servers, or of ZooKeeper; urls, and what is wrong with them."""

from __future__ import annotations

import logging
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.handlers.threading import KazooTimeoutError

import metaclient_thrift  # noqa: F401 - sets up the loggers of happybase and thriftpy2
from metaclient.errors import (
    AuthenticationFailed,
    CallTimeout,
    ConfigError,
    RequestRefused,
    ServerNotRunning,
    ServerUnreachable,
    TableExists,
    TableNotDisabled,
    TableNotFound,
)
from metaclient.model import FamilyDescriptor, MetaReplica, ServerName, TableDescriptor
from metaclient.protobuf import Message, encode
from metaclient.runtime import ThreadRuntime
from metaclient.wire import zookeeper
from metaclient.wire.rpc import admin_messages, messages
from metaclient.wire.rpc.framing import ReceivedRequest
from metaclient.wire.rpc.names import server_message, table_message
from metaclient.wire.rpc.schemas import table_schema_message
from metaclient.wire.stream import dial as dial_tcp
from metaclient.wire.zookeeper import ZooKeeperClient
from metaclient.wire.zookeeper_reads import ZooKeeperReads
from metaclient_native import NativeBackend, native_factory
from metaclient_native.connections import Connections
from metaclient_native.registry_rpc import RpcRegistry
from metaclient_native.registry_zk import ZooKeeperRegistry
from metaclient_native.security import Security
from metaclient_native.url import Endpoint, NativeUrl
from tests.unit.native.peer import WAIT_S, Caller, Peer, serving
from tests.unit.replication.zookeeper_server import ZooKeeperServer

META = RPC = ServerName("rs1", 16020, 7)


# -- urls --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "properties", "endpoints", "parent"),
    [
        ("hbase://zk1", {}, [("zk1", 2181)], "/hbase"),
        ("hbase://zk1,zk2:2182/other", {}, [("zk1", 2182), ("zk2", 2182)], "/other"),
        ("hbase://zk1:1,zk2:2", {}, [("zk1", 1), ("zk2", 2)], "/hbase"),
        ("hbase://[::1]:2181", {}, [("::1", 2181)], "/hbase"),
        (
            "hbase://",
            {
                "hbase.zookeeper.quorum": "a,b",
                "hbase.zookeeper.property.clientPort": "99",
                "zookeeper.znode.parent": "/p",
            },
            [("a", 99), ("b", 99)],
            "/p",
        ),
        ("hbase+rpc://m1,m2", {}, [("m1", 16000), ("m2", 16000)], "/hbase"),
        ("hbase+rpc://", {"hbase.masters": "m1:5"}, [("m1", 5)], "/hbase"),
    ],
)
def test_urls(url: str, properties: dict[str, str], endpoints: list[tuple[str, int]], parent: str) -> None:
    parsed = NativeUrl.parse(url, properties)
    assert parsed.endpoints == tuple(Endpoint(*one) for one in endpoints)
    assert parsed.znode_parent == parent
    assert parsed.is_rpc == url.startswith("hbase+rpc")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("hbase://", "names no ZooKeeper"),
        ("hbase+rpc://", "names no server"),
        ("hbase+rpc://m1/hbase", "has a path"),
        ("hbase://zk1?usr=me", "did you mean user"),
        ("hbase://zk1?user=", "must not be empty"),
        ("hbase://zk1?user=ada&user=bob", "has user twice"),
        ("hbase://zk1:port", "bad address"),
        ("hbase://me@zk1", "a user is written .user=NAME"),
        ("hbase://[::1", "is not a url"),
        ("thrift2://x", "not a url of HBase's own RPC"),
    ],
)
def test_bad_urls_say_what_is_wrong(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        NativeUrl.parse(url)


@pytest.mark.parametrize("port", ["", "zk", "0", "65536", "-1", "21.81", "9" * 5000, "２１８１"])  # noqa: RUF001 - digits
def test_port_that_is_none_is_not_taken_for_the_usual_one(port: str) -> None:
    with pytest.raises(ConfigError, match=r"hbase.zookeeper.property.clientPort must be a port from 1 to 65535"):
        NativeUrl.parse("hbase://zk1", {"hbase.zookeeper.property.clientPort": port})


def test_tls_flag_that_is_none_is_not_taken_for_false(runtime: ThreadRuntime) -> None:
    with pytest.raises(ConfigError, match=r"hbase.client.netty.tls.enabled must be true or false, got 'yes'"):
        native_factory("hbase+rpc://m1", runtime=runtime, properties={"hbase.client.netty.tls.enabled": "yes"})


def test_kerberos_without_the_name_of_the_servers_says_where_it_is(runtime: ThreadRuntime) -> None:
    with pytest.raises(ConfigError, match=r"hbase.regionserver.kerberos.principal.*hbase-site.xml"):
        native_factory("hbase+rpc://m1", runtime=runtime, properties={"hbase.security.authentication": "kerberos"})


def test_missing_kazoo_says_what_to_install(runtime: ThreadRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kazoo.client", None)
    with pytest.raises(ConfigError, match=r"hbase\+rpc.*pip install 'hbase-metaclient\[native\]'"):
        native_factory("hbase://zk1", runtime=runtime, properties={})


def test_no_zookeeper_there(runtime: ThreadRuntime) -> None:
    pytest.importorskip("kazoo")
    with serving(runtime, lambda caller: None) as peer:
        port = peer.port
    backend = native_factory(f"hbase://127.0.0.1:{port}", runtime=runtime, properties={})
    try:
        with pytest.raises((ServerUnreachable, CallTimeout)):
            backend.open(runtime.now() + 0.3)
    finally:
        backend.close()


# -- the registry by RPC -----------------------------------------------------------------------------------------------


def locations(*servers: ServerName | None) -> bytes:
    found = [
        {
            "region_info": {"region_id": 1, "table_name": table_message(b"hbase:meta"), "replica_id": number},
            "server_name": server_message(server) if server is not None else None,
            "seq_num": -1,
        }
        for number, server in enumerate(servers)
    ]
    return encode(messages.GET_META_REGION_LOCATIONS_RESPONSE, {"meta_locations": found})


def answering(answers: dict[str, bytes]) -> Callable[[Caller], None]:
    def script(caller: Caller) -> None:
        while True:
            request = caller.request()
            if request.method in answers:
                caller.answer(request.call_id, answers[request.method])

    return script


def registry(runtime: ThreadRuntime, *peers: Peer) -> RpcRegistry:
    endpoints = [Endpoint("127.0.0.1", peer.port) for peer in peers]
    return RpcRegistry(endpoints, Connections(runtime, Security("tester")), runtime)


def test_replicas_and_master(runtime: ThreadRuntime) -> None:
    answers = {
        "GetMetaRegionLocations": locations(META, None),
        "GetActiveMaster": encode(messages.GET_ACTIVE_MASTER_RESPONSE, {"server_name": server_message(RPC)}),
        "GetClusterId": encode(messages.GET_CLUSTER_ID_RESPONSE, {"cluster_id": "abc"}),
        "GetBootstrapNodes": encode(messages.GET_BOOTSTRAP_NODES_RESPONSE, {"server_name": [server_message(RPC)]}),
    }
    with serving(runtime, answering(answers)) as peer:
        asked = registry(runtime, peer)
        until = runtime.now() + WAIT_S
        assert asked.meta_replicas(until) == [MetaReplica(0, META), MetaReplica(1, None)]
        assert asked.active_master(until) == RPC
        assert asked.cluster_id(until) == "abc"
        while Endpoint("rs1", 16020) not in asked._order:  # learnt in the background
            assert runtime.now() < until
            runtime.sleep(0.001)


def test_silent_endpoint_gets_company(runtime: ThreadRuntime) -> None:
    """A hung master costs a fraction of a second; whoever answered is asked first next time."""
    with (
        serving(runtime, answering({})) as silent,
        serving(runtime, answering({"GetMetaRegionLocations": locations(META)})) as good,
    ):
        asked = registry(runtime, silent, good)
        assert asked.meta_replicas(runtime.now() + WAIT_S) == [MetaReplica(0, META)]
        assert asked._order[0] == Endpoint("127.0.0.1", good.port)


def test_dead_endpoint_is_passed_over(runtime: ThreadRuntime) -> None:
    with serving(runtime, answering({})) as dead:
        pass
    with serving(runtime, answering({"GetMetaRegionLocations": locations(META)})) as good:
        assert registry(runtime, dead, good).meta_replicas(runtime.now() + WAIT_S) == [MetaReplica(0, META)]
    with pytest.raises(ServerUnreachable, match="no master or region server of the registry"):
        registry(runtime, dead).meta_replicas(runtime.now() + WAIT_S)


def test_starting_server_is_reported_rather_than_the_dead_one(runtime: ThreadRuntime) -> None:
    """The first failure is a refused connection; the second, of a server that answered, has the reason."""

    def starting(caller: Caller) -> None:
        java_class = "org.apache.hadoop.hbase.ipc.ServerNotRunningYetException"
        caller.refuse(caller.request().call_id, java_class, f"{java_class}: not yet\n\tat x", do_not_retry=False)

    with serving(runtime, answering({})) as dead:
        pass
    with serving(runtime, starting) as peer, pytest.raises(ServerNotRunning, match="not yet"):
        registry(runtime, dead, peer).meta_replicas(runtime.now() + WAIT_S)


def test_registry_that_is_silent_is_over_at_the_deadline(runtime: ThreadRuntime) -> None:
    with serving(runtime, answering({})) as silent, pytest.raises(CallTimeout, match="no answer of the registry"):
        registry(runtime, silent).meta_replicas(runtime.now() + 0.05)


def test_no_active_master_is_said(runtime: ThreadRuntime) -> None:
    with (
        serving(runtime, answering({"GetActiveMaster": b""})) as peer,
        pytest.raises(ServerNotRunning, match="no active master"),
    ):
        registry(runtime, peer).active_master(runtime.now() + WAIT_S)


# -- admin -------------------------------------------------------------------------------------------------------------


class Master:
    """Registry and master in one; ``answers`` maps a method to what it says, one after the other."""

    def __init__(self, runtime: ThreadRuntime, answers: dict[str, list[Any]]) -> None:
        self.runtime = runtime
        self.asked: list[ReceivedRequest] = []
        self.answers = answers
        self.peer = Peer(runtime, self._serve)
        self.backend = NativeBackend(f"hbase+rpc://127.0.0.1:{self.peer.port}", runtime=runtime)

    def _serve(self, caller: Caller) -> None:
        while True:
            request = caller.request()
            if request.method == "GetActiveMaster":
                here = server_message(ServerName("127.0.0.1", self.peer.port, 1))
                caller.answer(request.call_id, encode(messages.GET_ACTIVE_MASTER_RESPONSE, {"server_name": here}))
                continue
            self.asked.append(request)
            answer = self.answers[request.method].pop(0)
            if isinstance(answer, tuple):
                java_class, said = answer
                caller.refuse(request.call_id, java_class, f"{java_class}: {said}\n\tat x", do_not_retry=True)
            else:
                caller.answer(request.call_id, answer)

    def until(self) -> float:
        return self.runtime.now() + WAIT_S

    def close(self) -> None:
        self.backend.close()
        self.peer.close()


@pytest.fixture
def master(runtime: ThreadRuntime) -> Iterator[Callable[..., Master]]:
    made: list[Master] = []

    def make(**answers: list[Any]) -> Master:
        made.append(Master(runtime, answers))
        return made[-1]

    yield make
    for one in made:
        one.close()


def of(message: Message, **values: Any) -> bytes:
    return encode(message, values)


STARTED = of(admin_messages.PROCEDURE_RESPONSE, proc_id=7)
RUNNING = of(admin_messages.GET_PROCEDURE_RESULT_RESPONSE, state=admin_messages.PROCEDURE_RUNNING)
FINISHED = of(admin_messages.GET_PROCEDURE_RESULT_RESPONSE, state=admin_messages.PROCEDURE_FINISHED)


def test_procedure_is_asked_for_until_it_is_finished(master: Callable[..., Master]) -> None:
    asked = master(CreateTable=[STARTED], getProcedureResult=[RUNNING, RUNNING, FINISHED])
    table = TableDescriptor(b"ns:t", (FamilyDescriptor(b"cf"),), 3)
    asked.backend.create_table(table, [b"m"], asked.until())
    assert [request.method for request in asked.asked] == ["CreateTable", *["getProcedureResult"] * 3]


def test_finished_procedure_may_carry_its_error(master: Callable[..., Master]) -> None:
    """EnableTable of an enabled table: state 2, and the exception only there."""
    failed = of(
        admin_messages.GET_PROCEDURE_RESULT_RESPONSE,
        state=admin_messages.PROCEDURE_FINISHED,
        exception={
            "generic_exception": {
                "class_name": "org.apache.hadoop.hbase.TableNotDisabledException",
                "message": "t",
            }
        },
    )
    asked = master(EnableTable=[STARTED], getProcedureResult=[failed])
    with pytest.raises(TableNotDisabled):
        asked.backend.enable_table(b"t", asked.until())


def test_procedure_that_takes_longer_than_we_have_goes_on(master: Callable[..., Master]) -> None:
    asked = master(DisableTable=[STARTED], getProcedureResult=[RUNNING] * 1000)
    with pytest.raises(CallTimeout, match="has not finished") as caught:
        asked.backend.disable_table(b"t", asked.runtime.now() + 0.2)
    assert caught.value.may_have_applied


@pytest.mark.parametrize(
    ("java_class", "kind"),
    [
        ("org.apache.hadoop.hbase.TableExistsException", TableExists),
        ("org.apache.hadoop.hbase.TableNotFoundException", TableNotFound),
        ("org.apache.hadoop.hbase.NamespaceNotFoundException", RequestRefused),
    ],
)
def test_refusals_of_the_master(master: Callable[..., Master], java_class: str, kind: type[Exception]) -> None:
    asked = master(CreateTable=[(java_class, "t")])
    with pytest.raises(kind):
        asked.backend.create_table(TableDescriptor(b"t", (FamilyDescriptor(b"cf"),)), [], asked.until())


def test_described_table(master: Callable[..., Master]) -> None:
    table = TableDescriptor(b"ns:t", (FamilyDescriptor(b"cf", max_versions=3),), 3)
    found = of(admin_messages.GET_TABLE_DESCRIPTORS_RESPONSE, table_schema=[table_schema_message(table)])
    asked = master(GetTableDescriptors=[found, b""])
    assert asked.backend.describe_table(b"ns:t", asked.until()) == table
    with pytest.raises(TableNotFound):
        asked.backend.describe_table(b"no", asked.until())


def test_sizes_of_regions(master: Callable[..., Master]) -> None:
    load = {
        "region_specifier": {"type": 1, "value": b"t,,1.abc."},
        "storefile_size_MB": 5,
        "mem_store_size_MB": 2,
    }
    other = {"region_specifier": {"type": 1, "value": b"tt,,1.abc."}, "storefile_size_MB": 9}
    status = of(
        admin_messages.GET_CLUSTER_STATUS_RESPONSE,
        cluster_status={
            "hbase_version": {"version": "2.6.1"},
            "live_servers": [{"server": server_message(META), "server_load": {"region_loads": [load, other]}}],
        },
    )
    asked = master(GetClusterStatus=[status])
    assert asked.backend.admin.region_sizes(b"t", asked.until()) == {b"t,,1.abc.": 7 * 1024 * 1024}


def test_master_that_is_gone_is_looked_for_again(master: Callable[..., Master]) -> None:
    stopped = ("org.apache.hadoop.hbase.ipc.ServerNotRunningYetException", "not yet")
    names = of(admin_messages.GET_TABLE_NAMES_RESPONSE, table_names=[table_message(b"b"), table_message(b"ns:a")])
    asked = master(GetTableNames=[stopped, names])
    with pytest.raises(ServerNotRunning):
        asked.backend.table_names(asked.until())
    assert asked.backend.admin._master is None
    assert asked.backend.table_names(asked.until()) == [b"b", b"ns:a"]


# -- a first contact that fails ----------------------------------------------------------------------------------------


class SilentKazoo:
    """Stands for a KazooClient whose server accepts the connection and says nothing: its stop() waits for it."""

    connected = False

    def __init__(self, **_: Any) -> None:
        self.is_released = threading.Event()
        self.is_ended = threading.Event()

    def start_async(self) -> threading.Event:
        return threading.Event()

    def stop(self) -> None:
        assert self.is_released.wait(WAIT_S)

    def close(self) -> None:
        self.is_ended.set()


def test_giving_up_on_a_silent_zookeeper_does_not_wait_for_it(
    runtime: ThreadRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    kazoo = pytest.importorskip("kazoo.client")
    made: list[SilentKazoo] = []
    monkeypatch.setattr(kazoo, "KazooClient", lambda **options: made.append(SilentKazoo(**options)) or made[-1])
    backend = native_factory("hbase://127.0.0.1:1", runtime=runtime, properties={})
    with pytest.raises(ServerUnreachable, match="check the address"):
        backend.open(runtime.now() + 0.01)
    assert not made[0].is_ended.is_set()  # it goes on in the background, and ends when it can
    made[0].is_released.set()
    assert made[0].is_ended.wait(WAIT_S)
    backend.close()


# -- a ZooKeeper that falls silent later -------------------------------------------------------------------------------


class SilencedKazoo(SilentKazoo):
    """Stands for a KazooClient whose session was established, and whose server then falls silent."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.connected = True
        self.starts = 0
        self.timeouts: list[float] = []

    def start_async(self) -> SilencedKazoo:
        self.starts += 1
        assert self.starts == 1, "kazoo waits for its threads here, without a bound"
        return self

    def wait(self, timeout: float) -> None:
        """As an event that is not set within the time."""
        self.timeouts.append(timeout)

    def get_children_async(self, path: str) -> SilencedKazoo:
        return self

    def get(self, timeout: float) -> None:
        self.timeouts.append(timeout)
        raise KazooTimeoutError


@pytest.fixture
def silenced(runtime: ThreadRuntime, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[SilencedKazoo]]:
    made: list[SilencedKazoo] = []
    monkeypatch.setattr("kazoo.client.KazooClient", lambda **options: made.append(SilencedKazoo(**options)) or made[-1])
    yield made
    for client in made:
        client.is_released.set()


def test_zookeeper_that_breaks_off_later_does_not_hold_a_call_beyond_its_deadline(
    runtime: ThreadRuntime, silenced: list[SilencedKazoo], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client of kazoo that was connected once is not started again: that waits for a silent server."""
    monkeypatch.setattr(zookeeper, "SILENT_S", float("inf"))
    asked = ZooKeeperRegistry([Endpoint("zk", 1)], "/hbase", runtime)
    with pytest.raises(CallTimeout, match="did not return /hbase"):
        asked.meta_replicas(runtime.now() + WAIT_S)
    (client,) = silenced
    client.connected = False
    with pytest.raises(ServerUnreachable, match="no ZooKeeper can be reached"):
        asked.meta_replicas(runtime.now() + WAIT_S / 2)
    assert len(client.timeouts) == 2
    assert WAIT_S / 2 < client.timeouts[0] <= WAIT_S
    assert 0 < client.timeouts[1] <= WAIT_S / 2, "it waits no longer than the call may take"
    client.is_released.set()
    assert client.is_ended.wait(WAIT_S)
    with pytest.raises(CallTimeout):
        asked.meta_replicas(runtime.now() + WAIT_S)
    assert len(silenced) == 2, "the session that could not be used is replaced"


def test_session_of_a_swallowed_flow_is_replaced(
    runtime: ThreadRuntime, silenced: list[SilencedKazoo], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that did not answer for long is not asked again; a call with little time left does not end it."""
    monkeypatch.setattr(zookeeper, "SILENT_S", WAIT_S / 2)
    asked = ZooKeeperRegistry([Endpoint("zk", 1)], "/hbase", runtime)
    for seconds, sessions in ((WAIT_S / 3, 1), (WAIT_S, 1), (WAIT_S / 3, 2)):
        with pytest.raises(CallTimeout):
            asked.meta_replicas(runtime.now() + seconds)
        assert len(silenced) == sessions


ZK_SESSION = struct.pack(">iiqi16sb", 0, 10_000, 77, 16, b"p" * 16, 0)


def zk_frame(caller: Caller) -> bytes:
    """Read one request to ZooKeeper."""
    parts = [b"", b""]
    for at, size in ((0, lambda: 4), (1, lambda: int.from_bytes(parts[0], "big"))):
        while len(parts[at]) < size():
            data = caller.sock.recv(size() - len(parts[at]))
            if not data:
                raise ConnectionResetError("the client hung up")
            parts[at] += data
    return parts[1]


def test_threads_of_a_session_with_a_silent_zookeeper_end_with_the_registry(runtime: ThreadRuntime) -> None:
    """With the real kazoo: the session is established, broken off, and each later connection stays without a byte."""
    pytest.importorskip("kazoo")
    connections: list[Caller] = []

    def script(caller: Caller) -> None:
        connections.append(caller)
        zk_frame(caller)
        if len(connections) == 1:
            caller.sock.sendall(len(ZK_SESSION).to_bytes(4, "big") + ZK_SESSION)
            xid = zk_frame(caller)[:4]
            answer = xid + struct.pack(">qii", 1, 0, 0)  # no children
            caller.sock.sendall(len(answer).to_bytes(4, "big") + answer)
            return
        while True:
            zk_frame(caller)

    before = set(threading.enumerate())
    with serving(runtime, script, is_raw=True) as peer:
        asked = ZooKeeperRegistry([Endpoint("127.0.0.1", peer.port)], "/hbase", runtime)
        until = runtime.now() + WAIT_S
        with pytest.raises(ServerNotRunning, match="has no location of hbase:meta"):
            asked.meta_replicas(until)
        while len(connections) < 2:  # kazoo connects again by itself
            assert runtime.now() < until
            runtime.sleep(0.001)
        kazoo_threads = [one for one in set(threading.enumerate()) - before if "zk_loop" in one.name]
        assert kazoo_threads
        with pytest.raises((ServerUnreachable, CallTimeout)):
            asked.meta_replicas(runtime.now() + 0.05)
        asked.close()
        for thread in kazoo_threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()


@pytest.mark.parametrize("name", ["kazoo", "happybase", "thriftpy2"])
def test_loggers_of_other_packages_are_quiet_until_the_user_sets_up_logging(name: str) -> None:
    """Python prints warnings of a logger without any handler to standard error."""
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger(name).handlers)


@pytest.mark.parametrize("code", [-115, -124], ids=["AUTHFAILED", "SESSIONCLOSEDREQUIRESASLAUTH"])
def test_zookeeper_that_requires_sasl_of_clients_is_final_and_names_the_other_registry(
    runtime: ThreadRuntime, code: int
) -> None:
    pytest.importorskip("kazoo")
    server = ZooKeeperServer(runtime)
    server.refusal = code
    host, port, _ = server.key("/hbase").split(":")
    deadline = runtime.now() + WAIT_S
    by_kazoo = ZooKeeperClient(f"{host}:{port}", runtime, needed_by="the test")
    by_stream = ZooKeeperReads([(host, int(port))], runtime, dial_tcp)
    try:
        for client in (by_kazoo, by_stream):
            with pytest.raises(AuthenticationFailed, match=r"requires.*SASL.*hbase\+rpc://"):
                client.get("/hbase/hbaseid", deadline)
        server.refusal = -102  # NOAUTH
        by_kazoo.close()
        by_kazoo = ZooKeeperClient(f"{host}:{port}", runtime, needed_by="the test")
        by_stream.close()
        by_stream = ZooKeeperReads([(host, int(port))], runtime, dial_tcp)
        for client in (by_kazoo, by_stream):
            with pytest.raises(RequestRefused, match=r"refuses /hbase/hbaseid.*hbase\+rpc://"):
                client.get("/hbase/hbaseid", deadline)
    finally:
        by_kazoo.close()
        by_stream.close()
        server.close()
