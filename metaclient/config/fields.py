"""The settings: one frozen value, read from HBase's properties or from keywords, every number with its bound.

HBase's names keep HBase's units (milliseconds, microseconds) and are converted here, once; everything behind this
module is seconds as float and bytes as int. The declaration of a field is the only place that says its HBase key, the
unit of that key, HBase's default, ours, and what is allowed; parsing, checks and messages are derived from it.

Order of precedence, highest first: a keyword, ``metaclient.<field>``, the HBase key, the deprecated HBase key, the
default. Mirrors ``ConnectionConfiguration``, ``AsyncConnectionConfiguration`` and ``CatalogReplicaMode`` of HBase 3.x
and the file format of Hadoop's ``Configuration``. "Spec 6" below is section 6 of the HBase client spec.

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
- ``<!DOCTYPE>`` and ``xi:include`` are refused, Hadoop follows them; ``${name}`` sees the other properties of the file,
  not the environment.
"""

from __future__ import annotations

import dataclasses
import enum
import logging
import numbers
import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from xml.parsers import expat

from metaclient.config.hbase_properties import (
    CLIENT_PREFIXES,
    MAPPING,
    NameKind,
    Properties,
    hbase_names,
    is_from_file,
    kind_of,
    nearest_name,
    refuse_or_warn,
    warn,
)
from metaclient.errors import ConfigError, ConfigWarning

__all__ = ["Config", "MetaMode", "checked_properties", "fields_given", "property_names"]

_LOGGER = logging.getLogger(__name__)


class MetaMode(enum.Enum):
    """How lookups use the replicas of hbase:meta; the words of ``hbase.locator.meta.replicas.mode``."""

    NONE = "None"  # the primary only
    HEDGED_READ = "HedgedRead"  # the primary, and after a delay the others too
    LOAD_BALANCE = "LoadBalance"  # one of them each time

    @classmethod
    def of(cls, word: str | MetaMode) -> MetaMode:
        """The mode of this name, in any case; ``ConfigError`` for any other word.

        >>> MetaMode.of("loadbalance")
        <MetaMode.LOAD_BALANCE: 'LoadBalance'>
        """
        mode = _checked("meta_mode", _MODE, word)
        assert isinstance(mode, MetaMode)
        return mode


# ---------------------------------------------------------------------------------------- rules: what a field allows


class _Unit(NamedTuple):
    name: str
    per_own: int  # how many of it make one of the field's own unit


_PLAIN: Final = _Unit("", 1)
_S: Final = _Unit("s", 1)
_MS: Final = _Unit("ms", 1_000)
_US: Final = _Unit("us", 1_000_000)

_SECONDS_MAX = 30 * 86_400  # 30 days: above 2^31-1 ms (24.9 days), the longest that HBase's int properties can say
_UNLIMITED_S = 86_400.0  # what HBase's "unlimited" becomes: longer than any operation, and still an end
_INT_MAX = 2**31 - 1  # Java's Integer.MAX_VALUE, which people write for "no limit"
_LONG_MAX = 2**63 - 1


class _NotAllowedError(Exception):
    """Why a value is refused; becomes a ConfigError where the name and the source are known."""


class _Rule(Protocol):
    @property
    def own(self) -> _Unit:
        """The unit of the field itself."""

    def parse(self, text: str) -> object:
        """What a property's text stands for, in the property's unit; _NotAllowedError if it is malformed."""

    def check(self, value: object, unit: _Unit) -> object:
        """The field's value for ``value`` in ``unit``; _NotAllowedError if it is of a wrong type or out of range."""

    def allowed(self, unit: _Unit) -> str:
        """The allowed values, for a message."""


_WHOLE_TEXT = re.compile(r"[+-]?[0-9]{1,30}")
_NUMBER_TEXT = re.compile(r"[+-]?[0-9]{1,30}(\.[0-9]{0,30})?([eE][+-]?[0-9]{1,3})?")


