r"""Row keys made of parts: each part's bytes inside of the key, joined for writing, split for reading.

A part has a fixed length (its type's, or declared), ends itself (ordered bytes), ends at a delimiter (a zero byte
behind a string), or is the last one and takes the rest. A string of a declared length is filled up with zero bytes.

>>> from spark_connector.schema.codecs import codec_named
>>> from spark_connector.schema.types import parse_type
>>> naive = codec_named("naive")
>>> parts = (
...     KeyPart("region", parse_type("string"), naive, is_last=False),
...     KeyPart("id", parse_type("int"), naive, length=4),
... )
>>> row = join(parts, ["eu", 7])
>>> row, split(parts, row)
(b'eu\x00\x00\x00\x00\x07', (b'eu', b'\x00\x00\x00\x07'))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from metaclient import keys
from metaclient.wording import counted
from spark_connector.schema.codecs.base import BadValueError, Codec
from spark_connector.schema.codecs.spans import Cut, Span, Spans, prefix_span, union_spans
from spark_connector.schema.types import DataType

__all__ = ["KeyPart", "join", "split"]


@dataclass(frozen=True, slots=True)
class KeyPart:
    """A part of the row key, which is a column."""

    name: str
    type: DataType
    codec: Codec
    length: int | None = None  # declared, or the type's own; None: ended by itself, a delimiter, or the key's end
    is_last: bool = True

    @property
    def delimiter(self) -> bytes:
        """What follows the part's bytes inside of the key."""
        if self.is_last or self.length is not None or self.codec.is_self_delimiting(self.type):
            return b""
        return self.codec.delimiter(self.type) or b""

    @property
    def is_padded(self) -> bool:
        """Filled up with zero bytes to its length."""
        return self.length is not None and self.type.name == "string"

    def encode(self, value: object) -> bytes:
        """The part's bytes inside of the key: filled up, with its delimiter."""
        if value is None:
            raise BadValueError("null has no place in a row key")
        data = self.codec.encode(value, self.type)
        if self.length is not None and len(data) != self.length:
            if not self.is_padded or len(data) > self.length:
                raise BadValueError(f"the part takes {counted(self.length, 'byte')}, the value has {len(data)}")
            return data.ljust(self.length, b"\0")
        delimiter = self.delimiter
        if delimiter and delimiter in data:
            raise BadValueError(f"the value holds the delimiter {keys.printable(delimiter)}; declare a length instead")
        return data + delimiter

    def decode(self, data: bytes) -> object:
        """The value of what :func:`split` cut out."""
        return self.codec.decode(self.stripped(data), self.type)

    def stripped(self, data: bytes) -> bytes:
        """Without what filled it up."""
        return data.rstrip(b"\0") if self.is_padded else data

    # -- conditions: spans of the part's bytes inside of the key

    def spans(self, operator: str, value: object) -> Spans | None:
        """Where the parts x with *x operator value* are; None: anywhere. See :meth:`Codec.spans`."""
        found = self.codec.spans(operator, value, self.type)
        if found is None or (self.length is None and not self.delimiter):
            return found
        ends = [cut[0] for span in found for cut in (span.low, span.high) if cut is not None]
        if self.delimiter and any(self.delimiter in end for end in ends):
            return None
        if self.is_padded and any(end.endswith(b"\0") for end in ends):
            return None  # what fills up is cut off again: such a value is less than it looks
        return union_spans(Span(self._cut(span.low), span.high and self._cut(span.high)) for span in found)

    def prefix_spans(self, start: str | bytes) -> Spans | None:
        """Where the parts that begin with ``start`` are; None: anywhere."""
        data = self.codec.prefix(start, self.type)
        if data is None or (self.delimiter and self.delimiter in data) or (self.is_padded and b"\0" in data):
            return None
        if self.length is not None and len(data) > self.length:
            return ()
        return prefix_span(data)

    def _cut(self, cut: Cut) -> Cut:
        """The same place among the part's bytes inside of the key."""
        data, side = cut
        if not data and not side:
            return cut
        if self.length is None:
            return data + self.delimiter, side
        if len(data) > self.length:
            return data[: self.length], 1  # what is as long as it can be, is less
        if len(data) < self.length and not self.is_padded:
            return data, 0  # what begins so is longer, and greater
        return data.ljust(self.length, b"\0"), side


def join(parts: Sequence[KeyPart], values: Sequence[object]) -> bytes:
    """The row key of these values, one for each part; BadValueError names the part that has none."""
    encoded = []
    for part, value in zip(parts, values, strict=True):
        try:
            encoded.append(part.encode(value))
        except BadValueError as error:
            raise BadValueError(f"row key column {part.name}: {error}") from None
    row = b"".join(encoded)
    if not 0 < len(row) <= keys.ROW_LENGTH_MAX:
        raise BadValueError(f"a row key has 1 to {keys.ROW_LENGTH_MAX} bytes, this one has {len(row)}")
    return row


def split(parts: Sequence[KeyPart], row: bytes) -> tuple[bytes, ...]:
    """The bytes of each part, without delimiters (decode them with ``part.decode``); BadValueError where the key
    does not fit.
    """
    found = []
    at = 0
    for part in parts:
        if part.is_last:
            data = row[at:]
            if part.length is not None and len(data) != part.length:
                raise BadValueError(
                    f"row key column {part.name} takes {counted(part.length, 'byte')}, {len(data)} left"
                )
            found.append(data)
            break
        length = _length(part, row, at)
        found.append(row[at : at + length])
        at += length + len(part.delimiter)
    return tuple(found)


def _length(part: KeyPart, row: bytes, at: int) -> int:
    if part.length is not None:
        if len(row) - at < part.length:
            raise BadValueError(
                f"row key column {part.name} takes {counted(part.length, 'byte')}, {len(row) - at} left"
            )
        return part.length
    delimiter = part.delimiter
    if not delimiter:
        return part.codec.part_length(row, at, part.type)
    end = row.find(delimiter, at)
    if end < 0:
        raise BadValueError(f"row key column {part.name} has no end: no {keys.printable(delimiter)} from byte {at} on")
    return end - at
