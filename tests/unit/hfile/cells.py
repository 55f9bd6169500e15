"""Random cells, store files in memory, and plain Python versions of what the package computes with numpy."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import strategies as st

from metaclient.backend import PutPage
from metaclient.hfile import FileSettings, HFile, HFileWriter
from metaclient.model import CellType
from metaclient.wire.cell_arrays import COLUMNS

KINDS = [int(kind) for kind in CellType]
PUT = int(CellType.PUT)


class StoredCell(NamedTuple):
    """A cell with its sequence id."""

    row: bytes
    family: bytes
    qualifier: bytes
    timestamp: int
    type: int
    value: bytes
    sequence: int = 0

    def key(self) -> tuple[Any, ...]:
        """Return the key by which HBase sorts cells."""
        return self.row, self.family, self.qualifier, -self.timestamp, -self.type, -self.sequence


def batch_of(cells: Sequence[StoredCell], *, with_sequence: bool = False) -> pa.RecordBatch:
    binary = pa.binary() if with_sequence else pa.large_binary()
    kinds = [binary, binary, binary, pa.int64(), pa.uint8(), binary, pa.int64()]
    names = [*COLUMNS, "sequence"]
    arrays = [pa.array([cell[at] for cell in cells], kind) for at, kind in enumerate(kinds)]
    made = pa.RecordBatch.from_arrays(arrays, names=names)
    return made if with_sequence else made.select(list(COLUMNS))


def cells_from(batches: Iterable[pa.RecordBatch]) -> list[StoredCell]:
    found: list[StoredCell] = []
    for batch in batches:
        found += [StoredCell(*line) for line in zip(*(batch[name].to_pylist() for name in COLUMNS), strict=True)]
    return found


def written(batches: Iterable[pa.RecordBatch | PutPage], settings: FileSettings) -> bytes:
    sink = io.BytesIO()
    writer = HFileWriter(sink, settings)
    for batch in batches:
        if isinstance(batch, PutPage):
            writer.append_page(batch)
        else:
            writer.append_cells(batch)
    writer.close()
    return sink.getvalue()


def opened(data: bytes) -> HFile:
    return HFile(pa.BufferReader(data), "file x")


def page_of(rows: Sequence[bytes], columns: dict[bytes, Sequence[bytes | None]], stamp: int = 7) -> PutPage:
    binary = pa.large_binary()
    values = tuple(pa.array(column, binary) for column in columns.values())
    return PutPage(pa.array(rows, binary), pa.array([stamp] * len(rows), pa.int64()), tuple(columns), values)


ROWS = st.binary(min_size=1, max_size=5)
VALUES = st.one_of(st.binary(max_size=6), st.just(b"v" * 40))


def stored_cells(families: Sequence[bytes] = (b"d",), *, sequences: bool = False) -> st.SearchStrategy[StoredCell]:
    return st.builds(
        StoredCell,
        ROWS,
        st.sampled_from(families),
        st.sampled_from([b"", b"a", b"b", b"ab"]),
        st.integers(0, 4),
        st.sampled_from([PUT, PUT, PUT, *KINDS]),
        VALUES,
        st.integers(0, 3) if sequences else st.just(0),
    )
