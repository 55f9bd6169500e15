"""Every ignore of a type checker or linter in product code has its reason on the same line."""

import io
import re
import tokenize
from collections.abc import Iterator

import pytest

from tests.architecture.test_sizes import FOLDERS, ROOT

_IGNORE = re.compile(r"# (?:type: ignore(?:\[[a-z, -]+\])?|noqa(?:: [A-Z0-9, ]+)?)")


def bare_ignores(text: str) -> Iterator[int]:
    """Return the line of each ignore that is followed by no text."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_ignore = token.type == tokenize.COMMENT and _IGNORE.search(token.string)
        if is_ignore and not re.search(r"[a-z]{2}", _IGNORE.sub("", token.string)):
            yield token.start[0]


def test_ignores_of_product_code_have_a_reason() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line in bare_ignores(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("line", "is_bare"),
    [
        ("a = 1  # noqa: E741", True),
        ("a = 1  # noqa", True),
        ("a = 1  # type: ignore[arg-type]", True),
        ("a = 1  # type: ignore[arg-type, misc]  #", True),
        ("a = 1  # type: ignore[arg-type]  # a str key is a miss", False),
        ("a = 1  # noqa: E741 - the name of the protocol", False),
        ("a = '# noqa: E741'", False),
    ],
)
def test_checker_reports_a_bare_ignore(line: str, is_bare: bool) -> None:
    assert list(bare_ignores(line + "\n")) == ([1] if is_bare else [])
