"""The field tables of bulk loads (ClientService, HBase 2.6): prepare, load, clean up."""

from __future__ import annotations

from metaclient.metarow import TABLE_NAME
from metaclient.protobuf import BOOL, BYTES, TEXT, Message
from metaclient.wire.rpc.messages import REGION_SPECIFIER

__all__ = [
    "BULK_LOAD_REQUEST",
    "BULK_LOAD_RESPONSE",
    "CLEANUP_REQUEST",
    "PREPARE_REQUEST",
    "PREPARE_RESPONSE",
]

_FAMILY_PATH = Message("FamilyPath", (1, "family!", BYTES), (2, "path!", TEXT))
BULK_LOAD_REQUEST = Message(
    "BulkLoadHFileRequest",
    (1, "region!", REGION_SPECIFIER),
    (2, "family_path*", _FAMILY_PATH),
    (3, "assign_seq_num", BOOL),
    (5, "bulk_token", TEXT),
    (6, "copy_file", BOOL),
)
BULK_LOAD_RESPONSE = Message("BulkLoadHFileResponse", (1, "loaded!", BOOL))
PREPARE_REQUEST = Message("PrepareBulkLoadRequest", (1, "table_name!", TABLE_NAME), (2, "region", REGION_SPECIFIER))
PREPARE_RESPONSE = Message("PrepareBulkLoadResponse", (1, "bulk_token!", TEXT))
CLEANUP_REQUEST = Message("CleanupBulkLoadRequest", (1, "bulk_token!", TEXT), (2, "region", REGION_SPECIFIER))
