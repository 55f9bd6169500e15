"""Encodes and decodes rows of hbase:meta: a region, the locations of its replicas, its daughters and merge parents.

The key of a region's row is the name of its primary. Family ``info`` has, with the suffix ``_%04X`` for secondaries:

==================== ==========================================================================================
``regioninfo``       ``PBUF`` + protobuf RegionInfo, once for all replicas
``server``           ``host:port``; empty: the replica exists and is not placed
``serverstartcode``  8 bytes, big-endian; without it the server is unknown
``seqnumDuringOpen`` 8 bytes, big-endian; without it -1
``sn``, ``state``    the target of an assignment and its state; not used for locations
``splitA``, ``splitB``, ``merge*``  RegionInfo of daughters and of merge parents
==================== ==========================================================================================

Replicas are written at different times, so any part of a row may be missing. Decoding returns the parts that are
present, and a text that names the missing parts.

Mirrors CatalogFamilyFormat, MetaTableAccessor, RegionInfo and ZKConnectionRegistry of HBase 2.6 and 3.0.

DIVERGENCES
- The row key is compared with the region's name: if they differ, the row gives no location. Java does not compare them.
- If a start code or sequence number is not 8 bytes long, its replica has no location; Java throws.
- A replica exists if the row has any of its three location columns; for Java the row must have ``server_XXXX``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from metaclient import keys, protobuf
from metaclient.model import RegionInfo, RegionLocation, RegionLocations, ServerName, TableState
from metaclient.protobuf import BOOL, BYTES, SIGNED, TEXT, UNSIGNED, Message

__all__ = [
    "META_REGION_SERVER",
    "REGION_INFO",
    "SERVER_NAME",
    "TABLE_NAME",
    "TABLE_STATE",
    "DecodedMetaRow",
    "MetaRegionServer",
    "decode",
    "decode_meta_region_server",
    "decode_region_info",
    "decode_table_state",
    "encode_meta_region_server",
    "encode_region_info",
    "encode_table_state",
    "location_columns",
    "region_columns",
]

_MAGIC = b"PBUF"
_MAGIC_LENGTH = 4
_REGION_INFO = b"info:regioninfo"
_STATE = b"info:state"
_SPLIT_A = b"info:splitA"
_SPLIT_B = b"info:splitB"
_MERGE = b"info:merge"
_NO_SEQNUM = -1
_LONG = struct.Struct(">q")
_ADDRESS_LENGTH_MAX = 255 + 6  # RFC 1035 and a port; keeps garbage out of the cache of server names
_FAULTS_SHOWN_MAX = 3

_ADDRESS = re.compile(rb"([!-+\--~]+):([0-9]{1,5})")
_REPLICA_COLUMN = re.compile(rb"info:(?:server|serverstartcode|seqnumDuringOpen)_([0-9A-F]{4})")

#: ClusterStatus.proto, RegionState.State.
_STATES = (
    *("OFFLINE", "PENDING_OPEN", "OPENING", "OPEN", "PENDING_CLOSE", "CLOSING", "CLOSED", "SPLITTING", "SPLIT"),
    *("FAILED_OPEN", "FAILED_CLOSE", "MERGING", "MERGED", "SPLITTING_NEW", "MERGING_NEW", "ABNORMALLY_CLOSED"),
)


# ---- messages: HBase.proto and ZooKeeper.proto of HBase 2.6. A uint64 that Java reads as a signed long is SIGNED here.

TABLE_NAME = Message("TableName", (1, "namespace!", BYTES), (2, "qualifier!", BYTES))
SERVER_NAME = Message("ServerName", (1, "host_name!", TEXT), (2, "port", UNSIGNED), (3, "start_code", SIGNED))
REGION_INFO = Message(
    "RegionInfo",
    (1, "region_id!", SIGNED),
    (2, "table_name!", TABLE_NAME),
    (3, "start_key", BYTES),
    (4, "end_key", BYTES),
    (5, "offline", BOOL),
    (6, "split", BOOL),
    (7, "replica_id", SIGNED),
)
TABLE_STATE = Message("TableState", (1, "state!", UNSIGNED))
META_REGION_SERVER = Message(
    "MetaRegionServer", (1, "server!", SERVER_NAME), (2, "rpc_version", UNSIGNED), (3, "state", UNSIGNED)
)
#: The table's name stays bytes: the rows of a table have the same bytes, which are decoded once.
_REGION_INFO_OF_ROW = REGION_INFO.with_bytes("table_name")


class DecodedMetaRow(NamedTuple):
    """The content of a row, and its fault. Made once per region of a page: a named tuple costs half of a dataclass."""

    #: None without a usable region info; else as many replicas as the row has columns for, at least the primary.
    locations: RegionLocations | None
    #: Why the row is unusable or incomplete; None when it is complete.
    fault: str | None
    #: The state of the primary: OPEN, CLOSED, ...
    state: str | None
    split_daughters: tuple[RegionInfo, ...] = ()
    merge_parents: tuple[RegionInfo, ...] = ()


@dataclass(frozen=True, slots=True)
class MetaRegionServer:
    """The entry of ZooKeeper for one replica of hbase:meta. ``server`` serves it only if the state is ``OPEN``."""

    server: ServerName
    state: str = "OPEN"
    rpc_version: int = 0


# ---- rows


def decode(row: bytes, columns: Mapping[bytes, bytes]) -> DecodedMetaRow:
    """Return the content of a row of hbase:meta; invalid data gives a fault and missing locations, never an exception.

    >>> here = RegionLocation(RegionInfo(b"t1", region_id=1), ServerName("rs1", 16020, 7), 2)
    >>> columns = region_columns(RegionLocations(here.region, (here, None)))
    >>> decoded = decode(here.region_name, columns)
    >>> decoded.locations.replicas == (here, None), decoded.fault, decoded.state
    (True, 'no server for replica 1', 'OPEN')
    """
    return _decode_row(row, tuple(columns), tuple(columns.values()))


@lru_cache(maxsize=4096)  # a row that is read again has seldom changed; clients of one process read the same rows
def _decode_row(row: bytes, names: tuple[bytes, ...], values: tuple[bytes, ...]) -> DecodedMetaRow:
    columns = dict(zip(names, values, strict=True))
    shape = _shape(names)
    text = columns.get(_STATE)
    state = text.decode("ascii", "backslashreplace") if text else None
    locations, fault = None, None
    try:
        region = _region(row, columns)
    except ValueError as error:
        fault = str(error)
    else:
        replicas = _replicas(region, row, columns, shape)
        locations = RegionLocations(region, tuple(replicas))
        if not all(replicas):  # "None in" would call each location's __eq__
            fault = _holes(replicas, columns)
    if not shape.splits and not shape.merges:
        return DecodedMetaRow(locations, fault, state, (), ())
    daughters, daughters_fault = _lineage(shape.splits, columns)
    parents, parents_fault = _lineage(shape.merges, columns)
    faults = filter(None, (fault, daughters_fault, parents_fault))
    return DecodedMetaRow(locations, "; ".join(faults) or None, state, daughters, parents)


class _ColumnFacts(NamedTuple):
    """The facts that follow from the names of a row's columns alone."""

    replica_count: int
    #: For each replica with location columns: its id and its columns for server, start code and sequence number.
    replicas: tuple[tuple[int, bytes, bytes, bytes], ...]
    splits: tuple[bytes, ...]
    merges: tuple[bytes, ...]


