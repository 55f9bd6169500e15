"""Codecs write what Java writes, read it back, keep the order they claim, and decode arrays as they decode values."""

from __future__ import annotations

import datetime
import math
import pickle
import struct
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numpy")

import numpy as np

from metaclient.columns.codecs import BadValueError, Codec, Order, codec_named
from metaclient.columns.codecs.fitting import Fitted, fitted
from metaclient.columns.types import DataType, parse_type
from metaclient.errors import ConfigError
from spark_connector.conditions.condition import compare
from tests.unit.spark.strategies import CODECS, TYPES, alike, values

DATA = Path(__file__).parent / "data" / "java_bytes.tsv"
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def java_lines() -> list[tuple[str, str, str, str]]:
    lines = [line.split("\t") for line in DATA.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return [(codec, type, value, data) for codec, type, value, data in lines]


def value_of(type: DataType, text: str) -> object:
    if type.name in ("float", "double"):
        number = float(text.replace("Infinity", "inf"))
        return struct.unpack(">f", struct.pack(">f", number))[0] if type.name == "float" else number
    return {
        "boolean": lambda: text == "true",
        "decimal": lambda: Decimal(text),
        "binary": lambda: bytes.fromhex(text),
        "string": lambda: text,
        "date": lambda: EPOCH.date() + datetime.timedelta(days=int(text)),
        "timestamp": lambda: EPOCH + datetime.timedelta(microseconds=int(text)),
    }.get(type.name, lambda: int(text))()


@pytest.mark.parametrize(("codec", "type", "text", "data"), java_lines())
def test_bytes_are_javas(codec: str, type: str, text: str, data: str) -> None:
    made = codec_named(codec)
    kind = parse_type(type)
    value = value_of(kind, text)
    assert made.encode(value, kind).hex() == data
    assert alike(made.decode(bytes.fromhex(data), kind), value)


def test_every_codec_with_a_java_twin_has_known_bytes_for_each_of_its_types() -> None:
    seen = {(codec, parse_type(type).name) for codec, type, _, _ in java_lines()}
    plain = {"tinyint", "smallint", "int", "bigint", "float", "double"}
    assert {("naive", name) for name in plain | {"boolean", "string", "decimal"}} <= seen
    assert {("orderedbytes", name) for name in plain | {"string", "binary", "decimal"}} <= seen
    assert {("phoenix", name) for name in plain | {"boolean", "string", "decimal", "date", "timestamp"}} <= seen


PAIRS = [(codec, type) for codec in CODECS for type in TYPES]


@pytest.mark.parametrize(("codec_name", "type_name"), PAIRS)
@given(data=st.data())
@settings(max_examples=25)
def test_what_is_written_is_read(codec_name: str, type_name: str, data: st.DataObject) -> None:
    codec, type = codec_named(codec_name), parse_type(type_name)
    value = data.draw(values(type, stored=True))
    try:
        encoded = codec.encode(value, type)
    except BadValueError:
        assert codec_name == "phoenix_unsigned" or (codec_name == "phoenix" and not value) or type.name == "string"
        return
    assert alike(codec.decode(encoded, type), value) or (value == 0 and codec_name == "phoenix_unsigned")
    width = codec.width(type)
    assert width is None or len(encoded) == width
    if codec.is_self_delimiting(type):
        assert codec.part_length(encoded + b"rest", 0, type) == len(encoded)


@pytest.mark.parametrize(("codec_name", "type_name"), PAIRS)
@given(data=st.data())
@settings(max_examples=25)
def test_spans_hold_every_encoding_for_which_the_comparison_is_true(
    codec_name: str, type_name: str, data: st.DataObject
) -> None:
    codec, type = codec_named(codec_name), parse_type(type_name)
    given_value = data.draw(values(type, stored=False))
    operator = data.draw(st.sampled_from(["=", "<", "<=", ">", ">="]))
    spans = codec.spans(operator, given_value, type)
    if spans is None:
        return
    assert list(spans) == sorted(spans, key=lambda span: span.low)
    for stored in data.draw(st.lists(values(type, stored=True), max_size=10)):
        try:
            encoded = codec.encode(stored, type)
        except BadValueError:
            continue
        sign = compare(stored, given_value)
        is_true = {"=": sign == 0, "<": sign < 0, "<=": sign <= 0, ">": sign > 0, ">=": sign >= 0}[operator]
        is_inside = any(span.low <= (encoded, 0) and (span.high is None or (encoded, 1) <= span.high) for span in spans)
        assert is_inside or not is_true
        if operator == "=" and is_inside and type.name != "date" and not isinstance(stored, float):
            assert is_true


@pytest.mark.parametrize(
    ("codec_name", "type_name", "order"),
    [
        ("naive", "int", Order.SIGNED),
        ("naive", "timestamp", Order.SIGNED),
        ("naive", "string", Order.SAME),
        ("naive", "double", Order.NONE),
        ("naive", "decimal", Order.NONE),
        ("orderedbytes", "double", Order.SAME),
        ("orderedbytes", "decimal", Order.SAME),
        ("phoenix", "int", Order.SAME),
        ("string", "int", Order.NONE),
        ("string", "date", Order.SAME),
        ("json", "int", Order.NONE),
    ],
)
def test_claimed_order(codec_name: str, type_name: str, order: Order) -> None:
    assert codec_named(codec_name).order(parse_type(type_name)) is order


@pytest.mark.parametrize(("codec_name", "type_name"), PAIRS)
@given(raw=st.lists(st.binary(min_size=1, max_size=13), max_size=6), data=st.data())
@settings(max_examples=25)
def test_arrays_decode_as_single_values_do(
    codec_name: str, type_name: str, raw: list[bytes], data: st.DataObject
) -> None:
    codec, type = codec_named(codec_name), parse_type(type_name)
    width = codec.width(type)
    if width is None:
        return
    good = [
        codec.encode(v, type)
        for v in data.draw(st.lists(values(type, stored=True), max_size=6))
        if _can(codec, v, type)
    ]
    cells = good + [each.ljust(width, b"\x80")[:width] for each in raw]
    found = codec.decode_array(np.frombuffer(b"".join(cells), dtype="u1").reshape(-1, width), type)
    assert found is not None
    array, bad = found
    for index, cell in enumerate(cells):
        try:
            value = codec.decode(cell, type)
        except BadValueError:
            assert bad is not None
            assert bad[index]
        else:
            assert bad is None or not bad[index]
            assert _same(array[index], value, type)


def _can(codec: Codec, value: object, type: DataType) -> bool:
    try:
        codec.encode(value, type)
    except BadValueError:
        return False
    return True


def _same(item: object, value: object, type: DataType) -> bool:
    if isinstance(value, datetime.datetime):
        start = EPOCH if value.tzinfo else EPOCH.replace(tzinfo=None)
        return int(item) == (value - start) // datetime.timedelta(microseconds=1)  # type: ignore[call-overload]
    if isinstance(value, datetime.date):
        return int(item) == (value - EPOCH.date()).days  # type: ignore[call-overload]
    if isinstance(value, float):
        return math.isnan(float(item)) if math.isnan(value) else float(item) == value  # type: ignore[arg-type]
    return bool(item == value)


@pytest.mark.parametrize(
    ("codec_name", "type_name", "data", "words"),
    [
        ("naive", "int", b"abc", "int takes 4 bytes, got 3: abc"),
        ("naive", "bigint", b"", "bigint takes 8 bytes, got 0"),
        ("naive", "string", b"a\xff", "no UTF-8 at byte 1"),
        ("naive", "decimal(4,2)", b"\0\0\0\x03\x01", "does not fit decimal(4,2) without losing digits"),
        ("naive", "decimal(4,2)", b"\0\0\0\x02\x7f\xff", "more digits than decimal(4,2)"),
        ("naive", "timestamp", b"\x7f" * 8, "outside of the years 1 to 9999"),
        ("string", "int", b"x1", "no int: x1"),
        ("string", "int", b"99999999999", "outside of int"),
        ("string", "date", b"2024-2-3", "no date"),
        ("orderedbytes", "int", b"\x2c\0\0\0\0", "int begins with 0x2b, not with 0x2c"),
        ("orderedbytes", "string", b"\x34abc", "no string of OrderedBytes begins at byte 0"),
        ("phoenix", "decimal(4,2)", b"\xc1\xff", "no DECIMAL of Phoenix"),
        ("phoenix_unsigned", "int", b"\x80\0\0\0", "unsigned number has its sign bit set"),
        ("json", "int", b"{", "no JSON"),
        ("json", "int", b'"1"', "is no int"),
        ("json", "array<int>", b"[1, null, true]", "is no int"),
    ],
)
def test_bytes_that_are_no_value_say_why(codec_name: str, type_name: str, data: bytes, words: str) -> None:
    with pytest.raises(BadValueError) as caught:
        codec_named(codec_name).decode(data, parse_type(type_name))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("codec_name", "type_name", "value", "words"),
    [
        ("naive", "tinyint", 128, "outside of tinyint (-128 to 127)"),
        ("naive", "int", "1", "is no int"),
        ("naive", "int", True, "is no int"),
        ("naive", "decimal(4,2)", Decimal("1.234"), "more than the 2 fraction digits"),
        ("naive", "timestamp", datetime.datetime(2024, 1, 1), "has no time zone"),  # noqa: DTZ001  # it has none, on purpose
        ("orderedbytes", "string", "a\0b", "U+0000"),
        ("phoenix", "string", "", "null in Phoenix"),
        ("phoenix_unsigned", "int", -1, "is negative"),
    ],
)
def test_values_that_have_no_bytes_say_why(codec_name: str, type_name: str, value: object, words: str) -> None:
    with pytest.raises(BadValueError) as caught:
        codec_named(codec_name).encode(value, parse_type(type_name))
    assert words in str(caught.value)


