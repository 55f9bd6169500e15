"""Texts and numbers of a hostile peer take time and memory in proportion to their length, and never foreign errors."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from metaclient.columns.codecs.text import float_from_text
from metaclient.columns.types import parse_type
from metaclient.errors import ConfigError, MetaClientError, RegionMoved, Throttled
from metaclient.protobuf import ProtocolError
from metaclient.wire import java_errors
from metaclient.wire.rpc.framing import parse_response, response
from metaclient.wire.thrift.idl import thrift2
from metaclient_native.url import NativeUrl
from metaclient_thrift.errors import CallAttempt, translate_error
from spark_connector.conditions.sql_text import parse_where
from spark_connector.schema.catalog import _loaded

T2 = thrift2()
CALL = CallAttempt("get", b"t", gateway="h:1", scheme="thrift2")
MOVED = "org.apache.hadoop.hbase.exceptions.RegionMovedException"


class CountedBytes(bytes):
    """Bytes that count how often one of them is looked at."""

    looks = 0

    def __getitem__(self, at):  # type: ignore[no-untyped-def]  # as bytes has it
        self.looks += 1
        return super().__getitem__(at)


def test_endless_varint_as_call_id_is_refused_after_a_few_bytes() -> None:
    frame = CountedBytes(b"\x7f\x08" + b"\xff" * 200_000)
    with pytest.raises(ProtocolError):
        parse_response(frame)
    assert frame.looks < 100


@pytest.mark.parametrize("call_id", [0, 127, 128, 2**31 - 1, 0xFFFFFFFF])
def test_every_call_id_of_32_bits_is_still_read(call_id: int) -> None:
    assert parse_response(response(call_id, b"ab")[4:]).call_id == call_id


HOSTILE = {
    "moved hosts": "hostname=" * 8_000,
    "moved without its end": "hostname=h port=1 startCode=1 " * 2_000,
    "times": "T" * 60_000,
    "classes": "a." * 40_000,
    "nested causes": "a.B: " + "a.BException: " * 6_000,
    "upper case batch": "Failed 1 action: " + "A" * 60_000,
    "batches": "Failed 1 action: " * 4_000,
    "digits": "wait " + "9" * 60_000 + " mins",
    "lines": "\n" * 80_000,
    "callers": "RpcRetryingCaller{" * 4_000,
}


def checked(make: Callable[[], MetaClientError]) -> MetaClientError:
    """Make an error under a count of memory. A quadratic pattern would take minutes here, and the suite's time-out."""
    tracemalloc.start()
    try:
        made = make()
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert len(str(made)) < 1_000
    return made


@pytest.mark.parametrize("name", HOSTILE)
def test_error_text_without_bounds_is_translated_within_bounds(name: str) -> None:
    for text in (HOSTILE[name] * 10, f"{MOVED}: {HOSTILE[name]}"):
        checked(lambda text=text: translate_error(T2.TIOError(message=text), CALL))  # type: ignore[misc]  # bound at once


@pytest.mark.parametrize("kind", [RegionMoved, Throttled])
@pytest.mark.parametrize("name", HOSTILE)
def test_detail_without_bounds_is_searched_within_bounds(kind: type[MetaClientError], name: str) -> None:
    detail = HOSTILE[name] * 10
    made = checked(lambda: java_errors.make_error(kind, detail[:200], may_have_applied=False, detail=detail))
    assert made.detail is not None
    assert len(made.detail) <= java_errors.TEXT_CHARS_MAX


def test_place_and_wait_are_still_found_in_an_ordinary_text() -> None:
    text = "Region moved to: hostname=rs2.example port=16020 startCode=1700000000000. As of locationSeqNum=42."
    moved = java_errors.make_error(RegionMoved, "x", may_have_applied=False, detail=text)
    assert isinstance(moved, RegionMoved)
    assert (moved.server is not None and moved.server.host, moved.seqnum) == ("rs2.example", 42)
    throttled = java_errors.make_error(
        Throttled, "number of requests exceeded - wait 1mins, 5sec, 20ms", may_have_applied=False, detail=None
    )
    assert isinstance(throttled, Throttled)
    assert throttled.wait_s == 65.02


@pytest.mark.parametrize("port", ["0" * 5_000 + "1", "00001234567", "9" * 5_000, "65536", "0", "-1", "²", ""])
def test_client_port_without_bounds_is_a_config_error(port: str) -> None:
    with pytest.raises(ConfigError, match="clientPort"):
        NativeUrl.parse("hbase://zk1/hbase", {"hbase.zookeeper.property.clientPort": port})


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, '{"table": ' + "9" * 10_000 + "}"], ids=["lists", "objects", "digits"]
)
def test_catalog_without_bounds_is_a_config_error(text: str) -> None:
    with pytest.raises(ConfigError, match="catalog"):
        _loaded(text)


@pytest.mark.parametrize("number", ["9" * 5_000, "9" * 5_000 + "L", "-" + "9" * 5_000])
def test_number_of_thousands_of_digits_in_a_condition_is_a_config_error(number: str) -> None:
    for condition in (f"a = {number}", f"a IN (1, {number})", f"a BETWEEN 1 AND {number}"):
        with pytest.raises(ConfigError, match="a number of more than"):
            parse_where(condition)


@pytest.mark.parametrize("exponent", ["e99999", "e-99999F", "e9999999F", "e9999999D", "e" + "9" * 30, "e-" + "9" * 30])
def test_exponent_beyond_decimals_in_a_condition_is_a_config_error(exponent: str) -> None:
    with pytest.raises(ConfigError, match="the exponent"):
        parse_where(f"a = 1{exponent}")


def test_condition_without_bounds_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="1,000,001 characters, 1,000,000 are allowed"):
        parse_where("a" * 1_000_001)


def test_nothing_behind_a_mistake_in_a_condition_is_read() -> None:
    with pytest.raises(ConfigError, match=r"at character 5, .*a literal or a column should be here"):
        parse_where("a = AND b = 1 ; no token")


@pytest.mark.parametrize("letter", ["x", "_", "e"])
def test_digits_before_a_letter_are_refused_in_linear_time(letter: str) -> None:
    # Quadratic time would be an hour for each of the two, and the limit of a test is five minutes.
    digits = "1" * 500_000 + letter
    with pytest.raises(ConfigError, match="at character 5"):
        parse_where(f"a = {digits}")
    with pytest.raises(ValueError, match=r"^$"):
        float_from_text(digits, parse_type("double"))
