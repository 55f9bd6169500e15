"""Warns when the blocking API waits in a thread that runs an event loop: every other task of that loop waits as well.

It is a warning and not an error. In a notebook the loop of the kernel is always running, nothing else waits for it, and
the blocking API is the natural one: there nothing is said. A program that blocks its loop works, only slowly.
"""

from __future__ import annotations

import inspect
import sys
import warnings

__all__ = ["warn_in_loop"]

#: Modules of notebooks, whose loop runs while a cell does.
_NOTEBOOKS = frozenset({"ipykernel", "marimo"})
_has_warned = False  # once per process: a program makes the same mistake in each call


def warn_in_loop() -> None:
    """Warn, once per process, if the calling thread runs an event loop; called before a wait."""
    events = sys.modules.get("asyncio.events")  # without it no loop runs, and its import takes 50 ms
    if events is not None and not _has_warned and events._get_running_loop() is not None:
        _warn()


def _warn() -> None:
    global _has_warned  # the state of this module
    if not _NOTEBOOKS.isdisjoint(sys.modules):
        return
    _has_warned = True
    warnings.warn(
        "metaclient's blocking API was called inside of a running event loop, whose tasks all wait meanwhile: "
        "use metaclient.aio.connect() (docs/asyncio.md), or call it by asyncio.to_thread()",
        RuntimeWarning,
        stacklevel=_depth_of_caller(),
    )


def _depth_of_caller() -> int:
    """Return the ``stacklevel`` of the first frame outside of metaclient, for a warning that ``_warn`` makes."""
    frame, depth = inspect.currentframe(), 0
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("metaclient"):
        frame, depth = frame.f_back, depth + 1
    return depth
