"""Encodes a column of an Arrow array as the bytes of cells: with numpy if the codec supports it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metaclient.columns.codecs.base import Codec
from metaclient.columns.codecs.values import date_of, instant_of
from metaclient.columns.types import DataType

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

__all__ = ["check_years", "encoded_array", "holds"]


def holds(arrow_type: pa.DataType, type: DataType) -> bool:
    """Return True if columns of this Arrow type hold values of ``type``.

    >>> import pyarrow as pa
    >>> from metaclient.columns.types import parse_type
    >>> holds(pa.int32(), parse_type("int")), holds(pa.int64(), parse_type("int"))
    (True, False)
    """
    import pyarrow.types as kinds

    matches = {
        "boolean": kinds.is_boolean,
        "tinyint": kinds.is_int8,
        "smallint": kinds.is_int16,
        "int": kinds.is_int32,
        "bigint": kinds.is_int64,
        "float": kinds.is_float32,
        "double": kinds.is_float64,
        "decimal": kinds.is_decimal,
        "string": lambda t: kinds.is_string(t) or kinds.is_large_string(t),
        "binary": lambda t: kinds.is_binary(t) or kinds.is_large_binary(t),
        "date": kinds.is_date,
        "timestamp": lambda t: kinds.is_timestamp(t) and t.tz is not None,
        "timestamp_ntz": lambda t: kinds.is_timestamp(t) and t.tz is None,
        "array": lambda t: kinds.is_list(t) or kinds.is_large_list(t),
        "map": kinds.is_map,
        "struct": kinds.is_struct,
    }
    return bool(matches[type.name](arrow_type))


def encoded_array(column: pa.Array, codec: Codec, type: DataType) -> pa.Array | None:
    """Return the bytes of a column's cells, with nulls for nulls; None if values must be encoded one by one."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if codec.writes_nulls(type):
        return None
    if codec.is_plain(type):
        return column.cast(pa.large_binary())
    kept = _kept(column)
    raw = None if kept is None else codec.encode_array(kept, type)
    if raw is None:
        return None
    borders = np.arange(len(column) + 1, dtype=np.int64) * raw.shape[1]
    cells = pa.Array.from_buffers(
        pa.large_binary(), len(column), [None, pa.py_buffer(borders), pa.py_buffer(np.ascontiguousarray(raw))]
    )
    return pc.if_else(column.is_valid(), cells, pa.scalar(None, pa.large_binary())) if column.null_count else cells


def _kept(column: pa.Array) -> np.ndarray | None:
    """Return values of a fixed width in Arrow's representation, with 0 for nulls; None for other types."""
    import pyarrow.types as kinds

    column = _as_number(column)
    kind = column.type
    if not (kinds.is_boolean(kind) or kinds.is_integer(kind) or kinds.is_floating(kind)):
        return None
    if column.null_count:
        column = column.fill_null(False if kinds.is_boolean(kind) else 0)
    found: np.ndarray = column.to_numpy(zero_copy_only=False)
    return found


def _as_number(column: pa.Array) -> pa.Array:
    """Return dates as days and timestamps as microseconds; other columns unchanged."""
    import pyarrow as pa
    import pyarrow.types as kinds

    if kinds.is_date32(column.type):
        return column.cast(pa.int32())
    is_micros = kinds.is_timestamp(column.type) and column.type.unit == "us"
    return column.cast(pa.int64()) if is_micros else column


def check_years(column: pa.Array, type: DataType) -> None:
    """Raise BadValueError for a date or timestamp outside of the years that a read supports."""
    import pyarrow.compute as pc

    show = date_of if type.name == "date" else instant_of if type.name.startswith("timestamp") else None
    numbers = _as_number(column)
    if show is None or numbers is column:
        return
    for number in pc.min_max(numbers).as_py().values():
        if number is not None:
            show(number, type)
