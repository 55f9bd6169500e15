"""The values of the model: regions and locations, cells and rows, requests, tables and families.

All values except ``Row`` are immutable, and no method makes a call. Keys, columns and values are bytes. Ranges are
half-open ``[start, stop)``, and ``b""`` means "unbounded" on either side. A column is ``b"family:qualifier"`` (a family
name cannot contain a colon), a whole family is ``b"family"`` without a colon.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple, overload
from uuid import UUID

from metaclient import keys
from metaclient.errors import ConfigError

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    V = TypeVar("V", default=bytes)

__all__ = [
    "LATEST_TIMESTAMP",
    "META_TABLE",
    "TTL_FOREVER",
    "Append",
    "Cell",
    "CellType",
    "Check",
    "CompareOp",
    "Consistency",
    "Delete",
    "Durability",
    "FamilyDescriptor",
    "Get",
    "Identity",
    "Increment",
    "MetaReplica",
    "Mutation",
    "Put",
    "PutCells",
    "RegionInfo",
    "RegionLocation",
    "RegionLocations",
    "Result",
    "Row",
    "RowMutations",
    "Scan",
    "ServerName",
    "TableDescriptor",
    "TableState",
]

META_TABLE = b"hbase:meta"
#: "The server's own time", as HBase writes it (Long.MAX_VALUE).
LATEST_TIMESTAMP = 0x7FFFFFFFFFFFFFFF
#: The time to live, in seconds, that HBase writes for "cells do not expire" (HConstants.FOREVER, Integer.MAX_VALUE).
TTL_FOREVER = 0x7FFFFFFF


class Consistency(enum.Enum):
    """HBase's two kinds of read.

    >>> Consistency.of("timeline")
    <Consistency.TIMELINE: 'TIMELINE'>
    """

    STRONG = "STRONG"
    TIMELINE = "TIMELINE"

    @classmethod
    def of(cls, value: Consistency | str) -> Consistency:
        if isinstance(value, cls):
            return value
        if isinstance(value, str) and value.upper() in cls.__members__:
            return cls[value.upper()]
        raise ConfigError(f"consistency must be 'STRONG' or 'TIMELINE', got {value!r}")


class Durability(enum.Enum):
    """The handling of the write-ahead log that a write must complete before it is acknowledged."""

    USE_DEFAULT = 0
    SKIP_WAL = 1
    ASYNC_WAL = 2
    SYNC_WAL = 3
    FSYNC_WAL = 4


class CellType(enum.IntEnum):
    """KeyValue.Type codes."""

    PUT = 4
    DELETE = 8  # one version of one column
    DELETE_FAMILY_VERSION = 10  # one version of all columns of a family
    DELETE_COLUMN = 12  # all versions of one column up to the timestamp
    DELETE_FAMILY = 14  # all versions of all columns of a family up to the timestamp


class Cell(NamedTuple):
    """One version of one column.

    >>> cell = Cell(b"cf:a:b", 7, b"v")
    >>> cell.family, cell.qualifier
    (b'cf', b'a:b')
    """

    column: bytes
    timestamp: int
    value: bytes
    type: CellType = CellType.PUT

    @property
    def family(self) -> bytes:
        return self.column.partition(b":")[0]

    @property
    def qualifier(self) -> bytes:
        return self.column.partition(b":")[2]


_new = tuple.__new__


class PutCells(Sequence[Cell]):
    """Cells of one row, all of them puts, stored as columns, timestamps and values: a Cell is created when it is read.

    Most rows of a table have the same columns, and most readers use only the values.

    >>> cells = PutCells((b"cf:a", b"cf:b"), (7, 8), (b"1", b"2"))
    >>> cells[1].value, cells == [Cell(b"cf:a", 7, b"1"), Cell(b"cf:b", 8, b"2")]
    (b'2', True)
    """

    __slots__ = ("columns", "timestamps", "values")

    def __init__(self, columns: tuple[bytes, ...], timestamps: tuple[int, ...], values: tuple[bytes, ...]) -> None:
        self.columns = columns
        self.timestamps = timestamps
        self.values = values

    def __len__(self) -> int:
        return len(self.columns)

    def __iter__(self) -> Iterator[Cell]:
        fields = zip(self.columns, self.timestamps, self.values, repeat(CellType.PUT), strict=False)
        return map(_new, repeat(Cell), fields)

    @overload
    def __getitem__(self, index: int) -> Cell: ...

    @overload
    def __getitem__(self, index: slice) -> list[Cell]: ...

    def __getitem__(self, index: int | slice) -> Cell | list[Cell]:
        if isinstance(index, slice):
            return list(self)[index]
        return Cell(self.columns[index], self.timestamps[index], self.values[index])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PutCells | list | tuple) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(list(self))


class ServerName(NamedTuple):
    """A region server since one start of its process, written ``host,port,startcode`` as HBase does.

    >>> ServerName.parse("rs1.example.com,16020,1650000000000").address
    'rs1.example.com:16020'
    """

    host: str
    port: int
    start_code: int = -1

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.host},{self.port},{self.start_code}"

    @classmethod
    def parse(cls, text: str) -> ServerName:
        host, port, code = text.rsplit(",", 2)
        return cls(host, int(port), int(code))


@dataclass(frozen=True, slots=True)
class RegionInfo:
    """A range of a table's rows; ``region_id`` is the time in ms at which the region was created."""

    table: bytes
    start_key: bytes = b""
    end_key: bytes = b""
    region_id: int = 0
    replica_id: int = 0
    is_offline: bool = False
    is_split_parent: bool = False

    def contains(self, row: bytes) -> bool:
        return keys.contains(self.start_key, self.end_key, row)

    @property
    def name(self) -> bytes:
        """The full region name, as HBase computes it (costs an MD5)."""
        return keys.region_name(self.table, self.start_key, self.region_id, self.replica_id)

    @property
    def encoded_name(self) -> str:
        return keys.encoded_region_name(self.name)

    def replica(self, replica_id: int) -> RegionInfo:
        """Return the same range with another replica id."""
        if replica_id == self.replica_id:
            return self
        return RegionInfo(
            self.table, self.start_key, self.end_key, self.region_id, replica_id, self.is_offline, self.is_split_parent
        )


