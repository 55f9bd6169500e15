"""The end of an HFile: the fixed trailer, and the map of facts about the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from metaclient.hfile.compression import CODES, name_of
from metaclient.hfile.errors import CorruptFile, refuse
from metaclient.protobuf import BYTES, TEXT, UNSIGNED, Message, ProtocolError, decode, delimited, encode, read_varint

__all__ = ["TRAILER_BYTES", "Trailer", "decode_info", "decode_trailer", "encode_info", "encode_trailer"]

TRAILER_BYTES = 4096
_MAGIC = b'TRABLK"$'
#: Format 3, minor version 3.
_VERSION = (3 << 24 | 3).to_bytes(4, "big")
_MINOR_MIN_OF_2 = 3
_PROTOBUF_MAGIC = b"PBUF"
#: KeyValue.COMPARATOR's class, under which HBase 1 to 3 find the order of cells.
COMPARATOR = "org.apache.hadoop.hbase.KeyValue$KVComparator"
_COMPARATORS = ("KeyValue$KVComparator", "KeyValue$KeyComparator", "CellComparatorImpl", "CellComparator")
_INNER_COMPARATOR = "InnerStoreCellComparator"

_TRAILER = Message(
    "FileTrailerProto",
    (1, "file_info_offset", UNSIGNED),
    (2, "load_on_open_data_offset", UNSIGNED),
    (3, "uncompressed_data_index_size", UNSIGNED),
    (4, "total_uncompressed_bytes", UNSIGNED),
    (5, "data_index_count", UNSIGNED),
    (6, "meta_index_count", UNSIGNED),
    (7, "entry_count", UNSIGNED),
    (8, "num_data_index_levels", UNSIGNED),
    (9, "first_data_block_offset", UNSIGNED),
    (10, "last_data_block_offset", UNSIGNED),
    (11, "comparator_class_name", TEXT),
    (12, "compression_codec", UNSIGNED),
    (13, "encryption_key", BYTES),
)
_PAIR = Message("BytesBytesPair", (1, "first!", BYTES), (2, "second!", BYTES))
_INFO = Message("FileInfoProto", (1, "map_entry*", _PAIR))


@dataclass(frozen=True, slots=True)
class Trailer:
    """The fixed trailer of a file."""

    file_info_offset: int
    load_on_open_offset: int
    index_bytes: int  # uncompressed
    total_bytes: int  # uncompressed
    index_entries: int  # of the root
    cells: int
    index_levels: int
    first_block_offset: int
    last_block_offset: int
    compression: str


def encode_trailer(trailer: Trailer) -> bytes:
    """Return the last bytes of a file."""
    body = encode(
        _TRAILER,
        {
            "file_info_offset": trailer.file_info_offset,
            "load_on_open_data_offset": trailer.load_on_open_offset,
            "uncompressed_data_index_size": trailer.index_bytes,
            "total_uncompressed_bytes": trailer.total_bytes + TRAILER_BYTES,
            "data_index_count": trailer.index_entries,
            "meta_index_count": 0,
            "entry_count": trailer.cells,
            "num_data_index_levels": trailer.index_levels,
            "first_data_block_offset": trailer.first_block_offset,
            "last_data_block_offset": trailer.last_block_offset,
            "comparator_class_name": COMPARATOR,
            "compression_codec": CODES.index(trailer.compression),
        },
    )
    head = _MAGIC + delimited(body)
    return head + bytes(TRAILER_BYTES - len(head) - len(_VERSION)) + _VERSION


def decode_trailer(where: str, data: bytes) -> Trailer:
    """Return the trailer from a file's last ``TRAILER_BYTES``; CorruptFile if it is none, Unsupported for a refusal."""
    if len(data) < TRAILER_BYTES:
        raise CorruptFile(f"{where} has {len(data)} bytes, fewer than the trailer of an HFile")
    major, minor = int.from_bytes(data[-3:], "big"), data[-4]
    if major == 2 and minor >= _MINOR_MIN_OF_2:
        raise refuse(where, "has format 2", "run a major compaction of the table, which rewrites its files")
    if not data.startswith(_MAGIC) or major != 3:
        raise CorruptFile(f"{where} is no HFile of format 3: its trailer is missing or damaged")
    try:
        size, at = read_varint(data, len(_MAGIC), TRAILER_BYTES)
        if at + size > TRAILER_BYTES - len(_VERSION):
            raise ProtocolError(f"a trailer of {size} bytes")
        found = decode(_TRAILER, data, at, at + size)
    except ProtocolError as error:
        raise CorruptFile(f"{where} has a damaged trailer: {error}") from error
    if found.get("encryption_key"):
        raise refuse(where, "is encrypted", "read the table through its servers, which have the key")
    _check_order(where, found.get("comparator_class_name", COMPARATOR))
    return Trailer(
        found.get("file_info_offset", 0),
        found.get("load_on_open_data_offset", 0),
        found.get("uncompressed_data_index_size", 0),
        found.get("total_uncompressed_bytes", 0),
        found.get("data_index_count", 0),
        found.get("entry_count", 0),
        found.get("num_data_index_levels", 1),
        found.get("first_data_block_offset", 0),
        found.get("last_data_block_offset", 0),
        name_of(where, found.get("compression_codec", CODES.index("NONE"))),
    )


def _check_order(where: str, comparator: str) -> None:
    name = comparator.rpartition(".")[2]
    if name not in (*_COMPARATORS, _INNER_COMPARATOR):
        raise refuse(where, f"is sorted by {comparator}", "only tables of users, sorted by key, can be read")


def encode_info(facts: Mapping[bytes, bytes]) -> bytes:
    """Return the data of the block of facts."""
    pairs = [{"first": name, "second": facts[name]} for name in sorted(facts)]
    return _PROTOBUF_MAGIC + delimited(encode(_INFO, {"map_entry": pairs}))


def decode_info(where: str, data: bytes) -> dict[bytes, bytes]:
    """Return the facts of a file.

    >>> decode_info("f", encode_info({b"A": b"1"}))
    {b'A': b'1'}
    """
    if not data.startswith(_PROTOBUF_MAGIC):
        raise refuse(where, "has facts in the format of HBase 0.94", "run a major compaction of the table")
    try:
        size, at = read_varint(data, len(_PROTOBUF_MAGIC), len(data))
        if at + size > len(data):
            raise ProtocolError(f"facts of {size} bytes")
        entries: list[dict[str, Any]] = decode(_INFO, data, at, at + size).get("map_entry", [])
    except ProtocolError as error:
        raise CorruptFile(f"{where} has damaged facts: {error}") from error
    return {one["first"]: one["second"] for one in entries}
