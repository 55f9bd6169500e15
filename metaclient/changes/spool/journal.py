"""Writes the files of one worker of a spool, and finds them whole again after kill -9 or a power failure.

======================  ==========================================================================================
``N.segment``           calls, in the order of their arrival; only the one with the highest number is written
``N.state``             the log entries of segments up to N that were received, so that repeats are recognised when
                        the segments are deleted
``position``            the end of what is durable: readers do not read beyond it
======================  ==========================================================================================

1. :meth:`Journal.append` writes calls at the end of the last segment; :meth:`Journal.sync` makes them durable and then
   publishes the position. Only then may the calls be answered.
2. :meth:`Journal.roll` stores the state, then makes the next segment. A reader deletes a segment only when a later one
   exists: its entries are in the state by then.
3. Recovery reads the last segment from its beginning, and those that are newer than the state. Bytes after the last
   complete record are cut off: no call with a part there was answered. A record that is damaged *before* the published
   position was answered: this is an error, never cut off.

The bytes of all segments are bounded (:meth:`Journal.is_full`). One closed segment may always stay: a consumer commits
the end of a segment only after it has seen the next one.
"""

from __future__ import annotations

import errno
import logging
import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from metaclient.changes.spool.disk import Disk
from metaclient.changes.spool.records import (
    HEADER_BYTES,
    RECORD_BYTES_MIN,
    Position,
    SpooledCall,
    SpoolError,
    decode_body,
    decode_head,
    decode_position,
    encode_position,
    encode_record,
    has_header,
    is_record,
    segment_header,
    segment_name,
    segment_number,
)

__all__ = ["POSITION", "SEGMENT_BYTES", "Journal", "SpoolFull", "segment_numbers"]

logger = logging.getLogger(__name__)

POSITION = "position"
#: As much as one batch of a source (replication.source.size.capacity): a larger segment keeps deleted calls longer.
SEGMENT_BYTES = 64 << 20
#: A bound of a spool is at least so many segments, so that one can be written while another one is read.
_SEGMENTS_MIN = 4
_STATE_SUFFIX = ".state"
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class SpoolFull(SpoolError):
    """The disk has no space for calls; nothing of them is left in the files."""


def segment_numbers(names: Iterable[str]) -> list[int]:
    """Return the numbers of the segments among file names, in ascending order; SpoolError if one is missing."""
    found = sorted(number for name in names if (number := segment_number(name)) is not None)
    for number, following in pairwise(found):
        if following != number + 1:
            raise SpoolError(
                f"{segment_name(number + 1)} is missing between {segment_name(number)} and {segment_name(following)}: "
                "the spool is damaged, and changes are lost"
            )
    return found