@dataclass(frozen=True, slots=True)
class _Number:
    """A number from ``low`` to ``high``; an open end does not belong to the range.

    >>> _TIME.check(250_000, _US)
    0.25
    """

    low: int
    high: int
    own: _Unit = _PLAIN
    whole: bool = False
    open_low: bool = False
    open_high: bool = False

    def parse(self, text: str) -> float:
        if _WHOLE_TEXT.fullmatch(text):
            return int(text)
        if self.whole or not _NUMBER_TEXT.fullmatch(text):
            raise _NotAllowedError(f"not {self._kind()}")
        return float(text)

    def check(self, value: object, unit: _Unit) -> float:
        if isinstance(value, bool) or not isinstance(value, numbers.Integral if self.whole else numbers.Real):
            raise _NotAllowedError(f"not {self._kind()}")
        number: Any = value
        if not self._contains(number, unit.per_own):
            raise _NotAllowedError(self._out_of_range(number))
        return int(number) if self.whole else float(number) / unit.per_own

    def _contains(self, number: float, scale: int) -> bool:
        # Compared before any conversion, so that huge ints do not overflow; NaN compares false everywhere.
        low, high = self.low * scale, self.high * scale
        above = number > low if self.open_low else number >= low
        below = number < high if self.open_high else number <= high
        return above and below

    def _out_of_range(self, number: float) -> str:
        return "out of range"

    def allowed(self, unit: _Unit) -> str:
        low = f"{'more than' if self.open_low else 'at least'} {self.low * unit.per_own}"
        high = f"{'less than' if self.open_high else 'at most'} {self.high * unit.per_own}"
        return f"{self._kind()}{' of ' + unit.name if unit.name else ''}, {low} and {high}"

    def _kind(self) -> str:
        return "a whole number" if self.whole else "a number"


class _DeadlineNumber(_Number):
    """A time limit. HBase takes 0 or less as "unlimited" (RpcConnection, the retrying callers); here is always one."""

    __slots__ = ()

    def _out_of_range(self, number: float) -> str:
        if number <= 0:
            return "every wait has a deadline here, so there is no 'unlimited'; write a long time, a day is 86400 s"
        return super()._out_of_range(number)


@dataclass(frozen=True, slots=True)
class _Word:
    """One of a few words, in any case, and what each means."""

    meanings: Mapping[str, object]

    @property
    def own(self) -> _Unit:
        return _PLAIN

    def parse(self, text: str) -> str:
        return text

    def check(self, value: object, unit: _Unit) -> object:
        for word, meaning in self.meanings.items():
            if value is meaning or (isinstance(value, str) and value.lower() == word.lower()):
                return meaning
        raise _NotAllowedError("not one of the words")

    def allowed(self, unit: _Unit) -> str:
        return ", ".join(self.meanings)


class _SelectorName(_Word):
    """A selector's name, the Java class that does the same, or (a keyword can, text cannot) a selector itself."""

    __slots__ = ()

    def check(self, value: object, unit: _Unit) -> object:
        if callable(value) or callable(getattr(value, "select", None)):
            return value
        if isinstance(value, str) and value.endswith("CatalogReplicaLoadBalanceSimpleSelector"):
            return "simple"
        return super().check(value, unit)

    def allowed(self, unit: _Unit) -> str:
        ours = "by keyword a Python function or an object with select()"
        return f"{super().allowed(unit)}, or {ours} (Java classes cannot be loaded)"


def _one_of(*words: str) -> _Word:
    return _Word({word: word for word in words})


_TIME = _Number(0, _SECONDS_MAX, _S)  # zero has a meaning: at once, or off
_SPAN = _Number(0, _SECONDS_MAX, _S, open_low=True)  # zero would be a busy loop or a limit that nothing meets
_DEADLINE = _DeadlineNumber(0, _SECONDS_MAX, _S, open_low=True)
_COUNT = _Number(0, _INT_MAX, whole=True)
_SIZE = _Number(1, _INT_MAX, whole=True)
_BYTES = _Number(1, _LONG_MAX, whole=True)
_SHARE = _Number(0, 1)
_QUANTILE = _Number(0, 1, open_low=True, open_high=True)
_BUDGET = _Number(0, 1_000)  # per call; above 1 each call may be repeated more than once, so 1000 is "no budget"
_MODE = _Word({mode.value: mode for mode in MetaMode})
_FLAG = _Word({"true": True, "false": False})
_SELECTOR = _SelectorName({"round_robin": "round_robin", "simple": "simple"})


# ------------------------------------------------------------------------------------------------- fields and values


@dataclass(frozen=True, slots=True)
class _Spec:
    """What is known about a field besides its name and default."""

    rule: _Rule
    key: str = ""  # HBase's name
    unit: _Unit = _PLAIN  # of HBase's name
    hbase: object = None  # HBase's default, in ``unit``, where it has one
    old_key: str = ""  # HBase's deprecated name, same unit
    parent: str = ""  # the field that gives the value when this one is None
    optional: bool = False  # None has a meaning of its own


