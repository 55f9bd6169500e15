"""Every decoder of bytes from the network, with recorded frames to begin from and the exceptions that it may raise."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import error as struct_error
from typing import Any
from uuid import UUID

import pyarrow
from thriftpy2.protocol import TBinaryProtocol, TCompactProtocol
from thriftpy2.thrift import TException, TMessageType
from thriftpy2.transport import TMemoryBuffer

from metaclient.backend import PutPage
from metaclient.changes import decoding
from metaclient.config.security import Protection
from metaclient.errors import MetaClientError, RegionMoved, Throttled
from metaclient.hfile import FileSettings, HFile, HFileWriter, StoragePath
from metaclient.hfile.compression import compress, decompress
from metaclient.hfile.encodings import decode_encoded
from metaclient.hfile.index import IndexEntry, decode_node, decode_root, encode_node, encode_root
from metaclient.hfile.key_values import CellLayout, decode_cells
from metaclient.hfile.snapshot import MANIFEST, decode_manifest
from metaclient.hfile.trailer import decode_info, decode_trailer, encode_info
from metaclient.model import (
    Append,
    Cell,
    Check,
    Delete,
    Durability,
    FamilyDescriptor,
    Get,
    Increment,
    Put,
    RegionInfo,
    Result,
    Scan,
    TableDescriptor,
)
from metaclient.protobuf import decode, encode
from metaclient.replication_peers import PeerConfig
from metaclient.runtime import ThreadRuntime
from metaclient.watch.http import Gate, HttpRefusal, parse_request
from metaclient.wire import filter_language, java_errors, zookeeper_reads
from metaclient.wire.rpc import filters, framing, messages, replication_peers
from metaclient.wire.rpc.cellblock import decode_rows, encode_cells
from metaclient.wire.rpc.key_arrays import decode_key_arrays
from metaclient.wire.rpc.mutations import condition_from, condition_message, mutation_from, mutation_message
from metaclient.wire.rpc.names import region_info_message
from metaclient.wire.rpc.queries import get_from, get_message, scan_from, scan_message
from metaclient.wire.rpc.replication import (
    ShippedEntry,
    WalKey,
    decode_key_columns,
    decode_replicate,
    encode_replicate,
)
from metaclient.wire.rpc.schemas import table_schema_message
from metaclient.wire.sasl import messages as sasl_messages
from metaclient.wire.sasl.digest_layers import DigestLayer
from metaclient.wire.sasl.digest_md5 import DigestClient, DigestServer
from metaclient.wire.sasl.handshake import negotiate
from metaclient.wire.sasl.stream import SaslStream
from metaclient.wire.thrift import structs
from metaclient.wire.thrift.idl import thrift1, thrift2
from metaclient_fake.front.pending_bytes import PendingBytes
from metaclient_fake.front.service import IllegalArgument, Service
from metaclient_thrift.binary import Rows1, Rows2, read_row, read_rows
from metaclient_thrift.errors import CallAttempt, translate_error
from metaclient_thrift.link import Link
from metaclient_thrift.messages import next_number
from metaclient_thrift.row_pages import read_page
from metaclient_thrift.url import Gateway
from spark_connector.conditions.sql_text import parse_where

__all__ = ["DECODERS", "Decoder"]

T1, T2 = thrift1(), thrift2()


@dataclass(frozen=True)
class Decoder:
    """``run`` decodes one input; it returns, or raises one of ``allowed``."""

    name: str
    seeds: Sequence[bytes]
    run: Callable[[bytes], object]
    allowed: tuple[type[BaseException], ...] = (MetaClientError,)


CELLS = (Cell(b"cf:a", 7, b"value"), Cell(b"cf:b", 8, b""), Cell(b"d:\xff", 9, b"x" * 40))
MUTATIONS = (
    Put(b"row", CELLS, Durability.SKIP_WAL, 1000),
    Delete(b"row", (), 5),
    Increment(b"row", ((b"cf:n", 3),)),
    Append(b"row", ((b"cf:n", b"x"),)),
)
FILTERS = (
    b"PrefixFilter('a') AND (PageFilter(2) OR SKIP ValueFilter(=, 'regexstring:x.*'))",
    b"SingleColumnValueFilter('cf', 'q', >=, 'binary:5', true, false)",
    b"WHILE TimestampsFilter(1, 2, 3) OR MultipleColumnPrefixFilter('a', 'b')",
    b"ColumnRangeFilter('a', true, '', false) AND ColumnPaginationFilter(10, 99)",
)
CONDITIONS = (
    b"a = 1 AND (b <> 'x' OR NOT c IS NULL)",
    b"a BETWEEN -4.2 AND 4e2 OR b LIKE 'a%' ESCAPE '!'",
    b"`a b` IN (X'00ff', DATE '2024-01-02', TIMESTAMP '2024-01-02 03:04:05Z', DECIMAL '1.5', 7L)",
)
TEXTS = (
    b"a.b.RegionMovedException: hostname=rs2 port=16020 startCode=17. As of locationSeqNum=42.\n\tat a.B(C:1)",
    b"Failed after attempts=2, exceptions:\n2024-01-01T00:00:00Z, RpcRetryingCaller{x}, a.b.C: a.BException: t",
    b"Failed 2 actions: org.apache.hadoop.hbase.NotServingRegionException: 2 times, servers with issues: h",
    b"number of requests exceeded - wait 1mins, 5sec, 20ms",
)


# -- HBase's RPC ---------------------------------------------------------------------------------------------------


def _frames(data: bytes) -> None:
    reader = framing.FrameReader(1 << 20)
    for at in range(0, len(data), 1_000):
        for frame in reader.feed(data[at : at + 1_000]):
            assert len(frame) <= 1 << 20


def _mutation(data: bytes) -> None:
    message = decode(messages.MUTATION, data)
    mutation_from(message, encode_cells(b"row", CELLS), 0)


def _filter(data: bytes) -> None:
    filters.to_text(decode(messages.FILTER, data))


def _replicated(data: bytes) -> None:
    """Decode a call of ReplicateWALEntry: a length of 2 bytes, the request, and the cell block."""
    size = int.from_bytes(data[:2], "big")
    decode_replicate(data[2 : 2 + size], data[2 + size :])


def _changed(data: bytes) -> None:
    """Decode a call as a feed of changes does: its keys by column, then the rows of each entry."""
    size = int.from_bytes(data[:2], "big")
    param, block, at = data[2 : 2 + size], data[2 + size :], 0
    keys = decode_key_columns(param)
    assert keys == decode_key_arrays(param), "numpy decodes other keys than the plain decoder"
    for count in keys.counts:
        _, at = decoding.decode_rows(block, at, len(block), count)


def _replicated_seeds() -> list[bytes]:
    key = WalKey("0123456789abcdef" * 2, b"ns:t", 4, 1_700_000_000_000, ((b"cf", 1),), (UUID(int=7),), (1, 2))
    entry = ShippedEntry(key, tuple((b"row", cell) for cell in CELLS))
    calls = (encode_replicate([entry]), encode_replicate([entry._replace(cells=()), entry, entry]))
    return [len(param).to_bytes(2, "big") + param + block for param, block in calls]


def _rpc_seeds() -> list[bytes]:
    get = encode(messages.GET_REQUEST, {"region": {"type": 1, "value": b"r"}, "get": get_message(Get(b"r"))})
    return [
        framing.request(7, b"Get", get, timeout_ms=500)[4:],
        framing.request(2**31, b"Multi", b"abc", encode_cells(b"r", CELLS), 3)[4:],
    ]


def _response_seeds() -> list[bytes]:
    return [
        framing.response(7, b"answer", encode_cells(b"r", CELLS))[4:],
        framing.response(300_000, b"")[4:],
        framing.error_response(5, "java.io.IOException", TEXTS[0].decode(), do_not_retry=True)[4:],
    ]


# -- SASL ----------------------------------------------------------------------------------------------------------


class _Answered:
    """A stream whose other side has sent ``data`` and has hung up."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, size_max: int, deadline: float) -> bytes:
        found, self._data = self._data[:size_max], self._data[size_max:]
        return found

    def write(self, data: bytes, deadline: float) -> None: ...

    def is_silent(self) -> bool:
        return False

    def close(self) -> None: ...

    def leave_to_parent(self) -> None: ...


