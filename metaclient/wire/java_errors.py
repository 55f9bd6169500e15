"""Maps HBase's Java exception classes to MetaClientErrors: one table for all adapters.

The names come from ``java_class`` of each error; ``ALIASES`` adds further classes of HBase. A class that is not listed
is looked up by its simple name, because texts often have only that. Otherwise it depends on whether HBase allows a
retry.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from metaclient import errors
from metaclient.errors import MetaClientError
from metaclient.model import ServerName

__all__ = [
    "JAVA_ERRORS",
    "TEXT_CHARS_MAX",
    "advise_on_denial",
    "clipped",
    "error_class",
    "is_certainly_not_applied",
    "make_error",
    "one_line",
    "simple_name",
]

_HBASE = "org.apache.hadoop.hbase."
ALIASES: Mapping[str, type[MetaClientError]] = {
    _HBASE + "NamespaceNotFoundException": errors.RequestRefused,
    _HBASE + "NamespaceExistException": errors.RequestRefused,
    _HBASE + "InvalidFamilyOperationException": errors.NoSuchFamily,
    _HBASE + "UnknownRegionException": errors.NotServingRegion,
    _HBASE + "client.NoServerForRegionException": errors.RegionOffline,
    _HBASE + "client.DoNotRetryRegionException": errors.RequestRefused,
    _HBASE + "client.ScannerTimeoutException": errors.ScannerLost,
    _HBASE + "exceptions.OutOfOrderScannerNextException": errors.ScannerLost,
    _HBASE + "exceptions.ScannerResetException": errors.ScannerLost,
    _HBASE + "regionserver.LeaseException": errors.ScannerLost,
    _HBASE + "exceptions.RegionInRecoveryException": errors.RegionOpening,
    _HBASE + "regionserver.RegionServerAbortedException": errors.ServerStopped,
    _HBASE + "regionserver.RegionServerRunningException": errors.ServerNotRunning,
    _HBASE + "exceptions.MasterStoppedException": errors.ServerStopped,
    _HBASE + "MasterNotRunningException": errors.ServerNotRunning,
    _HBASE + "PleaseHoldException": errors.ServerNotRunning,
    _HBASE + "NotAllMetaRegionsOnlineException": errors.ServerNotRunning,
    _HBASE + "ipc.ServerTooBusyException": errors.Overloaded,
    _HBASE + "ipc.CallQueueTooBigException": errors.CallQueueTooBig,
    _HBASE + "CallDroppedException": errors.Overloaded,
    _HBASE + "ipc.StoppedRpcClientException": errors.ServerUnreachable,
    _HBASE + "ipc.FailedServerException": errors.ServerUnreachable,
    _HBASE + "exceptions.ConnectionClosedException": errors.ServerUnreachable,
    _HBASE + "exceptions.ConnectionClosingException": errors.ServerUnreachable,
    _HBASE + "RetryImmediatelyException": errors.Overloaded,
    _HBASE + "MultiActionResultTooLarge": errors.Overloaded,
    _HBASE + "exceptions.FailedSanityCheckException": errors.RequestRefused,
    _HBASE + "exceptions.RequestTooBigException": errors.RequestRefused,
    _HBASE + "exceptions.UnknownProtocolException": errors.RequestRefused,
    _HBASE + "constraint.ConstraintException": errors.RequestRefused,
    _HBASE + "client.WrongRowIOException": errors.RequestRefused,
    _HBASE + "filter.IncompatibleFilterException": errors.RequestRefused,
    _HBASE + "filter.InvalidRowFilterException": errors.RequestRefused,
    _HBASE + "ipc.FatalConnectionException": errors.RequestRefused,
    _HBASE + "ipc.WrongVersionException": errors.RequestRefused,
    _HBASE + "ipc.BadAuthException": errors.RequestRefused,
    _HBASE + "quotas.QuotaExceededException": errors.RequestRefused,
    "org.apache.hbase.thirdparty.io.netty.channel.AbstractChannel$AnnotatedConnectException": errors.ServerUnreachable,
    "java.net.UnknownHostException": errors.ServerUnreachable,
    "java.net.NoRouteToHostException": errors.ServerUnreachable,
    "java.nio.channels.ClosedChannelException": errors.ServerUnreachable,
    "java.io.EOFException": errors.ServerUnreachable,
    "java.net.SocketTimeoutException": errors.CallTimeout,
    "java.util.concurrent.TimeoutException": errors.CallTimeout,
    _HBASE + "exceptions.TimeoutIOException": errors.CallTimeout,
}
#: MetaClientErrors that are no single event on a server: their ``java_class`` does not name a cause.
_NOT_CAUSES = (errors.ReadsDisabled, errors.RetriesExhausted, errors.DeadlineExceeded)
#: Refusals before anything was written: the write certainly did not happen.
_REFUSALS = (
    errors.NotServingRegion,
    errors.WrongRegion,
    errors.RegionOffline,
    errors.LocationUnknown,
    errors.ReadsDisabled,
    errors.Overloaded,
    errors.TableNotFound,
    errors.TableDisabled,
    errors.TableNotDisabled,
    errors.TableExists,
    errors.NoSuchFamily,
    errors.RequestRefused,
)
_GOING_OR_COMING = (errors.ServerStopped, errors.ServerNotRunning)
#: The text of a region server that refuses a call before it starts it. With another text the call may have run.
_AT_THE_DOOR = re.compile(r"Server \S+ (?:stopping|aborting)\b|Server \S+ is not running yet")
#: Classes that are raised before a call leaves the caller.
_NEVER_SENT = frozenset(
    {
        "ConnectException",
        "AnnotatedConnectException",
        "FailedServerException",
        "UnknownHostException",
        "NoRouteToHostException",
    }
)
#: Texts that decide where the class is only IOException.
_TEXTS: tuple[tuple[str, type[MetaClientError]], ...] = (
    # In HBase these are an IOException that may be retried; every retry would fail the same way.
    ("row length is 0", errors.RequestRefused),
    ("row length 0", errors.RequestRefused),
    ("illegal character code", errors.RequestRefused),
    ("reads are disabled", errors.ReadsDisabled),
    ("no location for replica", errors.RegionOffline),
    ("cannot get the location for replica", errors.RegionOffline),
    ("no meta location available", errors.ServerNotRunning),
    ("is disabled.", errors.TableDisabled),
    (", state=enabled", errors.TableNotDisabled),
    (", state=", errors.TableDisabled),  # an admin call on a table that is not in the state that it needs
    ("table name already in use", errors.TableExists),
    ("table does not exist", errors.TableNotFound),
    ("connection refused", errors.ServerUnreachable),
    ("failed on connection exception", errors.ServerUnreachable),
    ("failed on local exception", errors.ServerUnreachable),
)
#: The characters of an error's text that are parsed and kept: a stack trace is shorter, and parsing takes time.
TEXT_CHARS_MAX = 64 * 1024
# Every repetition below has a bound: without one, matching a hostile text takes quadratic time.
_MOVED = re.compile(
    r"hostname=(?P<host>\S{1,255}) port=(?P<port>[0-9]{1,5}) startCode=(?P<code>-?[0-9]{1,19})"
    r".{0,300}?locationSeqNum=(?P<seq>-?[0-9]{1,19})",
    re.DOTALL,
)
_WAIT = re.compile(
    r"(?:wait|sleep)[^0-9]{0,300}(?:(?P<min>[0-9]{1,9})\s{0,9}mins?,?\s{0,9})?"
    r"(?:(?P<sec>[0-9]{1,9})\s{0,9}sec,?\s{0,9})?(?:(?P<ms>[0-9]{1,9})\s{0,9}ms)?"
)

#: The parts of AccessDeniedException's text of HBase 2.6 (AuthResult.toContextString).
_DENIED = {
    "user": re.compile(r"\buser(?:=| ')([^,')]{1,300})"),
    "scope": re.compile(r"\b(?:scope|table)=([^,)]{1,300})"),
    "action": re.compile(r"\baction=([^,)]{1,300})"),
}


def _subclasses(root: type[MetaClientError]) -> Iterator[type[MetaClientError]]:
    for one in root.__subclasses__():
        yield one
        yield from _subclasses(one)


def _table() -> dict[str, type[MetaClientError]]:
    own = {
        one.__dict__["java_class"]: one
        for one in _subclasses(MetaClientError)
        if one.__module__ == errors.__name__ and one.__dict__.get("java_class") and one not in _NOT_CAUSES
    }
    return {**own, **ALIASES}


#: Full Java class name -> MetaClientError.
JAVA_ERRORS: Mapping[str, type[MetaClientError]] = MappingProxyType(_table())
_BY_SIMPLE_NAME = {name.rpartition(".")[2].rpartition("$")[2]: error for name, error in JAVA_ERRORS.items()}


def error_class(java_class: str, text: str = "") -> type[MetaClientError] | None:
    """Return the error for a Java class (full or simple name) and its text; None if both are unknown.

    >>> error_class("org.apache.hadoop.hbase.NotServingRegionException").__name__
    'NotServingRegion'
    >>> error_class("java.io.IOException", "The region's reads are disabled. Cannot serve the request").__name__
    'ReadsDisabled'
    """
    known = JAVA_ERRORS.get(java_class) or _BY_SIMPLE_NAME.get(simple_name(java_class))
    if known is not None:
        return known
    lowered = clipped(text).lower()
    return next((error for phrase, error in _TEXTS if phrase in lowered), None)


def make_error(
    kind: type[MetaClientError], text: str, *, may_have_applied: bool, detail: str | None
) -> MetaClientError:
    """Return an error of this class, with the attributes from its text: where a region moved, how long to wait."""
    text, detail = clipped(text), None if detail is None else clipped(detail)
    if issubclass(kind, errors.RegionMoved):
        found = _MOVED.search(detail or text)
        server = ServerName(found["host"].rstrip(","), int(found["port"]), int(found["code"])) if found else None
        seqnum = int(found["seq"]) if found else -1
        return kind(text, server=server, seqnum=seqnum, may_have_applied=may_have_applied, detail=detail)
    if issubclass(kind, errors.Throttled):
        return kind(text, wait_s=_wait_s(text), detail=detail)
    if issubclass(kind, errors.AccessDenied):
        text += advise_on_denial(text)
    return kind(text, may_have_applied=may_have_applied, detail=detail)


def advise_on_denial(text: str) -> str:
    """Return what to do about a permission that is missing, to be appended to HBase's text; "" if it is there already.

    >>> advise_on_denial("Insufficient permissions (user=bob@R, scope=default:t, params=[table=t],action=WRITE)")
    "; a user with ADMIN can allow it in HBase's shell: grant 'bob', 'W', 't'"
    >>> advise_on_denial("Insufficient permissions for user 'bob' (table=t, action=READ)")
    "; a user with ADMIN can allow it in HBase's shell: grant 'bob', 'R', 't'"
    """
    parts = {part: found[1].strip() for part, pattern in _DENIED.items() if (found := pattern.search(text))}
    if "user" not in parts or "action" not in parts or "grant '" in text:
        return ""
    user = parts["user"].partition("@")[0].partition("/")[0]
    scope = parts.get("scope", "GLOBAL").removeprefix("default:")
    table = "" if scope == "GLOBAL" else f", '{scope}'"
    return f"; a user with ADMIN can allow it in HBase's shell: grant '{user}', '{parts['action'][0]}'{table}"


def _wait_s(text: str) -> float:
    found = _WAIT.search(text)
    if found is None:
        return 0.0
    return int(found["min"] or 0) * 60 + int(found["sec"] or 0) + int(found["ms"] or 0) / 1000


def is_certainly_not_applied(kind: type[MetaClientError] | None, java_class: str = "", text: str = "") -> bool:
    """Return True if nothing was written: the server refused before it began, or the call was never sent."""
    if kind is not None and issubclass(kind, _GOING_OR_COMING):
        return _AT_THE_DOOR.match(text) is not None
    return simple_name(java_class) in _NEVER_SENT or (kind is not None and issubclass(kind, _REFUSALS))


def clipped(text: str) -> str:
    """Return a text of at most ``TEXT_CHARS_MAX`` characters: its beginning, and its end, which has the causes.

    >>> clipped("short")
    'short'
    >>> len(clipped("x" * 1_000_000)) <= TEXT_CHARS_MAX
    True
    """
    if len(text) <= TEXT_CHARS_MAX:
        return text
    half = TEXT_CHARS_MAX // 2 - 8
    return f"{text[:half]}\n[...]\n{text[-half:]}"


def simple_name(java_class: str) -> str:
    """Return the name of a class without its package and its outer class."""
    return java_class.rpartition(".")[2].rpartition("$")[2]


def one_line(text: str, limit: int = 300) -> str:
    """Return the first line of a text, without tabs and with a bounded length."""
    line = next((line.strip() for line in clipped(text).splitlines() if line.strip()), "")
    return line if len(line) <= limit else line[: limit - 3] + "..."
