"""N1 - N7: HBase's RPC compared with a Thrift 2 gateway, on one cluster; and the CPU cost of a call.

N1 - N3 are ratios of rates, native to thrift2, in alternating short rounds: gets of ten cells by one caller, by 64
callers, and cells of scans. N4 - N7 are times, because the goals are: CPU time of this process, all of its threads, for
a get of ten cells alone and with 16 in flight, and for 1000 scanned cells as rows and as Arrow, from pages of 10,000 as
bulk readers fetch them (for comparison, a scan of 1000 cells, which includes the cost of its call). The best of many
short rounds counts, because noise only adds time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median

import metaclient
from metaclient import Connection
from metaclient.errors import ConfigError
from metaclient.model import Get, RegionLocation, Scan
from metaclient.runtime import Pending
from metaclient_bench.figure import Bars, Figure, Outcome
from metaclient_bench.places import LOCAL_HBASE
from metaclient_bench.scenario import Scenario
from metaclient_local_hbase import LocalHBase, missing_tools
from metaclient_native import NativeBackend

TABLE = b"benchmark_native"
ROWS = [b"%06d" % number for number in range(1000)]
CELLS = 10
CALLERS = 64
THREADS = CALLERS + 16
IN_FLIGHT = 16
#: Calls of one round: few, so that rounds are close to each other in time.
CALLS = 64
SCANNED_ROWS = 100
PAGE_ROWS = len(ROWS)
CALL_S = 60.0
NATIVE, GATEWAY = "native", "thrift2"


def run(quick: bool, backend: str = LOCAL_HBASE) -> Outcome:
    rounds = 10 if quick else 60
    with (
        _urls(backend) as (native_url, gateway_url),
        metaclient.connect(native_url, threads_max=THREADS) as native,
        metaclient.connect(gateway_url, threads_max=THREADS) as gateway,
    ):
        _fill(native)
        both = {NATIVE: native, GATEWAY: gateway}
        alone = _in_turns({name: _one_caller(one) for name, one in both.items()}, rounds)
        many = _in_turns({name: _many_callers(one) for name, one in both.items()}, max(3, rounds // 4))
        scans = _in_turns({name: _scan(one) for name, one in both.items()}, rounds)
        cpu = _cpu(native, rounds)
    figures = (
        _ratio("N1", "gets per second by one caller, beside thrift2", alone, CALLS, ">= 1.5"),
        _ratio("N2", f"gets per second by {CALLERS} callers, beside thrift2", many, CALLS * 8, ">= 2"),
        _ratio("N3", "scanned cells per second, beside thrift2", scans, SCANNED_ROWS * CELLS, ">= 2"),
        Figure.of("N4", "CPU microseconds of a get of 10 cells, alone (a time)", cpu["get"], "<= 70"),
        Figure.of("N5", f"the same with {IN_FLIGHT} in flight (a time)", cpu["in_flight"], "<= 25"),
        _scanned("N6", "rows", cpu, "<= 1.5"),
        _scanned("N7", "Arrow", cpu, "<= 0.4"),
    )
    shown = {figure.what.partition(",")[0]: figure.value for figure in figures[:3]}
    chart = Bars("HBase's own RPC beside a Thrift 2 gateway, same cluster", "times as fast", shown, goal=2.0)
    samples = {"alone": alone, "many": many, "scans": scans}
    return Outcome(figures, {"seconds_by_round": samples, "cpu_us": cpu}, (chart,))


@contextmanager
def _urls(backend: str) -> Iterator[tuple[str, str]]:
    """Yield the urls of native RPC and gateway: of a new cluster, or ``hbase://...+thrift2://...`` of a running one."""
    kind, _, version = backend.partition(":")
    if kind == LOCAL_HBASE:
        with LocalHBase(version or "2.6.1", meta_replicas=1, region_servers=1) as hbase:
            yield hbase.native_url, hbase.thrift2_url
        return
    native, plus, gateway = backend.partition("+thrift2:")
    if not plus or not native.startswith("hbase"):
        raise ConfigError(f"native-calls runs on {LOCAL_HBASE} or on hbase://...+thrift2://..., got {backend!r}")
    yield native, f"thrift2:{gateway}"