def _digest_client() -> DigestClient:
    return DigestClient("user", "password", cnonce="cnonce", protections=tuple(Protection))


def _digest_server() -> DigestServer:
    return DigestServer(lambda user: "password", nonce="nonce")


def _handshake_seeds() -> list[bytes]:
    server, client = _digest_server(), _digest_client()
    challenge = server.challenge()
    proof = server.evaluate(client.step(challenge) or b"")
    return [
        sasl_messages.encode_challenge(challenge) + sasl_messages.encode_challenge(proof),
        sasl_messages.encode_refusal("javax.security.sasl.SaslException", "GSS initiate failed"),
        bytes.fromhex("00000000ffffffa8"),
    ]


def _handshake(data: bytes) -> None:
    negotiate(_Answered(data), _digest_client(), preamble=b"", now=lambda: 0.0, deadline=1.0)


def _wrapped_seeds() -> list[bytes]:
    layer = DigestLayer(b"secret", cipher="rc4", is_client=False)
    return [
        b"".join(sasl_messages.encode_token(layer.wrap(one)) for one in (b"a", b"", b"b" * 100)),
        sasl_messages.encode_refusal("a.B", None),
    ]


def _wrapped(data: bytes) -> None:
    stream = SaslStream(_Answered(data), DigestLayer(b"secret", cipher="rc4", is_client=True), lambda: 0.0)
    while stream.read(50, 1.0):
        pass


