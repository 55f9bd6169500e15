"""The contract of every backend on a real HBase, spoken to in its own RPC: no gateway in between."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import metaclient
from metaclient import Connection
from metaclient.testing.contract import TableMaker
from metaclient_local_hbase import LocalHBase
from tests.live.test_contract import Live


class TestNative(Live):
    scheme = "hbase"

    @pytest.fixture
    def backend_connection(self, hbase: LocalHBase) -> Iterator[Connection]:
        with metaclient.connect(hbase.native_url) as connection:
            yield connection

    @pytest.fixture
    def _version(self, hbase: LocalHBase) -> str:
        return hbase.version

    def test_replica_never_shows_what_was_not_written(
        self, make_table: TableMaker, request: pytest.FixtureRequest
    ) -> None:
        """HBase 3.0.0-alpha-4 does, in one of some hundred reads: a secondary takes the cells of a put one by one."""
        try:
            super().test_replica_never_shows_what_was_not_written(make_table)
        except AssertionError as error:
            if "half of a put" not in str(error) or not request.getfixturevalue("_version").startswith("3."):
                raise
            pytest.xfail("3.0.0-alpha-4 shows half of a put on a secondary now and then (2 of 1200 reads were seen)")
