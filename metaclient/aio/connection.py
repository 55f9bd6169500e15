"""Connections for asyncio, and what they return: sessions, replication peers, watchers of freshness."""

from __future__ import annotations

from collections.abc import Generator
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Unpack

from metaclient import connection as blocking_connection
from metaclient import replication as blocking_replication
from metaclient import session as blocking_session
from metaclient.aio.changes import Changes, open_changes
from metaclient.aio.coroutines import Wrapper, awaitable, plain
from metaclient.aio.table import Table
from metaclient.config import Config, MetaMode
from metaclient.config.options import ConnectOptions
from metaclient.freshness import canary
from metaclient.runtime.event_loop import AsyncioRuntime

if TYPE_CHECKING:
    from metaclient.backend import Capabilities
    from metaclient.changes.state import StateLike
    from metaclient.connection import ConfigSource, Tables

__all__ = ["Connecting", "Connection", "FreshnessWatcher", "Replication", "Session", "connect"]

_Connection = blocking_connection.Connection
_Replication = blocking_replication.Replication
_Session = blocking_session.Session


class Replication(Wrapper[_Replication]):
    """The replication peers of one cluster, as :class:`metaclient.Replication`."""

    __slots__ = ()

    add = awaitable(_Replication.add)
    remove = awaitable(_Replication.remove)
    enable = awaitable(_Replication.enable)
    disable = awaitable(_Replication.disable)
    list = awaitable(_Replication.list)
    get = awaitable(_Replication.get)
    status = awaitable(_Replication.status)

    async def update(self, id: str, **changes: Any) -> None:
        """Change a peer, as :meth:`metaclient.Replication.update`."""
        await self._runtime.call(self._blocking.update, id, **changes)


