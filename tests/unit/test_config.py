"""The settings: every field, unit and refusal as data."""

from __future__ import annotations

import copy
import dataclasses
import math
import os
import pickle
import re
import warnings
from fractions import Fraction
from pathlib import Path

import pytest

from metaclient.config import Config, MetaMode, checked_properties, fields, fields_given
from metaclient.config.hbase_properties import source_of
from metaclient.config.rules import DEADLINE
from metaclient.errors import ConfigError, ConfigWarning, MetaClientError

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
    "hedge_delay_get_s": 0.010,
    "hedge_delay_scan_s": 1.0,
    "hedge_delay_multiget_s": 0.010,
    "hedge_delay": "adaptive",
    "hedge_quantile": 0.95,
    "hedge_delay_min_s": 0.001,
    "hedge_delay_max_s": 1.0,
    "hedge_samples_min": 20,
    "hedge_plan": "staged",
    "hedge_budget": 0.05,
    "hedge_budget_burst": 10,
    "scan_caching": 1000,
    "scan_max_result_bytes": 2 * 1024 * 1024,
    "threads_max": 128,
    "queue_max": 1024,
    "abandoned_calls_max": 64,
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
    with pytest.warns(UserWarning, match="lifted"):
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
    "meta_try_timeout_s"
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


# ------------------------------------------------------------------------------------------------------ unknown names


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("rpc_timeot_s", "rpc_timeout_s"),
        ("rpc_timeout", "rpc_timeout_s"),
        ("metamode", "meta_mode"),
        ("operation_timeout_ms", "operation_timeout_s"),
    ],
)
def test_unknown_option_names_the_nearest(name: str, nearest: str) -> None:
    message = rf"^{name} \(keyword\): no such option; did you mean {nearest}\?$"
    mapping: dict[str, object] = {}
    for config in (None, mapping, Config()):
        with pytest.raises(ConfigError, match=message):
            Config.of(config, **{name: 1})
    with pytest.raises(ConfigError, match=message):
        Config().replace(**{name: 1})


def test_unknown_option_with_nothing_near() -> None:
    with pytest.raises(ConfigError, match="nothing known is near; remove it"):
        Config.of(zzzzzzzz=1)
    with pytest.raises(ConfigError) as caught:
        Config.of(None, **{"z" * 100_000: 1})
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("private", ["_followers", "_sources"])
def test_private_names_are_no_options(private: str) -> None:
    with pytest.raises(ConfigError, match="no such option"):
        Config.of(None, **{private: {}})


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("hbase.client.operation.timeot", "hbase.client.operation.timeout"),
        ("hbase.client.retries", "hbase.client.retries.number"),
        ("hbase.locator.meta.replica.mode", MODE),
        ("hbase.rpc.timeouts", "hbase.rpc.timeout"),
        ("hbase.ipc.client.socket.timeout.conect", "hbase.ipc.client.socket.timeout.connect"),
        ("metaclient.rpc_timeout", "metaclient.rpc_timeout_s"),
        ("metaclient.meta_try_timeout", "metaclient.meta_try_timeout_s"),
    ],
)
def test_unknown_property_that_looks_like_ours_names_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"{name} (mapping): no such property; did you mean {nearest}?")):
        Config.of({name: "1"})


@pytest.mark.parametrize("name", ["metaclient.properties", "metaclient.", "hbase.client.", "servers", "zzz", "retrys"])
def test_no_such_property(name: str) -> None:
    with pytest.raises(ConfigError, match="no such property"):
        Config.of({name: "1"})


