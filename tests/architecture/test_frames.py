"""How many Python frames are between a call of the user and the backend: few, and no module is entered twice.

A reader who follows a call downwards, and a person who reads a stack trace, meets each module once. The limits count
both ends, the user's method and the backend's.
"""

import sys
from collections.abc import Callable
from itertools import groupby
from types import FrameType

from metaclient.backend import Capabilities, MetaPage
from metaclient.connection import Connection, connect_to
from metaclient.runtime import ThreadRuntime
from metaclient.testing import ScriptedBackend

#: A pipelined backend is called in the caller's thread, so that one stack has all frames of a TIMELINE read.
PIPELINED = Capabilities(filters=False, is_pipelined=True)


def frames_to_backend(call: Callable[[], object], method: str) -> list[str]:
    """Return the stack, outermost first, when the call of the user first enters this method of the scripted backend."""
    stacks: list[list[str]] = []

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_qualname == f"ScriptedBackend.{method}":
            stacks.append(_stack(frame))

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return max(stacks, key=len)


def _stack(frame: FrameType | None) -> list[str]:
    found: list[str] = []
    while frame is not None and frame.f_globals["__name__"] != __name__:
        found.append(f"{frame.f_globals['__name__']}:{frame.f_code.co_qualname}")
        frame = frame.f_back
    return found[::-1]


def modules_entered(stack: list[str]) -> list[str]:
    return [module for module, _ in groupby(stack, key=lambda entry: entry.partition(":")[0])]


def warm(backend: ScriptedBackend, **options: object) -> Connection:
    backend.add_table("t", splits=[b"m"], region_replication=3)
    return connect_to(backend, runtime=ThreadRuntime(), owns_runtime=True, **options)


def test_a_warm_timeline_row_takes_few_frames_and_enters_no_module_twice() -> None:
    with warm(ScriptedBackend(capabilities=PIPELINED)) as connection:
        table = connection.table("t")
        table.row(b"r", consistency="TIMELINE")
        stack = frames_to_backend(lambda: table.row(b"r", consistency="TIMELINE"), "get")
    assert len(stack) <= 11, "\n".join(stack)
    modules = modules_entered(stack)
    assert len(modules) == len(set(modules)), "\n".join(stack)


def test_a_warm_strong_row_takes_two_frames_above_the_backend() -> None:
    with warm(ScriptedBackend()) as connection:
        table = connection.table("t")
        table.row(b"r")
        stack = frames_to_backend(lambda: table.row(b"r"), "get")
    assert len(stack[:-1]) == 2, "\n".join(stack)


def test_a_cold_locate_with_fallback_takes_few_frames() -> None:
    """A secondary of hbase:meta answers without rows, so that the primary is asked."""
    backend = ScriptedBackend(meta_replicas=2)
    backend.on("read_meta", replica=1).answers(MetaPage(()))
    with warm(backend, meta_mode="LoadBalance") as connection:
        connection.meta_replicas()
        stack = frames_to_backend(lambda: connection.locate("t", b"r"), "read_meta")
        assert backend.count("read_meta", replica_id=0) == backend.count("read_meta", replica_id=1) == 1
    assert len(stack) <= 11, "\n".join(stack)
