"""The fields of ``Config``: each with its default, its bounds, and the HBase property that sets it.

The HBase properties keep HBase's units (milliseconds, microseconds). They are converted once, when they are read: every
field is seconds as float or bytes as int. The declaration of a field is the only place that states its HBase key, the
unit of that key, HBase's default, the default here, and the allowed values; parsing, checks and error messages are
derived from it.

Order of precedence, highest first: a keyword, ``metaclient.<field>``, the HBase key, the deprecated HBase key, the
default. Mirrors ``ConnectionConfiguration``, ``AsyncConnectionConfiguration`` and ``CatalogReplicaMode`` of HBase 3.x.

DIVERGENCES (the default here, HBase's default, the reason):

- ``meta_mode``: LoadBalance if there is more than one meta replica, HBase ``None``: replicas that no client reads cost
  memory and give nothing.
- ``meta_selector``: ``round_robin``, HBase ``CatalogReplicaLoadBalanceSimpleSelector`` (uniformly random): the load is
  even after few lookups, too.
- ``meta_scan_caching``: 1000, HBase 100: a tenth of the round trips for a whole table; the rows are small.
- ``operation_timeout_s``: 120 s, HBase 1200 s: an application seldom waits twenty minutes for one row.
- ``rpc_timeout_s``: 20 s, HBase 60 s: several attempts fit into one operation.
- ``retry_jitter``: 0.5, HBase 0.01: with a jitter of one per cent all clients retry at the same moment.
- ``hedge_delay``: ``adaptive``, HBase always waits for the fixed delay.
- ``hedge_delay_get_s``: None, HBase 10 ms: adaptive unless it is given; a given delay is fixed, as in HBase.
- ``hedge_delay_scan_s``: None, HBase 1 s: as for gets.
- ``hedge_delay_multiget_s``: None, HBase 10 ms: as for gets.
- ``hedge_plan``: ``staged`` (one more replica at a time), HBase sends the call to all secondaries at once.
- ``scan_caching``: 1000, HBase 2147483647: a page is bounded in rows, not only in bytes.
- ``scan_prefetch``: on, HBase off: client and server work at the same time, for the memory of one more page.
- A timeout of 0 or less means "unlimited" in HBase. Here every wait has a deadline: such a keyword is refused, such a
  property means 24 hours and gives a warning (a file that Java programs read, too, keeps working).
- A property without an effect gives a warning or is refused (``hbase_properties`` has the table); HBase ignores it.
  ``hbase.client.primaryCallTimeout.scan`` has an effect here; in HBase only the reference guide mentions it.
- ``hbase.meta.replicas.use=false`` sets the mode None, which is HBase's default and not the default here.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from metaclient.config.hbase_names import PropertyNames, as_given, property_of, read_only
from metaclient.config.hbase_properties import Properties, Property, warn
from metaclient.config.rules import (
    BUDGET,
    BYTES,
    COUNT,
    DEADLINE,
    FLAG,
    INT_MAX,
    MODE,
    MS,
    PLAIN,
    QUANTILE,
    SELECTOR,
    SHARE,
    SIZE,
    SPAN,
    TIME,
    US,
    FieldRule,
    FieldSpec,
    MetaMode,
    Text,
    Unit,
    checked,
    one_of,
)
from metaclient.config.tokens import TOKEN, Token
from metaclient.errors import ConfigError, ConfigWarning

__all__ = ["SPECS", "Config", "fields_given", "property_names"]


def _field(
    default: object, rule: FieldRule, key: str = "", unit: Unit = PLAIN, hbase: object = None, *, old_key: str = ""
) -> Any:
    spec = FieldSpec(rule, key, unit, hbase, old_key=old_key, optional=default is None)
    return dataclasses.field(default=default, metadata={"spec": spec})


def _following(parent: str, rule: FieldRule, key: str, unit: Unit, *, old_key: str = "") -> Any:
    spec = FieldSpec(rule, key, unit, old_key=old_key, parent=parent)
    return dataclasses.field(default=None, metadata={"spec": spec})


_NONE_GIVEN = Properties({})
NAME: Final = Text("the name of a user or a Kerberos principal")
PATH: Final = Text("the path of a file")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Config:
    """All settings of a connection: immutable, comparable, hashable, picklable.

    Times are seconds, sizes are bytes. ``Config.of`` reads HBase's properties; ``Config(...)`` takes fields only.
    A field declared with ``_following`` has the value of the field named there unless it is given itself.
    A ``Config`` is pickled when Spark sends it to executors; a ``meta_selector`` that is a lambda makes that fail.

    >>> config = Config.of({"hbase.rpc.timeout": 5000, "hbase.client.meta.replica.scan.timeout": "250000"}, retries=3)
    >>> config.rpc_timeout_s, config.rpc_read_timeout_s, config.meta_hedge_delay_s, config.retries
    (5.0, 5.0, 0.25, 3)
    >>> config
    Config(meta_hedge_delay_s=0.25, rpc_timeout_s=5.0, retries=3)
    """

    # -- hbase:meta replicas: which replica is read, and with which timeout
    # None: chosen when the connection is opened; LoadBalance if there is more than one meta replica.
    meta_mode: MetaMode | None = _field(  # noqa: RUF009 - a dataclasses.field
        None, MODE, "hbase.locator.meta.replicas.mode", hbase="None"
    )
    # The name of a selector in metaclient.meta, or a callable.
    meta_selector: object = _field(
        "round_robin", SELECTOR, "hbase.locator.meta.replicas.mode.loadbalance.selector", hbase="simple"
    )
    # HedgedRead: the delay after which the secondaries are read as well. HBase's unit is microseconds.
    meta_hedge_delay_s: float = _field(1.0, TIME, "hbase.client.meta.replica.scan.timeout", US, 1_000_000)
    # Not in HBase: the timeout of one replica within a lookup. In HBase a replica that hangs uses up the whole lookup.
    # None: adaptive, 4 x the p99 of recent lookups, bounded by the next two fields.
    meta_try_timeout_s: float | None = _field(None, SPAN)
    meta_try_timeout_min_s: float = _field(0.05, SPAN)  # not in HBase: a garbage collection must not count as a failure
    meta_try_timeout_max_s: float = _field(2.0, SPAN)  # not in HBase: 30 tries fit into one lookup
    # How long lookups of a range go to the primary after a stale answer. 3 s is a constant of HBase's
    # CatalogReplicaLoadBalanceSimpleSelector; here it grows up to the second field while answers stay stale.
    meta_stale_mark_s: float = _field(3.0, TIME)
    meta_stale_mark_max_s: float = _field(30.0, TIME)
    meta_stale_marks_max: int = _field(10_000, SIZE)  # bounds the memory for marks; unbounded in HBase
    # Not in HBase: how long a failing replica is not read, doubling up to the second field. HBase keeps reading it.
    meta_ejection_s: float = _field(1.0, TIME)
    meta_ejection_max_s: float = _field(60.0, TIME)
    # Not in HBase: the interval at which the list of meta replicas is read again, and the least time between two reads.
    meta_refresh_s: float = _field(60.0, SPAN)
    meta_refresh_min_s: float = _field(1.0, SPAN)

    # -- locations
    locate_prefetch: int = _field(10, SIZE, "hbase.client.locate.prefetch.limit", hbase=10)  # rows per lookup
    locate_prefetch_max: int = _field(1_000, SIZE)  # not in HBase: the most rows of one lookup
    locate_concurrency: int = _field(8, SIZE, "hbase.client.meta.max.concurrent.locate.per.table", hbase=8)
    location_cache_regions_max: int = _field(1_000_000, SIZE)  # 1 GB at an estimated 1 kB; no limit in HBase
    meta_scan_caching: int = _field(1_000, SIZE, "hbase.meta.scanner.caching", hbase=100)
    table_state_ttl_s: float = _field(2.0, TIME)  # HBase reads the state from the primary each time

    # -- deadlines: an operation has one deadline, which its attempts share
    # Not in HBase: open(), the first round trip. HBase's 10 s to connect (hbase.ipc.client.socket.timeout.connect) and
    # 5 s for the response: a wrong address or a hung server is reported early. At most operation_timeout_s.
    open_timeout_s: float = _field(15.0, DEADLINE)
    operation_timeout_s: float = _field(120.0, DEADLINE, "hbase.client.operation.timeout", MS, 1_200_000)
    # For calls on system tables, and for locate, regions, warm_up and meta_replicas when an application calls them.
    meta_operation_timeout_s: float = _following(
        "operation_timeout_s", DEADLINE, "hbase.client.meta.operation.timeout", MS
    )
    rpc_timeout_s: float = _field(20.0, DEADLINE, "hbase.rpc.timeout", MS, 60_000)  # one attempt
    rpc_read_timeout_s: float = _following("rpc_timeout_s", DEADLINE, "hbase.rpc.read.timeout", MS)
    rpc_write_timeout_s: float = _following("rpc_timeout_s", DEADLINE, "hbase.rpc.write.timeout", MS)
    meta_rpc_timeout_s: float = _following("rpc_read_timeout_s", DEADLINE, "hbase.client.meta.read.rpc.timeout", MS)
    scanner_timeout_s: float = _field(60.0, DEADLINE, "hbase.client.scanner.timeout.period", MS, 60_000)
    # The deadline of one meta lookup. meta_operation_timeout_s does not apply to lookups, neither here nor in HBase.
    meta_lookup_timeout_s: float = _following(
        "scanner_timeout_s", DEADLINE, "hbase.client.meta.scanner.timeout.period", MS
    )

    # -- retries
    pause_s: float = _field(0.1, TIME, "hbase.client.pause", MS, 100)  # the unit of the back-off
    pause_overloaded_s: float = _following(  # raised to pause_s if smaller, as in HBase
        "pause_s", TIME, "hbase.client.pause.server.overloaded", MS, old_key="hbase.client.pause.cqtbe"
    )
    retries: int = _field(15, COUNT, "hbase.client.retries.number", hbase=15)  # attempts = retries + 1
    # True: an increment or append whose response was lost is retried if the server supports nonces. It is applied at
    # most once, but the returned value may be a later one. Switch it off to draw unique numbers from a counter.
    nonces: bool = _field(True, FLAG, "hbase.client.nonces.enabled", hbase=True)
    retry_jitter: float = _field(0.5, SHARE, hbase=0.01)  # HBase's is a constant, without a property
    retry_budget: float = _field(0.2, BUDGET)  # not in HBase: retries per call, averaged over all calls
    retry_budget_burst: int = _field(10, COUNT)  # not in HBase: retries at once after a time without retries
    start_log_errors: int = _field(5, COUNT, "hbase.client.start.log.errors.counter", hbase=5)  # warn above it

    # -- hedged reads of user tables; plan and budget also apply to HedgedRead of meta. HBase's unit is microseconds.
    # A delay that is given is the moment at which a further replica is called, as in HBase. None: hedge_delay applies,
    # and HBase's default is the fixed delay.
    hedge_delay_get_s: float | None = _field(None, TIME, "hbase.client.primaryCallTimeout.get", US, 10_000)
    # HBase's reference guide names the old key, HBase reads only the new one. Both have an effect here.
    hedge_delay_scan_s: float | None = _field(
        None,
        TIME,
        "hbase.client.replicaCallTimeout.scan",
        US,
        1_000_000,
        old_key="hbase.client.primaryCallTimeout.scan",
    )
    hedge_delay_multiget_s: float | None = _field(None, TIME, "hbase.client.primaryCallTimeout.multiget", US, 10_000)
    # Not in HBase, for kinds of reads whose delay is not given: "adaptive" waits for this quantile of recent calls,
    # within min and max, and for the fixed delay while there are fewer than samples_min samples.
    hedge_delay: str = _field("adaptive", one_of("fixed", "adaptive"), hbase="fixed")
    hedge_quantile: float = _field(0.95, QUANTILE)  # in a steady state at most one call in twenty is hedged
    hedge_delay_min_s: float = _field(0.001, TIME)  # the resolution of timers and threads
    hedge_delay_max_s: float = _field(1.0, TIME)  # HBase's longest fixed delay, that of scans
    hedge_samples_min: int = _field(20, SIZE)  # the fewest samples that have a 95th percentile
    # Not in HBase: "staged" calls one more replica per delay, which saves calls when the second replica responds.
    hedge_plan: str = _field("staged", one_of("staged", "all_at_once"), hbase="all_at_once")
    # Not in HBase: hedges per call, averaged over all calls; follows from hedge_quantile. At least 1 for meta lookups.
    hedge_budget: float = _field(0.05, BUDGET)
    hedge_budget_burst: int = _field(10, COUNT)  # not in HBase: hedges at once after a time without hedges

    # Ours: the default of max_staleness for TIMELINE reads without replica_id. None: no limit, as in HBase.
    max_staleness_s: float | None = _field(None, TIME)

    # -- scans of user tables
    # Rows and bytes per page. A Thrift gateway has no limit in bytes: it returns as many rows as requested.
    scan_caching: int = _field(1_000, SIZE, "hbase.client.scanner.caching", hbase=INT_MAX)  # Table.scan's batch_size
    scan_max_result_bytes: int = _field(2 << 20, BYTES, "hbase.client.scanner.max.result.size", hbase=2 << 20)
    # The next page is requested while the caller uses the current one; not where the cluster is in this process.
    scan_prefetch: bool = _field(True, FLAG, "hbase.client.scanner.async.prefetch", hbase=False)

    # -- identity and TLS; docs/security.md. A name that is given here wins over the process's surroundings.
    # Kerberos: the client's own principal, and the file that holds its key. Without a keytab, a ticket is used.
    principal: str | None = _field(None, NAME, "hbase.client.keytab.principal")
    keytab: str | None = _field(None, PATH, "hbase.client.keytab.file")
    ccache: str | None = _field(None, PATH)  # the ticket cache; None: that of the process (KRB5CCNAME)
    token: Token | Callable[[], Token] | None = _field(None, TOKEN)  # noqa: RUF009 - a dataclasses.field
    do_as: str | None = _field(None, NAME)  # the user to impersonate, which the servers must allow
    ca: str | None = _field(None, PATH)  # certificates of authorities: PEM, or a JKS trust store
    cert: str | None = _field(None, PATH)  # PEM: the client's certificate, its chain, and its key unless `key` has it
    key: str | None = _field(None, PATH)
    verify: bool = _field(True, FLAG)  # False: any certificate is accepted, for tests only

    # -- threads and queues (not in HBase)
    threads_max: int = _field(128, SIZE)  # each call in flight blocks one thread
    queue_max: int = _field(1_024, COUNT)  # calls that wait for a thread; more raise Overloaded
    abandoned_calls_max: int = _field(64, COUNT)  # abandoned calls that still run; half of the threads

    #: Every property that was given, as text, for the backends. If a field exists for a property, the field counts.
    properties: Mapping[str, str] = _NONE_GIVEN
    # The fields that have the value of their parent: replace() computes them again.
    _followers: frozenset[str] = dataclasses.field(init=False, compare=False)
    # Field -> the source of its value, for error messages of the construction only.
    _sources: dataclasses.InitVar[Mapping[str, str] | None] = None

    @classmethod
    def of(
        cls, config: str | os.PathLike[str] | Mapping[str, object] | Config | None = None, **options: object
    ) -> Config:
        """Return the settings of ``config``, overridden by ``options``.

        ``config``: the path of an hbase-site.xml or of its folder; a mapping of HBase's properties (HBase's units;
        text, numbers or bools); a ``Config``; or None. ``options``: fields by name (seconds, bytes); an option that
        is None counts as not given; ``selector`` is short for ``meta_selector``. Raises ``ConfigError`` for a name
        that is unknown and for a value that is malformed or out of range.

        >>> Config.of({"hbase.rpc.timeout": 5000}, rpc_timeout_s=1).rpc_timeout_s
        1.0
        >>> Config.of(rpc_timeot_s=1)
        Traceback (most recent call last):
        metaclient.errors.ConfigError: rpc_timeot_s (keyword): no such option; did you mean rpc_timeout_s?
        """
        given = {name: value for name, value in options.items() if value is not None}
        if "selector" in given:
            if "meta_selector" in given:
                raise ConfigError("selector (keyword): the same as meta_selector, which is given, too")
            given["meta_selector"] = given.pop("selector")
        if "properties" in given:
            raise ConfigError("properties (keyword): HBase's properties act when given as config={name: value}")
        if isinstance(config, Config):
            return config.replace(**given)
        return cls._of_properties(_NAMES.read_properties({} if config is None else config), given)

    @classmethod
    def _of_properties(cls, properties: Mapping[str, Property], options: Mapping[str, object]) -> Config:
        _NAMES.require_fields(options)
        # One construction for both, no replace(): an option may correct a value that is invalid in the properties.
        read = {**_NAMES.read_fields(properties), **{name: (value, "keyword") for name, value in options.items()}}
        values: dict[str, Any] = {name: value for name, (value, _) in read.items()}
        sources = dict.fromkeys(SPECS, "default") | {name: source for name, (_, source) in read.items()}
        return cls(**values, properties=as_given(properties), _sources=sources)

    def replace(self, **options: object) -> Config:
        """Return a copy with these fields changed, and the fields that follow them; None: the field follows its parent.

        >>> Config(rpc_timeout_s=5).replace(rpc_timeout_s=7).rpc_read_timeout_s
        7.0
        """
        _NAMES.require_fields(options)
        kept: dict[str, Any] = {name: getattr(self, name) for name in _FIELDS if name not in self._followers}
        return type(self)(**{**kept, **options})

    def __post_init__(self, _sources: Mapping[str, str] | None) -> None:
        followers = {name for name, spec in SPECS.items() if spec.parent and getattr(self, name) is None}
        for name, spec in SPECS.items():  # in declaration order: a parent precedes its followers
            value = getattr(self, spec.parent if name in followers else name)
            self._set(name, value if value is None and spec.optional else checked(name, spec.rule, value))
        self._set("_followers", frozenset(followers))
        self._set("properties", read_only(self.properties))
        self._lift_pause()
        _require_order(self, _sources or {})

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)  # the dataclass is frozen; only its construction calls this

    def _lift_pause(self) -> None:
        if self.pause_overloaded_s < self.pause_s:
            warn(f"pause_overloaded_s = {self.pause_overloaded_s} is raised to pause_s = {self.pause_s}", ConfigWarning)
            self._set("pause_overloaded_s", self.pause_s)

    def __repr__(self) -> str:
        # Only the fields that differ from the defaults, so that it fits on a log line.
        shown = [each for each in dataclasses.fields(self) if each.name in SPECS and each.name not in self._followers]
        changed = [each.name for each in shown if getattr(self, each.name) != each.default]
        return f"Config({', '.join(f'{name}={getattr(self, name)!r}' for name in changed)})"


#: Field -> its rule, its HBase key and the default of HBase, in the order of declaration.
SPECS: Final[Mapping[str, FieldSpec]] = {
    each.name: each.metadata["spec"] for each in dataclasses.fields(Config) if "spec" in each.metadata
}
_FIELDS: Final = (*SPECS, "properties")
_NAMES: Final = PropertyNames(SPECS)
_NOT_ABOVE = (  # the first may not be more than the second
    ("meta_try_timeout_min_s", "meta_try_timeout_max_s"),
    ("meta_stale_mark_s", "meta_stale_mark_max_s"),
    ("meta_ejection_s", "meta_ejection_max_s"),
    ("meta_refresh_min_s", "meta_refresh_s"),
    ("locate_prefetch", "locate_prefetch_max"),
    ("hedge_delay_min_s", "hedge_delay_max_s"),
)


def _require_order(config: Config, sources: Mapping[str, str]) -> None:
    for low, high in _NOT_ABOVE:
        if getattr(config, low) > getattr(config, high):
            first, second = (
                f"{name} = {getattr(config, name)} ({sources.get(name, 'keyword or default')})" for name in (low, high)
            )
            raise ConfigError(
                f"{first} is more than {second}; allowed: at most as much; lower the first, or raise the second "
                f"(as a property it is metaclient.{high})"
            )


def property_names() -> frozenset[str]:
    """Return the names of all client properties of HBase and metaclient, also those that have no effect here.

    The names are spelled as in HBase: some have capitals.
    """
    return _NAMES.all_names()


def fields_given(properties: Mapping[str, object]) -> frozenset[str]:
    """Return the fields that these properties set, also those that they set to the default."""
    return frozenset(_NAMES.read_fields({name: property_of(name, value) for name, value in properties.items()}))