@pytest.mark.parametrize(
    "name",
    [
        "hbase.client.connection.metacache.invalidate-interval.ms",
        "hbase.client.registry.impl",
        "hbase.client.bootstrap.hedged.fanout",
        "hbase.client.master_registry.hedged.fanout",
        "hbase.client.bootstrap.refresh_interval_secs",
        "hbase.ipc.client.failed.servers.expiry",
        "hbase.ipc.client.connection.minIdleTimeBeforeClose",
        "hbase.ipc.client.specificThreadForWriting",
        "hbase.client.ipc.pool.size",
        "hbase.client.backpressure.enabled",
        "hbase.client.statistics.backoff-policy",
        "hbase.client.keyvalue.maxsize",  # of hbase-default.xml
        "hbase.client.localityCheck.threadPoolSize",
        "hbase.rpc.shortoperation.timeout",
        "hbase.client.keytab.file",
        "hbase.client.header.tenant",  # the user names what follows the prefix
    ],
)
def test_client_property_without_effect_is_told_in_mappings_and_files(name: str, site_file: Path) -> None:
    with pytest.warns(ConfigWarning, match=re.escape(f"{name} (mapping) has no effect here")):
        config = Config.of({name: "as given"})
    assert dict(config.properties) == {name: "as given"}, "a backend of another package may read it"
    assert config.replace(properties={}) == Config()
    site_file.write_text(site((name, "as given")))
    with pytest.warns(ConfigWarning, match=re.escape(f"{name} ({site_file}:3) has no effect here")) as caught:
        Config.of(site_file)
    assert [Path(each.filename).name for each in caught] == [Path(__file__).name], "once, and where the caller is"


@pytest.mark.parametrize(
    "name",
    [
        "hbase.client.bootstrap.servers",  # of the native backend
        "hbase.client.netty.tls.enabled",
        "hbase.rpc.protection",
        "hbase.masters",
        "hbase.zookeeper.quorum",
        "zookeeper.znode.parent",
        "hbase.master.port",  # of servers
        "zookeeper.registry.async.get.timeout",
        "zookeeper.znode.metaserver",
        "hbase.status.listener.class",
        "hbase.meta.table.suffix",
        "hbase.region.replica.replication.catalog.enabled",
        "hbase.region.meta.replica.replication.enabled",
        "hbase.zookeeper.property.autopurge.purgeInterval",  # HBase hands on what follows the prefix
        "hbase.zookeeper.property.dataLogDir",
        "hbase.zookeeper.property.tickTime",
        "fs.defaultFS",  # of other programs
        "ipc.client.connect.max.retries",
        "hadoop.security.authentication",
        "phoenix.query.timeoutMs",
    ],
)
@pytest.mark.filterwarnings("error")
def test_other_property_is_kept_for_the_backends(name: str) -> None:
    config = Config.of({name: "as given"})
    assert dict(config.properties) == {name: "as given"}
    assert config.replace(properties={}) == Config()


#: What a site file of a real cluster holds, for all of its programs.
REAL_SITE = {
    "hbase.rootdir": "hdfs://ns1/hbase",
    "hbase.cluster.distributed": "true",
    "hbase.zookeeper.quorum": "zk1,zk2,zk3",
    "hbase.zookeeper.property.clientPort": "2181",
    "hbase.zookeeper.property.dataDir": "/var/zookeeper",
    "hbase.wal.provider": "asyncfs",
    "hbase.regionserver.handler.count": "60",
    "hbase.hregion.majorcompaction": "604800000",
    "hbase.coprocessor.region.classes": "com.example.Observer",
    "hbase.bucketcache.ioengine": "offheap",
    "hbase.rpc.tls.keystore.location": "/etc/hbase/keystore",
    "hbase.rpc.rows.warning.threshold": "5000",
    "hfile.block.cache.size": "0.4",
    "hadoop.proxyuser.hive.hosts": "*",
    "dfs.client.read.shortcircuit": "true",
    "dfs.replication": "3",
    "io.storefile.bloom.block.size": "131072",
    "phoenix.schema.isNamespaceMappingEnabled": "true",
    "com.example.hbase.quota": "7",
    "hbase.example.only.ours.to.know": "1",
}


@pytest.mark.filterwarnings("error")
def test_site_file_of_a_real_cluster_is_read_without_a_word(site_file: Path) -> None:
    site_file.write_text(site(*REAL_SITE.items()))
    config = Config.of(site_file)
    assert dict(config.properties) == REAL_SITE
    assert config.replace(properties={}) == Config()


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("hbase.meta.scaner.caching", "hbase.meta.scanner.caching"),
        ("hbase.meta.replica.cuont", "hbase.meta.replica.count"),
        ("hbase.zookeeper.quorom", "hbase.zookeeper.quorum"),
        ("hbase.zookeeper.property.clientport", "hbase.zookeeper.property.clientPort"),
        ("hbse.zookeeper.quorum", "hbase.zookeeper.quorum"),
        ("zookeper.znode.parent", "zookeeper.znode.parent"),
        ("hbase.regionserver.handlr.count", "hbase.regionserver.handler.count"),
    ],
)
def test_misspelt_name_outside_of_the_clients_prefixes_is_refused(name: str, nearest: str, site_file: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"{name} (mapping): no such property; did you mean {nearest}?")):
        Config.of({name: "1"})
    site_file.write_text(site((name, "1")))
    with pytest.warns(ConfigWarning, match=re.escape(f"({site_file}:3): no such property; did you mean {nearest}?")):
        assert name not in Config.of(site_file).properties


