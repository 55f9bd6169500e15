"""Hooks of the site's build: notes in fences, links out of docs/, and a navigation that follows the files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

REPOSITORY = "https://github.com/hbase-metaclient/hbase-metaclient/blob/main/"
#: ```python skip: needs a real HBase``: the tests read what stands behind the language, the renderer must not.
_NOTE = re.compile(r"^(```[a-z]+)[ \t]+(?:skip|live):[^\n]*$", re.MULTILINE)
_OUTSIDE = re.compile(r"\]\(\.\./([^)\s]+)\)")


def on_config(config: Any) -> Any:
    """Leave pages that do not exist out of the navigation, and add those that it does not name."""
    folder = Path(config["docs_dir"])
    config["nav"] = navigation(config["nav"], folder)
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the page with plain fences, and with links to files outside docs/ that lead to the repository."""
    return _OUTSIDE.sub(rf"]({REPOSITORY}\1)", _NOTE.sub(r"\1", markdown))


def navigation(nav: list[Any], folder: Path) -> list[Any]:
    """Return the navigation without missing pages, with unnamed pages under "More"."""
    kept = _existing(nav, folder)
    named = set(pages(kept))
    others = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.md"))
    more = [name for name in others if name not in named]
    return [*kept, {"More": more}] if more else kept


def pages(nav: Any) -> list[str]:
    """Return the files that a navigation names."""
    if isinstance(nav, str):
        return [nav]
    inner = nav.values() if isinstance(nav, dict) else nav
    return [page for one in inner for page in pages(one)]


def _existing(nav: list[Any], folder: Path) -> list[Any]:
    kept: list[Any] = []
    for entry in nav:
        ((title, target),) = entry.items()
        if isinstance(target, list):
            inner = _existing(target, folder)
            kept += [{title: inner}] if inner else []
        elif (folder / target).exists():
            kept.append(entry)
    return kept
