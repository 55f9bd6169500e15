"""The scenarios, one module each; the list below has all of them."""

from __future__ import annotations

from typing import Final

from metaclient_bench.scenario import Scenario
from metaclient_bench.scenarios import (
    asyncio_calls,
    cached_locate,
    change_delay,
    changes,
    cluster_replication,
    cold_start,
    columns,
    fake_calls,
    fake_size,
    hung_backend,
    hung_replica,
    large_tables,
    meta_balance,
    meta_failover,
    meta_load,
    meta_scaling,
    native,
    peers,
    replication,
    secure_calls,
    slow_primary,
    slow_server,
    spark_files,
    spark_lookups,
    spark_scan,
    spark_write,
    strong_row,
    thundering_herd,
    timeline_table,
    timeline_tail,
    total_outage,
)

__all__ = ["SCENARIOS"]

#: In the order in which they are listed and run.
SCENARIOS: Final[tuple[Scenario, ...]] = (
    cached_locate.SCENARIO,
    strong_row.SCENARIO,
    cold_start.SCENARIO,
    meta_balance.SCENARIO,
    hung_replica.SCENARIO,
    hung_backend.SCENARIO,
    timeline_tail.SCENARIO,
    timeline_table.SCENARIO,
    slow_primary.SCENARIO,
    slow_server.SCENARIO,
    total_outage.SCENARIO,
    thundering_herd.SCENARIO,
    meta_scaling.SCENARIO,
    fake_calls.SCENARIO,
    fake_size.SCENARIO,
    large_tables.SCENARIO,
    replication.SCENARIO,
    cluster_replication.SCENARIO,
    changes.SCENARIO,
    columns.SCENARIO,
    change_delay.SCENARIO,
    meta_load.SCENARIO,
    meta_failover.SCENARIO,
    peers.SCENARIO,
    secure_calls.SCENARIO,
    native.SCENARIO,
    asyncio_calls.SCENARIO,
    spark_scan.SCENARIO,
    spark_write.SCENARIO,
    spark_files.SCENARIO,
    spark_lookups.SCENARIO,
)
