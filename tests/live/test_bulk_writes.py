"""Pages of puts on a bad day: regions that move and a server that is killed meanwhile cost no row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs the extra 'spark'")

import pyarrow as pa

import metaclient
from metaclient import Connection
from metaclient.backend import PutPage
from metaclient_local_hbase import LocalHBase
from spark_connector.writing.sending import Sender
from tests.live.load import WAIT_S_MAX, backend_of

PAGES, PAGE_ROWS = 60, 500
TIME = 1_700_000_000_000
COLUMNS = (b"cf:a", b"cf:b")
pytestmark = pytest.mark.usefixtures("healed")


@contextmanager
def patient(url: str) -> Iterator[Connection]:
    """A gateway tries for itself as long as its own settings say; we try again after that."""
    with metaclient.connect(url, operation_timeout_s=WAIT_S_MAX, rpc_timeout_s=60, retries=100) as made:
        yield made


def page(number: int) -> PutPage:
    """Rows of every region, a column that one row in three does not have."""
    rows = [b"%d-%06d" % (index % 10, number * PAGE_ROWS + index) for index in range(PAGE_ROWS)]
    some = [None if index % 3 == 0 else row for index, row in enumerate(rows)]
    return PutPage(
        pa.array(rows, pa.large_binary()),
        pa.array([TIME] * PAGE_ROWS, pa.int64()),
        COLUMNS,
        (pa.array(rows, pa.large_binary()), pa.array(some, pa.large_binary())),
    )


def expected() -> dict[bytes, dict[bytes, bytes]]:
    puts = [put for number in range(PAGES) for put in page(number).puts()]
    return {put.row: {cell.column: cell.value for cell in put.cells} for put in puts}


@pytest.fixture
def name(native: Connection) -> Iterator[bytes]:
    made = b"bulk_%d" % native._runtime.time_ms()
    native.create_table(made, {"cf": {"max_versions": 3}}, splits=[b"2", b"4", b"6", b"8"])
    yield made
    native.delete_table(made, disable=True)


@pytest.mark.parametrize("road", ["thrift2", "native"])
def test_moves_and_a_killed_server_cost_no_row(
    hbase: LocalHBase, native: Connection, name: bytes, road: str, capsys: Any
) -> None:
    with patient(hbase.native_url if road == "native" else hbase.thrift2_url) as connection:
        connection.warm_up(name)
        with Sender(connection, name, batch_rows=100) as sender:
            for number in range(PAGES):
                if number == PAGES // 4:
                    _move_all(native, name)
                elif number == PAGES // 2:
                    _kill_one(hbase)
                sender.extend_page(page(number))
    with capsys.disabled():
        print(f"\nHBase {hbase.version}, {road}: {sender.sent}")
    written = expected()
    assert (sender.sent.rows, sender.sent.cells) == (len(written), sum(map(len, written.values())))
    assert dict(native.table(name).scan()) == written
    first = page(0).puts()[1]
    versions = native.table(name).cells(first.row, COLUMNS[0], include_timestamp=True)
    assert versions == [(first.row, TIME)], "what was written twice is one version"


def _move_all(native: Connection, name: bytes) -> None:
    admin, until = backend_of(native).admin, native._runtime.now() + WAIT_S_MAX
    for entry in admin.regions(name, until):
        admin.move_region(entry.region.encoded_name, until)


def _kill_one(hbase: LocalHBase) -> None:
    """It is noticed as dead when it comes back: nobody need wait for its session."""
    server = hbase.meta_server(2)
    hbase.kill(server)
    hbase.start(server)
