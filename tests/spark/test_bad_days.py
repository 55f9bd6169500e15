"""What goes wrong in the middle of a read ends in the right rows or a clear error, never in wrong rows."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import spark_connector as hbase_connector
from metaclient.errors import MetaClientError
from tests.spark.proxy import Proxy

ROWS = 2000
SPLITS = [b"r0500", b"r1000", b"r1500"]
#: Small pages: a scan has many moments at which something can happen.
PAGES = {"hbase.spark.query.cachedrows": 50}


@pytest.fixture
def filled(hbase: Any) -> Any:
    with hbase.connect() as connection:
        connection.create_table("t", {"cf": {}}, splits=SPLITS)
        with connection.table("t").batch(batch_size=500) as batch:
            for i in range(ROWS):
                batch.put(b"r%04d" % i, {b"cf:i": i.to_bytes(4, "big"), b"cf:name": b"name%d" % i})
    return hbase


@pytest.fixture
def proxied(filled: Any) -> Iterator[Callable[[Callable[[int], bool]], Proxy]]:
    made: list[Proxy] = []

    def make(on_answer: Callable[[int], bool]) -> Proxy:
        made.append(Proxy(filled.url, on_answer))
        return made[-1]

    yield make
    for proxy in made:
        proxy.close()


def assert_right(df: Any) -> None:
    """Every row, once, with its own values."""
    found = sorted((row.id, row.i, row.name) for row in df.collect())
    assert found == [(f"r{i:04d}", i, f"name{i}") for i in range(ROWS)]


@pytest.fixture(params=["data source", "table"])
def read(request: pytest.FixtureRequest, spark: Any, catalog: str) -> Callable[..., Any]:
    """read(url) -> DataFrame, by either road."""
    if request.param == "table":
        return lambda url, **options: hbase_connector.table(spark, catalog, url=url, **{**PAGES, **options})
    return lambda url, **options: (
        spark.read.format("hbase").options(url=url, catalog=catalog, **{**PAGES, **options}).load()
    )


def once(action: Callable[[], object], *, after: int) -> Callable[[int], bool]:
    """Does it once, when so many bytes were answered."""
    done: list[bool] = []

    def look(answered: int) -> bool:
        if answered > after and not done:
            done.append(True)
            action()
        return False

    look.done = done  # type: ignore[attr-defined]  # for the test to see
    return look


@pytest.mark.essential
def test_a_gateway_that_hangs_up_in_the_middle(read: Callable[..., Any], proxied: Any) -> None:
    """Three times, each after some more rows: the scan goes on after the last row that came."""
    cuts = [30_000, 60_000, 90_000]

    def hang_up(answered: int) -> bool:
        if cuts and answered > cuts[0]:
            cuts.pop(0)
            return True
        return False

    proxy = proxied(hang_up)
    assert_right(read(proxy.url))
    assert not cuts


def test_a_gateway_that_dies_for_good_is_a_clear_error(read: Callable[..., Any], proxied: Any) -> None:
    proxy = proxied(lambda answered: answered > 30_000)

    def die(answered: int) -> bool:
        if answered > 30_000:
            proxy.refuse = True
        return proxy.refuse

    proxy._on_answer = die
    with pytest.raises(Exception, match=r"127\.0\.0\.1:\d+"):
        read(proxy.url, **{"hbase.client.operation.timeout": 3000, "hbase.client.retries.number": 2}).collect()


def test_a_region_that_splits_during_a_scan(read: Callable[..., Any], filled: Any, proxied: Any) -> None:
    region = filled.cluster.regions("t")[1]
    look = once(lambda: filled.cluster.split(_name(region), b"r0700"), after=40_000)
    assert_right(read(proxied(look).url))
    assert look.done  # type: ignore[attr-defined]
    assert len(filled.cluster.regions("t")) == 5


@pytest.mark.essential
def test_a_region_that_moves_during_a_scan(read: Callable[..., Any], filled: Any, proxied: Any) -> None:
    def move_all() -> None:
        for region in filled.cluster.regions("t"):
            others = [server for server in filled.cluster.servers() if server != _server(filled, region)]
            filled.cluster.move(_name(region), others[0])

    look = once(move_all, after=40_000)
    assert_right(read(proxied(look).url))
    assert look.done  # type: ignore[attr-defined]


def test_a_dataframe_that_was_planned_long_ago(read: Callable[..., Any], filled: Any) -> None:
    """Spark plans a DataFrame once: regions that have moved, split and merged since are found all the same."""
    df = read(filled.url)
    assert_right(df)
    first, second, *_ = filled.cluster.regions("t")
    filled.cluster.split(_name(first), b"r0100")
    filled.cluster.move(_name(second), next(s for s in filled.cluster.servers() if s != _server(filled, second)))
    assert_right(df)


def test_a_task_that_runs_twice_gives_its_rows_once(spark: Any, read: Callable[..., Any], filled: Any) -> None:
    """Each task dies once, after it has read and passed on rows."""

    def die_first(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        for batch in batches:
            yield batch
            if TaskContext.get().attemptNumber() == 0:  # type: ignore[union-attr]  # in a task there is one
                os._exit(1)

    df = read(filled.url, **{"hbase.spark.partition.max": 2})
    assert_right(df.mapInArrow(die_first, df.schema))


def test_an_executor_that_is_killed(spark_cluster: Any, read: Callable[..., Any], filled: Any, proxied: Any) -> None:
    look = once(lambda: os.kill(executors(spark_cluster)[0], signal.SIGKILL), after=40_000)
    assert_right(read(proxied(look).url))
    assert look.done  # type: ignore[attr-defined]


def test_the_driver_hears_of_a_cluster_that_is_gone(spark: Any, catalog: str, serve: Any) -> None:
    served = serve()
    served.cluster.close()
    with pytest.raises(MetaClientError, match=r"127\.0\.0\.1"):
        hbase_connector.table(spark, catalog, url=served.url, **{"hbase.client.operation.timeout": 2000})


def executors(cluster: Any) -> list[int]:
    """Process ids of this cluster's executors: children of its workers."""
    listed = subprocess.run(["ps", "-ww", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    parents = set(cluster.pids)
    found = [line.split(None, 2) for line in listed.splitlines()]
    return [int(pid) for pid, parent, args in found if int(parent) in parents and "ExecutorBackend" in args]


def _name(region: Any) -> Any:
    return region["name"] if isinstance(region, dict) else region


def _server(served: Any, region: Any) -> str:
    return str(served.cluster.status()["regions"][region]["server"])
