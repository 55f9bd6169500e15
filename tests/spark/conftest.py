"""Fixtures of the Spark tests: Spark's own standalone cluster, and a fake HBase over TCP that its workers can reach.

One Spark cluster and one session serve all tests; a test that changes the session's configuration puts it back. The
fake is the test's own unless it says otherwise, and is served by Thrift 2: ``hbase.url``. ``real_hbase`` is a real one,
from Maven packages; ``METACLIENT_LIVE_FOLDER`` names one that already runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the Spark tests need the extra 'spark'")

from metaclient.errors import ConfigError
from metaclient_bench.spark_cluster import SparkCluster
from metaclient_fake import FakeCluster
from metaclient_local_hbase import LocalHBase, missing_tools
from spark_connector.settings.session import ensure_java
from tests.live.load import left_out, unwatched
from tests.spark.served import CATALOG, Served


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Everything in this folder is marked ``spark``."""
    for item in items:
        if "tests/spark/" in item.path.as_posix():
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark_cluster() -> Iterator[SparkCluster]:
    """A master and two workers, on 127.0.0.1, .2 and .3."""
    try:
        ensure_java()
    except ConfigError as error:
        left_out(str(error))
    with SparkCluster(workers=2) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def spark(spark_cluster: SparkCluster) -> Iterator[Any]:
    """A session on the standalone cluster, with two executors of one core and the source ``hbase`` registered."""
    import spark_connector

    session = spark_cluster.session("tests")
    session.sparkContext.setLogLevel("ERROR")
    spark_connector.register(session)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def real_hbase() -> Iterator[LocalHBase]:
    """Three region servers and three copies of meta; with Java and Maven only."""
    folder = os.environ.get("METACLIENT_LIVE_FOLDER")
    if folder:
        yield LocalHBase.at(folder)
        return
    left_out(missing_tools())
    hbase = LocalHBase()
    with unwatched():
        hbase.up()
    try:
        yield hbase
    finally:
        hbase.down()


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    """Makes served fakes: ``serve(servers=5, meta_replicas=3)``; all are closed after the test."""
    made: list[FakeCluster] = []

    def make(**size: Any) -> Served:
        cluster = FakeCluster(**{"servers": 3, "meta_replicas": 3, **size})
        made.append(cluster)
        cluster.serve()
        return Served(cluster, f"thrift2://127.0.0.1:{cluster.thrift2_port}")

    yield make
    for cluster in made:
        cluster.close()


@pytest.fixture
def hbase(serve: Callable[..., Served]) -> Served:
    """A fake of three servers and three meta replicas."""
    return serve()


@pytest.fixture
def catalog() -> str:
    """The catalog of table ``t``: id (the row key, text), i (int), name (string)."""
    return CATALOG
