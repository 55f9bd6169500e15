"""Remembers for a short time whether tables are enabled, as the primary of hbase:meta has it."""

from __future__ import annotations

from dataclasses import dataclass

from cachetools import TTLCache

from metaclient import keys, metarow
from metaclient.backend import MetaPage, MetaScan
from metaclient.config import Config
from metaclient.errors import MetaClientError, TableDisabled
from metaclient.meta.reader import MetaReader
from metaclient.model import TableState
from metaclient.runtime import Pending, Runtime

__all__ = ["TableStates"]

#: Tables whose state is remembered; each entry is a few dozen bytes.
TABLES_REMEMBERED = 1_000


@dataclass(frozen=True, slots=True)
class _KnownState:
    """A table's state at the primary; None if the table has no state, or an unknown one."""

    state: TableState | None


class TableStates:
    """The states of the tables of one cluster, for one connection."""

    def __init__(self, runtime: Runtime, config: Config, reader: MetaReader) -> None:
        self._runtime = runtime
        self._config = config
        self._reader = reader
        self._begin()
        runtime.on_fork(self._begin)

    def _begin(self) -> None:
        """Start with no state known and no read in flight, here and in a forked child."""
        self._lock = self._runtime.lock()
        # The fields below are guarded by the lock.
        self._states: TTLCache[bytes, _KnownState] = TTLCache(
            TABLES_REMEMBERED, self._config.table_state_ttl_s, timer=self._runtime.now
        )
        self._flights: dict[bytes, Pending[TableState | None]] = {}

    def check_enabled(self, table: bytes, deadline: float) -> None:
        """Raise TableDisabled if the table is disabled at the primary; one read per table and ``table_state_ttl_s``."""
        state = self._state(table, deadline)
        if state in (TableState.DISABLED, TableState.DISABLING):
            raise TableDisabled(f"table {keys.printable(table)!r} is disabled; enable_table() makes it readable again")

    def _state(self, table: bytes, deadline: float) -> TableState | None:
        with self._lock:
            known = self._states.get(table)  # one call: the entry may expire between two
            if known is not None:
                return known.state
            pending = self._flights.get(table)
            is_ours = pending is None
            if pending is None:
                pending = self._flights[table] = self._runtime.pending(name="table state")
        if is_ours:
            self._read_state(table, pending, deadline)
        if self._runtime.wait_first((pending,), deadline) is None or pending.error() is not None:
            return None  # unknown is not disabled: the operation continues, and fails with its own error
        return pending.result()

    def _read_state(self, table: bytes, pending: Pending[TableState | None], deadline: float) -> None:
        scan = MetaScan(table, table, is_reversed=False, limit=1, families=(b"table",))

        def judge(page: MetaPage, _: int) -> _KnownState:
            values = [row.columns.get(b"table:state") for row in page.rows if row.row == table]
            return _KnownState(metarow.decode_table_state(values[0]) if values and values[0] is not None else None)

        found: _KnownState | None = None
        try:
            found = self._reader.read_primary(scan, judge, deadline)
        except MetaClientError:
            pass  # the state stays unknown, and the callers continue
        finally:
            with self._lock:
                self._flights.pop(table, None)
                if found is not None:
                    self._states[table] = found
            pending.complete(found.state if found is not None else None)
