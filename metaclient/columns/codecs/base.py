"""The interface of a codec: encoding, decoding, and the relation of the order of bytes to the order of values.

Each method takes the column's type, and a codec has no state. So one object serves all columns, and a pickle has only
its name. Subclass :class:`Codec` for your own encoding and name it by its dotted path in a catalog
(``"coder": "my_package.MyCodec"``). ``encode`` and ``decode`` are enough. With ``order`` and ``is_canonical`` HBase can
test conditions. With ``width``, ``decode_array`` and ``encode_array`` whole Arrow arrays are converted without a Python
object per cell.

Filters are compiled from *spans*: unions of ranges of encoded bytes that hold every encoding of every value for which a
comparison is true. A span may be too wide, because Spark tests the condition again; it is never too narrow.
"""

from __future__ import annotations

import enum
import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from metaclient.columns.codecs.fitting import Fitted, fitted
from metaclient.columns.codecs.spans import START, Cut, Span, Spans, union_spans
from metaclient.columns.types import FLOATS, DataType
from metaclient.wording import counted

if TYPE_CHECKING:
    import numpy as np

__all__ = ["BadValueError", "Codec", "Order"]


class BadValueError(ValueError):
    """Bytes that are no value of the type, or a value that the codec cannot encode; the message has the reason."""


class Order(enum.Enum):
    """How the order of encoded bytes (unsigned, left to right) relates to the order of values."""

    NONE = "none"  # nothing
    SAME = "same"  # the same order
    SIGNED = "signed"  # two's complement: each half in order, the negative half after the other


class Codec(ABC):
    """One encoding of values. See the module's docstring."""

    #: The name in options and catalogs.
    name: str = ""

    @abstractmethod
    def encode(self, value: object, type: DataType) -> bytes:
        """Return the bytes of a value that is not None; raise :class:`BadValueError` if it cannot be encoded."""

    @abstractmethod
    def decode(self, data: bytes, type: DataType) -> object:
        """Return the value of these bytes (None for a null); raise :class:`BadValueError` if they are no value."""

    def supports(self, type: DataType) -> bool:
        """Return True if columns of this type can have this codec."""
        return type.is_atomic

    def order(self, type: DataType) -> Order:
        """Return how the order of bytes relates to the order of values of this type."""
        return Order.NONE

    def is_canonical(self, type: DataType) -> bool:
        """Return True if equal values always have equal bytes, independently of the writer."""
        return self.order(type) is not Order.NONE

    def writes_nulls(self, type: DataType) -> bool:
        """Return True if a cell may hold a null, so that IS NULL is more than "no such cell"."""
        return False

    def width(self, type: DataType) -> int | None:
        """Return the number of bytes of every value of this type; None if it depends on the value."""
        return None

    def reads_empty_as_null(self, type: DataType) -> bool:
        """Return True if a cell of no bytes is null: it is no value of the type, or the codec writes nulls so."""
        return self.writes_nulls(type) or not self.is_plain(type)

    def is_plain(self, type: DataType) -> bool:
        """Return True if a string or binary is encoded as its own bytes (with ``writes_nulls``: unless it is empty)."""
        return False

    def decode_array(self, raw: np.ndarray, type: DataType) -> tuple[np.ndarray, np.ndarray | None] | None:
        """Return many values of a fixed width, decoded together; None if that is not supported.

        ``raw`` is uint8 of shape (rows, width). Returns the values in Arrow's representation (bool, whole numbers,
        floats, days as int32, microseconds as int64), and True for each row that is no value of the type (or None if
        all rows are valid).
        """
        return None

    def encode_array(self, values: np.ndarray, type: DataType) -> np.ndarray | None:
        """Return values in Arrow's representation, encoded as uint8 of shape (rows, width); None if not supported."""
        return None

    # -- parts of a composite row key

    def is_self_delimiting(self, type: DataType) -> bool:
        """Return True if no encoding is a prefix of another one, so that parts can follow each other."""
        return self.width(type) is not None

    def delimiter(self, type: DataType) -> bytes | None:
        """Return the bytes that end an inner part of variable length; None if a length must be declared."""
        return None

    def part_length(self, data: bytes, start: int, type: DataType) -> int:
        """Return the length of the self-delimiting encoding at ``start``; raise BadValueError if it is truncated."""
        width = self.width(type)
        if width is None:
            raise BadValueError(f"{self.name} {type} has no length of its own")
        if len(data) - start < width:
            raise BadValueError(f"{type} takes {counted(width, 'byte')}, {len(data) - start} left")
        return width

    # -- conditions

    def fitted(self, value: object, type: DataType) -> Fitted | None:
        """Return the greatest value *that this codec can encode* and that is not above ``value``; None if unknown."""
        return fitted(value, type)

    def equals(self, value: object, type: DataType) -> tuple[bytes, bytes]:
        """Return the first and the last of the encodings of ``value``."""
        encoded = self.encode(value, type)
        return encoded, encoded

    def spans(self, operator: str, value: object, type: DataType) -> Spans | None:
        """Return the spans of the encodings x with *x operator value* (``= < <= > >=``); None if unbounded."""
        return _comparison_spans(self, operator, value, type)

    def prefix(self, start: str | bytes, type: DataType) -> bytes | None:
        """Return the common prefix of all encodings of values that begin with ``start``; None if there is none."""
        return None

    def __reduce__(self) -> tuple[object, tuple[str]]:
        from metaclient.columns.codecs import codec_named

        return (codec_named, (self.name,))

    def __repr__(self) -> str:
        return f"<codec {self.name}>"


#: Where the negative half of two's complement begins.
_SIGN: Cut = (b"\x80", 0)


def _comparison_spans(codec: Codec, operator: str, value: object, type: DataType) -> Spans | None:
    fit = codec.fitted(value, type)
    if fit is None or (codec.order(type) is Order.NONE and not (operator == "=" and codec.is_canonical(type))):
        return None
    if fit.value is None:  # below all
        return None if operator in (">", ">=") else ()
    if fit.is_the_last:
        return None if operator in ("<", "<=") else ()
    if not fit.is_exact:
        if operator == "=":
            return ()
        operator = "<=" if operator in ("<", "<=") else ">"
    try:
        low, high = codec.equals(fit.value, type)
    except BadValueError:
        return None  # it cannot be encoded, so no bound is known
    if operator == "=":
        return _spans(((low, 0), (high, 1)))
    if codec.order(type) is Order.SIGNED:
        return _signed(operator, low, high)
    if operator in ("<", "<="):
        return _spans((START, (low, 0) if operator == "<" else (high, 1)))
    above = ((low, 0) if operator == ">=" else (high, 1), None)
    if type.name not in FLOATS:
        return _spans(above)
    try:
        lowest = codec.encode(-math.inf, type)
    except BadValueError:
        return _spans(above)  # unsigned
    # NaN is above everything in Spark; one with its sign set has its bytes below those of minus infinity.
    return _spans((START, (lowest, 0)), above)


def _signed(operator: str, low: bytes, high: bytes) -> Spans:
    is_negative = low >= _SIGN[0]
    if operator == "<" and not any(low):  # less than zero
        return _spans((_SIGN, None))
    if operator in ("<", "<="):
        end = (low, 0) if operator == "<" else (high, 1)
        return _spans((_SIGN, end)) if is_negative else _spans((START, end), (_SIGN, None))
    start = (low, 0) if operator == ">=" else (high, 1)
    return _spans((START, _SIGN), (start, None)) if is_negative else _spans((start, _SIGN))


def _spans(*ends: tuple[Cut, Cut | None]) -> Spans:
    return union_spans(Span(low, high) for low, high in ends)
