"""The base of both Thrift backends: the channel to the gateways, calls that answer rows, the first contact."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from metaclient.backend import Addressing, BatchSemantics, Capabilities
from metaclient.config import Config
from metaclient.config.hbase_properties import warn_unread
from metaclient.errors import CallTimeout, ConfigError, MetaClientError, ServerUnreachable, Unsupported
from metaclient.model import Result
from metaclient.runtime import Runtime
from metaclient.wire.dials import choose_dial
from metaclient.wire.peers import describe_peer, probe_peer
from metaclient.wire.stream import Dial
from metaclient_thrift.binary import RowReader, read_row, read_rows
from metaclient_thrift.channel import Channel
from metaclient_thrift.gateways import Loan
from metaclient_thrift.link import Link
from metaclient_thrift.security import SECURITY_PROPERTIES, GatewaySecurity
from metaclient_thrift.transports import dial_of
from metaclient_thrift.url import PROPERTIES, Gateway, ThriftUrl

__all__ = ["GatewayBackend"]

#: The gateway answers the first call without HBase, so a silent gateway speaks another protocol.
OPEN_S_MAX = 10.0
#: The time for finding out which protocol a silent server speaks; a first contact ends within 13 s.
PROBES_S_MAX = 3.0


class GatewayBackend(ABC):
    """Base of the two backends. A subclass has the service, the reader of rows, and the capabilities that differ.

    ``dial`` makes the streams to the gateways: by the url, plain TCP or TLS, unless it is given.
    """

    name: ClassVar[str]
    _service: ClassVar[Any]
    _decodes_text: ClassVar[bool]
    _reader: ClassVar[Callable[[], RowReader]]
    _abilities: ClassVar[Mapping[str, bool]] = {}
    #: The TThriftServerType of its gateways.
    _server_type: ClassVar[int]

    def __init__(
        self,
        url: str,
        *,
        runtime: Runtime,
        properties: Mapping[str, str] | None = None,
        dial: Dial | None = None,
        config: Config | None = None,
    ) -> None:
        """``config`` has the options of identity and TLS."""
        parsed = self._url = ThriftUrl.parse(url, properties)
        warn_unread(properties or {}, PROPERTIES | SECURITY_PROPERTIES, f"{parsed.scheme}:")
        self._runtime = runtime
        security = GatewaySecurity.of(parsed, config or Config.of(properties or {}))
        self._dial = dial or dial_of(parsed, security, runtime)
        self._channel = Channel(
            parsed,
            self._service,
            rows=type(self)._reader,
            decodes_text=self._decodes_text,
            runtime=runtime,
            is_enabled=self.is_table_enabled,
            dial=self._dial,
            security=security,
        )
        self._call = self._channel.call
        self.capabilities = Capabilities(
            addressing=Addressing.GATEWAY,
            is_remote=True,
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
        except Unsupported:  # gateways before 2.3 do not have the call; that they answer is enough
            return
        except (CallTimeout, ServerUnreachable) as error:
            raise self._explain(error, gateway) from error
        if spoken != self._server_type:
            found = f"{gateway} is a Thrift {spoken} gateway"
            raise ConfigError(f"{found}: write thrift{spoken}: instead of {self.name}:")

    def _explain(self, error: MetaClientError, gateway: Gateway) -> MetaClientError:
        """Return the error of a first call without an answer: a ConfigError if the server speaks another protocol."""
        runtime = self._runtime
        until = runtime.now() + PROBES_S_MAX
        peer = probe_peer(gateway.host, gateway.port, now=runtime.now, deadline=until, dial=choose_dial(runtime))
        if peer is None:
            hint = "a server that is no Thrift gateway, or expects another transport or protocol, does not answer, too"
            sasl = (
                ""
                if self._url.is_sasl or self._url.is_http
                else (
                    f", or {self._url.scheme.partition('+')[0]}+sasl:// if the gateway uses Kerberos "
                    "(hbase.thrift.security.qop)"
                )
            )
            return type(error)(f"{error}; {hint}: try ?transport=framed or ?protocol=compact{sasl}")
        if self._url.scheme in peer.schemes and self._url.dialect == peer.options:
            return error  # the url is right: the gateway was slow, or the path of an HTTP url is wrong
        return ConfigError(f"{error}; {describe_peer(str(gateway), peer)}")

    def close(self) -> None:
        self._channel.close()

    def gateways(self) -> dict[str, dict[str, object]]:
        """Return the connections, the ejection and the failures per gateway, as JSON values."""
        return self._channel.gateways.status()

    @abstractmethod
    def is_table_enabled(self, table: bytes, deadline: float) -> bool: ...

    @abstractmethod
    def scan_close(self, scanner: object, deadline: float) -> None: ...

    @abstractmethod
    def _result_of(self, wire: Any) -> Result:
        """Return the Result of a row that thriftpy2 has read."""

    # -- calls ---------------------------------------------------------------------------------------------------

    def _row(
        self, method: str, args: Callable[[], tuple[object, ...]], request: bytes | None, deadline: float, table: bytes
    ) -> Result:
        """Make a call that answers one row; ``request`` are its encoded arguments, if there are."""

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
        """Make a call that answers a list of rows."""

        def ask(link: Link) -> list[Result]:
            if link.rows is None:
                return [self._result_of(one) for one in link.call(method, *args())]
            return link.ask(method, args() if request is None else request, read_rows)

        return self._channel.ask(ask, method, deadline, table, only=only)[0]

    def _call_void(
        self,
        method: str,
        args: Callable[[], tuple[object, ...]],
        request: Callable[[], bytes],
        deadline: float,
        table: bytes,
    ) -> None:
        """Make a write whose reply is void."""

        def ask(link: Link) -> None:
            if link.rows is None:
                link.call(method, *args())
            else:
                link.call_void(method, request())

        self._channel.ask(ask, method, deadline, table, is_write=True)

    def _write(self, method: str, table: bytes, *args: object, deadline: float) -> Any:
        return self._call(method, table, *args, deadline=deadline, table=table, is_write=True)

    def _close_quietly(self, scanner: object, deadline: float) -> None:
        """Close a scanner whose rows have been read; ignore errors, because an open scanner ends with its lease."""
        with contextlib.suppress(MetaClientError):
            self.scan_close(scanner, deadline)
