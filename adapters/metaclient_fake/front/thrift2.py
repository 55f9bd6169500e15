"""The handler of Thrift 2: each method of ``THBaseService`` as HBase 2.6's ThriftHBaseServiceHandler does it.

Facts that clients rely on: ``getScannerRows(n)`` asks for one result after the other, so fewer
than n mean the end; scanners belong to the gateway; a get honours ``targetReplicaId`` with TIMELINE only, a scan
always, ``getMultiple`` never (unless it is of one element); ``regionId`` of locations is 0.

DIVERGENCES: time ranges by family and settings of namespaces are refused; a replica that is on no server is omitted
from ``getAllRegionLocations`` (HBase's handler fails with a NullPointerException).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from metaclient.errors import (
    MetaClientError,
    NoSuchFamily,
    RequestRefused,
    Unsupported,
)
from metaclient.model import META_TABLE, Get, RegionLocation, Result, TableDescriptor
from metaclient.wire.thrift import structs as cells
from metaclient.wire.thrift.idl import thrift2
from metaclient_fake.front import java_text, thrift2_values
from metaclient_fake.front.gateway import GatewayClient
from metaclient_fake.front.java_text import AskedCall
from metaclient_fake.front.scanners import GatewayScanners
from metaclient_fake.front.service import IllegalArgument

__all__ = ["Thrift2Handler"]

T = thrift2()
_INVALID_SCANNER = "Invalid scanner Id"
_INVALID_FAMILY = "org.apache.hadoop.hbase.InvalidFamilyOperationException"
_NO_NAMESPACE = "org.apache.hadoop.hbase.NamespaceNotFoundException"


class Thrift2Handler:
    """Methods are called by :class:`~metaclient_fake.front.service.Service`, each in its client's thread.

    It has more than 30 methods because each method of HBase's Thrift 2 service has its own, most of a few lines.
    """

    def __init__(self, client: GatewayClient, *, lease_s: float, scanners_max: int) -> None:
        self._client = client
        #: The options of each scanner: the call that opened it.
        self.scanners: GatewayScanners[AskedCall] = GatewayScanners(
            client.runtime, lease_s=lease_s, scanners_max=scanners_max
        )

    def failure(self, method: str, arguments: Any, error: MetaClientError) -> Exception:
        """Return a MetaClientError as the TIOError that HBase's gateway sends."""
        return self._failed(method, error, _asked_by(arguments))

    def _failed(self, method: str, error: MetaClientError, asked: AskedCall) -> Exception:
        if isinstance(error, Unsupported):
            return _io_error(f"java.lang.UnsupportedOperationException: {error}", can_retry=False)
        said = java_text.of_call(method, error, self._client.config, self._client.runtime.time_ms(), asked)
        return _io_error(said.thrift2, can_retry=said.can_retry)

    # -- one row, many rows ------------------------------------------------------------------------------------

    def exists(self, table: bytes, tget: Any) -> bool:
        if tget.storeOffset:
            return bool(self._get(table, tget).cells)
        get = replace(thrift2_values.get_from(tget), existence_only=True)
        is_timeline, replica_id = thrift2_values.replica_of(tget)
        result = self._client.get(table, get, is_timeline=is_timeline, replica_id=replica_id)
        return bool(result.cells) if result.exists is None else result.exists

    def existsAll(self, table: bytes, tgets: Sequence[Any]) -> list[bool]:
        return [bool(result.cells) for result in self._get_many(table, tgets)]

    def get(self, table: bytes, tget: Any) -> Any:
        return thrift2_values.result_to(self._get(table, tget))

    def _get(self, table: bytes, tget: Any) -> Result:
        get = thrift2_values.get_from(tget)
        is_timeline, replica_id = thrift2_values.replica_of(tget)
        result = self._client.get(table, get, is_timeline=is_timeline, replica_id=replica_id)
        return thrift2_values.windowed(tget, result)

    def getMultiple(self, table: bytes, tgets: Sequence[Any]) -> list[Any]:
        return [thrift2_values.result_to(result) for result in self._get_many(table, tgets)]

    def _get_many(self, table: bytes, tgets: Sequence[Any]) -> list[Result]:
        if len(tgets) == 1 or table == META_TABLE:
            return [self._get(table, tget) for tget in tgets]
        gets: list[Get] = [thrift2_values.get_from(tget) for tget in tgets]
        is_timeline = any(thrift2_values.replica_of(tget)[0] for tget in tgets)
        found = self._client.get_many(table, gets, is_timeline=is_timeline)
        return [thrift2_values.windowed(tget, result) for tget, result in zip(tgets, found, strict=True)]

    def put(self, table: bytes, tput: Any) -> None:
        self._client.mutate(table, thrift2_values.put_from(tput))

    def putMultiple(self, table: bytes, tputs: Sequence[Any]) -> None:
        self._batch(table, [thrift2_values.put_from(one) for one in tputs])

    def deleteSingle(self, table: bytes, tdelete: Any) -> None:
        self._client.mutate(table, thrift2_values.delete_from(tdelete))

    def deleteMultiple(self, table: bytes, tdeletes: Sequence[Any]) -> list[Any]:
        self._batch(table, [thrift2_values.delete_from(one) for one in tdeletes])
        return []

    def _batch(self, table: bytes, actions: Sequence[Any]) -> None:
        failed = [one for one in self._client.batch(table, actions) if isinstance(one, MetaClientError)]
        if failed:
            said = java_text.batch_error(failed, table)
            raise _io_error(said.thrift2, can_retry=said.can_retry)

    def increment(self, table: bytes, tincrement: Any) -> Any:
        return self._changed(table, thrift2_values.increment_from(tincrement), tincrement.returnResults)

    def append(self, table: bytes, tappend: Any) -> Any:
        return self._changed(table, thrift2_values.append_from(tappend), tappend.returnResults)

    def _changed(self, table: bytes, mutation: Any, returns: bool | None) -> Any:
        result = self._client.mutate(table, mutation)
        if result is None or returns is False:
            return T.TResult(columnValues=[])
        return thrift2_values.result_to(result)

    def mutateRow(self, table: bytes, trowMutations: Any) -> None:
        self._client.mutate(table, thrift2_values.row_mutations_from(trowMutations))

    def checkAndPut(
        self, table: bytes, row: bytes, family: bytes, qualifier: bytes, value: bytes | None, tput: Any
    ) -> bool:
        check = thrift2_values.check_from(row, family, qualifier, value, None)
        return self._client.check_and_mutate(table, check, thrift2_values.put_from(tput))

    def checkAndDelete(
        self, table: bytes, row: bytes, family: bytes, qualifier: bytes, value: bytes | None, tdelete: Any
    ) -> bool:
        check = thrift2_values.check_from(row, family, qualifier, value, None)
        return self._client.check_and_mutate(table, check, thrift2_values.delete_from(tdelete))

    def checkAndMutate(
        self,
        table: bytes,
        row: bytes,
        family: bytes,
        qualifier: bytes,
        compareOp: int,
        value: bytes | None,
        rowMutations: Any,
    ) -> bool:
        if value is None:
            raise IllegalArgument("a null pointer in HBase's handler: checkAndMutate needs a value")
        check = thrift2_values.check_from(row, family, qualifier, value, compareOp)
        return self._client.check_and_mutate(table, check, thrift2_values.row_mutations_from(rowMutations))

    # -- scanners ----------------------------------------------------------------------------------------------

    def openScanner(self, table: bytes, tscan: Any) -> int:
        is_timeline, replica_id = thrift2_values.replica_of(tscan)
        scan = thrift2_values.scan_from(tscan)
        rows = self._client.scan(table, scan, is_timeline=is_timeline, replica_id=replica_id)
        return self.scanners.add(rows, _asked_for(table, tscan))

    def getScannerRows(self, scannerId: int, numRows: int) -> list[Any]:
        scanner = self.scanners.take(scannerId)
        if scanner is None:
            raise T.TIllegalArgument(message=_INVALID_SCANNER)
        try:
            found = scanner.next(max(0, numRows))
        except MetaClientError as error:
            self.scanners.drop(scannerId)
            raise self._failed("getScannerRows", error, scanner.options) from error
        return [thrift2_values.result_to(result) for result in found]

    def closeScanner(self, scannerId: int) -> None:
        self.scanners.remove(scannerId)

    def getScannerResults(self, table: bytes, tscan: Any, numRows: int) -> list[Any]:
        is_timeline, replica_id = thrift2_values.replica_of(tscan)
        scan = thrift2_values.scan_from(tscan)
        count = max(0, numRows)
        scan = replace(scan, caching=max(1, min(scan.caching, count)))
        rows = self._client.scan(table, scan, is_timeline=is_timeline, replica_id=replica_id)
        try:
            return [thrift2_values.result_to(result) for result in islice(rows, count)]
        finally:
            rows.close()

    # -- places ------------------------------------------------------------------------------------------------

    def getRegionLocation(self, table: bytes, row: bytes, reload: bool | None) -> Any:
        return _location(self._client.locate(table, row, reload=bool(reload)))

    def getAllRegionLocations(self, table: bytes) -> list[Any]:
        return [_location(place) for entry in self._client.regions(table) for place in entry.placed()]

    # -- tables ------------------------------------------------------------------------------------------------

    def getTableDescriptor(self, table: Any) -> Any:
        return cells.table_descriptor_of(self._client.describe(_name(table)))

    def getTableDescriptors(self, tables: Sequence[Any]) -> list[Any]:
        return [self.getTableDescriptor(table) for table in tables]

    def getTableDescriptorsByPattern(self, regex: str | None, includeSysTables: bool) -> list[Any]:
        return [cells.table_descriptor_of(self._client.describe(name)) for name in self._names(regex, includeSysTables)]

    def getTableDescriptorsByNamespace(self, name: str) -> list[Any]:
        return [cells.table_descriptor_of(self._client.describe(one)) for one in self._in_namespace(name)]

    def getTableNamesByPattern(self, regex: str | None, includeSysTables: bool) -> list[Any]:
        return [cells.table_name_of(name) for name in self._names(regex, includeSysTables)]

    def getTableNamesByNamespace(self, name: str) -> list[Any]:
        return [cells.table_name_of(one) for one in self._in_namespace(name)]

    def _names(self, regex: str | None, system: bool | None) -> list[bytes]:
        try:
            return self._client.table_names(regex, system=bool(system))
        except ValueError as error:
            raise IllegalArgument(str(error)) from error

    def _in_namespace(self, name: str) -> list[bytes]:
        self._check_namespace(name)
        wanted = name.encode()
        return [one for one in self._client.table_names(system=True) if _namespace(one) == wanted]

    def tableExists(self, tableName: Any) -> bool:
        return _name(tableName) in self._client.table_names(system=True)

    def createTable(self, desc: Any, splitKeys: Sequence[bytes] | None) -> None:
        self._client.create_table(cells.table_descriptor_from(desc), splitKeys or ())

    def deleteTable(self, tableName: Any) -> None:
        self._client.delete_table(_name(tableName))

    def truncateTable(self, tableName: Any, preserveSplits: bool) -> None:
        self._client.truncate_table(_name(tableName), preserve_splits=bool(preserveSplits))

    def enableTable(self, tableName: Any) -> None:
        self._client.enable_table(_name(tableName))

    def disableTable(self, tableName: Any) -> None:
        self._client.disable_table(_name(tableName))

    def isTableEnabled(self, tableName: Any) -> bool:
        return self._client.is_enabled(_name(tableName))

    def isTableDisabled(self, tableName: Any) -> bool:
        return not self._client.is_enabled(_name(tableName))

    def isTableAvailable(self, tableName: Any) -> bool:
        return self.isTableAvailableWithSplit(tableName, None)

    def isTableAvailableWithSplit(self, tableName: Any, splitKeys: Sequence[bytes] | None) -> bool:
        """Return True if the table is enabled, all its regions are on servers, and it is split at these keys."""
        table = _name(tableName)
        if not self._client.is_enabled(table):
            return False
        regions = self._client.regions(table)
        starts = {entry.region.start_key for entry in regions}
        return all(entry.primary is not None for entry in regions) and starts.issuperset(splitKeys or ())

    def addColumnFamily(self, tableName: Any, column: Any) -> None:
        descriptor, family = self._client.describe(_name(tableName)), cells.family_from(column)
        if descriptor.family(family.name) is not None:
            raise _bad_family(descriptor, family.name, "already exists so cannot be added")
        self._client.alter_table(replace(descriptor, families=(*descriptor.families, family)))

    def deleteColumnFamily(self, tableName: Any, column: bytes) -> None:
        descriptor = self._client.describe(_name(tableName))
        if descriptor.family(column) is None:
            raise _bad_family(descriptor, column, "does not exist, so it cannot be deleted")
        kept = tuple(family for family in descriptor.families if family.name != column)
        self._client.alter_table(replace(descriptor, families=kept))

    def modifyColumnFamily(self, tableName: Any, column: Any) -> None:
        descriptor, family = self._client.describe(_name(tableName)), cells.family_from(column)
        if descriptor.family(family.name) is None:
            raise _bad_family(descriptor, family.name, "does not exist, so it cannot be modified")
        families = tuple(family if one.name == family.name else one for one in descriptor.families)
        self._client.alter_table(replace(descriptor, families=families))

    def modifyTable(self, desc: Any) -> None:
        self._client.alter_table(cells.table_descriptor_from(desc))

    # -- namespaces --------------------------------------------------------------------------------------------

    def createNamespace(self, namespaceDesc: Any) -> None:
        _check_plain(namespaceDesc)
        self._client.create_namespace(namespaceDesc.name)

    def modifyNamespace(self, namespaceDesc: Any) -> None:
        self._check_namespace(namespaceDesc.name)
        _check_plain(namespaceDesc)

    def deleteNamespace(self, name: str) -> None:
        self._client.delete_namespace(name)

    def getNamespaceDescriptor(self, name: str) -> Any:
        self._check_namespace(name)
        return T.TNamespaceDescriptor(name=name, configuration={})

    def listNamespaceDescriptors(self) -> list[Any]:
        return [T.TNamespaceDescriptor(name=name, configuration={}) for name in self._client.namespaces()]

    def listNamespaces(self) -> list[str]:
        return self._client.namespaces()

    def _check_namespace(self, name: str) -> None:
        if name not in self._client.namespaces():
            raise RequestRefused(name, detail=_NO_NAMESPACE)

    # -- the gateway itself ------------------------------------------------------------------------------------

    def getThriftServerType(self) -> int:
        return int(T.TThriftServerType.TWO)

    def getClusterId(self) -> str:
        return self._client.cluster_id


