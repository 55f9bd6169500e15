"""Requests to the page: who may send them, and what is refused."""

import json
import re
from collections.abc import Iterator
from http import HTTPStatus
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from metaclient.errors import ConfigError
from metaclient.testing import FakeCluster
from metaclient.watch import Watcher, WatchServer
from metaclient.watch.http import BODY_BYTES_MAX, Gate, HttpRefusal, parse_request
from metaclient.watch.prometheus import METRICS
from metaclient.watch.server import asset, checked_token, page_url
from metaclient.wire.exposure import is_loopback
from metaclient_fake.watching import FakeCollector

WAIT_S = 60.0
TOKEN = "0123456789abcdef-_XY"


def request(text: str) -> bytes:
    return text.replace("\n", "\r\n").encode() + b"\r\n\r\n"


def refusal(gate: Gate, text: str) -> int:
    """Return the status with which a gate refuses a request; 0 if it lets the request pass."""
    try:
        gate.check(parse_request(request(text)), "127.0.0.1")
    except HttpRefusal as error:
        return int(error.status)
    return 0


PLAIN, TOKENED = Gate("127.0.0.1", None), Gate("0.0.0.0", TOKEN)
OWN = "Host: 127.0.0.1:8090\nOrigin: http://127.0.0.1:8090\nX-Metaclient-Watch: 1"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (OWN, 0),
        ("Host: 127.0.0.1:8090\nX-Metaclient-Watch: 1", 403),  # no Origin
        ("Host: 127.0.0.1:8090\nOrigin: http://evil.example\nX-Metaclient-Watch: 1", 403),
        ("Host: 127.0.0.1:8090\nOrigin: http://127.0.0.1:9999\nX-Metaclient-Watch: 1", 403),  # another port
        ("Host: 127.0.0.1:8090\nOrigin: null\nX-Metaclient-Watch: 1", 403),  # a sandboxed frame
        ("Host: 127.0.0.1:8090\nOrigin: http://127.0.0.1:8090", 403),  # a form of the same host: no header
        ("Host: evil.example\nOrigin: http://evil.example\nX-Metaclient-Watch: 1", 421),  # DNS rebinding
    ],
)
def test_post_comes_from_the_page_itself(headers: str, status: int) -> None:
    assert refusal(PLAIN, f"POST /action HTTP/1.1\n{headers}") == status


@pytest.mark.parametrize(
    ("line", "headers", "status"),
    [
        ("GET / HTTP/1.1", "Host: box:1", 401),
        ("GET /metrics HTTP/1.1", "Host: box:1\nAuthorization: Bearer wrong", 401),
        ("GET /metrics HTTP/1.1", f"Host: box:1\nAuthorization: Basic {TOKEN}", 401),
        ("GET /metrics HTTP/1.1", f"Host: box:1\nAuthorization: Bearer {TOKEN}", 0),
        (f"GET /?token={TOKEN} HTTP/1.1", "Host: box:1", 0),
        ("GET / HTTP/1.1", f"Host: box:1\nCookie: a=b; metaclient_watch={TOKEN}", 0),
        ("GET / HTTP/1.1", "Host: box:1\nCookie: metaclient_watch=", 401),
        ("POST /action HTTP/1.1", f"Host: box:1\nOrigin: http://evil\nCookie: metaclient_watch={TOKEN}", 403),
    ],
)
def test_page_beyond_loopback_needs_its_token(line: str, headers: str, status: int) -> None:
    assert refusal(TOKENED, f"{line}\n{headers}") == status


@pytest.mark.parametrize("length", ["-1", "x", "9" * 30, str(BODY_BYTES_MAX + 1), "\uff11"])
def test_body_of_no_or_too_great_length_is_refused(length: str) -> None:
    parsed = parse_request(f"POST /action HTTP/1.1\r\nContent-Length: {length}\r\n\r\n".encode())
    with pytest.raises(HttpRefusal):
        _ = parsed.body_length


def test_only_loopback_names_are_loopback() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.1.2.3", "::1", "LOCALHOST")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "127.evil.example", "127.0.0.1.evil.example", "")))


@pytest.mark.parametrize(
    "token", ["short", "x" * 200, "with space but long", "semicolon;semicolon;", "line\r\nbreak00000000"]
)
def test_token_that_a_cookie_cannot_hold_is_refused(token: str) -> None:
    with pytest.raises(ConfigError):
        checked_token(token)


def test_url_has_the_token() -> None:
    assert page_url("10.0.0.7", 8090, TOKEN) == f"http://10.0.0.7:8090/?token={TOKEN}"


# -- the server --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(servers=3) as made:
        yield made


@pytest.fixture(scope="module")
def server(cluster: FakeCluster) -> Iterator[WatchServer]:
    with (
        Watcher(cluster.runtime, FakeCollector(cluster, "fake:")) as watcher,
        WatchServer(watcher, "127.0.0.1", 0) as served,
    ):
        yield served


