"""One list of sink faults and the edits that are shipped meanwhile, for sources of the fake and of a real HBase."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from metaclient import Connection, Table
from metaclient.model import FamilyDescriptor, TableDescriptor
from tests.unit.replication.scripted_sink import Reaction, ScriptedSink

FAMILIES = (
    FamilyDescriptor(b"cf", replication_scope=1),
    FamilyDescriptor(b"local"),
    FamilyDescriptor(b"two", replication_scope=2),
)


def descriptor(table: bytes) -> TableDescriptor:
    return TableDescriptor(table, FAMILIES)


def _three_puts(table: Table) -> None:
    for number in range(3):
        table.put(b"%d" % number, {b"cf:q": b"v", b"local:q": b"v", b"two:q": b"v"}, timestamp=5)


def _batch(table: Table) -> None:
    with table.batch(timestamp=6) as batch:
        for number in range(3):
            batch.put(b"%d" % number, {b"cf:a": b"x", b"cf:b": b"y"})


def _delete_column(table: Table) -> None:
    table.delete(b"0", [b"cf:a"], timestamp=7)


def _delete_row(table: Table) -> None:
    table.delete(b"1", timestamp=8)


def _increment(table: Table) -> None:
    table.counter_inc(b"2", b"cf:n", 3)


def _put(table: Table) -> None:
    table.put(b"3", {b"cf:q": b"meanwhile"}, timestamp=9)


@dataclass(frozen=True, slots=True)
class Scene:
    """Edits, which are one batch of the source, and the reactions to the calls with them."""

    write: Callable[[Table], None]
    reactions: tuple[Reaction, ...]


SCENES = (
    Scene(_three_puts, (Reaction.REFUSE, Reaction.REFUSE_FOR_GOOD, Reaction.REFUSE_TABLE, Reaction.ANSWER)),
    Scene(_batch, (Reaction.HANG_UP, Reaction.HANG_UP, Reaction.ANSWER)),
    Scene(_delete_column, (Reaction.HANG, Reaction.HANG, Reaction.ANSWER)),
    Scene(_delete_row, (Reaction.ANSWER_LATE, Reaction.ANSWER)),
    Scene(_increment, (Reaction.ANSWER_SLOWLY,)),
    Scene(_put, (Reaction.ANSWER,)),
)
#: Rows of the entries of all scenes, each counted once: what HBase calls shipped operations.
ROWS_SHIPPED = 10
REACTIONS = tuple(scene.reactions for scene in SCENES)


def play(sink: ScriptedSink, source: Connection, table: bytes, *, peer: str, key: str, until: float) -> None:
    """Add the sink as a peer of the source's cluster, and play all scenes.

    The peer is enabled after the edits of the first scene, so that these are one batch. The edits of each later scene
    are written while the calls of the scene before it fail, so that they are a batch of their own, which waits.
    """
    rows = source.table(table)
    source.replication.add(peer, key, tables=[table], enabled=False)
    for number, scene in enumerate(SCENES):
        if number:
            sink.wait_for_scene(number - 1, until)
        scene.write(rows)
        if not number:
            source.replication.enable(peer)
    sink.wait_for_end(until)
    assert sink.unexpected == []


def rows_shipped(source: Connection, peer: str) -> int:
    """Return what the servers report to their master, in their ServerLoad."""
    loads = [load for status in source.replication.status() for load in status.sources if load.peer_id == peer]
    assert all(load.log_queue >= 1 for load in loads), "the current log is always in the queue"
    return sum(load.edits_shipped for load in loads)
