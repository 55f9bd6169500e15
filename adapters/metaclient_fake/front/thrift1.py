"""The handler of Thrift 1: each method of ``Hbase`` as HBase 2.6's ThriftHBaseServiceHandler does it.

Quirks of HBase 2.6 that are kept: ``cf`` is a family and ``cf:`` the column with the empty qualifier; a timestamp
is the exclusive upper end of what is read; a column is deleted with all its versions; ``mutateRow`` deletes and then
puts, ``mutateRows`` puts everything and then deletes; a put to a bare family is left out by ``mutateRow`` and refused
by ``mutateRows``; ``getRowsWithColumns`` leaves out rows without cells; the regions of an unknown table are none.

DIVERGENCES: ``majorCompact`` is a major compaction (HBase's is a minor one).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from metaclient import keys, metarow
from metaclient.errors import MetaClientError, TableExists, TableNotFound, Unsupported
from metaclient.model import (
    LATEST_TIMESTAMP,
    META_TABLE,
    TTL_FOREVER,
    Append,
    Cell,
    CellType,
    Check,
    Delete,
    Durability,
    FamilyDescriptor,
    Get,
    Increment,
    Put,
    Result,
    Scan,
    TableDescriptor,
)
from metaclient.wire.thrift.idl import thrift1_gateway
from metaclient_fake.front import java_text
from metaclient_fake.front.gateway import GatewayClient
from metaclient_fake.front.scanners import GatewayScanners
from metaclient_fake.front.service import IllegalArgument
from metaclient_fake.front.thrift2_values import SCAN_CACHING, check_row, narrowed, parsed_filter, time_of

__all__ = ["Thrift1Handler"]

_log = logging.getLogger(__name__)
T = thrift1_gateway()
Attributes = Mapping[bytes, bytes] | None
_INVALID_SCANNER = "scanner ID is invalid"


class Thrift1Handler:
    """Methods are called by :class:`~metaclient_fake.front.service.Service`, each in its client's thread.

    It has more than 30 methods because each method of HBase's Thrift 1 service has its own, most of a few lines.
    """

    def __init__(self, client: GatewayClient, *, lease_s: float, scanners_max: int) -> None:
        self._client = client
        #: The options of each scanner: its table, and whether its columns are returned in order.
        self.scanners: GatewayScanners[tuple[bytes, bool]] = GatewayScanners(
            client.runtime, lease_s=lease_s, scanners_max=scanners_max
        )

    def failure(self, method: str, arguments: Any, error: MetaClientError) -> Exception:
        """Return a MetaClientError as HBase's gateway sends it: a whole stack trace."""
        return self._failed(method, error, _table_in(arguments))

    def _failed(self, method: str, error: MetaClientError, table: bytes | None) -> Exception:
        if isinstance(error, Unsupported):
            java = "java.lang.UnsupportedOperationException"
            return _io_error(java_text.JavaError(java, str(error), can_retry=False))
        if method == "createTable" and isinstance(error, TableExists):
            return T.AlreadyExists(message="table name already in use")  # type: ignore[no-any-return]  # no types
        if method == "deleteTable" and isinstance(error, TableNotFound):
            return _io_error(java_text.JavaError(java_text.IO_EXCEPTION, "table does not exist", can_retry=True))
        asked = java_text.AskedCall(table, (table or b"").partition(b":")[0].decode(errors="replace"))
        config, now_ms = self._client.config, self._client.runtime.time_ms()
        return _io_error(java_text.of_call(method, error, config, now_ms, asked))

    # -- tables ------------------------------------------------------------------------------------------------

    def enableTable(self, tableName: bytes) -> None:
        self._client.enable_table(tableName)

    def disableTable(self, tableName: bytes) -> None:
        self._client.disable_table(tableName)

    def isTableEnabled(self, tableName: bytes) -> bool:
        return self._client.is_enabled(tableName)

    def compact(self, tableNameOrRegionName: bytes) -> None:
        self._client.compact_table(_table_of(tableNameOrRegionName), is_major=False)

    def majorCompact(self, tableNameOrRegionName: bytes) -> None:
        self._client.compact_table(_table_of(tableNameOrRegionName), is_major=True)

    def getTableNames(self) -> list[bytes]:
        return self._client.table_names()

    def getTableNamesWithIsTableEnabled(self) -> dict[bytes, bool]:
        return {name: self._client.is_enabled(name) for name in self._client.table_names()}

    def getColumnDescriptors(self, tableName: bytes) -> dict[bytes, Any]:
        return {one.name + b":": _family_to(one) for one in self._client.describe(tableName).families}

    def getTableRegions(self, tableName: bytes) -> list[Any]:
        try:
            found = self._client.regions(tableName)
        except TableNotFound:
            return []
        return [_region(place) for entry in found for place in entry.placed()]

    def createTable(self, tableName: bytes, columnFamilies: Sequence[Any]) -> None:
        families = tuple(_family_from(one) for one in columnFamilies)
        if any(not one.name for one in families):
            raise T.IllegalArgument(message="java.lang.IllegalArgumentException: column name is empty")
        try:
            keys.table_name(tableName)
        except (ValueError, TypeError) as error:
            raise T.IllegalArgument(message=f"java.lang.IllegalArgumentException: {error}") from error
        self._client.create_table(TableDescriptor(tableName, families))

    def deleteTable(self, tableName: bytes) -> None:
        self._client.delete_table(tableName)

    def getRegionInfo(self, row: bytes) -> Any:
        """Return the region of the first row of hbase:meta at or before ``row``, of any table."""
        scan = Scan(row, is_reversed=True, columns=(b"info",), limit=1, caching=1)
        for result in self._client.scan(META_TABLE, scan):
            columns = {cell.column: cell.value for cell in result.cells}
            decoded = metarow.decode(result.row, columns)
            if decoded.locations is not None and decoded.locations.primary is not None:
                return _region(decoded.locations.primary)
        raise T.IOError(message=f"java.io.IOException: Cannot find row in META for {keys.printable(row)}")

    # -- reading -----------------------------------------------------------------------------------------------

    def get(self, tableName: bytes, row: bytes, column: bytes, attributes: Attributes) -> list[Any]:
        return self._cells(tableName, row, column, 1, LATEST_TIMESTAMP)

    def getVer(
        self, tableName: bytes, row: bytes, column: bytes, numVersions: int, attributes: Attributes
    ) -> list[Any]:
        return self._cells(tableName, row, column, numVersions, LATEST_TIMESTAMP)

    def getVerTs(
        self, tableName: bytes, row: bytes, column: bytes, timestamp: int, numVersions: int, attributes: Attributes
    ) -> list[Any]:
        return self._cells(tableName, row, column, numVersions, timestamp)

    def _cells(self, table: bytes, row: bytes, column: bytes, versions: int, until: int) -> list[Any]:
        if versions <= 0:
            raise T.IOError(message="java.io.IOException: maxVersions must be positive", canRetry=True)
        get = Get(check_row(row), (column,), max_versions=versions, max_timestamp=_until(until))
        return [T.TCell(value=cell.value, timestamp=cell.timestamp) for cell in self._client.get(table, get).cells]

    def getRow(self, tableName: bytes, row: bytes, attributes: Attributes) -> list[Any]:
        return self._rows(tableName, [row], None, LATEST_TIMESTAMP)

    def getRowWithColumns(
        self, tableName: bytes, row: bytes, columns: Sequence[bytes] | None, attributes: Attributes
    ) -> list[Any]:
        return self._rows(tableName, [row], columns, LATEST_TIMESTAMP)

    def getRowTs(self, tableName: bytes, row: bytes, timestamp: int, attributes: Attributes) -> list[Any]:
        return self._rows(tableName, [row], None, timestamp)

    def getRowWithColumnsTs(
        self, tableName: bytes, row: bytes, columns: Sequence[bytes] | None, timestamp: int, attributes: Attributes
    ) -> list[Any]:
        return self._rows(tableName, [row], columns, timestamp)

    def getRows(self, tableName: bytes, rows: Sequence[bytes], attributes: Attributes) -> list[Any]:
        return self._rows(tableName, rows, None, LATEST_TIMESTAMP)

    def getRowsWithColumns(
        self, tableName: bytes, rows: Sequence[bytes], columns: Sequence[bytes] | None, attributes: Attributes
    ) -> list[Any]:
        return self._rows(tableName, rows, columns, LATEST_TIMESTAMP)

    def getRowsTs(self, tableName: bytes, rows: Sequence[bytes], timestamp: int, attributes: Attributes) -> list[Any]:
        return self._rows(tableName, rows, None, timestamp)

    def getRowsWithColumnsTs(
        self,
        tableName: bytes,
        rows: Sequence[bytes],
        columns: Sequence[bytes] | None,
        timestamp: int,
        attributes: Attributes,
    ) -> list[Any]:
        return self._rows(tableName, rows, columns, timestamp)

    def _rows(
        self, table: bytes, rows: Sequence[bytes], columns: Sequence[bytes] | None, until: int | None
    ) -> list[Any]:
        gets = [Get(check_row(row), narrowed(columns), max_timestamp=_until(until)) for row in rows]
        if len(gets) == 1 or table == META_TABLE:
            found = [self._client.get(table, get) for get in gets]
        else:
            found = self._client.get_many(table, gets)
        return [_row_to(result) for result in found if result.cells]

    # -- writing -----------------------------------------------------------------------------------------------

    def mutateRow(self, tableName: bytes, row: bytes, mutations: Sequence[Any], attributes: Attributes) -> None:
        self._mutate_row(tableName, row, mutations, LATEST_TIMESTAMP)

    def mutateRowTs(
        self, tableName: bytes, row: bytes, mutations: Sequence[Any], timestamp: int, attributes: Attributes
    ) -> None:
        try:
            time_of(timestamp)
        except IllegalArgument as error:  # this one method declares it; the others fail inside, as in HBase
            raise T.IllegalArgument(message=f"java.lang.IllegalArgumentException: {error}") from error
        self._mutate_row(tableName, row, mutations, timestamp)

    def _mutate_row(self, table: bytes, row: bytes, mutations: Sequence[Any], timestamp: int) -> None:
        deletes = [one for one in mutations if one.isDelete]
        puts = [one for one in mutations if not one.isDelete]
        for one in [one for one in puts if b":" not in one.column]:
            _log.warning("no column qualifier specified: a put to family %s is left out", keys.printable(one.column))
        puts = [one for one in puts if b":" in one.column]
        if deletes:
            self._client.mutate(table, _delete(row, deletes, timestamp))
        if puts:
            self._client.mutate(table, _put(row, puts, timestamp))

    def mutateRows(self, tableName: bytes, rowBatches: Sequence[Any], attributes: Attributes) -> None:
        self._mutate_rows(tableName, rowBatches, LATEST_TIMESTAMP)

    def mutateRowsTs(self, tableName: bytes, rowBatches: Sequence[Any], timestamp: int, attributes: Attributes) -> None:
        self._mutate_rows(tableName, rowBatches, time_of(timestamp))

    def _mutate_rows(self, table: bytes, batches: Sequence[Any], timestamp: int) -> None:
        """Apply all puts, then all deletes: two calls, not atomic across rows."""
        puts: list[Put] = []
        deletes: list[Delete] = []
        for batch in batches:
            row = check_row(batch.row)
            marks = [one for one in batch.mutations if one.isDelete]
            values = [one for one in batch.mutations if not one.isDelete]
            if any(b":" not in one.column for one in values):
                raise T.IllegalArgument(message="java.lang.IllegalArgumentException: No column qualifier specified.")
            if marks:
                deletes.append(_delete(row, marks, timestamp))
            if values:
                puts.append(_put(row, values, timestamp))
        for actions in (puts, deletes):
            failed = [one for one in self._client.batch(table, actions) if isinstance(one, MetaClientError)]
            if failed:
                raise _io_error(java_text.batch_error(failed, table))

    def atomicIncrement(self, tableName: bytes, row: bytes, column: bytes, value: int) -> int:
        return self._increment(tableName, row, column, value)

    def _increment(self, table: bytes, row: bytes, column: bytes, amount: int) -> int:
        """Increment a column; ``cf`` is the column with the empty qualifier."""
        name = column if b":" in column else column + b":"
        result = self._client.mutate(table, Increment(check_row(row), ((name, amount),)))
        assert result is not None, "an increment answers its cells"
        return int.from_bytes(result.cells[0].value, "big", signed=True)

    def increment(self, increment: Any) -> None:
        self._increment(increment.table, increment.row, increment.column, increment.ammount)

    def incrementRows(self, increments: Sequence[Any]) -> None:
        for one in increments:
            self.increment(one)

    def append(self, append: Any) -> list[Any]:
        if len(append.columns) != len(append.values):
            raise T.IOError(message="java.io.IOException: not as many values as columns")
        named = [column if b":" in column else column + b":" for column in append.columns]
        values = tuple(zip(named, append.values, strict=True))
        result = self._client.mutate(append.table, Append(check_row(append.row), values))
        assert result is not None, "an append answers its cells"
        return [T.TCell(value=cell.value, timestamp=cell.timestamp) for cell in result.cells]

    def checkAndPut(
        self,
        tableName: bytes,
        row: bytes,
        column: bytes,
        value: bytes | None,
        mput: Any,
        attributes: Attributes,
    ) -> bool:
        if mput.column is None or b":" not in mput.column:
            raise T.IllegalArgument(message="java.lang.IllegalArgumentException: No column qualifier specified.")
        name = column if b":" in column else column + b":"
        check = Check(check_row(row), name, value or None)
        return self._client.check_and_mutate(tableName, check, _put(row, [mput], LATEST_TIMESTAMP))

    def deleteAll(self, tableName: bytes, row: bytes, column: bytes, attributes: Attributes) -> None:
        self._client.mutate(tableName, Delete(check_row(row), (_mark(column, LATEST_TIMESTAMP),)))

    def deleteAllTs(self, tableName: bytes, row: bytes, column: bytes, timestamp: int, attributes: Attributes) -> None:
        self._client.mutate(tableName, Delete(check_row(row), (_mark(column, time_of(timestamp)),)))

    def deleteAllRow(self, tableName: bytes, row: bytes, attributes: Attributes) -> None:
        self._client.mutate(tableName, Delete(check_row(row)))

    def deleteAllRowTs(self, tableName: bytes, row: bytes, timestamp: int, attributes: Attributes) -> None:
        self._client.mutate(tableName, Delete(check_row(row), timestamp=time_of(timestamp)))

    # -- scanners ----------------------------------------------------------------------------------------------

    def scannerOpenWithScan(self, tableName: bytes, scan: Any, attributes: Attributes) -> int:
        wanted = Scan(
            scan.startRow or b"",
            scan.stopRow or b"",
            is_reversed=bool(scan.reversed),
            columns=narrowed(scan.columns),
            max_timestamp=_until(scan.timestamp),
            filter=parsed_filter(scan.filterString),
            caching=scan.caching if scan.caching is not None and scan.caching > 0 else SCAN_CACHING,
            batch=scan.batchSize if scan.batchSize is not None and scan.batchSize > 0 else None,
        )
        return self._open(tableName, wanted, is_sorted=bool(scan.sortColumns))

    def scannerOpen(
        self, tableName: bytes, startRow: bytes, columns: Sequence[bytes] | None, attributes: Attributes
    ) -> int:
        return self._open(tableName, Scan(startRow or b"", columns=narrowed(columns)))

    def scannerOpenWithStop(
        self,
        tableName: bytes,
        startRow: bytes,
        stopRow: bytes,
        columns: Sequence[bytes] | None,
        attributes: Attributes,
    ) -> int:
        return self._open(tableName, Scan(startRow or b"", stopRow or b"", columns=narrowed(columns)))

    def scannerOpenWithPrefix(
        self, tableName: bytes, startAndPrefix: bytes, columns: Sequence[bytes] | None, attributes: Attributes
    ) -> int:
        stop = keys.prefix_stop(startAndPrefix)
        return self._open(tableName, Scan(startAndPrefix, stop, columns=narrowed(columns)))

    def scannerOpenTs(
        self,
        tableName: bytes,
        startRow: bytes,
        columns: Sequence[bytes] | None,
        timestamp: int,
        attributes: Attributes,
    ) -> int:
        scan = Scan(startRow or b"", columns=narrowed(columns), max_timestamp=_until(timestamp))
        return self._open(tableName, scan)

    def scannerOpenWithStopTs(
        self,
        tableName: bytes,
        startRow: bytes,
        stopRow: bytes,
        columns: Sequence[bytes] | None,
        timestamp: int,
        attributes: Attributes,
    ) -> int:
        columns_ = narrowed(columns)
        scan = Scan(startRow or b"", stopRow or b"", columns=columns_, max_timestamp=_until(timestamp))
        return self._open(tableName, scan)

    def _open(self, table: bytes, scan: Scan, *, is_sorted: bool = False) -> int:
        return self.scanners.add(self._client.scan(table, scan), (table, is_sorted))

    def scannerGet(self, id: int) -> list[Any]:
        return self.scannerGetList(id, 1)

    def scannerGetList(self, id: int, nbRows: int) -> list[Any]:
        scanner = self.scanners.take(id)
        if scanner is None:
            raise T.IllegalArgument(message=_INVALID_SCANNER)
        table, is_sorted = scanner.options
        try:
            found = scanner.next(max(0, nbRows))
        except MetaClientError as error:
            self.scanners.drop(id)
            raise self._failed("scannerGetList", error, table) from error
        return [_row_to(result, is_sorted=is_sorted) for result in found if result.cells]

    def scannerClose(self, id: int) -> None:
        if not self.scanners.remove(id):
            raise T.IllegalArgument(message=_INVALID_SCANNER)

    # -- the gateway itself ------------------------------------------------------------------------------------

    def getThriftServerType(self) -> int:
        return int(T.TThriftServerType.ONE)

    def getClusterId(self) -> str:
        return self._client.cluster_id