def _field(
    default: object, rule: _Rule, key: str = "", unit: _Unit = _PLAIN, hbase: object = None, *, old_key: str = ""
) -> Any:
    spec = _Spec(rule, key, unit, hbase, old_key=old_key, optional=default is None)
    return dataclasses.field(default=default, metadata={"spec": spec})


def _following(parent: str, rule: _Rule, key: str, unit: _Unit, *, old_key: str = "") -> Any:
    spec = _Spec(rule, key, unit, old_key=old_key, parent=parent)
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
        None, _MODE, "hbase.locator.meta.replicas.mode", hbase="None"
    )
    # A selector of ours by name, or a callable. Spec 3.
    meta_selector: object = _field(
        "round_robin", _SELECTOR, "hbase.locator.meta.replicas.mode.loadbalance.selector", hbase="simple"
    )
    # HedgedRead: how long the primary is alone. Microseconds in HBase! Spec 1.
    meta_hedge_delay_s: float = _field(1.0, _TIME, "hbase.client.meta.replica.scan.timeout", _US, 1_000_000)
    # Ours: one replica's share of a lookup. HBase has none, and a hung replica eats the whole lookup (spec 0.2, 6).
    # None: adaptive, 4 x the p99 of recent lookups within the next two.
    meta_try_timeout_s: float | None = _field(None, _SPAN)
    meta_try_timeout_min_s: float = _field(0.05, _SPAN)  # ours: below it a garbage collection looks like a failure
    meta_try_timeout_max_s: float = _field(2.0, _SPAN)  # ours: 30 tries fit into one lookup
    # Ours: HBase's constant is 3 s (spec 0.2, 3); ours grows up to the second while the range goes on being stale.
    meta_stale_mark_s: float = _field(3.0, _TIME)
    meta_stale_mark_max_s: float = _field(30.0, _TIME)
    meta_stale_marks_max: int = _field(10_000, _SIZE)  # ours: bounds the memory for marks; HBase's is unbounded
    # Ours: how long a failing replica is left alone, doubling up to the second. HBase goes on asking it (spec 0.2).
    meta_ejection_s: float = _field(1.0, _TIME)
    meta_ejection_max_s: float = _field(60.0, _TIME)
    # Ours: how often the list of meta replicas is read again, and the least time between two readings.
    meta_refresh_s: float = _field(60.0, _SPAN)
    meta_refresh_min_s: float = _field(1.0, _SPAN)

    # -- locations
    locate_prefetch: int = _field(10, _SIZE, "hbase.client.locate.prefetch.limit", hbase=10)  # rows of one lookup
    locate_prefetch_max: int = _field(1_000, _SIZE)  # ours: one lookup never brings more, whatever was asked for
    locate_concurrency: int = _field(8, _SIZE, "hbase.client.meta.max.concurrent.locate.per.table", hbase=8)
    location_cache_regions_max: int = _field(1_000_000, _SIZE)  # ours: 1 GB at an estimated 1 kB; HBase's: no limit
    meta_scan_caching: int = _field(1_000, _SIZE, "hbase.meta.scanner.caching", hbase=100)
    table_state_ttl_s: float = _field(2.0, _TIME)  # ours: HBase reads it from the primary each time (spec 0.5)

    # -- deadlines: one operation has one, its attempts share it
    # Ours: open(), the first contact. HBase's 10 s for a socket (hbase.ipc.client.socket.timeout.connect) and 5 s for
    # the answer: a wrong address or a hung server is reported while the user still waits. Never more than an operation.
    open_timeout_s: float = _field(15.0, _DEADLINE)
    operation_timeout_s: float = _field(120.0, _DEADLINE, "hbase.client.operation.timeout", _MS, 1_200_000)
    # Of calls on system tables, and of lookups that somebody asks for by name: locate, regions, warm_up, meta_replicas.
    meta_operation_timeout_s: float = _following(
        "operation_timeout_s", _DEADLINE, "hbase.client.meta.operation.timeout", _MS
    )
    rpc_timeout_s: float = _field(20.0, _DEADLINE, "hbase.rpc.timeout", _MS, 60_000)  # one attempt
    rpc_read_timeout_s: float = _following("rpc_timeout_s", _DEADLINE, "hbase.rpc.read.timeout", _MS)
    rpc_write_timeout_s: float = _following("rpc_timeout_s", _DEADLINE, "hbase.rpc.write.timeout", _MS)
    meta_rpc_timeout_s: float = _following("rpc_read_timeout_s", _DEADLINE, "hbase.client.meta.read.rpc.timeout", _MS)
    scanner_timeout_s: float = _field(60.0, _DEADLINE, "hbase.client.scanner.timeout.period", _MS, 60_000)
    # The real deadline of one meta lookup; the meta operation timeout is not (spec 1).
    meta_lookup_timeout_s: float = _following(
        "scanner_timeout_s", _DEADLINE, "hbase.client.meta.scanner.timeout.period", _MS
    )

    # -- retries
    pause_s: float = _field(0.1, _TIME, "hbase.client.pause", _MS, 100)  # the unit of the back-off (spec 6)
    pause_overloaded_s: float = _following(  # lifted to pause_s if smaller, as in HBase (spec 1)
        "pause_s", _TIME, "hbase.client.pause.server.overloaded", _MS, old_key="hbase.client.pause.cqtbe"
    )
    retries: int = _field(15, _COUNT, "hbase.client.retries.number", hbase=15)  # attempts = retries + 1
    # Whether an increment or append whose answer was lost is sent again, where servers know nonces. It counts once; the
    # value that it returns may be a later one. Who draws unique numbers from a counter switches it off.
    nonces: bool = _field(True, _FLAG, "hbase.client.nonces.enabled", hbase=True)
    retry_jitter: float = _field(0.5, _SHARE, hbase=0.01)  # ours: HBase's is a constant without a key (spec 6)
    retry_budget: float = _field(0.2, _BUDGET)  # ours: retries per call over all, so that retries make no overload
    retry_budget_burst: int = _field(10, _COUNT)  # ours: what a quiet client may spend at once
    start_log_errors: int = _field(5, _COUNT, "hbase.client.start.log.errors.counter", hbase=5)  # warn above it

    # -- hedged reads of user tables; plan and budget are those of HedgedRead of meta, too. Microseconds in HBase!
    hedge_delay_get_s: float = _field(0.010, _TIME, "hbase.client.primaryCallTimeout.get", _US, 10_000)
    # HBase's reference guide names the old key; HBase reads the new one only. The old one is honoured.
    hedge_delay_scan_s: float = _field(
        1.0,
        _TIME,
        "hbase.client.replicaCallTimeout.scan",
        _US,
        1_000_000,
        old_key="hbase.client.primaryCallTimeout.scan",
    )
    hedge_delay_multiget_s: float = _field(0.010, _TIME, "hbase.client.primaryCallTimeout.multiget", _US, 10_000)
    # Ours: adaptive waits for this quantile of recent calls, within min and max; the fixed delay until enough is known.
    hedge_delay: str = _field("adaptive", _one_of("fixed", "adaptive"), hbase="fixed")
    hedge_quantile: float = _field(0.95, _QUANTILE)  # at most one call in twenty is hedged in a steady state
    hedge_delay_min_s: float = _field(0.001, _TIME)  # timers and threads are not finer than that
    hedge_delay_max_s: float = _field(1.0, _TIME)  # HBase's longest fixed delay, that of scans
    hedge_samples_min: int = _field(20, _SIZE)  # the fewest that have a 95th percentile
    # Ours: staged asks one more replica per delay, and so costs less where the second one answers.
    hedge_plan: str = _field("staged", _one_of("staged", "all_at_once"), hbase="all_at_once")
    # Ours: hedges per call over all; what hedge_quantile leads to. Lookups in hbase:meta have at least 1.
    hedge_budget: float = _field(0.05, _BUDGET)
    hedge_budget_burst: int = _field(10, _COUNT)  # ours: what a quiet client may spend at once

    # -- scans of user tables
    # Rows and bytes of one page. A Thrift gateway knows no bytes: it brings all the rows that it is asked for.
    scan_caching: int = _field(1_000, _SIZE, "hbase.client.scanner.caching", hbase=_INT_MAX)  # Table.scan's batch_size
    scan_max_result_bytes: int = _field(2 << 20, _BYTES, "hbase.client.scanner.max.result.size", hbase=2 << 20)

    # -- machinery (ours)
    threads_max: int = _field(128, _SIZE)  # calls block in them, so this is the number of calls in flight
    queue_max: int = _field(1_024, _COUNT)  # calls that wait for a thread; beyond it: Overloaded
    abandoned_calls_max: int = _field(64, _COUNT)  # calls given up on that still run: half of the threads

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
        return cls._of_properties(_properties_of({} if config is None else config), given)

    @classmethod
    def _of_properties(cls, properties: Mapping[str, _Property], options: Mapping[str, object]) -> Config:
        _require_known(options, _FIELDS, "keyword", "option")
        # One construction for both, not a replace(): an option may mend what the properties alone would be refused for.
        read = {**_read_fields(properties), **{name: (value, "keyword") for name, value in options.items()}}
        values: dict[str, Any] = {name: value for name, (value, _) in read.items()}
        sources = dict.fromkeys(_SPECS, "default") | {name: source for name, (_, source) in read.items()}
        return cls(**values, properties=_as_given(properties), _sources=sources)

    def replace(self, **options: object) -> Config:
        """A copy with these fields changed. What follows a changed field follows it; None makes a field follow again.

        >>> Config(rpc_timeout_s=5).replace(rpc_timeout_s=7).rpc_read_timeout_s
        7.0
        """
        _require_known(options, _FIELDS, "keyword", "option")
        kept: dict[str, Any] = {name: getattr(self, name) for name in _FIELDS if name not in self._followers}
        return type(self)(**{**kept, **options})

    def __post_init__(self, _sources: Mapping[str, str] | None) -> None:
        followers = {name for name, spec in _SPECS.items() if spec.parent and getattr(self, name) is None}
        for name, spec in _SPECS.items():  # in the order of declaration: a parent comes before its followers
            value = getattr(self, spec.parent if name in followers else name)
            self._set(name, value if value is None and spec.optional else _checked(name, spec.rule, value))
        self._set("_followers", frozenset(followers))
        self._set("properties", _read_only(self.properties))
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
        shown = [each for each in dataclasses.fields(self) if each.name in _SPECS and each.name not in self._followers]
        changed = [each.name for each in shown if getattr(self, each.name) != each.default]
        return f"Config({', '.join(f'{name}={getattr(self, name)!r}' for name in changed)})"


