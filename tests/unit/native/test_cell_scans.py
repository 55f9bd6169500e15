"""Pages of cells from the fake's RPC front on virtual time: regions move, split and die, and every row comes once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pytest

pytest.importorskip("numpy")
pytest.importorskip("pyarrow")

import metaclient
from metaclient import MetaClientError
from metaclient.connection import connect_to
from metaclient.model import Consistency, FamilyDescriptor, Scan, TableDescriptor
from metaclient.runtime import SimRuntime
from metaclient.scanner import CellScanner
from metaclient_fake import FakeCluster
from metaclient_fake.front.rpc import RpcFront
from metaclient_fake.front.rpc.virtual import VirtualPorts
from metaclient_fake.server.region_server import ServerState
from metaclient_native import NativeBackend
from metaclient_native.scanners import ScannerCalls

ROWS = [b"%03d" % number for number in range(120)]
SPLITS = [b"040", b"080"]


@dataclass
class Rig:
    runtime: SimRuntime
    cluster: FakeCluster
    connection: metaclient.Connection

    def scanner(self, *, timeline: bool = False, **scan: Any) -> Any:
        """An iterator over lists of (row, value) of each page."""
        consistency = Consistency.TIMELINE if timeline else Consistency.STRONG
        scanner = CellScanner(self.connection.engine.operations, b"t", Scan(**scan), consistency, None)
        for page, place in scanner:
            rows = [(cell["row"], cell["value"]) for cell in page.cells.to_pylist()]
            keys = sorted({row for row, _ in rows})
            assert (page.rows, page.first_row, page.last_row) == (len(keys), keys[0], keys[-1])
            assert place is not None
            assert page.is_stale == (place.replica_id != 0)
            yield rows

    def other_server(self, region: str) -> str:
        at = self.cluster.status()["regions"][region]["server"]
        return next(server for server in self.cluster.servers() if server not in str(at))

    def open_scanners(self) -> int:
        return sum(one["scanners"] for one in self.cluster.status()["servers"].values())


@pytest.fixture
def rig() -> Iterator[Rig]:
    with SimRuntime(seed=3) as runtime, FakeCluster(servers=4, meta_replicas=3, seed=3, runtime=runtime) as cluster:
        ports = VirtualPorts(runtime)
        front = RpcFront(cluster, "127.0.0.1", 0, listen=ports.listen)
        cluster.create_table(TableDescriptor(b"t", (FamilyDescriptor(b"f"),), region_replication=2), SPLITS)
        url = f"hbase+rpc://127.0.0.1:{front.listener.port}"
        with connect_to(NativeBackend(url, runtime=runtime, dial=ports.dial), runtime=runtime) as connection:
            with connection.table("t").batch() as batch:
                for row in ROWS:
                    batch.put(row, {b"f:a": b"1" + row, b"f:b": b"2" + row})
            yield Rig(runtime, cluster, connection)
        front.close()


def wanted(rows: list[bytes]) -> list[tuple[bytes, bytes]]:
    return [(row, number + row) for row in rows for number in (b"1", b"2")]


def flat(pages: Iterator[list[Any]]) -> list[tuple[bytes, bytes]]:
    return [each for page in pages for each in page]


@pytest.mark.parametrize("caching", [1, 7, 1000])
def test_all_rows_once_over_regions(rig: Rig, caching: int) -> None:
    assert flat(rig.scanner(caching=caching)) == wanted(ROWS)
    assert flat(rig.scanner(caching=caching, start_row=b"035", stop_row=b"090")) == wanted(ROWS[35:90])
    assert flat(rig.scanner(caching=caching, start_row=b"040", stop_row=b"040\0")) == wanted([b"040"])
    assert flat(rig.scanner(caching=caching, start_row=b"9")) == []
    rig.runtime.sleep(1)
    assert rig.open_scanners() == 0


@pytest.mark.parametrize("limit", [1, 7, 40, 41, 119, 500])
def test_limit_counts_rows_over_pages_and_regions(rig: Rig, limit: int) -> None:
    assert flat(rig.scanner(caching=9, limit=limit)) == wanted(ROWS[:limit])


def test_small_pages_end_where_the_server_says(rig: Rig) -> None:
    sizes = [len(page) for page in rig.scanner(max_result_bytes=100)]
    assert sum(sizes) == 2 * len(ROWS)
    assert len(sizes) > 20


@pytest.mark.parametrize("timeline", [False, True])
@pytest.mark.parametrize("change", ["move", "split", "merge", "kill"])
def test_regions_change_between_two_pages(rig: Rig, change: str, timeline: bool) -> None:
    rig.cluster.wait_until_replicated(60)
    pages = rig.scanner(caching=7, timeline=timeline)
    seen = flat(islice(pages, 7))  # in the middle of the second region
    regions = rig.cluster.regions("t")
    if change == "move":
        rig.cluster.move(regions[1], rig.other_server(regions[1]))
        rig.cluster.move(regions[2], rig.other_server(regions[2]))
    elif change == "split":
        rig.cluster.split(regions[1], b"041")
        rig.cluster.split(regions[2], b"100")
    elif change == "merge":
        rig.cluster.merge(regions[1], regions[2])
    else:
        at = str(rig.cluster.status()["regions"][regions[1]]["server"])
        rig.cluster.kill(next(server for server in rig.cluster.servers() if server in at))
    assert seen + flat(pages) == wanted(ROWS)


def test_scanner_whose_lease_is_over_is_opened_again_after_the_last_row(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody takes longer over a page than the lease, and renewals do not get through."""
    monkeypatch.setattr(ScannerCalls, "_renew", lambda self, scanner, now: scanner.renewal.complete(None))
    pages = rig.scanner(caching=7)
    seen = flat(islice(pages, 2))
    assert rig.open_scanners() == 1
    rig.runtime.sleep(3 * rig.cluster.config.scanner_lease_s)
    assert rig.open_scanners() == 0
    assert seen + flat(pages) == wanted(ROWS)


