"""A byte stream to a server under deadlines: the protocol `Stream`, the function type `Dial`, and plain TCP sockets.

A `Dial` connects and returns a `Stream`. Native connections and the pools of Thrift gateways receive their `Dial` as an
argument, so that TLS (:mod:`metaclient.wire.tls`) or a simulated network replaces the socket without a change above it.
A handshake belongs into the `Dial`: a native connection dials in its own task, and no caller's thread waits for it.

`SocketStream` uses the kernel's time-outs (``SO_RCVTIMEO``), because ``poll`` costs a second system call and a precise
timer, a tenth of a get. The kernel counts them in clock ticks: with CONFIG_HZ=250, a time-out of 1 ms ends after 4.6 to
8 ms. A wait of up to ``POLLED_S`` therefore ends its kernel time-out two ticks early, and only the rest of it, which
few reads need, is waited for with ``poll``. A wait of less than two ticks ends late.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable
from struct import Struct
from typing import Protocol, TypeAlias

from metaclient.errors import ServerUnreachable
from metaclient.runtime import close_descriptor, refuse_green_threads, warn_in_loop

__all__ = ["Dial", "SocketStream", "Stream", "canonical_host", "connect_socket", "dial", "set_options", "shut_down"]

#: The time-out in force is kept while it is this close to the remaining time: one system call less for most calls.
SLACK = 0.9
TIMEOUT_S_MIN = 0.001
#: Two clock ticks of a kernel with CONFIG_HZ=250, the longest of the usual ones: a kernel time-out ends late by that.
TICKS_S = 0.008
#: The end of a longer wait need not be more precise than a kernel time-out.
POLLED_S = 0.1
#: The kernel ends a connection whose data was not acknowledged for this time (hbase.ipc.client.socket.timeout.read).
#: Linux's default is to retransmit for a quarter of an hour.
UNACKNOWLEDGED_MS_MAX = 20_000
_timeval = Struct("ll")


class Stream(Protocol):
    """A connected byte stream. At most one thread reads it and at most one thread writes it at a time.

    A deadline is an instant of the clock ``now`` that was passed to the `Dial`. Failures of the network are OSErrors.
    """

    def read(self, size_max: int, deadline: float) -> bytes | None:
        """Return the bytes that have arrived, at most ``size_max``; None at the deadline, b"" at the end."""
        ...

    def write(self, data: bytes, deadline: float) -> None:
        """Send all of ``data``; TimeoutError when the peer has not accepted all of it by the deadline."""
        ...

    def is_silent(self) -> bool:
        """Return True if the stream is open and no byte waits to be read; never blocks."""
        ...

    def close(self) -> None:
        """Close the stream; a thread that is blocked in `read` returns."""
        ...

    def leave_to_parent(self) -> None:
        """In a child process of ``os.fork``: release this process's descriptor and send nothing to the peer."""
        ...


#: Host, port, clock, deadline -> a connected stream; ServerUnreachable when the server cannot be reached.
Dial: TypeAlias = Callable[[str, int, Callable[[], float], float], Stream]


class SocketStream:
    """A plain TCP socket as a `Stream`."""

    __slots__ = ("_is_late", "_now", "_poll", "_read_s", "_recv", "_send", "_socket", "_write_s")

    def __init__(self, sock: socket.socket, now: Callable[[], float]) -> None:
        self._socket = sock
        self._now = now
        self._recv = sock.recv
        self._send = sock.send
        self._read_s = self._write_s = -1.0  # the time-outs in force; none is set yet
        self._is_late = False  # the last read ended with its time-out
        poll = select.poll()  # takes 0.4 us; recv with MSG_PEEK and its BlockingIOError take four times as long
        poll.register(sock, select.POLLIN)
        self._poll = poll.poll

    def read(self, size_max: int, deadline: float) -> bytes | None:
        left_s = deadline - self._now()
        if left_s < POLLED_S:
            if left_s <= 0 or (self._is_late and not self._poll(left_s * 1000)):
                return None
            left_s = max(left_s - TICKS_S, TIMEOUT_S_MIN)
        if not left_s * SLACK <= self._read_s <= left_s:
            self._read_s = self._set_timeout(socket.SO_RCVTIMEO, left_s)
        warn_in_loop()
        try:
            data = self._recv(size_max)
        except BlockingIOError:
            self._is_late = True
            return None
        self._is_late = False
        return data

    def write(self, data: bytes, deadline: float) -> None:
        try:
            sent = self._send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            self._write_rest(data, sent, deadline)

    def _write_rest(self, data: bytes, sent: int, deadline: float) -> None:
        view = memoryview(data)
        while sent < len(data):
            left_s = deadline - self._now()
            if left_s <= 0:
                raise TimeoutError(f"the peer accepted only {sent} of {len(data)} bytes before the deadline")
            if not left_s * SLACK <= self._write_s <= left_s:
                self._write_s = self._set_timeout(socket.SO_SNDTIMEO, left_s)
            with contextlib.suppress(BlockingIOError):
                sent += self._send(view[sent:])

    def _set_timeout(self, option: int, timeout_s: float) -> float:
        timeout_s = max(timeout_s, TIMEOUT_S_MIN)
        seconds, rest = divmod(timeout_s, 1.0)
        self._socket.setsockopt(socket.SOL_SOCKET, option, _timeval.pack(int(seconds), max(1, int(rest * 1e6))))
        return timeout_s

    def is_silent(self) -> bool:
        return not self._poll(0)  # bytes, the end and an error are all events

    def close(self) -> None:
        shut_down(self._socket)
        self._socket.close()

    def leave_to_parent(self) -> None:
        close_descriptor(self._socket)


def shut_down(sock: socket.socket) -> None:
    """End both directions, which wakes a thread that waits in ``recv``; closing alone does not."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def connect_socket(host: str, port: int, now: Callable[[], float], deadline: float) -> socket.socket:
    """Return a connected socket, with keep-alive probes, and TCP_USER_TIMEOUT where the platform has it; OSError."""
    refuse_green_threads()  # also when the process was patched after the first connections
    try:
        sock = socket.create_connection((host, port), max(deadline - now(), TIMEOUT_S_MIN))
    except UnicodeError as error:
        raise OSError(f"{host!r} is not a host name: {error}") from error
    try:
        set_options(sock)
    except BaseException:
        sock.close()
        raise
    return sock


def set_options(sock: socket.socket) -> None:
    """Send small frames at once, probe a silent peer, and bound the time that the kernel retransmits."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS_MAX)


def canonical_host(host: str, port: int) -> str:
    """Return the name that the address of a host has (reverse DNS), as Java's getCanonicalHostName; else the host."""
    try:
        address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4]
        return socket.getnameinfo(address, socket.NI_NAMEREQD)[0]
    except (OSError, UnicodeError):
        return host


def dial(host: str, port: int, now: Callable[[], float], deadline: float) -> SocketStream:
    """Connect over plain TCP; every failure is ServerUnreachable, because nothing was sent yet."""
    try:
        sock = connect_socket(host, port, now, deadline)
        sock.settimeout(None)  # SocketStream sets the kernel's time-outs
    except OSError as error:
        raise ServerUnreachable(f"{host}:{port} cannot be reached: {error}") from error
    return SocketStream(sock, now)
