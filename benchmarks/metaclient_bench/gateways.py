"""A gateway to measure with: of a real HBase if this machine can run one, else of the fake in another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from metaclient_fake import FakeCluster
from metaclient_local_hbase import LocalHBase, missing_tools

__all__ = ["HOST", "Gateway", "gateway"]

#: "fake" or "hbase"; if it is not set, a real HBase is used if one can be started.
CHOICE = "METACLIENT_BENCH_GATEWAY"
HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Gateway:
    """The addresses of a gateway; ``hbase`` is the real HBase behind it, or None for the fake."""

    thrift1_port: int
    thrift2_port: int
    hbase: LocalHBase | None = None

    @property
    def is_real(self) -> bool:
        return self.hbase is not None

    @property
    def url(self) -> str:
        return f"thrift2://{HOST}:{self.thrift2_port}"

    def flush(self, table: str) -> None:
        """Flush a table to files, where most of a table's data is; on the fake it makes no difference."""
        if self.hbase is not None:
            self.hbase.admin.flush(table.encode())


@contextmanager
def gateway() -> Iterator[Gateway]:
    """Yield a gateway for one run; stop everything afterwards."""
    choice = os.environ.get(CHOICE, "fake" if missing_tools() else "hbase")
    if choice == "hbase":
        with LocalHBase(region_servers=2, meta_replicas=2) as hbase:
            one, two = (int(url.rpartition(":")[2]) for url in (hbase.thrift1_url, hbase.thrift2_url))
            yield Gateway(one, two, hbase)
    else:
        with _fake() as served:
            yield served


@contextmanager
def _fake() -> Iterator[Gateway]:
    command = [sys.executable, "-m", "metaclient_bench.gateways"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            one, two = json.loads(process.stdout.readline())
            yield Gateway(one, two)
        finally:
            process.kill()  # it has no data on disk


def main() -> int:
    """Serve a fake until the parent process closes standard input."""
    with FakeCluster(servers=2, meta_replicas=2) as cluster:
        cluster.serve(host=HOST)
        print(json.dumps([cluster.thrift1_port, cluster.thrift2_port]), flush=True)
        sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
