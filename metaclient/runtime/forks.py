"""Decides what a child process does after ``os.fork()``: it replaces the locks that threads of the parent may hold.

A child has a copy of the parent's memory, one thread, and the parent's sockets. In that copy any lock may be held by a
thread that does not exist, any update may be half done, any task waits for ever, and the random state equals the
parent's. Therefore each object that has a lock, a socket, a thread, a pool or random state registers a method with
:meth:`Runtime.on_fork <metaclient.runtime.Runtime.on_fork>`. The methods run in the child before ``os.fork()`` returns
there, in the order in which they were registered: a runtime before the objects that use it. They cost neither the
parent nor a call any time. Each method

1. *replaces* locks and conditions, and never acquires one that it did not make itself;
2. keeps values that are always replaced as a whole (snapshots of locations) and drops values that are changed in place;
3. closes inherited descriptors with :func:`close_descriptor`, without a message to the server: the connection belongs
   to the parent.

Where the platform has no ``os.register_at_fork`` (Windows) there is no fork either.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from itertools import count
from types import MethodType
from typing import Protocol
from weakref import ref

from metaclient.errors import ConnectionClosed

__all__ = ["close_descriptor", "inherited_error", "on_fork"]

_log = logging.getLogger(__name__)

#: In the order of registration: functions that return the method to call, or None when its object was collected, which
#: also removes the entry. No lock is needed: single operations of a dict are atomic.
_methods: dict[int, Callable[[], Callable[[], None] | None]] = {}
_numbers = count()


class Detachable(Protocol):
    """The only method of a socket that :func:`close_descriptor` needs."""

    def detach(self) -> int: ...


def on_fork(renew: Callable[[], None]) -> None:
    """Call ``renew`` in each child process: a method as long as its object lives, a function always."""
    number = next(_numbers)
    if not isinstance(renew, MethodType):
        _methods[number] = lambda: renew
        return

    # Not a WeakMethod, whose callback fails with a message when the interpreter ends.
    def forget(_: object, pop: Callable[..., object] = _methods.pop) -> None:
        pop(number, None)

    owner, function = ref(renew.__self__, forget), renew.__func__

    def living() -> Callable[[], None] | None:
        found = owner()
        return None if found is None else MethodType(function, found)

    _methods[number] = living


def _renew_all() -> None:
    for living in list(_methods.values()):
        renew = living()
        if renew is not None:
            try:
                renew()
            except Exception:  # the other objects must be renewed all the same
                _log.exception("after a fork, %r failed: do not use its object in this process", renew)


def inherited_error(what: str, advice: str) -> ConnectionClosed:
    """Return the error for a child process that uses ``what``, which only the parent can continue to use.

    >>> raise inherited_error("the open scan of table 't'", "begin a new scan in this process")
    Traceback (most recent call last):
    metaclient.errors.ConnectionClosed: the open scan of table 't' belongs to the parent of this process (os.fork): \
begin a new scan in this process
    """
    return ConnectionClosed(f"{what} belongs to the parent of this process (os.fork): {advice}")


def close_descriptor(sock: Detachable) -> None:
    """Close only this process's descriptor of a socket, without shutdown or message: the parent still uses it."""
    descriptor = sock.detach()
    if descriptor >= 0:
        os.close(descriptor)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