# -- Thrift --------------------------------------------------------------------------------------------------------


class Peer:
    """A socket or stream whose other side has sent ``data`` and has hung up."""

    is_pipelined = True

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)

    def recv(self, size: int) -> bytes:
        found, self._data = bytes(self._data[:size]), self._data[size:]
        return found

    def read(self, size: int) -> bytes:
        found = self.recv(size)
        if not found:
            raise ConnectionResetError("the other side hung up")
        return found

    def write(self, data: bytes) -> None: ...

    def sendall(self, data: bytes) -> None: ...

    def flush(self) -> None: ...

    def shutdown(self, how: int) -> None: ...


def _message(method: str, kind: int, body: Any, *, is_compact: bool = False, number: int = 1) -> bytes:
    buffer = TMemoryBuffer()
    protocol = (TCompactProtocol if is_compact else TBinaryProtocol)(buffer)
    protocol.write_message_begin(method, kind, number)
    body.write(protocol)
    protocol.write_message_end()
    return bytes(buffer.getvalue())


def _result2() -> Any:
    values = [T2.TColumnValue(*one.column.split(b":", 1), one.value, one.timestamp, None, 4) for one in CELLS]
    return T2.TResult(row=b"row", columnValues=values, stale=False, partial=False)


def _result1() -> Any:
    return T1.TRowResult(row=b"row", columns={one.column: T1.TCell(one.value, one.timestamp) for one in CELLS})


def _replies(service: Any, method: str, success: Any, error: Any, *, is_compact: bool = False) -> list[bytes]:
    good, bad = getattr(service, f"{method}_result")(), getattr(service, f"{method}_result")()
    good.success, bad.io = success, error
    return [_message(method, TMessageType.REPLY, one, is_compact=is_compact) for one in (good, bad)]


def _by_hand(service: Any, method: str, rows: Callable[[], Any], read: Any) -> Callable[[bytes], object]:
    def run(data: bytes) -> None:
        link = Link(Gateway("h", 1), Peer(data), service, rows=rows())  # type: ignore[arg-type]  # what it uses
        answer = link.ask(method, b"", read)
        for one in answer if isinstance(answer, Sequence) and not isinstance(answer, Result) else [answer]:
            assert isinstance(one.row, bytes)
            assert all(isinstance(cell.value, bytes) and isinstance(cell.timestamp, int) for cell in one.cells)

    return run


