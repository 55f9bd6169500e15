"""Checks the arguments of users and converts them to bytes and values.

A wrong argument raises an error that names the argument and the correction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from typing import TypeAlias

from metaclient import keys
from metaclient.config.url_secrets import masked_url
from metaclient.errors import ConfigError, Disposition, MetaClientError
from metaclient.filters import Comparable, Filter
from metaclient.model import (
    LATEST_TIMESTAMP,
    Cell,
    CellType,
    Consistency,
    Delete,
    Durability,
    Get,
    Put,
    Scan,
)
from metaclient.wire.filter_language import FilterSyntaxError, parse

__all__ = [
    "DEFAULT_HOST",
    "DEFAULT_PORT",
    "PROTOCOLS",
    "TRANSPORTS",
    "Columns",
    "Data",
    "FilterLike",
    "amount_of",
    "cells_of",
    "columns_of",
    "gateway_url",
    "level_of",
    "make_delete",
    "make_get",
    "make_put",
    "make_scan",
    "max_staleness_of",
    "max_timestamp_of",
    "point_at_filter",
    "refuse_gateway_arguments",
    "timestamp_of",
    "value_of",
]

#: happybase's defaults and choices for a gateway.
DEFAULT_HOST = "localhost"
DEFAULT_PORT = 9090
TRANSPORTS = ("buffered", "framed")
PROTOCOLS = ("binary", "compact")
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
#: The number of checked column names that are cached, and the length of each: some hundred kilobytes at most.
COLUMNS_REMEMBERED, COLUMN_REMEMBERED_BYTES = 1000, 256
_checked_columns: dict[bytes | str, bytes] = {}
#: As max_staleness: no limit, whatever the connection's default is.
INFINITE_S = float("inf")
_PUT = CellType.PUT
_DEFAULT_DURABILITY = Durability.USE_DEFAULT
_new_cell: Callable[..., Cell] = tuple.__new__
_STRONG = Consistency.STRONG
Columns: TypeAlias = Sequence[bytes | str] | None
FilterLike: TypeAlias = Filter | bytes | str | None
#: Column -> value. Three types, because the key type of a Mapping is invariant: a dict[bytes, bytes] is not a
#: Mapping[bytes | str, bytes | str].
Data: TypeAlias = Mapping[bytes, bytes | str] | Mapping[str, bytes | str] | Mapping[bytes | str, bytes | str]


def level_of(consistency: Consistency | str | None, replica_id: int | None) -> tuple[Consistency, int | None]:
    """Return consistency and replica id; an id alone means TIMELINE, and STRONG reads the primary (as in HBase)."""
    if replica_id is not None and (not isinstance(replica_id, int) or isinstance(replica_id, bool) or replica_id < 0):
        raise ValueError(f"'replica_id' must be a number from 0 on, got {replica_id!r}")
    if consistency is None:
        return (_STRONG, None) if replica_id is None else (Consistency.TIMELINE, replica_id)
    level = Consistency.of(consistency)
    return (level, None) if level is _STRONG else (level, replica_id)


def max_staleness_of(
    max_staleness: float | None, level: Consistency, replica_id: int | None, default_s: float | None
) -> float | None:
    """Return the limit of staleness of a read in seconds; None if there is none.

    ``default_s`` is the connection's default. It applies to reads that may be answered by any replica.
    """
    if max_staleness is None:
        return default_s if level is not _STRONG and replica_id is None else None
    if isinstance(max_staleness, bool) or not isinstance(max_staleness, int | float):
        raise TypeError(f"'max_staleness' must be a number of seconds, got {max_staleness!r}")
    if not max_staleness >= 0:
        raise ValueError(f"'max_staleness' must be a number of seconds from 0 on, got {max_staleness!r}")
    if level is _STRONG:
        raise ValueError(
            "'max_staleness' is for reads of replicas, and this read is STRONG, which is never stale: "
            "leave it out, or add consistency='TIMELINE'"
        )
    if replica_id:
        raise ValueError(
            f"'max_staleness' cannot be combined with replica_id={replica_id}: when that replica is too far behind, "
            "the primary is read; leave one of them out, and look at Row.lag_s instead"
        )
    return None if max_staleness == INFINITE_S else float(max_staleness)


def columns_of(columns: Columns, argument: str = "columns") -> tuple[bytes, ...]:
    if columns is None:
        return ()
    if isinstance(columns, bytes | str) or not isinstance(columns, Sequence):
        raise TypeError(f"{argument!r} must be a tuple or list of columns, got {columns!r}")
    return tuple(keys.column_name(column, argument, family_only_ok=True) for column in columns)


def _filter(given: object) -> bytes | None:
    if given is None or isinstance(given, bytes):
        return given
    if isinstance(given, str):
        return given.encode()
    if isinstance(given, Filter):
        return bytes(given)
    if isinstance(given, Comparable):
        raise TypeError(f"'filter' is {given!r}, which is no filter until it is compared with a value")
    raise TypeError(
        f"'filter' must be made by metaclient.filters, or text of HBase's language, got {type(given).__name__}"
    )


def make_get(row: bytes, columns: Columns, timestamp: int | None, filter: FilterLike) -> Get:
    return Get(row, columns_of(columns), max_timestamp=max_timestamp_of(timestamp), filter=_filter(filter))


def _is_integer(value: object) -> bool:
    return type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))


def max_timestamp_of(timestamp: int | None) -> int:
    if timestamp is None:
        return LATEST_TIMESTAMP
    if not _is_integer(timestamp):
        raise TypeError(f"'timestamp' must be an integer (milliseconds), got {timestamp!r}")
    if timestamp < 0:
        raise ValueError(f"'timestamp' must not be negative (milliseconds), got {timestamp}")
    return int(timestamp)


def timestamp_of(timestamp: int | None) -> int:
    value = max_timestamp_of(timestamp)
    if not 0 <= value <= LATEST_TIMESTAMP:
        raise ValueError(f"'timestamp' must be between 0 and 2**63 - 1 (milliseconds), got {value}")
    return value


def make_scan(
    row_start: bytes | str | None,
    row_stop: bytes | str | None,
    row_prefix: bytes | str | None,
    *,
    columns: Columns,
    filter: FilterLike,
    timestamp: int | None,
    batch_size: int,
    scan_batching: int | None,
    limit: int | None,
    reverse: bool,
    is_meta: bool = False,
) -> Scan:
    for name, value in (("batch_size", batch_size), ("limit", limit), ("scan_batching", scan_batching)):
        if value is None and name != "batch_size":
            continue
        if not _is_integer(value):
            raise TypeError(f"{name!r} must be a whole number >= 1, got {value!r}")
        if value is not None and value < 1:
            raise ValueError(f"{name!r} must be >= 1, got {value}")
    start, stop = _bound(row_start, "row_start"), _bound(row_stop, "row_stop")
    if row_prefix is not None:
        if row_start is not None or row_stop is not None:
            raise TypeError("'row_prefix' cannot be combined with 'row_start' or 'row_stop'")
        prefix = _bound(row_prefix, "row_prefix")
        start, stop = keys.meta_prefix_range(prefix) if is_meta else (prefix, keys.prefix_stop(prefix))
    scan = Scan(
        start,
        stop,
        is_reversed=bool(reverse),
        columns=columns_of(columns),
        max_timestamp=max_timestamp_of(timestamp),
        filter=_filter(filter),
        limit=limit,
        caching=batch_size,
        batch=scan_batching,
    )
    return _reversed_prefix(scan) if reverse and row_prefix is not None else scan


def point_at_filter(error: MetaClientError, text: bytes | None) -> None:
    """Add the place of the mistake to the error of a gateway that refused a filter's text without naming the place."""
    if text is None or error.disposition is not Disposition.FATAL or isinstance(error, FilterSyntaxError):
        return
    try:
        parse(text)
    except FilterSyntaxError as mistake:
        error.args = (f"{error}; {mistake}", *error.args[1:])


