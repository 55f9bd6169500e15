"""The settings: every field, unit and refusal as data."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
import re
import warnings
from fractions import Fraction
from pathlib import Path

import pytest

from metaclient.config import Config, MetaMode, fields
from metaclient.config.rules import DEADLINE
from metaclient.errors import ConfigError, MetaClientError

MODE = "hbase.locator.meta.replicas.mode"
SELECTOR = "hbase.locator.meta.replicas.mode.loadbalance.selector"
SIMPLE = "org.apache.hadoop.hbase.client.CatalogReplicaLoadBalanceSimpleSelector"


def pick_last(*_: object) -> int:
    """A selector that can be pickled."""
    return -1


# ------------------------------------------------------------------------------------------------ defaults and units

DEFAULTS: dict[str, object] = {
    "meta_mode": None,
    "meta_selector": "round_robin",
    "meta_hedge_delay_s": 1.0,
    "meta_try_timeout_s": None,
    "meta_try_timeout_min_s": 0.05,
    "meta_try_timeout_max_s": 2.0,
    "meta_lookup_timeout_s": 60.0,
    "meta_stale_mark_s": 3.0,
    "meta_stale_mark_max_s": 30.0,
    "meta_stale_marks_max": 10_000,
    "meta_ejection_s": 1.0,
    "meta_ejection_max_s": 60.0,
    "meta_refresh_s": 60.0,
    "meta_refresh_min_s": 1.0,
    "locate_prefetch": 10,
    "locate_prefetch_max": 1000,
    "locate_concurrency": 8,
    "location_cache_regions_max": 1_000_000,
    "meta_scan_caching": 1000,
    "table_state_ttl_s": 2.0,
    "open_timeout_s": 15.0,
    "operation_timeout_s": 120.0,
    "meta_operation_timeout_s": 120.0,
    "rpc_timeout_s": 20.0,
    "rpc_read_timeout_s": 20.0,
    "rpc_write_timeout_s": 20.0,
    "meta_rpc_timeout_s": 20.0,
    "scanner_timeout_s": 60.0,
    "pause_s": 0.1,
    "pause_overloaded_s": 0.1,
    "retries": 15,
    "nonces": True,
    "retry_jitter": 0.5,
    "retry_budget": 0.2,
    "retry_budget_burst": 10,
    "start_log_errors": 5,
    "hedge_delay_get_s": None,
    "hedge_delay_scan_s": None,
    "hedge_delay_multiget_s": None,
    "hedge_delay": "adaptive",
    "hedge_quantile": 0.95,
    "hedge_delay_min_s": 0.001,
    "hedge_delay_max_s": 1.0,
    "hedge_samples_min": 20,
    "hedge_plan": "staged",
    "hedge_budget": 0.05,
    "hedge_budget_burst": 10,
    "max_staleness_s": None,
    "scan_caching": 1000,
    "scan_max_result_bytes": 2 * 1024 * 1024,
    "scan_prefetch": True,
    "threads_max": 128,
    "queue_max": 1024,
    "abandoned_calls_max": 64,
    "principal": None,
    "keytab": None,
    "ccache": None,
    "token": None,
    "do_as": None,
    "ca": None,
    "cert": None,
    "key": None,
    "verify": True,
    "properties": {},
}


def test_fields_and_defaults_are_the_agreed_ones() -> None:
    public = [each.name for each in dataclasses.fields(Config) if not each.name.startswith("_")]
    assert sorted(public) == sorted(DEFAULTS)
    assert {name: getattr(Config(), name) for name in public} == DEFAULTS


@pytest.mark.parametrize("name", [name for name, value in DEFAULTS.items() if isinstance(value, float)])
def test_a_float_field_is_a_float_from_ints_too(name: str) -> None:
    assert type(getattr(Config(), name)) is float
    spec = fields.SPECS[name]
    if spec.key:
        assert type(getattr(Config.of({spec.key: 1_000_000}), name)) is float
    assert type(Config(rpc_timeout_s=7).rpc_read_timeout_s) is float


@pytest.mark.parametrize(
    ("key", "given", "field", "value"),
    [
        ("hbase.client.meta.replica.scan.timeout", "1000000", "meta_hedge_delay_s", 1.0),  # microseconds
        ("hbase.client.primaryCallTimeout.get", 10_000, "hedge_delay_get_s", 0.01),
        ("hbase.client.primaryCallTimeout.multiget", 5_000, "hedge_delay_multiget_s", 0.005),
        ("hbase.client.replicaCallTimeout.scan", 2_000_000, "hedge_delay_scan_s", 2.0),
        ("hbase.client.meta.scanner.timeout.period", 30_000, "meta_lookup_timeout_s", 30.0),  # milliseconds
        ("hbase.client.scanner.timeout.period", "30000", "scanner_timeout_s", 30.0),
        ("hbase.client.operation.timeout", "1200000", "operation_timeout_s", 1200.0),
        ("hbase.client.operation.timeout", 2**31 - 1, "operation_timeout_s", 2_147_483.647),
        ("hbase.client.meta.operation.timeout", 9000, "meta_operation_timeout_s", 9.0),
        ("hbase.rpc.timeout", "5000", "rpc_timeout_s", 5.0),
        ("hbase.rpc.timeout", 5000, "rpc_timeout_s", 5.0),
        ("hbase.rpc.timeout", 5000.0, "rpc_timeout_s", 5.0),
        ("hbase.rpc.timeout", "  5000\n", "rpc_timeout_s", 5.0),
        ("hbase.rpc.timeout", "1.5", "rpc_timeout_s", 0.0015),
        ("hbase.rpc.timeout", "2e3", "rpc_timeout_s", 2.0),
        ("hbase.rpc.read.timeout", 4000, "rpc_read_timeout_s", 4.0),
        ("hbase.rpc.write.timeout", 4000, "rpc_write_timeout_s", 4.0),
        ("hbase.client.meta.read.rpc.timeout", 4000, "meta_rpc_timeout_s", 4.0),
        ("hbase.client.pause", 50, "pause_s", 0.05),
        ("hbase.client.pause.server.overloaded", 500, "pause_overloaded_s", 0.5),
        ("hbase.client.retries.number", "3", "retries", 3),  # no unit
        ("hbase.client.retries.number", 2**31 - 1, "retries", 2**31 - 1),
        ("hbase.client.start.log.errors.counter", 0, "start_log_errors", 0),
        ("hbase.client.locate.prefetch.limit", 20, "locate_prefetch", 20),
        ("hbase.client.meta.max.concurrent.locate.per.table", 2, "locate_concurrency", 2),
        ("hbase.meta.scanner.caching", 100, "meta_scan_caching", 100),
        ("hbase.client.scanner.caching", 2**31 - 1, "scan_caching", 2**31 - 1),
        ("hbase.client.scanner.max.result.size", 2**63 - 1, "scan_max_result_bytes", 2**63 - 1),
        (MODE, "loadBALANCE", "meta_mode", MetaMode.LOAD_BALANCE),
        (MODE, "None", "meta_mode", MetaMode.NONE),
        (SELECTOR, SIMPLE, "meta_selector", "simple"),
        (SELECTOR, "round_robin", "meta_selector", "round_robin"),
        ("metaclient.meta_try_timeout_s", "0.1", "meta_try_timeout_s", 0.1),  # ours: the field's own unit
        ("metaclient.rpc_timeout_s", 3, "rpc_timeout_s", 3.0),
        ("metaclient.hedge_delay", "fixed", "hedge_delay", "fixed"),
        ("metaclient.hedge_plan", "ALL_AT_ONCE", "hedge_plan", "all_at_once"),
        ("metaclient.meta_mode", "hedgedread", "meta_mode", MetaMode.HEDGED_READ),
    ],
)
def test_property_is_converted_once(key: str, given: object, field: str, value: object) -> None:
    config = Config.of({key: given})
    assert getattr(config, field) == value
    assert config.properties[key] == str(given).strip()


def test_every_hbase_key_is_read_into_its_field() -> None:
    """HBase's own defaults, given as properties, make every field what HBase has."""
    for name, spec in fields.SPECS.items():
        if spec.key and spec.hbase is not None:
            assert getattr(Config.of({spec.key: spec.hbase}), name) == spec.rule.check(spec.hbase, spec.unit)


