"""MasterService of HBase's RPC: tables, namespaces, regions and the cluster's status.

Long changes are procedures: the call returns the procedure's number, and GetProcedureResult its result. Requests that
are invalid from the start (a table that already exists) are refused by the call itself, as in HBase.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from metaclient.errors import NoSuchFamily, RequestRefused, TableNotDisabled
from metaclient.model import META_TABLE, ServerName, TableDescriptor, TableState
from metaclient.protobuf import Message, decode, encode
from metaclient.wire.rpc import admin_messages as messages
from metaclient.wire.rpc.messages import EMPTY
from metaclient.wire.rpc.names import region_info_from, server_from, server_message, table_from, table_message
from metaclient.wire.rpc.schemas import family_from, table_schema_from, table_schema_message
from metaclient_fake.config.cluster import HBASE_VERSION
from metaclient_fake.front.rpc.addresses import Addresses
from metaclient_fake.front.rpc.channel import Answer, Incoming
from metaclient_fake.front.rpc.master_access import MasterAccess
from metaclient_fake.front.rpc.procedures import Procedures
from metaclient_fake.front.rpc.region_admin import region_load
from metaclient_fake.front.rpc.replication_service import PeerMethods, replication_load

if TYPE_CHECKING:
    from metaclient_fake.backend import FakeBackend
    from metaclient_fake.master.region_states import RegionNode

__all__ = ["MasterService"]

T = TypeVar("T")
Fields = Mapping[str, Any]

_HBASE = "org.apache.hadoop.hbase."
_NO_NAMESPACE = _HBASE + "NamespaceNotFoundException"
_UNKNOWN_REGION = _HBASE + "UnknownRegionException"
_NO_FAMILY = _HBASE + "InvalidFamilyOperationException"
_FLUSH_TABLE = "flush-table-proc"


class MasterService:
    """The calls of Java's Admin that the fake cluster supports.

    It has more than 30 methods because each call of HBase's MasterService has its own, most of them of a few lines.
    """

    def __init__(self, backend: FakeBackend, address: Callable[[], ServerName], addresses: Addresses) -> None:
        self._backend = backend
        self._cluster = backend.cluster
        self._address = address
        self._addresses = addresses
        self._procedures = Procedures(backend.cluster.runtime, addresses)
        self._access = MasterAccess(backend.cluster.grants)
        self._is_balancer_on = True
        self._peers = PeerMethods(lambda: self._cluster.replication_admin, self._cluster.runtime, self._procedure)
        self._methods: Mapping[str, tuple[Message, Callable[[Fields], bytes]]] = {
            "IsMasterRunning": (EMPTY, self._is_master_running),
            "GetClusterStatus": (messages.GET_CLUSTER_STATUS_REQUEST, self._get_cluster_status),
            "getProcedureResult": (messages.GET_PROCEDURE_RESULT_REQUEST, self._get_procedure_result),
            "GetTableNames": (messages.GET_TABLE_NAMES_REQUEST, self._get_table_names),
            "GetTableDescriptors": (messages.GET_TABLE_DESCRIPTORS_REQUEST, self._get_table_descriptors),
            "GetTableState": (messages.TABLE_REQUEST, self._get_table_state),
            "CreateTable": (messages.CREATE_TABLE_REQUEST, self._create_table),
            "DeleteTable": (messages.TABLE_REQUEST, self._delete_table),
            "truncateTable": (messages.TRUNCATE_TABLE_REQUEST, self._truncate_table),
            "EnableTable": (messages.TABLE_REQUEST, self._enable_table),
            "DisableTable": (messages.TABLE_REQUEST, self._disable_table),
            "ModifyTable": (messages.MODIFY_TABLE_REQUEST, self._modify_table),
            "AddColumn": (messages.FAMILY_REQUEST, self._add_column),
            "ModifyColumn": (messages.FAMILY_REQUEST, self._modify_column),
            "DeleteColumn": (messages.DELETE_COLUMN_REQUEST, self._delete_column),
            "FlushTable": (messages.FLUSH_TABLE_REQUEST, self._flush_table),
            "ExecProcedure": (messages.EXEC_PROCEDURE_REQUEST, self._exec_procedure),
            "IsProcedureDone": (messages.EXEC_PROCEDURE_REQUEST, self._is_procedure_done),
            "MoveRegion": (messages.MOVE_REGION_REQUEST, self._move_region),
            "SplitRegion": (messages.SPLIT_REGION_REQUEST, self._split_region),
            "MergeTableRegions": (messages.MERGE_TABLE_REGIONS_REQUEST, self._merge_table_regions),
            "Balance": (messages.BALANCE_REQUEST, self._balance),
            "SetBalancerRunning": (messages.SET_BALANCER_RUNNING_REQUEST, self._set_balancer_running),
            "IsBalancerEnabled": (EMPTY, self._is_balancer_enabled),
            "ListNamespaces": (EMPTY, self._list_namespaces),
            "ListTableNamesByNamespace": (messages.NAMESPACE_REQUEST, self._list_table_names),
            "ListTableDescriptorsByNamespace": (messages.NAMESPACE_REQUEST, self._list_table_descriptors),
            "ListNamespaceDescriptors": (EMPTY, self._list_namespace_descriptors),
            "GetNamespaceDescriptor": (messages.NAMESPACE_REQUEST, self._get_namespace_descriptor),
            "CreateNamespace": (messages.CREATE_NAMESPACE_REQUEST, self._create_namespace),
            "DeleteNamespace": (messages.NAMESPACE_REQUEST, self._delete_namespace),
            **self._peers.methods,
        }

    def method(self, name: str) -> Callable[[Incoming], Answer] | None:
        found = self._methods.get(name)
        if found is None:
            return None
        request, method = found

        def run(call: Incoming) -> Answer:
            asked, user = decode(request, call.param), call.identity.username
            self._access.before(user, name, asked)
            answer = self._backend.at_master(lambda: method(asked), deadline=call.deadline)
            return Answer(self._access.after(user, name, asked, answer))

        return run

    def may_wait(self, name: str) -> bool:
        """Return True for the calls that respond when their work is done."""
        return name in ("MoveRegion", "Balance", "ExecProcedure")

    def _procedure(self, procedure: Callable[[], object]) -> bytes:
        return encode(messages.PROCEDURE_RESPONSE, {"proc_id": self._procedures.start(procedure)})

    # -- the cluster -------------------------------------------------------------------------------------------

    def _is_master_running(self, request: Fields) -> bytes:
        return encode(messages.IS_MASTER_RUNNING_RESPONSE, {"is_master_running": True})

    def _get_procedure_result(self, request: Fields) -> bytes:
        return encode(messages.GET_PROCEDURE_RESULT_RESPONSE, self._procedures.result(request["proc_id"]))

    def _get_cluster_status(self, request: Fields) -> bytes:
        """Return the whole status; the request's options, which only omit fields, are ignored."""
        live = []
        replication = self._peers.status()
        for name, server in self._cluster.master.live.items():
            requests = server.calls.requests_by_region()
            loads = [
                region_load(region, held, requests.get(region, 0)) for region, held in list(server.regions.items())
            ]
            load = {**_load(loads), **replication_load(replication.get(name))}
            live.append({"server": server_message(self._addresses.outside(name)), "server_load": load})
        status = {
            "hbase_version": {"version": HBASE_VERSION},
            "live_servers": live,
            "dead_servers": [server_message(self._addresses.outside(name)) for name in self._cluster.master.dead],
            "cluster_id": {"cluster_id": self._cluster.cluster_id},
            "master": server_message(self._address()),
            "balancer_on": self._is_balancer_on,
            "servers_name": [server_message(self._addresses.outside(name)) for name in self._cluster.master.live],
        }
        return encode(messages.GET_CLUSTER_STATUS_RESPONSE, {"cluster_status": status})

    # -- tables ------------------------------------------------------------------------------------------------

    def _names(self, request: Fields) -> list[bytes]:
        names = self._cluster.master.table_names()
        if request.get("include_sys_tables"):
            names = [META_TABLE, *names]
        namespace = request.get("namespace")
        if namespace:
            names = [name for name in names if _namespace(name) == namespace]
        pattern = request.get("regex")
        if pattern:
            try:
                matcher = re.compile(pattern)
            except re.error as error:
                raise RequestRefused(f"{pattern!r} is no regular expression: {error}") from error
            names = [name for name in names if matcher.fullmatch(name.decode())]
        return names

    def _get_table_names(self, request: Fields) -> bytes:
        names = [table_message(name) for name in self._names(request)]
        return encode(messages.GET_TABLE_NAMES_RESPONSE, {"table_names": names})

    def _get_table_descriptors(self, request: Fields) -> bytes:
        """Return the descriptors of the known tables. A client takes a table that is left out as missing."""
        wanted = [table_from(one) for one in request.get("table_names", ())] or self._names(request)
        known = self._cluster.master.tables
        schemas = [table_schema_message(known[name].descriptor) for name in wanted if name in known]
        return encode(messages.GET_TABLE_DESCRIPTORS_RESPONSE, {"table_schema": schemas})

    def _get_table_state(self, request: Fields) -> bytes:
        state = self._cluster.master.record(table_from(request["table_name"])).state
        return encode(messages.GET_TABLE_STATE_RESPONSE, {"table_state": {"state": state.value}})

    def _create_table(self, request: Fields) -> bytes:
        descriptor = table_schema_from(request["table_schema"])
        self._cluster.master.check_new(descriptor.name)
        splits = request.get("split_keys", [])
        return self._procedure(lambda: self._cluster.create_table(descriptor, splits))

    def _delete_table(self, request: Fields) -> bytes:
        table = self._disabled(request["table_name"])
        return self._procedure(lambda: self._cluster.delete_table(table))

    def _truncate_table(self, request: Fields) -> bytes:
        table = self._disabled(request["tableName"])
        keeps = request.get("preserveSplits", False)
        return self._procedure(lambda: self._cluster.truncate_table(table, preserve_splits=keeps))

    def _disabled(self, message: Fields) -> bytes:
        table = table_from(message)
        self._cluster.master.check_disabled(table)
        return table

    def _enable_table(self, request: Fields) -> bytes:
        table = table_from(request["table_name"])
        if self._cluster.master.record(table).state is TableState.ENABLED:
            raise TableNotDisabled(f"tableName={table.decode()}, state=ENABLED", detail=TableNotDisabled.java_class)
        return self._procedure(lambda: self._cluster.enable_table(table))

    def _disable_table(self, request: Fields) -> bytes:
        table = table_from(request["table_name"])
        self._cluster.master.check_enabled(table)
        return self._procedure(lambda: self._cluster.disable_table(table))

    def _modify_table(self, request: Fields) -> bytes:
        descriptor = table_schema_from(request["table_schema"])
        self._cluster.master.record(descriptor.name)
        return self._procedure(lambda: self._cluster.alter_table(descriptor))

    def _add_column(self, request: Fields) -> bytes:
        family = family_from(request["column_families"])
        descriptor = self._descriptor(request)
        if descriptor.family(family.name) is not None:
            raise NoSuchFamily(f"Column family '{family.name.decode()}' is there already", detail=_NO_FAMILY)
        return self._alter(replace(descriptor, families=(*descriptor.families, family)))

    def _modify_column(self, request: Fields) -> bytes:
        family = family_from(request["column_families"])
        descriptor = self._with(self._descriptor(request), family.name)
        families = tuple(family if one.name == family.name else one for one in descriptor.families)
        return self._alter(replace(descriptor, families=families))

    def _delete_column(self, request: Fields) -> bytes:
        name: bytes = request["column_name"]
        descriptor = self._with(self._descriptor(request), name)
        return self._alter(replace(descriptor, families=tuple(one for one in descriptor.families if one.name != name)))

    def _descriptor(self, request: Fields) -> TableDescriptor:
        return self._cluster.master.descriptor_of(table_from(request["table_name"]))

    def _with(self, descriptor: TableDescriptor, family: bytes) -> TableDescriptor:
        if descriptor.family(family) is None:
            raise NoSuchFamily(f"Column family '{family.decode()}' does not exist", detail=_NO_FAMILY)
        return descriptor

    def _alter(self, descriptor: TableDescriptor) -> bytes:
        return self._procedure(lambda: self._cluster.alter_table(descriptor))

    def _flush_table(self, request: Fields) -> bytes:
        table = table_from(request["table_name"])
        self._cluster.master.check_enabled(table)
        return self._procedure(lambda: self._cluster.flush(table))

    def _exec_procedure(self, request: Fields) -> bytes:
        """Flush a table, as clients did before FlushTable existed; the flush is done when the call returns."""
        signature = request["procedure"]["signature"]
        if signature != _FLUSH_TABLE:
            raise RequestRefused(f"The procedure is not registered: {signature}")
        table = request["procedure"].get("instance", "").encode()
        self._cluster.master.check_enabled(table)
        self._cluster.flush(table)
        return encode(messages.EXEC_PROCEDURE_RESPONSE, {"expected_timeout": 60_000})

    def _is_procedure_done(self, request: Fields) -> bytes:
        return encode(messages.IS_PROCEDURE_DONE_RESPONSE, {"done": True})

    # -- regions -----------------------------------------------------------------------------------------------

    def _node(self, specifier: Fields) -> RegionNode:
        encoded = specifier["value"].decode(errors="replace")
        node = self._cluster.master.states.by_encoded.get(encoded)
        if node is None:
            raise RequestRefused(encoded, detail=_UNKNOWN_REGION)
        return node

    def _move_region(self, request: Fields) -> bytes:
        node = self._node(request["region"])
        target = request.get("dest_server_name")
        self._cluster.move(
            node.info.replica(0).encoded_name,
            None if target is None else self._addresses.inside(server_from(target)),
            replica_id=node.info.replica_id,
        )
        return b""

    def _split_region(self, request: Fields) -> bytes:
        encoded = region_info_from(request["region_info"]).encoded_name
        at = request.get("split_row")
        if encoded not in self._cluster.master.states.by_encoded:
            raise RequestRefused(encoded, detail=_UNKNOWN_REGION)
        return self._procedure(lambda: self._cluster.split(encoded, at))

    def _merge_table_regions(self, request: Fields) -> bytes:
        nodes = [self._node(one) for one in request.get("region", ())]
        if len(nodes) != 2:
            raise RequestRefused(f"two regions are merged here, got {len(nodes)}")
        left, right = (node.encoded for node in nodes)
        return self._procedure(lambda: self._cluster.merge(left, right))

    def _balance(self, request: Fields) -> bytes:
        moves = self._cluster.balance() if self._is_balancer_on and not request.get("dry_run") else 0
        message = {"balancer_ran": self._is_balancer_on, "moves_calculated": moves, "moves_executed": moves}
        return encode(messages.BALANCE_RESPONSE, message)

    def _set_balancer_running(self, request: Fields) -> bytes:
        """Return whether Balance does anything: the fake has no balancer that runs by itself."""
        before, self._is_balancer_on = self._is_balancer_on, request["on"]
        return encode(messages.SET_BALANCER_RUNNING_RESPONSE, {"prev_balance_value": before})

    def _is_balancer_enabled(self, request: Fields) -> bytes:
        return encode(messages.IS_BALANCER_ENABLED_RESPONSE, {"enabled": self._is_balancer_on})

    # -- namespaces --------------------------------------------------------------------------------------------

    def _list_namespaces(self, request: Fields) -> bytes:
        names = [name.decode() for name in sorted(self._cluster.master.namespaces)]
        return encode(messages.LIST_NAMESPACES_RESPONSE, {"namespaceName": names})

    def _list_table_names(self, request: Fields) -> bytes:
        names = self._names({"namespace": request["namespaceName"], "include_sys_tables": True})
        message = {"tableName": [table_message(name) for name in names]}
        return encode(messages.LIST_TABLE_NAMES_BY_NAMESPACE_RESPONSE, message)

    def _list_table_descriptors(self, request: Fields) -> bytes:
        names = self._names({"namespace": request["namespaceName"], "include_sys_tables": True})
        schemas = [table_schema_message(self._cluster.master.descriptor_of(name)) for name in names]
        return encode(messages.LIST_TABLE_DESCRIPTORS_BY_NAMESPACE_RESPONSE, {"tableSchema": schemas})

    def _list_namespace_descriptors(self, request: Fields) -> bytes:
        found = [{"name": name} for name in sorted(self._cluster.master.namespaces)]
        return encode(messages.LIST_NAMESPACE_DESCRIPTORS_RESPONSE, {"namespaceDescriptor": found})

    def _get_namespace_descriptor(self, request: Fields) -> bytes:
        name = request["namespaceName"].encode()
        if name not in self._cluster.master.namespaces:
            raise RequestRefused(name.decode(), detail=_NO_NAMESPACE)
        return encode(messages.GET_NAMESPACE_DESCRIPTOR_RESPONSE, {"namespaceDescriptor": {"name": name}})

    def _create_namespace(self, request: Fields) -> bytes:
        name = request["namespaceDescriptor"]["name"].decode()
        return self._procedure(lambda: self._cluster.create_namespace(name))

    def _delete_namespace(self, request: Fields) -> bytes:
        name = request["namespaceName"]
        return self._procedure(lambda: self._cluster.delete_namespace(name))


def _namespace(table: bytes) -> str:
    namespace, colon, _ = table.partition(b":")
    return namespace.decode() if colon else "default"


def _load(loads: Sequence[Fields]) -> dict[str, Any]:
    return {"region_loads": list(loads), "used_heap_MB": 0, "max_heap_MB": 0}
