"""Waits for sockets and addresses on an event loop."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING, Any

from metaclient.runtime.greens import LoopWaiter

if TYPE_CHECKING:
    from metaclient.runtime.event_loop import AsyncioRuntime
    from metaclient.runtime.waiting import Pending

__all__ = ["resolve", "wait_connected", "wait_readable"]


def resolve(runtime: AsyncioRuntime, host: str, port: int, deadline: float) -> list[Any]:
    """Return the addresses of a host, as ``socket.getaddrinfo`` does; the loop asks for names in a thread of it."""
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        asked = asyncio.ensure_future(runtime.loop.getaddrinfo(host, port, type=socket.SOCK_STREAM), loop=runtime.loop)
    found: Pending[list[Any]] = runtime.pending(name=f"address of {host}")

    def copy(done: asyncio.Future[Any]) -> None:
        if done.cancelled():
            found.fail(TimeoutError(f"the address of {host} was not found in time"))
        elif (error := done.exception()) is not None:
            found.fail(error)
        else:
            found.complete(done.result())

    asked.add_done_callback(copy)
    try:
        if runtime.wait_first((found,), deadline) is None:
            raise TimeoutError(f"the address of {host} was not found in time")
    finally:
        asked.cancel()
    return found.result()


def wait_readable(runtime: AsyncioRuntime, sock: socket.socket, deadline: float) -> None:
    """Wait until bytes have arrived; TimeoutError at the deadline."""
    waiter = LoopWaiter(runtime)
    runtime.loop.add_reader(sock, waiter.wake)
    try:
        if not waiter.park(deadline, sock):
            raise TimeoutError("timed out")
    finally:
        runtime.loop.remove_reader(sock)


def wait_connected(runtime: AsyncioRuntime, sock: socket.socket, deadline: float) -> None:
    """Wait until a connect has ended; OSError if it failed, TimeoutError at the deadline."""
    waiter = LoopWaiter(runtime)
    runtime.loop.add_writer(sock, waiter.wake)
    try:
        if not waiter.park(deadline, sock):
            raise TimeoutError("timed out")
    finally:
        runtime.loop.remove_writer(sock)
    code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))
