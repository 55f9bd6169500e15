"""Remembers the regions of tables and their sizes between the plans of one process, so that most plans make no call.

Neither has to be fresh. A split is a range of row keys: a region that has moved, split or merged since the listing
costs the task a lookup and changes no row. Sizes only decide how regions are merged and cut.

- Regions: a plan reuses the listing of a plan of the last :data:`LISTING_S` seconds, such as the other side of a union.
- Sizes: asked once per session, from the servers that have the table's regions, all at the same time and never from the
  master. They are asked again after :data:`SIZES_S`, or if more than a tenth of the regions are new.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from metaclient import Connection
from metaclient.model import RegionLocations, ServerName
from metaclient.runtime import ThreadRuntime

__all__ = ["TellsRegionSizes", "forget", "regions_of", "sizes_of"]

#: A listing is reused for so many seconds.
LISTING_S = 10.0
#: Sizes are reused for so many seconds.
SIZES_S = 3600.0
#: Sizes are not asked again before so many seconds, even if many regions are new.
SIZES_PAUSE_S = 60.0
#: Sizes are asked again if more than this share of the regions has none.
NEW_SHARE_MAX = 0.1
#: Servers that have not told the sizes of their regions after so many seconds are left out.
SIZES_WAIT_S = 10.0
#: Tables that one connection remembers.
TABLES_MAX = 16

_runtime = ThreadRuntime(name="spark-planning")  # clock and locks; it starts no thread


@runtime_checkable
class TellsRegionSizes(Protocol):
    """An optional method of a backend: the bytes of each region of the table on these servers, by region name."""

    def region_sizes(
        self, table: bytes, deadline: float, servers: Sequence[ServerName] | None = None
    ) -> Mapping[bytes, int]: ...


@dataclass(slots=True)
class _Facts:
    regions: list[RegionLocations] = field(default_factory=list)
    listed_at: float = float("-inf")
    sizes: Mapping[bytes, int] = field(default_factory=dict)
    sized_at: float = float("-inf")


_lock = _runtime.lock()  # guards _known and its values
_known: WeakKeyDictionary[Connection, OrderedDict[bytes, _Facts]] = WeakKeyDictionary()


def _renew() -> None:
    """Start a child process without facts, and with a lock that no thread of the parent holds."""
    global _lock
    _lock = _runtime.lock()
    _known.clear()


_runtime.on_fork(_renew)


def _facts(connection: Connection, table: bytes) -> _Facts:
    """Return what is known about a table; the caller reads and replaces fields, each of which is one value."""
    with _lock:
        tables = _known.setdefault(connection, OrderedDict())
        found = tables.setdefault(table, _Facts())
        tables.move_to_end(table)
        while len(tables) > TABLES_MAX:
            tables.popitem(last=False)
        return found


def forget(connection: Connection, table: bytes) -> None:
    """Forget a table whose regions this process has changed: created, truncated or dropped."""
    with _lock:
        _known.get(connection, OrderedDict[bytes, _Facts]()).pop(table, None)


def regions_of(connection: Connection, table: bytes) -> list[RegionLocations]:
    """Return all regions of a table, in order; raise LocationUnknown for rows in no region, or in two."""
    facts = _facts(connection, table)
    now = _runtime.now()
    if now - facts.listed_at > LISTING_S:
        facts.regions = connection.regions(table, complete=True)
        facts.listed_at = now
    return facts.regions


def sizes_of(connection: Connection, table: bytes, regions: Sequence[RegionLocations]) -> Mapping[bytes, int]:
    """Return the bytes of the table's regions, by region name; empty if the backend does not tell them."""
    backend = connection.engine.backend
    if not isinstance(backend, TellsRegionSizes):
        return {}
    facts = _facts(connection, table)
    now = _runtime.now()
    age_s = now - facts.sized_at
    if age_s > SIZES_S or (age_s > SIZES_PAUSE_S and _new_share(regions, facts.sizes) > NEW_SHARE_MAX):
        servers = {entry.primary.server: None for entry in regions if entry.primary is not None}
        engine = connection.engine
        deadline = min(engine.deadline(), engine.runtime.now() + SIZES_WAIT_S)
        facts.sizes = backend.region_sizes(table, deadline, list(servers))
        facts.sized_at = now
    return facts.sizes


def _new_share(regions: Sequence[RegionLocations], sizes: Mapping[bytes, int]) -> float:
    return sum(entry.region.name not in sizes for entry in regions) / max(1, len(regions))
