"""HBase's own Java client on the fake, through the registry by RPC; java and HBase's jars are needed, no HBase."""

from pathlib import Path

import pytest

from metaclient_fake import FakeCluster
from metaclient_local_hbase import missing_tools
from metaclient_local_hbase.programs import run_java
from tests.live.load import left_out

pytestmark = pytest.mark.essential

PROGRAM = Path(__file__).parent / "java" / "RpcClient.java"
LOOKUPS = 300


def test_java_client_reads_writes_administers_and_spreads_its_lookups() -> None:
    left_out(missing_tools())
    with FakeCluster(servers=5, meta_replicas=3) as cluster:
        front = cluster.serve(thrift1_port=None, thrift2_port=None, rpc_port=0)
        said = run_java(PROGRAM, f"{front.host}:{front.rpc_port}", str(LOOKUPS))
        assert said.split() == ["tables", "rows", "scans", "moves", "lookups", "errors", "dropped"]
        reads = cluster.meta_reads
        # Java draws a copy for each lookup: far from nothing, whatever the draw.
        assert min(reads[1], reads[2]) > LOOKUPS / 10
        assert sum(reads.values()) >= LOOKUPS
