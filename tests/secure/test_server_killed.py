"""A server of hbase:meta is killed under a client with Kerberos: lookups go on with handshakes elsewhere."""

from __future__ import annotations

from contextlib import suppress

import pytest

import metaclient
from metaclient_local_hbase import LocalHBase
from tests.live.load import unwatched

TABLE = "server_killed"
ROWS = [b"a", b"g", b"p"]
LOOKUPS = 200
REPLICAS = 3


def test_killed_server_of_meta_stops_no_lookup_and_its_successor_gets_a_new_handshake(
    secure_hbase: LocalHBase,
) -> None:
    options = {"config": secure_hbase.client_config, "meta_mode": "LoadBalance", **secure_hbase.identity("alice")}
    with metaclient.connect(operation_timeout_s=240, retries=200, **options) as connection:
        if len(connection.engine.reader.registry.replicas(connection.engine.runtime.now() + 60)) < REPLICAS:
            pytest.skip("the cluster has one replica of hbase:meta")
        secure_hbase.spread_meta()
        with suppress(metaclient.TableExists):
            connection.create_table(TABLE, {"f": {}}, splits=ROWS[1:])
        table = connection.table(TABLE)
        for row in ROWS:
            table.put(row, {b"f:q": row})
            connection.locate(TABLE, row, reload=True)
        victim = secure_hbase.meta_server(1)
        secure_hbase.kill(victim)
        try:
            for number in range(LOOKUPS):
                row = ROWS[number % len(ROWS)]
                assert connection.locate(TABLE, row, reload=True).region.contains(row)
        finally:
            secure_hbase.start(victim)
            with unwatched():
                secure_hbase.wait_until_ready()
        for row in ROWS:
            assert table.row(row) == {b"f:q": row}
        assert connection.whoami() == ("alice", "KERBEROS")
