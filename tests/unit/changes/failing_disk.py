"""A disk in memory that ends at any byte, as a process that is killed, or as a machine without power."""

from __future__ import annotations

import random
from collections.abc import Sequence

__all__ = ["FailingDisk", "Killed"]


class Killed(BaseException):
    """The process was killed. No code under test catches it."""


class FailingDisk:
    """A :class:`metaclient.changes.spool.disk.Disk` that raises :class:`Killed` after a number of steps.

    A step is one byte that is written, or one operation on a file. What was written before stays. ``after_power_loss``
    returns a disk with what a file system may have kept: everything that was made durable, and of the rest a prefix.
    """

    def __init__(self, steps: int | None = None, files: dict[str, bytes] | None = None) -> None:
        self._left = steps
        self.steps = 0
        self.files: dict[str, bytearray] = {name: bytearray(data) for name, data in (files or {}).items()}
        self._durable: dict[str, bytes] = {name: bytes(data) for name, data in self.files.items()}

    def _step(self) -> None:
        if self._left is not None and self.steps >= self._left:
            raise Killed
        self.steps += 1

    def _write(self, name: str, at: int, data: bytes) -> None:
        file = self.files.setdefault(name, bytearray())
        count = len(data) if self._left is None else min(len(data), self._left - self.steps)
        file[at : at + count] = data[:count]
        self.steps += count
        if count < len(data):
            raise Killed

    # -- the disk ------------------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        return sorted(self.files)

    def size(self, name: str) -> int:
        if name not in self.files:
            raise FileNotFoundError(name)
        return len(self.files[name])

    def read(self, name: str, at: int = 0, size: int = -1) -> bytes:
        if name not in self.files:
            raise FileNotFoundError(name)
        return bytes(self.files[name][at:] if size < 0 else self.files[name][at : at + size])

    def create(self, name: str, data: bytes) -> None:
        self._step()
        self.files[name] = bytearray()
        self._write(name, 0, data)
        self.sync(name)

    def append(self, name: str, at: int, parts: Sequence[bytes]) -> None:
        for part in parts:
            self._write(name, at, part)
            at += len(part)

    def sync(self, name: str) -> None:
        self._step()
        self._durable[name] = bytes(self.files[name])

    def cut(self, name: str, size: int) -> None:
        self._step()
        del self.files[name][size:]
        self.sync(name)

    def replace(self, name: str, data: bytes) -> None:
        self._step()
        self.files[name] = bytearray(data)
        self._durable[name] = bytes(data)

    def overwrite(self, name: str, data: bytes) -> None:
        self._write(name, 0, data)

    def remove(self, name: str) -> None:
        self._step()
        self.files.pop(name, None)
        self._durable.pop(name, None)

    def finish(self, name: str) -> None: ...

    def close(self) -> None: ...

    # -- after the end -------------------------------------------------------------------------------------------------

    def after_kill(self) -> FailingDisk:
        return FailingDisk(files={name: bytes(data) for name, data in self.files.items()})

    def after_power_loss(self, chance: random.Random) -> FailingDisk:
        kept: dict[str, bytes] = {}
        for name, data in self.files.items():
            durable = self._durable.get(name)
            if durable is not None and not bytes(data).startswith(durable):
                kept[name] = chance.choice((durable, bytes(data)))  # it was overwritten in place
                continue
            if durable is None and chance.random() < 0.5:
                kept[name] = bytes(data)  # the file system has written it by itself
                continue
            size = chance.randint(len(durable or b""), len(data))
            garbage = chance.randbytes(chance.randint(0, len(data) - size))
            if durable is not None or chance.random() < 0.5:  # else the name of the new file is lost
                kept[name] = bytes(data[:size]) + garbage
        return FailingDisk(files=kept)
