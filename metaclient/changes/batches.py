"""The iterator over changes as record batches of Arrow: one row of a batch per cell, without an object per cell.

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
from itertools import chain, compress, islice
from typing import TYPE_CHECKING, Any
from uuid import UUID

from metaclient.changes.change import Change, DeadLetter
from metaclient.changes.feed import ChangeFeed, undecodable_call
from metaclient.changes.ledger import Entry
from metaclient.changes.snapshot import TableSnapshot
from metaclient.protobuf import ProtocolError
from metaclient.wire.cell_arrays import libraries
from metaclient.wire.rpc.arrow import cells_to_arrow
from metaclient.wire.rpc.cellblock import skip_cells
from metaclient.wire.rpc.receiving import Delivery
from metaclient.wire.rpc.replication import KeyColumns, decode_key_columns

if TYPE_CHECKING:
    import pyarrow

__all__ = ["COLUMNS", "ChangeBatches"]

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
#: Calls that wait are joined to one batch of at most so many bytes.
_BATCH_BYTES = 8 << 20
#: Rows of a snapshot per batch.
_SNAPSHOT_ROWS = 1000


class ChangeBatches(ChangeFeed["pyarrow.RecordBatch"]):
    """The changes of a subscription as record batches; the next iteration, or :meth:`commit`, commits a batch."""

    _delivered: Sequence[Entry] = ()
    _delivered_rows: Sequence[Change] = ()
    _snapshot: TableSnapshot | None = None
    _broken: tuple[Delivery, ProtocolError] | None = None

    def commit(self) -> None:
        """Commit the batch that was returned last."""
        entries, self._delivered = self._delivered, ()
        rows, self._delivered_rows = self._delivered_rows, ()
        self._ledger.commit(entries)
        for change in rows:
            change.commit()

    def skip(self, reason: str = "skip() was called") -> None:
        """Give up the call that could not be decoded (:class:`UndecodableCall`), or else the last batch."""
        if self._broken is not None:
            (delivery, error), self._broken = self._broken, None
            self._drop(delivery, error)
        elif self._delivered or self._delivered_rows:
            self._give_up(DeadLetter(None, reason))
            self.commit()

    def _next(self, deadline: float | None) -> pyarrow.RecordBatch | None:
        if self._options.auto_commit:
            self.commit()
        if self._broken is not None:
            raise undecodable_call(self.name, *self._broken)
        if self._worker is None and not self.is_closed:
            batch = self._next_of_snapshot()
            if batch is not None:
                return batch
        while True:
            first = self._take(deadline)
            if first is None:
                return None
            batch = self._decode([first, *self._window.take_waiting(_BATCH_BYTES - first.size)])
            if batch is not None:
                return batch
            if self._broken is not None:
                raise undecodable_call(self.name, *self._broken)

    def _next_of_snapshot(self) -> pyarrow.RecordBatch | None:
        if self._snapshot is None:
            self._snapshot = self._subscription.open_snapshot()
        rows = list(islice(self._snapshot, _SNAPSHOT_ROWS))
        if rows:
            self._delivered_rows = rows
            self._counts["delivered"] += len(rows)
            return _batch_of_rows(rows)
        self._snapshot.finish(self._subscription.finish_snapshot)
        self._join()
        return None

    def _decode(self, deliveries: Sequence[Delivery]) -> pyarrow.RecordBatch | None:
        """Return the new changes of calls; None if they have none."""
        good = [(delivery, keys) for delivery in deliveries if (keys := self._decoded_keys(delivery)) is not None]
        if not good:
            return None
        try:  # of all calls at once: a batch of Arrow has a cost of its own
            cells = cells_to_arrow(b"".join([delivery.cells for delivery, _ in good]))
        except ProtocolError as error:
            if len(good) > 1:
                self._window.put_back([delivery for delivery, _ in good[1:]])
                return self._decode([good[0][0]])
            self._refuse(good[0][0], error)
            return None
        groups: list[Entry] = []
        flags: list[bool] = []
        for delivery, keys in good:
            group, of_call = self._ledger.open_group(delivery, keys)
            flags += of_call
            if group is not None:
                groups.append(group)
        if not groups:
            return None
        self._delivered = groups
        self._counts["delivered"] += sum(flags)
        columns: Any = zip(*[keys for _, keys in good], strict=True)
        together = KeyColumns(*[list(chain.from_iterable(of_calls)) for of_calls in columns])
        return _batch(together, cells, None if all(flags) else flags)

    def _decoded_keys(self, delivery: Delivery) -> KeyColumns | None:
        """Return the keys of a call whose cells are as many as they count; None if the call is refused."""
        if self._broken is not None:
            self._window.put_back([delivery])
            return None
        try:
            keys = decode_key_columns(delivery.param)
            end = len(delivery.cells)
            if skip_cells(delivery.cells, 0, end, sum(keys.counts)) != end:
                raise ProtocolError("the cell block has more cells than its log entries")
        except ProtocolError as error:
            self._refuse(delivery, error)
            return None
        return keys

    def _refuse(self, delivery: Delivery, error: ProtocolError) -> None:
        """Give up a call whose bytes are no log entries; without a dead-letter callback, the consumer decides."""
        if self._options.dead_letter is not None:
            self._drop(delivery, error)
        else:
            self._broken = delivery, error

    def _drop(self, delivery: Delivery, error: ProtocolError) -> None:
        """Give up a call whose bytes are no log entries."""
        self._give_up(DeadLetter(None, f"the call cannot be decoded: {error}", delivery.param, delivery.cells))
        self._answer(delivery)


def _batch(keys: KeyColumns, cells: pyarrow.RecordBatch, flags: Sequence[bool] | None) -> pyarrow.RecordBatch:
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


def _batch_of_rows(changes: Sequence[Change]) -> pyarrow.RecordBatch:
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
    return _batch(keys, cells, None)
