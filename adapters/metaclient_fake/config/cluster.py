"""Stores every size, limit and delay of a fake cluster, under our names (seconds, bytes) and under HBase's.

Order of precedence, highest first: an argument of ``FakeCluster`` or a name in a ``fake:`` url, a field of ours in the
mapping, HBase's property. Two of HBase's names for one field must agree.

DIVERGENCES from HBase's defaults, so that a cluster in memory is pleasant to use at once:

- ``meta_replicas`` is 3 (HBase: 1);
- ``session_timeout_s`` is 6 s (HBase: 90 s), as on a local cluster of ours;
- region replication is on, for hbase:meta and for user tables (HBase: off); see ``replication/config.py``;
- where the store file refresher is on and nothing is pushed to the copies of hbase:meta, hbase:meta is flushed whenever
  it has changed since the last look (HBase: every 5 minutes or on request), which gives its secondaries the lag of a
  busy HBase 2.6;
- archived logs are deleted at once (HBase: after 10 minutes), which is memory here;
- the balancer does not run by itself (HBase: every 5 minutes): a test calls ``balance()``.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from metaclient.config import property_names
from metaclient.config.hbase_properties import (
    CLIENT_PREFIXES,
    NameKind,
    Properties,
    is_from_file,
    kind_of,
    refuse_or_warn,
    source_of,
    warn,
    warn_unread,
)
from metaclient.errors import ConfigError, ConfigWarning
from metaclient_fake.config.region_replication import ReplicationConfig
from metaclient_fake.config.replication import PeerReplicationConfig, SerialBug
from metaclient_fake.config.storage import StorageConfig

__all__ = ["SIMPLE_BALANCER", "STOCHASTIC_BALANCER", "ClusterConfig", "honoured_names", "nearest", "setting_names"]

#: HBase's balancers whose outcome the fake has; the words of ``hbase.master.loadbalancer.class``.
STOCHASTIC_BALANCER, SIMPLE_BALANCER = "StochasticLoadBalancer", "SimpleLoadBalancer"
_META_COPIES_MAX = 0x10000  # RegionInfo's replica ids are two bytes


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


#: The version that the fake reports; its calls need no version later than 2.x.
HBASE_VERSION = "2.6.1"


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
    old_wal_ttl_s: float = 0.0  # hbase.master.logcleaner.ttl (HBase: 600 s; here only queues read old logs)
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
    region_open_s: float | None = None  # RegionOpening for that long; on virtual time 0.1 s (HBase 2.6.1: 0.05-0.3)
    region_close_s: float | None = None  # "is closing"; on virtual time 0.05 s (HBase 2.6.1: 0.05-0.15)
    balancer: str = STOCHASTIC_BALANCER  # hbase.master.loadbalancer.class: SimpleLoadBalancer evens out and no more
    balancer_period_s: float = 0.0  # hbase.balancer.period; 0 = only when asked
    catalog_janitor_s: float = 300.0  # hbase.catalogjanitor.interval: split parents leave hbase:meta
    failover_piles_replicas: bool = False  # HBase 2.6.1: after a failover, copies share a server until balanced

    # -- region replicas --------------------------------------------------------------------------------------
    meta_replicas: int = 3  # hbase.meta.replica.count, when the cluster starts
    replication: ReplicationConfig = field(default_factory=ReplicationConfig)
    refresh_s: float = 0.0  # hbase.regionserver.storefile.refresh.period: all tables, hbase:meta too; 0 = off
    meta_refresh_s: float = 0.0  # hbase.regionserver.meta.storefile.refresh.period: if the general one is 0
    meta_flush_on_refresh: bool = True  # flush a changed hbase:meta before its replicas look at the files
    peer_replication: PeerReplicationConfig = field(default_factory=PeerReplicationConfig)
    wait_for_primary_flush: bool = True  # hbase.region.replica.wait.for.primary.flush
    reads_disabled_s: float | None = None  # after each open of a secondary; on virtual time 0.1 s (5.8: 0.03-0.16)
    secondary_reopens_empty_s: float = 0.0  # HBase 2.6.1: a re-opened secondary answers "0 rows" that long
    meta_rows_torn_s: float = 0.0  # HBase 3.0.0-alpha-4: then with 3 cells of each row that long

    def __post_init__(self) -> None:
        for owner in (self, self.storage, self.replication, self.peer_replication):
            _require_numbers(owner)
        positive = (
            "handlers",
            "meta_handlers",
            "call_queue_max",
            "session_timeout_s",
            "session_check_s",
            "meta_replicas",
        )
        for name in positive:
            if not getattr(self, name):
                raise ConfigError(f"{name} must be more than 0")
        if self.meta_replicas > _META_COPIES_MAX:
            raise ConfigError(f"meta_replicas must be at most {_META_COPIES_MAX}, got {self.meta_replicas}")
        if self.balancer not in (STOCHASTIC_BALANCER, SIMPLE_BALANCER):
            raise ConfigError(f"balancer: {_balancer_refusal(self.balancer)}")
        if (self.latency_s_min or 0.0) > (float("inf") if self.latency_s_max is None else self.latency_s_max):
            raise ConfigError(f"latency_s_min = {self.latency_s_min} is more than latency_s_max = {self.latency_s_max}")
        # StorefileRefresherChore refuses to start: a file could be cleaned away between two looks.
        if max(self.refresh_s, self.meta_refresh_s) > self.storage.archive_ttl_s / 2:
            raise ConfigError(
                f"refresh_s and meta_refresh_s must be at most half of the archive's time to live "
                f"({self.storage.archive_ttl_s:g} s), got {self.refresh_s:g} and {self.meta_refresh_s:g}"
            )

    @property
    def meta_refresh_period_s(self) -> float:
        """How often copies of hbase:meta look at files: as all tables do if these do, as in HRegionServer."""
        return self.refresh_s or self.meta_refresh_s

    def settled(self, is_virtual: bool) -> ClusterConfig:
        """Return the same with every ``None`` decided for this kind of runtime, and the storage for HBase's version."""
        chosen = {name: (lifelike if is_virtual else 0.0) for name, lifelike in _LIFELIKE.items()}
        if self.latency_s_max is not None:
            chosen["latency_s_min"] = min(chosen["latency_s_min"], self.latency_s_max)
        chosen["latency_s_max"] = max(chosen["latency_s_max"], self.latency_s_min or 0.0)
        undecided = {name: value for name, value in chosen.items() if getattr(self, name) is None}
        return dataclasses.replace(self, storage=self._storage_of_version(), **undecided)  # type: ignore[arg-type]  # all of them are floats

    def _storage_of_version(self) -> StorageConfig:
        """Return the storage as the version of HBase has it that replication between clusters is to behave like."""
        storage, replication = self.storage, self.peer_replication
        return dataclasses.replace(
            storage,
            refuses_skip_wal_of_replicated=storage.refuses_skip_wal_of_replicated and replication.behaviour != "2.6",
            counts_markers_on_recovery=storage.counts_markers_on_recovery
            and SerialBug.MARKER_IDS_REUSED not in replication.serial_bugs,
        )

    def warn_of_settings_without_effect(self) -> None:
        """Warn of settings that others overrule, as HBase's servers do in silence."""
        if self.replication.enabled and not self.replication.catalog_enabled:  # ServerRegionReplicaUtil
            warn(
                "hbase.region.replica.replication.catalog.enabled=false has no effect: "
                "hbase.region.replica.replication.enabled=true includes hbase:meta",
                ConfigWarning,
            )
        if self.refresh_s and self.meta_refresh_s not in (0.0, self.refresh_s):  # HRegionServer
            warn(
                "hbase.regionserver.meta.storefile.refresh.period has no effect: "
                "hbase.regionserver.storefile.refresh.period is set and includes hbase:meta",
                ConfigWarning,
            )

    def replace(self, **changes: object) -> ClusterConfig:
        """A copy with some settings changed, also flat ones (``replication_lock_step``); unknown names are refused."""
        return _with(self, changes)

    @classmethod
    def of(cls, config: ClusterConfig | Mapping[str, object] | None = None) -> ClusterConfig:
        """From a mapping of field names or HBase property names (HBase's units).

        A property that has no effect on a fake cluster gives a warning or is refused, as docs/configuration.md says.

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


#: What an undecided delay is on virtual time.
_LIFELIKE = {
    "latency_s_min": 0.0001,
    "latency_s_max": 0.0005,
    "region_open_s": 0.1,
    "region_close_s": 0.05,
    "reads_disabled_s": 0.1,
}


def _require_numbers(owner: object) -> None:
    for item in dataclasses.fields(owner):  # type: ignore[arg-type]  # one of the three classes
        value = getattr(owner, item.name)
        kind = str(item.type)
        if kind.startswith("int") and (isinstance(value, bool) or not isinstance(value, int)):
            raise ConfigError(f"{item.name} must be a whole number, got {value!r}")
        if kind.startswith("float") and value is not None and not isinstance(value, int | float):
            raise ConfigError(f"{item.name} must be a number, got {value!r}")
        if kind.startswith("bool") and value is not None and not isinstance(value, bool):
            raise ConfigError(f"{item.name} must be True or False, got {value!r}")
        if isinstance(value, int | float) and not 0 <= value < float("inf"):
            raise ConfigError(f"{item.name} must not be negative or infinite, got {value!r}")


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


def _balancer(value: object) -> str:
    """Return the balancer of a Java class, with or without its package."""
    word = str(value).strip().rpartition(".")[2]
    if word not in (STOCHASTIC_BALANCER, SIMPLE_BALANCER):
        raise ValueError(_balancer_refusal(value))
    return word


def _balancer_refusal(value: object) -> str:
    return f"Java classes cannot be loaded; allowed: {STOCHASTIC_BALANCER}, {SIMPLE_BALANCER}; got {value!r}"


#: HBase's name -> ours and how its unit becomes ours.
_HBASE_KEYS: dict[str, tuple[str, Callable[[object], object]]] = {
    "hbase.regionserver.handler.count": ("handlers", _integer),
    "hbase.regionserver.metahandler.count": ("meta_handlers", _integer),
    "hbase.ipc.server.max.callqueue.length": ("call_queue_max", _integer),
    "hbase.client.scanner.timeout.period": ("scanner_lease_s", _milliseconds),
    "hbase.server.scanner.max.result.size": ("scan_page_bytes_max", _integer),
    "zookeeper.session.timeout": ("session_timeout_s", _milliseconds),
    "hbase.meta.replica.count": ("meta_replicas", _integer),
    "hbase.master.loadbalancer.class": ("balancer", _balancer),
    "hbase.master.logcleaner.ttl": ("old_wal_ttl_s", _milliseconds),
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
    "hbase.regionserver.maxlogs": ("wal_files_max", _integer),
    "hbase.server.keyvalue.maxsize": ("cell_bytes_max", _integer),
    "hbase.master.hfilecleaner.ttl": ("archive_ttl_s", _milliseconds),
}
_SINK = "hbase.region.read-replica.sink."
_REPLICATION_KEYS: dict[str, tuple[str, Callable[[object], object]]] = {
    "hbase.region.replica.replication.enabled": ("enabled", _boolean),
    "hbase.region.replica.replication.catalog.enabled": ("catalog_enabled", _boolean),
    "hbase.region.meta.replica.replication.enabled": ("catalog_enabled", _boolean),  # the name in HBASE-18070's design
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
_SOURCE = "replication.source."
_PEER_REPLICATION_KEYS: dict[str, tuple[str, Callable[[object], object]]] = {
    f"{_SOURCE}size.capacity": ("batch_bytes", _integer),
    f"{_SOURCE}nb.capacity": ("batch_entries", _integer),
    f"{_SOURCE}nb.batches": ("batches_ahead", _integer),
    f"{_SOURCE}sleepforretries": ("retry_pause_s", _milliseconds),
    f"{_SOURCE}maxretriesmultiplier": ("retry_multiplier_max", _integer),
    f"{_SOURCE}shipedits.timeout": ("ship_timeout_s", _milliseconds),
    f"{_SOURCE}ratio": ("sink_ratio", _number),
    f"{_SOURCE}per.peer.node.bandwidth": ("bandwidth", _integer),
    f"{_SOURCE}regionserver.abort": ("aborts_server", _boolean),
    "hbase.replication.source.maxthreads": ("calls_max", _integer),
    "hbase.replication.drop.on.deleted.table": ("drops_deleted_tables", _boolean),
    "hbase.replication.drop.on.deleted.columnfamily": ("drops_deleted_families", _boolean),
    "hbase.replication.peer.base.config": ("base_config", str),
    "hbase.serial.replication.waiting.ms": ("serial_pause_s", _milliseconds),
    "hbase.master.cleaner.replication.barrier.interval": ("barrier_cleaner_s", _milliseconds),
    "hbase.rpc.rows.warning.threshold": ("sink_batch_rows", _integer),
    "replication.bad.sink.threshold": ("bad_sink_threshold", _integer),
    "replication.sink.client.ops.timeout": ("sink_timeout_s", _milliseconds),
    "replication.sink.client.retries.number": ("sink_retries", _integer),
    "replication.sleep.before.failover": ("sleep_before_failover_s", _milliseconds),
    "replication.total.buffer.quota": ("buffer_bytes_max", _integer),
}
#: Field of ClusterConfig, or "" for its own -> HBase's names for what is in it.
_KEYS = {
    "": _HBASE_KEYS,
    "storage": _STORAGE_KEYS,
    "replication": _REPLICATION_KEYS,
    "peer_replication": _PEER_REPLICATION_KEYS,
}
_HONOURED = frozenset(name for keys in _KEYS.values() for name in keys)
#: Server properties that have a setting here in another unit or meaning, and what to write.
_INSTEAD = {
    "hbase.regionserver.global.memstore.size": "a share of a heap; write memstore_global_bytes",
    "hbase.regionserver.logroll.period": "logs are rolled by length; write wal_roll_entries",
}
#: ``replication_lock_step`` is ``lock_step`` of the replication: flat names for urls. Prefix -> field of ClusterConfig.
_PREFIXES = {"replication_": "replication", "peer_replication_": "peer_replication"}
_PARTS: dict[str, type] = {
    "storage": StorageConfig,
    "replication": ReplicationConfig,
    "peer_replication": PeerReplicationConfig,
}


def honoured_names() -> frozenset[str]:
    """Return the properties of HBase that have an effect on a fake cluster."""
    return _HONOURED


def _field_names() -> list[str]:
    nested = [prefix + item.name for prefix, part in _PREFIXES.items() for item in dataclasses.fields(_PARTS[part])]
    return [item.name for item in dataclasses.fields(ClusterConfig)] + nested


def setting_names() -> list[str]:
    """Return what a ``fake:`` url may set: numbers, flags, words and times."""
    return [name for name in _field_names() if name not in _PARTS]


def _check_names(names: Mapping[str, object]) -> None:
    known = _field_names()
    for name in names:
        if name not in known:
            raise ConfigError(f"a fake cluster has no setting {name!r}{nearest(name, known)}")


def _from_mapping(config: Mapping[str, object]) -> ClusterConfig:
    """HBase's properties first, then our names over them."""
    for name in config:
        if not isinstance(name, str):
            raise ConfigError(f"a setting's name must be text, got {name!r}")
    _judge_unread(config)
    made = ClusterConfig()
    for part, keys in _KEYS.items():
        values = _hbase_values(config, keys)
        if part and values:
            values = {part: dataclasses.replace(getattr(made, part), **values)}
        made = dataclasses.replace(made, **values)  # type: ignore[arg-type]  # names are the tables', values converted
    # A site file may hold any name, also one without a dot: such names are ours in a mapping only.
    ours = {} if isinstance(config, Properties) else {name: value for name, value in config.items() if "." not in name}
    return _with(made, ours)


