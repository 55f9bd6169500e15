"""The error table, on texts that real gateways (HBase 2.6.1) have said."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thriftpy2.thrift import TApplicationException
from thriftpy2.transport import TTransportException

from metaclient import errors
from metaclient.errors import Disposition, MetaClientError
from metaclient.model import ServerName
from metaclient.wire.java_errors import JAVA_ERRORS, error_class
from metaclient.wire.thrift.idl import thrift1, thrift2
from metaclient_thrift.errors import CallAttempt, is_answer, translate_error

RECORDED = json.loads((Path(__file__).parent / "data" / "recorded_errors.json").read_text(encoding="utf-8"))
WRITE = CallAttempt("put", b"t1", is_write=True, gateway="gw:9090")
READ = CallAttempt("get", b"t1", gateway="gw:9090")


def said(text: str, can_retry: bool | None = True, call: CallAttempt = READ) -> MetaClientError:
    return translate_error(thrift2().TIOError(message=text, canRetry=can_retry), call)


def raised(recorded: dict[str, Any]) -> Exception:
    kind = recorded["exception"]
    if kind == "TIOError":
        return thrift2().TIOError(message=recorded["text"], canRetry=recorded["can_retry"])
    if kind == "TIllegalArgument":
        return thrift2().TIllegalArgument(message=recorded["text"])
    return getattr(thrift1(), kind)(message=recorded["text"].encode())


@pytest.mark.parametrize("recorded", RECORDED, ids=[one["case"] for one in RECORDED])
def test_recorded_text_becomes_its_error_in_one_line(recorded: dict[str, Any]) -> None:
    error = translate_error(
        raised(recorded), CallAttempt("x", recorded["table"].encode(), is_write=recorded["is_write"])
    )
    assert type(error).__name__ == recorded["error"]
    assert error.may_have_applied is recorded["may_have_applied"]
    assert "\n" not in str(error)
    assert len(str(error)) < 400
    assert "\tat " not in str(error)
    assert error.detail == recorded["text"]
    assert error.__cause__ is not None


_ATTEMPT = "2026-11-16T07:00:00.000Z, RpcRetryingCaller{globalStartTime=1, pause=100, maxAttempts=5}, "
RETRIED = (
    "Failed after attempts=5, exceptions:\n"
    f"{_ATTEMPT}java.io.EOFException: Call to localhost/127.0.0.1:1 failed on local exception: the end\n"
    f"{_ATTEMPT}org.apache.hadoop.hbase.NotServingRegionException: "
    "org.apache.hadoop.hbase.NotServingRegionException: t1,,1.abc. is not online on localhost,1,1\n"
    "\tat org.apache.hadoop.hbase.regionserver.HRegionServer.getRegionByEncodedName(HRegionServer.java:1)\n"
)


def test_last_attempt_of_the_gateway_is_the_cause() -> None:
    error = said(RETRIED)
    assert isinstance(error, errors.NotServingRegion)
    assert error.disposition is Disposition.RELOCATE


def test_write_is_in_doubt_when_any_attempt_of_the_gateway_is() -> None:
    """The last attempt was refused, but an earlier one broke in the middle; one that never connected is harmless."""
    assert said(RETRIED, call=WRITE).may_have_applied
    refused = RETRIED.replace("java.io.EOFException", "java.net.ConnectException")
    assert not said(refused, call=WRITE).may_have_applied
    assert not said(RETRIED).may_have_applied


def test_moved_region_names_its_new_server() -> None:
    error = said(
        "org.apache.hadoop.hbase.exceptions.RegionMovedException: Region moved to: hostname=rs9 port=16020 "
        "startCode=17. As of locationSeqNum=12."
    )
    assert isinstance(error, errors.RegionMoved)
    assert (error.server, error.seqnum) == (ServerName("rs9", 16020, 17), 12)


def test_secondary_that_may_not_read_yet_sends_us_to_the_next() -> None:
    error = said("java.io.IOException: The region's reads are disabled. Cannot serve the request\n\tat x.Y.z(Y.java:1)")
    assert isinstance(error, errors.ReadsDisabled)
    assert error.disposition is Disposition.NEXT_REPLICA


def test_throttled_call_says_how_long_to_wait() -> None:
    error = said(
        "org.apache.hadoop.hbase.quotas.RpcThrottlingException: number of requests exceeded - wait 1sec, 250ms"
    )
    assert isinstance(error, errors.Throttled)
    assert error.wait_s == 1.25


def test_unknown_class_is_judged_by_can_retry() -> None:
    assert isinstance(said("com.example.OddException: what?", False), errors.RequestRefused)
    assert said("com.example.OddException: what?", True).disposition is Disposition.BACKOFF
    assert said("com.example.OddException: what?", None).disposition is Disposition.BACKOFF


def test_table_called_like_another_text_is_not_found_only_by_its_own_name() -> None:
    assert isinstance(said("t1", False), errors.TableNotFound)
    assert isinstance(said("t2", False), errors.RequestRefused)
    assert isinstance(said("ns:t", False, CallAttempt("get", b"ns:t")), errors.TableNotFound)


@pytest.mark.parametrize(
    ("error", "kind", "is_good"),
    [
        (TimeoutError("x"), errors.CallTimeout, False),
        (ConnectionResetError(104, "x"), errors.ServerUnreachable, False),
        (TTransportException(TTransportException.END_OF_FILE, "x"), errors.ServerUnreachable, False),
        (TApplicationException(TApplicationException.INTERNAL_ERROR, "Internal error"), errors.RequestRefused, True),
        (TApplicationException(TApplicationException.UNKNOWN_METHOD, "Invalid"), errors.Unsupported, True),
        (TApplicationException(TApplicationException.PROTOCOL_ERROR, "Required field"), errors.BackendFault, False),
        (KeyError("x"), errors.BackendFault, False),
    ],
)
def test_trouble_below_hbase(error: Exception, kind: type[MetaClientError], is_good: bool) -> None:
    made = translate_error(error, WRITE)
    assert type(made) is kind
    assert is_answer(error) is is_good, "only after an answer may the connection be used again"
    assert made.may_have_applied or kind is errors.Unsupported


def test_our_own_errors_pass_unchanged() -> None:
    error = errors.TableNotFound("x")
    assert translate_error(error, READ) is error


@given(text=st.text(max_size=300), can_retry=st.sampled_from([True, False, None]))
def test_any_text_becomes_some_error_of_one_line(text: str, can_retry: bool | None) -> None:
    error = said(text, can_retry)
    assert isinstance(error, MetaClientError)
    assert len(str(error).splitlines()) == 1


@pytest.mark.parametrize("java_class", sorted(JAVA_ERRORS))
def test_every_known_class_is_found_by_full_and_simple_name(java_class: str) -> None:
    assert type(said(f"{java_class}: text\n\tat a.B.c(B.java:1)")) in (JAVA_ERRORS[java_class], errors.BackendFault)
    assert error_class(java_class) is JAVA_ERRORS[java_class]
    assert error_class(java_class.rpartition(".")[2]) is not None