@lru_cache(maxsize=256)  # the rows of a table have the same columns, so their names are parsed once
def _shape(names: tuple[bytes, ...]) -> _ColumnFacts:
    # The columns for state and target remain when a replica is removed, so they are no evidence of a replica.
    matches = (_REPLICA_COLUMN.fullmatch(name) for name in names)
    replica_ids = {0, *(int(match[1], 16) for match in matches if match)}
    return _ColumnFacts(
        max(replica_ids) + 1,
        tuple((replica_id, *_location_columns(replica_id)) for replica_id in sorted(replica_ids)),
        tuple(name for name in (_SPLIT_A, _SPLIT_B) if name in names),
        tuple(sorted(name for name in names if name.startswith(_MERGE))),
    )


def _region(row: bytes, columns: Mapping[bytes, bytes]) -> RegionInfo:
    data = columns.get(_REGION_INFO)
    if not data:
        raise ValueError("no info:regioninfo" if data is None else "info:regioninfo is empty")
    # HBase writes the region info of the primary, and the row key is always the name of the primary.
    region = decode_region_info(data)
    if region.replica_id:
        region = region.replica(0)
    if keys.region_name(region.table, region.start_key, region.region_id) != row:
        raise ValueError("row key is not the region's name")
    if keys.ends_before_or_at(region.end_key, region.start_key):
        raise ValueError("the region ends before it starts")
    return region


