"""Reports of meta lookups: totals that survive loss and repetition, from nobody but this application."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from metaclient.errors import ConfigError
from spark_connector import clients, lookup_counts
from spark_connector.lookup_counts import DRIVER, LINE_MAX, Collector, report, send


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector("127.0.0.1") as made:
        yield made


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_counts, "_reported", {})
    monkeypatch.setattr(lookup_counts, "_silent_until", float("-inf"))


def test_a_report_that_comes_twice_counts_once(collector: Collector) -> None:
    for _ in range(2):
        send(collector.address, {"w": {"1": 5, "2": 4}})
    assert collector.totals() == {"1": 5, "2": 4}


def test_a_late_report_does_not_take_anything_back(collector: Collector) -> None:
    send(collector.address, {"w": {"1": 5}})
    send(collector.address, {"w": {"1": 3}})
    assert collector.totals() == {"1": 5}


def test_driver_and_executors_are_told_apart(collector: Collector) -> None:
    send(collector.address, {DRIVER + "d": {"1": 1}, "a": {"1": 2, "0": 1}, "b": {"2": 3}})
    assert collector.summary() == {
        "reads_by_replica": {"0": 1, "1": 3, "2": 3},
        "total": 7,
        "driver": {"1": 1},
        "executors": {"0": 1, "1": 2, "2": 3},
        "processes": 2,
    }


def test_a_report_of_another_application_is_refused(collector: Collector) -> None:
    place = collector.address.partition("/")[0]
    with pytest.raises(OSError, match="did not acknowledge"):
        send(f"{place}/wrong", {"w": {"1": 5}})
    assert collector.totals() == {}


@pytest.mark.parametrize("line", [b"\n", b"nonsense\n", b'{"word": 1}\n', b"[]\n", b'{"reads": {"w": {"1": "x"}}}\n'])
def test_garbage_is_refused_and_the_next_report_is_taken(collector: Collector, line: bytes) -> None:
    host, port = collector.address.partition("/")[0].split(":")
    with socket.create_connection((host, int(port)), 30) as stranger:
        stranger.sendall(line)
        assert stranger.recv(10) == b""
    send(collector.address, {"w": {"1": 1}})
    assert collector.totals() == {"1": 1}


def test_a_report_that_is_too_long_is_not_sent(collector: Collector) -> None:
    with pytest.raises(ValueError, match="too long"):
        send(collector.address, {"w" * LINE_MAX: {"1": 1}})


def test_beyond_the_bound_the_oldest_are_kept_as_a_sum(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_counts, "PROCESSES_MAX", 3)
    for number in range(5):
        collector.take({f"w{number}": {"1": 1}})
    assert collector.processes == 3
    assert collector.totals() == {"1": 5}


def test_a_task_reports_only_what_is_news(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"1": 2}
    sent: list[object] = []
    monkeypatch.setattr(clients, "lookups_made", lambda: dict(made))
    monkeypatch.setattr(lookup_counts, "send", lambda address, reads: sent.append(json.loads(json.dumps(reads))))
    report(collector.address, {DRIVER + "planner": {"2": 1}})
    report(collector.address, {DRIVER + "planner": {"2": 1}})
    made["1"] = 3
    report(collector.address)
    name = clients.process_name()
    assert sent == [{name: {"1": 2}, DRIVER + "planner": {"2": 1}}, {name: {"1": 3}}]


def test_a_driver_that_cannot_be_reached_never_fails_a_task(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with Collector("127.0.0.1") as gone:
        address = gone.address
    monkeypatch.setattr(clients, "lookups_made", lambda: {"1": 2})
    report(address)
    assert "a report of 2 meta lookups did not reach the driver" in caplog.text
    caplog.clear()
    report(address)  # within the pause: not even tried
    assert not caplog.text


def test_nobody_asks_then_nobody_is_told() -> None:
    report(None)
    report("")


# -- counting is off, or impossible ------------------------------------------------------------------------------------


class _Conf:
    """A session's configuration; ``refuses`` raises where a value is set, as some servers of Spark Connect do."""

    def __init__(self, values: dict[str, str], refuses: Exception | None = None) -> None:
        self.values = {"spark.app.id": "app-1", **values}
        self.refuses = refuses

    def get(self, name: str, default: str) -> str:
        return self.values.get(name, default)

    def set(self, name: str, value: str) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.values[name] = value


class _Session:
    def __init__(self, conf: _Conf) -> None:
        self.conf = conf


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """session(values, refuses) -> a session whose driver is on this machine."""
    pytest.importorskip("pyspark")
    monkeypatch.setattr(lookup_counts, "driver_host", lambda spark: "127.0.0.1")
    monkeypatch.setattr(lookup_counts, "_collectors", {})
    monkeypatch.setattr(lookup_counts, "_failed", {})
    yield lambda values=None, refuses=None: _Session(_Conf(values or {}, refuses))
    for started in lookup_counts._collectors.values():
        started.close()


def test_without_counting_no_port_is_opened_and_nothing_is_set(session: Callable[..., Any]) -> None:
    spark = session()
    assert lookup_counts.collect(spark, is_wanted=False) is None
    assert not lookup_counts._collectors
    assert lookup_counts.CONF not in spark.conf.values


def test_the_sessions_switch_turns_counting_off(session: Callable[..., Any]) -> None:
    spark = session({lookup_counts.SWITCH: "off"})
    assert lookup_counts.collect(spark) is None
    assert not lookup_counts._collectors
    with pytest.raises(ConfigError, match=r"spark\.hbase\.lookups=off"):
        lookup_counts.lookups(spark)


def test_a_session_that_cannot_be_configured_works_without_counts(
    session: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    from pyspark.errors import PySparkException

    spark = session(refuses=PySparkException("[CANNOT_MODIFY_CONFIG] not here"))
    with caplog.at_level(logging.WARNING, logger=lookup_counts.__name__):
        for _ in range(3):
            assert lookup_counts.collect(spark) is None
    assert not lookup_counts._collectors, "the port is closed again"
    assert len(caplog.records) == 1
    with pytest.raises(ConfigError, match="CANNOT_MODIFY_CONFIG"):
        lookup_counts.lookups(spark)


def test_a_driver_that_cannot_listen_works_without_counts(
    session: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(host: str) -> socket.socket:
        raise OSError(13, "no ports here")

    monkeypatch.setattr(lookup_counts, "_listening", refuse)
    spark = session()
    assert lookup_counts.collect(spark) is None
    with pytest.raises(ConfigError, match="no ports here"):
        lookup_counts.lookups(spark)


def test_with_counting_the_address_is_in_the_configuration(session: Callable[..., Any]) -> None:
    spark = session()
    started = lookup_counts.collect(spark)
    assert started is not None
    assert spark.conf.values[lookup_counts.CONF] == started.address
    assert lookup_counts.lookups(spark)["total"] == sum(clients.lookups_made().values())
