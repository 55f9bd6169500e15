"""Finds free ports on the loopback interface."""

from __future__ import annotations

import socket
from contextlib import ExitStack

from metaclient.errors import MetaClientError
from metaclient.runtime import Runtime

__all__ = ["LOOPBACK", "free_ports", "is_listening"]

LOOPBACK = "127.0.0.1"
#: Below the range from which systems take ports for outgoing connections (Linux: 32768 on), which could otherwise take
#: a port between the moment it is found and the moment the server binds it.
FIRST, LAST = 20_000, 32_000
TRIES_MAX = 1_000
CONNECT_S = 1.0


def free_ports(count: int, runtime: Runtime) -> list[int]:
    """Return that many different ports that are free now."""
    found: list[int] = []
    with ExitStack() as held:
        for _ in range(TRIES_MAX):
            if len(found) == count:
                return found
            port = runtime.rng.randrange(FIRST, LAST)
            taken = held.enter_context(socket.socket())
            try:
                taken.bind((LOOPBACK, port))
            except OSError:
                continue
            found.append(port)
    raise MetaClientError(f"no {count} free ports between {FIRST} and {LAST}")


def is_listening(port: int) -> bool:
    """Return True if a process accepts connections there."""
    try:
        socket.create_connection((LOOPBACK, port), CONNECT_S).close()
    except OSError:
        return False
    return True
