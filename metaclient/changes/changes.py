"""The iterator over changes that users hold: decodes calls into changes, one row each."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from metaclient.changes.change import Change, DeadLetter
from metaclient.changes.decoding import decode_rows
from metaclient.changes.feed import ChangeFeed, UndecodableCall, undecodable_call
from metaclient.changes.ledger import Entry
from metaclient.changes.snapshot import TableSnapshot
from metaclient.protobuf import ProtocolError
from metaclient.wire.rpc.cellblock import skip_cells
from metaclient.wire.rpc.receiving import Delivery
from metaclient.wire.rpc.replication import decode_keys

__all__ = ["Changes"]


class Changes(ChangeFeed[Change]):
    """The changes of a subscription, in the order in which region servers send them. See ``connection.changes``.

    >>> import metaclient
    >>> with metaclient.connect("fake:?servers=1") as connection:
    ...     connection.create_table("users", {"d": {"replication_scope": 1}})
    ...     with connection.changes("users", name="example") as changes:
    ...         connection.table("users").put(b"ann", {b"d:mail": b"ann@example.org"})
    ...         change = next(changes)
    ...         change.row, change.cells[0].value
    (b'ann', b'ann@example.org')
    """

    _last: Change | None = None
    _broken: tuple[Delivery, list[Entry], ProtocolError] | None = None
    _snapshot: TableSnapshot | None = None
    _current: Iterator[Change] = iter(())

    # -- committing ----------------------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Commit the change that was returned last. (With ``auto_commit``, the next iteration does the same.)"""
        if self._last is not None:
            self._last.commit()

    def skip(self, reason: str = "skip() was called") -> None:
        """Give up the change that was returned last: pass it to the dead-letter callback, then commit it.

        After an :class:`UndecodableCall`, give up the rest of that call.
        """
        if self._broken is not None:
            self._skip_broken()
        elif self._last is not None and not self._last.is_committed:
            self._give_up(DeadLetter(self._last, reason))
            self._last.commit()

    def run(self, function: Callable[[Change], object]) -> None:
        """Call a function for each change, until the feed is closed. A change for which it raises is given up.

        Without a dead-letter callback the exception is raised here, and the change is not committed.
        """
        for change in self:
            try:
                function(change)
            except Exception as error:
                if self._options.dead_letter is None:
                    raise
                self.skip(f"{type(error).__name__}: {error}")

    # -- iterating -----------------------------------------------------------------------------------------------------

    def _next(self, deadline: float | None) -> Change | None:
        if self._options.auto_commit and self._last is not None:
            self._last.commit()
        if self._broken is not None:
            raise self._undecodable()
        if self._worker is None and not self.is_closed:
            found = self._next_of_snapshot()
            if found is not None:
                return found
        while True:
            change = next(self._current, None)
            if change is not None:
                self._last = change
                self._counts["delivered"] += 1
                return change
            delivery = self._take(deadline)
            if delivery is None:
                return None
            self._current = self._decode(delivery)

    def _next_of_snapshot(self) -> Change | None:
        """Return the next row of the snapshot; after the last one, join the subscription and return None."""
        if self._snapshot is None:
            self._snapshot = self._subscription.open_snapshot()
        change = next(self._snapshot, None)
        if change is None:
            self._snapshot.finish(self._subscription.finish_snapshot)
            self._join()
            self._last = None
            return None
        self._last = change
        self._counts["delivered"] += 1
        return change

    def _decode(self, delivery: Delivery) -> Iterator[Change]:
        """Yield the new changes of a call."""
        block, end, at = delivery.cells, len(delivery.cells), 0
        entries: list[Entry | None] = []
        position = 0
        try:
            keys = decode_keys(delivery.param)
            if skip_cells(block, 0, end, sum([count for _, count in keys])) != end:
                raise ProtocolError("the cell block has more cells than its log entries")
            entries = self._ledger.open(delivery, keys)
            for (key, count), entry in zip(keys, entries, strict=True):
                if entry is None:
                    at = skip_cells(block, at, end, count)
                    position += 1
                    continue
                rows, at = decode_rows(block, at, end, count)
                position += 1
                entry.rows = len(rows)
                commit = entry.commit_row
                region, table, sequence, write_time, _, cluster_ids, _ = key
                for row, cells in rows:
                    yield Change(
                        table, row, cells, region, sequence, write_time, cluster_ids=cluster_ids, commit=commit
                    )
        except ProtocolError as error:
            rest = [entry for entry in entries[position:] if entry is not None]
            self._broken = delivery, rest, error
            if self._options.dead_letter is None:
                raise self._undecodable() from error
            self._skip_broken()

    # -- bytes that are no changes -------------------------------------------------------------------------------------

    def _undecodable(self) -> UndecodableCall:
        assert self._broken is not None
        return undecodable_call(self.name, self._broken[0], self._broken[2])

    def _skip_broken(self) -> None:
        assert self._broken is not None
        (delivery, rest, error), self._broken = self._broken, None
        self._give_up(DeadLetter(None, f"the call cannot be decoded: {error}", delivery.param, delivery.cells))
        if rest:
            self._ledger.commit(rest)
        elif not delivery.is_answered:
            self._answer(delivery)