_SPECS: Final[Mapping[str, _Spec]] = {
    each.name: each.metadata["spec"] for each in dataclasses.fields(Config) if "spec" in each.metadata
}
_FIELDS: Final = (*_SPECS, "properties")
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


def _checked(name: str, rule: _Rule, value: object) -> object:
    try:
        return rule.check(value, rule.own)
    except _NotAllowedError as error:
        raise _refusal(name, value, "keyword", error, rule.allowed(rule.own)) from None


# -------------------------------------------------------------------------------------------------------- properties


class _Property(NamedTuple):
    name: str
    text: str
    source: str  # file:line, or MAPPING


_OWN_PREFIX = "metaclient."
_DEPRECATED: Final[Mapping[str, str]] = {  # old name -> what to do
    "hbase.meta.replicas.use": "write hbase.locator.meta.replicas.mode=HedgedRead",
    "hbase.meta.replicas.mode": "never released; write hbase.locator.meta.replicas.mode",
    "hbase.client.pause.cqtbe": "write hbase.client.pause.server.overloaded",
    "hbase.client.primaryCallTimeout.scan": "HBase does not read it; write hbase.client.replicaCallTimeout.scan",
}
_EARLY_MODE = _Word({"HighAvailable": MetaMode.HEDGED_READ, "LoadBalance": MetaMode.LOAD_BALANCE})
_FLAG = _Word({"true": True, "false": False})