def test_idle_scanner_is_kept_by_renewals(rig: Rig) -> None:
    pages = rig.scanner(caching=7)
    seen = flat(islice(pages, 2))
    rig.runtime.sleep(3 * rig.cluster.config.scanner_lease_s)
    assert rig.open_scanners() == 1
    assert seen + flat(pages) == wanted(ROWS)


def test_closing_it_early_closes_the_servers_scanner(rig: Rig) -> None:
    pages = rig.scanner(caching=7)
    next(pages)
    assert rig.open_scanners() == 1
    pages.close()
    rig.runtime.sleep(1)
    assert rig.open_scanners() == 0


def torment(rig: Rig, rng: random.Random, until: float) -> int:
    """One fault after the other; each is over before the next but one."""
    cluster, runtime, done = rig.cluster, rig.runtime, 0
    while runtime.now() < until:
        runtime.sleep(rng.uniform(0.5, 8))
        for name in cluster.servers():
            if cluster.server_named(name).state is ServerState.DEAD:
                cluster.restart(name)
        victim = rng.choice(cluster.servers())
        try:
            match rng.choice(("kill", "pause", "slow", "move", "move", "split")):
                case "kill":
                    cluster.kill(victim)
                    runtime.sleep(rng.uniform(1, 20))
                    cluster.restart(victim)
                case "pause":
                    cluster.pause(victim, keeps_session=True)
                    runtime.sleep(rng.uniform(1, 10))
                    cluster.resume(victim)
                case "slow":
                    cluster.slow(victim, rng.uniform(0.01, 1.0))
                    runtime.sleep(rng.uniform(1, 10))
                    cluster.slow(victim, 0.0)
                case "move":
                    cluster.move(rng.choice(cluster.regions("t")), victim)
                case "split":
                    if len(cluster.regions("t")) < 20:
                        cluster.split(rng.choice(cluster.regions("t")))
        except MetaClientError:
            continue  # refused: another change of the region is under way
        done += 1
    return done


@pytest.mark.parametrize("seed", range(4))
def test_scans_through_a_storm_lose_and_repeat_nothing(rig: Rig, seed: int) -> None:
    rng = random.Random(seed)
    until = rig.runtime.now() + 300
    faults = rig.runtime.start(torment, rig, random.Random(f"{seed}/faults"), until)
    scans = 0
    while rig.runtime.now() < until:
        start, limit = rng.randrange(100), rng.choice([None, 20, 60])
        found: list[tuple[bytes, bytes]] = []
        for page in rig.scanner(caching=rng.choice([3, 11, 50]), start_row=ROWS[start], limit=limit):
            found += page
            rig.runtime.sleep(rng.uniform(0, 0.5))
        assert found == wanted(ROWS[start : None if limit is None else start + limit])
        scans += 1
    assert faults.result(until + 600) > 5
    assert scans > 10
