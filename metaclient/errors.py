"""The error tree: every error has a disposition (what the caller may do) and ``may_have_applied``.

::

    MetaClientError
     +- ConfigError                    (also a ValueError) a wrong url, option or property
     |   +- ExtraMissing               (also an ImportError) an optional package is not installed
     +- Unsupported                    the backend cannot do this
     +- ConnectionClosed               used after close(), or begun by a parent process before os.fork()
     +- TableNotFound  TableDisabled  TableNotDisabled  TableExists  NoSuchFamily
     +- RequestRefused                 the server refuses every retry, too: read-only, failed check
     |   +- AccessDenied               the user lacks a permission
     +- AuthenticationFailed           the server does not accept the client's identity, or cannot prove its own
     +- KdcUnreachable                 the Kerberos server does not answer: retry later
     +- RegionUnavailable              the region is not at the location of the call
     |   +- NotServingRegion
     |   |   +- RegionMoved            with a *hint*: the server to which it moved
     |   |   +- RegionOpening
     |   +- WrongRegion                the row is outside of the region that the call named
     |   +- RegionOffline              hbase:meta has no server for this replica
     |   |   +- NoSuchReplica          the region has fewer replicas: final
     |   +- LocationUnknown            hbase:meta answered without a usable region
     |   +- ServerStopped              the server reports that it is stopping
     |   +- ServerUnreachable          refused, reset or closed connection
     +- ReadsDisabled                  a secondary that may not serve reads yet
     +- TooStale                       the answer of a secondary may lack what max_staleness or a session promises
     +- Overloaded                     too many calls: retry later
     |   +- CallQueueTooBig  RegionTooBusy  ServerNotRunning
     |   +- Throttled                  with the wait that the server asked for
     |   +- NoConnectionsAvailable     the limit of a ConnectionPool
     +- CallTimeout                    one attempt timed out
     +- ScannerLost                    reopen the scanner after the last row
     +- BackendFault                   the backend raised an unexpected exception
     +- DeadlineExceeded               the deadline of the whole operation passed
     +- RetriesExhausted               with .attempts
     +- BatchError                     with .failed: row -> error

``disposition`` is the possible reaction to the error. ``may_have_applied`` is True if a failed write may have been
applied. Code that decides on attempts reads these two and the other properties of an error (``MetaClientError``), and
never classes or messages.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from metaclient.model import RegionLocation, ServerName

__all__ = [
    "AccessDenied",
    "Attempt",
    "AuthenticationFailed",
    "BackendFault",
    "BatchError",
    "CallQueueTooBig",
    "CallTimeout",
    "ConfigError",
    "ConfigWarning",
    "ConnectionClosed",
    "DeadlineExceeded",
    "Disposition",
    "ExtraMissing",
    "KdcUnreachable",
    "LocationUnknown",
    "MetaClientError",
    "NoConnectionsAvailable",
    "NoSuchFamily",
    "NoSuchReplica",
    "NotServingRegion",
    "Overloaded",
    "ReadsDisabled",
    "RegionMoved",
    "RegionOffline",
    "RegionOpening",
    "RegionTooBusy",
    "RegionUnavailable",
    "RequestRefused",
    "RetriesExhausted",
    "ScannerLost",
    "ServerNotRunning",
    "ServerStopped",
    "ServerUnreachable",
    "TableDisabled",
    "TableExists",
    "TableNotDisabled",
    "TableNotFound",
    "Throttled",
    "TooStale",
    "Unsupported",
    "WrongRegion",
    "translated",
]


class Disposition(enum.Enum):
    """The reaction to an error."""

    RELOCATE = "relocate"  # the location is wrong: look it up again, then retry
    BACKOFF = "backoff"  # the location is right: wait, then retry there
    NEXT_REPLICA = "next_replica"  # this replica cannot answer now, another replica may
    FATAL = "fatal"  # a retry cannot help


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of an operation: its server and replica, its error, and the time since the operation began."""

    number: int
    elapsed_s: float
    error: str
    server: str | None = None
    replica_id: int | None = None

    def __str__(self) -> str:
        where = f" at {self.server}" if self.server else ""
        replica = f" replica {self.replica_id}" if self.replica_id else ""
        return f"#{self.number}{where}{replica} after {self.elapsed_s:.3f} s: {self.error}"