def fetched(url: str, path: str, body: object = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
    data = None if body is None else json.dumps(body).encode()
    own = {} if data is None else {"Origin": url, "X-Metaclient-Watch": "1"}
    try:
        with urlopen(Request(url + path, data, {**own, **headers}), timeout=WAIT_S) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except HTTPError as error:
        return error.code, dict(error.headers), error.read()


def test_page_allows_no_foreign_script_and_no_frame(server: WatchServer) -> None:
    _, headers, _ = fetched(server.url, "/")
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy


def test_page_refers_to_nothing_elsewhere_and_is_small() -> None:
    files = [asset(name) for name in ("page.html", "watch.css", "watch.js")]
    text = b"".join(files).decode()
    assert sum(map(len, files)) < 200_000
    assert re.findall(r"https?://[^\"' ]+", text) == ["http://www.w3.org/2000/svg"]
    assert "innerHTML" not in text


def test_events_are_sent_as_they_are_collected(server: WatchServer) -> None:
    with urlopen(server.url + "/events", timeout=WAIT_S) as stream:
        assert stream.headers["Content-Type"].startswith("text/event-stream")
        documents = []
        while len(documents) < 2:
            line = stream.readline()
            if line.startswith(b"data: "):
                documents.append(json.loads(line[6:]))
    assert documents[0]["time_ms"] < documents[1]["time_ms"]
    assert {one["name"] for one in documents[0]["servers"]} == {"rs1", "rs2", "rs3"}


def test_buttons_work_and_answer_wrong_use_with_a_sentence(server: WatchServer, cluster: FakeCluster) -> None:
    assert fetched(server.url, "/action", {"action": "pause", "server": "rs3"})[0] == 200
    assert cluster.server_named("rs3").state.value == "paused"
    assert fetched(server.url, "/action", {"action": "heal", "server": "rs3"})[0] == 200
    assert cluster.server_named("rs3").state.value == "running"
    for body, status in [
        ({"action": "explode", "server": "rs3"}, 409),
        ({"action": "kill", "server": "rs99"}, 409),
        ({"action": "kill"}, 409),
        ({"action": 1}, 400),
        ([1], 400),
        ("text", 400),
    ]:
        code, _, text = fetched(server.url, "/action", body)
        assert code == status, text
        assert text.strip()


@pytest.mark.parametrize(("path", "status"), [("/nope", 404), ("/../watcher.py", 404), ("//etc/passwd", 404)])
def test_other_paths_do_not_exist(server: WatchServer, path: str, status: int) -> None:
    assert fetched(server.url, path)[0] == status


def test_metrics_are_well_formed_and_have_documented_names(server: WatchServer, cluster: FakeCluster) -> None:
    fetched(server.url, "/action", {"action": "start load", "server": None})
    cluster.replication.add('p"1', "zk:2181:/x")  # a name that must be escaped
    _, headers, body = fetched(server.url, "/metrics")
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    sample = re.compile(r'(\w+)(\{(\w+="(\\.|[^"\\])*",?)*\})? -?[0-9.e+-]+')
    names = set()
    for line in body.decode().splitlines():
        if not line.startswith("#"):
            found = sample.fullmatch(line)
            assert found, line
            names.add(found[1])
    assert names <= set(METRICS)
    assert {"metaclient_server_up", "metaclient_meta_reads_total"} <= names
    assert HTTPStatus(fetched(server.url, "/action", {"action": "stop load", "server": None})[0]) is HTTPStatus.OK


def test_token_opens_the_page_once_and_the_cookie_afterwards(cluster: FakeCluster) -> None:
    with Watcher(cluster.runtime, FakeCollector(cluster, "fake:")) as watcher:
        with pytest.raises(ConfigError, match="other machines"):
            WatchServer(watcher, "0.0.0.0", 0)
        with WatchServer(watcher, "0.0.0.0", 0, allows_remote=True) as served:
            base = f"http://127.0.0.1:{served.port}"
            assert served.token is not None
            assert len(served.token) >= 32
            assert fetched(base, "/watch.json")[0] == 401
            assert fetched(base, "/watch.json", Authorization=f"Bearer {served.token}")[0] == 200
            assert fetched(base, "/watch.json", Cookie=f"metaclient_watch={served.token}")[0] == 200


def test_front_of_a_fake_beyond_loopback_has_a_token_in_its_url(cluster: FakeCluster) -> None:
    with FakeCluster(servers=1) as other, other.serve("0.0.0.0", status_port=0, allow_insecure=True) as front:
        url = str(front.status_url)
        assert re.fullmatch(r"http://0\.0\.0\.0:\d+/\?token=[0-9a-f]{32}", url)
        assert fetched(f"http://127.0.0.1:{front.status_port}", "/status.json")[0] == 401
