"""The status page: ``/`` as HTML, ``/status.json`` as JSON; both show the current ``cluster.status()``.

A request is answered only if its Host header is a loopback name or an address of the listener. Otherwise a foreign web
page whose host name resolves to 127.0.0.1 (DNS rebinding) could read the status through the user's browser.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from html import escape
from http import HTTPStatus

from metaclient.wire.listener import Client

__all__ = ["StatusPage"]

#: Enough for the request line and headers of a browser.
REQUEST_BYTES_MAX = 16 * 1024
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_STYLE = (
    "body{font:14px/1.5 system-ui,sans-serif;margin:2rem;color:#222}"
    "table{border-collapse:collapse;margin:.5rem 0 1.5rem}"
    "th,td{border:1px solid #ccc;padding:.2rem .6rem;text-align:left;vertical-align:top}"
    "th{background:#f3f3f3;font-weight:600}h2{margin-bottom:.3rem}"
)


class StatusPage:
    """An HTTP server of two pages. ``addresses`` are shown at the top: where the other fronts listen.

    ``host`` is the name or address that the page is served at. Clients may also use the address they connect to.
    """

    def __init__(
        self,
        status: Callable[[], Mapping[str, object]],
        addresses: Callable[[], Mapping[str, str]],
        host: str = "127.0.0.1",
    ) -> None:
        self._status = status
        self._addresses = addresses
        self._hosts = _LOOPBACK_NAMES | {host.lower()}

    def serve(self, sock: Client) -> None:
        """Answer one request; the connection is not kept alive, because the page is rarely requested."""
        request = b""
        while b"\r\n\r\n" not in request and b"\n\n" not in request:
            data = sock.recv(4096)
            if not data:
                return
            request += data
            if len(request) > REQUEST_BYTES_MAX:
                sock.sendall(_answer(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "text/plain", "too long\n"))
                return
        sock.sendall(self._answered(request, sock.getsockname()[0]))

    def refuse(self, sock: Client) -> None:
        sock.sendall(_answer(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", "too many connections: try again later\n"))

    def _answered(self, request: bytes, own_address: str) -> bytes:
        words = request.split(b"\n", 1)[0].decode("latin-1").split()
        if len(words) != 3 or not words[2].startswith("HTTP/"):
            return _answer(HTTPStatus.BAD_REQUEST, "text/plain", "this is no HTTP request\n")
        host = _host_of(request)
        if host is not None and host not in self._hosts and host != own_address.lower():
            said = f"this page is not served as {escape(host[:255])!r}: use {own_address}\n"
            return _answer(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", said)
        method, path = words[0], words[1].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return _answer(HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", "only GET is allowed\n", "Allow: GET, HEAD")
        if path == "/status.json":
            answer = _answer(HTTPStatus.OK, "application/json", json.dumps(self._status(), default=str) + "\n")
        elif path == "/":
            answer = _answer(HTTPStatus.OK, "text/html", self._page())
        else:
            answer = _answer(HTTPStatus.NOT_FOUND, "text/plain", "there are / and /status.json\n")
        return answer.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if method == "HEAD" else answer

    def _page(self) -> str:
        parts = [
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Fake HBase</title>',
            f"<style>{_STYLE}</style></head><body><h1>Fake HBase</h1>",
            _shown(dict(self._addresses())),
        ]
        for name, value in self._status().items():
            parts.append(f"<h2>{escape(name)}</h2>{_shown(value)}")
        parts.append('<p><a href="/status.json">status.json</a></p></body></html>\n')
        return "".join(parts)


def _host_of(request: bytes) -> str | None:
    """Return the Host header without its port, in lower case; None when there is none (HTTP/1.0, no browser).

    >>> _host_of(b"GET / HTTP/1.1\\r\\nHost: [::1]:8080\\r\\n\\r\\n")
    '::1'
    """
    for line in request.decode("latin-1").split("\n")[1:]:
        name, _, value = line.partition(":")
        if name.strip().lower() == "host":
            host = value.strip().lower()
            return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return None


def _shown(value: object) -> str:
    """Return a value as HTML: mappings and lists as tables, other values as text.

    Things of one kind (servers, regions, sources) are the rows of one table, with their names in its first column.
    """
    if isinstance(value, Mapping):
        if value and all(isinstance(one, Mapping) and one for one in value.values()) and _is_uniform(value.values()):
            return _grid(list(value.values()), list(value))
        rows = "".join(f"<tr><th>{escape(str(key))}</th><td>{_shown(one)}</td></tr>" for key, one in value.items())
        return f"<table>{rows}</table>" if rows else "none"
    if isinstance(value, list | tuple):
        if value and all(isinstance(one, Mapping) for one in value):
            return _grid(value)
        return escape(", ".join(map(str, value))) or "none"
    return escape(str(value))


def _is_uniform(rows: Collection[Mapping[object, object]]) -> bool:
    """Return True if all rows have the same names, more than one."""
    names = [list(row) for row in rows]
    return len(names[0]) > 1 and all(one == names[0] for one in names)


def _grid(rows: Sequence[Mapping[object, object]], titles: Sequence[object] = ()) -> str:
    """Return a table with a row per mapping; ``titles`` stand before the rows."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f"<th>{escape(str(name))}</th>" for name in (["", *names] if titles else names))
    body = []
    for number, row in enumerate(rows):
        title = f"<th>{escape(str(titles[number]))}</th>" if titles else ""
        cells = "".join(f"<td>{_shown(row.get(name, ''))}</td>" for name in names)
        body.append(f"<tr>{title}{cells}</tr>")
    return f"<table><tr>{head}</tr>{''.join(body)}</table>"


def _answer(status: HTTPStatus, kind: str, text: str, *headers: str) -> bytes:
    body = text.encode()
    head = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {kind}; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "Connection: close",
        *headers,
    ]
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body