def test_divergences_are_all_stated() -> None:
    """The module's docstring lists exactly the defaults that are not HBase's."""
    differing = {
        name
        for name, spec in fields.SPECS.items()
        if spec.hbase is not None and spec.rule.check(spec.hbase, spec.unit) != getattr(Config(), name)
    }
    assert fields.__doc__ is not None
    listed = re.findall(r"^- ``(\w+)``", fields.__doc__.partition("DIVERGENCES")[2], re.MULTILINE)
    assert sorted(listed) == sorted(differing)


# ------------------------------------------------------------------------------------------------------------- modes


@pytest.mark.parametrize(
    ("word", "mode"),
    [
        ("none", MetaMode.NONE),
        ("NONE", MetaMode.NONE),
        ("hedgedread", MetaMode.HEDGED_READ),
        ("HedgedRead", MetaMode.HEDGED_READ),
        ("LOADBALANCE", MetaMode.LOAD_BALANCE),
        (MetaMode.LOAD_BALANCE, MetaMode.LOAD_BALANCE),
    ],
)
def test_mode_parse(word: str | MetaMode, mode: MetaMode) -> None:
    assert MetaMode.of(word) is mode
    assert Config(meta_mode=word).meta_mode is mode  # type: ignore[arg-type]  # words are accepted from users


