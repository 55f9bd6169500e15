"""K1 - K3: the cost of authentication, protections and TLS, beside simple connections to the same servers.

The cluster is secure. Its servers also accept simple clients (hbase.ipc.server.fallback-to-simple-auth-allowed) and
plaintext, so that one process measures all kinds of connections in turns, on one cluster. A ratio is that of one round;
a figure is the median of the rounds, and its spread is shown with it.

K1  CPU of this process per get of one caller. The row has one cell of 100 bytes.
K2  time of the first call on a new connection, minus that of a simple connection.
K3  rate of a scan of 50 MB in cells of 1,000 bytes. CPU of this process and of the region server is shown beside.

The region server's JVM has the compiler of production (``-XX:TieredStopAtLevel=4``): the quick one, with which local
clusters start, encrypts without the processor's AES instructions.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import metaclient
from metaclient import Connection
from metaclient.config import Config
from metaclient.errors import ConfigError
from metaclient_bench.figure import Bars, Figure, Outcome
from metaclient_bench.places import LOCAL_HBASE
from metaclient_bench.scenario import Scenario
from metaclient_local_hbase import LocalHBase, missing_tools
from metaclient_native.connections import Connections
from metaclient_native.identity import IdentityCalls
from metaclient_native.security import Security

TABLE = b"benchmark_secure"
GET_ROW = b"get"
GET_BYTES, SCAN_BYTES, SCAN_MB = 100, 1000, 50
REGIONS = 10
FILL_ROWS = 1000
GETS, HANDSHAKES = 5000, 5
#: The first rounds do not count, because the JVM compiles at run time.
ROUNDS, WARM_UP_ROUNDS = 7, 2
#: A hang of a busy machine must not end the ZooKeeper session.
SESSION_S = 120.0
HEAP_MB = 1024
CALL_S = 60.0
SIMPLE = "simple"
AUTHENTICATION, INTEGRITY, PRIVACY = "Kerberos, authentication", "Kerberos, integrity", "Kerberos, privacy"
TLS, TLS_KERBEROS, TOKEN = "TLS, simple", "TLS, Kerberos", "token, privacy"
KINDS = (SIMPLE, AUTHENTICATION, INTEGRITY, PRIVACY, TLS, TLS_KERBEROS, TOKEN)


@dataclass(frozen=True, slots=True)
class KindSample:
    """One kind of connections in one round."""

    get_cpu_us: float
    first_call_ms: float
    scan_mb_s: float
    scan_cpu_s: float
    scan_server_cpu_s: float


#: Kind -> one sample per round.
Samples = Mapping[str, Sequence[KindSample]]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of connections: an open client, and the arguments of further ones."""

    connection: Connection
    url: str
    properties: Mapping[str, str]
    options: Mapping[str, Any]


def missing() -> str | None:
    """Return what must be installed before the scenario can run."""
    try:
        import gssapi
    except ImportError:
        return "the package gssapi is missing: pip install 'hbase-metaclient[kerberos]'"
    assert gssapi is not None
    return missing_tools()


def run(quick: bool, backend: str = LOCAL_HBASE) -> Outcome:
    megabytes, rounds = (5, 2) if quick else (SCAN_MB, ROUNDS)
    with _cluster(backend) as hbase, ExitStack() as stack:
        kinds = _kinds(hbase, stack)
        _fill(hbase, kinds[AUTHENTICATION].connection, megabytes)
        [pid] = [one["pid"] for one in hbase.status()["processes"] if one["name"] == "rs1"]
        samples = _rounds(kinds, rounds, lambda kind: _sample(kind, megabytes, pid))
    return Outcome(
        figures(samples),
        {"samples": {name: [asdict(one) for one in each] for name, each in samples.items()}},
        (_chart(samples),),
        (as_text(samples),),
    )


