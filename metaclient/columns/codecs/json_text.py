"""A JSON document in each cell: any type, arrays, maps and structs too; JSON's null is null.

Binaries are Base64, dates and times ISO 8601, decimals numbers with all their digits, ``NaN`` and ``Infinity``
strings: as Spark's ``to_json`` writes them. The order of bytes has no meaning, so only Spark tests conditions.
"""

from __future__ import annotations

import base64
import binascii
import json
from decimal import Decimal
from typing import Any

from metaclient import keys
from metaclient.columns.codecs import text, values
from metaclient.columns.codecs.base import BadValueError, Codec
from metaclient.columns.types import FLOATS, INTEGERS, DataType

__all__ = ["JsonCodec"]


class JsonCodec(Codec):
    """See the module's docstring."""

    name = "json"

    def encode(self, value: object, type: DataType) -> bytes:
        return _dumps(_plain(value, type)).encode()

    def decode(self, data: bytes, type: DataType) -> object:
        try:
            document = json.loads(data, parse_float=Decimal, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise BadValueError(f"no JSON ({error}): {keys.printable(data)}") from None
        return _typed(document, type)

    def supports(self, type: DataType) -> bool:
        return type.key is None or type.key.name == "string"

    def writes_nulls(self, type: DataType) -> bool:
        return True


def _refuse(word: str) -> object:
    raise ValueError(f"{word} is not JSON; write it as a string")


class _Digits(float):
    """A number that is written with these digits, in place of the ``repr`` of a float."""

    def __new__(cls, digits: str) -> _Digits:
        made = super().__new__(cls, 0.0)
        made.digits = digits
        return made

    digits: str


def _dumps(value: Any) -> str:
    """Return JSON without spaces, in which decimals keep every digit; ``json.dumps`` would lose digits."""
    if isinstance(value, _Digits):
        return value.digits
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key, ensure_ascii=False)}:{_dumps(v)}" for key, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_dumps, value)) + "]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _plain(value: Any, type: DataType) -> Any:
    """Return a value as a value of JSON."""
    if value is None:
        return None
    match type.name:
        case "string":
            return values.utf8_of(value, type).decode()
        case "binary":
            return base64.b64encode(values.binary_of(value, type)).decode()
        case "boolean":
            return values.boolean_of(value, type)
        case "decimal":
            return _Digits(f"{values.decimal_of(values.unscaled_of(value, type), type):f}")
        case "date":
            return values.date_of(values.days_of(value, type), type).isoformat()
        case "timestamp" | "timestamp_ntz":
            return text.text_from_instant(value, type)
        case "array":
            assert type.element is not None
            return [_plain(each, type.element) for each in _need(value, (list, tuple), type)]
        case "map":
            assert type.element is not None
            pairs = value if isinstance(value, list) else _need(value, (dict,), type).items()
            return {str(key): _plain(each, type.element) for key, each in pairs}
        case "struct":
            found = _need(value, (dict,), type)
            return {name: _plain(found.get(name), each) for name, each in type.fields}
        case name if name in FLOATS:
            number = values.float_of(value, type)
            shown = text.text_from_float(number)
            return number if shown not in ("NaN", "Infinity", "-Infinity") else shown
    return values.integer_of(value, type)


def _typed(document: Any, type: DataType) -> Any:
    """Return a value of JSON as a value of Spark's column."""
    if document is None:
        return None
    try:
        match type.name:
            case "string":
                return _need(document, (str,), type)
            case "binary":
                return base64.b64decode(_need(document, (str,), type), validate=True)
            case "boolean":
                return _need(document, (bool,), type)
            case "decimal":
                return values.decimal_of(values.unscaled_of(document, type), type)
            case "date":
                return text.date_from_text(_need(document, (str,), type))
            case "timestamp" | "timestamp_ntz":
                return text.instant_from_text(_need(document, (str,), type), type)
            case "array":
                assert type.element is not None
                return [_typed(each, type.element) for each in _need(document, (list,), type)]
            case "map":
                assert type.element is not None
                return [(key, _typed(each, type.element)) for key, each in _need(document, (dict,), type).items()]
            case "struct":
                found = _need(document, (dict,), type)
                return {name: _typed(found.get(name), each) for name, each in type.fields}
            case name if name in FLOATS:
                if isinstance(document, str):
                    return text.float_from_text(document, type)
                return values.float_of(float(_need(document, (int, Decimal), type)), type)
    except (ValueError, binascii.Error) as error:
        raise BadValueError(f"{str(document)[:80]!r} is no {type}" + (f": {error}" if str(error) else "")) from None
    assert type.name in INTEGERS
    return values.integer_of(document, type)


def _need(value: Any, kinds: tuple[type, ...], type: DataType) -> Any:
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise values.wrong_type(value, type)
    return value
