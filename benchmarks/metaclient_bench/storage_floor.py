"""Measures the region engine alone: the least cost of a put, a get and a scan of the fake.

Prints microseconds per row or cell (CPU time of the thread, so that a busy machine matters little), and megabytes
resident. Run ``python -m metaclient_bench.storage_floor``; ``--rows 1000000 --columns 1`` for rows of one cell.
"""

from __future__ import annotations

import argparse
import gc
import resource
import time
from collections.abc import Callable

from metaclient.model import LATEST_TIMESTAMP, Cell, FamilyDescriptor, Get, Put, RegionInfo, Scan, TableDescriptor
from metaclient.runtime import ThreadRuntime
from metaclient_fake.storage import FileSystem, Region, packed_lane, packed_row

VALUE_BYTES = 100
PAGE_ROWS, PAGE_BYTES = 1000, 2 * 1024 * 1024


def opened(runtime: ThreadRuntime) -> Region:
    filesystem = FileSystem()
    table = TableDescriptor(b"t", (FamilyDescriptor(b"cf"),))
    return Region.open(
        RegionInfo(b"t", region_id=1), table, filesystem, wal=filesystem.create_wal("floor"), runtime=runtime
    )


def resident_mb() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1e6


def timed(label: str, count: int, work: Callable[[], object]) -> None:
    gc.collect()
    started = time.thread_time()
    work()
    elapsed = time.thread_time() - started
    print(f"{label:44} {elapsed / count * 1e6:8.2f} us")


def fill(region: Region, rows: int, columns: int) -> None:
    for index in range(rows):
        cells = tuple(
            Cell(b"cf:c%02d" % column, LATEST_TIMESTAMP, (b"%08d" % index).ljust(VALUE_BYTES))
            for column in range(columns)
        )
        region.mutate(Put(b"row-%08d" % index, cells))


def read_all(region: Region, scan: Scan) -> int:
    scanner = region.scanner(scan)
    cells, is_end = 0, False
    while not is_end:
        results, is_end = scanner.next(PAGE_ROWS, PAGE_BYTES)
        cells += sum([len(result.cells) for result in results])
    return cells


def one_cell_rows(runtime: ThreadRuntime, rows: int) -> None:
    region = opened(runtime)
    puts = [Put(b"row-%08d" % i, (Cell(b"cf:a", LATEST_TIMESTAMP, b"value"),)) for i in range(rows)]
    gets = [Get(b"row-%08d" % i) for i in range(rows)]
    columns = [Get(b"row-%08d" % i, (b"cf:a",)) for i in range(rows)]
    timed("put, new row of 1 cell", rows, lambda: [region.mutate(put) for put in puts])
    timed("get, memstore", rows, lambda: [region.get(get) for get in gets])
    timed("put, over a row", rows, lambda: [region.mutate(put) for put in puts])
    timed("get, memstore, 2 versions", rows, lambda: [region.get(get) for get in gets])
    timed("get of a column, memstore, 2 versions", rows, lambda: [region.get(get) for get in columns])
    timed(
        "batch of 1000 puts, a row", rows, lambda: [region.batch(puts[at : at + 1000]) for at in range(0, rows, 1000)]
    )
    timed("flush, a row", rows, lambda: region.flush())
    timed("get, file", rows, lambda: [region.get(get) for get in gets])
    timed("put after flush", rows, lambda: [region.mutate(put) for put in puts])
    timed("get, memstore over file", rows, lambda: [region.get(get) for get in gets])


def wide_rows(runtime: ThreadRuntime, rows: int, columns: int) -> None:
    before = resident_mb()
    region = opened(runtime)
    cells = rows * columns
    timed(f"put, row of {columns} cells (with making them)", rows, lambda: fill(region, rows, columns))
    timed("scan, memstore, a cell", cells, lambda: read_all(region, Scan()))
    print(f"{f'{cells} cells of {VALUE_BYTES} bytes, memstore':44} {resident_mb() - before:8.0f} MB")
    timed("flush, a cell", cells, lambda: region.flush())
    timed("scan, file, a cell", cells, lambda: read_all(region, Scan()))
    timed("scan reversed, file, a cell", cells, lambda: read_all(region, Scan(is_reversed=True)))
    timed("scan of 2 columns, file, a row", rows, lambda: read_all(region, Scan(columns=(b"cf:c01", b"cf:c03"))))
    condition = b"SingleColumnValueFilter('cf', 'c01', >, 'binary:0')"
    timed("scan with a filter, file, a cell", cells, lambda: read_all(region, Scan(filter=condition)))
    print(f"{f'{cells} cells of {VALUE_BYTES} bytes, flushed':44} {resident_mb() - before:8.0f} MB")
    fill(region, rows // 10, columns)
    region.flush()
    timed("scan, 2 files, a cell", cells, lambda: read_all(region, Scan()))
    timed("major compaction, a cell", cells, lambda: region.compact(major=True))
    timed("scan, compacted, a cell", cells, lambda: read_all(region, Scan()))


def lane(runtime: ThreadRuntime, rows: int) -> dict[str, float]:
    """Return microseconds per row of one cell, the best of three rounds, and bytes per row."""
    puts = [Put(b"row-%08d" % i, (Cell(b"cf:a", LATEST_TIMESTAMP, b"v" * VALUE_BYTES),)) for i in range(rows)]
    gets = [Get(put.row) for put in puts]
    found: dict[str, float] = {}

    def note(label: str, work: Callable[[Region], object], region: Region) -> None:
        gc.collect()
        started = time.thread_time()
        work(region)
        found[label] = min(found.get(label, 1e9), (time.thread_time() - started) / rows * 1e6)

    for _ in range(3):
        region, before = opened(runtime), resident_mb()
        note("put", lambda region: [region.mutate(put) for put in puts], region)
        found.setdefault("bytes", (resident_mb() - before) * 1e6 / rows)
        note("get", lambda region: [region.get(get) for get in gets], region)
        note("scan", lambda region: read_all(region, Scan()), region)
    return found


def lanes(runtime: ThreadRuntime, rows: int) -> None:
    """Compare the packed-row lane with the ordinary lane (:mod:`metaclient_fake.storage.packed_lane`)."""
    packed = lane(runtime, rows)
    packed_lane.PackedLane.put = lambda *_: False  # type: ignore[method-assign]  # the process ends after this
    unpacked = lane(runtime, rows)
    packed_row.ROW_BYTES_MAX = -1
    objects = lane(runtime, rows)
    print(f"{'row of 1 cell':10} {'lane':>10} {'no lane':>10} {'no packing':>10}")
    for label in packed:
        print(f"{label:10} {packed[label]:10.2f} {unpacked[label]:10.2f} {objects[label]:10.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=10)
    parser.add_argument("--lanes", action="store_true", help="compare the packed-row lane with the ordinary lane")
    options = parser.parse_args()
    with ThreadRuntime() as runtime:
        if options.lanes:
            lanes(runtime, min(options.rows, 50_000))
            return
        one_cell_rows(runtime, min(options.rows, 50_000))
        gc.collect()
        wide_rows(runtime, options.rows, options.columns)


if __name__ == "__main__":
    main()