class Journal:
    """The writer of one worker's files. One thread uses it."""

    def __init__(
        self,
        disk: Disk,
        *,
        bytes_max: int,
        segment_bytes: int = SEGMENT_BYTES,
        on_state: Callable[[bytes], None] = lambda state: None,
        on_call: Callable[[SpooledCall], None] = lambda call: None,
    ) -> None:
        """Recover the files. ``on_state`` gets the stored state, if any, then ``on_call`` each call that is newer."""
        self._disk = disk
        self._bytes_max = bytes_max
        self._segment_bytes = max(1, min(segment_bytes, bytes_max // _SEGMENTS_MIN))
        self._failure: SpoolError | None = None
        self._recover(on_state, on_call)
        self._total = self._measure()

    # -- recovery ------------------------------------------------------------------------------------------------------

    def _recover(self, on_state: Callable[[bytes], None], on_call: Callable[[SpooledCall], None]) -> None:
        disk = self._disk
        names = disk.names()
        numbers, through = segment_numbers(names), self._newest_state(names, on_state)
        published = self._published(names)
        if not numbers:
            self._segment = max(through, published.segment) + 1
            self._create()
        else:
            self._segment = numbers[-1]
            for number in numbers:
                if number > through or number == self._segment:
                    self._read_segment(number, on_call, published)
            disk.sync(segment_name(self._segment))
        self._synced = self._end
        self._publish()

    def _newest_state(self, names: Iterable[str], on_state: Callable[[bytes], None]) -> int:
        """Hand over the newest state; return the number of the last segment that it covers, 0 without one."""
        found = sorted(name for name in names if name.endswith(_STATE_SUFFIX) and not name.startswith("."))
        if not found:
            return 0
        on_state(self._disk.read(found[-1]))
        for old in found[:-1]:
            self._disk.remove(old)
        return int(found[-1].removesuffix(_STATE_SUFFIX))

    def _published(self, names: Iterable[str]) -> Position:
        found = decode_position(self._disk.read(POSITION)) if POSITION in names else None
        return found or Position(0, 0)

    def _read_segment(self, number: int, on_call: Callable[[SpooledCall], None], published: Position) -> None:
        """Hand over the calls of a segment, and cut off a torn end of the last one."""
        disk, name, is_last = self._disk, segment_name(number), number == self._segment
        data = disk.read(name)
        at = HEADER_BYTES
        if has_header(data, number):
            while (size := _record_size(data, Position(number, at))) is not None:
                head = decode_head(data, at)
                on_call(decode_body(head, data[at + size - head.length : at + size]))
                at += size
        elif is_last and published <= Position(number, HEADER_BYTES):
            disk.create(name, segment_header(number))
            data = b""
        else:
            at = 0
        if not is_last:
            if at != len(data):
                raise _damaged(name, at, len(data))
            return
        if Position(number, at) < published:
            raise _damaged(name, at, len(data))
        if at < len(data):
            logger.warning("the last %d bytes of %s are cut off: they belong to no complete call", len(data) - at, name)
            disk.cut(name, at)
        self._end = at

    # -- writing -------------------------------------------------------------------------------------------------------

    @property
    def end(self) -> Position:
        """The end of what was appended."""
        return Position(self._segment, self._end)

    @property
    def segment_bytes(self) -> int:
        return self._segment_bytes

    def append(self, calls: Iterable[tuple[bytes, bytes, Sequence[bool] | None]]) -> None:
        """Append calls (keys, cells, flags). SpoolFull if the disk has no space: then none of them was appended."""
        self._check()
        parts: list[bytes] = []
        end = self._end
        for param, cells, flags in calls:
            made = encode_record(Position(self._segment, end), param, cells, flags)
            parts += made
            end += sum(map(len, made))
        name = segment_name(self._segment)
        try:
            self._disk.append(name, self._end, parts)
        except OSError as error:
            if error.errno not in _FULL:
                raise self._fail(error) from error
            self._undo(name)
            raise SpoolFull(f"{name} cannot be extended: {error}") from error
        self._total += end - self._end
        self._end = end

    def _undo(self, name: str) -> None:
        try:
            self._disk.cut(name, self._end)
        except OSError as error:
            raise self._fail(error) from error

    def sync(self) -> None:
        """Make everything that was appended durable, and let readers see it. After an error nothing can be appended."""
        self._check()
        try:
            self._disk.sync(segment_name(self._segment))
            self._synced = self._end
            self._publish()
        except OSError as error:  # the kernel may have dropped the bytes: a second fsync would report success
            raise self._fail(error) from error

    @property
    def is_roll_due(self) -> bool:
        return self._end >= self._segment_bytes

    @property
    def has_calls(self) -> bool:
        """True if the last segment has records."""
        return self._end > HEADER_BYTES

    def roll(self, state: bytes) -> None:
        """Begin the next segment. ``state`` covers all calls that were appended; all of them are durable."""
        self._check()
        assert self._synced == self._end, "roll() comes after sync()"
        old = self._segment
        try:
            self._disk.replace(f"{old:016d}{_STATE_SUFFIX}", state)
            self._segment = old + 1
            self._create()
            self._synced = self._end
            self._publish()
            for name in self._disk.names():
                if name.endswith(_STATE_SUFFIX) and name < f"{old:016d}":
                    self._disk.remove(name)
        except OSError as error:
            raise self._fail(error) from error
        self._disk.finish(segment_name(old))
        self._total += HEADER_BYTES

    def _create(self) -> None:
        self._disk.create(segment_name(self._segment), segment_header(self._segment))
        self._end = HEADER_BYTES

    def _publish(self) -> None:
        self._disk.overwrite(POSITION, encode_position(Position(self._segment, self._synced)))

    def close(self) -> None:
        self._disk.close()

    # -- the bound -----------------------------------------------------------------------------------------------------

    @property
    def total_bytes(self) -> int:
        """The bytes of all segments; of those that a reader has deleted since the last look, too."""
        return self._total

    def is_full(self, size: int) -> bool:
        """Return True if calls of so many bytes do not fit; readers must delete segments first."""
        if self._total + size <= self._bytes_max:
            return False
        self._total = self._measure()
        closed = sum(segment_number(name) is not None for name in self._disk.names()) - 1
        return closed > 1 and self._total + size > self._bytes_max

    def _measure(self) -> int:
        total = 0
        for name in self._disk.names():
            if segment_number(name) is not None:
                try:
                    total += self._disk.size(name)
                except FileNotFoundError:
                    continue  # a reader has deleted it since
        return total

    # -- errors --------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _fail(self, error: OSError) -> SpoolError:
        self._failure = SpoolError(
            f"the spool cannot be written: {error}. No call was answered that is not on the disk: start the receiver "
            "again when the disk works"
        )
        return self._failure


def _record_size(data: bytes, at: Position) -> int | None:
    """Return the size of the record at a place of a segment; None if there is no complete one."""
    try:
        head = decode_head(data, at.byte)
    except struct.error:
        return None
    begin, end = at.byte + head.size - head.length, at.byte + head.size
    if head.size < RECORD_BYTES_MIN or end > len(data):
        return None
    return head.size if is_record(at, head, memoryview(data)[begin:end]) else None


def _damaged(name: str, at: int, size: int) -> SpoolError:
    return SpoolError(
        f"{name} is damaged at byte {at} of {size}, in calls that were answered: HBase does not send them again. "
        "Restore the file from a backup; or move the spool away, make a new one, and read the table once"
    )
