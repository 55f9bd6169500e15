"""Opens a feed: the arguments of ``connection.changes`` become a subscription and a worker of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from metaclient.changes.batches import ChangeBatches
from metaclient.changes.changes import Changes
from metaclient.changes.feed import FeedOptions
from metaclient.changes.repeats import Repeats
from metaclient.changes.state import StateLike, load_state, store_of
from metaclient.changes.subscription import Subscription, Subscriptions, checked_name
from metaclient.wire.cell_arrays import libraries

if TYPE_CHECKING:
    from metaclient.connection import Connection

__all__ = ["open_feed"]


def open_feed(
    connection: Connection,
    tables: Iterable[bytes],
    *,
    name: str,
    serial: bool,
    since: datetime | float | None,
    state: StateLike,
    arrow: bool,
    on_close: Callable[[Any], None],
    options: dict[str, Any],
) -> Changes | ChangeBatches:
    """Make the subscription if there is none, and return a worker of it. Nothing is left behind by an error."""
    if arrow:
        libraries()  # if pyarrow is not installed, fail before a subscription is made
    checked = FeedOptions(**options)
    store, repeats = store_of(state), Repeats()
    if store is not None:
        load_state(checked_name(name), store.load(), repeats)
    subscriptions = Subscriptions(connection)
    info, is_new = subscriptions.ensure(name, tables, serial=serial, since=since)
    kind: type[Changes] | type[ChangeBatches] = ChangeBatches if arrow else Changes
    try:
        return kind(
            Subscription(connection, info, is_new=is_new),
            connection.engine.runtime,
            options=checked,
            store=store,
            repeats=repeats,
            on_close=on_close,
        )
    except BaseException:
        if is_new:
            subscriptions.undo(name)
        raise
