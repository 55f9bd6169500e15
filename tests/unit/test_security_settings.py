"""Identity and TLS from properties, options and environment: what is chosen, and which contradictions are refused."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import metaclient
from metaclient.config import Config
from metaclient.config.security import Protection, SecuritySettings
from metaclient.config.tokens import Token, parse_token_file, read_token_file
from metaclient.errors import ConfigError, Unsupported
from metaclient.protobuf import varint
from metaclient.wire.trust_store import parse_jks

SERVERS = {
    "hbase.security.authentication": "kerberos",
    "hbase.master.kerberos.principal": "hbase/_HOST@R",
    "hbase.regionserver.kerberos.principal": "hbase/_HOST@R",
}
PASSWORD = b"never to be shown"


def settings(properties: dict[str, str] | None = None, **options: object) -> SecuritySettings:
    environment = options.pop("environment", {})
    return SecuritySettings.of(Config.of(properties, **options), environment=environment)  # type: ignore[arg-type]


def identifier(username: str = "alice", issued: int = 1_000, expires: int = 11_000) -> bytes:
    body = b"\x08\x00\x12" + varint(len(username)) + username.encode()
    body += b"\x18\x05\x20" + varint(issued) + b"\x28" + varint(expires)
    return len(body).to_bytes(4, "big") + body


def token(cluster_id: str = "c1", **fields: int) -> Token:
    return Token(identifier(**fields), PASSWORD, cluster_id)  # type: ignore[arg-type]


def vint(number: int) -> bytes:
    """Hadoop's variable-length int."""
    if number < 128:
        return bytes((number,))
    raw = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return bytes((144 - len(raw),)) + raw


def token_file(*entries: tuple[bytes, bytes, bytes, bytes]) -> bytes:
    data = b"HDTS\0" + vint(len(entries))
    for parts in entries:
        data += b"".join(vint(len(part)) + part for part in (b"alias", *parts))
    return data + vint(1) + vint(4) + b"name" + vint(300) + b"v" * 300


def hbase_entry(cluster_id: bytes = b"c1") -> tuple[bytes, bytes, bytes, bytes]:
    return identifier(), PASSWORD, b"HBASE_AUTH_TOKEN", cluster_id


OTHER_ENTRY = (b"\x00" * 200, b"p" * 20, b"HDFS_DELEGATION_TOKEN", b"127.0.0.1:8020")


# -- what is chosen ------------------------------------------------------------------------------------------------


def test_nothing_given_is_simple_authentication_without_tls() -> None:
    assert settings() == SecuritySettings()


def test_properties_of_a_secure_cluster_are_read_as_they_are() -> None:
    read = settings(
        {
            **SERVERS,
            "hbase.rpc.protection": "privacy,integrity",
            "hbase.ipc.client.fallback-to-simple-auth-allowed": "true",
            "hbase.unsafe.client.kerberos.hostname.disable.reversedns": "true",
            "hbase.client.keytab.file": "/k",
            "hbase.client.keytab.principal": "me@R",
        }
    )
    assert read.is_kerberos
    assert read.protections == (Protection.PRIVACY, Protection.INTEGRITY)
    assert read.is_fallback_allowed
    assert not read.resolves_names
    assert (read.keytab, read.principal) == ("/k", "me@R")


def test_core_site_beside_the_hbase_site_is_read(tmp_path: Path) -> None:
    def write(name: str, **properties: str) -> None:
        lines = "".join(f"<property><name>{k}</name><value>{v}</value></property>" for k, v in properties.items())
        (tmp_path / name).write_text(f"<configuration>{lines}</configuration>")

    write("hbase-site.xml", **SERVERS)
    write("core-site.xml", **{"hadoop.security.authentication": "simple", "hbase.rpc.timeout": "1"})
    config = Config.of(tmp_path)
    assert config.properties["hadoop.security.authentication"] == "simple"
    with pytest.raises(ConfigError, match=r"hbase.security.authentication=kerberos contradicts hadoop.security"):
        SecuritySettings.of(config)
    write("hbase-site.xml", **{"hbase.rpc.timeout": "5000"})
    assert Config.of(tmp_path).rpc_timeout_s == 5.0  # hbase-site.xml wins


def test_identity_implies_kerberos_and_tls_files_imply_tls() -> None:
    servers = {name: value for name, value in SERVERS.items() if "principal" in name}
    assert settings(servers, principal="me@R", keytab="/k").is_kerberos
    assert settings(token=token()).is_kerberos
    assert settings(ca="/ca.pem").tls is not None
    assert settings(verify=False).tls is not None
    assert settings({"hbase.client.netty.tls.enabled": "true"}).tls is not None