def _fill(connection: Connection) -> None:
    if TABLE not in connection.tables():
        connection.create_table(TABLE, {"cf": {}})
    data = {b"cf:c%d" % number: b"v" * 20 for number in range(CELLS)}
    with connection.table(TABLE).batch(batch_size=500) as batch:
        for row in ROWS:
            batch.put(row, data)


def _one_caller(connection: Connection) -> Callable[[], None]:
    read = connection.table(TABLE).row

    def work() -> None:
        for row in ROWS[:CALLS]:
            read(row)

    return work


def _many_callers(connection: Connection) -> Callable[[], None]:
    read, runtime = connection.table(TABLE).row, connection.engine.runtime
    each = CALLS * 8 // CALLERS

    def caller(number: int) -> None:
        for row in ROWS[number * each : (number + 1) * each]:
            read(row)

    def work() -> None:
        for task in [runtime.start(caller, number, name="caller") for number in range(CALLERS)]:
            task.result()

    return work


def _scan(connection: Connection) -> Callable[[], None]:
    table = connection.table(TABLE)

    def work() -> None:
        found = sum(len(row) for _, row in table.scan(limit=SCANNED_ROWS, batch_size=SCANNED_ROWS))
        assert found == SCANNED_ROWS * CELLS

    return work


def _in_turns(works: dict[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work()
    for _ in range(rounds):
        for name, work in works.items():
            began = time.perf_counter()
            work()
            seconds[name].append(time.perf_counter() - began)
    return seconds


def _ratio(number: str, what: str, seconds: dict[str, list[float]], units: int, goal: str) -> Figure:
    return Figure.of(
        number,
        what,
        min(seconds[GATEWAY]) / min(seconds[NATIVE]),
        goal,
        of_medians=median(seconds[GATEWAY]) / median(seconds[NATIVE]),
        native_per_second=units / min(seconds[NATIVE]),
        thrift2_per_second=units / min(seconds[GATEWAY]),
    )


def _scanned(number: str, what: str, cpu: dict[str, float], goal: str) -> Figure:
    kind = what.lower()
    return Figure.of(
        number,
        f"CPU milliseconds of 1000 scanned cells as {what} (a time)",
        cpu[f"{kind}_page"] / 10_000,
        goal,
        scan_of_1000_cells=cpu[kind] / 1000,
    )


def _cpu(connection: Connection, rounds: int) -> dict[str, float]:
    """Return the CPU microseconds of each function in its best round, of all threads of this process."""
    backend, now = connection.engine.backend, connection.engine.runtime.now
    assert isinstance(backend, NativeBackend)
    place: RegionLocation = connection.locate(TABLE, ROWS[0])
    read = connection.table(TABLE).row

    def get() -> None:
        for row in ROWS[:CALLS]:
            read(row)

    def in_flight() -> None:
        for at in range(0, CALLS, IN_FLIGHT):
            deadline = now() + CALL_S
            calls = [backend.get(place, TABLE, Get(row), deadline) for row in ROWS[at : at + IN_FLIGHT]]
            _all(calls, deadline)

    def scanned(opened: Callable[..., object], rows: int) -> Callable[[], None]:
        scan = Scan(limit=rows, caching=rows)
        return lambda: _all([opened(place, TABLE, scan, now() + CALL_S)], now() + CALL_S)

    works = {
        "get": (get, CALLS),
        "in_flight": (in_flight, CALLS),
        "rows": (scanned(backend.scan_open, SCANNED_ROWS), 1),
        "rows_page": (scanned(backend.scan_open, PAGE_ROWS), 1),
        "arrow": (scanned(backend.scan_open_cells, SCANNED_ROWS), 1),
        "arrow_page": (scanned(backend.scan_open_cells, PAGE_ROWS), 1),
    }
    found: dict[str, float] = {}
    for name, (work, units) in works.items():
        work()
        taken = []
        for _ in range(rounds * 2):
            began = time.process_time()
            work()
            taken.append((time.process_time() - began) / units)
        found[name] = min(taken) * 1e6
    return found


def _all(calls: Sequence[object], deadline: float) -> None:
    for call in calls:
        assert isinstance(call, Pending)
        call.result(deadline)


SCENARIO = Scenario(
    "native-calls",
    ("N1", "N2", "N3", "N4", "N5", "N6", "N7"),
    "HBase's own RPC compared with a gateway, and the CPU cost of a call",
    run,
    backend=LOCAL_HBASE,
    run_on=run,
    missing=missing_tools,
)