@pytest.mark.parametrize("junk", ["", "junk", "Load Balance", "HighAvailable", None, 1, True, b"None"])
def test_mode_junk_names_the_three(junk: object) -> None:
    with pytest.raises(ConfigError, match=r"None, HedgedRead, LoadBalance"):
        MetaMode.of(junk)  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize(
    ("properties", "mode"),
    [
        ({"hbase.meta.replicas.use": "true"}, MetaMode.HEDGED_READ),
        ({"hbase.meta.replicas.use": True}, MetaMode.HEDGED_READ),
        ({"hbase.meta.replicas.use": "TRUE", MODE: "None"}, MetaMode.HEDGED_READ),
        ({"hbase.meta.replicas.use": "true", MODE: "LoadBalance"}, MetaMode.LOAD_BALANCE),
        ({"hbase.meta.replicas.use": "false"}, MetaMode.NONE),
        ({"hbase.meta.replicas.use": "false", MODE: "LoadBalance"}, MetaMode.LOAD_BALANCE),
        ({"hbase.meta.replicas.mode": "LoadBalance", "hbase.meta.replicas.use": "false"}, MetaMode.LOAD_BALANCE),
        ({"hbase.meta.replicas.use": "false", MODE: "None"}, MetaMode.NONE),
        ({"hbase.meta.replicas.mode": "HighAvailable"}, MetaMode.HEDGED_READ),
        ({"hbase.meta.replicas.mode": "LoadBalance"}, MetaMode.LOAD_BALANCE),
        ({"hbase.meta.replicas.mode": "LoadBalance", "hbase.meta.replicas.use": "true"}, MetaMode.LOAD_BALANCE),
        ({"hbase.meta.replicas.mode": "HighAvailable", MODE: "LoadBalance"}, MetaMode.LOAD_BALANCE),
    ],
)
def test_old_names_of_the_mode(properties: dict[str, object], mode: MetaMode | None) -> None:
    with pytest.warns(DeprecationWarning, match=re.escape(MODE)):
        assert Config.of(properties).meta_mode is mode


@pytest.mark.parametrize(
    ("key", "value"),
    [("hbase.meta.replicas.use", "yes"), ("hbase.meta.replicas.mode", "junk"), ("hbase.meta.replicas.mode", "None")],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("mode", [{}, {MODE: "LoadBalance"}])
def test_junk_under_an_old_name_is_refused(key: str, value: str, mode: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"{key} = '{value}' (mapping)")):
        Config.of({key: value, **mode})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("hbase.client.pause.cqtbe", "hbase.client.pause.server.overloaded"),
        ("hbase.client.primaryCallTimeout.scan", "hbase.client.replicaCallTimeout.scan"),
    ],
)
def test_deprecated_name_warns_with_the_new_one_where_the_caller_is(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=re.escape(new)) as caught:
        Config.of({old: 300})
    assert [Path(each.filename).name for each in caught] == [Path(__file__).name]


