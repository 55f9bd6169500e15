"""The iterator over changes as record batches of Arrow (:mod:`~metaclient.changes.arrow`): one row per cell.

No object is made per cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from metaclient.changes.arrow import batch_of_entries, batch_of_rows, joined_keys
from metaclient.changes.change import Change, DeadLetter
from metaclient.changes.decoding import decode_call_keys
from metaclient.changes.feed import ChangeFeed, undecodable_call
from metaclient.changes.ledger import Entry
from metaclient.changes.snapshot import TableSnapshot
from metaclient.protobuf import ProtocolError
from metaclient.wire.rpc.arrow import cells_to_arrow
from metaclient.wire.rpc.key_arrays import decode_key_arrays
from metaclient.wire.rpc.receiving import Delivery
from metaclient.wire.rpc.replication import KeyColumns

if TYPE_CHECKING:
    import pyarrow

__all__ = ["ChangeBatches"]

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
            return batch_of_rows(rows)
        self._snapshot.finish(self._subscription.finish_snapshot)
        self._join()
        return None

    def _decode(self, deliveries: Sequence[Delivery]) -> pyarrow.RecordBatch | None:
        """Return the new changes of calls; None if they have none."""
        good: list[tuple[Delivery, KeyColumns]] = []
        for number, delivery in enumerate(deliveries, 1):
            keys = self._decoded_keys(delivery)
            if keys is not None:
                good.append((delivery, keys))
            elif self._broken is not None:
                self._window.put_back(deliveries[number:])
                break
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
        return batch_of_entries(joined_keys(keys for _, keys in good), cells, None if all(flags) else flags)

    def _decoded_keys(self, delivery: Delivery) -> KeyColumns | None:
        """Return the keys of a call whose cells are as many as they count; None if the call is refused."""
        try:
            return decode_call_keys(delivery.param, delivery.cells, decode_key_arrays)
        except ProtocolError as error:
            self._refuse(delivery, error)
            return None

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
