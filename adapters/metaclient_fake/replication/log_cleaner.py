"""Decides which archived logs a queue still needs (``ReplicationLogCleaner``, HBase 2.6).

A log is kept while its *name* is in any queue of any server, dead ones too. Logs that were archived after the look at
the queues are not deleted in the same round, because their time in the archive begins then.
"""

from __future__ import annotations

from collections.abc import Set

from metaclient_fake.replication.queues import QueueStore

__all__ = ["LogCleaner"]


class LogCleaner:
    """Looks at the queues once per round of the cleaner."""

    def __init__(self, queues: QueueStore) -> None:
        self._queues = queues

    def needed(self) -> Set[str]:
        """Return the names of the logs that must not be deleted."""
        if not self._queues.servers():
            return frozenset()
        return self._queues.all_wals()