def test_name_that_hbase_does_not_know_is_told_in_a_mapping() -> None:
    with pytest.warns(ConfigWarning, match=re.escape("hbase.example.only.ours (mapping) has no effect here")):
        assert Config.of({"hbase.example.only.ours": "1"}).properties["hbase.example.only.ours"] == "1"


@pytest.mark.filterwarnings("error")
def test_properties_of_a_config_are_judged_once() -> None:
    with pytest.warns(ConfigWarning):
        first = Config.of({"hbase.client.write.buffer": "1", "hbase.rpc.timeout": "5000"})
    again = Config.of(first.properties)
    assert again == first
    assert source_of(pickle.loads(pickle.dumps(again.properties)), "hbase.rpc.timeout") == "mapping"
    moved = checked_properties({"hbase.client.write.bufer": "1"}, "a driver")
    assert source_of(Config.of(moved).properties, "hbase.client.write.bufer") == "a driver"


def test_fields_given_counts_defaults_that_are_written_out() -> None:
    assert fields_given({"hbase.client.retries.number": 15, "hbase.rootdir": "/", "metaclient.pause_s": 1}) == {
        "retries",
        "pause_s",
    }


@pytest.mark.parametrize("name", ["hbase." + "x" * 1_000_000, "hbase." + "a.b" * 300_000])
def test_name_of_a_megabyte_does_not_take_a_minute(name: str) -> None:
    with pytest.warns(ConfigWarning):
        Config.of({name: "1"})


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


# ----------------------------------------------------------------------------------------------------- hbase-site.xml


def site(*properties: tuple[str, str]) -> str:
    inner = "".join(f"<property><name>{n}</name><value>{v}</value></property>\n" for n, v in properties)
    return f'<?xml version="1.0"?>\n<configuration>\n{inner}</configuration>\n'


@pytest.fixture
def site_file(tmp_path: Path) -> Path:
    return tmp_path / "hbase-site.xml"


@pytest.mark.parametrize("kind", [str, Path, lambda path: path.parent, lambda path: str(path.parent)])
def test_site_file_or_its_folder(site_file: Path, kind: object) -> None:
    site_file.write_text(site(("hbase.rpc.timeout", "5000"), ("hbase.zookeeper.quorum", "zk1")))
    config = Config.of(kind(site_file), retries=1)  # type: ignore[operator]  # one of the callables above
    assert (config.rpc_timeout_s, config.retries) == (5.0, 1)
    assert dict(config.properties) == {"hbase.rpc.timeout": "5000", "hbase.zookeeper.quorum": "zk1"}


