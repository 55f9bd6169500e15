"""Thrift 2 as HBase's gateway speaks it, called by a plain thriftpy2 client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from thriftpy2.thrift import TApplicationException

from metaclient import keys
from metaclient.model import FamilyDescriptor, TableDescriptor
from metaclient.protobuf import encode
from metaclient.wire.rpc import filters
from metaclient.wire.rpc.messages import FILTER
from metaclient_fake import FakeCluster
from metaclient_fake.front.serving import FrontLimits
from tests.unit.fake_front.gateway_client import T2, rest_of, thrift2_client

TIMELINE, STRONG = T2.TConsistency.TIMELINE, T2.TConsistency.STRONG


@pytest.fixture
def client(cluster: FakeCluster) -> Iterator[Any]:
    with thrift2_client(cluster.thrift2_port) as made:
        yield made


def put(row: bytes, qualifier: bytes = b"q", value: bytes = b"v", timestamp: int | None = None) -> Any:
    return T2.TPut(row, [T2.TColumnValue(b"cf", qualifier, value, timestamp)])


def values(result: Any) -> list[tuple[bytes, bytes, int]]:
    return [(one.qualifier, one.value, one.timestamp) for one in result.columnValues]


def name(table: bytes) -> Any:
    return T2.TTableName(ns=b"default", qualifier=table)


# -- reading -------------------------------------------------------------------------------------------------------


def test_get_of_nothing_has_no_row_and_an_empty_list(client: Any, table: bytes) -> None:
    found = client.get(table, T2.TGet(b"nobody"))
    assert (found.row, found.columnValues, found.stale, found.partial) == (None, [], False, False)
    assert [one.row for one in client.getMultiple(table, [T2.TGet(b"a"), T2.TGet(b"b")])] == [None, None]


def test_cells_carry_family_time_and_type(client: Any, table: bytes) -> None:
    client.put(table, put(b"r", timestamp=5))
    (cell,) = client.get(table, T2.TGet(b"r")).columnValues
    assert (cell.family, cell.qualifier, cell.value, cell.timestamp, cell.type) == (b"cf", b"q", b"v", 5, 4)


def test_timestamp_of_a_get_wins_over_its_range_and_column_times_count_for_nothing(client: Any, table: bytes) -> None:
    for stamp in (1, 2, 3):
        client.put(table, put(b"r", value=b"%d" % stamp, timestamp=stamp))
    both = T2.TGet(b"r", timestamp=2, timeRange=T2.TTimeRange(0, 2), maxVersions=9)
    assert values(client.get(table, both)) == [(b"q", b"2", 2)]
    ranged = T2.TGet(b"r", timeRange=T2.TTimeRange(1, 3), maxVersions=9)
    assert values(client.get(table, ranged)) == [(b"q", b"2", 2), (b"q", b"1", 1)]
    column = T2.TGet(b"r", columns=[T2.TColumn(b"cf", b"q", 1)])
    assert values(client.get(table, column)) == [(b"q", b"3", 3)]


def test_cells_of_a_family_can_be_paged(client: Any, table: bytes) -> None:
    client.put(table, T2.TPut(b"r", [T2.TColumnValue(b"cf", b"%d" % at, b"v", 1) for at in range(6)]))
    found = client.get(table, T2.TGet(b"r", storeLimit=2, storeOffset=3))
    assert [one.qualifier for one in found.columnValues] == [b"3", b"4"]
    found = client.get(table, T2.TGet(b"r", storeLimit=0, storeOffset=3))
    assert [one.qualifier for one in found.columnValues] == [b"3"], "HBase looks at the limit after it has taken a cell"
    assert client.exists(table, T2.TGet(b"r", storeOffset=5))
    assert not client.exists(table, T2.TGet(b"r", storeOffset=6))


def test_replica_id_counts_for_gets_only_with_timeline(cluster: FakeCluster, client: Any, table: bytes) -> None:
    client.put(table, put(b"r"))
    cluster.wait_until_replicated(60)
    for consistency, replica_id, is_stale in (
        (TIMELINE, 1, True),
        (TIMELINE, 0, False),
        (STRONG, 1, False),
        (None, 1, False),
        (None, None, False),
    ):
        found = client.get(table, T2.TGet(b"r", consistency=consistency, targetReplicaId=replica_id))
        assert (found.stale, found.row) == (is_stale, b"r"), (consistency, replica_id)
    empty = client.get(table, T2.TGet(b"nobody", consistency=TIMELINE, targetReplicaId=1))
    assert (empty.stale, empty.columnValues) == (True, [])


def test_replica_id_alone_is_enough_for_scans_and_nothing_for_batches(
    cluster: FakeCluster, client: Any, table: bytes
) -> None:
    client.putMultiple(table, [put(b"a"), put(b"z")])
    cluster.wait_until_replicated(60)
    found = client.getScannerResults(table, T2.TScan(targetReplicaId=1), 10)
    assert [(one.row, one.stale) for one in found] == [(b"a", True), (b"z", True)]
    aimed = [T2.TGet(row, consistency=STRONG, targetReplicaId=1) for row in (b"a", b"z")]
    assert [one.stale for one in client.getMultiple(table, aimed)] == [False, False]
    one = T2.TGet(b"a", consistency=TIMELINE, targetReplicaId=1)
    assert client.getMultiple(table, [one])[0].stale is True


def test_replica_that_is_not_there_is_tried_and_then_told(client: Any, table: bytes) -> None:
    with pytest.raises(T2.TIOError, match="replica") as caught:
        client.get(table, T2.TGet(b"r", consistency=TIMELINE, targetReplicaId=9))
    assert caught.value.canRetry is True


def test_exists_of_one_and_of_many(client: Any, table: bytes) -> None:
    client.put(table, put(b"a"))
    assert client.exists(table, T2.TGet(b"a")) is True
    assert client.exists(table, T2.TGet(b"b")) is False
    assert client.existsAll(table, [T2.TGet(b"b"), T2.TGet(b"a")]) == [False, True]


# -- writing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "timestamp", "left"),
    [
        (T2.TDeleteType.DELETE_COLUMN, None, [1, 2]),
        (T2.TDeleteType.DELETE_COLUMN, 1, [2, 3]),
        (T2.TDeleteType.DELETE_COLUMNS, 2, [3]),
        (T2.TDeleteType.DELETE_COLUMNS, None, []),
        (T2.TDeleteType.DELETE_FAMILY, 1, [2, 3]),
        (T2.TDeleteType.DELETE_FAMILY_VERSION, 2, [1, 3]),
    ],
)
def test_delete_types(client: Any, table: bytes, kind: int, timestamp: int | None, left: list[int]) -> None:
    for stamp in (1, 2, 3):
        client.put(table, put(b"r", timestamp=stamp))
    client.deleteSingle(table, T2.TDelete(b"r", [T2.TColumn(b"cf", b"q", timestamp)], deleteType=kind))
    found = client.get(table, T2.TGet(b"r", maxVersions=9))
    assert sorted(one.timestamp for one in found.columnValues) == left


@pytest.mark.parametrize(
    ("stamps", "left"),
    [((None, 2), [3]), ((2, None), []), ((3, 1), [2, 3])],
    ids=["newest first", "newest last", "two"],
)
def test_delete_of_one_family_twice_keeps_the_last_timestamp(
    client: Any, table: bytes, stamps: tuple[int | None, ...], left: list[int]
) -> None:
    """Delete.addFamily replaces what the delete had for the family."""
    for stamp in (1, 2, 3):
        client.put(table, put(b"r", timestamp=stamp))
    columns = [T2.TColumn(b"cf", b"q", stamps[0]), T2.TColumn(b"cf", None, stamps[1])]
    client.deleteSingle(table, T2.TDelete(b"r", columns, deleteType=T2.TDeleteType.DELETE_FAMILY))
    found = client.get(table, T2.TGet(b"r", maxVersions=9))
    assert sorted(one.timestamp for one in found.columnValues) == left


def test_timestamp_of_a_delete_counts_for_nothing_beside_columns_even_none(client: Any, table: bytes) -> None:
    client.put(table, put(b"r", timestamp=9))
    client.deleteSingle(table, T2.TDelete(b"r", [], 5))
    assert not client.exists(table, T2.TGet(b"r"))


def test_rows_are_deleted_many_at_a_time_and_nothing_comes_back(client: Any, table: bytes) -> None:
    client.putMultiple(table, [put(b"a"), put(b"z")])
    assert client.deleteMultiple(table, [T2.TDelete(b"a"), T2.TDelete(b"z")]) == []
    assert client.existsAll(table, [T2.TGet(b"a"), T2.TGet(b"z")]) == [False, False]


def test_checks_compare_the_given_with_the_stored(client: Any, table: bytes) -> None:
    client.put(table, put(b"r", value=b"5"))
    change = T2.TRowMutations(b"r", [T2.TMutation(put=put(b"r", b"seen"))])
    ops = T2.TCompareOp
    for op, given_, expected in (
        (ops.EQUAL, b"5", True),
        (ops.EQUAL, b"4", False),
        (ops.LESS, b"4", True),
        (ops.LESS, b"6", False),
        (ops.GREATER, b"6", True),
        (ops.GREATER_OR_EQUAL, b"5", True),
        (ops.LESS_OR_EQUAL, b"6", False),
        (ops.NOT_EQUAL, b"5", False),
    ):
        assert client.checkAndMutate(table, b"r", b"cf", b"q", op, given_, change) is expected, (op, given_)


def test_check_without_a_value_is_for_absence(client: Any, table: bytes) -> None:
    assert client.checkAndPut(table, b"r", b"cf", b"q", None, put(b"r")) is True
    assert client.checkAndPut(table, b"r", b"cf", b"q", None, put(b"r")) is False
    assert client.checkAndDelete(table, b"r", b"cf", b"q", b"v", T2.TDelete(b"r")) is True
    assert client.exists(table, T2.TGet(b"r")) is False


def test_increment_and_append_answer_the_new_values_unless_told_not_to(client: Any, table: bytes) -> None:
    step = [T2.TColumnIncrement(b"cf", b"n", 5)]
    assert values(client.increment(table, T2.TIncrement(b"r", step)))[0][1] == (5).to_bytes(8, "big")
    assert client.increment(table, T2.TIncrement(b"r", step, returnResults=False)).columnValues == []
    tail = [T2.TColumnValue(b"cf", b"s", b"ab")]
    client.append(table, T2.TAppend(b"r", tail))
    assert values(client.append(table, T2.TAppend(b"r", tail)))[0][1] == b"abab"


def test_row_mutations_are_one_change(client: Any, table: bytes) -> None:
    client.put(table, put(b"r", b"old"))
    gone = T2.TMutation(deleteSingle=T2.TDelete(b"r", [T2.TColumn(b"cf", b"old")]))
    client.mutateRow(table, T2.TRowMutations(b"r", [gone, T2.TMutation(put=put(b"r", b"new"))]))
    assert [one.qualifier for one in client.get(table, T2.TGet(b"r")).columnValues] == [b"new"]


# -- scanners ------------------------------------------------------------------------------------------------------


@pytest.fixture
def rows(client: Any, table: bytes) -> list[bytes]:
    """Twenty rows over two regions, of three cells each."""
    made = [b"%c%d" % (letter, number) for letter in b"az" for number in range(10)]
    cells = [T2.TColumnValue(b"cf", b"%d" % at, b"v") for at in range(3)]
    client.putMultiple(table, [T2.TPut(row, cells) for row in made])
    return made


def test_fewer_rows_than_asked_for_are_the_end(client: Any, table: bytes, rows: list[bytes]) -> None:
    number = client.openScanner(table, T2.TScan(caching=3))
    pages = [[one.row for one in client.getScannerRows(number, 8)] for _ in range(4)]
    assert [len(page) for page in pages] == [8, 8, 4, 0]
    assert [row for page in pages for row in page] == rows
    client.closeScanner(number)
    with pytest.raises(T2.TIllegalArgument, match="Invalid scanner Id"):
        client.getScannerRows(number, 1)
    client.closeScanner(number)  # of an unknown one: silently fine


def test_scanner_belongs_to_the_gateway_and_not_to_the_connection(
    cluster: FakeCluster, client: Any, table: bytes, rows: list[bytes]
) -> None:
    number = client.openScanner(table, T2.TScan())
    assert [one.row for one in client.getScannerRows(number, 1)] == rows[:1]
    with thrift2_client(cluster.thrift2_port) as other:
        assert [one.row for one in other.getScannerRows(number, 2)] == rows[1:3]
        other.closeScanner(number)


def test_batch_cuts_rows_into_pieces_and_the_limit_counts_rows(client: Any, table: bytes, rows: list[bytes]) -> None:
    found = client.getScannerResults(table, T2.TScan(batchSize=2, limit=2), 100)
    assert [(one.row, len(one.columnValues), one.partial) for one in found] == [
        (b"a0", 2, True),
        (b"a0", 1, False),
        (b"a1", 2, True),
        (b"a1", 1, False),
    ]


def test_reversed_scan_starts_inclusive_and_stops_exclusive(client: Any, table: bytes, rows: list[bytes]) -> None:
    scan = T2.TScan(startRow=b"z2", stopRow=b"a8", reversed=True, columns=[T2.TColumn(b"cf", b"1")])
    found = client.getScannerResults(table, scan, 100)
    assert [one.row for one in found] == [b"z2", b"z1", b"z0", b"a9"]
    assert {one.qualifier for result in found for one in result.columnValues} == {b"1"}


def test_raw_scan_shows_delete_markers(client: Any, table: bytes) -> None:
    client.put(table, put(b"r", timestamp=1))
    client.deleteSingle(table, T2.TDelete(b"r", [T2.TColumn(b"cf", b"q", 1)]))
    (found,) = client.getScannerResults(table, T2.TScan(attributes={b"_raw_": b"\xff"}, maxVersions=9), 5)
    assert sorted(one.type for one in found.columnValues) == [4, 12]


def test_scanners_are_bounded(table: bytes) -> None:
    with FakeCluster(servers=1, meta_replicas=1) as cluster:
        front = cluster.serve(thrift1_port=None, limits=FrontLimits(scanners_max=2))
        cluster.create_table(TableDescriptor(b"t", (FamilyDescriptor(b"cf"),)))
        with thrift2_client(front.thrift2_port) as client:
            first, _ = client.openScanner(b"t", T2.TScan()), client.openScanner(b"t", T2.TScan())
            with pytest.raises(T2.TIOError, match="2 open scanners") as caught:
                client.openScanner(b"t", T2.TScan())
            assert caught.value.canRetry is True
            client.closeScanner(first)
            client.openScanner(b"t", T2.TScan())


def test_scanner_survives_a_region_that_moves_and_one_that_splits(
    cluster: FakeCluster, client: Any, table: bytes, rows: list[bytes]
) -> None:
    number = client.openScanner(table, T2.TScan(caching=2))
    found = [one.row for one in client.getScannerRows(number, 3)]
    for region in cluster.regions(table):
        cluster.move(region)
    cluster.split(cluster.regions(table)[0], b"a5")
    found += [one.row for one in client.getScannerRows(number, 100)]
    assert found == rows


# -- places --------------------------------------------------------------------------------------------------------


def test_locations_tell_replicas_and_no_region_id(cluster: FakeCluster, client: Any, table: bytes) -> None:
    found = client.getAllRegionLocations(table)
    assert [(one.regionInfo.startKey, one.regionInfo.replicaId, one.regionInfo.regionId) for one in found] == [
        (b"", 0, 0),
        (b"", 1, 0),
        (b"m", 0, 0),
        (b"m", 1, 0),
    ]
    assert {one.serverName.hostName for one in found} <= set(cluster.servers())
    assert client.getRegionLocation(table, b"x", True).regionInfo.startKey == b"m"
    meta = client.getAllRegionLocations(b"hbase:meta")
    assert [one.regionInfo.replicaId for one in meta] == [0, 1, 2]


@pytest.mark.parametrize("replica_id", [0, 1, 2])
def test_lookup_goes_to_the_meta_replica_that_is_asked(
    cluster: FakeCluster, client: Any, table: bytes, replica_id: int
) -> None:
    cluster.wait_until_replicated(60)
    before = cluster.meta_reads
    scan = T2.TScan(
        startRow=keys.meta_search_key(table, b"x"),
        stopRow=keys.meta_table_start(table),
        columns=[T2.TColumn(b"info")],
        reversed=True,
        limit=1,
        consistency=TIMELINE,
        targetReplicaId=replica_id,
    )
    (found,) = client.getScannerResults(b"hbase:meta", scan, 1)
    assert (found.row.split(b",")[:2], found.stale) == ([table, b"m"], replica_id != 0)
    assert {one.qualifier for one in found.columnValues} >= {b"regioninfo", b"server", b"serverstartcode"}
    assert all(one.timestamp > 0 for one in found.columnValues)
    read = {at: reads - before.get(at, 0) for at, reads in cluster.meta_reads.items() if reads != before.get(at, 0)}
    assert read == {replica_id: 1}
    row = client.get(b"hbase:meta", T2.TGet(found.row, consistency=TIMELINE, targetReplicaId=replica_id))
    assert row.columnValues == found.columnValues


def test_meta_is_listed_in_its_own_order_page_by_page(cluster: FakeCluster, client: Any, table: bytes) -> None:
    splits = [b"a", b"a\x00", b"a,b", b"b"]
    name_ = table + b"_ordered"
    cluster.create_table(TableDescriptor(name_, (FamilyDescriptor(b"cf"),)), splits)
    scan = T2.TScan(startRow=keys.meta_table_start(name_), stopRow=keys.meta_table_stop(name_), caching=2)
    found = [one.row for one in client.getScannerResults(b"hbase:meta", scan, 100)]
    assert [keys.parse_region_name(row)[1] for row in found] == [b"", *splits]
    backwards = T2.TScan(startRow=found[-1], stopRow=found[0], reversed=True, caching=2)
    assert [one.row for one in client.getScannerResults(b"hbase:meta", backwards, 100)] == found[:0:-1]


# -- tables and namespaces -----------------------------------------------------------------------------------------


def test_table_is_made_changed_emptied_and_dropped(client: Any, table: bytes) -> None:
    made = name(table + b"_ddl")
    family = T2.TColumnFamilyDescriptor(name=b"f", maxVersions=2)
    client.createTable(T2.TTableDescriptor(made, [family], {b"REGION_REPLICATION": b"2"}), [b"k"])
    assert client.tableExists(made)
    assert client.isTableAvailable(made)
    assert client.isTableAvailableWithSplit(made, [b"k"]) is True
    assert client.isTableAvailableWithSplit(made, [b"nope"]) is False
    client.addColumnFamily(made, T2.TColumnFamilyDescriptor(name=b"g"))
    client.modifyColumnFamily(made, T2.TColumnFamilyDescriptor(name=b"f", maxVersions=7))
    described = client.getTableDescriptor(made)
    assert {one.name: one.maxVersions for one in described.columns} == {b"f": 7, b"g": 1}
    assert described.attributes[b"REGION_REPLICATION"] == b"2"
    client.deleteColumnFamily(made, b"g")
    assert [one.name for one in client.getTableDescriptors([made])[0].columns] == [b"f"]
    client.put(made.qualifier, T2.TPut(b"r", [T2.TColumnValue(b"f", b"q", b"v")]))
    client.disableTable(made)
    assert (client.isTableDisabled(made), client.isTableEnabled(made)) == (True, False)
    client.truncateTable(made, True)
    assert client.isTableEnabled(made)
    assert client.exists(made.qualifier, T2.TGet(b"r")) is False
    assert len(client.getAllRegionLocations(made.qualifier)) == 4
    client.disableTable(made)
    client.deleteTable(made)
    assert client.tableExists(made) is False


def test_names_by_pattern_and_by_namespace(client: Any, table: bytes) -> None:
    client.createNamespace(T2.TNamespaceDescriptor("ns1"))
    inside = T2.TTableName(ns=b"ns1", qualifier=table)
    client.createTable(T2.TTableDescriptor(inside, [T2.TColumnFamilyDescriptor(name=b"f")]), None)
    assert client.getTableNamesByNamespace("ns1") == [inside]
    assert [one.tableName for one in client.getTableDescriptorsByNamespace("ns1")] == [inside]
    assert client.getTableNamesByPattern(table.decode(), False) == [name(table)]
    assert client.getTableNamesByPattern("ns1:.*", False) == [inside]
    assert client.getTableDescriptorsByPattern("hbase:meta", True)[0].tableName.qualifier == b"meta"
    assert client.getTableNamesByPattern("hbase:meta", False) == []
    assert "ns1" in client.listNamespaces()
    assert client.getNamespaceDescriptor("ns1").name == "ns1"
    with pytest.raises(T2.TIOError, match="ConstraintException"):
        client.deleteNamespace("ns1")
    client.disableTable(inside)
    client.deleteTable(inside)
    client.deleteNamespace("ns1")
    assert "ns1" not in [one.name for one in client.listNamespaceDescriptors()]


def test_gateway_says_who_it_is(cluster: FakeCluster, client: Any) -> None:
    assert client.getThriftServerType() == T2.TThriftServerType.TWO
    assert client.getClusterId() == cluster.cluster_id


# -- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("checkAndMutate", (b"r", b"cf", b"q", 2, None, T2.TRowMutations(b"r", [T2.TMutation(put=put(b"r"))]))),
        ("get", (T2.TGet(b"r", filterString=b"NoSuchFilter()"),)),
        ("get", (T2.TGet(b""),)),
        ("get", (T2.TGet(b"r", maxVersions=0),)),
        ("put", (T2.TPut(b"r", []),)),
        ("put", (put(b"x" * 40_000),)),
        ("put", (put(b"r", timestamp=-1),)),
        ("put", (T2.TPut(b"r", [T2.TColumnValue(b"cf", b"q", b"v")], -1),)),
        ("deleteSingle", (T2.TDelete(b"r", [T2.TColumn(b"cf", b"q", -1)]),)),
        ("deleteSingle", (T2.TDelete(b"r", None, -1),)),
        ("deleteSingle", (T2.TDelete(b"r", [T2.TColumn(b"cf")], deleteType=3),)),
        ("mutateRow", (T2.TRowMutations(b"r", [T2.TMutation(put=put(b"other"))]),)),
        ("openScanner", (T2.TScan(filterString=b"("),)),
    ],
)
def test_runtime_exceptions_of_java_are_internal_errors_and_the_connection_goes_on(
    client: Any, table: bytes, method: str, arguments: tuple[Any, ...]
) -> None:
    with pytest.raises(TApplicationException) as caught:
        getattr(client, method)(table, *arguments)
    assert caught.value.type == TApplicationException.INTERNAL_ERROR
    assert caught.value.message == f"Internal error processing {method}"
    assert client.exists(table, T2.TGet(b"r")) is False


def test_unknown_method_is_named_and_the_connection_goes_on(client: Any) -> None:
    protocol = client._oprot
    protocol.write_message_begin("launch", 1, 0)
    protocol.write_struct(T2.TGet(b"r"))
    protocol.write_message_end()
    protocol.trans.flush()
    with pytest.raises(TApplicationException, match="Invalid method name: 'launch'"):
        client._recv("get")
    assert client.listNamespaces()


def test_missing_required_field_is_named_and_ends_the_connection(client: Any, table: bytes) -> None:
    with pytest.raises(TApplicationException, match="Required field 'row' was not present") as caught:
        client.get(table, T2.TGet(columns=[T2.TColumn(b"cf")]))
    assert caught.value.type == 7
    assert rest_of(client._iprot.trans.sock) == b""


def test_what_the_fake_cannot_is_said_so(client: Any, table: bytes) -> None:
    with pytest.raises(T2.TIOError, match="UnsupportedOperationException") as caught:
        client.openScanner(table, T2.TScan(colFamTimeRangeMap={b"cf": T2.TTimeRange(0, 1)}))
    assert caught.value.canRetry is False


def test_filter_may_come_as_javas_own_bytes(client: Any, table: bytes) -> None:
    client.putMultiple(table, [put(b"a1"), put(b"a2"), put(b"z1")])
    wanted = encode(FILTER, filters.from_text(b"PrefixFilter('a')"))
    found = client.getScannerResults(table, T2.TScan(filterBytes=wanted, filterString=b"PrefixFilter('z')"), 9)
    assert [one.row for one in found] == [b"a1", b"a2"]
    with pytest.raises(TApplicationException, match="Internal error processing get"):
        client.get(table, T2.TGet(b"a1", filterBytes=b"\xff\xff"))


def test_gateway_finds_regions_again_after_a_crash(client: Any, table: bytes) -> None:
    with FakeCluster(servers=3, meta_replicas=1, config={"session_timeout_s": 0.2}) as cluster:
        front = cluster.serve(thrift1_port=None)
        cluster.create_table(TableDescriptor(b"t", (FamilyDescriptor(b"cf"),)))
        with thrift2_client(front.thrift2_port) as own:
            own.put(b"t", put(b"r"))
            cluster.kill(cluster.server_of(cluster.regions("t")[0]) or "")
            assert own.get(b"t", T2.TGet(b"r")).row == b"r"
