"""Sessions: reads that never go back in time and always show the session's own writes, also when replicas answer.

``Connection.session`` makes a session, and ``Session.table`` a table whose reads are TIMELINE by default. The promises
are those of one session, per row:

- *monotonic reads*: a read that begins after another has ended shows nothing older than the other did;
- *read your writes*: a read that begins after a write has ended shows the write, or a later one.

Secondaries answer only reads for which they are known to contain what the session has seen
(:mod:`metaclient.freshness.pins`); the primary answers all others, and these are counted. docs/sessions.md has the
promises in detail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn

from metaclient import keys
from metaclient.backend import Backend, Capabilities, Outcome, PutPage
from metaclient.batch import Batch
from metaclient.calls.operations import Operation, Placed
from metaclient.config import Config
from metaclient.engine import Engine, Life
from metaclient.errors import ConnectionClosed, MetaClientError, Unsupported
from metaclient.freshness import tokens
from metaclient.freshness.pins import Pins
from metaclient.freshness.session_state import RangeReads, RowReads, SessionState
from metaclient.model import (
    META_TABLE,
    Check,
    Consistency,
    Durability,
    Get,
    Mutation,
    RegionLocation,
    RegionLocations,
    Result,
    RowMutations,
    Scan,
    TableDescriptor,
)
from metaclient.runtime import Runtime
from metaclient.scanner import CellScanner, TableScanner
from metaclient.table import Table
from metaclient.telemetry import Telemetry

if TYPE_CHECKING:
    from metaclient.connection import Connection

__all__ = ["Session", "SessionTable"]


class Session:
    """A session of a connection; made by :meth:`Connection.session`. A context manager; threads may share it.

    >>> import metaclient
    >>> with metaclient.connect("scripted:") as connection:
    ...     connection.create_table("t", {"cf": {}})
    ...     with connection.session() as session:
    ...         session.table("t").put(b"r1", {b"cf:a": b"1"})
    ...         token = session.token()
    ...     with connection.session(token=token) as continued:
    ...         print(continued.table("t").row(b"r1"))
    {b'cf:a': b'1'}
    """

    def __init__(
        self, connection: Connection, *, token: bytes | None = None, replica_lag_max_s: float | None = None
    ) -> None:
        engine = connection.engine
        engine.check_open()
        if not engine.capabilities.region_replicas:
            raise Unsupported(
                f"the backend {engine.backend.name!r} cannot read region replicas: a session needs thrift2:, hbase: or "
                "fake:; a table of the connection reads the primary, which keeps the promises of a session by itself"
            )
        if replica_lag_max_s is not None and not (
            isinstance(replica_lag_max_s, int | float) and 0 < replica_lag_max_s < float("inf")
        ):
            raise ValueError(f"'replica_lag_max_s' must be a number of seconds > 0, or None, got {replica_lag_max_s!r}")
        self.connection = connection
        pins = Pins() if token is None else tokens.decode(token, now=engine.runtime.now())
        self._state = SessionState(
            engine.runtime,
            pins,
            replica_lag_max_s=replica_lag_max_s,
            known_as_of=engine.operations.hedging.staleness.as_of,
        )
        #: The interface for code of this repository, as ``Connection.engine``.
        self.engine = SessionEngine(engine, self._state)

    def __repr__(self) -> str:
        return f"<metaclient.Session of {self.connection!r} {self._state.counts()}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a session cannot be pickled: send session.token(), and make connection.session(token=...)")

    def table(self, name: bytes | str, use_prefix: bool = True) -> SessionTable:
        """Return a table of this session; no call is made, and the table need not exist."""
        self.engine.check_open()
        plain = self.connection.table(name, use_prefix)
        if plain.name == META_TABLE:
            raise ValueError("a session has no table hbase:meta: not all of its families are replicated; use locate()")
        return SessionTable(plain.name, self)

    def token(self) -> bytes:
        """Return what this session has seen, as bytes for ``connection.session(token=...)`` in another process."""
        return self._state.token()

    def stats(self) -> dict[str, int]:
        """Return the counters of this session.

        ``primary`` and ``replica``: answers by their origin. ``undecided``: secondaries that were not called, because
        it is not known that they contain what the session has seen. ``refused``: answers of secondaries that were
        dropped for that reason, at the cost of a call. ``moved_back``: how often a pin moved from the primary to a
        secondary. ``ranges``: ranges of rows that are remembered. ``dropped``: ranges that were forgotten, see
        :class:`metaclient.freshness.pins.Pins`.
        """
        return self._state.counts()

    def close(self) -> None:
        """End the session: its tables cannot be used any more. The connection stays open; ``token()`` still works."""
        self.engine.is_closed = True

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SessionTable(Table):
    """A table of a session: the methods of :class:`metaclient.Table`, with TIMELINE as the default of reads.

    ``consistency="STRONG"`` reads the primary. ``replica_id`` is refused, because the session chooses the replica.
    The rows that a scan returns of a region are those of the instant at which its scanner was opened, as in every scan:
    a put of the session in a region that the scan has begun to read may be missing.
    """

    _engine: SessionEngine  # type: ignore[assignment]  # it has all that a table uses
    _reads_primary = False

    def __init__(self, name: bytes, session: Session) -> None:
        super().__init__(name, session.connection)
        self.session = session
        self._engine = session.engine

    def _level(self, consistency: Consistency | str | None, replica_id: int | None) -> tuple[Consistency, int | None]:
        if replica_id is not None:
            raise ValueError(
                "'replica_id' cannot be given in a session, which chooses the replica: use a table of the connection"
            )
        return super()._level(Consistency.TIMELINE if consistency is None else consistency, None)

    def batch(
        self,
        timestamp: int | None = None,
        batch_size: int | None = None,
        transaction: bool = False,
        wal: bool = True,
    ) -> Batch:
        """Collect puts and deletes and send them together, as :meth:`metaclient.Table.batch`."""
        self._engine.check_open()
        return Batch(self, timestamp, batch_size, transaction, wal, engine=self._engine)


class SessionEngine:
    """The calls of :class:`metaclient.engine.Engine` that tables and batches make, recorded for one session."""

    def __init__(self, engine: Engine, state: SessionState) -> None:
        self._engine = engine
        self._state = state
        self.is_closed = False

    # -- as the engine of the connection ---------------------------------------------------------------------

    @property
    def backend(self) -> Backend:
        return self._engine.backend

    @property
    def capabilities(self) -> Capabilities:
        return self._engine.capabilities

    @property
    def config(self) -> Config:
        return self._engine.config

    @property
    def runtime(self) -> Runtime:
        return self._engine.runtime

    @property
    def telemetry(self) -> Telemetry:
        return self._engine.telemetry

    @property
    def life(self) -> Life:
        return Life.CLOSED if self.is_closed else self._engine.life

    @property
    def adapt(self) -> Callable[[MetaClientError], None]:
        return self._engine.adapt

    def check_open(self) -> None:
        """Raise ConnectionClosed if the session or its connection is closed."""
        self._engine.check_open()
        if self.is_closed:
            raise ConnectionClosed("this session is closed; make a new one, with token=session.token() to continue it")

    def observed(self, operation: str, table: bytes) -> AbstractContextManager[object]:
        """Return the span of an operation that starts now."""
        self.check_open()
        return self._engine.observed(operation, table)

    def describe(self, table: bytes) -> TableDescriptor:
        """Return the descriptor of a table."""
        return self._engine.describe(table)

    def regions(self, table: bytes) -> list[RegionLocations]:
        """Return all regions of a table."""
        return self._engine.regions(table)

    # -- reads -----------------------------------------------------------------------------------------------

    def get(
        self,
        table: bytes,
        get: Get,
        consistency: Consistency,
        replica_id: int | None,
        max_staleness_s: float | None = None,
    ) -> Placed:
        """Read a row at a replica that contains what the session has seen."""
        guard = RowReads(self._state)
        result, place = self._engine.get(table, get, consistency, replica_id, max_staleness_s, guard=guard)
        self._saw(guard, table, get.row, place)
        return result, place

    def get_many(
        self,
        table: bytes,
        gets: Sequence[Get],
        consistency: Consistency,
        replica_id: int | None = None,
        max_staleness_s: float | None = None,
    ) -> Sequence[Placed]:
        """Read many rows, each at a replica that contains what the session has seen."""
        guard = RowReads(self._state)
        found = self._engine.get_many(table, gets, consistency, replica_id, max_staleness_s, guard=guard)
        for get, (_, place) in zip(gets, found, strict=True):
            self._saw(guard, table, get.row, place)
        return found

    def scan_rows(
        self,
        table: bytes,
        scan: Scan,
        consistency: Consistency,
        replica_id: int | None = None,
        max_staleness_s: float | None = None,
    ) -> TableScanner:
        """Return an iterator over (result, location) whose pages are recorded."""
        guard = RangeReads(self._state, table, *_range_of(scan))
        return self._engine.scan_rows(table, scan, consistency, replica_id, max_staleness_s, guard=guard)

    def scan_cells(
        self,
        table: bytes,
        scan: Scan,
        consistency: Consistency,
        replica_id: int | None = None,
        max_staleness_s: float | None = None,
    ) -> CellScanner:
        """Return an iterator over (page of cells, location) whose pages are recorded."""
        guard = RangeReads(self._state, table, *_range_of(scan))
        return self._engine.scan_cells(table, scan, consistency, replica_id, max_staleness_s, guard=guard)

    def _saw(self, guard: RowReads, table: bytes, row: bytes, place: RegionLocation | None) -> None:
        if place is not None:
            guard.saw(place)
        else:  # a gateway has read the primary
            self._state.saw(table, *self._region_of(table, row), None, None)

    # -- writes ----------------------------------------------------------------------------------------------

    def mutate(self, table: bytes, mutation: Mutation) -> Result | None:
        """Write one row. It is recorded also if it fails, because it may have been applied."""
        try:
            return self._engine.mutate(table, mutation)
        finally:
            self._wrote(table, [mutation])

    def check_and_mutate(self, table: bytes, check: Check, mutation: Mutation) -> bool:
        """Write one row if a check passes; a check that fails has read the row."""
        try:
            return self._engine.check_and_mutate(table, check, mutation)
        finally:
            self._wrote(table, [mutation])

    def batch(self, table: bytes, actions: Sequence[Operation]) -> list[Outcome]:
        """Run many operations at their primaries; those that fail are recorded, too."""
        try:
            return self._engine.batch(table, actions)
        finally:
            self._wrote(table, actions)

    def put_page(self, table: bytes, page: PutPage) -> dict[bytes, MetaClientError]:
        """Write a page of puts; rows that fail are recorded, too."""
        try:
            return self._engine.put_page(table, page)
        finally:
            is_replicated = page.durability is not Durability.SKIP_WAL
            for start, end in {self._region_of(table, row) for row in page.rows.to_pylist()}:
                self._state.wrote(table, start, end, is_replicated=is_replicated)

    def _wrote(self, table: bytes, actions: Sequence[Operation]) -> None:
        ranges: dict[tuple[bytes, bytes], bool] = {}
        for action in actions:
            region = self._region_of(table, action.row)
            ranges[region] = ranges.get(region, True) and _is_replicated(action)
        for (start, end), is_replicated in ranges.items():
            self._state.wrote(table, start, end, is_replicated=is_replicated)

    def _region_of(self, table: bytes, row: bytes) -> tuple[bytes, bytes]:
        """Return the range of the row's region, without a lookup; the row alone if its region is not cached."""
        known = self._engine.locator.cache.cached_region(table, row)
        return (known.region.start_key, known.region.end_key) if known is not None else (row, keys.next_row(row))


def _is_replicated(action: Operation) -> bool:
    """Return False if the write is not in the log: HBase replicates only what is."""
    if isinstance(action, RowMutations):
        return all(_is_replicated(mutation) for mutation in action.mutations)
    return getattr(action, "durability", None) is not Durability.SKIP_WAL


def _range_of(scan: Scan) -> tuple[bytes, bytes]:
    """Return a range ``[start, end)`` that has all rows of the scan."""
    first, last = (scan.stop_row, scan.start_row) if scan.is_reversed else (scan.start_row, scan.stop_row)
    return first, keys.next_row(last) if last else b""