def _by_thriftpy2(*, is_compact: bool, is_framed: bool = False) -> Callable[[bytes], object]:
    def run(data: bytes) -> None:
        sent = len(data).to_bytes(4, "big") + data if is_framed else data
        link = Link(Gateway("h", 1), Peer(sent), T2.THBaseService, is_compact=is_compact, is_framed=is_framed)  # type: ignore[arg-type]
        result = structs.result_of(b"", link.call("get", b"t", T2.TGet(b"r")))
        assert all(isinstance(cell.value, bytes) for cell in result.cells)

    return run


class _Refusing:
    """A handler of a Thrift service that refuses each call."""

    def __getattr__(self, name: str) -> Callable[..., object]:
        def refuse(*args: object) -> object:
            raise IllegalArgument(name)

        return refuse


_runtime = ThreadRuntime()
_service = Service(
    T2.THBaseService,
    _Refusing(),
    failure=lambda method, args, error: error,
    now=lambda: 0.0,
    pending=PendingBytes(_runtime, 1 << 20),
    message_bytes_max=1 << 20,
)


def _request_seeds() -> list[bytes]:
    service, calls = T2.THBaseService, []
    for is_compact in (False, True):
        for name, args in (
            ("get", (b"t", structs.get_of(Get(b"r", (b"cf:a",)), 1))),
            ("put", (b"t", structs.put_of(MUTATIONS[0]))),  # type: ignore[arg-type]  # the first is a put
            ("openScanner", (b"t", structs.scan_of(Scan(b"a", b"z"), b"a", b"z", None))),
            ("nope", None),
        ):
            body = service.get_args(b"t") if args is None else getattr(service, f"{name}_args")(*args)
            call = _message(name, TMessageType.CALL, body, is_compact=is_compact, number=next_number(0))
            calls += [call, len(call).to_bytes(4, "big") + call]
    return calls


def _error(data: bytes) -> None:
    text = data.decode(errors="replace")
    translate_error(T2.TIOError(message=text), CallAttempt("get", b"t", is_write=True))
    for kind in (RegionMoved, Throttled):
        java_errors.make_error(kind, text, may_have_applied=False, detail=text)


def _check_page_request(data: bytes) -> None:
    request = parse_request(data)
    for gate in _gates:
        gate.check(request, "127.0.0.1")
    assert request.body_length >= 0


_gates = (Gate("127.0.0.1", None), Gate("0.0.0.0", "t" * 16))
_OF_REPLIES = (MetaClientError, OSError, EOFError, TException)
_IO1, _IO2 = T1.IOError(message=TEXTS[1].decode()), T2.TIOError(message=TEXTS[1].decode(), canRetry=True)

# -- store files -----------------------------------------------------------------------------------------------------

_KEY = b"\0\3row\1da" + bytes(7) + b"\7\4"
#: A cell with a value, tags and a sequence id.
_PLAIN = len(_KEY).to_bytes(4, "big") + b"\0\0\0\1" + _KEY + b"v" + b"\0\2tt" + b"\x8e\1\2"
_ENTRIES = [IndexEntry(_KEY, 0, 100), IndexEntry(_KEY, 100, 90)]
_SIZE = bytes(4)
_ENCODED = (
    b"\0\2" + _SIZE + bytes([len(_KEY), 1, 0]) + _KEY + b"v\0" + b"\1\1" + bytes([len(_KEY) - 1]) + b"\4w\0",
    b"\0\3" + _SIZE + b"\1d" + bytes([0, len(_KEY), 1, 0]) + b"\0\3rowa\7\4v\0" + b"\7\4w" + b"a\7x\0",
    b"\0\4" + _SIZE + bytes([0, len(_KEY), 1, 0]) + _KEY + b"v\0" + b"\x3f\4" + b"wa\7x\0",
    b"\0\7" + len(_KEY + b"\0v").to_bytes(4, "big") + _KEY + b"v\0\0\0\1\0\0\0\0" + bytes([len(_KEY) + 10]),
)


def _store_file(data: bytes) -> None:
    file = HFile(pyarrow.BufferReader(data), "fuzz")
    for _ in file.batches(b"0", b"2"):
        pass