def _io_error(said: java_text.JavaError) -> Exception:
    made: Exception = T.IOError(message=said.thrift1, canRetry=said.can_retry)
    return made


def _table_in(arguments: Any) -> bytes | None:
    for name in ("tableName", "tableNameOrRegionName"):
        found = getattr(arguments, name, None)
        if found is not None:
            return bytes(found)
    for name in ("append", "increment"):
        found = getattr(arguments, name, None)
        if found is not None:
            return found.table  # type: ignore[no-any-return]  # thriftpy2 has no types
    return None


def _table_of(table_or_region: bytes) -> bytes:
    """Return the table of a region name: the part before the first comma."""
    return table_or_region.partition(b",")[0]


def _until(timestamp: int | None) -> int:
    return LATEST_TIMESTAMP if timestamp is None else timestamp


def _mark(column: bytes, timestamp: int) -> Cell:
    kind = CellType.DELETE_COLUMN if b":" in column else CellType.DELETE_FAMILY
    return Cell(column, timestamp, b"", kind)


def _durability(mutations: Sequence[Any]) -> Durability:
    """Return the durability of the last mutation, which counts for the row."""
    return Durability.SYNC_WAL if mutations[-1].writeToWAL in (None, True) else Durability.SKIP_WAL


def _delete(row: bytes, mutations: Sequence[Any], timestamp: int) -> Delete:
    cells = tuple(_mark(one.column, timestamp) for one in mutations)
    return Delete(check_row(row), cells, timestamp, _durability(mutations))


