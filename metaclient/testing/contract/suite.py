"""The base class of the contract's parts: hooks, fixtures that create tables, test data, steps of several parts."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Protocol, TypeVar

import pytest

from metaclient.connection import Connection
from metaclient.errors import BatchError, MetaClientError, TableExists, TableNotFound
from metaclient.table import Table

__all__ = [
    "FAMILIES",
    "LETTERS",
    "LETTER_SPLITS",
    "MEGABYTE",
    "ROW_LENGTH_MAX",
    "UGLY_KEYS",
    "UGLY_SPLITS",
    "ContractSuite",
    "TableMaker",
    "errors_of",
    "fill",
    "needs",
    "put_versions",
    "scanned",
    "scanned_keys",
    "server_time_ms",
    "together",
    "until_clock_moves",
]

T = TypeVar("T")
Families = Mapping[str, Mapping[str, Any] | None]

#: Two families: one that keeps five versions, one that keeps a single version.
FAMILIES: Families = {"cf": {"max_versions": 5}, "other": {"max_versions": 1}}
#: Bounds the part of a table name that comes from the test: pytest's names can be longer than HBase allows.
NAME_LENGTH_MAX = 60
#: The most puts while waiting for the server's clock: each takes a round trip, so a millisecond passes much earlier.
CLOCK_PROBES_MAX = 100_000
ROW_LENGTH_MAX = 32_767
MEGABYTE = 1024 * 1024

#: Keys that break naive parsing of region names, C strings and signed comparisons; in HBase's order.
UGLY_KEYS = (
    b"\x00",
    b"\x00\x00",
    b" ",
    b",",
    b",,",
    b"a",
    b"a\x00",
    b"a,1600000000000.",
    b"a,b",
    b"a,b,c",
    b"a\\x00",
    b"a\x7f",
    b"a\x80",
    b"a\xff",
    b"a\xff\xff",
    b"b",
    "ключ".encode(),
    b"\xff",
    b"\xff\xff",
)
UGLY_SPLITS = (b",", b"a\x00", b"a,b", b"a\xff", b"\xff")
LETTERS = tuple(bytes((letter,)) for letter in range(ord("a"), ord("z") + 1))
LETTER_SPLITS = (b"e", b"j", b"o", b"t")

_runs = itertools.count(1)


class TableMaker(Protocol):
    """Creates a table with a unique name, which is deleted after the test."""

    def __call__(
        self, families: Families = FAMILIES, *, splits: Sequence[bytes] = (), region_replication: int = 1
    ) -> Table: ...


# -- helpers of several tests ----------------------------------------------------------------------------------


def needs(connection: Connection, capability: str) -> None:
    """Skip the test, with a reason, unless the backend has this capability."""
    if not getattr(connection.capabilities, capability):
        pytest.skip(f"the backend does not have the capability {capability}")


def scanned(table: Table, **options: Any) -> list[tuple[bytes, dict[bytes, Any]]]:
    return [(key, dict(row)) for key, row in table.scan(**options)]


def scanned_keys(table: Table, **options: Any) -> list[bytes]:
    return [key for key, _ in table.scan(**options)]


def fill(table: Table, row_keys: Sequence[bytes], column: bytes = b"cf:q", timestamp: int = 1) -> None:
    """Put one cell per row; its value is the key in angle brackets."""
    with table.batch(timestamp=timestamp) as batch:
        for key in row_keys:
            batch.put(key, {column: b"<" + key + b">"})


def put_versions(table: Table, row: bytes, column: bytes, *timestamps: int) -> None:
    """Put a version at each timestamp, in the order given; its value is the timestamp in decimal."""
    for timestamp in timestamps:
        table.put(row, {column: b"%d" % timestamp}, timestamp=timestamp)


def server_time_ms(table: Table, row: bytes) -> int:
    """Return the time of the server that has this row, from a put to a row next to it."""
    probe = row + b"\x00probe"
    table.put(probe, {b"cf:probe": b""})
    stamp: int = table.row(probe, include_timestamp=True)[b"cf:probe"][1]
    return stamp


def until_clock_moves(table: Table, row: bytes) -> int:
    """Wait until the server's clock has advanced, so that later writes have newer timestamps; return its time."""
    begun = server_time_ms(table, row)
    for _ in range(CLOCK_PROBES_MAX):
        now = server_time_ms(table, row)
        if now > begun:
            return now
    pytest.fail(f"the server's clock was at {begun} ms during {CLOCK_PROBES_MAX} puts")


def together(connection: Connection, *functions: Callable[[], T]) -> list[T]:
    """Run functions concurrently, on the runtime of the connection; return their results in order."""
    tasks = [connection.engine.runtime.start(function, name="contract") for function in functions]
    return [task.result() for task in tasks]


def errors_of(error: MetaClientError) -> list[MetaClientError]:
    """Return the errors of the rows of a BatchError, or the error itself."""
    return list(error.failed.values()) if isinstance(error, BatchError) else [error]


class ContractSuite:
    """The base class of all parts of the contract: hooks, and fixtures that create tables."""

    def disturb(self, connection: Connection, table: Table) -> None:
        """Override: flush, compact, move or split this table. Called between the steps of most tests.

        The result of no read may change. A major compaction is allowed: no test depends on delete markers that were
        written before a disturbance.
        """

    def replicate(self, connection: Connection, table: Table) -> bool:
        """Override: wait until the table's secondaries have applied all writes, and return True."""
        return False

    #: True: tables are not deleted after a test. For clusters that are removed as a whole, where a delete takes long.
    leaves_tables: ClassVar[bool] = False

    @pytest.fixture
    def table_connection(self, backend_connection: Connection) -> Connection:
        """Override: return the connection that creates tables which this backend cannot create."""
        return backend_connection

    @pytest.fixture
    def make_table(
        self, backend_connection: Connection, table_connection: Connection, request: pytest.FixtureRequest
    ) -> Iterator[TableMaker]:
        made: list[bytes] = []

        def make(families: Families = FAMILIES, *, splits: Sequence[bytes] = (), region_replication: int = 1) -> Table:
            if region_replication > 1:
                needs(backend_connection, "region_replication")
            can_split = backend_connection.capabilities.create_with_splits
            maker = table_connection if splits and not can_split else backend_connection
            if splits:
                needs(maker, "create_with_splits")
            while True:
                name = self.fresh_name(request.node.name)
                with suppress(TableExists):  # of an earlier run that was killed
                    maker.create_table(
                        name, families, splits=list(splits) or None, region_replication=region_replication
                    )
                    made.append(name)
                    return backend_connection.table(name)

        yield make
        for name in made if not self.leaves_tables else ():
            with suppress(TableNotFound):
                backend_connection.delete_table(name, disable=True)

    @pytest.fixture
    def table(self, make_table: TableMaker) -> Table:
        """Create a table of one region with the two families of ``FAMILIES``."""
        return make_table()

    @pytest.fixture
    def wide_table(self, make_table: TableMaker) -> Table:
        """Create a table of five regions with one row per letter."""
        table = make_table(splits=LETTER_SPLITS)
        fill(table, LETTERS)
        self.disturb(table.connection, table)
        return table

    def fresh_name(self, hint: str) -> bytes:
        """Return a unique table name; ``hint`` is the test that it belongs to."""
        plain = re.sub(r"[^A-Za-z0-9_]", "_", hint)[:NAME_LENGTH_MAX]
        return f"contract_{os.getpid()}_{next(_runs)}_{plain}".encode()
