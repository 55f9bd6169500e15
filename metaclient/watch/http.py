"""HTTP as a small page needs it: parses one request, checks its origin and token, and makes responses.

A browser also sends requests that other web pages cause. Therefore:

1. Host: without a token, only requests to a loopback name or to the address of the listener are answered. Otherwise a
   foreign page whose host name resolves to 127.0.0.1 (DNS rebinding) could read the figures.
2. Origin: a POST must come from the page itself (the Origin header has the Host of the request) and must have the
   header ``X-Metaclient-Watch``, which another site's page cannot send without a CORS permission that is never given.
3. Token: beyond loopback, every request needs the token: once as ``?token=``, which stores it in a cookie of this
   site, or as ``Authorization: Bearer`` (Prometheus).
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

__all__ = ["Gate", "HttpRefusal", "HttpRequest", "parse_request", "response"]

#: Enough for the request line and headers of a browser.
HEAD_BYTES_MAX = 16 * 1024
BODY_BYTES_MAX = 4 * 1024
COOKIE = "metaclient_watch"
MARK = "x-metaclient-watch"
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
#: No script, style or connection but those of this server; no frame around the page.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class HttpRefusal(Exception):
    """A request that is not served: the status and the reason."""

    def __init__(self, status: HTTPStatus, text: str, *headers: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.headers = headers


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request without its body. Names of headers are in lower case."""

    method: str
    path: str
    query: Mapping[str, list[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def host(self) -> str | None:
        """The Host header without its port, in lower case; None when there is none (HTTP/1.0, no browser)."""
        given = self.headers.get("host")
        return None if given is None else _host_of(given)

    @property
    def body_length(self) -> int:
        """The length of the body; HttpRefusal if it is not given as a number, or too long."""
        text = self.headers.get("content-length", "0")
        if not text.isascii() or not text.isdecimal():
            raise HttpRefusal(HTTPStatus.BAD_REQUEST, f"Content-Length is no number: {text[:40]!r}")
        if len(text) > 6 or int(text) > BODY_BYTES_MAX:
            raise HttpRefusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has at most {BODY_BYTES_MAX} bytes")
        return int(text)


def _host_of(given: str) -> str:
    """
    >>> _host_of("[::1]:8080"), _host_of("LocalHost:1")
    ('::1', 'localhost')
    """
    host = given.strip().lower()
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def parse_request(head: bytes) -> HttpRequest:
    """Return the request of a request line and headers; HttpRefusal if there is none.

    >>> parse_request(b"GET /a?x=1 HTTP/1.1\\r\\nHost: h\\r\\n\\r\\n")
    HttpRequest(method='GET', path='/a', query={'x': ['1']}, headers={'host': 'h'})
    """
    lines = head.decode("latin-1").split("\n")
    words = lines[0].split()
    if len(words) != 3 or not words[2].startswith("HTTP/"):
        raise HttpRefusal(HTTPStatus.BAD_REQUEST, "this is no HTTP request")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if colon:
            headers.setdefault(name.strip().lower(), value.strip())
    path, _, query = words[1].partition("?")
    try:
        asked = parse_qs(query, max_num_fields=20)
    except ValueError:
        raise HttpRefusal(HTTPStatus.BAD_REQUEST, "the query has too many fields") from None
    return HttpRequest(words[0], path, asked, headers)


class Gate:
    """Decides which requests are served. ``host`` is the name or address that the page is served at."""

    def __init__(self, host: str, token: str | None) -> None:
        self._hosts = _LOOPBACK_NAMES | {host.lower()}
        self._token = token

    def check(self, request: HttpRequest, own_address: str) -> None:
        """Raise HttpRefusal if the request may not be served; see the module's docstring."""
        if self._token is None:
            host = request.host
            if host is not None and host not in self._hosts and host != own_address.lower():
                raise HttpRefusal(
                    HTTPStatus.MISDIRECTED_REQUEST, f"this page is not served as {host[:255]!r}: use {own_address}"
                )
        elif not self._has_token(request):
            raise HttpRefusal(
                HTTPStatus.UNAUTHORIZED,
                "a token is needed: open the page with ?token=TOKEN, or send Authorization: Bearer TOKEN",
                "WWW-Authenticate: Bearer",
            )
        if request.method == "POST":
            self._check_origin(request)

    def _check_origin(self, request: HttpRequest) -> None:
        origin = urlsplit(request.headers.get("origin", ""))
        if not origin.netloc or origin.netloc.lower() != request.headers.get("host", "").strip().lower():
            raise HttpRefusal(HTTPStatus.FORBIDDEN, "only the page itself may send this: the Origin is another one")
        if MARK not in request.headers:
            raise HttpRefusal(HTTPStatus.FORBIDDEN, f"the header {MARK} is missing")

    def _has_token(self, request: HttpRequest) -> bool:
        given = [*request.query.get("token", ()), self._cookie(request)]
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            given.append(bearer.strip())
        wanted = (self._token or "").encode()
        return any(hmac.compare_digest(one.encode("utf-8", "replace"), wanted) for one in given)

    @staticmethod
    def _cookie(request: HttpRequest) -> str:
        for part in request.headers.get("cookie", "").split(";"):
            name, _, value = part.strip().partition("=")
            if name == COOKIE:
                return value
        return ""

    def token_cookie(self, request: HttpRequest) -> str | None:
        """Return the header that stores the token of the query in a cookie; None if the query has none."""
        if self._token is None or "token" not in request.query:
            return None
        return f"Set-Cookie: {COOKIE}={self._token}; HttpOnly; SameSite=Strict; Path=/"


def head_of(status: HTTPStatus, kind: str, length: int | None, *headers: str) -> bytes:
    """Return the head of a response; without a length the body ends with the connection."""
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {kind}; charset=utf-8",
        *(() if length is None else (f"Content-Length: {length}",)),
        "Cache-Control: no-store",
        f"Content-Security-Policy: {_POLICY}",
        "X-Content-Type-Options: nosniff",
        "Referrer-Policy: no-referrer",
        "Connection: close",
        *headers,
    ]
    return "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n"


def response(status: HTTPStatus, kind: str, body: str | bytes, *headers: str) -> bytes:
    data = body.encode() if isinstance(body, str) else body
    return head_of(status, kind, len(data), *headers) + data
