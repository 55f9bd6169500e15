"""The locations of all regions of a table, shipped to tasks that learn only at run time which rows they have.

Writers, joins and copies cannot know on the driver which regions a task needs. The map is therefore shipped in blocks
of neighbouring regions, compressed, with the first row key of each block. A task decodes and imports only the blocks of
its rows, when it needs them. A worker process remembers which blocks its client has (``clients.take_block``), so that
its next task, or a task of the next job with the same map, imports none of them again.

>>> import metaclient
>>> with metaclient.connect("scripted:") as connection:
...     connection.create_table("t", {"cf": {}}, splits=[b"b", b"c"])
...     shipped = LocationMap.of(b"t", connection.regions("t"), block_regions=2)
>>> shipped.starts, shipped.regions
((b'', b'c'), 3)
>>> with metaclient.connect("scripted:") as other:
...     learner = Learner(other, shipped)
...     learner.learn(b"bb"), learner.learn(b"ba"), learner.learn(b"x")
(True, False, True)
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from metaclient import Connection, keys
from metaclient.lookup.location_export import encode_locations
from metaclient.model import MetaReplica, RegionLocations
from spark_connector import clients
from spark_connector.planning.table_facts import regions_of
from spark_connector.schema.ranges import KeyRange
from spark_connector.settings.options import Options

__all__ = ["BLOCK_REGIONS", "Learner", "LocationMap", "ship_locations"]

#: Regions per block. Importing a block takes about 5 ms.
BLOCK_REGIONS = 256
#: A task that ran before, or has no map, reads the locations of all regions if the table is known to have at most so
#: many. Otherwise the client looks up the regions of its rows one by one.
WARM_UP_MAX = 2_000
#: zlib's fastest level: a map of 100,000 regions takes 0.2 s and becomes ten times smaller.
_LEVEL = 1


@dataclass(frozen=True, slots=True)
class LocationMap:
    """Compressed blocks of exported locations. Without blocks, tasks look regions up by themselves."""

    table: bytes
    starts: tuple[bytes, ...] = ()  # the first row key of each block
    blocks: tuple[bytes, ...] = ()
    regions: int = 0

    @classmethod
    def of(
        cls,
        table: bytes,
        regions: Sequence[RegionLocations],
        replicas: Sequence[MetaReplica] = (),
        *,
        block_regions: int = BLOCK_REGIONS,
    ) -> LocationMap:
        """Return the map of regions, which are in the order of their keys."""
        groups = [regions[at : at + block_regions] for at in range(0, len(regions), block_regions)]
        return cls(
            table,
            tuple(group[0].region.start_key for group in groups),
            tuple(zlib.compress(encode_locations({table: group}, replicas), _LEVEL) for group in groups),
            len(regions),
        )

    def __bool__(self) -> bool:
        """True if there is a block."""
        return bool(self.blocks)

    def block_of(self, row: bytes) -> int:
        """Return the index of the block that has the region of a row."""
        return max(0, bisect_right(self.starts, row) - 1)


def ship_locations(connection: Connection, table: bytes, options: Options) -> LocationMap:
    """Return the map of a table's regions, by one scan of hbase:meta; without blocks if tasks do their own lookups."""
    if options.locations != "ship":
        return LocationMap(table)
    regions = regions_of(connection, table)
    return LocationMap.of(table, regions, connection.engine.known_meta_replicas())


class Learner:
    """Imports blocks of a map into one client, in one task. ``attempt`` is Spark's number of the attempt.

    A later attempt does not trust the map, because it may be the cause of the failure, and has the client look up its
    regions. It sleeps first (``clients.pause_before_retry``). Without blocks the client looks regions up as well.
    """

    def __init__(self, connection: Connection, shipped: LocationMap, *, attempt: int = 0) -> None:
        self._connection = connection
        self._map = shipped
        self._seen: set[int] = set()
        clients.pause_before_retry(connection, attempt=attempt)
        if attempt or not shipped:
            if shipped.regions <= WARM_UP_MAX:
                connection.warm_up(shipped.table)
            self._seen.update(range(len(shipped.blocks)))

    def learn(self, row: bytes) -> bool:
        """Import the block of a row; return False if this task has it already."""
        index = self._map.block_of(row)
        if not self._map or index in self._seen:
            return False
        self._seen.add(index)
        clients.take_block(self._connection, self._map.blocks[index], zlib.decompress)
        return True

    def learn_rows(self, rows: Iterable[bytes]) -> None:
        """Import the blocks of all these rows."""
        for row in rows:
            self.learn(row)

    def learn_ranges(self, ranges: Iterable[KeyRange]) -> None:
        """Import the blocks of all rows of these ranges."""
        starts = self._map.starts
        for where in ranges:
            self.learn(where.start)
            at = bisect_right(starts, where.start)
            while at < len(starts) and not keys.ends_before_or_at(where.stop, starts[at]):
                self.learn(starts[at])
                at += 1
