"""Stores every size, limit and delay of a fake cluster, under our names (seconds, bytes) and under HBase's.

DIVERGENCES from HBase's defaults, so that a cluster in memory is pleasant to use at once:

- ``session_timeout_s`` is 6 s (HBase: 90 s), as in the runs behind spec/native.md;
- region replication is on, for hbase:meta and for user tables (HBase: off); see ``replication/config.py``;
- where it is switched off, the store file refresher is on, 0.3 s for hbase:meta and 1 s for user tables (HBase: off),
  because it is the only other way for secondaries to see new data;
- with the refresher, hbase:meta is flushed whenever it has changed since the last look (HBase: every 5 minutes or on
  request), which gives its secondaries the lag of a busy HBase 2.6;
- archived logs are deleted at once (HBase: after 10 minutes), which is memory here;
- the balancer does not run by itself (HBase: every 5 minutes): a test calls ``balance()``.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from adapters.fake.replication.config import ReplicationConfig
from adapters.fake.storage import StorageConfig
from metaclient.errors import ConfigError

__all__ = ["ClusterConfig", "nearest", "setting_names"]


def nearest(name: str, known: list[str]) -> str:
    """``; did you mean 'x'?`` for messages about unknown names, or what there is when nothing is near.

    >>> nearest("meta_replica", ["servers", "meta_replicas"])
    "; did you mean 'meta_replicas'?"
    """
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    shown = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
    return f"; known: {shown}" if shown else ""


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """All settings of a fake cluster; ``None`` means: 0 on real threads, something lifelike on virtual time."""

    # -- region servers ---------------------------------------------------------------------------------------
    handlers: int = 30  # hbase.regionserver.handler.count
    meta_handlers: int = 20  # hbase.regionserver.metahandler.count: meta does not queue behind user calls
    call_queue_max: int = 300  # hbase.ipc.server.max.callqueue.length, 10 x handlers
    service_time_s: float = 0.0  # how long each call holds a handler: handlers / service_time_s = capacity
    meta_service_time_s: float = 0.0  # the same for reads of hbase:meta
    late_calls_max: int = 1000  # calls that a hung server keeps for its wake-up (a socket buffer's worth)
    scanner_lease_s: float = 60.0  # hbase.client.scanner.timeout.period
    scanners_max: int = 10_000  # ours: HBase has no limit but memory
    scan_page_bytes_max: int = 100 * 1024 * 1024  # hbase.server.scanner.max.result.size; the client asks for 2 MiB
    moved_memory_s: float = 120.0  # HRegionServer.TIMEOUT_REGION_MOVED
    memstore_global_bytes: int = 1024 * 1024 * 1024  # hbase.regionserver.global.memstore.size: 0.4 of a 2.5 GB heap
    wal_roll_entries: int = 10_000  # a log file this long is closed; one that is flushed goes to the archive
    old_wal_ttl_s: float = 0.0  # hbase.master.logcleaner.ttl (HBase: 600 s; nobody reads old logs here yet)
    storage: StorageConfig = field(default_factory=StorageConfig)

    # -- the network ------------------------------------------------------------------------------------------
    latency_s_min: float | None = None  # one message, one way; on virtual time 0.1 ms ...
    latency_s_max: float | None = None  # ... to 0.5 ms, a quiet LAN
    master_rpc_timeout_s: float = (
        2.0  # one call of the master (HBase: hbase.rpc.timeout, 60 s): a hung server holds it up
    )

    # -- the master -------------------------------------------------------------------------------------------
    session_timeout_s: float = 6.0  # zookeeper.session.timeout
    session_check_s: float = 0.5  # how often sessions are looked at; the end of one is noticed that late at most
    registry_lag_s: float = 0.0  # a new meta location is told to clients that much later
    region_open_s: float | None = None  # RegionOpening for that long; on virtual time 0.1 s (native.md 5.8: 0.05-0.3)
    region_close_s: float | None = None  # "is closing"; on virtual time 0.05 s (native.md 5.8: 0.05-0.15)
    balancer_period_s: float = 0.0  # hbase.balancer.period; 0 = only when asked
    catalog_janitor_s: float = 300.0  # hbase.catalogjanitor.interval: split parents leave hbase:meta
    failover_piles_replicas: bool = False  # native.md 5.7: after a failover, copies share a server until balanced

    # -- region replicas --------------------------------------------------------------------------------------
    replication: ReplicationConfig = field(default_factory=ReplicationConfig)
    #: hbase.regionserver.storefile.refresh.period; 0 = off. None: off with region replication, else 1 s.
    refresh_s: float | None = None
    #: hbase.regionserver.meta.storefile.refresh.period; 0 = off. None: off with region replication, else 0.3 s.
    meta_refresh_s: float | None = None
    meta_flush_on_refresh: bool = True  # flush a changed hbase:meta before its replicas look at the files
    wait_for_primary_flush: bool = True  # hbase.region.replica.wait.for.primary.flush
    reads_disabled_s: float | None = None  # after each open of a secondary; on virtual time 0.1 s (5.8: 0.03-0.16)
    secondary_reopens_empty_s: float = 0.0  # native.md 0.2: a re-opened secondary answers "0 rows" that long
    meta_rows_torn_s: float = 0.0  # native.md 0.2: then with 3 cells of each row that long

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if isinstance(value, int | float) and not isinstance(value, bool) and value < 0:
                raise ConfigError(f"{item.name} must not be negative, got {value!r}")
        for name in ("handlers", "meta_handlers", "call_queue_max", "session_timeout_s", "session_check_s"):
            if not getattr(self, name):
                raise ConfigError(f"{name} must be more than 0")
        # StorefileRefresherChore refuses to start: a file could be cleaned away between two looks.
        refresh_s, meta_refresh_s = self.refresh_s or 0.0, self.meta_refresh_s or 0.0
        if max(refresh_s, meta_refresh_s) > self.storage.archive_ttl_s / 2:
            raise ConfigError(
                f"refresh_s and meta_refresh_s must be at most half of the archive's time to live "
                f"({self.storage.archive_ttl_s:g} s), got {refresh_s:g} and {meta_refresh_s:g}"
            )

    def settled(self, is_virtual: bool) -> ClusterConfig:
        """The same with every ``None`` decided for this kind of runtime."""
        chosen = {name: (lifelike if is_virtual else 0.0) for name, lifelike in _LIFELIKE.items()}
        pushes = self.replication
        chosen["refresh_s"] = 0.0 if pushes.enabled else _REFRESH_S
        chosen["meta_refresh_s"] = 0.0 if pushes.enabled or pushes.catalog_enabled else _META_REFRESH_S
        undecided = {name: value for name, value in chosen.items() if getattr(self, name) is None}
        return dataclasses.replace(self, **undecided)  # type: ignore[arg-type]  # all of them are floats

    def replace(self, **changes: object) -> ClusterConfig:
        """A copy with some settings changed; unknown names raise ConfigError."""
        _check_names(changes)
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]  # names checked, types are the caller's

    @classmethod
    def of(cls, config: ClusterConfig | Mapping[str, object] | None = None) -> ClusterConfig:
        """From a mapping of field names or HBase property names (HBase's units); other HBase properties are ignored.

        >>> ClusterConfig.of({"zookeeper.session.timeout": "2000", "handlers": 5}).session_timeout_s
        2.0
        """
        if isinstance(config, cls):
            return config
        if config is None:
            return cls()
        if not isinstance(config, Mapping):
            raise ConfigError(f"config must be a mapping or a ClusterConfig, got {type(config).__name__}")
        return _from_mapping(config)


#: The refresher's periods where replicas have nothing else to follow their primaries by.
_REFRESH_S, _META_REFRESH_S = 1.0, 0.3

#: What an undecided delay is on virtual time.
_LIFELIKE = {
    "latency_s_min": 0.0001,
    "latency_s_max": 0.0005,
    "region_open_s": 0.1,
    "region_close_s": 0.05,
    "reads_disabled_s": 0.1,
}


def _milliseconds(value: object) -> float:
    return float(str(value)) / 1000.0


def _integer(value: object) -> int:
    return int(str(value))


def _boolean(value: object) -> bool:
    text = str(value).strip().lower()
    if text not in ("true", "false", "1", "0", "yes", "no"):
        raise ValueError(f"{value!r} is neither true nor false")
    return text in ("true", "1", "yes")


def _number(value: object) -> float:
    return float(str(value))


#: HBase's name -> ours and how its unit becomes ours.
_HBASE_KEYS: dict[str, tuple[str, Callable[[object], object]]] = {
    "hbase.regionserver.handler.count": ("handlers", _integer),
    "hbase.regionserver.metahandler.count": ("meta_handlers", _integer),
    "hbase.ipc.server.max.callqueue.length": ("call_queue_max", _integer),
    "hbase.client.scanner.timeout.period": ("scanner_lease_s", _milliseconds),
    "hbase.server.scanner.max.result.size": ("scan_page_bytes_max", _integer),
    "zookeeper.session.timeout": ("session_timeout_s", _milliseconds),
    "hbase.balancer.period": ("balancer_period_s", _milliseconds),
    "hbase.catalogjanitor.interval": ("catalog_janitor_s", _milliseconds),
    "hbase.regionserver.storefile.refresh.period": ("refresh_s", _milliseconds),
    "hbase.regionserver.meta.storefile.refresh.period": ("meta_refresh_s", _milliseconds),
    "hbase.region.replica.wait.for.primary.flush": ("wait_for_primary_flush", _boolean),
}
_STORAGE_KEYS: dict[str, tuple[str, Callable[[object], object]]] = {
    "hbase.hregion.memstore.flush.size": ("flush_bytes", _integer),
    "hbase.hregion.memstore.block.multiplier": ("blocking_multiplier", _integer),
    "hbase.hstore.compaction.min": ("compaction_min_files", _integer),
    "hbase.hstore.compaction.max": ("compaction_max_files", _integer),
    "hbase.master.hfilecleaner.ttl": ("archive_ttl_s", _milliseconds),
}
_SINK = "hbase.region.read-replica.sink."
_REPLICATION_KEYS: dict[str, tuple[str, Callable[[object], object]]] = {
    "hbase.region.replica.replication.enabled": ("enabled", _boolean),
    "hbase.region.replica.replication.catalog.enabled": ("catalog_enabled", _boolean),
    "hbase.region.meta.replica.replication.enabled": ("catalog_enabled", _boolean),  # seed 000's name for it
    "hbase.region.replica.storefile.refresh": ("refreshes_under_pressure", _boolean),
    "hbase.region.replica.storefile.refresh.memstore.multiplier": ("memstore_multiplier", _number),
    "hbase.regionserver.replication.handler.count": ("handlers", _integer),
    "hbase.client.pause": ("retry_pause_s", _milliseconds),
    f"{_SINK}retries.number": ("retries", _integer),
    f"{_SINK}rpc.timeout.ms": ("rpc_timeout_s", _milliseconds),
    f"{_SINK}operation.timeout.ms": ("operation_timeout_s", _milliseconds),
    f"{_SINK}meta-edit.rpc.timeout.ms": ("marker_rpc_timeout_s", _milliseconds),
    f"{_SINK}meta-edit.operation.timeout.ms": ("marker_operation_timeout_s", _milliseconds),
    f"{_SINK}size.capacity": ("batch_bytes", _integer),
    f"{_SINK}nb.capacity": ("batch_entries", _integer),
    f"{_SINK}max-pending-size": ("pending_bytes_max", _integer),
    f"{_SINK}max-pending-size.soft-limit-percentage": ("pending_soft_share", _number),
    f"{_SINK}flush.min-interval.secs": ("flush_interval_s", _number),
}
#: ``replication_lock_step`` is ``lock_step`` of the replication: flat names for urls.
_REPLICATION_PREFIX = "replication_"
_PARTS: dict[str, type] = {"storage": StorageConfig, "replication": ReplicationConfig}


def _field_names() -> list[str]:
    nested = [_REPLICATION_PREFIX + item.name for item in dataclasses.fields(ReplicationConfig)]
    return [item.name for item in dataclasses.fields(ClusterConfig)] + nested


def setting_names() -> list[str]:
    """What a ``fake:`` url may set: numbers, flags and times."""
    return [name for name in _field_names() if name not in _PARTS]


def _check_names(names: Mapping[str, object]) -> None:
    known = _field_names()
    for name in names:
        if name not in known:
            raise ConfigError(f"a fake cluster has no setting {name!r}{nearest(name, known)}")


def _from_mapping(config: Mapping[str, object]) -> ClusterConfig:
    ours: dict[str, object] = {}
    parts: dict[str, dict[str, object]] = {name: {} for name in _PARTS}
    for name, value in config.items():
        for known, target in (
            (_HBASE_KEYS, ours),
            (_STORAGE_KEYS, parts["storage"]),
            (_REPLICATION_KEYS, parts["replication"]),
        ):
            if name in known:
                field_name, convert = known[name]
                target[field_name] = _converted(name, value, convert)
        if "." in name:
            continue
        if name.startswith(_REPLICATION_PREFIX) and name in _field_names():
            inner = name.removeprefix(_REPLICATION_PREFIX)
            parts["replication"][inner] = _typed(inner, value, ReplicationConfig)
        else:
            ours[name] = _typed(name, value, ClusterConfig)
    _check_names(ours)
    for name, settings in parts.items():
        if settings:
            base = ours.get(name, _PARTS[name]())
            ours[name] = dataclasses.replace(base, **settings)  # type: ignore[type-var]  # a dataclass
    return ClusterConfig(**ours)  # type: ignore[arg-type]  # names checked, values converted


def _converted(name: str, value: object, convert: Callable[[object], object]) -> object:
    try:
        return convert(value)
    except ValueError as error:
        raise ConfigError(f"{name}: {value!r} is not a value for it ({error})") from error


def _typed(name: str, value: object, owner: type[ClusterConfig] | type[ReplicationConfig]) -> object:
    """Text from a url becomes what the field holds; anything else is taken as it is."""
    if not isinstance(value, str):
        return value
    annotations = {item.name: str(item.type) for item in dataclasses.fields(owner)}
    kind = annotations.get(name, "")
    convert = _integer if kind == "int" else _boolean if kind == "bool" else _number
    return _converted(name, value, convert) if kind else value
