"""Chooses the `Dial` that fits a runtime: blocking sockets for threads, and sockets of the event loop for asyncio."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from metaclient.runtime import Runtime
from metaclient.wire.stream import Dial, dial
from metaclient.wire.tls import tls_dial

if TYPE_CHECKING:
    import ssl

    from metaclient.runtime.event_loop import AsyncioRuntime

__all__ = ["choose_dial"]


def choose_dial(runtime: Runtime, context: Callable[[], ssl.SSLContext] | None = None) -> Dial:
    """Return the `Dial` for a runtime: plain TCP, or TLS if a function that makes the context is given."""
    if runtime.callers_help:
        return dial if context is None else tls_dial(context)
    from metaclient.wire.loop_stream import loop_dial  # needs asyncio, and greenlet of the extra aio

    return loop_dial(cast("AsyncioRuntime", runtime), context)
