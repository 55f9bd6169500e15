"""Divides a read into splits, one per region: a single scan of hbase:meta on the driver, spread over the meta replicas.

1. The wanted ranges and rows are clipped to the regions.
2. If the backend knows the sizes of regions, small regions of one server are merged into one split, also if others lie
   between them, and a big region is cut at estimated middle keys. ``hbase.spark.partition.max`` limits the splits.
3. Each split carries the locations of its regions and of the replicas of hbase:meta. A task whose locations are still
   right makes no lookup. If a region has moved, split or merged since, the client looks it up again.
   Plans that follow each other within seconds share one listing, and all plans of a session share the sizes.
4. Splits are ordered so that adjacent splits are on different servers. Otherwise all tasks that run first would read
   from one server.
"""

from __future__ import annotations

import gc
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, pairwise
from math import ceil
from typing import NamedTuple

from metaclient import Connection, keys
from metaclient.lookup.location_export import encode_locations
from metaclient.model import MetaReplica, RegionLocations
from spark_connector.planning.query import Query
from spark_connector.planning.table_facts import regions_of, sizes_of
from spark_connector.schema.ranges import EVERYTHING, KeyRange

__all__ = ["TableSplit", "plan", "split_keys"]

MB = 1 << 20
#: Bytes after the common prefix that :func:`split_keys` uses; keys that differ only later are not separated.
_DIGITS = 8
#: A region is not cut into more pieces than this, whatever its size.
PIECES_MAX = 1000
#: At most so many small regions are merged: opening their scanners takes about as long as starting a task. A region
#: whose rows are all in memory has the size 0, so that sizes alone would merge all regions of a new table.
REGIONS_MAX = 32


@dataclass(frozen=True, slots=True)
class TableSplit:
    """What one task reads. ``ranges`` are cut at the region boundaries at the time of planning."""

    ranges: tuple[KeyRange, ...] = ()
    points: tuple[bytes, ...] = ()  # rows to get one by one, sorted
    host: str | None = None  # of the server that has most of its regions
    locations: bytes = b""  # for Connection.import_locations; empty: the task looks them up
    size: int | None = None  # bytes, if known
    regions: int = 0  # the number of regions that it reads from

    @property
    def is_empty(self) -> bool:
        return not self.ranges and not self.points


class _Part(NamedTuple):
    """A split that is being planned: the wanted ranges and rows of some regions, and the host that has most of them."""

    ranges: tuple[KeyRange, ...]
    points: tuple[bytes, ...]
    regions: tuple[RegionLocations, ...]
    server: str | None
    size: int | None = None


def _joined(parts: Sequence[_Part]) -> _Part:
    """Return parts as one part."""
    if len(parts) == 1:
        return parts[0]
    sizes = [part.size for part in parts if part.size is not None]
    server = parts[0].server
    if any(part.server != server for part in parts):
        hosts: Counter[str] = Counter()
        for part in parts:
            if part.server is not None:
                hosts[part.server] += len(part.regions)
        server = hosts.most_common(1)[0][0]
    regions: list[RegionLocations] = []
    for part in parts:  # the pieces of a region that was cut follow each other
        regions += part.regions[1:] if regions and part.regions[0] is regions[-1] else part.regions
    return _Part(
        tuple(chain.from_iterable(part.ranges for part in parts)),
        tuple(chain.from_iterable(part.points for part in parts)),
        tuple(regions),
        server,
        sum(sizes) if len(sizes) == len(parts) else None,
    )


