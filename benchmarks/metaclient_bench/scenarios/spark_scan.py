"""S1, S2: a scan by the Spark connector on two cores, compared with happybase's scan and with bare processes.

All three read the same rows from the same gateway in the same run, one after the other; the figure is a ratio of
medians. The peer of S1 is one happybase scan, the usual way of a Python program. The peer of S2 is the least that this
protocol allows: two processes that fetch the same pages at the same time, decode them by thriftpy2, and drop them.

The table is flushed to files, as most data of a table is. The connector asks for its columns by name, the peers for all
columns. HBase seeks each named column, which costs little in files, but five times the whole row in the memstore.
"""

from __future__ import annotations

import json
import struct
import time
from statistics import median

import metaclient
from metaclient_bench.figure import Bars, Figure, Outcome
from metaclient_bench.gateways import HOST, Gateway, gateway
from metaclient_bench.scan_peers import Peers
from metaclient_bench.scenario import Scenario
from metaclient_bench.spark_cluster import SparkCluster

TABLE = "spark_scan"
COLUMNS = {"i": "int", "l": "bigint", "d": "double", "s": "string"}
CATALOG = json.dumps(
    {
        "table": {"namespace": "default", "name": TABLE},
        "rowkey": "key",
        "columns": {
            "id": {"cf": "rowkey", "col": "key", "type": "string"},
            **{name: {"cf": "cf", "col": name, "type": kind} for name, kind in COLUMNS.items()},
        },
    }
)
REGIONS = 2
#: The page sizes of happybase and of the connector.
HAPPYBASE_ROWS = 1000
WARM_UPS = 2


def run(quick: bool) -> Outcome:
    from spark_connector.reading.split_reader import CACHING

    with gateway() as served:
        rows = (20_000 if quick else 100_000) * (4 if served.is_real else 1)
        middle = key(rows // REGIONS)
        fill(served, rows)
        with (
            Peers("happybase", HOST, served.thrift1_port, TABLE, [(b"", b"")], HAPPYBASE_ROWS) as happybase,
            Peers("bare", HOST, served.thrift2_port, TABLE, [(b"", middle), (middle, b"")], CACHING) as bare,
            SparkCluster(workers=2) as cluster,
        ):
            seconds = measured(served, rows, happybase, bare, cluster, rounds=2 if quick else 5)
    spark, one, two = (median(seconds[name]) for name in ("spark", "happybase", "bare"))
    what = f"{rows} rows of 4 cells, {'real HBase' if served.is_real else 'fake'} gateway"
    figures = (
        Figure.of(
            "S1", f"times as fast as one happybase scan: {what}", one / spark, ">= 1.5", spark_s=spark, happybase_s=one
        ),
        Figure.of(
            "S2", f"share of two bare processes' speed: {what}", two / spark, ">= 0.6", spark_s=spark, bare_s=two
        ),
    )
    chart = Bars("scan of one table", "rows/s", {name: rows / median(each) for name, each in seconds.items()})
    return Outcome(figures, {"seconds": seconds, "rows": rows, "is_real": served.is_real}, (chart,))


def key(number: int) -> bytes:
    return b"row%012d" % number


def fill(served: Gateway, rows: int) -> None:
    with metaclient.connect(served.url) as connection:
        connection.create_table(TABLE, {"cf": {}}, splits=[key(rows * n // REGIONS) for n in range(1, REGIONS)])
        with connection.table(TABLE).batch(batch_size=2000) as batch:
            for number in range(rows):
                values = {
                    b"cf:i": struct.pack(">i", number),
                    b"cf:l": struct.pack(">q", number * 7),
                    b"cf:d": struct.pack(">d", number / 3),
                    b"cf:s": b"value-%07d" % number,
                }
                batch.put(key(number), values)
    served.flush(TABLE)


def measured(
    served: Gateway, rows: int, happybase: Peers, bare: Peers, cluster: SparkCluster, *, rounds: int
) -> dict[str, list[float]]:
    """Return the seconds of each kind of scan per round, after a warm-up."""
    import spark_connector

    spark = cluster.session("benchmark")
    spark.sparkContext.setLogLevel("ERROR")

    def by_spark() -> float:
        began = time.perf_counter()
        df = spark_connector.table(spark, CATALOG, url=served.url)
        df.write.format("noop").mode("overwrite").save()
        return time.perf_counter() - began

    def by_peers(peers: Peers) -> float:
        found, seconds = peers.scan()
        if found != rows:
            raise RuntimeError(f"a peer saw {found} of {rows} rows")
        return seconds

    try:
        if spark_connector.table(spark, CATALOG, url=served.url).count() != rows:
            raise RuntimeError(f"Spark did not see {rows} rows")
        seconds: dict[str, list[float]] = {"spark": [], "happybase": [], "bare": []}
        for number in range(WARM_UPS + rounds):
            taken = {"spark": by_spark(), "happybase": by_peers(happybase), "bare": by_peers(bare)}
            if number >= WARM_UPS:
                for name, each in taken.items():
                    seconds[name].append(each)
        return seconds
    finally:
        spark.stop()


SCENARIO = Scenario(
    "spark-scan",
    ("S1", "S2"),
    "a scan by Spark is faster than happybase and not far from bare pages",
    run,
    backend="gateway",
)
