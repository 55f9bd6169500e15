"""Streams for an event loop, plain and with TLS, and the `Dial` that makes them.

A callback of the loop reads bytes as they arrive, so that a read of the stream needs no system call. A write that the
kernel does not accept at once is finished by the loop: a caller that is cancelled never leaves half a frame behind.

1. At most ``READ_BYTES_MAX`` bytes wait for a reader; then the loop stops to read, and TCP slows the server down.
2. A write that follows another one before any answer is sent together with further ones, at the end of this round of
   the loop: a thousand calls of a thousand tasks cost a few system calls.
3. Bytes wake the greenlet that reads, or are passed to a ``receiver``, which costs less: a function that reads without
   waiting.
4. At most ``WRITE_BYTES_MAX`` bytes wait to be sent; then a writer waits, and nothing but its deadline ends the wait.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from metaclient.errors import ServerUnreachable
from metaclient.runtime import close_descriptor, refuse_green_threads
from metaclient.runtime.greens import FirmWaiter, LoopWaiter
from metaclient.runtime.loop_sockets import resolve, wait_connected, wait_readable
from metaclient.wire.stream import Dial, Stream, set_options, shut_down

if TYPE_CHECKING:
    from metaclient.runtime.event_loop import AsyncioRuntime

__all__ = ["LoopStream", "LoopTlsStream", "loop_dial"]

#: Bytes of one read: the responses to a few hundred gets. Decoding them takes some milliseconds, during which no other
#: task of the loop runs.
_RECEIVE_BYTES = 64 * 1024
#: Writes of more bytes are not delayed.
_CORKED_BYTES_MAX = 16 * 1024
READ_BYTES_MAX = 1024 * 1024
WRITE_BYTES_MAX = 1024 * 1024


class LoopStream:
    """A TCP socket as a `Stream`, for greenlets of one event loop."""

    __slots__ = (
        "_arrived",
        "_arrived_bytes",
        "_backlog",
        "_error",
        "_has_asked",
        "_is_ended",
        "_is_paused",
        "_loop",
        "_now",
        "_poll",
        "_reader",
        "_runtime",
        "_socket",
        "_writer",
        "receiver",
    )

    def __init__(self, sock: socket.socket, runtime: AsyncioRuntime) -> None:
        self._socket = sock
        self._runtime = runtime
        self._loop = runtime.loop
        self._now = runtime.now
        self._arrived: deque[bytes] = deque()
        self._arrived_bytes = 0
        self._backlog = bytearray()  # accepted by `write`, and not by the kernel yet
        self._error: OSError | None = None
        self._is_ended = False  # by the peer, or by `close`
        self._is_paused = False
        self._has_asked = False  # a write was made since bytes arrived
        self._reader: LoopWaiter | None = None
        self.receiver: Callable[[], None] | None = None  # is called when bytes, the end or an error have arrived
        self._writer: LoopWaiter | None = None
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        self._poll = poll.poll
        self._loop.add_reader(sock, self._on_readable)

    # -- reading -----------------------------------------------------------------------------------------------------

    def read(self, size_max: int, deadline: float) -> bytes | None:
        while not self._arrived:
            if self._error is not None:
                raise OSError(*self._error.args) from self._error
            if self._is_ended:
                return b""
            if deadline <= self._now():
                return None
            waiter = self._reader = LoopWaiter(self._runtime)
            try:
                waiter.park(deadline, self)
            finally:
                self._reader = None
        return self._take(size_max)

    def _take(self, size_max: int) -> bytes:
        data = self._arrived.popleft()
        if len(data) > size_max:
            self._arrived.appendleft(data[size_max:])
            data = data[:size_max]
        self._arrived_bytes -= len(data)
        if self._is_paused and self._arrived_bytes < READ_BYTES_MAX and not self._is_ended:
            self._is_paused = False
            self._loop.add_reader(self._socket, self._on_readable)
        return data

    def _on_readable(self) -> None:
        self._has_asked = False
        try:
            self._receive()
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._fail(error)
        if self._is_ended or self._error is not None:
            self._loop.remove_reader(self._socket)
        elif self._arrived_bytes >= READ_BYTES_MAX:
            self._is_paused = True
            self._loop.remove_reader(self._socket)
        if self.receiver is not None:
            self._runtime.deliver_by(self.receiver)
        elif self._reader is not None:
            self._runtime.deliver(self._reader)

    def _receive(self) -> None:
        """Read once; BlockingIOError if nothing has arrived."""
        self._add(self._socket.recv(_RECEIVE_BYTES))

    def _add(self, data: bytes) -> None:
        if data:
            self._arrived.append(data)
            self._arrived_bytes += len(data)
        else:
            self._is_ended = True

    @property
    def is_ready(self) -> bool:
        """True if a read would not wait."""
        return bool(self._arrived) or self._is_ended or self._error is not None

    def is_silent(self) -> bool:
        is_open = not self._is_ended and self._error is None
        return is_open and not self._arrived and not self._poll(0)

    # -- writing -----------------------------------------------------------------------------------------------------

    def has_room(self, size: int) -> bool:
        """Return True if a write of this size does not wait."""
        return len(self._backlog) + size <= WRITE_BYTES_MAX

    def write(self, data: bytes, deadline: float) -> None:
        if self._error is not None:
            raise OSError(*self._error.args) from self._error
        if self._is_ended and self._socket.fileno() < 0:
            raise BrokenPipeError(errno.EPIPE, "the stream is closed")
        if self._has_asked and not self._backlog and len(data) < _CORKED_BYTES_MAX:
            self._loop.call_soon(self._uncork)
        elif not self._backlog:
            self._has_asked = True
            sent = self._send(data)
            if sent == len(data):
                return
            self._loop.add_writer(self._socket, self._on_writable)
            data = data[sent:]
        self._backlog += data
        while len(self._backlog) > WRITE_BYTES_MAX:
            waiter = self._writer = FirmWaiter(self._runtime)
            try:
                if not waiter.park(deadline, self):
                    raise TimeoutError(f"the peer did not accept {len(self._backlog)} bytes before the deadline")
            finally:
                self._writer = None
            if self._error is not None:
                raise OSError(*self._error.args) from self._error

    def _send(self, data: bytes | memoryview) -> int:
        try:
            return self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            return 0

    def _uncork(self) -> None:
        if self._backlog and self._socket.fileno() >= 0:
            self._on_writable()
            if self._backlog:
                self._loop.add_writer(self._socket, self._on_writable)

    def _on_writable(self) -> None:
        try:
            with memoryview(self._backlog) as view:
                sent = self._send(view[: WRITE_BYTES_MAX // 4])
        except OSError as error:
            self._fail(error)
        else:
            del self._backlog[:sent]
        if not self._backlog:
            self._loop.remove_writer(self._socket)
        if self._writer is not None and len(self._backlog) <= WRITE_BYTES_MAX:
            self._writer.wake()
        if self._error is not None and self._reader is not None:
            self._reader.wake()

    # -- the end -----------------------------------------------------------------------------------------------------

    def _fail(self, error: OSError) -> None:
        self._error = error
        self._backlog.clear()

    def close(self) -> None:
        if self._socket.fileno() < 0:
            return
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._is_ended = True
        if self._writer is not None:
            self._fail(BrokenPipeError(errno.EPIPE, "the stream was closed"))
            self._writer.wake()
        if self._reader is not None:
            self._reader.wake()
        shut_down(self._socket)
        self._socket.close()

    def leave_to_parent(self) -> None:
        # The loop's selector is shared with the parent: what is removed from it here is removed there as well.
        close_descriptor(self._socket)


class LoopTlsStream(LoopStream):
    """A TLS socket as a `Stream`, for greenlets of one event loop; made after the handshake."""

    __slots__ = ()

    def _receive(self) -> None:
        """Read all records that OpenSSL has: the kernel reports the socket as readable only for further bytes."""
        sock = cast("ssl.SSLSocket", self._socket)
        is_first = True
        while not self._is_ended and (is_first or self._arrived_bytes < READ_BYTES_MAX or sock.pending()):
            try:
                self._add(sock.recv(_RECEIVE_BYTES))
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                if is_first:
                    raise BlockingIOError from None
                return
            is_first = False

    def _send(self, data: bytes | memoryview) -> int:
        try:
            return self._socket.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            # SSLSocket.shutdown would drop the TLS state; only the TCP stream is shut down.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        super().close()


def loop_dial(runtime: AsyncioRuntime, context: Callable[[], ssl.SSLContext] | None = None) -> Dial:
    """Return a `Dial` that waits on the event loop; with TLS if a function that makes the context is given."""

    def dial_on_loop(host: str, port: int, now: Callable[[], float], deadline: float) -> Stream:
        try:
            sock = _connect(runtime, host, port, deadline)
            try:
                if context is None:
                    return LoopStream(sock, runtime)
                wrapped = context().wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
                sock = wrapped
                _shake_hands(runtime, wrapped, deadline)
                return LoopTlsStream(wrapped, runtime)
            except BaseException:
                sock.close()
                raise
        except OSError as error:  # ssl.SSLError is one
            raise ServerUnreachable(f"{host}:{port} cannot be reached: {error}") from error

    return dial_on_loop


def _connect(runtime: AsyncioRuntime, host: str, port: int, deadline: float) -> socket.socket:
    """Return a connected socket to the first address of the host that accepts; OSError of the last one."""
    refuse_green_threads()
    try:
        addresses = resolve(runtime, host, port, deadline)
    except UnicodeError as error:
        raise OSError(f"{host!r} is not a host name: {error}") from error
    failure: OSError | None = None
    for family, kind, protocol, _, address in addresses:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            set_options(sock)
            code = sock.connect_ex(address)
            if code not in (0, errno.EINPROGRESS):
                raise OSError(code, os.strerror(code))
            if code:
                wait_connected(runtime, sock, deadline)
            return sock
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
    raise failure or OSError(f"{host} has no address")


def _shake_hands(runtime: AsyncioRuntime, sock: ssl.SSLSocket, deadline: float) -> None:
    while True:
        try:
            sock.do_handshake()
            return
        except ssl.SSLWantReadError:
            wait_readable(runtime, sock, deadline)
        except ssl.SSLWantWriteError:
            wait_connected(runtime, sock, deadline)
