"""Formats an error as HBase's gateways do: class, text, stack trace, attempts (recorded from HBase 2.6.1).

1. Raised in the gateway's own client (a table that is missing or disabled, for data calls): the text only.
2. Raised on a server: ``Class: text`` and a stack trace. Thrift 1 adds the class once more before it, and the cause
   after it.
3. Retried: ``Failed after attempts=5, exceptions:`` and one line per attempt.
4. A batch: ``Failed 2 actions: Class: 2 times, servers with issues: ...``, always marked as retryable.

Thrift 2 sends the message only, Thrift 1 the whole trace, which begins with the class of the exception itself. The
adapter's error table (adapters/metaclient_thrift/errors.py) reads these texts; the unit tests send metaclient's errors
through both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from metaclient import errors
from metaclient.attempts.retry import pause_s
from metaclient.config import Config
from metaclient.errors import (
    Attempt,
    CallTimeout,
    DeadlineExceeded,
    Disposition,
    MetaClientError,
    NoSuchReplica,
    NotServingRegion,
    RegionOffline,
    RetriesExhausted,
    TableDisabled,
    TableExists,
    TableNotDisabled,
    TableNotFound,
)
from metaclient.keys import printable
from metaclient.model import META_TABLE
from metaclient.wire import java_errors

__all__ = ["IO_EXCEPTION", "AskedCall", "JavaError", "batch_error", "of_call"]

_HBASE = "org.apache.hadoop.hbase."
IO_EXCEPTION = "java.io.IOException"
_RETRIES_EXHAUSTED = _HBASE + "client.RetriesExhaustedException"
_WITH_DETAILS = _HBASE + "client.RetriesExhaustedWithDetailsException"
_REMOTE = _HBASE + "ipc.RemoteWithExtrasException"
_NOT_DISABLED = str(TableNotDisabled.java_class)
_NAMESPACE_EXISTS = _HBASE + "NamespaceExistException"
_NO_NAMESPACE = _HBASE + "NamespaceNotFoundException"
#: Calls that the master refuses; for other calls, the gateway's client itself detects a missing or disabled table.
_BY_MASTER = frozenset(
    {
        "addColumnFamily",
        "compact",
        "createTable",
        "deleteColumnFamily",
        "deleteTable",
        "disableTable",
        "majorCompact",
        "modifyColumnFamily",
        "modifyTable",
        "truncateTable",
    }
)
#: In place of the frames of HBase's traces; the text shows that there is no such Java code.
FRAME = "\tat metaclient.fake.{where}(a fake HBase)"


@dataclass(frozen=True, slots=True)
class JavaError:
    """A Java exception of HBase, and its texts in Thrift 2 and Thrift 1."""

    java_class: str
    message: str
    can_retry: bool
    is_remote: bool = False

    @property
    def thrift2(self) -> str:
        return self.message

    @property
    def thrift1(self) -> str:
        trace = f"{self.java_class}: {self.message}"
        if not self.is_remote:
            return f"{trace}\n{FRAME.format(where='Gateway')}"
        return f"{trace}\n\n{FRAME.format(where='Gateway')}\nCaused by: {_REMOTE}({self.java_class}): {self.message}"


def java_class_of(error: MetaClientError) -> str:
    """Return the Java class: the one in ``error.detail``, else the one of the error's type."""
    detail = error.detail or ""
    if detail.startswith(("org.", "java.")) and " " not in detail and "\n" not in detail:
        return detail
    return type(error).java_class or IO_EXCEPTION


@dataclass(frozen=True, slots=True)
class AskedCall:
    """The table, row and replica of a call, for the error texts."""

    table: bytes | None = None
    namespace: str = ""
    row: bytes = b""
    replica_id: int = 0
    is_scan: bool = False


def of_call(method: str, error: MetaClientError, config: Config, now_ms: int, asked: AskedCall) -> JavaError:
    """Return the error with which a call of HBase's own client fails."""
    name = _name(asked.table)
    if isinstance(error, TableNotFound | TableExists):
        java = str(type(error).java_class)
        if method in _BY_MASTER:
            return _raised(java, name)
        return JavaError(java, name, can_retry=False)
    if isinstance(error, TableDisabled | TableNotDisabled):
        return _of_state(method, name)
    java = java_class_of(error)
    if java == _NAMESPACE_EXISTS:
        return _raised(java, f"Namespace {asked.namespace} already exists")
    if java == _NO_NAMESPACE:
        return _raised(java, asked.namespace)
    if isinstance(error, RetriesExhausted | DeadlineExceeded | NoSuchReplica):
        return _exhausted(error, config, now_ms, asked)
    return server_error(error)


def _of_state(method: str, name: str) -> JavaError:
    """Return the error for a table that is not in the state that the call needs."""
    if method == "enableTable":
        return JavaError(_NOT_DISABLED, f"tableName={name}, state=ENABLED", can_retry=False)
    if method == "disableTable":
        return _raised(str(TableDisabled.java_class), name)
    if method in _BY_MASTER:
        return _raised(_NOT_DISABLED, f"Not DISABLED; tableName={name}, state=ENABLED")
    return JavaError(str(TableDisabled.java_class), f"{name} is disabled.", can_retry=False)


