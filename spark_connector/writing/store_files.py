"""Writes rows of a DataFrame as store files, one region per task. Needs no Spark.

1. :class:`ShareEncoder` runs where the rows are. It turns each batch into cells, sorts them by row, and cuts them at
   the borders of the regions: a *share* is the sorted rows of one batch in one region, as bytes of Arrow.
2. Spark moves the shares of a region to one task: few large values, and no row of Spark per row of HBase.
3. :class:`RegionFiles` merges the shares and writes one file per family. Shares are sorted together up to
   ``RUN_BYTES``. More than that becomes several sorted runs on the local disk, which are merged while the files are
   written: memory does not grow with the region.

Shares are pages of puts (one row per row, one column per cell) if the DataFrame's columns allow it, otherwise cells.
Rows of one key in a page are turned into cells, of which equal ones are written once: the last one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from metaclient.backend import PutPage
from metaclient.hfile import (
    FileSettings,
    HFileWriter,
    StoragePath,
    cells_of_page,
    concatenated,
    find_row,
    merge_rows,
    row_order,
    sort_cells,
)
from metaclient.hfile.order import changes
from metaclient.model import CellType, Delete, Increment, Put
from metaclient.wire.cell_arrays import COLUMNS
from spark_connector.writing.mutations import pages_from_batch, rows_from_batch

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_connector.schema.catalog import Catalog
    from spark_connector.settings.options import Options

__all__ = ["RegionFiles", "ShareEncoder", "WrittenFile"]

#: Shares that a task keeps in memory; a region's files are written from several sorted runs if there are more.
RUN_BYTES = 64 * 1024 * 1024
#: Rows that are appended to a file at once.
SLICE_ROWS = 16 * 1024
_ROW, _STAMP = "row", "timestamp"


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file of one family, with its first and last row."""

    family: bytes
    path: StoragePath
    first_row: bytes
    last_row: bytes
    cells: int
    bytes: int


class ShareEncoder:
    """Turns batches of Spark into shares; ``starts`` are the first keys of the regions, sorted, the first is b""."""

    def __init__(
        self, catalog: Catalog, options: Options, timestamp: int, families: Sequence[bytes], starts: Sequence[bytes]
    ) -> None:
        self._catalog = catalog
        self._options = options
        self._timestamp = timestamp
        self._families = families
        self._starts = starts

    def shares(self, batch: pa.RecordBatch) -> Iterator[tuple[int, int, bytes]]:
        """Yield the number of a region, the number of rows (or cells) of the batch in it, and these rows as bytes."""
        made = self._sorted(batch)
        rows = made[_ROW]
        at = 0
        while at < made.num_rows:
            region = bisect_right(self._starts, rows[at].as_py()) - 1
            end = made.num_rows
            if region + 1 < len(self._starts):
                end = at + find_row(rows.slice(at), self._starts[region + 1])
            yield region, end - at, _to_bytes(made.slice(at, end - at))
            at = end

    def _sorted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        pages = pages_from_batch(batch, self._catalog, self._options, self._timestamp)
        if pages is None or len(pages) != 1:
            mutations = rows_from_batch(batch, self._catalog, self._options, self._timestamp)
            return sort_cells(_cells_of(mutations, self._families))
        (page,) = pages
        made = _batch_of(page)
        order = row_order(page.rows)
        if not len(order) or (order[1:] > order[:-1]).all():
            return made
        return made.take(pa.array(order))


def _batch_of(page: PutPage) -> pa.RecordBatch:
    """Return a page as a batch: the row, the timestamp, and one column per cell, named by its number."""
    import pyarrow as pa

    names = [_ROW, _STAMP, *(str(number) for number in range(len(page.columns)))]
    fields = [
        pa.field(name, array.type, metadata=None if at < 2 else {"column": page.columns[at - 2]})
        for at, (name, array) in enumerate(zip(names, (page.rows, page.timestamps, *page.values), strict=True))
    ]
    return pa.RecordBatch.from_arrays([page.rows, page.timestamps, *page.values], schema=pa.schema(fields))


