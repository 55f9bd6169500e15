"""What both protocols have in common: the channel to the gateways, rows that are read by hand, scanners that end."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar

from metaclient.backend import Addressing, BatchSemantics, Capabilities
from metaclient.config.hbase_properties import warn_unread
from metaclient.errors import CallTimeout, ConfigError, MetaClientError, ServerUnreachable, Unsupported
from metaclient.model import Result
from metaclient.runtime import Runtime
from metaclient.wire.peers import described, probed
from metaclient.wire.stream import Dial
from metaclient_thrift.binary import RowReader, read_row, read_rows
from metaclient_thrift.channel import Channel
from metaclient_thrift.gateways import Loan
from metaclient_thrift.link import Link
from metaclient_thrift.url import PROPERTIES, Gateway, ThriftUrl

__all__ = ["GatewayBackend"]

#: The gateway answers the first call by itself, so that silence means that it does not understand us.
OPEN_S_MAX = 10.0
#: For finding out what else a server is that did not answer; with the above a first contact ends within 13 s.
PROBES_S_MAX = 3.0


class GatewayBackend(ABC):
    """Base of the two backends. A subclass says which service, how rows are read, and where its abilities differ."""

    name: ClassVar[str]
    _service: ClassVar[Any]
    _decodes_text: ClassVar[bool]
    _reader: ClassVar[Callable[[], RowReader]]
    _abilities: ClassVar[Mapping[str, bool]] = {}
    #: TThriftServerType of the gateways that it can use.
    _server_type: ClassVar[int]

    def __init__(
        self, url: str, *, runtime: Runtime, properties: Mapping[str, str] | None = None, dial: Dial | None = None
    ) -> None:
        parsed = self._url = ThriftUrl.parse(url, properties)
        warn_unread(properties or {}, PROPERTIES, f"{parsed.scheme}:")
        self._runtime = runtime
        self._channel = Channel(
            parsed,
            self._service,
            rows=type(self)._reader,
            decodes_text=self._decodes_text,
            runtime=runtime,
            is_enabled=self.is_table_enabled,
            dial=dial,
        )
        self._call = self._channel.call
        self.capabilities = Capabilities(
            addressing=Addressing.GATEWAY,
            batch=BatchSemantics.ALL_OR_ERROR,
            retries_inside_s=parsed.retries_inside_s,
            **self._abilities,
        )

    def open(self, deadline: float) -> None:
        """Reach one gateway, and make sure that it speaks the service, the transport and the protocol of the url.

        ConfigError, with the url to write instead, when the server at that address is known to speak another one.
        """
        gateways, runtime = self._channel.gateways, self._runtime
        loan = Loan()
        try:
            gateway = gateways.borrow(loan, deadline).gateway
            gateways.give_back(loan)
        except BaseException:
            gateways.drop(loan)
            raise
        until = min(deadline, runtime.now() + OPEN_S_MAX)
        try:
            spoken, _ = self._channel.ask(Link.server_type, "getThriftServerType", until, None, only=gateway)
        except Unsupported:  # before 2.3 there was nothing to ask; that it answers is enough
            return
        except (CallTimeout, ServerUnreachable) as error:
            raise self._misdirected(error, gateway) from error
        if spoken != self._server_type:
            found = f"{gateway} is a Thrift {spoken} gateway"
            raise ConfigError(f"{found}: write thrift{spoken}: instead of {self.name}:")

    def _misdirected(self, error: MetaClientError, gateway: Gateway) -> MetaClientError:
        """The error of a first call that was not answered: what else the server is, where it can be found out."""
        runtime = self._runtime
        peer = probed(gateway.host, gateway.port, now=runtime.now, deadline=runtime.now() + PROBES_S_MAX)
        if peer is None:
            hint = "a server that is no Thrift gateway, or waits for another transport or protocol, behaves so, too"
            return type(error)(f"{error}; {hint}: try ?transport=framed or ?protocol=compact")
        if self._url.scheme in peer.schemes and self._url.dialect == peer.options:
            return error  # it is what the url says: a bad moment, or the path of an HTTP url
        return ConfigError(f"{error}; {described(str(gateway), peer)}")

    def close(self) -> None:
        self._channel.close()

    def gateways(self) -> dict[str, dict[str, object]]:
        """What is known of each gateway; JSON-able."""
        return self._channel.gateways.status()

    @abstractmethod
    def is_table_enabled(self, table: bytes, deadline: float) -> bool: ...

    @abstractmethod
    def scan_close(self, scanner: object, deadline: float) -> None: ...

    @abstractmethod
    def _result_of(self, wire: Any) -> Result:
        """A row as thriftpy2 has read it."""

    # -- calls ---------------------------------------------------------------------------------------------------

    def _row(
        self, method: str, args: Callable[[], tuple[object, ...]], request: bytes | None, deadline: float, table: bytes
    ) -> Result:
        """A call that answers one row; ``request`` is the whole call where it was written by hand."""

        def ask(link: Link) -> Result:
            if link.rows is None:
                return self._result_of(link.call(method, *args()))
            return link.ask(method, args() if request is None else request, read_row)

        return self._channel.ask(ask, method, deadline, table)[0]

    def _rows(
        self,
        method: str,
        args: Callable[[], tuple[object, ...]],
        deadline: float,
        table: bytes,
        *,
        request: bytes | None = None,
        only: Gateway | None = None,
    ) -> list[Result]:
        """A call that answers a list of rows."""

        def ask(link: Link) -> list[Result]:
            if link.rows is None:
                return [self._result_of(one) for one in link.call(method, *args())]
            return link.ask(method, args() if request is None else request, read_rows)

        return self._channel.ask(ask, method, deadline, table, only=only)[0]

    def _rows_of_each(
        self, method: str, args: Sequence[tuple[object, ...]], deadline: float, table: bytes, only: Gateway
    ) -> list[Result]:
        """The rows of several calls, one behind the other: the gateway works on one while we read the one before."""

        def ask(link: Link) -> list[Result]:
            if link.rows is None:
                return [self._result_of(one) for each in args for one in link.call(method, *each)]
            return list(chain.from_iterable(link.ask_each(method, args, read_rows)))

        return self._channel.ask(ask, method, deadline, table, only=only)[0]

    def _tell(
        self,
        method: str,
        args: Callable[[], tuple[object, ...]],
        request: Callable[[], bytes],
        deadline: float,
        table: bytes,
    ) -> None:
        """A write that answers nothing."""

        def ask(link: Link) -> None:
            if link.rows is None:
                link.call(method, *args())
            else:
                link.say(method, request())

        self._channel.ask(ask, method, deadline, table, is_write=True)

    def _write(self, method: str, table: bytes, *args: object, deadline: float) -> Any:
        return self._call(method, table, *args, deadline=deadline, table=table, is_write=True)

    def _close_quietly(self, scanner: object, deadline: float) -> None:
        """The rows are here and right; a scanner that is not closed ends with its lease."""
        with contextlib.suppress(MetaClientError):
            self.scan_close(scanner, deadline)
