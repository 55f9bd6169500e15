"""Stores a tree of nodes as ZooKeeper does: data with versions, ephemeral nodes, one-shot watches, atomic ``multi``.

Mirrors what HBase 2.6 uses of ZooKeeper 3.8 (``ZKUtil``, ``RecoverableZooKeeper``):

- A new node has version 0; each ``set`` adds 1 to its version. Each created or deleted child adds 1 to the
  ``children_version`` of its parent (ZooKeeper's ``cversion``).
- A change with a version other than -1 is refused with ``BadVersion`` unless the node has that version.
- ``multi`` applies all of its operations or none, and no reader sees a state in between.
- An ephemeral node belongs to a session. ``end_session`` removes all nodes of a session in one step.

DIVERGENCES:

- There is no connection: every call reaches the tree at once, and a watch is called in the thread that made the change.
- Children are listed in sorted order. ZooKeeper promises no order.
- There are no ACLs, no sequential nodes and no transaction ids.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from metaclient.runtime import Runtime

__all__ = [
    "ANY_VERSION",
    "DATA_BYTES_MAX",
    "BadVersion",
    "Change",
    "Check",
    "Create",
    "Delete",
    "NoNode",
    "Node",
    "NodeExists",
    "NotEmpty",
    "Operation",
    "ParentIsEphemeral",
    "Set",
    "WatchEvent",
    "ZnodeError",
    "Znodes",
]

#: The version that fits every node (ZooKeeper).
ANY_VERSION = -1
#: ZooKeeper's jute.maxbuffer: a server closes the connection of a client that sends more.
DATA_BYTES_MAX = 0xFFFFF


class ZnodeError(Exception):
    """A refused operation. Nothing was changed. ``index`` is the position of the operation in its ``multi``."""

    index = 0

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path


class NoNode(ZnodeError):
    """The node, or the parent of a node to create, does not exist."""


class NodeExists(ZnodeError):
    """A node with this path exists already."""


class BadVersion(ZnodeError):
    """The node has another version than the operation expects."""


class NotEmpty(ZnodeError):
    """The node to delete has children."""


class ParentIsEphemeral(ZnodeError):
    """An ephemeral node cannot have children."""


class Node(NamedTuple):
    """The content of a node at the time of the read."""

    data: bytes
    version: int
    children_version: int


class Create(NamedTuple):
    """Create a node; with ``make_parents`` also its missing parents, empty and not ephemeral."""

    path: str
    data: bytes = b""
    ephemeral: Hashable | None = None
    make_parents: bool = False


class Set(NamedTuple):
    """Replace the data of a node."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Delete a node; with ``recursive`` also everything below it."""

    path: str
    version: int = ANY_VERSION
    recursive: bool = False


class Check(NamedTuple):
    """Refuse the ``multi`` unless the node exists and has this version."""

    path: str
    version: int = ANY_VERSION


Operation = Create | Set | Delete | Check


class Change(Enum):
    """The kind of the change that a watch reports (ZooKeeper's ``Watcher.Event.EventType``)."""

    CREATED = "NodeCreated"
    DELETED = "NodeDeleted"
    DATA = "NodeDataChanged"
    CHILDREN = "NodeChildrenChanged"


class WatchEvent(NamedTuple):
    """The first change of a watched path after the watch was set."""

    path: str
    change: Change


Callback = Callable[[WatchEvent], None]


@dataclass(slots=True, eq=False)
class _Znode:
    """A node of the tree. Guarded by the lock of ``Znodes``."""

    data: bytes
    owner: Hashable | None
    version: int = 0
    children_version: int = 0
    children: set[str] = field(default_factory=set)


