"""The field tables of HBase's data path: connections, calls, gets, mutations, scans, batches, and the registry.

Names and numbers are HBase's own (2.6 and 3.0); fields that this client neither reads nor writes are left out and
skipped.
"""

from __future__ import annotations

from typing import Final

from metaclient.metarow import REGION_INFO, SERVER_NAME
from metaclient.protobuf import BOOL, BYTES, SIGNED, TEXT, UNSIGNED, Message

__all__ = [
    "ACTION",
    "BYTES_PAIR",
    "CELL",
    "COLUMN",
    "COLUMN_VALUE",
    "COMPARATOR",
    "CONDITION",
    "CONNECTION_HEADER",
    "EMPTY",
    "EXCEPTION",
    "FILTER",
    "GET",
    "GET_ACTIVE_MASTER_RESPONSE",
    "GET_BOOTSTRAP_NODES_RESPONSE",
    "GET_CLUSTER_ID_RESPONSE",
    "GET_CONNECTION_REGISTRY_RESPONSE",
    "GET_META_REGION_LOCATIONS_RESPONSE",
    "GET_REQUEST",
    "GET_RESPONSE",
    "MULTI_REQUEST",
    "MULTI_RESPONSE",
    "MUTATE_REQUEST",
    "MUTATE_RESPONSE",
    "MUTATION",
    "NAME_BYTES_PAIR",
    "REGION_ACTION",
    "REGION_ACTION_RESULT",
    "REGION_LOCATION",
    "REGION_SPECIFIER",
    "REQUEST_HEADER",
    "RESPONSE_HEADER",
    "RESULT",
    "RESULT_OR_EXCEPTION",
    "SCAN",
    "SCAN_REQUEST",
    "SCAN_RESPONSE",
    "STRING_PAIR",
    "ZK_MASTER",
]

# -- enums ---------------------------------------------------------------------------------------------------------

REGION_NAME: Final = 1
ENCODED_REGION_NAME: Final = 2
MUTATE_APPEND, MUTATE_INCREMENT, MUTATE_PUT, MUTATE_DELETE = 0, 1, 2, 3
DELETE_ONE_VERSION, DELETE_MULTIPLE_VERSIONS, DELETE_FAMILY, DELETE_FAMILY_VERSION = 0, 1, 2, 3
READ_PREAD: Final = 2  # Scan.ReadType

# -- pieces --------------------------------------------------------------------------------------------------------

EMPTY = Message("Empty")
BYTES_PAIR = Message("BytesBytesPair", (1, "first!", BYTES), (2, "second!", BYTES))
STRING_PAIR = Message("NameStringPair", (1, "name!", TEXT), (2, "value!", TEXT))
NAME_BYTES_PAIR = Message("NameBytesPair", (1, "name!", TEXT), (2, "value", BYTES))
TIME_RANGE = Message("TimeRange", (1, "from", UNSIGNED), (2, "to", UNSIGNED))
REGION_SPECIFIER = Message("RegionSpecifier", (1, "type!", UNSIGNED), (2, "value!", BYTES))
REGION_LOCATION = Message(
    "RegionLocation", (1, "region_info!", REGION_INFO), (2, "server_name", SERVER_NAME), (3, "seq_num!", SIGNED)
)

# -- connections and calls -----------------------------------------------------------------------------------------

USER_INFORMATION = Message("UserInformation", (1, "effective_user!", TEXT), (2, "real_user", TEXT))
VERSION_INFO = Message(
    "VersionInfo",
    (1, "version!", TEXT),
    (2, "url!", TEXT),
    (3, "revision!", TEXT),
    (4, "user!", TEXT),
    (5, "date!", TEXT),
    (6, "src_checksum!", TEXT),
    (7, "version_major", UNSIGNED),
    (8, "version_minor", UNSIGNED),
)
CONNECTION_HEADER = Message(
    "ConnectionHeader",
    (1, "user_info", USER_INFORMATION),
    (2, "service_name", TEXT),
    (3, "cell_block_codec_class", TEXT),
    (4, "cell_block_compressor_class", TEXT),
    (5, "version_info", VERSION_INFO),
    (6, "rpc_crypto_cipher_transformation", TEXT),
    (7, "attribute*", NAME_BYTES_PAIR),
)
CELL_BLOCK_META = Message("CellBlockMeta", (1, "length", UNSIGNED))
EXCEPTION = Message(
    "ExceptionResponse",
    (1, "exception_class_name", TEXT),
    (2, "stack_trace", TEXT),
    (3, "hostname", TEXT),
    (4, "port", SIGNED),
    (5, "do_not_retry", BOOL),
    (6, "server_overloaded", BOOL),
)
REQUEST_HEADER = Message(
    "RequestHeader",
    (1, "call_id", UNSIGNED),
    (3, "method_name", TEXT),
    (4, "request_param", BOOL),
    (5, "cell_block_meta", CELL_BLOCK_META),
    (6, "priority", UNSIGNED),
    (7, "timeout", UNSIGNED),
    (8, "attribute*", NAME_BYTES_PAIR),
)
RESPONSE_HEADER = Message(
    "ResponseHeader", (1, "call_id", UNSIGNED), (2, "exception", EXCEPTION), (3, "cell_block_meta", CELL_BLOCK_META)
)

