"""HBase's own Java Thrift clients on the served fake; java and HBase's jars are needed, no HBase."""

from pathlib import Path

import pytest

from metaclient_fake import FakeCluster
from metaclient_local_hbase import missing_tools
from metaclient_local_hbase.jars import GATEWAY_VERSION, jar_folder
from metaclient_local_hbase.programs import run_java
from tests.live.load import left_out

pytestmark = pytest.mark.essential

PROGRAM = Path(__file__).parent / "java" / "ThriftClients.java"


def test_java_thrift_clients_find_everything_as_with_hbase() -> None:
    left_out(missing_tools())
    jar_folder(GATEWAY_VERSION)
    with FakeCluster(servers=3, meta_replicas=3) as cluster:
        front = cluster.serve()
        said = run_java(PROGRAM, front.host, str(front.thrift1_port), str(front.thrift2_port))
    parts = ["thrift1", "admin", "rows", "scans", "changes", "replicas", "dropped", "errors"]
    assert said.split() == parts
