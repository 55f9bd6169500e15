"""The fake's RPC front, frame by frame: what a client of HBase's would see, and what a broken one gets."""

import socket
from collections.abc import Iterator
from uuid import UUID

import pytest

from metaclient import keys
from metaclient.model import Cell, FamilyDescriptor, Get, Increment, Put, RegionLocation, Scan, TableDescriptor
from metaclient.protobuf import Message, decode, encode
from metaclient.wire.rpc import admin_messages, framing, messages
from metaclient.wire.rpc.cellblock import decode_results, encode_cells
from metaclient.wire.rpc.mutations import mutation_message
from metaclient.wire.rpc.names import region_location_from, table_message
from metaclient.wire.rpc.queries import get_message, scan_message
from metaclient.wire.rpc.schemas import table_schema_message
from metaclient_fake import FakeCluster
from metaclient_fake.front.serving import Front

SPLITS = [b"m"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(servers=4, meta_replicas=3) as made:
        made.serve(thrift1_port=None, thrift2_port=None, rpc_port=0)
        made.create_table(TableDescriptor(b"t", (FamilyDescriptor(b"f"),), region_replication=2), SPLITS)
        made.wait_until_replicated(60)
        yield made


@pytest.fixture
def front(cluster: FakeCluster) -> Front:
    assert cluster.front is not None
    return cluster.front


class Client:
    """A connection that says what it is told to, a call at a time."""

    def __init__(self, port: int, service: str = "", *, hello: bytes | None = None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 30)
        self.reader = framing.FrameReader()
        self.frames: list[bytes] = []
        self.calls = 0
        self.socket.sendall(framing.preamble() + framing.connection_header(service) if hello is None else hello)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, method: str, param: bytes = b"", cells: bytes = b"", timeout_ms: int = 0) -> int:
        self.calls += 1
        self.socket.sendall(framing.request(self.calls, method.encode(), param, cells, timeout_ms=timeout_ms))
        return self.calls

    def receive(self) -> framing.Response | None:
        """The next answer; None when the server has hung up."""
        while not self.frames:
            data = self.socket.recv(65536)
            if not data:
                return None
            self.frames += self.reader.feed(data)
        return framing.parse_response(self.frames.pop(0))

    def call(self, method: str, param: bytes = b"", cells: bytes = b"") -> framing.Response:
        number = self.send(method, param, cells)
        answer = self.receive()
        assert answer is not None
        assert answer.call_id == number
        return answer

    def asked(self, method: str, answer: Message, request: Message | None = None, **fields: object) -> dict:
        found = self.call(method, encode(request, fields) if request is not None else b"")
        assert found.exception is None, found.exception
        return decode(answer, found.param)


def registry(front: Front) -> Client:
    assert front.rpc_port is not None
    return Client(front.rpc_port, "ClientMetaService")


def meta_places(front: Front) -> list[RegionLocation]:
    with registry(front) as client:
        found = client.asked("GetMetaRegionLocations", messages.GET_META_REGION_LOCATIONS_RESPONSE)
    return [place for one in found["meta_locations"] if (place := region_location_from(one)) is not None]


def place_of(front: Front, row: bytes, replica_id: int = 0) -> tuple[bytes, int]:
    """A region's name and its server's port, as a client finds them: at a copy of hbase:meta."""
    at = meta_places(front)[replica_id]
    scan = Scan(keys.meta_search_key(b"t", row), b"t,,", include_stop=True, is_reversed=True, columns=(b"info",))
    request = {
        "region": {"type": 1, "value": keys.meta_region_name(replica_id)},
        "scan": scan_message(scan, max_result_bytes=1 << 20, read_type=messages.READ_PREAD),
        "number_of_rows": 1,
        "limit_of_rows": 1,
    }
    with Client(at.server.port, "ClientService") as client:
        answer = client.call("Scan", encode(messages.SCAN_REQUEST, request))
    assert answer.exception is None, answer.exception
    fields = decode(messages.SCAN_RESPONSE, answer.param)
    assert fields["more_results"] is False
    rows = decode_results(answer.data, answer.end, len(answer.data), fields["cells_per_result"])
    columns = {cell.column: cell.value for cell in rows[0].cells}
    host, _, port = columns[b"info:server"].decode().rpartition(":")
    assert host == "127.0.0.1"
    return rows[0].row, int(port)


