"""Scans of hbase:meta by users give what an ordinary scan of a copy of its cells gives, whichever way they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import metaclient
from metaclient import keys
from metaclient.connection import connect_to
from metaclient.model import META_TABLE, Consistency, FamilyDescriptor, Result, Scan, TableDescriptor
from metaclient.runtime import ThreadRuntime
from metaclient_fake import FakeCluster
from metaclient_fake.front.gateway import GatewayClient
from metaclient_fake.master.meta_table import META_INFO, meta_descriptor
from metaclient_fake.storage import FileSystem, Region
from tests.unit.fake_storage.bench import scanned

Scanned = Callable[[Scan], list[Result]]
#: Bytes sort ``a\0`` before ``a,b``; hbase:meta sorts by table, start key and id.
SPLITS = [b"a", b"a\x00", b"a,b", b"b"]
START, STOP = keys.meta_table_start(b"t"), keys.meta_table_stop(b"t")

SCANS = {
    "all": Scan(),
    "pages of one row": Scan(caching=1),
    "range": Scan(START, STOP),
    "reversed": Scan(is_reversed=True),
    "range between regions whose bytes are in the other order": Scan(b"t,a,", b"t,a\0,", include_stop=True),
    "range after the row of a table's state": Scan(b"t", STOP, include_start=False),
    "range up to the row of a table's state": Scan(b"s", b"t", include_stop=True),
    "reversed range down to the row of a table's state": Scan(STOP, b"t", is_reversed=True, include_stop=True),
    "reversed range with its end": Scan(STOP, START, is_reversed=True, include_stop=True, caching=2),
    "limit": Scan(START, limit=3, caching=2),
    "reversed limit": Scan(STOP, limit=2, is_reversed=True),
    "columns": Scan(columns=(b"info:regioninfo", b"table:state")),
    "family": Scan(columns=(b"table",)),
    "versions": Scan(max_versions=10),
    "raw": Scan(is_raw=True, max_versions=10),
    "batch": Scan(batch=2),
    "first rows by a filter": Scan(filter=b"PageFilter(2)", caching=1),
    "filter that ends the scan": Scan(b"s", filter=b"WHILE PrefixFilter('s')", caching=1),
    "filter on a column": Scan(filter=b"SingleColumnValueFilter('info', 'state', =, 'binary:OPEN', true, true)"),
    "filter on keys, reversed": Scan(filter=b"FirstKeyOnlyFilter() AND KeyOnlyFilter()", is_reversed=True),
    "filter, columns and limit": Scan(
        START, filter=b"ValueFilter(!=, 'binary:x')", columns=(b"info:seqnumDuringOpen",), limit=2
    ),
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(servers=3) as made:
        for name in (b"s", b"t", b"u"):
            made.create_table(TableDescriptor(name, (FamilyDescriptor(b"cf"),)), SPLITS if name == b"t" else ())
        made.disable_table(b"u")
        made.delete_table(b"u")  # leaves delete markers
        made.disable_table(b"t")
        made.enable_table(b"t")  # leaves older versions
        made.serve(rpc_port=0)
        yield made


@pytest.fixture(params=["in process", "gateway"])
def scan_meta(request: pytest.FixtureRequest, cluster: FakeCluster) -> Iterator[Scanned]:
    if request.param == "gateway":
        gateway = GatewayClient(cluster, "gateway")
        yield lambda scan: list(gateway.scan(META_TABLE, scan))
        gateway.close()
    else:
        with connect_to(cluster.backend("client"), runtime=cluster.runtime) as connection:
            yield lambda scan: _scan(connection, scan)


def _scan(connection: metaclient.Connection, scan: Scan) -> list[Result]:
    return [result for result, _ in connection.engine.scan_rows(META_TABLE, scan, Consistency.STRONG)]


@pytest.fixture(scope="module")
def copy(cluster: FakeCluster) -> Iterator[Region]:
    """The cells of hbase:meta in a region that belongs to no cluster."""
    with ThreadRuntime() as runtime:
        made = Region.open(META_INFO, meta_descriptor(1), FileSystem(), wal=None, runtime=runtime)
        with connect_to(cluster.backend("copier"), runtime=cluster.runtime) as connection:
            made.bulk_load({found.row: found.cells for found in _scan(connection, Scan(is_raw=True, max_versions=10))})
        yield made


@pytest.mark.parametrize("name", SCANS)
def test_scan_of_meta_is_the_ordinary_scan(name: str, scan_meta: Scanned, copy: Region) -> None:
    _compare(SCANS[name], scan_meta, copy)


def test_scan_of_meta_in_a_time_range_is_the_ordinary_scan(scan_meta: Scanned, copy: Region) -> None:
    times = sorted(cell.timestamp for found in scanned(copy, Scan(max_versions=10)) for cell in found.cells)
    middle = times[len(times) // 2]
    _compare(Scan(max_versions=10, min_timestamp=middle), scan_meta, copy)
    _compare(Scan(max_versions=10, max_timestamp=middle), scan_meta, copy)


def _compare(scan: Scan, scan_meta: Scanned, copy: Region) -> None:
    expected = [(result.row, list(result.cells)) for result in scanned(copy, scan, scan.caching)]
    assert [(result.row, list(result.cells)) for result in scan_meta(scan)] == expected[: scan.limit]
    assert expected, "a scan that finds nothing compares nothing"


@pytest.mark.parametrize("protocol", ["rpc", "thrift1", "thrift2"])
def test_range_of_meta_over_the_network_is_not_empty_because_its_bytes_are_in_another_order(
    cluster: FakeCluster, copy: Region, protocol: str
) -> None:
    with metaclient.connect(getattr(cluster.front, f"{protocol}_url")) as connection:
        for name, scan in SCANS.items():
            if protocol == "thrift1" and (scan.max_versions != 1 or scan.is_raw):
                continue  # not in this protocol
            expected = scanned(copy, scan, scan.caching)[: scan.limit]
            assert [_without_addresses(one) for one in _scan(connection, scan)] == [
                _without_addresses(one) for one in expected
            ], name


def _without_addresses(result: Result) -> tuple[object, ...]:
    cells = [cell for cell in result.cells if not cell.column.startswith((b"info:server", b"info:sn"))]
    return result.row, [(cell.column, cell.timestamp, cell.value, cell.type) for cell in cells]


def test_scan_of_meta_counts_as_a_lookup_for_each_page(cluster: FakeCluster) -> None:
    def reads() -> int:
        return cluster.meta_reads.get(0, 0)

    with connect_to(cluster.backend("counter"), runtime=cluster.runtime) as connection:
        before = reads()
        rows = len(_scan(connection, Scan(caching=1)))
        assert reads() - before >= rows