def _page_of(batch: pa.RecordBatch) -> PutPage:
    columns = tuple(field.metadata[b"column"] for field in list(batch.schema)[2:])
    return PutPage(batch.column(0), batch.column(1), columns, tuple(batch.columns[2:]))


def _is_page(batch: pa.RecordBatch) -> bool:
    return "family" not in batch.schema.names


def _cells_of(mutations: Iterable[Put | Delete | Increment], families: Sequence[bytes]) -> pa.RecordBatch:
    """Return the cells of mutations, in their order; a Delete without cells is a marker in each family."""
    import pyarrow as pa

    found: list[tuple[bytes, bytes, bytes, int, int, bytes]] = []
    for mutation in mutations:
        assert not isinstance(mutation, Increment), "increments are refused on the driver"
        row = mutation.row
        for cell in mutation.cells:
            family, _, qualifier = cell.column.partition(b":")
            found.append((row, family, qualifier, cell.timestamp, int(cell.type), cell.value))
        if isinstance(mutation, Delete) and not mutation.cells:
            marker = int(CellType.DELETE_FAMILY)
            found += [(row, family, b"", mutation.timestamp, marker, b"") for family in families]
    binary = pa.large_binary()
    kinds = (binary, binary, binary, pa.int64(), pa.uint8(), binary)
    columns = zip(*found, strict=True) if found else [()] * len(kinds)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(COLUMNS))


# -- bytes ---------------------------------------------------------------------------------------------------------


def _to_bytes(batch: pa.RecordBatch) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _from_bytes(data: Any) -> pa.RecordBatch:
    import pyarrow as pa

    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()


# -- in the task of a region ---------------------------------------------------------------------------------------


class RegionFiles:
    """Collects the shares of one or several regions in a task, and writes the files of each region.

    At most about ``RUN_BYTES`` of them are in memory; the rest are sorted runs on the local disk. A context manager:
    the runs are deleted in the end.
    """

    def __init__(self, settings: Sequence[FileSettings], folder: StoragePath, name: str) -> None:
        self._settings = settings
        self._folder = folder
        self._name = name
        self._stack = ExitStack()
        self._local = Path(self._stack.enter_context(TemporaryDirectory(prefix="hbase-runs-")))
        self._regions: dict[int, _Runs] = {}
        self._pending_bytes = 0

    def __enter__(self) -> RegionFiles:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def add(self, region: int, share: Any) -> None:
        """Add a share, as Arrow's buffer or bytes."""
        runs = self._regions.get(region)
        if runs is None:
            runs = self._regions[region] = _Runs(self._local, f"{region}-")
        self._pending_bytes += runs.add(_from_bytes(share))
        while self._pending_bytes >= RUN_BYTES:
            largest = max(self._regions.values(), key=lambda one: one.pending_bytes)
            self._pending_bytes -= largest.spill()

    def write(self) -> Iterator[list[WrittenFile]]:
        """Write the files of each region, ``FAMILY/name-REGION`` in the folder, and yield them without empty ones."""
        for region in sorted(self._regions):
            yield self._write(self._regions.pop(region), f"{self._name}-{region}")

    def _write(self, runs: _Runs, name: str) -> list[WrittenFile]:
        with ExitStack() as stack:
            paths = [self._folder.child(one.family.decode(), name) for one in self._settings]
            sinks = [_LazySink(path, stack) for path in paths]
            writers = [HFileWriter(sink, one) for sink, one in zip(sinks, self._settings, strict=True)]
            for rows in runs.merged(stack):
                appendable = _appendable(rows)
                for writer, one in zip(writers, self._settings, strict=True):
                    _append(writer, appendable, one.family)
            written = [
                _closed(path, one.family, writer)
                for path, one, writer in zip(paths, self._settings, writers, strict=True)
            ]
        return [file for file in written if file is not None]


