"""Refuses a process in which gevent or eventlet has replaced sockets or threads (``monkey.patch_all()``).

The sockets of those libraries do not block in the kernel. Therefore the kernel's own time-outs (``SO_RCVTIMEO``) and
``MSG_DONTWAIT`` have no effect, and a call would wait for a silent server for ever. Their threads are greenlets, and a
greenlet that computes stops all timers.
"""

from __future__ import annotations

import _thread
import select
import socket
import sys

from metaclient.errors import Unsupported

__all__ = ["refuse_green_threads"]

_LIBRARIES = frozenset({"gevent", "eventlet"})


def refuse_green_threads() -> None:
    """Raise Unsupported if gevent or eventlet has replaced a module of Python that metaclient needs."""
    ssl = sys.modules.get("ssl")
    parts = {
        "socket": socket.socket,
        "threading": _thread.start_new_thread,
        "select": select.select,
        "ssl": None if ssl is None else ssl.SSLSocket,
    }
    found = {name: _library_of(part) for name, part in parts.items()}
    replaced = [name for name, library in found.items() if library in _LIBRARIES]
    if replaced:
        library = found[replaced[0]]
        raise Unsupported(
            f"metaclient cannot be used in this process, because {library} has replaced Python's {', '.join(replaced)} "
            f"and no deadline of a call would hold: start the process without {library}'s monkey patching (gunicorn: "
            "worker class gthread; Celery: --pool=threads or prefork), or use metaclient in a process of its own"
        )


def _library_of(part: object) -> str:
    return str(getattr(part, "__module__", None)).partition(".")[0]