def test_service_has_the_principal_of_its_server() -> None:
    read = settings(
        {
            **SERVERS,
            "hbase.master.kerberos.principal": "m/_HOST@R",
            "hbase.regionserver.kerberos.principal": "r/_HOST@R",
        }
    )
    assert read.principals_of("ClientService") == read.principals_of("AdminService") == ("r/_HOST@R",)
    assert read.principals_of("MasterService") == ("m/_HOST@R",)
    assert read.principals_of("ClientMetaService") == ("m/_HOST@R", "r/_HOST@R")
    assert settings(SERVERS).principals_of("ClientMetaService") == ("hbase/_HOST@R",)


def test_token_of_the_environment_is_used_unless_an_option_names_an_identity(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_bytes(token_file(OTHER_ENTRY, hbase_entry()))
    environment = {"HADOOP_TOKEN_FILE_LOCATION": str(path)}
    assert settings(SERVERS, environment=environment).tokens == (token(),)
    assert settings(SERVERS, environment=environment, principal="me@R", keytab="/k").tokens == ()
    assert settings({}, environment=environment).tokens == ()  # simple authentication needs none
    mine = token("c2")
    assert settings(SERVERS, environment=environment, token=mine).tokens == (mine,)


def test_tls_stores_of_hbase_are_read() -> None:
    tls = settings(
        {
            "hbase.client.netty.tls.enabled": "true",
            "hbase.rpc.tls.truststore.location": "/trust.jks",
            "hbase.rpc.tls.truststore.password": "secret1",
            "hbase.rpc.tls.keystore.location": "/me.pem",
            "hbase.client.netty.tls.verify.server.hostname": "false",
            "hbase.client.netty.tls.handshaketimeout": "1500",
            "hbase.rpc.tls.protocol": "TLSv1.2",
        }
    ).tls
    assert tls is not None
    assert (tls.ca, tls.ca_password, tls.cert, tls.verifies_hostname) == ("/trust.jks", "secret1", "/me.pem", False)
    assert (tls.handshake_s, tls.version_min, tls.version_max) == (1.5, "TLSv1.2", "TLSv1.2")


# -- what is refused -----------------------------------------------------------------------------------------------

TLS_ON = {"hbase.client.netty.tls.enabled": "true"}


@pytest.mark.parametrize(
    ("properties", "options", "names"),
    [
        ({"hbase.rpc.protection": "privacy"}, {}, ("hbase.rpc.protection", "hbase.security.authentication=simple")),
        ({"hbase.security.authentication": "simple"}, {"keytab": "/k"}, ("keytab", "authentication=simple")),
        ({"hbase.security.authentication": "simple"}, {"token": token()}, ("token", "authentication=simple")),
        (SERVERS, {"keytab": "/k"}, ("keytab", "principal")),
        (SERVERS, {"keytab": "/k", "principal": "p", "ccache": "/c"}, ("keytab", "ccache")),
        (SERVERS, {"token": token(), "keytab": "/k"}, ("token", "keytab")),
        (SERVERS, {"token": token(), "do_as": "bob"}, ("do_as", "token")),
        ({}, {"do_as": "bob"}, ("do_as", "hbase.security.authentication=kerberos")),
        ({}, {"principal": "me@R"}, ("Kerberos", "hbase.regionserver.kerberos.principal")),
        ({"hbase.security.authentication": "ldap"}, {}, ("hbase.security.authentication", "simple and kerberos")),
        ({"hbase.client.netty.tls.enabled": "false"}, {"ca": "/c"}, ("ca", "hbase.client.netty.tls.enabled=false")),
        ({"hbase.client.netty.tls.enabled": "false"}, {"verify": False}, ("verify", "tls.enabled=false")),
        ({}, {"key": "/k"}, ("key", "cert")),
        ({}, {"ca": "/c", "verify": False}, ("ca", "verify=False")),
        ({"hbase.client.netty.tls.enabled": "yes"}, {}, ("hbase.client.netty.tls.enabled", "true or false")),
        ({**TLS_ON, "hbase.rpc.tls.protocol": "SSLv3"}, {}, ("hbase.rpc.tls.protocol", "TLSv1.2")),
        ({**TLS_ON, "hbase.client.netty.tls.handshaketimeout": "0"}, {}, ("handshaketimeout", "milliseconds")),
        ({**TLS_ON, "hbase.rpc.tls.keystore.location": "/me.jks"}, {}, ("keystore.location", "keytool")),
        ({**TLS_ON, "hbase.rpc.tls.keystore.location": "/me.p12", "hbase.rpc.tls.keystore.type": "PKCS12"}, {},
         ("keystore.location", "`openssl pkcs12 -in /me.p12")),
        (SERVERS, {"token": "text"}, ("token", "delegation_token")),
        ({"metaclient.token": "text"}, {}, ("metaclient.token", "HADOOP_TOKEN_FILE_LOCATION")),
        (SERVERS, {"do_as": "a\nb"}, ("do_as", "control character")),
    ],
)  # fmt: skip
def test_contradiction_is_refused_with_both_names(
    properties: dict[str, str], options: dict[str, object], names: tuple[str, str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(properties, **options)
    assert all(name in str(caught.value) for name in names)
    assert PASSWORD.decode() not in str(caught.value)


def test_backend_that_takes_no_identity_refuses_one() -> None:
    with pytest.raises(ConfigError, match="principal has no effect on the backend scripted:"):
        metaclient.connect("scripted:", keytab="/k", principal="p")


def test_user_of_the_url_contradicts_kerberos() -> None:
    with pytest.raises(ConfigError, match=r"user='bob'.*do_as"):
        metaclient.connect("hbase+rpc://h?user=bob", config=SERVERS)


# -- tokens --------------------------------------------------------------------------------------------------------


def test_token_shows_its_user_and_expiry_and_no_secret() -> None:
    made = token()
    assert (made.username, made.issued_ms, made.expires_ms, made.renew_ms) == ("alice", 1_000, 11_000, 9_000)
    config = Config.of(SERVERS, token=made)
    shown = " ".join(map(repr, (made, config, SecuritySettings.of(config), vars(settings)))) + str(made)
    assert "alice" in repr(made)
    assert PASSWORD.decode() not in shown
    assert made.identifier.hex() not in shown
    with pytest.raises(ConfigError) as caught:
        Config.of(SERVERS, token=made, retries="x")
    assert PASSWORD.decode() not in str(caught.value)


def test_token_survives_pickle_and_is_equal_by_what_it_stands_for() -> None:
    made = token()
    again = pickle.loads(pickle.dumps(made))
    assert again == made
    assert again.password == PASSWORD
    assert hash(again) == hash(made)
    assert made != token("c2")
    assert made != token(expires=12_000)


@pytest.mark.parametrize("raw", [b"", b"\0\0\0\5ab", b"\0\0\0\2\x12\xff"])
def test_identifier_of_no_token_is_refused(raw: bytes) -> None:
    with pytest.raises(ConfigError, match="identifier"):
        Token(raw, b"p", "c")


def test_token_file_cut_at_each_byte_is_refused() -> None:
    data = token_file(OTHER_ENTRY, hbase_entry())
    assert parse_token_file(data, "f") == (token(),)
    for size in range(len(data)):
        with pytest.raises(ConfigError):
            parse_token_file(data[:size], "f")


def test_token_file_in_protobuf_says_how_to_write_another() -> None:
    with pytest.raises(Unsupported, match="dtutil"):
        parse_token_file(b"HDTS\x01abc", "f")


def test_missing_token_file_names_its_variable(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="HADOOP_TOKEN_FILE_LOCATION"):
        read_token_file(tmp_path / "none")


# -- trust stores --------------------------------------------------------------------------------------------------


def jks(*certificates: bytes, password: str = "changeit", tag: int = 2) -> bytes:
    import hashlib

    data = bytes.fromhex("feedfeed00000002") + len(certificates).to_bytes(4, "big")
    for one in certificates:
        data += tag.to_bytes(4, "big") + b"\0\2ca" + bytes(8) + b"\0\5X.509" + len(one).to_bytes(4, "big") + one
    return data + hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + data).digest()


def test_trust_store_has_its_certificates_and_checks_its_password() -> None:
    data = jks(b"first", b"second")
    assert parse_jks(data, "f") == parse_jks(data, "f", "changeit") == [b"first", b"second"]
    with pytest.raises(ConfigError, match="password is wrong"):
        parse_jks(data, "f", "other")


def test_trust_store_cut_or_with_keys_or_of_another_kind_names_the_keytool_line() -> None:
    whole = jks(b"first")
    broken = [whole[:size] for size in range(len(whole))]
    for data in (*broken, jks(b"key", tag=1), b"PK\3\4" + bytes(40), whole[:-20] + b"more" + whole[-20:]):
        with pytest.raises(ConfigError, match="keytool -exportcert"):
            parse_jks(data, "f")