class FreshnessWatcher(Wrapper[canary.FreshnessWatcher]):
    """Measures the lag of a table's replicas until it is closed, as ``Connection.watch_freshness`` describes."""

    __slots__ = ()

    close = awaitable(canary.FreshnessWatcher.close)

    @property
    def is_closed(self) -> bool:
        """True if it no longer measures."""
        return self._blocking.is_closed

    @property
    def rounds(self) -> int:
        """The number of rounds so far."""
        return self._blocking.rounds

    @property
    def failures(self) -> int:
        """The number of reads and writes of canary rows that have failed."""
        return self._blocking.failures

    async def __aenter__(self) -> FreshnessWatcher:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Session(Wrapper[_Session]):
    """A session of a connection, as :class:`metaclient.Session`: its reads never go back in time."""

    __slots__ = ("connection",)

    def __init__(self, blocking: _Session, runtime: AsyncioRuntime, connection: Connection) -> None:
        super().__init__(blocking, runtime)
        self.connection = connection

    token = plain(_Session.token)
    stats = plain(_Session.stats)
    close = awaitable(_Session.close)

    def table(self, name: bytes | str, use_prefix: bool = True) -> Table:
        """Return a table of this session; no call is made, and the table need not exist."""
        return Table(self._blocking.table(name, use_prefix), self._runtime, self.connection)

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Connection(Wrapper[_Connection]):
    """A connection to an HBase cluster for the tasks of one event loop; made by :func:`connect`.

    The methods are those of :class:`metaclient.Connection`, awaitable. Those that make no call are plain methods:
    ``table``, ``session``, ``stats`` and ``on_event``.
    """

    __slots__ = ()

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the backend."""
        return self._blocking.capabilities

    @property
    def config(self) -> Config:
        """The settings of this connection."""
        return self._blocking.config

    @property
    def meta_mode(self) -> MetaMode:
        """The mode in which hbase:meta is read."""
        return self._blocking.meta_mode

    @property
    def replication(self) -> Replication:
        """The peers to which this cluster replicates."""
        return Replication(self._blocking.replication, self._runtime)

    @property
    def url(self) -> str:
        """The url of the cluster."""
        return self._blocking.url

    open = awaitable(_Connection.open)
    close = awaitable(_Connection.close)
    tables = awaitable(_Connection.tables)
    create_table = awaitable(_Connection.create_table)
    delete_table = awaitable(_Connection.delete_table)
    enable_table = awaitable(_Connection.enable_table)
    disable_table = awaitable(_Connection.disable_table)
    is_table_enabled = awaitable(_Connection.is_table_enabled)
    compact_table = awaitable(_Connection.compact_table)
    describe_table = awaitable(_Connection.describe_table)
    alter_table = awaitable(_Connection.alter_table)
    truncate_table = awaitable(_Connection.truncate_table)
    namespaces = awaitable(_Connection.namespaces)
    create_namespace = awaitable(_Connection.create_namespace)
    delete_namespace = awaitable(_Connection.delete_namespace)
    hbase_version = awaitable(_Connection.hbase_version)
    whoami = awaitable(_Connection.whoami)
    delegation_token = awaitable(_Connection.delegation_token)
    locate = awaitable(_Connection.locate)
    regions = awaitable(_Connection.regions)
    warm_up = awaitable(_Connection.warm_up)
    export_locations = awaitable(_Connection.export_locations)
    import_locations = awaitable(_Connection.import_locations)
    meta_replicas = awaitable(_Connection.meta_replicas)
    on_event = plain(_Connection.on_event)
    stats = plain(_Connection.stats)

    def table(self, name: bytes | str, use_prefix: bool = True) -> Table:
        """Return a table by name; no call is made, and the table need not exist."""
        return Table(self._blocking.table(name, use_prefix), self._runtime, self)

    def session(self, *, token: bytes | None = None, replica_lag_max_s: float | None = None) -> Session:
        """Return a session, as :meth:`metaclient.Connection.session`; no call is made."""
        blocking = self._blocking.session(token=token, replica_lag_max_s=replica_lag_max_s)
        return Session(blocking, self._runtime, self)

    async def watch_freshness(
        self, table: bytes | str, *, family: bytes | str, interval: float = 1.0, read_only: bool = False
    ) -> FreshnessWatcher:
        """Measure how far the replicas of a table are behind, as :meth:`metaclient.Connection.watch_freshness`."""
        blocking = await self._runtime.call(
            self._blocking.watch_freshness, table, family=family, interval=interval, read_only=read_only
        )
        return FreshnessWatcher(blocking, self._runtime)

    async def changes(
        self,
        table: Tables,
        *,
        name: str,
        serial: bool = False,
        since: datetime | float | None = None,
        state: StateLike = None,
        arrow: bool = False,
        **options: Any,
    ) -> Changes:
        """Return the changes of tables, as :meth:`metaclient.Connection.changes`: ``async for change in changes``.

        Use it in ``async with``: a feed that is not closed stays a worker of its subscription.
        """
        arguments = {"table": table, "name": name, "serial": serial, "since": since, "state": state, "arrow": arrow}
        return await open_changes(self._blocking, self._runtime, {**arguments, **options})

    def __reduce__(self) -> NoReturn:
        raise TypeError("a connection cannot be pickled: it has sockets of this process; send its url and config")

    async def __aenter__(self) -> Connection:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Connecting:
    """A connection that is made by ``await`` or at the start of ``async with``, which also closes it."""

    def __init__(self, url: str | None, options: dict[str, Any]) -> None:
        self._url = url
        self._options = options
        self._connection: Connection | None = None

    def __await__(self) -> Generator[Any, None, Connection]:
        return self._connect().__await__()

    async def _connect(self) -> Connection:
        runtime = AsyncioRuntime()
        blocking = await runtime.call(
            _Connection, url=self._url, runtime=runtime, _owns_runtime=True, _by_gateway=False, **self._options
        )
        return Connection(blocking, runtime)

    async def __aenter__(self) -> Connection:
        self._connection = await self._connect()
        return self._connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            await self._connection.close()


def connect(
    url: str | None = None,
    *,
    meta_mode: MetaMode | str | None = None,
    config: ConfigSource = None,
    **options: Unpack[ConnectOptions],
) -> Connecting:
    """Connect to a cluster from the running event loop; the arguments are those of :func:`metaclient.connect`.

    >>> import asyncio
    >>> async def program():
    ...     async with connect("scripted:") as connection:
    ...         await connection.create_table("t", {"cf": {}})
    ...         table = connection.table("t")
    ...         await asyncio.gather(*(table.put(key, {b"cf:a": b"1"}) for key in (b"r1", b"r2")))
    ...         return [key async for key, row in table.scan()]
    >>> asyncio.run(program())
    [b'r1', b'r2']
    """
    return Connecting(url, {"meta_mode": meta_mode, "config": config, **options})