def get_request(name: bytes, row: bytes) -> bytes:
    return encode(messages.GET_REQUEST, {"region": {"type": 1, "value": name}, "get": get_message(Get(row))})


def test_registry_names_ports_that_answer(front: Front, cluster: FakeCluster) -> None:
    places = meta_places(front)
    assert [place.region.replica_id for place in places] == [0, 1, 2]
    assert len({place.server.port for place in places}) == 3
    with registry(front) as client:
        cluster_id = client.asked("GetClusterId", messages.GET_CLUSTER_ID_RESPONSE)["cluster_id"]
        master = client.asked("GetActiveMaster", messages.GET_ACTIVE_MASTER_RESPONSE)["server_name"]
        nodes = client.asked("GetBootstrapNodes", messages.GET_BOOTSTRAP_NODES_RESPONSE)["server_name"]
    assert cluster_id == cluster.cluster_id
    assert master["port"] == front.rpc_port
    with Client(nodes[0]["port"], "ClientMetaService") as client:  # region servers know it, too
        assert client.asked("GetClusterId", messages.GET_CLUSTER_ID_RESPONSE)["cluster_id"] == cluster_id


def test_lookup_is_one_call_at_any_copy_and_leads_to_the_row(front: Front) -> None:
    assert place_of(front, b"a", 0) == place_of(front, b"a", 1) == place_of(front, b"a", 2)
    name, port = place_of(front, b"a")
    mutation, cells = mutation_message(Put(b"a", (Cell(b"f:q", 7, b"v"),)))
    with Client(port, "ClientService") as client:
        put = encode(messages.MUTATE_REQUEST, {"region": {"type": 1, "value": name}, "mutation": mutation})
        assert decode(messages.MUTATE_RESPONSE, client.call("Mutate", put, cells).param) == {"processed": True}
        answer = client.call("Get", get_request(name, b"a"))
    assert answer.cells == encode_cells(b"a", [Cell(b"f:q", 7, b"v")])


@pytest.mark.parametrize("is_in_block", [False, True], ids=["in the message", "in the cell block"])
def test_put_of_a_negative_time_is_refused_and_later_puts_are_seen(front: Front, is_in_block: bool) -> None:
    """2^64 - 1 is -1 to Java. Class, text and the missing "do not retry" are those of HBase 2.6.1."""
    name, port = place_of(front, b"a")
    region = {"type": 1, "value": name}
    if is_in_block:
        mutation, cells = mutation_message(Put(b"bad", (Cell(b"f:q", -1, b"v"),)))
    else:
        value = {"qualifier": b"q", "value": b"v", "timestamp": 2**64 - 1}
        columns = [{"family": b"f", "qualifier_value": [value]}]
        mutation, cells = {"row": b"bad", "mutate_type": messages.MUTATE_PUT, "column_value": columns}, b""
    good, good_cells = mutation_message(Put(b"good", (Cell(b"f:q", 7, b"v"),)))
    with Client(port, "ClientService") as client:
        bad = encode(messages.MUTATE_REQUEST, {"region": region, "mutation": mutation})
        exception = client.call("Mutate", bad, cells).exception
        put = encode(messages.MUTATE_REQUEST, {"region": region, "mutation": good})
        assert decode(messages.MUTATE_RESPONSE, client.call("Mutate", put, good_cells).param) == {"processed": True}
        answer = client.call("Get", get_request(name, b"good"))
    assert exception["exception_class_name"] == "java.io.IOException"
    assert exception["do_not_retry"] is False
    assert "Timestamp cannot be negative. ts=-1" in exception["stack_trace"]
    assert answer.cells == encode_cells(b"good", [Cell(b"f:q", 7, b"v")])


