"""Accepts TCP connections at one port, serves each in its own thread of the runtime, and closes them.

The owner passes one function, ``serve(sock)``. It is called in a separate thread per client and may block in ``recv``
and ``sendall``; the connection is closed when it returns or raises. The listener does the rest:

1. ``TCP_NODELAY``: a reply of two writes must not wait for the client's delayed acknowledgement (40 ms).
2. Time-outs: if a client sends nothing for ``idle_timeout_s``, or receives nothing for ``send_timeout_s``, ``recv`` or
   ``sendall`` raises BlockingIOError (by the kernel's time-outs, which cost no ``poll`` per read). An ``OSError`` from
   ``serve`` means such a client, or one that hung up; it is logged at DEBUG.
3. Number of clients: beyond ``connections_max`` the oldest client without an answer is disconnected: it has sent no
   whole request. If every client was answered, the new client gets the reply of ``refuse`` and is disconnected.
4. Close: :meth:`Listener.close` ends the ``recv`` of every thread and waits for the threads.
5. Fork: a child process closes its copies of the descriptors, or the port would stay open after the parent's end.

>>> from metaclient.runtime import ThreadRuntime
>>> def echo(sock):
...     while data := sock.recv(1024):
...         sock.sendall(data)
>>> with ThreadRuntime() as runtime, Listener("127.0.0.1", 0, runtime=runtime, name="echo", serve=echo) as listener:
...     with socket.create_connection((listener.host, listener.port), 10) as client:
...         client.sendall(b"hello")
...         client.recv(5)
b'hello'
"""

from __future__ import annotations

import contextlib
import errno
import logging
import selectors
import socket
from collections.abc import Callable
from struct import Struct
from types import TracebackType
from typing import Protocol, TypeAlias

from metaclient.errors import ConfigError, ConnectionClosed, MetaClientError, Overloaded, Unsupported
from metaclient.runtime import Runtime, SimRuntime, Task, close_descriptor
from metaclient.wording import counted

__all__ = [
    "CONNECTIONS_MAX",
    "IDLE_TIMEOUT_S",
    "Client",
    "Listener",
    "Listening",
    "hang_up",
    "own_address",
    "shut_down",
]

#: Serves one client on a connected, blocking socket.
Client: TypeAlias = socket.socket

_log = logging.getLogger(__name__)

#: Each client costs a thread: fewer than HBase's gateway allows (hbase.thrift.maxWorkerThreads, 1000).
CONNECTIONS_MAX = 256
#: hbase.thrift.server.socket.read.timeout.
IDLE_TIMEOUT_S = 60.0
SEND_TIMEOUT_S = 60.0
CLOSE_TIMEOUT_S = 5.0
#: The interval at which the accepting thread checks whether the runtime was closed.
_LOOK_S = 0.25
#: The pause after accept() failed because no file descriptor was free.
_PAUSE_S = 0.05
_BACKLOG = 128
_timeval = Struct("ll")


class Listening(Protocol):
    """A listening socket, or its simulation, as its owner uses it."""

    @property
    def port(self) -> int: ...

    def close(self) -> None: ...

    def stats(self) -> dict[str, int]: ...


class _ClientSocket(socket.socket):
    """A client's socket; ``was_answered`` becomes True with the first bytes that are sent to it."""

    was_answered = False

    def sendall(self, data: bytes, flags: int = 0) -> None:  # type: ignore[override]  # fronts send bytes only
        self.was_answered = True
        super().sendall(data, flags)


