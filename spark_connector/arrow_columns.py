"""One column of bytes -> one Arrow array: by numpy where the codec can, value by value where it cannot.

Both ways give the same array; the slow one also finds the cell that is at fault. ``None`` is an absent cell and null,
an empty value is a value (unless the codec says otherwise: Phoenix).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from metaclient import keys
from spark_connector.codecs.base import BadValueError, Codec
from spark_connector.types import DataType

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

__all__ = ["BadCellError", "ColumnDecoder"]


class BadCellError(BadValueError):
    """A cell that is no value of its column's type; the message names table, row, column and bytes."""


class ColumnDecoder:
    """Decodes values of one column. ``where`` names it in errors: table and column."""

    def __init__(
        self, where: str, type: DataType, codec: Codec, arrow_type: pa.DataType, *, bad_is_null: bool, fast: bool = True
    ) -> None:
        self._where = where
        self._type = type
        self._codec = codec
        self._arrow_type = arrow_type
        self._bad_is_null = bad_is_null
        self._fast = fast

    def array(self, values: Sequence[bytes | None], row_of: Callable[[int], bytes]) -> pa.Array:
        """The column of these values; ``row_of(i)`` is the row key of the i-th, for errors."""
        found = self._fast_array(values) if self._fast else None
        return self._slow_array(values, row_of) if found is None else found

    def _slow_array(self, values: Sequence[bytes | None], row_of: Callable[[int], bytes]) -> pa.Array:
        import pyarrow as pa

        decode, type = self._codec.decode, self._type
        decoded: list[object] = []
        for index, value in enumerate(values):
            try:
                decoded.append(None if value is None else decode(value, type))
            except BadValueError as error:
                if not self._bad_is_null:
                    raise self._bad(row_of(index), value, error) from None
                decoded.append(None)
        return pa.array(decoded, self._arrow_type)

    def _bad(self, row: bytes, value: bytes | None, error: BadValueError) -> BadCellError:
        data = keys.printable(value or b"")
        shown = "" if data and data in str(error) else f" (bytes {data!r})"
        return BadCellError(
            f"{self._where}, row {keys.printable(row)}: {error}{shown}; correct the type or coder in the catalog, "
            "or set hbase.spark.query.badvalue=null"
        )

    # -- by numpy

    def _fast_array(self, values: Sequence[bytes | None]) -> pa.Array | None:
        """None: there is no fast way for this type, or something is wrong with a value."""
        if self._codec.writes_nulls(self._type) and (self._codec.is_plain(self._type) or self._codec.width(self._type)):
            values = [value or None for value in values]
        if self._codec.is_plain(self._type):
            return self._plain_array(values)
        width = self._codec.width(self._type)
        return None if width is None else self._fixed_array(values, width)

    def _plain_array(self, values: Sequence[bytes | None]) -> pa.Array | None:
        import pyarrow as pa

        made = pa.array(values, pa.binary())
        if self._type.name == "binary":
            return made
        try:
            return made.cast(self._arrow_type)  # checks UTF-8
        except pa.ArrowInvalid:
            return None

    def _fixed_array(self, values: Sequence[bytes | None], width: int) -> pa.Array | None:
        import numpy as np

        there = [value for value in values if value is not None]
        lengths = set(map(len, there))
        if lengths - {width}:
            return None
        raw = np.frombuffer(b"".join(there), dtype=np.uint8).reshape(-1, width)
        found = self._codec.decode_array(raw, self._type)
        if found is None or (found[1] is not None and found[1].any()):
            return None
        if len(there) == len(values):
            return self._arrow(found[0], None)
        is_null = np.fromiter((value is None for value in values), dtype=bool, count=len(values))
        spread = np.zeros(len(values), dtype=found[0].dtype)
        spread[~is_null] = found[0]
        return self._arrow(spread, is_null)

    def _arrow(self, values: np.ndarray, is_null: np.ndarray | None) -> pa.Array:
        import pyarrow as pa

        made = pa.array(values, mask=is_null, from_pandas=False)
        return made if made.type == self._arrow_type else made.cast(self._arrow_type)