@dataclass(frozen=True, slots=True)
class RegionLocation:
    """One replica of a region on one server: the location at which a backend makes a call."""

    region: RegionInfo
    server: ServerName
    seqnum: int = -1
    #: True if it comes from a RegionMoved error and no call has confirmed it yet.
    is_hint: bool = False
    region_name: bytes = field(default=b"", repr=False, compare=False)
    #: The reason why a read called this replica (``Row.why``), if a race chose it.
    why: str = field(default="", repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.region_name:
            object.__setattr__(self, "region_name", self.region.name)

    @property
    def replica_id(self) -> int:
        return self.region.replica_id


@dataclass(frozen=True, slots=True)
class RegionLocations:
    """The known locations of one region's replicas by replica id; ``None``: the replica exists, without a server."""

    region: RegionInfo  # of the primary
    replicas: tuple[RegionLocation | None, ...]

    def at(self, replica_id: int) -> RegionLocation | None:
        return self.replicas[replica_id] if 0 <= replica_id < len(self.replicas) else None

    @property
    def primary(self) -> RegionLocation | None:
        return self.replicas[0] if self.replicas else None

    def placed(self) -> tuple[RegionLocation, ...]:
        return tuple(location for location in self.replicas if location is not None)


@dataclass(frozen=True, slots=True)
class MetaReplica:
    """One replica of hbase:meta as the registry lists it; ``server`` is None if no server hosts it."""

    replica_id: int
    server: ServerName | None = None

    @property
    def region_name(self) -> bytes:
        return keys.meta_region_name(self.replica_id)


class Identity(NamedTuple):
    """The user that a cluster takes a client for, and the method: SIMPLE, KERBEROS, TOKEN, or PROXY (``do_as``)."""

    username: str
    method: str


class Result(NamedTuple):
    """A backend's answer for one row. No cells: the row does not exist, or a secondary does not have it yet."""

    row: bytes
    cells: Sequence[Cell] = ()
    is_stale: bool = False
    is_partial: bool = False
    #: An upper bound of the answer's age, if the backend reports one: see :class:`Row`.
    lag_s: float | None = None
    #: Set only by an existence-only get.
    exists: bool | None = None


class Row(dict[bytes, "V"]):
    """A row as happybase returns it (column -> value), with the replica and server that answered.

    For type checkers, ``Row`` is ``Row[bytes]``; with ``include_timestamp=True`` it is ``Row[tuple[bytes, int]]``.

    ``lag_s`` is an upper bound of the age of a replica's answer: every write that was acknowledged more than
    ``lag_s`` seconds before the replica read the row is in it, or was replaced by a later one. None when no bound is
    known, and for rows of a primary. Only the fake backend reports a bound.

    ``why`` is the reason why this replica was called: ``primary`` (it is called first), ``fastest`` (a secondary was
    called first, because the primary's server is slow or silent), ``hedge`` (the replica called first had not answered
    after the hedge delay), ``failover`` (the others had failed), ``pinned`` (the caller named the replica,
    or only the primary may answer the session).

    >>> row = Row({b"cf:a": b"1"}, stale=True, replica_id=2)
    >>> row == {b"cf:a": b"1"}, row.stale, row.replica_id
    (True, True, 2)
    """

    __slots__ = ("lag_s", "region", "replica_id", "server", "stale", "why")

    def __init__(
        self,
        data: Mapping[bytes, V] | Iterable[tuple[bytes, V]] = (),
        *,
        stale: bool = False,
        replica_id: int = 0,
        server: ServerName | None = None,
        region: RegionInfo | None = None,
        lag_s: float | None = None,
        why: str = "primary",
    ) -> None:
        dict.__init__(self, data)
        self.stale = stale
        self.replica_id = replica_id
        self.server = server
        self.region = region
        self.lag_s = lag_s
        self.why = why

    def __missing__(self, column: object) -> Any:
        """Raise the KeyError of ``row[column]``; for text it explains that columns are bytes."""
        if isinstance(column, str):
            raise KeyError(f"columns are bytes: write row[{column.encode()!r}] instead of row[{column!r}]")
        raise KeyError(column)


@dataclass(frozen=True, slots=True, init=False)
class Get:
    """Read one row. ``columns`` empty = all; an entry is ``b"cf"`` (the family) or ``b"cf:q"``."""

    row: bytes
    columns: tuple[bytes, ...] = ()
    max_versions: int = 1
    min_timestamp: int = 0
    max_timestamp: int = LATEST_TIMESTAMP  # exclusive
    filter: bytes | None = None  # HBase's filter language, as text
    existence_only: bool = False

    # Runs for every read of a row: the constructor that dataclass generates takes twice as long.
    def __init__(
        self,
        row: bytes,
        columns: tuple[bytes, ...] = (),
        max_versions: int = 1,
        min_timestamp: int = 0,
        max_timestamp: int = LATEST_TIMESTAMP,
        filter: bytes | None = None,
        existence_only: bool = False,
    ) -> None:
        _set_row(self, row)
        _set_columns(self, columns)
        _set_max_versions(self, max_versions)
        _set_min_timestamp(self, min_timestamp)
        _set_max_timestamp(self, max_timestamp)
        _set_filter(self, filter)
        _set_existence_only(self, existence_only)


(
    _set_row,
    _set_columns,
    _set_max_versions,
    _set_min_timestamp,
    _set_max_timestamp,
    _set_filter,
    _set_existence_only,
) = (getattr(Get, field.name).__set__ for field in fields(Get))


@dataclass(frozen=True, slots=True)
class Scan:
    """Read a range of rows. Reversed: ``start_row`` is the upper end, ``b""`` the end of the table."""

    start_row: bytes = b""
    stop_row: bytes = b""
    include_start: bool = True
    include_stop: bool = False
    is_reversed: bool = False
    columns: tuple[bytes, ...] = ()
    max_versions: int = 1
    min_timestamp: int = 0
    max_timestamp: int = LATEST_TIMESTAMP  # exclusive
    filter: bytes | None = None
    limit: int | None = None  # rows, over the whole scan
    caching: int = 1000  # rows per page
    max_result_bytes: int = 2 << 20  # of a page, if the backend supports it: the row that exceeds it is the last
    batch: int | None = None  # cells per Result; longer rows are returned in several results
    is_raw: bool = False  # return delete markers and the cells that they hide, too
    cache_blocks: bool = True  # False: the scan's blocks do not replace others in the servers' cache


@dataclass(frozen=True, slots=True, init=False)
class Put:
    """Write cells to one row; ``LATEST_TIMESTAMP`` in a cell = the server's time."""

    row: bytes
    cells: Sequence[Cell]
    durability: Durability = Durability.USE_DEFAULT
    ttl_ms: int | None = None  # the TTL of these cells, beside the family's TTL; only with Capabilities.cell_ttl
    #: Replication only: the clusters that have applied this change and must not get it again. Sent by the fake and by
    #: the native backend.
    cluster_ids: tuple[UUID, ...] = ()

    # As in Get: bulk writers make millions of puts.
    def __init__(
        self,
        row: bytes,
        cells: Sequence[Cell],
        durability: Durability = Durability.USE_DEFAULT,
        ttl_ms: int | None = None,
        cluster_ids: tuple[UUID, ...] = (),
    ) -> None:
        _set_put_row(self, row)
        _set_put_cells(self, cells)
        _set_put_durability(self, durability)
        _set_put_ttl_ms(self, ttl_ms)
        _set_put_cluster_ids(self, cluster_ids)


_set_put_row, _set_put_cells, _set_put_durability, _set_put_ttl_ms, _set_put_cluster_ids = (
    getattr(Put, field.name).__set__ for field in fields(Put)
)


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete by markers: each cell's type is the kind of marker. No cells = the whole row up to ``timestamp``."""

    row: bytes
    cells: tuple[Cell, ...] = ()
    timestamp: int = LATEST_TIMESTAMP
    durability: Durability = Durability.USE_DEFAULT
    cluster_ids: tuple[UUID, ...] = ()  # as in Put


@dataclass(frozen=True, slots=True)
class Increment:
    """Add to 64-bit counters of one row; not idempotent unless ``nonce`` is set and the server keeps nonces.

    The client sets a nonce if the backend supports nonces. A retry returns the values of the first attempt while the
    server has them, else later values. Nonces belong to a server, not to a table: no two mutations may share a nonce.
    """

    row: bytes
    amounts: tuple[tuple[bytes, int], ...]
    durability: Durability = Durability.USE_DEFAULT
    nonce: int | None = None


@dataclass(frozen=True, slots=True)
class Append:
    """Append bytes to values of one row; idempotent only under the conditions of :class:`Increment`."""

    row: bytes
    values: tuple[tuple[bytes, bytes], ...]
    durability: Durability = Durability.USE_DEFAULT
    nonce: int | None = None


@dataclass(frozen=True, slots=True)
class RowMutations:
    """Puts and deletes of one row, applied together or not at all."""

    row: bytes
    mutations: tuple[Put | Delete, ...]


Mutation = Put | Delete | Increment | Append | RowMutations


class CompareOp(enum.Enum):
    """The operator of a check: *stored* OP *given*; adapters reverse it if a protocol compares *given* OP *stored*."""

    LESS = "<"
    LESS_OR_EQUAL = "<="
    EQUAL = "=="
    NOT_EQUAL = "!="
    GREATER_OR_EQUAL = ">="
    GREATER = ">"


@dataclass(frozen=True, slots=True)
class Check:
    """A condition on one column; ``value`` None: the column must be absent (EQUAL) or present (NOT_EQUAL)."""

    row: bytes
    column: bytes
    value: bytes | None
    op: CompareOp = CompareOp.EQUAL


class TableState(enum.Enum):
    """The state of a table: the value of ``table:state`` in hbase:meta."""

    ENABLED = 0
    DISABLED = 1
    DISABLING = 2
    ENABLING = 3


@dataclass(frozen=True, slots=True)
class FamilyDescriptor:
    """A column family and its settings, with HBase's defaults (ColumnFamilyDescriptorBuilder, 2.x)."""

    name: bytes
    max_versions: int = 1
    min_versions: int = 0
    time_to_live_s: int | None = None  # None = FOREVER
    keep_deleted_cells: str = "FALSE"  # FALSE, TRUE, TTL
    compression: str = "NONE"
    bloom_filter_type: str = "ROW"
    in_memory: bool = False
    block_cache_enabled: bool = True
    replication_scope: int = 0
    attributes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class TableDescriptor:
    """A table: its families and how many replicas each region has."""

    name: bytes
    families: tuple[FamilyDescriptor, ...]
    region_replication: int = 1
    is_read_only: bool = False
    attributes: tuple[tuple[str, str], ...] = ()

    def family(self, name: bytes) -> FamilyDescriptor | None:
        return next((family for family in self.families if family.name == name), None)
