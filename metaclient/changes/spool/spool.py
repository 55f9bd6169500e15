"""Reads a spool: the durable end of each worker, calls between two offsets, and commits, which delete segments.

A spool is a folder: ``spool.json`` with the subscription, and a folder per worker with its segments
(:mod:`~metaclient.changes.spool.journal`). It may be read while it is written, also on another machine that has mounted
it. One consumer commits; the segments before its offset are deleted.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from metaclient.changes.spool.disk import sync_folder
from metaclient.changes.spool.journal import POSITION, segment_numbers
from metaclient.changes.spool.records import (
    HEAD_BYTES,
    HEADER_BYTES,
    Position,
    SpooledCall,
    SpoolError,
    decode_body,
    decode_head,
    decode_position,
    is_record,
    segment_name,
)

__all__ = ["Offset", "Spool", "SpoolSlice", "lock_worker", "read_calls"]

_FILE = "spool.json"
_VERSION = 1
#: The position file is replaced in place: a reader may see half of a write, and looks again.
_LOOKS_MAX = 1000

#: A position per worker, by name.
Offset: TypeAlias = Mapping[str, Position]


@dataclass(frozen=True, slots=True)
class SpoolSlice:
    """The calls of one worker in ``[begin, end)`` of one segment."""

    worker: str
    segment: int
    begin: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.begin


class Spool:
    """The folder of a spool, for readers."""

    def __init__(self, folder: Path) -> None:
        """Open a spool; SpoolError if the folder is none."""
        self.folder = folder
        document = _load(folder / _FILE)
        self.id = str(document["id"])
        self.name = str(document["name"])
        self.tables = tuple(str(table).encode("latin-1") for table in document["tables"])

    @classmethod
    def ensure(cls, folder: Path, name: str, tables: Sequence[bytes], *, new_id: str) -> Spool:
        """Make the folder a spool of this subscription if it is none; SpoolError if it is one of another.

        ``new_id`` becomes the id of a new spool, which tells it from all others.
        """
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / _FILE).exists():
            shown = [table.decode("latin-1") for table in tables]
            document = {"version": _VERSION, "id": new_id, "name": name, "tables": shown}
            beside = folder / f".{_FILE}.{os.getpid()}"
            with beside.open("w") as file:
                json.dump(document, file)
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):  # another worker has made it at the same time
                os.link(beside, folder / _FILE)
            beside.unlink()
            sync_folder(folder)
        made = cls(folder)
        if made.name != name or set(made.tables) != set(tables):
            raise SpoolError(
                f"{folder} is the spool of the subscription {made.name!r} with the tables "
                f"{', '.join(map(repr, made.tables))}, not of {name!r}: give each subscription a folder of its own"
            )
        return made

    def __repr__(self) -> str:
        return f"Spool({str(self.folder)!r})"

    # -- positions -----------------------------------------------------------------------------------------------------

    def workers(self) -> list[str]:
        """Return the names of all workers that have written here, sorted."""
        return sorted(entry.name for entry in os.scandir(self.folder) if entry.is_dir() and entry.name[0] != ".")

    def end(self) -> dict[str, Position]:
        """Return the end of what is durable, for each worker that has a position."""
        return {worker: end for worker in self.workers() if (end := self._published(worker)) is not None}

    def _published(self, worker: str) -> Position | None:
        for _ in range(_LOOKS_MAX):
            try:
                data = (self.folder / worker / POSITION).read_bytes()
            except FileNotFoundError:
                return None
            found = decode_position(data)
            if found is not None:
                return found
            if not data:
                return None  # it is being made
        raise SpoolError(
            f"{self.folder / worker / POSITION} has no position: start the receiver of this worker again, which reads "
            "its segments and writes the file"
        )

    def slices(self, start: Offset, end: Offset) -> list[SpoolSlice]:
        """Return the segments between two offsets, per worker in ascending order.

        A worker that is not in ``start`` is read from its first segment. SpoolError if a segment is missing, or if a
        worker's files end before ``start``.
        """
        found: list[SpoolSlice] = []
        for worker, stop in sorted(end.items()):
            begin = start.get(worker)
            if begin == stop:
                continue
            numbers = self._segments(worker)
            first = begin or Position(numbers[0] if numbers else stop.segment, HEADER_BYTES)
            if stop < first:
                raise SpoolError(
                    f"the spool {self.folder} ends at {tuple(stop)} for worker {worker!r}, before the offset "
                    f"{tuple(first)}: it was replaced by an older one, or the checkpoint belongs to another spool"
                )
            for number in range(first.segment, stop.segment + 1):
                at = first.byte if number == first.segment else HEADER_BYTES
                to = stop.byte if number == stop.segment else self._size(worker, number)
                if at < to:
                    found.append(SpoolSlice(worker, number, at, to))
        return found

    def limit(self, start: Offset, end: Offset, bytes_max: int) -> dict[str, Position]:
        """Return the latest offset up to ``end`` with about ``bytes_max`` bytes after ``start``; at least one call.

        Each worker gets a share of the bytes, so that none waits for the others.
        """
        slices = self.slices(start, end)
        reached: dict[str, Position] = dict(start)
        waiting: dict[str, list[SpoolSlice]] = {}
        for one in slices:
            waiting.setdefault(one.worker, []).append(one)
        for worker, stop in end.items():
            if worker not in waiting:
                reached[worker] = stop
        left = bytes_max
        while waiting:
            share = left // len(waiting)
            fewest = min(waiting, key=lambda worker: sum(one.size for one in waiting[worker]))
            of_worker = waiting.pop(fewest)
            if sum(one.size for one in of_worker) <= share:
                reached[fewest] = end[fewest]
                left -= sum(one.size for one in of_worker)
            else:
                reached[fewest] = self._walk(of_worker, share)
                left -= share
        return reached

    def _walk(self, slices: Sequence[SpoolSlice], bytes_max: int) -> Position:
        """Return the end of the last call within ``bytes_max`` bytes; of the first call if it is larger."""
        at, left = Position(slices[0].segment, slices[0].begin), bytes_max
        is_first = True
        for one in slices:
            at = Position(one.segment, one.begin)
            if one.size <= left:
                at, left, is_first = Position(one.segment, one.end), left - one.size, False
                continue
            with self._opened(one) as file:
                while at.byte < one.end:
                    file.seek(at.byte)
                    size = _head_size(file.read(HEAD_BYTES), one, at.byte)
                    if size > left and not is_first:
                        return at
                    at, left, is_first = Position(one.segment, at.byte + size), left - size, False
        return at

    # -- calls ---------------------------------------------------------------------------------------------------------

    def read(self, part: SpoolSlice) -> Iterator[SpooledCall]:
        """Yield the calls of a slice, in their order; SpoolError if the bytes are damaged or gone."""
        with self._opened(part) as file:
            file.seek(part.begin)
            yield from read_calls(file, part)

    def copy(self, part: SpoolSlice) -> bytes:
        """Return the bytes of a slice, for :func:`read_calls` on a machine without the files."""
        with self._opened(part) as file:
            file.seek(part.begin)
            return file.read(part.size)

    def cut(self, part: SpoolSlice, bytes_max: int) -> list[SpoolSlice]:
        """Cut a slice between calls into pieces of at most so many bytes, or of one call."""
        pieces: list[SpoolSlice] = []
        while part.size > bytes_max:
            end = self._walk([part], bytes_max).byte
            pieces.append(SpoolSlice(part.worker, part.segment, part.begin, end))
            part = SpoolSlice(part.worker, part.segment, end, part.end)
        return [*pieces, part] if part.size else pieces

    def _opened(self, part: SpoolSlice) -> BinaryIO:
        try:
            return (self.folder / part.worker / segment_name(part.segment)).open("rb")
        except FileNotFoundError as error:
            raise self._gone(part.worker, part.segment) from error

    # -- commits -------------------------------------------------------------------------------------------------------

    def commit(self, offset: Offset) -> int:
        """Delete the segments that end before an offset; return their number. The segment of the offset itself stays.

        A later segment exists by then, so that the state of the worker covers the entries of the deleted ones.
        """
        deleted = 0
        for worker, position in sorted(offset.items()):
            for number in self._segments(worker):
                if number < position.segment:
                    (self.folder / worker / segment_name(number)).unlink(missing_ok=True)
                    deleted += 1
        return deleted

    # -- files ---------------------------------------------------------------------------------------------------------

    def _segments(self, worker: str) -> list[int]:
        try:
            return segment_numbers(os.listdir(self.folder / worker))
        except FileNotFoundError:
            return []

    def _size(self, worker: str, number: int) -> int:
        try:
            return (self.folder / worker / segment_name(number)).stat().st_size
        except FileNotFoundError as error:
            raise self._gone(worker, number) from error

    def _gone(self, worker: str, number: int) -> SpoolError:
        if not self.folder.exists():
            why = "the folder is not there: mount it on every machine that reads it"
        else:
            why = "its calls were committed by another consumer, or the file was deleted"
        return SpoolError(f"{self.folder / worker / segment_name(number)} is missing: {why}")


def read_calls(file: BinaryIO, part: SpoolSlice) -> Iterator[SpooledCall]:
    """Yield the calls of a slice from a file that stands at its first byte; SpoolError if they are damaged."""
    at = part.begin
    while at < part.end:
        head_bytes = file.read(HEAD_BYTES)
        size = _head_size(head_bytes, part, at)
        head = decode_head(head_bytes)
        body = file.read(head.length)
        if not is_record(Position(part.segment, at), head, body):
            raise _no_call(part, at)
        yield decode_body(head, body)
        at += size


def lock_worker(folder: Path) -> int:
    """Return a lock on the folder of a worker, as a file descriptor; SpoolError if another process has it.

    The lock ends with the process. The folder is made if it is not there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise SpoolError(
            f"another process receives into {folder}: give each worker of a subscription a name of its own (--worker)"
        ) from error
    return descriptor


def _load(path: Path) -> Mapping[str, Any]:
    try:
        document = json.loads(path.read_bytes())
        if document["version"] != _VERSION:
            raise ValueError(f"its version is {document['version']!r}, and this program reads {_VERSION}")
        return {key: document[key] for key in ("id", "name", "tables")}
    except FileNotFoundError as error:
        raise SpoolError(
            f"{path.parent} is no spool, because {path.name} is not there: start `metaclient changes receive --name "
            f"NAME --spool {path.parent}`, and mount the folder on every machine that reads it"
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SpoolError(f"{path} does not describe a spool: {error}") from error


def _head_size(data: bytes, part: SpoolSlice, at: int) -> int:
    """Return the size of the record that begins with these bytes; SpoolError if it does not end within the slice."""
    try:
        size = decode_head(data).size
    except struct.error:
        raise _no_call(part, at) from None
    if at + size > part.end:
        raise _no_call(part, at)
    return size


def _no_call(part: SpoolSlice, at: int) -> SpoolError:
    return SpoolError(
        f"{part.worker}/{segment_name(part.segment)} has no complete call at byte {at}: the file is damaged, or the "
        "offset is of another spool"
    )
