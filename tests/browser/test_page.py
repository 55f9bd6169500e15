"""The page of `metaclient watch` in a real browser: content, refresh, buttons, markup in names, themes, requests.

The pictures of docs/images are made here: `make screenshots` sets METACLIENT_SCREENSHOTS.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from metaclient.testing import FakeCluster
from metaclient_fake.front.serving import Front

ROOT = Path(__file__).resolve().parents[2]
#: For everything that needs no figures of several seconds; a busy machine takes longer than the 2 s that are promised.
WAIT_MS = 30_000
PAGE_BYTES_MAX = 200_000

#: Playwright drives the browser from an event loop in the thread of the test, which calls the fake, too.
pytestmark = pytest.mark.filterwarnings("ignore:metaclient's blocking API:RuntimeWarning")


@pytest.fixture
def front() -> Iterator[Front]:
    with FakeCluster(servers=5, meta_replicas=3) as cluster:
        yield cluster.serve(status_port=0)


@pytest.fixture
def page(chromium: Any, front: Front) -> Iterator[Any]:
    """The page of a fake; a script error, or a request to another host, fails the test."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    opened = context.new_page()
    opened.set_default_timeout(WAIT_MS)
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    own = urlsplit(str(front.status_url)).netloc
    opened.on(
        "request", lambda request: None if urlsplit(request.url).netloc in (own, "") else problems.append(request.url)
    )
    opened.goto(str(front.status_url))
    opened.wait_for_selector("#servers td")
    yield opened
    context.close()
    assert problems == []


def press(page: Any, action: str, server: str = "") -> None:
    page.click(f"button[data-key='{action} {server}']")


def row_of(page: Any, server: str) -> Any:
    return page.locator("#servers tbody tr").filter(has=page.locator(f"td.name:text-is('{server}')"))


def wait_for_text(locator: Any, pattern: str) -> None:
    from playwright.sync_api import expect

    expect(locator).to_contain_text(re.compile(pattern), timeout=WAIT_MS)


def wait_for_figures(page: Any, seconds: float) -> None:
    """Wait until the page has drawn figures of so many more seconds."""
    until = int(page.evaluate("document.body.dataset.time")) + seconds * 1000
    for _ in range(round(WAIT_MS / 100 + seconds * 10)):
        if int(page.evaluate("document.body.dataset.time")) > until:
            return
        page.wait_for_timeout(100)
    pytest.fail(f"the page did not draw figures of {seconds} s")


def test_page_shows_servers_replicas_and_addresses(page: Any, front: Front) -> None:
    wait_for_text(page.locator("#where"), re.escape(str(front.thrift2_url)))
    assert page.locator("#servers tbody tr").count() == 5
    assert page.locator("#meta tbody tr").count() == 3
    wait_for_text(row_of(page, front.cluster.meta_server(0)), "primary")
    wait_for_text(page.locator("#peers"), "no replication peers")
    wait_for_text(page.locator("#events"), "watching")
    wait_for_text(page.locator("#link"), "live")


def test_page_refreshes_by_itself(page: Any, front: Front) -> None:
    wait_for_figures(page, 0.1)
    front.cluster.add_server()
    wait_for_text(page.locator("#servers"), "rs6")
    wait_for_text(page.locator("#events"), "rs6 joined the cluster")


def test_hung_server_is_shown_within_two_seconds(page: Any, front: Front) -> None:
    """ "shows a dead or hung server within 2 s": measured in the page, from the call of pause() on."""
    from playwright.sync_api import expect

    now = front.cluster.runtime.now
    took: dict[str, list[float]] = {"hung": [], "dead": []}
    for server in ("rs3", "rs4", "rs5"):  # the fastest of three: this machine may have other work
        for state, break_it in (("hung", front.cluster.pause), ("dead", front.cluster.kill)):
            break_it(server)
            begun = now()
            expect(row_of(page, server).locator(".pill")).to_have_text(state, timeout=WAIT_MS)
            took[state].append(now() - begun)
    assert min(took["hung"]) < 2.0
    assert min(took["dead"]) < 2.0


