"""The programs of the scenario large-tables, on a small table: their answers have what the figures need."""

import pytest

from metaclient_bench.scenarios import large_tables


def test_programs_in_other_processes_answer_what_the_figures_need() -> None:
    with large_tables._served(20, 50) as served:
        assert served["splits"] == 20
        assert all(served[name] > 0 for name in ("create_us", "first_warm_up_us", "warm_up_us", "plan_s"))
        assert large_tables._measured("scanned", served["thrift2"]) >= 0
        assert large_tables._measured("scanned", served["native"]) >= 0
        assert isinstance(large_tables._measured("cached", served["native"]), float)


def test_simulated_clients_all_end_in_virtual_time() -> None:
    assert large_tables.simulated_per_core_s(clients=3, duration_s=2.0) > 0


def test_missing_pyspark_is_noticed_before_the_large_table_is_created(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_tables, "find_spec", lambda name: None if name == "pyspark" else object())
    missing = large_tables.SCENARIO.missing()
    assert missing is not None
    assert "metaclient[spark]" in missing
