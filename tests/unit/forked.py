"""Runs a function in a forked child, which has to answer in time or is killed."""

from __future__ import annotations

import faulthandler
import os
import pickle
import select
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

__all__ = ["CHILD_S", "Child", "descriptors", "fork", "in_child", "in_children"]

T = TypeVar("T")
#: A child that has not answered by then hangs: it prints the stack of each of its threads and ends.
CHILD_S = 30
#: The parent's own patience, in case that the child cannot even do that.
PARENT_S = 60.0


def fork() -> int:
    """``os.fork``, without the warning of Python 3.12 and later that this process has threads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


class Child(Generic[T]):
    """A forked process under way; :meth:`result` is what its function returned, as pickled."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._read, write = os.pipe()
        self.pid = fork()
        if self.pid == 0:
            _answer(function, write)
        os.close(write)

    def result(self) -> T:
        """Wait for the answer; a child that failed or hung fails the test with its traceback."""
        try:
            kind, value = self._answer()
        finally:
            os.close(self._read)
            os.waitpid(self.pid, 0)
        assert kind == "returned", f"in the child: {value}"
        answer: T = value
        return answer

    def _answer(self) -> tuple[str, Any]:
        parts: list[bytes] = []
        while select.select([self._read], [], [], PARENT_S)[0]:
            part = os.read(self._read, 65536)
            if not part:
                break
            parts.append(part)
        else:
            os.kill(self.pid, signal.SIGKILL)
            return "hung", "it did neither answer nor end"
        return pickle.loads(b"".join(parts)) if parts else ("hung", f"it had not answered after {CHILD_S} s")


def _answer(function: Callable[[], object], write: int) -> None:
    """Never returns: neither pytest nor anybody else may go on in the child."""
    try:
        # Not faulthandler's own timer: pytest's is under way in the parent, and its thread is not here to be ended.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        faulthandler.register(signal.SIGALRM, file=sys.__stderr__, chain=True)
        signal.alarm(CHILD_S)
        try:
            said = pickle.dumps(("returned", function()))
        except BaseException:
            said = pickle.dumps(("raised", traceback.format_exc()))
        with os.fdopen(write, "wb") as pipe:
            pipe.write(said)
    finally:
        os._exit(0)


def in_child(function: Callable[[], T]) -> T:
    """What the function returns in a forked child."""
    return Child(function).result()


def in_children(functions: Sequence[Callable[[], T]], meanwhile: Callable[[], object] = lambda: None) -> list[T]:
    """What the functions return, each in a child of its own, all at once; the parent does something ``meanwhile``."""
    children = [Child(function) for function in functions]
    meanwhile()
    return [child.result() for child in children]


def descriptors() -> set[str]:
    """The sockets that this process has open, by the kernel's number: a child's copy has the parent's number."""
    folder = Path("/proc/self/fd")
    links = [os.readlink(one) for one in folder.iterdir() if one.is_symlink()]
    return {link for link in links if link.startswith("socket:")}