def test_json_holds_what_no_other_codec_does() -> None:
    json, type = codec_named("json"), parse_type("struct<a:array<int>,m:map<string,decimal(20,10)>,b:binary>")
    value = {"a": [1, None], "m": [("x", Decimal("1234567890.0123456789"))], "b": b"\xff"}
    written = json.encode({**value, "m": dict(value["m"])}, type)  # type: ignore[call-overload]
    assert written == b'{"a":[1,null],"m":{"x":1234567890.0123456789},"b":"/w=="}'
    assert json.decode(written, type) == value
    assert json.decode(b"null", type) is None


@pytest.mark.parametrize(
    ("value", "type", "expected"),
    [
        (3, "int", Fitted(3, True)),
        (Decimal("3.5"), "int", Fitted(3, False)),
        (-0.5, "int", Fitted(-1, False)),
        (2**31, "int", Fitted(2**31 - 1, False, True)),
        (-(2**31) - 1, "int", Fitted(None, False)),
        (1e300, "bigint", None),  # Spark makes a double of the column
        (0.5, "decimal(4,2)", None),  # the same
        (Decimal("0.005"), "decimal(4,2)", Fitted(Decimal("0.00"), False)),
        (Decimal("-0.005"), "decimal(4,2)", Fitted(Decimal("-0.01"), False)),
        (1000, "decimal(4,2)", Fitted(Decimal("99.99"), False, True)),
        (0.1, "double", Fitted(0.1, True)),
        (0.1, "float", Fitted(0.09999999403953552, False)),
        (math.nan, "double", None),
    ],
)
def test_given_values_are_brought_into_the_type(value: object, type: str, expected: Fitted | None) -> None:
    assert fitted(value, parse_type(type)) == expected


class Backwards(Codec):
    """A user's codec: text, back to front."""

    def encode(self, value: object, type: DataType) -> bytes:
        return str(value)[::-1].encode()

    def decode(self, data: bytes, type: DataType) -> object:
        return data.decode()[::-1]


def test_a_dotted_name_loads_a_codec_of_the_user_and_survives_a_pickle() -> None:
    name = f"{__name__}.Backwards"
    codec = codec_named(name)
    assert codec.decode(codec.encode("abc", parse_type("string")), parse_type("string")) == "abc"
    assert type(pickle.loads(pickle.dumps(codec))) is type(codec)
    assert codec.spans("=", "abc", parse_type("string")) is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("phenix", "did you mean phoenix?"),
        ("xyzzy", "known are naive, string"),
        ("no_such_package.Codec", "cannot be imported"),
        ("os.path", "no metaclient.columns.codecs.Codec"),
    ],
)
def test_an_unknown_codec_is_refused(name: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        codec_named(name)
    assert words in str(caught.value)