@pytest.mark.parametrize(
    ("body", "properties"),
    [
        ("", {}),
        ("<property><name>a</name><value>1</value></property>", {"a": "1"}),
        ("<property>\n <name> a\n</name>\n <value>\n1 </value>\n</property>", {"a": "1"}),
        ("<property><name>a</name><value/></property>", {"a": ""}),
        ("<property><name>a</name><value>x &amp; &#121; <![CDATA[<z>]]></value></property>", {"a": "x & y <z>"}),
        ("<property name='a' value='1'/>", {"a": "1"}),
        ("<property><value>1</value><name>a</name><description>d</description></property>", {"a": "1"}),
        ("<!-- c --><other><name>b</name><value>2</value></other>", {}),
        # the last one wins, unless an earlier one is final
        ("<property name='a' value='1'/><property name='a' value='2'/>", {"a": "2"}),
        ("<property name='a' value='1' final='true'/><property name='a' value='2'/>", {"a": "1"}),
        (
            "<property><name>a</name><value>1</value><final>true</final></property><property name='a' value='2'/>",
            {"a": "1"},
        ),
        ("<property name='a' value='1' final='false'/><property name='a' value='2'/>", {"a": "2"}),
        # ${name}
        ("<property name='a' value='${b}/x'/><property name='b' value='y'/>", {"a": "y/x", "b": "y"}),
        ("<property name='a' value='${b}'/><property name='b' value='${c}'/><property name='c' value='z'/>",
         {"a": "z", "b": "z", "c": "z"}),
        ("<property name='a' value='${unknown}/${b}'/><property name='b' value='y'/>",
         {"a": "${unknown}/y", "b": "y"}),
        ("<property name='a' value='${k${b}}'/><property name='b' value='1'/><property name='k1' value='v'/>",
         {"a": "v", "b": "1", "k1": "v"}),
        ("<property name='a' value='$b ${} ${ b} $'/><property name='b' value='1'/>",
         {"a": "$b ${} ${ b} $", "b": "1"}),
        (f"<property name='a' value='{'${b}' * 20}'/><property name='b' value='y'/>", {"a": "y" * 20, "b": "y"}),
        (f"<property name='a' value='{'${no}' * 50}'/>", {"a": "${no}" * 50}),
    ],
)  # fmt: skip
def test_site_file_format(site_file: Path, body: str, properties: dict[str, str]) -> None:
    site_file.write_text(f"<configuration>{body}</configuration>")
    assert dict(Config.of(site_file).properties) == properties


def test_a_substituted_value_is_what_counts(site_file: Path) -> None:
    site_file.write_text(site(("hbase.rpc.timeout", "${my.timeout}"), ("my.timeout", "5000")))
    assert Config.of(site_file).rpc_timeout_s == 5.0


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-1"])
def test_site_file_encodings(site_file: Path, encoding: str) -> None:
    declared = encoding.removesuffix("-sig")
    text = f'<?xml version="1.0" encoding="{declared}"?><configuration><property name="a" value="ü"/></configuration>'
    site_file.write_bytes(text.encode(encoding))
    assert Config.of(site_file).properties["a"] == "ü"


BILLION_LAUGHS = (
    '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    "<configuration><property><name>a</name><value>&b;</value></property></configuration>"
)
OUTSIDE = (
    '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
    "<configuration><property><name>a</name><value>&a;</value></property></configuration>"
)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "broken XML: no element found"),
        ("rpc.timeout=5", 1, "broken XML: not well-formed"),
        ("<configuration>\n<property>\n</configuration>", 3, "broken XML: mismatched tag"),
        ("<configuration>\n", 2, "broken XML: no element found"),
        ("<configuration/>\n<configuration/>", 2, "broken XML: junk after document element"),
        ("<configuration>\n\n&nope;</configuration>", 3, "broken XML: undefined entity"),
        ('<?xml version="1.0" encoding="klingon"?><configuration/>', 1, "broken XML: "),
        ('<?xml version="1.0" encoding="utf-7"?><configuration/>', 1, "broken XML: "),
        ("<configuration>\x00</configuration>", 1, "broken XML: "),
        ("<a>" * 100_000, 1, "<a> in place of <configuration>"),
        ("<configuration>" + "<a>" * 100_000, 1, "broken XML: no element found"),
        ("<html>\n</html>", 1, "<html> in place of <configuration>; is it an hbase-site.xml?"),
        (BILLION_LAUGHS, 1, "a DOCTYPE is refused"),
        (OUTSIDE, 1, "a DOCTYPE is refused"),
        ('<?xml version="1.0"?>\n<!DOCTYPE configuration>\n<configuration/>', 2, "a DOCTYPE is refused"),
        ('<configuration>\n<xi:include href="x.xml"/></configuration>', 2, "an include is not followed"),
        ("<configuration>\n<property>\n<value>1</value></property></configuration>", 2, "no <name> in a property"),
        ("<configuration>\n<property><name> </name><value>1</value></property></configuration>", 2, "no <name>"),
        ("<configuration>\n\n<property><name>a</name></property></configuration>", 3, "no <value> in the property a"),
    ],
)
def test_hostile_or_broken_site_file_names_file_and_line(site_file: Path, text: str, line: int, message: str) -> None:
    site_file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        Config.of(site_file)
    assert str(caught.value).startswith(f"{site_file}:{line}: {message}")
    assert len(str(caught.value)) < 300 + len(str(site_file))


