"""Finds subscriptions that stand still, and regions of serial ones that HBase will never ship again.

A serial peer gets an edit of a region only when everything before the region's last opening was pushed: the stored
*pushed id* must reach the opening's *barrier* (``rep_barrier`` in hbase:meta) minus one. After the crash of a server,
ids that belonged to markers without a log entry are given again, and no one will ever push the missing ones (a wider
case of HBASE-29499): the queue stands still, and every later edit of the region waits for ever.

The repair stores the missing id by hand. It is right only when the queue stands still: done earlier, it lets later
edits pass the earlier ones. Therefore the positions of all queues of the peer are compared over ``wait_s``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from metaclient import keys
from metaclient.changes.pushed_ids import PushedIds
from metaclient.changes.subscription import (
    SubscriptionInfo,
    Subscriptions,
    change_host,
    host_deadline,
    sources_of,
)
from metaclient.model import META_TABLE, Consistency, Scan
from metaclient.replication_peers import SourceLoad

if TYPE_CHECKING:
    from metaclient.connection import Connection

__all__ = ["Finding", "SubscriptionStatus", "examine", "repair", "status_of"]

#: Longer than hbase.serial.replication.waiting.ms (10 s), after which a blocked source asks again.
WAIT_S = 30.0
#: A queue with an edit that is older than this is late.
LATE_S = 60.0
_BARRIER = b"rep_barrier:seqnumDuringOpen"
_VERSIONS_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionStatus:
    """A subscription, its workers, and its queues on the region servers."""

    info: SubscriptionInfo
    workers: tuple[str, ...]
    sources: tuple[SourceLoad, ...]

    @property
    def log_queue(self) -> int:
        """The number of log files that the cluster keeps for the subscription; one per server is usual."""
        return sum(source.log_queue for source in self.sources)

    @property
    def lag_ms(self) -> int:
        return max((source.lag_ms for source in self.sources), default=0)

    @property
    def is_forgotten(self) -> bool:
        """True if no worker takes the changes: the logs of the cluster pile up until its disk is full."""
        return not self.workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is wrong with a subscription; ``pushed_id`` is what :func:`repair` stores for ``region``."""

    name: str
    text: str
    region: str = ""
    pushed_id: int | None = None


def status_of(connection: Connection, info: SubscriptionInfo) -> SubscriptionStatus:
    """Return the state of a subscription, as of the last reports of the servers."""
    workers = change_host(connection).workers(info.peer_id, host_deadline(connection.engine))
    sources = tuple(sources_of(connection, info.peer_id))
    return SubscriptionStatus(info=info, workers=tuple(workers), sources=sources)


def examine(connection: Connection, name: str | None = None, *, wait_s: float = WAIT_S) -> list[Finding]:
    """Return what is wrong with one subscription, or with all of them. Waits if a serial one may be stuck."""
    subscriptions = Subscriptions(connection)
    infos = [subscriptions.get(name)] if name is not None else subscriptions.list()
    found: list[Finding] = []
    for info in infos:
        status = status_of(connection, info)
        found += _simple_findings(status)
        if info.serial and not status.is_forgotten:
            found += _stuck_regions(connection, info, wait_s)
    return found


def repair(connection: Connection, finding: Finding) -> None:
    """Store the id that a stuck region waits for. Its source goes on within seconds."""
    if finding.pushed_id is None:
        raise ValueError(f"there is no repair for this: {finding.text}")
    info = Subscriptions(connection).get(finding.name)
    PushedIds(connection, info.peer_id).set(finding.region, finding.pushed_id)


def _simple_findings(status: SubscriptionStatus) -> Iterator[Finding]:
    info = status.info
    if not info.is_enabled:
        yield Finding(name=info.name, text=f"its peer {info.peer_id!r} is disabled: nothing is delivered")
    if status.is_forgotten:
        yield Finding(
            name=info.name,
            text=f"it has no workers, and the cluster keeps {status.log_queue} logs for it, more and more until its "
            f"disk is full: start a worker, or `metaclient changes remove {info.name}`",
        )
    elif status.lag_ms >= LATE_S * 1000:
        late = sorted({str(one.server) for one in status.sources if one.lag_ms >= LATE_S * 1000})
        yield Finding(
            name=info.name,
            text=f"{', '.join(late)} are {status.lag_ms / 1000:.0f} s behind: its workers "
            f"({', '.join(status.workers)}) are slow, or these servers do not reach them",
        )


def _stuck_regions(connection: Connection, info: SubscriptionInfo, wait_s: float) -> list[Finding]:
    """Return the regions of a serial subscription whose next edit waits for an id that never comes."""
    candidates = _waiting_regions(connection, info)
    if not candidates:
        return []
    pushed_ids = PushedIds(connection, info.peer_id)
    before = pushed_ids.positions()
    connection.engine.runtime.sleep(wait_s)
    after = pushed_ids.positions()
    if before != after:
        return []  # the queues move: the missing edits are on their way
    still = _waiting_regions(connection, info)
    return [
        Finding(
            name=info.name,
            text=f"region {region} has pushed its edits up to {pushed}, and its next ones wait for {needed}, which was "
            f"given to a marker and never comes (HBASE-29499); its queues have not moved for {wait_s:g} s",
            region=region,
            pushed_id=needed,
        )
        for region, (pushed, needed) in sorted(still.items())
        if candidates.get(region) == (pushed, needed)
    ]


def _waiting_regions(connection: Connection, info: SubscriptionInfo) -> Mapping[str, tuple[int, int]]:
    """Return the regions that have not pushed all edits before a barrier: the pushed id, and the one that is needed."""
    pushed_ids = PushedIds(connection, info.peer_id)
    found: dict[str, tuple[int, int]] = {}
    for region, barriers in _barriers(connection, info.tables):
        pushed = pushed_ids.get(region)
        later = [barrier for barrier in barriers if pushed is not None and barrier > pushed + 1]
        if pushed is not None and later:
            found[region] = pushed, min(later) - 1
    return found


def _barriers(connection: Connection, tables: tuple[bytes, ...]) -> Iterator[tuple[str, list[int]]]:
    """Yield the barriers of each region of the tables, by encoded name."""
    scan = Scan(columns=(_BARRIER,), max_versions=_VERSIONS_MAX)
    for result, _ in connection.engine.scan_rows(META_TABLE, scan, Consistency.STRONG):
        table = result.row.partition(b",")[0]
        if table in tables:
            numbers = sorted(int.from_bytes(cell.value, "big", signed=True) for cell in result.cells)
            yield keys.encoded_region_name(result.row), numbers