class _LazySink:
    """A file that is created by its first write, so that a family without cells leaves none."""

    def __init__(self, path: StoragePath, stack: ExitStack) -> None:
        self._path = path
        self._stack = stack
        self._sink: Any = None

    def write(self, data: bytes) -> None:
        if self._sink is None:
            self._sink = self._stack.enter_context(self._path.output())
        self._sink.write(data)


def _closed(path: StoragePath, family: bytes, writer: HFileWriter) -> WrittenFile | None:
    if writer.first_row is None or writer.last_row is None:
        return None
    writer.close()
    return WrittenFile(family, path, writer.first_row, writer.last_row, writer.cells, writer.size)


class _Runs:
    """Sorted runs of the rows of one region: one in memory, and others on the local disk."""

    def __init__(self, folder: Path, prefix: str) -> None:
        self._folder = folder
        self._prefix = prefix
        self._pending: list[pa.RecordBatch] = []
        self._spilled: list[Path] = []
        self.pending_bytes = 0

    def add(self, share: pa.RecordBatch) -> int:
        """Add sorted rows; return their bytes."""
        self._pending.append(share)
        self.pending_bytes += share.nbytes
        return int(share.nbytes)

    def spill(self) -> int:
        """Move the rows in memory to the local disk; return their bytes."""
        import pyarrow as pa

        freed = self.pending_bytes
        run = self._sorted()
        path = self._folder / f"{self._prefix}{len(self._spilled)}"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, run.schema) as writer:
            for part in _slices(run):
                writer.write_batch(part)
        self._spilled.append(path)
        return freed

    def merged(self, stack: ExitStack) -> Iterator[pa.RecordBatch]:
        """Yield all rows, sorted; rows of one key are in one batch. ``stack`` closes the files of the runs."""
        streams = [_read_run(path, stack) for path in self._spilled]
        if self._pending:
            streams.append(_slices(self._sorted()))
        yield from merge_rows(streams, lambda parts: _sorted_together([part for _, part in parts]))

    def _sorted(self) -> pa.RecordBatch:
        pending, self._pending, self.pending_bytes = self._pending, [], 0
        return _sorted_together(pending)


def _read_run(path: Path, stack: ExitStack) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    reader = pa.ipc.open_file(stack.enter_context(pa.OSFile(str(path), "rb")))
    for number in range(reader.num_record_batches):
        yield reader.get_batch(number)


def _slices(run: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for at in range(0, run.num_rows, SLICE_ROWS):
        yield run.slice(at, SLICE_ROWS)


def _sorted_together(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of sorted parts, sorted; rows of one key keep the order of the parts."""
    import pyarrow as pa

    if len(parts) == 1:
        return parts[0]
    if not all(_is_page(part) for part in parts):
        cells = [cells_of_page(_page_of(part)) if _is_page(part) else part for part in parts]
        return sort_cells(concatenated(cells))
    whole = concatenated(parts)
    return whole.take(pa.array(row_order(whole[_ROW])))


def _appendable(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return a page whose rows are distinct, or cells without repetitions; all rows of a key are in ``rows``."""
    import pyarrow as pa

    if _is_page(rows) and not changes(rows[_ROW]).all():
        rows = sort_cells(cells_of_page(_page_of(rows)))
    if _is_page(rows):
        return rows
    # Equal keys are adjacent, and the sort keeps their order: the last one counts, as the last put of a row does.
    is_new = changes(rows["row"]) | changes(rows["family"]) | changes(rows["qualifier"])
    is_new |= changes(rows["timestamp"]) | changes(rows["type"])
    is_last = is_new.copy()
    is_last[:-1], is_last[-1:] = is_new[1:], True
    return rows if is_last.all() else rows.filter(pa.array(is_last))


def _append(writer: HFileWriter, rows: pa.RecordBatch, family: bytes) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    if _is_page(rows):
        writer.append_page(_page_of(rows))
        return
    of_family = rows.filter(pc.equal(rows["family"], pa.scalar(family, pa.large_binary())))
    writer.append_cells(of_family)