# Read by backends, which get all properties: the place of the cluster, and what the native backend cannot do.
_OF_BACKENDS: Final = frozenset(
    {"hbase.client.bootstrap.servers", "hbase.client.netty.tls.enabled", "hbase.rpc.protection"}
)
# Below a prefix of the client, and read by servers: no reason for a warning about a file that both share.
_OF_SERVERS: Final = (
    "hbase.rpc.rows.size.threshold.reject",
    "hbase.rpc.rows.warning.threshold",
    "hbase.rpc.server.impl",
    "hbase.rpc.tls.",
)
# Client properties of HBase that have no effect here, and what to do instead; all others of them just have none.
_INSTEAD: Final[Mapping[str, str]] = {
    "hbase.client.ipc.pool.size": "write ?connections=N into a thrift url; HBase's own RPC needs one per server",
    "hbase.client.keyvalue.maxsize": "the server's hbase.server.keyvalue.maxsize limits cells",
    "hbase.client.max.total.tasks": "write metaclient.threads_max",
    "hbase.client.registry.impl": "the scheme of the url chooses: hbase:// asks ZooKeeper, hbase+rpc:// the masters",
    "hbase.client.write.buffer": "give batch_size to Table.batch",
    "hbase.ipc.client.specificThreadForWriting": "no call is interrupted here, so writes need no thread of their own",
}
_OWN_NAMES: Final = frozenset(_OWN_PREFIX + name for name in _SPECS)
_HONOURED: Final = _OWN_NAMES | _OF_BACKENDS | {spec.key for spec in _SPECS.values() if spec.key}


