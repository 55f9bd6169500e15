"""Admin calls of the master and the region servers: tables, namespaces, moves, splits, merges, flushes, region sizes.

A change is a procedure of the master: the call returns its id at once, and getProcedureResult is called until the
procedure has finished. All calls block until their deadline and are made once; the caller decides about retries.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from metaclient import keys, metarow
from metaclient.backend import MetaRow, MetaScan
from metaclient.cluster_status import ClusterStatus, RegionLoad, ServerCheck, ServerLoad
from metaclient.errors import (
    CallTimeout,
    ConfigError,
    DeadlineExceeded,
    Disposition,
    MetaClientError,
    RegionOffline,
    TableNotFound,
)
from metaclient.model import FamilyDescriptor, RegionLocation, RegionLocations, ServerName, TableDescriptor
from metaclient.protobuf import Message, decode, encode
from metaclient.runtime import Runtime
from metaclient.table_schema import TableChange
from metaclient.wire.rpc import admin_messages as m
from metaclient.wire.rpc.framing import Response
from metaclient.wire.rpc.messages import EMPTY
from metaclient.wire.rpc.names import (
    encoded_region_message,
    region_info_message,
    region_message,
    server_from,
    server_message,
    table_from,
    table_message,
)
from metaclient.wire.rpc.schemas import changed_schema, family_message, table_schema_from, table_schema_message
from metaclient_native import errors
from metaclient_native.connections import Connections
from metaclient_native.in_flight import PendingCall
from metaclient_native.request import Request, ServiceAddress
from metaclient_native.scanners import decode_nothing

__all__ = ["ADMIN_SERVICE", "Admin", "ClusterStatus", "RegionLoad", "ServerLoad", "wait_for"]

_log = logging.getLogger(__name__)
T = TypeVar("T")
MASTER_SERVICE = "MasterService"
ADMIN_SERVICE = "AdminService"
#: HConstants.ADMIN_QOS
ADMIN_PRIORITY = 100
#: A procedure takes 0.1 to 2 s. The pause between two getProcedureResult calls grows from the first to the second.
POLL_S_MIN = 0.02
POLL_S_MAX = 0.5
META_PAGE_ROWS = 500
#: Region servers that are asked for the sizes of their regions at the same time.
SERVERS_ASKED = 64
ENABLED = 0
MB = 1024 * 1024


class MasterFinder(Protocol):
    """The part of the registry that admin calls use."""

    def active_master(self, deadline: float) -> ServerName: ...


class Admin:
    """Admin calls; see the module's docstring. ``NativeBackend.admin`` is one.

    It has more than 30 methods because each call of the master has its own, most of them of a few lines.
    """

    def __init__(
        self,
        registry: MasterFinder,
        connections: Connections,
        runtime: Runtime,
        read_meta: Callable[[MetaScan, float], Sequence[MetaRow]],
    ) -> None:
        self._registry = registry
        self._connections = connections
        self._runtime = runtime
        self._read_meta = read_meta
        self._master: ServerName | None = None  # replaced whole; forgotten when it is not the master any more

    # -- tables --------------------------------------------------------------------------------------------------------

    def table_names(self, deadline: float) -> list[bytes]:
        """Of users' tables, sorted."""
        request = {"include_sys_tables": False}
        answer = self.ask("GetTableNames", m.GET_TABLE_NAMES_REQUEST, request, m.GET_TABLE_NAMES_RESPONSE, deadline)
        return sorted(table_from(name) for name in answer.get("table_names", ()))

    def describe_table(self, table: bytes, deadline: float) -> TableDescriptor:
        return table_schema_from(self._schema_of(table, deadline))

    def _schema_of(self, table: bytes, deadline: float) -> Mapping[str, Any]:
        request = {"table_names": [table_message(table)], "include_sys_tables": True}
        answer = self.ask(
            "GetTableDescriptors", m.GET_TABLE_DESCRIPTORS_REQUEST, request, m.GET_TABLE_DESCRIPTORS_RESPONSE, deadline
        )
        found = answer.get("table_schema", ())
        if not found:
            raise _no_table(table)
        schema: Mapping[str, Any] = found[0]
        return schema

    def is_table_enabled(self, table: bytes, deadline: float) -> bool:
        request = {"table_name": table_message(table)}
        answer = self.ask("GetTableState", m.TABLE_REQUEST, request, m.GET_TABLE_STATE_RESPONSE, deadline)
        return bool(answer["table_state"]["state"] == ENABLED)

    def create_table(self, descriptor: TableDescriptor, splits: Sequence[bytes], deadline: float) -> None:
        request = {"table_schema": table_schema_message(descriptor), "split_keys": list(splits)}
        self.run_procedure("CreateTable", m.CREATE_TABLE_REQUEST, request, deadline)

    def delete_table(self, table: bytes, deadline: float) -> None:
        self.run_procedure("DeleteTable", m.TABLE_REQUEST, {"table_name": table_message(table)}, deadline)

    def enable_table(self, table: bytes, deadline: float) -> None:
        self.run_procedure("EnableTable", m.TABLE_REQUEST, {"table_name": table_message(table)}, deadline)

    def disable_table(self, table: bytes, deadline: float) -> None:
        self.run_procedure("DisableTable", m.TABLE_REQUEST, {"table_name": table_message(table)}, deadline)

    def truncate_table(self, table: bytes, deadline: float, *, preserve_splits: bool = True) -> None:
        """Delete all rows; the table must be disabled and is enabled afterwards."""
        request = {"tableName": table_message(table), "preserveSplits": preserve_splits}
        self.run_procedure("truncateTable", m.TRUNCATE_TABLE_REQUEST, request, deadline)

    def alter_table(self, change: TableChange, deadline: float) -> None:
        """Read the table's schema and write it with the change. A change by another client in between is lost."""
        schema = changed_schema(self._schema_of(change.table, deadline), change)
        request = {"table_name": table_message(change.table), "table_schema": schema}
        self.run_procedure("ModifyTable", m.MODIFY_TABLE_REQUEST, request, deadline)

    def modify_table(self, descriptor: TableDescriptor, deadline: float) -> None:
        """Change the table to the descriptor; families that are not in it are deleted with their data."""
        request = {"table_name": table_message(descriptor.name), "table_schema": table_schema_message(descriptor)}
        self.run_procedure("ModifyTable", m.MODIFY_TABLE_REQUEST, request, deadline)

    def add_family(self, table: bytes, family: FamilyDescriptor, deadline: float) -> None:
        request = {"table_name": table_message(table), "column_families": family_message(family)}
        self.run_procedure("AddColumn", m.FAMILY_REQUEST, request, deadline)

    def modify_family(self, table: bytes, family: FamilyDescriptor, deadline: float) -> None:
        request = {"table_name": table_message(table), "column_families": family_message(family)}
        self.run_procedure("ModifyColumn", m.FAMILY_REQUEST, request, deadline)

    def delete_family(self, table: bytes, family: bytes, deadline: float) -> None:
        request = {"table_name": table_message(table), "column_name": family}
        self.run_procedure("DeleteColumn", m.DELETE_COLUMN_REQUEST, request, deadline)

    # -- namespaces ----------------------------------------------------------------------------------------------------

    def namespaces(self, deadline: float) -> list[str]:
        answer = self.ask("ListNamespaceDescriptors", EMPTY, {}, m.LIST_NAMESPACE_DESCRIPTORS_RESPONSE, deadline)
        return sorted(one["name"].decode() for one in answer.get("namespaceDescriptor", ()))

    def create_namespace(self, name: str, deadline: float) -> None:
        request = {"namespaceDescriptor": {"name": name.encode()}}
        self.run_procedure("CreateNamespace", m.CREATE_NAMESPACE_REQUEST, request, deadline)

    def delete_namespace(self, name: str, deadline: float) -> None:
        self.run_procedure("DeleteNamespace", m.NAMESPACE_REQUEST, {"namespaceName": name}, deadline)

    # -- regions -------------------------------------------------------------------------------------------------------

    def regions(self, table: bytes, deadline: float) -> list[RegionLocations]:
        """Return every region of the table as the primary meta region has it, in order, without split parents."""
        found: list[RegionLocations] = []
        start, stop = keys.meta_table_start(table), keys.meta_table_stop(table)
        while True:
            rows = self._read_meta(MetaScan(start, stop, is_reversed=False, limit=META_PAGE_ROWS), deadline)
            for row in rows:
                locations = metarow.decode(row.row, row.columns).locations
                if locations is not None and not locations.region.is_split_parent and locations.region.table == table:
                    found.append(locations)
            if len(rows) < META_PAGE_ROWS:
                break
            start = keys.next_row(rows[-1].row)
        if not found:
            raise _no_table(table)
        return found

    def move_region(self, encoded_name: str, deadline: float, *, server: ServerName | str | None = None) -> None:
        """Move a region, by default to a server of the master's choice; returns when it has arrived.

        A replica of hbase:meta is moved by its own encoded name (``keys.encoded_region_name``). HBase accepts a server
        that does not exist, and moves the region elsewhere, so such a server is refused here with a ConfigError.
        """
        request: dict[str, Any] = {"region": encoded_region_message(encoded_name)}
        if server is not None:
            request["dest_server_name"] = server_message(self._find_live(server, deadline))
        self.ask("MoveRegion", m.MOVE_REGION_REQUEST, request, EMPTY, deadline, is_write=True)

    def _find_live(self, server: ServerName | str, deadline: float) -> ServerName:
        live = [load.server for load in self.cluster_status(deadline).live_servers]
        wanted = str(server)
        found = [one for one in live if wanted in (str(one), one.address)]
        if not found:
            raise ConfigError(f"there is no live region server {wanted}; live are {', '.join(map(str, live))}")
        return found[0]

    def split_region(self, location: RegionLocation | RegionLocations, row: bytes, deadline: float) -> None:
        """Split the region before ``row``; returns when its daughters are open."""
        request = {"region_info": region_info_message(location.region.replica(0)), "split_row": row}
        self.run_procedure("SplitRegion", m.SPLIT_REGION_REQUEST, request, deadline)

    def merge_regions(self, encoded_names: Sequence[str], deadline: float, *, forcible: bool = False) -> None:
        """Merge regions that are neighbours (``forcible``: any); returns when the merged one is open."""
        request = {"region": [encoded_region_message(name) for name in encoded_names], "forcible": forcible}
        self.run_procedure("MergeTableRegions", m.MERGE_TABLE_REGIONS_REQUEST, request, deadline)

    def flush_table(self, table: bytes, deadline: float) -> None:
        """Flush the memstores of all regions of the table; returns when that is done."""
        self._call_each_region(
            table, "FlushRegion", lambda region: encode(m.FLUSH_REGION_REQUEST, {"region": region}), deadline
        )

    def compact_table(self, table: bytes, major: bool, deadline: float) -> None:
        """Request a compaction of each region; HBase compacts later."""
        self._call_each_region(
            table,
            "CompactRegion",
            lambda region: encode(m.COMPACT_REGION_REQUEST, {"region": region, "major": major}),
            deadline,
        )

    def _call_each_region(
        self, table: bytes, method: str, param: Callable[[dict[str, Any]], bytes], deadline: float
    ) -> None:
        """Call the server of each primary region, all calls at once."""
        if not self.is_table_enabled(table, deadline):
            return  # no region is open, so no memstore has data
        calls: list[PendingCall[None]] = []
        for locations in self.regions(table, deadline):
            place = locations.primary
            if place is None:
                raise RegionOffline(f"region {keys.printable(locations.region.name)} is on no server now: retry later")
            request = Request(
                method.encode(),
                param(region_message(place.region_name)),
                decode_nothing,
                deadline,
                method,
                is_write=True,
            )
            address = ServiceAddress(place.server.host, place.server.port, ADMIN_SERVICE)
            calls.append(self._connections.call(address, request))
        for call in calls:
            call.send()
        for call in calls:
            wait_for(call, deadline)

    def balance(self, deadline: float) -> bool:
        """Run the balancer once; return True if it ran."""
        answer = self.ask("Balance", m.BALANCE_REQUEST, {}, m.BALANCE_RESPONSE, deadline, is_write=True)
        return bool(answer["balancer_ran"])

    def set_balancer(self, on: bool, deadline: float) -> bool:
        """Turn the balancer on or off; return the previous setting."""
        request = {"on": on, "synchronous": True}
        answer = self.ask(
            "SetBalancerRunning",
            m.SET_BALANCER_RUNNING_REQUEST,
            request,
            m.SET_BALANCER_RUNNING_RESPONSE,
            deadline,
            is_write=True,
        )
        return bool(answer.get("prev_balance_value", False))

    # -- snapshots -----------------------------------------------------------------------------------------------------

    def snapshot(self, name: str, table: bytes, deadline: float) -> None:
        """Take a snapshot of a table, after a flush; returns when it is complete."""
        snapshot = {"name": name, "table": keys.printable(table), "type": m.SNAPSHOT_FLUSH}
        request = {"snapshot": snapshot}
        self.ask("Snapshot", m.SNAPSHOT_REQUEST, request, m.SNAPSHOT_RESPONSE, deadline, is_write=True)
        pause_s = POLL_S_MIN
        while not self._is_snapshot_done(snapshot, deadline):
            if self._runtime.now() + pause_s >= deadline:
                raise CallTimeout(f"snapshot {name!r} is not complete", may_have_applied=True)
            self._runtime.sleep(pause_s)
            pause_s = min(pause_s * 1.5, POLL_S_MAX)

    def _is_snapshot_done(self, snapshot: Mapping[str, Any], deadline: float) -> bool:
        request = {"snapshot": snapshot}
        answer = self.ask("IsSnapshotDone", m.SNAPSHOT_REQUEST, request, m.IS_SNAPSHOT_DONE_RESPONSE, deadline)
        return bool(answer.get("done", False))

    def delete_snapshot(self, name: str, deadline: float) -> None:
        self.ask("DeleteSnapshot", m.SNAPSHOT_REQUEST, {"snapshot": {"name": name}}, EMPTY, deadline, is_write=True)

    # -- the cluster ---------------------------------------------------------------------------------------------------

    def cluster_status(self, deadline: float) -> ClusterStatus:
        """Return the servers, their regions and the sizes of these."""
        options = [m.OPTION_HBASE_VERSION, m.OPTION_LIVE_SERVERS, m.OPTION_DEAD_SERVERS, m.OPTION_MASTER]
        answer = self.ask(
            "GetClusterStatus",
            m.GET_CLUSTER_STATUS_REQUEST,
            {"options": options},
            m.GET_CLUSTER_STATUS_RESPONSE,
            deadline,
        )["cluster_status"]
        return ClusterStatus(
            answer.get("hbase_version", {}).get("version", ""),
            server_from(answer["master"]) if "master" in answer else None,
            tuple(_server_load(one) for one in answer.get("live_servers", ())),
            tuple(server_from(one) for one in answer.get("dead_servers", ())),
        )

    def hbase_version(self, deadline: float) -> str:
        """Return the version of the active master."""
        options = {"options": [m.OPTION_HBASE_VERSION]}
        answer = self.ask(
            "GetClusterStatus", m.GET_CLUSTER_STATUS_REQUEST, options, m.GET_CLUSTER_STATUS_RESPONSE, deadline
        )
        return str(answer["cluster_status"].get("hbase_version", {}).get("version", ""))

    def check_servers(self, servers: Sequence[ServerName], deadline: float) -> dict[ServerName, ServerCheck]:
        """Send a small call to each server, all at once; return the outcomes. An error as an answer is an answer."""
        now = self._runtime.now
        begun = now()
        ended: dict[ServerName, float] = {}
        calls: dict[ServerName, PendingCall[None]] = {}
        found: dict[ServerName, ServerCheck] = {}
        for server in servers:
            request = Request(
                b"GetServerInfo", b"", decode_nothing, deadline, "check of a server", priority=ADMIN_PRIORITY
            )
            try:
                call = self._connections.call(ServiceAddress(server.host, server.port, ADMIN_SERVICE), request)
                call.on_done(partial(_note_end, ended, server, now))
                calls[server] = call
            except MetaClientError as error:
                found[server] = ServerCheck(now() - begun, error)
        for server, call in calls.items():
            failure: MetaClientError | None = None
            try:
                wait_for(call, deadline)
            except MetaClientError as error:
                failure = error if error.blames_server else None
            found[server] = ServerCheck(ended.get(server, now()) - begun, failure)
        return found

    def region_sizes(
        self, table: bytes, deadline: float, servers: Sequence[ServerName] | None = None
    ) -> dict[bytes, int]:
        """Return the bytes of the table's regions, in store files and memstores, by region name.

        ``servers``: each of these region servers is asked about its own regions, and the master is not; a server that
        does not answer leaves its regions out. None: the master is asked about all regions of all tables.
        """
        if servers is None:
            loads = [load for server in self.cluster_status(deadline).live_servers for load in server.regions]
        else:
            loads = list(self._loads_of(table, servers, deadline))
        prefix = table + b","
        return {
            load.region_name: load.store_bytes + load.memstore_bytes
            for load in loads
            if load.region_name.startswith(prefix)
        }

    def _loads_of(self, table: bytes, servers: Sequence[ServerName], deadline: float) -> Iterator[RegionLoad]:
        """Yield the loads of the table's regions on these servers, :data:`SERVERS_ASKED` servers at a time."""
        param = encode(m.GET_REGION_LOAD_REQUEST, {"table_name": table_message(table)})
        request = Request(b"GetRegionLoad", param, _decode_loads, deadline, "GetRegionLoad")
        for at in range(0, len(servers), SERVERS_ASKED):
            calls: list[PendingCall[tuple[RegionLoad, ...]]] = []
            for server in servers[at : at + SERVERS_ASKED]:
                try:
                    call = self._connections.call(ServiceAddress(server.host, server.port, ADMIN_SERVICE), request)
                    call.send()
                    calls.append(call)
                except MetaClientError as error:
                    _log.debug("%s does not tell the sizes of its regions: %s", server, error)
            for call in calls:
                try:
                    yield from wait_for(call, deadline)
                except MetaClientError as error:
                    _log.debug("%s does not tell the sizes of its regions: %s", call.connection.address, error)

    # -- calls ---------------------------------------------------------------------------------------------------------

    def run_procedure(self, method: str, schema: Message, request: Mapping[str, Any], deadline: float) -> None:
        """Start a procedure and wait until the master has finished it. After a CallTimeout the procedure goes on."""
        started = self.ask(method, schema, request, m.PROCEDURE_RESPONSE, deadline, is_write=True)
        if "proc_id" not in started:
            return
        pause_s = POLL_S_MIN
        while True:
            try:
                answer = self.ask(
                    "getProcedureResult",
                    m.GET_PROCEDURE_RESULT_REQUEST,
                    {"proc_id": started["proc_id"]},
                    m.GET_PROCEDURE_RESULT_RESPONSE,
                    deadline,
                )
            except MetaClientError as error:
                if error.disposition is Disposition.FATAL:
                    raise
                # The next active master continues the procedure: ask again until the deadline.
                if self._runtime.now() + pause_s >= deadline:
                    raise CallTimeout(
                        f"{method}: the procedure has not finished, or its result is unknown: {error}",
                        may_have_applied=True,
                    ) from error
                answer = {"state": m.PROCEDURE_RUNNING}
            if "exception" in answer:
                raise errors.translate_procedure_error(answer["exception"], method)
            if answer["state"] != m.PROCEDURE_RUNNING:
                return
            if self._runtime.now() + pause_s >= deadline:
                raise CallTimeout(f"{method}: the procedure has not finished", may_have_applied=True)
            self._runtime.sleep(pause_s)
            pause_s = min(pause_s * 1.5, POLL_S_MAX)

    def ask(
        self,
        method: str,
        schema: Message,
        request: Mapping[str, Any],
        answer: Message,
        deadline: float,
        *,
        is_write: bool = False,
    ) -> dict[str, Any]:
        """Call the active master."""
        master = self._master
        if master is None:
            master = self._master = self._registry.active_master(deadline)

        def decode_answer(response: Response) -> dict[str, Any]:
            return decode(answer, response.data, response.at, response.end)

        call = self._connections.call(
            ServiceAddress(master.host, master.port, MASTER_SERVICE),
            Request(
                method.encode(),
                encode(schema, request),
                decode_answer,
                deadline,
                method,
                priority=ADMIN_PRIORITY,
                is_write=is_write,
            ),
        )
        try:
            return wait_for(call, deadline)
        except MetaClientError as error:
            if error.blames_server or error.is_overload:
                self._master = None  # another master may be active by now
            raise


