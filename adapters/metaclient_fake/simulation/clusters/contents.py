"""Reads the data of a cluster as a client sees them, and compares clusters that must be equal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from metaclient.connection import Connection
from metaclient_fake.simulation.clusters.writers import LOCAL_FAMILY, REPLICATED, TABLE, UNREPLICATED_TABLE

if TYPE_CHECKING:
    from metaclient_fake.simulation.clusters.spec import ClustersSpec
    from metaclient_fake.simulation.clusters.world import ClustersWorld

__all__ = ["Contents", "contents_of", "differences", "local_cells", "replicated_cells"]

#: Table -> row -> column -> (value, timestamp).
Contents: TypeAlias = Mapping[str, Mapping[bytes, Mapping[bytes, tuple[bytes, int]]]]


def contents_of(connection: Connection) -> Contents:
    """Return the newest version of every cell."""
    return {
        table: {row: dict(data) for row, data in connection.table(table).scan(include_timestamp=True)}
        for table in (TABLE, UNREPLICATED_TABLE)
    }


def replicated_cells(contents: Contents) -> dict[tuple[bytes, bytes], tuple[bytes, int]]:
    """Return (row, column) -> (value, timestamp) of the families of scope 1."""
    rows = contents[TABLE].items()
    return {(row, column): cell for row, data in rows for column, cell in data.items() if column in REPLICATED}


def local_cells(contents: Contents) -> Iterator[tuple[str, bytes, int]]:
    """Yield table, row and timestamp of the cells of scope 0."""
    for table, rows in contents.items():
        for row, data in rows.items():
            for column, (_, timestamp) in data.items():
                if column.startswith(LOCAL_FAMILY + b":"):
                    yield table, row, timestamp


def differences(world: ClustersWorld) -> list[str]:
    """Return the replicated cells that differ between clusters which get the edits of all writers of their row."""
    spec = world.spec
    cells = {name: replicated_cells(contents) for name, contents in world.contents.items()}
    found: list[str] = []
    for row, column in sorted({key for one in cells.values() for key in one}):
        names = _holders(spec, row)
        seen = {name: cells[name].get((row, column)) for name in names}
        if len(set(seen.values())) > 1:
            shown = ", ".join(f"{name} has {cell[1] if cell else 'nothing'}" for name, cell in seen.items())
            found.append(f"{row.decode()} {column.decode()}: {shown}")
    return found


def _holders(spec: ClustersSpec, row: bytes) -> list[str]:
    """Return the clusters that get the edits of all writers of a row."""
    writers = writers_of(spec, row)
    return [name for name in spec.clusters if all(name in spec.reached_from(writer) for writer in writers)]


def writers_of(spec: ClustersSpec, row: bytes) -> tuple[str, ...]:
    """Return the clusters whose clients write a row: ``3-x`` is shared, ``3-east1`` belongs to east."""
    owner = row.partition(b"-")[2].rstrip(b"0123456789").decode()
    return spec.sharing if owner == "x" else (owner,)