class MetaClientError(Exception):
    """The base class of all errors of this package.

    >>> try:
    ...     raise TableNotFound("table 't9' does not exist")
    ... except MetaClientError as error:
    ...     print(error, error.disposition.value, error.may_have_applied)
    table 't9' does not exist fatal False
    """

    disposition: ClassVar[Disposition] = Disposition.FATAL
    #: The Java class of the same error in HBase: adapters and the fake use this one name.
    java_class: ClassVar[str | None] = None
    #: True where the whole server is at fault, not only the region of the call.
    blames_server: ClassVar[bool] = False
    #: True where an open scanner cannot be used again: reopen it after the last row that was returned.
    loses_scanner: ClassVar[bool] = False
    #: True where the server has too many calls: the pause before the next attempt is the longer one.
    is_overload: ClassVar[bool] = False
    #: True where the whole call was refused, or never sent, so that none of its actions was executed.
    precedes_execution: ClassVar[bool] = False
    #: True where a write may have been applied, whatever the backend reports: its outcome did not arrive.
    hides_outcome: ClassVar[bool] = False
    #: True where hbase:meta answered, and the answer is about the requested row only.
    is_about_row: ClassVar[bool] = False
    #: True where the deadline of the whole operation passed, or the deadline of a part of it.
    is_deadline: ClassVar[bool] = False
    #: True where no further call of this connection can succeed.
    ends_connection: ClassVar[bool] = False
    #: True where the error names the server that has the region now, so that no lookup is needed.
    names_target: ClassVar[bool] = False
    #: How long the server asked the client to wait before the next attempt; 0 if it did not.
    wait_s: float = 0.0

    def __init__(
        self,
        message: str = "",
        *,
        may_have_applied: bool = False,
        attempts: Sequence[Attempt] = (),
        detail: str | None = None,
    ) -> None:
        super().__init__(message)
        self.may_have_applied = may_have_applied
        self.attempts: tuple[Attempt, ...] = tuple(attempts)
        #: The location of the attempt, if there was one.
        self.place: RegionLocation | None = None
        #: The complete text of the server (a Java stack trace, for example); never part of the message.
        self.detail = detail

    @property
    def message(self) -> str:
        return str(self)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle and copy without calling the constructor, whose keyword arguments differ from class to class."""
        return _rebuilt, (type(self), self.args), self.__dict__


def _rebuilt(kind: type[MetaClientError], args: tuple[object, ...]) -> MetaClientError:
    """Make an error of this class with these ``args``; its attributes are restored by pickle."""
    made = kind.__new__(kind, *args)
    made.args = args  # OSError, which TimeoutError is, sets them in its constructor only
    return made


class ConfigError(MetaClientError, ValueError):
    """A url, option or property is wrong; the message names it and the nearest valid name."""


class ExtraMissing(ConfigError, ImportError):
    """A package of an optional extra is not installed; the message has the command that installs it.

    >>> print(ExtraMissing.of("virtual time", "greenlet", extra="sim"))
    virtual time needs greenlet: pip install 'hbase-metaclient[sim]'
    """

    @classmethod
    def of(cls, what: str, package: str | None, *, extra: str) -> ExtraMissing:
        """Return the error for ``what``, which needs ``package``, which ``extra`` installs."""
        return cls(f"{what} needs {package}: pip install 'hbase-metaclient[{extra}]'")  # quoted: zsh expands []


class ConfigWarning(UserWarning):
    """A property has no effect, or another effect than in HBase; the program continues."""


class Unsupported(MetaClientError, NotImplementedError):
    """The backend does not support the call; the message names a backend that does."""


class ConnectionClosed(MetaClientError):
    """The connection was closed before or during the call."""

    hides_outcome = True
    ends_connection = True


class TableNotFound(MetaClientError):
    """The table does not exist, according to the primary hbase:meta."""

    java_class = "org.apache.hadoop.hbase.TableNotFoundException"


class TableDisabled(MetaClientError):
    """The table is disabled, or changes its state: the call needs an enabled table."""

    java_class = "org.apache.hadoop.hbase.TableNotEnabledException"


class TableNotDisabled(MetaClientError):
    """The table is enabled, and the admin call (to delete, truncate or enable it) needs a disabled table."""

    java_class = "org.apache.hadoop.hbase.TableNotDisabledException"


class TableExists(MetaClientError):
    """A table of this name already exists."""

    java_class = "org.apache.hadoop.hbase.TableExistsException"


class NoSuchFamily(MetaClientError):
    """The table has no such column family."""

    java_class = "org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException"


class RequestRefused(MetaClientError):
    """The server refused the call, and would refuse a retry: a write to a secondary, a denied call, a failed check."""

    java_class = "org.apache.hadoop.hbase.DoNotRetryIOException"


class AccessDenied(RequestRefused):
    """The user lacks the permission for the call; the message names user, scope and action, as HBase reports them."""

    java_class = "org.apache.hadoop.hbase.security.AccessDeniedException"


class AuthenticationFailed(MetaClientError):
    """The server refused the client's ticket, token or certificate, or could not prove its own identity.

    No call was executed on the connection, so ``may_have_applied`` is always False.
    """

    precedes_execution = True

    def __init__(self, message: str = "", *, may_have_applied: bool = False, detail: str | None = None) -> None:
        super().__init__(message, detail=detail)


class KdcUnreachable(MetaClientError):
    """No Kerberos server (KDC) of the realm answered, so there is no ticket for the connection: retry later."""

    disposition = Disposition.BACKOFF
    precedes_execution = True


class RegionUnavailable(MetaClientError):
    """The region was not available at the location of the call."""

    disposition = Disposition.RELOCATE


class NotServingRegion(RegionUnavailable):
    """The server does not have the region (any more)."""

    java_class = "org.apache.hadoop.hbase.NotServingRegionException"
    loses_scanner = True


class RegionMoved(NotServingRegion):
    """The region has moved. ``server`` is a hint: HBase names the *requested* target, which may be wrong."""

    java_class = "org.apache.hadoop.hbase.exceptions.RegionMovedException"
    names_target = True

    def __init__(
        self,
        message: str = "",
        *,
        server: ServerName | None = None,
        seqnum: int = -1,
        may_have_applied: bool = False,
        detail: str | None = None,
    ) -> None:
        super().__init__(message, may_have_applied=may_have_applied, detail=detail)
        self.server = server
        self.seqnum = seqnum


class RegionOpening(NotServingRegion):
    """The region is being opened on this server."""

    java_class = "org.apache.hadoop.hbase.exceptions.RegionOpeningException"


class WrongRegion(RegionUnavailable):
    """The row does not belong to the region that was named: it has split or merged since."""

    java_class = "org.apache.hadoop.hbase.regionserver.WrongRegionException"


class RegionOffline(RegionUnavailable):
    """hbase:meta has the region, but no server for this replica of it."""

    is_about_row = True

    java_class = "org.apache.hadoop.hbase.client.RegionOfflineException"


class NoSuchReplica(RegionOffline):
    """The region has no replica of this id, according to the primary hbase:meta: a retry cannot help."""

    disposition = Disposition.FATAL


class LocationUnknown(RegionUnavailable):
    """hbase:meta has no location for the row: a hole, invalid rows, or only split parents."""

    is_about_row = True


class ServerStopped(RegionUnavailable):
    """The server is stopping or aborting."""

    java_class = "org.apache.hadoop.hbase.regionserver.RegionServerStoppedException"
    blames_server = True
    loses_scanner = True


class ServerUnreachable(RegionUnavailable):
    """The connection was refused or broke."""

    java_class = "java.net.ConnectException"
    blames_server = True
    loses_scanner = True
    precedes_execution = True


class ReadsDisabled(MetaClientError):
    """The secondary has not yet applied a flush of its primary: another replica can answer."""

    disposition = Disposition.NEXT_REPLICA
    java_class = "java.io.IOException"


class TooStale(MetaClientError):
    """The answer of a secondary may be older than ``max_staleness`` or the session permits: the primary can answer."""

    disposition = Disposition.NEXT_REPLICA


class Overloaded(MetaClientError):
    """The server or this client has too many calls; the location is right, retry later."""

    disposition = Disposition.BACKOFF
    is_overload = True
    precedes_execution = True


class NoConnectionsAvailable(Overloaded, RuntimeError):
    """The pool had no connection to lend in time (happybase's name)."""


class CallQueueTooBig(Overloaded):
    """The server's call queue is full."""

    java_class = "org.apache.hadoop.hbase.CallQueueTooBigException"


class RegionTooBusy(Overloaded):
    """The region cannot take writes now: its memstore is over the limit."""

    java_class = "org.apache.hadoop.hbase.RegionTooBusyException"


class ServerNotRunning(Overloaded):
    """The server or master is still starting."""

    java_class = "org.apache.hadoop.hbase.ipc.ServerNotRunningYetException"


class Throttled(Overloaded):
    """A quota was exceeded: retry after ``wait_s`` seconds."""

    java_class = "org.apache.hadoop.hbase.quotas.RpcThrottlingException"

    def __init__(self, message: str = "", *, wait_s: float = 0.0, detail: str | None = None) -> None:
        super().__init__(message, detail=detail)
        self.wait_s = wait_s


class CallTimeout(MetaClientError):
    """One attempt timed out; the server may still be working on it."""

    disposition = Disposition.NEXT_REPLICA
    java_class = "org.apache.hadoop.hbase.ipc.CallTimeoutException"
    blames_server = True
    loses_scanner = True
    hides_outcome = True


class ScannerLost(MetaClientError):
    """The server has lost the scanner (expired lease, restart, call out of order): reopen it after the last row."""

    disposition = Disposition.BACKOFF
    java_class = "org.apache.hadoop.hbase.UnknownScannerException"
    loses_scanner = True


class BackendFault(MetaClientError):
    """The backend raised an unexpected exception, or returned a wrong type; the cause is chained."""

    disposition = Disposition.BACKOFF
    loses_scanner = True
    hides_outcome = True


class DeadlineExceeded(MetaClientError, TimeoutError):
    """The deadline of the operation passed; ``attempts`` lists the attempts."""

    is_deadline = True

    java_class = "org.apache.hadoop.hbase.exceptions.TimeoutIOException"


class RetriesExhausted(MetaClientError):
    """Every allowed attempt failed; ``attempts`` lists them, the last error is the cause."""

    java_class = "org.apache.hadoop.hbase.client.RetriesExhaustedException"


class BatchError(MetaClientError):
    """Some rows of a batch failed; ``failed`` maps each of them to its error."""

    def __init__(self, message: str, *, failed: Mapping[bytes, MetaClientError]) -> None:
        applied = any(error.may_have_applied for error in failed.values())
        super().__init__(message, may_have_applied=applied)
        self.failed: dict[bytes, MetaClientError] = dict(failed)


def translated(error: BaseException, *, is_write: bool = False) -> MetaClientError:
    """Return the error of this tree for an exception of a backend; errors of this tree are returned unchanged.

    >>> translated(ConnectionRefusedError(111, "Connection refused")).disposition.value
    'relocate'
    """
    if isinstance(error, MetaClientError):
        return error
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    made: MetaClientError
    if isinstance(error, TimeoutError):
        made = CallTimeout(text, may_have_applied=is_write)
    elif isinstance(error, ConnectionRefusedError):
        made = ServerUnreachable(text)
    elif isinstance(error, OSError | EOFError):
        made = ServerUnreachable(text, may_have_applied=is_write)
    else:
        made = BackendFault(f"the backend raised {text}", may_have_applied=is_write)
    made.__cause__ = error
    return made


def note_interrupt(error: BaseException, *, is_write: bool) -> None:
    """Record that an exception which is no error (CancelledError, KeyboardInterrupt) interrupted a write in flight.

    >>> interrupt = KeyboardInterrupt()
    >>> note_interrupt(interrupt, is_write=True)
    >>> interrupt.may_have_applied
    True
    """
    if is_write:
        error.may_have_applied = True  # type: ignore[attr-defined]  # as the errors of this tree have it
