"""A ZooKeeper over TCP for tests: the nodes are those of the fake's own tree, the bytes are ZooKeeper's."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable

from metaclient.runtime import Lock, Runtime
from metaclient.wire.listener import Listener
from metaclient_fake.coordination.znodes import NodeExists, NoNode, WatchEvent, Znodes

CREATE, DELETE = 1, 2
_EXISTS, _GET, _SET, _CHILDREN, _PING, _CLOSE = 3, 4, 5, 8, 11, -11
_NO_NODE, _NODE_EXISTS = -101, -110
_EPHEMERAL = 1
_CHILDREN_CHANGED, _CONNECTED = 4, 3
_STAT = bytes(68)


class ZooKeeperServer:
    """Serves one tree, which the test may change, too. A session ends with its connection."""

    def __init__(self, runtime: Runtime) -> None:
        self.nodes = Znodes(runtime)
        #: ZooKeeper's error code for every request, such as that of a server that requires SASL; 0: none.
        self.refusal = 0
        #: Called with each operation and path; what it returns is ZooKeeper's error code for that request, 0: none.
        self.refuse: Callable[[int, str], int] = lambda kind, path: 0
        self.sessions = 0
        self._runtime = runtime
        self._lock = runtime.lock()  # guards the two counters below
        self._sockets: dict[int, socket.socket] = {}
        self._listener = Listener("127.0.0.1", 0, runtime=runtime, name="zookeeper", serve=self._serve)

    def key(self, parent: str) -> str:
        """Return the cluster key of the cluster with this parent."""
        return f"127.0.0.1:{self._listener.port}:{parent}"

    def close(self) -> None:
        self._listener.close()

    def break_off(self) -> None:
        """Close all connections and end their sessions, as after a long partition."""
        for sock in list(self._sockets.values()):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _serve(self, sock: socket.socket) -> None:
        with self._lock:
            self.sessions += 1
            client = _Client(self, sock, self._runtime.lock(), self.sessions)
            self._sockets[client.session] = sock
        try:
            client.serve()
        except (EOFError, OSError):
            return  # the client is gone
        finally:
            self._sockets.pop(client.session, None)
            self.nodes.end_session(client.session)


class _Client:
    """One connection. ``writing`` is held while a frame is sent: responses and watches come from several threads."""

    def __init__(self, server: ZooKeeperServer, sock: socket.socket, writing: Lock, session: int) -> None:
        self.server = server
        self.nodes = server.nodes
        self.sock = sock
        self.writing = writing
        self.session = session

    def serve(self) -> None:
        self._read()
        self._send(struct.pack(">iiq", 0, 30_000, self.session) + _buffer(bytes(16)) + b"\0")
        kind = 0
        while kind != _CLOSE:
            request = self._read()
            xid, kind = struct.unpack(">ii", request[:8])
            error, body = self._answer(kind, request[8:])
            self._send(struct.pack(">iqi", xid, 1, error) + body)

    def _answer(self, kind: int, asked: bytes) -> tuple[int, bytes]:
        if kind in (_PING, _CLOSE):
            return 0, b""
        if self.server.refusal:
            return self.server.refusal, b""
        path, rest = _split(asked)
        refusal = self.server.refuse(kind, path.decode())
        if refusal:
            return refusal, b""
        try:
            return 0, self._run(kind, path.decode(), rest)
        except NoNode:
            return _NO_NODE, b""
        except NodeExists:
            return _NODE_EXISTS, b""

    def _run(self, kind: int, path: str, rest: bytes) -> bytes:
        nodes = self.nodes
        if kind == CREATE:
            is_ephemeral = struct.unpack(">i", rest[-4:])[0] & _EPHEMERAL
            nodes.create(path, _split(rest)[0], ephemeral=self.session if is_ephemeral else None)
            return _buffer(path.encode())
        if kind == DELETE:
            nodes.delete(path)
            return b""
        if kind == _SET:
            nodes.set(path, _split(rest)[0])
            return _STAT
        if kind in (_GET, _EXISTS):
            data = nodes.get(path).data
            return (_buffer(data) if kind == _GET else b"") + _STAT
        assert kind == _CHILDREN, f"the test's ZooKeeper does not know operation {kind}"
        if rest[0]:
            nodes.watch(path, self._notify)
        names = nodes.children(path)
        return struct.pack(">i", len(names)) + b"".join(_buffer(name.encode()) for name in names)

    def _notify(self, event: WatchEvent) -> None:
        header = struct.pack(">iqi", -1, -1, 0)
        with contextlib.suppress(OSError):
            self._send(header + struct.pack(">ii", _CHILDREN_CHANGED, _CONNECTED) + _buffer(event.path.encode()))

    def _read(self) -> bytes:
        return self._exactly(struct.unpack(">i", self._exactly(4))[0])

    def _exactly(self, size: int) -> bytes:
        parts = b""
        while len(parts) < size:
            part = self.sock.recv(size - len(parts))
            if not part:
                raise EOFError
            parts += part
        return parts

    def _send(self, data: bytes) -> None:
        with self.writing:
            self.sock.sendall(_buffer(data))


def _buffer(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _split(data: bytes) -> tuple[bytes, bytes]:
    """Return the first buffer and what follows it."""
    size = max(0, struct.unpack(">i", data[:4])[0])
    return data[4 : 4 + size], data[4 + size :]
