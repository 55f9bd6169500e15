"""The connection to a cluster: ``connect`` and ``Connection``, with happybase's API; threads may share a connection.

A connection converts and checks the arguments of users, and owns a backend and an engine, which makes the calls
(:mod:`metaclient.engine`). It finds its backend by the url's scheme under the entry point group
``metaclient.backends``.

It has more than 600 lines because happybase has all calls that concern no single table in one class.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Unpack, overload

from metaclient import keys
from metaclient.arguments import (
    DEFAULT_HOST,
    DEFAULT_PORT,
    PROTOCOLS,
    TRANSPORTS,
    gateway_url,
    refuse_gateway_arguments,
)
from metaclient.backend import (
    Backend,
    Capabilities,
    HappybaseBackend,
    IdentityAdmin,
    IdentityBackend,
    ReplicatingBackend,
    SchemaBackend,
    VersionedBackend,
)
from metaclient.backends import backend_for
from metaclient.config import Config, MetaMode
from metaclient.config.cluster_url import chosen_url
from metaclient.config.options import ConnectOptions
from metaclient.config.tokens import Token
from metaclient.config.url_secrets import masked_url
from metaclient.engine import Engine, Life
from metaclient.errors import (
    CallTimeout,
    ConfigError,
    MetaClientError,
    NoSuchFamily,
    TableNotDisabled,
    Unsupported,
)
from metaclient.freshness.canary import FreshnessWatcher
from metaclient.meta.health_tracker import MetaReplicaStatus
from metaclient.model import Identity, RegionLocation, RegionLocations, TableDescriptor
from metaclient.replication import Replication
from metaclient.runtime import Runtime, SimRuntime, ThreadRuntime, refuse_green_threads
from metaclient.session import Session
from metaclient.table import Table
from metaclient.table_schema import (
    check_region_replication,
    family_from_options,
    namespace_name,
    split_points,
    table_change,
)
from metaclient.telemetry import Listener

if TYPE_CHECKING:
    from metaclient.changes import ChangeBatches, Changes
    from metaclient.changes.state import StateLike

__all__ = ["Connection", "connect", "connect_to"]

#: happybase's defaults.
DEFAULT_TRANSPORT, DEFAULT_PROTOCOL, DEFAULT_COMPAT = "buffered", "binary", "0.98"
COMPAT_MODES = ("0.90", "0.92", "0.94", "0.96", "0.98")
#: How long close() waits for threads. close() takes at most a second; the rest of the second is for the other parts.
CLOSE_S = 0.8
#: The longest interval of a watcher of freshness: a day. Beyond it, replicas would be unknown most of the time.
INTERVAL_S_MAX = 86_400.0
#: One table, or several.
Tables = bytes | str | Sequence[bytes | str]
ConfigSource = str | PathLike[str] | Mapping[str, object] | Config | None


def connect(
    url: str | None = None,
    *,
    meta_mode: MetaMode | str | None = None,
    config: ConfigSource = None,
    runtime: Runtime | None = None,
    **options: Unpack[ConnectOptions],
) -> Connection:
    """Connect to a cluster.

    ``url`` names the backend and the cluster. Without it, the environment variable ``METACLIENT_URL`` is used, then the
    quorum of ``config``; :class:`ConfigError` if all three are missing. ``config`` is an hbase-site.xml (or
    the folder that holds it), a mapping of HBase's properties or a :class:`Config`; ``options`` are fields of it.
    Unknown names raise :class:`ConfigError` with the nearest known one.

    >>> with connect("scripted:?meta_replicas=3", meta_mode="LoadBalance") as connection:
    ...     connection.create_table("t", {"cf": {}}, splits=[b"m"])
    ...     len(connection.regions("t"))
    2
    """
    return Connection(url=url, meta_mode=meta_mode, config=config, runtime=runtime, _by_gateway=False, **options)


def connect_to(
    backend: Backend,
    *,
    runtime: Runtime,
    owns_backend: bool = True,
    owns_runtime: bool = False,
    meta_mode: MetaMode | str | None = None,
    config: ConfigSource = None,
    **options: Any,
) -> Connection:
    """Connect through an existing backend (of a fake cluster, or a backend under test)."""
    return Connection(
        meta_mode=meta_mode,
        config=config,
        runtime=runtime,
        _backend=backend,
        _owns_backend=owns_backend,
        _owns_runtime=owns_runtime,
        **options,
    )


class Connection:
    """A connection to an HBase cluster; a context manager, and safe to share between threads.

    The first nine arguments are happybase's: without others the connection uses a Thrift 1 gateway, as happybase does.
    ``url=`` or :func:`connect` selects any other backend. A connection that is dropped without ``close()`` is closed in
    the background, with a ResourceWarning.

    It has more than 30 methods because happybase has all calls that concern no single table here; the engine does the
    work.
    """

    _owner_name = ""  # the name of a pool, which the user should have closed

    def __init__(
        self,
        host: str | None = DEFAULT_HOST,
        port: int | None = DEFAULT_PORT,
        timeout: int | None = None,
        autoconnect: bool = True,
        table_prefix: bytes | str | None = None,
        table_prefix_separator: bytes | str = b"_",
        compat: str = "0.98",
        transport: str = "buffered",
        protocol: str = "binary",
        *,
        url: str | None = None,
        meta_mode: MetaMode | str | None = None,
        config: ConfigSource = None,
        runtime: Runtime | None = None,
        _backend: Backend | None = None,
        _owns_backend: bool = True,
        _owns_runtime: bool | None = None,
        _by_gateway: bool = True,
        **options: Any,
    ) -> None:
        if not isinstance(runtime, SimRuntime):
            refuse_green_threads()
        _check_one_of("transport", transport, TRANSPORTS)
        _check_one_of("protocol", protocol, PROTOCOLS)
        _check_one_of("compat", compat, COMPAT_MODES)
        if url is not None or _backend is not None:
            refuse_gateway_arguments(host, port, transport, protocol)
        if timeout and options.get("rpc_timeout_s") is not None:
            raise ConfigError("'timeout' (milliseconds) is happybase's word for rpc_timeout_s, which is given, too")
        self.host = host or DEFAULT_HOST
        self.port = port or DEFAULT_PORT
        self.timeout = timeout
        self.compat = compat
        self.table_prefix = None if table_prefix is None else keys.as_bytes(table_prefix, "table_prefix")
        self.table_prefix_separator = keys.as_bytes(table_prefix_separator, "table_prefix_separator")
        if timeout:  # 0 is happybase's "no timeout": the default of rpc_timeout_s is kept
            options.setdefault("rpc_timeout_s", timeout / 1000)
        self.config = Config.of(config, meta_mode=meta_mode, **options)
        if _backend is not None:
            self.url = url or f"{_backend.name}:"
        elif url is None and _by_gateway:
            self.url = f"{gateway_url(self.host, self.port)}?transport={transport}&protocol={protocol}"
        else:
            self.url = chosen_url(url, self.config.properties)
        self._can_reopen = runtime is None and _backend is None  # a closed connection, because all is made here
        self._owns_runtime = runtime is None if _owns_runtime is None else _owns_runtime
        self._runtime: Runtime = runtime or ThreadRuntime(
            max_tasks=self.config.threads_max, max_queued=self.config.queue_max
        )
        self._owns_backend = _owns_backend
        self._backend: Backend = _backend or backend_for(self.url, self._runtime, self.config)
        #: The interface for code of this repository; see :mod:`metaclient.engine`. It may change in any release.
        self.engine = Engine(self._backend, self._runtime, self.config)
        self._cached_tables, self._reopening = self.engine.locator.cache.tables, self._runtime.lock()
        self._watchers: dict[bytes, FreshnessWatcher] = {}  # by table: at most one per table
        self._feeds: set[ChangeBatches | Changes] = set()  # that are open
        if autoconnect:
            self._open_or_close()

    def _open_or_close(self) -> None:
        try:
            self.open()
        except BaseException:
            self.close()  # the caller has no connection to close
            raise

    def __repr__(self) -> str:
        return f"<metaclient.Connection {masked_url(self.url)} {self.meta_mode.value} {self.engine.life.value}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a connection, and a table or batch of it, cannot be pickled: it has sockets and threads of this process. "
            "Send its url and config, which can be pickled, and make a connection in the other process; "
            "export_locations() and import_locations() hand over the cached regions"
        )

    # -- life ------------------------------------------------------------------------------------------------

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the backend."""
        return self._backend.capabilities

    @property
    def meta_mode(self) -> MetaMode:
        """The mode in which hbase:meta is read."""
        return self.engine.reader.mode

    def open(self) -> None:
        """Open the backend; done by the constructor unless ``autoconnect=False``.

        A connection that was closed is opened again, with an empty location cache; tables that were made before can be
        used again. The cluster of a ``fake:`` url was closed with the connection: a new one begins empty. A connection
        through a backend or a runtime of the caller, or of ``metaclient.aio``, cannot be opened again.
        """
        if self.engine.life is Life.CLOSED and self._can_reopen:
            self.engine.closing.wait()
            self._begin_again()
        self.engine.check_open()
        if self.engine.life is Life.OPEN:
            return
        self._check_meta_mode()
        try:
            self._open_backend()
        except MetaClientError as error:
            self.engine.adapt(error)
            raise
        self.engine.telemetry.look_for_sdk()
        self.engine.life = Life.OPEN

    def _open_backend(self) -> None:
        timeout_s = min(self.config.open_timeout_s, self.config.operation_timeout_s)
        try:
            self.engine.executor.call(self._backend.open, deadline=self._runtime.now() + timeout_s)
        except CallTimeout as error:
            raise CallTimeout(
                f"{masked_url(self.url)} did not answer within {timeout_s:g} s: {error}; check the address "
                "and the server, or raise open_timeout_s"
            ) from error

    @property
    def client(self) -> Any:
        """happybase's bare Thrift 1 client, on ``thrift1:``: ``connection.client.getTableNames()``."""
        if not isinstance(self._backend, HappybaseBackend):
            raise Unsupported(
                f"the backend {self._backend.name!r} has no Thrift 1 calls: connection.client needs thrift1://host:port"
            )
        self.engine.check_open()
        return self._backend.thrift_client(self.config.rpc_timeout_s)

    @property
    def transport(self) -> _Transport:
        """happybase's transport, as far as programs use it: ``is_open()``, ``open()`` and ``close()``."""
        return _Transport(self)

    def _refresh_thrift_client(self) -> None:
        """Drop all sockets, as programs of happybase do after an error, before they call ``open()``."""
        self.close()

    def _begin_again(self) -> None:
        """Make backend, threads and engine anew; the first of several callers does."""
        with self._reopening:
            if self.engine.life is not Life.CLOSED:
                return
            runtime = ThreadRuntime(max_tasks=self.config.threads_max, max_queued=self.config.queue_max)
            try:
                backend = backend_for(self.url, runtime, self.config)
            except BaseException:
                runtime.close(CLOSE_S)
                raise
            self._runtime, self._backend = runtime, backend
            self.engine.begin(backend, runtime, self.config)
            self._cached_tables = self.engine.locator.cache.tables
            self._watchers, self._feeds = {}, set()

    def _check_meta_mode(self) -> None:
        """Raise if the backend does not support the requested mode: the user would assume that replicas are read."""
        mode = self.config.meta_mode
        if mode is not None and mode is not MetaMode.NONE and not self.capabilities.meta_replicas:
            raise Unsupported(
                f"the backend {self._backend.name!r} cannot address meta replicas: meta_mode={mode.value} needs "
                "thrift2:, hbase: or fake:; with meta_mode='None' it reads the primary alone"
            )

    def close(self) -> None:
        """Close the connection, and its backend and runtime if it owns them. Idempotent.

        Calls in progress raise ConnectionClosed.
        """
        if not self.engine.closing.begin():
            return
        try:
            self.engine.life = Life.CLOSED
            self._close_parts()
        finally:
            self.engine.closing.end()

    def _close_parts(self) -> None:
        for feed in list(self._feeds):
            feed.close()
        for watcher in list(self._watchers.values()):
            watcher.close()
        self.engine.locator.close()
        if self._owns_backend:
            self._backend.close()
        if self._owns_runtime:
            self._runtime.close(CLOSE_S)

    def __del__(self) -> None:
        engine = self.__dict__.get("engine")
        if engine is None or engine.life is Life.CLOSED:  # a constructor that fails leaves nothing to close
            return
        self._runtime.close_dropped(f"{self._owner_name}{self!r}", self.close)

    def __enter__(self) -> Connection:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- tables ----------------------------------------------------------------------------------------------

    def table(self, name: bytes | str, use_prefix: bool = True) -> Table:
        """Return a table by name; no call is made, and the table need not exist."""
        self.engine.check_open()
        return Table(self._table_name(name) if use_prefix else keys.table_name(name), self)

    def session(self, *, token: bytes | None = None, replica_lag_max_s: float | None = None) -> Session:
        """Return a session: its reads never go back in time and show its own writes; see :class:`metaclient.Session`.

        ``token`` continues the session that made it (:meth:`Session.token`). ``replica_lag_max_s`` states that no
        replica is ever further behind its primary. It is used where the backend does not report the lag of a replica,
        and the promises depend on it. Without it, only the primary of such a backend answers after a write.
        """
        return Session(self, token=token, replica_lag_max_s=replica_lag_max_s)

    def _table_name(self, name: bytes | str) -> bytes:
        plain = keys.as_bytes(name, "name")
        if self.table_prefix is not None:
            plain = self.table_prefix + self.table_prefix_separator + plain
        return keys.table_name(plain)

    def tables(self) -> list[bytes]:
        """Return the names of the tables, without the prefix if the connection has one."""
        names = self.engine.admin("tables", self._backend.table_names)
        if self.table_prefix is None:
            return list(names)
        prefix = self.table_prefix + self.table_prefix_separator
        return [name[len(prefix) :] for name in names if name.startswith(prefix)]

    def create_table(
        self,
        name: bytes | str,
        families: Mapping[str, Mapping[str, Any] | None] | Mapping[bytes, Mapping[str, Any] | None],
        *,
        splits: Sequence[bytes | str] | None = None,
        region_replication: int = 1,
    ) -> None:
        """Create a table. ``families`` maps a name to happybase's options (``max_versions``, ``time_to_live``, ...).

        A family keeps 3 versions unless ``max_versions`` is given, as with happybase.
        """
        if not isinstance(families, Mapping):
            raise TypeError(f"'families' must map family names to options, got {type(families).__name__}")
        if not families:
            raise ValueError(f"cannot create table {name!r}: no column families are given")
        check_region_replication(region_replication)
        points = split_points(splits)
        if points and not self.capabilities.create_with_splits:
            raise Unsupported(f"the backend {self._backend.name!r} cannot create a table with splits")
        if region_replication > 1 and not self.capabilities.region_replication:
            raise Unsupported(f"the backend {self._backend.name!r} cannot set region_replication")
        descriptor = TableDescriptor(
            self._table_name(name),
            tuple(family_from_options(family, options or {}) for family, options in families.items()),
            region_replication,
        )
        self.engine.create_table(descriptor, points)

    def delete_table(self, name: bytes | str, disable: bool = False) -> None:
        """Delete a table, which must be disabled; ``disable=True`` disables it first."""
        if disable and self.is_table_enabled(name):
            self.disable_table(name)
        table = self._table_name(name)
        try:
            self.engine.admin("delete_table", self._backend.delete_table, table)
        except TableNotDisabled as error:
            raise TableNotDisabled(
                f"cannot delete table {keys.printable(table)!r}: it is not disabled; call disable_table() first, or "
                "delete_table(name, disable=True)",
                attempts=error.attempts,
                detail=error.detail,
            ) from error
        self.engine.locator.cache.clear(table)

    def enable_table(self, name: bytes | str) -> None:
        self.engine.admin("enable_table", self._backend.enable_table, self._table_name(name))

    def disable_table(self, name: bytes | str) -> None:
        self.engine.admin("disable_table", self._backend.disable_table, self._table_name(name))

    def is_table_enabled(self, name: bytes | str) -> bool:
        return bool(self.engine.admin("is_table_enabled", self._backend.is_table_enabled, self._table_name(name)))

    def compact_table(self, name: bytes | str, major: bool = False) -> None:
        """Request a compaction; HBase performs it in the background."""
        self.engine.admin("compact_table", self._backend.compact_table, self._table_name(name), bool(major))

    def describe_table(self, name: bytes | str) -> TableDescriptor:
        """Return the settings of a table: its families, its region replication and other attributes."""
        return self.engine.describe(self._table_name(name))

    def alter_table(
        self,
        name: bytes | str,
        families: Mapping[str, Mapping[str, Any] | None] | Mapping[bytes, Mapping[str, Any] | None] | None = None,
        *,
        drop_families: Sequence[bytes | str] = (),
        region_replication: int | None = None,
    ) -> None:
        """Change settings of a table; returns when its regions have them. All other settings stay.

        ``families`` maps names to the options of :meth:`create_table` that change; a family that the table does not
        have is added. ``drop_families`` are deleted with their data. ``alter_table("hbase:meta",
        region_replication=3)`` gives HBase 2.4 and later three copies of hbase:meta.
        """
        table = self._table_name(name)
        change = table_change(table, families, drop_families, region_replication)
        self.engine.admin("alter_table", self._schema("alter_table").alter_table, table, change)
        self.engine.locator.cache.clear(table)

    def truncate_table(self, name: bytes | str, *, preserve_splits: bool = True) -> None:
        """Delete all rows of a table and keep its settings, and its regions unless ``preserve_splits`` is False.

        An enabled table is disabled first. The table is enabled afterwards.
        """
        backend = self._schema("truncate_table")
        table = self._table_name(name)
        if self.is_table_enabled(name):
            self.disable_table(name)
        try:
            self.engine.admin("truncate_table", backend.truncate_table, table, bool(preserve_splits))
        except MetaClientError as error:
            error.add_note(f"table {keys.printable(table)!r} is disabled: call enable_table(), or truncate it again")
            raise
        finally:
            self.engine.locator.cache.clear(table)

    def namespaces(self) -> list[str]:
        """Return the names of the namespaces, sorted."""
        return sorted(self.engine.admin("namespaces", self._schema("namespaces").namespaces))

    def create_namespace(self, name: str) -> None:
        """Create a namespace; its tables have names such as ``name:table``."""
        self.engine.admin("create_namespace", self._schema("create_namespace").create_namespace, namespace_name(name))

    def delete_namespace(self, name: str) -> None:
        """Delete a namespace, which must have no tables."""
        self.engine.admin("delete_namespace", self._schema("delete_namespace").delete_namespace, namespace_name(name))

    def _schema(self, what: str) -> SchemaBackend:
        if not self.capabilities.schema or not isinstance(self._backend, SchemaBackend):
            raise Unsupported(
                f"the backend {self._backend.name!r} has no call for {what}(): connect with thrift2://, hbase:// "
                "(ZooKeeper) or hbase+rpc:// (a master) to the same cluster, or use HBase's shell"
            )
        return self._backend

    @property
    def replication(self) -> Replication:
        """The peers to which this cluster replicates: add, remove, enable, disable, update, list, get, status."""
        if not self.capabilities.replication or not isinstance(self._backend, ReplicatingBackend):
            raise Unsupported(
                f"the backend {self._backend.name!r} cannot administer replication peers: connect with hbase:// "
                "(ZooKeeper) or hbase+rpc:// (a master) to the same cluster"
            )
        return Replication(self._backend.replication_admin, self.engine.admin)

    @overload
    def changes(self, table: Tables, *, name: str, arrow: Literal[False] = False, **options: Any) -> Changes: ...

    @overload
    def changes(self, table: Tables, *, name: str, arrow: Literal[True], **options: Any) -> ChangeBatches: ...

    def changes(
        self,
        table: Tables,
        *,
        name: str,
        serial: bool = False,
        since: datetime | float | None = None,
        state: StateLike = None,
        arrow: bool = False,
        **options: Any,
    ) -> Changes | ChangeBatches:
        """Return the changes of a table, or of several, as they are written: see docs/changes.md.

        An iterator of :class:`~metaclient.changes.Change`, with ``arrow`` of record batches. ``name`` is that of the
        subscription, which is made if there is none and stays until it is removed: processes with the same name share
        it. ``serial`` has HBase deliver each row's changes in order. ``since`` begins with what was stored since then.
        ``state`` (a path, or an object with ``load`` and ``save``) removes repeats over restarts. ``options`` are
        those of :class:`~metaclient.changes.FeedOptions`: auto_commit, bytes_max, dead_letter, host, port, bind,
        allow_insecure, ...
        """
        from metaclient.changes import open_feed

        self.engine.check_open()
        tables = [table] if isinstance(table, bytes | str) else table
        feed = open_feed(
            self,
            [self._table_name(one) for one in tables],
            name=name,
            serial=serial,
            since=since,
            state=state,
            arrow=arrow,
            on_close=self._feeds.discard,
            options=options,
        )
        self._feeds.add(feed)
        return feed

    def hbase_version(self) -> str | None:
        """Return the version of HBase that the master reports, such as ``2.6.1``; None if the backend has no such call.

        Thrift gateways have none.
        """
        if not isinstance(self._backend, VersionedBackend):
            return None
        version: str = self.engine.admin("hbase_version", self._backend.hbase_version)
        return version

    # -- identity ----------------------------------------------------------------------------------------------

    def whoami(self) -> Identity:
        """Return the user that the cluster takes this connection for, and how it was authenticated."""
        identity: Identity = self.engine.admin("whoami", self._identity().whoami)
        return identity

    def delegation_token(self) -> Token:
        """Fetch a new token, with which another process connects as the same user: ``connect(token=...)``.

        The connection must be authenticated by Kerberos. The servers refuse the token after ``token.expires_ms``; at
        ``token.renew_ms`` a new one should be fetched.
        """
        token: Token = self.engine.admin("delegation_token", self._identity().delegation_token)
        return token

    def _identity(self) -> IdentityAdmin:
        if not isinstance(self._backend, IdentityBackend):
            raise Unsupported(
                f"the backend {self._backend.name!r} does not know its user: connect with hbase:// (ZooKeeper) or "
                "hbase+rpc:// (a master) to the same cluster"
            )
        return self._backend.identity

    # -- locations -------------------------------------------------------------------------------------------

    def locate(
        self, table: bytes | str, row: bytes | str, *, replica_id: int = 0, reload: bool = False
    ) -> RegionLocation:
        """Return the location of a row's region, or of a replica of it; a cached location takes about a microsecond."""
        # The fast path only reads the snapshot; arguments that need a conversion are handled below. It is
        # TableLocations.cached_primary without its call, which would cost 30 to 40 ns of about 410.
        known = self._cached_tables.get(table)  # type: ignore[arg-type]  # a str key is a miss
        if known is None and type(table) is str:
            known = self._cached_tables.get(table.encode())
        if known is not None and not reload and replica_id == 0 and type(row) is bytes and self.table_prefix is None:
            snapshot = known.snapshot
            index = bisect_right(snapshot.starts, row) - 1
            if index >= 0:
                end = snapshot.ends[index]
                if not end or row < end:
                    location = snapshot.primaries[index]
                    if location is not None:
                        known.hits += 1
                        return location
        self.engine.check_open()
        name = self._table_name(table)
        if not isinstance(replica_id, int) or isinstance(replica_id, bool) or replica_id < 0:
            raise ValueError(f"'replica_id' must be a number from 0 on, got {replica_id!r}")
        # The empty row is valid here: it is in the first region.
        return self.engine.locate(name, keys.as_bytes(row, "row"), replica_id, reload=reload)

    def regions(self, table: bytes | str, *, complete: bool = False) -> list[RegionLocations]:
        """Return all regions of a table with their replicas, read from hbase:meta in pages.

        ``complete``: raise LocationUnknown if some rows are in no region of hbase:meta, or in two. A reader that goes
        from region to region would otherwise omit or repeat rows.
        """
        return self.engine.regions(self._table_name(table), complete=complete)

    def warm_up(self, table: bytes | str, *, on_page: Callable[[int], None] | None = None) -> int:
        """Read a table's locations into the cache, in a few pages; return the number of regions."""
        return len(self.engine.regions(self._table_name(table), on_page))

    def export_locations(self, *tables: bytes | str) -> bytes:
        """Return the cached locations of these tables (default: all) for :meth:`import_locations` in another process.

        The servers of hbase:meta's replicas are included, so that the importing process need not read the registry.
        """
        return self.engine.export_locations([self._table_name(table) for table in tables])

    def import_locations(self, data: bytes) -> int:
        """Add exported locations to the cache, so that they need no lookup; return the number of regions."""
        return self.engine.import_locations(data)

    def meta_replicas(self) -> list[MetaReplicaStatus]:
        """Return the copies of hbase:meta: server, health, and the number of lookups of this connection."""
        self.engine.refresh_meta_replicas()
        return self.engine.reader.status()

    # -- freshness -------------------------------------------------------------------------------------------

    def watch_freshness(
        self, table: bytes | str, *, family: bytes | str, interval: float = 1.0, read_only: bool = False
    ) -> FreshnessWatcher:
        """Measure in the background how far the replicas of a table are behind, every ``interval`` seconds.

        Reads then have ``Row.lag_s``, and ``max_staleness`` may be answered by replicas, on backends that do not report
        the lag themselves. The watcher writes a row of its own into each region, into this family, which scans of the
        table return: its key is the region's start key followed by ``b"\\x00metaclient.canary"``. With ``read_only``
        it only reads the rows that the watcher of another process writes. Close the watcher, or the connection, to end
        it.
        """
        name = self._table_name(table)
        self.engine.check_open()
        if isinstance(interval, bool) or not isinstance(interval, int | float):
            raise TypeError(f"'interval' must be a number of seconds, got {interval!r}")
        if not 0 < interval <= INTERVAL_S_MAX:
            raise ValueError(f"'interval' must be above 0 and at most {INTERVAL_S_MAX:g} seconds, got {interval!r}")
        if not self.capabilities.region_replicas:
            raise self.engine.operations.no_replicas()
        plain = keys.column_name(keys.as_bytes(family, "family").rstrip(b":"), "family", family_only_ok=True)
        families = [each.name for each in self.engine.describe(name).families]
        if plain not in families:
            known = ", ".join(map(keys.printable, families))
            raise NoSuchFamily(
                f"table {keys.printable(name)!r} has no family {keys.printable(plain)!r} for the canary; it has {known}"
            )
        earlier = self._watchers.get(name)
        if earlier is not None and not earlier.is_closed:
            raise ValueError(f"{earlier!r} watches this table already: close it first")
        watcher = FreshnessWatcher(
            self.engine,
            self._runtime,
            name,
            plain,
            interval_s=float(interval),
            is_read_only=bool(read_only),
            timeout_s=self.config.operation_timeout_s,
        )
        self._watchers[name] = watcher
        return watcher

    # -- events and counters ---------------------------------------------------------------------------------

    def on_event(self, listener: Listener) -> Callable[[], None]:
        """Call a listener for ejections, fallbacks, lost locations and retries; return a function that removes it."""
        if not callable(listener):
            raise TypeError(f"on_event() takes a function of one event, got {listener!r}")
        return self.engine.telemetry.add_listener(listener)

    def stats(self) -> dict[str, Any]:
        """Return the counters of this connection, ready for ``json.dumps``."""
        return self.engine.stats()


class _Transport:
    """The life of a connection, under the names of a transport of Thrift."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def is_open(self) -> bool:
        return self._connection.engine.life is Life.OPEN

    def open(self) -> None:
        self._connection.open()

    def close(self) -> None:
        self._connection.close()


def _check_one_of(name: str, value: object, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ValueError(f"{name!r} must be one of {', '.join(allowed)}, got {value!r}")
