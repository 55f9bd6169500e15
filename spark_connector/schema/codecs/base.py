"""What a codec is: bytes and values of one type, and what the order of the bytes says about the order of the values.

A codec is asked with the column's type each time and keeps no state, so that one object serves all columns and travels
inside a pickle by its name. Subclass :class:`Codec` for your own encoding and name it by its dotted path in a catalog
(``"coder": "my_package.MyCodec"``): ``encode`` and ``decode`` are enough; ``order`` and ``is_canonical`` let conditions
be answered by HBase, ``width``, ``decode_array`` and ``encode_array`` let Arrow be read and written without a Python
object for each cell.

Filters are compiled from *spans*: unions of ranges of encoded bytes that hold every encoding of every value for which a
comparison is true. A span may be too wide, as Spark tests the condition again; it is never too narrow.
"""

from __future__ import annotations

import enum
import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from metaclient.wording import counted
from spark_connector.schema.codecs.fitting import Fitted, fitted
from spark_connector.schema.codecs.spans import START, Cut, Span, Spans, union_spans
from spark_connector.schema.types import FLOATS, DataType

if TYPE_CHECKING:
    import numpy as np

__all__ = ["BadValueError", "Codec", "Order"]


class BadValueError(ValueError):
    """Bytes that are no value of the type, or a value that the codec has no bytes for; the message says why."""


class Order(enum.Enum):
    """What comparing encoded bytes (unsigned, left to right) says about the values."""

    NONE = "none"  # nothing
    SAME = "same"  # the same order
    SIGNED = "signed"  # two's complement: each half in order, the negative half behind the other


class Codec(ABC):
    """One encoding of values. See the module's docstring."""

    #: As options and catalogs write it.
    name: str = ""

    @abstractmethod
    def encode(self, value: object, type: DataType) -> bytes:
        """The bytes of a value that is not None; :class:`BadValueError` when it has none."""

    @abstractmethod
    def decode(self, data: bytes, type: DataType) -> object:
        """The value of these bytes (None where the codec writes nulls); :class:`BadValueError` for any others."""

    def supports(self, type: DataType) -> bool:
        """Whether columns of this type can have this codec."""
        return type.is_atomic

    def order(self, type: DataType) -> Order:
        """What byte order says about values of this type."""
        return Order.NONE

    def is_canonical(self, type: DataType) -> bool:
        """Whether equal values always have equal bytes, independently of the writer."""
        return self.order(type) is not Order.NONE

    def writes_nulls(self, type: DataType) -> bool:
        """Whether a present cell may mean null, so that IS NULL is more than "no such cell"."""
        return False

    def width(self, type: DataType) -> int | None:
        """How many bytes every value of this type has; None if that depends on the value."""
        return None

    def is_plain(self, type: DataType) -> bool:
        """Whether the encoding of a string or binary is its own bytes (with ``writes_nulls``: unless it is empty)."""
        return False

    def decode_array(self, raw: np.ndarray, type: DataType) -> tuple[np.ndarray, np.ndarray | None] | None:
        """Many values of a fixed width at once; None where there is no such way.

        ``raw`` is uint8 of shape (rows, width). Answers the values as Arrow keeps them (bool, whole numbers, floats,
        days as int32, microseconds as int64), and which rows are no value of the type (None: all are good).
        """
        return None

    def encode_array(self, values: np.ndarray, type: DataType) -> np.ndarray | None:
        """The other way: values as Arrow keeps them into uint8 of shape (rows, width); None where there is none."""
        return None

    # -- parts of a composite row key

    def is_self_delimiting(self, type: DataType) -> bool:
        """Whether no encoding is the beginning of another one, so that parts can follow each other."""
        return self.width(type) is not None

    def delimiter(self, type: DataType) -> bytes | None:
        """What ends a part of open length that is not the last one; None: a length must be declared."""
        return None

    def part_length(self, data: bytes, start: int, type: DataType) -> int:
        """The length of the self-delimiting encoding that begins at ``start``; BadValueError if it is cut off."""
        width = self.width(type)
        if width is None:
            raise BadValueError(f"{self.name} {type} has no length of its own")
        if len(data) - start < width:
            raise BadValueError(f"{type} takes {counted(width, 'byte')}, {len(data) - start} left")
        return width

    # -- conditions

    def fitted(self, value: object, type: DataType) -> Fitted | None:
        """The greatest value *that this codec can write* and that is not above ``value``; None: unknown."""
        return fitted(value, type)

    def equals(self, value: object, type: DataType) -> tuple[bytes, bytes]:
        """The first and the last of the encodings that mean ``value``."""
        encoded = self.encode(value, type)
        return encoded, encoded

    def spans(self, operator: str, value: object, type: DataType) -> Spans | None:
        """Where the encodings x with *x operator value* are (``= < <= > >=``); None: anywhere."""
        return _comparison_spans(self, operator, value, type)

    def prefix(self, start: str | bytes, type: DataType) -> bytes | None:
        """What every encoding of a text or binary that begins with ``start`` begins with; None: nothing is known."""
        return None

    def __reduce__(self) -> tuple[object, tuple[str]]:
        from spark_connector.schema.codecs import codec_named

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
        return None  # it has no bytes: nothing is known of its place
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
