"""The settings: one frozen value, read from HBase's properties or from keywords, every number with its bound.

HBase's names keep HBase's units (milliseconds, microseconds) and are converted here, once; everything behind this
module is seconds as float and bytes as int. The declaration of a field is the only place that says its HBase key, the
unit of that key, HBase's default, ours, and what is allowed; parsing, checks and messages are derived from it.

Order of precedence, highest first: a keyword, ``metaclient.<field>``, the HBase key, the deprecated HBase key, the
default. Mirrors ``ConnectionConfiguration``, ``AsyncConnectionConfiguration`` and ``CatalogReplicaMode`` of HBase 3.x;
``site_xml`` reads the files. "Spec 6" below is section 6 of the HBase client spec.

DIVERGENCES (ours, HBase's, why):

- ``meta_mode``: LoadBalance where there is more than one meta replica, HBase ``None``: replicas that nobody reads
  are a cost without a use.
- ``meta_selector``: ``round_robin``, HBase ``CatalogReplicaLoadBalanceSimpleSelector`` (uniformly random): an even
  spread also over few lookups.
- ``meta_scan_caching``: 1000, HBase 100: a tenth of the calls for a whole table, and still small rows.
- ``operation_timeout_s``: 120 s, HBase 1200 s: nobody waits twenty minutes for a row.
- ``rpc_timeout_s``: 20 s, HBase 60 s: room for several attempts within one operation.
- ``retry_jitter``: 0.5, HBase 0.01: with one per cent all clients come back in the same moment.
- ``hedge_delay``: ``adaptive``, HBase always waits the fixed delay.
- ``hedge_plan``: ``staged`` (one more replica at a time), HBase asks all the secondaries at once.
- ``scan_caching``: 1000, HBase 2147483647: a batch has a bound in rows and not in bytes alone.
- A timeout of 0 or less is "unlimited" in HBase. Here every wait has a deadline: refused as a keyword, 24 hours with
  a warning as a property (a file that serves Java programs as well should go on working).
- A property that has no effect gives a warning or is refused (``hbase_properties`` has the rule); HBase ignores it.
  ``hbase.client.primaryCallTimeout.scan`` has an effect, HBase's reference guide alone names it.
- ``hbase.meta.replicas.use=false`` sets the mode None, which is HBase's default and not ours.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from metaclient.config.hbase_names import PropertyNames, as_given, property_of, read_only, require_known
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
    FieldSpec,
    MetaMode,
    Rule,
    Unit,
    checked,
    one_of,
)
from metaclient.errors import ConfigError, ConfigWarning

__all__ = ["SPECS", "Config", "fields_given", "property_names"]


def _field(
    default: object, rule: Rule, key: str = "", unit: Unit = PLAIN, hbase: object = None, *, old_key: str = ""
) -> Any:
    spec = FieldSpec(rule, key, unit, hbase, old_key=old_key, optional=default is None)
    return dataclasses.field(default=default, metadata={"spec": spec})


def _following(parent: str, rule: Rule, key: str, unit: Unit, *, old_key: str = "") -> Any:
    spec = FieldSpec(rule, key, unit, old_key=old_key, parent=parent)
    return dataclasses.field(default=None, metadata={"spec": spec})


_NONE_GIVEN = Properties({})


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Config:
    """All settings of a connection: immutable, comparable, hashable, picklable.

    Times are seconds, sizes are bytes. ``Config.of`` reads HBase's properties; ``Config(...)`` takes fields only.
    The fields declared with ``_following`` take the value of the field named there unless they are given.
    To be pickled (Spark ships it to executors), a ``meta_selector`` that is a callable must be so: no lambda.

    >>> config = Config.of({"hbase.rpc.timeout": 5000, "hbase.client.meta.replica.scan.timeout": "250000"}, retries=3)
    >>> config.rpc_timeout_s, config.rpc_read_timeout_s, config.meta_hedge_delay_s, config.retries
    (5.0, 5.0, 0.25, 3)
    >>> config
    Config(meta_hedge_delay_s=0.25, rpc_timeout_s=5.0, retries=3)
    """

    # -- hbase:meta replicas: which one is asked, and for how long
    # None: decided at open, LoadBalance if there is more than one meta replica (api: connect).
    meta_mode: MetaMode | None = _field(  # noqa: RUF009 - a dataclasses.field
        None, MODE, "hbase.locator.meta.replicas.mode", hbase="None"
    )
    # A selector of ours by name, or a callable. Spec 3.
    meta_selector: object = _field(
        "round_robin", SELECTOR, "hbase.locator.meta.replicas.mode.loadbalance.selector", hbase="simple"
    )
    # HedgedRead: how long the primary is alone. Microseconds in HBase! Spec 1.
    meta_hedge_delay_s: float = _field(1.0, TIME, "hbase.client.meta.replica.scan.timeout", US, 1_000_000)
    # Ours: one replica's share of a lookup. HBase has none, and a hung replica eats the whole lookup (spec 0.2, 6).
    # None: adaptive, 4 x the p99 of recent lookups within the next two.
    meta_try_timeout_s: float | None = _field(None, SPAN)
    meta_try_timeout_min_s: float = _field(0.05, SPAN)  # ours: below it a garbage collection looks like a failure
    meta_try_timeout_max_s: float = _field(2.0, SPAN)  # ours: 30 tries fit into one lookup
    # Ours: HBase's constant is 3 s (spec 0.2, 3); ours grows up to the second while the range goes on being stale.
    meta_stale_mark_s: float = _field(3.0, TIME)
    meta_stale_mark_max_s: float = _field(30.0, TIME)
    meta_stale_marks_max: int = _field(10_000, SIZE)  # ours: bounds the memory for marks; HBase's is unbounded
    # Ours: how long a failing replica is left alone, doubling up to the second. HBase goes on asking it (spec 0.2).
    meta_ejection_s: float = _field(1.0, TIME)
    meta_ejection_max_s: float = _field(60.0, TIME)
    # Ours: how often the list of meta replicas is read again, and the least time between two readings.
    meta_refresh_s: float = _field(60.0, SPAN)
    meta_refresh_min_s: float = _field(1.0, SPAN)

    # -- locations
    locate_prefetch: int = _field(10, SIZE, "hbase.client.locate.prefetch.limit", hbase=10)  # rows of one lookup
    locate_prefetch_max: int = _field(1_000, SIZE)  # ours: one lookup never brings more, whatever was asked for
    locate_concurrency: int = _field(8, SIZE, "hbase.client.meta.max.concurrent.locate.per.table", hbase=8)
    location_cache_regions_max: int = _field(1_000_000, SIZE)  # ours: 1 GB at an estimated 1 kB; HBase's: no limit
    meta_scan_caching: int = _field(1_000, SIZE, "hbase.meta.scanner.caching", hbase=100)
    table_state_ttl_s: float = _field(2.0, TIME)  # ours: HBase reads it from the primary each time (spec 0.5)

    # -- deadlines: one operation has one, its attempts share it
    # Ours: open(), the first contact. HBase's 10 s for a socket (hbase.ipc.client.socket.timeout.connect) and 5 s for
    # the answer: a wrong address or a hung server is reported while the user still waits. Never more than an operation.
    open_timeout_s: float = _field(15.0, DEADLINE)
    operation_timeout_s: float = _field(120.0, DEADLINE, "hbase.client.operation.timeout", MS, 1_200_000)
    # Of calls on system tables, and of lookups that somebody asks for by name: locate, regions, warm_up, meta_replicas.
    meta_operation_timeout_s: float = _following(
        "operation_timeout_s", DEADLINE, "hbase.client.meta.operation.timeout", MS
    )
    rpc_timeout_s: float = _field(20.0, DEADLINE, "hbase.rpc.timeout", MS, 60_000)  # one attempt
    rpc_read_timeout_s: float = _following("rpc_timeout_s", DEADLINE, "hbase.rpc.read.timeout", MS)
    rpc_write_timeout_s: float = _following("rpc_timeout_s", DEADLINE, "hbase.rpc.write.timeout", MS)
    meta_rpc_timeout_s: float = _following("rpc_read_timeout_s", DEADLINE, "hbase.client.meta.read.rpc.timeout", MS)
    scanner_timeout_s: float = _field(60.0, DEADLINE, "hbase.client.scanner.timeout.period", MS, 60_000)
    # The real deadline of one meta lookup; the meta operation timeout is not (spec 1).
    meta_lookup_timeout_s: float = _following(
        "scanner_timeout_s", DEADLINE, "hbase.client.meta.scanner.timeout.period", MS
    )

    # -- retries
    pause_s: float = _field(0.1, TIME, "hbase.client.pause", MS, 100)  # the unit of the back-off (spec 6)
    pause_overloaded_s: float = _following(  # lifted to pause_s if smaller, as in HBase (spec 1)
        "pause_s", TIME, "hbase.client.pause.server.overloaded", MS, old_key="hbase.client.pause.cqtbe"
    )
    retries: int = _field(15, COUNT, "hbase.client.retries.number", hbase=15)  # attempts = retries + 1
    # Whether an increment or append whose answer was lost is sent again, where servers know nonces. It counts once; the
    # value that it returns may be a later one. Who draws unique numbers from a counter switches it off.
    nonces: bool = _field(True, FLAG, "hbase.client.nonces.enabled", hbase=True)
    retry_jitter: float = _field(0.5, SHARE, hbase=0.01)  # ours: HBase's is a constant without a key (spec 6)
    retry_budget: float = _field(0.2, BUDGET)  # ours: retries per call over all, so that retries make no overload
    retry_budget_burst: int = _field(10, COUNT)  # ours: what a quiet client may spend at once
    start_log_errors: int = _field(5, COUNT, "hbase.client.start.log.errors.counter", hbase=5)  # warn above it

    # -- hedged reads of user tables; plan and budget are those of HedgedRead of meta, too. Microseconds in HBase!
    hedge_delay_get_s: float = _field(0.010, TIME, "hbase.client.primaryCallTimeout.get", US, 10_000)
    # HBase's reference guide names the old key; HBase reads the new one only. The old one is honoured.
    hedge_delay_scan_s: float = _field(
        1.0,
        TIME,
        "hbase.client.replicaCallTimeout.scan",
        US,
        1_000_000,
        old_key="hbase.client.primaryCallTimeout.scan",
    )
    hedge_delay_multiget_s: float = _field(0.010, TIME, "hbase.client.primaryCallTimeout.multiget", US, 10_000)
    # Ours: adaptive waits for this quantile of recent calls, within min and max; the fixed delay until enough is known.
    hedge_delay: str = _field("adaptive", one_of("fixed", "adaptive"), hbase="fixed")
    hedge_quantile: float = _field(0.95, QUANTILE)  # at most one call in twenty is hedged in a steady state
    hedge_delay_min_s: float = _field(0.001, TIME)  # timers and threads are not finer than that
    hedge_delay_max_s: float = _field(1.0, TIME)  # HBase's longest fixed delay, that of scans
    hedge_samples_min: int = _field(20, SIZE)  # the fewest that have a 95th percentile
    # Ours: staged asks one more replica per delay, and so costs less where the second one answers.
    hedge_plan: str = _field("staged", one_of("staged", "all_at_once"), hbase="all_at_once")
    # Ours: hedges per call over all; what hedge_quantile leads to. Lookups in hbase:meta have at least 1.
    hedge_budget: float = _field(0.05, BUDGET)
    hedge_budget_burst: int = _field(10, COUNT)  # ours: what a quiet client may spend at once

    # -- scans of user tables
    # Rows and bytes of one page. A Thrift gateway knows no bytes: it brings all the rows that it is asked for.
    scan_caching: int = _field(1_000, SIZE, "hbase.client.scanner.caching", hbase=INT_MAX)  # Table.scan's batch_size
    scan_max_result_bytes: int = _field(2 << 20, BYTES, "hbase.client.scanner.max.result.size", hbase=2 << 20)

    # -- machinery (ours)
    threads_max: int = _field(128, SIZE)  # calls block in them, so this is the number of calls in flight
    queue_max: int = _field(1_024, COUNT)  # calls that wait for a thread; beyond it: Overloaded
    abandoned_calls_max: int = _field(64, COUNT)  # calls given up on that still run: half of the threads

    #: Every HBase property that was given, ours or not, as text: for the backends. Where there is a field, it counts.
    properties: Mapping[str, str] = _NONE_GIVEN
    # The fields that follow their parent, so that replace() lets them follow again.
    _followers: frozenset[str] = dataclasses.field(init=False, compare=False)
    # Field -> where its value came from, for messages of the construction only.
    _sources: dataclasses.InitVar[Mapping[str, str] | None] = None

    @classmethod
    def of(
        cls, config: str | os.PathLike[str] | Mapping[str, object] | Config | None = None, **options: object
    ) -> Config:
        """The settings of ``config`` with ``options`` over them.

        ``config``: the path of an hbase-site.xml or of a folder that holds one; a mapping of HBase's names (HBase's
        units; text, numbers or bools); a ``Config``; or None. ``options``: fields by name (seconds, bytes); one that
        is None was not given; ``selector`` is short for ``meta_selector``. Raises ``ConfigError`` for whatever is
        unknown, malformed or out of range.

        >>> Config.of({"hbase.rpc.timeout": 5000}, rpc_timeout_s=1).rpc_timeout_s
        1.0
        >>> Config.of(rpc_timeot_s=1)
        Traceback (most recent call last):
        metaclient.errors.ConfigError: rpc_timeot_s (keyword): no such option; did you mean rpc_timeout_s?
        """
        given = {name: value for name, value in options.items() if value is not None}
        if "selector" in given:  # the short name of it: there is no other selector
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
        require_known(options, _FIELDS, "keyword", "option")
        # One construction for both, not a replace(): an option may mend what the properties alone would be refused for.
        read = {**_NAMES.read_fields(properties), **{name: (value, "keyword") for name, value in options.items()}}
        values: dict[str, Any] = {name: value for name, (value, _) in read.items()}
        sources = dict.fromkeys(SPECS, "default") | {name: source for name, (_, source) in read.items()}
        return cls(**values, properties=as_given(properties), _sources=sources)

    def replace(self, **options: object) -> Config:
        """A copy with these fields changed. What follows a changed field follows it; None makes a field follow again.

        >>> Config(rpc_timeout_s=5).replace(rpc_timeout_s=7).rpc_read_timeout_s
        7.0
        """
        require_known(options, _FIELDS, "keyword", "option")
        kept: dict[str, Any] = {name: getattr(self, name) for name in _FIELDS if name not in self._followers}
        return type(self)(**{**kept, **options})

    def __post_init__(self, _sources: Mapping[str, str] | None) -> None:
        followers = {name for name, spec in SPECS.items() if spec.parent and getattr(self, name) is None}
        for name, spec in SPECS.items():  # in the order of declaration: a parent comes before its followers
            value = getattr(self, spec.parent if name in followers else name)
            self._set(name, value if value is None and spec.optional else checked(name, spec.rule, value))
        self._set("_followers", frozenset(followers))
        self._set("properties", read_only(self.properties))
        self._lift_pause()
        _require_order(self, _sources or {})

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)  # the dataclass is frozen; only its construction comes here

    def _lift_pause(self) -> None:
        if self.pause_overloaded_s < self.pause_s:
            warn(f"pause_overloaded_s = {self.pause_overloaded_s} is lifted to pause_s = {self.pause_s}", ConfigWarning)
            self._set("pause_overloaded_s", self.pause_s)

    def __repr__(self) -> str:
        # What differs from the defaults, to fit a log line.
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
    """HBase's client properties and ours, as HBase writes them (some have capitals); not all have an effect."""
    return _NAMES.all_names()


def fields_given(properties: Mapping[str, object]) -> frozenset[str]:
    """The fields that these properties set, also to the value that is the default."""
    return frozenset(_NAMES.read_fields({name: property_of(name, value) for name, value in properties.items()}))