def _store_file_seeds() -> list[bytes]:
    made = []
    for compression in ("NONE", "GZ", "SNAPPY"):
        sink = io.BytesIO()
        writer = HFileWriter(sink, FileSettings(b"d", compression, block_bytes=60))
        binary = pyarrow.large_binary()
        rows, values = pyarrow.array([b"1", b"2", b"3"], binary), pyarrow.array([b"x" * 30] * 3, binary)
        writer.append_page(PutPage(rows, pyarrow.array([7, 7, 7]), (b"d:a",), (values,)))
        writer.close()
        made.append(sink.getvalue())
    return made


def _manifest() -> bytes:
    info = region_info_message(RegionInfo(b"t", b"a", b"b", 1))
    split = {"name": "0a." + "1" * 32, "reference": {"splitkey": _KEY, "range": 0}}
    link = {"name": "ns=u=" + "2" * 32 + "-0b"}
    files = [{"family_name": b"d", "store_files": [split, link]}]
    table = table_schema_message(TableDescriptor(b"t", (FamilyDescriptor(b"d"),)))
    return encode(MANIFEST, {"table_schema": table, "region_manifests": [{"region_info": info, "family_files": files}]})


def _snapshot_regions(data: bytes) -> None:
    decode_manifest(StoragePath.of("/hbase"), data, "fuzz")


def _compressed(data: bytes) -> None:
    decompress(("SNAPPY", "LZ4", "GZ", "ZSTD")[data[0] % 4] if data else "GZ", memoryview(data)[1:], 3000, "fuzz")


