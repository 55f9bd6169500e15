"""Six public programs see the same with happybase and with ``import metaclient as happybase``."""

from __future__ import annotations

from collections.abc import Iterator

import happybase
import pytest

import metaclient
from metaclient_fake import FakeCluster
from tests.contract.public_happybase_programs import PROGRAMS, Address


@pytest.fixture(scope="module")
def address() -> Iterator[Address]:
    with FakeCluster(servers=2) as cluster:
        cluster.serve()
        yield {"host": "127.0.0.1", "port": cluster.thrift1_port}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_program_sees_the_same_with_metaclient(program: object, address: Address) -> None:
    assert callable(program)
    expected = program(happybase, address)
    assert program(metaclient, address) == expected
    assert expected
