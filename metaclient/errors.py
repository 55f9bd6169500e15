"""The error tree: every failure says what may be done about it and how sure we are.

::

    MetaClientError
     +- ConfigError                    (also a ValueError) a wrong url, option or property
     |   +- ExtraMissing               (also an ImportError) an optional package is not installed
     +- Unsupported                    the backend cannot do this
     +- ConnectionClosed               used after close(), or what a parent process began before os.fork()
     +- TableNotFound  TableDisabled  TableNotDisabled  TableExists  NoSuchFamily
     +- RequestRefused                 the server's final no: read-only, denied, insane
     +- RegionUnavailable              the region is not where we asked
     |   +- NotServingRegion
     |   |   +- RegionMoved            with a *hint* where it went
     |   |   +- RegionOpening
     |   +- WrongRegion                the row is outside of the region we named
     |   +- RegionOffline              meta knows no server for this replica
     |   |   +- NoSuchReplica          the region has fewer replicas: final
     |   +- LocationUnknown            meta answered, but with nothing usable
     |   +- ServerStopped              the server says that it is going down
     |   +- ServerUnreachable          refused, reset or closed connection
     +- ReadsDisabled                  a secondary that may not serve reads yet
     +- Overloaded                     come back later
     |   +- CallQueueTooBig  RegionTooBusy  ServerNotRunning
     |   +- Throttled                  with the wait that the server asked for
     |   +- NoConnectionsAvailable     a pool's own limit
     +- CallTimeout                    one attempt ran out of its own time
     +- ScannerLost                    reopen after the last row and go on
     +- BackendFault                   the backend raised something that it should not
     +- DeadlineExceeded               the whole operation ran out of time
     +- RetriesExhausted               with .attempts
     +- BatchError                     with .failed: row -> error

``disposition`` answers *what may I do*, ``may_have_applied`` answers *how sure am I that a write did not
happen*. Retry code reads these two and never looks at classes or messages.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from metaclient.model import RegionLocation, ServerName

__all__ = [
    "Attempt",
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
    "Unsupported",
    "WrongRegion",
    "translated",
]


class Disposition(enum.Enum):
    """What may be done about an error."""

    RELOCATE = "relocate"  # the location is wrong: forget it, look it up, try again
    BACKOFF = "backoff"  # the location is right: wait, try again there
    NEXT_REPLICA = "next_replica"  # this copy cannot answer now, another one may
    FATAL = "fatal"  # trying again cannot help


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of an operation: where it went, how long it took and how it ended."""

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
    """The root of everything that this package raises on purpose.

    >>> try:
    ...     raise TableNotFound("table 't9' does not exist")
    ... except MetaClientError as error:
    ...     print(error, error.disposition.value, error.may_have_applied)
    table 't9' does not exist fatal False
    """

    disposition: ClassVar[Disposition] = Disposition.FATAL
    #: The Java class that HBase raises for this, so that adapters and the fake agree on one name.
    java_class: ClassVar[str | None] = None
    #: True where the fault lies with the server as a whole, not with the one region that was asked.
    blames_server: ClassVar[bool] = False
    #: True where an open scanner cannot be used again: reopen it after the last row that was returned.
    loses_scanner: ClassVar[bool] = False

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
        #: Where the attempt went, when it went anywhere.
        self.place: RegionLocation | None = None
        #: What the server said in full (a Java stack trace, say); never part of the message.
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
    """A url, option or property is wrong; the message names it and the nearest right one."""


class ExtraMissing(ConfigError, ImportError):
    """A package of one of our extras is not installed; the message has the command that installs it.

    >>> print(ExtraMissing.of("virtual time", "greenlet", extra="sim"))
    virtual time needs greenlet: pip install 'hbase-metaclient[sim]'
    """

    @classmethod
    def of(cls, what: str, package: str | None, *, extra: str) -> ExtraMissing:
        """The error for ``what``, which needs ``package``, which ``extra`` installs."""
        return cls(f"{what} needs {package}: pip install 'hbase-metaclient[{extra}]'")  # quoted: zsh expands []


class ConfigWarning(UserWarning):
    """A property has no effect, or another effect than in HBase; a warning, not an error: the program goes on."""


class Unsupported(MetaClientError, NotImplementedError):
    """The backend cannot do this; the message says which one can."""


class ConnectionClosed(MetaClientError):
    """The connection was closed before or during the call."""


