"""``connection.replication``: converts and checks the arguments of users, and calls the cluster's ReplicationAdmin."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from metaclient import keys
from metaclient.backend import ReplicationAdmin
from metaclient.replication_peers import Peer, PeerConfig, PeerState, ReplicationStatus

__all__ = ["Replication"]

Name: TypeAlias = bytes | str
#: Table names, or a mapping of table names to the families that are meant (None or empty: all).
TablesGiven: TypeAlias = Iterable[Name] | Mapping[Name, Iterable[Name] | None] | Mapping[str, Iterable[Name] | None]
#: Makes an admin call: the name of the operation, the function, its arguments. The deadline is added as the last one.
AdminCall: TypeAlias = Callable[..., Any]
_Peers: TypeAlias = list[Peer]
_Statuses: TypeAlias = list[ReplicationStatus]


class Replication:
    """The replication peers of one cluster: the clusters to which it ships its edits.

    A family is shipped if its ``replication_scope`` is 1. Table names are complete: a connection's ``table_prefix`` is
    not added. A change that the cluster refuses raises :class:`~metaclient.errors.RequestRefused` with HBase's text.
    """

    def __init__(self, admin: ReplicationAdmin, call: AdminCall) -> None:
        self._admin = admin
        self._call = call

    def add(
        self,
        id: str,
        key: str,
        *,
        tables: TablesGiven | None = None,
        namespaces: Iterable[Name] | None = None,
        exclude_tables: TablesGiven | None = None,
        exclude_namespaces: Iterable[Name] | None = None,
        bandwidth: int = 0,
        serial: bool = False,
        configuration: Mapping[str, str] | None = None,
        enabled: bool = True,
        replicate_all: bool | None = None,
        endpoint: str | None = None,
    ) -> None:
        """Add a peer; edits are shipped from now on, and those in the current logs of the servers.

        ``key`` names the other cluster, for example ``"zk1,zk2:2181:/hbase"``. With ``tables`` or ``namespaces``, only
        these are shipped; otherwise all tables are, except ``exclude_tables`` and ``exclude_namespaces``.
        ``replicate_all`` overrides this choice. ``bandwidth`` is in bytes per second and server. ``serial`` ships the
        edits of each region in the order of their sequence ids, over moves and crashes.
        """
        config = PeerConfig(
            cluster_key=_text(key, "key"),
            endpoint=endpoint,
            replicate_all=tables is None and namespaces is None if replicate_all is None else replicate_all,
            tables=_tables(tables, "tables"),
            namespaces=_names(namespaces, "namespaces"),
            exclude_tables=_tables(exclude_tables, "exclude_tables"),
            exclude_namespaces=_names(exclude_namespaces, "exclude_namespaces"),
            bandwidth=_bandwidth(bandwidth),
            serial=bool(serial),
            configuration=_configuration(configuration),
        )
        state = PeerState.ENABLED if enabled else PeerState.DISABLED
        self._call("add_replication_peer", self._admin.add_peer, _peer_id(id), config, state)

    def remove(self, id: str) -> None:
        """Remove a peer; edits that were not shipped yet are never shipped."""
        self._call("remove_replication_peer", self._admin.remove_peer, _peer_id(id))

    def enable(self, id: str) -> None:
        """Ship again. HBase 2.x ships the current log of each server from its start."""
        self._call("enable_replication_peer", self._admin.set_peer_state, _peer_id(id), PeerState.ENABLED)

    def disable(self, id: str) -> None:
        """Stop shipping; the servers keep the logs that were not shipped."""
        self._call("disable_replication_peer", self._admin.set_peer_state, _peer_id(id), PeerState.DISABLED)

    def update(self, id: str, **changes: Any) -> None:
        """Change a peer: arguments of :meth:`add` by name, except ``enabled``. The others keep their values.

        ``tables`` and ``namespaces`` set ``replicate_all`` to False if they are not empty, and the two excludes set it
        to True, unless ``replicate_all`` is given. HBase merges ``configuration``: entries cannot be removed.
        HBase refuses a change of ``key``, and lists that contradict ``replicate_all``: empty the old ones, too.
        """
        config = _changed(self.get(id).config, changes)
        self._call("update_replication_peer", self._admin.update_peer, id, config)

    def list(self, pattern: str | None = None) -> _Peers:
        """Return the peers, sorted by id; ``pattern`` is a regular expression for the whole id."""
        return list(self._call("list_replication_peers", self._admin.peers, pattern))

    def get(self, id: str) -> Peer:
        """Return one peer; RequestRefused if there is none of this id."""
        found: Peer = self._call("get_replication_peer", self._admin.peer, _peer_id(id))
        return found

    def status(self) -> _Statuses:
        """Return the sources and the sink of each live server, as of its last report to the master."""
        return list(self._call("replication_status", self._admin.replication_status))


def _changed(config: PeerConfig, changes: Mapping[str, Any]) -> PeerConfig:
    """Return the configuration with these arguments of ``add``."""
    fields: dict[str, Any] = {}
    for name, value in changes.items():
        if name not in _CONVERSIONS:
            raise TypeError(f"update() has no argument {name!r}: known are {', '.join(_CONVERSIONS)}")
        field, convert = _CONVERSIONS[name]
        fields[field] = convert(value)
    if fields.get("tables") or fields.get("namespaces"):
        fields.setdefault("replicate_all", False)
    elif fields.get("exclude_tables") or fields.get("exclude_namespaces"):
        fields.setdefault("replicate_all", True)
    return replace(config, **fields)


def _peer_id(id: object) -> str:
    return _text(id, "id")


def _text(value: object, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name!r} must be text, got {value!r}")
    return value


def _bandwidth(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"'bandwidth' must be a number of bytes per second, 0 for unlimited, got {value!r}")
    return value


def _names(names: Iterable[Name] | None, argument: str) -> frozenset[bytes]:
    if isinstance(names, bytes | str):
        raise TypeError(f"{argument!r} must be a list of names, got one name")
    return frozenset(keys.as_bytes(name, argument) for name in names or ())


def _tables(tables: TablesGiven | None, argument: str) -> dict[bytes, tuple[bytes, ...]]:
    """
    >>> _tables({"t": ["cf"], "ns:u": None}, "tables")
    {b't': (b'cf',), b'ns:u': ()}
    """
    if isinstance(tables, bytes | str):
        raise TypeError(f"{argument!r} must be a list or a mapping of table names, got one name")
    pairs = tables.items() if isinstance(tables, Mapping) else [(table, None) for table in tables or ()]
    return {
        keys.table_name(keys.as_bytes(table, argument)): tuple(sorted(_names(families, argument)))
        for table, families in pairs
    }


def _configuration(values: Mapping[str, str] | None) -> dict[str, str]:
    return {_text(name, "configuration"): str(value) for name, value in (values or {}).items()}


#: The arguments of ``update`` -> field of PeerConfig, and the conversion of the value.
_CONVERSIONS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "key": ("cluster_key", lambda value: _text(value, "key")),
    "tables": ("tables", lambda value: _tables(value, "tables")),
    "namespaces": ("namespaces", lambda value: _names(value, "namespaces")),
    "exclude_tables": ("exclude_tables", lambda value: _tables(value, "exclude_tables")),
    "exclude_namespaces": ("exclude_namespaces", lambda value: _names(value, "exclude_namespaces")),
    "bandwidth": ("bandwidth", _bandwidth),
    "serial": ("serial", bool),
    "configuration": ("configuration", _configuration),
    "replicate_all": ("replicate_all", bool),
    "endpoint": ("endpoint", lambda value: value),
}