def property_names() -> frozenset[str]:
    """HBase's client properties and ours, as HBase writes them (some have capitals); not all have an effect."""
    return _HONOURED | set(_DEPRECATED) | {name for name in hbase_names() if name.startswith(CLIENT_PREFIXES)}


def fields_given(properties: Mapping[str, object]) -> frozenset[str]:
    """The fields that these properties set, also to the value that is the default."""
    return frozenset(_read_fields({name: _property_of(name, value) for name, value in properties.items()}))


def checked_properties(properties: Mapping[str, str], source: str) -> Mapping[str, str]:
    """Properties whose names were judged before, in another process say: ``Config.of`` takes them without a warning."""
    return Properties(properties, dict.fromkeys(properties, source))


def _as_given(properties: Mapping[str, _Property]) -> Properties:
    return Properties(
        {name: each.text for name, each in properties.items()}, {name: each.source for name, each in properties.items()}
    )


def _judged(properties: Mapping[str, _Property]) -> dict[str, _Property]:
    """Raise or warn for each property that has no effect (hbase_properties has the rule); return those to be kept."""
    return {name: each for name, each in properties.items() if _is_kept(each)}


def _is_kept(given: _Property) -> bool:
    """True unless nothing could read it: it is misspelt, in a file."""
    if given.name in _FIELDS:
        raise ConfigError(
            f"{given.name} ({given.source}): fields are keywords; as a property write {_OWN_PREFIX}{given.name}"
        )
    if "." not in given.name and not is_from_file(given.source):  # a field, misspelt, or a setting of something else
        near = nearest_name(given.name, _FIELDS)
        refuse_or_warn(given.name, given.source, near and _OWN_PREFIX + near)
    if given.name.startswith(_OWN_PREFIX):
        _require_known([given.name], _OWN_NAMES, given.source, "property")
    elif given.name in _DEPRECATED:
        warn(f"{given.name} ({given.source}) is deprecated: {_DEPRECATED[given.name]}", DeprecationWarning)
    elif given.name not in _HONOURED:
        return _is_unread_kept(given)
    return True


def _is_unread_kept(given: _Property) -> bool:
    name, source = given.name, given.source
    is_client = name.startswith(CLIENT_PREFIXES)
    kind, near = kind_of(name)
    if kind is NameKind.MISSPELT or (is_client and kind is not NameKind.HBASE):
        refuse_or_warn(name, source, near or nearest_name(name, property_names()))
        return False
    is_for_all = is_client and not (is_from_file(source) and name.startswith(_OF_SERVERS))
    if is_for_all or (kind is NameKind.STRANGE and not is_from_file(source)):
        instead = f": {_INSTEAD[name]}" if name in _INSTEAD else ""
        warn(f"{name} ({source}) has no effect here{instead}", ConfigWarning)
    elif kind is not NameKind.HBASE:
        _LOGGER.debug("%s (%s) is the property of another program", name, source)
    return True


def _read_fields(properties: Mapping[str, _Property]) -> dict[str, tuple[object, str]]:
    """Field -> (value, source) from properties; of several names for a field the most specific one wins."""
    read: dict[str, tuple[object, str]] = {}
    for name, spec in _SPECS.items():
        for key, unit in ((spec.old_key, spec.unit), (spec.key, spec.unit), (_OWN_PREFIX + name, spec.rule.own)):
            if key in properties:
                read[name] = _value_of(properties[key], spec.rule, unit), properties[key].source
    return {**read, **_read_old_mode(properties, read.get("meta_mode", (None, ""))[0])}