def plan(connection: Connection, query: Query, *, whole: bool = False) -> list[TableSplit]:
    """Return the splits of a read; one empty split if there is nothing to read.

    ``whole`` puts everything into one split, which is read in order (needed for a limit of the whole read). Raises
    ``TableNotFound``, ``LocationUnknown`` if there is a hole between regions, and other errors of the client.
    """
    with _uncollected():
        return _planned(connection, query, whole)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keep the garbage collector from running: a plan makes many objects, none of them garbage.

    With 100,000 regions it would visit all objects of the process several times, which takes longer than the plan.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _planned(connection: Connection, query: Query, whole: bool) -> list[TableSplit]:
    options = query.options
    regions = regions_of(connection, query.table)
    parts = _clipped(regions, query)
    if whole:
        parts = _chunked(parts, 1)
    else:
        if options.partition_split_mb or options.partition_min_mb:
            parts = _sized(parts, sizes_of(connection, query.table, regions))
        parts = [piece for part in parts for piece in _cut(part, options.partition_split_mb)]
        parts = _merged(_by_server(parts), options.partition_min_mb, options.bulkget_size)
        parts = _chunked(parts, options.partition_max)
    replicas = connection.engine.known_meta_replicas()
    ships = options.locations == "ship"
    splits = [_split(part, query.table, replicas, ships) for part in parts]
    return _interleaved(splits) or [TableSplit()]


def _clipped(regions: Sequence[RegionLocations], query: Query) -> list[_Part]:
    """Return the wanted ranges and rows of each region, without regions from which nothing is read.

    Regions and ranges are sorted, so that both are walked once.
    """
    if query.pushed.ranges == EVERYTHING and not query.pushed.points:
        return [
            _Part((KeyRange(entry.region.start_key, entry.region.end_key),), (), (entry,), _host(entry))
            for entry in regions
        ]
    ranges, points = deque(query.pushed.ranges), deque(query.pushed.points)
    parts: list[_Part] = []
    for entry in regions:
        start, stop = entry.region.start_key, entry.region.end_key
        while ranges and keys.ends_before_or_at(ranges[0].stop, start):
            ranges.popleft()
        clipped: list[KeyRange] = []
        for one in ranges:
            if keys.ends_before_or_at(stop, one.start):
                break
            clipped.append(KeyRange(max(start, one.start), keys.earlier_end(stop, one.stop)))
        here: list[bytes] = []
        while points and keys.contains(start, stop, points[0]):
            here.append(points.popleft())
        if clipped or here:
            parts.append(_Part(tuple(clipped), tuple(here), (entry,), _host(entry)))
    assert not points, "regions without a hole contain every row"
    return parts


def _host(entry: RegionLocations) -> str | None:
    primary = entry.primary
    return None if primary is None else primary.server.host


def _sized(parts: list[_Part], sizes: Mapping[bytes, int]) -> list[_Part]:
    """Return the parts with the sizes of their regions; a region that is partly read counts with its whole size."""
    if not sizes:
        return parts
    return [part._replace(size=sizes.get(part.regions[0].region.name, 0) if part.ranges else 0) for part in parts]


# -- big parts are cut -----------------------------------------------------------------------------------------------


def _cut(part: _Part, split_mb: float | None) -> list[_Part]:
    if split_mb is None or part.size is None or len(part.ranges) != 1:
        return [part]
    count = min(ceil(part.size / (split_mb * MB)), PIECES_MAX)
    if count < 2:
        return [part]
    where = part.ranges[0]
    borders = [where.start, *split_keys(where, count), where.stop]
    size = part.size // (len(borders) - 1)
    pieces = [part._replace(ranges=(KeyRange(a, b),), points=(), size=size) for a, b in pairwise(borders)]
    return [pieces[0]._replace(points=part.points), *pieces[1:]]


