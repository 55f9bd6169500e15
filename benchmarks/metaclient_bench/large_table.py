"""Programs of the scenario ``large-tables``, each in a process of its own, so that its CPU time and memory are its own.

- ``serve REGIONS ROWS``: a fake with a table of many regions and a table of many rows. It prints what creating, warming
  up and planning cost, and its urls, as JSON; it ends when standard input ends.
- ``cached URL``: prints the MB that the locations of the large table need in a client.
- ``scanned URL``: prints the MB that a scan of all rows needs beyond the memory of a scan of two pages.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import time
from collections.abc import Iterator
from typing import Any

import metaclient
from metaclient_bench.keyspace import splits
from metaclient_fake import FakeCluster

REGIONS_TABLE, ROWS_TABLE = "regions", "rows"
SERVERS = 20
VALUE_BYTES = 100
#: The longest that creating or listing the table may take, on a machine that runs other programs, too; HBase's default.
TIMEOUTS: dict[str, Any] = {"operation_timeout_s": 1200.0}
#: Rows of the two pages that come first. A page of Thrift 2 has 1,000 rows; one of native RPC has 2 MB, about 13,000.
TWO_PAGES = {"thrift2": 2_000, "hbase": 26_000, "hbase+rpc": 26_000}
_MAPPING = "id STRING :key, a STRING cf:a"


def serve(regions: int, rows: int) -> None:
    with FakeCluster(servers=SERVERS) as cluster:
        with cluster.connect(**TIMEOUTS) as connection:
            measured = {"create_us": _create(connection, regions)}
            with cluster.connect(**TIMEOUTS) as client:
                measured["first_warm_up_us"] = _warm_up(client, regions)
            with cluster.connect(**TIMEOUTS) as client:
                measured["warm_up_us"] = _warm_up(client, regions)
                measured["first_plan_s"], _ = _plan(client)
                measured["plan_s"], measured["splits"] = _plan(client)
            _fill(connection, rows)
        front = cluster.serve(rpc_port=0)
        urls = {"native": front.rpc_url, "thrift2": front.thrift2_url}
        print(json.dumps({**measured, **urls}), flush=True)
        sys.stdin.read()


def _create(connection: metaclient.Connection, regions: int) -> float:
    """Create the table; return the CPU microseconds per region."""
    begun = time.process_time()
    connection.create_table(REGIONS_TABLE, {"cf": {}}, splits=splits(regions))
    return (time.process_time() - begun) / regions * 1e6


def _warm_up(connection: metaclient.Connection, regions: int) -> float:
    """Read all locations; return the CPU microseconds per region."""
    begun = time.process_time()
    assert connection.warm_up(REGIONS_TABLE) == regions
    return (time.process_time() - begun) / regions * 1e6


def _plan(connection: metaclient.Connection) -> tuple[float, int]:
    """Plan a Spark job over the table; return the CPU seconds and the number of splits.

    The first plan reads hbase:meta as ``warm_up`` does; a plan that soon follows uses the same locations.
    """
    from spark_connector.planning.query import Query
    from spark_connector.planning.splits import plan
    from spark_connector.settings.options import Options

    options = {"hbase.table": REGIONS_TABLE, "hbase.columns.mapping": _MAPPING, "url": "fake:"}
    query = Query.of(Options.parse(options))
    begun = time.process_time()
    made = plan(connection, query)
    return time.process_time() - begun, len(made)


def _fill(connection: metaclient.Connection, rows: int) -> None:
    connection.create_table(ROWS_TABLE, {"cf": {}})
    with connection.table(ROWS_TABLE).batch(batch_size=10_000) as batch:
        for number in range(rows):
            batch.put(b"%08d" % number, {b"cf:a": b"v" * VALUE_BYTES})


def _resident_mb() -> float:
    with open("/proc/self/statm") as status:
        return int(status.read().split()[1]) * resource.getpagesize() / 1e6


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def cached(url: str) -> None:
    with metaclient.connect(url, **TIMEOUTS) as connection:
        connection.locate(ROWS_TABLE, b"r")
        gc.collect()
        before = _resident_mb()
        connection.warm_up(REGIONS_TABLE)
        gc.collect()
        print(_resident_mb() - before)


def scanned(url: str) -> None:
    with metaclient.connect(url, **TIMEOUTS) as connection:
        table: Any = connection.table(ROWS_TABLE)

        def read(limit: int | None) -> Iterator[Any]:
            return iter(table.scan(limit=limit))

        for _ in read(TWO_PAGES[url.partition(":")[0]]):
            pass
        before = _peak_mb()
        for _ in read(None):
            pass
        print(_peak_mb() - before)


if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    if name == "serve":
        serve(*map(int, arguments))
    else:
        {"cached": cached, "scanned": scanned}[name](*arguments)
