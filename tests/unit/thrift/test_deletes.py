"""Deletes as Thrift 2 structures, against the fake's gateway."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

import metaclient
from metaclient import Connection
from metaclient.model import LATEST_TIMESTAMP, Cell, CellType, Delete, Put, RowMutations
from metaclient_fake import FakeCluster

TABLE = b"t"


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    with FakeCluster(servers=1) as cluster:
        cluster.serve(thrift1_port=None, thrift2_port=0, rpc_port=None)
        with metaclient.connect(f"thrift2://127.0.0.1:{cluster.thrift2_port}") as made:
            made.create_table(TABLE, {"cf": {"max_versions": 9}})
            yield made


@pytest.mark.parametrize("stamps", list(itertools.permutations((2, LATEST_TIMESTAMP, 1))), ids=str)
@pytest.mark.parametrize("is_atomic", [False, True])
def test_several_markers_of_one_family_all_count(
    connection: Connection, stamps: tuple[int, ...], is_atomic: bool
) -> None:
    """In one TDelete the last of them would replace the others, and newer versions would stay."""
    row = b"%d-%s" % (is_atomic, b",".join(b"%d" % stamp for stamp in stamps))
    mutate = connection.engine.operations.mutate
    mutate(TABLE, Put(row, tuple(Cell(b"cf:q", stamp, b"v") for stamp in (1, 2, 3))))
    delete = Delete(row, tuple(Cell(b"cf", stamp, b"", CellType.DELETE_FAMILY) for stamp in stamps))
    mutate(TABLE, RowMutations(row, (delete,)) if is_atomic else delete)
    assert connection.table(TABLE).row(row) == {}