@pytest.mark.parametrize("is_multi", [False, True], ids=["Mutate", "Multi"])
def test_cluster_ids_of_a_replicated_change_reach_the_log(front: Front, cluster: FakeCluster, is_multi: bool) -> None:
    """Without them a change would go back to the cluster that it came from."""
    ids = (UUID(int=7), UUID(int=8))
    row = b"replicated %d" % is_multi
    name, port = place_of(front, row)
    region = {"type": 1, "value": name}
    mutation, cells = mutation_message(Put(row, (Cell(b"f:q", 7, b"v"),), cluster_ids=ids))
    if is_multi:
        action = {"region": region, "action": [{"index": 0, "mutation": mutation}]}
        param = encode(messages.MULTI_REQUEST, {"regionAction": [action]})
    else:
        param = encode(messages.MUTATE_REQUEST, {"region": region, "mutation": mutation})
    with Client(port, "ClientService") as client:
        assert client.call("Multi" if is_multi else "Mutate", param, cells).exception is None
    entries = [entry for server in cluster.servers_by_host.values() for entry in server.wal.entries()]
    assert [entry.cluster_ids for entry in entries if (row, Cell(b"f:q", 7, b"v")) in entry.edits] == [ids]


@pytest.mark.parametrize("is_multi", [False, True], ids=["Mutate", "Multi"])
def test_nonce_of_another_group_is_another_change(front: Front, is_multi: bool) -> None:
    """Two clients may draw the same nonce; a nonce of 0 is none (HConstants.NO_NONCE)."""
    row = b"counter %d" % is_multi
    name, port = place_of(front, row)
    region = {"type": 1, "value": name}

    def send(client: Client, group: int, nonce: int) -> None:
        mutation, cells = mutation_message(Increment(row, ((b"f:n", 1),), nonce=nonce))
        if is_multi:
            action = {"region": region, "action": [{"index": 0, "mutation": mutation}]}
            param = encode(messages.MULTI_REQUEST, {"regionAction": [action], "nonceGroup": group})
        else:
            param = encode(messages.MUTATE_REQUEST, {"region": region, "mutation": mutation, "nonce_group": group})
        assert client.call("Multi" if is_multi else "Mutate", param, cells).exception is None

    def total(client: Client) -> int:
        answer = client.call("Get", get_request(name, row))
        return int.from_bytes(answer.cells[-8:], "big")

    with Client(port, "ClientService") as client:
        used = 7 + is_multi  # a nonce is known to a server, whatever it was used for
        for group, nonce, expected in (
            (1, used, 1),
            (2, used, 2),
            (1, used, 2),
            (2, used, 2),
            (1, 0, 3),
            (1, 0, 4),
        ):
            send(client, group, nonce)
            assert total(client) == expected, (group, nonce)


def test_calls_in_flight_are_all_answered(front: Front) -> None:
    name, port = place_of(front, b"a")
    with Client(port, "ClientService") as client:
        wanted = {client.send("Get", get_request(name, b"absent")) for _ in range(200)}
        answered = {answer.call_id for _ in range(200) if (answer := client.receive()) is not None}
    assert answered == wanted


def test_region_that_is_elsewhere_is_not_served(front: Front) -> None:
    name, port = place_of(front, b"a")
    other = next(place.server.port for place in meta_places(front) if place.server.port != port)
    with Client(other, "ClientService") as client:
        exception = client.call("Get", get_request(name, b"a")).exception
    assert exception is not None
    assert exception["exception_class_name"] == "org.apache.hadoop.hbase.NotServingRegionException"
    assert exception["do_not_retry"] is False