def test_load_balance_goes_on_while_javas_mode_stands_still(page: Any, front: Front) -> None:
    press(page, "start load")
    lanes = page.locator(".lane")
    wait_for_text(lanes.nth(0), r"[1-9]\d* lookups per s")
    wait_for_text(lanes.nth(1), r"[1-9]\d* lookups per s")
    hung = front.cluster.meta_server(1)
    press(page, "pause", hung)
    wait_for_text(row_of(page, hung), "hung")
    wait_for_text(page.locator("#banner"), f"{hung} is hung")
    wait_for_text(lanes.nth(1), r"0 lookups per s")
    wait_for_text(lanes.nth(1), r"waiting4, for \d")
    wait_for_text(lanes.nth(0), r"[1-9]\d* lookups per s")
    wait_for_text(page.locator("#meta"), "ejected|silent")
    press(page, "heal")
    wait_for_text(lanes.nth(1), r"[1-9]\d* lookups per s")
    wait_for_text(row_of(page, hung), "up")
    press(page, "stop load")
    wait_for_text(page.locator("#race-hint"), "Start the load")


def test_each_button_breaks_and_heal_repairs(page: Any, front: Front) -> None:
    for action, state in (("kill", "dead"), ("slow", "slow"), ("partition", "cut off")):
        press(page, action, "rs5")
        wait_for_text(row_of(page, "rs5"), state)
        press(page, "heal", "rs5")
        wait_for_text(row_of(page, "rs5"), "up")


def test_markup_in_names_is_shown_and_not_obeyed(page: Any, front: Front) -> None:
    """Names of peers, of clusters and rows are chosen by users; a row is part of the start key of a region."""
    evil = "<img src=x onerror=\"document.title='owned'\">"
    cluster = front.cluster
    with cluster.connect() as connection:
        connection.create_table("t", {"cf": {}}, splits=[evil.encode()])
        connection.table("t").put(evil.encode() + b"z", {b"cf:a": b"1"})
    cluster.replication.add("p1", f"zk:2181:/{evil}")
    wait_for_text(page.locator("#peers"), "<img src=x")
    wait_for_text(page.locator("#regions"), "<img src=x")
    assert page.locator("main img").count() == 0
    assert "owned" not in page.title()


def test_page_is_small_and_has_a_dark_theme(page: Any, front: Front) -> None:
    sizes = page.evaluate(
        """async () => { let sum = 0;
           for (const path of ["/", "/watch.css", "/watch.js"]) sum += (await (await fetch(path)).text()).length;
           return sum; }"""
    )
    assert sizes < PAGE_BYTES_MAX
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    page.reload()
    page.wait_for_selector("#servers td")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_page_of_another_site_cannot_press_a_button(chromium: Any, front: Front) -> None:
    """A form or a fetch of a foreign origin reaches the server, and is refused there."""
    context = chromium.new_context()
    foreign = context.new_page()
    foreign.route(
        "http://foreign.example/", lambda route: route.fulfill(body="<p>foreign</p>", content_type="text/html")
    )
    foreign.goto("http://foreign.example/")
    outcome = foreign.evaluate(
        """async (url) => {
             const body = JSON.stringify({action: "kill", server: "rs1"});
             const headers = {"X-Metaclient-Watch": "1"};
             const tried = (path, options) => fetch(url + path, options).then(() => "done", String);
             return [await tried("/action", {method: "POST", mode: "no-cors", body}),
                     await tried("/action", {method: "POST", headers, body}),
                     await tried("/watch.json", {})]; }""",
        str(front.status_url),
    )
    assert outcome[1].startswith("TypeError")  # the preflight was refused
    assert outcome[2].startswith("TypeError")  # no CORS header: the answer cannot be read
    assert front.cluster.server_named("rs1").state.value == "running"
    context.close()


def test_pictures_of_the_documentation(page: Any, front: Front, tmp_path: Path) -> None:
    """Healthy, a hung replica and a dead primary, each in both themes."""
    folder = ROOT / "docs" / "images" if os.environ.get("METACLIENT_SCREENSHOTS") else tmp_path
    seconds = 25 if os.environ.get("METACLIENT_SCREENSHOTS") else 3
    cluster = front.cluster

    def picture(name: str) -> None:
        for theme in ("light", "dark"):
            page.evaluate("theme => { document.documentElement.dataset.theme = theme; window.scrollTo(0, 0); }", theme)
            path = folder / f"watch-{name}-{theme}.png"
            page.screenshot(path=path, animations="disabled")
            assert path.stat().st_size > 10_000

    press(page, "start load")
    wait_for_figures(page, seconds)
    picture("healthy")
    hung = cluster.meta_server(1)
    press(page, "pause", hung)
    wait_for_text(page.locator("#banner"), f"{hung} is hung")
    wait_for_figures(page, seconds / 2)
    picture("hung-replica")
    press(page, "heal")
    wait_for_text(row_of(page, hung), "up")
    wait_for_figures(page, seconds / 2)
    primary = cluster.meta_server(0)
    press(page, "kill", primary)
    wait_for_text(page.locator("#banner"), f"{primary} is dead")
    picture("dead-primary")
