"""Splits row keys into their parts, as Arrow arrays: with numpy if all parts have a fixed length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from metaclient import keys
from metaclient.columns import rowkey
from metaclient.columns.codecs.base import BadValueError
from metaclient.columns.decoding import BadCellError, BadCells, matrix_of
from metaclient.columns.rowkey import KeyPart
from metaclient.columns.salt import unsalted_array

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

__all__ = ["KeySplitter"]


class KeySplitter:
    """Splits the row keys of one table into the parts of its key."""

    def __init__(self, table: str, parts: Sequence[KeyPart], bad_cells: BadCells, *, salt: int = 0) -> None:
        self._table = table
        self._parts = parts
        self._bad_cells = bad_cells
        self._salt = salt

    def split(self, rows: pa.Array) -> list[pa.Array]:
        """Return the bytes of all rows, for each part of the key.

        If a key does not fit, its parts are null where bad values read as null; otherwise BadCellError is raised.
        """
        found = self._sliced(rows)
        return self._one_by_one(rows.to_pylist()) if found is None else found

    def _sliced(self, rows: pa.Array) -> list[pa.Array] | None:
        """Return slices, if all parts have fixed lengths or there is one part; None if each key must be parsed."""
        if self._salt:
            unsalted = unsalted_array(rows, self._salt)
            if unsalted is None:
                return None
            rows = unsalted
        if len(self._parts) == 1 and self._parts[0].length is None:
            return [rows]
        lengths = [part.length for part in self._parts if part.length is not None]
        raw = matrix_of(rows, sum(lengths)) if len(lengths) == len(self._parts) else None
        if raw is None:
            return None
        found: list[pa.Array] = []
        start = 0
        for part, length in zip(self._parts, lengths, strict=True):
            found.append(_binaries(raw[:, start : start + length], is_padded=part.is_padded))
            start += length
        return found

    def _one_by_one(self, rows: Sequence[bytes]) -> list[pa.Array]:
        import pyarrow as pa

        found: list[list[bytes | None]] = [[] for _ in self._parts]
        for row in rows:
            for column, data in zip(found, self._split_one(row), strict=True):
                column.append(data)
        return [pa.array(column, pa.binary()) for column in found]

    def _split_one(self, row: bytes) -> Sequence[bytes | None]:
        try:
            pieces = rowkey.split_key(self._parts, row, self._salt)
        except BadValueError as error:
            if not self._bad_cells.are_null:
                raise BadCellError(
                    f"table {self._table}, row {keys.printable(row)}: {error}; correct the row key "
                    f"{self._bad_cells.advice}"
                ) from None
            return [None] * len(self._parts)
        return [part.stripped(data) for part, data in zip(self._parts, pieces, strict=True)]


def _binaries(raw: np.ndarray, *, is_padded: bool) -> pa.Array:
    """Return the rows of a matrix as binaries, without the trailing zero bytes if they are padded."""
    import numpy as np
    import pyarrow as pa

    count, width = raw.shape
    lengths = np.full(count, width)
    if is_padded:
        is_set = raw[:, ::-1] != 0
        lengths = np.where(is_set.any(axis=1), width - is_set.argmax(axis=1), 0)
        raw = raw[np.arange(width) < lengths[:, None]]
    ends = np.zeros(count + 1, dtype=np.int32)
    np.cumsum(lengths, out=ends[1:])
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(raw))]
    return pa.Array.from_buffers(pa.binary(), count, buffers)
