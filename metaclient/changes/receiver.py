"""Receives the changes of a subscription into a spool: append, fsync, then answer (``metaclient changes receive``).

A :class:`SpoolReceiver` is a worker of its subscription, as an iterator of changes is, whose consumer is a disk:

1. Calls that wait are taken together. Their entries that were received before, were written before the subscription, or
   belong to other tables are flagged as not new (:mod:`~metaclient.changes.ledger`).
2. The calls are appended to the spool, with one fsync for all of them; then they are answered.
3. A full spool holds the calls: they are answered when a consumer has deleted segments, or HBase sends them again.

A call that cannot be decoded is stored in the folder ``dead`` and answered: it never blocks the log of a server.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from metaclient.changes.change import Change
from metaclient.changes.decoding import decode_call_keys
from metaclient.changes.feed import ChangeFeed, FeedOptions
from metaclient.changes.ledger import Entry
from metaclient.changes.repeats import Repeats
from metaclient.changes.snapshot import TableSnapshot
from metaclient.changes.spool import Journal, Spool, SpooledCall, SpoolError, SpoolFull
from metaclient.changes.spool.disk import Disk, FolderDisk, replace_file
from metaclient.changes.spool.spool import lock_worker
from metaclient.changes.state import dump_state, load_state
from metaclient.changes.subscription import Subscription, Subscriptions, checked_name
from metaclient.errors import MetaClientError
from metaclient.model import Cell
from metaclient.protobuf import ProtocolError
from metaclient.runtime import Runtime
from metaclient.wire.rpc.receiving import Delivery
from metaclient.wire.rpc.replication import ShippedEntry, WalKey, decode_key_columns, encode_replicate

if TYPE_CHECKING:
    from metaclient.connection import Connection

__all__ = ["SPOOL_BYTES_MAX", "SpoolReceiver", "open_receiver", "recovered_journal"]

logger = logging.getLogger(__name__)

#: The bound of a spool per worker: an hour of a consumer's absence at 1 MB/s.
SPOOL_BYTES_MAX = 4 << 30
#: Calls are appended together up to this size: a larger one delays the answer of the first.
_BATCH_BYTES = 16 << 20
#: How often a full spool is looked at.
_FULL_S = 0.2
_SNAPSHOT_ROWS = 1000
#: Calls that cannot be decoded are kept up to this number; then the receiver fails, so that a person looks at them.
_DEAD_MAX = 1000
_DEAD = "dead"
_NO_REGION = "0" * 32


def recovered_journal(disk: Disk, name: str, repeats: Repeats, **bounds: int) -> Journal:
    """Recover the files of a worker; fill ``repeats`` with the entries that they have, or had."""

    def on_call(call: SpooledCall) -> None:
        keys = decode_key_columns(call.param)
        for index, ((region, _), sequence) in enumerate(zip(keys.names, keys.sequence_ids, strict=True)):
            if sequence and (call.flags is None or call.flags[index]):
                repeats.add(region, sequence)

    return Journal(disk, on_state=lambda state: load_state(name, state, repeats), on_call=on_call, **bounds)


class SpoolReceiver(ChangeFeed[int]):
    """A worker of a subscription that writes its calls to a spool. :meth:`run` does the work until :meth:`close`."""

    _snapshot: TableSnapshot | None = None

    def __init__(
        self,
        subscription: Subscription,
        runtime: Runtime,
        *,
        options: FeedOptions,
        repeats: Repeats,
        on_close: Callable[[ChangeFeed[int]], None],
        journal: Journal,
        keep_dead: Callable[[Delivery], None],
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """``keep_dead`` stores a call that cannot be decoded; ``on_end`` is called when the journal is closed."""
        self._journal = journal
        self._keep_dead = keep_dead
        self._on_end = on_end
        self._writing = runtime.lock()  # held while the journal is used
        self._is_held = False
        super().__init__(subscription, runtime, options=options, store=None, repeats=repeats, on_close=on_close)
        self._counts |= {"spooled_calls": 0, "spooled_bytes": 0, "syncs": 0, "held": 0}

    def run(self) -> None:
        """Receive until :meth:`close`; raise the error that ends the receiver."""
        while not self.is_closed:
            if self._next(None) is None:
                return

    def close(self) -> None:
        super().close()
        with self._writing:
            self._journal.close()
            on_end, self._on_end = self._on_end, lambda: None
        on_end()

    def stats(self) -> dict[str, int]:
        return {**super().stats(), "spool_bytes": self._journal.total_bytes, "is_full": int(self._is_held)}

    def _next(self, deadline: float | None) -> int | None:
        """Store the calls that wait; return the number of their new entries, None at the deadline or after close()."""
        if self._worker is None and not self.is_closed:
            return self._store_snapshot()
        first = self._take(deadline)
        if first is None:
            return None
        deliveries = [first, *self._window.take_waiting(_BATCH_BYTES - first.size)]
        with self._writing:
            return None if self.is_closed else self._store_calls(deliveries)

    # -- storing -------------------------------------------------------------------------------------------------------

    def _store_calls(self, deliveries: Sequence[Delivery]) -> int | None:
        calls: list[tuple[bytes, bytes, Sequence[bool] | None]] = []
        groups: list[Entry] = []
        count = 0
        for delivery in deliveries:
            try:
                keys = decode_call_keys(delivery.param, delivery.cells)
            except ProtocolError as error:
                self._bury(delivery, error)
                continue
            group, flags = self._ledger.open_group(delivery, keys)
            if group is not None:
                groups.append(group)
                calls.append((delivery.param, delivery.cells, None if all(flags) else flags))
                count += sum(flags)
        if calls and not self._write(calls):
            return None
        self._ledger.commit(groups)
        self._counts["delivered"] += count
        return count

    def _write(self, calls: Sequence[tuple[bytes, bytes, Sequence[bool] | None]]) -> bool:
        """Append calls and make them durable; wait while the spool is full. Return False after close()."""
        size = sum(len(param) + len(cells) for param, cells, _ in calls)
        journal = self._journal
        if journal.is_roll_due:
            self._roll()
        while True:
            try:
                if not journal.is_full(size):
                    journal.append(calls)
                    break
                reason = f"{journal.total_bytes} bytes wait for a consumer"
            except SpoolFull as error:
                reason = str(error)
            self._report_full(reason)
            if journal.has_calls:
                self._roll()  # a consumer that sees a new segment commits, and deletes, those before
            if not self._pause(_FULL_S):
                return False
        if self._is_held:
            self._is_held = False
            logger.info("%r: the spool has space again", self)
        journal.sync()
        self._counts["spooled_calls"] += len(calls)
        self._counts["spooled_bytes"] += size
        self._counts["syncs"] += 1
        return True

    def _report_full(self, reason: str) -> None:
        if not self._is_held:
            self._is_held = True
            self._counts["held"] += 1
            logger.warning(
                "%r: the spool is full (%s); no call is answered until there is space, and the cluster keeps its logs",
                self,
                reason,
            )

    def _roll(self) -> None:
        self._journal.roll(self._ledger.dumped(partial(dump_state, self.name)))

    def _bury(self, delivery: Delivery, error: ProtocolError) -> None:
        self._counts["skipped"] += 1
        logger.error(
            "%r: a call of %s cannot be decoded (%s); its bytes are in the folder 'dead'", self, delivery.source, error
        )
        self._keep_dead(delivery)
        self._answer(delivery)

    # -- the snapshot --------------------------------------------------------------------------------------------------

    def _store_snapshot(self) -> int | None:
        """Store some rows of the snapshot; after the last ones, join the subscription."""
        if self._snapshot is None:
            self._snapshot = self._subscription.open_snapshot()
        rows = list(islice(self._snapshot, _SNAPSHOT_ROWS))
        if not rows:
            self._snapshot.finish(self._subscription.finish_snapshot)
            self._join()
            return 0
        with self._writing:
            if self.is_closed or not self._write([(*encode_replicate(map(_entry, rows)), None)]):
                return None
        for change in rows:
            change.commit()
        self._counts["delivered"] += len(rows)
        return len(rows)


def _entry(change: Change) -> ShippedEntry:
    """Return a row of a snapshot as a log entry with the sequence 0."""
    key = WalKey(change.region or _NO_REGION, change.table, 0, change.write_time)
    return ShippedEntry(
        key, tuple([(change.row, Cell(cell.column, cell.timestamp, cell.value, cell.type)) for cell in change.cells])
    )


# -- opening -----------------------------------------------------------------------------------------------------------


def open_receiver(
    connection: Connection,
    folder: Path,
    *,
    name: str,
    worker: str,
    tables: Iterable[bytes] = (),
    serial: bool = False,
    since: datetime | float | None = None,
    spool_bytes_max: int = SPOOL_BYTES_MAX,
    options: dict[str, Any] | None = None,
    disk: Callable[[Path], Disk] = FolderDisk,
) -> SpoolReceiver:
    """Return a worker that receives the changes of a subscription into a spool.

    With ``tables`` the subscription is made if there is none; without, it must exist. ``worker`` names the folder in
    the spool that this process writes to, through ``disk``; it is locked. ``options`` are those of
    :class:`~metaclient.changes.feed.FeedOptions`. Nothing is left behind by an error.
    """
    checked_name(worker)
    if spool_bytes_max < 1:
        raise ValueError(f"the bound of a spool must be a positive number of bytes, got {spool_bytes_max}")
    checked = FeedOptions(**(options or {}))
    subscriptions, wanted = Subscriptions(connection), list(tables)
    if wanted:
        info, is_new = subscriptions.ensure(name, wanted, serial=serial, since=since)
    else:
        info, is_new = subscriptions.get(name), False
    try:
        subscription = Subscription(connection, info, is_new=is_new)
        return _open(connection, subscription, folder / worker, disk, spool_bytes_max, checked)
    except BaseException:
        if is_new:
            subscriptions.undo(name)
        raise


def _open(
    connection: Connection,
    subscription: Subscription,
    at: Path,
    disk: Callable[[Path], Disk],
    spool_bytes_max: int,
    options: FeedOptions,
) -> SpoolReceiver:
    """Open the folder of a worker; ``at`` is below that of the spool."""
    lock: int | None = None
    journal: Journal | None = None
    try:
        runtime = connection.engine.runtime
        new_id = str(UUID(int=runtime.rng.getrandbits(128)))
        Spool.ensure(at.parent, subscription.name, subscription.tables, new_id=new_id)
        lock = lock_worker(at)
        repeats = Repeats()
        journal = recovered_journal(disk(at), subscription.name, repeats, bytes_max=spool_bytes_max)
        return SpoolReceiver(
            subscription,
            runtime,
            options=options,
            repeats=repeats,
            on_close=lambda feed: None,
            journal=journal,
            keep_dead=partial(_keep_dead, at / _DEAD),
            on_end=partial(os.close, lock),
        )
    except BaseException as error:
        if journal is not None:
            journal.close()
        if lock is not None:
            os.close(lock)
        if isinstance(error, OSError) and not isinstance(error, MetaClientError):
            raise SpoolError(f"the spool {at.parent} cannot be opened: {error}") from error
        raise


def _keep_dead(folder: Path, delivery: Delivery) -> None:
    """Store a call that cannot be decoded: the length of its keys (8 bytes), the keys, and the cells."""
    folder.mkdir(exist_ok=True)
    known = [int(name) for name in os.listdir(folder) if name.isdecimal()]
    if len(known) >= _DEAD_MAX:
        raise SpoolError(
            f"{len(known)} calls could not be decoded, and {folder} keeps no more: look at them, report them, and "
            "move the folder away"
        )
    number = max(known, default=0) + 1
    replace_file(folder / f"{number:06d}", len(delivery.param).to_bytes(8, "big") + delivery.param + delivery.cells)