def _put(row: bytes, mutations: Sequence[Any], timestamp: int) -> Put:
    cells = tuple(Cell(one.column, timestamp, one.value or b"") for one in mutations)
    return Put(check_row(row), cells, _durability(mutations))


def _row_to(result: Result, *, is_sorted: bool = False) -> Any:
    """Return the newest version of each column: cells come in HBase's order, so that is the first."""
    cell_type = T.TCell
    if is_sorted:
        column_type = T.TColumn
        columns = [
            column_type(name, cell_type(first.value, first.timestamp))
            for name, first in ((name, next(cells)) for name, cells in groupby(result.cells, key=_column_of))
        ]
        return T.TRowResult(row=result.row, sortedColumns=columns)
    newest: dict[bytes, Any] = {}
    for cell in result.cells:
        if cell.column not in newest:
            newest[cell.column] = cell_type(cell.value, cell.timestamp)
    return T.TRowResult(row=result.row, columns=newest)


def _column_of(cell: Cell) -> bytes:
    return cell.column


def _region(place: Any) -> Any:
    region = place.region
    return T.TRegionInfo(
        startKey=region.start_key,
        endKey=region.end_key,
        id=region.region_id,
        name=place.region_name,
        version=1,
        serverName=place.server.host.encode(),
        port=place.server.port,
    )


def _family_from(family: Any) -> FamilyDescriptor:
    ttl = family.timeToLive
    return FamilyDescriptor(
        (family.name or b"").partition(b":")[0],
        max_versions=family.maxVersions,
        time_to_live_s=None if ttl is None or ttl <= 0 or ttl == TTL_FOREVER else ttl,
        compression=family.compression.upper(),
        bloom_filter_type=family.bloomFilterType.upper(),
        in_memory=bool(family.inMemory),
        block_cache_enabled=bool(family.blockCacheEnabled),
    )


def _family_to(family: FamilyDescriptor) -> Any:
    return T.ColumnDescriptor(
        name=family.name + b":",
        maxVersions=family.max_versions,
        compression=family.compression,
        inMemory=family.in_memory,
        bloomFilterType=family.bloom_filter_type,
        blockCacheEnabled=family.block_cache_enabled,
        timeToLive=TTL_FOREVER if family.time_to_live_s is None else family.time_to_live_s,
    )
