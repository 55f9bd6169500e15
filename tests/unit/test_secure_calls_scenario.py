"""The scenario secure-calls on samples made by hand: its figures and lines. No timings and no servers here."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest

import metaclient
from metaclient.errors import ConfigError
from metaclient_bench.scenarios import secure_calls
from metaclient_bench.scenarios.secure_calls import (
    AUTHENTICATION,
    KINDS,
    PRIVACY,
    ROUNDS,
    SCENARIO,
    SIMPLE,
    WARM_UP_ROUNDS,
    Kind,
    KindSample,
    as_text,
    figures,
)
from metaclient_fake import FakeCluster


def sample(factor: float = 1.0, first_ms: float = 2.0, rate: float = 400.0) -> KindSample:
    return KindSample(50.0 * factor, first_ms, rate, 0.1, 0.2)


def made() -> secure_calls.Samples:
    """Five rounds; in the last one the machine was ten times as slow for simple connections."""
    by_kind = {kind: [sample(1.2, 12.0, 300.0)] * 5 for kind in KINDS}
    by_kind[SIMPLE] = [sample()] * 4 + [sample(10.0, 20.0, 40.0)]
    by_kind[PRIVACY] = [sample(2.0, 13.0, 100.0)] * 5
    return by_kind


def test_every_promised_figure_is_measured_and_one_slow_round_does_not_decide() -> None:
    found = {figure.id: figure for figure in figures(made())}
    assert tuple(found) == SCENARIO.ids
    assert found["K1a"].value == pytest.approx(1.2)
    assert not found["K1a"].is_met
    assert (found["K1c"].value, found["K1c"].beside["least"]) == (pytest.approx(2.0), pytest.approx(0.2))
    assert (found["K2"].value, found["K2"].is_met) == (pytest.approx(10.0), True)
    assert (found["K3"].value, found["K3"].is_met) == (pytest.approx(0.25), False)
    assert found["K3"].beside["tls_simple"] == pytest.approx(0.75)


def test_kinds_take_turns_at_being_first_and_warm_up_rounds_do_not_count() -> None:
    order: list[str] = []
    kinds = {name: cast("Kind", name) for name in KINDS}

    def measure(kind: Any) -> KindSample:
        order.append(kind)
        return sample()

    samples = secure_calls._rounds(kinds, ROUNDS, measure)
    assert order[:: len(KINDS)][:3] == [SIMPLE, AUTHENTICATION, KINDS[2]]
    assert {len(each) for each in samples.values()} == {ROUNDS}
    assert len(order) == len(KINDS) * (ROUNDS + WARM_UP_ROUNDS)


def test_lines_show_the_medians_of_every_kind() -> None:
    lines = as_text(made()).splitlines()
    assert [line[:28].strip() for line in lines[1:]] == list(KINDS)
    privacy = next(line for line in lines if line.startswith(PRIVACY))
    assert privacy.split()[-5:] == ["100.0", "13.0", "100", "0.10", "0.20"]


def test_backend_that_is_no_cluster_is_refused(tmp_path: Path) -> None:
    for backend in ("thrift2://h:1", str(tmp_path)):
        with pytest.raises(ConfigError), secure_calls._cluster(backend):
            pass


def test_sample_of_a_simple_and_a_token_connection_of_the_fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls of the scenario, without Java: also a new connection per measured first call."""
    monkeypatch.setattr(secure_calls, "GETS", 3)
    with FakeCluster(servers=1) as cluster, ExitStack() as stack:
        front = cluster.serve(rpc_port=0, is_secure=True)
        options = {"token": front.issue_token("alice")}
        connection = stack.enter_context(metaclient.connect(front.rpc_url, **options))  # type: ignore[arg-type]
        kind = Kind(connection, str(front.rpc_url), {}, options)
        connection.create_table(secure_calls.TABLE, {"cf": {}})
        with connection.table(secure_calls.TABLE).batch() as batch:
            for number in range(1000):
                batch.put(secure_calls._row(number), {b"cf:q": bytes(secure_calls.SCAN_BYTES)})
        connection.table(secure_calls.TABLE).put(secure_calls.GET_ROW, {b"cf:q": b"x"})
        measured = secure_calls._sample(kind, 1, server_pid=0)
    assert measured.scan_server_cpu_s == 0.0
    assert min(measured.get_cpu_us, measured.first_call_ms, measured.scan_mb_s) > 0
