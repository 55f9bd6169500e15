"""Kerberos, tokens and TLS on a real HBase: identities, protections, permissions, and what errors say."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import metaclient
from metaclient import AccessDenied, AuthenticationFailed, BatchError, Connection, MetaClientError, Token
from metaclient.errors import KdcUnreachable
from metaclient_local_hbase import LocalHBase
from tests.secure.tickets import make_cache

BIG = b"x" * 3_000_000


@pytest.fixture
def table_name(alice: Connection) -> str:
    with suppress(metaclient.TableExists):
        alice.create_table("identity", {"f": {}})
    return "identity"


def servers(hbase: LocalHBase, **properties: str) -> dict[str, str]:
    """The properties of a client, with some of them replaced."""
    given = {
        "hbase.security.authentication": "kerberos",
        "hbase.master.kerberos.principal": "hbase/_HOST@TEST.LOCAL",
        "hbase.regionserver.kerberos.principal": "hbase/_HOST@TEST.LOCAL",
    }
    return {**given, **{name.replace("_", "."): value for name, value in properties.items()}}


@contextmanager
def refused(kind: type[MetaClientError], text: str) -> Iterator[Any]:
    with pytest.raises(kind, match=text) as caught:
        yield caught
    assert not caught.value.may_have_applied
    assert len(str(caught.value).splitlines()) == 1


# -- identities ----------------------------------------------------------------------------------------------------


@pytest.mark.essential
def test_servers_see_the_user_of_the_keytab_the_token_and_the_impersonated_one(
    secure_hbase: LocalHBase, alice: Connection, token: Token
) -> None:
    assert alice.whoami() == ("alice", "KERBEROS")
    with metaclient.connect(config=servers(secure_hbase), url=secure_hbase.native_url, token=token) as by_token:
        assert by_token.whoami() == ("alice", "TOKEN")
        with refused(AccessDenied, "only allowed for Kerberos"):
            by_token.delegation_token()
    with metaclient.connect(config=secure_hbase.client_config, do_as="bob", **secure_hbase.identity("alice")) as as_bob:
        assert as_bob.whoami() == ("bob", "PROXY")


def test_impersonation_that_the_servers_do_not_allow_is_final(secure_hbase: LocalHBase) -> None:
    options = {"config": secure_hbase.client_config, "do_as": "alice", **secure_hbase.identity("bob")}
    with refused(AccessDenied, r"not allowed to impersonate alice.*proxyuser"):
        metaclient.connect(**options).tables()


@pytest.mark.essential
@pytest.mark.parametrize("protection", ["authentication", "integrity", "privacy"])
def test_every_protection_carries_three_megabytes(
    secure_hbase: LocalHBase, token: Token, table_name: str, protection: str
) -> None:
    properties = servers(secure_hbase, hbase_rpc_protection=protection)
    for identity in (secure_hbase.identity("alice"), {"token": token}):
        with metaclient.connect(secure_hbase.native_url, config=properties, **identity) as connection:
            table = connection.table(table_name)
            table.put(b"big", {b"f:q": BIG})
            assert table.row(b"big") == {b"f:q": BIG}
            assert [row for row, _ in table.scan(row_prefix=b"big")] == [b"big"]


@pytest.mark.parametrize("kind", ["Kerberos", "token"])
@pytest.mark.parametrize("protection", ["authentication", "integrity", "privacy"])
def test_eight_threads_share_a_connection_and_a_scan_has_what_they_wrote(
    secure_hbase: LocalHBase, token: Token, table_name: str, protection: str, kind: str
) -> None:
    """Threads write and read at once: the order of wrapped messages is that on the wire. Then 16 MB are scanned."""
    properties = servers(secure_hbase, hbase_rpc_protection=protection)
    identity = {"token": token} if kind == "token" else secure_hbase.identity("alice")
    with metaclient.connect(secure_hbase.native_url, config=properties, **identity) as connection:
        table, runtime = connection.table(table_name), connection.engine.runtime
        prefix = f"threads-{kind}-{protection}-".encode()

        def work(number: int) -> dict[bytes, bytes]:
            own = {prefix + b"%d-%03d" % (number, at): b"%d" % at * 20_000 for at in range(50)}
            for row, value in own.items():
                table.put(row, {b"f:q": value})
                assert table.row(row) == {b"f:q": value}
            return own

        tasks = [runtime.start(work, number, name="work") for number in range(8)]
        written: dict[bytes, bytes] = {}
        for task in tasks:
            written |= task.result()
        assert {row: cells[b"f:q"] for row, cells in table.scan(row_prefix=prefix)} == written


def test_registry_of_masters_is_authenticated_too(secure_hbase: LocalHBase, token: Token) -> None:
    master = secure_hbase._layout.process("master").port
    for identity in (secure_hbase.identity("alice"), {"token": token}):
        with metaclient.connect(
            f"hbase+rpc://localhost:{master}", config=servers(secure_hbase), **identity
        ) as connection:
            assert connection.whoami().username == "alice"


def test_registry_server_whose_principal_is_the_other_one_is_found(secure_hbase: LocalHBase) -> None:
    master = secure_hbase._layout.process("master").port
    properties = servers(secure_hbase, hbase_master_kerberos_principal="HTTP/_HOST@TEST.LOCAL")
    with metaclient.connect(
        f"hbase+rpc://localhost:{master}", config=properties, **secure_hbase.identity("alice")
    ) as connection:
        assert connection.whoami() == ("alice", "KERBEROS")


def test_new_ticket_is_used_for_the_next_connection_after_the_connection_broke(alice: Connection) -> None:
    assert alice.whoami().username == "alice"
    connections = alice._backend._connections  # type: ignore[attr-defined]
    for one in list(connections._open.values()):
        one.close()
    assert alice.whoami().username == "alice"


def test_ticket_of_another_user_is_used_for_the_next_connection(secure_hbase: LocalHBase, tmp_path: Path) -> None:
    """As after a `kinit` outside: the open connection keeps its user, the next one has the new one."""
    cache = tmp_path / "cache"
    make_cache(secure_hbase, cache)
    with metaclient.connect(config=secure_hbase.client_config, ccache=f"FILE:{cache}") as connection:
        assert connection.whoami() == ("alice", "KERBEROS")
        make_cache(secure_hbase, cache, "bob")
        assert connection.whoami() == ("alice", "KERBEROS")
        for one in list(connection._backend._connections._open.values()):  # type: ignore[attr-defined]
            one.close()
        assert connection.whoami() == ("bob", "KERBEROS")


def test_expired_ticket_says_kinit_and_the_open_connection_goes_on(secure_hbase: LocalHBase, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with metaclient.connect(config=secure_hbase.client_config, **secure_hbase.identity("alice")) as polls:
        make_cache(secure_hbase, cache, life_s=8)
        runtime = polls.engine.runtime
        end = runtime.now() + 60.0
        with metaclient.connect(config=secure_hbase.client_config, ccache=f"FILE:{cache}") as connection:
            assert connection.whoami() == ("alice", "KERBEROS")
            while runtime.now() < end:
                with metaclient.connect(config=secure_hbase.client_config, ccache=f"FILE:{cache}") as another:
                    try:
                        another.whoami()
                    except AuthenticationFailed as error:
                        text = str(error)
                        break
            else:
                pytest.fail("a ticket of 8 s did not expire within 60 s")
            assert re.search(r"ticket has expired: run `kinit -c .*cache`", text)
            assert connection.whoami() == ("alice", "KERBEROS")


# -- permissions ---------------------------------------------------------------------------------------------------


@pytest.mark.essential
@pytest.mark.parametrize(
    "call",
    [
        lambda connection, name: connection.table(name).row(b"r"),
        lambda connection, name: connection.table(name).put(b"r", {b"f:q": b"1"}),
        lambda connection, name: list(connection.table(name).scan()),
        lambda connection, name: connection.table(name).counter_inc(b"r", b"f:n"),
        lambda connection, name: connection.create_table("never", {"f": {}}),
        lambda connection, name: connection.disable_table(name),
    ],
    ids=["get", "put", "scan", "increment", "create", "disable"],
)
def test_user_without_rights_is_denied_at_once(
    bob: Connection, table_name: str, call: Callable[[Connection, str], object]
) -> None:
    with refused(AccessDenied, "Insufficient permissions") as caught:
        call(bob, table_name)
    assert len(caught.value.attempts) <= 1


def test_batch_names_the_rows_that_were_refused(bob: Connection, table_name: str) -> None:
    with pytest.raises(BatchError) as caught, bob.table(table_name).batch() as batch:
        batch.put(b"a", {b"f:q": b"1"})
        batch.put(b"b", {b"f:q": b"1"})
    assert {row: type(error) for row, error in caught.value.failed.items()} == {b"a": AccessDenied, b"b": AccessDenied}
    assert not caught.value.may_have_applied


def test_tables_that_a_user_may_not_read_are_not_listed(bob: Connection, alice: Connection, table_name: str) -> None:
    assert table_name.encode() in alice.tables()
    assert bob.tables() == []


# -- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.essential
def test_simple_client_is_told_that_the_cluster_uses_kerberos(secure_hbase: LocalHBase) -> None:
    with (
        metaclient.connect(secure_hbase.native_url) as connection,
        refused(AuthenticationFailed, r"(Authentication is required|requires authentication).*Kerberos") as caught,
    ):
        connection.table("identity").row(b"r")
    assert len(caught.value.attempts) <= 1


@pytest.mark.parametrize(
    ("principal", "text"),
    [
        ("HTTP/_HOST@TEST.LOCAL", r"HTTP/localhost@TEST.LOCAL.*GSS initiate failed"),
        ("nobody/_HOST@TEST.LOCAL", r"does not know the principal nobody/localhost@TEST.LOCAL"),
    ],
)
def test_wrong_principal_of_the_servers_is_named(secure_hbase: LocalHBase, principal: str, text: str) -> None:
    properties = servers(secure_hbase, hbase_regionserver_kerberos_principal=principal)
    with (
        metaclient.connect(secure_hbase.native_url, config=properties, **secure_hbase.identity("alice")) as connection,
        refused(AuthenticationFailed, text),
    ):
        connection.table("identity").row(b"r")


def test_missing_and_foreign_keys_say_which_file(secure_hbase: LocalHBase, tmp_path: Path) -> None:
    keytab = secure_hbase.identity("bob")["keytab"]
    no_keytab = tmp_path / "text"
    no_keytab.write_text("no keytab")
    for options, text in (
        ({"principal": "alice@TEST.LOCAL", "keytab": str(tmp_path / "none")}, "keytab .*none cannot be read"),
        ({"principal": "alice@TEST.LOCAL", "keytab": str(no_keytab)}, "is not a keytab"),
        ({"principal": "alice@TEST.LOCAL", "keytab": keytab}, "gives no ticket for alice@TEST.LOCAL"),
        ({"ccache": str(tmp_path / "cache")}, "there is no Kerberos ticket.*kinit -c"),
    ):
        with (
            metaclient.connect(config=secure_hbase.client_config, **options) as connection,
            refused(AuthenticationFailed, text),
        ):
            connection.table("identity").row(b"r")


def test_changed_token_is_refused_and_its_password_is_in_no_log_or_error(
    secure_hbase: LocalHBase, token: Token, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = Token(token.identifier, bytes(20), token.cluster_id)
    with caplog.at_level(logging.DEBUG):
        with metaclient.connect(secure_hbase.native_url, token=token) as connection:
            connection.whoami()
        with (
            metaclient.connect(secure_hbase.native_url, token=wrong) as connection,
            refused(AuthenticationFailed, r"token of alice@TEST.LOCAL.*Mismatched response") as caught,
        ):
            connection.whoami()
    shown = f"{caplog.text} {caught.value} {caught.value.detail} {token!r} {connection!r} {connection.config!r}"
    for secret in (token.password, token.identifier):
        assert secret.hex() not in shown
        assert str(secret)[2:-1] not in shown


# -- TLS -----------------------------------------------------------------------------------------------------------


@pytest.mark.essential
def test_tls_with_a_client_certificate_below_kerberos_and_tokens(
    secure_hbase: LocalHBase, token: Token, table_name: str
) -> None:
    for identity in (secure_hbase.identity("alice"), {"token": token}):
        with metaclient.connect(
            secure_hbase.native_url, config=servers(secure_hbase), **identity, **secure_hbase.tls_files()
        ) as connection:
            table = connection.table(table_name)
            table.put(b"tls", {b"f:q": BIG})
            assert table.row(b"tls") == {b"f:q": BIG}


def test_jks_trust_store_has_the_same_certificates(secure_hbase: LocalHBase, token: Token, tmp_path: Path) -> None:
    files = secure_hbase.tls_files()
    store = tmp_path / "trust.jks"
    subprocess.run(
        ["keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", files["ca"], "-keystore", str(store),
         "-storetype", "JKS", "-storepass", "changeit"],
        check=True, capture_output=True,
    )  # fmt: skip
    properties = {
        "hbase.client.netty.tls.enabled": "true",
        "hbase.rpc.tls.truststore.location": str(store),
        "hbase.rpc.tls.truststore.password": "changeit",
        "hbase.rpc.tls.keystore.location": files["cert"],
    }
    with metaclient.connect(secure_hbase.native_url, config=properties, token=token) as connection:
        assert connection.whoami().username == "alice"


def test_certificates_that_are_missing_or_unknown_are_named(
    secure_hbase: LocalHBase, token: Token, tmp_path: Path
) -> None:
    files = secure_hbase.tls_files()
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "other.key", "-out", "other.pem",
         "-subj", "/CN=other"], cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    other = str(tmp_path / "other.pem")
    for options, text in (
        ({"ca": files["ca"]}, "does not accept the client's certificate"),
        ({"ca": other, "cert": files["cert"]}, "the server's certificate is not accepted"),
        ({"ca": files["ca"], "cert": other, "key": str(tmp_path / "other.key")}, "the client's certificate"),
    ):
        with (
            metaclient.connect(secure_hbase.native_url, token=token, **options) as connection,
            refused(AuthenticationFailed, text),
        ):
            connection.whoami()


def test_kerberos_server_that_is_down_is_named_and_may_be_asked_again(secure_hbase: LocalHBase, tmp_path: Path) -> None:
    """In a process of its own, because the library reads krb5.conf once."""
    (tmp_path / "krb5.conf").write_text(re.sub(r"kdc = .*", "kdc = 127.0.0.1:1", secure_hbase.krb5_conf.read_text()))
    program = (
        "import sys; from metaclient.wire.sasl.kerberos import *\n"
        "login, server = KerberosLogin(sys.argv[1], sys.argv[2]), ServerPrincipal('hbase', 'localhost', 'TEST.LOCAL')\n"
        "try: KerberosContext(login, server).step(None)\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    identity = secure_hbase.identity("alice")
    ran = subprocess.run(
        [sys.executable, "-c", program, identity["principal"], identity["keytab"]],
        env={**os.environ, "KRB5_CONFIG": str(tmp_path / "krb5.conf")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.startswith(KdcUnreachable.__name__)
    assert "KDC" in ran.stdout


def test_tickets_of_20_seconds_and_killed_connections_go_on_by_themselves(
    secure_hbase: LocalHBase, tmp_path: Path
) -> None:
    """In a process of its own, because the library reads krb5.conf once."""
    text = secure_hbase.krb5_conf.read_text()
    (tmp_path / "krb5.conf").write_text(text.replace("[libdefaults]", "[libdefaults]\n    ticket_lifetime = 20s"))
    identity = secure_hbase.identity("alice")
    ran = subprocess.run(
        [sys.executable, "-m", "tests.secure.renewing", str(secure_hbase.client_config), identity["principal"],
         identity["keytab"], "45"],
        env={**os.environ, "KRB5_CONFIG": str(tmp_path / "krb5.conf")},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert int(ran.stdout) >= 5