def _replicas(
    region: RegionInfo, row: bytes, columns: Mapping[bytes, bytes], shape: _ColumnFacts
) -> list[RegionLocation | None]:
    """Return the location of each replica; None for a replica with an empty or invalid column."""
    table, start_key, end_key, region_id = region.table, region.start_key, region.end_key, region.region_id
    offline, split = region.is_offline, region.is_split_parent
    replicas: list[RegionLocation | None] = [None] * shape.replica_count
    for replica_id, server_name, start_code_name, seqnum_name in shape.replicas:
        address, start_code, seqnum = columns.get(server_name), columns.get(start_code_name), columns.get(seqnum_name)
        if not address or not start_code or len(start_code) != 8 or len(address) > _ADDRESS_LENGTH_MAX:
            continue
        server = _server(address, start_code)
        if server is None or (seqnum and len(seqnum) != 8):
            continue
        opened = _LONG.unpack(seqnum)[0] if seqnum else _NO_SEQNUM
        if replica_id == 0:
            replicas[0] = RegionLocation(region, server, opened, False, row)
            continue
        replica = RegionInfo(table, start_key, end_key, region_id, replica_id, offline, split)
        name = keys.region_name(table, start_key, region_id, replica_id)
        replicas[replica_id] = RegionLocation(replica, server, opened, False, name)
    return replicas


@lru_cache(maxsize=4096)  # each server of a cluster is parsed once, and its regions share one object
def _server(address: bytes, start_code: bytes) -> ServerName | None:
    match = _ADDRESS.fullmatch(address)
    if match is None or not 0 < int(match[2]) < 65536:
        return None
    return ServerName(match[1].decode("ascii"), int(match[2]), _LONG.unpack(start_code)[0])


def _holes(replicas: list[RegionLocation | None], columns: Mapping[bytes, bytes]) -> str:
    holes = [replica_id for replica_id, place in enumerate(replicas) if place is None]
    faults = [_hole(replica_id, columns) for replica_id in holes[:_FAULTS_SHOWN_MAX]]
    if len(holes) > len(faults):
        faults.append(f"and {len(holes) - len(faults)} more")
    return "; ".join(faults)


def _hole(replica_id: int, columns: Mapping[bytes, bytes]) -> str:
    who = f"replica {replica_id}" if replica_id else "the primary"
    server, start_code, seqnum = _location_columns(replica_id)
    address = columns.get(server)
    if not address:
        return f"no server for {who}"
    if not columns.get(start_code):
        return f"no start code for {who}"
    for name in (start_code, seqnum):
        if len(columns.get(name) or bytes(8)) != 8:
            return f"{name.decode()} has {len(columns[name])} bytes, not 8"
    return f"{server.decode()} is not host:port: {keys.printable(address)}"