def _read_old_mode(properties: Mapping[str, _Property], mode: object) -> dict[str, tuple[object, str]]:
    """What HBase's older names say about the mode, where the present name leaves room for it.

    As AsyncNonMetaRegionLocator of HBase 3.x: the present name wins, and ``use`` counts where the mode is None.
    """
    early, use = properties.get("hbase.meta.replicas.mode"), properties.get("hbase.meta.replicas.use")
    early_mode = early and _value_of(early, _EARLY_MODE, _PLAIN)
    is_used = use and _value_of(use, _FLAG, _PLAIN)
    if early and mode is None:
        return {"meta_mode": (early_mode, early.source)}
    if use and is_used and mode in (None, MetaMode.NONE):
        return {"meta_mode": (MetaMode.HEDGED_READ, use.source)}
    if use and not is_used and mode is None:  # said, and not only the default: the primary alone
        return {"meta_mode": (MetaMode.NONE, use.source)}
    return {}


def _value_of(given: _Property, rule: _Rule, unit: _Unit) -> object:
    try:
        value = rule.parse(given.text)
        if rule is _DEADLINE and _DEADLINE.parse(given.text) <= 0 and not given.name.startswith(_OWN_PREFIX):
            return _unlimited(given)
        return rule.check(value, unit)
    except _NotAllowedError as error:
        raise _refusal(given.name, given.text, given.source, error, rule.allowed(unit)) from None


def _unlimited(given: _Property) -> float:
    # Not refused, as a keyword is: the file may be shared with Java programs, for which the value is right.
    warn(f"{given.name} = {given.text} ({given.source}) is no limit in HBase; 24 hours are used", ConfigWarning)
    return _UNLIMITED_S


def _require_known(names: Iterable[str], known: Collection[str], source: str, what: str) -> None:
    for name in names:
        if name not in known:
            nearest = nearest_name(name, known)
            advice = f"did you mean {nearest}?" if nearest else "nothing known is near; remove it"
            raise ConfigError(f"{_cut(name)} ({source}): no such {what}; {advice}")


def _properties_of(config: object) -> dict[str, _Property]:
    if isinstance(config, Properties):  # another Config's: judged when that was made
        return {name: _Property(name, text, config.source(name)) for name, text in config.items()}
    if isinstance(config, Mapping):
        return _judged({name: _property_of(name, value) for name, value in config.items()})
    path = os.fspath(config) if isinstance(config, str | os.PathLike) else None
    if not path or not isinstance(path, str):
        allowed = "a path to hbase-site.xml or its folder, a mapping of HBase's properties, a Config, None"
        raise _refusal("config", config, "keyword", "none of what can be read", allowed)
    return _judged(_read_site(_site_path(path)))


def _read_only(properties: object) -> Properties:
    if not isinstance(properties, Mapping):
        raise _refusal("properties", properties, "keyword", "not a mapping", "a mapping of names to text")
    if isinstance(properties, Properties):
        return properties
    return Properties({name: _property_of(name, value).text for name, value in properties.items()})


def _property_of(name: object, value: object) -> _Property:
    if not isinstance(name, str):
        raise _refusal("a property's name", name, MAPPING, "not text", "text, such as hbase.rpc.timeout")
    try:
        if isinstance(value, bool):
            return _Property(name, str(value).lower(), MAPPING)
        if isinstance(value, str | numbers.Real):
            return _Property(name, str(value).strip(), MAPPING)
    except ValueError:  # an int of more digits than Python prints
        pass
    raise _refusal(name, value, MAPPING, "not a property's value", "text, a number or a bool")


# ---------------------------------------------------------------------------------------------------- hbase-site.xml

_SITE_BYTES_MAX = 4 << 20  # a site file has kilobytes; bounds what a wrong path makes us read, and what ${} makes of it
_SUBSTITUTIONS_MAX = 20  # Hadoop's Configuration.MAX_SUBST; ends loops
_VARIABLE = re.compile(r"\$\{([^${}\s]+)\}")


def _site_path(text: str) -> Path:
    path = Path(text)
    try:
        path = path / "hbase-site.xml" if path.is_dir() else path
        if path.is_file():
            return path
        why = f"no file {_cut(str(path))}"
    except OSError as error:  # a name too long, a folder that may not be entered
        why = f"cannot be looked up: {error.strerror}"
    raise _refusal("config", text, "keyword", why, "the path of an hbase-site.xml, or of a folder that holds one")


