"""A newcomer with the wheel and no checkout: the pages of docs/ by copy and paste, in a fresh environment.

Each page's ``sh`` blocks run in order in one bash, and its blocks with ``title="FILE"`` are written to that file first.
A block of ``sh skip: REASON`` is not run, one of ``sh live: REASON`` only by ``make live``.
"""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from metaclient_local_hbase import missing_tools
from tests.wheels import INSTALL_S, built_wheel

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
#: Of one page, on a machine that does much else; the slowest takes 15 seconds by itself.
PAGE_S = 280
LIVE_S = 600

#: Page -> what its commands must print.
PAGES: dict[str, Sequence[str]] = {
    "tutorial.md": (
        "Usage: metaclient",
        "HBase of unknown version",
        "/home 2",
        "/news News",
        "1 passed",
        "250",
        "{b'cf:title': b'Page 7'}",
        "LoadBalance",
        "Start-up storm",
    ),
    "testing.md": ("1 passed",),
    "command-line.md": ("3 regions", "users truncated", "users dropped", "home", "people disabled", "replica 2"),
    "operations.md": ("meta-balance",),
}
#: Pages whose commands need a cluster that the reader has, or that another page has started.
WITH_CLUSTER = {"command-line.md", "operations.md"}

_BLOCK = re.compile(
    r"^```(?P<language>sh|python)[ \t]*(?P<note>[^\n]*)\n(?P<text>.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL
)
_START_FAKE = """
metaclient fake serve --json > fake.json &
until python -m json.tool fake.json > /dev/null 2>&1; do sleep 0.1; done
export METACLIENT_URL=$(python -c 'import json; print(json.load(open("fake.json"))["thrift2_url"])')
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Newcomer:
    """A folder with the wheel and an environment, and the variables of a shell that knows nothing of the checkout."""

    folder: Path
    environment: dict[str, str]

    def paste(self, script: str, *, timeout_s: float = PAGE_S) -> str:
        """Run a script as a reader pastes it; return what it printed. Everything that it started is ended."""
        guarded = f"set -euo pipefail\n{script}"
        with subprocess.Popen(
            ["bash", "-c", guarded],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as running:
            try:
                # The pipe is open until the last process of the script has ended, so that each page ends its own.
                out, _ = running.communicate(timeout=timeout_s)
            finally:
                _end_group(running.pid)
        assert running.returncode == 0, f"{script}\n--- printed:\n{out}"
        return out


def _end_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # nothing of it is left


def script_of(page: str, *, live: bool = False) -> str:
    """Return a page's commands and files as one script; ``live`` adds the blocks that need a real HBase."""
    parts = []
    for block in _BLOCK.finditer((DOCS / page).read_text(encoding="utf-8")):
        note, text = block["note"].strip(), block["text"]
        title = re.fullmatch(r'title="([\w.-]+)"', note)
        if title is not None:
            parts.append(f"cat > {title[1]} <<'END OF FILE'\n{text}END OF FILE\n")
        elif block["language"] == "sh" and (not note or (live and note.startswith("live:"))):
            parts.append(text)
        elif block["language"] == "sh" and not note.startswith(("skip: ", "live: ")):
            raise ValueError(f"{page}: ```sh {note}: after sh comes nothing, 'skip: REASON' or 'live: REASON'")
    return "\n".join(parts)


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Newcomer:
    """Follow docs/install.md in an empty folder with the wheel."""
    folder = tmp_path_factory.mktemp("newcomer")
    built_wheel(folder)
    programs = tmp_path_factory.mktemp("bin")
    (programs / "python3").symlink_to(Path(sys.executable).resolve())
    hidden = ("PYTHON", "METACLIENT", "XDG", "VIRTUAL_ENV", "COLUMNS", "PYTEST")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    made = Newcomer(folder, {**kept, "PATH": f"{programs}:{kept['PATH']}", "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    printed = made.paste(script_of("install.md"), timeout_s=INSTALL_S)
    assert "metaclient, version" in printed
    return made


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_page_works_by_copy_and_paste(newcomer: Newcomer, page: str) -> None:
    start = _START_FAKE if page in WITH_CLUSTER else ""
    end = "\nkill $!\n" if page in WITH_CLUSTER else ""
    printed = newcomer.paste(f". hbase-env/bin/activate\n{start}{script_of(page)}{end}")
    assert [words for words in PAGES[page] if words not in printed] == [], printed
    assert "Traceback" not in printed


@pytest.mark.live
def test_tutorial_works_on_a_real_hbase(newcomer: Newcomer, tmp_path: Path) -> None:
    if missing_tools() and not os.environ.get("CI"):
        pytest.skip(f"a real HBase needs {', '.join(missing_tools())}")
    script = (
        f". hbase-env/bin/activate\nexport METACLIENT_HBASE_FOLDER={tmp_path}\n{script_of('tutorial.md', live=True)}"
    )
    printed = newcomer.paste(script, timeout_s=LIVE_S)
    assert "HBase 2.6.1 answers" in printed
    assert printed.count("/home 2") == 2


def test_every_page_with_commands_is_run() -> None:
    with_commands = {
        path.name for path in DOCS.glob("*.md") if re.search(r"^```sh[ \t]*$|title=", path.read_text(), re.MULTILINE)
    }
    known = {*PAGES, "install.md"}
    assert with_commands - known <= {"index.md"}, "the start page repeats commands of the tutorial"


def test_script_has_files_and_commands_and_leaves_out_what_cannot_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.test_newcomer.DOCS", tmp_path)
    blocks = {'python title="a.py"': "print(1)", "sh": "python a.py", "sh skip: no": "no", "sh live: x": "up"}
    text = "".join(f"```{fence}\n{code}\n```\n" for fence, code in blocks.items())
    (tmp_path / "page.md").write_text(text)
    assert script_of("page.md") == "cat > a.py <<'END OF FILE'\nprint(1)\nEND OF FILE\n\npython a.py\n"
    assert script_of("page.md", live=True).endswith("up\n")
    (tmp_path / "page.md").write_text("```sh please\n```\n")
    with pytest.raises(ValueError, match="skip: REASON"):
        script_of("page.md")