def _lineage(names: tuple[bytes, ...], columns: Mapping[bytes, bytes]) -> tuple[tuple[RegionInfo, ...], str | None]:
    """Return the regions in these columns, and the fault of the first column that cannot be decoded."""
    regions: list[RegionInfo] = []
    fault = None
    for name in names:
        try:
            regions.append(decode_region_info(columns[name]))
        except ValueError as error:
            fault = fault or f"{keys.printable(name)}: {error}"
    return tuple(regions), fault


# ---- columns


def location_columns(
    replica_id: int, server: ServerName | None, seqnum: int | None, state: str | None = None
) -> dict[bytes, bytes]:
    r"""Return the location columns of a replica. Without a server they are empty, as for a replica not yet opened.

    >>> location_columns(1, ServerName("rs1", 16020, 7), 2)[b"info:serverstartcode_0001"]
    b'\x00\x00\x00\x00\x00\x00\x00\x07'
    >>> location_columns(2, None, None)
    {b'info:server_0002': b'', b'info:serverstartcode_0002': b'', b'info:seqnumDuringOpen_0002': b''}
    """
    names = _location_columns(replica_id)
    columns = dict.fromkeys(names, b"")
    if server is not None:
        columns[names[0]] = server.address.encode("ascii")
        columns[names[1]] = _LONG.pack(server.start_code)
        if seqnum is not None and seqnum != _NO_SEQNUM:
            columns[names[2]] = _LONG.pack(seqnum)
    if state is not None:
        columns[_STATE + _suffix(replica_id)] = state.encode("ascii")
    return columns


def region_columns(locations: RegionLocations, state: str = "OPEN") -> dict[bytes, bytes]:
    """Return a region's whole row as HBase writes it. ``state`` applies to the primary and all replicas with a server.

    >>> columns = region_columns(RegionLocations(RegionInfo(b"t1"), (None,)), "CLOSED")
    >>> sorted(columns)
    [b'info:regioninfo', b'info:state']
    """
    columns = {_REGION_INFO: encode_region_info(locations.region.replica(0)), _STATE: state.encode("ascii")}
    for replica_id, place in enumerate(locations.replicas):
        if place is not None:
            columns |= location_columns(replica_id, place.server, place.seqnum, state)
            columns[b"info:sn" + _suffix(replica_id)] = str(place.server).encode("ascii")
        elif replica_id > 0:
            # HBase writes no location columns for a primary that was never opened.
            columns |= location_columns(replica_id, None, None)
    return columns


def _suffix(replica_id: int) -> bytes:
    return b"_%04X" % replica_id if replica_id else b""


def _location_columns(replica_id: int) -> tuple[bytes, bytes, bytes]:
    end = _suffix(replica_id)
    return b"info:server" + end, b"info:serverstartcode" + end, b"info:seqnumDuringOpen" + end


# ---- values


def encode_region_info(info: RegionInfo) -> bytes:
    r"""Return ``PBUF`` and the region as protobuf, with all fields, as Java writes it.

    >>> encode_region_info(RegionInfo(b"t", b"a", b"b", 1))
    b'PBUF\x08\x01\x12\x0c\n\x07default\x12\x01t\x1a\x01a"\x01b(\x000\x008\x00'
    """
    namespace, _, qualifier = info.table.rpartition(b":")
    return _MAGIC + protobuf.encode(
        REGION_INFO,
        {
            "region_id": info.region_id,
            "table_name": {"namespace": namespace or b"default", "qualifier": qualifier},
            "start_key": info.start_key,
            "end_key": info.end_key,
            "offline": info.is_offline,
            "split": info.is_split_parent,
            "replica_id": info.replica_id,
        },
    )


