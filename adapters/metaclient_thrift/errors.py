"""Translates errors of gateways into MetaClientErrors: the only module that parses their texts.

There are four kinds of text (Thrift 2; a text of Thrift 1 always begins with the class):

1. Raised on a region server: ``org.apache.hadoop.hbase.SomeException: text`` and a stack trace.
2. Retried inside the gateway: ``Failed after attempts=5, exceptions:`` and a line per attempt, with time, class and
   text. The cause of the last attempt decides.
3. A batch: ``Failed 2 actions: SomeException: 2 times, servers with issues: ...``.
4. Raised by the gateway's own client: only a text. For an unknown table the text is its name.

The class decides; else the text; else ``canRetry``. The message is one line, the whole text is in ``detail``.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from thriftpy2.protocol.exc import TProtocolException
from thriftpy2.thrift import TApplicationException, TException
from thriftpy2.transport import TTransportException

from metaclient import keys
from metaclient.errors import (
    BackendFault,
    CallTimeout,
    ConfigError,
    MetaClientError,
    RequestRefused,
    ScannerLost,
    ServerUnreachable,
    TableExists,
    TableNotFound,
    Unsupported,
)
from metaclient.wire import java_errors
from metaclient.wire.peers import describe_peer, recognise_peer
from metaclient_thrift.messages import NotThrift

__all__ = ["CallAttempt", "is_answer", "translate_error"]

#: Every repetition has a bound: without one, matching a hostile text takes quadratic time.
_CLASS = r"(?:[a-z]\w{0,63}\.){1,16}(?:\w{1,127}\$)?[A-Z]\w{0,127}"
#: A class at the start of a line, or after the time and the caller of an attempt.
_NAMED = rf"(?P<java>{_CLASS})(?:\((?P<inner>{_CLASS})\))?(?:: (?P<text>.*))?$"
_LINE = re.compile(rf"^(?:\S{{1,40}}T\S{{1,40}}, )?(?:RpcRetryingCaller\{{.*?\}}, )?{_NAMED}")
_CAUSE = re.compile(rf"^\s*Caused by: {_NAMED}")
_NESTED = re.compile(rf"\b(?P<java>{_CLASS}(?:Exception|Error))(?P<inner>\b): (?P<text>.*)$")
_BATCH = re.compile(r"Failed \d+ actions?: (?P<cause>.*?)(?:: \d+ times?\b.*)?$", re.MULTILINE)
_SIMPLE = re.compile(r"^(?P<java>[\w.$]{1,300})(?:: (?P<text>.*))?$")
_SUFFIXES = ("Exception", "Error")
#: HBase's longest lines hold a region's name and a row; longer lines are cut.
_LINE_CHARS_MAX = 4096
#: 35 attempts (hbase.client.retries.number of old versions) name three classes each. The last ones decide.
_CAUSES_MAX = 256
#: Classes that wrap the cause.
_WRAPPERS = frozenset(
    {
        "IOException",
        "RemoteException",
        "RemoteWithExtrasException",
        "RetriesExhaustedException",
        "RetriesExhaustedWithDetailsException",
        "UncheckedIOException",
        "RuntimeException",
        "ExecutionException",
        "ServiceException",
    }
)
#: Errors that are final, although HBase wraps them in an exception that may be retried.
_FINAL = frozenset({"IncompatibleFilterException", "InvalidRowFilterException"})
#: TApplicationException types after which the connection can be used again.
_IN_STEP = frozenset(
    {
        TApplicationException.UNKNOWN_METHOD,
        TApplicationException.MISSING_RESULT,
        TApplicationException.INTERNAL_ERROR,
    }
)


@dataclass(frozen=True, slots=True)
class CallAttempt:
    """One attempt of a call at one gateway, as far as its errors depend on it."""

    what: str
    table: bytes | None = None
    is_write: bool = False
    gateway: str = ""
    scheme: str = ""

    def __str__(self) -> str:
        table = f" on table {keys.printable(self.table)!r}" if self.table else ""
        return f"{self.what}{table}"


@dataclass(frozen=True, slots=True)
class _Cause:
    """A Java class (full or simple name; empty: none was named) and its text."""

    java: str
    text: str

    @property
    def simple(self) -> str:
        return java_errors.simple_name(self.java)

    @property
    def is_wrapper(self) -> bool:
        return self.simple in _WRAPPERS or not self.java


def is_answer(error: BaseException) -> bool:
    """Return True if the error is the gateway's answer, by an error of HBase or a refusal: the connection is usable."""
    if isinstance(error, TApplicationException):
        return error.type in _IN_STEP
    return isinstance(error, TException) and not isinstance(error, TTransportException | TProtocolException)


def translate_error(error: BaseException, call: CallAttempt) -> MetaClientError:
    """Return the MetaClientError for an exception that a call through a gateway raised, with the exception as cause."""
    made = _translate(error, call)
    if made is not error:
        made.__cause__ = error
    return made


def _translate(error: BaseException, call: CallAttempt) -> MetaClientError:
    match error:
        case MetaClientError():
            return error
        case TimeoutError():
            text = f"the Thrift gateway {call.gateway} did not answer {call} in time"
            return CallTimeout(text, may_have_applied=call.is_write)
        case TApplicationException():
            return _translate_application(error, call)
        case NotThrift() if (peer := recognise_peer(error.first)) is not None:
            return ConfigError(f"{call.scheme}:// does not fit: {describe_peer(call.gateway, peer)}")
        case OSError() | EOFError() | TTransportException():
            text = f"the connection to the Thrift gateway {call.gateway} broke during {call}: {error}"
            return ServerUnreachable(text, may_have_applied=call.is_write)
        case TException():
            return _translate_hbase(error, call)
    return BackendFault(
        f"{call} failed in metaclient's Thrift client: {type(error).__name__}: {error}", may_have_applied=call.is_write
    )