DECODERS = (
    Decoder("hfile", _store_file_seeds(), _store_file),
    Decoder("hfile-trailer", [one[-4096:] for one in _store_file_seeds()], lambda data: decode_trailer("fuzz", data)),
    Decoder("hfile-info", [encode_info({b"A": b"1", b"B": b""})], lambda data: decode_info("fuzz", data)),
    Decoder("hfile-cells", [_PLAIN * 3], lambda data: decode_cells(data, CellLayout(has_tags=True), "fuzz")),
    Decoder("hfile-encoded", _ENCODED, lambda data: decode_encoded(data, CellLayout(), "fuzz")),
    Decoder("hfile-index", [encode_node(_ENTRIES)], lambda data: decode_node("fuzz", data)),
    Decoder("hfile-root", [encode_root(_ENTRIES)], lambda data: decode_root("fuzz", data, 2)),
    Decoder(
        "hfile-compressed",
        [bytes([at]) + compress(name, b"abc" * 1000) for at, name in enumerate(("SNAPPY", "LZ4", "GZ"))],
        _compressed,
    ),
    Decoder("snapshot-manifest", [_manifest()], _snapshot_regions),
    Decoder("rpc-frames", [framing.framed(one) * 3 for one in _response_seeds()], _frames),
    Decoder("rpc-response", _response_seeds(), framing.parse_response),
    Decoder("rpc-request", _rpc_seeds(), framing.parse_request),
    Decoder("rpc-preamble", [framing.preamble(), framing.REGISTRY_PREAMBLE], framing.parse_preamble),
    Decoder("rpc-header", [framing.connection_header("ClientService", "me")[4:]], framing.parse_connection_header),
    Decoder(
        "rpc-scan",
        [encode(messages.SCAN, scan_message(Scan(b"a", b"z"), max_result_bytes=1000))],
        lambda data: scan_from(decode(messages.SCAN, data)),
    ),
    Decoder(
        "rpc-get",
        [encode(messages.GET, get_message(Get(b"r", (b"cf:a", b"d"))))],
        lambda data: get_from(decode(messages.GET, data)),
    ),
    Decoder("rpc-mutation", [encode(messages.MUTATION, mutation_message(one)[0]) for one in MUTATIONS], _mutation),
    Decoder(
        "rpc-condition",
        [encode(messages.CONDITION, condition_message(Check(b"r", b"cf:a", b"v")))],
        lambda data: condition_from(decode(messages.CONDITION, data)),
    ),
    Decoder("rpc-filter", [encode(messages.FILTER, filters.from_text(one)) for one in FILTERS], _filter),
    Decoder("cell-block", [encode_cells(b"row", CELLS)], lambda data: list(decode_rows(data, 0, len(data)))),
    Decoder("rpc-replicate", _replicated_seeds(), _replicated),
    Decoder("changes", _replicated_seeds(), _changed),
    Decoder(
        "znode-peer",
        [replication_peers.config_node(PeerConfig(cluster_key="zk:2181:/hbase", tables={b"t": (b"cf",), b"n:u": ()}))],
        replication_peers.config_from_node,
    ),
    Decoder("znode-peer-state", [b"PBUF\x08\x01", b"\xff\0\0\0\1aPBUF\x08\0"], replication_peers.state_from_node),
    Decoder("znode-position", [replication_peers.position_node(300)], replication_peers.position_from_node),
    Decoder("sasl-handshake", _handshake_seeds(), _handshake),
    Decoder("sasl-wrapped", _wrapped_seeds(), _wrapped),
    Decoder(
        "sasl-response",
        [_digest_client().step(_digest_server().challenge()) or b""],
        lambda data: _digest_server().evaluate(data),
    ),
    Decoder("zookeeper-data", [b"\0\0\0\4name" + bytes(68)], zookeeper_reads.decode_data, (OSError, struct_error)),
    Decoder(
        "zookeeper-names",
        [b"\0\0\0\2\0\0\0\2rs\0\0\0\6master"],
        zookeeper_reads.decode_names,
        (OSError, struct_error, UnicodeDecodeError),
    ),
    Decoder("filter-language", FILTERS, filter_language.parse),
    Decoder("sql-condition", CONDITIONS, lambda data: parse_where(data.decode("latin-1"))),
    Decoder("error-text", TEXTS, _error, ()),
    Decoder(
        "thrift1-rows",
        _replies(T1.Hbase, "getRow", [_result1()] * 3, _IO1),
        _by_hand(T1.Hbase, "getRow", Rows1, read_rows),
        _OF_REPLIES,
    ),
    Decoder(
        "thrift2-rows",
        _replies(T2.THBaseService, "getMultiple", [_result2()] * 3, _IO2),
        _by_hand(T2.THBaseService, "getMultiple", Rows2, read_rows),
        _OF_REPLIES,
    ),
    Decoder(
        "thrift2-page",
        _replies(T2.THBaseService, "getScannerRows", [_result2()] * 10, _IO2),
        _by_hand(T2.THBaseService, "getScannerRows", Rows2, read_page),
        _OF_REPLIES,
    ),
    Decoder(
        "thrift2-row",
        _replies(T2.THBaseService, "get", _result2(), _IO2),
        _by_hand(T2.THBaseService, "get", Rows2, read_row),
        _OF_REPLIES,
    ),
    Decoder(
        "thrift2-binary",
        _replies(T2.THBaseService, "get", _result2(), _IO2),
        _by_thriftpy2(is_compact=False),
        _OF_REPLIES,
    ),
    Decoder(
        "thrift2-framed",
        _replies(T2.THBaseService, "get", _result2(), _IO2),
        _by_thriftpy2(is_compact=False, is_framed=True),
        _OF_REPLIES,
    ),
    Decoder(
        "thrift2-compact",
        _replies(T2.THBaseService, "get", _result2(), _IO2, is_compact=True),
        _by_thriftpy2(is_compact=True),
        _OF_REPLIES,
    ),
    Decoder("fake-thrift-front", _request_seeds(), lambda data: _service.serve(Peer(data)), ()),  # type: ignore[arg-type]
    Decoder(
        "watch-page",
        [
            b"GET /status.json HTTP/1.1\r\nHost: localhost:80\r\nAuthorization: Bearer " + b"t" * 16 + b"\r\n\r\n",
            b"HEAD / HTTP/1.1\r\nHost: [::1]\r\n\r\n",
        ],
        _check_page_request,
        (HttpRefusal,),
    ),
)