class Znodes:
    """A tree of nodes. Each call is atomic; watches are called after the change, without the lock."""

    def __init__(self, runtime: Runtime) -> None:
        self._lock = runtime.lock()
        # The fields below are guarded by _lock.
        self._nodes: dict[str, _Znode] = {"/": _Znode(b"", None)}
        #: The paths of the ephemeral nodes of each session.
        self._sessions: dict[Hashable, set[str]] = {}
        #: The watches of each path, in the order in which they were set.
        self._watches: dict[str, list[_NodeWatch]] = {}

    # -- reading ------------------------------------------------------------------------------------------------

    def get(self, path: str) -> Node:
        with self._lock:
            return _content(self._find(path))

    def exists(self, path: str) -> bool:
        with self._lock:
            return path in self._nodes

    def children(self, path: str) -> list[str]:
        """Return the names (not the paths) of the children, sorted."""
        with self._lock:
            return sorted(self._find(path).children)

    def owner(self, path: str) -> Hashable | None:
        """Return the session to which an ephemeral node belongs; None for other nodes."""
        with self._lock:
            return self._find(path).owner

    def tree(self, path: str = "/") -> dict[str, Node]:
        """Return the node and everything below it, by path, parents first. One state of the whole subtree."""
        with self._lock:
            return {one: _content(node) for one, node in self._subtree(path)}

    def tree_with_owners(self, path: str = "/") -> dict[str, tuple[Node, Hashable | None]]:
        """Return the same as :meth:`tree`, each node with the session that owns it, or None."""
        with self._lock:
            return {one: (_content(node), node.owner) for one, node in self._subtree(path)}

    # -- changing -----------------------------------------------------------------------------------------------

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: Hashable | None = None, make_parents: bool = False
    ) -> None:
        """Create a node. ``ephemeral`` is the session that owns it: ``end_session`` of that session removes it.

        Raises NodeExists, NoNode (without a parent) and ParentIsEphemeral.
        """
        self.multi([Create(path, data, ephemeral, make_parents)])

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> None:
        """Replace the data of a node. Raises NoNode, and BadVersion unless ``version`` is -1 or the node's."""
        self.multi([Set(path, data, version)])

    def delete(self, path: str, version: int = ANY_VERSION, recursive: bool = False) -> None:
        """Delete a node. Raises NoNode, BadVersion, and NotEmpty unless ``recursive``."""
        self.multi([Delete(path, version, recursive)])

    def multi(self, operations: Sequence[Operation]) -> None:
        """Apply all operations in their order, or none: the first refusal is raised, with its ``index``."""
        with self._lock:
            transaction = _Transaction(self._nodes, self._sessions)
            for index, operation in enumerate(operations):
                try:
                    transaction.apply(operation)
                except BaseException as error:
                    transaction.undo()
                    if isinstance(error, ZnodeError):
                        error.index = index
                    raise
            calls = self._take_watches(transaction.events)
        _call(calls)

    def end_session(self, owner: Hashable) -> None:
        """Delete all ephemeral nodes of a session. Does nothing when the session has none."""
        with self._lock:
            transaction = _Transaction(self._nodes, self._sessions)
            for path in sorted(self._sessions.get(owner, ())):
                transaction.apply(Delete(path))
            calls = self._take_watches(transaction.events)
        _call(calls)

    # -- watches ------------------------------------------------------------------------------------------------

    def watch(self, path: str, callback: Callback) -> Callable[[], None]:
        """Call ``callback`` once, at the first change of the node's existence, data or set of children.

        The node need not exist. A caller that reads the node sets the watch *before* the read, so that no change falls
        between the two. The callback runs in the thread that made the change: it must return at once and not raise.
        Returns a function that removes the watch if it has not been called yet.
        """
        _check_path(path)
        watch = _NodeWatch(callback)
        with self._lock:
            self._watches.setdefault(path, []).append(watch)

        def remove() -> None:
            with self._lock:
                watches = self._watches.get(path, [])
                if watch in watches:
                    watches.remove(watch)
                if not watches:
                    self._watches.pop(path, None)

        return remove

    def _take_watches(self, events: Sequence[WatchEvent]) -> list[tuple[_NodeWatch, WatchEvent]]:
        return [(watch, event) for event in events for watch in self._watches.pop(event.path, ())]

    # -- the tree, under the lock -------------------------------------------------------------------------------

    def _find(self, path: str) -> _Znode:
        return _find(self._nodes, path)

    def _subtree(self, path: str) -> list[tuple[str, _Znode]]:
        self._find(path)
        return [(one, self._nodes[one]) for one in (path, *sorted(_below(self._nodes, path)))]


@dataclass(frozen=True, slots=True, eq=False)
class _NodeWatch:
    """A callback as it was set. Two watches with the same callback are two watches."""

    callback: Callback


