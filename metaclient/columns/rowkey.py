r"""Row keys of several parts: joins the bytes of the parts for a write, and splits them for a read.

A part has a fixed length (of its type, or declared), marks its own end (ordered bytes), ends at a delimiter (a zero
byte after a string), or is the last part and has the rest. A string of a declared length is padded with zero bytes.

>>> from metaclient.columns.codecs import codec_named
>>> from metaclient.columns.types import parse_type
>>> naive = codec_named("naive")
>>> parts = (
...     KeyPart("region", parse_type("string"), naive, is_last=False),
...     KeyPart("id", parse_type("int"), naive, length=4),
... )
>>> row = join_parts(parts, ["eu", 7])
>>> row, split_key(parts, row)
(b'eu\x00\x00\x00\x00\x07', (b'eu', b'\x00\x00\x00\x07'))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from metaclient import keys
from metaclient.columns.codecs.base import BadValueError, Codec
from metaclient.columns.codecs.spans import Cut, Span, Spans, prefix_span, union_spans
from metaclient.columns.salt import salted
from metaclient.columns.types import DataType
from metaclient.wording import counted

__all__ = ["KeyPart", "join_parts", "split_key"]


@dataclass(frozen=True, slots=True)
class KeyPart:
    """A column that is a part of the row key."""

    name: str
    type: DataType
    codec: Codec
    length: int | None = None  # declared, or of the type; None: a delimiter, the encoding or the key ends it
    is_last: bool = True

    @property
    def delimiter(self) -> bytes:
        """The bytes that follow the part inside of the key; empty for none."""
        if self.is_last or self.length is not None or self.codec.is_self_delimiting(self.type):
            return b""
        return self.codec.delimiter(self.type) or b""

    @property
    def is_padded(self) -> bool:
        """True if the part is padded with zero bytes to its length."""
        return self.length is not None and self.type.name == "string"

    def encode(self, value: object) -> bytes:
        """Return the part's bytes inside of the key, with padding and delimiter."""
        if value is None:
            raise BadValueError("a row key cannot hold null")
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
        """Return the value of the bytes that :func:`split_key` returned for this part."""
        return self.codec.decode(self.stripped(data), self.type)

    def stripped(self, data: bytes) -> bytes:
        """Return the bytes without padding."""
        return data.rstrip(b"\0") if self.is_padded else data

    # -- conditions: spans of the part's bytes inside of the key

    def spans(self, operator: str, value: object) -> Spans | None:
        """Return the spans of the parts x with *x operator value*; None if unbounded. See :meth:`Codec.spans`."""
        found = self.codec.spans(operator, value, self.type)
        if found is None or (self.length is None and not self.delimiter):
            return found
        ends = [cut[0] for span in found for cut in (span.low, span.high) if cut is not None]
        if self.delimiter and any(self.delimiter in end for end in ends):
            return None
        if self.is_padded and any(end.endswith(b"\0") for end in ends):
            return None  # a read removes trailing zero bytes as padding, so such a value is less than its bytes
        return union_spans(Span(self._cut(span.low), span.high and self._cut(span.high)) for span in found)

    def prefix_spans(self, start: str | bytes) -> Spans | None:
        """Return the span of the parts that begin with ``start``; None if unbounded."""
        data = self.codec.prefix(start, self.type)
        if data is None or (self.delimiter and self.delimiter in data) or (self.is_padded and b"\0" in data):
            return None
        if self.length is not None and len(data) > self.length:
            return ()
        return prefix_span(data)

    def _cut(self, cut: Cut) -> Cut:
        """Return the same position for the part's bytes inside of the key, with padding and delimiter."""
        data, side = cut
        if not data and not side:
            return cut
        if self.length is None:
            return data + self.delimiter, side
        if len(data) > self.length:
            return data[: self.length], 1  # values of the full length with this prefix are less
        if len(data) < self.length and not self.is_padded:
            return data, 0  # values with this prefix are longer, and greater
        return data.ljust(self.length, b"\0"), side


def join_parts(parts: Sequence[KeyPart], values: Sequence[object], salt: int = 0) -> bytes:
    """Return the row key of these values, one per part; raise BadValueError with the name of the part.

    ``salt`` is the catalog's number of buckets.
    """
    encoded = []
    for part, value in zip(parts, values, strict=True):
        try:
            encoded.append(part.encode(value))
        except BadValueError as error:
            raise BadValueError(f"row key column {part.name}: {error}") from None
    row = b"".join(encoded)
    length_max = keys.ROW_LENGTH_MAX - bool(salt)
    if not 0 < len(row) <= length_max:
        raise BadValueError(f"a row key has 1 to {length_max} bytes, this one has {len(row)}")
    return salted(row, salt)


def split_key(parts: Sequence[KeyPart], row: bytes, salt: int = 0) -> tuple[bytes, ...]:
    """Return the bytes of each part, without delimiters; raise BadValueError if the key does not fit the parts.

    ``salt`` is the catalog's number of buckets.
    """
    if salt and salted(row[1:], salt) != row:
        raise BadValueError(f"the row key does not begin with the salt of {salt} buckets")
    found = []
    at = 1 if salt else 0
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
