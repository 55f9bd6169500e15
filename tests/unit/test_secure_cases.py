"""The list of cases of secure clusters (``tests/secure/CASES.md``): no case is missing, and every named test exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
CASES = 41
ROW = re.compile(r"\| (\d+) \| [^|]+ \| ([^|]+) \|")


def named_tests() -> dict[int, list[str]]:
    text = (TESTS / "secure" / "CASES.md").read_text(encoding="utf-8")
    return {int(number): tests.split() for number, tests in ROW.findall(text)}


def test_every_case_has_a_test() -> None:
    found = named_tests()
    assert list(found) == list(range(1, CASES + 1))
    assert all(found.values())


def test_every_named_test_exists() -> None:
    missing = []
    defined: dict[str, set[str]] = {}
    for name in sorted({name for names in named_tests().values() for name in names}):
        file, _, test = name.partition("::")
        if file not in defined:
            tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
            nodes = (ast.FunctionDef, ast.ClassDef)
            defined[file] = {node.name for node in ast.walk(tree) if isinstance(node, nodes)}
        if test not in defined[file]:
            missing.append(name)
    assert missing == []
