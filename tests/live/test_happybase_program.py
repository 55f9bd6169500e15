"""The cases of happybase's own suite on a real HBase: plain happybase, and ``import metaclient as happybase``."""

from __future__ import annotations

from urllib.parse import urlsplit

import happybase
import pytest

import metaclient
from metaclient_local_hbase import LocalHBase

pytest.register_assert_rewrite("tests.contract.happybase_program")
from tests.contract.happybase_program import HappybaseProgram, Program, WithCompaction  # noqa: E402


def address(hbase: LocalHBase) -> dict[str, object]:
    """Of the first Thrift 1 gateway, as happybase takes it."""
    parts = urlsplit("//" + urlsplit(hbase.thrift1_url).netloc.split(",")[0])
    return {"host": parts.hostname, "port": parts.port}


class TestHappybase(HappybaseProgram, WithCompaction):
    """What is asserted of the fake is true of HBase, or this fails."""

    @pytest.fixture
    def program(self, hbase: LocalHBase) -> Program:
        return Program(happybase, address(hbase))


class TestMetaclientByThrift1(HappybaseProgram, WithCompaction):
    @pytest.fixture
    def program(self, hbase: LocalHBase) -> Program:
        return Program(metaclient, address(hbase))


class TestMetaclientByThrift2(HappybaseProgram):
    @pytest.fixture
    def program(self, hbase: LocalHBase) -> Program:
        return Program(metaclient, {"url": hbase.thrift2_url})
