"""The field tables of the master's and the region servers' admin calls."""

from __future__ import annotations

from metaclient.metarow import REGION_INFO, SERVER_NAME, TABLE_NAME, TABLE_STATE
from metaclient.protobuf import BOOL, BYTES, FLOAT, SIGNED, TEXT, UNSIGNED, Message
from metaclient.wire.rpc.messages import BYTES_PAIR, REGION_SPECIFIER, STRING_PAIR
from metaclient.wire.rpc.replication_messages import SINK_LOAD, SOURCE_LOAD

FAMILY_SCHEMA = Message(
    "ColumnFamilySchema", (1, "name!", BYTES), (2, "attributes*", BYTES_PAIR), (3, "configuration*", STRING_PAIR)
)
TABLE_SCHEMA = Message(
    "TableSchema",
    (1, "table_name", TABLE_NAME),
    (2, "attributes*", BYTES_PAIR),
    (3, "column_families*", FAMILY_SCHEMA),
    (4, "configuration*", STRING_PAIR),
)
NAMESPACE = Message("NamespaceDescriptor", (1, "name!", BYTES), (2, "configuration*", STRING_PAIR))

_NONCES = ((3, "nonce_group", UNSIGNED), (4, "nonce", UNSIGNED))
#: DeleteTable, EnableTable, DisableTable, FlushTable, GetTableState, MajorCompactionTimestamp
TABLE_REQUEST = Message(
    "TableRequest", (1, "table_name!", TABLE_NAME), (2, "nonce_group", UNSIGNED), (3, "nonce", UNSIGNED)
)
FLUSH_TABLE_REQUEST = Message(
    "FlushTableRequest", (1, "table_name!", TABLE_NAME), (2, "column_family*", BYTES), *_NONCES
)
CREATE_TABLE_REQUEST = Message(
    "CreateTableRequest", (1, "table_schema!", TABLE_SCHEMA), (2, "split_keys*", BYTES), *_NONCES
)
MODIFY_TABLE_REQUEST = Message(
    "ModifyTableRequest",
    (1, "table_name!", TABLE_NAME),
    (2, "table_schema!", TABLE_SCHEMA),
    *_NONCES,
    (5, "reopen_regions", BOOL),
)
TRUNCATE_TABLE_REQUEST = Message(
    "TruncateTableRequest", (1, "tableName!", TABLE_NAME), (2, "preserveSplits", BOOL), *_NONCES
)
#: AddColumn, ModifyColumn
FAMILY_REQUEST = Message(
    "AddColumnRequest", (1, "table_name!", TABLE_NAME), (2, "column_families!", FAMILY_SCHEMA), *_NONCES
)
DELETE_COLUMN_REQUEST = Message(
    "DeleteColumnRequest", (1, "table_name!", TABLE_NAME), (2, "column_name!", BYTES), *_NONCES
)
CREATE_NAMESPACE_REQUEST = Message(
    "CreateNamespaceRequest",
    (1, "namespaceDescriptor!", NAMESPACE),
    (2, "nonce_group", UNSIGNED),
    (3, "nonce", UNSIGNED),
)
#: DeleteNamespace, GetNamespaceDescriptor, ListTableNamesByNamespace
NAMESPACE_REQUEST = Message(
    "DeleteNamespaceRequest", (1, "namespaceName!", TEXT), (2, "nonce_group", UNSIGNED), (3, "nonce", UNSIGNED)
)
LIST_NAMESPACE_DESCRIPTORS_RESPONSE = Message(
    "ListNamespaceDescriptorsResponse", (1, "namespaceDescriptor*", NAMESPACE)
)
GET_NAMESPACE_DESCRIPTOR_RESPONSE = Message("GetNamespaceDescriptorResponse", (1, "namespaceDescriptor!", NAMESPACE))
LIST_NAMESPACES_RESPONSE = Message("ListNamespacesResponse", (1, "namespaceName*", TEXT))
LIST_TABLE_NAMES_BY_NAMESPACE_RESPONSE = Message("ListTableNamesByNamespaceResponse", (1, "tableName*", TABLE_NAME))
LIST_TABLE_DESCRIPTORS_BY_NAMESPACE_RESPONSE = Message(
    "ListTableDescriptorsByNamespaceResponse", (1, "tableSchema*", TABLE_SCHEMA)
)
IS_BALANCER_ENABLED_RESPONSE = Message("IsBalancerEnabledResponse", (1, "enabled!", BOOL))
#: The response of every call that starts a procedure.
PROCEDURE_RESPONSE = Message("ProcedureResponse", (1, "proc_id", UNSIGNED))

