"""The RPC front without sockets: pipes on the runtime, so that client, protocol and cluster run on virtual time.

A port is a number in a table, a connection is two pipes. The rest of the front and of the native client is unchanged,
so that a seed tests the same bytes as a real network.

>>> from metaclient.runtime import SimRuntime
>>> def echo(end):
...     while data := end.recv(100):
...         end.sendall(data)
>>> with SimRuntime() as runtime:
...     ports = VirtualPorts(runtime)
...     listener = ports.listen("here", 0, runtime=runtime, name="echo", serve=echo, connections_max=1)
...     stream = ports.dial("here", listener.port, runtime.now, runtime.now() + 1)
...     stream.write(b"hello", runtime.now() + 1)
...     stream.read(5, runtime.now() + 1)
b'hello'
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from metaclient.errors import ConnectionClosed, ServerUnreachable
from metaclient.runtime import Runtime

__all__ = ["VirtualEnd", "VirtualListener", "VirtualPorts"]

logger = logging.getLogger(__name__)

#: Bytes in flight in one direction: a writer waits when there are more, as for a full socket buffer.
_PIPE_BYTES_MAX = 1 << 20
_FIRST_PORT = 40_000


class _Pipe:
    """Bytes in one direction."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = runtime.lock()
        self._changed = runtime.condition(self._lock)
        self._data = bytearray()
        self._is_closed = False

    def write(self, data: bytes, deadline: float | None) -> None:
        with self._lock:
            while len(self._data) > _PIPE_BYTES_MAX and not self._is_closed:
                if not self._changed.wait(deadline):
                    raise TimeoutError("the peer accepts no bytes")
            if self._is_closed:
                raise BrokenPipeError("the peer closed the connection")
            self._data += data
            self._changed.notify_all()

    def read(self, limit: int, deadline: float | None) -> bytes | None:
        """Return the available bytes; None at the deadline, b"" at the end of the stream."""
        with self._lock:
            while not self._data and not self._is_closed:
                if not self._changed.wait(deadline):
                    return None
            taken = bytes(self._data[:limit])
            del self._data[:limit]
            self._changed.notify_all()
            return taken

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._changed.notify_all()

    def is_silent(self) -> bool:
        with self._lock:
            return not self._data and not self._is_closed


class VirtualEnd:
    """One end of a connection: the server uses it as a socket, the client as a stream."""

    def __init__(self, incoming: _Pipe, outgoing: _Pipe) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    # -- as a socket -------------------------------------------------------------------------------------------

    def recv(self, size: int) -> bytes:
        return self._incoming.read(size, None) or b""

    def sendall(self, data: bytes) -> None:
        self._outgoing.write(data, None)

    def shutdown(self, how: int) -> None:
        self.close()

    def close(self) -> None:
        self._incoming.close()
        self._outgoing.close()

    # -- as a stream -------------------------------------------------------------------------------------------

    def read(self, size_max: int, deadline: float) -> bytes | None:
        return self._incoming.read(size_max, deadline)

    def write(self, data: bytes, deadline: float) -> None:
        self._outgoing.write(data, deadline)

    def is_silent(self) -> bool:
        return self._incoming.is_silent()

    def leave_to_parent(self) -> None:
        """Do nothing: a simulation never forks, and its pipes have no descriptor."""


class VirtualListener:
    """The counterpart of :class:`~metaclient.wire.listener.Listener` without sockets."""

    def __init__(self, host: str, port: int, serve: Callable[[VirtualEnd], None]) -> None:
        self.host, self.port = host, port
        self._serve = serve
        self.clients: set[VirtualEnd] = set()
        self.is_closed = False

    def serve(self, end: VirtualEnd) -> None:
        self.clients.add(end)
        try:
            self._serve(end)
        except (OSError, ConnectionClosed) as error:
            logger.debug("a client disconnected: %r", error)
        finally:
            end.close()
            self.clients.discard(end)

    def close(self) -> None:
        self.is_closed = True
        for end in list(self.clients):
            end.close()

    def stats(self) -> dict[str, int]:
        return {"clients": len(self.clients)}


class VirtualPorts:
    """The ports of a host and their listeners."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.listeners: dict[int, VirtualListener] = {}

    def listen(
        self, host: str, port: int, *, serve: Callable[[VirtualEnd], None], **options: object
    ) -> VirtualListener:
        """Return a listener; the options of a real one have no effect."""
        number = port or _FIRST_PORT + len(self.listeners)
        made = self.listeners[number] = VirtualListener(host, number, serve)
        return made

    def dial(self, host: str, port: int, now: Callable[[], float], deadline: float) -> VirtualEnd:
        listener = self.listeners.get(port)
        if listener is None or listener.is_closed:
            raise ServerUnreachable(f"{host}:{port} cannot be reached: connection refused")
        there, back = _Pipe(self._runtime), _Pipe(self._runtime)
        server = VirtualEnd(there, back)
        self._runtime.start_daemon(listener.serve, server, name=f"rpc-{port}")
        return VirtualEnd(back, there)