def split_keys(where: KeyRange, count: int) -> list[bytes]:
    r"""Return at most ``count - 1`` keys inside of a range that cut it into parts of about the same width.

    >>> split_keys(KeyRange(b"", b""), 4)
    [b'@', b'\x80', b'\xc0']
    >>> split_keys(KeyRange(b"user10", b"user20"), 2)
    [b'user1\xb0']
    """
    shared = _common_prefix(where.start, where.stop) if where.stop else b""
    low = int.from_bytes(where.start[len(shared) :][:_DIGITS].ljust(_DIGITS, b"\0"))
    high = int.from_bytes(where.stop[len(shared) :][:_DIGITS].ljust(_DIGITS, b"\0")) if where.stop else 1 << 8 * _DIGITS
    found: list[bytes] = []
    for number in range(1, count):
        at = low + (high - low) * number // count
        key = shared + at.to_bytes(_DIGITS).rstrip(b"\0")
        if key != where.start and where.contains(key) and key not in found[-1:]:
            found.append(key)
    return found


def _common_prefix(one: bytes, other: bytes) -> bytes:
    length = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:length]


# -- small parts are merged ------------------------------------------------------------------------------------------


def _by_server(parts: Sequence[_Part]) -> list[_Part]:
    """Return the parts of each server one after the other, in the order of their rows."""
    by_server: dict[str | None, list[_Part]] = {}
    for part in parts:
        by_server.setdefault(part.server, []).append(part)
    return list(chain.from_iterable(by_server.values()))


def _merged(parts: Sequence[_Part], min_mb: float | None, points_max: int) -> list[_Part]:
    """Merge parts of one server that follow each other while they are small together."""
    if all(part.ranges and part.size is None for part in parts):
        return list(parts)  # only parts of known sizes, or of single rows, are merged
    groups: list[_Group] = []
    for part in parts:
        if not groups or not groups[-1].takes(part, min_mb, points_max):
            groups.append(_Group(part))
    return [_joined(group.parts) for group in groups]


class _Group:
    """Parts of one server that are merged; totals, so that a part costs the same in a large group as in a small one."""

    __slots__ = ("_has_ranges", "_points", "_size", "parts")

    def __init__(self, first: _Part) -> None:
        self.parts = [first]
        self._has_ranges = bool(first.ranges)
        self._points = len(first.points)
        self._size = first.size

    def takes(self, part: _Part, min_mb: float | None, points_max: int) -> bool:
        """Add the part and return True if it is of the same server and small together with the others."""
        points = self._points + len(part.points)
        size = None if self._size is None or part.size is None else self._size + part.size
        has_ranges = self._has_ranges or bool(part.ranges)
        if part.server != self.parts[0].server or points > points_max:
            return False
        if has_ranges and len(self.parts) >= REGIONS_MAX:
            return False
        if has_ranges and (min_mb is None or size is None or size > min_mb * MB):
            return False
        self.parts.append(part)
        self._has_ranges, self._points, self._size = has_ranges, points, size
        return True


def _chunked(parts: Sequence[_Part], count_max: int) -> list[_Part]:
    """Merge parts that follow each other into at most ``count_max`` groups of about the same number of parts."""
    if len(parts) <= count_max:
        return list(parts)
    found: list[_Part] = []
    for number in range(count_max):
        first, last = len(parts) * number // count_max, len(parts) * (number + 1) // count_max
        found.append(_joined(parts[first:last]))
    return found


# -- splits for the tasks --------------------------------------------------------------------------------------------


def _split(part: _Part, table: bytes, replicas: Sequence[MetaReplica], ships: bool) -> TableSplit:
    return TableSplit(
        ranges=part.ranges,
        points=part.points,
        host=part.server,
        locations=encode_locations({table: part.regions}, replicas) if ships else b"",
        size=part.size,
        regions=len(part.regions),
    )


def _interleaved(splits: Iterable[TableSplit]) -> list[TableSplit]:
    """Return the splits in rounds, one split per server and round, starting with the server that has most left."""
    by_host: dict[str | None, deque[TableSplit]] = {}
    for split in splits:
        by_host.setdefault(split.host, deque()).append(split)
    found: list[TableSplit] = []
    while by_host:
        for host in sorted(by_host, key=lambda host: -len(by_host[host])):
            found.append(by_host[host].popleft())
            if not by_host[host]:
                del by_host[host]
    return found
