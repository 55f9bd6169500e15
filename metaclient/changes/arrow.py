"""Changes as record batches of Arrow: one row of a batch per cell, without an object per cell.

======================  ===================================================================================
``table``               dictionary of binary
``row``                 binary
``family``              binary
``qualifier``           binary
``timestamp``           int64, milliseconds
``type``                uint8, the codes of :class:`~metaclient.model.CellType`: 4 is a put
``value``               binary
``region``              dictionary of string: the encoded name
``sequence``            int64; 0 for rows of a snapshot
``write_time``          int64, milliseconds
``cluster_ids``         dictionary of string: ids joined by ","
======================  ===================================================================================

The cells of one change are adjacent, and have the same table, row, region and sequence. Tags are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, compress
from typing import TYPE_CHECKING, Any
from uuid import UUID

from metaclient.changes.change import Change
from metaclient.changes.spool import SpooledCall
from metaclient.wire.cell_arrays import libraries
from metaclient.wire.rpc.arrow import cells_to_arrow
from metaclient.wire.rpc.key_arrays import decode_key_arrays
from metaclient.wire.rpc.replication import KeyColumns

if TYPE_CHECKING:
    import pyarrow

__all__ = ["COLUMNS", "batch_of_calls", "batch_of_entries", "batch_of_rows", "joined_keys"]

#: The names of the columns, in order.
COLUMNS = (
    "table",
    "row",
    "family",
    "qualifier",
    "timestamp",
    "type",
    "value",
    "region",
    "sequence",
    "write_time",
    "cluster_ids",
)


def joined_keys(keys: Iterable[KeyColumns]) -> KeyColumns:
    """Return the keys of several calls as those of one."""
    columns: Any = zip(*keys, strict=True)
    return KeyColumns(*[list(chain.from_iterable(of_calls)) for of_calls in columns])


def batch_of_calls(calls: Sequence[SpooledCall]) -> pyarrow.RecordBatch:
    """Return the new entries of calls of a spool as one batch; ProtocolError for bytes that are no log entries."""
    keys = [decode_key_arrays(call.param) for call in calls]
    flags: list[bool] = []
    for call, of_call in zip(calls, keys, strict=True):
        flags += [True] * len(of_call.counts) if call.flags is None else call.flags
    cells = cells_to_arrow(b"".join([call.cells for call in calls]))
    return batch_of_entries(joined_keys(keys), cells, None if all(flags) else flags)


def batch_of_entries(keys: KeyColumns, cells: pyarrow.RecordBatch, flags: Sequence[bool] | None) -> pyarrow.RecordBatch:
    """Return one batch for entries and their cells, without the entries whose flag is False."""
    np, arrow = libraries()
    counts = np.array(keys.counts)
    if flags is not None:
        cells = cells.filter(arrow.array(np.repeat(np.array(flags), counts)))
        columns: Any = keys
        keys = KeyColumns(*[list(compress(column, flags)) for column in columns])
        counts = counts[np.array(flags)]
    binary, text = arrow.binary(), arrow.string()

    def repeated(values: Sequence[int]) -> Any:
        return arrow.array(np.repeat(np.array(values, dtype=np.int64), counts))

    regions, tables = zip(*keys.names, strict=True)
    by_name = {
        "table": _dictionary(tables, counts, binary),
        **{name: cells.column(name) for name in cells.schema.names},
        "region": _dictionary(regions, counts, text),
        "sequence": repeated(keys.sequence_ids),
        "write_time": repeated(keys.write_times_ms),
        "cluster_ids": _dictionary([rest[1] for rest in keys.rests], counts, text, _joined),
    }
    return arrow.RecordBatch.from_arrays([by_name[name] for name in COLUMNS], names=list(COLUMNS))


def _joined(cluster_ids: Sequence[UUID]) -> str:
    return ",".join(map(str, cluster_ids))


def _dictionary(
    values: Sequence[Any], counts: Any, type_: Any, shown: Callable[[Any], object] | None = None
) -> pyarrow.DictionaryArray:
    np, arrow = libraries()
    if values.count(values[0]) == len(values):
        known: dict[Any, int] = {values[0]: 0}
    else:
        known = {value: number for number, value in enumerate(dict.fromkeys(values))}
    if len(known) == 1:
        indices = np.zeros(int(counts.sum()), dtype=np.int32)
    else:
        indices = np.repeat(np.array([known[value] for value in values], dtype=np.int32), counts)
    names: Iterable[Any] = known if shown is None else map(shown, known)
    return arrow.DictionaryArray.from_arrays(arrow.array(indices), arrow.array(list(names), type_))


def batch_of_rows(changes: Sequence[Change]) -> pyarrow.RecordBatch:
    """Return the rows of a snapshot as a batch."""
    _, arrow = libraries()
    keys = KeyColumns(
        [(one.region, one.table) for one in changes],
        [0] * len(changes),
        [one.write_time for one in changes],
        [((), (), None)] * len(changes),
        [len(one.cells) for one in changes],
    )
    pairs = [(one.row, cell) for one in changes for cell in one.cells]
    columns = [
        arrow.array([row for row, _ in pairs], arrow.binary()),
        arrow.array([cell.family for _, cell in pairs], arrow.binary()),
        arrow.array([cell.qualifier for _, cell in pairs], arrow.binary()),
        arrow.array([cell.timestamp for _, cell in pairs], arrow.int64()),
        arrow.array([int(cell.type) for _, cell in pairs], arrow.uint8()),
        arrow.array([cell.value for _, cell in pairs], arrow.binary()),
    ]
    cells = arrow.RecordBatch.from_arrays(columns, names=["row", "family", "qualifier", "timestamp", "type", "value"])
    return batch_of_entries(keys, cells, None)