class Listener:
    """One listening socket and its clients; it listens from the moment it is made.

    With ``port`` 0 the system chooses a free port, which is then in ``.port``. ``serve`` and ``refuse`` get the
    client's blocking socket, which the listener closes.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        runtime: Runtime,
        name: str,
        serve: Callable[[Client], None],
        refuse: Callable[[Client], None] | None = None,
        connections_max: int = CONNECTIONS_MAX,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        send_timeout_s: float = SEND_TIMEOUT_S,
    ) -> None:
        if isinstance(runtime, SimRuntime):
            raise Unsupported(
                f"{name} cannot listen on TCP under a SimRuntime: sockets need real time; use a ThreadRuntime"
            )
        if connections_max < 1:
            raise ConfigError(f"connections_max must be at least 1, got {connections_max}")
        self.name = name
        self._runtime = runtime
        self._serve = serve
        self._refuse = refuse
        self._connections_max = connections_max
        self._idle_timeout_s, self._send_timeout_s = idle_timeout_s, send_timeout_s
        self._socket = _listening(host, port, name)
        self.host, self.port = self._socket.getsockname()[:2]
        self._waker, self._wake_up = socket.socketpair()
        self._is_closed = False  # once True, no client is added
        self._lock = runtime.lock()  # guards the fields below
        self._clients: dict[_ClientSocket, Task[None] | None] = {}  # oldest first
        self._accepted = self._refused = self._broken = 0
        try:
            self._accepting = runtime.start_daemon(self._accept_all, name=f"{name}-accept")
        except MetaClientError:
            self._close_sockets()
            raise
        runtime.on_fork(self._leave_to_parent)

    def _leave_to_parent(self) -> None:
        """In a child process: close its copies of the descriptors; the parent continues to listen and serve."""
        self._is_closed = True
        self._lock = self._runtime.lock()
        clients, self._clients = list(self._clients), {}
        for sock in (self._socket, self._waker, self._wake_up, *clients):
            close_descriptor(sock)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else counted(len(self._clients), "client")
        return f"Listener({self.name} at {self.host}:{self.port}, {state})"

    def __enter__(self) -> Listener:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def stats(self) -> dict[str, int]:
        """Return the number of clients, and since the start: accepted, refused (too many), failed (a defect)."""
        with self._lock:
            return {
                "clients": len(self._clients),
                "accepted": self._accepted,
                "refused": self._refused,
                "broken": self._broken,
            }

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Stop listening, disconnect every client, and wait for their threads. Idempotent."""
        deadline = self._runtime.now() + timeout_s
        self._is_closed = True
        with contextlib.suppress(OSError):  # closed before
            self._wake_up.send(b"x")
        try:
            self._runtime.wait_first((self._accepting,), deadline)  # at its end, it shuts the clients' sockets down
            with self._lock:
                serving = [task for task in self._clients.values() if task is not None]
            for task in serving:
                self._runtime.wait_first((task,), deadline)
        except ConnectionClosed:
            pass  # the runtime is closed and has joined or abandoned its threads already
        self._close_sockets()

    def _close_sockets(self) -> None:
        for sock in (self._socket, self._waker, self._wake_up):
            sock.close()

    # -- accepting ---------------------------------------------------------------------------------------------

    def _accept_all(self) -> None:
        """Accept clients until the end, in one thread; then disconnect all of them."""
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._socket, selectors.EVENT_READ)
                selector.register(self._waker, selectors.EVENT_READ)
                while not self._is_closed and not self._runtime.closed:
                    if any(key.fileobj is self._socket for key, _ in selector.select(_LOOK_S)):
                        self._accept()
        finally:
            self._is_closed = True
            with self._lock:
                clients = list(self._clients)
            self._socket.close()
            for sock in clients:
                shut_down(sock)

    def _accept(self) -> None:
        try:
            accepted, address = self._socket.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                _log.warning("%s cannot accept more clients now: %s", self.name, error)
                self._runtime.sleep(_PAUSE_S)
            return  # otherwise the client hung up before it was accepted
        sock = _ClientSocket(fileno=accepted.detach())
        try:
            self._prepare(sock)
        except OSError:
            sock.close()
            return
        with self._lock:
            if self._is_closed:
                sock.close()
                return
            evicted = self._unanswered() if len(self._clients) >= self._connections_max else None
            if evicted is not None:
                del self._clients[evicted]
                self._refused += 1
            is_welcome = len(self._clients) < self._connections_max
            if is_welcome:
                self._clients[sock] = None
                self._accepted += 1
            else:
                self._refused += 1
        if evicted is not None:
            _log.warning("%s disconnected a client without a request: it has %d", self.name, self._connections_max)
            shut_down(evicted)  # its thread returns from recv and closes the socket
        if not is_welcome:
            self._turn_away(sock, address)
            return
        try:
            task = self._runtime.start_daemon(self._serve_one, sock, name=f"{self.name}-{address[1]}")
        except (Overloaded, ConnectionClosed) as error:
            _log.warning("%s has no thread for a client: %s", self.name, error)
            self._forget(sock)
            return
        with self._lock:
            if sock in self._clients:  # otherwise it was disconnected already
                self._clients[sock] = task

    def _unanswered(self) -> _ClientSocket | None:
        """Return the oldest client that was never answered."""
        return next((sock for sock in self._clients if not sock.was_answered), None)

    def _prepare(self, sock: socket.socket) -> None:
        sock.setblocking(True)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _packed(self._idle_timeout_s))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _packed(self._send_timeout_s))

    def _turn_away(self, sock: socket.socket, address: tuple[object, ...]) -> None:
        _log.warning("%s refused %s: it has %d clients already", self.name, address, self._connections_max)
        try:
            if self._refuse is not None:
                sock.setblocking(False)  # a few bytes fit into the empty buffer: the accepting thread must not block
                self._refuse(sock)
        except OSError:
            _log.debug("%s did not wait for its refusal", address)
        finally:
            hang_up(sock)

    # -- one client --------------------------------------------------------------------------------------------

    def _serve_one(self, sock: _ClientSocket) -> None:
        try:
            self._serve(sock)
        except (OSError, ConnectionClosed) as error:
            _log.debug("%s: a client disconnected: %r", self.name, error)
        except Exception:
            _log.exception("%s: serving a client failed, which ends its connection", self.name)
            with self._lock:
                self._broken += 1
        finally:
            self._forget(sock)

    def _forget(self, sock: _ClientSocket) -> None:
        with self._lock:
            self._clients.pop(sock, None)
        hang_up(sock)


def own_address(host: str, port: int) -> str:
    """Return the address of this machine by which it reaches another one. Nothing is sent.

    ConfigError if the other one cannot be reached.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((host, port))
            return str(probe.getsockname()[0])
    except OSError as error:
        raise ConfigError(
            f"the address of this machine is not known, because there is no way to {host}:{port} ({error}): pass "
            "host= with the name or the address by which other machines reach this one"
        ) from error


def hang_up(sock: socket.socket) -> None:
    """Shut the socket down and close it: a thread that is blocked in ``recv`` returns at shutdown, not at close."""
    shut_down(sock)
    sock.close()


def shut_down(sock: socket.socket) -> None:
    """Shut both directions down, so that a thread that is blocked in ``recv`` returns and closes the socket."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _packed(seconds: float) -> bytes:
    whole, rest = divmod(seconds, 1.0)
    return _timeval.pack(int(whole), int(rest * 1e6) or (0 if whole else 1))


def _listening(host: str, port: int, name: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(_BACKLOG)
        made.setblocking(False)  # accept must not block if the client hung up after select
    except (OSError, OverflowError) as error:
        made.close()
        raise ConfigError(f"{name} cannot listen at {host}:{port}: {error}") from error
    return made
