"""Decides what a run of several clusters has broken, from its records: contents, calls, logs.

================  ====================================================================================================
``equality``      after the heal the replicated data of all clusters are equal (reported at once, ``world.py``)
``durability``    an acknowledged mutation has its effect in every cluster that its origin reaches
``scopes``        cells of scope 0 are in no call, and in no log or table of another cluster
``loops``         an edit passes no cluster twice: by the cluster ids in calls and in the logs of the sinks
``repeats``       an entry is sent again only after a call without an answer, or when its position was not stored
``serial_order``  a serial peer gets the edits of a row in the order of the source, without gaps
================  ====================================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING

from metaclient.keys import printable
from metaclient_fake.replication.queues import wal_group
from metaclient_fake.simulation.clusters.contents import local_cells, replicated_cells, writers_of
from metaclient_fake.simulation.clusters.shipments import LoggedEdit, SentCall, StoredPosition
from metaclient_fake.simulation.clusters.writers import LOCAL_FAMILY, REPLICATED, TABLE, Mutation
from metaclient_fake.simulation.history import Status
from metaclient_fake.simulation.world import Violation

if TYPE_CHECKING:
    from metaclient_fake.simulation.clusters.world import ClustersWorld

__all__ = ["CLUSTERS_CHECKERS", "check_leaks", "out_of_order"]


# -- durability --------------------------------------------------------------------------------------------------------


def durability(world: ClustersWorld) -> Iterator[Violation]:
    """Yield a violation for each cell whose state no set of unknown mutations explains."""
    by_cell: dict[tuple[bytes, bytes], list[Mutation]] = {}
    for mutation in world.mutations:
        if mutation.operation.outcome is not Status.FAILED:
            for column in mutation.columns:
                by_cell.setdefault((mutation.row, column), []).append(mutation)
    for name, contents in world.contents.items():
        cells = replicated_cells(contents)
        for key in sorted({*by_cell, *cells}):
            if key[1] not in REPLICATED:
                continue
            known = [one for one in by_cell.get(key, ()) if name in world.spec.reached_from(one.origin)]
            seen = cells.get(key)
            why = _unexplained(known, None if seen is None else seen[1])
            if why:
                numbers = tuple(one.operation.number for one in known[-5:])
                text = f"{name}: {key[0].decode()} {key[1].decode()}: {why}"
                yield Violation("durability", text, world.runtime.now(), numbers)


def _unexplained(mutations: Sequence[Mutation], seen: int | None) -> str:
    """Return why a cell with this timestamp cannot be the outcome of mutations, each of which may be unknown."""
    sure = [one for one in mutations if one.operation.outcome is Status.OK]
    if seen is None:
        lost = max((one.timestamp for one in sure if not one.is_delete), default=0)
        if lost > max((one.timestamp for one in mutations if one.is_delete), default=0):
            return f"the acknowledged put @{lost} is not there"
        return ""
    if not any(one.timestamp == seen and not one.is_delete for one in mutations):
        return f"nobody put @{seen} for this cluster"
    newest = max((one.timestamp for one in sure), default=0)
    if newest <= seen:
        return ""
    deletes = [one.timestamp for one in sure if one.is_delete and one.timestamp > seen]
    if deletes:
        return f"the put @{seen} is there though the delete @{max(deletes)} was acknowledged"
    return f"the put @{seen} is there instead of the acknowledged put @{newest}"


# -- scopes ------------------------------------------------------------------------------------------------------------


def scopes(world: ClustersWorld) -> Iterator[Violation]:
    """Yield a violation for each cell of scope 0 that has left its cluster."""
    for event in world.shipments.events:
        if isinstance(event, SentCall):
            for entry in event.entries:
                if entry.key.table != TABLE.encode() or any(cell.family == LOCAL_FAMILY for _, cell in entry.cells):
                    text = f"{event.source} sent cells of scope 0 of {printable(entry.key.table)} to {event.target}"
                    yield Violation("scopes", text, event.at_s)
    for name in world.spec.clusters:
        for edit in world.shipments.logged(name):
            for row, cell in edit.entry.edits:
                origin = world.origins.get(cell.timestamp)
                if cell.family == LOCAL_FAMILY and origin not in (None, name):
                    text = f"{name} has logged a cell of scope 0 of {origin}: {printable(row)} @{cell.timestamp}"
                    yield Violation("scopes", text)
        for table, row, timestamp in local_cells(world.contents.get(name, {})):
            if world.origins.get(timestamp) not in (None, name):
                yield Violation("scopes", f"{name} has a cell of scope 0: {table} {printable(row)} @{timestamp}")


# -- loops -------------------------------------------------------------------------------------------------------------


def loops(world: ClustersWorld) -> Iterator[Violation]:
    """Yield a violation for each edit whose cluster ids are not its way from its origin, or that came back."""
    ids = {side.cluster.cluster_id: name for name, side in world.sides.items()}
    links = set(world.spec.links)
    for event in world.shipments.events:
        if isinstance(event, SentCall):
            for entry in event.entries:
                way = [ids.get(str(one), "?") for one in entry.key.cluster_ids]
                if not _is_way([*way, event.target], links) or way[-1:] != [event.source]:
                    text = f"{event.source} sent an edit to {event.target} with the cluster ids {way}"
                    yield Violation("loops", text, event.at_s)
    for name in world.spec.clusters:
        for edit in world.shipments.logged(name):
            way = [*(ids.get(str(one), "?") for one in edit.entry.cluster_ids), name]
            origins = {world.origins.get(cell.timestamp, name) for _, cell in edit.entry.edits}
            if origins != {way[0]} or not _is_way(way, links):
                text = f"an edit of {'/'.join(sorted(origins))} in a log of {name} went the way {way}"
                yield Violation("loops", f"{text}: {printable(edit.entry.edits[0][0])}")


def _is_way(names: Sequence[str], links: set[tuple[str, str]]) -> bool:
    """Return True if there is a link from each name to the next, and no name comes twice."""
    return len(set(names)) == len(names) and set(pairwise(names)) <= links


# -- repeats -----------------------------------------------------------------------------------------------------------


def repeats(world: ClustersWorld) -> Iterator[Violation]:
    """Yield a violation for each entry that was sent again although the source knew that the peer had it.

    A source never sends again what was acknowledged to it; only a serial source sends the calls of a region again from
    the first when one of them has failed. Another source sends an entry only while the stored position
    is before it, with two exceptions: with behaviour "2.6" a source that is made anew for its server's own logs begins
    at the start of the first, and a server that does not know yet that it was declared dead goes on.
    """
    places = {
        (edit.cluster, edit.entry.region, edit.entry.sequence_id): edit
        for name in world.spec.clusters
        for edit in world.shipments.logged(name)
    }
    begins_anew = world.spec.settings["peer_replication_behaviour"] == "2.6"
    stored: dict[tuple[str, str, str], int] = {}
    acknowledged: dict[tuple[int, str, int], int] = {}  # entry of a source -> number of the event
    failed: dict[tuple[int, str], int] = {}  # region of a serial source -> number of the event
    for number, event in enumerate(world.shipments.events):
        if isinstance(event, StoredPosition):
            stored[event.source, event.target, event.wal] = event.position
            continue
        for entry in event.entries:
            key = (event.connection, entry.key.region, entry.key.sequence_id)
            edit = places.get((event.source, entry.key.region, entry.key.sequence_id))
            if edit is None:
                yield Violation("repeats", f"{event.source} sent an entry that is in none of its logs", event.at_s)
                continue
            last_failed = failed.get(key[:2], -1) if world.spec.is_serial else -1
            if acknowledged.get(key, -1) > last_failed:
                yield Violation("repeats", f"a source sent {_shown(edit)} again after its answer", event.at_s)
            if event.is_acknowledged:
                acknowledged[key] = number
            else:
                failed[key[:2]] = number
            is_own = wal_group(edit.wal) == str(event.server).replace(",", "%2C")
            if not event.is_live or (begins_anew and is_own):
                continue
            if stored.get((event.source, event.target, edit.wal), 0) >= edit.end:
                text = f"{event.server} of {event.source} sent {_shown(edit)} though its position was stored"
                yield Violation("repeats", text, event.at_s)


def _shown(edit: LoggedEdit) -> str:
    return f"entry {edit.entry.sequence_id} of {edit.entry.region} in {edit.wal}"


# -- serial order ------------------------------------------------------------------------------------------------------


def serial_order(world: ClustersWorld) -> Iterator[Violation]:
    """Yield a violation for each row that a serial peer showed in a state that the source never had."""
    if not world.spec.is_serial:
        return
    for source, target in world.spec.links:
        arrived, written = _history(world, target, source), _history(world, source, source)
        for row, timestamps in sorted(arrived.items()):
            if wrong := out_of_order(written.get(row, ()), timestamps):
                yield Violation("serial_order", f"{target}: {printable(row)} of {source}: {wrong}")


def _history(world: ClustersWorld, cluster: str, writer: str) -> Mapping[bytes, list[int]]:
    """Return the timestamps of the replicated edits of each row, in the order in which the cluster logged them.

    Only rows that have one writing cluster are looked at.

    The sequence ids of a row rise over moves, crashes, splits and merges, and each mutation of a row has a timestamp of
    its own.
    """
    found: dict[bytes, list[tuple[int, int]]] = {}
    for edit in world.shipments.logged(cluster):
        if edit.entry.table == TABLE.encode():
            for row, cell in edit.entry.edits:
                if cell.family != LOCAL_FAMILY and writers_of(world.spec, row) == (writer,):
                    found.setdefault(row, []).append((edit.entry.sequence_id, cell.timestamp))
    for edits in found.values():
        edits.sort(key=itemgetter(0))  # the cells of one entry keep their order
    return {row: list(dict.fromkeys(timestamp for _, timestamp in edits)) for row, edits in found.items()}


def out_of_order(written: Sequence[int], arrived: Sequence[int]) -> str:
    """Return what is wrong with the order of first arrivals; they must be the beginning of what was written.

    >>> out_of_order([5, 7, 6], [5, 7]), out_of_order([5, 7, 6], [5, 6, 7])
    ('', '@6 arrived when @7 was next')
    """
    for expected, seen in zip(written, arrived, strict=False):
        if expected != seen:
            return f"@{seen} arrived when @{expected} was next"
    extra = arrived[len(written) :]
    return f"@{extra[0]} arrived and was never written" if extra else ""


# -- the end -----------------------------------------------------------------------------------------------------------


def check_leaks(world: ClustersWorld) -> Iterator[Violation]:
    """Yield what is left when all connections are closed; clusters run on, with their daemons."""
    for name, side in world.sides.items():
        for host, server in side.cluster.servers_by_host.items():
            for pool in (server.handlers, server.meta_handlers, server.admin_handlers, server.replication_handlers):
                if pool.busy:
                    yield Violation("leaks", f"{name}/{host} has {pool.busy} busy handlers though no call is in flight")
    tasks = world.runtime.unfinished()
    if tasks:
        yield Violation("leaks", f"{len(tasks)} tasks are left: {', '.join(sorted(tasks)[:5])}")
    for holder in world.runtime.holders():
        yield Violation("leaks", f"a lock is held by {holder}, which has ended")


#: Run after the heal. ``equality``, ``convergence``, ``deadlines`` and ``crash`` report at once.
CLUSTERS_CHECKERS: Mapping[str, Callable[[ClustersWorld], Iterator[Violation]]] = {
    "durability": durability,
    "scopes": scopes,
    "loops": loops,
    "repeats": repeats,
    "serial_order": serial_order,
}
