"""Reads some rows of a table, from regions that are spread over it, to guess its catalog (:mod:`..schema.sampling`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from metaclient import keys
from spark_connector.schema.sampling import Sample, sample_of

if TYPE_CHECKING:
    from metaclient import Connection

__all__ = ["sample_table"]

#: Rows of a sample, and the number of regions that they are read from.
ROWS_MAX = 1000
REGIONS_MAX = 5


def sample_table(connection: Connection, table: str) -> Sample:
    """Return the guessed catalog of a table; raise TableNotFound if there is none."""
    name = keys.table_name(keys.as_bytes(table, "table"))
    families = [family.name for family in connection.engine.describe(name).families]
    regions = connection.regions(name)
    chosen = [regions[len(regions) * number // REGIONS_MAX] for number in range(REGIONS_MAX)]
    starts = sorted({each.region.start_key for each in chosen})
    rows: list[tuple[bytes, dict[bytes, bytes]]] = []
    per_region = ROWS_MAX // len(starts)
    is_whole = len(starts) == len(regions)
    for start in starts:
        stop = next((each.region.end_key for each in regions if each.region.start_key == start), b"")
        found = list(_rows(connection, name, (start, stop), per_region + 1))
        is_whole = is_whole and len(found) <= per_region
        rows += found[:per_region]
    return sample_of(table, families, rows, is_whole=is_whole)


def _rows(
    connection: Connection, table: bytes, where: tuple[bytes, bytes], limit: int
) -> Iterator[tuple[bytes, dict[bytes, bytes]]]:
    start, stop = where
    yield from connection.table(table, use_prefix=False).scan(
        row_start=start or None, row_stop=stop or None, limit=limit
    )