def _note_end(ended: dict[ServerName, float], server: ServerName, now: Callable[[], float], call: object) -> None:
    ended[server] = now()


def wait_for(call: PendingCall[T], deadline: float) -> T:
    """Return the result of a call; cancel the call and raise CallTimeout at the deadline."""
    try:
        return call.result(deadline)
    except DeadlineExceeded as error:
        call.cancel()
        raise CallTimeout(
            f"{call.request.what}: {call.connection.address} did not answer in time",
            may_have_applied=call.request.is_write,
        ) from error


def _no_table(table: bytes) -> TableNotFound:
    return TableNotFound(f"table '{keys.printable(table)}' does not exist")


def _decode_loads(response: Response) -> tuple[RegionLoad, ...]:
    answer = decode(m.GET_REGION_LOAD_RESPONSE, response.data, response.at, response.end)
    return tuple(_region_load(one) for one in answer.get("region_loads", ()))


def _server_load(message: Mapping[str, Any]) -> ServerLoad:
    load = message["server_load"]
    return ServerLoad(
        server_from(message["server"]),
        load.get("total_number_of_requests", 0),
        load.get("used_heap_MB", 0) * MB,
        load.get("max_heap_MB", 0) * MB,
        tuple(_region_load(one) for one in load.get("region_loads", ())),
        load.get("info_server_port") or None,
    )


def _region_load(message: Mapping[str, Any]) -> RegionLoad:
    return RegionLoad(
        message["region_specifier"]["value"],
        message.get("storefile_size_MB", 0) * MB,
        message.get("mem_store_size_MB", 0) * MB,
        message.get("read_requests_count", 0),
        message.get("write_requests_count", 0),
        message.get("data_locality", 0.0),
    )
