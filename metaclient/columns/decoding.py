"""Decodes a column of bytes to an Arrow array: with numpy if the codec supports it, otherwise value by value.

Both ways give the same array; the slow one also finds the cell that cannot be decoded. ``None`` is a missing cell and
becomes null. An empty cell is null, too, unless empty bytes are a value of its type (a text, with the coder naive). In
a row key they are never null.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from metaclient import keys
from metaclient.columns.codecs.base import BadValueError, Codec
from metaclient.columns.types import DataType

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

__all__ = ["BadCellError", "BadCells", "ColumnDecoder", "matrix_of"]


class BadCellError(BadValueError):
    """A cell whose bytes are no value of its column's type; the message names table, row, column and bytes."""


@dataclass(frozen=True, slots=True)
class BadCells:
    """What happens to a cell that is no value of its column's type: it reads as null, or raises with this advice."""

    are_null: bool
    advice: str  # "in the catalog, or ...": follows "correct the type or coder"


class ColumnDecoder:
    """Decodes the values of one column. ``where`` names table and column in errors."""

    def __init__(
        self,
        where: str,
        type: DataType,
        codec: Codec,
        arrow_type: pa.DataType,
        bad_cells: BadCells,
        *,
        is_cell: bool = True,
        fast: bool = True,
    ) -> None:
        self._where = where
        self._type = type
        self._codec = codec
        self._arrow_type = arrow_type
        self._bad_cells = bad_cells
        self._is_plain = codec.is_plain(type)
        self._empty_is_null = codec.reads_empty_as_null(type) if is_cell else codec.writes_nulls(type)
        self._width = codec.width(type)
        self._is_fast = fast and (self._is_plain or self._width is not None)

    def array(self, values: Sequence[bytes | None], row_of: Callable[[int], bytes]) -> pa.Array:
        """Return the decoded values; ``row_of(i)`` is the row key of the i-th value, for errors."""
        import pyarrow as pa

        found = self._fast_array(pa.array(values, pa.binary())) if self._is_fast else None
        return self._slow_array(values, row_of) if found is None else found

    def arrow_array(self, values: pa.Array, row_of: Callable[[int], bytes]) -> pa.Array:
        """Return the decoded values of an Arrow array of binaries; see :meth:`array`."""
        found = self._fast_array(values) if self._is_fast else None
        return self._slow_array(values.to_pylist(), row_of) if found is None else found

    def _slow_array(self, values: Sequence[bytes | None], row_of: Callable[[int], bytes]) -> pa.Array:
        import pyarrow as pa

        decode, type = self._codec.decode, self._type
        decoded: list[object] = []
        for index, value in enumerate(values):
            try:
                if value is None or (not value and self._empty_is_null):
                    decoded.append(None)
                else:
                    decoded.append(decode(value, type))
            except BadValueError as error:
                if not self._bad_cells.are_null:
                    raise self._bad(row_of(index), value, error) from None
                decoded.append(None)
        return pa.array(decoded, self._arrow_type)

    def _bad(self, row: bytes, value: bytes | None, error: BadValueError) -> BadCellError:
        data = keys.printable(value or b"")
        shown = "" if data and data in str(error) else f" (bytes {data!r})"
        return BadCellError(
            f"{self._where}, row {keys.printable(row)}: {error}{shown}; correct the type or coder "
            f"{self._bad_cells.advice}"
        )

    # -- decoding with numpy

    def _fast_array(self, values: pa.Array) -> pa.Array | None:
        """Return the decoded values; None if one of them cannot be decoded."""
        import pyarrow.compute as pc

        if self._empty_is_null:
            values = null_where(pc.equal(pc.binary_length(values), 0), values)
        return self._plain_array(values) if self._is_plain else self._fixed_array(values)

    def _plain_array(self, values: pa.Array) -> pa.Array | None:
        import pyarrow as pa

        if self._type.name == "binary":
            return values
        try:
            return values.cast(self._arrow_type)  # checks UTF-8
        except pa.ArrowInvalid:
            return None

    def _fixed_array(self, values: pa.Array) -> pa.Array | None:
        import numpy as np

        assert self._width is not None
        raw = matrix_of(values.drop_null() if values.null_count else values, self._width)
        found = None if raw is None else self._codec.decode_array(raw, self._type)
        if found is None or (found[1] is not None and found[1].any()):
            return None
        if not values.null_count:
            return self._arrow(found[0], None)
        is_null = values.is_null().to_numpy(zero_copy_only=False)
        spread = np.zeros(len(values), dtype=found[0].dtype)
        spread[~is_null] = found[0]
        return self._arrow(spread, is_null)

    def _arrow(self, values: np.ndarray, is_null: np.ndarray | None) -> pa.Array:
        import pyarrow as pa

        made = pa.array(values, mask=is_null, from_pandas=False)
        return made if made.type == self._arrow_type else made.cast(self._arrow_type)


def null_where(is_null: pa.Array, values: pa.Array) -> pa.Array:
    """The values, with null where the mask is true.

    ``pc.if_else`` has wrong bytes for a slice of binaries (pyarrow 15 to 22): values are taken by index.

    >>> import pyarrow as pa
    >>> null_where(pa.array([False, True]), pa.array([b"x", b"a", b""]).slice(1)).to_pylist()
    [b'a', None]
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pc.any(is_null).as_py():
        return values
    return values.take(pc.if_else(is_null, pa.scalar(None, pa.int64()), pa.array(np.arange(len(values)))))


def matrix_of(values: pa.Array, width: int) -> np.ndarray | None:
    """Return the bytes of an array of binaries without nulls as a matrix; None if a value has another width.

    >>> import pyarrow as pa
    >>> matrix_of(pa.array([b"ab", b"cd"]), 2).tolist()
    [[97, 98], [99, 100]]
    """
    import numpy as np

    count = len(values)
    if not count:
        return np.zeros((0, width), dtype=np.uint8)
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32, count=count + 1, offset=4 * values.offset)
    if (np.diff(ends) != width).any():
        return None
    return np.frombuffer(data, dtype=np.uint8, count=count * width, offset=ends[0]).reshape(count, width)
