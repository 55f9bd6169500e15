"""A TCP socket under deadlines: the kernel's own time-outs, because Python's cost a poll a read."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from struct import Struct

from metaclient.errors import ServerUnreachable
from metaclient.runtime import close_descriptor

__all__ = ["Stream", "dial", "end_when_unacknowledged", "shut_down"]

#: An answer of a get fits; a page of a scan arrives in few reads.
READ_BYTES_MIN = 64 * 1024
READ_BYTES_MAX = 1024 * 1024
#: The time-out in force is kept while it is this close to the wanted one: a system call less for most calls.
SLACK = 0.9
TIMEOUT_S_MIN = 0.001
#: The kernel ends a connection whose data was not acknowledged for so long (hbase.ipc.client.socket.timeout.read).
#: Its default is to send it again for a quarter of an hour.
UNACKNOWLEDGED_MS_MAX = 20_000
_timeval = Struct("ll")


class Stream:
    """One connected socket; one thread reads it and one writes it at a time."""

    __slots__ = ("_now", "_read_s", "_recv", "_send", "_socket", "_write_s")

    def __init__(self, sock: socket.socket, now: Callable[[], float]) -> None:
        self._socket = sock
        self._now = now
        self._recv = sock.recv
        self._send = sock.send
        self._read_s = 0.0
        self._write_s = 0.0

    def read(self, wanted: int, timeout_s: float) -> bytes | None:
        """What has arrived, None when nothing did in time, b"" at the end."""
        if not timeout_s * SLACK <= self._read_s <= timeout_s:
            self._read_s = self._set(socket.SO_RCVTIMEO, timeout_s)
        try:
            return self._recv(READ_BYTES_MIN if wanted < READ_BYTES_MIN else min(wanted, READ_BYTES_MAX))
        except BlockingIOError:
            return None

    def write(self, data: bytes, deadline: float) -> None:
        """All of it; TimeoutError when the other side takes nothing more before the deadline."""
        try:
            sent = self._send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            self._write_on(data, sent, deadline)

    def _write_on(self, data: bytes, sent: int, deadline: float) -> None:
        view = memoryview(data)
        while sent < len(data):
            left_s = deadline - self._now()
            if left_s <= 0:
                raise TimeoutError(f"it took {sent} of {len(data)} bytes in time")
            if not left_s * SLACK <= self._write_s <= left_s:
                self._write_s = self._set(socket.SO_SNDTIMEO, left_s)
            with contextlib.suppress(BlockingIOError):
                sent += self._send(view[sent:])

    def _set(self, option: int, timeout_s: float) -> float:
        timeout_s = max(timeout_s, TIMEOUT_S_MIN)
        seconds, rest = divmod(timeout_s, 1.0)
        self._socket.setsockopt(socket.SOL_SOCKET, option, _timeval.pack(int(seconds), max(1, int(rest * 1e6))))
        return timeout_s

    def is_silent(self) -> bool:
        """False when the other side has hung up, or said something that nobody waits for."""
        try:
            self._recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        """Close the socket; a thread that reads from it wakes up."""
        shut_down(self._socket)
        self._socket.close()

    def leave_to_parent(self) -> None:
        """In a child process: close our descriptor, so that the parent's connection goes on."""
        close_descriptor(self._socket)


def shut_down(sock: socket.socket) -> None:
    """End both directions, which wakes a thread that waits in ``recv``; closing alone does not."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def end_when_unacknowledged(sock: socket.socket) -> None:
    """Set keep-alive probes, and TCP_USER_TIMEOUT where the platform has it."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS_MAX)


def dial(host: str, port: int, now: Callable[[], float], deadline: float) -> Stream:
    """Connect; every failure is ServerUnreachable, because nothing was sent yet."""
    try:
        sock = socket.create_connection((host, port), max(deadline - now(), TIMEOUT_S_MIN))
    except (OSError, UnicodeError) as error:  # UnicodeError: a name that is no host name
        raise ServerUnreachable(f"{host}:{port} cannot be reached: {error}") from error
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end_when_unacknowledged(sock)
        sock.settimeout(None)  # from here on the kernel's own time-outs
    except OSError as error:
        sock.close()
        raise ServerUnreachable(f"{host}:{port} hung up at once: {error}") from error
    return Stream(sock, now)