def test_unknown_method_and_missing_parameter_leave_the_connection_usable(front: Front) -> None:
    with registry(front) as client:
        assert client.call("Nonsense").exception["do_not_retry"] is True
        header = encode(messages.REQUEST_HEADER, {"call_id": 9, "method_name": "GetClusterId", "request_param": False})
        client.socket.sendall(framing.framed(bytes([len(header)]) + header))
        refused = client.receive()
        assert refused is not None
        assert "should have param set" in refused.exception["stack_trace"]
        client.calls = 9
        assert client.call("GetClusterId").exception is None


@pytest.mark.parametrize(
    "hello",
    [
        framing.preamble() + framing.connection_header("NoSuchService"),
        framing.preamble() + framing.connection_header("ClientMetaService", codec="no.such.Codec"),
        framing.preamble() + b"\x7f\xff\xff\xff",
        framing.preamble() + framing.framed(b"\xff\xff\xff"),
        b"HBas",
    ],
    ids=["service", "codec", "huge header", "garbage header", "half a preamble"],
)
def test_refusal_is_a_silent_hang_up(front: Front, hello: bytes) -> None:
    assert front.rpc_port is not None
    with Client(front.rpc_port, hello=hello) as client:
        client.socket.shutdown(socket.SHUT_WR)
        assert client.receive() is None


def test_wrong_magic_is_told(front: Front) -> None:
    assert front.rpc_port is not None
    with Client(front.rpc_port, hello=b"GET / ") as client:
        answer = client.receive()
        assert answer is not None
        assert answer.call_id == framing.CONNECTION_CALL_ID
        assert "FatalConnectionException" in answer.exception["exception_class_name"]


def test_registry_preamble_tells_the_cluster_id_and_hangs_up(front: Front, cluster: FakeCluster) -> None:
    assert front.rpc_port is not None
    with Client(front.rpc_port, hello=framing.REGISTRY_PREAMBLE) as client:
        answer = client.receive()
        assert answer is not None
        assert decode(messages.GET_CONNECTION_REGISTRY_RESPONSE, answer.param)["cluster_id"] == cluster.cluster_id
        assert client.receive() is None


@pytest.mark.parametrize("frame", [b"\x00\x00\x00\x03\xff\xff\xff", b"\xff\xff\xff\xff", b"\x00\x00\x00\x00"])
def test_frame_that_is_no_call_ends_only_its_own_connection(front: Front, frame: bytes) -> None:
    with registry(front) as broken, registry(front) as other:
        broken.socket.sendall(frame)
        refusal = broken.receive()
        assert refusal is None or refusal.exception is not None
        assert other.call("GetClusterId").exception is None


def test_garbage_cell_block_is_an_error_of_the_call(front: Front) -> None:
    name, port = place_of(front, b"a")
    mutation, _ = mutation_message(Put(b"a", (Cell(b"f:q", 7, b"v"),)))
    request = encode(messages.MUTATE_REQUEST, {"region": {"type": 1, "value": name}, "mutation": mutation})
    with Client(port, "ClientService") as client:
        assert client.call("Mutate", request, b"\x00\x00\x00").exception is not None
        assert client.call("Get", get_request(name, b"absent")).exception is None


def test_scan_goes_on_by_number_and_sequence(front: Front) -> None:
    name, port = place_of(front, b"z")
    region = {"type": 1, "value": name}
    with Client(port, "ClientService") as client:
        for number in range(5):
            mutation, cells = mutation_message(Put(b"z%d" % number, (Cell(b"f:q", 7, b"v"),)))
            client.call("Mutate", encode(messages.MUTATE_REQUEST, {"region": region, "mutation": mutation}), cells)
        scan = scan_message(Scan(b"z", b"zz"), max_result_bytes=1 << 20)

        def ask(**fields: object) -> dict:
            return client.asked("Scan", messages.SCAN_RESPONSE, messages.SCAN_REQUEST, **fields)

        first = ask(region=region, scan=scan, number_of_rows=2)
        scanner = first["scanner_id"]
        assert (first["cells_per_result"], first["more_results_in_region"]) == ([1, 1], True)
        wrong = client.call("Scan", encode(messages.SCAN_REQUEST, {"scanner_id": scanner, "next_call_seq": 5}))
        assert "OutOfOrderScannerNext" in wrong.exception["exception_class_name"]
        ask(scanner_id=scanner, next_call_seq=0, renew=True)
        second = ask(scanner_id=scanner, next_call_seq=1, number_of_rows=10)
        assert (second["cells_per_result"], second["more_results_in_region"]) == ([1, 1, 1], False)
        gone = client.call("Scan", encode(messages.SCAN_REQUEST, {"scanner_id": scanner, "next_call_seq": 2}))
        assert "UnknownScanner" in gone.exception["exception_class_name"]


