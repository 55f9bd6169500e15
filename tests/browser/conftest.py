"""A headless Chromium for the tests of the page; they are skipped, with the reason, where it is not installed.

With ``CI=true`` a missing browser is an error: ``make browser-tools`` installs it.
"""

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

#: Debian's package `chromium`, and the names of other systems.
_NAMES = ("chromium", "chromium-browser", "google-chrome")


def _unavailable(reason: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}; `make browser-tools` installs it")
    pytest.skip(reason)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser, shared by the tests of a module: each opens a context of its own.

    Not longer: while it is open, playwright runs an event loop in this thread, and tests of asyncio need their own.
    """
    path = next((found for name in _NAMES if (found := shutil.which(name))), None)
    if path is None:
        _unavailable("there is no Chromium: install the package chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _unavailable("playwright is not installed: pip install 'hbase-metaclient[browser]'")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, headless=True, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()
