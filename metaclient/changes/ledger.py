"""Decides which log entries of a call are new, and when a call is answered: when all of its entries are committed.

An entry is in one of three states:

1. *new*: it is delivered, and the call waits for its commit;
2. *delivered* by an earlier call and not committed: the call waits for the same commit, and nothing is delivered;
3. *committed* (:class:`~metaclient.changes.repeats.Repeats`), or not meant for the consumer: the call does not wait.

Entries that are not meant for the consumer are those of other tables, those that were written before the subscription
(a new peer gets the whole current log of each server), and markers: HBase's ``ReplicationMarkerChore`` writes entries
of the family METAFAMILY, whose numbers are not those of the region.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from metaclient.changes.repeats import Repeats
from metaclient.runtime import Runtime
from metaclient.wire.rpc.receiving import Delivery
from metaclient.wire.rpc.replication import KeyColumns, WalKey

__all__ = ["Entry", "Ledger"]

#: WALEdit.METAFAMILY
_MARKERS = b"METAFAMILY"


class _OpenCall:
    """A call, and the number of its entries that are not committed."""

    __slots__ = ("delivery", "left")

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery
        self.left = 0


class Entry:
    """Log entries that are delivered and not committed: one of them, or all new ones of a call (a *group*).

    ``rows`` is the number of rows that are not committed, and ``calls`` are the calls that wait for the last of them.
    """

    __slots__ = ("_ledger", "calls", "numbers", "rows")

    def __init__(self, ledger: Ledger, numbers: dict[str, list[int]], call: _OpenCall) -> None:
        """``numbers`` are sequence ids by region."""
        self._ledger = ledger
        self.numbers = numbers
        self.rows = 1
        self.calls = [call]

    def commit_row(self) -> None:
        """Commit one of the rows; the last one commits the entries."""
        self._ledger.commit_row(self)


class Ledger:
    """The calls and entries of one feed. ``_lock`` guards all fields: any thread may commit."""

    def __init__(
        self,
        runtime: Runtime,
        repeats: Repeats,
        answer: Callable[[Delivery], None],
        *,
        tables: Iterable[bytes],
        from_ms: int,
    ) -> None:
        """``answer`` is called without the lock, by the thread that commits the last entry of a call."""
        self._lock = runtime.lock()
        self._repeats = repeats
        self._answer = answer
        self._tables = frozenset(tables)
        self._from_ms = from_ms
        self._calls: dict[_OpenCall, None] = {}  # in the order of their arrival
        self._entries: dict[str, dict[int, Entry]] = {}  # by region and sequence id
        self.repeated = 0
        self.ignored = 0
        self.committed = 0

    def open(self, delivery: Delivery, keys: Sequence[tuple[WalKey, int]]) -> list[Entry | None]:
        """Register a call; return its new entries, and None for each entry that is not to be delivered."""
        found: list[Entry | None] = []
        tables, from_ms = self._tables, self._from_ms
        call = _OpenCall(delivery)
        with self._lock:
            for key, count in keys:
                region, table, sequence, write_time_ms, scopes, _, _ = key
                if table not in tables or write_time_ms < from_ms or not count or _is_marker(scopes):
                    self.ignored += 1
                    found.append(None)
                elif self._is_new(region, sequence, call):
                    entry = self._entries.setdefault(region, {})[sequence] = Entry(self, {region: [sequence]}, call)
                    call.left += 1
                    found.append(entry)
                else:
                    found.append(None)
            is_done = self._register(call)
        if is_done:
            self._answer(delivery)
        return found

    def open_group(self, delivery: Delivery, keys: KeyColumns) -> tuple[Entry | None, list[bool]]:
        """Register a call; return a group of its new entries, None without any, and a flag per entry: is it new?"""
        flags: list[bool] = []
        numbers: dict[str, list[int]] = {}
        tables, from_ms, entries, add_flag = self._tables, self._from_ms, self._entries, flags.append
        call = _OpenCall(delivery)
        group = Entry(self, numbers, call)
        with self._lock:
            for (region, table), sequence, time, (scopes, _, _), count in zip(*keys, strict=True):
                if table not in tables or time < from_ms or not count or _is_marker(scopes):
                    self.ignored += 1
                    add_flag(False)
                elif self._is_new(region, sequence, call):
                    if region not in numbers:
                        numbers[region] = []
                        entries.setdefault(region, {})
                    numbers[region].append(sequence)
                    entries[region][sequence] = group
                    add_flag(True)
                else:
                    add_flag(False)
            call.left += bool(numbers)
            is_done = self._register(call)
        if is_done:
            self._answer(delivery)
        return (group if numbers else None), flags

    def _is_new(self, region: str, sequence: int, call: _OpenCall) -> bool:
        """Return True if an entry is neither committed nor delivered; in the latter case the call waits for it."""
        of_region = self._entries.get(region)
        known = of_region.get(sequence) if of_region else None
        if known is not None:
            if call not in known.calls:
                known.calls.append(call)
                call.left += 1
        elif not self._repeats.has(region, sequence):
            return True
        self.repeated += 1
        return False

    def _register(self, call: _OpenCall) -> bool:
        """Keep a call until it is answered; return True if it waits for nothing."""
        if call.left:
            self._calls[call] = None
        return not call.left

    def commit_row(self, entry: Entry) -> None:
        with self._lock:
            entry.rows -= 1
            if entry.rows:
                return
            done = self._finish(entry)
        for call in done:
            self._answer(call.delivery)

    def commit(self, entries: Iterable[Entry]) -> None:
        """Commit entries with all of their rows."""
        done: list[_OpenCall] = []
        with self._lock:
            for entry in entries:
                done += self._finish(entry)
        for call in done:
            self._answer(call.delivery)

    def _finish(self, entry: Entry) -> list[_OpenCall]:
        """Take entries for committed; return the calls that wait for nothing more. The caller holds the lock."""
        add = self._repeats.add
        for region, sequences in entry.numbers.items():
            of_region = self._entries.get(region, {})
            for sequence in sequences:
                if of_region.pop(sequence, None) is None:
                    return []  # committed before
                add(region, sequence)
            self.committed += len(sequences)
            if not of_region:
                self._entries.pop(region, None)
        done = []
        for call in entry.calls:
            call.left -= 1
            if not call.left:
                self._calls.pop(call, None)
                done.append(call)
        return done

    def open_deliveries(self) -> list[Delivery]:
        """Return the calls that are not answered."""
        with self._lock:
            return [call.delivery for call in self._calls]

    def dumped(self, dump: Callable[[Repeats], bytes]) -> bytes:
        """Return the committed entries as ``dump`` writes them."""
        with self._lock:
            return dump(self._repeats)


def _is_marker(scopes: Sequence[tuple[bytes, int]]) -> bool:
    return bool(scopes) and scopes[0][0] == _MARKERS