class TableNotFound(MetaClientError):
    """No such table, as the primary hbase:meta says."""

    java_class = "org.apache.hadoop.hbase.TableNotFoundException"


class TableDisabled(MetaClientError):
    """The table is disabled, or on the way to or from it: the call needs an enabled one."""

    java_class = "org.apache.hadoop.hbase.TableNotEnabledException"


class TableNotDisabled(MetaClientError):
    """The table is enabled, and the admin call (to delete, truncate or enable it) needs a disabled one."""

    java_class = "org.apache.hadoop.hbase.TableNotDisabledException"


class TableExists(MetaClientError):
    """A table of this name is already there."""

    java_class = "org.apache.hadoop.hbase.TableExistsException"


class NoSuchFamily(MetaClientError):
    """The table has no such column family."""

    java_class = "org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException"


class RequestRefused(MetaClientError):
    """The server's final no: a write to a secondary, a denied call, a failed sanity check."""

    java_class = "org.apache.hadoop.hbase.DoNotRetryIOException"


class RegionUnavailable(MetaClientError):
    """The region could not be reached where it was looked for."""

    disposition = Disposition.RELOCATE


class NotServingRegion(RegionUnavailable):
    """The server does not have the region (any more)."""

    java_class = "org.apache.hadoop.hbase.NotServingRegionException"
    loses_scanner = True


class RegionMoved(NotServingRegion):
    """The region went elsewhere. ``server`` is a hint: HBase names the *requested* target, right or not."""

    java_class = "org.apache.hadoop.hbase.exceptions.RegionMovedException"

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
    """The region is on its way to this server and not there yet."""

    java_class = "org.apache.hadoop.hbase.exceptions.RegionOpeningException"


class WrongRegion(RegionUnavailable):
    """The row does not belong to the region that was named: it has split or merged since."""

    java_class = "org.apache.hadoop.hbase.regionserver.WrongRegionException"


class RegionOffline(RegionUnavailable):
    """hbase:meta knows the region, but no server for this replica of it."""

    java_class = "org.apache.hadoop.hbase.client.RegionOfflineException"


class NoSuchReplica(RegionOffline):
    """The region has no replica of this id, as the primary hbase:meta says: asking again cannot help."""

    disposition = Disposition.FATAL


class LocationUnknown(RegionUnavailable):
    """hbase:meta answered with nothing that places the row: a hole, garbage, or only split parents."""


class ServerStopped(RegionUnavailable):
    """The server is stopping or aborting."""

    java_class = "org.apache.hadoop.hbase.regionserver.RegionServerStoppedException"
    blames_server = True
    loses_scanner = True


class ServerUnreachable(RegionUnavailable):
    """Nobody listens there, or the connection broke."""

    java_class = "java.net.ConnectException"
    blames_server = True
    loses_scanner = True


class ReadsDisabled(MetaClientError):
    """A secondary that has not yet seen its primary's flush: another replica can answer."""

    disposition = Disposition.NEXT_REPLICA
    java_class = "java.io.IOException"


class Overloaded(MetaClientError):
    """Too much at once, there or here; the location is right, come back later."""

    disposition = Disposition.BACKOFF


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
    """A quota says: not before ``wait_s`` seconds."""

    java_class = "org.apache.hadoop.hbase.quotas.RpcThrottlingException"

    def __init__(self, message: str = "", *, wait_s: float = 0.0, detail: str | None = None) -> None:
        super().__init__(message, detail=detail)
        self.wait_s = wait_s


class CallTimeout(MetaClientError):
    """One attempt ran out of its own time; the server may still be working on it."""

    disposition = Disposition.NEXT_REPLICA
    java_class = "org.apache.hadoop.hbase.ipc.CallTimeoutException"
    blames_server = True
    loses_scanner = True


class ScannerLost(MetaClientError):
    """The scanner is gone (lease, restart, out of step): reopen after the last row and go on."""

    disposition = Disposition.BACKOFF
    java_class = "org.apache.hadoop.hbase.UnknownScannerException"
    loses_scanner = True


class BackendFault(MetaClientError):
    """The backend raised something that is no answer of HBase; the cause is chained."""

    disposition = Disposition.BACKOFF
    loses_scanner = True


class DeadlineExceeded(MetaClientError, TimeoutError):
    """The operation's one deadline passed; ``attempts`` lists what was tried."""

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
    """The error tree's word for whatever a backend raised; ours come back as they are.

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
