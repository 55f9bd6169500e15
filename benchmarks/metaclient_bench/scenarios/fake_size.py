"""F4, F5: the size and the start-up time of the fake: memory of a million cells, and cost per region.

F4: resident memory of a separate process with 1 million cells of 100 bytes, in the memstore and after a flush: in rows
of 10 cells, of 2 cells, and of one cell (in batches, and put one by one with a log entry each). F5: seconds to create a
table and to warm up a client, per region, with 1,000 and 10,000 regions. A ratio near 1 means that the cost is linear.
"""

from __future__ import annotations

import subprocess
import sys
import time

import metaclient
from metaclient_bench.figure import Figure, Lines, Outcome
from metaclient_bench.scenario import Scenario

CELLS, CELL_BYTES = 1_000_000, 100
#: Cells per row, and rows per call.
SHAPES = ((10, 10_000), (2, 10_000), (1, 10_000), (1, 1))

#: Runs in a separate process, so that memory of earlier scenarios does not count.
_FILL = """
import sys, resource
import metaclient
from metaclient_fake import FakeCluster
def resident():
    with open("/proc/self/statm") as status:
        return int(status.read().split()[1]) * resource.getpagesize() / 1e6
cells, width, row_cells, call_rows = map(int, sys.argv[1:])
with FakeCluster(servers=3) as cluster, cluster.connect() as connection:
    connection.create_table("t", {"cf": {}}, splits=[b"row-%08d" % (n * cells // row_cells // 8) for n in range(1, 8)])
    table = connection.table("t")
    columns = [b"cf:c%02d" % number for number in range(row_cells)]
    with table.batch(batch_size=call_rows) as batch:
        put = batch.put if call_rows > 1 else table.put
        for number in range(cells // row_cells):
            put(b"row-%08d" % number, {c: (b"%d-%s" % (number, c)).ljust(width, b"x") for c in columns})
    print(resident())
    cluster.flush("t")
    print(resident())
"""


def run(quick: bool) -> Outcome:
    cells = CELLS // 10 if quick else CELLS
    shapes = SHAPES[:1] + SHAPES[2:3] if quick else SHAPES
    megabytes = {f"{width} per row, {rows} rows per call": _filled(cells, width, rows) for width, rows in shapes}
    small, large = (500, 2_000) if quick else (1_000, 10_000)
    few, many = _started(small, 20), _started(large, 200 if not quick else 40)
    per_region = {name: many[name] / large / (few[name] / small) for name in few}
    figures = (
        Figure.of(
            "F4",
            f"MB resident with {cells:,} cells of {CELL_BYTES} bytes, in memory or flushed; the most of all shapes",
            max(max(pair) for pair in megabytes.values()),
            "<= 400",
            **{name: max(pair) for name, pair in megabytes.items()},
        ),
        Figure.of(
            "F5a",
            f"creating a table: cost per region at {large:,} regions over that at {small:,}",
            per_region["create"],
            "<= 2",
            seconds=many["create"],
        ),
        Figure.of(
            "F5b",
            f"warm_up: cost per region at {large:,} regions over that at {small:,}",
            per_region["warm_up"],
            "<= 2",
            seconds=many["warm_up"],
        ),
    )
    series = {name: ([float(small), float(large)], [few[name], many[name]]) for name in few}
    chart = Lines("seconds by regions", "regions", "seconds", series)
    return Outcome(figures, {"few": few, "many": many, "mb, memstore and flushed": megabytes}, (chart,))


def _filled(cells: int, row_cells: int, call_rows: int) -> tuple[float, float]:
    arguments = [str(cells), str(CELL_BYTES), str(row_cells), str(call_rows)]
    done = subprocess.run([sys.executable, "-c", _FILL, *arguments], capture_output=True, text=True, check=True)
    memstore, flushed = (float(line) for line in done.stdout.split())
    return memstore, flushed


def _started(regions: int, servers: int) -> dict[str, float]:
    began = time.perf_counter()
    with metaclient.connect(f"fake:?servers={servers}&meta_replicas=3") as connection:
        connection.create_table("t", {"cf": {}}, splits=[b"%06d" % number for number in range(1, regions)])
        created = time.perf_counter()
        assert connection.warm_up("t") == regions
        return {"create": created - began, "warm_up": time.perf_counter() - created}


SCENARIO = Scenario(
    "fake-size", ("F4", "F5a", "F5b"), "the fake stays small and starts in linear time", run, backend="fake"
)