def _translate_application(error: TApplicationException, call: CallAttempt) -> MetaClientError:
    said = _clip_text(error.message) or str(error)
    if error.type == TApplicationException.UNKNOWN_METHOD:
        return Unsupported(f"the Thrift gateway {call.gateway} does not know {call}: {said}; {_suggest_service(call)}")
    if error.type == TApplicationException.INTERNAL_ERROR:
        # A null pointer or an illegal argument in the gateway, which writes it only to its log.
        hint = "usually a bad argument, such as an empty row or a filter that does not parse"
        return RequestRefused(
            f"the Thrift gateway {call.gateway} had an internal error in {call}: {said} ({hint})",
            may_have_applied=call.is_write,
            detail=said,
        )
    return BackendFault(f"{call}: the Thrift gateway {call.gateway} returned {said}", may_have_applied=call.is_write)


def _suggest_service(call: CallAttempt) -> str:
    """Return a hint about the other service: gateways before HBase 2.3 do not report which one they serve."""
    is_first = call.scheme.startswith("thrift1")
    spoken, other = ("Thrift 1", "Thrift 2") if is_first else ("Thrift 2", "Thrift 1")
    url = f"thrift2://{call.gateway}" if is_first else f"thrift1://{call.gateway}"
    return (
        f"it is a {other} gateway (then write {url}), or a {spoken} gateway of an HBase that is too old for this call"
    )


def _clip_text(said: object) -> str:
    """Return a text, clipped. Thrift 1 is read without decoding, so its texts are bytes."""
    return java_errors.clipped(said.decode(errors="replace") if isinstance(said, bytes) else str(said or ""))


def _translate_hbase(error: TException, call: CallAttempt) -> MetaClientError:
    """Translate TIOError, TIllegalArgument, and Thrift 1's IOError, IllegalArgument and AlreadyExists."""
    said = _clip_text(getattr(error, "message", None))
    kind = type(error).__name__
    if kind == "AlreadyExists":
        return TableExists(f"{call}: {java_errors.one_line(said)}", detail=said)
    if kind in ("TIllegalArgument", "IllegalArgument") and "scanner" in said.lower():
        return ScannerLost(f"{call}: {java_errors.one_line(said)}", detail=said)
    can_retry = getattr(error, "canRetry", None)
    if kind == "IllegalArgument":
        can_retry = False
    return _judge(said, can_retry, call)


def _judge(said: str, can_retry: bool | None, call: CallAttempt) -> MetaClientError:
    causes = list(deque(_find_causes(said), maxlen=_CAUSES_MAX))
    cause = _choose_cause(causes) or _Cause("", java_errors.one_line(said))
    kind = java_errors.error_class(cause.java, f"{cause.text}\n{said}" if cause.is_wrapper else cause.text)
    if kind is None:
        kind = _judge_bare_text(cause.text or said, call)
    if kind is RequestRefused and can_retry and cause.simple not in _FINAL:
        kind = None  # although a plain IOException wraps it, which may be retried
    if kind is None:
        kind = RequestRefused if can_retry is False else BackendFault
    is_sure = java_errors.is_certainly_not_applied(kind, cause.java, cause.text) and all(
        java_errors.is_certainly_not_applied(java_errors.error_class(one.java, one.text), one.java, one.text)
        for one in causes
        if not one.is_wrapper
    )
    return java_errors.make_error(
        kind, _describe(cause, call), may_have_applied=call.is_write and not is_sure, detail=said
    )


def _judge_bare_text(said: str, call: CallAttempt) -> type[MetaClientError] | None:
    """Translate a text without a class: the name of a table, if that does not exist."""
    if call.table is not None and said.strip() in (call.table.decode(errors="replace"), _qualified(call.table)):
        return TableNotFound
    return None


def _qualified(table: bytes) -> str:
    text = table.decode(errors="replace")
    return text if ":" in text else f"default:{text}"


def _describe(cause: _Cause, call: CallAttempt) -> str:
    said = java_errors.one_line(": ".join(part for part in (cause.simple, cause.text) if part)) or "no text"
    return f"{call}: {said}"


def _find_causes(said: str) -> Iterator[_Cause]:
    """Return every exception that the text names, in order: of a batch, of attempts, of nested causes."""
    for whole in said.splitlines():
        line = whole[:_LINE_CHARS_MAX]
        found_line = _LINE.match(line) or _CAUSE.match(line)
        while found_line is not None:
            text = found_line["text"] or ""
            yield _Cause(found_line["inner"] or found_line["java"], text)
            found_line = _NESTED.search(text)
    for found in _BATCH.finditer(said):
        cause = found["cause"][:_LINE_CHARS_MAX]
        named = _SIMPLE.match(cause)
        is_class = named is not None and _is_exception(named["java"])
        yield _Cause(named["java"], named["text"] or "") if named and is_class else _Cause("", cause)


def _is_exception(java_class: str) -> bool:
    """Return True for the name of an exception's class, such as ``IOException`` or ``a.b.SomeError``."""
    simple = java_errors.simple_name(java_class)
    suffix = next((one for one in _SUFFIXES if simple.endswith(one)), "")
    return bool(suffix) and any(letter.isupper() for letter in simple.removesuffix(suffix))


def _choose_cause(causes: list[_Cause]) -> _Cause | None:
    """Return the last cause whose class is known; else the last that is no wrapper; else the last."""
    known = [one for one in causes if one.java and java_errors.error_class(one.java) is not None]
    specific = [one for one in known if one.simple != "DoNotRetryIOException"]
    real = [one for one in causes if not one.is_wrapper]
    chosen = specific or known or real or causes
    return chosen[-1] if chosen else None