def _read_site(path: Path) -> dict[str, _Property]:
    try:
        with path.open("rb") as file:
            data = file.read(_SITE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; check its permissions") from error
    if len(data) > _SITE_BYTES_MAX:
        raise ConfigError(f"{path}: more than {_SITE_BYTES_MAX} bytes; is it an hbase-site.xml?")
    return _all_substituted(path, _SiteParser(path).parse(data))


def _all_substituted(path: Path, raw: Mapping[str, _Property]) -> dict[str, _Property]:
    size = 0
    done = {}
    for name, each in raw.items():
        done[name] = _substituted(each, raw)
        size += len(done[name].text)
        if size > _SITE_BYTES_MAX:
            raise ConfigError(f"{path}: more than {_SITE_BYTES_MAX} bytes after substitution; is it an hbase-site.xml?")
    return done


def _substituted(given: _Property, raw: Mapping[str, _Property]) -> _Property:
    """``given`` with each ``${name}`` replaced; unknown names stay as they are, as in Hadoop."""
    text, start, substitutions = given.text, 0, 0
    while match := _VARIABLE.search(text, start):
        if match[1] not in raw:
            start = match.end()
        elif substitutions < _SUBSTITUTIONS_MAX:
            text = text[: match.start()] + raw[match[1]].text + text[match.end() :]
            substitutions += 1
        else:
            why, allowed = "${} goes in a loop, or too far", f"{_SUBSTITUTIONS_MAX} substitutions; write the value out"
            raise _refusal(given.name, given.text, given.source, why, allowed)
    return given._replace(text=text)


class _SiteParser:
    """Hadoop's configuration format, with the line of each property.

    Not ElementTree, which keeps no lines and expands entities: here a DOCTYPE ends the parse before its first entity.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._properties: dict[str, _Property] = {}
        self._final: set[str] = set()
        self._depth = 0  # 1: configuration, 2: property, 3: name, value, final
        self._line = 0  # of the open property
        self._parts: dict[str, list[str]] = {}  # of the open property
        self._part: list[str] = []  # the open one of them
        self._expat = expat.ParserCreate()
        self._expat.StartDoctypeDeclHandler = self._on_doctype
        self._expat.StartElementHandler = self._on_start
        self._expat.CharacterDataHandler = self._on_text
        self._expat.EndElementHandler = self._on_end

    def parse(self, data: bytes) -> dict[str, _Property]:
        try:
            self._expat.Parse(data, True)
        except ConfigError:
            raise
        except (expat.ExpatError, LookupError, ValueError) as error:  # the last two: encodings that expat cannot read
            raise self._error(f"broken XML: {error}; correct the file", self._expat.ErrorLineNumber) from error
        return self._properties

    def _error(self, why: str, line: int) -> ConfigError:
        return ConfigError(f"{self._path}:{line}: {why}")

    def _on_doctype(self, *_: object) -> None:
        raise self._error("a DOCTYPE is refused, as entities can do harm; remove it", self._here())

    def _on_start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth == 1 and tag != "configuration":
            raise self._error(f"<{_cut(tag)}> in place of <configuration>; is it an hbase-site.xml?", self._here())
        if tag.rpartition(":")[2] == "include":
            raise self._error("an include is not followed; put all properties into one file", self._here())
        if self._depth == 2:
            self._line = self._here()
            self._parts = {name: [text] for name, text in attributes.items()}  # <property name="" value=""/>: Hadoop 3
        elif self._depth == 3:
            self._part = self._parts[tag] = []

    def _here(self) -> int:
        return self._expat.CurrentLineNumber

    def _on_text(self, text: str) -> None:
        if self._depth == 3:
            self._part.append(text)

    def _on_end(self, tag: str) -> None:
        if self._depth == 2 and tag == "property":
            self._add({name: "".join(texts).strip() for name, texts in self._parts.items()})
        self._depth -= 1

    def _add(self, parts: Mapping[str, str]) -> None:
        name = parts.get("name")
        if not name or "value" not in parts:
            missing = f"<value> in the property {_cut(name)}" if name else "<name> in a property"
            raise self._error(f"no {missing}; add it or remove the property", self._line)
        if name not in self._final:  # the last one wins, unless an earlier one is final: as in Hadoop
            self._properties[name] = _Property(name, parts["value"], f"{self._path}:{self._line}")
        if parts.get("final") == "true":
            self._final.add(name)


# ---------------------------------------------------------------------------------------------- messages and warnings


def _refusal(name: str, value: object, source: str, why: object, allowed: str) -> ConfigError:
    try:
        shown = repr(value)
    except ValueError:  # an int of more digits than Python prints
        shown = "a number of thousands of digits"
    if "password" in name.lower() or "secret" in name.lower():
        shown = "(not shown)"  # messages end in logs
    return ConfigError(f"{name} = {_cut(shown)} ({source}): {why}; allowed: {allowed}")


def _cut(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:97]}..."