def test_overloaded_pause_old_key_is_honoured_and_new_key_wins() -> None:
    both = {"hbase.client.pause.cqtbe": 300, "hbase.client.pause.server.overloaded": 400}
    with pytest.warns(DeprecationWarning, match="cqtbe"):
        assert Config.of({"hbase.client.pause.cqtbe": 300}).pause_overloaded_s == 0.3
    with pytest.warns(DeprecationWarning, match="cqtbe"):
        assert Config.of(both).pause_overloaded_s == 0.4


def test_scan_key_of_the_reference_guide_is_not_lost() -> None:
    """HBase's guide tells people to write it, and HBase itself does not read it."""
    both = {"hbase.client.primaryCallTimeout.scan": 1_000, "hbase.client.replicaCallTimeout.scan": 2_000}
    with pytest.warns(DeprecationWarning, match="HBase does not read it"):
        assert Config.of({"hbase.client.primaryCallTimeout.scan": 1_000}).hedge_delay_scan_s == 0.001
    with pytest.warns(DeprecationWarning, match="HBase does not read it"):
        assert Config.of(both).hedge_delay_scan_s == 0.002


def test_overloaded_pause_smaller_than_pause_is_lifted() -> None:
    with pytest.warns(UserWarning, match="raised to"):
        config = Config.of({"hbase.client.pause": 200, "hbase.client.pause.server.overloaded": 100})
    assert config.pause_overloaded_s == 0.2


# ------------------------------------------------------------------------------------------------- following a parent

FOLLOWERS = [
    ("operation_timeout_s", "meta_operation_timeout_s"),
    ("rpc_timeout_s", "rpc_read_timeout_s"),
    ("rpc_timeout_s", "rpc_write_timeout_s"),
    ("rpc_timeout_s", "meta_rpc_timeout_s"),
    ("rpc_read_timeout_s", "meta_rpc_timeout_s"),
    ("scanner_timeout_s", "meta_lookup_timeout_s"),
    ("pause_s", "pause_overloaded_s"),
]


@pytest.mark.parametrize(("parent", "follower"), FOLLOWERS)
def test_follower_takes_its_parents_value_until_it_is_given(parent: str, follower: str) -> None:
    config = Config.of(None, **{parent: 7})
    assert getattr(config, follower) == 7.0
    assert getattr(config.replace(**{parent: 8}), follower) == 8.0, "replace() must not freeze what was followed"
    fixed = config.replace(**{follower: 9})
    assert getattr(fixed.replace(**{parent: 8}), follower) == 9.0
    assert getattr(fixed.replace(**{parent: 8, follower: None}), follower) == 8.0
    moved = pickle.loads(pickle.dumps(config))
    assert getattr(moved.replace(**{parent: 8}), follower) == 8.0, "a pickled copy follows as well"


# -------------------------------------------------------------------------------------------------------- precedence


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("properties", "options", "pause"),
    [
        ({}, {}, 0.1),
        ({"hbase.client.pause.cqtbe": 200}, {}, 0.2),
        ({"hbase.client.pause.cqtbe": 200, "hbase.client.pause.server.overloaded": 300}, {}, 0.3),
        ({"hbase.client.pause.server.overloaded": 300, "metaclient.pause_overloaded_s": 0.4}, {}, 0.4),
        ({"metaclient.pause_overloaded_s": 0.4}, {"pause_overloaded_s": 0.5}, 0.5),
        ({"metaclient.pause_overloaded_s": 0.4}, {"pause_overloaded_s": None}, 0.4),
    ],
)
def test_precedence(properties: dict[str, object], options: dict[str, object], pause: float) -> None:
    assert Config.of(properties, **options).pause_overloaded_s == pause


def test_connects_default_of_none_does_not_hide_the_files_mode() -> None:
    assert Config.of({MODE: "HedgedRead"}, meta_mode=None).meta_mode is MetaMode.HEDGED_READ
    assert Config.of({MODE: "HedgedRead"}, meta_mode="LoadBalance").meta_mode is MetaMode.LOAD_BALANCE