def _reversed_prefix(scan: Scan) -> Scan:
    """Return a reversed scan of all rows with a prefix, including the row that equals the prefix.

    happybase starts *at* the first key above the prefix, inclusively, and stops before the row that equals the
    prefix: one row too many, one too few. Here a prefix scan has the same rows in both directions.
    """
    return replace(scan, start_row=scan.stop_row, stop_row=scan.start_row, include_start=False, include_stop=True)


def _bound(value: bytes | str | None, argument: str) -> bytes:
    return b"" if value is None else keys.as_bytes(value, argument)


def value_of(value: object, argument: str) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return keys.as_bytes(value, argument)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    hint = "leave the column out, or delete it" if value is None else "encode it first, e.g. str(value).encode()"
    raise TypeError(f"{argument} must be bytes or text, got {type(value).__name__}: {hint}")


def cells_of(data: Data, timestamp: int) -> tuple[Cell, ...]:
    if type(data) is not dict and not isinstance(data, Mapping):
        raise TypeError(f"'data' must map columns to values, got {type(data).__name__}")
    if not data:
        raise ValueError("'data' has no columns: there is nothing to write")
    cells = []
    for column, value in data.items():
        name = _checked_columns.get(column) or _checked_column(column)
        plain = value if type(value) is bytes else value_of(value, f"the value of {column!r}")
        cells.append(_new_cell(Cell, (name, timestamp, plain, _PUT)))
    return tuple(cells)


