"""Tables and batches for asyncio: the methods of :class:`metaclient.Table` and :class:`metaclient.Batch`, awaitable."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from metaclient import batch as blocking_batch
from metaclient import table as blocking_table
from metaclient.aio.coroutines import Wrapper, awaitable, iterated, startable

if TYPE_CHECKING:
    from collections import OrderedDict
    from collections.abc import AsyncGenerator, Sequence

    from metaclient.aio.connection import Connection
    from metaclient.arguments import Columns, FilterLike
    from metaclient.model import Row
    from metaclient.runtime.event_loop import AsyncioRuntime
    from metaclient.table import ReadOptions, RowOptions

__all__ = ["Batch", "Table"]

_Table = blocking_table.Table
_Batch = blocking_batch.Batch


class Batch(Wrapper[_Batch]):
    """A batch of a table; ``async with`` sends it at its end. ``put`` and ``delete`` send when it is full."""

    __slots__ = ()

    put = awaitable(_Batch.put)
    delete = awaitable(_Batch.delete)
    counter_inc = awaitable(_Batch.counter_inc)
    counter_dec = awaitable(_Batch.counter_dec)
    send = awaitable(_Batch.send)

    async def __aenter__(self) -> Batch:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runtime.call(self._blocking.__exit__, kind, error, trace)


class Table(Wrapper[_Table]):
    """A table of a connection or a session; made by their method ``table``, which makes no call.

    ``scan`` is an asynchronous generator. A loop that ends early closes the server's scanner when the generator is
    closed: by ``contextlib.aclosing``, or when the loop collects it.
    """

    __slots__ = ("connection",)

    def __init__(self, blocking: _Table, runtime: AsyncioRuntime, connection: Connection) -> None:
        super().__init__(blocking, runtime)
        self.connection = connection

    @property
    def name(self) -> bytes:
        """The complete name of the table."""
        return self._blocking.name

    if TYPE_CHECKING:  # written out, because pyright takes only the first overload of a method that is wrapped

        @overload
        async def row(
            self,
            row: bytes | str,
            columns: Columns = None,
            timestamp: int | None = None,
            include_timestamp: Literal[False] = False,
            **options: Unpack[RowOptions],
        ) -> Row: ...

        @overload
        async def row(
            self,
            row: bytes | str,
            columns: Columns = None,
            timestamp: int | None = None,
            *,
            include_timestamp: Literal[True],
            **options: Unpack[RowOptions],
        ) -> Row[tuple[bytes, int]]: ...

        @overload
        async def row(
            self,
            row: bytes | str,
            columns: Columns = None,
            timestamp: int | None = None,
            include_timestamp: bool = False,
            **options: Unpack[RowOptions],
        ) -> Row[Any]: ...

        async def row(self, *args: Any, **options: Any) -> Any: ...

        @overload
        async def rows(
            self,
            rows: Sequence[bytes | str],
            columns: Columns = None,
            timestamp: int | None = None,
            include_timestamp: Literal[False] = False,
            **options: Unpack[ReadOptions],
        ) -> list[tuple[bytes, Row]]: ...

        @overload
        async def rows(
            self,
            rows: Sequence[bytes | str],
            columns: Columns = None,
            timestamp: int | None = None,
            *,
            include_timestamp: Literal[True],
            **options: Unpack[ReadOptions],
        ) -> list[tuple[bytes, Row[tuple[bytes, int]]]]: ...

        @overload
        async def rows(
            self,
            rows: Sequence[bytes | str],
            columns: Columns = None,
            timestamp: int | None = None,
            include_timestamp: bool = False,
            **options: Unpack[ReadOptions],
        ) -> list[tuple[bytes, Row[Any]]]: ...

        async def rows(self, *args: Any, **options: Any) -> Any: ...

        @overload
        async def cells(
            self,
            row: bytes | str,
            column: bytes | str,
            versions: int | None = None,
            timestamp: int | None = None,
            include_timestamp: Literal[False] = False,
            **options: Unpack[ReadOptions],
        ) -> list[bytes]: ...

        @overload
        async def cells(
            self,
            row: bytes | str,
            column: bytes | str,
            versions: int | None = None,
            timestamp: int | None = None,
            *,
            include_timestamp: Literal[True],
            **options: Unpack[ReadOptions],
        ) -> list[tuple[bytes, int]]: ...

        @overload
        async def cells(
            self,
            row: bytes | str,
            column: bytes | str,
            versions: int | None = None,
            timestamp: int | None = None,
            include_timestamp: bool = False,
            **options: Unpack[ReadOptions],
        ) -> list[Any]: ...

        async def cells(self, *args: Any, **options: Any) -> Any: ...

        @overload
        def scan(
            self,
            row_start: bytes | str | None = None,
            row_stop: bytes | str | None = None,
            row_prefix: bytes | str | None = None,
            columns: Columns = None,
            filter: FilterLike = None,
            timestamp: int | None = None,
            include_timestamp: Literal[False] = False,
            batch_size: int = ...,
            scan_batching: int | None = None,
            limit: int | None = None,
            sorted_columns: Literal[False] = False,
            reverse: bool = False,
            **options: Unpack[ReadOptions],
        ) -> AsyncGenerator[tuple[bytes, Row], None]: ...

        @overload
        def scan(
            self,
            row_start: bytes | str | None = None,
            row_stop: bytes | str | None = None,
            row_prefix: bytes | str | None = None,
            columns: Columns = None,
            filter: FilterLike = None,
            timestamp: int | None = None,
            *,
            include_timestamp: Literal[True],
            batch_size: int = ...,
            scan_batching: int | None = None,
            limit: int | None = None,
            sorted_columns: Literal[False] = False,
            reverse: bool = False,
            **options: Unpack[ReadOptions],
        ) -> AsyncGenerator[tuple[bytes, Row[tuple[bytes, int]]], None]: ...

        @overload
        def scan(
            self,
            row_start: bytes | str | None = None,
            row_stop: bytes | str | None = None,
            row_prefix: bytes | str | None = None,
            columns: Columns = None,
            filter: FilterLike = None,
            timestamp: int | None = None,
            include_timestamp: bool = False,
            batch_size: int = ...,
            scan_batching: int | None = None,
            limit: int | None = None,
            sorted_columns: bool = False,
            reverse: bool = False,
            **options: Unpack[ReadOptions],
        ) -> AsyncGenerator[tuple[bytes, Row[Any] | OrderedDict[bytes, Any]], None]: ...

        def scan(self, *args: Any, **options: Any) -> Any: ...
    else:
        row = startable(_Table.row, "_start_row")
        rows = awaitable(_Table.rows)
        cells = awaitable(_Table.cells)
        scan = iterated(_Table.scan)

    families = awaitable(_Table.families)
    regions = awaitable(_Table.regions)
    exists = awaitable(_Table.exists)
    scan_arrow = iterated(_Table.scan_arrow)
    to_arrow = awaitable(_Table.to_arrow)
    to_pandas = awaitable(_Table.to_pandas)
    to_polars = awaitable(_Table.to_polars)
    put_arrow = awaitable(_Table.put_arrow)
    put_pandas = awaitable(_Table.put_pandas)
    put = awaitable(_Table.put)
    delete = awaitable(_Table.delete)
    append = awaitable(_Table.append)
    mutate_row = awaitable(_Table.mutate_row)
    check_and_put = awaitable(_Table.check_and_put)
    check_and_delete = awaitable(_Table.check_and_delete)
    counter_get = awaitable(_Table.counter_get)
    counter_set = awaitable(_Table.counter_set)
    counter_inc = awaitable(_Table.counter_inc)
    counter_dec = awaitable(_Table.counter_dec)

    def batch(
        self,
        timestamp: int | None = None,
        batch_size: int | None = None,
        transaction: bool = False,
        wal: bool = True,
    ) -> Batch:
        """Collect puts and deletes and send them together: ``async with table.batch() as batch``."""
        return Batch(self._blocking.batch(timestamp, batch_size, transaction, wal), self._runtime)