def _hbase_values(
    config: Mapping[str, object], keys: Mapping[str, tuple[str, Callable[[object], object]]]
) -> dict[str, object]:
    """Field -> value; ConfigError when two of HBase's names say different things about one field."""
    values: dict[str, object] = {}
    names: dict[str, str] = {}
    for name in filter(config.__contains__, keys):
        field_name, convert = keys[name]
        try:
            value = _converted(name, config[name], convert)
        except ConfigError as error:
            if convert is not _balancer or not is_from_file(source_of(config, name)):
                raise
            warn(f"{error}; {STOCHASTIC_BALANCER} is used", ConfigWarning)  # a file of a cluster that has the class
            continue
        if field_name in values and values[field_name] != value:
            other = names[field_name]
            raise ConfigError(f"{other} = {config[other]!r} and {name} = {config[name]!r} contradict each other")
        values[field_name], names[field_name] = value, name
    return values


def _judge_unread(config: Mapping[str, object]) -> None:
    """Raise or warn for each property that has no effect here; ``metaclient.config.hbase_properties`` has the rule."""
    if isinstance(config, Properties):  # the client's Config has judged the names; what is left are servers' own
        warn_unread(config, _HONOURED, "a fake cluster")
        return
    for name in config:
        if "." not in name or name in _HONOURED:
            continue
        kind, near = kind_of(name)
        if kind is NameKind.MISSPELT:
            refuse_or_warn(name, source_of(config, name), near)
        elif name.startswith(CLIENT_PREFIXES) or name in property_names():
            warn(f"{name} has no effect on a cluster: give it to connect(config=...)", ConfigWarning)
        elif kind is not NameKind.FOREIGN:
            instead = f": {_INSTEAD[name]}" if name in _INSTEAD else ""
            warn(f"{name} has no effect on a fake cluster{instead}", ConfigWarning)


