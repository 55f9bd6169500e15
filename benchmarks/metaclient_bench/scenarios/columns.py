"""A4: a table read into columns of Arrow, beside happybase's scan into a list of dicts, on one cluster.

happybase reads by the Thrift 1 gateway, ``to_arrow`` by the Thrift 2 gateway and by HBase's own RPC; the scans
alternate, in one process, and the best round of each counts. The three read the same rows, of three cells each, in
pages of the same number of rows. For comparison: raw cells, and CPU time of this process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from urllib.parse import urlsplit

import happybase

import metaclient
from metaclient import Table
from metaclient.errors import ConfigError
from metaclient_bench.figure import Bars, Figure, Outcome
from metaclient_bench.places import LOCAL_HBASE
from metaclient_bench.scenario import Scenario
from metaclient_local_hbase import LocalHBase, missing_tools

TABLE = "benchmark_columns"
SCHEMA = {"row": "string", "d:age": "int", "d:name": "string", "d:score": "double"}
PAGE_ROWS = 5000
HAPPYBASE, THRIFT2, NATIVE = "happybase", "thrift2", "native"


def run(quick: bool, backend: str = LOCAL_HBASE) -> Outcome:
    rows, rounds = (20_000, 5) if quick else (100_000, 15)
    with (
        _urls(backend) as (native_url, thrift2_url, thrift1_url),
        metaclient.connect(native_url) as native,
        metaclient.connect(thrift2_url) as gateway,
    ):
        _fill(native, rows)
        peer = urlsplit(thrift1_url)
        works: dict[str, Callable[[], int]] = {
            HAPPYBASE: _happybase(str(peer.hostname), int(peer.port or 9090)),
            THRIFT2: _to_arrow(gateway.table(TABLE)),
            NATIVE: _to_arrow(native.table(TABLE)),
            "thrift2 raw": _raw_cells(gateway.table(TABLE)),
            "native raw": _raw_cells(native.table(TABLE)),
        }
        seconds, cpu = _in_turns(works, rounds, rows)
    figures = tuple(
        Figure.of(
            number,
            f"rows per second of to_arrow by {name}, over happybase's scan into a list of dicts",
            min(seconds[HAPPYBASE]) / min(seconds[name]),
            ">= 5",
            of_medians=median(seconds[HAPPYBASE]) / median(seconds[name]),
            of_cpu=min(cpu[HAPPYBASE]) / min(cpu[name]),
            rows_per_second=rows / min(seconds[name]),
            happybase_rows_per_second=rows / min(seconds[HAPPYBASE]),
            raw_cells=min(seconds[HAPPYBASE]) / min(seconds[f"{name} raw"]),
        )
        for number, name in (("A4a", THRIFT2), ("A4b", NATIVE))
    )
    shown = {name: rows / min(taken) for name, taken in seconds.items()}
    chart = Bars("A table as columns of Arrow, beside happybase's rows", "rows per second", shown)
    return Outcome(figures, {"seconds_by_round": seconds, "cpu_seconds_by_round": cpu}, (chart,))


@contextmanager
def _urls(backend: str) -> Iterator[tuple[str, str, str]]:
    kind, _, version = backend.partition(":")
    if kind != LOCAL_HBASE:
        raise ConfigError(f"columns runs on {LOCAL_HBASE}, got {backend!r}")
    with LocalHBase(version or "2.6.1", meta_replicas=1, region_servers=1) as hbase:
        yield hbase.native_url, hbase.thrift2_url, hbase.thrift1_url


def _fill(connection: metaclient.Connection, rows: int) -> None:
    import pyarrow as pa

    connection.create_table(TABLE, {"d": {}})
    numbers = range(rows)
    data = pa.table(
        {
            "row": [f"user{number:08d}" for number in numbers],
            "d:age": pa.array([number % 100 for number in numbers], pa.int32()),
            "d:name": [f"name of user {number}" for number in numbers],
            "d:score": [number / 7 for number in numbers],
        }
    )
    assert connection.table(TABLE).put_arrow(data, SCHEMA) == rows


def _happybase(host: str, port: int) -> Callable[[], int]:
    def scan() -> int:
        connection = happybase.Connection(host, port)  # a gateway closes connections that are idle for a minute
        found = [dict(row, row=key) for key, row in connection.table(TABLE).scan(batch_size=PAGE_ROWS)]
        connection.close()
        return len(found)

    return scan


def _to_arrow(table: Table) -> Callable[[], int]:
    return lambda: int(table.to_arrow(schema=SCHEMA, batch_size=PAGE_ROWS).num_rows)


def _raw_cells(table: Table) -> Callable[[], int]:
    return lambda: int(table.to_arrow(batch_size=PAGE_ROWS).num_rows) // 3


def _in_turns(
    works: dict[str, Callable[[], int]], rounds: int, rows: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return the elapsed seconds and the CPU seconds of this process, of each work in each round."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    cpu: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds + 1):
        for name, work in works.items():
            began, began_cpu = time.perf_counter(), time.process_time()
            found = work()
            if found != rows:
                raise RuntimeError(f"{name} returned {found} of {rows} rows")
            if number:  # the first round fills caches
                seconds[name].append(time.perf_counter() - began)
                cpu[name].append(time.process_time() - began_cpu)
    return seconds, cpu


SCENARIO = Scenario(
    "columns",
    ("A4a", "A4b"),
    "a table as columns of Arrow, beside happybase's scan into a list of dicts",
    run,
    backend=LOCAL_HBASE,
    run_on=run,
    missing=missing_tools,
)