GET_TABLE_NAMES_REQUEST = Message(
    "GetTableNamesRequest", (1, "regex", TEXT), (2, "include_sys_tables", BOOL), (3, "namespace", TEXT)
)
GET_TABLE_NAMES_RESPONSE = Message("GetTableNamesResponse", (1, "table_names*", TABLE_NAME))
GET_TABLE_DESCRIPTORS_REQUEST = Message(
    "GetTableDescriptorsRequest",
    (1, "table_names*", TABLE_NAME),
    (2, "regex", TEXT),
    (3, "include_sys_tables", BOOL),
    (4, "namespace", TEXT),
)
GET_TABLE_DESCRIPTORS_RESPONSE = Message("GetTableDescriptorsResponse", (1, "table_schema*", TABLE_SCHEMA))
GET_TABLE_STATE_RESPONSE = Message("GetTableStateResponse", (1, "table_state!", TABLE_STATE))

MOVE_REGION_REQUEST = Message(
    "MoveRegionRequest", (1, "region!", REGION_SPECIFIER), (2, "dest_server_name", SERVER_NAME)
)
SPLIT_REGION_REQUEST = Message(
    "SplitTableRegionRequest", (1, "region_info!", REGION_INFO), (2, "split_row", BYTES), *_NONCES
)
MERGE_TABLE_REGIONS_REQUEST = Message(
    "MergeTableRegionsRequest",
    (1, "region*", REGION_SPECIFIER),
    (3, "forcible", BOOL),
    (4, "nonce_group", UNSIGNED),
    (5, "nonce", UNSIGNED),
)
BALANCE_REQUEST = Message("BalanceRequest", (1, "ignore_rit", BOOL), (2, "dry_run", BOOL))
BALANCE_RESPONSE = Message(
    "BalanceResponse", (1, "balancer_ran!", BOOL), (2, "moves_calculated", UNSIGNED), (3, "moves_executed", UNSIGNED)
)
SET_BALANCER_RUNNING_REQUEST = Message("SetBalancerRunningRequest", (1, "on!", BOOL), (2, "synchronous", BOOL))
SET_BALANCER_RUNNING_RESPONSE = Message("SetBalancerRunningResponse", (1, "prev_balance_value", BOOL))

PROCEDURE_NOT_FOUND, PROCEDURE_RUNNING, PROCEDURE_FINISHED = 0, 1, 2
GENERIC_EXCEPTION = Message(
    "GenericExceptionMessage", (1, "class_name", TEXT), (2, "message", TEXT), (3, "error_info", BYTES)
)
FOREIGN_EXCEPTION = Message("ForeignExceptionMessage", (1, "source", TEXT), (2, "generic_exception", GENERIC_EXCEPTION))
GET_PROCEDURE_RESULT_REQUEST = Message("GetProcedureResultRequest", (1, "proc_id!", UNSIGNED))
GET_PROCEDURE_RESULT_RESPONSE = Message(
    "GetProcedureResultResponse",
    (1, "state!", UNSIGNED),
    (2, "submitted_time", UNSIGNED),
    (3, "last_update", UNSIGNED),
    (4, "result", BYTES),
    (5, "exception", FOREIGN_EXCEPTION),
)
PROCEDURE_DESCRIPTION = Message(
    "ProcedureDescription",
    (1, "signature!", TEXT),
    (2, "instance", TEXT),
    (3, "creation_time", SIGNED),
    (4, "configuration*", STRING_PAIR),
)
#: ExecProcedure, IsProcedureDone
EXEC_PROCEDURE_REQUEST = Message("ExecProcedureRequest", (1, "procedure!", PROCEDURE_DESCRIPTION))
EXEC_PROCEDURE_RESPONSE = Message("ExecProcedureResponse", (1, "expected_timeout", SIGNED), (2, "return_data", BYTES))
IS_PROCEDURE_DONE_RESPONSE = Message("IsProcedureDoneResponse", (1, "done", BOOL))
IS_MASTER_RUNNING_RESPONSE = Message("IsMasterRunningResponse", (1, "is_master_running!", BOOL))

# -- the cluster's status ------------------------------------------------------------------------------------------

