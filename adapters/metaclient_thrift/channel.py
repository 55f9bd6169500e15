"""One call through a gateway: borrow a connection, call, give the connection back or drop it, translate the error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Required, TypedDict, TypeVar, Unpack

from metaclient import keys
from metaclient.errors import CallTimeout, ConnectionClosed, MetaClientError, NotServingRegion, TableDisabled
from metaclient.model import META_TABLE
from metaclient.runtime import Runtime
from metaclient.wire.stream import Dial
from metaclient_thrift.binary import Incoming, RowReader
from metaclient_thrift.errors import CallAttempt, is_answer, translate_error
from metaclient_thrift.gateways import DropCause, Gateways, Loan
from metaclient_thrift.link import Link, make_link
from metaclient_thrift.messages import WrongReply
from metaclient_thrift.security import GatewaySecurity
from metaclient_thrift.transports import connect
from metaclient_thrift.url import Gateway, ThriftUrl

__all__ = ["Channel", "SentCalls"]

T = TypeVar("T")


class CallOptions(TypedDict, total=False):
    """The keywords of a call."""

    deadline: Required[float]
    table: bytes | None
    is_write: bool
    only: Gateway | None


@dataclass(frozen=True, slots=True)
class SentCalls(Generic[T]):
    """Calls that were sent: ``read`` returns their answers, ``drop`` gives them up and has no effect after ``read``."""

    read: Callable[[], list[T]]
    drop: Callable[[], None]


class Channel:
    """Calls of one Thrift service over all gateways of a url."""

    def __init__(
        self,
        url: ThriftUrl,
        service: Any,
        *,
        rows: Callable[[], RowReader],
        decodes_text: bool,
        runtime: Runtime,
        is_enabled: Callable[[bytes, float], bool],
        dial: Dial,
        security: GatewaySecurity | None = None,
    ) -> None:
        def connect_link(gateway: Gateway, deadline: float) -> Link:
            transport = connect(url, gateway, now=runtime.now, deadline=deadline, dial=dial, security=security)
            return make_link(url, gateway, service, rows=rows, decodes_text=decodes_text, transport=transport)

        self._scheme = url.scheme
        self._can_send = not (url.is_compact or url.is_http)  # HTTP carries one call at a time
        self._is_enabled = is_enabled
        self.gateways = Gateways(url.gateways, connect_link, runtime=runtime, connections_max=url.connections)

    def call(self, method: str, *args: object, **options: Unpack[CallOptions]) -> Any:
        """Make one call at the next gateway, or at ``only`` that one; it ends by the deadline."""
        return self.call_at(method, *args, **options)[0]

    def call_at(self, method: str, *args: object, **options: Unpack[CallOptions]) -> tuple[Any, Gateway]:
        """Make one call; return its result and the gateway, which is the only one that has the scanners it opens."""
        deadline, table = options["deadline"], options.get("table")
        is_write, only = options.get("is_write", False), options.get("only")
        return self.ask(lambda link: link.call(method, *args), method, deadline, table, is_write=is_write, only=only)

    def ask(
        self,
        ask: Callable[[Link], T],
        method: str,
        deadline: float,
        table: bytes | None,
        *,
        is_write: bool = False,
        only: Gateway | None = None,
    ) -> tuple[T, Gateway]:
        """Make a call by ``ask`` on a borrowed connection; ``method`` is for error messages."""
        loan = Loan()
        try:
            answer = self._ask(loan, ask, method=method, deadline=deadline, table=table, is_write=is_write, only=only)
            return answer, loan.gateway
        except BaseException:  # after an interrupt the reply is still to come, and must not be read by the next call
            self.gateways.drop(loan)  # without effect if it was given back or dropped already
            raise

    def _ask(
        self,
        loan: Loan,
        ask: Callable[[Link], T],
        *,
        method: str,
        deadline: float,
        table: bytes | None,
        is_write: bool,
        only: Gateway | None,
    ) -> T:
        self.gateways.borrow(loan, deadline, only)
        self._begin(loan, method, deadline, table)
        answer = self._attempt(loan, ask, method=method, deadline=deadline, table=table, is_write=is_write)
        self._give_back(loan)
        return answer

    def send(
        self,
        method: str,
        requests: Sequence[tuple[object, ...]],
        read: Callable[[Incoming, RowReader], T],
        *,
        deadline: float,
        table: bytes,
        only: Gateway,
    ) -> SentCalls[T] | None:
        """Send calls on an idle connection to this gateway; None if there is none, or if it takes one call at a time.

        Not for writes: an error does not say whether they were applied.
        """
        loan = Loan()
        try:
            if not self._can_send or not self.gateways.borrow_idle(loan, only):
                return None
            self._begin(loan, method, deadline, table)
            attempt = partial(self._attempt, loan, method=method, deadline=deadline, table=table, is_write=False)
            sent = attempt(lambda link: link.send_each(method, requests))
        except BaseException:
            self.gateways.drop(loan)
            raise

        def read_replies() -> list[T]:
            try:
                answers = attempt(lambda link: link.read_each(method, sent, read))
                self._give_back(loan)
            except BaseException:
                self.gateways.drop(loan)
                raise
            return answers

        return SentCalls(read_replies, partial(self.gateways.drop, loan))

    def _begin(self, loan: Loan, method: str, deadline: float, table: bytes | None) -> None:
        """Begin a call on a borrowed connection."""
        link = loan.link
        try:
            link.transport.begin(deadline)
        except TimeoutError as error:
            self.gateways.give_back(loan)
            raise CallTimeout(f"there was no time left for {method}") from error
        except OSError as error:
            self.gateways.drop(loan, DropCause.BROKEN)
            raise self._error(error, link, method, table, is_write=False) from error

    def _attempt(
        self,
        loan: Loan,
        ask: Callable[[Link], T],
        *,
        method: str,
        deadline: float,
        table: bytes | None,
        is_write: bool,
    ) -> T:
        """Return the answer of a call that has begun; give back or drop its connection only after an error."""
        gateways, link = self.gateways, loan.link
        try:
            return ask(link)
        except Exception as error:
            if is_answer(error):
                (gateways.give_back if link.is_in_step else gateways.drop)(loan)
            else:
                gateways.drop(loan, _drop_cause(error))
            made = self._error(error, link, method, table, is_write)
            if isinstance(made, NotServingRegion) and table is not None:
                made = self._check_disabled(made, table, deadline)
            raise made from error

    def _give_back(self, loan: Loan) -> None:
        """Give back the connection of a call that was answered."""
        if loan.link.has_surplus:  # the reply has the right sequence id; the bytes after it belong to no call
            self.gateways.drop(loan)
        else:
            self.gateways.give_back(loan)

    def _error(self, error: Exception, link: Link, method: str, table: bytes | None, is_write: bool) -> MetaClientError:
        if self.gateways.is_closed and not is_answer(error):
            return ConnectionClosed(
                "the connection to the Thrift gateways was closed during the call", may_have_applied=is_write
            )
        attempt = CallAttempt(method, table, is_write, str(link.gateway), self._scheme)
        return translate_error(error, attempt)

    def _check_disabled(self, error: MetaClientError, table: bytes, deadline: float) -> MetaClientError:
        """Return TableDisabled for a NotServingRegion of a disabled table, which would be retried; else the error.

        HBase's Java client checks the state of the table for single calls, and not for batches.
        """
        try:
            if table == META_TABLE or self._is_enabled(table, deadline):
                return error
        except MetaClientError:
            return error
        made = TableDisabled(
            f"table {keys.printable(table)!r} is disabled",
            may_have_applied=error.may_have_applied,
            detail=error.detail,
        )
        made.__cause__ = error.__cause__
        return made

    def close(self) -> None:
        self.gateways.close()


def _drop_cause(error: Exception) -> DropCause:
    """Return why a connection is dropped whose call raised this error."""
    if isinstance(error, TimeoutError):
        return DropCause.SILENT
    if isinstance(error, OSError) and not isinstance(error, WrongReply):
        return DropCause.BROKEN
    return DropCause.ABANDONED  # replies out of step are the fault of one connection, not of the gateway
