"""Serves the view of a cluster over HTTP: the page, its events, the figures as JSON and for Prometheus, the buttons.

=================  =====================================================================================================
``/``              the page; with ``/watch.css`` and ``/watch.js``, nothing is loaded from elsewhere
``/events``        server-sent events: the document of the view, at each collection
``/watch.json``    the same document, once
``/metrics``       the figures in Prometheus' text format
``/grafana.json``  a dashboard for these
``/action``        POST ``{"action": "pause", "server": "rs2"}``: the buttons of a fake
=================  =====================================================================================================
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from types import TracebackType
from typing import Any

from metaclient.errors import ConfigError, MetaClientError
from metaclient.runtime import draw_secret
from metaclient.watch.http import HEAD_BYTES_MAX, Gate, HttpRefusal, HttpRequest, head_of, parse_request
from metaclient.watch.http import response as http_response
from metaclient.watch.prometheus import exposition
from metaclient.watch.watcher import Watcher
from metaclient.wire.exposure import is_loopback
from metaclient.wire.listener import Client, Listener

__all__ = ["WatchPage", "WatchServer", "checked_token", "page_url"]

#: Each open page holds one connection.
CONNECTIONS_MAX = 32
IDLE_TIMEOUT_S = 10.0
#: Collections happen every half second; a comment is sent when one takes longer, so that a gone client is noticed.
SILENCE_S = 5.0
#: For the first figures.
READY_TIMEOUT_S = 10.0

_ASSETS: Mapping[str, tuple[str, str]] = {
    "/": ("page.html", "text/html"),
    "/watch.css": ("watch.css", "text/css"),
    "/watch.js": ("watch.js", "text/javascript"),
    "/grafana.json": ("grafana.json", "application/json"),
}
_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,128}")

#: A further page: its type and the function that makes it.
Route = tuple[str, Callable[[], str]]


@cache
def asset(name: str) -> bytes:
    return files("metaclient.watch").joinpath("assets", name).read_bytes()


def checked_token(token: str) -> str:
    """Return the token, or raise ConfigError if it is too short or has other characters than a cookie may have."""
    if not _TOKEN.fullmatch(token):
        raise ConfigError("a token has 16 to 128 letters, digits, '-' and '_'; leave it out to get a random one")
    return token


def token_for(host: str, token: str | None = None) -> str | None:
    """Return the token of a page at this host: the given one, a random one beyond loopback, else None."""
    if token is not None:
        return checked_token(token)
    return None if is_loopback(host) else draw_secret(16).hex()


def page_url(host: str, port: int, token: str | None, *, has_tls: bool = False) -> str:
    """
    >>> page_url("::1", 8090, None)
    'http://[::1]:8090'
    """
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if has_tls else 'http'}://{shown}:{port}" + (f"/?token={token}" if token else "")


class WatchPage:
    """Answers the requests of one client after the other; :class:`WatchServer` and the fake's front listen for it.

    ``routes`` are further pages by path. ``host`` is the name or address that the page is served at.
    """

    def __init__(
        self, watcher: Watcher, host: str, token: str | None = None, *, routes: Mapping[str, Route] | None = None
    ) -> None:
        self._watcher = watcher
        self._gate = Gate(host, token)
        self._routes = dict(routes or {})

    def serve(self, sock: Client) -> None:
        """Answer one request; the connection is not kept alive."""
        received = b""
        while b"\r\n\r\n" not in received and b"\n\n" not in received:
            data = sock.recv(4096)
            if not data:
                return
            received += data
            if len(received) > HEAD_BYTES_MAX:
                sock.sendall(_text(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request is too long"))
                return
        head, _, body = received.partition(b"\r\n\r\n" if b"\r\n\r\n" in received else b"\n\n")
        try:
            request = parse_request(head)
            self._gate.check(request, sock.getsockname()[0])
            if request.method == "POST":
                while len(body) < request.body_length:
                    data = sock.recv(4096)
                    if not data:
                        return
                    body += data
            elif request.path == "/events" and request.method == "GET":
                self._send_events(sock)
                return
            answer = self._answer(request, body)
        except HttpRefusal as refusal:
            answer = _text(refusal.status, refusal.text, *refusal.headers)
        sock.sendall(answer)

    def refuse(self, sock: Client) -> None:
        sock.sendall(
            _text(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections: close other tabs, or try again later")
        )

    def _send_events(self, sock: Client) -> None:
        """Send the document at each collection, until the client disconnects."""
        self._watcher.start()
        sock.sendall(head_of(HTTPStatus.OK, "text/event-stream", None))
        runtime, version = self._watcher.runtime, 0
        while True:
            newest, document = self._watcher.wait_newer(version, runtime.now() + SILENCE_S)
            sock.sendall(b": nothing new\n\n" if newest == version else b"data: " + document + b"\n\n")
            version = newest

    def _answer(self, request: HttpRequest, body: bytes) -> bytes:
        if request.method == "POST":
            return self._act(request, body)
        if request.method not in ("GET", "HEAD"):
            raise HttpRefusal(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are allowed", "Allow: GET, HEAD")
        cookie = self._gate.token_cookie(request)
        if cookie is not None and request.path == "/":
            return http_response(HTTPStatus.SEE_OTHER, "text/plain", "", "Location: /", cookie)
        kind, data = self._content(request.path)
        answer = http_response(HTTPStatus.OK, kind, data)
        return answer.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if request.method == "HEAD" else answer

    def _content(self, path: str) -> tuple[str, bytes]:
        if path in _ASSETS:
            name, kind = _ASSETS[path]
            return kind, asset(name)
        if path == "/watch.json":
            return "application/json", self._ready() + b"\n"
        if path == "/metrics":
            self._ready()
            return "text/plain; version=0.0.4", exposition(self._watcher.history.newest).encode()
        if path in self._routes:
            kind, make = self._routes[path]
            return kind, make().encode()
        known = ", ".join([*_ASSETS, "/events", "/watch.json", "/metrics", *self._routes])
        raise HttpRefusal(HTTPStatus.NOT_FOUND, f"there are {known}")

    def _ready(self) -> bytes:
        """Return the newest document as JSON; wait for the first one."""
        self._watcher.start()
        version, document = self._watcher.wait_newer(0, self._watcher.runtime.now() + READY_TIMEOUT_S)
        if not version:
            raise HttpRefusal(HTTPStatus.SERVICE_UNAVAILABLE, "there are no figures yet: try again later")
        return document

    def _act(self, request: HttpRequest, body: bytes) -> bytes:
        if request.path != "/action":
            raise HttpRefusal(HTTPStatus.METHOD_NOT_ALLOWED, "only /action takes a POST", "Allow: GET, HEAD")
        try:
            asked: Any = json.loads(body)
            action, server = asked["action"], asked.get("server")
            if not isinstance(action, str) or not isinstance(server, str | None):
                raise TypeError("action and server are texts")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise HttpRefusal(HTTPStatus.BAD_REQUEST, f'expected {{"action": ..., "server": ...}}: {error}') from None
        try:
            done = self._watcher.run_action(action, server)
        except (ValueError, MetaClientError) as error:
            raise HttpRefusal(HTTPStatus.CONFLICT, str(error)) from error
        return http_response(HTTPStatus.OK, "application/json", json.dumps({"done": done}) + "\n")


def _text(status: HTTPStatus, text: str, *headers: str) -> bytes:
    return http_response(status, "text/plain", text + "\n", *headers)


class WatchServer:
    """The page of a watcher at a TCP port, until :meth:`close`; a context manager.

    Beyond loopback ``allows_remote`` must be True, and a token is needed: the given one, or a random one in ``url``.
    """

    def __init__(
        self, watcher: Watcher, host: str, port: int, *, token: str | None = None, allows_remote: bool = False
    ) -> None:
        if not allows_remote and not is_loopback(host):
            raise ConfigError(
                f"{host} is reached from other machines, which could see all figures: serve at 127.0.0.1, or pass "
                "allows_remote=True (a token is then needed to open the page)"
            )
        self.token = token_for(host, token)
        page = WatchPage(watcher, host, self.token)
        self._listener = Listener(
            host,
            port,
            runtime=watcher.runtime,
            name="watch",
            serve=page.serve,
            refuse=page.refuse,
            connections_max=CONNECTIONS_MAX,
            idle_timeout_s=IDLE_TIMEOUT_S,
        )
        self.host, self.port = host, self._listener.port

    def __enter__(self) -> WatchServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The address to open, with the token if there is one."""
        return page_url(self.host, self.port, self.token)

    def close(self) -> None:
        """Stop listening and disconnect all clients; the watcher continues."""
        self._listener.close()
