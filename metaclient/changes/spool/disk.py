"""The operations on files that the writer of a spool needs: append, sync, replace. Tests use a disk that fails.

What a crash may leave of each operation:

``append``      any prefix of the bytes; after :meth:`Disk.sync` all of them
``replace``     the old file or the new one; the new one after the call has returned
``overwrite``   the old bytes, the new bytes, or a mixture: its reader needs a checksum
``create``      no file, or a prefix of its bytes; the whole file after the call has returned
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

__all__ = ["Disk", "FolderDisk", "replace_file", "sync_folder"]

#: The most parts of one call of writev: IOV_MAX of Linux.
_PARTS_MAX = 1024
#: Also makes the size of the file durable, but not its times. Not every system has it.
_fdatasync = getattr(os, "fdatasync", os.fsync)


class Disk(Protocol):
    """The files of one worker, by name. Errors are OSError."""

    def names(self) -> list[str]: ...

    def size(self, name: str) -> int: ...

    def read(self, name: str, at: int = 0, size: int = -1) -> bytes:
        """Return bytes of a file, fewer if it ends before; FileNotFoundError without the file."""
        ...

    def create(self, name: str, data: bytes) -> None:
        """Make a file durably, its name too. A file of this name is emptied first."""
        ...

    def append(self, name: str, at: int, parts: Sequence[bytes]) -> None:
        """Write parts at ``at``, the end of a file; they are durable after :meth:`sync`."""
        ...

    def sync(self, name: str) -> None: ...

    def cut(self, name: str, size: int) -> None:
        """Shorten a file, durably."""
        ...

    def replace(self, name: str, data: bytes) -> None: ...

    def overwrite(self, name: str, data: bytes) -> None: ...

    def remove(self, name: str) -> None: ...

    def finish(self, name: str) -> None:
        """Release what is held for a file that is not written any more."""
        ...

    def close(self) -> None: ...


class FolderDisk:
    """A folder of this machine, or of a file system that it has mounted. One thread uses it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[str, int] = {}  # descriptors of the files that are written, by name

    def names(self) -> list[str]:
        return sorted(os.listdir(self._folder))

    def size(self, name: str) -> int:
        return (self._folder / name).stat().st_size

    def read(self, name: str, at: int = 0, size: int = -1) -> bytes:
        with (self._folder / name).open("rb") as file:
            file.seek(at)
            return file.read(size)

    def create(self, name: str, data: bytes) -> None:
        descriptor = self._descriptor(name)
        os.ftruncate(descriptor, 0)
        _write_all(descriptor, 0, [data])
        os.fsync(descriptor)
        sync_folder(self._folder)

    def append(self, name: str, at: int, parts: Sequence[bytes]) -> None:
        _write_all(self._descriptor(name), at, parts)

    def sync(self, name: str) -> None:
        _fdatasync(self._descriptor(name))

    def cut(self, name: str, size: int) -> None:
        descriptor = self._descriptor(name)
        os.ftruncate(descriptor, size)
        os.fsync(descriptor)

    def replace(self, name: str, data: bytes) -> None:
        replace_file(self._folder / name, data)

    def overwrite(self, name: str, data: bytes) -> None:
        os.pwrite(self._descriptor(name), data, 0)

    def remove(self, name: str) -> None:
        self.finish(name)
        (self._folder / name).unlink(missing_ok=True)

    def finish(self, name: str) -> None:
        descriptor = self._open.pop(name, None)
        if descriptor is not None:
            os.close(descriptor)

    def close(self) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()

    def _descriptor(self, name: str) -> int:
        found = self._open.get(name)
        if found is None:
            found = self._open[name] = os.open(self._folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        return found


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file durably: after a crash it has the old or the new content."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, at: int, parts: Sequence[bytes]) -> None:
    """Write parts one after the other; the kernel may take them in pieces."""
    waiting = [memoryview(part) for part in parts if part]
    first = 0
    while first < len(waiting):
        written = os.pwritev(descriptor, waiting[first : first + _PARTS_MAX], at)
        at += written
        while first < len(waiting) and written >= len(waiting[first]):
            written -= len(waiting[first])
            first += 1
        if written:
            waiting[first] = waiting[first][written:]