OPTION_HBASE_VERSION, OPTION_LIVE_SERVERS, OPTION_DEAD_SERVERS, OPTION_MASTER = 0, 2, 3, 4
REGION_LOAD = Message(
    "RegionLoad",
    (1, "region_specifier!", REGION_SPECIFIER),
    (2, "stores", UNSIGNED),
    (3, "storefiles", UNSIGNED),
    (4, "store_uncompressed_size_MB", UNSIGNED),
    (5, "storefile_size_MB", UNSIGNED),
    (6, "mem_store_size_MB", UNSIGNED),
    (8, "read_requests_count", UNSIGNED),
    (9, "write_requests_count", UNSIGNED),
    (16, "data_locality", FLOAT),
    (28, "region_size_MB", UNSIGNED),
)
SERVER_LOAD = Message(
    "ServerLoad",
    (1, "number_of_requests", UNSIGNED),
    (2, "total_number_of_requests", UNSIGNED),
    (3, "used_heap_MB", UNSIGNED),
    (4, "max_heap_MB", UNSIGNED),
    (5, "region_loads*", REGION_LOAD),
    (7, "report_start_time", UNSIGNED),
    (8, "report_end_time", UNSIGNED),
    (9, "info_server_port", UNSIGNED),
    (10, "replLoadSource*", SOURCE_LOAD),
    (11, "replLoadSink", SINK_LOAD),
)
LIVE_SERVER = Message("LiveServerInfo", (1, "server!", SERVER_NAME), (2, "server_load!", SERVER_LOAD))
HBASE_VERSION = Message("HBaseVersionFileContent", (1, "version!", TEXT))
CLUSTER_ID = Message("ClusterId", (1, "cluster_id!", TEXT))
CLUSTER_STATUS = Message(
    "ClusterStatus",
    (1, "hbase_version", HBASE_VERSION),
    (2, "live_servers*", LIVE_SERVER),
    (3, "dead_servers*", SERVER_NAME),
    (5, "cluster_id", CLUSTER_ID),
    (7, "master", SERVER_NAME),
    (8, "backup_masters*", SERVER_NAME),
    (9, "balancer_on", BOOL),
    (11, "servers_name*", SERVER_NAME),
)
GET_CLUSTER_STATUS_REQUEST = Message("GetClusterStatusRequest", (1, "options*", UNSIGNED))
GET_CLUSTER_STATUS_RESPONSE = Message("GetClusterStatusResponse", (1, "cluster_status!", CLUSTER_STATUS))

# -- AdminService, on region servers -------------------------------------------------------------------------------

GET_REGION_INFO_REQUEST = Message(
    "GetRegionInfoRequest", (1, "region!", REGION_SPECIFIER), (2, "compaction_state", BOOL), (3, "best_split_row", BOOL)
)
GET_REGION_INFO_RESPONSE = Message(
    "GetRegionInfoResponse",
    (1, "region_info!", REGION_INFO),
    (2, "compaction_state", UNSIGNED),
    (4, "splittable", BOOL),
    (5, "mergeable", BOOL),
    (6, "best_split_row", BYTES),
)
GET_ONLINE_REGION_RESPONSE = Message("GetOnlineRegionResponse", (1, "region_info*", REGION_INFO))
FLUSH_REGION_REQUEST = Message(
    "FlushRegionRequest",
    (1, "region!", REGION_SPECIFIER),
    (2, "if_older_than_ts", UNSIGNED),
    (3, "write_flush_wal_marker", BOOL),
    (4, "family", BYTES),
)
FLUSH_REGION_RESPONSE = Message(
    "FlushRegionResponse", (1, "last_flush_time!", UNSIGNED), (2, "flushed", BOOL), (3, "wrote_flush_wal_marker", BOOL)
)
COMPACT_REGION_REQUEST = Message(
    "CompactRegionRequest", (1, "region!", REGION_SPECIFIER), (2, "major", BOOL), (3, "family", BYTES)
)
GET_REGION_LOAD_REQUEST = Message("GetRegionLoadRequest", (1, "table_name", TABLE_NAME))
GET_REGION_LOAD_RESPONSE = Message("GetRegionLoadResponse", (1, "region_loads*", REGION_LOAD))
GET_SERVER_INFO = Message("ServerInfo", (1, "server_name!", SERVER_NAME), (2, "webui_port", UNSIGNED))
GET_SERVER_INFO_RESPONSE = Message("GetServerInfoResponse", (1, "server_info!", GET_SERVER_INFO))

# -- snapshots -----------------------------------------------------------------------------------------------------

SNAPSHOT = Message(
    "SnapshotDescription",
    (1, "name!", TEXT),
    (2, "table", TEXT),
    (3, "creation_time", SIGNED),
    (4, "type", UNSIGNED),
    (5, "version", SIGNED),
    (8, "ttl", SIGNED),
)
SNAPSHOT_REQUEST = Message("SnapshotRequest", (1, "snapshot!", SNAPSHOT))
SNAPSHOT_RESPONSE = Message("SnapshotResponse", (1, "expected_timeout", SIGNED), (2, "proc_id", SIGNED))
IS_SNAPSHOT_DONE_RESPONSE = Message("IsSnapshotDoneResponse", (1, "done", BOOL))
#: SnapshotDescription.Type: the memstores are flushed first.
SNAPSHOT_FLUSH = 1
