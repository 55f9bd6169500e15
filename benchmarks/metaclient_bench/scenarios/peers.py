"""V1 - V8, V11, P1 - P3: this client compared with happybase and HBase's Java client, on one cluster.

Each client is a process of its own (:mod:`metaclient_bench.peer_clients`): this client by HBase's RPC, Thrift 2 and
Thrift 1, bare happybase, and the Java client, compiled from its source. The clients run in turns, and each round begins
with another one. A ratio is that of one round; the figure is the median of the rounds, and its spread is shown with it.
CPU is that of the whole client process per operation. Two rounds before do not count, because JVMs compile at run time.

Rows have one cell of 100 bytes; those of P1 - P3 and V11 have ten cells of 10 bytes. The scanned table is in files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import gettempdir
from urllib.parse import urlsplit

import metaclient
from metaclient.errors import ConfigError
from metaclient_bench.figure import Figure, Lines, Outcome
from metaclient_bench.peer_clients import (
    FAMILY,
    Peer,
    Sample,
    Work,
    row_of,
    start_java_peer,
    start_python_peer,
    values_of,
)
from metaclient_bench.places import LOCAL_HBASE
from metaclient_bench.scenario import Scenario
from metaclient_local_hbase import LocalHBase, missing_tools
from metaclient_local_hbase.admin import Admin

NATIVE, THRIFT2, THRIFT1 = "ours, hbase://", "ours, thrift2", "ours, thrift1"
HAPPYBASE, JAVA = "happybase", "Java client"
ROUNDS, WARM_UP_ROUNDS = 5, 2
REGIONS = 10
CALLERS = (1, 4, 16, 64)
ROWS, WIDE_ROWS, WIDE_COLUMNS = 100_000, 1_000, 10
#: Puts have a table of their own, so that the scanned table stays in files.
NARROW, WRITTEN, WIDE = "benchmark_peers", "benchmark_peers_written", "benchmark_peers_wide"
FILL_ROWS = 5_000
#: With fewer, the start of 64 threads is a large part of the time.
OPERATIONS_PER_CALLER = 32
#: A hang of a busy machine must not end the ZooKeeper session.
SESSION_S = 120.0


@dataclass(frozen=True, slots=True)
class Column:
    """A work and the clients that do it."""

    work: Work
    clients: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str, int]:
        return self.work.name, self.work.table, self.work.callers


#: (name of the work, table, callers) -> client -> one sample per round.
Samples = Mapping[tuple[str, str, int], Mapping[str, Sequence[Sample]]]


@dataclass(frozen=True, slots=True)
class Urls:
    native: str
    thrift1: str
    thrift2: str
    zookeeper: str
    log: Path


def run(quick: bool, backend: str = LOCAL_HBASE) -> Outcome:
    with _urls(backend) as urls:
        _fill(urls)
        load_before = os.getloadavg()
        with _peers(urls) as peers:
            samples = _rounds(_columns(500 if quick else 2_000), peers)
    loads = _loads(load_before, os.getloadavg())
    documented = {
        " ".join(map(str, key)): {name: [asdict(one) for one in each] for name, each in by_client.items()}
        for key, by_client in samples.items()
    }
    return Outcome(figures(samples), {"samples": documented, "load": loads}, charts(samples), (loads, as_text(samples)))


def _columns(count: int) -> list[Column]:
    """Return all columns; ``count`` is the number of operations of a short one."""
    everyone, gateways = (NATIVE, THRIFT2, HAPPYBASE, JAVA), (THRIFT1, THRIFT2, HAPPYBASE)
    wide = partial(Work, table=WIDE, callers=1, rows=WIDE_ROWS, columns=WIDE_COLUMNS)
    counts = {callers: max(count, callers * OPERATIONS_PER_CALLER) for callers in CALLERS}
    return [
        Column(Work("lookup", NARROW, 4, count, ROWS), (NATIVE, JAVA)),
        Column(Work("scan", NARROW, 1, ROWS, ROWS), everyone),
        *(Column(Work("get", NARROW, callers, counts[callers], ROWS), everyone) for callers in CALLERS),
        *(Column(Work("put", WRITTEN, callers, counts[callers], ROWS), everyone) for callers in CALLERS),
        Column(Work("rows", NARROW, 1, count * 10, ROWS), everyone),
        Column(wide(name="get", count=count), (NATIVE, *gateways)),
        Column(wide(name="put", count=count), gateways),
        Column(wide(name="scan", count=WIDE_ROWS), gateways),
        Column(wide(name="in_flight", count=count // 16 * 16), (NATIVE,)),
    ]


def _rounds(columns: Sequence[Column], peers: Mapping[str, Peer]) -> Samples:
    samples: dict[tuple[str, str, int], dict[str, list[Sample]]] = {
        column.key: {name: [] for name in column.clients} for column in columns
    }
    for number in range(WARM_UP_ROUNDS + ROUNDS):
        for column in columns:
            first = number % len(column.clients)
            for name in column.clients[first:] + column.clients[:first]:
                sample = peers[name].run(column.work)
                if number >= WARM_UP_ROUNDS:
                    samples[column.key][name].append(sample)
    return samples


# -- the cluster and its clients ---------------------------------------------------------------------------------------


@contextmanager
def _urls(backend: str) -> Iterator[Urls]:
    """Yield the urls of a new cluster, or of a running one: ``hbase://...+thrift1://...+thrift2://...``."""
    kind, _, version = backend.partition(":")
    if kind == LOCAL_HBASE:
        with LocalHBase(version or "2.6.1", session_s=SESSION_S) as hbase:
            log = hbase.folder / "logs" / "java-client.log"
            yield Urls(hbase.native_url, hbase.thrift1_url, hbase.thrift2_url, hbase.zookeeper, log)
        return
    urls = backend.split("+")
    if [urlsplit(url).scheme for url in urls] != ["hbase", "thrift1", "thrift2"]:
        raise ConfigError(
            f"peers runs on {LOCAL_HBASE} or on hbase://ZOOKEEPER+thrift1://HOST:PORT+thrift2://HOST:PORT, "
            f"got {backend!r}"
        )
    yield Urls(urls[0], urls[1], urls[2], urlsplit(urls[0]).netloc, Path(gettempdir()) / "metaclient-java-client.log")


