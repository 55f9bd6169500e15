"""Reads ZooKeeper's nodes on a `Stream`, without a thread: for runtimes on which no thread of kazoo may be waited for.

A session costs ZooKeeper a write, so it is kept for the next read. It is not kept alive: the server ends it after
``SESSION_S`` without a request, and the next read makes a new one. Reads at the same time have sessions of their own.
The structures are those of ZooKeeper's jute protocol (ZooKeeper 3.4 to 3.9).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from struct import error as struct_error
from typing import TypeVar

from metaclient.errors import (
    AuthenticationFailed,
    CallTimeout,
    ConnectionClosed,
    MetaClientError,
    RequestRefused,
    ServerNotRunning,
    ServerUnreachable,
)
from metaclient.runtime import Runtime
from metaclient.wire.stream import Dial, Stream

__all__ = [
    "AUTHENTICATION_CODES",
    "INSTEAD",
    "ZooKeeperReads",
    "decode_data",
    "decode_names",
    "explain_required_sasl",
]

T = TypeVar("T")
#: As for kazoo (``metaclient.wire.zookeeper``): ZooKeeper shortens or lengthens it to what it allows.
SESSION_S = 10.0
#: For one server of the quorum: a server that is silent must leave time for the next one.
CONNECT_S_MAX = 3.0
#: The largest packet that ZooKeeper sends by default (jute.maxbuffer).
REPLY_BYTES_MAX = 1024 * 1024
_READ_BYTES = 64 * 1024
_GET_DATA, _GET_CHILDREN, _CLOSE = 4, 8, -11
_NO_NODE, _NO_AUTH, _SESSION_EXPIRED = -101, -102, -112
#: KeeperException.Code of ZooKeeper 3.8: AUTHFAILED, and SESSIONCLOSEDREQUIRESASLAUTH (sessionRequireClientSASLAuth).
AUTHENTICATION_CODES = frozenset({-115, -124})
INSTEAD = "this client uses ZooKeeper without authentication; use the masters instead: hbase+rpc://MASTER:16000,..."
# Length, protocol, last zxid, timeout in ms, session, length of the password, password, is read-only.
_opening = Struct(">iiqiqi16s?")
_head = Struct(">iii")  # length, xid, type
_reply = Struct(">iqi")  # xid, zxid, error
_int = Struct(">i")


class _ReadSession:
    """One session on one connection; reads go one after the other."""

    def __init__(self, stream: Stream, begun: float) -> None:
        self.stream = stream
        self.used_at = begun
        self._data = b""
        self._xid = 0

    def open(self, now: Callable[[], float], deadline: float) -> None:
        body = _opening.pack(_opening.size - 4, 0, 0, int(SESSION_S * 1000), 0, 16, bytes(16), True)
        self.stream.write(body, deadline)
        self._packet(now, deadline)

    def ask(self, kind: int, path: str, now: Callable[[], float], deadline: float) -> tuple[int, bytes]:
        """Return the error code and the body of the reply to a read."""
        self._xid += 1
        name = path.encode()
        body = _int.pack(len(name)) + name + b"\0"  # no watch
        self.stream.write(_head.pack(8 + len(body), self._xid, kind) + body, deadline)
        while True:
            packet = self._packet(now, deadline)
            xid, _, code = _reply.unpack_from(packet)
            if xid == self._xid:
                self.used_at = now()
                return code, packet[_reply.size :]

    def close(self, deadline: float) -> None:
        """End the session on the server; without an answer it ends by its timeout."""
        try:
            self.stream.write(_head.pack(8, self._xid + 1, _CLOSE), deadline)
        except OSError:
            return  # the server ends the session by its timeout
        finally:
            self.stream.close()

    def _packet(self, now: Callable[[], float], deadline: float) -> bytes:
        size = _int.unpack(self._take(4, now, deadline))[0]
        if not 0 <= size <= REPLY_BYTES_MAX:
            raise ConnectionError(f"the answer announces {size} bytes: it is not ZooKeeper's protocol")
        return self._take(size, now, deadline)

    def _take(self, size: int, now: Callable[[], float], deadline: float) -> bytes:
        while len(self._data) < size:
            data = self.stream.read(_READ_BYTES, deadline)
            if data is None:
                if now() >= deadline:
                    raise TimeoutError("no answer in time")
                continue
            if not data:
                raise ConnectionResetError("the server closed the connection")
            self._data += data
        taken, self._data = self._data[:size], self._data[size:]
        return taken


def explain_required_sasl(hosts: str, advice: str = INSTEAD) -> AuthenticationFailed:
    """Return the error for a ZooKeeper that does not serve clients without SASL."""
    return AuthenticationFailed(f"ZooKeeper at {hosts} requires its clients to authenticate by SASL: {advice}")


class ZooKeeperReads:
    """Reads nodes of ZooKeeper, at the first server of the quorum that answers.

    A node that does not exist is ServerNotRunning: HBase makes its nodes when it starts.
    """

    def __init__(self, addresses: Sequence[tuple[str, int]], runtime: Runtime, dial: Dial) -> None:
        self._addresses = list(addresses)
        self._hosts = ",".join(f"{host}:{port}" for host, port in addresses)
        self._runtime = runtime
        self._dial = dial
        self._first = runtime.rng.randrange(len(self._addresses))  # spreads clients over the quorum
        self._idle: _ReadSession | None = None
        self._is_closed = False
        runtime.on_fork(self._renew)

    def _renew(self) -> None:
        session, self._idle = self._idle, None
        if session is not None:
            session.stream.leave_to_parent()

    def __repr__(self) -> str:
        return f"<ZooKeeperReads {self._hosts}>"

    def close(self) -> None:
        session, self._idle, self._is_closed = self._idle, None, True
        if session is not None:
            session.close(self._runtime.now() + 1.0)

    def get(self, path: str, deadline: float) -> bytes:
        """Return the data of a node."""
        return self._read(_GET_DATA, path, decode_data, deadline)

    def children(self, path: str, deadline: float, *, on_change: Callable[[], None] | None = None) -> list[str]:
        """Return the names of a node's children. There are no watches: ``on_change`` is called at once."""
        found = self._read(_GET_CHILDREN, path, decode_names, deadline)
        if on_change is not None:
            on_change()
        return found

    def _read(self, kind: int, path: str, decode: Callable[[bytes], T], deadline: float) -> T:
        is_new = False
        while True:
            session = self._take_idle()
            if session is None:
                is_new = True
                session = self._open(deadline)
            try:
                code, body = session.ask(kind, path, self._runtime.now, deadline)
                value = decode(body) if code == 0 else None
            except TimeoutError as error:
                session.stream.close()
                raise CallTimeout(f"ZooKeeper at {self._hosts} did not return {path} in time") from error
            except (OSError, struct_error, UnicodeDecodeError) as error:
                session.stream.close()
                if is_new:
                    raise ServerUnreachable(f"ZooKeeper at {self._hosts}: {error}") from error
                continue  # the server ended the idle session; a read may be repeated
            except BaseException:  # cancelled: the reply is still to come
                session.stream.close()
                raise
            if code == _SESSION_EXPIRED and not is_new:
                session.stream.close()
                continue
            self._keep(session)
            if value is None:
                raise self._explain(code, path)
            return value

    def _take_idle(self) -> _ReadSession | None:
        """Return the idle session, unless it is about to end; reads of other greenlets make their own meanwhile."""
        if self._is_closed:
            raise ConnectionClosed("the connection to HBase is closed")
        session, self._idle = self._idle, None
        if session is None:
            return None
        if self._runtime.now() - session.used_at < SESSION_S / 2 and session.stream.is_silent():
            return session
        session.close(self._runtime.now() + 1.0)
        return None

    def _keep(self, session: _ReadSession) -> None:
        if self._idle is None and not self._is_closed:
            self._idle = session
        else:
            session.close(self._runtime.now() + 1.0)

    def _open(self, deadline: float) -> _ReadSession:
        now = self._runtime.now
        failure: Exception | None = None
        for turn in range(len(self._addresses)):
            at = (self._first + turn) % len(self._addresses)
            host, port = self._addresses[at]
            until = min(deadline, now() + CONNECT_S_MAX)
            stream: Stream | None = None
            try:
                stream = self._dial(host, port, now, until)
                session = _ReadSession(stream, now())
                session.open(now, until)
            except (OSError, struct_error, ServerUnreachable) as error:
                if stream is not None:
                    stream.close()
                failure = error
                if now() >= deadline:
                    break
                continue
            except BaseException:
                if stream is not None:
                    stream.close()
                raise
            self._first = at
            return session
        raise ServerUnreachable(
            f"no ZooKeeper can be reached at {self._hosts} ({failure}); "
            "check the address, and that ZooKeeper runs there"
        ) from failure

    def _explain(self, code: int, path: str) -> MetaClientError:
        if code == _NO_NODE:
            return ServerNotRunning(
                f"ZooKeeper at {self._hosts} has no {path}: HBase is starting, or its zookeeper.znode.parent is another"
            )
        if code == _NO_AUTH:
            return RequestRefused(f"ZooKeeper at {self._hosts} refuses {path}: NoAuth; {INSTEAD}")
        if code in AUTHENTICATION_CODES:
            return explain_required_sasl(self._hosts)
        return ServerUnreachable(f"ZooKeeper at {self._hosts} answered error {code} to the read of {path}")


def decode_data(body: bytes) -> bytes:
    """Return the data of a node from the reply to a read of it; ConnectionError or struct.error if it is malformed."""
    size = _int.unpack_from(body)[0]
    if not -1 <= size <= len(body) - 4:
        raise ConnectionError(f"a node's data of {size} bytes is longer than its answer")
    return body[4 : 4 + max(size, 0)]


def decode_names(body: bytes) -> list[str]:
    """Return the names from the reply to a read of a node's children; raises as ``decode_data``, or UnicodeError."""
    count = _int.unpack_from(body)[0]
    names, at = [], 4
    if not -1 <= count <= len(body) // 4:
        raise ConnectionError(f"a list of {count} names is longer than its answer")
    for _ in range(max(count, 0)):
        size = _int.unpack_from(body, at)[0]
        if not 0 <= size <= len(body) - at - 4:
            raise ConnectionError(f"a name of {size} bytes is longer than its answer")
        names.append(body[at + 4 : at + 4 + size].decode())
        at += 4 + size
    return names