def test_refused_value_names_file_and_line(site_file: Path) -> None:
    site_file.write_text(site(("a", "1"), ("hbase.rpc.timeout", "soon")))
    with pytest.raises(ConfigError) as caught:
        Config.of(site_file)
    assert str(caught.value) == (
        f"hbase.rpc.timeout = 'soon' ({site_file}:4): not a number; "
        "allowed: a number of ms, more than 0 and at most 2592000000"
    )


def test_unknown_name_and_order_name_file_and_line(site_file: Path) -> None:
    site_file.write_text(site(("hbase.rpc.timeot", "1")))
    with pytest.warns(ConfigWarning, match=re.escape(f"hbase.rpc.timeot ({site_file}:3): no such property; did you")):
        assert Config.of(site_file) == Config()
    site_file.write_text(site(("metaclient.rpc_timeout", "1")))
    with pytest.raises(ConfigError, match=re.escape(f"metaclient.rpc_timeout ({site_file}:3): no such property")):
        Config.of(site_file)
    site_file.write_text(site(("hbase.client.locate.prefetch.limit", "5000")))
    with pytest.raises(ConfigError, match=re.escape(f"locate_prefetch = 5000 ({site_file}:3) is more than")):
        Config.of(site_file)


def test_unlimited_in_a_site_file_warns_with_file_and_line(site_file: Path) -> None:
    site_file.write_text(site(("hbase.client.operation.timeout", "0")))
    with pytest.warns(UserWarning, match=re.escape(f"({site_file}:3) is no limit in HBase; 24 hours")) as caught:
        assert Config.of(site_file).operation_timeout_s == 86_400.0
    assert len(caught) == 1, "the meta operation timeout follows without a warning of its own"


@pytest.mark.parametrize(
    "properties",
    [
        [("a", "${a}")],
        [("a", "${b}"), ("b", "${a}")],
        [("a", "x${a}")],
        [("a", "${b}" * 21), ("b", "y")],
        [(f"v{i}", f"${{v{i + 1}}}${{v{i + 1}}}") for i in range(40)] + [("v40", "ha")],
    ],
)
def test_substitution_loops_and_growth_end(site_file: Path, properties: list[tuple[str, str]]) -> None:
    site_file.write_text(site(*properties))
    with pytest.raises(ConfigError, match=rf"{re.escape(str(site_file))}:3\): \${{}} refers to itself, or is nested"):
        Config.of(site_file)


def test_substitution_cannot_fill_the_memory(site_file: Path) -> None:
    site_file.write_text(site(("big", "x" * 100_000), *((f"p{i}", "${big}" * 20) for i in range(1000))))
    with pytest.raises(ConfigError, match="bytes after substitution"):
        Config.of(site_file)


def test_too_large_a_file_is_not_read(site_file: Path) -> None:
    with site_file.open("wb") as file:
        file.truncate(5 << 20)
    with pytest.raises(ConfigError, match="more than 4194304 bytes"):
        Config.of(site_file)


def test_missing_files(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.xml", tmp_path, tmp_path / ("n" * 5000), tmp_path / "nul\0"):
        with pytest.raises(ConfigError, match=r"^config = .*allowed: the path of an hbase-site.xml, or of its folder"):
            Config.of(str(path))
    with pytest.raises(ConfigError, match=r"no file .*hbase-site.xml"):
        Config.of(tmp_path)


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "hbase-site.xml")
    with pytest.raises(ConfigError, match="no file"):
        Config.of(tmp_path)


def test_unreadable_file(site_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    site_file.write_text(site())
    monkeypatch.setattr(Path, "open", refuse)  # not chmod: root reads everything
    with pytest.raises(ConfigError, match="cannot be read: Permission denied; check its permissions"):
        Config.of(site_file)


def test_selector_is_short_for_meta_selector_and_both_are_refused() -> None:
    assert Config.of(selector="simple").meta_selector == "simple"
    with pytest.raises(ConfigError, match="the same as meta_selector"):
        Config.of(selector="simple", meta_selector="round_robin")