def _with(config: ClusterConfig, settings: Mapping[str, object]) -> ClusterConfig:
    """Return a copy with these settings replaced, given as values or as text of a url."""
    _check_names(settings)
    ours = {
        name: _typed(name, value, ClusterConfig)
        for name, value in settings.items()
        if not name.startswith(tuple(_PREFIXES))
    }
    for prefix, part in _PREFIXES.items():
        fields = {name.removeprefix(prefix): value for name, value in settings.items() if name.startswith(prefix)}
        if fields:
            typed = {name: _typed(name, value, _PARTS[part]) for name, value in fields.items()}
            base = ours.get(part, getattr(config, part))
            ours[part] = dataclasses.replace(base, **typed)  # type: ignore[type-var]  # a dataclass
    return dataclasses.replace(config, **ours)  # type: ignore[arg-type]  # names checked, values typed


def _converted(name: str, value: object, convert: Callable[[object], object]) -> object:
    try:
        return convert(value)
    except ValueError as error:
        raise ConfigError(f"{name}: {value!r} is not a value for it ({error})") from error


def _typed(name: str, value: object, owner: type) -> object:
    """Text from a url becomes what the field holds; anything else is taken as it is."""
    if not isinstance(value, str):
        return value
    if name == "balancer":
        return _converted(name, value, _balancer)
    kinds = {item.name: str(item.type).removesuffix(" | None") for item in dataclasses.fields(owner)}
    if kinds[name] == "str":
        return value
    convert = {"int": _integer, "bool": _boolean, "float": _number}.get(kinds[name])
    if convert is None:
        raise ConfigError(f"{name} cannot be written as text")
    return _converted(name, value, convert)
