"""The few calls that are made all the time, coded in a straight line: gets, puts, pages of scans.

The tables of :mod:`messages` say the same and cost several times as much; tests hold the two together.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import repeat

from metaclient.model import LATEST_TIMESTAMP, Durability, Get, Put, Result
from metaclient.wire.rpc.cellblock import PutWriter, decode_cells
from metaclient.wire.rpc.framing import Response
from metaclient.wire.rpc.messages import COLUMN, GET, GET_RESPONSE, MUTATION, REGION_SPECIFIER, SCAN_RESPONSE
from metaclient.wire.rpc.mutations import Simple, mutation_message
from metaclient.wire.rpc.names import region_message
from metaclient.wire.rpc.protobuf import ProtocolError, decode, delimited, encode, read_varint, varint
from metaclient.wire.rpc.queries import columns_message, get_message, result_from

_new = tuple.__new__
_SHORT = 0x7F - 2
#: A GetResponse that says no more than how many cells follow, and whether they are stale -> these two. There are few.
_heads: dict[bytes, tuple[int, bool]] = {}
_HEADS_MAX = 1024
_HEAD_BYTES_MAX = 16
_COUNTED = {"associated_cell_count", "stale", "partial"}
_COUNT = 0x08  # cells_per_result
#: A run of counts, or of flags (partial_flag_per_result), of one byte each.
_RUN = re.compile(rb"(?:\x08[\x00-\x7f])+|(?:\x38[\x00-\x7f])+", re.DOTALL)

__all__ = ["ScanAnswer", "get_param", "get_result", "mutate_param", "mutation_param", "region_prefix", "scan_answer"]


@lru_cache(maxsize=65536)
def region_prefix(name: bytes) -> bytes:
    """Field 1 of every call on a region."""
    return b"\x0a" + delimited(encode(REGION_SPECIFIER, region_message(name)))


@lru_cache(maxsize=1024)
def _get_columns(columns: tuple[bytes, ...]) -> bytes:
    return b"".join(b"\x12" + delimited(encode(COLUMN, one)) for one in columns_message(columns))


def get_param(region_name: bytes, get: Get) -> bytes:
    """A GetRequest. Most are of a whole row, and short enough for lengths of one byte."""
    row = get.row
    if (
        get.filter is None
        and not get.existence_only
        and not get.min_timestamp
        and get.max_timestamp == LATEST_TIMESTAMP
    ):
        size = len(row)
        if size < _SHORT and not get.columns and get.max_versions == 1:
            return b"%b\x12%c\x0a%c%b" % (region_prefix(region_name), size + 2, size, row)
        made = b"\x0a" + varint(size) + row
        if get.columns:
            made += _get_columns(get.columns)
        if get.max_versions != 1:
            made += b"\x30" + varint(get.max_versions)
    else:
        made = encode(GET, get_message(get))
    return region_prefix(region_name) + b"\x12" + varint(len(made)) + made


def get_result(row: bytes, response: Response) -> Result:
    """The Result of a GetResponse, whose cells stand behind it."""
    _, data, at, end, _ = response
    head = _heads.get(data[at:end])
    if head is None:
        return _get_result(row, data, at, end)
    count, is_stale = head
    found, cells, stop = decode_cells(data, end, len(data), count)
    if stop != len(data):
        raise ProtocolError(f"an answer with {len(data) - stop} bytes of cells too many")
    return _new(Result, (found or row, cells, is_stale, False, None, None))


def _get_result(row: bytes, data: bytes, at: int, end: int) -> Result:
    message = decode(GET_RESPONSE, data, at, end).get("result", {})
    result, stop = result_from(message, row, data, end, len(data))
    if stop != len(data):
        raise ProtocolError(f"an answer with {len(data) - stop} bytes of cells too many")
    if end - at <= _HEAD_BYTES_MAX and message.keys() <= _COUNTED and not message.get("partial"):
        if len(_heads) >= _HEADS_MAX:
            _heads.clear()
        _heads[data[at:end]] = max(0, message.get("associated_cell_count", 0)), result.is_stale
    return result


def mutation_param(mutation: Simple, writer: PutWriter) -> tuple[bytes, bytes]:
    """A MutationProto, and its cells for the block."""
    if type(mutation) is Put and mutation.durability is Durability.USE_DEFAULT and mutation.ttl_ms is None:
        row, cells = mutation.row, mutation.cells
        return b"\x0a%b%b\x10\x02\x40%b" % (varint(len(row)), row, varint(len(cells))), writer.cells(row, cells)
    message, block = mutation_message(mutation)
    return encode(MUTATION, message), block


def mutate_param(region_name: bytes, mutation: Simple, nonce_group: int = 0) -> tuple[bytes, bytes]:
    """A MutateRequest without a condition, and its cell block."""
    body, cells = mutation_param(mutation, PutWriter())
    made = region_prefix(region_name) + b"\x12" + varint(len(body)) + body
    if getattr(mutation, "nonce", None) is not None:
        made += b"\x20" + varint(nonce_group)
    return made, cells


class ScanAnswer:
    """A ScanResponse: what it says of the scanner, and how its cells are cut into results."""

    __slots__ = (
        "counts",
        "cursor_row",
        "is_heartbeat",
        "is_stale",
        "more_in_region",
        "more_results",
        "mvcc_read_point",
        "partials",
        "results",
        "scanner_id",
        "ttl_ms",
    )

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.partials: list[bool] = []
        self.results: list[Result] = []  # of a server that put cells into the message
        self.scanner_id: int | None = None
        self.more_results: bool | None = None
        self.more_in_region: bool | None = None
        self.is_stale = False
        self.is_heartbeat = False
        self.ttl_ms = 0
        self.mvcc_read_point = 0
        self.cursor_row: bytes | None = None


def scan_answer(data: bytes, at: int, end: int) -> ScanAnswer:
    """The ScanResponse at ``data[at:end]``. Counts and flags, a tag and a byte each, are taken in runs."""
    made = ScanAnswer()
    rest: list[bytes] = []
    while at < end:
        run = _RUN.match(data, at, end)
        if run is not None:
            values = data[at + 1 : run.end() : 2]
            if data[at] == _COUNT:
                made.counts += values
            else:
                made.partials += map(bool, values)
            at = run.end()
            continue
        stop = _field_end(data, at, end)
        if data[at] == _COUNT:
            made.counts.append(read_varint(data, at + 1, end)[0])
        else:
            rest.append(data[at:stop])
        at = stop
    _fill(made, b"".join(rest), data, end)
    return made


def _field_end(data: bytes, at: int, end: int) -> int:
    tag, at = read_varint(data, at, end)
    match tag & 7:
        case 0:
            at = read_varint(data, at, end)[1]
        case 2:
            size, at = read_varint(data, at, end)
            at += size
        case 1:
            at += 8
        case 5:
            at += 4
        case kind:
            raise ProtocolError(f"ScanResponse has a field of wire type {kind}, which HBase never sends")
    if at > end:
        raise ProtocolError(f"ScanResponse is cut short: a field ends at byte {at} of {end}")
    return at


def _fill(made: ScanAnswer, rest: bytes, data: bytes, block_at: int) -> None:
    fields = decode(SCAN_RESPONSE, rest)
    made.scanner_id = fields.get("scanner_id")
    made.more_results = fields.get("more_results")
    made.more_in_region = fields.get("more_results_in_region")
    made.is_stale = fields.get("stale", False)
    made.is_heartbeat = fields.get("heartbeat_message", False)
    made.ttl_ms = fields.get("ttl", 0)
    made.mvcc_read_point = fields.get("mvcc_read_point", 0)
    made.cursor_row = fields.get("cursor", {}).get("row")
    made.partials += fields.get("partial_flag_per_result", ())
    for message in fields.get("results", ()):
        result, _ = result_from(message, b"", data, block_at, block_at)
        made.results.append(result._replace(is_stale=made.is_stale) if made.is_stale else result)
    if len(made.partials) < len(made.counts):
        made.partials += repeat(False, len(made.counts) - len(made.partials))
