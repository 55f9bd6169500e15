"""DIGEST-MD5 (RFC 2831) as HBase uses it for delegation tokens, for both ends.

1. The client sends an empty token.
2. The server sends a challenge: realm, nonce, protections (qop), ciphers.
3. The client answers with user, response and its choice of protection and cipher. The response proves that the client
   has the password.
4. The server sends ``rspauth``, which proves that the server has it, too. The client checks it and sends nothing.

Java's end of DIGEST-MD5 (com.sun.security.sasl.digest of JDK 8 to 21) accepts only the digest-uri ``null/default``:
HBase passes null as the protocol and "default" as the server's name.

DIVERGENCES from RFC 2831: user name and password are base64, so the charset makes no difference and ISO 8859-1 is not
tried; there is no subsequent authentication; of several realms the first is used.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from metaclient.config.security import Protection
from metaclient.errors import AuthenticationFailed
from metaclient.wire.sasl.digest_layers import CIPHER_KEY_BYTES, DigestLayer, md5
from metaclient.wire.sasl.messages import SaslRefused

__all__ = ["DIGEST_URI", "REALM", "DigestClient", "DigestServer", "make_response", "parse_directives"]

DIGEST_URI: Final = "null/default"
REALM: Final = "default"
_ALGORITHM: Final = "md5-sess"
#: RFC 2831, 2.1.1: a challenge has less than 2048 bytes, a response less than 4096. HBase's have 200 and 500.
_CHARS_MAX: Final = 4096
_MAX_BUFFER: Final = 65536
_NONCE_COUNT: Final = "00000001"
_DIRECTIVE = re.compile(r'[\s,]*([A-Za-z-]{1,32})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]*))\s*(?=,|$)', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_PROTECTED_END = ":" + 32 * "0"


def parse_directives(data: bytes) -> dict[str, str]:
    """Return the directives of a challenge or a response; the first of a name counts. AuthenticationFailed.

    >>> parse_directives(b'realm="a, b", qop="auth",maxbuf=5')
    {'realm': 'a, b', 'qop': 'auth', 'maxbuf': '5'}
    """
    if len(data) > _CHARS_MAX:
        raise AuthenticationFailed(f"a DIGEST-MD5 message of {len(data)} bytes: the limit is {_CHARS_MAX}")
    text = data.decode("latin-1")
    found: dict[str, str] = {}
    at = 0
    while text[at:].strip(" \t\r\n,"):
        match = _DIRECTIVE.match(text, at)
        if match is None:
            raise AuthenticationFailed("a DIGEST-MD5 message is malformed: it is no list of name=value")
        name, quoted, plain = match.groups()
        found.setdefault(name.lower(), plain if quoted is None else _ESCAPED.sub(r"\1", quoted))
        at = match.end()
    return found


def make_response(
    *, secret: bytes, nonce: str, cnonce: str, qop: str, digest_uri: str = DIGEST_URI, method: str = "AUTHENTICATE"
) -> str:
    """Return ``response`` of the client, or ``rspauth`` of the server if ``method`` is empty."""
    second = f"{method}:{digest_uri}" + ("" if qop == "auth" else _PROTECTED_END)
    parts = (secret.hex(), nonce, _NONCE_COUNT, cnonce, qop, md5(second.encode()).hex())
    return md5(":".join(parts).encode()).hex()


def make_secret(username: str, realm: str, password: str, nonce: str, cnonce: str) -> bytes:
    """Return H(A1)."""
    return md5(md5(f"{username}:{realm}:{password}".encode()) + f":{nonce}:{cnonce}".encode())


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


class DigestClient:
    """The client's half, for one handshake. ``cnonce`` is random text of the client."""

    def __init__(
        self,
        username: str,
        password: str,
        *,
        cnonce: str,
        protections: Sequence[Protection] = (Protection.AUTHENTICATION,),
        digest_uri: str = DIGEST_URI,
    ) -> None:
        self._username, self._password = username, password
        self._cnonce = cnonce
        self._protections = tuple(protections)
        self._digest_uri = digest_uri
        self._expected: str | None = None  # the server's rspauth
        self._agreed: DigestLayer | None = None
        self._is_complete = False

    def __repr__(self) -> str:
        return f"<DigestClient complete={self._is_complete}>"

    @property
    def is_complete(self) -> bool:
        return self._is_complete

    @property
    def layer(self) -> DigestLayer | None:
        return self._agreed

    def begin(self) -> bytes:
        return b""

    def step(self, challenge: bytes) -> bytes | None:
        given = parse_directives(challenge)
        if self._expected is None:
            return self._respond(given)
        rspauth = given.get("rspauth", "")
        if not hmac.compare_digest(rspauth.encode(), self._expected.encode()):
            raise AuthenticationFailed(
                "the server's answer to the token (rspauth) is wrong: it does not know the token's password, so it is "
                "not a server of the cluster that issued the token"
            )
        self._is_complete = True
        return None

    def _respond(self, given: Mapping[str, str]) -> bytes:
        nonce, realm = given.get("nonce"), given.get("realm", "")
        if not nonce:
            raise AuthenticationFailed("the server's DIGEST-MD5 challenge has no nonce")
        if given.get("algorithm") != _ALGORITHM:
            raise AuthenticationFailed(
                f"the server's DIGEST-MD5 challenge has the algorithm {given.get('algorithm', '')[:50]!r}: only "
                f"{_ALGORITHM} is known"
            )
        protection = self._choose_protection(given.get("qop", "auth"))
        cipher = _choose_cipher(given.get("cipher", "")) if protection is Protection.PRIVACY else None
        secret = make_secret(self._username, realm, self._password, nonce, self._cnonce)
        uri, qop = self._digest_uri, protection.qop
        response = make_response(secret=secret, nonce=nonce, cnonce=self._cnonce, qop=qop, digest_uri=uri)
        self._expected = make_response(
            secret=secret, nonce=nonce, cnonce=self._cnonce, qop=qop, digest_uri=uri, method=""
        )
        if protection is not Protection.AUTHENTICATION:
            self._agreed = DigestLayer(secret, cipher=cipher, is_client=True)
        directives = [
            "charset=utf-8",
            f"username={_quoted(self._username)}",
            f"realm={_quoted(realm)}",
            f"nonce={_quoted(nonce)}",
            f"nc={_NONCE_COUNT}",
            f"cnonce={_quoted(self._cnonce)}",
            f"digest-uri={_quoted(uri)}",
            f"maxbuf={_MAX_BUFFER}",
            f"response={response}",
            f"qop={qop}",
        ]
        if cipher is not None:
            directives.append(f"cipher={_quoted(cipher)}")
        return ",".join(directives).encode()

    def _choose_protection(self, offered: str) -> Protection:
        words = [word.strip().lower() for word in offered.split(",")]
        for one in self._protections:
            if one.qop in words:
                return one
        wanted = ", ".join(one.value for one in Protection if one.qop in words) or offered[:50]
        own = ", ".join(one.value for one in self._protections)
        raise AuthenticationFailed(
            f"the server offers the protections {wanted}, and the client {own}: set hbase.rpc.protection to one of "
            "the server's"
        )


