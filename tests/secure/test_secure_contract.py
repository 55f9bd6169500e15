"""The contract over Kerberos with privacy, a token with integrity, TLS with certificates, and a gateway with SASL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import metaclient
from metaclient import Connection, Token
from metaclient_local_hbase import LocalHBase
from tests.contract.known_differences import mark_if_known
from tests.live.test_contract import Live


class Secure(Live):
    scheme = "hbase"

    @pytest.fixture(autouse=True)
    def _differs(self, request: pytest.FixtureRequest) -> None:
        mark_if_known(request, self.scheme, request.node.name)


class TestKerberosPrivacy(Secure):
    @pytest.fixture
    def backend_connection(self, secure_hbase: LocalHBase) -> Iterator[Connection]:
        with metaclient.connect(config=secure_hbase.client_config, **secure_hbase.identity("alice")) as connection:
            yield connection


class TestTokenIntegrity(Secure):
    @pytest.fixture
    def backend_connection(self, secure_hbase: LocalHBase, token: Token) -> Iterator[Connection]:
        properties = {"hbase.rpc.protection": "integrity"}
        with metaclient.connect(secure_hbase.native_url, config=properties, token=token) as connection:
            yield connection


class TestTlsMutual(Secure):
    @pytest.fixture
    def backend_connection(self, secure_hbase: LocalHBase, token: Token) -> Iterator[Connection]:
        with metaclient.connect(secure_hbase.native_url, token=token, **secure_hbase.tls_files()) as connection:
            yield connection


class TestThriftSasl(Secure):
    """A Thrift 2 gateway whose clients authenticate by SASL, with privacy."""

    scheme = "thrift2"

    @pytest.fixture
    def backend_connection(self, secure_hbase: LocalHBase, sasl_url: str) -> Iterator[Connection]:
        with metaclient.connect(
            sasl_url, config=secure_hbase.client_config, open_timeout_s=60, **secure_hbase.identity("alice")
        ) as connection:
            yield connection
