"""metaclient for asyncio: the blocking API as coroutines, on the event loop of the caller and without a thread.

The objects wrap those of the blocking API, whose code runs in greenlets (:mod:`metaclient.runtime.event_loop`).
``docs/asyncio.md`` describes cancellation, deadlines and the differences. It needs the extra ``aio``.
"""

from metaclient.aio.connection import Connecting as Connecting
from metaclient.aio.connection import Connection, Session, connect
from metaclient.aio.connection import FreshnessWatcher as FreshnessWatcher
from metaclient.aio.connection import Replication as Replication
from metaclient.aio.pool import ConnectionPool
from metaclient.aio.table import Batch, Table

__all__ = ["Batch", "Connection", "ConnectionPool", "Session", "Table", "connect"]