# -- data ----------------------------------------------------------------------------------------------------------

COLUMN = Message("Column", (1, "family!", BYTES), (2, "qualifier*", BYTES))
FILTER = Message("Filter", (1, "name!", TEXT), (2, "serialized_filter", BYTES))
COMPARATOR = Message("Comparator", (1, "name!", TEXT), (2, "serialized_comparator", BYTES))
FAMILY_TIME_RANGE = Message("ColumnFamilyTimeRange", (1, "column_family!", BYTES), (2, "time_range!", TIME_RANGE))
CELL = Message(
    "Cell",
    (1, "row", BYTES),
    (2, "family", BYTES),
    (3, "qualifier", BYTES),
    (4, "timestamp", UNSIGNED),
    (5, "cell_type", UNSIGNED),
    (6, "value", BYTES),
    (7, "tags", BYTES),
)
RESULT = Message(
    "Result",
    (1, "cell*", CELL),
    (2, "associated_cell_count", SIGNED),
    (3, "exists", BOOL),
    (4, "stale", BOOL),
    (5, "partial", BOOL),
)
GET = Message(
    "Get",
    (1, "row!", BYTES),
    (2, "column*", COLUMN),
    (3, "attribute*", NAME_BYTES_PAIR),
    (4, "filter", FILTER),
    (5, "time_range", TIME_RANGE),
    (6, "max_versions", UNSIGNED),
    (7, "cache_blocks", BOOL),
    (8, "store_limit", UNSIGNED),
    (9, "store_offset", UNSIGNED),
    (10, "existence_only", BOOL),
    (11, "closest_row_before", BOOL),
    (12, "consistency", UNSIGNED),
    (13, "cf_time_range*", FAMILY_TIME_RANGE),
)
GET_REQUEST = Message("GetRequest", (1, "region!", REGION_SPECIFIER), (2, "get!", GET))
GET_RESPONSE = Message("GetResponse", (1, "result", RESULT))

CONDITION = Message(
    "Condition",
    (1, "row!", BYTES),
    (2, "family", BYTES),
    (3, "qualifier", BYTES),
    (4, "compare_type", UNSIGNED),
    (5, "comparator", COMPARATOR),
    (6, "time_range", TIME_RANGE),
    (7, "filter", FILTER),
)
QUALIFIER_VALUE = Message(
    "QualifierValue",
    (1, "qualifier", BYTES),
    (2, "value", BYTES),
    (3, "timestamp", UNSIGNED),
    (4, "delete_type", UNSIGNED),
    (5, "tags", BYTES),
)
COLUMN_VALUE = Message("ColumnValue", (1, "family!", BYTES), (2, "qualifier_value*", QUALIFIER_VALUE))
MUTATION = Message(
    "MutationProto",
    (1, "row", BYTES),
    (2, "mutate_type", UNSIGNED),
    (3, "column_value*", COLUMN_VALUE),
    (4, "timestamp", UNSIGNED),
    (5, "attribute*", NAME_BYTES_PAIR),
    (6, "durability", UNSIGNED),
    (7, "time_range", TIME_RANGE),
    (8, "associated_cell_count", SIGNED),
    (9, "nonce", UNSIGNED),
)
MUTATE_REQUEST = Message(
    "MutateRequest",
    (1, "region!", REGION_SPECIFIER),
    (2, "mutation!", MUTATION),
    (3, "condition", CONDITION),
    (4, "nonce_group", UNSIGNED),
)
MUTATE_RESPONSE = Message("MutateResponse", (1, "result", RESULT), (2, "processed", BOOL))

