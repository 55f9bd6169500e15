"""Thrift gateways with Kerberos: SASL in each protection, SPNEGO on HTTP and HTTPS, impersonation, and refusals."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

import metaclient
from metaclient import AccessDenied, AuthenticationFailed, ConfigError, Connection, MetaClientError
from metaclient_local_hbase import LocalHBase
from tests.secure.conftest import gateway_of

BIG = b"x" * 1_000_000


@pytest.fixture(scope="module")
def https_url(secure_hbase: LocalHBase) -> Iterator[str]:
    with gateway_of(secure_hbase, "thrift2+https") as url:
        yield url


@pytest.fixture
def table_name(alice: Connection) -> str:
    with contextlib.suppress(metaclient.TableExists):
        alice.create_table("gateway", {"f": {}})
    return "gateway"


def connect(hbase: LocalHBase, url: str, user: str = "alice", **options: Any) -> Connection:
    return metaclient.connect(url, config=hbase.client_config, open_timeout_s=60, **hbase.identity(user), **options)


def write_and_read(connection: Connection, name: str) -> None:
    table = connection.table(name)
    table.put(b"big", {b"f:q": BIG})
    assert table.row(b"big") == {b"f:q": BIG}
    with table.batch() as batch:
        for number in range(200):
            batch.put(b"r%03d" % number, {b"f:q": b"%d" % number})
    assert len(list(table.scan(row_prefix=b"r"))) == 200


def test_sasl_with_privacy_reads_and_writes_as_the_user(
    secure_hbase: LocalHBase, sasl_url: str, table_name: str
) -> None:
    with connect(secure_hbase, sasl_url) as connection:
        write_and_read(connection, table_name)
    with (
        connect(secure_hbase, sasl_url, "bob") as connection,
        pytest.raises(AccessDenied, match=r"Insufficient permissions.*grant 'bob', 'R', 'gateway'"),
    ):
        connection.table(table_name).row(b"big")


@pytest.mark.parametrize("scheme", ["thrift1+sasl", "thrift2+sasl"])
@pytest.mark.parametrize("protection", ["authentication", "integrity"])
def test_other_protections_and_thrift_1(
    secure_hbase: LocalHBase, table_name: str, scheme: str, protection: str
) -> None:
    with (
        gateway_of(secure_hbase, scheme, protection=protection) as url,
        connect(secure_hbase, url) as connection,
    ):
        write_and_read(connection, table_name)
        with pytest.raises(AuthenticationFailed, match=f"offers the protections {protection}, and the client privacy"):
            metaclient.connect(
                url,
                open_timeout_s=60,
                config={
                    "hbase.thrift.kerberos.principal": "hbase/_HOST@TEST.LOCAL",
                    "hbase.thrift.security.qop": "privacy",
                },
                **secure_hbase.identity("alice"),
            )


def test_sasl_that_does_not_fit_is_named(secure_hbase: LocalHBase, sasl_url: str) -> None:
    plain = sasl_url.replace("+sasl", "")
    with pytest.raises(MetaClientError, match=r"thrift2\+sasl://.*hbase.thrift.security.qop"):
        metaclient.connect(plain, open_timeout_s=30)
    with pytest.raises(ConfigError, match="no SASL with framed transport"):
        connect(secure_hbase, f"{sasl_url}?transport=framed")
    wrong = {"hbase.thrift.kerberos.principal": "HTTP/_HOST@TEST.LOCAL"}
    with pytest.raises(AuthenticationFailed, match=r"HTTP/localhost@TEST.LOCAL: .*GSS initiate failed"):
        metaclient.connect(sasl_url, config=wrong, open_timeout_s=60, **secure_hbase.identity("alice"))
    without = secure_hbase.thrift2_url.replace("thrift2://127.0.0.1", "thrift2+sasl://localhost")
    with pytest.raises(MetaClientError, match=r"hbase.thrift.security.qop is not set"):
        connect(secure_hbase, without, rpc_timeout_s=5, operation_timeout_s=5)


def test_https_with_spnego_and_impersonation(secure_hbase: LocalHBase, https_url: str, table_name: str) -> None:
    ca = secure_hbase.tls_files()["ca"]
    with connect(secure_hbase, https_url, ca=ca) as connection:
        table = connection.table(table_name)
        table.put(b"big", {b"f:q": BIG})
        assert table.row(b"big") == {b"f:q": BIG}
    with (
        connect(secure_hbase, https_url, ca=ca, do_as="bob") as connection,
        pytest.raises(AccessDenied, match=r"Insufficient permissions.*grant 'bob', 'R', 'gateway'"),
    ):
        connection.table(table_name).row(b"big")
    with pytest.raises(AccessDenied, match=r"act as alice \(HTTP 500\).*proxyuser"):
        connect(secure_hbase, https_url, "bob", ca=ca, do_as="alice").table(table_name).row(b"big")


def test_http_without_a_ticket_and_https_with_an_unknown_authority_are_named(
    secure_hbase: LocalHBase, https_url: str
) -> None:
    ca = secure_hbase.tls_files()["ca"]
    with pytest.raises(AuthenticationFailed, match=r"a request without a ticket \(HTTP 401\)"):
        metaclient.connect(https_url, ca=ca, open_timeout_s=60)
    with pytest.raises(MetaClientError, match="certificate"):
        connect(secure_hbase, https_url, operation_timeout_s=5)


def test_https_scans(secure_hbase: LocalHBase, https_url: str, table_name: str) -> None:
    ca = secure_hbase.tls_files()["ca"]
    with connect(secure_hbase, https_url, ca=ca, operation_timeout_s=10) as connection:
        write_and_read(connection, table_name)