@contextmanager
def _cluster(backend: str) -> Iterator[LocalHBase]:
    """Yield a new cluster, or the one that runs in a folder, which must accept simple clients, too."""
    kind, _, version = backend.partition(":")
    if kind == LOCAL_HBASE:
        made = LocalHBase(
            version or "2.6.1",
            region_servers=1,
            meta_replicas=1,
            secure=True,
            tls=True,
            heap_mb=HEAP_MB,
            session_s=SESSION_S,
            properties={"hbase.ipc.server.fallback-to-simple-auth-allowed": "true"},
            region_server_options=["-XX:TieredStopAtLevel=4"],
        )
        with made as hbase:
            os.environ["KRB5_CONFIG"] = str(hbase.krb5_conf)  # the library reads it at its first use
            yield hbase
        return
    if not Path(backend).is_dir():
        raise ConfigError(
            f"secure-calls runs on {LOCAL_HBASE}[:VERSION] or in the folder of a cluster, got {backend!r}"
        )
    hbase = LocalHBase.at(backend)
    os.environ["KRB5_CONFIG"] = str(hbase.krb5_conf)
    yield hbase


def _kinds(hbase: LocalHBase, stack: ExitStack) -> dict[str, Kind]:
    principals = {
        f"hbase.{server}.kerberos.principal": "hbase/_HOST@TEST.LOCAL" for server in ("master", "regionserver")
    }

    def kind(url: str = hbase.native_url, protection: str | None = None, **options: Any) -> Kind:
        properties = {**principals, "hbase.rpc.protection": protection} if protection else {}
        connection = stack.enter_context(metaclient.connect(url, config=properties, **options))
        return Kind(connection, url, properties, options)

    as_alice = f"{hbase.native_url}?user=alice"  # the superuser; a simple client has the name that it gives
    made = {SIMPLE: kind(as_alice)}
    for name in (AUTHENTICATION, INTEGRITY, PRIVACY):
        made[name] = kind(protection=name.partition(", ")[2], **hbase.identity("alice"))
    made[TLS] = kind(as_alice, **hbase.tls_files())
    made[TLS_KERBEROS] = kind(protection="authentication", **hbase.identity("alice"), **hbase.tls_files())
    made[TOKEN] = kind(protection="privacy", token=made[AUTHENTICATION].connection.delegation_token())
    return made