def test_table_is_made_by_a_procedure_and_what_is_wrong_is_said_at_once(front: Front) -> None:
    assert front.rpc_port is not None
    descriptor = TableDescriptor(b"ns_less", (FamilyDescriptor(b"f", max_versions=5),))
    schema = {"table_schema": table_schema_message(descriptor), "split_keys": [b"k"]}
    with Client(front.rpc_port, "MasterService") as client:

        def ask(method: str, answer: Message, request: Message, **fields: object) -> dict:
            return client.asked(method, answer, request, **fields)

        started = ask("CreateTable", admin_messages.PROCEDURE_RESPONSE, admin_messages.CREATE_TABLE_REQUEST, **schema)
        while True:
            state = ask(
                "getProcedureResult",
                admin_messages.GET_PROCEDURE_RESULT_RESPONSE,
                admin_messages.GET_PROCEDURE_RESULT_REQUEST,
                proc_id=started["proc_id"],
            )
            if state["state"] == admin_messages.PROCEDURE_FINISHED:
                break
        assert "exception" not in state
        again = client.call("CreateTable", encode(admin_messages.CREATE_TABLE_REQUEST, schema))
        assert again.exception["exception_class_name"] == "org.apache.hadoop.hbase.TableExistsException"
        found = ask(
            "GetTableDescriptors",
            admin_messages.GET_TABLE_DESCRIPTORS_RESPONSE,
            admin_messages.GET_TABLE_DESCRIPTORS_REQUEST,
            table_names=[table_message(b"ns_less"), table_message(b"missing")],
        )
        assert len(found["table_schema"]) == 1
        status = ask(
            "GetClusterStatus",
            admin_messages.GET_CLUSTER_STATUS_RESPONSE,
            admin_messages.GET_CLUSTER_STATUS_REQUEST,
        )["cluster_status"]
    assert len(status["live_servers"]) == 4
    assert sum(len(one["server_load"].get("region_loads", ())) for one in status["live_servers"]) >= 2 + 2 * 2 + 3


def test_dead_server_hangs_up_and_a_hung_one_is_silent_until_it_wakes() -> None:
    with FakeCluster(servers=3, meta_replicas=1) as cluster:
        front = cluster.serve(thrift1_port=None, thrift2_port=None, rpc_port=0)
        with registry(front) as client:
            nodes = client.asked("GetBootstrapNodes", messages.GET_BOOTSTRAP_NODES_RESPONSE)["server_name"]
        codes = {str(server.name.start_code): host for host, server in cluster.servers_by_host.items()}
        ports = {codes[str(node["start_code"])]: node["port"] for node in nodes}
        doomed, hung = [host for host in ports if host != cluster.meta_server(0)]
        with Client(ports[doomed], "ClientMetaService") as client, Client(ports[hung], "ClientMetaService") as silent:
            assert client.call("GetMetaRegionLocations").exception is None
            cluster.kill(doomed)
            client.send("GetMetaRegionLocations")
            assert client.receive() is None
            cluster.pause(hung, keeps_session=True)
            number = silent.send("GetMetaRegionLocations")
            with registry(front) as other:  # others are not held up
                assert other.call("GetMetaRegionLocations").exception is None
            cluster.resume(hung)
            answer = silent.receive()
            assert answer is not None
            assert answer.call_id == number
        with Client(ports[doomed], "ClientMetaService") as client:
            assert client.receive() is None