def _fill(urls: Urls) -> None:
    """Create the tables that are missing; fill and flush those that are read."""
    with metaclient.connect(urls.native) as connection:
        existing = connection.tables()
        for name, rows, columns in ((NARROW, ROWS, 1), (WRITTEN, ROWS, 1), (WIDE, WIDE_ROWS, WIDE_COLUMNS)):
            if name.encode() in existing:
                continue
            splits = [row_of(rows // REGIONS * number, rows) for number in range(1, REGIONS)]
            connection.create_table(name, {FAMILY: {}}, splits=splits)
            if name == WRITTEN:
                continue
            with connection.table(name).batch(batch_size=FILL_ROWS) as batch:
                for number in range(rows):
                    batch.put(row_of(number, rows), values_of(columns))
            Admin(urls.zookeeper).flush(name.encode())


@contextmanager
def _peers(urls: Urls) -> Iterator[dict[str, Peer]]:
    starts = {
        NATIVE: start_python_peer(NATIVE, "ours", urls.native),
        THRIFT2: start_python_peer(THRIFT2, "ours", urls.thrift2),
        THRIFT1: start_python_peer(THRIFT1, "ours", urls.thrift1),
        HAPPYBASE: start_python_peer(HAPPYBASE, "happybase", urls.thrift1),
        JAVA: start_java_peer(JAVA, urls.zookeeper, urls.log),
    }
    with ExitStack() as stack:
        yield {name: stack.enter_context(start) for name, start in starts.items()}


# -- the results -------------------------------------------------------------------------------------------------------


def figures(samples: Samples) -> tuple[Figure, ...]:
    """Return the figures of all columns."""
    over = partial(_over, samples)
    scanned = [one.cpu_us for one in samples["scan", NARROW, 1][NATIVE]]
    tails = [one.p99_s / one.median_s for one in samples["get", NARROW, 64][THRIFT2]]
    alone, together = ([one.cpu_us for one in samples[name, WIDE, 1][NATIVE]] for name in ("get", "in_flight"))
    return (
        over("V1a", "lookups per second, 4 callers", "lookup", NARROW, 4, NATIVE, JAVA, ">= 1.2"),
        over("V1b", "CPU per lookup", "lookup", NARROW, 4, NATIVE, JAVA, "<= 1", is_cpu=True),
        over("V2a", "scanned rows per second", "scan", NARROW, 1, NATIVE, JAVA, ">= 1"),
        _spread("V2b", f"CPU microseconds per scanned row, {NATIVE} (a time)", scanned, "<= 3"),
        over("V3", "scanned rows per second", "scan", NARROW, 1, THRIFT2, HAPPYBASE, ">= 1.5"),
        over("V4a", "gets per second, 64 callers", "get", NARROW, 64, NATIVE, JAVA, ">= 1.1"),
        over("V4b", "CPU per get, 64 callers", "get", NARROW, 64, NATIVE, JAVA, "<= 1", is_cpu=True),
        over("V5a", "gets per second, 64 callers", "get", NARROW, 64, THRIFT2, HAPPYBASE, ">= 1.2"),
        _spread("V5b", f"p99 over the median of these gets, {THRIFT2}", tails, "<= 3"),
        over("V6", "puts per second, one caller", "put", WRITTEN, 1, NATIVE, JAVA, ">= 1.1"),
        over("V7a", "puts per second, 16 callers", "put", WRITTEN, 16, NATIVE, JAVA, ">= 1.1"),
        over("V7b", "CPU per put, 16 callers", "put", WRITTEN, 16, NATIVE, JAVA, "<= 1", is_cpu=True),
        over("V8", "gets per second in calls of 1,000 keys", "rows", NARROW, 1, NATIVE, JAVA, ">= 1"),
        _spread("V11a", "CPU microseconds of a native get of ten cells, alone (N4; a time)", alone, "<= 70"),
        _spread("V11b", "the same with 16 in flight (N5; a time)", together, "<= 25"),
        over("P1a", "gets per second, ten cells", "get", WIDE, 1, THRIFT1, HAPPYBASE, ">= 0.9"),
        over("P1b", "gets per second, ten cells", "get", WIDE, 1, THRIFT2, HAPPYBASE, ">= 1"),
        over("P2a", "puts per second, ten cells", "put", WIDE, 1, THRIFT1, HAPPYBASE, ">= 0.9"),
        over("P2b", "puts per second, ten cells", "put", WIDE, 1, THRIFT2, HAPPYBASE, ">= 1"),
        over("P3a", "scanned rows per second, ten cells", "scan", WIDE, 1, THRIFT1, HAPPYBASE, ">= 0.9"),
        over("P3b", "scanned rows per second, ten cells", "scan", WIDE, 1, THRIFT2, HAPPYBASE, ">= 1"),
    )


def _over(
    samples: Samples,
    id: str,
    what: str,
    work: str,
    table: str,
    callers: int,
    /,
    ours: str,
    peer: str,
    goal: str,
    *,
    is_cpu: bool = False,
) -> Figure:
    """Return the figure of a client's rate (or CPU per operation) over that of its peer in the same round."""
    measure: Callable[[Sample], float] = (lambda one: one.cpu_us) if is_cpu else (lambda one: one.rate)
    by_client = {name: [measure(one) for one in each] for name, each in samples[work, table, callers].items()}
    ratios = [one / other for one, other in zip(by_client[ours], by_client[peer], strict=True)]
    unit = "cpu_us" if is_cpu else "per_second"
    shown = {f"{_key(name)}_{unit}": median(by_client[name]) for name in (ours, peer)}
    return _spread(id, f"{what}, {ours} over {peer}", ratios, goal, **shown)


def _spread(id: str, what: str, values: Sequence[float], goal: str, **beside: float) -> Figure:
    return Figure.of(id, what, median(values), goal, least=min(values), most=max(values), **beside)


def _key(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in name.lower()).strip("_").replace("__", "_")


def as_text(samples: Samples) -> str:
    """Return a line per work, callers and client: medians, and in brackets the least and most of the rounds."""
    lines = [f"{'work':32}{'client':18}{'per second':>28}{'CPU us':>26}{'median ms':>11}{'p99 ms':>9}"]
    for (work, table, callers), by_client in samples.items():
        kind = f"{work}, {callers} caller{'s' if callers > 1 else ''}{', ten cells' if table == WIDE else ''}"
        for name, each in by_client.items():
            rates, cpu = [one.rate for one in each], [one.cpu_us for one in each]
            lines.append(
                f"{kind:32}{name:18}{_range(rates):>28}{_range(cpu):>26}"
                f"{median(one.median_s for one in each) * 1e3:>11.2f}{median(one.p99_s for one in each) * 1e3:>9.2f}"
            )
    return "\n".join(lines)


def _range(values: Sequence[float]) -> str:
    middle, least, most = median(values), min(values), max(values)
    return (
        f"{middle:,.4g} [{least:,.4g} - {most:,.4g}]" if most < 1000 else f"{middle:,.0f} [{least:,.0f} - {most:,.0f}]"
    )


def _loads(before: tuple[float, float, float], after: tuple[float, float, float]) -> str:
    one, other = (" ".join(f"{load:.2f}" for load in loads) for loads in (before, after))
    return f"load of the machine (1, 5, 15 minutes; {os.cpu_count()} cores): {one} before, {other} after"


def charts(samples: Samples) -> tuple[Lines, ...]:
    """Return rate and CPU per operation by number of callers, for gets and for puts."""
    ticks = {float(at): str(callers) for at, callers in enumerate(CALLERS)}
    drawn: list[Lines] = []
    for work, table in (("get", NARROW), ("put", WRITTEN)):
        by_client = {name: [samples[work, table, each][name] for each in CALLERS] for name in samples[work, table, 1]}
        rates = {name: [median(one.rate for one in each) for each in rows] for name, rows in by_client.items()}
        cpu = {name: [median(one.cpu_us for one in each) for each in rows] for name, rows in by_client.items()}
        for title, unit, values in (
            (f"{work}s per second by number of callers", "per second", rates),
            (f"CPU of the client process per {work}", "microseconds", cpu),
        ):
            series = {name: (list(ticks), each) for name, each in values.items()}
            drawn.append(Lines(title, "callers", unit, series, ticks=ticks))
    return tuple(drawn)


SCENARIO = Scenario(
    "peers",
    (
        *("V1a", "V1b", "V2a", "V2b", "V3", "V4a", "V4b", "V5a", "V5b", "V6", "V7a", "V7b", "V8", "V11a", "V11b"),
        *("P1a", "P1b", "P2a", "P2b", "P3a", "P3b"),
    ),
    "lookups, gets, puts and scans beside happybase and HBase's Java client on the same cluster",
    run,
    backend=LOCAL_HBASE,
    run_on=run,
    missing=missing_tools,
)