def _io_error(message: str, *, can_retry: bool) -> Exception:
    made: Exception = T.TIOError(message=message, canRetry=can_retry)
    return made


def _name(table: Any) -> bytes:
    return cells.table_name_from(table)


def _namespace(table: bytes) -> bytes:
    return table.partition(b":")[0] if b":" in table else b"default"


def _asked_by(arguments: Any) -> AskedCall:
    """Return the table, namespace and row of a call's arguments."""
    table = _table_in(arguments)
    described = getattr(arguments, "namespaceDesc", None)
    namespace = described.name if described is not None else getattr(arguments, "name", None)
    asked = _asked_for(table, getattr(arguments, "tget", None) or getattr(arguments, "tscan", None))
    return replace(asked, namespace=namespace or _namespace(table or b"").decode(errors="replace"))


def _asked_for(table: bytes | None, query: Any) -> AskedCall:
    """Return the AskedCall of a query: a TGet, a TScan, or None."""
    row = getattr(query, "row", None) or getattr(query, "startRow", None) or b""
    replica_id = getattr(query, "targetReplicaId", None) or 0
    return AskedCall(table, "", row, replica_id, is_scan=hasattr(query, "startRow"))


def _table_in(arguments: Any) -> bytes | None:
    named = getattr(arguments, "table", None) or getattr(arguments, "tableName", None)
    if named is None and getattr(arguments, "desc", None) is not None:
        named = arguments.desc.tableName
    return named if named is None or isinstance(named, bytes) else _name(named)


def _location(place: RegionLocation) -> Any:
    region, server = place.region, place.server
    return T.THRegionLocation(
        serverName=T.TServerName(hostName=server.host, port=server.port, startCode=server.start_code),
        regionInfo=T.THRegionInfo(
            regionId=0,  # HBase's converter does not set it
            tableName=region.table,
            startKey=region.start_key,
            endKey=region.end_key,
            offline=region.is_offline,
            split=region.is_split_parent,
            replicaId=region.replica_id,
        ),
    )


def _bad_family(descriptor: TableDescriptor, family: bytes, what: str) -> NoSuchFamily:
    table = descriptor.name.decode(errors="replace")
    return NoSuchFamily(
        f"Column family '{family.decode(errors='replace')}' in table '{table}' {what}", detail=_INVALID_FAMILY
    )


def _check_plain(namespace: Any) -> None:
    if namespace.configuration:
        raise Unsupported("the fake keeps no settings of namespaces")
