"""The cases of happybase's own suite: plain happybase on the served fake, and ``import metaclient as happybase``."""

from __future__ import annotations

from collections.abc import Iterator

import happybase
import pytest

import metaclient
from metaclient_fake import FakeCluster

pytest.register_assert_rewrite("tests.contract.happybase_program")
from tests.contract.happybase_program import HappybaseProgram, Program, WithCompaction  # noqa: E402


@pytest.fixture(scope="module")
def served() -> Iterator[FakeCluster]:
    with FakeCluster(servers=3, meta_replicas=3) as cluster:
        cluster.serve()
        yield cluster


class TestHappybase(HappybaseProgram, WithCompaction):
    """Plain happybase against the fake's Thrift 1."""

    @pytest.fixture
    def program(self, served: FakeCluster) -> Program:
        return Program(happybase, {"host": "127.0.0.1", "port": served.thrift1_port})


class TestHappybaseFramed(TestHappybase):
    @pytest.fixture
    def program(self, served: FakeCluster) -> Program:
        return Program(happybase, {"host": "127.0.0.1", "port": served.thrift1_port, "transport": "framed"})


class TestHappybaseOfOldHBase(TestHappybase):
    """Its compatibility mode for 0.90 uses other calls: scannerOpen, scannerOpenWithStop and their Ts."""

    @pytest.fixture
    def program(self, served: FakeCluster) -> Program:
        return Program(happybase, {"host": "127.0.0.1", "port": served.thrift1_port, "compat": "0.90"})

    @pytest.fixture(autouse=True)
    def _what_it_lacks(self, request: pytest.FixtureRequest) -> None:
        words = ("reverse", "filter", "pieces", "sorts", "by_range")
        if any(word in request.node.originalname for word in words):
            pytest.skip("happybase itself refuses filters, sorting, reverse and batching with compat=0.90")


class TestMetaclientByThrift1(HappybaseProgram, WithCompaction):
    """The port of a happybase program is its import."""

    @pytest.fixture
    def program(self, served: FakeCluster) -> Program:
        return Program(metaclient, {"host": "127.0.0.1", "port": served.thrift1_port})


class TestMetaclientByThrift2(HappybaseProgram):
    @pytest.fixture
    def program(self, served: FakeCluster) -> Program:
        assert served.front is not None
        return Program(metaclient, {"url": served.front.thrift2_url})


class TestMetaclientInProcess(HappybaseProgram, WithCompaction):
    @pytest.fixture
    def program(self) -> Program:
        return Program(metaclient, {"url": "fake:happybase-program"})
