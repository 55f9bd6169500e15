"""The fake and a real HBase side by side: sends the same operation to both and compares the answers.

Answers are the results, or the class of the error. Timestamps that a server has chosen are compared by the operation in
which it chose them.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import metaclient
from metaclient import Connection, MetaClientError
from metaclient.model import CellType, Consistency, Get, Result, RowMutations, Scan
from metaclient.runtime import Runtime
from metaclient.scanner import TableScanner
from metaclient_fake import FakeCluster
from metaclient_local_hbase import LocalHBase
from tests.live.random_operations import PREFIX, Checked

TABLE = b"differential"
FAMILIES: dict[str, Any] = {
    "a": {"max_versions": 3},
    "b": {"max_versions": 1},
    "k": {"max_versions": 3, "keep_deleted_cells": "TRUE"},
}
#: Above it a timestamp is a server's own time; what we choose is far below.
CHOSEN_MAX = 1_000
_examples = itertools.count()


class Side:
    """One of the two clusters; rows of an example have its prefix, so that no two examples meet."""

    def __init__(self, connection: Connection) -> None:
        self._operations = connection.engine.operations

    def run(self, operation: object, prefix: bytes) -> Any:
        """The answer, comparable: cells, a truth, None, or the class of the error."""
        try:
            return self._run(_prefixed(operation, prefix))
        except MetaClientError as error:
            return _public_name(error)

    def _run(self, operation: Any) -> Any:
        match operation:
            case Get():
                result = self._operations.get(TABLE, operation, Consistency.STRONG, None)[0]
                return result.exists if operation.existence_only else _plain(result)
            case Scan():
                scanner = TableScanner(self._operations, TABLE, operation, Consistency.STRONG, None)
                return [_plain(result) for result, _ in scanner]
            case Checked():
                return self._operations.check_and_mutate(TABLE, operation.check, operation.mutation)
        result = self._operations.mutate(TABLE, operation)
        return None if result is None else sorted(_plain(result)[1])


def _public_name(error: MetaClientError) -> str:
    """The class that users can catch: the fake has finer ones."""
    return next(one.__name__ for one in type(error).__mro__ if one.__module__ == "metaclient.errors")


def _plain(result: Result) -> tuple[bytes, list[tuple[Any, ...]], bool]:
    return result.row, [tuple(cell) for cell in result.cells], result.is_partial


def _prefixed(operation: Any, prefix: bytes) -> Any:
    match operation:
        case Get():
            return replace(operation, row=prefix + operation.row, filter=_filter(operation.filter, prefix))
        case Scan():
            return replace(
                operation,
                start_row=prefix + operation.start_row,
                stop_row=prefix + operation.stop_row,
                filter=_filter(operation.filter, prefix),
            )
        case Checked():
            check = replace(operation.check, row=prefix + operation.check.row)
            return Checked(check, _prefixed(operation.mutation, prefix))
        case RowMutations():
            parts = tuple(_prefixed(one, prefix) for one in operation.mutations)
            return RowMutations(prefix + operation.row, parts)
    return replace(operation, row=prefix + operation.row)


def _filter(text: bytes | None, prefix: bytes) -> bytes | None:
    return None if text is None else text.replace(PREFIX.encode(), prefix)


#: Everything there is of an example's rows: compared after each write.
EVERYTHING = Scan(b"", b"~", max_versions=100)


class Moments:
    """The rows of one example, and when each of its operations began."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._begun_ms: list[int] = []
        #: What the rows of the example begin with, so that no two examples meet.
        self.prefix = b"%d-%06d-" % (runtime.time_ms(), next(_examples))

    def begin(self) -> None:
        """Two operations never fall into one millisecond: their timestamps could not be told apart."""
        before = self._runtime.time_ms()
        while self._runtime.time_ms() == before:
            self._runtime.sleep(0.001)
        self._begun_ms.append(self._runtime.time_ms())

    def comparable(self, answer: Any) -> Any:
        """The answer with the operation in the place of a time that a server has chosen."""
        if isinstance(answer, list | tuple):
            return [self.comparable(one) for one in answer]
        if isinstance(answer, int) and not isinstance(answer, CellType) and answer > CHOSEN_MAX:
            return f"time of operation {bisect_right(self._begun_ms, answer)}"
        return answer


class Both:
    """The fake and the real cluster."""

    def __init__(self, fake: Side, real: Side, runtime: Runtime) -> None:
        self._fake, self._real = fake, real
        self._moments = Moments(runtime)

    def compare(self, operation: object) -> str:
        """Send to both; they must agree. Which kind of answer it was."""
        moments = self._moments
        moments.begin()
        fake, real = (moments.comparable(side.run(operation, moments.prefix)) for side in (self._fake, self._real))
        assert fake == real, f"{operation}\nfake: {fake}\nreal: {real}"
        return real if isinstance(real, str) else "answered"


@contextmanager
def both_sides(hbase: LocalHBase) -> Iterator[Callable[[], Both]]:
    """Yield a function that begins an example on a new fake and on this cluster, which get the table."""
    with (
        FakeCluster(servers=1) as cluster,
        cluster.connect() as fake,
        metaclient.connect(hbase.thrift2_url) as real,
    ):
        for connection in (fake, real):
            if TABLE not in connection.tables():
                connection.create_table(TABLE, FAMILIES)
        yield lambda: Both(Side(fake), Side(real), real._runtime)