def server_error(error: MetaClientError) -> JavaError:
    """Return the error that a server, or the master, has raised."""
    return _raised(java_class_of(error), str(error), can_retry=error.disposition is not Disposition.FATAL)


def _raised(java: str, text: str, *, can_retry: bool = False) -> JavaError:
    return JavaError(java, f"{java}: {text}\n{FRAME.format(where='Server')}", can_retry, is_remote=True)


def _exhausted(error: MetaClientError, config: Config, now_ms: int, asked: AskedCall) -> JavaError:
    """Return a line per attempt, with its time, as RetriesExhaustedException writes them."""
    unplaced = _unplaced(asked)
    if isinstance(_cause(error), RegionOffline) and asked.table != META_TABLE and not asked.is_scan:
        return JavaError(_RETRIES_EXHAUSTED, unplaced[1], can_retry=True)
    attempts = _attempts(error, config)
    elapsed_s = attempts[-1].elapsed_s if attempts else 0.0
    begun = datetime.fromtimestamp(now_ms / 1000 - elapsed_s, UTC)
    caller = f"RpcRetryingCaller{{globalStartTime={_iso(begun)}, pause={round(config.pause_s * 1000)}, "
    caller += f"maxAttempts={config.retries + 1}}}"
    lines = [
        f"{_iso(begun + timedelta(seconds=one.elapsed_s))}, {caller}, {_java_line(one.error, unplaced)}"
        for one in attempts
    ]
    message = f"Failed after attempts={len(lines)}, exceptions:\n" + "\n".join(lines)
    return JavaError(_RETRIES_EXHAUSTED, message, can_retry=True)


def _attempts(error: MetaClientError, config: Config) -> Sequence[Attempt]:
    """Return the attempts of the Java client: unlike metaclient, it retries for a replica that does not exist."""
    if not isinstance(error, NoSuchReplica) or not error.attempts:
        return error.attempts
    first, elapsed_s, made = error.attempts[0], error.attempts[0].elapsed_s, []
    for number in range(1, config.retries + 2):
        made.append(replace(first, number=number, elapsed_s=elapsed_s))
        elapsed_s += pause_s(number, unit_s=config.pause_s)
    return made


def _unplaced(asked: AskedCall) -> tuple[str, str]:
    """Return class and text for a replica that is on no server, or does not exist."""
    if asked.table == META_TABLE:
        return _HBASE + "HBaseIOException", f"There is no location for replica id #{asked.replica_id}"
    row, table = printable(asked.row), _name(asked.table)
    text = f"Cannot get the location for replica{asked.replica_id} of region for {row} in {table}"
    return _RETRIES_EXHAUSTED, text


def _cause(error: MetaClientError) -> BaseException | None:
    cause: BaseException | None = error
    while isinstance(cause, RetriesExhausted | DeadlineExceeded) or (
        isinstance(cause, CallTimeout) and cause.__cause__ is not None
    ):
        cause = cause.__cause__
    return cause


def _java_line(said: str, unplaced: tuple[str, str]) -> str:
    """Return ``NotServingRegion: text`` with the name of the Java class."""
    kind, _, text = said.partition(": ")
    if kind in (RegionOffline.__name__, NoSuchReplica.__name__):
        return ": ".join(unplaced)
    java = getattr(getattr(errors, kind, None), "java_class", None) or IO_EXCEPTION
    return f"{java}: {text}"


def batch_error(failed: Sequence[MetaClientError], table: bytes) -> JavaError:
    """Return the error of a batch in which some actions failed; it does not contain the results of the others."""
    counted = Counter(_batch_cause(error, table) for error in failed)
    causes = ", ".join(f"{cause}: {count} time{'s' if count > 1 else ''}" for cause, count in counted.items())
    servers = sorted({str(error.place.server) for error in failed if error.place is not None})
    actions = f"{len(failed)} action{'s' if len(failed) > 1 else ''}"
    message = f"Failed {actions}: {causes}, servers with issues: {', '.join(servers) or 'null'}"
    return JavaError(_WITH_DETAILS, message, can_retry=True)


def _batch_cause(error: MetaClientError, table: bytes) -> str:
    cause = _cause(error)
    if isinstance(cause, TableNotFound):
        return _name(table)
    if isinstance(cause, TableDisabled):  # HBase's batches do not check the table's state
        return java_errors.simple_name(str(NotServingRegion.java_class))
    if not isinstance(cause, MetaClientError):
        cause = error
    if cause.disposition is not Disposition.FATAL:
        return java_errors.simple_name(java_class_of(cause))
    return f"{server_error(cause).message}\n"


def _name(table: bytes | None) -> str:
    return printable(table) if table else ""


def _iso(instant: datetime) -> str:
    return instant.strftime("%Y-%m-%dT%H:%M:%S.") + f"{instant.microsecond // 1000:03d}Z"