SCAN = Message(
    "Scan",
    (1, "column*", COLUMN),
    (2, "attribute*", NAME_BYTES_PAIR),
    (3, "start_row", BYTES),
    (4, "stop_row", BYTES),
    (5, "filter", FILTER),
    (6, "time_range", TIME_RANGE),
    (7, "max_versions", UNSIGNED),
    (8, "cache_blocks", BOOL),
    (9, "batch_size", UNSIGNED),
    (10, "max_result_size", UNSIGNED),
    (11, "store_limit", UNSIGNED),
    (12, "store_offset", UNSIGNED),
    (14, "small", BOOL),
    (15, "reversed", BOOL),
    (16, "consistency", UNSIGNED),
    (17, "caching", UNSIGNED),
    (18, "allow_partial_results", BOOL),
    (19, "cf_time_range*", FAMILY_TIME_RANGE),
    (20, "mvcc_read_point", UNSIGNED),
    (21, "include_start_row", BOOL),
    (22, "include_stop_row", BOOL),
    (23, "readType", UNSIGNED),
    (24, "need_cursor_result", BOOL),
)
SCAN_REQUEST = Message(
    "ScanRequest",
    (1, "region", REGION_SPECIFIER),
    (2, "scan", SCAN),
    (3, "scanner_id", UNSIGNED),
    (4, "number_of_rows", UNSIGNED),
    (5, "close_scanner", BOOL),
    (6, "next_call_seq", UNSIGNED),
    (7, "client_handles_partials", BOOL),
    (8, "client_handles_heartbeats", BOOL),
    (9, "track_scan_metrics", BOOL),
    (10, "renew", BOOL),
    (11, "limit_of_rows", UNSIGNED),
)
CURSOR = Message("Cursor", (1, "row", BYTES))
SCAN_RESPONSE = Message(
    "ScanResponse",
    (1, "cells_per_result*", UNSIGNED),
    (2, "scanner_id", UNSIGNED),
    (3, "more_results", BOOL),
    (4, "ttl", UNSIGNED),
    (5, "results*", RESULT),
    (6, "stale", BOOL),
    (7, "partial_flag_per_result*", BOOL),
    (8, "more_results_in_region", BOOL),
    (9, "heartbeat_message", BOOL),
    (11, "mvcc_read_point", UNSIGNED),
    (12, "cursor", CURSOR),
)

ACTION = Message("Action", (1, "index", UNSIGNED), (2, "mutation", MUTATION), (3, "get", GET))
REGION_ACTION = Message(
    "RegionAction",
    (1, "region!", REGION_SPECIFIER),
    (2, "atomic", BOOL),
    (3, "action*", ACTION),
    (4, "condition", CONDITION),
)
MULTI_REQUEST = Message(
    "MultiRequest", (1, "regionAction*", REGION_ACTION), (2, "nonceGroup", UNSIGNED), (3, "condition", CONDITION)
)
RESULT_OR_EXCEPTION = Message(
    "ResultOrException", (1, "index", UNSIGNED), (2, "result", RESULT), (3, "exception", NAME_BYTES_PAIR)
)
REGION_ACTION_RESULT = Message(
    "RegionActionResult",
    (1, "resultOrException*", RESULT_OR_EXCEPTION),
    (2, "exception", NAME_BYTES_PAIR),
    (3, "processed", BOOL),
)
MULTI_RESPONSE = Message(
    "MultiResponse",
    (1, "regionActionResult*", REGION_ACTION_RESULT),
    (2, "processed", BOOL),
    (3, "regionStatistics", EMPTY),
)

# -- the registry --------------------------------------------------------------------------------------------------

GET_CLUSTER_ID_RESPONSE = Message("GetClusterIdResponse", (1, "cluster_id", TEXT))
GET_ACTIVE_MASTER_RESPONSE = Message("GetActiveMasterResponse", (1, "server_name", SERVER_NAME))
GET_META_REGION_LOCATIONS_RESPONSE = Message("GetMetaRegionLocationsResponse", (1, "meta_locations*", REGION_LOCATION))
GET_BOOTSTRAP_NODES_RESPONSE = Message("GetBootstrapNodesResponse", (1, "server_name*", SERVER_NAME))
#: The response to the preamble "Regist" (HBase 2.6, 3.0.0-beta-2).
GET_CONNECTION_REGISTRY_RESPONSE = Message("GetConnectionRegistryResponse", (1, "cluster_id!", TEXT))
GET_MASTERS_ENTRY = Message("GetMastersResponseEntry", (1, "server_name!", SERVER_NAME), (2, "is_active!", BOOL))
GET_MASTERS_RESPONSE = Message("GetMastersResponse", (1, "master_servers*", GET_MASTERS_ENTRY))

#: The message in a znode, after the bytes ``PBUF``.
ZK_MASTER = Message("Master", (1, "master!", SERVER_NAME), (2, "rpc_version", UNSIGNED), (3, "info_port", UNSIGNED))