def test_option_mends_what_the_properties_alone_are_refused_for() -> None:
    prefetch = {"hbase.client.locate.prefetch.limit": 5000}
    with pytest.raises(ConfigError, match=r"locate_prefetch = 5000 \(mapping\).*metaclient.locate_prefetch_max"):
        Config.of(prefetch)
    assert Config.of(prefetch, locate_prefetch_max=5000).locate_prefetch == 5000
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Config.of({"hbase.client.pause.server.overloaded": 50}, pause_s=0.01).pause_overloaded_s == 0.05


def test_a_config_is_taken_as_it_is() -> None:
    config = Config.of({"hbase.rpc.timeout": 5000, "hbase.zookeeper.quorum": "zk1"})
    assert Config.of(config) == config
    assert Config.of(config, retries=1) == config.replace(retries=1)
    assert Config.of(config, retries=1).properties["hbase.zookeeper.quorum"] == "zk1"


def test_nothing_given_is_the_default() -> None:
    assert Config.of() == Config.of(None) == Config.of({}) == Config()


# ---------------------------------------------------------------------------------------------------------- refusals

NOT_NUMBERS = ["5", "", "abc", True, False, [], {}, object(), b"5", 1j]
NAN_AND_INFINITE = [math.nan, math.inf, -math.inf]
HUGE = [10**400, 10**5000, -(10**400)]
NUMBERS = [name for name, value in DEFAULTS.items() if isinstance(value, int | float) and value is not True] + [
    "meta_try_timeout_s",
    "hedge_delay_get_s",
    "hedge_delay_scan_s",
    "hedge_delay_multiget_s",
]
MAY_BE_ZERO = {
    "meta_hedge_delay_s",
    "meta_stale_mark_s",
    "meta_ejection_s",
    "table_state_ttl_s",
    "pause_s",
    "pause_overloaded_s",
    "retries",
    "retry_jitter",
    "retry_budget",
    "retry_budget_burst",
    "start_log_errors",
    "hedge_delay_get_s",
    "hedge_delay_scan_s",
    "hedge_delay_multiget_s",
    "hedge_delay_min_s",
    "hedge_budget",
    "hedge_budget_burst",
    "max_staleness_s",
    "queue_max",
    "abandoned_calls_max",
}
ZERO_MAX = {"meta_stale_mark_max_s", "meta_ejection_max_s", "hedge_delay_max_s"}  # zero only together with the minimum


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [*NOT_NUMBERS, *NAN_AND_INFINITE, *HUGE, -1], ids=lambda v: f"{type(v).__name__}")
def test_no_number_field_takes_nonsense(name: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.of(None, **{name: value})
    message = str(caught.value)
    assert message.startswith(f"{name} = ")
    assert "(keyword)" in message
    assert "allowed: a" in message
    assert len(message) < 400
    assert "\n" not in message


@pytest.mark.parametrize("name", NUMBERS)
def test_zero_is_refused_where_it_makes_no_sense(name: str) -> None:
    if name in MAY_BE_ZERO:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pause_overloaded_s is lifted
            Config.of(None, **{name: 0})
    else:
        with pytest.raises(ConfigError, match="is more than" if name in ZERO_MAX else re.escape(f"{name} = 0 (keyw")):
            Config.of(None, **{name: 0})


@pytest.mark.parametrize("name", [name for name in NUMBERS if isinstance(DEFAULTS[name], int)])
def test_count_takes_no_fraction(name: str) -> None:
    with pytest.raises(ConfigError, match="not a whole number"):
        Config.of(None, **{name: 10.0})


def test_other_kinds_of_numbers_are_numbers() -> None:
    assert Config(rpc_timeout_s=Fraction(1, 2)).rpc_timeout_s == 0.5  # type: ignore[arg-type]  # numpy's are alike


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"operation_timeout_s": 0}, "operation_timeout_s = 0 (keyword): every wait has a deadline here"),
        ({"operation_timeout_s": -1.0}, "a day is 86400 s; allowed: a number of s, more than 0 and at most 2592000"),
        ({"operation_timeout_s": 1e9}, "operation_timeout_s = 1000000000.0 (keyword): out of range; allowed:"),
        ({"hedge_quantile": 1}, "a number, more than 0 and less than 1"),
        ({"hedge_quantile": 0.0}, "a number, more than 0 and less than 1"),
        ({"retry_jitter": 1.01}, "a number, at least 0 and at most 1"),
        ({"hedge_delay": "sometimes"}, "allowed: fixed, adaptive"),
        ({"hedge_plan": 3}, "allowed: staged, all_at_once"),
        (
            {"meta_selector": "fastest"},
            "allowed: round_robin, simple, or by keyword a Python function or an object with select",
        ),
        ({"meta_mode": "junk"}, "meta_mode = 'junk' (keyword): not one of the words; allowed: None, HedgedRead, Lo"),
        (
            {"meta_try_timeout_min_s": 3},
            "s = 3.0 (keyword) is more than meta_try_timeout_max_s = 2.0 (default); allowed: at most",
        ),
        ({"meta_stale_mark_s": 31}, "meta_stale_mark_max_s = 30.0"),
        ({"meta_ejection_s": 61}, "meta_ejection_max_s = 60.0"),
        ({"meta_refresh_min_s": 61}, "meta_refresh_s = 60.0"),
        ({"locate_prefetch": 1001}, "locate_prefetch_max = 1000"),
        ({"hedge_delay_min_s": 2}, "hedge_delay_max_s = 1.0"),
        ({"properties": {"hbase.rpc.timeout": "1"}}, "HBase's properties act when given as config="),
    ],
)
def test_refused_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        Config.of(None, **options)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("hbase.rpc.timeout", "abc", "hbase.rpc.timeout = 'abc' (mapping): not a number; allowed: a number of ms"),
        ("hbase.rpc.timeout", "60s", "allowed: a number of ms, more than 0 and at most 2592000000"),
        ("hbase.rpc.timeout", "", "not a number"),
        ("hbase.rpc.timeout", "nan", "not a number"),
        ("hbase.rpc.timeout", math.nan, "not a number"),
        ("hbase.rpc.timeout", math.inf, "not a number"),
        ("hbase.rpc.timeout", "Infinity", "not a number"),
        ("hbase.rpc.timeout", "1e999", "out of range"),
        ("hbase.rpc.timeout", "9" * 5000, "not a number"),
        pytest.param("hbase.rpc.timeout", 10**5000, "a number of thousands of digits (mapping)", id="huge"),
        ("hbase.rpc.timeout", "５０００", "not a number"),  # noqa: RUF001 - other digits, which int() would take
        ("hbase.rpc.timeout", "5_000", "not a number"),
        ("hbase.rpc.timeout", True, "hbase.rpc.timeout = 'true' (mapping): not a number"),
        ("hbase.rpc.timeout", None, "allowed: text, a number or a bool"),
        ("hbase.rpc.timeout", b"5000", "allowed: text, a number or a bool"),
        ("hbase.rpc.timeout", [5000], "allowed: text, a number or a bool"),
        ("hbase.zookeeper.quorum", ["a", "b"], "hbase.zookeeper.quorum = ['a', 'b'] (mapping)"),
        ("hbase.rpc.tls.keystore.password", b"hunter2", "password = (not shown) (mapping): not a property's value"),
        ("hbase.client.retries.number", "1.0", "not a whole number"),
        ("hbase.client.retries.number", "-1", "out of range"),
        ("hbase.client.pause", "-1", "hbase.client.pause = '-1' (mapping): out of range; allowed: a number of ms, at"),
        ("hbase.client.scanner.caching", "0", "a whole number, at least 1 and at most 2147483647"),
        ("hbase.client.meta.replica.scan.timeout", "-5", "a number of us, at least 0 and at most 2592000000000"),
        (MODE, "junk", f"{MODE} = 'junk' (mapping): not one of the words; allowed: None, HedgedRead, LoadBalance"),
        (SELECTOR, "com.example.MySelector", "Java classes cannot be loaded"),
        ("metaclient.operation_timeout_s", "0", "every wait has a deadline"),
        ("rpc_timeout_s", 5, "(mapping): fields are keywords; as a property write metaclient.rpc_timeout_s"),
        (5, 5, "a property's name = 5 (mapping): not text"),
    ],
)
def test_refused_properties(name: str, value: object, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        Config.of({name: value})


@pytest.mark.parametrize("config", [5, b"hbase-site.xml", ["hbase.rpc.timeout"], "", object()])
def test_refused_kinds_of_config(config: object) -> None:
    with pytest.raises(ConfigError, match=r"allowed: a path to hbase-site.xml or its folder, a mapping"):
        Config.of(config)  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize(
    "key",
    [spec.key for spec in fields.SPECS.values() if spec.rule is DEADLINE and spec.key],
)
@pytest.mark.parametrize("value", ["0", "-1", 0])
def test_unlimited_as_a_property_is_a_day_with_a_warning(key: str, value: object) -> None:
    name = next(name for name, spec in fields.SPECS.items() if spec.key == key)
    with pytest.warns(UserWarning, match=re.escape(f"{key} = {value} (mapping) is no limit in HBase; 24 hours")):
        assert getattr(Config.of({key: value}), name) == 86_400.0


def test_an_error_is_a_value_error_and_ours() -> None:
    with pytest.raises(ValueError, match="retries") as caught:
        Config(retries=-1)
    assert isinstance(caught.value, MetaClientError)


# ------------------------------------------------------------------------------------------------------------- a value


def test_config_is_frozen() -> None:
    config = Config.of({"hbase.zookeeper.quorum": "zk1"})
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.retries = 1  # type: ignore[misc]  # that is the point
    with pytest.raises((AttributeError, TypeError)):
        config.brand_new = 1  # type: ignore[attr-defined]  # that is the point
    with pytest.raises(TypeError):
        config.properties["a"] = "b"  # type: ignore[index]  # that is the point
    assert not hasattr(config, "__dict__")


def test_the_callers_mapping_is_not_shared() -> None:
    given = {"hbase.zookeeper.quorum": "zk1"}
    config = Config.of(given)
    given["hbase.zookeeper.quorum"] = "zk2"
    assert config.properties["hbase.zookeeper.quorum"] == "zk1"


def test_properties_of_a_constructed_config_are_text() -> None:
    assert dict(Config(properties={"hbase.master.port": 16000}).properties) == {  # type: ignore[dict-item]  # a number
        "hbase.master.port": "16000"
    }
    with pytest.raises(ConfigError, match="properties = 5"):
        Config(properties=5)  # type: ignore[arg-type]  # that is the point


def test_positional_fields_are_refused() -> None:
    with pytest.raises(TypeError):
        Config(MetaMode.NONE)  # type: ignore[call-arg]  # that is the point


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("selector", ["simple", pick_last])
def test_pickled_copy_is_equal(protocol: int, selector: object) -> None:
    config = Config.of({"hbase.rpc.timeout": 5000, "hbase.zookeeper.quorum": "zk1"}, meta_selector=selector)
    for moved in (pickle.loads(pickle.dumps(config, protocol)), copy.deepcopy(config), copy.copy(config)):
        assert moved == config
        assert hash(moved) == hash(config)
        assert moved.meta_selector is config.meta_selector or moved.meta_selector == "simple"
        assert dict(moved.properties) == dict(config.properties)


def test_replace_leaves_the_old_one_and_checks_the_new_one() -> None:
    config = Config(retries=3)
    assert config.replace(rpc_timeout_s=1).retries == 3
    assert config.replace(rpc_timeout_s=1) != config
    assert config.replace() == config
    assert config.rpc_timeout_s == 20.0
    with pytest.raises(ConfigError, match="retries = None"):
        config.replace(retries=None)
    assert config.replace(meta_try_timeout_s=1).replace(meta_try_timeout_s=None).meta_try_timeout_s is None


@pytest.mark.filterwarnings("ignore::metaclient.ConfigWarning")
def test_repr_shows_what_differs_and_no_property() -> None:
    secret = {"hbase.rpc.tls.keystore.password": "hunter2", "hbase.rpc.timeout": "5000"}
    config = Config.of(secret, meta_mode="LoadBalance")
    assert repr(config) == "Config(meta_mode=<MetaMode.LOAD_BALANCE: 'LoadBalance'>, rpc_timeout_s=5.0)"
    assert repr(Config()) == "Config()"
    assert "hunter2" not in repr(config.properties)


def test_selector_is_short_for_meta_selector_and_both_are_refused() -> None:
    assert Config.of(selector="simple").meta_selector == "simple"
    with pytest.raises(ConfigError, match="the same as meta_selector"):
        Config.of(selector="simple", meta_selector="round_robin")
