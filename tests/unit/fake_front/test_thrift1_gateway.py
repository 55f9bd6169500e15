"""Thrift 1 as HBase's gateway speaks it, with its quirks (recorded from HBase 2.6.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from thriftpy2.thrift import TApplicationException

from metaclient import keys
from metaclient_fake import FakeCluster
from tests.unit.fake_front.gateway_client import T1, thrift1_client

NOTHING: dict[bytes, bytes] = {}


@pytest.fixture
def client(cluster: FakeCluster) -> Iterator[Any]:
    with thrift1_client(cluster.thrift1_port) as made:
        yield made


def put(column: bytes, value: bytes = b"v") -> Any:
    return T1.Mutation(column=column, value=value)


def gone(column: bytes) -> Any:
    return T1.Mutation(isDelete=True, column=column)


def row(client: Any, table: bytes, key: bytes) -> dict[bytes, bytes]:
    found = client.getRow(table, key, NOTHING)
    return {column: cell.value for column, cell in found[0].columns.items()} if found else {}


# -- writing -------------------------------------------------------------------------------------------------------


def test_mutate_row_deletes_and_then_puts(client: Any, table: bytes) -> None:
    client.mutateRowTs(table, b"r", [put(b"cf:a", b"old")], 5, NOTHING)
    client.mutateRowTs(table, b"r", [put(b"cf:a", b"new"), gone(b"cf:a")], 6, NOTHING)
    assert row(client, table, b"r") == {}, "a put of the delete's own time stays hidden"
    client.mutateRow(table, b"r", [put(b"cf:b", b"1"), gone(b"cf:a")], NOTHING)
    assert row(client, table, b"r") == {b"cf:b": b"1"}


def test_mutate_rows_puts_everything_and_then_deletes(client: Any, table: bytes) -> None:
    batches = [T1.BatchMutation(b"r1", [gone(b"cf:a")]), T1.BatchMutation(b"r1", [put(b"cf:a")])]
    client.mutateRowsTs(table, batches, 7, NOTHING)
    assert row(client, table, b"r1") == {}
    client.mutateRows(table, [T1.BatchMutation(b"a", [put(b"cf:x")]), T1.BatchMutation(b"z", [put(b"cf:x")])], NOTHING)
    assert [one.row for one in client.getRows(table, [b"a", b"nobody", b"z"], NOTHING)] == [b"a", b"z"]


def test_put_to_a_bare_family_is_left_out_or_refused(client: Any, table: bytes) -> None:
    client.mutateRow(table, b"r", [put(b"cf"), put(b"cf:")], NOTHING)
    assert row(client, table, b"r") == {b"cf:": b"v"}
    with pytest.raises(T1.IllegalArgument, match="No column qualifier"):
        client.mutateRows(table, [T1.BatchMutation(b"r", [put(b"cf")])], NOTHING)


def test_put_of_a_negative_time_is_an_illegal_argument_and_later_puts_are_seen(client: Any, table: bytes) -> None:
    with pytest.raises(T1.IllegalArgument, match=r"Timestamp cannot be negative\. ts=-1"):
        client.mutateRowTs(table, b"r", [put(b"cf:a")], -1, NOTHING)
    client.mutateRow(table, b"r", [put(b"cf:a", b"1")], NOTHING)
    assert row(client, table, b"r") == {b"cf:a": b"1"}


def test_family_and_empty_qualifier_are_two_things(client: Any, table: bytes) -> None:
    client.mutateRow(table, b"r", [put(b"cf:", b"empty"), put(b"cf:a", b"1")], NOTHING)
    (found,) = client.getRowWithColumns(table, b"r", [b"cf:"], NOTHING)
    assert set(found.columns) == {b"cf:"}
    (found,) = client.getRowWithColumns(table, b"r", [b"cf"], NOTHING)
    assert set(found.columns) == {b"cf:", b"cf:a"}
    client.deleteAll(table, b"r", b"cf:", NOTHING)
    assert row(client, table, b"r") == {b"cf:a": b"1"}
    client.deleteAll(table, b"r", b"cf", NOTHING)
    assert row(client, table, b"r") == {}


def test_deletes_take_all_versions_up_to_a_time(client: Any, table: bytes) -> None:
    for stamp in (1, 2, 3):
        client.mutateRowTs(table, b"r", [put(b"cf:a", b"%d" % stamp)], stamp, NOTHING)
    client.deleteAllTs(table, b"r", b"cf:a", 2, NOTHING)
    assert [one.value for one in client.getVer(table, b"r", b"cf:a", 9, NOTHING)] == [b"3"]
    client.mutateRowTs(table, b"r", [put(b"cf:b")], 5, NOTHING)
    client.deleteAllRowTs(table, b"r", 4, NOTHING)
    assert row(client, table, b"r") == {b"cf:b": b"v"}
    client.deleteAllRow(table, b"r", NOTHING)
    assert row(client, table, b"r") == {}


def test_counters_appends_and_checks(client: Any, table: bytes) -> None:
    assert client.atomicIncrement(table, b"r", b"cf:n", 5) == 5
    client.increment(T1.TIncrement(table, b"r", b"cf:n", -2))
    client.incrementRows([T1.TIncrement(table, b"r", b"cf:n", 10), T1.TIncrement(table, b"s", b"cf", 1)])
    assert client.atomicIncrement(table, b"r", b"cf:n", 0) == 13
    assert client.atomicIncrement(table, b"s", b"cf:", 0) == 1, "a bare family counts in the empty qualifier"
    assert [one.value for one in client.append(T1.TAppend(table, b"r", [b"cf:s"], [b"ab"]))] == [b"ab"]
    assert [one.value for one in client.append(T1.TAppend(table, b"r", [b"cf:s"], [b"cd"]))] == [b"abcd"]
    assert client.checkAndPut(table, b"r", b"cf:s", b"nope", put(b"cf:t"), NOTHING) is False
    assert client.checkAndPut(table, b"r", b"cf:s", b"abcd", put(b"cf:t"), NOTHING) is True
    assert client.checkAndPut(table, b"r", b"cf:t", None, put(b"cf:u"), NOTHING) is False
    assert client.checkAndPut(table, b"r", b"cf:absent", None, put(b"cf:u"), NOTHING) is True


# -- reading -------------------------------------------------------------------------------------------------------


def test_timestamps_are_exclusive_upper_bounds(client: Any, table: bytes) -> None:
    for stamp in (1, 2, 3):
        client.mutateRowTs(table, b"r", [put(b"cf:a", b"%d" % stamp)], stamp, NOTHING)
    assert [one.timestamp for one in client.getVerTs(table, b"r", b"cf:a", 3, 9, NOTHING)] == [2, 1]
    assert [one.value for one in client.get(table, b"r", b"cf:a", NOTHING)] == [b"3"]
    assert client.getRowTs(table, b"r", 1, NOTHING) == []
    (found,) = client.getRowsWithColumnsTs(table, [b"r"], [b"cf:a"], 2, NOTHING)
    assert found.columns[b"cf:a"].value == b"1"
    (found,) = client.getRowsTs(table, [b"r"], 3, NOTHING)
    assert found.columns[b"cf:a"].value == b"2"
    (found,) = client.getRowWithColumnsTs(table, b"r", [b"cf"], 3, NOTHING)
    assert found.columns[b"cf:a"].timestamp == 2


@pytest.fixture
def rows(client: Any, table: bytes) -> list[bytes]:
    made = [b"%c%d" % (letter, number) for letter in b"az" for number in range(5)]
    client.mutateRowsTs(
        table, [T1.BatchMutation(key, [put(b"cf:b", b"2"), put(b"cf:a", b"1")]) for key in made], 10, NOTHING
    )
    return made


def keys_of(client: Any, number: int) -> list[bytes]:
    found: list[bytes] = []
    while page := client.scannerGetList(number, 3):
        found += [one.row for one in page]
    client.scannerClose(number)
    return found


def test_scanners_of_every_kind(client: Any, table: bytes, rows: list[bytes]) -> None:
    assert keys_of(client, client.scannerOpen(table, b"", [], NOTHING)) == rows
    assert keys_of(client, client.scannerOpen(table, b"a3", [b"cf:a"], NOTHING)) == rows[3:]
    assert keys_of(client, client.scannerOpenWithStop(table, b"a3", b"z1", [], NOTHING)) == rows[3:6]
    assert keys_of(client, client.scannerOpenWithPrefix(table, b"z", [], NOTHING)) == rows[5:]
    assert keys_of(client, client.scannerOpenTs(table, b"", [], 10, NOTHING)) == []
    assert keys_of(client, client.scannerOpenTs(table, b"", [], 11, NOTHING)) == rows
    assert keys_of(client, client.scannerOpenWithStopTs(table, b"z", b"z2", [], 11, NOTHING)) == rows[5:7]
    scan = T1.TScan(startRow=b"z0", stopRow=b"a3", reversed=True, caching=1, batchSize=1)
    assert keys_of(client, client.scannerOpenWithScan(table, scan, NOTHING)) == [b"z0", b"z0", b"a4", b"a4"]
    filtered = T1.TScan(filterString=b"PrefixFilter('a')")
    assert keys_of(client, client.scannerOpenWithScan(table, filtered, NOTHING)) == rows[:5]


def test_scanner_answers_columns_as_a_map_or_in_order(client: Any, table: bytes, rows: list[bytes]) -> None:
    number = client.scannerOpenWithScan(table, T1.TScan(sortColumns=True), NOTHING)
    (found,) = client.scannerGet(number)
    assert (found.columns, [one.columnName for one in found.sortedColumns]) == (None, [b"cf:a", b"cf:b"])
    number = client.scannerOpenWithScan(table, T1.TScan(), NOTHING)
    (found,) = client.scannerGet(number)
    assert (set(found.columns), found.sortedColumns) == ({b"cf:a", b"cf:b"}, None)


def test_unknown_scanner_is_an_illegal_argument(client: Any) -> None:
    for call in (client.scannerGet, client.scannerClose, lambda number: client.scannerGetList(number, 5)):
        with pytest.raises(T1.IllegalArgument, match="scanner ID is invalid"):
            call(12345)


# -- tables --------------------------------------------------------------------------------------------------------


def test_table_is_made_described_and_dropped(client: Any, table: bytes) -> None:
    name = table + b"_one"
    client.createTable(name, [T1.ColumnDescriptor(name=b"f:"), T1.ColumnDescriptor(name=b"g", maxVersions=1)])
    described = client.getColumnDescriptors(name)
    assert {key: (one.name, one.maxVersions) for key, one in described.items()} == {
        b"f:": (b"f:", 3),
        b"g:": (b"g:", 1),
    }
    assert name in client.getTableNames()
    with pytest.raises(T1.AlreadyExists, match="table name already in use"):
        client.createTable(name, [T1.ColumnDescriptor(name=b"f:")])
    client.disableTable(name)
    assert client.getTableNamesWithIsTableEnabled()[name] is False
    client.deleteTable(name)
    assert name not in client.getTableNames()
    with pytest.raises(T1.IOError, match="table does not exist"):
        client.deleteTable(name)


def test_table_names_and_families_are_checked(client: Any) -> None:
    with pytest.raises(T1.IllegalArgument):
        client.createTable(b"not a name", [T1.ColumnDescriptor(name=b"f:")])
    with pytest.raises(T1.IllegalArgument, match="column name is empty"):
        client.createTable(b"nofamily", [T1.ColumnDescriptor(name=b":")])


def test_regions_show_every_replica_by_its_name(client: Any, table: bytes) -> None:
    found = client.getTableRegions(table)
    assert [(one.startKey, one.endKey) for one in found] == [(b"", b"m"), (b"", b"m"), (b"m", b""), (b"m", b"")]
    assert [keys.parse_region_name(one.name)[3] for one in found] == [0, 1, 0, 1]
    assert all(one.id > 0 and one.serverName and one.port and one.version == 1 for one in found)
    assert client.getTableRegions(b"nope") == []


def test_region_info_is_looked_up_by_a_key_of_meta(client: Any, table: bytes) -> None:
    found = client.getRegionInfo(keys.meta_search_key(table, b"x"))
    assert (found.startKey, found.name.startswith(table + b",m,")) == (b"m", True)
    with pytest.raises(T1.IOError, match="Cannot find row in META"):
        client.getRegionInfo(b"!,,")


def test_compactions_take_a_table_or_a_region(client: Any, table: bytes, rows: list[bytes]) -> None:
    client.compact(table)
    client.majorCompact(client.getTableRegions(table)[0].name)
    assert row(client, table, b"a0") == {b"cf:a": b"1", b"cf:b": b"2"}


def test_meta_can_be_scanned_and_is_the_primary(cluster: FakeCluster, client: Any, table: bytes) -> None:
    before = cluster.meta_reads
    scan = T1.TScan(startRow=keys.meta_table_start(table), stopRow=keys.meta_table_stop(table))
    number = client.scannerOpenWithScan(b"hbase:meta", scan, NOTHING)
    found = client.scannerGetList(number, 10)
    assert [keys.parse_region_name(one.row)[1] for one in found] == [b"", b"m"]
    assert b"info:regioninfo" in found[0].columns
    assert {at for at, reads in cluster.meta_reads.items() if reads != before.get(at, 0)} == {0}


def test_gateway_says_who_it_is(cluster: FakeCluster, client: Any) -> None:
    assert client.getThriftServerType() == T1.TThriftServerType.ONE
    assert client.getClusterId() == cluster.cluster_id


# -- errors --------------------------------------------------------------------------------------------------------


def test_errors_are_whole_traces_that_begin_with_the_class(client: Any, table: bytes) -> None:
    with pytest.raises(T1.IOError) as caught:
        client.getRow(b"nope", b"r", NOTHING)
    assert caught.value.message.startswith("org.apache.hadoop.hbase.TableNotFoundException: nope\n\tat ")
    assert caught.value.canRetry is False
    with pytest.raises(T1.IOError) as caught:
        client.getRowWithColumns(table, b"r", [b"zz"], NOTHING)
    no_family = "org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException"
    assert caught.value.message.startswith(f"{no_family}: {no_family}: Column family zz does not exist in region")
    assert f"\nCaused by: org.apache.hadoop.hbase.ipc.RemoteWithExtrasException({no_family}): " in caught.value.message


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("getRow", (b"", NOTHING)),
        ("scannerOpenWithScan", (T1.TScan(filterString=b"Nope()"), NOTHING)),
        ("mutateRow", (b"x" * 40_000, [put(b"cf:a")], NOTHING)),
        ("mutateRowsTs", ([T1.BatchMutation(b"r", [put(b"cf:a")])], -1, NOTHING)),
        ("deleteAllTs", (b"r", b"cf:a", -1, NOTHING)),
        ("deleteAllRowTs", (b"r", -1, NOTHING)),
    ],
)
def test_runtime_exceptions_are_internal_errors(
    client: Any, table: bytes, method: str, arguments: tuple[Any, ...]
) -> None:
    with pytest.raises(TApplicationException, match=f"Internal error processing {method}"):
        getattr(client, method)(table, *arguments)
    assert client.getTableNames()