class _Transaction:
    """Changes the tree in place, and remembers how to undo it. Its caller holds the lock of the tree."""

    def __init__(self, nodes: dict[str, _Znode], sessions: dict[Hashable, set[str]]) -> None:
        self._nodes = nodes
        self._sessions = sessions
        self._undo: list[Callable[[], None]] = []
        self.events: list[WatchEvent] = []

    def apply(self, operation: Operation) -> None:
        _check_path(operation.path)
        match operation:
            case Create():
                self._create(operation)
            case Set():
                self._set(operation)
            case Delete():
                self._delete(operation)
            case Check():
                self._find_version(operation.path, operation.version)

    def undo(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _create(self, operation: Create) -> None:
        path, data = operation.path, operation.data
        _check_data(path, data)
        if path in self._nodes:
            raise NodeExists(path, "the node exists already")
        if operation.make_parents:
            missing = []
            parent = _parent(path)
            while parent not in self._nodes:
                missing.append(parent)
                parent = _parent(parent)
            for one in reversed(missing):
                self._add(one, _Znode(b"", None))
        self._add(path, _Znode(bytes(data), operation.ephemeral))

    def _add(self, path: str, node: _Znode) -> None:
        parent = self._nodes.get(_parent(path))
        if parent is None:
            raise NoNode(path, f"the parent {_parent(path)} does not exist; create it first, or use make_parents")
        if parent.owner is not None:
            raise ParentIsEphemeral(path, f"the parent {_parent(path)} is ephemeral and cannot have children")
        self._insert(path, node, parent)
        self._undo.append(lambda: self._remove(path, parent))
        self._count_children(parent)
        self.events.append(WatchEvent(path, Change.CREATED))
        self.events.append(WatchEvent(_parent(path), Change.CHILDREN))

    def _set(self, operation: Set) -> None:
        _check_data(operation.path, operation.data)
        node = self._find_version(operation.path, operation.version)
        old = node.data, node.version

        def restore() -> None:
            node.data, node.version = old

        self._undo.append(restore)
        node.data, node.version = bytes(operation.data), node.version + 1
        self.events.append(WatchEvent(operation.path, Change.DATA))

    def _delete(self, operation: Delete) -> None:
        path = operation.path
        if path == "/":
            raise ValueError("the root node cannot be deleted; delete its children")
        node = self._find_version(path, operation.version)
        if node.children and not operation.recursive:
            raise NotEmpty(path, f"the node has {len(node.children)} children; delete them first, or use recursive")
        for one in (*sorted(_below(self._nodes, path), reverse=True), path):
            self._take_out(one)

    def _take_out(self, path: str) -> None:
        node, parent = self._nodes[path], self._nodes[_parent(path)]
        self._remove(path, parent)
        self._undo.append(lambda: self._insert(path, node, parent))
        self._count_children(parent)
        self.events.append(WatchEvent(path, Change.DELETED))
        self.events.append(WatchEvent(_parent(path), Change.CHILDREN))

    def _count_children(self, parent: _Znode) -> None:
        old = parent.children_version

        def restore() -> None:
            parent.children_version = old

        self._undo.append(restore)
        parent.children_version = old + 1

    def _insert(self, path: str, node: _Znode, parent: _Znode) -> None:
        self._nodes[path] = node
        parent.children.add(_name(path))
        if node.owner is not None:
            self._sessions.setdefault(node.owner, set()).add(path)

    def _remove(self, path: str, parent: _Znode) -> None:
        owner = self._nodes.pop(path).owner
        parent.children.discard(_name(path))
        if owner is not None:
            paths = self._sessions[owner]
            paths.discard(path)
            if not paths:
                del self._sessions[owner]

    def _find_version(self, path: str, version: int) -> _Znode:
        node = _find(self._nodes, path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersion(path, f"the node has version {node.version}, not {version}; read it again")
        return node


def _content(node: _Znode) -> Node:
    return Node(node.data, node.version, node.children_version)


def _find(nodes: dict[str, _Znode], path: str) -> _Znode:
    node = nodes.get(path)
    if node is None:
        _check_path(path)
        raise NoNode(path, "the node does not exist")
    return node


def _below(nodes: dict[str, _Znode], path: str) -> list[str]:
    """Return the paths of all nodes below ``path``, in no particular order."""
    found = []
    waiting = [path]
    while waiting:
        parent = waiting.pop()
        paths = [_join(parent, name) for name in nodes[parent].children]
        found += paths
        waiting += paths
    return found


def _call(calls: Sequence[tuple[_NodeWatch, WatchEvent]]) -> None:
    for watch, event in calls:
        watch.callback(event)


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _join(parent: str, name: str) -> str:
    return f"/{name}" if parent == "/" else f"{parent}/{name}"


def _check_path(path: str) -> None:
    """Raise ValueError unless the path is absolute and has no empty, ``.`` or ``..`` part (ZooKeeper's PathUtils)."""
    if path == "/":
        return
    head, *parts = path.split("/")
    if head or not parts or any(part in ("", ".", "..") for part in parts) or "\0" in path:
        raise ValueError(
            f"{path!r} is not the path of a node: write an absolute path such as /hbase/rs, without a / at its end"
        )


def _check_data(path: str, data: bytes) -> None:
    if len(data) > DATA_BYTES_MAX:
        raise ValueError(
            f"{path}: {len(data)} bytes are more than a node may hold ({DATA_BYTES_MAX}, ZooKeeper's jute.maxbuffer)"
        )
