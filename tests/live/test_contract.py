"""The contract of every backend, on a real HBase through both of its gateways.

What differs stands in ``docs/known-differences.md``, with the reason; this file only reads it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import ClassVar

import pytest

import metaclient
from metaclient import Connection, Table
from metaclient.errors import TableNotFound
from metaclient.testing import BackendContract
from metaclient_local_hbase import LocalHBase
from tests.contract.known_differences import mark_if_known

#: A secondary of 2.6.1 is up to 3 s behind; a busy machine may take several times that.
REPLICATION_S_MAX = 60.0
#: Tables that are left behind. A thousand of them filled the heap of the region servers, which then collected garbage
#: most of the time, until one ended.
TABLES_MAX = 60
#: Tables that are deleted at once.
DELETED_AT_ONCE = 8


class Live(BackendContract):
    """Tables are left behind, because deleting one takes HBase a second or two; many are deleted at once."""

    scheme: ClassVar[str]
    leaves_tables = True

    @pytest.fixture(autouse=True)
    def _differs(self, request: pytest.FixtureRequest) -> None:
        full_name = request.node.name.replace(f"[{request.node.callspec.params['hbase']}-", "[", 1)
        mark_if_known(request, self.scheme, full_name)

    @pytest.fixture
    def backend_connection(self, hbase: LocalHBase) -> Iterator[Connection]:
        with metaclient.connect(getattr(hbase, f"{self.scheme}_url")) as connection:
            yield connection

    @pytest.fixture(autouse=True)
    def _few_tables(self, backend_connection: Connection) -> None:
        """Delete the tables of earlier tests when there are too many."""
        mine = f"contract_{os.getpid()}_".encode()
        left = [name for name in backend_connection.tables() if name.startswith(mine)]
        if len(left) <= TABLES_MAX:
            return

        def delete(name: bytes) -> None:
            with suppress(TableNotFound):
                backend_connection.delete_table(name, disable=True)

        with ThreadPoolExecutor(DELETED_AT_ONCE) as pool:
            list(pool.map(delete, left))

    def replicate(self, connection: Connection, table: Table) -> bool:
        """Until every replica shows what the primary shows."""
        runtime = connection._runtime
        deadline = runtime.now() + REPLICATION_S_MAX
        wanted = list(table.scan(include_timestamp=True))
        replicas = max(len(entry.replicas) for entry in connection.regions(table.name))
        for replica_id in range(1, replicas):
            while True:
                with suppress(metaclient.MetaClientError):  # a secondary that may not read yet
                    shown = table.scan(include_timestamp=True, consistency="TIMELINE", replica_id=replica_id)
                    if list(shown) == wanted:
                        break
                assert runtime.now() < deadline, f"replica {replica_id} did not catch up"
                runtime.sleep(0.1)
        return True


class TestThrift2(Live):
    scheme = "thrift2"


class TestThrift1(Live):
    """Thrift 1 has no split keys: what needs several regions is made through Thrift 2."""

    scheme = "thrift1"

    @pytest.fixture
    def table_connection(self, hbase: LocalHBase) -> Iterator[Connection]:
        with metaclient.connect(hbase.thrift2_url) as connection:
            yield connection
