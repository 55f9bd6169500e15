"""The most frequent calls, encoded and decoded without the field tables: gets, puts, pages of scans.

The tables of :mod:`metaclient.wire.rpc.messages` give the same bytes and cost several times as much; tests compare
them. The tags come from these tables.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import repeat

from metaclient.model import LATEST_TIMESTAMP, Durability, Get, Put, Result
from metaclient.protobuf import ProtocolError, decode, delimited, encode, read_varint, skip_field, varint
from metaclient.wire.rpc.cellblock import PutWriter, decode_cells
from metaclient.wire.rpc.framing import Response
from metaclient.wire.rpc.messages import (
    COLUMN,
    GET,
    GET_REQUEST,
    GET_RESPONSE,
    MUTATE_PUT,
    MUTATE_REQUEST,
    MUTATION,
    REGION_SPECIFIER,
    SCAN_RESPONSE,
)
from metaclient.wire.rpc.mutations import Simple, mutation_message
from metaclient.wire.rpc.names import region_message
from metaclient.wire.rpc.queries import columns_message, get_message, result_from

_new = tuple.__new__
_SHORT = 0x7F - 2
#: GetResponses that hold only the number of cells and the stale flag -> these two values. There are few.
_heads: dict[bytes, tuple[int, bool]] = {}
_HEADS_MAX = 1024
_HEAD_BYTES_MAX = 16
_COUNTED = {"associated_cell_count", "stale", "partial"}
(_COUNT,), (_FLAG,) = SCAN_RESPONSE.tag("cells_per_result"), SCAN_RESPONSE.tag("partial_flag_per_result")
#: A run of counts, or of flags, of one byte each.
_RUN = re.compile(b"(?:\\x%02x[\\x00-\\x7f])+|(?:\\x%02x[\\x00-\\x7f])+" % (_COUNT, _FLAG), re.DOTALL)
#: Tags, and formats that begin with them. The field ``region`` has the same tag in all requests.
_REGION, _GET, _GET_ROW = GET_REQUEST.tag("region"), GET_REQUEST.tag("get"), GET.tag("row")
_GET_COLUMN, _GET_VERSIONS = GET.tag("column"), GET.tag("max_versions")
_GET_WHOLE_ROW = b"%b" + _GET + b"%c" + _GET_ROW + b"%c%b"
_MUTATION, _NONCE_GROUP = MUTATE_REQUEST.tag("mutation"), MUTATE_REQUEST.tag("nonce_group")
_PUT = b"%b%%b%%b%b%c%b%%b" % (
    MUTATION.tag("row"),
    MUTATION.tag("mutate_type"),
    MUTATE_PUT,
    MUTATION.tag("associated_cell_count"),
)

__all__ = [
    "ScanResponse",
    "decode_get",
    "decode_scan",
    "encode_get",
    "encode_mutate",
    "encode_mutation",
    "encode_region",
]


@lru_cache(maxsize=65536)
def encode_region(name: bytes) -> bytes:
    """Return the field ``region``, with which every call on a region begins."""
    return _REGION + delimited(encode(REGION_SPECIFIER, region_message(name)))


@lru_cache(maxsize=1024)
def _get_columns(columns: tuple[bytes, ...]) -> bytes:
    return b"".join(_GET_COLUMN + delimited(encode(COLUMN, one)) for one in columns_message(columns))


def encode_get(region_name: bytes, get: Get) -> bytes:
    """Return a GetRequest. Most read a whole row, and are short enough for lengths of one byte."""
    row = get.row
    if (
        get.filter is None
        and not get.existence_only
        and not get.min_timestamp
        and get.max_timestamp == LATEST_TIMESTAMP
    ):
        size = len(row)
        if size < _SHORT and not get.columns and get.max_versions == 1:
            return _GET_WHOLE_ROW % (encode_region(region_name), size + 2, size, row)
        made = _GET_ROW + varint(size) + row
        if get.columns:
            made += _get_columns(get.columns)
        if get.max_versions != 1:
            made += _GET_VERSIONS + varint(get.max_versions)
    else:
        made = encode(GET, get_message(get))
    return encode_region(region_name) + _GET + varint(len(made)) + made


def decode_get(row: bytes, response: Response) -> Result:
    """Return the Result of a GetResponse, whose cells are in the cell block."""
    _, data, at, end, _ = response
    head = _heads.get(data[at:end])
    if head is None:
        return _decode_get_slowly(row, data, at, end)
    count, is_stale = head
    found, cells, stop = decode_cells(data, end, len(data), count)
    if stop != len(data):
        raise ProtocolError(f"the response to a get has {len(data) - stop} bytes of cells too many")
    return _new(Result, (found or row, cells, is_stale, False, None, None))


def _decode_get_slowly(row: bytes, data: bytes, at: int, end: int) -> Result:
    message = decode(GET_RESPONSE, data, at, end).get("result", {})
    result, stop = result_from(message, row, data, end, len(data))
    if stop != len(data):
        raise ProtocolError(f"the response to a get has {len(data) - stop} bytes of cells too many")
    if end - at <= _HEAD_BYTES_MAX and message.keys() <= _COUNTED and not message.get("partial"):
        if len(_heads) >= _HEADS_MAX:
            _heads.clear()
        _heads[data[at:end]] = max(0, message.get("associated_cell_count", 0)), result.is_stale
    return result


def encode_mutation(mutation: Simple, writer: PutWriter) -> tuple[bytes, bytes]:
    """Return a MutationProto, and its cells for the cell block."""
    if (
        type(mutation) is Put
        and mutation.durability is Durability.USE_DEFAULT
        and mutation.ttl_ms is None
        and not mutation.cluster_ids
    ):
        row, cells = mutation.row, mutation.cells
        return _PUT % (varint(len(row)), row, varint(len(cells))), writer.cells(row, cells)
    message, block = mutation_message(mutation)
    return encode(MUTATION, message), block


def encode_mutate(region_name: bytes, mutation: Simple, nonce_group: int = 0) -> tuple[bytes, bytes]:
    """Return a MutateRequest without a condition, and its cell block."""
    body, cells = encode_mutation(mutation, PutWriter())
    made = encode_region(region_name) + _MUTATION + varint(len(body)) + body
    if getattr(mutation, "nonce", None) is not None:
        made += _NONCE_GROUP + varint(nonce_group)
    return made, cells


class ScanResponse:
    """A decoded ScanResponse: the state of the scanner, and the number of cells per result."""

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
        self.results: list[Result] = []  # only of a server that sends cells in the message
        self.scanner_id: int | None = None
        self.more_results: bool | None = None
        self.more_in_region: bool | None = None
        self.is_stale = False
        self.is_heartbeat = False
        self.ttl_ms = 0
        self.mvcc_read_point = 0
        self.cursor_row: bytes | None = None


def decode_scan(data: bytes, at: int, end: int) -> ScanResponse:
    """Return the ScanResponse at ``data[at:end]``. Runs of counts and of flags, one byte each, are read at once."""
    made = ScanResponse()
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
        tag, value_at = read_varint(data, at, end)
        stop = skip_field(SCAN_RESPONSE, tag, data, value_at, end)
        if tag == _COUNT:
            made.counts.append(read_varint(data, value_at, end)[0])
        else:
            rest.append(data[at:stop])
        at = stop
    _fill(made, b"".join(rest), data, end)
    return made


def _fill(made: ScanResponse, rest: bytes, data: bytes, block_at: int) -> None:
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
