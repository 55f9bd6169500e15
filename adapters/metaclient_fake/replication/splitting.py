"""Decides how the entries of a batch are spread over calls.

Mirrors ``HBaseInterClusterReplicationEndpoint.createBatches`` (HBase 2.6.1):

- A plain peer: n = min(``calls_max``, entries / 100 + 1, sinks) lists by the hash of the region's name. The entries of
  a region stay in order within a batch, because they are in one list.
- A serial peer: one list per region. The calls of a list are made one after the other. The same holds for entries of
  scope 2 with ``scope_2_is_serial``, also of a plain peer.
- A call takes at most 95 % of ``hbase.ipc.max.request.size``; a list that is larger is cut into several calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from metaclient.wire.rpc.replication import ShippedEntry
from metaclient_fake.storage.wal import Scopes, entry_overhead_bytes

__all__ = ["IsOrdered", "Job", "Request", "jobs_of", "shipped_size", "without"]

#: Returns True if the peer gets the entries with these scopes in order.
IsOrdered: TypeAlias = Callable[[Scopes], bool]
#: The entries of one call.
Request: TypeAlias = list[ShippedEntry]
#: Calls that are made one after the other. After a failure all of them are made again.
Job: TypeAlias = list[Request]

_ENTRIES_PER_LIST = 100
_REQUEST_SHARE = 0.95
_CELL_OVERHEAD_BYTES = 20


def jobs_of(
    entries: Sequence[ShippedEntry], *, is_ordered: IsOrdered | None, sinks: int, calls_max: int, request_bytes_max: int
) -> list[Job]:
    """Return the jobs for a batch; different jobs may run at the same time. ``is_ordered=None``: nothing is ordered."""
    limit = int(request_bytes_max * _REQUEST_SHARE)
    ordered = [] if is_ordered is None else [entry for entry in entries if is_ordered(entry.key.scopes)]
    jobs = [_requests(entries_of_region, limit) for entries_of_region in _by(ordered, lambda region: region)]
    if is_ordered is not None:
        entries = [entry for entry in entries if not is_ordered(entry.key.scopes)]
    count = min(calls_max, len(entries) // _ENTRIES_PER_LIST + 1, max(sinks, 1))
    lists = [list(entries)] if count == 1 else _by(entries, lambda region: _java_hash(region) % count)
    return jobs + [[request] for one in lists if one for request in _requests(one, limit)]


def _by(entries: Sequence[ShippedEntry], key: Callable[[str], object]) -> list[Request]:
    keys: dict[str, object] = {}
    lists: dict[object, Request] = {}
    for entry in entries:
        region = entry.key.region
        if region not in keys:
            keys[region] = key(region)
        lists.setdefault(keys[region], []).append(entry)
    return list(lists.values())


def _java_hash(region: str) -> int:
    """Return ``Bytes.hashCode`` without its sign."""
    value = 1
    for byte in region.encode():
        value = (31 * value + byte) & 0xFFFFFFFF
    return value if value < 1 << 31 else (1 << 32) - value


def _requests(entries: Request, limit: int) -> Job:
    """Cut a list so that each part has at most ``limit`` bytes; a larger entry is alone in its part."""
    parts: Job = [[]]
    size = 0
    for entry in entries:
        added = shipped_size(entry)
        if parts[-1] and size + added > limit:
            parts.append([])
            size = 0
        parts[-1].append(entry)
        size += added
    return parts


def shipped_size(entry: ShippedEntry) -> int:
    """Return the bytes of an entry, as ``WalEntry.size`` counts them."""
    size = entry_overhead_bytes(entry.key.region, entry.key.table)
    for row, cell in entry.cells:
        size += _CELL_OVERHEAD_BYTES + len(row) + len(cell[0]) + len(cell[2])
    return size


def without(jobs: Sequence[Job], keep: Callable[[ShippedEntry], ShippedEntry | None]) -> list[Job]:
    """Return the jobs with each entry replaced by ``keep``; entries of which nothing is kept are dropped."""
    left: list[Job] = []
    for job in jobs:
        requests = [[kept for entry in request if (kept := keep(entry)) is not None] for request in job]
        if requests := [request for request in requests if request]:
            left.append(requests)
    return left