def _choose_cipher(offered: str) -> str:
    words = [word.strip().lower() for word in offered.split(",")]
    for cipher in CIPHER_KEY_BYTES:
        if cipher in words:
            return cipher
    raise AuthenticationFailed(
        f"the server offers the ciphers {offered[:100]!r} for privacy, and only {', '.join(CIPHER_KEY_BYTES)} are "
        "known here: use Kerberos, or TLS"
    )


class DigestServer:
    """The server's half, for one handshake: the fake cluster's, and that of tests.

    ``find_password`` returns the password of a user name; it raises SaslRefused if the user is unknown or expired.
    """

    def __init__(
        self,
        find_password: Callable[[str], str],
        *,
        nonce: str,
        protections: Sequence[Protection] = tuple(Protection),
        ciphers: Sequence[str] = ("3des", "rc4", "des", "rc4-56", "rc4-40"),
    ) -> None:
        self._find_password = find_password
        self._nonce = nonce
        self._qops = [one.qop for one in protections]
        self._ciphers = tuple(ciphers)
        #: The name of the user, after `evaluate`.
        self.username: str | None = None
        self.layer: DigestLayer | None = None

    def challenge(self) -> bytes:
        """Return the challenge, as Java's DIGEST-MD5 writes it."""
        qop, cipher = ",".join(self._qops), ",".join(self._ciphers)
        return (
            f'realm="{REALM}",nonce="{self._nonce}",qop="{qop}",charset=utf-8,cipher="{cipher}",algorithm={_ALGORITHM}'
        ).encode()

    def evaluate(self, token: bytes) -> bytes:
        """Return ``rspauth`` for the client's response; SaslRefused with Java's texts."""
        try:
            given = parse_directives(token)
        except AuthenticationFailed as error:
            raise SaslRefused(f"DIGEST-MD5: {error}") from error
        username, cnonce, qop = given.get("username", ""), given.get("cnonce", ""), given.get("qop", "auth")
        uri = given.get("digest-uri", "")
        if uri != DIGEST_URI:
            raise SaslRefused(f"DIGEST-MD5: digest response format violation. Mismatched URI: {uri}")
        if qop not in self._qops:
            raise SaslRefused(f"DIGEST-MD5: digest response format violation. Invalid qop: {qop}")
        secret = make_secret(username, REALM, self._find_password(username), self._nonce, cnonce)
        expected = make_response(secret=secret, nonce=self._nonce, cnonce=cnonce, qop=qop)
        is_ours = given.get("nonce") == self._nonce and given.get("nc") == _NONCE_COUNT
        if not is_ours or not hmac.compare_digest(given.get("response", "").encode("latin-1"), expected.encode()):
            raise SaslRefused("DIGEST-MD5: digest response format violation. Mismatched response.")
        if qop != "auth":
            cipher = given.get("cipher") if qop == "auth-conf" else None
            if qop == "auth-conf" and (cipher not in self._ciphers or cipher not in CIPHER_KEY_BYTES):
                raise SaslRefused(f"DIGEST-MD5: unsupported cipher {cipher}")
            self.layer = DigestLayer(secret, cipher=cipher, is_client=False)
        self.username = username
        rspauth = make_response(secret=secret, nonce=self._nonce, cnonce=cnonce, qop=qop, method="")
        return f"rspauth={rspauth}".encode()
