"""Decides which right a call of MasterService needs, and which tables its answer may name (AccessController of 2.6).

DIVERGENCES: the cluster's status and the namespaces can be read by all users.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from metaclient.protobuf import Message, decode, encode
from metaclient.wire.rpc import admin_messages as messages
from metaclient.wire.rpc.names import region_info_from, table_from
from metaclient_fake.grants import CHANGE, Grants, Right

__all__ = ["MasterAccess"]

Fields = Mapping[str, Any]
_ADMIN = (Right.ADMIN,)


def _named(request: Fields) -> bytes:
    return table_from(request["table_name"])


def _of_schema(request: Fields) -> bytes:
    return table_from(request["table_schema"]["table_name"])


def _of_all(request: Fields) -> bytes:
    return b""


#: Method -> the rights of which one is needed, and the table; b"" means all tables.
_NEEDED: Mapping[str, tuple[tuple[Right, ...], Callable[[Fields], bytes]]] = {
    "CreateTable": (CHANGE, _of_schema),
    "ModifyTable": (CHANGE, _of_schema),
    "truncateTable": (CHANGE, lambda request: table_from(request["tableName"])),
    "SplitRegion": (_ADMIN, lambda request: region_info_from(request["region_info"]).table),
    **dict.fromkeys(
        (
            "DeleteTable", "EnableTable", "DisableTable", "AddColumn", "ModifyColumn", "DeleteColumn", "FlushTable",
        ),
        (CHANGE, _named),
    ),
    "ExecProcedure": (CHANGE, lambda request: request["procedure"].get("instance", "").encode()),
    **dict.fromkeys(
        (
            "MoveRegion", "MergeTableRegions", "Balance", "SetBalancerRunning", "CreateNamespace", "DeleteNamespace",
            "AddReplicationPeer", "RemoveReplicationPeer", "EnableReplicationPeer", "DisableReplicationPeer",
            "UpdateReplicationPeerConfig", "ListReplicationPeers", "GetReplicationPeerConfig",
            "IsReplicationPeerEnabled",
        ),
        (_ADMIN, _of_all),
    ),
}  # fmt: skip
#: Method -> its answer, the field with the tables, and the table of an entry. Tables without a right are left out.
_LISTS: Mapping[str, tuple[Message, str, Callable[[Fields], bytes]]] = {
    "GetTableNames": (messages.GET_TABLE_NAMES_RESPONSE, "table_names", table_from),
    "ListTableNamesByNamespace": (messages.LIST_TABLE_NAMES_BY_NAMESPACE_RESPONSE, "tableName", table_from),
    "GetTableDescriptors": (
        messages.GET_TABLE_DESCRIPTORS_RESPONSE,
        "table_schema",
        lambda schema: table_from(schema["table_name"]),
    ),
    "ListTableDescriptorsByNamespace": (
        messages.LIST_TABLE_DESCRIPTORS_BY_NAMESPACE_RESPONSE,
        "tableSchema",
        lambda schema: table_from(schema["table_name"]),
    ),
}


class MasterAccess:
    """The checks before and after the calls of MasterService; it does nothing until a right was granted."""

    def __init__(self, grants: Grants) -> None:
        self._grants = grants

    def before(self, user: str, method: str, request: Fields) -> None:
        """Raise AccessDenied if the user may not make this call."""
        if not self._grants.is_enforced:
            return
        if method == "GetTableDescriptors":
            for name in request.get("table_names", ()):
                self._grants.check(user, CHANGE, table_from(name))
        elif method in _NEEDED:
            rights, find_table = _NEEDED[method]
            self._grants.check(user, rights, find_table(request))

    def after(self, user: str, method: str, request: Fields, answer: bytes) -> bytes:
        """Return the answer without the tables on which the user has no right; a creator gets all rights."""
        if not self._grants.is_enforced:
            return answer
        if method == "CreateTable":
            self._grants.own(user, _of_schema(request))
        if method not in _LISTS or self._grants.is_super(user):
            return answer
        message, field, find_table = _LISTS[method]
        given = decode(message, answer)
        kept = [one for one in given.get(field, ()) if self._grants.visible(user, [find_table(one)])]
        return encode(message, {**given, field: kept})
