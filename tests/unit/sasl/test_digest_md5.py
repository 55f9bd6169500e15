"""DIGEST-MD5: the example of RFC 2831, both halves against each other, and messages that must be refused."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaclient.config.security import Protection, parse_protections
from metaclient.errors import AuthenticationFailed, ConfigError
from metaclient.protobuf import ProtocolError
from metaclient.wire.sasl.digest_layers import DigestLayer
from metaclient.wire.sasl.digest_md5 import DigestClient, DigestServer, parse_directives
from metaclient.wire.sasl.messages import SaslRefused, encode_refusal, parse_refusal
from metaclient.wire.sasl.rc4 import make_rc4, make_rc4_in_python

#: RFC 2831, section 4.
RFC_CHALLENGE = b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'


def rfc_client() -> DigestClient:
    return DigestClient("chris", "secret", cnonce="OA6MHXh6VqTrRk", digest_uri="imap/elwood.innosoft.com")


def halves(*protections: Protection, password: str = "c2VjcmV0") -> tuple[DigestClient, DigestServer]:
    client = DigestClient("dXNlcg==", password, cnonce="cn", protections=protections or (Protection.AUTHENTICATION,))
    return client, DigestServer(lambda user: "c2VjcmV0", nonce="sn")


def layers(cipher: str | None) -> tuple[DigestLayer, DigestLayer]:
    secret = bytes(range(16))
    return (
        DigestLayer(secret, cipher=cipher, is_client=True),
        DigestLayer(secret, cipher=cipher, is_client=False),
    )


def test_example_of_rfc_2831_has_its_bytes() -> None:
    client = rfc_client()
    assert client.begin() == b""
    sent = parse_directives(client.step(RFC_CHALLENGE) or b"")
    assert sent["response"] == "d388dad90d4bbd760a152321f2143af7"
    assert sent["nc"] == "00000001"
    assert client.step(b"rspauth=ea40f60335c427b5527b84dbabcdfffd") is None
    assert client.is_complete


def test_wrong_rspauth_ends_the_handshake_and_nothing_is_sent_after_it() -> None:
    client = rfc_client()
    client.step(RFC_CHALLENGE)
    with pytest.raises(AuthenticationFailed, match="rspauth"):
        client.step(b"rspauth=ea40f60335c427b5527b84dbabcdfffe")
    assert not client.is_complete


@pytest.mark.parametrize(
    ("challenge", "text"),
    [
        (b'realm="r",qop="auth",algorithm=md5-sess', "no nonce"),
        (b'nonce="n",algorithm=md5', "algorithm 'md5'"),
        (b'nonce="n"', "algorithm ''"),
        (b'nonce="n",algorithm=md5-sess,qop="auth-conf"', "offers the protections privacy"),
        (b'nonce="n', "malformed"),
        (b"nonce", "malformed"),
        (b"x" * 5000, "the limit is"),
    ],
)
def test_bad_challenge_is_refused_by_the_client(challenge: bytes, text: str) -> None:
    with pytest.raises(AuthenticationFailed, match=text):
        rfc_client().step(challenge)


def test_challenge_without_qop_means_authentication() -> None:
    sent = parse_directives(rfc_client().step(b'nonce="n",algorithm=md5-sess') or b"")
    assert sent["qop"] == "auth"


def test_privacy_without_a_known_cipher_names_the_ciphers_of_the_server() -> None:
    client, _ = halves(Protection.PRIVACY)
    with pytest.raises(AuthenticationFailed, match="3des,des"):
        client.step(b'nonce="n",algorithm=md5-sess,qop="auth-conf",cipher="3des,des"')


@pytest.mark.parametrize("protection", Protection)
def test_both_halves_agree_on_every_protection(protection: Protection) -> None:
    client, server = halves(protection)
    response = client.step(server.challenge())
    assert response is not None
    assert client.step(server.evaluate(response)) is None
    assert server.username == "dXNlcg=="
    if protection is Protection.AUTHENTICATION:
        assert client.layer is None
        assert server.layer is None
    else:
        assert client.layer is not None
        assert server.layer is not None
        assert server.layer.unwrap(client.layer.wrap(b"to the server")) == b"to the server"
        assert client.layer.unwrap(server.layer.wrap(b"to the client")) == b"to the client"


def test_wrong_password_is_refused_with_the_text_of_java() -> None:
    client, server = halves(password="d3Jvbmc=")
    with pytest.raises(SaslRefused, match=r"Mismatched response\."):
        server.evaluate(client.step(server.challenge()) or b"")


def test_response_to_the_nonce_of_another_handshake_is_refused() -> None:
    client, server = halves()
    response = client.step(server.challenge()) or b""
    with pytest.raises(SaslRefused):
        DigestServer(lambda user: "c2VjcmV0", nonce="other").evaluate(response)


@pytest.mark.parametrize("cipher", [None, "rc4", "rc4-56", "rc4-40"])
def test_thousand_random_messages_survive_both_directions(cipher: str | None) -> None:
    client, server = layers(cipher)
    rng = random.Random(7)
    for _ in range(1000):
        data = rng.randbytes(rng.choice((0, 1, 15, 16, 17, 100)))
        assert server.unwrap(client.wrap(data)) == data
        assert client.unwrap(server.wrap(data)) == data


@pytest.mark.parametrize("cipher", [None, "rc4"])
def test_changed_repeated_swapped_or_cut_message_is_detected(cipher: str | None) -> None:
    client, server = layers(cipher)
    first, second = client.wrap(b"first"), client.wrap(b"second")
    with pytest.raises(ProtocolError, match="message 1 came where 0"):
        server.unwrap(second)
    assert server.unwrap(first) == b"first"
    with pytest.raises(ProtocolError, match="message 0 came where 1"):
        server.unwrap(first)
    with pytest.raises(ProtocolError, match="too short"):
        server.unwrap(second[-15:])
    for at in range(len(second)):
        changed = bytearray(second)
        changed[at] ^= 1
        _, fresh = layers(cipher)
        fresh.unwrap(first)
        with pytest.raises(ProtocolError):
            fresh.unwrap(bytes(changed))


@given(key=st.binary(min_size=1, max_size=16), pieces=st.lists(st.binary(max_size=300), max_size=5))
def test_rc4_in_python_and_by_the_library_are_equal(key: bytes, pieces: list[bytes]) -> None:
    algorithms = pytest.importorskip("cryptography.hazmat.decrepit.ciphers.algorithms")
    if len(key) * 8 not in algorithms.ARC4.key_sizes:
        return
    mine, other = make_rc4_in_python(key), make_rc4(key)
    assert [mine(piece) for piece in pieces] == [other(piece) for piece in pieces]


def test_rc4_has_the_bytes_of_rfc_6229() -> None:
    assert make_rc4_in_python(bytes(range(1, 17)))(bytes(16)).hex() == "9ac7cc9a609d1ef7b2932899cde41b97"


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.text(st.characters(codec="latin-1"), max_size=20)))
def test_quoted_directives_survive_commas_quotes_and_backslashes(values: dict[str, str]) -> None:
    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    text = ",".join(f"{name}={quoted(value)}" for name, value in values.items())
    assert parse_directives(text.encode("latin-1")) == values


@given(st.binary(max_size=200))
def test_any_bytes_as_a_challenge_raise_only_authentication_failed(data: bytes) -> None:
    client = DigestClient("u", "p", cnonce="c")
    try:
        client.step(data)
    except AuthenticationFailed:
        assert not client.is_complete


def test_repr_of_a_client_has_no_password() -> None:
    assert "secret" not in repr(rfc_client())


@pytest.mark.parametrize("text", [None, "", "Mismatched response."])
def test_refusal_is_parsed_at_its_last_byte_and_not_before(text: str | None) -> None:
    data = encode_refusal("a.B", text)
    assert all(parse_refusal(data[:size]) is None for size in range(4, len(data)))
    found = parse_refusal(data)
    assert found is not None
    assert (found.java_class_name, str(found)) == ("a.B", text or "no reason given")


def test_refusal_with_a_huge_text_is_no_refusal() -> None:
    with pytest.raises(ProtocolError, match="announces a text"):
        parse_refusal(bytes.fromhex("000000017fffffff"))


def test_unknown_protection_is_refused_with_the_known_ones() -> None:
    assert parse_protections("auth-conf,integrity,privacy") == (Protection.PRIVACY, Protection.INTEGRITY)
    for text in ("private", " , "):
        with pytest.raises(ConfigError, match="authentication, integrity, privacy"):
            parse_protections(text)