def _checked_column(column: bytes | str) -> bytes:
    """Return the checked name of a column to write to; cached, because a program writes to few columns."""
    name = keys.column_name(column, "data", family_only_ok=False)
    if len(name) <= COLUMN_REMEMBERED_BYTES:
        if len(_checked_columns) >= COLUMNS_REMEMBERED:
            _checked_columns.clear()
        _checked_columns[column] = name
    return name


def make_put(row: bytes | str, data: Data, timestamp: int, wal: bool) -> Put:
    if type(row) is not bytes or not 0 < len(row) <= keys.ROW_LENGTH_MAX:
        row = keys.row_key(row)
    return Put(row, cells_of(data, timestamp), _DEFAULT_DURABILITY if wal else Durability.SKIP_WAL)


def make_delete(row: bytes | str, columns: Columns, timestamp: int, wal: bool) -> Delete:
    """Return a delete: ``b"cf"`` deletes the family, ``b"cf:q"`` all versions of the column; no columns: the row."""
    names = columns_of(columns)
    if columns is not None and not names:
        raise ValueError("'columns' is empty: leave it out to delete the whole row")
    cells = tuple(
        Cell(name, timestamp, b"", CellType.DELETE_COLUMN if b":" in name else CellType.DELETE_FAMILY) for name in names
    )
    return Delete(keys.row_key(row), cells, timestamp, _durability(wal))


def _durability(wal: bool) -> Durability:
    return Durability.USE_DEFAULT if wal else Durability.SKIP_WAL


def amount_of(value: int) -> int:
    if not _is_integer(value):
        raise TypeError(f"'value' must be an integer, got {value!r}")
    if not INT64_MIN <= value <= INT64_MAX:
        raise ValueError(f"'value' must fit into 64 bits, got {value}")
    return int(value)


# -- happybase's gateway ----------------------------------------------------------------------------------------------


def gateway_url(host: str, port: int) -> str:
    """Return the url of happybase's host and port; raise ConfigError if ``host`` is not a plain host name."""
    shown = masked_url(host)
    if "://" in host:
        raise ConfigError(f"'host' is a name or an address, got {shown!r}; write connect({shown!r}), or url={shown!r}")
    if "@" in host:
        raise ConfigError(f"'host' is a name or an address, got {shown!r}; leave out the user and the password")
    if host.count(":") == 1:
        name, _, digits = host.partition(":")
        raise ConfigError(f"'host' is a name or an address, got {shown!r}; write host={name!r}, port={digits}")
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"  # an IPv6 address
    return f"thrift1://{host}:{port}"


def refuse_gateway_arguments(host: str | None, port: int | None, transport: str, protocol: str) -> None:
    """Raise ConfigError for happybase's arguments beside a url, where they would have no effect."""
    for name, value, default in (
        ("host", host, DEFAULT_HOST),
        ("port", port, DEFAULT_PORT),
        ("transport", transport, TRANSPORTS[0]),
        ("protocol", protocol, PROTOCOLS[0]),
    ):
        if value is not None and value != default:
            shown = masked_url(value) if isinstance(value, str) else value
            raise ConfigError(f"{name!r} = {shown!r} has no effect beside a url: write it into the url")