def _fill(hbase: LocalHBase, connection: Connection, megabytes: int) -> None:
    if TABLE in connection.tables():
        connection.delete_table(TABLE, disable=True)
    rows = megabytes * 1_000_000 // SCAN_BYTES
    splits = [_row(rows // REGIONS * number) for number in range(1, REGIONS)]
    connection.create_table(TABLE, {"cf": {}}, splits=splits)
    with connection.table(TABLE).batch(batch_size=FILL_ROWS) as batch:
        for number in range(rows):
            batch.put(_row(number), {b"cf:q": os.urandom(SCAN_BYTES)})
    connection.table(TABLE).put(GET_ROW, {b"cf:q": bytes(GET_BYTES)})
    hbase.admin.flush(TABLE)


def _row(number: int) -> bytes:
    return b"scan%06d" % number


def _rounds(kinds: Mapping[str, Kind], rounds: int, sample: Callable[[Kind], KindSample]) -> Samples:
    """Measure all kinds per round; each round begins with another kind."""
    made: dict[str, list[KindSample]] = {name: [] for name in kinds}
    names = list(kinds)
    for number in range(WARM_UP_ROUNDS + rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            measured = sample(kinds[name])
            if number >= WARM_UP_ROUNDS:
                made[name].append(measured)
    return made


def _sample(kind: Kind, megabytes: int, server_pid: int) -> KindSample:
    table = kind.connection.table(TABLE)
    row = table.row
    row(GET_ROW)
    begun = time.process_time()
    for _ in range(GETS):
        row(GET_ROW)
    get_cpu_us = (time.process_time() - begun) / GETS * 1e6
    first_call_ms = median(_first_call_s(kind) for _ in range(HANDSHAKES)) * 1e3
    server_cpu_s, own_cpu_s, begun = _server_cpu_s(server_pid), time.process_time(), time.monotonic()
    scanned = sum(len(value) for _, cells in table.scan(row_prefix=b"scan") for value in cells.values())
    elapsed_s = time.monotonic() - begun
    if scanned != megabytes * 1_000_000:
        raise AssertionError(f"the scan returned {scanned} bytes of {megabytes} MB")
    return KindSample(
        get_cpu_us,
        first_call_ms,
        scanned / 1e6 / elapsed_s,
        time.process_time() - own_cpu_s,
        _server_cpu_s(server_pid) - server_cpu_s,
    )


def _first_call_s(kind: Kind) -> float:
    """Return the time of one call on a connection that is made for it."""
    engine = kind.connection.engine
    runtime = engine.runtime
    replicas = list(engine.reader.registry.replicas(runtime.now() + CALL_S))
    user = kind.url.partition("?user=")[2] or None
    connections = Connections(runtime, Security.of(user=user, config=Config.of(kind.properties, **kind.options)))
    try:
        begun = time.monotonic()
        IdentityCalls(connections, lambda deadline: replicas).whoami(runtime.now() + CALL_S)
        return time.monotonic() - begun
    finally:
        connections.close()


def _server_cpu_s(pid: int) -> float:
    """Return the CPU time of the region server so far; 0 where /proc is missing."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0.0
    user, system = text.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


# -- the results -------------------------------------------------------------------------------------------------------


def figures(samples: Samples) -> tuple[Figure, ...]:
    """Return the figures K1a to K3."""

    def over(id: str, kind: str, goal: str) -> Figure:
        ratios = _by_round(samples, kind, lambda one, simple: one.get_cpu_us / simple.get_cpu_us)
        shown = {"simple_us": median(one.get_cpu_us for one in samples[SIMPLE])}
        return _spread(id, f"CPU of a get, {kind} over simple", ratios, goal, **shown)

    handshakes = {
        kind: _by_round(samples, kind, lambda one, simple: one.first_call_ms - simple.first_call_ms)
        for kind in KINDS[1:]
    }
    rates = {kind: _by_round(samples, kind, lambda one, simple: one.scan_mb_s / simple.scan_mb_s) for kind in KINDS[1:]}
    return (
        over("K1a", AUTHENTICATION, "<= 1.05"),
        over("K1b", INTEGRITY, "<= 1.5"),
        over("K1c", PRIVACY, "<= 1.6"),
        over("K1d", TLS, "<= 1.3"),
        _spread(
            "K2",
            "milliseconds of a new connection with Kerberos, minus those of a simple one (a time)",
            handshakes[AUTHENTICATION],
            "<= 20",
            simple_ms=median(one.first_call_ms for one in samples[SIMPLE]),
            token_ms=median(handshakes[TOKEN]),
            tls_ms=median(handshakes[TLS]),
        ),
        _spread(
            "K3",
            "megabytes per second of a scan, Kerberos with privacy over simple",
            rates[PRIVACY],
            ">= 0.5",
            simple_mb_s=median(one.scan_mb_s for one in samples[SIMPLE]),
            **{_key(kind): median(rates[kind]) for kind in (AUTHENTICATION, INTEGRITY, TLS, TLS_KERBEROS, TOKEN)},
        ),
    )


def _by_round(samples: Samples, kind: str, measure: Callable[[KindSample, KindSample], float]) -> list[float]:
    return [measure(one, simple) for one, simple in zip(samples[kind], samples[SIMPLE], strict=True)]


def _spread(id: str, what: str, values: Sequence[float], goal: str, **beside: float) -> Figure:
    return Figure.of(id, what, median(values), goal, least=min(values), most=max(values), **beside)


def _key(kind: str) -> str:
    return kind.lower().replace(", ", "_")


def as_text(samples: Samples) -> str:
    """Return a line per kind with the medians of all rounds."""
    lines = [f"{'connections':28}{'us CPU/get':>12}{'first ms':>10}{'MB/s':>8}{'CPU s/scan':>12}{'of server':>11}"]
    for kind, each in samples.items():
        middle = {name: median(asdict(one)[name] for one in each) for name in asdict(each[0])}
        lines.append(
            f"{kind:28}{middle['get_cpu_us']:>12.1f}{middle['first_call_ms']:>10.1f}{middle['scan_mb_s']:>8.0f}"
            f"{middle['scan_cpu_s']:>12.2f}{middle['scan_server_cpu_s']:>11.2f}"
        )
    return "\n".join(lines)


def _chart(samples: Samples) -> Bars:
    values = {kind: median(one.scan_mb_s for one in each) for kind, each in samples.items()}
    return Bars("a scan of 50 MB by kind of connection, HBase on the same machine", "megabytes per second", values)


SCENARIO = Scenario(
    "secure-calls",
    ("K1a", "K1b", "K1c", "K1d", "K2", "K3"),
    "gets, new connections and scans with Kerberos, tokens and TLS beside simple connections",
    run,
    backend=LOCAL_HBASE,
    run_on=run,
    missing=missing,
)
