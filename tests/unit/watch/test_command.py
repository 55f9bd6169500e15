"""The command `metaclient watch`: one document, one screen, a page, and its refusals."""

import json
import signal
import subprocess
import sys
from io import StringIO
from urllib.request import urlopen

import pytest
from rich.console import Console

from metaclient.cli import main
from metaclient.cli.watch_screen import screen_of
from metaclient.watch.history import History
from metaclient.watch.view import view_of
from tests.command_runner import command_runner

WAIT_S = 60.0


def test_json_is_one_document_with_rates() -> None:
    result = command_runner().invoke(main, ["watch", "fake:?servers=3", "--json", "--for", "2"])
    assert result.exit_code == 0, result.output
    view = json.loads(result.stdout)
    assert [one["liveness"] for one in view["servers"]] == ["up"] * 3
    assert view["summary"]["lookups_per_s"] > 0
    assert view["url"] == "fake:?servers=3"


def test_without_a_terminal_one_screen_is_printed() -> None:
    result = command_runner().invoke(main, ["watch", "--url", "fake:?servers=3", "--for", "1"])
    assert result.exit_code == 0, result.output
    for word in (
        "3 of 3 servers up",
        "Replicas of hbase:meta",
        "rs3",
        "Java client's LoadBalance",
        "watch_demo",
        "Events",
    ):
        assert word in result.stdout
    assert "…" not in result.stdout  # no column is cut


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fake:", "--serve", "8090"], "is not HOST:PORT"),
        (["fake:", "--serve", "127.0.0.1:x"], "is not HOST:PORT"),
        (["fake:", "--serve", "0.0.0.0:0"], "--allow-remote"),
        (["fake:", "--allow-remote"], "add --serve"),
        (["fake:", "--url", "fake:"], "given twice"),
        (["fake:", "--lookups-per-second", "-1"], "--lookups-per-second"),
        ([], "no cluster is named"),
    ],
)
def test_wrong_use_ends_with_2_and_a_sentence(
    arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("METACLIENT_URL", raising=False)
    result = command_runner().invoke(main, ["watch", *arguments])
    assert result.exit_code == 2, result.output
    assert words in result.output


def test_unreachable_cluster_ends_with_1() -> None:
    result = command_runner().invoke(main, ["watch", "thrift2://127.0.0.1:1", "--json"])
    assert result.exit_code == 1
    assert json.loads(result.stdout)["error"] == "ServerUnreachable"


def test_page_is_served_until_a_signal() -> None:
    command = [sys.executable, "-m", "metaclient", "watch", "fake:?servers=2", "--serve", "127.0.0.1:0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or lines[-1].rstrip() != "}":
            lines.append(process.stdout.readline())
            assert lines[-1], "it ended before it served"
        document = json.loads("".join(lines))
        assert document["token"] is None
        with urlopen(document["url"] + "/watch.json", timeout=WAIT_S) as answer:
            assert json.load(answer)["is_load_running"] is True
        process.send_signal(signal.SIGTERM)
        said, complaints = process.communicate(timeout=WAIT_S)
    assert (process.returncode, said, complaints) == (0, "", "")


def test_screen_obeys_no_markup_and_no_control_character_of_names() -> None:
    view = view_of(History())
    assert "collecting" in str(screen_of(view))
    server = {"name": "[red]x[/red]\x1b[2J", "liveness": "up", "meta": [0], "chart": []}
    unknown = dict.fromkeys(("regions", "reads_per_s", "writes_per_s", "queued_calls", "answer_ms"))
    summary = {"servers_up": 1, "servers_bad": 0, "servers_unknown": 0, "meta_healthy": 0, "meta_reads_per_s": None}
    empty = dict.fromkeys(("regions", "region_replicas", "peers"))
    made = {"ready": True, "is_fake": False, "version": None, "url": "u", "servers_total": 1, "time_ms": 0}
    lists = {"meta": [], "clients": [], "events": [], "notes": ["because"]}
    console = Console(width=200, record=True, file=StringIO())
    console.print(screen_of({**made, **lists, **empty, "summary": summary, "servers": [{**server, **unknown}]}))
    shown = console.export_text()
    assert "[red]x[/red]?[2J" in shown
    assert "unknown" in shown
    assert "because" in shown