def decode_region_info(data: bytes) -> RegionInfo:
    """Return the region in a value of ``info:regioninfo``, or of the column of a daughter or merge parent.

    >>> decode_region_info(encode_region_info(RegionInfo(b"ns1:t", b"a", b"b", 1))).table
    b'ns1:t'

    Raises ValueError, which names the fault and its byte.
    """
    if not data.startswith(_MAGIC):
        raise ValueError("no PBUF at byte 0")
    found = _decode(_REGION_INFO_OF_ROW, data, _MAGIC_LENGTH)
    replica_id = found.get("replica_id", 0)
    if not 0 <= replica_id <= keys.REPLICA_ID_MAX:
        raise ValueError(f"broken PBUF: replica_id {replica_id} up to byte {len(data)}")
    return RegionInfo(
        _table(found["table_name"]),
        found.get("start_key", b""),
        found.get("end_key", b""),
        found["region_id"],
        replica_id,
        found.get("offline", False),
        found.get("split", False),
    )


@lru_cache(maxsize=1024)  # all regions of a table share one name, checked once
def _table(message: bytes) -> bytes:
    found = _decode(TABLE_NAME, message)
    try:
        return keys.table_name(found["namespace"] + b":" + found["qualifier"])
    except ValueError as error:
        raise ValueError(f"broken PBUF: in table_name: {error}") from error


def encode_table_state(state: TableState) -> bytes:
    r"""Return the value of ``table:state``: protobuf without ``PBUF``.

    >>> encode_table_state(TableState.DISABLED)
    b'\x08\x01'
    """
    return protobuf.encode(TABLE_STATE, {"state": state.value})


def decode_table_state(data: bytes) -> TableState | None:
    r"""Return the state in a value of ``table:state``; None if it has no state or an unknown one.

    >>> decode_table_state(b"\x08\x00"), decode_table_state(b"\x08\x63")
    (<TableState.ENABLED: 0>, None)
    """
    try:
        return TableState(_decode(TABLE_STATE, data)["state"])
    except ValueError:
        return None


def encode_meta_region_server(value: MetaRegionServer, *, writer: bytes = b"") -> bytes:
    """Return the value of ``meta-region-server`` in ZooKeeper; ``writer`` is the id that RecoverableZooKeeper prepends.

    >>> decode_meta_region_server(encode_meta_region_server(MetaRegionServer(ServerName("rs1", 16020, 7)))).server
    ServerName(host='rs1', port=16020, start_code=7)
    """
    host, port, start_code = value.server
    message = {
        "server": {"host_name": host, "port": port, "start_code": start_code},
        "rpc_version": value.rpc_version,
        "state": _STATES.index(value.state),
    }
    return b"\xff" + len(writer).to_bytes(4, "big") + writer + _MAGIC + protobuf.encode(META_REGION_SERVER, message)


def decode_meta_region_server(data: bytes) -> MetaRegionServer:
    """Return the server of a replica of hbase:meta in a value of ZooKeeper; the writer's id may be long or missing.

    Raises ValueError, which names the fault and its byte.
    """
    at = 5 + int.from_bytes(data[1:5], "big") if data.startswith(b"\xff") else 0
    if not data.startswith(_MAGIC, at):
        raise ValueError(f"no PBUF at byte {at}")
    found = _decode(META_REGION_SERVER, data, at + _MAGIC_LENGTH)
    number = found.get("state", _STATES.index("OPEN"))
    state = _STATES[number] if number < len(_STATES) else f"STATE {number}"
    return MetaRegionServer(_server_from(found["server"]), state, found.get("rpc_version", 0))


def _server_from(message: Mapping[str, Any]) -> ServerName:
    host, port = message["host_name"], message.get("port", 0)
    if not _ADDRESS.fullmatch(f"{host}:{port}".encode()) or not 0 < port < 65536:
        raise ValueError(f"broken PBUF: server {keys.printable(host.encode())}:{port}")
    return ServerName(host, port, message.get("start_code", -1))


def _decode(message: protobuf.Message, data: bytes, at: int = 0) -> dict[str, Any]:
    """Return the fields of a message; ValueError if it is malformed, because no call has failed."""
    try:
        return protobuf.decode(message, data, at)
    except protobuf.ProtocolError as error:
        raise ValueError(f"broken PBUF: {error}") from error
