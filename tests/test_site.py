"""The site: every page is in its navigation, the build finds them all, and no page loads anything from another host."""

from __future__ import annotations

import html.parser
import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SITE = ROOT / "build" / "site"

#: Pages that readers look for; other pages may come and go.
PAGES = {
    "asyncio.md",
    "changes.md",
    "command-line.md",
    "comparison.md",
    "consistency.md",
    "design.md",
    "index.md",
    "install.md",
    "operations.md",
    "reference/connection.md",
    "security.md",
    "spark.md",
    "testing.md",
    "troubleshooting.md",
    "tutorial.md",
    "versions.md",
}


def _hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_hooks", DOCS / "site_hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _settings() -> dict[str, Any]:
    loaded = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def test_every_page_is_in_the_navigation() -> None:
    hooks = _hooks()
    named = hooks.pages(hooks.navigation(_settings()["nav"], DOCS))
    assert sorted(named) == sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
    assert set(named) >= PAGES


def test_missing_page_is_left_out_and_new_page_is_added(tmp_path: Path) -> None:
    for name in ("a.md", "new.md"):
        (tmp_path / name).touch()
    nav = [{"A": "a.md"}, {"Part": [{"Gone": "gone.md"}]}]
    assert _hooks().navigation(nav, tmp_path) == [{"A": "a.md"}, {"More": ["new.md"]}]


def test_notes_of_fences_and_links_out_of_the_folder_are_rewritten() -> None:
    page = "```python skip: needs Spark\nx\n```\n```sh live: Java\ny\n```\n[c](../CONTRIBUTING.md) [d](design.md)\n"
    made = _hooks().on_page_markdown(page)
    assert "skip" not in made
    assert "live" not in made
    assert "/blob/main/CONTRIBUTING.md)" in made
    assert "[d](design.md)" in made


def test_nothing_of_the_theme_comes_from_another_host() -> None:
    settings = _settings()
    assert settings["theme"]["font"] is False
    assert "repo_url" not in settings, "with it, each page asks the host of the repository for its stars"
    assert settings["strict"] is True


class _Loaded(html.parser.HTMLParser):
    """Collects what a page loads by itself: scripts, styles, images, frames; not the links that a reader follows."""

    def __init__(self) -> None:
        super().__init__()
        self.sources: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        name = "href" if tag == "link" and found.get("rel") not in ("canonical", "next", "prev") else "src"
        if found.get(name):
            self.sources.append(str(found[name]))


def loaded(text: str) -> list[str]:
    """Return what a page loads."""
    parser = _Loaded()
    parser.feed(text)
    return parser.sources


def test_checker_finds_a_foreign_script() -> None:
    page = (
        '<link rel="stylesheet" href="a.css"><script src="https://cdn.example/x.js"></script><a href="https://b/"></a>'
    )
    assert loaded(page) == ["a.css", "https://cdn.example/x.js"]


@pytest.mark.site
def test_built_pages_load_only_files_of_the_site() -> None:
    pages = sorted(SITE.rglob("*.html"))
    assert len(pages) >= len(PAGES)
    for page in pages:
        for source in loaded(page.read_text(encoding="utf-8")):
            if source.startswith("data:"):
                continue
            assert "//" not in source, f"{page}: {source}"
            if page.name != "404.html":  # served from anywhere: its paths are absolute
                assert (page.parent / source.partition("?")[0].partition("#")[0]).exists(), f"{page}: {source}"


@pytest.mark.site
def test_search_finds_every_page() -> None:
    index = json.loads((SITE / "search" / "search_index.json").read_text(encoding="utf-8"))
    places = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {page.replace(".md", ".html") for page in PAGES} <= places


@pytest.mark.site
def test_docstrings_become_markdown() -> None:
    spec = importlib.util.spec_from_file_location("docstrings", DOCS / "docstrings.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.as_markdown("Raise :class:`~metaclient.errors.ConfigError`.") == "Raise `ConfigError`."
    assert module.as_markdown("Add.\n\n>>> 1 + 1\n2") == "Add.\n\n```pycon\n>>> 1 + 1\n2\n```"


@pytest.mark.site
def test_no_mark_of_the_sources_is_left_in_a_page() -> None:
    """Roles of reStructuredText, notes of fences and unrendered references would be seen by readers."""
    for page in SITE.rglob("*.html"):
        text = re.sub(r"<(script|style).*?</\1>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for mark in (":class:", ":func:", ":meth:", "python skip:", "sh live:", ":::"):
            assert mark not in text, f"{page}: {mark}"
