"""Connections to a real cluster in a parent and its children after ``os.fork()``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

import metaclient
from metaclient import Connection
from metaclient_local_hbase import LocalHBase
from tests.live.load import connect_patiently
from tests.unit.forked import in_children

ROWS = [b"fork %03d" % number for number in range(50)]
TABLE = "live_forks"
CHILDREN = 3
#: As many increments that a server of 2.6.1 dropped nearly half of, when parent and child drew the same nonces.
TIMES = 20


@pytest.fixture(params=["hbase", "thrift2", "thrift1"])
def connection(hbase: LocalHBase, request: pytest.FixtureRequest) -> Iterator[Connection]:
    ways: dict[str, Callable[[], Connection]] = {
        "hbase": lambda: connect_patiently(hbase),
        "thrift2": lambda: metaclient.connect(hbase.thrift2_url),
        "thrift1": lambda: metaclient.connect(hbase.thrift1_url),
    }
    with ways[request.param]() as made:
        if TABLE.encode() not in made.tables():
            made.create_table(TABLE, {"cf": {}})
            for row in ROWS:
                made.table(TABLE).put(row, {b"cf:a": row})
        yield made


def wrong_answers(connection: Connection) -> int:
    table = connection.table(TABLE)
    return sum(table.row(row) != {b"cf:a": row} for row in ROWS)


def count_up(connection: Connection, row: bytes) -> int:
    for _ in range(TIMES):
        connection.table(TABLE).counter_inc(row, b"cf:n")
    return TIMES


@pytest.mark.essential
def test_parent_and_children_read_their_own_rows_and_every_increment_counts(
    connection: Connection, request: pytest.FixtureRequest
) -> None:
    row = request.node.name.encode()
    table = connection.table(TABLE)
    table.delete(row)
    assert wrong_answers(connection) == 0
    wrong: list[int] = []
    read, count = partial(wrong_answers, connection), partial(count_up, connection, row)
    assert in_children([read] * CHILDREN, lambda: wrong.append(read())) == [0] * CHILDREN
    assert wrong == [0]
    assert in_children([count] * CHILDREN, count) == [TIMES] * CHILDREN
    assert table.counter_get(row, b"cf:n") == TIMES * (CHILDREN + 1)
